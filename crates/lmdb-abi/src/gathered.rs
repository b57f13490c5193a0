//! Values that cursors put behind those of many keys, gathered and stored together.
//!
//! A program that keeps an index puts a few values for each thing that it indexes, behind those of the same keys again
//! and again. Before each it looks whether the key is there and how many values it has: `MDB_SET`, `mdb_cursor_count`,
//! then `mdb_cursor_put` with `MDB_APPENDDUP`. (slapd does.) The first value that a transaction puts behind those of a
//! key goes to the store, which says that this is its place. From then on the key is *known*: the values that follow
//! are gathered here, and the three calls are answered from here. They are stored, many at a time and in the order of
//! their keys, when anything else is done with the database, and when the transaction is committed.
//!
//! So it is with databases of values of one short length, in an order that needs no function of the program's.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use sapwood_store::page::PAGE_BYTES;
use sapwood_store::{KeyOrder, TreeId};

use crate::values::Val;

/// Longer values are not gathered.
pub(crate) const VALUE_BYTES_MAX: usize = 16;

/// Nor are values of longer keys.
const KEY_BYTES_MAX: usize = 24;

/// How much is known of keys at a time, in bytes.
pub(crate) const BYTES_MAX: usize = 4 << 20;

/// What a known key takes beside the values that wait.
pub(crate) const KNOWN_BYTES: usize = 128;

/// So many keys' room is kept for the next transaction, in each database.
const KEYS_KEPT: usize = 4096;

/// So much room the first value that waits brings with it.
pub(crate) const WAITING_BYTES: usize = 64;

/// The pages that the values gathered for one key may need when they are stored, beside what they fill themselves.
const PAGES_OF_KEY: u64 = 4;

/// How much is shown to the program between two changes, in bytes.
pub(crate) const SHOWN_BYTES: usize = 64 << 10;

/// What a write transaction has gathered.
#[derive(Default)]
pub(crate) struct Gathered {
    /// By handle.
    pub(crate) databases: Vec<Database>,
    pub(crate) size: Size,
    /// Counts whatever another cursor's [`Seat`] does not know of.
    pub(crate) turn: u64,
    /// Values as they were shown to the program: they stay where they are until it changes something, though what was
    /// gathered is stored meanwhile. Never longer than the memory it began with.
    pub(crate) shown: Vec<u8>,
}

/// How much has been gathered.
#[derive(Clone, Copy, Default)]
pub(crate) struct Size {
    /// What the known keys take.
    pub(crate) bytes: usize,
    /// How many of them have values that are not stored yet.
    pub(crate) waiting: u64,
}

/// What has been gathered for one database.
pub(crate) struct Database {
    /// None while no key is known.
    pub(crate) tree: Option<TreeId>,
    /// Of values.
    pub(crate) order: KeyOrder,
    pub(crate) keys: HashMap<Key, Known, Secret>,
    pub(crate) size: Size,
}

impl Database {
    pub(crate) fn new() -> Self {
        Self {
            tree: None,
            order: KeyOrder::default(),
            keys: HashMap::with_hasher(Secret::new()),
            size: Size::default(),
        }
    }

    /// Forgets all keys.
    pub(crate) fn clear(&mut self) {
        self.tree = None;
        self.size = Size::default();
        self.keys.clear();
        self.keys.shrink_to(KEYS_KEPT);
    }
}

/// A key, with zeroes behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

impl Key {
    /// `None` if it is too long.
    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        let len = key.len();
        Some(Self { bytes, len })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write(self.bytes());
    }
}

/// What is known of a key.
pub(crate) struct Known {
    /// The length of its values.
    pub(crate) size: usize,
    pub(crate) first: [u8; VALUE_BYTES_MAX],
    pub(crate) last: [u8; VALUE_BYTES_MAX],
    /// How many values it has.
    pub(crate) count: u64,
    /// Those that are not stored yet, one behind the other.
    pub(crate) waiting: Vec<u8>,
}

impl Known {
    pub(crate) fn first(&self) -> &[u8] {
        &self.first[..self.size]
    }

    pub(crate) fn last(&self) -> &[u8] {
        &self.last[..self.size]
    }
}

/// Where a cursor has come to by `MDB_SET`, or by a value that it has put there.
#[derive(Default)]
pub(crate) struct Seat {
    pub(crate) is_taken: bool,
    /// That of [`Gathered`] then.
    pub(crate) turn: u64,
    /// How many values the key has.
    pub(crate) count: u64,
    pub(crate) is_known: bool,
    /// If it is not known: the key, which may not be there, and the first of its values.
    pub(crate) key: Vec<u8>,
    pub(crate) first: Vec<u8>,
}

impl Seat {
    /// The cursor moves in another way, or the database is changed in one.
    pub(crate) fn leave(&mut self) {
        self.is_taken = false;
    }
}

impl Gathered {
    /// What has been gathered for a database, if any key of it is known.
    pub(crate) fn database(&self, dbi: u32) -> Option<&Database> {
        let database = self.databases.get(dbi as usize)?;
        database.tree.is_some().then_some(database)
    }

    /// The bytes of a store that surely suffice for what has been gathered, and for one value more.
    pub(crate) fn bytes_needed(&self) -> u64 {
        let Size { bytes, waiting } = self.size;
        let pages = (waiting + 1).saturating_mul(PAGES_OF_KEY * PAGE_BYTES as u64);
        (4 * bytes as u64).saturating_add(pages)
    }

    /// Forgets everything, for the next transaction.
    pub(crate) fn clear(&mut self) {
        self.databases.iter_mut().for_each(Database::clear);
        self.size = Size::default();
        self.shown.clear();
    }
}

/// Shows a value that may have another place when the program reads it.
pub(crate) fn show(shown: &mut Vec<u8>, value: &[u8]) -> Val {
    shown.reserve_exact(SHOWN_BYTES.saturating_sub(shown.len()));
    let at = shown.len();
    shown.extend_from_slice(value);
    Val::to(shown.get(at..).unwrap_or_default())
}

/// Hashes keys with a secret, so that nobody can choose keys that fall together.
#[derive(Clone, Copy)]
pub(crate) struct Secret(u64);

impl Secret {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Secret {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Secret {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // Both halves of the product with the golden ratio's fraction.
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}
