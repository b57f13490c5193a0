//! What a directory is created with.

use super::place;
use crate::config::Settings;
use crate::error::{Error, Result};
use crate::index_definition::IndexDefinition;
use crate::schema::Schema;
use crate::schema::additions::Additions;
use crate::state::State;

/// What a directory is created with; kept in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The suffixes, as DNs.
    pub naming_contexts: Vec<String>,
    /// The indexes. Equality of objectClass and entryUUID are always there.
    pub indexes: Vec<IndexDefinition>,
    /// Entries, whether they exist yet or not, whose children are spread over stores of their own.
    pub partitions: Vec<Partition>,
    /// Whether each naming context without partitions has a store of its own, and so a writer of its own.
    pub own_stores: bool,
    /// What is configured with the data.
    pub settings: Settings,
    /// Schema files that add to the schema, each with its name and its text: `.schema` files as OpenLDAP has them, or
    /// LDIF.
    pub schema_files: Vec<(String, String)>,
}

/// An entry whose children are spread over several stores, by a hash of their RDN; what is below a child is in its
/// store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// The entry's DN.
    pub parent: String,
    /// Over how many stores.
    pub stores: u16,
}

impl Config {
    /// How many stores such a directory has.
    ///
    /// # Errors
    /// When the definition cannot be.
    pub fn stores(&self, schema: &Schema) -> Result<u16> {
        place(&self.schema(schema)?, self, &mut State::default())
    }

    /// The schema of such a directory, which is that of the program with what its files add.
    ///
    /// # Errors
    /// When a file does not fit.
    pub fn schema(&self, schema: &Schema) -> Result<Schema> {
        let made = Additions::of_files(&self.schema_files).and_then(|added| schema.with(added));
        made.map_err(|error| Error::Config(error.to_string()))
    }
}
