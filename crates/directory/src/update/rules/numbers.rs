//! `numbers`: entries that have no number get one that is free, as the distributed numeric assignment of 389 Directory
//! Server gives them.
//!
//! What is free is asked of the equality index, in the update's own transaction, so that no two entries of a batch, or
//! of writers that write at the same time, get the same. The numbers of a range are mostly taken from its first on, one
//! after the other: the first that is free behind one that is taken is found by looking at a few, not at all.

use std::borrow::Cow;

use sapwood_ldap::result::ResultCode;

use super::plain_filter::PlainFilter;
use super::{Before, Rule, Touched, complete, complete_or_refused, equality_of};
use crate::config::NumbersRule;
use crate::config::numbers::ATTRIBUTE;
use crate::engine::{Index, IndexKind, Postings, Read};
use crate::error::{Error, Result};
use crate::indexes::{can_index, for_each_key};
use crate::names;
use crate::outcome::Stop;
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;
use crate::steps;

/// The syntax INTEGER (RFC 4517 §3.3.16).
const INTEGER: &str = "1.3.6.1.4.1.1466.115.121.1.27";

/// Numbers that are looked up one after the other for one attribute of an update, where all that are looked at first
/// are taken.
const LOOKED_UP_MAX: u64 = 100_000;

/// An instance of the rule, ready.
#[derive(Debug)]
pub(super) struct Numbers {
    attributes: Vec<AttributeTypeId>,
    filter: PlainFilter,
    range: (u64, u64),
    base: Option<NormalDn>,
}

fn wrong(why: String) -> Error {
    Error::Config(format!("{ATTRIBUTE}: {why}"))
}

impl Numbers {
    pub(super) fn new(schema: &Schema, state: &State, rule: &NumbersRule) -> Result<Numbers> {
        let attribute = |name: &String| {
            let known = schema
                .attribute_type(name.as_bytes())
                .ok_or_else(|| wrong(format!("the schema does not define '{name}'")))?;
            if known.syntax().is_none_or(|syntax| syntax.oid() != INTEGER) {
                return Err(wrong(format!(
                    "{name} has no numbers: its syntax is another one"
                )));
            }
            if known.is_operational() {
                return Err(wrong(format!("{name} is kept by the server")));
            }
            can_index(known, IndexKind::Equality)
                .map_err(|why| wrong(format!("{name} cannot be looked up: {why}")))?;
            Ok(known.id())
        };
        let base = match rule.base.as_str() {
            "" => None,
            dn => Some(names::within_contexts(schema, &state.contexts, dn).map_err(wrong)?),
        };
        let filter = PlainFilter::new(schema, &rule.filter);
        let filter = filter.map_err(|why| wrong(format!("the filter: {why}")))?;
        Ok(Numbers {
            attributes: rule
                .attributes
                .iter()
                .map(attribute)
                .collect::<Result<_>>()?,
            filter,
            range: rule.range,
            base,
        })
    }

    /// Whether it is about an entry below another one.
    fn covers<R: Read>(&self, update: &Before<'_, '_, R>) -> Result<bool> {
        let Some(base) = &self.base else {
            return Ok(true);
        };
        if update.parent.is_root() {
            return Ok(false);
        }
        let above = names::normal_dn_of(update.view, update.schema, update.parent)?;
        Ok(above.is_at_or_below(base))
    }

    /// A number that no entry has.
    fn free<R: Read>(
        &self,
        update: &Before<'_, '_, R>,
        attribute: AttributeTypeId,
    ) -> std::result::Result<u64, Stop> {
        let (schema, kind) = (update.schema, IndexKind::Equality);
        let known = schema.type_of(attribute);
        let Some(indexed) = complete(update.state, attribute) else {
            let diagnostic = format!(
                "{}: numbers are given, and there is no complete equality index to find out which are free: the \
                 administrator can make one",
                known.name()
            );
            return Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic));
        };
        let index = indexed.index(kind);
        let is_taken = |number: u64| {
            steps::count(1);
            let (text, mut key) = (number.to_string(), Vec::new());
            for_each_key(
                schema,
                known,
                kind,
                text.as_bytes(),
                &mut Vec::new(),
                |own| {
                    key = own.to_vec();
                },
            );
            let mut postings = update.view.postings(index, &key)?;
            Ok::<bool, Stop>(postings.next()?.is_some())
        };
        let (first, last) = self.range;
        // Farther and farther, until one is free that is behind one that is taken.
        let (mut taken, mut stride) = (None, 1);
        let mut at = first;
        let free = loop {
            if !is_taken(at)? {
                break Some(at);
            }
            taken = Some(at);
            match at.checked_add(stride).filter(|next| *next <= last) {
                Some(next) => at = next,
                None => break None,
            }
            stride *= 2;
        };
        let (Some(mut free), taken) = (free, taken) else {
            return self.first_free(is_taken, known.name());
        };
        let Some(mut taken) = taken else {
            return Ok(free);
        };
        while free - taken > 1 {
            let between = taken + (free - taken) / 2;
            match is_taken(between)? {
                true => taken = between,
                false => free = between,
            }
        }
        Ok(free)
    }

    /// The same where all that were looked at are taken.
    fn first_free(
        &self,
        is_taken: impl Fn(u64) -> std::result::Result<bool, Stop>,
        name: &str,
    ) -> std::result::Result<u64, Stop> {
        let (first, last) = self.range;
        // Those that were given last are at the end.
        for number in (first..=last).rev().take(LOOKED_UP_MAX as usize) {
            if !is_taken(number)? {
                return Ok(number);
            }
        }
        let diagnostic = match last - first < LOOKED_UP_MAX {
            true => format!("{name}: all numbers from {first} to {last} are taken"),
            false => format!(
                "{name}: the last {LOOKED_UP_MAX} numbers up to {last} are taken, and so are those before that were \
                 looked at"
            ),
        };
        Err(Stop::refuse(ResultCode::UnwillingToPerform, diagnostic))
    }
}

impl Rule for Numbers {
    fn indexes(&self, state: &State) -> impl Iterator<Item = Index> {
        equality_of(state, &self.attributes)
    }

    fn check(&self, schema: &Schema, state: &State) -> Result<()> {
        complete_or_refused(
            (schema, state),
            &self.attributes,
            (ATTRIBUTE, "numbers that are free"),
        )
    }

    fn sees_drafts(&self, _: Touched) -> bool {
        true
    }

    fn before<R: Read>(&self, update: &mut Before<'_, '_, R>) -> std::result::Result<(), Stop> {
        let schema = update.schema;
        let missing = self.attributes.iter().copied();
        let missing: Vec<_> = missing.filter(|id| !update.draft.has(*id, "")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let draft = &*update.draft;
        let values = |id| {
            draft
                .values_of_all(id)
                .into_iter()
                .map(<[u8]>::to_vec)
                .collect()
        };
        if !self.filter.matches(schema, &values) || !self.covers(update)? {
            return Ok(());
        }
        for attribute in missing {
            let number = self.free(update, attribute)?.to_string().into_bytes();
            let known = schema.type_of(attribute);
            update
                .draft
                .replace(schema, known, "", vec![Cow::Owned(number)]);
        }
        Ok(())
    }
}
