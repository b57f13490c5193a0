//! The values of one key, in a tree with duplicates.
//!
//! A single value stands in the leaf's cell like that of any other tree. Several stand there together, as a *sub-page*,
//! while they fit:
//!
//! ```text
//!  values of one length       values of any length
//!  size  field                size  field
//!     2  size, not 0             2  n
//!        values                 2n  ends     of each value, counted from the first value's beginning
//!                                   values
//! ```
//!
//! More have a tree of their own, whose record (48 bytes) stands in the cell: its keys are the values, whole or packed,
//! and it has no values. It goes back to a sub-page when only few are left.

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::ops::Range;

use super::Order;
use crate::error::{Error, Result};
use crate::format::tree_record::{TreeKind, TreeRecord};
use crate::ids::PageNo;
use crate::tree::node::{Found, Mark, Node};

/// The length of what stands before values of one length.
pub(super) const SIZE_BYTES: usize = 2;

/// The values of one key as they are stored.
#[derive(Clone, Copy)]
pub(super) enum Values<'p> {
    One(&'p [u8]),
    Page(SubPage<'p>),
    Tree(TreeRecord),
}

impl<'p> Values<'p> {
    /// The values of an entry of a leaf.
    pub(super) fn of(leaf: &Node<'p>, slot: usize, kind: TreeKind) -> Result<Self> {
        let cell = leaf.cell(slot)?;
        Self::decode(cell.payload, cell.mark, kind).ok_or_else(|| damaged(leaf.number()))
    }

    /// The values that a payload holds.
    #[inline]
    pub(super) fn decode(payload: &'p [u8], mark: Mark, kind: TreeKind) -> Option<Self> {
        match mark {
            Mark::Inline => Some(Self::One(payload)),
            _ if kind.duplicates.is_none() => None,
            Mark::SubPage => SubPage::open(payload, kind).map(Self::Page),
            Mark::SubTree => TreeRecord::decode_as(kind.of_values(), payload)
                .filter(|tree| tree.height > 0)
                .map(Self::Tree),
            Mark::Extent | Mark::OutOfLine => None,
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Page(page) => page.n as u64,
            Self::Tree(tree) => tree.records,
        }
    }

    /// A value that stands in the leaf.
    pub(super) fn get(&self, at: usize) -> Option<&'p [u8]> {
        match self {
            Self::One(value) => (at == 0).then_some(value),
            Self::Page(page) => page.get(at),
            Self::Tree(_) => None,
        }
    }

    /// Those of one length that stand in the leaf, one behind the other.
    pub(super) fn packed(&self) -> &'p [u8] {
        match self {
            Self::One(value) => value,
            Self::Page(page) => page.values,
            Self::Tree(_) => &[],
        }
    }

    /// Whether those that stand in the leaf are all there.
    pub(super) fn are_whole(&self) -> bool {
        matches!(self, Self::Tree(_)) || (0..self.len() as usize).all(|at| self.get(at).is_some())
    }

    /// Where a value is, or would be, among those that stand in the leaf with this number.
    pub(super) fn search(&self, value: &[u8], order: Order, leaf: PageNo) -> Result<Found> {
        let compare = |at| order.compare(self.get(at).ok_or_else(|| damaged(leaf))?, value);
        let last = (self.len() as usize).saturating_sub(1);
        // Most values that are looked for belong behind all others.
        match compare(last)? {
            Ordering::Less => Ok(Found::gap(last + 1)),
            Ordering::Equal => Ok(Found::exactly(last)),
            Ordering::Greater => Found::by(0..last, compare),
        }
    }
}

pub(super) fn damaged(leaf: PageNo) -> Error {
    Error::corrupt(leaf, "duplicates are damaged")
}

/// Several values in one cell.
#[derive(Clone, Copy)]
pub(super) struct SubPage<'p> {
    n: usize,
    /// Of values of one length.
    size: usize,
    /// Of values of any length.
    ends: &'p [[u8; 2]],
    /// One behind the other.
    pub(super) values: &'p [u8],
}

impl<'p> SubPage<'p> {
    pub(super) fn open(payload: &'p [u8], kind: TreeKind) -> Option<Self> {
        let (number, rest) = payload.split_first_chunk()?;
        let number = usize::from(u16::from_le_bytes(*number));
        if kind.has_fixed_duplicates() {
            let n = rest.len().checked_div(number)?;
            return (n > 0 && n * number == rest.len()).then_some(Self {
                n,
                size: number,
                ends: &[],
                values: rest,
            });
        }
        let (ends, values) = rest.split_at_checked(number * 2)?;
        (number > 0).then_some(Self {
            n: number,
            size: 0,
            ends: ends.as_chunks().0,
            values,
        })
    }

    pub(super) fn get(&self, at: usize) -> Option<&'p [u8]> {
        self.values.get(self.range(at)?)
    }

    fn range(&self, at: usize) -> Option<Range<usize>> {
        if self.size > 0 {
            return (at < self.n).then_some(at * self.size..(at + 1) * self.size);
        }
        let end = |at: usize| Some(usize::from(u16::from_le_bytes(*self.ends.get(at)?)));
        let start = match at {
            0 => 0,
            _ => end(at - 1)?,
        };
        Some(start..end(at)?)
    }

    /// What is wrong with it.
    pub(super) fn check(&self, order: Order) -> Result<(), &'static str> {
        let mut before: Option<&[u8]> = None;
        let mut end = 0;
        for at in 0..self.n {
            let Some(value) = self.get(at) else {
                return Err("duplicate outside of its cell");
            };
            end += value.len();
            let is_less = |before| matches!(order.compare(before, value), Ok(Ordering::Less));
            if before.is_some_and(|before| !order.is_unknown() && !is_less(before)) {
                return Err("duplicates out of order");
            }
            before = Some(value);
        }
        if end != self.values.len() || self.n < 2 {
            return Err("duplicates do not fill their cell");
        }
        Ok(())
    }
}

/// A sub-page of these values.
pub(super) fn encode_sub_page<'v>(
    kind: TreeKind,
    values: impl ExactSizeIterator<Item = &'v [u8]> + Clone,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    if kind.has_fixed_duplicates() {
        let size = values.clone().next().map_or(0, <[u8]>::len);
        bytes.extend((size as u16).to_le_bytes());
    } else {
        bytes.extend((values.len() as u16).to_le_bytes());
        let mut end = 0;
        for value in values.clone() {
            end += value.len();
            bytes.extend((end as u16).to_le_bytes());
        }
    }
    values.for_each(|value| bytes.extend(value));
    bytes
}
