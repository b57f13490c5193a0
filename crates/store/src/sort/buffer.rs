//! Records in memory, and sorting them.

use super::{HEAD_BYTES, head_of};

/// Records in memory: their bytes one after the other, and what is sorted in their stead.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    bytes_max: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The eight bytes of the key that are being sorted by.
    head: u64,
    at: usize,
    key_len: u32,
    value_len: u32,
}

impl Buffer {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            bytes_max,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn has_room(&self, key: &[u8], value: &[u8]) -> bool {
        let entries = (self.entries.len() + 1) * size_of::<Entry>();
        self.bytes.len() + key.len() + value.len() + entries <= self.bytes_max
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        if self.bytes.capacity() == 0 {
            // Vectors that grow by doubling would need half as much again while they move. What is reserved but
            // never written to takes no memory.
            self.bytes.reserve(self.bytes_max);
            self.entries
                .reserve(self.bytes_max / size_of::<Entry>() + 1);
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_len, value_len) = (key.len() as u32, value.len() as u32);
        self.entries.push(Entry {
            head: 0,
            at,
            key_len,
            value_len,
        });
    }

    pub(super) fn record(&self, entry: usize) -> (&[u8], &[u8]) {
        self.entries[entry].record(&self.bytes)
    }

    pub(super) fn sort(&mut self) {
        sort_from(&mut self.entries, &self.bytes, 0);
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(self.bytes_max);
        self.entries.clear();
    }
}

/// So few records are sorted by comparing them as a whole.
const COMPARED_MAX: usize = 12;

/// Sorts records whose keys agree in their first `depth` bytes: by the next eight as a number, then each group of equal
/// ones by those that follow. Keys of a directory begin alike, and comparing them as a whole would read their
/// beginnings, in places far from each other, again and again.
fn sort_from(entries: &mut [Entry], bytes: &[u8], mut depth: usize) {
    loop {
        if entries.len() <= COMPARED_MAX {
            return sort_whole(entries, bytes);
        }
        let mut all_reach_further = true;
        let mut differing = 0;
        let mut first = None;
        for entry in &mut *entries {
            let (key, _) = entry.record(bytes);
            entry.head = head_of(&key[depth..]);
            differing |= entry.head ^ *first.get_or_insert(entry.head);
            all_reach_further &= key.len() >= depth + HEAD_BYTES;
        }
        if differing != 0 {
            break;
        }
        if !all_reach_further {
            return sort_whole(entries, bytes);
        }
        depth += HEAD_BYTES;
    }
    entries.sort_unstable_by_key(|entry| entry.head);
    for group in entries.chunk_by_mut(|one, other| one.head == other.head) {
        let reach = |entry: &Entry| entry.key_len as usize >= depth + HEAD_BYTES;
        if group.len() > COMPARED_MAX && group.iter().all(reach) {
            sort_from(group, bytes, depth + HEAD_BYTES);
        } else if group.len() > 1 {
            // Among keys that end here the zeroes of a head may be padding or part of the key.
            sort_whole(group, bytes);
        }
    }
}

fn sort_whole(entries: &mut [Entry], bytes: &[u8]) {
    entries.sort_unstable_by(|one, other| one.record(bytes).cmp(&other.record(bytes)));
}

impl Entry {
    fn record<'b>(&self, bytes: &'b [u8]) -> (&'b [u8], &'b [u8]) {
        let value_at = self.at + self.key_len as usize;
        (
            &bytes[self.at..value_at],
            &bytes[value_at..value_at + self.value_len as usize],
        )
    }
}
