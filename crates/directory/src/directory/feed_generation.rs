//! Generations of the change feed: places of one mean nothing in another.

use crate::definition;
use crate::engine::{self, Bundle, Engine, Read, Ticket, Verdict, Write};
use crate::error::{Error, Result};
use crate::sources::UuidSource;

/// Begins a new generation of the change feed of the directory that an engine holds, so that nobody takes what follows
/// for what they have read before: to be called when it was restored, or is a copy of another.
///
/// # Errors
/// When the engine fails.
pub fn renew_feed<E: Engine>(engine: &E, uuids: &dyn UuidSource) -> Result<()> {
    if let Some(ticket) = engine.write(&mut Renew(of_uuid(uuids.uuid())))? {
        ticket.wait()?;
    }
    Ok(())
}

/// A generation made of a new UUID: of its random bits.
pub(crate) fn of_uuid(uuid: [u8; 16]) -> u64 {
    (u128::from_be_bytes(uuid) & u128::from(u64::MAX)) as u64
}

/// The generation that a snapshot is of.
pub(super) fn of<R: Read>(view: &R) -> Result<u64> {
    let generation = definition::feed_generation(view)?;
    generation.ok_or_else(|| Error::corrupt("the change feed has no generation"))
}

struct Renew(u64);

impl Bundle for Renew {
    fn operations(&self) -> usize {
        1
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        definition::put_feed_generation(txn, self.0)?;
        Ok(Verdict::Keep)
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
}
