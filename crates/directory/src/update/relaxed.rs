//! What an update may do besides with the controls relax rules (draft-zeilenga-ldap-relax) and ignore
//! no-user-modification: change the structural class of an entry, and set who made or changed it and when. An add may
//! say its entryUUID, too. Who asks for it needs the right `manage` on the entry.
//!
//! The directory goes on keeping entryCSN and structuralObjectClass itself (§3.6): consumers of changes and the check
//! of classes depend on them. An entry also keeps its entryUUID, because consumers know it by that.

use std::borrow::Cow;

use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::list::{Change, ChangeKind as Modification, OctetStrings};
use sapwood_ldap::result::ResultCode;

use super::Run;
use super::add::described;
use super::draft::Draft;
use super::replicated::entry_of_uuid;
use crate::access::{Rights, Slot};
use crate::engine::{EntryId, Write};
use crate::operational::StoredValues;
use crate::outcome::Stop;
use crate::schema::{AttributeType, NormalDn, OperationalAttribute, Schema};
use crate::stamp::{Stamp, generalized_time, seconds_of, uuid_of};

/// What of the rules is relaxed for an update, and what the update sets because of that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relaxed<'r> {
    /// By relax rules.
    of_rules: bool,
    /// By ignore no-user-modification: what cannot be set is left out.
    leaves_out: bool,
    uuid: Option<[u8; 16]>,
    creator: Option<&'r str>,
    created: Option<&'r str>,
    modifier: Option<&'r str>,
    modified: Option<&'r str>,
}

impl<'r> Relaxed<'r> {
    /// Nothing.
    pub(super) const NOT: Relaxed<'static> = Relaxed {
        of_rules: false,
        leaves_out: false,
        uuid: None,
        creator: None,
        created: None,
        modifier: None,
        modified: None,
    };

    /// What the controls of an update ask for.
    pub(super) fn of(controls: &RequestControls<'_>) -> Relaxed<'r> {
        Relaxed {
            of_rules: controls.relax_rules.is_some(),
            leaves_out: controls.ignore_no_user_modification.is_some(),
            ..Relaxed::NOT
        }
    }

    /// Whether anything is relaxed.
    pub(super) fn is_any(&self) -> bool {
        self.of_rules || self.leaves_out
    }

    /// Whether the structural class may change.
    pub(super) fn is_of_rules(&self) -> bool {
        self.of_rules
    }

    /// The entryUUID of an added entry.
    pub(super) fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// modifiersName.
    pub(super) fn modifier(&self) -> Option<&'r str> {
        self.modifier
    }

    /// Takes an attribute that only the directory sets otherwise, or leaves it out.
    pub(super) fn take(
        &mut self,
        schema: &Schema,
        (known, options): (&AttributeType, &str),
        values: OctetStrings<'r>,
    ) -> Result<(), Stop> {
        if !self.is_any() {
            return refuse_no_user_modification(known);
        }
        let is = |attribute| schema.operational(attribute) == known.id() && options.is_empty();
        let is_uuid = is(OperationalAttribute::EntryUuid);
        let slot = if is(OperationalAttribute::CreatorsName) {
            Some(&mut self.creator)
        } else if is(OperationalAttribute::CreateTimestamp) {
            Some(&mut self.created)
        } else if is(OperationalAttribute::ModifiersName) {
            Some(&mut self.modifier)
        } else if is(OperationalAttribute::ModifyTimestamp) {
            Some(&mut self.modified)
        } else {
            None
        };
        if slot.is_none() && !is_uuid {
            return match self.leaves_out && !self.of_rules {
                true => Ok(()),
                false => refuse_no_user_modification(known),
            };
        }
        let value = only_value(schema, known, values)?;
        let is_given = match slot {
            Some(slot) => slot.replace(value).is_some(),
            None => {
                let uuid = uuid_of(value).ok_or_else(|| malformed(known, "it is no UUID"))?;
                self.uuid.replace(uuid).is_some()
            }
        };
        match is_given {
            true => {
                let diagnostic = format!("{}: the attribute is given twice", known.name());
                Err(Stop::refuse(ResultCode::AttributeOrValueExists, diagnostic))
            }
            false => Ok(()),
        }
    }

    /// Takes a modification if it is of such an attribute; whether it is.
    pub(super) fn take_change(
        &mut self,
        schema: &Schema,
        change: &Change<'r>,
    ) -> Result<bool, Stop> {
        let described = described(schema, change.attribute.description);
        let Some((known, options)) = described.ok().filter(|it| it.0.is_no_user_modification())
        else {
            return Ok(false);
        };
        if schema.operational(OperationalAttribute::EntryUuid) == known.id() {
            let diagnostic = "entryUUID: an entry keeps it, because others know the entry by it";
            return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
        }
        if change.kind != Modification::Replace {
            let diagnostic = format!("{}: it can only be replaced, by one value", known.name());
            return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
        }
        self.take(schema, (known, &options), change.attribute.values)?;
        Ok(true)
    }

    /// Puts what is set in the place of what the directory would set.
    pub(super) fn change(&self, values: &mut StoredValues<'r>) {
        let own = [
            (&mut values.creator, self.creator),
            (&mut values.created, self.created),
            (&mut values.modifier, self.modifier),
            (&mut values.modified, self.modified),
        ];
        for (value, set) in own {
            if let Some(set) = set {
                *value = set.as_bytes();
            }
        }
    }

    /// The same in the draft of an entry that is changed; modifyTimestamp comes by its stamp.
    pub(super) fn change_draft(
        &self,
        draft: &mut Draft<'r>,
        schema: &Schema,
        stamp: &mut Stamp,
    ) -> Result<(), Stop> {
        if !self.is_any() {
            return Ok(());
        }
        let created = OperationalAttribute::CreateTimestamp;
        let own = [
            (OperationalAttribute::CreatorsName, self.creator),
            (created, self.created),
        ];
        for (attribute, value) in own {
            if let Some(value) = value {
                let known = schema.type_of(schema.operational(attribute));
                draft.replace(schema, known, "", vec![Cow::Borrowed(value.as_bytes())]);
            }
        }
        let created = draft.values(schema.operational(created));
        let created = created.first().copied().unwrap_or_default();
        let modified = self.modified.unwrap_or(&stamp.time);
        self.require_order(created, modified.as_bytes(), stamp)?;
        stamp.time = modified.to_owned();
        Ok(())
    }

    /// Refuses times that cannot be (§3.2.2, §3.2.3): an entry is created before it is changed, and not in the future.
    pub(super) fn require_order(
        &self,
        created: &[u8],
        modified: &[u8],
        now: &Stamp,
    ) -> Result<(), Stop> {
        if self.created.is_none() && self.modified.is_none() {
            return Ok(());
        }
        // In one form and of one length, earlier is less.
        let diagnostic = if modified > now.time.as_bytes() {
            "modifyTimestamp: it is in the future"
        } else if created > modified {
            "createTimestamp: it is in the future, or behind modifyTimestamp: set both"
        } else {
            return Ok(());
        };
        Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic))
    }
}

/// Refuses to have an attribute set that only the directory sets.
pub(super) fn refuse_no_user_modification(known: &AttributeType) -> Result<(), Stop> {
    if known.is_no_user_modification() {
        let diagnostic = format!(
            "{}: only the directory itself sets this attribute",
            known.name()
        );
        return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
    }
    Ok(())
}

fn malformed(known: &AttributeType, why: &str) -> Stop {
    let diagnostic = format!("{}: {why}", known.name());
    Stop::refuse(ResultCode::InvalidAttributeSyntax, diagnostic)
}

/// The one value of an attribute. Times are taken in the form that the directory writes, to the second and in UTC.
fn only_value<'r>(
    schema: &Schema,
    known: &AttributeType,
    values: OctetStrings<'r>,
) -> Result<&'r str, Stop> {
    let mut values = values.iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let diagnostic = format!("{}: it has one value", known.name());
        return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
    };
    if let Some(syntax) = known.syntax() {
        syntax
            .validate(schema, value)
            .map_err(|error| malformed(known, &format!("the value is {error}")))?;
    }
    let text = std::str::from_utf8(value).map_err(|_| malformed(known, "it is not UTF-8"))?;
    let is_time = [
        OperationalAttribute::CreateTimestamp,
        OperationalAttribute::ModifyTimestamp,
    ]
    .into_iter()
    .any(|time| schema.operational(time) == known.id());
    let is_usual = || {
        let seconds = seconds_of(text)?;
        let micros = seconds.checked_mul(1_000_000)?;
        Some(generalized_time(micros) == text)
    };
    match is_time && is_usual() != Some(true) {
        true => Err(malformed(known, "write the time as YYYYmmddHHMMSSZ")),
        false => Ok(text),
    }
}

impl<T: Write> Run<'_, T> {
    /// Refuses who may manage no entry at all.
    pub(super) fn require_relaxing_somewhere(&self, relaxed: &Relaxed<'_>) -> Result<(), Stop> {
        match relaxed.is_any() {
            true => self.require_somewhere(Slot::ENTRY, Rights::MANAGE),
            false => Ok(()),
        }
    }

    /// Refuses who may not manage an entry, which is there, with its content.
    pub(super) fn require_relaxing(
        &mut self,
        relaxed: &Relaxed<'_>,
        dn: &NormalDn,
        id: EntryId,
    ) -> Result<(), Stop> {
        match relaxed.is_any() {
            true => self.require_as_it_is(dn, id, Rights::MANAGE, "relax rules for this entry"),
            false => Ok(()),
        }
    }

    /// The entry that has the entryUUID of one that is being added.
    pub(super) fn with_uuid(&mut self, relaxed: &Relaxed<'_>) -> Result<Option<EntryId>, Stop> {
        let Some(uuid) = relaxed.uuid() else {
            return Ok(None);
        };
        let index = self.uuid_index()?;
        Ok(entry_of_uuid(self.txn, self.schema, index, uuid)?)
    }
}
