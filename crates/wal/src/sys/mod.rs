//! Every call to the operating system that the log and the store make.
//!
//! There is one file or folder for each system, all with the same functions; they are the only place that knows one. So
//! far there is Linux; elsewhere everything compiles and each call answers `Unsupported`. `--cfg elsewhere` lets that
//! be seen on Linux.

#[cfg(any(not(target_os = "linux"), elsewhere))]
mod elsewhere;
#[cfg(all(target_os = "linux", not(elsewhere)))]
mod linux;

#[cfg(any(not(target_os = "linux"), elsewhere))]
use elsewhere as system;
#[cfg(all(target_os = "linux", not(elsewhere)))]
use linux as system;

pub(crate) use system::*;
pub use system::{creating_with, fork_count, memory_bytes, thread_number};
#[cfg(not(shuttle))]
pub use system::{wait_while, wake_all, wake_one};

/// How [`Storage::open`](crate::storage::Storage::open) opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading only.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A file that must not exist yet, for reading and writing. It is empty, and its name is durable only after
    /// [`Storage::sync_names`](crate::storage::Storage::sync_names).
    CreateNew,
    /// An existing file, for [`File::write_durably_at`](crate::storage::File::write_durably_at) past the page cache
    /// only: in single parts that begin and end at multiples of [`BLOCK_BYTES`](crate::storage::BLOCK_BYTES), in memory
    /// and in the file. What the page cache has of them is written before and forgotten. Nobody may have them mapped.
    Blocks,
}

/// What tells one folder or file from every other one while it is open, whatever path led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The device number, or the number of the simulated disk.
    pub device: u64,
    /// The inode number on that device.
    pub inode: u64,
}
