//! Parked snapshots: resumed as they were, or over, and then they keep nothing.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::{Model, commit, model};
use sapwood_store::{Env, Error, Options, Parked, Snapshot};

fn options() -> Options {
    Options::new().log_bytes(1 << 20).idle_checkpoint(None)
}

fn number_in(snapshot: &Snapshot) -> u32 {
    let tree = snapshot.tree("counted").unwrap().unwrap();
    let number = tree.get(b"number").unwrap().unwrap();
    u32::from_le_bytes(number.try_into().unwrap())
}

fn content_of(snapshot: &Snapshot) -> Model {
    let mut model = Model::default();
    for (records, name) in model.iter_mut().zip(["counted", "plain"]) {
        let tree = snapshot.tree(name).unwrap().unwrap();
        let mut cursor = tree.cursor();
        while cursor.next().unwrap() {
            let (key, value) = cursor.record().unwrap().unwrap();
            records.insert(key.to_vec(), value.to_vec());
        }
    }
    model
}

fn commits(env: &Env, numbers: std::ops::RangeInclusive<u32>) {
    for number in numbers {
        commit(env, number).unwrap().wait_durable().unwrap();
    }
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn a_parked_snapshot_keeps_its_pages_until_it_is_too_old() {
    let pages_after = |options: &Options, park: bool| {
        let env = Env::in_memory(options).unwrap();
        commits(&env, 1..=30);
        let snapshot = env.read().unwrap();
        let parked = if park {
            Err(snapshot.park())
        } else {
            Ok(snapshot)
        };
        assert_eq!(env.stat().unwrap().readers[0].is_parked, park);
        commits(&env, 31..=200);
        let resumed = parked.or_else(Parked::resume);
        let readers = env.stat().unwrap().readers.len();
        if let Ok(snapshot) = &resumed {
            assert!(content_of(snapshot) == model(30));
            assert_eq!(
                (readers, env.stat().unwrap().readers[0].is_parked),
                (1, false)
            );
        } else {
            assert_eq!(readers, 0);
        }
        assert_clean(&env);
        (env.stat().unwrap().pages, resumed.map(drop))
    };
    let limited = options().parked_age_max(100);
    let (unlimited_pages, resumed) = pages_after(&options(), true);
    assert!(resumed.is_ok());
    let (held_pages, resumed) = pages_after(&limited, false);
    assert!(resumed.is_ok(), "what is not parked is never ended");
    let (pages, resumed) = pages_after(&limited, true);
    assert!(
        matches!(resumed, Err(Error::SnapshotExpired(_))),
        "{resumed:?}"
    );
    assert!(pages <= unlimited_pages && pages <= held_pages);
}

#[test]
fn expired_pages_are_used_again() {
    let env = Env::in_memory(&options()).unwrap();
    commits(&env, 1..=30);
    let parked = env.read().unwrap().park();
    let young = env.read().unwrap();
    commits(&env, 31..=60);
    let kept = |env: &Env, commit| {
        let free = env.free_pages().unwrap();
        let sees = |pages: &&sapwood_store::FreePages| {
            pages.born.is_some_and(|born| born <= commit)
                && pages.freed.is_some_and(|freed| commit < freed)
        };
        free.iter().filter(sees).count()
    };
    let commit = parked.commit();
    assert!(kept(&env, commit) > 0);
    assert_eq!(env.expire_parked(1000).unwrap(), 0, "not that old");
    assert_eq!(env.expire_parked(0).unwrap(), 1);
    assert_eq!(env.expire_parked(0).unwrap(), 0, "it is over already");
    assert!(
        content_of(&young) == model(30),
        "the same commit, not parked"
    );
    drop(young);
    commits(&env, 61..=120);
    assert_eq!(kept(&env, commit), 0);
    assert!(matches!(parked.resume(), Err(Error::SnapshotExpired(over)) if over == commit));
    // The slot is as good as new.
    let snapshot = env.read().unwrap().park().resume().unwrap();
    assert!(content_of(&snapshot) == model(120));
    assert_clean(&env);
}

#[test]
fn a_parked_snapshot_that_is_dropped_leaves_nothing() {
    let env = Env::in_memory(&options().parked_age_max(0)).unwrap();
    commits(&env, 1..=2);
    let (early, late) = (env.read().unwrap().park(), env.read().unwrap().park());
    drop(early);
    assert_eq!(env.stat().unwrap().readers.len(), 1);
    commits(&env, 3..=40);
    assert!(env.stat().unwrap().readers.is_empty());
    drop(late);
    let snapshot = env.read().unwrap();
    assert_eq!(env.stat().unwrap().readers.len(), 1);
    assert!(content_of(&snapshot) == model(40));
}

/// Any order of commits, snapshots, parking and resuming: what is resumed is what it was, and only what is too old is
/// over.
#[test]
fn any_history_of_parking_shows_what_was_there_or_an_error() {
    const AGE_MAX: u64 = 6;
    let env = Env::in_memory(&options().parked_age_max(AGE_MAX)).unwrap();
    let mut number = 1;
    commits(&env, 1..=1);
    let mut snapshots: Vec<(u32, Snapshot)> = Vec::new();
    let mut parked: Vec<(u32, Parked)> = Vec::new();
    let mut seed = 12345_u64;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % limit
    };
    let (mut resumed, mut expired) = (0, 0);
    for _ in 0..1200 {
        match below(8) {
            0..=2 => {
                number += 1;
                commits(&env, number..=number);
            }
            3 => snapshots.push((number, env.read().unwrap())),
            4 | 5 if !snapshots.is_empty() => {
                let (seen, snapshot) = snapshots.swap_remove(below(snapshots.len()));
                parked.push((seen, snapshot.park()));
            }
            6 if !parked.is_empty() => {
                let (seen, again) = parked.swap_remove(below(parked.len()));
                match again.resume() {
                    Ok(snapshot) => {
                        assert!(content_of(&snapshot) == model(seen), "{seen} at {number}");
                        snapshots.push((seen, snapshot));
                        resumed += 1;
                    }
                    Err(Error::SnapshotExpired(_)) => {
                        assert!(u64::from(number - seen) > AGE_MAX, "{seen} at {number}");
                        expired += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            7 if snapshots.len() > 3 => {
                let (seen, snapshot) = snapshots.swap_remove(below(snapshots.len()));
                assert!(content_of(&snapshot) == model(seen), "{seen} at {number}");
            }
            _ => {}
        }
    }
    assert!(resumed > 20 && expired > 20, "{resumed}, {expired}");
    assert_clean(&env);
}

/// A writer that ends whatever is parked, against readers that park all the time: nobody ever sees a page that has
/// become another one.
#[test]
fn readers_that_park_against_a_writer_that_wants_their_pages() {
    let env = Env::in_memory(&options().parked_age_max(0)).unwrap();
    commits(&env, 1..=20);
    let done = AtomicBool::new(false);
    let (resumed, expired) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let mut snapshot = env.read().unwrap();
                    let number = number_in(&snapshot);
                    for _ in 0..10 {
                        let parked = snapshot.park();
                        std::thread::yield_now();
                        snapshot = match parked.resume() {
                            Ok(snapshot) => snapshot,
                            Err(Error::SnapshotExpired(_)) => {
                                expired.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            Err(error) => panic!("{error}"),
                        };
                        resumed.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(number_in(&snapshot), number);
                    }
                    if number.is_multiple_of(16) {
                        let snapshot = env.read().unwrap();
                        assert!(content_of(&snapshot) == model(number_in(&snapshot)));
                    }
                }
            });
        }
        let mut number = 20;
        while number < 600 {
            number += 1;
            commits(&env, number..=number);
        }
        done.store(true, Ordering::Relaxed);
    });
    let counts = (resumed.into_inner(), expired.into_inner());
    assert!(counts.0 > 0 && counts.1 > 0, "{counts:?}");
    assert_clean(&env);
}
