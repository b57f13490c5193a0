//! What tests share. It is a dev-dependency and nothing else; each part is a feature.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "ldap")]
mod answer;
pub mod children;
#[cfg(feature = "ldap")]
mod client;
#[cfg(feature = "ldap")]
pub mod copies;
#[cfg(feature = "directory")]
pub mod directories;
#[cfg(feature = "program")]
pub mod folder;
#[cfg(feature = "program")]
pub mod program;
mod random;
#[cfg(feature = "replication")]
pub mod replication;
#[cfg(feature = "ldap")]
pub mod requests;
#[cfg(feature = "ldap")]
pub mod scripted;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "program")]
mod slapd;
#[cfg(feature = "wal")]
pub mod storage;

// `storage/` is also a part of the log's own unit tests, where this is the crate itself.
#[cfg(feature = "wal")]
use sapwood_wal as wal;

#[cfg(feature = "ldap")]
pub use answer::Answer;
#[cfg(feature = "ldap")]
pub use client::Client;
pub use random::Random;
#[cfg(feature = "server")]
pub use server::{
    THREADS, TestServer, TestServerOn, TlsStream, tls_client, tls_client_asking, tls_client_with,
};
#[cfg(feature = "program")]
pub use slapd::{Slapd, SlapdSetup, free_address};

/// The naming context of the example directory.
pub const SUFFIX: &str = "dc=example,dc=com";
/// The administrator of the example directory.
pub const ADMIN: &str = "cn=admin,dc=example,dc=com";
/// The administrator's password.
pub const PASSWORD: &str = "the admin's password";
