//! The static search tree over the segments of an array: where each segment's keys begin.
//!
//! The tree is binary and has a fixed shape; the lower bound of segment `i` has one place in it, whatever the keys.
//! Seven of its levels are a page, so that a page leads to 128 pages below it or to 128 segments. Pages are laid out in
//! van Emde Boas order: the pages of the upper half of the levels first, then for each of them the pages below it
//! together. Within a page the root has a cache line of its own, and below it every line is a node with its two
//! children: four lines decide between 128 ways.
//!
//! A place in a page is 16 bytes: a tag and the first 15 bytes of the bound. A longer bound is kept in full beside the
//! records of its segment, where a search looks when the first 15 bytes do not decide. A page of zeros bounds nothing:
//! every search goes left.
//!
//! ```text
//! TAG    THE BOUND
//! 0      there is none: the segment holds nothing that a search should find
//! 1..16  tag - 1 bytes follow
//! 17     15 bytes follow, the rest is in the segment
//! ```

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::ops::Range;

use crate::block::damaged;
use crate::memory::{Memory, PAGE_BYTES};

/// Levels of the binary tree in one page.
const PAGE_LEVELS: u32 = 7;

/// Ways that lead on from a page.
const FANOUT: u64 = 1 << PAGE_LEVELS;

/// Levels of pages: enough for a TiB of segments.
const HEIGHT_MAX: u32 = 4;

/// The most segments an array can have.
pub(super) const SEGMENTS_MAX: u64 = 1 << (PAGE_LEVELS * HEIGHT_MAX);

const PLACE_BYTES: usize = 16;
const LINE_BYTES: usize = 64;

/// How much of a bound the tree holds.
pub(super) const HEAD_BYTES: usize = PLACE_BYTES - 1;

const INFINITE: u8 = 0;
const LONGER: u8 = 17;

/// In a page, the first line of each pair of levels below the root.
const PAIR_LINES: [usize; 3] = [1, 3, 11];

/// The index of an array of so many segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index {
    at: u64,
    segments: u64,
}

/// A lower bound as the tree holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound<'m> {
    Infinite,
    Exact(&'m [u8]),
    /// The first [`HEAD_BYTES`] of it.
    Longer(&'m [u8]),
}

impl Index {
    pub(super) fn new(at: u64, segments: u64) -> Self {
        Self { at, segments }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn segments(&self) -> u64 {
        self.segments
    }

    /// How many pages the index of so many segments takes.
    pub(super) fn pages(segments: u64) -> u64 {
        (0..Self::height_of(segments))
            .map(|level| Self::pages_at(segments, level))
            .sum()
    }

    /// Levels of pages.
    pub(super) fn height(&self) -> u32 {
        Self::height_of(self.segments)
    }

    fn height_of(segments: u64) -> u32 {
        let mut height = 1;
        while height < HEIGHT_MAX && segments > 1 << (PAGE_LEVELS * height) {
            height += 1;
        }
        height
    }

    fn pages_at(segments: u64, level: u32) -> u64 {
        segments.div_ceil(1 << (PAGE_LEVELS * (level + 1)))
    }

    /// The offset of a page; level 0 is the one above the segments.
    fn page(&self, level: u32, number: u64) -> u64 {
        let height = self.height();
        // The upper levels, 2 and 3, come first; then each page of level 1 with those below it.
        let upper: u64 = (2..height)
            .map(|level| Self::pages_at(self.segments, level))
            .sum();
        let place = match level {
            0 if height == 1 => 0,
            0 => upper + number / FANOUT * (FANOUT + 1) + 1 + number % FANOUT,
            1 => upper + number * (FANOUT + 1),
            2 => u64::from(height == HEIGHT_MAX) + number,
            _ => 0,
        };
        self.at + place * PAGE_BYTES as u64
    }

    /// The last segment whose bound is not above `key`. `full` gives the whole bound of a segment.
    pub(super) fn search<'m, M: Memory>(
        &self,
        memory: &'m M,
        key: &[u8],
        full: impl Fn(u64) -> Result<&'m [u8], M::Error>,
    ) -> Result<u64, M::Error> {
        let wanted = number(key);
        let mut child = 0;
        for level in (0..self.height()).rev() {
            let at = self.page(level, child);
            let page = memory.read(at, PAGE_BYTES)?;
            let mut way = 0_usize;
            for depth in 0..PAGE_LEVELS {
                let place = place(depth, way);
                let (tag, head) = page
                    .get(place..place + PLACE_BYTES)
                    .and_then(<[u8]>::split_first)
                    .unwrap_or((&INFINITE, &[]));
                let right = *tag != INFINITE
                    && match wanted.cmp(&number(head)) {
                        Ordering::Less => false,
                        Ordering::Greater => true,
                        Ordering::Equal if *tag < LONGER => key.len() >= usize::from(tag - 1),
                        Ordering::Equal if *tag > LONGER => {
                            return Err(damaged(at, "an index page with an unknown tag"));
                        }
                        // Shorter keys that end in zeros look equal too.
                        Ordering::Equal if key.len() < HEAD_BYTES => false,
                        Ordering::Equal => {
                            let inner = (2 * way as u64 + 1) << (PAGE_LEVELS - 1 - depth);
                            let segment = (child * FANOUT + inner) << (PAGE_LEVELS * level);
                            if segment >= self.segments {
                                return Err(damaged(at, "an index page bounds too much"));
                            }
                            key >= full(segment)?
                        }
                    };
                way = 2 * way + usize::from(right);
            }
            child = child * FANOUT + way as u64;
        }
        if child >= self.segments {
            return Err(damaged(self.at, "the index leads beyond its segments"));
        }
        Ok(child)
    }

    /// The last segment that has a bound, or the first one: none behind it is in use.
    pub(super) fn last<M: Memory>(&self, memory: &M) -> Result<u64, M::Error> {
        let mut child = 0;
        for level in (0..self.height()).rev() {
            let page = memory.read(self.page(level, child), PAGE_BYTES)?;
            let mut way = 0_usize;
            for depth in 0..PAGE_LEVELS {
                let tag = page.get(place(depth, way)).unwrap_or(&INFINITE);
                way = 2 * way + usize::from(*tag != INFINITE);
            }
            child = child * FANOUT + way as u64;
        }
        if child >= self.segments {
            return Err(damaged(self.at, "the index leads beyond its segments"));
        }
        Ok(child)
    }

    /// Where the bound of a segment is. The first segment has none.
    fn place_of(&self, segment: u64) -> Option<u64> {
        if segment == 0 || segment >= self.segments {
            return None;
        }
        let mut child = segment;
        let mut level = 0;
        while child.is_multiple_of(FANOUT) {
            child /= FANOUT;
            level += 1;
        }
        let inner = child % FANOUT;
        let depth = PAGE_LEVELS - 1 - inner.trailing_zeros();
        let way = inner >> (inner.trailing_zeros() + 1);
        let place = place(depth, usize::try_from(way).ok()?);
        Some(self.page(level, child / FANOUT) + place as u64)
    }

    /// The lower bound of a segment; the first one has none.
    pub(super) fn bound<'m, M: Memory>(
        &self,
        memory: &'m M,
        segment: u64,
    ) -> Result<Bound<'m>, M::Error> {
        let Some(at) = self.place_of(segment) else {
            return Ok(Bound::Infinite);
        };
        let place = memory.read(at, PLACE_BYTES)?;
        let (tag, head) = place.split_first().unwrap_or((&INFINITE, &[]));
        match *tag {
            INFINITE => Ok(Bound::Infinite),
            LONGER => Ok(Bound::Longer(head)),
            tag => match head.get(..usize::from(tag - 1)) {
                Some(bound) => Ok(Bound::Exact(bound)),
                None => Err(damaged(at, "an index page with an unknown tag")),
            },
        }
    }

    /// Sets the lower bound of a segment, not of the first one. A bound longer than [`HEAD_BYTES`] must also stand in
    /// the segment.
    pub(super) fn set<M: Memory>(
        &self,
        memory: &mut M,
        segment: u64,
        bound: Option<&[u8]>,
    ) -> Result<(), M::Error> {
        let at = self
            .place_of(segment)
            .ok_or_else(|| damaged(self.at, "a segment that cannot be bounded"))?;
        let mut bytes = [0; PLACE_BYTES];
        let (tag, head) = bytes.split_at_mut(1);
        if let Some(bound) = bound {
            let length = bound.len().min(HEAD_BYTES);
            tag.fill(match bound.len() {
                ..=HEAD_BYTES => u8::try_from(length + 1).unwrap_or(LONGER),
                _ => LONGER,
            });
            for (to, from) in head.iter_mut().zip(bound) {
                *to = *from;
            }
        }
        // What does not change is not written: an index page is shared by many segments.
        if memory.read(at, PLACE_BYTES)? != bytes {
            memory.write(at, PLACE_BYTES)?.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Sets the bounds of all segments in another index to what they are in this one.
    pub(super) fn copy<M: Memory>(&self, memory: &mut M, to: &Self) -> Result<(), M::Error> {
        for segment in 1..self.segments {
            let (Some(from), Some(to)) = (self.place_of(segment), to.place_of(segment)) else {
                return Err(damaged(to.at, "an index that is too small"));
            };
            let mut bytes = [0; PLACE_BYTES];
            bytes.copy_from_slice(memory.read(from, PLACE_BYTES)?);
            memory.write(to, PLACE_BYTES)?.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Clears pages of the index, in the order they are stored in.
    pub(super) fn clear<M: Memory>(
        &self,
        memory: &mut M,
        pages: Range<u64>,
    ) -> Result<(), M::Error> {
        for page in pages {
            memory
                .write(self.at + page * PAGE_BYTES as u64, PAGE_BYTES)?
                .fill(0);
        }
        Ok(())
    }
}

/// Where a node stands in its page: the node number `way` of the level `depth`.
fn place(depth: u32, way: usize) -> usize {
    let Some(below) = (depth as usize).checked_sub(1) else {
        return 0;
    };
    let first = PAIR_LINES.get(below / 2).copied().unwrap_or(0);
    match below % 2 {
        0 => (first + way) * LINE_BYTES,
        _ => (first + way / 2) * LINE_BYTES + (1 + way % 2) * PLACE_BYTES,
    }
}

/// The first [`HEAD_BYTES`] of a key as a number, filled up with zeros.
#[inline]
fn number(key: &[u8]) -> u128 {
    let mut bytes = [0; PLACE_BYTES];
    match key.first_chunk::<HEAD_BYTES>() {
        Some(head) => {
            if let Some(to) = bytes.first_chunk_mut::<HEAD_BYTES>() {
                *to = *head;
            }
        }
        None => {
            for (to, from) in bytes.iter_mut().zip(key) {
                *to = *from;
            }
        }
    }
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::plain::Plain;

    #[test]
    fn every_bound_has_a_place_of_its_own_within_the_index() {
        for segments in [1, 2, 127, 128, 129, 300, 16_384, 16_385, 40_000, 2_097_153] {
            let index = Index::new(0, segments);
            let end = Index::pages(segments) * PAGE_BYTES as u64;
            let step = usize::try_from(segments / 50_000 + 1).unwrap();
            let mut places = HashSet::new();
            for segment in (1..segments).step_by(step) {
                let place = index.place_of(segment).unwrap();
                assert!(place + 16 <= end, "{segment} of {segments}");
                assert!(places.insert(place), "{segment} of {segments}");
            }
            assert_eq!(index.place_of(0), None);
        }
    }

    #[test]
    fn a_search_finds_the_last_bound_not_above_the_key() {
        for segments in [1_u64, 2, 100, 128, 129, 20_000] {
            let mut memory = Plain::new();
            let pages = Index::pages(segments);
            let at = memory.allocate(pages * PAGE_BYTES as u64).unwrap();
            let index = Index::new(at, segments);
            index.clear(&mut memory, 0..pages).unwrap();
            let bounded = segments - segments / 5;
            for segment in 1..bounded {
                let bound = u32::try_from(segment * 10).unwrap().to_be_bytes();
                index.set(&mut memory, segment, Some(&bound)).unwrap();
            }
            for segment in 0..bounded {
                for more in [0, 1, 9] {
                    let key = u32::try_from(segment * 10 + more).unwrap().to_be_bytes();
                    let found = index.search(&memory, &key, |_| unreachable!()).unwrap();
                    assert_eq!(found, segment, "of {segments}");
                }
            }
        }
    }

    #[test]
    fn long_bounds_and_zeros_at_the_end_are_told_apart() {
        let mut memory = Plain::new();
        let at = memory.allocate(PAGE_BYTES as u64).unwrap();
        let index = Index::new(at, 4);
        index.clear(&mut memory, 0..1).unwrap();
        let long = [3; 40];
        index.set(&mut memory, 1, Some(&[1, 0])).unwrap();
        index.set(&mut memory, 2, Some(&[1, 0, 0])).unwrap();
        index.set(&mut memory, 3, Some(&long)).unwrap();
        let search = |key: &[u8]| index.search(&memory, key, |_| Ok(&long[..])).unwrap();
        assert_eq!(search(&[1]), 0);
        assert_eq!(search(&[1, 0]), 1);
        assert_eq!(search(&[1, 0, 0]), 2);
        assert_eq!(search(&[3; 15]), 2);
        assert_eq!(search(&[3; 39]), 2);
        assert_eq!(search(&[3; 40]), 3);
        assert_eq!(index.bound(&memory, 3).unwrap(), Bound::Longer(&long[..15]));
    }
}
