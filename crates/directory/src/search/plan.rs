//! Choosing where candidates come from.
//!
//! Every indexed item of the filter is asked how many entries it would give. The cheapest drives, the next cheapest
//! are intersected with it while they are selective, and the whole filter is evaluated on each entry that is left: an
//! index may answer with too many, never with too few.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::fmt;

use crate::engine::{Cursor, Direction, EntryId, Index, IndexKind, Postings, Range, Read, Table};
use crate::error::{Error, Result};
use crate::indexes::{self, AttributeIndexes, Completeness};
use crate::schema::{Assertion, AttributeTypeId, Schema, SubstringPattern};
use crate::search::filter::{Item, Node, Target, Test, Truth};
use crate::state::State;
use crate::steps;

/// A list joins an intersection when it has at most so many times the ids of the shortest: looking it up costs about
/// as much as evaluating the filter on one entry.
const SELECTIVE_FACTOR: u64 = 16;
/// Most lists of an intersection.
const INTERSECTED_MAX: usize = 8;
/// Terms of a union that are looked at one by one for each candidate.
const UNION_SMALL_MAX: usize = 8;
/// Most ids that the ranges of ordering indexes may give in all: they are kept in memory, sorted, while the search
/// lasts.
const RANGE_IDS_MAX: u64 = 1 << 17;
/// Most lists that the parts of one substrings assertion ask for: of a text of some ten words each. More tell little
/// more.
const GRAMS_MAX: usize = 64;
/// Work of asking an index for a list, in about as many nanoseconds.
const LIST_WORK: u64 = 1 << 10;

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
    /// The ids of any of these.
    Union(Vec<Term>),
    /// The ids of all of these; the first has the fewest.
    Intersection(Vec<Term>),
    /// These ids, ascending.
    Ids(Vec<EntryId>),
}

impl Term {
    /// No candidates.
    pub(crate) const NOTHING: Term = Term::Ids(Vec::new());

    /// About how many ids there are, at most.
    pub(crate) fn cardinality(&self) -> u64 {
        match self {
            Term::List { cardinality, .. } | Term::Range { cardinality, .. } => *cardinality,
            Term::Union(terms) => terms.iter().map(Term::cardinality).sum(),
            Term::Intersection(terms) => terms.first().map_or(0, Term::cardinality),
            Term::Ids(ids) => ids.len() as u64,
        }
    }
}

/// What a person asks a plan for: which indexes drive, and how many entries they were expected to give.
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

/// How far the planning of a filter has come. A filter may have tens of thousands of items, each of which asks an
/// index.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The ands and ors that were begun, the innermost first: the component to go on with, and the terms of those
    /// before.
    begun: Vec<(usize, Vec<Term>)>,
    /// Lists that were asked for in this step.
    lists: Cell<u64>,
}

/// What the indexes say of a filter.
#[derive(Debug)]
pub(crate) enum Planned {
    /// The candidates.
    Term(Term),
    /// They cannot tell.
    Untold,
    /// The work of the step is used up.
    Interrupted,
}

impl<R: Read> Planner<'_, R> {
    /// The candidates of a filter, as far as this much work tells; when it is used up, `progress` is where to go on.
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
                    match self.node(node, progress, lists_max)? {
                        Planned::Term(term) => terms.push(term),
                        Planned::Untold => {}
                        Planned::Interrupted => {
                            progress.begun.push((at, terms));
                            return Ok(Planned::Interrupted);
                        }
                    }
                }
                Ok(intersection(terms).map_or(Planned::Untold, Planned::Term))
            }
            Node::Or(nodes) => self.any(nodes, progress, lists_max),
            Node::AnyOf(any_of) => self.any(&any_of.each, progress, lists_max),
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
            match self.node(node, progress, lists_max)? {
                Planned::Term(Term::Union(parts)) => terms.extend(parts),
                Planned::Term(term) => terms.push(term),
                Planned::Untold => return Ok(Planned::Untold),
                Planned::Interrupted => {
                    progress.begun.push((at, terms));
                    return Ok(Planned::Interrupted);
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
        let Target::Stored(stored) = &item.target else {
            return Ok(None);
        };
        let Some(attribute_type) = stored.indexed_type else {
            return Ok(None);
        };
        let mut terms = Vec::new();
        for subtype in self.schema.type_of(attribute_type).subtypes().iter() {
            // A type that no entry ever had needs no index.
            if self.state.attributes.of_type(subtype).next().is_none() {
                continue;
            }
            let Some(indexes) = self.state.indexes.of(subtype) else {
                return Ok(None);
            };
            match self.of_type(indexes, &item.test, asked)? {
                Some(term) => terms.push(term),
                None => return Ok(None),
            }
        }
        Ok(Some(match terms.pop() {
            Some(term) if terms.is_empty() => term,
            Some(term) => {
                terms.push(term);
                Term::Union(terms)
            }
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
            Node::Not(_) | Node::Constant(_) => {}
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

    /// Reads the ranges of a term that is going to drive; `None` when they hold too much.
    pub(crate) fn with_ranges_read(&self, term: Term) -> Result<Option<Term>> {
        self.ranges_read(term, &mut { RANGE_IDS_MAX })
    }

    /// The same, with so many ids at most.
    fn ranges_read(&self, term: Term, ids_max: &mut u64) -> Result<Option<Term>> {
        Ok(match term {
            Term::Range { cardinality, .. } if cardinality > *ids_max => None,
            Term::Range {
                table,
                from,
                to,
                cardinality,
            } => {
                *ids_max -= cardinality;
                Some(Term::Ids(self.range_ids(table, &from, to.as_deref())?))
            }
            Term::Union(terms) => {
                let mut read = Vec::with_capacity(terms.len());
                for term in terms {
                    match self.ranges_read(term, ids_max)? {
                        Some(term) => read.push(term),
                        None => return Ok(None),
                    }
                }
                Some(Term::Union(read))
            }
            Term::Intersection(terms) => {
                let mut read = Vec::with_capacity(terms.len());
                for term in terms {
                    read.extend(self.ranges_read(term, ids_max)?);
                }
                intersection(read)
            }
            term => Some(term),
        })
    }

    fn range_ids(&self, table: Table, from: &[u8], to: Option<&[u8]>) -> Result<Vec<EntryId>> {
        let mut ids = Vec::new();
        let mut keys = self
            .view
            .scan(table, bounds(from, to), Direction::Forward)?;
        while let Some((key, _)) = keys.next()? {
            let id = key
                .last_chunk::<8>()
                .and_then(|id| EntryId::from_key(id))
                .ok_or_else(|| Error::corrupt("a key of an ordering index has no id"))?;
            ids.push(id);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

fn bounds<'b>(from: &'b [u8], to: Option<&'b [u8]>) -> Range<'b> {
    match to {
        Some(to) => Range::between(from, to),
        None => Range::from(from),
    }
}

/// What any of the terms gives. Of many, the lists that are few ids become one, and those that are there twice are left
/// out: what is left costs at each step of the search.
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

/// The shortest list and those selective enough to be worth looking up beside it.
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
                && !matches!(term, Term::Range { .. }))
    });
    if terms.len() == 1 {
        terms.pop()
    } else {
        Some(Term::Intersection(terms))
    }
}

/// The ids of a term being read in ascending order.
pub(crate) enum Stream<'s, R: Read + 's> {
    List {
        postings: R::Postings<'s>,
        current: Option<EntryId>,
        begun: bool,
    },
    Union(Vec<Stream<'s, R>>),
    Merged(Merged<'s, R>),
    Intersection(Vec<Stream<'s, R>>),
    Ids(&'s [EntryId]),
}

/// A union of many: each seek goes on with those alone that are behind.
pub(crate) struct Merged<'s, R: Read> {
    streams: Vec<Stream<'s, R>>,
    /// The next id of each that has one, the least on top; of none before the first seek.
    next: BinaryHeap<Reverse<(EntryId, usize)>>,
    begun: bool,
}

impl<'s, R: Read> Merged<'s, R> {
    fn new(streams: Vec<Stream<'s, R>>) -> Merged<'s, R> {
        Merged {
            streams,
            next: BinaryHeap::new(),
            begun: false,
        }
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        if !self.begun {
            self.begun = true;
            for (at, stream) in self.streams.iter_mut().enumerate() {
                steps::count(1);
                self.next
                    .extend(stream.seek(id)?.map(|next| Reverse((next, at))));
            }
        }
        while let Some(mut top) = self.next.peek_mut() {
            let Reverse((next, at)) = *top;
            if next >= id {
                return Ok(Some(next));
            }
            steps::count(1);
            match self.streams[at].seek(id)? {
                Some(next) => *top = Reverse((next, at)),
                None => drop(PeekMut::pop(top)),
            }
        }
        Ok(None)
    }
}

impl<'s, R: Read> Stream<'s, R> {
    /// Opens a term, whose ranges were read.
    pub(crate) fn open(view: &'s R, term: &'s Term) -> Result<Stream<'s, R>> {
        let many = |terms: &'s [Term]| {
            terms
                .iter()
                .map(|term| Stream::open(view, term))
                .collect::<Result<Vec<_>>>()
        };
        Ok(match term {
            Term::List { few, .. } if !few.is_empty() => Stream::Ids(few),
            Term::List { index, key, .. } => Stream::List {
                postings: view.postings(*index, key)?,
                current: None,
                begun: false,
            },
            Term::Union(terms) if terms.len() > UNION_SMALL_MAX => {
                Stream::Merged(Merged::new(many(terms)?))
            }
            Term::Union(terms) => Stream::Union(many(terms)?),
            Term::Intersection(terms) => Stream::Intersection(many(terms)?),
            Term::Ids(ids) => Stream::Ids(ids),
            // A range that was too large to be read does not drive, and never stands in an intersection.
            Term::Range { .. } => Stream::Ids(&[]),
        })
    }

    /// The first id from `id` on. Never goes back: `id` must not descend from call to call.
    pub(crate) fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        match self {
            Stream::List {
                postings,
                current,
                begun,
            } => {
                if !*begun || current.is_some_and(|current| current < id) {
                    *current = postings.seek(id)?;
                    *begun = true;
                }
                Ok(*current)
            }
            Stream::Ids(ids) => {
                let passed = ids.partition_point(|known| *known < id);
                *ids = &ids[passed..];
                Ok(ids.first().copied())
            }
            Stream::Union(streams) => {
                let mut least = None;
                for stream in streams {
                    if let Some(next) = stream.seek(id)? {
                        least = Some(least.map_or(next, |least: EntryId| least.min(next)));
                    }
                }
                Ok(least)
            }
            Stream::Merged(merged) => merged.seek(id),
            Stream::Intersection(streams) => {
                let mut wanted = id;
                'candidate: loop {
                    let Some((first, others)) = streams.split_first_mut() else {
                        return Ok(None);
                    };
                    let Some(candidate) = first.seek(wanted)? else {
                        return Ok(None);
                    };
                    for other in others {
                        match other.seek(candidate)? {
                            Some(found) if found == candidate => {}
                            Some(found) => {
                                wanted = found;
                                continue 'candidate;
                            }
                            None => return Ok(None),
                        }
                    }
                    return Ok(Some(candidate));
                }
            }
        }
    }
}
