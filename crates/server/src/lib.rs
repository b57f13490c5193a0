//! Listeners, sessions, TLS and authentication for the directory.
//!
//! A request's way: [`server`] accepts a connection, [`dispatch`] finds the thread that serves it, [`connection`] reads
//! bytes, [`session`] decodes and answers; updates go through [`writer`]. What connections hold in memory together is
//! bounded by [`memory`], and how many there are by [`admission`].

mod account_keeper;
mod accounts;
mod acknowledgements;
pub mod admin;
mod admission;
mod auth;
mod client_identity;
mod closing;
mod committed;
pub mod config;
mod connection;
pub mod consumer;
mod dispatch;
mod endpoint;
mod expiry;
mod extensions;
mod failed_binds;
mod followers;
mod handshake_memory;
mod index_builder;
mod input_memory;
pub mod invitations;
mod journal;
mod json;
#[cfg(feature = "gssapi")]
mod kerberos;
pub mod listen;
mod memory;
pub mod password;
mod peer;
mod printable;
mod processors;
pub mod proxy_protocol;
pub mod server;
mod session;
mod settings;
mod slices;
mod stream;
pub mod tls;
mod workers;
mod writer;

pub use auth::read_messages as read_sasl_messages;
pub use committed::CommitWaiter;
pub use config::{Config, Flags};
pub use consumer::{ConsumerState, ConsumerStatus};
pub use extensions::{IMPLICIT_MEMBERSHIP, IMPLICIT_START};
pub use journal::{JournalError, WhenFull};
pub use server::{Server, StartError, root_dse};
pub use settings::SettingsError;
