//! Owned mirrors of LDAP messages: generated at random, written by the codec, and read back both by the codec and by
//! another implementation, `ldap-parser`.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod filter;

use ldap_parser::FromBer;
use ldap_parser::ldap as peer;
use sapwood_ldap::controls::{Control, Controls, ControlsBuf};
use sapwood_ldap::filter::{Assertion, Filter};
use sapwood_ldap::list::{
    Attributes, AttributesBuf, ChangeKind, Changes, ChangesBuf, OctetStrings, OctetStringsBuf,
};
use sapwood_ldap::message::*;
use sapwood_ldap::result::{LdapResult, ResultCode};

pub use filter::FilterModel;

pub type Bytes = Vec<u8>;
pub type AttributeModel = (String, Vec<Bytes>);

#[derive(Debug, Clone, PartialEq)]
pub struct MessageModel {
    pub id: u32,
    pub op: OpModel,
    pub controls: Vec<(String, bool, Option<Bytes>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum OpModel {
    Bind {
        version: u8,
        name: String,
        password: Bytes,
    },
    SaslBind {
        version: u8,
        name: String,
        mechanism: String,
        credentials: Option<Bytes>,
    },
    Unbind,
    Search(SearchModel),
    Modify {
        dn: String,
        changes: Vec<(u8, AttributeModel)>,
    },
    Add {
        dn: String,
        attributes: Vec<AttributeModel>,
    },
    Delete(String),
    ModifyDn {
        dn: String,
        new_rdn: String,
        delete_old_rdn: bool,
        new_superior: Option<String>,
    },
    Compare {
        dn: String,
        attribute: String,
        value: Bytes,
    },
    Abandon(u32),
    Extended {
        name: String,
        value: Option<Bytes>,
    },
    BindDone {
        result: ResultModel,
        credentials: Option<Bytes>,
    },
    Entry {
        dn: String,
        attributes: Vec<AttributeModel>,
    },
    Reference(Vec<String>),
    SearchDone(ResultModel),
    ModifyDone(ResultModel),
    AddDone(ResultModel),
    DeleteDone(ResultModel),
    ModifyDnDone(ResultModel),
    CompareDone(ResultModel),
    ExtendedDone {
        result: ResultModel,
        name: Option<String>,
        value: Option<Bytes>,
    },
    Intermediate {
        name: Option<String>,
        value: Option<Bytes>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct SearchModel {
    pub base: String,
    pub scope: u8,
    pub deref_aliases: u8,
    pub size_limit: u32,
    pub time_limit: u32,
    pub types_only: bool,
    pub filter: FilterModel,
    pub attributes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResultModel {
    pub code: u32,
    pub matched_dn: String,
    pub diagnostic: String,
    pub referral: Option<Vec<String>>,
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn texts(list: OctetStrings<'_>) -> Vec<String> {
    list.iter().map(text).collect()
}

fn list(strings: &[String]) -> OctetStringsBuf {
    strings.iter().collect()
}

fn as_slices(values: &[Bytes]) -> impl Iterator<Item = &[u8]> {
    values.iter().map(Vec::as_slice)
}

fn attributes_buf(attributes: &[AttributeModel]) -> AttributesBuf {
    let mut buf = AttributesBuf::default();
    for (description, values) in attributes {
        buf.push(description.as_bytes(), as_slices(values));
    }
    buf
}

fn attributes(attributes: Attributes<'_>) -> Vec<AttributeModel> {
    let values = |values: OctetStrings<'_>| values.iter().map(<[u8]>::to_vec).collect();
    attributes
        .iter()
        .map(|attribute| (text(attribute.description), values(attribute.values)))
        .collect()
}

fn changes(changes: Changes<'_>) -> Vec<(u8, AttributeModel)> {
    let one = |change: sapwood_ldap::list::Change<'_>| {
        let values = change.attribute.values.iter().map(<[u8]>::to_vec).collect();
        (
            change.kind.number(),
            (text(change.attribute.description), values),
        )
    };
    changes.iter().map(one).collect()
}

fn controls(controls: Controls<'_>) -> Vec<(String, bool, Option<Bytes>)> {
    controls
        .iter()
        .map(|c| (c.oid.to_owned(), c.critical, c.value.map(<[u8]>::to_vec)))
        .collect()
}

fn result(result: &LdapResult<'_>) -> ResultModel {
    ResultModel {
        code: result.code.code(),
        matched_dn: result.matched_dn.to_owned(),
        diagnostic: result.diagnostic.to_owned(),
        referral: result.referral.map(texts),
    }
}

impl MessageModel {
    /// What the codec reads in a message.
    pub fn read(message: &[u8]) -> Option<Self> {
        RequestMessage::decode(message)
            .map(|message| Self::of_request(&message))
            .or_else(|_| {
                ResponseMessage::decode(message).map(|message| Self::of_response(&message))
            })
            .ok()
    }

    pub fn of_request(message: &RequestMessage<'_>) -> Self {
        let op = match message.op {
            Request::Bind(bind) => {
                let (version, name) = (bind.version, bind.name.to_owned());
                match bind.authentication {
                    Authentication::Simple(password) => OpModel::Bind {
                        version,
                        name,
                        password: password.to_vec(),
                    },
                    Authentication::Sasl {
                        mechanism,
                        credentials,
                    } => OpModel::SaslBind {
                        version,
                        name,
                        mechanism: mechanism.to_owned(),
                        credentials: credentials.map(<[u8]>::to_vec),
                    },
                }
            }
            Request::Unbind => OpModel::Unbind,
            Request::Search(search) => OpModel::Search(SearchModel {
                base: search.base.to_owned(),
                scope: search.scope.number(),
                deref_aliases: search.deref_aliases.number(),
                size_limit: search.size_limit,
                time_limit: search.time_limit,
                types_only: search.types_only,
                filter: FilterModel::of(search.filter),
                attributes: texts(search.attributes),
            }),
            Request::Modify(modify) => OpModel::Modify {
                dn: modify.dn.to_owned(),
                changes: changes(modify.changes),
            },
            Request::Add(add) => OpModel::Add {
                dn: add.dn.to_owned(),
                attributes: attributes(add.attributes),
            },
            Request::Delete(dn) => OpModel::Delete(dn.to_owned()),
            Request::ModifyDn(rename) => OpModel::ModifyDn {
                dn: rename.dn.to_owned(),
                new_rdn: rename.new_rdn.to_owned(),
                delete_old_rdn: rename.delete_old_rdn,
                new_superior: rename.new_superior.map(str::to_owned),
            },
            Request::Compare(compare) => OpModel::Compare {
                dn: compare.dn.to_owned(),
                attribute: text(compare.assertion.attribute),
                value: compare.assertion.value.to_vec(),
            },
            Request::Abandon(id) => OpModel::Abandon(id),
            Request::Extended(extended) => OpModel::Extended {
                name: extended.name.to_owned(),
                value: extended.value.map(<[u8]>::to_vec),
            },
        };
        MessageModel {
            id: message.id,
            op,
            controls: controls(message.controls),
        }
    }

    pub fn of_response(message: &ResponseMessage<'_>) -> Self {
        let op = match &message.op {
            Response::Bind(bind) => OpModel::BindDone {
                result: result(&bind.result),
                credentials: bind.server_sasl_credentials.map(<[u8]>::to_vec),
            },
            Response::SearchEntry(entry) => OpModel::Entry {
                dn: entry.dn.to_owned(),
                attributes: attributes(entry.attributes),
            },
            Response::SearchReference(uris) => OpModel::Reference(texts(*uris)),
            Response::SearchDone(done) => OpModel::SearchDone(result(done)),
            Response::Modify(done) => OpModel::ModifyDone(result(done)),
            Response::Add(done) => OpModel::AddDone(result(done)),
            Response::Delete(done) => OpModel::DeleteDone(result(done)),
            Response::ModifyDn(done) => OpModel::ModifyDnDone(result(done)),
            Response::Compare(done) => OpModel::CompareDone(result(done)),
            Response::Extended(extended) => OpModel::ExtendedDone {
                result: result(&extended.result),
                name: extended.name.map(str::to_owned),
                value: extended.value.map(<[u8]>::to_vec),
            },
            Response::Intermediate(response) => OpModel::Intermediate {
                name: response.name.map(str::to_owned),
                value: response.value.map(<[u8]>::to_vec),
            },
        };
        MessageModel {
            id: message.id,
            op,
            controls: controls(message.controls),
        }
    }

    /// The message as the codec writes it.
    pub fn write(&self) -> Bytes {
        let mut buf = ControlsBuf::default();
        for (oid, critical, value) in &self.controls {
            buf.push(Control {
                oid,
                critical: *critical,
                value: value.as_deref(),
            });
        }
        let (id, controls) = (self.id, buf.view());
        let mut out = Vec::new();
        let request = |op: Request<'_>, out: &mut Vec<u8>| Message { id, op, controls }.encode(out);
        let response =
            |op: Response<'_>, out: &mut Vec<u8>| Message { id, op, controls }.encode(out);
        let done = |result: &ResultModel, out: &mut Vec<u8>, operation| {
            result.with(|result| response(Response::of_result(operation, result).unwrap(), out));
        };
        match &self.op {
            OpModel::Bind {
                version,
                name,
                password,
            } => {
                let authentication = Authentication::Simple(password);
                request(
                    Request::Bind(BindRequest {
                        version: *version,
                        name,
                        authentication,
                    }),
                    &mut out,
                );
            }
            OpModel::SaslBind {
                version,
                name,
                mechanism,
                credentials,
            } => {
                let authentication = Authentication::Sasl {
                    mechanism,
                    credentials: credentials.as_deref(),
                };
                request(
                    Request::Bind(BindRequest {
                        version: *version,
                        name,
                        authentication,
                    }),
                    &mut out,
                );
            }
            OpModel::Unbind => request(Request::Unbind, &mut out),
            OpModel::Search(search) => {
                let mut filter = Vec::new();
                search.filter.write(&mut filter);
                let attributes = list(&search.attributes);
                let search = SearchRequest {
                    base: &search.base,
                    scope: [
                        Scope::Base,
                        Scope::OneLevel,
                        Scope::Subtree,
                        Scope::Subordinates,
                    ][usize::from(search.scope.min(3))],
                    deref_aliases: [
                        DerefAliases::Never,
                        DerefAliases::InSearching,
                        DerefAliases::FindingBase,
                        DerefAliases::Always,
                    ][usize::from(search.deref_aliases.min(3))],
                    size_limit: search.size_limit,
                    time_limit: search.time_limit,
                    types_only: search.types_only,
                    // A peer may have read a filter that the codec refuses.
                    filter: Filter::from_ber(&filter).unwrap_or(Filter::OBJECT_CLASS_PRESENT),
                    attributes: attributes.view(),
                };
                request(Request::Search(search), &mut out);
            }
            OpModel::Modify { dn, changes } => {
                let mut buf = ChangesBuf::default();
                for (kind, (description, values)) in changes {
                    let kinds = [
                        ChangeKind::Add,
                        ChangeKind::Delete,
                        ChangeKind::Replace,
                        ChangeKind::Increment,
                    ];
                    buf.push(
                        kinds[usize::from((*kind).min(3))],
                        description.as_bytes(),
                        as_slices(values),
                    );
                }
                request(
                    Request::Modify(ModifyRequest {
                        dn,
                        changes: buf.view(),
                    }),
                    &mut out,
                );
            }
            OpModel::Add { dn, attributes } => {
                let attributes = attributes_buf(attributes);
                request(
                    Request::Add(AddRequest {
                        dn,
                        attributes: attributes.view(),
                    }),
                    &mut out,
                );
            }
            OpModel::Delete(dn) => request(Request::Delete(dn), &mut out),
            OpModel::ModifyDn {
                dn,
                new_rdn,
                delete_old_rdn,
                new_superior,
            } => {
                let rename = ModifyDnRequest {
                    dn,
                    new_rdn,
                    delete_old_rdn: *delete_old_rdn,
                    new_superior: new_superior.as_deref(),
                };
                request(Request::ModifyDn(rename), &mut out);
            }
            OpModel::Compare {
                dn,
                attribute,
                value,
            } => {
                let assertion = Assertion {
                    attribute: attribute.as_bytes(),
                    value,
                };
                request(Request::Compare(CompareRequest { dn, assertion }), &mut out);
            }
            OpModel::Abandon(id) => request(Request::Abandon(*id), &mut out),
            OpModel::Extended { name, value } => {
                request(
                    Request::Extended(ExtendedRequest {
                        name,
                        value: value.as_deref(),
                    }),
                    &mut out,
                );
            }
            OpModel::BindDone {
                result,
                credentials,
            } => result.with(|result| {
                let server_sasl_credentials = credentials.as_deref();
                response(
                    Response::Bind(BindResponse {
                        result,
                        server_sasl_credentials,
                    }),
                    &mut out,
                );
            }),
            OpModel::Entry { dn, attributes } => {
                let attributes = attributes_buf(attributes);
                response(
                    Response::SearchEntry(SearchResultEntry {
                        dn,
                        attributes: attributes.view(),
                    }),
                    &mut out,
                );
            }
            OpModel::Reference(uris) => {
                response(Response::SearchReference(list(uris).view()), &mut out)
            }
            OpModel::SearchDone(result) => done(result, &mut out, Operation::Search),
            OpModel::ModifyDone(result) => done(result, &mut out, Operation::Modify),
            OpModel::AddDone(result) => done(result, &mut out, Operation::Add),
            OpModel::DeleteDone(result) => done(result, &mut out, Operation::Delete),
            OpModel::ModifyDnDone(result) => done(result, &mut out, Operation::ModifyDn),
            OpModel::CompareDone(result) => done(result, &mut out, Operation::Compare),
            OpModel::ExtendedDone {
                result,
                name,
                value,
            } => result.with(|result| {
                let (name, value) = (name.as_deref(), value.as_deref());
                response(
                    Response::Extended(ExtendedResponse {
                        result,
                        name,
                        value,
                    }),
                    &mut out,
                );
            }),
            OpModel::Intermediate { name, value } => {
                let (name, value) = (name.as_deref(), value.as_deref());
                response(
                    Response::Intermediate(IntermediateResponse { name, value }),
                    &mut out,
                );
            }
        }
        out
    }

    /// What the peer has read.
    pub fn of_peer(message: &peer::LdapMessage<'_>) -> Self {
        use peer::ProtocolOp;
        let dn = |dn: &peer::LdapDN<'_>| dn.0.clone().into_owned();
        let bytes =
            |value: &Option<std::borrow::Cow<'_, [u8]>>| value.as_deref().map(<[u8]>::to_vec);
        let result = |result: &peer::LdapResult<'_>| ResultModel {
            code: result.result_code.0,
            matched_dn: dn(&result.matched_dn),
            diagnostic: result.diagnostic_message.0.clone().into_owned(),
            referral: None,
        };
        let values = |values: &[ldap_parser::filter::AttributeValue<'_>]| {
            values.iter().map(|value| value.0.to_vec()).collect()
        };
        let op = match &message.protocol_op {
            ProtocolOp::BindRequest(bind) => {
                let (version, name) = (bind.version, dn(&bind.name));
                match &bind.authentication {
                    peer::AuthenticationChoice::Simple(password) => OpModel::Bind {
                        version,
                        name,
                        password: password.to_vec(),
                    },
                    peer::AuthenticationChoice::Sasl(sasl) => OpModel::SaslBind {
                        version,
                        name,
                        mechanism: sasl.mechanism.0.clone().into_owned(),
                        credentials: bytes(&sasl.credentials),
                    },
                }
            }
            ProtocolOp::UnbindRequest => OpModel::Unbind,
            ProtocolOp::SearchRequest(search) => OpModel::Search(SearchModel {
                base: dn(&search.base_object),
                scope: search.scope.0 as u8,
                deref_aliases: search.deref_aliases.0 as u8,
                size_limit: search.size_limit,
                time_limit: search.time_limit,
                types_only: search.types_only,
                filter: FilterModel::of_peer(&search.filter),
                attributes: search
                    .attributes
                    .iter()
                    .map(|a| a.0.clone().into_owned())
                    .collect(),
            }),
            ProtocolOp::ModifyRequest(modify) => OpModel::Modify {
                dn: dn(&modify.object),
                changes: (modify.changes.iter())
                    .map(|change| {
                        let attribute = &change.modification;
                        let description = attribute.attr_type.0.clone().into_owned();
                        (
                            change.operation.0 as u8,
                            (description, values(&attribute.attr_vals)),
                        )
                    })
                    .collect(),
            },
            ProtocolOp::AddRequest(add) => OpModel::Add {
                dn: dn(&add.entry),
                attributes: (add.attributes.iter())
                    .map(|a| (a.attr_type.0.clone().into_owned(), values(&a.attr_vals)))
                    .collect(),
            },
            ProtocolOp::DelRequest(name) => OpModel::Delete(dn(name)),
            ProtocolOp::ModDnRequest(rename) => OpModel::ModifyDn {
                dn: dn(&rename.entry),
                new_rdn: rename.newrdn.0.clone().into_owned(),
                delete_old_rdn: rename.deleteoldrdn,
                new_superior: rename.newsuperior.as_ref().map(dn),
            },
            ProtocolOp::CompareRequest(compare) => OpModel::Compare {
                dn: dn(&compare.entry),
                attribute: compare.ava.attribute_desc.0.clone().into_owned(),
                value: compare.ava.assertion_value.to_vec(),
            },
            ProtocolOp::AbandonRequest(id) => OpModel::Abandon(id.0),
            ProtocolOp::ExtendedRequest(extended) => OpModel::Extended {
                name: extended.request_name.0.clone().into_owned(),
                value: bytes(&extended.request_value),
            },
            ProtocolOp::BindResponse(bind) => OpModel::BindDone {
                result: result(&bind.result),
                credentials: bytes(&bind.server_sasl_creds),
            },
            ProtocolOp::SearchResultEntry(entry) => OpModel::Entry {
                dn: dn(&entry.object_name),
                attributes: (entry.attributes.iter())
                    .map(|a| (a.attr_type.0.clone().into_owned(), values(&a.attr_vals)))
                    .collect(),
            },
            ProtocolOp::SearchResultReference(uris) => {
                OpModel::Reference(uris.iter().map(|uri| uri.0.clone().into_owned()).collect())
            }
            ProtocolOp::SearchResultDone(done) => OpModel::SearchDone(result(done)),
            ProtocolOp::ModifyResponse(done) => OpModel::ModifyDone(result(&done.result)),
            ProtocolOp::AddResponse(done) => OpModel::AddDone(result(done)),
            ProtocolOp::DelResponse(done) => OpModel::DeleteDone(result(done)),
            ProtocolOp::ModDnResponse(done) => OpModel::ModifyDnDone(result(done)),
            ProtocolOp::CompareResponse(done) => OpModel::CompareDone(result(done)),
            ProtocolOp::ExtendedResponse(extended) => OpModel::ExtendedDone {
                result: result(&extended.result),
                name: extended
                    .response_name
                    .as_ref()
                    .map(|name| name.0.clone().into_owned()),
                value: bytes(&extended.response_value),
            },
            ProtocolOp::IntermediateResponse(response) => OpModel::Intermediate {
                name: response
                    .response_name
                    .as_ref()
                    .map(|name| name.0.clone().into_owned()),
                value: bytes(&response.response_value),
            },
        };
        let controls = message.controls.iter().flatten();
        let controls = controls
            .map(|c| {
                (
                    c.control_type.0.clone().into_owned(),
                    c.criticality,
                    bytes(&c.control_value),
                )
            })
            .collect();
        MessageModel {
            id: message.message_id.0,
            op,
            controls,
        }
    }

    /// The message with the referral of its result taken out: the peer does not read it, nor what follows it.
    pub fn without_referral(mut self) -> Self {
        match &mut self.op {
            OpModel::SearchDone(result)
            | OpModel::ModifyDone(result)
            | OpModel::AddDone(result)
            | OpModel::DeleteDone(result)
            | OpModel::ModifyDnDone(result)
            | OpModel::CompareDone(result)
            | OpModel::BindDone { result, .. }
            | OpModel::ExtendedDone { result, .. } => result.referral = None,
            _ => {}
        }
        self
    }
}

/// Panics when the codec and the peer both accept a message and read different things in it.
///
/// The peer silently drops what it cannot read at the end of a list, and referrals. It has dropped nothing when
/// what it has read is written as the very same bytes.
pub fn agree_if_both_accept(message: &[u8]) {
    let Some(ours) = MessageModel::read(message) else {
        return;
    };
    let Ok((&[], theirs)) = peer::LdapMessage::from_ber(message) else {
        return;
    };
    let theirs = MessageModel::of_peer(&theirs);
    if theirs.write() == message {
        assert_eq!(ours, theirs, "{}", message.escape_ascii());
    }
}

impl ResultModel {
    fn with(&self, use_it: impl FnOnce(LdapResult<'_>)) {
        let uris = self.referral.as_deref().map(list);
        use_it(LdapResult {
            code: ResultCode::from(self.code),
            matched_dn: &self.matched_dn,
            diagnostic: &self.diagnostic,
            referral: uris.as_ref().map(OctetStringsBuf::view),
        });
    }
}
