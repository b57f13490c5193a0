//! Mapped ranges of a file: a [`Map`] to read through, a [`Window`] to write through.

// The mappings hand out raw pointers and unmap themselves; what may be done with the pointers is stated at each
// function.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::MAP_GRANULE_BYTES;
use crate::sys;

/// A file mapped read-only from its first byte in a reserved address range, under which it may grow.
///
/// Bytes beyond the end of the file must not be touched (the system answers with SIGBUS), and bytes may change under
/// the reader wherever a [`Window`] or a write changes the file; which bytes stand still is the business of the one
/// that reads, hence pointers.
#[derive(Debug)]
pub struct Map(Arc<Mapping>);

impl Map {
    pub(super) fn new(file: &File, reserve: usize) -> io::Result<Self> {
        let base = sys::map_shared(file, reserve)?;
        Ok(Self(Mapping::of(base, reserve)))
    }

    pub(super) fn over(whole: &Arc<Mapping>) -> Self {
        Self(whole.clone())
    }

    /// Where the first byte of the file is. It never moves.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.base.as_ptr()
    }

    /// The size of the reserved address range in bytes, which the file can outgrow only by being mapped again.
    pub fn reserved(&self) -> usize {
        self.0.length
    }

    /// The bytes `offset..offset + length`, or `None` if they are not all within the reserved range.
    ///
    /// # Safety
    /// The bytes lie within the file, and nothing changes them while the slice lives.
    pub unsafe fn bytes(&self, offset: usize, length: usize) -> Option<&[u8]> {
        let base = self.0.place(offset, length)?;
        // SAFETY: within the mapping; within the file and unchanged by the caller's promise.
        Some(unsafe { std::slice::from_raw_parts(base.as_ptr(), length) })
    }

    /// Tells the system that the one that reads a page wants that page, and asks for others with [`Map::prefetch`]; a
    /// hint that may be ignored. Without it the system reads much of what lies around a page that is not in memory, and
    /// keeps it in large pieces, every part of which it looks at again with each write to one of the pages.
    pub fn expect_jumps(&self) {
        // SAFETY: all of the mapping.
        unsafe { sys::will_jump(self.0.base, self.0.length) }
    }

    /// Asks the system to read `offset..offset + length` ahead; a hint that may be ignored.
    pub fn prefetch(&self, offset: usize, length: usize) {
        let start = offset - offset % MAP_GRANULE_BYTES;
        let end = offset.saturating_add(length).min(self.0.length);
        if start < end {
            // SAFETY: `start..end` is within the mapping, so `start` moves the base within it too.
            unsafe { sys::will_need(self.0.base.add(start), end - start) }
        }
    }
}

/// As [`Map::prefetch`], of what lies from an address in a map on. An address of something else does no harm.
pub fn read_ahead(at: *const u8, length: usize) {
    let before = at.addr() % MAP_GRANULE_BYTES;
    if let Some(start) = NonNull::new(at.cast_mut().wrapping_sub(before)) {
        // SAFETY: the advice changes no memory, whatever is there or is not.
        unsafe { sys::will_need(start, length.saturating_add(before)) }
    }
}

/// A writable mapping of a part of a file, for the one that alone may write there.
pub struct Window {
    base: NonNull<u8>,
    length: usize,
    /// Dropped before the mapping goes, when no more stores come through this window.
    watcher: Option<Box<dyn Watch>>,
    _mapping: Arc<Mapping>,
}

/// The one that wants to know of stores through a window, as a simulated disk does.
pub trait Watch: Send + Sync {
    /// These bytes of the window are about to be stored to, perhaps with what they hold already.
    fn stores(&self, offset: usize, length: usize);
}

// SAFETY: the mapping is tied to the process, not to a thread.
unsafe impl Send for Window {}
// SAFETY: through a shared reference only the pointer can be had; what is done with it is the caller's promise.
unsafe impl Sync for Window {}

impl Window {
    /// Maps a part of a file for a [`super::File`] that `file` is the memory of; the watcher learns of each store.
    ///
    /// # Errors
    /// `InvalidInput` if `offset` is not a multiple of [`MAP_GRANULE_BYTES`], or the part is empty or ends behind the
    /// file's end.
    pub fn new(
        file: &File,
        offset: u64,
        length: usize,
        watcher: Option<Box<dyn Watch>>,
    ) -> io::Result<Self> {
        if length == 0 || !offset.is_multiple_of(MAP_GRANULE_BYTES as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| sys::size(file).is_ok_and(|size| end > size)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a window must lie within the file",
            ));
        }
        let base = sys::map_writable(file, offset, length)?;
        Ok(Self {
            watcher,
            ..Self::of(base, length)
        })
    }

    /// The whole of a mapping of its own, which has been made for it.
    fn of(base: NonNull<u8>, length: usize) -> Self {
        Self {
            base,
            length,
            watcher: None,
            _mapping: Mapping::of(base, length),
        }
    }

    /// A part of a copy.
    pub(super) fn part(whole: &Arc<Mapping>, offset: u64, length: usize) -> io::Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let base = whole.place(offset, length).filter(|_| length > 0);
        Ok(Self {
            base: base.ok_or(io::ErrorKind::InvalidInput)?,
            length,
            watcher: None,
            _mapping: whole.clone(),
        })
    }

    /// Empties a file that no [`super::Storage`] knows of, such as a lock file, gives it `length` bytes with disk space
    /// behind them (a store into a hole of a file on a full disk would be a SIGBUS), and maps them.
    pub fn fresh(file: &File, length: usize) -> io::Result<Self> {
        file.set_len(0)?;
        sys::allocate(file, 0, length as u64)?;
        Self::new(file, 0, length, None)
    }

    /// Maps a file that no [`super::Storage`] knows of from its first byte.
    ///
    /// # Errors
    /// `InvalidInput` if it has fewer than `length` bytes.
    pub fn over(file: &File, length: usize) -> io::Result<Self> {
        Self::new(file, 0, length, None)
    }

    /// Memory of this process alone, zeroed.
    pub fn private(length: usize) -> io::Result<Self> {
        Ok(Self::of(sys::map_private(length)?, length))
    }

    /// Where the first byte of the window is. It never moves. Stores through the pointer must not overlap with slices
    /// others hold over the same part of the file.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Where the bytes `offset..offset + length` are, in order to be stored to at once; `None` if they are not all
    /// within the window. As with [`Window::as_mut_ptr`], but a simulated disk learns of the store even if it changes
    /// nothing.
    #[inline]
    pub fn place(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        if let Some(watcher) = &self.watcher {
            watcher.stores(offset, length);
        }
        // SAFETY: within the mapping by the test above.
        Some(unsafe { self.base.add(offset) })
    }

    /// The length in bytes, never 0.
    #[expect(clippy::len_without_is_empty, reason = "a window is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// The whole window as a slice.
    ///
    /// # Safety
    /// While the slice lives nobody reads or writes this part of the file through another mapping of this process.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        if let Some(watcher) = &self.watcher {
            watcher.stores(0, self.length);
        }
        // SAFETY: within the mapping, which lies within the file; exclusive by `&mut` and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Window({} bytes)", self.length)
    }
}

/// A mapping, gone with the last one that has a part of it.
pub(super) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is tied to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as for a `Window`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// What `sys` has mapped, for nobody else to unmap.
    fn of(base: NonNull<u8>, length: usize) -> Arc<Self> {
        Arc::new(Self { base, length })
    }

    /// A whole file, mapped so that what is stored there is seen by this process alone: a page is copied with the first
    /// store to it.
    ///
    /// # Errors
    /// `UnexpectedEof` for a file without a byte.
    pub(super) fn copy(file: &File) -> io::Result<Arc<Self>> {
        let length = usize::try_from(sys::size(file)?).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self::of(sys::map_copy(file, length)?, length))
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Copies bytes from `offset` on; gives how many there were.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let count = buffer.len().min(self.length.saturating_sub(offset));
        if count > 0 {
            // SAFETY: `offset..offset + count` is within the mapping, and the buffer, being borrowed mutably, is not a
            // part of it.
            unsafe {
                self.base
                    .add(offset)
                    .copy_to(NonNull::from(buffer).cast(), count)
            };
        }
        count
    }

    fn place(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: within the mapping by the test above.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `sys` with these values; maps and windows over it keep `self`, and slices into it borrow
        // these.
        unsafe { sys::unmap(self.base, self.length) }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Mapping({} bytes)", self.length)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{File as _, Folder, OpenMode, PrivateCopy, Storage};

    #[test]
    fn stores_to_a_copy_show_in_it_and_never_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Folder::open(folder.path()).unwrap();
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let file = storage.open("f", OpenMode::Read).unwrap();
        let copy = PrivateCopy::new(file.clone()).unwrap();
        let map = copy.map(1 << 40).unwrap();
        assert_eq!((copy.size().unwrap(), map.reserved()), (10_000, 10_000));
        let window = copy.window(4096, 5000).unwrap();
        // SAFETY: within the window, and nobody looks meanwhile.
        unsafe { window.place(100, 1).unwrap().write(9) };
        // SAFETY: within the file, and nobody stores meanwhile.
        let bytes = unsafe { map.bytes(4096, 200) }.unwrap();
        assert_eq!((bytes[99], bytes[100], bytes[101]), (7, 9, 7));
        let mut read = [0; 20];
        assert_eq!(copy.read_at(&mut read[..3], 4195).unwrap(), 3);
        assert_eq!(read[..3], [7, 9, 7]);
        assert_eq!(copy.read_at(&mut read, 9_990).unwrap(), 10);
        assert_eq!(copy.read_at(&mut read, 20_000).unwrap(), 0);
        assert!(copy.window(4096, 6000).is_err(), "behind the end");
        assert!(copy.window(8192, 0).is_err());
        assert!(copy.write_at(&[], 0).is_err() && copy.allocate(0, 1).is_err());
        drop((copy, window));
        // SAFETY: as above; the map keeps the copy.
        assert_eq!(unsafe { map.bytes(4196, 1) }.unwrap(), [9]);
        file.read_exact_at(&mut read, 4190).unwrap();
        assert_eq!(read, [7; 20]);
        let empty = storage.open("e", OpenMode::CreateNew).unwrap();
        assert!(PrivateCopy::new(empty).is_err());
    }
}
