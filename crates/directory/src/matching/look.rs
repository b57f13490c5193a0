//! Looking at one entry by itself, in a snapshot or in the middle of an update: what the assertion control (RFC 4528)
//! and the read entry controls (RFC 4527) ask for.

use std::sync::Arc;

use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::OctetStrings;
use sapwood_ldap::result::ResultCode;

use crate::access::{EntryGrants, Evaluate, Grants, Ready, Sight};
use crate::attributes::AttributeTable;
use crate::collective::Collective;
use crate::engine::{EntryId, Read, Table};
use crate::entry::{Damaged, Entry};
use crate::error::{Error, Result};
use crate::names::DnCache;
use crate::operational::Vocabulary;
use crate::outcome::Outcome;
use crate::schema::Schema;
use crate::synthetic::{Context, Synthetic};

use super::candidate::{Candidate, Place};
use super::evaluate::{Buffers, Evaluator, Interrupted};
use super::filter::{Compiler, Node, Truth};
use super::selection::Selection;
use super::sender::Sender;

/// Most work of an update's assertion, or of those of a transaction together, in about as many nanoseconds: nobody
/// else's update goes on meanwhile. It is some 250,000 comparisons.
pub(crate) const ASSERTION_WORK_MAX: u64 = 1 << 26;

/// Work of making a byte of a filter ready.
const COMPILING_WORK: u64 = 8;

/// Somebody who looks at entries one by one.
pub(crate) struct Look<'l> {
    pub(crate) schema: &'l Schema,
    /// The attribute numbers of what is looked at.
    pub(crate) attributes: &'l AttributeTable,
    /// What is granted to them.
    pub(crate) grants: &'l Grants,
    /// How much of what is looked at they see.
    pub(crate) sight: Sight,
    /// What is granted on it, where that is decided by itself.
    pub(crate) on_entry: Option<&'l EntryGrants>,
    /// The collective attributes of the entries, if there are any.
    pub(crate) collective: Option<Arc<Collective>>,
}

impl Look<'_> {
    /// Makes a filter ready.
    pub(crate) fn compile(&self, filter: Filter<'_>) -> Node {
        Compiler::new(self.schema, self.attributes, (self.grants, self.sight)).compile(filter)
    }

    /// The same. What it takes is taken from `work`.
    pub(crate) fn compile_within(&self, filter: Filter<'_>, work: &mut u64) -> Node {
        // It is linear in its length.
        *work = work.saturating_sub(COMPILING_WORK * filter.as_ber().len() as u64);
        self.compile(filter)
    }

    /// Whether a filter is true of an entry; Undefined is not (RFC 4528 §3). `None` when that takes more work than
    /// `work`, which becomes what is left of it. The entry's record may be at hand.
    pub(crate) fn asserts<R: Read>(
        &self,
        view: &R,
        entry: (EntryId, Option<Entry<'_>>),
        node: &Node,
        work: &mut u64,
    ) -> Result<Option<bool>> {
        self.at(view, entry, node.asks_for_name(), |candidate| {
            let mut evaluator = Evaluator::new(self.schema, *work, Interrupted::default());
            let truth = evaluator.evaluate(node, candidate)?;
            *work = *evaluator.work_left();
            Ok(truth.map(|truth| truth == Truth::True))
        })
    }

    /// The same in steps: `None` when the work is used up, and `interrupted` is where to go on.
    pub(crate) fn goes_on_asserting<R: Read>(
        &self,
        view: &R,
        id: EntryId,
        node: &Node,
        work: u64,
        interrupted: &mut Interrupted,
    ) -> Result<Option<bool>> {
        self.at(view, (id, None), node.asks_for_name(), |candidate| {
            self.goes_on_asserting_of(candidate, node, work, interrupted)
        })
    }

    /// The same of a synthetic entry.
    pub(crate) fn goes_on_asserting_synthetic<R: Read>(
        &self,
        view: &R,
        synthetic: &Synthetic,
        node: &Node,
        work: u64,
        interrupted: &mut Interrupted,
    ) -> Result<Option<bool>> {
        let (entry, operational) = synthetic.records()?;
        let mut candidate = Candidate::synthetic(view, self.vocabulary(), entry, operational);
        if self.on_entry.is_some() {
            candidate.restrict(self.grants, self.on_entry);
        }
        self.goes_on_asserting_of(&mut candidate, node, work, interrupted)
    }

    /// The same of an entry that is at hand.
    fn goes_on_asserting_of<R: Read>(
        &self,
        candidate: &mut Candidate<'_, R>,
        node: &Node,
        work: u64,
        interrupted: &mut Interrupted,
    ) -> Result<Option<bool>> {
        let begun = std::mem::take(interrupted);
        let mut evaluator = Evaluator::new(self.schema, work, begun);
        let truth = evaluator.evaluate(node, candidate)?;
        *interrupted = evaluator.into_interrupted();
        Ok(truth.map(|truth| truth == Truth::True))
    }

    /// Appends an entry's selected attributes as a bare SearchResultEntry.
    pub(crate) fn read<R: Read>(
        &self,
        view: &R,
        id: EntryId,
        selected: OctetStrings<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let selection = Selection::new(self.schema, self.attributes, selected, false, self.sight);
        let mut sender = Sender::new(&selection, self.schema, self.attributes, None);
        let vocabulary = self.vocabulary();
        self.at(view, (id, None), true, |candidate| {
            candidate.examine(vocabulary)?;
            sender.put_bare(candidate, out)
        })
    }

    fn vocabulary(&self) -> Vocabulary<'_> {
        Vocabulary {
            schema: self.schema,
            attributes: self.attributes,
        }
    }

    /// Looks at an entry, with its name if that is needed.
    fn at<R: Read, T>(
        &self,
        view: &R,
        (id, at_hand): (EntryId, Option<Entry<'_>>),
        is_named: bool,
        look: impl FnOnce(&mut Candidate<'_, R>) -> Result<T>,
    ) -> Result<T> {
        let read;
        let entry = match at_hand {
            Some(entry) => entry,
            None => {
                read = view.get(Table::Entry, &id.to_key())?;
                let record = read.as_deref();
                let record = record.ok_or_else(|| {
                    Error::corrupt(format!("entry {id} has a name but no record"))
                })?;
                Entry::new(record).map_err(|damaged| damaged_entry(id, damaged))?
            }
        };
        let mut names = DnCache::default();
        let superior = match is_named || self.collective.is_some() {
            true => names.superior(view, entry.parent())?,
            false => None,
        };
        let superior = superior.map(|superior| &**superior);
        let (mut entry, mut merged) = (entry, Vec::new());
        if let Some(collective) = &self.collective
            && collective.read((view, self.vocabulary()), id, &entry, superior, &mut merged)?
        {
            entry = Entry::new(&merged).map_err(|damaged| damaged_entry(id, damaged))?;
        }
        let place = Place::Tree(superior, self.collective.as_deref());
        let mut candidate = Candidate::in_tree(view, self.vocabulary(), id, entry, place);
        if self.sight == Sight::Decided {
            candidate.restrict(self.grants, self.on_entry);
        }
        look(&mut candidate)
    }
}

fn damaged_entry(id: EntryId, damaged: Damaged) -> Error {
    Error::corrupt(format!("entry {id}: {damaged}"))
}

/// What is kept of a filter for the next entry.
struct ReadyFilter {
    node: Node,
    buffers: Buffers,
}

impl<R: Read> Evaluate for R {
    fn evaluate(
        &self,
        (schema, attributes): (&Schema, &AttributeTable),
        (grants, on_entry): (&Grants, Option<&EntryGrants>),
        (id, record): (EntryId, Option<&Entry<'_>>),
        (filter, ready): (Filter<'_>, &mut Option<Ready>),
        work: &mut u64,
    ) -> Result<Option<bool>> {
        let kept = ready.as_mut().and_then(|ready| ready.downcast_mut());
        if let Some(ReadyFilter { node, buffers }) = kept
            && let (Some(record), None) = (record, on_entry)
        {
            let evaluator = Evaluator::new(schema, *work, Interrupted::default());
            let mut evaluator = evaluator.with_buffers(std::mem::take(buffers));
            let truth = evaluator.evaluate_at_once(node, record);
            let left = *evaluator.work_left();
            *buffers = evaluator.into_buffers();
            if let Some(truth) = truth.map_err(|damaged| damaged_entry(id, damaged))? {
                *work = left;
                return Ok(Some(truth == Truth::True));
            }
        }
        let look = Look {
            schema,
            attributes,
            grants,
            sight: match on_entry {
                Some(_) => Sight::Decided,
                None => Sight::All,
            },
            on_entry,
            collective: None,
        };
        let kept = ready.as_mut().and_then(|ready| ready.downcast_mut());
        if let Some(ReadyFilter { node, .. }) = kept {
            return look.asserts(self, (id, record.copied()), node, work);
        }
        let node = look.compile_within(filter, work);
        let asserts = look.asserts(self, (id, record.copied()), &node, work)?;
        // A chain of names keeps what it has found on the way.
        if !node.asks_for_name() {
            let buffers = Buffers::default();
            *ready = Some(Box::new(ReadyFilter { node, buffers }));
        }
        Ok(asserts)
    }

    fn evaluate_synthetic(
        &self,
        (schema, grants): (&Schema, &Grants),
        (context, entry): (&Context, &Synthetic),
        filter: Filter<'_>,
        work: &mut u64,
    ) -> Result<bool> {
        let look = Look {
            schema,
            attributes: context.attributes(),
            grants,
            sight: Sight::All,
            on_entry: None,
            collective: None,
        };
        let (entry, operational) = entry.records()?;
        let mut candidate = Candidate::synthetic(self, look.vocabulary(), entry, operational);
        let mut evaluator = Evaluator::new(schema, u64::MAX, Interrupted::default());
        let truth = evaluator.evaluate(&look.compile(filter), &mut candidate)?;
        *work = work.saturating_add(u64::MAX - *evaluator.work_left());
        Ok(truth == Some(Truth::True))
    }
}

/// The outcome when the filter of an assertion control is not true of the target.
pub(crate) fn assertion_failed() -> Outcome {
    let diagnostic = "the filter of the assertion control is not true of the entry";
    Outcome::new(ResultCode::AssertionFailed, diagnostic)
}

/// The outcome when it takes too long to tell.
pub(crate) fn assertion_too_long() -> Outcome {
    let diagnostic =
        "the filter of the assertion control takes too long on this entry: ask for less at once";
    Outcome::new(ResultCode::AdminLimitExceeded, diagnostic)
}
