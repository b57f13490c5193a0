//! Ranks, counts and estimates.

use std::ops::Bound;

use super::{Step, Steps, View};
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
        if self.height() == 0 {
            return Ok(0);
        }
        let (low, high) = (self.cuts(from, true)?, self.cuts(to, false)?);
        let Some(fork) = (0..self.height())
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
        let mut steps = Steps::default();
        let each = |level: usize, step, _| steps[level] = step;
        let Some((_, found)) = self.search(key, each)? else {
            return Ok(0);
        };
        let mut sum = found.slot as u64 + u64::from(found.exact && and_it);
        for (level, Step { page, slot }) in (0..self.height()).zip(steps).skip(1) {
            sum = sum.saturating_add(self.open(page, level)?.records_before(slot)?);
        }
        Ok(sum)
    }

    /// The way to a bound in a tree that is not empty, by level: to the child that it belongs to; in a leaf, to before
    /// its record, or behind it.
    fn cuts(&self, bound: Bound<&[u8]>, lower: bool) -> Result<[Cut; HEIGHT_MAX]> {
        let mut steps = Steps::default();
        let mut cuts = [Cut::default(); HEIGHT_MAX];
        let cut = |leaf: Node<'_>, slot| Cut {
            slot,
            n: leaf.len(),
        };
        cuts[0] = match bound {
            Bound::Included(key) | Bound::Excluded(key) => {
                let behind = lower != matches!(bound, Bound::Included(_));
                let found = self.search(key, |level, step, _| steps[level] = step)?;
                found.map_or(Cut::default(), |(leaf, found)| {
                    cut(leaf, found.slot + usize::from(found.exact && behind))
                })
            }
            Bound::Unbounded => {
                let each = |level: usize, step| steps[level] = step;
                let (leaf, slot) = self.edge(self.root()?, self.height(), !lower, each)?;
                cut(leaf, slot + usize::from(!lower))
            }
        };
        for level in 1..self.height() {
            let Step { page, slot } = steps[level];
            let n = self.open(page, level)?.len();
            cuts[level] = Cut { slot, n };
        }
        Ok(cuts)
    }
}
