//! Which freed pages may be used again: see [`free_list`](crate::format::free_list) for the rule.

use crate::env::region::Metas;
use crate::env::{Inner, readers};
use crate::format::free_list::{FreeExtent, UNBLOCKED};
use crate::guard::Guard;
use crate::ids::CommitNo;
use crate::sync::{AtomicU64, Ordering};

/// The commits whose pages must not be used again, as of one moment. Later readers can only pin later commits than the
/// one that was visible then, so what was allowed stays allowed.
#[derive(Debug)]
pub(crate) struct Protected {
    visible: CommitNo,
    /// Ascending.
    commits: Vec<CommitNo>,
}

/// The commits that are protected for the sake of checkpoints; the caller has noted the visible commit before.
///
/// The target is looked at before the meta pages. A checkpoint whose target is not seen here has pinned it afterwards,
/// so that it is not older than what the caller noted. One whose target is seen keeps its pages by that. Looked at the
/// other way round, a checkpoint could be missed altogether: its meta pages, because they were not written yet, and its
/// target, because the next one had begun by then.
pub(crate) fn checkpointed(metas: &Metas) -> [(Guard, CommitNo); 3] {
    let load = |commit: &AtomicU64| CommitNo(commit.load(Ordering::SeqCst));
    let target = load(&metas.target);
    let [first, second] = metas.commits.each_ref().map(load);
    [
        (Guard::ProtectTarget, target),
        (Guard::ProtectMetas, first),
        (Guard::ProtectMetas, second),
    ]
}

impl Protected {
    pub(crate) fn now(inner: &Inner) -> Self {
        if inner.options.parked_age_max < u64::MAX {
            readers::expire_parked(inner, inner.options.parked_age_max);
        }
        // Before the readers: see `env::readers` on why.
        let guards = inner.options.guards;
        let visible = match guards.has(Guard::ProtectInvisible) {
            true => inner.region.visible(),
            false => inner.region.applied(),
        };
        let mut commits = Vec::with_capacity(8);
        let mut protect = |guard, commit| {
            if guards.has(guard) {
                commits.push(commit);
            }
        };
        for reader in readers::pinned(inner) {
            protect(Guard::ProtectReaders, reader.commit);
        }
        for (guard, commit) in checkpointed(&inner.region.metas) {
            protect(guard, commit);
        }
        Self::new(visible, commits)
    }

    pub(crate) fn new(visible: CommitNo, mut commits: Vec<CommitNo>) -> Self {
        commits.sort_unstable();
        // Both meta pages and the target mostly are of one commit.
        commits.dedup();
        Self { visible, commits }
    }

    /// Whether what this commit freed may be used again, as far as that depends on its being visible.
    pub(crate) fn sees(&self, freed: CommitNo) -> bool {
        freed <= self.visible
    }

    /// Whether this commit is one of the protected ones.
    pub(crate) fn has(&self, commit: CommitNo) -> bool {
        self.commits.binary_search(&commit).is_ok()
    }

    /// The newest protected commit in which the extent was live; [`UNBLOCKED`] if there is none.
    pub(crate) fn blocker(&self, extent: &FreeExtent) -> CommitNo {
        let before = self
            .commits
            .partition_point(|&commit| commit < extent.freed);
        before
            .checked_sub(1)
            .and_then(|at| self.commits.get(at))
            .filter(|&&commit| commit >= extent.born)
            .map_or(UNBLOCKED, |&commit| commit)
    }

    /// Whether somebody sees pages that one of these commits wrote, and not what the other did, or may begin to: what
    /// is visible can be pinned at any time.
    pub(crate) fn tells_apart(&self, one: CommitNo, other: CommitNo) -> bool {
        let between = one.min(other)..one.max(other);
        let at = self
            .commits
            .partition_point(|commit| *commit < between.start);
        let next = self.commits.get(at);
        between.contains(&self.visible) || next.is_some_and(|next| between.contains(next))
    }

    /// The reuse rule.
    pub(crate) fn allows(&self, extent: &FreeExtent) -> bool {
        self.sees(extent.freed) && self.blocker(extent) == UNBLOCKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PageNo;

    fn extent(first: u64, pages: u32, born: u64, freed: u64) -> FreeExtent {
        FreeExtent {
            freed: CommitNo(freed),
            born: CommitNo(born),
            first: PageNo(first),
            pages,
        }
    }

    fn protected(visible: u64, commits: &[u64]) -> Protected {
        Protected::new(
            CommitNo(visible),
            commits.iter().map(|&commit| CommitNo(commit)).collect(),
        )
    }

    #[test]
    fn the_reuse_rule() {
        let rule = protected(20, &[10, 5, 15]);
        let allows = |born, freed| rule.allows(&extent(9, 1, born, freed));
        assert!(allows(6, 10), "freed by the commit that is pinned");
        assert!(!allows(6, 11), "10 sees it");
        assert!(!allows(5, 6), "5 sees it");
        assert!(allows(11, 15));
        assert!(!allows(15, 16));
        assert!(allows(16, 20));
        assert!(!allows(16, 21), "20 is visible and sees it");
        assert!(allows(12, 12), "nobody ever saw it");
        assert!(!allows(21, 21), "not visible yet");
        assert!(protected(3, &[]).allows(&extent(9, 1, 1, 3)));
        assert_eq!(rule.blocker(&extent(9, 1, 1, 16)), CommitNo(15));
        assert_eq!(rule.blocker(&extent(9, 1, 1, 15)), CommitNo(10));
        assert_eq!(rule.blocker(&extent(9, 1, 16, 30)), UNBLOCKED);
        let apart = |one, other| rule.tells_apart(CommitNo(one), CommitNo(other));
        assert!(
            apart(10, 11) && apart(11, 10),
            "10 sees what it wrote itself"
        );
        assert!(!apart(6, 10), "neither 5 nor 10 sees one of them only");
        assert!(!apart(16, 20) && apart(20, 21), "20 may be pinned yet");
    }
}
