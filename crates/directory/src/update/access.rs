//! What an update takes: the rights are those of the batch's own state, and are asked for here
//! (slapd.access(5), "Operation requirements").
//!
//! | update | on the entry | on what is directly below its superior |
//! | --- | --- | --- |
//! | add | add | add |
//! | delete | delete | delete |
//! | modify | of each attribute: add, delete, or both where values are replaced | |
//! | modify DN | write; on the names' attributes: add, and delete if the old one goes | delete; add at the new one |
//! | password | write on userPassword | |
//!
//! Who has a right on no entry at all is refused before any is looked for. Of an entry that may not be disclosed it is
//! said that it is not there.

use sapwood_ldap::dn::{Dn, Rdn};
use sapwood_ldap::list::OctetStrings;
use sapwood_ldap::result::ResultCode;

use super::rules::Origin;
use super::{Run, rdn_of, read};
use crate::access::{
    ACTING_WORK_MAX, Asked, Everywhere, Identity, NOT_AUTHORIZED, OwnValues, Requester, Rights,
    Slot,
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

    /// Who asks, if access rules limit what they may do. What a rule for updates does is not limited, no matter
    /// whose update it answers.
    pub(super) fn limited(&self) -> Option<&'r Requester> {
        let is_limited = self.origin == Origin::Client && !self.requester.grants().is_unlimited();
        is_limited.then_some(self.requester)
    }

    /// Refuses a user whose entry was deleted meanwhile, perhaps by an update of this batch: nobody has such rights.
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

    /// Refuses who acts for somebody and may not, or may not any more. In a transaction that is decided once, by what
    /// was there before it: it takes place at one moment.
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

    /// Refuses who has these rights on no entry at all, without a look, so that the refusal tells nothing of what is
    /// there.
    pub(super) fn require_somewhere(&self, slot: Slot, rights: Rights) -> Result<(), Stop> {
        let grants = self.limited().map(Requester::grants);
        match grants.map(|grants| grants.everywhere(slot, rights)) {
            Some(Everywhere::Never) => Err(may_not("change entries")),
            _ => Ok(()),
        }
    }

    /// Refuses who has not these rights on an entry that they may know of.
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

    /// The same of what is directly below the entry above a DN, which is an entry's or may become one's.
    pub(super) fn require_above(
        &self,
        dn: &NormalDn,
        parent: EntryId,
        rights: Rights,
    ) -> Result<(), Stop> {
        // No rule is about what is above a naming context.
        if parent.is_root() && self.limited().is_some() {
            return Err(may_not("add or delete the entry of a naming context"));
        }
        let mut above = dn.clone();
        above.truncate(dn.len().saturating_sub(1));
        let what = "change what is directly below this entry's superior";
        self.require(&above, parent, (Slot::CHILDREN, rights), what)
    }

    /// Refuses who may not add an entry with this DN. Whether it is there already is told only to others.
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
            // It has none yet: see `require_added`.
            return Ok(());
        }
        // It has no id yet, and so is nobody's own.
        let wanted = (Slot::ENTRY, Rights::ADD);
        self.require(normal, EntryId::ROOT, wanted, "add this entry")
    }

    /// Whether what somebody may do depends on more than the names of entries.
    fn asks_for_content(&self) -> bool {
        self.limited()
            .is_some_and(|who| who.grants().asks_for_content())
    }

    /// Refuses who may not add an entry with the content that it has got.
    pub(super) fn require_added(&mut self, normal: &NormalDn, id: EntryId) -> Result<(), Stop> {
        let Some(who) = self.limited().filter(|_| self.asks_for_content()) else {
            return Ok(());
        };
        // Attributes may have got their numbers with it.
        let state = self.shared.of(self.state);
        let renewed = who.renewed_by(self.schema, (&*self.txn, &state))?;
        let asked = Asked {
            view: &*self.txn,
            schema: self.schema,
            dn: normal,
            id,
        };
        match renewed
            .grants()
            .rights(&asked, Slot::ENTRY)?
            .has(Rights::ADD)
        {
            true => Ok(()),
            false => Err(may_not("add this entry")),
        }
    }

    /// Refuses who may not take an entry away from its place, or not change the attributes of its name.
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
                // What the schema does not know is refused as that.
                let known = self.schema.attribute_type(ava.attribute().as_bytes());
                let Some(known) = known else { continue };
                let slot = requester.grants().slot(known.id());
                let what = format!("change {} of this entry, which names it", known.name());
                self.require(normal, entry.id, (slot, rights), &what)?;
            }
        }
        Ok(())
    }

    /// What rights on a type are given on.
    pub(super) fn slot(&self, known: &AttributeType) -> Slot {
        let limited = self.limited();
        limited.map_or(Slot::ENTRY, |who| who.grants().slot(known.id()))
    }

    /// Refuses who may not change types of an entry so; with the values that are added or deleted, where these are all
    /// that is changed.
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
            let own = own.as_ref().zip(values);
            let own = own.map_or_else(OwnValues::default, |(own, values)| {
                own_values(self.schema, known, values, own)
            });
            (grants.slot(known.id()), rights, own)
        });
        let missing = grants.missing(&asked, wanted)?;
        match missing.and_then(|at| changes.clone().nth(at)) {
            Some((known, ..)) => Err(may_not(&format!("change {} of this entry", known.name()))),
            None => Ok(()),
        }
    }
}

impl<T: Write> Run<'_, T> {
    /// The DNs, as they are now, of for whom an update is done, and of who has authenticated.
    fn names_of(&self, requester: &Requester) -> Result<[Option<NormalDn>; 2], Stop> {
        let name = |identity: &Identity| -> Result<Option<NormalDn>, Stop> {
            let mut dn = NormalDn::new();
            match identity {
                Identity::Anonymous => Ok(None),
                Identity::User { entry, .. } => {
                    let dn = names::normal_dn_of(self.txn, self.schema, *entry)?;
                    Ok(Some(dn))
                }
                Identity::External { dn: text } | Identity::Admin { dn: text } => {
                    let named = dn.parse(self.schema, text.as_bytes());
                    Ok(named.is_ok().then_some(dn))
                }
            }
        };
        Ok([name(requester.identity())?, name(requester.real())?])
    }

    /// Whether who asks is an administrator of the passwords of an entry, or of new ones: policies leave more to them.
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

/// Whom the only value that a change is about names, of these: for whom it is done, and who has authenticated.
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

/// The outcome for who lacks the rights to do something.
fn may_not(what: &str) -> Stop {
    let diagnostic = format!("the access rules do not let you {what}");
    Stop::refuse(ResultCode::InsufficientAccessRights, diagnostic)
}
