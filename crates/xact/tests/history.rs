//! Isolation, from histories: processes with several threads run random transactions on a few cells and write down what
//! each attempt has read and written, and afterwards it is checked that this can have happened.
//!
//! Every value is written once, and the one that writes a cell has read it, so the order of a cell's values is known,
//! and with it what depends on what (Adya 1999): the one that reads a value comes after who wrote it, and before who
//! wrote the next one. A history is *serialisable* if that has no cycle. It is one of *snapshot isolation* if there is
//! none when each transaction is taken apart into its beginning, at which it reads, and its commit, at which it writes.
//!
//! Attempts that came to nothing count as transactions that only read: they too must have seen something consistent.
//! Some transactions are too large for the log, and write the same to a row of pages; nobody may see two values there.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use sapwood_testkit::Random;
use sapwood_xact::{Error, Memory, Mode, Options, PAGE_BYTES, Ptr, Space, Transaction};

const CELLS: u64 = 5;
const PROCESSES: u64 = 3;
/// Threads of each process.
const THREADS: u64 = 2;
/// Transactions of each thread.
const ROUNDS: usize = 150;
/// The row begins with this page. More pages than a quarter of those that there is memory for versions of.
const ROW_AT: u64 = 100;
const ROW_PAGES: u64 = 20;
const FOLDER: &str = "SAPWOOD_XACT_HISTORY";
const MODE: &str = "SAPWOOD_XACT_MODE";
const CHILD: &str = "SAPWOOD_XACT_CHILD";

/// An attempt at a transaction: for each cell the value it has read, and the one it has written if it was committed.
#[derive(Clone, Debug, Default)]
struct Attempt {
    reads: Vec<(u64, u64)>,
    /// Cell, value before, value.
    writes: Vec<(u64, u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Serialisable,
    SnapshotIsolation,
}

/// What is wrong with a history, or nothing.
fn check(history: &[Attempt], promise: Promise) -> Result<(), String> {
    // Who wrote a value of a cell, and who wrote the next one.
    let mut writers = HashMap::new();
    let mut successors = HashMap::new();
    for (number, attempt) in history.iter().enumerate() {
        for (cell, before, value) in &attempt.writes {
            if writers.insert((*cell, *value), number).is_some() {
                return Err(format!("cell {cell} got the value {value:x} twice"));
            }
            if let Some(other) = successors.insert((*cell, *before), number) {
                return Err(format!(
                    "lost update: {other} and {number} have both replaced {before:x} in cell {cell}"
                ));
            }
        }
    }
    // Beginning and commit of each attempt, which are the same if it is to be serialisable.
    let begin = |number: usize| 2 * number;
    let commit = |number: usize| match promise {
        Promise::Serialisable => 2 * number,
        Promise::SnapshotIsolation => 2 * number + 1,
    };
    let mut edges: Vec<Vec<usize>> = vec![Vec::new(); 2 * history.len()];
    for (number, attempt) in history.iter().enumerate() {
        if begin(number) != commit(number) {
            edges[begin(number)].push(commit(number));
        }
        let seen = attempt
            .writes
            .iter()
            .map(|(cell, before, _)| (*cell, *before));
        for (cell, value) in attempt.reads.iter().copied().chain(seen) {
            match writers.get(&(cell, value)) {
                Some(writer) if *writer != number => edges[commit(*writer)].push(begin(number)),
                None if value != 0 => {
                    return Err(format!(
                        "{number} read {value:x}, which was never committed"
                    ));
                }
                _ => {}
            }
            if let Some(next) = successors
                .get(&(cell, value))
                .filter(|next| **next != number)
            {
                edges[begin(number)].push(commit(*next));
            }
        }
    }
    let mut incoming = vec![0; edges.len()];
    edges.iter().flatten().for_each(|to| incoming[*to] += 1);
    let mut free: Vec<usize> = (0..edges.len())
        .filter(|node| incoming[*node] == 0)
        .collect();
    let mut done = 0;
    while let Some(node) = free.pop() {
        done += 1;
        for to in &edges[node] {
            incoming[*to] -= 1;
            if incoming[*to] == 0 {
                free.push(*to);
            }
        }
    }
    if done < edges.len() {
        let cycle: Vec<_> = (0..history.len())
            .filter(|number| incoming[begin(*number)] > 0)
            .take(6)
            .map(|number| (number, &history[number]))
            .collect();
        return Err(format!("a cycle goes through some of {cycle:?}"));
    }
    Ok(())
}

fn attempt(reads: &[(u64, u64)], writes: &[(u64, u64, u64)]) -> Attempt {
    Attempt {
        reads: reads.to_vec(),
        writes: writes.to_vec(),
    }
}

#[test]
fn the_checker_tells_histories_apart() {
    use Promise::{Serialisable, SnapshotIsolation};
    let serial = [
        attempt(&[], &[(0, 0, 10), (1, 0, 11)]),
        attempt(&[(0, 10), (1, 11)], &[]),
        attempt(&[(1, 11)], &[(0, 10, 20)]),
    ];
    check(&serial, Serialisable).unwrap();
    check(&serial, SnapshotIsolation).unwrap();
    let skew = [
        attempt(&[(0, 0), (1, 0)], &[(0, 0, 10)]),
        attempt(&[(0, 0), (1, 0)], &[(1, 0, 11)]),
    ];
    assert!(check(&skew, Serialisable).is_err());
    check(&skew, SnapshotIsolation).unwrap();
    let lost_update = [attempt(&[], &[(0, 0, 10)]), attempt(&[], &[(0, 0, 11)])];
    let torn = [
        attempt(&[], &[(0, 0, 10), (1, 0, 11)]),
        attempt(&[(0, 10), (1, 0)], &[]),
    ];
    let dirty = [attempt(&[(0, 99)], &[])];
    for wrong in [&lost_update[..], &torn, &dirty] {
        assert!(check(wrong, Serialisable).is_err());
        assert!(check(wrong, SnapshotIsolation).is_err());
    }
}

/// Nobody gives up: where the disk is slow, one waits long for others.
fn options(mode: Mode) -> Options {
    Options::new()
        .mode(mode)
        .patience(std::time::Duration::from_secs(3600))
        .bytes(2 << 20)
        .log_bytes(1 << 17)
        .versions_bytes(64 * PAGE_BYTES as u64)
}

fn mode_named(name: &str) -> Mode {
    [Mode::Explicit, Mode::Tracked, Mode::Snapshot]
        .into_iter()
        .find(|mode| format!("{mode:?}") == name)
        .unwrap()
}

fn cell_at(cell: u64) -> u64 {
    (40 + cell) * PAGE_BYTES as u64 + 8 * cell
}

fn load_at(t: &Transaction<'_>, at: u64) -> Result<u64, Error> {
    match t.map() {
        // SAFETY: the place is within the space, and the transaction runs.
        Some(base) => Ok(unsafe { base.add(at as usize).cast::<u64>().read() }),
        None => t.load(Ptr::new(at)),
    }
}

fn store_at(t: &mut Transaction<'_>, at: u64, value: u64) -> Result<(), Error> {
    match t.map() {
        // SAFETY: as above.
        Some(base) => unsafe { base.add(at as usize).cast::<u64>().write(value) },
        None => t.store(Ptr::new(at), &value)?,
    }
    Ok(())
}

fn load(t: &Transaction<'_>, cell: u64) -> Result<u64, Error> {
    load_at(t, cell_at(cell))
}

fn store(t: &mut Transaction<'_>, cell: u64, value: u64) -> Result<(), Error> {
    store_at(t, cell_at(cell), value)
}

/// Nothing, or what the row of pages holds, which is the same on all of them.
fn look_at_row(t: &Transaction<'_>) -> Result<(), Error> {
    let mut row = (0..ROW_PAGES).map(|page| load_at(t, (ROW_AT + page) * PAGE_BYTES as u64));
    let first = row.next().unwrap()?;
    for value in row {
        assert_eq!(value?, first, "half of a large transaction was seen");
    }
    Ok(())
}

fn write_row(t: &mut Transaction<'_>, value: u64) -> Result<(), Error> {
    (0..ROW_PAGES).try_for_each(|page| store_at(t, (ROW_AT + page) * PAGE_BYTES as u64, value))
}

/// Runs random transactions; for nobody but a child of the tests below.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let mode = mode_named(&std::env::var(MODE).unwrap());
    let me: u64 = std::env::var(CHILD).unwrap().parse().unwrap();
    let space = Space::open(folder.join("space"), &options(mode)).unwrap();
    let threads = me * THREADS..(me + 1) * THREADS;
    std::thread::scope(|scope| {
        for thread in threads {
            let space = &space;
            scope.spawn(move || {
                let report = run_transactions(space, thread);
                std::fs::write(folder.join(format!("history.{thread}")), report).unwrap();
            });
        }
    });
}

/// Runs random transactions; gives what each attempt has read and written, an attempt a line.
fn run_transactions(space: &Space, me: u64) -> String {
    let mut random = Random::new(me);
    let mut next = (me + 1) << 32;
    let mut report = String::new();
    let mut write_down = |attempt: &Attempt| {
        writeln!(report, "{:?} {:?}", attempt.reads, attempt.writes).unwrap();
    };
    for _ in 0..ROUNDS {
        let plan: Vec<(u64, bool)> = (0..1 + random.below(4))
            .map(|_| (random.number() % CELLS, random.below(3) == 0))
            .collect();
        let is_slow = random.below(4) == 0;
        let (looks, is_large) = (random.below(8) == 0, random.below(30) == 0);
        if plan.iter().all(|(_, writes)| !writes) && random.below(2) == 0 {
            let mut seen = Attempt::default();
            let read: Result<(), Error> = space.read(|t| {
                for (cell, _) in &plan {
                    seen.reads.push((*cell, load(t, *cell)?));
                }
                look_at_row(t)
            });
            read.unwrap();
            write_down(&seen);
            continue;
        }
        let mut last: Option<Attempt> = None;
        let committed: Result<(), Error> = space.transaction(|t| {
            if let Some(mut lost) = last.take() {
                // What it read counts, what it wrote does not.
                lost.reads
                    .extend(lost.writes.iter().map(|(cell, before, _)| (*cell, *before)));
                lost.writes.clear();
                write_down(&lost);
            }
            let mut attempt = Attempt::default();
            for (cell, writes) in &plan {
                let before = load(t, *cell)?;
                let own = attempt.writes.iter_mut().find(|(other, ..)| other == cell);
                match own {
                    Some((_, _, value)) => assert_eq!(before, *value, "its own write"),
                    None if *writes => {
                        next += 1;
                        store(t, *cell, next)?;
                        attempt.writes.push((*cell, before, next));
                    }
                    None => attempt.reads.push((*cell, before)),
                }
                if is_slow {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            }
            if looks || is_large {
                look_at_row(t)?;
            }
            if is_large {
                write_row(t, next)?;
            }
            last = Some(attempt);
            Ok(())
        });
        committed.unwrap();
        write_down(&last.unwrap());
    }
    report
}

/// The numbers in a line of a report.
fn read_back(line: &str) -> Attempt {
    let (reads, writes) = line.split_once("] [").unwrap();
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|digit: char| !digit.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect()
    };
    Attempt {
        reads: numbers(reads)
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1]))
            .collect(),
        writes: numbers(writes)
            .chunks_exact(3)
            .map(|three| (three[0], three[1], three[2]))
            .collect(),
    }
}

fn histories_of(mode: Mode, promise: Promise) {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|child| {
            Command::new(std::env::current_exe().unwrap())
                .args(["child", "--exact"])
                .env(FOLDER, folder.path())
                .env(MODE, format!("{mode:?}"))
                .env(CHILD, child.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut history = Vec::new();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    for thread in 0..PROCESSES * THREADS {
        let report = std::fs::read_to_string(folder.path().join(format!("history.{thread}")));
        history.extend(report.unwrap().lines().map(read_back));
    }
    let commits = history
        .iter()
        .filter(|attempt| !attempt.writes.is_empty())
        .count();
    assert!(commits > 200, "only {commits} commits");
    check(&history, promise).unwrap();
    // The newest values are those in the space.
    let space = Space::open(folder.path().join("space"), &options(mode)).unwrap();
    let last: Vec<u64> = space
        .read(|t| {
            (0..CELLS)
                .map(|cell| load(t, cell))
                .collect::<Result<_, Error>>()
        })
        .unwrap();
    for (cell, value) in (0..).zip(last) {
        let replaced = |other: &Attempt| {
            other
                .writes
                .iter()
                .any(|(c, before, _)| (*c, *before) == (cell, value))
        };
        assert!(
            !history.iter().any(replaced),
            "cell {cell} went back to {value:x}"
        );
    }
}

#[test]
fn explicit_transactions_are_serialisable() {
    histories_of(Mode::Explicit, Promise::Serialisable);
}

#[test]
fn tracked_transactions_are_serialisable() {
    histories_of(Mode::Tracked, Promise::Serialisable);
}

#[test]
fn snapshot_transactions_have_snapshot_isolation() {
    histories_of(Mode::Snapshot, Promise::SnapshotIsolation);
}
