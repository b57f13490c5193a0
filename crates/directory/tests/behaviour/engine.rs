//! The conformance suite for engines: the same random bundles are run on an engine and on the model, and everything
//! that can be read must be the same, inside the transaction and after it.

use std::collections::BTreeSet;
use std::ops::Bound;

use proptest::prelude::*;
use sapwood_directory::engine::{
    self, AttributeNo, Bundle, CommitNo, Cursor, Direction, Embedded, Engine, EntryId, Error,
    FeedPosition, Index, IndexKind, Load, Loader, Model, POSTINGS_FEW_MAX, Postings, Range, Read,
    StoreSet, Table, Ticket, Verdict, Write,
};

const TABLES: [Table; 3] = [Table::Name, Table::State, Table::Order(AttributeNo(7))];
const INDEXES: [Index; 2] = [
    Index {
        attribute: AttributeNo(1),
        kind: IndexKind::Equality,
    },
    Index {
        attribute: AttributeNo(300),
        kind: IndexKind::Substring,
    },
];

/// One write.
#[derive(Clone, Debug)]
enum Action {
    Put(usize, Vec<u8>, Vec<u8>),
    Insert(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    IndexAdd(usize, Vec<u8>, u64),
    IndexAddRun(usize, Vec<u8>, u64, u64, u64),
    IndexRemove(usize, Vec<u8>, u64),
    IndexRemoveRun(usize, Vec<u8>, u64, u64),
    DropIndex(usize),
    DropTable(usize),
}

#[derive(Clone, Debug)]
struct Operation {
    actions: Vec<Action>,
    keep: bool,
}

/// Everything that can be read, as a comparable value.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    tables: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
    backward: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
    lists: Vec<Vec<(Vec<u8>, u64)>>,
}

fn content(read: &impl Read) -> Content {
    let scan = |table: &Table, direction| {
        let mut records = Vec::new();
        let mut cursor = read.scan(*table, Range::ALL, direction).unwrap();
        while let Some((key, value)) = cursor.next().unwrap() {
            records.push((key.to_vec(), value.to_vec()));
        }
        records
    };
    let list = |index: &Index| {
        let mut postings = Vec::new();
        read.scan_index(*index, Range::ALL, |key, id| {
            postings.push((key.to_vec(), id.0));
            true
        })
        .unwrap();
        // Those of one store come in order, those of several store by store.
        let in_first = postings.iter().all(|(_, id)| EntryId(*id).store() == 0);
        assert!(postings.is_sorted() || !in_first);
        postings.sort();
        postings
    };
    Content {
        tables: TABLES
            .iter()
            .map(|table| scan(table, Direction::Forward))
            .collect(),
        backward: TABLES
            .iter()
            .map(|table| scan(table, Direction::Backward))
            .collect(),
        lists: INDEXES.iter().map(list).collect(),
    }
}

struct Script<'s> {
    operations: &'s [Operation],
    as_one: bool,
    /// What was answered on the way, to be compared too.
    answers: Vec<bool>,
    inside: Vec<Content>,
}

impl Bundle for Script<'_> {
    fn operations(&self) -> usize {
        self.operations.len()
    }

    fn stands_or_falls_as_one(&self) -> bool {
        self.as_one
    }

    fn begin<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        self.answers.clear();
        self.inside.clear();
        for index in INDEXES {
            if !txn.open_index(index)? {
                txn.create_index(index)?;
                assert!(txn.open_index(index)?);
            }
        }
        txn.open_order(AttributeNo(7))?;
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, operation: usize) -> engine::Result<Verdict> {
        let operation = &self.operations[operation];
        for action in &operation.actions {
            let answer = match action {
                Action::Put(table, key, value) => {
                    txn.put(TABLES[*table], key, value).map(|()| true)?
                }
                Action::Insert(table, key, value) => match txn.insert(TABLES[*table], key, value) {
                    Ok(()) => true,
                    Err(Error::Exists) => false,
                    Err(error) => return Err(error),
                },
                Action::Delete(table, key) => txn.delete(TABLES[*table], key)?,
                Action::IndexAdd(index, key, id) => {
                    txn.index_add(INDEXES[*index], key, EntryId(*id))?;
                    true
                }
                Action::IndexAddRun(index, key, from, count, step) => {
                    for at in 0..*count {
                        txn.index_add(INDEXES[*index], key, EntryId(from + at * step))?;
                    }
                    true
                }
                Action::IndexRemove(index, key, id) => {
                    txn.index_remove(INDEXES[*index], key, EntryId(*id))?;
                    true
                }
                Action::IndexRemoveRun(index, key, from, count) => {
                    for at in 0..*count {
                        txn.index_remove(INDEXES[*index], key, EntryId(from + at))?;
                    }
                    true
                }
                Action::DropIndex(index) => {
                    let existed = txn.drop_index(INDEXES[*index])?;
                    txn.create_index(INDEXES[*index])?;
                    existed
                }
                Action::DropTable(table) => txn.drop_table(TABLES[*table])?,
            };
            self.answers.push(answer);
        }
        self.inside.push(content(txn));
        Ok(if operation.keep {
            Verdict::Keep
        } else {
            Verdict::Undo
        })
    }

    fn finish<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        txn.record_change(
            &self
                .answers
                .iter()
                .map(|answer| u8::from(*answer))
                .collect::<Vec<_>>(),
        )
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 0..4),
        prop::collection::vec(any::<u8>(), 0..300),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..60),
        1 => (any::<u8>(), 2000usize..30_000).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn list_key() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        b"".to_vec(),
        b"a".to_vec(),
        b"a\0".to_vec(),
        b"a\0\0b".to_vec(),
        b"ab\0".to_vec(),
        b"abc".to_vec(),
        b"abd".to_vec(),
        b"b".to_vec(),
    ])
}

fn action() -> impl Strategy<Value = Action> {
    let (table, index) = (0..TABLES.len(), 0..INDEXES.len());
    let id = prop_oneof![
        3 => 1u64..3000,
        3 => any::<u64>().prop_map(|id| id >> 16),
        2 => (1u16..4, 1u64..50).prop_map(|(store, id)| EntryId::root_of(store).0 + id),
    ];
    prop_oneof![
        4 => (table.clone(), key(), value()).prop_map(|(table, key, value)| Action::Put(table, key, value)),
        2 => (table.clone(), key(), value()).prop_map(|(table, key, value)| Action::Insert(table, key, value)),
        2 => (table.clone(), key()).prop_map(|(table, key)| Action::Delete(table, key)),
        4 => (index.clone(), list_key(), id.clone()).prop_map(|(index, key, id)| Action::IndexAdd(index, key, id)),
        2 => (index.clone(), list_key(), 1u64..2000, 1u64..2500, 1u64..200)
            .prop_map(|(index, key, from, count, step)| Action::IndexAddRun(index, key, from, count, step)),
        2 => (index.clone(), list_key(), id).prop_map(|(index, key, id)| Action::IndexRemove(index, key, id)),
        1 => (index, list_key(), 1u64..2000, 1u64..2000)
            .prop_map(|(index, key, from, count)| Action::IndexRemoveRun(index, key, from, count)),
        1 => table.prop_map(Action::DropTable),
        1 => (0..INDEXES.len()).prop_map(Action::DropIndex),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = (
        prop::collection::vec(action(), 0..8),
        prop::bool::weighted(0.8),
    );
    prop::collection::vec(
        operation.prop_map(|(actions, keep)| Operation { actions, keep }),
        1..5,
    )
}

fn same_reading(
    one: &impl Read,
    other: &impl Read,
    from: &[u8],
    to: &[u8],
    seeks: &[u64],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(content(one), content(other));
    for table in TABLES {
        let ranges = [
            Range {
                from: Bound::Included(from),
                to: Bound::Excluded(to),
            },
            Range {
                from: Bound::Excluded(from),
                to: Bound::Included(to),
            },
        ];
        for range in ranges {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut one = one.scan(table, range, direction).unwrap();
                let mut other = other.scan(table, range, direction).unwrap();
                loop {
                    let (one, other) = (one.next().unwrap(), other.next().unwrap());
                    prop_assert_eq!(one, other);
                    if one.is_none() {
                        break;
                    }
                }
            }
            if table.is_counted() {
                prop_assert_eq!(
                    one.estimate(table, range).unwrap(),
                    other.estimate(table, range).unwrap()
                );
            }
        }
        let (one, other) = (
            one.get(table, from).unwrap(),
            other.get(table, from).unwrap(),
        );
        prop_assert_eq!(one.as_deref(), other.as_deref());
    }
    for index in INDEXES {
        for key in [
            b"".as_slice(),
            b"a",
            b"a\0",
            b"ab\0",
            b"abc",
            b"abd",
            b"abe",
            b"b",
            b"none",
        ] {
            let (mut one_list, mut other_list) = (
                one.postings(index, key).unwrap(),
                other.postings(index, key).unwrap(),
            );
            let (mut exactly, mut few) = (vec![EntryId(7)], vec![EntryId(7)]);
            let exact = other.cardinality(index, key, &mut exactly).unwrap();
            let guess = one.cardinality(index, key, &mut few).unwrap();
            assert_eq!(few, exactly);
            assert_eq!(
                few.is_empty(),
                exact == 0 || exact > POSTINGS_FEW_MAX as u64
            );
            prop_assert!(exact > 1000 || guess == exact, "{} for {}", guess, exact);
            prop_assert!(
                guess <= exact * 3 + 8 && exact <= guess * 3 + 8,
                "{} for {}",
                guess,
                exact
            );
            for id in seeks {
                prop_assert_eq!(
                    one_list.seek(EntryId(*id)).unwrap(),
                    other_list.seek(EntryId(*id)).unwrap()
                );
                prop_assert_eq!(one_list.next().unwrap(), other_list.next().unwrap());
            }
            loop {
                let (one, other) = (one_list.next().unwrap(), other_list.next().unwrap());
                prop_assert_eq!(one, other);
                if one.is_none() {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn changes(engine: &impl Engine) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut before = FeedPosition::default();
    let snapshot = engine.snapshot().unwrap();
    engine
        .changes(&snapshot, &FeedPosition::default(), |position, record| {
            let stores = 0..engine.stores();
            let moved = |store: &usize| position.commit(*store) > before.commit(*store);
            assert_eq!(stores.filter(moved).count(), 1, "in commit order");
            before = position.clone();
            records.push(record.to_vec());
            true
        })
        .unwrap();
    records
}

fn conforms<E: Engine>(
    engine: &E,
    bundles: &[(Vec<Operation>, bool)],
    from: &[u8],
    to: &[u8],
    seeks: &[u64],
) -> Result<(), TestCaseError> {
    let model = Model::default();
    let first = engine.snapshot().unwrap();
    let mut last_commit = first.commit();
    let mut retired = Some(E::end(first));
    for (operations, as_one) in bundles {
        let script = || Script {
            operations,
            as_one: *as_one,
            answers: Vec::new(),
            inside: Vec::new(),
        };
        let (mut ours, mut theirs) = (script(), script());
        let before = engine.snapshot().unwrap();
        let content_before = content(&before);
        let ticket = engine.write(&mut ours).unwrap();
        let model_ticket = model.write(&mut theirs).unwrap();
        prop_assert_eq!(&ours.answers, &theirs.answers);
        prop_assert_eq!(ours.inside, theirs.inside);
        prop_assert_eq!(ticket.is_some(), model_ticket.is_some());
        if let Some(ticket) = ticket {
            let commit = ticket.wait().unwrap();
            prop_assert!(engine.snapshot().unwrap().commit() >= commit);
        }
        prop_assert_eq!(content(&before), content_before, "a snapshot never changes");
        let mut read_alike = || {
            let theirs = model.snapshot().unwrap();
            for again in [false, true] {
                let (ours, is_same) = engine.snapshot_after(retired.take().unwrap()).unwrap();
                prop_assert!(is_same || !again, "nothing was committed since");
                let is_newer = ours.commit() > last_commit;
                prop_assert!(is_same != is_newer || engine.stores() > 1 && !is_same);
                same_reading(&ours, &theirs, from, to, seeks)?;
                last_commit = ours.commit();
                retired = Some(E::end(ours));
            }
            Ok(())
        };
        read_alike()?;
        if *as_one {
            engine.settle(StoreSet::all(engine.stores())).unwrap();
            read_alike()?;
        }
    }
    prop_assert_eq!(changes(engine), changes(&model));
    Ok(())
}

proptest! {
    #![proptest_config(crate::made::random(48))]

    #[test]
    fn the_embedded_engine_does_what_the_model_does(
        bundles in prop::collection::vec((operations(), any::<bool>()), 1..6),
        from in key(), to in key(),
        mut seeks in prop::collection::vec(prop_oneof![1u64..3000, 1u64..200_000], 0..8),
    ) {
        seeks.sort_unstable();
        conforms(&Embedded::in_memory().unwrap(), &bundles, &from, &to, &seeks)?;
        conforms(&Embedded::in_memory_with(3).unwrap(), &bundles, &from, &to, &seeks)?;
    }

    #[test]
    fn what_is_loaded_is_read(
        records in prop::collection::btree_map(key(), value(), 0..40),
        postings in prop::collection::btree_set((list_key(), 0u64..5000), 0..60),
        runs in prop::collection::vec((list_key(), 1u64..3000), 0..3),
        from in key(), to in key(),
    ) {
        let mut postings: BTreeSet<_> = postings;
        for (key, count) in runs {
            postings.extend((0..count).map(|id| (key.clone(), id * 3)));
        }
        struct Everything<'e>(&'e std::collections::BTreeMap<Vec<u8>, Vec<u8>>, &'e BTreeSet<(Vec<u8>, u64)>);
        impl Load for Everything<'_> {
            fn run<L: Loader>(&mut self, loader: &mut L) -> engine::Result<()> {
                for table in TABLES {
                    loader.table(table, |push| self.0.iter().try_for_each(|(key, value)| push(key, value)))?;
                }
                for index in INDEXES {
                    loader.index(index, |post| {
                        self.1.iter().try_for_each(|(key, id)| {
                            post(key, EntryId(*id))?;
                            post(key, EntryId(*id))
                        })
                    })?;
                }
                Ok(())
            }
        }
        let model = Model::default();
        model.load(&mut Everything(&records, &postings)).unwrap();
        for stores in [1, 3] {
            let engine = Embedded::in_memory_with(stores).unwrap();
            engine.load(&mut Everything(&records, &postings)).unwrap();
            same_reading(&engine.snapshot().unwrap(), &model.snapshot().unwrap(), &from, &to, &[0, 1, 700, 701, 6000])?;
        }
    }
}

#[test]
fn the_feed_says_when_it_does_not_reach_back_far_enough() {
    /// Writes a record of so many bytes; with a number, forgets records that begin with a lower one.
    struct Trim(u8, Option<u8>, u64);
    impl Bundle for Trim {
        fn operations(&self) -> usize {
            1
        }
        fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
            Ok(())
        }
        fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
            txn.put(Table::State, b"k", b"v")?;
            Ok(Verdict::Keep)
        }
        fn finish<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
            txn.record_change(&[self.0; 3000])?;
            match self.1 {
                Some(first) => txn.trim_changes(self.2, 1 << 20, |record| record[0] < first),
                None => txn.trim_changes(self.2, 10_000, |_| false),
            }
        }
    }
    fn check(engine: &impl Engine) {
        let write = |trim: &mut Trim| engine.write(trim).unwrap().unwrap().wait().unwrap();
        let mut commits = Vec::from_iter((0..4).map(|at| write(&mut Trim(at, None, u64::MAX))));
        let after = |commit: CommitNo| {
            let (mut count, mut position) = (0, FeedPosition::default());
            position.advance(0, commit);
            let snapshot = engine.snapshot().unwrap();
            let read = engine.changes(&snapshot, &position, |_, _| {
                count += 1;
                true
            });
            read.map(|()| count)
        };
        // By what the records say.
        commits.push(write(&mut Trim(4, Some(2), u64::MAX)));
        assert!(matches!(after(commits[0]), Err(Error::TooOld)));
        assert_eq!(after(commits[1]).unwrap(), 3);
        assert_eq!(after(commits[3]).unwrap(), 1);
        assert!(matches!(
            after(CommitNo(commits[4].0 + 1)),
            Err(Error::TooOld)
        ));
        // By what they take, some at a time, but for the last.
        (5..50).for_each(|at| commits.push(write(&mut Trim(at, None, u64::MAX))));
        let kept = after(commits[1]).unwrap();
        commits.push(write(&mut Trim(50, None, 0)));
        assert!(matches!(after(commits[2]), Err(Error::TooOld)));
        let reached = commits.iter().find_map(|commit| after(*commit).ok());
        assert!(
            (kept - 6..kept).contains(&reached.unwrap()),
            "{reached:?} of {kept}"
        );
        for at in 51..70 {
            commits.push(write(&mut Trim(at, None, 0)));
        }
        let count = commits.len();
        assert!(after(commits[count - 3]).is_err());
        assert_eq!(after(commits[count - 2]).unwrap(), 1);
        let mut last = Vec::new();
        let snapshot = engine.snapshot().unwrap();
        snapshot
            .last_changes(|record| last.push(record[0]))
            .unwrap();
        assert_eq!(last, [69]);
    }
    check(&Model::default());
    check(&Embedded::in_memory().unwrap());
}

/// Writes a record to the feed, in these stores.
struct Record(StoreSet, u32);

impl Bundle for Record {
    fn operations(&self) -> usize {
        1
    }
    fn stores(&self) -> StoreSet {
        self.0
    }
    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
    fn apply<T: Write>(&mut self, _txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        Ok(Verdict::Keep)
    }
    fn finish<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        txn.record_change(&self.1.to_be_bytes())
    }
}

impl Record {
    fn write(self, engine: &Embedded) {
        engine
            .write(&mut { self })
            .unwrap()
            .unwrap()
            .wait()
            .unwrap();
    }
}

/// The numbers of the records behind a position, at most so many of them; the position is then behind them.
fn records(engine: &Embedded, position: &mut FeedPosition, most: usize) -> Vec<u32> {
    let mut found = Vec::new();
    let after = position.clone();
    let snapshot = engine.snapshot().unwrap();
    let read = engine.changes(&snapshot, &after, |behind, record| {
        *position = behind.clone();
        found.push(u32::from_be_bytes(record.try_into().unwrap()));
        found.len() < most
    });
    read.unwrap();
    found
}

#[test]
fn the_feed_of_several_stores_is_in_the_order_in_which_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let options = sapwood_store::Options::new();
    let stores = |number: u32| match number % 5 {
        3 => StoreSet::all(3),
        4 => StoreSet::one(1).with(StoreSet::one(2)),
        store => StoreSet::one(store as u16),
    };
    let engine = Embedded::create(folder.path(), 1).unwrap();
    (0..3).for_each(|number| Record(StoreSet::FIRST, number).write(&engine));
    drop(engine);
    // What is from before there were several comes first.
    for _ in 0..2 {
        drop(Embedded::add_store(folder.path(), &options).unwrap());
    }
    let mut number = 3;
    for _ in 0..3 {
        let engine = Embedded::open(folder.path(), &options).unwrap();
        for _ in 0..20 {
            Record(stores(number * 7), number).write(&engine);
            number += 1;
        }
        for most in 1..8 {
            let (mut position, mut seen) = (FeedPosition::default(), Vec::new());
            loop {
                let some = records(&engine, &mut position, most);
                if some.is_empty() {
                    break;
                }
                seen.extend(some);
            }
            assert_eq!(seen, Vec::from_iter(0..number), "{most} at a time");
        }
    }
}

#[test]
fn several_stores_are_opened_for_writing_once_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let options = sapwood_store::Options::new().create(false);
    let one = Embedded::create(folder.path(), 1).unwrap();
    let another = Embedded::open(folder.path(), &options).unwrap();
    Record(StoreSet::FIRST, 0).write(&one);
    Record(StoreSet::FIRST, 1).write(&another);
    drop((one, another));
    let (several, _) = Embedded::add_store(folder.path(), &options).unwrap();
    let refused = Embedded::open(folder.path(), &options).unwrap_err();
    assert!(refused.to_string().contains("another process"), "{refused}");
    // Who reads is not in the way, nor is a handle that is gone.
    let reader = Embedded::open(folder.path(), &options.clone().read_only(true)).unwrap();
    let clone = several.clone();
    drop(several);
    assert!(Embedded::open(folder.path(), &options).is_err());
    Record(StoreSet::all(2), 2).write(&clone);
    drop(clone);
    let again = Embedded::open(folder.path(), &options).unwrap();
    Record(StoreSet::all(2), 3).write(&again);
    let seen = records(&reader, &mut FeedPosition::default(), 10);
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
fn a_reader_of_the_feed_misses_nothing_while_the_stores_are_written() {
    const EACH: u32 = 200;
    let engine = Embedded::in_memory_with(3).unwrap();
    let (mut position, mut seen) = (FeedPosition::default(), Vec::new());
    std::thread::scope(|scope| {
        for store in 0..3 {
            let engine = &engine;
            scope.spawn(move || {
                for number in 0..EACH {
                    let stores = match number % 10 {
                        9 => StoreSet::all(3),
                        _ => StoreSet::one(store),
                    };
                    Record(stores, u32::from(store) * EACH + number).write(engine);
                }
            });
        }
        while seen.len() < 3 * EACH as usize {
            seen.extend(records(&engine, &mut position, 7));
        }
    });
    assert_eq!(records(&engine, &mut position, 1), []);
    for store in 0..3 {
        let of_one = seen.iter().filter(|record| *record / EACH == store);
        assert!(of_one.copied().eq(store * EACH..(store + 1) * EACH));
    }
}
