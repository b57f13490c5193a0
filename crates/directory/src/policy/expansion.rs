//! Texts that are made of what a DN matched.

use std::ops::Range;
use std::sync::Arc;

use super::entry_test::EntryTest;
use super::regex::{self, Regex};

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
    /// Groups of a regular expression that the value of an attribute matches, in place of a DN.
    Value(Arc<Regex>),
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
    /// As letters of a URL: of a value in its filter, or else as it is.
    InUrl,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Group(usize),
    /// A group of what the value matched.
    OfValue(usize),
}

/// The number of the last group.
const GROUPS_MAX: usize = 99;
/// Bytes of a text that was expanded.
const EXPANDED_BYTES_MAX: usize = 1 << 13;

impl Expansion {
    /// Reads a pattern.
    pub(crate) fn new(source: Source, pattern: &str) -> std::result::Result<Expansion, String> {
        Expansion::in_clause((source, None), pattern)
    }

    /// Reads a pattern in a clause of a rule that may look at values.
    pub(crate) fn in_clause(
        (source, value): (Source, Option<&Arc<Regex>>),
        pattern: &str,
    ) -> std::result::Result<Expansion, String> {
        let parts = read(pattern)?;
        if !parts.iter().any(|part| matches!(part, Part::OfValue(_))) {
            return Ok(Expansion { source, parts });
        }
        if parts.iter().any(|part| matches!(part, Part::Group(_))) {
            return Err("$1 and ${v1} do not stand in the same text".into());
        }
        let value =
            value.ok_or("${v1} is for dn, peername and socket names in a rule with val.regex")?;
        Ok(Expansion {
            source: Source::Value(value.clone()),
            parts,
        })
    }

    /// Whether it depends on a value rather than on an entry.
    pub(crate) fn is_of_value(&self) -> bool {
        matches!(self.source, Source::Value(_))
    }
}

/// The parts of a pattern.
fn read(pattern: &str) -> std::result::Result<Vec<Part>, String> {
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
        let of_value = number.strip_prefix(['v', 'V']);
        let number = of_value
            .or(number.strip_prefix(['d', 'D']))
            .unwrap_or(number);
        let number = number.parse().ok().filter(|number| *number <= GROUPS_MAX);
        let number = number.ok_or("a number is missing behind $: write $$ for $ itself")?;
        parts.push(Part::Text(std::mem::take(&mut text)));
        parts.push(match of_value {
            Some(_) => Part::OfValue(number),
            None => Part::Group(number),
        });
        rest = behind;
    }
    text.push_str(rest);
    parts.push(Part::Text(text));
    Ok(parts)
}

impl Expansion {
    /// The text, if it depends on no entry.
    pub(crate) fn constant(&self) -> Option<&str> {
        match &self.parts[..] {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// How it begins, whatever it is filled with.
    pub(crate) fn start(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// The text for a DN's text, or for a value's. `None` when it names what is not there.
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
            Source::Groups(regex) | Source::Value(regex) => regex.spans(whole)?,
        };
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Group(number) | Part::OfValue(number) => {
                    let text = match spans.get(*number) {
                        Some(Some(span)) => whole.get(span.clone())?,
                        // slapd has room for ten of them.
                        Some(None) => "",
                        None if self.has_groups() && *number < 10 => "",
                        None => return None,
                    };
                    match written {
                        Written::AsItIs => out.push_str(text),
                        Written::InRegex => regex::escape(text, &mut out),
                        Written::InFilter => out.push_str(&escaped(&unescaped(text))),
                        Written::InUrl => {
                            // dn?attributes?scope?filter
                            let is_in_filter = out.matches('?').count() >= 3;
                            let filled = match is_in_filter {
                                true => &escaped(&unescaped(text)),
                                false => text,
                            };
                            encode(filled, &mut out);
                        }
                    }
                }
            }
            if out.len() > EXPANDED_BYTES_MAX {
                return None;
            }
        }
        Some(out)
    }

    fn has_groups(&self) -> bool {
        matches!(self.source, Source::Groups(_) | Source::Value(_))
    }
}

/// Appends text with all letters encoded that may mean something in a URL (RFC 3986 §2.1).
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
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
