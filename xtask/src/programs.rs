//! The test programs of the workspace: cargo builds them, and they run two at a time.
//!
//! Most of them wait much, for a disk, for a time or for another program, and leave processors unused meanwhile.

use std::ffi::OsString;
use std::io::{Read, Write, pipe, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::run::{line, root};

/// So many run at the same time.
const AT_ONCE: usize = 2;

/// A program of tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// What has `cargo test` run this one alone.
    name: String,
    path: PathBuf,
    /// The folder of its package, in which it runs.
    folder: PathBuf,
}

/// What became of one.
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) took: Duration,
    pub(crate) failed: Vec<String>,
}

/// What they are built with: all that a build may leave out.
pub(crate) const FEATURES: &str = "gssapi";

/// Builds all.
pub(crate) fn build() -> Result<Vec<Program>> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command
        .args(["test", "--workspace", "--features", FEATURES, "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root())
        .stderr(Stdio::inherit());
    let line = line(&command);
    eprintln!("+ {line}");
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "`{line}` failed: {}",
        output.status
    );
    let mut programs = programs(&String::from_utf8(output.stdout)?)?;
    ensure!(!programs.is_empty(), "cargo has built no test program");
    // Those of libraries first: some of them take minutes, and the last should not be one of them.
    programs.sort_by_key(|program| (!program.name.ends_with("--lib"), program.name.clone()));
    Ok(programs)
}

/// Those that cargo tells of, a message a line.
fn programs(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for message in messages.lines() {
        let message: Value = serde_json::from_str(message).context("a message of cargo's")?;
        if message["profile"]["test"] != true {
            continue;
        }
        let Some(path) = message["executable"].as_str() else {
            continue;
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let target = &message["target"];
        let (kind, name) = (text(&target["kind"][0]), text(&target["name"]));
        let target = match kind.as_str() {
            "test" | "bin" | "bench" | "example" => format!("--{kind} {name}"),
            _ => "--lib".to_owned(),
        };
        let package = text(&message["package_id"]);
        let manifest = PathBuf::from(text(&message["manifest_path"]));
        programs.push(Program {
            name: format!("-p {} {target}", package_name(&package)),
            path: path.into(),
            folder: manifest.parent().unwrap_or(Path::new(".")).to_owned(),
        });
    }
    Ok(programs)
}

/// The name in an identifier of a package: `path+file:///folder/name#0.1.0` or `path+file:///folder#name@0.1.0`.
fn package_name(identifier: &str) -> &str {
    let (path, fragment) = identifier.rsplit_once('#').unwrap_or(("", identifier));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

/// Runs all and prints what each has written once it has ended.
pub(crate) fn run(programs: &[Program]) -> Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let take_turns = || -> Result<()> {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (outcome, written) = program.run()?;
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            let mut stdout = stdout().lock();
            writeln!(stdout, "     Running {}", program.name)?;
            stdout.write_all(&written)?;
            outcomes.push(outcome);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(take_turns)).collect();
        running.into_iter().try_for_each(|running| {
            running
                .join()
                .unwrap_or_else(|_| bail!("a thread that runs tests has panicked"))
        })
    })?;
    Ok(outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

impl Program {
    /// Runs it, and gives besides what it has written.
    fn run(&self) -> Result<(Outcome, Vec<u8>)> {
        let start = Instant::now();
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        // One pipe for both, so that lines come in the order in which they were written.
        let (mut reader, writer) = pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        // Its ends of the pipe are the only ones now: reading ends when all who write have.
        drop(command);
        let mut written = Vec::new();
        reader.read_to_end(&mut written)?;
        let status = child.wait()?;
        let mut failed = self.failed(&String::from_utf8_lossy(&written));
        if !status.success() && failed.is_empty() {
            let name = &self.name;
            failed.push(format!("{name}: it ended before its tests did: {status}"));
        }
        let outcome = Outcome {
            name: self.name.clone(),
            took: start.elapsed(),
            failed,
        };
        Ok((outcome, written))
    }

    /// Its tests that have failed, by what it has written.
    fn failed(&self, written: &str) -> Vec<String> {
        let failed = written
            .lines()
            .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        failed
            .map(|test| format!("{}: {test}", self.name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_known_by_their_messages() {
        let messages = r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/t/tool","target":{"kind":["bin"],"name":"tool"},"package_id":"path+file:///w/tool#0.1.0","manifest_path":"/w/tool/Cargo.toml"}
{"reason":"compiler-artifact","profile":{"test":true},"executable":"/t/deps/store-1","target":{"kind":["lib"],"name":"sapwood_store"},"package_id":"path+file:///w/crates/store#sapwood-store@0.1.0","manifest_path":"/w/crates/store/Cargo.toml"}
{"reason":"compiler-artifact","profile":{"test":true},"executable":"/t/deps/kill-1","target":{"kind":["test"],"name":"kill"},"package_id":"path+file:///w/crates/sapwood#0.1.0","manifest_path":"/w/crates/sapwood/Cargo.toml"}
{"reason":"build-finished","success":true}"#;
        let program = |name: &str, path: &str, folder: &str| Program {
            name: name.to_owned(),
            path: path.into(),
            folder: folder.into(),
        };
        assert_eq!(
            programs(messages).unwrap(),
            [
                program(
                    "-p sapwood-store --lib",
                    "/t/deps/store-1",
                    "/w/crates/store"
                ),
                program(
                    "-p sapwood --test kill",
                    "/t/deps/kill-1",
                    "/w/crates/sapwood"
                ),
            ]
        );
        assert!(programs("no message").is_err());
    }

    #[test]
    fn every_failure_is_told_with_its_program() {
        let program = |path: &str| Program {
            name: "-p a --lib".to_owned(),
            path: path.into(),
            folder: "/".into(),
        };
        let written = "test one ... ok\n\
            test deep::two ... FAILED\n\
            test three ... FAILED\n\
            failures:\n    deep::two\n";
        assert_eq!(
            program("").failed(written),
            ["-p a --lib: deep::two", "-p a --lib: three"]
        );
        let outcomes = run(&[program("true"), program("false"), program("true")]).unwrap();
        let failed: Vec<String> = outcomes
            .into_iter()
            .flat_map(|outcome| outcome.failed)
            .collect();
        let ended_early = "-p a --lib: it ended before its tests did: exit status: 1";
        assert_eq!(failed, [ended_early]);
        assert!(run(&[program("/no/such/program")]).is_err());
    }
}
