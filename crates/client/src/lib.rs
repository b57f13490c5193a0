//! An LDAP client.
//!
//! [`Client`] is for programs: each operation is a future, and any number of them share one connection. [`Connection`]
//! is for programs that send whole bursts: it writes encoded messages and reads them, with nothing in between.
//! [`Adder`] adds many entries over one connection.

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
