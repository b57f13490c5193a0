//! Text that came from outside, for the log: what would begin a line or change how a terminal shows one is escaped.

use std::fmt::{self, Write};

/// Shows text so.
pub(crate) struct Printable<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'w, 'f>(&'w mut fmt::Formatter<'f>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, escaped)) = rest.char_indices().find(|(_, c)| is_escaped(*c)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", escaped.escape_default())?;
            rest = &rest[at + escaped.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Control characters, ends of lines, and those that turn the direction of text around.
pub(crate) fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_line() {
        for (text, shown) in [
            ("cn=Änne, o=x\\2C", "cn=Änne, o=x\\2C"),
            ("x\r\ny\u{1b}[31m", r"x\r\ny\u{1b}[31m"),
            ("\u{85}\u{2028}\u{202e}", r"\u{85}\u{2028}\u{202e}"),
            ("", ""),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }
}
