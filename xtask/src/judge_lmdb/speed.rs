//! What the C interface costs beside LMDB itself: the same C program, linked with each of the two libraries, in turns.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{Bench, Library, check_format, programs, text};
use crate::run::root;

const ROUNDS: usize = 3;

/// Prints a table: how many of each row a second, the best of all rounds.
pub(super) fn compare(bench: &Bench) -> Result<()> {
    let sources = programs::fetch(bench)?;
    let source = root().join("xtask/src/judge_lmdb/speed.c");
    for library in Library::BOTH {
        programs::compile_one(bench, &sources, library, &source, &["-O2"])?;
    }
    let mut best: Vec<(String, [f64; 2])> = Vec::new();
    for _ in 0..ROUNDS {
        for library in Library::BOTH {
            let folder = bench.scratch("speed", library)?;
            let environment = folder.join("env");
            fs::create_dir(&environment)?;
            let told = text(programs::program(bench, library, "speed"), |command| {
                command.arg(&environment);
                if library == Library::Ours {
                    programs::use_ours(command, bench);
                }
            })?;
            check_format(&environment, library)?;
            for (row, line) in told.lines().enumerate() {
                let (name, rate) = line.split_once('\t').context("not a row")?;
                let rate: f64 = rate.parse()?;
                if best.len() == row {
                    best.push((name.to_owned(), [0.0; 2]));
                }
                ensure!(best[row].0 == name, "the rows differ");
                let of = &mut best[row].1[usize::from(library == Library::Ours)];
                *of = of.max(rate);
            }
            fs::remove_dir_all(folder)?;
        }
    }
    println!("| in a second | ours | LMDB | × LMDB |");
    println!("| --- | ---: | ---: | ---: |");
    for (name, [original, ours]) in best {
        println!(
            "| {name} | {ours:.0} | {original:.0} | {:.2} |",
            ours / original
        );
    }
    Ok(())
}
