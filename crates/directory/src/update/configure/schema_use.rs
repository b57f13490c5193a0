//! Whether the data allow a change of the schema: what entries, indexes and names depend on stays as it is. What has to
//! be looked for in the entries is in [`crate::schema_change`].

use sapwood_ldap::result::ResultCode;
use sapwood_ldap::schema::Definition;

use crate::engine::{EntryId, IndexKind, Postings, Write};
use crate::error::Error;
use crate::indexes::shorten;
use crate::names;
use crate::outcome::Stop;
use crate::schema::additions::Kind;
use crate::schema::{AttributeType, ObjectClass, OperationalAttribute, Schema};
use crate::schema_change::{self, OID_SYNTAX, Uses};
use crate::update::Run;

impl<T: Write> Run<'_, T> {
    /// Refuses a change of the schema that indexes, classes of entries or the server itself cannot do without. What may
    /// be looked for in the entries, besides.
    pub(super) fn check_schema_change(
        &mut self,
        before: &Schema,
        after: &Schema,
    ) -> Result<Uses, Stop> {
        for known in before
            .attribute_types()
            .iter()
            .filter(|known| !known.is_gone())
        {
            let now = after.type_of(known.id());
            if schema_change::is_same(known, now) {
                continue;
            }
            // Passwords in the clear are known by these names before they come here.
            if before.is_protected(known.id()) && !known.names().eq(now.names()) {
                let name = known.name();
                let diagnostic =
                    format!("the server itself uses {name}, which would have other names");
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
            let Some(what) = schema_change::what_changes(known, now) else {
                continue;
            };
            if is_of_server(before, known) {
                let name = known.name();
                let diagnostic =
                    format!("the server itself uses the attribute type {name}, which {what}");
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
            if self.state.indexes.of(known.id()).is_some() {
                let name = known.name();
                let diagnostic = format!(
                    "there is an index on {name}, which {what}: drop the index first (olcDbIndex)"
                );
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            }
        }
        for class in before
            .object_classes()
            .iter()
            .filter(|class| !class.is_gone())
        {
            let now = after.object_classes().get(class.id().index());
            let now = now.filter(|now| !now.is_gone());
            if let Some(what) = what_changes_of_class(class, now) {
                self.refuse_used_class(before, class, &what)?;
            }
        }
        self.refuse_shared_names(before, after)?;
        Ok(Uses::new(before, after))
    }

    /// Refuses a change of a class that entries have.
    fn refuse_used_class(
        &mut self,
        schema: &Schema,
        class: &ObjectClass,
        what: &str,
    ) -> Result<(), Stop> {
        let object_class = schema.type_of(schema.well_known().object_class);
        if is_class_of_server(schema, class) {
            let diagnostic = format!(
                "the server itself uses the object class {}, which {what}",
                class.name()
            );
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        }
        let mut key = Vec::new();
        let rule = object_class.equality();
        let is_normal = rule.is_some_and(|rule| {
            rule.normalise(schema, class.oid().as_bytes(), &mut key)
                .is_ok()
        });
        let indexes = self.state.indexes.of(object_class.id());
        let (Some(indexes), true) = (indexes, is_normal) else {
            return Ok(());
        };
        shorten(&mut key);
        let index = indexes.index(IndexKind::Equality);
        self.txn.open_index(index)?;
        let first = self.txn.postings(index, &key)?.next()?;
        match first {
            None => Ok(()),
            Some(id) => Err(self.used("object class", class.name(), what, id)?),
        }
    }

    /// Refuses names that mean something else where object identifiers stand: a name that a class shares with an
    /// attribute type stands for the class.
    fn refuse_shared_names(&self, before: &Schema, after: &Schema) -> Result<(), Stop> {
        let structural = before.operational(OperationalAttribute::StructuralObjectClass);
        let of_classes = [before.well_known().object_class, structural];
        let is_named = before.attribute_types().iter().any(|known| {
            known
                .syntax()
                .is_some_and(|syntax| syntax.oid() == OID_SYNTAX)
                && !of_classes.contains(&known.id())
                && !self.state.attributes.numbers_of(known.id()).is_empty()
        });
        if !is_named {
            return Ok(());
        }
        let is_shared = |schema: &Schema, name: &[u8]| {
            schema.attribute_type(name).is_some() && schema.object_class(name).is_some()
        };
        let added = after
            .additions()
            .entries
            .iter()
            .flat_map(|entry| &entry.definitions);
        for definition in added {
            let names = match definition {
                Definition::AttributeType(known) => &known.names,
                Definition::ObjectClass(known) => &known.names,
                _ => continue,
            };
            for name in names {
                let name_bytes = name.as_bytes();
                if is_shared(after, name_bytes) && !is_shared(before, name_bytes) {
                    let diagnostic = format!(
                        "{name:?} would be the name of an attribute type and of an object class, and object \
                         identifiers are written by name"
                    );
                    return Err(Stop::refuse(ResultCode::ConstraintViolation, diagnostic));
                }
            }
        }
        Ok(())
    }

    fn used(&self, kind: &str, name: &str, what: &str, id: EntryId) -> Result<Stop, Error> {
        let entry = names::dn_if_there(self.txn, id)?.unwrap_or_default();
        let diagnostic = format!("the {kind} {name} {what}, and the entry '{entry}' uses it");
        Ok(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic))
    }
}

/// What of a class changes that entries depend on, for people; `None` if nothing does.
fn what_changes_of_class(class: &ObjectClass, now: Option<&ObjectClass>) -> Option<String> {
    let Some(now) = now else {
        return Some("would be removed".to_owned());
    };
    let lost = class.names().find(|name| {
        let mut names = now.names();
        !names.any(|other| other.eq_ignore_ascii_case(name))
    });
    if let Some(lost) = lost {
        return Some(format!("would lose the name {lost}"));
    }
    let allows = |class: &ObjectClass, id| class.must().contains(id) || class.may().contains(id);
    let mut all = class.must().iter().chain(class.may().iter());
    let what = if class.kind() != now.kind() {
        "would be of another kind"
    } else if class.superiors() != now.superiors() {
        "would have another superior"
    } else if now.must().iter().any(|id| !class.must().contains(id)) {
        "would have one more attribute that entries must have"
    } else if all.any(|id| !allows(now, id)) {
        "would have one attribute less that entries may have"
    } else {
        return None;
    };
    Some(what.to_owned())
}

/// Whether the directory itself interprets a type.
fn is_of_server(schema: &Schema, known: &AttributeType) -> bool {
    let well_known = schema.well_known();
    let ids = [well_known.object_class, well_known.aliased_object_name];
    let is_config = known.name().starts_with("olc") || known.name().starts_with("sapwood");
    let is_own = known.is_operational() || is_config || ids.contains(&known.id());
    (is_own || schema.is_protected(known.id()))
        && schema.is_built_in(Kind::AttributeTypes, known.oid())
}

/// Whether the directory itself interprets a class.
fn is_class_of_server(schema: &Schema, class: &ObjectClass) -> bool {
    let known = schema.well_known();
    let ids = [
        known.top,
        known.alias,
        known.referral,
        known.extensible_object,
        known.subentry,
        known.collective_attribute_subentry,
        known.subschema,
        known.dynamic_object,
    ];
    let is_config = class.name().starts_with("olc") || class.name().starts_with("sapwood");
    (is_config || ids.contains(&class.id())) && schema.is_built_in(Kind::ObjectClasses, class.oid())
}
