//! Entries taken out of their pages, to be laid out anew: in one page with another prefix, or divided between two.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::page::{PAGE_BYTES, Page, PageKind};
use crate::ids::{CommitNo, PageNo};
use crate::tree::node::{Child, InsertionRun, Mark, Node, NodeMut, cell_bytes, slots_bytes};

/// Entries of one level in ascending order, keys and payloads in one buffer.
pub(crate) struct Entries {
    kind: PageKind,
    level: usize,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    key_at: u32,
    payload_at: u32,
    key_len: u16,
    payload_len: u16,
    mark: Mark,
}

impl Entries {
    pub(crate) fn new(kind: PageKind, level: usize) -> Self {
        Self {
            kind,
            level,
            bytes: Vec::new(),
            entries: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, key: &[u8], payload: &[u8], mark: Mark) {
        self.insert(self.len(), key, payload, mark);
    }

    /// Appends the entry of a child.
    pub(crate) fn push_child(&mut self, separator: &[u8], child: Child) {
        let payload = child.encode();
        self.push(separator, self.kind.child_payload(&payload), Mark::Inline);
    }

    /// Inserts an entry before that at `slot`.
    pub(crate) fn insert(&mut self, slot: usize, key: &[u8], payload: &[u8], mark: Mark) {
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
        let entry = Entry {
            key_at: key_at as u32,
            payload_at: (key_at + key.len()) as u32,
            key_len: key.len() as u16,
            payload_len: payload.len() as u16,
            mark,
        };
        self.entries.insert(slot, entry);
    }

    /// Gives an entry another key.
    pub(super) fn replace_key(&mut self, slot: usize, key: &[u8]) {
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let entry = &mut self.entries[slot];
        entry.key_at = key_at as u32;
        entry.key_len = key.len() as u16;
    }

    /// Appends the entries of a page from a slot on. The first entry of a branch, which has no key, gets `first_key`.
    pub(super) fn load(&mut self, node: &Node<'_>, from: usize, first_key: &[u8]) -> Result<()> {
        self.bytes.reserve(PAGE_BYTES);
        self.entries.reserve(node.len() - from + 1);
        for slot in from..node.len() {
            let cell = node.cell(slot)?;
            let key_at = self.bytes.len();
            if slot == 0 && !self.kind.is_leaf() {
                self.bytes.extend_from_slice(first_key);
            } else {
                node.push_key(slot, &mut self.bytes)?;
            }
            let payload_at = self.bytes.len();
            self.bytes.extend_from_slice(cell.payload);
            self.entries.push(Entry {
                key_at: key_at as u32,
                payload_at: payload_at as u32,
                key_len: (payload_at - key_at) as u16,
                payload_len: cell.payload.len() as u16,
                mark: cell.mark,
            });
        }
        Ok(())
    }

    pub(crate) fn key(&self, slot: usize) -> &[u8] {
        self.slice(self.entries[slot].key_at, self.entries[slot].key_len)
    }

    fn payload(&self, slot: usize) -> &[u8] {
        self.slice(
            self.entries[slot].payload_at,
            self.entries[slot].payload_len,
        )
    }

    fn slice(&self, at: u32, len: u16) -> &[u8] {
        &self.bytes[at as usize..at as usize + usize::from(len)]
    }

    /// The number of records in or below these entries; 0 if that is not counted.
    pub(crate) fn records(&self, range: Range<usize>) -> u64 {
        match self.kind.is_leaf() {
            true => range.len() as u64,
            false => range
                .filter_map(|slot| Child::decode(self.payload(slot)))
                .map(|child| child.records)
                .sum(),
        }
    }

    /// The entries of a range that bring a key into a page of their own.
    fn keyed(&self, range: Range<usize>) -> Range<usize> {
        match self.kind.is_leaf() {
            true => range,
            false => (range.start + 1).min(range.end)..range.end,
        }
    }

    /// How much of their keys a page of these entries stores once. No more than leaves four bytes to the longest key,
    /// since heads cost those anyway.
    pub(crate) fn prefix_len(&self, range: Range<usize>) -> usize {
        let keyed = self.keyed(range);
        if keyed.is_empty() || self.kind.is_whole() {
            return 0;
        }
        let common = common_prefix(self.key(keyed.start), self.key(keyed.end - 1));
        let longest = keyed
            .map(|slot| usize::from(self.entries[slot].key_len))
            .max()
            .unwrap_or(0);
        common.min(longest.saturating_sub(4))
    }

    /// How many bytes a page of these entries takes, header aside.
    fn bytes(&self, range: Range<usize>) -> usize {
        let prefix_len = self.prefix_len(range.clone());
        prefix_len + slots_bytes(self.kind, range.len()) + self.cells_bytes(range, prefix_len)
    }

    /// How many bytes the cells of these entries take in a page that stores this much of their keys once.
    pub(crate) fn cells_bytes(&self, range: Range<usize>, prefix_len: usize) -> usize {
        range
            .clone()
            .map(|slot| self.cell(&range, slot, prefix_len))
            .sum()
    }

    fn cell(&self, range: &Range<usize>, slot: usize, prefix_len: usize) -> usize {
        let entry = &self.entries[slot];
        let keyless = !self.kind.is_leaf() && slot == range.start;
        let suffix_len = match keyless {
            true => 0,
            false => usize::from(entry.key_len).saturating_sub(prefix_len),
        };
        cell_bytes(self.kind, suffix_len, usize::from(entry.payload_len))
    }

    /// Whether one page holds these entries with `spare` bytes left.
    pub(crate) fn fit(&self, range: Range<usize>, spare: usize) -> bool {
        self.bytes(range) + spare <= self.kind.room_bytes()
    }

    /// Where to divide all entries between two pages: as near to `wish` as they fit, in the middle (by bytes) without a
    /// wish. `None` if they fit nowhere, which only entries of a damaged page do.
    pub(crate) fn cut(&self, wish: Option<usize>) -> Option<usize> {
        let n = self.len();
        // Half a branch has two children at least.
        let least = if self.kind.is_leaf() { 1 } else { 2 };
        if n < 2 * least {
            return None;
        }
        let wish = wish
            .unwrap_or_else(|| self.middle())
            .clamp(least, n - least);
        let fits = |cut: &usize| {
            (least..=n - least).contains(cut) && self.fit(0..*cut, 0) && self.fit(*cut..n, 0)
        };
        (0..n)
            .flat_map(|distance| [wish + distance, wish.wrapping_sub(distance)])
            .find(fits)
    }

    fn middle(&self) -> usize {
        let all = 0..self.len();
        let prefix_len = self.prefix_len(all.clone());
        let slot_bytes = |slot| self.cell(&all, slot, prefix_len) + slots_bytes(self.kind, 8) / 8;
        let half = all.clone().map(slot_bytes).sum::<usize>() / 2;
        let mut sum = 0;
        all.clone()
            .find(|&slot| {
                let bytes = slot_bytes(slot);
                sum += bytes;
                // The entry in the middle goes where the larger part of it would lie.
                sum - bytes / 2 > half
            })
            .unwrap_or(self.len() / 2)
    }

    /// The shortest key that is greater than every key before `slot` and not greater than the key there, if keys are
    /// ordered `bytewise`; otherwise the key there.
    pub(crate) fn separator(&self, slot: usize, bytewise: bool) -> &[u8] {
        let key = self.key(slot);
        match bytewise && self.kind.is_leaf() && slot > 0 {
            true => &key[..(common_prefix(self.key(slot - 1), key) + 1).min(key.len())],
            false => key,
        }
    }

    /// Writes these entries as the whole contents of a page.
    pub(crate) fn write(
        &self,
        range: Range<usize>,
        page: &mut Page,
        number: PageNo,
        commit: CommitNo,
        run: InsertionRun,
    ) -> Result<()> {
        let keyed = self.keyed(range.clone());
        let prefix: &[u8] = match keyed.is_empty() {
            true => &[],
            false => &self.key(keyed.start)[..self.prefix_len(range.clone())],
        };
        let mut node = NodeMut::init(page, number, commit, self.kind, self.level, prefix);
        let entries = range.map(|slot| {
            let mark = self.entries[slot].mark;
            (self.key(slot), self.payload(slot), mark)
        });
        if !node.fill(entries)? {
            return Err(Error::corrupt(number, "entries do not fit into one page"));
        }
        node.set_run(run);
        Ok(())
    }
}

/// How many bytes two keys have in common at their beginning.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (words, others) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let words_alike = words.iter().zip(others).take_while(|(a, b)| a == b).count();
    let alike = 8 * words_alike;
    let rest = a[alike..].iter().zip(&b[alike..]);
    alike + rest.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::format::page::Page;
    use crate::tree::Order;

    const KINDS: [PageKind; 5] = [
        PageKind::Leaf,
        PageKind::WholeLeaf,
        PageKind::Branch,
        PageKind::PackedLeaf,
        PageKind::PointerLeaf,
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A page is the same whether its entries come at once or one by one.
        #[test]
        fn a_page_is_written_as_insertions_make_it(
            records in prop::collection::btree_map(
                prop::collection::vec(0..3_u8, 0..8),
                prop::collection::vec(any::<u8>(), 0..60),
                1..60,
            ),
            kind in 0..KINDS.len(),
        ) {
            let kind = KINDS[kind];
            let level = usize::from(!kind.is_leaf());
            let records: BTreeMap<_, _> = records.into_iter().map(|(key, value)| {
                let bytes = key.iter().fold(0, |sum, byte| sum * 4 + u64::from(byte + 1)).to_be_bytes();
                match kind {
                    PageKind::PackedLeaf => (bytes.to_vec(), Vec::new()),
                    PageKind::PointerLeaf => (bytes.to_vec(), bytes.to_vec()),
                    PageKind::Branch => ([&b"pre"[..], &key].concat(), vec![value.len() as u8; 6]),
                    _ => ([&b"pre"[..], &key].concat(), value),
                }
            }).collect();
            let mut entries = Entries::new(kind, level);
            records.iter().for_each(|(key, value)| entries.push(key, value, Mark::Inline));
            let all = 0..entries.len();
            prop_assume!(entries.fit(all.clone(), 0));
            let (number, commit) = (PageNo(7), CommitNo(3));
            let mut page = Page::zeroed();
            entries.write(all.clone(), &mut page, number, commit, InsertionRun::default()).unwrap();
            let mut model = Page::zeroed();
            let first = usize::from(!kind.is_leaf()).min(all.end - 1);
            let prefix = &entries.key(first)[..entries.prefix_len(all)];
            let mut node = NodeMut::init(&mut model, number, commit, kind, level, prefix);
            for (slot, (key, value)) in records.iter().enumerate() {
                prop_assert!(node.insert(slot, key, value, Mark::Inline).unwrap());
            }
            let [node, model] = [&page, &model].map(|page| Node::open(page, number, kind, level).unwrap());
            prop_assert_eq!(node.check(Order::Bytes), Ok(()));
            prop_assert_eq!((node.len(), node.used()), (model.len(), model.used()));
            for slot in 0..node.len() {
                let entry = |node: &Node<'_>| {
                    let mut key = Vec::new();
                    node.push_key(slot, &mut key).unwrap();
                    (key, node.cell(slot).unwrap().payload.to_vec())
                };
                prop_assert_eq!(entry(&node), entry(&model));
            }
            // One entry more than there is room for.
            while entries.fit(0..entries.len(), 0) {
                let last = entries.len() - 1;
                let (key, value) = (entries.key(last).to_vec(), vec![1; entries.payload(last).len()]);
                entries.push(&key, &value, Mark::Inline);
            }
            let written = entries.write(0..entries.len(), &mut page, number, commit, InsertionRun::default());
            prop_assert!(written.is_err());
        }
    }
}
