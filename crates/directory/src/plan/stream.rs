//! Reading the ids of a term in ascending order, in the steps of a search.
//!
//! A union of many terms continues where the last step stopped. It keeps the next id of each term, and opens only the
//! terms whose ids it passes. So the cost of a step does not depend on the number of terms. The first round, which asks
//! each term for its first id, is spread over steps, too.
//!
//! An intersection of long lists may find no id for a long time. When the [pace](Pace) of the step is spent, the stream
//! returns the id from which the next step goes on, instead of a candidate.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::collections::{BTreeMap, HashMap};

use super::{LIST_WORK, Term, UNION_SMALL_MAX};
use crate::engine::{EntryId, Index, Postings, Read};
use crate::error::Result;
use crate::steps;

/// What it costs to seek an id in a list, in nanoseconds.
const SEEK_WORK: u64 = 1 << 8;

/// How much work a step may still spend on reading lists, in nanoseconds. Each call advances one list by one id at
/// least, even when nothing is left, so that every step makes progress.
#[derive(Debug)]
pub(crate) struct Pace(Cell<u64>);

impl Pace {
    /// A pace for this much work, and for some if this is none.
    pub(crate) fn new(work: u64) -> Pace {
        Pace(Cell::new(work.max(1)))
    }

    pub(crate) fn left(&self) -> u64 {
        self.0.get()
    }

    fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    fn spend(&self, work: u64) {
        self.0.set(self.0.get().saturating_sub(work));
    }
}

/// The answer to a search for the first id from some id on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// No id.
    End,
    /// This is the first one.
    At(EntryId),
    /// There is none before this id. The step has spent its work, and the next one goes on from here.
    From(EntryId),
}

impl Next {
    /// The answer for the union of two terms.
    fn or(self, other: Next) -> Next {
        match (self, other) {
            (Next::End, next) | (next, Next::End) => next,
            (Next::At(one), Next::At(other)) => Next::At(one.min(other)),
            (Next::From(one), Next::From(other)) => Next::From(one.min(other)),
            (Next::At(at), Next::From(from)) | (Next::From(from), Next::At(at)) if from < at => {
                Next::From(from)
            }
            (Next::At(at), Next::From(_)) | (Next::From(_), Next::At(at)) => Next::At(at),
        }
    }
}

/// What is kept of the candidates' lists between the steps of a search.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) kept: Option<Box<Kept>>,
    /// Whether terms are still asked for their first ids. Until then no candidate has been looked at.
    pub(crate) is_beginning: bool,
}

/// A term being read. Its ranges were replaced by ids before.
pub(crate) enum Stream<'s, R: Read> {
    List(List<'s, R>),
    Union(Vec<Stream<'s, R>>),
    Merged(Merged<'s, R>),
    Intersection(Intersection<'s, R>),
    Ids(&'s [EntryId]),
}

/// The ids under one key of an index. The list is opened when it is first asked.
pub(crate) struct List<'s, R: Read> {
    view: &'s R,
    index: Index,
    key: &'s [u8],
    postings: Option<R::Postings<'s>>,
    current: Option<EntryId>,
    begun: bool,
}

/// A union of many.
pub(crate) struct Merged<'s, R: Read> {
    view: &'s R,
    terms: &'s [Term],
    pace: &'s Pace,
    kept: Box<Kept>,
    /// The terms that this step has opened.
    open: HashMap<usize, Stream<'s, R>>,
}

/// The intersection of several terms.
pub(crate) struct Intersection<'s, R: Read> {
    streams: Vec<Stream<'s, R>>,
    pace: &'s Pace,
    /// None is before this id.
    passed: EntryId,
    /// What it costs to ask all of them.
    work: u64,
}

/// What is kept of a stream between the steps of a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Of an intersection: the least id that the next candidate can have.
    passed: EntryId,
    /// Of a union of many: the next id of each term that has one, the least on top. If the flag is set, the term has
    /// not found it yet, and goes on looking from this id.
    next: BinaryHeap<Reverse<(EntryId, bool, usize)>>,
    /// How many of its terms have been asked for their first id.
    begun: usize,
    /// What is kept of its terms, by their positions.
    parts: BTreeMap<usize, Box<Kept>>,
}

impl<'s, R: Read> Stream<'s, R> {
    /// Opens a term, with what was [kept](Stream::close) of it. Reads nothing yet.
    pub(crate) fn open(
        view: &'s R,
        term: &'s Term,
        kept: Option<Box<Kept>>,
        pace: &'s Pace,
    ) -> Stream<'s, R> {
        match term {
            Term::List { few, .. } if !few.is_empty() => Stream::Ids(few),
            Term::List { index, key, .. } => Stream::List(List {
                view,
                index: *index,
                key,
                postings: None,
                current: None,
                begun: false,
            }),
            Term::Union(terms) if terms.len() > UNION_SMALL_MAX => Stream::Merged(Merged {
                view,
                terms,
                pace,
                kept: kept.unwrap_or_default(),
                open: HashMap::new(),
            }),
            Term::Union(terms) => Stream::Union(each(view, terms, kept, pace)),
            Term::Intersection(terms) => {
                let passed = kept.as_ref().map_or(EntryId::ROOT, |kept| kept.passed);
                let streams = each(view, terms, kept, pace);
                Stream::Intersection(Intersection {
                    work: SEEK_WORK * streams.iter().map(Stream::asked).sum::<u64>(),
                    streams,
                    pace,
                    passed,
                })
            }
            Term::Ids(ids) => Stream::Ids(ids),
            // A range that was too long to be read never drives, and is never part of an intersection.
            Term::Range { .. } | Term::Members { .. } | Term::Nested { .. } => Stream::Ids(&[]),
        }
    }

    /// Ends the stream. Returns what another stream on the same snapshot needs to go on, if anything.
    pub(crate) fn close(self) -> Option<Box<Kept>> {
        let (kept, streams): (_, Vec<_>) = match self {
            Stream::List(_) | Stream::Ids(_) => return None,
            Stream::Union(streams) => (None, streams.into_iter().enumerate().collect()),
            Stream::Intersection(Intersection {
                streams, passed, ..
            }) => {
                let kept = (passed != EntryId::ROOT).then(|| {
                    Box::new(Kept {
                        passed,
                        ..Kept::default()
                    })
                });
                (kept, streams.into_iter().enumerate().collect())
            }
            Stream::Merged(merged) => (Some(merged.kept), merged.open.into_iter().collect()),
        };
        let parts = streams.into_iter();
        let parts = parts.filter_map(|(at, stream)| Some((at, stream.close()?)));
        let mut parts = parts.peekable();
        if kept.is_none() && parts.peek().is_none() {
            return None;
        }
        let mut kept = kept.unwrap_or_default();
        kept.parts.extend(parts);
        Some(kept)
    }

    /// How many lists one call asks, without those of unions of many and of intersections, which count for themselves.
    fn asked(&self) -> u64 {
        match self {
            Stream::List(_) | Stream::Ids(_) | Stream::Merged(_) | Stream::Intersection(_) => 1,
            Stream::Union(streams) => streams.iter().map(Stream::asked).sum(),
        }
    }

    /// Asks the terms of unions of many for their first id from `id` on, unless earlier steps did. False when terms are
    /// left and the step has spent its work.
    ///
    /// No other id may be asked for before this is true.
    pub(crate) fn begin(&mut self, id: EntryId) -> Result<bool> {
        match self {
            Stream::List(_) | Stream::Ids(_) => Ok(true),
            Stream::Merged(merged) => merged.begin(id),
            Stream::Union(streams) | Stream::Intersection(Intersection { streams, .. }) => {
                for stream in streams {
                    if !stream.begin(id)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// The first id from `id` on. Never goes back: `id` must not descend from call to call.
    pub(crate) fn seek(&mut self, id: EntryId) -> Result<Next> {
        match self {
            Stream::List(list) => list.seek(id),
            Stream::Ids(ids) => {
                let passed = ids.partition_point(|known| *known < id);
                *ids = &ids[passed..];
                Ok(ids.first().map_or(Next::End, |id| Next::At(*id)))
            }
            Stream::Union(streams) => {
                let mut least = Next::End;
                for stream in streams {
                    least = least.or(stream.seek(id)?);
                }
                Ok(least)
            }
            Stream::Merged(merged) => merged.seek(id),
            Stream::Intersection(intersection) => intersection.seek(id),
        }
    }

    /// The same without a pace, for terms that are a single list.
    pub(crate) fn find(&mut self, mut id: EntryId) -> Result<Option<EntryId>> {
        loop {
            match self.seek(id)? {
                Next::End => return Ok(None),
                Next::At(found) => return Ok(Some(found)),
                Next::From(next) => id = next,
            }
        }
    }
}

/// The streams of a few terms.
fn each<'s, R: Read>(
    view: &'s R,
    terms: &'s [Term],
    kept: Option<Box<Kept>>,
    pace: &'s Pace,
) -> Vec<Stream<'s, R>> {
    let mut parts = kept.map_or_else(BTreeMap::new, |kept| kept.parts);
    let terms = terms.iter().enumerate();
    terms
        .map(|(at, term)| Stream::open(view, term, parts.remove(&at), pace))
        .collect()
}

impl<R: Read> List<'_, R> {
    fn seek(&mut self, id: EntryId) -> Result<Next> {
        if !self.begun || self.current.is_some_and(|current| current < id) {
            let postings = match &mut self.postings {
                Some(postings) => postings,
                None => self
                    .postings
                    .insert(self.view.postings(self.index, self.key)?),
            };
            self.current = postings.seek(id)?;
            self.begun = true;
        }
        Ok(self.current.map_or(Next::End, Next::At))
    }
}

impl<R: Read> Intersection<'_, R> {
    fn seek(&mut self, id: EntryId) -> Result<Next> {
        let Some((first, others)) = self.streams.split_first_mut() else {
            return Ok(Next::End);
        };
        // Stored before the call that may fail: after `NotHere`, too, it goes on from here.
        self.passed = self.passed.max(id);
        'candidate: loop {
            let mut next = first.seek(self.passed)?;
            if let Next::At(candidate) = next {
                for other in &mut *others {
                    match other.seek(candidate)? {
                        Next::At(found) if found == candidate => {}
                        Next::At(found) => {
                            steps::count(1);
                            self.pace.spend(self.work);
                            self.passed = found;
                            if self.pace.is_spent() {
                                return Ok(Next::From(found));
                            }
                            continue 'candidate;
                        }
                        stopped => {
                            next = stopped;
                            break;
                        }
                    }
                }
            }
            self.passed = match next {
                Next::At(id) | Next::From(id) => id,
                Next::End => EntryId(u64::MAX),
            };
            return Ok(next);
        }
    }
}

impl<R: Read> Merged<'_, R> {
    fn begin(&mut self, id: EntryId) -> Result<bool> {
        let kept = &mut *self.kept;
        while let Some(term) = self.terms.get(kept.begun) {
            if self.pace.is_spent() {
                return Ok(false);
            }
            steps::count(1);
            let at = kept.begun;
            let mut part = Stream::open(self.view, term, kept.parts.remove(&at), self.pace);
            let next = match part.begin(id) {
                Ok(true) => part.seek(id).map(Some),
                stopped => stopped.map(|_| None),
            };
            kept.parts.extend(part.close().map(|kept| (at, kept)));
            let Some(next) = next? else {
                return Ok(false);
            };
            // Counted afterwards, so that a union of many in this term can advance by one of its own.
            self.pace.spend(LIST_WORK);
            match next {
                Next::End => {}
                Next::At(id) => kept.next.push(Reverse((id, false, at))),
                Next::From(id) => kept.next.push(Reverse((id, true, at))),
            }
            kept.begun += 1;
        }
        Ok(true)
    }

    fn seek(&mut self, id: EntryId) -> Result<Next> {
        if !self.begin(id)? {
            return Ok(Next::From(id));
        }
        let Kept { next, parts, .. } = &mut *self.kept;
        let mut has_passed = false;
        while let Some(mut top) = next.peek_mut() {
            let Reverse((least, is_sought, at)) = *top;
            if least >= id && !is_sought {
                return Ok(Next::At(least));
            }
            if has_passed && self.pace.is_spent() {
                return Ok(Next::From(least.max(id)));
            }
            steps::count(1);
            self.pace.spend(SEEK_WORK);
            has_passed = true;
            let (view, terms, pace) = (self.view, self.terms, self.pace);
            let part = self.open.entry(at);
            let part =
                part.or_insert_with(|| Stream::open(view, &terms[at], parts.remove(&at), pace));
            match part.seek(least.max(id))? {
                Next::End => drop(PeekMut::pop(top)),
                Next::At(id) => *top = Reverse((id, false, at)),
                Next::From(id) => *top = Reverse((id, true, at)),
            }
        }
        Ok(Next::End)
    }
}

#[cfg(test)]
mod tests;
