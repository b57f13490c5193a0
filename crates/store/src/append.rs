//! The end of the log, which the writers of all stores share: one at a time appends a record and applies what is in it.
//!
//! Whoever holds the lock has behind it a log whose records have all been applied; so a dead holder leaves at most one that is
//! not, the last, and the next to take the lock completes it, to whichever stores it belongs.

use std::io::IoSlice;

use sapwood_wal::lock::Taken;
use sapwood_wal::{Lsn, Position};

use crate::commit::Durability;
use crate::env::Inner;
use crate::error::{Error, Result};
use crate::guard::Guards;
use crate::head::Head;
use crate::open::read_metas;
use crate::record::{Parts, RecordHeader};
use crate::sync::Ordering;

/// Held by whoever appends.
pub(crate) struct AppendLock<'i> {
    inner: &'i Inner,
}

impl<'i> AppendLock<'i> {
    pub(crate) fn take(inner: &'i Inner) -> Result<Self> {
        let me = inner.membership.index();
        let lock = &inner.first_region().appender;
        let taken = lock.lock(me, |process| inner.is_alive(process));
        let this = Self { inner };
        if taken == Taken::Inherited {
            // Whoever took the lock after a failure here would know of no heritage, and write over it.
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

    /// Appends a record, which the caller applies before it gives the lock back. That of a relaxed commit survives the death of all
    /// processes, in the lock file or in the log; that of a durable one has until then been seen by nobody.
    pub(crate) fn append(&self, parts: &[IoSlice<'_>], durability: Durability) -> Result<Position> {
        match (&self.inner.wal, durability) {
            (Some(wal), Durability::Durable) => Ok(wal.append_buffered(parts)?),
            (Some(wal), Durability::Relaxed) => Ok(wal.append(parts)?),
            (None, _) => Ok(Position::default()),
        }
    }

    /// Has the log begin its next lap at `place`, which all meta pages name: see [`crate::checkpoint::begin_lap`].
    pub(crate) fn begin_lap(&self, place: Position) -> Result<()> {
        match &self.inner.wal {
            Some(wal) => Ok(wal.begin_lap(place)?),
            None => Ok(()),
        }
    }

    /// Applies the record that a dead holder appended whole, and cuts off what it left of another one. The pages of that need no
    /// attention, since nothing refers to them.
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
                    let (header, _) = RecordHeader::decode(part)?;
                    self.apply(&header, record.end)?;
                }
            }
        }
        for region in &*self.inner.regions {
            region.publish_ready(|| wal.durable());
        }
        Ok(())
    }

    fn apply(&self, header: &RecordHeader, log: Position) -> Result<()> {
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
        let head = Head {
            commit: header.commit,
            log,
            roots: header.roots,
        };
        region.apply(&head, Durability::Durable);
        Ok(())
    }
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
        let region = self.inner.first_region();
        if let Some(wal) = &self.inner.wal {
            region.log_applied.store(wal.end().0, Ordering::SeqCst);
        }
        region.appender.unlock();
    }
}
