//! Splits a plan into records and lines, which are those of LDIF (RFC 2849).

#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::io::BufRead;

use sapwood_ldap::base64;

use crate::plan::{PlanError, RECORD_BYTES_MAX};

/// Reads one record at a time: the lines up to an empty one.
#[derive(Debug)]
pub(crate) struct RecordReader<R> {
    source: R,
    /// The number of the line that is read next.
    line: u64,
}

/// A record of the file, unchanged.
#[derive(Debug)]
pub(crate) struct Record {
    /// The number of its first line.
    pub(crate) first_line: u64,
    /// Its lines with their ends, comments and continuations included.
    pub(crate) text: Vec<u8>,
}

/// One line with its continuations joined.
#[derive(Debug, Clone)]
pub(crate) struct Line<'t> {
    /// Its number in the file.
    pub(crate) number: u64,
    /// Where it begins in the record's text.
    pub(crate) offset: usize,
    /// The text before the colon, in lower case.
    pub(crate) name: String,
    /// The value after the colon, with base64 decoded.
    pub(crate) value: Cow<'t, [u8]>,
}

impl<R: BufRead> RecordReader<R> {
    pub(crate) fn new(source: R) -> Self {
        RecordReader { source, line: 1 }
    }

    /// The next record that consists of more than comments.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record>, PlanError> {
        let mut text = Vec::new();
        let mut first_line = self.line;
        let mut has_lines = false;
        loop {
            let start = text.len();
            let room = (RECORD_BYTES_MAX + 1).saturating_sub(start) as u64;
            let mut limited = std::io::Read::take(&mut self.source, room);
            let read = limited
                .read_until(b'\n', &mut text)
                .map_err(|error| PlanError::new(self.line, format!("cannot read: {error}")))?;
            if text.len() > RECORD_BYTES_MAX {
                let reason = format!("the record is longer than {RECORD_BYTES_MAX} bytes");
                return Err(PlanError::new(first_line, reason));
            }
            let line = text.get(start..).unwrap_or_default().trim_ascii_end();
            let (is_empty, is_comment) = (line.is_empty(), line.starts_with(b"#"));
            if is_empty && has_lines {
                self.line += u64::from(read > 0);
                return Ok(Some(Record { first_line, text }));
            }
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            if is_empty {
                text.clear();
                first_line = self.line;
            }
            has_lines |= !is_empty && !is_comment;
        }
    }
}

impl Record {
    /// The record's lines without comments. The text before a colon must be UTF-8.
    pub(crate) fn lines(&self) -> Result<Vec<Line<'_>>, PlanError> {
        let mut lines: Vec<(u64, usize, Cow<'_, [u8]>)> = Vec::new();
        let mut offset = 0;
        let mut in_comment = false;
        let physical = self.text.split_inclusive(|octet| *octet == b'\n');
        for (number, physical) in (self.first_line..).zip(physical) {
            let line = physical.strip_suffix(b"\n").unwrap_or(physical);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match line {
                [] => {}
                [b' ', _continuation @ ..] if in_comment => {}
                [b' ', continuation @ ..] => match lines.last_mut() {
                    Some((_, _, line)) => line.to_mut().extend_from_slice(continuation),
                    None => {
                        let reason = "a continuation line with no line before it";
                        return Err(PlanError::new(number, reason));
                    }
                },
                [b'#', ..] => in_comment = true,
                line => {
                    in_comment = false;
                    lines.push((number, offset, Cow::Borrowed(line)));
                }
            }
            offset += physical.len();
        }
        lines
            .into_iter()
            .map(|(number, offset, line)| Line::parse(number, offset, line))
            .collect()
    }
}

impl<'t> Line<'t> {
    fn parse(number: u64, offset: usize, line: Cow<'t, [u8]>) -> Result<Self, PlanError> {
        let wrong = |reason: &str| PlanError::new(number, reason);
        // A line without a colon: it ends a change in LDIF.
        if line.as_ref() == b"-" {
            return Ok(Line {
                number,
                offset,
                name: "-".to_owned(),
                value: Cow::Borrowed(b""),
            });
        }
        let colon = line.iter().position(|octet| *octet == b':');
        let colon = colon.ok_or_else(|| wrong("the line has no colon"))?;
        let name = std::str::from_utf8(line.get(..colon).unwrap_or_default())
            .map_err(|_| wrong("the name before the colon is not UTF-8"))?
            .to_ascii_lowercase();
        let value = match line.get(colon + 1..).unwrap_or_default() {
            [b':', text @ ..] => base64::decode(text.trim_ascii())
                .map(Cow::Owned)
                .ok_or_else(|| wrong("the value after :: is not base64"))?,
            text => {
                let spaces = text.iter().take_while(|octet| **octet == b' ').count();
                match line {
                    Cow::Borrowed(line) => {
                        Cow::Borrowed(line.get(colon + 1 + spaces..).unwrap_or_default())
                    }
                    Cow::Owned(ref line) => {
                        Cow::Owned(line.get(colon + 1 + spaces..).unwrap_or_default().to_vec())
                    }
                }
            }
        };
        Ok(Line {
            number,
            offset,
            name,
            value,
        })
    }

    /// The value as text.
    pub(crate) fn text(&self) -> Result<&str, PlanError> {
        std::str::from_utf8(&self.value)
            .map(str::trim)
            .map_err(|_| self.error("the value is not UTF-8"))
    }

    /// The value as a whole number from `least` to `most`.
    pub(crate) fn number(&self, least: u64, most: u64) -> Result<u64, PlanError> {
        let number = self.text()?.replace('_', "").parse::<u64>().ok();
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| {
                self.error(&format!(
                    "{} must be a number from {least} to {most}",
                    self.name
                ))
            })
    }

    /// An error of this line.
    pub(crate) fn error(&self, reason: &str) -> PlanError {
        PlanError::new(self.number, reason)
    }
}
