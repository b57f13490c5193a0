//! Records in an order, in little memory: what is more than that stands in files without names.
//!
//! | file | its part |
//! | --- | --- |
//! | `spool` | sorts records |
//! | `list` | has sorted records at hand by their place |
//! | `kept` | keeps lists for who had them made |
//! | `records` | reads records one after the other |

mod kept;
mod list;
mod records;
mod spool;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::kept::{KeptList, Lists, Wanted};
pub(crate) use self::list::{List, ListBuilder, ListReader};
use self::records::Records;
pub(crate) use self::spool::{Merge, RECORD_BYTES_MAX, SPOOL_BYTES_MAX, Spool};

/// Bytes of records in memory; beyond, they are written to a file.
const MEMORY_BYTES: usize = if cfg!(debug_assertions) {
    64 << 10
} else {
    256 << 10
};

/// Bytes before a record in a file: its length.
const LENGTH_BYTES: usize = 2;

static FILES: AtomicU64 = AtomicU64::new(0);

/// A new file in a folder, whose name is taken away again: nothing stays behind, however the process ends.
fn nameless(folder: &Path) -> io::Result<File> {
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("search-{}-{number}.tmp", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
