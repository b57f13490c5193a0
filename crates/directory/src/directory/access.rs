//! Requesters of a directory, and their rights on a snapshot of it.

use std::sync::Arc;

use super::{Credentials, Directory, Snapshot};
use crate::access::{
    Asked, Connection, Everywhere, Identity, Policy, PolicyError, Requester, Rights, SearchLimits,
};
use crate::engine::{CommitNo, Engine, EntryId};
use crate::error::Result;
use crate::names;

impl<E: Engine> Directory<E> {
    /// Puts access rules in force. They apply to operations that begin later, and to searches under way from their next
    /// step on.
    ///
    /// # Errors
    /// When a rule names something that the schema does not define. The former rules stay in force.
    pub fn set_access(&self, policy: &Policy) -> std::result::Result<(), PolicyError> {
        let access = self.access();
        access.set(&self.schema(), policy.clone(), access.commit())
    }

    /// A requester with an identity, and with the grants of the rules in force. Compiling these takes time: make it
    /// once, and use it for all requests.
    pub fn requester(&self, identity: Identity) -> Arc<Requester> {
        self.requester_from(identity, None)
    }

    /// The same over a connection, whose facts rules may depend on.
    pub fn requester_from(
        &self,
        identity: Identity,
        from: Option<Arc<Connection>>,
    ) -> Arc<Requester> {
        self.access()
            .rules()
            .requester(&self.schema(), (identity, None), from)
    }

    /// The same requester over another connection.
    pub fn requester_over(&self, requester: &Requester, from: Arc<Connection>) -> Arc<Requester> {
        let (identity, asked_by) = requester.who();
        let asked_by = asked_by.map(|asker| self.requester_over(&asker, from.clone()));
        let rules = self.access().rules();
        rules.requester(&self.schema(), (identity, asked_by), Some(from))
    }

    /// A requester for whom `asker` acts as `identity`. It does not check whether `asker` may.
    pub(crate) fn acting_from(&self, asker: &Arc<Requester>, identity: Identity) -> Arc<Requester> {
        let rules = self.access().rules();
        let who = (identity, Some(asker.clone()));
        rules.requester(&self.schema(), who, asker.from().cloned())
    }

    /// The same requester with the grants of the rules that are in force now.
    pub fn renewed(&self, requester: &Requester) -> Arc<Requester> {
        let rules = self.access().rules();
        rules.requester(&self.schema(), requester.who(), requester.from().cloned())
    }

    /// Whether the grants of a requester are those of the rules in force. Replace one that is out of date by a
    /// [renewed](Self::renewed) one: otherwise each operation renews it again.
    #[inline]
    pub fn is_current(&self, requester: &Requester) -> bool {
        self.access().is_current(requester)
    }
}

impl<E: Engine> Snapshot<E> {
    /// The requester with the grants of the rules in force, on the data of this snapshot.
    #[inline]
    pub(crate) fn current(&self, requester: &Arc<Requester>) -> Result<Arc<Requester>> {
        let directory = self.directory();
        let access = directory.access();
        if access.is_current(requester) && !requester.grants().needs_data() {
            return Ok(requester.clone());
        }
        let data = (self.view(), self.state());
        let rules = access.rules();
        rules.renewed_once(self.schema(), requester, data, self.whole_commit())
    }

    /// The commit it shows, if its number tells all that may have changed: it is that of the first store, and other
    /// stores may have changed since.
    pub(crate) fn whole_commit(&self) -> Option<CommitNo> {
        (self.directory().stores() == 1).then(|| self.commit())
    }

    /// Whether the requester, who is mostly anonymous, may bind as an entry by its password. The work of the rules is
    /// taken from `work`, which may reach 0.
    pub fn may_authenticate(
        &self,
        requester: &Arc<Requester>,
        target: &Credentials,
        work: &mut u64,
    ) -> Result<bool> {
        let requester = self.current(requester)?;
        let grants = requester.grants();
        let slot = grants.slot(self.schema().well_known().user_password);
        if grants.everywhere(slot, Rights::AUTH) == Everywhere::Always {
            return Ok(true);
        }
        let dn = names::normal_dn_of(self.view(), self.schema(), target.entry)?;
        let asked = Asked {
            view: self.view(),
            schema: self.schema(),
            dn: &dn,
            id: target.entry,
        };
        let rights = grants.rights_within(&asked, slot, work)?;
        Ok(rights.has(Rights::AUTH))
    }

    /// Whether the requester may set the password of an entry. This saves hashing for one who may not; the writer
    /// checks again when it applies the update. `None` if the requester may not know of the entry.
    pub fn may_set_password(
        &self,
        requester: &Arc<Requester>,
        target: &Credentials,
    ) -> Result<Option<bool>> {
        self.may_change_password(requester, target.entry, Rights::WRITE)
    }

    /// Whether the requester has these rights on the password of an entry. `None` if it has not, and may not know of
    /// the entry either.
    pub fn may_change_password(
        &self,
        requester: &Arc<Requester>,
        entry: EntryId,
        rights: Rights,
    ) -> Result<Option<bool>> {
        let requester = self.current(requester)?;
        let grants = requester.grants();
        if grants.is_unlimited() {
            return Ok(Some(true));
        }
        let dn = names::normal_dn_of(self.view(), self.schema(), entry)?;
        let slot = grants.slot(self.schema().well_known().user_password);
        let asked = Asked {
            view: self.view(),
            schema: self.schema(),
            dn: &dn,
            id: entry,
        };
        let may_change = grants.rights(&asked, slot)?.has(rights);
        let is_seen = grants.discloses(&asked)?;
        Ok((may_change || is_seen).then_some(may_change))
    }

    /// The limits of the requester's searches. The administrator has none, nor has a replica.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn search_limits(&self, requester: &Arc<Requester>) -> Result<SearchLimits> {
        let settings = self.settings();
        let is_replica = matches!(requester.identity(), Identity::Replica { .. });
        if is_replica || requester.grants().is_unlimited() {
            return Ok(SearchLimits::default());
        }
        let limits = match settings.limits.is_empty() {
            true => None,
            false => self.current(requester)?.grants().limits(),
        };
        Ok(SearchLimits::of(limits, settings))
    }
}
