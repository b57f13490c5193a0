//! Pairs of runs whose difference is the point: a tree right before and right after it has moved to a larger array, and
//! trees with and without transactions, in memory that is smaller than they are.

use std::path::Path;

use anyhow::Result;

use crate::Options;
use crate::crew::{Crew, Limit};
use crate::outcome::{Outcome, median};
use crate::report::Report;
use crate::trees::{SEARCHES, measure};
use crate::worker::{Engine, How, Phase, Work, clear};

/// So many records of a hundred are inserted before the array moves, and after it has: 440,000 and 450,000 of 250,000.
const AROUND: [u64; 2] = [176, 180];

const PHASES: [(Phase, &str); 3] = [
    (Phase::InsertRandom, "random inserts"),
    (Phase::Scan, "walk through all"),
    (Phase::Search, "searches"),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    let scratch = options.scratch()?;
    let mut crew = options.crew()?;
    crew.limit = Limit::new(options.memory_mib << 20);
    let memory = crew.limit_text(options.memory_mib);
    let mut report = Report::new("pairs", options.docs.as_deref());
    report.machine("Keys of 128 bytes; seconds, and in brackets the page faults that had to read from the disk");
    report.paragraph(format_args!(
        "\nBefore and after a reorganisation of the cache-oblivious tree, without transactions; {memory}.\n"
    ));
    let columns = || {
        ["", "records"]
            .into_iter()
            .chain(PHASES.map(|(_, what)| what))
    };
    report.head(&columns().collect::<Vec<_>>());
    for engine in [Engine::FileCacheOblivious, Engine::FileBplus] {
        for percent in AROUND {
            let records = options.records * percent / 100;
            row(
                &mut report,
                options,
                &crew,
                &scratch.folder,
                engine,
                records,
            )?;
        }
    }
    report.paragraph(format_args!(
        "\nWith and without transactions, each insert a durable one of its own; {memory}.\n"
    ));
    report.head(&columns().collect::<Vec<_>>());
    for engine in [
        Engine::FileBplus,
        Engine::SpaceBplus,
        Engine::SpaceBplusTracked,
        Engine::FileCacheOblivious,
        Engine::SpaceCacheOblivious,
        Engine::BerkeleyDb,
        Engine::BerkeleyDbDurable,
    ] {
        row(
            &mut report,
            options,
            &crew,
            &scratch.folder,
            engine,
            options.records,
        )?;
    }
    report.publish()
}

fn row(
    report: &mut Report,
    options: &Options,
    crew: &Crew,
    folder: &Path,
    engine: Engine,
    records: u64,
) -> Result<()> {
    if !options.wants(&engine.name()) {
        return Ok(());
    }
    let folder = folder.join(engine.name());
    let mut outcomes: [Vec<Outcome>; PHASES.len()] = Default::default();
    for round in 0..options.rounds {
        eprintln!("round {round}: {} with {records} records", engine.name());
        for ((phase, _), outcomes) in PHASES.iter().zip(&mut outcomes) {
            let count = match phase {
                Phase::Search => SEARCHES.min(records),
                _ => records,
            };
            let work = Work {
                engine,
                phase: *phase,
                folder: folder.clone(),
                first: 0,
                count,
                total: records,
                cache_bytes: (options.memory_mib << 20) / 2,
                how: How::blocks(4096),
            };
            outcomes.push(measure(options, crew, &work)?);
        }
        clear(&folder)?;
    }
    let mut cells = vec![engine.name(), records.to_string()];
    for outcomes in &outcomes {
        let told =
            median(outcomes).map(|one| format!("{:.3} ({})", one.seconds(), one.major_faults));
        cells.push(told.unwrap_or_default());
    }
    report.row(&cells);
    Ok(())
}
