//! Rules as they are for one identity, and what they grant on one entry.

use super::bounds::Everywhere;
use super::compile::Slot;
use super::condition::Condition;
use super::single::{Step, StepClause};
use crate::error::Result;
use crate::policy::entry_test::EntryTest;
use crate::policy::{Grant, Rights, Subject, Then};
use crate::schema::NormalDn;

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
        self.everywhere() == Everywhere::Always
    }

    /// On which entries it applies, of all there are.
    pub(super) fn everywhere(&self) -> Everywhere {
        let is_always = !self.of_self
            && self.needs.is_empty()
            && self.of_value.is_empty()
            && self.own_values.is_none();
        match is_always {
            true => Everywhere::Always,
            false => Everywhere::Perhaps,
        }
    }

    /// On which entries of a place it applies where nobody changes anything: of one that is the identity's own entry,
    /// or of others.
    pub(super) fn within(&self, is_self: bool) -> Everywhere {
        if (self.of_self && !is_self) || self.own_values.is_some() {
            Everywhere::Never
        } else if self.needs.is_empty() && self.of_value.is_empty() {
            Everywhere::Always
        } else {
            Everywhere::Perhaps
        }
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
    pub(super) fn are_meant(self, clause: &Clause) -> bool {
        match clause.own_values {
            None => true,
            Some(Subject::Effective) => self.effective,
            Some(Subject::Real) => self.real,
        }
    }

    /// A different number below 4 for each.
    pub(super) fn index(self) -> usize {
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
    pub(super) fn is_about_all(&self) -> bool {
        self.entries.is_none() && self.needs.is_empty() && self.values.is_none()
    }

    /// Whether it is about the attributes in a slot as a whole, so that it decides where no value is asked for.
    pub(super) fn is_about_whole(&self, slot: Slot) -> bool {
        self.slots[slot.index()] && self.values.is_none()
    }

    /// Whether it covers an entry whose [list](Self::is_in) and name are given, as far as these tell.
    pub(super) fn may_cover(&self, list: Option<usize>, dn: &NormalDn) -> bool {
        self.is_in(list) && self.entries.as_ref().is_none_or(|test| test.holds(dn))
    }

    /// Whether its list covers an entry for which [`AccessRules::list_of`] has returned `list`.
    pub(super) fn is_in(&self, list: Option<usize>) -> bool {
        self.list.is_none() || self.list == list
    }
}

/// Whether all conditions are met. It stops at the first that is not.
pub(super) fn all(conditions: &[usize], meets: impl Fn(usize) -> Result<bool>) -> Result<bool> {
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
pub(super) fn step(
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
