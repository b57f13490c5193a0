//! The server on an engine that does not have at hand what is read for the first time: sessions wait for it, and the
//! answers are the same. These are the tests of the embedded engine, in which another server stands for theirs.

#![allow(clippy::unwrap_used)]

extern crate sapwood_testkit as testkit;
// What the tests import from there they find here.
extern crate self as sapwood_testkit;

pub use testkit::*;

/// A server on that engine.
pub type TestServer =
    testkit::TestServerOn<sapwood_directory::engine::Shy<sapwood_directory::engine::Embedded>>;

mod acting;
mod authentication;
mod client_certificates;
mod identities;
mod lburp;
mod long_evaluation;
mod password_policy;
mod passwords;
mod persistent_search;
mod protocol;
mod scram;
mod second_factor;
mod stores;
mod transactions;
mod unique;
