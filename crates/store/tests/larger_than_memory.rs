//! Where data take more memory than there is, a read has its own pages come from the disk and no others, and a walk
//! from page to page asks for them before: seen in what the kernel counts for this thread, with files that it was
//! told to forget.
//!
//! A disk that was told to read nothing ahead, or a file system that keeps all in memory, has nothing to tell.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::ops::Bound;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use sapwood_store::{Env, Options, TreeKind};

const RECORDS: u64 = 60_000;
const VALUE_BYTES: usize = 220;
const PAGE_BYTES: u64 = 4096;

/// What this thread has had from the disk: bytes, and pages that it has waited for.
fn had() -> (u64, u64) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let io = read("/proc/thread-self/io");
    let bytes = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    let stat = read("/proc/thread-self/stat");
    // proc_pid_stat(5): the 12th field, of which the second one ends with the last bracket.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let waits = fields.split_ascii_whitespace().nth(9).unwrap();
    (bytes.unwrap().parse().unwrap(), waits.parse().unwrap())
}

/// Does something with an environment that nothing is in memory of, and that may take so much of it: what came from
/// the disk meanwhile, in pages, and how many of those were waited for.
fn cold(folder: &Path, memory_bytes: u64, work: impl FnOnce(&Env)) -> (u64, u64) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
    let env = Env::open(folder, &Options::new().memory_bytes(memory_bytes)).unwrap();
    assert_eq!(env.exceeds_memory(), memory_bytes == 0);
    let before = had();
    work(&env);
    let after = had();
    ((after.0 - before.0) / PAGE_BYTES, after.1 - before.1)
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A tree with its values in the leaves, and one with them out of line, each of more than 3,000 pages.
fn filled() -> tempfile::TempDir {
    // Temporary files are often in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let env = Env::open(folder.path(), &Options::new()).unwrap();
    let mut load = env.bulk().unwrap();
    for (name, kind) in [("in", TreeKind::COMPACT), ("out", TreeKind::OUT_OF_LINE)] {
        let mut tree = load.tree(name, kind).unwrap();
        for number in 0..RECORDS {
            let value = [number as u8; VALUE_BYTES];
            tree.push(&mut load, &key(number), &value).unwrap();
        }
        tree.finish(&mut load).unwrap();
    }
    load.commit().unwrap();
    env.checkpoint().unwrap();
    drop(env);
    folder
}

/// Some of the keys, far from each other.
fn scattered() -> Vec<[u8; 8]> {
    (0..64).map(|step| key(step * 7919 % RECORDS)).collect()
}

fn read_scattered(env: &Env) {
    let snapshot = env.read().unwrap();
    for name in ["in", "out"] {
        let tree = snapshot.tree(name).unwrap().unwrap();
        for key in scattered() {
            assert_eq!(tree.get(&key).unwrap().unwrap().len(), VALUE_BYTES);
        }
    }
}

fn scan(env: &Env, name: &str) {
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree(name).unwrap().unwrap();
    let mut all = tree.range(Bound::Unbounded, Bound::Unbounded).unwrap();
    let mut records = 0;
    while let Some((key, value)) = all.next().unwrap() {
        assert_eq!(key[7], value[VALUE_BYTES - 1]);
        records += 1;
    }
    assert_eq!(records, RECORDS);
}

#[test]
fn a_read_has_its_own_pages_come_from_the_disk_and_no_others() {
    let folder = filled();
    let (pages, _) = cold(folder.path(), 0, read_scattered);
    // Two for each of 128 records, as values may lie across the border of a page, leaves of pointers, and branches.
    assert!(pages <= 2 * 128 + 64 + 64, "{pages}");
    let (around, _) = cold(folder.path(), u64::MAX, read_scattered);
    assert!(pages <= around, "{pages} and {around}");
}

#[test]
fn a_walk_through_all_waits_for_few_pages() {
    let folder = filled();
    for name in ["in", "out"] {
        let (pages, waits) = cold(folder.path(), 0, |env| scan(env, name));
        assert!(waits <= pages / 4, "{name}: {waits} of {pages}");
    }
    let (pages, waits) = cold(folder.path(), 0, |env| {
        assert!(env.check().unwrap().is_clean());
    });
    assert!(waits <= pages / 4, "check: {waits} of {pages}");
    let dest = folder.path().join("backup");
    let (pages, waits) = cold(folder.path(), 0, |env| {
        env.backup(&dest).unwrap();
    });
    assert!(waits <= pages / 4, "backup: {waits} of {pages}");
}

#[test]
fn a_short_range_has_little_read_that_it_does_not_reach() {
    let folder = filled();
    for name in ["in", "out"] {
        let (pages, _) = cold(folder.path(), 0, |env| {
            let snapshot = env.read().unwrap();
            let mut cursor = snapshot.tree(name).unwrap().unwrap().cursor();
            for key in scattered() {
                assert!(cursor.seek(&key).unwrap());
                for _ in 0..10 {
                    assert!(cursor.value().unwrap().is_some());
                    cursor.next().unwrap();
                }
            }
        });
        // Ten records take one to three pages, and what is asked for beyond them is at most as many again.
        assert!(pages <= 64 * 6 + 64, "{name}: {pages}");
    }
}

#[test]
fn records_of_many_keys_are_asked_for_before_the_first_is_read() {
    let folder = filled();
    let mut asked = 0;
    let (all, _) = cold(folder.path(), 0, |env| {
        let snapshot = env.read().unwrap();
        let tree = snapshot.tree("out").unwrap().unwrap();
        let before = had();
        let keys = scattered();
        let mut places = Vec::new();
        tree.fetch_ahead(&keys, |at, place| places.push((at, place)))
            .unwrap();
        asked = (had().0 - before.0) / PAGE_BYTES;
        for (at, place) in places {
            assert!(tree.get_in(place, &keys[at]).unwrap().is_some());
        }
    });
    // Nothing was left to be read but what stands behind the first bytes of a record, on another page.
    assert!(all == 0 || asked * 10 >= all * 9, "{asked} of {all}");
}
