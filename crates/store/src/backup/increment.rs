//! Increments: what has been written since another backup, to be restored on top of it.
//!
//! ```text
//!  offset  size  field
//!       0     8  magic     "SAPWINCR"
//!       8     4  version   of this format; that of the pages is in the meta pages
//!      12     4  checksum  CRC-32 of bytes 16..4096
//!      16     8  pages     how many pages follow in all runs
//!      24        zeroes
//!    4096  4096  meta page 0 of the store with these pages
//!    8192  4096  meta page 1 of the store without them: the backup that the increment follows
//!   12288        runs
//!
//!  run:      8  first     number of its first page
//!            4  pages     how many it has, at least 1
//!            4  zero
//!               the pages
//! ```
//!
//! The pages carry their numbers and checksums themselves, and the free list says of every page whether it is in use. So
//! nothing here has to be believed: a store that was put together is checked as a whole.

#![deny(clippy::indexing_slicing)]

use std::io::{ErrorKind, Read};
use std::path::Path;

use sapwood_wal::storage::File;

use crate::check::Bitmap;
use crate::error::{Error, Result};
use crate::head::{FIRST_PAGE, Roots};
use crate::mapped::MappedPages;
use crate::meta::Meta;
use crate::page::{CommitNo, PAGE_BYTES, Page, PageNo, ReadPages, checksum};
use crate::tree::View;

use super::{COPIED_PAGES, file_pages};

const MAGIC: [u8; 8] = *b"SAPWINCR";
const VERSION: u32 = 1;
const RUN_HEADER_BYTES: usize = 16;
const METAS_AT: u64 = PAGE_BYTES as u64;
const RUNS_AT: u64 = 3 * PAGE_BYTES as u64;

/// What an increment begins with.
pub(crate) struct Increment {
    pages: u64,
    pub(crate) meta: Meta,
    pub(crate) base: Meta,
}

impl Increment {
    fn encode(&self) -> Page {
        let mut page = Page::zeroed();
        let (head, rest) = page.bytes_mut().split_at_mut(16);
        if let Some(place) = rest.first_chunk_mut() {
            *place = self.pages.to_le_bytes();
        }
        let sum = checksum(&[rest]);
        let fields = [
            &MAGIC[..],
            &VERSION.to_le_bytes()[..],
            &sum.to_le_bytes()[..],
        ];
        head.copy_from_slice(&fields.concat());
        page
    }

    /// Reads the beginning of a file. `None` if it is no increment.
    pub(crate) fn read(from: &mut dyn Read) -> Result<Option<Self>> {
        let mut page = Page::zeroed();
        match from.read_exact(page.bytes_mut()) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let (head, rest) = page.bytes().split_at(16);
        let [magic, version_and_sum] = head.as_chunks::<8>().0 else {
            return Ok(None);
        };
        if *magic != MAGIC {
            return Ok(None);
        }
        let (version, sum) = version_and_sum.split_at(4);
        if *sum != checksum(&[rest]).to_le_bytes() {
            return Err(damaged("its header does not match its checksum"));
        }
        let found = u32::from_le_bytes(version.try_into().unwrap_or_default());
        if found != VERSION {
            return Err(Error::UnknownVersion {
                what: "increment",
                found,
                known: VERSION,
            });
        }
        let pages = rest.first_chunk().copied().map_or(0, u64::from_le_bytes);
        let [meta, base] = [read_meta(from, 0)?, read_meta(from, 1)?];
        Ok(Some(Self { pages, meta, base }))
    }

    /// Puts the pages of the increment into a copy of the backup that it follows. `from` stands behind its self.
    pub(crate) fn apply(&self, from: &mut dyn Read, file: &dyn File) -> Result<()> {
        let size = file_pages(self.meta.head.roots.pages) * PAGE_BYTES as u64;
        if size > file.size()? {
            // Space is allocated when all of it is known to be a store.
            file.set_size(size)?;
        }
        let mut left = self.pages;
        let mut buffer = vec![0; COPIED_PAGES as usize * PAGE_BYTES];
        while left > 0 {
            let mut run = [0; RUN_HEADER_BYTES];
            from.read_exact(&mut run)?;
            let [number, rest] = run.as_chunks::<8>().0 else {
                return Err(damaged("a run has no header"));
            };
            let (first, count) = (u64::from_le_bytes(*number), u64::from_le_bytes(*rest));
            let end = first.checked_add(count);
            let fits = end.is_some_and(|end| end <= self.meta.head.roots.pages);
            if first < FIRST_PAGE || count == 0 || count > left || !fits {
                return Err(damaged("a run has an impossible place"));
            }
            left -= count;
            let mut at = PageNo(first);
            while Some(at.0) != end {
                let now = end.unwrap_or_default() - at.0;
                let now = now.min(u64::from(COPIED_PAGES)) as usize;
                let part = buffer.get_mut(..now * PAGE_BYTES).unwrap_or_default();
                from.read_exact(part)?;
                file.write_all_at(part, at.0 * PAGE_BYTES as u64)?;
                at.0 += now as u64;
            }
        }
        Ok(())
    }
}

fn read_meta(from: &mut dyn Read, slot: usize) -> Result<Meta> {
    let mut page = Page::zeroed();
    from.read_exact(page.bytes_mut())?;
    Meta::decode(&page, slot, true)?.ok_or_else(|| damaged("a meta page in it is not one"))
}

fn damaged(what: &str) -> Error {
    Error::Damaged(format!("the increment: {what}"))
}

/// Whether what was written since `base` makes `meta` of it; `path` is the file that would be the wrong one.
pub(crate) fn check_follows(path: &Path, base: &Meta, meta: &Meta) -> Result<()> {
    let what = if base.identity.id != meta.identity.id || base.identity.store != meta.identity.store
    {
        "of another store"
    } else if base.identity.timeline != meta.identity.timeline {
        "from before a restore, or from after another one"
    } else if base.identity.generation != meta.identity.generation {
        "from before the pages were moved, or compacted"
    } else if base.head.commit > meta.head.commit {
        "of a later commit"
    } else {
        return Ok(());
    };
    Err(Error::not_the_base(path, what))
}

/// Writes an increment.
pub(super) fn write(pages: &MappedPages, file: &dyn File, base: &Meta, meta: &Meta) -> Result<()> {
    let changed = changed_pages(pages, &meta.head.roots, base.head.commit)?;
    let mut header = Increment {
        pages: 0,
        meta: *meta,
        base: *base,
    };
    let mut at = RUNS_AT;
    for (first, count) in changed.runs(COPIED_PAGES) {
        let mut run = [0; RUN_HEADER_BYTES];
        let (number, rest) = run.split_at_mut(8);
        number.copy_from_slice(&first.0.to_le_bytes());
        rest.split_at_mut(4).0.copy_from_slice(&count.to_le_bytes());
        file.write_all_at(&run, at)?;
        at += RUN_HEADER_BYTES as u64;
        let bytes = pages.extent(first, count)?;
        file.write_all_at(bytes, at)?;
        at += bytes.len() as u64;
        header.pages += u64::from(count);
    }
    file.write_all_at(header.meta.encode(0).bytes(), METAS_AT)?;
    file.write_all_at(header.base.encode(1).bytes(), METAS_AT + PAGE_BYTES as u64)?;
    file.sync_data()?;
    // Last: without it the file is nothing.
    file.write_all_at(header.encode().bytes(), 0)?;
    file.sync_data()?;
    Ok(())
}

fn changed_pages(pages: &MappedPages, roots: &Roots, since: CommitNo) -> Result<Bitmap> {
    let mut changed = Bitmap::new(pages.limit())?;
    let mut outside = false;
    let mut each = |first, count| {
        if changed.has_room_for(first, count) {
            changed.set(first, count);
        } else {
            outside = true;
        }
    };
    let catalog = roots.catalog.view(pages);
    catalog.written_since(since, &mut each)?;
    View::new(pages, roots.free).written_since(since, &mut each)?;
    let mut cursor = catalog.cursor();
    while cursor.next()? {
        if let Some((name, stored)) = cursor.record()? {
            let tree = View::new(pages, roots.catalog.record(name, stored)?);
            tree.written_since(since, &mut each)?;
        }
    }
    if outside {
        return Err(Error::Damaged("a page lies outside of the store".into()));
    }
    Ok(changed)
}
