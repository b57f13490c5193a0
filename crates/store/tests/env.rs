//! What users of an environment may rely on.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use sapwood_store::{Durability, Env, Error, Options, Snapshot, TreeKind};
use tempfile::TempDir;

const PLAIN: TreeKind = TreeKind::COMPACT;
const COUNTED: TreeKind = TreeKind::COUNTED;

fn options() -> Options {
    Options::new().log_bytes(1 << 20).idle_checkpoint(None)
}

fn folder() -> (TempDir, Env) {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    (folder, env)
}

fn fill(env: &Env, tree: &str, records: std::ops::Range<u32>) {
    let mut txn = env.write().unwrap();
    let id = match txn.tree(tree).unwrap() {
        Some(id) => id,
        None => txn.create_tree(tree, COUNTED).unwrap(),
    };
    for n in records {
        let value = vec![n as u8; n as usize % 300];
        assert!(txn.put(id, &n.to_be_bytes(), &value).unwrap());
    }
    txn.commit().unwrap().wait_durable().unwrap();
}

fn keys(env: &Env, tree: &str) -> Vec<u32> {
    let snapshot = env.read().unwrap();
    let Some(tree) = snapshot.tree(tree).unwrap() else {
        return Vec::new();
    };
    let mut cursor = tree.cursor();
    let mut keys = Vec::new();
    while cursor.next().unwrap() {
        let (key, value) = cursor.record().unwrap().unwrap();
        let key = u32::from_be_bytes(key.try_into().unwrap());
        assert_eq!(value, vec![key as u8; key as usize % 300]);
        keys.push(key);
    }
    assert_eq!(tree.record().records, keys.len() as u64);
    keys
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn commits_are_there_after_reopening() {
    let (folder, env) = folder();
    let path = folder.path().join("env");
    fill(&env, "numbers", 0..1000);
    fill(&env, "others", 5..7);
    assert_clean(&env);
    drop(env);
    let env = Env::open(&path, &options()).unwrap();
    assert_eq!(keys(&env, "numbers"), (0..1000).collect::<Vec<_>>());
    assert_eq!(
        env.read().unwrap().tree_names().unwrap(),
        [b"numbers".to_vec(), b"others".to_vec()]
    );
    fill(&env, "numbers", 1000..1100);
    let before = env.stat().unwrap().checkpoints;
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    let checkpoints = env.stat().unwrap().checkpoints - before;
    assert_eq!(checkpoints, 1, "the second one had nothing to do");
    fill(&env, "numbers", 1100..1200);
    assert_clean(&env);
    drop(env);
    let env = Env::open(&path, &options().create(false)).unwrap();
    assert_eq!(keys(&env, "numbers"), (0..1200).collect::<Vec<_>>());
    assert_clean(&env);
}

#[test]
fn in_memory_it_is_the_same() {
    let env = Env::in_memory(&Options::new()).unwrap();
    for round in 0..50 {
        fill(&env, "numbers", round * 100..round * 100 + 100);
    }
    assert_eq!(keys(&env, "numbers"), (0..5000).collect::<Vec<_>>());
    env.checkpoint().unwrap();
    assert_clean(&env);
}

#[test]
fn a_missing_environment_is_created_only_if_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let error = Env::open(folder.path().join("none"), &options().create(false)).unwrap_err();
    assert!(matches!(error, Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound));
    let error = Env::open(folder.path(), &options().create(false)).unwrap_err();
    assert!(matches!(error, Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "left a trace");
}

#[test]
fn opening_twice_gives_the_same_environment() {
    let (folder, env) = folder();
    let path = folder.path().join("env");
    let again = Env::open(path.join("..").join("env"), &options()).unwrap();
    fill(&env, "numbers", 0..10);
    assert_eq!(keys(&again, "numbers").len(), 10);
    let txn = env.write().unwrap();
    assert!(again.try_write().unwrap().is_none(), "two writers");
    drop(txn);
    drop(env);
    fill(&again, "numbers", 10..20);
    assert_eq!(keys(&again, "numbers").len(), 20);
}

#[test]
fn a_snapshot_does_not_change() {
    let (_folder, env) = folder();
    fill(&env, "numbers", 0..100);
    let before = env.read().unwrap();
    for round in 0..30 {
        let mut txn = env.write().unwrap();
        let id = txn.tree("numbers").unwrap().unwrap();
        for n in 0_u32..100 {
            txn.put(id, &n.to_be_bytes(), &[round; 100]).unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
        if round % 10 == 5 {
            env.checkpoint().unwrap();
        }
    }
    let tree = before.tree("numbers").unwrap().unwrap();
    for n in 0_u32..100 {
        let value = tree.get(&n.to_be_bytes()).unwrap().unwrap();
        assert_eq!(value, vec![n as u8; n as usize]);
    }
    let stat = env.stat().unwrap();
    assert_eq!(stat.readers.len(), 1);
    assert_eq!(stat.readers[0].commit, before.commit());
    assert_eq!(stat.readers[0].pid, std::process::id());
    assert_eq!(stat.readers[0].age, 30);
    // It may end in another thread, and outlive the environment.
    drop(env);
    std::thread::spawn(move || {
        assert!(before.tree("numbers").unwrap().is_some());
        drop(before);
    })
    .join()
    .unwrap();
}

#[test]
fn a_dropped_transaction_leaves_no_trace() {
    let (_folder, env) = folder();
    fill(&env, "numbers", 0..100);
    let commit = env.read().unwrap().commit();
    let mut txn = env.write().unwrap();
    let id = txn.tree("numbers").unwrap().unwrap();
    for n in 0_u32..100 {
        txn.delete(id, &n.to_be_bytes()).unwrap();
    }
    txn.create_tree("more", PLAIN).unwrap();
    drop(txn);
    assert_eq!(keys(&env, "numbers").len(), 100);
    assert_eq!(env.read().unwrap().commit(), commit);
    assert_clean(&env);
    // Neither does one without changes.
    let ticket = env.write().unwrap().commit().unwrap();
    assert_eq!(ticket.wait_durable().unwrap(), commit);
}

#[test]
fn a_commit_is_visible_when_it_is_durable() {
    let (_folder, env) = folder();
    fill(&env, "numbers", 0..1);
    let mut tickets = Vec::new();
    for n in 1_u32..200 {
        let mut txn = env.write().unwrap();
        let id = txn.tree("numbers").unwrap().unwrap();
        // The next transaction sees the one before at once.
        assert!(txn.get(id, &(n - 1).to_be_bytes()).unwrap().is_some());
        txn.put(id, &n.to_be_bytes(), &vec![n as u8; n as usize])
            .unwrap();
        tickets.push(txn.commit().unwrap());
    }
    assert!(!tickets[198].is_durable());
    let last = tickets.pop().unwrap();
    std::thread::spawn(move || last.wait_durable().unwrap())
        .join()
        .unwrap();
    assert!(tickets[197].is_durable());
    assert_eq!(keys(&env, "numbers").len(), 200);
    assert!(
        env.stat().unwrap().log_syncs < 50,
        "the commits share syncs"
    );
}

#[test]
fn a_relaxed_commit_is_visible_at_once_and_durable_later() {
    let (_folder, env) = folder();
    let put = |n: u32, durability| {
        let mut txn = env.write().unwrap();
        let id = match txn.tree("numbers").unwrap() {
            Some(id) => id,
            None => txn.create_tree("numbers", COUNTED).unwrap(),
        };
        txn.put(id, &n.to_be_bytes(), &vec![n as u8; n as usize % 300])
            .unwrap();
        txn.commit_with(durability).unwrap()
    };
    let syncs = || env.stat().unwrap().log_syncs;
    let before = syncs();
    let tickets: Vec<_> = (0..100).map(|n| put(n, Durability::Relaxed)).collect();
    assert_eq!(syncs(), before, "nobody has waited for the disk");
    assert!(tickets[99].is_visible() && !tickets[99].is_durable());
    assert_eq!(keys(&env, "numbers"), (0..100).collect::<Vec<_>>());
    // Behind a commit that must be durable before it is seen, none is seen.
    let durable = put(100, Durability::Durable);
    let relaxed = put(101, Durability::Relaxed);
    assert!(!durable.is_visible() && !relaxed.is_visible());
    assert_eq!(keys(&env, "numbers").len(), 100);
    durable.wait_durable().unwrap();
    assert!(relaxed.is_visible());
    assert_eq!(keys(&env, "numbers").len(), 102);
    assert!(tickets.iter().all(sapwood_store::Ticket::is_durable));
    assert_eq!(syncs(), before + 1, "one sync for all");
    let last = put(102, Durability::Relaxed);
    assert_eq!(env.sync().unwrap(), last.commit());
    assert!(last.is_durable());
    assert_clean(&env);
}

#[test]
fn large_commits_that_nobody_waits_for_soon_pass_by_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let options = options()
        .log_bytes(64 << 20)
        .idle_checkpoint(None)
        .durability(Durability::Relaxed);
    let env = Env::open(folder.path().join("env"), &options).unwrap();
    let commit = |round: u32| {
        let mut txn = env.write().unwrap();
        let id = match txn.tree("numbers").unwrap() {
            Some(id) => id,
            None => txn.create_tree("numbers", PLAIN).unwrap(),
        };
        for n in 0..200 {
            let key = (round * 200 + n).to_be_bytes();
            txn.put(id, &key, &[7; 1800]).unwrap();
        }
        drop(txn.commit().unwrap());
        env.stat().unwrap().log_bytes_ever
    };
    let logged: Vec<u64> = (0..20).map(commit).collect();
    assert!(
        logged[2] > logged[1],
        "the first ones are logged: {logged:?}"
    );
    assert_eq!(logged[19], logged[10], "{logged:?}");
    env.sync().unwrap();
    let snapshot = env.read().unwrap();
    let numbers = snapshot.tree("numbers").unwrap().unwrap();
    assert_eq!(numbers.record().records, 4_000);
    assert!(env.check().unwrap().is_clean());
}

#[test]
fn relaxed_commits_become_durable_by_themselves() {
    // Also while the log is written for want of room in memory all the time, long before a checkpoint is due.
    for (log_bytes, value_bytes) in [(1 << 20, 4), (64 << 20, 1800)] {
        let folder = tempfile::tempdir().unwrap();
        let options = options()
            .log_bytes(log_bytes)
            .idle_checkpoint(Some(Duration::from_millis(20)))
            .durability(Durability::Relaxed);
        let env = Env::open(folder.path().join("env"), &options).unwrap();
        let mut first = None;
        // It does not even need a pause.
        for n in 0_u32.. {
            let mut txn = env.write().unwrap();
            let id = match txn.tree("numbers").unwrap() {
                Some(id) => id,
                None => txn.create_tree("numbers", PLAIN).unwrap(),
            };
            txn.put(id, b"number", &vec![n as u8; value_bytes]).unwrap();
            let ticket = txn.commit().unwrap();
            assert!(ticket.is_visible());
            if first.get_or_insert(ticket).is_durable() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_store_that_rests_gives_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let options = options()
        .idle_checkpoint(Some(Duration::from_millis(5)))
        .idle_compaction(Some(Duration::from_millis(10)));
    let env = Env::open(folder.path().join("env"), &options).unwrap();
    let key = |n: u32| n.wrapping_mul(0x9e37_79b9).to_be_bytes();
    let mut txn = env.write().unwrap();
    let id = txn.create_tree("numbers", PLAIN).unwrap();
    for n in 0..60_000 {
        txn.put(id, &key(n), &[n as u8; 100]).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    let full = env.read().unwrap().store_bytes();
    let mut txn = env.write().unwrap();
    let id = txn.tree("numbers").unwrap().unwrap();
    for n in (0..60_000).filter(|n| n % 50 > 0) {
        txn.delete(id, &key(n)).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();

    let check = |snapshot: &Snapshot| {
        let tree = snapshot.tree("numbers").unwrap().unwrap();
        for n in 0..60_000_u32 {
            let there = [n as u8; 100];
            let value = tree.get(&key(n)).unwrap();
            assert_eq!(value, (n % 50 == 0).then_some(&there[..]));
        }
    };

    // A reader keeps the pages, and is left alone.
    let reader = env.read().unwrap();
    let busy = reader.commit();
    while env.read().unwrap().commit().0 < busy.0 + 2 {
        std::thread::yield_now();
    }
    check(&reader);
    drop(reader);
    // A commit tells that something has changed, so that it does not wait longer and longer.
    let mut txn = env.write().unwrap();
    txn.create_tree("another", PLAIN).unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    while env.read().unwrap().store_bytes() > full / 2 {
        std::thread::yield_now();
    }
    check(&env.read().unwrap());
    assert_clean(&env);
    let file = folder.path().join("env").join("data-0");
    drop(env);
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!(bytes < full / 2, "{bytes} of {full}");
}

#[test]
fn trees_come_and_go() {
    let (_folder, env) = folder();
    let mut txn = env.write().unwrap();
    assert!(matches!(
        txn.create_tree("", PLAIN),
        Err(Error::TreeName(0))
    ));
    assert!(matches!(
        txn.create_tree("x".repeat(512), PLAIN),
        Err(Error::TreeName(512))
    ));
    let id = txn.create_tree("a", PLAIN).unwrap();
    assert!(matches!(
        txn.create_tree("a", COUNTED),
        Err(Error::TreeExists(_))
    ));
    assert!(txn.put(id, b"k", b"v").unwrap());
    assert!(!txn.put(id, b"k", b"w").unwrap());
    assert!(!txn.insert(id, b"k", b"x").unwrap());
    assert_eq!(txn.get(id, b"k").unwrap(), Some(&b"w"[..]));
    txn.commit().unwrap().wait_durable().unwrap();

    let mut txn = env.write().unwrap();
    let id = txn.tree("a").unwrap().unwrap();
    assert!(txn.drop_tree("a").unwrap());
    assert!(!txn.drop_tree("a").unwrap());
    assert!(matches!(txn.get(id, b"k"), Err(Error::NoSuchTree)));
    let id = txn.create_tree("a", COUNTED).unwrap();
    assert_eq!(txn.get(id, b"k").unwrap(), None);
    txn.create_tree("b", PLAIN).unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    let snapshot = env.read().unwrap();
    assert_eq!(snapshot.tree_names().unwrap(), [b"a", b"b"]);
    assert!(snapshot.tree("a").unwrap().unwrap().record().kind.counted);
    assert_clean(&env);
}

#[test]
fn savepoints_nest_and_are_returned_to() {
    let (_folder, env) = folder();
    fill(&env, "numbers", 0..500);
    let mut txn = env.write().unwrap();
    let id = txn.tree("numbers").unwrap().unwrap();
    let state = |txn: &sapwood_store::WriteTxn| {
        let mut cursor = txn.view(id).unwrap().cursor();
        let mut records = BTreeMap::new();
        while cursor.next().unwrap() {
            let (key, value) = cursor.record().unwrap().unwrap();
            records.insert(key.to_vec(), value.to_vec());
        }
        records
    };
    txn.delete(id, &7_u32.to_be_bytes()).unwrap();
    let at_outer = state(&txn);
    let outer = txn.savepoint();
    for n in 100_u32..300 {
        txn.delete(id, &n.to_be_bytes()).unwrap();
    }
    let at_inner = state(&txn);
    let inner = txn.savepoint();
    for n in 0_u32..2000 {
        txn.put(id, &n.to_be_bytes(), &[n as u8; 900]).unwrap();
    }
    let large = txn.create_tree("large", PLAIN).unwrap();
    txn.put(large, b"k", &vec![3; 100_000]).unwrap();
    txn.put(large, b"k", &vec![4; 200_000]).unwrap();
    txn.rollback_to(&inner);
    assert_eq!(state(&txn), at_inner);
    assert!(matches!(txn.get(large, b"k"), Err(Error::NoSuchTree)));
    assert_eq!(txn.tree("large").unwrap(), None);
    // Again, and then keep it.
    txn.put(id, &9999_u32.to_be_bytes(), &[1]).unwrap();
    let released = state(&txn);
    txn.release(inner);
    assert_eq!(state(&txn), released);
    txn.rollback_to(&outer);
    assert_eq!(state(&txn), at_outer);
    txn.put(id, &8_u32.to_be_bytes(), &[8; 8]).unwrap();
    txn.release(outer);
    txn.commit().unwrap().wait_durable().unwrap();
    assert_clean(&env);
    let expected: Vec<u32> = (0..500).filter(|&n| n != 7).collect();
    assert_eq!(keys(&env, "numbers"), expected);
}

#[test]
fn an_update_at_a_time_as_in_a_batch() {
    let (_folder, env) = folder();
    fill(&env, "numbers", 0..3000);
    let mut txn = env.write().unwrap();
    let id = txn.tree("numbers").unwrap().unwrap();
    for n in 0_u32..3000 {
        let savepoint = txn.savepoint();
        txn.delete(id, &n.to_be_bytes()).unwrap();
        txn.put(
            id,
            &(n + 10_000).to_be_bytes(),
            &vec![(n + 10_000) as u8; (n as usize + 10_000) % 300],
        )
        .unwrap();
        if n % 3 == 0 {
            txn.rollback_to(&savepoint);
        }
        txn.release(savepoint);
    }
    txn.commit().unwrap().wait_durable().unwrap();
    assert_clean(&env);
    let kept = (0..3000).filter(|n| n % 3 == 0);
    let moved = (0..3000).filter(|n| n % 3 != 0).map(|n| n + 10_000);
    assert_eq!(keys(&env, "numbers"), kept.chain(moved).collect::<Vec<_>>());
}

#[test]
fn a_refused_argument_does_not_spoil_the_transaction() {
    let (_folder, env) = folder();
    let mut txn = env.write().unwrap();
    let id = txn.create_tree("a", PLAIN).unwrap();
    assert!(matches!(
        txn.put(id, &[0; 5000], b""),
        Err(Error::KeyTooLong(5000))
    ));
    txn.put(id, b"k", b"v").unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    assert_eq!(env.check().unwrap().records, 1);
}

#[test]
fn the_file_stays_at_a_steady_size() {
    let (_folder, env) = folder();
    fill(&env, "numbers", 0..2000);
    let mut sizes = Vec::new();
    for round in 0_u32..1500 {
        let mut txn = env.write().unwrap();
        let id = txn.tree("numbers").unwrap().unwrap();
        for n in 0_u32..20 {
            let key = (round * 7919 + n * 104_729) % 2000;
            txn.put(id, &key.to_be_bytes(), &vec![key as u8; key as usize % 300])
                .unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
        sizes.push(env.stat().unwrap().pages);
    }
    env.checkpoint().unwrap();
    assert_clean(&env);
    // Three states are kept: the visible one and those of the two meta pages, which differ from round 900 on at the
    // latest.
    assert!(sizes[1499] < 4 * sizes[0], "{sizes:?}");
    assert!(sizes[1499] < sizes[900] + sizes[900] / 10, "{sizes:?}");
}

#[test]
fn values_of_any_size_come_and_go() {
    let (folder, env) = folder();
    let sizes = [0, 1, 1000, 4000, 4096, 5000, 100_000, 1 << 20, 3 << 20];
    for round in 0..6_usize {
        let mut txn = env.write().unwrap();
        let id = match txn.tree("values").unwrap() {
            Some(id) => id,
            None => txn.create_tree("values", PLAIN).unwrap(),
        };
        for (at, size) in sizes.iter().enumerate() {
            let size = sizes[(at + round) % sizes.len()].min(*size + 1000);
            txn.put(id, &[at as u8], &vec![round as u8 ^ at as u8; size])
                .unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
        assert_clean(&env);
    }
    drop(env);
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("values").unwrap().unwrap();
    for (at, size) in sizes.iter().enumerate() {
        let size = sizes[(at + 5) % sizes.len()].min(*size + 1000);
        let value = tree.get(&[at as u8]).unwrap().unwrap();
        assert_eq!(value, vec![5 ^ at as u8; size]);
    }
    assert_clean(&env);
}

#[test]
fn a_transaction_larger_than_the_log() {
    let (folder, env) = folder();
    fill(&env, "before", 0..10);
    fill(&env, "numbers", 0..50_000);
    fill(&env, "after", 0..10);
    assert_clean(&env);
    drop(env);
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    assert_eq!(keys(&env, "numbers").len(), 50_000);
    assert_eq!(keys(&env, "after").len(), 10);
    assert_clean(&env);
}

#[test]
fn many_commits_go_round_the_log() {
    let (folder, env) = folder();
    for round in 0..400 {
        fill(&env, "numbers", round * 50..round * 50 + 50);
    }
    assert!(env.stat().unwrap().checkpoint.0 > 100);
    drop(env);
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    assert_eq!(keys(&env, "numbers").len(), 20_000);
    assert_clean(&env);
}

#[test]
fn a_bulk_load() {
    let (folder, env) = folder();
    fill(&env, "numbers", 0..100);
    let mut load = env.bulk().unwrap();
    for (name, kind) in [("one", PLAIN), ("two", COUNTED)] {
        let mut tree = load.tree(name, kind).unwrap();
        for n in 0_u32..20_000 {
            let value = vec![n as u8; n as usize % 300];
            tree.push(&mut load, &n.to_be_bytes(), &value).unwrap();
        }
        for (key, bytes) in [(u32::MAX - 1, 50_000), (u32::MAX, 1_000_000)] {
            let value = vec![255; bytes];
            tree.push(&mut load, &key.to_be_bytes(), &value).unwrap();
        }
        assert_eq!(tree.finish(&mut load).unwrap(), 20_002);
    }
    // Several at once.
    let mut trees = ["three", "four", "five"].map(|name| load.tree(name, PLAIN).unwrap());
    for n in 0_u32..3_000 {
        for (tree, bytes) in trees.iter_mut().zip([500, 20, 3_000]) {
            let value = vec![n as u8; bytes];
            tree.push(&mut load, &n.to_be_bytes(), &value).unwrap();
        }
    }
    for tree in trees {
        assert_eq!(tree.finish(&mut load).unwrap(), 3_000);
    }
    assert!(matches!(
        load.tree("numbers", PLAIN),
        Err(Error::TreeExists(_))
    ));
    load.commit().unwrap();
    assert_clean(&env);
    fill(&env, "one", 20_000..20_100);
    drop(env);
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    let snapshot = env.read().unwrap();
    assert_eq!(
        snapshot.tree("one").unwrap().unwrap().record().records,
        20_102
    );
    assert_eq!(
        snapshot
            .tree("two")
            .unwrap()
            .unwrap()
            .rank(&500_u32.to_be_bytes())
            .unwrap(),
        500
    );
    assert_clean(&env);
    for (name, bytes) in [("three", 500), ("four", 20), ("five", 3_000)] {
        let tree = snapshot.tree(name).unwrap().unwrap();
        let value = tree.get(&2_999_u32.to_be_bytes()).unwrap();
        assert_eq!(value, Some(&vec![2_999_u32 as u8; bytes][..]));
    }
    // One that is given up, and one that is not in order.
    drop(snapshot);
    let mut load = env.bulk().unwrap();
    let mut tree = load.tree("six", PLAIN).unwrap();
    tree.push(&mut load, b"b", b"").unwrap();
    assert!(matches!(load.commit(), Err(Error::TxnFailed)));
    let mut load = env.bulk().unwrap();
    let mut tree = load.tree("six", PLAIN).unwrap();
    tree.push(&mut load, b"b", b"").unwrap();
    let unsorted = tree.push(&mut load, b"a", b"");
    assert!(matches!(unsorted, Err(Error::NotSorted(_))));
    assert!(matches!(load.commit(), Err(Error::TxnFailed)));
    assert_eq!(env.read().unwrap().tree_names().unwrap().len(), 6);
    assert_clean(&env);
}

#[test]
fn a_backup_is_restored() {
    let (folder, env) = folder();
    fill(&env, "numbers", 0..3000);
    let file = folder.path().join("backup");
    let writer = {
        let env = env.clone();
        std::thread::spawn(move || {
            for round in 0..20 {
                fill(&env, "more", round * 100..round * 100 + 100);
            }
        })
    };
    let commit = env.backup(&file).unwrap();
    assert!(env.backup(&file).is_err(), "wrote over a file");
    writer.join().unwrap();
    let copy = folder.path().join("copy");
    assert_eq!(sapwood_store::restore(&file, &copy).unwrap(), commit);
    assert!(
        sapwood_store::restore(&file, &copy).is_err(),
        "restored over files"
    );
    for _ in 0..2 {
        let restored = Env::open(&copy, &options()).unwrap();
        assert_eq!(keys(&restored, "numbers").len(), 3000);
        assert_eq!(keys(&restored, "more").len() % 100, 0);
        fill(&restored, "numbers", 3000..3001);
        assert_clean(&restored);
        let mut txn = restored.write().unwrap();
        let id = txn.tree("numbers").unwrap().unwrap();
        txn.delete(id, &3000_u32.to_be_bytes()).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
    }
    // Any damage is found before the copy becomes an environment.
    let good = std::fs::read(&file).unwrap();
    for at in (0..good.len()).step_by(good.len() / 50) {
        let mut bad = good.clone();
        bad[at] ^= 4;
        std::fs::write(&file, bad).unwrap();
        let dest = folder.path().join("bad");
        if sapwood_store::restore(&file, &dest).is_ok() {
            // It was a page that is free, or one of two meta pages.
            let restored = Env::open(&dest, &options()).unwrap();
            assert_eq!(keys(&restored, "numbers").len(), 3000);
            assert_clean(&restored);
            drop(restored);
            std::fs::remove_dir_all(&dest).unwrap();
        } else {
            assert_eq!(dest.read_dir().unwrap().count(), 0);
        }
    }
    std::fs::write(&file, &good[..20 * 4096]).unwrap();
    assert!(sapwood_store::restore(&file, folder.path().join("short")).is_err());
}
