//! What was measured, kept in a file from one run to the next: a line for each outcome, its parts separated by tabs.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context, Result};

use crate::outcome::Outcome;

/// An outcome and what it is of.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The engine.
    pub(crate) name: String,
    /// What it did.
    pub(crate) what: String,
    /// What its files took on the disk.
    pub(crate) stored_bytes: u64,
    pub(crate) outcome: Outcome,
}

/// Adds an outcome to a file.
pub(crate) fn add(path: &Path, measured: &Measured) -> Result<()> {
    let Measured {
        name,
        what,
        stored_bytes,
        outcome,
    } = measured;
    let open = fs::OpenOptions::new().append(true).create(true).open(path);
    let mut file = open.with_context(|| path.display().to_string())?;
    Ok(writeln!(file, "{name}\t{what}\t{stored_bytes}\t{outcome}")?)
}

/// The outcomes in a file; none if it is not there.
pub(crate) fn read(path: &Path) -> Result<Vec<Measured>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| path.display().to_string())?,
    };
    let lines = text.lines().map(|line| {
        let &[name, what, stored_bytes, outcome] = &line.split('\t').collect::<Vec<_>>()[..] else {
            anyhow::bail!("{}: no result: {line}", path.display());
        };
        Ok(Measured {
            name: name.to_owned(),
            what: what.to_owned(),
            stored_bytes: stored_bytes.parse()?,
            outcome: outcome.parse()?,
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_added_to_those_of_earlier_runs() {
        let path = std::env::temp_dir().join(format!("xact-results-{}", std::process::id()));
        assert!(read(&path).unwrap().is_empty());
        let outcome: Outcome = "1 2 3 4 5 6 7 8 100:1".parse().unwrap();
        for stored_bytes in [5, 6] {
            let (name, what) = ("B+tree, 2 KiB".to_owned(), "random inserts".to_owned());
            let outcome = outcome.clone();
            add(
                &path,
                &Measured {
                    name,
                    what,
                    stored_bytes,
                    outcome,
                },
            )
            .unwrap();
        }
        let all = read(&path).unwrap();
        fs::write(&path, "something else\n").unwrap();
        let other = read(&path);
        fs::remove_file(&path).unwrap();
        assert!(other.is_err());
        let [first, second] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((first.stored_bytes, second.stored_bytes), (5, 6));
        assert_eq!(
            (&*first.name, &*first.what),
            ("B+tree, 2 KiB", "random inserts")
        );
        assert_eq!(first.outcome.to_string(), outcome.to_string());
    }
}
