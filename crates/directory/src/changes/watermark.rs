//! The watermark of a snapshot: all changes with a number up to it are visible. It is what a naming context's
//! contextCSN says, and no cookie of a consumer may be above it.
//!
//! With one store it is the last number of the feed, since commits become visible in the order in which they drew their
//! numbers. With several, each record says how far it was when it was written, and a snapshot shows at least as much as
//! the furthest of its records says. When writers take turns the last of these may lag; [`catch_up`] mends that when
//! they rest.

use super::clock::HybridClock;
use super::record::{Record, RecordBuf};
use super::{Csn, Damaged};
use crate::engine::{self, Bundle, Engine, Read, StoreSet, Ticket, Verdict, Write};

/// The watermark of what is seen; `None` before the first change.
pub(crate) fn of<R: Read>(view: &R) -> engine::Result<Option<Csn>> {
    furthest(view, |record| record.watermark())
}

/// The last number that the clock has shown for what is seen; `None` before the first change.
pub(crate) fn last_of<R: Read>(view: &R) -> engine::Result<Option<Csn>> {
    furthest(view, |record| record.last())
}

/// What the last records of the stores say, the greatest of it.
fn furthest<R: Read>(
    view: &R,
    tell: impl Fn(Record<'_>) -> Result<Csn, Damaged>,
) -> engine::Result<Option<Csn>> {
    let mut furthest = Ok(None);
    view.last_changes(|record| {
        if let Ok(known) = furthest {
            let told = Record::read(record).and_then(&tell);
            furthest = told.map(|told| known.max(Some(told)));
        }
    })?;
    Ok(furthest?)
}

/// Writes down that all is visible that writers of several stores have committed, if no record says so yet.
pub(crate) fn catch_up<E: Engine>(
    engine: &E,
    clock: &HybridClock,
    shards: StoreSet,
) -> engine::Result<()> {
    let view = engine.waiting_snapshot()?;
    match engine.stores() > 1 && of(&view)? < last_of(&view)? {
        true => write(engine, clock, shards),
        false => Ok(()),
    }
}

/// Writes down what the clock shows, unless the feed says so: after changes that left no record.
pub(crate) fn record_clock<E: Engine>(engine: &E, clock: &HybridClock) -> engine::Result<()> {
    let recorded = last_of(&engine.waiting_snapshot()?)?;
    match recorded < Some(clock.last()) {
        true => write(engine, clock, StoreSet::FIRST),
        false => Ok(()),
    }
}

fn write<E: Engine>(engine: &E, clock: &HybridClock, shards: StoreSet) -> engine::Result<()> {
    let stores = engine.stores();
    let mut write = WriteClock {
        clock,
        shards,
        stores,
    };
    if let Some(ticket) = engine.write(&mut write)? {
        ticket.wait()?;
    }
    Ok(())
}

/// Leaves a record without changes to the feed, which says what the clock shows.
pub(crate) fn put_clock<W: Write>(
    txn: &mut W,
    clock: &HybridClock,
    stores: usize,
) -> engine::Result<()> {
    let watermark = clock.watermark(None);
    let mut record = RecordBuf::default();
    record.begin(clock.last());
    txn.record_change(record.finish((stores > 1).then_some(watermark)))
}

struct WriteClock<'c> {
    clock: &'c HybridClock,
    shards: StoreSet,
    stores: usize,
}

impl Bundle for WriteClock<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn stores(&self) -> StoreSet {
        self.shards
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn apply<T: Write>(&mut self, _txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        Ok(Verdict::Keep)
    }

    fn finish<T: Write>(&mut self, txn: &mut T) -> engine::Result<()> {
        put_clock(txn, self.clock, self.stores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Embedded;

    #[test]
    fn when_writers_rest_the_watermark_catches_up() {
        let engine = Embedded::in_memory_with(2).unwrap();
        let clock = HybridClock::new(0);
        let first = clock.next(10);
        let another = clock.draw();
        let last = clock.next(11);
        write(&engine, &clock, StoreSet::FIRST).unwrap();
        let told = |engine: &Embedded| {
            let view = engine.snapshot().unwrap();
            (of(&view).unwrap(), last_of(&view).unwrap(), view.commit())
        };
        let (watermark, known, _) = told(&engine);
        assert_eq!((watermark, known), (Some(first), Some(last)));
        drop(another);
        catch_up(&engine, &clock, StoreSet::FIRST).unwrap();
        let (watermark, known, commit) = told(&engine);
        assert_eq!((watermark, known), (Some(last), Some(last)));
        // There is nothing more to say.
        catch_up(&engine, &clock, StoreSet::FIRST).unwrap();
        assert_eq!(told(&engine).2, commit);
    }
}
