//! What a backup file says of itself.

#![deny(clippy::indexing_slicing)]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use sapwood_wal::storage::{OpenMode, Storage};

use crate::error::Result;
use crate::format::page::PAGE_BYTES;
use crate::ids::CommitNo;

use super::{Increment, file_pages, place_of, read_full};
use crate::backup::increment::{RUN_HEADER_BYTES, RUNS_AT, run_of};

/// What a backup of one store holds, as the beginning of its file says: nothing has been verified that way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BackupInfo {
    /// The commit that it leads to.
    pub commit: CommitNo,
    /// Of an increment, the commit of the backup that it goes on from.
    pub since: Option<CommitNo>,
    /// How many bytes of the file are the backup. What is behind them is somebody else's, and restoring passes over it.
    pub bytes: u64,
}

impl BackupInfo {
    /// Reads it from a file.
    ///
    /// # Errors
    /// [`Error::NotABackup`](crate::Error::NotABackup) if the file is none, [`Error::Damaged`](crate::Error::Damaged)
    /// if it is one but cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        read(path).map_err(|error| error.in_file(path))
    }
}

fn read(path: &Path) -> Result<BackupInfo> {
    let mut file = File::open(path)?;
    if let Some(increment) = Increment::read(&mut file)? {
        return Ok(BackupInfo {
            commit: increment.meta.head.commit,
            since: Some(increment.base.head.commit),
            bytes: end_of_runs(&mut file, &increment)?,
        });
    }
    let (folder, name) = place_of(path)?;
    let meta = read_full(&*folder.open(name, OpenMode::Read)?)?;
    Ok(BackupInfo {
        commit: meta.head.commit,
        since: None,
        bytes: file_pages(meta.head.roots.pages) * PAGE_BYTES as u64,
    })
}

/// Where the last run of an increment ends.
fn end_of_runs(file: &mut File, increment: &Increment) -> Result<u64> {
    let (mut at, mut left) = (RUNS_AT, increment.pages);
    while left > 0 {
        file.seek(SeekFrom::Start(at))?;
        let mut header = [0; RUN_HEADER_BYTES];
        file.read_exact(&mut header)?;
        let (_, count) = run_of(&header, left)?;
        // Where a number is damaged, this leads nowhere.
        let bytes = count.saturating_mul(PAGE_BYTES as u64);
        at = at.saturating_add(header.len() as u64).saturating_add(bytes);
        left -= count;
    }
    Ok(at)
}
