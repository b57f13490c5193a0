//! A folder in memory whose syncs wait: for tests of what others do while somebody syncs.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::wal::storage::{File, Identity, Map, Memory, OpenMode, Storage, Window};

/// A folder in memory. While its [`Gate`] is closed, a sync of one of its files waits.
#[derive(Debug, Default)]
pub struct Gated {
    files: Memory,
    gate: Gate,
}

impl Gated {
    /// An empty folder with an open gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// What its syncs must pass.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }
}

/// What all syncs must pass. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    is_failing: bool,
    waiting: usize,
}

impl Gate {
    /// Has syncs wait from now on.
    pub fn close(&self) {
        self.state().is_closed = true;
    }

    /// Lets those pass who wait, and the one that comes later.
    pub fn open(&self) {
        self.let_go(false);
    }

    /// Has the syncs of all who wait fail, and later ones.
    pub fn fail(&self) {
        self.let_go(true);
    }

    /// Returns when somebody waits at the closed gate.
    pub fn wait_for_somebody(&self) {
        let (_, changed) = &*self.0;
        let arrived = changed.wait_while(self.state(), |state| state.waiting == 0);
        drop(arrived.unwrap_or_else(PoisonError::into_inner));
    }

    fn let_go(&self, failing: bool) {
        let mut state = self.state();
        (state.is_closed, state.is_failing) = (false, failing);
        self.0.1.notify_all();
    }

    fn pass(&self) -> io::Result<()> {
        let (_, changed) = &*self.0;
        let mut state = self.state();
        state.waiting += 1;
        changed.notify_all();
        let passed = changed.wait_while(state, |state| state.is_closed);
        let mut state = passed.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        if state.is_failing {
            return Err(io::Error::other("the gate lets no sync succeed"));
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Gated {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.files.open(name, mode)?;
        let gate = self.gate();
        Ok(Arc::new(GatedFile { file, gate }))
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
struct GatedFile {
    file: Arc<dyn File>,
    gate: Gate,
}

impl File for GatedFile {
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
        self.gate.pass()?;
        self.file.sync_data()
    }

    fn sync_range(&self, offset: u64, length: u64) -> io::Result<()> {
        self.gate.pass()?;
        self.file.sync_range(offset, length)
    }

    fn sync_room(&self, offset: u64, length: u64) -> io::Result<()> {
        self.gate.pass()?;
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
