//! The messages that tests send, as bytes.

use sapwood_ldap::controls::{self, ControlsBuf};
use sapwood_ldap::extended::{CANCEL, put_cancel_id};
use sapwood_ldap::filter::Assertion;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{
    AddRequest, Authentication, BindRequest, CompareRequest, ExtendedRequest, Message,
    ModifyDnRequest, ModifyRequest, Request, RequestMessage, Scope, SearchRequest,
};

/// A message without controls.
pub fn message(id: u32, op: Request<'_>) -> Vec<u8> {
    with_controls(id, op, &[])
}

/// A control: its OID, whether it is critical, and its value.
pub type Control<'c> = (&'c str, bool, Option<&'c [u8]>);

/// A message with controls.
pub fn with_controls(id: u32, op: Request<'_>, controls: &[Control<'_>]) -> Vec<u8> {
    let controls = self::controls(controls);
    let controls = controls.view();
    let mut bytes = Vec::new();
    Message { id, op, controls }.encode(&mut bytes);
    bytes
}

/// The same message with these controls.
pub fn with(message: &[u8], controls: &[Control<'_>]) -> Vec<u8> {
    let message = RequestMessage::decode(message).unwrap();
    with_controls(message.id, message.op, controls)
}

/// The controls of a message.
pub fn controls(list: &[Control<'_>]) -> ControlsBuf {
    let mut controls = ControlsBuf::default();
    for &(oid, critical, value) in list {
        controls.push(controls::Control {
            oid,
            critical,
            value,
        });
    }
    controls
}

/// A simple bind.
pub fn bind(id: u32, dn: &str, password: impl AsRef<[u8]>) -> Vec<u8> {
    message(id, simple_bind(dn, password.as_ref()))
}

/// The operation of a simple bind.
pub fn simple_bind<'a>(dn: &'a str, password: &'a [u8]) -> Request<'a> {
    Request::Bind(BindRequest {
        version: 3,
        name: dn,
        authentication: Authentication::Simple(password),
    })
}

/// A SASL bind with the mechanism EXTERNAL.
pub fn bind_external(id: u32) -> Vec<u8> {
    let authentication = Authentication::Sasl {
        mechanism: "EXTERNAL",
        credentials: None,
    };
    message(
        id,
        Request::Bind(BindRequest {
            version: 3,
            name: "",
            authentication,
        }),
    )
}

/// An extended request.
pub fn extended(id: u32, name: &str, value: Option<&[u8]>) -> Vec<u8> {
    message(id, Request::Extended(ExtendedRequest { name, value }))
}

/// An extended request that cancels an operation (RFC 3909).
pub fn cancel(id: u32, target: u32) -> Vec<u8> {
    let mut value = Vec::new();
    put_cancel_id(&mut value, target);
    extended(id, CANCEL, Some(&value))
}

/// A search for all user attributes of the entries that a filter in text form matches.
pub fn search(id: u32, base: &str, scope: Scope, filter: &str) -> Vec<u8> {
    let filter = filter_text::parse(filter).unwrap();
    let request = SearchRequest::new(base, scope, filter.as_filter());
    message(id, Request::Search(request))
}

/// An add. An attribute that is named twice is sent twice.
pub fn add(id: u32, dn: &str, attributes: &[(&str, &str)]) -> Vec<u8> {
    let list = self::attributes(attributes);
    let attributes = list.view();
    message(id, Request::Add(AddRequest { dn, attributes }))
}

/// Attributes of one value each.
pub fn attributes(attributes: &[(&str, &str)]) -> AttributesBuf {
    let mut list = AttributesBuf::default();
    for (description, value) in attributes {
        list.push(description.as_bytes(), [value.as_bytes()]);
    }
    list
}

/// A change of an attribute: what is done, its description, its values.
pub type Change<'c> = (ChangeKind, &'c str, &'c [&'c str]);

/// A modify.
pub fn modify(id: u32, dn: &str, changes: &[Change<'_>]) -> Vec<u8> {
    let list = self::changes(changes);
    let changes = list.view();
    message(id, Request::Modify(ModifyRequest { dn, changes }))
}

/// The changes of a modify.
pub fn changes(changes: &[Change<'_>]) -> ChangesBuf {
    let mut list = ChangesBuf::default();
    for (kind, description, values) in changes {
        let values = values.iter().map(|value| value.as_bytes());
        list.push(*kind, description.as_bytes(), values);
    }
    list
}

/// A modify that gives an entry this one description.
pub fn describe(id: u32, dn: &str, text: &str) -> Vec<u8> {
    let changes = described(text);
    let changes = changes.view();
    message(id, Request::Modify(ModifyRequest { dn, changes }))
}

/// The changes of [`describe`].
pub fn described(text: &str) -> ChangesBuf {
    changes(&[(ChangeKind::Replace, "description", &[text])])
}

/// A compare.
pub fn compare(id: u32, dn: &str, attribute: &str, value: &str) -> Vec<u8> {
    let assertion = Assertion {
        attribute: attribute.as_bytes(),
        value: value.as_bytes(),
    };
    message(id, Request::Compare(CompareRequest { dn, assertion }))
}

/// The operation that gives an entry another RDN, without the old one's values.
pub fn rename<'a>(dn: &'a str, new_rdn: &'a str) -> Request<'a> {
    Request::ModifyDn(ModifyDnRequest {
        dn,
        new_rdn,
        delete_old_rdn: true,
        new_superior: None,
    })
}
