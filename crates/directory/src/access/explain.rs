//! Why somebody may do something: the rules that were tried, one after the other.

use super::compile::Slot;
use super::condition::{Asked, Condition};
use super::evaluate::Evaluate;
use super::grants::Grants;
use super::met::Met;
use super::single::{ValueTest, text_as_matched};
use crate::engine::EntryId;
use crate::error::Result;
use crate::policy::{ListScope, Rights, Rule, Then};
use crate::schema::{AttributeType, Schema};
use crate::synthetic::{Context, Synthetic};

/// What rules say of somebody, an entry and an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The rights that they give.
    pub rights: Rights,
    /// Whether no rules are asked, as of the administrator.
    pub is_above_rules: bool,
    /// The rules that were tried, in their order, without those of other naming contexts; the last one decided, unless
    /// `is_decided` is false.
    pub tried: Vec<TriedRule>,
    /// Whether a rule decided. Where none does, there are no rights.
    pub is_decided: bool,
}

/// A rule that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedRule {
    /// The list that it stands in.
    pub list: ListScope,
    /// Its place in the list, counted from 0.
    pub number: usize,
    /// The rule.
    pub rule: Rule,
    /// What became of it.
    pub what: Tried,
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It is about other entries.
    OtherEntries,
    /// It is about other attributes.
    OtherAttributes,
    /// It is about other values of the attribute, or about single ones while the attribute as a whole is asked for.
    OtherValues,
    /// These of its clauses, counted from 0, were about who asks; one behind the last is the implied `by * none`.
    Applied(Vec<usize>),
}

impl Grants {
    /// How the rights on a slot of an entry come about, or those on a value in it.
    pub(crate) fn explain<R: Evaluate>(
        &self,
        asked: &Asked<'_, R>,
        slot: Slot,
        value: Option<(&AttributeType, &[u8])>,
    ) -> Result<Explanation> {
        self.explain_met(&Met::new(self, asked), slot, value)
    }

    /// The same on a synthetic entry. Where no rules cover it, everybody may read it.
    pub(crate) fn explain_synthetic<R: Evaluate>(
        &self,
        (view, schema): (&R, &Schema),
        (context, entry): (&Context, &Synthetic),
        slot: Slot,
        value: Option<(&AttributeType, &[u8])>,
    ) -> Result<Explanation> {
        let Some(global) = self.of_synthetic() else {
            return Ok(Explanation {
                rights: match self.is_unlimited() {
                    true => Rights::ALL,
                    false => Rights::UP_TO_READ,
                },
                is_above_rules: self.is_unlimited(),
                tried: Vec::new(),
                is_decided: false,
            });
        };
        let asked = Asked {
            view,
            schema,
            dn: entry.normal_dn(),
            id: EntryId::ROOT,
        };
        let met = Met::of_synthetic(global, &asked, (context, entry));
        global.explain_met(&met, slot, value)
    }

    fn explain_met<R: Evaluate>(
        &self,
        met: &Met<'_, '_, R>,
        slot: Slot,
        value: Option<(&AttributeType, &[u8])>,
    ) -> Result<Explanation> {
        let mut explanation = Explanation {
            rights: Rights::NONE,
            is_above_rules: self.is_unlimited(),
            tried: Vec::new(),
            is_decided: false,
        };
        if self.is_unlimited() {
            explanation.rights = Rights::ALL;
            return Ok(explanation);
        }
        let asked = met.asked;
        let is_self = Some(asked.id) == self.entry;
        let mut rights = Rights::NONE;
        for known in &self.rules {
            if !met.is_in_list(known) {
                continue;
            }
            let mut tried = |what| {
                let written = self.set.written(known.place);
                explanation
                    .tried
                    .extend(written.map(|(list, number, rule)| TriedRule {
                        list: list.clone(),
                        number,
                        rule: rule.clone(),
                        what,
                    }));
            };
            if !known.slots[slot.index()] {
                tried(Tried::OtherAttributes);
                continue;
            }
            let is_of = |test: &ValueTest| {
                value.is_some_and(|(known, value)| test.holds(asked.schema, known, value))
            };
            let test = known.values.and_then(|test| self.set.value_tests.get(test));
            if !test.is_none_or(is_of) {
                tried(Tried::OtherValues);
                continue;
            }
            if !met.is_about(known)? {
                tried(Tried::OtherEntries);
                continue;
            }
            let mut applied = Vec::new();
            let mut then = Then::Continue;
            for clause in &known.clauses {
                let meets = |need: &Condition| {
                    value.is_some_and(|(known, value)| {
                        let text = text_as_matched(asked.schema, known, value);
                        need.holds_for_value(asked.schema, &text)
                    })
                };
                if !met.is_meant(clause, is_self)? || !clause.of_value.iter().all(meets) {
                    continue;
                }
                rights = clause.grant.after(rights);
                applied.push(clause.number);
                then = clause.then;
                if then != Then::Continue {
                    break;
                }
            }
            tried(Tried::Applied(applied));
            if then == Then::Stop {
                explanation.rights = rights;
                explanation.is_decided = true;
                return Ok(explanation);
            }
        }
        Ok(explanation)
    }
}
