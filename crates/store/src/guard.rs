//! The measures that keep the store safe, by name, so that the crash tests can prove that each of them is needed.

/// One measure. In tests an environment can be opened without it, and then the crash tests must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A checkpoint syncs the data file before it writes the meta page.
    SyncBeforeMeta,
    /// A checkpoint syncs the log up to its commit, which may be a relaxed one, before it writes the meta page.
    SyncLogBeforeMeta,
    /// It syncs the log up to the newest commit that was applied when it began, whose pointers are in its pages.
    SyncLogToApplied,
    /// Pointers in a leaf that a meta page may lead to are stored when the record that has them is durable.
    SyncLogBeforePointers,
    /// A transaction without log that stores pointers syncs the data file once more before the meta page that follows
    /// it.
    SyncPointersBeforeMeta,
    /// A recovery makes the log durable before it stores pointers in such a leaf.
    SyncLogBeforeReplayedPointers,
    /// A checkpoint syncs the meta page before the log may be used again.
    SyncMeta,
    /// A meta page must have the right checksum.
    MetaChecksum,
    /// Checkpoints write the two meta pages in turn.
    MetaInTurn,
    /// Room in the file is synced before pages in it are handed out.
    SyncGrowth,
    /// A commit is acknowledged when its record is durable.
    SyncLog,
    /// The log is kept as far back as the older meta page.
    KeepLogOfOlderMeta,
    /// The log is kept as far back as the meta pages of other stores.
    KeepLogOfOtherStores,
    /// The file is not cut within the pages that a meta page knows of, as a compaction would do otherwise.
    KeepPagesOfMetas,
    /// What the meta pages refer to is not used again.
    ProtectMetas,
    /// What the checkpoint under way refers to is not used again.
    ProtectTarget,
    /// What is not visible yet is not used again, though it has been freed.
    ProtectInvisible,
    /// What a snapshot sees is not used again.
    ProtectReaders,
    /// A transaction without log syncs the data file before its record is written.
    SyncBeforeRoots,
    /// A commit in the log behind others that are not is preceded by a checkpoint of these.
    HoldUnlogged,
    /// A transaction without log is preceded by a checkpoint, so that no replay writes over its pages.
    CheckpointBeforeRoots,
    /// A transaction without log is followed by a meta page, which protects its pages.
    MetaAfterRoots,
    /// Recovery that meets a transaction without log ends with a checkpoint.
    CheckpointRecoveredRoots,
    /// The log begins a lap early only when all meta pages say that it goes on there.
    MetasBeforeLap,
    /// A new store is synced before it gets its name.
    SyncNewStore,
}

#[cfg(test)]
impl Guard {
    /// All that one store needs; several need `KeepLogOfOtherStores` too, a full disk `MetasBeforeLap`, and values out
    /// of line what `out_of_line_crash_tests` and `pointer_crash_tests` say.
    pub(crate) const ALL: [Self; 19] = [
        Self::SyncBeforeMeta,
        Self::SyncLogBeforeMeta,
        Self::SyncMeta,
        Self::MetaChecksum,
        Self::MetaInTurn,
        Self::SyncGrowth,
        Self::SyncLog,
        Self::KeepLogOfOlderMeta,
        Self::KeepPagesOfMetas,
        Self::ProtectMetas,
        Self::ProtectTarget,
        Self::ProtectInvisible,
        Self::ProtectReaders,
        Self::SyncBeforeRoots,
        Self::HoldUnlogged,
        Self::CheckpointBeforeRoots,
        Self::MetaAfterRoots,
        Self::CheckpointRecoveredRoots,
        Self::SyncNewStore,
    ];
}

sapwood_wal::guards!(Guard);

/// The failpoint of a checkpoint: in tests, runs what [`at_failpoint`] was given, once, when the data file is synced
/// and the meta page not yet written. So what other threads would do meanwhile happens at the same moment every time.
pub(crate) fn failpoint() {
    #[cfg(test)]
    if let Some(action) = AT_FAILPOINT.take() {
        action();
    }
}

#[cfg(test)]
thread_local! {
    static AT_FAILPOINT: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

/// Has this thread's next [`failpoint`] run an action.
#[cfg(test)]
pub(crate) fn at_failpoint(action: impl FnOnce() + 'static) {
    AT_FAILPOINT.set(Some(Box::new(action)));
}
