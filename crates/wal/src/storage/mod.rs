//! The one place that touches files.
//!
//! Everything durable goes through two traits, so that the same code runs on a folder of the file system ([`Folder`]),
//! in memory ([`Memory`]) and, in tests, on a simulated disk that loses power:
//!
//! - [`Storage`] is a folder: it opens files by name and makes names durable.
//! - [`File`] is a file in it: positioned reads and writes, growth ahead of need, and the two kinds of mapping the
//!   store uses, a large read-only [`Map`] under which the file grows, and a short-lived writable [`Window`] over
//!   freshly allocated pages.
//!
//! The calls are those of the operating system with its guarantees and no more: a write may be short or interrupted,
//! nothing is durable before [`File::sync_data`], and a created, renamed or removed name not before
//! [`Storage::sync_names`].

mod folder;
mod map;
mod memory;
mod private;
#[cfg(test)]
#[path = "../../../testkit/src/storage/recording/mod.rs"]
pub mod recording;

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

pub use folder::{Folder, PRIVATE_PERMISSIONS};
pub use map::{Map, Watch, Window, read_ahead};
pub use memory::Memory;
pub use private::PrivateCopy;

pub use crate::sys::{Identity, OpenMode, creating_with, memory_bytes};

/// The granule of [`File::map`] and [`File::window`] offsets in bytes; file offsets handed to them are multiples of it.
pub const MAP_GRANULE_BYTES: usize = 4096;

/// What an operation on a file gave, `None` if there is no such file.
pub fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// What a file that was opened with [`OpenMode::Blocks`] is written in multiples of, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// A folder of files. Names are single path components.
pub trait Storage: Send + Sync + Debug {
    /// Opens the file `name`.
    ///
    /// # Errors
    /// `NotFound`, or `AlreadyExists` for [`OpenMode::CreateNew`]; `InvalidInput` if `name` is not a single path
    /// component. For [`OpenMode::Blocks`] `Unsupported` or `InvalidInput` where files are only written through the
    /// page cache, which a write may say, too.
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// The names of all files in the folder, in no particular order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Gives the file `from` the name `to`, replacing a file of that name in one step.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes the name; a file that is still open lives until it is closed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all created, renamed and removed names durable.
    fn sync_names(&self) -> io::Result<()>;

    /// Which folder this is.
    fn identity(&self) -> io::Result<Identity>;

    /// Where the folder is in the file system, if other processes can open it too. Without a path (in memory, on a
    /// simulated disk) whatever several processes would share, such as a lock region, is private to this process.
    fn path(&self) -> Option<&Path>;
}

/// An open file.
pub trait File: Send + Sync + Debug {
    /// The size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Whether it is a block device: its size never changes, and room that it is asked for is there, with whatever it
    /// holds, or is not.
    fn is_device(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Reads at `offset` and returns how many bytes were read, fewer than asked at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes the parts one after the other at `offset` and returns how many bytes were written, which may be fewer
    /// than given.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Backs `offset..offset + length` with disk space and grows the file to hold it; new bytes read as zero and bytes
    /// already there stay. After a [`File::sync_room`], stores to the range through a [`Window`] no longer need space,
    /// except on file systems that copy on write.
    ///
    /// # Errors
    /// `StorageFull`; the file may then have grown by a part.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Makes durable that the file has the room that [`File::allocate`] has just given it at its end, and waits for
    /// nothing else that was written to it. Nobody may have stored anything to the last byte of that room, which is
    /// written as zero. After an error the same holds as for [`File::sync_data`].
    fn sync_room(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Cuts or extends the file to `size` bytes. An extension is not backed by disk space: see [`File::allocate`].
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Makes everything written to this file before the call durable, through writes and windows alike, with the size
    /// needed to read it back. After an error nothing may be assumed about what reached the disk, and calling again
    /// proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`File::sync_data`], but for what was written to `offset..offset + length`, `offset` being a multiple of
    /// [`MAP_GRANULE_BYTES`]; the rest need not be waited for. The file is open for writing.
    fn sync_range(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        self.sync_data()
    }

    /// Writes the parts one after the other at `offset`, makes what was written durable, with the size needed to read
    /// it back, and returns how many bytes that were, which may be fewer than given. Whatever else was written to the
    /// file is not waited for. After an error nothing may be assumed, as after one of [`File::sync_data`].
    fn write_durably_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let written = self.write_at(parts, offset)?;
        self.sync_data()?;
        Ok(written)
    }

    /// Has the system write out what was written to `offset..offset + length` so far, and waits for that. It makes
    /// nothing durable, but leaves less for a [`File::sync_range`] to do at once. After an error the same holds as
    /// after one of that.
    fn write_out(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// Maps the whole file read-only into a reserved address range of `reserve` bytes, under which it may grow without
    /// being mapped again.
    ///
    /// # Errors
    /// `OutOfMemory` if the address range is not to be had; the caller may try a smaller one.
    fn map(&self, reserve: usize) -> io::Result<Map>;

    /// Maps `offset..offset + length`, which must lie within the file, writable. Stores show at once in every [`Map`]
    /// and [`File::read_at`], may reach the disk at any moment from then on, and are durable after [`File::sync_data`].
    fn window(&self, offset: u64, length: usize) -> io::Result<Window>;

    /// Which file this is.
    fn identity(&self) -> io::Result<Identity>;

    /// The open file, for the one that maps it in a way of its own. A simulated disk does not see what is stored
    /// through it.
    fn handle(&self) -> &std::fs::File;
}

impl dyn File + '_ {
    /// Fills `buffer` from `offset`, going on after interruptions and short reads.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before the buffer is full.
    pub fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer = buffer.get_mut(read..).unwrap_or_default();
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`, going on after interruptions and short writes.
    ///
    /// # Errors
    /// `StorageFull` and others; a part may have been written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_parts_at(&mut [IoSlice::new(bytes)], offset)
    }

    /// Writes the parts one after the other at `offset`, going on after interruptions and short writes. The slices are
    /// used up.
    ///
    /// # Errors
    /// As [`write_all_at`](#method.write_all_at).
    pub fn write_parts_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_all(parts, offset, |parts, offset| self.write_at(parts, offset))
    }

    /// Writes `bytes` at `offset` and makes them durable, going on after interruptions and short writes.
    ///
    /// # Errors
    /// Those of a write and of a sync, with what may be assumed after the latter: nothing.
    pub fn write_all_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let parts = &mut [IoSlice::new(bytes)];
        write_all(parts, offset, |parts, offset| {
            self.write_durably_at(parts, offset)
        })
    }
}

/// Calls `write` with what is left to be written until nothing is.
fn write_all(
    mut parts: &mut [IoSlice<'_>],
    mut offset: u64,
    write: impl Fn(&[IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    // Leading empty parts would make a write of nothing look like a full disk.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        // The system takes so many parts in one call.
        let at_once = parts.len().min(PARTS_PER_CALL_MAX);
        match write(&parts[..at_once], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                IoSlice::advance_slices(&mut parts, written);
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The most parts one `pwritev(2)` takes (`IOV_MAX`).
const PARTS_PER_CALL_MAX: usize = 1024;

/// Refuses what is not a single, plain path component: for each [`Storage`] that is not a folder of the system.
///
/// # Errors
/// `InvalidInput`.
pub fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("'{name}' is not a file name"),
        ));
    }
    Ok(())
}
