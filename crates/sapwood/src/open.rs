//! Where things are in a directory's folder, and how it is opened.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{CWD, RenameFlags};
use sapwood_directory::engine::{self, Embedded};
use sapwood_directory::schema::{Schema, SchemaBuilder};
use sapwood_directory::{Directory, Options, TimedUuids, renew_feed};
use sapwood_server::admin::CONTROL_SOCKET;
use sapwood_server::config::CONFIG_FILE;
use sapwood_server::password::Hasher;
use sapwood_server::{Config, admin, root_dse};
use sapwood_store::page::{PAGE_BYTES, Page, PageNo};

use crate::passing::remove;

/// The folder of the store inside a directory's folder.
const DATA_FOLDER: &str = "data";

/// The folder that earlier versions read schema files from.
const SCHEMA_FOLDER: &str = "schema";

pub(crate) fn data_folder(folder: &Path) -> PathBuf {
    folder.join(DATA_FOLDER)
}

/// What a directory is opened with: its schema, what the root DSE says.
pub(crate) fn options(folder: &Path, config: &Config) -> Result<Options> {
    let mut options = Options::new(schema(folder, config)?);
    let version = concat!("Sapwood ", env!("CARGO_PKG_VERSION"));
    options.root_dse = root_dse(version, config);
    options.replica = config.replication.sid;
    options.passwords = Some(Arc::new(hasher(config)));
    Ok(options)
}

/// How the passwords of a directory are hashed, and which it stores.
pub(crate) fn hasher(config: &Config) -> Hasher {
    Hasher {
        limits: config.limits.passwords(),
        has_saslauthd: config.passwords.saslauthd().is_some(),
        ..Hasher::default()
    }
}

/// The schema of the program, with the attribute options that the configuration registers.
fn schema(folder: &Path, config: &Config) -> Result<Schema> {
    let mut builder = SchemaBuilder::new();
    builder
        .attribute_options(&config.schema.attribute_options)
        .with_context(|| folder.join(CONFIG_FILE).display().to_string())?;
    Ok(builder.build()?)
}

/// Refuses a folder that has schema files beside its data, as earlier versions read them: without what they define,
/// entries would be refused or unreadable.
pub(crate) fn refuse_schema_files(folder: &Path) -> Result<()> {
    let files = match fs::read_dir(folder.join(SCHEMA_FOLDER)) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context(folder.join(SCHEMA_FOLDER).display().to_string()),
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for file in files {
        paths.push(file?.path());
    }
    paths.sort();
    let is_schema = |path: &&PathBuf| {
        let extension = path.extension();
        extension.is_some_and(|extension| extension == "schema" || extension == "ldif")
    };
    if let Some(path) = paths.iter().find(is_schema) {
        bail!(
            "{} is not read any more: the schema is kept with the data, as olcAttributeTypes and olcObjectClasses of \
             cn=schema,cn=config. Move it away. If no entry needs it yet, add its definitions with 'sapwood config {} \
             apply FILE.ldif'. Otherwise export the entries with the version that made the directory, and import them \
             into a new one of 'sapwood init --schema FILE'",
            path.display(),
            folder.display()
        );
    }
    Ok(())
}

/// What a directory in memory begins with, in the form of a backup: a file or, of several stores, a folder.
const MEMORY_FILE: &str = "memory";

/// Whether the directory of a folder is kept in memory: nothing but what it begins with is on disk.
pub(crate) fn is_in_memory(folder: &Path) -> bool {
    folder.join(MEMORY_FILE).exists()
}

/// What the data of a directory are called, and what a running server has there.
pub(crate) const DATA_NAMES: [&str; 4] = [DATA_FOLDER, MEMORY_FILE, MEMORY_NEW, CONTROL_SOCKET];

/// The name that it has until it is complete.
const MEMORY_NEW: &str = "memory.new";

/// Makes what is in a directory in memory what it begins with the next time. A directory on disk is as it is.
pub(crate) fn save_memory(folder: &Path, directory: &Directory) -> Result<()> {
    if is_in_memory(folder) {
        write_memory(folder, directory)?;
    }
    Ok(())
}

/// Makes a directory in memory of what is in `directory`, in one step: what was there before stays until the new one is
/// complete.
pub(crate) fn write_memory(folder: &Path, directory: &Directory) -> Result<()> {
    let (new, file) = (folder.join(MEMORY_NEW), folder.join(MEMORY_FILE));
    // Left by one that was interrupted; a backup never overwrites anything.
    remove(&new);
    let write = || {
        directory.engine().backup(None, &new)?;
        if file.is_dir() {
            // A folder takes the place of none that has something in it.
            rustix::fs::renameat_with(CWD, &new, CWD, &file, RenameFlags::EXCHANGE)?;
        } else {
            fs::rename(&new, &file)?;
        }
        fs::File::open(folder)?.sync_all()?;
        anyhow::Ok(())
    };
    write().with_context(|| file.display().to_string())?;
    remove(&new);
    Ok(())
}

/// How the store of a directory is opened for writing: the one that writes to it keeps up its archive.
pub(crate) fn store_options(folder: &Path, config: &Config) -> Result<sapwood_store::Options> {
    let options = sapwood_store::Options::new().create(false);
    let archive = &config.archive.folder;
    if archive.as_os_str().is_empty() {
        return Ok(options);
    }
    let archive = folder.join(archive);
    let archived = options.archive(&archive);
    archived.with_context(|| format!("the archive {}", archive.display()))
}

/// Opens the directory of a folder made by `init`.
pub(crate) fn directory(folder: &Path, config: &Config, read_only: bool) -> Result<Directory> {
    refuse_schema_files(folder)?;
    if is_in_memory(folder) {
        let file = folder.join(MEMORY_FILE);
        if admin::is_running(folder) {
            bail!(
                "{} is in the memory of the server that runs: ask it over LDAP, or stop it",
                folder.display()
            );
        }
        ensure!(
            !data_folder(folder).exists(),
            "{} has both a folder '{DATA_FOLDER}', as a directory on disk has, and '{MEMORY_FILE}', as one in memory has: one of them is not its own",
            folder.display()
        );
        let engine = Embedded::in_memory_from(&file).with_context(|| {
            format!(
                "{}, which a directory in memory begins with, cannot be used. A backup of the directory can take its place",
                file.display()
            )
        })?;
        // Each time it begins anew as it was then.
        renew_feed(&engine, &TimedUuids)?;
        return Directory::open_on(engine, options(folder, config)?)
            .with_context(|| file.display().to_string());
    }
    let store = match read_only {
        true => sapwood_store::Options::new().read_only(true),
        false => store_options(folder, config)?,
    };
    let data = data_folder(folder);
    ensure!(
        data.exists(),
        "{} has no entries: there is neither a folder '{DATA_FOLDER}' nor, as a directory in memory has, '{MEMORY_FILE}'. \
         'sapwood restore' makes the folder of a backup, and a backup can take the place of '{MEMORY_FILE}'",
        folder.display()
    );
    let options = options(folder, config)?;
    let engine = Embedded::open(&data, &store).map_err(|error| match error {
        engine::Error::Corrupt(_) => anyhow!("{error}. {}", remedy(folder)),
        error => error.into(),
    });
    let engine = engine.with_context(|| data.display().to_string())?;
    Directory::open_on(engine, options).with_context(|| data.display().to_string())
}

/// What to do about damage.
pub(crate) fn remedy(folder: &Path) -> String {
    format!(
        "Keep a copy of {0} before anything else. 'sapwood check {0}' tells all that is wrong, 'sapwood export {0}' may still read what is whole, and 'sapwood restore' makes a directory \
         from a backup",
        folder.display()
    )
}

/// Pages, of all stores together, that are looked at before a directory is served: some tenths of a second if all of
/// them come from a disk.
const SAMPLE_PAGES: u64 = 2000;

/// Refuses a directory that is evidently damaged: nobody should learn of it from wrong answers. `check` looks at
/// everything, this at a sample.
pub(crate) fn refuse_damaged(folder: &Path, directory: &Directory) -> Result<()> {
    let envs = directory.engine().envs();
    for env in envs {
        let report = env.check_sample(SAMPLE_PAGES / envs.len() as u64)?;
        let Some(problem) = report.problems.first() else {
            continue;
        };
        bail!(
            "{} is damaged, and is not served: {problem}. {}",
            folder.display(),
            remedy(folder)
        );
    }
    Ok(())
}

/// The data files of which one of both meta pages is not whole. The other one counts then, and nothing is lost: that is
/// what they are for. It is as a power cut leaves a file during a checkpoint, or a disk that damages what it keeps.
pub(crate) fn with_a_torn_meta_page(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(data_folder(folder)).into_iter().flatten();
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    let mut torn: Vec<PathBuf> = files
        .filter(|path| is_data_file(path) && is_torn(path))
        .collect();
    torn.sort();
    torn
}

fn is_data_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix("data-"));
    number.is_some_and(|number| number.parse::<u16>().is_ok())
}

fn is_torn(path: &Path) -> bool {
    let whole = |slot: u64| {
        let mut page = Page::zeroed();
        let file = fs::File::open(path)?;
        file.read_exact_at(page.bytes_mut(), slot * PAGE_BYTES as u64)?;
        Ok::<_, std::io::Error>(page.verify(PageNo(slot)).is_ok())
    };
    // Opening the store tells what cannot be read at all.
    matches!(
        (whole(0), whole(1)),
        (Ok(false), Ok(true)) | (Ok(true), Ok(false))
    )
}
