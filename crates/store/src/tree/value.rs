//! Values that do not fit into a leaf: an extent of consecutive pages each, written once and never changed.
//!
//! ```text
//!  offset  size  field
//!       0    24  common header (kind Extent); the checksum covers header and value
//!      24     8  length of the value in bytes
//!      32        the value, in one piece across page borders; then zeroes up to the end of the last page
//! ```

use crate::error::{Error, Result};
use crate::format::page;
use crate::format::page::{PAGE_BYTES, PAGE_HEADER_BYTES, PageKind};
use crate::format::pages::{AppendPages, ReadPages, WritePages};
use crate::ids::{CommitNo, PageNo};
use crate::limits::VALUE_BYTES_MAX;
use crate::tree::node;
use crate::tree::node::EXTENT_POINTER_BYTES;

const EXTENT_HEADER_BYTES: usize = PAGE_HEADER_BYTES + 8;

/// Where a large value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExtentPointer {
    pub(crate) first: PageNo,
    pub(crate) len: u64,
}

impl ExtentPointer {
    /// What stands in a cell of this leaf.
    pub(crate) fn decode(payload: &[u8], leaf: PageNo) -> Result<Self> {
        let pair = payload.first_chunk().map(node::decode_pair);
        match pair.map(|(first, len)| (PageNo(first), len)) {
            Some((first, len)) if len <= VALUE_BYTES_MAX as u64 => Ok(Self { first, len }),
            _ => Err(Error::corrupt(leaf, "pointer to an extent is damaged")),
        }
    }

    pub(crate) fn encode(self) -> [u8; EXTENT_POINTER_BYTES] {
        node::encode_pair(self.first.0, self.len)
    }

    pub(crate) fn pages(self) -> u32 {
        extent_pages(self.len as usize)
    }
}

/// How many pages a large value takes.
pub(crate) fn extent_pages(value_len: usize) -> u32 {
    // A value has at most 2^32 - 1 bytes, so its pages are at most 2^20 + 1.
    (EXTENT_HEADER_BYTES + value_len).div_ceil(PAGE_BYTES) as u32
}

/// An extent as it is written, without being put together in memory first: its header, its value, and the zeroes that
/// fill its last page (never another transaction's leftovers).
struct Image<'v> {
    header: [u8; EXTENT_HEADER_BYTES],
    value: &'v [u8],
}

impl<'v> Image<'v> {
    fn new(first: PageNo, commit: CommitNo, value: &'v [u8]) -> Self {
        let mut header = header(first, commit, value.len());
        let sum = page::checksum(&[&header[4..], value]);
        header[..4].copy_from_slice(&sum.to_le_bytes());
        Self { header, value }
    }

    fn parts(&self) -> [&[u8]; 3] {
        static ZEROES: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        let bytes = EXTENT_HEADER_BYTES + self.value.len();
        let rest = bytes.next_multiple_of(PAGE_BYTES) - bytes;
        [&self.header, self.value, &ZEROES[..rest]]
    }
}

/// A header without its checksum.
fn header(first: PageNo, commit: CommitNo, len: usize) -> [u8; EXTENT_HEADER_BYTES] {
    let mut header = [0; EXTENT_HEADER_BYTES];
    header[4] = PageKind::Extent as u8;
    header[8..16].copy_from_slice(&first.0.to_le_bytes());
    header[16..24].copy_from_slice(&commit.0.to_le_bytes());
    header[24..32].copy_from_slice(&(len as u64).to_le_bytes());
    header
}

/// The value in an extent, to be written; [`seal_extent`] has to follow.
pub(crate) fn value_mut(extent: &mut [u8], len: usize) -> Option<&mut [u8]> {
    extent.get_mut(EXTENT_HEADER_BYTES..)?.get_mut(..len)
}

/// Renews the checksum of an extent whose value has been written.
pub(crate) fn seal_extent(extent: &mut [u8]) {
    let Some(header) = Header::read(extent) else {
        return;
    };
    let end = EXTENT_HEADER_BYTES.saturating_add(header.len as usize);
    if let Some(covered) = extent.get(4..end) {
        let sum = page::checksum(&[covered]);
        extent[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Allocates an extent for a value of so many zeroes.
pub(crate) fn reserve<P: WritePages + ?Sized>(pages: &mut P, len: usize) -> Result<ExtentPointer> {
    let count = extent_pages(len);
    let first = pages.allocate_extent(count)?;
    let commit = pages.commit();
    let extent = pages.extent_mut(first, count)?;
    extent.fill(0);
    extent[..EXTENT_HEADER_BYTES].copy_from_slice(&header(first, commit, len));
    seal_extent(extent);
    Ok(ExtentPointer {
        first,
        len: len as u64,
    })
}

/// Allocates an extent for a value and writes it.
pub(crate) fn store<P: WritePages + ?Sized>(pages: &mut P, value: &[u8]) -> Result<ExtentPointer> {
    let count = extent_pages(value.len());
    let first = pages.allocate_extent(count)?;
    let image = Image::new(first, pages.commit(), value);
    pages.write_extent(first, image.parts())?;
    Ok(ExtentPointer {
        first,
        len: value.len() as u64,
    })
}

/// Writes a value into an extent behind all pages; where that begins.
pub(crate) fn append<P: AppendPages + ?Sized>(pages: &mut P, value: &[u8]) -> Result<PageNo> {
    let first = pages.take_extent(extent_pages(value.len()))?;
    let image = Image::new(first, pages.commit(), value);
    pages.write_extent(first, image.parts())?;
    Ok(first)
}

/// The value that a leaf's payload points to.
pub(crate) fn load<'p, P: ReadPages + ?Sized>(
    pages: &'p P,
    leaf: PageNo,
    payload: &[u8],
) -> Result<&'p [u8]> {
    let pointer = ExtentPointer::decode(payload, leaf)?;
    let extent = pages.extent(pointer.first, pointer.pages())?;
    let header = Header::read(extent)
        .filter(|header| header.number == pointer.first && header.len == pointer.len);
    let value = header.and_then(|_| {
        extent
            .get(EXTENT_HEADER_BYTES..)?
            .get(..pointer.len as usize)
    });
    value.ok_or_else(|| Error::corrupt(pointer.first, "not the extent that it should be"))
}

struct Header {
    checksum: u32,
    number: PageNo,
    commit: CommitNo,
    len: u64,
}

impl Header {
    fn read(extent: &[u8]) -> Option<Self> {
        let header: &[u8; EXTENT_HEADER_BYTES] = extent.first_chunk()?;
        let [head, number, commit, len] = header.as_chunks::<8>().0 else {
            return None;
        };
        let [a, b, c, d, kind, ..] = *head;
        (kind == PageKind::Extent as u8).then(|| Self {
            checksum: u32::from_le_bytes([a, b, c, d]),
            number: PageNo(u64::from_le_bytes(*number)),
            commit: CommitNo(u64::from_le_bytes(*commit)),
            len: u64::from_le_bytes(*len),
        })
    }
}

/// The commit in an extent's header; `None` if the bytes do not begin with one.
pub fn extent_commit(extent: &[u8]) -> Option<CommitNo> {
    Header::read(extent).map(|header| header.commit)
}

/// Checks the checksum of an extent and that it begins at page `first`.
pub fn verify_extent(extent: &[u8], first: PageNo) -> Result<()> {
    let header = Header::read(extent).ok_or_else(|| Error::corrupt(first, "not an extent"))?;
    let value = usize::try_from(header.len)
        .ok()
        .and_then(|len| extent.get(EXTENT_HEADER_BYTES..)?.get(..len))
        .ok_or_else(|| Error::corrupt(first, "extent shorter than its value"))?;
    if header.checksum != page::checksum(&[&extent[4..EXTENT_HEADER_BYTES], value]) {
        return Err(Error::corrupt(first, "checksum does not match"));
    }
    if header.number != first {
        return Err(Error::corrupt(first, "carries another page's number"));
    }
    Ok(())
}
