//! The command line of `sapwood xact`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Xact {
    /// Show mode, sizes, what it is said to hold, and what runs
    Stat(Space),
    /// Look at every page; exit status 1 when one is damaged
    Check(Space),
    /// Make another space of the same contents, beside running transactions. Of a backup it makes the space again
    Backup(Backup),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Space {
    /// The folder of the space
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    pub(crate) space: Space,
    /// The folder to make
    #[arg(value_name = "NEW-DIR")]
    pub(crate) dest: PathBuf,
}
