//! The directory's own settings in the `meta` table: naming contexts, indexes, and what is configured with the data.
//!
//! The definition is one record of text lines, so that a person can read it and a snapshot can notice a newer one by
//! comparing bytes:
//!
//! ```text
//! form 4
//! schema <how often it was added to> <when it last was>
//! schema-coming <the commit that began the change>
//! schema-given-up <why the last change was>
//! preparation <version of the string preparation the indexes were built with>
//! context <DN>
//! context-in <store> <DN>
//! partitioned <first store> <number of stores> <DN>
//! index <attribute type> eq|pres|sub|ord complete
//! index <attribute type> eq|pres|sub|ord building <commit that began it>
//! setting <attribute of cn=config> <value>
//! extension <value of sapwoodExtensions>
//! limits <value of olcLimits>
//! authz-regexp <value of olcAuthzRegexp>
//! access data|global <rule in the words of slapd.access(5)>
//! access context <place of the naming context among all> <rule>
//! unique <attribute type>[,<attribute type>]... <base DN, or nothing>
//! unique-named <name> <attribute type>[,<attribute type>]... <base DN, or nothing>
//! constraint <value of olcConstraintAttribute>
//! valsort <value of olcValSortAttr>
//! refint attributes <attribute type>[,<attribute type>]...
//! refint nothing|modifier <DN>
//! linked <value of sapwoodLinked>
//! automember <value of sapwoodAutomemberURI>
//! managed <value of sapwoodManagedURI>
//! numbers <value of sapwoodNumbersURI>
//! dds <max> <min> <default> <interval> <tolerance>, in seconds, <most entries>
//! dynlist <value of olcDynListAttrSet>
//! memberof <class of groups> <attribute of members> follows|stays
//! ppolicy on[,hash-cleartext][,use-lockout][,netscape-controls] <DN of the default policy, or nothing>
//! ```
//!
//! What is added to the schema is a record of its own ([`crate::schema::additions`]), read again when its time in the
//! definition is another one. What is to be added to it once all entries have been looked at is another record.

mod config;
pub(crate) mod indexes;

use std::sync::Arc;

pub use self::config::{Config, Partition};
use crate::attributes::AttributeTable;
use crate::config::access::AccessList;
use crate::config::{
    Extension, Setting, UniqueRule, dds, dynlist, member_of, password_policy, refint,
};
use crate::engine::{self, CommitNo, EntryId, Read, STORES_MAX, Table, Write};
use crate::error::{Error, Result};
use crate::index_definition::{IndexDefinition, KIND_WORDS};
use crate::indexes::{AttributeIndexes, Completeness, can_have};
use crate::names::{self, NamingContext, PartitionedParent};
use crate::schema::additions::Additions;
use crate::schema::{AttributeTypeId, NormalDn, PREPARATION_VERSION, Schema};
use crate::schema_change::SchemaChange;
use crate::stamp::generalized_time;
use crate::state::State;
use crate::synthetic::SyntheticContext;

const DEFINITION_KEY: &[u8] = b"definition";
const SCHEMA_KEY: &[u8] = b"schema";
const COMING_SCHEMA_KEY: &[u8] = b"coming schema";
const GENERATION_KEY: &[u8] = b"feed generation";
const FORM_LINE: &str = "form 4";

/// The most naming contexts.
pub(crate) const CONTEXTS_MAX: usize = 1000;

/// The definition's record as of a snapshot; `None` when there is no directory.
pub(crate) fn record<R: Read>(read: &R) -> engine::Result<Option<R::Value<'_>>> {
    read.get(Table::Meta, DEFINITION_KEY)
}

/// Reads what a snapshot knows of the directory; `schema` is the one of the program, or another one of the directory.
pub(crate) fn load<R: Read>(read: &R, schema: &Schema) -> Result<State> {
    let record = record(read)?
        .ok_or_else(|| Error::State("there is no directory here: make one first".into()))?;
    let text =
        std::str::from_utf8(&record).map_err(|_| Error::corrupt("the definition is not text"))?;
    let mut lines = text.lines();
    match lines.next() {
        Some(FORM_LINE) => {}
        other => {
            return Err(Error::State(format!(
                "this directory was made by another version of this program ({}): export it with that version, and import it with this one",
                other.unwrap_or("no form")
            )));
        }
    }
    let mut changed = lines.clone();
    let changed = changed.find_map(|line| line.strip_prefix("schema ")?.split_once(' '));
    let (version, changed) = changed.unwrap_or(("0", ""));
    let version = version.parse();
    let version = version.map_err(|_| Error::corrupt("the schema's version is no number"))?;
    let schema = &added_to(read, schema, version > 0)?;
    let mut state = State {
        definition: text.into(),
        attributes: AttributeTable::load(schema, read)?,
        schema: schema.clone(),
        schema_version: version,
        schema_changed: changed.into(),
        ..State::default()
    };
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "schema" => {}
            "schema-coming" => {
                let damaged = || Error::corrupt(format!("the definition has the line '{line}'"));
                let began = CommitNo(rest.parse().map_err(|_| damaged())?);
                let coming = with_additions(read, schema, COMING_SCHEMA_KEY)?;
                let change = SchemaChange::new(schema, coming, began);
                state.coming = Some(Arc::new(change));
            }
            "schema-given-up" => state.given_up = rest.into(),
            "preparation" => state.preparation = rest.parse().unwrap_or_default(),
            "context" => state.contexts.push(context(schema, rest, 0)?),
            "context-in" => {
                let (store, dn) = store_number(line, rest)?;
                state.contexts.push(context(schema, dn, store)?);
            }
            "partitioned" => {
                let (first, rest) = store_number(line, rest)?;
                let (stores, dn) = store_number(line, rest)?;
                partition(schema, &mut state, dn, first, stores)?;
            }
            "index" => read_index(&mut state, schema, rest)?,
            "setting" => read_setting(&mut state, rest)?,
            "unique" => state.settings.unique.push(read_unique("", rest)),
            "unique-named" => {
                let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                state.settings.unique.push(read_unique(name, rest));
            }
            "constraint" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                state
                    .settings
                    .constraints
                    .push(rest.parse().map_err(damaged)?);
            }
            "linked" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                state.settings.linked.push(rest.parse().map_err(damaged)?);
            }
            "managed" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                state.settings.managed.push(rest.parse().map_err(damaged)?);
            }
            "automember" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                let rule = rest.parse().map_err(damaged)?;
                state.settings.automember.push(rule);
            }
            "numbers" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                state.settings.numbers.push(rest.parse().map_err(damaged)?);
            }
            "dds" => {
                let damaged = || Error::corrupt(format!("the definition has the line '{line}'"));
                state.settings.dds = Some(dds::parse(rest).ok_or_else(damaged)?);
            }
            "dynlist" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                state.settings.dynlist.push(rest.parse().map_err(damaged)?);
            }
            "valsort" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                state
                    .settings
                    .value_sorts
                    .push(rest.parse().map_err(damaged)?);
            }
            "refint" => {
                if !refint::take(&mut state.settings, rest) {
                    let text = format!("the definition has the line '{line}'");
                    return Err(Error::corrupt(text));
                }
            }
            "memberof" => {
                let damaged = || Error::corrupt(format!("the definition has the line '{line}'"));
                state.settings.member_of = Some(member_of::parse(rest).ok_or_else(damaged)?);
            }
            "access" => read_access(&mut state, rest)?,
            "extension" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                let extension: Extension = rest.parse().map_err(damaged)?;
                state.settings.extensions = state.settings.extensions.with(extension);
            }
            "limits" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                state.settings.limits.push(rest.parse().map_err(damaged)?);
            }
            "agreement" => {
                // It may have a password, which is not for a log.
                let damaged = |_| Error::corrupt("the definition has an agreement that is none");
                state
                    .settings
                    .agreements
                    .push(rest.parse().map_err(damaged)?);
            }
            "update-ref" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                state
                    .settings
                    .update_refs
                    .push(rest.parse().map_err(damaged)?);
            }
            "authz-regexp" => {
                let damaged = |_| Error::corrupt(format!("the definition has the line '{line}'"));
                let regexp = rest.parse().map_err(damaged)?;
                state.settings.authz_regexps.push(regexp);
            }
            "ppolicy" => {
                let damaged = || Error::corrupt(format!("the definition has the line '{line}'"));
                let overlay = password_policy::parse(rest).ok_or_else(damaged)?;
                state.settings.password_policy = Some(overlay);
            }
            "otp" => state.settings.second_factor = true,
            #[cfg(test)]
            "probe" => state.settings.probe = true,
            _ => {
                return Err(Error::corrupt(format!(
                    "the definition has the line '{line}'"
                )));
            }
        }
    }
    Ok(state)
}

fn read_access(state: &mut State, line: &str) -> Result<()> {
    let damaged = || Error::corrupt(format!("the definition has the access rule '{line}'"));
    let (list, rule) = AccessList::read(line).ok_or_else(damaged)?;
    if matches!(list, AccessList::Context(place) if place >= state.contexts.len()) {
        return Err(damaged());
    }
    let rules = list.of_mut(&mut state.settings);
    rules.push(rule.parse().map_err(|_| damaged())?);
    Ok(())
}

/// The schema with what the data add to it.
fn added_to<R: Read>(read: &R, schema: &Schema, is_there: bool) -> Result<Schema> {
    match is_there {
        true => with_additions(read, schema, SCHEMA_KEY),
        false => made_with(schema, Additions::default()),
    }
}

/// The schema with the additions that a record has.
fn with_additions<R: Read>(read: &R, schema: &Schema, key: &[u8]) -> Result<Schema> {
    let record = read.get(Table::Meta, key)?;
    let record = record.ok_or_else(|| Error::corrupt("the schema's record is not there"))?;
    let text = std::str::from_utf8(&record);
    let text = text.map_err(|_| Error::corrupt("the schema's record is not text"))?;
    let damaged = |line: &str| Error::corrupt(format!("the schema's record has '{line}'"));
    made_with(schema, Additions::parse(text).map_err(damaged)?)
}

fn made_with(schema: &Schema, additions: Additions) -> Result<Schema> {
    let made = schema.with(additions);
    made.map_err(|error| {
        Error::State(format!(
            "the schema that is kept with the data does not fit this program: {error}"
        ))
    })
}

/// Writes what is added to the schema. The definition is to be written, too.
pub(crate) fn put_schema<W: Write>(txn: &mut W, additions: &Additions) -> engine::Result<()> {
    txn.put(Table::Meta, SCHEMA_KEY, additions.text().as_bytes())
}

/// Writes what is to be added to the schema once all entries have been looked at. The definition is to be written, too.
pub(crate) fn put_coming_schema<W: Write>(
    txn: &mut W,
    additions: &Additions,
) -> engine::Result<()> {
    txn.put(Table::Meta, COMING_SCHEMA_KEY, additions.text().as_bytes())
}

/// Takes that away.
pub(crate) fn delete_coming_schema<W: Write>(txn: &mut W) -> engine::Result<()> {
    txn.delete(Table::Meta, COMING_SCHEMA_KEY).map(drop)
}

fn read_unique(name: &str, line: &str) -> UniqueRule {
    let (attributes, base) = line.split_once(' ').unwrap_or((line, ""));
    UniqueRule {
        attributes: attributes.split(',').map(str::to_owned).collect(),
        base: base.to_owned(),
        name: name.to_owned(),
    }
}

/// The number before the rest of a line.
fn store_number<'l>(line: &str, rest: &'l str) -> Result<(u16, &'l str)> {
    rest.split_once(' ')
        .and_then(|(number, rest)| Some((number.parse().ok()?, rest)))
        .filter(|(number, _)| *number <= STORES_MAX)
        .ok_or_else(|| Error::corrupt(format!("the definition has the line '{line}'")))
}

fn parse(schema: &Schema, dn: &str, what: &str) -> Result<NormalDn> {
    let mut normal = NormalDn::new();
    normal
        .parse(schema, dn.as_bytes())
        .map_err(|error| Error::Config(format!("the {what} '{dn}' is no DN: {error}")))?;
    if normal.is_empty() || dn.contains('\n') {
        return Err(Error::Config(format!("'{dn}' cannot be a {what}")));
    }
    Ok(normal)
}

fn context(schema: &Schema, dn: &str, store: u16) -> Result<NamingContext> {
    Ok(NamingContext {
        dn: dn.to_owned(),
        normal: parse(schema, dn, "naming context")?,
        root: EntryId::root_of(store),
    })
}

/// Adds a partitioned parent whose children are in `stores` stores from `first` on.
fn partition(schema: &Schema, state: &mut State, dn: &str, first: u16, stores: u16) -> Result<()> {
    let normal = parse(schema, dn, "partitioned parent")?;
    if state.partitioned.iter().any(|known| known.normal == normal) {
        return Err(Error::Config(format!("'{dn}' is partitioned twice")));
    }
    let number = state.partitioned.len() as u32;
    state.partitioned.push(PartitionedParent {
        dn: dn.to_owned(),
        normal,
        id: EntryId::partitioned(number, first, stores),
    });
    Ok(())
}

fn read_index(state: &mut State, schema: &Schema, line: &str) -> Result<()> {
    let damaged = || Error::corrupt(format!("the definition has the index '{line}'"));
    let mut words = line.split(' ');
    let (Some(name), Some(kind), Some(completeness)) = (words.next(), words.next(), words.next())
    else {
        return Err(damaged());
    };
    let completeness = match completeness {
        "complete" => Completeness::Complete,
        "building" => {
            let began = words.next().map_or(Ok(0), str::parse);
            Completeness::Building(CommitNo(began.map_err(|_| damaged())?))
        }
        _ => return Err(damaged()),
    };
    let known = schema.attribute_type(name.as_bytes()).ok_or_else(|| {
        Error::State(format!(
            "there is an index on {name}, which the schema does not define (any more)"
        ))
    })?;
    let number = state
        .attributes
        .number(known.id(), "")
        .ok_or_else(damaged)?;
    let indexes = state.indexes.of_mut(known.id(), number);
    *place_of(indexes, kind).ok_or_else(damaged)? = completeness;
    Ok(())
}

fn read_setting(state: &mut State, line: &str) -> Result<()> {
    let damaged = || Error::corrupt(format!("the definition has the setting '{line}'"));
    let (attribute, value) = line.split_once(' ').ok_or_else(damaged)?;
    let setting = Setting::of(attribute).ok_or_else(damaged)?;
    setting
        .set(&mut state.settings, value)
        .map_err(|_| damaged())
}

/// Where the completeness of a kind of index stands.
pub(crate) fn place_of<'i>(
    indexes: &'i mut AttributeIndexes,
    kind: &str,
) -> Option<&'i mut Completeness> {
    match kind {
        "eq" => Some(&mut indexes.equality),
        "pres" => Some(&mut indexes.presence),
        "sub" => Some(&mut indexes.substring),
        "approx" => Some(&mut indexes.approximate),
        "ord" => Some(&mut indexes.ordering),
        _ => None,
    }
}

/// Writes the definition of a state.
pub(crate) fn store<W: Write>(txn: &mut W, state: &mut State) -> engine::Result<()> {
    let schema = &state.schema;
    let mut text = format!("{FORM_LINE}\n");
    if state.schema_version > 0 {
        let State {
            schema_version,
            schema_changed,
            ..
        } = state;
        text.push_str(&format!("schema {schema_version} {schema_changed}\n"));
    }
    if let Some(SchemaChange { began, .. }) = state.coming.as_deref() {
        text.push_str(&format!("schema-coming {}\n", began.0));
    }
    if !state.given_up.is_empty() {
        text.push_str(&format!("schema-given-up {}\n", state.given_up));
    }
    text.push_str(&format!("preparation {}\n", state.preparation));
    for NamingContext { dn, root, .. } in &state.contexts {
        text.push_str(&match root.store() {
            0 => format!("context {dn}\n"),
            store => format!("context-in {store} {dn}\n"),
        });
    }
    for PartitionedParent { dn, id, .. } in &state.partitioned {
        let (first, stores) = id.partitions().unwrap_or_default();
        text.push_str(&format!("partitioned {first} {stores} {dn}\n"));
    }
    for indexes in state.indexes.iter() {
        let name = schema.type_of(indexes.attribute_type).name();
        for (kind, completeness) in [
            ("eq", indexes.equality),
            ("pres", indexes.presence),
            ("sub", indexes.substring),
            ("approx", indexes.approximate),
            ("ord", indexes.ordering),
        ] {
            match completeness {
                Completeness::Absent => {}
                Completeness::Building(CommitNo(began)) => {
                    text.push_str(&format!("index {name} {kind} building {began}\n"));
                }
                Completeness::Complete => text.push_str(&format!("index {name} {kind} complete\n")),
            }
        }
    }
    for setting in Setting::all().filter(|setting| !setting.is_default(&state.settings)) {
        let value = setting.value(&state.settings);
        text.push_str(&format!("setting {} {value}\n", setting.attribute));
    }
    for extension in state.settings.extensions.iter() {
        text.push_str(&format!("extension {}\n", extension.name()));
    }
    for (list, rules) in AccessList::all(&state.settings) {
        for rule in rules {
            text.push_str(&format!("access {list} {rule}\n"));
        }
    }
    for limits in &state.settings.limits {
        text.push_str(&format!("limits {limits}\n"));
    }
    for regexp in &state.settings.authz_regexps {
        text.push_str(&format!("authz-regexp {regexp}\n"));
    }
    for agreement in &state.settings.agreements {
        text.push_str(&format!("agreement {agreement}\n"));
    }
    for url in &state.settings.update_refs {
        text.push_str(&format!("update-ref {url}\n"));
    }
    for rule in &state.settings.unique {
        let UniqueRule {
            attributes,
            base,
            name,
        } = rule;
        let attributes = attributes.join(",");
        text.push_str(&match name.as_str() {
            "" => format!("unique {attributes} {base}\n"),
            name => format!("unique-named {name} {attributes} {base}\n"),
        });
    }
    for rule in &state.settings.constraints {
        text.push_str(&format!("constraint {rule}\n"));
    }
    for rule in &state.settings.value_sorts {
        text.push_str(&format!("valsort {rule}\n"));
    }
    for line in state.settings.refint.iter().flat_map(refint::lines) {
        text.push_str(&format!("refint {line}\n"));
    }
    for rule in &state.settings.linked {
        text.push_str(&format!("linked {rule}\n"));
    }
    for rule in &state.settings.automember {
        text.push_str(&format!("automember {rule}\n"));
    }
    for rule in &state.settings.managed {
        text.push_str(&format!("managed {rule}\n"));
    }
    for rule in &state.settings.numbers {
        text.push_str(&format!("numbers {rule}\n"));
    }
    if let Some(rule) = &state.settings.dds {
        text.push_str(&format!("dds {}\n", dds::line(rule)));
    }
    for rule in &state.settings.dynlist {
        text.push_str(&format!("dynlist {rule}\n"));
    }
    if let Some(rule) = &state.settings.member_of {
        text.push_str(&format!("memberof {}\n", member_of::line(rule)));
    }
    if let Some(overlay) = &state.settings.password_policy {
        text.push_str(&format!("ppolicy {}\n", password_policy::line(overlay)));
    }
    if state.settings.second_factor {
        text.push_str("otp\n");
    }
    #[cfg(test)]
    if state.settings.probe {
        text.push_str("probe\n");
    }
    // What URLs find stands under a number as well as what is stored; without one nothing is found.
    for member in dynlist::members(&state.settings, &state.schema) {
        let _ = state
            .attributes
            .number_or_new(&state.schema, txn, member, "")?;
    }
    txn.put(Table::Meta, DEFINITION_KEY, text.as_bytes())?;
    state.definition = text.into();
    Ok(())
}

/// Adds a naming context that is in one of the stores; `own` are the suffixes of the server's own contexts.
pub(crate) fn add_context(
    state: &mut State,
    schema: &Schema,
    own: &[NormalDn],
    dn: &str,
    store: u16,
) -> Result<()> {
    let added = context(schema, dn, store)?;
    if own.contains(&added.normal) {
        let text = format!("'{dn}' cannot be a naming context: the server itself has it");
        return Err(Error::Config(text));
    }
    let mut known = state.contexts.iter();
    if known.any(|known| known.normal == added.normal) {
        return Err(Error::Config(format!(
            "the naming context '{dn}' is there twice"
        )));
    }
    if state.contexts.len() == CONTEXTS_MAX {
        return Err(Error::Config(format!(
            "a directory has 1 to {CONTEXTS_MAX} naming contexts"
        )));
    }
    state.contexts.push(added);
    Ok(())
}

/// Gives naming contexts and partitions their stores; how many stores there are in all.
pub(crate) fn place(schema: &Schema, config: &Config, state: &mut State) -> Result<u16> {
    if config.naming_contexts.is_empty() || config.naming_contexts.len() > CONTEXTS_MAX {
        return Err(Error::Config(format!(
            "a directory has 1 to {CONTEXTS_MAX} naming contexts"
        )));
    }
    // The first store holds what concerns all, and whatever is above partitions.
    let mut next = 1;
    for Partition { parent, stores } in &config.partitions {
        if *stores == 0 {
            let text = format!("'{parent}' cannot be spread over no store");
            return Err(Error::Config(text));
        }
        partition(schema, state, parent, next, *stores)?;
        next = next.saturating_add(*stores);
    }
    let own = SyntheticContext::suffixes(schema)?;
    for dn in &config.naming_contexts {
        let added = context(schema, dn, 0)?;
        let has_partitions = state
            .partitioned
            .iter()
            .any(|parent| parent.normal.is_at_or_below(&added.normal));
        let mut store = 0;
        if config.own_stores && !has_partitions {
            store = next;
            next = next.saturating_add(1);
        }
        add_context(state, schema, &own, dn, store)?;
    }
    for parent in &state.partitioned {
        let Some(context) = names::context_of(&state.contexts, &parent.normal) else {
            let text = format!("'{}' is in none of the naming contexts", parent.dn);
            return Err(Error::Config(text));
        };
        // A naming context within the one that has the partitions may have a store of its own.
        if state.contexts[context].root != EntryId::ROOT {
            let text = format!(
                "'{}' is in a naming context with a store of its own",
                parent.dn
            );
            return Err(Error::Config(text));
        }
    }
    if next > STORES_MAX {
        return Err(Error::Config(format!(
            "a directory has at most {STORES_MAX} stores, not {next}"
        )));
    }
    Ok(next)
}

/// Attributes that every directory indexes for equality: searches for entries by class and by UUID are never slow.
pub(crate) const ALWAYS_INDEXED: [&str; 2] = ["objectClass", "entryUUID"];

/// Makes the definition of a new directory; the indexes are empty and complete.
pub(crate) fn create<W: Write>(
    txn: &mut W,
    schema: &Schema,
    config: &Config,
    (now, generation): (u64, u64),
) -> Result<State> {
    let schema = &config.schema(schema)?;
    let mut state = State {
        preparation: PREPARATION_VERSION,
        settings: config.settings.clone(),
        schema: schema.clone(),
        ..State::default()
    };
    if !schema.additions().is_empty() {
        state.schema_version = 1;
        state.schema_changed = generalized_time(now).into();
        put_schema(txn, schema.additions())?;
    }
    place(schema, config, &mut state)?;
    let always = ALWAYS_INDEXED.map(|attribute| IndexDefinition {
        attribute: attribute.to_owned(),
        equality: true,
        ..IndexDefinition::default()
    });
    for definition in always.iter().chain(&config.indexes) {
        for (kind, wanted) in definition.kinds() {
            if wanted {
                set_index(
                    txn,
                    schema,
                    &mut state,
                    &definition.attribute,
                    kind,
                    Completeness::Complete,
                )?;
            }
        }
    }
    store(txn, &mut state)?;
    put_feed_generation(txn, generation)?;
    Ok(state)
}

/// Creates an index in a given state of completeness, after checking that it can be; the answer is the attribute type.
pub(crate) fn set_index<W: Write>(
    txn: &mut W,
    schema: &Schema,
    state: &mut State,
    attribute: &str,
    kind: &str,
    completeness: Completeness,
) -> Result<AttributeTypeId> {
    let known = schema.attribute_type(attribute.as_bytes()).ok_or_else(|| {
        Error::Config(format!(
            "cannot index {attribute}: the schema does not define it"
        ))
    })?;
    can_have(known, kind)
        .map_err(|why| Error::Config(format!("cannot index {attribute} {kind}: {why}")))?;
    let number = state
        .attributes
        .number_or_new(schema, txn, known.id(), "")?
        .map_err(|error| Error::Config(error.to_string()))?;
    let indexes = state.indexes.of_mut(known.id(), number);
    if let Some((_, Some(kind))) = KIND_WORDS.iter().find(|(word, _)| *word == kind) {
        txn.create_index(indexes.index(*kind))?;
    }
    if let Some(place) = place_of(indexes, kind) {
        *place = completeness;
    }
    Ok(known.id())
}

/// The generation of the change feed; `None` if it never had one.
pub(crate) fn feed_generation<R: Read>(read: &R) -> engine::Result<Option<u64>> {
    let stored = read.get(Table::Meta, GENERATION_KEY)?;
    let number = |generation: &[u8]| generation.try_into().map(u64::from_be_bytes);
    let generation = stored.map(|stored| number(&stored)).transpose();
    generation.map_err(|_| {
        engine::Error::Corrupt("the generation of the change feed has not eight bytes".into())
    })
}

/// Sets the generation of the change feed.
pub(crate) fn put_feed_generation<W: Write>(txn: &mut W, generation: u64) -> engine::Result<()> {
    txn.put(Table::Meta, GENERATION_KEY, &generation.to_be_bytes())
}
