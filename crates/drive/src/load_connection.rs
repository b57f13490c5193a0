//! A connection with its share of the load. It sends the requests of its queue, and gives the answers to the queue.

use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sapwood_client::{Connection, Error};
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::request_queue::{RequestQueue, Shared};
use crate::stats::Stats;
use crate::stop_token::StopToken;
use crate::timer::Timer;

/// When a connection begins to send, and when it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// When the phase began. Latencies and schedules are counted from then.
    pub(crate) epoch: Instant,
    /// When the connection sends its first request, in nanoseconds since `epoch`.
    pub(crate) first_ns: u64,
    /// When it sends nothing more, in nanoseconds since `epoch`.
    pub(crate) end_ns: u64,
}

/// A connection that is open and bound, with the queue of its requests.
pub(crate) struct LoadConnection {
    connection: Connection,
    queue: RequestQueue,
    stats: Arc<Mutex<Stats>>,
}

impl LoadConnection {
    pub(crate) fn new(
        connection: Connection,
        shared: Arc<Shared>,
        number: u32,
        seed: u64,
        stats: Arc<Mutex<Stats>>,
    ) -> Self {
        let queue = RequestQueue::new(shared, number, seed);
        LoadConnection {
            connection,
            queue,
            stats,
        }
    }

    /// Sends and receives until the session is done, the time is over or `stop` comes. Errors are counted in the stats.
    pub(crate) async fn run(mut self, schedule: Schedule, mut stop: oneshot::Receiver<()>) {
        let begin = schedule.epoch + Duration::from_nanos(schedule.first_ns);
        tokio::select! {
            () = tokio::time::sleep_until(begin.into()) => {}
            _ = &mut stop => {
                lock(&self.stats).is_cut_short = true;
                return;
            }
        }
        if let Err(error) = self.serve(schedule, stop).await {
            self.queue
                .give_up(&error.to_string(), &mut lock(&self.stats));
        }
    }

    async fn serve(
        &mut self,
        mut schedule: Schedule,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<(), Error> {
        let LoadConnection {
            connection,
            queue,
            stats,
        } = self;
        let epoch = schedule.epoch;
        let now_ns = || epoch.elapsed().as_nanos() as u64;
        let timeout = queue.shared().answer_timeout;
        let mut timer = match queue.shared().period_ns {
            Some(_) => Some(Timer::new()?),
            None => None,
        };
        queue.begin(schedule.first_ns);
        let mut watchdog: Pin<Box<Sleep>> = Box::pin(tokio::time::sleep(timeout));
        let mut last_answer = tokio::time::Instant::now();
        // After a stop: when the connection fails if it still waits for answers.
        let mut give_up_ns = None;
        loop {
            let now = now_ns();
            queue.fill(now, schedule.end_ns, connection.output());
            if queue.is_done() && queue.is_idle() {
                break;
            }
            // The watchdog cannot check this: entries that keep coming would win the select each time.
            if give_up_ns.is_some_and(|give_up_ns| now >= give_up_ns) {
                return Err(Error::Closed(
                    "not answered in time after the stop".to_owned(),
                ));
            }
            let due = queue.next_due().filter(|due| *due > now);
            let expiry = async {
                match (&mut timer, due) {
                    (Some(timer), Some(due)) => timer.after(Duration::from_nanos(due - now)).await,
                    _ => pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = &mut stop, if give_up_ns.is_none() => {
                    let now = now_ns();
                    let wait = timeout.min(StopToken::WAIT_MAX);
                    give_up_ns = Some(now.saturating_add(wait.as_nanos() as u64));
                    watchdog.as_mut().reset(tokio::time::Instant::now() + wait);
                    if !queue.is_done() && now < schedule.end_ns {
                        schedule.end_ns = now;
                        lock(stats).is_cut_short = true;
                    }
                    continue;
                }
                progress = connection.make_progress() => progress?,
                expired = expiry => {
                    expired?;
                    continue;
                }
                () = &mut watchdog => {
                    if give_up_ns.is_some() {
                        continue;
                    }
                    let now = tokio::time::Instant::now();
                    if !queue.is_idle() && now >= last_answer + timeout {
                        return Err(Error::Closed(format!("no answer for {} s", timeout.as_secs_f64())));
                    }
                    let from = if queue.is_idle() { now } else { last_answer };
                    watchdog.as_mut().reset(from + timeout);
                    continue;
                }
            }
            let now = now_ns();
            let mut stats = lock(stats);
            let mut has_come = false;
            while let Some(message) = connection.received()? {
                queue.answer(message, now, &mut stats)?;
                has_come = true;
            }
            if has_come {
                stats.last_ns = now;
                last_answer = tokio::time::Instant::from_std(epoch) + Duration::from_nanos(now);
            }
        }
        lock(stats).unsent += queue.unsent(schedule.end_ns);
        Ok(())
    }
}

fn lock(stats: &Mutex<Stats>) -> MutexGuard<'_, Stats> {
    stats.lock().unwrap_or_else(PoisonError::into_inner)
}
