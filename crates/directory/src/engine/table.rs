//! The names of the tables, and the numbers their keys are made of.

use std::fmt;

/// How many entries one store can number.
pub const STORE_ENTRIES_MAX: u64 = (1 << COUNTER_BITS) - 1;

/// How many stores a directory can have.
pub const STORES_MAX: u16 = sapwood_store::STORES_MAX;

const STORE_SHIFT: u32 = 48;
const COUNTER_BITS: u32 = 47;
/// Says that the rest of the id is not counted up, but names the stores of the children.
const PARTITIONED: u64 = 1 << COUNTER_BITS;
const FIRST_SHIFT: u32 = 35;
const STORES_SHIFT: u32 = 23;
const STORES_MASK: u64 = (1 << 12) - 1;

/// The number of an entry, never used again: the store that holds it, and what is counted up in that store.
///
/// ```text
///  bits 48..64  the number of the store
///  bit      47  0: a number counted up in bits 0..47; 0 is the root of the store's own naming contexts
///               1: a partitioned parent; its children are placed by a hash of their RDN in so many stores (bits 23..35)
///                  from this one on (bits 35..47). Which of the partitioned parents it is stands in bits 0..23
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

impl EntryId {
    /// The parent of the naming contexts of the first store: the root of the tree, which is no entry of a table.
    pub const ROOT: EntryId = EntryId(0);

    /// The parent of the naming contexts of a store.
    pub const fn root_of(store: u16) -> EntryId {
        EntryId((store as u64) << STORE_SHIFT)
    }

    /// Where the names of its children are in [`Table::Name`]: from the first key up to and without the second.
    pub(crate) fn children_bounds(self) -> ([u8; 8], [u8; 8]) {
        // No entry has the greatest id, so that there is a next one.
        (self.to_key(), EntryId(self.0.saturating_add(1)).to_key())
    }

    /// Whether it is the parent of naming contexts, of whichever store.
    pub const fn is_root(self) -> bool {
        self.0 & (u64::MAX >> (64 - STORE_SHIFT)) == 0
    }

    /// The store that holds the entry.
    pub const fn store(self) -> u16 {
        (self.0 >> STORE_SHIFT) as u16
    }

    /// The partitioned parent with a number, which the first store holds, whose children are in `stores` stores from
    /// `first` on.
    pub const fn partitioned(number: u32, first: u16, stores: u16) -> EntryId {
        let stores = ((first as u64) << FIRST_SHIFT) | ((stores as u64) << STORES_SHIFT);
        EntryId(PARTITIONED | stores | number as u64)
    }

    /// Of a partitioned parent: the first of the stores that its children are in, and how many there are.
    pub const fn partitions(self) -> Option<(u16, u16)> {
        if self.0 & PARTITIONED == 0 {
            return None;
        }
        let first = (self.0 >> FIRST_SHIFT) & STORES_MASK;
        let stores = (self.0 >> STORES_SHIFT) & STORES_MASK;
        Some((first as u16, stores as u16))
    }

    /// The key of tables that are ordered by id.
    pub fn to_key(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The id of such a key; `None` for anything but 8 bytes.
    pub fn from_key(key: &[u8]) -> Option<EntryId> {
        Some(EntryId(u64::from_be_bytes(key.try_into().ok()?)))
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number that stands for an attribute description inside the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeNo(pub u16);

/// What an index answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexKind {
    /// Equality: key is the normalised value.
    Equality,
    /// Presence: one posting list under the empty key.
    Presence,
    /// Approximate matches: keys are how words of the value sound.
    Approximate,
    /// Substrings: keys are 3-grams of the prepared value, with anchors at both ends.
    Substring,
}

impl IndexKind {
    /// The word for it in configuration and table names.
    pub fn word(self) -> &'static str {
        match self {
            IndexKind::Equality => "eq",
            IndexKind::Presence => "pres",
            IndexKind::Approximate => "approx",
            IndexKind::Substring => "sub",
        }
    }
}

/// An index: lists of ids under keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index {
    /// The attribute, always one without options.
    pub attribute: AttributeNo,
    /// What it answers.
    pub kind: IndexKind,
}

/// The tables of a directory.
///
/// | table | key -> value |
/// | --- | --- |
/// | `name` | parent id (u64, big-endian) + normalised RDN -> child id (u64, big-endian); counted |
/// | `entry` | id -> header, attribute table, user attributes as BER, protected ones last, operational attributes; counted |
/// | `state` | id -> bind-time state, so that a bind never rewrites an entry |
/// | `values` | id, attribute number, normal form of the value -> the value: large attributes, see [`crate::large`] |
/// | `attr` | attribute number (u16, big-endian) -> description |
/// | `meta` | word -> the directory's own settings: naming contexts, indexes, next id; words of other stores than the first end with 0 and the store's number (u16, big-endian) |
/// | `order/<attr>` | escaped, terminated ordering value + id -> nothing; counted |
///
/// Besides, each engine keeps its indexes (`index/<attr>/<kind>`) and the change feed (`change`) in its own form, and
/// what is put off of them (`pending`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// `name`
    Name,
    /// `entry`
    Entry,
    /// `state`
    State,
    /// `attr`
    Attribute,
    /// `meta`
    Meta,
    /// `values`
    Values,
    /// `order/<attr>`
    Order(AttributeNo),
}

impl Table {
    /// The tables that every directory has.
    pub const FIXED: [Table; 6] = [
        Table::Name,
        Table::Entry,
        Table::State,
        Table::Attribute,
        Table::Meta,
        Table::Values,
    ];

    /// Whether the engine keeps counts, so that [`super::Read::estimate`] is exact.
    pub fn is_counted(self) -> bool {
        matches!(self, Table::Name | Table::Entry | Table::Order(_))
    }

    /// The table's name in the store.
    pub fn name(self) -> TableName {
        match self {
            Table::Name => TableName::new(format_args!("name")),
            Table::Entry => TableName::new(format_args!("entry")),
            Table::State => TableName::new(format_args!("state")),
            Table::Attribute => TableName::new(format_args!("attr")),
            Table::Meta => TableName::new(format_args!("meta")),
            Table::Values => TableName::new(format_args!("values")),
            Table::Order(attribute) => TableName::new(format_args!("order/{}", attribute.0)),
        }
    }
}

impl Index {
    /// The name of the index's table in the store.
    pub fn name(self) -> TableName {
        TableName::new(format_args!(
            "index/{}/{}",
            self.attribute.0,
            self.kind.word()
        ))
    }
}

/// The name of a table, made without allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TableName {
    bytes: [u8; TableName::BYTES_MAX],
    length: usize,
}

impl TableName {
    const BYTES_MAX: usize = 24;

    fn new(text: fmt::Arguments<'_>) -> TableName {
        let mut name = TableName {
            bytes: [0; TableName::BYTES_MAX],
            length: 0,
        };
        // Every name above is far below the limit, so that this cannot fail.
        let _ = fmt::Write::write_fmt(&mut name, text);
        name
    }

    /// The name as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl AsRef<[u8]> for TableName {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Write for TableName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes
            .get_mut(self.length..end)
            .ok_or(fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_their_store_and_where_children_are() {
        let id = EntryId::partitioned(3, 5, 64);
        assert_eq!((id.store(), id.partitions()), (0, Some((5, 64))));
        assert!(!id.is_root());
        assert_ne!(id, EntryId::partitioned(4, 5, 64));
        let last = EntryId(EntryId::root_of(7).0 + STORE_ENTRIES_MAX);
        assert_eq!((last.store(), last.partitions()), (7, None));
        assert!(EntryId::root_of(7).is_root() && EntryId::ROOT.is_root() && !last.is_root());
    }
}
