//! The endless stream of log bytes, wound around a ring of segment files.

use std::io::{ErrorKind, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Doing, Error, Result};
use crate::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::guard::{Guard, Guards};
use crate::storage::{File, OpenMode, Storage, if_there};
use crate::{LogId, Lsn, Options};

/// How many zeros are written at once into a new segment.
const ZEROS_BYTES: usize = 256 * 1024;

/// A segment opened with [`OpenMode::Blocks`], if the system does that.
type BlockFile = OnceLock<Option<Arc<dyn File>>>;

/// The segments of one log. A segment file is made when the stream first reaches it, or is about to, and is used again
/// on every lap.
#[derive(Debug)]
pub(crate) struct Ring {
    storage: Arc<dyn Storage>,
    name: String,
    mode: OpenMode,
    log: LogId,
    shape: Options,
    files: Box<[OnceLock<Arc<dyn File>>]>,
    /// The same files to be written past the page cache, unless the system does not open them so.
    block_files: Box<[BlockFile]>,
    /// The system has refused a write past the page cache.
    refuses_blocks: AtomicBool,
    guards: Guards,
}

impl Ring {
    /// Makes the first segment of a new log.
    pub(crate) fn create(
        storage: &Arc<dyn Storage>,
        name: &str,
        log: LogId,
        shape: Options,
        guards: Guards,
    ) -> Result<()> {
        shape.check()?;
        let ring = Self::new(storage, name, OpenMode::Write, log, shape, guards);
        ring.create_segment(0)?;
        ring.segment(0).map(drop)
    }

    /// Opens a log, whose shape is found in its first segment.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        name: &str,
        mode: OpenMode,
        guards: Guards,
    ) -> Result<Self> {
        let first = segment_name(name, 0);
        let file = storage.open(&first, mode).doing("cannot open", &first)?;
        let header = read_header(&*file, &first, guards)?;
        let ring = Self::new(storage, name, mode, header.log, header.shape, guards);
        ring.segment(0)?;
        Ok(ring)
    }

    fn new(
        storage: &Arc<dyn Storage>,
        name: &str,
        mode: OpenMode,
        log: LogId,
        shape: Options,
        guards: Guards,
    ) -> Self {
        Self {
            storage: storage.clone(),
            name: name.to_owned(),
            mode,
            log,
            shape,
            files: (0..shape.segments).map(|_| OnceLock::new()).collect(),
            block_files: (0..shape.segments).map(|_| OnceLock::new()).collect(),
            refuses_blocks: AtomicBool::new(false),
            guards,
        }
    }

    pub(crate) fn log(&self) -> LogId {
        self.log
    }

    pub(crate) fn remove(&self) -> Result<()> {
        remove(&*self.storage, &self.name)
    }

    /// How many bytes of the stream the ring holds.
    pub(crate) fn capacity(&self) -> u64 {
        self.stream_bytes() * u64::from(self.shape.segments)
    }

    /// How many bytes of the stream a segment holds.
    fn stream_bytes(&self) -> u64 {
        self.shape.segment_bytes - SEGMENT_HEADER_BYTES
    }

    /// Which segment of the ring holds this byte of the stream.
    fn place(&self, lsn: Lsn) -> u32 {
        let lap_place = (lsn.0 / self.stream_bytes()) % u64::from(self.shape.segments);
        u32::try_from(lap_place).unwrap_or_default()
    }

    /// Where in its segment file this byte of the stream is.
    fn offset(&self, lsn: Lsn) -> u64 {
        SEGMENT_HEADER_BYTES + lsn.0 % self.stream_bytes()
    }

    /// How many bytes of the stream are left in the segment from this one on.
    fn left_in_segment(&self, lsn: Lsn) -> u64 {
        self.stream_bytes() - lsn.0 % self.stream_bytes()
    }

    /// The places of all segments that hold a part of `from..to`, in stream order.
    fn places(&self, from: Lsn, to: Lsn) -> impl Iterator<Item = u32> {
        let segment_bytes = self.stream_bytes();
        let first = from.0 / segment_bytes;
        let beyond = to.0.div_ceil(segment_bytes);
        (first..beyond)
            .take(self.files.len())
            .map(move |number| self.place(Lsn(number.saturating_mul(segment_bytes))))
    }

    /// The file that holds a byte of the stream, and its offset there.
    pub(crate) fn place_of(&self, lsn: Lsn) -> (String, u64) {
        (self.name_at(self.place(lsn)), self.offset(lsn))
    }

    fn name_at(&self, place: u32) -> String {
        segment_name(&self.name, place)
    }

    /// The segment file, if there is one yet.
    fn segment(&self, place: u32) -> Result<Option<&dyn File>> {
        let Some(slot) = self.files.get(place as usize) else {
            return Ok(None);
        };
        if let Some(file) = slot.get() {
            return Ok(Some(&**file));
        }
        let name = self.name_at(place);
        let opened = if_there(self.storage.open(&name, self.mode));
        let Some(file) = opened.doing("cannot open", &name)? else {
            return Ok(None);
        };
        self.check_segment(&*file, &name, place)?;
        self.sync_name(&name)?;
        Ok(Some(&**slot.get_or_init(|| file)))
    }

    /// Makes the name of a segment durable before anything is written to it. The one that made it may have been killed
    /// before that.
    fn sync_name(&self, name: &str) -> Result<()> {
        if self.mode != OpenMode::Read && self.guards.has(Guard::SyncNewName) {
            self.storage.sync_names().doing("cannot name", name)?;
        }
        Ok(())
    }

    fn check_segment(&self, file: &dyn File, name: &str, place: u32) -> Result<()> {
        let header = read_header(file, name, self.guards)?;
        let damaged = |what| Error::CorruptSegment {
            file: name.to_owned(),
            what,
        };
        if header.log != self.log {
            return Err(damaged("it belongs to another log"));
        }
        if header.shape != self.shape || header.place != place {
            return Err(damaged("it has another place than its name says"));
        }
        if file.size().doing("cannot look at", name)? < self.shape.segment_bytes {
            return Err(damaged("it is cut short"));
        }
        Ok(())
    }

    /// Makes a segment under another name, so that a segment of the right name is always complete.
    fn create_segment(&self, place: u32) -> Result<()> {
        let name = self.name_at(place);
        let new_name = format!("{name}.new");
        // One that an interrupted creation left.
        if_there(self.storage.remove(&new_name)).doing("cannot remove", &new_name)?;
        let file = self.storage.open(&new_name, OpenMode::CreateNew);
        let file = file.doing("cannot create", &new_name)?;
        self.fill_segment(&*file, place)
            .and_then(|()| {
                if self.guards.has(Guard::SyncNewSegment) {
                    file.sync_data()?;
                }
                self.storage.rename(&new_name, &name)
            })
            .inspect_err(|_| {
                // A part of it would take the last space that there is. If it stays, it is removed with the next
                // attempt.
                let _: std::io::Result<()> = self.storage.remove(&new_name);
            })
            .doing("cannot make", &name)
    }

    fn fill_segment(&self, file: &dyn File, place: u32) -> std::io::Result<()> {
        file.allocate(0, self.shape.segment_bytes)?;
        let zeros = vec![0; ZEROS_BYTES];
        let mut at = SEGMENT_HEADER_BYTES;
        while at < self.shape.segment_bytes {
            let left = self.shape.segment_bytes - at;
            let length = usize::try_from(left).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
            file.write_all_at(&zeros[..length], at)?;
            // Syncs of other segments are not to wait for all of it.
            file.write_out(at, length as u64)?;
            at += length as u64;
        }
        let header = SegmentHeader {
            log: self.log,
            shape: self.shape,
            place,
        };
        file.write_all_at(&header.encode(), 0)
    }

    /// Whether this process has the segment open that holds this byte of the stream.
    pub(crate) fn is_open(&self, lsn: Lsn) -> bool {
        let slot = self.files.get(self.place(lsn) as usize);
        slot.is_some_and(|file| file.get().is_some())
    }

    /// The place a quarter of a segment further on.
    pub(crate) fn a_quarter_segment_behind(&self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0 + self.stream_bytes() / 4)
    }

    /// Where the stream is at the first place of the ring again, or is already.
    pub(crate) fn next_lap(&self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0.next_multiple_of(self.capacity()))
    }

    /// Sees to it that all segments of `from..to` exist, so that a write there needs no more space.
    pub(crate) fn prepare(&self, from: Lsn, to: Lsn) -> Result<()> {
        for place in self.places(from, to) {
            if self.segment(place)?.is_none() {
                self.create_segment(place).map_err(|error| match error {
                    Error::Io { ref source, .. } if is_full(source) => {
                        Error::NoSegment(Box::new(error))
                    }
                    error => error,
                })?;
                self.segment(place)?;
            }
        }
        Ok(())
    }

    /// Whether all segments of `from..to` exist.
    pub(crate) fn exists(&self, from: Lsn, to: Lsn) -> Result<bool> {
        for place in self.places(from, to) {
            if self.segment(place)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the parts one after the other at `lsn`, over segment borders. The segments exist.
    pub(crate) fn write(&self, mut lsn: Lsn, parts: &[IoSlice<'_>]) -> Result<()> {
        let mut run = Vec::with_capacity(parts.len());
        let mut run_bytes = 0;
        for part in parts {
            let mut part: &[u8] = part;
            while let Ok(left) = usize::try_from(self.left_in_segment(lsn) - run_bytes)
                && let Some((head, tail)) = part.split_at_checked(left)
                && !tail.is_empty()
            {
                run.push(IoSlice::new(head));
                self.write_within(lsn, &mut run)?;
                lsn = Lsn(lsn.0 + self.left_in_segment(lsn));
                run.clear();
                run_bytes = 0;
                part = tail;
            }
            run.push(IoSlice::new(part));
            run_bytes += part.len() as u64;
        }
        self.write_within(lsn, &mut run)
    }

    fn write_within(&self, lsn: Lsn, run: &mut [IoSlice<'_>]) -> Result<()> {
        let place = self.place(lsn);
        let file = self.segment(place)?.ok_or_else(|| Error::CorruptSegment {
            file: self.name_at(place),
            what: "it is missing",
        })?;
        let written = file.write_parts_at(run, self.offset(lsn));
        self.written(place, written)
    }

    fn written(&self, place: u32, written: std::io::Result<()>) -> Result<()> {
        written.map_err(|source| Error::Io {
            action: "cannot write",
            file: self.name_at(place),
            source,
        })
    }

    /// Whether [`Ring::write_blocks`] may succeed at this place, whose segment exists.
    pub(crate) fn takes_blocks(&self, lsn: Lsn) -> bool {
        self.block_file(self.place(lsn)).is_some()
    }

    fn block_file(&self, place: u32) -> Option<&dyn File> {
        if self.refuses_blocks.load(Ordering::Relaxed) {
            return None;
        }
        let open = || self.storage.open(&self.name_at(place), OpenMode::Blocks);
        let file = self.block_files.get(place as usize)?;
        file.get_or_init(|| open().ok()).as_deref()
    }

    /// Writes whole blocks past the page cache, durably; gives `false` if the system does not do that. `lsn` is at the
    /// beginning of a block, and `blocks` is where blocks can be written from.
    pub(crate) fn write_blocks(&self, mut lsn: Lsn, mut blocks: &[u8]) -> Result<bool> {
        while !blocks.is_empty() {
            let place = self.place(lsn);
            let Some(file) = self.block_file(place) else {
                return Ok(false);
            };
            let left = usize::try_from(self.left_in_segment(lsn)).unwrap_or(usize::MAX);
            let (run, rest) = blocks.split_at(left.min(blocks.len()));
            let written = file.write_all_durably_at(run, self.offset(lsn));
            let failed = written.as_ref().err().map(std::io::Error::kind);
            if let Some(ErrorKind::InvalidInput | ErrorKind::Unsupported) = failed {
                self.refuses_blocks.store(true, Ordering::Relaxed);
                return Ok(false);
            }
            self.written(place, written)?;
            lsn = Lsn(lsn.0 + run.len() as u64);
            blocks = rest;
        }
        Ok(true)
    }

    /// Fills the buffer from `lsn` on and returns how much of it; less than asked where a segment does not exist yet.
    pub(crate) fn read(&self, mut lsn: Lsn, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let place = self.place(lsn);
            let Some(file) = self.segment(place)? else {
                break;
            };
            let left = usize::try_from(self.left_in_segment(lsn)).unwrap_or(usize::MAX);
            let length = left.min(buffer.len() - filled);
            file.read_exact_at(&mut buffer[filled..filled + length], self.offset(lsn))
                .doing("cannot read", &self.name_at(place))?;
            filled += length;
            lsn = Lsn(lsn.0.saturating_add(length as u64));
        }
        Ok(filled)
    }

    /// Makes everything that was written to `from..to` durable.
    pub(crate) fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        for place in self.places(from, to) {
            if let Some(file) = self.segment(place)? {
                let synced = file.sync_data();
                synced.doing("cannot sync", &self.name_at(place))?;
            }
        }
        Ok(())
    }

    /// How many segments there are, counted from the first place. Segments are made in stream order, so a gap is
    /// damage.
    pub(crate) fn segments(&self) -> Result<u32> {
        let mut missing = None;
        for place in 0..self.shape.segments {
            match (self.segment(place)?, missing) {
                (Some(_), Some(gap)) => {
                    return Err(Error::CorruptSegment {
                        file: self.name_at(gap),
                        what: "it is missing",
                    });
                }
                (None, None) => missing = Some(place),
                _ => {}
            }
        }
        Ok(missing.unwrap_or(self.shape.segments))
    }

    /// Whether the stream could get to this place with the segments that there are: every lap begins in the first one.
    /// `in_full` says that no lap has begun early.
    pub(crate) fn has_reached(&self, lsn: Lsn, in_full: bool) -> Result<bool> {
        let there = self.stream_bytes() * u64::from(self.segments()?);
        let is_complete = there == self.capacity();
        Ok(is_complete || lsn.0 <= there || !in_full && lsn.0 % self.capacity() <= there)
    }
}

/// Whether there is no space for a new file, be it for want of disk space, quota, or by a limit of the process.
fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

/// Removes the segments of a log, the first one last.
pub(crate) fn remove(storage: &dyn Storage, name: &str) -> Result<()> {
    let names = storage.names().doing("cannot list the folder of", name)?;
    let mut segments: Vec<_> = names
        .iter()
        .filter(|file| is_segment_name(file, name))
        .collect();
    segments.sort_by_key(|file| **file == segment_name(name, 0));
    for file in segments {
        storage.remove(file).doing("cannot remove", file)?;
    }
    storage
        .sync_names()
        .doing("cannot sync the folder of", name)
}

fn segment_name(log: &str, place: u32) -> String {
    format!("{log}.{place}")
}

pub(crate) fn is_segment_name(file: &str, log: &str) -> bool {
    file.strip_prefix(log)
        .and_then(|rest| rest.strip_prefix('.'))
        .map(|rest| rest.strip_suffix(".new").unwrap_or(rest))
        .is_some_and(|place| place.parse::<u32>().is_ok())
}

fn read_header(file: &dyn File, name: &str, guards: Guards) -> Result<SegmentHeader> {
    let mut page = [0; 64];
    match file.read_exact_at(&mut page, 0) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(Error::CorruptSegment {
            file: name.to_owned(),
            what: "it is cut short",
        }),
        read => {
            read.doing("cannot read", name)?;
            SegmentHeader::decode(&page, name, guards.has(Guard::SegmentChecksum))
        }
    }
}
