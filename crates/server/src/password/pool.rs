//! Where passwords are hashed and verified: a few [workers](crate::workers), because each Argon2 hash takes 19 MiB and
//! 20 ms. A connection has one job here at most, and a job does one stored password in a step.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Work, hash, hash_work};
use crate::peer::Origin;
use crate::workers::{self, Claim, Length, Turn, Workers};

/// The new part of the moving average of what a hash takes: one in so many.
const AVERAGED_HASHES: u32 = 8;

/// The threads that hash.
#[derive(Debug)]
pub(crate) struct HasherPool {
    workers: Workers,
    /// Those that wait for other programs; none if nobody is asked.
    askers: Option<Workers>,
    pace: Arc<Pace>,
}

/// What tells how long a hash that came now would take.
#[derive(Debug)]
struct Pace {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Microseconds of work whose outcome somebody waits for, binds that have failed and are not answered yet included.
    pending: HashMap<Claim, u64>,
    /// What a hash of a new password takes, as measured.
    hash_time: Duration,
}

/// A job in the pool. It is stopped when this is dropped: at once if it waits, else before its next step.
#[derive(Debug)]
pub(crate) struct Ticket {
    _job: workers::Ticket,
    _pending: Pending,
}

/// Work that comes before what comes now: of a job, or of a bind that has failed, whose answer takes the time of a hash
/// in the queue without its work.
#[derive(Debug)]
pub(crate) struct Pending {
    pace: Arc<Pace>,
    claim: Claim,
    micros: u64,
}

impl HasherPool {
    /// Measures one hash, and starts `threads` hashers. Each takes up to 19 MiB while it works, and up to
    /// [`VALUE_MEMORY_KIB_MAX`](super::VALUE_MEMORY_KIB_MAX) for a stored hash that asks for it. The `askers` are
    /// threads for passwords that other programs know; they wait for these, and no hash waits for them.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(threads: usize, askers: usize) -> std::io::Result<Self> {
        let began = Instant::now();
        let _ = hash(b"");
        let state = State {
            pending: HashMap::new(),
            hash_time: began.elapsed(),
        };
        Ok(Self {
            workers: Workers::start("hasher", threads.max(1), 0)?,
            askers: match askers {
                0 => None,
                askers => Some(Workers::start("asker", askers, 0)?),
            },
            pace: Arc::new(Pace {
                state: Mutex::new(state),
            }),
        })
    }

    /// Runs `job`, which takes about this work, in steps until it breaks. The job tells its session the outcome, also
    /// that it was stopped.
    pub(crate) fn submit(
        &self,
        claim: Claim,
        work: Work,
        job: impl FnMut(Turn) -> ControlFlow<()> + Send + 'static,
    ) -> Ticket {
        self.submit_to(&self.workers, claim, work, job)
    }

    /// The same of a job that asks other programs.
    pub(crate) fn submit_asking(
        &self,
        claim: Claim,
        work: Work,
        job: impl FnMut(Turn) -> ControlFlow<()> + Send + 'static,
    ) -> Ticket {
        let askers = self.askers.as_ref().unwrap_or(&self.workers);
        self.submit_to(askers, claim, work, job)
    }

    fn submit_to(
        &self,
        workers: &Workers,
        claim: Claim,
        work: Work,
        mut job: impl FnMut(Turn) -> ControlFlow<()> + Send + 'static,
    ) -> Ticket {
        let pending = self.count_pending(claim, work);
        let pace = Arc::clone(&self.pace);
        let timed = move |turn| {
            let began = Instant::now();
            let flow = job(turn);
            if turn == Turn::Step && flow.is_break() && work == hash_work() {
                pace.lock().took(began.elapsed());
            }
            flow
        };
        Ticket {
            _job: workers.submit(claim, Length::Long, timed),
            _pending: pending,
        }
    }

    /// How long after it came a bind may be answered at the earliest if it fails: twice what the hash of a new password
    /// that came now would take, waiting for its turn included.
    pub(crate) fn failure_delay(&self, claim: Claim) -> Duration {
        let threads = u32::try_from(self.workers.threads()).unwrap_or(u32::MAX);
        let state = self.pace.lock();
        // Several threads shorten the wait, not the hash.
        let own = state.hash_time;
        2 * (own + state.time_until(claim).saturating_sub(own) / threads)
    }

    /// What a hash of a new password takes, as measured.
    #[cfg(test)]
    pub(crate) fn hash_time(&self) -> Duration {
        self.pace.lock().hash_time
    }

    /// Counts a failed bind as one that still waits for its hash, until it is answered.
    pub(crate) fn delay(&self, claim: Claim) -> Pending {
        self.count_pending(claim, hash_work())
    }

    fn count_pending(&self, claim: Claim, work: Work) -> Pending {
        let micros = work.micros();
        *self.pace.lock().pending.entry(claim).or_default() += micros;
        Pending {
            pace: Arc::clone(&self.pace),
            claim,
            micros,
        }
    }
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A hash of a new password has taken so long.
    fn took(&mut self, time: Duration) {
        let others = self.hash_time * (AVERAGED_HASHES - 1);
        self.hash_time = (others + time) / AVERAGED_HASHES;
    }

    /// How long one thread would take until it has done a hash that came now: the same for a name that somebody has as
    /// for one that nobody has, for it does not tell.
    fn time_until(&self, claim: Claim) -> Duration {
        let own = hash_work().micros();
        // All that is there for the same name comes before it, as much for each other name from the same address, and
        // as much as all that from each other address.
        let mut until = self.pending.get(&claim).copied().unwrap_or_default() + own;
        let mut others: HashMap<Origin, u64> = HashMap::new();
        for (other, work) in self.pending.iter().filter(|(other, _)| **other != claim) {
            *others.entry(other.origin).or_default() += match other.origin == claim.origin {
                true => (*work).min(until),
                false => *work,
            };
        }
        until += others.remove(&claim.origin).unwrap_or_default();
        let elsewhere: u64 = others.into_values().map(|work| work.min(until)).sum();
        let work = (until + elsewhere) as f64 / own as f64;
        self.hash_time.mul_f64(work)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut state = self.pace.lock();
        if let Some(micros) = state.pending.get_mut(&self.claim) {
            *micros -= self.micros;
            if *micros == 0 {
                state.pending.remove(&self.claim);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::Owner;
    use crate::workers::tests::claim;
    use std::sync::mpsc;

    /// With three threads the delay was two thirds of a hash.
    #[test]
    fn no_failed_bind_is_answered_before_a_hash_could_be_done_twice() {
        let pool = HasherPool::start(4, 0).unwrap();
        let claim = claim(0, 0);
        let delay = pool.failure_delay(claim);
        assert!(delay >= 2 * pool.hash_time());
        let _pending: Vec<_> = (0..4).map(|_| pool.delay(claim)).collect();
        let behind = pool.failure_delay(claim);
        let more = behind.abs_diff(delay + 2 * pool.hash_time());
        assert!(more < Duration::from_micros(10), "{more:?}");
    }

    #[test]
    fn a_failed_bind_takes_as_long_as_its_hash_would_have() {
        let pool = HasherPool::start(1, 0).unwrap();
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let held = pool.submit(claim(0, 0), hash_work(), move |_| {
            started.send(()).unwrap();
            let _ = gate.recv();
            ControlFlow::Break(())
        });
        running.recv().unwrap();
        let nobody = |address: u8, name: &str| Claim {
            owner: Owner::nobody(name.as_bytes()),
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
        assert!(pool.pace.lock().pending.is_empty());
        drop(release);
    }
}
