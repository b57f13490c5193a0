//! Workers as processes: started together, in a memory limit if there is one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use rustix::fs::Advice;

use crate::outcome::Outcome;
use crate::worker::{Phase, Work};

/// How workers are started.
#[derive(Debug)]
pub(crate) struct Crew {
    /// The program of the peers.
    pub(crate) peers: PathBuf,
    /// The control group that workers enter.
    pub(crate) limit: Option<Limit>,
}

/// A control group that limits memory, the page cache of its members included. It is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Limit {
    folder: PathBuf,
}

impl Limit {
    /// Makes a group for so many bytes, of version 1 or 2 of control groups; `None` where the system does not let us.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let name = format!("sapwood-xact-bench-{}", std::process::id());
        for (parent, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = Path::new(parent).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let limit = Self { folder };
            if fs::write(limit.folder.join(file), bytes.to_string()).is_ok() {
                return Some(limit);
            }
        }
        None
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // It stays, empty, if a worker has not quite ended.
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Crew {
    /// Says in how much memory workers run.
    pub(crate) fn limit_text(&self, mib: u64) -> String {
        match self.limit {
            Some(_) => format!("{mib} MiB of memory, page cache included"),
            None => "memory without a limit, as the system has no control groups for us".to_owned(),
        }
    }

    /// Runs one worker.
    pub(crate) fn one(&self, work: &Work) -> Result<Outcome> {
        self.together(std::slice::from_ref(work))
    }

    /// Runs workers that start at the same moment, and adds up what they measured.
    pub(crate) fn together(&self, parts: &[Work]) -> Result<Outcome> {
        let mut workers: Vec<(Child, BufReader<_>)> = Vec::new();
        for work in parts {
            let mut worker = self
                .command(work)?
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("cannot start a worker for {}", work.engine.name()))?;
            let output = worker.stdout.take().context("a worker without output")?;
            workers.push((worker, BufReader::new(output)));
        }
        let mut line = String::new();
        for (_, output) in &mut workers {
            line.clear();
            output.read_line(&mut line)?;
            ensure!(
                line.trim() == "ready",
                "a worker has failed to begin: {line}"
            );
        }
        for (worker, _) in &mut workers {
            let mut input = worker.stdin.take().context("a worker without input")?;
            input.write_all(b"go\n")?;
        }
        let mut sum: Option<Outcome> = None;
        for (mut worker, mut output) in workers {
            line.clear();
            output.read_line(&mut line)?;
            ensure!(worker.wait()?.success(), "a worker has failed");
            let outcome: Outcome = line.parse()?;
            sum = Some(match sum {
                Some(sum) => sum.with(&outcome),
                None => outcome,
            });
        }
        sum.context("no workers")
    }

    fn command(&self, work: &Work) -> Result<Command> {
        let program = if work.engine.is_peer() {
            self.peers.clone()
        } else {
            std::env::current_exe()?
        };
        let mut command = match &self.limit {
            None => Command::new(&program),
            Some(limit) => {
                // The shell enters the group and becomes the worker.
                let mut shell = Command::new("sh");
                let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
                shell.args(["-c", enter]).arg(&limit.folder).arg(&program);
                shell
            }
        };
        if !work.engine.is_peer() {
            command.arg("worker").args(work.how.arguments());
        }
        command
            .arg(work.engine.name())
            .arg(phase_name(work.phase))
            .arg(&work.folder)
            .args([work.first, work.count, work.total, work.cache_bytes].map(|n| n.to_string()));
        Ok(command)
    }
}

fn phase_name(phase: Phase) -> String {
    phase
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Writes the files of a folder to the disk and lets the system forget what it caches of them, so that the next worker
/// begins cold.
pub(crate) fn forget(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
            continue;
        }
        let file = fs::File::open(&path).with_context(|| path.display().to_string())?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}
