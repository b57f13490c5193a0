//! Transactions of many pages, in files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use sapwood_testkit::storage::recording::{Disk, Fault};
use sapwood_wal::storage::Storage;
use tempfile::TempDir;

use crate::env::Env;
use crate::env::options::Options;
use crate::error::Error;
use crate::format::tree_record::TreeKind;
use crate::ids::PageNo;
use crate::sync::Arc;
use crate::txn::pages::neighbours;
use crate::txn::{TreeId, WriteTxn};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Without checkpoints unless they are asked for.
fn options() -> Options {
    Options::new()
        .idle_checkpoint(Some(Duration::from_secs(60 * 60)))
        .idle_compaction(None)
}

fn tree(txn: &mut WriteTxn) -> TreeId {
    match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Puts so many records, from this one on and so far apart.
    Put(u32, u32, u32),
    Delete(u32, u32),
    /// Begins a savepoint, or returns to the newest one.
    Save,
    Return,
    Commit,
    Abort,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..4000_u32;
    let step = prop_oneof![
        6 => (key(), 1..400_u32, 1..40_u32).prop_map(|(from, count, apart)| Step::Put(from, count, apart)),
        3 => (key(), 1..200_u32).prop_map(|(from, count)| Step::Delete(from, count)),
        1 => Just(Step::Save),
        1 => Just(Step::Return),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
    ];
    prop::collection::vec(step, 1..40)
}

fn key(number: u32) -> [u8; 4] {
    (number % 4000).to_be_bytes()
}

fn value(number: u32, serial: usize) -> Vec<u8> {
    let bytes = 20 + (number as usize * 7 + serial) % 200;
    vec![(number as usize + serial) as u8; bytes]
}

/// Does some steps, of which a model is the result.
fn work(env: &Env, steps: &[Step]) -> Model {
    let mut committed = Model::new();
    let mut serial = 0;
    let mut steps = steps.iter().peekable();
    while steps.peek().is_some() {
        let mut txn = env.write().unwrap();
        let tree = tree(&mut txn);
        let mut model = committed.clone();
        let mut saved = None;
        let mut is_kept = true;
        for step in steps.by_ref() {
            serial += 1;
            match step {
                Step::Put(from, count, apart) => {
                    for number in (*from..).step_by(*apart as usize).take(*count as usize) {
                        let value = value(number, serial);
                        txn.put(tree, &key(number), &value).unwrap();
                        model.insert(key(number).to_vec(), value);
                    }
                }
                Step::Delete(from, count) => {
                    for number in *from..from + count {
                        txn.delete(tree, &key(number)).unwrap();
                        model.remove(&key(number)[..]);
                    }
                }
                Step::Save => saved = Some((txn.savepoint(), model.clone())),
                Step::Return => {
                    if let Some((savepoint, then)) = &saved {
                        txn.rollback_to(savepoint);
                        model.clone_from(then);
                    }
                }
                Step::Commit => break,
                Step::Abort => {
                    is_kept = false;
                    break;
                }
            }
        }
        if is_kept {
            txn.commit().unwrap().wait_durable().unwrap();
            committed = model;
        }
    }
    committed
}

fn assert_holds(env: &Env, model: &Model) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("t").unwrap().unwrap();
    let mut cursor = tree.cursor();
    for (key, value) in model {
        cursor.next().unwrap();
        assert_eq!(cursor.record().unwrap(), Some((&key[..], &value[..])));
    }
    assert!(!cursor.next().unwrap());
}

fn copy_files(from: &Path, to: &Path, is_wanted: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if is_wanted(name.to_str().unwrap()) {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

fn is_data(name: &str) -> bool {
    name == crate::env::file_names::DATA_NAME
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Both in the file and in the log: a file from before the transactions becomes the same with the log.
    #[test]
    fn pages_of_large_transactions_are_whole(steps in steps()) {
        let [here, there] = [(); 2].map(|()| TempDir::new().unwrap());
        let env = Env::open(here.path(), &options()).unwrap();
        let mut txn = env.write().unwrap();
        tree(&mut txn);
        txn.commit().unwrap().wait_durable().unwrap();
        env.checkpoint().unwrap();
        copy_files(here.path(), there.path(), is_data);
        let model = work(&env, &steps);
        assert_holds(&env, &model);
        copy_files(here.path(), there.path(), |name| !is_data(name) && !name.contains("lock"));
        // What it has grown by since is durable before anything is logged that needs it.
        let size = fs::metadata(here.path().join(crate::env::file_names::DATA_NAME)).unwrap().len();
        let older = fs::File::options().write(true).open(there.path().join(crate::env::file_names::DATA_NAME));
        older.unwrap().set_len(size).unwrap();
        let replayed = Env::open(there.path(), &options()).unwrap();
        assert_holds(&replayed, &model);
    }
}

#[test]
fn others_may_read_in_a_transaction() {
    let folder = TempDir::new().unwrap();
    let env = Env::open(folder.path(), &options()).unwrap();
    let mut txn = env.write().unwrap();
    let tree = tree(&mut txn);
    for round in 0..20_u32 {
        for number in 0..2000 {
            let number = number * 37 % 2000;
            txn.put(tree, &key(number), &value(number, round as usize))
                .unwrap();
        }
        let txn = &txn;
        let read = || {
            for number in 0..2000 {
                let found = txn.get(tree, &key(number)).unwrap();
                assert_eq!(found, Some(&value(number, round as usize)[..]));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(read);
            scope.spawn(read);
        });
    }
    txn.commit().unwrap().wait_durable().unwrap();
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn fewer_neighbours_are_written_together_if_they_are_new() {
    let pages = [10, 11, 12, 14, 15, 20, 21, 22].map(|number| (PageNo(number), PageNo(0)));
    let lengths = |before| -> Vec<usize> {
        let runs = neighbours(&pages, before);
        runs.map(<[_]>::len).collect()
    };
    assert_eq!(lengths(30), [3, 2, 3]);
    assert_eq!(lengths(12), [2, 1, 2, 3]);
    assert_eq!(lengths(0), [2, 1, 2, 3]);
}

#[test]
fn a_page_that_cannot_be_written_fails_the_commit_and_nothing_else() {
    let disk = Disk::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let env = Env::on_storage(storage, &options()).unwrap();
    let fill = |txn: &mut WriteTxn, serial| {
        let tree = tree(txn);
        (0..2000_u32).try_for_each(|number| {
            let number = number * 37 % 2000;
            txn.put(tree, &key(number), &value(number, serial))
                .map(drop)
        })
    };
    // The file has room for all that follows.
    for _ in 0..3 {
        let mut txn = env.write().unwrap();
        fill(&mut txn, 0).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
        env.checkpoint().unwrap();
    }
    let mut txn = env.write().unwrap();
    disk.fail(0, Fault::NoSpace, true);
    let failed = fill(&mut txn, 1).and_then(|()| txn.commit().map(drop));
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    disk.heal();
    let model: Model = (0..2000)
        .map(|number| (key(number).to_vec(), value(number, 0)))
        .collect();
    assert_holds(&env, &model);
    let mut txn = env.write().unwrap();
    fill(&mut txn, 2).unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    let model: Model = (0..2000)
        .map(|number| (key(number).to_vec(), value(number, 2)))
        .collect();
    assert_holds(&env, &model);
}
