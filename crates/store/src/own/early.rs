//! Pages that are finished before their transaction commits: sealed, logged and written to their places in the file.
//!
//! When a large transaction commits, the processor's caches hold neither its pages nor what these were copied from. Finished while they still do, pages
//! need not be fetched again. Few leaves are changed a second time; one that is, is finished once more at the commit.

use std::collections::VecDeque;
use std::ops::Range;

use super::states::State;
use super::{OwnPages, neighbours};
use crate::error::Result;
use crate::page::{ByNumber, PageNo, ReadPages};
use crate::record::encode_page;

/// When so many pages wait, half of them are finished: what they and their bases take fits into the caches beside all else.
const WAITING_PAGES: usize = if cfg!(test) { 4 } else { 32 };

/// When the log records of finished pages have so many bytes, the others wait for the commit, which may find that there is no place in the log for all.
const LOGGED_BYTES_MAX: usize = 4 << 20;

/// How many finished pages are kept in mind for the next transaction.
const FINISHED_KEPT: usize = 4 << 10;

/// What is finished, and what will be next.
#[derive(Default)]
pub(super) struct Early {
    /// Pages in memory, the oldest first.
    waiting: VecDeque<PageNo>,
    /// Where each finished page stands in `logged`.
    finished: ByNumber<Range<usize>>,
    logged: Vec<u8>,
}

impl Early {
    /// A page has been taken into use in memory.
    pub(super) fn wait(&mut self, page: PageNo) {
        self.waiting.push_back(page);
    }

    /// The page is about to be changed: what was finished is not what it is going to be.
    #[inline]
    pub(super) fn forget(&mut self, page: PageNo) {
        if !self.finished.numbers().is_empty() {
            self.finished.remove(page);
        }
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.finished.clear(FINISHED_KEPT);
        self.logged.clear();
        self.logged.shrink_to(LOGGED_BYTES_MAX / 4);
    }
}

impl OwnPages {
    /// Finishes some of the leaves in memory that have waited longest, if many do. Between changes of pages.
    pub(super) fn finish_early(&mut self) -> Result<()> {
        let early = &mut self.shop.early;
        if early.waiting.len() < WAITING_PAGES || early.logged.len() > LOGGED_BYTES_MAX {
            return Ok(());
        }
        let oldest: Vec<PageNo> = early.waiting.drain(..WAITING_PAGES / 2).collect();
        let mut leaves: Vec<(PageNo, PageNo)> = oldest
            .into_iter()
            .filter_map(|number| Some((number, self.base_of_leaf(number)?)))
            .collect();
        leaves.sort_unstable();
        let mut logged = std::mem::take(&mut self.shop.early.logged);
        for neighbours in neighbours(&leaves) {
            for &(number, base) in neighbours {
                self.seal(number)?;
                let from = logged.len();
                encode_page(self.page(number)?, self.base(number, base)?, &mut logged);
                let new = || 0..0;
                let finished = &mut self.shop.early.finished;
                if let Some(place) = finished.insert(number, usize::MAX, new) {
                    *place = from..logged.len();
                }
            }
            self.write_plain(neighbours)?;
        }
        self.shop.early.logged = logged;
        Ok(())
    }

    /// What an own leaf in memory was copied from, 0 if nothing. Branches change again and again, and a page that nobody has stored to yet is not this
    /// commit's.
    fn base_of_leaf(&self, number: PageNo) -> Option<PageNo> {
        let page = self.view.plain()?.get(number)?;
        let is_leaf = page.level() == 0;
        let is_stored_to = (page.number(), page.commit()) == (number, self.commit);
        match self.shop.own.get(number) {
            Some(State::Own { base, .. }) if is_leaf && is_stored_to => Some(base),
            _ => None,
        }
    }

    /// Takes those that are finished out of the changed pages, and adds to the log record what it is to say of them.
    pub(crate) fn log_finished(&self, changed: &mut Vec<(PageNo, PageNo)>, record: &mut Vec<u8>) {
        let Early {
            finished, logged, ..
        } = &self.shop.early;
        changed.retain(|(number, _)| match finished.get(*number) {
            Some(part) => {
                record.extend_from_slice(&logged[part.clone()]);
                false
            }
            None => true,
        });
    }
}
