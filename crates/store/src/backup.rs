//! Backups: a hot copy of the pages, and an environment made from one.

use std::path::Path;

use crate::error::Result;
use crate::page::CommitNo;

/// Makes a new environment in the folder `dest`, which must not exist or be empty, of the backup file `src`, which is
/// checked in full first. The new environment is on a timeline of its own.
pub fn restore(src: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<CommitNo> {
    let _ = (src.as_ref(), dest.as_ref());
    todo!()
}
