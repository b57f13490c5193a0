//! Copies: of all pages as they are, or without free ones.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::env::{DATA_NAME, Open};
use crate::error::{Code, Result};
use crate::values::CP_COMPACT;
use crate::values::env_flags::NOSUBDIR;

impl Open {
    /// `mdb_env_copy2`: to a folder or a file, by the form that the environment itself has.
    pub(crate) fn copy(&self, path: &CStr, flags: u32) -> Result {
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        if self.flags() & NOSUBDIR != 0 {
            self.copy_to(path, flags)
        } else {
            self.copy_to(&path.join(DATA_NAME), flags)
        }
    }

    /// `mdb_env_copyfd2`: by way of a file without a name, since pages are not written in order.
    pub(crate) fn copy_into(&self, to: &mut impl Write, flags: u32) -> Result {
        let folder = TemporaryFolder::new()?;
        let path = folder.0.join(DATA_NAME);
        self.copy_to(&path, flags)?;
        let mut copy = File::open(&path)?;
        drop(folder);
        io::copy(&mut copy, to)?;
        Ok(())
    }

    fn copy_to(&self, path: &Path, flags: u32) -> Result {
        match flags {
            0 => self.store.backup(path)?,
            CP_COMPACT => self.store.backup_compacted(path)?,
            _ => return Err(Code::EINVAL),
        };
        Ok(())
    }
}

/// A folder of its own, gone when this is dropped.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("sapwood-copy-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
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
        // What cannot be removed is left to the one that cleans up there.
        let _: io::Result<()> = fs::remove_dir_all(&self.0);
    }
}
