//! How far somebody is: up to which change of each replica.

use std::collections::BTreeMap;

use sapwood_ldap::csn::Csn;

/// For each replica the number up to which *all* of its changes are known; of replicas that are not named, none.
///
/// The own number of a replica also promises that its later changes get greater ones. Replicas are 12 bits wide, so a
/// vector has 4096 numbers at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vector {
    csns: BTreeMap<u16, Csn>,
}

impl Vector {
    /// Up to where the changes of a replica are known; [`Csn::default`] if none is.
    pub fn of(&self, replica: u16) -> Csn {
        self.csns.get(&replica).copied().unwrap_or_default()
    }

    /// Whether a change is known. [`Csn::default`], which stands for what nobody has a number of any more, always is.
    pub fn covers(&self, csn: Csn) -> bool {
        csn <= self.of(csn.replica)
    }

    /// Whether all is known that another one knows.
    pub fn covers_all(&self, other: &Vector) -> bool {
        other.iter().all(|csn| self.covers(csn))
    }

    /// Takes in that all changes of a replica are known up to this one.
    pub fn advance(&mut self, csn: Csn) {
        let known = self.csns.entry(csn.replica).or_default();
        *known = csn.max(*known);
    }

    /// Takes in all that another one knows.
    pub fn join(&mut self, other: &Vector) {
        other.iter().for_each(|csn| self.advance(csn));
    }

    /// What both know.
    #[must_use]
    pub fn meet(&self, other: &Vector) -> Vector {
        let both = self.iter().map(|csn| csn.min(other.of(csn.replica)));
        both.filter(|csn| *csn != Csn::default()).collect()
    }

    /// Its numbers, by replica.
    pub fn iter(&self) -> impl Iterator<Item = Csn> {
        self.csns.values().copied()
    }

    /// How many replicas it names.
    pub fn len(&self) -> usize {
        self.csns.len()
    }

    /// Whether it names no replica.
    pub fn is_empty(&self) -> bool {
        self.csns.is_empty()
    }
}

impl FromIterator<Csn> for Vector {
    /// Of several numbers of a replica the greatest counts.
    fn from_iter<I: IntoIterator<Item = Csn>>(csns: I) -> Vector {
        let mut vector = Vector::default();
        csns.into_iter().for_each(|csn| vector.advance(csn));
        vector
    }
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
    fn a_vector_is_compared_replica_by_replica() {
        let one: Vector = [csn(5, 1), csn(3, 2), csn(4, 1)].into_iter().collect();
        let other: Vector = [csn(4, 1), csn(9, 2), csn(1, 3)].into_iter().collect();
        assert!(one.covers(csn(5, 1)) && !one.covers(csn(6, 1)) && !one.covers(csn(1, 3)));
        assert!(Vector::default().covers(Csn::default()));
        assert!(!one.covers_all(&other) && !other.covers_all(&one));
        let (meet, mut join) = (one.meet(&other), one.clone());
        join.join(&other);
        assert!(one.covers_all(&meet) && other.covers_all(&meet));
        assert!(join.covers_all(&one) && join.covers_all(&other));
        assert_eq!(meet.iter().collect::<Vec<_>>(), [csn(4, 1), csn(3, 2)]);
        assert_eq!(
            join.iter().collect::<Vec<_>>(),
            [csn(5, 1), csn(9, 2), csn(1, 3)]
        );
    }
}
