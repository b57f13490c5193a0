//! How much code there is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::run::root;
use crate::source;

/// Count the lines of each crate: without blank ones, comments and tests.
///
/// Tests are folders named `tests`, files named `*_tests.rs`, and items and modules under `#[cfg(test)]`. Examples and
/// benchmarks are not counted either.
#[derive(Args)]
pub(crate) struct Lines {
    /// Count what this revision has, and say what has changed since; otherwise only what is there now.
    revision: Option<String>,
}

impl Lines {
    pub(crate) fn run(&self) -> Result<()> {
        let now = count(&tree()?);
        let Some(revision) = &self.revision else {
            for (name, lines) in total(&now) {
                println!("{lines:>7}  {name}");
            }
            return Ok(());
        };
        let before = count(&of_revision(revision)?);
        let (now, before) = (total(&now), total(&before));
        println!("{:>7} {:>7} {:>7}", "then", "now", "");
        let names: BTreeMap<&str, ()> = before
            .iter()
            .chain(&now)
            .map(|(name, _)| (*name, ()))
            .collect();
        for name in names.keys() {
            let find = |counts: &[(&str, usize)]| {
                let found = counts.iter().find(|(other, _)| other == name);
                found.map_or(0, |(_, lines)| *lines)
            };
            let (then, lines) = (find(&before), find(&now));
            let change = match then {
                0 => String::new(),
                _ => format!("{:+.1} %", (lines as f64 / then as f64 - 1.0) * 100.0),
            };
            println!("{then:>7} {lines:>7} {change:>9}  {name}");
        }
        Ok(())
    }
}

/// The counts, and their sum.
fn total(counts: &BTreeMap<String, usize>) -> Vec<(&str, usize)> {
    let each = counts.iter().map(|(name, lines)| (name.as_str(), *lines));
    each.chain([("(all)", counts.values().sum())]).collect()
}

/// The lines of each crate, by its folder.
fn count(files: &[(PathBuf, String)]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (path, source) in source::without_tests(files.to_vec()) {
        if let Some(name) = crate_of(&path) {
            *counts.entry(name).or_default() += source.lines();
        }
    }
    counts
}

/// The folder of the crate that a file is source of.
fn crate_of(path: &Path) -> Option<String> {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let src = parts.iter().position(|part| *part == "src")?;
    Some(parts[..src].join("/"))
}

fn is_source(path: &str) -> bool {
    let folders = ["crates/", "xtask/"];
    path.ends_with(".rs") && folders.iter().any(|folder| path.starts_with(folder))
}

/// The files of the working tree that git knows, or would ask about.
fn tree() -> Result<Vec<(PathBuf, String)>> {
    let listed = git(&["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let paths = listed.lines().filter(|path| is_source(path));
    let paths = paths.filter(|path| root().join(path).exists());
    let read = |path: &str| {
        let text = fs::read_to_string(root().join(path));
        Ok((
            path.into(),
            text.with_context(|| format!("cannot read {path}"))?,
        ))
    };
    paths.map(read).collect()
}

fn of_revision(revision: &str) -> Result<Vec<(PathBuf, String)>> {
    let listed = git(&["ls-tree", "-r", "--name-only", revision])?;
    let paths = listed.lines().filter(|path| is_source(path));
    let read = |path: &str| Ok((path.into(), git(&["show", &format!("{revision}:{path}")])?));
    paths.map(read).collect()
}

fn git(args: &[&str]) -> Result<String> {
    let output = Command::new("git").args(args).current_dir(root()).output();
    let output = output.context("cannot start git")?;
    if !output.status.success() {
        bail!(
            "git {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_is_counted_without_tests_and_examples() {
        let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let counts = count(&[
            file(
                "crates/a/src/lib.rs",
                "//! Docs.\n\nmod b;\n#[cfg(test)]\nmod tests {}\n",
            ),
            file("crates/a/src/b.rs", "fn f() {\n}\n"),
            file("crates/a/tests/all.rs", "fn f() {}\n"),
            file("crates/a/examples/one.rs", "fn f() {}\n"),
            file("xtask/src/main.rs", "fn main() {}\n"),
        ]);
        let expected = [("crates/a", 3), ("xtask", 1), ("(all)", 4)];
        assert_eq!(total(&counts), expected);
    }

    #[test]
    fn what_is_counted_is_there() {
        let counts = count(&tree().unwrap());
        assert!(counts["crates/store"] > counts["xtask"]);
        assert!(of_revision("no such revision").is_err());
    }
}
