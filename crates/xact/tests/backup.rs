//! Copies of a space that is in use.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sapwood_xact::{Error, Memory, Mode, Options, PAGE_BYTES, Ptr, RESERVED_BYTES, Space};

const MODES: [Mode; 3] = [Mode::Explicit, Mode::Tracked, Mode::Snapshot];
const ACCOUNTS: u64 = 64;

/// Each on a page of its own.
fn account(number: u64) -> Ptr<i64> {
    Ptr::new(RESERVED_BYTES + number * PAGE_BYTES as u64)
}

fn options(mode: Mode) -> Options {
    Options::new().mode(mode).bytes(64 << 20).log_bytes(4 << 20)
}

fn transfer(space: &Space, from: u64, to: u64) -> Result<(), Error> {
    space.transaction(|t| {
        let (of, at) = (t.load(account(from))?, t.load(account(to))?);
        if from != to {
            t.store(account(from), &(of - 1))?;
            t.store(account(to), &(at + 1))?;
        }
        Ok(())
    })
}

fn sum(space: &Space) -> i64 {
    let all = |t: &sapwood_xact::Transaction<'_>| {
        (0..ACCOUNTS).try_fold(0, |sum, number| {
            Ok::<_, Error>(sum + t.load(account(number))?)
        })
    };
    space.read(all).unwrap()
}

#[test]
fn a_copy_is_one_commit_whatever_others_do_meanwhile() {
    for mode in MODES {
        let scratch = tempfile::tempdir().unwrap();
        let space = Space::open(scratch.path().join("space"), &options(mode)).unwrap();
        let opened = |t: &mut sapwood_xact::Transaction<'_>| {
            (0..ACCOUNTS).try_for_each(|number| t.store(account(number), &100))
        };
        space.transaction(opened).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for me in 0..2 {
                let (space, done) = (&space, &done);
                scope.spawn(move || {
                    let mut number = me;
                    while !done.load(Ordering::Relaxed) {
                        number = number * 29 + 17;
                        transfer(space, number % ACCOUNTS, number / 7 % ACCOUNTS).unwrap();
                        number %= 1 << 20;
                    }
                });
            }
            for number in 0..8 {
                let to = scratch.path().join(number.to_string());
                let pages = space.back_up(&to).unwrap();
                assert!(pages >= ACCOUNTS, "{pages}");
                let copy = Space::open(&to, &options(mode).create(false)).unwrap();
                assert_eq!(sum(&copy), 100 * ACCOUNTS as i64, "{mode:?}");
                assert_eq!(copy.check().unwrap().damaged, []);
                // It is a space of its own.
                transfer(&copy, 0, 1).unwrap();
                copy.transaction(|t| t.allocate(100)).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(sum(&space), 100 * ACCOUNTS as i64);
    }
}

/// What is only in memory is copied, too, and what came after the copy was begun is not.
#[test]
fn what_is_not_in_the_file_yet_is_in_a_copy() {
    let scratch = tempfile::tempdir().unwrap();
    let space = Space::open(scratch.path().join("space"), &options(Mode::Explicit)).unwrap();
    let reader = space.begin_read().unwrap();
    for number in 0..ACCOUNTS {
        let committed = space.transaction(|t| t.store(account(number), &7));
        committed.unwrap();
    }
    assert!(
        space.stat().frames_used >= ACCOUNTS,
        "the reader keeps them from the file"
    );
    let to = scratch.path().join("copy");
    assert_eq!(space.back_up(&to).unwrap(), ACCOUNTS);
    drop(reader);
    let copy = Space::open(&to, &options(Mode::Explicit)).unwrap();
    assert_eq!(sum(&copy), 7 * ACCOUNTS as i64);
    let again = space.back_up(&to).unwrap_err();
    assert!(
        again
            .to_string()
            .contains("there is a space in that folder"),
        "{again}"
    );
    assert_eq!(sum(&copy), 7 * ACCOUNTS as i64);
    // What an interrupted one has left is in nobody's way.
    let broken = scratch.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("data.new"), "something").unwrap();
    space.back_up(&broken).unwrap();
}

/// A copy of a large space takes room for what was written.
#[test]
fn a_copy_is_as_sparse_as_the_space() {
    use std::os::unix::fs::MetadataExt;
    let scratch = tempfile::tempdir().unwrap();
    let space = Space::open(
        scratch.path().join("space"),
        &Options::new().log_bytes(1 << 20),
    )
    .unwrap();
    let far = Ptr::new(9 << 30);
    space.transaction(|t| t.store(far, &5_u64)).unwrap();
    let to = scratch.path().join("copy");
    assert_eq!(space.back_up(&to).unwrap(), 1);
    let room = std::fs::metadata(to.join("data")).unwrap().blocks() * 512;
    assert!(room < 1 << 20, "{room}");
    let copy = Space::open(&to, &Options::new().create(false)).unwrap();
    assert_eq!(copy.read(|t| t.load(far)).unwrap(), 5);
}
