//! Workers as processes: started together, in a memory limit if there is one.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use sapwood_figures::Limit;

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
                let [shell, arguments @ ..] = limit.command();
                let mut command = Command::new(shell);
                command.args(arguments).arg(&program);
                command
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
