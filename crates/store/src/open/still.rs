//! Opening an environment whose files cannot be written to: they are looked at as they are.
//!
//! There is no lock region to share and no way to let the log go: what the log holds behind the newer meta page is
//! replayed into private copies of the pages that it changes ([`PrivateCopy`]), and the result stands still. The files
//! must do the same, so a lock that needs no write access tells everybody else that they are being looked at.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use sapwood_wal::Wal;
use sapwood_wal::process::{LockFile, Membership};
use sapwood_wal::storage::{OpenMode, PrivateCopy};

use super::{Opened, OpenedStore, Regions, StoreFiles, is_unwritable};
use crate::env::Env;
use crate::env::region::Region;
use crate::error::{Error, Result};
use crate::format::meta::{NO_LOG, newest};
use crate::log::recovery;
use crate::log::recovery::Recovering;
use crate::sync::Arc;

/// Sees to it that the files do not change, through a lock file that could not be opened for writing. On a read-only
/// medium there may be none.
pub(super) fn lock(path: &Path, refused: &io::Error) -> Result<Option<LockFile>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        Err(_) if refused.kind() == ErrorKind::ReadOnlyFilesystem => return Ok(None),
        Err(_) => {
            return Err(Error::Unprotected(
                "there is no lock file, and none can be made",
            ));
        }
    };
    let locks = LockFile::new(file);
    locks.lock_opening_shared()?;
    if locks.is_in_use()? {
        return Err(Error::Unprotected(
            "others have the environment open, and its lock file cannot be written to",
        ));
    }
    locks.hold_still()?;
    locks.unlock_opening();
    Ok(Some(locks))
}

/// Whether the first to open the environment, with a lock file that can be written to, has to leave the files as they
/// are.
pub(super) fn is_due(places: &StoreFiles<'_>, locks: &LockFile) -> Result<bool> {
    if locks.is_held_still()? {
        return Ok(true);
    }
    match places.data_files(OpenMode::Write) {
        Err(Error::Io(error)) if is_unwritable(&error) => Ok(true),
        Err(error) => Err(error),
        Ok(_) => Ok(false),
    }
}

/// Opens the files, which stand still as long as `locks` are held, or by the caller's promise.
pub(super) fn open(places: &StoreFiles<'_>, locks: Option<LockFile>) -> Result<Env> {
    let (mut files, stands_alone) = places.data_files(OpenMode::Read)?;
    if stands_alone {
        // The other meta page may name a log that was never needed.
        for meta in files
            .iter_mut()
            .flat_map(|(_, metas)| metas.iter_mut().flatten())
        {
            meta.identity.log = NO_LOG;
        }
    }
    let regions: Regions = Region::private(files.len())?.into();
    let mut stores = Vec::with_capacity(files.len());
    for ((file, metas), region) in files.into_iter().zip(&*regions) {
        newest(&metas)?;
        let copy = Arc::new(PrivateCopy::new(file)?);
        stores.push(Recovering::new(copy, metas, region)?);
    }
    if stands_alone {
        recovery::look(&mut stores, None)?;
    } else {
        let shared = regions[0].clone();
        let name = &places.options.names.log;
        let wal = Wal::open(&places.storage, name, OpenMode::Read, shared)?;
        recovery::look(&mut stores, Some(&wal))?;
    }
    let stores = stores.into_iter().map(|store| OpenedStore {
        must_checkpoint: false,
        identity: store.identity,
        data: store.data,
    });
    let opened = Opened {
        stores: stores.collect(),
        wal: None,
    };
    let membership = Membership::apart(locks, &regions[0].processes[..]);
    opened.into_env(&regions, membership, false, places.options)
}
