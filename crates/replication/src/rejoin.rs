//! A server that was away for too long. What has happened meanwhile has no record any more, and others do not listen to
//! it: it begins anew, with a copy of another server and a new number. This makes what it alone has part of that copy.
//!
//! Its changes cannot be merged under their own numbers, as others have settled what lies behind these
//! ([`Horizon`](crate::Horizon)). So they are made anew, now, and the rule is one about entries:
//!
//! - An entry that it has added is added. If the entry above has gone, it is placed below the next one above that. One
//!   that it has deleted again is added and deleted: another server that was away may have it, and add it.
//! - An entry whose entryCSN it has known is changed as it was changed here. What that replaces is in the log, also
//!   what the server knew: there may be earlier changes of it that came later, and these have no record.
//! - To other entries values are added; all else that was done to them has lost, and is in the log.

use std::collections::{BTreeMap, BTreeSet};

use sapwood_ldap::csn::Csn;

use crate::bundle::changes_of;
use crate::{
    Change, Conflict, EntryChanges, Kind, Lost, MergeError, Place, Replica, Resolution, Rule,
    Stamp, Uuid, Value, Vector, What, update,
};

/// Why a server cannot be made part of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejoinError<E> {
    /// The server has forgotten changes that the copy does not have: it has suspended those who did not have them.
    #[error(
        "this server has forgotten changes that others lack: export it, and compare with a copy of them"
    )]
    Forgotten,
    /// The copy lacks changes of members that the server has.
    #[error("the copy lacks changes of other servers that this one has: take a later one")]
    Behind,
    /// What the server has does not fit together, or tables failed.
    #[error(transparent)]
    Merge(#[from] MergeError<E>),
}

type Result<T, R> = std::result::Result<T, MergeError<<R as Replica>::Error>>;

/// Gives a copy what only a server has that was away, `old`. Its changes are made anew under `csn` and the numbers that
/// follow. These have to be greater than all that the copy and the server have, and of a new replica. Told is what was
/// made.
///
/// The copy has to be one of a member that has heard all other `members` since all agree that the server is none:
/// [`Horizon::settled`](crate::Horizon::settled) says so. What it lacks of others than members nobody will tell it. Nor
/// may the server have merged anything since it was suspended: another one that was, too, may have had the same, and an
/// entry that was made anew by both ways would have been added twice.
///
/// # Errors
/// When the server has forgotten what the copy lacks, the copy is too old, or tables fail. The copy is of no use then.
pub fn rejoin<R: Replica, O: Replica<Error = R::Error>>(
    copy: &mut R,
    old: &O,
    members: &BTreeSet<u16>,
    csn: Csn,
) -> std::result::Result<Vec<EntryChanges>, RejoinError<R::Error>> {
    let has = copy.vector().map_err(MergeError::Replica)?;
    let had = old.vector().map_err(MergeError::Replica)?;
    let forgotten = old.pruned().map_err(MergeError::Replica)?;
    if !has.covers_all(&forgotten) {
        return Err(RejoinError::Forgotten);
    }
    let is_behind = |csn: Csn| members.contains(&csn.replica) && !has.covers(csn);
    if had.iter().any(is_behind) {
        return Err(RejoinError::Behind);
    }
    let mut rejoin = Rejoin {
        copy,
        old,
        has,
        had,
        members,
    };
    Ok(rejoin.run(csn)?)
}

struct Rejoin<'r, R, O> {
    copy: &'r mut R,
    old: &'r O,
    /// What the copy had.
    has: Vector,
    /// What the server had.
    had: Vector,
    members: &'r BTreeSet<u16>,
}

/// What has become of an entry.
#[derive(Clone, Copy)]
enum Fate {
    /// Only the server has it.
    New,
    /// The server has known its entryCSN.
    Known,
    /// It was changed by this change.
    Changed(Csn),
    /// It was deleted by this change.
    Gone(Csn),
}

impl<R: Replica, O: Replica<Error = R::Error>> Rejoin<'_, R, O> {
    fn run(&mut self, mut csn: Csn) -> Result<Vec<EntryChanges>, R> {
        let mut updates: BTreeMap<(Csn, Uuid), Vec<What>> = BTreeMap::new();
        let mut fates: BTreeMap<Uuid, (Fate, Value)> = BTreeMap::new();
        for entry in self.old.changed_since(&self.has)? {
            let Some(node) = self.old.node(entry)? else {
                continue;
            };
            let mut changes = changes_of(self.old, entry, &node)?;
            changes.retain(|change| self.is_own(change.csn));
            let fate = self.fate(entry, node.birth)?;
            if changes.is_empty() {
                continue;
            }
            fates.insert(entry, (fate, node.stamp.modifier));
            for Change { csn, what } in changes {
                updates.entry((csn, entry)).or_default().push(what);
            }
        }
        self.take_over()?;
        let mut made = Vec::new();
        for ((before, entry), whats) in updates {
            let Some((fate, modifier)) = fates.get(&entry) else {
                continue;
            };
            let mut changes = Vec::new();
            for what in whats {
                if let Some(what) = self.anew(*fate, entry, before, what)? {
                    self.log_replaced(entry, &what, csn)?;
                    changes.push(Change { csn, what });
                }
            }
            if changes.is_empty() {
                continue;
            }
            let stamp = Stamp {
                csn,
                modifier: modifier.clone(),
            };
            let told = EntryChanges {
                entry,
                stamp,
                changes,
            };
            update(self.copy, vec![told.clone()])?;
            made.push(told);
            csn = csn.next();
        }
        Ok(made)
    }

    /// Whether nobody else will ever tell of a change.
    fn is_own(&self, csn: Csn) -> bool {
        !self.has.covers(csn) && !self.members.contains(&csn.replica)
    }

    fn fate(&self, entry: Uuid, birth: Csn) -> Result<Fate, R> {
        Ok(match self.copy.node(entry)? {
            None if self.is_own(birth) => Fate::New,
            None => Fate::Gone(Csn::default()),
            Some(node) => match node.deleted {
                Some(deleted) => Fate::Gone(deleted),
                None if self.had.covers(node.stamp.csn) => Fate::Known,
                None => Fate::Changed(node.stamp.csn),
            },
        })
    }

    /// The log of what the server has done goes on, and its old numbers stand for nothing that is still to come.
    fn take_over(&mut self) -> Result<(), R> {
        for line in self.old.conflicts_since(&self.has)? {
            if self.is_own(line.loser) {
                self.copy.put_conflict(&line)?;
            }
        }
        let mut vector = self.has.clone();
        let former = self.had.iter();
        former
            .filter(|csn| !self.members.contains(&csn.replica))
            .for_each(|csn| vector.advance(csn));
        Ok(self.copy.put_vector(&vector)?)
    }

    /// A change as it is to be made anew; `None` if it has lost.
    fn anew(&mut self, fate: Fate, entry: Uuid, csn: Csn, what: What) -> Result<Option<What>, R> {
        let (winner, lost) = match (fate, &what) {
            (Fate::Known, What::Born(_)) => return Ok(None),
            (Fate::New, What::Born(place)) => {
                let place = self.reachable(entry, csn, place)?;
                return Ok(Some(What::Born(place)));
            }
            (Fate::New | Fate::Known, What::Moved(place)) => {
                let place = self.reachable(entry, csn, place)?;
                return Ok(Some(What::Moved(place)));
            }
            (Fate::New | Fate::Known, _)
            | (
                Fate::Changed(_),
                What::Value {
                    is_present: true, ..
                },
            ) => return Ok(Some(what)),
            (Fate::Changed(winner), What::Deleted) => (winner, Some(Lost::Delete)),
            (Fate::Changed(winner) | Fate::Gone(winner), _) => (winner, self.copy.loss(&what)),
        };
        if let Some(lost) = lost {
            self.log(entry, (csn, lost), winner)?;
        }
        Ok(None)
    }

    /// A place that is there: below the next entry above that was not deleted.
    fn reachable(&mut self, entry: Uuid, csn: Csn, place: &Place) -> Result<Place, R> {
        let known = self.copy.node(entry)?;
        if known.is_some_and(|node| node.place == *place) {
            return Ok(place.clone());
        }
        let mut parent = place.parent;
        let mut gone = None;
        // This ends: the server has no rings.
        while parent != Uuid::NIL {
            let deleted = match self.copy.node(parent)? {
                Some(node) if node.deleted.is_none() => break,
                Some(node) => node.deleted,
                None => None,
            };
            gone = gone.or(Some(deleted.unwrap_or_default()));
            match self.old.node(parent)? {
                Some(node) => parent = node.place.parent,
                None => return Err(MergeError::Unknown(parent)),
            }
        }
        if let Some(winner) = gone {
            self.log(entry, (csn, Lost::Place), winner)?;
        }
        let rdn = place.rdn.clone();
        Ok(Place { parent, rdn })
    }

    /// Logs what a change that is made anew replaces.
    fn log_replaced(&mut self, entry: Uuid, what: &What, csn: Csn) -> Result<(), R> {
        let Some(node) = self.copy.node(entry)? else {
            return Ok(());
        };
        if let What::Moved(to) = what
            && node.placed != node.birth
            && node.place != *to
        {
            self.log(entry, (node.placed, Lost::Place), csn)?;
        }
        let is_replaced = |was: &What| match (what, was) {
            (What::Deleted, _) => true,
            (What::Cleared(attribute), What::Value { attribute: of, .. }) => of == attribute,
            (
                What::Value {
                    attribute,
                    value,
                    is_present: false,
                },
                What::Value {
                    attribute: of,
                    value: which,
                    ..
                },
            ) => (of, which) == (attribute, value),
            (What::Whole(attribute, new), What::Whole(of, old)) => of == attribute && old != new,
            (What::All(new), What::All(old)) => old != new,
            _ => false,
        };
        for was in self.present(entry)? {
            if is_replaced(&was.what)
                && let Some(lost) = self.copy.loss(&was.what)
            {
                self.log(entry, (was.csn, lost), csn)?;
            }
        }
        Ok(())
    }

    /// What the copy has of an entry. The numbers of changes that are forgotten are [`Csn::default`].
    fn present(&self, entry: Uuid) -> Result<Vec<Change>, R> {
        if self.copy.resolution() == Resolution::Entry {
            let (csn, attributes) = self.copy.all(entry)?;
            let what = What::All(attributes);
            return Ok(vec![Change { csn, what }]);
        }
        let mut present = Vec::new();
        for (attribute, _) in self.copy.attributes(entry)? {
            if self.copy.kind(&attribute) != Kind::Values {
                let (csn, values) = self.copy.whole(entry, &attribute)?;
                let what = What::Whole(attribute, values);
                present.push(Change { csn, what });
                continue;
            }
            for (value, register) in self.copy.values(entry, &attribute)? {
                let what = What::Value {
                    attribute: attribute.clone(),
                    value,
                    is_present: true,
                };
                let csn = register.csn;
                present.extend(register.is_present.then_some(Change { csn, what }));
            }
        }
        Ok(present)
    }

    fn log(&mut self, entry: Uuid, (loser, lost): (Csn, Lost), winner: Csn) -> Result<(), R> {
        let conflict = Conflict {
            loser,
            entry,
            lost,
            winner,
            rule: Rule::Late,
        };
        Ok(self.copy.put_conflict(&conflict)?)
    }
}
