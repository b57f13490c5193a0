//! Transactions under a model checker, which runs them in many orders that real threads would hardly ever take: waiting
//! for room, for older ones, and for one that is too large for the log, beside readers.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p sapwood-xact --lib model` runs only these: nothing else works outside of
//! the checker then. A wait has no end in time there, so a wake-up that gets lost is a deadlock, which the checker
//! reports.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

use crate::guard::{Guard, Guards};
use crate::{Durability, Error, Memory, Options, PAGE_BYTES, Ptr, Space, Transaction};

const SCHEDULES: usize = 400;
/// Of little work many more can be run.
const SCHEDULES_SHORT: usize = 10_000;
/// In how many ways the checker prefers one thread to another in half of the schedules: it lets a thread stop anywhere
/// for as long as others have something to do.
const PREFERENCES: usize = 3;
/// Each thread's; pages are copied on it.
const STACK_BYTES: usize = 1 << 20;
/// For so many versions there is memory.
const FRAMES: u64 = 8;
const WRITERS: u64 = 3;
const COMMITS: u64 = 3;
/// How often others may go on while a long reader looks at nothing.
const LASTING: usize = 1500;
const COUNTER: Ptr<u64> = Ptr::new(40 * PAGE_BYTES as u64);
/// Each writer has two pages of its own, and uses so many bytes of them: nearly a quarter of the log, which would be
/// too much.
const OWN_AT: u64 = 50;
const OWN_BYTES: usize = PAGE_BYTES + PAGE_BYTES / 2;

fn open(guards: Guards, backoff: bool) -> Space {
    open_with(guards, backoff, 0)
}

/// One with so many frames besides.
fn open_with(guards: Guards, backoff: bool, spill: u64) -> Space {
    let options = Options::new()
        .bytes(80 * PAGE_BYTES as u64)
        .durability(Durability::Durable)
        .log_bytes(0)
        .versions_bytes(FRAMES * PAGE_BYTES as u64)
        .spill_bytes(spill * PAGE_BYTES as u64)
        .backoff(backoff)
        .patience(Duration::from_secs(3600));
    Space::in_memory(&Options { guards, ..options }).unwrap()
}

fn own_at(writer: u64) -> Ptr<u64> {
    Ptr::new((OWN_AT + 2 * writer) * PAGE_BYTES as u64)
}

/// Fills what a writer has with a number.
fn fill_own(t: &mut Transaction<'_>, writer: u64, number: u64) -> Result<(), Error> {
    let at = own_at(writer).get();
    t.write(at, OWN_BYTES)?.fill(number as u8);
    Ok(())
}

/// What it is filled with, which is the same everywhere.
fn own(t: &Transaction<'_>, writer: u64) -> Result<u64, Error> {
    let bytes = t.read(own_at(writer).get(), OWN_BYTES)?;
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "half a commit");
    Ok(u64::from(bytes[0]))
}

fn increment(space: &Space) {
    let counted: Result<(), Error> = space.transaction(|t| {
        let count = t.load(COUNTER)?;
        t.store(COUNTER, &(count + 1))
    });
    counted.unwrap();
}

fn spawn(space: &Space, work: impl FnOnce(&Space) + Send + 'static) -> thread::JoinHandle<()> {
    let space = space.clone();
    thread::spawn(move || work(&space))
}

/// Sees one commit for as long as it lasts, whatever goes on meanwhile.
fn read_twice(space: &Space, lasting: usize) {
    let reader = space.begin_read().unwrap();
    let look = || -> Vec<u64> {
        let numbers = (0..WRITERS).map(|writer| own(&reader, writer));
        numbers.collect::<Result<_, _>>().unwrap()
    };
    let first = look();
    (0..lasting).for_each(|_| thread::yield_now());
    assert_eq!(look(), first, "it sees one commit");
}

fn write(space: &Space, writer: u64, number: u64) {
    let filled: Result<(), Error> = space.transaction(|t| fill_own(t, writer, number));
    filled.unwrap();
}

fn write_own(space: &Space, number: u64) {
    write(space, 0, number);
}

/// Too large for the log.
fn write_all(space: &Space, number: u64) {
    let filled: Result<(), Error> =
        space.transaction(|t| (0..WRITERS).try_for_each(|writer| fill_own(t, writer, number)));
    filled.unwrap();
}

/// More is committed than there is room for, in memory and in the log.
fn all_find_room() {
    let space = open(Guards::default(), true);
    let work = |writer| move |space: &Space| (1..=COMMITS).for_each(|n| write(space, writer, n));
    let mut threads: Vec<_> = (0..WRITERS)
        .map(|writer| spawn(&space, work(writer)))
        .collect();
    threads.push(spawn(&space, |space| read_twice(space, 100)));
    for thread in threads {
        thread.join().unwrap();
    }
    let reader = space.begin_read().unwrap();
    assert!((0..WRITERS).all(|writer| own(&reader, writer).unwrap() == COMMITS));
    assert!(space.stat().checkpoints > 0, "the log was never full");
}

/// One looks at a version that is not in the file yet while another one commits so much that its frames would be used
/// again.
fn one_looks_meanwhile(guards: Guards) {
    let space = open(guards, true);
    // The one that looks keeps it from getting into the file at once.
    let earlier = space.begin_read().unwrap();
    write(&space, 0, 1);
    drop(earlier);
    let threads = [
        spawn(&space, |space| {
            (2..=1 + FRAMES).for_each(|n| write(space, 0, n))
        }),
        spawn(&space, |space| read_twice(space, LASTING)),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
}

/// As [`one_looks_meanwhile`], by several readers, with room on the disk, where frames go from one area into the other
/// and back.
fn several_look_meanwhile() {
    let space = open_with(Guards::default(), true, FRAMES);
    let earlier = space.begin_read().unwrap();
    write(&space, 0, 1);
    drop(earlier);
    let mut threads: Vec<_> = (0..2)
        .map(|_| spawn(&space, |space| (0..2).for_each(|_| read_twice(space, 40))))
        .collect();
    threads.push(spawn(&space, |space| {
        (2..=1 + 2 * FRAMES).for_each(|n| write(space, 0, n))
    }));
    for thread in threads {
        thread.join().unwrap();
    }
}

/// One begins while another one commits, and takes what it has committed into the file.
fn one_begins_meanwhile(guards: Guards, work: fn(&Space, u64)) {
    let space = open(guards, true);
    // With which number there was which version.
    let versions = Arc::new(Mutex::new(vec![(space.stat().last, 0)]));
    let numbers = versions.clone();
    let writer = spawn(&space, move |space| {
        for number in 1..=2 {
            work(space, number);
            versions.lock().unwrap().push((space.stat().last, number));
        }
        space.checkpoint().unwrap();
    });
    let seen = Arc::new(Mutex::new((0, 0)));
    let saw = seen.clone();
    let reader = spawn(&space, move |space| {
        let reader = space.begin_read().unwrap();
        *saw.lock().unwrap() = (reader.version(), own(&reader, 0).unwrap());
    });
    writer.join().unwrap();
    reader.join().unwrap();
    let seen = *seen.lock().unwrap();
    assert!(numbers.lock().unwrap().contains(&seen), "it saw {seen:?}");
}

/// All want the same page.
fn all_get_through(backoff: bool) {
    let space = open(Guards::default(), backoff);
    let threads: Vec<_> = (0..WRITERS)
        .map(|_| spawn(&space, |space| (0..2).for_each(|_| increment(space))))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let count = space.read(|t| t.load(COUNTER)).unwrap();
    assert_eq!(count, 2 * WRITERS);
}

/// One is too large for the log, and has the space for itself.
fn a_large_one_gets_through() {
    let space = open(Guards::default(), true);
    let threads = [
        spawn(&space, |space| {
            let large: Result<(), Error> = space.transaction(|t| {
                let count = t.load(COUNTER)?;
                t.store(COUNTER, &(count + 1))?;
                (0..WRITERS).try_for_each(|writer| fill_own(t, writer, 7))
            });
            large.unwrap();
        }),
        spawn(&space, |space| (0..2).for_each(|_| increment(space))),
        spawn(&space, |space| (0..2).for_each(|_| read_twice(space, 1))),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
    let reader = space.begin_read().unwrap();
    assert_eq!(reader.load(COUNTER).unwrap(), 3);
    assert!((0..WRITERS).all(|writer| own(&reader, writer).unwrap() == 7));
}

/// One makes the space larger while another one stores to the end of what it has found, and a third one looks there.
fn one_grows_meanwhile() {
    const PAGE: u64 = PAGE_BYTES as u64;
    let space = open(Guards::default(), true);
    let before = space.bytes();
    let last_page = |t: &Transaction<'_>| -> Result<Vec<u8>, Error> {
        Ok(t.read(t.bytes() - PAGE, PAGE_BYTES)?.to_vec())
    };
    let threads = [
        spawn(&space, move |space| {
            for pages in 1..=3 {
                space.grow_to(before + pages * PAGE).unwrap();
                assert!(space.begin_read().unwrap().bytes() >= before + pages * PAGE);
            }
        }),
        spawn(&space, |space| {
            for number in 1..=2 {
                let filled: Result<(), Error> = space.transaction(|t| {
                    let at = t.bytes() - PAGE;
                    t.write(at, PAGE_BYTES)?.fill(number);
                    Ok(())
                });
                filled.unwrap();
            }
        }),
        spawn(&space, move |space| {
            for _ in 0..3 {
                let reader = space.begin_read().unwrap();
                let first = last_page(&reader).unwrap();
                assert!(first.iter().all(|byte| *byte == first[0]), "half a commit");
                thread::yield_now();
                assert!(last_page(&reader).unwrap() == first, "it sees one commit");
            }
        }),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(space.bytes(), before + 3 * PAGE);
    space.checkpoint().unwrap();
    assert_eq!(space.check().unwrap().damaged, []);
}

fn check(schedules: usize, what: impl Fn() + Copy + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(what);
    Runner::new(PctScheduler::new(PREFERENCES, schedules), config).run(what);
}

#[test]
fn all_find_room_in_any_order() {
    check(SCHEDULES, all_find_room);
}

#[test]
fn one_looks_meanwhile_in_any_order() {
    check(SCHEDULES, || one_looks_meanwhile(Guards::default()));
}

#[test]
fn several_look_meanwhile_in_any_order() {
    check(SCHEDULES, several_look_meanwhile);
}

#[test]
fn one_begins_meanwhile_in_any_order() {
    check(SCHEDULES_SHORT, || {
        one_begins_meanwhile(Guards::default(), write_own)
    });
    check(SCHEDULES_SHORT, || {
        one_begins_meanwhile(Guards::default(), write_all)
    });
}

#[test]
fn one_grows_meanwhile_in_any_order() {
    check(SCHEDULES, one_grows_meanwhile);
}

#[test]
fn all_get_through_in_any_order() {
    check(SCHEDULES, || all_get_through(true));
    check(SCHEDULES, || all_get_through(false));
}

#[test]
fn a_large_one_gets_through_in_any_order() {
    check(SCHEDULES, a_large_one_gets_through);
}

#[test]
#[should_panic(expected = "it sees one commit")]
fn the_model_fails_when_seen_frames_are_used_again() {
    check(SCHEDULES, || {
        one_looks_meanwhile(Guards::without(Guard::KeepSeenFrames))
    });
}

#[test]
#[should_panic(expected = "it saw")]
fn the_model_fails_when_nobody_looks_again() {
    let guards = || Guards::without(Guard::LookAgain);
    check(SCHEDULES_SHORT, move || {
        one_begins_meanwhile(guards(), write_own)
    });
}
