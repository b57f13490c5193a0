//! Add (RFC 4511 §4.7).

use std::borrow::Cow;

use sapwood_ldap::attribute::AttributeDescription;
use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::message::AddRequest;
use sapwood_ldap::result::ResultCode;

use super::draft::{Draft, Frame};
use super::relaxed::Relaxed;
use super::rules::Touched;
use super::{Run, no_update_of};
use crate::access::{Rights, Slot};
use crate::attributes::AttributeTable;
use crate::changes::ChangeKind;
use crate::engine::{EntryId, Write};
use crate::entry::EntryFlags;
use crate::names::Child;
use crate::operational::StoredValues;
use crate::outcome::{Outcome, Stop};
use crate::schema::{AttributeType, ObjectClassId, OperationalAttribute, Purpose, Schema};
use crate::stamp::{Stamp, uuid_text};
use crate::synthetic::SyntheticContext;
use crate::target;

/// Room for the attributes of most entries, operational ones included.
const USUAL_ATTRIBUTES: usize = 16;

impl<T: Write> Run<'_, T> {
    pub(super) fn add(
        &mut self,
        request: &AddRequest<'_>,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        let schema = self.schema;
        let normal = target::parse(schema, request.dn)?;
        if let Some(context) = self.synthetic_context(&normal) {
            // A suffix has one RDN at most.
            if normal.len() <= 1 {
                let diagnostic = format!("{} is there already", context.what());
                return Err(Stop::refuse(ResultCode::EntryAlreadyExists, diagnostic));
            }
            return match context {
                SyntheticContext::Config => self.configure_more(&normal, request, controls),
                context => Err(no_update_of(context, "added to")),
            };
        }
        self.require_somewhere(Slot::CHILDREN, Rights::ADD)?;
        self.require_somewhere(Slot::ENTRY, Rights::ADD)?;
        let mut relaxed = Relaxed::of(controls);
        self.require_relaxing_somewhere(&relaxed)?;
        let mut draft = Draft::with_room(USUAL_ATTRIBUTES);
        for attribute in request.attributes {
            let (known, options) = described(schema, attribute.description)?;
            if known.is_no_user_modification() {
                relaxed.take(schema, (known, &options), attribute.values)?;
                continue;
            }
            if draft.has(known.id(), &options) {
                let diagnostic = format!("{}: the attribute is given twice", known.name());
                return Err(Stop::refuse(ResultCode::AttributeOrValueExists, diagnostic));
            }
            let values = attribute.values.iter().map(Cow::Borrowed).collect();
            draft.add(schema, known, &options, values)?;
        }
        self.require_place(request.dn, &normal)?;
        let place = normal.clone();
        let vacancy = target::find_vacancy(self.txn, schema, self.state, request.dn, normal)?;
        let name = parsed(request.dn)?;
        if let Some(rdn) = name.rdn() {
            draft.add_rdn_values(schema, rdn)?;
        }
        draft.add_implied_classes(schema)?;
        let touched = Touched {
            password: draft.has(schema.well_known().user_password, ""),
            operational: false,
        };
        let new = (EntryId::ROOT, vacancy.parent_id());
        self.ask_rules(&mut draft, touched, new, None)?;
        let class = draft.check(schema)?.ok_or_else(no_class)?;
        if let Some(rdn) = name.rdn() {
            draft.check_rdn(schema, rdn, ResultCode::NamingViolation)?;
            schema.check_name_form(class, rdn)?;
        }
        if let Some(hasher) = &self.options.passwords {
            draft.check_passwords(schema, &**hasher)?;
        }
        let flags = flags_of(schema, class);
        let drawn = self.draw();
        let stamp = Stamp::from(drawn.csn);
        let uuid = uuid_text(relaxed.uuid().unwrap_or_else(|| self.options.uuids.uuid()));
        let class = schema.class_of(class).name();
        let who = self.modifier()?;
        let mut values = StoredValues::of_new(class, &uuid, &who, &stamp);
        relaxed.change(&mut values);
        relaxed.require_order(values.created, values.modified, &stamp)?;
        for attribute in OperationalAttribute::STORED {
            draft.stamp(schema, attribute, &values);
        }

        let rdn = target::rdn_as_written(request.dn, vacancy.parent.is_none());
        let parent = vacancy.parent_id();
        self.require_short(parent, &rdn, vacancy.normal.len())?;
        let frame = Frame {
            parent,
            flags,
            rdn: &rdn,
        };
        self.form(&draft, frame)?;
        let other = self.with_uuid(&relaxed)?;
        let id = self.new_id(&vacancy)?;
        self.txn.guard_child(parent)?;
        self.put_name(parent, vacancy.normal_rdn(), Child { id, flags })?;
        self.write_records(id, None)?;
        self.require_added(&place, id)?;
        self.require_relaxing(&relaxed, &place, id)?;
        if other.is_some() {
            let diagnostic = "entryUUID: another entry has it";
            return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
        }
        self.record_change(ChangeKind::Added, id, drawn, None);
        self.assert(id, controls)?;
        self.post_read(id, controls)
    }
}

/// The flags that follow from a structural class.
pub(crate) fn flags_of(schema: &Schema, class: ObjectClassId) -> EntryFlags {
    let (class, known) = (schema.class_of(class), schema.well_known());
    let mut flags = EntryFlags::default();
    if class.is_subclass_of(known.alias) {
        flags = flags.with(EntryFlags::ALIAS);
    }
    if class.is_subclass_of(known.referral) {
        flags = flags.with(EntryFlags::REFERRAL);
    }
    if class.is_subclass_of(known.subentry) {
        flags = flags.with(EntryFlags::SUBENTRY);
    }
    flags
}

/// The attribute type and the normalised options of a description in an update.
pub(crate) fn described<'s>(
    schema: &'s Schema,
    description: &[u8],
) -> Result<(&'s AttributeType, String), Stop> {
    let (known, parsed) = recognised(schema, description, Purpose::Store)?;
    Ok((known, options_of(&parsed)))
}

/// The same of a description that is not recognised, but was when values were stored under it: these can be deleted.
pub(super) fn described_before<'s>(
    schema: &'s Schema,
    attributes: &AttributeTable,
    description: &[u8],
) -> Option<(&'s AttributeType, String)> {
    let parsed = AttributeDescription::parse(std::str::from_utf8(description).ok()?).ok()?;
    let known = schema.attribute_type(parsed.attribute_type().as_bytes())?;
    let options = options_of(&parsed);
    attributes.number(known.id(), &options)?;
    Some((known, options))
}

/// A description in a request and its attribute type.
pub(crate) fn recognised<'s, 'd>(
    schema: &'s Schema,
    description: &'d [u8],
    purpose: Purpose,
) -> Result<(&'s AttributeType, AttributeDescription<'d>), Stop> {
    let refuse = |why: String| {
        let description = String::from_utf8_lossy(description);
        Stop::refuse(
            ResultCode::UndefinedAttributeType,
            format!("'{description}': {why}"),
        )
    };
    let text = std::str::from_utf8(description)
        .map_err(|_| refuse("the attribute description is not UTF-8".into()))?;
    let parsed = AttributeDescription::parse(text).map_err(|error| refuse(error.to_string()))?;
    let known = schema.defined_attribute_type(parsed.attribute_type())?;
    schema
        .check_options(known, &parsed, purpose)
        .map_err(|unrecognised| refuse(unrecognised.to_string()))?;
    Ok((known, parsed))
}

pub(super) fn options_of(description: &AttributeDescription<'_>) -> String {
    if description.has_options() {
        description.normalised_options()
    } else {
        String::new()
    }
}

pub(super) fn parsed(dn: &str) -> Result<Dn<'_>, Stop> {
    Dn::parse(dn).map_err(|error| {
        Stop::refuse(
            ResultCode::InvalidDnSyntax,
            format!("'{dn}' is not a DN: {error}"),
        )
    })
}

pub(crate) fn no_class() -> Stop {
    Outcome::new(
        ResultCode::ObjectClassViolation,
        "the entry has no structural object class: it needs one, such as person or organizationalUnit",
    )
    .into()
}
