//! Pages that are finished before their transaction commits: sealed, logged and written to their places in the file.
//!
//! When a large transaction commits, the processor's caches hold neither its pages nor what these were copied from.
//! Finished while they still do, pages need not be fetched again. One that is changed after that is finished once more
//! at the commit. Few are, where changes come in the order of keys, or where there are far more pages than changes.
//!
//! In transactions that turn out to be very large another thread finishes them (see [`flusher`](super::flusher)), but
//! for those that are not in memory, and at the commit it takes its share of the pages that are left.

use std::collections::VecDeque;
use std::ops::Range;

use super::{TxnPages, WRITTEN_PAGES, Workshop, neighbours};
use crate::env::Inner;
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::ids::PageNo;
use crate::log::record::encode_page;
use crate::page_map::ByNumber;
use crate::txn::pages::flusher::{Batch, Flusher, HandedPage};
use crate::txn::pages::states::State;

/// When so many pages wait, half of them are finished: what they and their bases take fits into the caches beside all
/// else.
const WAITING_PAGES: usize = if cfg!(test) { 4 } else { 32 };

/// When the log records of finished pages have so many bytes, the others wait for the commit, which may find that there
/// is no place in the log for all.
const LOGGED_BYTES_MAX: usize = 4 << 20;

/// How many finished pages are kept in mind for the next transaction.
const FINISHED_KEPT: usize = 4 << 10;

/// When more than this and one in so many leaves, or branches, were finished for nothing, the others wait for the
/// commit.
const IN_VAIN: usize = 8;

/// A transaction has its pages finished by another thread once so many were finished, and a commit if so many are left:
/// fewer are not worth waking it.
const HANDED_PAGES_MIN: usize = if cfg!(test) { 2 } else { 256 };

/// What is finished, and what will be next.
pub(super) struct EarlySealing {
    /// The oldest first.
    waiting: VecDeque<PageNo>,
    finished: ByNumber<Finished>,
    logged: Vec<u8>,
    /// Of leaves and branches.
    gains: [Gain; 2],
    flusher: Flusher,
    /// Those that the writer finished itself.
    batches: Vec<Batch>,
    /// The newest batch handed over with a page that has been changed since: until it is finished the writer writes no
    /// pages itself.
    overtaken: u64,
    /// The transaction before had its pages finished by another thread.
    follows_large: bool,
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
    /// The batch in which it was handed over; 0 if it was not.
    batch: u64,
    /// Where it stands in `logged`, otherwise.
    logged: Range<usize>,
    is_branch: bool,
}

impl EarlySealing {
    pub(super) fn new(inner: &Inner) -> Self {
        Self {
            waiting: VecDeque::new(),
            finished: ByNumber::default(),
            logged: Vec::new(),
            gains: Default::default(),
            flusher: Flusher::new(inner),
            batches: Vec::new(),
            overtaken: 0,
            follows_large: false,
        }
    }

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
            if finished.batch > self.overtaken && !self.flusher.is_done(finished.batch) {
                self.overtaken = finished.batch;
            }
            self.finished.remove(page);
        }
    }

    fn note(&mut self, number: PageNo, is_branch: bool, batch: u64, logged: Range<usize>) {
        self.gains[usize::from(is_branch)].finished += 1;
        let place = self.finished.insert(number, usize::MAX, Finished::default);
        if let Some(finished) = place {
            *finished = Finished {
                batch,
                logged,
                is_branch,
            };
        }
    }

    fn is_worth_it(&self, is_branch: bool) -> bool {
        let Gain { finished, in_vain } = self.gains[usize::from(is_branch)];
        in_vain <= IN_VAIN + finished / IN_VAIN
    }

    fn log_bytes(&self) -> usize {
        self.logged.len() + self.flusher.logged_bytes()
    }

    /// Whether another thread is to finish the next pages.
    fn is_handing_over(&mut self) -> bool {
        let finished = self.gains.iter().map(|gain| gain.finished);
        let is_large = self.follows_large || finished.sum::<usize>() >= HANDED_PAGES_MIN;
        is_large && self.flusher.is_ready()
    }

    /// Whether the writer may write pages itself: none of them is about to be written as it was before.
    fn may_write(&self) -> bool {
        self.overtaken == 0 || self.flusher.is_done(self.overtaken)
    }

    /// Waits until no page is being finished.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.flusher.wait_for_all()
    }

    /// Nothing of the transaction is needed any more, nor is anything being written of it afterwards.
    pub(super) fn clear(&mut self) {
        self.flusher.cancel();
        let finished = self.finished.numbers().len();
        self.follows_large = !self.batches.is_empty() && finished >= HANDED_PAGES_MIN;
        self.batches
            .drain(..)
            .for_each(|batch| self.flusher.keep(batch));
        self.overtaken = 0;
        self.waiting.clear();
        self.finished.clear(FINISHED_KEPT);
        self.logged.clear();
        self.logged.shrink_to(LOGGED_BYTES_MAX / 4);
        self.gains = Default::default();
    }

    /// Nobody has written for a while.
    pub(super) fn rest(&mut self) {
        self.flusher.rest();
    }
}

impl TxnPages {
    /// Finishes some of the pages that have waited longest, if many do. Between changes of pages.
    pub(super) fn seal_early(&mut self) -> Result<()> {
        if self.shop.early_sealing.waiting.len() < WAITING_PAGES {
            return Ok(());
        }
        self.finish_oldest(WAITING_PAGES / 2)
    }

    /// Finishes all pages that wait.
    #[cfg(test)]
    pub(crate) fn finish_waiting(&mut self) -> Result<()> {
        self.finish_oldest(self.shop.early_sealing.waiting.len())
    }

    fn finish_oldest(&mut self, count: usize) -> Result<()> {
        // In small transactions nobody would wait for less afterwards than here.
        self.shop.windows.unmap_outdated();
        let early = &mut self.shop.early_sealing;
        if early.log_bytes() > LOGGED_BYTES_MAX {
            return Ok(());
        }
        let is_handing_over = early.is_handing_over();
        if is_handing_over && !early.flusher.has_room() && !early.may_write() {
            return Ok(());
        }
        let oldest: Vec<PageNo> = early.waiting.drain(..count).collect();
        let mut pages = Vec::with_capacity(oldest.len());
        for number in oldest {
            if let Some(base) = self.base_to_finish(number)? {
                pages.push((number, base));
            }
        }
        pages.sort_unstable();
        // One that was freed and taken again has waited twice.
        pages.dedup();
        if is_handing_over {
            let in_memory = self.take_in_memory(&mut pages);
            for pages in in_memory.chunks(WRITTEN_PAGES) {
                self.hand_over(pages, true)?;
            }
        }
        let mut logged = std::mem::take(&mut self.shop.early_sealing.logged);
        let result = neighbours(&pages, self.pages_before())
            .try_for_each(|pages| self.finish_neighbours(pages, &mut logged));
        self.shop.early_sealing.logged = logged;
        result
    }

    /// Only what is written is finished: after an error the transaction may go on from a savepoint.
    fn finish_neighbours(
        &mut self,
        pages: &[(PageNo, PageNo)],
        logged: &mut Vec<u8>,
    ) -> Result<()> {
        let mut ends = [0; WRITTEN_PAGES];
        let mut from = logged.len();
        for (&(number, base), end) in pages.iter().zip(&mut ends) {
            self.seal(number)?;
            encode_page(self.page(number)?, self.base(number, base)?, logged);
            *end = logged.len();
        }
        self.write_plain(pages)?;
        for (&(number, _), end) in pages.iter().zip(ends) {
            let is_branch = self.page(number)?.level() > 0;
            self.shop
                .early_sealing
                .note(number, is_branch, 0, from..end);
            from = end;
        }
        Ok(())
    }

    /// Takes the pages that are in memory out of some pages.
    fn take_in_memory(&self, pages: &mut Vec<(PageNo, PageNo)>) -> Vec<(PageNo, PageNo)> {
        let is_in_memory = |number| {
            let plain = self.view.plain.as_deref();
            plain.is_some_and(|plain| plain.get(number).is_some())
        };
        pages
            .extract_if(.., |(number, _)| is_in_memory(*number))
            .collect()
    }

    /// Has some pages in memory, at most [`WRITTEN_PAGES`], finished by the thread that is there for it, or finishes
    /// them if that has enough to do. `is_logged` says whether the log record is going to tell of them.
    fn hand_over(&mut self, pages: &[(PageNo, PageNo)], is_logged: bool) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let pages_before = self.pages_before();
        let flusher = &mut self.shop.early_sealing.flusher;
        let mut batch = flusher.new_batch(is_logged, pages_before);
        let serial = batch.serial();
        for &(number, base) in pages {
            let page = self
                .view
                .plain
                .as_deref_mut()
                .and_then(|plain| plain.share(number));
            let page = page.ok_or_else(|| Error::corrupt(number, "is not in memory"))?;
            batch.add(HandedPage {
                number,
                page,
                base: self.base_until_end(base)?,
                origins: self.shop.traces.get(number).cloned(),
            });
        }
        for &(number, _) in pages {
            let is_branch = self.page(number)?.level() > 0;
            self.shop.hot_pages.count(number);
            self.shop
                .early_sealing
                .note(number, is_branch, serial, 0..0);
        }
        let early = &mut self.shop.early_sealing;
        if early.flusher.has_room() || !early.may_write() {
            early.flusher.hand_over(batch);
        } else {
            early.flusher.finish(&mut batch);
            early.batches.push(batch);
        }
        Ok(())
    }

    /// What an own page was copied from, 0 if nothing, if it is to be finished.
    fn base_to_finish(&self, number: PageNo) -> Result<Option<PageNo>> {
        let Some(State::Own { base, .. }) = self.shop.states.get(number) else {
            return Ok(None);
        };
        let page = self.page(number)?;
        // One that nobody has stored to yet is not this commit's.
        let is_stored_to = (page.number(), page.commit()) == (number, self.commit);
        let is_wanted = self.shop.early_sealing.is_worth_it(page.level() > 0);
        Ok(Some(base).filter(|_| is_stored_to && is_wanted))
    }

    /// Takes those that are finished out of the changed pages, and has others finished by the thread that is there for
    /// it, if they are many: see [`TxnPages::log_finished`]. `max` bounds the bytes of the log record; without it there
    /// will be none. Whether it holds.
    pub(crate) fn share_with_flusher(
        &mut self,
        changed: &mut Vec<(PageNo, PageNo)>,
        max: Option<usize>,
    ) -> Result<bool> {
        let early = &mut self.shop.early_sealing;
        changed.retain(|(number, _)| early.finished.get(*number).is_none());
        let mut fits = max.is_some();
        if changed.len() < HANDED_PAGES_MIN || !early.flusher.is_ready() {
            early.flusher.wait_for(early.overtaken)?;
            return Ok(fits);
        }
        let in_memory = self.take_in_memory(changed);
        for pages in in_memory.chunks(WRITTEN_PAGES) {
            fits &= max.is_some_and(|max| self.shop.early_sealing.log_bytes() <= max);
            self.hand_over(pages, fits)?;
        }
        let early = &mut self.shop.early_sealing;
        early.flusher.wait_for(early.overtaken)?;
        Ok(fits)
    }

    /// Waits for all that is being finished, and adds to the log record, if there will be one, what it is to say of
    /// finished pages.
    pub(crate) fn log_finished(&mut self, record: Option<&mut Vec<u8>>) -> Result<()> {
        let TxnPages { shop, .. } = self;
        let Workshop {
            early_sealing: early,
            states: own,
            ..
        } = &mut **shop;
        early.flusher.take_back(&mut early.batches)?;
        let Some(record) = record else {
            return Ok(());
        };
        let finished = &early.finished;
        for number in finished.numbers() {
            if let Some(page) = finished.get(*number)
                && page.batch == 0
                && own.is_in_use(*number)
            {
                record.extend_from_slice(&early.logged[page.logged.clone()]);
            }
        }
        for batch in &early.batches {
            for (number, item) in batch.items() {
                let page = finished.get(number);
                if page.is_some_and(|page| page.batch == batch.serial()) && own.is_in_use(number) {
                    record.extend_from_slice(item);
                }
            }
        }
        Ok(())
    }
}
