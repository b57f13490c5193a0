//! What a tree's place in its file is worth: with and without advice to the system, in a file that has aged, and of
//! trees that are made in order and stay as they are (table 5.1 of the thesis).

use std::path::Path;

use anyhow::Result;
use sapwood_figures::Limit;

use crate::Options;
use crate::crew::Crew;
use crate::outcome::{Outcome, median};
use crate::report::Report;
use crate::trees::{SEARCHES, measure};
use crate::worker::{Engine, How, Phase, Work, clear};

const BLOCKS_KIB: [usize; 3] = [4, 64, 512];

/// Short phases are done several times in a round.
const OF_RANDOM: [(Phase, &str, u64); 3] = [
    (Phase::InsertRandom, "random inserts", 1),
    (Phase::Scan, "walk through all", 5),
    (Phase::Search, "searches", 5),
];
const OF_STATIC: [(Phase, &str, u64); 3] = [
    (Phase::InsertInOrder, "in-order inserts", 1),
    (Phase::Scan, "walk through all", 5),
    (Phase::SearchInOrder, "searches", 5),
];

/// A row of a table.
struct Row {
    name: String,
    engine: Engine,
    how: How,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let scratch = options.scratch()?;
    let mut crew = options.crew()?;
    crew.limit = Limit::new("xact-bench", options.memory_mib << 20);
    let memory = crew.limit_text(options.memory_mib);
    let mut report = Report::new("layouts", options.docs.as_deref());
    report.machine(format_args!(
        "{} records with keys of 128 bytes; {memory}; each phase begins cold; seconds, and in brackets the page faults \
         that had to read from the disk and the MiB that were read",
        options.records
    ));
    report.paragraph(
        "Trees with random inserts: as they are; without advice, so that the system reads ahead as it guesses and nobody \
         asks for what a walk needs next; and aged, with blocks that are taken in no order.",
    );
    let whole = How::blocks(4096);
    let unadvised = How {
        unadvised: true,
        ..whole
    };
    let mut rows = vec![
        row("cache-oblivious", Engine::FileCacheOblivious, whole),
        row(
            "cache-oblivious, without advice",
            Engine::FileCacheOblivious,
            unadvised,
        ),
    ];
    for (kib, blocks) in blocks() {
        let row = |what, how| row(&format!("B+tree, {kib} KiB{what}"), Engine::FileBplus, how);
        rows.push(row("", blocks));
        let unadvised = How {
            unadvised: true,
            ..blocks
        };
        rows.push(row(", without advice", unadvised));
        let aged = How {
            aged: true,
            ..blocks
        };
        rows.push(row(", aged", aged));
    }
    table(
        &mut report,
        options,
        &crew,
        &scratch.folder,
        &OF_RANDOM,
        &rows,
    )?;
    report.paragraph(
        "\nStatic trees: keys are inserted in order, and nothing is changed afterwards.",
    );
    let mut rows = vec![
        row("Berkeley DB", Engine::BerkeleyDb, whole),
        row("cache-oblivious", Engine::FileCacheOblivious, whole),
    ];
    for (kib, blocks) in blocks() {
        rows.push(row(
            &format!("B+tree, {kib} KiB"),
            Engine::FileBplus,
            blocks,
        ));
    }
    table(
        &mut report,
        options,
        &crew,
        &scratch.folder,
        &OF_STATIC,
        &rows,
    )?;
    report.publish()
}

fn row(name: &str, engine: Engine, how: How) -> Row {
    let name = name.to_owned();
    Row { name, engine, how }
}

fn blocks() -> impl Iterator<Item = (usize, How)> {
    BLOCKS_KIB
        .into_iter()
        .map(|kib| (kib, How::blocks(kib << 10)))
}

fn table(
    report: &mut Report,
    options: &Options,
    crew: &Crew,
    folder: &Path,
    phases: &[(Phase, &str, u64); 3],
    rows: &[Row],
) -> Result<()> {
    let columns = [""].into_iter().chain(phases.map(|(_, what, _)| what));
    report.head(&columns.collect::<Vec<_>>());
    let folder = folder.join("layouts");
    let wanted = rows.iter().filter(|row| options.wants(&row.name));
    let mut measured: Vec<(&Row, [Vec<Outcome>; 3])> =
        wanted.map(|row| (row, Default::default())).collect();
    for round in 0..options.rounds {
        for (row, outcomes) in &mut measured {
            for ((phase, what, times), outcomes) in phases.iter().zip(outcomes) {
                for time in 0..*times {
                    let searches = matches!(phase, Phase::Search | Phase::SearchInOrder);
                    let count = match searches {
                        true => SEARCHES.min(options.records),
                        false => options.records,
                    };
                    let work = Work {
                        engine: row.engine,
                        phase: *phase,
                        folder: folder.clone(),
                        first: if searches { time * count } else { 0 },
                        count,
                        total: options.records,
                        cache_bytes: (options.memory_mib << 20) / 2,
                        how: row.how,
                    };
                    let outcome = measure(options, crew, &work)?;
                    let seconds = outcome.seconds();
                    eprintln!("round {round}: {}: {what}: {seconds:.3} s", row.name);
                    outcomes.push(outcome);
                }
            }
            clear(&folder)?;
        }
    }
    for (row, outcomes) in &measured {
        let mut cells = vec![row.name.clone()];
        cells.extend(outcomes.iter().map(|outcomes| {
            median(outcomes).map_or_else(String::new, |one| {
                let (seconds, faults, mib) =
                    (one.seconds(), one.major_faults, one.read_bytes >> 20);
                format!("{seconds:.3} ({faults}; {mib})")
            })
        }));
        report.row(&cells);
    }
    Ok(())
}
