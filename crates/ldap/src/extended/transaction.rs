//! Transactions (RFC 5805 §2): how they start and end.

use crate::ber::{self, Reader};
use crate::controls::{Controls, sequence};
use crate::error::{PartError, Violation};
use crate::limits::MESSAGE_ID_MAX;

/// Start Transaction (RFC 5805 §2.1). The request has no value, the response's value is the transaction's identifier.
pub const START_TRANSACTION: &str = "1.3.6.1.1.21.1";
/// End Transaction (RFC 5805 §2.3): [`EndTransaction`] and [`TransactionEnded`].
pub const END_TRANSACTION: &str = "1.3.6.1.1.21.3";
/// Aborted Transaction Notice (RFC 5805 §2.4), the name of an unsolicited response whose value is the identifier.
pub const ABORTED_TRANSACTION: &str = "1.3.6.1.1.21.4";

/// The tag that the identifier had as the value of the Start Transaction Response. The UnboundID SDK sends it back with
/// this tag in place of that of an OCTET STRING.
const RESPONSE_VALUE: u8 = ber::context(11);

/// The request value of End Transaction: `txnEndReq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTransaction<'a> {
    /// Whether its updates are to take place; otherwise they are forgotten.
    pub commit: bool,
    /// Which transaction.
    pub identifier: &'a [u8],
}

impl<'a> EndTransaction<'a> {
    /// Reads a request value.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "txnEndReq")?;
        let commit = match reader.optional(ber::BOOLEAN, "commit")? {
            Some(content) => ber::boolean(content, "commit")?,
            None => true,
        };
        let identifier = match reader.optional(RESPONSE_VALUE, "identifier")? {
            Some(identifier) => identifier,
            None => reader.octets("identifier")?,
        };
        reader.skip_extensions()?;
        Ok(EndTransaction { commit, identifier })
    }

    /// Appends the request value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        if !self.commit {
            ber::put_boolean(out, ber::BOOLEAN, false);
        }
        ber::put_octets(out, ber::OCTET_STRING, self.identifier);
        ber::close(out, element);
    }
}

/// The response value of End Transaction, `txnEndRes`: what concerns single updates. A response that has nothing to say
/// of them has no value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransactionEnded<'a> {
    /// The message ID of the update that failed.
    pub failed: Option<u32>,
    /// The response controls of updates.
    pub controls: UpdatesControls<'a>,
}

impl<'a> TransactionEnded<'a> {
    /// Reads a response value.
    pub fn decode(value: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = sequence(value, "txnEndRes")?;
        let failed = match reader.peek() {
            Some(ber::INTEGER) => Some(message_id(&mut reader)?),
            _ => None,
        };
        let list = reader.optional(ber::SEQUENCE, "updatesControls")?;
        reader.skip_extensions()?;
        let ber = list.unwrap_or_default();
        let mut list = Reader::new(ber);
        while !list.is_empty() {
            update_controls(&mut list)?;
        }
        Ok(TransactionEnded {
            failed,
            controls: UpdatesControls { ber },
        })
    }
}

/// Response controls, each list with the message ID of its update: a view of checked BER.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpdatesControls<'a> {
    ber: &'a [u8],
}

impl<'a> UpdatesControls<'a> {
    /// Message IDs and controls.
    pub fn iter(self) -> impl Iterator<Item = (u32, Controls<'a>)> + Clone {
        let mut reader = Reader::new(self.ber);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            update_controls(&mut reader).ok()
        })
    }
}

fn update_controls<'a>(list: &mut Reader<'a>) -> Result<(u32, Controls<'a>), PartError> {
    let mut reader = Reader::new(list.expect(ber::SEQUENCE, "updateControls")?);
    let id = message_id(&mut reader)?;
    let controls = Controls::from_ber(reader.expect(ber::SEQUENCE, "controls")?)?;
    reader.skip_extensions()?;
    Ok((id, controls))
}

fn message_id(reader: &mut Reader<'_>) -> Result<u32, PartError> {
    match u32::try_from(reader.integer("messageID")?) {
        Ok(id) if id <= MESSAGE_ID_MAX => Ok(id),
        _ => Err(Violation::OutOfRange { field: "messageID" }.into()),
    }
}

/// Appends the response value of End Transaction. The controls of an update are the BER of [`Controls`].
pub fn put_transaction_ended<'c>(
    out: &mut Vec<u8>,
    failed: Option<u32>,
    controls: impl IntoIterator<Item = (u32, &'c [u8])>,
) {
    let value = ber::open(out, ber::SEQUENCE, 0);
    if let Some(id) = failed {
        ber::put_integer(out, ber::INTEGER, i64::from(id));
    }
    let mut controls = controls.into_iter().peekable();
    if controls.peek().is_some() {
        let list = ber::open(out, ber::SEQUENCE, 0x100);
        for (id, controls) in controls {
            let element = ber::open(out, ber::SEQUENCE, 0x100);
            ber::put_integer(out, ber::INTEGER, i64::from(id));
            ber::put_octets(out, ber::SEQUENCE, controls);
            ber::close(out, element);
        }
        ber::close(out, list);
    }
    ber::close(out, value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::controls::{Control, ControlsBuf};

    #[test]
    fn values_are_what_the_document_says() {
        let mut value = Vec::new();
        let end = EndTransaction {
            commit: false,
            identifier: b"t1",
        };
        end.encode(&mut value);
        assert_eq!(value, b"\x30\x07\x01\x01\x00\x04\x02t1");
        assert_eq!(EndTransaction::decode(&value), Ok(end));
        let committed = EndTransaction::decode(b"\x30\x03\x04\x01t").unwrap();
        assert_eq!((committed.commit, committed.identifier), (true, &b"t"[..]));
        assert_eq!(EndTransaction::decode(b"\x30\x03\x8b\x01t"), Ok(committed));
        assert!(EndTransaction::decode(b"").is_err());
        assert!(EndTransaction::decode(b"\x30\x00").is_err());

        let mut value = Vec::new();
        put_transaction_ended(&mut value, Some(7), []);
        assert_eq!(value, b"\x30\x03\x02\x01\x07");
        let mut controls = ControlsBuf::default();
        controls.push(Control {
            oid: "1.2",
            critical: false,
            value: Some(b"x"),
        });
        value.clear();
        let lists = [(3, controls.view().as_ber()), (9, controls.view().as_ber())];
        put_transaction_ended(&mut value, None, lists);
        let ended = TransactionEnded::decode(&value).unwrap();
        assert_eq!(ended.failed, None);
        let lists: Vec<_> = ended.controls.iter().collect();
        assert_eq!(lists, [(3, controls.view()), (9, controls.view())]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = EndTransaction::decode(&bytes);
            if let Ok(ended) = TransactionEnded::decode(&bytes) {
                ended.controls.iter().for_each(drop);
            }
        }
    }
}
