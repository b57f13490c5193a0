//! The room that a store takes in the course of a long life.

use std::time::Duration;

use tempfile::TempDir;

use crate::env::Env;
use crate::env::options::Options;
use crate::format::page::PAGE_BYTES;
use crate::format::tree_record::TreeKind;

fn env() -> (TempDir, Env) {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().idle_checkpoint(None);
    let env = Env::open(folder.path(), &options).unwrap();
    (folder, env)
}

/// So many values of so many pages each.
const VALUES: usize = 80;
const PAGES: usize = 15;

/// Stores or deletes values: those of even numbers or of odd ones, in the order of the numbers.
fn change(env: &Env, is_wanted: fn(usize) -> bool, value: Option<&[u8]>) {
    let mut txn = env.write().unwrap();
    let tree = match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
    };
    for n in (0..VALUES).filter(|n| is_wanted(*n)) {
        let key = n.to_be_bytes();
        let is_changed = match value {
            Some(value) => txn.put(tree, &key, value).unwrap(),
            None => txn.delete(tree, &key).unwrap(),
        };
        assert!(is_changed, "{n}");
    }
    txn.commit().unwrap().wait_durable().unwrap();
}

/// Neighbours that one commit freed were filed as one extent, as old as the oldest of them: a snapshot that stayed
/// kept, with each page that it saw, whatever lay beside it.
#[test]
fn a_snapshot_keeps_what_it_sees_and_not_what_lies_beside_it() {
    let (is_even, is_odd) = (
        |n: usize| n.is_multiple_of(2),
        |n: usize| !n.is_multiple_of(2),
    );
    let value = vec![7; (PAGES - 1) * PAGE_BYTES];
    let (_folder, env) = env();
    change(&env, |_| true, Some(&value));
    change(&env, is_odd, None);
    env.checkpoint().unwrap();
    let snapshot = env.read().unwrap();
    // They go where the others were, between those that the snapshot sees.
    change(&env, is_odd, Some(&value));
    // For a while it keeps them all.
    env.checkpoint().unwrap();
    let before = env.stat().unwrap().pages;
    change(&env, |_| true, None);
    env.checkpoint().unwrap();
    let kept = snapshot.kept_bytes().unwrap() as usize / PAGE_BYTES;
    let readers = env.kept_by_readers().unwrap();
    let [(reader, same)] = &readers[..] else {
        panic!("{readers:?}");
    };
    assert_eq!((reader.age, *same as usize), (2, kept * PAGE_BYTES));
    let younger = env.read().unwrap();
    assert_eq!(younger.kept_bytes().unwrap(), 0);
    drop(younger);
    assert!(
        !snapshot
            .has_outstayed(2, (kept * PAGE_BYTES) as u64)
            .unwrap()
    );
    assert!(snapshot.has_outstayed(1, u64::MAX).unwrap());
    assert!(snapshot.has_outstayed(2, 1 << 20).unwrap());
    let own = VALUES / 2 * PAGES;
    assert!((own..own + PAGES).contains(&kept), "{kept} pages for {own}");
    change(&env, is_odd, Some(&value));
    // A run or two have lost a page to the trees.
    let more = env.stat().unwrap().pages - before;
    assert!(more <= 2 * PAGES as u64, "{more} pages more");
    let tree = snapshot.tree("t").unwrap().unwrap();
    for n in (0..VALUES).filter(|n| is_even(*n)) {
        assert_eq!(tree.get(&n.to_be_bytes()).unwrap(), Some(&value[..]));
    }
    assert!(env.check().unwrap().is_clean());
}

/// A compaction began only where nobody had committed for ten seconds, and the next commit ended it.
#[test]
fn a_store_that_is_written_to_all_the_time_becomes_small() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new()
        .idle_checkpoint(Some(Duration::from_millis(5)))
        .idle_compaction(Some(Duration::from_secs(3600)));
    let env = Env::open(folder.path(), &options).unwrap();
    let value = vec![7; PAGES * PAGE_BYTES];
    let bytes = || folder.path().join("data-0").metadata().unwrap().len();
    for round in 0..4 {
        change(&env, |_| true, (round % 2 == 0).then_some(&value));
    }
    let before = bytes();
    for n in 0_u32..20_000 {
        let mut txn = env.write().unwrap();
        let tree = txn.tree("t").unwrap().unwrap();
        txn.put(tree, b"count", &n.to_be_bytes()).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
        if bytes() <= before / 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let now = bytes();
    assert!(now <= before / 2, "{before} bytes became {now}");
    assert!(env.check().unwrap().is_clean());
}
