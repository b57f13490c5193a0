//! Deletes, and the values of attributes.
//!
//! Of each register the change with the greatest number counts. A value of a [`Kind::Values`] attribute is a register
//! of its own; a clear counts as the delete of all values before it, and an add with the number of the clear, made by
//! the same update, as later. A delete of the entry wins over everything that did not know of it, also over later
//! changes.
//!
//! With [`Resolution::Entry`] the entry is one register: `entry.rs`.

use sapwood_ldap::csn::Csn;

use super::{Merge, MergeError, Result};
use crate::{
    Attribute, Change, EntryChanges, Kind, Lost, Register, Replica, Resolution, Rule, Uuid, Value,
    What,
};

impl<R: Replica> Merge<'_, R> {
    /// Applies what is new of an entry, but for its birth and its moves, which are followed already.
    pub(super) fn registers(&mut self, told: &EntryChanges) -> Result<(), R> {
        let entry = told.entry;
        let Some(mut node) = self.node(entry)? else {
            // The sender has only what is left of a deleted entry, of which nothing is left here.
            return match self.unknown(entry)? {
                MergeError::Expired => Ok(()),
                unknown => Err(unknown),
            };
        };
        let fresh = self.fresh(told);
        node.stamp.join(&told.stamp);
        if self.replica.resolution() == Resolution::Entry {
            self.nodes.insert(entry, node);
            return self.entry(entry, fresh);
        }
        let deletes = fresh.iter().filter(|change| change.what == What::Deleted);
        let deleted = deletes.map(|change| change.csn).max();
        let was_deleted = node.deleted;
        node.deleted = node.deleted.max(deleted);
        self.nodes.insert(entry, node);
        if let (Some(deleted), None) = (deleted, was_deleted) {
            self.delete(entry, deleted)?;
        }
        for change in fresh {
            match (was_deleted, deleted) {
                // Glue can still be changed, by somebody who knows of the delete. A sender that has both changes has
                // written the line, if there was a conflict.
                (Some(deleted), _) => {
                    if (change.csn < deleted || !self.sender.covers(deleted))
                        && let Some(lost) = self.replica.loss(&change.what)
                    {
                        self.log(entry, (change.csn, lost), deleted, Rule::Deleted)?;
                    }
                }
                // Where both come from the line was written, if there was a conflict.
                (None, Some(_)) => {}
                (None, None) => self.register(entry, change)?,
            }
        }
        Ok(())
    }

    /// Deletes an entry. Logged is what the deleter did not know.
    pub(super) fn delete(&mut self, entry: Uuid, deleted: Csn) -> Result<(), R> {
        let registers = self.replica.registers(entry)?;
        let moves = self.replica.moves_of(entry)?.into_iter();
        let moves = moves.map(|made| Change {
            csn: made.csn,
            what: What::Moved(made.to),
        });
        for change in registers.into_iter().chain(moves) {
            if !self.sender.covers(change.csn)
                && self.known.covers(change.csn)
                && let Some(lost) = self.replica.loss(&change.what)
            {
                self.log(entry, (change.csn, lost), deleted, Rule::Deleted)?;
            }
        }
        Ok(self.replica.forget_registers(entry)?)
    }

    fn register(&mut self, entry: Uuid, change: &Change) -> Result<(), R> {
        let (attribute, is_whole) = match &change.what {
            What::Born(_) | What::Moved(_) | What::Deleted => return Ok(()),
            What::All(_) => return Err(MergeError::Resolution(entry)),
            What::Value { attribute, .. } | What::Cleared(attribute) => (attribute, false),
            What::Whole(attribute, _) => (attribute, true),
        };
        if is_whole == (self.replica.kind(attribute) == Kind::Values) {
            return Err(MergeError::Kind(entry));
        }
        match &change.what {
            What::Value {
                value, is_present, ..
            } => {
                let register = Register {
                    csn: change.csn,
                    is_present: *is_present,
                };
                self.value(entry, attribute, value, register)
            }
            What::Whole(_, values) => self.whole(entry, attribute, change.csn, values),
            _ => self.clear(entry, attribute, change.csn),
        }
    }

    fn value(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        value: &Value,
        new: Register,
    ) -> Result<(), R> {
        let old = self.replica.value(entry, attribute, value)?;
        let cleared = self.replica.cleared(entry, attribute)?;
        let lost = |csn| (csn, Lost::Value(attribute.clone(), value.clone()));
        if new.csn < cleared || new.csn <= old.csn {
            let is_here = old.is_present && cleared <= old.csn;
            if new.is_present && !is_here {
                let winner = cleared.max(old.csn);
                self.log(entry, lost(new.csn), winner, Rule::Later)?;
            }
            return Ok(());
        }
        if old.is_present && !new.is_present && !self.sender.covers(old.csn) {
            self.log(entry, lost(old.csn), new.csn, Rule::Later)?;
        }
        Ok(self.replica.put_value(entry, attribute, value, new)?)
    }

    fn clear(&mut self, entry: Uuid, attribute: &Attribute, cleared: Csn) -> Result<(), R> {
        if cleared <= self.replica.cleared(entry, attribute)? {
            return Ok(());
        }
        self.replica.put_cleared(entry, attribute, cleared)?;
        for (value, register) in self.replica.values(entry, attribute)? {
            if register.csn >= cleared {
                continue;
            }
            if register.is_present && !self.sender.covers(register.csn) {
                let lost = Lost::Value(attribute.clone(), value.clone());
                self.log(entry, (register.csn, lost), cleared, Rule::Later)?;
            }
            self.replica.forget_value(entry, attribute, &value)?;
        }
        Ok(())
    }

    fn whole(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        csn: Csn,
        values: &[Value],
    ) -> Result<(), R> {
        let (old_csn, old) = self.replica.whole(entry, attribute)?;
        let is_later = csn > old_csn;
        let (loser, lost, winner) = match is_later {
            true => (old_csn, &*old, csn),
            false => (csn, values, old_csn),
        };
        let is_conflict = !is_later || !self.sender.covers(old_csn);
        if is_conflict && loser != winner && old != values {
            let what = What::Whole(attribute.clone(), lost.to_vec());
            if let Some(lost) = self.replica.loss(&what) {
                self.log(entry, (loser, lost), winner, Rule::Later)?;
            }
        }
        match is_later {
            true => Ok(self.replica.put_whole(entry, attribute, csn, values)?),
            false => Ok(()),
        }
    }
}
