//! Which entries above one have to be told before it, though the change feed names them in a later portion.

use std::collections::HashMap;

use super::telling::{Changed, read};
use crate::directory::{ChangeReader, Snapshot};
use crate::engine::{Engine, EntryId};
use crate::error::Result;
use crate::search::persistent::Side;

/// Entries that are kept in mind at most: some 400 KiB. Of changes beyond that, parents may be told late.
const KEPT_MAX: usize = 16_384;
/// Changes of later portions that are read at once.
const READ_AT_ONCE: usize = 4096;

/// What is known of the entries that later portions name.
pub(super) struct Later<E: Engine> {
    /// Reads the later portions, where there is no older snapshot to compare with. None once all is read.
    reader: Option<ChangeReader<E>>,
    /// Which of them are new or have a new name, where there is no older snapshot.
    named: HashMap<EntryId, Changed>,
    /// Entries that are not to be told before their turn: whether they were told already.
    known: HashMap<EntryId, bool>,
}

impl<E: Engine> Later<E> {
    /// Looks at both snapshots.
    pub(super) fn compared() -> Later<E> {
        Later {
            reader: None,
            named: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Reads all that follows in the feed before anything is told.
    pub(super) fn read_by(reader: ChangeReader<E>) -> Later<E> {
        Later {
            reader: Some(reader),
            ..Later::compared()
        }
    }

    /// Reads on, up to a snapshot; whether there may be more.
    pub(super) fn read(&mut self, now: &Snapshot<E>) -> Result<bool> {
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        let named = &mut self.named;
        let is_read = reader.take(now, READ_AT_ONCE, |change| {
            let changed = Changed::default().and(change.kind);
            if changed.is_named() && (named.len() < KEPT_MAX || named.contains_key(&change.entry)) {
                named.entry(change.entry).or_default().add(changed);
            }
        })?;
        if is_read || named.len() >= KEPT_MAX {
            self.reader = None;
        }
        Ok(self.reader.is_some())
    }

    /// What is to be said of an entry of the newer snapshot if it is told now, because it is new or has a new name.
    /// `None` if it is not told before its turn. `lacks_before` says which snapshot was asked when something is not
    /// here.
    pub(super) fn due(
        &mut self,
        id: EntryId,
        (before, now): (Option<&Side<E>>, &Snapshot<E>),
        lacks_before: &mut bool,
    ) -> Result<Option<Changed>> {
        if self.known.contains_key(&id) {
            return Ok(None);
        }
        let changed = match before {
            None => self.named.get(&id).copied().unwrap_or_default(),
            Some(before) => {
                let name = name_of(now, id)?;
                *lacks_before = true;
                let is_new = !before.has(id)?;
                let is_renamed = !is_new && name_of(&before.snapshot, id)? != name;
                *lacks_before = false;
                Changed::named(is_new, is_renamed)
            }
        };
        // Where there is no older snapshot, what is not named is found as fast again.
        if before.is_some() && !changed.is_named() {
            self.keep(id, false);
        }
        Ok(changed.is_named().then_some(changed))
    }

    /// Whether an entry with a new name was told already.
    pub(super) fn is_told(&self, id: EntryId) -> bool {
        self.known.get(&id) == Some(&true)
    }

    /// Keeps in mind that an entry is not told before its turn: whether that is because it was told.
    pub(super) fn keep(&mut self, id: EntryId, is_told: bool) {
        if self.known.len() >= KEPT_MAX {
            // Some are told twice then, which changes nothing.
            self.known.clear();
        }
        self.known.insert(id, is_told);
    }
}

/// An entry's parent and RDN.
fn name_of<E: Engine>(snapshot: &Snapshot<E>, id: EntryId) -> Result<(EntryId, Vec<u8>)> {
    read(snapshot, id, |entry| {
        Ok((entry.parent(), entry.rdn_bytes().to_vec()))
    })
}
