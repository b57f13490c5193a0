//! Benchmarks beside peers, in one run, as ratios.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::packages;
use crate::run::{cargo, root, run, target};

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Load Sapwood and OpenLDAP's slapd with the same entries and put the same load on both; print tables of ratios.
    Ldap {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Add entries one by one to Sapwood and to slapd; print seconds, bytes of log and bytes written.
    Adds {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Add members to a small and to a large group, in Sapwood and in slapd; print what a member costs, and fail where
    /// it costs more in the large one.
    Members {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Attack the server in every known way beside an honest client; print its times and the server's memory, fail
    /// outside the bounds.
    Abuse {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Search under the access rules in benches/ldap/access, in Sapwood and in slapd; print what they add to what an
    /// operation costs the administrator, and fail where it is more than it may be.
    Access {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Ask for the first, the middle and the last part of long results, by pages and by list views, of Sapwood and of
    /// slapd; print what they take, and fail where it grows with the result.
    Views {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Put work on Sapwood and on slapd that rules answer to: groups of many members, unique values, renames, trees
    /// that are deleted; print what it costs, and fail where a large group costs more than it may.
    Rules {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Put the same work on the store and on other embedded key-value stores; print tables of ratios.
    Store {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Count the server's instructions for each operation, under valgrind's callgrind; fail where they are more than in
    /// benches/baseline.json.
    Instructions {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Insert into search trees, Berkeley DB and LMDB with the same keys; print tables of ratios.
    Xact {
        /// Arguments for the benchmark; `-- all --help` lists them.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            default_value = "all"
        )]
        args: Vec<String>,
    },
}

impl Bench {
    /// Counts instructions with the entries that the baseline is for.
    pub(crate) fn instructions() -> Self {
        Bench::Instructions { args: Vec::new() }
    }

    pub(crate) fn run(self) -> Result<()> {
        let (name, needed, args) = match &self {
            Bench::Ldap { args } => ("ldap", packages::BENCH_LDAP, args),
            Bench::Adds { args } => ("adds", packages::BENCH_LDAP, args),
            Bench::Members { args } => ("members", packages::BENCH_LDAP, args),
            Bench::Access { args } => ("access", packages::BENCH_LDAP, args),
            Bench::Views { args } => ("views", packages::BENCH_LDAP, args),
            Bench::Rules { args } => ("rules", packages::BENCH_LDAP, args),
            Bench::Abuse { args } => ("abuse", &[][..], args),
            Bench::Instructions { args } => ("instructions", packages::BENCH_INSTRUCTIONS, args),
            Bench::Store { args } => return store(args),
            Bench::Xact { args } => return xact(args),
        };
        packages::ensure(needed, true)?;
        cargo(["build", "--release", "--package", "sapwood"])?;
        let fixed = ["run", "--release", "--package", "sapwood-bench", "--", name];
        cargo(fixed.into_iter().chain(args.iter().map(String::as_str)))
    }
}

/// The peers that are libraries of the system are linked only here, so that nothing else needs them.
fn store(args: &[String]) -> Result<()> {
    packages::ensure(packages::BENCH_STORE, true)?;
    let fixed = ["run", "--release", "--package", "sapwood-store-bench"];
    let more = ["--features", "system-peers", "--"];
    let all = fixed.into_iter().chain(more);
    cargo(all.chain(args.iter().map(String::as_str)))
}

fn xact(args: &[String]) -> Result<()> {
    packages::ensure(packages::BENCH_XACT, true)?;
    // Where the program looks for it, and nobody but cargo makes the folder.
    let peers = target().join("xact-peers");
    std::fs::create_dir_all(target()).context("cannot make the folder for what is built")?;
    run(Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&peers)
        .arg(root().join("benches/xact/peers.c"))
        .args(["-ldb", "-llmdb"]))?;
    let fixed = ["run", "--release", "--package", "sapwood-xact-bench", "--"];
    cargo(fixed.into_iter().chain(args.iter().map(String::as_str)))
}
