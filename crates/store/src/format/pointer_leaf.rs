//! A leaf of keys of eight bytes and pointers.
//!
//! ```text
//!  offset  size  field
//!       0    24  common header; its checksum is that of the page as it was made
//!      24     2  n          number of keys
//!      26     2  size       of a pair: 16
//!      28     4  zero
//!      32        pairs      key, 8 bytes, and pointer, 8 bytes, each; keys ascending
//!    4080     8  changed    the last commit that stored pointers in it, 0: none
//!    4088     8  zero
//! ```
//!
//! What changes while others look are `changed` and the pointers, words that are loaded and stored at once. All else is
//! only changed by the transaction that the leaf belongs to, before anybody else can look at it.

// Pages are looked at as what they are.
#![allow(unsafe_code)]
#![deny(clippy::indexing_slicing)]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, Page, PageKind};
use crate::format::pointer::RecordPointer;
use crate::format::prefetch;
use crate::ids::{CommitNo, PageNo};

const HEADER_BYTES: usize = 32;
const END_BYTES: usize = 16;
const CHANGED_AT: usize = PAGE_BYTES - END_BYTES;

/// The length of a pair, in bytes.
pub(crate) const PAIR_BYTES: usize = size_of::<Pair>();

/// How many keys a leaf has at most.
pub(crate) const PAIRS_MAX: usize = (PAGE_BYTES - HEADER_BYTES - END_BYTES) / PAIR_BYTES;

/// The length of a key of a tree whose values stand out of line.
pub(crate) const KEY_BYTES: usize = 8;

/// A leaf, as it is in the file.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct PointerLeaf {
    header: [u8; 24],
    n: [u8; 2],
    size: [u8; 2],
    zero: [u8; 4],
    pairs: [Pair; PAIRS_MAX],
    changed: AtomicU64,
    more_zero: [u8; 8],
}

#[repr(C)]
#[derive(Debug)]
struct Pair {
    key: [u8; KEY_BYTES],
    pointer: AtomicU64,
}

const _: () = assert!(size_of::<PointerLeaf>() == PAGE_BYTES);
const _: () = assert!(align_of::<PointerLeaf>() <= align_of::<Page>());

impl PointerLeaf {
    /// A page in plain memory.
    #[cfg(test)]
    pub(crate) fn of(page: &mut Page) -> &Self {
        // SAFETY: of the same size, not more aligned, and any bytes are a leaf. Nobody else has the page as long as it
        // is borrowed.
        unsafe { &*std::ptr::from_mut(page).cast::<Self>() }
    }

    /// Whether it is the page of a tree that it should be.
    pub(crate) fn is(&self, number: PageNo) -> bool {
        let [_, _, _, _, kind, level, ..] = self.header;
        let is_leaf = kind == PageKind::PointerLeaf as u8 && level == 0;
        is_leaf
            && self.number() == number
            && usize::from(u16::from_le_bytes(self.size)) == PAIR_BYTES
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.header.get(at..at + 8);
        let bytes = bytes.and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Its own number.
    pub(crate) fn number(&self) -> PageNo {
        PageNo(self.word(8))
    }

    /// The commit that wrote it.
    pub(crate) fn commit(&self) -> CommitNo {
        CommitNo(self.word(16))
    }

    /// The last commit that stored pointers in it.
    pub(crate) fn changed(&self) -> CommitNo {
        CommitNo(u64::from_le(self.changed.load(Ordering::Relaxed)))
    }

    fn pairs(&self) -> &[Pair] {
        let n = usize::from(u16::from_le_bytes(self.n));
        self.pairs.get(..n.min(PAIRS_MAX)).unwrap_or_default()
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.pairs().len()
    }

    pub(crate) fn key(&self, slot: usize) -> Option<&[u8; KEY_BYTES]> {
        self.pairs().get(slot).map(|pair| &pair.key)
    }

    /// A key, and the pointer of its newest record.
    #[inline]
    pub(crate) fn pair(&self, slot: usize) -> Option<(&[u8; KEY_BYTES], RecordPointer)> {
        let pair = self.pairs().get(slot)?;
        let pointer = RecordPointer(u64::from_le(pair.pointer.load(Ordering::Acquire)));
        Some((&pair.key, pointer))
    }

    /// The pointer of a key's newest record. What that is made of was written before.
    pub(crate) fn pointer(&self, slot: usize) -> Option<RecordPointer> {
        let pair = self.pairs().get(slot)?;
        Some(RecordPointer(u64::from_le(
            pair.pointer.load(Ordering::Acquire),
        )))
    }

    /// Whether it says that it has more keys than it has room for, of which no more than that are looked at.
    pub(crate) fn has_too_many(&self) -> bool {
        usize::from(u16::from_le_bytes(self.n)) > PAIRS_MAX
    }

    /// The leaf as it was when a commit was the newest, sealed: each key leads to the record that `seen` gives for it,
    /// with the commit that wrote that. Whatever was stored here since the leaf was made was the pointer of a record of
    /// the commit that stored it.
    pub(crate) fn to_page(
        &self,
        mut seen: impl FnMut(&[u8; KEY_BYTES], RecordPointer) -> Result<(RecordPointer, CommitNo)>,
    ) -> Result<Box<Page>> {
        let mut page = Box::new(Page::zeroed());
        let mut changed = CommitNo::default();
        let (head, rest) = page.bytes_mut().split_at_mut(HEADER_BYTES);
        let (pairs, end) = rest.split_at_mut(PAIRS_MAX * PAIR_BYTES);
        for (slot, (to, pair)) in pairs
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(&self.pairs)
            .enumerate()
        {
            let mut pointer = RecordPointer(u64::from_le(pair.pointer.load(Ordering::Acquire)));
            if slot < self.len() {
                let (at, commit) = seen(&pair.key, pointer)?;
                pointer = at;
                if commit > self.commit() {
                    changed = changed.max(commit);
                }
            }
            let to: &mut [u8; PAIR_BYTES] = to;
            let (key, word) = to.split_at_mut(KEY_BYTES);
            key.copy_from_slice(&pair.key);
            word.copy_from_slice(&pointer.encode());
        }
        let parts = [&self.header[..], &self.n, &self.size, &self.zero];
        head.copy_from_slice(&parts.concat());
        let (word, more) = end.split_at_mut(8);
        word.copy_from_slice(&changed.0.to_le_bytes());
        more.copy_from_slice(&self.more_zero);
        page.seal();
        Ok(page)
    }

    /// Where a key would be if all numbers from the first key's on were keys, which it mostly is where they are given
    /// out one after the other.
    fn guess(&self, key: [u8; KEY_BYTES]) -> Option<usize> {
        let first = self.pairs().first()?;
        let steps = u64::from_be_bytes(key).checked_sub(u64::from_be_bytes(first.key))?;
        usize::try_from(steps).ok()
    }

    /// Where a key is, or would be.
    pub(crate) fn search(&self, key: [u8; KEY_BYTES]) -> Result<usize, usize> {
        let pairs = self.pairs();
        match self.guess(key) {
            Some(guess) if pairs.get(guess).is_some_and(|pair| pair.key == key) => Ok(guess),
            _ => pairs.binary_search_by(|pair| pair.key.cmp(&key)),
        }
    }

    /// Asks the processor for the beginning of the leaf.
    pub(crate) fn fetch_head(&self) {
        prefetch::address(std::ptr::from_ref(self).cast());
    }

    /// Asks the processor for the pair of a key, as far as its pointer is clear from the beginning of the leaf.
    pub(crate) fn fetch_pair(&self, key: [u8; KEY_BYTES]) {
        if let Some(pair) = self.guess(key).and_then(|guess| self.pairs().get(guess)) {
            prefetch::address(std::ptr::from_ref(pair).cast());
        }
    }

    /// Stores the pointers of records that a commit has written, for the one that holds the appender's lock.
    pub(crate) fn store_all(
        &self,
        pointers: impl IntoIterator<Item = (u16, RecordPointer)>,
        commit: CommitNo,
    ) -> Result<()> {
        for (slot, pointer) in pointers {
            self.store(usize::from(slot), pointer, commit)
                .ok_or_else(|| {
                    Error::corrupt(self.number(), "has fewer pointers than are stored in it")
                })?;
        }
        Ok(())
    }

    /// Stores the pointer of a record that `commit` has written, for the one that holds the appender's lock.
    pub(crate) fn store(
        &self,
        slot: usize,
        pointer: RecordPointer,
        commit: CommitNo,
    ) -> Option<()> {
        let pair = self.pairs().get(slot)?;
        pair.pointer.store(pointer.0.to_le(), Ordering::Release);
        self.changed.store(commit.0.to_le(), Ordering::Relaxed);
        Some(())
    }
}

/// Has a page of the transaction's own, a leaf of pointers, say something else at a slot.
pub(crate) fn set_pointer(page: &mut Page, slot: usize, pointer: RecordPointer) -> Option<()> {
    let at = HEADER_BYTES + slot * PAIR_BYTES + KEY_BYTES;
    let is_inside = slot < PAIRS_MAX;
    page.store(at, &pointer.encode()).filter(|()| is_inside)
}

/// Has a page of the transaction's own, a leaf of pointers, say that nobody has stored in it.
pub(crate) fn clear_changed(page: &mut Page) {
    page.clear(CHANGED_AT..CHANGED_AT + size_of::<CommitNo>());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf_of(keys: &[u64]) -> Page {
        let mut page = Page::zeroed();
        page.init(PageKind::PointerLeaf, 0, PageNo(9), CommitNo(3));
        let bytes = page.bytes_mut();
        bytes[24..26].copy_from_slice(&(keys.len() as u16).to_le_bytes());
        bytes[26] = PAIR_BYTES as u8;
        let pairs = bytes[HEADER_BYTES..].as_chunks_mut::<16>().0;
        for (key, pair) in keys.iter().zip(pairs) {
            pair[..8].copy_from_slice(&key.to_be_bytes());
            pair[8..].copy_from_slice(&(key * 10).to_le_bytes());
        }
        page
    }

    fn is_searched(keys: &[u64]) {
        let mut page = leaf_of(keys);
        let leaf = PointerLeaf::of(&mut page);
        assert!(leaf.is(PageNo(9)) && !leaf.is(PageNo(8)));
        assert_eq!((leaf.len(), leaf.commit()), (keys.len(), CommitNo(3)));
        let near = keys
            .iter()
            .flat_map(|&key| [key.saturating_sub(1), key, key.saturating_add(1)]);
        for wanted in near.chain([0, 1, u64::MAX]) {
            assert_eq!(
                leaf.search(wanted.to_be_bytes()),
                keys.binary_search(&wanted),
                "{wanted}"
            );
        }
        for (slot, key) in keys.iter().enumerate() {
            assert_eq!(leaf.key(slot), Some(&key.to_be_bytes()));
            assert_eq!(leaf.pointer(slot), Some(RecordPointer(key * 10)));
        }
        assert_eq!(
            (leaf.key(keys.len()), leaf.pointer(keys.len())),
            (None, None)
        );
    }

    #[test]
    fn keys_are_found() {
        is_searched(&[]);
        is_searched(&[7]);
        is_searched(&(100..100 + PAIRS_MAX as u64).collect::<Vec<_>>());
        is_searched(&(0..90).map(|n| n * n).collect::<Vec<_>>());
        is_searched(&[0, 1, 2, 3, 1 << 60]);
        is_searched(&(0..50).map(|n| n * 2 + (1 << 40)).collect::<Vec<_>>());
    }

    #[test]
    fn pointers_are_stored() {
        let mut page = leaf_of(&[4, 5, 6]);
        let leaf = PointerLeaf::of(&mut page);
        assert_eq!(leaf.changed(), CommitNo(0));
        leaf.store(1, RecordPointer(77), CommitNo(12)).unwrap();
        assert_eq!(leaf.pointer(1), Some(RecordPointer(77)));
        assert_eq!(
            (leaf.pointer(0), leaf.pointer(2)),
            (Some(RecordPointer(40)), Some(RecordPointer(60)))
        );
        assert_eq!(leaf.changed(), CommitNo(12));
        assert_eq!(leaf.store(3, RecordPointer(1), CommitNo(13)), None);
        leaf.store_all([(0, RecordPointer(8)), (2, RecordPointer(9))], CommitNo(13))
            .unwrap();
        let pointers = [0, 1, 2].map(|slot| leaf.pointer(slot));
        assert_eq!(
            pointers,
            [8, 77, 9].map(|pointer| Some(RecordPointer(pointer)))
        );
        assert_eq!(leaf.changed(), CommitNo(13));
        assert!(
            leaf.store_all([(3, RecordPointer(1))], CommitNo(14))
                .is_err()
        );
    }

    #[test]
    fn a_leaf_is_seen_as_it_was() {
        let mut page = leaf_of(&[4, 5, 6]);
        let mut then = page.clone();
        let leaf = PointerLeaf::of(&mut page);
        leaf.store(0, RecordPointer(11), CommitNo(7)).unwrap();
        leaf.store(2, RecordPointer(12), CommitNo(9)).unwrap();
        leaf.store(0, RecordPointer(13), CommitNo(11)).unwrap();
        // As of commit 8, by when one pointer had been stored.
        let seen = |_: &[u8; KEY_BYTES], pointer: RecordPointer| {
            Ok(match pointer {
                RecordPointer(13) => (RecordPointer(11), CommitNo(7)),
                RecordPointer(12) => (RecordPointer(60), CommitNo(2)),
                pointer => (pointer, CommitNo(3)),
            })
        };
        let seen = leaf.to_page(seen).unwrap();
        PointerLeaf::of(&mut then)
            .store(0, RecordPointer(11), CommitNo(7))
            .unwrap();
        then.seal();
        assert!(seen.bytes() == then.bytes());
        seen.verify(PageNo(9)).unwrap();
        // As it was made.
        let made = leaf.to_page(|key, _| {
            let key = u64::from_be_bytes(*key);
            Ok((RecordPointer(key * 10), CommitNo(3)))
        });
        let mut expected = leaf_of(&[4, 5, 6]);
        expected.seal();
        assert!(made.unwrap().bytes() == expected.bytes());
        assert!(leaf.to_page(|_, _| Err(Error::NoRecord)).is_err());
    }

    #[test]
    fn too_many_keys_are_damage_that_stays_inside() {
        let mut page = leaf_of(&[1, 2]);
        page.bytes_mut()[24..26].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(PointerLeaf::of(&mut page).len(), PAIRS_MAX);
        assert!(PointerLeaf::of(&mut page).has_too_many());
    }
}
