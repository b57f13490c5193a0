//! The test suite of py-lmdb, which was built for Debian's library and is run on that and on ours.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::programs::use_ours;
use super::{Bench, Library, Outcome, Verdict, output, text};
use crate::run::run;

const VERSION: &str = "2.3.0";

/// Without this it would be built with LMDB in it; its tests ask for it too.
const FORCE_SYSTEM: (&str, &str) = ("LMDB_FORCE_SYSTEM", "1");

/// Tests that pass with the original and are not meant to pass with ours, each with its reason.
const EXCEPTED: &[(&str, &str)] = &[];

pub(super) fn judge(bench: &Bench, verdicts: &mut Vec<Verdict>) -> Result<()> {
    let suite = Suite::fetch(bench)?;
    suite.check_library(bench)?;
    let original = suite.run(bench, Library::Original)?;
    let ours = suite.run(bench, Library::Ours)?;
    let passed: Vec<_> = original
        .iter()
        .filter(|(_, result)| *result == "PASSED")
        .collect();
    ensure!(
        !passed.is_empty(),
        "no test passes with the original library"
    );
    for (test, _) in passed {
        let outcome = match ours.get(test).map_or("missing", String::as_str) {
            "PASSED" => Outcome::Passed,
            result => match EXCEPTED.iter().find(|(excepted, _)| excepted == test) {
                Some((_, reason)) => Outcome::Excepted(reason),
                None => Outcome::Failed(result.to_owned()),
            },
        };
        let test = format!("py-lmdb {test}");
        verdicts.push(Verdict { test, outcome });
    }
    Ok(())
}

/// The suite, and the Python that has py-lmdb.
struct Suite {
    python: PathBuf,
    tests: PathBuf,
}

impl Suite {
    fn fetch(bench: &Bench) -> Result<Self> {
        let folder = bench.folder.join("py-lmdb");
        let sources = folder.join(format!("lmdb-{VERSION}"));
        let suite = Self {
            python: folder.join("venv/bin/python"),
            tests: sources.join("tests"),
        };
        let is_complete = folder.join("complete");
        if is_complete.exists() {
            return Ok(suite);
        }
        fs::create_dir_all(&folder)?;
        run(Command::new("python3")
            .args(["-m", "venv"])
            .arg(folder.join("venv")))?;
        let pip = || {
            let mut pip = Command::new(&suite.python);
            pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
            pip.env(FORCE_SYSTEM.0, FORCE_SYSTEM.1).current_dir(&folder);
            pip
        };
        let requirement = format!("lmdb=={VERSION}");
        let from_source = ["--no-binary", "lmdb", "--no-deps", &requirement];
        run(pip().args(["install", "pytest", "setuptools", "wheel"]))?;
        run(pip().arg("install").args(from_source))?;
        run(pip().arg("download").args(from_source))?;
        let archive = format!("lmdb-{VERSION}.tar.gz");
        run(Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .current_dir(&folder))?;
        fs::write(is_complete, "")?;
        Ok(suite)
    }

    /// Fails unless Python runs on ours when it is told so, and on the original when it is not.
    fn check_library(&self, bench: &Bench) -> Result<()> {
        let script = "import lmdb; print(lmdb.version()); print(open('/proc/self/maps').read())";
        for library in Library::BOTH {
            let maps = text(&self.python, |command| {
                command.args(["-c", script]);
                choose(command, bench, library);
            })?;
            let uses_ours = maps.contains(&bench.library().display().to_string());
            ensure!(
                maps.contains("liblmdb.so") && uses_ours == (library == Library::Ours),
                "py-lmdb does not run on the library under test"
            );
        }
        Ok(())
    }

    /// The result of each test, as pytest calls it.
    fn run(&self, bench: &Bench, library: Library) -> Result<BTreeMap<String, String>> {
        let mut results = BTreeMap::new();
        let mut files: Vec<_> = fs::read_dir(&self.tests)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.ends_with("_test.py"))
            .collect();
        files.sort();
        for file in files {
            eprintln!("+ pytest {file} ({})", library.name());
            self.run_file(bench, library, &file, &mut results)?;
        }
        Ok(results)
    }

    /// Each file has a process of its own, so that one that crashes takes no others with it.
    fn run_file(
        &self,
        bench: &Bench,
        library: Library,
        file: &str,
        results: &mut BTreeMap<String, String>,
    ) -> Result<()> {
        let scratch = bench.scratch(
            Path::new(file)
                .file_stem()
                .and_then(|stem| stem.to_str())
                .context("odd name")?,
            library,
        )?;
        let output = output(&self.python, |command| {
            command
                .args(["-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", file])
                .current_dir(&self.tests)
                .env("TMPDIR", &scratch)
                .env(FORCE_SYSTEM.0, FORCE_SYSTEM.1)
                .env("PYTHONDONTWRITEBYTECODE", "1");
            choose(command, bench, library);
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let log = scratch.join("pytest.log");
        fs::write(&log, &*text)?;
        for line in text.lines() {
            let Some((result @ ("PASSED" | "FAILED" | "ERROR"), rest)) = line.split_once(' ')
            else {
                continue;
            };
            let (test, why) = rest.split_once(" - ").unwrap_or((rest, ""));
            let result = if result == "PASSED" {
                result.into()
            } else {
                format!("{why} (see {})", log.display())
            };
            results.insert(test.to_owned(), result);
        }
        Ok(())
    }
}

fn choose(command: &mut Command, bench: &Bench, library: Library) {
    match library {
        Library::Original => {
            command.env_remove("LD_LIBRARY_PATH");
        }
        Library::Ours => use_ours(command, bench),
    }
}
