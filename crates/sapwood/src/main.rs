//! The `sapwood` command.

fn main() {}
