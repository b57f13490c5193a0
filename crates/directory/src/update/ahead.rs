//! What the next updates are going to read, brought from memory at the same time: in a large directory each has a name and an entry on pages of
//! its own, which no cache holds.

use sapwood_ldap::message::{Request, RequestMessage};

use super::UpdateRequest;
use crate::engine::{EntryId, Read, Table};
use crate::error::Result;
use crate::names::{self, Child, NamingContext, name_key};
use crate::schema::{Schema, Siblings};

/// So many updates are looked at together.
pub(super) const UPDATES_AHEAD: usize = 16;

/// Reusable memory.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    names: Siblings,
    /// The normal DN above the names that came last, and its entry.
    above: Vec<u8>,
    parent: Option<EntryId>,
    keys: Vec<Vec<u8>>,
    ids: Vec<[u8; 8]>,
}

impl Ahead {
    /// Fetches the names and entries of updates. Whatever it cannot make out is left for the update itself.
    pub(super) fn fetch<'u, R: Read>(
        &mut self,
        view: &R,
        schema: &Schema,
        contexts: &[NamingContext],
        updates: impl Iterator<Item = &'u UpdateRequest>,
    ) -> Result<()> {
        // Whether it is worth it is known without any keys.
        if !view.fetch_ahead(Table::Name, &[[0; 0]; 0])? {
            return Ok(());
        }
        let mut count = 0;
        for update in updates {
            if self.keys.len() == count {
                self.keys.push(Vec::new());
            }
            if self.key(view, schema, contexts, update, count)?.is_some() {
                count += 1;
            }
        }
        let keys = &self.keys[..count];
        view.fetch_ahead(Table::Name, keys)?;
        self.ids.clear();
        for key in keys {
            if let Some(value) = view.get(Table::Name, key)? {
                self.ids.push(Child::from_value(&value)?.id.to_key());
            }
        }
        view.fetch_ahead(Table::Entry, &self.ids)?;
        Ok(())
    }

    /// Makes the key of an update's target in the table of names.
    fn key<R: Read>(
        &mut self,
        view: &R,
        schema: &Schema,
        contexts: &[NamingContext],
        update: &UpdateRequest,
        at: usize,
    ) -> Result<Option<()>> {
        let UpdateRequest::Message(message) = update else {
            return Ok(None);
        };
        let Ok(message) = RequestMessage::decode(message) else {
            return Ok(None);
        };
        let dn = match message.op {
            Request::Modify(request) => request.dn,
            Request::Delete(dn) => dn,
            _ => return Ok(None),
        };
        if !matches!(self.names.read(schema, dn), Ok(Some(_))) {
            return Ok(None);
        }
        let normal = self.names.normal();
        let rdn = normal.rdns().next_back().unwrap_or_default();
        let above = &normal.bytes()[..normal.bytes().len() - rdn.len()];
        if self.parent.is_none() || self.above != above {
            let mut superior = normal.clone();
            superior.truncate(normal.len() - 1);
            let walk = names::walk(view, contexts, &superior)?;
            self.parent = walk.and_then(|walk| walk.found()).map(|found| found.id);
            self.above.clear();
            self.above.extend_from_slice(above);
        }
        Ok(self
            .parent
            .map(|parent| name_key(parent, rdn, &mut self.keys[at])))
    }

    /// Forgets what a transaction has found: it may not be so for the next.
    pub(super) fn begin(&mut self) {
        self.parent = None;
    }
}
