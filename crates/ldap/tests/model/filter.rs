//! The mirror of a filter.

use ldap_parser::filter as peer_filter;
use sapwood_ldap::ber;
use sapwood_ldap::filter::{self, ExtensibleMatch, Filter, FilterView, SubstringPart};

use super::{Bytes, text};

#[derive(Debug, Clone, PartialEq)]
pub enum FilterModel {
    And(Vec<FilterModel>),
    Or(Vec<FilterModel>),
    Not(Box<FilterModel>),
    Equality(String, Bytes),
    Substrings(String, Option<Bytes>, Vec<Bytes>, Option<Bytes>),
    GreaterOrEqual(String, Bytes),
    LessOrEqual(String, Bytes),
    Present(String),
    Approx(String, Bytes),
    Extensible {
        rule: Option<String>,
        attribute: Option<String>,
        value: Bytes,
        dn_attributes: bool,
    },
    Unknown,
}

impl FilterModel {
    pub fn of(filter: Filter<'_>) -> Self {
        let pair = |a: filter::Assertion<'_>| (text(a.attribute), a.value.to_vec());
        match filter.view() {
            FilterView::And(filters) => FilterModel::And(filters.iter().map(Self::of).collect()),
            FilterView::Or(filters) => FilterModel::Or(filters.iter().map(Self::of).collect()),
            FilterView::Not(filter) => FilterModel::Not(Box::new(Self::of(filter))),
            FilterView::EqualityMatch(assertion) => {
                let (attribute, value) = pair(assertion);
                FilterModel::Equality(attribute, value)
            }
            FilterView::GreaterOrEqual(assertion) => {
                let (attribute, value) = pair(assertion);
                FilterModel::GreaterOrEqual(attribute, value)
            }
            FilterView::LessOrEqual(assertion) => {
                let (attribute, value) = pair(assertion);
                FilterModel::LessOrEqual(attribute, value)
            }
            FilterView::ApproxMatch(assertion) => {
                let (attribute, value) = pair(assertion);
                FilterModel::Approx(attribute, value)
            }
            FilterView::Present(attribute) => FilterModel::Present(text(attribute)),
            FilterView::Substrings(substrings) => {
                let (mut initial, mut any, mut last) = (None, Vec::new(), None);
                for part in substrings.parts() {
                    match part {
                        SubstringPart::Initial(octets) => initial = Some(octets.to_vec()),
                        SubstringPart::Any(octets) => any.push(octets.to_vec()),
                        SubstringPart::Final(octets) => last = Some(octets.to_vec()),
                    }
                }
                FilterModel::Substrings(text(substrings.attribute), initial, any, last)
            }
            FilterView::ExtensibleMatch(matched) => FilterModel::Extensible {
                rule: matched.rule.map(text),
                attribute: matched.attribute.map(text),
                value: matched.value.to_vec(),
                dn_attributes: matched.dn_attributes,
            },
            FilterView::Unknown => FilterModel::Unknown,
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            FilterModel::And(filters) => {
                let and = filter::open_and(out);
                filters.iter().for_each(|filter| filter.write(out));
                ber::close(out, and);
            }
            FilterModel::Or(filters) => {
                let or = filter::open_or(out);
                filters.iter().for_each(|filter| filter.write(out));
                ber::close(out, or);
            }
            FilterModel::Not(filter) => {
                let not = filter::open_not(out);
                filter.write(out);
                ber::close(out, not);
            }
            FilterModel::Equality(attribute, value) => {
                filter::put_equality_match(out, attribute.as_bytes(), value)
            }
            FilterModel::GreaterOrEqual(attribute, value) => {
                filter::put_greater_or_equal(out, attribute.as_bytes(), value);
            }
            FilterModel::LessOrEqual(attribute, value) => {
                filter::put_less_or_equal(out, attribute.as_bytes(), value);
            }
            FilterModel::Approx(attribute, value) => {
                filter::put_approx_match(out, attribute.as_bytes(), value)
            }
            FilterModel::Present(attribute) => filter::put_present(out, attribute.as_bytes()),
            FilterModel::Substrings(attribute, initial, any, last) => {
                let parts = (initial.iter().map(|octets| SubstringPart::Initial(octets)))
                    .chain(any.iter().map(|octets| SubstringPart::Any(octets)))
                    .chain(last.iter().map(|octets| SubstringPart::Final(octets)));
                filter::put_substrings(out, attribute.as_bytes(), parts);
            }
            FilterModel::Extensible {
                rule,
                attribute,
                value,
                dn_attributes,
            } => {
                let matched = ExtensibleMatch {
                    rule: rule.as_ref().map(String::as_bytes),
                    attribute: attribute.as_ref().map(String::as_bytes),
                    value,
                    dn_attributes: *dn_attributes,
                };
                filter::put_extensible_match(out, &matched);
            }
            FilterModel::Unknown => out.extend_from_slice(&[ber::context(20), 0]),
        }
    }

    pub fn of_peer(filter: &peer_filter::Filter<'_>) -> Self {
        use peer_filter::{Filter as Peer, Substring};
        let pair = |a: &peer_filter::AttributeValueAssertion<'_>| {
            (
                a.attribute_desc.0.clone().into_owned(),
                a.assertion_value.to_vec(),
            )
        };
        match filter {
            Peer::And(filters) => FilterModel::And(filters.iter().map(Self::of_peer).collect()),
            Peer::Or(filters) => FilterModel::Or(filters.iter().map(Self::of_peer).collect()),
            Peer::Not(filter) => FilterModel::Not(Box::new(Self::of_peer(filter))),
            Peer::EqualityMatch(assertion) => {
                let (attribute, value) = pair(assertion);
                FilterModel::Equality(attribute, value)
            }
            Peer::GreaterOrEqual(assertion) => {
                let (attribute, value) = pair(assertion);
                FilterModel::GreaterOrEqual(attribute, value)
            }
            Peer::LessOrEqual(assertion) => {
                let (attribute, value) = pair(assertion);
                FilterModel::LessOrEqual(attribute, value)
            }
            Peer::ApproxMatch(assertion) => {
                let (attribute, value) = pair(assertion);
                FilterModel::Approx(attribute, value)
            }
            Peer::Present(attribute) => FilterModel::Present(attribute.0.clone().into_owned()),
            Peer::Substrings(substrings) => {
                let (mut initial, mut any, mut last) = (None, Vec::new(), None);
                for part in &substrings.substrings {
                    match part {
                        Substring::Initial(value) => initial = Some(value.0.to_vec()),
                        Substring::Any(value) => any.push(value.0.to_vec()),
                        Substring::Final(value) => last = Some(value.0.to_vec()),
                    }
                }
                FilterModel::Substrings(
                    substrings.filter_type.0.clone().into_owned(),
                    initial,
                    any,
                    last,
                )
            }
            Peer::ExtensibleMatch(matched) => FilterModel::Extensible {
                rule: matched
                    .matching_rule
                    .as_ref()
                    .map(|rule| rule.0.clone().into_owned()),
                attribute: matched
                    .rule_type
                    .as_ref()
                    .map(|attribute| attribute.0.clone().into_owned()),
                value: matched.assertion_value.0.to_vec(),
                dn_attributes: matched.dn_attributes.unwrap_or(false),
            },
        }
    }
}
