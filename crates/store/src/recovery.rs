//! Recovery: the newest meta page, and what the log holds behind it.
//!
//! Replay is sequential and complete: each record is applied to what the one before it left, and none is skipped because
//! it seems to be there already, since a page on disk may come from any moment between its first store and the crash.
//! Only pages that the meta page's commit does not refer to are written (the reuse rule protects those it does), so a crash
//! during recovery changes nothing: the next one does the same again.

// The recovering process has the file for itself: nobody else looks at any page.
#![allow(unsafe_code)]

use sapwood_wal::Wal;

use crate::error::{Error, Result};
use crate::head::{FIRST_PAGE, Head};
use crate::mapped::{DataFile, MappedPages, WINDOW_PAGES, Windows};
use crate::meta::{Meta, StoreIdentity};
use crate::open::write_meta;
use crate::page::{PAGE_BYTES, Page, PageNo, ReadPages};
use crate::record::{Item, Items, PageItem, RecordHeader};
use crate::region::Region;
use crate::sync::Ordering;

/// Brings the data file to the newest commit in the log, starts the log, and fills the region.
pub(crate) fn recover(
    data: &DataFile,
    wal: &Wal,
    metas: &[Option<Meta>; 2],
    region: &Region,
) -> Result<Recovered> {
    let newest = metas.iter().flatten().max_by_key(|meta| meta.head.commit);
    let newest = newest.ok_or_else(|| Error::Damaged("no meta page is valid".into()))?;
    let identity = newest.identity;
    let others = metas.iter().flatten();
    if others.clone().any(|meta| meta.identity != identity) {
        return Err(Error::Damaged(
            "the meta pages belong to different stores".into(),
        ));
    }
    if wal.id() != identity.log {
        return Err(Error::Damaged("the log belongs to another store".into()));
    }
    let room = data.file.size()? / PAGE_BYTES as u64;
    let room = room - room % WINDOW_PAGES;
    let mut replay = Replay {
        // SAFETY: the file has so many pages, and nobody else has it open.
        pages: unsafe { data.pages(room) },
        windows: Windows::new(data.file.clone()),
        head: newest.head,
        identity,
        has_unlogged: false,
    };
    replay.check_room(newest.head.roots.pages)?;
    let mut records = wal.records(newest.head.log)?;
    while let Some(record) = records.next()? {
        let (header, items) = RecordHeader::decode(record.payload)?;
        replay.commit(&header, items)?;
        replay.head = Head {
            commit: header.commit,
            log: record.end,
            roots: header.roots,
        };
    }
    for (slot, meta) in metas.iter().enumerate() {
        if let Some(meta) = meta {
            // Once more: after a failed sync the system may take for clean what never reached the disk.
            write_meta(&*data.file, slot, meta)?;
        }
    }
    // The size of the file, too, may not have reached the disk yet.
    data.file.sync_data()?;
    let floor = others.map(|meta| meta.head.log.lsn).min();
    wal.start(floor.unwrap_or(newest.head.log.lsn), &records)?;
    for (slot, meta) in metas.iter().enumerate() {
        if let Some(meta) = meta {
            let (commit, lsn) = (meta.head.commit.0, meta.head.log.lsn.0);
            region.metas.commits[slot].store(commit, Ordering::SeqCst);
            region.metas.lsns[slot].store(lsn, Ordering::SeqCst);
        }
    }
    region.growth.pages.store(room, Ordering::SeqCst);
    region.start(&replay.head);
    Ok(Recovered {
        identity,
        has_unlogged: replay.has_unlogged,
    })
}

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) identity: StoreIdentity,
    /// Among the replayed commits there was one whose pages are not in the log.
    pub(crate) has_unlogged: bool,
}

struct Replay {
    /// All pages of the file.
    pages: MappedPages,
    windows: Windows,
    head: Head,
    identity: StoreIdentity,
    has_unlogged: bool,
}

impl Replay {
    fn check_room(&self, pages: u64) -> Result<()> {
        if pages > self.pages.limit() {
            return Err(Error::Damaged(format!(
                "the data file has only {} of its {pages} pages",
                self.pages.limit()
            )));
        }
        Ok(())
    }

    fn commit(&mut self, header: &RecordHeader, mut items: Items<'_>) -> Result<()> {
        let expected = self.head.commit.0 + 1;
        if header.store != self.identity.store
            || header.timeline != self.identity.timeline
            || header.commit.0 != expected
        {
            return Err(Error::Damaged(format!(
                "the log goes on with commit {} of timeline {} where commit {expected} is due",
                header.commit, header.timeline
            )));
        }
        self.check_room(header.roots.pages)?;
        self.has_unlogged |= !header.has_changes;
        while let Some(item) = items.next()? {
            match item {
                Item::Page(item) => self.page(&item, header)?,
                Item::Extent {
                    first,
                    pages,
                    bytes,
                } => self.extent(first, pages, bytes, header)?,
            }
        }
        Ok(())
    }

    fn page(&mut self, item: &PageItem<'_>, header: &RecordHeader) -> Result<()> {
        check_inside(item.number, 1, header)?;
        let mut page = match item.base {
            Some(base) => {
                check_inside(base, 1, header)?;
                let page = self.pages.page(base)?;
                page.verify(base)?;
                page.clone()
            }
            None => Page::zeroed(),
        };
        item.apply(&mut page, header.commit)?;
        // SAFETY: within the file by the tests; nobody else has it open, and no reference into the map is kept.
        let place = unsafe { self.windows.page(item.number)? };
        place.bytes_mut().copy_from_slice(page.bytes());
        Ok(())
    }

    fn extent(
        &mut self,
        first: PageNo,
        pages: u32,
        bytes: &[u8],
        header: &RecordHeader,
    ) -> Result<()> {
        check_inside(first, pages, header)?;
        // SAFETY: as for a page.
        let place = unsafe { self.windows.extent(first, pages)? };
        let (used, rest) = place.split_at_mut(bytes.len());
        used.copy_from_slice(bytes);
        rest.fill(0);
        Ok(())
    }
}

/// The pages belong to the store as of the commit.
fn check_inside(first: PageNo, pages: u32, header: &RecordHeader) -> Result<()> {
    let end = first.0.checked_add(u64::from(pages));
    if first.0 < FIRST_PAGE || pages == 0 || end.is_none_or(|end| end > header.roots.pages) {
        return Err(Error::corrupt(
            first,
            "a log record writes outside of the store",
        ));
    }
    Ok(())
}
