//! Reads records that stand one after the other, each behind its length.

use std::io;
use std::ops::Range;

use super::LENGTH_BYTES;

/// Records from one place to another.
#[derive(Debug)]
pub(super) struct Records {
    /// What was not read yet.
    unread: Range<u64>,
    /// Bytes that are read at once.
    read_bytes: usize,
    /// What was read, and how much of it was taken.
    read: Vec<u8>,
    used: usize,
}

impl Records {
    pub(super) fn new(places: Range<u64>, read_bytes: usize) -> Records {
        Records {
            unread: places,
            read_bytes,
            read: Vec::new(),
            used: 0,
        }
    }

    /// The next record; `fill` reads the bytes from a place on.
    pub(super) fn next(
        &mut self,
        fill: impl Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<Option<Vec<u8>>> {
        let length = match self.take(LENGTH_BYTES, &fill)? {
            Some(&[low, high]) => u16::from_le_bytes([low, high]),
            _ => return Ok(None),
        };
        Ok(self.take(length.into(), &fill)?.map(<[u8]>::to_vec))
    }

    /// So many of the bytes that come next; `None` at the end.
    fn take(
        &mut self,
        bytes: usize,
        fill: impl Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<Option<&[u8]>> {
        let left = self.read.len() - self.used;
        if left < bytes {
            self.read.drain(..self.used);
            self.used = 0;
            let more = (self.read_bytes.max(bytes) - left) as u64;
            let more = more.min(self.unread.end.saturating_sub(self.unread.start));
            self.read.resize(left + more as usize, 0);
            let part = self.read.get_mut(left..).unwrap_or_default();
            fill(part, self.unread.start)?;
            self.unread.start += more;
            if self.read.len() < bytes {
                return Ok(None);
            }
        }
        let from = self.used;
        self.used += bytes;
        Ok(self.read.get(from..self.used))
    }
}
