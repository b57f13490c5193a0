//! Choosing where candidates come from. `stream` reads their lists, `classes` finds all entries of a class, and
//! `missing` tells which indexes would help.
//!
//! The planner asks the index of each item of the filter how many entries it would give. The shortest list drives the
//! search. It is intersected with the next shortest ones while that pays. The whole filter is then evaluated on each
//! entry that is left, since an index may give too many entries, but never too few.

pub(crate) mod classes;
mod few;
mod members;
pub(crate) mod missing;
pub(crate) mod stream;

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use self::members::{MembersRead, Nested};
use crate::engine::{
    AttributeNo, Cursor, Direction, EntryId, Index, IndexKind, Range, Read, Table,
};
use crate::error::{Error, Result};
use crate::indexes::{self, AttributeIndexes, Completeness};
use crate::matching::filter::{Item, Node, Target, Test, Truth};
use crate::schema::{Assertion, AttributeTypeId, Schema, SoundPattern, SubstringPattern};
use crate::state::State;
use crate::steps;

/// A list joins an intersection when it has at most this many times the ids of the shortest. A look-up in it costs
/// about as much as evaluating the filter on one entry.
const SELECTIVE_FACTOR: u64 = 16;
/// Most lists of an intersection.
const INTERSECTED_MAX: usize = 8;
/// Terms of a union that are looked at one by one for each candidate.
const UNION_SMALL_MAX: usize = 8;
/// The most ids that all ranges of ordering indexes may give together. They stay in memory, sorted, until the search
/// ends.
const RANGE_IDS_MAX: u64 = 1 << 17;
/// The most lists that one substrings assertion asks for, which is enough for a text of some ten words. More lists
/// hardly narrow the result.
const GRAMS_MAX: usize = 64;
/// The most lists that one approximate assertion asks for; see [`GRAMS_MAX`].
const SOUNDS_MAX: usize = 16;
/// What it costs to ask an index for a list, in nanoseconds.
const LIST_WORK: u64 = 1 << 10;
/// What it costs to read an id of a range and to sort it among thousands, in nanoseconds.
const ID_WORK: u64 = 1 << 7;
/// A step that stops amid a range sorts what it has read into a list of its own once it has this many ids. To sort a
/// long range at once would take longer than a step may.
const SORTED_IDS_MIN: usize = 1 << 12;

/// A set of candidate ids, as a formula over posting lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// The ids under one key of an index.
    List {
        index: Index,
        key: Vec<u8>,
        cardinality: u64,
        /// The ids themselves, if they are few.
        few: Vec<EntryId>,
    },
    /// The ids of a range of an ordering index.
    Range {
        table: Table,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
        cardinality: u64,
    },
    /// The members that a group has in a large attribute.
    Members {
        group: EntryId,
        number: AttributeNo,
        cardinality: u64,
    },
    /// The members of a group, and of groups in it.
    Nested { group: EntryId, cardinality: u64 },
    /// The ids of any of these.
    Union(Vec<Term>),
    /// The ids of all of these; the first has the fewest.
    Intersection(Vec<Term>),
    /// These ids, ascending.
    Ids(Vec<EntryId>),
}

impl Default for Term {
    fn default() -> Self {
        Term::NOTHING
    }
}

impl Term {
    /// Whether it may contain ranges. Those are read before the term can drive.
    pub(crate) fn may_have_ranges(&self) -> bool {
        !matches!(self, Term::List { .. } | Term::Ids(_))
    }

    /// No candidates.
    pub(crate) const NOTHING: Term = Term::Ids(Vec::new());

    /// An upper estimate of the number of ids.
    pub(crate) fn cardinality(&self) -> u64 {
        match self {
            Term::List { cardinality, .. }
            | Term::Range { cardinality, .. }
            | Term::Members { cardinality, .. }
            | Term::Nested { cardinality, .. } => *cardinality,
            Term::Union(terms) => terms.iter().map(Term::cardinality).sum(),
            Term::Intersection(terms) => terms.first().map_or(0, Term::cardinality),
            Term::Ids(ids) => ids.len() as u64,
        }
    }
}

/// The plan as it is shown to people: the indexes that drive, and how many entries each was expected to give.
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = |f: &mut fmt::Formatter<'_>, word: &str, terms: &[Term]| {
            write!(f, "({word}")?;
            terms.iter().try_for_each(|term| write!(f, " {term}"))?;
            write!(f, ")")
        };
        match self {
            Term::List {
                index,
                key,
                cardinality,
                ..
            } => {
                write!(
                    f,
                    "{}[{}]={cardinality}",
                    index.name().as_str(),
                    key.escape_ascii()
                )
            }
            Term::Range {
                table, cardinality, ..
            } => write!(f, "{}={cardinality}", table.name().as_str()),
            Term::Members {
                group, cardinality, ..
            } => write!(f, "members[{group}]={cardinality}"),
            Term::Nested { group, cardinality } => write!(f, "nested[{group}]={cardinality}"),
            Term::Union(terms) => many(f, "or", terms),
            Term::Intersection(terms) => many(f, "and", terms),
            Term::Ids(ids) => write!(f, "ids={}", ids.len()),
        }
    }
}

/// Turns filters into terms.
pub(crate) struct Planner<'p, R: Read> {
    pub(crate) schema: &'p Schema,
    pub(crate) state: &'p State,
    pub(crate) view: &'p R,
}

/// The state of planning between two steps. A filter may have tens of thousands of items, and each asks an index.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The ands and ors under way, the innermost first: the next component, and the terms of the components before it.
    begun: Vec<(usize, Vec<Term>)>,
    /// How many lists this step has asked for.
    lists: Cell<u64>,
    /// The driving term is known, and its ranges are being read.
    pub(crate) reader: Option<Box<RangeReader>>,
}

/// What the indexes say of a filter.
#[derive(Debug)]
pub(crate) enum Planned {
    /// The candidates.
    Term(Term),
    /// No index can tell.
    Untold,
    /// The step has used up its work.
    Interrupted,
}

impl<R: Read> Planner<'_, R> {
    /// Finds the candidates of a filter within this much work. When that does not suffice, `progress` says where to go
    /// on.
    pub(crate) fn plan(&self, node: &Node, progress: &mut Progress, work: u64) -> Result<Planned> {
        progress.lists.set(0);
        self.node(node, progress, work / LIST_WORK)
    }

    fn node(&self, node: &Node, progress: &mut Progress, lists_max: u64) -> Result<Planned> {
        match node {
            Node::Constant(Truth::True) | Node::Not(_) => Ok(Planned::Untold),
            Node::Constant(Truth::False | Truth::Undefined) => Ok(Planned::Term(Term::NOTHING)),
            Node::And(nodes) => {
                let (first, mut terms) = progress.begun.pop().unwrap_or_default();
                for (at, node) in nodes.iter().enumerate().skip(first) {
                    match self.node(node, progress, lists_max) {
                        Ok(Planned::Term(term)) => terms.push(term),
                        Ok(Planned::Untold) => {}
                        // The error may be `NotHere`.
                        stopped @ (Ok(Planned::Interrupted) | Err(_)) => {
                            progress.begun.push((at, terms));
                            return stopped;
                        }
                    }
                }
                Ok(intersection(terms).map_or(Planned::Untold, Planned::Term))
            }
            Node::Or(nodes) => self.any(nodes, progress, lists_max),
            Node::AnyOf(any_of) => self.any(&any_of.each, progress, lists_max),
            Node::InChain(chain) => {
                let term = members::chain_term(self, chain, &progress.lists)?;
                Ok(term.map_or(Planned::Untold, Planned::Term))
            }
            Node::Item(item) => {
                if progress.lists.get() > lists_max {
                    return Ok(Planned::Interrupted);
                }
                let term = self.item(item, &progress.lists)?;
                Ok(term.map_or(Planned::Untold, Planned::Term))
            }
        }
    }

    /// The candidates of any of some components.
    fn any(&self, nodes: &[Node], progress: &mut Progress, lists_max: u64) -> Result<Planned> {
        let begun = progress.begun.pop();
        let (first, mut terms) = begun.unwrap_or_else(|| (0, Vec::with_capacity(nodes.len())));
        for (at, node) in nodes.iter().enumerate().skip(first) {
            match self.node(node, progress, lists_max) {
                Ok(Planned::Term(Term::Union(parts))) => terms.extend(parts),
                Ok(Planned::Term(term)) => terms.push(term),
                Ok(Planned::Untold) => return Ok(Planned::Untold),
                stopped @ (Ok(Planned::Interrupted) | Err(_)) => {
                    progress.begun.push((at, terms));
                    return stopped;
                }
            }
        }
        Ok(Planned::Term(union(terms)))
    }

    /// The ids under one key of an equality index; `None` when there is no such index.
    pub(crate) fn equality(
        &self,
        attribute_type: AttributeTypeId,
        normal: &[u8],
    ) -> Result<Option<Term>> {
        let Some(indexes) = self.state.indexes.of(attribute_type) else {
            return Ok(None);
        };
        if indexes.equality != Completeness::Complete {
            return Ok(None);
        }
        self.list(
            indexes.index(IndexKind::Equality),
            indexes::equality_key(normal),
        )
        .map(Some)
    }

    fn item(&self, item: &Item, asked: &Cell<u64>) -> Result<Option<Term>> {
        let stored = match &item.target {
            Target::Stored(stored) => stored,
            Target::Virtual(attribute) => return members::term(self, *attribute, item, asked),
        };
        let Some(attribute_type) = stored.indexed_type else {
            return Ok(None);
        };
        // There is usually only one.
        let (mut first, mut others) = (None, Vec::new());
        for subtype in self.schema.type_of(attribute_type).subtypes().iter() {
            // No entry ever had this type, so that nothing is missing without an index.
            if self.state.attributes.of_type(subtype).next().is_none() {
                continue;
            }
            let Some(indexes) = self.state.indexes.of(subtype) else {
                return Ok(None);
            };
            match self.of_type(indexes, &item.test, asked)? {
                None => return Ok(None),
                term if first.is_none() => first = term,
                Some(term) => others.push(term),
            }
        }
        // What URLs find is in no index: all that have URLs are looked at.
        if let Some(groups) = self.state.attributes.dynamic_groups() {
            for member in groups.members() {
                let mut numbers = self.state.attributes.numbers_of(member).iter();
                if !numbers.any(|number| stored.user.has(*number)) {
                    continue;
                }
                for class in groups.classes_with(member) {
                    match classes::complete_term(self, class)? {
                        Some(term) => others.push(term),
                        None => return Ok(None),
                    }
                }
            }
        }
        Ok(Some(match first {
            Some(term) if others.is_empty() => term,
            Some(term) => {
                others.insert(0, term);
                Term::Union(others)
            }
            None if !others.is_empty() => Term::Union(others),
            None => Term::NOTHING,
        }))
    }

    fn of_type(
        &self,
        indexes: &AttributeIndexes,
        test: &Test,
        asked: &Cell<u64>,
    ) -> Result<Option<Term>> {
        steps::count(1);
        asked.set(asked.get() + 1);
        let attribute_type = self.schema.type_of(indexes.attribute_type);
        match test {
            Test::Present if indexes.presence == Completeness::Complete => self
                .list(indexes.index(IndexKind::Presence), Vec::new())
                .map(Some),
            Test::Equal(assertion) if self.answers(indexes, assertion) => {
                let key = indexes::equality_key(assertion.key());
                self.list(indexes.index(IndexKind::Equality), key).map(Some)
            }
            Test::Substrings(pattern)
                if indexes.substring == Completeness::Complete
                    && attribute_type
                        .substrings()
                        .is_some_and(|rule| rule.oid() == pattern.rule().oid()) =>
            {
                self.grams(indexes, pattern, asked)
            }
            Test::Sounds(pattern)
                if indexes.approximate == Completeness::Complete
                    && attribute_type
                        .equality()
                        .is_some_and(|rule| rule.has_forms_of(pattern.rule())) =>
            {
                self.sounds(indexes, pattern, asked)
            }
            Test::AtLeast(assertion) | Test::AtMost(assertion)
                if indexes.ordering == Completeness::Complete
                    && attribute_type
                        .ordering()
                        .is_some_and(|rule| rule.oid() == assertion.rule().oid()) =>
            {
                self.range(indexes, assertion, matches!(test, Test::AtLeast(_)))
                    .map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether the index for equality has what an assertion asks for.
    fn answers(&self, indexes: &AttributeIndexes, assertion: &Assertion) -> bool {
        let attribute_type = self.schema.type_of(indexes.attribute_type);
        indexes.equality == Completeness::Complete
            && assertion.rule().is_indexable()
            && attribute_type
                .equality()
                .is_some_and(|rule| rule.oid() == assertion.rule().oid())
    }

    /// The lists of indexes for equality that [`term`](Self::term) asks for.
    pub(crate) fn equal_lists(&self, node: &Node, each: &mut impl FnMut(Index, Vec<u8>)) {
        match node {
            Node::And(nodes) | Node::Or(nodes) => {
                for node in nodes {
                    self.equal_lists(node, each);
                }
            }
            Node::AnyOf(any_of) => {
                for node in &any_of.each {
                    self.equal_lists(node, each);
                }
            }
            Node::Item(item) => {
                if let (Target::Stored(stored), Test::Equal(assertion)) = (&item.target, &item.test)
                    && let Some(attribute_type) = stored.indexed_type
                {
                    for subtype in self.schema.type_of(attribute_type).subtypes().iter() {
                        let indexes = self.state.indexes.of(subtype);
                        if let Some(indexes) = indexes.filter(|of| self.answers(of, assertion)) {
                            let key = indexes::equality_key(assertion.key());
                            each(indexes.index(IndexKind::Equality), key);
                        }
                    }
                }
            }
            Node::Not(_) | Node::Constant(_) | Node::InChain(_) => {}
        }
    }

    fn list(&self, index: Index, key: Vec<u8>) -> Result<Term> {
        let mut few = Vec::new();
        let cardinality = self.view.cardinality(index, &key, &mut few)?;
        Ok(Term::List {
            index,
            key,
            cardinality,
            few,
        })
    }

    fn grams(
        &self,
        indexes: &AttributeIndexes,
        pattern: &SubstringPattern,
        asked: &Cell<u64>,
    ) -> Result<Option<Term>> {
        let index = indexes.index(IndexKind::Substring);
        let mut lists = Vec::new();
        for key in indexes::substring_keys(pattern, GRAMS_MAX) {
            lists.push(self.list(index, key.to_vec())?);
        }
        steps::count(lists.len());
        asked.set(asked.get() + lists.len() as u64);
        Ok(intersection(lists))
    }

    fn sounds(
        &self,
        indexes: &AttributeIndexes,
        pattern: &SoundPattern,
        asked: &Cell<u64>,
    ) -> Result<Option<Term>> {
        let index = indexes.index(IndexKind::Approximate);
        let mut lists = Vec::new();
        for code in pattern.codes().iter().take(SOUNDS_MAX) {
            lists.push(self.list(index, code.clone().into_bytes())?);
        }
        steps::count(lists.len());
        asked.set(asked.get() + lists.len() as u64);
        Ok(intersection(lists))
    }

    fn range(
        &self,
        indexes: &AttributeIndexes,
        assertion: &Assertion,
        at_least: bool,
    ) -> Result<Term> {
        let (from, to) = match at_least {
            true => (indexes::ordering_from(assertion.key()), None),
            false => (Vec::new(), indexes::ordering_to(assertion.key())),
        };
        let table = indexes.order_table();
        let cardinality = self.view.estimate(table, bounds(&from, to.as_deref()))?;
        Ok(Term::Range {
            table,
            from,
            to,
            cardinality,
        })
    }

    /// Drops the ranges that are too long from the term that is to drive. The others are then [read](RangeReader).
    /// `None` when nothing of the term is left.
    pub(crate) fn with_small_ranges(&self, term: Term) -> Option<RangeReader> {
        let mut reader = RangeReader::default();
        reader.term = small_ranges(term, &mut { RANGE_IDS_MAX }, &mut reader.ranges)?;
        reader.ranges.reverse();
        Some(reader)
    }
}

/// Takes the bounds of the ranges out of a term, but for ranges that are too long.
fn small_ranges(term: Term, ids_max: &mut u64, ranges: &mut Vec<IdSource>) -> Option<Term> {
    match term {
        Term::Range { cardinality, .. } if cardinality > *ids_max => None,
        Term::Range {
            table,
            from,
            to,
            cardinality,
        } => {
            *ids_max -= cardinality;
            ranges.push(IdSource::Order(IdRange { table, from, to }));
            Some(Term::Range {
                table,
                from: Vec::new(),
                to: None,
                cardinality,
            })
        }
        Term::Union(terms) => {
            let mut small = Vec::with_capacity(terms.len());
            for term in terms {
                small.push(small_ranges(term, ids_max, ranges)?);
            }
            Some(Term::Union(small))
        }
        Term::Nested { cardinality, .. } if cardinality > *ids_max => None,
        Term::Nested { group, cardinality } => {
            *ids_max -= cardinality;
            ranges.push(IdSource::Nested(Nested::of(group)));
            Some(term)
        }
        Term::Members { cardinality, .. } if cardinality > *ids_max => None,
        Term::Members {
            group,
            number,
            cardinality,
        } => {
            *ids_max -= cardinality;
            ranges.push(IdSource::Members(MembersRead::of(group, number)));
            Some(term)
        }
        Term::Intersection(terms) => {
            let mut small = Vec::with_capacity(terms.len());
            for term in terms {
                let (ids_before, before) = (*ids_max, ranges.len());
                match small_ranges(term, ids_max, ranges) {
                    Some(term) => small.push(term),
                    // Nothing has been read of what this part asked for.
                    None => {
                        *ids_max = ids_before;
                        ranges.truncate(before);
                    }
                }
            }
            match small.len() {
                0 | 1 => small.pop(),
                _ => Some(Term::Intersection(small)),
            }
        }
        term => Some(term),
    }
}

/// Reads the ids of the ranges of a term, thousands at a time, and puts them in place of the ranges. There may be up to
/// [a hundred thousand](RANGE_IDS_MAX).
#[derive(Debug, Default)]
pub(crate) struct RangeReader {
    term: Term,
    /// The ranges to be read, the next one last. What was read of it is cut off.
    ranges: Vec<IdSource>,
    /// The ids that were read of the next range and are not sorted yet.
    ids: Vec<EntryId>,
    /// The sorted lists of ids that earlier steps have read of it.
    lists: Vec<Term>,
    /// The ids of the ranges that are complete.
    read: Vec<Term>,
    /// Whether groups turned out to have too many members for that: no index can tell then.
    pub(crate) has_too_many: bool,
}

/// Where ids are read.
#[derive(Debug)]
enum IdSource {
    /// In an ordering index.
    Order(IdRange),
    /// Among the values of a group.
    Members(MembersRead),
    /// The same, and among those of the groups in it.
    Nested(Nested),
}

#[derive(Debug)]
struct IdRange {
    table: Table,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl RangeReader {
    /// Reads on for this much work. Returns the term when all ranges are read, unless there are [too
    /// many](Self::has_too_many) ids.
    pub(crate) fn go_on<R: Read>(
        &mut self,
        planner: &Planner<'_, R>,
        work: u64,
    ) -> Result<Option<Term>> {
        let mut left = work / ID_WORK + 1;
        while let Some(source) = self.ranges.last_mut() {
            let before = self.ids.len();
            let read = match source {
                IdSource::Order(range) => range.go_on(planner.view, &mut left, &mut self.ids),
                IdSource::Members(members) => members.go_on(planner, &mut left, &mut self.ids),
                IdSource::Nested(nested) => nested.go_on(planner, &mut left, &mut self.ids),
            };
            if let IdSource::Nested(nested) = source
                && nested.has_too_many
            {
                self.has_too_many = true;
                return Ok(None);
            }
            if read.is_err() {
                // Nothing of this step is kept: it is repeated once the missing record is here.
                self.ids.truncate(before);
            }
            if !read? {
                if self.ids.len() >= SORTED_IDS_MIN {
                    self.sort();
                }
                return Ok(None);
            }
            self.ranges.pop();
            self.sort();
            let mut lists = std::mem::take(&mut self.lists);
            self.read.push(match lists.pop() {
                Some(only) if lists.is_empty() => only,
                last => {
                    lists.extend(last);
                    Term::Union(lists)
                }
            });
        }
        let mut term = std::mem::take(&mut self.term);
        put_ids(&mut term, &mut std::mem::take(&mut self.read).into_iter());
        Ok(Some(term))
    }

    /// Sorts the ids that were read into one list.
    fn sort(&mut self) {
        let mut ids = std::mem::take(&mut self.ids);
        steps::count(ids.len());
        ids.sort_unstable();
        ids.dedup();
        self.lists.push(Term::Ids(ids));
    }
}

impl IdRange {
    /// Reads at most as many ids as the step may. Returns whether the range is at its end.
    fn go_on<R: Read>(&mut self, view: &R, left: &mut u64, ids: &mut Vec<EntryId>) -> Result<bool> {
        let bounds = bounds(&self.from, self.to.as_deref());
        let mut keys = view.scan(self.table, bounds, Direction::Forward)?;
        let rest = loop {
            let Some((key, _)) = keys.next()? else {
                return Ok(true);
            };
            if *left == 0 {
                break key.to_vec();
            }
            *left -= 1;
            steps::count(1);
            let id = key
                .last_chunk::<8>()
                .and_then(|id| EntryId::from_key(id))
                .ok_or_else(|| Error::corrupt("a key of an ordering index has no id"))?;
            ids.push(id);
        };
        drop(keys);
        self.from = rest;
        Ok(false)
    }
}

/// Puts lists of ids in place of the ranges. Both come in the same order.
fn put_ids(term: &mut Term, read: &mut impl Iterator<Item = Term>) {
    match term {
        Term::Range { .. } | Term::Members { .. } | Term::Nested { .. } => {
            *term = read.next().unwrap_or_default()
        }
        Term::Union(terms) | Term::Intersection(terms) => {
            terms.iter_mut().for_each(|term| put_ids(term, read));
        }
        Term::List { .. } | Term::Ids(_) => {}
    }
}

fn bounds<'b>(from: &'b [u8], to: Option<&'b [u8]>) -> Range<'b> {
    match to {
        Some(to) => Range::between(from, to),
        None => Range::from(from),
    }
}

/// The union of some terms. With many terms, short lists are joined into one, and lists that occur twice are dropped.
fn union(mut terms: Vec<Term>) -> Term {
    if terms.len() <= UNION_SMALL_MAX {
        return Term::Union(terms);
    }
    steps::count(terms.len());
    let mut ids = Vec::new();
    let mut lists = HashSet::new();
    terms.retain_mut(|term| match term {
        Term::List { few, .. } if !few.is_empty() => {
            ids.append(few);
            false
        }
        Term::List { cardinality: 0, .. } => false,
        Term::List { index, key, .. } => lists.insert((*index, key.clone())),
        Term::Ids(few) => {
            ids.append(few);
            false
        }
        _ => true,
    });
    ids.sort_unstable();
    ids.dedup();
    if terms.is_empty() {
        return Term::Ids(ids);
    }
    terms.push(Term::Ids(ids));
    Term::Union(terms)
}

/// The intersection of the shortest list with those that are short enough to pay.
fn intersection(mut terms: Vec<Term>) -> Option<Term> {
    terms.sort_by_key(Term::cardinality);
    let most = terms
        .first()?
        .cardinality()
        .saturating_mul(SELECTIVE_FACTOR);
    let mut kept = 0;
    terms.retain(|term| {
        kept += 1;
        kept == 1
            || (kept <= INTERSECTED_MAX
                && term.cardinality() <= most
                && !matches!(
                    term,
                    Term::Range { .. } | Term::Members { .. } | Term::Nested { .. }
                ))
    });
    if terms.len() == 1 {
        terms.pop()
    } else {
        Some(Term::Intersection(terms))
    }
}
