//! What is copied of a store, page by page, as a snapshot sees it.
//!
//! Most pages stand still. To leaves of places others store, so that they are put together anew from what the snapshot
//! finds in them; and behind the end that a segment had when the snapshot was taken, others add records, of which
//! nothing is read.

#![deny(clippy::indexing_slicing)]

use crate::check::{Bitmap, Checked};
use crate::env::mapping::MappedPages;
use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, Page};
use crate::format::pages::ReadPages;
use crate::format::pointer::Segment;
use crate::format::pointer_leaf::PointerLeaf;
use crate::heap::Record;
use crate::ids::{CommitNo, PageNo};
use crate::tree::node::Node;
use crate::tree::read_records_ahead;

use super::COPIED_PAGES;

/// So many leaves are copied at once, since the records of each are looked at: up to 252.
const COPIED_LEAVES: u32 = 32;

/// Pages to be copied.
pub(super) struct Copied {
    /// Those that are copied as they are.
    pub(super) plain: Bitmap,
    pub(super) leaves: Bitmap,
    /// Parts of segments.
    pub(super) segments: Vec<Part>,
}

/// Some pages of a segment, of which there is something in use.
pub(super) struct Part {
    segment: Segment,
    /// The first of them, counted from the segment's.
    from_page: u32,
    /// Bytes of the segment that are in use.
    used: u32,
}

impl Part {
    /// The pages from the one in which a byte is up to the end of what is in use.
    pub(super) fn behind(segment: Segment, byte: u32, used: u32) -> Self {
        Self {
            segment,
            from_page: byte / PAGE_BYTES as u32,
            used,
        }
    }

    fn end_page(&self) -> u32 {
        self.used.div_ceil(PAGE_BYTES as u32)
    }

    /// Gives the pages to `each`, with zeroes behind the end of what is in use.
    fn copy(
        &self,
        pages: &MappedPages,
        each: &mut dyn FnMut(PageNo, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut padded = vec![0; PAGE_BYTES];
        let mut at = self.from_page;
        while at < self.end_page() {
            let begin = at * PAGE_BYTES as u32;
            let bytes = (self.used - begin).min(COPIED_PAGES * PAGE_BYTES as u32);
            // What is less than a page comes in the end, alone.
            let bytes = match bytes % PAGE_BYTES as u32 {
                rest if rest < bytes => bytes - rest,
                _ => bytes,
            };
            let damaged =
                || Error::corrupt(self.segment.first, "is longer than the segment that it is");
            let pointer = self.segment.pointer(begin).ok_or_else(damaged)?;
            let part = pages.record(pointer, bytes as usize)?;
            match padded.get_mut(..part.len()) {
                Some(begin) if part.len() < PAGE_BYTES => {
                    begin.copy_from_slice(part);
                    each(pointer.page(), &padded)?;
                }
                _ => each(pointer.page(), part)?,
            }
            at += bytes.div_ceil(PAGE_BYTES as u32);
        }
        Ok(())
    }
}

impl Copied {
    /// All that a check without findings has found in use.
    pub(super) fn of_all(checked: Checked) -> Self {
        let Checked {
            used: mut plain,
            leaves,
            heaps,
            ..
        } = checked;
        for (leaf, _) in leaves.runs(1) {
            plain.clear(leaf, 1);
        }
        let segments = heaps.segments().map(|(segment, used)| {
            plain.clear(segment.first, segment.pages);
            Part::behind(segment, 0, used)
        });
        let segments = segments.collect();
        Self {
            plain,
            leaves,
            segments,
        }
    }

    /// Gives all pages to `each`, in runs.
    pub(super) fn each_run(
        &self,
        pages: &MappedPages,
        commit: CommitNo,
        each: &mut dyn FnMut(PageNo, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for (first, count) in self.plain.runs(COPIED_PAGES) {
            each(first, pages.extent(first, count)?)?;
        }
        for (first, count) in self.leaves.runs(COPIED_LEAVES) {
            pages.read_ahead(first, count.into());
            let leaves = (first.0..first.0 + u64::from(count)).map(PageNo);
            for leaf in leaves.clone() {
                let pointers = pointer_leaf(pages, leaf)?;
                read_records_ahead(pages, &Node::of_pointers(pointers, leaf)?)?;
            }
            for leaf in leaves {
                each(leaf, seen_leaf(pages, leaf, commit)?.bytes())?;
            }
        }
        for (at, part) in self.segments.iter().enumerate() {
            if let Some(Part { segment, .. }) = self.segments.get(at + 1) {
                pages.read_ahead(segment.first, segment.pages.into());
            }
            part.copy(pages, each)?;
        }
        Ok(())
    }
}

/// A leaf of places as a commit has it, whose places lead to records of that commit or earlier ones.
fn seen_leaf(pages: &MappedPages, leaf: PageNo, commit: CommitNo) -> Result<Box<Page>> {
    pointer_leaf(pages, leaf)?.to_page(|key, newest| {
        let (at, record) = Record::find(pages, newest, key, commit)?;
        Ok((at, record.commit))
    })
}

fn pointer_leaf(pages: &MappedPages, leaf: PageNo) -> Result<&PointerLeaf> {
    let places = pages
        .shared_pointers(leaf)?
        .filter(|places| places.is(leaf));
    places.ok_or_else(|| Error::corrupt(leaf, "is not a leaf of places"))
}
