//! Texts that are made of what a DN matched.

use std::ops::Range;
use std::sync::Arc;

use super::entry_test::EntryTest;
use super::regex::{self, Regex};
use crate::schema::NormalDn;

/// A text in which `$1` and its like stand for what a rule's DN matched.
#[derive(Debug)]
pub(crate) struct Expansion {
    source: Source,
    parts: Vec<Part>,
}

/// What the numbers stand for.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// 0 for the whole DN.
    Whole,
    /// 1 also for the DN that the entry is at or below.
    Below(EntryTest),
    /// Groups of a regular expression.
    Groups(Arc<Regex>),
}

/// How what was matched stands in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
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

impl Expansion {
    /// Reads a pattern.
    pub(crate) fn new(source: Source, pattern: &str) -> std::result::Result<Expansion, String> {
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
    pub(crate) fn constant(&self) -> Option<&str> {
        match &self.parts[..] {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text for an entry. `None` when it names what is not there.
    pub(crate) fn of(&self, dn: &NormalDn, for_regex: bool) -> Option<String> {
        let written = match for_regex {
            true => Written::InRegex,
            false => Written::AsItIs,
        };
        self.fill(&dn.to_text(), written)
    }

    /// The text for a DN's text. `None` when it names what is not there.
    pub(crate) fn fill(&self, whole: &str, written: Written) -> Option<String> {
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

/// A value as a filter writes it (RFC 4515 §3).
pub(crate) fn escaped(value: &str) -> String {
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
