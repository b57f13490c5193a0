//! The rights of an identity: on every entry, as far as the rules alone tell, and on one entry.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::{Arc, OnceLock};

use sapwood_ldap::list::OctetStrings;

use super::compile::{AccessRules, NO_STATE, Slot};
use super::condition::{Asked, Condition};
use super::evaluate::Evaluate;
use super::single::{ByValue, SingleValues, Step, StepClause};
use crate::attributes::AttributeTable;
use crate::engine::{AttributeNo, EntryId};
use crate::error::Result;
use crate::policy::entry_test::EntryTest;
use crate::policy::{Grant, Rights, SearchBounds, Subject, Then};
use crate::schema::{AttributeType, AttributeTypeId, Schema};
use crate::state::State;
use crate::synthetic::{Context, Synthetic};

/// Work of trying a rule on an entry, without its conditions on the content.
const RULE_WORK: u64 = 100;

/// What the rules grant to one identity.
#[derive(Debug)]
pub(crate) struct Grants {
    pub(super) set: Arc<AccessRules>,
    /// The rules of the set, in the same order, reduced to this identity.
    pub(super) rules: Vec<RuleFor>,
    /// The identity's own entry.
    pub(super) entry: Option<EntryId>,
    pub(super) bounds: Bounds,
    pub(super) sight: Sight,
    /// What the global rules alone grant, once it is asked for. Only they cover synthetic entries.
    pub(super) global: OnceLock<Box<Grants>>,
    /// The conditions of all rules and clauses, which refer to them by their index here.
    pub(super) conditions: Vec<Condition>,
    /// The bounds of the first limit that applies to the identity.
    pub(super) limits: Option<SearchBounds>,
    /// The state of the directory, if rules ask for data such as groups.
    pub(super) state: Arc<State>,
    /// The work of compiling these grants, about one unit a nanosecond.
    pub(super) work: u64,
    pub(super) is_unlimited: bool,
}

/// A rule, reduced to the clauses that can apply to one identity.
#[derive(Clone, Debug)]
pub(super) struct RuleFor {
    /// Its index among all rules as written.
    pub(super) place: usize,
    /// The number of its list, if that list covers only some naming contexts.
    pub(super) list: Option<usize>,
    pub(super) entries: Option<EntryTest>,
    /// Further conditions on the entry, by their index.
    pub(super) needs: Box<[usize]>,
    pub(super) slots: Box<[bool]>,
    /// The test that a value must pass, by its index. The rule is not about the attribute as a whole then.
    pub(super) values: Option<usize>,
    /// In order. The last one applies to every entry and ends the rule.
    pub(super) clauses: Vec<Clause>,
}

/// A clause that is about the identity.
#[derive(Clone, Debug)]
pub(super) struct Clause {
    /// Whether only on its own entry.
    pub(super) of_self: bool,
    /// The conditions that an entry must meet.
    pub(super) needs: Box<[usize]>,
    /// Those that a value must meet.
    pub(super) of_value: Box<[Condition]>,
    /// Whether only for changes of values that name somebody who asks.
    pub(super) own_values: Option<Subject>,
    pub(super) grant: Grant,
    pub(super) then: Then,
    /// Its place among the clauses as written.
    pub(super) number: usize,
}

impl Clause {
    /// What ends every rule: `by * none`.
    pub(super) fn nothing(number: usize) -> Clause {
        Clause {
            of_self: false,
            needs: [].into(),
            of_value: [].into(),
            own_values: None,
            grant: Grant::Set(Rights::NONE),
            then: Then::Stop,
            number,
        }
    }

    /// Whether it holds for every entry, whatever is done with it.
    pub(super) fn is_always(&self) -> bool {
        !self.of_self
            && self.needs.is_empty()
            && self.of_value.is_empty()
            && self.own_values.is_none()
    }
}

/// Whether the value that a change adds or deletes is the DN of one of the requester's two identities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnValues {
    /// It names the identity that the update is done for.
    pub(crate) effective: bool,
    /// It names the identity that has authenticated.
    pub(crate) real: bool,
}

impl OwnValues {
    /// Whether a clause applies to a change of such a value.
    fn are_meant(self, clause: &Clause) -> bool {
        match clause.own_values {
            None => true,
            Some(Subject::Effective) => self.effective,
            Some(Subject::Real) => self.real,
        }
    }

    /// A different number below 4 for each.
    fn index(self) -> usize {
        usize::from(self.effective) + 2 * usize::from(self.real)
    }
}

impl RuleFor {
    /// The one that lets somebody read every attribute of every entry, where attributes have so many slots.
    pub(super) fn reads_all(slots: usize) -> RuleFor {
        let clause = Clause {
            grant: Grant::Set(Rights::UP_TO_SEARCH | Rights::READ),
            ..Clause::nothing(0)
        };
        RuleFor {
            // Nobody has written it.
            place: usize::MAX,
            list: None,
            entries: None,
            needs: [].into(),
            slots: vec![true; slots].into(),
            values: None,
            clauses: vec![clause],
        }
    }

    /// Whether it covers every entry of its list, and all values.
    fn is_about_all(&self) -> bool {
        self.entries.is_none() && self.needs.is_empty() && self.values.is_none()
    }

    /// Whether it is about the attributes in a slot as a whole, so that it decides where no value is asked for.
    pub(super) fn is_about_whole(&self, slot: Slot) -> bool {
        self.slots[slot.index()] && self.values.is_none()
    }

    /// Whether its list covers an entry for which [`AccessRules::list_of`] has returned `list`.
    pub(super) fn is_in(&self, list: Option<usize>) -> bool {
        self.list.is_none() || self.list == list
    }
}

/// How much of the entries an identity sees, as far as one answer fits all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// No entry.
    Nothing,
    /// Every attribute of every entry may be searched and read.
    All,
    /// The same without protected attributes.
    Public,
    /// It depends on the entry or the attribute, so that each entry is decided by itself.
    Decided,
}

/// By slot, the rights that every entry grants at least, and those that no entry exceeds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: Box<[Rights]>,
    pub(super) most: Box<[Rights]>,
}

/// The least and the most of some rights.
#[derive(Clone, Copy)]
struct Range {
    least: Rights,
    most: Rights,
}

impl Range {
    const NONE: Range = Range {
        least: Rights::NONE,
        most: Rights::NONE,
    };

    fn after(self, grant: Grant) -> Range {
        Range {
            least: grant.after(self.least),
            most: grant.after(self.most),
        }
    }

    /// That of what either of them is.
    fn or(self, other: Option<Range>) -> Range {
        match other {
            Some(other) => Range {
                least: self.least & other.least,
                most: self.most | other.most,
            },
            None => self,
        }
    }
}

impl Bounds {
    /// The bounds over all entries. Each entry is covered by one of `lists`, and by the rules without a list.
    pub(super) fn of(rules: &[RuleFor], slots: usize, lists: &[Option<usize>]) -> Bounds {
        let ranges = (0..slots).map(|slot| {
            let each = lists.iter().map(|list| Bounds::range(rules, slot, *list));
            each.reduce(|range, other| range.or(Some(other)))
                .unwrap_or(Range::NONE)
        });
        let (least, most): (Vec<_>, Vec<_>) = ranges.map(|range| (range.least, range.most)).unzip();
        Bounds {
            least: least.into(),
            most: most.into(),
        }
    }

    fn range(rules: &[RuleFor], slot: usize, list: Option<usize>) -> Range {
        let mut ended: Option<Range> = None;
        // The range of the entries that no rule so far has decided.
        let mut reaching = Some(Range::NONE);
        for rule in rules
            .iter()
            .filter(|rule| rule.slots[slot] && rule.is_in(list))
        {
            let Some(mut left) = reaching else { break };
            let mut broken: Option<Range> = None;
            for clause in &rule.clauses {
                let granted = left.after(clause.grant);
                match clause.then {
                    Then::Stop => ended = Some(granted.or(ended)),
                    Then::Break => broken = Some(granted.or(broken)),
                    Then::Continue => {
                        left = granted.or((!clause.is_always()).then_some(left));
                    }
                }
            }
            let passed = reaching.filter(|_| !rule.is_about_all());
            reaching = match broken {
                Some(broken) => Some(broken.or(passed)),
                None => passed,
            };
        }
        match (reaching, ended) {
            // No rule decides the rest, which grants nothing.
            (Some(_), ended) => Range::NONE.or(ended),
            (None, ended) => ended.unwrap_or(Range::NONE),
        }
    }

    pub(super) fn sight(&self, protected: Option<Slot>) -> Sight {
        if !self.most[Slot::ENTRY.index()].has(Rights::SEARCH) {
            return Sight::Nothing;
        }
        let seen = Rights::SEARCH | Rights::READ;
        let told = seen | Rights::DISCLOSE;
        if !self.least[Slot::ENTRY.index()].has(told) {
            return Sight::Decided;
        }
        let mut sight = Sight::All;
        for (at, (least, most)) in self.least.iter().zip(&self.most).enumerate() {
            if at == Slot::CHILDREN.index() || least.has(seen) {
                continue;
            }
            let is_protected = protected.is_some_and(|slot| slot.index() == at);
            if !is_protected || *most & seen != Rights::NONE {
                return Sight::Decided;
            }
            sight = Sight::Public;
        }
        sight
    }
}

/// On which entries an identity has some rights, as far as the rules alone tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Everywhere {
    /// On every entry.
    Always,
    /// Perhaps on some.
    Perhaps,
    /// On no entry.
    Never,
}

impl Grants {
    /// The grants of an identity that no rule limits.
    pub(super) fn unlimited() -> Grants {
        let set = Arc::new(AccessRules::none());
        let all = || vec![Rights::ALL; set.slots].into_boxed_slice();
        let bounds = Bounds {
            least: all(),
            most: all(),
        };
        Grants {
            rules: Vec::new(),
            entry: None,
            bounds,
            sight: Sight::All,
            global: OnceLock::new(),
            conditions: Vec::new(),
            limits: None,
            state: NO_STATE.clone(),
            work: 0,
            is_unlimited: true,
            set,
        }
    }

    /// The version of the rules.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.set.version
    }

    /// Whether the same clauses apply to the identity as before. Data that rules ask for, such as groups, may have
    /// changed in between.
    pub(crate) fn are_same(&self, before: &Grants) -> bool {
        let clauses = |rule: &RuleFor| {
            let each = rule.clauses.iter();
            each.map(|clause| (clause.number, clause.of_self, clause.needs.clone()))
                .collect::<Vec<_>>()
        };
        let is_same_rule = |one: &RuleFor, other: &RuleFor| {
            (one.list, &one.needs, &one.slots) == (other.list, &other.needs, &other.slots)
                && clauses(one) == clauses(other)
        };
        let rules = self.rules.iter().zip(&before.rules);
        self.is_unlimited == before.is_unlimited
            && self.version() == before.version()
            && self.entry == before.entry
            && self.conditions.len() == before.conditions.len()
            && self.rules.len() == before.rules.len()
            && rules
                .into_iter()
                .all(|(one, other)| is_same_rule(one, other))
    }

    /// Whether the rules ask for the data, so that what they grant is found out for each commit.
    #[inline]
    pub(crate) fn needs_data(&self) -> bool {
        self.set.needs_data
    }

    /// Whether everything may be done, and no rule needs to be asked.
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// The bounds of the first limit that applies to the identity.
    #[inline]
    pub(crate) fn limits(&self) -> Option<SearchBounds> {
        self.limits
    }

    /// Whether there are limits, which may apply to the identity.
    #[inline]
    pub(super) fn has_limits(&self) -> bool {
        self.set.has_limits()
    }

    /// The work of compiling these grants, about one unit a nanosecond.
    #[inline]
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// How much of the entries of the tree is visible.
    #[inline]
    pub(crate) fn sight(&self) -> Sight {
        self.sight
    }

    /// What is granted on synthetic entries. Only global rules cover them: `None` without any, when everybody may read
    /// them.
    pub(crate) fn of_synthetic(&self) -> Option<&Grants> {
        let global = || {
            let first = self.set.global.start;
            let rules = self.rules.get(first..).unwrap_or_default().to_vec();
            let bounds = Bounds::of(&rules, self.set.slots, &[None]);
            Box::new(Grants {
                set: self.set.clone(),
                entry: self.entry,
                sight: bounds.sight(self.set.protected),
                rules,
                bounds,
                global: OnceLock::new(),
                conditions: self.conditions.clone(),
                limits: None,
                state: self.state.clone(),
                work: self.work,
                is_unlimited: false,
            })
        };
        let is_covered = !self.is_unlimited && !self.set.global.is_empty();
        is_covered.then(|| &**self.global.get_or_init(global))
    }

    /// How much of the synthetic entries is visible.
    pub(crate) fn sight_of_synthetic(&self) -> Sight {
        self.of_synthetic().map_or(Sight::Public, Grants::sight)
    }

    /// On which entries the identity has these rights. It reads no entry: a requester without them anywhere is refused
    /// without a hint of which entries exist.
    pub(crate) fn everywhere(&self, slot: Slot, rights: Rights) -> Everywhere {
        if self.bounds.least[slot.index()].has(rights) {
            Everywhere::Always
        } else if self.bounds.most[slot.index()].has(rights) {
            Everywhere::Perhaps
        } else {
            Everywhere::Never
        }
    }

    /// On which entries values of a type may be searched by an identity with this sight.
    #[inline]
    pub(crate) fn searches(
        &self,
        schema: &Schema,
        sight: Sight,
        attribute_type: AttributeTypeId,
    ) -> Everywhere {
        match sight {
            Sight::All => Everywhere::Always,
            Sight::Public if schema.is_protected(attribute_type) => Everywhere::Never,
            Sight::Public => Everywhere::Always,
            Sight::Decided => self.everywhere(self.slot(attribute_type), Rights::SEARCH),
            Sight::Nothing => Everywhere::Never,
        }
    }

    /// The slot that holds the rights on an attribute type.
    #[inline]
    pub(crate) fn slot(&self, attribute_type: AttributeTypeId) -> Slot {
        self.set.slot(attribute_type)
    }

    /// The rights on a slot of an entry.
    pub(crate) fn rights<R: Evaluate>(&self, asked: &Asked<'_, R>, slot: Slot) -> Result<Rights> {
        if self.is_unlimited {
            return Ok(Rights::ALL);
        }
        self.rights_of(&Met::new(self, asked), slot)
    }

    /// The same. The cost is taken from `work`, which may reach 0.
    pub(crate) fn rights_within<R: Evaluate>(
        &self,
        asked: &Asked<'_, R>,
        slot: Slot,
        work: &mut u64,
    ) -> Result<Rights> {
        if self.is_unlimited {
            return Ok(Rights::ALL);
        }
        let met = Met::new(self, asked);
        let rights = self.rights_of(&met, slot)?;
        *work = work.saturating_sub(self.trying_work() + met.work.get());
        Ok(rights)
    }

    /// Work of trying the rules, without their conditions.
    fn trying_work(&self) -> u64 {
        RULE_WORK * (self.rules.len() + self.set.contexts_count()) as u64
    }

    /// The rights on a slot of an entry about which some conditions have been evaluated.
    fn rights_of<R: Evaluate>(&self, met: &Met<'_, '_, R>, slot: Slot) -> Result<Rights> {
        self.rights_on(met, slot, OwnValues::default())
    }

    /// The rights on a slot for a change of such values.
    fn rights_on<R: Evaluate>(
        &self,
        met: &Met<'_, '_, R>,
        slot: Slot,
        own: OwnValues,
    ) -> Result<Rights> {
        let mut rules = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.is_about_whole(slot)) {
            if met.is_about(rule)? {
                rules.push(rule);
            }
        }
        let is_self = Some(met.asked.id) == self.entry;
        decide(rules.into_iter(), (is_self, own), |at| met.meets(at))
    }

    /// The rights on single values in a slot for a change of such values.
    fn on_values<R: Evaluate>(
        &self,
        met: &Met<'_, '_, R>,
        slot: Slot,
        own: OwnValues,
    ) -> Result<ByValue> {
        let is_self = Some(met.asked.id) == self.entry;
        let mut steps = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.slots[slot.index()]) {
            if met.is_about(rule)? {
                steps.push(step(rule, (is_self, own), |at| met.meets(at))?);
            }
        }
        Ok(ByValue { slot, steps })
    }

    /// Whether some values of a type are treated apart.
    #[inline]
    pub(crate) fn looks_at_values_of(&self, attribute_type: AttributeTypeId) -> bool {
        self.set.looks_at_values(self.slot(attribute_type))
    }

    /// Whether any clause depends on the values that a change adds or deletes.
    pub(crate) fn asks_for_own_values(&self) -> bool {
        let mut clauses = self.rules.iter().flat_map(|rule| &rule.clauses);
        clauses.any(|clause| clause.own_values.is_some())
    }

    /// The index of the first whose rights are missing. Each slot is decided once for each kind of value, however often
    /// it comes.
    pub(crate) fn missing<'k, R: Evaluate>(
        &self,
        asked: &Asked<'_, R>,
        wanted: impl Iterator<Item = Wanted<'k>>,
    ) -> Result<Option<usize>> {
        if self.is_unlimited {
            return Ok(None);
        }
        let met = Met::new(self, asked);
        let mut known = vec![[None; 4]; self.set.slots];
        for (at, wanted) in wanted.enumerate() {
            let Wanted { slot, own, .. } = wanted;
            if self.set.looks_at_values(slot)
                && let Some(values) = wanted.values
            {
                if !self.has_on_values(&met, &wanted, values)? {
                    return Ok(Some(at));
                }
                continue;
            }
            let known = &mut known[slot.index()][own.index()];
            let has = match *known {
                Some(has) => has,
                None => *known.insert(self.rights_on(&met, slot, own)?),
            };
            if !has.has(wanted.rights) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether a change may be made of each of its values. What replaces others takes the right to delete on the
    /// attribute as a whole, and to add on each of the new ones.
    fn has_on_values<R: Evaluate>(
        &self,
        met: &Met<'_, '_, R>,
        wanted: &Wanted<'_>,
        values: OctetStrings<'_>,
    ) -> Result<bool> {
        let Wanted { slot, own, .. } = *wanted;
        let rights = match wanted.rights == Rights::WRITE {
            true if !self.rights_of(met, slot)?.has(Rights::DELETE) => return Ok(false),
            true => Rights::ADD,
            false => wanted.rights,
        };
        let by_value = self.on_values(met, slot, own)?;
        let known = (met.asked.schema, wanted.known);
        let has = |value| {
            by_value
                .rights(&self.set.value_tests, known, value)
                .has(rights)
        };
        Ok(values.iter().all(has))
    }

    /// Whether the existence of an entry may be disclosed.
    pub(crate) fn discloses<R: Evaluate>(&self, asked: &Asked<'_, R>) -> Result<bool> {
        Ok(self.rights(asked, Slot::ENTRY)?.has(Rights::DISCLOSE))
    }

    /// Whether the identity may follow a referral or an alias. It needs the rights to disclose and read the entry, and
    /// to read the attribute `by`, which holds the target.
    pub(crate) fn follows<R: Evaluate>(
        &self,
        asked: &Asked<'_, R>,
        by: AttributeTypeId,
    ) -> Result<bool> {
        let seen = Rights::DISCLOSE | Rights::READ;
        Ok(self.rights(asked, Slot::ENTRY)?.has(seen)
            && self.rights(asked, self.slot(by))?.has(Rights::READ))
    }

    /// Whether rights depend on the content of entries, which an entry to be added does not have yet.
    pub(crate) fn asks_for_content(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// The rights on all slots of an entry.
    pub(crate) fn on_entry<R: Evaluate>(&self, asked: &Asked<'_, R>) -> Result<EntryGrants> {
        self.on_entry_within(asked, &mut 0)
    }

    /// The same. The cost is taken from `work`, which may reach 0.
    pub(crate) fn on_entry_within<R: Evaluate>(
        &self,
        asked: &Asked<'_, R>,
        work: &mut u64,
    ) -> Result<EntryGrants> {
        let met = Met::new(self, asked);
        let granted = self.on_met(&met)?;
        let trying = self.trying_work().saturating_mul(self.set.slots as u64);
        *work = work.saturating_sub(trying.saturating_add(met.work.get()));
        Ok(granted)
    }

    /// The rights on all slots of a synthetic entry.
    pub(crate) fn on_synthetic<R: Evaluate>(
        &self,
        (view, schema): (&R, &Schema),
        (context, entry): (&Context, &Synthetic),
    ) -> Result<EntryGrants> {
        let asked = Asked {
            view,
            schema,
            dn: entry.normal_dn(),
            id: EntryId::ROOT,
        };
        self.on_met(&Met::of_synthetic(self, &asked, (context, entry)))
    }

    fn on_met<R: Evaluate>(&self, met: &Met<'_, '_, R>) -> Result<EntryGrants> {
        let mut rules = Vec::new();
        for rule in &self.rules {
            if met.is_about(rule)? {
                rules.push(rule);
            }
        }
        let is_self = Some(met.asked.id) == self.entry;
        self.by_rules(&rules, is_self, |at| met.meets(at))
    }

    /// The rights on all slots of an entry that exactly these rules cover.
    pub(super) fn by_rules(
        &self,
        rules: &[&RuleFor],
        is_self: bool,
        meets: impl Fn(usize) -> Result<bool>,
    ) -> Result<EntryGrants> {
        let rights = |slot: usize| match self.is_unlimited {
            true => Ok(Rights::ALL),
            false => decide(
                (rules.iter().copied()).filter(|rule| rule.slots[slot] && rule.values.is_none()),
                (is_self, OwnValues::default()),
                &meets,
            ),
        };
        let rights: Result<Box<[Rights]>> = (0..self.set.slots).map(rights).collect();
        let mut by_values = Vec::new();
        for slot in &self.set.value_slots {
            let about = rules.iter().filter(|rule| rule.slots[slot.index()]);
            if about.clone().any(|rule| rule.values.is_some()) {
                let asking = (is_self, OwnValues::default());
                let steps = about.map(|rule| step(rule, asking, &meets));
                by_values.push(ByValue {
                    slot: *slot,
                    steps: steps.collect::<Result<_>>()?,
                });
            }
        }
        Ok(EntryGrants::new(rights?, by_values, self.set.clone()))
    }
}

/// Which conditions an entry meets. Each is evaluated when it is first asked for, and only once.
pub(super) struct Met<'m, 'a, R: Evaluate> {
    grants: &'m Grants,
    pub(super) asked: &'m Asked<'a, R>,
    /// The entry and its context, if it is a synthetic one.
    synthetic: Option<(&'m Context, &'m Synthetic)>,
    /// The result of [`AccessRules::list_of`] for the entry.
    list: OnceCell<Option<usize>>,
    known: RefCell<Vec<Option<bool>>>,
    /// The text of the entry's DN.
    text: OnceCell<String>,
    /// The work of these evaluations, about one unit a nanosecond.
    pub(super) work: Cell<u64>,
}

impl<'m, 'a, R: Evaluate> Met<'m, 'a, R> {
    pub(super) fn new(grants: &'m Grants, asked: &'m Asked<'a, R>) -> Met<'m, 'a, R> {
        Met {
            grants,
            asked,
            synthetic: None,
            list: OnceCell::new(),
            known: RefCell::new(vec![None; grants.conditions.len()]),
            text: OnceCell::new(),
            work: Cell::new(0),
        }
    }

    /// The same for a synthetic entry.
    pub(super) fn of_synthetic(
        grants: &'m Grants,
        asked: &'m Asked<'a, R>,
        synthetic: (&'m Context, &'m Synthetic),
    ) -> Met<'m, 'a, R> {
        Met {
            synthetic: Some(synthetic),
            ..Met::new(grants, asked)
        }
    }

    pub(super) fn meets(&self, condition: usize) -> Result<bool> {
        if let Some(known) = self.known.borrow()[condition] {
            return Ok(known);
        }
        let mut work = self.work.get();
        let condition_asked = &self.grants.conditions[condition];
        let about = (self.asked, &self.text);
        let meets = condition_asked.holds(about, self.synthetic, &self.grants.state, &mut work)?;
        self.work.set(work);
        self.known.borrow_mut()[condition] = Some(meets);
        Ok(meets)
    }

    /// Whether the list of a rule covers the entry.
    pub(super) fn is_in_list(&self, rule: &RuleFor) -> bool {
        let list = || self.grants.set.list_of(self.asked.dn);
        rule.list.is_none() || rule.list == *self.list.get_or_init(list)
    }

    pub(super) fn is_about(&self, rule: &RuleFor) -> Result<bool> {
        if !self.is_in_list(rule) {
            return Ok(false);
        }
        if !rule
            .entries
            .as_ref()
            .is_none_or(|test| test.holds(self.asked.dn))
        {
            return Ok(false);
        }
        all(&rule.needs, |at| self.meets(at))
    }

    /// Whether a clause applies to the identity on this entry, whatever values a change has.
    pub(super) fn is_meant(&self, clause: &Clause, is_self: bool) -> Result<bool> {
        Ok(clause.own_values.is_none()
            && (!clause.of_self || is_self)
            && all(&clause.needs, |at| self.meets(at))?)
    }
}

/// Whether all conditions are met. It stops at the first that is not.
fn all(conditions: &[usize], meets: impl Fn(usize) -> Result<bool>) -> Result<bool> {
    for condition in conditions {
        if !meets(*condition)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rights on one slot of an entry, by the rules that cover it.
pub(super) fn decide<'r>(
    rules: impl Iterator<Item = &'r RuleFor>,
    (is_self, own): (bool, OwnValues),
    meets: impl Fn(usize) -> Result<bool>,
) -> Result<Rights> {
    let mut rights = Rights::NONE;
    for rule in rules {
        for clause in &rule.clauses {
            if (clause.of_self && !is_self)
                || !own.are_meant(clause)
                || !all(&clause.needs, &meets)?
            {
                continue;
            }
            rights = clause.grant.after(rights);
            match clause.then {
                Then::Stop => return Ok(rights),
                Then::Break => break,
                Then::Continue => {}
            }
        }
    }
    Ok(Rights::NONE)
}

/// What the clauses of a rule that apply on an entry grant on its values.
fn step(
    rule: &RuleFor,
    (is_self, own): (bool, OwnValues),
    meets: impl Fn(usize) -> Result<bool>,
) -> Result<Step> {
    let mut step = Step {
        test: rule.values,
        clauses: Vec::new(),
    };
    for clause in &rule.clauses {
        if (clause.of_self && !is_self) || !own.are_meant(clause) || !all(&clause.needs, &meets)? {
            continue;
        }
        step.clauses.push(StepClause {
            needs: clause.of_value.clone(),
            grant: clause.grant,
            then: clause.then,
        });
        if clause.then != Then::Continue && clause.of_value.is_empty() {
            break;
        }
    }
    Ok(step)
}

/// What is wanted for a change of an attribute.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'k> {
    pub(crate) slot: Slot,
    pub(crate) rights: Rights,
    pub(crate) own: OwnValues,
    pub(crate) known: &'k AttributeType,
    /// The values that are added, deleted, or put in the place of all others.
    pub(crate) values: Option<OctetStrings<'k>>,
}

/// The rights on one entry, and on all other entries that the same rules cover.
#[derive(Debug)]
pub(crate) struct EntryGrants {
    set: Arc<AccessRules>,
    rights: Box<[Rights]>,
    /// The slots in which some values are treated apart, if any are.
    by_values: Vec<ByValue>,
    visible: Visible,
}

/// How much of an entry may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visible {
    /// All of it.
    All,
    /// All but protected attributes.
    Public,
    /// Some attributes.
    These,
    /// Nothing: the entry looks as if it did not exist.
    Nothing,
}

impl EntryGrants {
    fn new(rights: Box<[Rights]>, by_values: Vec<ByValue>, set: Arc<AccessRules>) -> EntryGrants {
        let is_protected = |at| set.protected.is_some_and(|slot| slot.index() == at);
        let mut visible = match by_values.is_empty() {
            true => Visible::All,
            false => Visible::These,
        };
        for (at, rights) in rights.iter().enumerate() {
            if rights.has(Rights::READ) || at == Slot::CHILDREN.index() {
                continue;
            }
            visible = match at {
                _ if at == Slot::ENTRY.index() => Visible::Nothing,
                _ if visible == Visible::Nothing => Visible::Nothing,
                _ if visible == Visible::All && is_protected(at) => Visible::Public,
                _ => Visible::These,
            };
        }
        EntryGrants {
            set,
            rights,
            by_values,
            visible,
        }
    }

    /// The rights on single values of a type, if some are treated apart. `None` mostly: they have those on the type.
    #[inline]
    pub(crate) fn single_values<'g>(
        &'g self,
        schema: &'g Schema,
        attribute_type: AttributeTypeId,
    ) -> Option<SingleValues<'g>> {
        match self.by_values.is_empty() {
            true => None,
            false => self.single_values_of(schema, attribute_type),
        }
    }

    #[cold]
    fn single_values_of<'g>(
        &'g self,
        schema: &'g Schema,
        attribute_type: AttributeTypeId,
    ) -> Option<SingleValues<'g>> {
        let slot = self.set.slot(attribute_type);
        let by_value = self
            .by_values
            .iter()
            .find(|by_value| by_value.slot == slot)?;
        Some(SingleValues {
            by_value,
            tests: &self.set.value_tests,
            schema,
            known: schema.type_of(attribute_type),
        })
    }

    /// Whether these rights are granted on a value of a type, which the entry need not have.
    pub(crate) fn has_on_value(
        &self,
        (schema, attribute_type): (&Schema, AttributeTypeId),
        value: &[u8],
        rights: Rights,
    ) -> bool {
        match self.single_values(schema, attribute_type) {
            Some(values) => values.grant(value, rights),
            None => self.has_on(attribute_type, rights),
        }
    }

    /// How much of it may be read.
    #[inline]
    pub(crate) fn visible(&self) -> Visible {
        self.visible
    }

    /// Whether these rights are granted on a slot.
    #[inline]
    pub(crate) fn has(&self, slot: Slot, rights: Rights) -> bool {
        self.rights[slot.index()].has(rights)
    }

    /// Whether these rights are granted on an attribute type.
    #[inline]
    pub(crate) fn has_on(&self, attribute_type: AttributeTypeId, rights: Rights) -> bool {
        self.has(self.set.slot(attribute_type), rights)
    }

    /// The same for the type of an attribute description. False for a number that is not in the table.
    #[inline]
    pub(crate) fn has_on_number(
        &self,
        attributes: &AttributeTable,
        number: AttributeNo,
        rights: Rights,
    ) -> bool {
        let known = attributes.get(number);
        known.is_some_and(|known| self.has_on(known.attribute_type(), rights))
    }
}
