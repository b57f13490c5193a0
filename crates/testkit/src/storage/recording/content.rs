//! The bytes of a simulated file, sparse and cheap to copy.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What a disk writes wholly or not at all, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;

/// The bytes of one sector.
pub(super) type Sector = [u8; SECTOR_BYTES];

/// A sequence of bytes; those that were never written are zero and take no space.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Only says how large the file is; bytes behind the end stay, and show again if it grows.
    pub(super) fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    pub(super) fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (page, within) = split(offset, PAGE_BYTES);
            let length = bytes.len().min(PAGE_BYTES - within);
            let (now, rest) = bytes.split_at(length);
            let content = self
                .pages
                .entry(page)
                .or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(content)[within..within + length].copy_from_slice(now);
            offset += length as u64;
            bytes = rest;
        }
    }

    /// Makes everything from `offset` on zero.
    pub(super) fn clear_from(&mut self, offset: u64) {
        let (page, within) = split(offset, PAGE_BYTES);
        if let Some(content) = self.pages.get_mut(&page) {
            Arc::make_mut(content)[within..].fill(0);
        }
        self.pages.retain(|number, _| *number <= page);
    }

    pub(super) fn sector(&self, sector: u64) -> Sector {
        let (page, within) = split(sector * SECTOR_BYTES as u64, PAGE_BYTES);
        let mut bytes = [0; SECTOR_BYTES];
        if let Some(content) = self.pages.get(&page) {
            bytes.copy_from_slice(&content[within..within + SECTOR_BYTES]);
        }
        bytes
    }

    /// The pages that were written, each with the offset of its first byte.
    pub(super) fn pages(&self) -> impl Iterator<Item = (u64, &[u8; PAGE_BYTES])> {
        let size = self.size;
        self.pages
            .iter()
            .map(|(page, bytes)| (page * PAGE_BYTES as u64, &**bytes))
            .take_while(move |(offset, _)| *offset < size)
    }

    /// The sectors that `offset..offset + length` touches.
    pub(super) fn sectors(offset: u64, length: usize) -> Range<u64> {
        let end = offset + length as u64;
        offset / SECTOR_BYTES as u64..end.div_ceil(SECTOR_BYTES as u64)
    }
}

fn split(offset: u64, unit: usize) -> (u64, usize) {
    let within = usize::try_from(offset % unit as u64).unwrap_or_default();
    (offset / unit as u64, within)
}
