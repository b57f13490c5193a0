//! Where passwords are hashed and verified: a few threads with a bounded queue, because each Argon2 hash takes 19 MiB and 20 ms.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

/// Jobs that may wait for a hasher; beyond it a bind is answered with `busy`.
pub(super) const HASHER_QUEUE_JOBS_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// The threads that hash.
#[derive(Debug)]
pub struct HasherPool {
    // `None` only while dropping.
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// Too many passwords are waiting to be hashed.
#[derive(Debug, thiserror::Error)]
#[error("too many passwords are waiting to be checked ({HASHER_QUEUE_JOBS_MAX})")]
pub struct PoolFull;

impl HasherPool {
    /// Starts `threads` hashers; each takes up to 19 MiB while it works, and more for a stored hash that asks for it.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::sync_channel(HASHER_QUEUE_JOBS_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = (0..threads.max(1))
            .map(|index| {
                let waiting = Arc::clone(&waiting);
                thread::Builder::new()
                    .name(format!("hasher-{index}"))
                    .spawn(move || run(&waiting))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            jobs: Some(jobs),
            threads,
        })
    }

    /// Runs `job` on a hasher as soon as one is free; the job itself sends its outcome to whoever waits.
    ///
    /// # Errors
    /// [`PoolFull`] when [`HASHER_QUEUE_JOBS_MAX`] jobs are waiting.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<(), PoolFull> {
        let jobs = self.jobs.as_ref().ok_or(PoolFull)?;
        jobs.try_send(Box::new(job)).map_err(|_| PoolFull)
    }
}

fn run(waiting: &Mutex<Receiver<Job>>) {
    loop {
        let job = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        match job {
            Ok(job) => job(),
            Err(mpsc::RecvError) => return,
        }
    }
}

impl Drop for HasherPool {
    /// Lets the waiting jobs finish.
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_and_the_queue_is_bounded() {
        let pool = HasherPool::start(1).unwrap();
        let (release, gate) = mpsc::channel::<()>();
        let (done, outcomes) = mpsc::channel();
        let (started, running) = mpsc::channel();
        pool.submit(move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
        })
        .unwrap();
        running.recv().unwrap();
        for number in 0..HASHER_QUEUE_JOBS_MAX {
            let done = done.clone();
            pool.submit(move || done.send(number).unwrap()).unwrap();
        }
        assert!(pool.submit(|| ()).is_err());
        release.send(()).unwrap();
        drop(pool);
        drop(done);
        assert_eq!(outcomes.iter().count(), HASHER_QUEUE_JOBS_MAX);
    }
}
