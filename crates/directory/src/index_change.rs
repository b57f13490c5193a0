//! Indexes added, dropped and listed, also while the directory is in use.
//!
//! An index is *building* first: from then on updates, of whichever process, keep it. Then the entries there are get
//! filed, some hundred to a transaction, each as it is in that transaction; adding what is there already changes
//! nothing, so that updates and the filing need not know of each other. Last it is *complete*, and searches use it. A
//! filing that was interrupted is done again from the start. An index that is dropped and begun again meanwhile is
//! another one: the commit that began it tells them apart.

use std::ops::Bound;
use std::sync::mpsc::SyncSender;

use crate::Directory;
use crate::definition::indexes::{Build, begin, building, drop_from, posting_kind};
use crate::definition::{self, place_of};
use crate::engine::{
    self, Bundle, Cursor, Direction, Engine, EntryId, Index, IndexKind, Range, StoreSet, Table,
    TableName, Ticket, Verdict, Write,
};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::index_definition::IndexDefinition;
use crate::indexes::Completeness;
use crate::large;
use crate::operational::{self, Vocabulary};
use crate::reindex::{KeySet, Side, index_keys, ordering_keys};
use crate::schema::Schema;
use crate::state::State;
use crate::update::rules::RuleSet;

/// Entries filed in one transaction.
const FILED_ENTRIES: u64 = 1000;
/// The same with so many values of large attributes; one entry has as many as it has.
const FILED_VALUES: usize = 10_000;

/// An index as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexStatus {
    /// The attribute type's name.
    pub attribute: String,
    /// `eq`, `pres`, `sub`, `approx` or `ord`.
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
            let attribute = snapshot.schema().type_of(indexes.attribute_type).name();
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
                ("approx", indexes.approximate, of(IndexKind::Approximate)),
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
        let begun = self.change_definition(Step::Begin(wanted))?.builds;
        let goes_on = &mut |filed| {
            progress(filed);
            true
        };
        if self.build(&begun, goes_on)? < begun.len() {
            let text = "the index was dropped while it was being built";
            return Err(Error::State(text.into()));
        }
        Ok(())
    }

    /// Files the entries there are in the indexes that are being built, and completes these, as long as `goes_on`,
    /// which is told how many entries are filed, says so.
    ///
    /// # Errors
    /// When the engine fails. The next call does all of it again.
    pub fn build_indexes(&self, mut goes_on: impl FnMut(u64) -> bool) -> Result<()> {
        let building = self.change_definition(Step::Look)?.builds;
        self.build(&building, &mut goes_on).map(drop)
    }

    /// From now on tells this channel, which need not hold more than one message, of updates that begin indexes:
    /// [`Directory::build_indexes`] is to be called then.
    pub fn set_index_builder(&self, woken: SyncSender<()>) {
        self.builder().set(woken);
    }

    /// Files entries in new indexes, and completes these; how many are complete.
    fn build(&self, builds: &[Build], goes_on: &mut dyn FnMut(u64) -> bool) -> Result<usize> {
        if builds.is_empty() {
            return Ok(0);
        }
        let mut file = File {
            schema: &self.options().schema,
            builds,
            state: State::default(),
            after: None,
            end: None,
            filed: 0,
            entries_max: FILED_ENTRIES,
            run: FiledInRun::default(),
            is_spread: self.stores() > 1,
            is_done: false,
        };
        while !file.is_done {
            match self.engine().write(&mut file) {
                Ok(Some(ticket)) => drop(ticket.wait()?),
                Ok(None) => {}
                // The engine takes fewer at a time.
                Err(engine::Error::TooLarge { .. }) if file.entries_max > 1 => {
                    file.entries_max /= 2;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if !goes_on(file.filed) {
                return Ok(0);
            }
        }
        self.settle(StoreSet::all(self.stores()))?;
        let completed = self.change_definition(Step::Complete(builds))?;
        Ok(completed.builds.len())
    }

    /// Drops indexes; whether there was one of them.
    ///
    /// # Errors
    /// [`Error::Config`] for the two that every directory keeps, and for an attribute the schema does not have.
    pub fn drop_index(&self, unwanted: &IndexDefinition) -> Result<bool> {
        Ok(self.change_definition(Step::Drop(unwanted))?.dropped > 0)
    }

    /// Changes the definition in a transaction of its own, durable on return.
    fn change_definition<'s>(&'s self, step: Step<'s>) -> Result<Change<'s>> {
        let mut change = Change {
            schema: &self.options().schema,
            step,
            builds: Vec::new(),
            dropped: 0,
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

/// A change of the definition.
#[derive(Clone, Copy)]
enum Step<'s> {
    /// None: which indexes are being built?
    Look,
    /// Indexes come into being, empty.
    Begin(&'s IndexDefinition),
    /// Indexes are complete, as far as they are there.
    Complete(&'s [Build]),
    /// Indexes go.
    Drop(&'s IndexDefinition),
}

struct Change<'s> {
    schema: &'s Schema,
    step: Step<'s>,
    /// The indexes that are being built, were begun or are complete.
    builds: Vec<Build>,
    /// How many were dropped.
    dropped: usize,
    failure: Option<Error>,
}

impl Change<'_> {
    fn make<T: Write>(&mut self, txn: &mut T) -> Result<()> {
        let mut state = definition::load(txn, self.schema)?;
        let schema = &state.schema.clone();
        match self.step {
            Step::Look => {
                self.builds = building(&state);
                return Ok(());
            }
            Step::Begin(wanted) => self.builds = begin(txn, schema, &mut state, wanted)?,
            Step::Complete(builds) => {
                let is_there = |build: &&Build| build.completeness(&state).is_some();
                self.builds = builds.iter().filter(is_there).copied().collect();
                for build in &self.builds {
                    let Some(number) = state.indexes.of(build.attribute_type).map(|of| of.number)
                    else {
                        continue;
                    };
                    let indexes = state.indexes.of_mut(build.attribute_type, number);
                    if let Some(place) = place_of(indexes, build.kind) {
                        *place = Completeness::Complete;
                    }
                }
            }
            Step::Drop(unwanted) => {
                let rules = RuleSet::new(schema, &state)?;
                let is_read = |state: &State, index| rules.reads(state, index);
                self.dropped = drop_from(txn, schema, &mut state, unwanted, is_read)?;
            }
        }
        Ok(definition::store(txn, &mut state)?)
    }
}

impl Bundle for Change<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        self.builds.clear();
        self.dropped = 0;
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
    builds: &'f [Build],
    state: State,
    /// The last entry that is filed.
    after: Option<EntryId>,
    /// Entries from here on came after the index began, so that it has them.
    end: Option<EntryId>,
    filed: u64,
    /// Entries filed in one transaction at most.
    entries_max: u64,
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
        let mut found: Vec<KeySet> = self.builds.iter().map(|_| KeySet::default()).collect();
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
            schema: &self.state.schema,
            attributes: &self.state.attributes,
        };
        let mut spelled = Vec::new();
        let is_wanted = |number| {
            let attributes = &self.state.attributes;
            let mut builds = self.builds.iter();
            builds.any(|build| {
                let numbers = attributes.numbers_of(build.attribute_type);
                numbers.contains(&number)
            })
        };
        let (mut last, mut filed, mut values) = (None, 0, 0);
        while filed < self.entries_max && values < FILED_VALUES {
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
            for (build, found) in self.builds.iter().zip(&mut found) {
                let Some(indexes) = self.state.indexes.of(build.attribute_type) else {
                    continue;
                };
                let attributes = &self.state.attributes;
                match posting_kind(build.kind) {
                    Some(kind) => index_keys(
                        &self.state.schema,
                        attributes,
                        indexes,
                        kind,
                        &side,
                        &mut keys,
                        &mut scratch,
                    ),
                    None => ordering_keys(
                        &self.state.schema,
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
                        if posting_kind(build.kind).is_some() {
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
        // Where ids are not given in the order in which they stand, as those of several stores, filing goes on until
        // nothing comes.
        if self.end.is_none() && !self.is_spread {
            self.end = txn.ids_end(0)?;
        }
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        let (mut found, last, entries) = self.gather(txn)?;
        self.run = FiledInRun { last, entries };
        if last.is_none() {
            return Ok(Verdict::Undo);
        }
        for (build, found) in self.builds.iter().zip(&mut found) {
            let Some(indexes) = self.state.indexes.of(build.attribute_type) else {
                continue;
            };
            if build.completeness(&self.state).is_none() {
                continue;
            }
            // Neighbours in the index one after the other.
            found.sort();
            for key in found.iter() {
                match (posting_kind(build.kind), key.split_last_chunk::<8>()) {
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
