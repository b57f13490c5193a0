//! The disk is full: what is committed can be read, also after the space was opened again, and nothing is lost when
//! there is room again.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sapwood_wal::storage::{File, Identity, Map, Memory as Files, OpenMode, Storage, Window};
use sapwood_xact::{Error, Memory, Options, PAGE_BYTES, RESERVED_BYTES, Space};

const PAGE: u64 = PAGE_BYTES as u64;

/// A folder on a disk on which the file `data` gets no further room while it is full.
#[derive(Debug)]
struct Disk {
    files: Files,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    is_full: bool,
    /// The pages of `data` that have room.
    room: BTreeSet<u64>,
}

impl Disk {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            files: Files::new(),
            state: Arc::default(),
        })
    }

    fn set_full(&self, is_full: bool) {
        self.state.lock().unwrap().is_full = is_full;
    }
}

impl Storage for Disk {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.files.open(name, mode)?;
        if !name.starts_with("data") {
            return Ok(file);
        }
        Ok(Arc::new(Data {
            file,
            state: self.state.clone(),
        }))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.files.names()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.files.sync_names()
    }

    fn identity(&self) -> io::Result<Identity> {
        self.files.identity()
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}

#[derive(Debug)]
struct Data {
    file: Arc<dyn File>,
    state: Arc<Mutex<State>>,
}

impl Data {
    fn take_room(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        for page in offset / PAGE..(offset + bytes).div_ceil(PAGE) {
            if state.is_full && !state.room.contains(&page) {
                return Err(ErrorKind::StorageFull.into());
            }
            state.room.insert(page);
        }
        Ok(())
    }
}

impl File for Data {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.take_room(offset, bytes as u64)?;
        self.file.write_at(parts, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.take_room(offset, length)?;
        self.file.allocate(offset, length)
    }

    fn sync_room(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.sync_room(offset, length)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_size(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn map(&self, reserve: usize) -> io::Result<Map> {
        self.file.map(reserve)
    }

    fn window(&self, offset: u64, length: usize) -> io::Result<Window> {
        self.file.window(offset, length)
    }

    fn identity(&self) -> io::Result<Identity> {
        self.file.identity()
    }

    fn handle(&self) -> &std::fs::File {
        self.file.handle()
    }
}

fn open(disk: &Arc<Disk>) -> Result<Space, Error> {
    let options = Options::new()
        .bytes(4 << 20)
        .log_bytes(1 << 20)
        .versions_bytes(64 * PAGE)
        .spill_bytes(0)
        .patience(Duration::ZERO);
    Space::open_storage(disk.clone(), &options)
}

fn fill(space: &Space, page: u64, pages: usize, with: u8) -> Result<(), Error> {
    space.transaction(|t| {
        t.write(RESERVED_BYTES + page * PAGE, pages * PAGE_BYTES)?
            .fill(with);
        Ok(())
    })
}

fn holds(space: &Space, page: u64, with: u8) -> bool {
    let is_filled = space.read(|t| {
        let bytes = t.read(RESERVED_BYTES + page * PAGE, PAGE_BYTES)?;
        Ok::<_, Error>(bytes.iter().all(|byte| *byte == with))
    });
    is_filled.unwrap()
}

fn is_full(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Io { source, .. }) if source.kind() == ErrorKind::StorageFull)
}

#[test]
fn what_was_committed_on_a_full_disk_is_read_after_opening_again() {
    let disk = Disk::new();
    let space = open(&disk).unwrap();
    fill(&space, 0, 10, 1).unwrap();
    space.checkpoint().unwrap();
    disk.set_full(true);
    // They have room in log and memory, until that is used up; then nothing has happened.
    let committed = (100..).take_while(|page| match fill(&space, *page, 1, 2) {
        Ok(()) => true,
        result => {
            assert!(is_full(result));
            assert!(holds(&space, *page, 0));
            false
        }
    });
    let committed: Vec<u64> = committed.collect();
    assert!(committed.len() > 30, "{}", committed.len());
    assert!(is_full(space.checkpoint()));
    let mut space = space;
    for _ in 0..3 {
        drop(space);
        space = open(&disk).unwrap();
        assert!((0..10).all(|page| holds(&space, page, 1)));
        assert!(committed.iter().all(|page| holds(&space, *page, 2)));
    }
    disk.set_full(false);
    fill(&space, 3, 1, 3).unwrap();
    fill(&space, committed[0], 1, 4).unwrap();
    space.checkpoint().unwrap();
    drop(space);
    let space = open(&disk).unwrap();
    assert!(holds(&space, 3, 3) && holds(&space, committed[0], 4));
    assert!(committed[1..].iter().all(|page| holds(&space, *page, 2)));
    assert!(space.check().unwrap().damaged.is_empty());
}

#[test]
fn a_large_transaction_on_a_full_disk_has_changed_nothing() {
    let disk = Disk::new();
    let space = open(&disk).unwrap();
    fill(&space, 0, 100, 1).unwrap();
    disk.set_full(true);
    assert!(is_full(fill(&space, 50, 100, 2)));
    assert!(holds(&space, 50, 1) && holds(&space, 120, 0));
    // What has room already goes on.
    fill(&space, 0, 100, 3).unwrap();
    drop(space);
    let space = open(&disk).unwrap();
    assert!(holds(&space, 50, 3) && holds(&space, 120, 0));
    disk.set_full(false);
    fill(&space, 50, 100, 2).unwrap();
    assert!(holds(&space, 120, 2));
}

#[test]
fn a_file_that_was_cut_is_refused() {
    let disk = Disk::new();
    let space = open(&disk).unwrap();
    fill(&space, 0, 10, 1).unwrap();
    let data = disk.open("data", OpenMode::Write).unwrap();
    let size = data.size().unwrap();
    data.set_size(size - PAGE).unwrap();
    assert!(matches!(space.checkpoint(), Err(Error::Damaged(_))));
    assert!(matches!(space.begin(), Err(Error::Poisoned)));
    drop(space);
    assert!(matches!(open(&disk), Err(Error::Damaged(_))));
}
