//! Matching entry count (of the UnboundID LDAP SDK): how many entries a search would find, without sending them.
//!
//! controlValue of the request, and of the one that comes with the end of the search:
//!
//! ```text
//! MatchingEntryCountRequest ::= SEQUENCE {
//!     maxCandidatesToExamine       [0] INTEGER DEFAULT 0,
//!     alwaysExamineCandidates      [1] BOOLEAN DEFAULT FALSE,
//!     processSearchIfUnindexed     [2] BOOLEAN DEFAULT FALSE,
//!     includeDebugInfo             [3] BOOLEAN DEFAULT FALSE,
//!     skipResolvingExplodedIndexes [4] BOOLEAN DEFAULT FALSE,
//!     fastShortCircuitThreshold    [5] INTEGER OPTIONAL,
//!     slowShortCircuitThreshold    [6] INTEGER OPTIONAL,
//!     includeExtendedResponseData  [7] BOOLEAN DEFAULT FALSE }
//!
//! MatchingEntryCountResponse ::= SEQUENCE {
//!     entryCount CHOICE {
//!         examinedCount   [0] INTEGER,
//!         unexaminedCount [1] INTEGER,
//!         upperBound      [2] INTEGER,
//!         unknown         [3] NULL },
//!     debugInfo     [0] SEQUENCE OF OCTET STRING OPTIONAL,
//!     searchIndexed [1] BOOLEAN DEFAULT TRUE }
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber;
use crate::error::{PartError, Violation};
use crate::limits::INTEGER_MAX;
use crate::operation::Operation;

/// OID of the request control.
pub const MATCHING_ENTRY_COUNT: &str = "1.3.6.1.4.1.30221.2.5.36";
/// OID of the response control.
pub const MATCHING_ENTRY_COUNT_RESPONSE: &str = "1.3.6.1.4.1.30221.2.5.37";

pub(super) const SPEC: Spec = Spec {
    oids: &[MATCHING_ENTRY_COUNT],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

/// What is asked.
pub(super) type Value<'m> = MatchingEntryCount;

pub(super) fn decode(control: &Control<'_>) -> Result<MatchingEntryCount, Fault> {
    Ok(MatchingEntryCount::decode(control.value()?)?)
}

/// How the entries of a search are to be counted. What else the control has room for makes no difference here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchingEntryCount {
    /// Up to so many candidates are looked at.
    pub candidates_max: u32,
    /// They are also if no index says which they are.
    pub even_if_unindexed: bool,
    /// How the candidates are found is told, too.
    pub tells_plan: bool,
}

/// How many entries there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryCount {
    /// So many: each was looked at.
    Examined(u32),
    /// So many at most.
    UpperBound(u32),
    /// Nobody knows.
    Unknown,
}

impl MatchingEntryCount {
    /// Reads a control value.
    ///
    /// # Errors
    /// When it is not of that form.
    pub fn decode(value: &[u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "MatchingEntryCountRequest")?;
        let mut asked = MatchingEntryCount::default();
        for (number, field) in [
            (0, "maxCandidatesToExamine"),
            (1, "alwaysExamineCandidates"),
            (2, "processSearchIfUnindexed"),
            (3, "includeDebugInfo"),
            (4, "skipResolvingExplodedIndexes"),
            (5, "fastShortCircuitThreshold"),
            (6, "slowShortCircuitThreshold"),
            (7, "includeExtendedResponseData"),
        ] {
            let Some(content) = reader.optional(ber::context(number), field)? else {
                continue;
            };
            match number {
                0 | 5 | 6 => {
                    let count = ber::integer(content, field)?;
                    let count = u32::try_from(count).ok().filter(|count| *count <= INTEGER_MAX);
                    let count = count.ok_or(Violation::OutOfRange { field })?;
                    if number == 0 {
                        asked.candidates_max = count;
                    }
                }
                number => {
                    let is_set = ber::boolean(content, field)?;
                    match number {
                        2 => asked.even_if_unindexed = is_set,
                        3 => asked.tells_plan = is_set,
                        _ => {}
                    }
                }
            }
        }
        reader.skip_extensions()?;
        Ok(asked)
    }
}

/// Appends the value of the response control. Of the plan there are no lines if it is not told.
pub fn put_entry_count(out: &mut Vec<u8>, count: EntryCount, is_indexed: bool, plan: &[String]) {
    let response = ber::open(out, ber::SEQUENCE, 0);
    match count {
        EntryCount::Examined(count) => ber::put_integer(out, ber::context(0), i64::from(count)),
        EntryCount::UpperBound(count) => ber::put_integer(out, ber::context(2), i64::from(count)),
        EntryCount::Unknown => ber::put_octets(out, ber::context(3), b""),
    }
    if !plan.is_empty() {
        let lines = ber::open(out, ber::context_constructed(0), 0);
        for line in plan {
            ber::put_octets(out, ber::OCTET_STRING, line.as_bytes());
        }
        ber::close(out, lines);
    }
    if !is_indexed {
        ber::put_boolean(out, ber::context(1), false);
    }
    ber::close(out, response);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sdk_sends_is_read() {
        let all = b"\x30\x0f\x80\x01\x07\x84\x01\xff\x85\x01\x03\x86\x01\x04\x87\x01\xff";
        let most = b"\x30\x0c\x80\x01\x64\x81\x01\xff\x82\x01\xff\x83\x01\xff";
        for (value, expected) in [
            (&b"\x30\x00"[..], MatchingEntryCount::default()),
            (
                all,
                MatchingEntryCount {
                    candidates_max: 7,
                    ..MatchingEntryCount::default()
                },
            ),
            (
                most,
                MatchingEntryCount {
                    candidates_max: 100,
                    even_if_unindexed: true,
                    tells_plan: true,
                },
            ),
        ] {
            assert_eq!(MatchingEntryCount::decode(value), Ok(expected));
        }
        for wrong in [
            &b""[..],
            b"x",
            b"\x30\x01",
            b"\x30\x02\x80\x00",
            b"\x30\x03\x80\x01\xff",
            b"\x30\x07\x80\x05\x01\x00\x00\x00\x00",
            b"\x30\x02\x82\x00",
            b"\x30\x03\x85\x01\xff",
        ] {
            assert!(MatchingEntryCount::decode(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn answers_are_what_the_sdk_makes_of_them() {
        let told = |count, is_indexed, plan: &[&str]| {
            let plan: Vec<String> = plan.iter().map(|line| (*line).to_owned()).collect();
            let mut value = Vec::new();
            put_entry_count(&mut value, count, is_indexed, &plan);
            value
        };
        let both = b"\x30\x0b\x80\x01\x05\xa0\x06\x04\x01a\x04\x01b";
        assert_eq!(told(EntryCount::Examined(5), true, &["a", "b"]), both);
        assert_eq!(told(EntryCount::UpperBound(5), true, &[]), b"\x30\x03\x82\x01\x05");
        let unknown = b"\x30\x05\x83\x00\x81\x01\x00";
        assert_eq!(told(EntryCount::Unknown, false, &[]), unknown);
    }
}
