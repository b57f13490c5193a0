//! Handles where they do not belong: ids, cursors and savepoints of another transaction or environment, a storage that
//! is opened twice, a process that was forked, a file that somebody else has cut. Safe code may try all of it; each has
//! to be refused, or to mean what it says.

// Forking is the point of one of these tests.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::fs;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use sapwood_store::{Comparators, Env, Error, Options, TreeId, TreeKind, WriteTxn};
use sapwood_testkit::children::{self, play};
use sapwood_wal::storage::{Folder, Memory};

fn in_memory() -> Env {
    Env::in_memory(&Options::new()).unwrap()
}

fn options() -> Options {
    Options::new().log_bytes(1 << 20).idle_checkpoint(None)
}

/// Adds two trees, with the records a, b and c, of which each has the tree's name as its value.
fn fill(env: &Env) {
    let mut txn = env.write().unwrap();
    for name in ["one", "other"] {
        let tree = txn.create_tree(name, TreeKind::WHOLE).unwrap();
        for key in [b"a", b"b", b"c"] {
            txn.put(tree, key, name.as_bytes()).unwrap();
        }
    }
    txn.commit().unwrap().wait_durable().unwrap();
}

/// Changes a record, so that the pages it was in are of no use any more.
fn change(env: &Env) {
    let (mut txn, tree) = begin(env, "one");
    txn.put(tree, b"a", b"changed").unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
}

fn begin(env: &Env, name: &str) -> (WriteTxn, TreeId) {
    let mut txn = env.write().unwrap();
    let tree = txn.tree(name).unwrap().unwrap();
    (txn, tree)
}

fn is_no_tree<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NoSuchTree))
}

#[test]
fn a_tree_id_belongs_to_its_transaction() {
    let env = in_memory();
    fill(&env);
    let (txn, stale) = begin(&env, "one");
    drop(txn);
    let (mut txn, _) = begin(&env, "other");
    assert!(is_no_tree(txn.put(stale, b"a", b"elsewhere")));
    assert!(is_no_tree(txn.delete(stale, b"a")));
    assert!(is_no_tree(txn.get(stale, b"a")));
    assert!(is_no_tree(txn.cursor(stale).read(&txn).map(drop)));
    // Nor is it one in another environment, whose transactions are as many.
    let foreign = in_memory();
    fill(&foreign);
    let (mut elsewhere, _) = begin(&foreign, "other");
    assert!(is_no_tree(elsewhere.put(stale, b"a", b"elsewhere")));
}

#[test]
fn a_savepoint_belongs_to_its_transaction() {
    let (env, foreign) = (in_memory(), in_memory());
    fill(&env);
    let mut stranger = foreign.write().unwrap();
    let (mut txn, tree) = begin(&env, "one");
    let (theirs, _own) = (stranger.savepoint(), txn.savepoint());
    txn.put(tree, b"a", b"changed").unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| txn.rollback_to(&theirs))).is_err());
    assert_eq!(txn.get(tree, b"a").unwrap(), Some(&b"changed"[..]));
    assert!(catch_unwind(AssertUnwindSafe(|| txn.release(theirs))).is_err());
}

#[test]
fn a_known_tree_belongs_to_snapshots_of_its_commit() {
    let (env, foreign) = (in_memory(), in_memory());
    fill(&env);
    fill(&foreign);
    let snapshot = env.read().unwrap();
    let known = snapshot.tree("one").unwrap().unwrap().known();
    drop(snapshot);
    // Another one of the same commit.
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree_of(&known).unwrap();
    assert_eq!(tree.get(b"a").unwrap(), Some(&b"one"[..]));
    let is_foreign = |result| matches!(result, Err::<(), _>(Error::ForeignSnapshot));
    let elsewhere = foreign.read().unwrap();
    assert_eq!(elsewhere.commit(), snapshot.commit());
    assert!(is_foreign(elsewhere.tree_of(&known).map(drop)));
    let (txn, own) = begin(&env, "one");
    let written = txn.view(own).unwrap().known();
    assert!(is_foreign(snapshot.tree_of(&written).map(drop)));
    drop((snapshot, txn));
    // The pages that it knows of may hold anything by now.
    change(&env);
    let snapshot = env.read().unwrap();
    assert!(is_foreign(snapshot.tree_of(&known).map(drop)));
}

#[test]
fn a_leaf_belongs_to_snapshots_of_its_commit() {
    let (env, foreign) = (in_memory(), in_memory());
    fill(&env);
    fill(&foreign);
    change(&foreign);
    let mut leaf = None;
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("one").unwrap().unwrap();
    tree.fetch_ahead(&[b"a"], |_, at| leaf = Some(at)).unwrap();
    let leaf = leaf.unwrap();
    assert_eq!(tree.get_in(leaf, b"a").unwrap(), Some(&b"one"[..]));
    drop(snapshot);
    let elsewhere = foreign.read().unwrap();
    let tree = elsewhere.tree("one").unwrap().unwrap();
    assert_eq!(tree.get_in(leaf, b"a").unwrap(), Some(&b"changed"[..]));
    change(&env);
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("one").unwrap().unwrap();
    assert_eq!(tree.get_in(leaf, b"a").unwrap(), Some(&b"changed"[..]));
    // What a transaction is told it may change.
    let (mut txn, tree) = begin(&env, "one");
    let mut leaf = None;
    let view = txn.view(tree).unwrap();
    view.fetch_ahead(&[b"a"], |_, at| leaf = Some(at)).unwrap();
    txn.put(tree, b"a", b"again").unwrap();
    let view = txn.view(tree).unwrap();
    assert_eq!(
        view.get_in(leaf.unwrap(), b"a").unwrap(),
        Some(&b"again"[..])
    );
}

/// A cursor of a write transaction stands where it was moved to, whatever is put in its place meanwhile.
#[test]
fn a_cursor_is_not_replaced_by_that_of_another_tree() {
    let (env, foreign) = (in_memory(), in_memory());
    fill(&env);
    fill(&foreign);
    let (mut txn, one) = begin(&env, "one");
    let other = txn.tree("other").unwrap().unwrap();
    let snapshot = foreign.read().unwrap();
    let mut cursor = txn.cursor(one);
    for view in [
        txn.view(other).unwrap(),
        snapshot.tree("one").unwrap().unwrap(),
    ] {
        let mut reading = cursor.read(&txn).unwrap();
        let mut replacement = view.cursor();
        assert!(replacement.seek_exact(b"b").unwrap());
        mem::swap(&mut *reading, &mut replacement);
        drop(reading);
        let reading = cursor.read(&txn).unwrap();
        assert_eq!(reading.whole_record().unwrap(), None);
    }
}

/// What a cursor was lent for a movement, and never told of.
#[test]
fn a_cursor_whose_movement_is_forgotten_is_where_it_was() {
    let env = in_memory();
    fill(&env);
    let (mut txn, tree) = begin(&env, "one");
    // Its page is the transaction's own, which changes in its place.
    txn.put(tree, b"a", b"").unwrap();
    let mut cursor = txn.cursor(tree);
    assert!(cursor.read(&txn).unwrap().seek_exact(b"b").unwrap());
    for n in 0..2000_u32 {
        let between = [b"a", &n.to_be_bytes()[..]].concat();
        txn.put(tree, &between, &[0; 100]).unwrap();
    }
    mem::forget(cursor.read(&txn).unwrap());
    let reading = cursor.read(&txn).unwrap();
    let record = reading.whole_record().unwrap();
    assert_eq!(record, Some((&b"b"[..], &b"one"[..])));
}

#[test]
fn a_tree_is_built_in_its_own_load() {
    let (env, foreign) = (in_memory(), in_memory());
    let (mut load, mut elsewhere) = (env.bulk().unwrap(), foreign.bulk().unwrap());
    let mut tree = load.tree("built", TreeKind::COMPACT).unwrap();
    let stranger = elsewhere.tree("built", TreeKind::COMPACT).unwrap();
    for n in 0..1000_u32 {
        tree.push(&mut load, &n.to_be_bytes(), &[1; 100]).unwrap();
    }
    let key = 1000_u32.to_be_bytes();
    let refused = tree.push(&mut elsewhere, &key, b"");
    assert!(matches!(refused, Err(Error::ForeignTxn)), "{refused:?}");
    let refused = stranger.finish(&mut load);
    assert!(matches!(refused, Err(Error::ForeignTxn)), "{refused:?}");
    tree.push(&mut load, &key, b"").unwrap();
    assert_eq!(tree.finish(&mut load).unwrap(), 1001);
    load.commit().unwrap();
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    // The stranger was not finished where it was begun.
    assert!(matches!(elsewhere.commit(), Err(Error::TxnFailed)));
}

thread_local! {
    /// After so many comparisons one panics.
    static PATIENCE: Cell<u32> = const { Cell::new(u32::MAX) };
}

fn compare(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let left = PATIENCE
        .get()
        .checked_sub(1)
        .unwrap_or_else(|| panic!("no more"));
    PATIENCE.set(left);
    a.cmp(b)
}

/// What is left of a change that a comparator broke off is not committed.
#[test]
fn a_transaction_fails_with_a_change_that_panics() {
    let env = in_memory();
    let comparators = Comparators {
        keys: Some(&compare),
        ..Comparators::default()
    };
    env.set_comparators("t", comparators);
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("t", TreeKind::WHOLE).unwrap();
    for n in 0..100_u32 {
        txn.put(tree, &n.to_be_bytes(), &[0; 100]).unwrap();
    }
    PATIENCE.set(3);
    let put = catch_unwind(AssertUnwindSafe(|| txn.put(tree, &[7; 5], b"")));
    PATIENCE.set(u32::MAX);
    assert!(put.is_err());
    assert!(matches!(txn.commit().map(drop), Err(Error::TxnFailed)));
}

#[test]
fn a_storage_that_is_opened_twice_is_one_environment() {
    let storage = Arc::new(Memory::new());
    let open = || Env::on_storage(storage.clone(), &options()).unwrap();
    let (first, second) = (open(), open());
    let txn = first.write().unwrap();
    assert!(
        second.try_write().unwrap().is_none(),
        "two writers at a time"
    );
    drop(txn);
    fill(&first);
    assert!(second.read().unwrap().tree("one").unwrap().is_some());
    // It is opened anew when nobody has it open any more, a snapshot neither.
    let snapshot = first.read().unwrap();
    drop((first, second));
    let refused = Env::on_storage(storage.clone(), &options());
    assert!(matches!(refused, Err(Error::HasSnapshots)), "{refused:?}");
    drop(snapshot);
    assert!(open().read().unwrap().tree("one").unwrap().is_some());
}

/// A folder that is opened as a storage is locked like any other.
#[test]
fn a_folder_as_a_storage_is_the_environment_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(Folder::open(folder.path()).unwrap());
    let first = Env::on_storage(storage, &options()).unwrap();
    assert!(folder.path().join("lock").exists());
    let second = Env::open(folder.path(), &options()).unwrap();
    let txn = first.write().unwrap();
    assert!(second.try_write().unwrap().is_none());
    drop(txn);
}

/// What is open at the time of a fork belongs to the parent, the trees of snapshots and transactions too.
#[test]
fn a_forked_child_reads_from_no_tree() {
    let env = in_memory();
    fill(&env);
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("one").unwrap().unwrap();
    let (txn, own) = begin(&env, "other");
    let written = txn.view(own).unwrap();
    let mut cursor = tree.cursor();
    // SAFETY: the child only uses this crate and memory, and ends without unwinding into the harness.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let refused = |result: Result<bool, Error>| matches!(result, Err(Error::Forked));
        let all = refused(tree.get(b"a").map(|_| true))
            && refused(written.get(b"a").map(|_| true))
            && refused(
                tree.range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
                    .map(|_| true),
            )
            && refused(cursor.first());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if all { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 7, "the child was not refused");
    assert_eq!(tree.get(b"a").unwrap(), Some(&b"one"[..]));
}

/// What another process does, which may be ended by a signal.
#[test]
fn child() {
    let Some((role, folder)) = children::role() else {
        return;
    };
    match role.as_str() {
        "cut" => use_what_is_cut(&folder),
        "join what is cut" => {
            let joined = Env::open(folder.join("env"), &options());
            assert!(matches!(joined, Err(Error::Damaged(_))), "{joined:?}");
        }
        other => panic!("{other}"),
    }
}

/// A file that is shorter than its store is told of, where it is noticed before the pages are looked at that are gone.
#[test]
fn a_file_that_somebody_has_cut_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    play("cut", folder.path());
}

fn use_what_is_cut(folder: &Path) {
    let path = folder.join("env");
    let env = Env::open(&path, &options()).unwrap();
    fill(&env);
    let (mut txn, tree) = begin(&env, "one");
    for n in 0..2000_u32 {
        txn.put(tree, &n.to_be_bytes(), &[7; 1000]).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    env.checkpoint().unwrap();
    let data = path.join("data-0");
    let file = fs::File::options().write(true).open(&data).unwrap();
    let told = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Damaged(_))), "{result:?}");
    };

    // Nothing that is in use is gone yet.
    file.set_len(file.metadata().unwrap().len() - 4096).unwrap();
    let (mut txn, tree) = begin(&env, "one");
    txn.put(tree, b"a", b"changed").unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    told(env.checkpoint().map(drop));
    let (mut txn, tree) = begin(&env, "one");
    let mut put = |n: u32| txn.put(tree, &n.to_be_bytes(), &[8; 1000]).map(drop);
    told((0..20_000).try_for_each(&mut put));
    drop(txn);

    // Most of it is.
    file.set_len(100 << 12).unwrap();
    told(env.check().map(drop));
    told(env.check_sample(100).map(drop));
    told(env.backup(folder.join("backup")).map(drop));
    told(env.backup_compacted(folder.join("compacted")).map(drop));
    told(env.free_pages().map(drop));
    told(env.compact(drop).map(drop));
    // Another process finds it so.
    play("join what is cut", folder);
}
