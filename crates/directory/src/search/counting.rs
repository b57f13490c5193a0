//! Matching entry count: how many entries a search would find, told at its end and without sending them.
//!
//! To whom nothing is hidden: candidates are looked at if they are no more than the request allows, and then the count
//! is exact; otherwise their number is an upper bound. Nobody else is told anything that depends on how many candidates
//! there are, as these include what they may not see: what they may see is counted, up to as many entries.

use sapwood_ldap::controls::{
    Control, ControlsBuf, EntryCount, MATCHING_ENTRY_COUNT_RESPONSE, MatchingEntryCount,
    put_entry_count,
};
use sapwood_ldap::limits::INTEGER_MAX;
use sapwood_ldap::message::Scope;

use super::{Running, Source};
use crate::access::{Asked, Rights, Slot};
use crate::directory::Snapshot;
use crate::engine::{Engine, Range, Read, Table};
use crate::error::Result;
use crate::names;

/// How a search counts.
#[derive(Debug)]
pub(super) struct Counting {
    asked: MatchingEntryCount,
    /// Entries that were found so far.
    pub(super) counted: u32,
    /// What there is to be looked at, once that is known.
    plan: Option<Plan>,
}

#[derive(Debug)]
struct Plan {
    is_indexed: bool,
    /// For people, if they may know of it.
    lines: Vec<String>,
    /// Whether no more entries are told of than candidates may be looked at.
    is_bounded: bool,
    /// The count, if no candidates are looked at.
    told: Option<EntryCount>,
}

impl Counting {
    pub(super) fn new(asked: MatchingEntryCount) -> Counting {
        Counting {
            asked,
            counted: 0,
            plan: None,
        }
    }

    /// Appends the control with the count.
    pub(super) fn put(&self, controls: &mut ControlsBuf) {
        let Some(plan) = &self.plan else {
            return;
        };
        let examined = match plan.is_bounded && self.counted > self.asked.candidates_max {
            true => EntryCount::Unknown,
            false => EntryCount::Examined(self.counted.min(INTEGER_MAX)),
        };
        let mut value = Vec::new();
        let count = plan.told.unwrap_or(examined);
        put_entry_count(&mut value, count, plan.is_indexed, &plan.lines);
        controls.push(Control {
            oid: MATCHING_ENTRY_COUNT_RESPONSE,
            critical: false,
            value: Some(&value),
        });
    }
}

impl Running {
    /// Whether a search that counts can end without a look at its candidates. It is asked at each step, and finds out
    /// at the first.
    pub(super) fn counts_without_looking<E: Engine>(
        &mut self,
        snapshot: &Snapshot<E>,
    ) -> Result<bool> {
        let Some(asked) = self.counting.as_ref().map(|counting| counting.asked) else {
            return Ok(false);
        };
        let sees_all = self.decider.is_none();
        if let Some(counting) = &mut self.counting
            && let Some(plan) = &mut counting.plan
        {
            if !sees_all && counting.counted > asked.candidates_max {
                plan.told = Some(EntryCount::Unknown);
            }
            return Ok(plan.told.is_some());
        }
        let view = snapshot.view();
        let (candidates, is_indexed) = match &self.source {
            Source::Base | Source::Synthetic => (1, true),
            Source::Postings(term) => (term.cardinality(), true),
            Source::Names | Source::Entries if self.covered.scope() == Scope::OneLevel => {
                (view.children(self.covered.base())?, true)
            }
            Source::Names | Source::Entries => (view.estimate(Table::Entry, Range::ALL)?, false),
        };
        let mut lines = Vec::new();
        if asked.tells_plan && self.may_know_plan(snapshot)? {
            lines.push(format!("plan: {}", self.explain()));
            lines.push(format!("candidates: {candidates}"));
        }
        let is_looked_at = candidates <= u64::from(asked.candidates_max);
        let told = match (is_indexed, is_looked_at) {
            _ if !sees_all => None,
            (false, _) if !asked.even_if_unindexed => Some(EntryCount::Unknown),
            (_, true) => None,
            (true, false) => {
                let candidates = u32::try_from(candidates).unwrap_or(INTEGER_MAX);
                Some(EntryCount::UpperBound(candidates.min(INTEGER_MAX)))
            }
            (false, false) => Some(EntryCount::Unknown),
        };
        let is_told = told.is_some();
        if let Some(counting) = &mut self.counting {
            counting.plan = Some(Plan {
                is_indexed: is_indexed || !sees_all,
                lines,
                is_bounded: !sees_all,
                told,
            });
        }
        Ok(is_told)
    }

    /// Whether who asks manages the base of the search, and may so know what is in the indexes.
    fn may_know_plan<E: Engine>(&self, snapshot: &Snapshot<E>) -> Result<bool> {
        let grants = self.requester.grants();
        if grants.is_unlimited() {
            return Ok(true);
        }
        let (view, schema, id) = (snapshot.view(), snapshot.schema(), self.covered.base());
        let dn = &names::normal_dn_of(view, schema, id)?;
        let asked = Asked {
            view,
            schema,
            dn,
            id,
        };
        Ok(grants.rights(&asked, Slot::ENTRY)?.has(Rights::MANAGE))
    }
}
