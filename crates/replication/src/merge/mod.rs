//! Merging: what another replica tells becomes part of this one.
//!
//! Each register keeps its latest change, and everything else follows from the registers. So the outcome depends on
//! which changes have come, and neither on their order and way nor on how often they came. A replica always has all
//! that the makers of its changes knew: a bundle brings everything up to a vector, in one commit. That tells what is a
//! conflict. Two changes of a register conflict if neither maker knew of the other change, which is so
//!
//! - for a change that comes and is earlier than one that is here: who made the latter did not have the former, or
//!   it would be here;
//! - for a change that is here and earlier than one that comes: if the sender does not have it, nor had the maker of
//!   what comes. If the sender has it, it was the sender, or somebody before, who wrote the line in the log.
//!
//! A local update is merged, too, by [`update`]: as a bundle of somebody who knows all that is known here.
//!
//! The steps: births, then [`moves`], then deletes and [`registers`] entry by entry, or each [`entry`] as a whole, and
//! at last [`names`]: who is seen, and by which name.

mod entry;
mod moves;
mod names;
mod registers;

pub use entry::counts;
pub use names::compare_claims;

use std::collections::BTreeMap;

use sapwood_ldap::csn::Csn;

use crate::{
    Bundle, Change, Conflict, EntryChanges, Lost, Node, Place, Replica, Rule, Shown, Stamp, Uuid,
    Vector, What,
};

/// How far ahead of this replica's clock a change may be: one hour, in microseconds. Later ones wait, or a clock that
/// is wrong by years would make all clocks wrong.
pub const AHEAD_MICROS_MAX: u64 = 3_600_000_000;

/// Why a bundle was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError<E> {
    /// It has a change that was made more than [`AHEAD_MICROS_MAX`] in the future. It can be applied later; somebody's
    /// clock is wrong.
    #[error("the change {0} lies more than an hour in the future: a clock is wrong")]
    Ahead(Csn),
    /// It was made for somebody who has more than this replica, which has lost something since then. It has to ask
    /// anew.
    #[error("what was sent begins behind what is here: it has to be asked for anew")]
    Gap,
    /// What would be needed to merge it is not kept any more. The sender has been away for too long, and has to begin
    /// anew, with a copy of another replica.
    #[error("the other replica has been away for too long: it has to begin anew, with a copy")]
    Expired,
    /// It is about an entry, or something below an entry, that it should have told of before.
    #[error("the entry {0} is not known: the other replica has left it out")]
    Unknown(Uuid),
    /// An entry is said to have been added a second time, at another time or place.
    #[error("the entry {0} was added twice")]
    AddedTwice(Uuid),
    /// An attribute's values are registers of one kind here and of another there. The schemas differ.
    #[error(
        "the other replica has another schema: it keeps the values of an attribute of {0} otherwise"
    )]
    Kind(Uuid),
    /// An entry is one register here and several there, or the other way round.
    #[error("the other replica resolves conflicts otherwise: so it changes the entry {0}")]
    Resolution(Uuid),
    /// A change is later than what the sender says it has.
    #[error("the change {0} is not within the vector of the other replica")]
    Beyond(Csn),
    /// The replica's tables failed.
    #[error(transparent)]
    Replica(#[from] E),
}

type Result<T, R> = std::result::Result<T, MergeError<<R as Replica>::Error>>;

/// Applies what another replica has told. `now` is this replica's clock, in microseconds since 1970.
///
/// All of it belongs into one commit, or on an error, nothing.
///
/// # Errors
/// When the bundle does not fit or the replica fails.
pub fn merge<R: Replica>(replica: &mut R, bundle: &Bundle, now: u64) -> Result<(), R> {
    let known = replica.vector()?;
    let is_new = |csn: &Csn| !known.covers(*csn);
    let latest = now.saturating_add(AHEAD_MICROS_MAX);
    let mut told = bundle.upto.iter().filter(is_new);
    if let Some(ahead) = told.find(|csn| csn.micros > latest) {
        return Err(MergeError::Ahead(ahead));
    }
    if !known.covers_all(&bundle.since) {
        return Err(MergeError::Gap);
    }
    if !bundle.upto.covers_all(&replica.pruned()?) {
        return Err(MergeError::Expired);
    }
    apply(replica, bundle, known)
}

/// Applies updates that were made here, under numbers that are greater than all that are known. What a client may do
/// was checked before.
///
/// # Errors
/// When the updates do not fit each other or the replica fails.
pub fn update<R: Replica>(replica: &mut R, entries: Vec<EntryChanges>) -> Result<(), R> {
    let known = replica.vector()?;
    let mut upto = known.clone();
    let changes = entries.iter().flat_map(|entry| &entry.changes);
    changes.for_each(|change| upto.advance(change.csn));
    let bundle = Bundle {
        since: known.clone(),
        upto,
        entries,
        conflicts: Vec::new(),
    };
    apply(replica, &bundle, known)
}

fn apply<R: Replica>(replica: &mut R, bundle: &Bundle, known: Vector) -> Result<(), R> {
    let mut merge = Merge {
        replica,
        known,
        sender: &bundle.upto,
        nodes: BTreeMap::new(),
    };
    merge.additions(&bundle.entries)?;
    merge.moves(&bundle.entries)?;
    for entry in &bundle.entries {
        merge.registers(entry)?;
    }
    merge.names()?;
    for conflict in &bundle.conflicts {
        merge.replica.put_conflict(conflict)?;
    }
    let Merge { known, .. } = merge;
    let mut vector = known;
    vector.join(&bundle.upto);
    Ok(replica.put_vector(&vector)?)
}

/// A bundle while it is applied.
struct Merge<'m, R> {
    replica: &'m mut R,
    /// What the replica had before.
    known: Vector,
    /// What the sender has.
    sender: &'m Vector,
    /// Entries that change, and are not written down yet.
    nodes: BTreeMap<Uuid, Node>,
}

impl<R: Replica> Merge<'_, R> {
    /// The entries that are new come into being, those above before those below.
    fn additions(&mut self, entries: &[EntryChanges]) -> Result<(), R> {
        let mut additions: Vec<(Csn, Uuid, &Place)> = Vec::new();
        for entry in entries {
            for change in &entry.changes {
                if !self.sender.covers(change.csn) {
                    return Err(MergeError::Beyond(change.csn));
                }
                if let What::Born(place) = &change.what {
                    additions.push((change.csn, entry.entry, place));
                }
            }
        }
        additions.sort_unstable();
        for (birth, entry, place) in additions {
            if let Some(node) = self.node(entry)? {
                match (node.birth, &node.born) == (birth, place) {
                    true => continue,
                    false => return Err(MergeError::AddedTwice(entry)),
                }
            }
            // The bundle was on its way for so long that the entry was deleted and forgotten. Its delete is not new,
            // so the entry would come back for good.
            if self.known.covers(birth) {
                continue;
            }
            self.require(place.parent)?;
            let node = Node {
                birth,
                born: place.clone(),
                place: place.clone(),
                placed: birth,
                deleted: None,
                shown: Shown::Hidden,
                stamp: Stamp::default(),
            };
            self.nodes.insert(entry, node);
        }
        Ok(())
    }

    /// An entry as it is by now.
    fn node(&self, entry: Uuid) -> Result<Option<Node>, R> {
        match self.nodes.get(&entry) {
            Some(node) => Ok(Some(node.clone())),
            None => Ok(self.replica.node(entry)?),
        }
    }

    /// Sees that there is an entry to be placed below.
    fn require(&self, parent: Uuid) -> Result<(), R> {
        match parent == Uuid::NIL || self.node(parent)?.is_some() {
            true => Ok(()),
            false => Err(self.unknown(parent)?),
        }
    }

    /// What is wrong if an entry is not known.
    fn unknown(&self, entry: Uuid) -> Result<MergeError<R::Error>, R> {
        let is_pruned = !self.replica.pruned()?.is_empty();
        Ok(match is_pruned {
            true => MergeError::Expired,
            false => MergeError::Unknown(entry),
        })
    }

    /// The changes of an entry that are new here.
    fn fresh<'e>(&self, entry: &'e EntryChanges) -> Vec<&'e Change> {
        let is_new = |change: &&Change| !self.known.covers(change.csn);
        entry.changes.iter().filter(is_new).collect()
    }

    /// Writes a line of the conflict log.
    fn log(
        &mut self,
        entry: Uuid,
        (loser, lost): (Csn, Lost),
        winner: Csn,
        rule: Rule,
    ) -> Result<(), R> {
        let conflict = Conflict {
            loser,
            entry,
            lost,
            winner,
            rule,
        };
        Ok(self.replica.put_conflict(&conflict)?)
    }
}
