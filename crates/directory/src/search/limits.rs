//! How much a search may find, look at and take.

use std::collections::BTreeSet;

use sapwood_ldap::message::SearchRequest;
use sapwood_ldap::result::ResultCode;

use super::{Flow, SearchOptions};
use crate::directory::Snapshot;
use crate::engine::Engine;
use crate::outcome::Outcome;

/// Missing indexes that an outcome tells of.
const MISSING_TOLD_MAX: usize = 4;

/// What bounds a search: what its request asks for, and what the server allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most entries of the whole search.
    pub(super) entries_max: u32,
    /// Most entries of this page; 0 is no limit.
    pub(super) page_max: u32,
    /// Most candidates of this page that are looked at.
    candidates_max: u64,
    pub(super) deadline_micros: Option<u64>,
}

impl Limits {
    /// Those of a request; its time counts from now on.
    pub(super) fn of(
        request: &SearchRequest<'_>,
        options: &SearchOptions,
        now_micros: impl FnOnce() -> u64,
    ) -> Limits {
        let entries_max = [request.size_limit, options.entries_max]
            .into_iter()
            .filter(|limit| *limit > 0)
            .min();
        let wanted = (request.time_limit > 0)
            .then(|| now_micros() + u64::from(request.time_limit) * 1_000_000);
        Limits {
            entries_max: entries_max.unwrap_or(u32::MAX),
            page_max: 0,
            candidates_max: match options.candidates_max {
                0 => u64::MAX,
                most => most.into(),
            },
            deadline_micros: wanted.into_iter().chain(options.deadline_micros).min(),
        }
    }

    /// How many entries may be sent of a page that comes after so many others, and what is reached then.
    pub(super) fn sent_max(&self, sent_before: u32) -> (u32, Flow) {
        let left = self.entries_max.saturating_sub(sent_before);
        match self.page_max {
            1.. if self.page_max < left => (self.page_max, Flow::PageFull),
            _ => (left, Flow::SizeLimit),
        }
    }

    /// How many candidates may be looked at when so many were.
    pub(super) fn candidates_left(&self, looked_at: u64) -> u32 {
        let left = self.candidates_max.saturating_sub(looked_at);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// The outcome when there are more candidates, and these indexes are missing.
    pub(super) fn too_many_candidates(&self, missing: &BTreeSet<String>) -> Outcome {
        let mut diagnostic = format!(
            "more than {} entries would have to be looked at: no index finds what is searched for, or too much of it",
            self.candidates_max
        );
        let mut between = "; what is missing is made by";
        for index in missing.iter().take(MISSING_TOLD_MAX) {
            diagnostic += &format!("{between} 'sapwood index DIR add \"{index}\"'");
            between = ",";
        }
        Outcome::new(ResultCode::AdminLimitExceeded, diagnostic)
    }

    /// The outcome when the time is over.
    pub(super) fn exceeded<E: Engine>(&self, snapshot: &Snapshot<E>, sent: u32) -> Option<Outcome> {
        let deadline = self.deadline_micros?;
        (snapshot.now_micros() >= deadline).then(|| {
            let diagnostic = format!("{sent} entries were sent before the time limit");
            Outcome::new(ResultCode::TimeLimitExceeded, diagnostic)
        })
    }
}
