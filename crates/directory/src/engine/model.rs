//! An engine of plain ordered maps: what an engine has to do, in the fewest lines. The conformance suite compares
//! every engine with it, and tests of the directory run on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::ids::{self, GivenIds};
use super::{
    AttributeNo, Bundle, Caps, CommitNo, Cursor, Direction, Engine, EntryId, Error, FeedPosition,
    Index, Load, Loader, POSTINGS_FEW_MAX, Postings, PushPosting, PushRecord, Range, Read, Result,
    Table, Ticket, Verdict, Write,
};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;
type Lists = BTreeMap<Vec<u8>, BTreeSet<EntryId>>;

/// Everything as of one commit.
#[derive(Clone, Debug, Default)]
struct State {
    commit: u64,
    tables: BTreeMap<Table, Arc<Records>>,
    indexes: BTreeMap<Index, Arc<Lists>>,
    changes: Arc<BTreeMap<u64, Vec<u8>>>,
    trimmed: u64,
}

/// An engine in plain maps. Every commit is durable at once, as far as memory is.
#[derive(Debug, Default)]
pub struct Model {
    visible: RwLock<Arc<State>>,
    writer: Mutex<()>,
}

impl Model {
    fn state(&self) -> Arc<State> {
        self.visible
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn publish(&self, mut state: State) -> CommitNo {
        state.commit += 1;
        let commit = CommitNo(state.commit);
        *self.visible.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        commit
    }
}

impl Engine for Model {
    type Snapshot = ModelSnapshot;
    type Retired = CommitNo;
    type Ticket = ModelTicket;

    fn caps(&self) -> Caps {
        Caps {
            key_bytes_max: 1300,
            value_bytes_max: u32::MAX as usize,
            transaction_bytes_max: usize::MAX,
            snapshot_age_max: None,
        }
    }

    fn snapshot(&self) -> Result<ModelSnapshot> {
        Ok(ModelSnapshot {
            state: self.state(),
        })
    }

    fn end(snapshot: ModelSnapshot) -> CommitNo {
        snapshot.commit()
    }

    fn snapshot_after(&self, retired: CommitNo) -> Result<(ModelSnapshot, bool)> {
        let snapshot = self.snapshot()?;
        let is_same = snapshot.commit() == retired;
        Ok((snapshot, is_same))
    }

    fn write<B: Bundle>(&self, bundle: &mut B) -> Result<Option<ModelTicket>> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut txn = ModelTxn {
            state: State::clone(&self.state()),
            recorded: false,
            ids: GivenIds::default(),
        };
        bundle.begin(&mut txn)?;
        let mut kept = false;
        let mut operation = 0;
        while operation < bundle.operations() {
            let before = txn.state.clone();
            match bundle.apply(&mut txn, operation)? {
                Verdict::Keep => kept = true,
                Verdict::Undo if bundle.stands_or_falls_as_one() => {
                    kept = false;
                    break;
                }
                Verdict::Undo => txn.state = before,
            }
            operation += 1;
        }
        let mut ticket = None;
        if kept {
            bundle.finish(&mut txn)?;
            std::mem::take(&mut txn.ids).put(&mut txn)?;
            let commit = self.publish(txn.state);
            ticket = Some(ModelTicket { commit });
        }
        bundle.settled();
        Ok(ticket)
    }

    fn load<L: Load>(&self, load: &mut L) -> Result<CommitNo> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut loader = ModelLoader {
            state: State::clone(&self.state()),
        };
        load.run(&mut loader)?;
        Ok(self.publish(loader.state))
    }

    fn position(&self, snapshot: &ModelSnapshot) -> FeedPosition {
        let mut position = FeedPosition::default();
        position.advance(0, CommitNo(snapshot.state.commit));
        position
    }

    fn changes(
        &self,
        snapshot: &ModelSnapshot,
        after: &FeedPosition,
        mut each: impl FnMut(&FeedPosition, &[u8]) -> bool,
    ) -> Result<()> {
        let (state, mut position) = (&snapshot.state, after.clone());
        let after = after.commit(0);
        if state.trimmed > after.0 || after.0 > state.commit {
            return Err(Error::TooOld);
        }
        for (commit, record) in state.changes.range(after.0.saturating_add(1)..) {
            position.advance(0, CommitNo(*commit));
            if !each(&position, record) {
                break;
            }
        }
        Ok(())
    }
}

/// A commit of the model.
#[derive(Debug)]
pub struct ModelTicket {
    commit: CommitNo,
}

impl Ticket for ModelTicket {
    fn is_durable(&self) -> bool {
        true
    }

    fn wait(self) -> Result<CommitNo> {
        Ok(self.commit)
    }
}

/// A snapshot of the model.
#[derive(Clone, Debug)]
pub struct ModelSnapshot {
    state: Arc<State>,
}

/// A transaction of the model.
#[derive(Debug)]
pub struct ModelTxn {
    state: State,
    recorded: bool,
    ids: GivenIds,
}

impl State {
    fn get(&self, table: Table, key: &[u8]) -> Option<&[u8]> {
        self.tables.get(&table)?.get(key).map(Vec::as_slice)
    }

    fn records(
        &self,
        table: Table,
        range: Range<'_>,
    ) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Vec<u8>)> {
        let (from, to) = bounds(range);
        self.tables
            .get(&table)
            .into_iter()
            .flat_map(move |records| records.range::<[u8], _>((from, to)))
    }

    fn scan(&self, table: Table, range: Range<'_>, direction: Direction) -> ModelCursor<'_> {
        let mut records: Vec<_> = self.records(table, range).collect();
        if direction == Direction::Backward {
            records.reverse();
        }
        ModelCursor {
            records: records.into_iter(),
        }
    }

    fn postings(&self, index: Index, key: &[u8]) -> ModelPostings<'_> {
        ModelPostings {
            list: self.indexes.get(&index).and_then(|lists| lists.get(key)),
            after: Bound::Unbounded,
        }
    }

    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        mut each: impl FnMut(&[u8], EntryId) -> bool,
    ) {
        for (key, ids) in self
            .indexes
            .get(&index)
            .into_iter()
            .flat_map(|lists| lists.range::<[u8], _>(bounds(range)))
        {
            for id in ids {
                if !each(key, *id) {
                    return;
                }
            }
        }
    }

    fn list(&self, index: Index, key: &[u8]) -> Option<&BTreeSet<EntryId>> {
        self.indexes.get(&index).and_then(|lists| lists.get(key))
    }
}

/// The range's bounds; those of nothing when it is the wrong way round, which a map refuses.
fn bounds(range: Range<'_>) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let empty = match (range.from, range.to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
        _ => false,
    };
    if empty {
        (Bound::Included(&[]), Bound::Excluded(&[]))
    } else {
        (range.from, range.to)
    }
}

macro_rules! read_from_state {
    ($reader:ty, $commit:expr) => {
        impl Read for $reader {
            type Value<'r> = &'r [u8];
            type Cursor<'r> = ModelCursor<'r>;
            type Postings<'r> = ModelPostings<'r>;

            fn commit(&self) -> CommitNo {
                CommitNo(self.state.commit + $commit)
            }

            fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
                Ok(self.state.get(table, key))
            }

            fn scan(
                &self,
                table: Table,
                range: Range<'_>,
                direction: Direction,
            ) -> Result<ModelCursor<'_>> {
                Ok(self.state.scan(table, range, direction))
            }

            fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64> {
                Ok(self.state.records(table, range).count() as u64)
            }

            fn postings(&self, index: Index, key: &[u8]) -> Result<ModelPostings<'_>> {
                Ok(self.state.postings(index, key))
            }

            fn scan_index(
                &self,
                index: Index,
                range: Range<'_>,
                each: impl FnMut(&[u8], EntryId) -> bool,
            ) -> Result<()> {
                self.state.scan_index(index, range, each);
                Ok(())
            }

            fn cardinality(&self, index: Index, key: &[u8], few: &mut Vec<EntryId>) -> Result<u64> {
                few.clear();
                let Some(list) = self.state.list(index, key) else {
                    return Ok(0);
                };
                if list.len() <= POSTINGS_FEW_MAX {
                    few.extend(list);
                }
                Ok(list.len() as u64)
            }

            fn birthplace(&self, _name_key: &[u8]) -> u16 {
                0
            }

            fn ids_end(&self, store: u16) -> Result<Option<EntryId>> {
                ids::next(self, store).map(Some)
            }

            fn has_index(&self, index: Index) -> Result<bool> {
                Ok(self.state.indexes.contains_key(&index))
            }

            fn last_changes(&self, each: impl FnMut(&[u8])) -> Result<()> {
                let last = self.state.changes.last_key_value();
                last.map(|(_, record)| record.as_slice())
                    .into_iter()
                    .for_each(each);
                Ok(())
            }
        }
    };
}

read_from_state!(ModelSnapshot, 0);
read_from_state!(ModelTxn, 1);

impl ModelTxn {
    fn table(&mut self, table: Table) -> &mut Records {
        Arc::make_mut(self.state.tables.entry(table).or_default())
    }

    fn lists(&mut self, index: Index) -> Result<&mut Lists> {
        let lists = self.state.indexes.get_mut(&index);
        lists.map(Arc::make_mut).ok_or_else(|| {
            Error::Corrupt(format!("index {} does not exist", index.name().as_str()))
        })
    }
}

impl Write for ModelTxn {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.table(table).insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        if self.state.get(table, key).is_some() {
            Err(Error::Exists)
        } else {
            self.put(table, key, value)
        }
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        let records = self.state.tables.get_mut(&table);
        Ok(records.is_some_and(|records| Arc::make_mut(records).remove(key).is_some()))
    }

    fn guard(&mut self, _table: Table, _key: &[u8]) -> Result<()> {
        Ok(())
    }

    fn guard_child(&mut self, _parent: EntryId) -> Result<()> {
        Ok(())
    }

    fn guard_removal(&mut self, _parent: EntryId) -> Result<()> {
        Ok(())
    }

    fn guard_move(&mut self) -> Result<()> {
        Ok(())
    }

    fn new_id(&mut self, name_key: &[u8]) -> Result<Option<EntryId>> {
        let store = self.birthplace(name_key);
        let mut ids = std::mem::take(&mut self.ids);
        let given = ids.give(self, store);
        self.ids = ids;
        given
    }

    fn open_index(&mut self, index: Index) -> Result<bool> {
        self.has_index(index)
    }

    fn open_order(&mut self, attribute: AttributeNo) -> Result<bool> {
        Ok(self.state.tables.contains_key(&Table::Order(attribute)))
    }

    fn create_index(&mut self, index: Index) -> Result<()> {
        self.state.indexes.entry(index).or_default();
        Ok(())
    }

    fn drop_index(&mut self, index: Index) -> Result<bool> {
        Ok(self.state.indexes.remove(&index).is_some())
    }

    fn index_add(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()> {
        let lists = self.lists(index)?;
        lists.entry(key.to_vec()).or_default().insert(id);
        Ok(())
    }

    fn index_remove(&mut self, index: Index, key: &[u8], id: EntryId) -> Result<()> {
        let lists = self.lists(index)?;
        if let Some(ids) = lists.get_mut(key) {
            ids.remove(&id);
            if ids.is_empty() {
                lists.remove(key);
            }
        }
        Ok(())
    }

    fn drop_table(&mut self, table: Table) -> Result<bool> {
        Ok(self.state.tables.remove(&table).is_some())
    }

    fn record_change(&mut self, record: &[u8]) -> Result<()> {
        assert!(!self.recorded, "one change record for each transaction");
        self.recorded = true;
        let commit = self.state.commit + 1;
        Arc::make_mut(&mut self.state.changes).insert(commit, record.to_vec());
        Ok(())
    }

    fn trim_changes(
        &mut self,
        bytes_max: u64,
        work_bytes: u64,
        mut is_old: impl FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        let changes = Arc::make_mut(&mut self.state.changes);
        let bytes = |record: &Vec<u8>| record.len() as u64 + 16;
        let all: u64 = changes.values().map(bytes).sum();
        let (excess, mut freed) = (all.saturating_sub(bytes_max), 0);
        while changes.len() > 1 && freed < work_bytes {
            match changes.first_entry() {
                Some(first) if freed < excess || is_old(first.get()) => {
                    self.state.trimmed = *first.key();
                    freed += bytes(&first.remove());
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn data_bytes(&self) -> Result<u64> {
        let tables = self.state.tables.values();
        let records = tables.flat_map(|records| records.iter());
        let bytes = records.map(|(key, value)| (key.len() + value.len()) as u64);
        Ok(bytes.sum())
    }
}

/// A scan of the model.
#[derive(Debug)]
pub struct ModelCursor<'r> {
    records: std::vec::IntoIter<(&'r Vec<u8>, &'r Vec<u8>)>,
}

impl Cursor for ModelCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self
            .records
            .next()
            .map(|(key, value)| (key.as_slice(), value.as_slice())))
    }
}

/// A posting list of the model.
#[derive(Debug)]
pub struct ModelPostings<'r> {
    list: Option<&'r BTreeSet<EntryId>>,
    after: Bound<EntryId>,
}

impl Postings for ModelPostings<'_> {
    fn next(&mut self) -> Result<Option<EntryId>> {
        let next = self
            .list
            .and_then(|list| list.range((self.after, Bound::Unbounded)).next().copied());
        match next {
            Some(id) => self.after = Bound::Excluded(id),
            None => self.list = None,
        }
        Ok(next)
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        if !matches!(self.after, Bound::Excluded(read) if read >= id) {
            self.after = Bound::Included(id);
        }
        self.next()
    }
}

/// A load of the model.
struct ModelLoader {
    state: State,
}

impl Loader for ModelLoader {
    fn table(
        &mut self,
        table: Table,
        fill: impl FnOnce(&mut PushRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut records = Records::new();
        fill(&mut |key, value| {
            push_record(&mut records, key, value);
            Ok(())
        })?;
        self.state.tables.insert(table, Arc::new(records));
        Ok(())
    }

    fn index(
        &mut self,
        index: Index,
        fill: impl FnOnce(&mut PushPosting<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut lists = Lists::new();
        fill(&mut |key, id| {
            assert!(
                lists
                    .last_key_value()
                    .is_none_or(|(last, _)| last.as_slice() <= key),
                "keys ascend"
            );
            lists.entry(key.to_vec()).or_default().insert(id);
            Ok(())
        })?;
        self.state.indexes.insert(index, Arc::new(lists));
        Ok(())
    }
}

fn push_record(records: &mut Records, key: &[u8], value: &[u8]) {
    let last = records.last_key_value();
    assert!(
        last.is_none_or(|(last, _)| last.as_slice() < key),
        "keys ascend"
    );
    records.insert(key.to_vec(), value.to_vec());
}
