//! Copies of a space that is in use.
//!
//! A copy is a space: it has the pages as one commit left them, checksums of its own, and an empty log. The copying is
//! a transaction that only reads, so it is in nobody's way, and keeps versions as any long reader does. The data file
//! gets its name last, so that a copy is there as a whole or not at all.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use sapwood_wal::Position;
use sapwood_wal::storage::{File, Folder, Storage};
use sapwood_wal::sync::Ordering;

use crate::error::{Doing, Error, Result};
use crate::header::Header;
use crate::inner::Inner;
use crate::open::{DATA_NAME, create_files, create_folder, new_id, remove_files};
use crate::page::{PAGE_BYTES, page_of};
use crate::places::offset_in_file;
use crate::step::step;
use crate::sums::{SumWriter, extents, sum_of};
use crate::transaction::Transaction;

const COPYING: &str = "cannot make the copy";

impl Inner {
    /// Copies the space into a folder, as a transaction that only reads sees it; gives how many pages that were.
    pub(crate) fn back_up<'s>(
        &self,
        path: &Path,
        begin: impl FnOnce() -> Result<Transaction<'s>>,
    ) -> Result<u64> {
        self.check_usable()?;
        create_folder(path)?;
        let storage: Arc<dyn Storage> = Arc::new(Folder::open(path).doing(COPYING)?);
        let names = storage.names().doing(COPYING)?;
        if names.iter().any(|name| name == DATA_NAME) {
            let source = ErrorKind::AlreadyExists.into();
            return Err(Error::Io {
                action: "cannot make the copy: there is a space in that folder",
                source,
            });
        }
        let header = Header {
            id: new_id()?,
            pages: self.pages,
            reserve: self.pages - self.region.size(),
            address: self.address,
            replay_from: Position::START,
            mode: self.mode,
            durability: self.durability,
            has_sums: self.verified.is_needed(),
            grown_from: 0,
            number: 0,
        };
        let reader = begin()?;
        let mut count = 0;
        let guards = self.options.guards;
        let made = create_files(&storage, &header, self.wal.capacity(), guards, |file| {
            count = self.copy_pages(&reader, file)?;
            Ok(())
        });
        made.inspect_err(|_| {
            // Its room is given back at once.
            let _ = remove_files(&*storage);
        })?;
        Ok(count)
    }

    fn copy_pages(&self, reader: &Transaction<'_>, to: &dyn File) -> Result<u64> {
        let mut in_memory = self.pages_in_frames(reader);
        let mut sums = SumWriter::new(to, self.pages);
        let mut count = 0;
        let mut copy = |page: u64| {
            let bytes = reader.page(page)?;
            if *bytes == [0; PAGE_BYTES] {
                return Ok(());
            }
            to.write_all_at(bytes, offset_in_file(page))
                .doing(COPYING)?;
            if self.verified.is_needed() {
                sums.add(page, sum_of(bytes))?;
            }
            count += 1;
            step();
            Ok::<_, Error>(())
        };
        // What is brought into the file meanwhile is in frames as long as the reader runs.
        let first = offset_in_file(0);
        for extent in extents(&*self.data, first..offset_in_file(self.pages)) {
            let end = (extent.end - first).div_ceil(PAGE_BYTES as u64);
            for page in page_of(extent.start - first)..end {
                in_memory.remove(&page);
                copy(page)?;
            }
        }
        in_memory.into_iter().try_for_each(copy)?;
        sums.flush()?;
        Ok(count)
    }

    /// The pages of which the reader may see a version in a frame.
    fn pages_in_frames(&self, reader: &Transaction<'_>) -> BTreeSet<u64> {
        let snapshot = reader.snapshot();
        let head = self.region.ring.head.load(Ordering::SeqCst);
        (snapshot.tail..head)
            .map(|frame| self.region.content(frame))
            .take_while(|content| content.version <= snapshot.version)
            .map(|content| content.page)
            .collect()
    }
}
