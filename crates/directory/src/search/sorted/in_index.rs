//! Entries that stand in an ordering index in the order that a search wants: they are read from there one after the
//! other, so that the first are sent before the last are known.
//!
//! An entry of several values stands there several times. It is sent where the least stands that who asks may see, and
//! [passed over](InPlace::has) elsewhere.
//!
//! Where the index has what is searched for and nothing else, it also tells how many entries there are, and which one
//! so many come before: the engine counts its records.

use std::ops::Bound;

use sapwood_ldap::message::Scope;

use super::collector::keys_of;
use super::view::Window;
use crate::directory::Snapshot;
use crate::engine::{Cursor, Direction, Engine, Range, Read, Table};
use crate::error::Result;
use crate::indexes::AttributeIndexes;
use crate::matching::candidate::Candidate;
use crate::matching::sort_key::{Form, SortKey};
use crate::plan::classes::{class_term, subentry_term};
use crate::schema::Schema;
use crate::search::{Running, Source, begin};

/// Keys that are read of the index at once.
const KEYS_AHEAD: usize = 64;

/// Of so many entries of the index one at least has to be a candidate: otherwise gathering the candidates costs less.
const ENTRIES_PER_CANDIDATE: u64 = 4;

/// An entry is sent if this is its place.
#[derive(Debug)]
pub(in crate::search) struct InPlace {
    pub(super) key: SortKey,
    /// The record of the place.
    pub(super) record: Vec<u8>,
    own: Vec<u8>,
}

impl InPlace {
    pub(super) fn new(key: SortKey) -> InPlace {
        InPlace {
            key,
            record: Vec::new(),
            own: Vec::new(),
        }
    }

    /// Whether an entry has its place there. Takes of `work` what that was.
    pub(in crate::search) fn has<R: Read>(
        &mut self,
        schema: &Schema,
        candidate: &mut Candidate<'_, R>,
        work: &mut u64,
    ) -> Result<bool> {
        self.own.clear();
        let form = (schema, Form::OfIndex);
        self.key.append(form, candidate, work, &mut self.own)?;
        Ok(keys_of(&self.record) == Some(&self.own))
    }
}

/// Goes through an ordering index.
#[derive(Debug)]
pub(super) struct IndexWalk {
    table: Table,
    direction: Direction,
    /// Where it goes on.
    from: Bound<Vec<u8>>,
    /// What was read, the next one last.
    ahead: Vec<Vec<u8>>,
    is_over: bool,
}

impl IndexWalk {
    /// From a key on, or behind one, in the order of a sort key.
    fn new(indexes: &AttributeIndexes, key: &SortKey, from: Bound<Vec<u8>>) -> IndexWalk {
        IndexWalk {
            table: indexes.order_table(),
            direction: match key.is_reverse() {
                true => Direction::Backward,
                false => Direction::Forward,
            },
            from,
            ahead: Vec::new(),
            is_over: false,
        }
    }

    /// The next key.
    pub(super) fn next<R: Read>(&mut self, view: &R) -> Result<Option<Vec<u8>>> {
        if self.ahead.is_empty() && !self.is_over {
            self.read(view)?;
        }
        Ok(self.ahead.pop())
    }

    fn read<R: Read>(&mut self, view: &R) -> Result<()> {
        let from = self.from.as_ref().map(Vec::as_slice);
        let range = match self.direction {
            Direction::Forward => Range {
                from,
                to: Bound::Unbounded,
            },
            Direction::Backward => Range {
                from: Bound::Unbounded,
                to: from,
            },
        };
        let mut keys = view.scan(self.table, range, self.direction)?;
        let mut ahead = Vec::with_capacity(KEYS_AHEAD);
        while ahead.len() < KEYS_AHEAD
            && let Some((key, _)) = keys.next()?
        {
            ahead.push(key.to_vec());
        }
        drop(keys);
        self.is_over = ahead.len() < KEYS_AHEAD;
        if let Some(last) = ahead.last() {
            self.from = Bound::Excluded(last.clone());
        }
        ahead.reverse();
        self.ahead = ahead;
        Ok(())
    }
}

/// How a search goes through an index.
pub(super) struct Way {
    pub(super) walk: IndexWalk,
    /// Whether there may be entries that do not stand in it. They come behind those that do.
    pub(super) has_others: bool,
}

/// The way of a search by one key through its index, behind the record of the entry that was sent last; `None` if there
/// is no such index, or its entries had better be gathered.
pub(super) fn way<E: Engine>(
    snapshot: &Snapshot<E>,
    running: &Running,
    key: &SortKey,
    after: Option<&[u8]>,
) -> Result<Option<Way>> {
    let Some(indexes) = index(snapshot, running, key) else {
        return Ok(None);
    };
    let is_worth_it = match &running.source {
        Source::Entries => true,
        Source::Postings(term) => {
            let entries = snapshot.view().rank(indexes.order_table(), &BEHIND_ALL)?;
            term.cardinality().saturating_mul(ENTRIES_PER_CANDIDATE) >= entries
        }
        Source::Names | Source::Base | Source::Synthetic => false,
    };
    let has_others = !key.is_asked_for(&running.filter);
    // Those without a value come first in reverse.
    if !is_worth_it || has_others && key.is_reverse() || has_referrals(snapshot, running)? {
        return Ok(None);
    }
    let from = match after.map(|record| key.key_of(record)) {
        None => Bound::Unbounded,
        Some(Some(last)) => Bound::Excluded(last),
        Some(None) => return Ok(None),
    };
    Ok(Some(Way {
        walk: IndexWalk::new(indexes, key, from),
        has_others,
    }))
}

/// Behind all keys of an ordering index: normal forms are shorter than that.
const BEHIND_ALL: [u8; 512] = [0xFF; 512];

fn index<'s, E: Engine>(
    snapshot: &'s Snapshot<E>,
    running: &Running,
    key: &SortKey,
) -> Option<&'s AttributeIndexes> {
    // What was renewed of a directory with several stores cannot be told from what was not; computed values stand in no
    // index.
    let is_plain = snapshot.directory().stores() == 1
        && running.expansion.is_none()
        && !running.is_attribute_scoped
        && !running.covered.follows_aliases();
    let indexes = key.index(snapshot.schema(), snapshot.state())?;
    is_plain.then_some(indexes)
}

/// Whether references may stand in the place of entries: they are told of whatever the filter says.
fn has_referrals<E: Engine>(snapshot: &Snapshot<E>, running: &Running) -> Result<bool> {
    if running.manage_dsa_it || running.domain_scope {
        return Ok(false);
    }
    let planner = begin::planner(snapshot);
    let class = begin::referral_class(planner.schema);
    let referrals = (snapshot.learned()).referrals(|| class_term(&planner, class))?;
    Ok(referrals.cardinality() > 0)
}

/// The index of a key, and how many entries it has, where it has exactly those that a search finds, each once, whoever
/// asks.
pub(super) fn covering<'s, E: Engine>(
    snapshot: &'s Snapshot<E>,
    running: &Running,
    key: &SortKey,
) -> Result<Option<Covering<'s>>> {
    let Some(indexes) = index(snapshot, running, key) else {
        return Ok(None);
    };
    let (schema, state) = (snapshot.schema(), snapshot.state());
    let known = schema.type_of(indexes.attribute_type);
    let descriptions = state.attributes.numbers_of(known.id());
    let planner = begin::planner(snapshot);
    let is_each_once = known.is_single_value() && descriptions.len() == 1;
    let is_of_all = running.decider.is_none()
        && running.collective.is_none()
        && running.subentries.is_none()
        && !running.as_stored
        && key.is_all_that_is_asked_for(&running.filter)
        && matches!(running.covered.scope(), Scope::Subtree)
        && state.contexts.len() == 1;
    if !is_each_once || !is_of_all {
        return Ok(None);
    }
    let base = running.covered.base();
    let has_hidden = subentry_term(&planner)?.is_none_or(|term| term.cardinality() > 0);
    // A referral is an entry where it is managed, and nothing otherwise.
    let refers = || -> Result<bool> {
        let class = begin::referral_class(schema);
        let referrals = (snapshot.learned()).referrals(|| class_term(&planner, class))?;
        Ok(!running.manage_dsa_it && referrals.cardinality() > 0)
    };
    let is_top = base.is_root() || running.is_at_top(&planner)?;
    if has_hidden || !is_top || refers()? {
        return Ok(None);
    }
    let entries = snapshot.view().rank(indexes.order_table(), &BEHIND_ALL)?;
    Ok(Some(Covering { indexes, entries }))
}

/// An index that has what a search finds.
pub(super) struct Covering<'s> {
    indexes: &'s AttributeIndexes,
    pub(super) entries: u64,
}

impl Covering<'_> {
    /// How many entries come before the value that a list view names, by its record without an id.
    pub(super) fn rank<E: Engine>(
        &self,
        snapshot: &Snapshot<E>,
        key: &SortKey,
        target: &[u8],
    ) -> Result<u64> {
        let Some(mut of_index) = key.key_of(target) else {
            return Ok(0);
        };
        let table = self.indexes.order_table();
        match key.is_reverse() {
            false => Ok(snapshot.view().rank(table, &of_index)?),
            true => {
                // Behind those that have the value itself.
                of_index.extend_from_slice(&[0xFF; 9]);
                Ok(self.entries - snapshot.view().rank(table, &of_index)?.min(self.entries))
            }
        }
    }

    /// The way through a window.
    pub(super) fn way<E: Engine>(
        &self,
        snapshot: &Snapshot<E>,
        key: &SortKey,
        window: &Window,
    ) -> Result<Way> {
        let before = match key.is_reverse() {
            false => Some(window.skip),
            true => self.entries.checked_sub(window.skip + 1),
        };
        let table = self.indexes.order_table();
        let first = match before {
            Some(before) => snapshot.view().key_at(table, before)?,
            None => None,
        };
        let mut walk = IndexWalk::new(self.indexes, key, Bound::Unbounded);
        match first {
            Some(first) => walk.from = Bound::Included(first),
            None => walk.is_over = true,
        }
        Ok(Way {
            walk,
            has_others: false,
        })
    }
}
