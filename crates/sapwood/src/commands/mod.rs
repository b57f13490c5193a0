//! One file for each command.

pub(crate) mod demo;
pub(crate) mod init;
pub(crate) mod passwd;
pub(crate) mod reload;
pub(crate) mod serve;
