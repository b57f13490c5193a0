//! Records on their way to a sorter that several threads share: gathered, so that it is locked once for many.

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

    /// Hands all records to the sorter.
    pub(super) fn flush(&mut self, sorter: &Mutex<Sorter>) -> Result<()> {
        let mut sorter = sorter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = self.bytes.as_slice();
        for (key, value) in self.lengths.drain(..) {
            let (key, behind) = rest.split_at(key);
            let (value, behind) = behind.split_at(value);
            sorter.push(key, value).map_err(sort_failed)?;
            rest = behind;
        }
        self.bytes.clear();
        Ok(())
    }
}
