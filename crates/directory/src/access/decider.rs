//! The rights on the entries of a search.

use std::sync::Arc;

use super::Requester;
use super::condition::Asked;
use super::evaluate::Evaluate;
use super::grants::{EntryGrants, Grants, Met, RuleFor};
use crate::engine::EntryId;
use crate::error::Result;
use crate::names::Superior;
use crate::schema::{NormalDn, Schema};

/// The most decisions that a search caches. Entries that the same rules cover share one.
const KNOWN_MAX: usize = 64;

/// Decides the rights on the entries of a search, one after the other. Entries that the same rules cover share a
/// decision. Siblings mostly do, so that their names need not be read.
pub(crate) struct Decider {
    requester: Arc<Requester>,
    known: Vec<(Box<[bool]>, EntryGrants)>,
    siblings: Option<Siblings>,
    normal: NormalDn,
    text: String,
    /// The work of conditions since [`take_work`](Self::take_work).
    work: u64,
}

/// Children of one entry that share a decision.
struct Siblings {
    parent: EntryId,
    decision: usize,
}

impl Decider {
    /// A decider for the searches of a requester.
    pub(crate) fn new(requester: Arc<Requester>) -> Decider {
        Decider {
            requester,
            known: Vec::new(),
            siblings: None,
            normal: NormalDn::new(),
            text: String::new(),
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
        let siblings = self.siblings.as_ref();
        let known = siblings.filter(|known| !is_own && Some(known.parent) == parent);
        let decision = match known {
            Some(siblings) => siblings.decision,
            None => match self.decide_by_name((view, schema), id, rdn, superior)? {
                Some(decision) => decision,
                None => return Ok(None),
            },
        };
        let on_entry = self.known.get(decision);
        Ok(on_entry.map(|(_, on_entry)| (self.requester.grants(), on_entry)))
    }

    /// The index of the decision for an entry that shares none with its siblings, found by its name.
    fn decide_by_name<R: Evaluate>(
        &mut self,
        (view, schema): (&R, &Schema),
        id: EntryId,
        rdn: &[u8],
        superior: Option<&Superior>,
    ) -> Result<Option<usize>> {
        let grants = self.requester.grants();
        let is_own = Some(id) == grants.entry;
        self.text.clear();
        let Ok(rdn) = std::str::from_utf8(rdn) else {
            return Ok(None);
        };
        self.text.push_str(rdn);
        let mut are_alike = None;
        if let Some(superior) = superior {
            if self.normal.parse(schema, superior.dn.as_bytes()).is_err() {
                return Ok(None);
            }
            let mut tests = grants.rules.iter().filter_map(|rule| rule.entries.as_ref());
            let is_alone = is_own
                || !grants.conditions.is_empty()
                || tests.any(|test| test.tells_children_apart(&self.normal));
            are_alike = (!is_alone).then_some(superior.id);
            self.text.push(',');
            self.text.push_str(&superior.dn);
        }
        if self.normal.parse(schema, self.text.as_bytes()).is_err() {
            return Ok(None);
        }
        let decision = self.decision((view, schema), id, is_own)?;
        if let Some(parent) = are_alike {
            self.siblings = Some(Siblings { parent, decision });
        }
        Ok(Some(decision))
    }

    /// The index of the decision for the entry whose name is in `normal`.
    fn decision<R: Evaluate>(
        &mut self,
        (view, schema): (&R, &Schema),
        id: EntryId,
        is_own: bool,
    ) -> Result<usize> {
        let grants = self.requester.grants();
        let dn = &self.normal;
        let asked = Asked {
            view,
            schema,
            dn,
            id,
        };
        let met = Met::new(grants, &asked);
        let mut case = Vec::with_capacity(1 + grants.rules.len() + grants.conditions.len());
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
        if let Some(at) = self.known.iter().position(|(known, _)| **known == case[..]) {
            return Ok(at);
        }
        let rules = grants.rules.iter().zip(&case[1..]);
        let rules: Vec<&RuleFor> = rules
            .filter(|(_, is_about)| **is_about)
            .map(|(rule, _)| rule)
            .collect();
        let decided = grants.by_rules(&rules, is_own, |at| met.meets(at))?;
        if self.known.len() == KNOWN_MAX {
            self.known.clear();
            self.siblings = None;
        }
        self.known.push((case.into(), decided));
        Ok(self.known.len() - 1)
    }
}
