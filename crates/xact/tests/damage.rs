//! Spaces whose files were damaged anyhow: they are refused, or opened and good for further use.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use sapwood_wal::storage::{Memory as Files, OpenMode, Storage};
use sapwood_xact::{
    Error, Memory, Mode, Options, PAGE_BYTES, PageAccess, Ptr, RESERVED_BYTES, Space,
};

const PAGES: usize = 34;
const COUNT: Ptr<u64> = Ptr::new(RESERVED_BYTES + 64);

fn small() -> Options {
    Options::new()
        .bytes((PAGES * PAGE_BYTES) as u64)
        // Checksums follow the pages.
        .reserve_bytes(0)
        .log_bytes(0)
        .versions_bytes(8 * PAGE_BYTES as u64)
}

fn open(storage: &Arc<dyn Storage>) -> Result<Space, Error> {
    Space::open_storage(storage.clone(), &small())
}

fn increment(space: &Space, at: u64, length: usize) -> Result<u64, Error> {
    space.transaction(|t| {
        let count = t.load(COUNT)?.wrapping_add(1);
        t.store(COUNT, &count)?;
        t.write(at, length)?.fill(count as u8);
        Ok(count)
    })
}

/// A space with some commits in its log, the last one too large for it if asked for.
fn space_with_commits(is_large: bool) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(Files::new());
    let space = open(&storage).unwrap();
    for round in 1..8 {
        increment(&space, RESERVED_BYTES + round * 5000, 300).unwrap();
    }
    if is_large {
        increment(&space, RESERVED_BYTES + 5000, 14 * PAGE_BYTES).unwrap();
    }
    storage
}

const NAMES: [&str; 4] = ["data", "log.0", "log.1", "large"];

/// Which file, where in it, and what stands there now.
type Patch = (usize, u64, Vec<u8>);

fn patch(storage: &Arc<dyn Storage>, (file, offset, bytes): &Patch) {
    let name = NAMES[file % NAMES.len()];
    // The file of a large transaction is there only while it is needed.
    let mode = match name {
        "large" => OpenMode::CreateNew,
        _ => OpenMode::Write,
    };
    if let Ok(file) = storage.open(name, mode) {
        file.write_all_at(bytes, *offset).unwrap();
    }
}

proptest! {
    #[test]
    fn damaged_files_are_refused_or_used(
        is_large: bool,
        patches in prop::collection::vec((0..4_usize, 0..9000_u64, prop::collection::vec(any::<u8>(), 1..40)), 1..5),
    ) {
        let storage = space_with_commits(is_large);
        patches.iter().for_each(|change| patch(&storage, change));
        let opened = open(&storage);
        if let Ok(space) = opened {
            let count = match increment(&space, RESERVED_BYTES + 30_000, 9) {
                Err(Error::PageDamaged { .. }) => return Ok(()),
                count => count.unwrap(),
            };
            drop(space);
            let space = open(&storage).unwrap();
            prop_assert_eq!(space.read(|t| t.load(COUNT)).unwrap(), count);
        }
    }
}

#[test]
fn a_large_transaction_is_recovered_from_its_own_file_or_refused() {
    // A record that names the file, as one that died right after it had appended it would have left.
    for damage in [None, Some(0), Some(4), Some(20)] {
        let storage = space_with_commits(false);
        let mut page = vec![0; PAGE_BYTES];
        page[64..128].fill(9);
        let sum = crc32fast::hash(&page) ^ crc32fast::hash(&[0; PAGE_BYTES]);
        let mut pages = b"XPG2".to_vec();
        pages.extend(1_u32.to_le_bytes());
        pages.extend(30_u64.to_le_bytes());
        pages.extend(2_u64.to_le_bytes());
        pages.extend(sum.to_le_bytes());
        pages.extend([9; 64]);
        let mut record = b"XLG1".to_vec();
        record.extend(crc32fast::hash(&pages).to_le_bytes());
        record.extend((pages.len() as u64).to_le_bytes());
        if let Some(at) = damage {
            pages[at] ^= 1;
        }
        append(&storage, &record);
        patch(&storage, &(3, 0, pages));
        match damage {
            None => {
                let space = open(&storage).unwrap();
                let at = 30 * PAGE_BYTES as u64 + 64;
                let read = space.read(|t| Ok::<_, Error>(t.read(at, 64)?.to_vec()));
                assert_eq!(read.unwrap(), [9; 64]);
                assert!(storage.open("large", OpenMode::Read).is_err());
            }
            Some(_) => assert!(matches!(open(&storage), Err(Error::Damaged(_)))),
        }
    }
}

/// Appends a record to the log of a space that nobody has open.
fn append(storage: &Arc<dyn Storage>, record: &[u8]) {
    use sapwood_wal::{Lsn, Position, Shared, Wal};
    let shared = Arc::new(Shared::default());
    let log = Wal::open(storage, "log", OpenMode::Write, shared).unwrap();
    let mut records = log.records(Position::START).unwrap();
    while records.next().unwrap().is_some() {}
    log.start(Lsn(0), &records).unwrap();
    let end = log.append(&[std::io::IoSlice::new(record)]).unwrap();
    log.sync_to(end.lsn).unwrap();
}

/// Where a page is in the data file, behind two pages of its own.
fn in_file(page: u64) -> u64 {
    (2 + page) * PAGE_BYTES as u64
}

/// A space with pages 20 to 29 written and brought into the file, which nobody has open.
fn written(options: &Options) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(Files::new());
    let space = Space::open_storage(storage.clone(), options).unwrap();
    let filled: Result<(), Error> = space.transaction(|t| {
        t.write(20 * PAGE_BYTES as u64, 10 * PAGE_BYTES)?.fill(5);
        Ok(())
    });
    filled.unwrap();
    space.checkpoint().unwrap();
    storage
}

/// Changes one bit of the data file.
fn flip(storage: &Arc<dyn Storage>, offset: u64) {
    let file = storage.open("data", OpenMode::Write).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 16], offset).unwrap();
}

fn read(space: &Space, page: u64) -> Result<Vec<u8>, Error> {
    space.read(|t| Ok(t.read(page * PAGE_BYTES as u64, PAGE_BYTES)?.to_vec()))
}

#[test]
fn a_damaged_page_is_noticed_when_it_is_first_looked_at_and_by_a_check() {
    for mode in [Mode::Explicit, Mode::Tracked, Mode::Snapshot] {
        let storage = written(&small().mode(mode));
        // A byte of a page, a byte of a sum, and one of a page that was never written.
        flip(&storage, in_file(22) + 1234);
        flip(&storage, in_file(PAGES as u64) + 4 * 25 + 1);
        flip(&storage, in_file(31));
        let damaged = [22, 25, 31];
        let space = open(&storage).unwrap();
        assert!(space.has_checksums());
        for page in 19..34 {
            let offset = page * PAGE_BYTES as u64;
            match read(&space, page) {
                Err(Error::PageDamaged { offset: found }) => {
                    assert!(damaged.contains(&page) && found == offset);
                }
                bytes => {
                    let expected = if (20..30).contains(&page) { 5 } else { 0 };
                    assert!(!damaged.contains(&page), "{mode:?}: page {page}");
                    assert!(bytes.unwrap().iter().all(|byte| *byte == expected));
                }
            }
            if page * (PAGE_BYTES as u64) < RESERVED_BYTES {
                continue;
            }
            let mut t = space.begin().unwrap();
            let write = t.write(offset + 5, 1).map(drop);
            let touch = t.touch(offset, 1, PageAccess::Write);
            assert_eq!(write.is_err(), damaged.contains(&page), "{write:?}");
            // In explicit mode there is nothing to announce.
            let is_announced = mode != Mode::Explicit && damaged.contains(&page);
            assert_eq!(touch.is_err(), is_announced, "{touch:?}");
        }
        let checked = space.check().unwrap();
        assert!(checked.pages >= 11, "what was written, and page 31");
        assert_eq!(
            checked.damaged,
            damaged.map(|page| page * PAGE_BYTES as u64)
        );
    }
}

#[test]
fn a_check_notices_what_was_damaged_since_it_was_looked_at() {
    let storage = written(&small());
    let space = open(&storage).unwrap();
    assert!(read(&space, 23).is_ok());
    assert!(space.check().unwrap().damaged.is_empty());
    flip(&storage, in_file(23));
    assert_eq!(space.check().unwrap().damaged, [23 * PAGE_BYTES as u64]);
}

#[test]
fn without_checksums_damage_is_data() {
    let storage = written(&small().checksums(false));
    flip(&storage, in_file(22));
    let space = open(&storage).unwrap();
    assert!(!space.has_checksums());
    assert_eq!(read(&space, 22).unwrap()[..2], [5 ^ 16, 5]);
    assert_eq!(space.check().unwrap(), Default::default());
}

#[test]
fn a_space_of_an_older_release_is_refused_with_what_to_do() {
    let storage = written(&small());
    let file = storage.open("data", OpenMode::Write).unwrap();
    for header in 0..2 {
        file.write_all_at(&1_u32.to_le_bytes(), header * PAGE_BYTES as u64 + 8)
            .unwrap();
    }
    let error = open(&storage).unwrap_err();
    assert!(matches!(error, Error::UnknownVersion { found: 1, .. }));
    assert!(error.to_string().contains("put that into a new space"));
}
