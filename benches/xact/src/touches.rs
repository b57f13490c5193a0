//! What touching pages costs, part by part; what giving a transaction up costs; what it costs to share a page.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use sapwood_xact::{Durability, Error, Memory, Mode, PAGE_BYTES, PageAccess, Space, Transaction};

use crate::costs::{open, open_with, options};
use crate::report::Report;

/// Pages touched in a transaction, every second one, so that none shares its protection with another.
const PAGES: u64 = 500;
const STEP: u64 = 2 * PAGE_BYTES as u64;

/// How often each is done; the least counts.
const TIMES: u32 = 40;

/// Threads that count on a page, and how far each.
const THREADS: u64 = 4;
const COUNT: u64 = 5000;

pub(crate) fn run(report: &mut Report, folder: &Path) -> Result<()> {
    report.paragraph(format_args!(
        "\nThe first touch of a page: by a load or store, which is a fault and a signal; asked for by `read` and \
         `write`, which spares both; asked for by one call for all of the {PAGES} pages and those between them. Then \
         what a transaction that has touched them costs when it ends. Mode tracked fills pages with userfaultfd where \
         it is allowed, and *protects* them elsewhere. Microseconds for each page, the least of {TIMES} \
         times.\n"
    ));
    report.head(&[
        "mode",
        "load",
        "asked for",
        "fault and signal",
        "asked for at once",
        "store",
        "asked for",
        "store after load",
        "end after loads",
        "end after stores",
    ]);
    for (name, mode, userfault) in [
        ("tracked", Mode::Tracked, true),
        ("tracked, protects", Mode::Tracked, false),
        ("snapshot", Mode::Snapshot, false),
    ] {
        eprintln!("first touches in mode {name}");
        let options = options(mode, Durability::Eventual, true).userfault(userfault);
        let space = open_with(
            &folder.join(format!("touches-{mode:?}-{userfault}")),
            &options,
        )?;
        first_touches(report, &space, name)?;
    }
    report.paragraph(
        "\nA transaction that changes so many pages and is committed, not durable, or given up. Microseconds, the \
         least of several times.\n",
    );
    report.head(&["mode", "pages", "committed", "given up"]);
    for mode in [Mode::Explicit, Mode::Tracked, Mode::Snapshot] {
        eprintln!("transactions of {mode:?} that are given up");
        given_up(report, &folder.join(format!("aborts-{mode:?}")), mode)?;
    }
    report.paragraph(format_args!(
        "\nFalse sharing: {THREADS} threads that count, each for itself, on one page or on one each. Not durable.\n"
    ));
    report.head(&["mode", "pages", "commits/s", "attempts of one"]);
    for mode in [Mode::Explicit, Mode::Tracked, Mode::Snapshot] {
        for pages in [1, THREADS] {
            eprintln!("counters of {mode:?} on {pages} pages");
            let folder = folder.join(format!("sharing-{mode:?}-{pages}"));
            false_sharing(report, &folder, mode, pages)?;
        }
    }
    Ok(())
}

/// Microseconds of each page, of touching them all in some way and of the end of the transaction, which is given up.
fn touch(
    space: &Space,
    mut what: impl FnMut(&mut Transaction<'_>) -> Result<(), Error>,
) -> Result<(f64, f64)> {
    let (mut touched, mut ended) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..TIMES {
        let mut transaction = space.begin()?;
        let start = Instant::now();
        what(&mut transaction)?;
        let middle = Instant::now();
        drop(transaction);
        let each = |time: std::time::Duration| time.as_secs_f64() * 1e6 / PAGES as f64;
        touched = touched.min(each(middle - start));
        ended = ended.min(each(middle.elapsed()));
    }
    Ok((touched, ended))
}

fn first_touches(report: &mut Report, space: &Space, name: &str) -> Result<()> {
    let area = space.transaction(|t| t.allocate(PAGES * STEP))?;
    // All pages are in the file, and differ from what they were.
    space.transaction(|t| {
        (0..PAGES).try_for_each(|page| t.write(area + page * STEP, 8).map(|bytes| bytes.fill(1)))
    })?;
    space.checkpoint()?;
    let mapped = || Error::BadOptions("a mode without plain memory");
    let pages = || (0..PAGES).map(|page| area + page * STEP);
    let look = |bytes: &[u8]| {
        black_box(bytes[0]);
    };
    let load = |t: &mut Transaction<'_>| {
        let memory = t.mapped().ok_or_else(mapped)?;
        pages().try_for_each(|at| memory.read(at, 8).map(look))
    };
    let store = |t: &mut Transaction<'_>| {
        let mut memory = t.mapped().ok_or_else(mapped)?;
        pages().try_for_each(|at| memory.write(at, 8).map(|bytes| bytes[0] = 2))
    };
    let (loads, end_loads) = touch(space, load)?;
    let (asked, _) = touch(space, |t| {
        pages().try_for_each(|at| t.read(at, 8).map(look))
    })?;
    let (at_once, _) = touch(space, |t| {
        t.touch(area, PAGES * STEP, PageAccess::Read)?;
        load(t)
    })?;
    let (stores, end_stores) = touch(space, store)?;
    let (asked_stores, _) = touch(space, |t| {
        pages().try_for_each(|at| t.write(at, 8).map(|bytes| bytes[0] = 2))
    })?;
    let (both, _) = touch(space, |t| load(t).and_then(|()| store(t)))?;
    let cell = |value: f64| format!("{value:.2}");
    report.row(&[
        name.to_owned(),
        cell(loads),
        cell(asked),
        cell(loads - asked),
        cell(at_once),
        cell(stores),
        cell(asked_stores),
        cell(both - loads),
        cell(end_loads),
        cell(end_stores),
    ]);
    Ok(())
}

fn given_up(report: &mut Report, folder: &Path, mode: Mode) -> Result<()> {
    let space = open(folder, mode, Durability::Eventual, true)?;
    let area = space.transaction(|t| t.allocate(PAGES * STEP))?;
    for pages in [1, 16, 256] {
        let mut with = 0_u8;
        let mut least = |commits: bool| -> Result<f64> {
            let mut least = f64::INFINITY;
            for _ in 0..TIMES {
                with = with.wrapping_add(1);
                let start = Instant::now();
                let mut transaction = space.begin()?;
                for page in 0..pages {
                    transaction.write(area + page * STEP, 8)?.fill(with);
                }
                if commits {
                    transaction.commit()?;
                } else {
                    drop(transaction);
                }
                least = least.min(start.elapsed().as_secs_f64() * 1e6);
            }
            Ok(least)
        };
        let (committed, aborted) = (least(true)?, least(false)?);
        report.row(&[
            format!("{mode:?}").to_lowercase(),
            pages.to_string(),
            format!("{committed:.2}"),
            format!("{aborted:.2}"),
        ]);
    }
    Ok(())
}

fn false_sharing(report: &mut Report, folder: &Path, mode: Mode, pages: u64) -> Result<()> {
    let space = open(folder, mode, Durability::Eventual, true)?;
    let area = space.transaction(|t| t.allocate(THREADS * STEP))?;
    let attempts = AtomicU64::new(0);
    let start = Instant::now();
    let count = |me: u64| -> Result<(), Error> {
        let at = area + me % pages * STEP + 8 * me;
        for _ in 0..COUNT {
            space.transaction(|t| {
                attempts.fetch_add(1, Ordering::Relaxed);
                let bytes = t.write(at, 8)?;
                bytes[0] = bytes[0].wrapping_add(1);
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    };
    std::thread::scope(|scope| -> Result<()> {
        let count = &count;
        let threads: Vec<_> = (0..THREADS)
            .map(|me| scope.spawn(move || count(me)))
            .collect();
        for thread in threads {
            let ended = thread.join();
            ended.map_err(|_| anyhow::anyhow!("a thread has panicked"))??;
        }
        Ok(())
    })?;
    let commits = (THREADS * COUNT) as f64;
    report.row(&[
        format!("{mode:?}").to_lowercase(),
        pages.to_string(),
        format!("{:.0}", commits / start.elapsed().as_secs_f64()),
        format!("{:.2}", attempts.into_inner() as f64 / commits),
    ]);
    Ok(())
}
