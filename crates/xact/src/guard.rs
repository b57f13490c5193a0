//! The measures that keep a space safe, by name, so that the crash tests can prove that each of them is needed.
//!
//! Measures against what the simulated disk does not do, such as tearing a sector, are not among them and always taken.

/// One measure. In tests a space can be opened without it, and then the crash tests must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A durable commit is acknowledged when its record is synced.
    SyncCommit,
    /// A version goes into the file when its record is synced.
    SyncBeforeApply,
    /// A checkpoint syncs the data file before it writes the header.
    SyncBeforeHeader,
    /// A checkpoint syncs the header before the log may be used again.
    SyncHeader,
    /// A version that the next pass may supersede is written by this one.
    ApplyWholePass,
    /// A version is brought into the file together with what the one before it has changed, which may never have been
    /// there.
    CarryChanges,
    /// The file of a transaction too large for the log is synced before its record is written.
    SyncLarge,
    /// That file is removed when the space no longer needs it, and not before.
    KeepLarge,
    /// A new space is synced before it gets its name.
    SyncNewSpace,
    /// What is applied from a record goes into the file with its checksum.
    StoreSums,
    /// The checksums of a space that grows are synced before a header says where they are.
    SyncMovedSums,
    /// A header that says so is synced before the next step of growing.
    SyncGrownHeader,
    /// A transaction that begins looks whether somebody has gone further meanwhile. (The model tests prove this one and
    /// the next.)
    LookAgain,
    /// A frame that a running transaction may look at is not used again.
    KeepSeenFrames,
}

#[cfg(all(test, not(shuttle)))]
impl Guard {
    /// Those that the crash tests prove.
    pub(crate) const ALL: [Self; 12] = [
        Self::SyncCommit,
        Self::SyncBeforeApply,
        Self::SyncBeforeHeader,
        Self::SyncHeader,
        Self::ApplyWholePass,
        Self::CarryChanges,
        Self::SyncLarge,
        Self::KeepLarge,
        Self::SyncNewSpace,
        Self::StoreSums,
        Self::SyncMovedSums,
        Self::SyncGrownHeader,
    ];
}

sapwood_wal::guards!(Guard);
