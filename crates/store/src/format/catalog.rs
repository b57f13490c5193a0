//! The catalog: which trees there are.
//!
//! It is a tree itself, of names and [`TreeRecord`]s. Mostly one commit after the other is about the same tree, whose
//! record would be all that changes in the catalog: it is then held beside the catalog's root, in the roots of each
//! commit, and goes into the catalog when a commit changes another tree, or more than one. So the one that wants a
//! tree's record asks here.
//!
//! ```text
//!  offset  size  field
//!       0    48  tree      record of the tree of trees: name -> tree record
//!      48     1  n         bytes of the name; 0: the tree of trees says everything itself
//!      49    31  name      of the tree that was changed last, and zeroes. The tree of trees has this name, with an old record
//!      80    48  record    of that tree
//! ```

#![deny(clippy::indexing_slicing)]

use crate::error::{Error, Result};
use crate::format::tree_record::{TreeKind, TreeRecord};

/// The longest name, in bytes, of a tree whose record may be held beside the catalog's root.
const HELD_NAME_BYTES_MAX: usize = 31;

const NAME_BYTES: usize = 1 + HELD_NAME_BYTES_MAX;
const NAME_WORDS: usize = NAME_BYTES / 8;
const TREE_WORDS: usize = TreeRecord::BYTES / 8;

/// The catalog as of one commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Catalog {
    tree: TreeRecord,
    held: Option<Held>,
}

/// The record of the tree that was changed last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    /// Its length, its bytes, and zeroes.
    name: [u8; NAME_BYTES],
    record: TreeRecord,
}

impl Held {
    /// `None` if the name is empty or too long.
    fn new(name: &[u8], record: TreeRecord) -> Option<Self> {
        let mut field = [0; NAME_BYTES];
        let (length, place) = field.split_first_mut()?;
        *length = u8::try_from(name.len()).ok().filter(|&length| length > 0)?;
        place.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self {
            name: field,
            record,
        })
    }

    fn name(&self) -> &[u8] {
        let [length, name @ ..] = &self.name;
        name.get(..usize::from(*length)).unwrap_or_default()
    }
}

impl Catalog {
    /// Its length in 64-bit words.
    pub(crate) const WORDS: usize = 2 * TREE_WORDS + NAME_WORDS;

    /// No tree.
    pub(crate) fn empty() -> Self {
        Self::of(TreeRecord::empty(TreeKind::default()))
    }

    /// The catalog that this tree of trees is.
    pub(crate) fn of(tree: TreeRecord) -> Self {
        Self { tree, held: None }
    }

    /// This tree of trees, and the record held beside its root. `None` if a tree of such a name has none there.
    pub(crate) fn holding(tree: TreeRecord, name: &[u8], record: TreeRecord) -> Option<Self> {
        let held = Some(Held::new(name, record)?);
        Some(Self { tree, held })
    }

    /// The record of the tree of trees.
    pub(crate) fn tree(&self) -> &TreeRecord {
        &self.tree
    }

    /// The name and the record of the tree that was changed last, if they are held beside the root.
    pub(crate) fn held(&self) -> Option<(&[u8], &TreeRecord)> {
        self.held.as_ref().map(|held| (held.name(), &held.record))
    }

    /// Holds the new record of a tree that the tree of trees has under this name; whether it can: there is place for
    /// one.
    pub(crate) fn hold(&mut self, name: &[u8], record: TreeRecord) -> bool {
        if self.held().is_some_and(|(held, _)| held != name) {
            return false;
        }
        let held = Held::new(name, record);
        self.held = held.or(self.held);
        held.is_some()
    }

    /// The record of a tree that has `stored` under its name in the tree of trees.
    pub(crate) fn record(&self, name: &[u8], stored: &[u8]) -> Result<TreeRecord> {
        match self.held() {
            Some((held, record)) if held == name => Ok(*record),
            _ => decode_record(name, stored),
        }
    }

    pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        let (tree, held) = words.split_at_mut(TREE_WORDS);
        tree.copy_from_slice(&tree_to_words(&self.tree));
        if let Some(Held { name, record }) = self.held {
            let (place, held) = held.split_at_mut(NAME_WORDS);
            for (word, bytes) in place.iter_mut().zip(name.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            held.copy_from_slice(&tree_to_words(&record));
        }
        words
    }

    pub(crate) fn from_words(words: &[u64; Self::WORDS]) -> Result<Self> {
        let (tree, held) = words.split_at(TREE_WORDS);
        let (name_words, record) = held.split_at(NAME_WORDS);
        let tree = tree_from_words(tree)?;
        if held.iter().all(|&word| word == 0) {
            return Ok(Self::of(tree));
        }
        let mut name = [0; NAME_BYTES];
        for (place, word) in name.as_chunks_mut().0.iter_mut().zip(name_words) {
            *place = word.to_le_bytes();
        }
        let record = tree_from_words(record)?;
        let held = Held { name, record };
        if Held::new(held.name(), record) != Some(held) {
            return Err(Error::Damaged("the roots name a tree wrongly".into()));
        }
        let held = Some(held);
        Ok(Self { tree, held })
    }
}

/// A tree's record as 64-bit words.
pub(crate) fn tree_to_words(record: &TreeRecord) -> [u64; TREE_WORDS] {
    let mut words = [0; TREE_WORDS];
    for (word, bytes) in words.iter_mut().zip(record.encode().as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Reads a tree record that is kept as words.
pub(crate) fn tree_from_words(words: &[u64]) -> Result<TreeRecord> {
    let mut bytes = [0; TreeRecord::BYTES];
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    TreeRecord::decode(&bytes).ok_or_else(|| Error::Damaged("a root is not a tree record".into()))
}

pub(crate) fn decode_record(name: &[u8], record: &[u8]) -> Result<TreeRecord> {
    TreeRecord::decode(record).ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        Error::Damaged(format!("the catalog's record of tree '{name}' is not one"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::PageNo;

    fn record(root: u64) -> TreeRecord {
        TreeRecord {
            root: PageNo(root),
            records: 5,
            height: 1,
            ..TreeRecord::empty(TreeKind::COUNTED)
        }
    }

    #[test]
    fn one_record_is_held() {
        let mut catalog = Catalog::of(record(2));
        assert!(catalog.hold(b"a", record(10)));
        assert!(!catalog.hold(b"b", record(20)), "the place is taken");
        assert!(catalog.hold(b"a", record(11)));
        assert_eq!(catalog.held(), Some((&b"a"[..], &record(11))));
        assert_eq!(
            catalog.record(b"a", &record(9).encode()).unwrap(),
            record(11)
        );
        assert_eq!(
            catalog.record(b"b", &record(9).encode()).unwrap(),
            record(9)
        );
        assert!(catalog.record(b"b", b"no record").is_err());
        assert_eq!(Catalog::from_words(&catalog.to_words()).unwrap(), catalog);
    }

    #[test]
    fn long_names_are_not_held() {
        let mut catalog = Catalog::empty();
        assert!(!catalog.hold(&[7; HELD_NAME_BYTES_MAX + 1], record(10)));
        assert!(!catalog.hold(&[7; 300], record(10)));
        assert!(!catalog.hold(b"", record(10)));
        assert_eq!(catalog, Catalog::empty());
        assert!(catalog.hold(&[7; HELD_NAME_BYTES_MAX], record(10)));
        assert_eq!(Catalog::from_words(&catalog.to_words()).unwrap(), catalog);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_words_are_a_catalog_or_refused(
            changes in prop::collection::vec((0..Catalog::WORDS, any::<u64>(), 0..64_u32), 0..4),
        ) {
            let catalog = Catalog::holding(record(2), b"tree", record(10)).unwrap();
            let mut words = catalog.to_words();
            for (at, word, shift) in changes {
                words[at] = word >> shift;
            }
            if let Ok(found) = Catalog::from_words(&words) {
                prop_assert_eq!(found.to_words(), words);
            }
        }
    }
}
