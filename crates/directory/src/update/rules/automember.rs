//! `automember`: entries that a filter is true of are members of a group, as the automatic membership of 389 Directory
//! Server has it. An entry that comes to match becomes a member with the same update, and one that no longer does, or
//! is deleted, is none any more; one that is renamed is a member by its new name.

use std::sync::Arc;

use sapwood_ldap::list::{ChangeKind, ChangesBuf};

use super::plain_filter::PlainFilter;
use super::{After, Rule, modify_message};
use crate::config::AutomemberRule;
use crate::config::automember::ATTRIBUTE;
use crate::engine::{Index, Read};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names::{self, if_named};
use crate::outcome::Stop;
use crate::reindex::{Side, each_value};
use crate::schema::{NormalDn, Schema};
use crate::state::State;

/// Who changes groups.
const MODIFIER: &str = "cn=automember";

/// An instance of the rule, ready.
#[derive(Debug)]
pub(super) struct Automember {
    group: NormalDn,
    member: String,
    filter: PlainFilter,
    base: Option<NormalDn>,
    modifier: Arc<str>,
}

fn wrong(why: String) -> Error {
    Error::Config(format!("{ATTRIBUTE}: {why}"))
}

impl Automember {
    pub(super) fn new(schema: &Schema, state: &State, rule: &AutomemberRule) -> Result<Automember> {
        let name = |dn| names::within_contexts(schema, &state.contexts, dn).map_err(wrong);
        let known = schema.attribute_type(rule.member.as_bytes());
        let known =
            known.ok_or_else(|| wrong(format!("the schema does not define '{}'", rule.member)))?;
        if !known.syntax().is_some_and(|syntax| syntax.is_name()) || known.is_operational() {
            return Err(wrong(format!("{} names no members", known.name())));
        }
        let filter = PlainFilter::new(schema, &rule.filter);
        Ok(Automember {
            group: name(&rule.group)?,
            member: known.name().to_owned(),
            filter: filter.map_err(|why| wrong(format!("the filter: {why}")))?,
            base: match rule.base.as_str() {
                "" => None,
                dn => Some(name(dn)?),
            },
            modifier: MODIFIER.into(),
        })
    }

    /// The DN of an entry that is a member; none of one that is not.
    fn member<R: Read>(
        &self,
        update: &mut After<'_, R>,
        side: &Side<'_>,
    ) -> Result<Option<String>> {
        let Some([entry, _]) = &side.records else {
            return Ok(None);
        };
        let (schema, attributes, id) = (update.schema, &update.state.attributes, update.id);
        let values = |known| {
            let mut values = Vec::new();
            // A record that cannot be read has no values here, and is told of where it is read.
            let _ = each_value(attributes, known, side, |value| values.push(value.to_vec()));
            values
        };
        if !self.filter.matches(schema, &values) {
            return Ok(None);
        }
        let dn = dn(update, entry)?;
        let mut normal = NormalDn::new();
        normal.parse(schema, dn.as_bytes()).map_err(|invalid| {
            Error::corrupt(format!("entry {id} has the DN {dn:?}: {invalid}"))
        })?;
        let is_covered = self
            .base
            .as_ref()
            .is_none_or(|base| normal.is_at_or_below(base));
        Ok((is_covered && normal != self.group).then_some(dn))
    }

    /// The modify of the group, for a member that comes and names that go.
    fn message(&self, group: &str, comes: Option<&str>, go: &[String]) -> Vec<u8> {
        let mut changes = ChangesBuf::default();
        let member = self.member.as_bytes();
        // A group that must have a member has one meanwhile.
        if let Some(comes) = comes {
            changes.push(ChangeKind::Add, member, [comes.as_bytes()]);
        }
        if !go.is_empty() {
            changes.push(ChangeKind::Delete, member, go.iter().map(String::as_bytes));
        }
        modify_message(group, changes.view())
    }
}

impl Rule for Automember {
    fn indexes(&self, _: &State) -> impl Iterator<Item = Index> {
        std::iter::empty()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let (old, new) = (*update.old, *update.new);
        let (was, is) = (self.member(update, &old)?, self.member(update, &new)?);
        if was == is {
            return Ok(());
        }
        // A group that is not there has no members.
        let walk = names::walk(update.view, &update.state.contexts, &self.group)?;
        let Some(group) = walk.and_then(|walk| walk.found()) else {
            return Ok(());
        };
        let group = names::dn_of(update.view, group.id)?;
        let mut go = Vec::from_iter(was);
        // Referential integrity may have given it the name that the entry has now.
        if let (None, Some([entry, _])) = (&is, &new.records) {
            let now = dn(update, entry)?;
            if !go.contains(&now) {
                go.push(now);
            }
        }
        let message = self.message(&group, is.as_deref(), &go);
        update.queue.push(message, Some(Arc::clone(&self.modifier)))
    }
}

/// The DN of an entry as written.
fn dn<R: Read>(update: &mut After<'_, R>, entry: &Entry<'_>) -> Result<String> {
    let id = update.id;
    let rdn = entry
        .rdn()
        .map_err(|damaged| Error::corrupt(format!("entry {id}: {damaged}")))?;
    let mut dn = rdn.to_owned();
    let above = if_named(
        update
            .names
            .superior(update.view, entry.parent())
            .map(|above| above.map(|above| above.dn.clone())),
    )?;
    if let Some(above) = above.flatten() {
        dn.push(',');
        dn.push_str(&above);
    }
    Ok(dn)
}
