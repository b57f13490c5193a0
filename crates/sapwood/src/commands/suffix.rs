//! `sapwood suffix`: naming contexts added and listed.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_directory::Directory;
use sapwood_directory::engine::Embedded;
use sapwood_server::{Config, admin};

use crate::cli::{Suffix, SuffixAction};
use crate::open;
use crate::output::Output;

pub(crate) fn run(args: &Suffix, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    match (args.action, &args.dn) {
        (SuffixAction::Add, Some(dn)) => add(args, &config, dn, out)?,
        _ => {
            let directory = open::directory(&args.folder, &config, true)?;
            for dn in directory.snapshot()?.naming_contexts() {
                writeln!(out, "{dn}")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(args: &Suffix, config: &Config, dn: &str, out: &mut Output) -> Result<()> {
    let folder = &args.folder;
    if admin::is_running(folder) {
        bail!("a server runs on {}: stop it first", folder.display());
    }
    let (directory, store) = if !args.own_store {
        (open::directory(folder, config, false)?, 0)
    } else if open::is_in_memory(folder) {
        bail!("a directory in memory has the stores that it was made with");
    } else {
        // What cannot be is better refused before there is a store for it.
        open::directory(folder, config, false)?.check_new_context(dn)?;
        let data = open::data_folder(folder);
        let store = open::store_options(folder, config)?;
        let added = Embedded::add_store(&data, &store);
        let (engine, store) = added.with_context(|| data.display().to_string())?;
        let options = open::options(folder, config)?;
        (Directory::open_on(engine, options)?, store)
    };
    directory.add_naming_context(dn, store)?;
    open::save_memory(folder, &directory)?;
    out.say(format_args!(
        "Added {dn}; its own entry is still to be added."
    ));
    Ok(())
}
