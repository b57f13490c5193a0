//! What rules ask of an entry beyond its place in the tree: by its DN's text, or by its content.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, OnceLock, TryLockError};

use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::filter_text;

use super::evaluate::{Evaluate, Ready};
use super::grants::Grants;
use super::group::GroupTest;
use super::set::Set;
use crate::engine::{EntryId, Read, Table};
use crate::entry::Entry;
use crate::error::Result;
use crate::names;
use crate::policy::entry_test::EntryTest;
use crate::policy::expansion::{Expansion, Written, escaped};
use crate::policy::regex::{self, MATCHING_WORK, Regex};
use crate::policy::{DnScope, TextStyle};
use crate::schema::{NormalDn, Schema};
use crate::state::State;
use crate::synthetic::{Context, Synthetic};

/// An entry that rights are asked on.
pub(crate) struct Asked<'a, R: Read> {
    /// Where it is.
    pub(crate) view: &'a R,
    pub(crate) schema: &'a Schema,
    /// Its DN.
    pub(crate) dn: &'a NormalDn,
    /// Its id; the root's for one that is not there yet, and has no content.
    pub(crate) id: EntryId,
}

/// What conditions look at of one entry.
pub(super) struct About<'m, 'a, R: Read> {
    pub(super) asked: &'m Asked<'a, R>,
    /// Its record, if it is at hand.
    pub(super) record: Option<&'m Entry<'m>>,
    /// The entry and its context, if it is a synthetic one.
    pub(super) synthetic: Option<(&'m Context, &'m Synthetic)>,
    /// The text of its DN, which is made once.
    pub(super) text: &'m OnceCell<String>,
}

impl<R: Read> About<'_, '_, R> {
    /// The text of its DN.
    pub(super) fn text(&self) -> &str {
        self.text.get_or_init(|| self.asked.dn.to_text())
    }
}

/// What is asked of an entry.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// Its DN matches.
    Matches(Arc<Regex>),
    /// Its content does.
    Filter(Arc<RuleFilter>),
    /// It is this one.
    Own(EntryId),
    /// It is the n-th entry above another one, or the other is the n-th above it if the number is negative.
    Near(i32, Arc<NormalDn>),
    /// A DN stands so to the one that is made of it.
    Dn(Arc<Expansion>, DnScope, Arc<NormalDn>),
    /// Text compares so with the one that is made of it.
    Text(Arc<Expansion>, TextStyle, Arc<str>),
    /// The group that is made of its DN has a member.
    Group(Arc<Expansion>, Arc<GroupTest>),
    /// There is something in the set of who has this name.
    Set(Arc<Set>, Arc<str>),
}

/// A filter that an entry has to match. It is made ready once for all entries of a state of the directory.
#[derive(Debug)]
pub(super) struct RuleFilter {
    filter: Arc<FilterBuf>,
    /// What was made of it, and the state that it is for.
    ready: Mutex<Option<(Arc<State>, Option<Ready>)>>,
}

impl RuleFilter {
    pub(super) fn new(filter: FilterBuf) -> RuleFilter {
        RuleFilter {
            filter: Arc::new(filter),
            ready: Mutex::default(),
        }
    }

    /// The same filter for another identity: those who search at the same time do not get in each other's way.
    fn for_another(&self) -> RuleFilter {
        RuleFilter {
            filter: self.filter.clone(),
            ready: Mutex::default(),
        }
    }

    fn is_met<R: Evaluate>(
        &self,
        about: &About<'_, '_, R>,
        state: &Arc<State>,
        work: &mut u64,
    ) -> Result<bool> {
        let Asked {
            view, schema, id, ..
        } = *about.asked;
        if id.is_root() {
            return Ok(false);
        }
        // Whoever comes while somebody else uses it makes it ready for themselves.
        let mut kept = match self.ready.try_lock() {
            Ok(kept) => Some(kept),
            Err(TryLockError::Poisoned(kept)) => Some(kept.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let mut own = None;
        let ready = match kept.as_deref_mut() {
            Some(kept) => {
                let (of, ready) = kept.get_or_insert_with(|| (state.clone(), None));
                if !Arc::ptr_eq(of, state) {
                    (*of, *ready) = (state.clone(), None);
                }
                ready
            }
            None => &mut own,
        };
        let (known, granted) = ((schema, &state.attributes), (above_rules(), None));
        let filter = (self.filter.as_filter(), ready);
        let mut left = u64::MAX;
        let truth = view.evaluate(known, granted, (id, about.record), filter, &mut left)?;
        *work = work.saturating_add(u64::MAX - left);
        Ok(truth == Some(true))
    }
}

/// Work of making a pattern ready, for each byte of it.
pub(super) const COMPILING_WORK: u64 = 400;
/// Bytes that a pattern has beside the value that it is made of.
const EXPANDED_PATTERN_BYTES: u64 = 128;
/// Work of finding an entry by its DN.
pub(super) const FINDING_WORK: u64 = 2000;

/// Whether text compares so with a pattern.
pub(super) fn text_is(style: TextStyle, text: &str, pattern: &str) -> bool {
    match style {
        TextStyle::Exact | TextStyle::Expand => text.eq_ignore_ascii_case(pattern),
        TextStyle::Regex => regex::is_match(pattern, text),
    }
}

/// The filter that is true of groups of a class which name somebody.
pub(super) fn group_filter(
    class: &str,
    attribute: &str,
    dn: &str,
) -> std::result::Result<FilterBuf, String> {
    let filter = format!("(&(objectClass={class})({attribute}={}))", escaped(dn));
    filter_text::parse(&filter).map_err(|error| error.to_string())
}

/// The filter that is true of entries that name somebody.
pub(super) fn naming_filter(attribute: &str, dn: &str) -> std::result::Result<FilterBuf, String> {
    let filter = format!("({attribute}={})", escaped(dn));
    filter_text::parse(&filter).map_err(|error| error.to_string())
}

/// Whether an entry matches a filter. No access rule is asked. `None` when that takes more work than `work`, which
/// becomes what is left of it.
pub(crate) fn matches_filter<R: Evaluate>(
    (view, schema): (&R, &Schema),
    state: &State,
    id: EntryId,
    filter: &FilterBuf,
    work: &mut u64,
) -> Result<Option<bool>> {
    view.evaluate(
        (schema, &state.attributes),
        (above_rules(), None),
        (id, None),
        (filter.as_filter(), &mut None),
        work,
    )
}

/// The grants of who is above all rules.
pub(super) fn above_rules() -> &'static Grants {
    static ABOVE: OnceLock<Grants> = OnceLock::new();
    ABOVE.get_or_init(Grants::unlimited)
}

/// The same, however much it takes, which is added to `work`.
pub(super) fn matches<R: Evaluate>(
    (view, schema): (&R, &Schema),
    state: &State,
    id: EntryId,
    filter: &FilterBuf,
    work: &mut u64,
) -> Result<bool> {
    if id.is_root() {
        return Ok(false);
    }
    let mut left = u64::MAX;
    let matches = matches_filter((view, schema), state, id, filter, &mut left)?;
    *work = work.saturating_add(u64::MAX - left);
    Ok(matches == Some(true))
}

/// Whether the entry with a DN matches a filter; there need not be one.
pub(super) fn entry_matches<R: Evaluate>(
    (view, schema): (&R, &Schema),
    state: &State,
    dn: &NormalDn,
    filter: &FilterBuf,
    work: &mut u64,
) -> Result<bool> {
    *work = work.saturating_add(FINDING_WORK);
    match names::walk(view, &state.contexts, dn)?.and_then(|walk| walk.found()) {
        Some(found) => {
            view.rely_on(Table::Entry, &found.id.to_key());
            matches((view, schema), state, found.id, filter, work)
        }
        None => Ok(false),
    }
}

impl Condition {
    /// The same for another identity.
    pub(super) fn for_another(&self) -> Condition {
        match self {
            Condition::Filter(filter) => Condition::Filter(Arc::new(filter.for_another())),
            other => other.clone(),
        }
    }

    /// Whether it looks at the name of an entry.
    pub(super) fn asks_for_name(&self) -> bool {
        match self {
            Condition::Filter(_) | Condition::Own(_) => false,
            Condition::Matches(_)
            | Condition::Near(..)
            | Condition::Dn(..)
            | Condition::Text(..)
            | Condition::Group(..)
            | Condition::Set(..) => true,
        }
    }

    /// Whether an entry meets it. What that takes is added to `work`, in about as many nanoseconds.
    #[inline]
    pub(super) fn holds<R: Evaluate>(
        &self,
        about: &About<'_, '_, R>,
        state: &Arc<State>,
        work: &mut u64,
    ) -> Result<bool> {
        match (self, about.synthetic) {
            (Condition::Filter(filter), None) => filter.is_met(about, state, work),
            _ => self.holds_otherwise(about, state, work),
        }
    }

    /// The same for what is asked of fewer entries than filters are.
    #[inline(never)]
    fn holds_otherwise<R: Evaluate>(
        &self,
        about: &About<'_, '_, R>,
        state: &Arc<State>,
        work: &mut u64,
    ) -> Result<bool> {
        let asked = about.asked;
        let reading = (asked.view, asked.schema);
        let text = || about.text();
        Ok(match self {
            Condition::Matches(regex) => {
                *work = work.saturating_add(MATCHING_WORK * text().len() as u64);
                regex.is_match(text())
            }
            Condition::Filter(filter) => match about.synthetic {
                Some(synthetic) => {
                    let known = (asked.schema, above_rules());
                    let filter = filter.filter.as_filter();
                    (asked.view).evaluate_synthetic(known, synthetic, filter, work)?
                }
                None => filter.is_met(about, state, work)?,
            },
            Condition::Own(id) => asked.id == *id,
            Condition::Near(level, other) => is_near(*level, asked.dn, other),
            Condition::Dn(expansion, scope, who) => {
                let mut dn = NormalDn::new();
                let text = expansion.fill(text(), Written::AsItIs);
                text.is_some_and(|text| dn.parse(asked.schema, text.as_bytes()).is_ok())
                    && EntryTest::of(*scope, dn).holds(who)
            }
            Condition::Text(expansion, style, compared) => {
                let (written, compiling) = match style {
                    TextStyle::Regex => (Written::InRegex, COMPILING_WORK),
                    TextStyle::Exact | TextStyle::Expand => (Written::AsItIs, 0),
                };
                let Some(pattern) = expansion.fill(text(), written) else {
                    return Ok(false);
                };
                *work = work.saturating_add(compiling * pattern.len() as u64);
                text_is(*style, compared, &pattern)
            }
            Condition::Group(expansion, test) => {
                let mut dn = NormalDn::new();
                let text = expansion.fill(text(), Written::AsItIs);
                text.is_some_and(|text| dn.parse(asked.schema, text.as_bytes()).is_ok())
                    && test.holds(reading, state, &dn, work)?
            }
            Condition::Set(set, user) => {
                let reading = (asked.view, asked.schema, &**state);
                set.is_met(reading, Some(about), user, work)?
            }
        })
    }
}

impl Condition {
    /// Whether a value meets it, whose text is in normal form. Only names and texts are made of values.
    pub(super) fn holds_for_value(&self, schema: &Schema, value: &str) -> bool {
        match self {
            Condition::Dn(expansion, scope, who) => {
                let mut dn = NormalDn::new();
                let text = expansion.fill(value, Written::AsItIs);
                text.is_some_and(|text| dn.parse(schema, text.as_bytes()).is_ok())
                    && EntryTest::of(*scope, dn).holds(who)
            }
            Condition::Text(expansion, style, text) => {
                let written = match style {
                    TextStyle::Regex => Written::InRegex,
                    TextStyle::Exact | TextStyle::Expand => Written::AsItIs,
                };
                let pattern = expansion.fill(value, written);
                pattern.is_some_and(|pattern| text_is(*style, text, &pattern))
            }
            _ => false,
        }
    }

    /// Work of that for a value of so many bytes.
    pub(super) fn value_work(&self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        match self {
            Condition::Text(_, TextStyle::Regex, _) => {
                COMPILING_WORK * (EXPANDED_PATTERN_BYTES + bytes)
            }
            _ => FINDING_WORK + MATCHING_WORK * bytes,
        }
    }
}

/// Whether an entry is so many above somebody, or below with a negative number.
fn is_near(level: i32, entry: &NormalDn, who: &NormalDn) -> bool {
    let (lower, upper) = match level < 0 {
        true => (entry, who),
        false => (who, entry),
    };
    let above = lower.len().checked_sub(level.unsigned_abs() as usize);
    above.is_some_and(|above| above > 0 && above == upper.len() && lower.is_at_or_below(upper))
}
