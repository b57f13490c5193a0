//! `cargo xtask judge-lmdb`: programs written for LMDB judge `liblmdb.so`. Each does the same once with the original
//! library and once with ours, and what it says must be the same.

mod bindings;
mod programs;
mod py_lmdb;
mod slapd;
mod speed;
mod users;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::packages;
use crate::run::{cargo, target};

/// Let programs written for LMDB judge liblmdb.so. Without a choice all of them do.
#[derive(Args)]
pub(crate) struct JudgeLmdb {
    /// LMDB's own test programs and tools, linked with ours.
    #[arg(long)]
    programs: bool,
    /// The test suite of py-lmdb.
    #[arg(long)]
    py_lmdb: bool,
    /// Debian's slapd with its LMDB backend.
    #[arg(long)]
    slapd: bool,
    /// The test suites of lmdb-go, in both forks, and of heed.
    #[arg(long)]
    bindings: bool,
    /// Postfix's postmap, PHP's dba and Perl's LMDB_File.
    #[arg(long)]
    users: bool,
    /// Instead of judging, measure what the C interface costs beside LMDB (release builds of both).
    #[arg(long)]
    speed: bool,
    /// Judge what the release profile builds; tests take less time, and debug assertions are off.
    #[arg(long)]
    release: bool,
    /// Do not install missing operating-system packages, only name them.
    #[arg(long)]
    no_install: bool,
}

impl JudgeLmdb {
    pub(crate) fn run(self) -> Result<()> {
        packages::ensure(packages::JUDGE_LMDB, !self.no_install)?;
        if self.speed {
            return speed::compare(&Bench::set_up(true)?);
        }
        let chosen = [
            self.programs,
            self.py_lmdb,
            self.slapd,
            self.bindings,
            self.users,
        ];
        let all = !chosen.contains(&true);
        let bench = Bench::set_up(self.release)?;
        let mut verdicts = Vec::new();
        if all || self.programs {
            programs::judge(&bench, &mut verdicts)?;
        }
        if all || self.py_lmdb {
            py_lmdb::judge(&bench, &mut verdicts)?;
        }
        if all || self.slapd {
            slapd::judge(&bench, &mut verdicts)?;
        }
        if all || self.bindings {
            bindings::judge(&bench, &mut verdicts)?;
        }
        if all || self.users {
            users::judge(&bench, &mut verdicts);
        }
        sum_up(&verdicts)
    }
}

/// What became of one test.
struct Verdict {
    test: String,
    outcome: Outcome,
}

enum Outcome {
    Passed,
    /// Fails, and is meant to: the reason.
    Excepted(&'static str),
    Failed(String),
}

impl Verdict {
    /// The verdict on a test that must succeed.
    fn of(test: impl Into<String>, result: Result<()>) -> Self {
        let outcome = match result {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let test = test.into();
        Self { test, outcome }
    }
}

/// What each step on a way has to say.
type Steps = Vec<(&'static str, Result<String>)>;

/// What a step says that has only to succeed.
const DONE: &str = "done";

fn sum_up(verdicts: &[Verdict]) -> Result<()> {
    let (mut passed, mut excepted, mut failed) = (0, 0, 0);
    for Verdict { test, outcome } in verdicts {
        match outcome {
            Outcome::Passed => {
                passed += 1;
                println!("passed    {test}");
            }
            Outcome::Excepted(reason) => {
                excepted += 1;
                println!("excepted  {test}: {reason}");
            }
            Outcome::Failed(why) => {
                failed += 1;
                println!("FAILED    {test}: {why}");
            }
        }
    }
    println!("{passed} passed, {excepted} excepted, {failed} failed");
    ensure!(failed == 0, "{failed} tests failed");
    Ok(())
}

/// Which library a program runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    Original,
    Ours,
}

impl Library {
    const BOTH: [Self; 2] = [Self::Original, Self::Ours];

    fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Ours => "ours",
        }
    }
}

/// The folder everything happens in, and our library in it.
struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn set_up(release: bool) -> Result<Self> {
        let target = target();
        let profile = if release { "release" } else { "dev" };
        cargo([
            "build",
            "--package",
            "sapwood-lmdb-abi",
            "--profile",
            profile,
        ])?;
        let built = target.join(if release { "release" } else { "debug" });
        let bench = Self {
            folder: target.join("judge-lmdb"),
        };
        // A copy, which no other build replaces in the middle of a run.
        fs::create_dir_all(bench.library_folder())?;
        fs::copy(built.join("liblmdb.so"), bench.library())?;
        fs::copy(
            built.join("liblmdb.so"),
            bench.library_folder().join("liblmdb.so"),
        )?;
        Ok(bench)
    }

    fn library_folder(&self) -> PathBuf {
        self.folder.join("lib")
    }

    /// Our library, under the name that programs ask the linker for.
    fn library(&self) -> PathBuf {
        self.library_folder().join("liblmdb.so.0")
    }

    /// An empty folder for one test.
    fn scratch(&self, test: &str, library: Library) -> Result<PathBuf> {
        let folder = self.folder.join("scratch").join(test).join(library.name());
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// Fails unless the environment in `folder` was written by the library that was meant to.
fn check_format(folder: &Path, library: Library) -> Result<()> {
    const MAGIC_AT: usize = 24;
    let path = folder.join("data.mdb");
    let file = fs::read(&path).with_context(|| format!("no {}", path.display()))?;
    let is_ours = file
        .get(MAGIC_AT..)
        .is_some_and(|rest| rest.starts_with(b"SAPWOOD\0"));
    ensure!(
        is_ours == (library == Library::Ours),
        "{} was not written by the library under test",
        path.display()
    );
    Ok(())
}

/// Runs a program to its end, bounded in time since a broken library may make it wait forever; gives what it wrote.
fn output(program: impl AsRef<OsStr>, prepare: impl FnOnce(&mut Command)) -> Result<Output> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "900"]).arg(&program);
    command.stdin(Stdio::null());
    prepare(&mut command);
    command
        .output()
        .with_context(|| format!("cannot start {}", program.as_ref().display()))
}

/// As [`output`], and the program must succeed.
fn text(program: impl AsRef<OsStr>, prepare: impl FnOnce(&mut Command)) -> Result<String> {
    let name = program.as_ref().display().to_string();
    let output = output(program, prepare)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}: {}",
        output.status,
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Fails with the first line in which the two differ.
fn compare(original: &str, ours: &str) -> Result<()> {
    ensure!(!original.is_empty(), "the original says nothing");
    let mut lines = (original.lines(), ours.lines());
    for number in 1.. {
        match (lines.0.next(), lines.1.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => bail!(
                "line {number} is {:?} and should be {:?}",
                b.unwrap_or_default(),
                a.unwrap_or_default()
            ),
        }
    }
    Ok(())
}
