//! Large attributes: those of very many values, such as the members of a group of a hundred thousand.
//!
//! In the record of an entry ([`crate::entry`]), every change of the entry would write all their values again. So the
//! values are in a table of their own, [`Table::Values`], and the record has only their number. Adding, removing or
//! comparing one value costs as much as looking it up.
//!
//! ```text
//!  offset  size  field
//!       0     8  id      of the entry, big-endian
//!       8     2  number  of the attribute description, big-endian
//!      10        form    of the value: 0 and its normal form, or 1 and the value itself if that has none;
//!                        of a long one a prefix and a hash, as in an equality index
//! ```
//!
//! The record is the value as the client gave it. Values come in the order of their keys, since a set of values has no
//! order of its own (RFC 4511 §4.1.7).

use sapwood_ldap::ber;
use sapwood_ldap::dn::Dn;

use crate::attributes::AttributeTable;
use crate::engine::{self, AttributeNo, Cursor, Direction, EntryId, Range, Read, Table};
use crate::entry::{Damaged, Entry, LargeAttribute, RecordBuilder, StoredAttribute};
use crate::error::{Error, Result};
use crate::indexes::shorten;
use crate::schema::{AttributeType, Schema};
use crate::steps;

/// An attribute with this many values becomes large. Fewer values are read faster from the record. Builds without
/// optimisation, which run the tests, use a small number, so that tests meet large attributes.
pub(crate) const LARGE_VALUES: usize = if cfg!(debug_assertions) { 4 } else { 256 };

/// A large attribute stays large while it has this many values.
pub(crate) const KEPT_VALUES: usize = LARGE_VALUES / 2;

const NORMAL: u8 = 0;
const AS_GIVEN: u8 = 1;

/// Whether an attribute with this many values is large after a change.
pub(crate) fn is_large(values: usize, was_large: bool) -> bool {
    values >= if was_large { KEPT_VALUES } else { LARGE_VALUES }
}

/// Whether an attribute of a type can be large in an entry with this name. Equal values must have equal keys, and
/// attributes that the directory itself reads stay in the record.
pub(crate) fn can_be_large(schema: &Schema, known: &AttributeType, name: &str) -> bool {
    known.equality().is_some_and(|rule| rule.is_indexable())
        && !known.is_operational()
        && !schema.is_protected(known.id())
        && !known.is_collective()
        && known.id() != schema.well_known().object_class
        && !names(schema, known, name)
}

/// Whether values of a type are in the first RDN of a name.
fn names(schema: &Schema, known: &AttributeType, name: &str) -> bool {
    // If the name cannot be parsed, all attributes stay in the record.
    let Ok(name) = Dn::parse(name) else {
        return true;
    };
    name.rdn().iter().flat_map(|rdn| rdn.avas()).any(|ava| {
        let named = schema.attribute_type(ava.attribute().as_bytes());
        named.is_none_or(|named| named.id() == known.id())
    })
}

/// The form of a value: the end of its key, after entry and attribute.
pub(crate) fn form_of(schema: &Schema, known: &AttributeType, value: &[u8]) -> Vec<u8> {
    let mut form = Vec::with_capacity(1 + value.len());
    let mut normal = Vec::new();
    let has_normal = known
        .equality()
        .is_some_and(|rule| rule.normalise(schema, value, &mut normal).is_ok());
    if !has_normal {
        normal.clear();
        normal.extend_from_slice(value);
    }
    shorten(&mut normal);
    form.push(if has_normal { NORMAL } else { AS_GIVEN });
    form.extend_from_slice(&normal);
    form
}

/// The form of values with this normal form, which is shortened as in an equality index.
pub(crate) fn form_of_normal(normal: &[u8]) -> Vec<u8> {
    [&[NORMAL], normal].concat()
}

/// The key of the value with this form.
pub(crate) fn key(id: EntryId, number: AttributeNo, form: &[u8]) -> Vec<u8> {
    [&id.to_key(), number.0.to_be_bytes().as_slice(), form].concat()
}

/// The entry, the attribute and the form in a key.
pub(crate) fn read_key(key: &[u8]) -> Option<(EntryId, AttributeNo, &[u8])> {
    let (id, rest) = key.split_first_chunk()?;
    let (number, form) = rest.split_first_chunk()?;
    let id = EntryId(u64::from_be_bytes(*id));
    Some((id, AttributeNo(u16::from_be_bytes(*number)), form))
}

/// The value with this form.
pub(crate) fn get<'v, R: Read>(
    view: &'v R,
    id: EntryId,
    number: AttributeNo,
    form: &[u8],
) -> engine::Result<Option<R::Value<'v>>> {
    steps::count(1);
    view.get(Table::Values, &key(id, number, form))
}

/// Between which keys the values of an attribute stand.
pub(crate) fn bounds(id: EntryId, number: AttributeNo) -> [Vec<u8>; 2] {
    [NORMAL, AS_GIVEN + 1].map(|first| key(id, number, &[first]))
}

/// The values of an attribute in the order of their keys, from a key on.
pub(crate) fn scan<'v, R: Read>(
    view: &'v R,
    id: EntryId,
    number: AttributeNo,
    from: Option<&[u8]>,
) -> engine::Result<R::Cursor<'v>> {
    let [first, end] = bounds(id, number);
    let range = Range::between(from.unwrap_or(&first), &end);
    view.scan(Table::Values, range, Direction::Forward)
}

/// The values of an attribute whose normal forms, shortened as in an equality index, are in a range: from the first,
/// before the second if there is one.
pub(crate) fn scan_normal<'v, R: Read>(
    view: &'v R,
    id: EntryId,
    number: AttributeNo,
    (from, to): (&[u8], Option<&[u8]>),
) -> engine::Result<R::Cursor<'v>> {
    let from = key(id, number, &form_of_normal(from));
    let to = to.map_or(vec![AS_GIVEN], form_of_normal);
    let to = key(id, number, &to);
    let range = Range::between(&from, &to);
    view.scan(Table::Values, range, Direction::Forward)
}

/// The bytes of a value as BER.
pub(crate) fn ber_bytes(value: &[u8]) -> u64 {
    ber::element_len(value.len()) as u64
}

/// A form and its value.
pub(crate) type ValueRow = (Vec<u8>, Vec<u8>);

/// Values of a large attribute, by their forms.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LargeValues {
    pub(crate) number: AttributeNo,
    pub(crate) rows: Vec<ValueRow>,
}

/// All values of a large attribute.
pub(crate) fn rows<R: Read>(view: &R, id: EntryId, large: LargeAttribute) -> Result<Vec<ValueRow>> {
    let mut cursor = scan(view, id, large.number, None)?;
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next()? {
        steps::count(1);
        let (_, _, form) = read_key(key).ok_or_else(|| not_as_told(id, large.number))?;
        rows.push((form.to_vec(), value.to_vec()));
    }
    if told(large.number, &rows) != large {
        return Err(not_as_told(id, large.number));
    }
    Ok(rows)
}

/// The error if the values do not agree with the record.
pub(crate) fn not_as_told(id: EntryId, number: AttributeNo) -> Error {
    Error::corrupt(format!(
        "entry {id}: the values of attribute number {} are not what its record tells of them",
        number.0
    ))
}

/// All values of the large attributes of an entry.
pub(crate) fn all<R: Read>(view: &R, id: EntryId, entry: &Entry<'_>) -> Result<Vec<LargeValues>> {
    all_of(view, id, entry, |_| true)
}

/// All values of the wanted ones among the large attributes of an entry.
pub(crate) fn all_of<R: Read>(
    view: &R,
    id: EntryId,
    entry: &Entry<'_>,
    is_wanted: impl Fn(AttributeNo) -> bool,
) -> Result<Vec<LargeValues>> {
    let of = |large: LargeAttribute| {
        Ok(LargeValues {
            number: large.number,
            rows: rows(view, id, large)?,
        })
    };
    let wanted = entry.large().filter(|large| is_wanted(large.number));
    wanted.map(of).collect()
}

/// The values of an attribute as rows, in the order of their forms. `None` if two values have the same form.
pub(crate) fn to_rows<'v>(
    schema: &Schema,
    known: &AttributeType,
    values: impl Iterator<Item = &'v [u8]>,
) -> Option<Vec<ValueRow>> {
    let mut rows: Vec<ValueRow> = values
        .map(|value| (form_of(schema, known, value), value.to_vec()))
        .collect();
    steps::count(rows.len());
    rows.sort_unstable();
    let is_set = rows.array_windows().all(|[one, next]| one.0 != next.0);
    is_set.then_some(rows)
}

/// The part of the record for a large attribute with these values.
pub(crate) fn told(number: AttributeNo, rows: &[ValueRow]) -> LargeAttribute {
    LargeAttribute {
        number,
        count: rows.len() as u32,
        bytes: rows.iter().map(|(_, value)| ber_bytes(value)).sum(),
    }
}

/// A record without its large attributes, and their values.
pub(crate) struct Split {
    pub(crate) record: Vec<u8>,
    pub(crate) large: Vec<LargeValues>,
}

/// Splits the large attributes from a record. `None` if it has none.
pub(crate) fn split(
    schema: &Schema,
    attributes: &AttributeTable,
    entry: &Entry<'_>,
    was_large: impl Fn(AttributeNo) -> bool,
) -> std::result::Result<Option<Split>, Damaged> {
    // A value has two bytes at least.
    if entry.ber().len() < 2 * KEPT_VALUES {
        return Ok(None);
    }
    let name = entry.rdn()?;
    let type_if_large = |stored: &StoredAttribute<'_>| {
        if stored.ber().len() < 2 * KEPT_VALUES
            || !is_large(stored.values().iter().count(), was_large(stored.number()))
        {
            return None;
        }
        let known = schema.type_of(attributes.get(stored.number())?.attribute_type());
        can_be_large(schema, known, name).then_some(known)
    };
    // Almost no record has a large attribute: look for one first.
    let mut stored = entry.attributes().flatten();
    if !stored.any(|stored| type_if_large(&stored).is_some()) {
        return Ok(None);
    }
    let mut builder = RecordBuilder::new();
    let mut large = Vec::new();
    entry.large().for_each(|large| builder.push_large(large));
    for stored in entry.attributes() {
        let stored = stored?;
        let rows = type_if_large(&stored)
            .and_then(|known| to_rows(schema, known, stored.values().into_iter()));
        match rows {
            Some(rows) => {
                builder.push_large(told(stored.number(), &rows));
                large.push(LargeValues {
                    number: stored.number(),
                    rows,
                });
            }
            None => builder.copy(&stored),
        }
    }
    if large.is_empty() {
        return Ok(None);
    }
    let mut record = Vec::new();
    let finished = builder.finish(entry.parent(), entry.flags(), name, &mut record);
    finished.map_err(|_| Damaged)?;
    Ok(Some(Split { record, large }))
}
