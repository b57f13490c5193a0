//! Virtual list view (draft-ietf-ldapext-ldapv3-vlv): of a sorted search those entries are sent that stand around a
//! place in the list, which an offset or a value tells. It needs server-side sorting (RFC 2891) in the same request.
//!
//! controlValue of the request (§6.1):
//!
//! ```text
//! VirtualListViewRequest ::= SEQUENCE {
//!     beforeCount    INTEGER (0..maxInt),
//!     afterCount     INTEGER (0..maxInt),
//!     target         CHOICE {
//!         byOffset            [0] SEQUENCE {
//!             offset              INTEGER (1..maxInt),
//!             contentCount        INTEGER (0..maxInt) },
//!         greaterThanOrEqual  [1] AssertionValue },
//!     contextID      OCTET STRING OPTIONAL }
//! ```
//!
//! controlValue of the response (§6.2):
//!
//! ```text
//! VirtualListViewResponse ::= SEQUENCE {
//!     targetPosition         INTEGER (0..maxInt),
//!     contentCount           INTEGER (0..maxInt),
//!     virtualListViewResult  ENUMERATED { result codes of LDAP },
//!     contextID              OCTET STRING OPTIONAL }
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber::{self, Reader};
use crate::error::{PartError, Violation};
use crate::limits::INTEGER_MAX;
use crate::operation::Operation;
use crate::result_code::ResultCode;

/// OID of the request control.
pub const LIST_VIEW_REQUEST: &str = "2.16.840.1.113730.3.4.9";
/// OID of the response control.
pub const LIST_VIEW_RESPONSE: &str = "2.16.840.1.113730.3.4.10";

const BY_OFFSET: u8 = ber::context_constructed(0);
const BY_VALUE: u8 = ber::context(1);

pub(super) const SPEC: Spec = Spec {
    oids: &[LIST_VIEW_REQUEST],
    operations: &[Operation::Search],
    layer: Layer::Directory,
};

pub(super) type Value<'m> = (ListView<'m>, bool);

/// The view, and whether the control is critical.
pub(super) fn decode<'m>(control: &Control<'m>) -> Result<Value<'m>, Fault> {
    Ok((ListView::decode(control.value()?)?, control.critical))
}

/// Where the target of a view is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListTarget<'a> {
    /// So far into the list, if that has so many entries: the server takes the same part of its own list.
    Offset {
        /// From 1 on. 0 is out of range, which the result says.
        offset: u32,
        /// 0 if the client does not know.
        content_count: u32,
    },
    /// The first entry whose primary key is not before this value.
    Value(&'a [u8]),
}

/// The request value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListView<'a> {
    /// How many entries to send before the target.
    pub before: u32,
    /// How many behind it.
    pub after: u32,
    /// The target.
    pub target: ListTarget<'a>,
    /// What the last response about this list said.
    pub context: Option<&'a [u8]>,
}

fn count(reader: &mut Reader<'_>, field: &'static str) -> Result<u32, PartError> {
    let number = u32::try_from(reader.integer(field)?).ok();
    let number = number.filter(|number| *number <= INTEGER_MAX);
    Ok(number.ok_or(Violation::OutOfRange { field })?)
}

impl<'a> ListView<'a> {
    /// Reads a control value.
    ///
    /// # Errors
    /// If it is malformed, or a number is out of range.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "VirtualListViewRequest")?;
        let before = count(&mut reader, "beforeCount")?;
        let after = count(&mut reader, "afterCount")?;
        let target = match reader.optional(BY_OFFSET, "byOffset")? {
            Some(content) => {
                let mut content = Reader::new(content);
                let offset = count(&mut content, "offset")?;
                let content_count = count(&mut content, "contentCount")?;
                content.end()?;
                ListTarget::Offset {
                    offset,
                    content_count,
                }
            }
            None => ListTarget::Value(reader.expect(BY_VALUE, "target")?),
        };
        let context = reader.optional(ber::OCTET_STRING, "contextID")?;
        reader.skip_extensions()?;
        Ok(ListView {
            before,
            after,
            target,
            context,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_integer(out, ber::INTEGER, i64::from(self.before));
        ber::put_integer(out, ber::INTEGER, i64::from(self.after));
        match self.target {
            ListTarget::Offset {
                offset,
                content_count,
            } => {
                let target = ber::open(out, BY_OFFSET, 0);
                ber::put_integer(out, ber::INTEGER, i64::from(offset));
                ber::put_integer(out, ber::INTEGER, i64::from(content_count));
                ber::close(out, target);
            }
            ListTarget::Value(value) => ber::put_octets(out, BY_VALUE, value),
        }
        if let Some(context) = self.context {
            ber::put_octets(out, ber::OCTET_STRING, context);
        }
        ber::close(out, element);
    }
}

/// The response value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListViewResult<'a> {
    /// The place of the target, from 1 on; one more than there are entries if there is none.
    pub position: u32,
    /// How many entries there are.
    pub content_count: u32,
    /// How the view ended.
    pub code: ResultCode,
    /// What the next request about this list may say.
    pub context: Option<&'a [u8]>,
}

impl<'a> ListViewResult<'a> {
    /// Reads a control value.
    ///
    /// # Errors
    /// If it is malformed, or a number is out of range.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "VirtualListViewResponse")?;
        let position = count(&mut reader, "targetPosition")?;
        let content_count = count(&mut reader, "contentCount")?;
        let field = "virtualListViewResult";
        let code = u32::try_from(reader.enumerated(field)?);
        let code = code.map_err(|_| Violation::OutOfRange { field })?;
        let context = reader.optional(ber::OCTET_STRING, "contextID")?;
        reader.skip_extensions()?;
        Ok(ListViewResult {
            position,
            content_count,
            code: code.into(),
            context,
        })
    }

    /// Appends the control value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        ber::put_integer(out, ber::INTEGER, i64::from(self.position));
        ber::put_integer(out, ber::INTEGER, i64::from(self.content_count));
        ber::put_integer(out, ber::ENUMERATED, i64::from(self.code.code()));
        if let Some(context) = self.context {
            ber::put_octets(out, ber::OCTET_STRING, context);
        }
        ber::close(out, element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_come_back_as_they_were_written() {
        let by_offset = ListTarget::Offset {
            offset: 300,
            content_count: 0,
        };
        for (target, context) in [
            (by_offset, None),
            (by_offset, Some(b"c".as_slice())),
            (ListTarget::Value(b"B"), None),
            (ListTarget::Value(b""), Some(b"")),
        ] {
            let view = ListView {
                before: 9,
                after: INTEGER_MAX,
                target,
                context,
            };
            let mut value = Vec::new();
            view.encode(&mut value);
            assert_eq!(ListView::decode(&value), Ok(view));
            for end in 0..value.len() {
                assert!(ListView::decode(&value[..end]).is_err());
            }
            let result = ListViewResult {
                position: 7,
                content_count: 8,
                code: ResultCode::OffsetRangeError,
                context,
            };
            let mut value = Vec::new();
            result.encode(&mut value);
            assert_eq!(ListViewResult::decode(&value), Ok(result));
        }
    }

    #[test]
    fn a_view_is_one_of_two_forms() {
        // As OpenLDAP's library writes it.
        let value = b"\x30\x0e\x02\x01\x00\x02\x01\x13\xa0\x06\x02\x01\x01\x02\x01\x00";
        let view = ListView::decode(value).unwrap();
        assert_eq!((view.before, view.after), (0, 19));
        for wrong in [
            b"\x30\x00".as_slice(),
            b"\x30\x06\x02\x01\x00\x02\x01\x13",
            b"\x30\x08\x02\x01\xff\x02\x01\x13\x81\x00",
            b"\x30\x0b\x02\x01\x00\x02\x01\x13\xa0\x03\x02\x01\x01",
            b"\x30\x11\x02\x01\x00\x02\x01\x13\xa0\x09\x02\x01\x01\x02\x01\x00\x02\x01\x00",
            b"\x30\x09\x02\x05\x00\x80\x00\x00\x00\x81\x00",
        ] {
            assert!(ListView::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
