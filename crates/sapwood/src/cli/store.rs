//! The command line of `sapwood store`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Sources;

#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Show sizes, commits and trees
    Stat(Place),
    /// Look at every page; exit status 1 when something is wrong
    Check(Place),
    /// Show who reads, how old each snapshot is, and how many free pages it keeps from being used again
    Readers(Readers),
    /// Give unused space back to the file system, beside running readers and writers
    Compact(Place),
    /// Make another environment of the same contents, beside running readers and writers
    Copy(Copy),
    /// Copy to one file, or of several stores to a folder, all or what has changed since a backup, beside running
    /// readers and writers
    Backup(Backup),
    /// Make an environment of a backup and the increments that follow it
    Restore(Restore),
    /// Write records as text, in the format of LMDB's mdb_dump
    Dump(Dump),
    /// Store records from text in the format of LMDB's mdb_dump, 100,000 to a commit
    Load(Load),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The folder of the environment, or of a directory; of one that liblmdb has made, the folder or the file
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// Of which of several stores.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// Only the store with this number, from 0 on [default: all, as of one moment]
    #[arg(long = "store", value_name = "NUMBER")]
    pub(crate) number: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Readers {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Clear the slots of processes that have died
    #[arg(long)]
    pub(crate) clear: bool,
    /// End parked snapshots that are more than so many commits old
    #[arg(long, value_name = "COMMITS")]
    pub(crate) expire: Option<u64>,
    /// End with exit status 1 if a snapshot is more than so many commits old
    #[arg(long, value_name = "COMMITS")]
    pub(crate) max_age: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Copy {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The folder to make
    #[arg(value_name = "NEW-DIR")]
    pub(crate) dest: PathBuf,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Leave free pages out and fill the others
    #[arg(long, short)]
    pub(crate) compact: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) which: Which,
    /// The file to make, or of several stores the folder
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only what has changed since this backup, full or an increment itself
    #[arg(long, value_name = "BACKUP")]
    pub(crate) since: Option<PathBuf>,
    /// Leave free pages out and fill the others; no increment can follow
    #[arg(long, short, conflicts_with = "since")]
    pub(crate) compact: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    #[command(flatten)]
    pub(crate) sources: Sources,
    /// Call the data file data.mdb, as programs expect it that use liblmdb
    #[arg(long)]
    pub(crate) lmdb: bool,
    /// The folder to make
    #[arg(value_name = "NEW-DIR")]
    pub(crate) dest: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only this tree; may be given several times [default: all]
    #[arg(long = "tree", short = 's', value_name = "NAME")]
    pub(crate) trees: Vec<String>,
    /// Write printable characters as they are, and all others as a backslash and two hexadecimal digits
    #[arg(long, short)]
    pub(crate) print: bool,
    /// Write here instead of to standard output; of several stores, a folder to make with a file for each
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// The folder of the environment, which is made if there is none, or of a directory
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Into the store with this number, from 0 on, of several
    #[arg(long = "store", value_name = "NUMBER")]
    pub(crate) store: Option<usize>,
    /// The tree for what comes without a name, as LMDB's main database does
    #[arg(long, short = 's', value_name = "NAME", default_value = "main")]
    pub(crate) tree: String,
    /// Keep records that are there already
    #[arg(long, short)]
    pub(crate) no_overwrite: bool,
    /// Read from here instead of from standard input; a folder that `dump` has made of several stores is for as many
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}
