//! What tests share. It is a dev-dependency and nothing else; each part is a feature.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "ldap")]
mod answer;
#[cfg(feature = "ldap")]
mod client;
#[cfg(feature = "directory")]
pub mod directories;
#[cfg(feature = "ldap")]
pub mod requests;
#[cfg(feature = "ldap")]
pub mod scripted;
#[cfg(feature = "server")]
mod server;

#[cfg(feature = "ldap")]
pub use answer::Answer;
#[cfg(feature = "ldap")]
pub use client::Client;
#[cfg(feature = "server")]
pub use server::{THREADS, TestServer, tls_client};

/// The naming context of the example directory.
pub const SUFFIX: &str = "dc=example,dc=com";
/// The administrator of the example directory.
pub const ADMIN: &str = "cn=admin,dc=example,dc=com";
/// The administrator's password.
pub const PASSWORD: &str = "the admin's password";
