//! What rules ask of an entry beyond its place in the tree: by its DN's text, or by its content.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use sapwood_ldap::filter::FilterBuf;
use sapwood_ldap::filter_text;

use super::compile::EntryTest;
use super::grants::{Grants, Sight};
use super::group::GroupTest;
use super::policy::{DnScope, TextStyle};
use super::regex::{self, Regex};
use super::set::Set;
use crate::engine::{EntryId, Read, Table};
use crate::error::Result;
use crate::names;
use crate::schema::{NormalDn, Schema};
use crate::search::look::Look;
use crate::state::State;

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

/// What is asked of an entry.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// Its DN matches.
    Matches(Arc<Regex>),
    /// Its content does.
    Filter(Arc<FilterBuf>),
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

/// A text in which `$1` and its like stand for what a rule's DN matched.
#[derive(Debug)]
pub(super) struct Expansion {
    source: Source,
    parts: Vec<Part>,
}

/// What the numbers stand for.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// 0 for the whole DN.
    Whole,
    /// 1 also for the DN that the entry is at or below.
    Below(EntryTest),
    /// Groups of a regular expression.
    Groups(Arc<Regex>),
}

/// How what was matched stands in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// As in the DN that it is of.
    AsItIs,
    /// As letters of a regular expression.
    InRegex,
    /// As letters of a value in a filter, without the escapes of the DN.
    InFilter,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Group(usize),
}

/// The number of the last group.
const GROUPS_MAX: usize = 99;
/// Bytes of a text that was expanded.
const EXPANDED_BYTES_MAX: usize = 1 << 13;
/// Work of matching, for each byte of a DN.
pub(super) const MATCHING_WORK: u64 = 8;
/// Work of making a pattern ready, for each byte of it.
pub(super) const COMPILING_WORK: u64 = 400;
/// Work of finding an entry by its DN.
pub(super) const FINDING_WORK: u64 = 2000;

impl Expansion {
    /// Reads a pattern.
    pub(super) fn new(source: Source, pattern: &str) -> std::result::Result<Expansion, String> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = pattern;
        while let Some(at) = rest.find('$') {
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix('$') {
                text.push('$');
                rest = behind;
                continue;
            }
            let (number, behind) = match rest.strip_prefix('{') {
                Some(inner) => inner.split_once('}').ok_or("'${' is not closed")?,
                None => rest
                    .split_at_checked(1)
                    .ok_or("a number is missing behind $: write $$ for $ itself")?,
            };
            if number.starts_with('v') {
                return Err("${v1} and its like, of what values match, are not supported".into());
            }
            let number = number.strip_prefix('d').unwrap_or(number);
            let number = number.parse().ok().filter(|number| *number <= GROUPS_MAX);
            let number = number.ok_or("a number is missing behind $: write $$ for $ itself")?;
            parts.push(Part::Text(std::mem::take(&mut text)));
            parts.push(Part::Group(number));
            rest = behind;
        }
        text.push_str(rest);
        parts.push(Part::Text(text));
        Ok(Expansion { source, parts })
    }

    /// The text, if it depends on no entry.
    pub(super) fn constant(&self) -> Option<&str> {
        match &self.parts[..] {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text for an entry. `None` when it names what is not there.
    fn of(&self, dn: &NormalDn, for_regex: bool) -> Option<String> {
        let written = match for_regex {
            true => Written::InRegex,
            false => Written::AsItIs,
        };
        self.fill(&dn.to_text(), written)
    }

    /// The text for a DN's text. `None` when it names what is not there.
    pub(super) fn fill(&self, whole: &str, written: Written) -> Option<String> {
        let spans: Vec<Option<Range<usize>>> = match &self.source {
            Source::Whole => vec![Some(0..whole.len())],
            Source::Below(test) => {
                let above = test.dn().to_text();
                vec![
                    Some(0..whole.len()),
                    Some(whole.len().checked_sub(above.len())?..whole.len()),
                ]
            }
            Source::Groups(regex) => regex.spans(whole)?,
        };
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Group(number) => {
                    let text = match spans.get(*number) {
                        Some(Some(span)) => whole.get(span.clone())?,
                        // slapd has room for ten of them.
                        Some(None) => "",
                        None if matches!(self.source, Source::Groups(_)) && *number < 10 => "",
                        None => return None,
                    };
                    match written {
                        Written::AsItIs => out.push_str(text),
                        Written::InRegex => regex::escape(text, &mut out),
                        Written::InFilter => out.push_str(&escaped(&unescaped(text))),
                    }
                }
            }
            if out.len() > EXPANDED_BYTES_MAX {
                return None;
            }
        }
        Some(out)
    }
}

/// Whether text compares so with a pattern.
pub(super) fn text_is(style: TextStyle, text: &str, pattern: &str) -> bool {
    match style {
        TextStyle::Exact | TextStyle::Expand => text.eq_ignore_ascii_case(pattern),
        TextStyle::Subtree | TextStyle::SubtreeExpand => {
            let start = text.len().checked_sub(pattern.len());
            let end = start.and_then(|start| Some((start, text.get(start..)?)));
            end.is_some_and(|(start, end)| {
                end.eq_ignore_ascii_case(pattern) && (start == 0 || text[..start].ends_with('.'))
            })
        }
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

/// A value as a filter writes it (RFC 4515 §3).
fn escaped(value: &str) -> String {
    let mut out = String::new();
    for letter in value.chars() {
        match letter {
            '*' | '(' | ')' | '\\' | '\0' => out.push_str(&format!("\\{:02x}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out
}

/// A value without the escapes that it has in the text of a DN in normal form; of what is not UTF-8 the letters that
/// stand for it.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let digits = rest.get(at + 1..at + 3);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        // All that is escaped there is ASCII.
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 3..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Whether an entry matches a filter. No access rule is asked. What it takes is added to `work`.
pub(super) fn matches<R: Read>(
    (view, schema): (&R, &Schema),
    state: &State,
    id: EntryId,
    filter: &FilterBuf,
    work: &mut u64,
) -> Result<bool> {
    if id.is_root() {
        return Ok(false);
    }
    static ABOVE: OnceLock<Grants> = OnceLock::new();
    let look = Look {
        schema,
        attributes: &state.attributes,
        grants: ABOVE.get_or_init(Grants::unlimited),
        sight: Sight::All,
        on_entry: None,
        collective: None,
    };
    let mut left = u64::MAX;
    let matches = look.asserts(view, id, filter.as_filter(), &mut left)?;
    *work = work.saturating_add(u64::MAX - left);
    Ok(matches == Some(true))
}

/// Whether the entry with a DN matches a filter; there need not be one.
pub(super) fn entry_matches<R: Read>(
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
    /// Whether an entry meets it. What that takes is added to `work`, in about as many nanoseconds.
    pub(super) fn holds<R: Read>(
        &self,
        asked: &Asked<'_, R>,
        state: &State,
        work: &mut u64,
    ) -> Result<bool> {
        let reading = (asked.view, asked.schema);
        Ok(match self {
            Condition::Matches(regex) => {
                let text = asked.dn.to_text();
                *work = work.saturating_add(MATCHING_WORK * text.len() as u64);
                regex.is_match(&text)
            }
            Condition::Filter(filter) => matches(reading, state, asked.id, filter, work)?,
            Condition::Own(id) => asked.id == *id,
            Condition::Near(level, other) => is_near(*level, asked.dn, other),
            Condition::Dn(expansion, scope, who) => {
                let mut dn = NormalDn::new();
                let text = expansion.of(asked.dn, false);
                text.is_some_and(|text| dn.parse(asked.schema, text.as_bytes()).is_ok())
                    && EntryTest::of(*scope, dn).holds(who)
            }
            Condition::Text(expansion, style, text) => {
                let is_regex = *style == TextStyle::Regex;
                let Some(pattern) = expansion.of(asked.dn, is_regex) else {
                    return Ok(false);
                };
                let compiling = if is_regex { COMPILING_WORK } else { 0 };
                *work = work.saturating_add(compiling * pattern.len() as u64);
                text_is(*style, text, &pattern)
            }
            Condition::Group(expansion, test) => {
                let mut dn = NormalDn::new();
                let text = expansion.of(asked.dn, false);
                text.is_some_and(|text| dn.parse(asked.schema, text.as_bytes()).is_ok())
                    && test.holds(reading, state, &dn, work)?
            }
            Condition::Set(set, user) => {
                let reading = (asked.view, asked.schema, state);
                set.is_met(reading, Some(asked), user, work)?
            }
        })
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
