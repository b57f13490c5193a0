//! `sapwood stat`: sizes and numbers.

use std::process::ExitCode;

use anyhow::Result;
use sapwood_server::{Config, admin};
use sapwood_store::page::PAGE_BYTES;

use crate::cli::Folder;
use crate::open;

pub(crate) fn run(args: &Folder) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let directory = open::directory(&args.folder, &config, true)?;
    let env = directory.engine().env();
    let stat = env.stat()?;
    let contexts: Vec<_> = directory
        .snapshot()?
        .naming_contexts()
        .map(str::to_owned)
        .collect();
    println!("Naming contexts:  {}", contexts.join("; "));
    println!(
        "Server:           {}",
        if admin::is_running(&args.folder) {
            "running"
        } else {
            "not running"
        }
    );
    println!(
        "Commits:          {} visible, {} in the data file",
        stat.visible.0, stat.checkpoint.0
    );
    println!(
        "Data file:        {} of {} pages in use",
        stat.pages, stat.pages_allocated
    );
    println!(
        "                  {} MiB",
        (stat.pages_allocated * PAGE_BYTES as u64) >> 20
    );
    println!("Log to recover:   {} KiB", stat.log_bytes >> 10);
    println!("Snapshots:        {}", stat.readers.len());
    for reader in &stat.readers {
        println!(
            "                  process {}, thread {}: {} commits old",
            reader.pid, reader.tid, reader.age
        );
    }
    println!("Tables:");
    let snapshot = env.read()?;
    for name in snapshot.tree_names()? {
        if let Some(tree) = snapshot.tree(&name)? {
            println!("  {:>12}  {name}", tree.record().records);
        }
    }
    Ok(ExitCode::SUCCESS)
}
