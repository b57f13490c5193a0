//! The rights of an identity: on every entry, as far as the rules alone tell, and on one entry.

use std::sync::{Arc, OnceLock};

use sapwood_ldap::list::OctetStrings;

use super::bounds::{Bounds, Everywhere, Sight};
use super::compile::{AccessRules, NO_STATE, Slot};
use super::condition::{Asked, Condition};
use super::entry_grants::EntryGrants;
use super::evaluate::Evaluate;
use super::met::Met;
use super::rule_for::{OwnValues, RuleFor, decide, step};
use super::single::ByValue;
use crate::engine::EntryId;
use crate::error::Result;
use crate::policy::{Rights, SearchBounds};
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
        if self.everywhere(Slot::ENTRY, Rights::DISCLOSE) == Everywhere::Always {
            return Ok(true);
        }
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
        self.by_rules(&rules, &[], is_self, |at| met.meets(at))
    }

    /// The rights on all slots of an entry that exactly these rules cover, as far as they are not known already.
    pub(super) fn by_rules(
        &self,
        rules: &[&RuleFor],
        known: &[Option<Rights>],
        is_self: bool,
        meets: impl Fn(usize) -> Result<bool>,
    ) -> Result<EntryGrants> {
        let asking = (is_self, OwnValues::default());
        let rights = |slot: usize| match known.get(slot) {
            _ if self.is_unlimited => Ok(Rights::ALL),
            Some(Some(known)) => Ok(*known),
            _ => decide(
                (rules.iter().copied()).filter(|rule| rule.slots[slot] && rule.values.is_none()),
                asking,
                &meets,
            ),
        };
        let rights: Result<Box<[Rights]>> = (0..self.set.slots).map(rights).collect();
        let mut by_values = Vec::new();
        for slot in &self.set.value_slots {
            let about = rules.iter().filter(|rule| rule.slots[slot.index()]);
            if about.clone().any(|rule| rule.values.is_some()) {
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
