//! Checks that the tables agree with each other: names with entries, indexes with entries. (That each page is sound is
//! the store's own check.)
//!
//! One pass over the entries looks at each record, its name, and sums up a hash of every index key the entry should
//! stand under; one pass over each index sums up what is there. Only where the sums differ are keys looked up one by
//! one.

use std::collections::HashMap;

use xxhash_rust::xxh3::Xxh3;

use crate::Directory;
use crate::directory::Snapshot;
use crate::engine::{
    self, Cursor, Direction, Engine, EntryId, Index, IndexKind, Postings, Range, Read, Table,
};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::examined;
use crate::indexes::{AttributeIndexes, Completeness};
use crate::large::{self, LargeValues, ValueRow};
use crate::names::{Child, DnCache, name_key};
use crate::operational::{self, Vocabulary};
use crate::reindex::{KINDS, KeySet, Side, index_keys, ordering_keys};
use crate::schema::NormalDn;

/// How many problems are told in full.
pub const PROBLEMS_MAX: usize = 1000;

/// How many entries lie between two calls about progress.
const PROGRESS_ENTRIES: u64 = 10_000;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Entries looked at.
    pub entries: u64,
    /// Values of large attributes looked at.
    pub values: u64,
    /// Index records looked at.
    pub postings: u64,
    /// What is wrong, the first [`PROBLEMS_MAX`] of it; empty when nothing is.
    pub problems: Vec<String>,
}

impl CheckReport {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// An index with what should be in it.
struct Expected<'s> {
    indexes: &'s AttributeIndexes,
    /// `None` for ordering.
    kind: Option<IndexKind>,
    sum: Sum,
}

/// A sum over a set of records that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    records: u64,
    hashes: u128,
}

impl Sum {
    fn add(&mut self, key: &[u8], id: EntryId) {
        let mut hash = Xxh3::new();
        hash.update(&(key.len() as u64).to_le_bytes());
        hash.update(key);
        hash.update(&id.to_key());
        self.records += 1;
        self.hashes = self.hashes.wrapping_add(hash.digest128());
    }
}

impl<E: Engine> Directory<E> {
    /// Checks the newest visible state; `progress` is told the entries looked at so far.
    ///
    /// # Errors
    /// When the engine cannot be read at all. What is wrong with what was read stands in the report.
    pub fn check(&self, progress: impl FnMut(u64)) -> Result<CheckReport> {
        self.waiting_snapshot()?.check(progress)
    }
}

impl<E: Engine> Snapshot<E> {
    fn check(&self, mut progress: impl FnMut(u64)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let mut expected = Vec::new();
        for indexes in self.state().indexes.iter() {
            for kind in KINDS {
                if indexes.completeness(kind) == Completeness::Complete {
                    expected.push(Expected {
                        indexes,
                        kind: Some(kind),
                        sum: Sum::default(),
                    });
                }
            }
            if indexes.ordering == Completeness::Complete {
                expected.push(Expected {
                    indexes,
                    kind: None,
                    sum: Sum::default(),
                });
            }
        }
        self.check_entries(&mut expected, &mut report, &mut progress)?;
        self.check_counts(&mut report)?;
        for expected in &expected {
            self.check_index(expected, &mut report)?;
        }
        Ok(report)
    }

    fn check_entries(
        &self,
        expected: &mut [Expected<'_>],
        report: &mut CheckReport,
        progress: &mut impl FnMut(u64),
    ) -> Result<()> {
        let view = self.view();
        let ids_ends = (0..self.directory().stores() as u16)
            .map(|store| view.ids_end(store))
            .collect::<engine::Result<Vec<_>>>()?;
        let is_given = |id: EntryId| match id.partitions() {
            Some(_) => self
                .state()
                .partitioned
                .iter()
                .any(|parent| parent.id == id),
            None => ids_ends
                .get(usize::from(id.store()))
                .is_some_and(|end| end.is_none_or(|end| id < end)),
        };
        let mut names = NameCheck::default();
        let mut keys = Keys::default();
        let (vocabulary, mut spelled) = (self.vocabulary(), Vec::new());
        let mut entries = view.scan(Table::Entry, Range::ALL, Direction::Forward)?;
        while let Some((key, record)) = entries.next()? {
            report.entries += 1;
            if report.entries.is_multiple_of(PROGRESS_ENTRIES) {
                progress(report.entries);
            }
            let Some(id) = EntryId::from_key(key) else {
                report.problem("a key of the entry table is no id".into());
                continue;
            };
            if !is_given(id) {
                report.problem(format!("entry {id} has an id that is still to be given"));
            }
            let Ok(user) = Entry::new(record) else {
                report.problem(format!(
                    "entry {id}: the record is not of the form of an entry"
                ));
                continue;
            };
            let Ok(operational) = operational::spell(&user, vocabulary, &mut spelled) else {
                report.problem(format!(
                    "entry {id}: the operational attributes cannot be read"
                ));
                continue;
            };
            if examined::examine(&user, vocabulary).is_err() {
                report.problem(format!("entry {id}: it cannot be sent as it is stored"));
            }
            self.check_attributes(id, &[user, operational], report);
            let Some(large) = self.check_large(id, &user, report)? else {
                continue;
            };
            let side = Side {
                records: Some([user, operational]),
                large: &large,
            };
            names.check(self, id, &user, report)?;
            for expected in &mut *expected {
                match keys.of(self, expected.indexes, expected.kind, id, &side) {
                    Ok(keys) => keys.iter().for_each(|key| expected.sum.add(key, id)),
                    Err(_) => report.problem(format!("entry {id}: an attribute cannot be read")),
                }
            }
        }
        progress(report.entries);
        Ok(())
    }

    fn vocabulary(&self) -> Vocabulary<'_> {
        Vocabulary {
            schema: self.schema(),
            attributes: &self.state().attributes,
        }
    }

    fn check_attributes(&self, id: EntryId, records: &[Entry<'_>; 2], report: &mut CheckReport) {
        for attribute in records.iter().flat_map(Entry::attributes) {
            let Ok(attribute) = attribute else {
                report.problem(format!("entry {id}: its table of attributes is damaged"));
                continue;
            };
            let Some(known) = self.state().attributes.get(attribute.number()) else {
                report.problem(format!(
                    "entry {id} has an attribute of the unknown number {}",
                    attribute.number().0
                ));
                continue;
            };
            let list = sapwood_ldap::list::Attributes::from_ber(attribute.ber());
            let is_sound = list.is_ok_and(|list| {
                let mut list = list.iter();
                let is_it = list.next().is_some_and(|found| {
                    found.description == known.text().as_bytes()
                        && found.values == attribute.values()
                });
                is_it && list.next().is_none()
            });
            if !is_sound {
                report.problem(format!(
                    "entry {id}: the BER of {} is damaged",
                    known.text()
                ));
            }
        }
    }

    /// The values of the large attributes of an entry, if they are what its record tells of them.
    fn check_large(
        &self,
        id: EntryId,
        entry: &Entry<'_>,
        report: &mut CheckReport,
    ) -> Result<Option<Vec<LargeValues>>> {
        let large = match large::all(self.view(), id, entry) {
            Ok(large) => large,
            Err(Error::Engine(engine::Error::Corrupt(problem))) => {
                report.problem(problem);
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        for values in &large {
            report.values += values.rows.len() as u64;
            let Some(known) = self.state().attributes.get(values.number) else {
                report.problem(format!(
                    "entry {id} has an attribute of the unknown number {}",
                    values.number.0
                ));
                return Ok(None);
            };
            let attribute_type = self.schema().type_of(known.attribute_type());
            let is_sound = |(form, value): &ValueRow| {
                *form == large::form_of(self.schema(), attribute_type, value)
            };
            if !values.rows.iter().all(is_sound) {
                report.problem(format!(
                    "entry {id}: a value of {} does not stand under its normal form",
                    known.text()
                ));
            }
        }
        Ok(Some(large))
    }

    /// Each entry was found under its name; equal counts then mean that there is no other name.
    fn check_counts(&self, report: &mut CheckReport) -> Result<()> {
        let mut names = 0;
        let mut cursor = self
            .view()
            .scan(Table::Name, Range::ALL, Direction::Forward)?;
        while cursor.next()?.is_some() {
            names += 1;
        }
        if names != report.entries {
            report.problem(format!(
                "there are {} entries but {names} records in the table name",
                report.entries
            ));
        }
        let mut values = 0;
        let mut cursor = self
            .view()
            .scan(Table::Values, Range::ALL, Direction::Forward)?;
        while cursor.next()?.is_some() {
            values += 1;
        }
        if values != report.values {
            report.problem(format!(
                "the large attributes of entries have {} values but there are {values} records in the table values",
                report.values
            ));
        }
        let mut states = self
            .view()
            .scan(Table::State, Range::ALL, Direction::Forward)?;
        while let Some((key, _)) = states.next()? {
            if self.view().get(Table::Entry, key)?.is_none() {
                report
                    .problem("the table state has a record of an entry that does not exist".into());
            }
        }
        Ok(())
    }

    fn check_index(&self, expected: &Expected<'_>, report: &mut CheckReport) -> Result<()> {
        let mut sum = Sum::default();
        self.for_each_record(expected, |key, id| sum.add(key, id))?;
        report.postings += sum.records;
        if sum == expected.sum {
            return Ok(());
        }
        let name = self
            .schema()
            .type_of(expected.indexes.attribute_type)
            .name();
        let word = expected.kind.map_or("ord", IndexKind::word);
        report.problem(format!(
            "index {name} {word} has {} records where the entries make {}; drop and add it again",
            sum.records, expected.sum.records
        ));
        self.explain(expected, &format!("index {name} {word}"), report)
    }

    /// Hands the records of an index to `each`: the key as [`Keys`] makes it, and the id.
    fn for_each_record(
        &self,
        expected: &Expected<'_>,
        mut each: impl FnMut(&[u8], EntryId),
    ) -> Result<()> {
        match expected.kind {
            Some(kind) => {
                self.view()
                    .scan_index(expected.indexes.index(kind), Range::ALL, |key, id| {
                        each(key, id);
                        true
                    })?
            }
            None => {
                let table = expected.indexes.order_table();
                let mut cursor = self.view().scan(table, Range::ALL, Direction::Forward)?;
                while let Some((key, _)) = cursor.next()? {
                    let id = key.last_chunk().map(|id| EntryId(u64::from_be_bytes(*id)));
                    let id = id
                        .ok_or_else(|| Error::corrupt("a key of an ordering table is too short"))?;
                    each(key, id);
                }
            }
        }
        Ok(())
    }

    /// Says which records are missing and which are too many.
    fn explain(&self, expected: &Expected<'_>, name: &str, report: &mut CheckReport) -> Result<()> {
        let view = self.view();
        let mut keys = Keys::default();
        let (vocabulary, mut spelled) = (self.vocabulary(), Vec::new());
        let mut entries = view.scan(Table::Entry, Range::ALL, Direction::Forward)?;
        let mut records: HashMap<u128, u32> = HashMap::new();
        let one = |key: &[u8], id: EntryId| {
            let mut sum = Sum::default();
            sum.add(key, id);
            sum.hashes
        };
        while let Some((key, record)) = entries.next()? {
            let (Some(id), Ok(user)) = (EntryId::from_key(key), Entry::new(record)) else {
                continue;
            };
            let Ok(operational) = operational::spell(&user, vocabulary, &mut spelled) else {
                continue;
            };
            let Ok(large) = large::all(view, id, &user) else {
                continue;
            };
            let side = Side {
                records: Some([user, operational]),
                large: &large,
            };
            let Ok(keys) = keys.of(self, expected.indexes, expected.kind, id, &side) else {
                continue;
            };
            for key in keys.iter() {
                if !self.has_record(expected, key, id)? {
                    report.problem(format!(
                        "{name} lacks entry {id} under '{}'",
                        key.escape_ascii()
                    ));
                } else if report.problems.len() < PROBLEMS_MAX {
                    *records.entry(one(key, id)).or_default() += 1;
                }
            }
        }
        self.for_each_record(expected, |key, id| {
            if report.problems.len() < PROBLEMS_MAX && !records.contains_key(&one(key, id)) {
                report.problem(format!(
                    "{name} has entry {id} under '{}', which it is not",
                    key.escape_ascii()
                ));
            }
        })
    }

    fn has_record(&self, expected: &Expected<'_>, key: &[u8], id: EntryId) -> engine::Result<bool> {
        match expected.kind {
            Some(kind) => {
                let index: Index = expected.indexes.index(kind);
                Ok(self.view().postings(index, key)?.seek(id)? == Some(id))
            }
            None => Ok(self
                .view()
                .get(expected.indexes.order_table(), key)?
                .is_some()),
        }
    }
}

/// The keys an entry should stand under.
#[derive(Default)]
struct Keys {
    keys: KeySet,
    scratch: Vec<u8>,
}

impl Keys {
    fn of<E: Engine>(
        &mut self,
        snapshot: &Snapshot<E>,
        indexes: &AttributeIndexes,
        kind: Option<IndexKind>,
        id: EntryId,
        side: &Side<'_>,
    ) -> std::result::Result<&KeySet, crate::entry::Damaged> {
        let (schema, attributes) = (snapshot.schema(), &snapshot.state().attributes);
        let Keys { keys, scratch } = self;
        match kind {
            Some(kind) => index_keys(schema, attributes, indexes, kind, side, keys, scratch)?,
            None => ordering_keys(schema, attributes, indexes, id, side, keys, scratch)?,
        }
        Ok(keys)
    }
}

/// Checks that entries are found under their names and hang together.
#[derive(Default)]
struct NameCheck {
    superiors: DnCache,
    normal: NormalDn,
    key: Vec<u8>,
}

impl NameCheck {
    fn check<E: Engine>(
        &mut self,
        snapshot: &Snapshot<E>,
        id: EntryId,
        entry: &Entry<'_>,
        report: &mut CheckReport,
    ) -> Result<()> {
        let (view, parent) = (snapshot.view(), entry.parent());
        match self.superiors.superior(view, parent) {
            Err(Error::Engine(engine::Error::Corrupt(problem))) => {
                report.problem(format!("entry {id}: {problem}"));
            }
            Err(error @ Error::NameTooLong(_)) => {
                report.problem(format!("entry {id}: {error}"));
            }
            _ => {}
        }
        let Ok(rdn) = entry.rdn() else {
            report.problem(format!("entry {id}: its RDN is not UTF-8"));
            return Ok(());
        };
        if let Err(error) = self.normal.parse(snapshot.schema(), rdn.as_bytes()) {
            report.problem(format!(
                "entry {id}: its RDN '{rdn}' has no normal form: {error}"
            ));
            return Ok(());
        }
        let contexts = &snapshot.state().contexts;
        let mut contexts = contexts.iter();
        if parent.is_root()
            && !contexts.any(|context| context.normal == self.normal && context.root == parent)
        {
            report.problem(format!(
                "entry {id}: '{rdn}' is no naming context but has no parent"
            ));
        }
        name_key(parent, self.normal.bytes(), &mut self.key);
        match view
            .get(Table::Name, &self.key)?
            .map(|value| Child::from_value(&value))
        {
            None => report.problem(format!("entry {id} ('{rdn}') is not found under its name")),
            Some(Ok(child))
                if child
                    == (Child {
                        id,
                        flags: entry.flags(),
                    }) => {}
            Some(Ok(child)) => report.problem(format!(
                "the name of entry {id} ('{rdn}') leads to entry {} with flags {}",
                child.id,
                child.flags.to_byte()
            )),
            Some(Err(error)) => report.problem(format!("entry {id}: {error}")),
        }
        Ok(())
    }
}
