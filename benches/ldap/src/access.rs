//! What access rules cost: searches and a scan of the whole tree, by the administrator, of whom no rules are asked, and
//! by somebody who may read what they do not hide, under each of the files in `benches/ldap/access/`; slapd under the
//! same rules beside.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::instructions::Callgrind;
use crate::load::Load;
use crate::rows::Unit;
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Prepared, Product, Server, Shape};
use crate::{Folder, SUFFIX, write_ldif};

/// Files of rules, and how many times the administrator's processor time an operation or an entry may cost under them.
const RULES: [(&str, f64); 3] = [("ten", 1.15), ("hundred", 1.3), ("content", 2.0)];

/// Who asks under the rules, a member of the group `cn=readers`.
const READER: &str = "cn=reader,dc=example,dc=com";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Entries: people of 15 attributes in organisational units, and groups of 20
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    entries: u64,
    /// Seconds for each row, identity, server and round
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rounds; the two who ask take turns, and the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only this server
    #[arg(long)]
    only: Option<Product>,
    /// Only the rules of this name
    #[arg(long, value_name = "NAME")]
    file: Option<String>,
    /// Count Sapwood's instructions instead, which do not depend on what else the machine does (callgrind)
    #[arg(long)]
    instructions: bool,
    /// Where the files of rules are
    #[arg(long, value_name = "DIR", default_value = "benches/ldap/access")]
    rules: PathBuf,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// Where data goes: a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
}

/// What is asked, and what of it is counted.
struct Question {
    name: &'static str,
    plan: String,
    unit: Unit,
}

/// Microseconds of the server's processor time for each operation or entry, or instructions.
#[derive(Clone, Copy)]
struct Cost {
    administrator: f64,
    reader: f64,
}

impl Cost {
    fn ratio(self) -> f64 {
        self.reader / self.administrator
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.rounds > 0 && options.seconds > 0.0,
        "at least one round, and some time for it"
    );
    let folder = Folder::create(&options.folder)?;
    let time = Duration::from_secs_f64(options.seconds);
    let load = Load {
        shape: Shape::Org,
        entries: options.entries,
        seed: 1,
        read_time: time,
        write_time: time,
        slapd_write_time: time,
    };
    let ldif = folder.path.join("entries.ldif");
    write_ldif(&load, &ldif)?;
    let more = add_reader(&ldif)?;
    let questions = questions(options.entries + more);
    let mut filled = Vec::new();
    for product in [Product::Sapwood, Product::Slapd] {
        if options.instructions && product == Product::Slapd {
            continue;
        }
        if options.only.is_none_or(|only| only == product) {
            let prepared = product.prepare(&folder.path, Shape::Org, options.sapwood.as_deref())?;
            filled.push((product, prepared.import(&ldif)?.0));
        }
    }
    fs::remove_file(&ldif)?;
    let mut meter = match options.instructions {
        true => Meter::Instructions(Callgrind::new(&folder.path)),
        false => Meter::Processor,
    };
    println!(
        "| rules | | | the administrator, {} each | under the rules | ratio | required | |\n\
         | --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
        meter.unit()
    );
    let mut missed = false;
    let wanted = |rules: &str| {
        let file = options.file.as_ref();
        file.is_none_or(|name| name == rules)
    };
    for (rules, required) in RULES.into_iter().filter(|(rules, _)| wanted(rules)) {
        let file = options.rules.join(format!("{rules}.rules"));
        for (product, prepared) in &filled {
            let asked = (&questions[..], &load, options.rounds);
            let costs = costs(prepared, &file, asked, &mut meter);
            let costs = costs.with_context(|| format!("{product}, {}", file.display()))?;
            for (question, cost) in questions.iter().zip(costs) {
                let (required, verdict) = match product {
                    Product::Slapd => (String::new(), ""),
                    Product::Sapwood => {
                        let is_met = cost.ratio() <= required;
                        missed |= !is_met;
                        let verdict = if is_met { "met" } else { "**missed**" };
                        (format!("≤ {required}"), verdict)
                    }
                };
                println!(
                    "| {rules} | {} | {product} | {:.2} | {:.2} | {:.2} | {required} | {verdict} |",
                    question.name,
                    cost.administrator,
                    cost.reader,
                    cost.ratio(),
                );
            }
        }
    }
    ensure!(!missed, "rules cost more than they may");
    Ok(())
}

/// Appends who asks and the groups that rules name; how many entries that are.
fn add_reader(ldif: &Path) -> Result<u64> {
    let mut out = fs::OpenOptions::new().append(true).open(ldif)?;
    write!(
        out,
        "\ndn: {READER}\nobjectClass: person\ncn: reader\nsn: reader\nuserPassword: {ADMIN_PASSWORD}\n"
    )?;
    let groups = [
        ("readers", READER),
        ("helpdesk", ADMIN_DN),
        ("admins", ADMIN_DN),
    ];
    for (name, member) in groups {
        write!(
            out,
            "\ndn: cn={name},{SUFFIX}\nobjectClass: groupOfNames\ncn: {name}\nmember: {member}\n"
        )?;
    }
    Ok(1 + groups.len() as u64)
}

/// What is asked of a directory with so many entries.
fn questions(entries: u64) -> [Question; 3] {
    let dn = "let: dn = random org dn ${suffix} ${entries} ${seed}\n\n";
    let uid = "let: uid = random org uid ${suffix} ${entries} ${seed}\n\n";
    let session = "session: s\nconnections: 4\nqueue: 1000\n\nexpect-entries: 1\n";
    [
        Question {
            name: "base search",
            plan: format!("{dn}{session}search: ${{dn}}\nscope: base\n"),
            unit: Unit::Operations,
        },
        Question {
            name: "equality search",
            plan: format!("{uid}{session}search: ${{suffix}}\nfilter: (uid=${{uid}})\n"),
            unit: Unit::Operations,
        },
        Question {
            name: "whole tree, each entry",
            plan: format!("session: s\n\nexpect-entries: {entries}\nsearch: ${{suffix}}\n"),
            unit: Unit::Entries,
        },
    ]
}

/// How costs are measured.
enum Meter {
    /// In microseconds of processor time.
    Processor,
    /// In instructions.
    Instructions(Callgrind),
}

impl Meter {
    fn unit(&self) -> &'static str {
        match self {
            Meter::Processor => "µs CPU",
            Meter::Instructions(_) => "instructions",
        }
    }

    /// What each operation or entry of a question costs that somebody asks.
    fn measure(
        &mut self,
        question: &Question,
        who: &str,
        (server, load): (&Server, &Load),
    ) -> Result<f64> {
        let asked = (who, question.plan.as_str());
        match self {
            Meter::Processor => load.cpu_us(asked, question.unit, server),
            Meter::Instructions(callgrind) => {
                let counted = load.instructions(asked, question.unit, (server, callgrind));
                let (each, hottest) = counted?;
                eprintln!("{}, {who}:", question.name);
                hottest.iter().for_each(|line| eprintln!("    {line}"));
                Ok(each)
            }
        }
    }
}

/// What each question costs on a server under rules.
fn costs(
    prepared: &Prepared,
    rules: &Path,
    (questions, load, rounds): (&[Question], &Load, usize),
    meter: &mut Meter,
) -> Result<Vec<Cost>> {
    let mut prepared = prepared.under(rules)?;
    if let Meter::Instructions(callgrind) = meter {
        prepared = prepared.wrapped(callgrind.wrapper()?);
    }
    let server = prepared.start()?;
    let costs = questions
        .iter()
        .map(|question| cost(question, (&server, load), rounds, meter).context(question.name))
        .collect::<Result<_>>()?;
    server.stop()?;
    Ok(costs)
}

fn cost(
    question: &Question,
    (server, load): (&Server, &Load),
    rounds: usize,
    meter: &mut Meter,
) -> Result<Cost> {
    let mut costs = [Vec::new(), Vec::new()];
    if let Meter::Instructions(_) = meter {
        // What is done once for each entry is done before.
        load.cpu_us((ADMIN_DN, &question.plan), question.unit, server)?;
    }
    for round in 0..rounds {
        for turn in 0..costs.len() {
            let who = (round + turn) % costs.len();
            let each = meter.measure(question, [ADMIN_DN, READER][who], (server, load))?;
            costs[who].push(each);
        }
    }
    let [administrator, reader] = costs.map(|mut costs| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    });
    Ok(Cost {
        administrator,
        reader,
    })
}
