//! What entries are sorted by (RFC 2891): of an attribute, the least value by an ordering rule.

use sapwood_ldap::attribute::AttributeDescription;
use sapwood_ldap::result::ResultCode;

use super::candidate::Candidate;
use super::filter::{Compiler, Item, Node, Places, Stored, Target, Test};
use crate::access::{Everywhere, Rights, SingleValues};
use crate::engine::{AttributeNo, Cursor, Read, append_escaped};
use crate::entry::{Damaged, Entry};
use crate::error::Result;
use crate::indexes::{self, AttributeIndexes, Completeness};
use crate::schema::{AttributeType, AttributeTypeId, MatchingRule, Schema};
use crate::state::State;
use crate::virtual_attributes::Values;

/// Bytes of a value that are looked at: its key has no more.
const VALUE_BYTES_MAX: usize = 4 << 10;
/// Values of a large attribute that are looked at where they are not kept in the order of the rule.
const VALUES_MAX: usize = 256;
/// Work of looking at a value, besides that of its bytes.
const VALUE_WORK: u64 = 1 << 6;
/// Work for each byte of a value.
const BYTE_WORK: u64 = 8;

/// An entry that has the attribute.
const PRESENT: u8 = 1;
/// One that has not: it comes behind all others, or before them in reverse (RFC 2891 §2.2).
const ABSENT: u8 = 2;

/// What is compared of a normal form.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// So many bytes of it, of so much of a value that a key is made of.
    Cut(usize),
    /// What stands in an ordering index.
    OfIndex,
}

/// One key to sort by.
#[derive(Debug)]
pub(crate) struct SortKey {
    target: Target,
    rule: &'static MatchingRule,
    is_reverse: bool,
}

impl Compiler<'_> {
    /// Makes a sort key ready. Without a rule it is the ordering rule of the type, or its equality rule if it has none,
    /// as `cn` and `sn` have none.
    ///
    /// # Errors
    /// The code for a sort response (RFC 2891 §1.2): there is no such attribute, the rule does not fit it, or it may
    /// not be searched on any entry.
    pub(crate) fn sort_key(
        &self,
        attribute: &[u8],
        rule: Option<&[u8]>,
        is_reverse: bool,
    ) -> std::result::Result<SortKey, ResultCode> {
        let described = self.describe(attribute);
        let (known, description) = described.ok_or(ResultCode::NoSuchAttribute)?;
        let rule = match rule {
            Some(name) => MatchingRule::find(name).filter(|rule| rule.fits(known)),
            None => known.order(),
        };
        let rule = rule.filter(|rule| rule.is_indexable() && !rule.is_of_parts());
        let rule = rule.ok_or(ResultCode::InappropriateMatching)?;
        let target = self.sort_target(known, &description);
        let target = target.ok_or(ResultCode::InsufficientAccessRights)?;
        Ok(SortKey {
            target,
            rule,
            is_reverse,
        })
    }

    /// Where the values are that entries are sorted by; `None` if they may not be searched on any entry.
    fn sort_target(
        &self,
        attribute_type: &AttributeType,
        description: &AttributeDescription<'_>,
    ) -> Option<Target> {
        if self.searches(attribute_type.id()) == Everywhere::Never {
            return None;
        }
        if let Some(attribute) = self.virtual_attribute(attribute_type.id()) {
            return Some(Target::Virtual(attribute));
        }
        let Places { user, operational } = self.places(attribute_type, description);
        Some(Target::Stored(Stored {
            indexed_type: (!description.has_options() && !self.may_be_collective(attribute_type))
                .then(|| attribute_type.id()),
            named: Some(attribute_type.id()),
            user,
            operational,
            in_dn: None,
        }))
    }
}

/// Finds the least of values by a rule.
struct Least<'l> {
    schema: &'l Schema,
    rule: &'static MatchingRule,
    form: Form,
    normal: Vec<u8>,
    least: Option<Vec<u8>>,
    work: u64,
}

impl Least<'_> {
    /// Looks at a value, if it may be searched where rules look at single ones; whether it may.
    fn look_at(&mut self, value: &[u8], single: Option<SingleValues<'_>>) -> bool {
        let may_look = single.is_none_or(|single| {
            self.work += single.work_of(value.len());
            single.grant(value, Rights::SEARCH)
        });
        if may_look {
            self.look(value);
        }
        may_look
    }

    /// Looks at a value. One that the rule does not fit is passed over.
    fn look(&mut self, value: &[u8]) {
        let value = self.form.part_of(value);
        self.work += VALUE_WORK + BYTE_WORK * value.len() as u64;
        self.normal.clear();
        if (self.rule)
            .normalise(self.schema, value, &mut self.normal)
            .is_err()
        {
            return;
        }
        self.form.shorten(&mut self.normal);
        match &mut self.least {
            Some(least) if *least <= self.normal => {}
            Some(least) => std::mem::swap(least, &mut self.normal),
            None => self.least = Some(std::mem::take(&mut self.normal)),
        }
    }
}

impl Form {
    /// What is looked at of a value.
    fn part_of(self, value: &[u8]) -> &[u8] {
        match self {
            Form::Cut(_) => beginning(value),
            Form::OfIndex => value,
        }
    }

    fn shorten(self, normal: &mut Vec<u8>) {
        match self {
            Form::Cut(bytes_max) => normal.truncate(bytes_max),
            Form::OfIndex => indexes::shorten(normal),
        }
    }
}

/// The part of a value that is looked at, which ends between two characters.
fn beginning(value: &[u8]) -> &[u8] {
    let Some(part) = value.get(..VALUE_BYTES_MAX) else {
        return value;
    };
    match std::str::from_utf8(part) {
        Err(error) if error.error_len().is_none() => {
            part.get(..error.valid_up_to()).unwrap_or_default()
        }
        _ => part,
    }
}

impl SortKey {
    /// Whether entries come in the reverse of the rule's order.
    pub(crate) fn is_reverse(&self) -> bool {
        self.is_reverse
    }

    /// Appends what entries are in the order of, byte by byte. Takes of `work` what that was.
    pub(crate) fn append<R: Read>(
        &self,
        (schema, form): (&Schema, Form),
        candidate: &mut Candidate<'_, R>,
        work: &mut u64,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut least = Least {
            schema,
            rule: self.rule,
            form,
            normal: Vec::new(),
            least: None,
            work: VALUE_WORK,
        };
        match &self.target {
            Target::Virtual(attribute) => {
                let of_type = attribute.attribute_type(schema);
                let mut values = Values::default();
                let seen = candidate.seen();
                let single = seen.and_then(|seen| seen.single_values_of(of_type));
                if single.is_some() || seen.is_none_or(|seen| seen.searches_type(of_type)) {
                    candidate.compute(*attribute, &mut values)?;
                    for value in values.iter() {
                        least.look_at(value, single);
                    }
                }
            }
            Target::Stored(stored) => look_at_stored(stored, candidate, &mut least)?,
        }
        *work = work.saturating_sub(least.work);
        self.put(least.least.as_deref(), out);
        Ok(())
    }

    /// What entries are in the order of whose least value is this one; `None` if the rule does not fit it.
    pub(crate) fn of_value(
        &self,
        (schema, form): (&Schema, Form),
        value: &[u8],
    ) -> Option<Vec<u8>> {
        let mut normal = Vec::new();
        let normalised = (self.rule).normalise(schema, form.part_of(value), &mut normal);
        normalised.ok()?;
        form.shorten(&mut normal);
        let mut out = Vec::new();
        self.put(Some(&normal), &mut out);
        Some(out)
    }

    /// The ordering index that has the entries in this order, but for those without a value that has a normal form.
    /// What may be found elsewhere than in the index, such as a subtype's values, has none.
    pub(crate) fn index<'s>(
        &self,
        schema: &Schema,
        state: &'s State,
    ) -> Option<&'s AttributeIndexes> {
        let Target::Stored(stored) = &self.target else {
            return None;
        };
        let known = schema.type_of(stored.indexed_type?);
        let indexes = state.indexes.of(known.id())?;
        let is_used = |id: &AttributeTypeId| state.attributes.of_type(*id).next().is_some();
        let mut used = known.subtypes().iter().filter(is_used);
        let has_order =
            |rule: Option<&MatchingRule>| rule.is_some_and(|rule| rule.has_forms_of(self.rule));
        let has_all = indexes.ordering == Completeness::Complete
            && has_order(known.order())
            // Of very many values the first one is the least.
            && has_order(known.equality())
            && used.all(|id| id == known.id());
        has_all.then_some(indexes)
    }

    /// Whether a filter is true of entries alone that stand in the index.
    pub(crate) fn is_asked_for(&self, filter: &Node) -> bool {
        let Target::Stored(own) = &self.target else {
            return false;
        };
        let has_place = |item: &Item| {
            let Target::Stored(stored) = &item.target else {
                return false;
            };
            let has_form = |rule: &MatchingRule| rule.has_forms_of(self.rule);
            stored.indexed_type.is_some()
                && stored.indexed_type == own.indexed_type
                && match &item.test {
                    Test::Present => self.rule.takes_all_values(),
                    Test::Equal(assertion) | Test::AtLeast(assertion) | Test::AtMost(assertion) => {
                        has_form(assertion.rule())
                    }
                    Test::Substrings(pattern) => has_form(pattern.rule()),
                    Test::Before(_) | Test::Sounds(_) | Test::AnyOf(..) => false,
                }
        };
        match filter {
            Node::Item(item) => has_place(item),
            Node::And(nodes) => nodes.iter().any(|node| self.is_asked_for(node)),
            Node::Or(nodes) => {
                !nodes.is_empty() && nodes.iter().all(|node| self.is_asked_for(node))
            }
            _ => false,
        }
    }

    /// Whether a filter asks for a value of the attribute, whichever it is, and for nothing else.
    pub(crate) fn is_all_that_is_asked_for(&self, filter: &Node) -> bool {
        let is_presence = matches!(filter, Node::Item(item) if matches!(item.test, Test::Present));
        is_presence && self.is_asked_for(filter)
    }

    /// What an entry is in the order of that stands under this key of the index, which ends with its id, as
    /// [`append`](Self::append) has it and with the id behind it.
    pub(crate) fn record_of(&self, key: &[u8]) -> Vec<u8> {
        let mut record = Vec::with_capacity(1 + key.len());
        record.push(PRESENT);
        record.extend_from_slice(key);
        self.turn(&mut record);
        record
    }

    /// The key of the index behind which, or before which in reverse, those come that are behind a record; `None` if
    /// they are entries without a value.
    pub(crate) fn key_of(&self, record: &[u8]) -> Option<Vec<u8>> {
        let mut key = record.to_vec();
        self.turn(&mut key);
        (key.first() == Some(&PRESENT)).then(|| key.split_off(1))
    }

    /// What comes behind all entries that have a value, and before all others.
    pub(crate) fn before_absent(&self) -> Vec<u8> {
        vec![ABSENT]
    }

    fn turn(&self, bytes: &mut [u8]) {
        if self.is_reverse {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    fn put(&self, least: Option<&[u8]>, out: &mut Vec<u8>) {
        let from = out.len();
        match least {
            Some(least) => {
                out.push(PRESENT);
                append_escaped(out, least);
            }
            None => out.push(ABSENT),
        }
        self.turn(out.get_mut(from..).unwrap_or_default());
    }
}

fn look_at_stored<R: Read>(
    stored: &Stored,
    candidate: &mut Candidate<'_, R>,
    least: &mut Least<'_>,
) -> Result<()> {
    let seen = candidate.seen();
    let may_look = |number: AttributeNo| seen.is_none_or(|seen| !seen.hides(number));
    let single = |number: AttributeNo| seen.and_then(|seen| seen.single_values(number));
    let look = |record: &Entry<'_>, has: &dyn Fn(AttributeNo) -> bool, least: &mut Least<'_>| {
        for attribute in record.attributes() {
            let attribute = attribute?;
            if has(attribute.number()) && may_look(attribute.number()) {
                let single = single(attribute.number());
                let values = attribute.values();
                for value in values.iter() {
                    least.look_at(value, single);
                }
            }
        }
        Ok::<(), Damaged>(())
    };
    if !stored.user.is_empty() {
        let has = |number| stored.user.has(number);
        look(candidate.entry(), &has, least).map_err(|damaged| candidate.damaged(damaged))?;
        for large in candidate.entry().large() {
            if has(large.number) && may_look(large.number) {
                let known = candidate.type_of(large.number);
                // They are kept by the normal forms of the equality rule.
                let is_in_order = known
                    .and_then(AttributeType::equality)
                    .is_some_and(|equality| equality.has_forms_of(least.rule));
                let single = single(large.number);
                let mut values = candidate.large_values(large.number, None)?;
                for _ in 0..VALUES_MAX {
                    let Some((_, value)) = values.next()? else {
                        break;
                    };
                    if least.look_at(value, single) && is_in_order {
                        break;
                    }
                }
            }
        }
    }
    if !stored.operational.is_empty() {
        let has = |number| stored.operational.has(number);
        let record = candidate.operational()?;
        look(&record, &has, least).map_err(|damaged| candidate.damaged(damaged))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(beginning(b"short"), b"short");
        let long = "x".repeat(VALUE_BYTES_MAX - 1) + "ü and more";
        assert_eq!(beginning(long.as_bytes()).len(), VALUE_BYTES_MAX - 1);
        let bytes = vec![0xff; VALUE_BYTES_MAX + 1];
        assert_eq!(beginning(&bytes).len(), VALUE_BYTES_MAX);
    }
}
