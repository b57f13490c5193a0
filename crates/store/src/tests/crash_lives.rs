//! Lives that end in crashes, and what these leave of them, which lives on and crashes again.

use sapwood_testkit::storage::recording::{Crash, Disk};

use crate::guard::Guards;

/// Whether all was as it should be, and what was not.
pub(crate) type Verdict = std::result::Result<(), String>;

/// A store that is worked on, on a disk that is recorded.
pub(crate) trait Life: Sized {
    /// An empty one.
    fn begin(guards: Guards, seed: u64) -> std::result::Result<Self, String>;

    /// What a crash leaves of it, once it has been seen to be a state that may be there.
    fn after(&self, crash: &Crash, seed: u64) -> std::result::Result<Self, String>;

    /// Works on it, and looks at what it finds.
    fn work(&mut self, steps: usize) -> Verdict;

    fn disk(&self) -> &Disk;
}

/// How long a life is, and in how many crashes it ends.
pub(crate) struct Length {
    pub(crate) steps: usize,
    pub(crate) crashes: usize,
}

/// For each seed a life, and the lives after each of its crashes.
pub(crate) fn suite<L: Life>(
    guards: Guards,
    seeds: u64,
    [first_length, second_length]: [Length; 2],
) -> Verdict {
    for seed in 0..seeds {
        let mut first = L::begin(guards, seed)?;
        first
            .work(first_length.steps)
            .map_err(|error| format!("seed {seed}: {error}"))?;
        for (number, crash) in (0..).zip(first.disk().crashes(seed, first_length.crashes)) {
            let after = || {
                let mut second = first.after(&crash, seed * 1000 + number)?;
                second.work(second_length.steps)?;
                for crash in second.disk().crashes(seed + number, second_length.crashes) {
                    second
                        .after(&crash, 0)
                        .map_err(|error| format!("second {crash}: {error}"))?;
                }
                Ok(())
            };
            after().map_err(|error: String| format!("seed {seed}, {crash}: {error}"))?;
        }
    }
    Ok(())
}
