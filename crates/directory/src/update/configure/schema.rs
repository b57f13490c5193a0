//! Changes of the schema, as they are asked for by updates of `cn=schema,cn=config`, of the entries below it, and of
//! the subschema subentry. What is asked for is made of what is added to the schema; whether the data allow it is asked
//! in [`super::schema_use`].

use std::sync::Arc;

use sapwood_ldap::controls::RequestControls;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::{Change, ChangeKind, OctetStrings};
use sapwood_ldap::message::{AddRequest, ModifyRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_ldap::schema::Definition;

use crate::access::Access;
use crate::config::entries::SCHEMA;
use crate::definition;
use crate::engine::Write;
use crate::error::Error;
use crate::outcome::{AwaitedChange, Stop};
use crate::schema::additions::{
    self, ADDITIONS_BYTES_MAX, Additions, ENTRIES_MAX, Kind, MACROS_MAX, SchemaEntry, oid_of,
};
use crate::schema::{NormalDn, Schema};
use crate::schema_change::{Looked, Place, RECORDS_AT_ONCE, SchemaChange, Settled, Uses};
use crate::stamp::generalized_time;
use crate::state::State;
use crate::update::Run;
use crate::update::rules::RuleSet;

/// The attribute of a change that is coming, or was given up.
const CHANGE: &str = "sapwoodSchemaChange";

/// The attribute of macros.
const MACROS: &str = "olcObjectIdentifier";

/// Which definitions an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Those that the subschema subentry shows: all.
    Subschema,
    /// Those that an entry of `cn=config` shows; the first one shows those of the program, too.
    Entry(usize),
}

impl Scope {
    /// Whether it shows definitions of the program.
    fn has_built_in(self) -> bool {
        matches!(self, Scope::Subschema | Scope::Entry(0))
    }

    /// Whether it shows those of an entry.
    fn has(self, entry: usize) -> bool {
        self == Scope::Subschema || self == Scope::Entry(entry)
    }

    /// The entry that gets what is added.
    fn entry(self) -> usize {
        match self {
            Scope::Subschema => 0,
            Scope::Entry(at) => at,
        }
    }
}

impl<T: Write> Run<'_, T> {
    /// Modifies the subschema subentry.
    pub(in crate::update) fn configure_subschema(
        &mut self,
        request: &ModifyRequest<'_>,
        controls: &RequestControls<'_>,
    ) -> Result<(), Stop> {
        if self.limited().is_some() {
            let diagnostic = "only the administrator changes the schema";
            return Err(Stop::refuse(
                ResultCode::InsufficientAccessRights,
                diagnostic,
            ));
        }
        self.check_alone(controls)?;
        self.modify_schema(Scope::Subschema, request)
    }

    /// Modifies an entry of `cn=config` if it is one of the schema, and says whether it is.
    pub(super) fn configure_schema(
        &mut self,
        entry: &str,
        request: &ModifyRequest<'_>,
    ) -> Result<bool, Stop> {
        let Some(at) = schema_entry(self.schema, entry) else {
            return Ok(false);
        };
        self.modify_schema(Scope::Entry(at), request)?;
        Ok(true)
    }

    fn modify_schema(&mut self, scope: Scope, request: &ModifyRequest<'_>) -> Result<(), Stop> {
        let mut additions = Additions::clone(self.schema.additions());
        for change in request.changes {
            let name = self.schema_attribute(change.attribute.description, scope)?;
            match name {
                Attribute::Definitions(kind) => {
                    let mut editor = Editor {
                        schema: self.schema,
                        additions: &mut additions,
                        scope,
                        kind,
                    };
                    editor.change(&change)?;
                }
                Attribute::Macros => change_macros(&mut additions, scope.entry(), &change)?,
                Attribute::Change if change.kind == ChangeKind::Delete => {
                    self.withdraw_schema_change(None)?;
                }
                Attribute::Change => return Err(only_deleted()),
            }
        }
        self.put_schema(additions)
    }

    /// Adds an entry of `cn=schema,cn=config`, if a DN is right below that; says whether it is.
    pub(super) fn add_schema_entry(&mut self, request: &AddRequest<'_>) -> Result<bool, Stop> {
        let Ok(dn) = Dn::parse(request.dn) else {
            return Ok(false);
        };
        let mut above = NormalDn::new();
        let is_below = dn.parent().is_some_and(|parent| {
            let parsed = above.parse(self.schema, parent.as_str().as_bytes());
            parsed.is_ok()
                && self
                    .configured_entry(&above)
                    .is_ok_and(|entry| entry == SCHEMA)
        });
        if !is_below {
            return Ok(false);
        }
        let refuse = |code, why: String| Err(Stop::refuse(code, why));
        let Some((number, name)) = entry_name(dn) else {
            let why = "an entry of the schema is called cn=NAME, of letters, digits, hyphens, dots and underscores";
            return refuse(ResultCode::NamingViolation, why.to_owned());
        };
        let mut additions = Additions::clone(self.schema.additions());
        if additions.position(&name).is_some() {
            let why = format!("there is an entry cn={name},{SCHEMA} already: modify it");
            return refuse(ResultCode::EntryAlreadyExists, why);
        }
        if additions.entries.len() > ENTRIES_MAX {
            let why = format!("{SCHEMA} has {ENTRIES_MAX} entries, as many as it can");
            return refuse(ResultCode::AdminLimitExceeded, why);
        }
        let end = additions.entries.len();
        let at = number.map_or(end, |number| number.saturating_add(1).min(end));
        additions.entries.insert(
            at,
            SchemaEntry {
                name,
                ..SchemaEntry::default()
            },
        );
        let scope = Scope::Entry(at);
        // Macros first: definitions may use them wherever they stand.
        let mut definitions = Vec::new();
        for attribute in request.attributes {
            let description = attribute.description;
            let is = |name: &str| description.eq_ignore_ascii_case(name.as_bytes());
            if is("objectClass") || is("cn") {
                continue;
            }
            let change = Change {
                kind: ChangeKind::Add,
                attribute,
            };
            match self.schema_attribute(description, scope)? {
                Attribute::Macros => change_macros(&mut additions, at, &change)?,
                Attribute::Change => return Err(only_deleted()),
                Attribute::Definitions(kind) => definitions.push((kind, change)),
            }
        }
        for (kind, change) in definitions {
            let mut editor = Editor {
                schema: self.schema,
                additions: &mut additions,
                scope,
                kind,
            };
            editor.change(&change)?;
        }
        self.put_schema(additions)?;
        Ok(true)
    }

    /// Deletes an entry of the schema, if it is one; says whether it is.
    pub(super) fn delete_schema_entry(&mut self, entry: &str) -> Result<bool, Stop> {
        match schema_entry(self.schema, entry) {
            None | Some(0) => Ok(false),
            Some(at) => {
                let mut additions = Additions::clone(self.schema.additions());
                additions.entries.remove(at);
                self.put_schema(additions)?;
                Ok(true)
            }
        }
    }

    /// What an attribute of an entry of the schema says.
    fn schema_attribute(&self, description: &[u8], scope: Scope) -> Result<Attribute, Stop> {
        let known = self.schema.attribute_type(description);
        let given = String::from_utf8_lossy(description);
        let name = known.map_or(&*given, |known| known.name());
        for kind in Kind::ALL {
            let own = match scope {
                Scope::Subschema => kind.attribute(),
                Scope::Entry(_) => kind.of_config(),
            };
            if name.eq_ignore_ascii_case(own) {
                return Ok(Attribute::Definitions(kind));
            }
        }
        if name.eq_ignore_ascii_case(MACROS) && scope != Scope::Subschema {
            return Ok(Attribute::Macros);
        }
        if name.eq_ignore_ascii_case(CHANGE) && scope == Scope::Entry(0) {
            return Ok(Attribute::Change);
        }
        let diagnostic = format!(
            "{name} cannot be changed: attribute types, object classes, name forms, and rules of content and structure \
             can be added to the schema; syntaxes and matching rules are built in"
        );
        Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic))
    }

    /// Puts other additions to the schema in the place of those that there are, if the data allow it.
    fn put_schema(&mut self, additions: Additions) -> Result<(), Stop> {
        if additions == **self.schema.additions() {
            return Ok(());
        }
        if self.state.coming.is_some() {
            let diagnostic = format!(
                "a change of the schema is coming, for which the entries are looked at: wait for it, or delete \
                 {CHANGE} of {SCHEMA} to withdraw it"
            );
            return Err(Stop::refuse(ResultCode::Busy, diagnostic));
        }
        let definitions = additions
            .entries
            .iter()
            .flat_map(|entry| &entry.definitions);
        let bytes: usize = definitions
            .map(|definition| definition.to_string().len())
            .sum();
        if bytes > ADDITIONS_BYTES_MAX {
            let diagnostic = format!(
                "what is added to the schema takes more than {} MiB",
                ADDITIONS_BYTES_MAX >> 20
            );
            return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
        }
        let before = self.schema.clone();
        let after = before
            .with(additions)
            .map_err(|error| not_so(error.to_string()))?;
        // Updates of all stores are ended with the schema that was, or begun with the one that is.
        self.txn.guard_move()?;
        let uses = self.check_schema_change(&before, &after)?;
        match self.look_for(&uses)? {
            true => self.install_schema(after),
            false => self.begin_schema_change(after, &uses),
        }
    }

    /// Looks for uses in the entries; `false` if they are too many to be looked at now.
    fn look_for(&mut self, uses: &Uses) -> Result<bool, Stop> {
        let (vocabulary, mut place) = (self.vocabulary(), Place::default());
        match uses.look(&*self.txn, vocabulary, &mut place, RECORDS_AT_ONCE)? {
            Looked::Clean => Ok(true),
            Looked::Used(used, id) => {
                let diagnostic = uses.told(&*self.txn, &used, id)?;
                Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic))
            }
            Looked::Untold => Ok(false),
        }
    }

    /// Writes a change down that is to take place when all entries have been looked at.
    fn begin_schema_change(&mut self, after: Schema, uses: &Uses) -> Result<(), Stop> {
        // What can be told already.
        let policy = self.state.policy();
        Access::new(&after, policy).map_err(|error| not_so(error.to_string()))?;
        definition::put_coming_schema(self.txn, after.additions())?;
        let began = self.txn.commit();
        let change = SchemaChange::new(self.schema, after, began);
        let version = self.state.schema_version;
        self.put_coming(Some(Arc::new(change)), "")?;
        *self.begins_indexes = true;
        // What comes after a definition mostly needs it, and what loses one can wait.
        *self.begun_change = (!uses.affects_types()).then_some(AwaitedChange { began, version });
        Ok(())
    }

    /// Gives up the change that is coming, if one is; with a reason, if the data are it.
    fn withdraw_schema_change(&mut self, why: Option<&str>) -> Result<(), Stop> {
        definition::delete_coming_schema(self.txn)?;
        let why = why.unwrap_or_default();
        let is_control = |c: char| c.is_control();
        self.put_coming(None, &why.replace(is_control, " "))
    }

    /// Writes what is known of changes that come.
    fn put_coming(
        &mut self,
        coming: Option<Arc<SchemaChange>>,
        given_up: &str,
    ) -> Result<(), Stop> {
        // Updates of all stores are ended without its rule, or begun with it.
        self.txn.guard_move()?;
        let mut state = State::clone(self.state);
        state.coming = coming;
        state.given_up = given_up.into();
        let rules = RuleSet::new(self.schema, &state)?;
        definition::store(self.txn, &mut state)?;
        *self.state = state;
        *self.rules_made = Arc::new(rules);
        Ok(())
    }

    /// Has a change that was coming take place, or gives it up.
    pub(in crate::update) fn settle_schema_change(
        &mut self,
        settled: &Settled,
    ) -> Result<(), Stop> {
        let coming = self.state.coming.clone();
        let Some(change) = coming.filter(|coming| coming.began == settled.began) else {
            // Somebody else has settled it.
            return Ok(());
        };
        if let Some(why) = &settled.given_up {
            return self.withdraw_schema_change(Some(why));
        }
        let (before, after) = (self.schema.clone(), change.schema.clone());
        self.check_schema_change(&before, &after)?;
        self.withdraw_schema_change(None)?;
        self.install_schema(after)
    }

    /// Puts another schema, which the data allow, in the place of the one that there is.
    fn install_schema(&mut self, after: Schema) -> Result<(), Stop> {
        let before = self.schema.clone();
        let refused = not_so;
        let policy = self.state.policy();
        Access::new(&after, policy).map_err(|error| refused(error.to_string()))?;
        for known in before.attribute_types() {
            if !known.is_gone() && after.type_of(known.id()).is_gone() {
                self.state.attributes.remove(self.txn, known.id())?;
            }
        }
        *self.changes_access = true;
        definition::put_schema(self.txn, after.additions())?;
        let mut state = State::clone(self.state);
        let now = self.now();
        state.given_up = Box::default();
        state.schema_version += 1;
        state.schema_changed = generalized_time(now).into();
        definition::store(self.txn, &mut state)?;
        // All that names what the schema defines is looked up again.
        let failed = |error: Error| match error {
            Error::Config(why) | Error::State(why) => refused(why),
            failed => Stop::Failed(failed),
        };
        let mut state = definition::load(self.txn, &after).map_err(failed)?;
        let rules = RuleSet::new(&after, &state).map_err(failed)?;
        let contexts = self.state.contexts.iter().zip(&state.contexts);
        let mut contexts = contexts.map(|(was, is)| (was.normal == is.normal, &was.dn));
        let parents = self.state.partitioned.iter().zip(&state.partitioned);
        let mut parents = parents.map(|(was, is)| (was.normal == is.normal, &was.dn));
        let changed = contexts.find(|(is_same, _)| !is_same);
        if let Some((_, dn)) = changed.or_else(|| parents.find(|(is_same, _)| !is_same)) {
            return Err(refused(format!(
                "the naming context or partitioned entry '{dn}' needs the definition"
            )));
        }
        rules.check(&after, &state).map_err(super::refused)?;
        state.know_computed(self.accounts, &self.options.clock);
        self.prefetched.forget();
        *self.state = state;
        *self.rules_made = Arc::new(rules);
        Ok(())
    }
}

/// The schema cannot be like that.
fn not_so(why: String) -> Stop {
    Stop::refuse(ResultCode::ConstraintViolation, why)
}

/// What an attribute says.
enum Attribute {
    Definitions(Kind),
    Macros,
    /// The change that is coming.
    Change,
}

fn only_deleted() -> Stop {
    let diagnostic = format!("{CHANGE} can be deleted only, which withdraws the change");
    Stop::refuse(ResultCode::ConstraintViolation, diagnostic)
}

/// The place of the entry of the schema with a DN as `cn=config` shows it.
fn schema_entry(schema: &Schema, dn: &str) -> Option<usize> {
    if dn == SCHEMA {
        return Some(0);
    }
    let rdn = dn.strip_suffix(SCHEMA)?.strip_suffix(',')?;
    let (_, name) = rdn.split_once('}')?;
    schema.additions().position(name)
}

/// The number and the name that the RDN of an entry of the schema gives it.
fn entry_name(dn: Dn<'_>) -> Option<(Option<usize>, String)> {
    let rdn = dn.rdn()?;
    let mut avas = rdn.avas();
    let (ava, None) = (avas.next()?, avas.next()) else {
        return None;
    };
    let value = ava.value();
    let (number, name) = ordered(std::str::from_utf8(&value).ok()?);
    let is_named = ava.attribute().eq_ignore_ascii_case("cn") && additions::is_name(name);
    is_named.then(|| (number, name.to_owned()))
}

/// The number before a value with an order (draft-chu-ldap-xordered §3.2), if it has one, and the rest.
fn ordered(value: &str) -> (Option<usize>, &str) {
    let parts = value
        .strip_prefix('{')
        .and_then(|rest| rest.split_once('}'));
    match parts {
        Some((number, rest))
            if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) =>
        {
            (
                Some(number.parse().unwrap_or(usize::MAX)),
                rest.trim_start(),
            )
        }
        _ => (None, value.trim_start()),
    }
}

/// The values of a change as text.
fn texts<'v>(name: &str, values: OctetStrings<'v>) -> Result<Vec<&'v str>, Stop> {
    let text = |value| {
        std::str::from_utf8(value).map_err(|_| {
            let diagnostic = format!("{name}: a value is not UTF-8");
            Stop::refuse(ResultCode::InvalidAttributeSyntax, diagnostic)
        })
    };
    values.iter().map(text).collect()
}

/// Changes the definitions of one kind.
struct Editor<'e> {
    schema: &'e Schema,
    additions: &'e mut Additions,
    scope: Scope,
    kind: Kind,
}

impl Editor<'_> {
    fn change(&mut self, change: &Change<'_>) -> Result<(), Stop> {
        let values = texts(self.name(), change.attribute.values)?;
        match change.kind {
            ChangeKind::Add if values.is_empty() => {
                Err(self.refuse(ResultCode::ProtocolError, "there is no value to add"))
            }
            ChangeKind::Add => values.into_iter().try_for_each(|value| self.add(value)),
            ChangeKind::Delete if values.is_empty() => self.replace(Vec::new()),
            ChangeKind::Delete => values.into_iter().try_for_each(|value| self.delete(value)),
            ChangeKind::Replace => self.replace(values),
            ChangeKind::Increment => {
                Err(self.refuse(ResultCode::ConstraintViolation, "it cannot be incremented"))
            }
        }
    }

    fn name(&self) -> &'static str {
        match self.scope {
            Scope::Subschema => self.kind.attribute(),
            Scope::Entry(_) => self.kind.of_config(),
        }
    }

    fn refuse(&self, code: ResultCode, why: impl std::fmt::Display) -> Stop {
        Stop::refuse(code, format!("{}: {why}", self.name()))
    }

    /// Reads a definition, without a number before it.
    fn parse(&self, text: &str) -> Result<Definition, Stop> {
        let wrong = |why: String| {
            let shown: String = text.chars().take(100).collect();
            self.refuse(
                ResultCode::InvalidAttributeSyntax,
                format!("{why} in {shown:?}"),
            )
        };
        let mut definition = match Definition::parse(self.kind.attribute(), text) {
            Some(Ok(definition)) => definition,
            Some(Err(error)) => return Err(wrong(error.to_string())),
            None => return Err(wrong("this is no definition".to_owned())),
        };
        let macros = self.additions.macros();
        let expanded = macros.apply(&mut definition);
        expanded.map_err(|name| wrong(format!("{name:?} is not defined by {MACROS}")))?;
        // It is kept as a line, and read again as what it is now.
        let line = definition.to_string();
        let read = Definition::parse(self.kind.attribute(), &line);
        if line.contains(['\n', '\r']) || read != Some(Ok(definition.clone())) {
            return Err(wrong("a character cannot stand in a definition".to_owned()));
        }
        Ok(definition)
    }

    /// The definitions of the program that are shown.
    fn built_in(&self) -> Vec<Definition> {
        match self.scope.has_built_in() {
            true => self.schema.built_in(self.kind, self.additions),
            false => Vec::new(),
        }
    }

    /// The places of the definitions of this kind in an entry.
    fn places(&self, entry: usize) -> Vec<usize> {
        let definitions = self
            .additions
            .entries
            .get(entry)
            .map(|entry| &entry.definitions);
        let all = definitions.into_iter().flatten().enumerate();
        let of_kind = all.filter(|(_, known)| Kind::of(known) == Some(self.kind));
        of_kind.map(|(at, _)| at).collect()
    }

    fn add(&mut self, value: &str) -> Result<(), Stop> {
        let (number, text) = ordered(value);
        let definition = self.parse(text)?;
        let oid = oid_of(&definition);
        if let Some((entry, _)) = self.additions.find(self.kind, &oid) {
            let why = match self.additions.entries[entry].name.as_str() {
                "" => format!("{oid} is defined already"),
                name => format!("{oid} is defined already, in cn={name},{SCHEMA}"),
            };
            return Err(self.refuse(ResultCode::AttributeOrValueExists, why));
        }
        // What the program defines in the same words is there.
        if self.schema.has_in_program(&definition) {
            return Ok(());
        }
        let entry = self.scope.entry();
        let places = self.places(entry);
        let before = self.built_in().len();
        let at = number.and_then(|number| places.get(number.saturating_sub(before)));
        let definitions = &mut self.additions.entries[entry].definitions;
        definitions.insert(at.copied().unwrap_or(definitions.len()), definition);
        Ok(())
    }

    fn delete(&mut self, value: &str) -> Result<(), Stop> {
        let (number, text) = ordered(value);
        let missing = || {
            self.refuse(
                ResultCode::NoSuchAttribute,
                format!("there is no value {value:?}"),
            )
        };
        let built_in = self.built_in();
        let mut by_number = None;
        if let (Some(number), Scope::Entry(entry)) = (number, self.scope) {
            match number.checked_sub(built_in.len()) {
                Some(own) => {
                    let place = self.places(entry).get(own).copied().ok_or_else(missing)?;
                    by_number = Some((entry, place));
                }
                None if text.is_empty() => return Err(self.is_built_in(&built_in[number])),
                None => {}
            }
        }
        if text.is_empty() {
            let (entry, place) = by_number.ok_or_else(missing)?;
            self.additions.entries[entry].definitions.remove(place);
            return Ok(());
        }
        let definition = self.parse(text)?;
        let found = self.additions.find(self.kind, &oid_of(&definition));
        match found.filter(|(entry, _)| self.scope.has(*entry)) {
            Some(found) if number.is_some() && by_number != Some(found) => Err(missing()),
            Some((entry, place)) => {
                self.additions.entries[entry].definitions.remove(place);
                Ok(())
            }
            None => {
                let is_same =
                    |known: &&Definition| oid_of(known).eq_ignore_ascii_case(&oid_of(&definition));
                match built_in.iter().find(is_same) {
                    Some(known) => Err(self.is_built_in(known)),
                    None => Err(missing()),
                }
            }
        }
    }

    fn is_built_in(&self, definition: &Definition) -> Stop {
        let why = format!("{} is built in, and cannot be removed", oid_of(definition));
        self.refuse(ResultCode::UnwillingToPerform, why)
    }

    fn replace(&mut self, values: Vec<&str>) -> Result<(), Stop> {
        let mut wanted: Vec<Definition> = Vec::with_capacity(values.len());
        for value in values {
            wanted.push(self.parse(ordered(value).1)?);
        }
        let has = |oid: &str| {
            let mut wanted = wanted.iter();
            wanted.any(|known| oid_of(known).eq_ignore_ascii_case(oid))
        };
        let built_in = self.built_in();
        if let Some(kept) = built_in.iter().find(|known| !has(&oid_of(known))) {
            return Err(self.is_built_in(kept));
        }
        let (kind, scope) = (self.kind, self.scope);
        for (at, entry) in self.additions.entries.iter_mut().enumerate() {
            if scope.has(at) {
                // Of an entry's own definitions the new ones take the place, in their order.
                let stays = |known: &Definition| scope == Scope::Subschema && has(&oid_of(known));
                entry
                    .definitions
                    .retain(|known| Kind::of(known) != Some(kind) || stays(known));
            }
        }
        for definition in wanted {
            match self.additions.find(kind, &oid_of(&definition)) {
                Some((entry, place)) if scope.has(entry) => {
                    let known = &mut self.additions.entries[entry].definitions[place];
                    if scope != Scope::Subschema {
                        let why = format!("{} is given twice", oid_of(known));
                        return Err(self.refuse(ResultCode::AttributeOrValueExists, why));
                    }
                    *known = definition;
                }
                _ => self.add(&definition.to_string())?,
            }
        }
        Ok(())
    }
}

/// Makes one change of the macros of an entry.
fn change_macros(additions: &mut Additions, at: usize, change: &Change<'_>) -> Result<(), Stop> {
    let refuse = |code, why: String| Stop::refuse(code, format!("{MACROS}: {why}"));
    let values = texts(MACROS, change.attribute.values)?;
    match change.kind {
        ChangeKind::Increment => {
            let why = "it cannot be incremented".to_owned();
            return Err(refuse(ResultCode::ConstraintViolation, why));
        }
        ChangeKind::Add => {}
        ChangeKind::Delete if !values.is_empty() => {
            for value in values {
                let (number, text) = ordered(value);
                let name = text.split_whitespace().next();
                let macros = &mut additions.entries[at].macros;
                let is = |(known, _): &(String, String)| {
                    name.is_some_and(|name| known.eq_ignore_ascii_case(name))
                };
                let found = match name {
                    None => number.filter(|number| *number < macros.len()),
                    Some(_) => macros.iter().position(is),
                };
                let missing = || {
                    refuse(
                        ResultCode::NoSuchAttribute,
                        format!("there is no {value:?}"),
                    )
                };
                macros.remove(found.ok_or_else(missing)?);
            }
            return Ok(());
        }
        ChangeKind::Delete | ChangeKind::Replace => additions.entries[at].macros.clear(),
    }
    for value in values {
        let (_, text) = ordered(value);
        let mut words = text.split_whitespace();
        let (Some(name), Some(oid), None) = (words.next(), words.next(), words.next()) else {
            let why = format!("{value:?} is not a name and an object identifier");
            return Err(refuse(ResultCode::InvalidAttributeSyntax, why));
        };
        let mut all = additions.entries.iter().flat_map(|entry| &entry.macros);
        if all.any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            let why = format!("{name} is defined already");
            return Err(refuse(ResultCode::AttributeOrValueExists, why));
        }
        if additions
            .entries
            .iter()
            .map(|entry| entry.macros.len())
            .sum::<usize>()
            >= MACROS_MAX
        {
            let why = format!("there are {MACROS_MAX}, as many as there can be");
            return Err(refuse(ResultCode::AdminLimitExceeded, why));
        }
        let Some(oid) = additions.macros().resolve(oid) else {
            let why =
                format!("{oid:?} is neither an object identifier nor begins with the name of one");
            return Err(refuse(ResultCode::InvalidAttributeSyntax, why));
        };
        additions.entries[at].macros.push((name.to_owned(), oid));
    }
    Ok(())
}
