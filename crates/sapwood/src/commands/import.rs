//! `sapwood import`: offline bulk load of LDIF.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use sapwood_directory::{
    IMPORT_MEMORY_BYTES_DEFAULT, ImportObserver, ImportOptions, ImportPhase, ImportProgress,
    ImportRejection, ImportSource,
};
use sapwood_server::password::Hasher;
use sapwood_server::{Config, admin};

use crate::cli::Import;
use crate::open;
use crate::progress::Progress;

/// Rejected entries that are told on standard error; all are in the reject file.
const REJECTIONS_TOLD_MAX: u64 = 20;

pub(crate) fn run(args: &Import) -> Result<ExitCode> {
    let config = Config::load(&args.folder)?;
    if admin::is_running(&args.folder) {
        bail!(
            "a server runs on {}: stop it first, or add entries with 'ldapadd -c'",
            args.folder.display()
        );
    }
    let sources = args
        .files
        .iter()
        .map(|file| source(file))
        .collect::<Result<Vec<_>>>()?;
    let bytes = args
        .files
        .iter()
        .map(|file| Some(file.metadata().ok().filter(|data| data.is_file())?.len()));
    let total_bytes = bytes.sum::<Option<u64>>().unwrap_or(0);
    let directory = open::directory(&args.folder, &config, false)?;
    let scratch = tempfile::Builder::new()
        .prefix("import-")
        .tempdir_in(&args.folder)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let options = ImportOptions {
        memory_bytes: args
            .memory_mib
            .map_or(IMPORT_MEMORY_BYTES_DEFAULT, |mib| (mib as usize) << 20),
        folder: scratch.path().to_owned(),
        threads,
        hasher: Some(&Hasher),
        creator: config.admin.dn.clone(),
    };
    eprintln!(
        "Sorting in {} MiB of memory, parsing on {threads} threads",
        options.memory_bytes >> 20
    );
    let observer = Observer {
        total_bytes,
        reject_file: reject_file(args),
        state: Mutex::new(State {
            progress: Progress::new(total_bytes, "bytes"),
            phase: ImportPhase::Read,
            rejects: None,
            rejected: 0,
            failure: None,
        }),
    };
    let report = directory.import(sources, &options, &observer)?;
    let state = observer
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    state.progress.finish();
    println!(
        "{} entries added, {} rejected",
        report.added, report.rejected
    );
    if let Some(failure) = state.failure {
        return Err(failure).with_context(|| observer.reject_file.display().to_string());
    }
    if report.rejected == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "The rejected entries are in {}: correct them there and import that file.",
        observer.reject_file.display()
    );
    Ok(ExitCode::FAILURE)
}

fn source(file: &Path) -> Result<ImportSource<'static>> {
    if file == Path::new("-") {
        return Ok(ImportSource {
            name: "standard input".into(),
            reader: Box::new(io::stdin()),
        });
    }
    let reader = File::open(file).with_context(|| file.display().to_string())?;
    Ok(ImportSource {
        name: file.display().to_string(),
        reader: Box::new(reader),
    })
}

fn reject_file(args: &Import) -> PathBuf {
    args.reject_file.clone().unwrap_or_else(|| {
        let first = args
            .files
            .first()
            .and_then(|file| file.file_name())
            .unwrap_or_default();
        let first = if first == "-" {
            "stdin".into()
        } else {
            first.to_string_lossy()
        };
        PathBuf::from(format!("{first}.rejected"))
    })
}

/// Shows how far the import is, and keeps what it rejects.
struct Observer {
    total_bytes: u64,
    reject_file: PathBuf,
    state: Mutex<State>,
}

struct State {
    progress: Progress,
    phase: ImportPhase,
    /// Made for the first rejected entry.
    rejects: Option<File>,
    rejected: u64,
    /// Why the reject file cannot be written.
    failure: Option<io::Error>,
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
                    .restart(0, "entries; writing names and indexes"),
            }
        }
        state.progress.set(if now.phase == ImportPhase::Read {
            now.bytes_read
        } else {
            now.entries_written
        });
    }

    fn rejected(&self, rejection: ImportRejection<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ImportRejection {
            source,
            line,
            reason,
            text,
        } = rejection;
        state.rejected += 1;
        if state.rejected <= REJECTIONS_TOLD_MAX {
            state.progress.tell(&format!("{source}:{line}: {reason}"));
        } else if state.rejected == REJECTIONS_TOLD_MAX + 1 {
            state.progress.tell(&format!(
                "more are rejected: see {}",
                self.reject_file.display()
            ));
        }
        if let Err(failure) = state.keep(&self.reject_file, source, line, reason, text) {
            state.failure.get_or_insert(failure);
        }
    }
}

impl State {
    /// Appends an entry to the reject file, which is LDIF with the reasons as comments.
    fn keep(
        &mut self,
        path: &Path,
        source: &str,
        line: u64,
        reason: &str,
        text: &[u8],
    ) -> io::Result<()> {
        let file = match &mut self.rejects {
            Some(file) => file,
            none => none.insert(File::create(path)?),
        };
        let mut record =
            format!("# {source}:{line}: {}\n", reason.replace(['\r', '\n'], " ")).into_bytes();
        record.extend_from_slice(text.trim_ascii_end());
        record.extend_from_slice(b"\n\n");
        file.write_all(&record)
    }
}
