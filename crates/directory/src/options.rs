//! What a directory is opened with.

use std::sync::Arc;

use crate::changes::ChangesKept;
use crate::schema::Schema;
use crate::sources::{Clock, PasswordHasher, SystemClock, TimedUuids, UuidSource};
use crate::synthetic::root_dse::RootDse;

/// What a directory is opened with; not kept.
#[derive(Clone)]
pub struct Options {
    /// The schema of the program, which the data of a directory may add to.
    pub schema: Schema,
    /// What the root DSE says about the server.
    pub root_dse: RootDse,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Where entryUUID comes from.
    pub uuids: Arc<dyn UuidSource>,
    /// Checks the passwords that are stored; with `None` any value is.
    pub passwords: Option<Arc<dyn PasswordHasher>>,
    /// Its number among the replicas of the directory, of 12 bits, which stands in the change sequence numbers that it
    /// makes; 0 while it is not replicated.
    pub replica: u16,
    /// How far back the change feed reaches.
    pub changes_kept: ChangesKept,
}

impl Options {
    /// The system's clock, UUIDs of the time, passwords stored as they come.
    pub fn new(schema: Schema) -> Options {
        Options {
            schema,
            root_dse: RootDse::default(),
            clock: Arc::new(SystemClock),
            uuids: Arc::new(TimedUuids),
            passwords: None,
            replica: 0,
            changes_kept: ChangesKept::default(),
        }
    }
}
