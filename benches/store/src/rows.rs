//! What is measured, a function for each row.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::data::{Data, Input, Random, Sum};
use crate::engine::{Engine, Kind};
use crate::measure::{Meter, Outcome, disk_bytes, p99};

/// One line of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) stage: Stage,
    /// What has to be reached, and what is aimed at.
    pub(crate) required: Goal,
    pub(crate) aim: Goal,
    pub(crate) run: fn(&mut Subject) -> Result<Outcome>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Operations, higher is better.
    PerSecond,
    /// Lower is better.
    MiB,
    /// Lower is better.
    Microseconds,
}

/// What the row finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// An engine without a record.
    Empty,
    /// The engine with all records, loaded in no order by its bulk way, and changed by the rows before.
    Loaded,
    /// The same with values of 4 KiB, and of 100 KiB: as many as make up the bytes of an eighth of the usual records.
    Empty4KiB,
    Empty100KiB,
}

/// So many times as good as somebody.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Goal {
    None,
    /// The best of the peers.
    Best(f64),
    Lmdb(f64),
    /// The disk's overwrites with `fdatasync`, measured in the same round.
    Disk(f64),
    /// That, and ahead of every peer.
    DiskAndFirst(f64),
}

use Goal::{Best, DiskAndFirst, Lmdb};
use Stage::{Empty, Empty4KiB, Empty100KiB, Loaded};
use Unit::{MiB, Microseconds, PerSecond};

/// The table, top down. Rows of a loaded engine find what those above have left.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row("bulk load, sorted", PerSecond, Empty, |s| s.load(true, true)).needs(Best(0.8), Best(1.0)),
    row("bulk load, random", PerSecond, Empty, |s| s.load(true, false)).needs(Best(2.0), Best(3.0)),
    row("puts in one transaction, sorted", PerSecond, Empty, |s| s.load(false, true)),
    row("puts in one transaction, random", PerSecond, Empty, |s| s.load(false, false)).needs(Lmdb(1.2), Goal::None),
    row("removals, half of the records in one transaction", PerSecond, Empty, Subject::removals).needs(Lmdb(1.2), Best(1.0)),
    row("puts of 4 KiB in one transaction", PerSecond, Empty4KiB, |s| s.load(false, false)),
    row("random reads of 4 KiB", PerSecond, Empty4KiB, Subject::load_and_read),
    row("puts of 100 KiB in one transaction", PerSecond, Empty100KiB, |s| s.load(false, false)),
    row("random reads of 100 KiB", PerSecond, Empty100KiB, Subject::load_and_read),
    // 160 MiB where LMDB has 231.
    row("file size after the random bulk load", MiB, Loaded, Subject::size).needs(Lmdb(1.44), Goal::None),
    row("begin and end of a read transaction", PerSecond, Loaded, Subject::begins).needs(Lmdb(1.0), Lmdb(1.2)),
    row("begin, one read, end", PerSecond, Loaded, Subject::begins_with_a_read),
    row("random reads, 1 thread", PerSecond, Loaded, |s| s.reads(1)).needs(Best(1.15), Best(1.4)),
    row("random reads, 2 threads", PerSecond, Loaded, |s| s.reads(2)).needs(Best(1.15), Best(1.4)),
    row("random reads, 4 threads", PerSecond, Loaded, |s| s.reads(4)),
    row("random reads, 8 threads", PerSecond, Loaded, |s| s.reads(8)),
    row("range reads of 10", PerSecond, Loaded, Subject::ranges).needs(Lmdb(1.0), Lmdb(1.2)),
    row("full scan", PerSecond, Loaded, Subject::scan).needs(Lmdb(1.0), Lmdb(1.2)),
    row("durable commits of one record, 1 thread", PerSecond, Loaded, |s| s.commits(1, 1_000)).needs(DiskAndFirst(0.9), Goal::None),
    row("durable commits of one record, 8 threads", PerSecond, Loaded, |s| s.commits(8, 4_000)).needs(Goal::Disk(3.0), Goal::Disk(4.5)),
    row("durable commits of one record, 32 threads", PerSecond, Loaded, |s| s.commits(32, 8_000)).needs(Goal::Disk(5.0), Goal::Disk(8.0)),
    row("durable batches of 1,000, records", PerSecond, Loaded, |s| s.batches(100, true)).needs(Lmdb(5.0), Lmdb(8.0)),
    row("commits of one record, not durable", PerSecond, Loaded, Subject::loose_commits).needs(Lmdb(3.0), Best(1.0)),
    row("p99 of durable commits during checkpoints", Microseconds, Loaded, Subject::during_checkpoints).needs(Goal::Disk(1.0 / 1.5), Goal::None),
    row("updates of random records, batches of 1,000, not durable", PerSecond, Loaded, Subject::updates),
    row("file size right after them", MiB, Loaded, Subject::size),
    row("file size after them, at rest", MiB, Loaded, Subject::size_at_rest).needs(Lmdb(1.0), Goal::None),
    row("the same updates beside a reader that stays", PerSecond, Loaded, Subject::updates_beside_a_reader),
    row("file size after them, beside a reader that stayed", MiB, Loaded, Subject::size),
    row("file size after online compaction", MiB, Loaded, Subject::compacted_online),
    row("file size after compaction", MiB, Loaded, Subject::compacted),
];

const fn row(
    name: &'static str,
    unit: Unit,
    stage: Stage,
    run: fn(&mut Subject) -> Result<Outcome>,
) -> Row {
    let (required, aim) = (Goal::None, Goal::None);
    Row {
        name,
        unit,
        stage,
        required,
        aim,
        run,
    }
}

impl Row {
    const fn needs(self, required: Goal, aim: Goal) -> Self {
        Row {
            required,
            aim,
            ..self
        }
    }

    /// Whether the disk itself is measured beside the engines.
    pub(crate) fn needs_disk(&self) -> bool {
        matches!(self.required, Goal::Disk(_) | Goal::DiskAndFirst(_))
    }
}

/// Updates of rows that say how many themselves.
const UPDATES_MAX: u32 = 1_000_000;
const BATCH: u32 = 1_000;
/// A key before all others. (LMDB has no empty ones.)
const FIRST: &[u8] = &[0];
/// Commits whose latency is taken.
pub(crate) const LATENCIES: u64 = 2_000;

/// An engine, and what ought to be in it.
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) folder: PathBuf,
    pub(crate) data: Arc<Data>,
    /// The numbers of all records in the order of their keys.
    pub(crate) order: Arc<[u32]>,
    /// Of each record; `None` if it is not there.
    pub(crate) versions: Vec<Option<u32>>,
    /// The newest version of any record.
    pub(crate) newest: u32,
    /// What rows choose by: each round of each row goes on where the one before ended, alike for all engines.
    pub(crate) random: Random,
    pub(crate) meter: Meter,
    /// Bytes written per second by the last row that said so.
    pub(crate) bytes_per_second: f64,
}

impl Subject {
    fn input(&self, in_order: bool) -> Input<'_> {
        Input {
            data: &self.data,
            in_order: in_order.then_some(&self.order[..]),
        }
    }

    pub(crate) fn load(&mut self, bulk: bool, in_order: bool) -> Result<Outcome> {
        let outcome = self.meter.rate(self.data.records.into(), || {
            let input = self.input(in_order);
            if bulk {
                return self.engine.bulk(&input);
            }
            self.engine.write(true, &mut |writer| {
                input.each(|key, value| writer.put(key, value))
            })
        })?;
        self.versions.fill(Some(0));
        Ok(outcome)
    }

    /// Compares everything that is there with everything that should be.
    pub(crate) fn verify(&self) -> Result<()> {
        let mut expected = Sum::default();
        for (number, version) in (0..).zip(&self.versions) {
            if let Some(version) = version {
                expected.add(&self.data.key(number), self.data.value(number, *version));
            }
        }
        let mut sum = Sum::default();
        self.engine.read(&mut |reader| {
            sum = Sum::default();
            reader.scan(FIRST, u64::MAX >> 1, &mut sum)
        })?;
        ensure!(
            sum == expected,
            "there is {sum:?} where {expected:?} should be"
        );
        Ok(())
    }

    fn pick(&mut self, count: u32) -> Vec<u32> {
        let records = u64::from(self.data.records);
        (0..count)
            .map(|_| self.random.below(records) as u32)
            .collect()
    }

    fn expected(&self, picked: &[u32]) -> Sum {
        let mut sum = Sum::default();
        for number in picked {
            if let Some(version) = self.versions[*number as usize] {
                sum.add_value(self.data.value(*number, version));
            }
        }
        sum
    }

    fn removals(&mut self) -> Result<Outcome> {
        self.load(true, false)?;
        self.engine.settle()?;
        let removed = self.data.records / 2;
        let outcome = self.meter.rate(removed.into(), || {
            self.engine.write(true, &mut |writer| {
                (0..removed).try_for_each(|number| writer.remove(&self.data.key(number)))
            })
        })?;
        self.versions[..removed as usize].fill(None);
        Ok(outcome)
    }

    fn load_and_read(&mut self) -> Result<Outcome> {
        self.load(false, false)?;
        self.engine.settle()?;
        self.reads(1)
    }

    fn size(&mut self) -> Result<Outcome> {
        self.engine.settle()?;
        let bytes = disk_bytes(&self.folder, &|name| self.engine.is_log(name))?;
        Ok(Outcome::plain(bytes as f64 / f64::from(1 << 20)))
    }

    fn size_at_rest(&mut self) -> Result<Outcome> {
        self.engine.rest()?;
        self.size()
    }

    fn begins(&mut self) -> Result<Outcome> {
        const TIMES: u64 = 1_000_000;
        self.meter.rate(TIMES, || {
            (0..TIMES).try_for_each(|_| self.engine.read(&mut |_| Ok(())))
        })
    }

    fn begins_with_a_read(&mut self) -> Result<Outcome> {
        let picked = self.pick(self.data.records.min(500_000));
        let mut sum = Sum::default();
        let outcome = self.meter.rate(picked.len() as u64, || {
            picked.iter().try_for_each(|number| {
                let key = self.data.key(*number);
                self.engine.read(&mut |reader| reader.get(&key, &mut sum))
            })
        })?;
        ensure!(sum == self.expected(&picked), "read {sum:?}");
        Ok(outcome)
    }

    fn reads(&mut self, threads: u32) -> Result<Outcome> {
        let each = (self.data.records * 2).clamp(100_000, 2_000_000) / threads;
        let picked: Vec<Vec<u32>> = (0..threads).map(|_| self.pick(each)).collect();
        let (engine, data) = (&*self.engine, &*self.data);
        let read = |picked: &[u32]| -> Result<Sum> {
            let mut sum = Sum::default();
            engine.read(&mut |reader| {
                picked
                    .iter()
                    .try_for_each(|number| reader.get(&data.key(*number), &mut sum))
            })?;
            Ok(sum)
        };
        let mut sums = Vec::new();
        let outcome = self.meter.rate((each * threads).into(), || {
            sums = in_threads(&picked, |picked| read(picked))?;
            Ok(())
        })?;
        for (sum, picked) in sums.iter().zip(&picked) {
            ensure!(*sum == self.expected(picked), "read {sum:?}");
        }
        Ok(outcome)
    }

    fn ranges(&mut self) -> Result<Outcome> {
        const RECORDS: usize = 10;
        let places = self.pick(self.data.records.min(500_000));
        let order = self.order.clone();
        let firsts: Vec<u32> = places.iter().map(|place| order[*place as usize]).collect();
        let mut sum = Sum::default();
        let outcome = self.meter.rate(firsts.len() as u64, || {
            self.engine.read(&mut |reader| {
                firsts.iter().try_for_each(|first| {
                    reader.scan(&self.data.key(*first), RECORDS as u64, &mut sum)
                })
            })
        })?;
        let mut expected = Sum::default();
        for place in places {
            for number in order[place as usize..].iter().take(RECORDS) {
                let version = self.versions[*number as usize].unwrap_or(0);
                expected.add(&self.data.key(*number), self.data.value(*number, version));
            }
        }
        ensure!(sum == expected, "read {sum:?} where {expected:?} should be");
        Ok(outcome)
    }

    fn scan(&mut self) -> Result<Outcome> {
        let mut sum = Sum::default();
        let outcome = self.meter.rate(self.data.records.into(), || {
            self.engine
                .read(&mut |reader| reader.scan(FIRST, u64::MAX >> 1, &mut sum))
        })?;
        self.verify()?;
        Ok(outcome)
    }

    /// Picks records that are about to get a new version.
    fn pick_for_update(&mut self, count: u32) -> Vec<u32> {
        self.newest += 1;
        let picked = self.pick(count);
        for number in &picked {
            self.versions[*number as usize] = Some(self.newest);
        }
        picked
    }

    /// Gives these records the newest version, in transactions of `batch`.
    fn update(&self, picked: &[u32], batch: usize, durable: bool) -> Result<()> {
        picked.chunks(batch).try_for_each(|numbers| {
            self.engine.write(durable, &mut |writer| {
                numbers.iter().try_for_each(|number| {
                    writer.put(
                        &self.data.key(*number),
                        self.data.value(*number, self.newest),
                    )
                })
            })
        })
    }

    fn commits(&mut self, threads: u32, total: u32) -> Result<Outcome> {
        let picked = self.pick_for_update(total);
        let parts: Vec<Vec<u32>> = picked
            .chunks((total / threads) as usize)
            .map(<[u32]>::to_vec)
            .collect();
        let outcome = self.meter.rate(total.into(), || {
            in_threads(&parts, |part| self.update(part, 1, true))?;
            Ok(())
        })?;
        self.verify()?;
        Ok(outcome)
    }

    fn batches(&mut self, batches: u32, durable: bool) -> Result<Outcome> {
        let picked = self.pick_for_update(batches * BATCH);
        let outcome = self.meter.rate(picked.len() as u64, || {
            self.update(&picked, BATCH as usize, durable)
        })?;
        self.verify()?;
        Ok(outcome)
    }

    fn loose_commits(&mut self) -> Result<Outcome> {
        let picked = self.pick_for_update(50_000);
        let outcome = self
            .meter
            .rate(picked.len() as u64, || self.update(&picked, 1, false))?;
        self.verify()?;
        Ok(outcome)
    }

    /// Only ours: others have no checkpoints to commit beside.
    fn during_checkpoints(&mut self) -> Result<Outcome> {
        const BETWEEN: u32 = 50;
        let picked = self.pick_for_update(LATENCIES as u32 * (BETWEEN + 1));
        let over = AtomicBool::new(false);
        let (start, written) = (Instant::now(), self.meter.written_bytes());
        let times = std::thread::scope(|scope| -> Result<Vec<Duration>> {
            let checkpoints = scope.spawn(|| -> Result<()> {
                while !over.load(Ordering::Relaxed) {
                    self.engine.settle()?;
                }
                Ok(())
            });
            let times = picked.chunks(BETWEEN as usize + 1).map(|numbers| {
                // What there is for the checkpoints to write.
                let (first, others) = numbers.split_at(1);
                self.update(others, others.len().max(1), false)?;
                let start = Instant::now();
                self.update(first, 1, true)?;
                Ok(start.elapsed())
            });
            let times: Result<Vec<Duration>> = times.collect();
            over.store(true, Ordering::Relaxed);
            checkpoints.join().expect("checkpoints do not panic")?;
            times
        })?;
        let written = self.meter.written_bytes().zip(written);
        let bytes = written.map_or(0, |(after, before)| after - before);
        self.bytes_per_second = bytes as f64 / start.elapsed().as_secs_f64();
        self.verify()?;
        Ok(Outcome::plain(p99(times).as_secs_f64() * 1e6))
    }

    fn updates(&mut self) -> Result<Outcome> {
        self.batches(self.data.records.min(UPDATES_MAX) / BATCH, false)
    }

    fn updates_beside_a_reader(&mut self) -> Result<Outcome> {
        if self.kind.keeps_old_states_in_its_cache() {
            return Ok(Outcome::plain(f64::NAN));
        }
        let probe = self.pick(10_000);
        let expected = self.expected(&probe);
        let picked = self.pick_for_update(self.data.records.min(UPDATES_MAX));
        let mut outcome = Outcome::plain(0.0);
        self.engine.read(&mut |reader| {
            let mut read = |key: &[u8], sum: &mut Sum| reader.get(key, sum);
            // From the first read on, the transaction sees one state.
            read(&self.data.key(probe[0]), &mut Sum::default())?;
            outcome = std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    self.meter.rate(picked.len() as u64, || {
                        self.update(&picked, BATCH as usize, false)
                    })
                });
                writer.join().expect("updates do not panic")
            })?;
            let mut sum = Sum::default();
            probe
                .iter()
                .try_for_each(|number| read(&self.data.key(*number), &mut sum))?;
            ensure!(sum == expected, "the old state has changed: {sum:?}");
            Ok(())
        })?;
        self.verify()?;
        Ok(outcome)
    }

    fn compacted_online(&mut self) -> Result<Outcome> {
        let compacted = self.engine.compact_online()?;
        self.size_if(compacted)
    }

    fn compacted(&mut self) -> Result<Outcome> {
        let compacted = self.engine.compact()?;
        self.size_if(compacted)
    }

    fn size_if(&mut self, compacted: bool) -> Result<Outcome> {
        if !compacted {
            return Ok(Outcome::plain(f64::NAN));
        }
        self.verify()?;
        self.size()
    }
}

/// Does something in as many threads as there are parts, the first of which is this one.
fn in_threads<P: Sync, T: Send>(
    parts: &[P],
    work: impl Fn(&P) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let Some((first, others)) = parts.split_first() else {
        return Ok(Vec::new());
    };
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = others
            .iter()
            .map(|part| scope.spawn(move || work(part)))
            .collect();
        let first = work(first);
        let rest = others
            .into_iter()
            .map(|thread| thread.join().expect("the work does not panic"));
        std::iter::once(first).chain(rest).collect()
    })
}
