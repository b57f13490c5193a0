//! Linux: files, mappings, sleeping threads. Calls are repeated when interrupted where that is harmless.

// Mapping memory is what cannot be said in safe Rust; each function states what keeps the mapping sound.
#![allow(unsafe_code)]

mod memory;
mod processes;

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{self, NonNull};
#[cfg(not(shuttle))]
use std::{sync::atomic::AtomicU32, time::Duration};

use rustix::fs::{self, FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
#[cfg(not(shuttle))]
use rustix::thread::futex::{self, Timespec};

pub use memory::memory_bytes;
pub use processes::fork_count;
pub(crate) use processes::{ByteLocks, boot_id, count_forks, own_namespace, start_time};

use crate::sys::{Identity, OpenMode};

/// How many zeros are written at once where the file system cannot allocate.
const ZEROS_BYTES: usize = 64 * 1024;

pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| fs::open(path, flags, Mode::empty()))?.into())
}

pub(crate) fn open(
    folder: &File,
    name: &str,
    mode: OpenMode,
    permissions: u32,
) -> io::Result<File> {
    let flags = match mode {
        OpenMode::Read => OFlags::RDONLY,
        OpenMode::Write => OFlags::RDWR,
        OpenMode::Blocks => OFlags::WRONLY | OFlags::DIRECT,
        OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
    };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    let permissions = Mode::from_raw_mode(permissions);
    let file = retry_on_intr(|| fs::openat(folder, name, flags, permissions))?;
    Ok(file.into())
}

/// How a file is created outside of any [`Storage`](crate::storage::Storage) that only those with these permission bits
/// (less the umask) may use.
pub fn creating_with(permissions: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(permissions);
    options
}

pub(crate) fn open_in_memory(name: &CStr) -> io::Result<File> {
    Ok(fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

pub(crate) fn rename(folder: &File, from: &str, to: &str) -> io::Result<()> {
    Ok(fs::renameat(folder, from, folder, to)?)
}

pub(crate) fn remove(folder: &File, name: &str) -> io::Result<()> {
    Ok(fs::unlinkat(folder, name, fs::AtFlags::empty())?)
}

/// A sync is never repeated here: the one that asked must see its first answer.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    Ok(fs::fsync(file)?)
}

pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    Ok(fs::fdatasync(file)?)
}

pub(crate) fn identity(file: &File) -> io::Result<Identity> {
    let stat = fs::fstat(file)?;
    Ok(Identity {
        device: stat.st_dev,
        inode: stat.st_ino,
    })
}

/// Whether it is a block device, which has the size that it has.
pub(crate) fn is_device(file: &File) -> io::Result<bool> {
    let mode = fs::fstat(file)?.st_mode;
    Ok(FileType::from_raw_mode(mode) == FileType::BlockDevice)
}

pub(crate) fn size(file: &File) -> io::Result<u64> {
    if is_device(file)? {
        // Its inode says nothing of it. Nobody goes by the position.
        return Ok(fs::seek(file, SeekFrom::End(0))?);
    }
    u64::try_from(fs::fstat(file)?.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}

pub(crate) fn set_size(file: &File, size: u64) -> io::Result<()> {
    if is_device(file)? {
        return check_device(file, size);
    }
    Ok(retry_on_intr(|| fs::ftruncate(file, size))?)
}

/// Whether a device has room for so many bytes.
fn check_device(file: &File, end: u64) -> io::Result<()> {
    if end > size(file)? {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(file, buffer, offset)?)
}

pub(crate) fn write_at(file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    Ok(match parts {
        // The system need not copy the list of parts.
        [part] => rustix::io::pwrite(file, part, offset)?,
        _ => rustix::io::pwritev(file, parts, offset)?,
    })
}

/// One call for both; where the file system cannot do that, two. As a sync, it is never repeated here.
pub(crate) fn write_durably_at(
    file: &File,
    parts: &[IoSlice<'_>],
    offset: u64,
) -> io::Result<usize> {
    match rustix::io::pwritev2(file, parts, offset, ReadWriteFlags::DSYNC) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let written = write_at(file, parts, offset)?;
            sync_data(file)?;
            Ok(written)
        }
        written => Ok(written?),
    }
}

/// `msync(2)`, the one call that syncs a part of a file. A file that is not open for writing is refused, as `msync`
/// does nothing for it.
pub(crate) fn sync_range(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let Ok(length) = usize::try_from(length) else {
        return sync_data(file);
    };
    if length == 0 {
        return Ok(());
    }
    let base = map_writable(file, offset, length)?;
    // SAFETY: the mapping was just made; the call reads and changes no memory.
    let synced = unsafe { mm::msync(base.as_ptr().cast(), length, mm::MsyncFlags::SYNC) };
    // SAFETY: as above, and nobody has learned of it.
    unsafe { unmap(base, length) };
    Ok(synced?)
}

/// `sync_file_range(2)`, where there is one. It takes the file's writing errors from the next sync, so its own have to
/// be heeded.
pub(crate) fn write_out(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    // SAFETY: a call on an open file that takes no pointer.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        error => Err(error),
    }
}

/// `fallocate(2)`; where the file system has none, zeros are written from the end of the file on. A device has all its
/// room.
pub(crate) fn allocate(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if is_device(file)? {
        return check_device(file, offset.saturating_add(length));
    }
    match retry_on_intr(|| fs::fallocate(file, FallocateFlags::empty(), offset, length)) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros_to(file, offset.saturating_add(length)),
        Err(error) => Err(error.into()),
    }
}

/// A write of one byte that is synced by itself: the file's size and the places of its bytes become durable with it,
/// which are all there is to room from `fallocate(2)`, but bytes written elsewhere in the file need not go to the disk
/// first.
pub(crate) fn sync_room(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let Some(last) = offset.saturating_add(length).checked_sub(1) else {
        return Ok(());
    };
    if is_device(file)? {
        return Ok(());
    }
    // What was allocated and not written looks like a hole. Zeros that were written have to be synced.
    let is_empty = match fs::seek(file, SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => true,
        data => data? > last,
    };
    if is_empty {
        let byte = [IoSlice::new(&[0])];
        match retry_on_intr(|| rustix::io::pwritev2(file, &byte, last, ReadWriteFlags::DSYNC)) {
            Ok(1..) => return Ok(()),
            Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    sync_data(file)
}

fn write_zeros_to(file: &File, end: u64) -> io::Result<()> {
    let zeros = [0; ZEROS_BYTES];
    let mut at = size(file)?;
    while at < end {
        let length = usize::try_from(end - at).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        let written = retry_on_intr(|| rustix::io::pwrite(file, &zeros[..length], at))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += written as u64;
    }
    Ok(())
}

/// Maps the file from its start, read-only, in a range that may reach beyond its end.
pub(crate) fn map_shared(file: &File, length: usize) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: the system picks an address range that is in use by nothing else; the one that reads through it answers
    // for the bytes.
    let base = unsafe { mm::mmap(ptr::null_mut(), length, ProtFlags::READ, flags, file, 0)? };
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

pub(crate) fn map_writable(file: &File, offset: u64, length: usize) -> io::Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: as in `map_shared`.
    let base = unsafe {
        mm::mmap(
            ptr::null_mut(),
            length,
            access,
            MapFlags::SHARED,
            file,
            offset,
        )?
    };
    // The one that stores to a page wants that page. Without the advice the system reads its neighbours as well,
    // filling them with zeroes where nothing was written yet, and keeps them in one large piece, every part of which it
    // looks at again with each first store to one of its pages. A hint, so errors mean nothing. SAFETY: the mapping was
    // just made; this advice changes no memory.
    let _ = unsafe { mm::madvise(base, length, Advice::Random) };
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Maps the file from its start so that what is stored there is seen by this process alone; the file may be open for
/// reading only.
pub(crate) fn map_copy(file: &File, length: usize) -> io::Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: as in `map_shared`.
    let base = unsafe { mm::mmap(ptr::null_mut(), length, access, flags, file, 0)? };
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Memory of this process alone, zeroed.
pub(crate) fn map_private(length: usize) -> io::Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: as in `map_shared`.
    let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE)? };
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// # Safety
/// `base` and `length` are those of one mapping made here, and nothing refers to it any more.
pub(crate) unsafe fn unmap(base: NonNull<u8>, length: usize) {
    // SAFETY: the caller's promise. An error is impossible for a range that was mapped, and could not be handled.
    let _ = unsafe { mm::munmap(base.as_ptr().cast(), length) };
}

/// Tells the system that what lies around a page of the range that is read is most likely not wanted; a hint, so errors
/// mean nothing.
///
/// # Safety
/// `base` and `length` lie within one mapping made here.
pub(crate) unsafe fn will_jump(base: NonNull<u8>, length: usize) {
    // SAFETY: the caller's promise; this advice changes no memory.
    let _ = unsafe { mm::madvise(base.as_ptr().cast(), length, Advice::Random) };
}

/// Asks the system to read the range ahead; a hint, so errors mean nothing.
///
/// # Safety
/// `base` and `length` lie within one mapping made here.
pub(crate) unsafe fn will_need(base: NonNull<u8>, length: usize) {
    // SAFETY: the caller's promise; this advice changes no memory.
    let _ = unsafe { mm::madvise(base.as_ptr().cast(), length, Advice::WillNeed) };
}

/// The number by which the system knows the calling thread.
pub fn thread_number() -> u32 {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    thread.cast_unsigned()
}

/// Sleeps while `word`, which may be shared with other processes, is `value`; at most for `patience`. May wake up
/// early.
#[cfg(not(shuttle))]
pub fn wait_while(word: &AtomicU32, value: u32, patience: Duration) {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    // Changed already, interrupted, timed out: the caller looks at the word again in any case.
    let _ = futex::wait(word, futex::Flags::empty(), value, Some(&timeout));
}

/// Wakes one of those who sleep on `word`.
#[cfg(not(shuttle))]
pub fn wake_one(word: &AtomicU32) {
    // As in `wake_all`.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Wakes everybody who sleeps on `word`.
#[cfg(not(shuttle))]
pub fn wake_all(word: &AtomicU32) {
    // It fails only for an address that is not ours to read.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_can_be_allocated_zeros_are_written_behind_the_end() {
        let file = open_in_memory(c"zeros").unwrap();
        write_at(&file, &[IoSlice::new(b"kept")], 0).unwrap();
        let end = 2 * ZEROS_BYTES as u64 + 5;
        write_zeros_to(&file, end).unwrap();
        assert_eq!(size(&file).unwrap(), end);
        write_zeros_to(&file, 3).unwrap();
        assert_eq!(size(&file).unwrap(), end, "never shorter");
        let mut bytes = [1; 8];
        read_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"kept\0\0\0\0");
    }
}
