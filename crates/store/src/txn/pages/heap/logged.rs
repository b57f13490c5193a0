//! What the log says of records and pointers, and pointers stored when it has said it.

use super::damaged;
use crate::env::mapping::Tail;
use crate::error::Result;
use crate::format::pointer::RecordPointer;
use crate::format::roots::Head;
use crate::heap::{Record, SEGMENT_HEADER_BYTES};
use crate::log::append::AppendLock;
use crate::log::record::{
    begin_value_deltas, encode_moved, encode_pointers, encode_records, encode_value_delta,
};
use crate::txn::pages::TxnPages;

impl TxnPages {
    /// Has the log record tell of the records that were added.
    pub(crate) fn log_records(&self, out: &mut Vec<u8>) -> Result<()> {
        let tails = self.records().map_or(&[][..], |own| &own.tails);
        tails.iter().try_for_each(|tail| self.log_tail(tail, out))
    }

    /// Records that replace others are told by what is new in them, many with one item.
    fn log_tail(&self, tail: &Tail, out: &mut Vec<u8>) -> Result<()> {
        let damaged = || damaged(tail.segment.first);
        let mut moved = tail.moved.iter().peekable();
        // A segment that begins here begins with its header.
        let mut at = match tail.from {
            0 => SEGMENT_HEADER_BYTES.min(tail.bytes.len()),
            _ => 0,
        };
        let mut item = LoggedRecords::new(tail);
        while let Some(bytes) = tail.bytes.get(at..).filter(|bytes| !bytes.is_empty()) {
            let record = Record::decode(bytes).ok_or_else(damaged)?;
            match moved.next_if(|(moved, _)| *moved as usize == at) {
                Some(&(_, from)) => encode_moved(from, item.deltas(at, out)),
                None if record.previous == RecordPointer::NONE => item.plain(at, out),
                None => {
                    let old = Record::read(&self.view, record.previous)?.value;
                    let checksum = Record::checksum_in(bytes);
                    encode_value_delta(&record, checksum, old, item.deltas(at, out));
                }
            }
            at += Record::bytes(record.value.len());
        }
        item.end(at, out);
        Ok(())
    }

    /// Has it tell of the pointers that will be stored to.
    pub(crate) fn log_pointers(&self, out: &mut Vec<u8>) {
        let Some(own) = self.records() else {
            return;
        };
        for (leaf, pointers) in own.pointers() {
            encode_pointers(leaf, pointers, out);
        }
    }

    /// Whether there are pointers to be stored in leaves of earlier commits.
    pub(crate) fn stores_pointers(&self) -> bool {
        self.records().is_some_and(|own| own.stored() > 0)
    }

    /// Stores the pointers that leaves are to have from the commit with this head on, whose record is appended.
    pub(crate) fn store_pointers(&mut self, appending: &AppendLock<'_>, head: &Head) -> Result<()> {
        let Some(own) = self.view.records.as_deref().filter(|own| own.stored() > 0) else {
            return Ok(());
        };
        for (leaf, pointers) in own.pointers() {
            let windows = &mut self.shop.windows;
            let pointers = pointers.iter().copied();
            appending.store_pointers(&self.inner, windows, head, leaf, pointers)?;
        }
        Ok(())
    }
}

/// An item of a log record about what was added to a segment.
struct LoggedRecords<'t> {
    tail: &'t Tail,
    /// Where it begins.
    from: usize,
    /// How many records replace others; otherwise the bytes are told as they are.
    deltas: usize,
    told: Vec<u8>,
}

impl<'t> LoggedRecords<'t> {
    fn new(tail: &'t Tail) -> Self {
        Self {
            tail,
            from: 0,
            deltas: 0,
            told: Vec::new(),
        }
    }

    /// Where to tell of the record at a position, which replaces another.
    fn deltas(&mut self, at: usize, out: &mut Vec<u8>) -> &mut Vec<u8> {
        if self.deltas == 0 {
            self.end(at, out);
        }
        self.deltas += 1;
        &mut self.told
    }

    /// The record at a position is told as it is.
    fn plain(&mut self, at: usize, out: &mut Vec<u8>) {
        if self.deltas > 0 {
            self.end(at, out);
        }
    }

    fn end(&mut self, at: usize, out: &mut Vec<u8>) {
        let begin = u64::from(self.tail.from) + self.from as u64;
        if let Some(pointer) = RecordPointer::at(self.tail.segment.first, begin) {
            if self.deltas > 0 {
                begin_value_deltas(pointer, self.deltas, out);
                out.append(&mut self.told);
            } else if self.from < at {
                encode_records(pointer, &self.tail.bytes[self.from..at], out);
            }
        }
        (self.from, self.deltas) = (at, 0);
    }
}
