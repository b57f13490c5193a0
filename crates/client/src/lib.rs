//! What speaks to a directory from the outside: an LDAP client, and the entries that demonstrations and
//! measurements are made with.
//!
//! [`Client`] is for programs: one future per operation, any number under way on one connection. [`Connection`] is
//! for load drivers: bytes out, messages in, nothing in between.

pub mod drive;
pub mod generate;

mod adder;
mod client;
mod connection;
mod error;
mod tls;

pub use adder::{Adder, Refused, speaks_lburp};
pub use client::{Client, Reply, SearchResults};
pub use connection::{Connection, LDAPI_PATH, Options};
pub use error::{Error, OperationError};
pub use tls::Trust;
