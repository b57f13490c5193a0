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
//! The pages carry their numbers and checksums themselves, and the free list says of every page whether it is in use.
//! So nothing here has to be believed: a store that was put together is checked as a whole.

#![deny(clippy::indexing_slicing)]

use std::io::{ErrorKind, Read};
use std::path::Path;

use sapwood_wal::storage::File;

use crate::check::Bitmap;
use crate::env::mapping::MappedPages;
use crate::error::{Error, Result};
use crate::format::meta::Meta;
use crate::format::page::{PAGE_BYTES, Page, checksum};
use crate::format::pointer::Segment;
use crate::format::roots::{FIRST_PAGE, Roots};
use crate::heap::{Record, segment_in_use};
use crate::ids::{CommitNo, PageNo};
use crate::tree::{View, Written};

use super::{COPIED_PAGES, file_pages};
use crate::backup::copied::{Copied, Part};

const MAGIC: [u8; 8] = *b"SAPWINCR";
const VERSION: u32 = 1;
pub(super) const RUN_HEADER_BYTES: usize = 16;
const METAS_AT: u64 = PAGE_BYTES as u64;
pub(super) const RUNS_AT: u64 = 3 * PAGE_BYTES as u64;

/// What an increment begins with.
pub(crate) struct Increment {
    pub(super) pages: u64,
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
            let (first, count) = run_of(&run, left)?;
            let end = first.checked_add(count);
            let fits = end.is_some_and(|end| end <= self.meta.head.roots.pages);
            if first < FIRST_PAGE || !fits {
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

/// The number of the first page of a run, and how many it has, of those that are left.
pub(super) fn run_of(header: &[u8; RUN_HEADER_BYTES], left: u64) -> Result<(u64, u64)> {
    let [number, rest] = header.as_chunks::<8>().0 else {
        return Err(damaged("a run has no header"));
    };
    let (first, count) = (u64::from_le_bytes(*number), u64::from_le_bytes(*rest));
    if count == 0 || count > left {
        return Err(damaged("a run has an impossible length"));
    }
    Ok((first, count))
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
    changed.each_run(pages, meta.head.commit, &mut |first, bytes| {
        // No run is longer than what is copied at once.
        let count = (bytes.len() / PAGE_BYTES) as u32;
        let mut run = [0; RUN_HEADER_BYTES];
        let (number, rest) = run.split_at_mut(8);
        number.copy_from_slice(&first.0.to_le_bytes());
        rest.split_at_mut(4).0.copy_from_slice(&count.to_le_bytes());
        file.write_all_at(&run, at)?;
        at += RUN_HEADER_BYTES as u64;
        file.write_all_at(bytes, at)?;
        at += bytes.len() as u64;
        header.pages += u64::from(count);
        Ok(())
    })?;
    file.write_all_at(header.meta.encode(0).bytes(), METAS_AT)?;
    file.write_all_at(header.base.encode(1).bytes(), METAS_AT + PAGE_BYTES as u64)?;
    file.sync_data()?;
    // Last: without it the file is nothing.
    file.write_all_at(header.encode().bytes(), 0)?;
    file.sync_data()?;
    Ok(())
}

fn changed_pages(pages: &MappedPages, roots: &Roots, since: CommitNo) -> Result<Copied> {
    let mut plain = Bitmap::new(pages.limit())?;
    let mut leaves = Bitmap::new(pages.limit())?;
    let mut outside = false;
    let mut each = |written| {
        let (bits, first, count) = match written {
            Written::Pages(first, count) => (&mut plain, first, count),
            Written::PointerLeaf(leaf) => (&mut leaves, leaf, 1),
        };
        if bits.has_room_for(first, count) {
            bits.set(first, count);
        } else {
            outside = true;
        }
    };
    let catalog = roots.catalog.view(pages);
    catalog.written_since(since, &mut each)?;
    for tree in [roots.free, roots.segments] {
        View::new(pages, tree).written_since(since, &mut each)?;
    }
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
    Ok(Copied {
        plain,
        leaves,
        segments: changed_segments(pages, roots, since)?,
    })
}

/// What was added to segments since a commit. Of each heap one segment is filled at a time: what is older than the
/// newest of those that were there then was not added to. (A commit that began several may have gone on with any of
/// them.)
fn changed_segments(pages: &MappedPages, roots: &Roots, since: CommitNo) -> Result<Vec<Part>> {
    let mut changed = Vec::new();
    // Of the heap before, and the newest of its older segments.
    let mut older: Vec<(CommitNo, Segment, u32)> = Vec::new();
    let mut heap = None;
    let mut cursor = View::new(pages, roots.segments).cursor();
    while cursor.next()? {
        let Some((key, value)) = cursor.record()? else {
            break;
        };
        let Some((its, segment, used)) = segment_in_use(key, value)? else {
            continue;
        };
        if heap.replace(its) != Some(its) {
            add_tails(pages, &mut older, since, &mut changed)?;
        }
        let commit = segment.commit(pages)?;
        if commit > since {
            verify_behind(pages, segment, used, since)?;
            changed.push(Part::behind(segment, 0, used));
            continue;
        }
        let newest = older.first().map_or(commit, |(newest, ..)| *newest);
        if commit > newest {
            older.clear();
        }
        if commit >= newest {
            older.push((commit, segment, used));
        }
    }
    add_tails(pages, &mut older, since, &mut changed)?;
    Ok(changed)
}

fn add_tails(
    pages: &MappedPages,
    older: &mut Vec<(CommitNo, Segment, u32)>,
    since: CommitNo,
    changed: &mut Vec<Part>,
) -> Result<()> {
    for (_, segment, used) in older.drain(..) {
        if let Some(begin) = verify_behind(pages, segment, used, since)? {
            changed.push(Part::behind(segment, begin, used));
        }
    }
    Ok(())
}

/// Verifies the records of a segment that commits after `since` wrote; where the first of them begins.
fn verify_behind(
    pages: &MappedPages,
    segment: Segment,
    used: u32,
    since: CommitNo,
) -> Result<Option<u32>> {
    let mut begin = None;
    segment.each(pages, used, |at, record| {
        if record.commit > since {
            Record::verify(pages, at)?;
            let from = at.offset() - segment.first.0 * PAGE_BYTES as u64;
            // Within a segment, whose bytes 32 bits can count.
            begin.get_or_insert(from as u32);
        }
        Ok(())
    })?;
    Ok(begin)
}
