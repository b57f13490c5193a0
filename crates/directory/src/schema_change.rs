//! Changes of the schema that all entries have to be looked at for: whether they have values of a type that would be
//! removed or mean something else, or name it.
//!
//! In a small directory that is done at once. In a large one the change is only written down, in the definition: it is
//! *coming*. From then on a rule refuses updates that bring uses of what would change. Meanwhile the entries are looked
//! at, some thousand at a time, each part in the newest snapshot: what had no use when it was looked at has none later.
//! When all were looked at the change takes place in one commit; when a use was found it is given up, and the
//! definition says why. What was begun before a restart is begun again.
//!
//! A change that takes something away is answered when it is written down. One that only adds is answered when it has
//! taken place, as what comes next mostly needs it: its outcome [awaits](crate::Outcome::awaits) that.

use std::collections::HashMap;
use std::ops::Bound;

use sapwood_ldap::schema::Definition;

use crate::attributes::AttributeTable;
use crate::engine::{AttributeNo, CommitNo, Cursor, Direction, EntryId, Range, Read, Table};
use crate::entry::{Damaged, Entry};
use crate::error::{Error, Result};
use crate::large;
use crate::names;
use crate::operational::{self, Vocabulary};
use crate::reindex::Side;
use crate::schema::{AttributeType, AttributeTypeId, Schema};

/// Records that are looked at in one go, while other updates wait or a snapshot is held: a few milliseconds.
#[cfg(not(test))]
pub(crate) const RECORDS_AT_ONCE: u64 = 10_000;
#[cfg(test)]
pub(crate) const RECORDS_AT_ONCE: u64 = 4;

/// Syntaxes of values that are or have DNs: an attribute type stands before an equals sign.
const DN_SYNTAXES: [&str; 3] = [
    "1.3.6.1.4.1.1466.115.121.1.12",
    "1.3.6.1.4.1.1466.115.121.1.34",
    "1.3.6.1.4.1.1466.115.121.1.45",
];
/// The syntax of object identifiers, which may be names.
pub(crate) const OID_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.38";

/// A change that is coming.
#[derive(Debug)]
pub(crate) struct SchemaChange {
    /// The commit that wrote it down, which tells it from others.
    pub(crate) began: CommitNo,
    /// The schema as it is to be.
    pub(crate) schema: Schema,
    /// What entries may not have.
    pub(crate) uses: Uses,
}

impl SchemaChange {
    pub(crate) fn new(before: &Schema, after: Schema, began: CommitNo) -> SchemaChange {
        SchemaChange {
            began,
            uses: Uses::new(before, &after),
            schema: after,
        }
    }
}

/// What a change that is coming has come to.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    /// The commit that wrote it down.
    pub(crate) began: CommitNo,
    /// Why it is given up; `None` if it is to take place.
    pub(crate) given_up: Option<String>,
}

/// Whether nothing of a type changes, nor of what it inherits.
pub(crate) fn is_same(known: &AttributeType, now: &AttributeType) -> bool {
    known.definition() == now.definition()
        && known.superiors() == now.superiors()
        && meaning(known) == meaning(now)
}

/// What normal forms and results depend on.
fn meaning(known: &AttributeType) -> [Option<&str>; 4] {
    [
        known.syntax().map(|syntax| syntax.oid()),
        known.equality().map(|rule| rule.oid()),
        known.ordering().map(|rule| rule.oid()),
        known.substrings().map(|rule| rule.oid()),
    ]
}

/// What of a type changes that values and names depend on, for people; `None` if nothing does.
pub(crate) fn what_changes(known: &AttributeType, now: &AttributeType) -> Option<String> {
    if now.is_gone() {
        return Some("would be removed".to_owned());
    }
    let ([syntax, equality, ordering, substrings], now_means) = (meaning(known), meaning(now));
    let mut lost = known.names().filter(|name| {
        let mut names = now.names();
        !names.any(|other| other.eq_ignore_ascii_case(name))
    });
    if let Some(lost) = lost.next() {
        return Some(format!("would lose the name {lost}"));
    }
    let what = if syntax != now_means[0] {
        "would have another syntax"
    } else if equality != now_means[1] {
        "would have another equality rule"
    } else if ordering != now_means[2] {
        "would have another ordering rule"
    } else if substrings != now_means[3] {
        "would have another substrings rule"
    } else if known.key_name() != now.key_name() {
        "would have another first name"
    } else if known.superiors() != now.superiors() {
        "would have another superior"
    } else if known.usage() != now.usage() {
        "would have another usage"
    } else if known.is_collective() != now.is_collective() {
        "would become collective or cease to be so"
    } else if now.is_single_value() && !known.is_single_value() {
        "would take one value only"
    } else {
        return None;
    };
    Some(what.to_owned())
}

/// What a use of is looked for in records.
#[derive(Debug)]
pub(crate) struct Uses {
    /// The types whose values or names would change their meaning.
    affected: Vec<Affected>,
    of_type: HashMap<AttributeTypeId, Used>,
    /// How values of types name types.
    naming: HashMap<AttributeTypeId, Naming>,
    /// In lower case: the names and OIDs of affected types, and what will be a name.
    names: HashMap<Vec<u8>, Used>,
}

#[derive(Debug)]
struct Affected {
    name: String,
    /// What of it changes, for people.
    what: String,
}

/// What was found.
#[derive(Clone, Debug)]
pub(crate) enum Used {
    /// The affected type at a place.
    Affected(usize),
    /// A name that nothing has yet.
    New(String),
}

/// How values of an attribute name attribute types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    /// Before an equals sign.
    Dn,
    /// As the whole value.
    Oid,
}

/// How far entries have been looked at.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Whether the entries are done, and the values of large attributes come.
    is_in_values: bool,
    after: Option<Vec<u8>>,
}

/// What came of looking.
#[derive(Debug)]
pub(crate) enum Looked {
    /// There is no use.
    Clean,
    /// There is one, in this entry.
    Used(Used, EntryId),
    /// There are more records.
    Untold,
}

impl Uses {
    pub(crate) fn new(before: &Schema, after: &Schema) -> Uses {
        let mut uses = Uses {
            affected: Vec::new(),
            of_type: HashMap::new(),
            naming: HashMap::new(),
            names: HashMap::new(),
        };
        let types = before.attribute_types().iter();
        for known in types.filter(|known| !known.is_gone()) {
            let now = after.type_of(known.id());
            let what = match is_same(known, now) {
                true => None,
                false => what_changes(known, now),
            };
            let Some(what) = what else { continue };
            let used = Used::Affected(uses.affected.len());
            for name in known.names().chain([known.oid()]) {
                let name = name.to_ascii_lowercase().into_bytes();
                uses.names.insert(name, used.clone());
            }
            uses.of_type.insert(known.id(), used);
            uses.affected.push(Affected {
                name: known.name().to_owned(),
                what,
            });
        }
        uses.add_new_names(before, after);
        for known in before.attribute_types() {
            let naming = match known.syntax().map(|syntax| syntax.oid()) {
                Some(oid) if DN_SYNTAXES.contains(&oid) => Naming::Dn,
                Some(OID_SYNTAX) => Naming::Oid,
                _ => continue,
            };
            // What the server writes into an entry has only names that are defined, and a class that an entry has is.
            let is_of_class = known.id() == before.well_known().object_class;
            if !is_of_class && (!known.is_operational() || !uses.affected.is_empty()) {
                uses.naming.insert(known.id(), naming);
            }
        }
        uses
    }

    /// DNs may have names that nothing defines. They would be others if something did.
    fn add_new_names(&mut self, before: &Schema, after: &Schema) {
        let entries = after.additions().entries.iter();
        for definition in entries.flat_map(|entry| &entry.definitions) {
            let (oid, names, is_class) = match definition {
                Definition::AttributeType(known) => (&known.oid, &known.names, false),
                Definition::ObjectClass(known) => (&known.oid, &known.names, true),
                _ => continue,
            };
            for name in names.iter().chain([oid]) {
                let is_known = match is_class {
                    true => before.object_class(name.as_bytes()).is_some(),
                    false => before.attribute_type(name.as_bytes()).is_some(),
                };
                if !is_known {
                    let key = name.to_ascii_lowercase().into_bytes();
                    self.names.insert(key, Used::New(name.clone()));
                }
            }
        }
    }

    /// Whether it takes away or changes something, and does not only add.
    pub(crate) fn affects_types(&self) -> bool {
        !self.affected.is_empty()
    }

    /// Whether no record can have what is looked for.
    pub(crate) fn is_for_nothing(&self, attributes: &AttributeTable) -> bool {
        let has_number = |id: &AttributeTypeId| !attributes.numbers_of(*id).is_empty();
        self.names.is_empty()
            || !self.of_type.keys().any(has_number) && !self.naming.keys().any(has_number)
    }

    /// Looks at so many records behind a place, which goes on with it.
    pub(crate) fn look<R: Read>(
        &self,
        view: &R,
        vocabulary: Vocabulary<'_>,
        place: &mut Place,
        records: u64,
    ) -> Result<Looked> {
        if self.is_for_nothing(vocabulary.attributes) {
            return Ok(Looked::Clean);
        }
        let mut left = records;
        let mut spelled = Vec::new();
        loop {
            let table = match place.is_in_values {
                false => Table::Entry,
                true => Table::Values,
            };
            let from = place.after.take();
            let range = Range {
                from: from.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
                to: Bound::Unbounded,
            };
            let mut cursor = view.scan(table, range, Direction::Forward)?;
            while let Some((key, record)) = cursor.next()? {
                let found = match table {
                    Table::Entry => self.of_record(vocabulary, key, record, &mut spelled)?,
                    _ => self.of_row(vocabulary, key, record)?,
                };
                if let Some((used, id)) = found {
                    return Ok(Looked::Used(used, id));
                }
                left -= 1;
                if left == 0 {
                    place.after = Some(key.to_vec());
                    return Ok(Looked::Untold);
                }
            }
            if place.is_in_values {
                return Ok(Looked::Clean);
            }
            place.is_in_values = true;
        }
    }

    fn of_record(
        &self,
        vocabulary: Vocabulary<'_>,
        key: &[u8],
        record: &[u8],
        spelled: &mut Vec<u8>,
    ) -> Result<Option<(Used, EntryId)>> {
        let id = EntryId::from_key(key);
        let id = id.ok_or_else(|| Error::corrupt("a key of the entry table is no id"))?;
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let user = Entry::new(record).map_err(damaged)?;
        let operational = operational::spell(&user, vocabulary, spelled).map_err(damaged)?;
        for entry in [&user, &operational] {
            if let Some(used) = self.of_entry(vocabulary, entry).map_err(damaged)? {
                return Ok(Some((used, id)));
            }
        }
        Ok(None)
    }

    fn of_row(
        &self,
        vocabulary: Vocabulary<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<(Used, EntryId)>> {
        let read = large::read_key(key);
        let (id, number, _) =
            read.ok_or_else(|| Error::corrupt("a key of the values table is none"))?;
        let used = self.of_value(vocabulary, number, value);
        Ok(used.map(|used| (used, id)))
    }

    /// The first use in one side of an update.
    pub(crate) fn of_side(
        &self,
        vocabulary: Vocabulary<'_>,
        side: &Side<'_>,
    ) -> std::result::Result<Option<Used>, Damaged> {
        for entry in side.records.iter().flatten() {
            if let Some(used) = self.of_entry(vocabulary, entry)? {
                return Ok(Some(used));
            }
        }
        let mut rows = side
            .large
            .iter()
            .flat_map(|values| values.rows.iter().map(|(_, value)| (values.number, value)));
        Ok(rows.find_map(|(number, value)| self.of_value(vocabulary, number, value)))
    }

    fn of_entry(
        &self,
        vocabulary: Vocabulary<'_>,
        entry: &Entry<'_>,
    ) -> std::result::Result<Option<Used>, Damaged> {
        for attribute in entry.attributes() {
            let attribute = attribute?;
            let Some(id) = type_of(vocabulary, attribute.number()) else {
                continue;
            };
            if let Some(used) = self.of_type.get(&id) {
                return Ok(Some(used.clone()));
            }
            if let Some(naming) = self.naming.get(&id) {
                let mut values = attribute.values().iter();
                let used = values.find_map(|value| self.named_by(*naming, value));
                if used.is_some() {
                    return Ok(used);
                }
            }
        }
        Ok(None)
    }

    /// The affected type that a value is of, or names.
    fn of_value(
        &self,
        vocabulary: Vocabulary<'_>,
        number: AttributeNo,
        value: &[u8],
    ) -> Option<Used> {
        let id = type_of(vocabulary, number)?;
        if let Some(used) = self.of_type.get(&id) {
            return Some(used.clone());
        }
        self.named_by(*self.naming.get(&id)?, value)
    }

    fn named_by(&self, naming: Naming, value: &[u8]) -> Option<Used> {
        match naming {
            Naming::Oid => self.names.get(&value.to_ascii_lowercase()).cloned(),
            Naming::Dn => {
                let is_end = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"-._".contains(byte));
                let signs = value.iter().enumerate().filter(|(_, byte)| **byte == b'=');
                let mut named = signs.filter_map(|(at, _)| {
                    let before = value.get(..at)?.trim_ascii_end();
                    let name = before.rsplit(is_end).next()?;
                    self.names.get(&name.to_ascii_lowercase()).cloned()
                });
                named.next()
            }
        }
    }

    /// What is said of a use that was found in an entry.
    pub(crate) fn told<R: Read>(&self, view: &R, used: &Used, id: EntryId) -> Result<String> {
        let entry = names::dn_if_there(view, id)?.unwrap_or_default();
        Ok(match used {
            Used::Affected(at) => {
                let Affected { name, what } = &self.affected[*at];
                format!("the attribute type {name} {what}, and the entry '{entry}' uses it")
            }
            Used::New(name) => format!(
                "nothing defines {name} yet, and a value in the entry '{entry}' has it as a name: it would mean \
                 something else"
            ),
        })
    }

    /// What is said of a use that an update brings while the change is coming.
    pub(crate) fn refused(&self, used: &Used) -> String {
        let (name, what) = match used {
            Used::Affected(at) => {
                let Affected { name, what } = &self.affected[*at];
                (name, what.as_str())
            }
            Used::New(name) => (name, "would be defined"),
        };
        format!(
            "{name} {what} by a change of the schema that is coming: see sapwoodSchemaChange of cn=schema,cn=config"
        )
    }
}

fn type_of(vocabulary: Vocabulary<'_>, number: AttributeNo) -> Option<AttributeTypeId> {
    let known = vocabulary.attributes.get(number)?;
    Some(known.attribute_type())
}
