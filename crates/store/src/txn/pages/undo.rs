//! Savepoints: what a transaction has done since, and how it is undone.

// Own pages are stored to, as in `pages`.
#![allow(unsafe_code)]

use super::TxnPages;
use crate::error::{Error, Result};
use crate::format::free_list::{FreeExtent, PageRange};
use crate::format::page::Page;
use crate::format::pages::ReadPages;
use crate::format::pointer::RecordPointer;
use crate::ids::PageNo;
use crate::space::allocator::Taken;
use crate::txn::pages::heap::HeapsBefore;
use crate::txn::pages::states::State;

/// Something that was done since a savepoint.
pub(super) enum Undo {
    /// The page as it was.
    Image {
        page: PageNo,
        base: PageNo,
        epoch: u64,
        image: Box<Page>,
    },
    /// Pages were taken into use.
    Allocated {
        first: PageNo,
        pages: u32,
        source: Source,
    },
    /// A leaf of places was to say something at a slot, or nothing.
    RecordPointer {
        leaf: PageNo,
        slot: u16,
        before: Option<RecordPointer>,
    },
    /// A savepoint: heaps as they were.
    Heaps(Box<HeapsBefore>),
    /// Pages were freed; `was` is what was known of the first.
    Freed {
        first: PageNo,
        pages: u32,
        was: Option<State>,
        to: Destination,
    },
}

/// Where pages came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Recycled,
    Allocator(Taken),
    /// From behind the last page.
    Growth,
}

/// Where freed pages went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Destination {
    /// An earlier commit's: to the free list.
    Freed,
    /// The transaction's own single page, to be used again at once.
    Recycled,
    /// The transaction's own: to the free list, since a savepoint may want it back or it is an extent.
    Held,
}

impl TxnPages {
    /// Begins savepoint number `epoch`; each is greater than those before.
    pub(crate) fn begin_savepoint(&mut self, epoch: u64) -> usize {
        self.epoch = epoch;
        let length = self.undo.len();
        let spare = self.spare_heaps.take();
        self.undo.push(Undo::Heaps(self.heaps_before(spare)));
        length
    }

    /// Whether what is done may have to be undone.
    pub(super) fn has_savepoint(&self) -> bool {
        self.epoch != 0
    }

    /// Makes `epoch` the newest savepoint again; 0 if none is left.
    pub(crate) fn end_savepoint(&mut self, epoch: u64) {
        self.epoch = epoch;
        if epoch == 0 {
            for undo in self.undo.drain(..) {
                if let Undo::Heaps(before) = undo {
                    self.spare_heaps = Some(before);
                }
            }
            let own = &self.shop.states;
            let reusable = |extent: &FreeExtent| own.get(extent.first) == Some(State::OwnFree);
            self.recycled.extend(
                self.held
                    .extract_if(.., |extent| reusable(extent))
                    .map(|extent| extent.first),
            );
        }
    }

    /// Undoes everything behind the first `length` entries of the list.
    pub(crate) fn undo_to(&mut self, length: usize) -> Result<()> {
        while self.undo.len() > length {
            let Some(undo) = self.undo.pop() else {
                break;
            };
            if let Undo::Heaps(before) = undo {
                self.bring_heaps_back(&before);
                if self.undo.len() == length {
                    // It may be returned to once more.
                    self.undo.push(Undo::Heaps(before));
                    break;
                }
                continue;
            }
            self.undo_one(undo)?;
        }
        Ok(())
    }

    fn undo_one(&mut self, undo: Undo) -> Result<()> {
        match undo {
            Undo::Image {
                page,
                base,
                epoch,
                image,
            } => {
                // SAFETY: an own page, and `&mut self` keeps everybody from looking.
                let place = unsafe { self.place(page)? };
                place.bytes_mut().copy_from_slice(image.bytes());
                self.shop.states.insert(page, State::Own { base, epoch });
            }
            Undo::Allocated {
                first,
                pages,
                source,
            } => {
                if pages == 1 {
                    self.shop.states.remove(first);
                    if let Some(plain) = self
                        .view
                        .plain
                        .as_deref_mut()
                        .filter(|_| source != Source::Recycled)
                    {
                        plain.remove(first);
                    }
                }
                self.extents.remove(&first);
                match source {
                    Source::Recycled => {
                        self.recycled.push(first);
                        self.shop.states.insert(first, State::OwnFree);
                    }
                    Source::Allocator(taken) => self.allocator.undo(taken),
                    // SAFETY: less than what was within the file before.
                    Source::Growth if first.0 + u64::from(pages) == self.view.limit() => unsafe {
                        self.view.set_limit(first.0);
                    },
                    // The allocator has pages behind them.
                    Source::Growth => self.allocator.add(PageRange { first, pages }),
                }
            }
            Undo::RecordPointer { leaf, slot, before } => {
                self.view.records_or_new().store(leaf, slot, before);
            }
            Undo::Heaps(before) => self.bring_heaps_back(&before),
            Undo::Freed {
                first,
                pages,
                was,
                to,
            } => {
                match to {
                    Destination::Freed => drop(self.freed.pop()),
                    Destination::Recycled => drop(self.recycled.pop()),
                    Destination::Held => drop(self.held.pop()),
                }
                match was {
                    Some(state) => self.shop.states.insert(first, state),
                    None => self.shop.states.remove(first),
                }
                if to == Destination::Held && was.is_none() {
                    self.extents.insert(first, pages);
                }
            }
        }
        Ok(())
    }

    /// Notes what has been done, while there is a savepoint that may want it undone.
    pub(super) fn record_undo(&mut self, undo: Undo) {
        if self.epoch != 0 {
            self.undo.push(undo);
        }
    }

    /// Makes sure that an own page can be changed and yet be restored by a savepoint.
    pub(super) fn keep_image(&mut self, number: PageNo) -> Result<()> {
        let newest = self.epoch;
        if newest == 0 && self.shop.states.is_in_use(number) {
            return Ok(());
        }
        match self.shop.states.get(number) {
            Some(State::Own { epoch, .. }) if epoch >= newest => Ok(()),
            Some(State::Own { base, epoch }) => {
                let now = State::Own {
                    base,
                    epoch: newest,
                };
                self.shop.states.insert(number, now);
                let image = Box::new(self.view.page(number)?.clone());
                self.undo.push(Undo::Image {
                    page: number,
                    base,
                    epoch,
                    image,
                });
                Ok(())
            }
            _ => Err(Error::corrupt(number, "is referred to, but is free")),
        }
    }
}
