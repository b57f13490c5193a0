//! Lines of JSON (RFC 8259), written member by member. Text comes from clients: what could end a line, or change how a
//! terminal shows one, is escaped.

use std::fmt::{self, Display, Write};

use crate::printable::is_escaped;

/// The members of an object.
#[derive(Debug, Default)]
pub(crate) struct Members(String);

impl Members {
    /// The object.
    pub(crate) fn object(&self) -> String {
        format!("{{{}}}", self.0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members of another one, behind its own.
    pub(crate) fn append(&mut self, others: &Members) {
        if !self.is_empty() && !others.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(&others.0);
    }

    /// A member that is text.
    pub(crate) fn text(&mut self, name: &str, text: impl Display) {
        self.name(name);
        put_text(&mut self.0, text);
    }

    /// A member that is a number.
    pub(crate) fn number(&mut self, name: &str, number: impl Into<u64>) {
        let number: u64 = number.into();
        self.json(name, number);
    }

    /// A member whose value is JSON already.
    pub(crate) fn json(&mut self, name: &str, json: impl Display) {
        self.name(name);
        let _ = write!(self.0, "{json}");
    }

    fn name(&mut self, name: &str) {
        if !self.is_empty() {
            self.0.push(',');
        }
        put_text(&mut self.0, name);
        self.0.push(':');
    }
}

/// Appends text in quotation marks.
pub(crate) fn put_text(out: &mut String, text: impl Display) {
    out.push('"');
    let _ = write!(Escaping(out), "{text}");
    out.push('"');
}

struct Escaping<'o>(&'o mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '"' | '\\' => {
                    self.0.push('\\');
                    self.0.push(c);
                }
                c if is_escaped(c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(self.0, "\\u{unit:04x}")?;
                    }
                }
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_place() {
        let mut members = Members::default();
        members.text("a", "x\"y\\z");
        members.text("b", "1\n2\u{1b}\u{202e}ä");
        members.number("c", 7_u64);
        let mut more = Members::default();
        more.json("d", "[]");
        members.append(&more);
        members.append(&Members::default());
        assert_eq!(
            members.object(),
            r#"{"a":"x\"y\\z","b":"1\u000a2\u001b\u202eä","c":7,"d":[]}"#
        );
    }
}
