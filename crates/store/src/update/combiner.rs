//! How the works of several threads come into one transaction, and their threads to their results.
//!
//! A thread that has work adds it to the *gathering* group. If nobody runs works at the moment, it does so itself, as the *leader*: it runs
//! one work after the other, of whatever threads, until there is none left. If the disk has nothing to do then, it *seals* the group: commits the
//! transaction, which lets go of the writer lock, and waits for the disk, while somebody else may lead the next group. While
//! the disk is busy, it does what can be done ahead of the commit, leaves the transaction open, and sleeps like every other member: the next to have work goes on with it.
//!
//! Threads that update again and again come back as soon as they are woken. So a leader does not seal at once when the disk is done with the group before: as
//! long as those who have just been woken keep coming back, one shortly after the other, it waits for the rest of them. Eight threads in one group
//! make a quarter more updates a second than two groups in turns, whose threads keep each other from the processors when the disk has answered. If
//! most do not come, the next groups are sealed without waiting.
//!
//! Whoever was waiting for the disk wakes the members of its group, and one of those who have come meanwhile, if there are any, to lead.
//!
//! The members of a group are those that wake together. Mostly they share one commit, too; but a transaction that has become large, or that
//! another writer waits for, is committed at once, and the rest of the group gets another one. So each commit that fails says which members it concerns.
//!
//! Nothing here knows of the store, so that a model checker can run it ([`Store`]).

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use sapwood_wal::sync::{thread_local, wait_while, wake_all, wake_one, yield_now};

use super::job::{Job, Work, lend};
use crate::sync::{Arc, AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// What groups are made in.
pub(super) trait Store {
    /// A transaction.
    type Txn: Send + 'static;
    /// The claim to a commit.
    type Ticket;
    /// Why one of these failed.
    type Error;

    fn begin(&self) -> Result<Self::Txn, Self::Error>;

    /// Runs a work in a transaction, alone so far or after others.
    fn run(&self, txn: &mut Self::Txn, is_first: bool, job: Job<Self::Txn>) -> Ran;

    /// Whether the transaction should take no more works.
    fn is_enough(&self, txn: &Self::Txn) -> bool;

    /// Whether somebody else waits for its transaction to end.
    fn is_wanted(&self) -> bool;

    /// Does ahead of the commit what can be done, since there is time for it.
    fn prepare(&self, txn: &mut Self::Txn) -> Result<(), Self::Error>;

    /// Ends the transaction, which lets the next one begin.
    fn commit(&self, txn: Self::Txn) -> Result<Self::Ticket, Self::Error>;

    /// Waits until the commit and all before it may be told of.
    fn wait(&self, ticket: &Self::Ticket) -> Result<(), Self::Error>;

    /// The error of those whose transaction is lost.
    fn lost() -> Self::Error;
}

/// What became of a work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ran {
    /// It is part of the transaction.
    Kept,
    /// It failed and left no trace.
    Undone,
    /// It left half of something, which was undone. Its thread thinks that all went well.
    Refused,
    /// It failed as the first one, and the transaction is of no more use.
    Spoilt,
    /// As [`Ran::Refused`] and [`Ran::Spoilt`].
    RefusedAndSpoilt,
}

/// Why a work that was run, or could not be, did not come to be.
pub(super) enum Failure<E> {
    /// It is its own failure.
    Own(E),
    /// It is that of several works.
    Shared(Arc<E>),
    /// The work waits for one that waits for it.
    Nested,
}

/// How long a leader waits for the next one of those who are to come back, at most: half of what the disk took, or this if it took long.
const RETURN_PATIENCE_MAX: Duration = Duration::from_micros(50);

/// When so many more works have been run, a leader that waits for others prepares the commit; fewer are better prepared together with the rest.
const PREPARED_TOGETHER: usize = 8;

/// So many groups are sealed without waiting, after one for which it was in vain.
const IMPATIENT_GROUPS: u32 = 16;

/// Whoever sleeps is woken; that it looks by itself after so long is of no consequence.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The works of all threads that are to be done in one store, and who does them.
pub(crate) struct Combiner<T: 'static, K, E> {
    state: Mutex<State<T, K, E>>,
    /// Counts works that were added.
    added: AtomicU32,
    /// How many others of this process wait for a transaction to end.
    others: AtomicU32,
}

struct State<T: 'static, K, E> {
    /// The first is the one whose works are run, the last is gathering: at least one.
    groups: VecDeque<Pending<T, E>>,
    /// Of the first group, while nobody runs works.
    progress: Progress<T, K, E>,
    /// Somebody runs works, or ends a transaction.
    is_led: bool,
    /// Somebody waits for the disk.
    is_syncing: bool,
    /// How many members the group had that the disk has done with.
    woken: usize,
    /// How many of them may still come back.
    awaited: usize,
    /// How long to wait for the next one of them.
    patience: Duration,
    /// How many groups are to be sealed without waiting for anybody.
    impatient: u32,
}

/// A group that is not sealed.
struct Pending<T: 'static, E> {
    group: Arc<Group<E>>,
    jobs: Vec<Job<T>>,
    members: usize,
}

/// What has become of the works of a group that were run.
struct Progress<T, K, E> {
    txn: Option<T>,
    /// The first of the works that are in the transaction.
    since: usize,
    ran: usize,
    /// How many had been run when the transaction was prepared for its commit.
    prepared: usize,
    /// Of the newest commit.
    ticket: Option<K>,
    failures: Vec<Failed<E>>,
}

/// An error, and the members that it concerns.
struct Failed<E> {
    members: Range<usize>,
    error: Arc<E>,
}

/// What the members of a group sleep on, and learn.
struct Group<E> {
    /// Counts; it is what they sleep on.
    rings: AtomicU32,
    sleepers: AtomicU32,
    is_done: AtomicBool,
    failures: Mutex<Vec<Failed<E>>>,
}

/// What has panicked in the store: it goes on to do so when nobody waits for its thread any more.
type Caught = Option<Box<dyn Any + Send>>;

thread_local! {
    /// The combiners whose works this thread is running.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl<T: Send + 'static, K, E> Combiner<T, K, E> {
    pub(crate) fn new() -> Self {
        let state = State {
            groups: VecDeque::from([Pending::new()]),
            progress: Progress::default(),
            is_led: false,
            is_syncing: false,
            woken: 0,
            awaited: 0,
            patience: Duration::ZERO,
            impatient: 0,
        };
        Self {
            state: Mutex::new(state),
            added: AtomicU32::new(0),
            others: AtomicU32::new(0),
        }
    }

    /// Has `work` done and committed, and returns when that may be told of.
    pub(super) fn update<S>(&self, store: &S, work: &mut Work<'_, T>) -> Result<(), Failure<E>>
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        if self.is_run_by_this_thread() {
            return Err(Failure::Nested);
        }
        let (group, at, caught) = lend(work, |job| {
            let mut state = lock(&self.state);
            let (group, at) = state.add(job);
            self.added.fetch_add(1, Ordering::SeqCst);
            let caught = self.see_to_end(store, state, &group);
            (group, at, caught)
        });
        if let Some(panic) = caught {
            panic::resume_unwind(panic);
        }
        match group.failure_of(at) {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    /// Whether this thread is in the middle of one of the works.
    pub(crate) fn is_run_by_this_thread(&self) -> bool {
        RUNNING.with(|running| running.borrow().contains(&self.address()))
    }

    /// Takes the place of a transaction, as soon as `take` gets it: one that is open between two works is ended first, and no other is left
    /// so meanwhile. `is_taken` says whether there is a transaction at all.
    pub(super) fn give_way<S, R>(
        &self,
        store: &S,
        is_taken: impl FnOnce() -> bool,
        take: impl FnOnce() -> R,
    ) -> R
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        self.others.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.others);
        if is_taken() {
            self.end_open(store);
        }
        take()
    }

    /// Ends a transaction that is open between two works.
    fn end_open<S>(&self, store: &S)
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        let mut state = lock(&self.state);
        if !state.is_led && state.progress.txn.is_some() {
            let mut progress = mem::take(&mut state.progress);
            state.is_led = true;
            drop(state);
            let mut caught = None;
            progress.end(store, &mut caught);
            state = lock(&self.state);
            state.progress = progress;
            state.is_led = false;
            call_leader(state);
            if let Some(panic) = caught {
                panic::resume_unwind(panic);
            }
        }
    }

    /// Leads whenever that is needed, and sleeps otherwise, until the group is done. What panicked in the store meanwhile is given.
    fn see_to_end<'s, S>(
        &'s self,
        store: &S,
        mut state: MutexGuard<'s, State<T, K, E>>,
        group: &Group<E>,
    ) -> Caught
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        let mut caught = None;
        loop {
            if state.needs_leader() {
                state = self.lead(store, state, &mut caught);
            }
            // Whoever changes what was just looked at rings afterwards.
            let rings = group.rings.load(Ordering::SeqCst);
            drop(state);
            if !group.is_done() {
                group.sleep(rings);
            }
            if group.is_done() {
                return caught;
            }
            state = lock(&self.state);
        }
    }

    /// Runs works until there are none, and then seals the group if the disk has nothing to do.
    fn lead<'s, S>(
        &'s self,
        store: &S,
        mut state: MutexGuard<'s, State<T, K, E>>,
        caught: &mut Caught,
    ) -> MutexGuard<'s, State<T, K, E>>
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        state.is_led = true;
        let mut progress = mem::take(&mut state.progress);
        loop {
            let jobs = state.next_jobs();
            if !jobs.is_empty() {
                drop(state);
                self.run(store, &mut progress, jobs, caught);
                state = lock(&self.state);
                continue;
            }
            if state.is_syncing || state.awaited > 0 {
                if progress.txn.is_some() && self.is_wanted(store) {
                    drop(state);
                    progress.end(store, caught);
                    state = lock(&self.state);
                } else if progress.is_to_be_prepared(state.is_syncing) {
                    drop(state);
                    progress.prepare(store, caught);
                    state = lock(&self.state);
                } else if !state.is_syncing {
                    state = self.await_next(state);
                } else {
                    state.progress = progress;
                    state.is_led = false;
                    return state;
                }
                continue;
            }
            let Some(sealed) = state.seal() else {
                state.is_led = false;
                return state;
            };
            drop(state);
            progress.end(store, caught);
            state = lock(&self.state);
            state.is_led = false;
            // Works that came while the group was sealed.
            call_leader(state);
            let started = Instant::now();
            progress.wait(store, sealed.members, caught);
            let waited = started.elapsed();
            sealed.group.finish(mem::take(&mut progress.failures));
            state = lock(&self.state);
            state.synced(sealed.members, waited);
            // The next leader comes first: the disk has nothing to do meanwhile. Nobody is woken with the lock held, which is what all who wake take next: those who
            // found it taken would sleep a second time.
            call_leader(state);
            sealed.group.wake_all();
            return lock(&self.state);
        }
    }

    /// Waits until another work has been added, or for as long as it is worth to wait for one.
    fn await_next<'s>(
        &'s self,
        state: MutexGuard<'s, State<T, K, E>>,
    ) -> MutexGuard<'s, State<T, K, E>> {
        let (added, patience) = (self.added.load(Ordering::SeqCst), state.patience);
        drop(state);
        let started = Instant::now();
        while self.added.load(Ordering::SeqCst) == added {
            if started.elapsed() >= patience || self.others.load(Ordering::SeqCst) > 0 {
                let mut state = lock(&self.state);
                state.await_no_more();
                return state;
            }
            yield_now();
        }
        lock(&self.state)
    }

    /// Runs works one after the other.
    fn run<S>(
        &self,
        store: &S,
        progress: &mut Progress<T, K, E>,
        jobs: Vec<Job<T>>,
        caught: &mut Caught,
    ) where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        for job in jobs {
            progress.run(store, job, self.address(), caught);
            let is_over = |txn| store.is_enough(txn) || self.is_wanted(store);
            if progress.txn.as_ref().is_some_and(is_over) {
                progress.end(store, caught);
            }
        }
    }

    fn is_wanted<S>(&self, store: &S) -> bool
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        self.others.load(Ordering::SeqCst) > 0 || store.is_wanted()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T: Send + 'static, K, E> State<T, K, E> {
    /// Adds a work to the gathering group; gives that, and the work's number in it.
    fn add(&mut self, job: Job<T>) -> (Arc<Group<E>>, usize) {
        let pending = self.gathering();
        pending.jobs.push(job);
        pending.members += 1;
        let added = (pending.group.clone(), pending.members - 1);
        if !self.is_syncing && self.awaited > 0 {
            self.awaited -= 1;
            if self.awaited == 0 {
                self.close_gathering();
            }
        }
        added
    }

    /// The disk has done with a group of so many members, in so much time.
    fn synced(&mut self, members: usize, time: Duration) {
        self.is_syncing = false;
        self.patience = (time / 2).min(RETURN_PATIENCE_MAX);
        self.woken = members;
        self.awaited = match self.impatient {
            0 => members,
            _ => 0,
        };
        self.impatient = self.impatient.saturating_sub(1);
        if self.awaited == 0 {
            self.close_gathering();
        }
    }

    /// Works that come from now on are not of the group that is being run, if one is.
    fn close_gathering(&mut self) {
        if self.is_led && self.gathering().members > 0 {
            self.groups.push_back(Pending::new());
        }
    }

    fn gathering(&mut self) -> &mut Pending<T, E> {
        if self.groups.is_empty() {
            self.groups.push_back(Pending::new());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// The works of the first group that were not run yet.
    fn next_jobs(&mut self) -> Vec<Job<T>> {
        let first = self.groups.front_mut();
        first.map_or_else(Vec::new, |first| mem::take(&mut first.jobs))
    }

    /// Whether there is something to be done that nobody does.
    fn needs_leader(&self) -> bool {
        let is_ready = |first: &Pending<T, E>| {
            !first.jobs.is_empty() || (first.members > 0 && !self.is_syncing)
        };
        !self.is_led && self.groups.front().is_some_and(is_ready)
    }

    /// The group of which a member is to lead, if nobody does and it is needed.
    fn leaderless(&self) -> Option<Arc<Group<E>>> {
        let first = self.groups.front().filter(|_| self.needs_leader());
        first.map(|first| first.group.clone())
    }

    /// Those who have not come back yet are not waited for; nor is anybody for a while, if they are most.
    fn await_no_more(&mut self) {
        if self.awaited > self.woken / 2 {
            self.impatient = IMPATIENT_GROUPS;
        }
        self.awaited = 0;
    }

    /// Takes the first group away to be committed, if it has any members; from now on the disk is busy.
    fn seal(&mut self) -> Option<Pending<T, E>> {
        let sealed = self.groups.pop_front()?;
        if sealed.members == 0 {
            self.groups.push_front(sealed);
            return None;
        }
        self.is_syncing = true;
        Some(sealed)
    }
}

impl<T, E> Pending<T, E> {
    fn new() -> Self {
        Self {
            group: Arc::new(Group {
                rings: AtomicU32::new(0),
                sleepers: AtomicU32::new(0),
                is_done: AtomicBool::new(false),
                failures: Mutex::new(Vec::new()),
            }),
            jobs: Vec::new(),
            members: 0,
        }
    }
}

impl<T, K, E> Default for Progress<T, K, E> {
    fn default() -> Self {
        Self {
            txn: None,
            since: 0,
            ran: 0,
            prepared: 0,
            ticket: None,
            failures: Vec::new(),
        }
    }
}

impl<T: Send + 'static, K, E> Progress<T, K, E> {
    /// Runs the next work, in a transaction that is begun if there is none; `combiner` is whose it is.
    fn run<S>(&mut self, store: &S, job: Job<T>, combiner: usize, caught: &mut Caught)
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        let at = self.ran;
        self.ran += 1;
        let is_first = self.txn.is_none();
        let mut txn = match self.txn.take() {
            Some(txn) => txn,
            None => {
                self.since = at;
                match guarded::<S, _>(caught, || store.begin()) {
                    Ok(txn) => txn,
                    Err(error) => return self.fail(at..self.ran, error),
                }
            }
        };
        RUNNING.with(|running| running.borrow_mut().push(combiner));
        let ran = guarded::<S, _>(caught, || Ok(store.run(&mut txn, is_first, job)));
        RUNNING.with(|running| running.borrow_mut().pop());
        match ran {
            Ok(Ran::Kept | Ran::Undone) => self.txn = Some(txn),
            Ok(Ran::Refused) => {
                self.fail(at..self.ran, S::lost());
                self.txn = Some(txn);
            }
            // With others in it, these have lost their changes too.
            Ok(Ran::Spoilt) if is_first => {}
            Ok(Ran::Spoilt) => self.fail(self.since..at, S::lost()),
            Ok(Ran::RefusedAndSpoilt) => self.fail(self.since..self.ran, S::lost()),
            Err(error) => self.fail(self.since..self.ran, error),
        }
    }

    fn is_to_be_prepared(&self, is_syncing: bool) -> bool {
        let least = if is_syncing { 1 } else { PREPARED_TOGETHER };
        self.txn.is_some() && self.ran - self.prepared >= least
    }

    /// Has less to do when the transaction is committed.
    fn prepare<S>(&mut self, store: &S, caught: &mut Caught)
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        self.prepared = self.ran;
        let Some(mut txn) = self.txn.take() else {
            return;
        };
        match guarded::<S, _>(caught, || store.prepare(&mut txn)) {
            Ok(()) => self.txn = Some(txn),
            Err(error) => self.fail(self.since..self.ran, error),
        }
    }

    /// Commits the transaction, if there is one.
    fn end<S>(&mut self, store: &S, caught: &mut Caught)
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        let Some(txn) = self.txn.take() else {
            return;
        };
        match guarded::<S, _>(caught, || store.commit(txn)) {
            Ok(ticket) => self.ticket = Some(ticket),
            Err(error) => self.fail(self.since..self.ran, error),
        }
    }

    /// Waits for the commits of the group.
    fn wait<S>(&mut self, store: &S, members: usize, caught: &mut Caught)
    where
        S: Store<Txn = T, Ticket = K, Error = E>,
    {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        if let Err(error) = guarded::<S, _>(caught, || store.wait(&ticket)) {
            self.failures.clear();
            self.fail(0..members, error);
        }
    }

    fn fail(&mut self, members: Range<usize>, error: E) {
        let error = Arc::new(error);
        self.failures.push(Failed { members, error });
    }
}

impl<E> Group<E> {
    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::SeqCst)
    }

    /// Says what has become of it, and wakes nobody yet.
    fn finish(&self, failures: Vec<Failed<E>>) {
        if !failures.is_empty() {
            *lock(&self.failures) = failures;
        }
        self.is_done.store(true, Ordering::SeqCst);
    }

    /// Why the work of this number did not come to be.
    fn failure_of(&self, at: usize) -> Option<Failure<E>> {
        let mut failures = lock(&self.failures);
        let found = failures
            .iter()
            .position(|failed| failed.members.contains(&at))?;
        if failures[found].members.len() > 1 {
            return Some(Failure::Shared(failures[found].error.clone()));
        }
        let error = failures.swap_remove(found).error;
        Some(Arc::try_unwrap(error).map_or_else(Failure::Shared, Failure::Own))
    }

    /// Sleeps, unless somebody has rung since `rings`.
    fn sleep(&self, rings: u32) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        wait_while(&self.rings, rings, PATIENCE);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether anybody sleeps who does not know that it was rung.
    fn ring(&self) -> bool {
        self.rings.fetch_add(1, Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    fn wake_one(&self) {
        if self.ring() {
            wake_one(&self.rings);
        }
    }

    fn wake_all(&self) {
        if self.ring() {
            wake_all(&self.rings);
        }
    }
}

/// Wakes somebody to lead, if that is needed.
fn call_leader<T: Send + 'static, K, E>(state: MutexGuard<'_, State<T, K, E>>) {
    let leaderless = state.leaderless();
    drop(state);
    if let Some(group) = leaderless {
        group.wake_one();
    }
}

/// One of those that wait for a transaction to end, and no more once this is dropped.
struct Waiting<'c>(&'c AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Catches a panic in the store, so that nobody is left waiting for its thread.
fn guarded<S: Store, R>(
    caught: &mut Caught,
    what: impl FnOnce() -> Result<R, S::Error>,
) -> Result<R, S::Error> {
    panic::catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|panic| {
        *caught = Some(panic);
        Err(S::lost())
    })
}
