//! Reader slots, parked and not, checkpoints, and the reuse rule under a model checker, which runs them in many orders
//! that real threads would hardly ever take.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p sapwood-store --lib model` runs only these: nothing else works outside of
//! the checker then.

use shuttle::thread;

use sapwood_wal::Position;

use crate::env::readers::Slot;
use crate::env::region::Metas;
use crate::format::free_list::FreeExtent;
use crate::format::roots::{FIRST_PAGE, Head, ROOTS_WORDS, Roots};
use crate::ids::{CommitNo, PageNo};
use crate::log::checkpoint::pin_target;
use crate::space::reuse;
use crate::space::reuse::Protected;
use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering};

const SCHEDULES: usize = 20_000;

/// Each commit has a page of its own, which the next one frees; it is used again for a later commit.
const COMMITS: u64 = 6;
const PAGES: usize = 3;
/// With checkpoints: the newest commit, the next one, a target and two meta pages.
const PAGES_WITH_CHECKPOINTS: usize = 5;

/// In which order a writer looks at what protects the pages of checkpoints.
#[derive(Clone, Copy)]
enum Look {
    AsShipped,
    MetasFirst,
}

/// What threads share of a store.
struct Model {
    visible: AtomicU64,
    slots: [Slot; 2],
    metas: Metas,
    look: Look,
    /// The commit that each page was written by.
    pages: Vec<AtomicU64>,
    resumed: AtomicU32,
    expired: AtomicU32,
}

impl Model {
    fn new(pages: usize) -> Self {
        let slot = || Slot::default();
        let slots = [slot(), slot()];
        for (process, slot) in (0..).zip(&slots) {
            assert!(slot.claim(process));
        }
        Self {
            visible: AtomicU64::new(1),
            slots,
            metas: Metas::default(),
            look: Look::AsShipped,
            pages: (0..pages)
                .map(|at| AtomicU64::new(u64::from(at == 0)))
                .collect(),
            resumed: AtomicU32::new(0),
            expired: AtomicU32::new(0),
        }
    }

    fn visible(&self) -> CommitNo {
        CommitNo(self.visible.load(Ordering::SeqCst))
    }

    /// Commits, taking a page that an earlier commit has freed wherever the rule allows it.
    fn write(&self, age_max: u64, takes_anything: bool) {
        let mut used_at = 0;
        for commit in 2..=COMMITS {
            // As `Protected::now` does.
            let oldest = CommitNo(self.visible().0.saturating_sub(age_max));
            for slot in &self.slots {
                slot.expire(oldest);
            }
            let visible = self.visible();
            let pinned = self.slots.iter().filter_map(Slot::pinned);
            let mut commits: Vec<CommitNo> = pinned.map(|pinned| pinned.commit).collect();
            commits.extend(self.checkpointed());
            let protected = Protected::new(visible, commits);
            let is_free = |at: &usize| {
                let born = self.pages[*at].load(Ordering::Relaxed);
                // The page of a commit is live until the next one.
                let extent = FreeExtent {
                    born: CommitNo(born),
                    freed: CommitNo(born + 1),
                    first: PageNo(*at as u64),
                    pages: 1,
                };
                *at != used_at && (born == 0 || takes_anything || protected.allows(&extent))
            };
            let Some(at) = (0..self.pages.len()).find(is_free) else {
                // The file would grow.
                return;
            };
            self.pages[at].store(commit, Ordering::Relaxed);
            used_at = at;
            self.visible.store(commit, Ordering::SeqCst);
        }
    }

    fn checkpointed(&self) -> [CommitNo; 3] {
        match self.look {
            Look::AsShipped => reuse::checkpointed(&self.metas).map(|(_, commit)| commit),
            Look::MetasFirst => {
                let [first, second] = &self.metas.commits;
                [first, second, &self.metas.target]
                    .map(|commit| CommitNo(commit.load(Ordering::SeqCst)))
            }
        }
    }

    fn place_of(&self, commit: CommitNo) -> Option<usize> {
        let is_its = |page: &AtomicU64| page.load(Ordering::Relaxed) == commit.0;
        self.pages.iter().position(is_its)
    }

    /// Two checkpoints. Recovery would begin at one of the meta pages on disk, whatever moment the power is cut at.
    fn checkpoint(&self, on_disk: &mut [CommitNo; 2]) {
        let check = |on_disk: &[CommitNo; 2]| {
            for commit in on_disk {
                let is_there = self.place_of(*commit).is_some();
                assert!(is_there, "a page was used again under a meta page");
            }
        };
        for _ in 0..2 {
            let (commit, _) = pin_target(&self.metas, || self.visible(), |c| self.place_of(c));
            for slot in 0..2 {
                // The pages are synced, and the meta page is written.
                thread::yield_now();
                check(on_disk);
                on_disk[slot] = commit;
                self.metas.note(slot, &head(commit));
                check(on_disk);
            }
        }
        thread::yield_now();
        check(on_disk);
    }

    /// Reads the page of a commit again and again, with the snapshot parked in between.
    fn read(&self, slot: &Slot) {
        // The one that comes too late for a commit finds its head overwritten, and begins again.
        let (commit, at) = slot.pin_visible(|| self.visible(), |commit| self.place_of(commit));
        for _ in 0..2 {
            thread::yield_now();
            let found = self.pages[at].load(Ordering::Relaxed);
            assert_eq!(found, commit.0, "a page was used again under a snapshot");
            slot.park();
            thread::yield_now();
            if !slot.resume() {
                self.expired.fetch_add(1, Ordering::Relaxed);
                return slot.unpin();
            }
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
        let found = self.pages[at].load(Ordering::Relaxed);
        assert_eq!(found, commit.0, "a page was used again under a snapshot");
        slot.unpin();
    }
}

fn head(commit: CommitNo) -> Head {
    let mut words = [0; ROOTS_WORDS];
    words[0] = FIRST_PAGE;
    match Roots::from_words(&words) {
        Ok(roots) => Head {
            commit,
            log: Position::default(),
            roots,
        },
        Err(error) => unreachable!("empty roots: {error}"),
    }
}

/// A thread that checkpoints beside a writer and a reader.
fn checkpoints_beside_a_writer(look: Look) {
    let mut model = Model::new(PAGES_WITH_CHECKPOINTS);
    model.look = look;
    for slot in 0..2 {
        model.metas.note(slot, &head(CommitNo(1)));
    }
    model.metas.target.store(1, Ordering::SeqCst);
    let model = Arc::new(model);
    let checkpointer = {
        let model = model.clone();
        thread::spawn(move || {
            let mut on_disk = [CommitNo(1); 2];
            model.checkpoint(&mut on_disk);
            on_disk
        })
    };
    let reader = {
        let model = model.clone();
        thread::spawn(move || model.read(&model.slots[0]))
    };
    model.write(u64::MAX, false);
    assert!(reader.join().is_ok());
    match checkpointer.join() {
        Ok(on_disk) => assert!(
            on_disk
                .iter()
                .all(|commit| model.place_of(*commit).is_some()),
            "a page was used again under a meta page"
        ),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Two readers beside a writer; how often they went on after they were parked, and how often they were ended.
fn readers_beside_a_writer(age_max: u64, takes_anything: bool) -> (u32, u32) {
    let model = Arc::new(Model::new(PAGES));
    let readers: Vec<_> = (0..2)
        .map(|at| {
            let model = model.clone();
            thread::spawn(move || model.read(&model.slots[at]))
        })
        .collect();
    model.write(age_max, takes_anything);
    for reader in readers {
        assert!(reader.join().is_ok());
    }
    let load = |count: &AtomicU32| count.load(Ordering::Relaxed);
    (load(&model.resumed), load(&model.expired))
}

#[test]
fn model_of_snapshots_that_are_parked() {
    // Counted outside of the checker's own world.
    static RESUMED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    static EXPIRED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    for age_max in [0, 1, u64::MAX] {
        EXPIRED.store(0, std::sync::atomic::Ordering::Relaxed);
        let run = move || {
            let (resumed, expired) = readers_beside_a_writer(age_max, false);
            RESUMED.fetch_add(resumed, std::sync::atomic::Ordering::Relaxed);
            EXPIRED.fetch_add(expired, std::sync::atomic::Ordering::Relaxed);
        };
        shuttle::check_random(run, SCHEDULES);
        shuttle::check_pct(run, SCHEDULES, 3);
        let expired = EXPIRED.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(expired > 0, age_max != u64::MAX, "{expired} ended");
    }
    assert!(RESUMED.load(std::sync::atomic::Ordering::Relaxed) > 0);
}

/// The model would notice a page that is used too early.
#[test]
#[should_panic(expected = "a page was used again under a snapshot")]
fn model_fails_without_the_reuse_rule() {
    let run = || {
        let _counts: (u32, u32) = readers_beside_a_writer(0, true);
    };
    shuttle::check_random(run, SCHEDULES);
}

#[test]
fn model_of_checkpoints() {
    let run = || checkpoints_beside_a_writer(Look::AsShipped);
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, 20 * SCHEDULES, 5);
}

/// A writer that reads the meta pages' commits first, and the target then, may find two checkpoints that are both not
/// the one in between, which has written its meta pages meanwhile.
#[test]
#[should_panic(expected = "a page was used again under a meta page")]
fn model_fails_if_the_target_is_looked_at_last() {
    let run = || checkpoints_beside_a_writer(Look::MetasFirst);
    // Few schedules show it. It ends with the first that does.
    shuttle::check_pct(run, 100 * SCHEDULES, 5);
}
