//! `sapwood backup` and `sapwood restore`.

mod config_files;

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sapwood_directory::engine::Embedded;
use sapwood_directory::{TimedUuids, renew_feed};
use sapwood_server::config::CONFIG_FILE;
use sapwood_server::{Config, admin};
use sapwood_store::BackupInfo;

use crate::cli::{Backup, FIRST_STORE, Restore, Sources};
use crate::open;
use crate::output::Output;
use crate::passing::{Passing, refuse_existing, remove};
use config_files::ConfigFiles;

/// Copies a directory: its data as of one moment, while others write, and what it has beside them.
pub(crate) fn backup(args: &Backup, out: &mut Output) -> Result<ExitCode> {
    let (folder, dest) = (&args.folder, &args.file);
    let config = Config::load(folder)?;
    refuse_existing(dest)?;
    let directory = open::directory(folder, &config, true)?;
    let (mut config_files, elsewhere) = ConfigFiles::of_directory(folder, &config)?;
    if let Some(base) = args.since.as_ref().and_then(|base| base.file_name()) {
        config_files.since = base.to_string_lossy().into_owned();
    }
    // Without one of its parts it is nothing, so it gets its name when it has all of them.
    let passing = Passing::beside(dest, ".partial")?;
    let backup = directory.engine().backup(args.since.as_deref(), &passing.0);
    backup.with_context(|| dest.display().to_string())?;
    let first = first_store(&passing.0);
    config_files.append(&first)?;
    let info = BackupInfo::read(&first)?;
    passing.put_in_place(dest)?;

    let (dest, folder) = (dest.display(), folder.display());
    out.say(match &args.since {
        None => format!("{dest} holds all entries of {folder}, as of commit {}", info.commit),
        Some(base) => format!(
            "{dest} holds what has changed in {folder} since {}, up to commit {}: restoring it needs that one, too",
            base.display(),
            info.commit
        ),
    });
    out.say(format_args!(
        "and the configuration, the hash of the administrator's password{}: keep it as secret as those",
        match config_files.has(&config.tls.key) {
            true => ", the private key",
            false => "",
        },
    ));
    for path in elsewhere {
        out.say(format_args!(
            "{} is not in it, as it is not in {folder}",
            path.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The file that a backup has of the first store.
fn first_store(backup: &Path) -> PathBuf {
    match backup.is_dir() {
        true => backup.join(FIRST_STORE),
        false => backup.to_owned(),
    }
}

/// Makes a directory of a backup. What is there already stays: its data must be moved away first.
pub(crate) fn restore(args: &Restore, out: &mut Output) -> Result<ExitCode> {
    let folder = &args.folder;
    if admin::is_running(folder) {
        bail!("a server runs on {}: stop it first", folder.display());
    }
    let data = open::data_folder(folder);
    if open::is_in_memory(folder) {
        bail!(
            "{} is a directory in memory; restore into another folder, or put the backup in the place of its file 'memory'",
            folder.display()
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
    refuse_lone_increment(args)?;
    let config_files = config_files_of(&args.sources)?;
    let existed = folder.exists();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| folder.display().to_string())?;
    let restore = || {
        let made = config_files.make_missing(folder)?;
        restore.into_folder(&data)?;
        // The one that followed the directory before must not go on with what follows now.
        let engine = Embedded::open(&data, &sapwood_store::Options::new())?;
        renew_feed(&engine, &TimedUuids)?;
        anyhow::Ok(made.keep())
    };
    let different = restore().inspect_err(|_| {
        remove(&data);
        if !existed {
            let _ = fs::remove_dir_all(folder);
        }
    });
    let different = different.with_context(|| folder.display().to_string())?;

    out.say(format_args!(
        "{} holds what is in the backup",
        folder.display()
    ));
    for name in different {
        out.say(format_args!(
            "{} stays as it was: it differs from that in the backup",
            folder.join(name).display()
        ));
    }
    match Config::load(folder) {
        Err(_) if !folder.join(CONFIG_FILE).exists() => out.say(format_args!(
            "There is no {CONFIG_FILE} in it yet, and none in the backup: put back a copy, with the files it names."
        )),
        Err(error) => out.say(error),
        Ok(config) => {
            let mut files = config.tls.files();
            files.push(&config.admin.password_file);
            for file in files.into_iter().filter(|file| file.is_absolute()) {
                if !file.exists() {
                    out.say(format_args!(
                        "{CONFIG_FILE} names {}, which is not there",
                        file.display()
                    ));
                }
            }
            if !config.archive.folder.as_os_str().is_empty() {
                out.say(format_args!(
                    "What is written to it from now on is another history: name an archive folder of its own in {CONFIG_FILE}, in place of {}",
                    config.archive.folder.display()
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An increment has nothing to go on from if it comes first.
fn refuse_lone_increment(args: &Restore) -> Result<()> {
    let Some(file) = args.sources.files.first() else {
        return Ok(());
    };
    let first = first_store(file);
    let Some(since) = BackupInfo::read(&first)?.since else {
        return Ok(());
    };
    let config_files = ConfigFiles::of_backup(&first)?.unwrap_or_default();
    let base = match config_files.since.as_str() {
        "" => "FULL-BACKUP",
        base => base,
    };
    bail!(
        "{0} is an increment: it holds only what has changed since the backup that was called '{base}' and leads to commit {since}. Name that one first: \
         sapwood restore {1} {base} {0}",
        file.display(),
        args.folder.display()
    );
}

/// What the last of the backups that has anything of the kind has beside the data.
fn config_files_of(sources: &Sources) -> Result<ConfigFiles> {
    for file in sources.files.iter().rev() {
        if let Some(config_files) = ConfigFiles::of_backup(&first_store(file))? {
            return Ok(config_files);
        }
    }
    Ok(ConfigFiles::default())
}
