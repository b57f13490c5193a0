//! The two meta pages: where a store begins when it is opened.
//!
//! They are written in turn by checkpoints, so that one of them is whole at any moment. Behind the common page header:
//!
//! ```text
//!  offset  size  field
//!      24     8  magic        "SAPWOOD\0"
//!      32     4  version      of the format of the data file and of the log records
//!      36     4  page size    4096
//!      40    16  store id     random; told to backups
//!      56     2  store        number within the environment
//!      58     2  stores       in the first store: how many the environment has, 0 for one; otherwise zero
//!      60     4  timeline     drawn anew by each restore: what is committed behind it is nobody else's future
//!      64     8  generation   counts the times when pages were moved by other means than copy on write
//!      72    16  log id       all zeroes: no log goes with the file, as in a backup
//!      88     8  log position behind the record of this commit
//!      96     4  checksum of that record
//!     100     4  segments     that the log had; 0: not known
//!     104   488  roots        see `roots`
//!     592        zeroes
//! ```
//!
//! The commit is the one in the page header. Nothing is assumed about the atomicity of a sector: a torn meta page has a
//! wrong checksum, and then the other one counts.

#![deny(clippy::indexing_slicing)]

use sapwood_wal::LogId;

use crate::error::{DATA_FILE, Error, Result};
use crate::format::page::{PAGE_BYTES, PAGE_HEADER_BYTES, Page, PageKind};
use crate::format::roots::{Head, Roots, position};
use crate::guard::{Guard, Guards};
use crate::ids::PageNo;
use crate::limits::STORES_MAX;
use sapwood_wal::storage::File;
use std::io::ErrorKind;

/// The version of the format of data files and log records: the only one that this program reads and writes.
pub const FORMAT_VERSION: u32 = 6;

const MAGIC: [u8; 8] = *b"SAPWOOD\0";
const BODY_BYTES: usize = 80 + Roots::BYTES;

/// What tells one store from another, and one of its futures from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoreIdentity {
    pub(crate) id: [u8; 16],
    pub(crate) store: u16,
    /// In the first store, how many the environment has, or 0 for one; 0 in the others.
    pub(crate) stores: u16,
    pub(crate) timeline: u32,
    pub(crate) generation: u64,
    pub(crate) log: LogId,
}

/// No log: a data file that stands alone.
pub(crate) const NO_LOG: LogId = LogId([0; 16]);

impl StoreIdentity {
    /// A new store's.
    pub(crate) fn new() -> Self {
        Self {
            id: uuid::Uuid::new_v4().into_bytes(),
            store: 0,
            stores: 0,
            timeline: 1,
            generation: 0,
            log: LogId(uuid::Uuid::new_v4().into_bytes()),
        }
    }

    /// The number of a timeline that begins here. It is drawn by lot, since two restores of one backup know nothing of
    /// each other and must not be taken for the same.
    pub(crate) fn another_timeline(&self) -> u32 {
        loop {
            let drawn = uuid::Uuid::new_v4().as_u128() as u32;
            if drawn != 0 && drawn != self.timeline {
                return drawn;
            }
        }
    }
}

/// What a meta page says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) identity: StoreIdentity,
    pub(crate) head: Head,
    /// So many segments the log had, so that one which is missing is noticed; 0 if that is not known.
    pub(crate) log_segments: u32,
}

impl Meta {
    /// The meta page number `slot`, sealed.
    pub(crate) fn encode(&self, slot: usize) -> Page {
        let mut page = Page::zeroed();
        let number = PageNo(slot as u64);
        page.init(PageKind::Meta, 0, number, self.head.commit);
        let mut body = Vec::with_capacity(BODY_BYTES);
        body.extend_from_slice(&MAGIC);
        body.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        body.extend_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        body.extend_from_slice(&self.identity.id);
        body.extend_from_slice(&self.identity.store.to_le_bytes());
        body.extend_from_slice(&self.identity.stores.to_le_bytes());
        body.extend_from_slice(&self.identity.timeline.to_le_bytes());
        body.extend_from_slice(&self.identity.generation.to_le_bytes());
        body.extend_from_slice(&self.identity.log.0);
        body.extend_from_slice(&self.head.log.lsn.0.to_le_bytes());
        body.extend_from_slice(&self.head.log.chain.to_le_bytes());
        body.extend_from_slice(&self.log_segments.to_le_bytes());
        body.extend_from_slice(&self.head.roots.encode());
        let end = PAGE_HEADER_BYTES + body.len();
        let place = page.bytes_mut().get_mut(PAGE_HEADER_BYTES..end);
        place.unwrap_or_default().copy_from_slice(&body);
        page.seal();
        page
    }

    /// Whether a page begins like a meta page, whole or not.
    pub(crate) fn is_begun(page: &Page) -> bool {
        page.bytes()[PAGE_HEADER_BYTES..].starts_with(&MAGIC)
    }

    /// Reads the meta page number `slot`. `None` if it is not a whole meta page; an error if it is one of another
    /// version.
    pub(crate) fn decode(page: &Page, slot: usize, verify: bool) -> Result<Option<Self>> {
        let (_, body) = page.bytes().split_at(PAGE_HEADER_BYTES);
        let mut fields = Fields(body);
        if fields.take() != MAGIC {
            return Ok(None);
        }
        let version = u32::from_le_bytes(fields.take());
        let whole = page.verify(PageNo(slot as u64)).is_ok() || !verify;
        if version != FORMAT_VERSION && whole {
            return Err(Error::UnknownVersion {
                what: DATA_FILE,
                found: version,
                known: FORMAT_VERSION,
            });
        }
        if !whole || page.kind() != Some(PageKind::Meta) {
            return Ok(None);
        }
        let page_bytes = u32::from_le_bytes(fields.take());
        if page_bytes as usize != PAGE_BYTES {
            return Err(Error::Damaged(format!(
                "pages of {page_bytes} bytes are not supported"
            )));
        }
        let id = fields.take();
        let store = u16::from_le_bytes(fields.take());
        let stores = u16::from_le_bytes(fields.take());
        let identity = StoreIdentity {
            id,
            store,
            stores,
            timeline: u32::from_le_bytes(fields.take()),
            generation: u64::from_le_bytes(fields.take()),
            log: LogId(fields.take()),
        };
        let lsn = u64::from_le_bytes(fields.take());
        let chain = u32::from_le_bytes(fields.take());
        let log_segments = u32::from_le_bytes(fields.take());
        if lsn > u64::MAX / 2 {
            return Err(Error::Damaged(format!("no log gets to {lsn}")));
        }
        let head = Head {
            commit: page.commit().checked()?,
            log: position(lsn, chain),
            roots: Roots::decode(&fields.take())?,
        };
        Ok(Some(Self {
            identity,
            head,
            log_segments,
        }))
    }
}

/// Takes one field after the other off a page, which is longer than all of them.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => [0; N],
        }
    }
}

/// How many stores the meta pages of the first one know of. If adding one was interrupted, one meta page knows of it
/// already; then it is there.
pub(crate) fn stores_of(metas: &[Option<Meta>; 2]) -> u16 {
    let known = metas.iter().flatten().map(|meta| meta.identity.stores);
    known.max().unwrap_or_default().clamp(1, STORES_MAX)
}

pub(crate) fn write_meta(file: &dyn File, slot: usize, meta: &Meta) -> Result<()> {
    let offset = (slot * PAGE_BYTES) as u64;
    file.write_all_at(meta.encode(slot).bytes(), offset)?;
    Ok(())
}

pub(crate) fn read_metas(file: &dyn File, guards: Guards) -> Result<[Option<Meta>; 2]> {
    let mut metas = [None; 2];
    for (slot, meta) in metas.iter_mut().enumerate() {
        if let Some(page) = read_meta_page(file, slot)? {
            *meta = Meta::decode(&page, slot, guards.has(Guard::MetaChecksum))?;
        }
    }
    Ok(metas)
}

/// Whether anything in the place of the meta pages says that the file is one of a store.
pub(crate) fn has_meta_pages(file: &dyn File) -> Result<bool> {
    for slot in 0..2 {
        if read_meta_page(file, slot)?.is_some_and(|page| Meta::is_begun(&page)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A meta page as it is; `None` if the file ends before.
fn read_meta_page(file: &dyn File, slot: usize) -> Result<Option<Page>> {
    let mut page = Page::zeroed();
    match file.read_exact_at(page.bytes_mut(), (slot * PAGE_BYTES) as u64) {
        Ok(()) => Ok(Some(page)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The one with the later commit, or that goes on at a later position of the log.
pub(crate) fn newest(metas: &[Option<Meta>; 2]) -> Result<&Meta> {
    metas
        .iter()
        .flatten()
        .max_by_key(|meta| (meta.head.commit, meta.head.log.lsn))
        .ok_or_else(|| Error::Damaged("neither meta page of the data file is valid".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::page::PAGE_NO_MAX;
    use crate::ids::CommitNo;

    fn meta() -> Meta {
        Meta {
            identity: StoreIdentity::new(),
            head: Head {
                commit: CommitNo(77),
                log: position(4096, 12),
                roots: Roots::empty(),
            },
            log_segments: 3,
        }
    }

    #[test]
    fn a_meta_page_is_read_back() {
        let meta = meta();
        let page = meta.encode(1);
        assert_eq!(Meta::decode(&page, 1, true).unwrap(), Some(meta));
        assert_eq!(
            Meta::decode(&page, 0, true).unwrap(),
            None,
            "the other one's place"
        );
    }

    #[test]
    fn a_damaged_bit_anywhere_makes_it_invalid() {
        let page = meta().encode(0);
        for at in (0..PAGE_BYTES).step_by(7) {
            let mut damaged = page.clone();
            damaged.bytes_mut()[at] ^= 0x10;
            assert_eq!(Meta::decode(&damaged, 0, true).unwrap(), None, "byte {at}");
        }
        assert_eq!(Meta::decode(&Page::zeroed(), 0, true).unwrap(), None);
    }

    #[test]
    fn numbers_that_no_store_gets_to_are_refused() {
        let at = |change: &dyn Fn(&mut Meta)| {
            let mut meta = meta();
            change(&mut meta);
            Meta::decode(&meta.encode(0), 0, true)
        };
        assert!(at(&|meta| meta.head.commit = CommitNo::MAX).is_ok());
        assert!(at(&|meta| meta.head.commit.0 = CommitNo::MAX.0 + 1).is_err());
        assert!(at(&|meta| meta.head.roots.pages = PAGE_NO_MAX).is_ok());
        assert!(at(&|meta| meta.head.roots.pages = u64::MAX).is_err());
        assert!(at(&|meta| meta.head.log = position(u64::MAX, 0)).is_err());
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let mut page = meta().encode(0);
        for version in [FORMAT_VERSION - 1, FORMAT_VERSION + 1] {
            page.bytes_mut()[32] = version as u8;
            page.seal();
            let refused = Meta::decode(&page, 0, true);
            assert!(
                matches!(refused, Err(Error::UnknownVersion { found, .. }) if found == version)
            );
        }
    }
}
