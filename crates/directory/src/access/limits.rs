//! How much the searches of somebody may take (slapd.conf(5), "limits"): a list, of which the first that is about who
//! asks counts. Where none is, or none says it, `olcSizeLimit` and `olcTimeLimit` do.

use super::compile::{Asker, Data, Need};
use super::evaluate::Evaluate;
use super::who::CompiledWho;
use crate::config::Settings;
use crate::error::Result;
use crate::policy::expansion::Source;
use crate::policy::limits::{Bound, Limits, PagesBound, SearchBounds};
use crate::policy::regex::Regex;
use crate::policy::{DnScope, Who};
use crate::schema::Schema;

/// What bounds the searches of somebody; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchLimits {
    entries: Range,
    seconds: Range,
    candidates: u32,
    page: u32,
    pages: Option<PagesBound>,
    operations: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    soft: u32,
    hard: u32,
}

impl Range {
    fn of(bound: Bound, usual: u32) -> Range {
        let soft = bound.soft.or(bound.hard).unwrap_or(usual);
        let hard = bound.hard.or(bound.soft).unwrap_or(usual);
        let is_within = hard == 0 || soft > 0 && soft <= hard;
        Range {
            soft: if is_within { soft } else { hard },
            hard,
        }
    }

    /// What bounds a search that asks for a limit, or with 0 for none.
    fn most(self, asked: u32) -> u32 {
        match asked {
            0 => self.soft,
            _ => self.hard,
        }
    }
}

impl SearchLimits {
    /// Those of somebody about whom limits say this, if any do.
    pub(crate) fn of(limits: Option<SearchBounds>, settings: &Settings) -> SearchLimits {
        match limits {
            Some(bounds) => SearchLimits {
                entries: Range::of(bounds.size, settings.search_entries_max),
                seconds: Range::of(bounds.time, settings.search_seconds_max),
                candidates: bounds.candidates.unwrap_or_default(),
                page: bounds.page.unwrap_or_default(),
                pages: bounds.pages,
                operations: bounds.operations.unwrap_or_default(),
            },
            None => SearchLimits::usual(settings),
        }
    }

    /// Those of everybody.
    fn usual(settings: &Settings) -> SearchLimits {
        let range = |limit| Range {
            soft: limit,
            hard: limit,
        };
        SearchLimits {
            entries: range(settings.search_entries_max),
            seconds: range(settings.search_seconds_max),
            candidates: 0,
            page: 0,
            pages: None,
            operations: 0,
        }
    }

    /// Entries that a search returns whose request has this size limit.
    pub fn entries_max(&self, asked: u32) -> u32 {
        self.entries.most(asked)
    }

    /// The same of all pages of a search; `None` where there are no pages.
    pub fn paged_entries_max(&self, asked: u32) -> Option<u32> {
        match self.pages {
            None => Some(self.entries_max(asked)),
            Some(PagesBound::Hard) => Some(self.entries.hard),
            Some(PagesBound::Entries(most)) => Some(most),
            Some(PagesBound::Disabled) => None,
        }
    }

    /// Operations of who asks that are under way at the same time.
    pub fn operations_max(&self) -> u32 {
        self.operations
    }

    /// Candidates that a search looks at.
    pub fn candidates_max(&self) -> u32 {
        self.candidates
    }

    /// Entries of a page of which a request asks for so many.
    pub fn page_max(&self, asked: u32) -> u32 {
        match self.page {
            0 => asked,
            most => most.min(asked),
        }
    }

    /// Seconds that a search takes whose request has this time limit, and a compare with 0.
    pub fn seconds_max(&self, asked: u32) -> u32 {
        self.seconds.most(asked)
    }
}

/// Limits with their names looked up.
#[derive(Debug)]
pub(super) struct CompiledLimits {
    who: CompiledWho,
    bounds: SearchBounds,
}

impl CompiledLimits {
    pub(super) fn new(
        schema: &Schema,
        limits: &Limits,
    ) -> std::result::Result<CompiledLimits, String> {
        let who = match &limits.who {
            // Nothing stands for anything in it.
            Who::Dn(pattern) if pattern.scope == DnScope::Regex => {
                CompiledWho::Matches(Box::new(Regex::new(&pattern.dn)?))
            }
            who => CompiledWho::new(schema, who, (&Source::Whole, None))?,
        };
        Ok(CompiledLimits {
            who,
            bounds: limits.bounds,
        })
    }

    pub(super) fn needs_data(&self) -> bool {
        self.who.needs_data()
    }
}

impl CompiledLimits {
    /// What the first of some limits says that are about somebody.
    pub(super) fn first<R: Evaluate>(
        all: &[CompiledLimits],
        asker: &Asker<'_>,
        data: Data<'_, R>,
        work: &mut u64,
    ) -> Result<Option<SearchBounds>> {
        for limits in all {
            let mut need = Need::default();
            let is_meant = limits.who.may_be(asker, data, &mut need)?;
            *work = work.saturating_add(need.work);
            // What would be asked of an entry is true of none here.
            if is_meant && need.conditions.is_empty() {
                return Ok(Some(limits.bounds));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_no_limit_has_the_soft_one() {
        let range = |soft, hard| Range::of(Bound { soft, hard }, 10);
        for (soft, hard, (unasked, asked)) in [
            (None, None, (10, 10)),
            (Some(5), None, (5, 5)),
            (None, Some(5), (5, 5)),
            (Some(5), Some(8), (5, 8)),
            (Some(5), Some(0), (5, 0)),
            (Some(0), Some(0), (0, 0)),
            // The smaller one counts.
            (Some(9), Some(8), (8, 8)),
            (Some(0), Some(8), (8, 8)),
        ] {
            let range = range(soft, hard);
            assert_eq!(
                (range.most(0), range.most(3)),
                (unasked, asked),
                "{soft:?} {hard:?}"
            );
        }
    }
}
