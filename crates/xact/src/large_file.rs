//! The file that holds the record of a transaction too large for the log.

use std::io::{self, ErrorKind};

use sapwood_wal::storage::{OpenMode, Storage};

use crate::error::{Doing, Error, Result};
use crate::guard::{Guard, Guards};
use crate::record::{Pages, Record, write_parts};
use crate::region::versions::NewVersion;
use crate::step::step;

const NAME: &str = "large";
const WRITING: &str = "cannot write the file of a large transaction";
const READING: &str = "cannot read the file of a large transaction";

/// Writes the file; gives its checksum.
pub(crate) fn write(
    storage: &dyn Storage,
    changes: &[NewVersion<'_>],
    guards: Guards,
) -> Result<u32> {
    remove(storage)?;
    let written = || -> io::Result<u32> {
        let mut checksum = crc32fast::Hasher::new();
        let mut at = 0;
        let file = storage.open(NAME, OpenMode::CreateNew)?;
        step();
        write_parts(changes, |part| {
            checksum.update(part);
            file.write_all_at(part, at)?;
            at += part.len() as u64;
            Ok(())
        })?;
        if guards.has(Guard::SyncLarge) {
            file.sync_data()?;
            storage.sync_names()?;
        }
        Ok(checksum.finalize())
    };
    written().doing(WRITING).inspect_err(|_| {
        // Its room is given back at once. Who comes next removes it otherwise.
        let _ = remove(storage);
    })
}

/// Reads the file back.
///
/// # Errors
/// [`Error::Damaged`] if it is not the one that was written, [`Error::Io`].
pub(crate) fn read(storage: &dyn Storage, checksum: u32, bytes: u64) -> Result<Vec<u8>> {
    let file = storage.open(NAME, OpenMode::Read).doing(READING)?;
    let damaged = || Error::Damaged("the file of a large transaction is damaged".into());
    // No more is allocated than there is.
    if file.size().doing(READING)? != bytes {
        return Err(damaged());
    }
    let mut content = vec![0; usize::try_from(bytes).map_err(|_| damaged())?];
    file.read_exact_at(&mut content, 0).doing(READING)?;
    if crc32fast::hash(&content) != checksum {
        return Err(damaged());
    }
    Ok(content)
}

/// The pages in the file.
pub(crate) fn pages(file: &[u8]) -> Result<Pages<'_>> {
    match Record::decode(file)? {
        Record::Pages(pages) => Ok(pages),
        Record::Large { .. } => Err(Error::Damaged("a large record names another one".into())),
    }
}

/// Removes the file. Not being there is no error.
pub(crate) fn remove(storage: &dyn Storage) -> Result<()> {
    match storage.remove(NAME) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).doing("cannot remove the file of a large transaction")
        }
        _ => Ok(()),
    }
}
