//! Recovery: the newest meta page of each store, and what the log holds behind it.
//!
//! Replay is sequential and complete: each record is applied to what the one before it left, and none is skipped because
//! it seems to be there already, since a page on disk may come from any moment between its first store and the crash.
//! Only pages that the meta page's commit does not refer to are written (the reuse rule protects those it does), so a crash
//! during recovery changes nothing: the next one does the same again.

// The recovering process has the file for itself: nobody else looks at any page.
#![allow(unsafe_code)]

use sapwood_wal::storage::File;
use sapwood_wal::{Position, Records, Wal};

use crate::env::RESERVE_PAGES;
use crate::error::{Error, Result};
use crate::head::{FIRST_PAGE, Head};
use crate::mapped::{DataFile, MappedPages, WINDOW_PAGES, Windows};
use crate::meta::{Meta, StoreIdentity};
use crate::open::{newest, write_meta};
use crate::page::{PAGE_BYTES, Page, PageNo, ReadPages};
use crate::record::{Item, Items, PageItem, Parts, RecordHeader};
use crate::region::Region;
use crate::sync::{Arc, Ordering};

/// Brings the data files to the newest commits in the log, starts the log, and fills the regions. Gives where the log goes on.
pub(crate) fn recover(stores: &mut [Recovering], wal: &Wal) -> Result<Position> {
    let records = replay(stores, wal)?;
    let end = records.position();
    if let Some(lap) = begun_lap(stores, wal) {
        for store in &mut *stores {
            store.go_on_at(lap, wal.segments()?)?;
        }
    }
    for store in &*stores {
        store.write_metas_again()?;
    }
    let needed = stores.iter().flat_map(|store| store.metas.iter().flatten());
    let floor = needed.map(|meta| meta.head.log.lsn).min();
    wal.start(floor.unwrap_or(end.lsn), &records)?;
    for store in stores {
        store.fill_region();
    }
    Ok(end)
}

/// As [`recover`], but only for this process to look at: the stores' files are private copies, and nothing is written to the disk. Without
/// a log the files stand alone.
pub(crate) fn look(stores: &mut [Recovering], wal: Option<&Wal>) -> Result<()> {
    if let Some(wal) = wal {
        replay(stores, wal)?;
    }
    for store in stores {
        store.fill_region();
    }
    Ok(())
}

/// Applies all that the log holds behind the meta pages. If some of them name the beginning of the log's next lap, which
/// [`crate::checkpoint::begin_lap`] was about to begin, it goes on there.
fn replay<'w>(stores: &mut [Recovering], wal: &'w Wal) -> Result<Records<'w>> {
    let logs = stores.iter().map(|store| store.identity.log);
    if logs.into_iter().any(|log| log != wal.id()) {
        return Err(Error::Damaged("the log belongs to another store".into()));
    }
    for store in &*stores {
        let Meta {
            head, log_segments, ..
        } = newest(&store.metas)?;
        wal.check_reaches(head.log.lsn, *log_segments)?;
    }
    let starts = stores.iter().map(|store| store.head.log);
    let start = starts.min_by_key(|log| log.lsn).unwrap_or_default();
    let records = replay_from(stores, wal, start)?;
    let last = stores.iter().map(|store| store.head.log);
    let last = last.max_by_key(|log| log.lsn).unwrap_or_default();
    if last.lsn <= records.position().lsn {
        return Ok(records);
    }
    let is_lap = last == wal.next_lap_of(records.position());
    if !is_lap || stores.iter().any(Recovering::has_replayed) {
        return Err(Error::Damaged(format!(
            "the log ends at {}, and a meta page says that it reached {}",
            records.position().lsn,
            last.lsn
        )));
    }
    replay_from(stores, wal, last)
}

fn replay_from<'w>(
    stores: &mut [Recovering],
    wal: &'w Wal,
    start: Position,
) -> Result<Records<'w>> {
    let mut records = wal.records(start)?;
    while let Some(record) = records.next()? {
        for part in Parts::of(record.payload)? {
            let (header, items) = RecordHeader::decode(part)?;
            let store = stores.get_mut(usize::from(header.store));
            let store = store.ok_or_else(|| {
                Error::Damaged(format!("the log has records of a store {}", header.store))
            })?;
            store.replay(&header, items, record.end)?;
        }
    }
    Ok(records)
}

/// The furthest place in the log that a meta page names, if a lap begins there.
fn begun_lap(stores: &[Recovering], wal: &Wal) -> Option<Position> {
    let metas = stores.iter().flat_map(|store| store.metas.iter().flatten());
    let last = metas.map(|meta| meta.head.log).max_by_key(|log| log.lsn)?;
    (last == wal.next_lap_of(last)).then_some(last)
}

/// A store that is being brought to its newest commit.
pub(crate) struct Recovering {
    pub(crate) data: DataFile,
    pub(crate) identity: StoreIdentity,
    /// Among the replayed commits there was one whose pages are not in the log.
    pub(crate) has_unlogged: bool,
    metas: [Option<Meta>; 2],
    region: Arc<Region>,
    /// How many pages the file has room for.
    room: u64,
    is_device: bool,
    /// All pages of the file.
    pages: MappedPages,
    windows: Windows,
    head: Head,
}

impl Recovering {
    pub(crate) fn new(
        file: Arc<dyn File>,
        metas: [Option<Meta>; 2],
        region: &Arc<Region>,
    ) -> Result<Self> {
        let Meta { identity, head, .. } = *newest(&metas)?;
        if metas.iter().flatten().any(|meta| meta.identity != identity) {
            return Err(Error::Damaged(
                "the meta pages belong to different stores".into(),
            ));
        }
        let data = DataFile::new(file)?;
        let room = data.file.size()? / PAGE_BYTES as u64;
        let room = room - room % WINDOW_PAGES;
        let is_device = data.file.is_device()?;
        let store = Self {
            // SAFETY: the file has so many pages, and nobody else has it open.
            pages: unsafe { data.pages(room) },
            windows: Windows::new(data.file.clone()),
            data,
            identity,
            has_unlogged: false,
            metas,
            region: region.clone(),
            room,
            is_device,
            head,
        };
        store.check_room(head.roots.pages)?;
        Ok(store)
    }

    /// Has the first store know of so many, which are there. One meta page is whole at any moment.
    pub(crate) fn know_stores(&mut self, count: usize) -> Result<()> {
        self.identity.stores = u16::try_from(count).unwrap_or(u16::MAX);
        for (slot, meta) in self.metas.iter_mut().enumerate() {
            if let Some(meta) = meta {
                meta.identity = self.identity;
                write_meta(&*self.data.file, slot, meta)?;
                self.data.file.sync_data()?;
            }
        }
        Ok(())
    }

    /// Whether there were commits behind the meta pages.
    fn has_replayed(&self) -> bool {
        newest(&self.metas).is_ok_and(|newest| newest.head.commit != self.head.commit)
    }

    /// Has both meta pages say that the log goes on at `lap`, as [`crate::checkpoint::begin_lap`] was about to: one that names an earlier place would
    /// not lead there. The one that everything is read from is written last. A store with commits behind its meta pages was not at that.
    fn go_on_at(&mut self, lap: Position, log_segments: u32) -> Result<()> {
        if self.has_replayed() {
            return Ok(());
        }
        let newest = *newest(&self.metas)?;
        let first = usize::from(self.metas[0] == Some(newest));
        for slot in [first, 1 - first] {
            if self.metas[slot].is_none_or(|meta| meta.head.log.lsn < lap.lsn) {
                let mut meta = Meta {
                    log_segments,
                    ..newest
                };
                meta.head.log = lap;
                write_meta(&*self.data.file, slot, &meta)?;
                self.data.file.sync_data()?;
                self.metas[slot] = Some(meta);
                self.head.log = lap;
            }
        }
        Ok(())
    }

    /// Once more: after a failed sync the system may take for clean what never reached the disk.
    fn write_metas_again(&self) -> Result<()> {
        for (slot, meta) in self.metas.iter().enumerate() {
            if let Some(meta) = meta {
                write_meta(&*self.data.file, slot, meta)?;
            }
        }
        // The size of the file, too, may not have reached the disk yet.
        Ok(self.data.file.sync_data()?)
    }

    /// The store is as the log says, which has been started.
    pub(crate) fn fill_region(&self) {
        let region = &self.region;
        for (slot, meta) in self.metas.iter().enumerate() {
            if let Some(meta) = meta {
                region.metas.note(slot, &meta.head);
            }
        }
        let used = (self.head.roots.pages + RESERVE_PAGES).next_multiple_of(WINDOW_PAGES);
        let room = match self.is_device {
            // It is taken into use like a file that grows: checkpoints look at no more than that.
            true => self.room.min(used),
            false => self.room,
        };
        region.growth.pages.store(room, Ordering::SeqCst);
        region.start(&self.head);
    }

    fn check_room(&self, pages: u64) -> Result<()> {
        if pages > self.pages.limit() {
            return Err(Error::Damaged(format!(
                "the data file has only {} of its {pages} pages",
                self.pages.limit()
            )));
        }
        Ok(())
    }

    /// The newest commit so far.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Sees to it that the file has so many pages.
    pub(crate) fn make_room(&mut self, pages: u64) -> Result<()> {
        if pages <= self.room {
            return Ok(());
        }
        if pages > self.data.pages_max() - WINDOW_PAGES {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into());
        }
        let room = pages.next_multiple_of(WINDOW_PAGES);
        let bytes = |pages: u64| pages * PAGE_BYTES as u64;
        let file = &self.data.file;
        file.allocate(bytes(self.room), bytes(room - self.room))?;
        self.room = room;
        // SAFETY: as at first.
        self.pages = unsafe { self.data.pages(room) };
        Ok(())
    }

    /// Applies a record, unless the meta page holds it.
    pub(crate) fn replay(
        &mut self,
        header: &RecordHeader,
        mut items: Items<'_>,
        end: Position,
    ) -> Result<()> {
        if end.lsn <= self.head.log.lsn {
            return Ok(());
        }
        let expected = self.head.commit.0 + 1;
        if header.timeline != self.identity.timeline || header.commit.0 != expected {
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
        self.head = header.head(end);
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
