//! Requesters and their rights. The rules in their written form are in [`policy`](crate::policy).
//!
//! | file | its part |
//! | --- | --- |
//! | `compile`, `who` | compiles rules to the grants of an identity |
//! | `condition` | conditions of rules on an entry, besides its place in the tree |
//! | `evaluate` | evaluates a filter for a condition |
//! | `group`, `set`, `values` | members of groups and sets |
//! | `single` | rules about single values of an attribute |
//! | `found` | what URLs in rules find |
//! | `rule_for` | rules as they are for one identity |
//! | `grants` | the rights of an identity |
//! | `bounds` | those that all entries grant, and those that none does |
//! | `met` | which conditions an entry meets |
//! | `entry_grants` | the rights on one entry |
//! | `place` | what rules make of the entries of a place |
//! | `decider` | the rights on the entries of a search |
//! | `limits` | limits of searches |
//! | `acting` | who may act for whom |
//! | `explain` | why an identity has its rights |
//! | `children` | how many children of an entry may be disclosed |
//! | `seen` | how much of a name may be disclosed |
//!
//! Every operation has a [`Requester`]: an identity and its grants, compiled once per bind. A search asks at its
//! beginning how much of the entries it sees ([`Sight`]). Only if that depends on the entry, each candidate is decided
//! by itself ([`Decider`]). For the base of a search, and for the target of a compare or an update, the grants are
//! asked by name. What may not be disclosed looks as if it did not exist.

mod acting;
mod bounds;
mod children;
mod compile;
mod condition;
mod decider;
mod entry_grants;
mod evaluate;
mod explain;
mod found;
mod grants;
mod group;
mod limits;
mod met;
mod place;
mod rule_for;
mod seen;
mod set;
mod single;
#[cfg(test)]
mod tests;
mod values;
mod who;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use self::acting::{ACTING_WORK_MAX, NOT_AUTHORIZED};
pub(crate) use self::acting::{Acting, take};
pub(crate) use self::bounds::{Everywhere, Sight};
pub(crate) use self::compile::{AccessRules, Slot};
pub use self::compile::{PolicyError, PolicyList};
pub(crate) use self::condition::{Asked, matches_filter};
use self::decider::Decisions;
pub(crate) use self::decider::{DecidedCandidate, Decider};
pub(crate) use self::entry_grants::{EntryGrants, Readable, Visible};
pub(crate) use self::evaluate::{Evaluate, Find, Ready};
pub use self::explain::{Explanation, Tried, TriedRule};
pub(crate) use self::grants::{Grants, Wanted};
pub use self::limits::SearchLimits;
pub(crate) use self::rule_for::OwnValues;
pub(crate) use self::seen::as_seen;
pub(crate) use self::single::SingleValues;
use crate::engine::{CommitNo, EntryId};
use crate::error::Result;
pub use crate::policy::{
    Attributes, AuthzRegexp, Bound, By, DnPattern, DnScope, Grant, Group, GroupStyle, Limits,
    ListScope, Mapped, PagesBound, Peer, Policy, RULES_MAX, Rights, Rule, RuleError, RuleList,
    SearchBounds, SocketName, Strength, Subject, TextStyle, Then, UserName, ValuePattern, What,
    Who, parse_rules, user_name,
};
use crate::schema::Schema;
use crate::state::State;

/// Whether values of an attribute must not appear in a log, which other people read: the attribute is protected, or the
/// schema does not define it.
pub fn is_secret(schema: &Schema, description: &[u8]) -> bool {
    let base = description.split(|&byte| byte == b';').next();
    let known = schema.attribute_type(base.unwrap_or_default());
    known.is_none_or(|known| schema.is_protected(known.id()))
}

/// The identity that an operation is done for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nobody has bound.
    Anonymous,
    /// An entry of the directory. A client's certificate may stand for one, too.
    User {
        /// Its id.
        entry: EntryId,
        /// Its DN as it was at bind time.
        dn: String,
    },
    /// An identity without an entry, for which something outside the directory vouches: the kernel for a user of this
    /// machine, Kerberos for a principal, an authority for the subject of a certificate. Access rules name it by its
    /// DN.
    External {
        /// Its DN. No entry needs to have it.
        dn: String,
    },
    /// A server that keeps a copy of this directory: it may read everything, and change nothing. No rule is asked.
    Replica {
        /// The name of its account. No entry has it.
        dn: String,
    },
    /// The administrator, who needs no entry.
    Admin {
        /// The administrator's DN.
        dn: String,
    },
}

impl Identity {
    /// The DN for creatorsName, modifiersName and Who am I; empty for anonymous.
    pub fn dn(&self) -> &str {
        match self {
            Identity::Anonymous => "",
            Identity::User { dn, .. }
            | Identity::External { dn }
            | Identity::Replica { dn }
            | Identity::Admin { dn } => dn,
        }
    }
}

/// An identity with the grants of the access rules. A bind makes it, and all later operations share it.
#[derive(Debug)]
pub struct Requester {
    identity: Identity,
    /// The requester that acts as this identity, if another one does.
    asked_by: Option<Arc<Requester>>,
    from: Option<Arc<Connection>>,
    grants: Grants,
    /// Whether it is another replica of the directory.
    is_replica: bool,
    /// A cache, used if rules depend on data: the same requester with its grants on a commit, and the version of the
    /// rules.
    known: Mutex<Option<(u64, CommitNo, Arc<Requester>)>>,
    /// Another: the rights on entries that searches have met.
    decisions: Mutex<Decisions>,
}

/// The facts of a connection that rules may depend on.
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
    /// The strength of the transport's protection (transport_ssf): 71 on a local socket, as in slapd.
    pub transport_strength: u32,
    /// The strength of TLS (tls_ssf), in bits of the key.
    pub tls_strength: u32,
}

impl Requester {
    /// The administrator, whom no rule limits.
    pub fn administrator(dn: impl Into<String>) -> Arc<Requester> {
        let identity = Identity::Admin { dn: dn.into() };
        let grants = Grants::unlimited();
        Arc::new(Requester::new((identity, None), None, grants))
    }

    /// Another replica of the directory. Its updates were checked where they were made: access rules do not limit them,
    /// and only those update rules take part that heed replicas. An entry without a modifiersName gets `dn`.
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
            decisions: Mutex::default(),
        }
    }

    /// The identity that operations are done for.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The identity that has authenticated: the same, unless another one acts as it.
    pub fn real(&self) -> &Identity {
        match &self.asked_by {
            Some(asker) => asker.real(),
            None => &self.identity,
        }
    }

    /// Whether another identity acts as it. Each operation must [check](crate::Snapshot::is_authorized) on its own data
    /// that it still may.
    #[inline]
    pub fn is_acted_as(&self) -> bool {
        self.asked_by.is_some()
    }

    /// The identity, and the requester that acts as it.
    pub(crate) fn who(&self) -> (Identity, Option<Arc<Requester>>) {
        (self.identity.clone(), self.asked_by.clone())
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica
    }

    /// The facts of its connection.
    pub(crate) fn from(&self) -> Option<&Arc<Connection>> {
        self.from.as_ref()
    }

    /// The same requester, with its grants compiled from the same rules on other data.
    pub(crate) fn renewed_by<R: Evaluate>(
        &self,
        schema: &Schema,
        data: (&R, &Arc<State>),
    ) -> Result<Arc<Requester>> {
        self.grants.set.renewed(schema, self, data)
    }

    /// Whether `olcLimits` has values, one of which may apply to it.
    #[inline]
    pub fn may_be_limited(&self) -> bool {
        self.grants.has_limits()
    }

    /// Whether they may read every attribute of every entry.
    pub fn sees_everything(&self) -> bool {
        self.grants.sight() == Sight::All
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
    /// The version of the rules, read without the lock.
    version: AtomicU64,
}

#[derive(Debug)]
struct InForce {
    rules: Arc<AccessRules>,
    /// The commit that the rules are from.
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

    /// Puts the rules of a commit in force, unless those of a later commit are. Their names are looked up in the schema
    /// of the commit. They apply to operations that begin later, and to searches under way from their next step on.
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

    /// The commit whose rules are in force.
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

    /// Whether the grants of a requester are those of the rules in force.
    #[inline]
    pub(crate) fn is_current(&self, requester: &Requester) -> bool {
        let version = self.version.load(Ordering::Acquire);
        requester.grants.version() == version || requester.grants.is_unlimited()
    }
}

impl AccessRules {
    /// A requester with the grants of these rules. `asked_by` is the requester that acts as the identity, if one does.
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

    /// The same requester with the grants of these rules, on the data if the rules depend on them.
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

    /// The same, but compiled only once for all operations on a commit. Without a commit it is compiled again.
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

    /// Whether the grants of a requester are those of these rules, whatever the data.
    pub(crate) fn is_of(&self, requester: &Requester) -> bool {
        let is_same = requester.grants.version() == self.version && !self.needs_data;
        is_same || requester.grants.is_unlimited()
    }
}
