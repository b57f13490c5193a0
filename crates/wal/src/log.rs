//! The log as its users see it.

use std::io::IoSlice;
use std::sync::{Arc, OnceLock};

use crate::buffer::{Blocks, Buffer, block_of};
use crate::error::{Error, Result};
use crate::format::{RECORD_HEADER_BYTES, RecordHeader, record_bytes};
use crate::guard::{Guard, Guards};
use crate::records::Records;
use crate::ring::{self, Ring};
use crate::shared::{Shared, State};
use crate::storage::{OpenMode, Storage};
use crate::sync::Mutex;
use crate::{LogId, Lsn, Options, Position};

/// The largest record, however large the log.
const RECORD_BYTES_MAX: u64 = 1 << 30;
/// How much is written again at once.
const REWRITE_BYTES: usize = 256 * 1024;

/// Where a record goes first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To where it survives the death of all processes: the files, or a buffer that does.
    Kept,
    /// To the buffer, if there is one and it has room.
    Buffer,
}

/// A durable redo log. See the [crate documentation](crate) for how it is used.
pub struct Wal {
    pub(crate) ring: Ring,
    pub(crate) shared: Arc<dyn AsRef<Shared> + Send + Sync>,
    /// Taken for each sync in this process: a failed sync is reported once per open file, so a second one beside it
    /// could succeed and know nothing of the failure.
    pub(crate) syncing: Mutex<Blocks>,
    /// From where records are handed to the system, by the holder of `writing`.
    pub(crate) handed: Mutex<Blocks>,
    pub(crate) buffer: OnceLock<Buffer>,
    pub(crate) guards: Guards,
}

impl Wal {
    /// Makes a new, empty log in files that are called `name` and a number. It is durable when this returns.
    ///
    /// # Errors
    /// [`Error::BadShape`], [`Error::Io`]. Leftovers of a creation that failed are removed with [`Wal::remove`].
    pub fn create(
        storage: &Arc<dyn Storage>,
        name: &str,
        id: LogId,
        options: &Options,
    ) -> Result<()> {
        Ring::create(storage, name, id, *options, Guards::default())
    }

    /// Opens a log. `shared` is the state it shares with all others who have the same log open; unless one of them has
    /// started the log already, [`Wal::start`] must be called before anything can be appended.
    ///
    /// # Errors
    /// [`Error::UnknownVersion`], [`Error::CorruptSegment`], [`Error::Io`].
    pub fn open(
        storage: &Arc<dyn Storage>,
        name: &str,
        mode: OpenMode,
        shared: Arc<dyn AsRef<Shared> + Send + Sync>,
    ) -> Result<Self> {
        Self::open_with(storage, name, mode, shared, Guards::default())
    }

    pub(crate) fn open_with(
        storage: &Arc<dyn Storage>,
        name: &str,
        mode: OpenMode,
        shared: Arc<dyn AsRef<Shared> + Send + Sync>,
        guards: Guards,
    ) -> Result<Self> {
        Ok(Self {
            ring: Ring::open(storage, name, mode, guards)?,
            shared,
            syncing: Mutex::default(),
            handed: Mutex::default(),
            buffer: OnceLock::new(),
            guards,
        })
    }

    /// How many segments there are.
    ///
    /// # Errors
    /// [`Error::CorruptSegment`], [`Error::Io`].
    pub fn segments(&self) -> Result<u32> {
        self.ring.segments()
    }

    /// Refuses a log without the segments that it had when it had got to `lsn`: so many, or, if that is not known (0),
    /// all that a log has whose laps never begin early.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::CorruptSegment`], [`Error::Io`].
    pub fn check_reaches(&self, lsn: Lsn, segments: u32) -> Result<()> {
        if self.ring.segments()? < segments || !self.ring.has_reached(lsn, segments == 0)? {
            return Err(Error::Corrupt {
                lsn,
                what: "the log never reached this position",
            });
        }
        Ok(())
    }

    /// Removes the files of the log `name`, whole or not. Not being there is no error.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(storage: &dyn Storage, name: &str) -> Result<()> {
        ring::remove(storage, name)
    }

    /// Whether the log `name` may have a file of this name, so that nobody else may.
    pub fn has_segment_named(name: &str, file: &str) -> bool {
        ring::is_segment_name(file, name)
    }

    /// The id the log was created with.
    pub fn id(&self) -> LogId {
        self.ring.log()
    }

    /// How many bytes of records the log holds, headers included.
    pub fn capacity(&self) -> u64 {
        self.ring.capacity()
    }

    /// The largest record in bytes: half of the log, and at most 1 GiB.
    pub fn record_bytes_max(&self) -> u64 {
        (self.capacity() / 2).min(RECORD_BYTES_MAX) - RECORD_HEADER_BYTES as u64
    }

    /// Reads the records from a position on that an append returned, or from [`Position::START`]. Nothing is changed,
    /// and [`Wal::start`] need not have been called. While others append, the end is wherever the reader happens to
    /// meet it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the log cannot reach so far, [`Error::CorruptSegment`], [`Error::Io`].
    pub fn records(&self, from: Position) -> Result<Records<'_>> {
        self.write_through()?;
        Records::new(&self.ring, from, self.record_bytes_max(), self.guards)
    }

    /// Starts the log after a crash or a clean stop, while nobody else has it open: erases what lies behind the last of
    /// `records`, which have been read to the end, makes everything before it durable, and has new records appended
    /// there. Everything before `floor` may be overwritten.
    ///
    /// # Errors
    /// [`Error::Unread`]; [`Error::Io`]. The log is not started then.
    pub fn start(&self, floor: Lsn, records: &Records<'_>) -> Result<()> {
        let end = records.end().ok_or(Error::Unread)?;
        if self.guards.has(Guard::EraseTail) {
            for lsn in records.leftovers() {
                self.erase(*lsn)?;
            }
        }
        self.keep(records)?;
        self.shared().start(floor, end);
        Ok(())
    }

    /// Makes all of `records` durable, which have been read to the end, before [`Wal::start`] does: for who has to do
    /// something then that must not reach the disk before them. Nobody else has the log open.
    ///
    /// # Errors
    /// [`Error::Unread`]; [`Error::Io`].
    pub fn keep(&self, records: &Records<'_>) -> Result<()> {
        let end = records.end().ok_or(Error::Unread)?;
        if self.guards.has(Guard::RewriteRecovered) {
            self.rewrite(records.known_durable(), end.lsn)?;
        }
        if self.guards.has(Guard::SyncRecovered) {
            self.ring.sync(Lsn(0), Lsn(self.capacity()))?;
        }
        Ok(())
    }

    /// Writes what is in the log once more. After a sync has failed, the system may hold as clean in its cache what
    /// never reached the disk, and would have nothing to do for the next sync.
    fn rewrite(&self, from: Lsn, to: Lsn) -> Result<()> {
        let mut buffer = vec![0; REWRITE_BYTES];
        let mut at = from;
        while at < to {
            let left = usize::try_from(to.0 - at.0).unwrap_or(usize::MAX);
            let length = left.min(REWRITE_BYTES);
            let filled = self.ring.read(at, &mut buffer[..length])?;
            if filled == 0 {
                break;
            }
            self.ring.write(at, &[IoSlice::new(&buffer[..filled])])?;
            at = Lsn(at.0 + filled as u64);
        }
        Ok(())
    }

    /// Removes the files of the log, which is of no use then. For the one that has it alone, and does not need what it
    /// holds.
    ///
    /// # Errors
    /// [`Error::Io`]; some of the files may be gone.
    pub fn remove_files(&self) -> Result<()> {
        self.ring.remove()
    }

    /// Takes over from a dead holder of the writer lock: erases the record it may have left unfinished, makes
    /// everything before durable, and returns where the log goes on.
    ///
    /// # Errors
    /// [`Error::Io`], after which the log is poisoned; [`Error::Poisoned`], [`Error::NotStarted`].
    pub fn inherit(&self) -> Result<Position> {
        let tail = self.tail()?;
        let erased = self.with_files(|| {
            self.write_buffered(tail.lsn)?;
            if self.guards.has(Guard::EraseHole) {
                self.erase(tail.lsn)?;
            }
            // The dead one may have gone ahead of the end.
            self.shared().set_written(tail.lsn);
            Ok(())
        });
        erased.inspect_err(|_| self.poison())?;
        if self.guards.has(Guard::SyncInherited) {
            let behind = Lsn(tail.lsn.0 + RECORD_HEADER_BYTES as u64);
            self.sync_range(self.durable(), behind, tail.lsn)?;
        }
        Ok(tail)
    }

    /// Makes sure that a record of so many bytes can be appended: that there is room in the log, and space for it on
    /// the disk. For the holder of the writer lock, before it begins what the record will describe.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSegment`], [`Error::RecordTooLarge`], [`Error::Io`]; nothing has happened then.
    pub fn reserve(&self, payload_bytes: u64) -> Result<()> {
        let tail = self.tail()?;
        self.reserve_at(tail.lsn, payload_bytes).map(drop)
    }

    fn reserve_at(&self, end: Lsn, payload_bytes: u64) -> Result<Lsn> {
        let max = self.record_bytes_max();
        if payload_bytes > max {
            return Err(Error::RecordTooLarge {
                bytes: payload_bytes,
                max,
            });
        }
        let needed = record_bytes(payload_bytes);
        let room = self.room();
        if needed > room && self.guards.has(Guard::KeepLiveSpace) {
            return Err(Error::Full { needed, room });
        }
        let new_end = Lsn(end.0 + needed);
        self.make_segments(end, new_end)?;
        Ok(new_end)
    }

    /// Sees to it that all segments of `from..to` exist.
    fn make_segments(&self, from: Lsn, to: Lsn) -> Result<()> {
        if self.ring.exists(from, to)? {
            return Ok(());
        }
        self.holding(&self.shared().making, || self.ring.prepare(from, to))
    }

    /// Whether a quarter of a segment or less is left until one that this process has not opened yet, or that does not
    /// exist.
    pub fn is_segment_due(&self) -> bool {
        !self
            .ring
            .is_open(self.ring.a_quarter_segment_behind(self.end()))
    }

    /// Makes the segment that will be needed next, which takes some time, so that no append has to. For anybody, beside
    /// the one that appends; the log is shared in the sense of [`Wal::share_buffer`] or nobody else uses it now.
    ///
    /// # Errors
    /// [`Error::Io`]; the append that needs the segment tries again.
    pub fn make_segment(&self) -> Result<()> {
        let end = self.end();
        self.make_segments(end, Lsn(self.ring.a_quarter_segment_behind(end).0 + 1))
    }

    /// Where the log would go on if it began its next lap now, leaving out the rest of this one: at the first segment.
    /// `None` if it is there already. For the holder of the writer lock.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::NotStarted`].
    pub fn next_lap(&self) -> Result<Option<Position>> {
        let tail = self.tail()?;
        let next = self.next_lap_of(tail);
        Ok((next != tail).then_some(next))
    }

    /// Where a log that ends at `end` would go on if it began its next lap there.
    pub fn next_lap_of(&self, end: Position) -> Position {
        Position {
            lsn: self.ring.next_lap(end.lsn),
            ..end
        }
    }

    /// Goes on at `lap`, which is what [`Wal::next_lap`] says: a log that cannot get the segments of this lap
    /// ([`Error::NoSegment`]) has those of the one before for the next. All records are durable, and the one that reads
    /// the log after a crash begins at `lap`, since nothing in the log leads there. For the holder of the writer lock.
    ///
    /// # Errors
    /// [`Error::NotInLog`] if there are records that are not durable; nothing has happened then.
    pub fn begin_lap(&self, lap: Position) -> Result<()> {
        let (durable, end) = (self.durable(), self.end());
        if durable < end {
            return Err(Error::NotInLog { lsn: durable, end });
        }
        self.with_files(|| {
            self.shared().skip_to(lap);
            Ok(())
        })
    }

    /// The file that holds this byte of the log, and its offset there.
    pub fn place_of(&self, lsn: Lsn) -> (String, u64) {
        self.ring.place_of(lsn)
    }

    /// Appends a record, whose bytes are those of all parts, and returns the position behind it. The record is not
    /// durable yet, see [`Wal::sync_to`], but with the system: it survives the death of all processes. For the holder
    /// of the writer lock only.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSegment`], [`Error::RecordTooLarge`], [`Error::Io`]; the record is not in the log
    /// then. (If the machine stops right after [`Error::Io`], it may be there all the same.)
    pub fn append(&self, parts: &[IoSlice<'_>]) -> Result<Position> {
        let end = self.write_record(parts, Way::Kept)?;
        self.shared().advance(end);
        Ok(end)
    }

    /// As [`Wal::append`], for a record that somebody will wait for: until it is durable it may be lost if all
    /// processes die that have the log open. It is on its way to the disk in less time.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append_buffered(&self, parts: &[IoSlice<'_>]) -> Result<Position> {
        let end = self.write_record(parts, Way::Buffer)?;
        self.shared().advance(end);
        Ok(end)
    }

    /// Writes a record behind the end, which does not move yet.
    pub(crate) fn write_record(&self, parts: &[IoSlice<'_>], way: Way) -> Result<Position> {
        let tail = self.tail()?;
        let payload_bytes = parts.iter().map(|part| part.len() as u64).sum();
        let end = self.reserve_at(tail.lsn, payload_bytes)?;
        let mut payload_checksum = crc32fast::Hasher::new();
        parts.iter().for_each(|part| payload_checksum.update(part));
        let mut header = RecordHeader {
            log: self.id(),
            lsn: tail.lsn,
            durable: self.claimed_durable(tail.lsn),
            previous: tail.chain,
            // At most `RECORD_BYTES_MAX`.
            payload_bytes: u32::try_from(payload_bytes).unwrap_or(u32::MAX),
            payload_checksum: payload_checksum.finalize(),
            checksum: 0,
        };
        let encoded = header.encode();
        let padding_bytes = end.0 - tail.lsn.0 - RECORD_HEADER_BYTES as u64 - payload_bytes;
        let padding = &[0; 8][..usize::try_from(padding_bytes).unwrap_or_default()];
        let (first, last) = (IoSlice::new(&encoded), IoSlice::new(padding));
        let (one, many);
        let pieces = match parts {
            [part] => {
                one = [first, *part, last];
                &one[..]
            }
            _ => {
                let all = std::iter::once(first).chain(parts.iter().copied());
                many = all.chain([last]).collect::<Vec<_>>();
                &many[..]
            }
        };
        match (self.put(tail.lsn, end, pieces)?, way) {
            (true, Way::Buffer) => {}
            (true, Way::Kept) => self.keep_put(tail.lsn, end)?,
            (false, _) => self.write(tail.lsn, end, pieces)?,
        }
        Ok(Position {
            lsn: end,
            chain: header.checksum,
        })
    }

    fn claimed_durable(&self, end: Lsn) -> Lsn {
        match self.guards.has(Guard::HonestDurable) {
            true => self.durable(),
            false => end,
        }
    }

    /// Allows everything before `lsn` to be overwritten. For the one that has made a checkpoint durable that needs
    /// nothing before.
    pub fn recycle_before(&self, lsn: Lsn) {
        let shared = self.shared();
        shared.raise_floor(lsn.min(shared.durable()));
    }

    /// Where the last record begins; for the holder of the writer lock. `None` if none has been appended since the log
    /// was started.
    pub fn before_last(&self) -> Option<Position> {
        self.shared().before_last()
    }

    /// Where the next record will begin.
    pub fn end(&self) -> Lsn {
        self.shared().end()
    }

    /// Everything before this is durable.
    pub fn durable(&self) -> Lsn {
        self.shared().durable()
    }

    /// How many bytes can be appended before the log is full, headers included.
    pub fn room(&self) -> u64 {
        let shared = self.shared();
        let mut floor = shared.floor();
        if self.buffer.get().is_some() && self.guards.has(Guard::KeepLiveBlocks) {
            // Blocks are written as a whole.
            floor = block_of(floor);
        }
        let used = shared.end().0.saturating_sub(floor.0);
        self.capacity().saturating_sub(used)
    }

    /// How many syncs there have been since the log was started, by all processes.
    pub fn syncs(&self) -> u64 {
        self.shared().syncs()
    }

    /// Whether a failure has ended all use of the log until it is recovered.
    pub fn is_poisoned(&self) -> bool {
        self.shared().state() == State::Poisoned
    }

    pub(crate) fn shared(&self) -> &Shared {
        (*self.shared).as_ref()
    }

    /// The end of a log in good order, where the next record will begin; for the holder of the writer lock.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::NotStarted`].
    pub fn tail(&self) -> Result<Position> {
        match self.shared().state() {
            State::Stopped => Err(Error::NotStarted),
            State::Poisoned => Err(Error::Poisoned),
            // Only the one that writes without the writer lock could have left no tail.
            State::Running => self.shared().tail().ok_or(Error::Poisoned),
        }
    }

    /// Makes sure that no record begins here.
    pub(crate) fn erase(&self, lsn: Lsn) -> Result<()> {
        let behind = Lsn(lsn.0 + RECORD_HEADER_BYTES as u64);
        if self.ring.exists(lsn, behind)? {
            let zeros = [0; RECORD_HEADER_BYTES];
            self.ring.write(lsn, &[IoSlice::new(&zeros)])?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (end, durable) = (self.end(), self.durable());
        write!(formatter, "Wal({end}, durable to {durable})")
    }
}
