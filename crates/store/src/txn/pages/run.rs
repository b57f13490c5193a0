//! Pages for a bulk build, from behind the last page, and written without the log.

use std::io::IoSlice;

use super::{NEW_PAGES, TxnPages};
use crate::error::Result;
use crate::format::free_list::FreeExtent;
use crate::format::page::PAGE_BYTES;
use crate::ids::PageNo;

impl TxnPages {
    /// Takes `pages` pages, which nobody may look at before [`TxnPages::write_run`].
    pub(crate) fn take_run(&mut self, pages: u32) -> Result<PageNo> {
        self.appended = true;
        self.grow(pages)
    }

    /// Writes pages that are the transaction's own and new, from parts one after the other, few with one call: see
    /// [`NEW_PAGES`]. Storing to them through a window would cost a page fault for each, and have the system fill it
    /// with zeroes first.
    pub(crate) fn write_run(&self, first: PageNo, parts: &[&[u8]]) -> Result<()> {
        let file = &self.inner.data.file;
        let mut offset = first.0 * PAGE_BYTES as u64;
        let mut call = Vec::with_capacity(parts.len());
        const BYTES: usize = PAGE_BYTES * NEW_PAGES as usize;
        let mut room = BYTES;
        for part in parts {
            let mut part = *part;
            while !part.is_empty() {
                let (now, rest) = part.split_at(part.len().min(room));
                call.push(IoSlice::new(now));
                (part, room) = (rest, room - now.len());
                if room == 0 {
                    file.write_parts_at(&mut call, offset)?;
                    call.clear();
                    offset += BYTES as u64;
                    room = BYTES;
                }
            }
        }
        Ok(file.write_parts_at(&mut call, offset)?)
    }

    /// Gives pages back that were taken and not written.
    pub(crate) fn give_back_run(&mut self, first: PageNo, pages: u32) {
        if first.0 + u64::from(pages) == self.view.limit() {
            // SAFETY: less than what was within the file before.
            unsafe { self.view.set_limit(first.0) };
        } else if pages > 0 {
            self.held.push(FreeExtent {
                freed: self.commit,
                born: self.commit,
                first,
                pages,
            });
        }
    }
}
