//! Members added to groups of a thousand and of hundreds of thousands, each durable before it is answered: a member
//! costs the same, however many there are.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sapwood_drive::{Settings, run as drive};

use crate::load::plan;
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Indexes, Product, Server, Shape};
use crate::{Folder, SUFFIX};

/// How much dearer a member of the larger group may be.
const RATIO_MAX: f64 = 1.5;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Members of the smaller and of the larger group
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        num_args = 2,
        default_values_t = [1000, 650_000]
    )]
    members: Vec<u64>,
    /// Seconds for each group, server and queue
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// Where data goes: on the disk whose durability counts; a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
}

/// Requests in flight on the one connection.
const QUEUES: [u32; 2] = [1, 100];

pub(crate) fn run(options: &Options) -> Result<()> {
    let [fewer, more] = options.members[..] else {
        anyhow::bail!("two numbers of members");
    };
    ensure!(
        0 < fewer && fewer < more,
        "the smaller group comes first, and has members"
    );
    let folder = Folder::create(&options.folder)?;
    let ldif = folder.path.join("groups.ldif");
    write_groups(&ldif, &[fewer, more])?;
    println!(
        "| | queue | {fewer} members, µs each | {more} members, µs each | ratio | µs CPU each | µs CPU each | ratio | required | |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    );
    let mut missed = false;
    for product in [Product::Sapwood, Product::Slapd] {
        let parent = folder.path.join(product.to_string());
        fs::create_dir(&parent)?;
        let sapwood = options.sapwood.as_deref();
        let prepared = product.prepare_with(&parent, Indexes::Members, sapwood)?;
        let server = prepared.import(&ldif)?.0.start()?;
        let mut added = 0;
        for queue in QUEUES {
            let mut costs = |members| {
                let cost = add(&server, members, queue, added, options.seconds);
                added += cost.as_ref().map_or(0, |cost| cost.members);
                cost.with_context(|| format!("{product}, {members} members"))
            };
            let (few, many) = (costs(fewer)?, costs(more)?);
            let ratio = many.each_us() / few.each_us();
            let cpu_ratio = many.cpu_us / few.cpu_us;
            let (required, verdict) = match product {
                Product::Slapd => (String::new(), ""),
                Product::Sapwood => {
                    let is_met = ratio.max(cpu_ratio) <= RATIO_MAX;
                    missed |= !is_met;
                    (
                        format!("≤ {RATIO_MAX}"),
                        if is_met { "met" } else { "**missed**" },
                    )
                }
            };
            println!(
                "| {} | {queue} | {:.0} | {:.0} | {ratio:.2} | {:.0} | {:.0} | {cpu_ratio:.2} | {required} | {verdict} |",
                server.product,
                few.each_us(),
                many.each_us(),
                few.cpu_us,
                many.cpu_us,
            );
        }
        server.stop()?;
        fs::remove_dir_all(&parent)?;
    }
    ensure!(
        !missed,
        "a member of the larger group costs more than it may"
    );
    Ok(())
}

fn dn_of(members: u64) -> String {
    format!("cn=group {members},{SUFFIX}")
}

fn write_groups(path: &Path, groups: &[u64]) -> Result<()> {
    let mut out = std::io::BufWriter::new(fs::File::create(path)?);
    write!(
        out,
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: Example\ndc: example\n"
    )?;
    for members in groups {
        let dn = dn_of(*members);
        write!(
            out,
            "\ndn: {dn}\nobjectClass: groupOfNames\ncn: group {members}\n"
        )?;
        for number in 0..*members {
            writeln!(out, "member: uid=user{number:07},ou=people,{SUFFIX}")?;
        }
    }
    Ok(out.flush()?)
}

/// What it took to add members to a group.
struct Cost {
    members: u64,
    seconds: f64,
    cpu_us: f64,
}

impl Cost {
    fn each_us(&self) -> f64 {
        self.seconds * 1e6 / self.members as f64
    }
}

/// Adds members to a group for so long; `added` have been added before, to whichever group.
fn add(server: &Server, members: u64, queue: u32, added: u64, seconds: f64) -> Result<Cost> {
    let mut settings = Settings::new(&server.url);
    settings.bind = Some((ADMIN_DN.to_owned(), ADMIN_PASSWORD.into()));
    let text = format!(
        "let: n = sequence {}..100000000\n\nphase: members\nduration: {seconds}\n\nsession: s\nqueue: {queue}\n\n\
         dn: {}\nchangetype: modify\nadd: member\nmember: uid=new${{n:8}},ou=people,{SUFFIX}\n",
        // Those that were under way at the end were added, too.
        added + 1 + 1000 * u64::from(queue),
        dn_of(members),
    );
    let plan = plan(&text, Shape::Flat, 1, 1)?;
    let before = server.cpu()?;
    let reports = drive(plan, &settings, &mut ())?;
    let cpu = server.cpu()?.saturating_sub(before);
    let report = reports.last().context("no phase ran")?;
    ensure!(report.errors.is_empty(), "wrong answers:\n{report}");
    let members = report.total.answered;
    ensure!(members > 0, "no member was added");
    Ok(Cost {
        members,
        seconds: report.seconds,
        cpu_us: cpu.as_secs_f64() * 1e6 / members as f64,
    })
}
