//! An engine for tests that reads and runs bundles as an engine over a network would, on top of another engine.
//!
//! Nothing that a bundle asks for first is here: the answer is [`Error::NotHere`]. That operation is undone, and the
//! operations after it run only to find out what they want. All of it is fetched in one round, and the bundle runs
//! again. When it has succeeded it runs once more, as if its commit had met a conflict. Snapshots, too, answer
//! `NotHere` to the first read of a record, and at some of the records that a scan passes, until those are fetched. An
//! engine that [stops everywhere](Shy::stopping_everywhere) does so at each record, in bundles, too, to prove that
//! loops end wherever a remote engine stops. A directory must behave on this engine as on the one below.
//!
//! It differs from the embedded engine as a remote one does. Ids come from leases: they have gaps and, with several
//! writers, do not ascend. Estimates are wrong. Transactions may be bounded. It also records what a bundle has touched.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::footprint::Footprint;
use super::{
    AttributeNo, Bundle, Caps, CommitNo, Cursor, Direction, Engine, EntryId, Error, FeedPosition,
    Index, Load, Model, POSTINGS_FEW_MAX, Postings, Range, Read, Result, StoreSet, Table, Ticket,
    Verdict, Write,
};

pub(super) mod footprint;

/// A scan of a snapshot stops at about one in so many records at first.
const STOPS_AT: u64 = 4;
/// After so many fetches of a snapshot its scans stop half as often, and so on: a remote engine fetches a scan in
/// larger and larger pieces as it goes on.
const LARGER_AFTER: u64 = 16;
/// Ids that are leased at first; twice as many each time a bundle lacks more.
const LEASED_IDS: usize = 5;

/// An engine that is shy.
#[derive(Clone, Debug, Default)]
pub struct Shy<E = Model> {
    engine: E,
    fetches: Arc<AtomicU64>,
    shared: Arc<Shared>,
    /// Bytes that the operations of a bundle may write, if not as many as the engine below allows.
    transaction_bytes_max: Option<usize>,
    /// Whether it notes what bundles touch.
    notes_footprints: bool,
    /// Called where a snapshot is begun.
    begins: Option<fn()>,
    /// Whether scans stop at every record.
    stops_everywhere: bool,
}

/// What all bundles of an engine share.
#[derive(Debug, Default)]
struct Shared {
    /// Ids that are to be given yet.
    leased: Mutex<Vec<EntryId>>,
    /// What the last bundle has touched.
    footprint: Mutex<Footprint>,
}

impl<E: Engine> Shy<E> {
    /// On top of another engine.
    pub fn over(engine: E) -> Shy<E> {
        Shy {
            engine,
            fetches: Arc::default(),
            shared: Arc::default(),
            transaction_bytes_max: None,
            notes_footprints: false,
            begins: None,
            stops_everywhere: false,
        }
    }

    /// The same that calls `begins` wherever a snapshot is begun, which takes a round to another machine.
    pub fn telling_begins(self, begins: fn()) -> Shy<E> {
        Shy {
            begins: Some(begins),
            ..self
        }
    }

    /// The same whose scans stop at every record that they pass for the first time, those of bundles included.
    pub fn stopping_everywhere(self) -> Shy<E> {
        Shy {
            stops_everywhere: true,
            ..self
        }
    }

    /// The same that notes what bundles touch.
    pub fn noting_footprints(self) -> Shy<E> {
        Shy {
            notes_footprints: true,
            ..self
        }
    }

    /// The same whose bundles may write so many bytes.
    pub fn with_transaction_bytes_max(self, bytes: usize) -> Shy<E> {
        Shy {
            transaction_bytes_max: Some(bytes),
            ..self
        }
    }

    /// What the last bundle has touched in its last run, also in operations that were undone, if that is noted.
    pub fn footprint(&self) -> Footprint {
        lock(&self.shared.footprint).clone()
    }

    /// Has the engine below give ids for entries with names like this one, in a transaction of its own.
    fn lease(&self, name_key: &[u8], count: usize) -> Result<()> {
        let mut lease = Lease {
            name_key,
            stores: self.engine.stores(),
            count,
            ids: Vec::new(),
        };
        if let Some(ticket) = self.engine.write(&mut lease)? {
            ticket.wait()?;
        }
        lock(&self.shared.leased).extend(lease.ids);
        Ok(())
    }

    /// The engine below.
    pub fn below(&self) -> &E {
        &self.engine
    }

    /// How often something was fetched that reads of snapshots had wanted.
    pub fn fetches(&self) -> u64 {
        self.fetches.load(Ordering::Relaxed)
    }

    fn shy(&self, view: E::Snapshot, waits: bool) -> ShySnapshot<E::Snapshot> {
        if let Some(begins) = self.begins {
            begins();
        }
        let known = Known {
            stops_at: match self.stops_everywhere {
                true => 1,
                false => STOPS_AT,
            },
            waits,
            fetches: self.fetches.clone(),
            ..Known::default()
        };
        ShyView {
            view: Box::new(view),
            known: Box::new(known),
        }
    }
}

impl<E: Engine> Engine for Shy<E> {
    const REMOTE: bool = true;

    type Snapshot = ShySnapshot<E::Snapshot>;
    type Retired = E::Retired;
    type Ticket = E::Ticket;

    fn caps(&self) -> Caps {
        let caps = self.engine.caps();
        Caps {
            transaction_bytes_max: self
                .transaction_bytes_max
                .unwrap_or(caps.transaction_bytes_max),
            ..caps
        }
    }

    fn stores(&self) -> usize {
        self.engine.stores()
    }

    fn exceeds_memory(&self) -> bool {
        self.engine.exceeds_memory()
    }

    fn snapshot(&self) -> Result<Self::Snapshot> {
        Ok(self.shy(self.engine.snapshot()?, false))
    }

    fn waiting_snapshot(&self) -> Result<Self::Snapshot> {
        Ok(self.shy(self.engine.snapshot()?, true))
    }

    fn fetch(snapshot: &Self::Snapshot) -> Result<()> {
        if snapshot.known.fetch() {
            snapshot.known.fetches.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn end(snapshot: Self::Snapshot) -> E::Retired {
        E::end(*snapshot.view)
    }

    fn snapshot_after(&self, retired: E::Retired) -> Result<(Self::Snapshot, bool)> {
        let (view, is_same) = self.engine.snapshot_after(retired)?;
        Ok((self.shy(view, false), is_same))
    }

    fn write<B: Bundle>(&self, bundle: &mut B) -> Result<Option<E::Ticket>> {
        let known = Known {
            stops_at: u64::from(self.stops_everywhere),
            shared: self.shared.clone(),
            bytes_max: self.caps().transaction_bytes_max,
            notes_footprint: self.notes_footprints,
            ..Known::default()
        };
        let mut run = Run {
            bundle,
            known,
            is_rehearsal: true,
        };
        let mut leased = LEASED_IDS;
        loop {
            run.known.begin();
            let written = self.engine.write(&mut run);
            let is_rehearsed = match &written {
                // It wanted something, or was to run again.
                Err(Error::NotHere) => false,
                Err(_) => return written,
                Ok(_) => !run.known.wants() && !run.is_rehearsal,
            };
            if is_rehearsed {
                return written;
            }
            if let Some(name_key) = lock(&run.known.lacks_id).take() {
                self.lease(&name_key, leased)?;
                leased *= 2;
                continue;
            }
            if !run.known.fetch() {
                run.is_rehearsal = false;
            }
        }
    }

    fn load<L: Load>(&self, load: &mut L) -> Result<CommitNo> {
        self.engine.load(load)
    }

    fn settle(&self, stores: StoreSet) -> Result<()> {
        self.engine.settle(stores)
    }

    fn back_up(&self, dest: &Path) -> Result<()> {
        self.engine.back_up(dest)
    }

    fn position(&self, snapshot: &Self::Snapshot) -> FeedPosition {
        self.engine.position(&snapshot.view)
    }

    fn changes(
        &self,
        snapshot: &Self::Snapshot,
        after: &FeedPosition,
        each: impl FnMut(&FeedPosition, &[u8]) -> bool,
    ) -> Result<()> {
        self.engine.changes(&snapshot.view, after, each)
    }
}

/// What may be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Want {
    Record(Table, Vec<u8>),
    Records(Table),
    List(Index, Vec<u8>),
    Lists(Index),
    Posting(Index, EntryId),
    LastChanges,
}

/// What has been asked for so far.
#[derive(Debug, Default)]
pub struct Known {
    asked: Mutex<Asked>,
    /// Scans stop at about one in so many records at first; at none if it is zero, at all if it is one.
    stops_at: u64,
    /// How often something was fetched.
    fetched: AtomicU64,
    /// Whether all is fetched at once when it is asked for.
    waits: bool,
    /// Counts what [`Engine::fetch`] does.
    fetches: Arc<AtomicU64>,
    shared: Arc<Shared>,
    /// Ids that the run has given.
    given: Mutex<Vec<EntryId>>,
    /// The name of an entry that there was no id for.
    lacks_id: Mutex<Option<Vec<u8>>>,
    /// Bytes that operations have written, and may write.
    bytes: AtomicUsize,
    bytes_max: usize,
    notes_footprint: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has ids given that nobody uses yet.
struct Lease<'l> {
    name_key: &'l [u8],
    stores: usize,
    count: usize,
    ids: Vec<EntryId>,
}

impl Bundle for Lease<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn stores(&self) -> StoreSet {
        StoreSet::all(self.stores)
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> Result<()> {
        self.ids.clear();
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> Result<Verdict> {
        for _ in 0..self.count {
            self.ids.extend(txn.new_id(self.name_key)?);
        }
        // There are gaps.
        self.ids.pop();
        Ok(Verdict::Keep)
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Asked {
    here: HashSet<Want>,
    wanted: Vec<Want>,
}

impl Known {
    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        lock(&self.asked)
    }

    fn begin(&self) {
        self.asked().wanted.clear();
        *lock(&self.shared.footprint) = Footprint::default();
        // What an earlier run has given is given again.
        let mut leased = lock(&self.shared.leased);
        leased.append(&mut lock(&self.given));
        leased.sort_unstable();
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn wants(&self) -> bool {
        self.wanted() > 0 || lock(&self.lacks_id).is_some()
    }

    /// Counts what is written, and refuses what is too much.
    fn count(&self, bytes: usize) -> Result<()> {
        let bytes = bytes + self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if bytes <= self.bytes_max {
            return Ok(());
        }
        Err(Error::TooLarge {
            what: "transaction",
            bytes,
            limit_bytes: self.bytes_max,
        })
    }

    /// A number that is wrong.
    fn guess(&self, exact: u64) -> u64 {
        match exact % 3 {
            0 => exact / 3,
            1 => exact,
            _ => exact * 2,
        }
    }

    fn touch(&self, touch: impl FnOnce(&mut Footprint)) {
        if self.notes_footprint {
            touch(&mut lock(&self.shared.footprint));
        }
    }

    /// How much is wanted.
    fn wanted(&self) -> usize {
        self.asked().wanted.len()
    }

    /// Fetches all that is wanted; whether there was anything.
    fn fetch(&self) -> bool {
        let Asked { here, wanted } = &mut *self.asked();
        let any = !wanted.is_empty();
        self.fetched.fetch_add(u64::from(any), Ordering::Relaxed);
        here.extend(wanted.drain(..));
        any
    }

    /// Notes what is asked for, unless it is here.
    fn ask(&self, want: Want) -> Result<()> {
        if self.waits {
            return Ok(());
        }
        let Asked { here, wanted } = &mut *self.asked();
        if here.contains(&want) {
            return Ok(());
        }
        wanted.push(want);
        Err(Error::NotHere)
    }

    /// The same of what a scan passes, if it stops there.
    fn ask_on_the_way(&self, want: impl FnOnce() -> Want) -> Result<()> {
        if self.stops_at == 0 || self.waits {
            return Ok(());
        }
        let want = want();
        let mut hash = DefaultHasher::new();
        want.hash(&mut hash);
        let pieces = self.fetched.load(Ordering::Relaxed) / LARGER_AFTER;
        let stops_at = match self.stops_at {
            1 => 1,
            first => first << pieces.min(32),
        };
        match hash.finish().is_multiple_of(stops_at) {
            true => self.ask(want),
            false => Ok(()),
        }
    }
}

/// A bundle that is run until it wants nothing more, and then once again.
struct Run<'b, B> {
    bundle: &'b mut B,
    known: Known,
    /// Whether this run is not to be the last.
    is_rehearsal: bool,
}

impl<B: Bundle> Bundle for Run<'_, B> {
    fn operations(&self) -> usize {
        self.bundle.operations()
    }

    fn stores(&self) -> StoreSet {
        self.bundle.stores()
    }

    fn stands_or_falls_as_one(&self) -> bool {
        self.bundle.stands_or_falls_as_one()
    }

    fn begin<T: Write>(&mut self, txn: &mut T) -> Result<()> {
        let known = &self.known;
        self.bundle.begin(&mut ShyTxn { view: txn, known })
    }

    fn apply<T: Write>(&mut self, txn: &mut T, operation: usize) -> Result<Verdict> {
        let known = &self.known;
        let wanted = known.wanted();
        let bytes = known.bytes.load(Ordering::Relaxed);
        let applied = self
            .bundle
            .apply(&mut ShyTxn { view: txn, known }, operation);
        if !matches!(applied, Ok(Verdict::Keep)) {
            known.bytes.store(bytes, Ordering::Relaxed);
        }
        match applied {
            Err(Error::NotHere) => Ok(Verdict::Undo),
            applied => {
                let is_told = applied.is_err() || known.wanted() == wanted;
                assert!(
                    is_told,
                    "an operation has passed over that something is not here"
                );
                applied
            }
        }
    }

    fn finish<T: Write>(&mut self, txn: &mut T) -> Result<()> {
        let known = &self.known;
        let bytes = known.bytes.load(Ordering::Relaxed);
        known.bytes.store(0, Ordering::Relaxed);
        self.bundle.finish(&mut ShyTxn { view: txn, known })?;
        known.bytes.store(bytes, Ordering::Relaxed);
        match self.known.wants() || self.is_rehearsal {
            true => Err(Error::NotHere),
            false => Ok(()),
        }
    }

    fn settled(&mut self) {
        if !self.known.wants() && !self.is_rehearsal {
            self.bundle.settled();
        }
    }
}

/// A snapshot or a transaction of the engine below, which says what it knows only when it is asked again.
pub struct ShyView<V, N> {
    view: V,
    known: N,
}

/// A snapshot of an engine that is shy.
pub type ShySnapshot<S> = ShyView<Box<S>, Box<Known>>;

type ShyTxn<'t, T> = ShyView<&'t mut T, &'t Known>;

impl<V, N: Deref<Target = Known>> ShyView<V, N> {
    fn ask(&self, want: Want) -> Result<()> {
        self.known.ask(want)
    }

    fn ask_record(&self, table: Table, key: &[u8]) -> Result<()> {
        self.ask(Want::Record(table, key.to_vec()))
    }
}

/// A scan that stops where a record is not here.
pub struct ShyCursor<'r, C> {
    records: C,
    table: Table,
    known: &'r Known,
}

impl<C: Cursor> Cursor for ShyCursor<'_, C> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let next = self.records.next()?;
        if let Some((key, _)) = next {
            let want = || Want::Record(self.table, key.to_vec());
            self.known.ask_on_the_way(want)?;
        }
        Ok(next)
    }
}

/// A posting list that stops where an id is not here.
pub struct ShyPostings<'r, P> {
    postings: P,
    index: Index,
    known: &'r Known,
}

impl<P> ShyPostings<'_, P> {
    fn ask(&self, next: Option<EntryId>) -> Result<Option<EntryId>> {
        if let Some(id) = next {
            self.known
                .ask_on_the_way(|| Want::Posting(self.index, id))?;
        }
        Ok(next)
    }
}

impl<P: Postings> Postings for ShyPostings<'_, P> {
    fn next(&mut self) -> Result<Option<EntryId>> {
        let next = self.postings.next()?;
        self.ask(next)
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        let next = self.postings.seek(id)?;
        self.ask(next)
    }
}

impl<V, N> Read for ShyView<V, N>
where
    V: Deref<Target: Read>,
    N: Deref<Target = Known>,
{
    type Value<'r>
        = <V::Target as Read>::Value<'r>
    where
        Self: 'r;
    type Cursor<'r>
        = ShyCursor<'r, <V::Target as Read>::Cursor<'r>>
    where
        Self: 'r;
    type Postings<'r>
        = ShyPostings<'r, <V::Target as Read>::Postings<'r>>
    where
        Self: 'r;

    const PREFETCHED_CANDIDATES: usize = 8;

    fn rely_on(&self, table: Table, key: &[u8]) {
        self.known
            .touch(|footprint| footprint.guarded.extend([(table, key.to_vec())]));
    }

    fn want<K: AsRef<[u8]>>(&self, table: Table, keys: &[K]) {
        for key in keys {
            // A want is not a read, so that it need not be here.
            let _ = self.ask_record(table, key.as_ref());
        }
    }

    fn commit(&self) -> CommitNo {
        self.view.commit()
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Self::Value<'_>>> {
        self.ask_record(table, key)?;
        self.view.get(table, key)
    }

    fn get_each<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let asked = keys.iter().map(|key| self.ask_record(table, key.as_ref()));
        // Wants all that are missing, not only the first of them.
        asked.fold(Ok(()), Result::and)?;
        self.view.get_each(table, keys, each)
    }

    fn scan(
        &self,
        table: Table,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<Self::Cursor<'_>> {
        self.ask(Want::Records(table))?;
        let records = self.view.scan(table, range, direction)?;
        Ok(ShyCursor {
            records,
            table,
            known: &self.known,
        })
    }

    fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64> {
        self.ask(Want::Records(table))?;
        Ok(self.known.guess(self.view.estimate(table, range)?))
    }

    fn rank(&self, table: Table, key: &[u8]) -> Result<u64> {
        self.ask(Want::Records(table))?;
        self.view.rank(table, key)
    }

    fn key_at(&self, table: Table, before: u64) -> Result<Option<Vec<u8>>> {
        self.ask(Want::Records(table))?;
        self.view.key_at(table, before)
    }

    fn children(&self, parent: EntryId) -> Result<u64> {
        self.ask(Want::Records(Table::Name))?;
        self.view.children(parent)
    }

    fn postings(&self, index: Index, key: &[u8]) -> Result<Self::Postings<'_>> {
        self.ask(Want::List(index, key.to_vec()))?;
        Ok(ShyPostings {
            postings: self.view.postings(index, key)?,
            index,
            known: &self.known,
        })
    }

    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        each: impl FnMut(&[u8], EntryId) -> bool,
    ) -> Result<()> {
        self.ask(Want::Lists(index))?;
        self.view.scan_index(index, range, each)
    }

    fn cardinality(&self, index: Index, key: &[u8], few: &mut Vec<EntryId>) -> Result<u64> {
        self.ask(Want::List(index, key.to_vec()))?;
        let exact = self.view.cardinality(index, key, few)?;
        Ok(match exact > POSTINGS_FEW_MAX as u64 {
            true => self.known.guess(exact).max(POSTINGS_FEW_MAX as u64 + 1),
            false => exact,
        })
    }

    fn birthplace(&self, name_key: &[u8]) -> u16 {
        self.view.birthplace(name_key)
    }

    fn ids_end(&self, store: u16) -> Result<Option<EntryId>> {
        self.view.ids_end(store)
    }

    fn has_index(&self, index: Index) -> Result<bool> {
        self.view.has_index(index)
    }

    fn last_changes(&self, each: impl FnMut(&[u8])) -> Result<()> {
        self.ask(Want::LastChanges)?;
        self.view.last_changes(each)
    }
}

impl<T: Write> ShyTxn<'_, T> {
    /// Counts a record that is about to be written.
    fn write(&self, table: Table, key: &[u8], value_bytes: usize) -> Result<()> {
        self.known
            .touch(|footprint| footprint.written.extend([(table, key.to_vec())]));
        self.known.count(key.len() + value_bytes)
    }
}

impl<T: Write> Write for ShyTxn<'_, T> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key, value.len())?;
        self.view.put(table, key, value)
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.ask_record(table, key)?;
        self.write(table, key, value.len())?;
        self.view.insert(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        self.ask_record(table, key)?;
        self.write(table, key, 0)?;
        self.view.delete(table, key)
    }

    fn guard(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.known
            .touch(|footprint| footprint.guarded.extend([(table, key.to_vec())]));
        self.view.guard(table, key)
    }

    fn guard_child(&mut self, parent: EntryId) -> Result<()> {
        self.known
            .touch(|footprint| footprint.parents.extend([parent]));
        self.view.guard_child(parent)
    }

    fn guard_removal(&mut self, parent: EntryId) -> Result<()> {
        self.known
            .touch(|footprint| footprint.removed.extend([parent]));
        self.view.guard_removal(parent)
    }

    fn guard_move(&mut self) -> Result<()> {
        self.known.touch(|footprint| footprint.moves = true);
        self.view.guard_move()
    }

    fn new_id(&mut self, name_key: &[u8]) -> Result<Option<EntryId>> {
        let store = self.view.birthplace(name_key);
        let mut leased = lock(&self.known.shared.leased);
        let at = leased.iter().position(|id| id.store() == store);
        match at {
            Some(at) => {
                let id = leased.remove(at);
                lock(&self.known.given).push(id);
                Ok(Some(id))
            }
            None => {
                *lock(&self.known.lacks_id) = Some(name_key.to_vec());
                Err(Error::NotHere)
            }
        }
    }

    fn open_index(&mut self, index: Index) -> Result<bool> {
        self.view.open_index(index)
    }

    fn open_order(&mut self, attribute: AttributeNo) -> Result<bool> {
        self.view.open_order(attribute)
    }

    fn create_index(&mut self, index: Index) -> Result<()> {
        self.view.create_index(index)
    }

    fn drop_index(&mut self, index: Index) -> Result<bool> {
        self.view.drop_index(index)
    }

    fn index_add(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()> {
        self.known.count(key.len() + size_of::<EntryId>())?;
        self.view.index_add(index, key, id)
    }

    fn index_remove(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()> {
        self.view.index_remove(index, key, id)
    }

    fn drop_table(&mut self, table: Table) -> Result<bool> {
        self.view.drop_table(table)
    }

    fn record_change(&mut self, record: &[u8]) -> Result<()> {
        self.view.record_change(record)
    }

    fn trim_changes(
        &mut self,
        bytes_max: u64,
        work_bytes: u64,
        is_old: impl FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        self.view.trim_changes(bytes_max, work_bytes, is_old)
    }

    fn data_bytes(&self) -> Result<u64> {
        self.view.data_bytes()
    }
}
