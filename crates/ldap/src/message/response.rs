//! What servers answer.

#![deny(clippy::indexing_slicing)]

use super::{Operation, ProtocolOp, dn, envelope, put_controls};
use crate::ber::{self, Reader, utf8};
use crate::controls::Controls;
use crate::error::{Malformed, PartError};
use crate::list::{Attributes, OctetStrings, put_attribute};
use crate::result::LdapResult;

/// A response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Response<'a> {
    /// Ends a bind.
    Bind(BindResponse<'a>),
    /// One entry that was found.
    SearchEntry(SearchResultEntry<'a>),
    /// URIs where the search may be continued.
    SearchReference(OctetStrings<'a>),
    /// Ends a search.
    SearchDone(LdapResult<'a>),
    /// Ends a modify.
    Modify(LdapResult<'a>),
    /// Ends an add.
    Add(LdapResult<'a>),
    /// Ends a delete.
    Delete(LdapResult<'a>),
    /// Ends a modify DN.
    ModifyDn(LdapResult<'a>),
    /// Ends a compare.
    Compare(LdapResult<'a>),
    /// Ends an extended operation, or is an unsolicited notification.
    Extended(ExtendedResponse<'a>),
    /// More responses of the same operation follow.
    Intermediate(IntermediateResponse<'a>),
}

/// BindResponse (RFC 4511 §4.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindResponse<'a> {
    /// How it ended.
    pub result: LdapResult<'a>,
    /// What the SASL mechanism has to say; `None` is different from empty.
    pub server_sasl_credentials: Option<&'a [u8]>,
}

/// SearchResultEntry (RFC 4511 §4.5.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchResultEntry<'a> {
    /// The entry's name.
    pub dn: &'a str,
    /// Its attributes; without values if only types were asked for.
    pub attributes: Attributes<'a>,
}

/// ExtendedResponse (RFC 4511 §4.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtendedResponse<'a> {
    /// How it ended.
    pub result: LdapResult<'a>,
    /// The operation's OID, if it has one to report.
    pub name: Option<&'a str>,
    /// What the operation defines.
    pub value: Option<&'a [u8]>,
}

/// IntermediateResponse (RFC 4511 §4.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntermediateResponse<'a> {
    /// An OID that says what the value is.
    pub name: Option<&'a str>,
    /// What the operation defines.
    pub value: Option<&'a [u8]>,
}

const BIND: u8 = 0x61;
const SEARCH_ENTRY: u8 = 0x64;
const SEARCH_DONE: u8 = 0x65;
const MODIFY: u8 = 0x67;
const ADD: u8 = 0x69;
const DELETE: u8 = 0x6b;
const MODIFY_DN: u8 = 0x6d;
const COMPARE: u8 = 0x6f;
const SEARCH_REFERENCE: u8 = 0x73;
const EXTENDED: u8 = 0x78;
const INTERMEDIATE: u8 = 0x79;

const SERVER_SASL_CREDENTIALS: u8 = ber::context(7);
const RESPONSE_NAME: u8 = ber::context(10);
const RESPONSE_VALUE: u8 = ber::context(11);
const INTERMEDIATE_NAME: u8 = ber::context(0);
const INTERMEDIATE_VALUE: u8 = ber::context(1);

/// Which operation a response belongs to. An intermediate response counts as extended: it may belong to any.
pub(super) const fn operation(tag: u8) -> Result<Operation, Malformed> {
    Ok(match tag {
        BIND => Operation::Bind,
        SEARCH_ENTRY | SEARCH_DONE | SEARCH_REFERENCE => Operation::Search,
        MODIFY => Operation::Modify,
        ADD => Operation::Add,
        DELETE => Operation::Delete,
        MODIFY_DN => Operation::ModifyDn,
        COMPARE => Operation::Compare,
        EXTENDED | INTERMEDIATE => Operation::Extended,
        tag => return Err(Malformed::Operation { tag }),
    })
}

impl<'a> Response<'a> {
    /// The response that ends an operation; `None` for unbind and abandon, which have none.
    pub const fn of_result(operation: Operation, result: LdapResult<'a>) -> Option<Self> {
        Some(match operation {
            Operation::Bind => Response::Bind(BindResponse {
                result,
                server_sasl_credentials: None,
            }),
            Operation::Search => Response::SearchDone(result),
            Operation::Modify => Response::Modify(result),
            Operation::Add => Response::Add(result),
            Operation::Delete => Response::Delete(result),
            Operation::ModifyDn => Response::ModifyDn(result),
            Operation::Compare => Response::Compare(result),
            Operation::Extended => Response::Extended(ExtendedResponse {
                result,
                name: None,
                value: None,
            }),
            Operation::Unbind | Operation::Abandon => return None,
        })
    }

    /// The result, if this response ends its operation.
    pub const fn result(&self) -> Option<&LdapResult<'a>> {
        match self {
            Response::Bind(bind) => Some(&bind.result),
            Response::Extended(extended) => Some(&extended.result),
            Response::SearchDone(result)
            | Response::Modify(result)
            | Response::Add(result)
            | Response::Delete(result)
            | Response::ModifyDn(result)
            | Response::Compare(result) => Some(result),
            Response::SearchEntry(_) | Response::SearchReference(_) | Response::Intermediate(_) => {
                None
            }
        }
    }

    pub(super) fn decode(tag: u8, content: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let response = match tag {
            SEARCH_ENTRY => Response::SearchEntry(SearchResultEntry::decode(&mut reader)?),
            SEARCH_DONE => Response::SearchDone(LdapResult::decode(&mut reader)?),
            BIND => {
                let result = LdapResult::decode(&mut reader)?;
                let server_sasl_credentials =
                    reader.optional(SERVER_SASL_CREDENTIALS, "serverSaslCreds")?;
                Response::Bind(BindResponse {
                    result,
                    server_sasl_credentials,
                })
            }
            MODIFY => Response::Modify(LdapResult::decode(&mut reader)?),
            ADD => Response::Add(LdapResult::decode(&mut reader)?),
            DELETE => Response::Delete(LdapResult::decode(&mut reader)?),
            MODIFY_DN => Response::ModifyDn(LdapResult::decode(&mut reader)?),
            COMPARE => Response::Compare(LdapResult::decode(&mut reader)?),
            SEARCH_REFERENCE => {
                return Ok(Response::SearchReference(OctetStrings::bounded(
                    content, "URI",
                )?));
            }
            EXTENDED => {
                let result = LdapResult::decode(&mut reader)?;
                let name = reader.optional(RESPONSE_NAME, "responseName")?;
                let name = name.map(|name| utf8(name, "responseName")).transpose()?;
                let value = reader.optional(RESPONSE_VALUE, "responseValue")?;
                Response::Extended(ExtendedResponse {
                    result,
                    name,
                    value,
                })
            }
            INTERMEDIATE => {
                let name = reader.optional(INTERMEDIATE_NAME, "responseName")?;
                let name = name.map(|name| utf8(name, "responseName")).transpose()?;
                let value = reader.optional(INTERMEDIATE_VALUE, "responseValue")?;
                Response::Intermediate(IntermediateResponse { name, value })
            }
            tag => return Err(Malformed::Operation { tag }.into()),
        };
        reader.skip_extensions()?;
        Ok(response)
    }
}

impl ProtocolOp for Response<'_> {
    fn tag(&self) -> u8 {
        match self {
            Response::Bind(_) => BIND,
            Response::SearchEntry(_) => SEARCH_ENTRY,
            Response::SearchReference(_) => SEARCH_REFERENCE,
            Response::SearchDone(_) => SEARCH_DONE,
            Response::Modify(_) => MODIFY,
            Response::Add(_) => ADD,
            Response::Delete(_) => DELETE,
            Response::ModifyDn(_) => MODIFY_DN,
            Response::Compare(_) => COMPARE,
            Response::Extended(_) => EXTENDED,
            Response::Intermediate(_) => INTERMEDIATE,
        }
    }

    fn content_len(&self) -> usize {
        let optional =
            |octets: Option<&[u8]>| octets.map_or(0, |octets| ber::element_len(octets.len()));
        match self {
            Response::Bind(bind) => {
                bind.result.content_len() + optional(bind.server_sasl_credentials)
            }
            Response::SearchEntry(entry) => entry.content_len(),
            Response::SearchReference(uris) => uris.as_ber().len(),
            Response::SearchDone(result)
            | Response::Modify(result)
            | Response::Add(result)
            | Response::Delete(result)
            | Response::ModifyDn(result)
            | Response::Compare(result) => result.content_len(),
            Response::Extended(extended) => {
                extended.result.content_len()
                    + optional(extended.name.map(str::as_bytes))
                    + optional(extended.value)
            }
            Response::Intermediate(response) => {
                optional(response.name.map(str::as_bytes)) + optional(response.value)
            }
        }
    }

    fn put_content(&self, out: &mut Vec<u8>) {
        let optional = |out: &mut Vec<u8>, tag, octets: Option<&[u8]>| {
            if let Some(octets) = octets {
                ber::put_octets(out, tag, octets);
            }
        };
        match self {
            Response::Bind(bind) => {
                bind.result.encode(out);
                optional(out, SERVER_SASL_CREDENTIALS, bind.server_sasl_credentials);
            }
            Response::SearchEntry(entry) => entry.put_content(out),
            Response::SearchReference(uris) => out.extend_from_slice(uris.as_ber()),
            Response::SearchDone(result)
            | Response::Modify(result)
            | Response::Add(result)
            | Response::Delete(result)
            | Response::ModifyDn(result)
            | Response::Compare(result) => result.encode(out),
            Response::Extended(extended) => {
                extended.result.encode(out);
                optional(out, RESPONSE_NAME, extended.name.map(str::as_bytes));
                optional(out, RESPONSE_VALUE, extended.value);
            }
            Response::Intermediate(response) => {
                optional(out, INTERMEDIATE_NAME, response.name.map(str::as_bytes));
                optional(out, INTERMEDIATE_VALUE, response.value);
            }
        }
    }
}

impl<'a> SearchResultEntry<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let name = dn(reader.octets("objectName")?)?;
        let attributes = Attributes::from_ber(reader.expect(ber::SEQUENCE, "attributes")?)?;
        Ok(SearchResultEntry {
            dn: name,
            attributes,
        })
    }

    /// Reads one that stands outside of a message, as in the read entry controls (RFC 4527).
    pub fn from_ber(element: &'a [u8]) -> Result<Self, PartError> {
        let mut outer = Reader::new(element);
        let mut reader = Reader::new(outer.expect(SEARCH_ENTRY, "SearchResultEntry")?);
        let entry = Self::decode(&mut reader)?;
        reader.skip_extensions()?;
        Ok(entry)
    }

    /// Appends it without a message around it, as in the read entry controls (RFC 4527).
    pub fn encode(&self, out: &mut Vec<u8>) {
        ber::put_header(out, SEARCH_ENTRY, self.content_len());
        self.put_content(out);
    }

    fn content_len(&self) -> usize {
        ber::element_len(self.dn.len()) + ber::element_len(self.attributes.as_ber().len())
    }

    fn put_content(&self, out: &mut Vec<u8>) {
        ber::put_octets(out, ber::OCTET_STRING, self.dn.as_bytes());
        ber::put_octets(out, ber::SEQUENCE, self.attributes.as_ber());
    }
}

/// Appends a SearchResultEntry message whose attributes are BER already: the content of a PartialAttributeList.
#[inline]
pub fn put_search_entry(out: &mut Vec<u8>, id: u32, dn: &[u8], attributes: &[u8]) {
    put_search_entry_below(out, id, dn, None, attributes, Controls::EMPTY);
}

/// The same with controls, and with the DN in two parts, the second without the comma before it.
#[inline]
pub fn put_search_entry_below(
    out: &mut Vec<u8>,
    id: u32,
    rdn: &[u8],
    superior: Option<&[u8]>,
    attributes: &[u8],
    controls: Controls<'_>,
) {
    put_search_entry_of_parts(out, id, (rdn, superior), &[attributes], controls);
}

/// The same with the attributes in parts that follow each other.
#[inline]
pub fn put_search_entry_of_parts(
    out: &mut Vec<u8>,
    id: u32,
    (rdn, superior): (&[u8], Option<&[u8]>),
    attributes: &[&[u8]],
    controls: Controls<'_>,
) {
    let dn_len = rdn.len() + superior.map_or(0, |superior| 1 + superior.len());
    let attributes_len = attributes.iter().map(|part| part.len()).sum();
    let content_len = ber::element_len(dn_len) + ber::element_len(attributes_len);
    let mut head = envelope(out, id, SEARCH_ENTRY, content_len, controls);
    head.push_header(ber::OCTET_STRING, dn_len);
    head.put(out);
    out.extend_from_slice(rdn);
    if let Some(superior) = superior {
        out.push(b',');
        out.extend_from_slice(superior);
    }
    ber::put_header(out, ber::SEQUENCE, attributes_len);
    for part in attributes {
        out.extend_from_slice(part);
    }
    put_controls(out, controls);
}

/// Appends a SearchResultEntry, with or without a message around it, whose attributes are chosen one by one.
///
/// Nothing that was in `out` before is touched; an entry that is dropped unfinished is taken back.
#[derive(Debug)]
pub struct EntryWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Length of `out` before the entry.
    before: usize,
    open: Option<OpenEntry>,
}

/// The elements of an entry that are not closed yet, outermost first.
#[derive(Debug)]
struct OpenEntry {
    message: Option<ber::Open>,
    entry: ber::Open,
    attributes: ber::Open,
}

impl<'o> EntryWriter<'o> {
    /// Entries mostly have from 256 to 65,535 bytes: lengths of that size are patched in without moving anything.
    pub const EXPECTED_BYTES: usize = 0x100;

    /// Starts the message.
    pub fn begin(out: &'o mut Vec<u8>, id: u32, dn: &[u8]) -> Self {
        Self::begin_expecting(out, id, dn, Self::EXPECTED_BYTES)
    }

    /// Starts a message of about so many bytes.
    pub fn begin_expecting(out: &'o mut Vec<u8>, id: u32, dn: &[u8], bytes: usize) -> Self {
        let before = out.len();
        let message = ber::open(out, ber::SEQUENCE, bytes);
        ber::put_integer(out, ber::INTEGER, i64::from(id));
        Self::begin_entry(out, before, Some(message), dn, bytes)
    }

    /// Starts an entry without a message around it, as in the read entry controls (RFC 4527). It has no controls.
    pub fn begin_bare(out: &'o mut Vec<u8>, dn: &[u8]) -> Self {
        let before = out.len();
        Self::begin_entry(out, before, None, dn, Self::EXPECTED_BYTES)
    }

    #[inline]
    fn begin_entry(
        out: &'o mut Vec<u8>,
        before: usize,
        message: Option<ber::Open>,
        dn: &[u8],
        bytes: usize,
    ) -> Self {
        let entry = ber::open(out, SEARCH_ENTRY, bytes);
        ber::put_octets(out, ber::OCTET_STRING, dn);
        let attributes = ber::open(out, ber::SEQUENCE, bytes);
        EntryWriter {
            out,
            before,
            open: Some(OpenEntry {
                message,
                entry,
                attributes,
            }),
        }
    }

    /// Appends attributes that are BER already: any number of whole PartialAttributes.
    #[inline]
    pub fn put_ber(&mut self, attributes: &[u8]) {
        self.out.extend_from_slice(attributes);
    }

    /// Appends an attribute.
    pub fn put_attribute<'v>(
        &mut self,
        description: &[u8],
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        put_attribute(self.out, description, values);
    }

    /// Where attributes go, for who builds them piece by piece. What is appended must be whole PartialAttributes.
    #[inline]
    pub fn attributes(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Ends the message.
    pub fn finish(mut self, controls: Controls<'_>) {
        if let Some(open) = self.open.take() {
            ber::close(self.out, open.attributes);
            ber::close(self.out, open.entry);
            if let Some(message) = open.message {
                put_controls(self.out, controls);
                ber::close(self.out, message);
            }
        }
    }
}

impl Drop for EntryWriter<'_> {
    fn drop(&mut self) {
        if self.open.is_some() {
            self.out.truncate(self.before);
        }
    }
}
