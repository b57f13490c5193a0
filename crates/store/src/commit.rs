//! Commits.

use crate::error::Result;
use crate::page::CommitNo;

/// The claim to a commit that is applied and logged but perhaps not durable yet. It may be waited for by another
/// thread, any number of times. If it is dropped without waiting, the commit becomes durable with the next one that is
/// waited for, or after a moment by itself.
#[derive(Clone, Debug)]
pub struct Ticket {}

impl Ticket {
    /// The number of the commit.
    pub fn commit(&self) -> CommitNo {
        todo!()
    }

    /// Whether the commit is durable and visible.
    pub fn is_durable(&self) -> bool {
        todo!()
    }

    /// Waits until the commit is durable and visible; one sync of the log serves all that wait.
    ///
    /// A failed sync is [`Error::Poisoned`](crate::Error::Poisoned) for all that wait for it: whether the commit
    /// survives is decided when the environment is opened again.
    pub fn wait(&self) -> Result<CommitNo> {
        todo!()
    }
}
