//! Who asks, and what they may do.
//!
//! | file | its part |
//! | --- | --- |
//! | `policy` | rules as they are written |
//! | `compile` | from rules to what they grant to an identity |
//! | `grants` | what is granted, on all entries and on one |
//! | `children` | how many children of an entry may be known |
//!
//! An operation is asked for by a [`Requester`]: an identity with what the rules grant to it, made once per bind. A
//! search asks at its beginning how much of every entry it sees ([`Sight`]). Only if that depends on the entry, each
//! candidate is decided by itself ([`Decider`]). The base of a search, and what is compared or updated, are asked for
//! by name. What may not be disclosed is as if it were not there.

mod children;
mod compile;
mod grants;
mod policy;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub use self::compile::PolicyError;
pub(crate) use self::compile::{AccessRules, Slot};
pub(crate) use self::grants::{Decider, EntryGrants, Everywhere, Grants, Sight, Visible};
pub use self::policy::{
    Attributes, By, DnPattern, DnScope, Grant, Policy, Rights, Rule, Then, What, Who,
};
use crate::directory::{Credentials, Directory, Snapshot};
use crate::engine::{Engine, EntryId};
use crate::names;
use crate::schema::{AttributeTypeId, Schema};

/// Whether values of a type are protected: they stand last in an entry's record, and only the admin sees them.
pub(crate) fn is_protected(schema: &Schema, attribute_type: AttributeTypeId) -> bool {
    let known = schema.well_known();
    attribute_type == known.user_password || attribute_type == known.auth_password
}

/// Whether values of an attribute are not to be shown to people who may not read it, such as those who read the log: it
/// is protected, or not known.
pub fn is_secret(schema: &Schema, description: &[u8]) -> bool {
    let base = description.split(|&byte| byte == b';').next();
    let known = schema.attribute_type(base.unwrap_or_default());
    known.is_none_or(|known| is_protected(schema, known.id()))
}

/// Who an operation is done for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nobody.
    Anonymous,
    /// An entry of the directory.
    User {
        /// Its id.
        entry: EntryId,
        /// Its DN as it was at bind time.
        dn: String,
    },
    /// Somebody who is no entry of the directory, whom something outside of it vouches for, such as the kernel for a
    /// user of this machine.
    External {
        /// Its DN, which no entry need have.
        dn: String,
    },
    /// The admin, who need not be an entry.
    Admin {
        /// The admin's DN.
        dn: String,
    },
}

impl Identity {
    /// The DN, empty when anonymous: creatorsName, modifiersName, Who am I.
    pub fn dn(&self) -> &str {
        match self {
            Identity::Anonymous => "",
            Identity::User { dn, .. } | Identity::External { dn } | Identity::Admin { dn } => dn,
        }
    }
}

/// Who asks, and what the rules grant to them. Made by a bind, and shared by all that is asked after it.
#[derive(Debug)]
pub struct Requester {
    identity: Identity,
    grants: Grants,
}

impl Requester {
    /// The administrator, of whom no rules are asked.
    pub fn administrator(dn: impl Into<String>) -> Arc<Requester> {
        let identity = Identity::Admin { dn: dn.into() };
        let grants = Grants::unlimited();
        Arc::new(Requester { identity, grants })
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    #[inline]
    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }
}

/// The access rules in force, which may change at any time.
#[derive(Debug)]
pub(crate) struct Access {
    rules: RwLock<Arc<AccessRules>>,
    /// That of the rules.
    version: AtomicU64,
}

impl Access {
    pub(crate) fn new(schema: &Schema, policy: Policy) -> Result<Access, PolicyError> {
        const FIRST: u64 = 1;
        let rules = AccessRules::new(schema, policy, FIRST)?;
        Ok(Access {
            rules: RwLock::new(Arc::new(rules)),
            version: AtomicU64::new(FIRST),
        })
    }

    /// Puts other rules in force. Operations that begin later heed them, and searches under way from their next step
    /// on.
    pub(crate) fn set(&self, schema: &Schema, policy: &Policy) -> Result<(), PolicyError> {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        if rules.policy != *policy {
            let version = rules.version + 1;
            *rules = Arc::new(AccessRules::new(schema, policy.clone(), version)?);
            self.version.store(version, Ordering::Release);
        }
        Ok(())
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Arc<AccessRules> {
        let rules = self.rules.read();
        rules.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether somebody has what the rules in force grant.
    #[inline]
    pub(crate) fn is_current(&self, requester: &Requester) -> bool {
        let version = self.version.load(Ordering::Acquire);
        requester.grants.version() == version || requester.grants.is_unlimited()
    }
}

impl AccessRules {
    /// Who asks with an identity, by these rules.
    pub(crate) fn requester(
        self: &Arc<AccessRules>,
        schema: &Schema,
        identity: Identity,
    ) -> Arc<Requester> {
        let grants = self.grants(schema, &identity);
        Arc::new(Requester { identity, grants })
    }

    /// Whether somebody has what these rules grant.
    pub(crate) fn is_of(&self, requester: &Requester) -> bool {
        requester.grants.version() == self.version || requester.grants.is_unlimited()
    }
}

impl<E: Engine> Directory<E> {
    /// Puts access rules in force. Operations that begin later heed them, and searches under way from their next step
    /// on.
    ///
    /// # Errors
    /// When a rule names what the schema does not know; the rules before stay in force.
    pub fn set_access(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.access().set(self.schema(), policy)
    }

    /// Who asks with an identity, and what the rules in force grant to them: to be made once for all that is asked.
    pub fn requester(&self, identity: Identity) -> Arc<Requester> {
        self.access().rules().requester(self.schema(), identity)
    }

    /// Whether somebody has what the rules in force grant. Who has not should be [made anew](Self::requester); until
    /// then that is done for each operation.
    #[inline]
    pub fn is_current(&self, requester: &Requester) -> bool {
        self.access().is_current(requester)
    }

    /// Somebody with what the rules in force grant.
    #[inline]
    pub(crate) fn current(&self, requester: &Arc<Requester>) -> Arc<Requester> {
        match self.is_current(requester) {
            true => requester.clone(),
            false => self.requester(requester.identity().clone()),
        }
    }
}

impl<E: Engine> Snapshot<E> {
    /// Whether the password of an entry may be set, so that nobody works for who may not: the update is judged again
    /// when it is applied. `None` for who may not know of the entry.
    pub fn may_set_password(
        &self,
        requester: &Requester,
        target: &Credentials,
    ) -> crate::Result<Option<bool>> {
        let grants = requester.grants();
        if grants.is_unlimited() {
            return Ok(Some(true));
        }
        let dn = names::normal_dn_of(self.view(), self.schema(), target.entry)?;
        let slot = grants.slot(self.schema().well_known().user_password);
        let may_set = grants.rights(&dn, target.entry, slot).has(Rights::WRITE);
        let is_seen = grants.discloses(&dn, target.entry);
        Ok((may_set || is_seen).then_some(may_set))
    }
}
