//! `sapwood import`: bulk load of entries, offline here and over LDAP in `online`.

mod online;
mod rejects;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use sapwood_directory::{
    IMPORT_MEMORY_BYTES_DEFAULT, ImportFormat, ImportObserver, ImportOptions, ImportPhase,
    ImportProgress, ImportRejection, ImportReport, ImportSource,
};
use sapwood_server::password::Hasher;
use sapwood_server::{Config, admin};

use crate::cli::Import;
use crate::cli::drive::Format;
use crate::open;
use crate::progress::Progress;
use rejects::Rejects;

pub(crate) fn run(args: &Import) -> Result<ExitCode> {
    if let Some(url) = &args.online {
        return online::run(args, url);
    }
    let (folder, files) = match args.paths.split_first() {
        Some((folder, files)) if !files.is_empty() => (folder, files),
        _ => bail!("name the folder of the directory, then the files; '-' is standard input"),
    };
    let config = Config::load(folder)?;
    if admin::is_running(folder) {
        bail!(
            "a server runs on {}: stop it first, or add the entries to it with --online",
            folder.display()
        );
    }
    let format = format(args);
    let sources = sources(files, format)?;
    let total_bytes = total_bytes(files);
    let rejects = Rejects::new(args, files)?;
    let directory = open::directory(folder, &config, false)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let options = ImportOptions {
        memory_bytes: args
            .memory_mib
            .map_or(IMPORT_MEMORY_BYTES_DEFAULT, |mib| (mib as usize) << 20),
        // Files there have no names: nothing is left of them, however the import ends.
        folder: folder.clone(),
        threads,
        hasher: Some(&Hasher),
        creator: config.admin.dn.clone(),
        skip_present: args.go_on,
    };
    eprintln!(
        "Sorting in {} MiB of memory, parsing on {threads} threads",
        options.memory_bytes >> 20
    );
    let observer = Observer {
        total_bytes,
        state: Mutex::new(State {
            progress: Progress::new(total_bytes, "bytes"),
            phase: ImportPhase::Read,
            rejects,
        }),
    };
    let report = directory.import(sources, &options, &observer)?;
    open::save_memory(folder, &directory)?;
    let state = observer.state.into_inner();
    let State {
        progress, rejects, ..
    } = state.unwrap_or_else(PoisonError::into_inner);
    progress.finish();
    tell(report, rejects)
}

/// Says what was done; rejected entries are a failure.
fn tell(report: ImportReport, rejects: Rejects) -> Result<ExitCode> {
    let present = match report.present {
        0 => String::new(),
        present => format!(", {present} there already"),
    };
    println!(
        "{} entries added, {} rejected{present}",
        report.added, report.rejected
    );
    rejects.finish()
}

fn format(args: &Import) -> ImportFormat {
    match args.format {
        Format::Ldif => ImportFormat::Ldif,
        Format::Ber => ImportFormat::Ber,
    }
}

fn sources(files: &[PathBuf], format: ImportFormat) -> Result<Vec<ImportSource<'static>>> {
    for (at, file) in files.iter().enumerate() {
        // Each of two readers would get a part of what comes.
        let is_again = files[..at].iter().any(|other| is_same_pipe(other, file));
        ensure!(
            !is_again,
            "{} is named twice, and can be read only once",
            file.display()
        );
    }
    files.iter().map(|file| source(file, format)).collect()
}

/// Whether two names stand for one source that cannot be read twice.
fn is_same_pipe(one: &Path, other: &Path) -> bool {
    if one == Path::new("-") || other == Path::new("-") {
        return one == other;
    }
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => {
            !one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        _ => false,
    }
}

fn source(file: &Path, format: ImportFormat) -> Result<ImportSource<'static>> {
    let (name, reader): (_, Box<dyn Read + Send>) = if file == Path::new("-") {
        ("standard input".into(), Box::new(io::stdin()))
    } else {
        (
            file.display().to_string(),
            Box::new(Lazy::Closed(file.to_owned())),
        )
    };
    // A pipe is opened when it is read: opening it waits for who writes to it.
    let mut again: Option<Box<dyn Read + Send>> = None;
    if file != Path::new("-") && file.metadata().with_context(|| name.clone())?.is_file() {
        again = Some(Box::new(Lazy::Closed(file.to_owned())));
    }
    Ok(ImportSource {
        name,
        reader,
        format,
        again,
    })
}

/// A file that is opened by the thread that reads it.
enum Lazy {
    Closed(PathBuf),
    Open(File),
}

impl Read for Lazy {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if let Lazy::Closed(path) = self {
            *self = Lazy::Open(File::open(path)?);
        }
        match self {
            Lazy::Open(file) => file.read(space),
            Lazy::Closed(_) => Ok(0),
        }
    }
}

/// The sizes of all files together; 0 when one has none, as pipes.
fn total_bytes(files: &[PathBuf]) -> u64 {
    let bytes = files
        .iter()
        .map(|file| Some(file.metadata().ok().filter(|data| data.is_file())?.len()));
    bytes.sum::<Option<u64>>().unwrap_or(0)
}

/// Shows how far the import is, and keeps what it rejects.
struct Observer {
    total_bytes: u64,
    state: Mutex<State>,
}

struct State {
    progress: Progress,
    phase: ImportPhase,
    rejects: Rejects,
}

impl ImportObserver for Observer {
    fn progress(&self, now: ImportProgress) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.phase != now.phase {
            state.phase = now.phase;
            match now.phase {
                ImportPhase::Read => state.progress.restart(self.total_bytes, "bytes"),
                ImportPhase::Write => state.progress.restart(now.entries_read, "entries written"),
                ImportPhase::Index => state
                    .progress
                    .restart(now.index_records, "records of names and indexes written"),
            }
        }
        state.progress.set(match now.phase {
            ImportPhase::Read => now.bytes_read,
            ImportPhase::Write => now.entries_written,
            ImportPhase::Index => now.index_records_written,
        });
    }

    fn rejected(&self, rejection: ImportRejection<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State {
            progress, rejects, ..
        } = &mut *state;
        rejects.keep(rejection, progress);
    }
}
