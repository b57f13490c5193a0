//! Programs of Debian that keep their data in LMDB: Postfix's `postmap`, PHP's dba, Perl's LMDB_File. Each does the
//! same on both libraries, and says what it finds.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Bench, Library, Verdict, compare, text};

const DBA: &str = include_str!("dba.php");
const LMDB_FILE: &str = include_str!("lmdb_file.pl");

pub(super) fn judge(bench: &Bench, verdicts: &mut Vec<Verdict>) {
    for (name, user) in [
        ("postmap", postmap as fn(&Bench, Library) -> Result<String>),
        ("PHP dba", dba),
        ("Perl LMDB_File", lmdb_file),
    ] {
        let both = || -> Result<()> {
            let original = user(bench, Library::Original).context("with the original library")?;
            compare(&original, &user(bench, Library::Ours)?)
        };
        verdicts.push(Verdict::of(name, both()));
    }
}

fn choose(command: &mut Command, bench: &Bench, library: Library) {
    if library == Library::Ours {
        command.env("LD_PRELOAD", bench.library());
    }
}

/// Makes tables, in a map that is too small at first, changes them, and asks for all there is.
fn postmap(bench: &Bench, library: Library) -> Result<String> {
    let folder = bench.scratch("postmap", library)?;
    for name in ["queue", "data"] {
        fs::create_dir(folder.join(name))?;
    }
    let place = folder.display();
    fs::write(
        folder.join("main.cf"),
        format!(
            "compatibility_level = 3.6\nqueue_directory = {place}/queue\ndata_directory = {place}/data\n\
             lmdb_map_size = 65536\nalias_maps =\n"
        ),
    )?;
    let mut table = String::new();
    for n in 0..6000 {
        // Writing to a string does not fail.
        let _ = writeln!(table, "user{n}@example.org box{}", n * 7919 % 1000);
    }
    fs::write(folder.join("table"), table)?;
    let ask = |arguments: &[&str]| {
        text("/usr/sbin/postmap", |command| {
            command
                .args(["-c", "."])
                .args(arguments)
                .current_dir(&folder);
            choose(command, bench, library);
        })
    };
    let mut said = String::new();
    for arguments in [
        &["lmdb:table"][..],
        &["-q", "user77@example.org", "lmdb:table"],
        &["-d", "user78@example.org", "lmdb:table"],
        &["-s", "lmdb:table"],
        &["lmdb:table"],
        &["-s", "lmdb:table"],
    ] {
        said.push_str(&ask(arguments)?);
    }
    Ok(said)
}

fn dba(bench: &Bench, library: Library) -> Result<String> {
    script(bench, library, "php", "dba.php", DBA)
}

fn lmdb_file(bench: &Bench, library: Library) -> Result<String> {
    script(bench, library, "perl", "lmdb_file.pl", LMDB_FILE)
}

/// Runs a script in a folder of its own.
fn script(
    bench: &Bench,
    library: Library,
    program: &str,
    name: &str,
    source: &str,
) -> Result<String> {
    let folder = bench.scratch(
        Path::new(name)
            .file_stem()
            .and_then(|stem| stem.to_str())
            .context("no name")?,
        library,
    )?;
    fs::write(folder.join(name), source)?;
    text(program, |command| {
        command.arg(name).current_dir(&folder);
        choose(command, bench, library);
    })
}
