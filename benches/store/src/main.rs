//! The store beside other embedded key-value stores: the same records, the same work, in turns, on this machine and
//! this disk; everything that is read is compared with what it should be. `cargo xtask bench store` builds what is
//! needed and runs it.

mod age;
mod data;
mod engine;
mod engines;
mod instructions;
mod larger;
mod measure;
mod report;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

use crate::age::Age;
use crate::data::{Data, Random, VALUE_BYTES};
use crate::engine::Kind;
use crate::measure::{Disk, Meter};
use crate::report::{Line, Who};
use crate::rows::{LATENCIES, ROWS, Row, Stage, Subject};

/// Overwrites with which the disk is measured, each round.
const OVERWRITES: u64 = 1_000;

/// Measure the store beside its peers.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Records; with several numbers all rows are measured for each
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1000000"
    )]
    records: Vec<u32>,
    /// Rounds; the engines take turns, and the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only rows whose name contains this, or one of several given; two that run only if they are named: `age`, what
    /// the files take on the disk in the course of a long life, and `larger`, reads, scans and commits within a third
    /// of the memory that the data take
    #[arg(long, value_name = "TEXT")]
    row: Vec<String>,
    /// How long each phase of the row `age` takes, in seconds
    #[arg(long, value_name = "N", default_value_t = 600)]
    age_seconds: u32,
    /// Only these engines
    #[arg(long, value_name = "ENGINE,...", value_delimiter = ',')]
    engines: Vec<Kind>,
    /// What the records and their order are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where data goes: on the disk whose durability counts; a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Count the instructions of a get and a put, under callgrind
    Instructions {
        /// Records; fewer than elsewhere, since callgrind is slow
        #[arg(long, value_name = "N", default_value_t = 200_000)]
        records: u32,
        /// Only these engines
        #[arg(long, value_name = "ENGINE,...", value_delimiter = ',')]
        engines: Vec<Kind>,
    },
    /// What callgrind runs
    #[command(hide = true)]
    Work(instructions::Work),
    /// What runs in less memory than data
    #[command(hide = true)]
    LargerWork(larger::Work),
}

fn main() -> Result<()> {
    let options = Options::parse();
    match &options.command {
        Some(Command::Work(work)) => return work.run(),
        Some(Command::LargerWork(work)) => return work.run(),
        Some(Command::Instructions { records, engines }) => {
            let folder = Folder::create(&options.folder, "bench-store-instructions")?;
            let engines = wanted(engines);
            let cache_bytes = cache_bytes(*records);
            return instructions::run(&folder.path, &engines, *records, options.seed, cache_bytes);
        }
        None => {}
    }
    ensure!(options.rounds > 0, "at least one round");
    let folder = Folder::create(&options.folder, "bench-store")?;
    let mut disk = Disk::new(&folder.path)?;
    for records in &options.records {
        ensure!(*records >= 1_000, "at least 1000 records");
        let engines = wanted(&options.engines);
        if options.row == ["age"] {
            let age = Age {
                folder: &folder.path,
                records: *records,
                seed: options.seed,
                phase: Duration::from_secs(options.age_seconds.into()),
                cache_bytes: cache_bytes(*records),
            };
            println!("{}", age.run(&engines)?);
            continue;
        }
        if options.row == ["larger"] {
            let table = larger::run(&folder.path, &engines, *records, options.seed)?;
            println!("{table}");
            continue;
        }
        let run = Run {
            folder: &folder.path,
            options: &options,
            records: *records,
            engines: &engines,
        };
        let lines = run.all(&mut disk)?;
        println!("{}", report::markdown(*records, &engines, &lines));
    }
    Ok(())
}

/// All engines, unless some are named.
fn wanted(engines: &[Kind]) -> Vec<Kind> {
    match engines {
        [] => Kind::value_variants().to_vec(),
        some => some.to_vec(),
    }
}

/// Twice what the records take.
fn cache_bytes(records: u32) -> usize {
    (records as usize * 400).max(64 << 20)
}

/// All rows for one number of records.
struct Run<'r> {
    folder: &'r Path,
    options: &'r Options,
    records: u32,
    engines: &'r [Kind],
}

impl Run<'_> {
    fn all(&self, disk: &mut Disk) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for stage in [
            Stage::Empty,
            Stage::Empty4KiB,
            Stage::Empty100KiB,
            Stage::Loaded,
        ] {
            let wanted: Vec<&'static Row> = ROWS
                .iter()
                .filter(|row| row.stage == stage && self.is_wanted(row))
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let data = self.data(stage);
            let order: Arc<[u32]> = data.in_order().into();
            if stage == Stage::Loaded {
                let mut subjects = Vec::new();
                for kind in self.engines {
                    let mut subject = self.subject(*kind, &data, &order)?;
                    subject.load(true, false)?;
                    subject.engine.settle()?;
                    subject.verify()?;
                    subjects.push(subject);
                }
                for row in wanted {
                    lines.push(self.loaded(row, &mut subjects, disk)?);
                }
            } else {
                for row in wanted {
                    lines.push(self.empty(row, &data, &order)?);
                }
            }
        }
        Ok(lines)
    }

    fn is_wanted(&self, row: &Row) -> bool {
        let texts = &self.options.row;
        texts.is_empty() || texts.iter().any(|text| row.name.contains(text.as_str()))
    }

    fn data(&self, stage: Stage) -> Arc<Data> {
        // As many bytes as an eighth of the usual records.
        let bytes = u64::from(self.records) * (*VALUE_BYTES.end() as u64) / 8;
        let large = |value_bytes: usize| {
            let records = (bytes / value_bytes as u64).max(10) as u32;
            Data::new(self.options.seed, records, value_bytes..=value_bytes)
        };
        Arc::new(match stage {
            Stage::Empty | Stage::Loaded => Data::new(self.options.seed, self.records, VALUE_BYTES),
            Stage::Empty4KiB => large(4 << 10),
            Stage::Empty100KiB => large(100 << 10),
        })
    }

    fn subject(&self, kind: Kind, data: &Arc<Data>, order: &Arc<[u32]>) -> Result<Subject> {
        let folder = self.folder.join(kind.to_string());
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Subject {
            kind,
            engine: kind.open(&folder, cache_bytes(self.records))?,
            folder,
            data: data.clone(),
            order: order.clone(),
            versions: vec![None; data.records as usize],
            newest: 0,
            random: Random::new(self.options.seed),
            meter: Meter::new(self.folder)?,
            bytes_per_second: 0.0,
        })
    }

    /// Each round on new, empty engines.
    fn empty(&self, row: &'static Row, data: &Arc<Data>, order: &Arc<[u32]>) -> Result<Line> {
        let mut line = Line::new(row);
        for round in 0..self.options.rounds {
            for turn in 0..self.engines.len() {
                let kind = self.engines[(round + turn) % self.engines.len()];
                let context = || format!("{kind}: {}", row.name);
                let mut subject = self.subject(kind, data, order)?;
                let outcome = (row.run)(&mut subject).with_context(context)?;
                subject.verify().with_context(context)?;
                eprintln!("{}: {:.0}", context(), outcome.value);
                line.add(Who::Engine(kind), outcome);
                drop(subject.engine);
                fs::remove_dir_all(&subject.folder)?;
            }
        }
        Ok(line)
    }

    fn loaded(&self, row: &'static Row, subjects: &mut [Subject], disk: &mut Disk) -> Result<Line> {
        let mut line = Line::new(row);
        let count = subjects.len();
        for round in 0..self.options.rounds {
            let mut bytes_per_second = 0.0;
            for turn in 0..count {
                let subject = &mut subjects[(round + turn) % count];
                let context = format!("{}: {}", subject.kind, row.name);
                // Only ours has checkpoints.
                if row.unit == rows::Unit::Microseconds && subject.kind != Kind::Sapwood {
                    continue;
                }
                let outcome = (row.run)(subject).with_context(|| context.clone())?;
                subject.engine.settle()?;
                eprintln!("{context}: {:.0}", outcome.value);
                line.add(Who::Engine(subject.kind), outcome);
                bytes_per_second = f64::max(bytes_per_second, subject.bytes_per_second);
            }
            if row.needs_disk() {
                let outcome = match row.unit {
                    rows::Unit::Microseconds => disk.p99_beside(LATENCIES, bytes_per_second)?,
                    _ => disk.rate(OVERWRITES)?,
                };
                eprintln!("disk: {}: {:.0}", row.name, outcome.value);
                line.add(Who::Disk, outcome);
            }
        }
        Ok(line)
    }
}

/// A folder of our own, removed at the end.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn create(parent: &Path, name: &str) -> Result<Self> {
        let path = std::path::absolute(parent.join(format!("{name}-{}", std::process::id())))?;
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} was left behind: {error}", self.path.display());
        }
    }
}
