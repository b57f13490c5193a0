//! The second half of an import into an empty directory: every table built bottom-up from sorted input.
//!
//! Entries come in the order of their DNs, so a parent comes right before what is below it: ids are counted up along
//! the way (in each store), and a stack of the entries above tells each its parent's id. The table of entries is
//! written on the way; names and index keys are sorted once more, by the table they belong to and their key in it. What
//! goes through that sort for an index is not each posting but, for each key of a batch of entries, the ids of the
//! batch that have it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::Attributes;
use sapwood_store::sort::{Sorted, Sorter};

use super::creation_stamps::{CreationStamps, Spelled};
use super::gathered::Gathered;
use super::ordered::{Next as NextEntry, Ordered};
use super::posting_batch::PostingBatch;
use super::{IMPORT_MEMORY_BYTES_MIN, ImportPhase, Shared, sort_failed};
use crate::attributes::AttributeTable;
use crate::changes::clock::HybridClock;
use crate::changes::{Csn, watermark};
use crate::definition;
use crate::directory::feed_generation;
use crate::engine::{
    self, Bundle, Engine, EntryId, GRAM_BYTES, IndexKind, Load, Loader, Read, StoreSet, Table,
    Ticket, Verdict, Write, take_escaped, take_varint,
};
use crate::entry::{Damaged, Entry, EntryFlags, set_parent};
use crate::error::{Error, Result};
use crate::indexes::{AttributeIndexes, Completeness};
use crate::large::{self, LargeValues, Split};
use crate::names::{Child, name_key};
use crate::reindex::{KINDS, KeySet, Side, each_index_key, of_type, ordering_keys};
use crate::schema::Schema;
use crate::state::State;
use crate::update::Prepared;

/// Entries handed to an index worker at a time: the more, the fewer records go through the sort.
pub(super) const BATCH_ENTRIES: usize = 4096;
/// Bytes of entries after which a batch is handed over sooner.
const BATCH_BYTES: usize = 4 << 20;
/// Batches that wait for each index worker.
const BATCHES_WAITING: usize = 1;

/// Where entries in the order of the tree come from.
pub(super) enum Source {
    Sorted(Sorted),
    Ordered(Ordered),
}

impl Source {
    /// The next entry: its key and value for the sort.
    fn next<E: Engine>(&mut self, shared: &Shared<'_, E>) -> Result<Option<(&[u8], &[u8])>> {
        match self {
            Source::Sorted(sorted) => sorted.next().map_err(sort_failed),
            Source::Ordered(ordered) => match ordered.next()? {
                _ if shared.is_out_of_order() => Err(shared.out_of_order()),
                NextEntry::Record(key, value) => Ok(Some((key, value))),
                NextEntry::End => Ok(None),
                NextEntry::OutOfOrder => Err(shared.out_of_order()),
            },
        }
    }

    /// How many ids to take before it is known how many entries there are.
    fn entries_max<E: Engine>(&self, shared: &Shared<'_, E>) -> u64 {
        match self {
            Source::Sorted(_) => shared.entries_read.load(Relaxed),
            // What is not used is given back.
            Source::Ordered(_) => 1 << 40,
        }
    }
}

/// Entries become the tables of an empty directory.
pub(super) fn build<E: Engine>(shared: &Shared<'_, E>, source: Source) -> Result<()> {
    let mut stamps = CreationStamps::new(shared, Spelled::Indexed)?;
    shared.end_numbering();
    let is_ordered = matches!(source, Source::Ordered(_));
    let (first, csn) = reserve(shared, source.entries_max(shared))?;
    stamps.number_from(csn);
    // Attribute numbers given while reading are visible now, since the reservation came after them.
    let state = shared.directory.snapshot()?.state().clone();
    let mut build = Build {
        shared,
        state: &state,
        source,
        next: first.clone(),
        stamps,
        failure: None,
    };
    let loaded = shared.directory.engine().load(&mut build);
    if is_ordered {
        give_back_ids(shared, if loaded.is_ok() { &build.next } else { &first })?;
    }
    if let Some(failure) = build.failure {
        return Err(failure);
    }
    loaded?;
    let directory = shared.directory;
    let now_micros = directory.options().clock.now_micros();
    directory.clock().receive(build.stamps.latest(), now_micros);
    watermark::record_clock(directory.engine(), directory.clock())?;
    Ok(())
}

/// Takes ids and change sequence numbers for all entries in each store before the first is written, so that none is
/// ever given twice: the first ids by store, and the first number. Since a load leaves nothing to the change feed, it
/// also begins a new generation.
fn reserve<E: Engine>(shared: &Shared<'_, E>, entries: u64) -> Result<(Vec<EntryId>, Csn)> {
    struct Reserve<'c> {
        entries: u64,
        stores: usize,
        generation: u64,
        clock: &'c HybridClock,
        first: Vec<EntryId>,
    }
    impl Bundle for Reserve<'_> {
        fn operations(&self) -> usize {
            1
        }
        fn stores(&self) -> StoreSet {
            StoreSet::all(self.stores)
        }
        fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            self.first.clear();
            Ok(())
        }
        fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
            for store in 0..self.stores as u16 {
                let first = engine::ids::next(txn, store)?;
                engine::ids::put_next(txn, EntryId(first.0 + self.entries))?;
                self.first.push(first);
            }
            definition::put_feed_generation(txn, self.generation)?;
            Ok(Verdict::Keep)
        }
        fn finish<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
            watermark::put_clock(txn, self.clock, self.stores)
        }
    }
    let directory = shared.directory;
    let options = directory.options();
    let first = directory
        .clock()
        .next_of_many(options.clock.now_micros(), entries);
    let mut reserve = Reserve {
        entries,
        stores: directory.stores(),
        generation: feed_generation::of_uuid(options.uuids.uuid()),
        clock: directory.clock(),
        first: Vec::new(),
    };
    if let Some(ticket) = directory.engine().write(&mut reserve)? {
        ticket.wait()?;
    }
    Ok((reserve.first, first))
}

/// Gives back ids that were taken: the next one by store.
fn give_back_ids<E: Engine>(shared: &Shared<'_, E>, next: &[EntryId]) -> Result<()> {
    struct GiveBack<'n>(&'n [EntryId]);
    impl Bundle for GiveBack<'_> {
        fn operations(&self) -> usize {
            1
        }
        fn stores(&self) -> StoreSet {
            StoreSet::all(self.0.len())
        }
        fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }
        fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
            self.0
                .iter()
                .try_for_each(|next| engine::ids::put_next(txn, *next))?;
            Ok(Verdict::Keep)
        }
        fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }
    }
    if let Some(ticket) = shared.directory.engine().write(&mut GiveBack(next))? {
        ticket.wait()?;
    }
    Ok(())
}

struct Build<'b, E: Engine> {
    shared: &'b Shared<'b, E>,
    state: &'b State,
    source: Source,
    /// The next id, by store.
    next: Vec<EntryId>,
    stamps: CreationStamps<'b, E>,
    /// What failed here, when it is not the engine.
    failure: Option<Error>,
}

/// The tables that come out of the second sort, in the order of their tags.
#[derive(Clone, Copy)]
enum Later<'s> {
    Name,
    Values,
    Index(&'s AttributeIndexes, IndexKind),
    Order(&'s AttributeIndexes),
}

fn later_tables(state: &State) -> Vec<Later<'_>> {
    let mut tables = vec![Later::Name, Later::Values];
    for indexes in state.indexes.iter() {
        for kind in KINDS {
            if indexes.completeness(kind) != Completeness::Absent {
                tables.push(Later::Index(indexes, kind));
            }
        }
        if indexes.ordering != Completeness::Absent {
            tables.push(Later::Order(indexes));
        }
    }
    tables
}

/// The positions of these tables among those of the second sort.
const NAME: usize = 0;
const VALUES: usize = 1;

/// What the keys of a table begin with in the second sort.
pub(super) fn tag(table: usize) -> [u8; 2] {
    (table as u16).to_be_bytes()
}

pub(super) fn tagged(out: &mut Vec<u8>, table: usize, key: &[u8]) {
    out.clear();
    out.extend_from_slice(&tag(table));
    out.extend_from_slice(key);
}

/// Entries on their way to an index worker.
#[derive(Default)]
struct Batch {
    /// Id, then the ends of its record and of the spelled operational attributes in `bytes`.
    entries: Vec<(EntryId, usize, usize)>,
    bytes: Vec<u8>,
}

impl Batch {
    fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    fn push(&mut self, id: EntryId, record: &[u8], operational: &[u8]) {
        self.bytes.extend_from_slice(record);
        let end = self.bytes.len();
        self.bytes.extend_from_slice(operational);
        self.entries.push((id, end, self.bytes.len()));
    }
}

impl<E: Engine> Load for Build<'_, E> {
    fn run<L: Loader>(&mut self, loader: &mut L) -> engine::Result<()> {
        let result = self.tables(loader);
        result.map_err(|error| match error {
            Error::Engine(error) => error,
            other => {
                let text = other.to_string();
                self.failure = Some(other);
                engine::Error::Unavailable(text)
            }
        })
    }
}

impl<E: Engine> Build<'_, E> {
    fn tables<L: Loader>(&mut self, loader: &mut L) -> Result<()> {
        let options = self.shared.options;
        let tables = later_tables(self.state);
        let threads = options.threads.max(1);
        let memory = options.memory_bytes.max(IMPORT_MEMORY_BYTES_MIN);
        let memory = match self.source {
            // The other half merges the entries.
            Source::Sorted(_) => memory / 2,
            Source::Ordered(_) => memory,
        };
        let sorter = Mutex::new(Sorter::new(&options.folder, memory, 1));
        let (send, receive) = sync_channel::<Batch>(threads * BATCHES_WAITING);
        let receive = Arc::new(Mutex::new(receive));
        // Memory that is given back and fetched again for each batch takes longer than the batch.
        let (give_back, emptied) = channel::<Batch>();
        let (schema, state) = (&self.state.schema, self.state);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    let worker = IndexWorker {
                        schema,
                        state,
                        tables: &tables,
                        sorter: &sorter,
                    };
                    let (receive, give_back) = (receive.clone(), give_back.clone());
                    scope.spawn(move || worker.run(&receive, &give_back))
                })
                .collect();
            // Only the workers hold it, so that sending fails when they are gone.
            drop(receive);
            let mut failure = None;
            let written = loader.table(Table::Entry, |push| {
                let mut send_batch = |batch: &mut Batch| {
                    let empty = emptied.try_recv().unwrap_or_default();
                    send.send(std::mem::replace(batch, empty)).is_ok()
                };
                let done = self.entries(push, &sorter, &mut send_batch);
                done.map_err(|error| match error {
                    Error::Engine(error) => error,
                    other => {
                        let text = other.to_string();
                        failure = Some(other);
                        engine::Error::Unavailable(text)
                    }
                })
            });
            drop(send);
            for worker in workers {
                match worker.join() {
                    Ok(done) => done?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            Ok(written?)
        })?;
        let sorter = sorter.into_inner().unwrap_or_else(PoisonError::into_inner);
        let sorted = sorter.finish().map_err(sort_failed)?;
        let shared = self.shared;
        shared.index_records.store(sorted.records(), Relaxed);
        shared.progress(ImportPhase::Index);
        later(loader, &tables, sorted, &|written| {
            shared.index_records_written.store(written, Relaxed);
            shared.progress(ImportPhase::Index);
        })
    }

    /// Gives ids and parents; entries without a parent, and second ones of a DN, are rejected.
    fn entries(
        &mut self,
        push: &mut engine::PushRecord<'_>,
        sorter: &Mutex<Sorter>,
        send: &mut impl FnMut(&mut Batch) -> bool,
    ) -> Result<()> {
        // The entries above, each with its normal DN.
        let mut above: Vec<(Vec<u8>, Child)> = Vec::new();
        let (mut normal, mut key) = (Vec::new(), Vec::new());
        let mut spare = Vec::new();
        let mut sorted = Gathered::default();
        let (mut record, mut operational) = (Vec::new(), Vec::new());
        // Ids of a batch follow each other: there is one for each store.
        let mut batches: Vec<Batch> = self.next.iter().map(|_| Batch::default()).collect();
        let batch_bytes_max = BATCH_BYTES / batches.len();
        // Which store a name is in.
        let view = self.shared.directory.waiting_snapshot()?;
        let schema = &self.state.schema;
        let is_ordered = matches!(self.source, Source::Ordered(_));
        // Their ids stand behind all others of the first store.
        let mut partitioned = BTreeMap::new();
        while let Some((sort_key, value)) = self.source.next(self.shared)? {
            normal.clear();
            normal.extend_from_slice(sort_key);
            let prepared = Prepared::read(value, &mut normal)
                .ok_or_else(|| Error::corrupt("a sorted entry cannot be read"))?;
            while above
                .last()
                .is_some_and(|(known, _)| !normal.starts_with(known))
            {
                spare.extend(above.pop().map(|(known, _)| known));
            }
            let last = above.last();
            if last.is_some_and(|(known, _)| *known == normal) {
                reject(
                    self.shared,
                    &prepared,
                    "there is an entry with this DN already",
                );
                continue;
            }
            let parent = match (prepared.rdn_start, last) {
                (0, _) => root_of(self.state, &normal),
                (start, Some((known, parent))) if *known == normal[..start] => {
                    if let Some(childless) = childless(parent.flags) {
                        let dn = Dn::parse(prepared.dn).ok().and_then(Dn::parent);
                        let dn = dn.unwrap_or_default();
                        reject(self.shared, &prepared, &format!("'{dn}' is {childless}"));
                        continue;
                    }
                    parent.id
                }
                // It may come later.
                _ if is_ordered => return Err(self.shared.out_of_order()),
                _ => {
                    let parent = Dn::parse(prepared.dn).ok().and_then(Dn::parent);
                    let parent = parent.unwrap_or_default();
                    let reason = format!("there is no entry '{parent}', which would be above it");
                    reject(self.shared, &prepared, &reason);
                    continue;
                }
            };
            name_key(parent, &normal[prepared.rdn_start..], &mut key);
            let store = usize::from(view.view().birthplace(&key));
            let mut known = self.state.partitioned.iter();
            let known = known.find(|parent| parent.normal.bytes() == normal);
            let id = match known {
                Some(parent) => parent.id,
                None => {
                    let id = self.next[store];
                    self.next[store] = EntryId(id.0 + 1);
                    id
                }
            };
            let user = prepared.records[0];
            record.clear();
            match split(schema, &self.state.attributes, id, user, &mut sorted)? {
                Some(split) => record.extend_from_slice(&split),
                None => record.extend_from_slice(user),
            }
            set_parent(&mut record, parent);
            self.stamps
                .record(&prepared, &mut operational, &mut record)?;
            if known.is_some() {
                partitioned.insert(id, (record.clone(), user.to_vec(), operational.clone()));
            } else {
                push(&id.to_key(), &record)?;
                batches[store].push(id, user, &operational);
            }
            let child = Child {
                id,
                flags: prepared.flags,
            };
            sorted.push_with(|out| {
                out.extend_from_slice(&tag(NAME));
                out.extend_from_slice(&key);
                let end_of_key = out.len();
                out.extend_from_slice(&child.to_value());
                end_of_key
            });
            // The name stays for those below, and its memory for the next.
            let mut known = spare.pop().unwrap_or_default();
            std::mem::swap(&mut known, &mut normal);
            above.push((known, child));
            self.shared.entries_written.fetch_add(1, Relaxed);
            let batch = &mut batches[store];
            if batch.entries.len() == BATCH_ENTRIES || batch.bytes.len() >= batch_bytes_max {
                if !is_ordered {
                    self.shared.progress(ImportPhase::Write);
                }
                sorted.flush(sorter)?;
                if !send(batch) {
                    // The workers have failed and say why.
                    return Ok(());
                }
            }
        }
        for (id, (record, user, operational)) in partitioned {
            push(&id.to_key(), &record)?;
            let mut batch = Batch::default();
            batch.push(id, &user, &operational);
            batches.push(batch);
        }
        sorted.flush(sorter)?;
        // If the workers have failed, they say why.
        let _ = batches.iter_mut().all(send);
        Ok(())
    }
}

/// The record of an entry without its large attributes, if it has some; their values go to the second sort.
fn split(
    schema: &Schema,
    attributes: &AttributeTable,
    id: EntryId,
    record: &[u8],
    sorted: &mut Gathered,
) -> Result<Option<Vec<u8>>> {
    let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
    let entry = Entry::new(record).map_err(damaged)?;
    let split = large::split(schema, attributes, &entry, |_| false).map_err(damaged)?;
    let Some(Split { record, large }) = split else {
        return Ok(None);
    };
    for LargeValues { number, rows } in &large {
        for (form, value) in rows {
            sorted.push_with(|out| {
                out.extend_from_slice(&tag(VALUES));
                out.extend_from_slice(&large::key(id, *number, form));
                let end_of_key = out.len();
                out.extend_from_slice(value);
                end_of_key
            });
        }
    }
    Ok(Some(record))
}

/// What an entry with these flags is that has no children.
fn childless(flags: EntryFlags) -> Option<&'static str> {
    if flags.is_alias() {
        Some("an alias; aliases have no children")
    } else if flags.is_subentry() {
        Some("a subentry; subentries have no children (RFC 3672 §1)")
    } else {
        None
    }
}

/// The parent of a naming context's own entry.
fn root_of(state: &State, normal: &[u8]) -> EntryId {
    let mut contexts = state.contexts.iter();
    let context = contexts.find(|context| context.normal.bytes() == normal);
    context.map_or(EntryId::ROOT, |context| context.root)
}

/// Records of the second sort between two calls about progress.
const PROGRESS_RECORDS: u64 = 1 << 16;

/// Builds the tables of the second sort; `progress` is told how many of its records are dealt with.
fn later<L: Loader>(
    loader: &mut L,
    tables: &[Later<'_>],
    mut sorted: Sorted,
    progress: &dyn Fn(u64),
) -> Result<()> {
    let mut next = Next {
        is_there: false,
        key: Vec::new(),
        value: Vec::new(),
        taken: 0,
        progress,
    };
    next.advance(&mut sorted)?;
    for (at, table) in tables.iter().enumerate() {
        let tag = tag(at);
        let plain = match table {
            Later::Name => Table::Name,
            Later::Values => Table::Values,
            Later::Order(indexes) => indexes.order_table(),
            Later::Index(indexes, kind) => {
                let mut plain = Vec::new();
                loader.index(indexes.index(*kind), |post| {
                    let damaged =
                        || engine::Error::Corrupt("a sorted index key cannot be read".into());
                    while let Some(key) = next.key_of(tag) {
                        plain.clear();
                        let first = take_escaped(key, &mut plain).and_then(EntryId::from_key);
                        let mut id = first.ok_or_else(damaged)?;
                        post(&plain, id)?;
                        let mut distances = next.value.as_slice();
                        while !distances.is_empty() {
                            let distance = take_varint(&mut distances).ok_or_else(damaged)?;
                            id = EntryId(id.0.checked_add(distance).ok_or_else(damaged)?);
                            post(&plain, id)?;
                        }
                        next.advance(&mut sorted)?;
                    }
                    Ok(())
                })?;
                continue;
            }
        };
        loader.table(plain, |push| {
            while let Some(key) = next.key_of(tag) {
                push(key, &next.value)?;
                next.advance(&mut sorted)?;
            }
            Ok(())
        })?;
    }
    progress(next.taken);
    Ok(())
}

/// The next record of the second sort.
struct Next<'p> {
    is_there: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    /// How many records there have been.
    taken: u64,
    progress: &'p dyn Fn(u64),
}

impl Next<'_> {
    fn advance(&mut self, sorted: &mut Sorted) -> engine::Result<()> {
        self.key.clear();
        self.value.clear();
        let next = sorted.next()?;
        self.is_there = next.is_some();
        self.taken += u64::from(self.is_there);
        if self.taken.is_multiple_of(PROGRESS_RECORDS) {
            (self.progress)(self.taken);
        }
        if let Some((key, value)) = next {
            self.key.extend_from_slice(key);
            self.value.extend_from_slice(value);
        }
        Ok(())
    }

    /// The key without its tag, if that is `tag`.
    fn key_of(&self, tag: [u8; 2]) -> Option<&[u8]> {
        if self.is_there {
            self.key.strip_prefix(&tag)
        } else {
            None
        }
    }
}

/// One thread that works out index keys.
struct IndexWorker<'w> {
    schema: &'w Schema,
    state: &'w State,
    tables: &'w [Later<'w>],
    sorter: &'w Mutex<Sorter>,
}

impl IndexWorker<'_> {
    fn run(self, batches: &Mutex<Receiver<Batch>>, emptied: &Sender<Batch>) -> Result<()> {
        let mut postings = PostingBatch::default();
        let (mut keys, mut scratch) = (KeySet::default(), Vec::new());
        loop {
            let next = batches
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv();
            let Ok(mut batch) = next else {
                return Ok(());
            };
            let mut start = 0;
            let first = batch.entries.first();
            postings.begin(first.map_or(EntryId::ROOT, |(first, ..)| *first));
            for &(id, middle, end) in &batch.entries {
                let damaged = |error| Error::corrupt(format!("entry {id}: {error}"));
                let user = Entry::new(&batch.bytes[start..middle]).map_err(damaged)?;
                let operational = Entry::new(&batch.bytes[middle..end]).map_err(damaged)?;
                start = end;
                let side = Side::of([user, operational]);
                self.keys(id, &side, &mut keys, &mut scratch, &mut postings)
                    .map_err(damaged)?;
            }
            batch.clear();
            // Nobody wants it back once all entries are written.
            let _ = emptied.send(batch);
            postings.sort();
            let mut sorter = self.sorter.lock().unwrap_or_else(PoisonError::into_inner);
            postings.drain(|key, value| sorter.push(key, value).map_err(sort_failed))?;
        }
    }

    /// Adds the tagged keys of one entry to `postings`.
    fn keys(
        &self,
        id: EntryId,
        side: &Side<'_>,
        keys: &mut KeySet,
        scratch: &mut Vec<u8>,
        postings: &mut PostingBatch,
    ) -> std::result::Result<(), Damaged> {
        let attributes = &self.state.attributes;
        for (at, table) in self.tables.iter().enumerate() {
            match table {
                Later::Name | Later::Values => {}
                Later::Index(indexes, kind) => {
                    let only = only_attribute(attributes, indexes, side)?;
                    if *kind != IndexKind::Substring && postings.repeat(at, only, id) {
                        continue;
                    }
                    each_index_key(
                        self.schema,
                        attributes,
                        indexes,
                        *kind,
                        side,
                        scratch,
                        |key| match <[u8; GRAM_BYTES]>::try_from(key) {
                            Ok(gram) if *kind == IndexKind::Substring => {
                                postings.post_gram(at, gram, id);
                            }
                            _ => postings.post(at, key, id),
                        },
                    )?;
                }
                Later::Order(indexes) => {
                    ordering_keys(self.schema, attributes, indexes, id, side, keys, scratch)?;
                    keys.iter().for_each(|key| postings.record(at, key));
                }
            }
        }
        Ok(())
    }
}

/// The only attribute of an indexed type that an entry has: all its keys come from there.
fn only_attribute<'s>(
    attributes: &AttributeTable,
    indexed: &AttributeIndexes,
    side: &Side<'s>,
) -> std::result::Result<Option<&'s [u8]>, Damaged> {
    let (mut only, mut count) = (None, 0);
    of_type(attributes, indexed.attribute_type, side, |stored| {
        only = Some(stored.ber());
        count += 1;
    })?;
    Ok(only.filter(|_| count == 1))
}

/// Rejects an entry that was read; its text is put together again.
pub(super) fn reject<E: Engine>(shared: &Shared<'_, E>, prepared: &Prepared<'_>, reason: &str) {
    let (_, format) = shared.source(prepared.source);
    let records = prepared.records.into_iter().filter_map(|record| {
        let entry = Entry::new(record).ok()?;
        Some(Attributes::from_checked(entry.ber()))
    });
    let mut text = Vec::new();
    format.put_entry(prepared.dn, records, &mut text);
    shared.reject(prepared.source, prepared.line, reason, &text);
}
