//! Reading the ids of a term in ascending order, in the steps of a search.
//!
//! A union of many terms goes on where the step before has stopped: it keeps the next id of each term, and opens those
//! alone whose ids it passes. So a step costs what it goes through, however many terms there are. What it does once, to
//! ask each term for its first id, is divided, too.

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::collections::{BTreeMap, HashMap};

use crate::engine::{EntryId, Index, Postings, Read};
use crate::error::Result;
use crate::search::plan::{Term, UNION_SMALL_MAX};
use crate::steps;

/// A term being read, whose ranges were read.
pub(crate) enum Stream<'s, R: Read> {
    List(List<'s, R>),
    Union(Vec<Stream<'s, R>>),
    Merged(Merged<'s, R>),
    Intersection(Vec<Stream<'s, R>>),
    Ids(&'s [EntryId]),
}

/// The ids under one key of an index. It is opened when it is first asked.
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
    kept: Box<Kept>,
    /// The terms that were asked in this step.
    open: HashMap<usize, Stream<'s, R>>,
}

/// What is kept of a stream between the steps of a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Of a union of many: the next id of each term that has one, the least on top.
    next: BinaryHeap<Reverse<(EntryId, usize)>>,
    /// How many of its terms have been asked for their first id.
    begun: usize,
    /// What is kept of terms in it, by their places.
    parts: BTreeMap<usize, Box<Kept>>,
}

impl<'s, R: Read> Stream<'s, R> {
    /// Opens a term, with what was [kept](Stream::close) of it. Reads nothing yet.
    pub(crate) fn open(view: &'s R, term: &'s Term, kept: Option<Box<Kept>>) -> Stream<'s, R> {
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
                kept: kept.unwrap_or_default(),
                open: HashMap::new(),
            }),
            Term::Union(terms) => Stream::Union(each(view, terms, kept)),
            Term::Intersection(terms) => Stream::Intersection(each(view, terms, kept)),
            Term::Ids(ids) => Stream::Ids(ids),
            // A range that was too large to be read does not drive, and never stands in an intersection.
            Term::Range { .. } => Stream::Ids(&[]),
        }
    }

    /// Ends it, and says what to keep, if anything: another one on the same snapshot goes on with that.
    pub(crate) fn close(self) -> Option<Box<Kept>> {
        let (kept, streams): (_, Vec<_>) = match self {
            Stream::List(_) | Stream::Ids(_) => return None,
            Stream::Union(streams) | Stream::Intersection(streams) => {
                (None, streams.into_iter().enumerate().collect())
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

    /// Asks the terms of unions of many for their first id from `id` on, as far as that was not done: so many terms at
    /// most, which are taken off. False when there are more of them.
    ///
    /// Until then it is asked for no other id.
    pub(crate) fn begin(&mut self, id: EntryId, terms_left: &mut u64) -> Result<bool> {
        match self {
            Stream::List(_) | Stream::Ids(_) => Ok(true),
            Stream::Merged(merged) => merged.begin(id, terms_left),
            Stream::Union(streams) | Stream::Intersection(streams) => {
                for stream in streams {
                    if !stream.begin(id, terms_left)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// The first id from `id` on. Never goes back: `id` must not descend from call to call.
    pub(crate) fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        match self {
            Stream::List(list) => list.seek(id),
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

/// The streams of a few terms.
fn each<'s, R: Read>(
    view: &'s R,
    terms: &'s [Term],
    kept: Option<Box<Kept>>,
) -> Vec<Stream<'s, R>> {
    let mut parts = kept.map_or_else(BTreeMap::new, |kept| kept.parts);
    let terms = terms.iter().enumerate();
    terms
        .map(|(at, term)| Stream::open(view, term, parts.remove(&at)))
        .collect()
}

impl<R: Read> List<'_, R> {
    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
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
        Ok(self.current)
    }
}

impl<R: Read> Merged<'_, R> {
    fn begin(&mut self, id: EntryId, terms_left: &mut u64) -> Result<bool> {
        let kept = &mut *self.kept;
        while let Some(term) = self.terms.get(kept.begun) {
            let Some(left) = terms_left.checked_sub(1) else {
                return Ok(false);
            };
            *terms_left = left;
            steps::count(1);
            let at = kept.begun;
            let mut part = Stream::open(self.view, term, kept.parts.remove(&at));
            let next = match part.begin(id, terms_left) {
                Ok(true) => part.seek(id).map(Some),
                stopped => stopped.map(|_| None),
            };
            kept.parts.extend(part.close().map(|kept| (at, kept)));
            let Some(next) = next? else {
                return Ok(false);
            };
            kept.next.extend(next.map(|next| Reverse((next, at))));
            kept.begun += 1;
        }
        Ok(true)
    }

    fn seek(&mut self, id: EntryId) -> Result<Option<EntryId>> {
        if self.kept.begun < self.terms.len() {
            self.begin(id, &mut { u64::MAX })?;
        }
        let Kept { next, parts, .. } = &mut *self.kept;
        while let Some(mut top) = next.peek_mut() {
            let Reverse((least, at)) = *top;
            if least >= id {
                return Ok(Some(least));
            }
            steps::count(1);
            let (view, terms) = (self.view, self.terms);
            let part = self.open.entry(at);
            let part = part.or_insert_with(|| Stream::open(view, &terms[at], parts.remove(&at)));
            match part.seek(id)? {
                Some(next) => *top = Reverse((next, at)),
                None => drop(PeekMut::pop(top)),
            }
        }
        Ok(None)
    }
}
