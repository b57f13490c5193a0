//! Modify DN (RFC 4511 §4.9): a rename, a move, or both. Whatever is below goes along untouched, because it names its
//! parent by id.

use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::dn::{Dn, RDNS_MAX, Rdn};
use sapwood_ldap::message::ModifyDnRequest;
use sapwood_ldap::result::ResultCode;

use super::draft::{Draft, Frame};
use super::registers::RegisterChange;
use super::relaxed::Relaxed;
use super::rules::Touched;
use super::{Run, rdn_of, read};
use crate::access::{Rights, Slot};
use crate::changes::{ChangeKind, Former};
use crate::engine::{Cursor as _, Direction, Range, Table, Write};
use crate::error::Error;
use crate::names::{self, Child, DnCache};
use crate::outcome::{Outcome, Stop};
use crate::schema::NormalDn;
use crate::stamp::Stamp;
use crate::target::{self, Target};

/// Most entries below one that is moved that are looked at.
const LOOKED_AT_MAX: usize = 4096;

impl<T: Write> Run<'_, T> {
    pub(super) fn rename(
        &mut self,
        request: &ModifyDnRequest<'_>,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        let schema = self.schema;
        let normal = self.named(request.dn, "renamed")?;
        let new_rdn = Rdn::parse(request.new_rdn).map_err(|error| {
            let diagnostic = format!("'{}' is not an RDN: {error}", request.new_rdn);
            Stop::refuse(ResultCode::InvalidDnSyntax, diagnostic)
        })?;
        let normal_rdn = target::parse(schema, request.new_rdn)?;
        let new_superior = request
            .new_superior
            .map(|dn| Ok::<_, Stop>((dn, target::parse(schema, dn)?)))
            .transpose()?;
        self.require_somewhere(Slot::ENTRY, Rights::WRITE)?;
        let relaxed = Relaxed::of(controls);
        self.require_relaxing_somewhere(&relaxed)?;
        let target = self.find(request.dn, normal, controls.manage_dsa_it.is_some())?;
        let id = target.entry.id;
        self.require_relaxing(&relaxed, &target.normal, id)?;
        self.require_renaming(&target, new_rdn, request.delete_old_rdn)?;
        self.assert(id, controls)?;
        if target.is_context() {
            let diagnostic = "a naming context's own entry cannot be renamed";
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        let (parent, rdns) = match new_superior {
            Some((dn, normal)) => {
                self.txn.guard_move()?;
                let superior = self.new_parent(&target, dn, normal)?;
                (superior.entry.id, superior.normal.len() + 1)
            }
            None => {
                self.require_above(&target.normal, target.parent, Rights::ADD)?;
                (target.parent, target.normal.len())
            }
        };
        self.require_short(parent, new_rdn.as_str(), rdns)?;
        let new_key = normal_rdn.bytes();
        names::name_key(parent, new_key, self.key);
        self.txn.guard(Table::Name, self.key)?;
        if let Some(there) = names::child(self.txn, parent, new_key, self.key)?
            && there.id != id
        {
            let diagnostic = "there is an entry with the new DN already";
            return Err(Stop::refuse(ResultCode::EntryAlreadyExists, diagnostic));
        }
        self.pre_read(id, controls)?;
        self.move_entry(&target, parent, new_rdn, new_key, request.delete_old_rdn)?;
        self.post_read(id, controls)
    }

    /// The new superior, after the checks that concern it.
    fn new_parent(&mut self, target: &Target, dn: &str, normal: NormalDn) -> Result<Target, Stop> {
        let wanted = (Slot::CHILDREN, Rights::ADD);
        let superior = self.find(dn, normal, false).map_err(|stop| match stop {
            Stop::Refused(outcome) if outcome.code == ResultCode::NoSuchObject => Outcome {
                diagnostic: format!("newSuperior: {}", outcome.diagnostic),
                ..*outcome
            }
            .into(),
            // Outside of the naming contexts: another server's.
            Stop::Refused(outcome) if outcome.code == ResultCode::UnwillingToPerform => Outcome {
                code: ResultCode::AffectsMultipleDsas,
                ..*outcome
            }
            .into(),
            other => other,
        })?;
        let what = "move entries below the new superior";
        self.require(&superior.normal, superior.entry.id, wanted, what)?;
        if superior.context != target.context {
            let diagnostic = "an entry cannot be moved to another naming context";
            return Err(Stop::refuse(ResultCode::AffectsMultipleDsas, diagnostic));
        }
        if superior.entry.flags.is_alias() {
            let diagnostic = "newSuperior is an alias; aliases have no children";
            return Err(Stop::refuse(ResultCode::AliasProblem, diagnostic));
        }
        if superior.entry.flags.is_subentry() {
            let diagnostic = "newSuperior is a subentry; subentries have no children (RFC 3672 §1)";
            return Err(Stop::refuse(ResultCode::ObjectClassViolation, diagnostic));
        }
        if superior.normal.is_at_or_below(&target.normal) {
            let diagnostic = "an entry cannot be moved below itself";
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        self.require_depth(target, superior.normal.len() + 1)?;
        Ok(superior)
    }

    /// Refuses to move entries so deep that they could not be named. Of a large subtree no more is looked at than soon
    /// can be: what has [too long a name](Error::NameTooLong) afterwards is not found until it is moved again.
    fn require_depth(&self, target: &Target, rdns: usize) -> Result<(), Stop> {
        let mut rdns = rdns;
        let is_deeper = rdns > target.normal.len();
        let (mut level, mut looked_at) = (vec![target.entry.id], 0);
        while is_deeper && !level.is_empty() {
            if rdns > RDNS_MAX {
                let diagnostic = format!(
                    "there, an entry below this one would have a name of more than {RDNS_MAX} parts"
                );
                return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
            }
            let mut next = Vec::new();
            for parent in level {
                let (from, to) = parent.children_bounds();
                let range = Range::between(&from, &to);
                let mut children = self.txn.scan(Table::Name, range, Direction::Forward)?;
                while let Some((_, child)) = children.next()? {
                    next.push(Child::from_value(child)?.id);
                    looked_at += 1;
                    if looked_at == LOOKED_AT_MAX {
                        return Ok(());
                    }
                }
            }
            level = next;
            rdns += 1;
        }
        Ok(())
    }

    fn move_entry(
        &mut self,
        target: &Target,
        parent: crate::engine::EntryId,
        new_rdn: Rdn<'_>,
        new_key: &[u8],
        delete_old_rdn: bool,
    ) -> Result<(), Stop> {
        let schema = self.schema;
        let Child { id, flags } = target.entry;
        let stored = self.read_records(id)?;
        let old = [read(id, &stored[0])?, read(id, &stored[1])?];
        let old_name = Dn::parse(rdn_of(id, &old[0])?).map_err(|error| {
            Error::corrupt(format!("entry {id} has an RDN that is none: {error}"))
        })?;
        let drawn = self.draw_after(id, &old[0])?;
        let stamp = Stamp::from(drawn.csn);
        let who = self.modifier()?;
        let (uuid, dn) = self.former(id, target.parent, &old[0])?;
        let mut draft = Draft::of(self.state, id, old)?;
        self.read_large_of_name(id, &mut draft, new_rdn)?;
        if delete_old_rdn {
            for ava in old_name.rdn().iter().flat_map(|rdn| rdn.avas()) {
                if let Some(known) = schema.attribute_type(ava.attribute().as_bytes()) {
                    draft.delete_if_there(schema, known, &ava.value());
                }
            }
        }
        draft.add_rdn_values(schema, new_rdn)?;
        self.ask_rules(&mut draft, Touched::default(), (id, parent), Some(old))?;
        draft.check(schema)?;
        draft.check_rdn(schema, new_rdn, ResultCode::NamingViolation)?;
        schema.check_name_form(draft.structural_class(schema)?, new_rdn)?;
        if self.keeps_values_apart() {
            let change = RegisterChange {
                csn: drawn.csn,
                replaced: &[],
                is_moved: true,
            };
            self.note_registers(id, &old[0], &draft, change)?;
        }
        let frame = Frame {
            parent,
            flags,
            rdn: new_rdn.as_str(),
        };
        self.txn.guard_child(parent)?;
        self.delete_name(target.parent, target.normal_rdn())?;
        self.put_name(parent, new_key, Child { id, flags })?;
        // What is below it has other names now.
        *self.names = DnCache::default();
        self.rewrite(id, old, draft, (&who, &stamp), frame)?;
        let former = Former { uuid, dn: &dn };
        self.record_change(ChangeKind::Renamed, id, drawn, Some(former));
        Ok(())
    }
}
