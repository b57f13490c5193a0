//! What a commit writes to the log: of each changed page the granules that changed. All numbers are little-endian.
//!
//! | offset | size | record of pages |
//! | --- | --- | --- |
//! | 0 | 4 | `XPG2` |
//! | 4 | 4 | number of pages |
//! | 8 | | the pages, one behind the other |
//!
//! | offset | size | page |
//! | --- | --- | --- |
//! | 0 | 8 | number |
//! | 8 | 8 | a bit for each granule of 64 bytes that changed, the first granule's is the lowest |
//! | 16 | 4 | the checksum of the page as it is now, 0 in a space without checksums |
//! | 20 | 64 each | what these granules hold now |
//!
//! | offset | size | record of a transaction too large for the log, whose pages are in a file of their own |
//! | --- | --- | --- |
//! | 0 | 4 | `XLG1` |
//! | 4 | 4 | CRC-32 of the file |
//! | 8 | 8 | length of the file, which holds one record of pages |
//!
//! A record says nothing of what the granules held before: to apply it twice, or to a page that already has later
//! changes which are applied again after it, does no harm. Order and integrity are the log's business.

#![deny(clippy::indexing_slicing)]

use std::io;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::page::{PAGE_BYTES, PageBytes};
use crate::region::versions::NewVersion;

/// The unit of a change in the log, in bytes.
pub(crate) const GRANULE_BYTES: usize = 64;
const _: () = assert!(PAGE_BYTES / GRANULE_BYTES == u64::BITS as usize);
const PAGES_MAGIC: [u8; 4] = *b"XPG2";
const LARGE_MAGIC: [u8; 4] = *b"XLG1";
const HEADER_BYTES: usize = 8;

/// A record of pages under construction: its bytes, as long as it is one for the log.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    pages: u32,
    length: u64,
    longest: u64,
}

/// What a builder keeps of its memory.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl Builder {
    /// Begins anew. Of a record that gets longer than `longest` only the length is found out.
    pub(crate) fn clear(&mut self, longest: u64) {
        self.longest = longest;
        self.length = HEADER_BYTES as u64;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.bytes.extend_from_slice(&PAGES_MAGIC);
        self.bytes.extend_from_slice(&[0; 4]);
        self.pages = 0;
    }

    /// Adds what distinguishes `after` from `before`; gives the mask of these granules, if there are any, and the
    /// checksum.
    pub(crate) fn push(
        &mut self,
        page: u64,
        before: &PageBytes,
        after: &PageBytes,
        sum: impl FnOnce(&PageBytes) -> u32,
    ) -> Option<(u64, u32)> {
        let mask = changed_granules(before, after);
        if mask == 0 {
            return None;
        }
        let sum = sum(after);
        self.pages += 1;
        self.length += page_bytes(mask) as u64;
        if self.length <= self.longest {
            encode_page(&mut self.bytes, page, mask, sum, after);
        } else {
            self.bytes = Vec::new();
        }
        Some((mask, sum))
    }

    /// The length of the record in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The record, if it is not too long.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let pages = self.pages.to_le_bytes();
        if let Some(place) = self.bytes.get_mut(4..HEADER_BYTES) {
            place.copy_from_slice(&pages);
        }
        &self.bytes
    }
}

/// What a page takes up in a record.
fn page_bytes(mask: u64) -> usize {
    20 + mask.count_ones() as usize * GRANULE_BYTES
}

fn encode_page(bytes: &mut Vec<u8>, page: u64, mask: u64, sum: u32, after: &PageBytes) {
    bytes.extend_from_slice(&page.to_le_bytes());
    bytes.extend_from_slice(&mask.to_le_bytes());
    bytes.extend_from_slice(&sum.to_le_bytes());
    for run in runs(mask) {
        bytes.extend_from_slice(after.get(run).unwrap_or_default());
    }
}

/// So much of a record that is written bit by bit is in memory at a time.
const PART_BYTES: usize = 1 << 20;

/// Writes the record of so many changes in parts.
pub(crate) fn write_parts(
    changes: &[NewVersion<'_>],
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let pages = u32::try_from(changes.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut part = Vec::with_capacity(PART_BYTES);
    part.extend_from_slice(&PAGES_MAGIC);
    part.extend_from_slice(&pages.to_le_bytes());
    for change in changes {
        if part.len() + page_bytes(change.mask) > PART_BYTES {
            write(&part)?;
            part.clear();
        }
        encode_page(
            &mut part,
            change.page,
            change.mask,
            change.sum,
            change.bytes,
        );
    }
    write(&part)
}

fn changed_granules(before: &PageBytes, after: &PageBytes) -> u64 {
    let (before, _) = before.as_chunks::<GRANULE_BYTES>();
    let (after, _) = after.as_chunks::<GRANULE_BYTES>();
    let pairs = before.iter().zip(after);
    pairs.enumerate().fold(0, |mask, (granule, (old, new))| {
        mask | u64::from(old != new) << granule
    })
}

/// Where in a page the granules of a mask are, those that lie side by side as one range.
pub(crate) fn runs(mask: u64) -> impl Iterator<Item = Range<usize>> {
    let (mut left, mut at) = (mask, 0);
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let start = at + left.trailing_zeros();
        left >>= left.trailing_zeros();
        let count = left.trailing_ones();
        left = left.checked_shr(count).unwrap_or(0);
        at = start + count;
        Some(start as usize * GRANULE_BYTES..at as usize * GRANULE_BYTES)
    })
}

/// A record read back.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// What changed in which pages.
    Pages(Pages<'a>),
    /// The changes stand in a file.
    Large {
        /// The CRC-32 of the file.
        checksum: u32,
        /// Its length in bytes.
        bytes: u64,
    },
}

impl<'a> Record<'a> {
    /// Looks at a record's header; its pages are checked one by one.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut_short)?;
        let (word, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
        let word = u32::from_le_bytes(*word);
        match *magic {
            PAGES_MAGIC => Ok(Self::Pages(Pages { left: word, rest })),
            LARGE_MAGIC => {
                let length = rest.split_first_chunk().ok_or_else(cut_short)?.0;
                Ok(Self::Large {
                    checksum: word,
                    bytes: u64::from_le_bytes(*length),
                })
            }
            _ => Err(damaged("it has an unknown kind")),
        }
    }

    /// The record of a transaction whose pages stand in a file.
    pub(crate) fn encode_large(checksum: u32, bytes: u64) -> [u8; 16] {
        let mut record = [0; 16];
        let fields = LARGE_MAGIC
            .into_iter()
            .chain(checksum.to_le_bytes())
            .chain(bytes.to_le_bytes());
        for (place, byte) in record.iter_mut().zip(fields) {
            *place = byte;
        }
        record
    }
}

/// The pages of a record, in order.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    left: u32,
    rest: &'a [u8],
}

/// What changed in one page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageChange<'a> {
    /// Which page.
    pub(crate) page: u64,
    /// The granules that changed.
    pub(crate) mask: u64,
    /// The checksum of the page with these changes.
    pub(crate) sum: u32,
    granules: &'a [u8],
}

impl<'a> Pages<'a> {
    /// The next page.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(crate) fn next(&mut self) -> Result<Option<PageChange<'a>>> {
        if self.left == 0 {
            return match self.rest {
                [] => Ok(None),
                _ => Err(damaged("there is something behind its last page")),
            };
        }
        self.left -= 1;
        let (page, rest) = self.rest.split_first_chunk().ok_or_else(cut_short)?;
        let (mask, rest) = rest.split_first_chunk().ok_or_else(cut_short)?;
        let (sum, rest) = rest.split_first_chunk().ok_or_else(cut_short)?;
        let mask = u64::from_le_bytes(*mask);
        let length = mask.count_ones() as usize * GRANULE_BYTES;
        let (granules, rest) = rest.split_at_checked(length).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(Some(PageChange {
            page: u64::from_le_bytes(*page),
            mask,
            sum: u32::from_le_bytes(*sum),
            granules,
        }))
    }
}

impl<'a> PageChange<'a> {
    /// What changed: where in the page, and the bytes that stand there now.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Range<usize>, &'a [u8])> {
        let mut rest = self.granules;
        runs(self.mask).map_while(move |place| {
            let (run, left) = rest.split_at_checked(place.len())?;
            rest = left;
            Some((place, run))
        })
    }

    /// Makes the change.
    pub(crate) fn apply(&self, page: &mut PageBytes) {
        for (place, bytes) in self.runs() {
            if let Some(place) = page.get_mut(place) {
                place.copy_from_slice(bytes);
            }
        }
    }
}

fn cut_short() -> Error {
    damaged("it is cut short")
}

fn damaged(what: &str) -> Error {
    Error::Damaged(format!("a log record cannot be read: {what}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sums::sum_of;

    fn pages_of(bytes: &[u8]) -> Result<Vec<(u64, PageChange<'_>)>> {
        let Record::Pages(mut pages) = Record::decode(bytes)? else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        while let Some(change) = pages.next()? {
            found.push((change.page, change));
        }
        Ok(found)
    }

    proptest! {
        #[test]
        fn what_is_built_is_read_back(
            pages in prop::collection::vec((any::<u64>(), prop::collection::vec((0..PAGE_BYTES, any::<u8>()), 0..9)), 0..5)
        ) {
            let mut builder = Builder::default();
            builder.clear(u64::MAX);
            let before = [7; PAGE_BYTES];
            let mut expected = Vec::new();
            for (page, stores) in &pages {
                let mut after = before;
                stores.iter().for_each(|(at, byte)| after[*at] = *byte);
                let pushed = builder.push(*page, &before, &after, sum_of);
                prop_assert_eq!(pushed.is_some(), before != after);
                if pushed.is_some() {
                    expected.push((*page, after));
                }
            }
            let length = builder.length();
            let record = builder.finish();
            prop_assert_eq!(record.len() as u64, length);
            let found = pages_of(record).unwrap();
            prop_assert_eq!(found.len(), expected.len());
            for ((number, change), (page, after)) in found.iter().zip(&expected) {
                prop_assert_eq!(number, page);
                let mut applied = before;
                change.apply(&mut applied);
                prop_assert!(applied == *after);
                prop_assert_eq!(change.sum, sum_of(after));
            }
            for cut in 0..record.len() {
                prop_assert!(pages_of(&record[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..3) {
            let mut bytes = bytes;
            let magic = [PAGES_MAGIC, LARGE_MAGIC, [0; 4]][kind as usize];
            bytes.splice(..bytes.len().min(4), magic);
            let _ = pages_of(&bytes);
        }
    }

    #[test]
    fn a_large_record_is_read_back() {
        let record = Record::encode_large(17, 1 << 33);
        assert!(matches!(
            Record::decode(&record).unwrap(),
            Record::Large { checksum: 17, bytes } if bytes == 1 << 33
        ));
    }
}
