//! What one commit looks like from above: the roots from which all of it is reached.

use sapwood_wal::{Lsn, Position};

use crate::error::{Error, Result};
use crate::format::catalog::{Catalog, tree_from_words, tree_to_words};
use crate::format::free_list::recent::Recent;
use crate::format::page::PAGE_NO_MAX;
use crate::format::tree_record::{TreeKind, TreeRecord};
use crate::ids::CommitNo;

/// The first page behind the two meta pages.
pub(crate) const FIRST_PAGE: u64 = 2;

/// The state of the store as of one commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// The commit.
    pub(crate) commit: CommitNo,
    /// Behind its record in the log.
    pub(crate) log: Position,
    /// The rest, which is stored in log records too.
    pub(crate) roots: Roots,
}

impl CommitNo {
    /// Refuses what no store has got to.
    pub(crate) fn checked(self) -> Result<Self> {
        match self <= Self::MAX {
            true => Ok(self),
            false => Err(Error::Damaged(format!("there is no commit {self}"))),
        }
    }
}

/// Where everything begins.
///
/// ```text
///  offset  size  field
///       0     8  pages     pages 0.. up to this one exist, used or free
///       8   128  catalog   see `catalog`
///     136    48  free      record of the free list, see `free_list`
///     184   256  recent    free pages beside those in the free list, see `free_list::recent`
///     440    48  segments  record of the tree of segments, see `heap`
/// ```
///
/// What snapshots need stands first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Roots {
    pub(crate) pages: u64,
    pub(crate) catalog: Catalog,
    pub(crate) free: TreeRecord,
    pub(crate) recent: Recent,
    pub(crate) segments: TreeRecord,
}

/// The number of 64-bit words in encoded roots.
pub(crate) const ROOTS_WORDS: usize = SNAPSHOT_WORDS + 2 * TREE_WORDS + RECENT_WORDS;
/// The words that a snapshot needs: the number of pages, and the catalog.
pub(crate) const SNAPSHOT_WORDS: usize = 1 + Catalog::WORDS;
const TREE_WORDS: usize = TreeRecord::BYTES / 8;
const RECENT_WORDS: usize = Recent::BYTES / 8;

impl Roots {
    /// The length of encoded roots.
    pub(crate) const BYTES: usize = ROOTS_WORDS * 8;

    /// The roots of a store without any tree.
    pub(crate) fn empty() -> Self {
        Self {
            pages: FIRST_PAGE,
            catalog: Catalog::empty(),
            free: TreeRecord::empty(TreeKind::default()),
            recent: Recent::EMPTY,
            segments: TreeRecord::empty(TreeKind::COMPACT),
        }
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.to_words()) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self> {
        let mut words = [0; ROOTS_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self::from_words(&words)
    }

    pub(crate) fn to_words(self) -> [u64; ROOTS_WORDS] {
        let mut words = [0; ROOTS_WORDS];
        let (snapshot, rest) = words.split_at_mut(SNAPSHOT_WORDS);
        let (free, rest) = rest.split_at_mut(TREE_WORDS);
        let (recent, segments) = rest.split_at_mut(RECENT_WORDS);
        snapshot[0] = self.pages;
        snapshot[1..].copy_from_slice(&self.catalog.to_words());
        free.copy_from_slice(&tree_to_words(&self.free));
        for (word, bytes) in recent.iter_mut().zip(self.recent.bytes().as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        segments.copy_from_slice(&tree_to_words(&self.segments));
        words
    }

    pub(crate) fn from_words(words: &[u64; ROOTS_WORDS]) -> Result<Self> {
        let (snapshot, rest) = words.split_at(SNAPSHOT_WORDS);
        let (free, rest) = rest.split_at(TREE_WORDS);
        let (recent, segments) = rest.split_at(RECENT_WORDS);
        let mut bytes = [0; Recent::BYTES];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(recent) {
            *place = word.to_le_bytes();
        }
        let catalog = std::array::from_fn(|at| snapshot[1 + at]);
        Self {
            pages: snapshot[0],
            catalog: Catalog::from_words(&catalog)?,
            free: tree_from_words(free)?,
            recent: Recent::from_bytes(&bytes),
            segments: tree_from_words(segments)?,
        }
        .checked()
    }

    /// Refuses what leads out of the store.
    pub(crate) fn checked(self) -> Result<Self> {
        let held = self.catalog.held().map(|(_, record)| record);
        let trees = [self.catalog.tree(), &self.free, &self.segments];
        let trees = trees.into_iter().chain(held);
        if self.pages > PAGE_NO_MAX {
            return Err(Error::Damaged(format!(
                "a store has {} pages, more than there can be",
                self.pages
            )));
        }
        if self.pages < FIRST_PAGE || trees.into_iter().any(|tree| tree.root.0 >= self.pages) {
            return Err(Error::Damaged("a root lies outside of the store".into()));
        }
        Ok(self)
    }
}

/// The position in the log that these numbers denote.
pub(crate) fn position(lsn: u64, chain: u32) -> Position {
    Position {
        lsn: Lsn(lsn),
        chain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PageNo;

    #[test]
    fn roots_are_read_back() {
        let mut roots = Roots::empty();
        roots.pages = 1000;
        let tree = |root| TreeRecord {
            root: PageNo(root),
            height: 2,
            ..TreeRecord::empty(TreeKind::default())
        };
        roots.catalog = Catalog::holding(tree(17), b"colours", tree(998)).unwrap();
        roots.free.root = PageNo(999);
        roots.free.height = 1;
        roots.free.records = 5;
        roots.recent = Recent::from_used(&[1, 2, 3]).unwrap();
        roots.segments = tree(997);
        assert_eq!(Roots::decode(&roots.encode()).unwrap(), roots);
        assert_eq!(Roots::from_words(&roots.to_words()).unwrap(), roots);
        for pages in [17, 997, 998, 999] {
            roots.pages = pages;
            assert!(Roots::decode(&roots.encode()).is_err());
        }
    }
}
