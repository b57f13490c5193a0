//! Pages that are finished before their transaction commits: sealed, logged and written to their places in the file.
//!
//! When a large transaction commits, the processor's caches hold neither its pages nor what these were copied from. Finished while they still do, pages
//! need not be fetched again. One that is changed after that is finished once more at the commit. Few
//! are, where changes come in the order of keys, or where there are far more pages than changes.

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

/// When more than this and one in so many leaves, or branches, were finished for nothing, the others wait for the commit.
const IN_VAIN: usize = 8;

/// What is finished, and what will be next.
#[derive(Default)]
pub(super) struct Early {
    /// The oldest first.
    waiting: VecDeque<PageNo>,
    finished: ByNumber<Finished>,
    logged: Vec<u8>,
    /// Of leaves and branches.
    gains: [Gain; 2],
}

/// What finishing pages early has brought so far.
#[derive(Clone, Copy, Default)]
struct Gain {
    finished: usize,
    /// They were changed after that.
    in_vain: usize,
}

/// A page that is finished.
#[derive(Default)]
struct Finished {
    /// Where it stands in `logged`.
    logged: Range<usize>,
    is_branch: bool,
}

impl Early {
    /// A page has been taken into use.
    pub(super) fn wait(&mut self, page: PageNo) {
        self.waiting.push_back(page);
    }

    /// The page is about to be changed: what was finished is not what it is going to be.
    #[inline]
    pub(super) fn forget(&mut self, page: PageNo) {
        if self.finished.numbers().is_empty() {
            return;
        }
        if let Some(finished) = self.finished.get(page) {
            self.gains[usize::from(finished.is_branch)].in_vain += 1;
            self.finished.remove(page);
        }
    }

    fn is_worth_it(&self, is_branch: bool) -> bool {
        let Gain { finished, in_vain } = self.gains[usize::from(is_branch)];
        in_vain <= IN_VAIN + finished / IN_VAIN
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.finished.clear(FINISHED_KEPT);
        self.logged.clear();
        self.logged.shrink_to(LOGGED_BYTES_MAX / 4);
        self.gains = Default::default();
    }
}

impl OwnPages {
    /// Finishes some of the pages that have waited longest, if many do. Between changes of pages.
    pub(super) fn finish_early(&mut self) -> Result<()> {
        let early = &mut self.shop.early;
        if early.waiting.len() < WAITING_PAGES || early.logged.len() > LOGGED_BYTES_MAX {
            return Ok(());
        }
        let oldest: Vec<PageNo> = early.waiting.drain(..WAITING_PAGES / 2).collect();
        let mut pages = Vec::with_capacity(oldest.len());
        for number in oldest {
            if let Some(base) = self.base_to_finish(number)? {
                pages.push((number, base));
            }
        }
        pages.sort_unstable();
        let mut logged = std::mem::take(&mut self.shop.early.logged);
        for neighbours in neighbours(&pages) {
            for &(number, base) in neighbours {
                let is_branch = self.seal(number)?.level() > 0;
                let from = logged.len();
                encode_page(self.page(number)?, self.base(number, base)?, &mut logged);
                let early = &mut self.shop.early;
                early.gains[usize::from(is_branch)].finished += 1;
                let place = early.finished.insert(number, usize::MAX, Finished::default);
                if let Some(finished) = place {
                    finished.logged = from..logged.len();
                    finished.is_branch = is_branch;
                }
            }
            self.write_plain(neighbours)?;
        }
        self.shop.early.logged = logged;
        Ok(())
    }

    /// What an own page was copied from, 0 if nothing, if it is to be finished.
    fn base_to_finish(&self, number: PageNo) -> Result<Option<PageNo>> {
        let Some(State::Own { base, .. }) = self.shop.own.get(number) else {
            return Ok(None);
        };
        let page = self.page(number)?;
        // One that nobody has stored to yet is not this commit's.
        let is_stored_to = (page.number(), page.commit()) == (number, self.commit);
        let is_wanted = self.shop.early.is_worth_it(page.level() > 0);
        Ok(Some(base).filter(|_| is_stored_to && is_wanted))
    }

    /// Takes those that are finished out of the changed pages, and adds to the log record what it is to say of them.
    pub(crate) fn log_finished(&self, changed: &mut Vec<(PageNo, PageNo)>, record: &mut Vec<u8>) {
        let Early {
            finished, logged, ..
        } = &self.shop.early;
        changed.retain(|(number, _)| match finished.get(*number) {
            Some(page) => {
                record.extend_from_slice(&logged[page.logged.clone()]);
                false
            }
            None => true,
        });
    }
}
