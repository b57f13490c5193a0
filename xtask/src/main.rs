//! `cargo xtask`: the commands developers and CI use. `cargo xtask --help` lists them.

mod audit;
mod bench;
mod checks;
mod clients;
mod debs;
mod jars;
mod judge_lmdb;
mod lines;
mod modules;
mod packages;
mod programs;
mod run;
mod simulate;
mod source;
mod tidy;

use anyhow::Result;
use clap::Parser;

use crate::checks::Checks;
use crate::run::cargo;

/// The developers' own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
enum Command {
    /// Install what the tests need, then check formatting, lints and layering, and run every test; list all that
    /// failed.
    Test {
        /// Do not install missing operating-system packages, only name them.
        #[arg(long)]
        no_install: bool,
        /// Arguments for `cargo test`, for example `-p sapwood-store recovery`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        cargo_test_args: Vec<String>,
    },
    /// Check what the compiler cannot: layers of crates, circles of modules, file sizes, where `unsafe` lives.
    Tidy,
    Lines(lines::Lines),
    /// Run the checks that need extra tools or time: cargo-deny, fuzzing, sanitizers, long crash runs, instruction
    /// counts.
    Audit(audit::Audit),
    /// Run the tests that python-ldap and ldap3 bring along with Sapwood as their server (fetched by pip).
    Clients,
    JudgeLmdb(judge_lmdb::JudgeLmdb),
    Simulate(simulate::Simulate),
    /// Measure against peers, in one run, as ratios.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Test {
            no_install,
            cargo_test_args,
        } => test(no_install, &cargo_test_args),
        Command::Tidy => tidy::check(),
        Command::Lines(lines) => lines.run(),
        Command::Audit(audit) => audit.run(),
        Command::Clients => clients::try_suites(),
        Command::JudgeLmdb(judge) => judge.run(),
        Command::Simulate(simulate) => simulate.run(),
        Command::Bench(bench) => bench.run(),
    }
}

/// The checks of every commit, fast ones first, and all of them: who mends a failure wants to know of the others.
fn test(no_install: bool, cargo_test_args: &[String]) -> Result<()> {
    packages::ensure(packages::TEST, !no_install)?;
    jars::ensure(jars::TEST)?;
    debs::ensure(debs::TEST)?;
    let mut checks = Checks::default();
    checks.run("tidy", tidy::check);
    checks.run("format", || cargo(["fmt", "--all", "--check"]));
    let lints = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        programs::FEATURES,
        "--",
        "-D",
        "warnings",
    ];
    checks.run("lints", || cargo(lints));
    // What the README installs.
    checks.run("without features", || {
        cargo(["check", "--package", "sapwood"])
    });
    checks.run("fuzz targets", audit::fuzz_compiles);
    checks.run("portable", audit::compiles_elsewhere);
    checks.run("models", audit::models_compile);
    if cargo_test_args.is_empty() {
        checks.test_programs();
        let examples = ["test", "--workspace", "--doc", "--no-fail-fast"];
        checks.run("examples in the documentation", || cargo(examples));
    } else {
        let args = cargo_test_args.iter().map(String::as_str);
        let args = ["test", "--no-fail-fast"].into_iter().chain(args);
        checks.run("tests", || cargo(args));
    }
    checks.finish()
}
