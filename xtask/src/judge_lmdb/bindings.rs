//! The test suites of other languages' bindings: both forks of lmdb-go, and heed. They bring LMDB's sources; built
//! without these, and linked with the system's library, one program runs on that and on ours.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::programs::use_ours;
use super::{Bench, Library, Outcome, Verdict, output, text};
use crate::run::{cargo, run};

/// Each with its version, the latest there was.
const GO: [(&str, &str, &str); 2] = [
    ("lmdb-go (bmatsuo)", "github.com/bmatsuo/lmdb-go", "v1.8.0"),
    (
        "lmdb-go (PowerDNS)",
        "github.com/PowerDNS/lmdb-go",
        "v1.9.3",
    ),
];

const HEED_VERSION: &str = "0.22.1";
const HEED_SYS: (&str, &str) = ("lmdb-master-sys", "0.2.6");

pub(super) fn judge(bench: &Bench, verdicts: &mut Vec<Verdict>) -> Result<()> {
    for (name, module, version) in GO {
        let suite = go_suite(bench, module, version).with_context(|| name.to_owned())?;
        judge_suite(bench, verdicts, name, |library| {
            go_results(bench, &suite, library)
        })?;
    }
    let suite = heed_suite(bench).context("heed")?;
    judge_suite(bench, verdicts, "heed", |library| {
        heed_results(bench, &suite, library)
    })
}

/// Whether each test passed.
type Results = BTreeMap<String, bool>;

fn judge_suite(
    bench: &Bench,
    verdicts: &mut Vec<Verdict>,
    name: &str,
    results: impl Fn(Library) -> Result<Results>,
) -> Result<()> {
    let original = results(Library::Original)?;
    let ours = results(Library::Ours)?;
    let passed: Vec<_> = original.iter().filter(|(_, passed)| **passed).collect();
    ensure!(
        !passed.is_empty(),
        "{name}: nothing passes with the original"
    );
    for (test, _) in passed {
        let outcome = match ours.get(test) {
            Some(true) => Outcome::Passed,
            _ => Outcome::Failed(format!("see {}", log(bench, name, Library::Ours).display())),
        };
        let test = format!("{name} {test}");
        verdicts.push(Verdict { test, outcome });
    }
    Ok(())
}

/// Where a suite's own words are kept.
fn log(bench: &Bench, name: &str, library: Library) -> PathBuf {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    bench.folder.join(format!("{name}-{}.log", library.name()))
}

fn choose(command: &mut Command, bench: &Bench, library: Library) {
    match library {
        Library::Original => {
            command.env_remove("LD_LIBRARY_PATH");
        }
        Library::Ours => use_ours(command, bench),
    }
}

/// The programs of a module's tests, each with the folder that it runs in.
struct GoSuite {
    name: String,
    programs: Vec<(PathBuf, PathBuf)>,
}

fn go_suite(bench: &Bench, module: &str, version: &str) -> Result<GoSuite> {
    let folder = bench.folder.join(module.replace('/', "-"));
    let sources = folder.join("module");
    let packages = ["lmdb", "lmdbscan"];
    let suite = GoSuite {
        name: module.to_owned(),
        programs: packages
            .map(|package| (folder.join(package), sources.join(package)))
            .into(),
    };
    if suite.programs.iter().all(|(program, _)| program.exists()) {
        return Ok(suite);
    }
    fs::create_dir_all(&folder)?;
    let requirement = format!("{module}@{version}");
    let found = text("go", |command| {
        command.args(["mod", "download", "-json", &requirement]);
        command.current_dir(&folder);
    })?;
    let from = found.lines().find_map(|line| {
        let value = line.trim().strip_prefix("\"Dir\": \"")?;
        value.strip_suffix("\",").or(value.strip_suffix('"'))
    });
    copy(
        Path::new(from.context("no folder of the module")?),
        &sources,
    )?;
    // Without LMDB; and without examples that Go does not compile any more.
    for file in ["mdb.c", "midl.c", "example_test.go"] {
        fs::remove_file(sources.join("lmdb").join(file))?;
    }
    if !sources.join("go.mod").exists() {
        fs::write(
            sources.join("go.mod"),
            format!("module {module}\n\ngo 1.16\n"),
        )?;
    }
    for (program, package) in &suite.programs {
        let mut command = Command::new("go");
        command.args(["test", "-c", "-vet=off", "-o"]).arg(program);
        command.arg(".").current_dir(package);
        command.env("CGO_CFLAGS", "-w").env("CGO_LDFLAGS", "-llmdb");
        run(&mut command)?;
    }
    Ok(suite)
}

fn go_results(bench: &Bench, suite: &GoSuite, library: Library) -> Result<Results> {
    let mut said = String::new();
    for (program, folder) in &suite.programs {
        let output = output(program, |command| {
            command.arg("-test.v").current_dir(folder);
            choose(command, bench, library);
        })?;
        said.push_str(&String::from_utf8_lossy(&output.stdout));
        said.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    let name = GO.iter().find(|(_, module, _)| *module == suite.name);
    let name = name.map_or("go", |(name, ..)| name);
    fs::write(log(bench, name, library), &said)?;
    let result = |line: &str| {
        let (result, rest) = line.trim().strip_prefix("--- ")?.split_once(": ")?;
        let test = rest.split(' ').next()?;
        Some((test.to_owned(), result == "PASS"))
    };
    Ok(said.lines().filter_map(result).collect())
}

/// Builds the tests of heed, with its bindings linked with the system's library; gives the program.
fn heed_suite(bench: &Bench) -> Result<PathBuf> {
    let folder = bench.folder.join("heed");
    let program = folder.join("program");
    if program.exists() {
        return Ok(program);
    }
    let sources = folder.join("sources");
    fs::create_dir_all(sources.join("src"))?;
    fs::write(sources.join("src/lib.rs"), "")?;
    let (sys, sys_version) = HEED_SYS;
    let manifest = sources.join("Cargo.toml");
    fs::write(
        &manifest,
        format!(
            "[package]\nname = \"sources\"\nedition = \"2024\"\n[dependencies]\n\
             heed = \"={HEED_VERSION}\"\n{sys} = \"={sys_version}\"\n[workspace]\n"
        ),
    )?;
    let vendor = folder.join("vendor");
    cargo([
        "vendor".as_ref(),
        "--quiet".as_ref(),
        "--manifest-path".as_ref(),
        manifest.as_os_str(),
        vendor.as_os_str(),
    ])?;
    let (heed, bindings) = (folder.join("heed"), folder.join("bindings"));
    copy(&vendor.join("heed"), &heed)?;
    copy(&vendor.join(sys), &bindings)?;
    fs::write(
        bindings.join("build.rs"),
        "fn main() {\n    println!(\"cargo::rustc-link-lib=lmdb\");\n}\n",
    )?;
    let manifest = heed.join("Cargo.toml");
    let patched = fs::read_to_string(&manifest)?
        + &format!("\n[patch.crates-io]\n{sys} = {{ path = \"../bindings\" }}\n\n[workspace]\n");
    fs::write(&manifest, patched)?;
    let built = text("cargo", |command| {
        command.args(["test", "--no-run", "--lib", "--message-format=json"]);
        command.current_dir(&heed);
        command.env("CARGO_TARGET_DIR", folder.join("target"));
    })?;
    let executable = built.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        rest.split('"').next()
    });
    fs::copy(executable.context("no program was built")?, &program)?;
    Ok(program)
}

fn heed_results(bench: &Bench, program: &Path, library: Library) -> Result<Results> {
    let output = output(program, |command| {
        command.args(["--test-threads", "1"]);
        command.current_dir(bench.folder.join("heed/heed"));
        choose(command, bench, library);
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    fs::write(log(bench, "heed", library), &*said)?;
    let result = |line: &str| {
        let (test, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
        Some((test.to_owned(), result == "ok"))
    };
    Ok(said.lines().filter_map(result).collect())
}

/// Copies a folder into a new one, whose files can be changed.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    run(Command::new("cp")
        .args(["-r", "--no-preserve=mode"])
        .arg(from)
        .arg(to))
}
