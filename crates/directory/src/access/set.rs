//! Sets, as slapd has them (`set=`): an expression is a set of texts, and who asks is meant where it is not empty.
//!
//! ```text
//!  set   part, or set & part (both), set | part (either), set + part (each of the one before each of the other);
//!        from left to right, none before another
//!  part  this (the entry), user (who asks, if bound), [text], or (set); behind it as many steps as there are
//!  step  /attribute, or ->attribute: the values of the entries that the texts name
//!        /attribute*: the same, and those of the entries that these values name, and so on
//!        /-2: the names so many above; /-*: all names above, and itself
//!        a step from a URL: the values of the entries that it finds
//! ```
//!
//! Names and values are compared as texts, octet by octet: each in normal form, as [`NormalDn`] writes names.
//!
//! What is asked is mostly whether one text is in a set. That costs no more than to look it up, however many values an
//! attribute has: [`Asking::contains`].

use std::collections::{BTreeSet, VecDeque};

use super::condition::{About, FINDING_WORK};
use super::evaluate::Evaluate;
use super::found::{Url, is_url};
use super::values::{VALUE_WORK, ValueReader, text_of};
use crate::engine::EntryId;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::names;
use crate::policy::expansion::{Expansion, Written};
use crate::policy::set::{Join, OriginOf, PartOf, SetOf, StepOf};
use crate::schema::{AttributeTypeId, NormalDn, Schema};
use crate::state::State;

/// Most values that an expression goes through, in all its sets; beyond it is as if it were empty.
pub(super) const VALUES_MAX: usize = 1000;
/// So many bytes of a URL that is searched count as one value.
const URL_BYTES_OF_VALUE: usize = 32;
/// Bytes of the texts that `+` makes.
const JOINED_BYTES_MAX: usize = 1 << 16;

/// An expression with its names looked up.
pub(super) type Set = SetOf<Attribute, Text>;
type Part = PartOf<Attribute, Text>;
type Step = StepOf<Attribute>;
type Texts = BTreeSet<Vec<u8>>;

/// What is asked of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    /// Its name, entryDN.
    Name,
    /// Values of a type, without options.
    Type(AttributeTypeId),
}

/// A text in brackets.
#[derive(Debug)]
pub(super) enum Text {
    Constant(String),
    /// With what the name of the entry matched, written so.
    Expanded(Expansion, Written),
}

/// What a name in a set stands for.
pub(super) fn attribute_of(schema: &Schema, name: &str) -> std::result::Result<Attribute, String> {
    if name.eq_ignore_ascii_case("entryDN") {
        return Ok(Attribute::Name);
    }
    match schema.attribute_type(name.as_bytes()) {
        None => Err(format!("there is no attribute type {name:?}")),
        Some(known) if schema.is_protected(known.id()) => {
            Err(format!("sets do not look at {name}"))
        }
        Some(known) if schema.is_computed(known.id()) => {
            Err(format!("{name} is computed, and not there for sets"))
        }
        Some(known) => Ok(Attribute::Type(known.id())),
    }
}

impl Set {
    /// Whether it depends on the entry.
    pub(super) fn asks_for_entry(&self) -> bool {
        self.parts().any(|part| match &part.origin {
            OriginOf::This => true,
            OriginOf::User => false,
            OriginOf::Text(text) => matches!(text, Text::Expanded(..)),
            OriginOf::Set(set) => set.asks_for_entry(),
        })
    }

    /// Whether there is something in it, for an entry with the text of its DN and for who asks, whose name is `user`.
    /// What that takes is added to `work`.
    pub(super) fn is_met<R: Evaluate>(
        &self,
        reading: (&R, &Schema, &State),
        about: Option<&About<'_, '_, R>>,
        user: &str,
        work: &mut u64,
    ) -> Result<bool> {
        let mut asking = Asking {
            reading,
            asked: about.map(|about| (about.asked.id, about.record.copied())),
            user,
            this: about.map_or("", |about| about.text()),
            values_left: VALUES_MAX,
            work: 0,
        };
        let found = asking.set(self);
        *work = work.saturating_add(asking.work);
        match found {
            Ok(texts) => Ok(!texts.is_empty()),
            Err(Stop::TooMany) => Ok(false),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

impl Part {
    /// Whether it has one text, whatever the entries have.
    fn is_single(&self) -> bool {
        let is_one = |step: &Step| matches!(step, StepOf::Above(Some(_)));
        !matches!(self.origin, OriginOf::Set(_)) && self.steps.iter().all(is_one)
    }
}

/// Why an expression ends early.
enum Stop {
    TooMany,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// An expression while it is evaluated.
struct Asking<'a, R: Evaluate> {
    reading: (&'a R, &'a Schema, &'a State),
    /// The entry, and its record if it is at hand; none for an expression that does not ask for it.
    asked: Option<(EntryId, Option<Entry<'a>>)>,
    user: &'a str,
    /// The text of its DN.
    this: &'a str,
    values_left: usize,
    work: u64,
}

impl<'a, R: Evaluate> Asking<'a, R> {
    fn set(&mut self, set: &Set) -> std::result::Result<Texts, Stop> {
        let mut rest = set.rest.iter();
        let mut texts = match rest.clone().next() {
            // The values of the first part need not be gone through.
            Some((Join::Intersection, second)) if second.is_single() => {
                rest.next();
                let single = self.part(second)?;
                self.only_those_in(&set.first, single)?
            }
            _ => self.part(&set.first)?,
        };
        for (join, part) in rest {
            texts = match join {
                Join::Intersection => self.only_those_in(part, texts)?,
                Join::Union => {
                    texts.extend(self.part(part)?);
                    texts
                }
                Join::Concatenation => {
                    let behind = self.part(part)?;
                    self.concatenated(&texts, &behind)?
                }
            };
        }
        Ok(texts)
    }

    fn only_those_in(&mut self, part: &Part, texts: Texts) -> std::result::Result<Texts, Stop> {
        let mut left = Texts::new();
        for text in texts {
            if self.contains(part, &text)? {
                left.insert(text);
            }
        }
        Ok(left)
    }

    fn concatenated(&mut self, one: &Texts, other: &Texts) -> std::result::Result<Texts, Stop> {
        let (mut joined, mut bytes) = (Texts::new(), 0);
        for first in one {
            for second in other {
                bytes += first.len() + second.len();
                if bytes > JOINED_BYTES_MAX {
                    return Err(Stop::TooMany);
                }
                self.count_value()?;
                joined.insert([first.as_slice(), second].concat());
            }
        }
        Ok(joined)
    }

    fn part(&mut self, part: &Part) -> std::result::Result<Texts, Stop> {
        self.steps(&part.origin, &part.steps)
    }

    fn steps(
        &mut self,
        origin: &OriginOf<Attribute, Text>,
        steps: &[Step],
    ) -> std::result::Result<Texts, Stop> {
        let mut texts = match origin {
            OriginOf::This => Texts::from([self.this.as_bytes().to_vec()]),
            // Who is anonymous has no name.
            OriginOf::User if self.user.is_empty() => Texts::new(),
            OriginOf::User => Texts::from([self.user.as_bytes().to_vec()]),
            OriginOf::Text(Text::Constant(text)) => Texts::from([text.clone().into_bytes()]),
            OriginOf::Text(Text::Expanded(text, written)) => {
                // What the name does not have is no text.
                let text = text.fill(self.this, *written);
                text.into_iter().map(String::into_bytes).collect()
            }
            OriginOf::Set(set) => self.set(set)?,
        };
        // What was joined of values is no URL, whatever stands in these.
        let mut searches = !origin.is_joined();
        for step in steps {
            texts = self.step(step, texts, searches)?;
            searches = true;
        }
        Ok(texts)
    }

    fn step(
        &mut self,
        step: &Step,
        texts: Texts,
        searches: bool,
    ) -> std::result::Result<Texts, Stop> {
        let mut found = Texts::new();
        match step {
            StepOf::Above(levels) => {
                for text in &texts {
                    self.above(text, *levels, &mut found)?;
                }
            }
            StepOf::Values { attribute, closure } => {
                let mut nodes: VecDeque<Vec<u8>> = texts.into_iter().collect();
                while let Some(node) = nodes.pop_front() {
                    for value in self.values(&node, *attribute, searches)? {
                        if found.insert(value.clone()) && *closure {
                            nodes.push_back(value);
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    /// Whether a part has a text.
    fn contains(&mut self, part: &Part, text: &[u8]) -> std::result::Result<bool, Stop> {
        let Some((StepOf::Values { attribute, closure }, before)) = part.steps.split_last() else {
            return Ok(self.part(part)?.contains(text));
        };
        let searches = !before.is_empty() || !part.origin.is_joined();
        let nodes = self.steps(&part.origin, before)?;
        let mut nodes: VecDeque<Vec<u8>> = nodes.into_iter().collect();
        let mut known = Texts::new();
        while let Some(node) = nodes.pop_front() {
            if self.has(&node, *attribute, text, searches)? {
                return Ok(true);
            }
            if *closure {
                for value in self.values(&node, *attribute, searches)? {
                    if known.insert(value.clone()) {
                        nodes.push_back(value);
                    }
                }
            }
        }
        Ok(false)
    }

    /// The name of a text that is one.
    fn name(&self, text: &[u8]) -> Option<NormalDn> {
        let mut name = NormalDn::new();
        name.parse(self.reading.1, text).is_ok().then_some(name)
    }

    /// Adds the name so many above one, or all of them, and itself; above the first one is the empty one.
    fn above(
        &mut self,
        text: &[u8],
        levels: Option<u32>,
        found: &mut Texts,
    ) -> std::result::Result<(), Stop> {
        let Some(mut name) = self.name(text) else {
            return Ok(());
        };
        let depth = name.len();
        let first = levels.map_or(0, |levels| depth.saturating_sub(levels as usize));
        let last = levels.map_or(depth, |_| first);
        for rdns in (first..=last).rev() {
            self.count_value()?;
            name.truncate(rdns);
            found.insert(name.to_text().into_bytes());
        }
        Ok(())
    }

    /// The entry that a text names.
    fn find(&mut self, text: &[u8]) -> std::result::Result<Option<EntryId>, Stop> {
        if let Some((id, _)) = self.asked
            && text == self.this.as_bytes()
        {
            return Ok((!id.is_root()).then_some(id));
        }
        self.work = self.work.saturating_add(FINDING_WORK);
        let Some(name) = self.name(text).filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let (view, schema, state) = self.reading;
        Ok(ValueReader::new(view, schema, state).find(&name)?)
    }

    fn values(
        &mut self,
        node: &[u8],
        attribute: Attribute,
        searches: bool,
    ) -> std::result::Result<Vec<Vec<u8>>, Stop> {
        if is_url(node) {
            return self.found_by(node, attribute, searches);
        }
        let attribute = match attribute {
            Attribute::Name => return Ok(self.own_name(node).into_iter().collect()),
            Attribute::Type(attribute) => attribute,
        };
        match self.find(node)? {
            Some(id) => self.values_of(id, attribute),
            None => Ok(Vec::new()),
        }
    }

    /// What the entries that a URL finds have of an attribute; where they do not have it, of the last one that the URL
    /// names, as in slapd.
    fn found_by(
        &mut self,
        url: &[u8],
        attribute: Attribute,
        searches: bool,
    ) -> std::result::Result<Vec<Vec<u8>>, Stop> {
        let (view, schema, state) = self.reading;
        self.count_url(url)?;
        let Some(url) = Url::read(schema, url, &mut self.work).filter(|_| searches) else {
            return Ok(Vec::new());
        };
        let reader = ValueReader::new(view, schema, state);
        let found = url.entries(&reader, &mut self.values_left, &mut self.work)?;
        let mut values = Vec::new();
        for id in found.ok_or(Stop::TooMany)? {
            let named = url
                .attributes()
                .filter_map(|name| attribute_of(schema, name).ok());
            for attribute in std::iter::once(attribute).chain(named) {
                let own = match attribute {
                    Attribute::Name => {
                        let name = names::normal_dn_of(view, schema, id)?;
                        vec![name.to_text().into_bytes()]
                    }
                    Attribute::Type(attribute) => self.values_of(id, attribute)?,
                };
                if !own.is_empty() {
                    values.extend(own);
                    break;
                }
            }
        }
        Ok(values)
    }

    fn values_of(
        &mut self,
        id: EntryId,
        attribute: AttributeTypeId,
    ) -> std::result::Result<Vec<Vec<u8>>, Stop> {
        let (schema, reader) = (self.reading.1, self.reader());
        let known = schema.type_of(attribute);
        let mut values = Vec::new();
        let (values_left, work) = (&mut self.values_left, &mut self.work);
        let mut is_too_many = false;
        reader.each(id, attribute, &mut |value| {
            *work = work.saturating_add(VALUE_WORK);
            is_too_many = *values_left == 0;
            if !is_too_many {
                *values_left -= 1;
                values.push(text_of(schema, known, value));
            }
            Ok(!is_too_many)
        })?;
        match is_too_many {
            true => Err(Stop::TooMany),
            false => Ok(values),
        }
    }

    /// Whether the entry that a text names has a value.
    fn has(
        &mut self,
        node: &[u8],
        attribute: Attribute,
        text: &[u8],
        searches: bool,
    ) -> std::result::Result<bool, Stop> {
        if is_url(node) {
            return match attribute {
                Attribute::Name if searches => self.is_found_by(node, text),
                _ => Ok(self
                    .found_by(node, attribute, searches)?
                    .iter()
                    .any(|value| value == text)),
            };
        }
        let attribute = match attribute {
            Attribute::Name => return Ok(self.own_name(node).is_some_and(|own| own == text)),
            Attribute::Type(attribute) => attribute,
        };
        let Some(id) = self.find(node)? else {
            return Ok(false);
        };
        self.count_value()?;
        let reader = self.reader();
        Ok(reader.has(id, attribute, text, &mut self.work)?)
    }

    fn reader(&self) -> ValueReader<'a, R> {
        let (view, schema, state) = self.reading;
        let at_hand = self.asked.and_then(|(id, record)| Some((id, record?)));
        ValueReader::new(view, schema, state).with(at_hand)
    }

    /// Whether a URL finds the entry that a text names. That costs the same however many others it finds.
    fn is_found_by(&mut self, url: &[u8], text: &[u8]) -> std::result::Result<bool, Stop> {
        self.count_url(url)?;
        let (view, schema, state) = self.reading;
        let Some(url) = Url::read(schema, url, &mut self.work) else {
            return Ok(false);
        };
        let (Some(name), Some(id)) = (self.name(text), self.find(text)?) else {
            return Ok(false);
        };
        let reader = ValueReader::new(view, schema, state);
        Ok(url.finds(&reader, (id, &name), &mut self.work)?)
    }

    /// A name in normal form, which there need not be an entry of.
    fn own_name(&self, text: &[u8]) -> Option<Vec<u8>> {
        Some(self.name(text)?.to_text().into_bytes())
    }

    /// Counts a URL as values by its length: the longer its filter, the more it asks of indexes and of an entry.
    fn count_url(&mut self, url: &[u8]) -> std::result::Result<(), Stop> {
        let values = 1 + url.len() / URL_BYTES_OF_VALUE;
        self.values_left = self.values_left.checked_sub(values).ok_or(Stop::TooMany)?;
        Ok(())
    }

    fn count_value(&mut self) -> std::result::Result<(), Stop> {
        self.work = self.work.saturating_add(VALUE_WORK);
        self.values_left = self.values_left.checked_sub(1).ok_or(Stop::TooMany)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::parse::read_set;

    #[test]
    fn what_one_text_is_is_known_before_entries_are_read() {
        let part = |text: &str| read_set(text).unwrap().first;
        let is_single = |text: &str| {
            let part = SetOf {
                first: part(text),
                rest: Vec::new(),
            };
            let set = part.try_map(&|_| Ok(Attribute::Name), &|text| Ok(Text::Constant(text)));
            set.unwrap().first.is_single()
        };
        for single in ["this", "user/-1", "[cn=x]", "this/-1/-2"] {
            assert!(is_single(single), "{single}");
        }
        for other in ["this/-*", "user/cn", "(this)", "[cn=x]/member*"] {
            assert!(!is_single(other), "{other}");
        }
    }
}
