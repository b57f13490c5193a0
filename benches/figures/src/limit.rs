//! Less memory than data: control groups that limit memory, page cache included, and what a process reads of the disk.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;

/// A control group that limits memory, the page cache of its members included. It is removed when it is dropped.
#[derive(Debug)]
pub struct Limit {
    folder: PathBuf,
}

impl Limit {
    /// Makes a group for so many bytes, of version 1 or 2 of control groups; `None` where the system does not let us.
    /// The name tells it from other groups of this process.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Option<Self> {
        let name = format!("sapwood-{name}-{}", std::process::id());
        for (parent, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = Path::new(parent).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let limit = Self { folder };
            if fs::write(limit.folder.join(file), bytes.to_string()).is_ok() {
                return Some(limit);
            }
        }
        None
    }

    /// What runs a command, whose words follow these, as a member: a shell enters the group and becomes it.
    #[must_use]
    pub fn command(&self) -> [String; 4] {
        let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        let folder = self.folder.display().to_string();
        ["sh".to_owned(), "-c".to_owned(), enter.to_owned(), folder]
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // It stays, empty, if a member has not quite ended.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Writes the files of a folder to the disk and lets the system forget what it caches of them, so that the next
/// read begins cold. What somebody has mapped stays.
///
/// # Errors
/// When a file cannot be opened or synced.
pub fn forget(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
            continue;
        }
        let file = File::open(&path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// What a process has had from the disk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskReads {
    /// Bytes that were read for it, those that were read ahead included.
    pub bytes: u64,
    /// Pages of mapped files that it has waited for.
    pub waits: u64,
}

impl DiskReads {
    /// Those of a process; `None` where the kernel does not tell us.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let bytes = io
            .lines()
            .find_map(|line| line.strip_prefix("read_bytes: "));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // proc_pid_stat(5): `majflt` is the 12th field; the second one ends with the last bracket.
        let (_, fields) = stat.rsplit_once(')')?;
        let waits = fields.split_ascii_whitespace().nth(12 - 3);
        Some(Self {
            bytes: bytes?.trim().parse().ok()?,
            waits: waits?.parse().ok()?,
        })
    }

    /// What has come since.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            waits: self.waits.saturating_sub(before.waits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_this_process_are_told_and_only_grow() {
        let before = DiskReads::of(std::process::id()).unwrap();
        let after = DiskReads::of(std::process::id()).unwrap();
        assert!(after.bytes >= before.bytes && after.waits >= before.waits);
        assert_eq!(before.since(after), DiskReads::default());
        assert_eq!(DiskReads::of(u32::MAX), None);
    }
}
