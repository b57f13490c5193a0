//! What a search or a compare is while it is under way: which of the state machines of the directory.

use std::sync::Arc;

use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Budget, Compare, Digests, Error, Outcome, Requester, Search, SearchOptions, Snapshot, Sorted,
    Step, Wire,
};
use sapwood_ldap::message::SearchRequest;

use super::persistent::Following;
use crate::session::backup::Backup;

/// A search or a compare under way.
pub(in crate::session) enum Reading<E: Engine> {
    Search(Search<E>),
    Sorted(Box<Sorted<E>>),
    Persistent(Box<Following<E>>),
    Digests(Box<Digests<E>>),
    Compare(Compare<E>),
    Backup(Box<Backup>),
    /// One that was handed over to be freed.
    Disposed,
}

impl<E: Engine> Reading<E> {
    /// Begins a search, sorted or not.
    pub(in crate::session) fn begin(
        snapshot: Snapshot<E>,
        requester: &Arc<Requester>,
        request: &SearchRequest<'_>,
        mut options: SearchOptions,
    ) -> Reading<E> {
        match options.sorting.take() {
            None => Reading::Search(Search::new(snapshot, requester, request, options)),
            Some(sorting) => {
                let sorted = Sorted::new(snapshot, requester, request, options, sorting);
                Reading::Sorted(Box::new(sorted))
            }
        }
    }

    /// Goes on with it.
    pub(super) fn step(&mut self, wire: &mut Wire<'_>, budget: Budget) -> Result<Step, Error> {
        match self {
            Reading::Search(search) => search.step(wire, budget),
            Reading::Sorted(search) => search.step(wire, budget),
            Reading::Persistent(following) => following.search.step(wire, budget),
            Reading::Digests(digests) => digests.step(wire, budget),
            Reading::Compare(compare) => compare.step(budget.work),
            Reading::Backup(backup) => Ok(backup.step(wire, budget)),
            Reading::Disposed => Ok(Step::Done(Outcome::SUCCESS)),
        }
    }

    /// Entries that a search has sent; none of one that waits for changes, nor of a compare.
    pub(super) fn sent(&self) -> Option<u32> {
        match self {
            Reading::Search(search) => Some(search.sent()),
            Reading::Sorted(search) => Some(search.sent()),
            Reading::Digests(digests) => Some(digests.entries()),
            Reading::Persistent(_)
            | Reading::Compare(_)
            | Reading::Backup(_)
            | Reading::Disposed => None,
        }
    }

    /// The snapshot that it reads.
    pub(super) fn snapshot(&self) -> Option<&Snapshot<E>> {
        match self {
            Reading::Search(search) => Some(search.snapshot()),
            Reading::Sorted(search) => Some(search.snapshot()),
            Reading::Persistent(following) => following.search.snapshot(),
            Reading::Digests(digests) => Some(digests.snapshot()),
            Reading::Compare(compare) => Some(compare.snapshot()),
            Reading::Backup(_) | Reading::Disposed => None,
        }
    }

    /// Whether a part of the next message is gathered.
    pub(super) fn is_gathering(&self) -> bool {
        match self {
            Reading::Search(search) => search.is_gathering(),
            Reading::Sorted(search) => search.is_gathering(),
            Reading::Persistent(following) => following.search.is_gathering(),
            Reading::Digests(digests) => digests.is_gathering(),
            _ => false,
        }
    }

    /// Has a search go on in another snapshot.
    pub(super) fn renew(
        &mut self,
        snapshot: Snapshot<E>,
        by: &Arc<Requester>,
        request: &SearchRequest<'_>,
        options: SearchOptions,
    ) {
        match self {
            Reading::Search(search) => search.renew(snapshot, by, request, options),
            Reading::Sorted(search) => search.renew(snapshot, by, request, options),
            Reading::Digests(digests) => digests.renew(snapshot, by, request, options),
            Reading::Persistent(_)
            | Reading::Compare(_)
            | Reading::Backup(_)
            | Reading::Disposed => {}
        }
    }

    /// Whether candidates are still being looked for in the indexes: so far nothing is answered.
    pub(super) fn is_planning(&self) -> bool {
        matches!(self, Reading::Search(search) if !search.is_planned())
    }
}
