//! Copies: of all pages as they are, or of the records alone.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_store::{Env, Error, LOG_BYTES_MIN, Options};

use crate::env::{DATA_NAME, Open};
use crate::error::{Code, Result};
use crate::values::CP_COMPACT;
use crate::values::env_flags::NOSUBDIR;

impl Open {
    /// `mdb_env_copy2`: to a folder or a file, by the form that the environment itself has.
    pub(crate) fn copy(&self, path: &CStr, flags: u32) -> Result {
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        if self.flags() & NOSUBDIR != 0 {
            let folder = path.parent().filter(|parent| *parent != Path::new(""));
            self.copy_to(path, folder.unwrap_or(Path::new(".")), flags)
        } else {
            self.copy_to(&path.join(DATA_NAME), path, flags)
        }
    }

    /// `mdb_env_copyfd2`: by way of a file without a name, since pages are not written in order.
    pub(crate) fn copy_into(&self, to: &mut impl Write, flags: u32) -> Result {
        let folder = TemporaryFolder::new(&std::env::temp_dir())?;
        let path = folder.0.join(DATA_NAME);
        self.copy_to(&path, &folder.0, flags)?;
        let mut copy = File::open(&path)?;
        drop(folder);
        io::copy(&mut copy, to)?;
        Ok(())
    }

    fn copy_to(&self, path: &Path, folder: &Path, flags: u32) -> Result {
        match flags {
            0 => {
                self.store.backup(path)?;
                Ok(())
            }
            CP_COMPACT => self.compact_to(path, folder),
            _ => Err(Code::EINVAL),
        }
    }

    /// Builds the databases anew, in a folder beside the copy, and copies that. Where a comparator is missing, which only the
    /// program knows, all pages are copied as they are.
    fn compact_to(&self, path: &Path, folder: &Path) -> Result {
        let folder = TemporaryFolder::new(folder)?;
        match self.rebuild(&folder.0.join("env")) {
            Ok(rebuilt) => rebuilt.backup(path)?,
            Err(Error::OutOfOrder) => self.store.backup(path)?,
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }

    fn rebuild(&self, folder: &Path) -> sapwood_store::Result<Env> {
        let options = Options::new()
            .log_bytes(LOG_BYTES_MIN)
            .idle_checkpoint(None)
            .shared(false);
        let rebuilt = Env::open(folder, &options)?;
        for (tree, comparators) in self.handles().comparators() {
            rebuilt.set_comparators(&*tree, comparators);
        }
        let snapshot = self.store.read()?;
        let mut txn = rebuilt.write()?;
        for name in snapshot.tree_names()? {
            let Some(tree) = snapshot.tree(&name)? else {
                continue;
            };
            let kind = tree.record().kind;
            let copy = txn.create_tree(&name, kind)?;
            let mut cursor = tree.cursor();
            let mut last: Option<Vec<u8>> = None;
            while cursor.next()? {
                let Some((key, value)) = cursor.record()? else {
                    break;
                };
                if last.as_deref() == Some(key) {
                    txn.append_duplicate(copy, key, value)?;
                    continue;
                }
                txn.append(copy, key, value)?;
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
        }
        txn.commit()?.wait()?;
        Ok(rebuilt)
    }
}

/// A folder of its own, gone when this is dropped.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new(parent: &Path) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("sapwood-copy-{}-{number}", std::process::id()));
            match builder.create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans up there.
        let _: io::Result<()> = fs::remove_dir_all(&self.0);
    }
}
