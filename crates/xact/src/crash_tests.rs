//! A space survives power cuts, restarts and failing disks, and it survives them because of its guards: without any
//! single one of them this suite fails.
//!
//! A *life* is what happens on a disk between two power cuts: recovery, then commits, each of which is known by its
//! number alone. Each life is cut off in many states, each of which is the beginning of another life.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use sapwood_testkit::storage::recording::{Crash, Disk, Fault};
use sapwood_wal::storage::Storage;

use crate::guard::{Guard, Guards};
use crate::{
    Durability, Error, Memory, Mode, Options, PAGE_BYTES, RESERVED_BYTES, Space, Transaction,
};

/// What is wrong, or nothing.
type Verdict = Result<(), String>;

const PAGES: usize = FIRST + 24;
/// The pages before are the allocator's.
const FIRST: usize = RESERVED_BYTES as usize / PAGE_BYTES;
const BYTES: usize = PAGES * PAGE_BYTES;
/// Where the number of the newest commit stands.
const NUMBER: u64 = RESERVED_BYTES + 20;

/// `SAPWOOD_CRASH_FACTOR` multiplies the number of lives looked at.
#[test]
fn every_crash_state_recovers() {
    let factor = std::env::var("SAPWOOD_CRASH_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    for seed in 0..12 * factor {
        lives(Guards::default(), seed).unwrap();
        growth(Guards::default(), seed).unwrap();
    }
}

#[test]
fn the_suite_fails_without_any_single_guard() {
    let useless: Vec<Guard> = Guard::ALL
        .into_iter()
        .filter(|guard| {
            let guards = || Guards::without(*guard);
            (0..30).all(|seed| lives(guards(), seed).and(growth(guards(), seed)).is_ok())
        })
        .collect();
    assert!(useless.is_empty(), "the suite passes without {useless:?}");
}

fn options_of(guards: Guards, seed: u64) -> Options {
    let durability = match seed % 3 {
        2 => Durability::Eventual,
        _ => Durability::Durable,
    };
    let mode = match seed / 3 % 3 {
        0 => Mode::Explicit,
        1 => Mode::Tracked,
        _ => Mode::Snapshot,
    };
    let room = if seed.is_multiple_of(2) { 40 } else { 0 };
    let options = Options::new()
        .mode(mode)
        .durability(durability)
        .bytes(BYTES as u64)
        .reserve_bytes((BYTES + room * PAGE_BYTES) as u64)
        .log_bytes(0)
        .versions_bytes(32 * PAGE_BYTES as u64)
        .patience(std::time::Duration::ZERO);
    Options { guards, ..options }
}

/// The power is cut while a space becomes larger, and the one that comes next goes on with it, or does not.
fn growth(guards: Guards, seed: u64) -> Verdict {
    let options = options_of(guards, seed);
    let larger = options
        .clone()
        .grow_to((BYTES + (40 + seed as usize) * PAGE_BYTES) as u64);
    let mut first = Life::begin(Disk::new(), &options, seed, 0, true)?;
    first.work(12)?;
    // What a checkpoint has synced no record speaks of any more.
    let checkpointed = first.space.clone().unwrap().checkpoint();
    checkpointed.map_err(|error| format!("checkpoint: {error}"))?;
    first.note();
    let reopened = |crash: &Crash, options: &Options, known: u64| {
        let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
        let known = crash.notes().iter().max().copied().unwrap_or(known);
        let life = Life::begin(disk, options, seed, known, false);
        let life = life.map_err(|error| format!("growth, seed {seed}, {crash}: {error}"))?;
        Ok::<_, String>((life, known))
    };
    let Some(crash) = first.disk.crashes(seed, 3).last() else {
        return Ok(());
    };
    let (second, known) = reopened(&crash, &larger, 0)?;
    // Many states, as little is unsynced for long.
    for (number, crash) in (0..).zip(second.disk.crashes(seed, 120)) {
        let again = if number % 2 == 0 { &options } else { &larger };
        let (mut third, _) = reopened(&crash, again, known)?;
        if number % 12 == 0 {
            third.work(3)?;
            third.open(third.promised)?;
        }
    }
    Ok(())
}

fn lives(guards: Guards, seed: u64) -> Verdict {
    let options = options_of(guards, seed);
    let mut first = Life::begin(Disk::new(), &options, seed, 0, true)?;
    first
        .work(26)
        .map_err(|error| format!("seed {seed}: {error}"))?;
    for (number, crash) in (0..).zip(first.disk.crashes(seed, 32)) {
        let second = || {
            let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
            let known = crash.notes().iter().max().copied();
            let mut second = Life::begin(
                disk,
                &options,
                seed * 1000 + number,
                known.unwrap_or(0),
                known.is_none(),
            )?;
            second.work(6)?;
            for crash in second.disk.crashes(seed + number, 8) {
                let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
                let known = crash.notes().iter().max().copied().or(known);
                Life::begin(disk, &options, 0, known.unwrap_or(0), known.is_none())
                    .map_err(|error| format!("{error}, second {crash}"))?;
            }
            Ok(())
        };
        second().map_err(|error: String| format!("seed {seed}, {crash}: {error}"))?;
    }
    Ok(())
}

struct Life {
    disk: Disk,
    options: Options,
    space: Option<Space>,
    dice: u64,
    number: u64,
    /// The newest commit that must be there when the space is opened again; relaxed ones after it need not.
    promised: u64,
}

impl Life {
    /// Opens the space and looks whether everything is there that must be.
    fn begin(
        disk: Disk,
        options: &Options,
        seed: u64,
        acknowledged: u64,
        may_be_missing: bool,
    ) -> Result<Self, String> {
        let mut life = Self {
            disk,
            options: options.clone().create(may_be_missing),
            space: None,
            dice: seed,
            number: 0,
            promised: 0,
        };
        life.open(acknowledged)?;
        // Not before the space is there for good.
        life.note();
        Ok(life)
    }

    /// Whatever is there now is there for good.
    fn note(&mut self) {
        self.promised = self.number;
        self.disk.note(self.number);
    }

    /// So is a commit, if it is a durable one.
    fn note_commit(&mut self) {
        self.promised = self.number;
        if self.options.durability == Some(Durability::Durable) {
            self.note();
        }
    }

    fn open(&mut self, acknowledged: u64) -> Verdict {
        self.space = None;
        let storage: Arc<dyn Storage> = Arc::new(self.disk.clone());
        let space = Space::open_storage(storage, &self.options);
        let space = space.map_err(|error| format!("opening: {error}"))?;
        let number = space.read(check).map_err(|error| format!("{error:?}"))?;
        if space.bytes() < size_before(&space, number) {
            return Err(format!("what was made larger before {number} is smaller"));
        }
        if number < acknowledged {
            return Err(format!("commit {acknowledged} of {number} is missing"));
        }
        self.number = number;
        self.space = Some(space);
        Ok(())
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    fn work(&mut self, steps: usize) -> Verdict {
        for _ in 0..steps {
            match self.roll(20) {
                0..9 => self.commit()?,
                9..12 => self.commit_relaxed()?,
                12 | 13 => {
                    let space = self.space.clone().unwrap();
                    if let Err(error) = space.checkpoint() {
                        return Err(format!("checkpoint: {error}"));
                    }
                    self.note();
                }
                14 | 15 => {
                    let space = self.space.clone().unwrap();
                    let reader = space.begin_read().unwrap();
                    let seen = check(&reader).map_err(|error| format!("{error:?}"))?;
                    for _ in 0..4 {
                        self.commit()?;
                    }
                    let again = check(&reader).map_err(|error| format!("reader: {error:?}"))?;
                    if seen != again {
                        return Err(format!("a reader saw {seen}, then {again}"));
                    }
                }
                16 => self.open(self.promised)?,
                _ => {
                    let nth = self.roll(12);
                    self.disk.fail(nth, Fault::Io, false);
                    let space = self.space.clone().unwrap();
                    let next = self.number + 1;
                    let committed = commit(&space, next);
                    let checkpointed = space.checkpoint();
                    drop(space);
                    self.disk.heal();
                    if committed.is_ok() {
                        self.number = next;
                        self.note_commit();
                    }
                    if committed.is_err() || checkpointed.is_err() {
                        self.open(self.promised)?;
                        self.note();
                    }
                }
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Verdict {
        let space = self.space.clone().unwrap();
        match commit(&space, self.number + 1) {
            Ok(()) => {
                self.number += 1;
                self.note_commit();
                Ok(())
            }
            // A reader is in the way.
            Err(Error::Pinned { .. }) => Ok(()),
            Err(error) => Err(format!("commit {}: {error}", self.number + 1)),
        }
    }

    /// Commits what need not be there after a power cut, unless something that was promised came later.
    fn commit_relaxed(&mut self) -> Verdict {
        let space = self.space.clone().unwrap();
        let next = self.number + 1;
        let grown = space.grow_to(size_before(&space, next));
        grown.map_err(|error| format!("growing before {next}: {error}"))?;
        let committed = space.transaction_relaxed(|transaction| change(transaction, next));
        match committed {
            Ok(()) => {
                self.number = next;
                if self.options.durability == Some(Durability::Eventual) {
                    self.note_commit();
                }
                Ok(())
            }
            Err(Error::Pinned { .. }) => Ok(()),
            Err(error) => Err(format!("relaxed commit {next}: {error}")),
        }
    }
}

/// How large the space is made before commit `number`, if it has places for that: a little now and then.
fn size_before(space: &Space, number: u64) -> u64 {
    let size = BYTES as u64 + number / 4 * PAGE_BYTES as u64;
    size.min(space.bytes_reserved())
}

/// What commit `number` stores where.
fn stores(number: u64) -> impl Iterator<Item = (usize, usize, u8)> {
    // Some are too large for the log.
    let stores = if number % 17 == 11 {
        400
    } else {
        3 + number % 5
    };
    (0..stores).map(move |store| {
        let mixed = (number * 131 + store).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let page = if number.is_multiple_of(3) {
            1
        } else {
            mixed >> 40
        };
        let page =
            if stores == 400 { store } else { page } as usize % (PAGES - FIRST - 1) + FIRST + 1;
        let length = if number.is_multiple_of(2) { 40 } else { 1200 };
        let within = (mixed >> 20) as usize % (PAGE_BYTES - length);
        (page * PAGE_BYTES + within, length, number as u8)
    })
}

fn commit(space: &Space, number: u64) -> Result<(), Error> {
    space.grow_to(size_before(space, number))?;
    space.transaction(|transaction| change(transaction, number))
}

fn change(transaction: &mut Transaction<'_>, number: u64) -> Result<(), Error> {
    for (offset, length, byte) in stores(number) {
        transaction.write(offset as u64, length)?.fill(byte);
    }
    let place = transaction.write(NUMBER, 8)?;
    place.copy_from_slice(&number.to_le_bytes());
    Ok(())
}

/// Compares everything with what the commits up to the newest one have stored; gives that one's number.
fn check(transaction: &Transaction<'_>) -> Result<u64, Error> {
    let number = u64::from_le_bytes(transaction.read(NUMBER, 8)?.try_into().unwrap());
    let damaged = |what: String| Err(Error::Damaged(what));
    if number > 10_000 {
        return damaged(format!("number {number}"));
    }
    // What the space has grown by is as empty as it was.
    let bytes = transaction.bytes() as usize;
    let mut model = vec![0; bytes];
    for (offset, length, byte) in (1..=number).flat_map(stores) {
        model[offset..offset + length].fill(byte);
    }
    model[NUMBER as usize..NUMBER as usize + 8].copy_from_slice(&number.to_le_bytes());
    let found = transaction.read(0, bytes)?;
    if found == model {
        return Ok(number);
    }
    let differs = found
        .iter()
        .zip(&model)
        .position(|(found, model)| found != model);
    damaged(format!("commit {number} is not whole: byte {differs:?}"))
}
