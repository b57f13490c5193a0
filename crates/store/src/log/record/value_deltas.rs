//! Records that take the place of others, as the log tells of them: by what distinguishes their values from those that
//! they replace.
//!
//! A record that is replaced is there as long as a replay may ask for it: its segment is not used again before a meta
//! page holds a commit that is no earlier than the one which freed it.

use super::{TAG_VALUE_DELTAS, damaged, take, take_number};
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::pointer::RecordPointer;
use crate::heap::Record;
use crate::ids::CommitNo;
use crate::tree::entries::common_prefix;
use crate::varint;

/// What the new value and the old one have in common is worth being told from so many bytes on.
const COMMON_BYTES_MIN: usize = 6;

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
    encode_difference(old, record.value, out);
}

/// Runs of bytes that are taken over, each followed by some of the old value that are passed over, and new ones.
fn encode_difference(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    let (mut old, mut new) = (old, new);
    while !new.is_empty() {
        let copied = common_prefix_of(old, new);
        (old, new) = (rest(old, copied), rest(new, copied));
        let (passed, fresh) = if old.len() == new.len() {
            let different = different_bytes(old, new);
            (different, different)
        } else {
            let suffix = common_suffix(old, new);
            let suffix = if suffix < COMMON_BYTES_MIN { 0 } else { suffix };
            (old.len() - suffix, new.len() - suffix)
        };
        for number in [copied, passed, fresh] {
            varint::put(number as u64, out);
        }
        out.extend_from_slice(new.get(..fresh).unwrap_or_default());
        (old, new) = (rest(old, passed), rest(new, fresh));
    }
}

fn rest(bytes: &[u8], from: usize) -> &[u8] {
    bytes.get(from..).unwrap_or_default()
}

fn common_prefix_of(a: &[u8], b: &[u8]) -> usize {
    let length = a.len().min(b.len());
    let parts = a.get(..length).zip(b.get(..length));
    parts.map_or(0, |(a, b)| common_prefix(a, b))
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.take_while(|(a, b)| a == b).count()
}

/// How many bytes differ, up to the next that have something in common that is worth being told.
fn different_bytes(old: &[u8], new: &[u8]) -> usize {
    let mut same = 0;
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        same = if old == new { same + 1 } else { 0 };
        if same == COMMON_BYTES_MIN {
            return at + 1 - same;
        }
    }
    new.len() - if same < COMMON_BYTES_MIN { 0 } else { same }
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

    /// Puts the records together, one behind the other, as a commit wrote them.
    pub(crate) fn put_together<P: ReadPages + ?Sized>(
        &self,
        pages: &P,
        commit: CommitNo,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut input = self.records;
        for _ in 0..self.count {
            match Told::take(&mut input)? {
                Told::Moved(from) => {
                    let moved = Record {
                        commit,
                        previous: from,
                        ..Record::verify(pages, from)?
                    };
                    moved.encode(out);
                }
                Told::Changed {
                    from,
                    length,
                    checksum,
                    runs,
                } => {
                    let old = Record::read(pages, from)?;
                    let value = value_of(old.value, runs, length)
                        .ok_or_else(|| damaged("changes a value that is another one"))?;
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
        }
        Ok(())
    }
}

/// The value that runs make of another one.
fn value_of(old: &[u8], mut runs: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut old = old;
    let mut value = Vec::new();
    while value.len() < length {
        let run = Splice::take(&mut runs).ok()?;
        let (copied, behind) = old.split_at_checked(run.copied)?;
        value.extend_from_slice(copied);
        value.extend_from_slice(run.fresh);
        old = behind.get(run.passed..)?;
    }
    (value.len() == length).then_some(value)
}

/// What the log tells of one record.
enum Told<'a> {
    Moved(RecordPointer),
    Changed {
        from: RecordPointer,
        /// Of its value.
        length: usize,
        checksum: u32,
        runs: &'a [u8],
    },
}

impl<'a> Told<'a> {
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
        let mut covered = 0;
        while covered < length as usize {
            let run = Splice::take(input)?;
            let bytes = run.copied.saturating_add(run.fresh.len());
            if bytes == 0 {
                return Err(damaged("changes nothing"));
            }
            covered = covered.saturating_add(bytes);
        }
        if covered != length as usize {
            return Err(damaged("changes more than there is"));
        }
        Ok(Self::Changed {
            from,
            length: length as usize,
            checksum: u32::from_le_bytes(*checksum),
            runs: begin.get(..begin.len() - input.len()).unwrap_or_default(),
        })
    }
}

struct Splice<'a> {
    copied: usize,
    passed: usize,
    fresh: &'a [u8],
}

impl<'a> Splice<'a> {
    fn take(input: &mut &'a [u8]) -> Result<Self> {
        let mut next = || {
            let number = take_number(input)?;
            usize::try_from(number).map_err(|_| damaged("has a run of impossible length"))
        };
        let (copied, passed, fresh) = (next()?, next()?, next()?);
        let fresh = take(input, fresh)?;
        Ok(Self {
            copied,
            passed,
            fresh,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_made_again(old: &[u8], new: &[u8]) -> usize {
        let mut out = Vec::new();
        encode_difference(old, new, &mut out);
        assert_eq!(value_of(old, &out, new.len()).as_deref(), Some(new));
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
            let _: Option<_> = value_of(&old, &bytes, 50);
        }
    }
}
