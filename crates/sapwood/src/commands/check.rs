//! `sapwood check`: every page, and every index against the entries.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use sapwood_server::Config;

use crate::cli::Folder;
use crate::open;
use crate::output::Output;
use crate::progress::Progress;

pub(crate) fn run(args: &Folder, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let directory = open::directory(&args.folder, &config, true)?;
    let mut problems = Vec::new();
    let envs = directory.engine().envs();
    for (number, env) in envs.iter().enumerate() {
        let pages = env.check()?;
        let store = match envs.len() {
            1 => String::new(),
            _ => format!("Store {number}, "),
        };
        writeln!(
            out,
            "{store}Commit {}: {} records in {} tables, {} pages used, {} free",
            pages.commit.0, pages.records, pages.trees, pages.pages_used, pages.pages_free
        )?;
        problems.extend(
            pages
                .problems
                .into_iter()
                .map(|problem| store.clone() + &problem),
        );
    }
    // Tables on damaged pages would be reported a second time, and in worse words.
    if problems.is_empty() {
        let mut progress = Progress::new(0, "entries checked");
        let tables = directory.check(|entries| progress.set(entries))?;
        progress.finish();
        writeln!(
            out,
            "{} entries, {} index records",
            tables.entries, tables.postings
        )?;
        problems = tables.problems;
    }
    if problems.is_empty() {
        writeln!(out, "Nothing is wrong.")?;
        return Ok(ExitCode::SUCCESS);
    }
    for problem in &problems {
        writeln!(out, "WRONG: {problem}")?;
    }
    writeln!(
        out,
        "Keep a copy of {} before anything else; 'sapwood restore' makes a directory from a backup.",
        args.folder.display()
    )?;
    Ok(ExitCode::FAILURE)
}
