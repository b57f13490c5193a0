//! Encodes the operations of a plan as requests, in which markers stand for variables.

#![deny(clippy::indexing_slicing)]

use sapwood_ldap::ber;
use sapwood_ldap::controls::{Control, ControlsBuf};
use sapwood_ldap::filter::{Assertion, Filter};
use sapwood_ldap::filter_text;
use sapwood_ldap::ldif::{self, Block, Body};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{
    AddRequest, Authentication, BindRequest, CompareRequest, DerefAliases, ExtendedRequest,
    ModifyDnRequest, ModifyRequest, Operation, Request, Scope, SearchRequest,
};

use super::preamble::Preamble;
use super::records::{Line, Record};
use crate::plan::PlanError;
use crate::template::MESSAGE_ID_BASE;

/// An encoded protocolOp (RFC 4511 §4.1.1).
pub(super) struct Encoded(Vec<u8>);

impl Encoded {
    pub(super) fn new(op: &Request<'_>) -> Self {
        use sapwood_ldap::message::ProtocolOp;
        let mut element = Vec::new();
        ber::put_header(&mut element, op.tag(), op.content_len());
        op.put_content(&mut element);
        Encoded(element)
    }
}

/// The encoded message with an operation and controls. Its ID takes four octets.
pub(super) fn message(op: &Encoded, controls: &ControlsBuf) -> Vec<u8> {
    let mut content = Vec::new();
    ber::put_integer(&mut content, ber::INTEGER, i64::from(MESSAGE_ID_BASE));
    content.extend_from_slice(&op.0);
    if !controls.view().is_empty() {
        ber::put_octets(
            &mut content,
            ber::context_constructed(0),
            controls.view().as_ber(),
        );
    }
    let mut message = Vec::new();
    ber::put_octets(&mut message, ber::SEQUENCE, &content);
    message
}

/// Parses an LDIF record: the lines from `dn:` to the end.
pub(super) fn ldif(
    record: &Record,
    dn: &Line<'_>,
    preamble: &Preamble,
) -> Result<(Operation, Encoded, ControlsBuf), PlanError> {
    let text = record.text.get(dn.offset..).unwrap_or_default().to_vec();
    let block = Block::new(text);
    let mut records = block.records(ldif::Options::default());
    let record = match records.next() {
        Some(Ok(record)) => record,
        Some(Err(rejected)) => {
            let line = dn.number + rejected.line - 1;
            return Err(PlanError::new(line, rejected.reason.to_string()));
        }
        None => return Err(dn.error("a record must begin with a \"dn:\" line")),
    };
    let mut controls = preamble.controls.clone();
    for control in &record.controls {
        controls.push(Control {
            oid: &control.oid,
            critical: control.critical,
            value: control.value.as_deref(),
        });
    }
    let (operation, op) = match &record.body {
        Body::Entry(values) | Body::Add(values) => {
            let attributes = ldif::attributes(values);
            let op = Request::Add(AddRequest {
                dn: &record.dn,
                attributes: attributes.view(),
            });
            (Operation::Add, Encoded::new(&op))
        }
        Body::Delete => (
            Operation::Delete,
            Encoded::new(&Request::Delete(&record.dn)),
        ),
        Body::Modify(modifications) => {
            let changes = ldif::changes(modifications);
            let op = Request::Modify(ModifyRequest {
                dn: &record.dn,
                changes: changes.view(),
            });
            (Operation::Modify, Encoded::new(&op))
        }
        Body::ModifyDn {
            new_rdn,
            delete_old_rdn,
            new_superior,
        } => {
            let op = Request::ModifyDn(ModifyDnRequest {
                dn: &record.dn,
                new_rdn,
                delete_old_rdn: *delete_old_rdn,
                new_superior: new_superior.as_deref(),
            });
            (Operation::ModifyDn, Encoded::new(&op))
        }
    };
    Ok((operation, op, controls))
}

pub(super) fn search(first: &Line<'_>, options: &[Line<'_>]) -> Result<Encoded, PlanError> {
    let mut filter = None;
    let mut attributes = OctetStringsBuf::default();
    let mut request =
        SearchRequest::new(first.text()?, Scope::Subtree, Filter::OBJECT_CLASS_PRESENT);
    const LIMIT_MAX: u64 = i32::MAX as u64;
    for line in options {
        match line.name.as_str() {
            "scope" => {
                request.scope = match line.text()? {
                    "base" => Scope::Base,
                    "one" => Scope::OneLevel,
                    "sub" => Scope::Subtree,
                    "children" => Scope::Subordinates,
                    _ => return Err(line.error("a scope is base, one, sub or children")),
                }
            }
            "filter" => {
                let parsed = filter_text::parse(line.text()?);
                filter = Some(parsed.map_err(|error| line.error(&error.to_string()))?);
            }
            "attributes" => line
                .text()?
                .split([',', ' '])
                .filter(|word| !word.is_empty())
                .for_each(|word| attributes.push(word.as_bytes())),
            "size-limit" => request.size_limit = line.number(0, LIMIT_MAX)? as u32,
            "time-limit" => request.time_limit = line.number(0, LIMIT_MAX)? as u32,
            "types-only" => {
                request.types_only = match line.text()? {
                    "true" => true,
                    "false" => false,
                    _ => return Err(line.error("types-only is true or false")),
                }
            }
            "deref-aliases" => {
                request.deref_aliases = match line.text()? {
                    "never" => DerefAliases::Never,
                    "searching" => DerefAliases::InSearching,
                    "finding" => DerefAliases::FindingBase,
                    "always" => DerefAliases::Always,
                    _ => {
                        return Err(
                            line.error("deref-aliases is never, searching, finding or always")
                        );
                    }
                }
            }
            _ => {
                return Err(line.error(
                    "a search has scope, filter, attributes, size-limit, time-limit, types-only and deref-aliases",
                ));
            }
        }
    }
    if let Some(filter) = &filter {
        request.filter = filter.as_filter();
    }
    request.attributes = attributes.view();
    Ok(Encoded::new(&Request::Search(request)))
}

pub(super) fn compare(first: &Line<'_>, options: &[Line<'_>]) -> Result<Encoded, PlanError> {
    let [line] = options else {
        return Err(first.error("a compare is followed by one line: the attribute and the value"));
    };
    // The name is in lower case here. Attribute descriptions ignore case.
    Ok(Encoded::new(&Request::Compare(CompareRequest {
        dn: first.text()?,
        assertion: Assertion {
            attribute: line.name.as_bytes(),
            value: &line.value,
        },
    })))
}

pub(super) fn bind(first: &Line<'_>, options: &[Line<'_>]) -> Result<Encoded, PlanError> {
    let (mut password, mut mechanism, mut credentials) = (None, None, None);
    for line in options {
        match line.name.as_str() {
            "password" => password = Some(line),
            "mechanism" => mechanism = Some(line),
            "credentials" => credentials = Some(line),
            _ => return Err(line.error("a bind has a password, or a mechanism and credentials")),
        }
    }
    let authentication = match (password, mechanism) {
        (Some(_), Some(line)) => {
            return Err(line.error("a bind has either a password or a mechanism"));
        }
        (None, Some(mechanism)) => Authentication::Sasl {
            mechanism: mechanism.text()?,
            credentials: credentials.map(|line| line.value.as_ref()),
        },
        (password, None) => {
            Authentication::Simple(password.map_or(&[][..], |line| line.value.as_ref()))
        }
    };
    Ok(Encoded::new(&Request::Bind(BindRequest {
        version: 3,
        name: first.text()?,
        authentication,
    })))
}

pub(super) fn extended(first: &Line<'_>, options: &[Line<'_>]) -> Result<Encoded, PlanError> {
    let value = match options {
        [] => None,
        [line] if line.name == "value" => Some(line.value.as_ref()),
        [line, ..] => return Err(line.error("an extended operation has one value")),
    };
    Ok(Encoded::new(&Request::Extended(ExtendedRequest {
        name: first.text()?,
        value,
    })))
}
