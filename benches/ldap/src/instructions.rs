//! Instructions that the server takes for each operation, counted by callgrind: a count does not depend on what else the
//! machine does.
//!
//! The server runs under callgrind from its start, counting nothing. For each work counting is switched on, the load client
//! does the work, and what was counted is written out. Work that the server does later, as a checkpoint, is not in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sapwood_client::drive::{EntryStream, Format, Settings, run as drive};

use crate::load::plan;
use crate::server::{ADMIN_DN, ADMIN_PASSWORD, Product, Server, Shape, in_path};
use crate::{Folder, SUFFIX};

/// Functions that are shown.
const HOTTEST: usize = 10;

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
    /// The most instructions that are allowed for each entry or operation.
    required: Option<u64>,
    is_scan: bool,
}

const WORKS: [Work; 5] = [
    Work {
        name: "whole tree, per entry",
        plan: "expect-entries: ${entries}\nsearch: ${suffix}\n",
        required: Some(1_200),
        is_scan: true,
    },
    Work {
        name: "base search",
        plan: "expect-entries: 1\nsearch: uid=u${n:8},${suffix}\nscope: base\n",
        required: None,
        is_scan: false,
    },
    Work {
        name: "equality search",
        plan: "expect-entries: 1\nsearch: ${suffix}\nfilter: (uid=u${n:8})\n",
        required: None,
        is_scan: false,
    },
    Work {
        name: "modify",
        plan: "dn: uid=u${n:8},${suffix}\nchangetype: modify\nreplace: carLicense\ncarLicense: ${plate}\n",
        required: None,
        is_scan: false,
    },
    Work {
        name: "add",
        plan: "dn: uid=new${next},${suffix}\nobjectClass: inetOrgPerson\nuid: new${next}\ncn: New ${next}\n\
               sn: ${next}\ncarLicense: ${plate}\n",
        required: None,
        is_scan: false,
    },
];

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
        format!("--callgrind-out-file={}", counts.display()),
    ];
    let server = prepared.wrapped(wrapper.into()).start()?;
    println!("| | instructions | required | |");
    println!("| --- | ---: | ---: | --- |");
    let mut hottest = Vec::new();
    let works = WORKS.iter().filter(|work| {
        let wanted = options.work.as_ref();
        wanted.is_none_or(|text| work.name.contains(text.as_str()))
    });
    for (number, work) in works.enumerate() {
        // The caches of the server and of its tree are filled once before.
        measure(work, options, &server)?;
        control(&server, "--instr=on")?;
        let operations = measure(work, options, &server)?;
        control(&server, &format!("--dump={}", number + 1))?;
        control(&server, "--instr=off")?;
        let file = PathBuf::from(format!("{}.{}", counts.display(), number + 1));
        let each = total(&file)? / operations;
        let verdict = match work.required {
            None => "",
            Some(most) if each <= most => "met",
            Some(_) => "**missed**",
        };
        let required = work
            .required
            .map_or_else(String::new, |most| format!("≤ {most}"));
        println!("| {} | {each} | {required} | {verdict} |", work.name);
        hottest.push((work.name, functions(&file, operations)?));
    }
    for (name, functions) in hottest {
        println!("\n{name}:\n");
        functions.iter().for_each(|line| println!("    {line}"));
    }
    server.stop()?;
    Ok(())
}

/// Does the work; how many operations, or entries of a scan.
fn measure(work: &Work, options: &Options, server: &Server) -> Result<u64> {
    let count = if work.is_scan { 1 } else { options.operations };
    let text = format!("{VARIABLES}\nsession: s\ncount: {count}\n\n{}", work.plan);
    // Each run takes other names to add.
    let text = match work.name {
        "add" => text.replace("new${next}", &format!("new{}x${{next}}", unique())),
        _ => text,
    };
    let plan = plan(&text, Shape::Flat, options.entries, 1)?;
    let mut settings = Settings::new(&server.url);
    settings.bind = Some((ADMIN_DN.to_owned(), ADMIN_PASSWORD.into()));
    settings.answer_timeout = std::time::Duration::from_secs(600);
    let report = drive(plan, &settings, &mut ())?.remove(0);
    ensure!(report.errors.is_empty(), "wrong answers:\n{report}");
    Ok(if work.is_scan {
        report.total.entries
    } else {
        report.total.answered
    })
}

/// A number that was not given before.
fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
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

/// The instructions of a file of counts.
fn total(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    for name in ["summary:", "totals:"] {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        if let Some(number) = line.and_then(|line| line.split_ascii_whitespace().next()) {
            return number.parse().context("the counts have no number");
        }
    }
    bail!("{} has no sum", file.display())
}

/// The functions with the most instructions of their own, each with its instructions per operation.
fn functions(file: &Path, operations: u64) -> Result<Vec<String>> {
    let output = Command::new(in_path("callgrind_annotate")?)
        .arg("--threshold=100")
        .arg(file)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text
        .lines()
        .skip_while(|line| !line.contains("file:function"))
        .skip(2);
    let rows = rows.filter_map(|line| {
        let line = line.trim_start();
        let (count, rest) = line.split_once(' ')?;
        let count: u64 = count.replace(',', "").parse().ok()?;
        // A share in parentheses, then the file and the function, then the program in brackets.
        let name = rest.trim_start();
        let name = match name.strip_prefix('(') {
            Some(after) => after.split_once(')')?.1.trim_start(),
            None => name,
        };
        let name = name.split(" [").next()?;
        let name = name.split_once(':').map_or(name, |(_, function)| function);
        Some(format!("{:>8.1}  {name}", count as f64 / operations as f64))
    });
    Ok(rows.take(HOTTEST).collect())
}
