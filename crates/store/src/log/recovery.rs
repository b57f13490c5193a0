//! Recovery: the newest meta page of each store, and what the log holds behind it.
//!
//! Replay is sequential and complete: each record is applied to what the one before it left, and none is skipped
//! because it seems to be there already, since a page on disk may come from any moment between its first store and the
//! crash. Only pages that the meta page's commit does not refer to are written (the reuse rule protects those it does),
//! so a crash during recovery changes nothing: the next one does the same again.
//!
//! Pointers are the exception: they are stored in leaves that the meta page may lead to, as they were when they were
//! committed. That, too, is done again as often as recovery is, since each of them is stored as what it is, whatever
//! stood there; but before the first one all of the log that was read has to be durable: otherwise the next recovery
//! might find pointers of commits that it no longer finds in the log.

// The recovering process has the file for itself: nobody else looks at any page.
#![allow(unsafe_code)]

use sapwood_wal::storage::File;
use sapwood_wal::{Position, Records, Wal};

use crate::env::RESERVE_PAGES;
use crate::env::mapping::{DataFile, MappedPages, WINDOW_PAGES, Windows};
use crate::env::region::Region;
use crate::error::{Error, Result};
use crate::format::meta::{Meta, StoreIdentity, newest, write_meta};
use crate::format::page::{PAGE_BYTES, Page, PageKind};
use crate::format::pages::ReadPages;
use crate::format::pointer::RecordPointer;
use crate::format::roots::{FIRST_PAGE, Head};
use crate::guard::{Guard, Guards};
use crate::ids::{CommitNo, PageNo};
use crate::log::record::{Item, Items, PageItem, Parts, PointersItem, RecordHeader};
use crate::sync::{Arc, Ordering};

/// Brings the data files to the newest commits in the log, starts the log, and fills the regions. Gives where the log
/// goes on.
pub(crate) fn recover(stores: &mut [Recovering], wal: &Wal, guards: Guards) -> Result<Position> {
    let keeps = guards.has(Guard::SyncLogBeforeReplayedPointers);
    let records = replay(stores, wal, keeps)?;
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

/// As [`recover`], but only for this process to look at: the stores' files are private copies, and nothing is written
/// to the disk. Without a log the files stand alone.
pub(crate) fn look(stores: &mut [Recovering], wal: Option<&Wal>) -> Result<()> {
    if let Some(wal) = wal {
        replay(stores, wal, false)?;
    }
    for store in stores {
        store.fill_region();
    }
    Ok(())
}

/// Applies all that the log holds behind the meta pages. If some of them name the beginning of the log's next lap,
/// which [`crate::log::checkpoint::begin_lap`] was about to begin, it goes on there. `keeps`: see
/// [`Recovering::replay`].
fn replay<'w>(stores: &mut [Recovering], wal: &'w Wal, keeps: bool) -> Result<Records<'w>> {
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
    let records = replay_from(stores, wal, start, keeps)?;
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
    replay_from(stores, wal, last, keeps)
}

fn replay_from<'w>(
    stores: &mut [Recovering],
    wal: &'w Wal,
    start: Position,
    keeps: bool,
) -> Result<Records<'w>> {
    let mut records = wal.records(start)?;
    let mut is_kept = !keeps;
    let mut keep = || {
        if !std::mem::replace(&mut is_kept, true) {
            let mut all = wal.records(start)?;
            while all.next()?.is_some() {}
            wal.keep(&all)?;
        }
        Ok(())
    };
    while let Some(record) = records.next()? {
        for part in Parts::of(record.payload)? {
            let (header, items) = RecordHeader::decode(part)?;
            let store = stores.get_mut(usize::from(header.store));
            let store = store.ok_or_else(|| {
                Error::Damaged(format!("the log has records of a store {}", header.store))
            })?;
            store.replay(&header, items, record.end, &mut keep)?;
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
    /// The newest commit whose pages no replay makes anew: the meta page's, or one whose pages are not in the log.
    base: CommitNo,
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
            base: head.commit,
            head,
        };
        store.check_room(head.roots.pages)?;
        Ok(store)
    }

    /// Has the first store know of so many, which are there. One meta page is whole at any moment, even if only one was
    /// valid before: what changes in it lies in its first sector.
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

    /// Has both meta pages say that the log goes on at `lap`, as [`crate::log::checkpoint::begin_lap`] was about to:
    /// one that names an earlier place would not lead there. The one that everything is read from is written last. A
    /// store with commits behind its meta pages was not at that.
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
        // Before the first checkpoint, too, there is what no pointer may be stored in without more ado.
        let newest = region.metas.newest();
        region.metas.target.store(newest.0, Ordering::SeqCst);
        let used = (self.head.roots.pages + RESERVE_PAGES).next_multiple_of(WINDOW_PAGES);
        let room = match self.is_device {
            // It is taken into use like a file that grows: checkpoints look at no more than that.
            true => self.room.min(used),
            false => self.room,
        };
        region.room.store(room, Ordering::SeqCst);
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

    /// Applies a record, unless the meta page holds it. `keep` is called before pointers are stored that the meta page
    /// may lead to: the record is to be durable from then on.
    pub(crate) fn replay(
        &mut self,
        header: &RecordHeader,
        mut items: Items<'_>,
        end: Position,
        keep: &mut dyn FnMut() -> Result<()>,
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
        if !header.has_changes {
            self.has_unlogged = true;
            self.base = header.commit;
        }
        while let Some(item) = items.next()? {
            match item {
                Item::Page(item) => self.page(&item, header)?,
                Item::Extent {
                    first,
                    pages,
                    bytes,
                } => self.extent(first, pages, bytes, header)?,
                Item::Records { at, bytes } => add_records(&mut self.windows, at, bytes, header)?,
                Item::ValueDeltas(item) => {
                    let end = header.roots.pages * PAGE_BYTES as u64;
                    let room = end.saturating_sub(item.at.offset());
                    let (windows, mut at) = (&mut self.windows, item.at);
                    item.put_together(&self.pages, header.commit, room, |bytes| {
                        add_records(windows, at, bytes, header)?;
                        at = at.behind(bytes.len());
                        Ok(())
                    })?;
                }
                Item::Pointers(item) => self.pointers(&item, header, keep)?,
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
                verify_base(page, base)?;
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

    fn pointers(
        &mut self,
        item: &PointersItem<'_>,
        header: &RecordHeader,
        keep: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        check_inside(item.leaf, 1, header)?;
        for (_, pointer) in item.pointers() {
            check_inside(pointer.page(), 1, header)?;
        }
        // SAFETY: within the file by the test; nobody else has it open, and no reference into the map is kept.
        let leaf = unsafe { self.windows.pointer_leaf(item.leaf)? };
        // What is younger is made anew by each replay, and nothing leads to it before.
        if leaf.commit() <= self.base {
            keep()?;
        }
        leaf.store_all(item.pointers(), header.commit)
    }
}

/// Adds bytes to a segment. What is in front of them in their first page, and behind them in the last, stays.
fn add_records(
    windows: &mut Windows,
    at: RecordPointer,
    bytes: &[u8],
    header: &RecordHeader,
) -> Result<()> {
    let begin = (at.offset() % PAGE_BYTES as u64) as usize;
    let pages = (begin + bytes.len()).div_ceil(PAGE_BYTES);
    let pages = u32::try_from(pages).unwrap_or(u32::MAX);
    check_inside(at.page(), pages, header)?;
    // SAFETY: as for a page.
    let segment = unsafe { windows.extent(at.page(), pages)? };
    if let Some(place) = segment.get_mut(begin..begin + bytes.len()) {
        place.copy_from_slice(bytes);
    }
    Ok(())
}

/// Whether a page is what another one can be made of. The checksum of a leaf of pointers is that of when it was made,
/// and says nothing of the pointers that were stored since. They are all there: those of commits up to that of the meta
/// page were there when its checkpoint synced the leaf; those of later ones, before the one that is replayed now, have
/// just been stored; and that one has copied the leaf, to which nobody has stored since. That it is so is proved by the
/// checksum of the page that is made of it.
fn verify_base(page: &Page, number: PageNo) -> Result<()> {
    if page.kind() == Some(PageKind::PointerLeaf) && page.number() == number {
        return Ok(());
    }
    page.verify(number)
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

#[cfg(test)]
mod tests {
    use sapwood_wal::Lsn;
    use sapwood_wal::storage::{Memory, OpenMode, Storage};

    use super::*;
    use crate::format::pointer_leaf::PointerLeaf;
    use crate::format::roots::Roots;
    use crate::heap::Record;
    use crate::log::record::{
        Base, begin_value_deltas, encode_moved, encode_page, encode_pointers, encode_records,
    };

    const PAGES: u64 = 30;
    /// A leaf that the meta page leads to.
    const OLD: PageNo = PageNo(3);
    const BASE: CommitNo = CommitNo(5);

    struct Replay {
        file: Arc<dyn File>,
        store: Recovering,
        kept: usize,
    }

    fn leaf(number: PageNo, commit: CommitNo) -> Page {
        let mut page = Page::zeroed();
        page.init(PageKind::PointerLeaf, 0, number, commit);
        (page.bytes_mut()[24], page.bytes_mut()[26]) = (4, 16);
        page.seal();
        page
    }

    impl Replay {
        fn new() -> Self {
            let file = Memory::new().open("data", OpenMode::CreateNew).unwrap();
            file.allocate(0, 2 * WINDOW_PAGES * PAGE_BYTES as u64)
                .unwrap();
            let meta = Meta {
                identity: StoreIdentity::new(),
                head: Head {
                    commit: BASE,
                    log: Position::default(),
                    roots: Roots {
                        pages: PAGES,
                        ..Roots::empty()
                    },
                },
                log_segments: 0,
            };
            let region = Region::private(1).unwrap().remove(0);
            let mut replay = Self {
                store: Recovering::new(file.clone(), [Some(meta); 2], &region).unwrap(),
                file,
                kept: 0,
            };
            replay.write(&leaf(OLD, CommitNo(4)));
            replay
        }

        fn write(&mut self, page: &Page) {
            let offset = page.number().0 * PAGE_BYTES as u64;
            self.file.write_all_at(page.bytes(), offset).unwrap();
        }

        fn read(&self, number: PageNo) -> Page {
            let mut page = Page::zeroed();
            let offset = number.0 * PAGE_BYTES as u64;
            self.file.read_exact_at(page.bytes_mut(), offset).unwrap();
            page
        }

        /// The record of the next commit.
        fn record(&self, has_changes: bool, items: &[u8]) -> Vec<u8> {
            let header = RecordHeader {
                has_changes,
                store: 0,
                timeline: self.store.identity.timeline,
                commit: CommitNo(self.store.head.commit.0 + 1),
                roots: self.store.head.roots,
            };
            let mut record = Vec::new();
            header.encode(&mut record);
            record.extend_from_slice(items);
            record
        }

        fn next(&mut self, has_changes: bool, items: &[u8]) -> Result<()> {
            let record = self.record(has_changes, items);
            let (header, items) = RecordHeader::decode(&record)?;
            let end = Position {
                lsn: Lsn(header.commit.0 * 8),
                chain: 0,
            };
            let kept = &mut self.kept;
            let mut keep = || {
                *kept += 1;
                Ok(())
            };
            self.store.replay(&header, items, end, &mut keep)
        }
    }

    fn pointers(leaf: PageNo, pointers: &[(u16, RecordPointer)]) -> Vec<u8> {
        let mut items = Vec::new();
        encode_pointers(leaf, pointers, &mut items);
        items
    }

    #[test]
    fn pointers_are_stored_and_leaves_are_made_of_what_has_them() {
        let mut replay = Replay::new();
        replay
            .next(true, &pointers(OLD, &[(1, RecordPointer(9000))]))
            .unwrap();
        assert_eq!(replay.kept, 1, "the meta page leads to the leaf");
        let mut old = replay.read(OLD);
        assert!(old.verify(OLD).is_err(), "its checksum is that of before");
        let found = PointerLeaf::of(&mut old);
        let changed = (found.pointer(1), found.changed());
        assert_eq!(changed, (Some(RecordPointer(9000)), CommitNo(6)));
        // Copied with another pointer.
        let (new, commit) = (PageNo(7), CommitNo(7));
        let mut copy = old.clone();
        copy.set_number(new);
        copy.set_commit(commit);
        copy.bytes_mut()[32 + 8] = 77;
        copy.seal();
        let base = Base {
            number: OLD,
            page: &old,
        };
        let mut items = Vec::new();
        encode_page(&copy, Some(base), &mut items);
        replay.next(true, &items).unwrap();
        assert!(replay.read(new).bytes() == copy.bytes());
        replay
            .next(true, &pointers(new, &[(3, RecordPointer(9002))]))
            .unwrap();
        assert_eq!(replay.kept, 1, "each replay makes this one");
        let mut page = replay.read(new);
        let stored = [0, 1, 2, 3].map(|slot| PointerLeaf::of(&mut page).pointer(slot).unwrap().0);
        assert_eq!(stored, [77, 9000, 0, 9002]);
        // As if a pointer were there that the log does not have.
        let mut replay = Replay::new();
        assert!(replay.next(true, &items).is_err());
        let mut other = leaf(OLD, CommitNo(4));
        other.set_number(new);
        let mut moved = Replay::new();
        let offset = OLD.0 * PAGE_BYTES as u64;
        moved.file.write_all_at(other.bytes(), offset).unwrap();
        assert!(moved.next(true, &items).is_err());
    }

    #[test]
    fn leaves_that_the_log_does_not_have_are_stored_to_when_it_is_durable() {
        let mut replay = Replay::new();
        replay.write(&leaf(PageNo(8), CommitNo(6)));
        replay.next(false, &[]).unwrap();
        replay
            .next(true, &pointers(PageNo(8), &[(0, RecordPointer(9000))]))
            .unwrap();
        assert_eq!(replay.kept, 1);
        // A record without pages may have pointers, too.
        let stored = pointers(PageNo(8), &[(2, RecordPointer(9001))]);
        replay.next(false, &stored).unwrap();
        let mut page = replay.read(PageNo(8));
        assert_eq!(
            PointerLeaf::of(&mut page).pointer(2),
            Some(RecordPointer(9001))
        );
        assert_eq!(replay.kept, 2);
    }

    #[test]
    fn records_are_added_where_they_were() {
        let mut replay = Replay::new();
        // From the end of a window's last page over the next two.
        let first = PageNo(WINDOW_PAGES - 1);
        for page in 0..3 {
            let mut full = Page::zeroed();
            full.bytes_mut().fill(7);
            full.set_number(PageNo(first.0 + page));
            replay.write(&full);
        }
        let before = [0, 2].map(|page| replay.read(PageNo(first.0 + page)));
        let bytes = [9; PAGE_BYTES + 80];
        let at = RecordPointer::at(first, PAGE_BYTES as u64 - 64).unwrap();
        let mut items = Vec::new();
        encode_records(at, &bytes, &mut items);
        replay.next(true, &items).unwrap();
        let pages = [0, 1, 2].map(|page| replay.read(PageNo(first.0 + page)));
        let front = PAGE_BYTES - 64;
        assert_eq!(pages[0].bytes()[..front], before[0].bytes()[..front]);
        assert!(pages[0].bytes()[front..].iter().all(|&byte| byte == 9));
        assert!(pages[1].bytes().iter().all(|&byte| byte == 9));
        assert!(pages[2].bytes()[..16].iter().all(|&byte| byte == 9));
        assert_eq!(pages[2].bytes()[16..], before[1].bytes()[16..]);
    }

    /// A byte or two of the log may stand for a long record.
    #[test]
    fn records_that_are_moved_more_often_than_there_is_room_are_refused() {
        let mut replay = Replay::new();
        let old = RecordPointer::at(PageNo(9), 64).unwrap();
        let record = Record {
            commit: BASE,
            previous: RecordPointer::NONE,
            key: [1; 8],
            value: &[5; 2000],
        };
        let mut page = Page::zeroed();
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        page.bytes_mut()[64..64 + bytes.len()].copy_from_slice(&bytes);
        let offset = 9 * PAGE_BYTES as u64;
        replay.file.write_all_at(page.bytes(), offset).unwrap();
        let mut moved = |times: usize| {
            let mut items = Vec::new();
            let at = RecordPointer::at(PageNo(PAGES - 2), 0).unwrap();
            begin_value_deltas(at, times, &mut items);
            (0..times).for_each(|_| encode_moved(old, &mut items));
            replay.next(true, &items)
        };
        moved(4).unwrap();
        let error = moved(100_000).unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
    }

    #[test]
    fn what_a_few_bytes_stand_for_is_put_together_in_pieces() {
        let replay = Replay::new();
        let old = RecordPointer::at(PageNo(9), 64).unwrap();
        let record = Record {
            commit: BASE,
            previous: RecordPointer::NONE,
            key: [1; 8],
            value: &[5; 2000],
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let offset = 9 * PAGE_BYTES as u64 + 64;
        replay.file.write_all_at(&bytes, offset).unwrap();
        let times = 1000;
        let mut items = Vec::new();
        begin_value_deltas(old, times, &mut items);
        (0..times).for_each(|_| encode_moved(old, &mut items));
        let record = replay.record(true, &items);
        let (_, mut items) = RecordHeader::decode(&record).unwrap();
        let Some(Item::ValueDeltas(item)) = items.next().unwrap() else {
            panic!("another item");
        };
        let (mut all, mut longest) = (0, 0);
        let pages = &replay.store.pages;
        item.put_together(pages, BASE, u64::MAX, |piece| {
            all += piece.len();
            longest = longest.max(piece.len());
            Ok(())
        })
        .unwrap();
        assert_eq!(all, times * bytes.len());
        assert!(longest < all / 10, "{longest} bytes at once");
    }

    #[test]
    fn what_leads_out_of_the_store_is_refused() {
        let pointer = |page: u64| RecordPointer::at(PageNo(page), 0).unwrap();
        let refused = |items: &[u8]| {
            let error = Replay::new().next(true, items).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        };
        let inside = [(0, pointer(9))];
        Replay::new().next(true, &pointers(OLD, &inside)).unwrap();
        for number in [0, 1, PAGES, u64::MAX] {
            refused(&pointers(PageNo(number), &inside));
        }
        refused(&pointers(PageNo(4), &inside));
        refused(&pointers(OLD, &[(4, pointer(9))]));
        for pointer in [RecordPointer(1), pointer(PAGES), RecordPointer(u64::MAX)] {
            refused(&pointers(OLD, &[(0, pointer)]));
        }
        for at in [
            RecordPointer(1),
            pointer(PAGES - 1),
            pointer(PAGES),
            RecordPointer(u64::MAX),
        ] {
            let mut items = Vec::new();
            encode_records(at, &[1; PAGE_BYTES + 8], &mut items);
            refused(&items);
        }
    }
}
