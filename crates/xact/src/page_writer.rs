//! How versions get into the data file: by writes at first, and by stores from then on.
//!
//! A page that was never written has no room on the disk yet, and a store to it through a mapping would be a SIGBUS
//! where a write is an error that says that the disk is full. So each process writes a page when it first brings a
//! version of it into the file, and stores later ones through a window, and only what has changed. A store to a page
//! that is dirty costs no system call; one to a page that was synced since costs a fault, which is no more than a
//! write.

// Pages are stored to through a mapping.
#![allow(unsafe_code)]

use std::io;
use std::iter;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use sapwood_wal::storage::{File, Window};
use sapwood_wal::sync::{Mutex, PoisonError};

use crate::header::Header;
use crate::page::{PAGE_BYTES, PageBytes, page_of};
use crate::places::{offset_in_file, sum_at};
use crate::record::runs;
use crate::step::step;

/// For the one that holds the maintenance lock.
pub(crate) struct PageWriter {
    file: Arc<dyn File>,
    pages: u64,
    has_sums: bool,
    state: Mutex<State>,
}

struct State {
    /// All of the file, if the system maps it; it is asked once.
    window: Option<Option<Window>>,
    /// A bit for each page of the file that was written and has room since then. Most of it is never touched.
    written: Vec<u64>,
}

impl PageWriter {
    pub(crate) fn new(file: Arc<dyn File>, header: &Header) -> Self {
        let file_pages = header.file_bytes() / PAGE_BYTES as u64;
        let words = file_pages.div_ceil(u64::from(u64::BITS));
        let state = State {
            window: None,
            written: vec![0; usize::try_from(words).unwrap_or(usize::MAX)],
        };
        Self {
            file,
            pages: header.pages,
            has_sums: header.has_sums,
            state: Mutex::new(state),
        }
    }

    /// Brings a version of a page into the file, from which it differs in no more than the granules of `mask`, and its
    /// checksum.
    pub(crate) fn write(
        &self,
        page: u64,
        mask: u64,
        sum: u32,
        bytes: &PageBytes,
    ) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(&mut state, offset_in_file(page), runs(mask), bytes)?;
        if self.has_sums {
            let sum = sum.to_le_bytes();
            let all = iter::once(0..sum.len());
            self.put(&mut state, sum_at(page, self.pages), all, &sum)?;
        }
        Ok(())
    }

    /// Stores the parts of `bytes` that `changed` names, or writes all of them if they have no room yet. They lie
    /// within a page of the file.
    fn put(
        &self,
        state: &mut State,
        offset: u64,
        changed: impl Iterator<Item = Range<usize>>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let page = page_of(offset);
        let (word, bit) = (
            page / u64::from(u64::BITS),
            1 << (page % u64::from(u64::BITS)),
        );
        let has_room = state.written[word as usize] & bit != 0;
        if has_room && let Some(window) = state.window(&*self.file) {
            return store(window, offset, changed, bytes);
        }
        self.file.write_all_at(bytes, offset)?;
        step();
        state.written[word as usize] |= bit;
        Ok(())
    }
}

impl State {
    fn window(&mut self, file: &dyn File) -> Option<&Window> {
        let window = self.window.get_or_insert_with(|| {
            let length = usize::try_from(file.size().ok()?).ok()?;
            file.window(0, length).ok()
        });
        window.as_ref()
    }
}

/// Stores what has changed, so that no more of page and version need be in the processor's caches.
fn store(
    window: &Window,
    offset: u64,
    changed: impl Iterator<Item = Range<usize>>,
    bytes: &[u8],
) -> io::Result<()> {
    let outside = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let offset = usize::try_from(offset).map_err(|_| outside())?;
    for run in changed {
        let place = window.place(offset + run.start, run.len());
        let place = place.ok_or_else(outside)?.as_ptr();
        // SAFETY: the run lies within the window and the file, and its page has room. The holder of the maintenance
        // lock alone brings versions into the file, and the one that may see this one has it in a frame until the tail
        // is moved, so that nobody looks at this page or its checksum now.
        unsafe { ptr::copy_nonoverlapping(bytes[run.clone()].as_ptr(), place, run.len()) };
        step();
    }
    Ok(())
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use sapwood_testkit::storage::recording::{Disk, Fault};
    use sapwood_wal::storage::{OpenMode, Storage};

    use super::*;
    use crate::record::GRANULE_BYTES;

    #[test]
    fn a_full_disk_is_an_error_and_what_has_room_is_stored_to() {
        let disk = Disk::new();
        let file = disk.open("data", OpenMode::CreateNew).unwrap();
        let header = Header {
            id: [0; 16],
            pages: 100,
            reserve: 0,
            address: 0,
            replay_from: sapwood_wal::Position::START,
            mode: crate::Mode::Explicit,
            durability: crate::Durability::Durable,
            has_sums: true,
            grown_from: 0,
            number: 0,
        };
        file.set_size(header.file_bytes()).unwrap();
        let writer = PageWriter::new(file.clone(), &header);
        let sum_in_file = |page| {
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, sum_at(page, 100)).unwrap();
            u32::from_le_bytes(bytes)
        };
        let page_in_file = |page| {
            let mut bytes = [0; PAGE_BYTES];
            file.read_exact_at(&mut bytes, offset_in_file(page))
                .unwrap();
            bytes
        };
        disk.fail(0, Fault::NoSpace, true);
        for page in [0, 64, 99] {
            let full = writer.write(page, 1, 7, &[1; PAGE_BYTES]).unwrap_err();
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        }
        disk.heal();
        for page in [0, 64, 99] {
            writer.write(page, 1, 7, &[1; PAGE_BYTES]).unwrap();
            assert_eq!(page_in_file(page), [1; PAGE_BYTES], "all of it has room");
        }
        disk.fail(0, Fault::NoSpace, true);
        writer
            .write(64, 0b110 | 1 << 63, 8, &[2; PAGE_BYTES])
            .unwrap();
        let mut expected = [1; PAGE_BYTES];
        expected[GRANULE_BYTES..3 * GRANULE_BYTES].fill(2);
        expected[63 * GRANULE_BYTES..].fill(2);
        assert_eq!(page_in_file(64), expected);
        assert_eq!(page_in_file(99), [1; PAGE_BYTES]);
        assert_eq!([99, 63, 64].map(sum_in_file), [7, 0, 8]);
        assert!(writer.write(63, 1, 9, &[3; PAGE_BYTES]).is_err());
    }
}
