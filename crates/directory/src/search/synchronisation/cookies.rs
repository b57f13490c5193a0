//! The cookies that a consumer brings and gets.

use sapwood_replication::{Cookie, Vector};

use super::refresh_required;
use crate::changes::Csn;
use crate::directory::ChangePosition;
use crate::outcome::Outcome;

/// What a consumer has brought.
pub(super) struct Given {
    pub(super) cookie: Cookie,
    /// Whether it may be told everything anew when that does not do.
    pub(super) may_reload: bool,
    /// The only replica of which this one has all changes, if the consumer may have others that are still to come here.
    pub(super) only_of: Option<u16>,
}

impl Given {
    /// Refuses a consumer that has changes of a replica which are not here, though others of that replica are: this is
    /// an older state than the one that it has a copy of, as after a restore.
    pub(super) fn check(&self, complete: &Vector) -> Result<(), Outcome> {
        match self.newer(complete) {
            Some(csn) if !self.may_reload => Err(refresh_required(&format!(
                "the cookie names change {csn}, which is not here"
            ))),
            _ => Ok(()),
        }
    }

    /// What the consumer has, as far as it can be relied upon.
    pub(super) fn known(&self, complete: &Vector) -> Vector {
        match self.newer(complete) {
            Some(_) => Vector::default(),
            None => self.cookie.vector.clone(),
        }
    }

    fn newer(&self, complete: &Vector) -> Option<Csn> {
        let mut csns = self.cookie.vector.iter();
        csns.find(|csn| {
            let is_of_this = self.only_of.is_none_or(|only| csn.replica == only);
            is_of_this && complete.of(csn.replica) != Csn::default() && !complete.covers(*csn)
        })
    }

    /// The place in the feed of this replica that it has read up to, if it says one that can be relied upon.
    pub(super) fn position(&self, complete: &Vector, replica: u16) -> Option<ChangePosition> {
        let position = self.cookie.position.as_deref();
        let is_reliable = self.cookie.sid == Some(replica) && self.newer(complete).is_none();
        position.filter(|_| is_reliable)?.parse().ok()
    }
}

/// Writes the cookies of one consumer.
pub(super) struct Writer {
    /// The consumer's number of the agreement.
    pub(super) agreement: Option<u16>,
    /// The number of this replica.
    pub(super) replica: u16,
}

impl Writer {
    /// That of somebody who has everything up to a vector, and has read the feed up to a place.
    pub(super) fn write(&self, vector: &Vector, position: &ChangePosition) -> Vec<u8> {
        let cookie = Cookie {
            // slapd writes it always.
            rid: Some(self.agreement.unwrap_or_default()),
            sid: Some(self.replica),
            vector: vector.clone(),
            position: Some(position.to_string()),
        };
        cookie.to_string().into_bytes()
    }
}
