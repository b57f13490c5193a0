//! The simulator of replication at length.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sapwood_testkit::replication::{Model, simulate};

/// Simulate servers that replicate while everything goes wrong, seed after seed; `cargo test` does it with a few.
///
/// A failure names its seed, which does the same again: `cargo xtask simulate --first SEED --seeds 1`.
#[derive(Args)]
pub(crate) struct Simulate {
    /// How many seeds.
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// What happens in each: updates, messages, crashes.
    #[arg(long, default_value_t = 400)]
    steps: usize,
}

/// Failures that are told; then it ends.
const FAILURES_MAX: usize = 10;

impl Simulate {
    /// So many seeds, from the first on.
    pub(crate) fn seeds(seeds: u64) -> Simulate {
        Simulate {
            seeds,
            first: 0,
            steps: 400,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        let bar = ProgressBar::new(self.seeds);
        let style = "{bar:30} {human_pos} of {human_len} seeds, {per_sec}, {eta} left{msg}";
        bar.set_style(ProgressStyle::with_template(style)?);
        let next = AtomicU64::new(0);
        let failures = Mutex::new(Vec::new());
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                let is_enough = failures
                    .lock()
                    .is_ok_and(|failures| failures.len() >= FAILURES_MAX);
                if seed >= self.seeds || is_enough {
                    break;
                }
                let seed = self.first.saturating_add(seed);
                if let Err(fault) = simulate::<Model>(seed, self.steps, None) {
                    bar.suspend(|| eprintln!("seed {seed}: {fault}"));
                    if let Ok(mut failures) = failures.lock() {
                        failures.push(seed);
                    }
                }
                bar.inc(1);
            }
        };
        let threads = thread::available_parallelism()?.get();
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let done = bar.position();
        bar.finish_and_clear();
        let failures = failures.into_inner().unwrap_or_default();
        if !failures.is_empty() {
            bail!("{} of {done} seeds fail: {failures:?}", failures.len());
        }
        println!(
            "{done} seeds of {} steps: all servers are equal, nothing is lost",
            self.steps
        );
        Ok(())
    }
}
