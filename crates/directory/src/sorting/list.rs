//! A list of records in their order, any of which is found by its place: they stand one after the other, and where
//! every so many of them begin is known.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LENGTH_BYTES, MEMORY_BYTES, Records, nameless};
use crate::error::{Error, Result};

/// Records from one whose beginning is known to the next.
const STRIDE: usize = 64;
/// Bytes that are read of a file at once.
const READ_BYTES: usize = 8 << 10;

/// Records in their order.
#[derive(Debug)]
pub(crate) struct List {
    body: Body,
    bytes: u64,
    /// Where records begin: the first, and every [`STRIDE`]th behind it.
    starts: Vec<u64>,
    count: u64,
}

/// The records, each behind its length.
#[derive(Debug)]
enum Body {
    Memory(Vec<u8>),
    File(File),
}

/// Makes a list of records that come in their order.
#[derive(Debug)]
pub(crate) struct ListBuilder {
    folder: PathBuf,
    /// What was not written to the file yet.
    bytes: Vec<u8>,
    file: Option<File>,
    written: u64,
    starts: Vec<u64>,
    count: u64,
}

fn failed(source: io::Error) -> Error {
    Error::File {
        what: "a sorted list in a file".into(),
        source,
    }
}

impl ListBuilder {
    /// Of no records yet; its file, if there is to be one, is made in this folder.
    pub(crate) fn new(folder: &Path) -> ListBuilder {
        ListBuilder {
            folder: folder.to_owned(),
            bytes: Vec::new(),
            file: None,
            written: 0,
            starts: Vec::new(),
            count: 0,
        }
    }

    /// Takes the next record, of at most [`RECORD_BYTES_MAX`](super::RECORD_BYTES_MAX).
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn push(&mut self, record: &[u8]) -> Result<()> {
        if self.bytes.len() + LENGTH_BYTES + record.len() > MEMORY_BYTES {
            self.write()?;
        }
        if self.count.is_multiple_of(STRIDE as u64) {
            self.starts.push(self.written + self.bytes.len() as u64);
        }
        self.count += 1;
        (self.bytes).extend_from_slice(&(record.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(record);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => (self.file).insert(nameless(&self.folder).map_err(failed)?),
        };
        file.write_all(&self.bytes).map_err(failed)?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    /// The list.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn finish(mut self) -> Result<List> {
        if self.file.is_some() {
            self.write()?;
        }
        let bytes = self.written + self.bytes.len() as u64;
        Ok(List {
            body: match self.file {
                Some(file) => Body::File(file),
                None => {
                    self.bytes.shrink_to_fit();
                    Body::Memory(self.bytes)
                }
            },
            bytes,
            starts: self.starts,
            count: self.count,
        })
    }
}

impl List {
    /// How many records there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of memory and of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + (self.starts.len() * size_of::<u64>()) as u64
    }

    /// How many records come before one that is not there, or is: O(log n), and the reading of [`STRIDE`] records.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn rank(self: &Arc<List>, record: &[u8]) -> Result<u64> {
        // So many of those whose beginning is known come before it.
        let (mut before, mut behind) = (0, self.starts.len());
        while before < behind {
            let middle = before.midpoint(behind);
            let mut reader = self.reader_at(middle);
            match reader.next()? {
                Some(first) if *first < *record => before = middle + 1,
                _ => behind = middle,
            }
        }
        let Some(from) = before.checked_sub(1) else {
            return Ok(0);
        };
        let mut rank = (from * STRIDE) as u64;
        let mut reader = self.reader_at(from);
        while let Some(next) = reader.next()?
            && *next < *record
        {
            rank += 1;
        }
        Ok(rank)
    }

    /// Begins with the record that so many come before.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn from(self: &Arc<List>, before: u64) -> Result<ListReader> {
        let stride = STRIDE as u64;
        let start = usize::try_from(before / stride).unwrap_or(usize::MAX);
        let mut reader = self.reader_at(start);
        for _ in 0..before % stride {
            reader.next()?;
        }
        Ok(reader)
    }

    /// A reader from one of the known beginnings on.
    fn reader_at(self: &Arc<List>, start: usize) -> ListReader {
        let at = self.starts.get(start).copied().unwrap_or(self.bytes);
        ListReader {
            list: Arc::clone(self),
            records: Records::new(at..self.bytes, READ_BYTES),
        }
    }
}

impl Body {
    fn read(&self, part: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Body::Memory(all) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX);
                let kept = all.get(from..).and_then(|rest| rest.get(..part.len()));
                let kept = kept.ok_or(io::ErrorKind::UnexpectedEof)?;
                part.copy_from_slice(kept);
                Ok(())
            }
            Body::File(file) => file.read_exact_at(part, at),
        }
    }
}

/// Reads a list from some place on.
#[derive(Debug)]
pub(crate) struct ListReader {
    list: Arc<List>,
    records: Records,
}

impl ListReader {
    /// The next record.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let body = &self.list.body;
        let next = self.records.next(|part, at| body.read(part, at));
        next.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: u32, bytes: usize) -> (Arc<List>, Vec<Vec<u8>>) {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = ListBuilder::new(folder.path());
        let records: Vec<Vec<u8>> = (0..count)
            .map(|number| {
                // Two and two of them are equal.
                let mut record = (number / 2 * 3).to_be_bytes().to_vec();
                record.resize(4 + number as usize % 2 * bytes, 0);
                record
            })
            .collect();
        for record in &records {
            builder.push(record).unwrap();
        }
        let list = Arc::new(builder.finish().unwrap());
        // Its file has no name.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(
            matches!(list.body, Body::File(_)),
            count * bytes as u32 > 1 << 20
        );
        (list, records)
    }

    #[test]
    fn records_are_found_by_place_and_by_value() {
        for (count, bytes) in [(0, 0), (1, 0), (64, 9), (65, 9), (1000, 7), (3000, 2000)] {
            let (list, records) = list(count, bytes);
            assert_eq!(list.count(), u64::from(count));
            for place in [0, 1, 63, 64, 65, 500, count.saturating_sub(1), count] {
                let mut reader = list.from(place.into()).unwrap();
                for at in place..(place + 70).min(count) {
                    assert_eq!(
                        reader.next().unwrap().as_deref(),
                        Some(&*records[at as usize])
                    );
                }
                if place + 70 >= count {
                    assert_eq!(reader.next().unwrap(), None);
                }
                for value in [place * 3 / 2, place * 3 / 2 + 1] {
                    let value = value.to_be_bytes();
                    let before = records.partition_point(|record| **record < value[..]);
                    assert_eq!(list.rank(&value).unwrap(), before as u64);
                }
            }
        }
    }
}
