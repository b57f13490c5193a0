//! A space that has become too small is made larger: while it is in use, or when it is opened.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sapwood_xact::{
    Error, Fault, Memory, Mode, Options, PAGE_BYTES, Ptr, RESERVED_BYTES, Space, Transaction,
};

const PAGE: u64 = PAGE_BYTES as u64;
const FIRST: u64 = RESERVED_BYTES / PAGE;
const PAGES: u64 = 3000;

fn small() -> Options {
    Options::new()
        .bytes(PAGES * PAGE)
        .reserve_bytes(0)
        .log_bytes(1 << 20)
}

/// Stores its number in each page from the first that is not reserved.
fn fill(space: &Space, pages: std::ops::Range<u64>) {
    let last = pages.end - 1;
    for page in pages {
        let store = |t: &mut Transaction<'_>| t.store(Ptr::new(page * PAGE + 8), &page);
        // The last commit makes all of them durable.
        let stored = match page == last {
            true => space.transaction(store),
            false => space.transaction_relaxed(store),
        };
        stored.unwrap();
    }
}

fn check(space: &Space, filled: std::ops::Range<u64>) {
    let reader = space.begin_read().unwrap();
    for page in FIRST..space.bytes() / PAGE {
        let found = reader.read(page * PAGE, PAGE_BYTES).unwrap();
        let mut expected = [0; PAGE_BYTES];
        if filled.contains(&page) {
            expected[8..16].copy_from_slice(&page.to_le_bytes());
        }
        assert!(found == expected, "page {page}");
    }
    drop(reader);
    assert_eq!(space.check().unwrap().damaged, []);
}

#[test]
fn a_space_grows_and_keeps_what_it_has() {
    for (mode, checksums) in [
        (Mode::Explicit, true),
        (Mode::Snapshot, true),
        (Mode::Tracked, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = small().mode(mode).checksums(checksums);
        let space = Space::open(folder.path(), &options).unwrap();
        fill(&space, FIRST..PAGES);
        // Some of it is only in the log.
        space.checkpoint().unwrap();
        fill(&space, FIRST..FIRST + 100);
        let full = space.transaction(|t| t.allocate(1 << 30)).unwrap_err();
        assert!(matches!(full, Error::Fault(Fault::Full { .. })), "{full}");

        let larger = small().grow_to((1 << 30) + PAGES * PAGE);
        let in_use = Space::open(folder.path(), &larger).unwrap_err();
        assert!(
            matches!(in_use, Error::InUse { bytes } if bytes == PAGES * PAGE),
            "{in_use}"
        );
        drop(space);
        let space = Space::open(folder.path(), &larger).unwrap();
        assert_eq!(space.bytes(), (1 << 30) + PAGES * PAGE);
        check(&space, FIRST..PAGES);
        space.transaction(|t| t.allocate(1 << 29)).unwrap();
        fill(&space, PAGES..PAGES + 500);
        check(&space, FIRST..PAGES + 500);
        // What is large enough is left alone, also by others that ask for it.
        let other = Space::open(folder.path(), &larger).unwrap();
        drop((space, other));
        let space = Space::open(folder.path(), &small().grow_to(PAGE)).unwrap();
        assert_eq!(space.bytes(), (1 << 30) + PAGES * PAGE);
        check(&space, FIRST..PAGES + 500);
    }
}

/// The sums of a space are moved behind its new end, which must not be where they are.
#[test]
fn a_space_grows_by_as_much_as_its_checksums_take() {
    let folder = tempfile::tempdir().unwrap();
    let space = Space::open(folder.path(), &small()).unwrap();
    fill(&space, FIRST..PAGES);
    drop(space);
    let mut pages = PAGES;
    for _ in 0..5 {
        let options = small().grow_to((pages + 1) * PAGE);
        let space = Space::open(folder.path(), &options).unwrap();
        assert_eq!(space.bytes() / PAGE, pages + 1);
        assert_eq!(space.bytes_reserved() / PAGE, pages + 3);
        pages += 3;
        space.grow_to(pages * PAGE).unwrap();
        check(&space, FIRST..PAGES);
    }
}

#[test]
fn a_file_that_was_cut_is_not_made_longer() {
    let folder = tempfile::tempdir().unwrap();
    drop(Space::open(folder.path(), &small()).unwrap());
    let data = data_of(folder.path());
    data.set_len(100 * PAGE).unwrap();
    let refused = Space::open(folder.path(), &small().grow_to(2 * PAGES * PAGE)).unwrap_err();
    assert!(matches!(refused, Error::Damaged(_)), "{refused}");
    assert_eq!(data.metadata().unwrap().len(), 100 * PAGE);
}

#[test]
fn a_space_grows_while_it_is_used() {
    for (mode, userfault) in [
        (Mode::Explicit, true),
        (Mode::Snapshot, true),
        (Mode::Tracked, true),
        (Mode::Tracked, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = small()
            .mode(mode)
            .userfault(userfault)
            .reserve_bytes(2 * PAGES * PAGE);
        let space = Space::open(folder.path(), &options).unwrap();
        let other = Space::open(folder.path(), &options).unwrap();
        fill(&space, FIRST..PAGES);
        // Views of either size are used by turns.
        let before = space.begin_read().unwrap();
        check(&other, FIRST..PAGES);
        other.grow_to((PAGES + 500) * PAGE - 7).unwrap();
        for space in [&space, &other] {
            assert_eq!(space.bytes(), (PAGES + 500) * PAGE);
            space.grow_to(PAGE).unwrap();
            check(space, FIRST..PAGES);
        }
        assert_eq!(before.bytes(), PAGES * PAGE);
        let beyond = before.read(PAGES * PAGE, 1).unwrap_err();
        assert!(matches!(beyond, Error::Fault(Fault::OutOfBounds { .. })));
        assert_eq!(
            before.load(Ptr::<u64>::new(FIRST * PAGE + 8)).unwrap(),
            FIRST
        );
        drop(before);
        fill(&space, PAGES..PAGES + 500);
        check(&other, FIRST..PAGES + 500);
        let beyond = other.grow_to(2 * PAGES * PAGE + 1).unwrap_err();
        assert!(
            matches!(beyond, Error::InUse { bytes } if bytes == 2 * PAGES * PAGE),
            "{beyond}"
        );
        // Who asks for more when opening gets it.
        let third = options.clone().grow_to((PAGES + 600) * PAGE);
        let third = Space::open(folder.path(), &third).unwrap();
        assert_eq!(space.bytes(), (PAGES + 600) * PAGE);
        check(&space, FIRST..PAGES + 500);
        drop((space, other, third));
        let space = Space::open(folder.path(), &options).unwrap();
        assert_eq!(space.bytes(), (PAGES + 600) * PAGE);
        check(&space, FIRST..PAGES + 500);
        let copy = folder.path().join("copy");
        space.back_up(&copy).unwrap();
        let copy = Space::open(copy, &small()).unwrap();
        assert_eq!(copy.bytes(), (PAGES + 600) * PAGE);
        assert_eq!(copy.bytes_reserved(), 2 * PAGES * PAGE);
        check(&copy, FIRST..PAGES + 500);
    }
}

/// One of the headers is damaged after the space has grown: the other one knows its size too.
#[test]
fn either_header_knows_that_the_space_has_grown() {
    for place in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let space = Space::open(folder.path(), &small()).unwrap();
        fill(&space, FIRST..PAGES);
        drop(space);
        let larger = small().grow_to(2 * PAGES * PAGE);
        let space = Space::open(folder.path(), &larger).unwrap();
        fill(&space, PAGES..PAGES + 50);
        // No checkpoint, for the space is still open: what was stored where the sums were before is in the log.
        let image = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, image.path().join(path.file_name().unwrap())).unwrap();
        }
        drop(space);
        data_of(image.path())
            .write_all_at(&[7; 100], place * PAGE)
            .unwrap();
        let space = Space::open(image.path(), &small()).unwrap();
        check(&space, FIRST..PAGES + 50);
    }
}

fn data_of(folder: &Path) -> File {
    File::options()
        .write(true)
        .open(folder.join("data"))
        .unwrap()
}
