//! The end of the log, which the writers of all stores share: one at a time appends a record and applies what is in it.
//!
//! The one that holds the lock has behind it a log whose records have all been applied; so a dead holder leaves at most
//! one that is not, the last, and the next to take the lock completes it, to whichever stores it belongs.
//!
//! Pointers to records in leaves that are there already are stored between the two: not before the record is appended,
//! since a commit that never happens would leave pointers whose records are taken for those of the next one of its
//! number; and not after it is applied, since the next transaction goes on from them. The one that completes what a
//! dead holder left stores them again.

use std::io::IoSlice;

use sapwood_wal::lock::Taken;
use sapwood_wal::{Lsn, Position};

use crate::env::mapping::Windows;
use crate::env::options::Durability;
use crate::env::{Held, Inner};
use crate::error::{Error, Result};
use crate::format::meta::read_metas;
use crate::format::pointer::RecordPointer;
use crate::format::roots::{FIRST_PAGE, Head};
use crate::guard::{Guard, Guards};
use crate::ids::PageNo;
use crate::log::record::{Item, Items, Parts, RecordHeader};
use crate::sync::{Arc, Ordering};

/// Held by the one that appends.
pub(crate) struct AppendLock<'i> {
    inner: &'i Inner,
    _held: Held<'i>,
}

impl<'i> AppendLock<'i> {
    pub(crate) fn take(inner: &'i Inner) -> Result<Self> {
        let (_held, taken) = inner.hold(&inner.first_region().appender);
        let this = Self { inner, _held };
        if taken == Taken::Inherited {
            // The one that took the lock after a failure here would know of no heritage, and write over it.
            this.complete().inspect_err(|_| inner.poison())?;
        }
        Ok(this)
    }

    /// Where the next record will begin.
    pub(crate) fn end(&self) -> Result<Position> {
        match &self.inner.wal {
            Some(wal) => Ok(wal.tail()?),
            None => Ok(Position::default()),
        }
    }

    /// Appends a record, which the caller applies before it gives the lock back. That of a relaxed commit survives the
    /// death of all processes, in the lock file or in the log; that of a durable one has until then been seen by
    /// nobody.
    pub(crate) fn append(&self, parts: &[IoSlice<'_>], durability: Durability) -> Result<Position> {
        match (&self.inner.wal, durability) {
            (Some(wal), Durability::Durable) => Ok(wal.append_buffered(parts)?),
            (Some(wal), Durability::Relaxed) => Ok(wal.append(parts)?),
            (None, _) => Ok(Position::default()),
        }
    }

    /// Stores pointers to records of the commit with this head, whose record is appended, in one leaf, before the
    /// commit is applied. The one that did not get so far as to apply it afterwards has left the store in an order that
    /// only a recovery mends, and nobody else goes on with it.
    ///
    /// To a leaf that is no younger than a checkpoint's target a meta page may lead, now or soon. What is stored there
    /// must not be on the disk without the record, from which every replay stores it again.
    #[allow(unsafe_code)] // Everybody else stores, and loads, words of a leaf at once.
    pub(crate) fn store_pointers(
        &self,
        store: &Inner,
        windows: &mut Windows,
        head: &Head,
        leaf: PageNo,
        pointers: impl IntoIterator<Item = (u16, RecordPointer)>,
    ) -> Result<()> {
        let stored = || {
            check_inside(leaf, head)?;
            // SAFETY: within the file by the test, as the store's pages are. It is a leaf of the newest commit, of
            // which only words change, and only in the hands of the one that holds this lock.
            let leaf = unsafe { windows.pointer_leaf(leaf)? };
            if let Some(wal) = &store.wal
                && leaf.commit() <= store.region.metas.newest()
                && store.options.guards.has(Guard::SyncLogBeforePointers)
            {
                wal.sync_to(head.log.lsn)?;
            }
            leaf.store_all(pointers, head.commit)
        };
        stored().inspect_err(|_| store.poison())
    }

    /// Has the log begin its next lap at `place`, which all meta pages name: see [`crate::log::checkpoint::begin_lap`].
    pub(crate) fn begin_lap(&self, place: Position) -> Result<()> {
        match &self.inner.wal {
            Some(wal) => Ok(wal.begin_lap(place)?),
            None => Ok(()),
        }
    }

    /// Applies the record that a dead holder appended whole, and cuts off what it left of another one. The pages of
    /// that need no attention, since nothing refers to them.
    fn complete(&self) -> Result<()> {
        let Some(wal) = &self.inner.wal else {
            return Ok(());
        };
        let end = wal.inherit()?;
        if newest_place(self.inner)? > end.lsn {
            // Records here would be passed over by a recovery, which goes on with what the meta pages say.
            return Err(Error::Damaged(
                "a process died while the log began a new lap: all others have to close the environment".into(),
            ));
        }
        if let Some(last) = wal.before_last() {
            let mut records = wal.records(last)?;
            while records.position().lsn < end.lsn
                && let Some(record) = records.next()?
            {
                for part in Parts::of(record.payload)? {
                    let (header, items) = RecordHeader::decode(part)?;
                    self.apply(&header, items, record.end)?;
                }
            }
        }
        for region in &*self.inner.regions {
            region.publish_ready(|| wal.durable());
        }
        Ok(())
    }

    fn apply(&self, header: &RecordHeader, items: Items<'_>, log: Position) -> Result<()> {
        let region = self.inner.regions.get(usize::from(header.store));
        let region =
            region.ok_or_else(|| Error::Damaged("the log names an unknown store".into()))?;
        let applied = region.applied_head()?.commit;
        if header.commit <= applied {
            return Ok(());
        }
        if header.commit.0 != applied.0 + 1 {
            return Err(Error::Damaged("the log skips a commit".into()));
        }
        let head = header.head(log);
        self.store_all_pointers(header.store, &head, items)?;
        region.apply(&head, Durability::Durable);
        Ok(())
    }

    /// Stores the pointers of a record, of whose other items nothing is left to be done.
    fn store_all_pointers(&self, store: u16, head: &Head, mut items: Items<'_>) -> Result<()> {
        let mut open: Option<(Arc<Inner>, Windows)> = None;
        while let Some(item) = items.next()? {
            let Item::Pointers(item) = item else {
                continue;
            };
            let (store, windows) = match &mut open {
                Some(open) => open,
                None => {
                    let mut stores = self.inner.all_stores();
                    let store = stores.find(|other| other.identity.store == store);
                    let store = store.ok_or_else(|| {
                        Error::Damaged("a store that a dead process wrote to is not open".into())
                    })?;
                    let windows = Windows::new(store.data.file.clone());
                    open.insert((store, windows))
                }
            };
            self.store_pointers(store, windows, head, item.leaf, item.pointers())?;
        }
        Ok(())
    }
}

/// As it is with the pages of a transaction.
fn check_inside(leaf: PageNo, head: &Head) -> Result<()> {
    if leaf.0 < FIRST_PAGE || leaf.0 >= head.roots.pages {
        return Err(Error::corrupt(leaf, "lies outside of the store"));
    }
    Ok(())
}

/// The furthest place in the log that a meta page on the disk names.
fn newest_place(inner: &Inner) -> Result<Lsn> {
    let mut newest = Lsn(0);
    for store in inner.all_stores() {
        let metas = read_metas(&*store.data.file, Guards::default())?;
        let places = metas.iter().flatten().map(|meta| meta.head.log.lsn);
        newest = places.fold(newest, Lsn::max);
    }
    Ok(newest)
}

impl Drop for AppendLock<'_> {
    fn drop(&mut self) {
        if let Some(wal) = &self.inner.wal {
            let applied = &self.inner.first_region().log_applied;
            applied.store(wal.end().0, Ordering::SeqCst);
        }
    }
}

/// A longer record does not go into the log; there is no limit to one that goes nowhere.
pub(crate) fn record_bytes_max(inner: &Inner) -> usize {
    let Some(wal) = &inner.wal else {
        return 0;
    };
    usize::try_from(wal.record_bytes_max().min(wal.capacity() / 2)).unwrap_or(usize::MAX)
}
