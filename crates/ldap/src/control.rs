//! Controls (RFC 4511 §4.1.11), and the values of those that are understood.

#![deny(clippy::indexing_slicing)]

mod assertion;
mod paged;
mod proxied;
mod queue_length;
mod read_entry;
mod sort;

pub use assertion::assertion_filter;
pub use paged::PagedResults;
pub use proxied::proxied_authorization;
pub use queue_length::{put_queue_length, queue_length};
pub use read_entry::ReadEntry;
pub use sort::{SORT_KEYS_MAX, SortKey, SortKeys, SortResult, put_sort_keys};

use crate::ber::{self, Reader};
use crate::error::{Malformed, PartError, Violation};
use crate::message::utf8;

/// Most controls on one message.
pub const CONTROLS_MAX: usize = 64;

/// Simple paged results, request and response (RFC 2696).
pub const PAGED_RESULTS: &str = "1.2.840.113556.1.4.319";
/// ManageDsaIT (RFC 3296). It has no value.
pub const MANAGE_DSA_IT: &str = "2.16.840.1.113730.3.4.2";
/// Server-side sorting, request (RFC 2891).
pub const SORT_REQUEST: &str = "1.2.840.113556.1.4.473";
/// Server-side sorting, response (RFC 2891).
pub const SORT_RESPONSE: &str = "1.2.840.113556.1.4.474";
/// Pre-read, request and response (RFC 4527).
pub const PRE_READ: &str = "1.3.6.1.1.13.1";
/// Post-read, request and response (RFC 4527).
pub const POST_READ: &str = "1.3.6.1.1.13.2";
/// Assertion (RFC 4528).
pub const ASSERTION: &str = "1.3.6.1.1.12";
/// Proxied authorization (RFC 4370).
pub const PROXIED_AUTHORIZATION: &str = "2.16.840.1.113730.3.4.18";

/// Transaction specification (RFC 5805 §2.2): the value is the transaction's identifier.
pub const TRANSACTION_SPECIFICATION: &str = "1.3.6.1.1.21.2";
/// Sapwood's own: the update stands alone although a transaction is open (`docs/protocol-extensions.md`). No value.
pub const NON_TRANSACTIONAL: &str = "2.25.180230154754660789957868430727127687432";
/// Sapwood's own: the transaction being started tries its updates at once (`docs/protocol-extensions.md`). No value.
pub const EAGER_TRANSACTION: &str = "2.25.273916400648347082955731837904341156054";
/// Sapwood's own: how many responses the client waits for (`docs/protocol-extensions.md`), see [`queue_length`].
pub const QUEUE_LENGTH: &str = "2.25.17923252228340713602020445768925731241";

/// Controls on updates that say something to the session, not to the directory.
pub const OF_SESSIONS: &[&str] = &[
    TRANSACTION_SPECIFICATION,
    NON_TRANSACTIONAL,
    EAGER_TRANSACTION,
    QUEUE_LENGTH,
];

/// One control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control<'a> {
    /// The control's OID.
    pub oid: &'a str,
    /// Whether the operation must fail if the control is not honoured.
    pub critical: bool,
    /// What the control defines.
    pub value: Option<&'a [u8]>,
}

impl<'a> Control<'a> {
    #[inline]
    fn decode(content: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let oid = reader.octets("controlType")?;
        let critical = match reader.optional(ber::BOOLEAN, "criticality")? {
            Some(content) => ber::boolean(content, "criticality")?,
            None => false,
        };
        let value = reader.optional(ber::OCTET_STRING, "controlValue")?;
        reader.skip_extensions()?;
        Ok(Control {
            oid: utf8(oid, "controlType")?,
            critical,
            value,
        })
    }

    fn content_len(&self) -> usize {
        let critical = if self.critical { 3 } else { 0 };
        ber::element_len(self.oid.len())
            + critical
            + self.value.map_or(0, |value| ber::element_len(value.len()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        ber::put_header(out, ber::SEQUENCE, self.content_len());
        ber::put_octets(out, ber::OCTET_STRING, self.oid.as_bytes());
        if self.critical {
            ber::put_boolean(out, ber::BOOLEAN, true);
        }
        if let Some(value) = self.value {
            ber::put_octets(out, ber::OCTET_STRING, value);
        }
    }
}

/// The controls of a message: a view of checked BER.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Controls<'a> {
    ber: &'a [u8],
}

impl<'a> Controls<'a> {
    /// No controls.
    pub const EMPTY: Controls<'static> = Controls { ber: &[] };

    /// Checks the content of a message's `controls`.
    pub fn from_ber(content: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let mut controls = 0;
        while !reader.is_empty() {
            controls += 1;
            if controls > CONTROLS_MAX {
                return Err(Violation::Controls.into());
            }
            Control::decode(reader.expect(ber::SEQUENCE, "control")?)?;
        }
        Ok(Controls { ber: content })
    }

    /// The controls as BER, without the list's own header.
    #[inline]
    pub const fn as_ber(self) -> &'a [u8] {
        self.ber
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.ber.is_empty()
    }

    /// The controls, in the order of the message.
    pub fn iter(self) -> impl Iterator<Item = Control<'a>> + Clone {
        let mut reader = Reader::new(self.ber);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            Control::decode(reader.expect(ber::SEQUENCE, "control").ok()?).ok()
        })
    }

    /// The first control with this OID.
    pub fn find(self, oid: &str) -> Option<Control<'a>> {
        let mut reader = Reader::new(self.ber);
        while !reader.is_empty() {
            let content = reader.expect(ber::SEQUENCE, "control").ok()?;
            // Most are looked for in vain: the others need not be decoded.
            if Reader::new(content).octets("controlType").ok()? == oid.as_bytes() {
                return Control::decode(content).ok();
            }
        }
        None
    }
}

impl std::fmt::Debug for Controls<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Owns the BER of [`Controls`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlsBuf {
    ber: Vec<u8>,
}

impl ControlsBuf {
    /// Appends a control.
    pub fn push(&mut self, control: Control<'_>) {
        control.encode(&mut self.ber);
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.ber.clear();
    }

    /// The controls.
    pub fn view(&self) -> Controls<'_> {
        Controls { ber: &self.ber }
    }
}

/// The components of a control or extended value that is one SEQUENCE.
pub(crate) fn sequence<'a>(value: &'a [u8], field: &'static str) -> Result<Reader<'a>, Malformed> {
    let mut outer = Reader::new(value);
    let content = outer.expect(ber::SEQUENCE, field)?;
    if outer.is_empty() {
        Ok(Reader::new(content))
    } else {
        Err(Malformed::Trailing)
    }
}
