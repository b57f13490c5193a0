//! Messages and texts with places for values. They are encoded once, and filled in for each request.
//!
//! While a plan is parsed, a *marker* stands for a variable: a short sequence of octets that no other text may hold.
//! Names, filters and LDIF are therefore parsed and encoded by the code that always does it. The encoded message is
//! then cut at the markers. An element with a marker gets a length of a fixed number of octets, which is filled in with
//! the values. BER permits lengths that are longer than necessary (X.690 §8.1.3).

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use sapwood_ldap::ber;

use crate::values::Values;

/// The first octet of a marker. A plan may not contain it.
pub(crate) const MARKER_START: u8 = 0x02;
const MARKER_END: u8 = 0x03;
const MARKER_BYTES: usize = 11;

/// Every message ID has this bit, so that it takes four octets.
pub(crate) const MESSAGE_ID_BASE: u32 = 1 << 24;

/// A length that is filled in later. The first octet says how many follow.
const LENGTH: [u8; 4] = [0x83, 0, 0, 0];

/// The marker of a variable: its index, and the width to which its value is filled with zeros.
pub(crate) fn marker(variable: usize, width: usize) -> Vec<u8> {
    let mut marker = vec![MARKER_START];
    marker.extend_from_slice(format!("v{variable:05}w{width:02}").as_bytes());
    marker.push(MARKER_END);
    marker
}

/// A place for a variable's value, filled with zeros in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) variable: usize,
    pub(crate) width: usize,
}

impl Reference {
    /// Parses the marker that `octets` begin with.
    fn read(octets: &[u8]) -> Option<Reference> {
        let marker = octets.get(..MARKER_BYTES)?;
        let inner = marker
            .strip_prefix(&[MARKER_START, b'v'])?
            .strip_suffix(&[MARKER_END])?;
        let (variable, width) = std::str::from_utf8(inner).ok()?.split_once('w')?;
        Some(Reference {
            variable: variable.parse().ok()?,
            width: width.parse().ok()?,
        })
    }

    #[inline]
    fn put(self, values: &Values, out: &mut Vec<u8>) {
        let value = values.get(self.variable);
        for _ in value.len()..self.width {
            out.push(b'0');
        }
        out.extend_from_slice(value);
    }
}

/// Text with places for values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text {
    literal: Vec<u8>,
    /// Where in the literal each value goes, from the first to the last.
    references: Vec<(usize, Reference)>,
}

impl Text {
    /// Cuts text at its markers.
    pub(crate) fn new(marked: &[u8]) -> Text {
        let mut text = Text::default();
        for piece in cut(marked) {
            match piece {
                Piece::Literal(range) => text
                    .literal
                    .extend_from_slice(marked.get(range).unwrap_or_default()),
                Piece::Value(reference) => text.references.push((text.literal.len(), reference)),
            }
        }
        text
    }

    /// Appends the text with values.
    pub(crate) fn put(&self, values: &Values, out: &mut Vec<u8>) {
        let mut from = 0;
        for (at, reference) in &self.references {
            out.extend_from_slice(self.literal.get(from..*at).unwrap_or_default());
            reference.put(values, out);
            from = *at;
        }
        out.extend_from_slice(self.literal.get(from..).unwrap_or_default());
    }

    /// The indexes of its variables, in order.
    pub(crate) fn variables(&self) -> impl Iterator<Item = usize> + '_ {
        self.references
            .iter()
            .map(|(_, reference)| reference.variable)
    }
}

/// A marker, or what lies between two.
enum Piece {
    Literal(Range<usize>),
    Value(Reference),
}

/// Cuts text at its markers.
fn cut(marked: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(rest) = marked.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(reference) = Reference::read(rest) else {
            at += 1;
            continue;
        };
        if from < at {
            pieces.push(Piece::Literal(from..at));
        }
        pieces.push(Piece::Value(reference));
        at += MARKER_BYTES;
        from = at;
    }
    if from < marked.len() {
        pieces.push(Piece::Literal(from..marked.len()));
    }
    pieces
}

/// A request message with places for its ID and for values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Template {
    literal: Vec<u8>,
    parts: Vec<Part>,
    /// Where the message ID is; it has four octets.
    id_at: usize,
    /// The indexes of its variables, each once.
    variables: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Octets of the literal.
    Literal { start: usize, end: usize },
    /// A value.
    Value(Reference),
    /// The content of an element begins. Its length is filled in at the end.
    Open,
    /// The content of the innermost open element ends.
    Close,
}

/// How deep elements with markers may nest: deeper than in any LDAP message, filters included.
const OPEN_MAX: usize = 32;

impl Template {
    /// Makes a template of an encoded message whose ID takes four octets. `None` when it nests too deep.
    pub(crate) fn new(message: &[u8]) -> Option<Template> {
        let mut template = Template::default();
        template.compile(message, 0)?;
        // The ID follows the header of the envelope and its own.
        let header = template.literal.get(1).copied()?;
        template.id_at = match header {
            0..=0x7f => 2 + 2,
            octets => 2 + usize::from(octets & 0x7f) + 2,
        };
        let mut variables: Vec<usize> = template
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Value(reference) => Some(reference.variable),
                _ => None,
            })
            .collect();
        variables.sort_unstable();
        variables.dedup();
        template.variables = variables;
        Some(template)
    }

    /// The indexes of the variables that it refers to, each once.
    #[inline]
    pub(crate) fn variables(&self) -> &[usize] {
        &self.variables
    }

    /// Turns elements into parts. Elements without a marker are copied.
    fn compile(&mut self, elements: &[u8], depth: usize) -> Option<()> {
        let mut reader = ber::Reader::new(elements);
        while !reader.is_empty() {
            let before = reader.rest();
            let (tag, content) = reader.element("element").ok()?;
            let whole = before.get(..before.len() - reader.rest().len())?;
            if !has_marker(content) {
                self.literal(whole);
                continue;
            }
            if depth == OPEN_MAX {
                return None;
            }
            self.literal(&[tag]);
            self.literal(&LENGTH);
            self.parts.push(Part::Open);
            const CONSTRUCTED: u8 = 0x20;
            if tag & CONSTRUCTED != 0 {
                self.compile(content, depth + 1)?;
            } else {
                for piece in cut(content) {
                    match piece {
                        Piece::Literal(range) => self.literal(content.get(range)?),
                        Piece::Value(reference) => self.parts.push(Part::Value(reference)),
                    }
                }
            }
            self.parts.push(Part::Close);
        }
        Some(())
    }

    fn literal(&mut self, octets: &[u8]) {
        let start = self.literal.len();
        self.literal.extend_from_slice(octets);
        let grown = self.literal.len();
        match self.parts.last_mut() {
            Some(Part::Literal { end, .. }) if *end == start => *end = grown,
            _ => self.parts.push(Part::Literal { start, end: grown }),
        }
    }

    /// Appends the message with an ID and values.
    #[inline]
    pub(crate) fn put(&self, id: u32, values: &Values, out: &mut Vec<u8>) {
        let begin = out.len();
        let mut open = [0usize; OPEN_MAX + 1];
        let mut depth = 0;
        for part in &self.parts {
            match *part {
                Part::Literal { start, end } => {
                    out.extend_from_slice(self.literal.get(start..end).unwrap_or_default());
                }
                Part::Value(reference) => reference.put(values, out),
                Part::Open => {
                    if let Some(slot) = open.get_mut(depth) {
                        *slot = out.len();
                    }
                    depth += 1;
                }
                Part::Close => {
                    depth -= 1;
                    let content = open.get(depth).copied().unwrap_or_default();
                    let [.., a, b, c] = (out.len() - content).to_be_bytes();
                    if let Some(length) = out.get_mut(content - 3..content) {
                        length.copy_from_slice(&[a, b, c]);
                    }
                }
            }
        }
        if let Some(octets) = out.get_mut(begin + self.id_at..begin + self.id_at + 4) {
            octets.copy_from_slice(&id.to_be_bytes());
        }
    }
}

fn has_marker(octets: &[u8]) -> bool {
    cut(octets)
        .iter()
        .any(|piece| matches!(piece, Piece::Value(_)))
}

#[cfg(test)]
mod tests {
    use sapwood_ldap::controls::Controls;
    use sapwood_ldap::filter_text;
    use sapwood_ldap::message::{Message, Request, RequestMessage, Scope, SearchRequest};

    use super::*;

    #[test]
    fn a_template_with_values_is_the_message_that_is_encoded_with_them() {
        let search = |base: &str, filter: &str, id| {
            let filter = filter_text::parse(filter).unwrap();
            let mut out = Vec::new();
            let op = Request::Search(SearchRequest {
                size_limit: 7,
                ..SearchRequest::new(base, Scope::Subtree, filter.as_filter())
            });
            Message {
                id,
                op,
                controls: Controls::EMPTY,
            }
            .encode(&mut out);
            out
        };
        let first = String::from_utf8(marker(0, 4)).unwrap();
        let second = String::from_utf8(marker(1, 0)).unwrap();
        let template = Template::new(&search(
            &format!("ou={second},dc=x"),
            &format!("(&(uid={first})(|(cn>={second}a{first})(sn=a)))"),
            MESSAGE_ID_BASE,
        ))
        .unwrap();
        assert_eq!(template.variables(), [0, 1]);
        for (one, two, id) in [
            ("7", "x".to_owned(), MESSAGE_ID_BASE + 5),
            ("12345", "y".repeat(3000), 0x7fff_ffff),
        ] {
            let values = Values::of(&[one.as_bytes(), two.as_bytes()]);
            let mut out = vec![9];
            template.put(id, &values, &mut out);
            let expected = search(
                &format!("ou={two},dc=x"),
                &format!("(&(uid={one:0>4})(|(cn>={two}a{one:0>4})(sn=a)))"),
                id,
            );
            let read = |message| format!("{:?}", RequestMessage::decode(message).unwrap().op);
            assert_eq!(read(&out[1..]), read(&expected));
            assert_eq!(RequestMessage::decode(&out[1..]).unwrap().id, id);
        }
    }

    #[test]
    fn a_message_without_variables_stays_as_it_is() {
        let mut message = Vec::new();
        Message {
            id: MESSAGE_ID_BASE,
            op: Request::Delete(&"x".repeat(200)),
            controls: Controls::EMPTY,
        }
        .encode(&mut message);
        let template = Template::new(&message).unwrap();
        let mut out = Vec::new();
        template.put(MESSAGE_ID_BASE, &Values::of(&[]), &mut out);
        assert_eq!(out, message);
        out.clear();
        template.put(0x0203_0405, &Values::of(&[]), &mut out);
        assert_eq!(RequestMessage::decode(&out).unwrap().id, 0x0203_0405);
    }

    #[test]
    fn texts_take_values_where_the_markers_were() {
        let marked = [b"a".as_slice(), &marker(0, 3), &marker(1, 0), b"z\x02v"].concat();
        let text = Text::new(&marked);
        let mut out = Vec::new();
        text.put(&Values::of(&[b"5", b"bc"]), &mut out);
        assert_eq!(out, b"a005bcz\x02v");
        assert_eq!(text.variables().collect::<Vec<_>>(), [0, 1]);
    }
}
