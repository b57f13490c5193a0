//! Attacks on a server whose engine does not have at hand what is read for the first time, as in `over_shy.rs`.

#![allow(clippy::unwrap_used)]

extern crate sapwood_testkit as testkit;
// What the tests import from there they find here.
extern crate self as sapwood_testkit;

pub use testkit::*;

/// A server on that engine.
pub type TestServer =
    testkit::TestServerOn<sapwood_directory::engine::Shy<sapwood_directory::engine::Embedded>>;

mod abuse;
