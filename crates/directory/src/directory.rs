//! The directory itself: opening, creating, snapshots.

use std::path::Path;
use std::sync::Arc;

use crate::access::{AccessPolicy, Identity};
use crate::engine::{Embedded, Engine, EntryId};
use crate::error::Result;
use crate::outcome::Outcome;
use crate::root_dse::RootDse;
use crate::schema::Schema;
use crate::sources::{Clock, RandomUuids, SystemClock, UuidSource};
use crate::update::{Applied, Update};

/// What a directory is created with; kept in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The suffixes, as DNs.
    pub naming_contexts: Vec<String>,
    /// The indexes. Equality of objectClass and entryUUID are always there.
    pub indexes: Vec<IndexDefinition>,
}

/// The indexes of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Name or OID of the attribute type, without options.
    pub attribute: String,
    /// Equality.
    pub equality: bool,
    /// Presence.
    pub presence: bool,
    /// Substrings.
    pub substring: bool,
    /// Ordering: `>=`, `<=`, sorting.
    pub ordering: bool,
}

/// What a directory is opened with; not kept.
#[derive(Clone)]
pub struct Options {
    /// The schema.
    pub schema: Schema,
    /// The access rules' configured part.
    pub access: AccessPolicy,
    /// What the root DSE says about the server.
    pub root_dse: RootDse,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Where entryUUID comes from.
    pub uuids: Arc<dyn UuidSource>,
}

impl Options {
    /// The system's clock, random UUIDs, nothing readable to who is anonymous.
    pub fn new(schema: Schema) -> Options {
        Options {
            schema,
            access: AccessPolicy::default(),
            root_dse: RootDse::default(),
            clock: Arc::new(SystemClock),
            uuids: Arc::new(RandomUuids),
        }
    }
}

/// A directory. Clones share it.
pub struct Directory<E: Engine = Embedded> {
    shared: Arc<Shared<E>>,
}

impl<E: Engine> Clone for Directory<E> {
    fn clone(&self) -> Self {
        Directory {
            shared: self.shared.clone(),
        }
    }
}

pub(crate) struct Shared<E> {
    pub(crate) engine: E,
    pub(crate) options: Options,
}

impl Directory {
    /// Makes a directory in an empty or missing folder.
    pub fn create(path: &Path, config: &Config, options: Options) -> Result<Directory> {
        let _ = (path, config, options);
        unimplemented!()
    }

    /// Opens the directory of a folder. Another process may have it open too; `read_only` never writes.
    pub fn open(path: &Path, options: Options, read_only: bool) -> Result<Directory> {
        let _ = (path, options, read_only);
        unimplemented!()
    }
}

impl<E: Engine> Directory<E> {
    /// Makes a directory on an empty engine.
    pub fn create_on(engine: E, config: &Config, options: Options) -> Result<Directory<E>> {
        let _ = (engine, config, options);
        unimplemented!()
    }

    /// Opens the directory an engine holds.
    pub fn open_on(engine: E, options: Options) -> Result<Directory<E>> {
        let _ = (engine, options);
        unimplemented!()
    }

    /// The schema.
    pub fn schema(&self) -> &Schema {
        &self.shared.options.schema
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.shared.engine
    }

    /// The newest visible state, to be read from. Cheap; hold it for a burst of reads or one search, not longer.
    pub fn snapshot(&self) -> Result<Snapshot<E>> {
        unimplemented!()
    }

    /// Applies a batch of updates as one commit, each succeeding or failing alone. Blocks while another writer writes.
    ///
    /// # Errors
    /// When the engine fails: no update of the batch took place, or ([`crate::engine::Error::Undetermined`]) it is not known.
    pub fn apply(&self, updates: &[Update]) -> Result<Applied<E::Ticket>> {
        let _ = updates;
        unimplemented!()
    }
}

/// The directory as of one commit. Clones share the same view.
pub struct Snapshot<E: Engine = Embedded> {
    directory: Directory<E>,
    view: Arc<E::Snapshot>,
}

impl<E: Engine> Clone for Snapshot<E> {
    fn clone(&self) -> Self {
        Snapshot {
            directory: self.directory.clone(),
            view: self.view.clone(),
        }
    }
}

/// What a bind needs to know of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The entry.
    pub entry: EntryId,
    /// Its DN as stored.
    pub dn: String,
    /// Its userPassword values.
    pub stored: Vec<Vec<u8>>,
}

impl<E: Engine> Snapshot<E> {
    /// The directory this is a state of.
    pub fn directory(&self) -> &Directory<E> {
        &self.directory
    }

    /// The entry with this DN and its passwords; `None` when there is no such entry or no such DN.
    pub fn credentials(&self, dn: &str) -> Result<Option<Credentials>> {
        let _ = (dn, &self.view);
        unimplemented!()
    }

    /// Compare (RFC 4511 §4.10): compareTrue, compareFalse, or why neither.
    pub fn compare(
        &self,
        identity: &Identity,
        dn: &str,
        attribute: &[u8],
        assertion: &[u8],
        manage_dsa_it: bool,
    ) -> Result<Outcome> {
        let _ = (identity, dn, attribute, assertion, manage_dsa_it);
        unimplemented!()
    }
}
