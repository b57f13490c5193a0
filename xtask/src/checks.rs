//! Checks that all run, whatever fails, and whose failures are listed at the end.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Write, pipe, stderr, stdout};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::run::{line, root};

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

    /// Runs `cargo test` through all programs, and notes each test that fails.
    pub(crate) fn cargo_test<'a>(&mut self, args: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(program);
        command.args(["test", "--no-fail-fast"]).args(args);
        command.current_dir(root());
        eprintln!("+ {}", line(&command));
        if stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        // One pipe for both, so that lines come in the order in which they were written.
        let (reader, writer) = pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().context("cannot start cargo")?;
        // Its ends of the pipe are the only ones now: reading ends when all who write have.
        drop(command);
        let start = Instant::now();
        let mut tests = Tests::default();
        let mut reader = BufReader::new(reader);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes)? > 0 {
            // The one that has stopped to read still wants the result.
            let _ = stdout().write_all(&bytes);
            tests.read(&String::from_utf8_lossy(&bytes));
            bytes.clear();
        }
        let status = child.wait()?;
        if !status.success() && tests.failed.is_empty() {
            tests.failed.push(format!("cargo test: {status}"));
        }
        self.failed.append(&mut tests.failed);
        let running = tests.took.iter().map(|(took, _)| *took).sum();
        let building = start.elapsed().saturating_sub(running);
        self.took.push((building, "building the tests".to_owned()));
        self.took.append(&mut tests.took);
        Ok(())
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

/// Tests that have failed and programs that have ended, as `cargo test` tells of them.
#[derive(Default)]
struct Tests {
    program: String,
    /// Those of the program that is running.
    of_program: Vec<String>,
    failed: Vec<String>,
    took: Vec<(Duration, String)>,
}

impl Tests {
    fn read(&mut self, line: &str) {
        let line = without_colours(line);
        let line = line.trim();
        if let Some(program) = line.strip_prefix("Running ") {
            program.clone_into(&mut self.program);
        } else if let Some(package) = line.strip_prefix("Doc-tests ") {
            self.program = format!("examples in the documentation of {package}");
        } else if let Some((_, took)) = line.split_once("; finished in ") {
            // A program's own tests may print such a line as well.
            if let Ok(seconds) = took.trim_end_matches('s').parse() {
                let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                self.took.push((took, self.program.clone()));
            }
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|line| line.strip_suffix(" ... FAILED"))
        {
            self.of_program.push(name.to_owned());
        } else if let Some((_, program)) = line.split_once(" failed, to rerun pass `") {
            let program = program.trim_end_matches('`');
            if self.of_program.is_empty() {
                self.failed
                    .push(format!("{program}: it ended before its tests did"));
            }
            let failed = self.of_program.drain(..);
            self.failed
                .extend(failed.map(|test| format!("{program}: {test}")));
        } else if let Some(error) = line.strip_prefix("error: could not compile ") {
            self.failed.push(format!("could not compile {error}"));
        }
    }
}

/// The text without the sequences that colour it.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, text)| text));
    std::iter::once(first).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_listed_with_its_program() {
        let mut tests = Tests::default();
        let told = "\
            \x1b[1m\x1b[92m     Running\x1b[0m unittests src/lib.rs (target/debug/deps/a-1)\n\
            test one ... ok\n\
            test deep::two ... FAILED\n\
            test three ... FAILED\n\
            failures:\n    deep::two\n\
            test result: FAILED. 1 passed; 2 failed; finished in 4.25s\n\
            \x1b[1m\x1b[91merror\x1b[0m: test failed, to rerun pass `-p a --lib`\n\
            test four ... ok\n\
            error: test failed, to rerun pass `-p a --test b`\n\
            Caused by: process did not exit successfully (signal: 6, SIGABRT)\n\
            test src/lib.rs - Thing (line 7) ... FAILED\n\
            error: doctest failed, to rerun pass `-p a --doc`\n\
            error: 3 targets failed:\n    `-p a --lib`\n";
        told.lines().for_each(|line| tests.read(line));
        assert_eq!(
            tests.failed,
            [
                "-p a --lib: deep::two",
                "-p a --lib: three",
                "-p a --test b: it ended before its tests did",
                "-p a --doc: src/lib.rs - Thing (line 7)",
            ]
        );
        let program = "unittests src/lib.rs (target/debug/deps/a-1)".to_owned();
        assert_eq!(tests.took, [(Duration::from_millis(4250), program)]);
    }

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
