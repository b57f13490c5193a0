//! Replication without sockets and disks: a [`Model`] of a replica, a simulator in which some of them are updated while
//! everything goes wrong ([`simulate`]), and what decides whether they have become what they should ([`join`]).
//!
//! `mesh.rs` has the servers and what happens to them, `client.rs` the updates, `check.rs` what has to hold at the end.

mod check;
mod client;
mod mesh;
mod model;
mod reference;

pub use mesh::{Flaw, Outcome, Server, simulate};
pub use model::{Model, kind, naming_values};
pub use reference::{Directory, join};
