//! Messages and texts with places for values: encoded once, then put together for each request.
//!
//! While a plan is read, a variable stands in texts as a *marker*, a short sequence of octets that no other text may
//! hold. So names, filters and LDIF are read and encoded by the code that always does it, and a template is what comes out,
//! cut at the markers. An element that has a marker in it gets a length of a fixed number of octets, which is filled in
//! when the values are there (BER has no shortest form for lengths, X.690 §8.1.3).

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use sapwood_ldap::ber;

use crate::values::Values;

/// What a marker begins with; plans may not hold it otherwise.
pub(crate) const MARKER_START: u8 = 0x02;
const MARKER_END: u8 = 0x03;
const MARKER_BYTES: usize = 11;

/// Message IDs have this bit, so that all of them take four octets.
pub(crate) const MESSAGE_ID_BASE: u32 = 1 << 24;

/// Octets of a length that is filled in later: the first says how many follow.
const LENGTH: [u8; 4] = [0x83, 0, 0, 0];

/// Stands for a variable: its index, and the width to which it is filled with zeros.
pub(crate) fn marker(variable: usize, width: usize) -> Vec<u8> {
    let mut marker = vec![MARKER_START];
    marker.extend_from_slice(format!("v{variable:05}w{width:02}").as_bytes());
    marker.push(MARKER_END);
    marker
}

/// A variable's value, filled with zeros in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) variable: usize,
    pub(crate) width: usize,
}

impl Reference {
    /// The marker that `octets` begin with.
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
    /// Where in the literal each value goes, in order.
    references: Vec<(usize, Reference)>,
}

impl Text {
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

    pub(crate) fn put(&self, values: &Values, out: &mut Vec<u8>) {
        let mut from = 0;
        for (at, reference) in &self.references {
            out.extend_from_slice(self.literal.get(from..*at).unwrap_or_default());
            reference.put(values, out);
            from = *at;
        }
        out.extend_from_slice(self.literal.get(from..).unwrap_or_default());
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = usize> + '_ {
        self.references
            .iter()
            .map(|(_, reference)| reference.variable)
    }
}

/// What lies between markers, and the markers.
enum Piece {
    Literal(Range<usize>),
    Value(Reference),
}

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
    /// Where the four octets of the message ID are.
    id_at: usize,
    /// The variables it refers to, each once.
    variables: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Octets of the literal.
    Literal { start: usize, end: usize },
    /// A value.
    Value(Reference),
    /// The content of an element begins; its length is to be filled in.
    Open,
    /// The content of the innermost open element ends.
    Close,
}

/// Elements within each other that are told apart: more than LDAP's messages have, filters included.
const OPEN_MAX: usize = 32;

impl Template {
    /// Takes an encoded message whose ID takes four octets.
    pub(crate) fn new(message: &[u8]) -> Option<Template> {
        let mut template = Template::default();
        template.compile(message, 0)?;
        // The envelope's header, the ID's own, then the ID.
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

    /// The variables it refers to, each once.
    #[inline]
    pub(crate) fn variables(&self) -> &[usize] {
        &self.variables
    }

    /// Goes through elements; those without a marker are copied.
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

    /// Appends the message.
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
        if let Some(place) = out.get_mut(begin + self.id_at..begin + self.id_at + 4) {
            place.copy_from_slice(&id.to_be_bytes());
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
    use sapwood_ldap::control::Controls;
    use sapwood_ldap::filter_text;
    use sapwood_ldap::list::OctetStrings;
    use sapwood_ldap::message::{
        DerefAliases, Message, Request, RequestMessage, Scope, SearchRequest,
    };

    use super::*;

    #[test]
    fn a_template_with_values_is_the_message_that_is_encoded_with_them() {
        let search = |base: &str, filter: &str, id| {
            let filter = filter_text::parse(filter).unwrap();
            let mut out = Vec::new();
            let op = Request::Search(SearchRequest {
                base,
                scope: Scope::Subtree,
                deref_aliases: DerefAliases::Never,
                size_limit: 7,
                time_limit: 0,
                types_only: false,
                filter: filter.as_filter(),
                attributes: OctetStrings::EMPTY,
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
