//! What a snapshot knows of the directory besides its tables.

use crate::attributes::AttributeTable;
use crate::indexes::IndexSet;
use crate::names::NamingContext;

/// Shared by all snapshots and updates until something in it changes; a changed state is a new one.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The naming contexts.
    pub(crate) contexts: Vec<NamingContext>,
    /// The attribute descriptions in use and their numbers.
    pub(crate) attributes: AttributeTable,
    /// The indexes.
    pub(crate) indexes: IndexSet,
    /// The version of the string preparation the indexes were built with.
    pub(crate) preparation: u32,
    /// The record most of this was read from: another one means another state.
    pub(crate) definition: Box<str>,
}
