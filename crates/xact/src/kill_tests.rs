//! Processes that die anywhere leave the others running and the space right.
//!
//! Everything that is committed is a function of the number of commits, see [`commit_next`]. A child is this test program once
//! more; it dies at a given step of the code (`step`), or when it is killed. What it was told is committed stands in a file.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::step::die_at;
use crate::{Error, Memory, Offset, Options, PAGE_BYTES, Space, Transaction};

const PAGES: u64 = 24;
const NUMBER: Offset<u64> = Offset::new(16);
const FOLDER: &str = "SAPWOOD_XACT_FOLDER";
const WORK: &str = "SAPWOOD_XACT_WORK";

fn options() -> Options {
    Options::new()
        .bytes(PAGES * PAGE_BYTES as u64)
        .log_bytes(0)
        .versions_bytes(32 * PAGE_BYTES as u64)
}

/// What commit `number` writes: places and bytes.
fn writes(number: u64) -> impl Iterator<Item = (u64, [u8; 48])> {
    // Some commits are too large for the memory for versions.
    let count = if number % 7 == 3 {
        PAGES - 1
    } else {
        1 + number % 3
    };
    (0..count).map(move |place| {
        let mixed = (number * 131 + place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let page = if number % 7 == 3 { place } else { mixed >> 40 } % (PAGES - 1) + 1;
        let within = (mixed >> 20) % (PAGE_BYTES as u64 - 48);
        (page * PAGE_BYTES as u64 + within, [number as u8; 48])
    })
}

fn commit_next(space: &Space) -> Result<u64, Error> {
    space.transaction(|t| {
        let number = t.load(NUMBER)? + 1;
        t.store(NUMBER, &number)?;
        for (place, bytes) in writes(number) {
            t.write(place, bytes.len())?.copy_from_slice(&bytes);
        }
        Ok(number)
    })
}

/// Compares everything with what it must be; gives the number of commits.
fn check(t: &Transaction<'_>) -> Result<u64, Error> {
    let number = t.load(NUMBER)?;
    let mut model = vec![0; (PAGES as usize) * PAGE_BYTES];
    for (place, bytes) in (1..=number).flat_map(writes) {
        let place = place as usize;
        model[place..place + bytes.len()].copy_from_slice(&bytes);
    }
    model[16..24].copy_from_slice(&number.to_le_bytes());
    assert!(t.read(0, model.len())? == model, "after {number} commits");
    Ok(number)
}

/// What was acknowledged to anybody.
struct Acknowledged(File);

impl Acknowledged {
    fn open(folder: &Path) -> Self {
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(false);
        Self(how.open(folder.join("acknowledged")).unwrap())
    }

    fn add(&self, number: u64) {
        self.0.write_all_at(&[1], number).unwrap();
    }

    fn newest(&self) -> u64 {
        self.0.metadata().unwrap().len().saturating_sub(1)
    }
}

/// Does what a child is for; for nobody else.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let acknowledged = Acknowledged::open(folder);
    let work = std::env::var(WORK).unwrap();
    let space = Space::open(folder.join("space"), &options()).unwrap();
    if let Ok(step) = work.parse() {
        die_at(step);
        for round in 0..8 {
            acknowledged.add(commit_next(&space).unwrap());
            if round % 4 == 1 {
                space.read(check).unwrap();
                space.checkpoint().unwrap();
            }
        }
        die_at(u64::MAX);
        return;
    }
    loop {
        match commit_next(&space) {
            Ok(number) => acknowledged.add(number),
            Err(error) => panic!("{error}"),
        }
    }
}

fn spawn(folder: &Path, work: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kill_tests::child", "--exact"])
        .env(FOLDER, folder)
        .env(WORK, work)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Looks at everything, and goes on.
fn go_on(space: &Space, acknowledged: &Acknowledged) {
    let known = acknowledged.newest();
    let number = space.read(check).unwrap();
    assert!(number >= known, "commit {known} of {number} is missing");
    acknowledged.add(commit_next(space).unwrap());
    if number.is_multiple_of(5) {
        space.checkpoint().unwrap();
    }
    space.read(check).unwrap();
}

/// A process dies at each step of some work in turn.
fn die_everywhere(somebody_survives: bool) {
    let mut folder = tempfile::tempdir().unwrap();
    for step in 0.. {
        // The model takes longer with each commit.
        if step % 40 == 0 {
            folder = tempfile::tempdir().unwrap();
        }
        let open = || Space::open(folder.path().join("space"), &options()).unwrap();
        let acknowledged = Acknowledged::open(folder.path());
        let survivor = somebody_survives.then(open);
        let mut child = spawn(folder.path(), &step.to_string());
        let done = child.wait().unwrap().success();
        let survivor = survivor.unwrap_or_else(open);
        go_on(&survivor, &acknowledged);
        if done {
            assert!(step > 100, "only {step} steps");
            println!("{step} steps");
            break;
        }
    }
}

#[test]
fn a_process_may_die_at_every_step() {
    die_everywhere(true);
}

#[test]
fn all_processes_may_die_at_every_step() {
    die_everywhere(false);
}

/// Processes are killed at any moment while others go on.
#[test]
fn kill_loops() {
    for processes in [1, 2, 4] {
        let folder = tempfile::tempdir().unwrap();
        let acknowledged = Acknowledged::open(folder.path());
        let mut children: Vec<Child> = Vec::new();
        for round in 0..24_u64 {
            while children.len() < processes {
                children.push(spawn(folder.path(), "for ever"));
            }
            let before = acknowledged.newest();
            while acknowledged.newest() < before + 8 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(round * 977 % 5000));
            let mut victim = children.remove(round as usize % processes);
            victim.kill().unwrap();
            victim.wait().unwrap();
            for child in &mut children {
                assert!(child.try_wait().unwrap().is_none(), "another one died too");
            }
            // The space is opened and closed by this process each time: sometimes nobody else has it open.
            let space = Space::open(folder.path().join("space"), &options()).unwrap();
            let known = acknowledged.newest();
            let number = space.read(check).unwrap();
            assert!(number >= known, "commit {known} of {number} is missing");
        }
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let space = Space::open(folder.path().join("space"), &options()).unwrap();
        go_on(&space, &acknowledged);
    }
}
