//! Commits that wait for the disk at the same time share a sync.

#![allow(clippy::unwrap_used)]

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use sapwood_wal::storage::{File, Identity, Map, Memory as Files, OpenMode, Storage, Window};
use sapwood_xact::{Error, Memory, Mode, Offset, Options, PAGE_BYTES, Space};

/// Files in memory whose syncs wait while the gate is closed.
#[derive(Debug, Default)]
struct Slow {
    files: Files,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        self.state.lock().unwrap().is_closed = is_closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        while state.is_closed {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
    }

    fn wait_until_somebody_syncs(&self) {
        let mut state = self.state.lock().unwrap();
        while state.waiting == 0 {
            state = self.changed.wait(state).unwrap();
        }
    }
}

impl Storage for Slow {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.files.open(name, mode)?;
        let gate = self.gate.clone();
        Ok(Arc::new(SlowFile { file, gate }))
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
struct SlowFile {
    file: Arc<dyn File>,
    gate: Arc<Gate>,
}

impl File for SlowFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.file.write_at(parts, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.allocate(offset, length)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_size(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass();
        self.file.sync_data()
    }

    fn sync_room(&self, offset: u64, length: u64) -> io::Result<()> {
        self.gate.pass();
        self.file.sync_room(offset, length)
    }

    fn map(&self, reserve: usize) -> io::Result<Map> {
        self.file.map(reserve)
    }

    fn window(&self, offset: u64, length: usize) -> io::Result<Window> {
        self.file.window(offset, length)
    }

    fn handle(&self) -> &std::fs::File {
        self.file.handle()
    }

    fn identity(&self) -> io::Result<Identity> {
        self.file.identity()
    }
}

/// Each in its own page, so that nobody is in anybody's way.
fn increment(space: &Space, cell: u64) {
    let at = Offset::<u64>::new((20 + cell) * PAGE_BYTES as u64);
    let incremented: Result<(), Error> = space.transaction(|t| {
        let count = t.load(at)? + 1;
        t.store(at, &count)
    });
    incremented.unwrap();
}

#[test]
fn all_that_are_made_during_a_sync_share_the_next_one() {
    const OTHERS: u64 = 7;
    for mode in [Mode::Explicit, Mode::Tracked, Mode::Snapshot] {
        let storage = Slow::default();
        let gate = storage.gate.clone();
        let options = Options::new().mode(mode).bytes(1 << 20).log_bytes(0);
        let space = Space::open_storage(Arc::new(storage), &options).unwrap();
        let before = space.stat().last;
        increment(&space, 0);
        let (record, syncs) = (space.stat().last - before, space.stat().syncs);
        gate.set(true);
        std::thread::scope(|scope| {
            scope.spawn(|| increment(&space, 0));
            gate.wait_until_somebody_syncs();
            let alone = space.stat();
            assert_eq!(alone.last - alone.durable, record);
            let space = &space;
            for cell in 1..=OTHERS {
                scope.spawn(move || increment(space, cell));
            }
            // They are all in the log, and none of them is acknowledged.
            while space.stat().last < alone.last + OTHERS * record {
                std::thread::yield_now();
            }
            assert_eq!(space.stat().durable, alone.durable);
            gate.set(false);
        });
        let stat = space.stat();
        assert_eq!(stat.durable, stat.last);
        // One for the first and one for the others; more only if somebody gave up waiting for a leader on a busy machine.
        let shared = stat.syncs - syncs;
        assert!((2..=OTHERS / 2).contains(&shared), "{shared} syncs");
    }
}
