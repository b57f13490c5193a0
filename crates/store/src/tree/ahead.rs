//! Reading ahead of those who go through a tree from leaf to leaf, where its pages may have to come from the disk.
//!
//! The leaves that come next are told by the branch above them, wherever in the file they are; where values stand out
//! of line, the leaves tell which of their records come next. Both are asked for a while before, and the more the
//! further somebody has gone: who wants ten records waits for what those are in, and has nothing else read.

use super::View;
use super::out_of_line::pointer;
use crate::error::Result;
use crate::format::pages::ReadPages;
use crate::format::prefetch::RECORD_BYTES;
use crate::ids::PageNo;
use crate::tree::node::Node;

/// So many leaves are asked for at first, and at most.
const LEAVES_MIN: usize = 2;
const LEAVES_MAX: usize = 128;

/// The records of so many leaves, of up to 252 each, are asked for before they are read.
const RECORD_LEAVES: usize = 8;

/// What has been asked for of a branch right above the leaves.
#[derive(Default)]
pub(super) struct Ahead {
    branch: PageNo,
    slot: usize,
    /// Up to which slot leaves were asked for, and up to which their records.
    leaves: usize,
    records: usize,
    /// How many leaves were asked for the last time, and are the first time.
    window: usize,
    least: usize,
}

impl Ahead {
    /// From now on asks for much at once.
    pub(super) fn begin_far(&mut self) {
        self.least = 2 * RECORD_LEAVES;
    }

    /// Somebody goes on to the child at a slot of a branch, and perhaps to those behind it.
    pub(super) fn go_on<P: ReadPages + ?Sized>(
        &mut self,
        view: &View<'_, P>,
        branch: &Node<'_>,
        slot: usize,
    ) {
        if view.pages.exceed_memory() {
            // What is damaged is told to the one who gets there.
            let _: Result<()> = self.ask(view, branch, slot);
        }
    }

    #[cold]
    fn ask<P: ReadPages + ?Sized>(
        &mut self,
        view: &View<'_, P>,
        branch: &Node<'_>,
        slot: usize,
    ) -> Result<()> {
        if self.branch != branch.number() || slot != self.slot + 1 {
            // A cursor that comes from elsewhere, and not from the branch before, begins anew.
            self.window = if slot > 1 { 0 } else { self.window };
            (self.branch, self.leaves, self.records) = (branch.number(), slot, slot);
        }
        self.slot = slot;
        let leaves = self.leaves.max(slot);
        if leaves - slot <= self.window / 2 {
            let least = self.least.max(LEAVES_MIN);
            self.window = (2 * self.window).clamp(least, LEAVES_MAX);
            self.leaves = (leaves + self.window).min(branch.len());
            let children = (leaves..self.leaves).map(|slot| Ok(branch.child(slot)?.page));
            read_all(view.pages, children.collect::<Result<_>>()?);
        }
        if view.record.kind.out_of_line {
            let end = (slot + RECORD_LEAVES.min(self.window - LEAVES_MIN)).min(self.leaves);
            for slot in self.records.max(slot)..end {
                read_records_ahead(view.pages, &view.open(branch.child(slot)?.page, 0)?)?;
                self.records = slot + 1;
            }
        }
        Ok(())
    }
}

/// Asks for the records that a leaf of pointers leads to, if pages may have to come from the disk.
pub(crate) fn read_records_ahead<P: ReadPages + ?Sized>(pages: &P, leaf: &Node<'_>) -> Result<()> {
    if pages.exceed_memory() {
        let mut numbers = Vec::with_capacity(2 * leaf.len());
        for slot in 0..leaf.len() {
            let at = pointer(pages, leaf, slot)?;
            numbers.extend([at.page(), at.behind(RECORD_BYTES).page()]);
        }
        read_all(pages, numbers);
    }
    Ok(())
}

/// Asks for pages, and together for those that lie together.
fn read_all<P: ReadPages + ?Sized>(pages: &P, mut numbers: Vec<PageNo>) {
    numbers.sort_unstable();
    for run in numbers.chunk_by(|page, next| next.0 - page.0 <= 1) {
        if let Some((first, last)) = run.first().zip(run.last()) {
            pages.read_ahead(*first, last.0 - first.0 + 1);
        }
    }
}
