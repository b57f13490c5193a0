//! Sorting records in little memory: what is more than that stands in a file without a name, in sorted runs that are
//! merged at the end.
//!
//! What is done at once, on a record or at the end, is bounded: to sort [`CHUNK_BYTES`], to merge and write
//! [`MEMORY_BYTES`], and to read the first [`READ_BYTES`] of each of [`RUNS_MAX`] runs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{MEMORY_BYTES, Records, nameless};
use crate::error::{Error, Result};

/// Bytes of records that are sorted together.
const CHUNK_BYTES: usize = 32 << 10;
/// Most runs in the file. When there are as many there is no room for more records.
const RUNS_MAX: usize = 512;
/// Bytes that are read of a run at once.
const READ_BYTES: usize = 2 << 10;
/// Bytes of the longest record.
pub(crate) const RECORD_BYTES_MAX: usize = 4 << 10;

/// Memory that a spool takes at most, in bytes, also while it is read.
pub(crate) const SPOOL_BYTES_MAX: usize = 2 * MEMORY_BYTES + RUNS_MAX * READ_BYTES;

/// Records on their way to be sorted.
#[derive(Debug)]
pub(crate) struct Spool {
    filling: Chunk,
    /// Sorted, and how many bytes they have together.
    chunks: Vec<Chunk>,
    bytes: usize,
    folder: PathBuf,
    spilled: Option<Spilled>,
}

/// What was written to the file.
#[derive(Debug)]
struct Spilled {
    file: File,
    /// Where each run ends; the first one begins at 0.
    ends: Vec<u64>,
}

impl Spool {
    /// Of no records yet; its file, if there is to be one, is made in this folder.
    pub(crate) fn new(folder: &Path) -> Spool {
        Spool {
            filling: Chunk::default(),
            chunks: Vec::new(),
            bytes: 0,
            folder: folder.to_owned(),
            spilled: None,
        }
    }

    /// Takes a record of at most [`RECORD_BYTES_MAX`]; false when there is no room for it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn push(&mut self, record: &[u8]) -> Result<bool> {
        if self.filling.bytes.len() + record.len() > CHUNK_BYTES && !self.filling.ends.is_empty() {
            self.end_chunk();
            if self.bytes >= MEMORY_BYTES && !self.spill()? {
                return Ok(false);
            }
        }
        self.filling.push(record);
        Ok(true)
    }

    fn end_chunk(&mut self) {
        let chunk = std::mem::take(&mut self.filling).sorted();
        self.bytes += chunk.bytes.len();
        self.chunks.push(chunk);
    }

    /// Writes what is in memory as a run; false when there are as many as there may be.
    #[cold]
    fn spill(&mut self) -> Result<bool> {
        let failed = |source| Error::File {
            what: format!("sorting in a file in {}", self.folder.display()),
            source,
        };
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            None => self.spilled.insert(Spilled {
                file: nameless(&self.folder).map_err(failed)?,
                ends: Vec::new(),
            }),
        };
        if spilled.ends.len() >= RUNS_MAX {
            return Ok(false);
        }
        let mut run = Vec::with_capacity(self.bytes + self.bytes / 8);
        let chunks = std::mem::take(&mut self.chunks);
        let mut merge = Merge::of(chunks.into_iter().map(Source::Memory), None)?;
        while let Some(record) = merge.next()? {
            run.extend_from_slice(&(record.len() as u16).to_le_bytes());
            run.extend_from_slice(&record);
        }
        let end = spilled.ends.last().copied().unwrap_or_default() + run.len() as u64;
        (&spilled.file).write_all(&run).map_err(failed)?;
        spilled.ends.push(end);
        self.bytes = 0;
        Ok(true)
    }

    /// Begins with the records in their order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn merge(mut self) -> Result<Merge> {
        self.end_chunk();
        let in_memory = self.chunks.into_iter().map(Source::Memory);
        let Some(Spilled { file, ends }) = self.spilled else {
            return Merge::of(in_memory, None);
        };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let runs = starts
            .zip(&ends)
            .map(|(at, end)| Source::File(Records::new(at..*end, READ_BYTES)));
        let sources: Vec<Source> = runs.chain(in_memory).collect();
        Merge::of(sources.into_iter(), Some(file))
    }
}

/// Records in one run of memory.
#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<u32>,
    /// So many were taken.
    taken: usize,
}

impl Chunk {
    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len() as u32);
    }

    fn record(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)? as usize;
        let before = at.checked_sub(1).and_then(|before| self.ends.get(before));
        self.bytes.get(before.map_or(0, |end| *end as usize)..end)
    }

    fn sorted(self) -> Chunk {
        let mut order: Vec<&[u8]> = (0..self.ends.len())
            .filter_map(|at| self.record(at))
            .collect();
        order.sort_unstable();
        let mut sorted = Chunk {
            bytes: Vec::with_capacity(self.bytes.len()),
            ends: Vec::with_capacity(self.ends.len()),
            taken: 0,
        };
        order.into_iter().for_each(|record| sorted.push(record));
        sorted
    }
}

/// Where sorted records come from.
#[derive(Debug)]
enum Source {
    Memory(Chunk),
    /// A run in the file.
    File(Records),
}

/// The next record of a source. The greatest in the heap is the one that comes first.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    record: Vec<u8>,
    source: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        other.record.cmp(&self.record)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Records in their order.
#[derive(Debug)]
pub(crate) struct Merge {
    sources: Vec<Source>,
    heads: BinaryHeap<Head>,
    file: Option<File>,
}

impl Merge {
    fn of(sources: impl Iterator<Item = Source>, file: Option<File>) -> Result<Merge> {
        let mut merge = Merge {
            sources: sources.collect(),
            heads: BinaryHeap::new(),
            file,
        };
        for source in 0..merge.sources.len() {
            if let Some(record) = merge.of_source(source)? {
                merge.heads.push(Head { record, source });
            }
        }
        Ok(merge)
    }

    /// The next record of one source.
    fn of_source(&mut self, source: usize) -> Result<Option<Vec<u8>>> {
        let (source, file) = (self.sources.get_mut(source), &self.file);
        match (source, file) {
            (Some(Source::Memory(chunk)), _) => {
                let record = chunk.record(chunk.taken).map(<[u8]>::to_vec);
                chunk.taken += 1;
                Ok(record)
            }
            (Some(Source::File(run)), Some(file)) => {
                let next = run.next(|part, at| file.read_exact_at(part, at));
                next.map_err(|source| Error::File {
                    what: "reading what was sorted in a file".into(),
                    source,
                })
            }
            _ => Ok(None),
        }
    }

    /// The next record.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(source) = self.heads.peek().map(|head| head.source) else {
            return Ok(None);
        };
        let next = self.of_source(source)?;
        let Some(mut head) = self.heads.peek_mut() else {
            return Ok(None);
        };
        Ok(Some(match next {
            Some(record) => std::mem::replace(&mut head.record, record),
            None => PeekMut::pop(head).record,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(records: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(folder.path());
        for record in records {
            assert!(spool.push(record).unwrap());
        }
        // Its file has no name.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut merge = spool.merge().unwrap();
        let mut all = Vec::new();
        while let Some(record) = merge.next().unwrap() {
            all.push(record);
        }
        all
    }

    fn records(count: usize, bytes: usize) -> Vec<Vec<u8>> {
        let hash = |at: usize| {
            (at as u64)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .to_be_bytes()
        };
        let record = |at: usize| {
            let length = 8 + (at * 7919) % (bytes + 1);
            let mut record = hash(at / 2).to_vec();
            record.resize(length, at as u8);
            record
        };
        (0..count).map(record).collect()
    }

    #[test]
    fn records_come_out_in_their_order() {
        for (count, bytes) in [(0, 0), (1, 0), (3, 9), (5000, 9), (60_000, 20), (900, 4088)] {
            let records = records(count, bytes);
            let mut expected = records.clone();
            expected.sort();
            assert!(sorted(&records) == expected, "{count} of {bytes}");
        }
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(folder.path());
        let record = vec![7; RECORD_BYTES_MAX];
        let mut count = 0;
        while spool.push(&record).unwrap() {
            count += 1;
        }
        let most = (RUNS_MAX + 2) * MEMORY_BYTES / RECORD_BYTES_MAX;
        assert!((most * 9 / 10..=most).contains(&count), "{count}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let mut spool = Spool::new(Path::new("/nonexistent/folder"));
        let told = records(20_000, 20)
            .iter()
            .find_map(|record| spool.push(record).err());
        assert!(told.unwrap().to_string().contains("/nonexistent/folder"));
    }
}
