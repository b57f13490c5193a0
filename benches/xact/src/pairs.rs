//! Pairs of runs whose difference is the point: a tree right before and right after it has moved to a larger array, and
//! trees with and without transactions, in memory that is smaller than they are.

use std::path::Path;

use anyhow::{Result, anyhow};
use sapwood_figures::Limit;
use sapwood_xact::{CacheObliviousTree, Memory, Plain};

use crate::Options;
use crate::crew::Crew;
use crate::keys::{self, VALUE_BYTES};
use crate::outcome::{Outcome, median};
use crate::report::Report;
use crate::trees::{SEARCHES, measure};
use crate::worker::{Engine, How, Phase, Work, clear};

/// The move that is looked for is the first one after so many records of a hundred: 440,000 of 250,000, where the tree
/// of the thesis moved. Then so many of a hundred are inserted that it has not come yet, and that it has.
const LOOKED_FOR: u64 = 176;
const AROUND: [u64; 2] = [99, 101];

/// What describes the tree is shorter, and alone on its page.
const DESCRIPTION_BYTES: usize = 256;

const PHASES: [(Phase, &str); 3] = [
    (Phase::InsertRandom, "random inserts"),
    (Phase::Scan, "walk through all"),
    (Phase::Search, "searches"),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    let scratch = options.scratch()?;
    let mut crew = options.crew()?;
    crew.limit = Limit::new("xact-bench", options.memory_mib << 20);
    let memory = crew.limit_text(options.memory_mib);
    let mut report = Report::new("pairs", options.docs.as_deref());
    report.machine("Keys of 128 bytes; seconds, and in brackets the page faults that had to read from the disk");
    report.paragraph(format_args!(
        "\nBefore and after a reorganisation of the cache-oblivious tree, without transactions; {memory}. The array moves \
         between the two numbers of records.\n"
    ));
    let columns = || {
        ["", "records"]
            .into_iter()
            .chain(PHASES.map(|(_, what)| what))
    };
    report.head(&columns().collect::<Vec<_>>());
    let moves_at = next_move(options.records * LOOKED_FOR / 100)?;
    for engine in [Engine::FileCacheOblivious, Engine::FileBplus] {
        for percent in AROUND {
            let records = moves_at * percent / 100;
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

/// With which insert of keys in any order the array moves next when there are so many.
fn next_move(records: u64) -> Result<u64> {
    let mut memory = Plain::new();
    let tree = CacheObliviousTree::create(&mut memory)?.offset();
    let mut array = Vec::new();
    for number in 0.. {
        let key = keys::key(number, false);
        CacheObliviousTree::open(&mut memory, tree)?.insert(&key, &[0; VALUE_BYTES])?;
        // What describes the tree says where its array is, and changes with nothing else.
        let described = memory.read(tree, DESCRIPTION_BYTES)?;
        if described != array {
            if number >= records && !array.is_empty() {
                return Ok(number);
            }
            array = described.to_vec();
        }
    }
    Err(anyhow!("the array never moves"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_moves_between_the_two_of_a_pair() {
        let moves_at = next_move(2000).unwrap();
        assert!((2000..4000).contains(&moves_at), "{moves_at}");
        let size = |records: u64| {
            let mut memory = Plain::new();
            let at = CacheObliviousTree::create(&mut memory).unwrap().offset();
            for number in 0..records {
                let mut tree = CacheObliviousTree::open(&mut memory, at).unwrap();
                let key = keys::key(number, false);
                tree.insert(&key, &[0; VALUE_BYTES]).unwrap();
            }
            let described = memory.read(at, DESCRIPTION_BYTES).unwrap();
            described.to_vec()
        };
        let [before, after] = AROUND.map(|percent| size(moves_at * percent / 100));
        assert_ne!(before, after);
        assert_eq!(before, size(moves_at));
    }
}
