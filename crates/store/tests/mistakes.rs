//! Mistakes that stores of this kind have made, each as a test that would fail if it were made here.
//!
//! Some are tested where the code is, or with more of the same kind:
//!
//! | mistake | test |
//! | --- | --- |
//! | a robust lock that a second opener initialises again | `thirty_two_processes_open_at_once_to_create_and_to_recover` in `crowds.rs`, and below |
//! | the writer lock of a dead process is lost, or taken from a living one | `what_a_dead_process_held_is_taken_over` in `processes.rs` |
//! | a put of many pages looks through a whole fragmented free list | `a_value_of_many_pages_is_put_in_bounded_time_however_fragmented_the_file_is` in `src/space_tests.rs`, which counts the records looked at |
//! | on a full disk nothing can be deleted | `deleting_works_on_a_full_disk` in `src/space_tests.rs`; on a real one `crowds.rs` |
//! | a disk that is full before the log has all its segments | `deleting_works_on_a_disk_that_is_full_before_the_log_is_complete` in `src/space_tests.rs`; power cuts there: `src/full_disk_tests.rs` |
//! | a commit that was acknowledged, and a page of it that was not synced | `the_suite_fails_without_any_single_guard` in `src/crash_tests.rs` |

// An allocator that takes notes.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{assert_whole, commit, number_of};
use sapwood_store::page::{PAGE_BYTES, checksum};
use sapwood_store::{Env, Error, Options, READERS_MAX, TreeKind, restore};
use sapwood_testkit::children::{self, Child, command, pause};
use sapwood_testkit::storage::recording::Disk;

fn options() -> Options {
    Options::new().log_bytes(1 << 20).idle_checkpoint(None)
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// What another process does: it opens what this one has open.
#[test]
fn child() {
    let Some((role, folder)) = children::role() else {
        return;
    };
    let env = Env::open(&folder, &options()).unwrap();
    match role.as_str() {
        "second opener" => {
            assert!(env.try_write().unwrap().is_none(), "the lock was taken");
            assert_eq!(env.stat().unwrap().readers.len(), 1);
            pause();
            let mut txn = env.write().unwrap();
            let tree = txn.tree("t").unwrap().unwrap();
            assert!(txn.delete(tree, b"first").unwrap());
            txn.commit().unwrap().wait_durable().unwrap();
        }
        other => panic!("{other}"),
    }
}

// ---- Crashes -------------------------------------------------------------------------------------------------------

/// A history of which each step makes the file longer, and of what was acknowledged when.
fn growing(disk: &Disk, from: u32, to: u32) {
    let env = Env::on_storage(Arc::new(disk.clone()), &options()).unwrap();
    for number in from..=to {
        commit(&env, number).unwrap().wait_durable().unwrap();
        disk.note(number.into());
        // Nothing is used again, so that the file has to grow.
        let mut txn = env.write().unwrap();
        let ballast = match txn.tree("ballast").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("ballast", TreeKind::COMPACT).unwrap(),
        };
        txn.put(ballast, &number.to_be_bytes(), &vec![5; 600 << 10])
            .unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
    }
}

#[test]
fn a_crash_while_growing() {
    let disk = Disk::new();
    growing(&disk, 1, 8);
    let mut sizes = Vec::new();
    for crash in disk.crashes(3, 120) {
        let when = crash.to_string();
        let acknowledged = crash.notes().last().copied().unwrap_or_default();
        sizes.extend(crash.image().size("data-0"));
        let left = Arc::new(Disk::from_image(crash.image()).unwrap());
        let env =
            Env::on_storage(left, &options()).unwrap_or_else(|error| panic!("{when}: {error}"));
        let found = assert_whole(&env, &when);
        assert!(
            u64::from(found) >= acknowledged,
            "{when}: {found} of {acknowledged}"
        );
        commit(&env, found + 1).unwrap().wait_durable().unwrap();
        assert_whole(&env, &when);
    }
    sizes.sort_unstable();
    sizes.dedup();
    assert!(sizes.len() > 3, "the file did not grow: {sizes:?}");
}

#[test]
fn a_crash_during_the_recovery_of_a_crash_during_a_recovery() {
    let disk = Disk::new();
    growing(&disk, 1, 4);
    let mut interrupted = 0;
    let mut images: Vec<_> = disk
        .crashes(11, 12)
        .map(|crash| {
            let acknowledged = crash.notes().last().copied().unwrap_or_default();
            (crash.image().clone(), acknowledged)
        })
        .collect();
    for depth in 0..3 {
        let mut next = Vec::new();
        for (image, acknowledged) in images {
            let when = format!("depth {depth}");
            let disk = Disk::from_image(&image).unwrap();
            let env = Env::on_storage(Arc::new(disk.clone()), &options()).unwrap();
            let found = assert_whole(&env, &when);
            assert!(
                u64::from(found) >= acknowledged,
                "{when}: {found} of {acknowledged}"
            );
            // All that has happened to this disk is the recovery, and nobody has been told of more than was known
            // before.
            next.extend(
                disk.crashes(depth, 4)
                    .map(|crash| (crash.image().clone(), acknowledged)),
            );
            interrupted += 1;
        }
        next.truncate(60);
        images = next;
    }
    assert!(interrupted > 80, "{interrupted}");
}

// ---- Files that say more than they have
// ------------------------------------------------------------------------------

/// A folder with an environment of two megabytes, closed, all of it in the data file.
fn sample() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    let env = Env::open(&path, &options()).unwrap();
    let mut txn = env.write().unwrap();
    for (name, kind) in [
        ("compact", TreeKind::COMPACT),
        ("counted", TreeKind::COUNTED),
        ("whole", TreeKind::default()),
    ] {
        let tree = txn.create_tree(name, kind).unwrap();
        for n in 0..3000_u32 {
            let length = if n % 500 == 7 { 9000 } else { 150 };
            txn.put(
                tree,
                format!("key {n:08}").as_bytes(),
                &vec![n as u8; length],
            )
            .unwrap();
        }
    }
    txn.commit().unwrap().wait_durable().unwrap();
    env.checkpoint().unwrap();
    drop(env);
    (folder, path)
}

/// Reads and changes everything, as far as that is possible.
fn use_it(path: &Path, options: &Options) -> Result<(), Error> {
    let env = Env::open(path, options)?;
    let mut worst = Ok(());
    let mut note = |result: Result<(), Error>| {
        if worst.is_ok() {
            worst = result;
        }
    };
    let snapshot = env.read()?;
    for name in snapshot.tree_names()? {
        let tree = snapshot.tree(&name)?.unwrap();
        for n in (0..3000_u32).step_by(13) {
            note(tree.get(format!("key {n:08}").as_bytes()).map(drop));
        }
        // No more steps than there are records: who goes round in circles is noticed.
        let mut cursor = tree.cursor();
        let walk = (0..=tree.record().records).try_for_each(|_| cursor.next().map(drop));
        note(walk);
    }
    let report = env.check()?;
    if let Some(problem) = report.problems.first() {
        note(Err(Error::Damaged(problem.clone())));
    }
    let backup = path.with_file_name("backup");
    note(env.backup(&backup).map(drop));
    let _: std::io::Result<()> = fs::remove_file(backup);
    if let Ok(mut txn) = env.write() {
        for name in snapshot.tree_names()? {
            let tree = txn.tree(&name)?.unwrap();
            for n in (0..3000_u32).step_by(17) {
                note(
                    txn.put(tree, format!("key {n:08}").as_bytes(), b"new")
                        .map(drop),
                );
                note(
                    txn.delete(tree, format!("key {:08}", n + 1).as_bytes())
                        .map(drop),
                );
            }
        }
        drop(txn);
    }
    worst
}

#[test]
fn the_header_says_grown_and_the_file_is_not() {
    let (_folder, path) = sample();
    assert!(use_it(&path, &options()).is_ok());
    let data = path.join("data-0");
    let whole = fs::read(&data).unwrap();
    let pages = Env::open(&path, &options()).unwrap().stat().unwrap().pages;
    // Shorter than the meta pages say, by a page, by half, down to the meta pages.
    let short = [pages - 1, pages / 2, 300, 3, 2].map(|pages| pages as usize * PAGE_BYTES);
    for length in short.into_iter().chain([short[1] + 100]) {
        fs::write(&data, &whole[..length]).unwrap();
        for how in [options(), options().read_only(true).shared(false)] {
            let opened = Env::open(&path, &how);
            assert!(
                matches!(opened, Err(Error::Damaged(_))),
                "{length} bytes: {opened:?}"
            );
        }
    }
    // The other way round: the meta pages are those of before, and the commits that grew the file are in the log.
    fs::write(&data, &whole).unwrap();
    let env = Env::open(&path, &options()).unwrap();
    let before = fs::metadata(&data).unwrap().len();
    for number in 1..=8 {
        commit(&env, number).unwrap().wait_durable().unwrap();
        let mut txn = env.write().unwrap();
        let tree = txn.tree("compact").unwrap().unwrap();
        txn.put(tree, &[b'x', number as u8], &vec![3; 300 << 10])
            .unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
    }
    let copy = path.with_file_name("copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    drop(env);
    let data = copy.join("data-0");
    assert!(fs::metadata(&data).unwrap().len() > before);
    let file = fs::File::options().write(true).open(&data).unwrap();
    file.set_len(before).unwrap();
    let opened = Env::open(&copy, &options());
    assert!(matches!(opened, Err(Error::Damaged(_))), "{opened:?}");
}

/// A backup is believed no more than a data file.
#[test]
fn the_header_of_a_backup_says_more_than_the_file_has() {
    let (folder, path) = sample();
    let backup = folder.path().join("full");
    Env::open(&path, &options())
        .unwrap()
        .backup(&backup)
        .unwrap();
    let whole = fs::read(&backup).unwrap();
    let restored = folder.path().join("restored");
    for length in [whole.len() / 2, 2 * PAGE_BYTES, 3 * PAGE_BYTES - 1] {
        fs::write(&backup, &whole[..length]).unwrap();
        let restored = restore(&backup, &restored);
        assert!(
            matches!(restored, Err(Error::Damaged(_))),
            "{length} bytes: {restored:?}"
        );
    }
}

// ---- Pages that refer to what they should not
// --------------------------------------------------------------------------

/// The largest allocation that was asked for, in bytes.
struct Largest;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

/// No test of this file needs a piece of memory as large as this.
const ALLOCATION_BYTES_MAX: usize = 64 << 20;

const BRANCHES: [u8; 3] = [2, 5, 7];
const KIND: usize = 4;
const LEVEL: usize = 5;
const HEADER_BYTES: usize = 24;

fn page(file: &[u8], number: usize) -> &[u8] {
    &file[number * PAGE_BYTES..][..PAGE_BYTES]
}

fn reseal(file: &mut [u8], number: usize) {
    let page = &mut file[number * PAGE_BYTES..][..PAGE_BYTES];
    let sum = checksum(&[&page[4..]]);
    page[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The places in the file that hold, as `u48`, the number of a page one level below the branch page in which they are,
/// with that page.
fn references(file: &[u8]) -> Vec<(usize, usize)> {
    let pages = file.len() / PAGE_BYTES;
    let mut found = Vec::new();
    for number in 2..pages {
        let branch = page(file, number);
        if !BRANCHES.contains(&branch[KIND]) {
            continue;
        }
        for at in 32..PAGE_BYTES - 6 {
            let mut child = [0; 8];
            child[..6].copy_from_slice(&branch[at..at + 6]);
            let child = u64::from_le_bytes(child) as usize;
            if (2..pages).contains(&child)
                && page(file, child)[LEVEL] + 1 == branch[LEVEL]
                && page(file, child)[8..16] == child.to_le_bytes()
            {
                found.push((number * PAGE_BYTES + at, number));
            }
        }
    }
    found
}

/// Writes a number over each reference in turn; whatever then is done ends, and ends with an error.
fn assert_told(replace: impl Fn(&[u8], usize) -> u64) {
    let (_folder, path) = sample();
    let data = path.join("data-0");
    let whole = fs::read(&data).unwrap();
    let references = references(&whole);
    assert!(references.len() > 100, "{}", references.len());
    for &(at, number) in references.iter().step_by(41) {
        let mut damaged = whole.clone();
        let other = replace(&whole, number).to_le_bytes();
        damaged[at..at + 6].copy_from_slice(&other[..6]);
        reseal(&mut damaged, number);
        fs::write(&data, &damaged).unwrap();
        let result = use_it(&path, &options().read_only(true).shared(false));
        assert!(result.is_err(), "page {number}, offset {}", at % PAGE_BYTES);
        let result = use_it(&path, &options());
        assert!(result.is_err(), "page {number}, offset {}", at % PAGE_BYTES);
    }
    assert!(LARGEST.load(Ordering::Relaxed) < ALLOCATION_BYTES_MAX);
}

#[test]
fn cyclic_pages() {
    // A branch page that is its own child, or above itself.
    assert_told(|_, number| number as u64);
    assert_told(|file, number| {
        let level = page(file, number)[LEVEL];
        let pages = 2..file.len() / PAGE_BYTES;
        let is_above = |&other: &usize| {
            BRANCHES.contains(&page(file, other)[KIND]) && page(file, other)[LEVEL] >= level
        };
        pages.rev().find(is_above).unwrap() as u64
    });
}

#[test]
fn a_huge_allocation_from_a_bad_page_number() {
    assert_told(|_, _| (1 << 48) - 1);
    assert_told(|file, _| (file.len() / PAGE_BYTES) as u64);
}

#[test]
fn a_huge_allocation_from_a_bad_length() {
    let (_folder, path) = sample();
    let data = path.join("data-0");
    let whole = fs::read(&data).unwrap();
    let extents = (2..whole.len() / PAGE_BYTES).filter(|&number| page(&whole, number)[KIND] == 4);
    let extents: Vec<_> = extents.collect();
    assert!(extents.len() >= 18, "{}", extents.len());
    for &number in extents.iter().step_by(5) {
        for length in [u64::MAX, u64::from(u32::MAX), 1 << 40] {
            let mut damaged = whole.clone();
            let at = number * PAGE_BYTES + HEADER_BYTES;
            damaged[at..at + 8].copy_from_slice(&length.to_le_bytes());
            fs::write(&data, &damaged).unwrap();
            assert!(use_it(&path, &options()).is_err(), "extent {number}");
        }
    }
    // The number of pages that a meta page speaks of.
    for pages in [1_u64 << 35, 1 << 47, u64::MAX] {
        let mut damaged = whole.clone();
        for meta in 0..2 {
            let at = meta * PAGE_BYTES + 104;
            damaged[at..at + 8].copy_from_slice(&pages.to_le_bytes());
            reseal(&mut damaged, meta);
        }
        fs::write(&data, &damaged).unwrap();
        let opened = Env::open(&path, &options());
        assert!(matches!(opened, Err(Error::Damaged(_))), "{opened:?}");
    }
    assert!(LARGEST.load(Ordering::Relaxed) < ALLOCATION_BYTES_MAX);
}

// ---- Pages in two hands
// ------------------------------------------------------------------------------------------------

/// What is allocated and freed behind a savepoint is as if it had not been once the savepoint is returned to: nothing
/// is given away that is in use, nothing is lost.
#[test]
fn a_savepoint_against_the_allocator() {
    let env = Env::in_memory(&options()).unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("t", TreeKind::COUNTED).unwrap();
    for n in 0..60_u8 {
        txn.put(tree, &[n], &vec![n; 6000]).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    let mut pages = 0;
    for round in 0..60_u8 {
        let mut txn = env.write().unwrap();
        let tree = txn.tree("t").unwrap().unwrap();
        // Own pages, freed and used again before, behind, and behind that.
        txn.put(tree, &[round], &vec![round; 6000]).unwrap();
        let outer = txn.savepoint();
        for n in 0..30 {
            txn.delete(tree, &[n * 2]).unwrap();
            txn.put(tree, &[n, 1], &vec![1; 5000]).unwrap();
        }
        let inner = txn.savepoint();
        for n in 0..30 {
            txn.delete(tree, &[n, 1]).unwrap();
            txn.put(tree, &[n, 2], &vec![2; 9000]).unwrap();
        }
        txn.rollback_to(&inner);
        for n in 0..30 {
            assert_eq!(txn.get(tree, &[n, 1]).unwrap(), Some(&[1; 5000][..]));
        }
        txn.rollback_to(&outer);
        txn.release(outer);
        for n in 0..60 {
            assert_eq!(
                txn.get(tree, &[n]).unwrap(),
                Some(&[n; 6000][..]),
                "round {round}"
            );
        }
        txn.put(tree, &[round], &vec![round; 6000]).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
        assert_clean(&env);
        if round == 20 {
            pages = env.stat().unwrap().pages;
        }
    }
    assert!(env.stat().unwrap().pages <= pages + 64, "pages were lost");
}

/// Opening the file once more, by another name for the same folder, must not give a second allocator for the same
/// pages.
#[test]
fn two_environments_of_one_file_in_one_process() {
    let (folder, path) = sample();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let (first, second) = (
        Env::open(&path, &options()).unwrap(),
        Env::open(&link, &options()).unwrap(),
    );
    for number in 1..=30 {
        let (writer, reader) = if number % 2 == 0 {
            (&first, &second)
        } else {
            (&second, &first)
        };
        commit(writer, number).unwrap().wait_durable().unwrap();
        assert_eq!(number_of(reader).unwrap(), number);
    }
    drop(second);
    commit(&first, 31).unwrap().wait_durable().unwrap();
    assert_clean(&first);
}

/// A region that is set up anew while others use it would free the lock of a living writer and forget all readers.
#[test]
fn a_lock_that_a_second_opener_initialises_again() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path(), &options()).unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("t", TreeKind::default()).unwrap();
    txn.put(tree, b"first", b"").unwrap();
    let snapshot = env.read().unwrap();
    let mut other = Child::start(&mut command("second opener", folder.path()));
    other.wait();
    txn.commit().unwrap().wait_durable().unwrap();
    assert!(snapshot.tree("t").unwrap().is_none());
    assert!(other.end().success());
    assert_eq!(
        env.read()
            .unwrap()
            .tree("t")
            .unwrap()
            .unwrap()
            .record()
            .records,
        0
    );
    assert_clean(&env);
}

/// Slots belong to snapshots and processes, not to threads: however many threads have come and gone, and however they
/// went, their slots are there for others. (Of dead processes: `what_a_dead_process_held_is_taken_over` in
/// `processes.rs`.)
#[test]
fn a_reader_slot_leaked_by_a_dead_thread() {
    let env = Env::in_memory(&options()).unwrap();
    commit(&env, 1).unwrap().wait_durable().unwrap();
    let mut kept = Vec::new();
    for n in 0..READERS_MAX + 100 {
        let env = env.clone();
        let thread = std::thread::spawn(move || {
            let snapshot = env.read().unwrap();
            assert!(snapshot.tree("plain").unwrap().is_some());
            if n % 500 == 3 {
                // Not a panic, which would be told.
                std::panic::resume_unwind(Box::new(n));
            }
            // It outlives the thread.
            (n % 500 == 7).then_some(snapshot)
        });
        match thread.join() {
            Ok(snapshot) => kept.extend(snapshot),
            Err(cause) => assert_eq!(cause.downcast_ref(), Some(&n)),
        }
    }
    assert_eq!(env.stat().unwrap().readers.len(), kept.len());
    assert!(
        kept.iter()
            .all(|snapshot| snapshot.tree("plain").unwrap().is_some())
    );
    kept.clear();
    assert!(env.stat().unwrap().readers.is_empty());
    let many: Vec<_> = (0..READERS_MAX).map(|_| env.read().unwrap()).collect();
    assert!(matches!(env.read(), Err(Error::ReadersFull)));
    drop(many);
    drop(env.read().unwrap());
}
