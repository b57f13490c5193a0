//! Indexes added, dropped and listed, also while the directory is in use.
//!
//! An index is *building* first: from then on updates, of whichever process, keep it. Then the entries there are get
//! filed, some hundred to a transaction, each as it is in that transaction; adding what is there already changes
//! nothing, so that updates and the filing need not know of each other. Last it is *complete*, and searches use it. A
//! filing that was interrupted is done again from the start.

use std::ops::Bound;

use crate::Directory;
use crate::definition::{self, KIND_WORDS, place_of, set_index};
use crate::directory::IndexDefinition;
use crate::engine::{
    self, Bundle, Cursor, Direction, Engine, EntryId, Index, IndexKind, Range, StoreSet, Table,
    TableName, Ticket, Verdict, Write,
};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::indexes::{AttributeIndexes, Completeness};
use crate::large;
use crate::operational::{self, Vocabulary};
use crate::schema::{AttributeTypeId, Schema};
use crate::state::State;
use crate::update::reindex::{KeySet, Side, index_keys, ordering_keys};
use crate::update::rules::RuleSet;

/// Entries filed in one transaction.
const FILED_ENTRIES: usize = 1000;
/// The same with so many values of large attributes; one entry has as many as it has.
const FILED_VALUES: usize = 10_000;

/// An index as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexStatus {
    /// The attribute type's name.
    pub attribute: String,
    /// `eq`, `pres`, `sub` or `ord`.
    pub kind: &'static str,
    /// Whether searches use it; otherwise it is still being built.
    pub is_complete: bool,
    /// The table that it is kept in, in each store.
    pub table: TableName,
}

impl<E: Engine> Directory<E> {
    /// The indexes there are.
    pub fn indexes(&self) -> Result<Vec<IndexStatus>> {
        let snapshot = self.snapshot()?;
        let mut list = Vec::new();
        for indexes in snapshot.state().indexes.iter() {
            let attribute = self.schema().type_of(indexes.attribute_type).name();
            let of = |kind| {
                let index = Index {
                    attribute: indexes.number,
                    kind,
                };
                index.name()
            };
            for (kind, completeness, table) in [
                ("eq", indexes.equality, of(IndexKind::Equality)),
                ("pres", indexes.presence, of(IndexKind::Presence)),
                ("sub", indexes.substring, of(IndexKind::Substring)),
                ("ord", indexes.ordering, Table::Order(indexes.number).name()),
            ] {
                if completeness != Completeness::Absent {
                    let is_complete = completeness == Completeness::Complete;
                    list.push(IndexStatus {
                        attribute: attribute.to_owned(),
                        kind,
                        is_complete,
                        table,
                    });
                }
            }
        }
        Ok(list)
    }

    /// Adds indexes; those that are there already stay. `progress` is told how many entries are filed.
    ///
    /// # Errors
    /// [`Error::Config`] when the attribute cannot be indexed so; nothing is changed then.
    pub fn add_index(&self, wanted: &IndexDefinition, mut progress: impl FnMut(u64)) -> Result<()> {
        let schema = self.schema();
        let begun = self.change_definition(Step::Begin(wanted))?;
        if begun.kinds.is_empty() {
            return Ok(());
        }
        let mut file = File {
            schema,
            kinds: &begun.kinds,
            state: State::default(),
            after: None,
            end: None,
            filed: 0,
            run: FiledInRun::default(),
            is_spread: self.stores() > 1,
            is_done: false,
        };
        while !file.is_done {
            if let Some(ticket) = self.engine().write(&mut file)? {
                ticket.wait()?;
            }
            progress(file.filed);
        }
        self.settle(StoreSet::all(self.stores()))?;
        self.change_definition(Step::Complete(&begun.kinds))
            .map(drop)
    }

    /// Drops indexes; whether there was one of them.
    ///
    /// # Errors
    /// [`Error::Config`] for the two that every directory keeps, and for an attribute the schema does not have.
    pub fn drop_index(&self, unwanted: &IndexDefinition) -> Result<bool> {
        Ok(!self
            .change_definition(Step::Drop(unwanted))?
            .kinds
            .is_empty())
    }

    /// Changes the definition in a transaction of its own, durable on return.
    fn change_definition<'s>(&'s self, step: Step<'s>) -> Result<Change<'s>> {
        let mut change = Change {
            schema: self.schema(),
            rules: self.rules(),
            step,
            kinds: Vec::new(),
            failure: None,
        };
        let ticket = self.engine().write(&mut change)?;
        if let Some(failure) = change.failure.take() {
            return Err(failure);
        }
        if let Some(ticket) = ticket {
            ticket.wait()?;
        }
        Ok(change)
    }
}

/// One index: a type and the word for the kind.
type TypeAndKind = (AttributeTypeId, &'static str);

/// A change of the definition.
#[derive(Clone, Copy)]
enum Step<'s> {
    /// Indexes come into being, empty.
    Begin(&'s IndexDefinition),
    /// Indexes are complete.
    Complete(&'s [TypeAndKind]),
    /// Indexes go.
    Drop(&'s IndexDefinition),
}

struct Change<'s> {
    schema: &'s Schema,
    rules: &'s RuleSet,
    step: Step<'s>,
    /// The indexes it is about: those begun or dropped.
    kinds: Vec<TypeAndKind>,
    failure: Option<Error>,
}

impl Change<'_> {
    fn make<T: Write>(&mut self, txn: &mut T) -> Result<()> {
        let schema = self.schema;
        let mut state = definition::load(txn, schema)?;
        match self.step {
            Step::Begin(wanted) => self.begin_indexes(txn, &mut state, wanted)?,
            Step::Complete(kinds) => {
                for (known, kind) in kinds {
                    let dropped =
                        || Error::State("the index was dropped while it was being built".into());
                    let number = state
                        .indexes
                        .of(*known)
                        .map(|indexes| indexes.number)
                        .ok_or_else(dropped)?;
                    let place = place_of(state.indexes.of_mut(*known, number), kind);
                    let place = place
                        .filter(|place| **place != Completeness::Absent)
                        .ok_or_else(dropped)?;
                    *place = Completeness::Complete;
                }
            }
            Step::Drop(unwanted) => self.drop_indexes(txn, &mut state, unwanted)?,
        }
        Ok(definition::store(txn, schema, &mut state)?)
    }

    fn begin_indexes<T: Write>(
        &mut self,
        txn: &mut T,
        state: &mut State,
        wanted: &IndexDefinition,
    ) -> Result<()> {
        let attribute = wanted.attribute.as_str();
        for (kind, is_wanted) in wanted.kinds() {
            let known = self.schema.attribute_type(attribute.as_bytes());
            let indexes = known.and_then(|known| state.indexes.of(known.id()));
            let is_complete = indexes
                .is_some_and(|indexes| completeness(indexes, kind) == Completeness::Complete);
            if is_wanted && !is_complete {
                let known = set_index(
                    txn,
                    self.schema,
                    state,
                    attribute,
                    kind,
                    Completeness::Building,
                )?;
                self.kinds.push((known, kind));
            }
        }
        Ok(())
    }

    fn drop_indexes<T: Write>(
        &mut self,
        txn: &mut T,
        state: &mut State,
        unwanted: &IndexDefinition,
    ) -> Result<()> {
        let known = self.schema.attribute_type(unwanted.attribute.as_bytes());
        let known = known.ok_or_else(|| {
            Error::Config(format!("the schema does not define {}", unwanted.attribute))
        })?;
        if unwanted.equality && definition::ALWAYS_INDEXED.contains(&known.name()) {
            return Err(Error::Config(format!(
                "every directory keeps the index {} eq",
                known.name()
            )));
        }
        let Some(number) = state.indexes.of(known.id()).map(|indexes| indexes.number) else {
            return Ok(());
        };
        let kind = IndexKind::Equality;
        let attribute = number;
        if unwanted.equality && self.rules.reads(state, Index { attribute, kind }) {
            return Err(Error::Config(format!(
                "a rule needs the index {0} eq: take {0} out of the [rules] of sapwood.toml first",
                known.name()
            )));
        }
        let indexes = state.indexes.of_mut(known.id(), number);
        for (kind, is_unwanted) in unwanted.kinds() {
            if !is_unwanted || completeness(indexes, kind) == Completeness::Absent {
                continue;
            }
            match posting_kind(kind) {
                Some(kind) => txn.drop_index(indexes.index(kind))?,
                None => txn.drop_table(indexes.order_table())?,
            };
            if let Some(place) = place_of(indexes, kind) {
                *place = Completeness::Absent;
            }
            self.kinds.push((known.id(), kind));
        }
        Ok(())
    }
}

impl Bundle for Change<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        self.kinds.clear();
        self.failure = None;
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        Error::verdict(self.make(txn), &mut self.failure)
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
}

/// Files the next entries in new indexes.
struct File<'f> {
    schema: &'f Schema,
    kinds: &'f [TypeAndKind],
    state: State,
    /// The last entry that is filed.
    after: Option<EntryId>,
    /// Entries from here on came after the index began, so that it has them.
    end: Option<EntryId>,
    filed: u64,
    /// What the last run has come to.
    run: FiledInRun,
    is_spread: bool,
    is_done: bool,
}

/// What a run has filed, which counts once it is settled.
#[derive(Clone, Copy, Debug, Default)]
struct FiledInRun {
    /// The last entry, if there was any.
    last: Option<EntryId>,
    entries: u64,
}

impl File<'_> {
    /// The keys of the next entries by index, and the last of these entries.
    fn gather<T: Write>(&self, txn: &T) -> Result<(Vec<KeySet>, Option<EntryId>, u64)> {
        let mut found: Vec<KeySet> = self.kinds.iter().map(|_| KeySet::default()).collect();
        let (mut keys, mut scratch) = (KeySet::default(), Vec::new());
        let after = self.after.map(EntryId::to_key);
        let from = after
            .as_ref()
            .map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_slice()));
        let end = self.end.map(EntryId::to_key);
        let to = end
            .as_ref()
            .map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_slice()));
        let mut entries = txn.scan(Table::Entry, Range { from, to }, Direction::Forward)?;
        let vocabulary = Vocabulary {
            schema: self.schema,
            attributes: &self.state.attributes,
        };
        let mut spelled = Vec::new();
        let is_wanted = |number| {
            let mut kinds = self.kinds.iter();
            kinds.any(|(known, _)| self.state.attributes.numbers_of(*known).contains(&number))
        };
        let (mut last, mut filed, mut values) = (None, 0, 0);
        while filed < FILED_ENTRIES as u64 && values < FILED_VALUES {
            let Some((key, record)) = entries.next()? else {
                break;
            };
            let id = EntryId::from_key(key)
                .ok_or_else(|| Error::corrupt("a key of the entry table is no id"))?;
            let damaged = |error| Error::corrupt(format!("entry {id}: {error}"));
            let user = Entry::new(record).map_err(damaged)?;
            let operational =
                operational::spell(&user, vocabulary, &mut spelled).map_err(damaged)?;
            let large = large::all_of(txn, id, &user, is_wanted)?;
            values += large.iter().map(|values| values.rows.len()).sum::<usize>();
            let side = Side {
                records: Some([user, operational]),
                large: &large,
            };
            for ((known, kind), found) in self.kinds.iter().zip(&mut found) {
                let Some(indexes) = self.state.indexes.of(*known) else {
                    continue;
                };
                let attributes = &self.state.attributes;
                match posting_kind(kind) {
                    Some(kind) => index_keys(
                        self.schema,
                        attributes,
                        indexes,
                        kind,
                        &side,
                        &mut keys,
                        &mut scratch,
                    ),
                    None => ordering_keys(
                        self.schema,
                        attributes,
                        indexes,
                        id,
                        &side,
                        &mut keys,
                        &mut scratch,
                    ),
                }
                .map_err(damaged)?;
                for key in keys.iter() {
                    found.push_with(|out| {
                        out.extend_from_slice(key);
                        // The key of an ordering table ends with the id already.
                        if posting_kind(kind).is_some() {
                            out.extend_from_slice(&id.to_key());
                        }
                    });
                }
            }
            last = Some(id);
            filed += 1;
        }
        Ok((found, last, filed))
    }
}

impl Bundle for File<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn stores(&self) -> StoreSet {
        StoreSet::one(self.after.map_or(0, EntryId::store))
    }

    fn begin<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        self.state = definition::load(txn, self.schema)?;
        // Ids of several stores are not given in the order in which they stand: there filing goes on until nothing
        // comes.
        if self.end.is_none() && !self.is_spread {
            self.end = Some(definition::next_id(txn, 0)?);
        }
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        let (mut found, last, entries) = self.gather(txn)?;
        self.run = FiledInRun { last, entries };
        if last.is_none() {
            return Ok(Verdict::Undo);
        }
        for ((known, kind), found) in self.kinds.iter().zip(&mut found) {
            let Some(indexes) = self.state.indexes.of(*known) else {
                continue;
            };
            if completeness(indexes, kind) == Completeness::Absent {
                continue;
            }
            // Neighbours in the index one after the other.
            found.sort();
            for key in found.iter() {
                match (posting_kind(kind), key.split_last_chunk::<8>()) {
                    (Some(kind), Some((key, id))) => {
                        txn.index_add(indexes.index(kind), key, EntryId(u64::from_be_bytes(*id)))?;
                    }
                    _ => txn.put(indexes.order_table(), key, &[])?,
                }
            }
        }
        Ok(Verdict::Keep)
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn settled(&mut self) {
        match self.run.last {
            Some(last) => {
                self.after = Some(last);
                self.filed += self.run.entries;
            }
            None => self.is_done = true,
        }
    }
}

/// The kind of posting list a word stands for; `None` for ordering, which is a table.
fn posting_kind(word: &str) -> Option<IndexKind> {
    KIND_WORDS
        .iter()
        .find(|(known, _)| *known == word)
        .and_then(|(_, kind)| *kind)
}

fn completeness(indexes: &AttributeIndexes, kind: &str) -> Completeness {
    match posting_kind(kind) {
        Some(kind) => indexes.completeness(kind),
        None => indexes.ordering,
    }
}
