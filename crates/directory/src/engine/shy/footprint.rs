//! What a bundle touches: two bundles that begin with the same data can both be committed if neither has changed what
//! the other one depends on.

use std::collections::HashSet;

use crate::engine::{EntryId, Table};

/// What a bundle's last run has written, and what it has asked to stay as it is.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    pub(super) written: HashSet<(Table, Vec<u8>)>,
    pub(super) guarded: HashSet<(Table, Vec<u8>)>,
    /// Parents that have to stay.
    pub(super) parents: HashSet<EntryId>,
    /// Entries that have to stay without children.
    pub(super) removed: HashSet<EntryId>,
    /// Whether nobody else may move anything.
    pub(super) moves: bool,
}

impl Footprint {
    /// Whether an engine that keeps no locks would have to refuse one of the two.
    pub fn conflicts_with(&self, other: &Footprint) -> bool {
        self.is_hurt_by(other) || other.is_hurt_by(self) || self.moves && other.moves
    }

    fn is_hurt_by(&self, other: &Footprint) -> bool {
        let mut written = other.written.iter();
        let mut removed = other.removed.iter();
        written.any(|record| self.written.contains(record) || self.guarded.contains(record))
            || removed.any(|parent| self.parents.contains(parent))
    }
}
