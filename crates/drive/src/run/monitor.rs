//! Gathers what the workers count, interval by interval.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sapwood_client::Error;

use super::worker::Worker;
use super::{Labels, Observer, Settings};
use crate::report::{PhaseReport, Point};
use crate::server_use::ServerUse;
use crate::stats::Stats;

/// Gathers the stats of the workers from the beginning of a phase to its end.
pub(super) struct Monitor<'m> {
    /// When the phase began.
    pub(super) epoch: Instant,
    /// When connections send no more, in nanoseconds since then.
    pub(super) end_ns: u64,
    pub(super) labels: &'m Labels,
    pub(super) settings: &'m Settings,
}

impl Monitor<'_> {
    /// Starts the phase on all workers, which report their end through `ends`. Fills in the report's series and what
    /// the phase used, and returns the stats of the measured time.
    pub(super) fn follow(
        &self,
        workers: &mut Vec<Worker>,
        ends: &Receiver<Result<(), Error>>,
        report: &mut PhaseReport,
        observer: &mut dyn Observer,
    ) -> Stats {
        let labels = self.labels.names.len();
        for worker in workers.iter() {
            // A thread that has panicked is found when it is joined.
            let _ = worker.begin.send((self.epoch, self.end_ns));
        }
        let [mut total, mut ramp_up, mut part] = [(); 3].map(|()| Stats::new(labels));
        let (mut running, mut since) = (workers.len(), Duration::ZERO);
        let mut is_warm = self.settings.ramp_up.is_zero();
        let (mut measured_from, mut cpu_before) = (Duration::ZERO, Duration::ZERO);
        let mut server_before = self.settings.server_pid.and_then(ServerUse::read);
        while running > 0 {
            let next = match is_warm {
                true => since + self.settings.interval,
                false => (since + self.settings.interval).min(self.settings.ramp_up),
            };
            match ends.recv_timeout((self.epoch + next).saturating_duration_since(Instant::now())) {
                Ok(_) => {
                    running -= 1;
                    if running > 0 {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => running = 0,
            }
            let now = self.epoch.elapsed();
            for worker in workers.iter() {
                let mut stats = worker.stats.lock().unwrap_or_else(PoisonError::into_inner);
                part.take(&mut stats);
            }
            let length = now.saturating_sub(since);
            let point = Point::new(
                now,
                length,
                &part.operations[..self.labels.planned],
                is_warm,
            );
            observer.point(&point);
            report.series.push(point);
            total.last_ns = part.last_ns;
            report.is_cut_short |= part.is_cut_short;
            match is_warm {
                true => total.add(&part),
                false => ramp_up.add(&part),
            }
            part = Stats::new(labels);
            since = now;
            if !is_warm && now >= self.settings.ramp_up {
                is_warm = true;
                measured_from = now;
                cpu_before = cpu(workers);
                server_before = self.settings.server_pid.and_then(ServerUse::read);
            }
        }
        if is_warm {
            // Errors and examples of the ramp-up are reported too.
            for (label, example) in std::mem::take(&mut ramp_up.examples) {
                total.keep_example(label, || example);
            }
            for ((label, reason), count) in ramp_up.errors {
                let reason = format!("during ramp-up: {reason}");
                total.errors.insert((label, reason), count);
            }
        } else {
            // The phase ended within the ramp-up, so all of it counts.
            total = ramp_up;
            let points = report.series.iter_mut();
            points.for_each(|point| point.is_counted = true);
        }
        report.client_cpu = cpu(workers).saturating_sub(cpu_before);
        let server_after = self.settings.server_pid.and_then(ServerUse::read);
        report.server = server_after
            .zip(server_before)
            .map(|(after, before)| after.since(before));
        let last = Duration::from_nanos(total.last_ns);
        report.seconds = last.saturating_sub(measured_from).as_secs_f64();
        for worker in workers.drain(..) {
            if let Err(panic) = worker.thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        total
    }
}

/// The processor time of all workers together.
fn cpu(workers: &[Worker]) -> Duration {
    let used = workers
        .iter()
        .map(|worker| worker.cpu_ns.load(Ordering::Relaxed));
    Duration::from_nanos(used.sum())
}
