//! Which indexes there are, and what stands in them.
//!
//! The keys of an index are derived here and nowhere else, so that an update files an entry where a search looks for
//! it. An index may answer with more entries than match (long values stand in it as a prefix and a hash, 3-grams know
//! no order); every candidate is verified on its entry.

use sha2::{Digest, Sha256};

use crate::engine::{AttributeNo, CommitNo, GRAM_BYTES, Index, IndexKind, Table, append_escaped};
use crate::index_definition::KIND_WORDS;
use crate::schema::{
    AttributeType, AttributeTypeId, InvalidValue, MatchingRule, NormalDn, Schema, SubstringPattern,
    for_each_code,
};
use crate::steps;

/// Normal forms up to this length stand in an index as they are; of longer ones a prefix and a hash.
const VALUE_BYTES_MAX: usize = 256;
const HASH_BYTES: usize = 32;
const PREFIX_BYTES: usize = VALUE_BYTES_MAX - HASH_BYTES;
/// What [`append_escaped`] puts at the end.
const TERMINATOR_BYTES: usize = 2;

/// Stand before the first and after the last byte of a value in a substrings index, so that beginnings and ends can be
/// looked up. Prepared strings have no control characters (RFC 4518 §2.2).
const BEGIN: u8 = 0x01;
const END: u8 = 0x02;

/// How far an index has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// There is none.
    #[default]
    Absent,
    /// Updates keep it, but entries from before it was created are still being added: searches do not use it. Begun by
    /// this commit, which tells it from one that was there before and dropped.
    Building(CommitNo),
    /// It answers.
    Complete,
}

/// The indexes of one attribute type. Values with options stand under the type without options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttributeIndexes {
    /// The type; subtypes have indexes of their own.
    pub(crate) attribute_type: AttributeTypeId,
    /// The number of the type without options.
    pub(crate) number: AttributeNo,
    /// Equality.
    pub(crate) equality: Completeness,
    /// Presence.
    pub(crate) presence: Completeness,
    /// Substrings.
    pub(crate) substring: Completeness,
    /// Approximate matches.
    pub(crate) approximate: Completeness,
    /// Ordering: in [`Table::Order`].
    pub(crate) ordering: Completeness,
}

/// All indexes of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexSet {
    defined: Vec<AttributeIndexes>,
}

impl IndexSet {
    /// The indexes of a type.
    pub(crate) fn of(&self, attribute_type: AttributeTypeId) -> Option<&AttributeIndexes> {
        self.defined
            .iter()
            .find(|defined| defined.attribute_type == attribute_type)
    }

    /// The indexes of a type, to be changed; made when there were none.
    pub(crate) fn of_mut(
        &mut self,
        attribute_type: AttributeTypeId,
        number: AttributeNo,
    ) -> &mut AttributeIndexes {
        let at = self
            .defined
            .iter()
            .position(|defined| defined.attribute_type == attribute_type)
            .unwrap_or_else(|| {
                self.defined.push(AttributeIndexes {
                    attribute_type,
                    number,
                    equality: Completeness::Absent,
                    presence: Completeness::Absent,
                    approximate: Completeness::Absent,
                    substring: Completeness::Absent,
                    ordering: Completeness::Absent,
                });
                self.defined.len() - 1
            });
        &mut self.defined[at]
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AttributeIndexes> {
        self.defined.iter()
    }
}

impl AttributeIndexes {
    /// How far the index of a kind has come.
    pub(crate) fn completeness(&self, kind: IndexKind) -> Completeness {
        match kind {
            IndexKind::Equality => self.equality,
            IndexKind::Presence => self.presence,
            IndexKind::Approximate => self.approximate,
            IndexKind::Substring => self.substring,
        }
    }

    /// Whether the index of a kind, by its word, answers.
    pub(crate) fn is_complete(&self, kind: &str) -> bool {
        let known = KIND_WORDS.iter().find(|(word, _)| *word == kind);
        let completeness = match known {
            Some((_, Some(kind))) => self.completeness(*kind),
            Some((_, None)) => self.ordering,
            None => Completeness::Absent,
        };
        completeness == Completeness::Complete
    }

    /// The engine's name for the index of a kind.
    pub(crate) fn index(&self, kind: IndexKind) -> Index {
        Index {
            attribute: self.number,
            kind,
        }
    }

    /// The table of the ordering index.
    pub(crate) fn order_table(&self) -> Table {
        Table::Order(self.number)
    }
}

/// What can be indexed of a type; also the reason why not, for the person who asked.
pub(crate) fn can_index(
    attribute_type: &AttributeType,
    kind: IndexKind,
) -> Result<(), &'static str> {
    match kind {
        IndexKind::Presence => Ok(()),
        IndexKind::Equality => match attribute_type.equality() {
            Some(rule) if rule.is_indexable() => Ok(()),
            Some(_) => Err("its equality rule cannot be indexed"),
            None => Err("it has no equality rule"),
        },
        IndexKind::Approximate => match attribute_type.equality() {
            Some(rule) if rule.sounds() => Ok(()),
            _ => Err("its values are no words: approximate matches are equality matches"),
        },
        IndexKind::Substring => match attribute_type.substrings() {
            Some(_) => Ok(()),
            None => Err("it has no substrings rule"),
        },
    }
}

/// The same for the word of any kind, ordering included.
pub(crate) fn can_have(attribute_type: &AttributeType, kind: &str) -> Result<(), &'static str> {
    match KIND_WORDS.iter().find(|(word, _)| *word == kind) {
        Some((_, Some(kind))) => can_index(attribute_type, *kind),
        Some((_, None)) => match attribute_type.order() {
            Some(_) => Ok(()),
            None => Err("its values have no order"),
        },
        None => Err("the kinds of index are eq, pres, sub, approx and ord"),
    }
}

/// The kind of index, if a type can have it and it finds entries by what a filter asks of them.
pub(crate) fn useful_kind(
    attribute_type: &AttributeType,
    kind: &'static str,
) -> Option<&'static str> {
    // An order for sorting alone answers no comparison.
    let answers = kind != "ord" || attribute_type.ordering().is_some();
    (answers && can_have(attribute_type, kind).is_ok()).then_some(kind)
}

/// Calls `each` with every key under which a value stands in an index of a kind; the same key may come twice. A value
/// that has no normal form stands under none: no assertion matches it. `scratch` is overwritten.
pub(crate) fn for_each_key(
    schema: &Schema,
    attribute_type: &AttributeType,
    kind: IndexKind,
    value: &[u8],
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) {
    scratch.clear();
    match kind {
        IndexKind::Presence => each(&[]),
        IndexKind::Equality => {
            let Some(rule) = attribute_type.equality() else {
                return;
            };
            if rule.normalise(schema, value, scratch).is_ok() {
                shorten(scratch);
                each(scratch);
            }
        }
        IndexKind::Approximate => {
            let rule = attribute_type.equality().filter(|rule| rule.sounds());
            let Some(rule) = rule else {
                return;
            };
            if rule.normalise(schema, value, scratch).is_ok() {
                for_each_code(scratch, |code| each(code.as_bytes()));
            }
        }
        IndexKind::Substring => {
            let Some(rule) = attribute_type.substrings() else {
                return;
            };
            scratch.push(BEGIN);
            if rule.normalise(schema, value, scratch).is_ok() {
                scratch.push(END);
                scratch.windows(GRAM_BYTES).for_each(each);
            }
        }
    }
}

/// The key of an equality index for a normal form, such as that of an assertion.
pub(crate) fn equality_key(normal: &[u8]) -> Vec<u8> {
    match normal.get(..PREFIX_BYTES) {
        // That of an assertion may have megabytes, which are not copied.
        Some(prefix) if normal.len() > VALUE_BYTES_MAX => [prefix, &hash(normal)].concat(),
        _ => normal.to_vec(),
    }
}

/// Where the values that name an entry stand in an equality index of names, with those that name what is below it if
/// they are wanted, too: from the first key on, before the second, or up to the end of the index. Others may stand
/// there, too.
pub(crate) fn keys_below(name: &NormalDn, wants_below: bool) -> (Vec<u8>, Option<Vec<u8>>) {
    let bytes = name.bytes();
    let prefix = &bytes[..bytes.len().min(PREFIX_BYTES)];
    let mut end = prefix.to_vec();
    if !wants_below && bytes.len() < PREFIX_BYTES {
        // A unique identifier behind the name begins with 0x00, what is below it with the name of a type.
        end.push(1);
        return (prefix.to_vec(), Some(end));
    }
    (prefix.to_vec(), behind_all(end))
}

/// The first key that is behind all that begin so; `None` if there is none.
fn behind_all(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            return Some(prefix);
        }
    }
    None
}

/// Keys of a substrings index under which every matching value stands; none when the parts are too short. Of more than
/// `most`, as many from all over the parts: a part may have megabytes.
pub(crate) fn substring_keys(pattern: &SubstringPattern, most: usize) -> Vec<[u8; GRAM_BYTES]> {
    let initial = pattern.initial().map(|part| (Some(BEGIN), part, None));
    let last = pattern.last().map(|part| (None, part, Some(END)));
    let any = pattern.any().map(|part| (None, part, None));
    let parts = initial.into_iter().chain(any).chain(last);
    let keys_of = |(before, part, after): &(Option<u8>, &[u8], Option<u8>)| {
        let bytes = usize::from(before.is_some()) + part.len() + usize::from(after.is_some());
        bytes.saturating_sub(GRAM_BYTES - 1)
    };
    let step = parts.clone().map(|part| keys_of(&part)).sum::<usize>();
    let step = step.div_ceil(most).max(1);
    let mut keys = Vec::new();
    // Where the next key begins in the part that comes.
    let mut at = 0;
    for part in parts {
        let count = keys_of(&part);
        steps::count(1);
        while at < count {
            let (before, bytes, after) = part;
            let from = at.saturating_sub(usize::from(before.is_some()));
            let before = before.filter(|_| at == 0);
            let bytes = bytes.iter().skip(from).copied();
            let mut gram = before.into_iter().chain(bytes).chain(after);
            keys.push([(); GRAM_BYTES].map(|()| gram.next().unwrap_or_default()));
            steps::count(1);
            at += step;
        }
        at -= count;
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Replaces `out` by the normal form under which a value stands in the ordering index, shortened like that of an
/// equality index: long values that agree in the prefix follow each other in no particular order.
///
/// # Errors
/// When the value has no normal form.
pub(crate) fn ordering_key(
    schema: &Schema,
    rule: &MatchingRule,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), InvalidValue> {
    out.clear();
    rule.normalise(schema, value, out)?;
    shorten(out);
    Ok(())
}

/// Where the values from a normal form on begin in an ordering index.
pub(crate) fn ordering_from(normal: &[u8]) -> Vec<u8> {
    let mut from = Vec::new();
    append_escaped(&mut from, ordering_prefix(normal));
    from.truncate(from.len() - TERMINATOR_BYTES);
    from
}

/// Where the values up to and with a normal form end in an ordering index: before this key. `None` is the end of the
/// index.
pub(crate) fn ordering_to(normal: &[u8]) -> Option<Vec<u8>> {
    let prefix = ordering_prefix(normal);
    let mut to = Vec::new();
    append_escaped(&mut to, prefix);
    if prefix.len() < normal.len() {
        to.truncate(to.len() - TERMINATOR_BYTES);
    }
    behind_all(to)
}

fn ordering_prefix(normal: &[u8]) -> &[u8] {
    if normal.len() > VALUE_BYTES_MAX {
        &normal[..PREFIX_BYTES]
    } else {
        normal
    }
}

/// Shortens a normal form to what an index has room for. Different forms stay different.
pub(crate) fn shorten(normal: &mut Vec<u8>) {
    if normal.len() > VALUE_BYTES_MAX {
        let hash = hash(normal);
        normal.truncate(PREFIX_BYTES);
        normal.extend(hash);
    }
}

/// Nobody who chooses values finds two with the same hash.
fn hash(normal: &[u8]) -> [u8; HASH_BYTES] {
    Sha256::digest(normal).into()
}
