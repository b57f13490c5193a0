//! What happens beside commits: checkpoints when the log has grown or nobody commits, syncs for commits that nobody
//! waits for, growth of the file and the log ahead of need, and compaction of a store that rests.

use std::time::Duration;

use crate::compact;
use crate::env::background::Work;
use crate::env::{Env, Inner};
use crate::ids::CommitNo;
use crate::log::checkpoint;
use crate::sync::{Arc, Weak, lock};
use crate::txn::pages::Workshop;

/// A compaction that was of no use, such as one beside a reader that keeps pages, is tried again after twice the time,
/// at most this.
const COMPACTION_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Does what is asked for until it is told to stop.
pub(crate) fn run(inner: &Weak<Inner>, idle: Duration) {
    // The one that ends the thread keeps the environment until it has ended.
    let Some(inner) = inner.upgrade() else {
        return;
    };
    let mut compacted = None;
    while let Some(work) = inner.background.wait(&inner, idle) {
        // What fails here fails again, and is told, where somebody waits for it.
        match work {
            Work::Checkpoint => drop(checkpoint::checkpoint_due(&inner)),
            Work::Growth => inner.grow_ahead(),
            Work::LogSegment => inner.make_log_segment_if_due(),
            Work::Sync => drop(inner.sync()),
            Work::Settle => {
                drop(checkpoint::settle(&inner));
                ask_for_compaction_if_due(&inner, compacted);
                let mut shop = lock(&inner.workshop);
                if let Some(shop) = shop.as_mut().and_then(|shop| shop.downcast_mut()) {
                    Workshop::rest(shop);
                }
            }
            Work::Compaction(after) => {
                let may_go_on = |newest| {
                    !inner.background.is_asked_to_stop() && inner.region.applied() == newest
                };
                let env = Env::in_background(&inner);
                drop(compact::compact(&env, &mut |_| (), &may_go_on));
                compacted = Some((inner.region.applied(), after));
                ask_for_compaction_if_due(&inner, compacted);
            }
        }
    }
}

/// `compacted` says with which commit the last compaction ended, and after how long without a commit it had begun.
fn ask_for_compaction_if_due(inner: &Arc<Inner>, compacted: Option<(CommitNo, Duration)>) {
    let after = match (inner.options.idle_compaction, compacted) {
        (None, _) => return,
        (Some(_), Some((commit, after))) if commit == inner.region.applied() => {
            (after * 2).min(COMPACTION_WAIT_MAX)
        }
        (Some(after), _) => after,
    };
    let is_due = compact::is_due(inner).unwrap_or(false);
    inner.background.plan_compaction(is_due.then_some(after));
}
