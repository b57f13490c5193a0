//! `sapwood reload`: the running server reads its configuration and certificates again.

use std::process::ExitCode;

use anyhow::{Result, bail};
use sapwood_server::{Config, admin};

use crate::cli::Folder;
use crate::output::Output;

pub(crate) fn run(args: &Folder, out: &mut Output) -> Result<ExitCode> {
    // A mistake is better told here, where somebody looks.
    Config::load(&args.folder)?;
    let Some(text) = admin::ask(&args.folder, &["reload"], |note| out.say(note))? else {
        bail!("no server runs on {}", args.folder.display());
    };
    out.say(text);
    Ok(ExitCode::SUCCESS)
}
