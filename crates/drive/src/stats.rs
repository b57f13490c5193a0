//! What was answered, counted.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::mismatch::{EXAMPLES_MAX, EXAMPLES_OF_LABEL_MAX};

/// Latencies are told apart from here on, in nanoseconds.
const LATENCY_NS_MIN: u64 = 128;
/// Longer ones count as this, in nanoseconds: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Decimal digits of a latency that are kept.
const LATENCY_DIGITS: u8 = 3;
/// Different errors that are told apart.
const ERRORS_MAX: usize = 100;
/// What the errors beyond are counted as.
const MORE_ERRORS: &str = "more kinds of errors";

/// Counts of one phase, or of a part of it.
#[derive(Debug)]
pub(crate) struct Stats {
    /// By the place of their label.
    pub(crate) operations: Vec<Counts>,
    /// How often each error was met with each label.
    pub(crate) errors: BTreeMap<(usize, String), u64>,
    /// The first wrong answers, by label and in words.
    pub(crate) examples: Vec<(usize, String)>,
    /// Operations that were due and could not be sent before the end.
    pub(crate) unsent: u64,
    /// When the last answer came, in nanoseconds since the phase began.
    pub(crate) last_ns: u64,
    /// Whether a connection was stopped that had more to send.
    pub(crate) is_cut_short: bool,
}

/// Counts of the operations of one label.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Operations that were answered, well or not.
    pub(crate) answered: u64,
    /// Those of them whose answer was not the expected one, and those without an answer.
    pub(crate) failed: u64,
    /// Entries that came.
    pub(crate) entries: u64,
    /// From when the operation was due to its last answer, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

impl Stats {
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

    pub(crate) fn fail(&mut self, label: usize, reason: String, count: u64) {
        if let Some(counts) = self.operations.get_mut(label) {
            counts.failed += count;
        }
        self.count_error(label, reason, count);
    }

    /// Keeps a wrong answer to show, if it is one of the first with its label.
    pub(crate) fn keep_example(&mut self, label: usize, words: impl FnOnce() -> String) {
        let of_label = self.examples.iter().filter(|(other, _)| *other == label);
        if self.examples.len() < EXAMPLES_MAX && of_label.count() < EXAMPLES_OF_LABEL_MAX {
            self.examples.push((label, words()));
        }
    }

    /// Counts errors; those that are one kind too many are told as such.
    fn count_error(&mut self, label: usize, reason: String, count: u64) {
        let is_new = !self.errors.contains_key(&(label, reason.clone()));
        let reason = match is_new && self.errors.len() >= ERRORS_MAX {
            true => MORE_ERRORS.to_owned(),
            false => reason,
        };
        *self.errors.entry((label, reason)).or_default() += count;
    }

    /// Takes everything from another stats, which is empty afterwards.
    pub(crate) fn take(&mut self, other: &mut Stats) {
        for (own, other) in self.operations.iter_mut().zip(&mut other.operations) {
            own.add(other);
            other.clear();
        }
        for ((label, reason), count) in std::mem::take(&mut other.errors) {
            // The counts have been taken with the operations.
            self.count_error(label, reason, count);
        }
        for (label, example) in std::mem::take(&mut other.examples) {
            self.keep_example(label, || example);
        }
        self.unsent += std::mem::take(&mut other.unsent);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.is_cut_short |= other.is_cut_short;
    }

    /// Adds a part to the whole; the part stays.
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
            // The bounds are constants that are right.
            latency: latency.unwrap_or_else(|_| unreachable!("the bounds of latencies")),
        }
    }

    fn add(&mut self, other: &Counts) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.entries += other.entries;
        // They have the same bounds.
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
