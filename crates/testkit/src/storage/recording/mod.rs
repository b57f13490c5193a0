//! A simulated disk for crash tests of whatever keeps its files through [`Storage`].
//!
//! A [`Disk`] behaves like a folder in memory, and besides it
//!
//! - records every write, store through a window, change of size, sync and change of names, with the notes the test
//!   adds ("transaction 7 was acknowledged");
//! - can fail the n-th call, or everything from the n-th call on ([`Disk::fail`]);
//! - lists the states in which a power cut could have left the disk at any moment of the recording ([`Disk::crashes`]),
//!   each of which can be run again as a new disk ([`Disk::from_image`]) and crash again.
//!
//! # What a power cut may leave
//!
//! The unit is the sector of 512 bytes. A sector that was changed since the last sync of its file has its synced
//! content or any content it had since then, each sector for itself: that covers lost, reordered and torn writes, and
//! pages of a window that the system wrote back at any moment. (What was stored through a window is seen whenever
//! anything else happens on the disk, and when the window is closed; a store of the same bytes is seen if it was
//! announced, see [`Window::place`].) The size of a file is the synced one or any it had since. Of the name changes
//! since the last [`Storage::sync_names`] any number of the first are there, and the others are not. After a failed
//! sync, what it was to sync may never arrive, not even with a later sync that succeeds.

mod content;
mod crash;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wal::storage::{
    BLOCK_BYTES, File, Identity, Map, Memory, OpenMode, Storage, Watch, Window, check_name,
};

use self::content::SECTOR_BYTES;
use self::crash::Replay;
pub use crash::{Crash, Crashes, Dice, Image};

/// How much of a window is looked at at once.
const LOOK_BYTES: usize = 16 * 1024;

/// A failure to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A write of more bytes writes only so many, at least 1. Other calls succeed.
    ShortWrite(usize),
    /// The disk is full (`ENOSPC`) for whatever may need space: everything but reads and removals.
    NoSpace,
    /// The disk is full (`ENOSPC`) for new files and for files that are to become longer. What has its space already
    /// can be written to and synced.
    NoGrowth,
    /// The device fails (`EIO`).
    Io,
    /// A signal interrupts a read or a write (`EINTR`). Other calls succeed.
    Interrupted,
}

/// The simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// What the files hold now.
    memory: Memory,
    names: BTreeMap<String, usize>,
    files: Vec<Recorded>,
    events: Vec<Event>,
    /// The disk before the first event.
    before: Replay,
    /// The disk up to some event, for [`Disk::synced_image`].
    replayed: Replay,
    calls: u64,
    faults: Vec<Injected>,
    windows: u64,
}

#[derive(Debug)]
struct Recorded {
    backing: Arc<dyn File>,
    windows: BTreeMap<u64, Watched>,
}

/// The part of a file under an open window, as it was last seen.
#[derive(Debug)]
struct Watched {
    offset: u64,
    seen: Vec<u8>,
    /// The sectors that were to be stored to since the last look, counted from the first of the window.
    stored: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Injected {
    at: u64,
    lasting: bool,
    fault: Fault,
}

/// What happened on the disk. Files go by number, in the order of their creation.
#[derive(Clone, Debug)]
enum Event {
    Write {
        file: usize,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Size {
        file: usize,
        size: u64,
    },
    Sync {
        file: usize,
        succeeded: bool,
    },
    /// As a sync, but of these bytes and the size only.
    SyncRange {
        file: usize,
        offset: u64,
        length: usize,
        succeeded: bool,
    },
    Create {
        name: String,
        file: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncNames,
    Note(u64),
}

/// What a call does, as far as faults are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    /// Anything else that needs no space.
    Look,
    /// Makes a file, or makes it longer.
    Grow,
    /// Anything else that may need space.
    Change,
}

impl Disk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::holding(
            Memory::new(),
            BTreeMap::new(),
            Vec::new(),
            Replay::default(),
        )
    }

    /// A disk that holds what a crash has left, all of it durable.
    ///
    /// # Errors
    /// Those of `memfd_create(2)`.
    pub fn from_image(image: &Image) -> io::Result<Self> {
        let memory = Memory::new();
        let mut names = BTreeMap::new();
        let mut files = Vec::new();
        for (name, content) in image.files() {
            names.insert(name.clone(), files.len());
            let file = Recorded::new(&memory, files.len())?;
            file.backing.set_size(content.size())?;
            for (offset, bytes) in content.pages() {
                let length = usize::try_from(content.size().saturating_sub(offset))
                    .map_or(bytes.len(), |left| left.min(bytes.len()));
                file.backing.write_all_at(&bytes[..length], offset)?;
            }
            files.push(file);
        }
        Ok(Self::holding(memory, names, files, Replay::of(image)))
    }

    fn holding(
        memory: Memory,
        names: BTreeMap<String, usize>,
        files: Vec<Recorded>,
        before: Replay,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            memory,
            names,
            files,
            events: Vec::new(),
            replayed: before.clone(),
            before,
            calls: 0,
            faults: Vec::new(),
            windows: 0,
        })))
    }

    /// Adds a note to the recording, such as the number of a transaction that was acknowledged just now. See
    /// [`Crash::notes`].
    pub fn note(&self, note: u64) {
        let mut state = self.lock();
        state.see_windows();
        state.events.push(Event::Note(note));
    }

    /// How many calls on the disk and its files there have been, failed ones included.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Lets the `nth` call from now on fail (0 is the next one), and if `lasting`, all calls after it too. Faults add
    /// up.
    pub fn fail(&self, nth: u64, fault: Fault, lasting: bool) {
        let mut state = self.lock();
        let at = state.calls + nth;
        state.faults.push(Injected { at, lasting, fault });
    }

    /// Lets calls succeed again.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// How many events have been recorded.
    pub fn events(&self) -> usize {
        self.lock().events.len()
    }

    /// What a power cut at this moment leaves at least: what is synced.
    pub fn synced_image(&self) -> Image {
        let mut state = self.lock();
        state.see_windows();
        let State {
            events, replayed, ..
        } = &mut *state;
        replayed.advance_to(events, events.len());
        replayed.synced()
    }

    /// At most `states` states in which a power cut can have left the disk, spread over all moments of the recording
    /// and over what may have become of what was not synced. The same seed gives the same states.
    pub fn crashes(&self, seed: u64, states: usize) -> Crashes {
        let mut state = self.lock();
        state.see_windows();
        Crashes::new(state.before.clone(), state.events.clone(), seed, states)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, call: Call) -> io::Result<(MutexGuard<'_, State>, usize)> {
        let mut state = self.lock();
        state.see_windows();
        let write_bytes_max = state.count(call)?;
        Ok((state, write_bytes_max))
    }

    fn file(&self, number: usize, state: &State, in_blocks: bool) -> Arc<dyn File> {
        Arc::new(Handle {
            disk: self.clone(),
            number,
            in_blocks,
            backing: state.files[number].backing.clone(),
        })
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Counts a call, and fails it or says how many bytes it may write.
    fn count(&mut self, call: Call) -> io::Result<usize> {
        let number = self.calls;
        self.calls += 1;
        let mut write_bytes_max = usize::MAX;
        for injected in &self.faults {
            let is_first = number == injected.at;
            let applies = is_first || (injected.lasting && number > injected.at);
            if !applies {
                continue;
            }
            match injected.fault {
                Fault::ShortWrite(bytes_max) => {
                    write_bytes_max = write_bytes_max.min(bytes_max.max(1));
                }
                Fault::NoSpace if matches!(call, Call::Write | Call::Grow | Call::Change) => {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                Fault::NoGrowth if call == Call::Grow => {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                Fault::Io => return Err(io::Error::other("input/output error")),
                // Interrupted for ever would mean to try for ever.
                Fault::Interrupted if matches!(call, Call::Read | Call::Write) && is_first => {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Fault::NoSpace | Fault::NoGrowth | Fault::Interrupted => {}
            }
        }
        Ok(write_bytes_max)
    }

    /// Records what has been stored through windows since the last look.
    fn see_windows(&mut self) {
        let Self { files, events, .. } = self;
        for (file, recorded) in files.iter_mut().enumerate() {
            for window in recorded.windows.values_mut() {
                window.see(&*recorded.backing, |offset, bytes| {
                    events.push(Event::Write {
                        file,
                        offset,
                        bytes,
                    });
                });
            }
        }
    }
}

impl Recorded {
    fn new(memory: &Memory, number: usize) -> io::Result<Self> {
        Ok(Self {
            backing: memory.open(&number.to_string(), OpenMode::CreateNew)?,
            windows: BTreeMap::new(),
        })
    }
}

impl Watched {
    /// Compares what the file holds with what was seen last, and tells each sector that was stored to.
    fn see(&mut self, backing: &dyn File, mut stored: impl FnMut(u64, Arc<[u8]>)) {
        let Self {
            offset,
            seen,
            stored: announced,
        } = self;
        let mut now = [0; LOOK_BYTES];
        for (chunk, start) in seen.chunks_mut(LOOK_BYTES).zip((0..).step_by(LOOK_BYTES)) {
            let now = &mut now[..chunk.len()];
            // The file may have been cut under the window; then there is nothing to see.
            if backing.read_exact_at(now, *offset + start as u64).is_err() {
                return;
            }
            let sectors = start / SECTOR_BYTES..(start + chunk.len()).div_ceil(SECTOR_BYTES);
            if now == chunk && announced.range(sectors.clone()).next().is_none() {
                continue;
            }
            let pairs = now.chunks(SECTOR_BYTES).zip(chunk.chunks(SECTOR_BYTES));
            for (sector, (now, seen)) in sectors.zip(pairs) {
                // What was changed without being announced is seen all the same.
                if announced.contains(&sector) || now != seen {
                    stored(*offset + (sector * SECTOR_BYTES) as u64, now.into());
                }
            }
            chunk.copy_from_slice(now);
        }
        announced.clear();
    }
}

impl Storage for Disk {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        let call = if mode == OpenMode::CreateNew {
            Call::Grow
        } else {
            Call::Look
        };
        let (mut state, _) = self.call(call)?;
        match (state.names.get(name), mode) {
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(number), _) => Ok(self.file(*number, &state, mode == OpenMode::Blocks)),
            (None, OpenMode::CreateNew) => {
                let number = state.files.len();
                let file = Recorded::new(&state.memory, number)?;
                state.files.push(file);
                state.names.insert(name.to_owned(), number);
                state.events.push(Event::Create {
                    name: name.to_owned(),
                    file: number,
                });
                Ok(self.file(number, &state, false))
            }
            (None, _) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let (state, _) = self.call(Call::Look)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let (mut state, _) = self.call(Call::Change)?;
        let number = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), number);
        state.events.push(Event::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, _) = self.call(Call::Look)?;
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.events.push(Event::Remove {
            name: name.to_owned(),
        });
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let (mut state, _) = self.call(Call::Change)?;
        state.events.push(Event::SyncNames);
        Ok(())
    }

    fn identity(&self) -> io::Result<Identity> {
        self.lock().memory.identity()
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}

/// An open file of the simulated disk.
#[derive(Debug)]
struct Handle {
    disk: Disk,
    number: usize,
    /// It takes whole blocks only.
    in_blocks: bool,
    backing: Arc<dyn File>,
}

impl Handle {
    /// Refuses what a system that writes past the page cache may refuse.
    fn check_blocks(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let is_whole = |part: &IoSlice<'_>| {
            part.len().is_multiple_of(BLOCK_BYTES)
                && part.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
        };
        if self.in_blocks
            && !(offset.is_multiple_of(BLOCK_BYTES as u64) && parts.iter().all(is_whole))
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(())
    }

    fn record_growth(&self, state: &mut State, old_size: u64) -> io::Result<()> {
        let size = self.backing.size()?;
        if size != old_size {
            state.events.push(Event::Size {
                file: self.number,
                size,
            });
        }
        Ok(())
    }

    /// A sync of some bytes and the size.
    fn record_sync_of(&self, offset: u64, length: usize) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.see_windows();
        let answer = state.count(Call::Change);
        state.events.push(Event::SyncRange {
            file: self.number,
            offset,
            length,
            succeeded: answer.is_ok(),
        });
        answer.map(drop)
    }
}

impl File for Handle {
    fn size(&self) -> io::Result<u64> {
        let _state = self.disk.call(Call::Look)?;
        self.backing.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let _state = self.disk.call(Call::Read)?;
        self.backing.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.check_blocks(parts, offset)?;
        let (mut state, bytes_max) = self.disk.call(Call::Write)?;
        let mut bytes = Vec::new();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.truncate(bytes_max);
        let old_size = self.backing.size()?;
        self.backing.write_all_at(&bytes, offset)?;
        self.record_growth(&mut state, old_size)?;
        let written = bytes.len();
        state.events.push(Event::Write {
            file: self.number,
            offset,
            bytes: bytes.into(),
        });
        Ok(written)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let (mut state, _) = self.disk.call(Call::Grow)?;
        let old_size = self.backing.size()?;
        let end = offset
            .checked_add(length)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        // Memory need not be reserved: what is not stored to takes none.
        self.backing.set_size(end.max(old_size))?;
        self.record_growth(&mut state, old_size)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let (mut state, _) = self.disk.call(Call::Change)?;
        let old_size = self.backing.size()?;
        self.backing.set_size(size)?;
        self.record_growth(&mut state, old_size)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.see_windows();
        let answer = state.count(Call::Change);
        state.events.push(Event::Sync {
            file: self.number,
            succeeded: answer.is_ok(),
        });
        answer.map(drop)
    }

    fn sync_range(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.record_sync_of(offset, length)
    }

    /// The byte that the real thing writes is zero before and after: there is nothing to record of it.
    fn sync_room(&self, _: u64, _: u64) -> io::Result<()> {
        self.record_sync_of(0, 0)
    }

    fn write_durably_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let length = self.write_at(parts, offset)?;
        self.record_sync_of(offset, length)?;
        Ok(length)
    }

    fn map(&self, reserve: usize) -> io::Result<Map> {
        let _state = self.disk.call(Call::Look)?;
        self.backing.map(reserve)
    }

    fn window(&self, offset: u64, length: usize) -> io::Result<Window> {
        let (mut state, _) = self.disk.call(Call::Look)?;
        let id = state.windows;
        state.windows += 1;
        // The watch takes this lock when it goes.
        drop(state);
        let watch = Box::new(Watcher {
            disk: self.disk.clone(),
            file: self.number,
            id,
        });
        let window = Window::new(self.backing.handle(), offset, length, Some(watch))?;
        let mut seen = vec![0; length];
        self.backing.read_exact_at(&mut seen, offset)?;
        let watched = Watched {
            offset,
            seen,
            stored: BTreeSet::new(),
        };
        let mut state = self.disk.lock();
        state.files[self.number].windows.insert(id, watched);
        drop(state);
        Ok(window)
    }

    fn identity(&self) -> io::Result<Identity> {
        Ok(Identity {
            device: self.disk.identity()?.inode,
            inode: self.number as u64,
        })
    }

    fn handle(&self) -> &std::fs::File {
        self.backing.handle()
    }
}

/// Learns of stores through a window, and takes a last look at it before it goes.
struct Watcher {
    disk: Disk,
    file: usize,
    id: u64,
}

impl Watch for Watcher {
    fn stores(&self, offset: usize, length: usize) {
        let mut state = self.disk.lock();
        if let Some(window) = state.files[self.file].windows.get_mut(&self.id) {
            let end = (offset + length).div_ceil(SECTOR_BYTES);
            window.stored.extend(offset / SECTOR_BYTES..end);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        state.see_windows();
        state.files[self.file].windows.remove(&self.id);
    }
}
