//! The two header pages of the data file. They are written in turn, so that one of them is whole whatever happens. All
//! numbers are little-endian.
//!
//! | offset | size | header page |
//! | --- | --- | --- |
//! | 0 | 8 | `SAPXACT\0` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32 of bytes 16 to 80 |
//! | 16 | 16 | id of the space, and of its log |
//! | 32 | 8 | pages that the file has places for, which follow the header pages |
//! | 40 | 8 | LSN from which the log is replayed |
//! | 48 | 4 | its chain |
//! | 52 | 4 | mode: 0 explicit, 1 tracked, 2 snapshot; plus 256 if commits are durable, 512 if pages have checksums |
//! | 56 | 8 | how many header pages had been written before |
//! | 64 | 8 | while the space is made larger (`grow`) how many pages it had before, otherwise zero |
//! | 72 | 4 | how many of the pages are not a part of the space yet |
//! | 76 | 4 | where it is mapped in the modes with plain memory, in 4 GiB; zero if anywhere |
//!
//! Behind the pages there are their checksums, four bytes each, see `sums`.

#![deny(clippy::indexing_slicing)]

use std::io::{self, ErrorKind};

use sapwood_wal::storage::File;
use sapwood_wal::{Lsn, Position};

use crate::address::ALIGNMENT;
use crate::error::{Doing, Error, Result};
use crate::mode::{Durability, Mode};
use crate::page::{PAGE_BYTES, PageBytes};
use crate::places::{HEADER_PAGES, PAGES_MAX, sum_pages};

const MAGIC: [u8; 8] = *b"SAPXACT\0";
/// The format version this release writes, and the only one it reads.
pub(crate) const FORMAT_VERSION: u32 = 2;

const CHECKED: std::ops::Range<usize> = 16..80;
const DURABLE: u32 = 256;
const SUMS: u32 = 512;

/// What a header page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: [u8; 16],
    /// The pages that have a place in the file.
    pub(crate) pages: u64,
    /// How many of them, at the end, are left for the space to grow into.
    pub(crate) reserve: u64,
    /// Where the space is in memory; 0 if anywhere.
    pub(crate) address: u64,
    /// The file holds everything before, and perhaps some of what follows.
    pub(crate) replay_from: Position,
    pub(crate) mode: Mode,
    pub(crate) durability: Durability,
    /// Whether pages have checksums.
    pub(crate) has_sums: bool,
    /// The size before, if what was behind it has to be filled with zeros.
    pub(crate) grown_from: u64,
    pub(crate) number: u64,
}

impl Header {
    /// The pages of the space.
    pub(crate) fn size(&self) -> u64 {
        self.pages - self.reserve
    }

    /// The size of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        let sums = if self.has_sums {
            sum_pages(self.pages)
        } else {
            0
        };
        (HEADER_PAGES + self.pages + sums) * PAGE_BYTES as u64
    }

    pub(crate) fn encode(&self) -> PageBytes {
        let mode = match self.mode {
            Mode::Explicit => 0,
            Mode::Tracked => 1,
            Mode::Snapshot => 2,
        };
        let durable = match self.durability {
            Durability::Durable => DURABLE,
            Durability::Eventual => 0,
        };
        let sums = if self.has_sums { SUMS } else { 0 };
        let mut page = [0; PAGE_BYTES];
        let fields: [(usize, &[u8]); 11] = [
            (0, &MAGIC),
            (8, &FORMAT_VERSION.to_le_bytes()),
            (16, &self.id),
            (32, &self.pages.to_le_bytes()),
            (40, &self.replay_from.lsn.0.to_le_bytes()),
            (48, &self.replay_from.chain.to_le_bytes()),
            (52, &(mode | durable | sums).to_le_bytes()),
            (56, &self.number.to_le_bytes()),
            (64, &self.grown_from.to_le_bytes()),
            (72, &(self.reserve as u32).to_le_bytes()),
            (76, &((self.address / ALIGNMENT) as u32).to_le_bytes()),
        ];
        for (offset, bytes) in fields {
            put(&mut page, offset, bytes);
        }
        let checksum = crc32fast::hash(page.get(CHECKED).unwrap_or_default());
        put(&mut page, 12, &checksum.to_le_bytes());
        page
    }

    /// Reads a header page; `None` if it is not whole.
    ///
    /// # Errors
    /// [`Error::UnknownVersion`]; [`Error::Damaged`] if it is whole and cannot be.
    pub(crate) fn decode(page: &PageBytes) -> Result<Option<Self>> {
        if bytes_at(page, 0) != MAGIC {
            return Ok(None);
        }
        let checksum = crc32fast::hash(page.get(CHECKED).unwrap_or_default());
        if checksum != u32::from_le_bytes(bytes_at(page, 12)) {
            return Ok(None);
        }
        let version = u32::from_le_bytes(bytes_at(page, 8));
        if version != FORMAT_VERSION {
            return Err(Error::UnknownVersion {
                what: "data file",
                found: version,
                known: FORMAT_VERSION,
            });
        }
        let flags = u32::from_le_bytes(bytes_at(page, 52));
        let header = Self {
            id: bytes_at(page, 16),
            pages: u64::from_le_bytes(bytes_at(page, 32)),
            reserve: u64::from(u32::from_le_bytes(bytes_at(page, 72))),
            address: u64::from(u32::from_le_bytes(bytes_at(page, 76))) * ALIGNMENT,
            replay_from: Position {
                lsn: Lsn(u64::from_le_bytes(bytes_at(page, 40))),
                chain: u32::from_le_bytes(bytes_at(page, 48)),
            },
            mode: match flags & !(DURABLE | SUMS) {
                0 => Mode::Explicit,
                1 => Mode::Tracked,
                2 => Mode::Snapshot,
                _ => return Err(Error::Damaged("the header names an unknown mode".into())),
            },
            durability: if flags & DURABLE == 0 {
                Durability::Eventual
            } else {
                Durability::Durable
            },
            has_sums: flags & SUMS != 0,
            grown_from: u64::from_le_bytes(bytes_at(page, 64)),
            number: u64::from_le_bytes(bytes_at(page, 56)),
        };
        let is_grown = header.grown_from != 0;
        if header.pages <= header.reserve
            || header.pages > PAGES_MAX
            || is_grown
                && header
                    .grown_from
                    .saturating_add(sum_pages(header.grown_from))
                    > header.pages
        {
            return Err(Error::Damaged(format!(
                "the header says that the space has {} pages",
                header.pages
            )));
        }
        Ok(Some(header))
    }
}

fn put(page: &mut PageBytes, offset: usize, bytes: &[u8]) {
    if let Some(place) = page.get_mut(offset..offset + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn bytes_at<const N: usize>(page: &PageBytes, offset: usize) -> [u8; N] {
    let bytes = page.get(offset..).and_then(|rest| rest.first_chunk());
    bytes.copied().unwrap_or([0; N])
}

/// Refuses a data file that somebody has shortened.
pub(crate) fn check_length(data: &dyn File, header: &Header) -> Result<()> {
    let bytes = header.file_bytes();
    let size = data.size().doing("cannot look at the data file")?;
    if size < bytes {
        return Err(Error::Damaged(format!(
            "the data file has {size} of its {bytes} bytes"
        )));
    }
    Ok(())
}

/// Writes one of the two.
pub(crate) fn write_header(file: &dyn File, place: u64, header: &Header) -> io::Result<()> {
    file.write_all_at(&header.encode(), place * PAGE_BYTES as u64)
}

/// Both headers, as far as they are whole.
pub(crate) fn read_headers(file: &dyn File) -> Result<[Option<Header>; 2]> {
    let mut headers = [None; 2];
    for (place, header) in (0..).zip(&mut headers) {
        let mut page = [0; PAGE_BYTES];
        match file.read_exact_at(&mut page, place * PAGE_BYTES as u64) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => continue,
            result => result.doing("cannot read the data file")?,
        }
        *header = Header::decode(&page)?;
    }
    Ok(headers)
}

/// The one that was written last.
pub(crate) fn newest(headers: &[Option<Header>; 2]) -> Result<&Header> {
    headers
        .iter()
        .flatten()
        .max_by_key(|header| header.number)
        .ok_or_else(|| Error::Damaged("neither header page of the data file is whole".into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_damage_is_noticed() {
        let header = Header {
            id: [3; 16],
            pages: 99,
            reserve: 9,
            address: 5 * ALIGNMENT,
            replay_from: Position {
                lsn: Lsn(4096),
                chain: 77,
            },
            mode: Mode::Explicit,
            durability: Durability::Durable,
            has_sums: true,
            grown_from: 7,
            number: 5,
        };
        let page = header.encode();
        assert_eq!(Header::decode(&page).unwrap(), Some(header));
        for offset in CHECKED {
            let mut damaged = page;
            damaged[offset] ^= 4;
            assert_eq!(Header::decode(&damaged).unwrap(), None);
        }
        let mut other = page;
        other[8] = 9;
        assert!(matches!(
            Header::decode(&other),
            Err(Error::UnknownVersion { found: 9, .. })
        ));
    }
}
