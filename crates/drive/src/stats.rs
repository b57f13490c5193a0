//! Counts of answers, latencies and errors.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::mismatch::{EXAMPLES_MAX, EXAMPLES_OF_LABEL_MAX};

/// The shortest latency that is distinguished, in nanoseconds.
const LATENCY_NS_MIN: u64 = 128;
/// Longer latencies count as this one: an hour, in nanoseconds.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// How many decimal digits of a latency are kept.
const LATENCY_DIGITS: u8 = 3;
/// How many kinds of errors are distinguished.
const ERRORS_MAX: usize = 100;
/// The kind of all errors beyond these.
const MORE_ERRORS: &str = "more kinds of errors";

/// The counts of a phase, or of a part of one.
#[derive(Debug)]
pub(crate) struct Stats {
    /// The counts of operations, by the index of their label.
    pub(crate) operations: Vec<Counts>,
    /// How often each error was met, by the index of a label and in words.
    pub(crate) errors: BTreeMap<(usize, String), u64>,
    /// The first answers that were not as expected: the index of a label, and the mismatch in words.
    pub(crate) examples: Vec<(usize, String)>,
    /// How many operations were due and could not be sent before the end.
    pub(crate) unsent: u64,
    /// When the last answer came, in nanoseconds since the phase began.
    pub(crate) last_ns: u64,
    /// Whether a connection was stopped before it had sent everything.
    pub(crate) is_cut_short: bool,
}

/// The counts of the operations of one label.
#[derive(Debug)]
pub(crate) struct Counts {
    /// How many were answered, as expected or not.
    pub(crate) answered: u64,
    /// How many were not answered as expected, or not at all.
    pub(crate) failed: u64,
    /// How many entries came.
    pub(crate) entries: u64,
    /// The times from when operations were due to their last answer, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

impl Stats {
    /// Empty stats for this many labels.
    pub(crate) fn new(labels: usize) -> Self {
        Stats {
            operations: (0..labels).map(|_| Counts::new()).collect(),
            errors: BTreeMap::new(),
            examples: Vec::new(),
            unsent: 0,
            last_ns: 0,
            is_cut_short: false,
        }
    }

    /// Counts operations of a label as failed for a reason.
    pub(crate) fn fail(&mut self, label: usize, reason: String, count: u64) {
        if let Some(counts) = self.operations.get_mut(label) {
            counts.failed += count;
        }
        self.count_error(label, reason, count);
    }

    /// Keeps a mismatch as an example, if it is one of the first of its label.
    pub(crate) fn keep_example(&mut self, label: usize, words: impl FnOnce() -> String) {
        let of_label = self.examples.iter().filter(|(other, _)| *other == label);
        if self.examples.len() < EXAMPLES_MAX && of_label.count() < EXAMPLES_OF_LABEL_MAX {
            self.examples.push((label, words()));
        }
    }

    /// Counts errors. The kinds beyond [`ERRORS_MAX`] are counted together.
    fn count_error(&mut self, label: usize, reason: String, count: u64) {
        let is_new = !self.errors.contains_key(&(label, reason.clone()));
        let reason = match is_new && self.errors.len() >= ERRORS_MAX {
            true => MORE_ERRORS.to_owned(),
            false => reason,
        };
        *self.errors.entry((label, reason)).or_default() += count;
    }

    /// Takes all counts from another `Stats`, which is empty afterwards.
    pub(crate) fn take(&mut self, other: &mut Stats) {
        for (own, other) in self.operations.iter_mut().zip(&mut other.operations) {
            own.add(other);
            other.clear();
        }
        for ((label, reason), count) in std::mem::take(&mut other.errors) {
            // The failed operations were taken above; only the error is left to count.
            self.count_error(label, reason, count);
        }
        for (label, example) in std::mem::take(&mut other.examples) {
            self.keep_example(label, || example);
        }
        self.unsent += std::mem::take(&mut other.unsent);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.is_cut_short |= other.is_cut_short;
    }

    /// Adds the counts of a part, which stays as it is.
    pub(crate) fn add(&mut self, part: &Stats) {
        for (own, part) in self.operations.iter_mut().zip(&part.operations) {
            own.add(part);
        }
        for ((label, reason), count) in &part.errors {
            self.count_error(*label, reason.clone(), *count);
        }
        for (label, example) in &part.examples {
            self.keep_example(*label, || example.clone());
        }
        self.unsent += part.unsent;
        self.last_ns = self.last_ns.max(part.last_ns);
        self.is_cut_short |= part.is_cut_short;
    }
}

impl Counts {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, LATENCY_DIGITS);
        Counts {
            answered: 0,
            failed: 0,
            entries: 0,
            // The bounds are constants which the histogram accepts.
            latency: latency.unwrap_or_else(|_| unreachable!("the bounds of latencies")),
        }
    }

    fn add(&mut self, other: &Counts) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.entries += other.entries;
        // Both have the same bounds, so adding cannot fail.
        let _ = self.latency.add(&other.latency);
    }

    fn clear(&mut self) {
        (self.answered, self.failed, self.entries) = (0, 0, 0);
        if !self.latency.is_empty() {
            self.latency.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each interval of a long run may bring other diagnostics, such as those that name an entry.
    #[test]
    fn kinds_of_errors_are_bounded_over_all_intervals() {
        let mut total = Stats::new(1);
        for interval in 0..10 {
            let mut worker = Stats::new(1);
            for error in 0..90 {
                worker.fail(0, format!("{interval} {error}"), 1);
            }
            let mut part = Stats::new(1);
            part.take(&mut worker);
            total.add(&part);
        }
        assert_eq!(total.operations[0].failed, 900);
        assert_eq!(total.errors.len(), ERRORS_MAX + 1);
        assert_eq!(total.errors.values().sum::<u64>(), 900);
    }
}
