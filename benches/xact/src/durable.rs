//! Durable inserts of keys in any order, each a transaction of its own, by one process and by several at once.

use std::path::Path;

use anyhow::{Context, Result};

use crate::Options;
use crate::outcome::{Outcome, median};
use crate::plot::{Line, Plot};
use crate::report::Report;
use crate::results::{self, Measured};
use crate::worker::{Engine, Phase, Work, clear};

const ENGINES: [Engine; 12] = [
    Engine::BareWrite,
    Engine::BerkeleyDbDurable,
    Engine::BerkeleyDbDsync,
    Engine::BerkeleyDbZero,
    Engine::BerkeleyDbDsyncZero,
    Engine::LmdbDurable,
    Engine::SpaceBplus,
    Engine::SpaceCacheOblivious,
    Engine::SpaceBplusTracked,
    Engine::SpaceBplusSnapshot,
    Engine::SpaceCacheObliviousTracked,
    Engine::SpaceCacheObliviousSnapshot,
];

/// How many processes may insert at once.
const COUNTS: [u64; 4] = [1, 2, 4, 8];

/// The pool of Berkeley DB: as large as the data.
const POOL_BYTES: u64 = 256 << 20;

pub(crate) fn run(options: &Options) -> Result<()> {
    let scratch = options.scratch()?;
    let crew = options.crew()?;
    let mut measured: Vec<(Engine, u64, Vec<Outcome>)> = ENGINES
        .iter()
        .flat_map(|engine| COUNTS.iter().map(|count| (*engine, *count, Vec::new())))
        .filter(|(engine, processes, _)| *engine != Engine::BareWrite || *processes == 1)
        .collect();
    if let Some(results) = &options.results("durable") {
        recall(results, &mut measured)?;
    }
    for round in 0..options.rounds {
        let wanted = measured.iter_mut().filter(|(engine, processes, _)| {
            options.wants(&engine.name()) && options.processes.contains(processes)
        });
        for (engine, processes, outcomes) in wanted {
            let folder = scratch.folder.join(engine.name());
            clear(&folder)?;
            clear(&folder.join("space"))?;
            let share = options.records / *processes;
            let part = Work::parts(*engine, &folder, (options.records, POOL_BYTES));
            crew.one(&part(Phase::Create, 0, 0))?;
            let parts: Vec<Work> = (0..*processes)
                .map(|process| part(Phase::InsertRandom, process * share, share))
                .collect();
            let outcome = crew.together(&parts)?;
            eprintln!(
                "round {round}: {} × {processes}: {:.0} inserts/s",
                engine.name(),
                outcome.rate()
            );
            let found = crew.one(&part(Phase::Scan, 0, 0))?.done;
            anyhow::ensure!(
                found == share * *processes,
                "{} has lost records",
                engine.name()
            );
            clear(&folder)?;
            if let Some(results) = &options.results("durable") {
                let result = Measured {
                    name: engine.name(),
                    what: processes.to_string(),
                    stored_bytes: 0,
                    outcome: outcome.clone(),
                };
                results::add(results, &result)?;
            }
            outcomes.push(outcome);
        }
    }
    measured.retain(|(_, _, outcomes)| !outcomes.is_empty());
    anyhow::ensure!(!measured.is_empty(), "nothing was measured");
    report(options, &measured)
}

/// Takes the outcomes of earlier runs from a file of results.
fn recall(results: &Path, measured: &mut [(Engine, u64, Vec<Outcome>)]) -> Result<()> {
    for result in results::read(results)? {
        let place = measured.iter_mut().find(|(engine, processes, _)| {
            engine.name() == result.name && processes.to_string() == result.what
        });
        let Some((_, _, outcomes)) = place else {
            anyhow::bail!("{}: of something else: {result:?}", results.display());
        };
        outcomes.push(result.outcome);
    }
    Ok(())
}

/// Prints the tables and says what was required.
fn report(options: &Options, measured: &[(Engine, u64, Vec<Outcome>)]) -> Result<()> {
    let of = |engine: Engine, processes: u64| {
        measured
            .iter()
            .find(|(e, p, _)| (*e, *p) == (engine, processes))
            .and_then(|(_, _, outcomes)| median(outcomes))
    };
    let best = |processes: u64| {
        let peers = ENGINES.iter().filter(|engine| engine.is_durable_peer());
        let outcomes = peers.filter_map(|engine| of(*engine, processes));
        outcomes.max_by(|one, other| one.rate().total_cmp(&other.rate()))
    };
    let peer = [best(1), best(4)];
    let base = peer[0];
    let bare = of(Engine::BareWrite, 1).map_or(0.0, Outcome::cpu);
    let mut report = Report::new("durable", options.docs.as_deref());
    report.machine(
        "Keys of 128 bytes, each inserted in a durable transaction of its own; the median of so many rounds, of two the \
         slower one; spaces in explicit mode, or in the one that is named, whose trees use loads and stores alone; \
         Berkeley DB as it comes, with its log opened for synchronous writes (*dsync*), with log files of 64 MiB that \
         were written before (*zero*), and with both, of which the fastest is what others are compared with",
    );
    report.head(&[
        "",
        "processes",
        "inserts × rounds",
        "inserts/s",
        "× Berkeley DB × 1",
        "µs CPU",
        "log bytes",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "slowest ms",
    ]);
    for (engine, processes, outcomes) in measured {
        let outcome = median(outcomes).context("no rounds")?;
        let us = |part: f64| format!("{:.0}", outcome.times.quantile(part) as f64 / 1e3);
        let log = match outcome.log_bytes {
            0 => "none".to_owned(),
            bytes => format!("{:.0}", bytes as f64 / outcome.done.max(1) as f64),
        };
        report.row(&[
            engine.name(),
            processes.to_string(),
            format!("{} × {}", outcome.done, outcomes.len()),
            format!("{:.0}", outcome.rate()),
            base.map_or_else(String::new, |base| {
                format!("{:.2}", outcome.rate() / base.rate())
            }),
            format!("{:.1}", outcome.cpu()),
            log,
            us(0.5),
            us(0.99),
            us(0.999),
            format!("{:.1}", outcome.times.ranked(1) as f64 / 1e6),
        ]);
    }
    report.line("");
    if let Some(base) = base {
        for engine in [Engine::SpaceBplus, Engine::SpaceCacheOblivious] {
            let outcomes = COUNTS.map(|processes| of(engine, processes));
            requirements(&mut report, &engine.name(), base, peer[1], bare, outcomes);
        }
    }
    for (engine, beside) in [
        (Engine::SpaceBplusTracked, Engine::SpaceBplus),
        (
            Engine::SpaceCacheObliviousTracked,
            Engine::SpaceCacheOblivious,
        ),
    ] {
        for (processes, told, least) in [(1, "one process", 0.8), (4, "four processes", 0.7)] {
            if let (Some(tracked), Some(explicit)) = (of(engine, processes), of(beside, processes))
            {
                let what = format!("{}, {told} × {}", engine.name(), beside.name());
                report.at_least(&what, tracked.rate() / explicit.rate(), least);
            }
        }
    }
    report.plot("durable-inserts", &by_processes(measured))?;
    report.plot("durable-slowest", &by_rank(measured))?;
    report.publish()
}

/// What is required with 1, 2, 4 and 8 processes.
fn requirements(
    report: &mut Report,
    name: &str,
    base: &Outcome,
    base_of_four: Option<&Outcome>,
    bare: f64,
    of: [Option<&Outcome>; 4],
) {
    let [one, two, four, eight] = of;
    let times = |outcome: &Outcome| outcome.rate() / base.rate();
    if let Some(one) = one {
        report.at_least(
            &format!("{name}, one process × Berkeley DB's"),
            times(one),
            1.1,
        );
        let cpu = (one.cpu() - bare) / (base.cpu() - bare);
        let what = format!("{name}, CPU × Berkeley DB's, both less a bare durable write");
        report.at_most(&what, cpu, 0.75);
        let log = one.log_bytes as f64 / base.log_bytes.max(1) as f64;
        report.at_most(&format!("{name}, log × Berkeley DB's"), log, 3.0);
    }
    if let (Some(one), Some(two)) = (one, two) {
        let ratio = two.rate() / one.rate();
        report.at_least(&format!("{name}, two processes × one"), ratio, 1.0);
    }
    if let (Some(two), Some(four)) = (two, four) {
        let ratio = four.rate() / two.rate();
        report.at_least(&format!("{name}, four processes × two"), ratio, 1.0);
        let what = format!("{name}, four processes × Berkeley DB's one");
        report.at_least(&what, times(four), 2.0);
    }
    if let (Some(four), Some(base)) = (four, base_of_four) {
        let ratio = four.rate() / base.rate();
        let what = format!("{name}, four processes × Berkeley DB's four");
        report.at_least(&what, ratio, 1.3);
    }
    if let Some(eight) = eight {
        let what = format!("{name}, eight processes × Berkeley DB's one (the aim)");
        report.at_least(&what, times(eight), 3.0);
    }
}

fn by_processes(measured: &[(Engine, u64, Vec<Outcome>)]) -> Plot<'static> {
    let points = |engine: Engine| {
        let mine = measured.iter().filter(move |(e, _, _)| *e == engine);
        mine.filter_map(|(_, processes, outcomes)| {
            Some((*processes as f64, median(outcomes)?.rate()))
        })
    };
    Plot {
        title: "durable inserts by number of processes",
        across: "processes",
        up: "inserts/s",
        lines: lines(|engine| points(engine).collect()),
    }
}

/// The k-th most expensive insert of one process.
fn by_rank(measured: &[(Engine, u64, Vec<Outcome>)]) -> Plot<'static> {
    let points = |engine: Engine| {
        let one = measured.iter().find(|(e, p, _)| (*e, *p) == (engine, 1));
        let outcome = one.and_then(|(_, _, outcomes)| median(outcomes));
        outcome.map_or_else(Vec::new, |outcome| outcome.times.by_rank())
    };
    Plot {
        title: "the k-th most expensive durable insert of one process",
        across: "k",
        up: "µs",
        lines: lines(points),
    }
}

fn lines(points: impl Fn(Engine) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line = |engine: Engine| Line {
        name: engine.name(),
        points: points(engine),
    };
    ENGINES
        .into_iter()
        .map(line)
        .filter(|line| !line.points.is_empty())
        .collect()
}
