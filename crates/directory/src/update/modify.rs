//! Modify (RFC 4511 §4.6), with increment (RFC 4525), and the password change of RFC 3062.

use std::borrow::Cow;

use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::{
    Attribute, Change, ChangeKind as Modification, OctetStrings, OctetStringsBuf,
};
use sapwood_ldap::message::ModifyRequest;
use sapwood_ldap::result::ResultCode;

use super::add::{described, described_before, flags_of};
use super::draft::{Draft, Frame};
use super::registers::RegisterChange;
use super::relaxed::{Relaxed, refuse_no_user_modification};
use super::rules::Touched;
use super::{Run, no_update_of, rdn_of, read};
use crate::access::{Rights, Slot};
use crate::attributes::AttributeTable;
use crate::changes::ChangeKind;
use crate::engine::{EntryId, Write};
use crate::entry::Entry;
use crate::names;
use crate::operational::{Brief, Operational};
use crate::outcome::Stop;
use crate::schema::{AttributeType, NormalDn, OperationalAttribute, Schema};
use crate::stamp::Stamp;
use crate::synthetic::SyntheticContext;
use crate::target;

/// The syntax whose values increment works on (RFC 4525 §2).
const INTEGER_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.27";

/// A modification with its attribute resolved.
pub(super) struct Resolved<'a> {
    pub(super) known: &'a AttributeType,
    pub(super) options: String,
    pub(super) kind: Modification,
    pub(super) values: OctetStrings<'a>,
    /// Permissive modify: what is there already, or not there to be deleted, is passed over.
    pub(super) is_permissive: bool,
}

impl Resolved<'_> {
    fn rights(&self) -> Rights {
        Rights::of_change(self.kind, !self.values.is_empty())
    }

    /// Whether it is about all values that the attribute has, wherever these came from.
    fn is_of_all(&self) -> bool {
        match self.kind {
            Modification::Replace => true,
            Modification::Delete => self.values.is_empty(),
            Modification::Add | Modification::Increment => false,
        }
    }
}

impl<T: Write> Run<'_, T> {
    pub(super) fn modify(
        &mut self,
        request: &ModifyRequest<'_>,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        let schema = self.schema;
        // What was prefetched is an entry that may be modified.
        let found = self.prefetched.found(request.dn);
        // The rules may hide it, or not let it be changed.
        let found = found.filter(|_| self.limited().is_none());
        let normal = match found {
            Some(_) => NormalDn::new(),
            None => {
                let normal = target::parse(schema, request.dn)?;
                match self.synthetic_context(&normal) {
                    None => normal,
                    Some(SyntheticContext::Config) => {
                        return self.configure(&normal, request, controls);
                    }
                    Some(SyntheticContext::Subschema) => {
                        return self.configure_subschema(request, controls);
                    }
                    Some(context) => return Err(no_update_of(context, "modified")),
                }
            }
        };
        let mut relaxed = Relaxed::of(controls);
        self.require_relaxing_somewhere(&relaxed)?;
        let mut changes = Vec::new();
        for change in request.changes {
            if relaxed.is_any() && relaxed.take_change(schema, &change)? {
                continue;
            }
            let resolved = resolve(schema, &self.state.attributes, change)?;
            changes.push(Resolved {
                is_permissive: controls.permissive_modify.is_some(),
                ..resolved
            });
        }
        for change in &changes {
            self.require_somewhere(self.slot(change.known), change.rights())?;
        }
        if changes.is_empty() {
            // It is still stamped.
            self.require_somewhere(Slot::ENTRY, Rights::WRITE)?;
        }
        let id = match found {
            Some(id) => id,
            None => {
                let manage_dsa_it = controls.manage_dsa_it.is_some();
                let target = self.find(request.dn, normal, manage_dsa_it)?;
                let wanted = changes.iter();
                let wanted = wanted.map(|change| {
                    // An increment names no value, and without values all are deleted.
                    let names_values =
                        change.kind != Modification::Increment && !change.values.is_empty();
                    let values = names_values.then_some(change.values);
                    (change.known, change.rights(), values)
                });
                self.require_changes(&target, wanted)?;
                if changes.is_empty() {
                    let wanted = (Slot::ENTRY, Rights::WRITE);
                    self.require(&target.normal, target.entry.id, wanted, "change this entry")?;
                }
                self.require_relaxing(&relaxed, &target.normal, target.entry.id)?;
                target.entry.id
            }
        };
        self.assert(id, controls)?;
        self.pre_read(id, controls)?;
        self.change_relaxed(id, &changes, &relaxed)?;
        self.post_read(id, controls)
    }

    pub(super) fn set_password(
        &mut self,
        (entry, dn): (Option<EntryId>, &str),
        (stored, verifiers): (&[u8], &[Vec<u8>]),
        replaces: Option<&[u8]>,
    ) -> Result<(), Stop> {
        let schema = self.schema;
        let now = match entry {
            Some(entry) => names::dn_if_there(self.txn, entry)?,
            None => None,
        };
        let dn = now.as_deref().unwrap_or(dn);
        let normal = self.named(dn, "modified")?;
        let known = schema.type_of(schema.well_known().user_password);
        self.require_somewhere(self.slot(known), Rights::WRITE)?;
        let target = self.find(dn, normal, false)?;
        let id = target.entry.id;
        if entry.is_some_and(|entry| entry != id) {
            let diagnostic = "the entry was deleted; another one has its name";
            return Err(Stop::refuse(ResultCode::NoSuchObject, diagnostic));
        }
        self.require_changes(&target, std::iter::once((known, Rights::WRITE, None)))?;
        if let Some(replaces) = replaces
            && !self.has_password(id, replaces)?
        {
            let diagnostic = "the old password is not the current one any more";
            return Err(Stop::refuse(ResultCode::InvalidCredentials, diagnostic));
        }
        let values = OctetStringsBuf::from_iter([stored]);
        let verifiers = OctetStringsBuf::from_iter(verifiers.iter().map(Vec::as_slice));
        let auth_password = schema.type_of(schema.well_known().auth_password);
        let replacing = |(description, values)| Change {
            kind: Modification::Replace,
            attribute: Attribute {
                description,
                values,
            },
        };
        let own = replacing((known.name().as_bytes(), values.view()));
        let derived = replacing((auth_password.name().as_bytes(), verifiers.view()));
        let changes = [own, derived].map(|change| resolve(schema, &self.state.attributes, change));
        let [own, derived] = changes;
        let changes = [own?, derived?];
        self.change(id, &changes)
    }

    /// Whether an entry has just this value of userPassword.
    fn has_password(&self, id: EntryId, stored: &[u8]) -> Result<bool, Stop> {
        let records = self.read_records(id)?;
        let draft = Draft::of(
            self.state,
            id,
            [read(id, &records[0])?, read(id, &records[1])?],
        )?;
        let values = draft.values(self.schema.well_known().user_password);
        Ok(values.contains(&stored))
    }

    /// Changes an entry's attributes, checks what came of it and writes it.
    pub(super) fn change(&mut self, id: EntryId, changes: &[Resolved<'_>]) -> Result<(), Stop> {
        self.change_relaxed(id, changes, &Relaxed::NOT)
    }

    /// The same, with what relaxed rules let it do.
    fn change_relaxed(
        &mut self,
        id: EntryId,
        changes: &[Resolved<'_>],
        relaxed: &Relaxed<'_>,
    ) -> Result<(), Stop> {
        let mut stored = std::mem::take(&mut self.records.old);
        let read = match self.prefetched.take_record(id, &mut stored) {
            true => Ok(()),
            false => self.read_record(id, &mut stored),
        };
        let done = read.and_then(|()| self.change_record(id, &stored, (changes, relaxed)));
        self.records.old = stored;
        done
    }

    fn change_record(
        &mut self,
        id: EntryId,
        stored: &[u8],
        (changes, relaxed): (&[Resolved<'_>], &Relaxed<'_>),
    ) -> Result<(), Stop> {
        let schema = self.schema;
        let user = read(id, stored)?;
        let drawn = self.draw_after(id, &user)?;
        let who = self.modifier()?;
        let touched = || touched(schema, changes);
        // A rule may add operational attributes.
        let adds_none = self.rules.is_none() || self.heeding(touched()).is_none();
        let is_usual = adds_none && !relaxed.is_any();
        let brief = is_usual.then(|| self.brief(&user, changes)).flatten();
        let brief = brief.and_then(|brief| brief.changed(drawn.csn, &who));
        let spelled;
        let old = match brief {
            Some(_) => [user, Entry::EMPTY],
            None => {
                spelled = self.spell(id, &user)?;
                [user, read(id, &spelled)?]
            }
        };
        let mut draft = Draft::of(self.state, id, old)?;
        for change in changes {
            if !(draft.has_large() && self.change_large(id, &mut draft, change)?) {
                make(&mut draft, schema, change)?;
            }
        }
        let known = schema.well_known();
        if changes
            .iter()
            .any(|change| change.known.id() == known.user_password)
        {
            forget_verifiers(&mut draft, schema, changes);
        }
        if changes
            .iter()
            .any(|change| change.known.id() == known.object_class)
        {
            keep_superclasses(schema, &draft, changes)?;
            draft.add_implied_classes(schema)?;
            let class = draft.structural_class(schema)?;
            let before = OperationalAttribute::StructuralObjectClass;
            let before = draft.values(schema.operational(before));
            let before = before.first().and_then(|name| schema.object_class(name));
            if let Some(before) = before.filter(|before| before.id() != class) {
                // Aliases, referrals and subentries are marked as such in the name table.
                if relaxed.is_of_rules() && user.flags() == flags_of(schema, class) {
                    let class = schema.class_of(class).name().as_bytes();
                    let structural = OperationalAttribute::StructuralObjectClass;
                    let structural = schema.type_of(schema.operational(structural));
                    draft.replace(schema, structural, "", vec![Cow::Borrowed(class)]);
                } else {
                    let (before, after) = (before.name(), schema.class_of(class).name());
                    let diagnostic = format!(
                        "the structural object class cannot change (from {before} to {after})"
                    );
                    return Err(Stop::refuse(
                        ResultCode::ObjectClassModsProhibited,
                        diagnostic,
                    ));
                }
            }
        }
        if !adds_none {
            self.ask_rules(&mut draft, touched(), (id, user.parent()), Some(old))?;
        }
        let rdn = rdn_of(id, &old[0])?;
        if draft.may_touch_rdn(schema, rdn)
            && let Ok(name) = Dn::parse(rdn)
        {
            for rdn in name
                .rdn()
                .into_iter()
                .filter(|rdn| draft.touches_rdn(schema, *rdn))
            {
                draft.check_rdn(schema, rdn, ResultCode::NotAllowedOnRdn)?;
            }
        }
        draft.check(schema)?;
        // What is there already may always be deleted.
        let is_new_password = |change: &Resolved<'_>| {
            change.kind != Modification::Delete && change.known.id() == known.user_password
        };
        if let Some(hasher) = &self.options.passwords
            && changes.iter().any(is_new_password)
        {
            draft.check_passwords(schema, &**hasher)?;
        }
        if self.keeps_values_apart() {
            let replaced = changes.iter().filter(|change| change.is_of_all());
            let replaced: Vec<_> = replaced
                .map(|change| (change.known.id(), change.options.as_str()))
                .collect();
            let change = RegisterChange {
                csn: drawn.csn,
                replaced: &replaced,
                is_moved: false,
            };
            self.note_registers(id, &user, &draft, change)?;
        }
        let (parent, flags) = (old[0].parent(), old[0].flags());
        let frame = Frame { parent, flags, rdn };
        if let Some(brief) = brief {
            self.form(&draft, frame)?;
            self.records.join_brief(&brief);
            self.write_stored(id, Some(old))?;
        } else {
            let mut stamp = Stamp::from(drawn.csn);
            relaxed.change_draft(&mut draft, schema, &mut stamp)?;
            let by = (relaxed.modifier().unwrap_or(&who), &stamp);
            self.rewrite(id, old, draft, by, frame)?;
        }
        self.record_change(ChangeKind::Modified, id, drawn, None);
        Ok(())
    }

    /// An entry's operational attributes in brief, if the changes and the indexes have to do only with others (or with
    /// none of them): then nobody has to spell them out.
    fn brief<'e>(&self, entry: &Entry<'e>, changes: &[Resolved<'_>]) -> Option<Brief<'e>> {
        let object_class = self.schema.well_known().object_class;
        let is_other = |change: &Resolved<'_>| {
            !change.known.is_operational() && change.known.id() != object_class
        };
        let is_indexed = |attribute| {
            let attribute = self.schema.operational(attribute);
            self.state.indexes.of(attribute).is_some()
        };
        let is_enough = changes.iter().all(is_other)
            && !OperationalAttribute::CHANGED.into_iter().any(is_indexed);
        match Operational::read(entry.operational()) {
            Ok(Operational::Brief(brief)) if is_enough => Some(brief),
            _ => None,
        }
    }
}

/// What changes touch, as far as rules ask.
fn touched(schema: &Schema, changes: &[Resolved<'_>]) -> Touched {
    let password = schema.well_known().user_password;
    let any = |is: &dyn Fn(&AttributeType) -> bool| changes.iter().any(|change| is(change.known));
    Touched {
        password: any(&|known| known.id() == password),
        operational: any(&|known| known.is_operational()),
    }
}

/// Takes away what authPassword keeps of passwords when one of them goes: it does not say of which one. Unless the
/// change says itself what is to be there.
fn forget_verifiers(draft: &mut Draft<'_>, schema: &Schema, changes: &[Resolved<'_>]) {
    let known = schema.well_known();
    let goes = changes
        .iter()
        .any(|change| change.kind != Modification::Add && change.known.id() == known.user_password);
    let gives = |change: &Resolved<'_>| change.known.id() == known.auth_password;
    if goes && !changes.iter().any(gives) {
        let auth_password = schema.type_of(known.auth_password);
        draft.replace(schema, auth_password, "", Vec::new());
    }
}

/// Superclasses of the classes that remain cannot be deleted (RFC 4512 §3.3).
fn keep_superclasses(
    schema: &Schema,
    draft: &Draft<'_>,
    changes: &[Resolved<'_>],
) -> Result<(), Stop> {
    let object_class = schema.well_known().object_class;
    let remaining = schema.classes_named(&draft.values(object_class))?;
    let missing = schema.implied_classes(&remaining);
    let deleted = changes
        .iter()
        .filter(|change| {
            matches!(change.kind, Modification::Delete) && change.known.id() == object_class
        })
        .flat_map(|change| change.values)
        .filter_map(|name| schema.object_class(name))
        .find(|class| missing.contains(&class.id()));
    match deleted {
        Some(class) => {
            let diagnostic = format!(
                "objectClass: {} is a superclass of a class that stays, and cannot be deleted alone",
                class.name()
            );
            Err(Stop::refuse(ResultCode::ObjectClassViolation, diagnostic))
        }
        None => Ok(()),
    }
}

fn resolve<'a>(
    schema: &'a Schema,
    attributes: &AttributeTable,
    change: Change<'a>,
) -> Result<Resolved<'a>, Stop> {
    let description = change.attribute.description;
    let (known, options) = described(schema, description).or_else(|stop| {
        (change.kind == Modification::Delete)
            .then(|| described_before(schema, attributes, description))
            .flatten()
            .ok_or(stop)
    })?;
    refuse_no_user_modification(known)?;
    let values = change.attribute.values;
    if let Some(syntax) = known.syntax() {
        for (number, value) in values.iter().enumerate() {
            syntax.validate(schema, value).map_err(|error| {
                let diagnostic = format!("{}: value #{number} is {error}", known.name());
                Stop::refuse(ResultCode::InvalidAttributeSyntax, diagnostic)
            })?;
        }
    }
    // A later modification may replace them, but no list of values has one twice (RFC 4511 §4.1.7).
    if !matches!(change.kind, Modification::Delete | Modification::Increment)
        && values.iter().nth(1).is_some()
        && let Some(number) = schema.duplicate(known, &values.iter().collect::<Vec<_>>())
    {
        let diagnostic = format!("{}: value #{number} is given twice", known.name());
        return Err(Stop::refuse(ResultCode::AttributeOrValueExists, diagnostic));
    }
    Ok(Resolved {
        known,
        options,
        kind: change.kind,
        values,
        is_permissive: false,
    })
}

/// What came of a change, unless it is this refusal.
fn unless(done: Result<(), Stop>, code: ResultCode) -> Result<(), Stop> {
    match done {
        Err(Stop::Refused(outcome)) if outcome.code == code => Ok(()),
        done => done,
    }
}

fn make<'d>(draft: &mut Draft<'d>, schema: &Schema, change: &Resolved<'d>) -> Result<(), Stop> {
    let Resolved {
        known,
        options,
        kind,
        values,
        is_permissive,
    } = change;
    let borrowed = || values.iter().map(Cow::Borrowed).collect();
    match kind {
        Modification::Add if *is_permissive => values.iter().try_for_each(|value| {
            let added = draft.add(schema, known, options, vec![Cow::Borrowed(value)]);
            unless(added, ResultCode::AttributeOrValueExists)
        }),
        Modification::Delete if *is_permissive && values.is_empty() => {
            let deleted = draft.delete(schema, known, options, &[]);
            unless(deleted, ResultCode::NoSuchAttribute)
        }
        Modification::Delete if *is_permissive => values.iter().try_for_each(|value| {
            let deleted = draft.delete(schema, known, options, &[value]);
            unless(deleted, ResultCode::NoSuchAttribute)
        }),
        Modification::Add => draft.add(schema, known, options, borrowed()),
        Modification::Delete => {
            draft.delete(schema, known, options, &values.iter().collect::<Vec<_>>())
        }
        Modification::Replace => {
            draft.replace(schema, known, options, borrowed());
            Ok(())
        }
        Modification::Increment => {
            let is_integer = known
                .syntax()
                .is_some_and(|syntax| syntax.oid() == INTEGER_SYNTAX);
            let mut given = values.iter();
            let by = match (given.next(), given.next()) {
                (Some(value), None) if is_integer => std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok()),
                (Some(_), None) => None,
                _ => {
                    let diagnostic =
                        format!("{}: an increment has exactly one value", known.name());
                    return Err(Stop::refuse(ResultCode::ProtocolError, diagnostic));
                }
            };
            let by = by.ok_or_else(|| {
                let diagnostic = format!(
                    "{}: only whole numbers can be incremented, by one",
                    known.name()
                );
                Stop::refuse(ResultCode::ConstraintViolation, diagnostic)
            })?;
            draft.increment(schema, known, options, by)
        }
    }
}
