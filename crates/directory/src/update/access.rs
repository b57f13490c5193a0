//! Which rights an update needs (slapd.access(5), "Operation requirements"). They are checked here, on the batch's own
//! state.
//!
//! | update | on the entry | on the children of its superior |
//! | --- | --- | --- |
//! | add | add | add |
//! | delete | delete | delete |
//! | tree delete | delete, on each entry that goes | delete, for each entry that goes |
//! | modify | of each attribute, or of each value that is named: add, delete, or both where values are replaced | |
//! | modify DN | write; on the names' attributes: add, and delete if the old one goes | delete; add at the new one |
//! | password | write on userPassword | |
//!
//! A requester who has the right on no entry at all is refused before any entry is looked up. An entry that may not be
//! disclosed is reported as missing.

use sapwood_ldap::dn::{Dn, Rdn};
use sapwood_ldap::list::{OctetStrings, OctetStringsBuf};
use sapwood_ldap::result::ResultCode;

use super::rules::Origin;
use super::{Run, rdn_of, read};
use crate::access::{
    ACTING_WORK_MAX, Asked, Everywhere, Identity, NOT_AUTHORIZED, OwnValues, Requester, Rights,
    Slot, Wanted,
};
use crate::engine::{EntryId, Table, Write};
use crate::names::{self, NamingContext};
use crate::outcome::Stop;
use crate::password_policy;
use crate::schema::{AttributeType, NormalDn, Schema, Syntax};
use crate::target::Target;

impl<'r, T: Write> Run<'r, T> {
    pub(super) fn identity(&self) -> &'r Identity {
        self.requester.identity()
    }

    /// The requester, if access rules limit it. They never limit the updates that a rule makes.
    pub(super) fn limited(&self) -> Option<&'r Requester> {
        let is_limited = self.origin == Origin::Client && !self.requester.grants().is_unlimited();
        is_limited.then_some(self.requester)
    }

    /// Refuses a user whose entry has been deleted, perhaps by an earlier update of this batch.
    pub(super) fn require_requester(&mut self) -> Result<(), Stop> {
        self.require_authorization()?;
        let Some(Identity::User { entry, .. }) = self.limited().map(Requester::identity) else {
            return Ok(());
        };
        let key = entry.to_key();
        self.txn.rely_on(Table::Entry, &key);
        match self.txn.get(Table::Entry, &key)? {
            Some(_) => Ok(()),
            None => {
                let diagnostic = "the entry that you have bound as was deleted: bind again";
                Err(Stop::refuse(ResultCode::StrongerAuthRequired, diagnostic))
            }
        }
    }

    /// Refuses a requester that acts for another identity without permission. A transaction decides this once, on the
    /// state before its first update, because all of it takes place at one moment.
    fn require_authorization(&mut self) -> Result<(), Stop> {
        if self.is_authorized || !self.requester.is_acted_as() || self.origin != Origin::Client {
            return Ok(());
        }
        let state = self.shared.of(self.state);
        let mut work = self.assertion_work.min(ACTING_WORK_MAX);
        let before = work;
        let (schema, now, txn) = (self.schema, self.now(), &*self.txn);
        let is_disabled = |id| password_policy::is_disabled((schema, &state, txn), id, now);
        let requester = &self.requester;
        let may = requester.is_authorized(schema, (txn, &state), &is_disabled, &mut work)?;
        self.is_authorized = may;
        self.assertion_work -= before - work;
        match self.is_authorized {
            true => Ok(()),
            false => Err(Stop::refuse(
                ResultCode::AuthorizationDenied,
                NOT_AUTHORIZED,
            )),
        }
    }

    /// Refuses a requester who has these rights on no entry at all. It reads no entry, so the refusal does not reveal
    /// which entries exist.
    pub(super) fn require_somewhere(&self, slot: Slot, rights: Rights) -> Result<(), Stop> {
        let grants = self.limited().map(Requester::grants);
        match grants.map(|grants| grants.everywhere(slot, rights)) {
            Some(Everywhere::Never) => Err(may_not("change entries")),
            _ => Ok(()),
        }
    }

    /// Refuses a requester without these rights on an entry. The entry is one whose existence may be disclosed.
    pub(super) fn require(
        &self,
        dn: &NormalDn,
        id: EntryId,
        (slot, rights): (Slot, Rights),
        what: &str,
    ) -> Result<(), Stop> {
        let Some(who) = self.limited() else {
            return Ok(());
        };
        let asked = Asked {
            view: &*self.txn,
            schema: self.schema,
            dn,
            id,
        };
        match who.grants().rights(&asked, slot)?.has(rights) {
            true => Ok(()),
            false => Err(may_not(what)),
        }
    }

    /// Checks rights on the children of the superior of a DN. An entry has the DN, or is about to get it.
    pub(super) fn require_above(
        &self,
        dn: &NormalDn,
        parent: EntryId,
        rights: Rights,
    ) -> Result<(), Stop> {
        // No rule covers what is above a naming context.
        if parent.is_root() && self.limited().is_some() {
            return Err(may_not("add or delete the entry of a naming context"));
        }
        let mut above = dn.clone();
        above.truncate(dn.len().saturating_sub(1));
        let what = "change what is directly below this entry's superior";
        self.require(&above, parent, (Slot::CHILDREN, rights), what)
    }

    /// Refuses a requester who may not add an entry with this DN. It is called before the DN is looked up: only those
    /// who may add it learn whether it exists.
    pub(super) fn require_place(&mut self, dn: &str, normal: &NormalDn) -> Result<(), Stop> {
        if self.limited().is_none() {
            return Ok(());
        }
        let is_context = |context: &NamingContext| context.normal == *normal;
        if self.state.contexts.iter().any(is_context) {
            return Err(may_not("add or delete the entry of a naming context"));
        }
        let above = Dn::parse(dn).ok().and_then(Dn::parent).unwrap_or_default();
        let mut superior = normal.clone();
        superior.truncate(normal.len() - 1);
        let superior = self.find(above.as_str(), superior, false)?;
        self.require_above(normal, superior.entry.id, Rights::ADD)?;
        if self.asks_for_content() {
            // The entry has no content yet: `require_added` checks again when it has.
            return Ok(());
        }
        // The entry has no id yet, so that no rule for one's own entry (`self`) applies.
        let wanted = (Slot::ENTRY, Rights::ADD);
        self.require(normal, EntryId::ROOT, wanted, "add this entry")
    }

    /// Whether the requester's rights depend on more than the names of entries.
    fn asks_for_content(&self) -> bool {
        self.limited()
            .is_some_and(|who| who.grants().asks_for_content())
    }

    /// Refuses a requester who may not add an entry with this content.
    pub(super) fn require_added(&mut self, normal: &NormalDn, id: EntryId) -> Result<(), Stop> {
        match self.asks_for_content() {
            true => self.require_as_it_is(normal, id, Rights::ADD, "add this entry"),
            false => Ok(()),
        }
    }

    /// Refuses a requester without these rights on an entry with the content that it has got in this transaction.
    pub(super) fn require_as_it_is(
        &mut self,
        normal: &NormalDn,
        id: EntryId,
        rights: Rights,
        what: &str,
    ) -> Result<(), Stop> {
        let Some(who) = self.limited() else {
            return Ok(());
        };
        // Attributes that this entry is the first to use have just got their numbers.
        let state = self.shared.of(self.state);
        let renewed = who.renewed_by(self.schema, (&*self.txn, &state))?;
        let asked = Asked {
            view: &*self.txn,
            schema: self.schema,
            dn: normal,
            id,
        };
        match renewed.grants().rights(&asked, Slot::ENTRY)?.has(rights) {
            true => Ok(()),
            false => Err(may_not(what)),
        }
    }

    /// Refuses a requester who may not move an entry from its place, or not change the attributes of its RDN.
    pub(super) fn require_renaming(
        &self,
        target: &Target,
        new_rdn: Rdn<'_>,
        delete_old_rdn: bool,
    ) -> Result<(), Stop> {
        let Some(requester) = self.limited() else {
            return Ok(());
        };
        let Target { entry, normal, .. } = target;
        let wanted = (Slot::ENTRY, Rights::WRITE);
        self.require(normal, entry.id, wanted, "rename this entry")?;
        self.require_above(normal, target.parent, Rights::DELETE)?;
        let mut record = Vec::new();
        self.read_record(entry.id, &mut record)?;
        let record = read(entry.id, &record)?;
        let old_rdn = Dn::parse(rdn_of(entry.id, &record)?).ok();
        let old_rdn = old_rdn.and_then(Dn::rdn).filter(|_| delete_old_rdn);
        let changes = [(Some(new_rdn), Rights::ADD), (old_rdn, Rights::DELETE)];
        for (rdn, rights) in changes {
            for ava in rdn.iter().flat_map(|rdn| rdn.avas()) {
                // The schema check refuses unknown types.
                let known = self.schema.attribute_type(ava.attribute().as_bytes());
                let Some(known) = known else { continue };
                let values = OctetStringsBuf::from_iter([ava.value()]);
                let asked = Asked {
                    view: &*self.txn,
                    schema: self.schema,
                    dn: normal,
                    id: entry.id,
                };
                let wanted = Wanted {
                    slot: requester.grants().slot(known.id()),
                    rights,
                    own: OwnValues::default(),
                    known,
                    values: Some(values.view()),
                };
                let missing = requester
                    .grants()
                    .missing(&asked, std::iter::once(wanted))?;
                if missing.is_some() {
                    let what = format!("change {} of this entry, which names it", known.name());
                    return Err(may_not(&what));
                }
            }
        }
        Ok(())
    }

    /// The slot that holds the rights on an attribute type.
    pub(super) fn slot(&self, known: &AttributeType) -> Slot {
        let limited = self.limited();
        limited.map_or(Slot::ENTRY, |who| who.grants().slot(known.id()))
    }

    /// Refuses a requester who may not make these changes of an entry. Each names a type and the rights that it needs,
    /// and the values that it adds, deletes, or puts in the place of all others.
    pub(super) fn require_changes<'k>(
        &self,
        target: &Target,
        changes: impl Iterator<Item = (&'k AttributeType, Rights, Option<OctetStrings<'k>>)> + Clone,
    ) -> Result<(), Stop> {
        let Some(requester) = self.limited() else {
            return Ok(());
        };
        let grants = requester.grants();
        let asked = Asked {
            view: &*self.txn,
            schema: self.schema,
            dn: &target.normal,
            id: target.entry.id,
        };
        let own = match grants.asks_for_own_values() {
            true => Some(self.names_of(requester)?),
            false => None,
        };
        let wanted = changes.clone().map(|(known, rights, values)| {
            let own = own.as_ref().zip(values.filter(|_| rights != Rights::WRITE));
            let own = own.map_or_else(OwnValues::default, |(own, values)| {
                own_values(self.schema, known, values, own)
            });
            Wanted {
                slot: grants.slot(known.id()),
                rights,
                own,
                known,
                values,
            }
        });
        let missing = grants.missing(&asked, wanted)?;
        match missing.and_then(|at| changes.clone().nth(at)) {
            Some((known, ..)) => Err(may_not(&format!("change {} of this entry", known.name()))),
            None => Ok(()),
        }
    }
}

impl<T: Write> Run<'_, T> {
    /// The current DNs of the identity that an update is done for, and of the identity that has authenticated.
    fn names_of(&self, requester: &Requester) -> Result<[Option<NormalDn>; 2], Stop> {
        let name = |identity: &Identity| -> Result<Option<NormalDn>, Stop> {
            let mut dn = NormalDn::new();
            match identity {
                Identity::Anonymous => Ok(None),
                Identity::User { entry, .. } => {
                    let dn = names::normal_dn_of(self.txn, self.schema, *entry)?;
                    Ok(Some(dn))
                }
                Identity::External { dn: text }
                | Identity::Replica { dn: text }
                | Identity::Admin { dn: text } => {
                    let named = dn.parse(self.schema, text.as_bytes());
                    Ok(named.is_ok().then_some(dn))
                }
            }
        };
        Ok([name(requester.identity())?, name(requester.real())?])
    }

    /// Whether the requester administers the password of an entry, or may set that of a new one. Password policies
    /// restrict administrators less.
    pub(super) fn manages_password(&self, id: EntryId, is_there: bool) -> Result<bool, Stop> {
        let Some(requester) = self.limited() else {
            return Ok(true);
        };
        if !is_there {
            return Ok(false);
        }
        let grants = requester.grants();
        let slot = grants.slot(self.schema.well_known().user_password);
        let asked = Asked {
            view: &*self.txn,
            schema: self.schema,
            dn: &names::normal_dn_of(self.txn, self.schema, id)?,
            id,
        };
        Ok(grants.rights(&asked, slot)?.has(Rights::MANAGE))
    }
}

/// Whether the one value of a change is the DN of the identity that it is done for, or of the one that has
/// authenticated. A change of several values is of neither.
fn own_values(
    schema: &Schema,
    known: &AttributeType,
    values: OctetStrings<'_>,
    [effective, real]: &[Option<NormalDn>; 2],
) -> OwnValues {
    let mut values = values.iter();
    let mut dn = NormalDn::new();
    let is_name = match (values.next(), values.next()) {
        (Some(value), None) => {
            known.syntax().is_some_and(Syntax::is_name) && dn.parse(schema, value).is_ok()
        }
        _ => false,
    };
    let is = |other: &Option<NormalDn>| is_name && other.as_ref() == Some(&dn);
    OwnValues {
        effective: is(effective),
        real: is(real),
    }
}

/// The outcome when the rights are missing.
fn may_not(what: &str) -> Stop {
    let diagnostic = format!("the access rules do not let you {what}");
    Stop::refuse(ResultCode::InsufficientAccessRights, diagnostic)
}
