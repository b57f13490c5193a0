//! Writing posting lists: changes of many ids at once, and bulk builds.

use super::{
    BLOCK_BYTES_MAX, Block, BlockCursor, BlockTree, BlockTreeMut, HEADER_BYTES, ID_BYTES,
    append_escaped, corrupt, put_varint,
};
use crate::engine::{EntryId, Index, Result};

/// What becomes of an id in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Change {
    pub(in crate::engine) id: u64,
    /// Otherwise it is taken away.
    pub(in crate::engine) is_added: bool,
}

/// Appends ids to a block's value.
#[derive(Default)]
struct BlockWriter {
    first: u64,
    last: u64,
    count: u16,
    value: Vec<u8>,
}

impl BlockWriter {
    fn clear(&mut self) {
        self.count = 0;
        self.value.clear();
    }

    fn is_full(&self) -> bool {
        self.value.len() >= BLOCK_BYTES_MAX
    }

    /// Goes on with a block.
    fn resume(&mut self, block: Block<'_>) {
        (self.first, self.last, self.count) = (block.first, block.last, block.count);
        self.value.clear();
        if block.count > 1 {
            self.value.resize(HEADER_BYTES, 0);
            self.value.extend_from_slice(block.deltas);
        }
    }

    fn push(&mut self, id: u64) {
        match self.count {
            0 => self.first = id,
            1 => {
                self.value.resize(HEADER_BYTES, 0);
                put_varint(&mut self.value, id - self.last);
            }
            _ => put_varint(&mut self.value, id - self.last),
        }
        self.last = id;
        self.count += 1;
    }

    fn value(&mut self) -> &[u8] {
        if self.count > 1 {
            self.value[..2].copy_from_slice(&self.count.to_le_bytes());
            self.value[2..HEADER_BYTES].copy_from_slice(&self.last.to_le_bytes());
        }
        &self.value
    }
}

/// Reusable buffers for changing lists.
#[derive(Default)]
pub(in crate::engine) struct Scratch {
    key: Vec<u8>,
    value: Vec<u8>,
    ids: Vec<u64>,
    changed: Vec<u64>,
    writer: BlockWriter,
}

impl Scratch {
    /// Makes `key` the prefix of the list's blocks; its length.
    fn list(&mut self, key: &[u8]) -> usize {
        self.key.clear();
        append_escaped(&mut self.key, key);
        self.key.len()
    }

    /// Completes the key of a block of the list.
    fn block(&mut self, prefix: usize, first: u64) {
        self.key.truncate(prefix);
        self.key.extend_from_slice(&first.to_be_bytes());
    }

    /// Writes the block under way, if there is one, and is ready for the next.
    fn flush<T: BlockTreeMut>(&mut self, tree: &mut T, prefix: usize) -> Result<()> {
        if self.writer.count > 0 {
            self.block(prefix, self.writer.first);
            tree.put(&self.key, self.writer.value())?;
            self.writer.clear();
        }
        Ok(())
    }
}

/// Makes changes to the list under `key`. Their ids ascend; to add what is there and to take away what is not changes
/// nothing.
pub(in crate::engine) fn change<T: BlockTreeMut>(
    index: Index,
    tree: &mut T,
    scratch: &mut Scratch,
    key: &[u8],
    mut changes: &[Change],
) -> Result<()> {
    let prefix = scratch.list(key);
    while let Some(first) = changes.first() {
        let place = find(index, tree, scratch, prefix, first.id, changes.len() > 1)?;
        let here = match place.next {
            Some(next) => changes.partition_point(|change| change.id < next),
            None => changes.len(),
        };
        let (these, later) = changes.split_at(here);
        changes = later;
        let block = match place.block {
            Some(first) => Some(
                Block::read(&first.to_be_bytes(), &scratch.value).ok_or_else(|| corrupt(index))?,
            ),
            None => None,
        };
        let is_behind = block.is_none_or(|block| block.last < first.id);
        if is_behind {
            scratch.writer.clear();
            let mut is_changed = false;
            if let Some(block) = block {
                scratch.writer.resume(block);
            }
            for change in these.iter().filter(|change| change.is_added) {
                if scratch.writer.is_full() {
                    match is_changed {
                        true => scratch.flush(tree, prefix)?,
                        // Ascending ids leave full blocks behind.
                        false => scratch.writer.clear(),
                    }
                }
                scratch.writer.push(change.id);
                is_changed = true;
            }
            if is_changed {
                scratch.flush(tree, prefix)?;
            }
        } else if let Some(block) = block {
            scratch.ids.clear();
            block.ids(&mut scratch.ids).ok_or_else(|| corrupt(index))?;
            merge(&scratch.ids, these, &mut scratch.changed);
            if scratch.changed != scratch.ids {
                let old_first = block.first;
                rewrite(tree, scratch, prefix, old_first)?;
            }
        }
    }
    Ok(())
}

/// Where changes belong.
struct Place {
    /// The first id of the block that holds their first id, or would; without one of it, of the list's first block. Its
    /// value is copied to the scratch. `None`: there is no list.
    block: Option<u64>,
    /// The first id of the list's next block, if it was asked for.
    next: Option<u64>,
}

fn find<T: BlockTreeMut>(
    index: Index,
    tree: &T,
    scratch: &mut Scratch,
    prefix: usize,
    id: u64,
    with_next: bool,
) -> Result<Place> {
    scratch.block(prefix, id);
    let view = tree.view()?;
    let mut cursor = view.cursor();
    let first_of = |key: &[u8], list: &[u8]| {
        (key.len() == prefix + ID_BYTES && key[..prefix] == list[..prefix])
            .then(|| key[prefix..].try_into().map(u64::from_be_bytes))
            .transpose()
            .map_err(|_| corrupt(index))
    };
    let mut is_behind = false;
    for before in [false, true] {
        let found = match before {
            false => cursor.seek_back(&scratch.key)?,
            // The cursor stands on a record of another list, in front of where this one would be.
            true if is_behind => cursor.next()?,
            true => cursor.seek(&scratch.key)?,
        };
        is_behind = found;
        let Some((key, value)) = cursor.record()?.filter(|_| found) else {
            continue;
        };
        let Some(first) = first_of(key, &scratch.key)? else {
            continue;
        };
        scratch.value.clear();
        scratch.value.extend_from_slice(value);
        let next = match with_next && cursor.next()? {
            true => match cursor.record()? {
                Some((key, _)) => first_of(key, &scratch.key)?,
                None => None,
            },
            false => None,
        };
        let block = Some(first);
        return Ok(Place { block, next });
    }
    let (block, next) = (None, None);
    Ok(Place { block, next })
}

/// Replaces `out` by what ascending ids become through changes.
fn merge(ids: &[u64], changes: &[Change], out: &mut Vec<u64>) {
    out.clear();
    let mut rest = ids;
    for change in changes {
        let (before, from) = rest.split_at(rest.partition_point(|id| *id < change.id));
        out.extend_from_slice(before);
        rest = match from.split_first() {
            Some((id, behind)) if *id == change.id => behind,
            _ => from,
        };
        if change.is_added {
            out.push(change.id);
        }
    }
    out.extend_from_slice(rest);
}

/// Writes the ids in `scratch.changed` in place of the block that begins with `old_first`: as one block if they fit,
/// otherwise as several of about the same size.
fn rewrite<T: BlockTreeMut>(
    tree: &mut T,
    scratch: &mut Scratch,
    prefix: usize,
    old_first: u64,
) -> Result<()> {
    if scratch.changed.first() != Some(&old_first) {
        scratch.block(prefix, old_first);
        tree.delete(&scratch.key)?;
    }
    let ids = std::mem::take(&mut scratch.changed);
    let deltas = ids.windows(2).map(|pair| varint_bytes(pair[1] - pair[0]));
    let bytes = HEADER_BYTES + deltas.sum::<usize>();
    let part = bytes.div_ceil(bytes.div_ceil(BLOCK_BYTES_MAX));
    scratch.writer.clear();
    for id in &ids {
        if scratch.writer.value.len() >= part {
            scratch.flush(tree, prefix)?;
        }
        scratch.writer.push(*id);
    }
    scratch.flush(tree, prefix)?;
    scratch.changed = ids;
    Ok(())
}

/// How many bytes [`put_varint`] appends.
fn varint_bytes(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Turns ascending postings into blocks for a bulk build.
#[derive(Default)]
pub(in crate::engine) struct BlockBuilder {
    /// The escaped key of the list under way.
    key: Vec<u8>,
    prefix: usize,
    plain: Vec<u8>,
    writer: BlockWriter,
}

impl BlockBuilder {
    pub(in crate::engine) fn post(
        &mut self,
        key: &[u8],
        id: EntryId,
        push: &mut impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.writer.count > 0 && self.plain == key {
            if self.writer.last == id.0 {
                return Ok(());
            }
            if self.writer.is_full() {
                self.flush(push)?;
            }
        } else {
            self.flush(push)?;
            self.plain.clear();
            self.plain.extend_from_slice(key);
            self.key.clear();
            append_escaped(&mut self.key, key);
            self.prefix = self.key.len();
        }
        self.writer.push(id.0);
        Ok(())
    }

    pub(in crate::engine) fn flush(
        &mut self,
        push: &mut impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.writer.count > 0 {
            self.key.truncate(self.prefix);
            self.key.extend_from_slice(&self.writer.first.to_be_bytes());
            push(&self.key, self.writer.value())?;
            self.writer.clear();
        }
        Ok(())
    }
}
