//! The messages of transactions (RFC 5805).

use sapwood_ldap::ber;
use sapwood_ldap::controls::Controls;
use sapwood_ldap::message::{ExtendedRequest, Message, Request};

/// Start Transaction, an extended operation (RFC 5805 §2.1).
const START: &str = "1.3.6.1.1.21.1";
/// The control that makes an update part of a transaction (RFC 5805 §2.2).
pub(crate) const SPECIFICATION: &str = "1.3.6.1.1.21.2";
/// End Transaction, an extended operation (RFC 5805 §2.3).
const END: &str = "1.3.6.1.1.21.3";
/// The notice that the server has aborted a transaction (RFC 5805 §2.4).
pub(crate) const ABORTED: &str = "1.3.6.1.1.21.4";

/// Appends a request to start a transaction.
pub(crate) fn put_start(id: u32, out: &mut Vec<u8>) {
    put(id, START, None, out);
}

/// Appends a request to commit a transaction.
pub(crate) fn put_commit(id: u32, identifier: &[u8], out: &mut Vec<u8>) {
    // Without the boolean the transaction is committed.
    let mut value = Vec::with_capacity(identifier.len() + 8);
    let sequence = ber::open(&mut value, ber::SEQUENCE, identifier.len() + 2);
    ber::put_octets(&mut value, ber::OCTET_STRING, identifier);
    ber::close(&mut value, sequence);
    put(id, END, Some(&value), out);
}

fn put(id: u32, name: &str, value: Option<&[u8]>, out: &mut Vec<u8>) {
    Message {
        id,
        op: Request::Extended(ExtendedRequest { name, value }),
        controls: Controls::EMPTY,
    }
    .encode(out);
}
