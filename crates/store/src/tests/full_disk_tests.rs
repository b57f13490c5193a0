//! On a disk that was full before the log had all its segments, the log goes round in those that it has; and no power
//! cut loses anything there.

use std::sync::Arc;

use sapwood_testkit::storage::recording::{Disk, Fault, Image};
use sapwood_wal::storage::Folder;

use crate::backup::restore::Restore;
use crate::env::Env;
use crate::env::archive::Archive;
use crate::env::options::{LOG_BYTES_MIN, Options};
use crate::error::Error;
use crate::format::roots::Head;
use crate::format::tree_record::TreeKind;
use crate::guard::{Guard, Guards};
use crate::log::append::AppendLock;
use crate::log::archive::Until;
use crate::log::checkpoint::{CheckpointLock, begin_lap, begin_lap_of_empty};

/// What is wrong, or nothing.
type Verdict<T = ()> = Result<T, String>;

/// A key for each of so many commits, one after the other.
const KEYS: u32 = 20;
const COUNTER: &[u8] = b"counter";
/// Of each value so much stands out of line, too.
const OUT_OF_LINE_BYTES: usize = 300;

/// A note on the recording: from now on the disk is full. All others are a store and the number of a commit that was
/// acknowledged there.
const FULL: u64 = u64::MAX;

fn options(guards: Guards, stores: u16) -> Options {
    let mut options = Options::new()
        .log_bytes(4 * LOG_BYTES_MIN)
        .stores(stores)
        .idle_checkpoint(None);
    options.guards = guards;
    options
}

fn open(disk: &Disk, guards: Guards, stores: u16) -> Verdict<Vec<Env>> {
    let options = options(guards, stores);
    let first = Env::on_storage(Arc::new(disk.clone()), &options).map_err(told)?;
    let others = (1..usize::from(stores)).map(|store| first.store(store).unwrap());
    let others: Vec<Env> = others.collect();
    Ok([vec![first], others].concat())
}

fn told(error: Error) -> String {
    format!("{error} ({error:?})")
}

/// Bytes that the log cannot say in fewer.
fn value(number: u32) -> [u8; 1500] {
    let mut word = number;
    std::array::from_fn(|_| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (word >> 24) as u8
    })
}

fn key_out_of_line(number: u32) -> [u8; 8] {
    u64::from(number % KEYS).to_be_bytes()
}

fn commit(env: &Env, number: u32) -> Result<(), Error> {
    let mut txn = env.write()?;
    let tree = match txn.tree("t")? {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT)?,
    };
    txn.put(tree, &(number % KEYS).to_be_bytes(), &value(number))?;
    txn.put(tree, COUNTER, &number.to_be_bytes())?;
    let apart = match txn.tree("apart")? {
        Some(tree) => tree,
        None => txn.create_tree("apart", TreeKind::OUT_OF_LINE)?,
    };
    txn.put(
        apart,
        &key_out_of_line(number),
        &value(number)[..OUT_OF_LINE_BYTES],
    )?;
    txn.commit()?.wait_durable().map(drop)
}

/// The number of the last commit that is there, which is there as a whole, with all before it.
fn number_of(env: &Env) -> Verdict<u32> {
    let report = env.check().map_err(told)?;
    if !report.is_clean() {
        return Err(format!("check: {}", report.problems.join(", ")));
    }
    let snapshot = env.read().map_err(told)?;
    let Some(tree) = snapshot.tree("t").map_err(told)? else {
        return Ok(0);
    };
    let apart = snapshot.tree("apart").map_err(told)?.unwrap();
    let last = tree.get(COUNTER).map_err(told)?;
    let last = u32::from_be_bytes(last.unwrap().try_into().unwrap());
    for number in (last + 1).saturating_sub(KEYS).max(1)..=last {
        let there = tree.get(&(number % KEYS).to_be_bytes()).map_err(told)?;
        if there != Some(&value(number)) {
            return Err(format!("commit {number} of {last} is not there"));
        }
        let there = apart.get(&key_out_of_line(number)).map_err(told)?;
        if there != Some(&value(number)[..OUT_OF_LINE_BYTES]) {
            return Err(format!(
                "commit {number} of {last} has lost a value out of line"
            ));
        }
    }
    Ok(last)
}

fn numbers_of(envs: &[Env]) -> Verdict<Vec<u32>> {
    envs.iter().map(number_of).collect()
}

/// Commits `count` times to each store, one after the other, and notes it.
fn work(disk: &Disk, envs: &[Env], count: u32) -> Verdict {
    let mut numbers = numbers_of(envs)?;
    for done in 1..=count {
        for (store, (env, number)) in envs.iter().zip(&mut numbers).enumerate() {
            // Of two stores one rests at times.
            if store == 0 || done % 40 > 15 {
                *number += 1;
                commit(env, *number).map_err(told)?;
                disk.note((store as u64) << 32 | u64::from(*number));
            }
        }
    }
    Ok(())
}

/// The data files have room for more than they hold, and the log has hardly been used. From now on the disk is full.
fn fill(disk: &Disk, envs: &[Env]) -> Result<(), Error> {
    for env in envs {
        let mut txn = env.write()?;
        let ballast = txn.create_tree("ballast", TreeKind::COMPACT)?;
        for number in 0..150_u32 {
            txn.put(ballast, &number.to_be_bytes(), &value(number))?;
        }
        // Too long for the log.
        txn.commit()?.wait_durable()?;
        let mut txn = env.write()?;
        txn.drop_tree("ballast")?;
        txn.commit()?.wait_durable()?;
    }
    disk.note(FULL);
    disk.fail(0, Fault::NoGrowth, true);
    Ok(())
}

/// Opens what is on a full disk, and finds there at least what was acknowledged.
fn reopen(
    image: &Image,
    guards: Guards,
    acknowledged: &[u32],
    when: &str,
) -> Verdict<(Disk, Vec<Env>)> {
    let disk = Disk::from_image(image).map_err(|error| error.to_string())?;
    disk.fail(0, Fault::NoGrowth, true);
    let stores = u16::try_from(acknowledged.len()).unwrap();
    let envs = open(&disk, guards, stores).map_err(|error| format!("{when}: {error}"))?;
    for (env, &acknowledged) in envs.iter().zip(acknowledged) {
        let found = number_of(env).map_err(|error| format!("{when}: {error}"))?;
        if found < acknowledged {
            return Err(format!(
                "{when}: commit {acknowledged} was lost, {found} is there"
            ));
        }
    }
    Ok((disk, envs))
}

/// What was acknowledged in each store when the power was cut.
fn acknowledged(before: &[u32], notes: &[u64]) -> Vec<u32> {
    let mut all = before.to_vec();
    for note in notes.iter().filter(|note| **note != FULL) {
        let (store, number) = ((note >> 32) as usize, *note as u32);
        all[store] = all[store].max(number);
    }
    all
}

fn segments(disk: &Disk) -> usize {
    let image = disk.synced_image();
    image
        .names()
        .filter(|name| name.starts_with("log."))
        .count()
}

/// A life on a full disk whose log has so many segments, cut off in many states, each of which goes on for a while and
/// is cut off again.
fn lives(guards: Guards, stores: u16, made: usize, seed: u64, states: usize) -> Verdict {
    let disk = Disk::new();
    let envs = open(&disk, guards, stores)?;
    while segments(&disk) < made {
        work(&disk, &envs, 4)?;
    }
    fill(&disk, &envs).map_err(told)?;
    work(&disk, &envs, 100 * made as u32)?;
    assert_eq!(segments(&disk), made, "the disk was not full");
    let before = vec![0; usize::from(stores)];
    for (number, crash) in (0..).zip(disk.crashes(seed, states)) {
        if !crash.notes().contains(&FULL) {
            continue;
        }
        let when = crash.to_string();
        let then = acknowledged(&before, crash.notes());
        let (disk, envs) = reopen(crash.image(), guards, &then, &when)?;
        let found = numbers_of(&envs)?;
        work(&disk, &envs, 30).map_err(|error| format!("{when}, then {error}"))?;
        drop(envs);
        for crash in disk.crashes(seed + number, 4) {
            let when = format!("{when}, second {crash}");
            let then = acknowledged(&found, crash.notes());
            reopen(crash.image(), guards, &then, &when)?;
        }
    }
    Ok(())
}

#[test]
fn a_log_that_cannot_become_longer_goes_round_and_loses_nothing() {
    let factor = std::env::var("SAPWOOD_CRASH_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    for seed in 0..factor {
        for (stores, made, states) in [(1, 1, 100), (1, 5, 60), (2, 1, 60), (2, 3, 60)] {
            lives(Guards::default(), stores, made, seed, states).unwrap();
        }
    }
}

#[test]
fn it_loses_something_without_the_meta_pages_that_say_so() {
    // So that a lap which begins early does not make a checkpoint due at once.
    let made = 6;
    let verdict = lives(Guards::without(Guard::MetasBeforeLap), 1, made, 0, 120);
    let error = verdict.unwrap_err();
    assert!(error.contains("was lost"), "{error}");
}

/// A power cut in the middle of beginning a lap: some of the meta pages of two stores name it, and others the end of
/// the log. All of them are seen by the lives above only by chance.
#[test]
fn a_lap_that_was_half_begun_is_begun_by_recovery() {
    for named in [
        vec![0],
        vec![1],
        vec![0, 0],
        vec![1, 1],
        vec![0, 0, 1],
        vec![1, 1, 0],
    ] {
        let disk = Disk::new();
        let envs = open(&disk, Guards::default(), 2).unwrap();
        fill(&disk, &envs).unwrap();
        work(&disk, &envs, 24).unwrap();
        for env in &envs {
            env.checkpoint().unwrap();
        }
        let lap = envs[0].inner().wal.as_ref().unwrap().next_lap();
        let lap = lap.unwrap().unwrap();
        for &store in &named {
            let lock = CheckpointLock::take(envs[store].inner()).unwrap();
            let head = envs[store].inner().region.applied_head().unwrap();
            lock.write_meta(&Head { log: lap, ..head }).unwrap();
        }
        let left = disk.synced_image();
        let when = format!("{named:?}");
        let then = numbers_of(&envs).unwrap();
        let (disk, again) = reopen(&left, Guards::default(), &then, &when).unwrap();
        let end = again[0].inner().wal.as_ref().unwrap().end();
        assert_eq!(end, lap.lsn, "{when}");
        work(&disk, &again, 60).unwrap();
        let then = numbers_of(&again).unwrap();
        reopen(&disk.synced_image(), Guards::default(), &then, &when).unwrap();
        // The one that takes over from a process that died there must not append where recovery would not look.
        let inner = envs[0].inner();
        inner.first_region().appender.lock(77, |_| true);
        let refused = AppendLock::take(inner).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Damaged(_)), "{when}: {refused}");
        assert!(matches!(commit(&envs[0], 1), Err(Error::Poisoned)));
    }
}

/// A disk that fails in the middle of it: what is acknowledged afterwards, if anything, is there after a power cut.
#[test]
fn a_lap_that_fails_to_begin_loses_nothing() {
    for nth in 0.. {
        let disk = Disk::new();
        let envs = open(&disk, Guards::default(), 2).unwrap();
        fill(&disk, &envs).unwrap();
        work(&disk, &envs, 24).unwrap();
        for env in &envs {
            env.checkpoint().unwrap();
        }
        let calls = disk.calls();
        disk.fail(nth, Fault::Io, false);
        let begun = begin_lap(envs[0].inner());
        if disk.calls() - calls <= nth {
            assert!(begun.unwrap(), "no call failed");
            break;
        }
        let when = format!("call {nth} failed, {begun:?}");
        let mut then = numbers_of(&envs).unwrap_or_else(|_| vec![24, 9]);
        for (env, number) in envs.iter().zip(&mut then) {
            if commit(env, *number + 1).is_ok() {
                *number += 1;
            }
        }
        reopen(&disk.synced_image(), Guards::default(), &then, &when).unwrap();
    }
}

/// What others have appended to the log since it was emptied, and had checkpointed, is not archived if that failed.
#[test]
fn a_lap_does_not_begin_before_the_last_one_is_archived() {
    let archive = Disk::new();
    let mut options = options(Guards::default(), 1);
    options.archive = Some(Arc::new(Archive::new(Arc::new(archive.clone()))));
    let disk = Disk::new();
    let env = Env::on_storage(Arc::new(disk.clone()), &options).unwrap();
    fill(&disk, std::slice::from_ref(&env)).unwrap();
    commit(&env, 1).unwrap();
    env.archive().unwrap();
    archive.fail(0, Fault::NoSpace, true);
    commit(&env, 2).unwrap();
    env.checkpoint().unwrap();
    let end = || env.inner().wal.as_ref().unwrap().end();
    let before = end();
    assert!(begin_lap_of_empty(env.inner()).is_err());
    assert_eq!(end(), before);
    commit(&env, 3).unwrap();
    archive.heal();
    env.checkpoint().unwrap();
    assert!(begin_lap_of_empty(env.inner()).unwrap());
    assert_ne!(end(), before);
}

/// The log has got further than its segments reach, and the new store begins there.
#[test]
fn a_store_is_added_where_the_log_has_begun_a_lap_early() {
    let disk = Disk::new();
    let envs = open(&disk, Guards::default(), 1).unwrap();
    fill(&disk, &envs).unwrap();
    work(&disk, &envs, 100).unwrap();
    assert_eq!(segments(&disk), 1, "the disk was not full");
    drop(envs);
    disk.heal();
    drop(open(&disk, Guards::default(), 2).unwrap());
    let envs = open(&disk, Guards::default(), 2).unwrap();
    assert_eq!(numbers_of(&envs).unwrap(), [100, 0]);
}

/// Longer than all the segments that there is space for.
#[test]
fn a_record_longer_than_the_log_can_become_is_committed_without_it() {
    let disk = Disk::new();
    let envs = open(&disk, Guards::default(), 1).unwrap();
    fill(&disk, &envs).unwrap();
    let mut txn = envs[0].write().unwrap();
    let tree = txn.create_tree("long", TreeKind::COMPACT).unwrap();
    for number in 0..60_u32 {
        txn.put(tree, &number.to_be_bytes(), &value(number))
            .unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    assert_eq!(segments(&disk), 1, "the disk was not full");
    let (disk, envs) = reopen(&disk.synced_image(), Guards::default(), &[0], "").unwrap();
    let snapshot = envs[0].read().unwrap();
    let tree = snapshot.tree("long").unwrap().unwrap();
    for number in 0..60_u32 {
        let there = tree.get(&number.to_be_bytes()).unwrap();
        assert_eq!(there, Some(&value(number)[..]));
    }
    work(&disk, &envs, 60).unwrap();
}

/// Where a lap began early nothing is missing, though the archive cannot read on there: also when the log has gone
/// round since.
#[test]
fn an_archive_leads_across_laps_that_began_early() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    std::fs::create_dir(path("archive")).unwrap();
    let mut options = options(Guards::default(), 1);
    options.archive = Some(Arc::new(Archive::new(Arc::new(
        Folder::open(&path("archive")).unwrap(),
    ))));
    let disk = Disk::new();
    let envs = [Env::on_storage(Arc::new(disk.clone()), &options).unwrap()];
    fill(&disk, &envs).unwrap();
    envs[0].backup(path("backup")).unwrap();
    work(&disk, &envs, 200).unwrap();
    assert_eq!(segments(&disk), 1, "the disk was not full");
    disk.heal();
    work(&disk, &envs, 400).unwrap();
    envs[0].archive().unwrap();
    let restore = Restore::of(path("backup")).archive(path("archive"), Until::End);
    restore.into_folder(path("restored")).unwrap();
    let restored = Env::open(path("restored"), &Options::new()).unwrap();
    assert_eq!(number_of(&restored).unwrap(), 600);
}
