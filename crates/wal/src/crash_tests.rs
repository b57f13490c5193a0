//! The log survives power cuts, dying writers, failing syncs and damaged sectors, and it survives them because of its
//! guards: without any single one of them this suite fails.
//!
//! A *life* is what happens on a disk between two power cuts: recovery, then random work that notes on the recording
//! what it is about to append and what was acknowledged. Each life is cut off in many states, each of which is the
//! beginning of another life.

#![allow(clippy::unwrap_used)]

use std::io::IoSlice;
use std::sync::Arc;

use crate::format::RecordHeader;
use crate::guard::{Guard, Guards};
use crate::log::Way;
use crate::ring::Ring;
use crate::storage::recording::{Crash, Dice, Disk, Fault, Image};
use crate::storage::{OpenMode, Storage};
use crate::sync::AtomicU64;
use crate::{Error, LogId, Lsn, Options, Position, Shared, Wal};

/// What is wrong, or nothing.
type Verdict = Result<(), String>;

const ID: LogId = LogId([0x5a; 16]);
const NAME: &str = "log";
const SMALL: Options = Options {
    segment_bytes: 8192,
    segments: 3,
};
/// Less than the log has, so that it is soon full.
const BUFFER_WORDS: u64 = 700;

/// `SAPWOOD_CRASH_FACTOR` multiplies the number of lives looked at.
#[test]
fn every_crash_state_recovers() {
    let factor = std::env::var("SAPWOOD_CRASH_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    whole_suite(Guards::default(), 12 * factor).unwrap();
}

#[test]
fn the_suite_fails_without_any_single_guard() {
    let useless: Vec<Guard> = Guard::ALL
        .into_iter()
        .filter(|guard| whole_suite(Guards::without(*guard), 120).is_ok())
        .collect();
    assert!(useless.is_empty(), "the suite passes without {useless:?}");
}

fn whole_suite(guards: Guards, seeds: u64) -> Verdict {
    damaged_records_are_never_read(guards)?;
    damaged_segment_headers_are_refused(guards)?;
    records_of_other_logs_laps_and_futures_are_never_read(guards)?;
    a_failed_append_leaves_nothing(guards)?;
    a_full_buffer_is_emptied(guards)?;
    (0..seeds).try_for_each(|seed| lives(guards, seed))
}

/// Random lives from one seed: the first one, and for each of its crash states a second one.
fn lives(guards: Guards, seed: u64) -> Verdict {
    let mut first = Life::begin(Disk::new(), guards, seed, History::default())
        .map_err(|error| format!("seed {seed}: {error}"))?;
    first
        .work(24)
        .map_err(|error| format!("seed {seed}: {error}"))?;
    for (number, crash) in (0..).zip(first.disk.crashes(seed, 24)) {
        let second = || {
            let history = first.known_after(&crash);
            let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
            let mut second = Life::begin(disk, guards, seed * 1000 + number, history)?;
            second.work(8)?;
            for crash in second.disk.crashes(seed + number, 16) {
                let history = second.known_after(&crash);
                let disk = Disk::from_image(crash.image()).map_err(|error| error.to_string())?;
                Life::begin(disk, guards, 0, history)
                    .map_err(|error| format!("{error}, second {crash}"))?;
            }
            Ok(())
        };
        second().map_err(|error: String| format!("seed {seed}, {crash}: {error}"))?;
    }
    Ok(())
}

/// What is known of a log at some moment.
#[derive(Clone, Debug, Default)]
struct History {
    is_created: bool,
    /// All records that were ever tried in this life, those of earlier lives first.
    attempts: Vec<Attempt>,
    /// Places where the log was said to be no longer needed before.
    checkpoints: Vec<(Position, usize)>,
    /// Which of the attempts must be there, by record number. Behind `acknowledged` they may be absent from some point
    /// on.
    expected: Vec<usize>,
    acknowledged: usize,
    floor: (Position, usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Attempt {
    record: usize,
    payload: Vec<u8>,
}

/// A note on the recording: a kind and a number.
#[derive(Clone, Copy)]
enum Note {
    Created,
    Attempt(usize),
    /// Records from this number on will never be there again.
    Gone(usize),
    Acknowledged(usize),
    Checkpoint(usize),
}

impl Note {
    fn encode(self) -> u64 {
        let (kind, number) = match self {
            Self::Created => (0, 0),
            Self::Attempt(attempt) => (1, attempt),
            Self::Gone(record) => (2, record),
            Self::Acknowledged(records) => (3, records),
            Self::Checkpoint(checkpoint) => (4, checkpoint),
        };
        kind << 32 | number as u64
    }

    fn decode(note: u64) -> Self {
        let number = (note & 0xffff_ffff) as usize;
        match note >> 32 {
            0 => Self::Created,
            1 => Self::Attempt(number),
            2 => Self::Gone(number),
            3 => Self::Acknowledged(number),
            _ => Self::Checkpoint(number),
        }
    }
}

impl History {
    fn learn(&mut self, note: Note) {
        match note {
            Note::Created => self.is_created = true,
            Note::Attempt(attempt) => {
                self.expected.truncate(self.attempts[attempt].record);
                self.expected.push(attempt);
            }
            Note::Gone(record) => self.expected.truncate(record),
            Note::Acknowledged(records) => self.acknowledged = self.acknowledged.max(records),
            Note::Checkpoint(checkpoint) => self.floor = self.checkpoints[checkpoint],
        }
    }

    fn payload(&self, record: usize) -> Option<&[u8]> {
        let attempt = self.expected.get(record)?;
        Some(&self.attempts[*attempt].payload)
    }
}

struct Life {
    disk: Disk,
    guards: Guards,
    dice: Dice,
    /// What was known before this life.
    before: History,
    history: History,
    log: Wal,
    /// What the log shares with others, if that survives the death of all of them.
    memory: Option<Memory>,
    /// So many records survive the death of the process.
    written: usize,
    /// The position behind each record since the floor, the floor itself first.
    ends: Vec<Position>,
    /// Records differ between lives in which this differs.
    salt: u8,
}

impl Life {
    /// Recovers the log, or makes it, and checks that exactly what must be there is there.
    fn begin(disk: Disk, guards: Guards, seed: u64, history: History) -> Result<Self, String> {
        let mut dice = Dice(seed);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let before = history.clone();
        let mut history = history;
        if !history.is_created {
            Wal::remove(&*storage, NAME).map_err(|error| error.to_string())?;
            Ring::create(&storage, NAME, ID, SMALL, guards).map_err(|error| error.to_string())?;
            history.learn(Note::Created);
            disk.note(Note::Created.encode());
        }
        let memory = Memory::any(&mut dice);
        let (log, ends) = recover(&storage, guards, &history, memory.as_ref())?;
        let memory = memory.filter(|memory| memory.outlives);
        let mut life = Self {
            disk,
            guards,
            salt: (dice.below(4) == 0) as u8,
            dice,
            before,
            history,
            log,
            memory,
            written: 0,
            ends,
        };
        life.recovered();
        Ok(life)
    }

    /// What recovery has found stays, and what it has not found never comes back.
    fn recovered(&mut self) {
        let records = self.records();
        self.note(Note::Gone(records));
        self.note(Note::Acknowledged(records));
        self.written = records;
    }

    /// What is known when the disk is as the crash has left it.
    fn known_after(&self, crash: &Crash) -> History {
        let mut history = self.before.clone();
        history.attempts.clone_from(&self.history.attempts);
        history.checkpoints.clone_from(&self.history.checkpoints);
        for note in crash.notes() {
            history.learn(Note::decode(*note));
        }
        history
    }

    /// How many records the log has, those before the floor included.
    fn records(&self) -> usize {
        self.history.floor.1 + self.ends.len() - 1
    }

    fn end(&self) -> Position {
        *self.ends.last().unwrap()
    }

    fn note(&mut self, note: Note) {
        self.disk.note(note.encode());
        self.history.learn(note);
    }

    fn work(&mut self, steps: usize) -> Verdict {
        for _ in 0..steps {
            match self.dice.below(33) {
                0..14 => self.append()?,
                14..22 => self.sync(self.ends.len() - 1),
                22..24 => self.sync(self.dice.clone().below(self.ends.len())),
                24..26 => self.checkpoint(),
                26 | 27 => self.restart()?,
                28 | 29 => self.replace_dead_writer()?,
                30 => {
                    self.disk.fail(self.dice.below(2) as u64, Fault::Io, false);
                    self.sync(self.ends.len() - 1);
                    self.disk.heal();
                    if self.dice.below(2) == 0 {
                        self.restart()?;
                    }
                }
                31 => drop(self.log.make_segment()),
                _ => {
                    let faults = [Fault::Io, Fault::NoSpace, Fault::ShortWrite(90)];
                    let fault = faults[self.dice.below(faults.len())];
                    self.disk.fail(self.dice.below(2) as u64, fault, false);
                    self.append()?;
                    self.disk.heal();
                }
            }
        }
        Ok(())
    }

    fn new_attempt(&mut self) -> Vec<u8> {
        let record = self.records();
        let payload = payload_of(record, self.salt);
        let known = self
            .history
            .attempts
            .iter()
            .position(|attempt| attempt.record == record && attempt.payload == payload);
        let attempt = known.unwrap_or_else(|| {
            let payload = payload.clone();
            self.history.attempts.push(Attempt { record, payload });
            self.history.attempts.len() - 1
        });
        self.note(Note::Attempt(attempt));
        payload
    }

    fn append(&mut self) -> Verdict {
        let payload = self.new_attempt();
        let (head, tail) = payload.split_at(payload.len() / 3);
        let parts = [IoSlice::new(head), IoSlice::new(tail)];
        let is_buffered = self.dice.below(4) > 0;
        let appended = if is_buffered {
            self.log.append_buffered(&parts)
        } else {
            self.log.append(&parts)
        };
        match appended {
            Ok(end) => {
                self.ends.push(end);
                if !is_buffered {
                    self.written = self.records();
                }
            }
            // It may be there only if the power is cut now; but the disk does not forget that it failed to write it.
            Err(Error::Io { .. }) => {}
            Err(Error::Full { .. } | Error::Poisoned) => self.note(Note::Gone(self.records())),
            Err(error) => return Err(format!("append: {error}")),
        }
        Ok(())
    }

    /// Waits for some of the records.
    fn sync(&mut self, index: usize) {
        let lsn = self.ends[index].lsn;
        if self.log.sync_to(lsn).is_ok() {
            let records = self.history.floor.1 + index;
            self.note(Note::Acknowledged(records));
            self.written = self.written.max(records);
        }
    }

    /// Forgets some of the acknowledged records.
    fn checkpoint(&mut self) {
        let durable = self.history.acknowledged - self.history.floor.1;
        let index = durable - self.dice.below(durable.min(2) + 1);
        let floor = (self.ends[index], self.history.floor.1 + index);
        self.history.checkpoints.push(floor);
        self.note(Note::Checkpoint(self.history.checkpoints.len() - 1));
        self.ends.drain(..index);
        self.log.recycle_before(floor.0.lsn);
    }

    /// The process is killed and started again, but the power stays on.
    fn restart(&mut self) -> Verdict {
        let storage: Arc<dyn Storage> = Arc::new(self.disk.clone());
        if let Some(left) = self.memory.take() {
            left.salvage(&storage, self.guards, self.history.floor.0)
                .map_err(|error| format!("after kill: {error}"))?;
        }
        let memory = Memory::any(&mut self.dice);
        (self.log, self.ends) = recover(&storage, self.guards, &self.history, memory.as_ref())
            .map_err(|error| format!("after kill: {error}"))?;
        self.memory = memory.filter(|memory| memory.outlives);
        let (written, found) = (self.written, self.records());
        if found < written {
            return Err(format!("{written} records written, {found} after kill"));
        }
        self.recovered();
        Ok(())
    }

    /// The writer dies right after it has written a record.
    fn replace_dead_writer(&mut self) -> Verdict {
        let payload = self.new_attempt();
        let ways = [Way::Kept, Way::Buffer];
        let way = ways[self.dice.below(ways.len())];
        if self
            .log
            .write_record(&[IoSlice::new(&payload)], way)
            .is_err()
        {
            return Ok(());
        }
        match self.log.inherit() {
            Ok(end) if end == self.end() => {
                self.recovered();
                Ok(())
            }
            Ok(end) => Err(format!("inherited {end:?} instead of {:?}", self.end())),
            Err(Error::Poisoned) => Ok(()),
            Err(error) => Err(format!("inherit: {error}")),
        }
    }
}

/// What the users of a log share.
struct Memory {
    shared: Arc<Shared>,
    words: Arc<Vec<AtomicU64>>,
    outlives: bool,
}

impl Memory {
    fn new(outlives: bool) -> Self {
        Self {
            shared: Arc::default(),
            words: Arc::new((0..BUFFER_WORDS).map(AtomicU64::new).collect()),
            outlives,
        }
    }

    fn any(dice: &mut Dice) -> Option<Self> {
        match dice.below(4) {
            0 => None,
            kind => Some(Self::new(kind > 1)),
        }
    }

    fn share(&self, log: &Wal) {
        log.share_buffer(self.words.clone(), self.outlives, 0, |_| true);
    }

    /// Salvages what is left, twice: the first one may have been killed.
    fn salvage(
        &self,
        storage: &Arc<dyn Storage>,
        guards: Guards,
        floor: Position,
    ) -> Result<(), Error> {
        (0..2).try_for_each(|_| {
            open(storage, Arc::default(), guards)?.salvage(floor, &self.shared, &self.words)
        })
    }
}

/// Opens and reads the log, compares it with what is known, and starts it. Returns the position behind each record.
fn recover(
    storage: &Arc<dyn Storage>,
    guards: Guards,
    history: &History,
    memory: Option<&Memory>,
) -> Result<(Wal, Vec<Position>), String> {
    let recovery = |error: Error| format!("recovery: {error}");
    let shared = memory.map(|memory| memory.shared.clone());
    let log = open(storage, shared.unwrap_or_default(), guards).map_err(recovery)?;
    let (floor, first) = history.floor;
    let mut ends = vec![floor];
    let mut records = log.records(floor).map_err(recovery)?;
    for number in first.. {
        let Some(record) = records.next().map_err(recovery)? else {
            break;
        };
        if Some(record.payload) != history.payload(number) {
            return Err(format!("record {number} is not what was appended"));
        }
        ends.push(record.end);
    }
    let found = first + ends.len() - 1;
    let acknowledged = history.acknowledged;
    if found < acknowledged {
        return Err(format!("{acknowledged} records acknowledged, {found} left"));
    }
    log.start(floor.lsn, &records).map_err(recovery)?;
    drop(records);
    if let Some(memory) = memory {
        memory.share(&log);
    }
    Ok((log, ends))
}

fn open(storage: &Arc<dyn Storage>, shared: Arc<Shared>, guards: Guards) -> Result<Wal, Error> {
    Wal::open_with(storage, NAME, OpenMode::Write, shared, guards)
}

/// Records of the same number have the same length whatever the salt, and now and then they are large or hold nothing
/// but zeros.
fn payload_of(record: usize, salt: u8) -> Vec<u8> {
    let mut dice = Dice(record as u64);
    let length = match dice.below(8) {
        0 => 5600,
        1 => 2500,
        2 => 0,
        _ => dice.below(700),
    };
    let mut fill = Dice(record as u64 * 2 + u64::from(salt));
    match dice.below(3) {
        0 => vec![salt; length],
        _ => (0..length).map(|_| fill.roll() as u8).collect(),
    }
}

/// A log with some acknowledged records, each of them with a sync of its own.
fn log_to_damage() -> Result<(Disk, Vec<Position>), Error> {
    let disk = Disk::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    Wal::create(&storage, NAME, ID, &SMALL)?;
    let log = open(&storage, Arc::default(), Guards::default())?;
    start(&log)?;
    let mut ends = vec![Position::START];
    for record in 0..DAMAGED_RECORDS {
        let end = log.append(&[IoSlice::new(&short_payload(record))])?;
        ends.push(end);
        log.sync_to(end.lsn)?;
    }
    Ok((disk, ends))
}

const DAMAGED_RECORDS: usize = 5;

fn short_payload(record: usize) -> Vec<u8> {
    vec![record as u8 ^ 0x55; 20 + record]
}

fn start(log: &Wal) -> Result<(), Error> {
    let mut records = log.records(Position::START)?;
    while records.next()?.is_some() {}
    log.start(Lsn(0), &records)
}

/// Reads an image: how many records there are, and whether the end is one.
fn read_image(image: &Image, guards: Guards) -> (usize, Result<(), Error>) {
    let read = |count: &mut usize| {
        let disk = Disk::from_image(image).expect("memory files");
        let storage: Arc<dyn Storage> = Arc::new(disk);
        let log = open(&storage, Arc::default(), guards)?;
        let mut records = log.records(Position::START)?;
        while let Some(record) = records.next()? {
            if record.payload != short_payload(*count) {
                *count = usize::MAX;
                break;
            }
            *count += 1;
        }
        Ok(())
    };
    let mut count = 0;
    let end = read(&mut count);
    (count, end)
}

fn offset_of(lsn: Lsn) -> u64 {
    crate::format::SEGMENT_HEADER_BYTES + lsn.0
}

fn segment(place: u32) -> String {
    format!("{NAME}.{place}")
}

/// Whatever bit of an acknowledged record flips: the records before are read, it is not, and if others follow, the
/// damage is told.
fn damaged_records_are_never_read(guards: Guards) -> Verdict {
    let (disk, ends) = log_to_damage().map_err(|error| error.to_string())?;
    let image = disk.synced_image();
    for (record, begin) in ends.iter().take(DAMAGED_RECORDS).enumerate() {
        let begin = begin.lsn.0;
        let record_end = begin + 56 + short_payload(record).len() as u64;
        for byte in begin..record_end {
            let mut damaged = image.clone();
            let bit = byte % 8;
            damaged.damage(&segment(0), offset_of(Lsn(byte)), |byte| *byte ^= 1 << bit);
            let is_last = record == DAMAGED_RECORDS - 1;
            match read_image(&damaged, guards) {
                (count, Ok(())) if count == record && is_last => {}
                (count, Err(Error::Corrupt { lsn, .. }))
                    if count == record && lsn.0 == begin && !is_last => {}
                (count, end) => {
                    return Err(format!(
                        "byte {byte} damaged in record {record}: {count} records, {end:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn damaged_segment_headers_are_refused(guards: Guards) -> Verdict {
    let (disk, _) = log_to_damage().map_err(|error| error.to_string())?;
    let image = disk.synced_image();
    for byte in 0..64 {
        let mut damaged = image.clone();
        damaged.damage(&segment(0), byte, |byte| *byte ^= 4);
        let (_, end) = read_image(&damaged, guards);
        if end.is_ok() {
            return Err(format!("byte {byte} of a segment header damaged, and read"));
        }
    }
    Ok(())
}

/// Records that are intact but not those that belong here: as if a write had gone astray.
fn records_of_other_logs_laps_and_futures_are_never_read(guards: Guards) -> Verdict {
    let (disk, ends) = log_to_damage().map_err(|error| error.to_string())?;
    let last = DAMAGED_RECORDS - 1;
    let payload = short_payload(last);
    let header = |log, lsn, previous| {
        let mut header = RecordHeader {
            log,
            lsn,
            durable: Lsn(0),
            previous,
            payload_bytes: payload.len() as u32,
            payload_checksum: crc32fast::hash(&payload),
            checksum: 0,
        };
        header.encode()
    };
    let at = ends[last];
    let lap = 3 * (SMALL.segment_bytes - crate::format::SEGMENT_HEADER_BYTES);
    let strangers = [
        ("another log", header(LogId([1; 16]), at.lsn, at.chain)),
        ("another lap", header(ID, Lsn(at.lsn.0 + lap), at.chain)),
        ("another place", header(ID, Lsn(at.lsn.0 + 8), at.chain)),
        ("another future", header(ID, at.lsn, !at.chain)),
    ];
    for (name, stranger) in strangers {
        let mut image = disk.synced_image();
        for (offset, new) in (offset_of(at.lsn)..).zip(stranger) {
            image.damage(&segment(0), offset, |byte| *byte = new);
        }
        let (count, end) = read_image(&image, guards);
        if count != last || end.is_err() {
            return Err(format!("a record of {name}: {count} records, {end:?}"));
        }
    }
    Ok(())
}

/// A write of which only the last bytes, which are zeros, did not arrive would look like a whole record.
fn a_failed_append_leaves_nothing(guards: Guards) -> Verdict {
    let (disk, ends) = log_to_damage().map_err(|error| error.to_string())?;
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let run = || {
        let log = open(&storage, Arc::default(), guards)?;
        start(&log)?;
        let payload = short_payload(DAMAGED_RECORDS);
        disk.fail(0, Fault::ShortWrite(56 + payload.len()), false);
        disk.fail(1, Fault::Io, false);
        let failed = log.append(&[IoSlice::new(&payload)]);
        disk.heal();
        let end = log.end();
        log.sync_range(end, Lsn(end.0 + 100), end)?;
        Ok((failed, end))
    };
    let (failed, end) = run().map_err(|error: Error| error.to_string())?;
    if !matches!(failed, Err(Error::Io { .. })) || end != ends[DAMAGED_RECORDS].lsn {
        return Err(format!("{failed:?}, end {end:?}"));
    }
    match read_image(&disk.synced_image(), guards) {
        (DAMAGED_RECORDS, Ok(())) => Ok(()),
        (count, end) => Err(format!("after a failed append: {count} records, {end:?}")),
    }
}

/// More is appended without a sync than the buffer holds.
fn a_full_buffer_is_emptied(guards: Guards) -> Verdict {
    const RECORDS: usize = 20;
    const { assert!(RECORDS * 400 > BUFFER_WORDS as usize * 8) };
    let payload = |record| vec![record as u8; 400];
    let disk = Disk::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let run = || {
        Wal::create(&storage, NAME, ID, &SMALL)?;
        let log = open(&storage, Arc::default(), guards)?;
        start(&log)?;
        Memory::new(false).share(&log);
        for record in 0..RECORDS {
            log.append_buffered(&[IoSlice::new(&payload(record))])?;
        }
        log.sync_to(log.end())?;
        let storage: Arc<dyn Storage> = Arc::new(Disk::from_image(&disk.synced_image()).unwrap());
        let log = open(&storage, Arc::default(), guards)?;
        let mut records = log.records(Position::START)?;
        for record in 0..RECORDS {
            let found = records
                .next()?
                .map(|found| found.payload == payload(record));
            if found != Some(true) {
                return Ok(Err(format!("of a full buffer, record {record}: {found:?}")));
            }
        }
        Ok(Ok(()))
    };
    run().map_err(|error: Error| error.to_string())?
}
