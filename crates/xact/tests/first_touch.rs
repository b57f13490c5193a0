//! Mode tracked learns of first touches in two ways, and what it learns is the same.

// Loads and stores through the address of the space are what is tested.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::path::Path;

use sapwood_testkit::Random;
use sapwood_xact::{Durability, Error, Memory, Mode, Options, PAGE_BYTES, Space, Transaction};

const PAGES: usize = 6000;
const FIRST: usize = 20;
const WAYS: [bool; 2] = [true, false];

fn open(folder: &Path, userfault: bool) -> Space {
    let options = Options::new()
        .mode(Mode::Tracked)
        .durability(Durability::Eventual)
        .bytes((PAGES * PAGE_BYTES) as u64)
        .log_bytes(64 << 20)
        .userfault(userfault);
    Space::open(folder, &options).unwrap()
}

fn load(t: &Transaction<'_>, page: usize) -> u8 {
    let base = t.map().unwrap();
    // SAFETY: within the space, and the transaction runs.
    unsafe {
        base.as_ptr()
            .add(page * PAGE_BYTES + page % 4000)
            .read_volatile()
    }
}

fn store(t: &mut Transaction<'_>, page: usize, value: u8) {
    let base = t.map().unwrap();
    // SAFETY: as above, and it is borrowed exclusively.
    unsafe {
        base.as_ptr()
            .add(page * PAGE_BYTES + page % 4000)
            .write_volatile(value)
    };
}

#[test]
fn pages_are_read_written_and_given_up_alike() {
    for way in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), way);
        let mut t = space.begin().unwrap();
        store(&mut t, 30, 1);
        assert_eq!(load(&t, 31), 0);
        store(&mut t, 31, 2);
        assert_eq!((load(&t, 30), load(&t, 31)), (1, 2));
        t.commit().unwrap();
        let mut t = space.begin().unwrap();
        assert_eq!((load(&t, 30), load(&t, 31)), (1, 2));
        store(&mut t, 30, 9);
        drop(t);
        let reader = space.begin_read().unwrap();
        assert_eq!((load(&reader, 30), load(&reader, 31)), (1, 2));
    }
}

/// The pages that were only read are in the read set: of two that read what the other one writes, one loses.
#[test]
fn what_is_only_loaded_is_known() {
    for way in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), way);
        let mut first = space.begin().unwrap();
        let seen = load(&first, 40);
        store(&mut first, 41, seen + 1);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = space.begin().unwrap();
                let seen = load(&second, 41);
                store(&mut second, 40, seen + 1);
                second.commit().unwrap();
            });
            second.join().unwrap();
        });
        assert!(matches!(first.commit(), Err(Error::Conflict)));
    }
}

/// More pages than are copied for one transaction: it goes on in another view, with all that it has stored.
#[test]
fn a_transaction_of_very_many_pages_keeps_what_it_has_stored() {
    for way in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), way);
        for round in 1..4_u8 {
            let mut t = space.begin().unwrap();
            for page in FIRST..PAGES {
                assert_eq!(load(&t, page), if page % 7 == 0 { round - 1 } else { 0 });
                if page % 7 == 0 {
                    store(&mut t, page, round);
                }
            }
            for page in FIRST..PAGES {
                assert_eq!(load(&t, page), if page % 7 == 0 { round } else { 0 });
            }
            t.commit().unwrap();
            // Small ones follow, of which the view knows as before.
            let mut t = space.begin().unwrap();
            assert_eq!(load(&t, 21), round);
            store(&mut t, 22, 1);
            drop(t);
            assert_eq!(load(&space.begin_read().unwrap(), 22), 0);
        }
    }
}

/// Whether a page can be read without a fault: a system call does not fault.
fn is_there(t: &Transaction<'_>, page: usize) -> bool {
    let place = t.map().unwrap().as_ptr().wrapping_add(page * PAGE_BYTES);
    let mut pipe = [0; 2];
    // SAFETY: two descriptors are stored, and closed below; the system reads one byte, or says that it cannot.
    let written = unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let written = libc::write(pipe[1], place.cast(), 1);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        written
    };
    written == 1
}

/// Whether the system lets us have pages asked for.
fn has_userfault() -> bool {
    // SAFETY: a system call that takes a number; the descriptor is closed.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1);
        descriptor >= 0 && libc::close(descriptor as i32) == 0
    }
}

#[test]
fn pages_that_are_read_again_and_again_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let space = open(folder.path(), true);
    for round in 0..3 {
        let t = space.begin().unwrap();
        let expected = round == 2 && has_userfault();
        assert_eq!(is_there(&t, 30), expected, "round {round}");
        assert_eq!(load(&t, 30), 0);
        assert!(!is_there(&t, 31));
        assert_eq!(load(&t, 40 + round), 0);
        t.commit().unwrap();
    }
    // A page that the transaction itself changes is not kept, and what it has changed is seen.
    let mut t = space.begin().unwrap();
    assert_eq!(load(&t, 30), 0);
    store(&mut t, 30, 1);
    t.commit().unwrap();
    let t = space.begin().unwrap();
    assert!(!is_there(&t, 30));
    assert_eq!(load(&t, 30), 1);
    drop(t);
    // What another view has changed is seen.
    for _ in 0..3 {
        let t = space.begin().unwrap();
        assert_eq!(load(&t, 30), 1);
        t.commit().unwrap();
    }
    let before = space.begin_read().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = space.begin().unwrap();
            store(&mut other, 30, 2);
            other.commit().unwrap();
        });
    });
    assert_eq!(load(&before, 30), 1);
    drop(before);
    let t = space.begin().unwrap();
    assert!(!is_there(&t, 30));
    assert_eq!(load(&t, 30), 2);
}

/// A page that is there without having been asked for counts as read; the next attempt has it no more.
#[test]
fn a_transaction_loses_once_for_a_page_it_did_not_look_at() {
    let folder = tempfile::tempdir().unwrap();
    let space = open(folder.path(), true);
    let committed = |page: usize| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = space.begin().unwrap();
                let value = load(&other, page) + 1;
                store(&mut other, page, value);
                other.commit().unwrap();
            });
        });
    };
    for _ in 0..3 {
        let t = space.begin().unwrap();
        load(&t, 30);
        t.commit().unwrap();
    }
    let mut attempts = 0;
    let done: Result<(), Error> = space.transaction(|t| {
        attempts += 1;
        store(t, 50, attempts);
        if attempts == 1 {
            committed(30);
        }
        assert_eq!(is_there(t, 30), attempts == 1 && has_userfault());
        Ok(())
    });
    done.unwrap();
    assert_eq!(attempts, if has_userfault() { 2 } else { 1 });
}

/// Some views take turns at random, over so few frames that those are used again and again.
#[test]
fn whatever_is_kept_is_what_was_committed_last() {
    for seed in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new()
            .mode(Mode::Tracked)
            .durability(Durability::Eventual)
            .bytes((PAGES * PAGE_BYTES) as u64)
            .versions_bytes(64 * PAGE_BYTES as u64)
            .spill_bytes(if seed % 2 == 0 { 0 } else { 1 << 20 });
        let space = Space::open(folder.path(), &options).unwrap();
        let mut random = Random::new(seed);
        let mut values = vec![0; 40];
        for round in 0..900 {
            // So many other views stay out of this turn: at times one is alone for long.
            let held = random.below(if round / 150 % 2 == 0 { 3 } else { 1 });
            let readers: Vec<_> = (0..held).map(|_| space.begin_read().unwrap()).collect();
            let mut t = space.begin().unwrap();
            for _ in 0..random.below(12) {
                let place = random.below(values.len()).min(random.below(values.len()));
                assert_eq!(load(&t, FIRST + place), values[place]);
            }
            let before = values.clone();
            for _ in 0..random.below(6) {
                let place = random.below(values.len());
                values[place] = u8::try_from(random.below(250)).unwrap();
                store(&mut t, FIRST + place, values[place]);
            }
            if random.once_in(4) {
                drop(t);
                values = before.clone();
            } else {
                t.commit().unwrap();
            }
            for reader in &readers {
                let place = random.below(values.len());
                assert_eq!(load(reader, FIRST + place), before[place]);
            }
            if random.once_in(30) {
                drop(readers);
                space.checkpoint().unwrap();
            }
        }
    }
}

/// `t.read` and `t.write` ask for pages before they are touched.
#[test]
fn ranges_are_asked_for_alike() {
    for way in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), way);
        let at = (FIRST * PAGE_BYTES) as u64;
        let filled: Result<(), Error> = space.transaction(|t| {
            t.write(at, 5000 * PAGE_BYTES)?.fill(7);
            Ok(())
        });
        filled.unwrap();
        let reader = space.begin_read().unwrap();
        let bytes = reader.read(at, 5000 * PAGE_BYTES).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
