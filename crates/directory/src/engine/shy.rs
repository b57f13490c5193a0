//! An engine for tests that runs bundles as an engine over a network would, on top of another engine.
//!
//! What a bundle asks for first is never at hand: the answer is [`Error::NotHere`]. Its operation is undone, the next
//! ones run only to tell what they want, all of it is fetched in one round, and the bundle runs again. When all of it
//! has succeeded it runs once more, as if the commit had met another one. What a directory does on this engine must be
//! the same as on the one below. Snapshots answer at once.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::{
    AttributeNo, Bundle, Caps, CommitNo, Direction, Engine, EntryId, Error, FeedPosition, Index,
    Load, Model, Range, Read, Result, StoreSet, Table, Verdict, Write,
};

/// An engine that is shy to bundles.
#[derive(Debug, Default)]
pub struct Shy<E = Model> {
    engine: E,
}

impl<E: Engine> Shy<E> {
    /// On top of another engine.
    pub fn over(engine: E) -> Shy<E> {
        Shy { engine }
    }
}

impl<E: Engine> Engine for Shy<E> {
    type Snapshot = E::Snapshot;
    type Retired = E::Retired;
    type Ticket = E::Ticket;

    fn caps(&self) -> Caps {
        self.engine.caps()
    }

    fn stores(&self) -> usize {
        self.engine.stores()
    }

    fn snapshot(&self) -> Result<E::Snapshot> {
        self.engine.snapshot()
    }

    fn end(snapshot: E::Snapshot) -> E::Retired {
        E::end(snapshot)
    }

    fn snapshot_after(&self, retired: E::Retired) -> Result<(E::Snapshot, bool)> {
        self.engine.snapshot_after(retired)
    }

    fn write<B: Bundle>(&self, bundle: &mut B) -> Result<Option<E::Ticket>> {
        let mut run = Run {
            bundle,
            known: Known::default(),
            is_rehearsal: true,
        };
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

    fn position(&self, snapshot: &E::Snapshot) -> FeedPosition {
        self.engine.position(snapshot)
    }

    fn changes(
        &self,
        snapshot: &E::Snapshot,
        after: &FeedPosition,
        each: impl FnMut(&FeedPosition, &[u8]) -> bool,
    ) -> Result<()> {
        self.engine.changes(snapshot, after, each)
    }
}

/// What a bundle may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Want {
    Record(Table, Vec<u8>),
    Records(Table),
    List(Index, Vec<u8>),
    Lists(Index),
    LastChanges,
}

/// What a bundle has asked for so far.
#[derive(Debug, Default)]
struct Known(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    here: HashSet<Want>,
    wanted: Vec<Want>,
}

impl Known {
    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        self.asked().wanted.clear();
    }

    fn wants(&self) -> bool {
        self.wanted() > 0
    }

    /// How much is wanted.
    fn wanted(&self) -> usize {
        self.asked().wanted.len()
    }

    /// Fetches all that is wanted; whether there was anything.
    fn fetch(&self) -> bool {
        let Asked { here, wanted } = &mut *self.asked();
        let any = !wanted.is_empty();
        here.extend(wanted.drain(..));
        any
    }

    /// Notes what is asked for, unless it is here.
    fn ask(&self, want: Want) -> Result<()> {
        let Asked { here, wanted } = &mut *self.asked();
        if here.contains(&want) {
            return Ok(());
        }
        wanted.push(want);
        Err(Error::NotHere)
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
        self.bundle.begin(&mut ShyTxn { txn, known })
    }

    fn apply<T: Write>(&mut self, txn: &mut T, operation: usize) -> Result<Verdict> {
        let known = &self.known;
        let wanted = known.wanted();
        match self.bundle.apply(&mut ShyTxn { txn, known }, operation) {
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
        self.bundle.finish(&mut ShyTxn { txn, known })?;
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

/// A transaction of the engine below, which says what it knows only when it is asked again.
struct ShyTxn<'t, T> {
    txn: &'t mut T,
    known: &'t Known,
}

impl<T: Read> ShyTxn<'_, T> {
    fn ask(&self, want: Want) -> Result<()> {
        self.known.ask(want)
    }

    fn ask_record(&self, table: Table, key: &[u8]) -> Result<()> {
        self.ask(Want::Record(table, key.to_vec()))
    }
}

impl<T: Read> Read for ShyTxn<'_, T> {
    type Value<'r>
        = T::Value<'r>
    where
        Self: 'r;
    type Cursor<'r>
        = T::Cursor<'r>
    where
        Self: 'r;
    type Postings<'r>
        = T::Postings<'r>
    where
        Self: 'r;

    fn commit(&self) -> CommitNo {
        self.txn.commit()
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Self::Value<'_>>> {
        self.ask_record(table, key)?;
        self.txn.get(table, key)
    }

    fn get_each<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let asked = keys.iter().map(|key| self.ask_record(table, key.as_ref()));
        // Each that is missing is wanted, not the first of them alone.
        asked.fold(Ok(()), Result::and)?;
        self.txn.get_each(table, keys, each)
    }

    fn scan(
        &self,
        table: Table,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<Self::Cursor<'_>> {
        self.ask(Want::Records(table))?;
        self.txn.scan(table, range, direction)
    }

    fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64> {
        self.ask(Want::Records(table))?;
        self.txn.estimate(table, range)
    }

    fn postings(&self, index: Index, key: &[u8]) -> Result<Self::Postings<'_>> {
        self.ask(Want::List(index, key.to_vec()))?;
        self.txn.postings(index, key)
    }

    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        each: impl FnMut(&[u8], EntryId) -> bool,
    ) -> Result<()> {
        self.ask(Want::Lists(index))?;
        self.txn.scan_index(index, range, each)
    }

    fn cardinality(&self, index: Index, key: &[u8], few: &mut Vec<EntryId>) -> Result<u64> {
        self.ask(Want::List(index, key.to_vec()))?;
        self.txn.cardinality(index, key, few)
    }

    fn birthplace(&self, name_key: &[u8]) -> u16 {
        self.txn.birthplace(name_key)
    }

    fn has_index(&self, index: Index) -> Result<bool> {
        self.txn.has_index(index)
    }

    fn last_changes(&self, each: impl FnMut(&[u8])) -> Result<()> {
        self.ask(Want::LastChanges)?;
        self.txn.last_changes(each)
    }
}

impl<T: Write> Write for ShyTxn<'_, T> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(table, key, value)
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.ask_record(table, key)?;
        self.txn.insert(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        self.ask_record(table, key)?;
        self.txn.delete(table, key)
    }

    fn guard(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.txn.guard(table, key)
    }

    fn guard_child(&mut self, parent: EntryId) -> Result<()> {
        self.txn.guard_child(parent)
    }

    fn guard_removal(&mut self, parent: EntryId) -> Result<()> {
        self.txn.guard_removal(parent)
    }

    fn guard_move(&mut self) -> Result<()> {
        self.txn.guard_move()
    }

    fn open_index(&mut self, index: Index) -> Result<bool> {
        self.txn.open_index(index)
    }

    fn open_order(&mut self, attribute: AttributeNo) -> Result<bool> {
        self.txn.open_order(attribute)
    }

    fn create_index(&mut self, index: Index) -> Result<()> {
        self.txn.create_index(index)
    }

    fn drop_index(&mut self, index: Index) -> Result<bool> {
        self.txn.drop_index(index)
    }

    fn index_add(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()> {
        self.txn.index_add(index, key, id)
    }

    fn index_remove(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()> {
        self.txn.index_remove(index, key, id)
    }

    fn drop_table(&mut self, table: Table) -> Result<bool> {
        self.txn.drop_table(table)
    }

    fn record_change(&mut self, record: &[u8]) -> Result<()> {
        self.txn.record_change(record)
    }

    fn trim_changes(
        &mut self,
        bytes_max: u64,
        work_bytes: u64,
        is_old: impl FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        self.txn.trim_changes(bytes_max, work_bytes, is_old)
    }

    fn data_bytes(&self) -> Result<u64> {
        self.txn.data_bytes()
    }
}
