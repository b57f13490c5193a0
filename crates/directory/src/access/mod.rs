//! Who asks, and what they may do.
//!
//! | file | its part |
//! | --- | --- |
//! | `policy` | rules as they are written |
//! | `parse`, `print` | their text |
//! | `compile`, `who` | from rules to what they grant to an identity |
//! | `condition`, `regex` | what rules ask of an entry beyond its place in the tree |
//! | `evaluate` | how they ask whether an entry matches a filter |
//! | `group`, `set`, `values` | whom groups and sets are about, and the values that say so |
//! | `grants` | what is granted, on all entries and on one |
//! | `limits` | what bounds searches |
//! | `acting` | who may act for whom |
//! | `mapping` | whom names from outside stand for |
//! | `explain` | why somebody has which rights |
//! | `children` | how many children of an entry may be known |
//!
//! An operation is asked for by a [`Requester`]: an identity with what the rules grant to it, made once per bind. A
//! search asks at its beginning how much of every entry it sees ([`Sight`]). Only if that depends on the entry, each
//! candidate is decided by itself ([`Decider`]). The base of a search, and what is compared or updated, are asked for
//! by name. What may not be disclosed is as if it were not there.

mod acting;
mod children;
mod compile;
mod condition;
mod evaluate;
mod explain;
mod grants;
mod group;
mod limits;
mod seen;
mod set;
#[cfg(test)]
mod tests;
mod values;
mod who;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use self::acting::{ACTING_WORK_MAX, NOT_AUTHORIZED};
pub(crate) use self::acting::{Acting, take};
pub(crate) use self::compile::{AccessRules, Slot};
pub use self::compile::{PolicyError, PolicyList};
pub(crate) use self::condition::Asked;
pub(crate) use self::evaluate::Evaluate;
pub use self::explain::{Explanation, Tried, TriedRule};
pub(crate) use self::grants::{
    Decider, EntryGrants, Everywhere, Grants, OwnValues, Sight, Visible,
};
pub use self::limits::SearchLimits;
pub(crate) use self::seen::as_seen;
use crate::engine::{CommitNo, EntryId};
use crate::error::Result;
pub use crate::policy::{
    Attributes, AuthzRegexp, Bound, By, DnPattern, DnScope, Grant, Group, GroupStyle, Limits,
    ListScope, Mapped, PagesBound, Peer, Policy, RULES_MAX, Rights, Rule, RuleError, RuleList,
    SearchBounds, SocketName, Strength, Subject, TextStyle, Then, UserName, What, Who, parse_rules,
    user_name,
};
use crate::schema::Schema;
use crate::state::State;

/// Whether values of an attribute are not to be shown to people who may not read it, such as those who read the log: it
/// is protected, or not known.
pub fn is_secret(schema: &Schema, description: &[u8]) -> bool {
    let base = description.split(|&byte| byte == b';').next();
    let known = schema.attribute_type(base.unwrap_or_default());
    known.is_none_or(|known| schema.is_protected(known.id()))
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
    /// Who acts as this identity, if it is somebody else.
    asked_by: Option<Arc<Requester>>,
    from: Option<Arc<Connection>>,
    grants: Grants,
    /// Whether it is another replica of the directory.
    is_replica: bool,
    /// With rules that ask for the data: who it is by the data of a commit, and the version of the rules.
    known: Mutex<Option<(u64, CommitNo, Arc<Requester>)>>,
}

/// What rules may ask of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The client's address; none on a local socket.
    pub address: Option<SocketAddr>,
    /// The client: `IP=127.0.0.1:4711`, `IP=[::1]:4711` or `PATH=/run/ldapi`.
    pub peer_name: String,
    /// The listener: `IP=127.0.0.1:389` or `PATH=/run/ldapi`.
    pub socket_name: Arc<str>,
    /// The listener's URL: `ldap://127.0.0.1:389`.
    pub socket_url: Arc<str>,
    /// How well the transport protects it: 71 on a local socket, as slapd has it.
    pub transport_strength: u32,
    /// How well TLS does, in bits of the key.
    pub tls_strength: u32,
}

impl Requester {
    /// The administrator, of whom no rules are asked.
    pub fn administrator(dn: impl Into<String>) -> Arc<Requester> {
        let identity = Identity::Admin { dn: dn.into() };
        let grants = Grants::unlimited();
        Arc::new(Requester::new((identity, None), None, grants))
    }

    /// Another replica of the directory. Its updates were allowed where they were made: no access rules are asked, and
    /// of the rules of updates only those that heed replicas. Entries that do not say who changed them name `dn`.
    pub fn replica(dn: impl Into<String>) -> Arc<Requester> {
        let identity = Identity::Admin { dn: dn.into() };
        let requester = Requester::new((identity, None), None, Grants::unlimited());
        Arc::new(Requester {
            is_replica: true,
            ..requester
        })
    }

    fn new(
        (identity, asked_by): (Identity, Option<Arc<Requester>>),
        from: Option<Arc<Connection>>,
        grants: Grants,
    ) -> Requester {
        Requester {
            identity,
            asked_by,
            from,
            grants,
            is_replica: false,
            known: Mutex::default(),
        }
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Who has authenticated: the same, unless somebody else acts as it.
    pub fn real(&self) -> &Identity {
        match &self.asked_by {
            Some(asker) => asker.real(),
            None => &self.identity,
        }
    }

    /// Whether somebody else acts as it, which is to be [allowed](crate::Snapshot::is_authorized) by the data of each
    /// operation.
    #[inline]
    pub fn is_acted_as(&self) -> bool {
        self.asked_by.is_some()
    }

    /// Who it is, and who acts as it.
    pub(crate) fn who(&self) -> (Identity, Option<Arc<Requester>>) {
        (self.identity.clone(), self.asked_by.clone())
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica
    }

    /// Over which connection they ask.
    pub(crate) fn from(&self) -> Option<&Arc<Connection>> {
        self.from.as_ref()
    }

    /// The same somebody by the same rules and other data.
    pub(crate) fn renewed_by<R: Evaluate>(
        &self,
        schema: &Schema,
        data: (&R, &Arc<State>),
    ) -> Result<Arc<Requester>> {
        self.grants.set.renewed(schema, self, data)
    }

    /// Whether there are limits that may be about it, besides those of everybody.
    #[inline]
    pub fn may_be_limited(&self) -> bool {
        self.grants.has_limits()
    }

    #[inline]
    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }
}

/// The access rules in force, which may change at any time.
#[derive(Debug)]
pub(crate) struct Access {
    in_force: RwLock<InForce>,
    /// That of the rules.
    version: AtomicU64,
}

#[derive(Debug)]
struct InForce {
    rules: Arc<AccessRules>,
    /// That they are of.
    commit: CommitNo,
}

impl Access {
    pub(crate) fn new(schema: &Schema, policy: Policy) -> std::result::Result<Access, PolicyError> {
        const FIRST: u64 = 1;
        let rules = Arc::new(AccessRules::new(schema, policy, FIRST)?);
        let commit = CommitNo::default();
        Ok(Access {
            in_force: RwLock::new(InForce { rules, commit }),
            version: AtomicU64::new(FIRST),
        })
    }

    /// Puts the rules of a commit in force, with their names looked up in its schema, unless those of a later one are.
    /// Operations that begin later heed them, and searches under way from their next step on.
    pub(crate) fn set(
        &self,
        schema: &Schema,
        policy: Policy,
        commit: CommitNo,
    ) -> std::result::Result<(), PolicyError> {
        let mut in_force = self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if commit < in_force.commit {
            return Ok(());
        }
        let version = in_force.rules.version + 1;
        let rules = Arc::new(AccessRules::new(schema, policy, version)?);
        *in_force = InForce { rules, commit };
        self.version.store(version, Ordering::Release);
        Ok(())
    }

    /// That whose rules are in force.
    pub(crate) fn commit(&self) -> CommitNo {
        let in_force = self.in_force.read();
        in_force.unwrap_or_else(PoisonError::into_inner).commit
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Arc<AccessRules> {
        let in_force = self.in_force.read();
        let in_force = in_force.unwrap_or_else(PoisonError::into_inner);
        in_force.rules.clone()
    }

    /// Whether somebody has what the rules in force grant.
    #[inline]
    pub(crate) fn is_current(&self, requester: &Requester) -> bool {
        let version = self.version.load(Ordering::Acquire);
        requester.grants.version() == version || requester.grants.is_unlimited()
    }
}

impl AccessRules {
    /// Who asks with an identity, by these rules; `asked_by` is who acts as it, if that is somebody else.
    pub(crate) fn requester(
        self: &Arc<AccessRules>,
        schema: &Schema,
        (identity, asked_by): (Identity, Option<Arc<Requester>>),
        from: Option<Arc<Connection>>,
    ) -> Arc<Requester> {
        let real = asked_by.as_ref().map_or(&identity, |asker| asker.real());
        let grants = self.grants(schema, (&identity, real), from.as_deref());
        Arc::new(Requester::new((identity, asked_by), from, grants))
    }

    /// The same somebody by these rules, and by the data if they ask for them.
    pub(crate) fn renewed<R: Evaluate>(
        self: &Arc<AccessRules>,
        schema: &Schema,
        requester: &Requester,
        (view, state): (&R, &Arc<State>),
    ) -> Result<Arc<Requester>> {
        let (who, from) = (requester.who(), requester.from.clone());
        let of = (&who.0, requester.real());
        let grants = self.grants_with(schema, of, from.as_deref(), Some((view, state)))?;
        Ok(Arc::new(Requester::new(who, from, grants)))
    }

    /// The same, found out once for all operations on a commit; without a commit, anew.
    #[cold]
    pub(crate) fn renewed_once<R: Evaluate>(
        self: &Arc<AccessRules>,
        schema: &Schema,
        requester: &Requester,
        data: (&R, &Arc<State>),
        commit: Option<CommitNo>,
    ) -> Result<Arc<Requester>> {
        let Some(commit) = commit else {
            return self.renewed(schema, requester, data);
        };
        let known = requester.known.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some((version, of, known)) = &*known
            && (*version, *of) == (self.version, commit)
        {
            return Ok(known.clone());
        }
        let renewed = self.renewed(schema, requester, data)?;
        *known = Some((self.version, commit, renewed.clone()));
        Ok(renewed)
    }

    /// Whether somebody has what these rules grant.
    pub(crate) fn is_of(&self, requester: &Requester) -> bool {
        let is_same = requester.grants.version() == self.version && !self.needs_data;
        is_same || requester.grants.is_unlimited()
    }
}
