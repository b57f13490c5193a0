//! Ranks, counts and estimates.

use std::ops::Bound;

use super::{Order, View};
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::limits::HEIGHT_MAX;
use crate::tree::node::Node;

/// Where a bound lies between the records of one page on its way: before the entry at `slot` of `n`.
#[derive(Clone, Copy, Default)]
struct Cut {
    slot: usize,
    n: usize,
}

impl<'p, P: ReadPages + ?Sized> View<'p, P> {
    /// How many records have a key less than `key`. Counted trees only; O(log n).
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use std::ops::Bound;
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let scores = txn.create_tree("scores", TreeKind::COUNTED)?;
    /// for score in 0..1000_u32 {
    ///     txn.put(scores, &(score * 3).to_be_bytes(), b"")?;
    /// }
    /// let scores = txn.view(scores)?;
    /// assert_eq!(scores.rank(&300_u32.to_be_bytes())?, 100);
    /// let above = Bound::Excluded(&2700_u32.to_be_bytes()[..]);
    /// assert_eq!(scores.count(above, Bound::Unbounded)?, 99);
    /// let mut cursor = scores.cursor();
    /// assert!(cursor.seek_nth(500)?);
    /// assert_eq!(cursor.key()?, Some(&1500_u32.to_be_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn rank(&self, key: &[u8]) -> Result<u64> {
        self.records_before(key, false)
    }

    /// How many records lie between the bounds. Counted trees only; O(log n).
    pub fn count(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
        let before = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.records_before(key, false)?,
            Bound::Excluded(key) => self.records_before(key, true)?,
        };
        let end = match to {
            Bound::Unbounded => self.record.records,
            Bound::Included(key) => self.records_before(key, true)?,
            Bound::Excluded(key) => self.records_before(key, false)?,
        };
        Ok(end.saturating_sub(before))
    }

    /// About how many records lie between the bounds, in O(log n): exact in a counted tree; otherwise exact within one
    /// leaf, and beyond that judged from how full the pages on the two search paths are.
    pub fn estimate(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
        if self.record.kind.counted {
            return self.count(from, to);
        }
        let height = usize::from(self.record.height);
        let (low, high) = (self.cuts(from, true)?, self.cuts(to, false)?);
        let Some(fork) = (0..height)
            .rev()
            .find(|&level| low[level].slot != high[level].slot)
        else {
            return Ok(0);
        };
        if low[fork].slot > high[fork].slot {
            return Ok(0);
        }
        // Records below one entry of a level, from the pages of both paths.
        let mut below = 1.0;
        let mut sum = 0.0;
        for level in 0..=fork {
            let (low, high) = (low[level], high[level]);
            sum += below
                * if level == 0 && fork == 0 {
                    (high.slot - low.slot) as f64
                } else if level == fork {
                    (high.slot - low.slot - 1) as f64
                } else if level == 0 {
                    (low.n - low.slot + high.slot) as f64
                } else {
                    (low.n - low.slot - 1 + high.slot) as f64
                };
            below *= (low.n + high.n) as f64 / 2.0;
        }
        Ok((sum as u64).min(self.record.records))
    }

    fn records_before(&self, key: &[u8], and_it: bool) -> Result<u64> {
        if !self.record.kind.counted {
            return Err(Error::NotCounted);
        }
        let mut sum = 0u64;
        let mut number = self.root()?;
        for level in (0..usize::from(self.record.height)).rev() {
            let node = self.open(number, level)?;
            if level == 0 {
                let place = node.search(key, 0, self.orders.keys)?;
                return Ok(sum.saturating_add(place.slot as u64 + u64::from(place.exact && and_it)));
            }
            let slot = node.child_slot(key, self.orders.keys)?;
            sum = sum.saturating_add(node.records_before(slot)?);
            number = node.child(slot)?.page;
        }
        Ok(sum)
    }

    /// The way to a bound, by level.
    fn cuts(&self, bound: Bound<&[u8]>, lower: bool) -> Result<[Cut; HEIGHT_MAX]> {
        let mut cuts = [Cut::default(); HEIGHT_MAX];
        let mut number = self.root()?;
        for level in (0..usize::from(self.record.height)).rev() {
            let node = self.open(number, level)?;
            let slot = match bound {
                Bound::Included(key) | Bound::Excluded(key) => slot_of(
                    &node,
                    key,
                    level,
                    self.orders.keys,
                    lower != matches!(bound, Bound::Included(_)),
                )?,
                Bound::Unbounded if lower => 0,
                Bound::Unbounded if level > 0 => node.len().saturating_sub(1),
                Bound::Unbounded => node.len(),
            };
            cuts[level] = Cut {
                slot,
                n: node.len(),
            };
            if level > 0 {
                number = node.child(slot)?.page;
            }
        }
        Ok(cuts)
    }
}

/// The child that a key belongs to; in a leaf, the place before its record, or behind it.
fn slot_of(node: &Node<'_>, key: &[u8], level: usize, order: Order, behind: bool) -> Result<usize> {
    if level > 0 {
        return node.child_slot(key, order);
    }
    let place = node.search(key, 0, order)?;
    Ok(place.slot + usize::from(place.exact && behind))
}
