//! Checks the answers of the server against what the plan expects.

use std::fmt::Display;

use sapwood_client::{Error, OperationError};
use sapwood_ldap::ber::{self, Reader};
use sapwood_ldap::error::DecodeError;
use sapwood_ldap::message::{Operation, Response, ResponseMessage};
use sapwood_ldap::result::ResultCode;

use super::transactions::{OUTSIDE, Transaction, Uncommitted};
use super::{InFlight, RequestKind, RequestQueue, SLOT_BITS, slot_of};
use crate::mismatch::{self, EXAMPLES_MAX};
use crate::plan::Expect;
use crate::stats::Stats;
use crate::transaction;

impl RequestQueue {
    /// Takes a message from the server and counts it.
    ///
    /// # Errors
    /// When the message is not LDAP, answers no request, or ends the session.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        message: &[u8],
        now_ns: u64,
        stats: &mut Stats,
    ) -> Result<(), Error> {
        const SEARCH_RESULT_ENTRY: u8 = 0x64;
        const SEARCH_RESULT_REFERENCE: u8 = 0x73;
        const INTERMEDIATE_RESPONSE: u8 = 0x79;
        let mut fields = Reader::new(Reader::new(message).expect(ber::SEQUENCE, "LDAPMessage")?);
        let id = fields.integer("messageID")? as u32;
        let (tag, content) = fields.element("protocolOp")?;
        let slot = slot_of(id);
        let Some(request) = self.slots.get_mut(slot).filter(|request| {
            request.generation == id >> SLOT_BITS && request.kind != RequestKind::Free
        }) else {
            return self.unsolicited(id, message, stats);
        };
        let operation = match request.kind {
            RequestKind::Planned(operation) => operation,
            special => return self.transaction_answer(special, slot, message, now_ns, stats),
        };
        let shared = &self.shared;
        let label = shared.labels[operation];
        let planned = &shared.operations[operation];
        match tag {
            SEARCH_RESULT_ENTRY if planned.kind == Operation::Search => {
                request.entries += 1;
                if request.is_expecting
                    && let Some((attribute, _)) = &planned.expect.value
                {
                    request.is_expecting = !has_value(message, attribute, &request.expected)?;
                    if request.is_expecting && stats.examples.len() < EXAMPLES_MAX {
                        request.found = mismatch::values_of(message, attribute);
                    }
                }
                return Ok(());
            }
            SEARCH_RESULT_REFERENCE | INTERMEDIATE_RESPONSE => return Ok(()),
            _ if tag != response_tag(planned.kind) => return Err(Error::UnexpectedResponse),
            _ => {}
        }
        let code = Reader::new(content).enumerated("resultCode")?;
        let counts = &mut stats.operations[label];
        counts.answered += 1;
        counts.entries += request.entries;
        let latency = now_ns.saturating_sub(request.due_ns);
        counts.latency.saturating_record(latency);
        let is_expected = check(request, &planned.expect, code, message, label, stats)?;
        if is_expected
            && request.transaction != OUTSIDE
            && let number = request.transaction
            && let Some(open) = self.uncommitted.iter_mut().find(|own| own.number == number)
        {
            open.answered[label] += 1;
        }
        self.planned_in_flight -= 1;
        self.free_slot(slot);
        Ok(())
    }

    /// Takes a message that answers no request in flight: a notification (RFC 4511 §4.4), or nonsense.
    #[cold]
    fn unsolicited(&mut self, id: u32, message: &[u8], stats: &mut Stats) -> Result<(), Error> {
        let message = ResponseMessage::decode(message)?;
        let Some(result) = message.op.result().filter(|_| id == 0) else {
            return Err(Error::UnexpectedResponse);
        };
        if let Response::Extended(notice) = &message.op
            && notice.name == Some(transaction::ABORTED)
        {
            let reason = OperationError::new(result).to_string();
            let label = self.shared.end_label;
            stats.fail(
                label,
                format!("the server has aborted the transaction: {reason}"),
                1,
            );
            if let Transaction::Open(_) = self.transaction {
                self.transaction = Transaction::None;
                self.close(None, false, stats);
            }
            return Ok(());
        }
        Err(Error::Disconnected(OperationError::new(result)))
    }

    /// Counts everything in flight as failed, since the connection is gone.
    pub(crate) fn give_up(&self, reason: &str, stats: &mut Stats) {
        for request in &self.slots {
            if let RequestKind::Planned(operation) = request.kind {
                let label = self.shared.labels[operation];
                stats.fail(label, format!("no answer: {reason}"), 1);
            }
        }
        for (label, count) in self.uncommitted.iter().flat_map(Uncommitted::counts) {
            let reason = format!("the end of its transaction was not answered: {reason}");
            stats.fail(label, reason, count);
        }
        stats.fail(self.shared.connection_label, reason.to_owned(), 1);
    }
}

/// Compares the answer to an operation with what the plan expects, and counts a mismatch. Returns whether there is
/// none.
#[inline]
fn check(
    request: &InFlight,
    expect: &Expect,
    code: i64,
    message: &[u8],
    label: usize,
    stats: &mut Stats,
) -> Result<bool, DecodeError> {
    let is_code_good = match &expect.codes {
        Some(codes) => codes.iter().any(|good| i64::from(*good) == code),
        None => true,
    };
    let mismatch = |expected: &dyn Display, got: &dyn Display| {
        mismatch::describe(&request.sent, expected, got)
    };
    if !is_code_good {
        let reason = reason(message)?;
        let codes = expect.codes.iter().flatten();
        let codes = codes.map(|code| ResultCode::from(*code).to_string());
        let codes: Vec<String> = codes.collect();
        stats.keep_example(label, || mismatch(&codes.join(" or "), &reason));
        stats.fail(label, reason, 1);
    } else if let Some((least, most)) = expect.entries
        && !(least..=most).contains(&request.entries)
    {
        let expected = match least == most {
            true => least.to_string(),
            false => format!("{least} to {most}"),
        };
        let entries = |count: &dyn Display| format!("{count} entries");
        stats.keep_example(label, || {
            mismatch(&entries(&expected), &entries(&request.entries))
        });
        let reason = format!("{} entries in place of {expected}", request.entries);
        stats.fail(label, reason, 1);
    } else if request.is_expecting {
        let attribute = expect.value.as_ref().map_or("", |(name, _)| name.as_str());
        stats.keep_example(label, || {
            let expected = format!("{attribute} {}", mismatch::shown(&request.expected));
            let got = match request.entries {
                0 => "no entry",
                _ => request.found.as_str(),
            };
            mismatch(&expected, &got)
        });
        stats.fail(
            label,
            format!("no entry has the expected value of {attribute}"),
            1,
        );
    } else {
        return Ok(true);
    }
    Ok(false)
}

/// The tag of the response that ends an operation (RFC 4511 §4.1.1).
const fn response_tag(operation: Operation) -> u8 {
    match operation {
        Operation::Bind => 0x61,
        Operation::Search => 0x65,
        Operation::Modify => 0x67,
        Operation::Add => 0x69,
        Operation::Delete => 0x6b,
        Operation::ModifyDn => 0x6d,
        Operation::Compare => 0x6f,
        // Plans have no unbind and no abandon, which are not answered.
        Operation::Extended | Operation::Unbind | Operation::Abandon => 0x78,
    }
}

/// The result that a message carries, in words.
#[cold]
fn reason(message: &[u8]) -> Result<String, DecodeError> {
    /// Bounds what a server's diagnostic takes in the report, in characters.
    const REASON_CHARACTERS_MAX: usize = 160;
    let message = ResponseMessage::decode(message)?;
    let reason = message.op.result().map_or_else(String::new, |result| {
        OperationError::new(result).to_string()
    });
    Ok(reason.chars().take(REASON_CHARACTERS_MAX).collect())
}

/// Whether a message is an entry with this value. `attribute` is in lower case.
fn has_value(message: &[u8], attribute: &str, value: &[u8]) -> Result<bool, DecodeError> {
    let Response::SearchEntry(entry) = ResponseMessage::decode(message)?.op else {
        return Ok(false);
    };
    Ok(entry.attributes.iter().any(|found| {
        found.description.eq_ignore_ascii_case(attribute.as_bytes())
            && found.values.iter().any(|found| found == value)
    }))
}
