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
        let values = match cell.mark {
            Mark::Inline => Some(Self::One(cell.payload)),
            _ if kind.duplicates.is_none() => None,
            Mark::SubPage => SubPage::open(cell.payload, kind).map(Self::Page),
            Mark::SubTree => TreeRecord::decode(cell.payload)
                .filter(|tree| tree.kind == kind.of_values() && tree.height > 0)
                .map(Self::Tree),
            Mark::Extent | Mark::OutOfLine => None,
        };
        values.ok_or_else(|| damaged(leaf.number()))
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Page(page) => page.n as u64,
            Self::Tree(tree) => tree.records,
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
    values: &'p [u8],
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

    pub(super) fn len(&self) -> usize {
        self.n
    }

    pub(super) fn get(&self, at: usize) -> Option<&'p [u8]> {
        self.values.get(self.range(at)?)
    }

    /// Values of one length from number `at` on, one behind the other.
    pub(super) fn packed(&self, values: Range<usize>) -> Option<&'p [u8]> {
        self.values
            .get(values.start * self.size..values.end * self.size)
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn end(&self, at: usize) -> Option<usize> {
        let end = self.ends.get(at)?;
        Some(usize::from(u16::from_le_bytes(*end)))
    }

    fn range(&self, at: usize) -> Option<Range<usize>> {
        if self.size > 0 {
            return (at < self.n).then_some(at * self.size..(at + 1) * self.size);
        }
        let start = match at.checked_sub(1) {
            Some(before) => self.end(before)?,
            None => 0,
        };
        Some(start..self.end(at)?)
    }

    /// The page with one value more, which becomes number `at`; `None` if the page is damaged.
    pub(super) fn with(&self, at: usize, value: &[u8]) -> Option<Vec<u8>> {
        let start = match at.checked_sub(1) {
            Some(before) => self.range(before)?.end,
            None => 0,
        };
        let (before, behind) = self.values.split_at_checked(start)?;
        let mut bytes =
            Vec::with_capacity(2 * (self.ends.len() + 2) + self.values.len() + value.len());
        if self.size > 0 {
            bytes.extend((self.size as u16).to_le_bytes());
        } else {
            let (ends, later) = self.ends.split_at_checked(at)?;
            bytes.extend((self.n as u16 + 1).to_le_bytes());
            bytes.extend(ends.as_flattened());
            bytes.extend(((start + value.len()) as u16).to_le_bytes());
            for end in later {
                let end = usize::from(u16::from_le_bytes(*end)) + value.len();
                bytes.extend((end as u16).to_le_bytes());
            }
        }
        for part in [before, value, behind] {
            bytes.extend_from_slice(part);
        }
        Some(bytes)
    }

    /// Where a value is, or would be. The page is the leaf's with this number.
    pub(super) fn search(&self, value: &[u8], order: Order, leaf: PageNo) -> Result<Found> {
        Found::by(0..self.n, |at| {
            let other = self.get(at);
            order.compare(other.ok_or_else(|| damaged(leaf))?, value)
        })
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
            let in_order = match before {
                Some(before) if !order.is_unknown() => {
                    matches!(order.compare(before, value), Ok(Ordering::Less))
                }
                _ => true,
            };
            if !in_order {
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
