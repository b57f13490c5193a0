//! Finishing changes of the schema that all entries have to be looked at for.

#[cfg(test)]
mod tests;

use sapwood_ldap::result::ResultCode;

use super::{Directory, Snapshot};
use crate::engine::{Engine, StoreSet, Ticket};
use crate::error::Result;
use crate::operational::Vocabulary;
use crate::outcome::{AwaitedChange, Outcome};
use crate::schema_change::{Looked, Place, RECORDS_AT_ONCE, Settled};
use crate::update::Work;

impl<E: Engine> Snapshot<E> {
    /// The outcome of an update that awaits a change; `None` while the change is coming.
    pub fn settled(&self, change: &AwaitedChange) -> Option<Outcome> {
        let state = self.state();
        let coming = state.coming.as_ref();
        if coming.is_some_and(|coming| coming.began == change.began) {
            return None;
        }
        Some(if state.schema_version > change.version {
            Outcome::SUCCESS
        } else if state.given_up.is_empty() {
            let diagnostic = "the change of the schema was withdrawn before it took place";
            Outcome::new(ResultCode::Canceled, diagnostic)
        } else {
            Outcome::new(ResultCode::UnwillingToPerform, &*state.given_up)
        })
    }
}

impl<E: Engine> Directory<E> {
    /// Looks at the entries for a change that an update awaits, here and now; the outcome of that update.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn finish_awaited(&self, change: &AwaitedChange) -> Result<Outcome> {
        loop {
            self.finish_schema_change(|_| true)?;
            if let Some(outcome) = self.waiting_snapshot()?.settled(change) {
                return Ok(outcome);
            }
        }
    }

    /// Looks at the entries for the change of the schema that is coming, if one is, as long as `goes_on`, which is told
    /// how many records were looked at, says so. Then the change takes place, or is given up: the answer says why.
    ///
    /// # Errors
    /// When the engine fails. The next call begins anew.
    pub fn finish_schema_change(
        &self,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<Option<String>> {
        let mut snapshot = self.waiting_snapshot()?;
        let Some(change) = snapshot.state().coming.clone() else {
            return Ok(None);
        };
        let (mut place, mut records) = (Place::default(), 0);
        let given_up = loop {
            let state = snapshot.state();
            let coming = state.coming.as_ref();
            if coming.is_none_or(|coming| coming.began != change.began) {
                // It was withdrawn.
                return Ok(None);
            }
            let vocabulary = Vocabulary {
                schema: &state.schema,
                attributes: &state.attributes,
            };
            let view = snapshot.view();
            let looked = change
                .uses
                .look(view, vocabulary, &mut place, RECORDS_AT_ONCE)?;
            match looked {
                Looked::Clean => break None,
                Looked::Used(used, id) => break Some(change.uses.told(view, &used, id)?),
                Looked::Untold => {}
            }
            records += RECORDS_AT_ONCE;
            if !goes_on(records) {
                return Ok(None);
            }
            snapshot = self.waiting_snapshot()?;
        };
        let mut settled = Settled {
            began: change.began,
            given_up,
        };
        loop {
            let all = StoreSet::all(self.stores());
            let applied = self.run(Work::Schema(&settled), all, None)?;
            if let Some(ticket) = applied.ticket {
                ticket.wait()?;
            }
            match applied.outcomes.into_iter().next() {
                // Something else needs what would go, such as an index that was begun meanwhile.
                Some(outcome)
                    if outcome.code != ResultCode::Success && settled.given_up.is_none() =>
                {
                    settled.given_up = Some(outcome.diagnostic);
                }
                _ => return Ok(settled.given_up),
            }
        }
    }
}
