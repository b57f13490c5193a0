//! Where updates are to be applied: the stores that their DNs lead to.
//!
//! This is how updates of different stores find their way to different writers. It need not be right: an update that
//! turns out to need another store, such as that of an entry which was renamed from one partition to another, is
//! applied again with both stores held.

use sapwood_ldap::message::{ModifyDnRequest, Request, RequestMessage};

use crate::engine::{EntryId, StoreSet, partition_of};
use crate::names::{context_of, name_key};
use crate::schema::{NormalDn, Schema};
use crate::state::State;
use crate::update::{RequestView, UpdateRequest};

/// The shards of an update; the first store if its DN is none or in no naming context.
pub(crate) fn of_request(
    schema: &Schema,
    state: &State,
    stores: usize,
    request: &UpdateRequest,
) -> StoreSet {
    let mut finder = Finder::new(schema, state, stores);
    match request {
        UpdateRequest::Transaction(transaction) => transaction
            .updates
            .iter()
            .map(|(_, request)| finder.of_update(request))
            .fold(StoreSet::default(), StoreSet::with),
        request => finder.of_update(request.view()),
    }
}

/// The shards of an update that is decoded.
pub(crate) fn of_message(
    schema: &Schema,
    state: &State,
    stores: usize,
    request: &Request<'_>,
) -> StoreSet {
    Finder::new(schema, state, stores).of_message(request)
}

struct Finder<'f> {
    schema: &'f Schema,
    state: &'f State,
    stores: usize,
    normal: NormalDn,
    key: Vec<u8>,
}

impl<'f> Finder<'f> {
    fn new(schema: &'f Schema, state: &'f State, stores: usize) -> Finder<'f> {
        Finder {
            schema,
            state,
            stores,
            normal: NormalDn::new(),
            key: Vec::new(),
        }
    }

    fn of_update(&mut self, request: RequestView<'_>) -> StoreSet {
        match request {
            RequestView::Message(message) => match RequestMessage::decode(message) {
                Ok(message) => self.of_message(&message.op),
                Err(_) => StoreSet::FIRST,
            },
            RequestView::SetPassword { dn, .. } | RequestView::Refresh { dn, .. } => self.of_dn(dn),
            RequestView::Account { entry, .. } => StoreSet::one(entry.store()),
            RequestView::Transaction(_) => StoreSet::FIRST,
            // Entries are found by what no name says.
            RequestView::Replicated(_) => StoreSet::all(self.stores),
        }
    }

    fn of_message(&mut self, request: &Request<'_>) -> StoreSet {
        match request {
            Request::Add(request) => self.of_dn(request.dn),
            Request::Delete(dn) => self.of_dn(dn),
            Request::Modify(request) => self.of_dn(request.dn),
            Request::ModifyDn(request) => self.of_rename(request),
            _ => StoreSet::FIRST,
        }
    }

    /// The shards of the old name and the new one.
    fn of_rename(&mut self, request: &ModifyDnRequest<'_>) -> StoreSet {
        if request.new_superior.is_some() {
            // A move holds all stores, so that no two of them can make a ring.
            return StoreSet::all(self.stores);
        }
        let old = self.of_dn(request.dn);
        let Ok(dn) = sapwood_ldap::dn::Dn::parse(request.dn) else {
            return old;
        };
        let new = match dn.parent() {
            Some(parent) => format!("{},{}", request.new_rdn, parent.as_str()),
            None => request.new_rdn.to_owned(),
        };
        old.with(self.of_dn(&new))
    }

    fn of_dn(&mut self, dn: &str) -> StoreSet {
        let parsed = self.normal.parse(self.schema, dn.as_bytes());
        let context = parsed
            .ok()
            .and_then(|()| context_of(&self.state.contexts, &self.normal));
        let Some(context) = context else {
            return StoreSet::FIRST;
        };
        let context = &self.state.contexts[context];
        if context.root != EntryId::ROOT {
            return StoreSet::one(context.root.store());
        }
        // The name right below a partitioned parent tells the store; there may be one below another.
        let above = self
            .state
            .partitioned
            .iter()
            .filter(|parent| {
                self.normal.len() > parent.normal.len()
                    && self.normal.is_at_or_below(&parent.normal)
            })
            .max_by_key(|parent| parent.normal.len());
        let Some(above) = above else {
            return StoreSet::FIRST;
        };
        let rdn = self
            .normal
            .rdns()
            .nth(above.normal.len())
            .unwrap_or_default();
        name_key(above.id, rdn, &mut self.key);
        StoreSet::one(partition_of(&self.key))
    }
}
