//! Dividing a full leaf around a new entry.
//!
//! Both halves take over the cells as they stand, but for what their longer prefixes take from the keys. Leaves where
//! that is not all there is to it are divided entry by entry, to the same pages: see
//! [`Entries`](crate::tree::entries::Entries).

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use super::{
    CELLS_AT, COUNT_AT, Cell, Entry, HEAD_BYTES, HEADS_STEP, InsertionRun, NODE_HEADER_BYTES,
    NODE_ROOM_BYTES, Node, PREFIX_LEN_AT, cell_bytes, head_of, slots_bytes, tail_of,
};
use crate::format::page::{PAGE_BYTES, Page, PageKind, PageMut};
use crate::ids::{CommitNo, PageNo};
use crate::tree::entries::common_prefix;
use crate::tree::node::insertions::RUN_AT;

/// Where a leaf is divided, and by how much longer the prefixes of the halves are than its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Division {
    pub(crate) cut: usize,
    gains: [usize; 2],
}

/// What a half is written as.
#[derive(Clone, Copy)]
pub(crate) struct Heading {
    pub(crate) number: PageNo,
    pub(crate) commit: CommitNo,
    pub(crate) run: InsertionRun,
}

/// A leaf with a new entry, which it has no room for.
#[derive(Clone, Copy)]
pub(crate) struct Overfull<'a> {
    node: Node<'a>,
    slot: usize,
    entry: Entry<'a>,
    suffix: &'a [u8],
}

impl<'a> Overfull<'a> {
    /// A leaf with a new entry at `slot`; `None` if it is none that is divided this way.
    pub(crate) fn new(node: Node<'a>, slot: usize, entry: Entry<'a>) -> Option<Self> {
        if !matches!(node.kind, PageKind::Leaf | PageKind::WholeLeaf) || slot > node.n {
            return None;
        }
        let suffix = entry.key.strip_prefix(node.prefix)?;
        Some(Self {
            node,
            slot,
            entry,
            suffix,
        })
    }

    /// The number of entries, the new one included.
    pub(crate) fn len(&self) -> usize {
        self.node.n + 1
    }

    /// Where the entry stands in the leaf as it is; `None` if it is the new one.
    fn place(&self, at: usize) -> Option<usize> {
        match at.cmp(&self.slot) {
            std::cmp::Ordering::Less => Some(at),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(at - 1),
        }
    }

    /// An entry's head, and its cell.
    fn part(&self, at: usize) -> Option<(u32, Cell<'a>)> {
        match self.place(at) {
            Some(slot) => Some((self.node.head(slot)?, self.node.find_cell(slot)?)),
            None => {
                let cell = Cell {
                    suffix_len: self.suffix.len(),
                    tail: tail_of(self.suffix),
                    payload: self.entry.payload,
                    mark: self.entry.mark,
                };
                Some((head_of(self.suffix), cell))
            }
        }
    }

    /// How a leaf is divided: as near to `wish` as the halves fit, in the middle without a wish. `None` if its entries
    /// have to be looked at one by one.
    pub(crate) fn division(&self, wish: Option<usize>) -> Option<Division> {
        let n = self.len();
        let kind = self.node.kind;
        let slot_bytes = |at| {
            let (_, cell) = self.part(at)?;
            Some(cell_bytes(kind, cell.suffix_len, cell.payload.len()) + slots_bytes(kind, 8) / 8)
        };
        let mut sum = 0;
        for at in 0..n {
            sum += slot_bytes(at)?;
        }
        let (half, slots) = (sum / 2, n * (slots_bytes(kind, 8) / 8));
        if self.gain(0..n)? > 0 || self.fits(n, sum - slots) {
            return None;
        }
        let wish = wish.map(|wish| wish.clamp(1, n - 1));
        let (mut before, mut cut) = (0, None);
        for at in 0..n {
            if wish == Some(at) {
                cut = wish;
                break;
            }
            let bytes = slot_bytes(at)?;
            // The entry in the middle goes where the larger part of it would lie.
            if wish.is_none() && before + bytes - bytes / 2 > half {
                cut = Some(at);
                break;
            }
            before += bytes;
        }
        let cut = cut.filter(|cut| (1..n).contains(cut))?;
        let fits = |n: usize, bytes: usize| self.fits(n, bytes - n * (slots_bytes(kind, 8) / 8));
        if !fits(cut, before) || !fits(n - cut, sum - before) {
            return None;
        }
        Some(Division {
            cut,
            gains: [self.gain(0..cut)?, self.gain(cut..n)?],
        })
    }

    /// Whether a page has room for so many entries with cells of so many bytes, even without a longer prefix.
    fn fits(&self, n: usize, cells: usize) -> bool {
        self.node.prefix.len() + slots_bytes(self.node.kind, n) + cells <= NODE_ROOM_BYTES
    }

    /// By how much longer the prefix of a page of these entries is; `None` if that leaves less of a key than a head.
    fn gain(&self, range: Range<usize>) -> Option<usize> {
        if self.node.kind.is_whole() {
            return Some(0);
        }
        let (first, last) = (
            self.part(range.start)?,
            self.part(range.end.checked_sub(1)?)?,
        );
        let common = match (first.0 ^ last.0).leading_zeros() / u8::BITS {
            4 => HEAD_BYTES + common_prefix(first.1.tail, last.1.tail),
            bytes => bytes as usize,
        };
        let (mut shortest, mut longest) = (usize::MAX, 0);
        for at in range {
            let len = self.part(at)?.1.suffix_len;
            (shortest, longest) = (shortest.min(len), longest.max(len));
        }
        let gain = common.min(longest.checked_sub(HEAD_BYTES)?);
        (gain == 0 || shortest >= gain + HEAD_BYTES).then_some(gain)
    }

    /// The shortest key that is greater than every key before `cut` and not greater than the key there, if keys are
    /// ordered `bytewise`; otherwise the key there.
    pub(crate) fn separator(&self, cut: usize, bytewise: bool) -> Option<Vec<u8>> {
        let mut separator = self.key(cut)?;
        if bytewise {
            let common = common_prefix(&self.key(cut.checked_sub(1)?)?, &separator);
            separator.truncate(common + 1);
        }
        Some(separator)
    }

    fn key(&self, at: usize) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        match self.place(at) {
            Some(slot) => self.node.push_key(slot, &mut key).ok()?,
            None => key.extend_from_slice(self.entry.key),
        }
        Some(key)
    }

    /// Writes the left half.
    pub(crate) fn write_left(
        &self,
        division: Division,
        page: PageMut<'_>,
        heading: Heading,
    ) -> Option<()> {
        let [gain, _] = division.gains;
        self.write(0..division.cut, gain, page.whole(), heading)
    }

    /// Writes the right half.
    pub(crate) fn write_right(
        &self,
        division: Division,
        page: PageMut<'_>,
        heading: Heading,
    ) -> Option<()> {
        let [_, gain] = division.gains;
        self.write(division.cut..self.len(), gain, page.whole(), heading)
    }

    fn write(
        &self,
        range: Range<usize>,
        gain: usize,
        page: &mut Page,
        heading: Heading,
    ) -> Option<()> {
        let n = range.len();
        let kind = self.node.kind;
        page.init(kind, 0, heading.number, heading.commit);
        page.set_u16_at(RUN_AT, heading.run.0);
        page.set_u16_at(COUNT_AT, n as u16);
        let prefix_len = self.node.prefix.len() + gain;
        page.set_u16_at(PREFIX_LEN_AT, prefix_len as u16);
        let slots = page.bytes_mut().get_mut(NODE_HEADER_BYTES..)?;
        let (prefix, slots) = slots.split_at_mut_checked(prefix_len)?;
        match self.place(range.start) {
            _ if gain == 0 => prefix.copy_from_slice(self.node.prefix),
            _ => prefix.copy_from_slice(self.key(range.start)?.get(..prefix_len)?),
        }
        let heads = n.next_multiple_of(HEADS_STEP) * HEAD_BYTES;
        let (heads, rest) = slots.split_at_mut_checked(heads)?;
        let (offsets, mut free) = rest.split_at_mut_checked(2 * n)?;
        let places = heads.as_chunks_mut::<HEAD_BYTES>().0.iter_mut();
        let places = places.zip(offsets.as_chunks_mut::<2>().0);
        let mut end = PAGE_BYTES;
        for (at, (head_place, offset)) in range.zip(places) {
            let (mut head, mut cell) = self.part(at)?;
            if gain > 0 {
                let skipped = cell.tail.split_at_checked(gain)?;
                head = match gain.checked_sub(HEAD_BYTES) {
                    // All of it comes from the tail.
                    Some(from) => head_of(skipped.0.get(from..)?),
                    None => {
                        let bits = gain as u32 * u8::BITS;
                        head << bits | head_of(skipped.0) >> (u32::BITS - bits)
                    }
                };
                cell.suffix_len -= gain;
                cell.tail = skipped.1;
            }
            let need = cell_bytes(kind, cell.suffix_len, cell.payload.len());
            let bytes;
            (free, bytes) = free.split_at_mut_checked(free.len().checked_sub(need)?)?;
            self.write_cell(at, &cell, bytes)?;
            end -= need;
            *head_place = head.to_le_bytes();
            *offset = (end as u16).to_le_bytes();
        }
        page.set_u16_at(CELLS_AT, end as u16);
        Some(())
    }

    fn write_cell(&self, at: usize, cell: &Cell<'_>, bytes: &mut [u8]) -> Option<()> {
        if self.node.kind.is_whole()
            && let Some(slot) = self.place(at)
        {
            bytes.copy_from_slice(self.node.page.bytes().get(self.node.cell_range(slot)?)?);
            return Some(());
        }
        let (len, bytes) = bytes.split_first_chunk_mut()?;
        let (value, bytes) = bytes.split_first_chunk_mut()?;
        *len = (cell.suffix_len as u16).to_le_bytes();
        *value = cell.mark.encode(cell.payload.len()).to_le_bytes();
        let key = match self.node.kind.is_whole() {
            true => self.suffix,
            false => cell.tail,
        };
        let (key_pointer, payload) = bytes.split_at_mut_checked(key.len())?;
        key_pointer.copy_from_slice(key);
        (payload.len() == cell.payload.len()).then(|| payload.copy_from_slice(cell.payload))
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::entries::Entries;
    use crate::tree::node::{Mark, NodeMut};

    const NUMBER: PageNo = PageNo(7);
    const COMMIT: CommitNo = CommitNo(3);

    /// Keys that share much or little, and are short or long.
    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let part = |bytes, len| prop::collection::vec(bytes, len);
        let key = (part(0..2_u8, 0..6), part(0..255_u8, 0..12));
        let key = key.prop_map(|(common, rest)| [common, rest].concat());
        let long = (part(0..2_u8, 4..7), part(0..255_u8, 8..20));
        let long = long.prop_map(|(common, rest)| [common, rest].concat());
        prop_oneof![part_set(key), part_set(long)]
    }

    fn part_set(key: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(key, 200..500)
    }

    fn payload(of: &[u8], len: usize) -> Vec<u8> {
        let seed = of.iter().fold(1_u8, |a, b| a.wrapping_mul(31) ^ b);
        vec![seed; len + usize::from(seed) % 9]
    }

    fn heading(number: PageNo, run: InsertionRun) -> Heading {
        Heading {
            number,
            commit: COMMIT,
            run,
        }
    }

    /// Leaves of keys of one length are divided without looking at one entry after the other.
    #[test]
    fn most_leaves_are_divided_at_once() {
        let mut page = Page::zeroed();
        NodeMut::init((&mut page).into(), NUMBER, COMMIT, PageKind::Leaf, 0, b"k");
        for number in 0_u32.. {
            let suffix = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
            let key = [&b"k"[..], &suffix, &suffix].concat();
            let node = Node::open(&page, NUMBER, PageKind::Leaf, 0).unwrap();
            let slot = node.search(&key, 0, Default::default()).unwrap().slot;
            let payload = payload(&key, 100);
            let before = page.clone();
            let mut edited = NodeMut::open((&mut page).into(), NUMBER, PageKind::Leaf, 0).unwrap();
            if !edited.insert(slot, &key, &payload, Mark::Inline).unwrap() {
                let node = Node::open(&before, NUMBER, PageKind::Leaf, 0).unwrap();
                let entry = Entry {
                    key: &key,
                    payload: &payload,
                    mark: Mark::Inline,
                };
                let leaf = Overfull::new(node, slot, entry).unwrap();
                for wish in [None, Some(3), Some(leaf.len() - 2)] {
                    assert!(leaf.division(wish).is_some());
                }
                break;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_leaf_is_divided_as_its_entries_would_be(
            keys in keys(),
            whole in any::<bool>(),
            len in 0..200_usize,
            prefix_len in 0..6_usize,
            wish in prop::option::of(0..40_usize),
            common in prop::bool::weighted(0.5),
        ) {
            let kind = if whole { PageKind::WholeLeaf } else { PageKind::Leaf };
            let shared = [9; 6];
            let shared = if common { &shared[..] } else { &[] };
            let mut page = Page::zeroed();
            let prefix = match whole {
                true => &[],
                false => &shared[..prefix_len.min(shared.len())],
            };
            NodeMut::init((&mut page).into(), NUMBER, COMMIT, kind, 0, prefix);
            for key in keys {
                let key = [shared, &key].concat();
                let payload = payload(&key, len);
                let entry = Entry { key: &key, payload: &payload, mark: Mark::Inline };
                let node = Node::open(&page, NUMBER, kind, 0).unwrap();
                let place = node.search(&key, 0, Default::default()).unwrap();
                if place.exact {
                    continue;
                }
                let mut after = page.clone();
                let mut edited = NodeMut::open((&mut after).into(), NUMBER, kind, 0).unwrap();
                if edited.insert(place.slot, &key, &payload, Mark::Inline).unwrap() {
                    page = after;
                    continue;
                }
                let Some(leaf) = Overfull::new(node, place.slot, entry) else {
                    break;
                };
                let mut entries = Entries::new(kind, 0);
                entries.load(&node, &[]).unwrap();
                entries.insert(place.slot, &key, &payload, Mark::Inline);
                let n = entries.len();
                let Some(division) = leaf.division(wish) else {
                    break;
                };
                prop_assert!(!entries.fit(0..n, 0));
                let cut = entries.cut(wish).unwrap();
                prop_assert_eq!(division.cut, cut);
                for bytewise in [true, false] {
                    let separator = leaf.separator(cut, bytewise).unwrap();
                    prop_assert_eq!(&separator[..], entries.separator(cut, bytewise));
                }
                let run = InsertionRun::default().after(place.slot);
                for (number, range, run) in [(NUMBER, 0..cut, run), (PageNo(8), cut..n, run.moved(cut))] {
                    let mut expected = Page::zeroed();
                    entries.write(range.clone(), (&mut expected).into(), number, COMMIT, run).unwrap();
                    let mut half = page.clone();
                    let into = PageMut::from(&mut half);
                    match range.start {
                        0 => leaf.write_left(division, into, heading(number, run)).unwrap(),
                        _ => leaf.write_right(division, into, heading(number, run)).unwrap(),
                    }
                    // What insertions leave behind the heads.
                    let prefix_len = usize::from(expected.u16_at(PREFIX_LEN_AT));
                    let heads = NODE_HEADER_BYTES + prefix_len;
                    let end = heads + range.len().next_multiple_of(HEADS_STEP) * HEAD_BYTES;
                    expected.bytes_mut()[heads + range.len() * HEAD_BYTES..end].fill(0);
                    prop_assert!(half.bytes() == expected.bytes());
                }
                break;
            }
        }
    }
}
