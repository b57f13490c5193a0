//! `sapwood backup` and `sapwood restore`.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_server::config::CONFIG_FILE;
use sapwood_server::{Config, admin};

use crate::cli::{Backup, Restore};
use crate::open;
use crate::output::Output;

/// Copies the data to one file: a snapshot, whoever writes meanwhile.
pub(crate) fn backup(args: &Backup, out: &mut Output) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    if args.file.exists() {
        bail!(
            "{} exists; a backup never overwrites anything",
            args.file.display()
        );
    }
    let directory = open::directory(&args.folder, &config, true)?;
    let backup = directory.engine().backup(args.since.as_deref(), &args.file);
    backup.with_context(|| args.file.display().to_string())?;
    out.say(format_args!(
        "{} holds {} of {}",
        args.file.display(),
        match &args.since {
            Some(base) => format!("what has changed since {}", base.display()),
            None => "all entries".into(),
        },
        args.folder.display()
    ));
    out.say(format_args!(
        "Configuration, password and certificate are not in it: copy {CONFIG_FILE} and the files it names as well."
    ));
    Ok(ExitCode::SUCCESS)
}

/// Makes the data of a folder from a backup. What is there already stays: it must be moved away first.
pub(crate) fn restore(args: &Restore, out: &mut Output) -> Result<ExitCode> {
    if admin::is_running(&args.folder) {
        bail!("a server runs on {}: stop it first", args.folder.display());
    }
    let data = open::data_folder(&args.folder);
    if open::is_in_memory(&args.folder) {
        bail!(
            "{} is a directory in memory; restore into another folder, or put the backup in the place of its file 'memory'",
            args.folder.display()
        );
    }
    if data.exists() {
        bail!(
            "{} exists: move it away first, for example to {}.old",
            data.display(),
            data.display()
        );
    }
    let restore = args.sources.restore()?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&args.folder)
        .with_context(|| args.folder.display().to_string())?;
    let restored = restore.into_folder(&data);
    if restored.is_err() {
        let _ = fs::remove_dir_all(&data);
    }
    restored.with_context(|| args.folder.display().to_string())?;
    out.say(format_args!(
        "{} holds what is in the backup",
        args.folder.display()
    ));
    if !args.folder.join(CONFIG_FILE).exists() {
        out.say(format_args!(
            "There is no {CONFIG_FILE} in it yet: put back a copy, with the files it names."
        ));
    }
    Ok(ExitCode::SUCCESS)
}
