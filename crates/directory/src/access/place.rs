//! What rules make of the entries of a place: of all those that the same rules may cover, as far as names tell.
//!
//! What a search sees of them mostly follows from that alone. Where conditions of rules decide, only those are
//! evaluated on which it depends what is seen: whether somebody may change what they read in any case does not
//! matter to searches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bounds::{Everywhere, Range};
use super::compile::Slot;
use super::entry_grants::EntryGrants;
use super::evaluate::Evaluate;
use super::grants::Grants;
use super::met::Met;
use super::rule_for::{Clause, RuleFor, all};
use crate::error::Result;
use crate::policy::Rights;

/// The rights that searches ask for. Whether others are granted they are not told.
const SEEN: Rights = Rights::UP_TO_READ;

/// The most decisions that are kept of a place.
const DECIDED_MAX: usize = 64;

/// The entries that some rules may cover, and what they grant on them to an identity who searches.
#[derive(Debug)]
pub(super) struct Place {
    /// The rules that decide where that depends on conditions, or on values; by their index.
    rules: Box<[usize]>,
    /// Whether it has but one entry, the identity's own.
    is_self: bool,
    /// By slot, what is seen of all of its entries; `None` where that depends on conditions.
    known: Box<[Option<Rights>]>,
    /// The conditions that decide.
    asks: Box<[Ask]>,
    /// Whether one of them looks at the name of an entry.
    asks_for_names: bool,
    /// What is granted on all of its entries, if no condition decides.
    on_all: Option<EntryGrants>,
    /// What is granted on those that meet the same of the conditions.
    decided: Mutex<Decided>,
}

/// What is granted, by which of the conditions are met.
type Decided = Vec<(Box<[bool]>, Arc<EntryGrants>)>;

/// Conditions of one rule.
#[derive(Debug)]
struct Ask {
    /// Those on which it depends whether the rule covers an entry.
    of_rule: Box<[usize]>,
    /// Those of its clauses.
    of_clauses: Box<[usize]>,
}

impl Place {
    /// That of these rules, by their index.
    pub(super) fn new(grants: &Grants, rules: &[usize], is_self: bool) -> Result<Place> {
        let about = || rules.iter().map(|at| &grants.rules[*at]);
        let mut decides = vec![false; rules.len()];
        let mut known = vec![None; grants.set.slots].into_boxed_slice();
        for (slot, known) in known.iter_mut().enumerate() {
            let whole = about().filter(|rule| rule.slots[slot] && rule.values.is_none());
            let sure = whole.map(|rule| (rule, rule.needs.is_empty()));
            let range = Range::of(sure, |clause| clause.within(is_self));
            let is_known = range.least & SEEN == range.most & SEEN;
            *known = is_known.then_some(range.least & SEEN);
            let is_by_value = about().any(|rule| rule.slots[slot] && rule.values.is_some());
            // Searches do not ask what may be done with children.
            if slot != Slot::CHILDREN.index() && (!is_known || is_by_value) {
                let deciding = decides.iter_mut().zip(about());
                let deciding = deciding.filter(|(_, rule)| rule.slots[slot]);
                deciding.for_each(|(decides, _)| *decides = true);
            }
        }
        known[Slot::CHILDREN.index()].get_or_insert(Rights::NONE);
        let deciding = rules.iter().zip(decides);
        let rules: Box<[usize]> = deciding
            .filter(|(_, decides)| *decides)
            .map(|(at, _)| *at)
            .collect();
        let about = || rules.iter().map(|at| &grants.rules[*at]);
        let asks: Box<[Ask]> = about().filter_map(|rule| Ask::of(rule, is_self)).collect();
        let mut asked = (asks.iter()).flat_map(|ask| ask.of_rule.iter().chain(&ask.of_clauses));
        let asks_for_names = asked.any(|at| grants.conditions[*at].asks_for_name());
        let on_all = match asks.is_empty() {
            true => {
                let rules: Vec<&RuleFor> = about().collect();
                Some(grants.by_rules(&rules, &known, is_self, |_| Ok(false))?)
            }
            false => None,
        };
        Ok(Place {
            rules,
            is_self,
            known,
            asks,
            asks_for_names,
            on_all,
            decided: Mutex::default(),
        })
    }

    /// What is granted on all of its entries, if that does not depend on conditions.
    #[inline]
    pub(super) fn on_all(&self) -> Option<&EntryGrants> {
        self.on_all.as_ref()
    }

    /// Whether a name has to be read before its entry can be decided.
    pub(super) fn asks_for_names(&self) -> bool {
        self.asks_for_names
    }

    /// Replaces `case` by which of the conditions an entry meets.
    pub(super) fn try_conditions<R: Evaluate>(
        &self,
        met: &Met<'_, '_, R>,
        case: &mut Vec<bool>,
    ) -> Result<()> {
        case.clear();
        for ask in &self.asks {
            let is_about = all(&ask.of_rule, |at| met.meets(at))?;
            case.push(is_about);
            for condition in &ask.of_clauses {
                case.push(is_about && met.meets(*condition)?);
            }
        }
        Ok(())
    }

    /// What is granted on an entry that meets so many of the conditions.
    pub(super) fn on_entry<R: Evaluate>(
        &self,
        grants: &Grants,
        met: &Met<'_, '_, R>,
        case: &[bool],
    ) -> Result<Arc<EntryGrants>> {
        if let Some((_, decided)) = self.decided().iter().find(|(known, _)| **known == *case) {
            return Ok(decided.clone());
        }
        let mut rules = Vec::new();
        for at in &self.rules {
            let rule = &grants.rules[*at];
            if all(&rule.needs, |at| met.meets(at))? {
                rules.push(rule);
            }
        }
        let meets = |at: usize| met.meets(at);
        let decided = grants.by_rules(&rules, &self.known, self.is_self, meets)?;
        let decided = Arc::new(decided);
        let mut known = self.decided();
        if known.len() == DECIDED_MAX {
            known.clear();
        }
        known.push((case.into(), decided.clone()));
        Ok(decided)
    }

    fn decided(&self) -> MutexGuard<'_, Decided> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ask {
    /// Those of a rule; none if it has none.
    fn of(rule: &RuleFor, is_self: bool) -> Option<Ask> {
        let may_apply = |clause: &&Clause| clause.within(is_self) != Everywhere::Never;
        let applying = rule.clauses.iter().filter(may_apply);
        let of_clauses = applying.flat_map(|clause| clause.needs.iter().copied());
        let ask = Ask {
            of_rule: rule.needs.clone(),
            of_clauses: of_clauses.collect(),
        };
        let is_any = !ask.of_rule.is_empty() || !ask.of_clauses.is_empty();
        is_any.then_some(ask)
    }
}
