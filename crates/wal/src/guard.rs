//! The measures that keep the log safe, by name, so that the crash tests can prove that each of them is needed.

/// One measure. In tests a log can be made without it, and then the crash tests must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Acknowledged records are synced first.
    SyncRecords,
    /// A new segment is synced before it gets its name.
    SyncNewSegment,
    /// The name of a segment is synced before its first use.
    SyncNewName,
    /// What recovery found is synced before it counts as durable, and what it cut off before anything is appended.
    SyncRecovered,
    /// Recovery writes again what is not known to be durable.
    RewriteRecovered,
    /// Recovery erases what lies behind the end.
    EraseTail,
    /// The heir of a dead writer erases what that left unfinished.
    EraseHole,
    /// What the heir erased, and what it found, is synced before anything is appended.
    SyncInherited,
    /// A record that is not wholly written is erased again.
    EraseFailed,
    /// A record's header must have the right checksum.
    HeaderChecksum,
    /// A record's payload must have the right checksum.
    PayloadChecksum,
    /// A record must name its predecessor's checksum.
    Chain,
    /// A record must be of this log.
    LogIdentity,
    /// A record must be where it says.
    ExactLsn,
    /// A bad record that a later one proves durable is damage, not the end.
    DamageIsNoEnd,
    /// A record claims as durable what is durable, not what is merely written.
    HonestDurable,
    /// A segment's header must have the right checksum.
    SegmentChecksum,
    /// A failed sync is the last one.
    PoisonOnFailedSync,
    /// Space that is still needed is not written over.
    KeepLiveSpace,
    /// Nor is it where whole blocks are written.
    KeepLiveBlocks,
    /// What is in the buffer and not in the files is not written over.
    KeepUnwritten,
    /// The buffer holds what the block has whose rest is written next.
    PrimeBuffer,
    /// What is in the files' cache only is synced with what follows it in the buffer.
    SyncWritten,
    /// What dead processes have left in the buffer is written to the files.
    SalvageBuffer,
    /// The end of a sync wakes those who wait for it. (The model tests prove this one.)
    WakeFollowers,
}

#[cfg(all(test, not(shuttle)))]
impl Guard {
    /// Those that the crash tests prove.
    pub(crate) const ALL: [Self; 24] = [
        Self::SyncRecords,
        Self::SyncNewSegment,
        Self::SyncNewName,
        Self::SyncRecovered,
        Self::RewriteRecovered,
        Self::EraseTail,
        Self::EraseHole,
        Self::SyncInherited,
        Self::EraseFailed,
        Self::HeaderChecksum,
        Self::PayloadChecksum,
        Self::Chain,
        Self::LogIdentity,
        Self::ExactLsn,
        Self::DamageIsNoEnd,
        Self::HonestDurable,
        Self::SegmentChecksum,
        Self::PoisonOnFailedSync,
        Self::KeepLiveSpace,
        Self::KeepLiveBlocks,
        Self::KeepUnwritten,
        Self::PrimeBuffer,
        Self::SyncWritten,
        Self::SalvageBuffer,
    ];
}

/// Defines `Guards`, which says whether each measure of a type is taken: all of them are outside of the tests of the
/// crate that uses this, and all but one in those of its tests that say so. The type is that of the crate, a [`Copy`]
/// and [`PartialEq`] one.
#[macro_export]
macro_rules! guards {
    ($guard:ty) => {
        /// Which measures are taken: all of them, outside of tests.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Guards {
            #[cfg(test)]
            without: Option<$guard>,
        }

        impl Guards {
            /// All but one.
            #[cfg(test)]
            pub(crate) fn without(guard: $guard) -> Self {
                Self {
                    without: Some(guard),
                }
            }

            #[cfg(test)]
            pub(crate) fn has(self, guard: $guard) -> bool {
                self.without != Some(guard)
            }

            #[cfg(not(test))]
            pub(crate) fn has(self, _: $guard) -> bool {
                true
            }
        }
    };
}

guards!(Guard);
