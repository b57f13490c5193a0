//! A backup without free pages: its trees are copied one after the other. Its pages have other numbers than the
//! store's, so it is of another *generation*, and no increment can follow it.

use std::io::IoSlice;

use sapwood_wal::storage::File;

use crate::bulk::TreeBuilder;
use crate::error::Result;
use crate::format::catalog::Catalog;
use crate::format::meta::{Meta, StoreIdentity};
use crate::format::page::{PAGE_BYTES, Page};
use crate::format::pages::AppendPages;
use crate::format::pointer::Segment;
use crate::format::roots::{FIRST_PAGE, Head, Roots};
use crate::format::tree_record::{TreeKind, TreeRecord};
use crate::heap::segment_records;
use crate::ids::{CommitNo, HeapNo, PageNo};
use crate::tree::View;
use crate::txn::snapshot::Snapshot;

use super::{COPIED_PAGES, file_pages};

/// Writes all trees of a snapshot whose pages have been checked; what the meta pages are to say.
pub(super) fn write_trees(snapshot: &Snapshot, file: &dyn File, meta: &Meta) -> Result<Meta> {
    let mut to = Appended {
        file,
        commit: meta.head.commit,
        written: FIRST_PAGE,
        gathered: Vec::with_capacity(COPIED_PAGES as usize * PAGE_BYTES),
        segments: Vec::new(),
    };
    let mut copies = Vec::new();
    let catalog = snapshot.catalog()?;
    let mut cursor = catalog.view(snapshot.pages()).cursor();
    while cursor.next()? {
        if let Some((name, stored)) = cursor.record()? {
            let tree = View::new(snapshot.pages(), catalog.record(name, stored)?);
            copies.push((name.to_vec(), tree.copy_to(&mut to)?));
        }
    }
    let heaps = copies.iter().map(|(_, record)| record.heap);
    let segments = to.write_segments(heaps.max().unwrap_or_default())?;
    let mut trees = TreeBuilder::new(catalog.tree().kind);
    for (name, record) in copies {
        trees.push(&mut to, &name, &record.encode())?;
    }
    let trees = trees.finish(&mut to)?;
    to.flush()?;
    let pages = to.written;
    file.set_size(file_pages(pages) * PAGE_BYTES as u64)?;
    Ok(Meta {
        log_segments: 0,
        identity: StoreIdentity {
            generation: meta.identity.generation + 1,
            ..meta.identity
        },
        head: Head {
            roots: Roots {
                pages,
                catalog: Catalog::of(trees),
                segments,
                ..Roots::empty()
            },
            ..meta.head
        },
    })
}

/// A file that pages are appended to.
struct Appended<'f> {
    file: &'f dyn File,
    commit: CommitNo,
    /// Pages in the file.
    written: u64,
    /// Pages that follow them.
    gathered: Vec<u8>,
    segments: Vec<(HeapNo, Segment, u32)>,
}

impl Appended<'_> {
    fn next(&self) -> PageNo {
        PageNo(self.written + (self.gathered.len() / PAGE_BYTES) as u64)
    }

    /// Writes the tree of the segments that were kept, of heaps up to `last`.
    fn write_segments(&mut self, last: HeapNo) -> Result<TreeRecord> {
        let mut segments = std::mem::take(&mut self.segments);
        segments.sort_unstable_by_key(|(heap, segment, _)| (*heap, segment.first));
        let mut tree = TreeBuilder::new(TreeKind::COMPACT);
        for (key, value) in segment_records(last, &segments) {
            tree.push(self, &key, &value)?;
        }
        tree.finish(self)
    }

    fn flush(&mut self) -> Result<()> {
        let offset = self.written * PAGE_BYTES as u64;
        self.file.write_all_at(&self.gathered, offset)?;
        self.written = self.next().0;
        self.gathered.clear();
        Ok(())
    }
}

impl AppendPages for Appended<'_> {
    fn commit(&self) -> CommitNo {
        self.commit
    }

    fn append(&mut self, page: &mut Page) -> Result<PageNo> {
        if self.gathered.len() == self.gathered.capacity() {
            self.flush()?;
        }
        let number = self.next();
        page.finish(number, self.commit);
        self.gathered.extend_from_slice(page.bytes());
        Ok(number)
    }

    fn take_extent(&mut self, pages: u32) -> Result<PageNo> {
        self.flush()?;
        let first = self.next();
        self.written += u64::from(pages);
        Ok(first)
    }

    fn write_extent(&mut self, first: PageNo, parts: [&[u8]; 3]) -> Result<()> {
        let mut parts = parts.map(IoSlice::new);
        let offset = first.0 * PAGE_BYTES as u64;
        Ok(self.file.write_parts_at(&mut parts, offset)?)
    }

    fn keep_segment(&mut self, heap: HeapNo, segment: Segment, used: u32) -> Result<()> {
        self.segments.push((heap, segment, used));
        Ok(())
    }
}
