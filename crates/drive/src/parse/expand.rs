//! References to settings and variables, which are replaced before a record is parsed.

#![deny(clippy::indexing_slicing)]

use super::Parser;
use super::records::Record;
use crate::plan::{PlanError, RECORD_BYTES_MAX, REFERENCES_MAX, SETTINGS_BYTES_MAX};
use crate::template::{MARKER_START, marker};

/// The greatest width to which a reference fills a value with zeros, in characters.
const WIDTH_MAX: usize = 99;

impl Parser<'_> {
    /// Replaces references to settings by their values, and references to variables by markers. Returns whether there
    /// is a marker.
    pub(super) fn expand(&mut self, record: Record) -> Result<(Record, bool), PlanError> {
        let text = &record.text;
        let line_at = |at: usize| {
            let before = text.get(..at).unwrap_or_default();
            record.first_line + before.iter().filter(|octet| **octet == b'\n').count() as u64
        };
        if let Some(at) = text.iter().position(|octet| *octet == MARKER_START) {
            return Err(PlanError::new(
                line_at(at),
                "the control character U+0002 must be written in base64",
            ));
        }
        let mut out = Vec::with_capacity(text.len());
        let mut references = 0;
        let mut at = 0;
        let mut in_comment = false;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            // Comments keep what looks like a reference.
            if at == 0 || text.get(at - 1) == Some(&b'\n') {
                in_comment = rest.starts_with(b"#") || in_comment && rest.starts_with(b" ");
            }
            if in_comment {
                let end = rest.iter().position(|octet| *octet == b'\n');
                let comment = end.and_then(|end| rest.get(..=end)).unwrap_or(rest);
                out.extend_from_slice(comment);
                at += comment.len();
                continue;
            }
            if let Some(rest) = rest.strip_prefix(b"$${") {
                out.extend_from_slice(b"${");
                at = text.len() - rest.len();
                continue;
            }
            let Some(reference) = rest.strip_prefix(b"${") else {
                out.extend(rest.first());
                at += 1;
                continue;
            };
            let line = reference.split(|octet| *octet == b'\n').next();
            let line = line.unwrap_or_default();
            let end = line.iter().position(|octet| *octet == b'}');
            let name = end.and_then(|end| std::str::from_utf8(line.get(..end)?).ok());
            let name = name.ok_or_else(|| {
                let reason = "\"${\" begins the name of a variable, which ends with \"}\" in the same line; \
                              for the characters themselves write \"$${\"";
                PlanError::new(line_at(at), reason)
            })?;
            at += name.len() + 3;
            if let Some(value) = self.settings.get(name) {
                self.settings_bytes += value.len();
                if out.len() + value.len() > RECORD_BYTES_MAX {
                    let reason = format!(
                        "with its settings the record is longer than {RECORD_BYTES_MAX} bytes"
                    );
                    return Err(PlanError::new(line_at(at), reason));
                }
                if self.settings_bytes > SETTINGS_BYTES_MAX {
                    let reason =
                        format!("settings add more than {SETTINGS_BYTES_MAX} bytes to the plan");
                    return Err(PlanError::new(line_at(at), reason));
                }
                out.extend_from_slice(value.as_bytes());
                continue;
            }
            let (name, width) = match name.split_once(':') {
                Some((name, width)) => (name, width.parse().ok()),
                None => (name, Some(0)),
            };
            let width = width.filter(|width| *width <= WIDTH_MAX).ok_or_else(|| {
                let reason = format!("the width behind the colon is a number up to {WIDTH_MAX}");
                PlanError::new(line_at(at), reason)
            })?;
            let variable = self.variables.get(name).ok_or_else(|| {
                let reason = format!("there is no variable or setting {name:?} above this line");
                PlanError::new(line_at(at), reason)
            })?;
            references += 1;
            if references > REFERENCES_MAX {
                let reason = format!("more than {REFERENCES_MAX} references in a record");
                return Err(PlanError::new(line_at(at), reason));
            }
            out.extend_from_slice(&marker(*variable, width));
        }
        let record = Record {
            first_line: record.first_line,
            text: out,
        };
        Ok((record, references > 0))
    }
}
