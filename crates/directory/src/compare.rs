//! Compare (RFC 4511 §4.10).

use sapwood_ldap::filter::Filter;
use sapwood_ldap::result::ResultCode;

use crate::access::{Identity, is_protected};
use crate::directory::Snapshot;
use crate::engine::{Engine, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::operational::{self, Vocabulary};
use crate::outcome::{Outcome, Stop};
use crate::schema::{AttributeType, Schema};
use crate::search::look::{Look, assertion_failed};
use crate::target::{self, SUBSCHEMA_DN, Target};
use crate::update::described;

/// What a compare is asked besides its request.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompareOptions<'a> {
    /// ManageDsaIT (RFC 3296): referral objects are plain entries.
    pub manage_dsa_it: bool,
    /// Assertion (RFC 4528): what must be true of the entry.
    pub assertion: Option<Filter<'a>>,
}

impl<E: Engine> Snapshot<E> {
    /// Compare (RFC 4511 §4.10): compareTrue, compareFalse, or why neither.
    pub fn compare(
        &self,
        identity: &Identity,
        dn: &str,
        attribute: &[u8],
        value: &[u8],
        options: CompareOptions<'_>,
    ) -> Result<Outcome> {
        match self.compared(identity, dn, attribute, value, options) {
            Ok(true) => Ok(Outcome::new(ResultCode::CompareTrue, "")),
            Ok(false) => Ok(Outcome::new(ResultCode::CompareFalse, "")),
            Err(Stop::Refused(outcome)) => Ok(*outcome),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn compared(
        &self,
        identity: &Identity,
        dn: &str,
        attribute: &[u8],
        value: &[u8],
        options: CompareOptions<'_>,
    ) -> std::result::Result<bool, Stop> {
        let schema = self.schema();
        let normal = target::parse(schema, dn)?;
        let (known, wanted_options) = described(schema, attribute)?;
        let rule = known.equality().ok_or_else(|| {
            let diagnostic = format!("{} has no equality rule to compare by", known.name());
            Stop::refuse(ResultCode::InappropriateMatching, diagnostic)
        })?;
        let asserted = rule.assertion(schema, value).map_err(|error| {
            let diagnostic = format!("{}: the asserted value is {error}", known.name());
            Stop::refuse(ResultCode::InvalidAttributeSyntax, diagnostic)
        })?;
        let access = self.access();
        if !access.may_read(identity)
            || (is_protected(schema, known.id()) && !access.may_read_protected(identity))
        {
            let diagnostic = "you may not read this attribute";
            return Err(Stop::refuse(
                ResultCode::InsufficientAccessRights,
                diagnostic,
            ));
        }
        let found = target::find(
            self.view(),
            schema,
            self.state(),
            dn,
            normal,
            options.manage_dsa_it,
        );
        let target = found.map_err(|stop| match stop {
            // Outside of the naming contexts: nothing is asked that this server could be unwilling to do.
            Stop::Refused(outcome) if outcome.code == ResultCode::UnwillingToPerform => Outcome {
                code: ResultCode::NoSuchObject,
                ..*outcome
            }
            .into(),
            other => other,
        })?;
        if let Some(filter) = options.assertion {
            let look = Look {
                schema,
                attributes: &self.state().attributes,
                sees_protected: access.may_read_protected(identity),
            };
            if !look.asserts(self.view(), target.entry.id, filter)? {
                return Err(assertion_failed().into());
            }
        }
        let mut scratch = Vec::new();
        if let Some(value) = self.computed(&target, schema, known)? {
            return Ok(asserted.matches(schema, &value, &mut scratch));
        }
        let mut has_attribute = false;
        let id = target.entry.id;
        let damaged = |error| Error::corrupt(format!("entry {id}: {error}"));
        let record = self.view().get(Table::Entry, &id.to_key())?;
        let user = Entry::new(record.as_deref().unwrap_or_default()).map_err(damaged)?;
        let vocabulary = Vocabulary {
            schema,
            attributes: &self.state().attributes,
        };
        let mut spelled = Vec::new();
        let operational = operational::spell(&user, vocabulary, &mut spelled).map_err(damaged)?;
        for record in [user, operational] {
            for stored in record.attributes() {
                let stored = stored.map_err(damaged)?;
                let Some(described) = self.state().attributes.get(stored.number()) else {
                    continue;
                };
                let covers = |wanted: &str| {
                    wanted.is_empty() || described.options().split(';').any(|own| own == wanted)
                };
                if !schema
                    .type_of(described.attribute_type())
                    .is_subtype_of(known.id())
                    || !wanted_options.split(';').all(covers)
                {
                    continue;
                }
                has_attribute = true;
                if stored
                    .values()
                    .iter()
                    .any(|value| asserted.matches(schema, value, &mut scratch))
                {
                    return Ok(true);
                }
            }
        }
        if !has_attribute {
            let diagnostic = format!("{}: the entry does not have this attribute", known.name());
            return Err(Stop::refuse(ResultCode::NoSuchAttribute, diagnostic));
        }
        Ok(false)
    }

    /// The value of an attribute that is not stored but follows from the tree.
    fn computed(
        &self,
        target: &Target,
        schema: &Schema,
        known: &AttributeType,
    ) -> Result<Option<Vec<u8>>> {
        let (view, id, well_known) = (self.view(), target.entry.id, schema.well_known());
        let value = match known.id() {
            attribute if attribute == well_known.entry_dn => names::dn_of(view, id)?,
            attribute if attribute == well_known.subschema_subentry => SUBSCHEMA_DN.to_owned(),
            attribute if attribute == well_known.has_subordinates => {
                if names::has_children(view, id)? {
                    "TRUE"
                } else {
                    "FALSE"
                }
                .to_owned()
            }
            attribute if attribute == well_known.num_subordinates => {
                names::children_count(view, id)?.to_string()
            }
            _ => return Ok(None),
        };
        Ok(Some(value.into_bytes()))
    }
}
