//! Which processes have something open together, which of them live, and who came first.
//!
//! The lock file carries open-file-description locks on single bytes:
//!
//! ```text
//!  byte 0        held while it is being opened: one process at a time looks around
//!  byte 1        held, by any number, by those who look at what is shared without sharing it: it must not change
//!  byte 16 + n   held as long as the process with entry n of the process table has it open
//! ```
//!
//! The system drops the locks of a dead process, however it died. A forked child would inherit them and keep its parent
//! alive beyond death, so a fork handler closes them in the child; and for children that came about without the handler
//! the entry also holds pid, start time and pid namespace: the one that is in the same namespace believes these.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use crate::sys::{self, ByteLocks};
pub use crate::sys::{fork_count, thread_number};

/// How many processes may share one lock file at a time.
pub const PROCESSES_MAX: usize = 128;

const OPENING_BYTE: i64 = 0;
const STILL_BYTE: i64 = 1;
const PROCESS_BYTES_FROM: i64 = 16;

/// The number of this run of the system: what was left in memory under another one is gone, or stale. 0 if it cannot be
/// told.
pub fn boot_id() -> u128 {
    sys::boot_id().unwrap_or(0)
}

/// What tells a file from its copies, for as long as it is there: device, inode and, where the file system knows it,
/// when it was made.
///
/// # Errors
/// Those of asking the system for it.
pub fn stamp_of(file: &File) -> io::Result<[u64; 3]> {
    let sys::Identity { device, inode } = sys::identity(file)?;
    let born = file.metadata()?.created().ok();
    let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |born| born.as_nanos() as u64);
    Ok([device, inode, born])
}

/// An entry of the process table, in memory that processes share. All zeroes is a free one; who holds the entry's lock
/// byte may change it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ProcessEntry {
    pid: AtomicU32,
    _reserved: AtomicU32,
    start: AtomicU64,
    namespace: AtomicU64,
}

impl ProcessEntry {
    fn set(&self, identity: Identity) {
        self.start.store(identity.start, Ordering::Relaxed);
        self.namespace.store(identity.namespace, Ordering::Relaxed);
        self.pid.store(identity.pid, Ordering::Release);
    }

    /// The process's id, in its own namespace.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Acquire)
    }

    fn get(&self) -> Identity {
        Identity {
            pid: self.pid(),
            start: self.start.load(Ordering::Relaxed),
            namespace: self.namespace.load(Ordering::Relaxed),
        }
    }
}

/// What tells a process from all others there have been, within its pid namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    pid: u32,
    /// In clock ticks since boot.
    start: u64,
    /// The inode of the pid namespace, 0 if unknown.
    namespace: u64,
}

impl Identity {
    fn own() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start: sys::start_time(pid).unwrap_or(0),
            namespace: sys::own_namespace(),
        }
    }

    /// Whether the process can be seen to have ended. Without a common namespace nothing can be seen.
    fn has_ended(self) -> bool {
        if self.namespace == 0 || self.namespace != sys::own_namespace() || self.start == 0 {
            return false;
        }
        match sys::start_time(self.pid) {
            Ok(start) => start != self.start,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// This process's place among those that share a lock file.
#[derive(Debug)]
pub struct Membership {
    /// `None` where this is the only process in the table.
    locks: Option<LockFile>,
    /// Keeps what is looked at without being shared from changing.
    _still: Option<LockFile>,
    index: u16,
    fork_count: u32,
    /// One thread at a time clears up after a dead process: to the system all threads hold the same locks.
    reaping: Mutex<()>,
}

impl Membership {
    /// The only process there is: in memory and on a simulated disk.
    pub fn alone(table: &[ProcessEntry]) -> Self {
        Self::apart(None, table)
    }

    /// The only process in a table of its own, which may hold what others share still ([`LockFile::hold_still`]).
    pub fn apart(still: Option<LockFile>, table: &[ProcessEntry]) -> Self {
        sys::count_forks();
        Self {
            _still: still,
            ..Self::at(0, None, table)
        }
    }

    /// With this entry of the table.
    fn at(index: u16, locks: Option<LockFile>, table: &[ProcessEntry]) -> Self {
        if let Some(entry) = table.get(usize::from(index)) {
            entry.set(Identity::own());
        }
        Self {
            locks,
            _still: None,
            index,
            fork_count: fork_count(),
            reaping: Mutex::new(()),
        }
    }

    /// Takes the first entry of the table that no living process has. `clear` removes what a dead one has left under
    /// that entry, and refuses it while there is something that others have to clear up first.
    pub fn join(
        locks: LockFile,
        table: &[ProcessEntry],
        clear: impl Fn(u16) -> bool,
    ) -> io::Result<Option<Self>> {
        for (index, _) in (0..).zip(table) {
            if locks.0.try_lock(process_byte(index))? {
                if clear(index) {
                    return Ok(Some(Self::at(index, Some(locks), table)));
                }
                locks.0.unlock(process_byte(index));
            }
        }
        Ok(None)
    }

    /// Lets others open what is shared, now that this process has.
    pub fn unlock_opening(&self) {
        if let Some(locks) = &self.locks {
            locks.0.unlock(OPENING_BYTE);
        }
    }

    /// Keeps others from opening what is shared until this is dropped, unless somebody else has it open or is about to;
    /// whether it does.
    pub fn lock_opening_if_last(&self) -> io::Result<bool> {
        let Some(locks) = &self.locks else {
            return Ok(true);
        };
        if !locks.0.try_lock(OPENING_BYTE)? {
            return Ok(false);
        }
        let is_last = !locks.is_in_use()? && !locks.is_held_still()?;
        if !is_last {
            locks.unlock_opening();
        }
        Ok(is_last)
    }

    /// Cuts the lock file to nothing, for who has kept others from opening ([`Membership::lock_opening_if_last`]) and
    /// looks at nothing that is shared any more.
    pub fn empty_lock_file(&self) -> io::Result<()> {
        match &self.locks {
            Some(locks) => locks.0.empty_file(),
            None => Ok(()),
        }
    }

    /// The index of this process's entry.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Whether this is a child of the process that joined.
    pub fn is_forked(&self) -> bool {
        self.fork_count != fork_count()
    }

    /// Whether the process with this entry still lives and has the lock file open.
    pub fn is_alive(&self, index: u16, table: &[ProcessEntry]) -> bool {
        if index == self.index {
            return true;
        }
        let Some(locks) = &self.locks else {
            return false;
        };
        // If the system does not answer, nobody is declared dead.
        let locked = locks.0.is_locked(process_byte(index), 1).unwrap_or(true);
        locked && !has_ended(index, table)
    }

    /// Runs `clear` for the entry of a dead process while nobody can take that entry over; gives whether it could.
    pub fn reap(&self, index: u16, table: &[ProcessEntry], clear: impl FnOnce()) -> bool {
        let Some(locks) = self.locks.as_ref().filter(|_| index != self.index) else {
            return false;
        };
        let _one_thread = self.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        let take = |byte| locks.0.try_lock(byte).unwrap_or(false);
        let own = process_byte(index);
        // A child that came about without the fork handler may hold the lock of its dead parent for ever. Then the one
        // that would take the entry over is kept from opening.
        let byte = if take(own) {
            own
        } else if has_ended(index, table) && take(OPENING_BYTE) {
            OPENING_BYTE
        } else {
            return false;
        };
        let is_dead = byte == own || has_ended(index, table);
        if is_dead {
            clear();
        }
        locks.0.unlock(byte);
        is_dead
    }
}

/// Whether the process that took an entry is known to be over.
fn has_ended(index: u16, table: &[ProcessEntry]) -> bool {
    let entry = table.get(usize::from(index));
    entry.is_some_and(|entry| entry.get().has_ended())
}

fn process_byte(index: u16) -> i64 {
    PROCESS_BYTES_FROM + i64::from(index)
}

/// A lock file, opened for this process alone.
#[derive(Debug)]
pub struct LockFile(ByteLocks);

impl LockFile {
    /// Takes charge of the open lock file.
    pub fn new(file: File) -> Self {
        Self(ByteLocks::new(file))
    }

    /// Waits until no other process is opening what is shared.
    pub fn lock_opening(&self) -> io::Result<()> {
        self.0.lock(OPENING_BYTE)
    }

    /// As [`LockFile::lock_opening`], beside others who do the same; a lock file that is open for reading only will do.
    pub fn lock_opening_shared(&self) -> io::Result<()> {
        self.0.lock_shared(OPENING_BYTE)
    }

    /// Lets others open what is shared.
    pub fn unlock_opening(&self) {
        self.0.unlock(OPENING_BYTE);
    }

    /// Whether any process has it open already.
    pub fn is_in_use(&self) -> io::Result<bool> {
        self.0.is_locked(PROCESS_BYTES_FROM, PROCESSES_MAX as i64)
    }

    /// From now on, and as long as this is kept, [`LockFile::is_held_still`] tells others that this process looks at
    /// what is shared without having joined them. For the holder of the opening lock, while nobody has it open.
    pub fn hold_still(&self) -> io::Result<()> {
        self.0.lock_shared(STILL_BYTE)
    }

    /// Whether anybody else looks at what is shared without having joined those who share it.
    pub fn is_held_still(&self) -> io::Result<bool> {
        self.0.is_locked(STILL_BYTE, 1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn table() -> Vec<ProcessEntry> {
        (0..PROCESSES_MAX)
            .map(|_| ProcessEntry::default())
            .collect()
    }

    #[test]
    fn entries_are_taken_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let path = folder.path().join("lock");
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            LockFile::new(options.open(path).unwrap())
        };
        let table = table();
        let first = open();
        assert!(!first.is_in_use().unwrap());
        let first = Membership::join(first, &table, |_| true).unwrap().unwrap();
        assert!(open().is_in_use().unwrap());
        // Another open file description counts as another process does.
        let second = Membership::join(open(), &table, |_| true).unwrap().unwrap();
        assert_eq!((first.index(), second.index()), (0, 1));
        assert!(first.is_alive(1, &table));
        assert!(!first.is_alive(2, &table));
        assert!(!first.reap(1, &table, || panic!("reaped the living")));
        let third = Membership::join(open(), &table, |index| index != 2)
            .unwrap()
            .unwrap();
        assert_eq!(third.index(), 3, "entry 2 is not cleared up");
        drop((second, third));
        assert!(!first.is_alive(1, &table));
        let mut reaped = false;
        assert!(first.reap(1, &table, || reaped = true));
        assert!(reaped);
    }

    #[test]
    fn an_entry_whose_lock_outlives_its_process_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        drop(File::create_new(&path).unwrap());
        let open = || LockFile::new(File::options().read(true).write(true).open(&path).unwrap());
        let table = table();
        let join = || Membership::join(open(), &table, |_| true).unwrap().unwrap();
        let (first, orphan) = (join(), join());
        // The process that had joined is gone, and another one has inherited its lock.
        table[1].start.fetch_add(1, Ordering::Relaxed);
        assert!(!first.is_alive(1, &table));
        let opening = open();
        opening.lock_opening().unwrap();
        assert!(!first.reap(1, &table, || panic!("somebody is joining")));
        opening.unlock_opening();
        let mut reaped = false;
        assert!(first.reap(1, &table, || reaped = true));
        assert!(reaped);
        opening.lock_opening().unwrap();
        assert_eq!(join().index(), 2, "the lock is still held");
        drop(orphan);
    }

    #[test]
    fn what_is_looked_at_is_held_still() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let writable = LockFile::new(File::create_new(&path).unwrap());
        let reader = || LockFile::new(File::open(&path).unwrap());
        assert!(!writable.is_held_still().unwrap());
        let readers = [reader(), reader()];
        for reader in &readers {
            reader.lock_opening_shared().unwrap();
            assert!(!reader.is_in_use().unwrap());
            reader.hold_still().unwrap();
            reader.unlock_opening();
        }
        writable.lock_opening().unwrap();
        assert!(writable.is_held_still().unwrap());
        let [first, second] = readers;
        drop(first);
        assert!(writable.is_held_still().unwrap());
        drop(Membership::apart(Some(second), &table()));
        assert!(!writable.is_held_still().unwrap());
    }

    #[test]
    fn an_ended_process_is_recognised() {
        let own = Identity::own();
        assert!(!own.has_ended());
        assert!(
            Identity {
                start: own.start + 1,
                ..own
            }
            .has_ended()
        );
        assert!(
            !Identity {
                namespace: 1,
                start: own.start + 1,
                ..own
            }
            .has_ended()
        );
    }
}
