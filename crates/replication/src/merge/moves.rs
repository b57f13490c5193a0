//! Moves. They are followed in the order of their numbers, and one that would put an entry below itself is left out.
//!
//! Two replicas may each make a move that is harmless there, and that make a ring together: one puts A below B, the
//! other B below A. Which of all moves are left out has to be the same everywhere. So when a move arrives that was made
//! before some that are here, these are undone, and all are done in their order. (M. Kleppmann and others, "A highly-
//! available move operation for replicated trees", 2021.) Births need not be undone: who is born has nobody below.

use std::collections::BTreeMap;

use sapwood_ldap::csn::Csn;

use super::{Merge, MergeError, Result};
use crate::{EntryChanges, Lost, Move, Node, Replica, Rule, Uuid, What};

impl<R: Replica> Merge<'_, R> {
    /// Follows the moves that are new, and anew those that were made after the first of them.
    pub(super) fn moves(&mut self, entries: &[EntryChanges]) -> Result<(), R> {
        let new = self.new_moves(entries)?;
        let Some(first) = new.keys().next().map(|(csn, _)| *csn) else {
            return Ok(());
        };
        let mut old = BTreeMap::new();
        for made in self.replica.moves_from(first)? {
            old.insert((made.csn, made.entry), made);
        }
        for made in old.values().rev() {
            if let Some((place, placed)) = &made.from {
                let mut node = self.mover(made)?;
                node.place = place.clone();
                node.placed = *placed;
                self.nodes.insert(made.entry, node);
            }
        }
        let mut all: Vec<Move> = old.values().chain(new.values()).cloned().collect();
        all.sort_by_key(|made| (made.csn, made.entry));
        for mut made in all {
            let before = old.get(&(made.csn, made.entry));
            let in_the_way = self.ring(&made)?;
            made.from = match in_the_way {
                Some(_) => None,
                None => {
                    let mut node = self.mover(&made)?;
                    let from = (node.place, node.placed);
                    node.place = made.to.clone();
                    node.placed = made.csn;
                    self.nodes.insert(made.entry, node);
                    Some(from)
                }
            };
            if let Some(winner) = in_the_way
                && before.is_none_or(|before| before.from.is_some())
            {
                let lost = (made.csn, Lost::Place);
                self.log(made.entry, lost, winner, Rule::Ring)?;
            }
            if before != Some(&made) {
                self.replica.put_move(&made)?;
            }
        }
        self.log_overtaken(&new)
    }

    fn new_moves(&self, entries: &[EntryChanges]) -> Result<BTreeMap<(Csn, Uuid), Move>, R> {
        let mut new = BTreeMap::new();
        for entry in entries {
            for change in self.fresh(entry) {
                let What::Moved(to) = &change.what else {
                    continue;
                };
                // What is left of a deleted entry may be nothing; a replica that has more of it has written the line.
                if self.node(entry.entry)?.is_none() {
                    match self.unknown(entry.entry)? {
                        MergeError::Expired => continue,
                        unknown => return Err(unknown),
                    }
                }
                self.require(to.parent)?;
                let made = Move {
                    csn: change.csn,
                    entry: entry.entry,
                    to: to.clone(),
                    from: None,
                };
                new.insert((change.csn, entry.entry), made);
            }
        }
        if let Some((first, _)) = new.keys().next()
            && *first <= self.replica.moves_pruned()?
        {
            return Err(MergeError::Expired);
        }
        Ok(new)
    }

    /// The entry that a move is about.
    fn mover(&self, made: &Move) -> Result<Node, R> {
        match self.node(made.entry)? {
            Some(node) => Ok(node),
            None => Err(MergeError::Unknown(made.entry)),
        }
    }

    /// Whether a move would put its entry below itself; the last of the moves that are in the way.
    fn ring(&self, made: &Move) -> Result<Option<Csn>, R> {
        let mut last = Csn::default();
        let mut above = made.to.parent;
        // This ends: what was followed so far has made no ring.
        while let Some(node) = self.node(above)? {
            if above == made.entry {
                return Ok(Some(last));
            }
            last = last.max(node.placed);
            above = node.place.parent;
        }
        Ok(None)
    }

    /// Logs moves behind which another one of the entry was made that did not know of them. The later one counts: if it
    /// is left out now, another move may change that.
    fn log_overtaken(&mut self, new: &BTreeMap<(Csn, Uuid), Move>) -> Result<(), R> {
        for Move { csn, entry, to, .. } in new.values() {
            for made in self.replica.moves_of(*entry)? {
                let is_here = self.known.covers(made.csn);
                let (loser, winner) = match made.csn > *csn {
                    true => (*csn, made.csn),
                    false => (made.csn, *csn),
                };
                let is_conflict = made.csn > *csn || !self.sender.covers(made.csn);
                // Nothing is lost where both have put it to one place.
                if is_here && is_conflict && made.to != *to {
                    self.log(*entry, (loser, Lost::Place), winner, Rule::Later)?;
                }
            }
        }
        Ok(())
    }
}
