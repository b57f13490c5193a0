//! Parsing the records of a block.

#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;

use super::{
    AttributeValue, Body, Control, Modification, ModificationKind, Options, Reason, Record,
    Rejected,
};
use crate::attribute::{AttributeDescription, is_numeric_oid};
use crate::{base64, steps};

/// Most entries have no more values than this, so that one allocation holds them.
const VALUES_EXPECTED: usize = 24;

/// The records of a [`Block`](super::Block) in order.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    /// The line that `rest` begins with.
    line: u64,
    /// The line that was read last, where trouble is reported.
    last_line: u64,
    too_long: Option<usize>,
    options: Options<'a>,
    /// The attribute descriptions of the entry before, by line: mostly the next entry has the same ones there.
    before: Vec<&'a str>,
}

impl<'a> Records<'a> {
    pub(super) fn new(
        rest: &'a [u8],
        line: u64,
        too_long: Option<usize>,
        options: Options<'a>,
    ) -> Records<'a> {
        Records {
            rest,
            line,
            last_line: line,
            too_long,
            options,
            before: Vec::new(),
        }
    }

    /// How many bytes of the block are still to be read.
    pub(super) fn remaining_bytes(&self) -> usize {
        self.rest.len()
    }

    /// The line that is read next.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Goes past empty lines, comments and the version, and tells whether anything comes after them.
    pub(super) fn skip_to_record(&mut self) -> bool {
        if self.too_long.is_some() {
            // What is left of it may be the comments that it begins with.
            return !self.rest.is_empty();
        }
        while let Some((line, _)) = self.peek_physical_line() {
            if line.is_empty() || line.starts_with(b"#") || is_version_1(line) {
                self.skip_logical_line();
            } else {
                return true;
            }
        }
        false
    }

    fn parse_record(&mut self) -> Result<Record<'a>, Reason> {
        let line = self.line;
        let Some(first) = self.next_line()? else {
            return Err(Reason::MissingDn);
        };
        let (name, value) = self.split(&first)?;
        match name.as_ref() {
            name if name.eq_ignore_ascii_case("dn") => {}
            name if name.eq_ignore_ascii_case("version") => return Err(Reason::UnknownVersion),
            _ => return Err(Reason::MissingDn),
        }
        let dn = utf8(value)?;
        let controls = self.parse_controls()?;
        let body = match self.next_if("changetype")? {
            Some(change) => self.parse_change(&change)?,
            None if !controls.is_empty() => return Err(Reason::MissingChangeType),
            None => Body::Entry(self.parse_attributes()?),
        };
        Ok(Record {
            line,
            text: &[],
            dn,
            controls,
            body,
        })
    }

    fn parse_controls(&mut self) -> Result<Vec<Control<'a>>, Reason> {
        let mut controls = Vec::new();
        while let Some(line) = self.next_if("control")? {
            let colon = memchr::memchr(b':', &line).ok_or(Reason::BadControl)?;
            let value_start = line
                .get(colon + 1..)
                .and_then(|rest| memchr::memchr(b':', rest));
            let words_end = value_start.map_or(line.len(), |start| colon + 1 + start);
            let words = line.get(colon + 1..words_end).unwrap_or_default();
            let mut words = words
                .split(|&byte| byte == b' ')
                .filter(|word| !word.is_empty());
            let oid = words
                .next()
                .and_then(|oid| std::str::from_utf8(oid).ok())
                .ok_or(Reason::BadControl)?;
            let critical = match words.next() {
                None | Some(b"false") => false,
                Some(b"true") => true,
                Some(_) => return Err(Reason::BadControl),
            };
            if !is_numeric_oid(oid) || words.next().is_some() {
                return Err(Reason::BadControl);
            }
            let value = value_start
                .map(|_| self.value(&line, words_end))
                .transpose()?;
            controls.push(Control {
                oid: Cow::Owned(oid.to_owned()),
                critical,
                value,
            });
        }
        Ok(controls)
    }

    fn parse_change(&mut self, line: &Cow<'a, [u8]>) -> Result<Body<'a>, Reason> {
        let (_, kind) = self.split(line)?;
        let body = match kind.trim_ascii().to_ascii_lowercase().as_slice() {
            b"add" => Body::Add(self.parse_attributes()?),
            b"delete" => Body::Delete,
            b"modify" => Body::Modify(self.parse_modifications()?),
            b"modrdn" | b"moddn" => self.parse_rename()?,
            _ => {
                return Err(Reason::BadChangeType(
                    String::from_utf8_lossy(&kind).into_owned(),
                ));
            }
        };
        let Some(line) = self.next_line()? else {
            return Ok(body);
        };
        check_is_no_dn(&self.split(&line)?.0)?;
        Err(Reason::TrailingLine)
    }

    fn parse_attributes(&mut self) -> Result<Vec<AttributeValue<'a>>, Reason> {
        let mut attributes = Vec::with_capacity(VALUES_EXPECTED);
        loop {
            let known = self.before.get(attributes.len()).copied();
            if let Some(description) = known
                && let Some(value) = self.next_plain_value(description)
            {
                attributes.push(AttributeValue {
                    description: Cow::Borrowed(description),
                    value: Cow::Borrowed(value),
                });
                continue;
            }
            let Some(line) = self.next_line()? else {
                break;
            };
            let (description, value) = self.split(&line)?;
            check_is_no_dn(&description)?;
            check_description(&description)?;
            if let Cow::Borrowed(description) = description {
                self.remember(attributes.len(), description);
            }
            attributes.push(AttributeValue { description, value });
        }
        match attributes.is_empty() {
            true => Err(Reason::NoAttributes),
            false => Ok(attributes),
        }
    }

    /// The value of the next line, if that is one of the attribute with just this description, neither folded nor in
    /// base 64 nor behind a URL; otherwise nothing is read.
    fn next_plain_value(&mut self, description: &str) -> Option<&'a [u8]> {
        let after = self.rest.strip_prefix(description.as_bytes())?;
        let text = match after {
            [b':', b':' | b'<', ..] => return None,
            [b':', text @ ..] => text,
            _ => return None,
        };
        let end = memchr::memchr(b'\n', text)?;
        let length = description.len() + 1 + end;
        steps::count(length);
        if text.get(end + 1) == Some(&b' ') || length > self.options.line_bytes_max {
            return None;
        }
        let value = text.get(..end).unwrap_or_default();
        let value = value.strip_suffix(b"\r").unwrap_or(value);
        let spaces = value.iter().take_while(|&&byte| byte == b' ').count();
        self.last_line = self.line;
        self.advance(length + 1);
        value.get(spaces..)
    }

    /// Keeps the description of an entry's value for the next entry.
    fn remember(&mut self, at: usize, description: &'a str) {
        if let Some(before) = self.before.get_mut(at) {
            *before = description;
        } else if at == self.before.len() && at < VALUES_EXPECTED {
            self.before.reserve(VALUES_EXPECTED - at);
            self.before.push(description);
        }
    }

    fn parse_modifications(&mut self) -> Result<Vec<Modification<'a>>, Reason> {
        let mut modifications = Vec::new();
        while let Some(line) = self.next_line()? {
            let (kind, description) = self.split(&line).map_err(|_| Reason::BadModification)?;
            check_is_no_dn(&kind)?;
            let kind = match kind.to_ascii_lowercase().as_str() {
                "add" => ModificationKind::Add,
                "delete" => ModificationKind::Delete,
                "replace" => ModificationKind::Replace,
                "increment" => ModificationKind::Increment,
                _ => return Err(Reason::BadModification),
            };
            let description = utf8(description)?;
            check_description(&description)?;
            let mut values = Vec::new();
            while let Some(line) = self.next_line()? {
                if line.as_ref() == b"-" {
                    break;
                }
                let (name, value) = self.split(&line)?;
                if !name.eq_ignore_ascii_case(&description) {
                    check_is_no_dn(&name)?;
                    return Err(Reason::WrongAttribute(description.into_owned()));
                }
                values.push(value);
            }
            modifications.push(Modification {
                kind,
                description,
                values,
            });
        }
        Ok(modifications)
    }

    fn parse_rename(&mut self) -> Result<Body<'a>, Reason> {
        let mut value_of = |name: &str| match self.next_if(name)? {
            Some(line) => Ok(Some(self.split(&line)?.1)),
            None => Ok(None),
        };
        let new_rdn = utf8(value_of("newrdn")?.ok_or(Reason::ExpectedLine("newrdn:"))?)?;
        let flag = value_of("deleteoldrdn")?.ok_or(Reason::ExpectedLine("deleteoldrdn:"))?;
        let new_superior = value_of("newsuperior")?.map(utf8).transpose()?;
        let delete_old_rdn = match flag.trim_ascii() {
            b"0" => false,
            b"1" => true,
            _ => return Err(Reason::BadDeleteOldRdn),
        };
        Ok(Body::ModifyDn {
            new_rdn,
            delete_old_rdn,
            new_superior,
        })
    }

    /// The name before the colon of a line, and the value after it.
    #[allow(clippy::type_complexity)]
    fn split(&self, line: &Cow<'a, [u8]>) -> Result<(Cow<'a, str>, Cow<'a, [u8]>), Reason> {
        let colon = memchr::memchr(b':', line).ok_or(Reason::MissingColon)?;
        let name = utf8(part(line, 0, colon))?;
        Ok((name, self.value(line, colon)?))
    }

    /// The value that the rest of a line, from a colon on, stands for (value-spec of RFC 2849).
    fn value(&self, line: &Cow<'a, [u8]>, colon: usize) -> Result<Cow<'a, [u8]>, Reason> {
        match line.get(colon..).unwrap_or_default() {
            [b':', b':', text @ ..] => base64::decode(text.trim_ascii())
                .map(Cow::Owned)
                .ok_or(Reason::BadBase64),
            [b':', b'<', url @ ..] => {
                let load_url = self.options.load_url.ok_or(Reason::UrlNotAllowed)?;
                let url = String::from_utf8_lossy(url.trim_ascii()).into_owned();
                load_url(&url)
                    .map(Cow::Owned)
                    .map_err(|error| Reason::UrlFailed { url, error })
            }
            [_, text @ ..] => {
                let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
                Ok(part(line, colon + 1 + spaces, line.len()))
            }
            [] => Ok(Cow::Borrowed(&[])),
        }
    }

    /// The next line if its name is `name`; otherwise nothing is read.
    fn next_if(&mut self, name: &str) -> Result<Option<Cow<'a, [u8]>>, Reason> {
        let first = |text: &[u8]| text.first().map(u8::to_ascii_lowercase);
        if !self.rest.starts_with(b"#") && first(self.rest) != first(name.as_bytes()) {
            return Ok(None);
        }
        let before = (self.rest, self.line, self.last_line);
        let line = self.next_line()?;
        let is_wanted = |line: &[u8]| {
            line.split(|&byte| byte == b':')
                .next()
                .is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
        };
        if line.as_deref().is_some_and(is_wanted) {
            return Ok(line);
        }
        (self.rest, self.line, self.last_line) = before;
        Ok(None)
    }

    /// The next line of the record without comments, its continuations joined; `None` where the record ends. The
    /// empty line that ends it is left alone.
    fn next_line(&mut self) -> Result<Option<Cow<'a, [u8]>>, Reason> {
        while self.rest.starts_with(b"#") {
            self.skip_logical_line();
        }
        let Some((line, length)) = self.peek_physical_line() else {
            return Ok(None);
        };
        if line.is_empty() {
            return Ok(None);
        }
        self.last_line = self.line;
        if line.starts_with(b" ") {
            return Err(Reason::StrayContinuation);
        }
        self.advance(length);
        let mut line = Cow::Borrowed(line);
        while let (true, Some(([_, continuation @ ..], length))) =
            (self.rest.starts_with(b" "), self.peek_physical_line())
        {
            line.to_mut().extend_from_slice(continuation);
            self.advance(length);
        }
        if line.len() > self.options.line_bytes_max {
            return Err(Reason::LineTooLong(self.options.line_bytes_max));
        }
        Ok(Some(line))
    }

    /// Goes past a line and its continuations.
    fn skip_logical_line(&mut self) {
        while let Some((_, length)) = self.peek_physical_line() {
            self.advance(length);
            if !self.rest.starts_with(b" ") {
                break;
            }
        }
    }

    /// Goes past the rest of a record and the empty line after it.
    fn skip_record(&mut self) {
        while let Some((line, length)) = self.peek_physical_line() {
            if line.is_empty() {
                break;
            }
            self.advance(length);
        }
    }

    /// The next line without its end, and its length with it; `None` at the end of the block.
    fn peek_physical_line(&self) -> Option<(&'a [u8], usize)> {
        if self.rest.is_empty() {
            return None;
        }
        let newline = memchr::memchr(b'\n', self.rest);
        let (end, length) = newline.map_or((self.rest.len(), self.rest.len()), |newline| {
            (newline, newline + 1)
        });
        steps::count(length);
        let line = self.rest.get(..end).unwrap_or_default();
        Some((line.strip_suffix(b"\r").unwrap_or(line), length))
    }

    fn advance(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.line += 1;
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Rejected<'a>>;

    fn next(&mut self) -> Option<Result<Record<'a>, Rejected<'a>>> {
        if let Some(limit) = self.too_long {
            let text = std::mem::take(&mut self.rest);
            let rejected = Rejected {
                line: self.line,
                reason: Reason::RecordTooLong(limit),
                text,
            };
            return (!text.is_empty()).then_some(Err(rejected));
        }
        if !self.skip_to_record() {
            return None;
        }
        let whole = self.rest;
        let parsed = self.parse_record();
        let line = self.last_line;
        if parsed.is_err() {
            self.skip_record();
        }
        let text = whole
            .get(..whole.len() - self.rest.len())
            .unwrap_or_default();
        Some(match parsed {
            Ok(record) => Ok(Record { text, ..record }),
            Err(reason) => Err(Rejected { line, reason, text }),
        })
    }
}

fn is_version_1(line: &[u8]) -> bool {
    line.get(..8)
        .is_some_and(|name| name.eq_ignore_ascii_case(b"version:"))
        && line
            .get(8..)
            .is_some_and(|value| value.trim_ascii() == b"1")
}

/// A part of a line, borrowed if the line is.
fn part<'a>(line: &Cow<'a, [u8]>, from: usize, to: usize) -> Cow<'a, [u8]> {
    match line {
        Cow::Borrowed(line) => Cow::Borrowed(line.get(from..to).unwrap_or_default()),
        Cow::Owned(line) => Cow::Owned(line.get(from..to).unwrap_or_default().to_vec()),
    }
}

fn utf8(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>, Reason> {
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes)
            .map(Cow::Borrowed)
            .map_err(|_| Reason::NotUtf8),
        Cow::Owned(bytes) => String::from_utf8(bytes)
            .map(Cow::Owned)
            .map_err(|_| Reason::NotUtf8),
    }
}

/// A record has one name; what looks like a second one is the beginning of another record.
fn check_is_no_dn(name: &str) -> Result<(), Reason> {
    match name.eq_ignore_ascii_case("dn") {
        true => Err(Reason::MissingEmptyLine),
        false => Ok(()),
    }
}

fn check_description(description: &str) -> Result<(), Reason> {
    match AttributeDescription::parse(description) {
        Ok(_) => Ok(()),
        Err(_) => Err(Reason::BadDescription(description.to_owned())),
    }
}
