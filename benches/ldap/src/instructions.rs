//! Instructions that the server takes for each operation, counted by callgrind: a count does not depend on what else the
//! machine does.
//!
//! The server runs under callgrind from its start, counting nothing. For each work counting is switched on once the load
//! client's connections are made, and what was counted is written out when it has its last answer. Work that the server does
//! later, as a checkpoint, is not in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sapwood_client::drive::{
    EntryStream, Format, Observer, PhaseReport, Point, Settings, run as drive,
};

use crate::load::plan;
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Product, Server, Shape, in_path};
use crate::{Folder, SUFFIX};

/// Functions that are shown.
const HOTTEST: usize = 10;
/// What the instruction cache loads at once, in bytes.
const CACHE_LINE_BYTES: u64 = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Entries of the shape flat
    #[arg(long, default_value_t = 250_000)]
    entries: u64,
    /// Operations of each kind, but for the search of the whole tree, which is done once
    #[arg(long, default_value_t = 2_000)]
    operations: u64,
    /// Only works whose name contains this
    #[arg(long, value_name = "TEXT")]
    work: Option<String>,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// Where data goes; a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
}

/// What is counted.
struct Work {
    name: &'static str,
    /// A plan without its session's options.
    plan: &'static str,
    /// Requests under way at a time.
    queue: u32,
    /// The most instructions that are allowed for each entry or operation, and how many are hoped for.
    required: Option<(u64, u64)>,
    /// What has been counted, with room for what differs from run to run: more is a step back, and a failure.
    ceiling: u64,
    is_scan: bool,
}

const WORKS: [Work; 7] = [
    Work {
        name: "whole tree, per entry",
        plan: "expect-entries: ${entries}\nsearch: ${suffix}\n",
        queue: 1,
        required: Some((1_200, 500)),
        ceiling: 1_100,
        is_scan: true,
    },
    work("base search", BASE, 1, 20_700),
    work("base search, queue 1000", BASE, 1_000, 13_000),
    work(
        "equality search",
        "expect-entries: 1\nsearch: ${suffix}\nfilter: (uid=u${n:8})\n",
        1,
        20_700,
    ),
    work("modify", MODIFY, 1, 120_000),
    work("modify, queue 1000", MODIFY, 1_000, 32_000),
    work(
        "add",
        "dn: uid=${new}x${next},${suffix}\nobjectClass: top\nobjectClass: person\n\
         objectClass: organizationalPerson\nobjectClass: inetOrgPerson\nuid: ${new}x${next}\ncn: New ${next}\n\
         sn: ${next}\ncarLicense: ${plate}\n",
        1,
        440_000,
    ),
];

const BASE: &str = "expect-entries: 1\nsearch: uid=u${n:8},${suffix}\nscope: base\n";
const MODIFY: &str =
    "dn: uid=u${n:8},${suffix}\nchangetype: modify\nreplace: carLicense\ncarLicense: ${plate}\n";

const fn work(name: &'static str, plan: &'static str, queue: u32, ceiling: u64) -> Work {
    Work {
        name,
        plan,
        queue,
        required: None,
        ceiling,
        is_scan: false,
    }
}

/// What the plans use.
const VARIABLES: &str = "let: n = random 1..${people}\nlet: next = sequence 1..100000000\n\
    let: plate = characters 8 ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n";

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = Folder::create(&options.folder)?;
    let counts = folder.path.join("counts");
    let ldif = folder.path.join("entries.ldif");
    EntryStream::flat(SUFFIX, options.entries, 1)?
        .write(Format::Ldif, &mut fs::File::create(&ldif)?)?;
    let prepared =
        Product::Sapwood.prepare(&folder.path, Shape::Flat, options.sapwood.as_deref())?;
    let (prepared, _) = prepared.import(&ldif)?;
    let wrapper = [
        in_path("valgrind")?.display().to_string(),
        "--tool=callgrind".to_owned(),
        "--instr-atstart=no".to_owned(),
        "--quiet".to_owned(),
        "--dump-instr=yes".to_owned(),
        "--compress-pos=no".to_owned(),
        "--compress-strings=no".to_owned(),
        format!("--callgrind-out-file={}", counts.display()),
    ];
    let server = prepared.wrapped(wrapper.into()).start()?;
    println!("| | instructions | ceiling | required | aim | |");
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    let (mut hottest, mut risen) = (Vec::new(), Vec::new());
    let works = WORKS.iter().filter(|work| {
        let wanted = options.work.as_ref();
        wanted.is_none_or(|text| work.name.contains(text.as_str()))
    });
    for (number, work) in works.enumerate() {
        // The caches of the server and of its tree are filled once before.
        measure(work, options, &server, 2 * number, &mut ())?;
        let mut counting = Counting {
            server: &server,
            dump: number + 1,
            outcome: Ok(()),
        };
        let operations = measure(work, options, &server, 2 * number + 1, &mut counting)?;
        counting.outcome?;
        let file = PathBuf::from(format!("{}.{}", counts.display(), number + 1));
        let file = fs::File::open(&file).with_context(|| file.display().to_string())?;
        let counted = Counts::read(BufReader::new(file))?;
        let each = counted.total / operations;
        let text = |most: Option<u64>| most.map_or_else(String::new, |most| format!("≤ {most}"));
        println!(
            "| {} | {each} | ≤ {} | {} | {} | {} |",
            work.name,
            work.ceiling,
            text(work.required.map(|required| required.0)),
            text(work.required.map(|required| required.1)),
            work.required.map_or("", |(most, aim)| match each {
                each if each <= aim => "aim met",
                each if each <= most => "met",
                _ => "**missed**",
            })
        );
        if each > work.ceiling {
            risen.push(format!("{}: {each} > {}", work.name, work.ceiling));
        }
        hottest.push((work.name, counted.hot_bytes(), counted.hottest(operations)));
    }
    for (name, hot_bytes, functions) in hottest {
        println!(
            "\n{name}: 99 of 100 instructions are in {:.1} KiB of code\n",
            hot_bytes as f64 / 1024.0
        );
        functions.iter().for_each(|line| println!("    {line}"));
    }
    server.stop()?;
    ensure!(
        risen.is_empty(),
        "more instructions than the ceilings allow: {}",
        risen.join("; ")
    );
    Ok(())
}

/// Counts from when the connections are made to the last answer.
struct Counting<'c> {
    server: &'c Server,
    /// The number of the file that is written.
    dump: usize,
    outcome: Result<()>,
}

impl Counting<'_> {
    fn control(&mut self, what: &str) {
        if self.outcome.is_ok() {
            self.outcome = control(self.server, what);
        }
    }
}

impl Observer for Counting<'_> {
    fn begins(&mut self, _phase: &str, _connections: u32) {
        self.control("--instr=on");
    }

    fn point(&mut self, _point: &Point) {}

    fn ends(&mut self, _report: &PhaseReport) {
        let dump = format!("--dump={}", self.dump);
        self.control(&dump);
        self.control("--instr=off");
    }
}

/// Does the work; how many operations, or entries of a scan. `time` is a number that no other time has.
fn measure(
    work: &Work,
    options: &Options,
    server: &Server,
    time: usize,
    observer: &mut dyn Observer,
) -> Result<u64> {
    let count = if work.is_scan { 1 } else { options.operations };
    let text = format!(
        "{VARIABLES}\nsession: s\ncount: {count}\nqueue: {}\n\n{}",
        work.queue, work.plan
    );
    // Each time takes other names to add.
    let text = text.replace("${new}", &format!("new{time}"));
    let plan = plan(&text, Shape::Flat, options.entries, 1)?;
    let mut settings = Settings::new(&server.url);
    settings.bind = Some((ADMIN_DN.to_owned(), ADMIN_PASSWORD.into()));
    settings.answer_timeout = std::time::Duration::from_secs(600);
    let report = drive(plan, &settings, observer)?.remove(0);
    ensure!(report.errors.is_empty(), "wrong answers:\n{report}");
    Ok(if work.is_scan {
        report.total.entries
    } else {
        report.total.answered
    })
}

/// Tells callgrind what to do.
fn control(server: &Server, what: &str) -> Result<()> {
    let output = Command::new(in_path("callgrind_control")?)
        .arg(what)
        .arg(server.pid().to_string())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && !said.contains("Error"),
        "callgrind_control {what}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// What callgrind has written: the instructions of each function, and of each line of the instruction cache.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    total: u64,
    functions: BTreeMap<String, u64>,
    lines: BTreeMap<u64, u64>,
}

impl Counts {
    /// Reads a file with whole positions and names. The sums in it count calls that were under way when counting began as
    /// less than nothing; what functions took themselves is right.
    fn read(text: impl BufRead) -> Result<Self> {
        let mut counts = Counts::default();
        let (mut function, mut is_call) = (String::new(), false);
        for line in text.lines() {
            let line = line?;
            if let Some(name) = line.strip_prefix("fn=") {
                name.clone_into(&mut function);
            } else if line.starts_with("calls=") {
                // The next line has what the called function took.
                is_call = true;
            } else if line.starts_with("0x") && !std::mem::take(&mut is_call) {
                let mut fields = line.split_ascii_whitespace();
                let address = fields.next().and_then(|field| field.strip_prefix("0x"));
                let address = address.and_then(|field| u64::from_str_radix(field, 16).ok());
                let count = fields.nth(1).and_then(|field| field.parse::<u64>().ok());
                let (Some(address), Some(count)) = (address, count) else {
                    bail!("{line:?} is not a line of callgrind's");
                };
                counts.total += count;
                *counts.functions.entry(function.clone()).or_default() += count;
                *counts.lines.entry(address / CACHE_LINE_BYTES).or_default() += count;
            }
        }
        Ok(counts)
    }

    /// The functions with the most instructions of their own, each with its instructions per operation.
    fn hottest(&self, operations: u64) -> Vec<String> {
        let mut functions: Vec<_> = self.functions.iter().collect();
        functions.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let row = |(name, count): (&String, &u64)| {
            format!("{:>8.1}  {name}", *count as f64 / operations as f64)
        };
        functions.into_iter().take(HOTTEST).map(row).collect()
    }

    /// Bytes of the instruction cache that hold 99 of 100 instructions that were taken.
    fn hot_bytes(&self) -> u64 {
        let mut lines: Vec<u64> = self.lines.values().copied().collect();
        lines.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        let sums = lines.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let hot = sums.take_while(|sum| *sum < self.total / 100 * 99).count() + 1;
        hot as u64 * CACHE_LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_functions_take_themselves_is_counted() {
        let text = "events: Ir\nsummary: 18446744073709551615\n\nob=sapwood\nfl=a.rs\nfn=one\n0x1000 7 90\n\
                    cfn=two\ncalls=3 0x2000 9\n0x1004 8 1000\n0x1008 8 1\n\nfn=two\n0x2000 9 9\n";
        let counts = Counts::read(text.as_bytes()).unwrap();
        assert_eq!(counts.total, 100);
        assert_eq!(
            counts.hottest(2),
            ["    45.5  one", "     4.5  two"].map(str::to_owned)
        );
        // The nine instructions elsewhere are more than one of a hundred.
        assert_eq!(counts.hot_bytes(), 2 * CACHE_LINE_BYTES);
        assert!(Counts::read("0x10 5\n".as_bytes()).is_err());
    }
}
