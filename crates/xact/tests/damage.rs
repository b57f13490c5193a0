//! Spaces whose files were damaged anyhow: they are refused, or opened and good for further use.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use sapwood_wal::storage::{Memory as Files, OpenMode, Storage};
use sapwood_xact::{Error, Memory, Offset, Options, PAGE_BYTES, Space};

const PAGES: usize = 12;
const COUNT: Offset<u64> = Offset::new(64);

fn open(storage: &Arc<dyn Storage>) -> Result<Space, Error> {
    let options = Options::new()
        .bytes((PAGES * PAGE_BYTES) as u64)
        .log_bytes(0)
        .versions_bytes(8 * PAGE_BYTES as u64);
    Space::open_storage(storage.clone(), &options)
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
        increment(&space, round * 5000, 300).unwrap();
    }
    if is_large {
        increment(&space, 5000, (PAGES - 2) * PAGE_BYTES).unwrap();
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
            let count = increment(&space, 30_000, 9).unwrap();
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
        let mut pages = b"XPG1".to_vec();
        pages.extend(1_u32.to_le_bytes());
        pages.extend(3_u64.to_le_bytes());
        pages.extend(2_u64.to_le_bytes());
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
                let at = 3 * PAGE_BYTES as u64 + 64;
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
