//! Sapwood beside OpenLDAP's slapd: both get the same entries and the same load, in turns, on this machine; the
//! outcome is one table of ratios. `cargo xtask bench ldap` builds what is needed and runs it.

mod load;
mod process;
mod report;
mod rows;
mod server;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use sapwood_client::generate::Generator;
use sapwood_ldap::ldif;

use crate::load::Load;
use crate::report::Report;
use crate::rows::{ROWS, Row};
use crate::server::{Prepared, Product, Server};

/// The suffix of the generated directory.
const SUFFIX: &str = "dc=example,dc=com";

/// Measure Sapwood beside its peers.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
enum Command {
    /// Beside OpenLDAP's slapd, over LDAP on loopback
    Ldap(Options),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Entries to generate
    #[arg(long, default_value_t = 250_000)]
    entries: u64,
    /// What the entries and the load are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds for each row, server and round
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rounds; the servers take turns, and the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
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
}

fn main() -> Result<()> {
    let Command::Ldap(options) = Command::parse();
    run(&options)
}

fn run(options: &Options) -> Result<()> {
    ensure!(
        options.rounds > 0 && options.seconds > 0.0,
        "at least one round, and some time for it"
    );
    let generator = Generator::new(SUFFIX, options.entries, options.seed)?;
    let folder = Folder::create(&options.folder)?;
    let ldif = folder.path.join("entries.ldif");
    let bytes = write_ldif(&generator, &ldif)?;
    eprintln!(
        "{} entries, {:.1} MB of LDIF",
        generator.entries(),
        bytes as f64 / 1e6
    );

    let mut report = Report::new(generator.entries());
    let products: Vec<Product> = [Product::Sapwood, Product::Slapd]
        .into_iter()
        .filter(|product| options.only.is_none_or(|only| only == *product))
        .collect();
    let mut filled = Vec::new();
    for round in 0..options.rounds {
        // The last round's directories are served.
        filled.clear();
        let parent = folder.path.join(round.to_string());
        fs::create_dir(&parent)?;
        for turn in 0..products.len() {
            let product = products[(round + turn) % products.len()];
            let prepared = product.prepare(&parent, options.sapwood.as_deref())?;
            let (prepared, cost) = prepared.import(&ldif)?;
            eprintln!("{product}: imported in {:.2} s", cost.seconds);
            report.import(product, cost);
            filled.push(prepared);
        }
        if round + 1 < options.rounds {
            fs::remove_dir_all(&parent)?;
        }
    }
    let mut servers = filled
        .into_iter()
        .map(Prepared::start)
        .collect::<Result<Vec<_>>>()?;
    fs::remove_file(&ldif)?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let load = Load::new(&generator, options.seed, options.seconds);
    for server in &servers {
        let seen = runtime.block_on(load.verify(server, &generator))?;
        eprintln!(
            "{}: {seen} entries are as they were generated",
            server.product
        );
    }
    let rows = ROWS.iter().filter(|row| {
        options
            .row
            .as_ref()
            .is_none_or(|text| row.name.contains(text))
    });
    for row in rows {
        measure(
            row,
            options.rounds,
            &runtime,
            &load,
            &mut servers,
            &mut report,
        )?;
    }
    for server in servers {
        report.memory(server.product, server.stop()?);
    }
    print!("{}", report.markdown());
    if let Some(file) = &options.json {
        fs::write(file, report.json()).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// All rounds of one row, the servers taking turns, a different one first each time.
fn measure(
    row: &'static Row,
    rounds: usize,
    runtime: &tokio::runtime::Runtime,
    load: &Load,
    servers: &mut [Server],
    report: &mut Report,
) -> Result<()> {
    for round in 0..rounds {
        for turn in 0..servers.len() {
            let server = &servers[(round + turn) % servers.len()];
            let sample = runtime
                .block_on(load.run(row, server))
                .with_context(|| format!("{}: {}", server.product, row.name))?;
            eprintln!(
                "{}: {}: {:.0}/s, {:.2} µs of CPU each",
                server.product,
                row.name,
                sample.rate(),
                sample.cpu_us()
            );
            report.sample(row, server.product, sample);
        }
    }
    Ok(())
}

/// Writes the entries without the version line, which slapadd takes for an entry without a name.
fn write_ldif(generator: &Generator, path: &Path) -> Result<u64> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut text = Vec::new();
    for entry in generator.iter() {
        text.clear();
        ldif::write_dn(&mut text, &entry.dn);
        for (description, value) in &entry.values {
            ldif::write_value(&mut text, description, value.as_bytes());
        }
        text.push(b'\n');
        file.write_all(&text)?;
    }
    file.flush()?;
    Ok(file.get_ref().metadata()?.len())
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
