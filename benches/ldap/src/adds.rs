//! Entries added one by one over the wire, each durable before it is answered: how long it takes, and what is written
//! for it.
//!
//! The experiment of the article on OpenLDAP's back-hdb, whose log took 20.8 MB for 9.8 MB of entries.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use sapwood_drive::{EntryStream, Format, PlanOptions, Settings, run as drive};

use crate::load::plan;
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Indexes, Prepared, Product, Shape};
use crate::{Folder, SUFFIX, stat};

/// Bytes of log that are allowed for each byte of the entries where attributes have no indexes, and how many are hoped
/// for.
const LOG_RATIO_MAX: (f64, f64) = (2.1, 1.5);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Entries
    #[arg(long, default_value_t = 10_000)]
    entries: u64,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// Where data goes: on the disk whose durability counts; a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
}

/// The entry that the others are below.
const ROOT: &str = "dn: ${suffix}\nobjectClass: top\nobjectClass: organization\nobjectClass: dcObject\n\
    o: Example\ndc: example\n";

/// An entry of about 980 bytes, as those of the experiment.
const PERSON: &str = "dn: uid=u${n:8},${suffix}\nobjectClass: top\nobjectClass: person\nobjectClass: organizationalPerson\n\
    objectClass: inetOrgPerson\nuid: u${n:8}\ncn: ${given} ${sn}\nsn: ${sn}\ngivenName: ${given}\n\
    displayName: ${sn}, ${given}\nmail: ${given}.${sn}.${n}@example.com\ntelephoneNumber: +49 30 ${phone}\n\
    employeeNumber: ${n}\ntitle: Engineer\ndepartmentNumber: 1042\nl: Hamburg\nstreet: Main Street 5\npostalCode: 20095\n\
    description: ${text}\n";

const VARIABLES: &str = "let: n = sequence 1..100000000\n\
    let: given = random list Adam Alice Carlos Emma Jin Karim Louise Nadia Omar Petra\n\
    let: sn = characters 7 abcdefghijklmnoprstuvwz\nlet: phone = random 1000000..9999999\nlet: text = characters 500\n";

/// What one server took.
struct Outcome {
    name: String,
    seconds: f64,
    cpu_us: f64,
    /// Where the product has a log.
    log_bytes: Option<u64>,
    written_bytes: Option<u64>,
    disk_bytes: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.entries > 0, "at least one entry");
    let folder = Folder::create(&options.folder)?;
    let entry_bytes = entry_bytes(options.entries)?;
    println!(
        "{} entries, {:.1} MB as they are sent\n",
        options.entries,
        entry_bytes as f64 / 1e6
    );
    println!(
        "| | seconds | server µs CPU each | log MB | log / entries | required | aim | | written MB | on disk MB |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |"
    );
    let cases = [Product::Sapwood, Product::Slapd].into_iter();
    let cases = cases.flat_map(|product| Indexes::OF_PEOPLE.map(|indexes| (product, indexes)));
    for (number, (product, indexes)) in cases.enumerate() {
        let parent = folder.path.join(number.to_string());
        fs::create_dir(&parent)?;
        let prepared = product.prepare_with(&parent, indexes, options.sapwood.as_deref())?;
        let outcome = measure(prepared, indexes, options.entries)
            .with_context(|| format!("{product}, {indexes}"))?;
        let ratio = outcome.log_bytes.map(|log| log as f64 / entry_bytes as f64);
        let judged = ratio.filter(|_| indexes == Indexes::None);
        let (most, aim) = LOG_RATIO_MAX;
        let (required, aimed, verdict) = match judged {
            None => (String::new(), String::new(), ""),
            Some(ratio) => (
                format!("≤ {most}"),
                format!("≤ {aim}"),
                match ratio {
                    ratio if ratio <= aim => "aim met",
                    ratio if ratio <= most => "met",
                    _ => "**missed**",
                },
            ),
        };
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        println!(
            "| {} | {:.2} | {:.0} | {} | {} | {required} | {aimed} | {verdict} | {} | {} |",
            outcome.name,
            outcome.seconds,
            outcome.cpu_us,
            outcome.log_bytes.map(megabytes).unwrap_or_default(),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            outcome.written_bytes.map(megabytes).unwrap_or_default(),
            megabytes(outcome.disk_bytes),
        );
        fs::remove_dir_all(&parent)?;
    }
    Ok(())
}

/// What the requests take.
fn entry_bytes(entries: u64) -> Result<u64> {
    let text = format!("set: suffix = {SUFFIX}\n\n{VARIABLES}\n{PERSON}");
    let mut requests = Vec::new();
    let options = PlanOptions::default();
    EntryStream::template(text.as_bytes(), &options, entries, 1)?
        .write(Format::Ber, &mut requests)?;
    Ok(requests.len() as u64)
}

fn measure(prepared: Prepared, indexes: Indexes, entries: u64) -> Result<Outcome> {
    let logged = Log::find(&prepared)?;
    let server = prepared.start()?;
    let mut settings = Settings::new(&server.url);
    settings.bind = Some((ADMIN_DN.to_owned(), ADMIN_PASSWORD.into()));
    let sessions = format!(
        "{VARIABLES}\nphase: root\n\nsession: s\ncount: 1\n\n{ROOT}\nphase: people\n\nsession: s\ncount: {entries}\n\n{PERSON}"
    );
    let plan = plan(&sessions, Shape::Flat, entries, 1)?;
    let before = server.bytes_written();
    let reports = drive(plan, &settings, &mut ())?;
    for report in &reports {
        ensure!(report.errors.is_empty(), "wrong answers:\n{report}");
    }
    let seconds = reports.last().map_or(0.0, |report| report.seconds);
    let (name, cpu) = (format!("{}, {indexes}", server.product), server.cpu()?);
    let written = server.bytes_written().zip(before);
    let written_bytes = written.map(|(after, before)| after - before);
    let disk_bytes = server.disk_bytes();
    server.stop()?;
    Ok(Outcome {
        name,
        seconds,
        cpu_us: cpu.as_secs_f64() * 1e6 / entries as f64,
        log_bytes: logged.map(Log::since).transpose()?,
        written_bytes,
        disk_bytes,
    })
}

/// Sapwood's log: it says itself how much it has ever written.
struct Log {
    program: PathBuf,
    folder: PathBuf,
    before: u64,
}

impl Log {
    fn find(prepared: &Prepared) -> Result<Option<Self>> {
        let Some((program, folder)) = prepared.sapwood() else {
            return Ok(None);
        };
        let mut log = Log {
            program: program.to_owned(),
            folder: folder.to_owned(),
            before: 0,
        };
        log.before = log.ever()?;
        Ok(Some(log))
    }

    fn since(self) -> Result<u64> {
        Ok(self.ever()?.saturating_sub(self.before))
    }

    fn ever(&self) -> Result<u64> {
        let numbers = stat::numbers(&self.program, &self.folder, "Log ever written:")?;
        numbers.first().copied().context("no store has a log")
    }
}
