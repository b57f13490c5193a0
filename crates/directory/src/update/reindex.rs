//! Index maintenance: what an entry's records change in the indexes, found by comparing old and new.

use crate::attributes::AttributeTable;
use crate::engine::{EntryId, IndexKind, Write, append_escaped};
use crate::entry::{Damaged, Entry, StoredAttribute};
use crate::error::{Error, Result};
use crate::indexes::{AttributeIndexes, Completeness, for_each_key, ordering_key};
use crate::schema::Schema;
use crate::state::State;

/// Descriptions of an indexed type that are looked up in a record one by one; more are looked for among its attributes.
const NUMBERS_TO_LOOK_UP_MAX: usize = 4;

/// An entry's two records, user and operational; none when it does not exist on this side of the update.
pub(crate) type Sides<'r> = Option<[Entry<'r>; 2]>;

/// The kinds of index that are posting lists.
pub(crate) const KINDS: [IndexKind; 3] = [
    IndexKind::Equality,
    IndexKind::Presence,
    IndexKind::Substring,
];

/// Reusable memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    old: KeySet,
    new: KeySet,
    key: Vec<u8>,
}

/// Makes the indexes say of an entry what its new records say instead of what its old ones said.
pub(crate) fn reindex<W: Write>(
    txn: &mut W,
    schema: &Schema,
    state: &State,
    id: EntryId,
    old: Sides<'_>,
    new: Sides<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    let attributes = &state.attributes;
    for indexed in state.indexes.iter() {
        let damaged = |_: Damaged| Error::corrupt(format!("entry {id}: {Damaged}"));
        if is_unchanged(attributes, indexed, &old, &new).map_err(damaged)? {
            continue;
        }
        let Scratch {
            old: old_keys,
            new: new_keys,
            key,
        } = &mut *scratch;
        for kind in KINDS {
            if indexed.completeness(kind) == Completeness::Absent {
                continue;
            }
            index_keys(schema, attributes, indexed, kind, &old, old_keys, key).map_err(damaged)?;
            index_keys(schema, attributes, indexed, kind, &new, new_keys, key).map_err(damaged)?;
            let index = indexed.index(kind);
            old_keys.without(new_keys, |key| txn.index_remove(index, key, id))?;
            new_keys.without(old_keys, |key| txn.index_add(index, key, id))?;
        }
        if indexed.ordering != Completeness::Absent {
            let table = indexed.order_table();
            ordering_keys(schema, attributes, indexed, id, &old, old_keys, key).map_err(damaged)?;
            ordering_keys(schema, attributes, indexed, id, &new, new_keys, key).map_err(damaged)?;
            old_keys.without(new_keys, |key| txn.delete(table, key).map(drop))?;
            new_keys.without(old_keys, |key| txn.put(table, key, &[]))?;
        }
    }
    Ok(())
}

/// The attributes of an indexed type, whatever their options.
pub(crate) fn of_type<'r>(
    attributes: &AttributeTable,
    indexed: &AttributeIndexes,
    side: &Sides<'r>,
    mut each: impl FnMut(StoredAttribute<'r>),
) -> std::result::Result<(), Damaged> {
    for record in side.iter().flatten() {
        let numbers = attributes.numbers_of(indexed.attribute_type);
        if numbers.len() <= NUMBERS_TO_LOOK_UP_MAX {
            for number in numbers {
                if let Some(stored) = record.attribute(*number)? {
                    each(stored);
                }
            }
        } else {
            for stored in record.attributes() {
                let stored = stored?;
                if numbers.binary_search(&stored.number()).is_ok() {
                    each(stored);
                }
            }
        }
    }
    Ok(())
}

fn is_unchanged(
    attributes: &AttributeTable,
    indexed: &AttributeIndexes,
    old: &Sides<'_>,
    new: &Sides<'_>,
) -> std::result::Result<bool, Damaged> {
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(false);
    };
    let numbers = attributes.numbers_of(indexed.attribute_type);
    if numbers.len() > NUMBERS_TO_LOOK_UP_MAX {
        // Attributes in another order are taken for changed.
        let (mut old_values, mut new_values) = (Vec::new(), Vec::new());
        of_type(attributes, indexed, &Some(*old), |stored| {
            old_values.push(stored.ber())
        })?;
        of_type(attributes, indexed, &Some(*new), |stored| {
            new_values.push(stored.ber())
        })?;
        return Ok(old_values == new_values);
    }
    for (old, new) in old.iter().zip(new) {
        for number in numbers {
            let (old, new) = (old.attribute(*number)?, new.attribute(*number)?);
            if old.map(|stored| stored.ber()) != new.map(|stored| stored.ber()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The keys under which one side of an entry stands in an index, sorted.
pub(crate) fn index_keys(
    schema: &Schema,
    attributes: &AttributeTable,
    indexed: &AttributeIndexes,
    kind: IndexKind,
    side: &Sides<'_>,
    keys: &mut KeySet,
    scratch: &mut Vec<u8>,
) -> std::result::Result<(), Damaged> {
    keys.clear();
    each_index_key(schema, attributes, indexed, kind, side, scratch, |key| {
        keys.push(key)
    })?;
    keys.sort();
    Ok(())
}

/// The same keys in no order, and some of them perhaps more than once.
pub(crate) fn each_index_key(
    schema: &Schema,
    attributes: &AttributeTable,
    indexed: &AttributeIndexes,
    kind: IndexKind,
    side: &Sides<'_>,
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> std::result::Result<(), Damaged> {
    let attribute_type = schema.type_of(indexed.attribute_type);
    of_type(attributes, indexed, side, |stored| {
        for value in stored.values() {
            for_each_key(schema, attribute_type, kind, value, scratch, &mut each);
        }
    })
}

/// The keys under which one side of an entry stands in an ordering table, sorted.
pub(crate) fn ordering_keys(
    schema: &Schema,
    attributes: &AttributeTable,
    indexed: &AttributeIndexes,
    id: EntryId,
    side: &Sides<'_>,
    keys: &mut KeySet,
    scratch: &mut Vec<u8>,
) -> std::result::Result<(), Damaged> {
    keys.clear();
    let Some(rule) = schema.type_of(indexed.attribute_type).ordering() else {
        return Ok(());
    };
    of_type(attributes, indexed, side, |stored| {
        for value in stored.values() {
            if ordering_key(schema, rule, value, scratch).is_ok() {
                keys.push_with(|key| order_record_key(scratch, id, key));
            }
        }
    })?;
    keys.sort();
    Ok(())
}

/// Appends the key of a record of an ordering table: the escaped, terminated normal form, then the id.
pub(crate) fn order_record_key(normal: &[u8], id: EntryId, key: &mut Vec<u8>) {
    append_escaped(key, normal);
    key.extend_from_slice(&id.to_key());
}

/// A set of keys in one run of memory.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    bytes: Vec<u8>,
    spans: Vec<(u32, u32)>,
}

impl KeySet {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    pub(crate) fn push(&mut self, key: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(key));
    }

    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.spans.push((start as u32, self.bytes.len() as u32));
    }

    fn key(bytes: &[u8], (start, end): (u32, u32)) -> &[u8] {
        &bytes[start as usize..end as usize]
    }

    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        self.spans
            .sort_unstable_by(|one, other| Self::key(bytes, *one).cmp(Self::key(bytes, *other)));
        self.spans
            .dedup_by(|one, other| Self::key(bytes, *one) == Self::key(bytes, *other));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| Self::key(&self.bytes, *span))
    }

    /// Calls `each` with the keys that are not in `other`; both are sorted.
    fn without<E>(
        &self,
        other: &KeySet,
        mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut others = other.iter().peekable();
        for key in self.iter() {
            while others.next_if(|other| *other < key).is_some() {}
            if others.peek() != Some(&key) {
                each(key)?;
            }
        }
        Ok(())
    }
}
