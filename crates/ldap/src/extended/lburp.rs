//! Bulk updates: LBURP (RFC 4373 §5).

#![deny(clippy::indexing_slicing)]

use crate::ber::{self, Reader, utf8};
use crate::controls::{Controls, sequence};
use crate::error::{Malformed, PartError, Violation};
use crate::limits::INTEGER_MAX;
use crate::message::{CONTROLS, Operation, ProtocolOp, Request, put_controls};
use crate::result::LdapResult;

/// StartLBURP request (RFC 4373 §5.1): [`StartLburp`].
pub const START_LBURP: &str = "1.3.6.1.1.17.1";
/// StartLBURP response (RFC 4373 §5.2): [`max_operations`].
pub const START_LBURP_RESPONSE: &str = "1.3.6.1.1.17.2";
/// EndLBURP request (RFC 4373 §5.5): [`EndLburp`].
pub const END_LBURP: &str = "1.3.6.1.1.17.3";
/// EndLBURP response (RFC 4373 §5.6). It has no value.
pub const END_LBURP_RESPONSE: &str = "1.3.6.1.1.17.4";
/// LBURPUpdate request (RFC 4373 §5.3): [`LburpUpdate`].
pub const LBURP_UPDATE: &str = "1.3.6.1.1.17.5";
/// LBURPUpdate response (RFC 4373 §5.4): [`OperationResults`].
pub const LBURP_UPDATE_RESPONSE: &str = "1.3.6.1.1.17.6";
/// The incremental update style (RFC 4373 §6), which is a feature of a server besides.
pub const LBURP_INCREMENTAL: &str = "1.3.6.1.1.17.7";

/// The request value of StartLBURP (RFC 4373 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartLburp<'a> {
    /// An OID that says what the updates mean together, such as [`LBURP_INCREMENTAL`].
    pub update_style: &'a str,
}

impl<'a> StartLburp<'a> {
    /// Reads a request value.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "StartLBURPRequestValue")?;
        let update_style = utf8(reader.octets("updateStyleOID")?, "updateStyleOID")?;
        reader.skip_extensions()?;
        Ok(StartLburp { update_style })
    }

    /// Appends the request value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        ber::put_header(
            out,
            ber::SEQUENCE,
            ber::element_len(self.update_style.len()),
        );
        ber::put_octets(out, ber::OCTET_STRING, self.update_style.as_bytes());
    }
}

/// Reads the response value of StartLBURP: the most operations in one update request (RFC 4373 §5.2.1). A response
/// without a value sets no limit.
pub fn max_operations(value: &[u8]) -> Result<u32, PartError> {
    let mut reader = Reader::new(value);
    let operations = reader.integer("maxOperations")?;
    reader.end()?;
    in_range(operations, 0, "maxOperations")
}

/// Appends the response value of StartLBURP; `operations` is at most [`INTEGER_MAX`].
pub fn put_max_operations(out: &mut Vec<u8>, operations: u32) {
    ber::put_integer(out, ber::INTEGER, i64::from(operations));
}

/// The request value of EndLBURP (RFC 4373 §5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndLburp {
    /// The number behind that of the last update request, 1 to [`INTEGER_MAX`].
    pub sequence_number: u32,
}

impl EndLburp {
    /// Reads a request value.
    pub fn decode(value: &[u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "EndLBURPRequestValue")?;
        let sequence_number = sequence_number(&mut reader)?;
        reader.skip_extensions()?;
        Ok(EndLburp { sequence_number })
    }

    /// Appends the request value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let number = i64::from(self.sequence_number);
        ber::put_header(out, ber::SEQUENCE, 2 + ber::integer_len(number));
        ber::put_integer(out, ber::INTEGER, number);
    }
}

/// The request value of LBURPUpdate (RFC 4373 §5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LburpUpdate<'a> {
    /// Its place in the update stream, 1 to [`INTEGER_MAX`].
    pub sequence_number: u32,
    /// What is to be done, in this order.
    pub operations: UpdateOperations<'a>,
}

impl<'a> LburpUpdate<'a> {
    /// Reads a request value. The operations are read when they are walked.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "LBURPUpdateRequestValue")?;
        let sequence_number = sequence_number(&mut reader)?;
        let ber = reader.expect(ber::SEQUENCE, "updateOperationList")?;
        reader.skip_extensions()?;
        Ok(LburpUpdate {
            sequence_number,
            operations: UpdateOperations { ber },
        })
    }

    /// Reads the number alone, of a value that may make no sense behind it.
    pub fn sequence_number(value: &[u8]) -> Result<u32, PartError> {
        let mut outer = Reader::new(value);
        let content = outer.expect(ber::SEQUENCE, "LBURPUpdateRequestValue")?;
        sequence_number(&mut Reader::new(content))
    }

    /// Appends the request value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let number = i64::from(self.sequence_number);
        let content = 2 + ber::integer_len(number) + ber::element_len(self.operations.ber.len());
        out.reserve(ber::element_len(content));
        ber::put_header(out, ber::SEQUENCE, content);
        ber::put_integer(out, ber::INTEGER, number);
        ber::put_octets(out, ber::SEQUENCE, self.operations.ber);
    }
}

/// The number behind another one: after the largest comes 1 (RFC 4373 §5.3.1).
pub const fn next_sequence_number(number: u32) -> u32 {
    if number >= INTEGER_MAX { 1 } else { number + 1 }
}

fn sequence_number(reader: &mut Reader<'_>) -> Result<u32, PartError> {
    in_range(reader.integer("sequenceNumber")?, 1, "sequenceNumber")
}

fn in_range(value: i64, least: u32, field: &'static str) -> Result<u32, PartError> {
    match u32::try_from(value) {
        Ok(value) if (least..=INTEGER_MAX).contains(&value) => Ok(value),
        _ => Err(Violation::OutOfRange { field }.into()),
    }
}

/// UpdateOperationList (RFC 4373 §5.3.2), which is checked while it is walked.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct UpdateOperations<'a> {
    ber: &'a [u8],
}

impl<'a> UpdateOperations<'a> {
    /// The operations, in their order. After an error that is [`Malformed`] nothing follows; an operation with a
    /// [`Violation`] is to be refused, and the next one may be in order.
    pub fn iter(self) -> impl Iterator<Item = Result<UpdateOperation<'a>, PartError>> + Clone {
        let mut reader = Reader::new(self.ber);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            let content = reader.expect(ber::SEQUENCE, "update operation");
            let operation = content
                .map_err(PartError::from)
                .and_then(UpdateOperation::decode);
            if let Err(PartError::Malformed(_)) = operation {
                reader = Reader::new(&[]);
            }
            Some(operation)
        })
    }
}

impl std::fmt::Debug for UpdateOperations<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An operation of an [`UpdateOperations`]: what an LDAPMessage holds besides its message ID.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateOperation<'a> {
    /// An add, modify, delete or modify DN.
    pub op: Request<'a>,
    /// Its controls.
    pub controls: Controls<'a>,
    ber: &'a [u8],
}

impl<'a> UpdateOperation<'a> {
    fn decode(content: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let (tag, op) = reader.element("updateOperation")?;
        let operation = match Operation::of_request(tag) {
            Some(
                operation @ (Operation::Add
                | Operation::Modify
                | Operation::Delete
                | Operation::ModifyDn),
            ) => operation,
            _ => return Err(Malformed::Operation { tag }.into()),
        };
        // Malformed bytes behind it weigh more than what it may break of the protocol.
        let op = match Request::decode(operation, op) {
            Err(PartError::Malformed(malformed)) => return Err(malformed.into()),
            op => op,
        };
        let controls = match reader.optional(CONTROLS, "controls")? {
            None => Ok(Controls::EMPTY),
            Some(content) => Controls::from_ber(content),
        };
        reader.skip_extensions()?;
        Ok(UpdateOperation {
            controls: controls?,
            op: op?,
            ber: content,
        })
    }

    /// Appends the operation as an LDAPMessage with this message ID.
    pub fn put_message(&self, out: &mut Vec<u8>, id: u32) {
        let id = i64::from(id);
        let content = 2 + ber::integer_len(id) + self.ber.len();
        out.reserve(ber::element_len(content));
        ber::put_header(out, ber::SEQUENCE, content);
        ber::put_integer(out, ber::INTEGER, id);
        out.extend_from_slice(self.ber);
    }
}

/// Owns the BER of [`UpdateOperations`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateOperationsBuf {
    ber: Vec<u8>,
}

impl UpdateOperationsBuf {
    /// Appends an operation: an add, modify, delete or modify DN.
    pub fn push(&mut self, op: &Request<'_>, controls: Controls<'_>) {
        let op_len = op.content_len();
        let controls_len = match controls.as_ber().len() {
            0 => 0,
            length => ber::element_len(length),
        };
        let out = &mut self.ber;
        ber::put_header(out, ber::SEQUENCE, ber::element_len(op_len) + controls_len);
        ber::put_header(out, op.tag(), op_len);
        op.put_content(out);
        put_controls(out, controls);
    }

    /// Bytes of the operations.
    pub fn bytes(&self) -> usize {
        self.ber.len()
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.ber.clear();
    }

    /// The operations.
    pub fn view(&self) -> UpdateOperations<'_> {
        UpdateOperations { ber: &self.ber }
    }
}

/// OperationResults, the response value of LBURPUpdate (RFC 4373 §5.4.1): the operations that failed. Without any there
/// is no value.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationResults<'a> {
    ber: &'a [u8],
}

impl<'a> OperationResults<'a> {
    /// Reads a response value.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let list = sequence(value, "OperationResults")?;
        let ber = list.rest();
        let mut list = list;
        while !list.is_empty() {
            operation_result(&mut list)?;
        }
        Ok(OperationResults { ber })
    }

    /// The numbers of operations, counted from 1, and their results.
    pub fn iter(self) -> impl Iterator<Item = (u32, LdapResult<'a>)> + Clone {
        let mut reader = Reader::new(self.ber);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            operation_result(&mut reader).ok()
        })
    }
}

impl std::fmt::Debug for OperationResults<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn operation_result<'a>(list: &mut Reader<'a>) -> Result<(u32, LdapResult<'a>), PartError> {
    let mut reader = Reader::new(list.expect(ber::SEQUENCE, "OperationResult")?);
    let number = in_range(reader.integer("operationNumber")?, 1, "operationNumber")?;
    let mut result = Reader::new(reader.expect(ber::SEQUENCE, "ldapResult")?);
    let ldap_result = LdapResult::decode(&mut result)?;
    result.skip_extensions()?;
    reader.skip_extensions()?;
    Ok((number, ldap_result))
}

/// Owns the BER of [`OperationResults`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperationResultsBuf {
    ber: Vec<u8>,
}

impl OperationResultsBuf {
    /// Appends the result of an operation that failed.
    pub fn push(&mut self, operation_number: u32, result: &LdapResult<'_>) {
        let number = i64::from(operation_number);
        let result_len = result.content_len();
        let content = 2 + ber::integer_len(number) + ber::element_len(result_len);
        let out = &mut self.ber;
        ber::put_header(out, ber::SEQUENCE, content);
        ber::put_integer(out, ber::INTEGER, number);
        ber::put_header(out, ber::SEQUENCE, result_len);
        result.encode(out);
    }

    /// Appends the response value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        ber::put_octets(out, ber::SEQUENCE, &self.ber);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::controls::{Control, ControlsBuf};
    use crate::extended::LBURP_INCREMENTAL;
    use crate::list::{AttributesBuf, ChangeKind, ChangesBuf};
    use crate::message::{AddRequest, ModifyDnRequest, ModifyRequest, RequestMessage};
    use crate::result::ResultCode;

    #[test]
    fn start_and_end_are_what_the_document_says() {
        let mut value = Vec::new();
        let start = StartLburp {
            update_style: LBURP_INCREMENTAL,
        };
        start.encode(&mut value);
        assert_eq!(value, b"\x30\x10\x04\x0e1.3.6.1.1.17.7");
        assert_eq!(StartLburp::decode(&value), Ok(start));
        for refused in [&b""[..], b"\x30\x00", b"\x30\x03\x04\x01\xff", b"\x04\x011"] {
            assert!(StartLburp::decode(refused).is_err(), "{refused:?}");
        }

        value.clear();
        put_max_operations(&mut value, 1000);
        assert_eq!(value, b"\x02\x02\x03\xe8");
        assert_eq!(max_operations(&value), Ok(1000));
        assert_eq!(max_operations(b"\x02\x01\x00"), Ok(0));
        assert_eq!(max_operations(b"\x02\x04\x7f\xff\xff\xff"), Ok(INTEGER_MAX));
        for refused in [
            &b""[..],
            b"\x02\x01\xff",
            b"\x02\x05\x00\x80\x00\x00\x00",
            b"\x02\x01\x01\x00",
            b"\x30\x03\x02\x01\x01",
        ] {
            assert!(max_operations(refused).is_err(), "{refused:?}");
        }

        value.clear();
        let end = EndLburp { sequence_number: 3 };
        end.encode(&mut value);
        assert_eq!(value, b"\x30\x03\x02\x01\x03");
        assert_eq!(EndLburp::decode(&value), Ok(end));
        for refused in [
            &b""[..],
            b"\x30\x00",
            b"\x30\x03\x02\x01\x00",
            b"\x30\x03\x02\x01\xff",
        ] {
            assert!(EndLburp::decode(refused).is_err(), "{refused:?}");
        }
        assert_eq!(next_sequence_number(1), 2);
        assert_eq!(next_sequence_number(INTEGER_MAX), 1);
    }

    #[test]
    fn an_update_request_is_what_the_document_says() {
        let mut attributes = AttributesBuf::default();
        attributes.push(b"o", [b"X".as_slice()]);
        let mut changes = ChangesBuf::default();
        changes.push(ChangeKind::Add, b"o", [b"Y".as_slice()]);
        let mut controls = ControlsBuf::default();
        controls.push(Control {
            oid: "1.2",
            critical: true,
            value: None,
        });
        let mut operations = UpdateOperationsBuf::default();
        operations.push(
            &Request::Add(AddRequest {
                dn: "o=X",
                attributes: attributes.view(),
            }),
            Controls::EMPTY,
        );
        operations.push(
            &Request::Modify(ModifyRequest {
                dn: "o=X",
                changes: changes.view(),
            }),
            controls.view(),
        );
        operations.push(
            &Request::ModifyDn(ModifyDnRequest {
                dn: "o=X",
                new_rdn: "o=Y",
                delete_old_rdn: true,
                new_superior: None,
            }),
            Controls::EMPTY,
        );
        operations.push(&Request::Delete("o=Y"), controls.view());
        let update = LburpUpdate {
            sequence_number: 258,
            operations: operations.view(),
        };
        let mut value = Vec::new();
        update.encode(&mut value);
        let (add, modify, modify_dn, delete) = (
            &b"\x30\x13\x68\x11\x04\x03o=X\x30\x0a\x30\x08\x04\x01o\x31\x03\x04\x01X"[..],
            &b"\x30\x24\x66\x16\x04\x03o=X\x30\x0f\x30\x0d\x0a\x01\x00\x30\x08\x04\x01o\x31\x03\x04\x01Y\
               \xa0\x0a\x30\x08\x04\x031.2\x01\x01\xff"[..],
            &b"\x30\x0f\x6c\x0d\x04\x03o=X\x04\x03o=Y\x01\x01\xff"[..],
            &b"\x30\x11\x4a\x03o=Y\xa0\x0a\x30\x08\x04\x031.2\x01\x01\xff"[..],
        );
        let list = [add, modify, modify_dn, delete].concat();
        assert_eq!(list.len(), 0x5f);
        assert_eq!(
            value,
            [b"\x30\x65\x02\x02\x01\x02\x30\x5f", &list[..]].concat()
        );
        assert_eq!(LburpUpdate::decode(&value), Ok(update));
        let found: Vec<_> = update.operations.iter().map(Result::unwrap).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0].controls, Controls::EMPTY);
        assert_eq!(found[3].op, Request::Delete("o=Y"));
        assert_eq!(found[3].controls, controls.view());
        // Each can be sent alone.
        for operation in found {
            let mut message = Vec::new();
            operation.put_message(&mut message, 300);
            let message = RequestMessage::decode(&message).unwrap();
            assert_eq!((message.id, message.op), (300, operation.op));
            assert_eq!(message.controls, operation.controls);
        }
        let empty = LburpUpdate::decode(b"\x30\x05\x02\x01\x01\x30\x00").unwrap();
        assert_eq!(empty.operations.iter().count(), 0);
    }

    #[test]
    fn what_is_malformed_ends_the_list_and_what_is_not_allowed_does_not() {
        let operations = |list: &[u8]| -> Vec<Result<bool, PartError>> {
            UpdateOperations { ber: list }
                .iter()
                .map(|operation| operation.map(|operation| operation.op == Request::Delete("o=Y")))
                .collect()
        };
        let delete = b"\x30\x05\x4a\x03o=Y";
        // A DN that is not UTF-8, an attribute without values.
        for refused in [
            &b"\x30\x03\x4a\x01\xff"[..],
            b"\x30\x10\x68\x0e\x04\x03o=X\x30\x07\x30\x05\x04\x01o\x31\x00",
        ] {
            let found = operations(&[delete, refused, delete].concat());
            assert_eq!((&found[0], &found[2]), (&Ok(true), &Ok(true)));
            assert!(
                matches!(found[1], Err(PartError::Violation(_))),
                "{found:?}"
            );
        }
        // Other operations; nothing; a part of a part; no SEQUENCE.
        for malformed in [
            &b"\x30\x02\x42\x00"[..],
            b"\x30\x03\x50\x01\x01",
            b"\x30\x00",
            b"\x30\x05\x68\x03\x04\x05o",
            b"\x30\x06\x4a\x01\xff\xa0\x01\x30",
            b"\x4a\x03o=Y",
            b"\x30\x7f",
        ] {
            let found = operations(&[delete, malformed, delete].concat());
            assert_eq!(found.len(), 2, "{malformed:?}: {found:?}");
            assert!(
                matches!(found[1], Err(PartError::Malformed(_))),
                "{found:?}"
            );
        }
        for value in [
            &b""[..],
            b"\x30\x00",
            b"\x30\x03\x02\x01\x01",
            b"\x30\x05\x02\x01\x00\x30\x00",
            b"\x30\x05\x02\x01\x01\x30\x00\x00",
        ] {
            assert!(LburpUpdate::decode(value).is_err(), "{value:?}");
        }
        // The number counts although what follows cannot be read.
        assert_eq!(LburpUpdate::sequence_number(b"\x30\x03\x02\x01\x05"), Ok(5));
        assert!(LburpUpdate::sequence_number(b"\x30\x03\x04\x01\x05").is_err());
    }

    #[test]
    fn operation_results_are_what_the_document_says() {
        let mut results = OperationResultsBuf::default();
        let refused = LdapResult::new(ResultCode::EntryAlreadyExists, "no");
        results.push(2, &refused);
        let missing = LdapResult::new(ResultCode::NoSuchObject, "").matched("o=X");
        results.push(200, &missing);
        let mut value = Vec::new();
        results.encode(&mut value);
        assert_eq!(
            value,
            b"\x30\x22\x30\x0e\x02\x01\x02\x30\x09\x0a\x01\x44\x04\x00\x04\x02no\
              \x30\x10\x02\x02\x00\xc8\x30\x0a\x0a\x01\x20\x04\x03o=X\x04\x00"
        );
        let decoded = OperationResults::decode(&value).unwrap();
        let found: Vec<_> = decoded.iter().collect();
        assert_eq!(found, [(2, refused), (200, missing)]);
        for refused in [
            &b""[..],
            b"\x30\x02\x30\x00",
            b"\x30\x05\x30\x03\x02\x01\x00",
        ] {
            assert!(OperationResults::decode(refused).is_err(), "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = StartLburp::decode(&bytes);
            let _ = EndLburp::decode(&bytes);
            let _ = max_operations(&bytes);
            let _ = LburpUpdate::sequence_number(&bytes);
            if let Ok(update) = LburpUpdate::decode(&bytes) {
                update.operations.iter().for_each(drop);
            }
            UpdateOperations { ber: &bytes }.iter().for_each(drop);
            if let Ok(results) = OperationResults::decode(&bytes) {
                results.iter().for_each(drop);
            }
        }
    }
}
