//! All who wait at the same time share a sync, in one process and across several, also when some of them are killed.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{SMALL, append, create, open, read_all, start};
use sapwood_testkit::storage::gated::{Gate, Gated};
use sapwood_wal::storage::{Folder, OpenMode, Storage, Window};
use sapwood_wal::{Error, Options, Position, Shared, Wal};

fn gated_log() -> (Gate, Wal) {
    let storage = Gated::new();
    let gate = storage.gate();
    let storage: Arc<dyn Storage> = Arc::new(storage);
    create(&storage, &SMALL).unwrap();
    let log = open(&storage).unwrap();
    start(&log, Position::START).unwrap();
    (gate, log)
}

#[test]
fn all_who_come_during_a_sync_share_the_next_one() {
    let (gate, log) = gated_log();
    let first = append(&log, b"first").unwrap();
    gate.close();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| log.sync_to(first.lsn).unwrap());
        gate.wait_for_somebody();
        for number in 0..8 {
            let end = append(&log, &[number; 100]).unwrap();
            let log = &log;
            scope.spawn(move || log.sync_to(end.lsn).unwrap());
        }
        gate.open();
    });
    assert_eq!(log.durable(), log.end());
    // Who has waited for a second leads a sync besides: where all of this takes so long.
    let impatient = begin.elapsed().as_secs();
    let syncs = log.syncs();
    assert!(
        (2..=2 + impatient).contains(&syncs),
        "{syncs} syncs, {impatient} s"
    );
}

#[test]
fn a_failed_sync_fails_all_who_wait() {
    let (gate, log) = gated_log();
    let first = append(&log, b"first").unwrap();
    gate.close();
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| log.sync_to(first.lsn));
        gate.wait_for_somebody();
        let followers: Vec<_> = (0..8)
            .map(|number| {
                let end = append(&log, &[number; 100]).unwrap();
                let log = &log;
                scope.spawn(move || log.sync_to(end.lsn))
            })
            .collect();
        gate.fail();
        let error = leader.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        for follower in followers {
            let error = follower.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Poisoned), "{error}");
        }
    });
    assert_eq!(log.durable().0, 0);
}

const PROCESSES: u32 = 4;
const THREADS: u32 = 3;
const RECORDS: u32 = 60;
const LARGE: Options = Options {
    segment_bytes: 256 * 1024,
    segments: 4,
};

/// What several processes share: the state of the log, and whether a writer is at work.
#[repr(C)]
struct Region {
    log: Shared,
    writing: AtomicU32,
}

/// A region in a file that all processes map.
struct Mapped(Window);

impl Mapped {
    fn open(folder: &Folder) -> Arc<Self> {
        let file = folder.open("region", OpenMode::Write).unwrap();
        Arc::new(Self(file.window(0, 4096).unwrap()))
    }

    fn region(&self) -> &Region {
        // SAFETY: the window is page-aligned, larger than a region, lives as long as `self`, and holds atomics only.
        #[allow(unsafe_code)]
        unsafe {
            &*self.0.as_mut_ptr().cast::<Region>()
        }
    }
}

impl AsRef<Shared> for Mapped {
    fn as_ref(&self) -> &Shared {
        &self.region().log
    }
}

/// Appends under the writer lock, which the kernel takes from the dead.
fn append_in_turn(lock: &fs::File, region: &Region, log: &Wal, payload: &[u8]) -> Position {
    lock.lock().unwrap();
    if region.writing.swap(1, Ordering::SeqCst) == 1 {
        log.inherit().unwrap();
    }
    let end = append(log, payload).unwrap();
    region.writing.store(0, Ordering::SeqCst);
    lock.unlock().unwrap();
    end
}

fn payload(process: u32, thread: u32, number: u32) -> Vec<u8> {
    let mut payload = format!("{process} {thread} {number} ").into_bytes();
    payload.resize(payload.len() + (number * 53 % 700) as usize, b'.');
    payload
}

/// Not a test of its own: what the child processes of the tests below do.
#[test]
fn child() {
    let Some(process) = std::env::var_os("SAPWOOD_TEST_PROCESS") else {
        return;
    };
    let process: u32 = process.to_str().unwrap().parse().unwrap();
    let path = std::env::var_os("SAPWOOD_TEST_FOLDER").unwrap();
    let path = Path::new(&path);
    let folder = Folder::open(path).unwrap();
    let mapped = Mapped::open(&folder);
    let storage: Arc<dyn Storage> = Arc::new(folder);
    let log = Wal::open(&storage, "log", OpenMode::Write, mapped.clone()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (mapped, log) = (&mapped, &log);
            scope.spawn(move || {
                // A file of its own for each thread, so that threads exclude each other too.
                let lock = fs::File::open(path.join("lock")).unwrap();
                let acknowledged = path.join(format!("acknowledged-{process}-{thread}"));
                for number in 0..RECORDS {
                    let payload = payload(process, thread, number);
                    let end = append_in_turn(&lock, mapped.region(), log, &payload);
                    log.sync_to(end.lsn).unwrap();
                    fs::write(&acknowledged, (number + 1).to_string()).unwrap();
                }
            });
        }
    });
}

struct Family {
    folder: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    mapped: Arc<Mapped>,
    children: Vec<Child>,
}

impl Family {
    fn begin() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("region"), [0; 4096]).unwrap();
        fs::write(temporary.path().join("lock"), []).unwrap();
        let folder = Folder::open(temporary.path()).unwrap();
        let mapped = Mapped::open(&folder);
        let storage: Arc<dyn Storage> = Arc::new(folder);
        create(&storage, &LARGE).unwrap();
        let log = Wal::open(&storage, "log", OpenMode::Write, mapped.clone()).unwrap();
        start(&log, Position::START).unwrap();
        let spawn = |process: u32| {
            Command::new(std::env::current_exe().unwrap())
                .args(["child", "--exact"])
                .env("SAPWOOD_TEST_PROCESS", process.to_string())
                .env("SAPWOOD_TEST_FOLDER", temporary.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let children = (0..PROCESSES).map(spawn).collect();
        Self {
            folder: temporary,
            storage,
            mapped,
            children,
        }
    }

    /// Everything that was acknowledged is in the log, each thread's records in order. Returns how many records there
    /// are.
    fn check(&self) -> u32 {
        let log = open(&self.storage).unwrap();
        let (payloads, _) = read_all(&log, Position::START).unwrap();
        let mut found = 0;
        for process in 0..PROCESSES {
            for thread in 0..THREADS {
                let name = format!("acknowledged-{process}-{thread}");
                let acknowledged = fs::read_to_string(self.folder.path().join(name));
                // A killed process may have left an empty file.
                let acknowledged = acknowledged.unwrap_or_default().parse().unwrap_or(0);
                let prefix = format!("{process} {thread} ").into_bytes();
                let own = payloads
                    .iter()
                    .filter(|payload| payload.starts_with(&prefix));
                let mut number = 0;
                for own in own {
                    assert_eq!(*own, payload(process, thread, number));
                    number += 1;
                }
                assert!(
                    number >= acknowledged,
                    "{acknowledged} acknowledged, {number} found"
                );
                found += number;
            }
        }
        assert_eq!(found as usize, payloads.len());
        found
    }
}

#[test]
fn several_processes_share_one_log() {
    let mut family = Family::begin();
    for child in &mut family.children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(family.check(), PROCESSES * THREADS * RECORDS);
    let shared = family.mapped.clone();
    let log = Wal::open(&family.storage, "log", OpenMode::Read, shared).unwrap();
    let syncs = log.syncs();
    assert!(syncs <= u64::from(PROCESSES * THREADS * RECORDS));
}

#[test]
fn the_living_go_on_when_some_are_killed() {
    for round in 0..5 {
        let mut family = Family::begin();
        // Anywhere between the first record and the last one.
        std::thread::sleep(Duration::from_millis(20 + 15 * round));
        let (killed, living) = family.children.split_at_mut(2);
        for child in killed {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        for child in living {
            assert!(child.wait().unwrap().success());
        }
        let found = family.check();
        assert!(found >= (PROCESSES - 2) * THREADS * RECORDS);
    }
}
