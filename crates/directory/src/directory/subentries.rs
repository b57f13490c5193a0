//! Flags the subentries (RFC 3672) of a directory that was made when entries had no flag for them, so that its searches
//! leave them out, too.

use crate::engine::{self, Bundle, Engine, EntryId, StoreSet, Table, Verdict, Write};
use crate::entry::{Entry, EntryFlags, set_flags};
use crate::error::{Error, Result};
use crate::names::{Child, name_key};
use crate::plan::classes;
use crate::schema::{NormalDn, Schema};
use crate::state::State;

/// Flags those that lack it. There are few subentries, and hardly ever one without.
///
/// # Errors
/// When the directory cannot be read. One that cannot be written stays as it is, and shows its subentries.
pub(crate) fn flag<E: Engine>(
    engine: &E,
    view: &E::Snapshot,
    schema: &Schema,
    state: &State,
) -> Result<()> {
    use crate::engine::Read;
    let mut entries = Vec::new();
    for id in classes::subentries(schema, state, view)? {
        if let Some(record) = view.get(Table::Entry, &id.to_key())?
            && Entry::new(&record).is_ok_and(|entry| !entry.flags().is_subentry())
        {
            entries.push(id);
        }
    }
    if entries.is_empty() {
        return Ok(());
    }
    let mut flag = Flag {
        schema,
        stores: engine.stores(),
        entries,
    };
    if let Ok(Some(ticket)) = engine.write(&mut flag) {
        engine::Ticket::wait(ticket)?;
    }
    Ok(())
}

struct Flag<'f> {
    schema: &'f Schema,
    stores: usize,
    entries: Vec<EntryId>,
}

impl Flag<'_> {
    /// Sets the flag of an entry in its record and in that of its name.
    fn set<T: Write>(&self, txn: &mut T, id: EntryId) -> Result<()> {
        let missing = || {
            Error::corrupt(format!(
                "entry {id} is indexed, and has no record or no name"
            ))
        };
        let stored = txn.get(Table::Entry, &id.to_key())?;
        let mut record = stored.ok_or_else(missing)?.to_vec();
        let damaged = |error| Error::corrupt(format!("entry {id}: {error}"));
        let entry = Entry::new(&record).map_err(damaged)?;
        let (parent, flags) = (entry.parent(), entry.flags().with(EntryFlags::SUBENTRY));
        let mut normal = NormalDn::new();
        let rdn = entry.rdn().map_err(damaged)?;
        normal
            .parse(self.schema, rdn.as_bytes())
            .map_err(|error| Error::corrupt(format!("entry {id} has the RDN {rdn:?}: {error}")))?;
        let mut key = Vec::new();
        name_key(parent, normal.bytes(), &mut key);
        let named = txn.get(Table::Name, &key)?;
        let named = named.map(|named| Child::from_value(&named));
        let named = named.ok_or_else(missing)??;
        txn.put(Table::Name, &key, &Child { flags, ..named }.to_value())?;
        set_flags(&mut record, flags);
        txn.put(Table::Entry, &id.to_key(), &record)?;
        Ok(())
    }
}

impl Bundle for Flag<'_> {
    fn operations(&self) -> usize {
        self.entries.len()
    }

    fn stores(&self) -> StoreSet {
        StoreSet::all(self.stores)
    }

    fn begin<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }

    fn apply<T: Write>(&mut self, txn: &mut T, operation: usize) -> engine::Result<Verdict> {
        match self.set(txn, self.entries[operation]) {
            Ok(()) => Ok(Verdict::Keep),
            // It is the engine's to run it again.
            Err(Error::Engine(error @ (engine::Error::NotHere | engine::Error::Conflict))) => {
                Err(error)
            }
            // A damaged one is told when it is read, or by a check.
            Err(_) => Ok(Verdict::Undo),
        }
    }

    fn finish<T: Write>(&mut self, _txn: &mut T) -> engine::Result<()> {
        Ok(())
    }
}
