//! More data than memory: each engine within a third of what its data take on the disk, page cache included, with the
//! disk set as it is. `--row larger` runs it, and nothing else does: it needs a control group that limits memory.
//!
//! Records are loaded without a limit. Each row then runs in a process of its own, in the group, from a cold start:
//! some seconds that are not counted, and as many that are. An engine with a cache of its own gets half of the memory.
//! All that is read is compared with what was written.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use sapwood_figures::{DiskReads, Limit, forget, machine};

use crate::data::{Data, Input, Random, Sum, VALUE_BYTES};
use crate::engine::{Engine, Kind};
use crate::measure::disk_bytes;

/// How long each row warms up, and is then measured.
const TIME: Duration = Duration::from_secs(5);

/// Reads, or ranges, of one transaction.
const OF_ONE: u64 = 16;

/// Records of a range.
const RANGE: u64 = 10;

/// A key before all others.
const FIRST: &[u8] = &[0];

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Task {
    Reads,
    Ranges,
    /// Once, from the beginning to the end.
    Scan,
    /// Of one record, durable.
    Commits,
}

/// Name, what is done, by how many threads.
const ROWS: &[(&str, Task, u32)] = &[
    ("random reads, 1 thread, /s", Task::Reads, 1),
    ("random reads, 8 threads, /s", Task::Reads, 8),
    ("range reads of 10, /s", Task::Ranges, 1),
    ("full scan, records/s", Task::Scan, 1),
    (
        "durable commits of one record, 1 thread, /s",
        Task::Commits,
        1,
    ),
    (
        "durable commits of one record, 8 threads, /s",
        Task::Commits,
        8,
    ),
];

/// One row of one engine, in the group.
#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    engine: Kind,
    task: Task,
    threads: u32,
    records: u32,
    seed: u64,
    cache_bytes: usize,
    folder: PathBuf,
    /// The engine tells the system that accesses jump, if it has a setting for that.
    #[arg(long)]
    no_read_ahead: bool,
}

impl Work {
    /// Prints operations per second, KiB read and pages waited for by each.
    pub(crate) fn run(&self) -> Result<()> {
        let data = Data::new(self.seed, self.records, VALUE_BYTES);
        let engine = match self.no_read_ahead {
            true => self.engine.open_without_read_ahead(&self.folder)?,
            false => self.engine.open(&self.folder, self.cache_bytes)?,
        };
        let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let reads = || DiskReads::of(std::process::id()).unwrap_or_default();
        let (mut start, mut before) = (Instant::now(), reads());
        let scan = std::thread::scope(|scope| -> Result<Duration> {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (engine, data, over, done) = (&*engine, &data, &over, &done);
                    scope.spawn(move || self.one(thread, engine, data, over, done))
                })
                .collect();
            if self.task != Task::Scan {
                std::thread::sleep(TIME);
                (start, before) = (Instant::now(), reads());
                done.store(0, Ordering::Relaxed);
                std::thread::sleep(TIME);
                over.store(true, Ordering::Relaxed);
            }
            let mut longest = Duration::ZERO;
            for thread in threads {
                longest = longest.max(thread.join().expect("a worker does not panic")?);
            }
            Ok(longest)
        })?;
        let seconds = match self.task {
            Task::Scan => scan,
            _ => start.elapsed(),
        };
        let (seconds, reads) = (seconds.as_secs_f64(), reads().since(before));
        let done = done.load(Ordering::Relaxed) as f64;
        let kib = reads.bytes as f64 / 1024.0 / done;
        println!("{} {} {}", done / seconds, kib, reads.waits as f64 / done);
        Ok(())
    }

    /// What one thread does until it is over, and how long its last transaction has taken.
    fn one(
        &self,
        thread: u32,
        engine: &dyn Engine,
        data: &Data,
        over: &AtomicBool,
        done: &AtomicU64,
    ) -> Result<Duration> {
        let records = u64::from(self.records);
        let mut random = Random::new(self.seed + u64::from(thread) + 1);
        let mut took = Duration::ZERO;
        while !over.load(Ordering::Relaxed) {
            let start = Instant::now();
            let (mut sum, mut expected) = (Sum::default(), Sum::default());
            let numbers: Vec<u32> = (0..OF_ONE).map(|_| random.below(records) as u32).collect();
            match self.task {
                Task::Reads => {
                    engine.read(&mut |reader| {
                        let mut keys = numbers.iter().map(|number| data.key(*number));
                        keys.try_for_each(|key| reader.get(&key, &mut sum))
                    })?;
                    let values = numbers.iter().map(|number| data.value(*number, 0));
                    values.for_each(|value| expected.add_value(value));
                    ensure!(sum == expected, "read {sum:?}");
                }
                Task::Ranges => engine.read(&mut |reader| {
                    let mut keys = numbers.iter().map(|number| data.key(*number));
                    keys.try_for_each(|key| reader.scan(&key, RANGE, &mut sum))
                })?,
                Task::Scan => {
                    engine.read(&mut |reader| reader.scan(FIRST, u64::MAX >> 1, &mut sum))?;
                    took = start.elapsed();
                    for number in 0..self.records {
                        expected.add(&data.key(number), data.value(number, 0));
                    }
                    ensure!(sum == expected, "read {sum:?}");
                    done.store(records, Ordering::Relaxed);
                    break;
                }
                Task::Commits => {
                    for number in numbers {
                        engine.write(true, &mut |writer| {
                            writer.put(&data.key(number), data.value(number, 1))
                        })?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    continue;
                }
            }
            done.fetch_add(OF_ONE, Ordering::Relaxed);
            took = start.elapsed();
        }
        Ok(took)
    }
}

/// What a row gave.
struct Outcome {
    rate: f64,
    kib: f64,
    waits: f64,
}

/// The rows of these engines as a table.
pub(crate) fn run(parent: &Path, engines: &[Kind], records: u32, seed: u64) -> Result<String> {
    let mut columns = Vec::new();
    for kind in engines {
        let folder = parent.join(kind.to_string());
        fs::create_dir(&folder)?;
        let data = Data::new(seed, records, VALUE_BYTES);
        let engine = kind.open(&folder, crate::cache_bytes(records))?;
        let in_order = None;
        let data = &data;
        engine.bulk(&Input { data, in_order })?;
        engine.settle()?;
        let bytes = disk_bytes(&folder, &|name| engine.is_log(name))?;
        drop(engine);
        let limit = Limit::new("bench-store", bytes / 3);
        let limit = limit.context("the system lets us make no control group that limits memory")?;
        for no_read_ahead in [false, true] {
            if no_read_ahead && !kind.has_read_ahead() {
                continue;
            }
            let name = match no_read_ahead {
                true => format!("{kind}, no read-ahead"),
                false => kind.to_string(),
            };
            let mut outcomes = Vec::new();
            for (row, task, threads) in ROWS {
                forget(&folder)?;
                let work = Work {
                    engine: *kind,
                    task: *task,
                    threads: *threads,
                    records,
                    seed,
                    cache_bytes: (bytes / 6) as usize,
                    folder: folder.clone(),
                    no_read_ahead,
                };
                let outcome = within(&limit, &work).with_context(|| format!("{name}: {row}"))?;
                eprintln!("{name}: {row}: {:.0}", outcome.rate);
                outcomes.push(outcome);
            }
            columns.push((name, bytes, outcomes));
        }
        fs::remove_dir_all(&folder)?;
    }
    Ok(table(records, &columns))
}

/// Has a process in the group do the work.
fn within(limit: &Limit, work: &Work) -> Result<Outcome> {
    let [shell, arguments @ ..] = limit.command();
    let task = work.task.to_possible_value();
    let task = task.map_or_else(String::new, |task| task.get_name().to_owned());
    let mut command = Command::new(shell);
    command.args(arguments).arg(std::env::current_exe()?);
    command.args(["larger-work", &work.engine.to_string(), &task]);
    command.args([u64::from(work.threads), work.records.into(), work.seed].map(|n| n.to_string()));
    command.arg(work.cache_bytes.to_string()).arg(&work.folder);
    if work.no_read_ahead {
        command.arg("--no-read-ahead");
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "it has ended: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let numbers = text.split_ascii_whitespace().map(str::parse);
    match numbers.collect::<Result<Vec<f64>, _>>()?[..] {
        [rate, kib, waits] => Ok(Outcome { rate, kib, waits }),
        _ => bail!("it has printed {text:?}"),
    }
}

fn table(records: u32, columns: &[(String, u64, Vec<Outcome>)]) -> String {
    let mut out = format!(
        "{records} records, each engine in a third of what its data take; {}; KiB read / pages waited for by each\n\n|",
        machine()
    );
    // Writing to a string does not fail.
    for (name, bytes, _) in columns {
        let _ = write!(out, " | {name} ({} MiB)", bytes >> 20);
    }
    let _ = writeln!(out, " |\n| ---{} |", " | ---:".repeat(columns.len()));
    for (place, (row, ..)) in ROWS.iter().enumerate() {
        let _ = write!(out, "| {row}");
        for (_, _, outcomes) in columns {
            let Outcome { rate, kib, waits } = &outcomes[place];
            let _ = write!(out, " | {rate:.0}; {kib:.1} / {waits:.2}");
        }
        let _ = writeln!(out, " |");
    }
    out
}
