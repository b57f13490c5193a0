//! The reject file: what an import could not take, in a form that can be imported again.
//!
//! LDIF has the reasons as comments. Messages have no comments: their reasons go to a second file, a line for each.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Access, access};
use sapwood_directory::{ImportFormat, ImportRejection};

use crate::cli::Import;
use crate::output::Output;
use crate::progress::Progress;

/// Rejected entries that are told on standard error; all are in the reject file.
const TOLD_MAX: u64 = 20;

/// Keeps rejected entries.
pub(super) struct Rejects {
    path: PathBuf,
    format: ImportFormat,
    /// Made for the first rejected entry; the second one is for reasons, where entries have no room for them.
    files: Option<(File, Option<File>)>,
    rejected: u64,
    /// Why they cannot be written.
    failure: Option<io::Error>,
}

impl Rejects {
    /// Nothing is rejected yet; `files` are what is imported.
    ///
    /// # Errors
    /// When the reject file could not be written, or would be one of the files that are read.
    pub(super) fn new(args: &Import, files: &[PathBuf]) -> Result<Self> {
        let rejects = Rejects {
            path: reject_file(args, files),
            format: super::format(args),
            files: None,
            rejected: 0,
            failure: None,
        };
        for path in rejects.paths() {
            if let Ok(own) = path.metadata() {
                let is_own = |file: &PathBuf| {
                    let other = file.metadata();
                    other.is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino()))
                };
                ensure!(
                    !files.iter().any(is_own),
                    "{} is imported and cannot be the reject file: name another with --reject-file",
                    path.display()
                );
                ensure!(!own.is_dir(), "{} is a folder, not a file", path.display());
            }
            let (place, needs) = match path.exists() {
                true => (path.as_path(), Access::WRITE_OK),
                false => (folder(&path), Access::WRITE_OK | Access::EXEC_OK),
            };
            access(place, needs).with_context(|| {
                format!(
                    "rejected entries could not be written to {}: name another file with --reject-file",
                    path.display()
                )
            })?;
        }
        Ok(rejects)
    }

    /// Keeps an entry and tells the first ones.
    pub(super) fn keep(&mut self, rejection: ImportRejection<'_>, progress: &Progress) {
        let ImportRejection {
            source,
            line,
            reason,
            text,
            ..
        } = rejection;
        self.rejected += 1;
        if self.rejected <= TOLD_MAX {
            progress.tell(&format!("{source}:{line}: {reason}"));
        } else if self.rejected == TOLD_MAX + 1 {
            progress.tell(&format!("more are rejected: see {}", self.path.display()));
        }
        let reason = format!("{source}:{line}: {}", reason.replace(['\r', '\n'], " "));
        if let Err(failure) = self.write(&reason, text) {
            self.failure.get_or_insert(failure);
        }
    }

    /// Says where they are; there having been any is a failure.
    pub(super) fn finish(self, out: &mut Output) -> Result<ExitCode> {
        if let Some(failure) = self.failure {
            return Err(failure).with_context(|| self.path.display().to_string());
        }
        if self.rejected == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let file = self.path.display();
        match self.format {
            ImportFormat::Ldif => out.say(format_args!(
                "The rejected entries are in {file}: correct them there and import that file."
            )),
            ImportFormat::Ber => out.say(format_args!(
                "The rejected entries are in {file}, the reasons in {}.",
                self.reasons().display()
            )),
        }
        Ok(ExitCode::FAILURE)
    }

    /// The files, of which there are two when entries have no room for reasons.
    fn paths(&self) -> Vec<PathBuf> {
        match self.format {
            ImportFormat::Ldif => vec![self.path.clone()],
            ImportFormat::Ber => vec![self.path.clone(), self.reasons()],
        }
    }

    fn reasons(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".reasons");
        name.into()
    }

    fn write(&mut self, reason: &str, text: &[u8]) -> io::Result<()> {
        if self.files.is_none() {
            let reasons = match self.format {
                ImportFormat::Ldif => None,
                ImportFormat::Ber => Some(File::create(self.reasons())?),
            };
            self.files = Some((File::create(&self.path)?, reasons));
        }
        match &mut self.files {
            Some((entries, Some(reasons))) => {
                entries.write_all(text)?;
                reasons.write_all(format!("{reason}\n").as_bytes())
            }
            Some((entries, None)) => {
                let mut record = format!("# {reason}\n").into_bytes();
                record.extend_from_slice(text.trim_ascii_end());
                record.extend_from_slice(b"\n\n");
                entries.write_all(&record)
            }
            None => Ok(()),
        }
    }
}

/// Where rejected entries go unless the command line says otherwise: beside where the command runs, named after the
/// first file.
fn reject_file(args: &Import, files: &[PathBuf]) -> PathBuf {
    args.reject_file.clone().unwrap_or_else(|| {
        let first = files.first().and_then(|file| file.file_name());
        let first = first.unwrap_or_default();
        let first = if first == "-" {
            "stdin".into()
        } else {
            first.to_string_lossy()
        };
        PathBuf::from(format!("{first}.rejected"))
    })
}

/// The folder that a file is to be in.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}
