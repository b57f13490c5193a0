//! Writes the report of a run in every requested form.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sapwood_drive::Report;

use crate::cli::drive::Run;
use crate::output::Output;

type Form = fn(&Report) -> String;

/// The destinations of the report: one form goes to standard output, which is the table unless `-` names another, the
/// rest go to files.
pub(super) struct Reports<'a> {
    printed: Form,
    files: Vec<(&'a Path, File, Form)>,
}

impl<'a> Reports<'a> {
    /// Opens the files, so that one that cannot be written is an error before the run.
    pub(super) fn open(args: &'a Run) -> Result<Self> {
        let mut printed = None;
        let mut files = Vec::new();
        for (file, form) in [
            (&args.json, Report::json as Form),
            (&args.csv, Report::csv),
            (&args.html, Report::html),
        ] {
            let Some(path) = file.as_deref() else {
                continue;
            };
            if path == Path::new("-") {
                ensure!(
                    printed.replace(form).is_none(),
                    "only one report can go to standard output"
                );
                continue;
            }
            let opened = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path);
            let opened = opened.with_context(|| path.display().to_string())?;
            files.push((path, opened, form));
        }
        Ok(Reports {
            printed: printed.unwrap_or(Report::to_string),
            files,
        })
    }

    /// Writes the form for standard output.
    pub(super) fn print(&self, report: &Report, out: &mut Output) -> io::Result<()> {
        out.write_all((self.printed)(report).as_bytes())?;
        out.flush()
    }

    /// Writes the files, replacing their content.
    pub(super) fn write(self, report: &Report) -> Result<()> {
        for (path, mut file, form) in self.files {
            let written = match file.metadata()?.is_file() {
                true => file.set_len(0),
                false => Ok(()),
            };
            written
                .and_then(|()| file.write_all(form(report).as_bytes()))
                .with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}
