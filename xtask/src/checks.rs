//! Checks that all run, whatever fails, and whose failures are listed at the end.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::programs;

/// So many of those that took the longest are listed at the end.
const LONGEST: usize = 8;

/// What has failed so far, and what has taken how long.
#[derive(Default)]
pub(crate) struct Checks {
    failed: Vec<String>,
    took: Vec<(Duration, String)>,
}

impl Checks {
    /// Runs a check and notes its failure.
    pub(crate) fn run(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        let start = Instant::now();
        if let Err(error) = check() {
            eprintln!("{name}: {error:#}");
            self.failed.push(format!("{name}: {error:#}"));
        }
        self.took.push((start.elapsed(), name.to_owned()));
    }

    /// Builds all test programs and runs them, and notes each test that fails.
    pub(crate) fn test_programs(&mut self) {
        let mut programs = Vec::new();
        self.run("building the tests", || {
            programs = programs::build()?;
            Ok(())
        });
        let mut outcomes = Vec::new();
        self.run("all test programs", || {
            outcomes = programs::run(&programs)?;
            Ok(())
        });
        for outcome in outcomes {
            self.failed.extend(outcome.failed);
            self.took.push((outcome.took, outcome.name));
        }
    }

    /// Lists what took the longest, and what has failed.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.took.sort_by_key(|(took, _)| Reverse(*took));
        eprintln!("\nSeconds:");
        for (took, name) in self.took.iter().take(LONGEST) {
            eprintln!("  {:6.1} {name}", took.as_secs_f64());
        }
        if self.failed.is_empty() {
            return Ok(());
        }
        eprintln!("\nFailed:");
        for failed in &self.failed {
            eprintln!("  {failed}");
        }
        bail!("failures: {}", self.failed.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_failed_is_told_at_the_end() {
        let mut checks = Checks::default();
        checks.run("good", || Ok(()));
        checks.run("bad", || bail!("it is bad"));
        checks.run("worse", || bail!("it is worse"));
        assert_eq!(checks.failed, ["bad: it is bad", "worse: it is worse"]);
        assert!(checks.finish().is_err());
        assert!(Checks::default().finish().is_ok());
    }
}
