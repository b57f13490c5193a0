//! What a worker measured: one line of numbers, the same from all workers.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result};

/// Buckets of times in each power of two, so that a bucket is at most 6 % wide. `peers.c` has them too.
const BUCKETS_PER_DOUBLING: usize = 16;

const BUCKETS: usize = 64 * BUCKETS_PER_DOUBLING;

/// The measurements of one worker, or of several that ran at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// How many operations succeeded, or records were found.
    pub(crate) done: u64,
    pub(crate) nanoseconds: u64,
    pub(crate) cpu_us: u64,
    pub(crate) major_faults: u64,
    pub(crate) minor_faults: u64,
    /// Bytes read from the disk.
    pub(crate) read_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) times: Times,
}

/// How long single operations took.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    buckets: Vec<u64>,
    slowest: u64,
}

impl Times {
    pub(crate) fn add(&mut self, nanoseconds: u64) {
        if let Some(count) = self.buckets.get_mut(bucket(nanoseconds)) {
            *count += 1;
        }
        self.slowest = self.slowest.max(nanoseconds);
    }

    /// Adds those of another.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.slowest = self.slowest.max(other.slowest);
        for (mine, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += other;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// What the `rank`th most expensive operation took at most, in nanoseconds, counted from 1.
    pub(crate) fn ranked(&self, rank: u64) -> u64 {
        let mut more = 0;
        for (bucket, count) in self.buckets.iter().enumerate().rev() {
            more += count;
            if more >= rank {
                return upper(bucket).min(self.slowest);
            }
        }
        0
    }

    /// What the 1st, 2nd, 4th, … most expensive operation took at most, in microseconds.
    pub(crate) fn by_rank(&self) -> Vec<(f64, f64)> {
        let ranks = std::iter::successors(Some(1_u64), |rank| Some(2 * rank));
        ranks
            .take_while(|rank| *rank <= self.count())
            .map(|rank| (rank as f64, self.ranked(rank) as f64 / 1e3))
            .collect()
    }

    /// What this part of the operations took at most.
    pub(crate) fn quantile(&self, part: f64) -> u64 {
        let above = (self.count() as f64 * (1.0 - part)) as u64;
        self.ranked(above.max(1))
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            slowest: 0,
        }
    }
}

fn bucket(nanoseconds: u64) -> usize {
    match nanoseconds.checked_ilog2() {
        Some(octave @ 4..) => {
            let within = nanoseconds >> (octave - 4) & 15;
            octave as usize * BUCKETS_PER_DOUBLING + usize::try_from(within).unwrap_or(0)
        }
        _ => usize::try_from(nanoseconds).unwrap_or(0),
    }
}

/// The end of a bucket.
fn upper(bucket: usize) -> u64 {
    let (octave, within) = (bucket / BUCKETS_PER_DOUBLING, bucket % BUCKETS_PER_DOUBLING);
    match octave {
        0..=3 => bucket as u64,
        _ => ((16 + within as u128 + 1) << (octave - 4))
            .try_into()
            .unwrap_or(u64::MAX),
    }
}

impl Outcome {
    /// This worker together with another that ran at the same time.
    pub(crate) fn with(mut self, other: &Self) -> Self {
        self.done += other.done;
        self.nanoseconds = self.nanoseconds.max(other.nanoseconds);
        self.cpu_us += other.cpu_us;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
        self.read_bytes += other.read_bytes;
        // Everybody sees the one log.
        self.log_bytes = self.log_bytes.max(other.log_bytes);
        self.times.merge(&other.times);
        self
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds as f64 / 1e9
    }

    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.done as f64 / self.seconds()
    }

    /// Processor time of an operation in microseconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu_us as f64 / self.done.max(1) as f64
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} {} {} {} {} {} {} {}",
            self.done,
            self.nanoseconds,
            self.cpu_us,
            self.major_faults,
            self.minor_faults,
            self.read_bytes,
            self.log_bytes,
            self.times.slowest
        )?;
        for (bucket, count) in self.times.buckets.iter().enumerate() {
            if *count > 0 {
                write!(formatter, " {bucket}:{count}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Outcome {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let mut number = || -> Result<u64> {
            let word = words.next().unwrap_or_default();
            word.parse().with_context(|| format!("results: {line}"))
        };
        let mut outcome = Self {
            done: number()?,
            nanoseconds: number()?,
            cpu_us: number()?,
            major_faults: number()?,
            minor_faults: number()?,
            read_bytes: number()?,
            log_bytes: number()?,
            times: Times::default(),
        };
        outcome.times.slowest = number()?;
        for word in words {
            let (bucket, count) = word.split_once(':').context("a bucket without a count")?;
            let place = outcome.times.buckets.get_mut(bucket.parse::<usize>()?);
            *place.context("a bucket that is too far")? = count.parse()?;
        }
        Ok(outcome)
    }
}

/// The outcome whose time is in the middle.
pub(crate) fn median(outcomes: &[Outcome]) -> Option<&Outcome> {
    let mut sorted: Vec<&Outcome> = outcomes.iter().collect();
    sorted.sort_by_key(|outcome| outcome.nanoseconds);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_within_a_sixteenth_and_add_up() {
        let mut outcome = Outcome::default();
        for nanoseconds in [3, 15, 16, 1000, 123_456, 7_000_000_000] {
            outcome.times.add(nanoseconds);
        }
        let outcome: Outcome = outcome.to_string().parse().unwrap();
        let both = outcome.clone().with(&outcome);
        assert_eq!(both.times.count(), 12);
        assert_eq!(both.times.by_rank().len(), 4, "1, 2, 4 and 8");
        assert_eq!(both.times.ranked(1), 7_000_000_000);
        for (rank, exact) in [(3, 123_456), (5, 1000), (7, 16), (9, 15), (11, 3)] {
            let told = both.times.ranked(rank);
            assert!(told >= exact && told <= exact + exact / 16 + 1, "{told}");
        }
        assert!("1 2 3".parse::<Outcome>().is_err());
        assert!("1 2 3 4 5 6 7 8 9999:1".parse::<Outcome>().is_err());
    }
}
