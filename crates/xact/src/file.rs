//! A mapped file without transactions: as fast as memory, and as forgetful. After a crash of the program its contents
//! are whatever was stored last, after a crash of the machine anything.

// A mapping as a slice: see `Mapping`.
#![allow(unsafe_code)]

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::mm::{self, Advice, MapFlags, MsyncFlags, ProtFlags};

use crate::heap::{self, Growing, HEAP_BYTES};
use crate::memory::{Fault, Memory, PAGE_BYTES};

/// The address range reserved for a file, which is as large as it can get: 1 TiB.
const RESERVED_BYTES: usize = 1 << 40;

/// Files grow by an eighth of their size, at least by this: 1 MiB.
const GROWTH_BYTES_MIN: u64 = 1 << 20;

/// Free areas from this size on are forgotten by the page cache: 256 KiB.
const DISCARDED_BYTES_MIN: u64 = 256 << 10;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A structure in the file is damaged or cannot do what it was asked.
    #[error(transparent)]
    Structure(#[from] Fault),
}

fn failed<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> FileError {
    move |error| FileError::Io {
        action,
        source: error.into(),
    }
}

/// A file mapped into memory, locked against other programs that use it this way.
///
/// The one that writes to or shortens the file in spite of the lock can crash the program; that is the nature of mapped
/// files.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    map: Mapping,
}

impl File {
    /// Opens the file, or makes an empty one.
    ///
    /// # Errors
    /// If the system refuses, another program has the file open, or it is something else.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed("cannot open the file"))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(failed("cannot lock the file"))?;
        let bytes = file
            .metadata()
            .map_err(failed("cannot measure the file"))?
            .len();
        let mut memory = Self {
            map: Mapping::new(&file).map_err(failed("cannot map the file"))?,
            file,
        };
        if bytes == 0 {
            memory.grow(HEAP_BYTES as u64)?;
            heap::format(memory.map.bytes_mut());
        } else {
            memory.map.length = usize::try_from(bytes)
                .ok()
                .filter(|bytes| *bytes <= RESERVED_BYTES)
                .ok_or(Fault::Full { bytes })?;
            heap::recognise(memory.map.bytes())?;
        }
        Ok(memory)
    }

    /// Returns when everything stored so far is on the disk.
    ///
    /// # Errors
    /// If the system reports that it could not write.
    pub fn sync(&self) -> Result<(), FileError> {
        self.map.sync().map_err(failed("cannot write the file"))
    }

    /// Whether the system is told what will be read, as it is by default. Otherwise it reads ahead by what it guesses,
    /// which is what comparisons are for.
    pub fn set_advice(&mut self, advises: bool) {
        self.map.set_advice(advises);
    }

    /// The size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.map.length as u64
    }
}

impl Growing for File {
    type Error = FileError;

    fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.bytes_mut()
    }

    fn grow(&mut self, bytes: u64) -> Result<(), FileError> {
        let full = || Fault::Full { bytes };
        let have = self.map.length as u64;
        let wanted = bytes
            .max(have + (have / 8).max(GROWTH_BYTES_MIN))
            .checked_next_multiple_of(PAGE_BYTES as u64)
            .ok_or_else(full)?;
        let length = usize::try_from(wanted)
            .ok()
            .filter(|length| *length <= RESERVED_BYTES)
            .ok_or_else(full)?;
        // Backed by disk space now: a store must not find out that the disk is full.
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), have, wanted - have)
            .map_err(failed("cannot grow the file"))?;
        self.map.length = length;
        Ok(())
    }
}

impl Memory for File {
    type Error = FileError;

    #[inline]
    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8], FileError> {
        Ok(heap::part(self.map.bytes(), offset, bytes as u64)?)
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8], FileError> {
        let all = self.map.bytes_mut();
        let at = heap::place(all, offset, bytes as u64)?;
        Ok(&mut all[at..at + bytes])
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, FileError> {
        heap::allocate(self, bytes)
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<(), FileError> {
        heap::free(self, offset, bytes)?;
        // The first page has the place of the next free area. What is in the others need not go to the disk any more;
        // it stays reserved there. A file system that cannot do so writes them.
        let start = (offset + 1).next_multiple_of(PAGE_BYTES as u64);
        let end = (offset + bytes) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        if bytes >= DISCARDED_BYTES_MIN {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.file, flags, start, end - start);
        }
        Ok(())
    }

    fn root(&self) -> Result<u64, FileError> {
        Ok(heap::root(self.map.bytes()))
    }

    fn set_root(&mut self, root: u64) -> Result<(), FileError> {
        heap::set_root(self.map.bytes_mut(), root);
        Ok(())
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        self.map.will_need(offset, bytes);
    }
}

/// The mapping of the whole file, in an address range under which it grows.
///
/// The first `length` bytes are within the file. Only [`File`] has the mapping, and the file is locked, so that its
/// bytes change through `&mut self` alone.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    length: usize,
    /// Whether the system is told what will be read.
    advises: bool,
}

// SAFETY: the mapping is tied to the process, not to a thread, and changes through `&mut self` only.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &fs::File) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the system picks an address range that nothing else uses.
        let base = unsafe { mm::mmap(ptr::null_mut(), RESERVED_BYTES, access, flags, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (length, advises) = (0, true);
        let mut mapping = Self {
            base,
            length,
            advises,
        };
        mapping.set_advice(advises);
        Ok(mapping)
    }

    fn set_advice(&mut self, advises: bool) {
        // The structures say what they will read; what lies around one page is most likely not wanted.
        let advice = match advises {
            true => Advice::Random,
            false => Advice::Normal,
        };
        // SAFETY: the mapping is this value's own; this advice changes no memory.
        let _ = unsafe { mm::madvise(self.base.as_ptr().cast(), RESERVED_BYTES, advice) };
        self.advises = advises;
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped, within the file, and changed only through `&mut self`, as said at the type.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and exclusive by `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes).min(self.length as u64);
        let start = offset - offset % PAGE_BYTES as u64;
        if let (Ok(at), Some(bytes)) = (usize::try_from(start), end.checked_sub(start))
            && self.advises
        {
            let bytes = usize::try_from(bytes).unwrap_or(0);
            // SAFETY: `at..at + bytes` is within the mapping; this advice changes no memory, and is a hint whose error
            // means nothing.
            let _ =
                unsafe { mm::madvise(self.base.as_ptr().add(at).cast(), bytes, Advice::WillNeed) };
        }
    }

    fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is mapped, and writing it back changes no memory.
        unsafe { mm::msync(self.base.as_ptr().cast(), self.length, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length; slices into it borrow `self`.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), RESERVED_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_what_was_stored_and_is_open_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        let mut file = File::open(&path).unwrap();
        let at = file.allocate(3 << 20).unwrap();
        file.write(at + (2 << 20), 5)
            .unwrap()
            .copy_from_slice(b"hello");
        file.set_root(at).unwrap();
        file.sync().unwrap();
        assert!(File::open(&path).is_err(), "locked");
        drop(file);
        let mut file = File::open(&path).unwrap();
        let at = file.root().unwrap();
        assert_eq!(file.read(at + (2 << 20), 5).unwrap(), b"hello");
        assert!(file.read(file.size() - 1, 2).is_err());
        file.prefetch(at, 1 << 30);
        file.prefetch(u64::MAX, 1);
        file.set_advice(false);
        file.prefetch(at, 1 << 30);
        assert_eq!(file.read(at + (2 << 20), 5).unwrap(), b"hello");
    }

    #[test]
    fn another_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letter");
        fs::write(&path, b"Dear all").unwrap();
        assert!(File::open(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"Dear all");
    }
}
