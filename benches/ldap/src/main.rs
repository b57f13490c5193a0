//! Sapwood beside OpenLDAP's slapd: both get the same entries and the same load, in turns, on this machine; the outcome
//! is one table of ratios. And what Sapwood costs in instructions. `cargo xtask bench` builds what is needed and runs
//! it.

mod abuse;
mod access;
mod adds;
mod buffer;
mod instructions;
mod load;
mod members;
mod process;
mod report;
mod rows;
mod rules;
mod server;
mod stat;
mod verify;
mod views;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use sapwood_drive::{EntryStream, Format};
use sapwood_figures::{Limit, forget};

use crate::load::Load;
use crate::report::Report;
use crate::rows::{ROWS, Row};
use crate::server::{Prepared, Product, Server, Shape};

/// The suffix of the generated directories.
const SUFFIX: &str = "dc=example,dc=com";

/// Measure Sapwood beside its peers.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
enum Command {
    /// Beside OpenLDAP's slapd, over LDAP on loopback
    Ldap(Options),
    /// Instructions of the server for each operation, counted by callgrind
    Instructions(instructions::Options),
    /// Entries added one by one, beside slapd: seconds, bytes of log, bytes written
    Adds(adds::Options),
    /// Members added to a small and to a large group, beside slapd
    Members(members::Options),
    /// What an honest client notices of others that want to stop the server
    Abuse(abuse::Options),
    /// What access rules cost, beside slapd
    Access(access::Options),
    /// Pages and list views of long results, beside slapd
    Views(views::Options),
    /// What rules cost: groups, uniqueness, references that follow, trees that are deleted, beside slapd
    Rules(rules::Options),
    /// Attacks a server until it is killed
    #[command(hide = true)]
    Attack(abuse::AttackOptions),
    /// Becomes a program that ends with its parent
    #[command(hide = true)]
    Bound(process::Bound),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Entries of the shape flat, 0 for none; with several numbers all rows are measured for each
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1000000"
    )]
    flat: Vec<u64>,
    /// Entries of the shape org, 0 for none
    #[arg(long, value_name = "N", default_value_t = 250_000)]
    org: u64,
    /// Entries of the shape flat over four stores, on disk and then in memory, for what `sapwood drive --preset dvtds`
    /// measures, 0 for none
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    dvtds: u64,
    /// What the entries and the load are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds for each row, server and round
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The same for rows that write [default: --seconds]
    #[arg(long)]
    write_seconds: Option<f64>,
    /// The same for slapd, whose rate does not change with time [default: --write-seconds]
    #[arg(long)]
    slapd_write_seconds: Option<f64>,
    /// Rounds; the servers take turns, and the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only rows whose name contains this; may be given several times
    #[arg(long = "row", value_name = "TEXT")]
    rows: Vec<String>,
    /// Only this server
    #[arg(long)]
    only: Option<Product>,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// Where data goes: on the disk whose durability counts; a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
    /// Write the outcome as JSON as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Serve each directory within so much memory, page cache included, by a control group, from a cold start; imports
    /// have all there is
    #[arg(long, value_name = "MIB")]
    memory_mib: Option<u64>,
    /// Have slapd's map read without read-ahead (`envflags nordahead`)
    #[arg(long)]
    slapd_nordahead: bool,
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Ldap(options) => run(&options),
        Command::Instructions(options) => instructions::run(&options),
        Command::Adds(options) => adds::run(&options),
        Command::Members(options) => members::run(&options),
        Command::Abuse(options) => abuse::run(&options),
        Command::Access(options) => access::run(&options),
        Command::Views(options) => views::run(&options),
        Command::Rules(options) => rules::run(&options),
        Command::Attack(options) => abuse::attack(&options),
        Command::Bound(bound) => process::run_bound(&bound),
    }
}

fn run(options: &Options) -> Result<()> {
    let write_seconds = options.write_seconds.unwrap_or(options.seconds);
    let slapd_write_seconds = options.slapd_write_seconds.unwrap_or(write_seconds);
    ensure!(
        options.rounds > 0
            && options.seconds > 0.0
            && write_seconds > 0.0
            && slapd_write_seconds > 0.0,
        "at least one round, and some time for it"
    );
    let folder = Folder::create(&options.folder)?;
    let mut reports = Vec::new();
    let flat = options.flat.iter().map(|entries| (Shape::Flat, *entries));
    let others = [
        (Shape::Org, options.org),
        (Shape::Dvtds, options.dvtds),
        (Shape::DvtdsInMemory, options.dvtds),
    ];
    for (shape, entries) in flat.chain(others) {
        let has_rows = ROWS.iter().any(|row| is_wanted(row, shape, options));
        // With rows chosen by name, a shape without any of them is not loaded.
        if entries == 0 || (!options.rows.is_empty() && !has_rows) {
            continue;
        }
        let load = Load {
            shape,
            entries,
            seed: options.seed,
            read_time: Duration::from_secs_f64(options.seconds),
            write_time: Duration::from_secs_f64(write_seconds),
            slapd_write_time: Duration::from_secs_f64(slapd_write_seconds),
        };
        if let Some(report) = measure_shape(&load, &folder, options)? {
            print!("{}", report.markdown());
            reports.push(report);
        }
    }
    print!("{}", report::growth(&reports));
    if let Some(file) = &options.json {
        let reports: Vec<String> = reports.iter().map(Report::json).collect();
        let json = format!("[{}]\n", reports.join(",\n"));
        fs::write(file, json).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn is_wanted(row: &Row, shape: Shape, options: &Options) -> bool {
    let names = &options.rows;
    row.shape == shape
        && (names.is_empty() || names.iter().any(|text| row.name.contains(text.as_str())))
}

/// Loads both servers with one kind of entries and measures the rows on them; nothing when no server that is wanted can
/// have them.
fn measure_shape(load: &Load, folder: &Folder, options: &Options) -> Result<Option<Report>> {
    let ldif = folder.path.join("entries.ldif");
    let bytes = write_ldif(load, &ldif)?;
    eprintln!(
        "{:?}: {} entries, {:.1} MB of LDIF",
        load.shape,
        load.entries,
        bytes as f64 / 1e6
    );
    let mut report = Report::new(load.shape, load.entries);
    let products: Vec<Product> = [Product::Sapwood, Product::Slapd]
        .into_iter()
        .filter(|product| options.only.is_none_or(|only| only == *product))
        .filter(|product| *product == Product::Sapwood || !load.shape.is_in_memory())
        .collect();
    if products.is_empty() {
        return Ok(None);
    }
    let mut filled = Vec::new();
    for round in 0..options.rounds {
        // The last round's directories are served.
        filled.clear();
        let parent = folder.path.join(format!("{round}"));
        fs::create_dir(&parent)?;
        for turn in 0..products.len() {
            let product = products[(round + turn) % products.len()];
            let mut prepared = product.prepare(&parent, load.shape, options.sapwood.as_deref())?;
            if options.slapd_nordahead {
                prepared = prepared.without_read_ahead()?;
            }
            let (prepared, cost) = prepared.import(&ldif)?;
            eprintln!("{product}: imported in {:.2} s", cost.seconds);
            report.import(product, cost);
            filled.push(prepared);
        }
        if round + 1 < options.rounds {
            fs::remove_dir_all(&parent)?;
        }
    }
    let limits = Limits::new(options.memory_mib)?;
    let servers = filled
        .into_iter()
        .map(|prepared| limits.start(prepared))
        .collect::<Result<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for server in &servers {
        let seen = runtime.block_on(verify::verify(server, &ldif, load.entries))?;
        eprintln!(
            "{}: {seen} entries are as they were generated",
            server.product
        );
    }
    fs::remove_file(&ldif)?;
    let own = servers
        .iter()
        .find(|server| server.product == Product::Sapwood);
    let scan = ROWS.iter().find(|row| row.name == rows::SCAN);
    if let (Some(own), Some(_)) = (own, scan.filter(|row| is_wanted(row, load.shape, options))) {
        report.buffer(runtime.block_on(buffer::entry_cpu_us(own))?);
    }
    for row in ROWS
        .iter()
        .filter(|row| is_wanted(row, load.shape, options))
    {
        measure(row, options.rounds, load, &servers, &mut report)?;
    }
    for server in servers {
        report.memory(server.product, server.stop()?);
    }
    fs::remove_dir_all(folder.path.join(format!("{}", options.rounds - 1)))?;
    Ok(Some(report))
}

/// The control groups that servers run in, if they may take so much memory each.
#[derive(Default)]
struct Limits {
    sapwood: Option<Limit>,
    slapd: Option<Limit>,
}

impl Limits {
    fn new(mib: Option<u64>) -> Result<Self> {
        let Some(mib) = mib else {
            return Ok(Self::default());
        };
        let limit = |product: Product| {
            let limit = Limit::new(&format!("bench-{product}"), mib << 20);
            limit.context("the system lets us make no control group that limits memory")
        };
        Ok(Self {
            sapwood: Some(limit(Product::Sapwood)?),
            slapd: Some(limit(Product::Slapd)?),
        })
    }

    fn start(&self, prepared: Prepared) -> Result<Server> {
        let limit = match prepared.product {
            Product::Sapwood => &self.sapwood,
            Product::Slapd => &self.slapd,
        };
        match limit {
            None => prepared.start(),
            Some(limit) => {
                forget(&prepared.folder)?;
                prepared.wrapped(limit.command().to_vec()).start()
            }
        }
    }
}

/// All rounds of one row, the servers taking turns, a different one first each time.
fn measure(
    row: &'static Row,
    rounds: usize,
    load: &Load,
    servers: &[Server],
    report: &mut Report,
) -> Result<()> {
    let context = |server: &Server| format!("{}: {}", server.product, row.name);
    let mut able = Vec::new();
    for server in servers {
        if row.needs_transactions && !load.has_transactions(server) {
            eprintln!("{}: the server has no transactions", context(server));
            continue;
        }
        if let (Product::Slapd, Some(reason)) = (server.product, row.slapd_fails) {
            eprintln!("{}: {reason}", context(server));
            continue;
        }
        if let Some(plan) = row.prepare {
            load.drive(plan, server, None)
                .with_context(|| context(server))?;
        }
        able.push(server);
    }
    for round in 0..rounds {
        for turn in 0..able.len() {
            let server = able[(round + turn) % able.len()];
            let sample = match load.run(row, server).with_context(|| context(server)) {
                Ok(sample) => sample,
                // A peer that gives up leaves its place in the table empty, and the rest to be measured.
                Err(error) if server.product == Product::Slapd => {
                    eprintln!("left out: {error:#}");
                    continue;
                }
                Err(error) => return Err(error),
            };
            eprintln!(
                "{}: {:.0}/s, {:.2} µs of CPU each, the client {:.2} µs; {:.1} KiB read and {:.2} pages waited for",
                context(server),
                sample.rate(),
                sample.cpu_us(),
                sample.client_cpu_us,
                sample.read_kib(),
                sample.waits(),
            );
            report.sample(row, server.product, sample);
        }
    }
    Ok(())
}

/// Writes the entries without the version line, which slapadd takes for an entry without a name.
fn write_ldif(load: &Load, path: &Path) -> Result<u64> {
    let stream = match load.shape {
        Shape::Flat | Shape::Dvtds | Shape::DvtdsInMemory => {
            EntryStream::flat(SUFFIX, load.entries, load.seed)?
        }
        Shape::Org => EntryStream::org(SUFFIX, load.entries, load.seed)?,
    };
    let file = File::create(path)?;
    let mut out = WithoutVersion {
        inner: BufWriter::new(file),
        skipped: 0,
    };
    stream.write(Format::Ldif, &mut out)?;
    Ok(out.inner.get_ref().metadata()?.len())
}

/// Leaves out the first line and the empty one behind it.
struct WithoutVersion<W> {
    inner: W,
    skipped: usize,
}

impl<W: std::io::Write> std::io::Write for WithoutVersion<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        const VERSION: &[u8] = b"version: 1\n\n";
        let skip = (VERSION.len() - self.skipped).min(bytes.len());
        self.skipped += skip;
        if skip > 0 {
            return Ok(skip);
        }
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// A folder of our own, removed at the end.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn create(parent: &Path) -> Result<Self> {
        let path = std::path::absolute(parent.join(format!("bench-ldap-{}", std::process::id())))?;
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} was left behind: {error}", self.path.display());
        }
    }
}

impl std::fmt::Display for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            self.to_possible_value()
                .as_ref()
                .map_or("", |value| value.get_name()),
        )
    }
}
