//! Online compaction: what lies at the end of the file moves to free pages further ahead, and the file is cut.
//!
//! A *pass* looks for all records whose pages, or whose ways from the root, lead to pages behind the size that the
//! store ought to have; bounded transactions then write these records once more, as anybody might, with free pages
//! ahead of that size only: copy on write moves everything on their ways. Values that stand in segments at the end are
//! moved out of them, and then these are given up. When nothing that is pinned refers to the pages at the end any more,
//! a transaction gives them up, and behind a checkpoint the file is cut. Readers and writers go on meanwhile; what they
//! undo is done again by the next pass.

use crate::env::mapping::MappedPages;
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::format::page::PAGE_BYTES;
use crate::format::pointer::Segment;
use crate::format::tree_record::{TreeKind, TreeRecord};
use crate::guard::Guard;
use crate::heap::segment_in_use;
use crate::ids::{CommitNo, HeapNo, PageNo};
use crate::log::checkpoint;
use crate::log::checkpoint::CheckpointLock;
use crate::stat::free_pages;
use crate::sync::Arc;
use crate::tree::{Relocation, View};
use crate::txn::snapshot::{Snapshot, Tree};
use crate::txn::{TreeId, WriteTxn};

/// How many records one transaction writes anew.
const MOVED_MAX: usize = 256;

/// How many one pass finds; there may be more in the next one.
const FOUND_MAX: usize = 1 << 16;

/// So many bytes of segments are moved by one pass.
const MOVED_BYTES_MAX: u64 = 32 << 20;

/// After so many passes it ends, though writers may have undone what it did.
const PASSES_MAX: usize = 64;

/// It ends after so many passes in a row that have not made the store smaller.
const FRUITLESS_MAX: usize = 3;

/// Pages that a store keeps beside those in use and one in so many of them.
const SPARE_PAGES: u64 = if cfg!(test) { 64 } else { 128 };
const SPARE_SHARE: u64 = 64;

/// Worth the while of a store that rests: one page in so many is free, or more.
const FREE_SHARE_DUE: u64 = 8;

/// How far a compaction has come, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// The size of the store when it began.
    pub before: u64,
    /// Its size now.
    pub now: u64,
    /// How small it can become, as far as is known.
    pub target: u64,
}

impl Env {
    /// Moves what lies at the end of the store to free pages ahead of it, in bounded transactions, and gives the space
    /// behind back to the file system, while readers and writers go on. `progress` is told after each pass over the
    /// store.
    ///
    /// What a snapshot pins stays where it is, so that a long reader keeps the store from getting smaller; so do trees
    /// whose comparators are not registered. Each pass walks all branches of all trees, and the leaves of those with
    /// values of many pages or with duplicates.
    ///
    /// ```
    /// # fn main() -> sapwood_store::Result<()> {
    /// # use sapwood_store::{Env, Options, TreeKind};
    /// # let env = Env::in_memory(&Options::new())?;
    /// let mut txn = env.write()?;
    /// let tree = txn.create_tree("t", TreeKind::COMPACT)?;
    /// for n in 0..50_000_u32 {
    ///     txn.put(tree, &n.to_be_bytes(), &[7; 100])?;
    /// }
    /// txn.commit()?.wait_durable()?;
    /// let mut txn = env.write()?;
    /// let tree = txn.tree("t")?.unwrap();
    /// for n in (0..50_000_u32).filter(|n| n % 1000 >= 50) {
    ///     txn.delete(tree, &n.to_be_bytes())?;
    /// }
    /// txn.commit()?.wait_durable()?;
    /// let compacted = env.compact(|_| ())?;
    /// assert!(compacted.now < compacted.before / 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compact(&self, mut progress: impl FnMut(Compacted)) -> Result<Compacted> {
        self.inner().check_usable()?;
        compact(self, 0, &mut progress, &|_| true)
    }
}

/// Whether a store that rests had better be compacted.
pub(crate) fn is_due(inner: &Arc<Inner>) -> Result<bool> {
    let pages = store_pages(inner)?;
    Ok(target_pages(inner)? + pages / FREE_SHARE_DUE < pages)
}

/// Pages of the visible commit.
pub(crate) struct Pages {
    pub(crate) used: u64,
    /// All others.
    pub(crate) free: u64,
    /// Those of them that may be used again, as nobody looks at them.
    pub(crate) ready: u64,
}

pub(crate) fn count_pages(inner: &Arc<Inner>) -> Result<Pages> {
    let pages = store_pages(inner)?;
    let (mut free, mut ready) = (0, 0);
    for extent in free_pages(inner)? {
        free += u64::from(extent.pages);
        if extent.freed.is_none() {
            ready += u64::from(extent.pages);
        }
    }
    let used = pages.saturating_sub(free);
    Ok(Pages { used, free, ready })
}

/// Compacts as long as `may_go_on` says so, which is told the newest commit that was there at the beginning or made by
/// this, and is asked between two transactions. So many free pages are left to those who write meanwhile.
pub(crate) fn compact(
    env: &Env,
    kept_free: u64,
    progress: &mut dyn FnMut(Compacted),
    may_go_on: &dyn Fn(CommitNo) -> bool,
) -> Result<Compacted> {
    let inner = env.inner();
    inner.check_file()?;
    let before = store_pages(inner)?;
    let tell = |now: u64, target: u64| Compacted {
        before: before * PAGE_BYTES as u64,
        now: now * PAGE_BYTES as u64,
        target: target.min(now) * PAGE_BYTES as u64,
    };
    let mut newest = inner.region.applied();
    let mut now = before;
    let mut target = now;
    let mut fruitless = 0;
    'passes: for _ in 0..PASSES_MAX {
        // What nobody needs any more is free from here on.
        checkpoint::settle(inner)?;
        if !may_go_on(newest) {
            break;
        }
        newest = cut(env)?.unwrap_or(newest);
        now = store_pages(inner)?;
        target = target_pages(inner)?.saturating_add(kept_free);
        progress(tell(now, target));
        if target >= now || fruitless == FRUITLESS_MAX {
            break;
        }
        let (snapshot, head) = Snapshot::begin_with_head(inner)?;
        let found = find(&snapshot, head.roots.segments, PageNo(target))?;
        // It pins the pages that are to be given up.
        drop(snapshot);
        let mut left = &found[..];
        let mut has_settled = false;
        while !left.is_empty() {
            if !may_go_on(newest) {
                break 'passes;
            }
            let some = &left[..left.len().min(MOVED_MAX)];
            let (moved, commit) = move_records(env, some, PageNo(target))?;
            newest = commit.unwrap_or(newest);
            left = &left[moved..];
            if moved == 0 && has_settled {
                break;
            }
            // What the ways before took is free again once no meta page refers to it.
            has_settled = moved == 0;
            if has_settled {
                checkpoint::settle(inner)?;
            }
        }
        checkpoint::settle(inner)?;
        if !may_go_on(newest) {
            break;
        }
        newest = cut(env)?.unwrap_or(newest);
        // Somebody may read what is at the end, or have written there meanwhile.
        fruitless = match store_pages(inner)? < now {
            true => 0,
            false => fruitless + 1,
        };
    }
    let done = tell(now, target);
    progress(done);
    Ok(done)
}

/// The size of the store.
fn store_pages(inner: &Arc<Inner>) -> Result<u64> {
    Ok(Snapshot::begin(inner)?.store_bytes() / PAGE_BYTES as u64)
}

/// The size that suffices for what is in use.
fn target_pages(inner: &Arc<Inner>) -> Result<u64> {
    let used = count_pages(inner)?.used;
    Ok(used + used / SPARE_SHARE + SPARE_PAGES)
}

/// Something to be written once more, or given up.
enum Found {
    Record {
        tree: Vec<u8>,
        key: Vec<u8>,
        /// One of the values of the key, in a tree with duplicates.
        value: Option<Vec<u8>>,
    },
    /// The leaf of a tree with values out of line in which a key is.
    Leaf { tree: Vec<u8>, key: Vec<u8> },
    /// A value that stands in a segment at the end.
    Value {
        tree: Vec<u8>,
        key: Vec<u8>,
        heap: HeapNo,
        segment: Segment,
    },
    /// A segment at the end, once its values were moved.
    Segment { heap: HeapNo, first: PageNo },
    /// The record of a tree in which nothing is.
    Empty { tree: Vec<u8> },
    /// What is said of a segment or a heap.
    SegmentRecord { key: Vec<u8> },
}

/// Records whose pages, or ways, are at the end.
fn find(snapshot: &Snapshot, segments: TreeRecord, tail: PageNo) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    // Trees whose records in the catalog are there.
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut each = |relocation: Relocation<'_>| {
        names.push(relocation.key.to_vec());
        Ok(true)
    };
    let catalog = snapshot.catalog()?.view(snapshot.pages());
    catalog.relocations(tail, &mut each)?;
    let mut each = |relocation: Relocation<'_>| {
        let key = relocation.key.to_vec();
        found.push(Found::SegmentRecord { key });
        Ok(true)
    };
    let segments = View::new(snapshot.pages(), segments);
    segments.relocations(tail, &mut each)?;
    let at_the_end = segments_behind(&segments, tail)?;
    for name in snapshot.tree_names()? {
        let Some(tree) = snapshot.tree(&name)? else {
            continue;
        };
        let TreeKind { out_of_line, .. } = tree.record().kind;
        let found_in = |key: &[u8], value: Option<&[u8]>| {
            let (tree, key) = (name.clone(), key.to_vec());
            match out_of_line {
                true => Found::Leaf { tree, key },
                false => Found::Record {
                    tree,
                    key,
                    value: value.map(<[u8]>::to_vec),
                },
            }
        };
        let mut each = |relocation: Relocation<'_>| {
            found.push(found_in(relocation.key, relocation.value));
            Ok(found.len() < FOUND_MAX)
        };
        if !tree.relocations(tail, &mut each)? {
            break;
        }
        if out_of_line {
            find_values(&tree, &name, &at_the_end, &mut found)?;
        }
        if names.contains(&name) {
            // Any change of the tree changes its record.
            let mut cursor = tree.cursor();
            if cursor.first()? {
                let has_duplicates = cursor.has_duplicates();
                if let Some((key, value)) = cursor.record()? {
                    found.push(found_in(key, has_duplicates.then_some(value)));
                }
            } else {
                found.push(Found::Empty { tree: name });
            }
        }
    }
    Ok(found)
}

/// The last segments from `tail` on, as many as are moved in one pass, in the order of their pages.
fn segments_behind(
    segments: &View<'_, MappedPages>,
    tail: PageNo,
) -> Result<Vec<(HeapNo, Segment)>> {
    let mut behind = Vec::new();
    let mut cursor = segments.cursor();
    while cursor.next()? {
        if let Some((key, value)) = cursor.record()?
            && let Some((heap, segment, used)) = segment_in_use(key, value)?
            && segment.first.0 + u64::from(segment.pages) > tail.0
        {
            behind.push((heap, segment, used));
        }
    }
    behind.sort_unstable_by_key(|(_, segment, _)| segment.first);
    let mut bytes = 0;
    let kept = behind.iter().rev().take_while(|(.., used)| {
        let is_first = bytes == 0;
        bytes += u64::from(*used);
        is_first || bytes <= MOVED_BYTES_MAX
    });
    let left = behind.len() - kept.count();
    let kept = behind.into_iter().skip(left);
    Ok(kept.map(|(heap, segment, _)| (heap, segment)).collect())
}

/// The values of a tree that stand in its segments at the end, and then those segments.
fn find_values(
    tree: &Tree<'_>,
    name: &[u8],
    at_the_end: &[(HeapNo, Segment)],
    found: &mut Vec<Found>,
) -> Result<()> {
    let heap = tree.record().heap;
    let its = at_the_end.iter().filter(|(other, _)| *other == heap);
    let its: Vec<Segment> = its.map(|(_, segment)| *segment).collect();
    if its.is_empty() {
        return Ok(());
    }
    tree.values_in(&its, &mut |key, segment| {
        found.push(Found::Value {
            tree: name.to_vec(),
            key: key.to_vec(),
            heap,
            segment,
        });
    })?;
    let its = its.into_iter().map(|Segment { first, .. }| first);
    found.extend(its.map(|first| Found::Segment { heap, first }));
    Ok(())
}

/// Writes the first of these records anew, as long as there is room ahead of the tail; how many, and with which commit.
fn move_records(env: &Env, found: &[Found], tail: PageNo) -> Result<(usize, Option<CommitNo>)> {
    let mut txn = env.write()?;
    let mut room = txn.pages_mut().use_only_below(tail)?;
    let mut moved = 0;
    for record in found {
        let needed = rewrite_pages(&mut txn, record)?;
        if room < needed {
            break;
        }
        moved += 1;
        match rewrite(&mut txn, record, tail) {
            Ok(()) => room -= needed,
            // Only the program knows how the tree is ordered, and has not said so.
            Err(Error::NoComparator) => {}
            Err(error) => return Err(error),
        }
    }
    let commit = match moved {
        0 => None,
        _ => Some(txn.commit()?.wait_durable()?),
    };
    Ok((moved, commit))
}

/// The most pages that writing a record anew takes: its way, a split or two on it, and its value.
fn rewrite_pages(txn: &mut WriteTxn, record: &Found) -> Result<u64> {
    const WAY_PAGES: u64 = 8;
    let (tree, key) = match record {
        Found::Record {
            tree,
            key,
            value: None,
        }
        | Found::Value { tree, key, .. } => (tree, key),
        _ => return Ok(WAY_PAGES + 1),
    };
    let value = match txn.tree(tree)? {
        Some(id) => txn.get(id, key)?.map_or(0, <[u8]>::len),
        None => 0,
    };
    Ok(WAY_PAGES + (value / PAGE_BYTES) as u64 + 1)
}

fn rewrite(txn: &mut WriteTxn, record: &Found, tail: PageNo) -> Result<()> {
    match record {
        Found::Record { tree, key, value } => {
            let Some(id) = txn.tree(tree)? else {
                return Ok(());
            };
            match value {
                Some(value) => {
                    if txn.delete_duplicate(id, key, value)? {
                        txn.put(id, key, value)?;
                    }
                }
                None => {
                    if let Some(value) = txn.get(id, key)?.map(<[u8]>::to_vec) {
                        txn.put(id, key, &value)?;
                    }
                }
            }
            Ok(())
        }
        Found::Leaf { tree, key } => match id_of(txn, tree, None)? {
            Some(id) => txn.move_leaf(id, key),
            None => Ok(()),
        },
        Found::Value {
            tree,
            key,
            heap,
            segment,
        } => match id_of(txn, tree, Some(*heap))? {
            Some(id) => {
                txn.pages_mut().fill_none_behind(*heap, tail)?;
                txn.move_out_of(id, *segment, key)
            }
            None => Ok(()),
        },
        Found::Segment { heap, first } => {
            txn.pages_mut().fill_none_behind(*heap, tail)?;
            txn.pages_mut().free_if_empty(*heap, *first)
        }
        // That it was looked up is enough: see `save_catalog`.
        Found::Empty { tree } => txn.tree(tree).map(drop),
        Found::SegmentRecord { key } => txn.pages_mut().rewrite_segment_record(key),
    }
}

/// A tree with values out of line, and with this heap, if it is still there: it may have been made anew, as one of
/// another kind.
fn id_of(txn: &mut WriteTxn, name: &[u8], heap: Option<HeapNo>) -> Result<Option<TreeId>> {
    let Some(id) = txn.tree(name)? else {
        return Ok(None);
    };
    let record = *txn.view(id)?.record();
    let is_it = record.kind.out_of_line && heap.is_none_or(|heap| heap == record.heap);
    Ok(is_it.then_some(id))
}

/// Gives up the pages at the end of the store that nobody needs, and cuts the file; with which commit.
fn cut(env: &Env) -> Result<Option<CommitNo>> {
    let mut txn = env.write()?;
    if !txn.pages_mut().cut_tail()? {
        return Ok(None);
    }
    let commit = txn.commit()?.wait_durable()?;
    // The file keeps the pages of both meta pages, so they have to know of it first.
    let inner = env.inner();
    if inner.options.guards.has(Guard::KeepPagesOfMetas) {
        checkpoint::settle(inner)?;
    }
    // Who commits meanwhile keeps what it needs; from here on nobody does.
    let txn = env.write()?;
    CheckpointLock::take(inner)?.trim_file(txn.head())?;
    Ok(Some(commit))
}
