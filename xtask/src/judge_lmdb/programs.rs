//! LMDB's own programs: `mtest`..`mtest5` and the tools, compiled against its `lmdb.h`; and a program of ours, which
//! does random things and prints what came of each.
//!
//! Its sources are in a crate. With them come both libraries' programs: the original's have its library in them, ours
//! are linked with ours.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Bench, DONE, Library, Steps, Verdict, check_format, compare, text};
use crate::run::{cargo, root};

const SOURCES: &str = "lmdb-master-sys";
const SOURCES_VERSION: &str = "0.2.6";

const TESTS: [&str; 5] = ["mtest", "mtest2", "mtest3", "mtest4", "mtest5"];
const TOOLS: [&str; 5] = ["mdb_load", "mdb_dump", "mdb_stat", "mdb_copy", "mdb_drop"];

/// The source of our own program.
const RANDOM: &str = "random";
const SEEDS: u32 = 12;
const RANDOM_STEPS: &str = "10000";

/// The tests choose their records by a generator that they seed with the time.
const SEED: &str = "#include <stdlib.h>\n#define srand(seed) srand(1)\n";

pub(super) fn judge(bench: &Bench, verdicts: &mut Vec<Verdict>) -> Result<()> {
    let sources = fetch(bench)?;
    for library in Library::BOTH {
        compile(bench, &sources, library)?;
    }
    for test in TESTS {
        verdicts.push(Verdict::of(test, run_test(bench, test, &[])));
    }
    for seed in 1..=SEEDS {
        let args = [&seed.to_string(), RANDOM_STEPS];
        let verdict = run_test(bench, RANDOM, &args);
        verdicts.push(Verdict::of(format!("{RANDOM} {}", args.join(" ")), verdict));
    }
    judge_tools(bench, verdicts)
}

/// Fetches the crate that has LMDB's sources in it; gives the folder of LMDB.
pub(super) fn fetch(bench: &Bench) -> Result<PathBuf> {
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

pub(super) fn program(bench: &Bench, library: Library, name: &str) -> PathBuf {
    bench.folder.join("bin").join(library.name()).join(name)
}

fn compile(bench: &Bench, sources: &Path, library: Library) -> Result<()> {
    let seed = bench.folder.join("seed.h");
    fs::write(&seed, SEED)?;
    let own = root().join("xtask/src/judge_lmdb").join(RANDOM);
    let theirs = TESTS.into_iter().chain(TOOLS);
    let programs = theirs.map(|name| sources.join(name));
    let seed = seed.as_os_str().to_str().context("not UTF-8")?;
    for source in programs.chain([own]) {
        let source = source.with_extension("c");
        compile_one(bench, sources, library, &source, &["-O1", "-include", seed])?;
    }
    Ok(())
}

/// Compiles a program and links it with one of the libraries.
pub(super) fn compile_one(
    bench: &Bench,
    sources: &Path,
    library: Library,
    source: &Path,
    options: &[&str],
) -> Result<()> {
    let name = source.file_stem().and_then(OsStr::to_str);
    let program = program(bench, library, name.context("a source has a name")?);
    if let Some(folder) = program.parent() {
        fs::create_dir_all(folder)?;
    }
    text("cc", |command| {
        command.args(["-w", "-pthread"]).args(options);
        command.arg("-I").arg(sources);
        command.arg("-o").arg(program).arg(source);
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

fn run_test(bench: &Bench, test: &str, args: &[&str]) -> Result<()> {
    let mut said = Vec::new();
    for library in Library::BOTH {
        let folder = bench.scratch(test, library)?;
        let environment = folder.join("testdb");
        fs::create_dir(&environment)?;
        let text = run(bench, library, test, &folder, args)?;
        check_format(&environment, library)?;
        said.push(match test {
            "mtest4" => without_pieces(&without_addresses(&text)),
            _ => without_addresses(&text),
        });
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

/// How many duplicates `MDB_NEXT_MULTIPLE` shows at a time is a matter of pages. `mtest4` prints a line for each time,
/// before it deletes; those about single records have addresses in them.
fn without_pieces(text: &str) -> String {
    let (before, after) = text.split_once("Deleted").unwrap_or((text, ""));
    let is_piece = |line: &str| line.starts_with("key: 001");
    let kept = before.lines().filter(|line| !is_piece(line));
    let mut without: String = kept.flat_map(|line| [line, "\n"]).collect();
    without.push_str("Deleted");
    without.push_str(after);
    without
}

fn judge_tools(bench: &Bench, verdicts: &mut Vec<Verdict>) -> Result<()> {
    let input = bench.folder.join("input.dump");
    fs::write(&input, dump())?;
    let input = input.to_str().context("the folder's name is not text")?;
    let original = use_tools(bench, Library::Original, input)?;
    let ours = use_tools(bench, Library::Ours, input)?;
    for ((step, original), (_, ours)) in original.into_iter().zip(ours) {
        let original = original.context("with the original library")?;
        let verdict = ours.and_then(|ours| compare(&original, &ours));
        verdicts.push(Verdict::of(step, verdict));
    }
    Ok(())
}

/// What each tool has to say, in the order in which they work on one environment.
fn use_tools(bench: &Bench, library: Library, input: &str) -> Result<Steps> {
    let folder = bench.scratch("tools", library)?;
    for name in ["env", "copy", "compact", "again"] {
        fs::create_dir(folder.join(name))?;
    }
    let run = |name: &str, args: &[&str]| run(bench, library, name, &folder, args);
    let dump = |env: &str| run("mdb_dump", &["-a", env]).map(|dump| records(&dump));
    let mut steps = Steps::new();
    let mut step = |name, said| steps.push((name, said));

    let loaded = run("mdb_load", &["-f", input, "env"]);
    let loaded = loaded.and_then(|_| check_format(&folder.join("env"), library));
    step("mdb_load", loaded.map(|()| DONE.into()));
    step("mdb_dump -a", dump("env"));
    step(
        "mdb_dump -p -s",
        run("mdb_dump", &["-p", "-s", "sorted", "env"]).map(|dump| records(&dump)),
    );
    step(
        "mdb_stat -a -e -r",
        run("mdb_stat", &["-a", "-e", "-r", "env"]).map(|stat| counts(&stat)),
    );
    step(
        "mdb_stat -fff",
        run("mdb_stat", &["-fff", "env"]).map(|_| DONE.into()),
    );
    step(
        "mdb_copy",
        run("mdb_copy", &["env", "copy"]).and_then(|_| dump("copy")),
    );
    step(
        "mdb_copy -c",
        run("mdb_copy", &["-c", "env", "compact"]).and_then(|_| dump("compact")),
    );
    let again = dump("env").and_then(|dump| Ok(fs::write(folder.join("again.dump"), dump)?));
    let again = again.and_then(|()| run("mdb_load", &["-f", "again.dump", "again"]));
    step("mdb_load of a dump", again.and_then(|_| dump("again")));
    let dropped = run("mdb_drop", &["-d", "-s", "sorted", "env"]);
    step("mdb_drop -d", dropped.and_then(|_| dump("env")));
    Ok(steps)
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
