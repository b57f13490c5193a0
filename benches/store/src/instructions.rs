//! Instructions for a get and a put, counted by callgrind: a count does not depend on what else the machine does.
//!
//! The records are loaded by this process. Then this program runs under callgrind twice, with few operations and with
//! many, in one transaction; the difference is what the operations take, without opening and closing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::data::{Data, Input, Random, Sum, VALUE_BYTES};
use crate::engine::Kind;

const FEW: u32 = 2_000;
const MANY: u32 = 12_000;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Operation {
    Get,
    /// Of a record that is there, in one durable transaction, with its share of the commit.
    Put,
}

/// One run under callgrind.
#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    engine: Kind,
    operation: Operation,
    count: u32,
    records: u32,
    seed: u64,
    cache_bytes: usize,
    folder: std::path::PathBuf,
}

impl Work {
    pub(crate) fn run(&self) -> Result<()> {
        let data = Data::new(self.seed, self.records, VALUE_BYTES);
        let engine = self.engine.open(&self.folder, self.cache_bytes)?;
        let mut random = Random::new(self.seed);
        let end = u64::from(self.records);
        let mut next = || random.below(end) as u32;
        match self.operation {
            Operation::Get => {
                let (mut sum, mut expected) = (Sum::default(), Sum::default());
                engine.read(&mut |reader| {
                    (0..self.count).try_for_each(|_| {
                        let number = next();
                        expected.add_value(data.value(number, 0));
                        reader.get(&data.key(number), &mut sum)
                    })
                })?;
                ensure!(sum == expected, "read {sum:?}");
                Ok(())
            }
            Operation::Put => engine.write(true, &mut |writer| {
                (0..self.count).try_for_each(|_| {
                    let number = next();
                    writer.put(&data.key(number), data.value(number, 1))
                })
            }),
        }
    }
}

/// Prints a table for these engines.
pub(crate) fn run(
    parent: &Path,
    engines: &[Kind],
    records: u32,
    seed: u64,
    cache_bytes: usize,
) -> Result<()> {
    println!("{records} records; instructions for each operation\n");
    println!("| | get | put, in a transaction of {MANY} |");
    println!("| --- | ---: | ---: |");
    for kind in engines {
        let folder = parent.join(kind.to_string());
        fs::create_dir(&folder)?;
        let data = Data::new(seed, records, VALUE_BYTES);
        let engine = kind.open(&folder, cache_bytes)?;
        let in_order = None;
        let data = &data;
        engine.bulk(&Input { data, in_order })?;
        engine.settle()?;
        drop(engine);
        let count = |operation: Operation, count: u32| -> Result<u64> {
            let names = [kind.to_possible_value(), operation.to_possible_value()];
            let names = names.into_iter().flatten();
            let numbers = [count.to_string(), records.to_string(), seed.to_string()];
            let counts = parent.join("counts");
            let status = Command::new("valgrind")
                .args(["--tool=callgrind", "--quiet"])
                .arg(format!("--callgrind-out-file={}", counts.display()))
                .arg(std::env::current_exe()?)
                .arg("work")
                .args(names.map(|name| name.get_name().to_owned()))
                .args(numbers)
                .arg(cache_bytes.to_string())
                .arg(&folder)
                .status()
                .context("valgrind is needed to count instructions")?;
            ensure!(status.success(), "{kind}: {operation:?} failed");
            total(&counts)
        };
        let each = |operation| -> Result<u64> {
            let difference = count(operation, MANY)?.saturating_sub(count(operation, FEW)?);
            Ok(difference / u64::from(MANY - FEW))
        };
        let (get, put) = (each(Operation::Get)?, each(Operation::Put)?);
        println!("| {kind} | {get} | {put} |");
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// The instructions of a file of counts.
fn total(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    for name in ["summary:", "totals:"] {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        if let Some(number) = line.and_then(|line| line.split_ascii_whitespace().next()) {
            return number.parse().context("the counts have no number");
        }
    }
    bail!("{} has no sum", file.display())
}
