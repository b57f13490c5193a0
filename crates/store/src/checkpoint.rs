//! Checkpoints: the data file is made to hold a commit by itself, so that the log before it can be used again.
//!
//! 1. Pin the visible commit N as the *target*: its pages are not used again from here on.
//! 2. Sync the log up to N, which may be a relaxed commit, and the data file. Commits go on meanwhile; copy on write keeps
//!    them off N's pages.
//! 3. Write the meta page for N over the older of the two, and sync it.
//! 4. Let the log before the *other* meta page be used again.
//!
//! A crash before 3 changes nothing. During 3, one meta page may be torn: the other one is whole, and the log reaches back
//! to it. After 3, recovery begins at N.

use sapwood_wal::lock::Taken;

use crate::env::Inner;
use crate::error::{Error, Result};
use crate::guard::{self, Guard};
use crate::head::Head;
use crate::meta::Meta;
use crate::page::{CommitNo, PAGE_BYTES, Page};
use crate::sync::Ordering;

/// Held by whoever writes meta pages.
pub(crate) struct CheckpointLock<'i> {
    inner: &'i Inner,
}

impl<'i> CheckpointLock<'i> {
    pub(crate) fn take(inner: &'i Inner) -> Result<Self> {
        let me = inner.membership.index();
        let taken = inner
            .region
            .checkpointer
            .lock(me, |process| inner.is_alive(process));
        Self { inner }.adopt(taken)
    }

    /// Gives nothing if somebody else is at it.
    fn try_take(inner: &'i Inner) -> Result<Option<Self>> {
        let me = inner.membership.index();
        let lock = &inner.region.checkpointer;
        match lock.try_lock(me, |process| inner.is_alive(process)) {
            Some(taken) => Self { inner }.adopt(taken).map(Some),
            None => Ok(None),
        }
    }

    /// Completes what a dead process left half done: whatever it wrote to the meta pages is made durable and taken for
    /// what is on disk.
    fn adopt(self, taken: Taken) -> Result<Self> {
        if taken == Taken::Clean {
            return Ok(self);
        }
        let file = &self.inner.data.file;
        file.sync_data().inspect_err(|_| self.inner.poison())?;
        for slot in 0..2 {
            let mut page = Page::zeroed();
            file.read_exact_at(page.bytes_mut(), (slot * PAGE_BYTES) as u64)?;
            if let Some(meta) = Meta::decode(&page, slot, true)? {
                self.note(slot, &meta.head);
            }
        }
        Ok(self)
    }

    /// Checkpoints the visible commit; does nothing if the newest meta page holds it already.
    pub(crate) fn run(&self) -> Result<CommitNo> {
        let head = self.pin()?;
        if self.newest() < head.commit {
            self.sync_log(&head)?;
            self.sync_data()?;
            guard::interlude();
            self.write_meta(&head)?;
        }
        Ok(head.commit)
    }

    /// Writes a meta page for a commit that is pinned and whose pages are synced, unless there is one.
    pub(crate) fn write_meta_if_newer(&self, head: &Head) -> Result<()> {
        if self.newest() < head.commit {
            self.write_meta(head)?;
        }
        Ok(())
    }

    /// Checkpoints so that the whole log before the visible commit can be used again: both meta pages get to hold it.
    pub(crate) fn run_twice(&self) -> Result<()> {
        let head = self.pin()?;
        if self.oldest() < head.commit {
            self.sync_log(&head)?;
            self.sync_data()?;
            self.write_meta_if_newer(&head)?;
            self.write_meta(&head)?;
        }
        Ok(())
    }

    /// Protects the visible commit. As with a reader's slot: whoever does not see the target has noted an earlier visible
    /// commit, which then is not the one we find when looking again.
    pub(crate) fn pin(&self) -> Result<Head> {
        let region = &self.inner.region;
        loop {
            let commit = region.visible();
            region.metas.target.swap(commit.0, Ordering::SeqCst);
            if region.visible() == commit
                && let Some(head) = region.head(commit)
            {
                return head;
            }
        }
    }

    /// Protects a commit that is not visible yet; for the holder of the writer lock, who alone could use its pages again.
    pub(crate) fn pin_applied(&self, commit: CommitNo) {
        self.inner
            .region
            .metas
            .target
            .store(commit.0, Ordering::SeqCst);
    }

    /// A relaxed commit may be visible without being durable. The log must not end before the meta page that says how it goes
    /// on: otherwise the other meta page would not lead to this commit.
    fn sync_log(&self, head: &Head) -> Result<()> {
        match &self.inner.wal {
            Some(wal) if self.inner.options.guards.has(Guard::SyncLogBeforeMeta) => {
                Ok(wal.sync_to(head.log.lsn)?)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn sync_data(&self) -> Result<()> {
        let inner = self.inner;
        inner.check_sound()?;
        if inner.options.guards.has(Guard::SyncBeforeMeta) {
            inner
                .data
                .file
                .sync_data()
                .inspect_err(|_| inner.poison())?;
        }
        Ok(())
    }

    fn newest(&self) -> CommitNo {
        CommitNo(self.commits().into_iter().max().unwrap_or_default())
    }

    fn oldest(&self) -> CommitNo {
        CommitNo(self.commits().into_iter().min().unwrap_or_default())
    }

    fn commits(&self) -> [u64; 2] {
        let commits = &self.inner.region.metas.commits;
        commits
            .each_ref()
            .map(|commit| commit.load(Ordering::SeqCst))
    }

    /// Writes a meta page in place of the older one. What it refers to is in the data file, synced.
    pub(crate) fn write_meta(&self, head: &Head) -> Result<()> {
        let inner = self.inner;
        let [first, second] = self.commits();
        let older = usize::from(second < first);
        let slot = if inner.options.guards.has(Guard::MetaInTurn) {
            older
        } else {
            1 - older
        };
        let meta = Meta {
            identity: inner.identity,
            head: *head,
        };
        let page = meta.encode(slot);
        let file = &inner.data.file;
        file.write_all_at(page.bytes(), (slot * PAGE_BYTES) as u64)?;
        if inner.options.guards.has(Guard::SyncMeta) {
            file.sync_data().inspect_err(|_| inner.poison())?;
        }
        self.note(slot, head);
        self.recycle_log();
        Ok(())
    }

    fn note(&self, slot: usize, head: &Head) {
        let metas = &self.inner.region.metas;
        metas.lsns[slot].store(head.log.lsn.0, Ordering::SeqCst);
        metas.commits[slot].store(head.commit.0, Ordering::SeqCst);
    }

    fn recycle_log(&self) {
        let Some(wal) = &self.inner.wal else {
            return;
        };
        let metas = &self.inner.region.metas;
        let lsns = metas.lsns.each_ref().map(|lsn| lsn.load(Ordering::SeqCst));
        // A meta page that is not valid needs no log.
        let needed = lsns
            .into_iter()
            .zip(self.commits())
            .filter_map(|(lsn, commit)| (commit != 0).then_some(lsn));
        let floor = if self.inner.options.guards.has(Guard::KeepLogOfOlderMeta) {
            needed.min()
        } else {
            needed.max()
        };
        if let Some(floor) = floor {
            wal.recycle_before(sapwood_wal::Lsn(floor));
        }
    }
}

impl Drop for CheckpointLock<'_> {
    fn drop(&mut self) {
        self.inner.region.checkpointer.unlock();
    }
}

/// Checkpoints the newest durable commit.
pub(crate) fn checkpoint(inner: &Inner) -> Result<CommitNo> {
    if inner.wal.is_none() {
        return Ok(inner.region.visible());
    }
    CheckpointLock::take(inner)?.run()
}

/// As [`checkpoint`], unless somebody else is at it.
pub(crate) fn checkpoint_if_nobody_does(inner: &Inner) -> Result<()> {
    if let Some(lock) = CheckpointLock::try_take(inner)? {
        lock.run()?;
    }
    Ok(())
}

/// Lets everything be used again that the visible commit does not need: both meta pages get to hold it.
pub(crate) fn release_pages(inner: &Inner) -> Result<()> {
    if inner.wal.is_none() {
        return Ok(());
    }
    CheckpointLock::take(inner)?.run_twice()
}

/// Makes whatever has been applied durable and visible, and the data file hold it.
pub(crate) fn settle(inner: &Inner) -> Result<()> {
    inner.sync()?;
    checkpoint(inner).map(drop)
}

/// Whether so much of the log is used that a checkpoint is due.
pub(crate) fn is_due(inner: &Inner) -> bool {
    let Some(wal) = &inner.wal else {
        return false;
    };
    let metas = &inner.region.metas;
    let newest = metas
        .lsns
        .iter()
        .map(|lsn| lsn.load(Ordering::Relaxed))
        .max();
    let used = wal.end().0.saturating_sub(newest.unwrap_or_default());
    used > wal.capacity() / 4
}

/// Waits for room in the log: every commit so far is made durable and checkpointed.
pub(crate) fn empty_log(inner: &Inner) -> Result<()> {
    let head = inner.region.applied_head()?;
    inner.make_visible(head.commit, head.log.lsn)?;
    let lock = CheckpointLock::take(inner)?;
    if inner.wal.is_none() {
        return Err(Error::Damaged("there is no log to be emptied".into()));
    }
    lock.run_twice()
}
