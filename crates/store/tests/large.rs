//! Transactions of thousands of pages, a part of whose work is done by a second thread.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use sapwood_store::{Env, Options, TreeId, TreeKind, WriteTxn};

const RECORDS: u32 = 30_000;
const DATA: &str = "data-0";

fn options() -> Options {
    Options::new().idle_checkpoint(Some(Duration::from_secs(60 * 60)))
}

fn value(number: u32, round: u32) -> Vec<u8> {
    vec![(number + round) as u8; 60 + number as usize % 90]
}

fn tree(txn: &mut WriteTxn) -> TreeId {
    match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
    }
}

/// Every `apart`th record, in an order that returns to pages again and again.
fn numbers(apart: usize) -> impl Iterator<Item = u32> {
    let steps = (0..RECORDS).step_by(apart);
    steps.map(|step| step * 7919 % RECORDS)
}

fn put(txn: &mut WriteTxn, apart: usize, round: u32) {
    let tree = tree(txn);
    for number in numbers(apart) {
        txn.put(tree, &number.to_be_bytes(), &value(number, round))
            .unwrap();
    }
}

fn assert_holds(env: &Env, rounds: &[u32]) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("t").unwrap().unwrap();
    assert_eq!(tree.record().records, u64::from(RECORDS));
    for (number, round) in (0..).zip(rounds) {
        let found = tree.get(&u32::to_be_bytes(number)).unwrap();
        assert_eq!(found, Some(&value(number, *round)[..]));
    }
}

fn copy(from: &Path, to: &Path, name: &str) {
    fs::copy(from.join(name), to.join(name)).unwrap();
}

#[test]
fn file_and_log_hold_what_two_threads_have_finished() {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (here, there) = (here.path(), there.path());
    let env = Env::open(here, &options()).unwrap();
    let mut txn = env.write().unwrap();
    put(&mut txn, 1, 0);
    txn.commit().unwrap().wait_durable().unwrap();
    env.checkpoint().unwrap();
    copy(here, there, DATA);
    let mut txn = env.write().unwrap();
    put(&mut txn, 20, 1);
    // This one comes to nothing, as does a part of the other.
    let savepoint = txn.savepoint();
    put(&mut txn, 7, 2);
    txn.rollback_to(&savepoint);
    put(&mut txn, 40, 3);
    txn.commit().unwrap().wait_durable().unwrap();
    let mut txn = env.write().unwrap();
    put(&mut txn, 6, 4);
    drop(txn);
    let mut txn = env.write().unwrap();
    put(&mut txn, 60, 5);
    txn.commit().unwrap().wait_durable().unwrap();
    let mut rounds = vec![0; RECORDS as usize];
    for (apart, round) in [(20, 1), (40, 3), (60, 5)] {
        numbers(apart).for_each(|number| rounds[number as usize] = round);
    }
    assert_holds(&env, &rounds);
    // The file as it was before these transactions, with the room that it has got since, becomes the same with the log.
    for entry in here.read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != DATA && !name.contains("lock") {
            copy(here, there, &name);
        }
    }
    let size = fs::metadata(here.join(DATA)).unwrap().len();
    let older = fs::File::options().write(true).open(there.join(DATA));
    older.unwrap().set_len(size).unwrap();
    assert_holds(&Env::open(there, &options()).unwrap(), &rounds);
}
