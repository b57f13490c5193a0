//! What the parts of a transaction cost, whether the oldest gets through where all want the same, and a checksum beside
//! a second sync.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use sapwood_xact::{Durability, Error, Memory, Mode, PAGE_BYTES, Space};

use crate::Options;
use crate::outcome::Times;
use crate::report::Report;
use crate::touches;

/// The modes there are.
const MODES: [Mode; 3] = [Mode::Explicit, Mode::Snapshot, Mode::Tracked];

/// As large as is needed.
const SPACE_BYTES: u64 = 64 << 20;

/// How long a commit waits for room before that counts as a failure.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often something short is done.
const TIMES: u32 = 20_000;

/// How often something is done that waits for the disk.
const TIMES_DURABLE: u32 = 500;

/// How often a space is opened to be looked at.
const TIMES_OPENED: u32 = 20;

/// Pages touched in a transaction.
const PAGES: u64 = 1000;

/// Threads that all want the same pages, and for how long.
const RIVALS: usize = 4;
const STRIFE: Duration = Duration::from_secs(2);

/// Pages that a short transaction changes, and a long one.
const SHORT: u64 = 1;
const LONG: u64 = 64;

pub(crate) fn run(options: &Options) -> Result<()> {
    let scratch = options.scratch()?;
    let mut report = Report::new("costs", options.docs.as_deref());
    report.machine("Microseconds");
    report.head(&[
        "mode",
        "empty transaction",
        "first touch to read",
        "first touch to write",
        "further touch",
        "one page, not durable",
        "one page, durable",
    ]);
    for mode in MODES {
        eprintln!("costs of {mode:?}");
        let folder = scratch.folder.join(format!("{mode:?}"));
        costs(&mut report, &folder, mode)?;
    }
    touches::run(&mut report, &scratch.folder)?;
    checksums_of_pages(&mut report, &scratch.folder)?;
    checksum(&mut report, &scratch.folder)?;
    report.paragraph(format_args!(
        "\nOldest first: {RIVALS} threads change one page each time and one changes {LONG} pages, among them that one, for \
         {} s. Not durable, so that the disk plays no part.\n",
        STRIFE.as_secs()
    ));
    report.head(&[
        "",
        "short/s",
        "attempts of one",
        "p99 µs",
        "slowest ms",
        "long/s",
        "attempts of one",
        "slowest ms",
        "failed for want of room",
    ]);
    for backoff in [true, false] {
        eprintln!("rivals, backoff: {backoff}");
        let folder = scratch.folder.join(format!("strife-{backoff}"));
        strife(&mut report, &folder, backoff)?;
    }
    report.publish()
}

pub(crate) fn open(
    folder: &Path,
    mode: Mode,
    durability: Durability,
    backoff: bool,
) -> Result<Space> {
    open_with(folder, &options(mode, durability, backoff))
}

pub(crate) fn open_with(folder: &Path, options: &sapwood_xact::Options) -> Result<Space> {
    fs::create_dir_all(folder)?;
    Ok(Space::open(folder.join("space"), options)?)
}

pub(crate) fn options(mode: Mode, durability: Durability, backoff: bool) -> sapwood_xact::Options {
    sapwood_xact::Options::new()
        .bytes(SPACE_BYTES)
        .mode(mode)
        .durability(durability)
        .patience(PATIENCE)
        .backoff(backoff)
}

/// Microseconds that one of `times` takes.
fn each(times: u32, mut what: impl FnMut() -> Result<(), Error>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..times {
        what()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(times))
}

fn costs(report: &mut Report, folder: &Path, mode: Mode) -> Result<()> {
    let space = open(folder, mode, Durability::Eventual, true)?;
    let page = PAGE_BYTES as u64;
    let area = space.transaction(|transaction| transaction.allocate(PAGES * page))?;
    let write_all = |with: u8| {
        space.transaction(|transaction| {
            for number in 0..PAGES {
                transaction.write(area + number * page, 8)?.fill(with);
            }
            Ok::<_, Error>(())
        })
    };
    write_all(1)?;
    let empty = each(TIMES, || space.transaction(|_| Ok::<_, Error>(())))?;
    let touched = f64::from(u32::try_from(PAGES)?);
    let read_pages = |times: usize| {
        let mut sum = 0;
        let read = each(50, || {
            space.transaction(|transaction| {
                for number in (0..PAGES).cycle().take(times * PAGES as usize) {
                    sum += u64::from(transaction.read(area + number * page, 8)?[0]);
                }
                Ok::<_, Error>(())
            })
        });
        std::hint::black_box(sum);
        read
    };
    let once = read_pages(1)?;
    let further = (read_pages(11)? - once) / (10.0 * touched);
    // The commit is not part of a touch.
    let writes = each(50, || {
        let mut transaction = space.begin()?;
        for number in 0..PAGES {
            transaction.write(area + number * page, 8)?.fill(2);
        }
        Ok(())
    })?;
    let one = |space: &Space, area: u64, times: u32| {
        let mut count = 0_u64;
        each(times, || {
            count += 1;
            space.transaction(|transaction| {
                transaction
                    .write(area, 8)?
                    .copy_from_slice(&count.to_le_bytes());
                Ok::<_, Error>(())
            })
        })
    };
    let eventual = one(&space, area, TIMES)?;
    let space = open(&folder.join("durable"), mode, Durability::Durable, true)?;
    let area = space.transaction(|transaction| transaction.allocate(page))?;
    let durable = one(&space, area, TIMES_DURABLE)?;
    report.row(&[
        format!("{mode:?}").to_lowercase(),
        format!("{empty:.2}"),
        format!("{:.3}", (once - empty) / touched),
        format!("{:.3}", (writes - empty) / touched),
        format!("{further:.3}"),
        format!("{eventual:.2}"),
        format!("{durable:.1}"),
    ]);
    Ok(())
}

/// What it costs that pages have checksums: each page that a commit changes, and the first look at a page after the
/// space was opened, which is a fault of the mapped file in any case.
fn checksums_of_pages(report: &mut Report, folder: &Path) -> Result<()> {
    report.paragraph(format_args!(
        "\nChecksums of pages: the first look at each of {PAGES} pages in the page cache after the space was opened, the next look in another \
         transaction, and a transaction that changes all of them, not durable, for each page. Microseconds, the least of several rounds.\n"
    ));
    report.head(&["mode", "checksums", "first look", "next look", "change"]);
    let touched = f64::from(u32::try_from(PAGES)?);
    let page = PAGE_BYTES as u64;
    for (mode, checksums) in MODES
        .into_iter()
        .flat_map(|mode| [(mode, true), (mode, false)])
    {
        eprintln!("checksums of {mode:?}: {checksums}");
        let folder = folder.join(format!("sums-{mode:?}-{checksums}"));
        let options = options(mode, Durability::Eventual, true).checksums(checksums);
        fs::create_dir_all(&folder)?;
        let open = || Space::open(folder.join("space"), &options);
        let space = open()?;
        let area = space.transaction(|transaction| transaction.allocate(PAGES * page))?;
        let mut with = 0;
        let mut write_all = || {
            with += 1;
            space.transaction(|transaction| {
                for number in 0..PAGES {
                    transaction.write(area + number * page, 8)?.fill(with);
                }
                Ok::<_, Error>(())
            })
        };
        let mut change = f64::INFINITY;
        for _ in 0..100 {
            change = change.min(each(1, &mut write_all)?);
        }
        space.checkpoint()?;
        drop(space);
        let (mut first, mut next) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..TIMES_OPENED {
            let space = open()?;
            let look = || {
                each(1, || {
                    space.read(|transaction| {
                        for number in 0..PAGES {
                            std::hint::black_box(transaction.read(area + number * page, 8)?[0]);
                        }
                        Ok::<_, Error>(())
                    })
                })
            };
            first = first.min(look()?);
            next = next.min(look()?);
        }
        report.row(&[
            format!("{mode:?}").to_lowercase(),
            String::from(if checksums { "with" } else { "without" }),
            format!("{:.3}", first / touched),
            format!("{:.3}", next / touched),
            format!("{:.3}", change / touched),
        ]);
    }
    Ok(())
}

/// How a log finds out that its last record is not whole: by a checksum, or by a second sync after which a mark says
/// so.
fn checksum(report: &mut Report, folder: &Path) -> Result<()> {
    report.paragraph(
        "\nA log record of so many bytes: its checksum, one append and sync, and the second sync that a mark instead of a checksum \
         would need. Microseconds.\n",
    );
    report.head(&["bytes", "checksum", "append and sync", "with a second sync"]);
    for bytes in [256, 4096, 65_536] {
        let record = vec![0x5a; bytes];
        let sum = each(2000, || {
            std::hint::black_box(crc32fast::hash(std::hint::black_box(&record)));
            Ok(())
        })?;
        let path = folder.join("records");
        let time = |marks: u32| -> Result<f64> {
            let mut file = fs::File::create(&path)?;
            // Written before, as a recycled log is: an append then changes data only.
            file.write_all(&vec![0; (bytes + 8) * 300])?;
            file.sync_all()?;
            let mut file = fs::OpenOptions::new().write(true).open(&path)?;
            let start = Instant::now();
            for _ in 0..200 {
                file.write_all(&record)?;
                file.sync_data()?;
                for _ in 0..marks {
                    file.write_all(&[1; 8])?;
                    file.sync_data()?;
                }
            }
            Ok(start.elapsed().as_secs_f64() * 1e6 / 200.0)
        };
        report.row(&[
            bytes.to_string(),
            format!("{sum:.2}"),
            format!("{:.1}", time(0)?),
            format!("{:.1}", time(1)?),
        ]);
    }
    Ok(())
}

/// What rivals have achieved.
#[derive(Default)]
struct Score {
    done: u64,
    attempts: u64,
    /// Commits that found no room for their versions.
    failed: u64,
    times: Times,
}

fn strife(report: &mut Report, folder: &Path, backoff: bool) -> Result<()> {
    let space = open(folder, Mode::Explicit, Durability::Eventual, backoff)?;
    let page = PAGE_BYTES as u64;
    let area = space.transaction(|transaction| transaction.allocate(LONG * page))?;
    let over = AtomicBool::new(false);
    let fight = |pages: u64| -> Result<Score, Error> {
        let mut score = Score::default();
        while !over.load(Ordering::Relaxed) {
            let start = Instant::now();
            let attempts = AtomicU64::new(0);
            let done = space.transaction(|transaction| {
                attempts.fetch_add(1, Ordering::Relaxed);
                for number in 0..pages {
                    let count = transaction.write(area + number * page, 8)?;
                    count[0] = count[0].wrapping_add(1);
                }
                Ok::<_, Error>(())
            });
            match done {
                Err(Error::Pinned { .. } | Error::Stalled { .. }) => {
                    score.failed += 1;
                    continue;
                }
                done => done?,
            }
            score.done += 1;
            score.attempts += attempts.into_inner();
            let nanoseconds = u64::try_from(start.elapsed().as_nanos());
            score.times.add(nanoseconds.unwrap_or(u64::MAX));
        }
        Ok(score)
    };
    let (short, long) = std::thread::scope(|scope| -> Result<(Score, Score)> {
        let short: Vec<_> = (0..RIVALS).map(|_| scope.spawn(|| fight(SHORT))).collect();
        let long = scope.spawn(|| fight(LONG));
        std::thread::sleep(STRIFE);
        over.store(true, Ordering::Relaxed);
        let mut sum = Score::default();
        for rival in short {
            let score = rival
                .join()
                .map_err(|_| anyhow::anyhow!("a rival has panicked"))??;
            sum.done += score.done;
            sum.attempts += score.attempts;
            sum.failed += score.failed;
            sum.times.merge(&score.times);
        }
        let long = long
            .join()
            .map_err(|_| anyhow::anyhow!("a rival has panicked"))??;
        Ok((sum, long))
    })?;
    let rate = |score: &Score| format!("{:.0}", score.done as f64 / STRIFE.as_secs_f64());
    let attempts =
        |score: &Score| format!("{:.2}", score.attempts as f64 / score.done.max(1) as f64);
    let slowest = |score: &Score| format!("{:.1}", score.times.ranked(1) as f64 / 1e6);
    report.row(&[
        if backoff { "with backoff" } else { "without" }.to_owned(),
        rate(&short),
        attempts(&short),
        format!("{:.0}", short.times.quantile(0.99) as f64 / 1e3),
        slowest(&short),
        rate(&long),
        attempts(&long),
        slowest(&long),
        (short.failed + long.failed).to_string(),
    ]);
    Ok(())
}
