//! What a snapshot knows of the directory besides its tables.

use std::sync::Arc;

use crate::accounts::Accounts;
use crate::attributes::AttributeTable;
use crate::config::Settings;
use crate::dynamic_groups::DynamicGroups;
use crate::engine::EntryId;
use crate::indexes::IndexSet;
use crate::member_of::MemberOf;
use crate::names::{NamingContext, PartitionedParent};
use crate::policy::Policy;
use crate::schema::Schema;
use crate::schema_change::SchemaChange;
use crate::sources::Clock;

/// Shared by all snapshots and updates until something in it changes; a changed state is a new one.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The schema.
    pub(crate) schema: Schema,
    /// How often it was added to; 0 if it has only what the program defines.
    pub(crate) schema_version: u64,
    /// When it was last added to, as a Generalized Time; empty if it never was.
    pub(crate) schema_changed: Box<str>,
    /// A change of the schema that is coming.
    pub(crate) coming: Option<Arc<SchemaChange>>,
    /// Why the last one that was coming was given up; empty if it was not.
    pub(crate) given_up: Box<str>,
    /// The naming contexts.
    pub(crate) contexts: Vec<NamingContext>,
    /// The entries whose children are spread over several stores.
    pub(crate) partitioned: Vec<PartitionedParent>,
    /// The attribute descriptions in use and their numbers.
    pub(crate) attributes: AttributeTable,
    /// The indexes.
    pub(crate) indexes: IndexSet,
    /// The version of the string preparation the indexes were built with.
    pub(crate) preparation: u32,
    /// What is configured with the data.
    pub(crate) settings: Settings,
    /// The record most of this was read from: another one means another state.
    pub(crate) definition: Box<str>,
}

impl State {
    /// Says where the values of computed attributes come from: of those that binds change only where password policies
    /// ask for them, of memberOf and entryTtl only where they are asked for. Says which indexes names can be followed
    /// by.
    pub(crate) fn know_computed(&mut self, accounts: &Arc<Accounts>, clock: &Arc<dyn Clock>) {
        let is_asked_for = self.settings.password_policy.is_some();
        self.attributes
            .set_accounts(is_asked_for.then(|| accounts.clone()));
        let member_of = self.settings.member_of.as_ref().and_then(|rule| {
            let names = (rule.member(), rule.class());
            MemberOf::new(names, &self.schema, &self.indexes, &self.contexts)
        });
        let member_of = member_of.map(Arc::new);
        self.attributes.set_member_of(member_of);
        self.attributes.set_equality_indexes(&self.indexes);
        let ends = self.settings.dds.is_some();
        self.attributes.set_clock(ends.then(|| clock.clone()));
        let groups = DynamicGroups::new(&self.settings.dynlist, &self.schema);
        self.attributes.set_dynamic_groups(groups.map(Arc::new));
    }

    /// The access rules in force, and the limits.
    pub(crate) fn policy(&self) -> Policy {
        let contexts = self.contexts.iter();
        self.settings
            .policy(contexts.map(|context| context.dn.as_str()))
    }

    /// Whether another state asks for other access rules, or for those of other entries.
    pub(crate) fn differs_in_access(&self, other: &State) -> bool {
        // Naming contexts are only ever added.
        self.contexts.len() != other.contexts.len()
            || self.settings.differ_in_access(&other.settings)
    }

    /// The ids that entries have which are in the same stores as one of them: from the first up to and without the
    /// second.
    pub(crate) fn ids_around(&self, id: EntryId) -> (EntryId, EntryId) {
        let end = |store: u16| EntryId::root_of(store.saturating_add(1));
        let mut contexts = self.contexts.iter();
        let store = id.store();
        if store > 0 && contexts.any(|context| context.root.store() == store) {
            return (EntryId::root_of(store), end(store));
        }
        // The first store and all partitions; naming contexts with stores of their own come behind them.
        let partitions = self
            .partitioned
            .iter()
            .filter_map(|parent| parent.id.partitions());
        let last = partitions.map(|(first, stores)| first + stores - 1).max();
        (EntryId::ROOT, end(last.unwrap_or(0)))
    }
}
