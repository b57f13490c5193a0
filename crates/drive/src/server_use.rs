//! What a server on this machine uses: processor time, memory and space on disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The resources that a server's process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerUse {
    /// The processor time of all its threads, user and system.
    pub cpu: Duration,
    /// Its anonymous and shared memory, without pages of files, in bytes.
    pub memory_bytes: u64,
}

impl ServerUse {
    /// Reads the use from `/proc`. Returns `None` when there is no such process.
    pub fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses and may hold anything; utime and stime are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = fields
            .split_ascii_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().ok())
            .sum::<Option<u64>>()?;
        let cpu = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let own = kib("RssAnon:").unwrap_or_default() + kib("RssShmem:").unwrap_or_default();
        Some(ServerUse {
            cpu: Duration::from_secs_f64(cpu),
            memory_bytes: own << 10,
        })
    }

    /// What was used after `before`; the memory is what it is now.
    pub(crate) fn since(self, before: ServerUse) -> ServerUse {
        ServerUse {
            cpu: self.cpu.saturating_sub(before.cpu),
            memory_bytes: self.memory_bytes,
        }
    }
}

/// How many bytes the files of a folder take on disk. Returns `None` when the folder cannot be read.
pub fn disk_bytes(folder: &Path) -> Option<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        // A file may have been deleted since it was listed.
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()).unwrap_or_default(),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        };
    }
    Some(bytes)
}
