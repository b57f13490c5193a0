//! The change feed: what each transaction has changed, in a tree of the first of its stores.
//!
//! A key is the number of the commit in that store and, in a directory of several stores, the *turn* of the transaction
//! (both u64, big-endian); its value is the record. Under commit 0 stands the last commit whose record was trimmed.
//!
//! The numbers of commits order the records of one store, but not those of different stores, whose places in the log
//! are not known yet when a record is written. So each writer draws the next turn while it holds its stores. Of two
//! transactions with a store in common, the first to commit draws the lower turn, and so does a transaction that ends
//! before the other begins. The order of turns is therefore an order in which the changes of a snapshot may have
//! happened. A snapshot shows the log up to some place, so that all that a later snapshot shows in addition came later.
//! A record without a turn dates from when the directory had one store, and comes before all others.

use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use sapwood_store::page::PAGE_BYTES;
use sapwood_store::{Tree, TreeId, WriteTxn};

use super::EmbeddedSnapshot;
use crate::engine::{CommitNo, Error, FeedPosition, Result};

pub(super) const CHANGE: &str = "change";
const TRIMMED_KEY: [u8; 8] = [0; 8];
/// Bytes of a record in a page besides its key and value.
const RECORD_EXTRA_BYTES: usize = 8;

/// The turn that was drawn last; none until one is.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Option<u64>>);

impl Turns {
    /// Draws the next turn. `seen` is a snapshot taken after the last commit of the process that wrote before this one.
    pub(super) fn next(&self, seen: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let drawn = match *last {
            Some(last) => last,
            None => seen()?,
        };
        let next = drawn.saturating_add(1);
        *last = Some(next);
        Ok(next)
    }
}

/// The highest turn in a snapshot.
pub(super) fn last_turn(snapshot: &EmbeddedSnapshot) -> Result<u64> {
    let mut highest = 0;
    for view in snapshot.views() {
        if let Some(tree) = view.snapshot.tree(CHANGE)? {
            let mut cursor = tree.cursor();
            cursor.last()?;
            if let Some(key) = cursor.key()? {
                highest = highest.max(Place::of(key)?.turn);
            }
        }
    }
    Ok(highest)
}

/// Appends a record to the feed of a store.
pub(super) fn append(
    txn: &mut WriteTxn,
    tree: TreeId,
    turn: Option<u64>,
    record: &[u8],
) -> Result<()> {
    let mut key = txn.commit_no().0.to_be_bytes().to_vec();
    if let Some(turn) = turn {
        key.extend_from_slice(&turn.to_be_bytes());
    }
    txn.put(tree, &key, record)?;
    Ok(())
}

/// Bytes that the feed of a store takes on the disk.
pub(super) fn bytes(tree: &Tree<'_>) -> u64 {
    let record = tree.record();
    (record.leaf_pages + record.branch_pages + record.extent_pages) * PAGE_BYTES as u64
}

/// Drops the oldest records of a store while its feed takes more than `bytes_max` or `is_old` says that one is too old.
/// Drops about `work_bytes` at once, and never the last record.
pub(super) fn trim(
    txn: &mut WriteTxn,
    tree: TreeId,
    bytes_max: u64,
    work_bytes: u64,
    mut is_old: impl FnMut(&[u8]) -> bool,
) -> Result<()> {
    let mut last = None;
    {
        let view = txn.view(tree)?;
        let excess = bytes(&view).saturating_sub(bytes_max);
        let mut cursor = view.cursor();
        let mut standing = cursor.seek(&1u64.to_be_bytes())?;
        let mut freed = 0;
        while standing && freed < work_bytes {
            let Some((key, value)) = cursor.record()? else {
                break;
            };
            if freed >= excess && !is_old(value) {
                break;
            }
            freed += (key.len() + value.len() + RECORD_EXTRA_BYTES) as u64;
            let commit = Place::of(key)?.commit;
            standing = cursor.next()?;
            if standing {
                last = Some(commit);
            }
        }
    }
    if let Some(last) = last {
        let (first, behind) = (1u64.to_be_bytes(), (last.0 + 1).to_be_bytes());
        let doomed = (Bound::Included(&first[..]), Bound::Excluded(&behind[..]));
        txn.delete_range(tree, doomed.0, doomed.1)?;
        txn.put(tree, &TRIMMED_KEY, &last.0.to_be_bytes())?;
    }
    Ok(())
}

/// Hands the last record of a store to `each`.
pub(super) fn last(tree: Option<Tree<'_>>, each: &mut impl FnMut(&[u8])) -> Result<()> {
    let Some(tree) = tree else {
        return Ok(());
    };
    let mut cursor = tree.cursor();
    cursor.last()?;
    if let Some((key, record)) = cursor.record()?
        && key != TRIMMED_KEY
    {
        each(record);
    }
    Ok(())
}

/// Hands out the records behind a position, in turn.
pub(super) fn read(
    snapshot: &EmbeddedSnapshot,
    after: &FeedPosition,
    mut each: impl FnMut(&FeedPosition, &[u8]) -> bool,
) -> Result<()> {
    // Of each store the record that comes next.
    let mut next = Vec::new();
    for (store, view) in snapshot.views().enumerate() {
        let after = after.commit(store);
        if after.0 > view.snapshot.commit().0 {
            return Err(Error::TooOld);
        }
        let Some(tree) = view.snapshot.tree(CHANGE)? else {
            continue;
        };
        if let Some(trimmed) = tree.get(&TRIMMED_KEY)?
            && Place::of(trimmed)?.commit > after
        {
            return Err(Error::TooOld);
        }
        let mut cursor = tree.cursor();
        cursor.seek(&after.0.saturating_add(1).to_be_bytes())?;
        if let Some(key) = cursor.key()? {
            next.push((Place::of(key)?, store, cursor));
        }
    }
    let mut position = after.clone();
    while let Some(first) = (0..next.len()).min_by_key(|at| (next[*at].0.turn, next[*at].1)) {
        let (place, store, cursor) = &mut next[first];
        let Some((_, record)) = cursor.record()? else {
            break;
        };
        position.advance(*store, place.commit);
        if !each(&position, record) {
            break;
        }
        cursor.next()?;
        match cursor.key()? {
            Some(key) => *place = Place::of(key)?,
            None => drop(next.swap_remove(first)),
        }
    }
    Ok(())
}

/// Where a record stands.
struct Place {
    commit: CommitNo,
    turn: u64,
}

impl Place {
    fn of(key: &[u8]) -> Result<Place> {
        let (commit, turn) = match key.as_chunks::<8>() {
            ([commit], []) => (commit, &[0; 8]),
            ([commit, turn], []) => (commit, turn),
            _ => {
                let text = "a key of the change feed is no commit number";
                return Err(Error::Corrupt(text.into()));
            }
        };
        Ok(Place {
            commit: CommitNo(u64::from_be_bytes(*commit)),
            turn: u64::from_be_bytes(*turn),
        })
    }
}
