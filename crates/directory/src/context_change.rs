//! Naming contexts added to a directory.

use crate::Directory;
use crate::definition;
use crate::engine::{self, Bundle, Engine, EntryId, Read, StoreSet, Ticket, Verdict, Write};
use crate::error::{Error, Result};
use crate::indexes::Completeness;
use crate::names;
use crate::reindex::KINDS;
use crate::schema::{NormalDn, Schema};
use crate::state::State;
use crate::synthetic::SyntheticContext;

impl<E: Engine> Directory<E> {
    /// Tells what is wrong with a naming context that is to be added.
    ///
    /// # Errors
    /// [`Error::Config`] when there is a naming context or an entry with this DN, or it is none.
    pub fn check_new_context(&self, dn: &str) -> Result<()> {
        let snapshot = self.waiting_snapshot()?;
        let mut state = State::clone(snapshot.state());
        add(snapshot.view(), &mut state, snapshot.schema(), dn, 0)
    }

    /// Adds a naming context in one of the stores: the first, or one that no naming context has, so that it gets this
    /// one to itself. The one that has the directory open already does not learn of it.
    ///
    /// # Errors
    /// [`Error::Config`] when there is a naming context or an entry with this DN, or the store is another's.
    pub fn add_naming_context(&self, dn: &str, store: u16) -> Result<()> {
        let mut add = Add {
            schema: &self.options().schema,
            stores: self.stores(),
            dn,
            store,
            failure: None,
        };
        let ticket = self.engine().write(&mut add)?;
        if let Some(failure) = add.failure {
            return Err(failure);
        }
        if let Some(ticket) = ticket {
            ticket.wait()?;
        }
        Ok(())
    }
}

struct Add<'a> {
    schema: &'a Schema,
    stores: usize,
    dn: &'a str,
    store: u16,
    failure: Option<Error>,
}

impl Add<'_> {
    fn make<T: Write>(&self, txn: &mut T) -> Result<()> {
        let Add {
            schema, dn, store, ..
        } = *self;
        let mut state = definition::load(txn, schema)?;
        let schema = &state.schema.clone();
        let is_partition = |(first, stores): (u16, u16)| (first..first + stores).contains(&store);
        let mut partitions = state
            .partitioned
            .iter()
            .filter_map(|parent| parent.id.partitions());
        let root = EntryId::root_of(store);
        let is_taken = state.contexts.iter().any(|context| context.root == root);
        if usize::from(store) >= self.stores
            || store > 0 && (is_taken || partitions.any(is_partition))
        {
            return Err(Error::Config(format!("store {store} is not free")));
        }
        add(txn, &mut state, schema, dn, store)?;
        for indexes in state.indexes.iter() {
            for kind in KINDS {
                if indexes.completeness(kind) != Completeness::Absent {
                    // In a store that is new it is not there yet.
                    txn.create_index(indexes.index(kind))?;
                }
            }
        }
        Ok(definition::store(txn, &mut state)?)
    }
}

/// Adds a naming context to what is known of a directory.
fn add<R: Read>(read: &R, state: &mut State, schema: &Schema, dn: &str, store: u16) -> Result<()> {
    let mut normal = NormalDn::new();
    if normal.parse(schema, dn.as_bytes()).is_ok() {
        let mut known = state.contexts.iter();
        if let Some(known) = known.find(|known| known.normal == normal) {
            let diagnostic = format!("there is a naming context '{}' already", known.dn);
            return Err(Error::Config(diagnostic));
        }
        if names::walk(read, &state.contexts, &normal)?.is_some_and(|walk| walk.is_complete) {
            return Err(Error::Config(format!("there is an entry '{dn}' already")));
        }
    }
    let own = SyntheticContext::suffixes(schema)?;
    definition::add_context(state, schema, &own, dn, store)
}

impl Bundle for Add<'_> {
    fn operations(&self) -> usize {
        1
    }

    fn stores(&self) -> StoreSet {
        StoreSet::all(self.stores)
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        self.failure = None;
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, _operation: usize) -> engine::Result<Verdict> {
        Error::verdict(self.make(txn), &mut self.failure)
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
}
