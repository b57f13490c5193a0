//! The tables of the thesis: trees without transactions, with more data than memory.

use std::path::Path;

use anyhow::{Context, Result};

use crate::Options;
use crate::crew::{Crew, Limit, forget};
use crate::outcome::{Outcome, median};
use crate::plot::{Line, Plot};
use crate::report::Report;
use crate::worker::{Engine, Phase, Work, clear};

/// The block sizes of the B+tree in KiB.
const BLOCKS_KIB: [usize; 7] = [2, 4, 16, 32, 64, 256, 512];

/// How many keys are searched for.
const SEARCHES: u64 = 1000;

/// The phases, with what is forgotten before each.
const PHASES: [(Phase, &str); 4] = [
    (Phase::InsertRandom, "random inserts"),
    (Phase::Scan, "walk through all"),
    (Phase::Search, "searches"),
    (Phase::InsertInOrder, "in-order inserts"),
];

struct Candidate {
    name: String,
    engine: Engine,
    block_bytes: usize,
    /// For each of [`PHASES`], what was measured in each round.
    outcomes: [Vec<Outcome>; PHASES.len()],
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let place = options.place()?;
    let mut candidates = vec![
        candidate("Berkeley DB", Engine::BerkeleyDb, 4096),
        candidate("cache-oblivious", Engine::FilePacked, 4096),
    ];
    for kib in BLOCKS_KIB {
        candidates.push(candidate(
            &format!("B+tree, {kib} KiB"),
            Engine::FileBplus,
            kib << 10,
        ));
    }
    candidates.retain(|candidate| options.wants(&candidate.name));
    let memory_bytes = options.memory_mib << 20;
    let mut crew = options.crew();
    crew.limit = Limit::new(memory_bytes);
    let limited = crew.limit.is_some();
    for round in 0..options.rounds {
        for candidate in &mut candidates {
            let folder = place.folder.join("trees");
            for (number, (phase, what)) in PHASES.iter().enumerate() {
                let outcome = measure(options, &crew, candidate, &folder, *phase, memory_bytes)
                    .with_context(|| format!("{}, {what}", candidate.name))?;
                let seconds = outcome.seconds();
                eprintln!("round {round}: {}: {what}: {seconds:.3} s", candidate.name);
                candidate.outcomes[number].push(outcome);
            }
            clear(&folder)?;
        }
    }
    report(options, &candidates, limited)
}

fn candidate(name: &str, engine: Engine, block_bytes: usize) -> Candidate {
    Candidate {
        name: name.to_owned(),
        engine,
        block_bytes,
        outcomes: Default::default(),
    }
}

fn measure(
    options: &Options,
    crew: &Crew,
    candidate: &Candidate,
    folder: &Path,
    phase: Phase,
    memory_bytes: u64,
) -> Result<Outcome> {
    let work = |phase, count| Work {
        engine: candidate.engine,
        phase,
        folder: folder.to_owned(),
        first: 0,
        count,
        total: options.records,
        // Half of the memory, as the rest goes to what the system caches for it.
        cache_bytes: memory_bytes / 2,
        block_bytes: candidate.block_bytes,
    };
    if matches!(phase, Phase::InsertRandom | Phase::InsertInOrder) {
        clear(folder)?;
        crew.one(&work(Phase::Create, 0))?;
    }
    if !options.warm {
        forget(folder)?;
    }
    let (count, expected) = match phase {
        Phase::Search => (SEARCHES, SEARCHES),
        _ => (options.records, options.records),
    };
    let outcome = crew.one(&work(phase, count))?;
    anyhow::ensure!(
        outcome.done == expected,
        "{} of {expected} records",
        outcome.done
    );
    Ok(outcome)
}

/// Prints the tables and says what was required.
fn report(options: &Options, candidates: &[Candidate], limited: bool) -> Result<()> {
    let mut report = Report::new("trees", options.docs.as_deref());
    report.machine(format_args!(
        "{} records with keys of 128 bytes",
        options.records
    ));
    let memory = match limited {
        true => format!("{} MiB of memory, page cache included", options.memory_mib),
        false => "memory without a limit, as the system has no control groups for us".to_owned(),
    };
    let cold = if options.warm {
        "warm"
    } else {
        "each phase begins cold"
    };
    report.paragraph(format_args!(
        "{memory}; {cold}; median of {}. Seconds, and in brackets the page faults that had to read from the disk.",
        options.rounds
    ));
    let mut columns = vec![""];
    columns.extend(PHASES.iter().map(|(_, what)| *what));
    report.head(&columns);
    for candidate in candidates {
        let mut cells = vec![candidate.name.clone()];
        for outcomes in &candidate.outcomes {
            let outcome = median(outcomes).context("no rounds")?;
            cells.push(format!(
                "{:.3} ({})",
                outcome.seconds(),
                outcome.major_faults
            ));
        }
        report.row(&cells);
    }
    report
        .paragraph("\nA random insert, in microseconds; processor time of all of them in seconds.");
    report.head(&[
        "",
        "p50",
        "p99",
        "p99.9",
        "slowest",
        "CPU",
        "faults without reading",
    ]);
    for candidate in candidates {
        let outcome = median(&candidate.outcomes[0]).context("no rounds")?;
        let us = |nanoseconds: u64| format!("{:.1}", nanoseconds as f64 / 1e3);
        report.row(&[
            candidate.name.clone(),
            us(outcome.times.quantile(0.5)),
            us(outcome.times.quantile(0.99)),
            us(outcome.times.quantile(0.999)),
            us(outcome.times.ranked(1)),
            format!("{:.2}", outcome.cpu_us as f64 / 1e6),
            outcome.minor_faults.to_string(),
        ]);
    }
    report.line("");
    requirements(&mut report, candidates);
    for (number, (_, what)) in PHASES.iter().enumerate() {
        let point = |candidate: &Candidate| {
            (
                candidate.block_bytes as f64 / 1024.0,
                candidate.seconds(number),
            )
        };
        let line = |name: &str, engine| Line {
            name: name.to_owned(),
            points: candidates
                .iter()
                .filter(|candidate| candidate.engine == engine)
                .map(point)
                .collect(),
        };
        let plot = Plot {
            title: what,
            across: "block size, KiB",
            up: "seconds",
            lines: vec![
                line("B+tree", Engine::FileBplus),
                line("cache-oblivious", Engine::FilePacked),
                line("Berkeley DB", Engine::BerkeleyDb),
            ],
        };
        report.plot(&format!("trees-{}", what.replace(' ', "-")), &plot)?;
    }
    report.publish()
}

fn requirements(report: &mut Report, candidates: &[Candidate]) {
    let find = |engine| {
        candidates
            .iter()
            .find(|candidate| candidate.engine == engine)
    };
    let Some(packed) = find(Engine::FilePacked) else {
        return;
    };
    let blocks: Vec<&Candidate> = candidates
        .iter()
        .filter(|candidate| candidate.engine == Engine::FileBplus)
        .collect();
    let best = |phase: usize, among: &[&Candidate]| {
        among
            .iter()
            .map(|candidate| candidate.seconds(phase))
            .fold(f64::INFINITY, f64::min)
    };
    if !blocks.is_empty() {
        let walk = best(1, &blocks);
        report.at_most(
            "walk × that of the best block size",
            packed.seconds(1) / walk,
            1.1,
        );
        let searches = packed.seconds(2) / best(2, &blocks);
        report.at_most("searches × those of the best block size", searches, 1.1);
        let walkers: Vec<&Candidate> = blocks
            .iter()
            .copied()
            .filter(|candidate| candidate.seconds(1) <= 1.5 * walk)
            .collect();
        report.at_most(
            "random inserts × those of the best block size whose walk takes at most 1.5 × the best",
            packed.seconds(0) / best(0, &walkers),
            1.5,
        );
    }
    if let Some(peer) = find(Engine::BerkeleyDb) {
        let inserts = packed.seconds(3) / peer.seconds(3);
        report.at_most("in-order inserts × Berkeley DB's", inserts, 1.5);
    }
}

impl Candidate {
    /// The median of a phase.
    fn seconds(&self, phase: usize) -> f64 {
        median(&self.outcomes[phase]).map_or(f64::NAN, Outcome::seconds)
    }
}
