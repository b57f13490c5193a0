//! Checks that need extra tools or more time than a commit should take.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::bench::Bench;
use crate::run::{cargo, root, run, succeeds, target};
use crate::simulate::Simulate;

/// Checks that need extra tools or time. Without a choice all of them run, and what cannot run here is named.
#[derive(Args)]
pub(crate) struct Audit {
    /// Licences, advisories and duplicate versions of what we depend on (cargo-deny).
    #[arg(long)]
    deny: bool,
    /// Every fuzz target (cargo-fuzz and a nightly toolchain).
    #[arg(long)]
    fuzz: bool,
    /// The crash-state replays and kill loops at length.
    #[arg(long)]
    crash: bool,
    /// The simulator of replication, as `cargo xtask simulate` runs it.
    #[arg(long)]
    simulate: bool,
    /// The store, memory-mapped transactions and the log under AddressSanitizer (a nightly toolchain).
    #[arg(long)]
    sanitize: bool,
    /// What of the store and the log works on plain memory alone, under Miri (a nightly toolchain with miri and
    /// rust-src).
    #[arg(long)]
    miri: bool,
    /// Whether the store compiles for the systems it does not run on yet (rustup fetches their standard libraries).
    #[arg(long)]
    portable: bool,
    /// Whether an operation takes more instructions than it used to (valgrind, a release build).
    #[arg(long)]
    instructions: bool,
    /// Seconds for each fuzz target.
    #[arg(long, default_value_t = 60)]
    fuzz_seconds: u32,
    /// Seeds for the simulator of replication.
    #[arg(long, default_value_t = 100_000)]
    simulate_seeds: u64,
    /// How many times longer than in `cargo xtask test` the crash runs last.
    #[arg(long, default_value_t = 50)]
    crash_factor: u32,
}

impl Audit {
    pub(crate) fn run(self) -> Result<()> {
        let chosen = [
            self.deny,
            self.portable,
            self.fuzz,
            self.crash,
            self.simulate,
            self.sanitize,
            self.miri,
            self.instructions,
        ];
        let all = !chosen.contains(&true);
        let mut failed = Vec::new();
        let mut attempt = |name: &str, outcome: Result<()>| {
            if let Err(error) = outcome {
                eprintln!("audit: {name}: {error:#}");
                failed.push(name.to_owned());
            }
        };
        if all || self.deny {
            attempt("deny", deny(&["bans", "licenses", "sources"]));
            attempt("advisories", deny(&["advisories"]));
        }
        if all || self.portable {
            attempt("portable", portable());
        }
        if all || self.crash {
            attempt("crash", crash(self.crash_factor));
        }
        if all || self.simulate {
            attempt("simulate", Simulate::seeds(self.simulate_seeds).run());
        }
        if all || self.sanitize {
            attempt("sanitize", sanitize());
        }
        if all || self.miri {
            attempt("miri", miri());
        }
        if all || self.instructions {
            attempt("instructions", Bench::instructions().run());
        }
        if all || self.fuzz {
            attempt("fuzz", fuzz(self.fuzz_seconds));
        }
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }
}

fn deny(checks: &[&str]) -> Result<()> {
    tool("deny", "cargo-deny")?;
    cargo(["deny", "check"].iter().chain(checks))
}

/// Whether the store compiles where there are no calls of a system yet. Unlike [`portable`] it needs no other system's
/// standard library, and so does not notice the use of what only some of them have: [`crate::tidy`] looks for that.
pub(crate) fn compiles_elsewhere() -> Result<()> {
    cargo_with("elsewhere", &["check", "--package", "sapwood-store"])
}

/// Whether what only the model checker runs still compiles: it has parts of its own in the place of others.
pub(crate) fn models_compile() -> Result<()> {
    let packages = ["sapwood-wal", "sapwood-store", "sapwood-xact"];
    let named = packages.iter().flat_map(|package| ["--package", package]);
    let all: Vec<&str> = ["check", "--lib", "--profile", "test"]
        .into_iter()
        .chain(named)
        .collect();
    cargo_with("shuttle", &all)
}

/// Runs cargo with a `cfg` of the workspace's own set, and a target folder of its own: everything is compiled anew.
fn cargo_with(cfg: &str, args: &[&str]) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(program)
        .args(args)
        .arg("--target-dir")
        .arg(target().join(cfg))
        .env("RUSTFLAGS", format!("--cfg {cfg}"))
        .current_dir(root()))
}

/// Whether a package compiles with the oldest compiler that its manifest allows.
fn compiles_with_oldest(package: &str) -> Result<()> {
    let path = root().join("crates").join(package).join("Cargo.toml");
    let manifest: toml::Table = fs::read_to_string(&path)?.parse()?;
    let oldest = manifest
        .get("package")
        .and_then(|package| package.get("rust-version"))
        .and_then(|version| version.as_str())
        .with_context(|| format!("{} names no oldest compiler", path.display()))?;
    let install = ["toolchain", "install", oldest, "--profile", "minimal"];
    run(Command::new("rustup").args(install))?;
    run(Command::new("rustup")
        .args(["run", oldest, "cargo", "check", "--package"])
        .arg(format!("sapwood-{package}"))
        .arg("--target-dir")
        .arg(target().join("oldest"))
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .current_dir(root()))
}

/// Only `crates/wal/src/sys` knows an operating system; what it has no calls for answers `Unsupported` there.
fn portable() -> Result<()> {
    compiles_elsewhere()?;
    for package in ["wal", "store"] {
        compiles_with_oldest(package)?;
    }
    for target in ["x86_64-apple-darwin", "x86_64-pc-windows-gnu"] {
        run(Command::new("rustup").args(["target", "add", target]))?;
        cargo(["check", "--package", "sapwood-store", "--target", target])?;
    }
    Ok(())
}

/// The mapped pages are what the compiler cannot check. The target is named so that only our code is instrumented, not
/// build scripts and macros.
fn sanitize() -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    run(Command::new("cargo")
        .args(["+nightly", "test", "--no-fail-fast", "--lib", "--tests"])
        .args(["--target", &target])
        .args(["--package", "sapwood-wal", "--package", "sapwood-store"])
        .args(["--package", "sapwood-xact"])
        // A C compiler links those programs, and knows nothing of the sanitizer's library.
        .args(["--", "--skip", "_in_c_"])
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // Tests of what becomes of a fault in mapped pages want the program's own handlers to see it.
        .env("ASAN_OPTIONS", "handle_segv=0:handle_sigbus=0")
        .env("CARGO_TARGET_DIR", root().join("target").join("sanitize"))
        .current_dir(root()))
}

/// Miri knows neither mapped files nor files in memory, so these are the unit tests that need none; the others are for
/// [`sanitize`].
fn miri() -> Result<()> {
    let store = [
        "env::mapping::plain",
        "format::",
        "heap::record",
        "heap::segment",
        "log::record",
        "page_map::",
        "space::",
        "tree::entries",
        "tree::memory",
        "tree::order",
        "txn::pages::hot_pages",
        "txn::pages::states",
        "varint::tests",
    ];
    let wal = ["format::tests"];
    for (package, tests) in [("sapwood-store", &store[..]), ("sapwood-wal", &wal)] {
        run(Command::new("cargo")
            .args([
                "+nightly",
                "miri",
                "test",
                "--package",
                package,
                "--lib",
                "--",
            ])
            .args(tests)
            // Random cases are read back from files when they have failed before.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation")
            .env("PROPTEST_CASES", "2")
            .current_dir(root()))?;
    }
    Ok(())
}

/// The tests read `SAPWOOD_CRASH_FACTOR` and multiply the number of crash states and kills by it. Group commit and
/// transactions are run under a model checker besides.
fn crash(factor: u32) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(program)
        .args([
            "test",
            "--release",
            "--package",
            "sapwood-wal",
            "--package",
            "sapwood-store",
            "--package",
            "sapwood-xact",
        ])
        .env("SAPWOOD_CRASH_FACTOR", factor.to_string())
        .current_dir(root()))?;
    // With this nothing works but the tests under the model checker.
    ["sapwood-wal", "sapwood-store", "sapwood-xact"]
        .into_iter()
        .try_for_each(|package| {
            cargo_with("shuttle", &["test", "--package", package, "--lib", "model"])
        })
}

/// Whether every fuzz target still compiles. It needs neither a nightly toolchain nor libFuzzer itself, which is linked
/// with nothing here.
pub(crate) fn fuzz_compiles() -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(program)
        .args(["check", "--locked", "--bins", "--manifest-path"])
        .args(["fuzz/Cargo.toml", "--target-dir", "target/fuzz"])
        // Otherwise the crate compiles libFuzzer, for which it needs a C++ compiler.
        .env("CUSTOM_LIBFUZZER_PATH", "none/libfuzzer.a")
        .current_dir(root()))
}

fn fuzz(seconds: u32) -> Result<()> {
    tool("fuzz", "cargo-fuzz")?;
    let folder = root().join("fuzz");
    let mut targets: Vec<String> = fs::read_dir(folder.join("fuzz_targets"))
        .with_context(|| format!("no fuzz targets in {}", folder.display()))?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some(path.file_stem()?.to_str()?.to_owned())
        })
        .collect();
    targets.sort();
    // One that fails says nothing of the others.
    let fails = |target: &String| {
        let mut command = Command::new("cargo");
        command
            .args(["+nightly", "fuzz", "run", target, "--"])
            .arg(format!("-max_total_time={seconds}"))
            .current_dir(&folder);
        run(&mut command).is_err()
    };
    targets.retain(fails);
    ensure!(targets.is_empty(), "failed: {}", targets.join(", "));
    Ok(())
}

/// Makes sure that `cargo NAME` works, installing `package` where it does not.
fn tool(name: &str, package: &str) -> Result<()> {
    if succeeds(Command::new("cargo").args([name, "--version"])) {
        return Ok(());
    }
    cargo(["install", "--locked", package])
}
