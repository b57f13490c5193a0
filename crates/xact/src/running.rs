//! Which transactions this thread runs.

use std::cell::RefCell;

use sapwood_wal::storage::Identity;

use crate::error::{Error, Result};

sapwood_wal::sync::thread_local! {
    /// The spaces on which this thread runs a transaction that may write.
    static RUNNING: RefCell<Vec<Identity>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread runs transactions that may write on several spaces, so that others may wait for it on one of
/// them while it waits on another one.
pub(crate) fn runs_on_several_spaces() -> bool {
    RUNNING.with(|running| running.borrow().len() > 1)
}

/// This thread runs a transaction that may write on a space.
///
/// # Errors
/// [`Error::Nested`] if it runs one already.
pub(crate) fn enter(space: Identity) -> Result<()> {
    RUNNING.with(|running| {
        let mut running = running.borrow_mut();
        if running.contains(&space) {
            return Err(Error::Nested);
        }
        running.push(space);
        Ok(())
    })
}

/// That transaction has ended.
pub(crate) fn leave(space: Identity) {
    RUNNING.with(|running| {
        let mut running = running.borrow_mut();
        running.retain(|other| *other != space);
    });
}
