//! `managed`: an entry that a filter is true of has another one made of it, as the managed entries of 389 Directory
//! Server are, mostly a group of its own. What is made says in its mepManagedBy of which entry, and that one names it
//! in mepManagedEntry. The two belong together while both say so.
//!
//! That names follow entries that are renamed is the business of referential integrity, which comes with this rule.

mod template;

use std::sync::Arc;

use sapwood_ldap::controls::Controls;
use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{AddRequest, Message, ModifyDnRequest, Request};
use sapwood_ldap::result::ResultCode;

use self::template::{Filled, Template};
use super::plain_filter::PlainFilter;
use super::{After, Existing, Origin, Rule, modify_message};
use crate::config::ManagedRule;
use crate::config::managed::{ATTRIBUTE, MANAGED_BY, MANAGED_ENTRY};
use crate::engine::{EntryId, Index, Read, Table};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::outcome::Stop;
use crate::reindex::{Side, each_value};
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;

/// Who makes and changes managed entries.
const MODIFIER: &str = "cn=Managed Entries";

/// The auxiliary classes of entries that others are made of, and of those that are made.
const ORIGIN_CLASS: &str = "mepOriginEntry";
const MANAGED_CLASS: &str = "mepManagedEntry";

/// All rules of this kind, ready: an entry has one other made of it, by the first rule that is about it.
#[derive(Debug)]
pub(super) struct Managed {
    definitions: Vec<Definition>,
    types: Types,
    modifier: Arc<str>,
}

/// One of them.
#[derive(Debug)]
struct Definition {
    template: NormalDn,
    /// The DN below which entries are made, as it is written.
    below: String,
    filter: PlainFilter,
    base: Option<NormalDn>,
}

/// The attribute types that say what belongs together.
#[derive(Debug)]
struct Types {
    managed_entry: AttributeTypeId,
    managed_by: AttributeTypeId,
    object_class: AttributeTypeId,
}

/// What a rule reads entries from.
struct Data<'a, R> {
    view: &'a R,
    schema: &'a Schema,
    state: &'a State,
}

/// An entry on one side of an update.
struct Seen<'a> {
    id: EntryId,
    side: Side<'a>,
    dn: String,
    normal: NormalDn,
}

fn wrong(why: String) -> Error {
    Error::Config(format!("{ATTRIBUTE}: {why}"))
}

fn refuse(diagnostic: String) -> Stop {
    Stop::refuse(ResultCode::UnwillingToPerform, diagnostic)
}

impl<R: Read> Data<'_, R> {
    /// The values that an entry has of an attribute, but for those of an attribute of very many.
    fn values(&self, id: EntryId, known: AttributeTypeId, side: &Side<'_>) -> Result<Vec<Vec<u8>>> {
        let mut values = Vec::new();
        each_value(&self.state.attributes, known, side, |value| {
            values.push(value.to_vec());
        })
        .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        Ok(values)
    }

    /// Reads the entry of a name, if it is there.
    fn read<T>(
        &self,
        name: &NormalDn,
        look: impl FnOnce(EntryId, &Side<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let walk = names::walk(self.view, &self.state.contexts, name)?;
        let Some(found) = walk.and_then(|walk| walk.found()) else {
            return Ok(None);
        };
        let id = found.id;
        let record = self.view.get(Table::Entry, &id.to_key())?;
        let record = record.ok_or_else(|| Error::corrupt(format!("entry {id} has no record")))?;
        let entry = Entry::new(&record)
            .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
        look(id, &Side::of([entry, Entry::EMPTY])).map(Some)
    }

    /// Whether an attribute of an entry has a value that is this name.
    fn names(
        &self,
        id: EntryId,
        attribute: AttributeTypeId,
        side: &Side<'_>,
        name: &NormalDn,
    ) -> Result<bool> {
        let values = self.values(id, attribute, side)?;
        let mut values = values.iter().filter_map(|value| self.normal(value));
        Ok(values.any(|value| value == *name))
    }

    fn normal(&self, value: &[u8]) -> Option<NormalDn> {
        let mut normal = NormalDn::new();
        normal.parse(self.schema, value).ok().map(|()| normal)
    }

    /// The entry on a side of an update, if it is there.
    fn seen<'s>(&self, update: &mut After<'_, R>, side: &Side<'s>) -> Result<Option<Seen<'s>>> {
        let Some(dn) = update.name(side)? else {
            return Ok(None);
        };
        let id = update.id;
        let normal = self.normal(dn.as_bytes());
        let normal =
            normal.ok_or_else(|| Error::corrupt(format!("entry {id} has the DN {dn:?}")))?;
        Ok(Some(Seen {
            id,
            side: *side,
            dn,
            normal,
        }))
    }
}

impl Managed {
    /// # Errors
    /// When a rule names what the schema or the directory does not have.
    pub(super) fn new(schema: &Schema, state: &State, rules: &[ManagedRule]) -> Result<Managed> {
        let known = |name: &str| {
            let known = schema.attribute_type(name.as_bytes());
            let known = known.ok_or_else(|| wrong(format!("the schema does not define '{name}'")));
            known.map(|known| known.id())
        };
        let name =
            |dn: &str| names::within_contexts(schema, &state.contexts, dn).map_err(wrong);
        let definition = |rule: &ManagedRule| {
            let filter = PlainFilter::new(schema, &rule.filter);
            name(&rule.below)?;
            Ok(Definition {
                template: name(&rule.template)?,
                below: rule.below.clone(),
                filter: filter.map_err(|why| wrong(format!("the filter: {why}")))?,
                base: match rule.base.as_str() {
                    "" => None,
                    dn => Some(name(dn)?),
                },
            })
        };
        Ok(Managed {
            definitions: rules.iter().map(definition).collect::<Result<_>>()?,
            types: Types {
                managed_entry: known(MANAGED_ENTRY)?,
                managed_by: known(MANAGED_BY)?,
                object_class: schema.well_known().object_class,
            },
            modifier: MODIFIER.into(),
        })
    }

    /// The rule by which another entry is made of one, whether or not one was made.
    fn definition<R: Read>(
        &self,
        data: &Data<'_, R>,
        (id, side, name): (EntryId, &Side<'_>, &NormalDn),
    ) -> Result<Option<&Definition>> {
        // What was made of an entry has nothing made of it.
        if !data.values(id, self.types.managed_by, side)?.is_empty() {
            return Ok(None);
        }
        let values = |known| data.values(id, known, side).unwrap_or_default();
        let is_covered = |definition: &&Definition| {
            let base = definition.base.as_ref();
            base.is_none_or(|base| name.is_at_or_below(base))
                && *name != definition.template
                && definition.filter.matches(data.schema, &values)
        };
        Ok(self.definitions.iter().find(is_covered))
    }

    /// The template of a rule; why it cannot be used, or that it is not there.
    fn template<R: Read>(
        &self,
        data: &Data<'_, R>,
        definition: &Definition,
    ) -> Result<std::result::Result<Template, String>> {
        let read = data.read(&definition.template, |id, side| {
            let values = |known| data.values(id, known, side);
            Template::read(data.schema, values)
        })?;
        Ok(read.unwrap_or_else(|| Err("it is not there".to_owned())))
    }

    fn template_or_refused<R: Read>(
        &self,
        data: &Data<'_, R>,
        definition: &Definition,
    ) -> std::result::Result<Template, Stop> {
        self.template(data, definition)?
            .map_err(|why| refuse(format!("the template of a managed entry: {why}")))
    }

    /// The name of the entry that was made of one, if that says so, too.
    fn made_of<R: Read>(&self, data: &Data<'_, R>, origin: &Seen<'_>) -> Result<Option<String>> {
        let links = data.values(origin.id, self.types.managed_entry, &origin.side)?;
        for link in links {
            let Some(name) = data.normal(&link) else {
                continue;
            };
            let says_so = data.read(&name, |id, side| {
                data.names(id, self.types.managed_by, side, &origin.normal)
            })?;
            if says_so == Some(true) {
                return Ok(String::from_utf8(link).ok());
            }
        }
        Ok(None)
    }

    /// Whether an entry has a class, as far as it names it.
    fn has_class<R: Read>(
        &self,
        data: &Data<'_, R>,
        (id, side): (EntryId, &Side<'_>),
        class: &str,
    ) -> Result<bool> {
        let classes = data.values(id, self.types.object_class, side)?;
        let mut classes = classes.iter();
        Ok(classes.any(|own| own.eq_ignore_ascii_case(class.as_bytes())))
    }

    /// Refuses what would have an entry that was made say something else than the one that it was made of.
    fn protect<R: Read>(
        &self,
        data: &Data<'_, R>,
        was: &Seen<'_>,
        is: Option<&Seen<'_>>,
    ) -> std::result::Result<(), Stop> {
        let owners = data.values(was.id, self.types.managed_by, &was.side)?;
        for owner in owners {
            let Some(name) = data.normal(&owner) else {
                continue;
            };
            let managing = data.read(&name, |id, side| {
                let is_managed = data.names(id, self.types.managed_entry, side, &was.normal)?;
                let definition = self.definition(data, (id, side, &name))?;
                Ok(definition.filter(|_| is_managed))
            })?;
            let Some(definition) = managing.flatten() else {
                continue;
            };
            let owner = String::from_utf8_lossy(&owner);
            let what = match is {
                None => "be deleted",
                Some(is) if is.normal != was.normal => "be renamed",
                Some(is) if !data.names(is.id, self.types.managed_by, &is.side, &name)? => {
                    "lose its mepManagedBy"
                }
                Some(is) => {
                    let Ok(template) = self.template(data, definition)? else {
                        continue;
                    };
                    for known in template.mapped() {
                        let sorted = |seen: &Seen<'_>| {
                            let mut values = data.values(seen.id, known, &seen.side)?;
                            values.sort_unstable();
                            Ok::<_, Error>(values)
                        };
                        if sorted(was)? != sorted(is)? {
                            let name = data.schema.type_of(known).name();
                            let diagnostic = format!(
                                "{name}: the entry is managed, and has what '{owner}' has: change that one"
                            );
                            return Err(refuse(diagnostic));
                        }
                    }
                    continue;
                }
            };
            return Err(refuse(format!(
                "the entry is managed by '{owner}', and cannot {what} unless that one goes or loses its mepManagedEntry \
                 before"
            )));
        }
        Ok(())
    }

    /// Refuses what would leave a rule without a template that can be used.
    fn keep_template<R: Read>(
        &self,
        data: &Data<'_, R>,
        was: &Seen<'_>,
        is: Option<&Seen<'_>>,
    ) -> std::result::Result<(), Stop> {
        let mut definitions = self.definitions.iter();
        if !definitions.any(|definition| definition.template == was.normal) {
            return Ok(());
        }
        let Some(is) = is.filter(|is| is.normal == was.normal) else {
            let diagnostic = "the entry is the template of a rule of managed entries: drop the rule first, or give it \
                              another one";
            return Err(refuse(diagnostic.to_owned()));
        };
        let values = |known| data.values(is.id, known, &is.side);
        match Template::read(data.schema, values)? {
            Ok(_) => Ok(()),
            Err(why) => Err(refuse(format!("the template of managed entries: {why}"))),
        }
    }

    fn push<R>(&self, update: &mut After<'_, R>, op: Request<'_>) -> std::result::Result<(), Stop> {
        let mut message = Vec::new();
        Message {
            id: 1,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut message);
        update.queue.push(message, Some(Arc::clone(&self.modifier)))
    }

    /// Queues that an entry is made of another one, and named there.
    fn make<R: Read>(
        &self,
        update: &mut After<'_, R>,
        (data, definition): (&Data<'_, R>, &Definition),
        origin: &Seen<'_>,
    ) -> std::result::Result<(), Stop> {
        let template = self.template_or_refused(data, definition)?;
        let Filled { rdn, values } = template.fill((data.schema, data.state), &origin.side)?;
        let dn = format!("{rdn},{}", definition.below);
        let mut attributes = AttributesBuf::default();
        let mut has_classes = false;
        for (description, values) in &values {
            let is_class = description.eq_ignore_ascii_case("objectClass");
            has_classes |= is_class;
            let class = is_class.then_some(MANAGED_CLASS.as_bytes());
            let given = values.iter().map(Vec::as_slice);
            let given =
                given.filter(|value| class.is_none_or(|class| !value.eq_ignore_ascii_case(class)));
            attributes.push(description.as_bytes(), given.chain(class));
        }
        if !has_classes {
            attributes.push(b"objectClass", [MANAGED_CLASS.as_bytes()]);
        }
        attributes.push(MANAGED_BY.as_bytes(), [origin.dn.as_bytes()]);
        let add = AddRequest {
            dn: &dn,
            attributes: attributes.view(),
        };
        self.push(update, Request::Add(add))?;
        let mut changes = ChangesBuf::default();
        changes.push(ChangeKind::Add, b"objectClass", [ORIGIN_CLASS.as_bytes()]);
        changes.push(
            ChangeKind::Replace,
            MANAGED_ENTRY.as_bytes(),
            [dn.as_bytes()],
        );
        let message = modify_message(&origin.dn, changes.view());
        update.queue.push(message, Some(Arc::clone(&self.modifier)))
    }

    /// Queues that what was made of an entry goes.
    fn unmake<R: Read>(
        &self,
        update: &mut After<'_, R>,
        made: &str,
        origin: Option<&Seen<'_>>,
    ) -> std::result::Result<(), Stop> {
        if let Some(origin) = origin {
            let mut changes = ChangesBuf::default();
            changes.push(
                ChangeKind::Delete,
                MANAGED_ENTRY.as_bytes(),
                [made.as_bytes()],
            );
            changes.push(
                ChangeKind::Delete,
                b"objectClass",
                [ORIGIN_CLASS.as_bytes()],
            );
            let message = modify_message(&origin.dn, changes.view());
            update
                .queue
                .push(message, Some(Arc::clone(&self.modifier)))?;
        }
        self.push(update, Request::Delete(made))
    }

    /// Queues that what was made of an entry becomes what would be made of it now.
    fn remake<R: Read>(
        &self,
        update: &mut After<'_, R>,
        (data, definition): (&Data<'_, R>, &Definition),
        made: &str,
        (was, is): (&Seen<'_>, &Seen<'_>),
    ) -> std::result::Result<(), Stop> {
        let template = self.template_or_refused(data, definition)?;
        let sources = (data.schema, data.state);
        let (before, now) = (
            template.fill(sources, &was.side)?,
            template.fill(sources, &is.side)?,
        );
        let mut dn = made.to_owned();
        if before.rdn != now.rdn {
            let rename = ModifyDnRequest {
                dn: made,
                new_rdn: &now.rdn,
                delete_old_rdn: true,
                new_superior: None,
            };
            self.push(update, Request::ModifyDn(rename))?;
            let above = Dn::parse(made).ok().and_then(|dn| dn.parent());
            dn.clone_from(&now.rdn);
            if let Some(above) = above {
                dn.push(',');
                dn.push_str(above.as_str());
            }
        }
        let mut changes = ChangesBuf::default();
        let mut is_any = false;
        for (description, values) in &now.values {
            let former = before.values.iter().find(|(name, _)| name == description);
            if former.is_none_or(|(_, former)| former != values) {
                is_any = true;
                let values = values.iter().map(Vec::as_slice);
                changes.push(ChangeKind::Replace, description.as_bytes(), values);
            }
        }
        for (description, _) in &before.values {
            if now.values.iter().all(|(name, _)| name != description) {
                is_any = true;
                changes.push(ChangeKind::Replace, description.as_bytes(), []);
            }
        }
        if is_any {
            let message = modify_message(&dn, changes.view());
            update
                .queue
                .push(message, Some(Arc::clone(&self.modifier)))?;
        }
        Ok(())
    }

    /// Queues what follows from an entry of which another one is made, or was, or is to be.
    fn follow<R: Read>(
        &self,
        update: &mut After<'_, R>,
        data: &Data<'_, R>,
        (was, is): (Option<&Seen<'_>>, Option<&Seen<'_>>),
    ) -> std::result::Result<(), Stop> {
        let definition = |seen: Option<&Seen<'_>>| match seen {
            Some(seen) => self.definition(data, (seen.id, &seen.side, &seen.normal)),
            None => Ok(None),
        };
        let (had, has) = (definition(was)?, definition(is)?);
        let is_same = matches!((had, has), (Some(had), Some(has)) if std::ptr::eq(had, has));
        let made = match (had, was) {
            (Some(_), Some(was)) => self.made_of(data, was)?,
            _ => None,
        };
        let links = |seen: &Seen<'_>| data.values(seen.id, self.types.managed_entry, &seen.side);
        let is_named = match is {
            Some(is) => !links(is)?.is_empty(),
            None => false,
        };
        if let (Some(made), Some(was)) = (&made, was) {
            match (is, has) {
                // Somebody has parted them.
                (Some(_), _) if !is_named => return Ok(()),
                (Some(is), Some(has)) if is_same => {
                    return self.remake(update, (data, has), made, (was, is));
                }
                _ => self.unmake(update, made, is)?,
            }
        }
        let (Some(is), Some(has)) = (is, has) else {
            return Ok(());
        };
        if is_named && made.is_none() {
            return Ok(());
        }
        let is_asked = match was {
            Some(was) if is_same => {
                self.has_class(data, (is.id, &is.side), ORIGIN_CLASS)?
                    && !self.has_class(data, (was.id, &was.side), ORIGIN_CLASS)?
            }
            _ => true,
        };
        match is_asked {
            true => self.make(update, (data, has), is),
            false => Ok(()),
        }
    }

    /// Whether an update may be this rule's business on a side.
    fn may_concern<R: Read>(
        &self,
        data: &Data<'_, R>,
        (id, side): (EntryId, &Side<'_>),
    ) -> Result<bool> {
        if side.records.is_none() {
            return Ok(false);
        }
        let values = |known| data.values(id, known, side).unwrap_or_default();
        let mut definitions = self.definitions.iter();
        Ok(!data.values(id, self.types.managed_by, side)?.is_empty()
            || Template::may_be(data.schema, values)
            || definitions.any(|definition| definition.filter.matches(data.schema, &values)))
    }
}

impl Rule for Managed {
    fn indexes(&self, _: &State) -> impl Iterator<Item = Index> {
        std::iter::empty()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn look<R: Read>(&self, existing: &mut Existing<'_, R>) -> Result<()> {
        let (id, side) = (existing.id, *existing.side);
        let data = Data {
            view: existing.view,
            schema: existing.schema,
            state: existing.state,
        };
        if !self.may_concern(&data, (id, &side))? {
            return Ok(());
        }
        let name = names::normal_dn_of(data.view, data.schema, id)?;
        let values = |known| data.values(id, known, &side);
        if self.definitions.iter().any(|known| known.template == name)
            && let Err(why) = Template::read(data.schema, values)?
        {
            let dn = names::dn_of(data.view, id)?;
            existing
                .violations
                .push(format!("'{dn}' is no template: {why}"));
        }
        let is_linked = !data.values(id, self.types.managed_entry, &side)?.is_empty();
        let definition = self.definition(&data, (id, &side, &name))?;
        let Some(definition) = definition.filter(|_| !is_linked) else {
            return Ok(());
        };
        let Ok(template) = self.template(&data, definition)? else {
            return Ok(());
        };
        let why = match template.fill((data.schema, data.state), &side) {
            Ok(Filled { rdn, .. }) => {
                let dn = format!("{rdn},{}", definition.below);
                let made = data.normal(dn.as_bytes());
                let taken = made.map(|made| data.read(&made, |_, _| Ok(())));
                match taken.transpose()?.flatten() {
                    Some(()) => format!("'{dn}' is there already"),
                    None => return Ok(()),
                }
            }
            Err(Stop::Refused(outcome)) => outcome.diagnostic,
            Err(Stop::Failed(error)) => return Err(error),
        };
        let dn = names::dn_of(data.view, id)?;
        existing
            .violations
            .push(format!("nothing can be made of '{dn}': {why}"));
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let (old, new, id) = (*update.old, *update.new, update.id);
        let data = Data {
            view: update.view,
            schema: update.schema,
            state: update.state,
        };
        if !self.may_concern(&data, (id, &old))? && !self.may_concern(&data, (id, &new))? {
            return Ok(());
        }
        let was = data.seen(update, &old)?;
        let is = data.seen(update, &new)?;
        if let Some(was) = &was {
            self.keep_template(&data, was, is.as_ref())?;
            if update.origin == Origin::Client {
                self.protect(&data, was, is.as_ref())?;
            }
        }
        self.follow(update, &data, (was.as_ref(), is.as_ref()))
    }
}
