//! Where passwords are hashed and verified: a few threads, because each Argon2 hash takes 19 MiB and 20 ms.
//!
//! A connection has one job here at most, which bounds the queue. Addresses share the threads by time, and so do the
//! identities that are tried from one address: a flood from one address, or against one name, leaves the others their
//! turn. A job is done in steps, one stored password each, between which others have their turn; it can be stopped
//! before each of them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::fair::Clocks;
use super::{Work, hash, hash_work};
use crate::accounts::Origin;

/// The new part of the moving average of what a hash takes: one in so many.
const AVERAGED_HASHES: u32 = 8;

/// Whose password it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// The administrator's.
    Admin,
    /// That of the entry with this id.
    Entry(u64),
    /// Nobody has the name, of which this is a hash.
    Nobody(u64),
}

impl Owner {
    pub(crate) fn nobody(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self::Nobody(hasher.finish())
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

type Job = Box<dyn FnMut(Turn) -> ControlFlow<()> + Send>;

/// The threads that hash.
#[derive(Debug)]
pub(crate) struct HasherPool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: Vec<Waiting>,
    running: Vec<Running>,
    origins: Clocks<Origin>,
    owners: Clocks<Owner>,
    /// Binds that have failed and are not answered yet.
    delayed: HashMap<Claim, u64>,
    /// What a hash of a new password takes, as measured.
    hash_time: Duration,
    threads: u32,
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
    work: Work,
    job: Job,
}

#[derive(Debug)]
struct Running {
    number: u64,
    claim: Claim,
    work: Work,
    is_stopped: bool,
}

/// A job in the pool. It is stopped when this is dropped: at once if it waits, else before its next step.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    number: u64,
}

/// A failed bind that is not answered yet: its answer takes the time of a hash in the queue, without its work.
#[derive(Debug)]
pub(crate) struct Delayed {
    queue: Arc<Queue>,
    claim: Claim,
}

impl HasherPool {
    /// Measures one hash, and starts `threads` hashers. Each takes up to 19 MiB while it works, and up to
    /// [`VALUE_MEMORY_KIB_MAX`](super::VALUE_MEMORY_KIB_MAX) for a stored hash that asks for it.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(threads: usize) -> std::io::Result<Self> {
        let began = Instant::now();
        let _ = hash(b"");
        let queue = Arc::new(Queue {
            state: Mutex::new(State {
                waiting: Vec::new(),
                running: Vec::new(),
                origins: Clocks::new(),
                owners: Clocks::new(),
                delayed: HashMap::new(),
                hash_time: began.elapsed(),
                threads: u32::try_from(threads.max(1)).unwrap_or(u32::MAX),
                number: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
        });
        let mut pool = Self {
            queue,
            threads: Vec::new(),
        };
        for index in 0..threads.max(1) {
            let queue = Arc::clone(&pool.queue);
            let thread = thread::Builder::new().name(format!("hasher-{index}"));
            pool.threads.push(thread.spawn(move || queue.run())?);
        }
        Ok(pool)
    }

    /// Runs `job`, which takes about this work, in steps until it breaks. The job tells its session the outcome, also that
    /// it was stopped.
    pub(crate) fn submit(
        &self,
        claim: Claim,
        work: Work,
        mut job: impl FnMut(Turn) -> ControlFlow<()> + Send + 'static,
    ) -> Ticket {
        let mut state = self.queue.lock();
        state.number += 1;
        let number = state.number;
        if state.is_closed {
            drop(state);
            let _ = job(Turn::Stop);
        } else {
            state.enter(claim);
            state.waiting.push(Waiting {
                number,
                claim,
                work,
                job: Box::new(job),
            });
            drop(state);
            self.queue.changed.notify_one();
        }
        Ticket {
            queue: Arc::clone(&self.queue),
            number,
        }
    }

    /// How long after it came a bind may be answered at the earliest if it fails: twice what the hash of a new password
    /// that came now would take, waiting for its turn included.
    pub(crate) fn failure_delay(&self, claim: Claim) -> Duration {
        self.queue.lock().failure_delay(claim)
    }

    /// What a hash of a new password takes, as measured.
    #[cfg(test)]
    pub(crate) fn hash_time(&self) -> Duration {
        self.queue.lock().hash_time
    }

    /// Counts a failed bind as one that still waits for its hash, until it is answered.
    pub(crate) fn delay(&self, claim: Claim) -> Delayed {
        *self.queue.lock().delayed.entry(claim).or_default() += 1;
        Delayed {
            queue: Arc::clone(&self.queue),
            claim,
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

    /// Takes the job whose turn it is.
    fn take_next(&mut self) -> Option<Waiting> {
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
            .min_by_key(|(_, waiting)| turn(waiting))?;
        let next = self.waiting.swap_remove(at);
        self.running.push(Running {
            number: next.number,
            claim: next.claim,
            work: next.work,
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

    /// The same for a name that somebody has as for one that nobody has: it does not tell.
    fn failure_delay(&self, claim: Claim) -> Duration {
        let own = hash_work().micros();
        let waiting = self
            .waiting
            .iter()
            .map(|job| (job.claim, job.work.micros()));
        // The session of a job that is stopped may have its outcome already.
        let running = self.running.iter().filter(|job| !job.is_stopped);
        let running = running.map(|job| (job.claim, job.work.micros()));
        let delayed = self
            .delayed
            .iter()
            .map(|(claim, binds)| (*claim, binds * own));
        let mut ahead: HashMap<Claim, u64> = HashMap::new();
        for (claim, work) in waiting.chain(running).chain(delayed) {
            *ahead.entry(claim).or_default() += work;
        }
        // All that is there for the same name comes before it, as much for each other name from the same address, and
        // as much as all that from each other address.
        let mut until = ahead.remove(&claim).unwrap_or_default() + own;
        let mut others: HashMap<Origin, u64> = HashMap::new();
        for (other, work) in ahead {
            *others.entry(other.origin).or_default() += match other.origin == claim.origin {
                true => work.min(until),
                false => work,
            };
        }
        until += others.remove(&claim.origin).unwrap_or_default();
        let elsewhere: u64 = others.into_values().map(|work| work.min(until)).sum();
        let work = (until + elsewhere) as f64 / own as f64;
        2 * self.hash_time.mul_f64(work) / self.threads
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a hasher does.
    fn run(&self) {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return;
            }
            let Some(next) = state.take_next() else {
                let changed = self.changed.wait(state);
                state = changed.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let Waiting {
                number,
                claim,
                work,
                mut job,
            } = next;
            let began = Instant::now();
            // A hasher outlives what a job may do wrong.
            let step = catch_unwind(AssertUnwindSafe(|| job(Turn::Step)));
            let time = began.elapsed();
            state = self.lock();
            let is_stopped = state.stepped(number, claim, time);
            match step {
                Ok(ControlFlow::Break(())) => {
                    if work == hash_work() {
                        let others = state.hash_time * (AVERAGED_HASHES - 1);
                        state.hash_time = (others + time) / AVERAGED_HASHES;
                    }
                    state.leave(claim);
                }
                Ok(ControlFlow::Continue(())) if !is_stopped => state.waiting.push(Waiting {
                    number,
                    claim,
                    work,
                    job,
                }),
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

impl Drop for Delayed {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        if let Some(count) = state.delayed.get_mut(&self.claim) {
            *count -= 1;
            if *count == 0 {
                state.delayed.remove(&self.claim);
            }
        }
    }
}

impl Drop for HasherPool {
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
mod tests {
    use std::sync::mpsc::{self, Sender};

    use super::*;

    fn claim(address: u8, owner: u64) -> Claim {
        Claim {
            origin: Origin::of_address([192, 0, 2, address].into()),
            owner: Owner::Entry(owner),
        }
    }

    /// A pool whose one thread waits until it is told to go on.
    fn held() -> (HasherPool, Sender<()>, Ticket) {
        let pool = HasherPool::start(1).unwrap();
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let ticket = pool.submit(claim(0, 0), hash_work(), move |_| {
            started.send(()).unwrap();
            let _ = gate.recv();
            ControlFlow::Break(())
        });
        running.recv().unwrap();
        (pool, release, ticket)
    }

    /// A job of some steps, each of which tells its name.
    fn telling(
        pool: &HasherPool,
        claim: Claim,
        steps: usize,
        told: &Sender<(Claim, Turn)>,
    ) -> Ticket {
        let (told, mut left) = (told.clone(), steps);
        pool.submit(claim, hash_work(), move |turn| {
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
        let (pool, release, _held) = held();
        let (tell, told) = mpsc::channel();
        let mut tickets = Vec::new();
        // From one address, against many.
        for owner in 1..=400 {
            tickets.push(telling(&pool, claim(1, owner), 1, &tell));
        }
        // From as many addresses, against one.
        for address in 10..=250 {
            tickets.push(telling(&pool, claim(address, 7), 1, &tell));
        }
        // From one address, against one; in many steps.
        for _ in 0..100 {
            tickets.push(telling(&pool, claim(2, 8), 4, &tell));
        }
        let (another, same_address) = (claim(3, 9), claim(2, 10));
        tickets.push(telling(&pool, another, 1, &tell));
        tickets.push(telling(&pool, same_address, 1, &tell));
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
        let (pool, release, _held) = held();
        let (tell, told) = mpsc::channel();
        let waiting = telling(&pool, claim(1, 1), 5, &tell);
        drop(waiting);
        assert_eq!(told.recv().unwrap(), (claim(1, 1), Turn::Stop));
        // One that runs is stopped between its steps.
        let (stepped, steps) = mpsc::channel();
        let (go_on, gate) = mpsc::channel::<()>();
        let running = pool.submit(claim(2, 2), hash_work(), move |turn| {
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
    fn a_hasher_outlives_a_job_that_panics() {
        let pool = HasherPool::start(1).unwrap();
        let (tell, told) = mpsc::channel();
        let own = tell.clone();
        let panics = pool.submit(claim(1, 1), hash_work(), move |turn| {
            assert_eq!(turn, Turn::Stop, "a panic that is meant");
            own.send((claim(1, 1), turn)).unwrap();
            ControlFlow::Break(())
        });
        assert_eq!(told.recv().unwrap(), (claim(1, 1), Turn::Stop));
        let next = telling(&pool, claim(2, 2), 1, &tell);
        assert_eq!(told.recv().unwrap(), (claim(2, 2), Turn::Step));
        drop((panics, next));
    }

    #[test]
    fn a_stop_stops_what_waits() {
        let (pool, release, _held) = held();
        let (tell, told) = mpsc::channel();
        let tickets: Vec<_> = (0..300)
            .map(|owner| telling(&pool, claim(1, owner), 100, &tell))
            .collect();
        release.send(()).unwrap();
        drop(pool);
        drop(tell);
        let stopped = told.iter().filter(|(_, turn)| *turn == Turn::Stop).count();
        assert_eq!(stopped, 300);
        drop(tickets);
    }

    #[test]
    fn a_failed_bind_takes_as_long_as_its_hash_would_have() {
        let (pool, release, held) = held();
        let nobody = |address: u8, name: &str| Claim {
            owner: Owner::nobody(name),
            ..claim(address, 0)
        };
        let alone = nobody(9, "x");
        let one = pool.failure_delay(alone);
        let hash_time = pool.hash_time();
        let hashes = |count: u32| 2 * count * hash_time;
        let is_about = |delay: Duration, count| {
            delay.abs_diff(hashes(count)) < Duration::from_micros(count.into())
        };
        // The one that runs, then its own; the same if the name is somebody's.
        assert!(is_about(one, 2));
        assert_eq!(pool.failure_delay(claim(9, 5)), one);
        // Binds that have failed count like those in the queue, in which each name from an address, and each address,
        // has its turn.
        let delayed: Vec<_> = (0..10).map(|_| pool.delay(nobody(1, "a"))).collect();
        assert!(is_about(pool.failure_delay(nobody(1, "a")), 12));
        assert!(is_about(pool.failure_delay(nobody(1, "b")), 3));
        assert!(is_about(pool.failure_delay(alone), 3));
        let names: Vec<_> = (0..10)
            .map(|name| pool.delay(nobody(2, &name.to_string())))
            .collect();
        assert!(is_about(
            pool.failure_delay(nobody(2, "more")),
            1 + 10 + 1 + 10
        ));
        assert!(is_about(pool.failure_delay(alone), 4));
        drop((delayed, names));
        drop(held);
        // Nobody waits for the one that runs any more.
        assert!(is_about(pool.failure_delay(alone), 1));
        assert!(pool.queue.lock().delayed.is_empty());
        drop(release);
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
