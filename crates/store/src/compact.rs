//! Online compaction: what lies at the end of the file moves to free pages further ahead, and the file is cut.
//!
//! A *pass* looks for all records whose pages, or whose ways from the root, lead to pages behind the size that the store ought to have; bounded
//! transactions then write these records once more, as anybody might, with free pages ahead of that size only: copy on
//! write moves everything on their ways. When nothing that is pinned refers to the pages at the end any more, a transaction gives
//! them up, and behind a checkpoint the file is cut. Readers and writers go on meanwhile; what they undo is done again by the next pass.

use crate::checkpoint::{self, CheckpointLock};
use crate::env::{Env, Inner};
use crate::error::{Error, Result};
use crate::free;
use crate::guard::Guard;
use crate::page::{CommitNo, PAGE_BYTES, PageNo};
use crate::snapshot::Snapshot;
use crate::sync::Arc;
use crate::tree::Stray;
use crate::write::WriteTxn;

/// How many records one transaction writes anew.
const MOVED_MAX: usize = 256;

/// How many one pass finds; there may be more in the next one.
const FOUND_MAX: usize = 1 << 16;

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

/// Whether a store that rests had better be compacted.
pub(crate) fn is_due(inner: &Arc<Inner>) -> Result<bool> {
    let pages = store_pages(inner)?;
    Ok(target_pages(inner, pages)? + pages / FREE_SHARE_DUE < pages)
}

/// Compacts as long as `may_go_on` says so, which is told the newest commit that was there at the beginning or made by this.
pub(crate) fn compact(
    env: &Env,
    progress: &mut dyn FnMut(Compacted),
    may_go_on: &dyn Fn(CommitNo) -> bool,
) -> Result<Compacted> {
    let inner = env.inner();
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
        target = target_pages(inner, now)?;
        progress(tell(now, target));
        if target >= now || fruitless == FRUITLESS_MAX {
            break;
        }
        let snapshot = Snapshot::begin(inner)?;
        let found = find(&snapshot, PageNo(target))?;
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
        fruitless = if store_pages(inner)? < now {
            0
        } else {
            fruitless + 1
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
fn target_pages(inner: &Arc<Inner>, pages: u64) -> Result<u64> {
    let free = free::list(inner)?;
    let free: u64 = free.iter().map(|free| u64::from(free.pages)).sum();
    let used = pages.saturating_sub(free);
    Ok(used + used / SPARE_SHARE + SPARE_PAGES)
}

/// A record to be written once more.
struct Found {
    tree: Vec<u8>,
    key: Vec<u8>,
    /// One of the values of the key, in a tree with duplicates.
    value: Option<Vec<u8>>,
}

/// Records whose pages, or ways, are at the end.
fn find(snapshot: &Snapshot, tail: PageNo) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    // Trees whose records in the catalog are there.
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut each = |stray: Stray<'_>| {
        names.push(stray.key.to_vec());
        Ok(true)
    };
    let catalog = snapshot.catalog()?.view(snapshot.pages());
    catalog.strays(tail, &mut each)?;
    for name in snapshot.tree_names()? {
        let Some(tree) = snapshot.tree(&name)? else {
            continue;
        };
        let mut each = |stray: Stray<'_>| {
            found.push(Found {
                tree: name.clone(),
                key: stray.key.to_vec(),
                value: stray.value.map(<[u8]>::to_vec),
            });
            Ok(found.len() < FOUND_MAX)
        };
        if !tree.strays(tail, &mut each)? {
            break;
        }
        if names.contains(&name) {
            // Any change of the tree changes its record.
            let mut cursor = tree.cursor();
            if cursor.first()? {
                let has_duplicates = cursor.has_duplicates();
                if let Some((key, value)) = cursor.record()? {
                    found.push(Found {
                        tree: name.clone(),
                        key: key.to_vec(),
                        value: has_duplicates.then(|| value.to_vec()),
                    });
                }
            }
        }
    }
    Ok(found)
}

/// Writes the first of these records anew, as long as there is room ahead of the tail; how many, and with which commit.
fn move_records(env: &Env, found: &[Found], tail: PageNo) -> Result<(usize, Option<CommitNo>)> {
    let mut txn = env.write()?;
    let mut room = txn.own_mut().use_only_below(tail)?;
    let mut moved = 0;
    for record in found {
        let needed = rewrite_pages(&mut txn, record)?;
        if room < needed {
            break;
        }
        moved += 1;
        match rewrite(&mut txn, record) {
            Ok(()) => room -= needed,
            // Only the program knows how the tree is ordered, and has not said so.
            Err(Error::NoComparator) => {}
            Err(error) => return Err(error),
        }
    }
    let commit = match moved {
        0 => None,
        _ => Some(txn.commit()?.wait()?),
    };
    Ok((moved, commit))
}

/// The most pages that writing a record anew takes: its way, a split or two on it, and its value.
fn rewrite_pages(txn: &mut WriteTxn, record: &Found) -> Result<u64> {
    const WAY_PAGES: u64 = 8;
    let id = txn.tree(&record.tree)?;
    let value = match (id, &record.value) {
        (Some(id), None) => txn.get(id, &record.key)?.map_or(0, <[u8]>::len),
        _ => 0,
    };
    Ok(WAY_PAGES + (value / PAGE_BYTES) as u64 + 1)
}

fn rewrite(txn: &mut WriteTxn, record: &Found) -> Result<()> {
    let Some(id) = txn.tree(&record.tree)? else {
        return Ok(());
    };
    match &record.value {
        Some(value) => {
            if txn.delete_duplicate(id, &record.key, value)? {
                txn.put(id, &record.key, value)?;
            }
        }
        None => {
            if let Some(value) = txn.get(id, &record.key)?.map(<[u8]>::to_vec) {
                txn.put(id, &record.key, &value)?;
            }
        }
    }
    Ok(())
}

/// Gives up the pages at the end of the store that nobody needs, and cuts the file; with which commit.
fn cut(env: &Env) -> Result<Option<CommitNo>> {
    let mut txn = env.write()?;
    if !txn.own_mut().cut_tail()? {
        return Ok(None);
    }
    let commit = txn.commit()?.wait()?;
    // Once both meta pages know of it the file can be cut; nobody may commit until then.
    let txn = env.write()?;
    let inner = env.inner();
    if inner.options.guards.has(Guard::KeepPagesOfMetas) {
        checkpoint::settle(inner)?;
    }
    CheckpointLock::take(inner)?.trim_file(txn.head())?;
    Ok(Some(commit))
}
