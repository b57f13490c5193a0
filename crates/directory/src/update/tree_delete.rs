//! Tree delete (the control 1.2.840.113556.1.4.805): what a delete does with the entries below its target.
//!
//! They go deepest first, so that the tree is sound after each. For each the rights are asked for that a delete of this
//! entry alone takes, and rules answer it before the next one goes. All go in one commit if that is not too much for
//! one; otherwise as many as may go in one go, and the outcome says that the request is to be made again. In a
//! transaction, and with the control no-op, all have to go in one.

use std::num::NonZeroU32;
use std::ops::Bound;

use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::result::ResultCode;

use super::Run;
use super::rules::CANDIDATES_MAX;
use crate::access::{Rights, Slot};
use crate::engine::{Cursor, Direction, EntryId, Range, Read, Table, Write};
use crate::error::Result;
use crate::names::Child;
use crate::outcome::Stop;
use crate::steps;
use crate::target::{self, Target};

/// Entries that go in one commit, or in a transaction, and updates of rules in answer to them: what is done in a second
/// or less, in which nobody else's updates go on.
pub(super) const TREE_ENTRIES_MAX: u32 = 10_000;

/// Bytes of entries after which a commit takes no more of them: each is read, and taken out of the indexes.
const TREE_BYTES_MAX: u64 = 64 << 20;

/// An entry that goes, and where the name table has it.
struct Going {
    child: Child,
    parent: EntryId,
    /// As it stands there.
    rdn: Vec<u8>,
}

/// The children of an entry that is looked below.
struct Level {
    parent: EntryId,
    /// The key of the last one that was looked at.
    last_key: Vec<u8>,
    /// The entry, which goes behind them; none of the target.
    itself: Option<Going>,
}

impl Level {
    fn new(parent: EntryId, itself: Option<Going>) -> Level {
        Level {
            parent,
            last_key: parent.children_bounds().0.to_vec(),
            itself,
        }
    }
}

/// The first `most` entries below one in the order in which they go, and whether these are all.
fn gather<R: Read>(view: &R, target: EntryId, most: usize) -> Result<(Vec<Going>, bool)> {
    let mut gathered = Vec::new();
    let mut levels = vec![Level::new(target, None)];
    while let Some(level) = levels.last_mut() {
        let parent = level.parent;
        let (_, to) = parent.children_bounds();
        let range = Range {
            from: Bound::Excluded(&level.last_key),
            to: Bound::Excluded(&to),
        };
        let mut children = view.scan(Table::Name, range, Direction::Forward)?;
        let mut below = None;
        while let Some((key, value)) = children.next()? {
            steps::count(1);
            if gathered.len() == most {
                return Ok((gathered, false));
            }
            let child = Child::from_value(value)?;
            let rdn = key.get(parent.to_key().len()..).unwrap_or_default();
            let going = Going {
                child,
                parent,
                rdn: rdn.to_vec(),
            };
            if view.has_children(child.id)? {
                level.last_key.clear();
                level.last_key.extend_from_slice(key);
                below = Some(going);
                break;
            }
            gathered.push(going);
        }
        drop(children);
        match below {
            Some(going) => levels.push(Level::new(going.child.id, Some(going))),
            None => {
                let itself = levels.pop().and_then(|done| done.itself);
                if itself.is_some() && gathered.len() == most {
                    return Ok((gathered, false));
                }
                gathered.extend(itself);
            }
        }
    }
    Ok((gathered, true))
}

impl<T: Write> Run<'_, T> {
    /// Deletes an entry that has others below it, and these.
    pub(super) fn delete_tree(
        &mut self,
        target: &Target,
        controls: &RequestControls<'_>,
    ) -> std::result::Result<(), Stop> {
        let response = self.response.take();
        if self.delete_below(target.entry.id, controls)? {
            self.remove_entry(target.entry.id, target.parent, target.normal_rdn())?;
            // What rules have made in the meantime has no response.
            self.response = response;
        }
        Ok(())
    }

    /// Deletes what is below an entry; whether that is all gone, so that the entry can follow.
    fn delete_below(
        &mut self,
        target: EntryId,
        controls: &RequestControls<'_>,
    ) -> std::result::Result<bool, Stop> {
        let is_one_commit = self.in_transaction || controls.no_op.is_some();
        // The target goes with them.
        let most = self.removals_left.saturating_sub(1) as usize;
        let (going, mut is_all) = gather(self.txn, target, most)?;
        if is_one_commit && !is_all {
            return Err(too_many());
        }
        let (mut gone, mut bytes) = (0, 0_u64);
        for going in &going {
            if self.is_enough(bytes) {
                is_all = false;
                break;
            }
            let Going { child, parent, rdn } = going;
            self.require_removal(child.id, *parent)?;
            if child.flags.is_referral() && controls.manage_dsa_it.is_none() {
                let diagnostic = "below the entry is a referral to another server, whose entries would stay: it goes \
                                  as an entry with the control ManageDsaIT";
                return Err(Stop::refuse(ResultCode::AffectsMultipleDsas, diagnostic));
            }
            let removed = self.remove_entry(child.id, *parent, rdn)?;
            if self.in_transaction {
                self.count_written(usize::try_from(removed).unwrap_or(usize::MAX))?;
            }
            bytes = removed.saturating_add(bytes);
            gone += 1;
            self.make_queued()?;
        }
        self.removals_left = self.removals_left.saturating_sub(gone + 1);
        if is_all {
            return Ok(true);
        }
        if is_one_commit {
            return Err(too_many());
        }
        self.unfinished = NonZeroU32::new(gone);
        Ok(false)
    }

    /// Whether a commit in which so many bytes of entries were deleted takes no more.
    fn is_enough(&self, bytes: u64) -> bool {
        // Bytes of a transaction are counted with all that it writes, and its candidates with all that it looks at.
        let is_long = bytes >= TREE_BYTES_MAX || self.candidates_left < CANDIDATES_MAX / 2;
        self.followed >= TREE_ENTRIES_MAX || is_long && !self.in_transaction
    }

    /// Refuses who may not delete an entry below the target. It is not named: perhaps they may not know of it.
    fn require_removal(&mut self, id: EntryId, parent: EntryId) -> std::result::Result<(), Stop> {
        if self.limited().is_none() {
            return Ok(());
        }
        let Some(named) = self.names.superior(self.txn, id)?.cloned() else {
            return Ok(());
        };
        let normal = target::parse(self.schema, &named.dn)?;
        let wanted = (Slot::ENTRY, Rights::DELETE);
        self.require(&normal, id, wanted, "delete all that is below this entry")?;
        self.require_above(&normal, parent, Rights::DELETE)
    }
}

fn too_many() -> Stop {
    let diagnostic = format!(
        "a transaction, and a trial, deletes at most {TREE_ENTRIES_MAX} entries with what is below others, and as many \
         as rules answer with so many updates: delete the tree by itself, or part by part"
    );
    Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic)
}
