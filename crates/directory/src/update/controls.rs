//! The controls of an update: ManageDsaIT (RFC 3296), assertion (RFC 4528), pre-read and post-read (RFC 4527).

use std::sync::Arc;

use sapwood_ldap::controls::{
    Control, ControlSet, ControlsBuf, KnownControl, POST_READ, PRE_READ, ReadEntry, RequestControls,
};
use sapwood_ldap::message::RequestMessage;
use sapwood_ldap::result::ResultCode;

use super::Run;
use crate::access::{Asked, EntryGrants, Rights, Sight, Slot};
use crate::collective::Collective;
use crate::engine::{EntryId, IndexKind, Write};
use crate::matching::look::{Look, assertion_failed, assertion_too_long};
use crate::names;
use crate::operational::Vocabulary;
use crate::outcome::Stop;
use crate::plan::classes;

/// The controls of an update, but for those that the session has dealt with before.
pub(super) fn own_controls<'m>(message: &RequestMessage<'m>) -> Result<RequestControls<'m>, Stop> {
    if message.controls.is_empty() {
        return Ok(RequestControls::NONE);
    }
    let is_own = |control: &Control<'_>| {
        !KnownControl::of(control.oid).is_some_and(KnownControl::is_of_session)
    };
    let controls = message.controls.iter().filter(is_own);
    RequestControls::read(controls, ControlSet::of(message.op.operation()))
        .map_err(|refused| Stop::refuse(refused.code(), refused.to_string()))
}

impl<T: Write> Run<'_, T> {
    /// Checks the assertion on the target as it stands in the transaction. Of an add that is the new entry, which has
    /// just been written: the engine takes it back.
    pub(super) fn assert(
        &mut self,
        id: EntryId,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        let Some(filter) = controls.assertion else {
            return Ok(());
        };
        let collective = self.collective()?;
        let on_entry = self.granted(id, Rights::SEARCH)?;
        let mut work = self.assertion_work;
        let look = self.look(on_entry.as_ref(), collective);
        let node = look.compile_within(filter, &mut work);
        let asserts = look.asserts(self.txn, (id, None), &node, &mut work)?;
        self.assertion_work = work;
        match asserts {
            Some(true) => Ok(()),
            Some(false) => Err(assertion_failed().into()),
            None => Err(assertion_too_long().into()),
        }
    }

    /// Reads the target before it is changed.
    pub(super) fn pre_read(
        &mut self,
        id: EntryId,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        self.respond_with_entry(PRE_READ, id, controls.pre_read)
    }

    /// Reads the target after it was changed.
    pub(super) fn post_read(
        &mut self,
        id: EntryId,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        self.respond_with_entry(POST_READ, id, controls.post_read)
    }

    fn respond_with_entry(
        &mut self,
        oid: &str,
        id: EntryId,
        selected: Option<ReadEntry<'_>>,
    ) -> Result<(), Stop> {
        let Some(ReadEntry { attributes }) = selected else {
            return Ok(());
        };
        let mut value = Vec::new();
        let collective = self.collective()?;
        let on_entry = self.granted(id, Rights::READ)?;
        let look = self.look(on_entry.as_ref(), collective);
        look.read(self.txn, id, attributes, &mut value)?;
        self.response
            .get_or_insert_with(ControlsBuf::default)
            .push(Control {
                oid,
                critical: false,
                value: Some(&value),
            });
        Ok(())
    }

    /// The collective attributes of the entries, as they are in the transaction.
    fn collective(&mut self) -> Result<Option<Arc<Collective>>, Stop> {
        if !self.state.attributes.has_collective() {
            return Ok(None);
        }
        if let Some(known) = &*self.collective {
            return Ok(known.clone());
        }
        // They are found by their class.
        let object_class = self.schema.well_known().object_class;
        if let Some(indexes) = self.state.indexes.of(object_class) {
            self.txn.open_index(indexes.index(IndexKind::Equality))?;
        }
        let (schema, state, view) = (self.schema, &*self.state, &*self.txn);
        let attributes = &state.attributes;
        let candidates = classes::subentries(schema, state, view)?;
        let read = Collective::of((view, Vocabulary { schema, attributes }), candidates)?;
        Ok(self.collective.insert(read).clone())
    }

    /// What is granted on the target; nothing is to be asked of who is above the rules. Who has not the right that a
    /// control takes is refused.
    fn granted(&self, id: EntryId, right: Rights) -> Result<Option<EntryGrants>, Stop> {
        let Some(requester) = self.limited() else {
            return Ok(None);
        };
        let dn = names::normal_dn_of(self.txn, self.schema, id)?;
        let asked = Asked {
            view: &*self.txn,
            schema: self.schema,
            dn: &dn,
            id,
        };
        let granted = requester.grants().on_entry(&asked)?;
        if !granted.has(Slot::ENTRY, right) {
            let diagnostic = "you may not read this entry, as the controls of the update ask for";
            return Err(Stop::refuse(
                ResultCode::InsufficientAccessRights,
                diagnostic,
            ));
        }
        Ok(Some(granted))
    }

    /// The eyes of who asks: what may not be searched is not shown here either (RFC 4527 §5, RFC 4528 §4).
    fn look<'l>(
        &'l self,
        on_entry: Option<&'l EntryGrants>,
        collective: Option<Arc<Collective>>,
    ) -> Look<'l> {
        Look {
            schema: self.schema,
            attributes: &self.state.attributes,
            grants: self.requester.grants(),
            sight: match on_entry {
                Some(_) => Sight::Decided,
                None => Sight::All,
            },
            on_entry,
            collective,
        }
    }
}
