//! The reject file: what an import could not take, in a form that can be imported again.
//!
//! LDIF has the reasons as comments. Messages have no comments: their reasons go to a second file, a line for each.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sapwood_directory::{ImportFormat, ImportRejection};

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
    pub(super) fn new(path: PathBuf, format: ImportFormat) -> Self {
        Rejects {
            path,
            format,
            files: None,
            rejected: 0,
            failure: None,
        }
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
    pub(super) fn finish(self) -> Result<ExitCode> {
        if let Some(failure) = self.failure {
            return Err(failure).with_context(|| self.path.display().to_string());
        }
        if self.rejected == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let file = self.path.display();
        match self.format {
            ImportFormat::Ldif => {
                println!(
                    "The rejected entries are in {file}: correct them there and import that file."
                );
            }
            ImportFormat::Ber => println!(
                "The rejected entries are in {file}, the reasons in {}.",
                self.reasons().display()
            ),
        }
        Ok(ExitCode::FAILURE)
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
