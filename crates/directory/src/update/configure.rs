//! Updates of `cn=config`, which change what is configured with the data. They are updates as others are: applied in a
//! batch, durable when they are answered, and seen by each snapshot that is taken later. Only the administrator comes
//! here.

mod agreements;
mod extensions;
mod listed;
mod schema;
mod schema_use;

use std::sync::Arc;

use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::{Change, ChangeKind, OctetStrings};
use sapwood_ldap::message::{AddRequest, ModifyRequest};
use sapwood_ldap::result::ResultCode;

use super::Run;
use super::rules::RuleSet;
use crate::access::{AccessRules, PolicyList};
use crate::config::access::{ACCESS, AccessList};
use crate::config::agreements::{SYNCREPL, UPDATE_REF};
use crate::config::authorization::AUTHZ_REGEXP;
use crate::config::entries::{
    AUTOMEMBER, CONSTRAINT, DATA, DDS, DYNLIST, FRONTEND, GLOBAL, LINKED, MANAGED, MEMBER_OF,
    NUMBERS, PASSWORD_POLICY, REFINT, SECOND_FACTOR, UNIQUE, VALUE_SORT,
};
use crate::config::extensions::EXTENSIONS;
use crate::config::limits::LIMITS;
use crate::config::unique::UNIQUE_URI;
use crate::config::{
    AutomemberRule, ConstraintRule, DdsRule, DynlistRule, LinkedRule, ManagedRule, MemberOfRule,
    NumbersRule, PasswordPolicyOverlay, RefintRule, Setting, Settings, UniqueRule, ValueSortRule,
    automember, constraint, dds, dynlist, elsewhere, linked, managed, member_of, numbers, ordered,
    password_policy, refint as integrity, value_sort,
};
use crate::definition;
use crate::engine::Write;
use crate::error::Error;
use crate::index_definition::IndexDefinition;
use crate::indexes::{AttributeIndexes, Completeness};
use crate::outcome::{Outcome, Stop};
use crate::policy::RULES_MAX;
use crate::schema::{NormalDn, Schema};
use crate::state::State;
use crate::synthetic::SyntheticContext;
use crate::synthetic::config;
use crate::synthetic::root_dse::Channel;

impl<T: Write> Run<'_, T> {
    /// Modifies an entry of `cn=config`.
    pub(super) fn configure(
        &mut self,
        normal: &NormalDn,
        request: &ModifyRequest<'_>,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        self.check_alone(controls)?;
        if is_module_list(normal, request.dn) {
            let changes = request.changes.iter();
            let all = changes.map(|change| (change.attribute.description, change.attribute.values));
            return check_modules(all);
        }
        let entry = self.configured_entry(normal)?;
        if self.configure_schema(&entry, request)? {
            return Ok(());
        }
        // What is known of the directory changes when all is written: what is refused before that is undone by the
        // engine.
        let mut state = State::clone(self.state);
        let mut begins_indexes = false;
        for change in request.changes {
            let target = self.configured(change.attribute.description)?;
            let context = config::context_of(&entry).filter(|_| matches!(target, Target::Access));
            if !target.entries().contains(&entry.as_str()) && context.is_none() {
                let (attribute, entries) = (target.attribute(), target.entries());
                let diagnostic = format!("{attribute} is set in {}", entries.join(" and "));
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
            match target {
                Target::Setting(setting) => make(setting, &mut state.settings, &change)?,
                Target::Indexes => begins_indexes |= self.change_indexes(&mut state, &change)?,
                Target::Extensions => extensions::change(&mut state.settings.extensions, &change)?,
                Target::Unique => listed::change::<UniqueRule>(&mut state.settings, &change)?,
                Target::Constraint => {
                    listed::change::<ConstraintRule>(&mut state.settings, &change)?;
                }
                Target::Automember => {
                    listed::change::<AutomemberRule>(&mut state.settings, &change)?;
                }
                Target::Linked => listed::change::<LinkedRule>(&mut state.settings, &change)?,
                Target::Managed => listed::change::<ManagedRule>(&mut state.settings, &change)?,
                Target::Numbers => listed::change::<NumbersRule>(&mut state.settings, &change)?,
                Target::Dynlist => listed::change::<DynlistRule>(&mut state.settings, &change)?,
                Target::ValueSort => {
                    listed::change::<ValueSortRule>(&mut state.settings, &change)?;
                }
                Target::Referring => integrity::change(&mut state.settings, &change)?,
                Target::AuthzRegexps => {
                    ordered::change(&mut state.settings.authz_regexps, &change)?;
                }
                Target::Limits => ordered::change(&mut state.settings.limits, &change)?,
                Target::Agreements => ordered::change(&mut state.settings.agreements, &change)?,
                Target::UpdateRefs => ordered::change(&mut state.settings.update_refs, &change)?,
                Target::Access => {
                    let list = match context {
                        Some(place) => AccessList::Context(place),
                        None if entry == FRONTEND => AccessList::Global,
                        None => AccessList::Data,
                    };
                    ordered::change(list.of_mut(&mut state.settings), &change)?;
                    state.settings.drop_empty_lists();
                }
            }
        }
        self.put(state)?;
        *self.begins_indexes |= begins_indexes;
        Ok(())
    }

    /// Puts another state in the place of the one that is known, if it can be, and writes its definition.
    fn put(&mut self, mut state: State) -> Result<(), Stop> {
        let is_same_settings = state.settings == self.state.settings;
        if is_same_settings && state.indexes == self.state.indexes {
            return Ok(());
        }
        if state.settings.agreements != self.state.settings.agreements {
            agreements::check(self.schema, &state)?;
            self.forget_positions(&state)?;
        }
        let mut made = None;
        let (now, before) = (&state.settings, &self.state.settings);
        if now.unique != before.unique
            || now.constraints != before.constraints
            || now.value_sorts != before.value_sorts
            || now.refint != before.refint
            || now.member_of != before.member_of
            || now.dynlist != before.dynlist
            || now.dds != before.dds
            || now.numbers != before.numbers
            || now.automember != before.automember
            || now.linked != before.linked
            || now.managed != before.managed
            || now.password_policy.is_some() != before.password_policy.is_some()
        {
            if let Some(name) = now.doubled_rule_name() {
                let diagnostic = format!("there is a rule that is called {name} already");
                return Err(Stop::refuse(ResultCode::AttributeOrValueExists, diagnostic));
            }
            let rules = RuleSet::new(self.schema, &state).map_err(refused)?;
            rules.check(self.schema, &state).map_err(refused)?;
            made = Some(Arc::new(rules));
            // Updates of all stores are ended with the rules that were, or begun with those that are.
            self.txn.guard_move()?;
        }
        if state.differs_in_access(self.state) {
            check_rules_count(&state.settings)?;
            // Whether they can be put in force.
            let rules = AccessRules::new(self.schema, state.policy(), 0);
            rules.map_err(|error| {
                let attribute = match error.list {
                    PolicyList::Rules => ACCESS,
                    PolicyList::Limits => LIMITS,
                };
                refused(Error::Config(format!("{attribute}: {error}")))
            })?;
            *self.changes_access = true;
        }
        state.know_computed(self.accounts, &self.options.clock);
        definition::store(self.txn, &mut state)?;
        *self.state = state;
        if let Some(rules) = made {
            *self.rules_made = rules;
        }
        Ok(())
    }

    /// Changes which indexes there are; whether some are to be built.
    fn change_indexes(&mut self, state: &mut State, change: &Change<'_>) -> Result<bool, Stop> {
        let schema = self.schema;
        let now = indexed(schema, state);
        let given = index_definitions(schema, change.attribute.values)?;
        let (wanted, unwanted) = match change.kind {
            ChangeKind::Add if given.is_empty() => {
                let diagnostic = format!("{INDEXES}: there is no value to add");
                return Err(Stop::refuse(ResultCode::ProtocolError, diagnostic));
            }
            ChangeKind::Add => (given, Vec::new()),
            ChangeKind::Delete if given.is_empty() => (Vec::new(), without(&now, &kept())),
            ChangeKind::Delete => (Vec::new(), given),
            ChangeKind::Replace => {
                let unwanted = without(&without(&now, &given), &kept());
                (without(&given, &now), unwanted)
            }
            ChangeKind::Increment => {
                let diagnostic = format!("{INDEXES} cannot be incremented");
                return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
            }
        };
        let refused = |error| match error {
            Error::Config(why) => refused(Error::Config(format!("{INDEXES}: {why}"))),
            failed => refused(failed),
        };
        for definition in &unwanted {
            let count = definition
                .kinds()
                .iter()
                .filter(|(_, is_wanted)| *is_wanted)
                .count();
            let dropped = {
                let rules = self.rules;
                let is_read =
                    |state: &State, index| rules.is_some_and(|rules| rules.reads(state, index));
                definition::indexes::drop_from(self.txn, schema, state, definition, is_read)
            };
            if dropped.map_err(refused)? < count {
                let diagnostic = format!("{INDEXES}: there is no index {definition}");
                return Err(Stop::refuse(ResultCode::NoSuchAttribute, diagnostic));
            }
        }
        let mut begins = false;
        for definition in &wanted {
            let begun = definition::indexes::begin(self.txn, schema, state, definition);
            let is_new = !begun.map_err(refused)?.is_empty();
            if !is_new && change.kind == ChangeKind::Add {
                let diagnostic = format!("{INDEXES}: the index {definition} is there already");
                return Err(Stop::refuse(ResultCode::AttributeOrValueExists, diagnostic));
            }
            begins |= is_new;
        }
        Ok(begins)
    }

    /// Adds an entry to `cn=config`: those that name modules are taken if all that they name is built in, and leave
    /// nothing behind.
    pub(super) fn configure_more(
        &mut self,
        normal: &NormalDn,
        request: &AddRequest<'_>,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        self.check_alone(controls)?;
        if is_overlay(request.dn, "unique") && self.is_in_data(request.dn) {
            return self.add_listed::<UniqueRule>(request);
        }
        if is_overlay(request.dn, "constraint") && self.is_in_data(request.dn) {
            return self.add_listed::<ConstraintRule>(request);
        }
        if is_overlay(request.dn, "dynlist") && self.is_in_data(request.dn) {
            return self.add_listed::<DynlistRule>(request);
        }
        if is_overlay(request.dn, "automember") && self.is_in_data(request.dn) {
            return self.add_listed::<AutomemberRule>(request);
        }
        if is_overlay(request.dn, "linked") && self.is_in_data(request.dn) {
            return self.add_listed::<LinkedRule>(request);
        }
        if is_overlay(request.dn, "managed") && self.is_in_data(request.dn) {
            return self.add_listed::<ManagedRule>(request);
        }
        if is_overlay(request.dn, "numbers") && self.is_in_data(request.dn) {
            return self.add_listed::<NumbersRule>(request);
        }
        if is_overlay(request.dn, "dds") && self.is_in_data(request.dn) {
            return self.add_overlay((DDS, request), |settings| {
                settings.dds.replace(DdsRule::default()).is_none()
            });
        }
        if is_overlay(request.dn, "valsort") && self.is_in_data(request.dn) {
            return self.add_listed::<ValueSortRule>(request);
        }
        if is_overlay(request.dn, "refint") && self.is_in_data(request.dn) {
            return self.add_overlay((REFINT, request), |settings| {
                settings.refint.replace(RefintRule::default()).is_none()
            });
        }
        if is_overlay(request.dn, "memberof") && self.is_in_data(request.dn) {
            return self.add_overlay((MEMBER_OF, request), |settings| {
                settings
                    .member_of
                    .replace(MemberOfRule::default())
                    .is_none()
            });
        }
        if is_overlay(request.dn, "ppolicy") && self.is_in_data(request.dn) {
            return self.add_overlay((PASSWORD_POLICY, request), |settings| {
                let before = settings
                    .password_policy
                    .replace(PasswordPolicyOverlay::default());
                before.is_none()
            });
        }
        if is_overlay(request.dn, "otp") && self.is_in_data(request.dn) {
            return self.add_second_factor(request);
        }
        if self.add_schema_entry(request)? {
            return Ok(());
        }
        if !is_module_list(normal, request.dn) {
            return Err(super::no_update_of(SyntheticContext::Config, "added to"));
        }
        let attributes = request.attributes.iter();
        check_modules(attributes.map(|attribute| (attribute.description, attribute.values)))
    }

    /// Adds an overlay with what is set in its entry. `begin` has it be there without anything set, unless it is there
    /// already.
    fn add_overlay(
        &mut self,
        (entry, request): (&str, &AddRequest<'_>),
        begin: impl FnOnce(&mut Settings) -> bool,
    ) -> Result<(), Stop> {
        let mut state = State::clone(self.state);
        if !begin(&mut state.settings) {
            let diagnostic = format!("{entry} is there already: modify it");
            return Err(Stop::refuse(ResultCode::EntryAlreadyExists, diagnostic));
        }
        for attribute in request.attributes {
            let known = self.schema.attribute_type(attribute.description);
            if known.is_some_and(|known| ["objectClass", "olcOverlay"].contains(&known.name())) {
                continue;
            }
            let change = |kind| Change { kind, attribute };
            match self.configured(attribute.description)? {
                Target::Setting(setting) if setting.entry == entry => {
                    make(setting, &mut state.settings, &change(ChangeKind::Replace))?;
                }
                Target::Referring if entry == REFINT => {
                    integrity::change(&mut state.settings, &change(ChangeKind::Add))?;
                }
                _ => {
                    let name = String::from_utf8_lossy(attribute.description);
                    let diagnostic = format!("{name} is not set in {entry}");
                    return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
                }
            }
        }
        self.put(state)
    }

    /// Adds the overlay of one-time passwords.
    fn add_second_factor(&mut self, request: &AddRequest<'_>) -> Result<(), Stop> {
        let mut state = State::clone(self.state);
        if state.settings.second_factor {
            let diagnostic = format!("{SECOND_FACTOR} is there already");
            return Err(Stop::refuse(ResultCode::EntryAlreadyExists, diagnostic));
        }
        let mut attributes = request.attributes.iter();
        let other = attributes.find(|attribute| {
            let known = self.schema.attribute_type(attribute.description);
            !known.is_some_and(|known| ["objectClass", "olcOverlay"].contains(&known.name()))
        });
        if let Some(other) = other {
            let name = String::from_utf8_lossy(other.description);
            let diagnostic = format!("{name} is not set in {SECOND_FACTOR}: nothing is");
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        state.settings.second_factor = true;
        self.put(state)
    }

    /// Deletes an entry of `cn=config`: the rules of unique values go with theirs.
    pub(super) fn configure_less(
        &mut self,
        normal: &NormalDn,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        self.check_alone(controls)?;
        let entry = self.configured_entry(normal)?;
        if self.delete_schema_entry(&entry)? {
            return Ok(());
        }
        let mut state = State::clone(self.state);
        match entry.as_str() {
            UNIQUE => state.settings.unique.clear(),
            CONSTRAINT => state.settings.constraints.clear(),
            VALUE_SORT => state.settings.value_sorts.clear(),
            DYNLIST => state.settings.dynlist.clear(),
            DDS => state.settings.dds = None,
            NUMBERS => state.settings.numbers.clear(),
            LINKED => state.settings.linked.clear(),
            MANAGED => state.settings.managed.clear(),
            AUTOMEMBER => state.settings.automember.clear(),
            REFINT => state.settings.refint = None,
            MEMBER_OF => state.settings.member_of = None,
            PASSWORD_POLICY => state.settings.password_policy = None,
            SECOND_FACTOR => state.settings.second_factor = false,
            _ => return Err(super::no_update_of(SyntheticContext::Config, "deleted")),
        }
        self.put(state)
    }

    /// Whether a DN is right below that of the data.
    fn is_in_data(&self, dn: &str) -> bool {
        let above = Dn::parse(dn).ok().and_then(|dn| dn.parent());
        let mut normal = NormalDn::new();
        above.is_some_and(|above| {
            let parsed = normal.parse(self.schema, above.as_str().as_bytes());
            parsed.is_ok()
                && self
                    .configured_entry(&normal)
                    .is_ok_and(|entry| entry == DATA)
        })
    }

    /// Refuses what an update of the configuration cannot be part of.
    fn check_alone(&self, controls: &RequestControls<'_>) -> Result<(), Stop> {
        if self.in_transaction {
            let diagnostic =
                "an update of cn=config or of the schema cannot be part of a transaction";
            return Err(Stop::refuse(ResultCode::AffectsMultipleDsas, diagnostic));
        }
        if controls.assertion.is_some()
            || controls.pre_read.is_some()
            || controls.post_read.is_some()
            || controls.permissive_modify.is_some()
            || controls.no_op.is_some()
            || controls.relax_rules.is_some()
        {
            let diagnostic = "an update of cn=config or of the schema takes none of the controls assertion, \
                              pre-read, post-read, permissive modify, no-op and relax rules";
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        Ok(())
    }

    /// The DN of the entry that a name leads to, as it is written in `cn=config`.
    fn configured_entry(&self, normal: &NormalDn) -> Result<String, Stop> {
        let root_dse = &self.options.root_dse;
        let state = Arc::new(State::clone(self.state));
        let channel = Channel::default();
        let context =
            self.synthetic
                .get(SyntheticContext::Config, channel, root_dse, &state, || {
                    Ok(Vec::new())
                })?;
        match context.find(normal) {
            Ok(at) => Ok(context.entry(at).map_or("", |entry| entry.dn()).to_owned()),
            Err(above) => {
                let outcome = Outcome::new(ResultCode::NoSuchObject, "cn=config has no such entry");
                Err(outcome.matched(above).into())
            }
        }
    }

    /// What a description names.
    fn configured(&self, description: &[u8]) -> Result<Target, Stop> {
        let name = std::str::from_utf8(description).unwrap_or_default();
        let known = self.schema.attribute_type(description);
        let name = known.map_or(name, |known| known.name());
        let of_overlays = password_policy::SETTINGS
            .iter()
            .chain(integrity::SETTINGS)
            .chain(member_of::SETTINGS)
            .chain(dds::SETTINGS);
        let is_it = |setting: &&Setting| setting.attribute.eq_ignore_ascii_case(name);
        if let Some(setting) = Setting::of(name).or_else(|| of_overlays.clone().find(is_it)) {
            return Ok(Target::Setting(setting));
        }
        if name.eq_ignore_ascii_case(integrity::ATTRIBUTE) {
            return Ok(Target::Referring);
        }
        if name.eq_ignore_ascii_case(INDEXES) {
            return Ok(Target::Indexes);
        }
        if name.eq_ignore_ascii_case(EXTENSIONS) {
            return Ok(Target::Extensions);
        }
        if name.eq_ignore_ascii_case(UNIQUE_URI) {
            return Ok(Target::Unique);
        }
        if name.eq_ignore_ascii_case(constraint::ATTRIBUTE) {
            return Ok(Target::Constraint);
        }
        if name.eq_ignore_ascii_case(automember::ATTRIBUTE) {
            return Ok(Target::Automember);
        }
        if name.eq_ignore_ascii_case(linked::ATTRIBUTE) {
            return Ok(Target::Linked);
        }
        if name.eq_ignore_ascii_case(managed::ATTRIBUTE) {
            return Ok(Target::Managed);
        }
        if name.eq_ignore_ascii_case(numbers::ATTRIBUTE) {
            return Ok(Target::Numbers);
        }
        if name.eq_ignore_ascii_case(dynlist::ATTRIBUTE) {
            return Ok(Target::Dynlist);
        }
        if name.eq_ignore_ascii_case(value_sort::ATTRIBUTE) {
            return Ok(Target::ValueSort);
        }
        if name.eq_ignore_ascii_case(ACCESS) {
            return Ok(Target::Access);
        }
        if name.eq_ignore_ascii_case(AUTHZ_REGEXP) {
            return Ok(Target::AuthzRegexps);
        }
        if name.eq_ignore_ascii_case(LIMITS) {
            return Ok(Target::Limits);
        }
        if name.eq_ignore_ascii_case(SYNCREPL) {
            return Ok(Target::Agreements);
        }
        if name.eq_ignore_ascii_case(UPDATE_REF) {
            return Ok(Target::UpdateRefs);
        }
        let (code, diagnostic) = match (elsewhere::remedy(name), known) {
            (Some(remedy), _) => {
                let diagnostic = format!("{name} is not set here: {remedy}");
                (ResultCode::UnwillingToPerform, diagnostic)
            }
            (None, Some(_)) => {
                let diagnostic = format!("{name} cannot be changed in cn=config");
                (ResultCode::UnwillingToPerform, diagnostic)
            }
            (None, None) => {
                let diagnostic = "cn=config has no such attribute, and the schema defines none";
                (ResultCode::UndefinedAttributeType, diagnostic.to_owned())
            }
        };
        Err(Stop::refuse(code, diagnostic))
    }
}

/// What of the configuration a modify changes.
#[derive(Clone, Copy)]
enum Target {
    Setting(&'static Setting),
    /// The attributes whose values follow the entries that they name.
    Referring,
    Indexes,
    Extensions,
    Unique,
    Constraint,
    ValueSort,
    Dynlist,
    Numbers,
    Automember,
    Linked,
    Managed,
    Access,
    AuthzRegexps,
    Limits,
    Agreements,
    UpdateRefs,
}

impl Target {
    fn attribute(self) -> &'static str {
        match self {
            Target::Setting(setting) => setting.attribute,
            Target::Referring => integrity::ATTRIBUTE,
            Target::Indexes => INDEXES,
            Target::Extensions => EXTENSIONS,
            Target::Unique => UNIQUE_URI,
            Target::Constraint => constraint::ATTRIBUTE,
            Target::ValueSort => value_sort::ATTRIBUTE,
            Target::Dynlist => dynlist::ATTRIBUTE,
            Target::Numbers => numbers::ATTRIBUTE,
            Target::Linked => linked::ATTRIBUTE,
            Target::Managed => managed::ATTRIBUTE,
            Target::Automember => automember::ATTRIBUTE,
            Target::Access => ACCESS,
            Target::AuthzRegexps => AUTHZ_REGEXP,
            Target::Limits => LIMITS,
            Target::Agreements => SYNCREPL,
            Target::UpdateRefs => UPDATE_REF,
        }
    }

    /// The entries that have the attribute.
    fn entries(self) -> &'static [&'static str] {
        match self {
            Target::Setting(setting) => std::slice::from_ref(&setting.entry),
            Target::Indexes
            | Target::Limits
            | Target::Agreements
            | Target::UpdateRefs
            | Target::Extensions => &[DATA],
            Target::Unique => &[UNIQUE],
            Target::Constraint => &[CONSTRAINT],
            Target::ValueSort => &[VALUE_SORT],
            Target::Dynlist => &[DYNLIST],
            Target::Numbers => &[NUMBERS],
            Target::Linked => &[LINKED],
            Target::Managed => &[MANAGED],
            Target::Automember => &[AUTOMEMBER],
            Target::Referring => &[REFINT],
            Target::Access => &[DATA, FRONTEND],
            Target::AuthzRegexps => &[GLOBAL],
        }
    }
}

/// What is told of a configuration that cannot be.
fn refused(error: Error) -> Stop {
    match error {
        Error::Config(why) => Stop::refuse(ResultCode::UnwillingToPerform, why),
        failed => Stop::Failed(failed),
    }
}

/// Rules of all lists together: every bind looks at all of them.
const ALL_RULES_MAX: usize = 10 * RULES_MAX;

fn check_rules_count(settings: &Settings) -> Result<(), Stop> {
    let count: usize = AccessList::all(settings)
        .map(|(_, rules)| rules.len())
        .sum();
    if count > ALL_RULES_MAX {
        let diagnostic =
            format!("{ACCESS}: all lists together have more than {ALL_RULES_MAX} rules");
        return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
    }
    Ok(())
}

/// The attribute that says which indexes there are.
const INDEXES: &str = "olcDbIndex";

/// Attributes that one modify defines the indexes of.
const INDEXED_MAX: usize = 1000;

/// The indexes there are, complete or not.
fn indexed(schema: &Schema, state: &State) -> Vec<IndexDefinition> {
    let is_there = |known: Completeness| known != Completeness::Absent;
    let definition = |indexes: &AttributeIndexes| IndexDefinition {
        attribute: schema.type_of(indexes.attribute_type).name().to_owned(),
        equality: is_there(indexes.equality),
        presence: is_there(indexes.presence),
        substring: is_there(indexes.substring),
        approximate: is_there(indexes.approximate),
        ordering: is_there(indexes.ordering),
    };
    state.indexes.iter().map(definition).collect()
}

/// The indexes that no modify drops.
fn kept() -> Vec<IndexDefinition> {
    let kept = definition::ALWAYS_INDEXED.into_iter();
    let definition = |attribute: &str| IndexDefinition {
        attribute: attribute.to_owned(),
        equality: true,
        ..IndexDefinition::default()
    };
    kept.map(definition).collect()
}

/// Definitions without what others define.
fn without(all: &[IndexDefinition], others: &[IndexDefinition]) -> Vec<IndexDefinition> {
    let rest = all.iter().map(|definition| {
        let same = |other: &&IndexDefinition| other.attribute == definition.attribute;
        let none = IndexDefinition::default();
        let other = others.iter().find(same).unwrap_or(&none);
        IndexDefinition {
            attribute: definition.attribute.clone(),
            equality: definition.equality && !other.equality,
            presence: definition.presence && !other.presence,
            substring: definition.substring && !other.substring,
            approximate: definition.approximate && !other.approximate,
            ordering: definition.ordering && !other.ordering,
        }
    });
    rest.filter(|definition| !definition.is_empty()).collect()
}

/// The definitions that values of olcDbIndex are, each attribute once and by its name.
fn index_definitions(
    schema: &Schema,
    values: OctetStrings<'_>,
) -> Result<Vec<IndexDefinition>, Stop> {
    let refused = |why: String| {
        let diagnostic = format!("{INDEXES}: {why}");
        Stop::refuse(ResultCode::ConstraintViolation, diagnostic)
    };
    let mut given = Vec::new();
    for value in values {
        let value =
            std::str::from_utf8(value).map_err(|_| refused("a value is not UTF-8".into()))?;
        for mut definition in IndexDefinition::parse(value).map_err(refused)? {
            let Some(known) = schema.attribute_type(definition.attribute.as_bytes()) else {
                let why = "the schema does not define an attribute that is to be indexed";
                return Err(refused(why.into()));
            };
            definition.attribute = known.name().to_owned();
            given.push(definition);
        }
        if given.len() > INDEXED_MAX {
            let diagnostic = format!("{INDEXES}: more than {INDEXED_MAX} attributes in one modify");
            return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
        }
    }
    Ok(IndexDefinition::merged(given))
}

/// Makes one change of a setting.
fn make(setting: &Setting, settings: &mut Settings, change: &Change<'_>) -> Result<(), Stop> {
    let mut values = change.attribute.values.iter();
    let (first, more) = (values.next(), values.next());
    if more.is_some() {
        let diagnostic = format!("{} has one value", setting.attribute);
        return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
    }
    let value = first.map(|value| text(setting, value)).transpose()?;
    match (change.kind, value) {
        (ChangeKind::Add, Some(value)) => setting.add(settings, value),
        (ChangeKind::Replace, Some(value)) => setting.replace(settings, value),
        (ChangeKind::Delete, value) => setting.delete(settings, value),
        (ChangeKind::Replace, None) => setting.delete(settings, None),
        (ChangeKind::Add, None) => {
            let diagnostic = format!("{}: there is no value to add", setting.attribute);
            Err(Stop::refuse(ResultCode::ProtocolError, diagnostic))
        }
        (ChangeKind::Increment, _) => {
            let diagnostic = format!("{} cannot be incremented", setting.attribute);
            Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic))
        }
    }
}

fn text<'v>(setting: &Setting, value: &'v [u8]) -> Result<&'v str, Stop> {
    std::str::from_utf8(value).map_err(|_| {
        let diagnostic = format!("{}: the value is not UTF-8", setting.attribute);
        Stop::refuse(ResultCode::InvalidAttributeSyntax, diagnostic)
    })
}

/// Whether a DN begins with the RDN of an overlay, with a number or without.
fn is_overlay(dn: &str, name: &str) -> bool {
    let rdn = Dn::parse(dn).ok().and_then(|dn| dn.rdn());
    let rdn = rdn.map_or(String::new(), |rdn| rdn.as_str().to_ascii_lowercase());
    let Some(value) = rdn.strip_prefix("olcoverlay=") else {
        return false;
    };
    value.split_once('}').map_or(value, |(_, name)| name) == name
}

/// Whether a DN in `cn=config` is that of a list of modules: `cn=module` or `cn=module{0}` right below it.
fn is_module_list(normal: &NormalDn, dn: &str) -> bool {
    let rdn = Dn::parse(dn).ok().and_then(|dn| dn.rdn());
    let Some(rdn) = rdn.filter(|_| normal.len() == 2) else {
        return false;
    };
    let rdn = rdn.as_str().to_ascii_lowercase();
    let name = rdn.strip_prefix("cn=").unwrap_or_default();
    let Some(number) = name.strip_prefix("module") else {
        return false;
    };
    let number = number
        .strip_prefix('{')
        .and_then(|number| number.strip_suffix('}'))
        .unwrap_or(number);
    number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Refuses modules that are not built in.
fn check_modules<'a>(
    attributes: impl Iterator<Item = (&'a [u8], OctetStrings<'a>)>,
) -> Result<(), Stop> {
    for (description, values) in attributes {
        if !description.eq_ignore_ascii_case(b"olcModuleLoad") {
            continue;
        }
        for module in values {
            let module = String::from_utf8_lossy(module);
            if !elsewhere::is_built_in(&module) {
                let diagnostic = format!(
                    "there is no module {module}: what Sapwood does is built in, and this is not among it, or is \
                     switched on elsewhere (docs/operating/configuration.md)"
                );
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
        }
    }
    Ok(())
}
