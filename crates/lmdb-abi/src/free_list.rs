//! Database 0: the free pages as LMDB lists them, made up from the store's free list.
//!
//! A record for each commit that freed pages: its key is the commit's number, its value the number of pages and then
//! their numbers, the highest first; all of them words of the machine.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem::size_of;

use sapwood_store::page::PAGE_BYTES;

use crate::env::{Open, txn_id};
use crate::error::{Code, Result};
use crate::values::{CursorOp, Shown, Stat, Val};

/// The list as of one moment.
pub(crate) struct FreeList {
    /// For each commit its number and its pages with their count before them.
    records: Vec<(Box<usize>, Vec<usize>)>,
}

impl FreeList {
    pub(crate) fn read(open: &Open) -> Result<Self> {
        let mut by_commit: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for free in open.store.free_pages()? {
            let first = free.first.0 as usize;
            // What is free for good is filed under the first commit there can be.
            let freed = free.freed.map_or(0, |commit| txn_id(commit.0)).max(1);
            let pages = by_commit.entry(freed).or_default();
            pages.extend(first..first + free.pages as usize);
        }
        let records = by_commit.into_iter().map(|(commit, mut pages)| {
            pages.sort_unstable_by_key(|&page| Reverse(page));
            pages.insert(0, pages.len());
            (Box::new(commit as usize), pages)
        });
        Ok(Self {
            records: records.collect(),
        })
    }

    /// What each commit has freed: its number and the pages, the highest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[usize])> {
        let records = self.records.iter();
        records.map(|(commit, pages)| (**commit, pages.get(1..).unwrap_or_default()))
    }

    /// The list as one leaf, whatever its length: it has no tree.
    pub(crate) fn stat(&self) -> Stat {
        let is_there = usize::from(!self.records.is_empty());
        Stat {
            psize: PAGE_BYTES as u32,
            depth: is_there as u32,
            leaf_pages: is_there,
            entries: self.records.len(),
            ..Stat::default()
        }
    }
}

/// A cursor in the list.
pub(crate) struct FreeCursor {
    list: FreeList,
    at: usize,
}

impl FreeCursor {
    pub(crate) fn new(list: FreeList) -> Self {
        Self { list, at: 0 }
    }

    /// Moves and shows; `has_stood` says whether it stands anywhere.
    pub(crate) fn get(&mut self, op: CursorOp, key: &[u8], has_stood: bool) -> Result<Shown> {
        use CursorOp as Op;
        let end = self.list.records.len();
        let at = match op {
            Op::First => Some(0),
            Op::Last => end.checked_sub(1),
            Op::GetCurrent => Some(self.at),
            Op::Next | Op::NextDup | Op::NextNodup if has_stood => Some(self.at + 1),
            Op::Next | Op::NextDup | Op::NextNodup => Some(0),
            Op::Prev | Op::PrevDup | Op::PrevNodup if has_stood => self.at.checked_sub(1),
            Op::Prev | Op::PrevDup | Op::PrevNodup => end.checked_sub(1),
            Op::Set | Op::SetKey | Op::SetRange => {
                let commit = number(key)?;
                let at = self
                    .list
                    .records
                    .partition_point(|(record, _)| **record < commit);
                let is_exact = self
                    .list
                    .records
                    .get(at)
                    .is_some_and(|(record, _)| **record == commit);
                Some(at).filter(|_| is_exact || op == Op::SetRange)
            }
            _ => return Err(Code::INCOMPATIBLE),
        };
        let at = at.filter(|&at| at < end).ok_or(Code::NOTFOUND)?;
        self.at = at;
        let (commit, pages) = self.list.records.get(at).ok_or(Code::NOTFOUND)?;
        Ok(Shown {
            key: Some(words(std::slice::from_ref(&**commit))),
            value: words(pages),
        })
    }
}

fn words(words: &[usize]) -> Val {
    Val {
        size: size_of_val(words),
        data: words.as_ptr().cast_mut().cast(),
    }
}

#[allow(clippy::host_endian_bytes)] // A word of the calling program, not of a file.
fn number(key: &[u8]) -> Result<usize> {
    let key: [u8; size_of::<usize>()] = key.try_into().map_err(|_| Code::BAD_VALSIZE)?;
    Ok(usize::from_ne_bytes(key))
}
