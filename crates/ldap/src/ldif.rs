//! LDIF (RFC 2849): directory entries and changes as lines of text.
//!
//! Reading is in two steps so that it can be done in parallel: [`Blocks`] cuts a stream where records end and knows
//! each block's first line, [`Block::records`] parses the records of one block, borrowing from it whatever is neither
//! folded nor in base 64. [`Reader`] does both in turn. A record that does not parse is handed out with its place, its
//! reason and its text, and reading goes on with the next one.
//!
//! Beyond RFC 2849, a byte order mark may stand at the beginning, values may hold UTF-8 without base 64, as files in
//! the field do, the last hyphen of a change record may be missing, and `increment` (RFC 4525) is known.

mod blocks;
mod records;
mod writer;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

pub use blocks::{BLOCK_BYTES, Block, Blocks, Reader};
pub use records::Records;
pub use writer::{COLUMNS, write_dn, write_record, write_value, write_version};

use crate::list::{AttributesBuf, ChangeKind, ChangesBuf};

/// The longest record that is read unless [`Options::record_bytes_max`] says otherwise.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// The longest line, its continuations joined, that is read unless [`Options::line_bytes_max`] says otherwise.
pub const LINE_BYTES_MAX: usize = 32 << 20;

/// What a reader accepts.
#[derive(Clone, Copy)]
pub struct Options<'o> {
    /// The longest record, in bytes.
    pub record_bytes_max: usize,
    /// The longest line with its continuations, in bytes.
    pub line_bytes_max: usize,
    /// Fetches the value behind `attribute:< URL`. Without it such values are refused: the one that wrote the file
    /// would decide which files of this machine are read.
    pub load_url: Option<&'o LoadUrl>,
}

/// Fetches what a URL names; the error is a sentence.
pub type LoadUrl = dyn Fn(&str) -> Result<Vec<u8>, String> + Sync;

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            record_bytes_max: RECORD_BYTES_MAX,
            line_bytes_max: LINE_BYTES_MAX,
            load_url: None,
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("record_bytes_max", &self.record_bytes_max)
            .field("line_bytes_max", &self.line_bytes_max)
            .field("load_url", &self.load_url.is_some())
            .finish()
    }
}

/// One record: an entry or a change to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// The line of its `dn:`, the file's first line being 1.
    pub line: u64,
    /// The record as it stands in the file, with the comments inside it.
    pub text: &'a [u8],
    /// The distinguished name as written; not checked any further than that it is UTF-8.
    pub dn: Cow<'a, str>,
    /// The controls of a change record.
    pub controls: Vec<Control<'a>>,
    /// What the record says about the entry.
    pub body: Body<'a>,
}

/// What a record says about its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body<'a> {
    /// A content record: the entry's attribute values in the order of the file.
    Entry(Vec<AttributeValue<'a>>),
    /// `changetype: add`
    Add(Vec<AttributeValue<'a>>),
    /// `changetype: delete`
    Delete,
    /// `changetype: modify`
    Modify(Vec<Modification<'a>>),
    /// `changetype: modrdn` or `moddn`
    ModifyDn {
        /// The new relative name.
        new_rdn: Cow<'a, str>,
        /// Whether the values of the old relative name go.
        delete_old_rdn: bool,
        /// The new parent.
        new_superior: Option<Cow<'a, str>>,
    },
}

/// One value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeValue<'a> {
    /// A well-formed attribute description, as written.
    pub description: Cow<'a, str>,
    /// The value, base 64 undone.
    pub value: Cow<'a, [u8]>,
}

/// The values of each attribute together, as an AddRequest has them; attributes in the order in which they first come.
pub fn attributes(values: &[AttributeValue<'_>]) -> AttributesBuf {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut grouped: Vec<(&str, Vec<&[u8]>)> = Vec::new();
    for AttributeValue { description, value } in values {
        let place = match grouped.last() {
            // Mostly the values of an attribute follow each other.
            Some((last, _)) if last.eq_ignore_ascii_case(description) => grouped.len() - 1,
            _ => *places
                .entry(description.to_ascii_lowercase())
                .or_insert(grouped.len()),
        };
        if place == grouped.len() {
            grouped.push((description, Vec::new()));
        }
        if let Some((_, own)) = grouped.get_mut(place) {
            own.push(value);
        }
    }
    let mut attributes = AttributesBuf::default();
    for (description, own) in grouped {
        attributes.push(description.as_bytes(), own);
    }
    attributes
}

/// One modification of a `changetype: modify` record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modification<'a> {
    /// What to do with the values.
    pub kind: ModificationKind,
    /// A well-formed attribute description, as written.
    pub description: Cow<'a, str>,
    /// The values.
    pub values: Vec<Cow<'a, [u8]>>,
}

/// The modifications as a ModifyRequest has them.
pub fn changes(modifications: &[Modification<'_>]) -> ChangesBuf {
    let mut changes = ChangesBuf::default();
    for modification in modifications {
        let kind = match modification.kind {
            ModificationKind::Add => ChangeKind::Add,
            ModificationKind::Delete => ChangeKind::Delete,
            ModificationKind::Replace => ChangeKind::Replace,
            ModificationKind::Increment => ChangeKind::Increment,
        };
        let values = modification.values.iter().map(AsRef::as_ref);
        changes.push(kind, modification.description.as_bytes(), values);
    }
    changes
}

/// What a modification does with its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModificationKind {
    /// `add`
    Add,
    /// `delete`
    Delete,
    /// `replace`
    Replace,
    /// `increment` (RFC 4525)
    Increment,
}

/// A control of a change record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control<'a> {
    /// The numeric object identifier.
    pub oid: Cow<'a, str>,
    /// Whether the change must fail where the control is not known.
    pub critical: bool,
    /// The control value.
    pub value: Option<Cow<'a, [u8]>>,
}

/// A record that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected<'a> {
    /// The line the trouble is at, the file's first line being 1.
    pub line: u64,
    /// What the trouble is.
    pub reason: Reason,
    /// The record as it stands in the file; of one that is too long, its beginning.
    pub text: &'a [u8],
}

impl fmt::Display for Rejected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for Rejected<'_> {}

/// Why a record could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The record is longer than [`Options::record_bytes_max`].
    #[error("the record is longer than {0} bytes")]
    RecordTooLong(usize),
    /// The line is longer than [`Options::line_bytes_max`].
    #[error("the line is longer than {0} bytes")]
    LineTooLong(usize),
    /// A record that does not begin with `dn:`.
    #[error("a record must begin with a \"dn:\" line")]
    MissingDn,
    /// A `dn:` line within a record.
    #[error(
        "a second \"dn:\" within a record: an empty line is missing before it (one with spaces in it is not empty)"
    )]
    MissingEmptyLine,
    /// Another version than 1.
    #[error("only version 1 of LDIF is known")]
    UnknownVersion,
    /// A line that starts with a space where no line precedes it.
    #[error("a continuation line with no line before it")]
    StrayContinuation,
    /// A line without a colon.
    #[error("the line has no colon after the attribute")]
    MissingColon,
    /// What stands before the colon is not an attribute description.
    #[error("{0:?} is not an attribute description")]
    BadDescription(String),
    /// A value after two colons is not base 64.
    #[error("the value after :: is not base64")]
    BadBase64,
    /// A name that is not UTF-8.
    #[error("the name is not UTF-8")]
    NotUtf8,
    /// A value behind a URL where that is not allowed.
    #[error("values read from URLs are not allowed here")]
    UrlNotAllowed,
    /// A value behind a URL that could not be read.
    #[error("cannot read {url}: {error}")]
    UrlFailed {
        /// The URL as written.
        url: String,
        /// What went wrong.
        error: String,
    },
    /// A content record, or an add, without any attribute.
    #[error("the entry has no attributes")]
    NoAttributes,
    /// An unknown kind of change.
    #[error("{0:?} is not a kind of change: add, delete, modify, modrdn or moddn")]
    BadChangeType(String),
    /// A `control:` line without a change.
    #[error("a control must be followed by a control or by \"changetype:\"")]
    MissingChangeType,
    /// A `control:` line that is not an identifier, a criticality and a value.
    #[error("a control is an object identifier, true or false, and a value")]
    BadControl,
    /// In a modify record: not `add:`, `delete:`, `replace:` or `increment:` with an attribute.
    #[error("expected \"add:\", \"delete:\", \"replace:\" or \"increment:\" and an attribute")]
    BadModification,
    /// In a modify record: a value of another attribute than the one being modified.
    #[error("expected a value of {0} or a line with a hyphen")]
    WrongAttribute(String),
    /// In a rename: the expected line is missing.
    #[error("expected {0:?}")]
    ExpectedLine(&'static str),
    /// `deleteoldrdn` is neither 0 nor 1.
    #[error("deleteoldrdn must be 0 or 1")]
    BadDeleteOldRdn,
    /// A line after the end of the change.
    #[error("unexpected line after the change")]
    TrailingLine,
}
