//! The end of the log in memory: records that are on their way to the disk.
//!
//! A record that somebody is going to wait for need not be handed to the system first. It goes into a *buffer*, memory
//! that all users of the log share, and the one that leads the next sync writes whole blocks from there past the page
//! cache, in one call that returns when they are on the disk. That takes less time, and less of the processor's, than a
//! write and a sync of it. Nor need others be that must survive the death of all processes
//! ([`Wal::append`](crate::Wal::append)), if the memory does: the one that comes next salvages them (`salvage`), and
//! until then some of them at a time are handed to the system, or synced with the rest. Everything else is written to
//! the files as it is appended, and synced as any file is: large records, and all of them where the file system or a
//! missing buffer leave no other way.
//!
//! ```text
//!            on the disk          with the system, or there       in the buffer
//!   ... ------------------------+-------------------------+----------------------+
//!                               durable                   written                end
//! ```
//!
//! - The buffer is a ring. It holds everything from the beginning of the block of `written` on, if it is `primed`; if
//!   it is not, everything is written.
//! - What is behind the end of the last block that is written is filled with zeroes. So the room of the log ends at the
//!   beginning of a block ([`Wal::room`](crate::Wal::room)).
//! - Blocks are written only if all before them is on the disk. If the system still has something in its cache, the
//!   rest is handed to it too, and the files are synced.
//! - Who writes to the files of a log with a buffer holds the lock `writing`: two writes of the same block must not
//!   meet. If a holder dies, the same blocks are written once more.

use std::ops::Range;
use std::sync::Arc;

use crate::Lsn;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::storage::BLOCK_BYTES;
use crate::sync::{AtomicU64, Ordering};

// Blocks of the stream are blocks of the files.
const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(BLOCK_BYTES as u64));

/// A larger part of the buffer than one in so many is not taken by a single record. With more than that on its way,
/// some of it had better be written; while that much is free still, nobody has to wait for it.
pub(crate) const PARTS: u64 = 4;

/// Memory that all users of a log share, and what they need to exclude each other from the files.
pub(crate) struct Buffer {
    pub(crate) words: Arc<dyn AsRef<[AtomicU64]> + Send + Sync>,
    pub(crate) outlives: bool,
    pub(crate) me: u16,
    pub(crate) is_alive: Box<dyn Fn(u16) -> bool + Send + Sync>,
}

impl Buffer {
    pub(crate) fn words(&self) -> &[AtomicU64] {
        (*self.words).as_ref()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.words().len() as u64 * 8
    }

    /// Whether what is between two places need not be written for fear of the death of all processes.
    pub(crate) fn keeps(&self, from: Lsn, to: Lsn) -> bool {
        self.outlives && to.0 - from.0 <= self.bytes() - self.bytes() / PARTS
    }

    /// Stores the parts one after the other, whose bytes together are a multiple of eight.
    pub(crate) fn store<'p>(&self, lsn: Lsn, parts: impl Iterator<Item = &'p [u8]>) {
        let mut places = Places::from(self.words(), lsn);
        let (mut word, mut filled) = ([0; 8], 0);
        for mut part in parts {
            if filled > 0 {
                let (head, rest) = part.split_at(part.len().min(8 - filled));
                word[filled..filled + head.len()].copy_from_slice(head);
                filled += head.len();
                part = rest;
                if filled < 8 {
                    continue;
                }
                places.store(&[word]);
            }
            let (words, rest) = part.as_chunks();
            places.store(words);
            word[..rest.len()].copy_from_slice(rest);
            filled = rest.len();
        }
        debug_assert_eq!(filled, 0, "records are aligned");
    }

    /// The blocks of `from..to`, zeroes behind the end, and where they begin.
    pub(crate) fn blocks_of<'b>(
        &self,
        from: Lsn,
        to: Lsn,
        blocks: &'b mut Blocks,
    ) -> (Lsn, &'b [u8]) {
        let block = block_of(from);
        let filled = offset(to.0 - block.0);
        let bytes = filled.next_multiple_of(BLOCK_BYTES);
        blocks.make_room(bytes);
        // The one that wrote last to this block has the beginning of it, and zeroes up to its end.
        let (known, zeroed) = match blocks.holds == (block..from) {
            true => (offset(from.0 - block.0), filled.max(BLOCK_BYTES)),
            false => (0, filled),
        };
        blocks.holds = block..to;
        let memory = blocks.memory(bytes);
        let first = Lsn(block.0 + known as u64);
        load(self.words(), first, &mut memory[known..filled]);
        memory[zeroed..].fill(0);
        (block, memory)
    }
}

/// Memory at whose beginning blocks can be written from; it grows when needed.
#[derive(Debug)]
pub(crate) struct Blocks {
    memory: Vec<u8>,
    /// The part of the log that it holds, from the beginning of a block on, and zeroes behind it. What was ever written
    /// does not change.
    pub(crate) holds: Range<Lsn>,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            memory: Vec::new(),
            holds: Lsn(0)..Lsn(0),
        }
    }
}

impl Blocks {
    pub(crate) fn make_room(&mut self, bytes: usize) {
        if self.memory.len() < bytes + BLOCK_BYTES {
            *self = Self::default();
            self.memory.resize(bytes + BLOCK_BYTES, 0);
        }
    }

    pub(crate) fn memory(&mut self, bytes: usize) -> &mut [u8] {
        let skip = self.memory.as_ptr().align_offset(BLOCK_BYTES);
        &mut self.memory[skip..skip + bytes]
    }
}

/// Where the block of a place begins.
pub(crate) fn block_of(lsn: Lsn) -> Lsn {
    Lsn(lsn.0 - lsn.0 % BLOCK_BYTES as u64)
}

/// Where bytes are in the memory of a buffer: up to its end, and then from its beginning on.
struct Places<'b> {
    behind: &'b [AtomicU64],
    before: &'b [AtomicU64],
}

impl<'b> Places<'b> {
    /// Those of the bytes from `lsn` on.
    fn from(words: &'b [AtomicU64], lsn: Lsn) -> Self {
        let first = (lsn.0 / 8) % words.len().max(1) as u64;
        let (behind, before) = words.split_at(usize::try_from(first).unwrap_or_default());
        Self {
            behind: before,
            before: behind,
        }
    }

    /// The places of the next words, as many as lie together.
    fn next(&mut self, words: usize) -> &'b [AtomicU64] {
        if self.behind.is_empty() {
            self.behind = std::mem::take(&mut self.before);
        }
        let (now, rest) = self.behind.split_at(words.min(self.behind.len()));
        self.behind = rest;
        now
    }

    fn store(&mut self, mut words: &[[u8; 8]]) {
        while !words.is_empty() {
            let places = self.next(words.len());
            if places.is_empty() {
                break;
            }
            let (now, rest) = words.split_at(places.len());
            for (place, word) in places.iter().zip(now) {
                place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
            words = rest;
        }
    }
}

/// Fills `bytes`, a multiple of eight, with what is there from `lsn` on.
pub(crate) fn load(words: &[AtomicU64], lsn: Lsn, bytes: &mut [u8]) {
    let (mut loaded, _) = bytes.as_chunks_mut();
    let mut places = Places::from(words, lsn);
    while !loaded.is_empty() {
        let places = places.next(loaded.len());
        if places.is_empty() {
            break;
        }
        let (now, rest) = loaded.split_at_mut(places.len());
        for (word, place) in now.iter_mut().zip(places) {
            *word = place.load(Ordering::Relaxed).to_le_bytes();
        }
        loaded = rest;
    }
}

/// A difference between two places that are close together.
pub(crate) fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_in_parts_is_loaded() {
        let words: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(u64::MAX)).collect();
        let buffer = Buffer {
            words: Arc::new(words),
            outlives: false,
            me: 0,
            is_alive: Box::new(|_| true),
        };
        let bytes: Vec<u8> = (0..96).collect();
        for lsn in (0..256).step_by(8).map(Lsn) {
            for (first, second) in [(0, 0), (3, 5), (1, 9), (7, 80), (8, 16), (13, 83), (96, 0)] {
                let (head, rest) = bytes.split_at(first);
                let (middle, tail) = rest.split_at(second);
                buffer.store(lsn, [head, middle, tail].into_iter());
                let mut loaded = [0; 96];
                load(buffer.words(), lsn, &mut loaded);
                assert_eq!(loaded, *bytes, "{lsn}, {first} and {second} bytes");
                // What was not stored to is as it was.
                let mut behind = [0; 8];
                load(buffer.words(), Lsn(lsn.0 + 96), &mut behind);
                assert_eq!(behind, [0xff; 8]);
                let clear = [0xff; 96];
                buffer.store(lsn, std::iter::once(&clear[..]));
            }
        }
    }

    #[test]
    fn blocks_hold_what_the_buffer_does_whoever_wrote_what_was_before() {
        let words = Arc::new(Vec::from_iter((0..4096).map(|_| AtomicU64::new(7))));
        let buffer = Buffer {
            words,
            outlives: false,
            me: 0,
            is_alive: Box::new(|_| true),
        };
        let (mut mine, mut others) = (Blocks::default(), Blocks::default());
        let mut from = Lsn(BLOCK_BYTES as u64);
        for round in 0..300_u64 {
            let bytes = [8, 640, 4096, 3456, 9000, 64][(round % 6) as usize];
            let record: Vec<u8> = (0..bytes).map(|at| (at + round) as u8).collect();
            buffer.store(from, std::iter::once(&*record));
            let to = Lsn(from.0 + bytes);
            // Sometimes another one writes in between, and sometimes a write is repeated.
            let blocks = if round % 7 == 3 {
                &mut others
            } else {
                &mut mine
            };
            for _ in 0..=round % 2 {
                let (block, found) = buffer.blocks_of(from, to, blocks);
                let filled = offset(to.0 - block.0);
                let mut expected = vec![0; found.len()];
                load(buffer.words(), block, &mut expected[..filled]);
                assert!(found == expected, "{round}");
                assert_eq!((block, found.len() % BLOCK_BYTES), (block_of(from), 0));
            }
            from = to;
        }
    }
}
