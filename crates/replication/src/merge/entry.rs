//! Entries that are one register ([`Resolution::Entry`](crate::Resolution::Entry)): of all that was done to an entry
//! the change with the greatest number counts, be it a delete or what an update has left of the entry. So an update
//! brings an entry back that was deleted before it, if the updater did not know of that.

use sapwood_ldap::csn::Csn;

use super::{Merge, MergeError, Result};
use crate::{Attributes, Change, Lost, Replica, Rule, Uuid, What};

/// Whether a change of an entry that is one register counts, of which another change is known: the later one does. The
/// same number twice is one change that is told again, or a delete that bears the number of what it has deleted.
pub fn counts(change: Csn, is_delete: bool, known: Csn) -> bool {
    change > known || is_delete && change == known
}

impl<R: Replica> Merge<'_, R> {
    /// Applies what is new of an entry, but for its birth and its moves, which are followed already.
    pub(super) fn entry(&mut self, entry: Uuid, mut fresh: Vec<&Change>) -> Result<(), R> {
        fresh.sort_by_key(|change| change.csn);
        for change in fresh {
            match &change.what {
                What::Born(_) => {}
                What::Moved(_) => self.log_if_deleted(entry, change)?,
                What::Deleted => self.gone(entry, change.csn)?,
                What::All(attributes) => self.left(entry, change, attributes)?,
                What::Value { .. } | What::Cleared(_) | What::Whole(..) => {
                    return Err(MergeError::Resolution(entry));
                }
            }
        }
        Ok(())
    }

    /// Logs an earlier change of an entry that was deleted after it.
    fn log_if_deleted(&mut self, entry: Uuid, change: &Change) -> Result<(), R> {
        if let Some(deleted) = self.node(entry)?.and_then(|node| node.deleted)
            && change.csn < deleted
            && let Some(lost) = self.replica.loss(&change.what)
        {
            self.log(entry, (change.csn, lost), deleted, Rule::Deleted)?;
        }
        Ok(())
    }

    /// An entry was deleted.
    fn gone(&mut self, entry: Uuid, deleted: Csn) -> Result<(), R> {
        let Some(mut node) = self.node(entry)? else {
            return Err(MergeError::Unknown(entry));
        };
        let (left, _) = self.replica.all(entry)?;
        if node.deleted.is_none() && !counts(deleted, true, left) {
            return self.log(entry, (deleted, Lost::Delete), left, Rule::Later);
        }
        let was_deleted = node.deleted;
        node.deleted = was_deleted.max(Some(deleted));
        self.nodes.insert(entry, node);
        match was_deleted {
            None => self.delete(entry, deleted),
            Some(_) => Ok(()),
        }
    }

    /// An update has left an entry with these attributes.
    fn left(&mut self, entry: Uuid, change: &Change, attributes: &Attributes) -> Result<(), R> {
        let Some(mut node) = self.node(entry)? else {
            return Err(MergeError::Unknown(entry));
        };
        if let Some(deleted) = node.deleted {
            if !counts(change.csn, false, deleted) {
                return self.log_if_deleted(entry, change);
            }
            if !self.sender.covers(deleted) {
                self.log(entry, (deleted, Lost::Delete), change.csn, Rule::Later)?;
            }
            node.deleted = None;
            self.nodes.insert(entry, node);
            return Ok(self.replica.put_all(entry, change.csn, attributes)?);
        }
        let (old_csn, old) = self.replica.all(entry)?;
        let old = Change {
            csn: old_csn,
            what: What::All(old),
        };
        let (loser, winner) = match change.csn > old.csn {
            true => (&old, change),
            false => (change, &old),
        };
        let is_conflict = change.csn < old.csn || !self.sender.covers(old.csn);
        if is_conflict
            && loser.what != winner.what
            && let Some(lost) = self.replica.loss(&loser.what)
        {
            self.log(entry, (loser.csn, lost), winner.csn, Rule::Later)?;
        }
        if counts(change.csn, false, old.csn) {
            self.replica.put_all(entry, change.csn, attributes)?;
        }
        Ok(())
    }
}
