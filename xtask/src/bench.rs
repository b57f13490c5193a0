//! Benchmarks beside peers, in one run, as ratios.

use anyhow::Result;
use clap::Subcommand;

use crate::packages;
use crate::run::cargo;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Load and query Sapwood and OpenLDAP's slapd with the same 250,000 entries; print one table of ratios.
    Ldap {
        /// Arguments for the benchmark; `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Bench::Ldap { args } => {
                packages::ensure(packages::BENCH_LDAP, true)?;
                cargo(["build", "--release", "--package", "sapwood"])?;
                let fixed = [
                    "run",
                    "--release",
                    "--package",
                    "sapwood-bench",
                    "--",
                    "ldap",
                ];
                cargo(fixed.into_iter().chain(args.iter().map(String::as_str)))
            }
        }
    }
}
