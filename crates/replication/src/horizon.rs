//! What need not be known any more: the numbers of changes, and what is left of deleted entries.
//!
//! A number is needed as long as a change may come that has to be compared with it, and as long as somebody has to be
//! told of the change. A change is *settled*, and neither can happen, when
//!
//! - all members have it, and
//! - all that is still to come is later. Each bundle's vector says of its sender: what I make from now on is later than
//!   my own number in it. Up to the least of these numbers everything is here, also of members of former days, if all
//!   members agree who is one and who was: nobody listens to others.
//!
//! A member that stays away keeps everything from being settled, until it is suspended ([`prune`] with
//! [`Settled::all_of`]). It has to begin anew then, with a copy of another replica.

use std::collections::{BTreeMap, BTreeSet};

use sapwood_ldap::csn::Csn;

use crate::{Replica, Vector};

/// Who is a member, and who was. Numbers are not used again, so no two times are the same: what a member has said
/// before somebody came and went is not taken for said after that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those that are listened to.
    pub now: BTreeSet<u16>,
    /// Those that were, and are suspended.
    pub former: BTreeSet<u16>,
}

impl Members {
    /// A replica is suspended.
    pub fn suspend(&mut self, replica: u16) {
        if self.now.remove(&replica) {
            self.former.insert(replica);
        }
    }
}

/// What the members were known to have when they were heard last. It is kept in memory: after a restart it comes anew.
#[derive(Clone, Debug, Default)]
pub struct Horizon {
    heard: BTreeMap<u16, (Vector, Members)>,
}

/// Which changes are settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// All that is still to come is later.
    upto: Csn,
    /// All members have it.
    acknowledged: Vector,
}

impl Horizon {
    /// Takes in the vector of a bundle that was applied, and who is and was a member for its sender.
    pub fn hear(&mut self, member: u16, vector: Vector, members: Members) {
        self.heard.insert(member, (vector, members));
    }

    /// Which changes are settled for a replica that has this vector; `None` as long as not all members were heard, or
    /// they do not agree who is and was one. Its own number in the vector promises what those of others do.
    pub fn settled(&self, own: u16, vector: &Vector, members: &Members) -> Option<Settled> {
        let mut settled = Settled {
            upto: vector.of(own),
            acknowledged: vector.clone(),
        };
        for member in members.now.iter().filter(|member| **member != own) {
            let (theirs, their_members) = self.heard.get(member)?;
            if their_members != members || !vector.covers_all(theirs) {
                return None;
            }
            settled.upto = settled.upto.min(theirs.of(*member));
            settled.acknowledged = settled.acknowledged.meet(theirs);
        }
        Some(settled)
    }
}

impl Settled {
    /// All that was made until some time, for a replica that has this vector: a replica without it is suspended.
    pub fn all_of(vector: &Vector, upto: Csn) -> Settled {
        Settled {
            upto,
            acknowledged: vector.clone(),
        }
    }

    /// Whether a change is settled.
    pub fn has(&self, csn: Csn) -> bool {
        csn <= self.upto && self.acknowledged.covers(csn)
    }

    /// Up to where changes of each replica may be settled.
    fn vector(&self) -> Vector {
        let each = self.acknowledged.iter().map(|csn| {
            let replica = csn.replica;
            csn.min(Csn {
                replica,
                ..self.upto
            })
        });
        each.collect()
    }
}

/// Forgets what is settled.
///
/// # Errors
/// When the replica fails.
pub fn prune<R: Replica>(replica: &mut R, settled: &Settled) -> Result<(), R::Error> {
    replica.forget(&|csn| settled.has(csn))?;
    let mut pruned = replica.pruned()?;
    pruned.join(&settled.vector());
    replica.put_pruned(&pruned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csn(micros: u64, replica: u16) -> Csn {
        Csn {
            micros,
            count: 0,
            replica,
        }
    }

    #[test]
    fn a_change_is_settled_when_all_have_it_and_all_that_comes_is_later() {
        let vector = |csns: &[Csn]| csns.iter().copied().collect::<Vector>();
        let of = |now: &[u16], former: &[u16]| Members {
            now: now.iter().copied().collect(),
            former: former.iter().copied().collect(),
        };
        let members = of(&[1, 2, 3], &[]);
        let own = vector(&[csn(50, 1), csn(40, 2), csn(30, 3), csn(7, 9)]);
        let mut horizon = Horizon::default();
        horizon.hear(
            2,
            vector(&[csn(20, 1), csn(40, 2), csn(25, 3)]),
            members.clone(),
        );
        assert_eq!(horizon.settled(1, &own, &members), None);
        horizon.hear(
            3,
            vector(&[csn(45, 1), csn(10, 2), csn(30, 3)]),
            members.clone(),
        );
        let settled = horizon.settled(1, &own, &members).unwrap();
        assert!(settled.has(csn(20, 1)) && settled.has(csn(10, 2)) && settled.has(csn(25, 3)));
        // Not all have it; somebody may still make an earlier one.
        assert!(!settled.has(csn(21, 1)) && !settled.has(csn(11, 2)) && !settled.has(csn(7, 9)));
        assert!(!Settled::all_of(&own, csn(30, 3)).has(csn(31, 1)));
        // Another member counts one more as a member, or has what is not here.
        let more = of(&[1, 2, 3, 9], &[]);
        horizon.hear(3, vector(&[csn(45, 1)]), more);
        assert_eq!(horizon.settled(1, &own, &members), None);
        horizon.hear(3, vector(&[csn(31, 3)]), members.clone());
        assert_eq!(horizon.settled(1, &own, &members), None);
        // Somebody has come and gone since they were heard, and may have told them something.
        horizon.hear(3, vector(&[csn(30, 3)]), members.clone());
        assert!(horizon.settled(1, &own, &members).is_some());
        let mut after = of(&[1, 2, 3, 9], &[]);
        after.suspend(9);
        assert_eq!(after, of(&[1, 2, 3], &[9]));
        assert_eq!(horizon.settled(1, &own, &after), None);
    }
}
