//! How records get from the [`buffer`](crate::buffer) to the disk, and those that do not fit into it.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use crate::Lsn;
use crate::buffer::{Blocks, Buffer, PARTS, block_of, offset};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::log::Wal;
use crate::storage::BLOCK_BYTES;
use crate::sync::{AtomicU64, PoisonError};

impl Wal {
    /// Gives the log memory for records that are on their way to the disk ([`Wal::append_buffered`]): `words`, at least
    /// 8 KiB. All users of the log who write to it must have the same memory, which may hold anything when the log is
    /// started, before anybody appends to the log or waits for its records. `outlives` says that the memory survives
    /// the death of all of them, and that the one that opens the log next calls [`Wal::salvage`]. `me` and `is_alive`
    /// are what [`Lock`](crate::lock::Lock) wants to know of processes. Only the first call counts.
    pub fn share_buffer(
        &self,
        words: Arc<dyn AsRef<[AtomicU64]> + Send + Sync>,
        outlives: bool,
        me: u16,
        is_alive: impl Fn(u16) -> bool + Send + Sync + 'static,
    ) {
        let is_alive = Box::new(is_alive);
        let _: std::result::Result<(), Buffer> = self.buffer.set(Buffer {
            words,
            outlives,
            me,
            is_alive,
        });
    }

    /// The buffer, if a record of so many bytes at this place goes there.
    fn buffer_for(&self, lsn: Lsn, bytes: u64) -> Option<&Buffer> {
        let buffer = self.buffer.get()?;
        let fits = bytes <= buffer.bytes() / PARTS;
        (fits && self.ring.takes_blocks(lsn)).then_some(buffer)
    }

    /// Stores a record in the buffer, from `lsn` up to `end`; gives `false` if it has to be written. For the holder of
    /// the writer lock.
    pub(crate) fn put(&self, lsn: Lsn, end: Lsn, pieces: &[IoSlice<'_>]) -> Result<bool> {
        let Some(buffer) = self.buffer_for(lsn, end.0 - lsn.0) else {
            return Ok(false);
        };
        let shared = self.shared();
        let needed = end.0 - block_of(shared.written()).0;
        if needed > buffer.bytes() && self.guards.has(Guard::KeepUnwritten) {
            self.write_through()?;
        }
        if !shared.is_primed() {
            // What is written next begins with what the block has already.
            let block = block_of(lsn);
            let mut head = [0; BLOCK_BYTES];
            let head = &mut head[..offset(lsn.0 - block.0)];
            if self.guards.has(Guard::PrimeBuffer) {
                self.ring.read(block, head)?;
            }
            buffer.store(block, std::iter::once(&*head));
            shared.set_primed(true);
        }
        buffer.store(lsn, pieces.iter().map(|piece| &**piece));
        Ok(true)
    }

    /// Sees to it that a record which was put into the buffer survives the death of all processes, with everything
    /// before it. For the holder of the writer lock.
    pub(crate) fn keep_put(&self, lsn: Lsn, end: Lsn) -> Result<()> {
        let written = self.shared().written();
        if self
            .buffer
            .get()
            .is_some_and(|buffer| buffer.keeps(written, end))
        {
            return Ok(());
        }
        self.with_files(|| {
            self.write_buffered(end)
                .or_else(|error| self.erase_failed(lsn, error))
        })
    }

    /// Writes a record to the files, behind everything before it. For the holder of the writer lock.
    pub(crate) fn write(&self, lsn: Lsn, end: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.with_files(|| {
            self.write_buffered(lsn)?;
            self.ring
                .write(lsn, pieces)
                .or_else(|error| self.erase_failed(lsn, error))?;
            let shared = self.shared();
            shared.set_primed(false);
            shared.set_written(end);
            Ok(())
        })
    }

    /// Leaves nothing of a record that could not be written.
    fn erase_failed(&self, lsn: Lsn, error: Error) -> Result<()> {
        if self.guards.has(Guard::EraseFailed) {
            self.erase(lsn).inspect_err(|_| self.poison())?;
        }
        Err(error)
    }

    /// Whether so much in the buffer has not been handed to the system that somebody who has the time had better do
    /// that ([`Wal::write_through`]), before appends have to.
    pub fn is_write_due(&self) -> bool {
        let part = |buffer: &Buffer| buffer.bytes() / PARTS;
        let unwritten = || self.end().0.saturating_sub(self.shared().written().0);
        let buffer = self.buffer.get().filter(|buffer| buffer.outlives);
        buffer.is_some_and(|buffer| unwritten() > part(buffer))
    }

    /// Hands what is in the buffer to the system, so that it survives the death of all processes.
    ///
    /// # Errors
    /// [`Error::Io`]; it stays in the buffer then.
    pub fn write_through(&self) -> Result<()> {
        match self.buffer.get() {
            Some(_) => self.with_files(|| self.write_buffered(self.end())),
            None => Ok(()),
        }
    }

    /// Runs `work` while nobody else writes to the files.
    pub(crate) fn with_files<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.holding(&self.shared().writing, work)
    }

    /// Runs `work` with the lock held; who has given the log no memory to share is alone, or takes care of that.
    pub(crate) fn holding<T>(&self, lock: &Lock, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(buffer) = self.buffer.get() else {
            return work();
        };
        lock.lock(buffer.me, &buffer.is_alive);
        let result = work();
        lock.unlock();
        result
    }

    /// Whether the one that writes to the files is dead.
    pub(crate) fn has_writer_died(&self) -> bool {
        let owner = self.shared().writing.owner();
        let buffer = self.buffer.get();
        owner
            .zip(buffer)
            .is_some_and(|(owner, buffer)| !(buffer.is_alive)(owner))
    }

    /// Hands what is in the buffer before `to` to the system, for the holder of `writing`: in whole blocks, since of
    /// others the system would read the rest first.
    pub(crate) fn write_buffered(&self, to: Lsn) -> Result<()> {
        let shared = self.shared();
        let from = shared.written();
        if let Some(buffer) = self.buffer.get()
            && from < to
        {
            let mut blocks = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
            // What could not be written is not what the log goes on with.
            blocks.holds = Lsn(0)..Lsn(0);
            let (block, blocks) = buffer.blocks_of(from, to, &mut blocks);
            self.ring.write(block, &[IoSlice::new(blocks)])?;
            shared.set_written(to);
        }
        Ok(())
    }

    /// Makes everything durable that is there once those who sync together have gathered, and says so.
    /// A failure is the end of the log.
    pub(crate) fn make_durable(&self) -> Result<()> {
        let mut blocks = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = self.shared();
        if self.is_poisoned() {
            return Err(Error::Poisoned);
        }
        let without_buffer = self.buffer.get().is_none().then(|| self.gather());
        if without_buffer.is_some_and(|end| shared.written() < end) {
            return Err(Error::NotBuffered);
        }
        let durable = shared.durable();
        let written = self.with_files(|| {
            // With the lock, so that it is noticed soon if this process is killed meanwhile.
            let end = without_buffer.unwrap_or_else(|| self.gather());
            let started = Instant::now();
            let is_on_disk = self.write_durably(end, &mut blocks)?;
            if is_on_disk {
                shared.made_durable(end);
            }
            Ok((is_on_disk, end, started))
        });
        let synced = written.and_then(|(is_on_disk, end, started)| {
            if !is_on_disk {
                self.sync_files(durable, end)?;
                shared.made_durable(end);
            }
            shared.group.synced(started.elapsed());
            Ok(())
        });
        synced.inspect_err(|_| self.poison_after_sync())
    }

    /// Has everything before `end` written, for the holder of `writing`. Gives whether it is on the disk, too, and not
    /// only with the system.
    fn write_durably(&self, end: Lsn, blocks: &mut Blocks) -> Result<bool> {
        let shared = self.shared();
        let written = shared.written();
        if written >= end {
            return Ok(false);
        }
        let is_rest_on_disk = written == shared.durable() || !self.guards.has(Guard::SyncWritten);
        if self.guards.has(Guard::SyncRecords)
            && is_rest_on_disk
            && self.write_blocks(written, end, blocks)?
        {
            shared.set_written(end);
            return Ok(true);
        }
        self.write_buffered(end)?;
        Ok(false)
    }

    /// Writes the blocks of `from..to` from the buffer, durably. Gives `false` if they cannot be written so.
    fn write_blocks(&self, from: Lsn, to: Lsn, blocks: &mut Blocks) -> Result<bool> {
        let Some(buffer) = self.buffer.get() else {
            return Ok(false);
        };
        let (block, blocks) = buffer.blocks_of(from, to, blocks);
        self.ring.write_blocks(block, blocks)
    }
}
