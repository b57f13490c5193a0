//! `sapwood stat`: sizes and numbers.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use sapwood_directory::IndexStatus;
use sapwood_server::{Config, admin};
use sapwood_store::Env;
use sapwood_store::page::PAGE_BYTES;

use crate::cli::Folder;
use crate::open;
use crate::output::Output;

pub(crate) fn run(args: &Folder, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    let directory = open::directory(&args.folder, &config, true)?;
    let contexts: Vec<_> = directory
        .snapshot()?
        .naming_contexts()
        .map(str::to_owned)
        .collect();
    writeln!(out, "Naming contexts:  {}", contexts.join("; "))?;
    writeln!(
        out,
        "Server:           {}",
        if admin::is_running(&args.folder) {
            "running"
        } else {
            "not running"
        }
    )?;
    let indexes = directory.indexes()?;
    let envs = directory.engine().envs();
    for (number, env) in envs.iter().enumerate() {
        if envs.len() > 1 {
            writeln!(out, "\nStore {number}")?;
        }
        store(env, &indexes, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The figures of one store.
fn store(env: &Env, indexes: &[IndexStatus], out: &mut impl Write) -> Result<()> {
    let stat = env.stat()?;
    writeln!(
        out,
        "Commits:          {} visible, {} in the data file",
        stat.visible.0, stat.checkpoint.0
    )?;
    writeln!(
        out,
        "Checkpoints:      {} since it was opened",
        stat.checkpoints
    )?;
    writeln!(
        out,
        "Data file:        {} of {} pages in use",
        stat.pages, stat.pages_allocated
    )?;
    writeln!(
        out,
        "                  {} MiB",
        (stat.pages_allocated * PAGE_BYTES as u64) >> 20
    )?;
    writeln!(out, "Log to recover:   {} KiB", stat.log_bytes >> 10)?;
    writeln!(out, "Log ever written: {} bytes", stat.log_bytes_ever)?;
    writeln!(out, "Snapshots:        {}", stat.readers.len())?;
    for reader in &stat.readers {
        writeln!(
            out,
            "                  process {}, thread {}: {} commits old",
            reader.pid, reader.tid, reader.age
        )?;
    }
    writeln!(out, "Tables:")?;
    let snapshot = env.read()?;
    for name in snapshot.tree_names()? {
        if let Some(tree) = snapshot.tree(&name)? {
            let index = indexes
                .iter()
                .find(|index| index.table.as_bytes() == name.as_slice());
            let is_of = index.map_or(String::new(), |index| {
                format!("  {} {}", index.attribute, index.kind)
            });
            let name = String::from_utf8_lossy(&name);
            writeln!(out, "  {:>12}  {name}{is_of}", tree.record().records)?;
        }
    }
    Ok(())
}
