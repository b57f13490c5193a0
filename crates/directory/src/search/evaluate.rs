//! Evaluating a filter on an entry, in place (RFC 4511 §4.5.1.7).

use std::cmp::Ordering;

use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::OctetStrings;

use crate::engine::{AttributeNo, Read};
use crate::entry::{Damaged, Entry};
use crate::error::Result;
use crate::schema::{MatchingRule, Schema};
use crate::search::candidate::Candidate;
use crate::search::filter::{DnTypes, Item, Node, Stored, Target, Test, Truth, fits};

/// From this many numbers on (a supertype such as `name`, or all attributes of a rule) an entry's attributes are looked
/// up among the numbers instead of the other way round.
const NUMBERS_TO_LOOK_UP_MAX: usize = 4;

/// Evaluates filters, keeping its buffers.
pub(crate) struct Evaluator<'e> {
    schema: &'e Schema,
    subschema_dn: &'e str,
    normal: Vec<u8>,
    text: String,
}

impl<'e> Evaluator<'e> {
    /// For entries governed by this schema, published under this DN.
    pub(crate) fn new(schema: &'e Schema, subschema_dn: &'e str) -> Evaluator<'e> {
        Evaluator {
            schema,
            subschema_dn,
            normal: Vec::new(),
            text: String::new(),
        }
    }

    /// Whether a candidate matches.
    pub(crate) fn evaluate<R: Read>(
        &mut self,
        node: &Node,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Truth> {
        match node {
            Node::Constant(truth) => Ok(*truth),
            Node::Item(item) => self.item(item, candidate),
            Node::Not(node) => Ok(!self.evaluate(node, candidate)?),
            Node::And(nodes) => {
                let mut all = Truth::True;
                for node in nodes {
                    all = all.min(self.evaluate(node, candidate)?);
                    if all == Truth::False {
                        break;
                    }
                }
                Ok(all)
            }
            Node::Or(nodes) => {
                let mut any = Truth::False;
                for node in nodes {
                    any = any.max(self.evaluate(node, candidate)?);
                    if any == Truth::True {
                        break;
                    }
                }
                Ok(any)
            }
        }
    }

    fn item<R: Read>(&mut self, item: &Item, candidate: &mut Candidate<'_, R>) -> Result<Truth> {
        let matches = match &item.target {
            Target::Computed(computed) => {
                let mut text = std::mem::take(&mut self.text);
                let present = candidate.computed(*computed, self.subschema_dn, &mut text)?;
                let matches = present && self.value_matches(&item.test, text.as_bytes());
                self.text = text;
                matches
            }
            Target::Stored(stored) => self.stored(stored, &item.test, candidate)?,
        };
        Ok(if matches { Truth::True } else { Truth::False })
    }

    fn stored<R: Read>(
        &mut self,
        stored: &Stored,
        test: &Test,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<bool> {
        let in_entry = self.record(candidate.entry(), &stored.user, test);
        if in_entry.map_err(|damaged| candidate.damaged(damaged))? {
            return Ok(true);
        }
        if !stored.operational.is_empty() {
            let found = self.record(&candidate.operational()?, &stored.operational, test);
            if found.map_err(|damaged| candidate.damaged(damaged))? {
                return Ok(true);
            }
        }
        Ok(match &stored.in_dn {
            Some(types) => self.in_dn(types, test, candidate),
            None => false,
        })
    }

    #[inline]
    fn record(
        &mut self,
        record: &Entry<'_>,
        numbers: &[AttributeNo],
        test: &Test,
    ) -> std::result::Result<bool, Damaged> {
        if numbers.len() <= NUMBERS_TO_LOOK_UP_MAX {
            for number in numbers {
                if let Some(attribute) = record.attribute(*number)?
                    && self.values_match(test, attribute.values())
                {
                    return Ok(true);
                }
            }
        } else {
            for attribute in record.attributes() {
                let attribute = attribute?;
                if numbers.contains(&attribute.number())
                    && self.values_match(test, attribute.values())
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn values_match(&mut self, test: &Test, values: OctetStrings<'_>) -> bool {
        matches!(test, Test::Present) || values.iter().any(|value| self.value_matches(test, value))
    }

    fn value_matches(&mut self, test: &Test, value: &[u8]) -> bool {
        let (schema, normal) = (self.schema, &mut self.normal);
        match test {
            Test::Present => true,
            Test::Equal(assertion) => assertion.matches(schema, value, normal),
            Test::AtLeast(assertion) => assertion
                .compare(schema, value, normal)
                .is_some_and(Ordering::is_ge),
            Test::AtMost(assertion) => assertion
                .compare(schema, value, normal)
                .is_some_and(Ordering::is_le),
            Test::Before(assertion) => assertion
                .compare(schema, value, normal)
                .is_some_and(Ordering::is_lt),
            Test::Substrings(pattern) => pattern.matches(schema, value, normal),
        }
    }

    fn in_dn<R: Read>(
        &mut self,
        types: &DnTypes,
        test: &Test,
        candidate: &Candidate<'_, R>,
    ) -> bool {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        candidate.append_dn(&mut text);
        let found = Dn::parse(&text).is_ok_and(|dn| {
            dn.rdns().flat_map(|rdn| rdn.avas()).any(|ava| {
                let Some(attribute_type) = self.schema.attribute_type(ava.attribute().as_bytes())
                else {
                    return false;
                };
                let counts = match types {
                    DnTypes::Of(wanted) => attribute_type.is_subtype_of(*wanted),
                    DnTypes::Any => rule_of(test).is_some_and(|rule| fits(rule, attribute_type)),
                };
                counts && self.value_matches(test, &ava.value())
            })
        });
        self.text = text;
        found
    }
}

fn rule_of(test: &Test) -> Option<&'static MatchingRule> {
    match test {
        Test::Present => None,
        Test::Equal(assertion)
        | Test::AtLeast(assertion)
        | Test::AtMost(assertion)
        | Test::Before(assertion) => Some(assertion.rule()),
        Test::Substrings(pattern) => Some(pattern.rule()),
    }
}
