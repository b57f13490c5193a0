//! Which entries were examined. An entry is sent as it is stored, so that a damaged one would make a malformed message. Looking at each
//! whenever it is sent would cost half as much again as sending it; so each is looked at when it is sent for the first time, and a bit says
//! that it was. What this process has written need not be looked at.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::is_protected;
use crate::definition;
use crate::engine::{EntryId, Range, Read, Table};
use crate::entry::{Damaged, Entry};
use crate::operational::{Operational, Vocabulary};

/// Looks at all of an entry: whether what is sent of it as it is stored is well-formed, and nothing protected stands among what everybody sees.
pub(crate) fn examine(
    entry: &Entry<'_>,
    vocabulary: Vocabulary<'_>,
) -> std::result::Result<(), Damaged> {
    let is_protected = |number| {
        let known = vocabulary.attributes.get(number);
        known.is_some_and(|known| is_protected(vocabulary.schema, known.attribute_type()))
    };
    entry.examine(is_protected)?;
    match Operational::read(entry.operational())? {
        Operational::Brief(_) => Ok(()),
        Operational::Full(record) => Entry::new(record)?.examine(is_protected),
    }
}

/// For each entry that is there, so many ids are kept in mind at most: others were deleted, or the next id is damaged.
const IDS_PER_ENTRY_MAX: u64 = 16;
const IDS_MIN: u64 = 1 << 16;

/// What is known of the entries that were there when the directory was opened. One bit each.
pub(crate) struct Examined {
    stores: Vec<OfStore>,
}

struct OfStore {
    bits: Box<[AtomicU64]>,
    /// Entries from here on were made since.
    made_since: u64,
}

impl Examined {
    /// That of a directory that was just opened.
    pub(crate) fn new<R: Read>(view: &R, stores: usize) -> Examined {
        let of_store = |store: u16| {
            let root = EntryId::root_of(store);
            let (from, to) = (root.to_key(), EntryId::root_of(store + 1).to_key());
            let entries = view.estimate(Table::Entry, Range::between(&from, &to));
            let next = definition::next_id(view, store);
            // What cannot be read is told where it is needed.
            let made_since = next.map_or(u64::MAX, |next| next.0 - root.0);
            let ids_max = entries.map_or(0, |entries| entries.saturating_mul(IDS_PER_ENTRY_MAX));
            let ids = made_since.min(ids_max.max(IDS_MIN));
            let words = usize::try_from(ids.div_ceil(64)).unwrap_or_default();
            OfStore {
                bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
                made_since,
            }
        };
        Examined {
            stores: (0..stores as u16).map(of_store).collect(),
        }
    }

    /// Whether an entry need not be examined.
    #[inline]
    pub(crate) fn knows(&self, id: EntryId) -> bool {
        let (of_store, number) = self.place(id);
        of_store.is_some_and(|of_store| match of_store.bits.get((number / 64) as usize) {
            Some(word) => word.load(Ordering::Relaxed) >> (number % 64) & 1 != 0,
            None => id.partitions().is_none() && number >= of_store.made_since,
        })
    }

    /// Notes that an entry was examined.
    #[cold]
    pub(crate) fn note(&self, id: EntryId) {
        let (of_store, number) = self.place(id);
        if let Some(word) = of_store.and_then(|of_store| of_store.bits.get((number / 64) as usize))
        {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }

    #[inline]
    fn place(&self, id: EntryId) -> (Option<&OfStore>, u64) {
        let store = id.store();
        (
            self.stores.get(usize::from(store)),
            id.0 - EntryId::root_of(store).0,
        )
    }
}
