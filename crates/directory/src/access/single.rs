//! Rules about single values of an attribute (`val`), and what they grant on one.
//!
//! Most rights are those on all values of an attribute. Only where a rule that looks at values covers an entry, the
//! rights on each value are found by themselves. Who asks for an attribute as a whole, such as whether it is there, is
//! not asking for one of its values: then such rules are passed over, as in slapd.

use std::sync::Arc;

use super::compile::Slot;
use super::condition::Condition;
use super::values::text_of;
use crate::policy::entry_test::EntryTest;
use crate::policy::regex::Regex;
use crate::policy::{Attributes, DnPattern, DnScope, Grant, Rights, Then, What};
use crate::schema::{Assertion, AttributeType, MatchingRule, NormalDn, RuleKind, Schema};

/// The most rules of a directory that look at values: each value may be tried with all of them.
pub(super) const VALUE_RULES_MAX: usize = 100;
/// Work of trying a value, and of trying each of its bytes, about one unit a nanosecond.
const VALUE_WORK: u64 = 200;
const BYTE_WORK: u64 = 8;

/// The syntax DN.
const DN: &str = "1.3.6.1.4.1.1466.115.121.1.12";

/// What a rule asks of a value.
#[derive(Debug)]
pub(super) enum ValueTest {
    /// It is equal.
    Equal(Assertion),
    /// It is a DN that stands so to another one.
    Dn(EntryTest),
    /// Its normal form matches.
    Matches(Arc<Regex>),
}

impl ValueTest {
    /// What a rule asks of the values of its attribute; `None` if it does not look at them.
    pub(super) fn new(schema: &Schema, what: &What) -> Result<Option<ValueTest>, String> {
        let Some(pattern) = &what.values else {
            return Ok(None);
        };
        let [Attributes::Type(name)] = &what.attributes[..] else {
            return Err("val is about values of one attribute".into());
        };
        let known = schema.attribute_type(name.as_bytes());
        let known = known.ok_or_else(|| {
            format!("there is no attribute type {name:?}, of whose values val could be")
        })?;
        if schema.is_protected(known.id()) {
            return Err(format!(
                "val is not for {name}, whose values are not compared"
            ));
        }
        let rule = match &pattern.matching_rule {
            Some(rule) => {
                let found = MatchingRule::find(rule.as_bytes());
                let found =
                    found.filter(|found| found.kind() == RuleKind::Equality && found.fits(known));
                let none = || format!("no matching rule {rule:?} compares values of {name}");
                Some(found.ok_or_else(none)?)
            }
            None => None,
        };
        // As in slapd, a matching rule counts only where whole values are compared.
        if pattern.scope == DnScope::Regex {
            let regex = Regex::new(&pattern.value)?;
            return Ok(Some(ValueTest::Matches(Arc::new(regex))));
        }
        let is_dn = known.syntax().is_some_and(|syntax| syntax.oid() == DN);
        if is_dn && (rule.is_none() || pattern.scope != DnScope::Base) {
            let pattern = DnPattern::new(pattern.scope, pattern.value.as_str());
            return Ok(Some(ValueTest::Dn(EntryTest::new(schema, &pattern)?)));
        }
        if pattern.scope != DnScope::Base {
            return Err(format!(
                "{name} has no DNs as values: write val.exact or val.regex"
            ));
        }
        let rule = rule.or(known.equality());
        let rule = rule.ok_or_else(|| format!("{name} has no equality rule: write val.regex"))?;
        let assertion = rule.assertion(schema, pattern.value.as_bytes());
        let assertion = assertion.map_err(|error| format!("the value of {name} is {error}"))?;
        Ok(Some(ValueTest::Equal(assertion)))
    }

    /// Whether a value of a type is one that it asks for.
    pub(super) fn holds(&self, schema: &Schema, known: &AttributeType, value: &[u8]) -> bool {
        match self {
            ValueTest::Equal(assertion) => assertion.matches(schema, value, &mut Vec::new()),
            ValueTest::Dn(test) => {
                let mut dn = NormalDn::new();
                dn.parse(schema, value).is_ok() && test.holds(&dn)
            }
            ValueTest::Matches(regex) => regex.is_match(&text_as_matched(schema, known, value)),
        }
    }
}

/// The text of a value that regular expressions are matched with.
pub(super) fn text_as_matched(schema: &Schema, known: &AttributeType, value: &[u8]) -> String {
    String::from_utf8_lossy(&text_of(schema, known, value)).into_owned()
}

/// What a rule that covers an entry grants on a value.
#[derive(Debug)]
pub(super) struct Step {
    /// The test that the value must pass first, by its index.
    pub(super) test: Option<usize>,
    /// The clauses that apply, in order, as far as that does not depend on the value.
    pub(super) clauses: Vec<StepClause>,
}

/// A clause that applies to the values which meet its conditions.
#[derive(Debug)]
pub(super) struct StepClause {
    /// What depends on the value: `${v1}` and its like.
    pub(super) needs: Box<[Condition]>,
    pub(super) grant: Grant,
    pub(super) then: Then,
}

/// What the rules that cover an entry grant on the values of the attributes in a slot.
#[derive(Debug)]
pub(super) struct ByValue {
    pub(super) slot: Slot,
    pub(super) steps: Vec<Step>,
}

impl ByValue {
    /// The rights on a value of a type.
    pub(super) fn rights(
        &self,
        tests: &[ValueTest],
        (schema, known): (&Schema, &AttributeType),
        value: &[u8],
    ) -> Rights {
        let mut rights = Rights::NONE;
        let mut text = None;
        for step in &self.steps {
            // A test that is not there is passed by no value.
            let passes = |test: usize| {
                let test = tests.get(test);
                test.is_some_and(|test| test.holds(schema, known, value))
            };
            if !step.test.is_none_or(passes) {
                continue;
            }
            for clause in &step.clauses {
                if !clause.needs.is_empty() {
                    let text = text.get_or_insert_with(|| text_as_matched(schema, known, value));
                    if !clause
                        .needs
                        .iter()
                        .all(|need| need.holds_for_value(schema, text))
                    {
                        continue;
                    }
                }
                rights = clause.grant.after(rights);
                match clause.then {
                    Then::Stop => return rights,
                    Then::Break => break,
                    Then::Continue => {}
                }
            }
        }
        Rights::NONE
    }
}

/// The rights on single values of an attribute of an entry.
#[derive(Clone, Copy)]
pub(crate) struct SingleValues<'g> {
    pub(super) by_value: &'g ByValue,
    pub(super) tests: &'g [ValueTest],
    pub(super) schema: &'g Schema,
    pub(super) known: &'g AttributeType,
}

impl<'g> SingleValues<'g> {
    /// Whether these rights are granted on a value.
    pub(crate) fn grant(&self, value: &[u8], rights: Rights) -> bool {
        let known = (self.schema, self.known);
        self.by_value.rights(self.tests, known, value).has(rights)
    }

    /// Work of finding the rights on a value of so many bytes, about one unit a nanosecond.
    pub(crate) fn work_of(&self, bytes: usize) -> u64 {
        let steps = self.by_value.steps.iter();
        let tests = steps.clone().filter(|step| step.test.is_some()).count() as u64;
        let clauses = steps.flat_map(|step| &step.clauses);
        let needs = clauses.flat_map(|clause| &*clause.needs);
        let needs = needs.map(|need| need.value_work(bytes));
        tests * (VALUE_WORK + BYTE_WORK * bytes as u64) + needs.sum::<u64>()
    }
}
