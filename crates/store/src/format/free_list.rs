//! The free list: a tree of the pages that nobody refers to any more, and the rule by which they may be used again.
//!
//! ```text
//!  zone       key  1  0                     value    a bit for each of ZONE_PAGES pages, the lowest first; set: free
//!                  8  number, big-endian
//!  pending    key  1  1                     value    extents, ascending: v gap to the one before, v pages,
//!                  8  blocker, big-endian            v commits from its freed to the key's,
//!                  8  freed, big-endian              v commits between born and freed
//!                  4  serial, big-endian
//!  ready      key  1  2                     value    extents, the last to be used first: v first page, v pages; zeroes
//! ```
//!
//! **Reuse rule.** An extent that was live in the commits [born, freed) may be used again only if
//!
//! - `freed` is visible: otherwise commits that can still become visible refer to it;
//! - no reader slot, neither meta page on disk and no checkpoint target lies in [born, freed).
//!
//! The test is made when an extent is taken, so that one long reader keeps only what it can see, and not everything
//! freed after it began. What has passed it once is free for good, since later readers and checkpoints pin later
//! commits; zones and ready extents have passed.
//!
//! *Pending* records hold what commits have freed, many extents each, under their *blocker*: the newest commit that
//! forbids reuse, or [`UNBLOCKED`], the last of all. Each extent keeps the commit that freed it; the key has the newest
//! of these. A later commit that wants pages looks at several records at once, and files what the rule still forbids
//! anew. As long as a blocker is there, a search passes over all that it blocks with a single step.
//!
//! *Ready* extents are what the next transaction begins with. When there are too many, they go to the *zones*, where
//! neighbours merge whatever commit freed them.
//!
//! Of both, a few are in the roots themselves (see [`recent`]), so that a small commit does not change this tree at
//! all: what it frees and nobody else can see any more is what the next one uses first, and is in the caches, dirty,
//! and mapped for writing.

pub(crate) mod recent;
pub(crate) mod zone;

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::roots::FIRST_PAGE;
use crate::ids::{CommitNo, PageNo};
use crate::varint;

use zone::Zone;

const ZONE: u8 = 0;
const PENDING: u8 = 1;
const READY: u8 = 2;

/// The key of the ready extents.
pub(crate) const READY_KEY: [u8; 1] = [READY];

/// What a pending record is filed under that nothing but a commit's being invisible blocks.
pub(crate) const UNBLOCKED: CommitNo = CommitNo(u64::MAX);

/// No pending record is longer, in bytes of its value.
const PENDING_BYTES_MAX: usize = 1000;

/// An extent that a commit has freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreeExtent {
    pub(crate) freed: CommitNo,
    pub(crate) born: CommitNo,
    pub(crate) first: PageNo,
    pub(crate) pages: u32,
}

impl FreeExtent {
    pub(crate) fn range(&self) -> Range<u64> {
        self.first.0..self.first.0 + u64::from(self.pages)
    }

    pub(crate) fn page_range(&self) -> PageRange {
        PageRange {
            first: self.first,
            pages: self.pages,
        }
    }

    pub(crate) fn pages(&self) -> FreePages {
        FreePages {
            freed: Some(self.freed),
            born: Some(self.born),
            first: self.first,
            pages: self.pages,
        }
    }
}

/// Consecutive pages that are free for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageRange {
    pub(crate) first: PageNo,
    pub(crate) pages: u32,
}

impl PageRange {
    pub(crate) fn pages(&self) -> FreePages {
        FreePages {
            freed: None,
            born: None,
            first: self.first,
            pages: self.pages,
        }
    }
}

/// Consecutive pages in the free list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreePages {
    /// The commit that freed them; none if they may be used again whatever that was.
    pub freed: Option<CommitNo>,
    /// The commit that wrote them, as far as `freed` is known: a reader of a commit from this one up to `freed` still
    /// sees them.
    pub born: Option<CommitNo>,
    /// The first of them.
    pub first: PageNo,
    /// Their number.
    pub pages: u32,
}

/// The key of a pending record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PendingKey {
    pub(crate) blocker: CommitNo,
    /// The newest commit that freed any of the extents.
    pub(crate) freed: CommitNo,
    /// Tells the records of one such commit apart.
    pub(crate) serial: u32,
}

/// The length of an encoded [`PendingKey`].
const PENDING_KEY_BYTES: usize = 21;

impl PendingKey {
    /// The first of the records with this blocker.
    pub(crate) fn first_of(blocker: CommitNo) -> Self {
        Self {
            blocker,
            freed: CommitNo(0),
            serial: 0,
        }
    }

    /// The next key in order.
    pub(crate) fn next(self) -> Self {
        match self.serial.checked_add(1) {
            Some(serial) => Self { serial, ..self },
            None => Self {
                freed: CommitNo(self.freed.0 + 1),
                serial: 0,
                ..self
            },
        }
    }

    pub(crate) fn encode(self) -> [u8; PENDING_KEY_BYTES] {
        let mut key = [PENDING; PENDING_KEY_BYTES];
        let (_, fields) = key.split_at_mut(1);
        let (blocker, fields) = fields.split_at_mut(8);
        let (freed, serial) = fields.split_at_mut(8);
        blocker.copy_from_slice(&self.blocker.0.to_be_bytes());
        freed.copy_from_slice(&self.freed.0.to_be_bytes());
        serial.copy_from_slice(&self.serial.to_be_bytes());
        key
    }

    /// Reads the key of a record; `None` if it is one of another form.
    pub(crate) fn of(key: &[u8]) -> Result<Option<Self>> {
        match key.split_first() {
            Some((&PENDING, fields)) => Self::decode(fields).ok_or_else(impossible).map(Some),
            _ => Ok(None),
        }
    }

    fn decode(fields: &[u8]) -> Option<Self> {
        let (blocker, fields) = fields.split_first_chunk::<8>()?;
        let (freed, serial) = fields.split_first_chunk::<8>()?;
        Some(Self {
            blocker: CommitNo(u64::from_be_bytes(*blocker)),
            freed: CommitNo(u64::from_be_bytes(*freed)),
            serial: u32::from_be_bytes(serial.try_into().ok()?),
        })
    }
}

/// A record of the free list.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a record is read, looked at and dropped"
)]
pub(crate) enum FreeRecord {
    Zone(u64, Zone),
    Pending(PendingKey, Vec<FreeExtent>),
    Ready(Vec<PageRange>),
}

impl FreeRecord {
    /// Reads a record; all it speaks of lies within the first `limit` pages of the store.
    pub(crate) fn decode(key: &[u8], value: &[u8], limit: u64) -> Result<Self> {
        Self::read(key, value, limit).ok_or_else(impossible)
    }

    fn read(key: &[u8], value: &[u8], limit: u64) -> Option<Self> {
        let (&form, fields) = key.split_first()?;
        match form {
            ZONE => {
                let number = u64::from_be_bytes(fields.try_into().ok()?);
                Some(Self::Zone(number, Zone::decode(number, value, limit)?))
            }
            PENDING => {
                let key = PendingKey::decode(fields)?;
                Some(Self::Pending(key, read_pending(key.freed, value, limit)?))
            }
            READY if fields.is_empty() => Some(Self::Ready(read_ready(value, limit)?)),
            _ => None,
        }
    }

    pub(crate) fn pages(&self) -> Vec<FreePages> {
        match self {
            Self::Pending(_, extents) => extents.iter().map(FreeExtent::pages).collect(),
            Self::Zone(..) | Self::Ready(_) => self.ranges().iter().map(PageRange::pages).collect(),
        }
    }

    /// All pages that the record holds.
    pub(crate) fn ranges(&self) -> Vec<PageRange> {
        match self {
            Self::Zone(number, zone) => zone.ranges(*number).collect(),
            Self::Pending(_, extents) => extents.iter().map(FreeExtent::page_range).collect(),
            Self::Ready(ranges) => ranges.clone(),
        }
    }
}

#[cold]
pub(crate) fn impossible() -> Error {
    Error::Damaged("the free list has an impossible record".into())
}

/// The key of a zone.
pub(crate) fn zone_key(number: u64) -> [u8; 9] {
    let mut key = [ZONE; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

fn read_range(first: u64, pages: u64, limit: u64) -> Option<PageRange> {
    let pages = u32::try_from(pages).ok().filter(|&pages| pages > 0)?;
    let end = first.checked_add(u64::from(pages))?;
    (first >= FIRST_PAGE && end <= limit).then_some(PageRange {
        first: PageNo(first),
        pages,
    })
}

/// The extents of a pending record, of which `newest` has freed the last.
pub(crate) fn read_pending(
    newest: CommitNo,
    mut value: &[u8],
    limit: u64,
) -> Option<Vec<FreeExtent>> {
    let mut extents = Vec::new();
    let mut end = 0_u64;
    while !value.is_empty() {
        let first = end.checked_add(varint::take(&mut value)?)?;
        let PageRange { first, pages } = read_range(first, varint::take(&mut value)?, limit)?;
        let freed = newest.0.checked_sub(varint::take(&mut value)?)?;
        let born = freed.checked_sub(varint::take(&mut value)?)?;
        end = first.0 + u64::from(pages);
        extents.push(FreeExtent {
            freed: CommitNo(freed),
            born: CommitNo(born),
            first,
            pages,
        });
    }
    Some(extents)
}

pub(crate) fn read_ready(mut value: &[u8], limit: u64) -> Option<Vec<PageRange>> {
    let mut ranges = Vec::new();
    while value.first().is_some_and(|&byte| byte != 0) {
        let first = varint::take(&mut value)?;
        ranges.push(read_range(first, varint::take(&mut value)?, limit)?);
    }
    value.iter().all(|&byte| byte == 0).then_some(ranges)
}

/// The value of the ready extents. Its length is a multiple of some bytes, so that mostly it changes in place.
pub(crate) fn encode_ready(ranges: impl Iterator<Item = PageRange>) -> Vec<u8> {
    const STEP_BYTES: usize = 64;
    let mut value = Vec::with_capacity(8 * STEP_BYTES);
    for range in ranges {
        varint::put(range.first.0, &mut value);
        varint::put(u64::from(range.pages), &mut value);
    }
    value.resize(value.len().next_multiple_of(STEP_BYTES), 0);
    value
}

/// The values of pending records that together hold these extents, which ascend and were freed by `newest` or before.
pub(crate) fn encode_pending(extents: &[FreeExtent], newest: CommitNo) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    let mut value = Vec::new();
    let mut end = 0;
    for extent in extents {
        varint::put(extent.first.0 - end, &mut value);
        varint::put(u64::from(extent.pages), &mut value);
        varint::put(newest.0 - extent.freed.0, &mut value);
        varint::put(extent.freed.0 - extent.born.0, &mut value);
        end = extent.range().end;
        // One more may take up to 35 bytes.
        if value.len() + 35 > PENDING_BYTES_MAX {
            values.push(std::mem::take(&mut value));
            end = 0;
        }
    }
    if !value.is_empty() {
        values.push(value);
    }
    values
}

/// Sorts extents, and joins neighbours that one commit freed and that may be used again at the same time:
/// `are_told_apart` says of the commits that wrote two of them whether somebody sees one and not the other. Joined, the
/// younger would be kept as long as the older.
pub(crate) fn join_neighbours(
    extents: &mut Vec<FreeExtent>,
    are_told_apart: impl Fn(CommitNo, CommitNo) -> bool,
) {
    extents.sort_unstable_by_key(|extent| extent.first);
    extents.dedup_by(|next, extent| {
        let is_next = extent.range().end == next.first.0 && extent.freed == next.freed;
        let joined = extent.pages.checked_add(next.pages);
        match joined {
            Some(pages) if is_next && !are_told_apart(extent.born, next.born) => {
                extent.pages = pages;
                extent.born = extent.born.min(next.born);
                true
            }
            _ => false,
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(first: u64, pages: u32, born: u64, freed: u64) -> FreeExtent {
        FreeExtent {
            freed: CommitNo(freed),
            born: CommitNo(born),
            first: PageNo(first),
            pages,
        }
    }

    #[test]
    fn neighbours_are_joined() {
        let mut extents = vec![
            extent(12, 1, 8, 9),
            extent(10, 2, 5, 9),
            extent(20, 1, 1, 9),
            extent(13, 4, 7, 9),
            extent(21, 1, 1, 8),
        ];
        let mut apart = extents.clone();
        join_neighbours(&mut extents, |_, _| false);
        let others = [extent(20, 1, 1, 9), extent(21, 1, 1, 8)];
        assert_eq!(extents, [&[extent(10, 7, 5, 9)], &others[..]].concat());
        // A snapshot of commit 6 sees the first two pages only.
        join_neighbours(&mut apart, |one, next| {
            one.min(next) <= CommitNo(6) && one.max(next) > CommitNo(6)
        });
        let halves = [extent(10, 2, 5, 9), extent(12, 5, 7, 9)];
        assert_eq!(apart, [&halves[..], &others].concat());
    }

    #[test]
    fn records_outside_of_the_store_are_refused() {
        let key = PendingKey {
            blocker: CommitNo(3),
            freed: CommitNo(300),
            serial: 7,
        };
        let [value] = &encode_pending(&[extent(70_000, 3, 7, 298)], CommitNo(300))[..] else {
            panic!("one record");
        };
        let decode = |key: &[u8], value: &[u8], limit| FreeRecord::decode(key, value, limit);
        assert!(decode(&key.encode(), value, 70_003).is_ok());
        assert!(decode(&key.encode(), value, 70_002).is_err());
        assert!(decode(&key.encode()[1..], value, 70_003).is_err());
        assert!(decode(&key.encode(), &value[..value.len() - 1], 70_003).is_err());
        assert!(decode(&[], value, 70_003).is_err());
        let ready = encode_ready(
            [PageRange {
                first: PageNo(2),
                pages: 4,
            }]
            .into_iter(),
        );
        assert!(decode(&READY_KEY, &ready, 6).is_ok());
        assert!(decode(&READY_KEY, &ready, 5).is_err());
        assert!(decode(&[READY, 0], &ready, 6).is_err());
    }

    proptest! {
        #[test]
        fn pending_records_are_read_back(
            gaps in prop::collection::vec(
                (1_u64..1 << 30, 1_u32..1000, 0_u64..1 << 40, 0_u64..1 << 40),
                0..400,
            ),
        ) {
            let newest = CommitNo(1 << 41);
            let mut end = FIRST_PAGE;
            let extents: Vec<_> = gaps
                .into_iter()
                .map(|(gap, pages, ago, age)| {
                    let freed = newest.0 - ago;
                    let extent = extent(end + gap, pages, freed - age, freed);
                    end = extent.range().end;
                    extent
                })
                .collect();
            let mut found = Vec::new();
            for (value, serial) in encode_pending(&extents, newest).iter().zip(0..) {
                prop_assert!(value.len() <= PENDING_BYTES_MAX);
                let key = PendingKey { blocker: CommitNo(5), freed: newest, serial };
                match FreeRecord::decode(&key.encode(), value, end)? {
                    FreeRecord::Pending(read, extents) => {
                        prop_assert_eq!(read, key);
                        found.extend(extents);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(found, extents);
        }

        #[test]
        fn any_bytes_are_a_record_or_refused(
            key in prop::collection::vec(any::<u8>(), 0..24),
            form in 0_u8..4,
            value in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            for key in [key.clone(), [&[form], &key[..]].concat()] {
                if let Ok(record) = FreeRecord::decode(&key, &value, 5000) {
                    for range in record.ranges() {
                        prop_assert!(range.first.0 >= FIRST_PAGE);
                        prop_assert!(range.first.0 + u64::from(range.pages) <= 5000);
                    }
                }
            }
        }
    }
}
