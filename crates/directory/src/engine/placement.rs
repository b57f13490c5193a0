//! Which store of an environment a record is in.
//!
//! The key of an entry tells its store: an id begins with the store's number, and the id of a partitioned parent names
//! the stores of its children. So there is no table of places to read or to keep. The first store holds what concerns
//! the whole directory: its definition and the numbers of attributes.

use std::ops::Bound;

use xxhash_rust::xxh3::xxh3_64;

use super::{EntryId, Range, STORES_MAX, Table};

const _: () = assert!(STORES_MAX as u32 <= u64::BITS);

/// Numbers of stores, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSet(u64);

impl StoreSet {
    /// The first store alone.
    pub const FIRST: StoreSet = StoreSet(1);

    /// One store alone.
    pub fn one(store: u16) -> StoreSet {
        StoreSet(1u64.checked_shl(u32::from(store)).unwrap_or(0))
    }

    /// The first `count` stores.
    pub fn all(count: usize) -> StoreSet {
        (0..count as u16)
            .map(StoreSet::one)
            .fold(StoreSet::default(), StoreSet::with)
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: StoreSet) -> StoreSet {
        StoreSet(self.0 | other.0)
    }

    /// Whether a store is among them.
    pub fn contains(self, store: u16) -> bool {
        self.0 & StoreSet::one(store).0 != 0
    }

    /// Whether any store is in both.
    pub fn meets(self, other: StoreSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The least of them; the first store if there is none.
    pub fn least(self) -> u16 {
        if self.is_empty() {
            0
        } else {
            self.0.trailing_zeros() as u16
        }
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Their numbers, ascending.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        (0..STORES_MAX).filter(move |store| self.contains(*store))
    }
}

/// The store that the record with this key is in, of `stores`.
pub(super) fn store_of(table: Table, key: &[u8], stores: usize) -> usize {
    let store = match table {
        Table::Entry | Table::State | Table::Values => leading(key),
        Table::Name => name(key),
        // The key of an ordering table ends with the id.
        Table::Order(_) => leading(&key[key.len().saturating_sub(8)..]),
        Table::Meta => match key {
            [.., 0, high, low] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        },
        Table::Attribute => 0,
    };
    usize::from(store).min(stores - 1)
}

/// The store of a name below a partitioned parent, by its key in the name table.
pub(crate) fn partition_of(name_key: &[u8]) -> u16 {
    name(name_key)
}

/// The store that an entry's postings are in.
pub(super) fn store_of_id(id: EntryId, stores: usize) -> usize {
    usize::from(id.store()).min(stores - 1)
}

/// The stores that a scan of a range goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// One after the other, the first to the last: no key of one comes before those of the one before it.
    InTurn(usize, usize),
    /// All of these together, the first to the last.
    Merged(usize, usize),
}

pub(super) fn scanned(table: Table, range: Range<'_>, stores: usize) -> Scanned {
    let last = stores - 1;
    match table {
        Table::Entry | Table::State | Table::Values => {
            let store = |bound: Bound<&[u8]>, open| match bound {
                Bound::Included(key) | Bound::Excluded(key) => store_of(table, key, stores),
                Bound::Unbounded => open,
            };
            let from = store(range.from, 0);
            Scanned::InTurn(from, store(range.to, last).max(from))
        }
        Table::Attribute => Scanned::InTurn(0, 0),
        Table::Name => match parent_of(range) {
            Some(parent) => match parent.partitions() {
                Some((first, count)) => {
                    let first = usize::from(first).min(last);
                    Scanned::Merged(first, (first + usize::from(count.max(1)) - 1).min(last))
                }
                None => {
                    let store = store_of_id(parent, stores);
                    Scanned::InTurn(store, store)
                }
            },
            None => Scanned::Merged(0, last),
        },
        Table::Order(_) | Table::Meta => Scanned::Merged(0, last),
    }
}

/// The parent whose children a range of the name table holds, if it is one alone.
fn parent_of(range: Range<'_>) -> Option<EntryId> {
    let (Bound::Included(from) | Bound::Excluded(from)) = range.from else {
        return None;
    };
    let parent = EntryId::from_key(from.get(..8)?)?;
    match range.to {
        Bound::Excluded(to) if *to == EntryId(parent.0.checked_add(1)?).to_key() => Some(parent),
        Bound::Included(to) | Bound::Excluded(to) if to.get(..8)? == parent.to_key() => {
            Some(parent)
        }
        _ => None,
    }
}

/// The store at the beginning of an id; missing bytes count as zeros, so that the order of keys is that of their
/// stores.
fn leading(key: &[u8]) -> u16 {
    let byte = |at| key.get(at).copied().unwrap_or_default();
    u16::from_be_bytes([byte(0), byte(1)])
}

/// The store of a name: that of its parent, or one of those that a partitioned parent names.
fn name(key: &[u8]) -> u16 {
    let Some((parent, rdn)) = key.split_first_chunk::<8>() else {
        return leading(key);
    };
    let parent = EntryId(u64::from_be_bytes(*parent));
    match parent.partitions() {
        Some((first, stores)) => {
            let part = (u128::from(xxh3_64(rdn)) * u128::from(stores)) >> 64;
            first.saturating_add(part as u16)
        }
        None => parent.store(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_a_partitioned_parent_are_spread_evenly_and_found_by_a_scan() {
        let parent = EntryId::partitioned(0, 1, 4);
        let mut counts = [0; 5];
        for child in 0..4000 {
            let mut key = parent.to_key().to_vec();
            key.extend_from_slice(format!("uid=user{child}").as_bytes());
            counts[store_of(Table::Name, &key, 5)] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(
            counts[1..].iter().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
        let (from, to) = (parent.to_key(), EntryId(parent.0 + 1).to_key());
        let children = Range::between(&from, &to);
        assert_eq!(scanned(Table::Name, children, 5), Scanned::Merged(1, 4));
        let rest = Range {
            from: Bound::Excluded(b"\0\0\x80\x08\x02\0\0\0uid=x".as_slice()),
            ..children
        };
        assert_eq!(parent.to_key(), *b"\0\0\x80\x08\x02\0\0\0");
        assert_eq!(scanned(Table::Name, rest, 5), Scanned::Merged(1, 4));
    }

    #[test]
    fn other_records_are_where_their_entry_is() {
        let id = EntryId(EntryId::root_of(2).0 + 77);
        assert_eq!(store_of(Table::Entry, &id.to_key(), 5), 2);
        assert_eq!(
            store_of(
                Table::Order(super::super::AttributeNo(3)),
                &[b"value\0\0".as_slice(), &id.to_key()].concat(),
                5
            ),
            2
        );
        assert_eq!(
            store_of(Table::Name, &[id.to_key().as_slice(), b"cn=x"].concat(), 5),
            2
        );
        assert_eq!(store_of(Table::Meta, b"next id", 5), 0);
        assert_eq!(store_of(Table::Meta, b"next id\0\0\x02", 5), 2);
        assert_eq!(store_of(Table::Attribute, &[0, 200], 5), 0);
        let root = EntryId::root_of(3).to_key();
        assert_eq!(
            scanned(Table::Entry, Range::from(&root), 5),
            Scanned::InTurn(3, 4)
        );
        assert_eq!(scanned(Table::Entry, Range::ALL, 5), Scanned::InTurn(0, 4));
    }

    #[test]
    fn sets_of_stores() {
        let set = StoreSet::one(3)
            .with(StoreSet::one(40))
            .with(StoreSet::one(63));
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 40, 63]);
        assert_eq!((set.least(), set.len(), set.contains(4)), (3, 3, false));
        assert_eq!(StoreSet::all(3), StoreSet(0b111));
        assert!(StoreSet::one(64).is_empty());
    }
}
