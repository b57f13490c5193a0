//! A space that is always at the same address: what is stored in it may be pointers.

// Pointers into the space are what is tested.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use sapwood_xact::{Error, Memory, Mode, Options, PAGE_BYTES, Space, Transaction};

const PAGES: u64 = 700;
/// A list of nodes, each of which holds the address of the next one.
const FIRST: u64 = 40 * PAGE_BYTES as u64;
const NODES: u64 = 30;

/// Each test has an address of its own.
fn options(number: u64, mode: Mode) -> Options {
    Options::new()
        .mode(mode)
        .address(0x2000_0000_0000 + (number << 32))
        .bytes(PAGES * PAGE_BYTES as u64)
        .log_bytes(1 << 20)
}

fn base(t: &Transaction<'_>) -> usize {
    t.map().unwrap().addr().get()
}

/// Puts a node before all others.
fn push(t: &mut Transaction<'_>, number: u64) -> Result<(), Error> {
    let at = FIRST + number * PAGE_BYTES as u64;
    let head = t.root()?;
    // SAFETY: within the space, by the thread whose transaction runs.
    unsafe {
        let node: *mut u64 = t.map().unwrap().as_ptr().add(at as usize).cast();
        node.write(number);
        node.add(1).write(head);
        t.set_root(node.expose_provenance() as u64)
    }
}

/// Follows the pointers from the root.
fn numbers(t: &Transaction<'_>) -> Vec<u64> {
    let mut found = Vec::new();
    let mut node: *const u64 = std::ptr::with_exposed_provenance(t.root().unwrap() as usize);
    while !node.is_null() {
        // SAFETY: a node that `push` has stored where the space is now, too.
        unsafe {
            found.push(node.read());
            node = std::ptr::with_exposed_provenance(node.add(1).read() as usize);
        }
    }
    found
}

#[test]
fn pointers_stay_what_they_are() {
    for (place, mode, userfault) in [
        (0, Mode::Snapshot, true),
        (0, Mode::Tracked, true),
        (0, Mode::Tracked, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = options(place, mode).userfault(userfault);
        for round in 1..4 {
            // One that knows nothing of the address finds it too.
            let how = match round {
                1 => options.clone(),
                _ => Options::new().userfault(userfault),
            };
            let space = Space::open(folder.path(), &how).unwrap();
            let address = space.address().unwrap();
            for number in (round - 1) * 10..round * 10 {
                space.transaction(|t| push(t, number)).unwrap();
            }
            let expected: Vec<u64> = (0..round * 10).rev().collect();
            let reader = space.begin_read().unwrap();
            assert_eq!(base(&reader) as u64, address);
            assert_eq!(numbers(&reader), expected);
            drop(reader);
            // It grows where it is.
            space
                .grow_to(space.bytes() + 5 * PAGE_BYTES as u64)
                .unwrap();
            let reader = space.begin_read().unwrap();
            assert_eq!(base(&reader) as u64, address);
            assert_eq!(numbers(&reader), expected);
        }
        let space = Space::open(folder.path(), &options.reserve_bytes(0).grow_to(1 << 30)).unwrap();
        assert_eq!(space.bytes(), 1 << 30, "beyond what was reserved");
        assert_eq!(numbers(&space.begin_read().unwrap()).len() as u64, NODES);
    }
}

#[test]
fn another_address_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |options: Options| Space::open(folder.path(), &options).unwrap_err();
    for options in [
        options(1, Mode::Explicit),
        options(1, Mode::Tracked).address(0),
        options(1, Mode::Tracked).address(0x2000_0000_1000),
        options(1, Mode::Tracked)
            .address(0x7fff_0000_0000)
            .bytes(1 << 40),
        Options::new().address(0x2001_0000_0000),
    ] {
        let error = refused(options);
        assert!(matches!(error, Error::BadOptions(_)), "{error}");
    }
    let made = options(1, Mode::Tracked);
    drop(Space::open(folder.path(), &made).unwrap());
    let error = refused(options(2, Mode::Tracked));
    assert_eq!(
        error.to_string(),
        "the space was made with address 0x200100000000, and is asked for with 0x200200000000: leave it out, or say the \
         same"
    );
    // The addresses have one user in a process.
    let first = Space::open(folder.path(), &made).unwrap();
    let taken = |error: &Error| matches!(error, Error::AddressTaken { address } if *address == 0x2001_0000_0000);
    assert!(taken(&refused(made.clone())));
    drop(first);
    Space::open(folder.path(), &made).unwrap();
}

#[test]
fn transactions_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let open = |options: &Options| Space::open(folder.path(), options).unwrap();
    let taken = |error: &Error| matches!(error, Error::AddressTaken { .. });
    let space = open(&options(3, Mode::Tracked));
    let inside = space.transaction(|t| {
        push(t, 1)?;
        Ok::<_, Error>(space.begin_read().map(drop))
    });
    assert!(taken(&inside.unwrap().unwrap_err()), "of the same thread");
    let (begun, has_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let first = space.begin().unwrap();
        scope.spawn(|| {
            begun.send(0).unwrap();
            let second = space.begin_read().unwrap();
            begun.send(numbers(&second).len()).unwrap();
        });
        assert_eq!(has_begun.recv().unwrap(), 0);
        let mut first = first;
        push(&mut first, 2).unwrap();
        first.commit().unwrap();
    });
    assert_eq!(has_begun.recv().unwrap(), 2, "it has waited");
    drop(space);
    let space = open(&options(3, Mode::Tracked).patience(Duration::ZERO));
    let first = space.begin().unwrap();
    let refused = std::thread::scope(|scope| {
        let second = scope.spawn(|| space.begin().map(drop));
        second.join().unwrap()
    });
    assert!(taken(&refused.unwrap_err()));
    drop(first);
    space.begin().unwrap();
}

/// A child of the process has nothing there, so that it can open the space itself.
#[test]
fn a_child_finds_the_addresses_free() {
    for mode in [Mode::Tracked, Mode::Snapshot] {
        let folder = tempfile::tempdir().unwrap();
        let space = Space::open(folder.path(), &options(4, mode)).unwrap();
        let reader = space.begin_read().unwrap();
        assert_eq!(numbers(&reader), []);
        assert!(is_free_in_a_child(&space), "a view");
        drop(reader);
        assert!(is_free_in_a_child(&space), "no view");
    }
}

fn is_free_in_a_child(space: &Space) -> bool {
    let place = std::ptr::without_provenance_mut(space.address().unwrap() as usize);
    let bytes = space.bytes_reserved() as usize;
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the child makes a mapping where there is none, and ends.
    unsafe {
        match libc::fork() {
            0 => {
                let got = libc::mmap(place, bytes, libc::PROT_NONE, flags, -1, 0);
                libc::_exit(i32::from(got != place))
            }
            child => {
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status == 0
            }
        }
    }
}

#[test]
fn a_copy_has_the_address_too() {
    let folder = tempfile::tempdir().unwrap();
    let copy: &Path = &folder.path().join("copy");
    let space = Space::open(folder.path(), &options(5, Mode::Snapshot)).unwrap();
    (0..NODES).for_each(|number| space.transaction(|t| push(t, number)).unwrap());
    space.back_up(copy).unwrap();
    drop(space);
    let copy = Space::open(copy, &Options::new()).unwrap();
    assert_eq!(numbers(&copy.begin_read().unwrap()).len() as u64, NODES);
}
