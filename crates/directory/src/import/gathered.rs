//! Records on their way to another thread, or to a sorter that several share: gathered, so that they are handed over,
//! and it is locked, once for many.

use std::sync::{Mutex, PoisonError};

use sapwood_store::sort::Sorter;

use super::sort_failed;
use crate::error::Result;

/// Keys and values, one behind the other.
#[derive(Default)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    /// The lengths of each record's key and value.
    lengths: Vec<(usize, usize)>,
}

/// A reader's place in gathered records.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    record: usize,
    at: usize,
}

impl Gathered {
    /// Adds a record: `write` appends the key, answers where it ends, and appends the value.
    pub(super) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> usize) {
        let start = self.bytes.len();
        let end_of_key = write(&mut self.bytes);
        self.lengths
            .push((end_of_key - start, self.bytes.len() - end_of_key));
    }

    /// How many records there are.
    pub(super) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Forgets the records and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }

    /// Whether a reader has come to the end.
    pub(super) fn is_at_end(&self, place: &Place) -> bool {
        place.record == self.lengths.len()
    }

    /// The key and the value at a place, which then moves on to the next.
    pub(super) fn record(&self, place: &mut Place) -> Option<(&[u8], &[u8])> {
        let (key, value) = *self.lengths.get(place.record)?;
        let (key, rest) = self.bytes.get(place.at..)?.split_at_checked(key)?;
        let value_at = place.at + key.len();
        place.record += 1;
        place.at = value_at + value;
        Some((key, rest.get(..value)?))
    }

    /// Hands all records to the sorter.
    pub(super) fn flush(&mut self, sorter: &Mutex<Sorter>) -> Result<()> {
        let mut sorter = sorter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = Place::default();
        while let Some((key, value)) = self.record(&mut place) {
            sorter.push(key, value).map_err(sort_failed)?;
        }
        self.clear();
        Ok(())
    }
}
