//! Running other programs: each is shown before it runs, and a failure names it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the workspace, whatever folder the command was given in.
pub(crate) fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or(manifest.clone(), PathBuf::from)
}

/// Where cargo puts what it builds, and we what is built besides.
pub(crate) fn target() -> PathBuf {
    target_named(std::env::var_os("CARGO_TARGET_DIR"))
}

/// The folder that was asked for, which for cargo is relative to where it runs: for the one that [`cargo`] starts, the
/// root.
fn target_named(asked: Option<OsString>) -> PathBuf {
    root().join(asked.unwrap_or_else(|| OsString::from("target")))
}

/// Runs the cargo that runs us, in the root of the workspace.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    run(&mut command)
}

/// Runs `command` with our own input and output, and fails unless it exits with 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    eprintln!("+ {line}");
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Whether `command` starts and exits with 0, its output thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

pub(crate) fn line(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let mut line = program
        .file_name()
        .unwrap_or(command.get_program())
        .to_string_lossy()
        .into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_goes_where_cargo_was_told_to_put_it() {
        assert_eq!(target_named(None), root().join("target"));
        let elsewhere = target_named(Some(OsString::from("/elsewhere")));
        assert_eq!(elsewhere, PathBuf::from("/elsewhere"));
        let beside = target_named(Some(OsString::from("beside")));
        assert_eq!(beside, root().join("beside"));
    }
}
