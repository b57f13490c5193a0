//! What is asked of both servers.

use std::fmt;

use sapwood_ldap::controls::MANAGE_DSA_IT;
use sapwood_ldap::filter::{
    Assertion, ExtensibleMatch, Filter, SubstringPart, open_and, open_not, open_or,
    put_approx_match, put_equality_match, put_extensible_match, put_greater_or_equal,
    put_less_or_equal, put_present, put_substrings,
};
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf, OctetStringsBuf};
use sapwood_ldap::message::{
    AddRequest, CompareRequest, DerefAliases, ModifyDnRequest, ModifyRequest, Request, Scope,
    SearchRequest,
};
use sapwood_ldap::{ber, ldif};
use sapwood_testkit::Client;

use super::answer::Answer;

/// Attributes with their values.
pub(crate) type Values = Vec<(String, Vec<Vec<u8>>)>;

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Search {
        base: String,
        scope: Scope,
        deref_aliases: DerefAliases,
        size_limit: u32,
        types_only: bool,
        filter: Term,
        attributes: Vec<String>,
        manage_dsa_it: bool,
    },
    Compare {
        dn: String,
        attribute: String,
        value: Vec<u8>,
        manage_dsa_it: bool,
    },
    Add {
        dn: String,
        attributes: Values,
        manage_dsa_it: bool,
    },
    Modify {
        dn: String,
        changes: Vec<(ChangeKind, String, Vec<Vec<u8>>)>,
        manage_dsa_it: bool,
    },
    ModifyDn {
        dn: String,
        new_rdn: String,
        delete_old_rdn: bool,
        new_superior: Option<String>,
        manage_dsa_it: bool,
    },
    Delete {
        dn: String,
        manage_dsa_it: bool,
    },
}

/// A filter that may be well-formed or not in its attributes, rules and values.
#[derive(Debug, Clone)]
pub(crate) enum Term {
    And(Vec<Term>),
    Or(Vec<Term>),
    Not(Box<Term>),
    Equal(String, Vec<u8>),
    GreaterOrEqual(String, Vec<u8>),
    LessOrEqual(String, Vec<u8>),
    Approximate(String, Vec<u8>),
    Present(String),
    Substrings(String, Option<Vec<u8>>, Vec<Vec<u8>>, Option<Vec<u8>>),
    Extensible {
        rule: Option<String>,
        attribute: Option<String>,
        value: Vec<u8>,
        dn_attributes: bool,
    },
}

impl Operation {
    /// Everything below `base`, with the operational attributes that both servers know alike.
    pub(crate) fn whole_tree(base: &str) -> Operation {
        Operation::Search {
            base: base.to_owned(),
            scope: Scope::Subtree,
            deref_aliases: DerefAliases::Never,
            size_limit: 0,
            types_only: false,
            filter: Term::Present("objectClass".to_owned()),
            attributes: ["*", "structuralObjectClass", "hasSubordinates"]
                .map(str::to_owned)
                .to_vec(),
            manage_dsa_it: true,
        }
    }

    /// The adds that make the entries of an LDIF file.
    pub(crate) fn adds(text: &str) -> Vec<Operation> {
        let adds = Operation::changes(text);
        assert!(
            adds.iter()
                .all(|operation| matches!(operation, Operation::Add { .. }))
        );
        adds
    }

    /// The records of an LDIF file; an entry is added, with ManageDsaIT.
    pub(crate) fn changes(text: &str) -> Vec<Operation> {
        let block = ldif::Block::new(text.as_bytes().to_vec());
        block
            .records(ldif::Options::default())
            .map(|record| Operation::of_record(record.unwrap()))
            .collect()
    }

    fn of_record(record: ldif::Record<'_>) -> Operation {
        let dn = record.dn.into_owned();
        let manage_dsa_it = record
            .controls
            .iter()
            .any(|control| control.oid == MANAGE_DSA_IT);
        match record.body {
            ldif::Body::Entry(values) => Operation::Add {
                dn,
                attributes: grouped(values),
                manage_dsa_it: true,
            },
            ldif::Body::Add(values) => Operation::Add {
                dn,
                attributes: grouped(values),
                manage_dsa_it,
            },
            ldif::Body::Delete => Operation::Delete { dn, manage_dsa_it },
            ldif::Body::Modify(modifications) => {
                let change = |modification: ldif::Modification<'_>| {
                    let kind = match modification.kind {
                        ldif::ModificationKind::Add => ChangeKind::Add,
                        ldif::ModificationKind::Delete => ChangeKind::Delete,
                        ldif::ModificationKind::Replace => ChangeKind::Replace,
                        ldif::ModificationKind::Increment => ChangeKind::Increment,
                    };
                    let values = modification
                        .values
                        .into_iter()
                        .map(|value| value.into_owned());
                    (
                        kind,
                        modification.description.into_owned(),
                        values.collect(),
                    )
                };
                Operation::Modify {
                    dn,
                    changes: modifications.into_iter().map(change).collect(),
                    manage_dsa_it,
                }
            }
            ldif::Body::ModifyDn {
                new_rdn,
                delete_old_rdn,
                new_superior,
            } => Operation::ModifyDn {
                dn,
                new_rdn: new_rdn.into_owned(),
                delete_old_rdn,
                new_superior: new_superior.map(|name| name.into_owned()),
                manage_dsa_it,
            },
        }
    }

    /// The distinguished names in it.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Operation::Search { base, .. } => vec![base],
            Operation::ModifyDn {
                dn,
                new_rdn,
                new_superior,
                ..
            } => [dn, new_rdn]
                .into_iter()
                .chain(new_superior)
                .map(String::as_str)
                .collect(),
            Operation::Compare { dn, .. }
            | Operation::Add { dn, .. }
            | Operation::Modify { dn, .. }
            | Operation::Delete { dn, .. } => vec![dn],
        }
    }

    pub(crate) fn manage_dsa_it(&self) -> bool {
        match self {
            Operation::Search { manage_dsa_it, .. }
            | Operation::Compare { manage_dsa_it, .. }
            | Operation::Add { manage_dsa_it, .. }
            | Operation::Modify { manage_dsa_it, .. }
            | Operation::ModifyDn { manage_dsa_it, .. }
            | Operation::Delete { manage_dsa_it, .. } => *manage_dsa_it,
        }
    }

    /// The same search without its size limit, if it has one.
    pub(crate) fn without_size_limit(&self) -> Option<Operation> {
        let mut unlimited = self.clone();
        match &mut unlimited {
            Operation::Search { size_limit, .. } if *size_limit > 0 => *size_limit = 0,
            _ => return None,
        }
        Some(unlimited)
    }

    /// Asks, and collects the whole answer.
    pub(crate) fn ask(&self, client: &mut Client) -> Answer {
        let manage_dsa_it = [(MANAGE_DSA_IT, true, None)];
        let controls: &[_] = if self.manage_dsa_it() {
            &manage_dsa_it
        } else {
            &[]
        };
        let mut answers = Vec::new();
        self.with_request(|request| answers = client.ask_all(request, controls));
        Answer::of(answers)
    }

    /// Calls `then` with the operation as a request.
    fn with_request(&self, then: impl FnOnce(Request<'_>)) {
        match self {
            Operation::Search {
                base,
                scope,
                deref_aliases,
                size_limit,
                types_only,
                filter,
                attributes,
                ..
            } => {
                let filter = filter.to_ber();
                let mut list = OctetStringsBuf::default();
                attributes
                    .iter()
                    .for_each(|attribute| list.push(attribute.as_bytes()));
                then(Request::Search(SearchRequest {
                    base,
                    scope: *scope,
                    deref_aliases: *deref_aliases,
                    size_limit: *size_limit,
                    time_limit: 0,
                    types_only: *types_only,
                    filter: Filter::from_ber(&filter).unwrap(),
                    attributes: list.view(),
                }));
            }
            Operation::Compare {
                dn,
                attribute,
                value,
                ..
            } => {
                let assertion = Assertion {
                    attribute: attribute.as_bytes(),
                    value,
                };
                then(Request::Compare(CompareRequest { dn, assertion }));
            }
            Operation::Add { dn, attributes, .. } => {
                let mut list = AttributesBuf::default();
                for (description, values) in attributes {
                    list.push(description.as_bytes(), values.iter().map(Vec::as_slice));
                }
                then(Request::Add(AddRequest {
                    dn,
                    attributes: list.view(),
                }));
            }
            Operation::Modify { dn, changes, .. } => {
                let mut list = ChangesBuf::default();
                for (kind, description, values) in changes {
                    list.push(
                        *kind,
                        description.as_bytes(),
                        values.iter().map(Vec::as_slice),
                    );
                }
                then(Request::Modify(ModifyRequest {
                    dn,
                    changes: list.view(),
                }));
            }
            Operation::ModifyDn {
                dn,
                new_rdn,
                delete_old_rdn,
                new_superior,
                ..
            } => {
                let new_superior = new_superior.as_deref();
                then(Request::ModifyDn(ModifyDnRequest {
                    dn,
                    new_rdn,
                    delete_old_rdn: *delete_old_rdn,
                    new_superior,
                }));
            }
            Operation::Delete { dn, .. } => then(Request::Delete(dn)),
        }
    }
}

/// The values of a record, those of each attribute together.
fn grouped(values: Vec<ldif::AttributeValue<'_>>) -> Values {
    let mut attributes: Values = Vec::new();
    for value in values {
        match attributes
            .iter_mut()
            .find(|(description, _)| *description == value.description)
        {
            Some((_, values)) => values.push(value.value.into_owned()),
            None => attributes.push((
                value.description.into_owned(),
                vec![value.value.into_owned()],
            )),
        }
    }
    attributes
}

impl Term {
    pub(crate) fn to_ber(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Term::And(terms) => {
                let level = open_and(out);
                terms.iter().for_each(|term| term.encode(out));
                ber::close(out, level);
            }
            Term::Or(terms) => {
                let level = open_or(out);
                terms.iter().for_each(|term| term.encode(out));
                ber::close(out, level);
            }
            Term::Not(term) => {
                let level = open_not(out);
                term.encode(out);
                ber::close(out, level);
            }
            Term::Equal(attribute, value) => put_equality_match(out, attribute.as_bytes(), value),
            Term::GreaterOrEqual(attribute, value) => {
                put_greater_or_equal(out, attribute.as_bytes(), value)
            }
            Term::LessOrEqual(attribute, value) => {
                put_less_or_equal(out, attribute.as_bytes(), value)
            }
            Term::Approximate(attribute, value) => {
                put_approx_match(out, attribute.as_bytes(), value)
            }
            Term::Present(attribute) => put_present(out, attribute.as_bytes()),
            Term::Substrings(attribute, initial, any, last) => {
                let initial = initial.iter().map(|part| SubstringPart::Initial(part));
                let any = any.iter().map(|part| SubstringPart::Any(part));
                let last = last.iter().map(|part| SubstringPart::Final(part));
                put_substrings(out, attribute.as_bytes(), initial.chain(any).chain(last));
            }
            Term::Extensible {
                rule,
                attribute,
                value,
                dn_attributes,
            } => {
                let rule = rule.as_deref().map(str::as_bytes);
                let attribute = attribute.as_deref().map(str::as_bytes);
                let matched = ExtensibleMatch {
                    rule,
                    attribute,
                    value,
                    dn_attributes: *dn_attributes,
                };
                put_extensible_match(out, &matched);
            }
        }
    }

    /// Whether `found` is true of the term or of one below it.
    pub(crate) fn any(&self, found: &dyn Fn(&Term) -> bool) -> bool {
        let below = match self {
            Term::And(terms) | Term::Or(terms) => terms.iter().any(|term| term.any(found)),
            Term::Not(term) => term.any(found),
            _ => false,
        };
        below || found(self)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Filter::from_ber(&self.to_ber()).unwrap().fmt(f)
    }
}

/// As one would type it.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Search {
                base,
                scope,
                deref_aliases,
                size_limit,
                types_only,
                filter,
                attributes,
                ..
            } => write!(
                f,
                "search {base:?} {scope:?} deref={deref_aliases:?} limit={size_limit} types_only={types_only} '{filter}' {attributes:?}"
            )?,
            Operation::Compare {
                dn,
                attribute,
                value,
                ..
            } => {
                write!(f, "compare {dn:?} {attribute}={}", value.escape_ascii())?;
            }
            Operation::Add { dn, attributes, .. } => {
                write!(f, "add {dn:?}")?;
                attributes
                    .iter()
                    .try_for_each(|(description, values)| write_values(f, description, values))?;
            }
            Operation::Modify { dn, changes, .. } => {
                write!(f, "modify {dn:?}")?;
                for (kind, description, values) in changes {
                    write!(f, " {kind:?}")?;
                    write_values(f, description, values)?;
                }
            }
            Operation::ModifyDn {
                dn,
                new_rdn,
                delete_old_rdn,
                new_superior,
                ..
            } => write!(
                f,
                "modify DN {dn:?} to {new_rdn:?} deleteoldrdn={delete_old_rdn} newsuperior={new_superior:?}"
            )?,
            Operation::Delete { dn, .. } => write!(f, "delete {dn:?}")?,
        }
        f.write_str(if self.manage_dsa_it() {
            " manageDSAit"
        } else {
            ""
        })
    }
}

fn write_values(f: &mut fmt::Formatter<'_>, description: &str, values: &[Vec<u8>]) -> fmt::Result {
    let values: Vec<String> = values
        .iter()
        .map(|value| value.escape_ascii().to_string())
        .collect();
    write!(f, " {description}={values:?}")
}
