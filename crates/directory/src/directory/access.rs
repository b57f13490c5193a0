//! Who asks a directory, and what they may do on a state of it, by the rules in force.

use std::sync::Arc;

use super::{Credentials, Directory, Snapshot};
use crate::access::{
    Asked, Connection, Everywhere, Explanation, Identity, Policy, PolicyError, Requester, Rights,
    SearchLimits, Slot,
};
use crate::engine::{Engine, EntryId};
use crate::error::{Error, Result};
use crate::names;
use crate::schema::NormalDn;

impl<E: Engine> Directory<E> {
    /// Puts access rules in force. Operations that begin later heed them, and searches under way from their next step
    /// on.
    ///
    /// # Errors
    /// When a rule names what the schema does not know; the rules before stay in force.
    pub fn set_access(&self, policy: &Policy) -> std::result::Result<(), PolicyError> {
        let access = self.access();
        access.set(&self.schema(), policy.clone(), access.commit())
    }

    /// Who asks with an identity, and what the rules in force grant to them: to be made once for all that is asked.
    pub fn requester(&self, identity: Identity) -> Arc<Requester> {
        self.requester_from(identity, None)
    }

    /// The same of who comes over a connection.
    pub fn requester_from(
        &self,
        identity: Identity,
        from: Option<Arc<Connection>>,
    ) -> Arc<Requester> {
        self.access()
            .rules()
            .requester(&self.schema(), (identity, None), from)
    }

    /// The same somebody over another connection.
    pub fn requester_over(&self, requester: &Requester, from: Arc<Connection>) -> Arc<Requester> {
        let (identity, asked_by) = requester.who();
        let asked_by = asked_by.map(|asker| self.requester_over(&asker, from.clone()));
        let rules = self.access().rules();
        rules.requester(&self.schema(), (identity, asked_by), Some(from))
    }

    /// Somebody who acts as another one, whether or not they may.
    pub(crate) fn acting_from(&self, asker: &Arc<Requester>, identity: Identity) -> Arc<Requester> {
        let rules = self.access().rules();
        let who = (identity, Some(asker.clone()));
        rules.requester(&self.schema(), who, asker.from().cloned())
    }

    /// The same somebody by the rules that are in force now.
    pub fn renewed(&self, requester: &Requester) -> Arc<Requester> {
        let rules = self.access().rules();
        rules.requester(&self.schema(), requester.who(), requester.from().cloned())
    }

    /// Whether somebody has what the rules in force grant. Who has not should be [made anew](Self::requester); until
    /// then that is done for each operation.
    #[inline]
    pub fn is_current(&self, requester: &Requester) -> bool {
        self.access().is_current(requester)
    }
}

impl<E: Engine> Snapshot<E> {
    /// Somebody with what the rules in force grant.
    #[inline]
    pub(crate) fn current(&self, requester: &Arc<Requester>) -> Result<Arc<Requester>> {
        let directory = self.directory();
        let access = directory.access();
        if access.is_current(requester) && !requester.grants().needs_data() {
            return Ok(requester.clone());
        }
        // The commit is the first store's: others may have changed.
        let commit = (directory.stores() == 1).then(|| self.commit());
        let data = (self.view(), self.state());
        let rules = access.rules();
        rules.renewed_once(self.schema(), requester, data, commit)
    }

    /// Whether somebody may bind as an entry by its password: who is not bound yet, mostly. What the rules take is
    /// taken from `work`, of which nothing may be left.
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

    /// Whether the password of an entry may be set, so that nobody works for who may not: the update is judged again
    /// when it is applied. `None` for who may not know of the entry.
    pub fn may_set_password(
        &self,
        requester: &Arc<Requester>,
        target: &Credentials,
    ) -> Result<Option<bool>> {
        self.may_change_password(requester, target.entry, Rights::WRITE)
    }

    /// Whether the password of an entry may be changed by who has these rights. `None` for who may not know of the
    /// entry.
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

    /// What bounds the searches of somebody: nothing those of the administrator.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn search_limits(&self, requester: &Arc<Requester>) -> Result<SearchLimits> {
        let settings = self.settings();
        if requester.grants().is_unlimited() {
            return Ok(SearchLimits::default());
        }
        let limits = match settings.limits.is_empty() {
            true => None,
            false => self.current(requester)?.grants().limits(),
        };
        Ok(SearchLimits::of(limits, settings))
    }

    /// Why somebody has which rights on an attribute of an entry, on the entry itself (`entry`), or on what is directly
    /// below it (`children`).
    ///
    /// # Errors
    /// When there is no such entry or attribute, or the engine fails.
    pub fn explain_access(
        &self,
        requester: &Arc<Requester>,
        dn: &str,
        attribute: &str,
    ) -> Result<Explanation> {
        let requester = self.current(requester)?;
        let schema = self.schema();
        let mut normal = NormalDn::new();
        let parsed = normal.parse(schema, dn.as_bytes());
        parsed.map_err(|error| Error::Config(format!("{dn:?} is not a DN: {error}")))?;
        let walk = names::walk(self.view(), &self.state().contexts, &normal)?;
        let found = walk.and_then(|walk| walk.found());
        let found = found.ok_or_else(|| Error::Config(format!("there is no entry {dn:?}")))?;
        let slot = match attribute {
            "entry" => Slot::ENTRY,
            "children" => Slot::CHILDREN,
            name => match schema.attribute_type(name.as_bytes()) {
                Some(known) => requester.grants().slot(known.id()),
                None => {
                    return Err(Error::Config(format!(
                        "there is no attribute type {name:?}"
                    )));
                }
            },
        };
        let asked = Asked {
            view: self.view(),
            schema,
            dn: &normal,
            id: found.id,
        };
        requester.grants().explain(&asked, slot)
    }
}
