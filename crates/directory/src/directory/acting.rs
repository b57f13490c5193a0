//! Whom a name stands for, and who may act as whom, on a state of the directory.

use std::sync::Arc;

use super::Snapshot;
use crate::access::{ACTING_WORK_MAX, Acting, Identity, Requester, take};
use crate::engine::Engine;
use crate::error::Result;
use crate::names;
use crate::password_policy;
use crate::schema::NormalDn;

impl<E: Engine> Snapshot<E> {
    /// The identity that a DN names, unless it is the administrator's; `None` for a DN that no entry has, and for what
    /// is no DN.
    pub fn identity_of(&self, dn: &str) -> Result<Option<Identity>> {
        let mut normal = NormalDn::new();
        if normal.parse(self.schema(), dn.as_bytes()).is_err() {
            return Ok(None);
        }
        if normal.is_empty() {
            return Ok(Some(Identity::Anonymous));
        }
        let walk = names::walk(self.view(), &self.state().contexts, &normal)?;
        let Some(found) = walk.and_then(|walk| walk.found()) else {
            return Ok(None);
        };
        let dn = names::dn_of(self.view(), found.id)?;
        Ok(Some(Identity::User {
            entry: found.id,
            dn,
        }))
    }

    /// Somebody who acts as another one: `None` for who may not. What that takes is taken from `work`; it is no more
    /// than [`ACTING_WORK_MAX`].
    pub fn acting(
        &self,
        asker: &Arc<Requester>,
        identity: Identity,
        work: &mut u64,
    ) -> Result<Option<Arc<Requester>>> {
        if !asker.may_act_further() {
            return Ok(None);
        }
        self.within(work, |data, left| {
            let by_rules = &|known: &Arc<Requester>| self.current(known);
            let may = data.is_authorized(asker, by_rules, left)?
                && data.may_ask(asker, &identity, by_rules, left)?;
            if !may {
                return Ok(None);
            }
            // Only now what the rules grant is found out, which takes longest.
            let acting = self.directory().acting_from(asker, identity);
            Ok(self.takes_grants(&acting, left)?.then_some(acting))
        })
    }

    /// Whether who acts for somebody still may. What that takes is taken from `work`; it is no more than
    /// [`ACTING_WORK_MAX`].
    pub fn is_authorized(&self, acting: &Arc<Requester>, work: &mut u64) -> Result<bool> {
        self.within(work, |data, left| {
            let by_rules = &|known: &Arc<Requester>| self.current(known);
            Ok(data.is_authorized(acting, by_rules, left)? && self.takes_grants(acting, left)?)
        })
    }

    /// Finds out what the rules grant to somebody, and counts it: whether there was as much work left.
    fn takes_grants(&self, acting: &Arc<Requester>, left: &mut u64) -> Result<bool> {
        Ok(take(left, self.current(acting)?.grants().work()))
    }

    /// Decides something with a part of the work.
    fn within<T>(
        &self,
        work: &mut u64,
        decide: impl FnOnce(&Acting<'_, E::Snapshot>, &mut u64) -> Result<T>,
    ) -> Result<T> {
        let mut left = (*work).min(ACTING_WORK_MAX);
        let before = left;
        let (view, schema, state) = (self.view(), self.schema(), &**self.state());
        let now = self.now_micros();
        let is_disabled = |id| password_policy::is_disabled((schema, state, view), id, now);
        let data = Acting::new(view, (schema, state), &is_disabled);
        let decided = decide(&data, &mut left);
        *work = work.saturating_sub(before - left);
        decided
    }
}
