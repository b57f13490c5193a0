//! Acting for somebody else: whom somebody may act as (RFC 4370; slapd.conf(5), "authz-policy").
//!
//! Everybody who is bound may act as anonymous. The administrator may act as anybody, and nobody else may act as the
//! administrator. Everybody else needs a permission: `authzTo` in the actor's own entry, or `authzFrom` in the entry to
//! act as, or both, as `olcAuthzPolicy` says. The access rules must grant the actor `auth` on these attributes.
//!
//! The decision is made on the data that the operation works on: its snapshot, or for an update the state that the
//! updates before it have left. So a permission ends with the commit that withdraws it.
//!
//! Every step of a decision costs work, and a value is looked at only while there is work left. Without any left the
//! answer is no. So the time of an answer does not reveal the permissions of others.

use std::cell::Cell;
use std::sync::Arc;

use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::filter_text;
use sapwood_ldap::url::Scope;

use super::condition::{Asked, COMPILING_WORK, FINDING_WORK, group_filter};
use super::{Evaluate, Identity, Requester, Slot};
use crate::config::AuthzPolicy;
use crate::engine::{EntryId, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::operational::Operational;
use crate::policy::entry_test::EntryTest;
use crate::policy::mapping::{Mapped, UserName};
use crate::policy::regex::{self, MATCHING_WORK};
use crate::policy::{DnScope, Rights};
use crate::schema::{AuthzRule, AuthzScope, NormalDn, OperationalAttribute, Schema};
use crate::state::State;

/// The most work of one decision, about one unit a nanosecond. Other connections of the thread wait meanwhile.
pub const ACTING_WORK_MAX: u64 = 1 << 22;
/// The diagnostic of a refusal. It is the same whether or not the identity exists.
pub const NOT_AUTHORIZED: &str = "you may not act as this identity";
/// Work of reading a value, besides what its bytes take.
const READING_WORK: u64 = 200;
/// Work of reading a byte of a value.
const BYTE_WORK: u64 = 20;
/// The most values that one decision tries as regular expressions. Their work is estimated before they are tried; this
/// limit bounds the error of all estimates together.
const EXPRESSIONS_MAX: u32 = 64;
/// The longest chain of identities that act for each other: one step by the bind, one by a control.
const ACTING_DEPTH_MAX: usize = 2;

/// What is asked of the data.
pub(crate) struct Acting<'a, R: Evaluate> {
    view: &'a R,
    schema: &'a Schema,
    state: &'a State,
    is_disabled: IsDisabled<'a>,
    /// Regular expressions that may still be tried.
    expressions_left: Cell<u32>,
}

/// Compiles the grants of a requester again, on the data that the decision is made on.
type ByRules<'a> = &'a dyn Fn(&Arc<Requester>) -> Result<Arc<Requester>>;
/// Whether a password policy has taken an entry out of use, whatever the password. A lock after failed binds does not
/// count: it stops guessing, and anybody can cause it.
pub(super) type IsDisabled<'a> = &'a dyn Fn(EntryId) -> Result<bool>;

/// An identity with a name, and perhaps an entry.
struct Somebody {
    dn: NormalDn,
    entry: Option<EntryId>,
}

/// Takes `cost` from the work that is left. False if there was less.
pub(crate) fn take(work: &mut u64, cost: u64) -> bool {
    let left = work.checked_sub(cost);
    *work = left.unwrap_or_default();
    left.is_some()
}

impl<'a, R: Evaluate> Acting<'a, R> {
    pub(crate) fn new(
        view: &'a R,
        (schema, state): (&'a Schema, &'a State),
        is_disabled: IsDisabled<'a>,
    ) -> Acting<'a, R> {
        Acting {
            view,
            schema,
            state,
            is_disabled,
            expressions_left: Cell::new(EXPRESSIONS_MAX),
        }
    }

    /// The entry with a DN. An update that depends on the answer is guarded by the entry, in whichever store it is.
    fn find(&self, dn: &NormalDn) -> Result<Option<EntryId>> {
        let walk = names::walk(self.view, &self.state.contexts, dn)?;
        let Some(found) = walk.and_then(|walk| walk.found()) else {
            return Ok(None);
        };
        self.view.rely_on(Table::Entry, &found.id.to_key());
        Ok(Some(found.id))
    }

    /// The name and entry of an identity. `None` for anonymous, and for a user whose entry was deleted.
    fn somebody(&self, identity: &Identity) -> Result<Option<Somebody>> {
        let mut dn = NormalDn::new();
        match identity {
            Identity::Anonymous => Ok(None),
            Identity::User { entry, .. } => {
                self.view.rely_on(Table::Entry, &entry.to_key());
                if self.view.get(Table::Entry, &entry.to_key())?.is_none() {
                    return Ok(None);
                }
                Ok(Some(Somebody {
                    dn: names::normal_dn_of(self.view, self.schema, *entry)?,
                    entry: Some(*entry),
                }))
            }
            // It acts as nobody else, nor anybody as it.
            Identity::Replica { .. } => Ok(None),
            Identity::External { dn: name } | Identity::Admin { dn: name } => {
                if dn.parse(self.schema, name.as_bytes()).is_err() {
                    return Ok(None);
                }
                let entry = self.find(&dn)?;
                Ok(Some(Somebody { dn, entry }))
            }
        }
    }

    /// Whether `asker` may act as `target`, as the entries of both say.
    fn may_act(&self, asker: &Requester, target: &Identity, work: &mut u64) -> Result<bool> {
        if !take(work, 2 * FINDING_WORK) {
            return Ok(false);
        }
        let is_same = match (asker.identity(), target) {
            (Identity::Anonymous, _) => return Ok(false),
            (Identity::Admin { .. }, target) => {
                // The administrator, too, acts only as a user who exists.
                let is_there = || Ok::<_, Error>(self.somebody(target)?.is_some());
                return Ok(*target == Identity::Anonymous || is_there()?);
            }
            (Identity::User { entry, .. }, Identity::User { entry: other, .. }) => entry == other,
            (one, other) => one == other,
        };
        let Some(own) = self.somebody(asker.identity())? else {
            return Ok(false);
        };
        if is_same || *target == Identity::Anonymous {
            return Ok(true);
        }
        if matches!(target, Identity::Admin { .. } | Identity::Replica { .. }) {
            return Ok(false);
        }
        let Some(other) = self.somebody(target)? else {
            return Ok(false);
        };
        let to = OperationalAttribute::AuthzTo;
        let from = OperationalAttribute::AuthzFrom;
        let mut says =
            |of: &Somebody, attribute, whom: &Somebody| self.says(asker, of, attribute, whom, work);
        let may = match self.state.settings.authz_policy {
            AuthzPolicy::None => false,
            AuthzPolicy::To => says(&own, to, &other)?,
            AuthzPolicy::From => says(&other, from, &own)?,
            AuthzPolicy::Any => says(&own, to, &other)? || says(&other, from, &own)?,
            AuthzPolicy::All => says(&own, to, &other)? && says(&other, from, &own)?,
        };
        Ok(may && !self.is_disabled(&other, work)?)
    }

    /// Whether the entry is out of use. Yes, too, if there is no work left to find out.
    fn is_disabled(&self, somebody: &Somebody, work: &mut u64) -> Result<bool> {
        let Some(id) = somebody.entry else {
            return Ok(false);
        };
        if !take(work, FINDING_WORK) {
            return Ok(true);
        }
        (self.is_disabled)(id)
    }

    /// Whether a value of `attribute` in the entry `of` names `whom`.
    fn says(
        &self,
        asker: &Requester,
        of: &Somebody,
        attribute: OperationalAttribute,
        whom: &Somebody,
        work: &mut u64,
    ) -> Result<bool> {
        let Some(id) = of.entry else {
            return Ok(false);
        };
        let attribute_type = self.schema.operational(attribute);
        let asked = Asked {
            view: self.view,
            schema: self.schema,
            dn: &of.dn,
            id,
        };
        let grants = asker.grants();
        let slot = grants.slot(attribute_type);
        if !take(work, FINDING_WORK) || !grants.rights_within(&asked, slot, work)?.has(Rights::AUTH)
        {
            return Ok(false);
        }
        let Some(number) = self.state.attributes.number(attribute_type, "") else {
            return Ok(false);
        };
        let Some(record) = self.view.get(Table::Entry, &id.to_key())? else {
            return Ok(false);
        };
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let entry = Entry::new(&record).map_err(damaged)?;
        let Operational::Full(full) = Operational::read(entry.operational()).map_err(damaged)?
        else {
            return Ok(false);
        };
        let full = Entry::new(full).map_err(damaged)?;
        let Some(stored) = full.attribute(number).map_err(damaged)? else {
            return Ok(false);
        };
        for value in stored.values() {
            if !take(work, READING_WORK + BYTE_WORK * value.len() as u64) {
                return Ok(false);
            }
            let rule = std::str::from_utf8(value).ok().map(AuthzRule::parse);
            if let Some(Ok(rule)) = rule
                && self.is_true(asker, &rule, whom, work)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_true(
        &self,
        asker: &Requester,
        rule: &AuthzRule<'_>,
        whom: &Somebody,
        work: &mut u64,
    ) -> Result<bool> {
        let mut named = NormalDn::new();
        match rule {
            AuthzRule::Users => Ok(true),
            AuthzRule::Dn(scope, dn) => {
                let scope = match scope {
                    AuthzScope::Exact => DnScope::Base,
                    AuthzScope::OneLevel => DnScope::One,
                    AuthzScope::Children => DnScope::Children,
                    AuthzScope::Subtree => DnScope::Subtree,
                };
                let is_dn = named.parse(self.schema, dn.as_bytes()).is_ok();
                Ok(is_dn && EntryTest::of(scope, named).holds(&whom.dn))
            }
            AuthzRule::Regex(pattern) => {
                let Some(left) = self.expressions_left.get().checked_sub(1) else {
                    return Ok(false);
                };
                self.expressions_left.set(left);
                let text = whom.dn.to_text();
                let matching = MATCHING_WORK * text.len() as u64;
                let compiling = COMPILING_WORK.saturating_mul(regex::written_out(pattern));
                Ok(take(work, compiling.saturating_add(matching))
                    && regex::is_match(pattern, &text))
            }
            AuthzRule::User(authzid) => {
                let settings = &self.state.settings;
                let Some(user) = UserName::read(authzid) else {
                    return Ok(false);
                };
                if !take(work, settings.mapping_work(authzid)) {
                    return Ok(false);
                }
                match settings.mapped_user(self.schema, user.name, (user.mechanism, user.realm)) {
                    Some(Mapped::Dn(dn)) => {
                        let is_dn = named.parse(self.schema, dn.as_bytes()).is_ok();
                        Ok(is_dn && named == whom.dn)
                    }
                    // Users may give themselves a name, and a search would find them by it.
                    Some(Mapped::Search { .. }) | None => Ok(false),
                }
            }
            AuthzRule::Group {
                class,
                attribute,
                dn,
            } => {
                let class = class.unwrap_or("groupOfNames").as_bytes();
                let attribute = attribute.unwrap_or("member").as_bytes();
                let class = self.schema.object_class(class);
                let attribute = self.schema.attribute_type(attribute);
                let (Some(class), Some(attribute)) = (class, attribute) else {
                    return Ok(false);
                };
                if named.parse(self.schema, dn.as_bytes()).is_err() || !take(work, FINDING_WORK) {
                    return Ok(false);
                }
                let Some(group) = self.find(&named)? else {
                    return Ok(false);
                };
                let (class, attribute) = (class.oid().to_string(), attribute.oid().to_string());
                let filter = group_filter(&class, &attribute, &whom.dn.to_text());
                let Ok(filter) = filter else {
                    return Ok(false);
                };
                self.matches(asker, (group, &named), &filter, work)
            }
            AuthzRule::Url {
                base,
                scope,
                filter,
            } => {
                let filter = filter.as_deref().unwrap_or("(objectClass=*)");
                self.finds(asker, (base, *scope, filter), whom, work)
            }
        }
    }

    /// Whether a search by the asker would find the entry of `whom`.
    fn finds(
        &self,
        asker: &Requester,
        (base, scope, filter): (&str, Scope, &str),
        whom: &Somebody,
        work: &mut u64,
    ) -> Result<bool> {
        let scope = match scope {
            Scope::Base => DnScope::Base,
            Scope::One => DnScope::One,
            Scope::Sub => DnScope::Subtree,
            Scope::Subordinates => DnScope::Children,
        };
        let mut named = NormalDn::new();
        let is_dn = named.parse(self.schema, base.as_bytes()).is_ok();
        let Some(id) = whom.entry.filter(|_| is_dn) else {
            return Ok(false);
        };
        if !EntryTest::of(scope, named).holds(&whom.dn) {
            return Ok(false);
        }
        match filter_text::parse(filter) {
            Ok(filter) => self.matches(asker, (id, &whom.dn), &filter, work),
            Err(_) => Ok(false),
        }
    }

    /// Whether an entry matches a filter, by the attributes that the asker may search.
    fn matches(
        &self,
        asker: &Requester,
        (id, dn): (EntryId, &NormalDn),
        filter: &FilterBuf,
        work: &mut u64,
    ) -> Result<bool> {
        let grants = asker.grants();
        let asked = Asked {
            view: self.view,
            schema: self.schema,
            dn,
            id,
        };
        let on_entry = match grants.is_unlimited() {
            true => None,
            false => Some(grants.on_entry_within(&asked, work)?),
        };
        let may_search = on_entry.as_ref();
        if may_search.is_some_and(|granted| !granted.has(Slot::ENTRY, Rights::SEARCH)) {
            return Ok(false);
        }
        let known = (self.schema, &self.state.attributes);
        let granted = (grants, on_entry.as_ref());
        let filter = (filter.as_filter(), &mut None);
        Ok(*work > 0
            && self
                .view
                .evaluate(known, granted, (id, None), filter, work)?
                == Some(true))
    }

    /// Whether each identity in the requester's chain may still act as the next.
    pub(crate) fn is_authorized(
        &self,
        requester: &Requester,
        by_rules: ByRules<'_>,
        work: &mut u64,
    ) -> Result<bool> {
        let mut acting = requester;
        while let Some(asker) = &acting.asked_by {
            if !self.may_ask(asker, acting.identity(), by_rules, work)? {
                return Ok(false);
            }
            acting = asker;
        }
        Ok(true)
    }

    /// Whether `asker` may act as `target`, with its grants compiled on these data.
    pub(crate) fn may_ask(
        &self,
        asker: &Arc<Requester>,
        target: &Identity,
        by_rules: ByRules<'_>,
        work: &mut u64,
    ) -> Result<bool> {
        let known = by_rules(asker)?;
        Ok(take(work, known.grants().work()) && self.may_act(&known, target, work)?)
    }
}

impl Requester {
    /// Whether the chain of identities that act for each other may become longer.
    pub(crate) fn may_act_further(&self) -> bool {
        self.depth() < ACTING_DEPTH_MAX
    }

    /// The length of that chain.
    fn depth(&self) -> usize {
        self.asked_by.as_ref().map_or(0, |asker| 1 + asker.depth())
    }

    /// Whether the requester may still act for others, on the data of a transaction. Always true of a requester that
    /// acts for nobody. The cost is taken from `work`.
    pub(crate) fn is_authorized<R: Evaluate>(
        &self,
        schema: &Schema,
        (view, state): (&R, &Arc<State>),
        is_disabled: IsDisabled<'_>,
        work: &mut u64,
    ) -> Result<bool> {
        let data = Acting::new(view, (schema, state), is_disabled);
        let rules = &self.grants.set;
        let by_rules = |asker: &Arc<Requester>| match rules.is_of(asker) {
            true => Ok(asker.clone()),
            false => rules.renewed(schema, asker, (view, state)),
        };
        data.is_authorized(self, &by_rules, work)
    }
}
