//! Threads for work that is too long for those of sessions: hashing passwords, and making long requests ready.
//!
//! Addresses share the threads by time, and so do the identities that ask from one address: a flood from one address,
//! or in one name, leaves the others their turn. A job is done in steps, between which others have their turn; it can
//! be stopped before each of them. Jobs whose steps may be long leave some threads to those whose steps are short, so
//! that these never wait for more than each other. Memory bounds the queue: each job belongs to a connection, which has
//! few.

mod fair;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sapwood_directory::Identity;

use self::fair::Clocks;
use crate::peer::Origin;

/// How far the threads for long steps stand back where others are for short ones, as `nice(2)` has it: what wakes up
/// waits for the end of the kernel's tick otherwise.
const LONG_NICE: i32 = 10;

/// In whose name work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A connection that is not bound.
    Anonymous,
    /// The administrator.
    Admin,
    /// The entry with this id.
    Entry(u64),
    /// A name that no entry has, of which this is a hash.
    Nobody(u64),
}

impl Owner {
    pub(crate) fn nobody(name: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self::Nobody(hasher.finish())
    }
}

impl From<&Identity> for Owner {
    fn from(identity: &Identity) -> Self {
        match identity {
            Identity::Anonymous => Self::Anonymous,
            Identity::Admin { .. } => Self::Admin,
            Identity::User { entry, .. } => Self::Entry(entry.0),
            Identity::External { dn } | Identity::Replica { dn } => Self::nobody(dn.as_bytes()),
        }
    }
}

/// For whom a job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) origin: Origin,
    pub(crate) owner: Owner,
}

/// What a job is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// One step.
    Step,
    /// Nothing more: the job tells its session so, and breaks.
    Stop,
}

/// How long a step of a job takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Some milliseconds.
    Short,
    /// A multiple of that.
    Long,
}

type Job = Box<dyn FnMut(Turn) -> ControlFlow<()> + Send>;

/// A few threads, and the jobs that wait for them.
#[derive(Debug)]
pub(crate) struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Some of the threads take short jobs only.
    has_short_threads: bool,
}

struct State {
    waiting: Vec<Waiting>,
    running: Vec<Running>,
    origins: Clocks<Origin>,
    owners: Clocks<Owner>,
    number: u64,
    is_closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("waiting", &self.waiting.len())
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}

struct Waiting {
    number: u64,
    claim: Claim,
    length: Length,
    job: Job,
}

#[derive(Debug)]
struct Running {
    number: u64,
    is_stopped: bool,
}

/// A job that waits or runs. It is stopped when this is dropped: at once if it waits, else before its next step.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    number: u64,
}

/// Has a worker free what consists of many small parts, which takes too long for the thread of a session.
#[derive(Debug)]
pub(crate) struct Disposer {
    queue: Arc<Queue>,
    claim: Claim,
    length: Length,
}

impl Disposer {
    /// Hands over what is to be freed. It is freed at once if the workers have been stopped.
    pub(crate) fn dispose(&self, value: impl Send + 'static) {
        let mut value = Some(value);
        let job = move |_| {
            drop(value.take());
            ControlFlow::Break(())
        };
        // Nobody stops it, so that its number is not needed.
        let _ = self.queue.push(self.claim, self.length, Box::new(job));
    }
}

impl Workers {
    /// Starts `threads` that take any job, and `short_threads` more that take short ones only, named after what they
    /// do.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(name: &str, threads: usize, short_threads: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::new(State {
                waiting: Vec::new(),
                running: Vec::new(),
                origins: Clocks::new(),
                owners: Clocks::new(),
                number: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
            has_short_threads: short_threads > 0,
        });
        let mut workers = Self {
            queue,
            threads: Vec::new(),
        };
        for index in 0..threads + short_threads {
            let queue = Arc::clone(&workers.queue);
            let thread = thread::Builder::new().name(format!("{name}-{index}"));
            let takes = match index < threads {
                true => Length::Long,
                false => Length::Short,
            };
            let makes_way = takes == Length::Long && short_threads > 0;
            let work = move || {
                if makes_way {
                    // Where that is forbidden others wait longer.
                    let _ = rustix::process::nice(LONG_NICE);
                }
                queue.run(takes);
            };
            workers.threads.push(thread.spawn(work)?);
        }
        Ok(workers)
    }

    /// Has what a claimant leaves behind freed, in steps of this length.
    pub(crate) fn disposer(&self, claim: Claim, length: Length) -> Disposer {
        Disposer {
            queue: Arc::clone(&self.queue),
            claim,
            length,
        }
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Runs `job` in steps until it breaks. The job tells its session the outcome, also that it was stopped.
    pub(crate) fn submit(
        &self,
        claim: Claim,
        length: Length,
        job: impl FnMut(Turn) -> ControlFlow<()> + Send + 'static,
    ) -> Ticket {
        Ticket {
            number: self.queue.push(claim, length, Box::new(job)),
            queue: Arc::clone(&self.queue),
        }
    }
}

impl State {
    fn enter(&mut self, claim: Claim) {
        self.origins.enter(claim.origin);
        self.owners.enter(claim.owner);
    }

    fn leave(&mut self, claim: Claim) {
        self.origins.leave(claim.origin);
        self.owners.leave(claim.owner);
    }

    /// Takes the job whose turn it is, of those that a thread takes.
    fn take_next(&mut self, takes: Length) -> Option<Waiting> {
        let turn = |waiting: &Waiting| {
            (
                self.origins.micros(waiting.claim.origin),
                self.owners.micros(waiting.claim.owner),
                waiting.number,
            )
        };
        let (at, _) = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, waiting)| takes == Length::Long || waiting.length == Length::Short)
            .min_by_key(|(_, waiting)| turn(waiting))?;
        let next = self.waiting.swap_remove(at);
        self.running.push(Running {
            number: next.number,
            is_stopped: false,
        });
        Some(next)
    }

    /// A step has taken so long; whether its job has been stopped meanwhile.
    fn stepped(&mut self, number: u64, claim: Claim, time: Duration) -> bool {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.origins.charge(claim.origin, micros);
        self.owners.charge(claim.owner, micros);
        let at = self.running.iter().position(|job| job.number == number);
        let running = at.map(|at| self.running.swap_remove(at));
        running.is_some_and(|running| running.is_stopped) || self.is_closed
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a job wait for its turn; its number. Once the workers have been stopped it is stopped at once.
    fn push(&self, claim: Claim, length: Length, mut job: Job) -> u64 {
        let mut state = self.lock();
        state.number += 1;
        let number = state.number;
        if state.is_closed {
            drop(state);
            let _ = job(Turn::Stop);
            return number;
        }
        state.enter(claim);
        state.waiting.push(Waiting {
            number,
            claim,
            length,
            job,
        });
        drop(state);
        match length {
            // The one that is woken may take no long ones.
            Length::Long if self.has_short_threads => self.changed.notify_all(),
            _ => self.changed.notify_one(),
        }
        number
    }

    /// What a thread does that takes jobs up to this length.
    fn run(&self, takes: Length) {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return;
            }
            let Some(next) = state.take_next(takes) else {
                let changed = self.changed.wait(state);
                state = changed.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let Waiting {
                number,
                claim,
                length,
                mut job,
            } = next;
            let began = Instant::now();
            // A thread outlives what a job may do wrong.
            let step = catch_unwind(AssertUnwindSafe(|| job(Turn::Step)));
            let time = began.elapsed();
            state = self.lock();
            let is_stopped = state.stepped(number, claim, time);
            match step {
                Ok(ControlFlow::Break(())) => state.leave(claim),
                Ok(ControlFlow::Continue(())) if !is_stopped => {
                    state.waiting.push(Waiting {
                        number,
                        claim,
                        length,
                        job,
                    });
                }
                _ => {
                    state.leave(claim);
                    drop(state);
                    let _ = job(Turn::Stop);
                    state = self.lock();
                }
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let mut waiting = state.waiting.iter();
        if let Some(at) = waiting.position(|job| job.number == self.number) {
            let mut stopped = state.waiting.swap_remove(at);
            state.leave(stopped.claim);
            drop(state);
            let _ = (stopped.job)(Turn::Stop);
            return;
        }
        let mut running = state.running.iter_mut();
        if let Some(job) = running.find(|job| job.number == self.number) {
            job.is_stopped = true;
        }
    }
}

impl Drop for Workers {
    /// Stops the jobs that wait, and those that run after the step that they are at.
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.queue.lock();
            state.is_closed = true;
            std::mem::take(&mut state.waiting)
        };
        self.queue.changed.notify_all();
        for mut job in waiting {
            let _ = (job.job)(Turn::Stop);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::{self, Sender};

    use super::*;

    pub(crate) fn claim(address: u8, owner: u64) -> Claim {
        Claim {
            origin: Origin::of_address([192, 0, 2, address].into()),
            owner: Owner::Entry(owner),
        }
    }

    /// Has a thread stand still until it is told to go on.
    pub(crate) fn hold(workers: &Workers) -> (Sender<()>, Ticket) {
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let ticket = workers.submit(claim(0, 0), Length::Long, move |_| {
            started.send(()).unwrap();
            let _ = gate.recv();
            ControlFlow::Break(())
        });
        running.recv().unwrap();
        (release, ticket)
    }

    /// One thread that waits until it is told to go on.
    fn held() -> (Workers, Sender<()>, Ticket) {
        let workers = Workers::start("test", 1, 0).unwrap();
        let (release, ticket) = hold(&workers);
        (workers, release, ticket)
    }

    /// A job of some steps, each of which tells its name.
    fn telling(
        workers: &Workers,
        claim: Claim,
        steps: usize,
        told: &Sender<(Claim, Turn)>,
    ) -> Ticket {
        let (told, mut left) = (told.clone(), steps);
        workers.submit(claim, Length::Long, move |turn| {
            // What is charged is the time that the steps take.
            if turn == Turn::Step {
                thread::sleep(Duration::from_millis(2));
            }
            let _ = told.send((claim, turn));
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })
    }

    #[test]
    fn a_flood_leaves_others_their_turn() {
        let (workers, release, _held) = held();
        let (tell, told) = mpsc::channel();
        let mut tickets = Vec::new();
        // From one address, against many.
        for owner in 1..=400 {
            tickets.push(telling(&workers, claim(1, owner), 1, &tell));
        }
        // From as many addresses, against one.
        for address in 10..=250 {
            tickets.push(telling(&workers, claim(address, 7), 1, &tell));
        }
        // From one address, against one; in many steps.
        for _ in 0..100 {
            tickets.push(telling(&workers, claim(2, 8), 4, &tell));
        }
        let (another, same_address) = (claim(3, 9), claim(2, 10));
        tickets.push(telling(&workers, another, 1, &tell));
        tickets.push(telling(&workers, same_address, 1, &tell));
        release.send(()).unwrap();
        let mut before = Vec::new();
        while !(before.contains(&another) && before.contains(&same_address)) {
            before.push(told.recv().unwrap().0);
        }
        let place = |claim| before.iter().position(|served| *served == claim).unwrap();
        // Of each address one step comes before, and of each name from the same address.
        let (first, second) = (&before[..place(another)], &before[..place(same_address)]);
        for (address, owner) in [(1, 1), (10, 7), (2, 8)] {
            let claim = claim(address, owner);
            let steps = first.iter().filter(|served| served.origin == claim.origin);
            assert!(steps.count() <= 1, "{first:?}");
            let steps = second.iter().filter(|served| **served == claim);
            assert!(steps.count() <= 1, "{second:?}");
        }
    }

    #[test]
    fn what_is_not_wanted_any_more_is_stopped() {
        let (workers, release, _held) = held();
        let (tell, told) = mpsc::channel();
        let waiting = telling(&workers, claim(1, 1), 5, &tell);
        drop(waiting);
        assert_eq!(told.recv().unwrap(), (claim(1, 1), Turn::Stop));
        // One that runs is stopped between its steps.
        let (stepped, steps) = mpsc::channel();
        let (go_on, gate) = mpsc::channel::<()>();
        let running = workers.submit(claim(2, 2), Length::Long, move |turn| {
            stepped.send(turn).unwrap();
            let _ = gate.recv();
            ControlFlow::Continue(())
        });
        release.send(()).unwrap();
        assert_eq!(steps.recv().unwrap(), Turn::Step);
        drop(running);
        drop(go_on);
        assert_eq!(steps.recv().unwrap(), Turn::Stop);
        assert!(steps.recv().is_err(), "the job is gone");
    }

    #[test]
    fn a_thread_outlives_a_job_that_panics() {
        let workers = Workers::start("test", 1, 0).unwrap();
        let (tell, told) = mpsc::channel();
        let own = tell.clone();
        let panics = workers.submit(claim(1, 1), Length::Long, move |turn| {
            assert_eq!(turn, Turn::Stop, "a panic that is meant");
            own.send((claim(1, 1), turn)).unwrap();
            ControlFlow::Break(())
        });
        assert_eq!(told.recv().unwrap(), (claim(1, 1), Turn::Stop));
        let next = telling(&workers, claim(2, 2), 1, &tell);
        assert_eq!(told.recv().unwrap(), (claim(2, 2), Turn::Step));
        drop((panics, next));
    }

    #[test]
    fn a_stop_stops_what_waits() {
        let (workers, release, _held) = held();
        let (tell, told) = mpsc::channel();
        let tickets: Vec<_> = (0..300)
            .map(|owner| telling(&workers, claim(1, owner), 100, &tell))
            .collect();
        release.send(()).unwrap();
        drop(workers);
        drop(tell);
        let stopped = told.iter().filter(|(_, turn)| *turn == Turn::Stop).count();
        assert_eq!(stopped, 300);
        drop(tickets);
    }

    #[test]
    fn short_jobs_do_not_wait_for_long_ones() {
        let workers = Workers::start("test", 1, 1).unwrap();
        let (release, _held) = hold(&workers);
        let (tell, told) = mpsc::channel();
        let long = telling(&workers, claim(1, 1), 1, &tell);
        let own = tell.clone();
        // Both threads would be woken for it, and one of them may do it.
        let short = workers.submit(claim(2, 2), Length::Short, move |turn| {
            let _ = own.send((claim(2, 2), turn));
            ControlFlow::Break(())
        });
        assert_eq!(told.recv().unwrap(), (claim(2, 2), Turn::Step));
        release.send(()).unwrap();
        assert_eq!(told.recv().unwrap(), (claim(1, 1), Turn::Step));
        drop((long, short));
    }

    #[test]
    fn what_is_disposed_of_is_freed_by_a_worker() {
        struct Freed(Sender<thread::ThreadId>);
        impl Drop for Freed {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().id());
            }
        }
        let (workers, release, _held) = held();
        let (tell, told) = mpsc::channel();
        let disposer = workers.disposer(claim(1, 1), Length::Long);
        disposer.dispose(Freed(tell.clone()));
        release.send(()).unwrap();
        assert_ne!(told.recv().unwrap(), thread::current().id());
        // When there are no workers any more, at once.
        drop(workers);
        disposer.dispose(Freed(tell));
        assert_eq!(told.recv().unwrap(), thread::current().id());
    }

    #[test]
    fn an_ipv6_network_is_one_origin() {
        let origin = |text: &str| Origin::of_address(text.parse().unwrap());
        assert_eq!(origin("2001:db8:1:2::1"), origin("2001:db8:1:2:3::4"));
        assert_ne!(origin("2001:db8:1:2::1"), origin("2001:db8:1:3::1"));
        assert_eq!(origin("::ffff:192.0.2.1"), origin("192.0.2.1"));
        assert_ne!(origin("192.0.2.1"), origin("192.0.2.2"));
    }
}
