//! Which entries were examined. An entry is sent as it is stored, so that a damaged one would make a malformed message.
//! Looking at each whenever it is sent would cost half as much again as sending it; so each is looked at when it is
//! sent for the first time, and a bit says that it was. What this process has written need not be looked at.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::{EntryId, Range, Read, Table};
use crate::entry::{Damaged, Entry};
use crate::operational::{Operational, Vocabulary};

/// Looks at all of an entry: whether what is sent of it as it is stored is well-formed, and nothing protected stands
/// among what everybody sees.
pub(crate) fn examine(
    entry: &Entry<'_>,
    vocabulary: Vocabulary<'_>,
) -> std::result::Result<(), Damaged> {
    let is_protected = |number| {
        let known = vocabulary.attributes.get(number);
        known.is_some_and(|known| vocabulary.schema.is_protected(known.attribute_type()))
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
            // What cannot be read is told where it is needed.
            let end = view.ids_end(store).ok().flatten();
            let made_since = end.map_or(u64::MAX, |end| end.0 - root.0);
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

    /// What is known of the 64 entries with ids like this one but for the last bits.
    fn around(&self, id: EntryId) -> u64 {
        let (of_store, number) = self.place(id);
        let Some(of_store) = of_store else { return 0 };
        match of_store.bits.get((number / 64) as usize) {
            Some(word) => word.load(Ordering::Relaxed),
            None if id.partitions().is_some() => 0,
            None => match of_store.made_since.saturating_sub(number - number % 64) {
                before @ 0..64 => u64::MAX << before,
                _ => 0,
            },
        }
    }

    fn note(&self, id: EntryId) {
        let (of_store, number) = self.place(id);
        if let Some(word) = of_store.and_then(|of_store| of_store.bits.get((number / 64) as usize))
        {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }

    fn place(&self, id: EntryId) -> (Option<&OfStore>, u64) {
        let store = id.store();
        (
            self.stores.get(usize::from(store)),
            id.0 - EntryId::root_of(store).0,
        )
    }
}

/// The same for who asks for one entry after the other, mostly in the order of their ids.
pub(crate) struct Known<'e> {
    examined: &'e Examined,
    /// What `bits` are about: ids without their last six bits.
    block: u64,
    bits: u64,
}

impl<'e> Known<'e> {
    pub(crate) fn of(examined: &'e Examined) -> Known<'e> {
        Known {
            examined,
            // No id has so many bits.
            block: u64::MAX,
            bits: 0,
        }
    }

    /// Whether an entry need not be examined.
    #[inline]
    pub(crate) fn has(&mut self, id: EntryId) -> bool {
        if id.0 / 64 != self.block {
            self.block = id.0 / 64;
            self.bits = self.examined.around(id);
        }
        self.bits >> (id.0 % 64) & 1 != 0
    }

    /// Notes that the entry that was asked for was examined.
    #[cold]
    pub(crate) fn note(&mut self, id: EntryId) {
        self.examined.note(id);
        self.bits |= 1 << (id.0 % 64);
    }
}
