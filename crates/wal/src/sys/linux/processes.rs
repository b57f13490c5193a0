//! Which processes live: locks that the system drops with their holder, start times, forks.

// Byte-range locks of open file descriptions and fork handlers exist only in libc; the calls take no memory but what is
// passed by reference.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Locks on single bytes of a file, held by this process and not by the children it forks.
#[derive(Debug)]
pub(crate) struct ByteLocks {
    fd: RawFd,
    /// Where the fork handler finds the descriptor.
    registered: Option<usize>,
}

impl ByteLocks {
    pub(crate) fn new(file: File) -> Self {
        count_forks();
        let fd = file.into_raw_fd();
        let registered = CLOSED_IN_CHILDREN.iter().position(|place| {
            place
                .compare_exchange(NO_FD, fd, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
        Self { fd, registered }
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self, byte: i64) -> io::Result<()> {
        self.wait_for(libc::F_WRLCK, byte)
    }

    /// Waits for a lock that any number may hold at a time, also those who have the file open for reading only.
    pub(crate) fn lock_shared(&self, byte: i64) -> io::Result<()> {
        self.wait_for(libc::F_RDLCK, byte)
    }

    fn wait_for(&self, kind: i32, byte: i64) -> io::Result<()> {
        loop {
            match self.control(libc::F_OFD_SETLKW, kind, byte, 1) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn try_lock(&self, byte: i64) -> io::Result<bool> {
        match self.control(libc::F_OFD_SETLK, libc::F_WRLCK, byte, 1) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Cuts the file to nothing; its locks stay.
    pub(crate) fn empty_file(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open as long as `self` lives.
        match unsafe { libc::ftruncate(self.fd, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn unlock(&self, byte: i64) {
        // Unlocking a byte one holds cannot fail; the descriptor is open.
        let _: io::Result<_> = self.control(libc::F_OFD_SETLK, libc::F_UNLCK, byte, 1);
    }

    /// Whether anybody else holds a lock on one of these bytes.
    pub(crate) fn is_locked(&self, from: i64, length: i64) -> io::Result<bool> {
        let found = self.control(libc::F_OFD_GETLK, libc::F_WRLCK, from, length)?;
        Ok(i32::from(found.l_type) != libc::F_UNLCK)
    }

    fn control(&self, command: i32, kind: i32, from: i64, length: i64) -> io::Result<libc::flock> {
        // SAFETY: `flock` consists of integers, for which zero is a value; open-file-description locks require a pid of
        // 0.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind as i16;
        range.l_whence = libc::SEEK_SET as i16;
        range.l_start = from;
        range.l_len = length;
        // SAFETY: the descriptor is ours, and the command takes a pointer to a `flock` that lives across the call.
        if unsafe { libc::fcntl(self.fd, command, &mut range) } == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(range)
    }
}

impl Drop for ByteLocks {
    fn drop(&mut self) {
        let ours = match self.registered {
            Some(place) => CLOSED_IN_CHILDREN[place]
                .compare_exchange(self.fd, NO_FD, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok(),
            None => true,
        };
        if ours {
            // SAFETY: the descriptor is this value's own and is not used again. (If the fork handler has closed it in
            // this process, the place no longer holds it.)
            unsafe { libc::close(self.fd) };
        }
    }
}

/// How many lock files of one process can be kept from being inherited. Beyond that, pid and start time must do.
const CLOSED_IN_CHILDREN_MAX: usize = 256;
const NO_FD: i32 = -1;

static CLOSED_IN_CHILDREN: [AtomicI32; CLOSED_IN_CHILDREN_MAX] =
    [const { AtomicI32::new(NO_FD) }; CLOSED_IN_CHILDREN_MAX];

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the program's start and this process, of those after the first `count_forks`.
#[inline]
pub fn fork_count() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Has forks counted from now on.
pub(crate) fn count_forks() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // SAFETY: the handler does what a fork handler may do: it stores to atomics and calls close(2).
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
}

extern "C" fn in_the_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for place in &CLOSED_IN_CHILDREN {
        let fd = place.swap(NO_FD, Ordering::Relaxed);
        if fd != NO_FD {
            // SAFETY: the descriptor belongs to the `ByteLocks` that registered it, which by the empty place knows that
            // it is closed in this process.
            unsafe { libc::close(fd) };
        }
    }
}

/// The inode of this process's pid namespace, 0 if unknown.
pub(crate) fn own_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino())
}

/// The number of this run of the system, which is another one after the next boot.
pub(crate) fn boot_id() -> io::Result<u128> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.trim().chars().filter(|&digit| digit != '-').collect();
    u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// When a process was started, in clock ticks since boot. Field 22 of `/proc/PID/stat`; the fields are counted from
/// behind the command's closing parenthesis, which is field 2.
pub(crate) fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    stat.rsplit_once(')')
        .and_then(|(_, fields)| fields.split_ascii_whitespace().nth(19))
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
