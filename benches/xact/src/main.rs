//! The search trees and memory-mapped transactions beside Berkeley DB and LMDB: the same keys on the same disk, in
//! turns. `cargo xtask bench xact` builds what is needed and runs it.

mod aged;
mod costs;
mod crew;
mod durable;
mod keys;
mod layouts;
mod outcome;
mod pairs;
mod places;
mod plot;
mod report;
mod results;
mod touches;
mod trees;
mod usage;
mod worker;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

use crate::crew::Crew;
use crate::worker::Work;

/// Measure trees and transactions beside their peers.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
enum Command {
    /// All tables
    All(Options),
    /// Durable inserts, each a transaction, by one and by several processes
    Durable(Options),
    /// What the parts of a transaction cost, and what becomes of those that conflict
    Costs(Options),
    /// Random and in-order inserts, a walk and searches, without transactions, in little memory
    Trees(Options),
    /// Trees with and without advice to the system, aged, and static ones, in little memory
    Layouts(Options),
    /// Durable inserts on other file systems, and with a log on a device of its own
    Places(Options),
    /// Trees around a reorganisation, and with and without transactions, in little memory
    Pairs(Options),
    /// A part of a workload, in a process of its own
    #[command(hide = true)]
    Worker(Work),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Records to insert
    #[arg(long, default_value_t = 250_000)]
    records: u64,
    /// Rounds; the engines take turns, and the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many processes insert at once
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    processes: Vec<u64>,
    /// Memory of a worker without transactions, its page cache included, in MiB
    #[arg(long, default_value_t = 24)]
    memory_mib: u64,
    /// Add what trees and durable inserts did to what is in FILE.trees and FILE.durable, and report both; with
    /// --rounds 0 only what is in them
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// A tenth of the records, one round, and one process and four: to see that all of it works
    #[arg(long)]
    short: bool,
    /// Let what is cached stay between phases
    #[arg(long)]
    warm: bool,
    /// Only engines whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// No engines whose name contains this; several may be given
    #[arg(long, value_name = "TEXT")]
    except: Vec<String>,
    /// Where data goes: on the disk whose durability counts; a folder is made in it and removed at the end [default:
    /// cargo's target folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Put the tables and plots into performance.md in this folder
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
    /// The program that peers.c makes [default: xact-peers in cargo's target folder]
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
}

impl Options {
    fn shortened(mut self) -> Self {
        if self.short {
            self.records /= 10;
            self.memory_mib = (self.memory_mib / 4).max(8);
            self.rounds = 1;
            self.processes = vec![1, 4];
        }
        self
    }

    fn wants(&self, name: &str) -> bool {
        let is_named = |text: &String| name.contains(text.as_str());
        self.only.as_ref().is_none_or(is_named) && !self.except.iter().any(is_named)
    }

    /// The file of results of a part.
    fn results(&self, part: &str) -> Option<PathBuf> {
        let mut path = self.results.clone()?.into_os_string();
        path.push(format!(".{part}"));
        Some(path.into())
    }

    /// A folder for data that is removed in the end.
    fn scratch(&self) -> Result<Scratch> {
        match &self.folder {
            Some(folder) => Scratch::new(folder),
            None => Scratch::new(&target()?),
        }
    }

    /// One in memory, if there is a file system for that.
    fn memory_folder(&self) -> Option<Scratch> {
        let shared = Path::new("/dev/shm");
        Some(shared)
            .filter(|shared| shared.is_dir())
            .and_then(|shared| Scratch::new(shared).ok())
    }

    fn crew(&self) -> Result<Crew> {
        let peers = match &self.peers {
            Some(peers) => peers.clone(),
            None => target()?.join("xact-peers"),
        };
        Ok(Crew { peers, limit: None })
    }
}

/// The folder that cargo builds in: this program lies in that of its profile there.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let folder = program.ancestors().nth(2).map(PathBuf::from);
    folder.context("this program is in no target folder")
}

struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    fn new(within: &Path) -> Result<Self> {
        let folder = within.join(format!("xact-bench-{}", std::process::id()));
        worker::clear(&folder)?;
        Ok(Self { folder })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

type Part = fn(&Options) -> Result<()>;

const ALL: &[Part] = &[
    costs::run,
    durable::run,
    places::run,
    trees::run,
    layouts::run,
    pairs::run,
];

fn main() -> Result<()> {
    let (options, parts): (Options, &[Part]) = match Command::parse() {
        Command::Worker(work) => return worker::run(&work),
        Command::Durable(options) => (options, &[durable::run]),
        Command::Costs(options) => (options, &[costs::run]),
        Command::Trees(options) => (options, &[trees::run]),
        Command::Layouts(options) => (options, &[layouts::run]),
        Command::Places(options) => (options, &[places::run]),
        Command::Pairs(options) => (options, &[pairs::run]),
        Command::All(options) => (options, ALL),
    };
    let options = options.shortened();
    parts.iter().try_for_each(|part| part(&options))
}
