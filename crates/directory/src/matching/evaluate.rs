//! Evaluating a filter on an entry, in place (RFC 4511 §4.5.1.7).

use std::cmp::Ordering;

use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::OctetStrings;

use super::candidate::{Candidate, Seen};
use super::filter::{DnTypes, Item, Node, Stored, Target, Test, Truth};
use crate::access::{Rights, SingleValues};
use crate::engine::{AttributeNo, Cursor, Read};
use crate::entry::{Damaged, Entry};
use crate::error::Result;
use crate::schema::{MatchingRule, Schema};
use crate::steps;
use crate::virtual_attributes::{Values, VirtualAttribute};

/// From this many numbers on (a supertype such as `name`, or all attributes of a rule) an entry's attributes are looked
/// up among the numbers, which are sorted, instead of the other way round.
pub(super) const NUMBERS_TO_LOOK_UP_MAX: usize = 4;

/// Work of looking an item's attribute up, besides one for each attribute that the entry has.
const ITEM_WORK: u64 = 16;
/// Work of looking a value of a large attribute up, and of going on to the next.
const LOOKUP_WORK: u64 = 1 << 9;
const NEXT_WORK: u64 = 1 << 6;
/// Work of computing an attribute from the tree.
const VIRTUAL_WORK: u64 = 1 << 10;

/// Evaluates filters, keeping its buffers. An evaluation is as long as the filter times the values that it looks at, so
/// that it is done in pieces: when the work of a step is used up it stops between two values, and goes on there in the
/// next step. What is never divided is the test of one value, which is linear in the value and in what the filter
/// asserts of it.
pub(crate) struct Evaluator<'e> {
    schema: &'e Schema,
    buffers: Buffers,
    /// What is left of the step's work, in about as many nanoseconds; see `Budget::work`.
    work: u64,
    interrupted: Interrupted,
}

/// Memory that evaluations take, for the next evaluator.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    normal: Vec<u8>,
    text: String,
    values: Values,
}

/// Where an evaluation was interrupted.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    /// The ands and ors on the way to the item, the innermost first.
    nodes: Vec<Begun>,
    /// The value to go on with; without it the item begins.
    value: Option<NextValue>,
    /// The same among the values of large attributes, by its key.
    large: Option<(AttributeNo, Vec<u8>)>,
    /// The filter is true of the candidate, which there was no room for.
    matched: bool,
}

/// An and or an or that was begun.
#[derive(Debug)]
struct Begun {
    /// The component to go on with.
    at: usize,
    /// What those before it come to.
    truth: Truth,
}

/// A value of a stored attribute.
#[derive(Clone, Copy, Debug)]
struct NextValue {
    is_operational: bool,
    /// The attribute's place among those looked at.
    attribute: usize,
    /// Where the value begins in the attribute's.
    offset: usize,
}

impl NextValue {
    fn first(is_operational: bool) -> NextValue {
        NextValue {
            is_operational,
            attribute: 0,
            offset: 0,
        }
    }
}

/// What was found among the values of an attribute.
enum Sought {
    Found,
    NotFound,
    /// The work was used up before the value at this offset.
    Interrupted(usize),
}

impl<'e> Evaluator<'e> {
    /// For entries governed by this schema. It goes on where `interrupted` says, and does
    /// `work`.
    pub(crate) fn new(schema: &'e Schema, work: u64, interrupted: Interrupted) -> Evaluator<'e> {
        Evaluator {
            schema,
            buffers: Buffers::default(),
            work: work.max(1),
            interrupted,
        }
    }

    /// The same with the buffers of [another](Self::into_buffers).
    pub(crate) fn with_buffers(self, buffers: Buffers) -> Evaluator<'e> {
        Evaluator { buffers, ..self }
    }

    /// The buffers that it leaves.
    pub(crate) fn into_buffers(self) -> Buffers {
        self.buffers
    }

    /// Whether the work of the step is used up.
    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.work == 0
    }

    /// The work that is left of the step, for what is done with the candidate besides.
    pub(crate) fn work_left(&mut self) -> &mut u64 {
        &mut self.work
    }

    /// Where it was interrupted, for the next step, which is to begin with the same candidate and filter.
    pub(crate) fn into_interrupted(self) -> Interrupted {
        self.interrupted
    }

    /// The candidate that matched last could not be dealt with: the next evaluation, of the same one, has this answer
    /// at once.
    pub(crate) fn keep_match(&mut self) {
        self.interrupted.matched = true;
    }

    /// Whether a value is one that an item asks for. It is looked at whole, whatever work is left.
    pub(super) fn is_of(&mut self, item: &Item, value: &[u8]) -> bool {
        self.spend(item.work_of(value.len()).max(1));
        self.value_matches(&item.test, value)
    }

    /// Counts looking a value of a large attribute up.
    pub(super) fn spend_lookup(&mut self) {
        self.spend(LOOKUP_WORK);
    }

    /// Counts going on to the next value of an attribute.
    pub(super) fn spend_next(&mut self) {
        self.spend(NEXT_WORK);
    }

    /// Counts going through so many items.
    pub(super) fn spend_items(&mut self, items: usize) {
        self.spend(items as u64);
    }

    /// Whether a candidate matches; `None` when the work is used up, and the same candidate is next.
    #[inline]
    pub(crate) fn evaluate<R: Read>(
        &mut self,
        node: &Node,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<Truth>> {
        if std::mem::take(&mut self.interrupted.matched) {
            return Ok(Some(Truth::True));
        }
        self.node(node, candidate)
    }

    /// Whether an entry matches that is seen whole, if its record and the work that is left tell that at once, as they
    /// mostly do.
    pub(crate) fn evaluate_at_once(
        &mut self,
        node: &Node,
        record: &Entry<'_>,
    ) -> std::result::Result<Option<Truth>, Damaged> {
        let (nodes, decides) = match node {
            Node::Constant(truth) => return Ok(Some(*truth)),
            Node::Item(item) => {
                let Target::Stored(stored) = &item.target else {
                    return Ok(None);
                };
                return Ok(self.at_once(stored, item, record)?.map(truth_of));
            }
            Node::Not(node) => {
                return Ok(self.evaluate_at_once(node, record)?.map(|truth| !truth));
            }
            Node::And(nodes) => (nodes, Truth::False),
            Node::Or(nodes) => (nodes, Truth::True),
            Node::AnyOf(_) | Node::InChain(_) => return Ok(None),
        };
        let mut joined = !decides;
        for node in nodes {
            let Some(truth) = self.evaluate_at_once(node, record)? else {
                return Ok(None);
            };
            joined = match decides {
                Truth::False => joined.min(truth),
                _ => joined.max(truth),
            };
            if joined == decides {
                break;
            }
        }
        Ok(Some(joined))
    }

    fn node<R: Read>(
        &mut self,
        node: &Node,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<Truth>> {
        match node {
            Node::Constant(truth) => Ok(Some(*truth)),
            Node::Item(item) => self.item(item, candidate),
            Node::AnyOf(any_of) => self.item(&any_of.item, candidate),
            Node::InChain(_) if self.work == 0 => Ok(None),
            Node::InChain(chain) => chain.holds(candidate, &mut self.work),
            Node::Not(node) => Ok(self.node(node, candidate)?.map(|truth| !truth)),
            Node::And(nodes) => self.each(nodes, candidate, Truth::True, Truth::False, Truth::min),
            Node::Or(nodes) => self.each(nodes, candidate, Truth::False, Truth::True, Truth::max),
        }
    }

    /// The components of an and or an or, until one decides.
    #[inline]
    fn each<R: Read>(
        &mut self,
        nodes: &[Node],
        candidate: &mut Candidate<'_, R>,
        none: Truth,
        decides: Truth,
        join: impl Fn(Truth, Truth) -> Truth,
    ) -> Result<Option<Truth>> {
        let begun = self.interrupted.nodes.pop();
        let (first, mut truth) = begun.map_or((0, none), |begun| (begun.at, begun.truth));
        for (at, node) in nodes.iter().enumerate().skip(first) {
            let Some(more) = self.node(node, candidate)? else {
                self.interrupted.nodes.push(Begun { at, truth });
                return Ok(None);
            };
            truth = join(truth, more);
            if truth == decides {
                break;
            }
        }
        Ok(Some(truth))
    }

    fn item<R: Read>(
        &mut self,
        item: &Item,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<Truth>> {
        if self.work == 0 {
            return Ok(None);
        }
        if let Some(seen) = candidate.seen() {
            return self.seen_item(seen, item, candidate);
        }
        let matches = self.matches(item, candidate)?;
        Ok(matches.map(truth_of))
    }

    /// An item of an entry that is seen in part: Undefined if it names an attribute that may not be searched. Those
    /// that it finds without naming them are as if they were not there.
    #[cold]
    fn seen_item<R: Read>(
        &mut self,
        seen: Seen<'_>,
        item: &Item,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<Truth>> {
        let named = match &item.target {
            Target::Virtual(attribute) => Some(attribute.attribute_type(self.schema)),
            Target::Stored(stored) => stored.named,
        };
        let may_ask = |named| match &item.asserted {
            Some(value) => seen.searches_value(named, value),
            None => seen.searches_type(named),
        };
        if !named.is_none_or(may_ask) {
            self.spend(ITEM_WORK);
            return Ok(Some(Truth::Undefined));
        }
        let single = named.and_then(|named| seen.single_values_of(named));
        let matches = match (&item.target, single) {
            (Target::Stored(stored), _) if !sees_all(seen, stored) => {
                self.stored_in_steps(stored, item, candidate, Some(seen))
            }
            (Target::Virtual(attribute), Some(single)) => {
                return self.single_computed(*attribute, single, item, candidate);
            }
            _ => self.matches(item, candidate),
        };
        Ok(matches?.map(truth_of))
    }

    /// An item of a computed attribute of whose values only some may be searched.
    fn single_computed<R: Read>(
        &mut self,
        attribute: VirtualAttribute,
        single: SingleValues<'_>,
        item: &Item,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<Truth>> {
        let mut values = std::mem::take(&mut self.buffers.values);
        candidate.compute(attribute, &mut values)?;
        self.spend(VIRTUAL_WORK + item.work_of(values.bytes()));
        let mut matches = false;
        for value in values.iter() {
            self.spend(single.work_of(value.len()));
            matches |= self.value_matches(&item.test, value) && single.grant(value, Rights::SEARCH);
        }
        self.buffers.values = values;
        Ok(Some(truth_of(matches)))
    }

    #[inline]
    fn matches<R: Read>(
        &mut self,
        item: &Item,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<bool>> {
        Ok(match &item.target {
            Target::Virtual(attribute) => {
                if let Some(normal) =
                    item.equal_to(attribute.attribute_type(self.schema), self.schema)
                    && let Some(has) = candidate.has_computed(*attribute, normal)?
                {
                    self.spend(VIRTUAL_WORK + item.work_of(normal.len()));
                    return Ok(Some(has));
                }
                let mut values = std::mem::take(&mut self.buffers.values);
                candidate.compute(*attribute, &mut values)?;
                self.spend(VIRTUAL_WORK + item.work_of(values.bytes()));
                let matches = (values.iter()).any(|value| self.value_matches(&item.test, value));
                self.buffers.values = values;
                Some(matches)
            }
            Target::Stored(stored) => self.stored(stored, item, candidate)?,
        })
    }

    #[inline]
    fn spend(&mut self, work: u64) {
        steps::count(1);
        self.work = self.work.saturating_sub(work);
    }

    /// Whether a value matches; `None` when the work is used up.
    #[inline]
    fn stored<R: Read>(
        &mut self,
        stored: &Stored,
        item: &Item,
        candidate: &mut Candidate<'_, R>,
    ) -> Result<Option<bool>> {
        if self.interrupted.value.is_none() {
            let at_once = self.at_once(stored, item, candidate.entry());
            let found = at_once.map_err(|damaged| candidate.damaged(damaged))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        self.stored_in_steps(stored, item, candidate, None)
    }

    /// Whether a value matches, if that is told by one attribute of the entry and by the work that is left, as it
    /// mostly is.
    #[inline]
    fn at_once(
        &mut self,
        stored: &Stored,
        item: &Item,
        record: &Entry<'_>,
    ) -> std::result::Result<Option<bool>, Damaged> {
        let ([number], [], None) = (&*stored.user, &*stored.operational, &stored.in_dn) else {
            return Ok(None);
        };
        let attribute = record.attribute(*number)?;
        if attribute.is_none() && record.has_large() {
            return Ok(None);
        }
        let values = attribute.map_or(OctetStrings::EMPTY, |attribute| attribute.values());
        let work =
            ITEM_WORK + record.attributes_count() as u64 + item.work_of(values.as_ber().len());
        if work > self.work {
            return Ok(None);
        }
        self.spend(work);
        let is_present = attribute.is_some() && matches!(item.test, Test::Present);
        let mut values = values.iter();
        Ok(Some(
            is_present || values.any(|value| self.value_matches(&item.test, value)),
        ))
    }

    fn stored_in_steps<R: Read>(
        &mut self,
        stored: &Stored,
        item: &Item,
        candidate: &mut Candidate<'_, R>,
        seen: Option<Seen<'_>>,
    ) -> Result<Option<bool>> {
        let next = self.interrupted.value.take();
        let next = next.unwrap_or(NextValue::first(false));
        if !next.is_operational && self.interrupted.large.is_none() {
            let in_entry = self.record(candidate.entry(), &stored.user, item, next, seen);
            match in_entry.map_err(|damaged| candidate.damaged(damaged))? {
                Some(false) => {}
                found => return Ok(found),
            }
        }
        if !next.is_operational && candidate.entry().has_large() {
            match self.large(&stored.user, item, candidate, seen)? {
                Some(false) => {}
                found => return Ok(found),
            }
        }
        if !stored.operational.is_empty() {
            let next = match next.is_operational {
                true => next,
                false => NextValue::first(true),
            };
            let numbers = &stored.operational;
            let found = self.record(&candidate.operational()?, numbers, item, next, seen);
            match found.map_err(|damaged| candidate.damaged(damaged))? {
                Some(false) => {}
                found => return Ok(found),
            }
        }
        Ok(Some(match &stored.in_dn {
            Some(types) => self.in_dn(types, item, candidate, seen),
            None => false,
        }))
    }

    #[inline]
    fn record(
        &mut self,
        record: &Entry<'_>,
        numbers: &[AttributeNo],
        item: &Item,
        next: NextValue,
        seen: Option<Seen<'_>>,
    ) -> std::result::Result<Option<bool>, Damaged> {
        let is_hidden = |number| seen.is_some_and(|seen| seen.hides(number));
        let single = |number| seen.and_then(|seen| seen.single_values(number));
        self.spend(ITEM_WORK + record.attributes_count() as u64);
        if numbers.len() <= NUMBERS_TO_LOOK_UP_MAX {
            for (at, number) in numbers.iter().enumerate().skip(next.attribute) {
                if is_hidden(*number) {
                    continue;
                }
                if let Some(attribute) = record.attribute(*number)? {
                    let single = single(*number);
                    match self.values_match(item, (attribute.values(), single), next, at) {
                        Some(false) => {}
                        found => return Ok(found),
                    }
                }
            }
        } else {
            for (at, attribute) in record.attributes().enumerate().skip(next.attribute) {
                let attribute = attribute?;
                let number = attribute.number();
                if numbers.binary_search(&number).is_ok() && !is_hidden(number) {
                    let single = single(number);
                    match self.values_match(item, (attribute.values(), single), next, at) {
                        Some(false) => {}
                        found => return Ok(found),
                    }
                }
            }
        }
        Ok(Some(false))
    }

    /// Whether one of an attribute's values matches, which is the one `at` this place of those looked at; `None` when
    /// the work is used up. Values that may not be searched do not count.
    #[inline]
    fn values_match(
        &mut self,
        item: &Item,
        (values, single): (OctetStrings<'_>, Option<SingleValues<'_>>),
        next: NextValue,
        at: usize,
    ) -> Option<bool> {
        if let (Test::Present, None) = (&item.test, single) {
            return Some(true);
        }
        let offset = if at == next.attribute { next.offset } else { 0 };
        let work = item.work_of(values.as_ber().len() - offset.min(values.as_ber().len()));
        if offset == 0 && work <= self.work && single.is_none() {
            self.spend(work);
            let mut values = values.iter();
            return Some(values.any(|value| self.value_matches(&item.test, value)));
        }
        match self.seek(item, (values, single), offset) {
            Sought::Found => Some(true),
            Sought::NotFound => Some(false),
            Sought::Interrupted(offset) => {
                self.interrupted.value = Some(NextValue {
                    attribute: at,
                    offset,
                    ..next
                });
                None
            }
        }
    }

    /// Looks at the values from `offset` on, at one at least, for as long as there is work.
    #[cold]
    fn seek(
        &mut self,
        item: &Item,
        (values, single): (OctetStrings<'_>, Option<SingleValues<'_>>),
        offset: usize,
    ) -> Sought {
        let ber = values.as_ber();
        let mut values = OctetStrings::from_checked(ber.get(offset..).unwrap_or_default()).iter();
        while let Some(value) = values.next() {
            self.spend(item.work_of(value.len()).max(1));
            if self.value_matches(&item.test, value) && self.may_search(single, value) {
                return Sought::Found;
            }
            let rest = values.rest().as_ber().len();
            if self.work == 0 && rest > 0 {
                return Sought::Interrupted(ber.len() - rest);
            }
        }
        Sought::NotFound
    }

    /// Whether a value of a large attribute matches; `None` when the work is used up.
    #[cold]
    fn large<R: Read>(
        &mut self,
        numbers: &[AttributeNo],
        item: &Item,
        candidate: &Candidate<'_, R>,
        seen: Option<Seen<'_>>,
    ) -> Result<Option<bool>> {
        let is_hidden = |number| seen.is_some_and(|seen| seen.hides(number));
        let single = |number| seen.and_then(|seen| seen.single_values(number));
        let mut begun = self.interrupted.large.take();
        let is_wanted = |number: AttributeNo| match numbers.len() {
            ..=NUMBERS_TO_LOOK_UP_MAX => numbers.contains(&number),
            _ => numbers.binary_search(&number).is_ok(),
        };
        let mut is_first = true;
        for large in candidate.entry().large() {
            // They are in ascending order.
            let is_behind = |(number, _): &(AttributeNo, Vec<u8>)| large.number < *number;
            if begun.as_ref().is_some_and(is_behind) {
                continue;
            }
            if !is_wanted(large.number) || is_hidden(large.number) {
                self.spend(1);
                continue;
            }
            let single = single(large.number);
            if let (Test::Present, None) = (&item.test, single) {
                return Ok(Some(true));
            }
            // Each step comes further.
            if self.work == 0 && !is_first {
                self.interrupted.large = Some((large.number, Vec::new()));
                return Ok(None);
            }
            is_first = false;
            let found = match item.forms_of(candidate.type_of(large.number)) {
                Some(forms) => {
                    let mut found = false;
                    for form in forms {
                        self.spend(LOOKUP_WORK);
                        let value = candidate.large_value(large.number, form)?;
                        found = value.is_some_and(|value| self.may_search(single, &value));
                        if found {
                            break;
                        }
                    }
                    found
                }
                None => {
                    let from = begun.take().map(|(_, key)| key);
                    let from = from.filter(|key| !key.is_empty());
                    let mut values = candidate.large_values(large.number, from.as_deref())?;
                    let mut found = false;
                    while !found && let Some((key, value)) = values.next()? {
                        if self.work == 0 {
                            self.interrupted.large = Some((large.number, key.to_vec()));
                            return Ok(None);
                        }
                        self.spend(item.work_of(value.len()) + NEXT_WORK);
                        found =
                            self.value_matches(&item.test, value) && self.may_search(single, value);
                    }
                    found
                }
            };
            if found {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// Whether a value may be searched, where rules look at single ones.
    #[inline]
    fn may_search(&mut self, single: Option<SingleValues<'_>>, value: &[u8]) -> bool {
        single.is_none_or(|single| {
            self.spend(single.work_of(value.len()));
            single.grant(value, Rights::SEARCH)
        })
    }

    fn value_matches(&mut self, test: &Test, value: &[u8]) -> bool {
        let (schema, normal) = (self.schema, &mut self.buffers.normal);
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
            Test::Sounds(pattern) => pattern.matches(schema, value, normal),
            Test::AnyOf(rule, forms) => {
                normal.clear();
                rule.normalise(schema, value, normal).is_ok() && forms.contains(normal)
            }
        }
    }

    fn in_dn<R: Read>(
        &mut self,
        types: &DnTypes,
        item: &Item,
        candidate: &Candidate<'_, R>,
        seen: Option<Seen<'_>>,
    ) -> bool {
        let test = &item.test;
        let mut text = std::mem::take(&mut self.buffers.text);
        text.clear();
        candidate.append_dn(&mut text);
        self.spend(VIRTUAL_WORK + item.work_of(text.len()));
        let found = Dn::parse(&text).is_ok_and(|dn| {
            dn.rdns().flat_map(|rdn| rdn.avas()).any(|ava| {
                let Some(attribute_type) = self.schema.attribute_type(ava.attribute().as_bytes())
                else {
                    return false;
                };
                let counts = match types {
                    DnTypes::Of(wanted) => attribute_type.is_subtype_of(*wanted),
                    DnTypes::Any => rule_of(test).is_some_and(|rule| rule.fits(attribute_type)),
                };
                let value = ava.value();
                let searches = |seen: Seen<'_>| seen.searches_value(attribute_type.id(), &value);
                counts && seen.is_none_or(searches) && self.value_matches(test, &value)
            })
        });
        self.buffers.text = text;
        found
    }
}

fn truth_of(matches: bool) -> Truth {
    match matches {
        true => Truth::True,
        false => Truth::False,
    }
}

/// Whether all attributes of an item may be searched, where they are few enough to be asked for one by one.
fn sees_all(seen: Seen<'_>, stored: &Stored) -> bool {
    let is_few = |numbers: &[AttributeNo]| numbers.len() <= NUMBERS_TO_LOOK_UP_MAX;
    let mut numbers = stored.user.iter().chain(&*stored.operational);
    is_few(&stored.user)
        && is_few(&stored.operational)
        && stored.in_dn.is_none()
        && numbers.all(|number| seen.searches(*number) && seen.single_values(*number).is_none())
}

fn rule_of(test: &Test) -> Option<&'static MatchingRule> {
    match test {
        Test::Present => None,
        Test::Equal(assertion)
        | Test::AtLeast(assertion)
        | Test::AtMost(assertion)
        | Test::Before(assertion) => Some(assertion.rule()),
        Test::Substrings(pattern) => Some(pattern.rule()),
        Test::Sounds(pattern) => Some(pattern.rule()),
        Test::AnyOf(rule, _) => Some(rule),
    }
}
