//! Records that take the place of others, as the log tells of them: by what distinguishes their values from those that
//! they replace.
//!
//! A record that is replaced is there as long as a replay may ask for it: its segment is not used again before a meta
//! page holds a commit that is no earlier than the one which freed it.

use super::difference::{self, Patch};
use super::{TAG_VALUE_DELTAS, damaged, take, take_number};
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::pointer::RecordPointer;
use crate::heap::Record;
use crate::ids::CommitNo;
use crate::varint;

/// So many bytes of records are put together before they are written.
const PIECE_BYTES: usize = 64 << 10;

/// Begins an item about so many records, one behind the other.
pub(crate) fn begin_value_deltas(at: RecordPointer, count: usize, out: &mut Vec<u8>) {
    out.push(TAG_VALUE_DELTAS);
    varint::put(at.0, out);
    varint::put(count as u64, out);
}

/// Adds a record with the value of the one that it replaces.
pub(crate) fn encode_moved(from: RecordPointer, out: &mut Vec<u8>) {
    varint::put(from.0 << 1 | 1, out);
}

/// Adds a record that replaces another one, whose value is `old`.
pub(crate) fn encode_value_delta(
    record: &Record<'_>,
    checksum: u32,
    old: &[u8],
    out: &mut Vec<u8>,
) {
    varint::put(record.previous.0 << 1, out);
    varint::put(record.value.len() as u64, out);
    out.extend_from_slice(&checksum.to_le_bytes());
    difference::put_value(old, record.value, out);
}

/// Records that replace others, one behind the other.
#[derive(Debug)]
pub(crate) struct ValueDeltasItem<'a> {
    /// Where the first of them begins.
    pub(crate) at: RecordPointer,
    count: u64,
    /// Checked, but for what they say of values that are not at hand.
    records: &'a [u8],
}

impl<'a> ValueDeltasItem<'a> {
    /// Takes one off the input, behind its tag.
    pub(super) fn take(input: &mut &'a [u8]) -> Result<Self> {
        let at = RecordPointer(take_number(input)?);
        let count = take_number(input)?;
        if at == RecordPointer::NONE || count == 0 {
            return Err(damaged("adds to a segment what cannot be there"));
        }
        let from = *input;
        for _ in 0..count {
            Told::take(input)?;
        }
        let records = from.get(..from.len() - input.len()).unwrap_or_default();
        Ok(Self { at, count, records })
    }

    /// Puts the records together, as a commit wrote them, and gives them to `write`, in pieces that lie one behind the
    /// other. They have so much room, in bytes. No piece is longer than [`PIECE_BYTES`] and one record, which is no
    /// longer than one that the store has and what the log has of it: a few bytes may stand for a long record.
    pub(crate) fn put_together<P: ReadPages + ?Sized>(
        &self,
        pages: &P,
        commit: CommitNo,
        mut room: u64,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut input = self.records;
        let mut piece = Vec::new();
        for left in (0..self.count).rev() {
            Told::take(&mut input)?.put_together(pages, commit, &mut piece)?;
            if piece.len() as u64 > room {
                return Err(damaged("adds more than the store has room for"));
            }
            if piece.len() >= PIECE_BYTES || left == 0 {
                write(&piece)?;
                room -= piece.len() as u64;
                piece.clear();
            }
        }
        Ok(())
    }
}

/// What the log tells of one record.
enum Told<'a> {
    Moved(RecordPointer),
    Changed {
        from: RecordPointer,
        /// Of its value.
        length: usize,
        checksum: u32,
        /// How many bytes of the value the log has: it is no longer than these and the old one.
        new_bytes: usize,
        runs: &'a [u8],
    },
}

impl<'a> Told<'a> {
    /// Adds the record.
    fn put_together<P: ReadPages + ?Sized>(
        &self,
        pages: &P,
        commit: CommitNo,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match *self {
            Self::Moved(from) => {
                let moved = Record {
                    commit,
                    previous: from,
                    ..Record::verify(pages, from)?
                };
                moved.encode(out);
            }
            Self::Changed {
                from,
                length,
                checksum,
                new_bytes,
                runs,
            } => {
                let old = Record::read(pages, from)?;
                if length > old.value.len().saturating_add(new_bytes) {
                    return Err(damaged("makes a value longer than it can be"));
                }
                // Not more of the old value than there is to be of the new one, which alone is counted.
                let kept = old.value.get(..length).unwrap_or(old.value);
                let mut value = kept.to_vec();
                value.resize(length, 0);
                difference::apply(runs, old.value, &mut value)?;
                let record = Record {
                    commit,
                    previous: from,
                    key: old.key,
                    value: &value,
                };
                if record.encode(out) != checksum {
                    return Err(Error::corrupt(
                        from.page(),
                        "has not the record that the log changes",
                    ));
                }
            }
        }
        Ok(())
    }

    fn take(input: &mut &'a [u8]) -> Result<Self> {
        let number = take_number(input)?;
        let from = RecordPointer(number >> 1);
        if from == RecordPointer::NONE {
            return Err(damaged("changes a record that is nowhere"));
        }
        if number & 1 == 1 {
            return Ok(Self::Moved(from));
        }
        let length = take_number(input)?;
        let length = u32::try_from(length).map_err(|_| damaged("has a value that is too long"))?;
        let checksum = take(input, 4)?.first_chunk();
        let checksum = checksum.ok_or_else(|| damaged("is too short"))?;
        let begin = *input;
        let mut new_bytes = 0;
        difference::walk(input, length as usize, |_, run| {
            if let Patch::New(bytes) = run {
                new_bytes += bytes.len();
            }
        })?;
        Ok(Self::Changed {
            from,
            length: length as usize,
            checksum: u32::from_le_bytes(*checksum),
            new_bytes,
            runs: begin.get(..begin.len() - input.len()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_made_again(old: &[u8], new: &[u8]) -> usize {
        let mut out = Vec::new();
        difference::put_value(old, new, &mut out);
        let mut input = &out[..];
        difference::walk(&mut input, new.len(), |_, _| ()).unwrap();
        assert!(input.is_empty());
        let mut made = old.to_vec();
        made.resize(new.len(), 0);
        difference::apply(&out, old, &mut made).unwrap();
        assert_eq!(made, new);
        out.len()
    }

    #[test]
    fn what_is_alike_is_not_told() {
        let old: Vec<u8> = (0..=255).collect();
        let mut new = old.clone();
        assert!(is_made_again(&old, &new) <= 4);
        new[50] = 0;
        new[51] = 0;
        new[200] = 0;
        assert!(is_made_again(&old, &new) <= 16);
        new.insert(100, 7);
        assert!(is_made_again(&new, &old) < 180);
        assert!(is_made_again(&old, &[&old[..], b"more"].concat()) < 12);
        is_made_again(&old, &[]);
        is_made_again(&[], &old);
        is_made_again(&[1; 20], &[2; 20]);
        is_made_again(&[1; 20], &[2; 21]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_value_is_made_of_any_other(
            old in prop::collection::vec(0..3_u8, 0..100),
            new in prop::collection::vec(0..3_u8, 0..100),
        ) {
            is_made_again(&old, &new);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), old in prop::collection::vec(any::<u8>(), 0..60)) {
            let _: Result<_> = ValueDeltasItem::take(&mut &bytes[..]);
            let _: Result<_> = difference::apply(&bytes, &old, &mut [0; 50]);
        }
    }
}
