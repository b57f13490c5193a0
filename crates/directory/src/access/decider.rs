//! The rights on the entries of a search.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Requester;
use super::condition::Asked;
use super::evaluate::Evaluate;
use super::grants::{EntryGrants, Grants, Met, RuleFor};
use crate::engine::{CommitNo, EntryId};
use crate::error::Result;
use crate::names::{IdHasher, Superior};
use crate::schema::{Schema, Siblings};

/// The most decisions that a requester caches. Entries that the same rules cover share one.
const KNOWN_MAX: usize = 64;
/// The most entries of whose children a requester caches the decision.
const PARENTS_MAX: usize = 128;

/// Decisions on entries, which all searches of a requester share.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// By what the rules and their conditions make of an entry.
    known: Vec<(Box<[bool]>, Arc<EntryGrants>)>,
    /// The commit that `of_children` is about. Entries may be renamed by the next one.
    commit: Option<CommitNo>,
    /// Those that all children of an entry share.
    of_children: HashMap<EntryId, Arc<EntryGrants>, BuildHasherDefault<IdHasher>>,
}

impl Decisions {
    /// The decision for the children of an entry, on a commit.
    fn of_children(&self, commit: Option<CommitNo>, parent: EntryId) -> Option<&Arc<EntryGrants>> {
        let is_same = commit.is_some() && self.commit == commit;
        is_same.then(|| self.of_children.get(&parent)).flatten()
    }

    /// Keeps the decision for the children of an entry. Those of an older commit make way.
    fn keep(&mut self, commit: CommitNo, parent: EntryId, decided: &Arc<EntryGrants>) {
        if self.commit.is_none_or(|before| before < commit) {
            self.of_children.clear();
            self.commit = Some(commit);
        }
        if self.commit == Some(commit) {
            if self.of_children.len() == PARENTS_MAX {
                self.of_children.clear();
            }
            self.of_children.insert(parent, decided.clone());
        }
    }
}

/// A decision, and the entry all of whose children share it, if there is one.
type Decided = (Option<EntryId>, Arc<EntryGrants>);

/// Decides the rights on the entries of a search, one after the other. Entries that the same rules cover share a
/// decision. Siblings mostly do, so that their names need not be read.
pub(crate) struct Decider {
    requester: Arc<Requester>,
    /// The commit that the search reads, if its number tells all that may have changed.
    commit: Option<CommitNo>,
    /// The decision that was made last.
    last: Option<Decided>,
    names: Siblings,
    text: String,
    case: Vec<bool>,
    /// The work of conditions since [`take_work`](Self::take_work).
    work: u64,
}

impl Decider {
    /// A decider for a search of a requester, on a commit if its number tells all that may have changed.
    pub(crate) fn new(requester: Arc<Requester>, commit: Option<CommitNo>) -> Decider {
        Decider {
            requester,
            commit,
            last: None,
            names: Siblings::default(),
            text: String::new(),
            case: Vec::new(),
            work: 0,
        }
    }

    /// The work of conditions since the last call, about one unit a nanosecond.
    #[inline]
    pub(crate) fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// The grants of the requester, and the rights on this entry. `None` for an entry whose name cannot be read.
    pub(crate) fn decide<R: Evaluate>(
        &mut self,
        (view, schema): (&R, &Schema),
        id: EntryId,
        rdn: &[u8],
        superior: Option<&Superior>,
    ) -> Result<Option<(&Grants, &EntryGrants)>> {
        let is_own = Some(id) == self.requester.grants().entry;
        let parent = superior.map(|superior| superior.id);
        let shared = parent.filter(|_| !is_own);
        let is_last = matches!(&self.last, Some((Some(of), _)) if Some(*of) == shared);
        if !is_last {
            let decided = match shared.and_then(|parent| self.of_children(parent)) {
                Some(decided) => (shared, decided),
                None => match self.decide_by_name((view, schema), id, rdn, superior)? {
                    Some(decided) => decided,
                    None => return Ok(None),
                },
            };
            self.last = Some(decided);
        }
        let last = self.last.as_ref();
        Ok(last.map(|(_, on_entry)| (self.requester.grants(), &**on_entry)))
    }

    /// The decision that the children of an entry share, if another search has made it.
    fn of_children(&self, parent: EntryId) -> Option<Arc<EntryGrants>> {
        let decisions = self.decisions();
        decisions.of_children(self.commit, parent).cloned()
    }

    fn decisions(&self) -> MutexGuard<'_, Decisions> {
        let decisions = self.requester.decisions.lock();
        decisions.unwrap_or_else(PoisonError::into_inner)
    }

    /// The decision for an entry, found by its name; `None` if that cannot be read.
    fn decide_by_name<R: Evaluate>(
        &mut self,
        (view, schema): (&R, &Schema),
        id: EntryId,
        rdn: &[u8],
        superior: Option<&Superior>,
    ) -> Result<Option<Decided>> {
        let grants = self.requester.grants();
        let is_own = Some(id) == grants.entry;
        self.text.clear();
        let Ok(rdn) = std::str::from_utf8(rdn) else {
            return Ok(None);
        };
        self.text.push_str(rdn);
        if let Some(superior) = superior {
            self.text.push(',');
            self.text.push_str(&superior.dn);
        }
        if self.names.read(schema, &self.text).is_err() {
            return Ok(None);
        }
        let mut are_alike = None;
        if let Some(superior) = superior.filter(|_| !is_own && grants.conditions.is_empty()) {
            let mut parent = self.names.normal().clone();
            parent.truncate(parent.len().saturating_sub(1));
            let mut tests = grants.rules.iter().filter_map(|rule| rule.entries.as_ref());
            let is_alone = tests.any(|test| test.tells_children_apart(&parent));
            are_alike = (!is_alone).then_some(superior.id);
        }
        let decided = self.decision((view, schema), id, is_own)?;
        if let (Some(commit), Some(parent)) = (self.commit, are_alike) {
            self.decisions().keep(commit, parent, &decided);
        }
        Ok(Some((are_alike, decided)))
    }

    /// The decision for the entry whose name was read last.
    fn decision<R: Evaluate>(
        &mut self,
        (view, schema): (&R, &Schema),
        id: EntryId,
        is_own: bool,
    ) -> Result<Arc<EntryGrants>> {
        let grants = self.requester.grants();
        let dn = self.names.normal();
        let asked = Asked {
            view,
            schema,
            dn,
            id,
        };
        let met = Met::new(grants, &asked);
        let case = &mut self.case;
        case.clear();
        case.push(is_own);
        for rule in &grants.rules {
            case.push(met.is_about(rule)?);
        }
        // For the rules that cover the entry, their clauses' conditions belong to the case, too.
        if !grants.conditions.is_empty() {
            for (at, rule) in grants.rules.iter().enumerate() {
                let needs = rule.clauses.iter().flat_map(|clause| &clause.needs);
                for need in needs {
                    let is_met = case[at + 1] && met.meets(*need)?;
                    case.push(is_met);
                }
            }
        }
        self.work = self.work.saturating_add(met.work.get());
        let same = |(known, _): &&(Box<[bool]>, _)| **known == self.case[..];
        if let Some((_, decided)) = self.decisions().known.iter().find(same) {
            return Ok(decided.clone());
        }
        let rules = grants.rules.iter().zip(&self.case[1..]);
        let rules: Vec<&RuleFor> = rules
            .filter(|(_, is_about)| **is_about)
            .map(|(rule, _)| rule)
            .collect();
        let decided = grants.by_rules(&rules, is_own, |at| met.meets(at))?;
        let decided = Arc::new(decided);
        let mut decisions = self.decisions();
        if decisions.known.len() == KNOWN_MAX {
            decisions.known.clear();
        }
        let known = (self.case.as_slice().into(), decided.clone());
        decisions.known.push(known);
        Ok(decided)
    }
}
