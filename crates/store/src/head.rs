//! What one commit looks like from above: the roots from which all of it is reached.

use sapwood_wal::{Lsn, Position};

use crate::error::{Error, Result};
use crate::free::recent::Recent;
use crate::page::CommitNo;
use crate::tree::{TreeKind, TreeRecord};

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

/// Where everything begins.
///
/// ```text
///  offset  size  field
///       0     8  pages     pages 0.. up to this one exist, used or free
///       8    48  catalog   record of the tree of trees: name -> tree record
///      56    48  free      record of the free list, see `free`
///     104   256  recent    free pages beside those in the free list, see `free::recent`
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Roots {
    pub(crate) pages: u64,
    pub(crate) catalog: TreeRecord,
    pub(crate) free: TreeRecord,
    pub(crate) recent: Recent,
}

/// The number of 64-bit words in encoded roots.
pub(crate) const ROOTS_WORDS: usize = TREES_WORDS + Recent::BYTES / 8;
/// The words before the free pages.
pub(crate) const TREES_WORDS: usize = 1 + 2 * TREE_WORDS;
const TREE_WORDS: usize = TreeRecord::BYTES / 8;

impl Roots {
    /// The length of encoded roots.
    pub(crate) const BYTES: usize = ROOTS_WORDS * 8;

    /// The roots of a store without any tree.
    pub(crate) fn empty() -> Self {
        Self {
            pages: FIRST_PAGE,
            catalog: TreeRecord::empty(TreeKind::default()),
            free: TreeRecord::empty(TreeKind::default()),
            recent: Recent::EMPTY,
        }
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (pages, trees) = bytes.split_at_mut(8);
        let (catalog, rest) = trees.split_at_mut(TreeRecord::BYTES);
        let (free, recent) = rest.split_at_mut(TreeRecord::BYTES);
        recent.copy_from_slice(self.recent.bytes());
        pages.copy_from_slice(&self.pages.to_le_bytes());
        catalog.copy_from_slice(&self.catalog.encode());
        free.copy_from_slice(&self.free.encode());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let mut numbers = [0; ROOTS_WORDS];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = u64::from_le_bytes(*word);
        }
        Self::from_words(&numbers)
    }

    pub(crate) fn to_words(self) -> [u64; ROOTS_WORDS] {
        let mut words = [0; ROOTS_WORDS];
        for (word, bytes) in words.iter_mut().zip(self.encode().as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }

    pub(crate) fn from_words(words: &[u64; ROOTS_WORDS]) -> Result<Self> {
        let (pages, trees) = (words[0], &words[1..]);
        let (catalog, rest) = trees.split_at(TREE_WORDS);
        let (free, recent) = rest.split_at(TREE_WORDS);
        let mut bytes = [0; Recent::BYTES];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(recent) {
            *place = word.to_le_bytes();
        }
        let roots = Self {
            pages,
            catalog: tree_from_words(catalog)?,
            free: tree_from_words(free)?,
            recent: Recent::from_bytes(&bytes),
        };
        if pages < FIRST_PAGE || roots.catalog.root.0 >= pages || roots.free.root.0 >= pages {
            return Err(Error::Damaged("a root lies outside of the store".into()));
        }
        Ok(roots)
    }
}

/// Reads a tree record that is kept as words.
pub(crate) fn tree_from_words(words: &[u64]) -> Result<TreeRecord> {
    let mut bytes = [0; TreeRecord::BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    TreeRecord::decode(&bytes).ok_or_else(|| Error::Damaged("a root is not a tree record".into()))
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
    use crate::page::PageNo;

    #[test]
    fn roots_are_read_back() {
        let mut roots = Roots::empty();
        roots.pages = 1000;
        roots.catalog.root = PageNo(17);
        roots.catalog.height = 2;
        roots.free.root = PageNo(999);
        roots.free.height = 1;
        roots.free.records = 5;
        roots.recent = Recent::from_used(&[1, 2, 3]).unwrap();
        assert_eq!(Roots::decode(&roots.encode()).unwrap(), roots);
        assert_eq!(Roots::from_words(&roots.to_words()).unwrap(), roots);
        roots.pages = 999;
        assert!(Roots::decode(&roots.encode()).is_err());
    }
}
