//! Entries of whose attributes only some values are sent: those that match one of the filters of a matched values
//! control (RFC 3876), or those in a range ([`value_range`](super::value_range)).
//!
//! A value is looked at for each filter, and an entry may have a hundred thousand values: so what is sent of an entry
//! is gathered first, in steps, each of which goes on where the last one has stopped between two values.

use std::collections::{BTreeMap, HashSet};

use sapwood_ldap::ber;
use sapwood_ldap::filter::{Filter, FilterView};
use sapwood_ldap::list::OctetStrings;

use super::candidate::{Candidate, Seen};
use super::evaluate::Evaluator;
use super::filter::{Compiler, Item, Node, Target, Test};
use super::sender::Sender;
use super::value_range::ValueRange;
use crate::access::{Rights, SingleValues};
use crate::engine::{AttributeNo, Cursor, Read};
use crate::entry::{Damaged, Entry, LargeAttribute};
use crate::error::Result;
use crate::schema::AttributeType;
use crate::virtual_attributes::{Values, VirtualAttribute};

/// Which values are sent of the attributes that are selected.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// One of these must match, if there are any conditions.
    items: Option<Vec<Item>>,
    /// Ranges of stored attributes.
    ranges: BTreeMap<AttributeNo, ValueRange>,
}

/// Which values are sent of one attribute.
struct Choice<'s> {
    /// One of these must match, if there are any conditions.
    items: Option<Vec<&'s Item>>,
    range: Option<ValueRange>,
    /// Which of them may be read, where rules look at single ones.
    single: Option<SingleValues<'s>>,
}

/// What becomes of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Sent,
    LeftOut,
    /// It is behind the range, as are all that follow.
    Behind,
}

impl Shape {
    /// Has only values sent that match one of these.
    pub(super) fn set_matching(&mut self, items: Vec<Item>) {
        self.items = Some(items);
    }

    /// Has only a range of the values of an attribute sent, unless it has one already.
    pub(super) fn add_range(&mut self, number: AttributeNo, range: ValueRange) {
        self.ranges.entry(number).or_insert(range);
    }

    /// How many attributes have a range.
    pub(super) fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// What is gone through to find the choice of an attribute.
    fn len(&self) -> usize {
        self.items.as_ref().map_or(1, Vec::len)
    }

    /// What is asked of the values of a stored attribute.
    fn of_stored<'s>(
        &'s self,
        number: AttributeNo,
        is_operational: bool,
        single: Option<SingleValues<'s>>,
    ) -> Choice<'s> {
        let asks = |item: &&Item| match &item.target {
            Target::Stored(stored) if is_operational => stored.operational.has(number),
            Target::Stored(stored) => stored.user.has(number),
            Target::Virtual(_) => false,
        };
        Choice {
            items: self
                .items
                .as_ref()
                .map(|items| items.iter().filter(asks).collect()),
            range: self.ranges.get(&number).copied(),
            single,
        }
    }

    /// The same of an attribute that is computed: it has no ranges.
    fn of_virtual<'s>(
        &'s self,
        attribute: VirtualAttribute,
        single: Option<SingleValues<'s>>,
    ) -> Choice<'s> {
        let asks =
            |item: &&Item| matches!(item.target, Target::Virtual(asked) if asked == attribute);
        Choice {
            items: self
                .items
                .as_ref()
                .map(|items| items.iter().filter(asks).collect()),
            range: None,
            single,
        }
    }
}

impl Choice<'_> {
    /// Whether a value may be read.
    fn may_read(&self, value: &[u8], evaluator: &mut Evaluator<'_>) -> bool {
        self.single.is_none_or(|single| {
            let work = evaluator.work_left();
            *work = work.saturating_sub(single.work_of(value.len()));
            single.grant(value, Rights::READ)
        })
    }

    /// Whether no value can match.
    fn is_of_none(&self) -> bool {
        self.items.as_ref().is_some_and(Vec::is_empty)
    }

    /// What becomes of a value behind `place` others that match.
    fn decide(&self, value: &[u8], place: &mut u64, evaluator: &mut Evaluator<'_>) -> Fate {
        evaluator.spend_next();
        if !self.may_read(value, evaluator) {
            return Fate::LeftOut;
        }
        let matches = |items: &Vec<&Item>| items.iter().any(|item| evaluator.is_of(item, value));
        if !self.items.as_ref().is_none_or(matches) {
            return Fate::LeftOut;
        }
        let at = *place;
        *place += 1;
        match self.range {
            Some(range) if range.last.is_some_and(|last| at > last) => Fate::Behind,
            Some(range) if at < range.first => Fate::LeftOut,
            _ => Fate::Sent,
        }
    }
}

impl Compiler<'_> {
    /// Compiles a filter that values are chosen by, none but an item; `None` when it is true of no value.
    pub(crate) fn compile_for_values(&self, filter: Filter<'_>) -> Option<Item> {
        let node = match filter.view() {
            // True of the values of that attribute alone.
            FilterView::Present(attribute) => {
                let (attribute_type, description) = self.describe(attribute)?;
                let searches = self.searches(attribute_type.id());
                self.sought(
                    attribute_type,
                    &description,
                    (Test::Present, None),
                    searches,
                )
            }
            _ => self.compile(filter),
        };
        match node {
            Node::Item(item) => Some(*item),
            _ => None,
        }
    }
}

/// A part of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    User,
    Large,
    Operational,
    Computed,
    /// There are no more.
    End,
}

/// What is sent of an entry, as far as it was gathered.
#[derive(Debug, Default)]
pub(super) struct Shaped {
    part: Part,
    /// So many attributes of the part are done with.
    attributes: usize,
    /// Where the next value begins among those of the attribute behind them.
    offset: usize,
    /// The same of a large attribute: its key.
    next: Option<Vec<u8>>,
    /// The values of that attribute which are sent.
    values: Vec<u8>,
    /// How many of its values match so far.
    place: u64,
    /// Whether there are values behind its range.
    goes_on: bool,
    /// Whole PartialAttributes.
    ber: Vec<u8>,
}

impl Shaped {
    /// The attributes, once all are gathered.
    pub(super) fn ber(&self) -> &[u8] {
        &self.ber
    }

    fn push(&mut self, value: &[u8]) {
        ber::put_octets(&mut self.values, ber::OCTET_STRING, value);
    }

    /// Deals with a value; whether those behind it are to be looked at.
    fn take(&mut self, value: &[u8], choice: &Choice<'_>, evaluator: &mut Evaluator<'_>) -> bool {
        match choice.decide(value, &mut self.place, evaluator) {
            Fate::Sent => self.push(value),
            Fate::LeftOut => {}
            Fate::Behind => self.goes_on = true,
        }
        !self.goes_on
    }

    /// Ends an attribute, which is sent without values if it has none.
    fn end_attribute(&mut self, description: &str, choice: &Choice<'_>) {
        if choice.single.is_some() && self.values.is_empty() {
            // Perhaps no value may be read: then it is as if it were not there.
            (self.place, self.goes_on) = (0, false);
            return;
        }
        let mut ranged = description.to_owned();
        if let Some(range) = choice.range {
            range.describe(&mut ranged, self.goes_on);
        }
        let description = ranged.as_str();
        (self.place, self.goes_on) = (0, false);
        let content = ber::element_len(description.len()) + ber::element_len(self.values.len());
        ber::put_header(&mut self.ber, ber::SEQUENCE, content);
        ber::put_octets(&mut self.ber, ber::OCTET_STRING, description.as_bytes());
        ber::put_octets(&mut self.ber, ber::SET, &self.values);
        self.values.clear();
    }

    fn end_part(&mut self, next: Part) {
        self.part = next;
        self.attributes = 0;
    }

    /// Goes on with the values that an attribute has in a record; whether all of them were looked at.
    fn take_values(
        &mut self,
        values: OctetStrings<'_>,
        choice: &Choice<'_>,
        evaluator: &mut Evaluator<'_>,
    ) -> bool {
        let ber = values.as_ber();
        let rest = ber.get(self.offset..).unwrap_or_default();
        let mut values = OctetStrings::from_checked(rest).iter();
        while !choice.is_of_none()
            && let Some(value) = values.next()
            && self.take(value, choice, evaluator)
        {
            let rest = values.rest().as_ber().len();
            if evaluator.is_exhausted() && rest > 0 {
                self.offset = ber.len() - rest;
                return false;
            }
        }
        self.offset = 0;
        true
    }

    /// The same of a large attribute.
    fn take_large<R: Read>(
        &mut self,
        candidate: &Candidate<'_, R>,
        number: AttributeNo,
        choice: &Choice<'_>,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<bool> {
        if choice.is_of_none() {
            return Ok(true);
        }
        // In a range the order of the values counts.
        let items = choice.items.as_deref().filter(|_| choice.range.is_none());
        let known = candidate.type_of(number);
        if let Some(forms) = items.and_then(|items| forms_of(items, known)) {
            for form in forms {
                evaluator.spend_lookup();
                if let Some(value) = candidate.large_value(number, form)?
                    && choice.may_read(&value, evaluator)
                {
                    self.push(&value);
                }
            }
            return Ok(true);
        }
        let from = self.next.take();
        let mut values = candidate.large_values(number, from.as_deref())?;
        let mut is_first = true;
        while let Some((key, value)) = values.next()? {
            // Each step comes further.
            if evaluator.is_exhausted() && !is_first {
                self.next = Some(key.to_vec());
                return Ok(false);
            }
            is_first = false;
            if !self.take(value, choice, evaluator) {
                break;
            }
        }
        Ok(true)
    }
}

/// The forms of the values of a large attribute that match, if they can be looked up; each of them once.
fn forms_of<'i>(items: &[&'i Item], known: Option<&AttributeType>) -> Option<HashSet<&'i [u8]>> {
    let mut forms = HashSet::new();
    for item in items {
        forms.extend(item.forms_of(known)?.iter().map(Vec::as_slice));
    }
    Some(forms)
}

impl Sender<'_> {
    /// Gathers what is sent of an entry for as long as there is work; whether it has all of it.
    #[cold]
    pub(super) fn shape<R: Read>(
        &mut self,
        shape: &Shape,
        candidate: &mut Candidate<'_, R>,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<bool> {
        let mut shaped = std::mem::take(&mut self.gathered().shaped);
        let is_whole = loop {
            let is_done = match shaped.part {
                Part::User => {
                    let (entry, all) = (*candidate.entry(), self.selection().wants_all_user());
                    let place = (all, false, candidate.seen());
                    self.shape_record(shape, &entry, place, &mut shaped, evaluator)
                        .map_err(|damaged| candidate.damaged(damaged))?
                }
                Part::Large => self.shape_large(shape, candidate, &mut shaped, evaluator)?,
                Part::Operational => {
                    let all = self.selection().wants_all_operational();
                    let place = (all, true, candidate.seen());
                    let record = candidate.operational()?;
                    self.shape_record(shape, &record, place, &mut shaped, evaluator)
                        .map_err(|damaged| candidate.damaged(damaged))?
                }
                Part::Computed => {
                    self.shape_computed(shape, candidate, &mut shaped, evaluator)?;
                    true
                }
                Part::End => break true,
            };
            if !is_done {
                break false;
            }
            shaped.end_part(match shaped.part {
                Part::User => Part::Large,
                Part::Large if self.selection().sends_operational() => Part::Operational,
                Part::Operational => Part::Computed,
                Part::Large | Part::Computed | Part::End => Part::End,
            });
        };
        self.gathered().shaped = shaped;
        Ok(is_whole)
    }

    /// Goes on with the attributes of a record; whether all of them are gathered.
    fn shape_record(
        &self,
        shape: &Shape,
        record: &Entry<'_>,
        (all, is_operational, seen): (bool, bool, Option<Seen<'_>>),
        shaped: &mut Shaped,
        evaluator: &mut Evaluator<'_>,
    ) -> std::result::Result<bool, Damaged> {
        for attribute in record.attributes().skip(shaped.attributes) {
            let attribute = attribute?;
            if evaluator.is_exhausted() {
                return Ok(false);
            }
            evaluator.spend_items(shape.len());
            if self.selection().wants(record, all, &attribute, seen) {
                let known = self.attributes().get(attribute.number());
                let description = known.ok_or(Damaged)?.text();
                let single = self.selection().single_values(seen, attribute.number());
                let choice = shape.of_stored(attribute.number(), is_operational, single);
                if !shaped.take_values(attribute.values(), &choice, evaluator) {
                    return Ok(false);
                }
                shaped.end_attribute(description, &choice);
            }
            shaped.attributes += 1;
        }
        Ok(true)
    }

    fn shape_large<R: Read>(
        &self,
        shape: &Shape,
        candidate: &Candidate<'_, R>,
        shaped: &mut Shaped,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<bool> {
        let larges = candidate.entry().large();
        for LargeAttribute { number, .. } in larges.skip(shaped.attributes) {
            if evaluator.is_exhausted() {
                return Ok(false);
            }
            evaluator.spend_items(shape.len());
            if self.selection().wants_large(number, candidate.seen()) {
                let known = self.attributes().get(number);
                let known = known.ok_or_else(|| candidate.not_as_told(number))?;
                let single = self.selection().single_values(candidate.seen(), number);
                let choice = shape.of_stored(number, false, single);
                if !shaped.take_large(candidate, number, &choice, evaluator)? {
                    return Ok(false);
                }
                shaped.end_attribute(known.text(), &choice);
            }
            shaped.attributes += 1;
        }
        Ok(true)
    }

    /// The attributes that are computed, all at once: they are few, and their values are short.
    fn shape_computed<R: Read>(
        &self,
        shape: &Shape,
        candidate: &Candidate<'_, R>,
        shaped: &mut Shaped,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<()> {
        let mut values = Values::default();
        for (attribute, attribute_type) in self.computed(candidate.seen()) {
            candidate.compute(attribute, &mut values)?;
            if values.is_empty() {
                continue;
            }
            let seen = candidate.seen();
            let single = seen.and_then(|seen| seen.single_values_of(attribute_type.id()));
            let choice = shape.of_virtual(attribute, single);
            for value in values.iter() {
                shaped.take(value, &choice, evaluator);
            }
            shaped.end_attribute(attribute_type.name(), &choice);
        }
        Ok(())
    }
}
