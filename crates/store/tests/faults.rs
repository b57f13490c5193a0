//! Whatever call to the system fails, what was acknowledged stays, each commit is whole or absent, and the next opening
//! mends everything.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{assert_whole, commit, options};
use sapwood_store::{Env, Error};
use sapwood_testkit::storage::recording::{Disk, Fault};
use sapwood_wal::storage::Storage;

const COMMITS: u32 = 27;

/// How far the work has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    attempted: u32,
    acknowledged: u32,
}

fn open(disk: &Disk) -> Result<Env, Error> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    Env::on_storage(storage, &options())
}

/// Goes on from the commit that is there up to the last one. Some commits wait for several.
fn work(env: &Env, progress: &mut Progress) -> Result<(), Error> {
    for number in common::number_of(env)? + 1..=COMMITS {
        progress.attempted = progress.attempted.max(number);
        let ticket = commit(env, number)?;
        if number % 3 != 1 {
            ticket.wait_durable()?;
            progress.acknowledged = progress.acknowledged.max(number);
        }
        if number % 8 == 5 {
            env.checkpoint()?;
        }
    }
    Ok(())
}

fn check(env: &Env, progress: Progress, when: &str) {
    let number = assert_whole(env, when);
    let Progress {
        attempted,
        acknowledged,
    } = progress;
    assert!(
        (acknowledged..=attempted).contains(&number),
        "{when}: {number} found, {acknowledged} acknowledged, {attempted} attempted"
    );
}

fn check_after_power_cut(disk: &Disk, progress: Progress, when: &str) {
    let disk = Disk::from_image(&disk.synced_image()).unwrap();
    let env = open(&disk).unwrap_or_else(|error| panic!("{when}: {error}"));
    check(&env, progress, when);
}

fn calls_without_fault() -> u64 {
    let disk = Disk::new();
    let env = open(&disk).unwrap();
    let mut progress = Progress::default();
    work(&env, &mut progress).unwrap();
    assert_eq!(assert_whole(&env, "at the end"), COMMITS);
    disk.calls()
}

/// Lets a call fail in the middle of the work, looks at what is there in the meantime, and finishes the work.
fn run_with(fault: Fault, call: u64, lasting: bool) {
    let when = format!("{fault:?} at call {call}, lasting: {lasting}");
    let disk = Disk::new();
    disk.fail(call, fault, lasting);
    let mut progress = Progress::default();
    let opened = open(&disk);
    if let Ok(env) = &opened {
        let stopped = work(env, &mut progress);
        // Reading goes on, and nothing that fails is taken for success.
        check(env, progress, &when);
        if let Err(error) = stopped {
            disk.heal();
            if let Err(error) = work(env, &mut progress) {
                assert!(matches!(error, Error::Poisoned), "{when}: {error}");
            }
            check(env, progress, &format!("{when}, then {error}"));
        }
    }
    check_after_power_cut(&disk, progress, &when);
    drop(opened);
    disk.heal();
    // Only the process ended, and what the system still holds in memory is there.
    let env = open(&disk).unwrap_or_else(|error| panic!("{when}, opening again: {error}"));
    check(&env, progress, &when);
    work(&env, &mut progress).unwrap_or_else(|error| panic!("{when}, going on: {error}"));
    assert_eq!(assert_whole(&env, "at the end"), COMMITS);
    check_after_power_cut(&disk, progress, &when);
}

/// One call in so many is made to fail; `SAPWOOD_CRASH_FACTOR` makes it more.
fn stride() -> usize {
    let factor = std::env::var("SAPWOOD_CRASH_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    (5_usize).div_ceil(factor)
}

/// Meets calls all over a run with some fault: which one depends on the call, so that all kinds are spread over all
/// places.
fn run_all(faults: &[Fault], lasting: bool) {
    let calls = calls_without_fault();
    assert!(calls > 100, "{calls} calls");
    let calls = (0..calls).skip(stride() / 2).step_by(stride());
    for (call, fault) in calls.zip(faults.iter().cycle()) {
        run_with(*fault, call, lasting);
    }
}

#[test]
fn a_call_may_fail_once() {
    run_all(&[Fault::Io, Fault::NoSpace, Fault::Io], false);
}

#[test]
fn all_calls_may_fail_from_some_moment_on() {
    run_all(&[Fault::NoSpace, Fault::Io, Fault::NoSpace], true);
}

#[test]
fn short_and_interrupted_calls_are_no_errors() {
    let faults = [
        Fault::Interrupted,
        Fault::ShortWrite(1),
        Fault::ShortWrite(700),
    ];
    let calls = calls_without_fault();
    for (call, fault) in (0..calls).zip(faults.iter().cycle()).step_by(stride()) {
        let disk = Disk::new();
        disk.fail(call, *fault, false);
        let env = open(&disk).unwrap();
        let mut progress = Progress::default();
        work(&env, &mut progress).unwrap();
        assert_eq!(assert_whole(&env, "at the end"), COMMITS);
    }
}
