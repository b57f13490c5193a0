//! Postings that wait to be merged into their lists.
//!
//! A value stands in a substrings index under dozens of 3-grams, each on a page of its own. To file them at once would
//! copy, log and write all of these pages for one entry. So a transaction appends its postings under 3-grams to the
//! last *run* of the index, one page, and the one that would make more than [`RUNS_MAX`] of them merges all runs into
//! the lists, where many postings share each page. A reader of a list reads what is pending for it, too.
//!
//! The tree `pending` has the runs of all indexes: attribute number (u16, big-endian) and the run's number (u16,
//! big-endian) -> in little-endian numbers
//!
//! ```text
//!  offset  size    field
//!       0     2    count   entries
//!       2     8 x  entry ids
//!     ...     4 x  postings, in the order in which they were made: bits 8..32 the 3-gram, bits 1..8 which of the entries,
//!                  bit 0: the entry is taken away from the list; otherwise it is added
//! ```
//!
//! Of postings of the same entry under the same 3-gram the last one counts.

use std::ops::Bound;

use super::postings::{BlockCursor, BlockTree, BlockTreeMut, Change};
use super::{AttributeNo, EntryId, Error, Index, IndexKind, Result};

/// The name of the tree.
pub(super) const PENDING: &str = "pending";

/// Length of the keys of a substrings index.
pub(crate) const GRAM_BYTES: usize = 3;

pub(super) type Gram = [u8; GRAM_BYTES];

/// The most runs of an index that may be pending, for some hundred entries. Unoptimised builds, which run the tests,
/// have fewer, so that merges happen there.
const RUNS_MAX: u16 = if cfg!(debug_assertions) { 3 } else { 64 };

/// Two runs fill a page.
const RUN_BYTES_MAX: usize = if cfg!(debug_assertions) { 400 } else { 1900 };

/// The most entries that a run can tell apart.
const RUN_ENTRIES_MAX: usize = 128;

const COUNT_BYTES: usize = 2;
const ID_BYTES: usize = 8;
const WORD_BYTES: usize = 4;
const GRAM_MASK: u32 = 0xFFFF_FF00;
const TAKEN_AWAY: u32 = 1;

/// How many words are compared without a branch between them.
const CHUNK_WORDS: usize = 16;

/// A posting that is not in its list yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posting {
    pub(super) gram: Gram,
    pub(super) change: Change,
}

/// The key as a 3-gram if postings under it pend; others are filed at once.
pub(super) fn gram(index: Index, key: &[u8]) -> Option<Gram> {
    match index.kind {
        IndexKind::Substring => key.try_into().ok(),
        IndexKind::Equality | IndexKind::Presence | IndexKind::Approximate => None,
    }
}

fn corrupt(attribute: AttributeNo) -> Error {
    let index = Index {
        attribute,
        kind: IndexKind::Substring,
    };
    Error::Corrupt(format!(
        "index {}: a run of pending postings does not follow its format",
        index.name().as_str()
    ))
}

fn run_key(attribute: AttributeNo, number: u16) -> [u8; 4] {
    let ([high, low], [more, less]) = (attribute.0.to_be_bytes(), number.to_be_bytes());
    [high, low, more, less]
}

/// The number of a run by its key, if it is one of the attribute.
fn number_of(attribute: AttributeNo, key: &[u8]) -> Option<u16> {
    let (of, number) = key.split_first_chunk::<2>()?;
    let number = u16::from_be_bytes(number.try_into().ok()?);
    (*of == attribute.0.to_be_bytes()).then_some(number)
}

/// Bits 8..32 of a posting's word.
fn gram_bits(gram: Gram) -> u32 {
    u32::from_be_bytes([gram[0], gram[1], gram[2], 0])
}

/// A run as read.
#[derive(Clone, Copy)]
struct Run<'t> {
    ids: &'t [[u8; ID_BYTES]],
    words: &'t [[u8; WORD_BYTES]],
}

impl<'t> Run<'t> {
    fn read(value: &'t [u8]) -> Option<Run<'t>> {
        let (count, rest) = value.split_first_chunk::<COUNT_BYTES>()?;
        let count = usize::from(u16::from_le_bytes(*count));
        let (ids, words) = rest.split_at_checked(count * ID_BYTES)?;
        let (words, []) = words.as_chunks() else {
            return None;
        };
        let (ids, _) = ids.as_chunks();
        Some(Run { ids, words })
    }

    fn change(&self, word: u32) -> Option<Change> {
        let id = self.ids.get((word as u8 >> 1) as usize)?;
        Some(Change {
            id: u64::from_le_bytes(*id),
            is_added: word & TAKEN_AWAY == 0,
        })
    }

    /// Hands the changes of the list under a 3-gram to `each`.
    fn find(&self, gram: Gram, mut each: impl FnMut(Change)) -> Option<()> {
        let wanted = gram_bits(gram);
        let is_wanted = |word: &[u8; 4]| u32::from_le_bytes(*word) & GRAM_MASK == wanted;
        let mut look = |words: &[[u8; WORD_BYTES]]| {
            for word in words.iter().filter(|word| is_wanted(word)) {
                each(self.change(u32::from_le_bytes(*word))?);
            }
            Some(())
        };
        let (chunks, rest) = self.words.as_chunks::<CHUNK_WORDS>();
        for chunk in chunks {
            if chunk.iter().fold(false, |any, word| any | is_wanted(word)) {
                look(chunk)?;
            }
        }
        look(rest)
    }

    fn each(&self, mut each: impl FnMut(Posting)) -> Option<()> {
        for word in self.words {
            let word = u32::from_le_bytes(*word);
            let [a, b, c, _] = word.to_be_bytes();
            let (gram, change) = ([a, b, c], self.change(word)?);
            each(Posting { gram, change });
        }
        Some(())
    }
}

fn each_run<'t, T: BlockTree<'t>>(
    attribute: AttributeNo,
    tree: T,
    mut each: impl FnMut(Run<'t>) -> Option<()>,
) -> Result<()> {
    let mut cursor = tree.cursor();
    let mut standing = cursor.seek(&run_key(attribute, 0))?;
    while standing {
        match cursor.record()? {
            Some((key, value)) if number_of(attribute, key).is_some() => Run::read(value)
                .and_then(&mut each)
                .ok_or_else(|| corrupt(attribute))?,
            _ => break,
        }
        standing = cursor.next()?;
    }
    Ok(())
}

/// Appends the changes that pend for a list, in the order in which they were made.
pub(super) fn changes<'t, T: BlockTree<'t>>(
    attribute: AttributeNo,
    tree: T,
    gram: Gram,
    out: &mut Vec<Change>,
) -> Result<()> {
    each_run(attribute, tree, |run| {
        run.find(gram, |change| out.push(change))
    })
}

/// Appends all postings that pend for an attribute's index, in the order in which they were made.
pub(super) fn postings<'t, T: BlockTree<'t>>(
    attribute: AttributeNo,
    tree: T,
    out: &mut Vec<Posting>,
) -> Result<()> {
    each_run(attribute, tree, |run| run.each(|posting| out.push(posting)))
}

/// The attributes with runs, ascending.
pub(super) fn attributes<'t, T: BlockTree<'t>>(tree: T) -> Result<Vec<AttributeNo>> {
    let mut attributes = Vec::new();
    let mut cursor = tree.cursor();
    let mut standing = cursor.seek(&[])?;
    while standing {
        let first = cursor.record()?.and_then(|(key, _)| key.first_chunk());
        let Some(first) = first else { break };
        let attribute = AttributeNo(u16::from_be_bytes(*first));
        attributes.push(attribute);
        let Some(next) = attribute.0.checked_add(1) else {
            break;
        };
        standing = cursor.seek(&run_key(AttributeNo(next), 0))?;
    }
    Ok(attributes)
}

/// Sorts the changes of a list by id, and keeps the last one of each.
pub(super) fn sort_changes(changes: &mut Vec<Change>) {
    changes.sort_by_key(|change| change.id);
    changes.dedup_by(|next, kept| {
        let is_same = next.id == kept.id;
        if is_same {
            *kept = *next;
        }
        is_same
    });
}

/// Hands the changes of each list to `each`, 3-grams ascending, with ids ascending and the last change of each id.
pub(super) fn each_list(
    postings: &[Posting],
    mut each: impl FnMut(Gram, &[Change]) -> Result<()>,
) -> Result<()> {
    // Numbers sort fastest: the 3-gram, then which of the postings.
    let places = postings.iter().zip(0u64..);
    let mut order: Vec<u64> = places
        .map(|(posting, place)| (u64::from(gram_bits(posting.gram)) << 32) | place)
        .collect();
    order.sort_unstable();
    let mut changes = Vec::new();
    for list in order.chunk_by(|one, other| one >> 32 == other >> 32) {
        changes.clear();
        let of_list = list.iter().map(|place| &postings[*place as u32 as usize]);
        changes.extend(of_list.map(|posting| posting.change));
        // Those of new entries are in order.
        if !changes.is_sorted_by(|one, other| one.id < other.id) {
            sort_changes(&mut changes);
        }
        each(postings[list[0] as u32 as usize].gram, &changes)?;
    }
    Ok(())
}

/// Appends postings to the runs of an attribute's index; without any effect and `false` when there is no room for them.
pub(super) fn append<T: BlockTreeMut>(
    attribute: AttributeNo,
    tree: &mut T,
    postings: &[Posting],
) -> Result<bool> {
    let mut run = RunWriter::new();
    let mut number = 0;
    {
        let view = tree.view()?;
        let mut cursor = view.cursor();
        if cursor.seek_back(&run_key(attribute, u16::MAX))?
            && let Some((key, value)) = cursor.record()?
            && let Some(last) = number_of(attribute, key)
        {
            number = last;
            let last = Run::read(value).ok_or_else(|| corrupt(attribute))?;
            last.each(|posting| run.push(&posting))
                .filter(|()| run.ids.len() <= RUN_ENTRIES_MAX)
                .ok_or_else(|| corrupt(attribute))?;
        }
    }
    let mut runs = Vec::new();
    for posting in postings {
        if !run.has_room(posting) {
            runs.push(std::mem::replace(&mut run, RunWriter::new()));
            if usize::from(number) + runs.len() >= usize::from(RUNS_MAX) {
                return Ok(false);
            }
        }
        run.push(posting);
    }
    runs.push(run);
    for (number, run) in (number..).zip(&runs) {
        tree.put(&run_key(attribute, number), &run.value())?;
    }
    Ok(true)
}

/// Removes the runs of an attribute's index; whether there were any.
pub(super) fn clear<T: BlockTreeMut>(attribute: AttributeNo, tree: &mut T) -> Result<bool> {
    let (from, to) = (run_key(attribute, 0), run_key(attribute, u16::MAX));
    tree.delete_range(Bound::Included(&from), Bound::Included(&to))
}

/// A run being made.
struct RunWriter {
    ids: Vec<u64>,
    words: Vec<u32>,
}

impl RunWriter {
    fn new() -> RunWriter {
        RunWriter {
            ids: Vec::with_capacity(RUN_ENTRIES_MAX),
            words: Vec::with_capacity(RUN_BYTES_MAX / WORD_BYTES),
        }
    }

    fn has_room(&self, posting: &Posting) -> bool {
        let is_new = self.ids.last() != Some(&posting.change.id);
        let ids = self.ids.len() + usize::from(is_new);
        let words = self.words.len() + 1;
        ids <= RUN_ENTRIES_MAX && COUNT_BYTES + ids * ID_BYTES + words * WORD_BYTES <= RUN_BYTES_MAX
    }

    fn push(&mut self, posting: &Posting) {
        let Change { id, is_added } = posting.change;
        if self.ids.last() != Some(&id) {
            self.ids.push(id);
        }
        let entry = (self.ids.len() - 1) as u32;
        let mark = if is_added { 0 } else { TAKEN_AWAY };
        self.words
            .push(gram_bits(posting.gram) | (entry << 1) | mark);
    }

    fn value(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(RUN_BYTES_MAX);
        value.extend((self.ids.len() as u16).to_le_bytes());
        value.extend(self.ids.iter().flat_map(|id| id.to_le_bytes()));
        value.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        value
    }
}

/// A list with what pends for it: ids ascend.
pub(super) struct Amended<L> {
    list: L,
    /// What pends, ids ascending, and how many of these changes have been passed.
    changes: Vec<Change>,
    passed: usize,
    /// What the list answered last, if it was not handed out.
    held_back: Option<Option<EntryId>>,
}

impl<L: super::Postings> Amended<L> {
    pub(super) fn new(list: L, changes: Vec<Change>) -> Amended<L> {
        Amended {
            list,
            changes,
            passed: 0,
            held_back: None,
        }
    }
}

impl<L: super::Postings> super::Postings for Amended<L> {
    #[inline]
    fn next(&mut self) -> Result<Option<EntryId>> {
        loop {
            let listed = match self.held_back.take() {
                Some(listed) => listed,
                None => self.list.next()?,
            };
            let Some(change) = self.changes.get(self.passed) else {
                return Ok(listed);
            };
            let id = EntryId(change.id);
            if listed.is_some_and(|listed| listed < id) {
                return Ok(listed);
            }
            self.passed += 1;
            if listed != Some(id) {
                self.held_back = Some(listed);
            }
            if change.is_added {
                return Ok(Some(id));
            }
        }
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        if self.passed == self.changes.len() && self.held_back.is_none() {
            return self.list.seek(id);
        }
        self.passed += self.changes[self.passed..].partition_point(|change| change.id < id.0);
        let is_ahead = |listed: Option<EntryId>| listed.is_none_or(|listed| listed >= id);
        if !self.held_back.is_some_and(is_ahead) {
            self.held_back = Some(self.list.seek(id)?);
        }
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::Postings as _;
    use super::super::postings::List;
    use super::super::postings::tests::Map;
    use super::*;

    const ATTRIBUTE: AttributeNo = AttributeNo(4);
    const GRAMS: [Gram; 4] = [*b"abc", *b"abd", *b"\0\0\0", [0xFF; 3]];

    fn posting((gram, id, is_added): (usize, u64, bool)) -> Posting {
        let change = Change { id, is_added };
        let gram = GRAMS[gram];
        Posting { gram, change }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_appended_pends_in_order(
            batches in prop::collection::vec(
                prop::collection::vec((0..GRAMS.len(), 0u64..300, any::<bool>()), 1..40),
                0..12,
            ),
        ) {
            let (mut tree, mut expected) = (Map::default(), Vec::new());
            let others = posting((0, 7, true));
            for neighbour in [AttributeNo(3), AttributeNo(5)] {
                prop_assert!(append(neighbour, &mut tree, &[others]).unwrap());
            }
            for batch in &batches {
                let batch: Vec<_> = batch.iter().copied().map(posting).collect();
                let before = tree.0.clone();
                if append(ATTRIBUTE, &mut tree, &batch).unwrap() {
                    expected.extend(batch);
                } else {
                    prop_assert!(tree.0 == before && expected.len() + batch.len() > 99);
                }
            }
            prop_assert!(tree.0.len() <= usize::from(RUNS_MAX) + 2);
            prop_assert!(tree.0.values().all(|run| run.len() <= RUN_BYTES_MAX));
            let mut all = Vec::new();
            postings(ATTRIBUTE, tree.view().unwrap(), &mut all).unwrap();
            prop_assert_eq!(&all, &expected);
            for gram in GRAMS {
                let mut found = Vec::new();
                changes(ATTRIBUTE, tree.view().unwrap(), gram, &mut found).unwrap();
                let of_gram = expected.iter().filter(|posting| posting.gram == gram);
                prop_assert_eq!(found, of_gram.map(|posting| posting.change).collect::<Vec<_>>());
            }
            let attributes = attributes(tree.view().unwrap()).unwrap();
            prop_assert_eq!(attributes.contains(&ATTRIBUTE), !expected.is_empty());
            prop_assert_eq!(clear(ATTRIBUTE, &mut tree).unwrap(), !expected.is_empty());
            prop_assert_eq!(tree.0.len(), 2);
        }

        #[test]
        fn an_amended_list_reads_as_if_it_were_changed(
            listed in prop::collection::btree_set(0u64..60, 0..30),
            pending in prop::collection::vec((0u64..60, any::<bool>()), 0..30),
            steps in prop::collection::vec(prop::option::of(0u64..70), 0..20),
        ) {
            let index = Index { attribute: ATTRIBUTE, kind: IndexKind::Substring };
            let mut tree = Map::default();
            let added: Vec<_> = listed.iter().map(|&id| Change { id, is_added: true }).collect();
            super::super::postings::change(index, &mut tree, &mut Default::default(), b"abc", &added).unwrap();
            let mut expected: BTreeSet<u64> = listed;
            let mut changes = Vec::new();
            for (id, is_added) in pending {
                changes.push(Change { id, is_added });
                if is_added {
                    expected.insert(id);
                } else {
                    expected.remove(&id);
                }
            }
            sort_changes(&mut changes);
            let mut list = Amended::new(List::new(index, Some(tree.view().unwrap()), b"abc").unwrap(), changes);
            let mut from = 0;
            for step in steps.into_iter().chain(std::iter::repeat_n(None, 62)) {
                let found = match step {
                    Some(id) => {
                        from = from.max(id);
                        list.seek(EntryId(id)).unwrap()
                    }
                    None => list.next().unwrap(),
                };
                let next = expected.range(from..).next().copied();
                prop_assert_eq!(found, next.map(EntryId));
                from = next.map_or(from, |next| next + 1);
            }
        }

        #[test]
        fn damaged_runs_are_told_and_never_panic(
            runs in prop::collection::vec((0u16..4, prop::collection::vec(any::<u8>(), 0..80), prop::option::of(0u16..8)), 1..4),
        ) {
            let mut tree = Map::default();
            for (number, mut value, count) in runs {
                if let (Some(count), Some(place)) = (count, value.get_mut(..COUNT_BYTES)) {
                    place.copy_from_slice(&count.to_le_bytes());
                }
                tree.0.insert(run_key(ATTRIBUTE, number).to_vec(), value);
            }
            let _ = postings(ATTRIBUTE, tree.view().unwrap(), &mut Vec::new());
            let _ = changes(ATTRIBUTE, tree.view().unwrap(), GRAMS[2], &mut Vec::new());
            let _ = append(ATTRIBUTE, &mut tree, &[posting((0, 1, true))]);
        }
    }
}
