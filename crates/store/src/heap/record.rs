//! A value with what is needed to find the version of it that a snapshot sees.
//!
//! ```text
//!  offset  size  field
//!       0     6  commit     that wrote it
//!       6     2  zero
//!       8     8  previous   pointer to the record that it replaced, 0: none
//!      16     8  key        of the tree
//!      24     4  length     of the value, in bytes
//!      28     4  checksum   CRC-32 of everything before it, and of the value
//!      32        value      then zeroes up to the next multiple of eight
//! ```

#![deny(clippy::indexing_slicing)]

use crate::error::{Error, Result};
use crate::format::page::checksum;
use crate::format::pages::ReadPages;
use crate::format::pointer::{RecordPointer, STEP_BYTES};
use crate::format::pointer_leaf::KEY_BYTES;
use crate::ids::CommitNo;

/// The longest record, in bytes: what is in a segment is told in 32 bits.
pub(crate) const RECORD_BYTES_MAX: usize = u32::MAX as usize / 2;

const HEADER_BYTES: usize = 32;
const CHECKSUM_AT: usize = 28;

const COMMIT_MAX: u64 = CommitNo::MAX.0;

/// A record, to be read or to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'v> {
    pub(crate) commit: CommitNo,
    pub(crate) previous: RecordPointer,
    pub(crate) key: [u8; KEY_BYTES],
    pub(crate) value: &'v [u8],
}

impl<'v> Record<'v> {
    /// The bytes that a record with a value of this length takes.
    pub(crate) fn bytes(value_len: usize) -> usize {
        (HEADER_BYTES + value_len).next_multiple_of(STEP_BYTES as usize)
    }

    /// Adds the record; its checksum.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> u32 {
        let begin = out.len();
        let value = self.value;
        out.extend_from_slice(&(self.commit.0 & COMMIT_MAX).to_le_bytes());
        out.extend_from_slice(&self.previous.0.to_le_bytes());
        out.extend_from_slice(&self.key);
        // No value has more bytes than 32 bits can say.
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        let sum = checksum(&[out.get(begin..).unwrap_or_default(), value]);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(value);
        out.resize(begin + Self::bytes(value.len()), 0);
        sum
    }

    /// The checksum that a record has which begins with these bytes.
    pub(crate) fn checksum_in(bytes: &[u8]) -> u32 {
        let sum = bytes.get(CHECKSUM_AT..).and_then(|rest| rest.first_chunk());
        sum.map_or(0, |sum| u32::from_le_bytes(*sum))
    }

    /// The record that begins here, without a look at its checksum.
    pub(crate) fn read<P: ReadPages + ?Sized>(pages: &'v P, at: RecordPointer) -> Result<Self> {
        let header = pages.record(at, HEADER_BYTES)?;
        let len = header
            .first_chunk::<HEADER_BYTES>()
            .map(|header| {
                let (_, len) = header.split_at(24);
                len.first_chunk().map_or(0, |len| u32::from_le_bytes(*len))
            })
            .unwrap_or_default();
        let bytes = pages.record(at, HEADER_BYTES + len as usize)?;
        Self::decode(bytes).ok_or_else(|| Error::corrupt(at.page(), "a record in it is damaged"))
    }

    /// The record that these bytes begin with, without a look at its checksum.
    pub(crate) fn decode(bytes: &'v [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [first, previous, key, last] = *header.as_chunks::<8>().0 else {
            return None;
        };
        let commit = CommitNo(u64::from_le_bytes(first));
        let [l0, l1, l2, l3, ..] = last;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        (commit.0 <= COMMIT_MAX).then_some(Self {
            commit,
            previous: RecordPointer(u64::from_le_bytes(previous)),
            key,
            value: rest.get(..len)?,
        })
    }

    /// The same, with a look at its checksum.
    pub(crate) fn verify<P: ReadPages + ?Sized>(pages: &'v P, at: RecordPointer) -> Result<Self> {
        let record = Self::read(pages, at)?;
        let header = pages.record(at, HEADER_BYTES)?;
        let (covered, sum) = header
            .get(..HEADER_BYTES)
            .and_then(|header| header.split_at_checked(CHECKSUM_AT))
            .unwrap_or_default();
        if sum != checksum(&[covered, record.value]).to_le_bytes() {
            return Err(Error::corrupt(
                at.page(),
                "the checksum of a record in it does not match",
            ));
        }
        Ok(record)
    }

    /// The value that a commit has under `key`, whose newest record is there.
    #[inline]
    pub(crate) fn as_of<P: ReadPages + ?Sized>(
        pages: &'v P,
        newest: RecordPointer,
        key: &[u8; KEY_BYTES],
        commit: CommitNo,
    ) -> Result<&'v [u8]> {
        let header: Option<&[u8; HEADER_BYTES]> = pages.record(newest, HEADER_BYTES)?.first_chunk();
        if let Some([first, _, its_key, last]) = header.map(|header| header.as_chunks::<8>().0)
            && u64::from_le_bytes(*first) <= commit.0.min(COMMIT_MAX)
            && its_key == key
        {
            let [l0, l1, l2, l3, ..] = last;
            let len = u32::from_le_bytes([*l0, *l1, *l2, *l3]) as usize;
            let bytes = pages.record(newest, HEADER_BYTES + len)?;
            return Ok(bytes.get(HEADER_BYTES..).unwrap_or_default());
        }
        Self::find(pages, newest, key, commit).map(|(_, record)| record.value)
    }

    /// The record that a commit has under `key`, whose newest one is there, and where it is. The records before the
    /// newest are of ever earlier commits, so that no damage makes this go on for ever.
    pub(crate) fn find<P: ReadPages + ?Sized>(
        pages: &'v P,
        newest: RecordPointer,
        key: &[u8; KEY_BYTES],
        commit: CommitNo,
    ) -> Result<(RecordPointer, Self)> {
        let mut at = newest;
        let mut later = None;
        loop {
            let record = Self::read(pages, at)?;
            if record.key != *key || later.is_some_and(|later| record.commit >= later) {
                return Err(Error::corrupt(
                    at.page(),
                    "has not the record that a pointer says",
                ));
            }
            if record.commit <= commit {
                return Ok((at, record));
            }
            later = Some(record.commit);
            at = record.previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::page::PAGE_BYTES;
    use crate::format::page::Page;
    use crate::ids::PageNo;

    const FIRST: PageNo = PageNo(7);

    /// A file with records from page 7 on.
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn push(&mut self, record: Record<'_>) -> RecordPointer {
            let at = RecordPointer::at(FIRST, self.0.len() as u64).unwrap();
            record.encode(&mut self.0);
            at
        }
    }

    impl ReadPages for Bytes {
        fn page(&self, number: PageNo) -> Result<&Page> {
            Err(Error::corrupt(number, "there are only records"))
        }

        fn extent(&self, first: PageNo, _pages: u32) -> Result<&[u8]> {
            Err(Error::corrupt(first, "there are only records"))
        }

        fn record(&self, at: RecordPointer, bytes: usize) -> Result<&[u8]> {
            let from = at
                .offset()
                .checked_sub(FIRST.0 * PAGE_BYTES as u64)
                .and_then(|from| usize::try_from(from).ok());
            from.and_then(|from| self.0.get(from..)?.get(..bytes))
                .ok_or_else(|| Error::corrupt(at.page(), "lies outside of the store"))
        }
    }

    fn record(commit: u64, previous: RecordPointer, value: &[u8]) -> Record<'_> {
        Record {
            commit: CommitNo(commit),
            previous,
            key: *b"12345678",
            value,
        }
    }

    #[test]
    fn a_snapshot_sees_the_version_of_its_commit() {
        let mut file = Bytes(Vec::new());
        let one = file.push(record(5, RecordPointer::NONE, b"one"));
        let two = file.push(record(8, one, b"the second of them"));
        let three = file.push(record(12, two, b""));
        let seen = |at, commit| Record::as_of(&file, at, b"12345678", CommitNo(commit)).ok();
        for (commit, value) in [
            (4, None),
            (5, Some(&b"one"[..])),
            (7, Some(b"one")),
            (8, Some(b"the second of them")),
            (11, Some(b"the second of them")),
            (12, Some(b"")),
            (u64::MAX, Some(b"")),
        ] {
            assert_eq!(seen(three, commit), value, "{commit}");
        }
        assert_eq!(seen(two, 20), Some(&b"the second of them"[..]));
        assert_eq!(seen(RecordPointer::NONE, 20), None);
        for at in [one, two, three] {
            Record::verify(&file, at).unwrap();
            assert_eq!(at.offset() % 8, 0);
        }
        assert!(Record::as_of(&file, one, b"87654321", CommitNo(9)).is_err());
    }

    #[test]
    fn damage_is_noticed() {
        let mut file = Bytes(Vec::new());
        let one = file.push(record(5, RecordPointer::NONE, b"a value"));
        let two = file.push(record(6, one, b"another"));
        let good = file.0.clone();
        for at in 0..good.len() {
            for bit in 0..8 {
                file.0.clone_from(&good);
                file.0[at] ^= 1 << bit;
                let verified = Record::verify(&file, one).and(Record::verify(&file, two));
                // Zeroes between records belong to none.
                let is_room = at % 40 == 39;
                assert_eq!(verified.is_ok(), is_room, "byte {at}");
                // Whatever it says, it ends.
                for commit in [4, 5, 6] {
                    let _: Result<_> = Record::as_of(&file, two, b"12345678", CommitNo(commit));
                }
            }
        }
        // The last byte is such room.
        for len in 0..good.len() - 1 {
            file.0 = good[..len].to_vec();
            assert!(Record::verify(&file, two).is_err());
        }
    }

    #[test]
    fn a_chain_does_not_go_in_circles() {
        let mut file = Bytes(Vec::new());
        let at = RecordPointer::at(FIRST, 0).unwrap();
        file.push(record(9, at, b"its own predecessor"));
        assert!(Record::as_of(&file, at, b"12345678", CommitNo(3)).is_err());
    }
}
