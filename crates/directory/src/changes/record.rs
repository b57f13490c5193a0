//! The record that a transaction leaves in the change feed.
//!
//! ```text
//!  form:1      2; 3 in a directory of several stores
//!  clock:13    micros:8 count:3 replica:2: the clock's number for the first update
//!  watermark:13  of form 3: all changes up to this number are visible to all who see the record
//!  then for each update
//!    kind:1    1 added, 2 deleted, 3 modified, 4 renamed; with flags
//!    id:8      of the entry
//!    csn:13    with flag 0x40: its number. Without it, the number is the one right behind that of the update
//!              before; of the first, `clock`
//!    of a delete and a rename
//!      uuid:16   entryUUID
//!      dn        length as varint, then the DN that the entry had, as written
//! ```
//!
//! With flag 0x80 the number stands apart: the clock did not follow it. Numbers are little-endian. Updates that are
//! made in one go have consecutive numbers, so that most take nine bytes. A record without updates says what the clock
//! has shown.

#![deny(clippy::indexing_slicing)]

use super::clock::Drawn;
use super::{Change, ChangeKind, Csn, Damaged, Former};
use crate::engine::{EntryId, put_varint, take_varint};

const FORM: u8 = 2;
const FORM_WITH_WATERMARK: u8 = 3;
const HAS_CSN: u8 = 0x40;
const STANDS_APART: u8 = 0x80;
/// Where the watermark stands.
const WATERMARK_AT: usize = 1 + Csn::BYTES;

/// A record while it is made.
#[derive(Debug, Default)]
pub(crate) struct RecordBuf {
    bytes: Vec<u8>,
    /// The number that the next update has if it does not say its own.
    next: Csn,
    /// Updates that took an entry away.
    deletions: usize,
}

/// What was in a record before an update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    bytes: usize,
    next: Csn,
    deletions: usize,
}

impl RecordBuf {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.deletions = 0;
    }

    /// Whether no update was made.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether an entry is taken away.
    pub(crate) fn has_deletions(&self) -> bool {
        self.deletions > 0
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            next: self.next,
            deletions: self.deletions,
        }
    }

    /// Forgets the updates since a mark.
    pub(crate) fn undo(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.next = mark.next;
        self.deletions = mark.deletions;
    }

    /// Adds an update. What was deleted or renamed is `former`.
    pub(crate) fn push(
        &mut self,
        kind: ChangeKind,
        id: EntryId,
        drawn: Drawn,
        former: Option<Former<'_>>,
    ) {
        if self.bytes.is_empty() {
            self.begin(drawn.clock);
        }
        let csn = drawn.csn;
        let mut head = [0; 9];
        let [flags, number @ ..] = &mut head;
        *flags = kind as u8;
        *number = id.0.to_le_bytes();
        if csn == self.next {
            self.bytes.extend_from_slice(&head);
            self.next = csn.next();
        } else {
            self.push_with_csn(head, drawn);
        }
        if let Some(Former { uuid, dn }) = former {
            self.bytes.extend_from_slice(&uuid);
            put_varint(&mut self.bytes, dn.len() as u64);
            self.bytes.extend_from_slice(dn.as_bytes());
        }
        self.deletions += usize::from(kind == ChangeKind::Deleted);
    }

    #[cold]
    fn push_with_csn(&mut self, mut head: [u8; 9], Drawn { csn, clock }: Drawn) {
        let [flags, ..] = &mut head;
        *flags |= HAS_CSN;
        if csn == clock {
            self.next = csn.next();
        } else {
            *flags |= STANDS_APART;
        }
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(&csn.to_bytes());
    }

    /// Begins a record whose first update has this number of the clock.
    pub(crate) fn begin(&mut self, clock: Csn) {
        self.bytes.push(FORM);
        self.bytes.extend_from_slice(&clock.to_bytes());
        self.next = clock;
    }

    /// The record, with a watermark if numbers may become visible in another order than they were drawn in.
    pub(crate) fn finish(&mut self, watermark: Option<Csn>) -> &[u8] {
        if let Some(watermark) = watermark {
            if let Some(form) = self.bytes.first_mut() {
                *form = FORM_WITH_WATERMARK;
            }
            let at = WATERMARK_AT.min(self.bytes.len());
            self.bytes.splice(at..at, watermark.to_bytes());
        }
        &self.bytes
    }
}

/// A record that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'r> {
    clock: Csn,
    watermark: Option<Csn>,
    updates: &'r [u8],
}

impl<'r> Record<'r> {
    pub(crate) fn read(bytes: &'r [u8]) -> Result<Record<'r>, Damaged> {
        let (&form, mut rest) = bytes.split_first().ok_or(Damaged)?;
        let clock = take_csn(&mut rest)?;
        let watermark = match form {
            FORM => None,
            FORM_WITH_WATERMARK => Some(take_csn(&mut rest)?),
            _ => return Err(Damaged),
        };
        Ok(Record {
            clock,
            watermark,
            updates: rest,
        })
    }

    /// What the clock had shown when the first update was made.
    pub(crate) fn begun(&self) -> Csn {
        self.clock
    }

    /// The last number that the clock has shown for it.
    pub(crate) fn last(&self) -> Result<Csn, Damaged> {
        let mut changes = self.changes();
        changes.try_for_each(|change| change.map(drop))?;
        Ok(changes.last)
    }

    /// All changes up to this number are visible to all who see the record.
    pub(crate) fn watermark(&self) -> Result<Csn, Damaged> {
        match self.watermark {
            Some(watermark) => Ok(watermark),
            None => self.last(),
        }
    }

    /// Its updates, in the order in which they were made. They end with the first that is damaged.
    pub(crate) fn changes(&self) -> Changes<'r> {
        Changes {
            rest: self.updates,
            next: self.clock,
            last: self.clock,
        }
    }
}

/// The updates of a record.
#[derive(Clone, Debug)]
pub(crate) struct Changes<'r> {
    rest: &'r [u8],
    next: Csn,
    /// The last number of the clock so far.
    last: Csn,
}

impl<'r> Changes<'r> {
    fn read(&mut self) -> Result<Change<'r>, Damaged> {
        let (&[flags, ref id @ ..], rest) = self.rest.split_first_chunk::<9>().ok_or(Damaged)?;
        self.rest = rest;
        let kind = match flags & !(HAS_CSN | STANDS_APART) {
            1 => ChangeKind::Added,
            2 => ChangeKind::Deleted,
            3 => ChangeKind::Modified,
            4 => ChangeKind::Renamed,
            _ => return Err(Damaged),
        };
        let csn = match flags & HAS_CSN {
            0 => self.next,
            _ => take_csn(&mut self.rest)?,
        };
        if flags & STANDS_APART == 0 {
            self.next = csn.next();
            self.last = self.last.max(csn);
        }
        let former = match kind {
            ChangeKind::Deleted | ChangeKind::Renamed => Some(self.former()?),
            _ => None,
        };
        Ok(Change {
            kind,
            entry: EntryId(u64::from_le_bytes(*id)),
            csn,
            former,
        })
    }

    fn former(&mut self) -> Result<Former<'r>, Damaged> {
        let (uuid, mut rest) = self.rest.split_first_chunk::<16>().ok_or(Damaged)?;
        let length = take_varint(&mut rest).ok_or(Damaged)?;
        let length = usize::try_from(length).map_err(|_| Damaged)?;
        let (dn, rest) = rest.split_at_checked(length).ok_or(Damaged)?;
        self.rest = rest;
        Ok(Former {
            uuid: *uuid,
            dn: std::str::from_utf8(dn).map_err(|_| Damaged)?,
        })
    }
}

impl<'r> Iterator for Changes<'r> {
    type Item = Result<Change<'r>, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

fn take_csn(rest: &mut &[u8]) -> Result<Csn, Damaged> {
    let (csn, behind) = rest.split_first_chunk().ok_or(Damaged)?;
    *rest = behind;
    Ok(Csn::from_bytes(*csn))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn csn(micros: u64, count: u32) -> Csn {
        Csn {
            micros,
            count,
            replica: 7,
        }
    }

    fn all<'r>(bytes: &'r [u8]) -> Vec<Change<'r>> {
        let changes = Record::read(bytes).unwrap().changes();
        changes.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_record_of_one_modify_is_short_and_more_of_them_take_nine_bytes_each() {
        let mut record = RecordBuf::default();
        for count in 0..3 {
            let csn = csn(5, count);
            record.push(
                ChangeKind::Modified,
                EntryId(9),
                Drawn { csn, clock: csn },
                None,
            );
        }
        let bytes = record.finish(None);
        assert_eq!(bytes.len(), 14 + 3 * 9);
        let numbers: Vec<Csn> = all(bytes).iter().map(|change| change.csn).collect();
        assert_eq!(numbers, [csn(5, 0), csn(5, 1), csn(5, 2)]);
        assert_eq!(Record::read(bytes).unwrap().watermark(), Ok(csn(5, 2)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Updates with gaps between their numbers, some of which stand apart, and some of which are undone.
        #[test]
        fn what_is_recorded_is_read(
            updates in prop::collection::vec(
                (1..5u8, any::<u64>(), 0..3u32, any::<bool>(), 0..4u8, "[a-z=,]{0,300}"),
                0..20,
            ),
            watermark in any::<bool>(),
        ) {
            let mut record = RecordBuf::default();
            let (mut clock, mut last) = (csn(1_000, 0), None);
            let mut expected = Vec::new();
            for (kind, id, gap, is_apart, undone, dn) in &updates {
                let kind = match kind {
                    1 => ChangeKind::Added,
                    2 => ChangeKind::Deleted,
                    3 => ChangeKind::Modified,
                    _ => ChangeKind::Renamed,
                };
                clock.count += 1 + gap;
                let number = if *is_apart { csn(9_000, clock.count) } else { clock };
                let named = matches!(kind, ChangeKind::Deleted | ChangeKind::Renamed);
                let former = named.then_some(Former { uuid: [*gap as u8; 16], dn });
                let mark = record.mark();
                record.push(kind, EntryId(*id), Drawn { csn: number, clock }, former);
                if *undone == 0 {
                    record.undo(mark);
                    continue;
                }
                // Of the first, the clock's number is said in any case.
                if !is_apart || expected.is_empty() {
                    last = Some(clock);
                }
                expected.push(Change { kind, entry: EntryId(*id), csn: number, former });
            }
            let deletions = expected.iter().filter(|change| change.kind == ChangeKind::Deleted);
            prop_assert_eq!(record.has_deletions(), deletions.count() > 0);
            prop_assert_eq!(record.is_empty(), expected.is_empty());
            if expected.is_empty() {
                return Ok(());
            }
            let told = watermark.then_some(csn(700, 1));
            let bytes = record.finish(told).to_vec();
            prop_assert_eq!(all(&bytes), expected);
            let read = Record::read(&bytes).unwrap();
            prop_assert_eq!(read.last().ok(), last);
            prop_assert_eq!(read.watermark().ok(), told.or(last));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            form in 0..5u8,
            kind in 0..8u8,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = form;
            }
            if let Some(first) = bytes.get_mut(14) {
                *first = *first & 0xC0 | kind;
            }
            if let Ok(record) = Record::read(&bytes) {
                prop_assert!(record.changes().count() <= bytes.len() / 9 + 1);
                let _ = record.watermark();
            }
        }
    }
}
