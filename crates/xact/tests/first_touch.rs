//! Mode tracked learns of first touches in two ways, and what it learns is the same.

// Loads and stores through the address of the space are what is tested.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::path::Path;

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
