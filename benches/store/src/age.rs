//! A long life: records that change, come and go for minutes, beside a reader that stays too, and what the files take
//! on the disk meanwhile. `--row age` runs it, and nothing else does: it takes an hour for each engine.
//!
//! All commits are durable, of a hundred changes each. The log is a column of its own.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sapwood_figures::machine;

use crate::data::{Data, Input, Random, Sum, VALUE_BYTES};
use crate::engine::{Engine, Kind};
use crate::measure::disk_bytes;

const BATCH: u32 = 100;

/// How often the files are looked at in each phase: a character of the plot each.
const LOOKS: u32 = 60;

/// How long nobody does anything, before the files have to be small.
const REST: Duration = Duration::from_secs(60);

const MIB: u64 = 1 << 20;

/// What each engine goes through.
pub(crate) struct Age<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) records: u32,
    pub(crate) seed: u64,
    /// How long each phase takes.
    pub(crate) phase: Duration,
    pub(crate) cache_bytes: usize,
}

#[derive(Clone, Copy)]
enum Changes {
    Uniform,
    /// A record is the more likely the lower its number: the first tenth gets a third of the changes.
    Skewed,
    /// A record that is there goes, one that is not comes.
    AddsAndDeletes,
}

/// What a phase has to keep to.
#[derive(Clone, Copy)]
enum Bound {
    None,
    WhileWritten,
    AtRest,
    Empty,
}

impl Bound {
    /// In bytes.
    fn most(self, fresh: u64) -> Option<u64> {
        match self {
            Bound::None => None,
            Bound::WhileWritten => Some(3 * fresh + 64 * MIB),
            Bound::AtRest => Some(fresh + fresh / 2),
            Bound::Empty => Some(16 * MIB),
        }
    }
}

struct Phase {
    name: &'static str,
    bound: Bound,
    changes: u64,
    time: Duration,
    /// Of the data, one after the other.
    sizes: Vec<u64>,
    log_bytes: u64,
}

impl Phase {
    /// What counts: the largest size while there are changes, the last one otherwise.
    fn size(&self) -> u64 {
        let size = match self.bound {
            Bound::None | Bound::WhileWritten => self.sizes.iter().max(),
            Bound::AtRest | Bound::Empty => self.sizes.last(),
        };
        size.copied().unwrap_or_default()
    }
}

/// The records as they should be.
struct Records {
    data: Data,
    versions: Vec<Option<u32>>,
    newest: u32,
    random: Random,
}

impl Records {
    /// The next changes: numbers, and versions to be stored.
    fn next(&mut self, changes: Changes) -> Vec<(u32, Option<u32>)> {
        self.newest += 1;
        let count = u64::from(self.data.records);
        let mut next = Vec::with_capacity(BATCH as usize);
        for _ in 0..BATCH {
            let below = match changes {
                Changes::Skewed => self.random.below(count) + 1,
                _ => count,
            };
            let number = self.random.below(below) as u32;
            let version = &mut self.versions[number as usize];
            let is_there = version.is_some();
            *version = match changes {
                Changes::AddsAndDeletes if is_there => None,
                _ => Some(self.newest),
            };
            next.push((number, *version));
        }
        next
    }

    /// What is still there, to be deleted: at most as many as one transaction deletes, from a number on.
    fn rest(&mut self, from: &mut usize) -> Vec<(u32, Option<u32>)> {
        let mut next = Vec::new();
        while let Some(version) = self.versions.get_mut(*from)
            && next.len() < BATCH as usize
        {
            if version.take().is_some() {
                next.push((*from as u32, None));
            }
            *from += 1;
        }
        next
    }
}

fn write(engine: &dyn Engine, data: &Data, changes: &[(u32, Option<u32>)]) -> Result<()> {
    engine.write(true, &mut |writer| {
        changes.iter().try_for_each(|(number, version)| {
            let key = data.key(*number);
            match version {
                Some(version) => writer.put(&key, data.value(*number, *version)),
                None => writer.remove(&key),
            }
        })
    })
}

/// The files of one engine.
struct Files<'a> {
    folder: &'a Path,
    engine: &'a dyn Engine,
}

impl Files<'_> {
    fn data_bytes(&self) -> Result<u64> {
        disk_bytes(self.folder, &|name| self.engine.is_log(name))
    }

    fn log_bytes(&self) -> Result<u64> {
        disk_bytes(self.folder, &|name| !self.engine.is_log(name))
    }

    /// Calls `step` until it has nothing more to do or the time is over, and looks at the files meanwhile.
    fn phase(
        &self,
        name: &'static str,
        bound: Bound,
        time: Option<Duration>,
        mut step: impl FnMut() -> Result<u64>,
    ) -> Result<Phase> {
        let between = time.unwrap_or(REST) / LOOKS;
        let (start, mut looked) = (Instant::now(), Duration::ZERO);
        let (mut changes, mut sizes) = (0, Vec::new());
        loop {
            let done = step()?;
            changes += done;
            let passed = start.elapsed();
            if passed >= looked + between {
                looked = passed;
                sizes.push(self.data_bytes()?);
            }
            if time.is_none() && done == 0 || time.is_some_and(|time| passed >= time) {
                break;
            }
        }
        sizes.push(self.data_bytes()?);
        let phase = Phase {
            name,
            bound,
            changes,
            time: start.elapsed(),
            sizes,
            log_bytes: self.log_bytes()?,
        };
        eprintln!("{name}: {} MiB", phase.size() / MIB);
        Ok(phase)
    }

    fn rest(&self, name: &'static str, bound: Bound) -> Result<Phase> {
        self.phase(name, bound, Some(REST), || {
            std::thread::sleep(REST / LOOKS);
            Ok(0)
        })
    }
}

impl Age<'_> {
    /// All engines, one after the other; a table and a plot.
    pub(crate) fn run(&self, engines: &[Kind]) -> Result<String> {
        let mut out = String::new();
        let header = "| engine | phase | changes/s | size, MiB | × fresh | at most | log, MiB | sizes over time |";
        let _ = writeln!(out, "{} records; {}\n\n{header}", self.records, machine());
        let _ = writeln!(
            out,
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
        );
        for kind in engines {
            let folder = self.folder.join(kind.to_string());
            fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
            let phases = self.life(*kind, &folder)?;
            let fresh = phases.first().map_or(0, Phase::size);
            let highest = phases.iter().flat_map(|phase| &phase.sizes).max();
            for phase in &phases {
                let line = line(phase, fresh, highest.copied().unwrap_or_default());
                let _ = writeln!(out, "| {kind} | {line} |");
            }
            fs::remove_dir_all(&folder)?;
        }
        Ok(out)
    }

    fn life(&self, kind: Kind, folder: &PathBuf) -> Result<Vec<Phase>> {
        let engine = kind.open_with_defaults(folder, self.cache_bytes)?;
        let engine = &*engine;
        let files = Files { folder, engine };
        let data = Data::new(self.seed, self.records, VALUE_BYTES);
        let order = data.in_order();
        let mut records = Records {
            versions: vec![Some(0); self.records as usize],
            data,
            newest: 0,
            random: Random::new(self.seed),
        };
        let mut phases = Vec::new();
        let input = Input {
            data: &records.data,
            in_order: Some(&order),
        };
        engine.bulk(&input)?;
        engine.settle()?;
        phases.push(files.phase("fresh", Bound::None, None, || Ok(0))?);
        let some = |records: &mut Records, changes| {
            let next = records.next(changes);
            write(engine, &records.data, &next)?;
            Ok(next.len() as u64)
        };
        let time = Some(self.phase);
        for (name, changes) in [
            ("uniform overwrites", Changes::Uniform),
            ("skewed overwrites", Changes::Skewed),
        ] {
            let step = || some(&mut records, changes);
            phases.push(files.phase(name, Bound::WhileWritten, time, step)?);
        }
        if !kind.keeps_old_states_in_its_cache() {
            let (first, version) = (records.data.key(0), records.versions[0]);
            let mut expected = Sum::default();
            if let Some(version) = version {
                expected.add_value(records.data.value(0, version));
            }
            let mut overwrites = None;
            engine.read(&mut |reader| {
                // From the first read on, the transaction sees one state.
                let mut sum = Sum::default();
                reader.get(&first, &mut sum)?;
                let step = || some(&mut records, Changes::Uniform);
                let work = || files.phase("overwrites beside a reader", Bound::None, time, step);
                // A thread has one transaction at a time.
                overwrites = Some(std::thread::scope(|scope| {
                    scope.spawn(work).join().expect("changes do not panic")
                })?);
                let mut again = Sum::default();
                reader.get(&first, &mut again)?;
                ensure!(sum == expected && again == expected, "{again:?} was read");
                Ok(())
            })?;
            phases.extend(overwrites);
        }
        let step = || some(&mut records, Changes::Uniform);
        phases.push(files.phase("overwrites, once it is gone", Bound::None, time, step)?);
        phases.push(files.rest("a minute of rest", Bound::AtRest)?);
        let step = || some(&mut records, Changes::AddsAndDeletes);
        phases.push(files.phase("adds and deletes", Bound::WhileWritten, time, step)?);
        verify(engine, &records)?;
        let mut from = 0;
        phases.push(files.phase("all are deleted", Bound::None, None, || {
            let next = records.rest(&mut from);
            write(engine, &records.data, &next)?;
            Ok(next.len() as u64)
        })?);
        phases.push(files.rest("a minute of rest, empty", Bound::Empty)?);
        verify(engine, &records)?;
        Ok(phases)
    }
}

/// Compares everything that is there with everything that should be.
fn verify(engine: &dyn Engine, records: &Records) -> Result<()> {
    let mut expected = Sum::default();
    for (number, version) in (0..).zip(&records.versions) {
        if let Some(version) = version {
            let value = records.data.value(number, *version);
            expected.add(&records.data.key(number), value);
        }
    }
    let mut sum = Sum::default();
    engine.read(&mut |reader| {
        sum = Sum::default();
        reader.scan(&[0], u64::MAX >> 1, &mut sum)
    })?;
    ensure!(
        sum == expected,
        "there is {sum:?} where {expected:?} should be"
    );
    Ok(())
}

fn line(phase: &Phase, fresh: u64, highest: u64) -> String {
    let size = phase.size();
    let rate = match phase.changes {
        0 => String::new(),
        changes => format!("{:.0}", changes as f64 / phase.time.as_secs_f64()),
    };
    let bound = match phase.bound.most(fresh) {
        None => String::new(),
        Some(most) if size <= most => format!("{}, met", most / MIB),
        Some(most) => format!("{}, **missed**", most / MIB),
    };
    format!(
        "{} | {rate} | {} | {:.2} | {bound} | {} | `{}`",
        phase.name,
        size / MIB,
        size as f64 / fresh.max(1) as f64,
        phase.log_bytes / MIB,
        plot(&phase.sizes, highest),
    )
}

/// A column for each size, as high as it is of the highest of all.
fn plot(sizes: &[u64], highest: u64) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let heights = sizes.iter().map(|size| {
        let height = size * HEIGHTS.len() as u64 / highest.max(1);
        HEIGHTS[(height as usize).min(HEIGHTS.len() - 1)]
    });
    heights.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_as_high_as_the_highest_of_all() {
        assert_eq!(plot(&[0, 10, 20, 40, 80], 80), "▁▂▃▅█");
        assert_eq!(plot(&[0], 0), "▁");
    }

    #[test]
    fn while_it_is_written_to_the_largest_size_counts() {
        let phase = |bound| Phase {
            name: "a phase",
            bound,
            changes: 100,
            time: Duration::from_secs(1),
            sizes: vec![10 * MIB, 30 * MIB, 20 * MIB],
            log_bytes: 0,
        };
        let told = |bound| line(&phase(bound), 10 * MIB, 30 * MIB);
        assert!(told(Bound::WhileWritten).contains("| 30 | 3.00 | 94, met |"));
        assert!(told(Bound::AtRest).contains("| 20 | 2.00 | 15, **missed** |"));
    }
}
