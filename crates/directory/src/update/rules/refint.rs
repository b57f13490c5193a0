//! `refint`: values that name an entry follow it when it gets another name, and vanish with it, as OpenLDAP's
//! slapo-refint and the referential integrity of 389 Directory Server have it.
//!
//! Who names an entry is looked up in the equality index. Names stand there with the part next to the root first, so
//! that all that name something at or below an entry stand in one range: a rename costs what is to follow, however
//! many entries are below the one that is renamed. What follows is one modify for each entry that has such values,
//! queued behind the update.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::{ChangeKind, ChangesBuf};
use sapwood_ldap::result::ResultCode;

use super::{
    After, CANDIDATES_MAX, Existing, Rule, WAITING_BYTES_MAX, complete, complete_or_refused,
    equality_of, modify_message,
};
use crate::attributes::AttributeTable;
use crate::config::RefintRule;
use crate::config::refint::{ATTRIBUTE, DEFAULT_MODIFIER, NOTHING};
use crate::engine::{AttributeNo, Cursor, EntryId, Index, IndexKind, Range, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::indexes::{can_index, keys_below};
use crate::large;
use crate::names::{self, if_named};
use crate::outcome::Stop;
use crate::reindex::each_value;
use crate::schema::{AttributeType, AttributeTypeId, NormalDn, Schema};
use crate::state::State;
use crate::steps;

/// Values that may follow one update: nobody else's update goes on meanwhile.
const VALUES_MAX: usize = 200_000;

/// The rule, ready.
#[derive(Debug)]
pub(super) struct Refint {
    attributes: Vec<AttributeTypeId>,
    /// What takes the place of the last value, and its normal form.
    nothing: Option<(String, NormalDn)>,
    modifier: Arc<str>,
}

/// A name that is no entry's any more.
struct Former {
    normal: NormalDn,
    /// The DN that the entry has now, as written; none if it was deleted.
    now: Option<String>,
}

impl Former {
    /// The keys of an index of names to look at.
    fn keys(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        keys_below(&self.normal, self.now.is_some())
    }

    /// What becomes of a value that names the entry or, of one that was renamed, what is below it: another value, or
    /// none. A value that names something else stays as it is.
    fn follow(&self, schema: &Schema, known: &AttributeType, value: &[u8]) -> Fate {
        steps::count(1);
        let name = schema.name_in(known, value);
        let mut normal = NormalDn::new();
        if normal.parse(schema, name).is_err() || !normal.is_at_or_below(&self.normal) {
            return Fate::Stays;
        }
        let below = normal.len() - self.normal.len();
        let Some(now) = &self.now else {
            return if below == 0 { Fate::Goes } else { Fate::Stays };
        };
        let Ok(dn) = Dn::from_bytes(name) else {
            return Fate::Stays;
        };
        let mut rest = dn;
        for _ in 0..below {
            rest = rest.parent().unwrap_or_default();
        }
        // What is above is the end of the text.
        let (first, _) = dn
            .as_str()
            .split_at(dn.as_str().len() - rest.as_str().len());
        let uid = &value[name.len()..];
        Fate::Becomes([first.as_bytes(), now.as_bytes(), uid].concat())
    }
}

/// What becomes of a value.
enum Fate {
    Stays,
    Goes,
    Becomes(Vec<u8>),
}

/// What becomes of the values of one attribute of an entry.
#[derive(Default)]
struct Edit {
    goes: Vec<Vec<u8>>,
    comes: Vec<Vec<u8>>,
    /// How many values there are before.
    count: usize,
}

impl Edit {
    fn take(&mut self, value: &[u8], fate: Fate, room: &mut Room) -> std::result::Result<(), Stop> {
        match fate {
            Fate::Stays => return Ok(()),
            Fate::Goes => room.take(value.len())?,
            Fate::Becomes(new) => {
                room.take(value.len() + new.len())?;
                self.comes.push(new);
            }
        }
        self.goes.push(value.to_vec());
        Ok(())
    }
}

/// What may still follow an update.
struct Room {
    values: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> std::result::Result<(), Stop> {
        match (self.values.checked_sub(1), self.bytes.checked_sub(bytes)) {
            (Some(values), Some(bytes)) => {
                *self = Room { values, bytes };
                Ok(())
            }
            _ => Err(too_many()),
        }
    }
}

fn too_many() -> Stop {
    let diagnostic = format!(
        "referential integrity: the entry, and what is below it, is named by more than {CANDIDATES_MAX} entries, by more \
         than {VALUES_MAX} values, or by values of more than {} MiB: too many to follow one update",
        WAITING_BYTES_MAX >> 20
    );
    Stop::refuse(ResultCode::AdminLimitExceeded, diagnostic)
}

impl Refint {
    pub(super) fn new(schema: &Schema, rule: &RefintRule) -> Result<Refint> {
        let wrong = |why: String| Error::Config(format!("{ATTRIBUTE}: {why}"));
        if rule.attributes.is_empty() {
            return Err(wrong("name one attribute at least".into()));
        }
        let attribute = |name: &String| {
            let known = schema
                .attribute_type(name.as_bytes())
                .ok_or_else(|| wrong(format!("the schema does not define '{name}'")))?;
            if !known.syntax().is_some_and(|syntax| syntax.is_name()) {
                return Err(wrong(format!(
                    "{name} does not name entries: its values are no DNs"
                )));
            }
            if known.is_no_user_modification() || known.is_operational() {
                return Err(wrong(format!("{name} is kept by the server")));
            }
            can_index(known, IndexKind::Equality)
                .map_err(|why| wrong(format!("{name} cannot be looked up: {why}")))?;
            Ok(known.id())
        };
        let nothing = match rule.nothing.as_str() {
            "" => None,
            dn => {
                let mut normal = NormalDn::new();
                normal.parse(schema, dn.as_bytes()).map_err(|error| {
                    Error::Config(format!("{NOTHING}: '{dn}' is not a DN: {error}"))
                })?;
                Some((dn.to_owned(), normal))
            }
        };
        let modifier = match rule.modifier.as_str() {
            "" => DEFAULT_MODIFIER,
            own => own,
        };
        Ok(Refint {
            attributes: rule
                .attributes
                .iter()
                .map(attribute)
                .collect::<Result<_>>()?,
            nothing,
            modifier: modifier.into(),
        })
    }

    /// The entries that have values of an attribute to be looked at, with the place of the attribute.
    fn referrers<R: Read>(
        &self,
        update: &After<'_, R>,
        former: &Former,
    ) -> std::result::Result<BTreeSet<(EntryId, usize)>, Stop> {
        let mut found = BTreeSet::new();
        let (from, to) = former.keys();
        let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = Range {
            from: Bound::Included(&from),
            to,
        };
        let (mut values, mut is_full) = (0, false);
        for (place, attribute) in self.attributes.iter().enumerate() {
            let Some(indexed) = complete(update.state, *attribute) else {
                let name = update.schema.type_of(*attribute).name();
                let diagnostic = format!(
                    "{name}: values follow entries that are renamed or deleted, and there is no complete equality index \
                     to find them by: the administrator can make one"
                );
                return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
            };
            let index = indexed.index(IndexKind::Equality);
            update.view.scan_index(index, range, |_, id| {
                steps::count(1);
                found.insert((id, place));
                values += 1;
                is_full = values > VALUES_MAX || found.len() > *update.candidates_left as usize;
                !is_full
            })?;
            if is_full {
                return Err(too_many());
            }
        }
        Ok(found)
    }

    /// What becomes of the values of an attribute of an entry: for each of its descriptions that has some to follow.
    fn edits<R: Read>(
        &self,
        update: &After<'_, R>,
        (id, entry): (EntryId, &Entry<'_>),
        (attribute, former): (AttributeTypeId, &Former),
        room: &mut Room,
    ) -> std::result::Result<Vec<(AttributeNo, Edit)>, Stop> {
        let schema = update.schema;
        let known = schema.type_of(attribute);
        let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
        let mut edits = Vec::new();
        for number in update.state.attributes.numbers_of(attribute) {
            let mut edit = Edit::default();
            if let Some(stored) = entry.attribute(*number).map_err(damaged)? {
                for value in stored.values() {
                    edit.count += 1;
                    edit.take(value, former.follow(schema, known, value), room)?;
                }
            } else if let Some(large) = entry.large().find(|large| large.number == *number) {
                edit.count = large.count as usize;
                let (from, to) = former.keys();
                let mut values =
                    large::scan_normal(update.view, id, *number, (&from, to.as_deref()))?;
                while let Some((_, value)) = values.next()? {
                    edit.take(value, former.follow(schema, known, value), room)?;
                }
            }
            if !edit.goes.is_empty() {
                edits.push((*number, edit));
            }
        }
        Ok(edits)
    }

    /// The modify of an entry.
    fn message(
        &self,
        dn: &str,
        attributes: &AttributeTable,
        edits: &[(AttributeNo, Edit)],
    ) -> Vec<u8> {
        let mut changes = ChangesBuf::default();
        for (number, edit) in edits {
            let description = attributes.get(*number).map_or("", |known| known.text());
            let description = description.as_bytes();
            changes.push(
                ChangeKind::Delete,
                description,
                edit.goes.iter().map(Vec::as_slice),
            );
            if !edit.comes.is_empty() {
                changes.push(
                    ChangeKind::Add,
                    description,
                    edit.comes.iter().map(Vec::as_slice),
                );
            } else if edit.goes.len() == edit.count
                && let Some((nothing, _)) = &self.nothing
            {
                changes.push(ChangeKind::Add, description, [nothing.as_bytes()]);
            }
        }
        modify_message(dn, changes.view())
    }
}

impl Refint {
    /// Queues what follows from an entry having lost a name.
    fn follow<R: Read>(
        &self,
        update: &mut After<'_, R>,
        former: &Former,
    ) -> std::result::Result<(), Stop> {
        let referrers = self.referrers(update, former)?;
        let mut room = Room {
            values: VALUES_MAX,
            bytes: WAITING_BYTES_MAX,
        };
        let mut referrers = referrers.into_iter().peekable();
        while let Some((id, place)) = referrers.next() {
            let mut places = vec![place];
            while let Some((_, place)) = referrers.next_if(|(next, _)| *next == id) {
                places.push(place);
            }
            let record = update.view.get(Table::Entry, &id.to_key())?;
            let record =
                record.ok_or_else(|| Error::corrupt(format!("entry {id} is indexed only")))?;
            let entry = Entry::new(&record)
                .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
            let mut edits = Vec::new();
            for place in places {
                let attribute = self.attributes[place];
                edits.extend(self.edits(update, (id, &entry), (attribute, former), &mut room)?);
            }
            if edits.is_empty() {
                continue;
            }
            let looked_at = 1 + update.names.take_read();
            let left = update.candidates_left.checked_sub(looked_at);
            *update.candidates_left = left.ok_or_else(too_many)?;
            let Some(dn) = if_named(dn(update, &entry))? else {
                continue;
            };
            let message = self.message(&dn, &update.state.attributes, &edits);
            update
                .queue
                .push(message, Some(Arc::clone(&self.modifier)))?;
        }
        Ok(())
    }

    /// Whether a value names an entry that this directory would have, and does not.
    fn names_nothing<R: Read>(
        &self,
        (view, schema, state): (&R, &Schema, &State),
        known: &AttributeType,
        value: &[u8],
    ) -> Result<bool> {
        let name = schema.name_in(known, value);
        let mut normal = NormalDn::new();
        if normal.parse(schema, name).is_err()
            || names::context_of(&state.contexts, &normal).is_none()
            || matches!(&self.nothing, Some((_, nothing)) if *nothing == normal)
        {
            return Ok(false);
        }
        let walk = names::walk(view, &state.contexts, &normal)?;
        Ok(walk.and_then(|walk| walk.found()).is_none())
    }
}

impl Rule for Refint {
    fn sees_adds(&self) -> bool {
        false
    }

    fn indexes(&self, state: &State) -> impl Iterator<Item = Index> {
        equality_of(state, &self.attributes)
    }

    fn check(&self, schema: &Schema, state: &State) -> Result<()> {
        let what = "values that name an entry";
        complete_or_refused((schema, state), &self.attributes, (ATTRIBUTE, what))
    }

    fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        let (view, schema, state, id) =
            (existing.view, existing.schema, existing.state, existing.id);
        for attribute in &self.attributes {
            let known = schema.type_of(*attribute);
            let mut dangling = Vec::new();
            let mut failed = Ok(());
            each_value(
                &state.attributes,
                *attribute,
                existing.side,
                |value| match self.names_nothing((view, schema, state), known, value) {
                    Ok(true) => dangling.push(String::from_utf8_lossy(value).into_owned()),
                    Ok(false) => {}
                    Err(error) => failed = Err(error),
                },
            )
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
            failed?;
            for value in dangling {
                if existing.violations.is_full() {
                    return Ok(());
                }
                let (name, dn) = (known.name(), names::dn_of(view, id)?);
                existing
                    .violations
                    .push(format!("{name}: '{value}' in '{dn}' is no entry's name"));
            }
        }
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let (old, new) = (*update.old, *update.new);
        let Some([old, _]) = &old.records else {
            return Ok(());
        };
        let new = new.records.as_ref().map(|[new, _]| new);
        if let Some(new) = new
            && !update.is_renamed(old, new)
        {
            return Ok(());
        }
        let mut normal = NormalDn::new();
        let was = dn(update, old)?;
        normal
            .parse(update.schema, was.as_bytes())
            .map_err(|invalid| {
                let id = update.id;
                Error::corrupt(format!("entry {id} had the DN {was:?}: {invalid}"))
            })?;
        let now = new.map(|new| dn(update, new)).transpose()?;
        self.follow(update, &Former { normal, now })
    }
}

/// The DN of an entry as written.
fn dn<R: Read>(update: &mut After<'_, R>, entry: &Entry<'_>) -> Result<String> {
    let id = update.id;
    let damaged = |damaged| Error::corrupt(format!("entry {id}: {damaged}"));
    let mut dn = entry.rdn().map_err(damaged)?.to_owned();
    if let Some(superior) = update.names.superior(update.view, entry.parent())? {
        dn.push(',');
        dn.push_str(&superior.dn);
    }
    Ok(dn)
}
