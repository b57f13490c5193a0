//! What clients ask for.

#![deny(clippy::indexing_slicing)]

use super::{Operation, ProtocolOp, dn};
use crate::ber::{self, Reader, utf8};
use crate::error::{Malformed, PartError, Violation};
use crate::filter::{Assertion, Filter};
use crate::limits::{ATTRIBUTES_MAX, INTEGER_MAX, MESSAGE_ID_MAX};
use crate::list::{Attributes, Changes, OctetStrings};

/// A request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Request<'a> {
    /// Authenticates the session.
    Bind(BindRequest<'a>),
    /// Ends the session.
    Unbind,
    /// Finds entries.
    Search(SearchRequest<'a>),
    /// Changes an entry's attributes.
    Modify(ModifyRequest<'a>),
    /// Adds an entry.
    Add(AddRequest<'a>),
    /// Deletes the entry with this DN.
    Delete(&'a str),
    /// Renames or moves an entry.
    ModifyDn(ModifyDnRequest<'a>),
    /// Asks whether an entry has a value.
    Compare(CompareRequest<'a>),
    /// Gives up the operation with this message ID.
    Abandon(u32),
    /// An extended operation.
    Extended(ExtendedRequest<'a>),
}

/// BindRequest (RFC 4511 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindRequest<'a> {
    /// The protocol version, 1 to 127; this protocol is 3.
    pub version: u8,
    /// Who the client wants to be.
    pub name: &'a str,
    /// How it proves that.
    pub authentication: Authentication<'a>,
}

/// AuthenticationChoice (RFC 4511 §4.2). Its `Debug` keeps secrets to itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// A password; empty for an anonymous bind.
    Simple(&'a [u8]),
    /// A round of a SASL mechanism.
    Sasl {
        /// The mechanism's name.
        mechanism: &'a str,
        /// What the mechanism has to say; `None` is different from empty.
        credentials: Option<&'a [u8]>,
    },
}

impl std::fmt::Debug for Authentication<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Authentication::Simple([]) => f.write_str("Simple(empty)"),
            Authentication::Simple(_) => f.write_str("Simple(…)"),
            Authentication::Sasl { mechanism, .. } => write!(f, "Sasl({mechanism}, …)"),
        }
    }
}

/// SearchRequest (RFC 4511 §4.5.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchRequest<'a> {
    /// Where the search starts.
    pub base: &'a str,
    /// How far it goes.
    pub scope: Scope,
    /// Whether aliases are followed.
    pub deref_aliases: DerefAliases,
    /// Most entries wanted; zero for no limit.
    pub size_limit: u32,
    /// Most seconds wanted; zero for no limit.
    pub time_limit: u32,
    /// Whether only attribute descriptions are wanted, without values.
    pub types_only: bool,
    /// Which entries.
    pub filter: Filter<'a>,
    /// Which attributes, as sent: descriptions, `*`, `+`, `1.1`, `@class`; empty means all user attributes.
    pub attributes: OctetStrings<'a>,
}

impl<'a> SearchRequest<'a> {
    /// A search for all user attributes, with their values, of every entry that the filter matches: aliases are not
    /// followed, and the client sets no limit.
    pub const fn new(base: &'a str, scope: Scope, filter: Filter<'a>) -> Self {
        Self {
            base,
            scope,
            deref_aliases: DerefAliases::Never,
            size_limit: 0,
            time_limit: 0,
            types_only: false,
            filter,
            attributes: OctetStrings::EMPTY,
        }
    }
}

/// How far a search goes (RFC 4511 §4.5.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The base alone.
    Base,
    /// The base's immediate subordinates.
    OneLevel,
    /// The base and everything below it.
    Subtree,
    /// Everything below the base (draft-sermersheim-ldap-subordinate-scope).
    Subordinates,
}

impl Scope {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Scope::Base => 0,
            Scope::OneLevel => 1,
            Scope::Subtree => 2,
            Scope::Subordinates => 3,
        }
    }

    #[inline]
    const fn from_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(Scope::Base),
            1 => Some(Scope::OneLevel),
            2 => Some(Scope::Subtree),
            3 => Some(Scope::Subordinates),
            _ => None,
        }
    }
}

/// When aliases are followed (RFC 4511 §4.5.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DerefAliases {
    /// Not at all.
    Never,
    /// Below the base, not in finding it.
    InSearching,
    /// In finding the base, not below it.
    FindingBase,
    /// Both.
    Always,
}

impl DerefAliases {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            DerefAliases::Never => 0,
            DerefAliases::InSearching => 1,
            DerefAliases::FindingBase => 2,
            DerefAliases::Always => 3,
        }
    }

    #[inline]
    const fn from_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(DerefAliases::Never),
            1 => Some(DerefAliases::InSearching),
            2 => Some(DerefAliases::FindingBase),
            3 => Some(DerefAliases::Always),
            _ => None,
        }
    }
}

/// ModifyRequest (RFC 4511 §4.6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModifyRequest<'a> {
    /// The entry.
    pub dn: &'a str,
    /// The modifications, made in this order, all or none.
    pub changes: Changes<'a>,
}

/// AddRequest (RFC 4511 §4.7).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AddRequest<'a> {
    /// The new entry's name.
    pub dn: &'a str,
    /// Its attributes, each with at least one value.
    pub attributes: Attributes<'a>,
}

/// ModifyDNRequest (RFC 4511 §4.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModifyDnRequest<'a> {
    /// The entry.
    pub dn: &'a str,
    /// Its new RDN.
    pub new_rdn: &'a str,
    /// Whether the values of the old RDN go away.
    pub delete_old_rdn: bool,
    /// The new parent, if it moves.
    pub new_superior: Option<&'a str>,
}

/// CompareRequest (RFC 4511 §4.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompareRequest<'a> {
    /// The entry.
    pub dn: &'a str,
    /// The attribute and the value asked for.
    pub assertion: Assertion<'a>,
}

/// ExtendedRequest (RFC 4511 §4.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtendedRequest<'a> {
    /// The operation's OID.
    pub name: &'a str,
    /// What the operation defines.
    pub value: Option<&'a [u8]>,
}

const SIMPLE: u8 = ber::context(0);
const SASL: u8 = ber::context_constructed(3);
const NEW_SUPERIOR: u8 = ber::context(0);
const REQUEST_NAME: u8 = ber::context(0);
const REQUEST_VALUE: u8 = ber::context(1);

impl<'a> Request<'a> {
    /// Which operation it is.
    pub const fn operation(&self) -> Operation {
        match self {
            Request::Bind(_) => Operation::Bind,
            Request::Unbind => Operation::Unbind,
            Request::Search(_) => Operation::Search,
            Request::Modify(_) => Operation::Modify,
            Request::Add(_) => Operation::Add,
            Request::Delete(_) => Operation::Delete,
            Request::ModifyDn(_) => Operation::ModifyDn,
            Request::Compare(_) => Operation::Compare,
            Request::Abandon(_) => Operation::Abandon,
            Request::Extended(_) => Operation::Extended,
        }
    }

    #[inline]
    pub(crate) fn decode(operation: Operation, content: &'a [u8]) -> Result<Self, PartError> {
        let mut reader = Reader::new(content);
        let request = match operation {
            Operation::Search => Request::Search(SearchRequest::decode(&mut reader)?),
            Operation::Bind => Request::Bind(BindRequest::decode(&mut reader)?),
            Operation::Modify => Request::Modify(ModifyRequest::decode(&mut reader)?),
            Operation::Add => Request::Add(AddRequest::decode(&mut reader)?),
            Operation::ModifyDn => Request::ModifyDn(ModifyDnRequest::decode(&mut reader)?),
            Operation::Compare => Request::Compare(CompareRequest::decode(&mut reader)?),
            Operation::Extended => Request::Extended(ExtendedRequest::decode(&mut reader)?),
            // The three that are primitive: the content is the value.
            Operation::Delete => return Ok(Request::Delete(dn(content)?)),
            Operation::Abandon => {
                let id = u32::try_from(ber::integer(content, "abandoned messageID")?).ok();
                return match id.filter(|id| *id <= MESSAGE_ID_MAX) {
                    Some(id) => Ok(Request::Abandon(id)),
                    None => Err(Violation::OutOfRange {
                        field: "abandoned messageID",
                    }
                    .into()),
                };
            }
            Operation::Unbind if content.is_empty() => return Ok(Request::Unbind),
            Operation::Unbind => return Err(Malformed::Trailing.into()),
        };
        reader.skip_extensions()?;
        Ok(request)
    }
}

impl ProtocolOp for Request<'_> {
    fn tag(&self) -> u8 {
        self.operation().request_tag()
    }

    fn content_len(&self) -> usize {
        let string = |octets: &[u8]| ber::element_len(octets.len());
        match self {
            Request::Bind(bind) => 3 + string(bind.name.as_bytes()) + bind.authentication_len(),
            Request::Unbind => 0,
            Request::Search(search) => search.content_len(),
            Request::Modify(modify) => {
                string(modify.dn.as_bytes()) + string(modify.changes.as_ber())
            }
            Request::Add(add) => string(add.dn.as_bytes()) + string(add.attributes.as_ber()),
            Request::Delete(dn) => dn.len(),
            Request::ModifyDn(rename) => {
                let new_superior = rename.new_superior.map_or(0, |dn| string(dn.as_bytes()));
                string(rename.dn.as_bytes()) + string(rename.new_rdn.as_bytes()) + 3 + new_superior
            }
            Request::Compare(compare) => {
                string(compare.dn.as_bytes()) + ber::element_len(compare.assertion.content_len())
            }
            Request::Abandon(id) => ber::integer_len(i64::from(*id)),
            Request::Extended(extended) => {
                string(extended.name.as_bytes()) + extended.value.map_or(0, string)
            }
        }
    }

    fn put_content(&self, out: &mut Vec<u8>) {
        let string = |out: &mut Vec<u8>, text: &str| {
            ber::put_octets(out, ber::OCTET_STRING, text.as_bytes())
        };
        match self {
            Request::Bind(bind) => bind.encode(out),
            Request::Unbind => {}
            Request::Search(search) => search.encode(out),
            Request::Modify(modify) => {
                string(out, modify.dn);
                ber::put_octets(out, ber::SEQUENCE, modify.changes.as_ber());
            }
            Request::Add(add) => {
                string(out, add.dn);
                ber::put_octets(out, ber::SEQUENCE, add.attributes.as_ber());
            }
            Request::Delete(dn) => out.extend_from_slice(dn.as_bytes()),
            Request::ModifyDn(rename) => {
                string(out, rename.dn);
                string(out, rename.new_rdn);
                ber::put_boolean(out, ber::BOOLEAN, rename.delete_old_rdn);
                if let Some(new_superior) = rename.new_superior {
                    ber::put_octets(out, NEW_SUPERIOR, new_superior.as_bytes());
                }
            }
            Request::Compare(compare) => {
                string(out, compare.dn);
                compare.assertion.encode(out, ber::SEQUENCE);
            }
            Request::Abandon(id) => ber::put_integer_content(out, i64::from(*id)),
            Request::Extended(extended) => {
                ber::put_octets(out, REQUEST_NAME, extended.name.as_bytes());
                if let Some(value) = extended.value {
                    ber::put_octets(out, REQUEST_VALUE, value);
                }
            }
        }
    }
}

impl<'a> BindRequest<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let version = reader.integer("version")?;
        let name = reader.octets("name")?;
        let authentication = Authentication::decode(reader)?;
        let Ok(version @ 1..=127) = u8::try_from(version) else {
            return Err(Violation::OutOfRange { field: "version" }.into());
        };
        Ok(BindRequest {
            version,
            name: dn(name)?,
            authentication,
        })
    }

    fn authentication_len(&self) -> usize {
        ber::element_len(self.authentication.content_len())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        ber::put_integer(out, ber::INTEGER, i64::from(self.version.min(127)));
        ber::put_octets(out, ber::OCTET_STRING, self.name.as_bytes());
        self.authentication.encode(out);
    }
}

impl<'a> Authentication<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let (choice, content) = reader.element("authentication")?;
        match choice {
            SIMPLE => Ok(Authentication::Simple(content)),
            SASL => {
                let mut sasl = Reader::new(content);
                let mechanism = sasl.octets("mechanism")?;
                let credentials = sasl.optional(ber::OCTET_STRING, "credentials")?;
                sasl.skip_extensions()?;
                Ok(Authentication::Sasl {
                    mechanism: utf8(mechanism, "mechanism")?,
                    credentials,
                })
            }
            _ => Err(Violation::AuthenticationChoice.into()),
        }
    }

    fn content_len(&self) -> usize {
        match self {
            Authentication::Simple(password) => password.len(),
            Authentication::Sasl {
                mechanism,
                credentials,
            } => {
                ber::element_len(mechanism.len())
                    + credentials.map_or(0, |octets| ber::element_len(octets.len()))
            }
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Authentication::Simple(password) => ber::put_octets(out, SIMPLE, password),
            Authentication::Sasl {
                mechanism,
                credentials,
            } => {
                ber::put_header(out, SASL, self.content_len());
                ber::put_octets(out, ber::OCTET_STRING, mechanism.as_bytes());
                if let Some(credentials) = credentials {
                    ber::put_octets(out, ber::OCTET_STRING, credentials);
                }
            }
        }
    }
}

impl<'a> SearchRequest<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let base = reader.octets("baseObject")?;
        let scope = reader.enumerated("scope")?;
        let deref_aliases = reader.enumerated("derefAliases")?;
        let size_limit = reader.integer("sizeLimit")?;
        let time_limit = reader.integer("timeLimit")?;
        let types_only = reader.boolean("typesOnly")?;
        let filter = Filter::decode(reader)?;
        let attributes = OctetStrings::bounded(
            reader.expect(ber::SEQUENCE, "attributes")?,
            "attribute selector",
        )?;
        Ok(SearchRequest {
            base: dn(base)?,
            scope: Scope::from_number(scope).ok_or(Violation::OutOfRange { field: "scope" })?,
            deref_aliases: DerefAliases::from_number(deref_aliases).ok_or(
                Violation::OutOfRange {
                    field: "derefAliases",
                },
            )?,
            size_limit: limit(size_limit, "sizeLimit")?,
            time_limit: limit(time_limit, "timeLimit")?,
            types_only,
            filter,
            attributes,
        })
    }

    /// Octets of the fields between base and filter.
    fn limits_len(&self) -> usize {
        let integer = |value: u32| 2 + ber::integer_len(i64::from(value));
        3 + 3 + integer(self.size_limit) + integer(self.time_limit) + 3
    }

    fn content_len(&self) -> usize {
        ber::element_len(self.base.len())
            + self.limits_len()
            + self.filter.as_ber().len()
            + ber::element_len(self.attributes.as_ber().len())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        ber::put_octets(out, ber::OCTET_STRING, self.base.as_bytes());
        ber::put_integer(out, ber::ENUMERATED, i64::from(self.scope.number()));
        ber::put_integer(out, ber::ENUMERATED, i64::from(self.deref_aliases.number()));
        ber::put_integer(out, ber::INTEGER, i64::from(self.size_limit));
        ber::put_integer(out, ber::INTEGER, i64::from(self.time_limit));
        ber::put_boolean(out, ber::BOOLEAN, self.types_only);
        out.extend_from_slice(self.filter.as_ber());
        ber::put_octets(out, ber::SEQUENCE, self.attributes.as_ber());
    }
}

#[inline]
fn limit(value: i64, field: &'static str) -> Result<u32, Violation> {
    match u32::try_from(value) {
        Ok(value) if value <= INTEGER_MAX => Ok(value),
        _ => Err(Violation::OutOfRange { field }),
    }
}

impl<'a> ModifyRequest<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let object = reader.octets("object")?;
        let changes = Changes::checked(reader.expect(ber::SEQUENCE, "changes")?, ATTRIBUTES_MAX)?;
        Ok(ModifyRequest {
            dn: dn(object)?,
            changes,
        })
    }
}

impl<'a> AddRequest<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let entry = reader.octets("entry")?;
        let attributes =
            Attributes::with_values(reader.expect(ber::SEQUENCE, "attributes")?, ATTRIBUTES_MAX)?;
        Ok(AddRequest {
            dn: dn(entry)?,
            attributes,
        })
    }
}

impl<'a> ModifyDnRequest<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let entry = reader.octets("entry")?;
        let new_rdn = reader.octets("newrdn")?;
        let delete_old_rdn = reader.boolean("deleteoldrdn")?;
        let new_superior = reader.optional(NEW_SUPERIOR, "newSuperior")?;
        Ok(ModifyDnRequest {
            dn: dn(entry)?,
            new_rdn: dn(new_rdn)?,
            delete_old_rdn,
            new_superior: new_superior.map(dn).transpose()?,
        })
    }
}

impl<'a> CompareRequest<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let entry = reader.octets("entry")?;
        let assertion = Assertion::decode(reader.expect(ber::SEQUENCE, "ava")?)?;
        Ok(CompareRequest {
            dn: dn(entry)?,
            assertion,
        })
    }
}

impl<'a> ExtendedRequest<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, PartError> {
        let name = reader.expect(REQUEST_NAME, "requestName")?;
        let value = reader.optional(REQUEST_VALUE, "requestValue")?;
        Ok(ExtendedRequest {
            name: utf8(name, "requestName")?,
            value,
        })
    }
}
