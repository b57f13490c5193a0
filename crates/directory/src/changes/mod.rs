//! The change feed: what every commit has changed, in commit order. Those who follow a directory read it.
//!
//! Each transaction leaves one [record] in the engine's feed, in the same commit as its changes. A record names the
//! entries, the change sequence number ([`Csn`]) of each change, and what a deleted or renamed entry was called; the
//! entry as it is now stands in the snapshot. The numbers come from one [clock]. [`ChangeReader`](crate::ChangeReader)
//! reads the records behind a [`ChangePosition`](crate::ChangePosition); [`ChangesKept`] says how far back they reach.
//!
//! A load writes no records, and a restored directory continues from an older state. Both begin a new *generation* of
//! the feed, and a position of another one is refused with [`TooOld`](crate::engine::Error::TooOld): the one that has
//! it reads everything anew.

pub(crate) mod agreement;
pub(crate) mod clock;
pub(crate) mod conflicts;
mod kept;
pub(crate) mod record;
pub(crate) mod registers;
pub(crate) mod tombstones;
pub(crate) mod vector;
pub(crate) mod watermark;

pub use conflicts::{LostAttribute, LostChange, LostWhat};
pub(crate) use kept::Added;
pub use kept::ChangesKept;
pub use registers::read_registers;
pub use sapwood_ldap::csn::Csn;

use crate::engine::EntryId;

/// What happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChangeKind {
    /// It was added.
    Added = 1,
    /// It was deleted.
    Deleted = 2,
    /// Its attributes were changed.
    Modified = 3,
    /// It got another name, or another entry above it, and so did all that is below it.
    Renamed = 4,
}

/// One change of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'r> {
    /// What happened.
    pub kind: ChangeKind,
    /// The entry.
    pub entry: EntryId,
    /// The change's number. Of a change that a client made it is also the entryCSN that the entry had then; an imported
    /// entry brings its own.
    pub csn: Csn,
    /// Of a deleted or renamed entry: what it was before.
    pub former: Option<Former<'r>>,
}

/// What is left of an entry that was deleted, or had another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former<'r> {
    /// Its entryUUID; zeroes if it had none.
    pub uuid: [u8; 16],
    /// Its DN before the change, as written.
    pub dn: &'r str,
}

/// A record of the feed is not of its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of the change feed is not of its form")]
pub(crate) struct Damaged;

impl From<Damaged> for crate::engine::Error {
    fn from(damaged: Damaged) -> crate::engine::Error {
        crate::engine::Error::Corrupt(damaged.to_string())
    }
}
