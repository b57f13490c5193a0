//! What a replica tells another one: all that has changed since the other one's vector.

use crate::{Change, Conflict, EntryChanges, Node, Replica, Uuid, Vector, What};

/// What brings a replica from one vector to another. It is applied as a whole, in one commit, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    /// What the receiver had when this was made for it. It may have more by now, but not less.
    pub since: Vector,
    /// What the sender has, all of which the receiver has when it has applied this.
    pub upto: Vector,
    /// What has changed, entry by entry.
    pub entries: Vec<EntryChanges>,
    /// Lines of the sender's conflict log.
    pub conflicts: Vec<Conflict>,
}

/// Why somebody cannot be told only what has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinceError<E> {
    /// Changes that they lack have no record any more. They have to begin anew, with a copy of another replica.
    #[error(
        "what has changed since then is not known any more: the replica has to begin anew, with a copy"
    )]
    Expired,
    /// The replica's tables failed.
    #[error(transparent)]
    Replica(#[from] E),
}

impl Bundle {
    /// What a replica has and a vector does not cover: each register as it is now, so that many changes of one are one.
    ///
    /// # Errors
    /// When not all of that is known, or the replica fails.
    pub fn since<R: Replica>(
        replica: &R,
        since: &Vector,
    ) -> std::result::Result<Bundle, SinceError<R::Error>> {
        if !since.covers_all(&replica.pruned()?) {
            return Err(SinceError::Expired);
        }
        let mut entries = Vec::new();
        for entry in replica.changed_since(since)? {
            let Some(node) = replica.node(entry)? else {
                continue;
            };
            let mut changes = changes_of(replica, entry, &node)?;
            changes.retain(|change| !since.covers(change.csn));
            if !changes.is_empty() {
                entries.push(EntryChanges {
                    entry,
                    stamp: node.stamp,
                    changes,
                });
            }
        }
        Ok(Bundle {
            since: since.clone(),
            upto: replica.vector()?,
            entries,
            conflicts: replica.conflicts_since(since)?,
        })
    }
}

/// All changes of an entry that have a record, its birth among them.
pub(crate) fn changes_of<R: Replica>(
    replica: &R,
    entry: Uuid,
    node: &Node,
) -> Result<Vec<Change>, R::Error> {
    let born = Change {
        csn: node.birth,
        what: What::Born(node.born.clone()),
    };
    let moves = replica.moves_of(entry)?.into_iter().map(|made| Change {
        csn: made.csn,
        what: What::Moved(made.to),
    });
    let deleted = node.deleted.map(|csn| Change {
        csn,
        what: What::Deleted,
    });
    let changes = [born].into_iter().chain(moves).chain(deleted);
    Ok(changes.chain(replica.registers(entry)?).collect())
}
