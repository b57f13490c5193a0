//! Which conditions of rules an entry meets.

use std::cell::{Cell, OnceCell, RefCell};

use super::condition::{About, Asked};
use super::evaluate::Evaluate;
use super::grants::Grants;
use super::rule_for::{Clause, RuleFor, all};
use crate::entry::Entry;
use crate::error::Result;
use crate::synthetic::{Context, Synthetic};

/// Which conditions an entry meets. Each is evaluated when it is first asked for, and only once.
pub(super) struct Met<'m, 'a, R: Evaluate> {
    grants: &'m Grants,
    pub(super) asked: &'m Asked<'a, R>,
    /// The entry's record, if it is at hand.
    record: Option<Entry<'m>>,
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
        Met::of_record(grants, asked, None, Vec::new())
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

    /// The same for an entry whose record may be at hand, in the memory of [another](Self::into_memory).
    pub(super) fn of_record(
        grants: &'m Grants,
        asked: &'m Asked<'a, R>,
        record: Option<Entry<'m>>,
        mut memory: Vec<Option<bool>>,
    ) -> Met<'m, 'a, R> {
        memory.clear();
        memory.resize(grants.conditions.len(), None);
        Met {
            grants,
            asked,
            record,
            synthetic: None,
            list: OnceCell::new(),
            known: RefCell::new(memory),
            text: OnceCell::new(),
            work: Cell::new(0),
        }
    }

    /// The memory that it leaves.
    pub(super) fn into_memory(self) -> Vec<Option<bool>> {
        self.known.into_inner()
    }

    /// Whether the entry meets a condition of the grants.
    pub(super) fn meets(&self, condition: usize) -> Result<bool> {
        if let Some(known) = self.known.borrow()[condition] {
            return Ok(known);
        }
        let mut work = self.work.get();
        let condition_asked = &self.grants.conditions[condition];
        let about = About {
            asked: self.asked,
            record: self.record.as_ref(),
            synthetic: self.synthetic,
            text: &self.text,
        };
        let meets = condition_asked.holds(&about, &self.grants.state, &mut work)?;
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
