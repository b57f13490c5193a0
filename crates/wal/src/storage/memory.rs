//! A folder that exists only in this process's memory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::folder::SystemFile;
use super::{File, Identity, OpenMode, Storage, check_name};
use crate::sys;

/// A folder in memory: each file is an anonymous one (`memfd_create(2)`), so that it can be mapped like any other.
/// Nothing in it outlives the process.
#[derive(Debug)]
pub struct Memory {
    number: u64,
    files: Mutex<BTreeMap<String, Arc<SystemFile>>>,
}

impl Memory {
    /// An empty folder.
    pub fn new() -> Self {
        Self {
            number: next_folder_number(),
            files: Mutex::default(),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// Tells folders without a path apart within this process.
fn next_folder_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Storage for Memory {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match (files.get(name), mode) {
            (Some(_), OpenMode::Blocks) => Err(io::ErrorKind::Unsupported.into()),
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => Ok(file.clone()),
            (None, OpenMode::CreateNew) => {
                let file = Arc::new(SystemFile(sys::open_in_memory(c"sapwood")?));
                files.insert(name.to_owned(), file.clone());
                Ok(file)
            }
            (None, _) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(files.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.remove(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn identity(&self) -> io::Result<Identity> {
        // Device numbers of real folders are never this large.
        Ok(Identity {
            device: u64::MAX,
            inode: self.number,
        })
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}
