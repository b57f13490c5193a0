//! `sapwood check`: every page, and every index against the entries.

use std::process::ExitCode;

use anyhow::Result;
use sapwood_server::Config;

use crate::cli::Folder;
use crate::open;

pub(crate) fn run(args: &Folder) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let directory = open::directory(&args.folder, &config, true)?;
    let report = directory.engine().env().check()?;
    println!(
        "Commit {}: {} records in {} tables, {} pages used, {} free",
        report.commit.0, report.records, report.trees, report.pages_used, report.pages_free
    );
    if report.is_clean() {
        println!("Nothing is wrong.");
        return Ok(ExitCode::SUCCESS);
    }
    for problem in &report.problems {
        println!("WRONG: {problem}");
    }
    println!(
        "Keep a copy of {} before anything else; 'sapwood restore' makes a directory from a backup.",
        args.folder.display()
    );
    Ok(ExitCode::FAILURE)
}
