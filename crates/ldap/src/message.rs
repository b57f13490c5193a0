//! LDAP messages (RFC 4511 §4): framing, envelope, requests and responses, read and written.
//!
//! Decoding borrows from the bytes it is given, allocates nothing and checks everything once: all views in a
//! decoded message can be walked without errors. Encoding appends to a `Vec<u8>`, each length known beforehand.

#![deny(clippy::indexing_slicing)]

mod request;
mod response;

pub use crate::operation::Operation;
pub use request::{
    AddRequest, Authentication, BindRequest, CompareRequest, DerefAliases, ExtendedRequest,
    ModifyDnRequest, ModifyRequest, Request, Scope, SearchRequest,
};
pub use response::{
    BindResponse, EntryWriter, ExtendedResponse, IntermediateResponse, Response, SearchResultEntry,
    put_search_entry, put_search_entry_below, put_search_entry_of_parts,
};

use crate::ber::{self, Head, Header, Reader};
use crate::controls::Controls;
use crate::error::{DecodeError, Malformed, PartError, Violation};
use crate::limits::MESSAGE_ID_MAX;

/// Tag of a message's controls.
pub(crate) const CONTROLS: u8 = ber::context_constructed(0);

/// What the start of a buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A whole message of this many bytes.
    Complete(usize),
    /// The start of a message; the buffer needs at least this many bytes for the next look.
    Incomplete(usize),
}

/// Finds the end of the first message in `buffer` without reading it. A message of more than `bytes_max` bytes,
/// header included, is refused as soon as its length is seen.
#[inline]
pub fn frame(buffer: &[u8], bytes_max: usize) -> Result<Frame, Malformed> {
    if let Some(&found) = buffer.first()
        && found != ber::SEQUENCE
    {
        return Err(Malformed::Tag {
            field: "LDAPMessage",
            expected: ber::SEQUENCE,
            found,
        });
    }
    match ber::header(buffer)? {
        Header::Incomplete(needed) => Ok(Frame::Incomplete(needed)),
        Header::Complete {
            header, content, ..
        } => {
            let bytes = content.saturating_add(header as u64);
            match usize::try_from(bytes) {
                Ok(bytes) if bytes <= buffer.len().min(bytes_max) => Ok(Frame::Complete(bytes)),
                Ok(bytes) if bytes <= bytes_max => Ok(Frame::Incomplete(bytes)),
                _ => Err(Malformed::TooLarge { bytes, bytes_max }),
            }
        }
    }
}

/// An LDAPMessage: `Op` is [`Request`] or [`Response`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message<'a, Op> {
    /// Chosen by the client, not zero; zero in an unsolicited notification. At most [`MESSAGE_ID_MAX`].
    pub id: u32,
    /// What is asked or answered.
    pub op: Op,
    /// The controls, in their order.
    pub controls: Controls<'a>,
}

/// A message to a server.
pub type RequestMessage<'a> = Message<'a, Request<'a>>;

/// A message to a client.
pub type ResponseMessage<'a> = Message<'a, Response<'a>>;

impl<'a> RequestMessage<'a> {
    /// Reads a request from exactly one frame.
    #[inline]
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let envelope = Envelope::decode(message)?;
        if envelope.id == 0 {
            return Err(Malformed::MessageId.into());
        }
        let operation = envelope.request()?;
        let refused = |error| refused(error, envelope.id, operation);
        let op = Request::decode(operation, envelope.content).map_err(refused)?;
        let controls = envelope.controls().map_err(refused)?;
        Ok(Message {
            id: envelope.id,
            op,
            controls,
        })
    }

    /// The message ID and the operation of a request in exactly one frame. Its content, which may be long, is not
    /// looked at.
    pub fn envelope(message: &'a [u8]) -> Result<(u32, Operation), Malformed> {
        let envelope = Envelope::decode(message)?;
        Ok((envelope.id, envelope.request()?))
    }
}

impl<'a> ResponseMessage<'a> {
    /// Reads a response from exactly one frame.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let envelope = Envelope::decode(message)?;
        let operation = response::operation(envelope.tag)?;
        let refused = |error| refused(error, envelope.id, operation);
        let op = Response::decode(envelope.tag, envelope.content).map_err(refused)?;
        let controls = envelope.controls().map_err(refused)?;
        Ok(Message {
            id: envelope.id,
            op,
            controls,
        })
    }
}

impl<Op: ProtocolOp> Message<'_, Op> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (tag, op_len) = (self.op.tag(), self.op.content_len());
        envelope(out, self.id, tag, op_len, self.controls).put(out);
        self.op.put_content(out);
        put_controls(out, self.controls);
    }
}

/// The headers of a message up to the content of its protocolOp, which must have `op_len` octets, with room in `out`
/// for all of it. [`put_controls`] ends the message.
// It goes on being added to where it is called, in registers.
#[inline(always)]
fn envelope(out: &mut Vec<u8>, id: u32, tag: u8, op_len: usize, controls: Controls<'_>) -> Head {
    let controls_len = if controls.is_empty() {
        0
    } else {
        ber::element_len(controls.as_ber().len())
    };
    let id_len = 2 + ber::integer_len(i64::from(id));
    let content_len = id_len + ber::element_len(op_len) + controls_len;
    out.reserve(ber::element_len(content_len));
    let mut head = Head::new();
    head.push_header(ber::SEQUENCE, content_len);
    head.push_integer(id);
    head.push_header(tag, op_len);
    head
}

#[inline]
pub(crate) fn put_controls(out: &mut Vec<u8>, controls: Controls<'_>) {
    if !controls.is_empty() {
        ber::put_octets(out, CONTROLS, controls.as_ber());
    }
}

/// What can stand in a [`Message`]: [`Request`] and [`Response`].
pub trait ProtocolOp: sealed::Sealed {
    /// The tag of the protocolOp.
    fn tag(&self) -> u8;
    /// Octets of its content.
    fn content_len(&self) -> usize;
    /// Appends its content.
    fn put_content(&self, out: &mut Vec<u8>);
}

mod sealed {
    /// Keeps [`ProtocolOp`](super::ProtocolOp) to the two of this crate.
    pub trait Sealed {}
    impl Sealed for super::Request<'_> {}
    impl Sealed for super::Response<'_> {}
}

/// The parts of an LDAPMessage, the inner ones not yet looked at.
#[derive(Clone, Copy)]
struct Envelope<'a> {
    id: u32,
    tag: u8,
    content: &'a [u8],
    after: Reader<'a>,
}

impl<'a> Envelope<'a> {
    #[inline]
    fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut outer = Reader::new(message);
        let mut reader = Reader::new(outer.expect(ber::SEQUENCE, "LDAPMessage")?);
        outer.end()?;
        let id = reader.integer("messageID")?;
        let id = u32::try_from(id)
            .ok()
            .filter(|id| *id <= MESSAGE_ID_MAX)
            .ok_or(Malformed::MessageId)?;
        let (tag, content) = reader.element("protocolOp")?;
        Ok(Envelope {
            id,
            tag,
            content,
            after: reader,
        })
    }

    /// The operation that is asked for.
    #[inline]
    fn request(&self) -> Result<Operation, Malformed> {
        let tag = self.tag;
        Operation::of_request(tag).ok_or(Malformed::Operation { tag })
    }

    #[inline]
    fn controls(mut self) -> Result<Controls<'a>, PartError> {
        let controls = match self.after.optional(CONTROLS, "controls")? {
            None => Controls::EMPTY,
            Some(content) => Controls::from_ber(content)?,
        };
        self.after.skip_extensions()?;
        Ok(controls)
    }
}

#[cold]
fn refused(error: PartError, id: u32, operation: Operation) -> DecodeError {
    match error {
        PartError::Malformed(malformed) => DecodeError::Malformed(malformed),
        PartError::Violation(violation) => DecodeError::Refused {
            id,
            operation,
            violation,
        },
    }
}

/// An LDAPDN.
#[inline]
fn dn(octets: &[u8]) -> Result<&str, Violation> {
    std::str::from_utf8(octets).map_err(|_| Violation::DnNotUtf8)
}
