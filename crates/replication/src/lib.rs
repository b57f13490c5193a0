//! How several directories that all take updates become equal.
//!
//! Each update is one or more [`Change`]s of *registers*: an entry's place, one of its values, its deletion. A register
//! keeps the change with the greatest change sequence number, so replicas that have the same changes are equal, however
//! these came. A [`Vector`] says which changes a replica has; [`Bundle::since`] is what somebody with another vector
//! lacks, and [`merge`] applies it. What was acknowledged and then lost stands in the log of [`Conflict`]s.
//!
//! Servers tell each other whole entries. With each comes an [`EntryRegisters`], the numbers of its registers, and
//! [`join_attribute`] keeps the later change of each. They use [`counts`], [`compare_claims`], the vector and the
//! cookies as well; bundles and the log of all servers are the simulator's so far.
//!
//! The rules are functions on a [`Replica`], which is the tables of one. There is no I/O, no clock and no randomness
//! here.
//!
//! To read on: [`change`](Change), [`replica`](Replica), `merge/mod.rs` and the files beside it, `bundle.rs`,
//! `horizon.rs` on what may be forgotten, and `rejoin.rs` on servers that were away for too long.

mod bundle;
mod change;
mod conflict;
mod cookie;
mod entry_registers;
mod horizon;
mod merge;
mod rejoin;
mod replica;
mod seen;
mod vector;

pub use bundle::{Bundle, SinceError};
pub use change::{
    Attribute, Attributes, Change, EntryChanges, Kind, Place, Resolution, Stamp, Uuid, Value, What,
};
pub use conflict::{Conflict, Lost, Rule};
pub use cookie::{COOKIE_BYTES_MAX, Cookie, CookieError, POSITION_BYTES_MAX, RID_MAX};
pub use entry_registers::{
    AttributeSide, DESCRIPTION_BYTES_MAX, EntryRegisters, FORM_BYTES_MAX, InvalidRegisters,
    JoinedAttribute, LostRegister, NUMBERS_MAX, REGISTERS_BYTES_MAX, VALUE_NUMBERS_MAX,
    join_attribute,
};
pub use horizon::{Horizon, Members, Settled, prune};
pub use merge::{AHEAD_MICROS_MAX, MergeError, compare_claims, counts, merge, update};
pub use rejoin::{RejoinError, rejoin};
pub use replica::{Move, Node, Register, Replica, Shown};
pub use seen::Seen;
pub use vector::Vector;
