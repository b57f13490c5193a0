//! Free pages that the roots of a commit name themselves, so that a small commit leaves the tree of the free list as it
//! is.
//!
//! ```text
//!  ready      v pages, v first, for each range; the first to be used first
//!             0
//!  pending    v pages, v first, v commits since it was freed, v commits between born and freed, for each extent; the oldest first
//!             zeroes up to the end
//! ```

#![deny(clippy::indexing_slicing)]

use super::{FreeExtent, PageRange, impossible, read_range};
use crate::error::Result;
use crate::ids::CommitNo;
use crate::varint;

/// The free pages in the roots of a commit, encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recent([u8; Recent::BYTES]);

impl Recent {
    /// Each log record has what is used of it.
    pub(crate) const BYTES: usize = 256;

    pub(crate) const EMPTY: Self = Self([0; Self::BYTES]);

    /// `None` if it is too much. The extents were freed by this commit or before.
    pub(crate) fn encode(
        ready: impl Iterator<Item = PageRange>,
        pending: impl Iterator<Item = FreeExtent>,
        commit: CommitNo,
    ) -> Option<Self> {
        let mut bytes = [0; Self::BYTES];
        let mut room = &mut bytes[..];
        for range in ready {
            put(&range_numbers(range), &mut room)?;
        }
        put(&[0], &mut room)?;
        for extent in pending {
            put(&extent_numbers(&extent, commit), &mut room)?;
        }
        Some(Self(bytes))
    }

    /// What the roots of `commit`, in which there are `limit` pages, say: ready ranges, and pending extents.
    pub(crate) fn decode(
        &self,
        commit: CommitNo,
        limit: u64,
    ) -> Result<(Vec<PageRange>, Vec<FreeExtent>)> {
        self.read(commit, limit).ok_or_else(impossible)
    }

    fn read(&self, commit: CommitNo, limit: u64) -> Option<(Vec<PageRange>, Vec<FreeExtent>)> {
        let mut bytes = &self.0[..];
        let mut next = |is_pending: bool| {
            let pages = match bytes {
                [] => 0,
                _ => varint::take(&mut bytes)?,
            };
            if pages == 0 {
                return Some(None);
            }
            let range = read_range(varint::take(&mut bytes)?, pages, limit)?;
            if !is_pending {
                return Some(Some((range, CommitNo(0), CommitNo(0))));
            }
            let freed = commit.0.checked_sub(varint::take(&mut bytes)?)?;
            let born = freed.checked_sub(varint::take(&mut bytes)?)?;
            Some(Some((range, CommitNo(born), CommitNo(freed))))
        };
        let (mut ready, mut pending) = (Vec::new(), Vec::new());
        while let Some((range, ..)) = next(false)? {
            ready.push(range);
        }
        while let Some((range, born, freed)) = next(true)? {
            pending.push(FreeExtent {
                freed,
                born,
                first: range.first,
                pages: range.pages,
            });
        }
        bytes
            .iter()
            .all(|&byte| byte == 0)
            .then_some((ready, pending))
    }

    /// All of it that is not zeroes up to the end.
    pub(crate) fn used(&self) -> &[u8] {
        let words = self.0.as_chunks::<8>().0;
        let words = words.iter().rposition(|word| *word != [0; 8]);
        let end = words.map_or(0, |last| (last + 1) * 8);
        let words = self.0.get(..end).unwrap_or_default();
        let used = words.iter().rposition(|&byte| byte != 0);
        let used = used.map_or(0, |last| last + 1);
        self.0.get(..used).unwrap_or_default()
    }

    /// With zeroes behind; `None` if it is too long.
    pub(crate) fn from_used(used: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::BYTES];
        bytes.get_mut(..used.len())?.copy_from_slice(used);
        Some(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self(*bytes)
    }
}

/// The free pages in the roots of the last commit as the process that made it still has them: the next transaction need
/// not decode them.
pub(crate) struct Named {
    pub(crate) recent: Recent,
    pub(crate) commit: CommitNo,
    pub(crate) ready: Vec<PageRange>,
    pub(crate) pending: Vec<FreeExtent>,
    /// For the next one, to save it an allocation.
    pub(crate) spare: Vec<PageRange>,
}

impl Named {
    /// What these are in the roots of `commit`, in which there are `limit` pages; `kept` is used if it is about the
    /// same.
    pub(crate) fn of(
        recent: &Recent,
        commit: CommitNo,
        limit: u64,
        kept: Option<Self>,
    ) -> Result<Self> {
        if let Some(kept) = kept.filter(|kept| kept.commit == commit && kept.recent == *recent) {
            debug_assert_eq!(
                recent.read(commit, limit),
                Some((kept.ready.clone(), kept.pending.clone()))
            );
            return Ok(kept);
        }
        let (ready, pending) = recent.decode(commit, limit)?;
        Ok(Self {
            recent: *recent,
            commit,
            ready,
            pending,
            spare: Vec::new(),
        })
    }
}

fn range_numbers(range: PageRange) -> [u64; 2] {
    [u64::from(range.pages), range.first.0]
}

fn extent_numbers(extent: &FreeExtent, commit: CommitNo) -> [u64; 4] {
    let FreeExtent {
        freed,
        born,
        first,
        pages,
    } = *extent;
    [
        u64::from(pages),
        first.0,
        commit.0 - freed.0,
        freed.0 - born.0,
    ]
}

/// Stores numbers at the front of what room is left; `None` if that is too little.
#[inline]
fn put(numbers: &[u64], room: &mut &mut [u8]) -> Option<()> {
    let mut left = std::mem::take(room);
    for &number in numbers {
        let mut number = number;
        loop {
            let (byte, rest) = left.split_first_mut()?;
            left = rest;
            if number < 0x80 {
                *byte = number as u8;
                break;
            }
            *byte = number as u8 | 0x80;
            number >>= 7;
        }
    }
    *room = left;
    Some(())
}

/// How many bytes of it a range takes.
pub(crate) fn range_bytes(range: PageRange) -> usize {
    range_numbers(range).into_iter().map(varint::bytes).sum()
}

/// How many bytes of it an extent takes that this commit or an earlier one has freed.
pub(crate) fn extent_bytes(extent: &FreeExtent, commit: CommitNo) -> usize {
    let numbers = extent_numbers(extent, commit);
    numbers.into_iter().map(varint::bytes).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::PageNo;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_fits_is_read_back(
            ready in prop::collection::vec((2..1_u64 << 47, 1..5000_u32), 0..30),
            pending in prop::collection::vec((2..1_u64 << 40, 1..5000_u32, 0..100_u64, 0..500_u64), 0..30),
        ) {
            let commit = CommitNo(1000);
            let ready: Vec<_> = ready
                .into_iter()
                .map(|(first, pages)| PageRange { first: PageNo(first), pages })
                .collect();
            let pending: Vec<_> = pending
                .into_iter()
                .map(|(first, pages, ago, lived)| FreeExtent {
                    freed: CommitNo(1000 - ago),
                    born: CommitNo(1000 - ago - lived),
                    first: PageNo(first),
                    pages,
                })
                .collect();
            let ranges = ready.iter().map(|&range| range_bytes(range));
            let extents = pending.iter().map(|extent| extent_bytes(extent, commit));
            let bytes = 1 + ranges.chain(extents).sum::<usize>();
            let recent = Recent::encode(ready.iter().copied(), pending.iter().copied(), commit);
            prop_assert_eq!(recent.is_some(), bytes <= Recent::BYTES);
            if let Some(recent) = recent {
                prop_assert_eq!(Recent::from_used(recent.used()), Some(recent));
                let found = recent.decode(commit, 1 << 48).unwrap();
                prop_assert_eq!(&found, &(ready.clone(), pending.clone()));
                let end = ready.iter().map(|range| range.first.0 + u64::from(range.pages)).max();
                if let Some(end) = end {
                    prop_assert!(recent.decode(commit, end - 1).is_err());
                }
            }
        }

        #[test]
        fn any_bytes_are_extents_or_refused(used in prop::collection::vec(any::<u8>(), 0..=Recent::BYTES)) {
            if let Ok((ready, pending)) = Recent::from_used(&used).unwrap().decode(CommitNo(9), 1 << 20) {
                prop_assert!(ready.iter().all(|range| range.first.0 + u64::from(range.pages) <= 1 << 20));
                prop_assert!(pending.iter().all(|extent| extent.born <= extent.freed && extent.freed.0 <= 9));
            }
        }
    }
}
