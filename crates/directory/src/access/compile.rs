//! Compiles access rules for one identity, in two steps.
//!
//! When the rules change, their names are looked up in the schema: [`AccessRules`]. When an identity binds, clauses
//! that cannot apply to it are dropped: [`Grants`]. Conditions that depend on the entry are left, and are evaluated for
//! each entry.

use std::cell::OnceCell;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};

use sapwood_ldap::filter_text;

use super::bounds::Bounds;
use super::condition::{Condition, RuleFilter};
use super::evaluate::Evaluate;
use super::grants::Grants;
use super::limits::CompiledLimits;
use super::rule_for::{Clause, RuleFor};
use super::single::{VALUE_RULES_MAX, ValueTest};
use super::who::CompiledWho;
use super::{Connection, Identity};
use crate::engine::{Embedded, Engine, EntryId};
use crate::error::{Error, Result};
use crate::policy::entry_test::EntryTest;
use crate::policy::expansion::Source;
use crate::policy::regex::Regex;
use crate::policy::{
    Attributes, DnScope, Grant, ListScope, Policy, Rule, SearchBounds, Subject, Then,
};
use crate::schema::{AttributeTypeId, NormalDn, Schema, TypeSet};
use crate::state::State;

/// A rule cannot be used, because it names something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{list} {rule}: {why}")]
pub struct PolicyError {
    /// The kind of its list.
    pub list: PolicyList,
    /// The number of the rule in its list, counted from 1.
    pub rule: usize,
    /// What is wrong with it.
    pub why: String,
}

impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Error {
        Error::Config(error.to_string())
    }
}

/// A kind of list in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyList {
    /// Access rules.
    Rules,
    /// Limits.
    Limits,
}

impl fmt::Display for PolicyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyList::Rules => "access rule",
            PolicyList::Limits => "limit",
        })
    }
}

/// Something that rights are granted on: an attribute type that a rule names, all other attribute types together, the
/// entry itself, or its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The entry itself.
    pub(crate) const ENTRY: Slot = Slot(0);
    /// Its children.
    pub(crate) const CHILDREN: Slot = Slot(1);
    /// All attribute types that no rule names.
    const OTHERS: Slot = Slot(2);

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The state in the grants of rules that depend on no data.
pub(super) static NO_STATE: LazyLock<Arc<State>> = LazyLock::new(Arc::default);

/// Work of deciding whether a clause applies to an identity, without reading data.
const CLAUSE_WORK: u64 = 200;

/// Rules with their names looked up. Shared by the grants of all identities.
#[derive(Debug)]
pub(crate) struct AccessRules {
    /// The rules in their written form.
    pub(super) policy: Policy,
    /// Greater than the version of all sets before it.
    pub(super) version: u64,
    rules: Vec<CompiledRule>,
    /// What rules ask of single values; the rules have their indexes.
    pub(super) value_tests: Vec<ValueTest>,
    /// The slots of the attributes of whose values some are treated apart.
    pub(super) value_slots: Vec<Slot>,
    limits: Vec<CompiledLimits>,
    /// The slot of each attribute type, by its index in the schema.
    by_type: Vec<Slot>,
    pub(super) slots: usize,
    /// The slot of protected attributes, if rules name them.
    pub(super) protected: Option<Slot>,
    /// Whether rules depend on data such as groups. Grants are then compiled again for each commit.
    pub(super) needs_data: bool,
    /// Which of the rules are global: the last ones.
    pub(super) global: Range<usize>,
    /// The naming contexts, each with the number of the list that covers it. Empty if one list covers all of them.
    contexts: Vec<(NormalDn, usize)>,
}

#[derive(Debug)]
struct CompiledRule {
    /// The number of its list, if that list covers only some naming contexts.
    list: Option<usize>,
    entries: Option<EntryTest>,
    /// Further conditions on the entry.
    needs: Vec<Condition>,
    /// By slot, whether the rule covers it.
    slots: Box<[bool]>,
    /// The test that a value must pass, by its index. The rule is not about the attribute as a whole then.
    values: Option<usize>,
    by: Vec<CompiledBy>,
}

#[derive(Debug)]
struct CompiledBy {
    who: Vec<CompiledWho>,
    own_values: Option<Subject>,
    grant: Grant,
    then: Then,
}

impl AccessRules {
    /// No rules, for the administrator.
    pub(super) fn none() -> AccessRules {
        AccessRules {
            policy: Policy::from(Vec::new()),
            version: 0,
            rules: Vec::new(),
            value_tests: Vec::new(),
            value_slots: Vec::new(),
            limits: Vec::new(),
            by_type: Vec::new(),
            slots: Slot::OTHERS.index() + 1,
            protected: None,
            needs_data: false,
            global: 0..0,
            contexts: Vec::new(),
        }
    }

    /// Looks the names of rules up.
    ///
    /// # Errors
    /// When a rule names an attribute type or object class that the schema does not define, or something that is no DN.
    pub(crate) fn new(
        schema: &Schema,
        policy: Policy,
        version: u64,
    ) -> std::result::Result<AccessRules, PolicyError> {
        let mut by_type = vec![Slot::OTHERS; schema.attribute_types().len()];
        let mut slots = Slot::OTHERS.index() + 1;
        let mut named = Vec::new();
        let at = |rule: usize| {
            move |why| PolicyError {
                list: PolicyList::Rules,
                rule: rule + 1,
                why,
            }
        };
        for (_, number, rule) in numbered(&policy) {
            let types = NamedTypes::of(schema, &rule.to.attributes).map_err(at(number))?;
            // Companion secrets have the slot of userPassword, which is set below.
            let is_told = |known: &AttributeTypeId| !schema.is_companion_secret(*known);
            for known in types.all().filter(is_told) {
                let slot = &mut by_type[known.index()];
                if *slot == Slot::OTHERS {
                    // A schema has at most as many types as a u16 can number.
                    *slot = Slot(u16::try_from(slots).unwrap_or(Slot::OTHERS.0));
                    slots += 1;
                }
            }
            named.push(types);
        }
        let password = by_type[schema.well_known().user_password.index()];
        for companion in schema.companion_secrets() {
            by_type[companion.index()] = password;
        }
        let mut rules = Vec::with_capacity(named.len());
        let (mut value_tests, mut value_slots) = (Vec::new(), Vec::new());
        for ((list, number, rule), types) in numbered(&policy).zip(&named) {
            let attributes = &rule.to.attributes;
            let is_all = attributes.is_empty() || types.is_all;
            let mut is_about = vec![is_all; slots].into_boxed_slice();
            for excluded in &types.excluded {
                let mut is_in = vec![true; slots];
                for known in excluded
                    .iter()
                    .filter(|id| !schema.is_companion_secret(*id))
                {
                    is_in[by_type[known.index()].index()] = false;
                }
                is_about
                    .iter_mut()
                    .zip(is_in)
                    .for_each(|(about, is_in)| *about |= is_in);
            }
            let included = types.included.iter();
            for known in included.filter(|id| !schema.is_companion_secret(*id)) {
                is_about[by_type[known.index()].index()] = true;
            }
            is_about[Slot::ENTRY.index()] |= attributes.contains(&Attributes::Entry);
            is_about[Slot::CHILDREN.index()] |= attributes.contains(&Attributes::Children);
            let is_of_some = matches!(policy.lists[list].of, ListScope::Contexts(_));
            let list = is_of_some.then_some(list);
            let values = match ValueTest::new(schema, &rule.to).map_err(at(number))? {
                Some(_) if value_tests.len() == VALUE_RULES_MAX => {
                    let why = format!("more than {VALUE_RULES_MAX} rules look at values (val)");
                    return Err(at(number)(why));
                }
                Some(test) => {
                    value_slots.extend(
                        (0u16..)
                            .zip(&*is_about)
                            .filter(|(_, about)| **about)
                            .map(|(slot, _)| Slot(slot)),
                    );
                    value_tests.push(test);
                    Some(value_tests.len() - 1)
                }
                None => None,
            };
            let regex = match values.and_then(|test: usize| value_tests.get(test)) {
                Some(ValueTest::Matches(regex)) => Some(regex),
                _ => None,
            };
            let compiled = CompiledRule::new(schema, (list, regex), rule, is_about);
            let compiled = compiled.map_err(at(number))?;
            rules.push(CompiledRule { values, ..compiled });
        }
        value_slots.sort_unstable();
        value_slots.dedup();
        let limits = policy.limits.iter().enumerate().map(|(number, limits)| {
            let compiled = CompiledLimits::new(schema, limits);
            compiled.map_err(|why| PolicyError {
                list: PolicyList::Limits,
                rule: number + 1,
                why,
            })
        });
        let limits: Vec<CompiledLimits> = limits.collect::<std::result::Result<_, _>>()?;
        let local = policy
            .lists
            .iter()
            .filter(|list| list.of != ListScope::Global);
        let local: usize = local.map(|list| list.rules.len()).sum();
        Ok(AccessRules {
            needs_data: rules.iter().any(CompiledRule::needs_data)
                || limits.iter().any(CompiledLimits::needs_data),
            limits,
            global: local..rules.len(),
            contexts: contexts(schema, &policy)?,
            policy,
            version,
            rules,
            value_tests,
            value_slots,
            protected: Some(password).filter(|slot| *slot != Slot::OTHERS),
            by_type,
            slots,
        })
    }

    /// A rule by its index among all rules: its list, its index in the list, and the rule.
    pub(super) fn written(&self, place: usize) -> Option<(&ListScope, usize, &Rule)> {
        let (list, number, rule) = numbered(&self.policy).nth(place)?;
        Some((&self.policy.lists.get(list)?.of, number, rule))
    }

    /// The number of the list that covers the naming context of an entry. `None` if one list covers all contexts.
    pub(super) fn list_of(&self, dn: &NormalDn) -> Option<usize> {
        let around = self
            .contexts
            .iter()
            .filter(|(suffix, _)| dn.is_at_or_below(suffix));
        // Naming contexts may be nested. The entry belongs to the innermost.
        let innermost = around.max_by_key(|(suffix, _)| suffix.len());
        innermost.map(|(_, list)| *list)
    }

    /// Whether there are limits.
    pub(super) fn has_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// How many naming contexts [`list_of`](Self::list_of) looks at.
    pub(super) fn contexts_count(&self) -> usize {
        self.contexts.len()
    }

    /// All results that [`list_of`](Self::list_of) may have.
    fn lists(&self) -> Vec<Option<usize>> {
        let mut lists: Vec<_> = self.contexts.iter().map(|(_, list)| Some(*list)).collect();
        lists.sort_unstable();
        lists.dedup();
        if lists.is_empty() {
            lists.push(None);
        }
        lists
    }

    /// The slot that holds the rights on an attribute type.
    #[inline]
    pub(crate) fn slot(&self, attribute_type: AttributeTypeId) -> Slot {
        let slot = self.by_type.get(attribute_type.index());
        slot.copied().unwrap_or(Slot::OTHERS)
    }

    /// Whether some values of the attributes in a slot are treated apart.
    #[inline]
    pub(super) fn looks_at_values(&self, slot: Slot) -> bool {
        !self.value_slots.is_empty() && self.value_slots.binary_search(&slot).is_ok()
    }

    /// The grants of an identity over a connection, without data: none if the rules depend on data.
    pub(super) fn grants(
        self: &Arc<AccessRules>,
        schema: &Schema,
        (identity, real): (&Identity, &Identity),
        from: Option<&Connection>,
    ) -> Grants {
        let is_above_rules = matches!(identity, Identity::Admin { .. } | Identity::Replica { .. });
        match self.needs_data && !is_above_rules {
            true => self.nothing(identity),
            false => self
                .grants_with(
                    schema,
                    (identity, real),
                    from,
                    None::<(&<Embedded as Engine>::Snapshot, _)>,
                )
                .unwrap_or_else(|_| self.nothing(identity)),
        }
    }

    fn nothing(self: &Arc<AccessRules>, identity: &Identity) -> Grants {
        self.put_together(
            (Vec::new(), Vec::new()),
            identity,
            NO_STATE.clone(),
            (None, 0),
        )
    }

    /// The same with data. `real` is the identity that has authenticated.
    pub(super) fn grants_with<R: Evaluate>(
        self: &Arc<AccessRules>,
        schema: &Schema,
        (identity, real): (&Identity, &Identity),
        from: Option<&Connection>,
        data: Option<(&R, &Arc<State>)>,
    ) -> Result<Grants> {
        if matches!(identity, Identity::Admin { .. }) {
            return Ok(Grants::unlimited());
        }
        if matches!(identity, Identity::Replica { .. }) {
            // The one at the place of the first global rule covers synthetic entries, too.
            let rules = vec![RuleFor::reads_all(self.slots); self.global.start + 1];
            return Ok(self.put_together(
                (rules, Vec::new()),
                identity,
                NO_STATE.clone(),
                (None, 0),
            ));
        }
        let mut asker = Asker::new(schema, identity, from);
        if real != identity {
            asker.real = Some(Box::new(Asker::new(schema, real, from)));
        }
        let data = data.map(|(view, state)| ((view, schema), state));
        let mut conditions = Vec::new();
        let mut rules = Vec::with_capacity(self.rules.len());
        let mut work = 0;
        for (place, rule) in self.rules.iter().enumerate() {
            rules.push(rule.for_one(place, &asker, data, (&mut conditions, &mut work))?);
        }
        let limits = CompiledLimits::first(&self.limits, &asker, data, &mut work)?;
        let state = data.map_or_else(|| NO_STATE.clone(), |(_, state)| state.clone());
        Ok(self.put_together((rules, conditions), identity, state, (limits, work)))
    }

    fn put_together(
        self: &Arc<AccessRules>,
        (rules, conditions): (Vec<RuleFor>, Vec<Condition>),
        identity: &Identity,
        state: Arc<State>,
        (limits, work): (Option<SearchBounds>, u64),
    ) -> Grants {
        let bounds = Bounds::of(&rules, self.slots, &self.lists());
        Grants {
            sight: bounds.sight(self.protected),
            global: OnceLock::new(),
            rules,
            conditions,
            limits,
            state,
            work,
            set: self.clone(),
            entry: match identity {
                Identity::User { entry, .. } => Some(*entry),
                _ => None,
            },
            bounds,
            is_unlimited: false,
        }
    }
}

/// The identity that rules are compiled for.
pub(super) struct Asker<'a> {
    pub(super) is_bound: bool,
    pub(super) entry: Option<EntryId>,
    pub(super) from: Option<&'a Connection>,
    /// The identity that has authenticated, if it is another one.
    pub(super) real: Option<Box<Asker<'a>>>,
    /// The DN in the form that the identity has.
    written: &'a str,
    schema: &'a Schema,
    /// Parsed when a rule first needs it, like the text below: few rules do, and every bind makes an asker.
    dn: OnceCell<Option<Arc<NormalDn>>>,
    text: OnceCell<Arc<str>>,
}

impl<'a> Asker<'a> {
    fn new(schema: &'a Schema, identity: &'a Identity, from: Option<&'a Connection>) -> Asker<'a> {
        Asker {
            is_bound: *identity != Identity::Anonymous,
            entry: match identity {
                Identity::User { entry, .. } => Some(*entry),
                _ => None,
            },
            from,
            real: None,
            written: identity.dn(),
            schema,
            dn: OnceCell::new(),
            text: OnceCell::new(),
        }
    }

    /// The DN; `None` for anonymous.
    pub(super) fn dn(&self) -> Option<&Arc<NormalDn>> {
        let dn = self.dn.get_or_init(|| {
            let mut dn = NormalDn::new();
            let is_named = self.is_bound && dn.parse(self.schema, self.written.as_bytes()).is_ok();
            is_named.then(|| Arc::new(dn))
        });
        dn.as_ref()
    }

    /// The DN as text; empty for anonymous.
    pub(super) fn text(&self) -> &Arc<str> {
        let text = || self.dn().map(|dn| dn.to_text()).unwrap_or_default();
        self.text.get_or_init(|| text().into())
    }
}

/// What a clause that applies to an identity needs besides.
#[derive(Default)]
pub(super) struct Need {
    pub(super) of_self: bool,
    pub(super) conditions: Vec<Condition>,
    /// What a value must meet.
    pub(super) of_value: Vec<Condition>,
    /// The work of deciding, about one unit a nanosecond.
    pub(super) work: u64,
}

pub(super) type Data<'d, R> = Option<((&'d R, &'d Schema), &'d Arc<State>)>;

impl CompiledRule {
    fn new(
        schema: &Schema,
        (list, regex): (Option<usize>, Option<&Arc<Regex>>),
        rule: &Rule,
        slots: Box<[bool]>,
    ) -> std::result::Result<CompiledRule, String> {
        let mut needs = Vec::new();
        let mut entries = None;
        let mut source = Source::Whole;
        match &rule.to.entries {
            Some(pattern) if pattern.scope == DnScope::Regex => {
                let regex = Arc::new(Regex::new(&pattern.dn)?);
                needs.push(Condition::Matches(regex.clone()));
                source = Source::Groups(regex);
            }
            Some(pattern) => {
                let test = EntryTest::new(schema, pattern)?;
                if !test.is_base() {
                    source = Source::Below(test.clone());
                }
                entries = Some(test);
            }
            None => {}
        }
        if let Some(filter) = &rule.to.filter {
            let filter = filter_text::parse(filter).map_err(|error| error.to_string())?;
            needs.push(Condition::Filter(Arc::new(RuleFilter::new(filter))));
        }
        let mut by = Vec::with_capacity(rule.by.len());
        for clause in &rule.by {
            let who = clause
                .who
                .iter()
                .map(|who| CompiledWho::new(schema, who, (&source, regex)));
            by.push(CompiledBy {
                who: who.collect::<std::result::Result<_, String>>()?,
                own_values: clause.own_values,
                grant: clause.grant,
                then: clause.then,
            });
        }
        Ok(CompiledRule {
            list,
            entries,
            needs,
            slots,
            values: None,
            by,
        })
    }

    fn needs_data(&self) -> bool {
        let mut who = self.by.iter().flat_map(|by| &by.who);
        who.any(CompiledWho::needs_data)
            || self
                .needs
                .iter()
                .any(|need| matches!(need, Condition::Filter(_)))
    }

    /// The rule, reduced to the clauses that can apply to one identity.
    fn for_one<R: Evaluate>(
        &self,
        place: usize,
        asker: &Asker<'_>,
        data: Data<'_, R>,
        (conditions, work): (&mut Vec<Condition>, &mut u64),
    ) -> Result<RuleFor> {
        let mut add = |needed: Vec<Condition>| -> Box<[usize]> {
            let first = conditions.len();
            conditions.extend(needed);
            (first..conditions.len()).collect()
        };
        let mut clauses = Vec::new();
        for (at, by) in self.by.iter().enumerate() {
            let mut need = Need::default();
            let mut is_meant = true;
            for who in &by.who {
                is_meant = is_meant && who.may_be(asker, data, &mut need)?;
            }
            *work = work.saturating_add(CLAUSE_WORK + need.work);
            if !is_meant {
                continue;
            }
            let clause = Clause {
                of_self: need.of_self,
                needs: add(need.conditions),
                of_value: need.of_value.into(),
                own_values: by.own_values,
                grant: by.grant,
                then: by.then,
                number: at,
            };
            let ends = clause.is_always() && by.then != Then::Continue;
            clauses.push(clause);
            if ends {
                break;
            }
        }
        // Every rule ends with `by * none`.
        let ends = |clause: &Clause| clause.is_always() && clause.then != Then::Continue;
        if !clauses.last().is_some_and(ends) {
            clauses.push(Clause::nothing(self.by.len()));
        }
        Ok(RuleFor {
            place,
            list: self.list,
            entries: self.entries.clone(),
            needs: add(self.needs.iter().map(Condition::for_another).collect()),
            slots: self.slots.clone(),
            values: self.values,
            clauses,
        })
    }
}

/// All rules, each with the number of its list and its index in the list.
fn numbered(policy: &Policy) -> impl Iterator<Item = (usize, usize, &Rule)> {
    let lists = policy.lists.iter().enumerate();
    lists.flat_map(|(list, known)| {
        let rules = known.rules.iter().enumerate();
        rules.map(move |(number, rule)| (list, number, rule))
    })
}

/// The naming contexts that the lists name, each with the number of its list.
fn contexts(
    schema: &Schema,
    policy: &Policy,
) -> std::result::Result<Vec<(NormalDn, usize)>, PolicyError> {
    let mut contexts = Vec::new();
    for (list, known) in policy.lists.iter().enumerate() {
        let ListScope::Contexts(suffixes) = &known.of else {
            continue;
        };
        for suffix in suffixes {
            let mut dn = NormalDn::new();
            dn.parse(schema, suffix.as_bytes())
                .map_err(|invalid| PolicyError {
                    list: PolicyList::Rules,
                    rule: 1,
                    why: format!("{suffix:?} is not a DN: {invalid}"),
                })?;
            contexts.push((dn, list));
        }
    }
    Ok(contexts)
}

/// The attribute types that a rule names.
#[derive(Default)]
struct NamedTypes {
    included: TypeSet,
    /// For each `!class` of the rule, the types of the class.
    excluded: Vec<TypeSet>,
    is_all: bool,
}

impl NamedTypes {
    fn of(schema: &Schema, attributes: &[Attributes]) -> std::result::Result<NamedTypes, String> {
        let mut types = NamedTypes::default();
        let password = schema.well_known().user_password;
        let names_password = attributes.iter().any(|attribute| match attribute {
            Attributes::Type(name) => schema
                .attribute_type(name.as_bytes())
                .is_some_and(|known| known.id() == password),
            _ => false,
        });
        for attribute in attributes {
            match attribute {
                Attributes::Type(name) => match schema.attribute_type(name.as_bytes()) {
                    // The rule names userPassword, which covers this secret.
                    Some(known) if schema.is_companion_secret(known.id()) && names_password => {}
                    Some(known) if schema.is_companion_secret(known.id()) => {
                        return Err(format!(
                            "rules of userPassword hold for {name} as well: name that"
                        ));
                    }
                    Some(known) => types.included.extend(known.subtypes()),
                    // As in slapd, the name of a class stands for its attributes.
                    None => types.include(schema, name).map_err(|_| {
                        format!("there is no attribute type or object class {name:?}")
                    })?,
                },
                Attributes::Class(name) => types.include(schema, name)?,
                Attributes::NotClass(name) => types.excluded.push(of_class(schema, name)?),
                Attributes::Entry | Attributes::Children => {}
            }
        }
        Ok(types)
    }

    fn include(&mut self, schema: &Schema, class: &str) -> std::result::Result<(), String> {
        self.is_all |= class.eq_ignore_ascii_case("extensibleObject");
        self.included.extend(&of_class(schema, class)?);
        Ok(())
    }

    /// All types that the rule treats apart from others.
    fn all(&self) -> impl Iterator<Item = AttributeTypeId> {
        let excluded = self.excluded.iter().flat_map(|types| types.iter());
        self.included.iter().chain(excluded)
    }
}

/// The types that a class requires or allows.
fn of_class(schema: &Schema, name: &str) -> std::result::Result<TypeSet, String> {
    let class = schema.object_class(name.as_bytes());
    let class = class.ok_or_else(|| format!("there is no object class {name:?}"))?;
    let mut types = TypeSet::default();
    for known in class.must().iter().chain(class.may().iter()) {
        types.extend(schema.type_of(known).subtypes());
    }
    Ok(types)
}
