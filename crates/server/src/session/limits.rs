//! Limits of who asks that are checked before an operation begins: whether there are pages, and how many operations of
//! one identity are under way, over all its connections.

use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{Outcome, Requester};
use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::message::Request;
use sapwood_ldap::result::ResultCode;

use super::{Burst, Session};
use crate::accounts::{Claimant, Kind};

/// Operations of a session that are under way, as they are counted for its identity.
#[derive(Debug, Default)]
pub(super) struct Counted {
    claimant: Option<Arc<Claimant>>,
    count: usize,
}

impl Counted {
    #[inline]
    fn set(&mut self, claimant: &Arc<Claimant>, count: usize) {
        let is_same = self
            .claimant
            .as_ref()
            .is_none_or(|known| Arc::ptr_eq(known, claimant));
        if self.count == count && is_same {
            return;
        }
        self.give_back();
        if count > 0 {
            claimant.add(Kind::Operations, count);
            (self.claimant, self.count) = (Some(Arc::clone(claimant)), count);
        }
    }

    fn give_back(&mut self) {
        let count = std::mem::take(&mut self.count);
        if let Some(claimant) = self.claimant.take() {
            claimant.remove(Kind::Operations, count);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<E: Engine> Session<E> {
    /// Operations that are under way here.
    fn under_way(&self) -> usize {
        self.operations.searches.count() + self.output.answers_due
    }

    /// Counts what is under way after a turn, if there are limits that may ask for it.
    pub(super) fn count_operations(&mut self) {
        let count = match self.context.requester.may_be_limited() {
            true => self.under_way(),
            false => 0,
        };
        self.operations
            .counted_as
            .set(&self.context.claimant, count);
    }

    /// Whether an operation may begin, by what limits say of who asks.
    pub(super) fn check_limits(
        &mut self,
        op: &Request<'_>,
        controls: &RequestControls<'_>,
        by: &Arc<Requester>,
        burst: &mut Burst<'_, E>,
    ) -> Result<(), Outcome> {
        // What ends others, or changes who asks, always may.
        if matches!(
            op,
            Request::Bind(_) | Request::Unbind | Request::Abandon(_) | Request::Extended(_)
        ) {
            return Ok(());
        }
        let snapshot = burst.snapshot(self)?.clone();
        let limits = self.limits(&snapshot, by)?;
        if controls.paged_results.is_some() && limits.paged_entries_max(0).is_none() {
            let reason = "there are no pages for who asks (olcLimits, size.prtotal=disabled)";
            return Err(Outcome::new(ResultCode::AdminLimitExceeded, reason));
        }
        let most = usize::try_from(limits.operations_max()).unwrap_or(usize::MAX);
        let elsewhere = || {
            let all = self.context.claimant.of_identity(Kind::Operations);
            all.saturating_sub(self.operations.counted_as.count)
        };
        if most > 0 && elsewhere() + self.under_way() >= most {
            let reason = format!(
                "{most} operations of who asks are under way, and there may be no more (olcLimits, operations=)"
            );
            return Err(Outcome::new(ResultCode::Busy, reason));
        }
        Ok(())
    }
}
