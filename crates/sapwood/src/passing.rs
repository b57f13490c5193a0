//! What is being made, under a name that it has only until it is complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// A file or folder beside the one that is to be made, which is gone when that is there, or making it has failed.
pub(crate) struct Passing(pub(crate) PathBuf);

impl Passing {
    /// Where nothing is yet.
    pub(crate) fn beside(path: &Path, extension: &str) -> Result<Self> {
        let name = path.file_name();
        let mut name = name.context("what is to be made has no name")?.to_owned();
        name.push(extension);
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!("there is no folder {}: make it first", folder.display());
        }
        let path = path.with_file_name(name);
        refuse_existing(&path)?;
        Ok(Self(path))
    }

    /// Gives it, complete and synced, its name, for good. Whatever has that name stays.
    pub(crate) fn put_in_place(&self, dest: &Path) -> Result<()> {
        let put = || {
            match renameat_with(CWD, &self.0, CWD, dest, RenameFlags::NOREPLACE) {
                // Not every file system can do this in one step.
                Err(Errno::INVAL | Errno::NOSYS) if !dest.exists() => fs::rename(&self.0, dest)?,
                renamed => renamed?,
            }
            let folder = dest.parent().filter(|folder| *folder != Path::new(""));
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        put().with_context(|| dest.display().to_string())
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes what was begun, a file or a folder; what cannot be removed is left.
pub(crate) fn remove(path: &Path) {
    let _: io::Result<()> = fs::remove_file(path);
    let _: io::Result<()> = fs::remove_dir_all(path);
}

pub(crate) fn refuse_existing(path: &Path) -> Result<()> {
    if path.exists() {
        bail!("{} exists: nothing is ever written over", path.display());
    }
    Ok(())
}
