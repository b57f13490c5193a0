//! Pointers survive power cuts, the death of the one that stores them, and that of all; and they do because of four
//! guards.
//!
//! The commits are made by hand, of one leaf and one segment: what a transaction would do is in [`Life::commit`]. After
//! each recovery the leaf has exactly the pointers of the commit that is there, and each of them leads to the record of
//! that commit, or an earlier one, with the value that was written.

use std::io::IoSlice;
use std::sync::Arc;

use sapwood_testkit::Random;
use sapwood_testkit::storage::recording::{Crash, Disk};
use sapwood_wal::Position;
use sapwood_wal::storage::{File, Memory, OpenMode, Storage};

use crate::env::archive::Archive;
use crate::env::mapping::Windows;
use crate::env::options::Durability;
use crate::env::options::{LOG_BYTES_MIN, Options};
use crate::env::region::Region;
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::format::meta::read_metas;
use crate::format::page::{PAGE_BYTES, Page, PageKind};
use crate::format::pages::ReadPages;
use crate::format::pointer::{RecordPointer, Segment};
use crate::format::pointer_leaf::{PointerLeaf, set_pointer};
use crate::format::roots::{FIRST_PAGE, Head, Roots};
use crate::format::tree_record::TreeRecord;
use crate::guard::{Guard, Guards};
use crate::heap::Record;
use crate::ids::{CommitNo, PageNo};
use crate::log::append::AppendLock;
use crate::log::archive;
use crate::log::archive::{Listed, Until};
use crate::log::checkpoint::{CheckpointLock, Pinned};
use crate::log::record::{Base, RecordHeader, encode_page, encode_pointers, encode_records};
use crate::log::recovery::Recovering;
use crate::sync::Ordering;
use crate::tests::crash_lives;
use crate::tests::crash_lives::{Length, Verdict};

/// Slots of the leaf, and what is stored there.
type Stored = Vec<(u16, RecordPointer)>;

const SLOTS: usize = 5;
/// The leaf is in one of them at a time.
const LEAVES: std::ops::Range<u64> = FIRST_PAGE..9;
const SEGMENT: Segment = Segment {
    first: PageNo(9),
    pages: 5,
};
const PAGES: u64 = 14;

/// What a commit leaves.
#[derive(Clone, Debug)]
struct State {
    commit: u64,
    leaf: u64,
    used: u32,
    pointers: [RecordPointer; SLOTS],
    values: [u8; SLOTS],
    /// From when to when each page was the leaf.
    lives: Vec<(u64, u64)>,
}

/// A note on the recording: the state with this number is going to be tried, or this commit was acknowledged.
const ACKNOWLEDGED: u64 = 1 << 62;

struct Life {
    disk: Disk,
    env: Env,
    guards: Guards,
    random: Random,
    /// The newest one, and all that were tried.
    state: State,
    tried: Vec<State>,
}

/// What happens between the beginning of a commit and the moment when its pointers are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    Nothing,
    Checkpoint,
    /// A checkpoint that pins its commit before, and goes on afterwards.
    Pin,
    /// The same, and it writes its meta page afterwards.
    Sync,
}

/// What becomes of the one that appends a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Lives,
    /// Somebody inherits the lock.
    Dies,
    AllDie,
}

fn told(error: Error) -> String {
    format!("{error} ({error:?})")
}

fn options(guards: Guards) -> Options {
    let mut options = Options::new()
        .log_bytes(2 * LOG_BYTES_MIN)
        .idle_checkpoint(None);
    options.guards = guards;
    options
}

fn open(disk: &Disk, guards: Guards) -> Result<Env> {
    Env::on_storage(Arc::new(disk.clone()), &options(guards))
}

impl crash_lives::Life for Life {
    fn begin(guards: Guards, seed: u64) -> std::result::Result<Self, String> {
        let disk = Disk::new();
        let env = open(&disk, guards).map_err(told)?;
        let state = State {
            commit: env.inner().region.applied().0,
            leaf: 0,
            used: 0,
            pointers: [RecordPointer::NONE; SLOTS],
            values: [0; SLOTS],
            lives: vec![(0, 0); LEAVES.end as usize],
        };
        Ok(Self {
            disk,
            env,
            guards,
            random: Random::new(seed),
            tried: vec![state.clone()],
            state,
        })
    }

    /// What recovery makes of a crash.
    fn after(&self, crash: &Crash, seed: u64) -> std::result::Result<Self, String> {
        let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
        let env = open(&disk, self.guards).map_err(told)?;
        let commit = env.inner().region.applied().0;
        let notes = crash.notes().iter();
        let acknowledged = notes.clone().rfind(|&&note| note >= ACKNOWLEDGED);
        if acknowledged.is_some_and(|note| note - ACKNOWLEDGED > commit) {
            return Err(format!("{acknowledged:?} was lost, {commit} is there"));
        }
        let tried = notes.filter(|&&note| note < ACKNOWLEDGED);
        let tried = std::iter::once(&0).chain(tried);
        let mut tried = tried.map(|&at| &self.tried[at as usize]).rev();
        let state = tried.find(|state| state.commit == commit);
        let state = state.ok_or_else(|| format!("commit {commit} has never been tried"))?;
        let life = Self {
            disk,
            env,
            guards: self.guards,
            random: Random::new(seed),
            state: state.clone(),
            tried: vec![state.clone()],
        };
        life.compare()?;
        Ok(life)
    }

    fn work(&mut self, steps: usize) -> Verdict {
        for _ in 0..steps {
            match self.random.below(10) {
                0 => self.checkpoint()?,
                1 => {
                    self.env.sync().map_err(told)?;
                    self.acknowledge(self.state.commit);
                }
                2 => self.commit_unlogged().map_err(told)?,
                _ => {
                    let meanwhile = match self.random.below(8) {
                        0 => Meanwhile::Checkpoint,
                        1 => Meanwhile::Pin,
                        2 => Meanwhile::Sync,
                        _ => Meanwhile::Nothing,
                    };
                    let fate = match self.random.below(12) {
                        0 => Fate::Dies,
                        1 => Fate::AllDie,
                        _ => Fate::Lives,
                    };
                    self.commit(meanwhile, fate).map_err(told)?;
                    if fate == Fate::AllDie {
                        self.reopen().map_err(told)?;
                    }
                }
            }
            self.compare()?;
        }
        Ok(())
    }

    fn disk(&self) -> &Disk {
        &self.disk
    }
}

impl Life {
    fn inner(&self) -> &Arc<Inner> {
        self.env.inner()
    }

    fn compare(&self) -> Verdict {
        compare_with(&*self.inner().data.file, &self.state)
    }

    fn acknowledge(&self, commit: u64) {
        self.disk.note(ACKNOWLEDGED | commit);
    }

    fn checkpoint(&self) -> Verdict {
        let commit = self.env.checkpoint().map_err(told)?;
        self.acknowledge(commit.0);
        Ok(())
    }

    /// The header of the next commit.
    fn header(&self, next: &State, has_changes: bool) -> RecordHeader {
        let identity = &self.inner().identity;
        RecordHeader {
            has_changes,
            store: identity.store,
            timeline: identity.timeline,
            commit: CommitNo(next.commit),
            roots: Roots {
                pages: PAGES,
                segments: TreeRecord {
                    root: PageNo(next.leaf),
                    height: 1,
                    ..Roots::empty().segments
                },
                ..Roots::empty()
            },
        }
    }

    /// Adds records of a few keys to the segment; gives their bytes and where they are.
    fn add_records(&mut self, next: &mut State) -> Result<(RecordPointer, Vec<u8>, Stored)> {
        let begin = next.used;
        let mut bytes = Vec::new();
        if begin == 0 {
            bytes.extend_from_slice(&SEGMENT.header(CommitNo(next.commit), CommitNo(0)));
        }
        let mut stored = Vec::new();
        let first = self.random.below(SLOTS);
        for slot in first..(first + 1 + self.random.below(2)).min(SLOTS) {
            let pointer = SEGMENT.pointer(begin + bytes.len() as u32).unwrap();
            let value = self.random.number() as u8;
            let record = Record {
                commit: CommitNo(next.commit),
                previous: next.pointers[slot],
                key: (slot as u64).to_be_bytes(),
                value: &[value; 9],
            };
            record.encode(&mut bytes);
            (next.pointers[slot], next.values[slot]) = (pointer, value);
            stored.push((slot as u16, pointer));
        }
        next.used = begin + bytes.len() as u32;
        let at = SEGMENT.pointer(begin).unwrap();
        self.inner().data.file.write_all_at(&bytes, at.offset())?;
        Ok((at, bytes, stored))
    }

    /// Whether the leaf that there is must be copied, or is.
    fn copies(&mut self) -> bool {
        let newest = self.inner().region.metas.newest().0;
        self.state.leaf == 0
            || self.state.lives[self.state.leaf as usize].0 <= newest
            || self.random.below(5) == 0
    }

    /// A page that the reuse rule allows.
    fn choose_page(&self) -> Option<u64> {
        let region = &self.inner().region;
        let metas = &region.metas;
        let pinned = [&metas.commits[0], &metas.commits[1], &metas.target];
        let pinned = pinned.map(|commit| commit.load(Ordering::SeqCst));
        let visible = region.visible().0;
        let is_free = |page: &u64| {
            let (born, freed) = self.state.lives[*page as usize];
            *page != self.state.leaf
                && freed <= visible
                && pinned.iter().all(|pin| !(born..freed).contains(pin))
        };
        LEAVES.clone().find(is_free)
    }

    /// Puts the leaf as it will be in another page; gives the old one.
    fn copy_leaf(&self, next: &mut State, page: u64) -> Result<(Page, Option<Page>)> {
        let (number, commit) = (PageNo(page), CommitNo(next.commit));
        let old = match self.state.leaf {
            0 => None,
            leaf => Some(read_page(&*self.inner().data.file, leaf)?),
        };
        let mut new = old.clone().unwrap_or_else(|| {
            let mut new = Page::zeroed();
            new.init(PageKind::PointerLeaf, 0, number, commit);
            (new.bytes_mut()[24], new.bytes_mut()[26]) = (SLOTS as u8, 16);
            new
        });
        new.set_number(number);
        new.set_commit(commit);
        for (slot, pointer) in next.pointers.into_iter().enumerate() {
            set_pointer(&mut new, slot, pointer).unwrap();
        }
        new.seal();
        let file = &self.inner().data.file;
        file.write_all_at(new.bytes(), page * PAGE_BYTES as u64)?;
        if let Some((_, freed)) = next.lives.get_mut(self.state.leaf as usize) {
            *freed = next.commit;
        }
        next.lives[page as usize] = (next.commit, u64::MAX);
        next.leaf = page;
        Ok((new, old))
    }

    /// What the next commit begins with, and where it copies the leaf to, if it does. Nothing if there is no room for
    /// that.
    fn next_state(&mut self) -> Option<(State, Option<u64>)> {
        let mut next = self.state.clone();
        next.commit += 1;
        if next.used as usize + 200 > SEGMENT.pages as usize * PAGE_BYTES {
            return None;
        }
        let new_page = match self.copies() {
            true => Some(self.choose_page()?),
            false => None,
        };
        Some((next, new_page))
    }

    fn try_state(&mut self, next: &State) {
        self.disk.note(self.tried.len() as u64);
        self.tried.push(next.clone());
    }

    fn commit(&mut self, meanwhile: Meanwhile, fate: Fate) -> Result<()> {
        let Some((mut next, new_page)) = self.next_state() else {
            return Ok(());
        };
        let (at, bytes, stored) = self.add_records(&mut next)?;
        let copied = new_page.map(|page| self.copy_leaf(&mut next, page));
        let copied = copied.transpose()?;
        let header = self.header(&next, true);
        let mut record = Vec::new();
        header.encode(&mut record);
        encode_records(at, &bytes, &mut record);
        match &copied {
            Some((new, old)) => {
                let base = old.as_ref().map(|page| Base {
                    number: PageNo(self.state.leaf),
                    page,
                });
                encode_page(new, base, &mut record);
            }
            None => encode_pointers(PageNo(next.leaf), &stored, &mut record),
        }
        let stored = if copied.is_some() { vec![] } else { stored };
        let env = self.env.clone();
        let inner = env.inner();
        let mut under_way: Option<(CheckpointLock<'_>, Pinned)> = None;
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Checkpoint => drop(self.env.checkpoint()?),
            Meanwhile::Pin | Meanwhile::Sync => {
                let lock = CheckpointLock::take(inner)?;
                let pinned = lock.pin()?;
                if meanwhile == Meanwhile::Sync {
                    lock.sync_log(&pinned)?;
                    lock.sync_pages(&pinned.head)?;
                }
                under_way = Some((lock, pinned));
            }
        }
        let durability = match self.random.below(2) {
            0 => Durability::Relaxed,
            _ => Durability::Durable,
        };
        self.try_state(&next);
        let appending = AppendLock::take(inner)?;
        let log = appending.append(&[IoSlice::new(&record)], durability)?;
        self.finish(
            &header.head(log),
            &next,
            stored,
            fate,
            (appending, durability),
        )?;
        if fate == Fate::AllDie {
            // Nobody gives the locks back.
            std::mem::forget(under_way);
            return Ok(());
        }
        if let Some((lock, pinned)) = under_way {
            if meanwhile == Meanwhile::Pin {
                lock.sync_log(&pinned)?;
                lock.sync_pages(&pinned.head)?;
            }
            lock.write_meta_if_newer(&pinned.head)?;
        }
        if durability == Durability::Durable && self.random.below(2) == 0
            || inner.region.visible().0 + 20 < next.commit
        {
            inner.make_visible(CommitNo(next.commit), log.lsn)?;
            self.acknowledge(next.commit);
        }
        Ok(())
    }

    /// Does what follows when the record is appended.
    fn finish(
        &mut self,
        head: &Head,
        next: &State,
        stored: Stored,
        fate: Fate,
        (appending, durability): (AppendLock<'_>, Durability),
    ) -> Result<()> {
        let inner = self.env.inner();
        match fate {
            Fate::Lives => {
                let mut windows = Windows::new(inner.data.file.clone());
                if !stored.is_empty() {
                    let leaf = PageNo(next.leaf);
                    appending.store_pointers(inner, &mut windows, head, leaf, stored)?;
                }
                inner.region.apply(head, durability);
                if let Some(wal) = &inner.wal {
                    inner.region.publish_ready(|| wal.durable());
                }
            }
            Fate::Dies => {
                drop(appending);
                inner.first_region().appender.lock(77, |_| true);
                drop(AppendLock::take(inner)?);
                assert_eq!(inner.region.applied(), head.commit);
            }
            Fate::AllDie => drop(appending),
        }
        self.state = next.clone();
        Ok(())
    }

    /// All processes have died, and the system has not.
    fn reopen(&mut self) -> Result<()> {
        // What was only in their memory is handed to the system with the last handle, which would happen to what is
        // shared.
        self.env = Env::in_memory(&Options::new())?;
        self.env = open(&self.disk, self.guards)?;
        let commit = self.inner().region.applied().0;
        let mut tried = self.tried.iter().rev();
        if let Some(state) = tried.find(|state| state.commit == commit) {
            self.state = state.clone();
        }
        self.acknowledge(commit);
        Ok(())
    }

    /// Without the log, but for pointers.
    fn commit_unlogged(&mut self) -> Result<()> {
        let Some((mut next, new_page)) = self.next_state() else {
            return Ok(());
        };
        let (_, _, stored) = self.add_records(&mut next)?;
        let copied = new_page.map(|page| self.copy_leaf(&mut next, page));
        let stored = match copied.transpose()? {
            Some(_) => vec![],
            None => stored,
        };
        let header = self.header(&next, false);
        let mut record = Vec::new();
        header.encode(&mut record);
        if !stored.is_empty() {
            encode_pointers(PageNo(next.leaf), &stored, &mut record);
        }
        let env = self.env.clone();
        let inner = env.inner();
        let before = inner.region.applied_head()?;
        inner.make_visible(before.commit, before.log.lsn)?;
        let lock = CheckpointLock::take(inner)?;
        let before = lock.pin()?.head;
        lock.sync_data()?;
        lock.write_meta_if_newer(&before)?;
        lock.pin_applied(header.commit);
        self.try_state(&next);
        let appending = AppendLock::take(inner)?;
        let log: Position = appending.append(&[IoSlice::new(&record)], Durability::Durable)?;
        let head = header.head(log);
        let appending = (appending, Durability::Durable);
        self.finish(&head, &next, stored, Fate::Lives, appending)?;
        inner.make_visible(header.commit, log.lsn)?;
        self.acknowledge(next.commit);
        // The meta page leads to the pointers, too.
        if self.guards.has(Guard::SyncPointersBeforeMeta) {
            lock.sync_data()?;
        }
        lock.write_meta(&head)
    }
}

fn read_page(file: &dyn File, number: u64) -> Result<Page> {
    let mut page = Page::zeroed();
    file.read_exact_at(page.bytes_mut(), number * PAGE_BYTES as u64)?;
    Ok(page)
}

/// What is there is what the commit has left.
fn compare_with(file: &dyn File, state: &State) -> Verdict {
    if state.leaf == 0 {
        return Ok(());
    }
    let mut page = read_page(file, state.leaf).map_err(told)?;
    let leaf = PointerLeaf::of(&mut page);
    if !leaf.is(PageNo(state.leaf)) {
        return Err(format!("commit {} has no leaf", state.commit));
    }
    if leaf.changed().0 > state.commit {
        let (changed, commit) = (leaf.changed(), state.commit);
        return Err(format!(
            "commit {changed} has stored in the leaf of {commit}"
        ));
    }
    let mut bytes = vec![0; PAGES as usize * PAGE_BYTES];
    let read = file.read_exact_at(&mut bytes, 0);
    read.map_err(|error| error.to_string())?;
    let bytes = Bytes(&bytes);
    for (slot, (&pointer, &value)) in state.pointers.iter().zip(&state.values).enumerate() {
        if leaf.pointer(slot) != Some(pointer) {
            let found = leaf.pointer(slot);
            return Err(format!(
                "slot {slot} of commit {} has {found:?} and not {pointer:?}",
                state.commit
            ));
        }
        if pointer == RecordPointer::NONE {
            continue;
        }
        let record = Record::verify(&bytes, pointer).map_err(told)?;
        let is_it = record.key == (slot as u64).to_be_bytes()
            && record.commit.0 <= state.commit
            && record.value == [value; 9];
        if !is_it {
            return Err(format!("slot {slot} has the record {record:?}"));
        }
    }
    Ok(())
}

/// The bytes of a file.
struct Bytes<'b>(&'b [u8]);

impl ReadPages for Bytes<'_> {
    fn page(&self, number: PageNo) -> Result<&Page> {
        Err(Error::corrupt(number, "is not looked at"))
    }

    fn extent(&self, first: PageNo, _: u32) -> Result<&[u8]> {
        Err(Error::corrupt(first, "is not looked at"))
    }

    fn record(&self, at: RecordPointer, bytes: usize) -> Result<&[u8]> {
        let from = usize::try_from(at.offset()).unwrap();
        let found = self.0.get(from..).and_then(|rest| rest.get(..bytes));
        found.ok_or_else(|| Error::corrupt(at.page(), "lies outside of the store"))
    }
}

/// Lives, and what their crashes leave of them, which lives on, and crashes again.
fn suite(guards: Guards, seeds: u64) -> Verdict {
    let length = |steps, crashes| Length { steps, crashes };
    crash_lives::suite::<Life>(guards, seeds, [length(25, 30), length(5, 6)])
}

/// `SAPWOOD_CRASH_FACTOR` multiplies the number of lives looked at.
#[test]
fn every_crash_state_has_the_pointers_of_its_commit() {
    let factor = std::env::var("SAPWOOD_CRASH_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    suite(Guards::default(), 10 * factor).unwrap();
}

#[test]
fn the_suite_fails_without_any_guard_of_pointers() {
    for guard in [
        Guard::SyncLogToApplied,
        Guard::SyncLogBeforePointers,
        Guard::SyncLogBeforeReplayedPointers,
        Guard::SyncPointersBeforeMeta,
    ] {
        let verdict = suite(Guards::without(guard), 400);
        // Shown with `--nocapture`: it ought to fail for the right reason.
        eprintln!("without {guard:?}: {verdict:?}");
        assert!(verdict.is_err(), "the suite passes without {guard:?}");
    }
}

/// What is behind a checkpoint leads to each commit that follows, also from the archive.
#[test]
fn an_archive_leads_to_the_pointers_of_each_commit() {
    for seed in 0..5 {
        let mut life = <Life as crash_lives::Life>::begin(Guards::default(), seed).unwrap();
        let disk = life.disk.clone();
        let mut options = options(Guards::default());
        options.archive = Some(Arc::new(Archive::new(Arc::new(disk.clone()))));
        life.env = Env::in_memory(&Options::new()).unwrap();
        life.env = Env::on_storage(Arc::new(disk.clone()), &options).unwrap();
        let commits = |life: &mut Life, count| {
            for _ in 0..count {
                life.commit(Meanwhile::Nothing, Fate::Lives).unwrap();
            }
            life.env.sync().unwrap();
        };
        commits(&mut life, 10);
        life.checkpoint().unwrap();
        let file = &life.inner().data.file;
        let mut then = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
        file.read_exact_at(&mut then, 0).unwrap();
        let first = life.state.commit;
        commits(&mut life, 10);
        life.checkpoint().unwrap();
        commits(&mut life, 20);
        life.env.archive().unwrap();
        let mut tried = life.tried.iter();
        assert!(life.state.commit > first + 15, "few commits");
        for commit in first..=life.state.commit {
            let file = Memory::new().open("data", OpenMode::CreateNew).unwrap();
            file.allocate(0, then.len() as u64).unwrap();
            file.write_all_at(&then, 0).unwrap();
            let mut metas = read_metas(&*file, Guards::default()).unwrap();
            for meta in metas.iter_mut().flatten() {
                // As in a backup, which stands alone.
                meta.head.log = Position::START;
            }
            let region = Region::private(1).unwrap().remove(0);
            let mut store = Recovering::new(file.clone(), metas, &region).unwrap();
            let until = Until::Commit(CommitNo(commit));
            let listed = Listed::new(Arc::new(disk.clone()), until).unwrap();
            archive::replay(&mut store, &listed).unwrap();
            let state = tried.find(|state| state.commit == commit).unwrap();
            compare_with(&*file, state).unwrap();
        }
    }
}
