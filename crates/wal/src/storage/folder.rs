//! The real thing: a folder of the file system.

use std::fs;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{File, Identity, Map, OpenMode, Storage, Window, check_name};
use crate::sys;

/// A folder of the file system. It stays the same folder when it is renamed while open.
#[derive(Debug)]
pub struct Folder {
    handle: fs::File,
    path: PathBuf,
    permissions: u32,
}

/// The permission bits of files that a [`Folder`] creates, unless it is told others: the owner reads and writes.
pub const PRIVATE_PERMISSIONS: u32 = 0o600;

impl Folder {
    /// Opens an existing folder.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = sys::open_folder(path)?;
        Ok(Self {
            handle,
            path: std::path::absolute(path)?,
            permissions: PRIVATE_PERMISSIONS,
        })
    }

    /// Opens a folder; makes it, and those above it that are missing, so that a power cut leaves them there.
    ///
    /// # Errors
    /// `NotADirectory`, `PermissionDenied`, and others of `mkdir(2)` and `fsync(2)`.
    pub fn create(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            let above = path.parent().filter(|above| *above != Path::new(""));
            let above = Self::create(above.unwrap_or(Path::new(".")))?;
            match fs::create_dir(path) {
                // Somebody else was faster, who may not have come to the next step yet.
                Err(_) if path.is_dir() => {}
                made => made?,
            }
            above.sync_names()?;
        }
        Self::open(path)
    }

    /// The permission bits that new files get, less those that the process's umask takes away.
    pub fn creating_with(mut self, permissions: u32) -> Self {
        self.permissions = permissions;
        self
    }
}

impl Storage for Folder {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        Ok(Arc::new(SystemFile(sys::open(
            &self.handle,
            name,
            mode,
            self.permissions,
        )?)))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        sys::rename(&self.handle, from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        sys::remove(&self.handle, name)
    }

    fn sync_names(&self) -> io::Result<()> {
        sys::sync_all(&self.handle)
    }

    fn identity(&self) -> io::Result<Identity> {
        sys::identity(&self.handle)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

/// A file of the operating system, on a disk or in memory.
#[derive(Debug)]
pub(super) struct SystemFile(pub(super) fs::File);

impl File for SystemFile {
    fn size(&self) -> io::Result<u64> {
        sys::size(&self.0)
    }

    fn is_device(&self) -> io::Result<bool> {
        sys::is_device(&self.0)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        sys::read_at(&self.0, buffer, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        sys::write_at(&self.0, parts, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        sys::allocate(&self.0, offset, length)
    }

    fn sync_room(&self, offset: u64, length: u64) -> io::Result<()> {
        sys::sync_room(&self.0, offset, length)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        sys::set_size(&self.0, size)
    }

    fn sync_data(&self) -> io::Result<()> {
        sys::sync_data(&self.0)
    }

    fn sync_range(&self, offset: u64, length: u64) -> io::Result<()> {
        sys::sync_range(&self.0, offset, length)
    }

    fn write_durably_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        sys::write_durably_at(&self.0, parts, offset)
    }

    fn write_out(&self, offset: u64, length: u64) -> io::Result<()> {
        sys::write_out(&self.0, offset, length)
    }

    fn map(&self, reserve: usize) -> io::Result<Map> {
        Map::new(&self.0, reserve)
    }

    fn window(&self, offset: u64, length: usize) -> io::Result<Window> {
        Window::new(&self.0, offset, length, None)
    }

    fn handle(&self) -> &fs::File {
        &self.0
    }

    fn identity(&self) -> io::Result<Identity> {
        sys::identity(&self.0)
    }
}
