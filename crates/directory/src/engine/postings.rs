//! Posting lists in an ordered tree: exact at any size, in compact blocks that split as pages of a B+tree do.
//!
//! A list is one or more blocks. A block's key is the escaped, terminated index key and the block's first id
//! (big-endian), so that the blocks of a list are neighbours in id order. Its value is empty when the first id is the
//! only one, otherwise
//!
//! ```text
//!  offset  size  field
//!       0     2  count   ids in the block, the first included
//!       2     8  last    the last id
//!      10     ...        for each id but the first, its distance from the one before as LEB128
//! ```
//!
//! with little-endian numbers. Adding at the end of a list, which is what growing directories do, appends a few bytes
//! to the last block.

mod write;

use std::ops::Bound;

pub(super) use write::{BlockBuilder, Change, Scratch, change};

use super::{EntryId, Error, Index, POSTINGS_FEW_MAX, Postings, Range, Result};

/// A block that would grow beyond this many bytes is split.
pub(super) const BLOCK_BYTES_MAX: usize = 1000;

const HEADER_BYTES: usize = 10;

/// No block has more: one that was not full took one more id, of at most 10 bytes. So a count never overflows.
const DELTA_BYTES_MAX: usize = BLOCK_BYTES_MAX + 10;
const ID_BYTES: usize = 8;

/// The longest index key; longer values are filed under a prefix and a hash by the directory.
pub const INDEX_KEY_BYTES_MAX: usize = 512;

/// How many blocks are looked at before a cardinality is estimated.
const EXACT_BLOCKS_MAX: u64 = 8;

/// Appends `key` so that it sorts as before and its end can be found: 0x00 as 0x00 0xFF, then 0x00 0x00.
pub fn append_escaped(out: &mut Vec<u8>, key: &[u8]) {
    for part in key.split_inclusive(|&byte| byte == 0) {
        out.extend_from_slice(part);
        if part.last() == Some(&0) {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// Undoes [`append_escaped`] at the beginning of `bytes`: appends the key to `out` and answers what follows its end.
/// `None` when there is no end.
pub fn take_escaped<'b>(mut bytes: &'b [u8], out: &mut Vec<u8>) -> Option<&'b [u8]> {
    loop {
        let zero = bytes.iter().position(|&byte| byte == 0)?;
        let (plain, rest) = bytes.split_at_checked(zero)?;
        out.extend_from_slice(plain);
        match rest {
            [0, 0xFF, rest @ ..] => {
                out.push(0);
                bytes = rest;
            }
            [0, 0, rest @ ..] => return Some(rest),
            _ => return None,
        }
    }
}

/// A tree of blocks that can be read: what a posting list needs of a store.
pub(super) trait BlockTree<'t>: Copy {
    type Cursor: BlockCursor<'t>;
    fn cursor(&self) -> Self::Cursor;
    fn estimate(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64>;
}

/// A place among the blocks. Movements answer whether there is a block.
pub(super) trait BlockCursor<'t> {
    fn seek(&mut self, key: &[u8]) -> Result<bool>;
    fn seek_back(&mut self, key: &[u8]) -> Result<bool>;
    fn next(&mut self) -> Result<bool>;
    fn record(&mut self) -> Result<Option<(&[u8], &'t [u8])>>;
}

/// A tree of blocks that can be written.
pub(super) trait BlockTreeMut {
    fn view(&self) -> Result<impl BlockTree<'_>>;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// Whether there was anything to delete.
    fn delete_range(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<bool>;
}

fn corrupt(index: Index) -> Error {
    Error::Corrupt(format!(
        "index {}: a posting block does not follow its format",
        index.name().as_str()
    ))
}

/// A block as read: its ids, without the key's prefix.
#[derive(Clone, Copy)]
struct Block<'t> {
    first: u64,
    last: u64,
    count: u16,
    deltas: &'t [u8],
}

impl<'t> Block<'t> {
    fn read(key_tail: &[u8], value: &'t [u8]) -> Option<Block<'t>> {
        let first = u64::from_be_bytes(key_tail.try_into().ok()?);
        if value.is_empty() {
            return Some(Block {
                first,
                last: first,
                count: 1,
                deltas: &[],
            });
        }
        let (header, deltas) = value.split_at_checked(HEADER_BYTES)?;
        let count = u16::from_le_bytes(header[..2].try_into().ok()?);
        let last = u64::from_le_bytes(header[2..].try_into().ok()?);
        let is_sound = count >= 2
            && usize::from(count) <= deltas.len() + 1
            && deltas.len() <= DELTA_BYTES_MAX
            && last > first;
        is_sound.then_some(Block {
            first,
            last,
            count,
            deltas,
        })
    }

    fn ids(self, out: &mut Vec<u64>) -> Option<()> {
        self.each_id(|id| out.push(id))
    }

    fn each_id(self, mut each: impl FnMut(u64)) -> Option<()> {
        each(self.first);
        let (mut id, mut deltas, mut count) = (self.first, self.deltas, 1);
        while !deltas.is_empty() {
            id = id.checked_add(take_varint(&mut deltas)?)?;
            each(id);
            count += 1;
        }
        (id == self.last && count == usize::from(self.count)).then_some(())
    }
}

/// Takes a number in LEB128 from the beginning of `bytes`; `None` when there is none of at most 64 bits.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (position, &byte) in bytes.iter().enumerate().take(10) {
        if position == 9 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7F) << (7 * position);
        if byte & 0x80 == 0 {
            *bytes = &bytes[position + 1..];
            return Some(number);
        }
    }
    None
}

/// Appends a number in LEB128.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A posting list being read in place.
pub(super) struct List<'t, T: BlockTree<'t>> {
    index: Index,
    /// `None` for a list of an index that does not exist.
    cursor: Option<T::Cursor>,
    /// The prefix of the list's blocks; a block's first id is appended to seek.
    key: Vec<u8>,
    prefix: usize,
    block: Option<Block<'t>>,
    /// What of the block's deltas is not read, and the id before it.
    rest: &'t [u8],
    id: u64,
    /// Whether the block's first id was read.
    begun: bool,
}

impl<'t, T: BlockTree<'t>> List<'t, T> {
    pub(super) fn new(index: Index, tree: Option<T>, key: &[u8]) -> Result<Self> {
        let mut bytes = Vec::with_capacity(key.len() + 2 + ID_BYTES);
        append_escaped(&mut bytes, key);
        let prefix = bytes.len();
        let mut list: List<'t, T> = List {
            index,
            cursor: tree.map(|tree| tree.cursor()),
            key: bytes,
            prefix,
            block: None,
            rest: &[],
            id: 0,
            begun: false,
        };
        if let Some(cursor) = &mut list.cursor
            && cursor.seek(&list.key)?
        {
            list.enter()?;
        }
        Ok(list)
    }

    /// Reads the block the cursor stands on, if it is one of the list.
    fn enter(&mut self) -> Result<()> {
        self.block = None;
        let Some(cursor) = &mut self.cursor else {
            return Ok(());
        };
        if let Some((key, value)) = cursor.record()?
            && key.len() == self.prefix + ID_BYTES
            && key[..self.prefix] == self.key[..self.prefix]
        {
            let block =
                Block::read(&key[self.prefix..], value).ok_or_else(|| corrupt(self.index))?;
            self.block = Some(block);
            self.rest = block.deltas;
            self.id = block.first;
            self.begun = false;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<EntryId>> {
        loop {
            let Some(block) = self.block else {
                return Ok(None);
            };
            if !self.begun {
                self.begun = true;
                return Ok(Some(EntryId(block.first)));
            }
            if !self.rest.is_empty() {
                let delta = take_varint(&mut self.rest).ok_or_else(|| corrupt(self.index))?;
                self.id = self
                    .id
                    .checked_add(delta)
                    .ok_or_else(|| corrupt(self.index))?;
                return Ok(Some(EntryId(self.id)));
            }
            let standing = self.cursor.as_mut().map_or(Ok(false), BlockCursor::next)?;
            if standing {
                self.enter()?;
            } else {
                self.block = None;
            }
        }
    }
}

impl<'t, T: BlockTree<'t>> Postings for List<'t, T> {
    fn next(&mut self) -> Result<Option<EntryId>> {
        self.step()
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        let Some(block) = self.block else {
            return Ok(None);
        };
        if id.0 > block.last {
            self.key.truncate(self.prefix);
            self.key.extend_from_slice(&id.0.to_be_bytes());
            let Some(cursor) = &mut self.cursor else {
                return Ok(None);
            };
            // The block that begins at or before the id. It belongs to the list, because the current block does.
            if !cursor.seek_back(&self.key)? {
                return Err(corrupt(self.index));
            }
            self.enter()?;
            if self.block.is_some_and(|block| block.last < id.0) {
                self.rest = &[];
                self.begun = true;
            }
        }
        while let Some(next) = self.step()? {
            if next >= id {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }
}

/// About how many ids a list has; exact when it has few blocks. `few` is replaced by the ids if they are few.
pub(super) fn cardinality<'t, T: BlockTree<'t>>(
    index: Index,
    tree: Option<T>,
    key: &[u8],
    few: &mut Vec<EntryId>,
) -> Result<u64> {
    few.clear();
    let Some(tree) = tree else { return Ok(0) };
    let mut from = Vec::with_capacity(key.len() + 2 + ID_BYTES);
    append_escaped(&mut from, key);
    let prefix = from.len();
    let mut cursor = tree.cursor();
    let mut standing = cursor.seek(&from)?;
    let (mut ids, mut blocks) = (0, 0);
    while standing {
        let Some((key, value)) = cursor.record()? else {
            break;
        };
        if key.len() != prefix + ID_BYTES || key[..prefix] != from[..prefix] {
            break;
        }
        let block = Block::read(&key[prefix..], value).ok_or_else(|| corrupt(index))?;
        ids += u64::from(block.count);
        blocks += 1;
        if ids <= POSTINGS_FEW_MAX as u64 {
            block
                .each_id(|id| few.push(EntryId(id)))
                .ok_or_else(|| corrupt(index))?;
        } else {
            few.clear();
        }
        if blocks == EXACT_BLOCKS_MAX {
            let mut to = from.clone();
            to.extend_from_slice(&[0xFF; ID_BYTES]);
            let all = tree.estimate(Bound::Included(&from), Bound::Included(&to))?;
            return Ok(ids * all.max(blocks) / blocks);
        }
        standing = cursor.next()?;
    }
    Ok(ids)
}

/// Hands every (key, id) of `range` to `each` until it answers false.
pub(super) fn scan<'t, T: BlockTree<'t>>(
    index: Index,
    tree: T,
    range: Range<'_>,
    mut each: impl FnMut(&[u8], EntryId) -> bool,
) -> Result<()> {
    let mut from = Vec::new();
    if let Bound::Included(key) | Bound::Excluded(key) = range.from {
        append_escaped(&mut from, key);
    }
    let mut cursor = tree.cursor();
    let (mut key, mut ids) = (Vec::new(), Vec::new());
    let mut standing = cursor.seek(&from)?;
    while standing {
        let Some((block_key, value)) = cursor.record()? else {
            break;
        };
        key.clear();
        let tail = take_escaped(block_key, &mut key).ok_or_else(|| corrupt(index))?;
        ids.clear();
        Block::read(tail, value)
            .and_then(|block| block.ids(&mut ids))
            .ok_or_else(|| corrupt(index))?;
        if range.contains(&key) {
            for &id in &ids {
                if !each(&key, EntryId(id)) {
                    return Ok(());
                }
            }
        } else if !matches!(range.from, Bound::Excluded(from) if key == from) {
            break;
        }
        standing = cursor.next()?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::super::{AttributeNo, IndexKind};
    use super::*;

    const INDEX: Index = Index {
        attribute: AttributeNo(3),
        kind: IndexKind::Equality,
    };

    /// The least tree of blocks.
    #[derive(Clone, Default)]
    pub(in crate::engine) struct Map(pub(in crate::engine) BTreeMap<Vec<u8>, Vec<u8>>);

    #[derive(Clone, Copy)]
    pub(in crate::engine) struct MapView<'t>(&'t BTreeMap<Vec<u8>, Vec<u8>>);

    pub(in crate::engine) struct MapCursor<'t> {
        map: &'t BTreeMap<Vec<u8>, Vec<u8>>,
        at: Option<&'t Vec<u8>>,
    }

    impl<'t> BlockTree<'t> for MapView<'t> {
        type Cursor = MapCursor<'t>;

        fn cursor(&self) -> MapCursor<'t> {
            MapCursor {
                map: self.0,
                at: None,
            }
        }

        fn estimate(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<u64> {
            Ok(self.0.range::<[u8], _>((from, to)).count() as u64)
        }
    }

    impl<'t> BlockCursor<'t> for MapCursor<'t> {
        fn seek(&mut self, key: &[u8]) -> Result<bool> {
            let range = (Bound::Included(key), Bound::Unbounded);
            self.at = self.map.range::<[u8], _>(range).next().map(|(key, _)| key);
            Ok(self.at.is_some())
        }

        fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
            let range = (Bound::Unbounded, Bound::Included(key));
            self.at = self
                .map
                .range::<[u8], _>(range)
                .next_back()
                .map(|(key, _)| key);
            Ok(self.at.is_some())
        }

        fn next(&mut self) -> Result<bool> {
            let after = self.at.map(Vec::as_slice).unwrap_or_default();
            let range = (Bound::Excluded(after), Bound::Unbounded);
            self.at = self.map.range::<[u8], _>(range).next().map(|(key, _)| key);
            Ok(self.at.is_some())
        }

        fn record(&mut self) -> Result<Option<(&[u8], &'t [u8])>> {
            Ok(self
                .at
                .and_then(|key| self.map.get_key_value(key))
                .map(|(key, value)| (&**key, &**value)))
        }
    }

    impl BlockTreeMut for Map {
        fn view(&self) -> Result<impl BlockTree<'_>> {
            Ok(MapView(&self.0))
        }

        fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
            self.0.insert(key.to_vec(), value.to_vec());
            Ok(())
        }

        fn delete(&mut self, key: &[u8]) -> Result<()> {
            self.0.remove(key);
            Ok(())
        }

        fn delete_range(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<bool> {
            let doomed: Vec<_> = self
                .0
                .range::<[u8], _>((from, to))
                .map(|(key, _)| key.clone())
                .collect();
            doomed.iter().for_each(|key| drop(self.0.remove(key)));
            Ok(!doomed.is_empty())
        }
    }

    fn post(map: &mut Map, scratch: &mut Scratch, key: &[u8], id: u64, is_added: bool) {
        change(INDEX, map, scratch, key, &[Change { id, is_added }]).unwrap();
    }

    fn read(map: &Map, key: &[u8]) -> Vec<u64> {
        let mut list = List::new(INDEX, Some(MapView(&map.0)), key).unwrap();
        let mut ids = Vec::new();
        while let Some(id) = list.next().unwrap() {
            ids.push(id.0);
        }
        ids
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_list_is_a_set(
            steps in prop::collection::vec((any::<bool>(), 0u64..2000, 1u64..400, 1u64..3), 0..40),
            far in prop::collection::vec(any::<u64>(), 0..20),
            batches in prop::collection::vec(
                (any::<bool>(), prop::collection::btree_map(0u64..20_000, any::<bool>(), 0..1000))
                    .prop_map(|(adds, batch)| batch.into_iter().map(|(id, is_added)| (id, adds || is_added)).collect::<BTreeMap<_, _>>()),
                0..3,
            ),
        ) {
            let (mut map, mut scratch, mut set) = (Map::default(), Scratch::default(), BTreeSet::new());
            // Neighbours in key order, which must stay untouched.
            for (key, id) in [(b"k".as_slice(), 7), (b"key\0", 8), (b"l", 9)] {
                post(&mut map, &mut scratch, key, id, true);
            }
            let runs = steps.iter().flat_map(|&(adds, from, count, step)| (0..count).map(move |at| (adds, from + at * step)));
            for (adds, id) in runs.chain(far.iter().map(|id| (true, *id))) {
                post(&mut map, &mut scratch, b"key", id, adds);
                if adds {
                    set.insert(id);
                } else {
                    set.remove(&id);
                }
            }
            for batch in &batches {
                let changes: Vec<_> = batch.iter().map(|(&id, &is_added)| Change { id, is_added }).collect();
                change(INDEX, &mut map, &mut scratch, b"key", &changes).unwrap();
                set.extend(batch.iter().filter(|(_, is_added)| **is_added).map(|(id, _)| *id));
                set.retain(|id| batch.get(id) != Some(&false));
            }
            prop_assert_eq!(read(&map, b"key"), set.into_iter().collect::<Vec<_>>());
            for (key, id) in [(b"k".as_slice(), 7), (b"key\0", 8), (b"l", 9)] {
                prop_assert_eq!(read(&map, key), vec![id]);
            }
            prop_assert!(map.0.values().all(|block| block.len() <= DELTA_BYTES_MAX + HEADER_BYTES));
        }

        #[test]
        fn damaged_blocks_are_told_and_never_panic(
            blocks in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 1..6),
            sound_count in any::<bool>(),
            ids in prop::collection::vec(any::<u64>(), 1..6),
        ) {
            let (mut map, mut scratch) = (Map::default(), Scratch::default());
            for (first, mut value) in blocks {
                if let (true, Some(count)) = (sound_count, value.get_mut(..2)) {
                    count.copy_from_slice(&2u16.to_le_bytes());
                }
                map.0.insert([b"key\0\0".as_slice(), &first.to_be_bytes()].concat(), value);
            }
            for id in ids {
                if let Ok(mut list) = List::new(INDEX, Some(MapView(&map.0)), b"key") {
                    let _ = list.seek(EntryId(id));
                    for _ in 0..100 {
                        if !matches!(list.next(), Ok(Some(_))) {
                            break;
                        }
                    }
                }
                let _ = cardinality(INDEX, Some(MapView(&map.0)), b"key", &mut Vec::new());
                let _ = scan(INDEX, MapView(&map.0), Range::ALL, |_, _| true);
                for changes in [&[(id, true)][..], &[(id ^ 1, false)], &[(id / 2, true), (id, true)]] {
                    let changes: Vec<_> = changes.iter().map(|&(id, is_added)| Change { id, is_added }).collect();
                    let _ = change(INDEX, &mut map, &mut scratch, b"key", &changes);
                }
            }
        }
    }
}
