//! Whether the data allow a change of the schema: what entries, indexes and names depend on stays as it is.

use std::collections::HashMap;

use sapwood_ldap::result::ResultCode;
use sapwood_ldap::schema::Definition;

use crate::access;
use crate::access::is_protected;
use crate::attributes::AttributeTable;
use crate::engine::{
    AttributeNo, Cursor, Direction, EntryId, IndexKind, Postings, Range, Table, Write,
};
use crate::entry::{Damaged, Entry};
use crate::error::Error;
use crate::indexes::shorten;
use crate::large;
use crate::names;
use crate::operational;
use crate::outcome::Stop;
use crate::schema::additions::Kind;
use crate::schema::{AttributeType, ObjectClass, OperationalAttribute, Schema};
use crate::update::Run;

/// Records that are looked at to find out whether data need a definition: some ten seconds of work at most, while other
/// updates wait.
const RECORDS_MAX: u64 = 100_000_000;

/// Syntaxes of values that are or have DNs: an attribute type stands before an equals sign.
const DN_SYNTAXES: [&str; 3] = [
    "1.3.6.1.4.1.1466.115.121.1.12",
    "1.3.6.1.4.1.1466.115.121.1.34",
    "1.3.6.1.4.1.1466.115.121.1.45",
];
/// The syntax of object identifiers, which may be names.
const OID_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.38";

/// A type whose values or names would change their meaning.
struct Affected<'a> {
    known: &'a AttributeType,
    /// What of it changes, for people.
    what: String,
}

impl<T: Write> Run<'_, T> {
    /// Refuses a change of the schema that data, indexes or the server itself cannot do without.
    pub(super) fn check_schema_change(
        &mut self,
        before: &Schema,
        after: &Schema,
    ) -> Result<(), Stop> {
        let mut affected = Vec::new();
        for known in before
            .attribute_types()
            .iter()
            .filter(|known| !known.is_gone())
        {
            let now = after.type_of(known.id());
            if known.definition() == now.definition() && known.superiors() == now.superiors() {
                // What it inherits may be another's.
                if meaning(known) == meaning(now) {
                    continue;
                }
            }
            // Passwords in the clear are known by these names before they come here.
            if access::is_protected(before, known.id()) && !known.names().eq(now.names()) {
                let name = known.name();
                let diagnostic =
                    format!("the server itself uses {name}, which would have other names");
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
            let Some(what) = what_changes(known, now) else {
                continue;
            };
            if is_of_server(before, known) {
                let name = known.name();
                let diagnostic =
                    format!("the server itself uses the attribute type {name}, which {what}");
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
            if self.state.indexes.of(known.id()).is_some() {
                let name = known.name();
                let diagnostic = format!(
                    "there is an index on {name}, which {what}: drop the index first (olcDbIndex)"
                );
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
            affected.push(Affected { known, what });
        }
        for class in before
            .object_classes()
            .iter()
            .filter(|class| !class.is_gone())
        {
            let now = after.object_classes().get(class.id().index());
            let now = now.filter(|now| !now.is_gone());
            if let Some(what) = what_changes_of_class(class, now) {
                self.refuse_used_class(before, class, &what)?;
            }
        }
        self.refuse_shared_names(before, after)?;
        self.refuse_used_types((before, after), &affected)
    }

    /// Refuses a change of a class that entries have.
    fn refuse_used_class(
        &mut self,
        schema: &Schema,
        class: &ObjectClass,
        what: &str,
    ) -> Result<(), Stop> {
        let object_class = schema.type_of(schema.well_known().object_class);
        if is_class_of_server(schema, class) {
            let diagnostic = format!(
                "the server itself uses the object class {}, which {what}",
                class.name()
            );
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        let mut key = Vec::new();
        let rule = object_class.equality();
        let is_normal = rule.is_some_and(|rule| {
            rule.normalise(schema, class.oid().as_bytes(), &mut key)
                .is_ok()
        });
        let indexes = self.state.indexes.of(object_class.id());
        let (Some(indexes), true) = (indexes, is_normal) else {
            return Ok(());
        };
        shorten(&mut key);
        let index = indexes.index(IndexKind::Equality);
        self.txn.open_index(index)?;
        let first = self.txn.postings(index, &key)?.next()?;
        match first {
            None => Ok(()),
            Some(id) => Err(self.used("object class", class.name(), what, id)?),
        }
    }

    /// Refuses names that mean something else where object identifiers stand: a name that a class shares with an
    /// attribute type stands for the class.
    fn refuse_shared_names(&self, before: &Schema, after: &Schema) -> Result<(), Stop> {
        let structural = before.operational(OperationalAttribute::StructuralObjectClass);
        let of_classes = [before.well_known().object_class, structural];
        let is_named = before.attribute_types().iter().any(|known| {
            known
                .syntax()
                .is_some_and(|syntax| syntax.oid() == OID_SYNTAX)
                && !of_classes.contains(&known.id())
                && !self.state.attributes.numbers_of(known.id()).is_empty()
        });
        if !is_named {
            return Ok(());
        }
        let is_shared = |schema: &Schema, name: &[u8]| {
            schema.attribute_type(name).is_some() && schema.object_class(name).is_some()
        };
        let added = after
            .additions()
            .entries
            .iter()
            .flat_map(|entry| &entry.definitions);
        for definition in added {
            let names = match definition {
                Definition::AttributeType(known) => &known.names,
                Definition::ObjectClass(known) => &known.names,
                _ => continue,
            };
            for name in names {
                let name_bytes = name.as_bytes();
                if is_shared(after, name_bytes) && !is_shared(before, name_bytes) {
                    let diagnostic = format!(
                        "{name:?} would be the name of an attribute type and of an object class, and object \
                         identifiers are written by name"
                    );
                    return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
                }
            }
        }
        Ok(())
    }

    /// Refuses a change of types of which there are values, or that stand in names; and names that DNs have already
    /// though nothing defines them: the DNs would be others then.
    fn refuse_used_types(
        &mut self,
        (before, after): (&Schema, &Schema),
        affected: &[Affected<'_>],
    ) -> Result<(), Stop> {
        let search = Search::new(before, after, &self.state.attributes, affected);
        if search.is_for_nothing() {
            return Ok(());
        }
        match search.find(&*self.txn, self.vocabulary())? {
            None => Ok(()),
            Some((Wanted::Affected(at), id)) => {
                let Affected { known, what } = &affected[at];
                Err(self.used("attribute type", known.name(), what, id)?)
            }
            Some((Wanted::New(name), id)) => {
                let entry = names::dn_if_there(self.txn, id)?.unwrap_or_default();
                let diagnostic = format!(
                    "nothing defines {name} yet, and a value in the entry '{entry}' has it as a name: it would mean \
                     something else"
                );
                Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic))
            }
        }
    }

    fn used(&self, kind: &str, name: &str, what: &str, id: EntryId) -> Result<Stop, Error> {
        let entry = names::dn_if_there(self.txn, id)?.unwrap_or_default();
        let diagnostic = format!("the {kind} {name} {what}, and the entry '{entry}' uses it");
        Ok(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic))
    }
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
fn what_changes(known: &AttributeType, now: &AttributeType) -> Option<String> {
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

/// The same of a class.
fn what_changes_of_class(class: &ObjectClass, now: Option<&ObjectClass>) -> Option<String> {
    let Some(now) = now else {
        return Some("would be removed".to_owned());
    };
    let lost = class.names().find(|name| {
        let mut names = now.names();
        !names.any(|other| other.eq_ignore_ascii_case(name))
    });
    if let Some(lost) = lost {
        return Some(format!("would lose the name {lost}"));
    }
    let allows = |class: &ObjectClass, id| class.must().contains(id) || class.may().contains(id);
    let mut all = class.must().iter().chain(class.may().iter());
    let what = if class.kind() != now.kind() {
        "would be of another kind"
    } else if class.superiors() != now.superiors() {
        "would have another superior"
    } else if now.must().iter().any(|id| !class.must().contains(id)) {
        "would have one more attribute that entries must have"
    } else if all.any(|id| !allows(now, id)) {
        "would have one attribute less that entries may have"
    } else {
        return None;
    };
    Some(what.to_owned())
}

/// Whether the directory itself interprets a type.
fn is_of_server(schema: &Schema, known: &AttributeType) -> bool {
    let well_known = schema.well_known();
    let ids = [well_known.object_class, well_known.aliased_object_name];
    let is_config = known.name().starts_with("olc") || known.name().starts_with("sapwood");
    let is_own = known.is_operational() || is_config || ids.contains(&known.id());
    (is_own || is_protected(schema, known.id()))
        && schema.is_built_in(Kind::AttributeTypes, known.oid())
}

/// Whether the directory itself interprets a class.
fn is_class_of_server(schema: &Schema, class: &ObjectClass) -> bool {
    let known = schema.well_known();
    let ids = [
        known.top,
        known.alias,
        known.referral,
        known.extensible_object,
        known.subentry,
        known.collective_attribute_subentry,
        known.subschema,
    ];
    let is_config = class.name().starts_with("olc") || class.name().starts_with("sapwood");
    (is_config || ids.contains(&class.id())) && schema.is_built_in(Kind::ObjectClasses, class.oid())
}

/// What is looked for in all records.
struct Search {
    /// By number: the affected type that it is of.
    of_number: HashMap<AttributeNo, Wanted>,
    /// By number: how values name types.
    naming: HashMap<AttributeNo, Naming>,
    /// In lower case: the names and OIDs of affected types, and what will be a name.
    names: HashMap<Vec<u8>, Wanted>,
}

/// What was looked for.
#[derive(Clone, Debug)]
enum Wanted {
    /// The affected type at a place.
    Affected(usize),
    /// A name that nothing has yet.
    New(String),
}

/// How values of an attribute name attribute types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// Before an equals sign.
    Dn,
    /// As the whole value.
    Oid,
}

impl Search {
    fn new(
        before: &Schema,
        after: &Schema,
        attributes: &AttributeTable,
        affected: &[Affected<'_>],
    ) -> Search {
        let mut search = Search {
            of_number: HashMap::new(),
            naming: HashMap::new(),
            names: HashMap::new(),
        };
        for (at, Affected { known, .. }) in affected.iter().enumerate() {
            for name in known.names().chain([known.oid()]) {
                let name = name.to_ascii_lowercase().into_bytes();
                search.names.insert(name, Wanted::Affected(at));
            }
            for number in attributes.numbers_of(known.id()) {
                search.of_number.insert(*number, Wanted::Affected(at));
            }
        }
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
                    search.names.insert(key, Wanted::New(name.clone()));
                }
            }
        }
        for known in before.attribute_types() {
            let naming = match known.syntax().map(|syntax| syntax.oid()) {
                Some(oid) if DN_SYNTAXES.contains(&oid) => Naming::Dn,
                Some(OID_SYNTAX) => Naming::Oid,
                _ => continue,
            };
            // What the server writes into an entry has only names that are defined.
            if !known.is_operational() || !affected.is_empty() {
                let numbers = attributes.numbers_of(known.id()).iter();
                search
                    .naming
                    .extend(numbers.map(|number| (*number, naming)));
            }
        }
        // A class that an entry has is defined.
        for number in attributes.numbers_of(before.well_known().object_class) {
            search.naming.remove(number);
        }
        search
    }

    /// Whether no record can have what is looked for.
    fn is_for_nothing(&self) -> bool {
        self.names.is_empty() || self.of_number.is_empty() && self.naming.is_empty()
    }

    /// The first entry that uses one of the types, and which one.
    fn find<T: Write>(
        &self,
        txn: &T,
        vocabulary: operational::Vocabulary<'_>,
    ) -> Result<Option<(Wanted, EntryId)>, Stop> {
        let mut spelled = Vec::new();
        let mut left = RECORDS_MAX;
        let mut entries = txn.scan(Table::Entry, Range::ALL, Direction::Forward)?;
        while let Some((key, record)) = entries.next()? {
            count(&mut left)?;
            let id = EntryId::from_key(key);
            let id = id.ok_or_else(|| Error::corrupt("a key of the entry table is no id"))?;
            let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
            let user = Entry::new(record).map_err(damaged)?;
            let operational =
                operational::spell(&user, vocabulary, &mut spelled).map_err(damaged)?;
            for entry in [&user, &operational] {
                if let Some(found) = self.of_entry(entry).map_err(damaged)? {
                    return Ok(Some((found, id)));
                }
            }
        }
        let mut values = txn.scan(Table::Values, Range::ALL, Direction::Forward)?;
        while let Some((key, value)) = values.next()? {
            count(&mut left)?;
            let Some((id, number, _)) = large::read_key(key) else {
                return Err(Error::corrupt("a key of the values table is none").into());
            };
            if let Some(found) = self.of_value(number, value) {
                return Ok(Some((found, id)));
            }
        }
        Ok(None)
    }

    fn of_entry(&self, entry: &Entry<'_>) -> Result<Option<Wanted>, Damaged> {
        for attribute in entry.attributes() {
            let attribute = attribute?;
            if let Some(found) = self.of_number.get(&attribute.number()) {
                return Ok(Some(found.clone()));
            }
            if self.naming.contains_key(&attribute.number()) {
                let mut values = attribute.values().iter();
                let found = values.find_map(|value| self.of_value(attribute.number(), value));
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// The affected type that a value is of, or names.
    fn of_value(&self, number: AttributeNo, value: &[u8]) -> Option<Wanted> {
        if let Some(found) = self.of_number.get(&number) {
            return Some(found.clone());
        }
        match self.naming.get(&number)? {
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
}

fn count(left: &mut u64) -> Result<(), Stop> {
    *left = left.checked_sub(1).ok_or_else(|| {
        let diagnostic = format!(
            "whether entries use the definition is not known after {RECORDS_MAX} of them: export the data, and import \
             them with the other schema"
        );
        Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic)
    })?;
    Ok(())
}
