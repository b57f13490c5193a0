//! `linked`: an entry that another one names in an attribute names that one in turn, as the linked attributes of 389
//! Directory Server have it. What names an entry is never looked for: each update tells which names have come and gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use sapwood_ldap::list::{ChangeKind, ChangesBuf};
use sapwood_ldap::result::ResultCode;

use super::{After, Existing, Rule, modify_message};
use crate::config::LinkedRule;
use crate::config::linked::ATTRIBUTE;
use crate::engine::{Index, Read};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::outcome::Stop;
use crate::reindex::{Side, each_value};
use crate::schema::{AttributeType, AttributeTypeId, NormalDn, Schema};
use crate::state::State;

/// Who changes the entries that are named.
const MODIFIER: &str = "cn=linked attributes";

/// An instance of the rule, ready.
#[derive(Debug)]
pub(super) struct Linked {
    link: AttributeTypeId,
    managed: AttributeTypeId,
    modifier: Arc<str>,
}

/// What an entry names, by the normal form.
type Links = BTreeMap<Vec<u8>, NormalDn>;

impl Linked {
    pub(super) fn new(schema: &Schema, rule: &LinkedRule) -> Result<Linked> {
        let wrong = |why: String| Error::Config(format!("{ATTRIBUTE}: {why}"));
        let attribute = |name: &String| {
            let known = schema
                .attribute_type(name.as_bytes())
                .ok_or_else(|| wrong(format!("the schema does not define '{name}'")))?;
            if !known.syntax().is_some_and(|syntax| syntax.is_name()) {
                return Err(wrong(format!(
                    "{name} does not name entries: its values are no DNs"
                )));
            }
            if known.is_operational() {
                return Err(wrong(format!("{name} is kept by the server")));
            }
            Ok(known)
        };
        let (link, managed) = (attribute(&rule.link)?, attribute(&rule.managed)?);
        if link.id() == managed.id() {
            return Err(wrong(format!(
                "{} cannot be linked with itself",
                link.name()
            )));
        }
        if managed.is_single_value() {
            let name = managed.name();
            return Err(wrong(format!(
                "{name} has one value, and several entries may name one"
            )));
        }
        Ok(Linked {
            link: link.id(),
            managed: managed.id(),
            modifier: MODIFIER.into(),
        })
    }

    /// What an entry names on a side; of a large attribute, what it names on that side alone.
    fn links(
        &self,
        (schema, state): (&Schema, &State),
        side: &Side<'_>,
    ) -> std::result::Result<Links, crate::entry::Damaged> {
        let known: &AttributeType = schema.type_of(self.link);
        let mut links = Links::new();
        each_value(&state.attributes, self.link, side, |value| {
            let mut name = NormalDn::new();
            if name.parse(schema, schema.name_in(known, value)).is_ok() {
                links.insert(name.bytes().to_vec(), name);
            }
        })?;
        Ok(links)
    }

    /// Whether an entry has so many links that not all are at hand.
    fn is_large(&self, state: &State, side: &Side<'_>) -> bool {
        let numbers = state.attributes.numbers_of(self.link);
        side.records.as_ref().is_some_and(|[entry, _]| {
            let mut large = entry.large();
            large.any(|large| numbers.contains(&large.number))
        })
    }

    /// The modify of an entry that is named.
    fn message(&self, schema: &Schema, dn: &str, was: Option<&str>, is: Option<&str>) -> Vec<u8> {
        let description = schema.type_of(self.managed).name().as_bytes();
        let mut changes = ChangesBuf::default();
        for (kind, name) in [(ChangeKind::Delete, was), (ChangeKind::Add, is)] {
            if let Some(name) = name {
                changes.push(kind, description, [name.as_bytes()]);
            }
        }
        modify_message(dn, changes.view())
    }

    /// Queues that an entry is named by another name, or not at all any more. One that is not there names nobody.
    fn tell<R: Read>(
        &self,
        update: &mut After<'_, R>,
        named: &NormalDn,
        (was, is): (Option<&str>, Option<&str>),
    ) -> std::result::Result<(), Stop> {
        let walk = names::walk(update.view, &update.state.contexts, named)?;
        let Some(found) = walk.and_then(|walk| walk.found()) else {
            return Ok(());
        };
        let dn = names::dn_of(update.view, found.id)?;
        let message = self.message(update.schema, &dn, was, is);
        update.queue.push(message, Some(Arc::clone(&self.modifier)))
    }
}

impl Rule for Linked {
    fn indexes(&self, _: &State) -> impl Iterator<Item = Index> {
        std::iter::empty()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        let (id, schema) = (existing.id, existing.schema);
        let links = self.links((schema, existing.state), existing.side);
        let links = links.map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        if links.is_empty() {
            return Ok(());
        }
        let own = names::normal_dn_of(existing.view, schema, id)?;
        for named in links.values() {
            let walk = names::walk(existing.view, &existing.state.contexts, named)?;
            let Some(found) = walk.and_then(|walk| walk.found()) else {
                continue;
            };
            let record = existing
                .view
                .get(crate::engine::Table::Entry, &found.id.to_key())?;
            let record = record
                .ok_or_else(|| Error::corrupt(format!("entry {} has no record", found.id)))?;
            let damaged = |damaged| Error::corrupt(format!("entry {}: {damaged}", found.id));
            let entry = Entry::new(&record).map_err(damaged)?;
            if !self
                .names_back((schema, existing.state), &entry, &own)
                .map_err(damaged)?
            {
                let (dn, of) = (names::dn_of(existing.view, id)?, existing.view);
                let (link, managed) = (schema.type_of(self.link), schema.type_of(self.managed));
                existing.violations.push(format!(
                    "'{dn}' names '{}' in {}, which does not name it in {}",
                    names::dn_of(of, found.id)?,
                    link.name(),
                    managed.name()
                ));
            }
        }
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let (old, new, id) = (*update.old, *update.new, update.id);
        let sources = (update.schema, update.state);
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let mut had = self.links(sources, &old).map_err(damaged)?;
        let mut has = self.links(sources, &new).map_err(damaged)?;
        let was = update.name(&old)?;
        let is = update.name(&new)?;
        let is_renamed = was.is_some() && was != is;
        if is_renamed && self.is_large(update.state, &old) {
            let name = update.schema.type_of(self.link).name();
            let diagnostic =
                format!("{name}: the entry names too many others to be renamed or deleted");
            return Err(Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic));
        }
        if !is_renamed {
            had.retain(|key, _| has.remove(key).is_none());
        }
        for (key, named) in &had {
            let stays = has.remove(key);
            let now = stays.and(is.as_deref());
            self.tell(update, named, (was.as_deref(), now))?;
        }
        for named in has.values() {
            self.tell(update, named, (None, is.as_deref()))?;
        }
        Ok(())
    }
}

impl Linked {
    /// Whether an entry names another one in turn.
    fn names_back(
        &self,
        (schema, state): (&Schema, &State),
        entry: &Entry<'_>,
        other: &NormalDn,
    ) -> std::result::Result<bool, crate::entry::Damaged> {
        for number in state.attributes.numbers_of(self.managed) {
            if entry.large().any(|large| large.number == *number) {
                // Not looked at: there are very many.
                return Ok(true);
            }
            let Some(stored) = entry.attribute(*number)? else {
                continue;
            };
            let known = schema.type_of(self.managed);
            for value in stored.values() {
                let mut name = NormalDn::new();
                if name.parse(schema, schema.name_in(known, value)).is_ok() && name == *other {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
