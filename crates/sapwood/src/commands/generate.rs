//! `sapwood drive generate`: generates entries as LDIF or as AddRequest messages.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sapwood_drive::{self as drive, EntryStream, PlanOptions};

use crate::cli::drive::{Format, Generate, Shape};
use crate::commands::drive::Input;
use crate::output::Output;

pub(crate) fn run(args: &Generate, out: &mut Output) -> Result<ExitCode> {
    let stream = match (&args.template, args.shape) {
        (Some(file), _) => {
            let input = Input::open(file)?;
            let options = PlanOptions {
                settings: args.settings.clone(),
                folder: input.folder,
            };
            EntryStream::template(input.reader, &options, args.entries, args.seed)
                .with_context(|| file.display().to_string())?
        }
        (None, Shape::Flat) => EntryStream::flat(&args.suffix, args.entries, args.seed)?,
        (None, Shape::Org) => EntryStream::org(&args.suffix, args.entries, args.seed)?,
    };
    let format = match args.format {
        Format::Ldif => drive::Format::Ldif,
        Format::Ber => drive::Format::Ber,
    };
    // The stream writes large pieces itself, so a buffer between would only copy.
    match args.output.as_deref() {
        Some(file) if file != Path::new("-") => {
            let mut out = File::create(file).with_context(|| file.display().to_string())?;
            stream.write(format, &mut out)?;
            out.flush()?;
        }
        _ => {
            stream.write(format, out)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
