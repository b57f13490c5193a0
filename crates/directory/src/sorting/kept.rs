//! Lists that are kept for the next views of them. A list holds what somebody may see, so that it is for that requester
//! alone, by the bind that it was made under: another bind, or other rules, have lists of their own.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::List;
use crate::access::Requester;
use crate::engine::CommitNo;

/// Lists that are kept at the same time. The one that was used least lately makes room.
const LISTS_MAX: usize = 16;
/// Bytes of all of them together, in memory and in files.
const LISTS_BYTES_MAX: u64 = 256 << 20;
/// For so long, in microseconds, a list is a view's whose client names it, though the data have changed.
const NAMED_MICROS: u64 = 60_000_000;

/// The lists of a directory.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The one that was used last comes last.
    kept: Vec<Owned>,
    /// The number of the newest list.
    newest: u64,
}

/// A list that is kept.
#[derive(Clone, Debug)]
pub(crate) struct KeptList {
    /// What its clients name it by.
    pub(crate) number: u64,
    /// The commit that it shows, if it shows one.
    pub(crate) commit: Option<CommitNo>,
    pub(crate) list: Arc<List>,
}

#[derive(Debug)]
struct Owned {
    by: Weak<Requester>,
    /// The hash of the request that it was made for.
    request: u64,
    made_micros: u64,
    kept: KeptList,
}

/// Which list is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'w> {
    /// Who asks.
    pub(crate) by: &'w Weak<Requester>,
    /// The hash of the request: whoever finds two requests with the same has mixed up lists of their own.
    pub(crate) request: u64,
    /// The commit that it is to show.
    pub(crate) commit: Option<CommitNo>,
}

impl Lists {
    /// The list that is wanted: of the commit, or, for some time, the one that the client names by its number.
    pub(crate) fn find(
        &self,
        wanted: Wanted<'_>,
        named: Option<u64>,
        now_micros: u64,
    ) -> Option<KeptList> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.forget_ended();
        let at = inner.kept.iter().position(|owned| {
            let is_recent = now_micros.saturating_sub(owned.made_micros) < NAMED_MICROS;
            let is_named = named == Some(owned.kept.number) && is_recent;
            let shows_it = wanted.commit.is_some() && owned.kept.commit == wanted.commit;
            owned.is_of(wanted) && (shows_it || is_named)
        })?;
        let used = inner.kept.remove(at);
        let kept = used.kept.clone();
        inner.kept.push(used);
        Some(kept)
    }

    /// Keeps a list, in the place of one for the same request.
    pub(crate) fn keep(&self, wanted: Wanted<'_>, list: Arc<List>, now_micros: u64) -> KeptList {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.forget_ended();
        inner.kept.retain(|owned| !owned.is_of(wanted));
        inner.newest += 1;
        let kept = KeptList {
            number: inner.newest,
            commit: wanted.commit,
            list,
        };
        inner.kept.push(Owned {
            by: wanted.by.clone(),
            request: wanted.request,
            made_micros: now_micros,
            kept: kept.clone(),
        });
        while inner.kept.len() > LISTS_MAX || inner.bytes() > LISTS_BYTES_MAX {
            inner.kept.remove(0);
        }
        kept
    }
}

impl Owned {
    fn is_of(&self, wanted: Wanted<'_>) -> bool {
        self.request == wanted.request && Weak::ptr_eq(&self.by, wanted.by)
    }
}

impl Inner {
    /// Lets go of the lists of those who have gone.
    fn forget_ended(&mut self) {
        self.kept.retain(|owned| owned.by.strong_count() > 0);
    }

    fn bytes(&self) -> u64 {
        self.kept.iter().map(|owned| owned.kept.list.bytes()).sum()
    }
}
