//! `sapwood reload`: the running server reads its configuration and certificates again.

use std::process::ExitCode;

use anyhow::{Result, bail};
use sapwood_server::{Config, admin};

use crate::cli::Folder;

pub(crate) fn run(args: &Folder) -> Result<ExitCode> {
    // A mistake is better told here, where somebody looks.
    Config::load(&args.folder)?;
    let Some(text) = admin::ask(&args.folder, &["reload"], |note| println!("{note}"))? else {
        bail!("no server runs on {}", args.folder.display());
    };
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}
