//! Instructions that the server takes for each operation, counted by callgrind: a count does not depend on what else
//! the machine does.
//!
//! The server runs under callgrind from its start, counting nothing. For each work counting is switched on once the
//! load client's connections are made, and what was counted is written out when it has its last answer. Work that the
//! server does later, as a checkpoint, is not in it. Each work is counted in several rounds, of which the median is
//! compared with the [baseline](Baseline).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sapwood_drive::{EntryStream, Format, Observer, PhaseReport, Point, Settings, run as drive};
use serde::{Deserialize, Serialize};

use crate::load::plan;
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Product, Server, Shape, in_path};
use crate::{Folder, SUFFIX};

/// Functions that are shown.
const HOTTEST: usize = 10;
/// Instructions more than in the baseline that a work may take.
const MORE_PERCENT: u64 = 2;
/// The same for one that a decision record allows more.
const EXCEPTION_PERCENT: u64 = 5;
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
    /// How often each work is counted; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The sapwood program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    sapwood: Option<PathBuf>,
    /// The counts that are compared with
    #[arg(long, value_name = "FILE", default_value = "benches/baseline.json")]
    baseline: PathBuf,
    /// Write what is counted as the baseline instead, under the name of the commit that was built
    #[arg(long, value_name = "COMMIT")]
    write_baseline: Option<String>,
    /// Where data goes; a folder is made in it and removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    folder: PathBuf,
}

/// What is counted.
struct Work {
    name: &'static str,
    /// A plan without its session's options, to be done once before; empty if nothing is.
    prepares: &'static str,
    /// A plan without its session's options.
    plan: &'static str,
    /// Requests under way at a time.
    queue: u32,
    is_scan: bool,
}

const WORKS: [Work; 9] = [
    Work {
        name: "whole tree, per entry",
        prepares: "",
        plan: "expect-entries: ${entries}\nsearch: ${suffix}\n",
        queue: 1,
        is_scan: true,
    },
    work("base search", BASE, 1),
    work("base search, queue 1000", BASE, 1_000),
    work(
        "equality search",
        "expect-entries: 1\nsearch: ${suffix}\nfilter: (uid=u${n:8})\n",
        1,
    ),
    work("modify", MODIFY, 1),
    work("modify, queue 1000", MODIFY, 1_000),
    work(
        "add",
        "dn: uid=${new}x${next},${suffix}\nobjectClass: top\nobjectClass: person\n\
         objectClass: organizationalPerson\nobjectClass: inetOrgPerson\nuid: ${new}x${next}\ncn: New ${next}\n\
         sn: ${next}\ncarLicense: ${plate}\n",
        1,
    ),
    // Each search finds another commit than the one before.
    work("modify and search in turns", IN_TURNS, 1),
    Work {
        prepares: PASSWORDS,
        ..work(
            "simple bind with {SSHA}",
            "bind: uid=u${user:8},${suffix}\npassword: secret\n",
            1,
        )
    },
];

const BASE: &str = "expect-entries: 1\nsearch: uid=u${n:8},${suffix}\nscope: base\n";
const MODIFY: &str =
    "dn: uid=u${n:8},${suffix}\nchangetype: modify\nreplace: carLicense\ncarLicense: ${plate}\n";
const IN_TURNS: &str = "dn: uid=u${n:8},${suffix}\nchangetype: modify\nreplace: carLicense\ncarLicense: ${plate}\n\n\
                        expect-entries: 1\nsearch: ${suffix}\nfilter: (uid=u${n:8})\n";
const PASSWORDS: &str = "dn: uid=u${user:8},${suffix}\nchangetype: modify\nreplace: userPassword\n\
                         userPassword: {SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==\n";

const fn work(name: &'static str, plan: &'static str, queue: u32) -> Work {
    Work {
        name,
        prepares: "",
        plan,
        queue,
        is_scan: false,
    }
}

/// What each work took at an earlier commit, with as many entries and operations as are counted by default.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Baseline {
    commit: String,
    /// For each entry or operation, by the name of the work.
    instructions: BTreeMap<String, u64>,
    /// Works that may take [`EXCEPTION_PERCENT`] more, each with the decision record that says what that buys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    exceptions: BTreeMap<String, PathBuf>,
}

impl Baseline {
    fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    }

    /// The most instructions that a work may take; no bound for one that was not counted then.
    fn most(&self, work: &str) -> u64 {
        let Some(counted) = self.instructions.get(work) else {
            return u64::MAX;
        };
        let percent = match self.exceptions.get(work) {
            Some(_) => EXCEPTION_PERCENT,
            None => MORE_PERCENT,
        };
        counted * (100 + percent) / 100
    }
}

/// What the plans use.
const VARIABLES: &str = "let: n = random 1..${people}\nlet: next = sequence 1..100000000\n\
    let: plate = characters 8 ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\nlet: user = sequence 1..1000\n";

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "at least one round");
    let baseline = match options.write_baseline {
        Some(_) => Baseline::default(),
        None => Baseline::read(&options.baseline)?,
    };
    let folder = Folder::create(&options.folder)?;
    let mut callgrind = Callgrind::new(&folder.path);
    let ldif = folder.path.join("entries.ldif");
    EntryStream::flat(SUFFIX, options.entries, 1)?
        .write(Format::Ldif, &mut fs::File::create(&ldif)?)?;
    let prepared =
        Product::Sapwood.prepare(&folder.path, Shape::Flat, options.sapwood.as_deref())?;
    let (prepared, _) = prepared.import(&ldif)?;
    let server = prepared.wrapped(callgrind.wrapper()?).start()?;
    println!("| | instructions | rounds | at most | |");
    println!("| --- | ---: | ---: | ---: | --- |");
    let (mut counted, mut hottest, mut risen) = (BTreeMap::new(), Vec::new(), Vec::new());
    let works = WORKS.iter().filter(|work| {
        let wanted = options.work.as_ref();
        wanted.is_none_or(|text| work.name.contains(text.as_str()))
    });
    let mut times = 0..;
    for work in works {
        if !work.prepares.is_empty() {
            let prepares = Work {
                plan: work.prepares,
                ..*work
            };
            measure(&prepares, options, &server, 0, &mut ())?;
        }
        // The caches of the server and of its tree are filled once before.
        measure(work, options, &server, times.next().unwrap_or(0), &mut ())?;
        let mut rounds = Vec::new();
        for time in times.by_ref().take(options.rounds) {
            let (operations, counts) = callgrind.count(&server, |observer| {
                measure(work, options, &server, time, observer)
            })?;
            rounds.push((counts.total / operations, counts, operations));
        }
        rounds.sort_by_key(|(each, ..)| *each);
        let all: Vec<_> = rounds.iter().map(|(each, ..)| each.to_string()).collect();
        let (each, counts, operations) = rounds.swap_remove(rounds.len() / 2);
        let most = match options.write_baseline {
            Some(_) => u64::MAX,
            None => baseline.most(work.name),
        };
        let (bound, percent) = match baseline.instructions.get(work.name) {
            Some(before) => (
                most.to_string(),
                format!("{:+.1} %", (each as f64 / *before as f64 - 1.0) * 100.0),
            ),
            None => Default::default(),
        };
        println!(
            "| {} | {each} | {} | {bound} | {percent} |",
            work.name,
            all.join(", ")
        );
        if each > most {
            risen.push(format!("{}: {each} > {most}", work.name));
        }
        counted.insert(work.name.to_owned(), each);
        hottest.push((work.name, counts.hot_bytes(), counts.hottest(operations)));
    }
    for (name, hot_bytes, functions) in hottest {
        println!(
            "\n{name}: 99 of 100 instructions are in {:.1} KiB of code\n",
            hot_bytes as f64 / 1024.0
        );
        functions.iter().for_each(|line| println!("    {line}"));
    }
    server.stop()?;
    if let Some(commit) = &options.write_baseline {
        let written = Baseline {
            commit: commit.clone(),
            instructions: counted,
            ..Baseline::default()
        };
        let text = serde_json::to_string_pretty(&written)? + "\n";
        fs::write(&options.baseline, text)
            .with_context(|| options.baseline.display().to_string())?;
    }
    ensure!(
        risen.is_empty(),
        "more instructions than {} at commit {} and what may be added to them: {}",
        options.baseline.display(),
        baseline.commit,
        risen.join("; ")
    );
    Ok(())
}

/// What counts the instructions of a server that it runs.
pub(crate) struct Callgrind {
    /// How the names of the files begin that it writes.
    counts: PathBuf,
    /// How many it has written for the server that it runs.
    dumps: usize,
}

impl Callgrind {
    /// One that writes into a folder.
    pub(crate) fn new(folder: &Path) -> Callgrind {
        Callgrind {
            counts: folder.join("counts"),
            dumps: 0,
        }
    }

    /// The command that runs a server, counting nothing yet.
    pub(crate) fn wrapper(&mut self) -> Result<Vec<String>> {
        self.dumps = 0;
        Ok(vec![
            in_path("valgrind")?.display().to_string(),
            "--tool=callgrind".to_owned(),
            "--instr-atstart=no".to_owned(),
            "--quiet".to_owned(),
            "--dump-instr=yes".to_owned(),
            "--compress-pos=no".to_owned(),
            "--compress-strings=no".to_owned(),
            format!("--callgrind-out-file={}", self.counts.display()),
        ])
    }

    /// What the server takes for a load, from when its connections are made and bound to its last answer.
    pub(crate) fn count<T>(
        &mut self,
        server: &Server,
        load: impl FnOnce(&mut dyn Observer) -> Result<T>,
    ) -> Result<(T, Counts)> {
        self.dumps += 1;
        let mut counting = Counting {
            server,
            dump: self.dumps,
            outcome: Ok(()),
        };
        let loaded = load(&mut counting)?;
        counting.outcome?;
        let file = PathBuf::from(format!("{}.{}", self.counts.display(), self.dumps));
        let file = fs::File::open(&file).with_context(|| file.display().to_string())?;
        Ok((loaded, Counts::read(BufReader::new(file))?))
    }
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
pub(crate) struct Counts {
    pub(crate) total: u64,
    functions: BTreeMap<String, u64>,
    lines: BTreeMap<u64, u64>,
}

impl Counts {
    /// Reads a file with whole positions and names. The sums in it count calls that were under way when counting began
    /// as less than nothing; what functions took themselves is right.
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
    pub(crate) fn hottest(&self, operations: u64) -> Vec<String> {
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
