//! The tables of the thesis: trees without transactions, with more data than memory.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use sapwood_figures::{Limit, forget};

use crate::Options;
use crate::crew::Crew;
use crate::outcome::{Outcome, median};
use crate::plot::{Line, Plot};
use crate::report::Report;
use crate::results::{self, Measured};
use crate::worker::{Engine, How, Phase, Work, clear};

/// The block sizes of the B+tree in KiB.
const BLOCKS_KIB: [usize; 9] = [2, 4, 8, 16, 32, 64, 128, 256, 512];

/// The block sizes whose slowest inserts are plotted: a page, and two that suit walks.
const SHOWN_BYTES: [usize; 3] = [4 << 10, 64 << 10, 512 << 10];

/// How many keys are searched for.
pub(crate) const SEARCHES: u64 = 1000;

/// The phases, and how often each is done in a round: the short ones several times, as one delay of the disk would
/// decide them.
const PHASES: [(Phase, &str, u64); 4] = [
    (Phase::InsertRandom, "random inserts", 1),
    (Phase::Scan, "walk through all", 5),
    (Phase::Search, "searches", 5),
    (Phase::InsertInOrder, "in-order inserts", 1),
];

struct Candidate {
    name: String,
    engine: Engine,
    block_bytes: usize,
    /// For each of [`PHASES`], what was measured each time.
    outcomes: [Vec<Outcome>; PHASES.len()],
    /// What the files took on the disk after the inserts of each phase that makes a tree.
    stored_bytes: [u64; PHASES.len()],
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let scratch = options.scratch()?;
    let mut candidates = vec![
        candidate("Berkeley DB", Engine::BerkeleyDb, 4096),
        candidate("cache-oblivious", Engine::FileCacheOblivious, 4096),
    ];
    for kib in BLOCKS_KIB {
        candidates.push(candidate(
            &format!("B+tree, {kib} KiB"),
            Engine::FileBplus,
            kib << 10,
        ));
    }
    if let Some(results) = &options.results("trees") {
        recall(results, &mut candidates)?;
    }
    let memory_bytes = options.memory_mib << 20;
    let mut crew = options.crew()?;
    crew.limit = Limit::new("xact-bench", memory_bytes);
    let memory = crew.limit_text(options.memory_mib);
    for round in 0..options.rounds {
        let wanted = candidates.iter_mut().filter(|one| options.wants(&one.name));
        for candidate in wanted {
            let folder = scratch.folder.join("trees");
            for (number, (phase, what, times)) in PHASES.iter().enumerate() {
                for time in 0..*times {
                    let work = work(options, candidate, &folder, *phase, time);
                    let outcome = measure(options, &crew, &work)
                        .with_context(|| format!("{}, {what}", candidate.name))?;
                    let (seconds, stored) = (outcome.seconds(), stored(&folder)?);
                    eprintln!("round {round}: {}: {what}: {seconds:.3} s", candidate.name);
                    if let Some(results) = &options.results("trees") {
                        let result = Measured {
                            name: candidate.name.clone(),
                            what: (*what).to_owned(),
                            stored_bytes: stored,
                            outcome: outcome.clone(),
                        };
                        results::add(results, &result)?;
                    }
                    candidate.stored_bytes[number] = stored;
                    candidate.outcomes[number].push(outcome);
                }
            }
            clear(&folder)?;
        }
    }
    candidates.retain(|candidate| {
        candidate
            .outcomes
            .iter()
            .all(|outcomes| !outcomes.is_empty())
    });
    anyhow::ensure!(!candidates.is_empty(), "nothing was measured");
    report(options, &candidates, &memory)
}

/// What a folder takes on the disk.
fn stored(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += 512 * entry?.metadata()?.blocks();
    }
    Ok(bytes)
}

/// Takes the outcomes of earlier runs from a file of results, if there is one.
fn recall(results: &Path, candidates: &mut [Candidate]) -> Result<()> {
    for result in results::read(results)? {
        let candidate = candidates.iter_mut().find(|one| one.name == result.name);
        let number = PHASES.iter().position(|phase| phase.1 == result.what);
        let (Some(candidate), Some(number)) = (candidate, number) else {
            anyhow::bail!("{}: of something else: {result:?}", results.display());
        };
        candidate.stored_bytes[number] = result.stored_bytes;
        candidate.outcomes[number].push(result.outcome);
    }
    Ok(())
}

fn candidate(name: &str, engine: Engine, block_bytes: usize) -> Candidate {
    Candidate {
        name: name.to_owned(),
        engine,
        block_bytes,
        outcomes: Default::default(),
        stored_bytes: Default::default(),
    }
}

/// A phase for the given time in its round; other keys are searched for each time.
fn work(options: &Options, candidate: &Candidate, folder: &Path, phase: Phase, time: u64) -> Work {
    let (first, count) = match phase {
        Phase::Search => (time * SEARCHES, SEARCHES),
        _ => (0, options.records),
    };
    Work {
        engine: candidate.engine,
        phase,
        folder: folder.to_owned(),
        first,
        count,
        total: options.records,
        // Half of the memory, as the rest goes to what the system caches for it.
        cache_bytes: (options.memory_mib << 20) / 2,
        how: How::blocks(candidate.block_bytes),
    }
}

pub(crate) fn measure(options: &Options, crew: &Crew, work: &Work) -> Result<Outcome> {
    if matches!(work.phase, Phase::InsertRandom | Phase::InsertInOrder) {
        clear(&work.folder)?;
        crew.one(&Work {
            phase: Phase::Create,
            ..work.clone()
        })?;
    }
    if !options.warm {
        forget(&work.folder)?;
    }
    let outcome = crew.one(work)?;
    let (done, expected) = (outcome.done, work.count);
    anyhow::ensure!(done == expected, "{done} of {expected} records");
    Ok(outcome)
}

/// Prints the tables and says what was required.
fn report(options: &Options, candidates: &[Candidate], memory: &str) -> Result<()> {
    let section = if options.warm { "trees-warm" } else { "trees" };
    let mut report = Report::new(section, options.docs.as_deref());
    report.machine(format_args!(
        "{} records with keys of 128 bytes",
        options.records
    ));
    let cold = if options.warm {
        "warm"
    } else {
        "each phase begins cold"
    };
    let most = |number: usize| candidates.iter().map(move |one| one.outcomes[number].len());
    report.paragraph(format_args!(
        "{memory}; {cold}; median of {}, of walks and searches of {}. Seconds, and in brackets the page faults that had to read \
         from the disk and the MiB that were read.",
        most(0).max().unwrap_or(0),
        most(1).max().unwrap_or(0),
    ));
    let mut columns = vec![""];
    columns.extend(PHASES.iter().map(|(_, what, _)| *what));
    report.head(&columns);
    for candidate in candidates {
        let mut cells = vec![candidate.name.clone()];
        for outcomes in &candidate.outcomes {
            let outcome = median(outcomes).context("no rounds")?;
            cells.push(format!(
                "{:.3} ({}; {})",
                outcome.seconds(),
                outcome.major_faults,
                outcome.read_bytes >> 20
            ));
        }
        report.row(&cells);
    }
    report
        .paragraph("\nA random insert, in microseconds; processor time of all of them in seconds; MiB on the disk after random and after in-order inserts.");
    report.head(&[
        "",
        "p50",
        "p99",
        "p99.9",
        "slowest",
        "CPU",
        "faults without reading",
        "MiB, random",
        "MiB, in order",
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
            (candidate.stored_bytes[0] >> 20).to_string(),
            (candidate.stored_bytes[3] >> 20).to_string(),
        ]);
    }
    report.line("");
    requirements(&mut report, candidates);
    for (number, (_, what, _)) in PHASES.iter().enumerate() {
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
                line("cache-oblivious", Engine::FileCacheOblivious),
                line("Berkeley DB", Engine::BerkeleyDb),
            ],
        };
        report.plot(&format!("{section}-{}", what.replace(' ', "-")), &plot)?;
    }
    let shown = candidates.iter().filter(|candidate| {
        candidate.engine != Engine::FileBplus || SHOWN_BYTES.contains(&candidate.block_bytes)
    });
    let line = |candidate: &Candidate| Line {
        name: candidate.name.clone(),
        points: median(&candidate.outcomes[0]).map_or_else(Vec::new, |one| one.times.by_rank()),
    };
    let plot = Plot {
        title: "the k-th most expensive random insert",
        across: "k",
        up: "µs",
        lines: shown.map(line).collect(),
    };
    report.plot(&format!("{section}-slowest"), &plot)?;
    report.publish()
}

fn requirements(report: &mut Report, candidates: &[Candidate]) {
    let find = |engine| {
        candidates
            .iter()
            .find(|candidate| candidate.engine == engine)
    };
    let Some(cache_oblivious) = find(Engine::FileCacheOblivious) else {
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
            cache_oblivious.seconds(1) / walk,
            1.1,
        );
        let searches = cache_oblivious.seconds(2) / best(2, &blocks);
        report.at_most("searches × those of the best block size", searches, 1.1);
        let walkers: Vec<&Candidate> = blocks
            .iter()
            .copied()
            .filter(|candidate| candidate.seconds(1) <= 1.5 * walk)
            .collect();
        report.at_most(
            "random inserts × those of the best block size whose walk takes at most 1.5 × the best",
            cache_oblivious.seconds(0) / best(0, &walkers),
            1.5,
        );
    }
    if let Some(peer) = find(Engine::BerkeleyDb) {
        let inserts = cache_oblivious.seconds(3) / peer.seconds(3);
        report.at_most("in-order inserts × Berkeley DB's", inserts, 1.5);
    }
}

impl Candidate {
    /// The median of a phase.
    fn seconds(&self, phase: usize) -> f64 {
        median(&self.outcomes[phase]).map_or(f64::NAN, Outcome::seconds)
    }
}
