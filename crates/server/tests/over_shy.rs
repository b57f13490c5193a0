//! The server on an engine that does not have at hand what is read for the first time: sessions wait for it, and the
//! answers are the same. These are the tests of the embedded engine, in which another server stands for theirs. Those
//! of attacks are in `abuse_over_shy.rs`: what a process logs is looked at by one of its tests only.

#![allow(clippy::unwrap_used)]

extern crate sapwood_testkit as testkit;
// What the tests import from there they find here.
extern crate self as sapwood_testkit;

pub use testkit::*;

/// A server on that engine.
pub type TestServer =
    testkit::TestServerOn<sapwood_directory::engine::Shy<sapwood_directory::engine::Embedded>>;

mod access_log;
mod acting;
mod attribute_scope;
mod authentication;
mod client_certificates;
mod content_digests;
mod dereference;
mod effective_rights;
mod identities;
mod journals;
mod lburp;
mod list_view;
mod long_evaluation;
mod matched_values;
mod matching_entry_count;
mod password_policy;
mod passwords;
mod persistent_search;
mod protocol;
mod proxies;
mod range_retrieval;
mod real_and_virtual;
mod relaxed;
mod requirements;
mod resource_limits;
mod saslauthd;
mod scram;
mod search_limits;
mod second_factor;
mod small_controls;
mod sorting;
mod stores;
mod tls;
mod transactions;
mod unique;
mod verify_credentials;
mod what_failed;
