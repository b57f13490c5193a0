//! Index maintenance: what an update of an entry changes in the indexes, found by comparing old and new.

use std::collections::BTreeSet;

use crate::attributes::AttributeTable;
use crate::engine::{
    AttributeNo, Cursor, EntryId, IndexKind, Read, Write, append_escaped, take_escaped,
};
use crate::entry::{Damaged, Entry, StoredAttribute};
use crate::error::{Error, Result};
use crate::indexes::{AttributeIndexes, Completeness, IndexSet, for_each_key, ordering_key};
use crate::large::{self, LargeValues};
use crate::schema::{AttributeTypeId, Schema};
use crate::steps;

/// Descriptions of an indexed type that are looked up in a record one by one; more are looked for among its attributes.
const NUMBERS_TO_LOOK_UP_MAX: usize = 4;

/// An entry on one side of an update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'r> {
    /// Its records, user and operational; none when it does not exist on this side.
    pub(crate) records: Option<[Entry<'r>; 2]>,
    /// Values of its large attributes: those that are only on this side, at least.
    pub(crate) large: &'r [LargeValues],
}

impl<'r> Side<'r> {
    /// There is no entry.
    pub(crate) const NONE: Side<'static> = Side {
        records: None,
        large: &[],
    };

    /// An entry with no values of large attributes on this side alone.
    pub(crate) fn of(records: [Entry<'r>; 2]) -> Side<'r> {
        Side {
            records: Some(records),
            large: &[],
        }
    }
}

/// The kinds of index that are posting lists.
pub(crate) const KINDS: [IndexKind; 4] = [
    IndexKind::Equality,
    IndexKind::Presence,
    IndexKind::Approximate,
    IndexKind::Substring,
];

/// Reusable memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    old: KeySet,
    new: KeySet,
    key: Vec<u8>,
}

/// Makes the indexes say of an entry what its new side says instead of what its old one said. The values of its large
/// attributes are those of the new side already.
pub(crate) fn reindex<W: Write>(
    txn: &mut W,
    schema: &Schema,
    (attributes, indexes): (&AttributeTable, &IndexSet),
    id: EntryId,
    [old, new]: [&Side<'_>; 2],
    scratch: &mut Scratch,
) -> Result<()> {
    for indexed in indexes.iter() {
        let damaged = |_: Damaged| Error::corrupt(format!("entry {id}: {Damaged}"));
        if is_unchanged(attributes, indexed, old, new).map_err(damaged)? {
            continue;
        }
        let kept = Kept::of(attributes, indexed, id, old, new);
        let Scratch {
            old: old_keys,
            new: new_keys,
            key,
        } = &mut *scratch;
        for kind in KINDS {
            if indexed.completeness(kind) == Completeness::Absent {
                continue;
            }
            index_keys(schema, attributes, indexed, kind, old, old_keys, key).map_err(damaged)?;
            index_keys(schema, attributes, indexed, kind, new, new_keys, key).map_err(damaged)?;
            let index = indexed.index(kind);
            if let Some(kept) = &kept {
                kept.take_out(txn, schema, Some(kind), old_keys, new_keys)?;
            }
            old_keys.without(new_keys, |key| txn.index_remove(index, key, id))?;
            new_keys.without(old_keys, |key| txn.index_add(index, key, id))?;
        }
        if indexed.ordering != Completeness::Absent {
            let table = indexed.order_table();
            ordering_keys(schema, attributes, indexed, id, old, old_keys, key).map_err(damaged)?;
            ordering_keys(schema, attributes, indexed, id, new, new_keys, key).map_err(damaged)?;
            if let Some(kept) = &kept {
                kept.take_out(txn, schema, None, old_keys, new_keys)?;
            }
            old_keys.without(new_keys, |key| txn.delete(table, key).map(drop))?;
            new_keys.without(old_keys, |key| txn.put(table, key, &[]))?;
        }
    }
    Ok(())
}

/// Large attributes of an indexed type that the new side has: most of their values are on both sides, and were not
/// looked at.
struct Kept<'k> {
    indexed: &'k AttributeIndexes,
    id: EntryId,
    /// Each with the form of a value that goes, if one goes.
    attributes: Vec<(AttributeNo, &'k [u8])>,
    /// How many values they have.
    values: usize,
}

impl<'k> Kept<'k> {
    fn of(
        attributes: &AttributeTable,
        indexed: &'k AttributeIndexes,
        id: EntryId,
        old: &Side<'k>,
        new: &Side<'_>,
    ) -> Option<Kept<'k>> {
        let [user, _] = new.records.filter(|[user, _]| user.has_large())?;
        let of_type = attributes.numbers_of(indexed.attribute_type);
        let going = |number| {
            let mut large = old.large.iter();
            let values = large.find(|values| values.number == number)?;
            values.rows.first().map(|(form, _)| form.as_slice())
        };
        let attributes: Vec<_> = user
            .large()
            .filter(|large| of_type.contains(&large.number))
            .map(|large| (large.number, going(large.number).unwrap_or_default()))
            .collect();
        let values = user.large().map(|large| large.count as usize).sum();
        (!attributes.is_empty()).then_some(Kept {
            indexed,
            id,
            attributes,
            values,
        })
    }

    /// Takes keys out of the old ones that a value which stays has, too; without a kind, those of the ordering table.
    fn take_out<R: Read>(
        &self,
        view: &R,
        schema: &Schema,
        kind: Option<IndexKind>,
        old: &mut KeySet,
        new: &KeySet,
    ) -> Result<()> {
        let mut doubtful = BTreeSet::new();
        old.without(new, |key| {
            doubtful.insert(key.to_vec());
            Ok::<_, Error>(())
        })?;
        let suspects = doubtful.clone();
        match kind {
            Some(IndexKind::Presence) => doubtful.clear(),
            Some(IndexKind::Equality) if suspects.len() * self.attributes.len() <= self.values => {
                for normal in &suspects {
                    if self.has(view, normal)? {
                        doubtful.remove(normal);
                    }
                }
            }
            None if self.is_ordered_by_form(schema) => {
                for key in &suspects {
                    let mut normal = Vec::new();
                    if take_escaped(key, &mut normal).is_some() && self.has(view, &normal)? {
                        doubtful.remove(key);
                    }
                }
            }
            Some(_) | None => {
                self.seek(view, schema, kind, &mut doubtful)?;
            }
        }
        old.retain(|key| !suspects.contains(key) || doubtful.contains(key));
        Ok(())
    }

    /// Whether a value with a normal form is there.
    fn has<R: Read>(&self, view: &R, normal: &[u8]) -> Result<bool> {
        let form = large::form_of_normal(normal);
        for (number, _) in &self.attributes {
            if large::get(view, self.id, *number, &form)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether equal values are those with the same place in the order.
    fn is_ordered_by_form(&self, schema: &Schema) -> bool {
        let known = schema.type_of(self.indexed.attribute_type);
        let rules = known.equality().zip(known.order());
        rules.is_some_and(|(equality, order)| equality.has_forms_of(order))
    }

    /// Goes through the values until none of the keys is doubtful any more: mostly, some are the same as those of a
    /// neighbour in the order of values, where it begins, and others of many values.
    fn seek<R: Read>(
        &self,
        view: &R,
        schema: &Schema,
        kind: Option<IndexKind>,
        doubtful: &mut BTreeSet<Vec<u8>>,
    ) -> Result<()> {
        let known = schema.type_of(self.indexed.attribute_type);
        let (mut scratch, mut key) = (Vec::new(), Vec::new());
        for (number, form) in &self.attributes {
            let begins_at = large::key(self.id, *number, form);
            for from in [Some(&*begins_at), None] {
                let mut values = large::scan(view, self.id, *number, from)?;
                while !doubtful.is_empty()
                    && let Some((at, value)) = values.next()?
                    && (from.is_some() || at < &*begins_at)
                {
                    steps::count(1);
                    match (kind, known.order()) {
                        (Some(kind), _) => {
                            for_each_key(schema, known, kind, value, &mut scratch, |key| {
                                doubtful.remove(key);
                            });
                        }
                        (None, Some(rule)) => {
                            if ordering_key(schema, rule, value, &mut scratch).is_ok() {
                                key.clear();
                                order_record_key(&scratch, self.id, &mut key);
                                doubtful.remove(&key);
                            }
                        }
                        (None, None) => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// The attributes of a type that stand in the records, whatever their options.
pub(crate) fn of_type<'r>(
    attributes: &AttributeTable,
    attribute_type: AttributeTypeId,
    side: &Side<'r>,
    mut each: impl FnMut(StoredAttribute<'r>),
) -> std::result::Result<(), Damaged> {
    for record in side.records.iter().flatten() {
        let numbers = attributes.numbers_of(attribute_type);
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

/// The values of a type, whatever their options.
pub(crate) fn each_value(
    attributes: &AttributeTable,
    attribute_type: AttributeTypeId,
    side: &Side<'_>,
    mut each: impl FnMut(&[u8]),
) -> std::result::Result<(), Damaged> {
    of_type(attributes, attribute_type, side, |stored| {
        stored.values().iter().for_each(&mut each);
    })?;
    if !side.large.is_empty() {
        for values in large_of_type(attributes, attribute_type, side) {
            values.rows.iter().for_each(|(_, value)| each(value));
        }
    }
    Ok(())
}

/// The values of large attributes of a type.
#[cold]
fn large_of_type<'r>(
    attributes: &AttributeTable,
    attribute_type: AttributeTypeId,
    side: &Side<'r>,
) -> impl Iterator<Item = &'r LargeValues> {
    let numbers = attributes.numbers_of(attribute_type);
    let large = side.large.iter();
    large.filter(move |values| numbers.contains(&values.number))
}

/// Whether both sides have the same values of an indexed type, as far as that is seen without reading them.
pub(crate) fn is_unchanged(
    attributes: &AttributeTable,
    indexed: &AttributeIndexes,
    old_side: &Side<'_>,
    new_side: &Side<'_>,
) -> std::result::Result<bool, Damaged> {
    let (Some(old), Some(new)) = (&old_side.records, &new_side.records) else {
        return Ok(false);
    };
    let has_large = |side| {
        large_of_type(attributes, indexed.attribute_type, side)
            .next()
            .is_some()
    };
    if !(old_side.large.is_empty() && new_side.large.is_empty())
        && (has_large(old_side) || has_large(new_side))
    {
        return Ok(false);
    }
    let numbers = attributes.numbers_of(indexed.attribute_type);
    if numbers.len() > NUMBERS_TO_LOOK_UP_MAX {
        // Attributes in another order are taken for changed.
        let (mut old_values, mut new_values) = (Vec::new(), Vec::new());
        of_type(attributes, indexed.attribute_type, old_side, |stored| {
            old_values.push(stored.ber())
        })?;
        of_type(attributes, indexed.attribute_type, new_side, |stored| {
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
    side: &Side<'_>,
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
    side: &Side<'_>,
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> std::result::Result<(), Damaged> {
    let attribute_type = schema.type_of(indexed.attribute_type);
    each_value(attributes, indexed.attribute_type, side, |value| {
        for_each_key(schema, attribute_type, kind, value, scratch, &mut each);
    })
}

/// The keys under which one side of an entry stands in an ordering table, sorted.
pub(crate) fn ordering_keys(
    schema: &Schema,
    attributes: &AttributeTable,
    indexed: &AttributeIndexes,
    id: EntryId,
    side: &Side<'_>,
    keys: &mut KeySet,
    scratch: &mut Vec<u8>,
) -> std::result::Result<(), Damaged> {
    keys.clear();
    let Some(rule) = schema.type_of(indexed.attribute_type).order() else {
        return Ok(());
    };
    each_value(attributes, indexed.attribute_type, side, |value| {
        if ordering_key(schema, rule, value, scratch).is_ok() {
            keys.push_with(|key| order_record_key(scratch, id, key));
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

    fn retain(&mut self, keeps: impl Fn(&[u8]) -> bool) {
        let bytes = &self.bytes;
        self.spans.retain(|span| keeps(Self::key(bytes, *span)));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| Self::key(&self.bytes, *span))
    }

    /// Calls `each` with the keys that are not in `other`; both are sorted.
    pub(crate) fn without<E>(
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
