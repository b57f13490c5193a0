//! Databases: their handles, the names of their trees, and their order.
//!
//! ```text
//!  handle   tree in the store
//!  0        none: the list of free pages, made up from the store's own (see `free_list`)
//!  1        "m"           the main database; made when something is first put into it
//!  2 ...    "d" + name    a named database
//!           "s"           settings: what LMDB keeps in its meta pages
//! ```
//!
//! For each named database the main one has a record, as in LMDB: its key is the name, its value [`RECORD_BYTES`] long.
//! What makes it one is that there is a tree of that name.

use std::cmp::Ordering;
use std::sync::Arc;

use sapwood_store::{Comparator, Comparators, Duplicates, KeyOrder, TreeKind};

use crate::error::{Code, Result};
use crate::values::KEY_BYTES_MAX;
use crate::values::db_flags::{
    DUPFIXED, DUPSORT, INTEGERDUP, INTEGERKEY, PERSISTENT, REVERSEDUP, REVERSEKEY,
};

/// The database of free pages.
pub(crate) const FREE: u32 = 0;

/// The unnamed database.
pub(crate) const MAIN: u32 = 1;

/// The number of databases without names, where the handles of the others begin.
pub(crate) const CORE: u32 = 2;

/// The settings' tree.
pub(crate) const SETTINGS_TREE: &[u8] = b"s";

/// The setting of the map size.
pub(crate) const MAP_SIZE_KEY: &[u8] = b"mapsize";

const MAIN_TREE: &[u8] = b"m";

/// The length of the record that stands for a named database: that of LMDB's `MDB_db`.
pub(crate) const RECORD_BYTES: usize = 48;

const RECORD_FLAGS_AT: usize = 4;

/// The tree of a named database; refused if LMDB could not have such a name.
pub(crate) fn tree_of(name: &[u8]) -> Result<Arc<[u8]>> {
    if name.is_empty() || name.len() >= KEY_BYTES_MAX {
        return Err(Code::BAD_VALSIZE);
    }
    Ok([b"d", name].concat().into())
}

/// The main database's tree.
pub(crate) fn main_tree() -> Arc<[u8]> {
    MAIN_TREE.into()
}

/// The name of the database whose tree this is.
pub(crate) fn name_of(tree: &[u8]) -> Option<&[u8]> {
    tree.strip_prefix(b"d")
}

/// What stands for a named database in the main one.
pub(crate) fn record(flags: u32) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[RECORD_FLAGS_AT..RECORD_FLAGS_AT + 4].copy_from_slice(&flags.to_le_bytes());
    record
}

/// The flags in such a record.
pub(crate) fn record_flags(record: &[u8]) -> Option<u32> {
    let record: &[u8; RECORD_BYTES] = record.try_into().ok()?;
    let flags = record[RECORD_FLAGS_AT..].first_chunk()?;
    Some(u32::from_le_bytes(*flags) & PERSISTENT)
}

/// How the store keeps a database of these flags.
pub(crate) fn kind(flags: u32) -> TreeKind {
    let order = |integer: u32, reverse: u32| {
        if flags & integer != 0 {
            KeyOrder::Integer
        } else if flags & reverse != 0 {
            KeyOrder::Reverse
        } else {
            KeyOrder::Bytes
        }
    };
    TreeKind {
        order: order(INTEGERKEY, REVERSEKEY),
        duplicates: (flags & DUPSORT != 0).then(|| Duplicates {
            fixed: flags & DUPFIXED != 0,
            order: order(INTEGERDUP, REVERSEDUP),
        }),
        ..TreeKind::WHOLE
    }
}

/// The flags of the main database, which are told by its tree alone.
pub(crate) fn flags(kind: TreeKind) -> u32 {
    let order = |order, integer: u32, reverse: u32| match order {
        KeyOrder::Integer => integer,
        KeyOrder::Reverse => reverse,
        KeyOrder::Bytes | KeyOrder::Custom => 0,
    };
    let keys = order(kind.order, INTEGERKEY, REVERSEKEY);
    keys | kind.duplicates.map_or(0, |duplicates| {
        let fixed = if duplicates.fixed { DUPFIXED } else { 0 };
        DUPSORT | fixed | order(duplicates.order, INTEGERDUP, REVERSEDUP)
    })
}

/// Whether a key or duplicate can be a native integer.
pub(crate) fn is_integer(bytes: &[u8]) -> bool {
    matches!(bytes.len(), 4 | 8)
}

/// A database's handle.
#[derive(Clone)]
pub(crate) struct Handle {
    /// The tree; none while the handle is closed.
    pub(crate) tree: Option<Arc<[u8]>>,
    pub(crate) flags: u32,
    /// How often the handle has been closed.
    pub(crate) sequence: u32,
    /// The transaction that opened it, whose own it is until that is committed.
    owner: Option<u64>,
    pub(crate) comparators: Comparators,
}

impl Handle {
    fn closed(sequence: u32) -> Self {
        Self {
            tree: None,
            flags: 0,
            sequence,
            owner: None,
            comparators: Comparators::default(),
        }
    }

    /// Whether a transaction may use it.
    pub(crate) fn is_open_to(&self, txn: u64) -> bool {
        self.tree.is_some() && self.owner.is_none_or(|owner| owner == txn)
    }

    /// How keys are ordered.
    pub(crate) fn compare_keys(&self, a: &[u8], b: &[u8]) -> Ordering {
        compare(self.comparators.keys, kind(self.flags).order, a, b)
    }

    /// How the duplicates of a key are ordered.
    pub(crate) fn compare_duplicates(&self, a: &[u8], b: &[u8]) -> Ordering {
        let duplicates = kind(self.flags).duplicates.unwrap_or_default();
        compare(self.comparators.duplicates, duplicates.order, a, b)
    }
}

/// How keys or duplicates of an order are compared.
pub(crate) fn compare(
    comparator: Option<&'static Comparator>,
    order: KeyOrder,
    a: &[u8],
    b: &[u8],
) -> Ordering {
    let reverse = || a.iter().rev().cmp(b.iter().rev());
    match (comparator, order) {
        (Some(comparator), _) => comparator(a, b),
        (None, KeyOrder::Reverse) => reverse(),
        (None, KeyOrder::Integer) => a.len().cmp(&b.len()).then_with(reverse),
        (None, KeyOrder::Bytes | KeyOrder::Custom) => a.cmp(b),
    }
}

/// The handles of an environment.
pub(crate) struct Handles {
    slots: Vec<Handle>,
    max: usize,
}

impl Handles {
    pub(crate) fn new(named_max: u32) -> Self {
        let main = Handle {
            tree: Some(main_tree()),
            ..Handle::closed(0)
        };
        Self {
            slots: vec![Handle::closed(0), main],
            max: (named_max as usize).saturating_add(CORE as usize),
        }
    }

    pub(crate) fn get(&self, dbi: u32) -> Option<&Handle> {
        self.slots.get(dbi as usize)
    }

    pub(crate) fn get_mut(&mut self, dbi: u32) -> Option<&mut Handle> {
        self.slots.get_mut(dbi as usize)
    }

    /// The handle of a tree that is open to a transaction.
    pub(crate) fn find(&self, tree: &[u8], txn: u64) -> Option<u32> {
        (0..)
            .zip(&self.slots)
            .find(|(_, handle)| handle.is_open_to(txn) && handle.tree.as_deref() == Some(tree))
            .map(|(dbi, _)| dbi)
    }

    /// Whether there is room for one more.
    pub(crate) fn check_room(&self) -> Result {
        if self.free().is_some() || self.slots.len() < self.max {
            Ok(())
        } else {
            Err(Code::DBS_FULL)
        }
    }

    fn free(&self) -> Option<usize> {
        let mut named = self.slots.iter().enumerate().skip(CORE as usize);
        named
            .find(|(_, handle)| handle.tree.is_none())
            .map(|(at, _)| at)
    }

    /// Opens a handle for a transaction.
    pub(crate) fn open(&mut self, tree: Arc<[u8]>, flags: u32, owner: u64) -> Result<u32> {
        self.check_room()?;
        let at = self.free().unwrap_or_else(|| {
            self.slots.push(Handle::closed(0));
            self.slots.len() - 1
        });
        let handle = &mut self.slots[at];
        handle.tree = Some(tree);
        handle.flags = flags;
        handle.owner = Some(owner);
        u32::try_from(at).map_err(|_| Code::DBS_FULL)
    }

    /// Opens a handle to all transactions.
    pub(crate) fn publish(&mut self, dbi: u32) {
        if let Some(handle) = self.get_mut(dbi) {
            handle.owner = None;
        }
    }

    /// Closes a handle; whether it was open. The main database's stays.
    pub(crate) fn close(&mut self, dbi: u32) -> bool {
        let Some(handle) = self.slots.get_mut(dbi as usize).filter(|_| dbi >= CORE) else {
            return false;
        };
        let was_open = handle.tree.is_some();
        *handle = Handle::closed(handle.sequence.wrapping_add(u32::from(was_open)));
        was_open
    }
}
