//! LMDB's own programs: `mtest`..`mtest5` and the tools, compiled against its `lmdb.h`.
//!
//! Its sources are in a crate. With them come both libraries' programs: the original's have its library in them, ours are
//! linked with ours.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Bench, Library, Verdict, check_format, compare, text};
use crate::run::cargo;

const SOURCES: &str = "lmdb-master-sys";
const SOURCES_VERSION: &str = "0.2.6";

const TESTS: [&str; 5] = ["mtest", "mtest2", "mtest3", "mtest4", "mtest5"];
const TOOLS: [&str; 5] = ["mdb_load", "mdb_dump", "mdb_stat", "mdb_copy", "mdb_drop"];

/// The tests choose their records by a generator that they seed with the time.
const SEED: &str = "#include <stdlib.h>\n#define srand(seed) srand(1)\n";

pub(super) fn judge(bench: &Bench, verdicts: &mut Vec<Verdict>) -> Result<()> {
    let sources = fetch(bench)?;
    for library in Library::BOTH {
        compile(bench, &sources, library)?;
    }
    for test in TESTS {
        verdicts.push(Verdict::of(test, run_test(bench, test)));
    }
    judge_tools(bench, verdicts)
}

/// Fetches the crate that has LMDB's sources in it; gives the folder of LMDB.
fn fetch(bench: &Bench) -> Result<PathBuf> {
    let project = bench.folder.join("sources");
    let vendor = project.join("vendor");
    let lmdb = vendor.join(SOURCES).join("lmdb/libraries/liblmdb");
    if lmdb.exists() {
        return Ok(lmdb);
    }
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("src/lib.rs"), "")?;
    let manifest = project.join("Cargo.toml");
    fs::write(
        &manifest,
        format!(
            "[package]\nname = \"sources\"\nedition = \"2024\"\n\
             [dependencies]\n{SOURCES} = \"={SOURCES_VERSION}\"\n[workspace]\n"
        ),
    )?;
    cargo([
        "vendor".as_ref(),
        "--quiet".as_ref(),
        "--manifest-path".as_ref(),
        manifest.as_os_str(),
        vendor.as_os_str(),
    ])?;
    ensure!(lmdb.exists(), "{SOURCES} has no {}", lmdb.display());
    Ok(lmdb)
}

fn program(bench: &Bench, library: Library, name: &str) -> PathBuf {
    bench.folder.join("bin").join(library.name()).join(name)
}

fn compile(bench: &Bench, sources: &Path, library: Library) -> Result<()> {
    let seed = bench.folder.join("seed.h");
    fs::write(&seed, SEED)?;
    fs::create_dir_all(program(bench, library, ""))?;
    for name in TESTS.into_iter().chain(TOOLS) {
        text("cc", |command| {
            command
                .args(["-w", "-O1", "-pthread", "-include"])
                .arg(&seed);
            command.arg("-I").arg(sources);
            command.arg("-o").arg(program(bench, library, name));
            command.arg(sources.join(name).with_extension("c"));
            match library {
                Library::Original => {
                    command.args(["mdb.c", "midl.c"].map(|file| sources.join(file)));
                }
                Library::Ours => {
                    command.arg("-L").arg(bench.library_folder());
                    command.arg("-llmdb");
                }
            }
        })?;
    }
    Ok(())
}

/// Runs one of the programs in a folder.
fn run(
    bench: &Bench,
    library: Library,
    name: &str,
    folder: &Path,
    args: &[&str],
) -> Result<String> {
    text(program(bench, library, name), |command| {
        command.args(args).current_dir(folder);
        if library == Library::Ours {
            use_ours(command, bench);
        }
    })
}

pub(super) fn use_ours(command: &mut Command, bench: &Bench) {
    command.env("LD_LIBRARY_PATH", bench.library_folder());
}

fn run_test(bench: &Bench, test: &str) -> Result<()> {
    let mut said = Vec::new();
    for library in Library::BOTH {
        let folder = bench.scratch(test, library)?;
        let environment = folder.join("testdb");
        fs::create_dir(&environment)?;
        let text = run(bench, library, test, &folder, &[])?;
        check_format(&environment, library)?;
        said.push(without_addresses(&text));
    }
    compare(&said[0], &said[1])
}

/// Where things lie in memory is nobody's business.
fn without_addresses(text: &str) -> String {
    let mut pieces = text.split("0x");
    let mut without = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        without.push_str("0x");
        without.push_str(piece.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    without
}

fn judge_tools(bench: &Bench, verdicts: &mut Vec<Verdict>) -> Result<()> {
    let input = bench.folder.join("input.dump");
    fs::write(&input, dump())?;
    let input = input.to_str().context("the folder's name is not text")?;
    let mut dumps = Vec::new();
    let mut stats = Vec::new();
    for library in Library::BOTH {
        let folder = bench.scratch("tools", library)?;
        fs::create_dir(folder.join("env"))?;
        let run = |name: &str, args: &[&str]| run(bench, library, name, &folder, args);
        let loaded = run("mdb_load", &["-f", input, "env"]);
        let loaded = loaded.and_then(|_| check_format(&folder.join("env"), library));
        let dumped = run("mdb_dump", &["-a", "env"]);
        let named = run("mdb_dump", &["-p", "-s", "sorted", "env"]);
        stats.push(run("mdb_stat", &["-a", "-e", "-r", "env"]).map(|stat| counts(&stat)));
        let free = run("mdb_stat", &["-ff", "env"]);
        dumps.push((dumped, named));
        if library == Library::Original {
            loaded?;
            continue;
        }
        verdicts.push(Verdict::of("mdb_load", loaded));
        verdicts.push(Verdict::of("mdb_stat, free pages", free.map(drop)));
        for (name, flags) in [("mdb_copy", &[][..]), ("mdb_copy -c", &["-c"])] {
            let copy = if flags.is_empty() { "copy" } else { "compact" };
            fs::create_dir(folder.join(copy))?;
            let copied = run("mdb_copy", &[flags, &["env", copy]].concat())
                .and_then(|_| {
                    Ok((
                        run("mdb_dump", &["-a", "env"])?,
                        run("mdb_dump", &["-a", copy])?,
                    ))
                })
                .and_then(|(from, to)| compare(&from, &to));
            verdicts.push(Verdict::of(name, copied));
        }
        let dropped = run("mdb_drop", &["-d", "-s", "sorted", "env"])
            .and_then(|_| run("mdb_dump", &["-l", "env"]))
            .and_then(|names| {
                compare("plain\nnumbers\nreverse\n", &names.replace("sorted\n", "!"))
            });
        verdicts.push(Verdict::of("mdb_drop", dropped));
    }
    let ours = dumps.pop().context("nothing was dumped")?;
    let original = dumps.pop().context("nothing was dumped")?;
    let same = |a: Result<String>, b: Result<String>| compare(&records(&a?), &records(&b?));
    verdicts.push(Verdict::of("mdb_dump -a", same(original.0, ours.0)));
    verdicts.push(Verdict::of("mdb_dump -p -s", same(original.1, ours.1)));
    let ours = stats.pop().context("there are no statistics")?;
    let original = stats.pop().context("there are no statistics")?;
    let same = ours.and_then(|ours| compare(&original?, &ours));
    verdicts.push(Verdict::of("mdb_stat -a -e -r", same));
    Ok(())
}

/// Databases of several kinds, in the form of `mdb_dump`.
fn dump() -> String {
    let mut text = String::new();
    let mut number = 1_u64;
    let mut random = || {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        number >> 33
    };
    for (name, flags) in [
        ("numbers", "duplicates=1\ndupsort=1\ndupfixed=1\n"),
        ("plain", ""),
        ("reverse", "reversekey=1\n"),
        ("sorted", "duplicates=1\ndupsort=1\n"),
    ] {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "VERSION=3\nformat=bytevalue\ndatabase={name}\ntype=btree\nmapsize=16777216\nmaxreaders=126\n\
             {flags}HEADER=END\n"
        );
        for key in 0..2000 {
            let of_key = if flags.contains("dup") {
                random() % 12 + 1
            } else {
                1
            };
            for _ in 0..of_key {
                let value = format!("{:08x}", random());
                let value = match name {
                    "plain" => value.repeat((random() % 700 + 1) as usize),
                    _ => value,
                };
                let _ = writeln!(text, " {:08x}\n {value}", key * 7919 % 2000);
            }
        }
        text.push_str("DATA=END\n");
    }
    text
}

/// A dump without what depends on the file format.
fn records(dump: &str) -> String {
    let lines = dump
        .lines()
        .filter(|line| !line.starts_with("db_pagesize="));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Of statistics what does not depend on the file format.
fn counts(stat: &str) -> String {
    let kept = [
        "Status of",
        "Entries:",
        "Map size:",
        "Max readers:",
        "Reader Table",
        "(no active",
    ];
    let lines = stat
        .lines()
        .filter(|line| kept.iter().any(|kept| line.contains(kept)));
    lines.flat_map(|line| [line, "\n"]).collect()
}
