//! A file that is changed in this process's memory only.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use super::map::Mapping;
use super::{File, Identity, Map, Window};

/// A file as it is, with changes of this process's own: what is stored through a [`Window`] shows in every [`Map`] and
/// in reads, and never reaches the file, which may be open for reading only and must not change meanwhile. Memory is
/// needed for the pages that are stored to. Everything that would change the file itself fails with
/// `ReadOnlyFilesystem`.
#[derive(Debug)]
pub struct PrivateCopy {
    file: Arc<dyn File>,
    map: Arc<Mapping>,
}

impl PrivateCopy {
    /// A copy of the file.
    ///
    /// # Errors
    /// `UnexpectedEof` if it is empty; `OutOfMemory` if the address range is not to be had.
    pub fn new(file: Arc<dyn File>) -> io::Result<Self> {
        let map = Mapping::copy(file.handle())?;
        Ok(Self { file, map })
    }
}

fn refused<T>() -> io::Result<T> {
    Err(ErrorKind::ReadOnlyFilesystem.into())
}

impl File for PrivateCopy {
    fn size(&self) -> io::Result<u64> {
        // The file may have become shorter than it was.
        Ok(self.file.size()?.min(self.map.len() as u64))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.map.read(buffer, offset))
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        refused()
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        refused()
    }

    fn set_size(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    fn sync_room(&self, _: u64, _: u64) -> io::Result<()> {
        refused()
    }

    /// The range is that of the file, however much is asked for: it does not grow.
    fn map(&self, _: usize) -> io::Result<Map> {
        Ok(Map::over(&self.map))
    }

    fn window(&self, offset: u64, length: usize) -> io::Result<Window> {
        Window::part(&self.map, offset, length)
    }

    fn handle(&self) -> &std::fs::File {
        self.file.handle()
    }

    fn identity(&self) -> io::Result<Identity> {
        self.file.identity()
    }
}
