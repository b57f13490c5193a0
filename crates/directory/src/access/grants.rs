//! What is granted to an identity: on all entries, as far as that is known before any is looked at, and on one of them.

use std::sync::Arc;

use super::compile::{AccessRules, EntryTest, Slot};
use super::policy::{Grant, Rights, Then};
use super::{Requester, is_protected};
use crate::attributes::AttributeTable;
use crate::engine::{AttributeNo, EntryId};
use crate::names::Superior;
use crate::schema::{AttributeTypeId, NormalDn, Schema};

/// Most sets of rights that a search keeps, which all entries that the same rules hold for share.
const KNOWN_MAX: usize = 64;

/// What the rules grant to one identity.
#[derive(Debug)]
pub(crate) struct Grants {
    pub(super) set: Arc<AccessRules>,
    pub(super) rules: Vec<RuleFor>,
    /// The identity's own entry.
    pub(super) entry: Option<EntryId>,
    pub(super) bounds: Bounds,
    pub(super) sight: Sight,
    pub(super) is_unlimited: bool,
}

/// What of a rule is about one identity.
#[derive(Debug)]
pub(super) struct RuleFor {
    pub(super) entries: Option<EntryTest>,
    pub(super) slots: Box<[bool]>,
    /// The last one holds for every entry, and ends the rule.
    pub(super) clauses: Vec<Clause>,
}

/// A clause that is about the identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clause {
    /// Whether only on its own entry.
    pub(super) of_self: bool,
    pub(super) grant: Grant,
    pub(super) then: Then,
}

impl Clause {
    /// What ends every rule: `by * none`.
    pub(super) const NOTHING: Clause = Clause {
        of_self: false,
        grant: Grant::Set(Rights::NONE),
        then: Then::Stop,
    };
}

/// How much of every entry somebody sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// No entry is found.
    Nothing,
    /// All may be searched and read.
    All,
    /// All but protected attributes.
    Public,
    /// That depends on the entry or on the attribute: each is decided by itself.
    Decided,
}

/// The rights that every entry grants at least, and that any grants at most, by slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: Box<[Rights]>,
    pub(super) most: Box<[Rights]>,
}

/// The least and the most of some rights.
#[derive(Clone, Copy)]
struct Range {
    least: Rights,
    most: Rights,
}

impl Range {
    const NONE: Range = Range {
        least: Rights::NONE,
        most: Rights::NONE,
    };

    fn after(self, grant: Grant) -> Range {
        Range {
            least: grant.after(self.least),
            most: grant.after(self.most),
        }
    }

    /// That of what either of them is.
    fn or(self, other: Option<Range>) -> Range {
        match other {
            Some(other) => Range {
                least: self.least & other.least,
                most: self.most | other.most,
            },
            None => self,
        }
    }
}

impl Bounds {
    pub(super) fn of(rules: &[RuleFor], slots: usize) -> Bounds {
        let ranges = (0..slots).map(|slot| Bounds::range(rules, slot));
        let (least, most): (Vec<_>, Vec<_>) = ranges.map(|range| (range.least, range.most)).unzip();
        Bounds {
            least: least.into(),
            most: most.into(),
        }
    }

    fn range(rules: &[RuleFor], slot: usize) -> Range {
        let mut ended: Option<Range> = None;
        // That of the entries which come as far as a rule.
        let mut reaching = Some(Range::NONE);
        for rule in rules.iter().filter(|rule| rule.slots[slot]) {
            let Some(mut left) = reaching else { break };
            let mut broken: Option<Range> = None;
            for clause in &rule.clauses {
                let granted = left.after(clause.grant);
                match clause.then {
                    Then::Stop => ended = Some(granted.or(ended)),
                    Then::Break => broken = Some(granted.or(broken)),
                    Then::Continue => {
                        left = granted.or(clause.of_self.then_some(left));
                    }
                }
            }
            let passed = reaching.filter(|_| rule.entries.is_some());
            reaching = match broken {
                Some(broken) => Some(broken.or(passed)),
                None => passed,
            };
        }
        match (reaching, ended) {
            // No rule is left for them.
            (Some(_), ended) => Range::NONE.or(ended),
            (None, ended) => ended.unwrap_or(Range::NONE),
        }
    }

    pub(super) fn sight(&self, protected: Option<Slot>) -> Sight {
        if !self.most[Slot::ENTRY.index()].has(Rights::SEARCH) {
            return Sight::Nothing;
        }
        let seen = Rights::SEARCH | Rights::READ;
        let told = seen | Rights::DISCLOSE;
        if !self.least[Slot::ENTRY.index()].has(told) {
            return Sight::Decided;
        }
        let mut sight = Sight::All;
        for (at, (least, most)) in self.least.iter().zip(&self.most).enumerate() {
            if at == Slot::CHILDREN.index() || least.has(seen) {
                continue;
            }
            let is_protected = protected.is_some_and(|slot| slot.index() == at);
            if !is_protected || *most & seen != Rights::NONE {
                return Sight::Decided;
            }
            sight = Sight::Public;
        }
        sight
    }
}

/// What may be asked of an attribute for all entries at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Everywhere {
    /// It may on each.
    Always,
    /// On some, perhaps.
    Perhaps,
    /// On none.
    Never,
}

impl Grants {
    /// Those of who is above the rules.
    pub(super) fn unlimited() -> Grants {
        let set = Arc::new(AccessRules::none());
        let all = || vec![Rights::ALL; set.slots].into_boxed_slice();
        let bounds = Bounds {
            least: all(),
            most: all(),
        };
        Grants {
            rules: Vec::new(),
            entry: None,
            bounds,
            sight: Sight::All,
            is_unlimited: true,
            set,
        }
    }

    /// That of the rules.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.set.version
    }

    /// Whether everything may be done, and no rule needs to be asked.
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// How much of every entry of the tree is seen.
    #[inline]
    pub(crate) fn sight(&self) -> Sight {
        self.sight
    }

    /// How much is seen of the synthetic entries, which everybody may read.
    #[inline]
    pub(crate) fn sight_of_synthetic(&self) -> Sight {
        match self.is_unlimited {
            true => Sight::All,
            false => Sight::Public,
        }
    }

    /// Whether these rights are given on entries, before any of them is looked at: who has them on none is refused
    /// without a look, so that the refusal tells nothing of what is there.
    pub(crate) fn everywhere(&self, slot: Slot, rights: Rights) -> Everywhere {
        if self.bounds.least[slot.index()].has(rights) {
            Everywhere::Always
        } else if self.bounds.most[slot.index()].has(rights) {
            Everywhere::Perhaps
        } else {
            Everywhere::Never
        }
    }

    /// Whether values of a type may be searched by who sees so much, as far as that is known for all entries.
    #[inline]
    pub(crate) fn searches(
        &self,
        schema: &Schema,
        sight: Sight,
        attribute_type: AttributeTypeId,
    ) -> Everywhere {
        match sight {
            Sight::All => Everywhere::Always,
            Sight::Public if is_protected(schema, attribute_type) => Everywhere::Never,
            Sight::Public => Everywhere::Always,
            Sight::Decided => self.everywhere(self.slot(attribute_type), Rights::SEARCH),
            Sight::Nothing => Everywhere::Never,
        }
    }

    /// What rights on a type are given on.
    #[inline]
    pub(crate) fn slot(&self, attribute_type: AttributeTypeId) -> Slot {
        self.set.slot(attribute_type)
    }

    /// The rights on a slot of an entry.
    pub(crate) fn rights(&self, dn: &NormalDn, id: EntryId, slot: Slot) -> Rights {
        if self.is_unlimited {
            return Rights::ALL;
        }
        let holds = |rule: &RuleFor| rule.entries.as_ref().is_none_or(|test| test.holds(dn));
        let rules = self.rules.iter();
        let rules = rules.filter(|rule| rule.slots[slot.index()] && holds(rule));
        decide(rules, Some(id) == self.entry)
    }

    /// Whether the existence of an entry may be told.
    pub(crate) fn discloses(&self, dn: &NormalDn, id: EntryId) -> bool {
        self.rights(dn, id, Slot::ENTRY).has(Rights::DISCLOSE)
    }

    /// Whether a referral or an alias leads somebody elsewhere: they may know of the entry, and read it and the
    /// attribute that it leads by.
    pub(crate) fn follows(&self, dn: &NormalDn, id: EntryId, by: AttributeTypeId) -> bool {
        let seen = Rights::DISCLOSE | Rights::READ;
        let reads_target = || self.rights(dn, id, self.slot(by)).has(Rights::READ);
        self.rights(dn, id, Slot::ENTRY).has(seen) && reads_target()
    }

    /// The rights on all of an entry.
    pub(crate) fn on_entry(&self, dn: &NormalDn, id: EntryId) -> EntryGrants {
        let holds = |rule: &RuleFor| rule.entries.as_ref().is_none_or(|test| test.holds(dn));
        self.on_entry_where(holds, id)
    }

    fn on_entry_where(&self, holds: impl Fn(&RuleFor) -> bool, id: EntryId) -> EntryGrants {
        let rules: Vec<&RuleFor> = self.rules.iter().filter(|rule| holds(rule)).collect();
        let is_self = Some(id) == self.entry;
        let rights = |slot: usize| match self.is_unlimited {
            true => Rights::ALL,
            false => decide(
                rules.iter().copied().filter(|rule| rule.slots[slot]),
                is_self,
            ),
        };
        EntryGrants::new((0..self.set.slots).map(rights).collect(), self.set.clone())
    }
}

/// The rights that rules give, all of which are about the same slot of an entry.
pub(super) fn decide<'r>(rules: impl Iterator<Item = &'r RuleFor>, is_self: bool) -> Rights {
    let mut rights = Rights::NONE;
    for rule in rules {
        for clause in &rule.clauses {
            if clause.of_self && !is_self {
                continue;
            }
            rights = clause.grant.after(rights);
            match clause.then {
                Then::Stop => return rights,
                Then::Break => break,
                Then::Continue => {}
            }
        }
    }
    Rights::NONE
}

/// What a candidate answers: the rights on one entry, and on all that the same rules hold for.
#[derive(Debug)]
pub(crate) struct EntryGrants {
    set: Arc<AccessRules>,
    rights: Box<[Rights]>,
    visible: Visible,
}

/// How much of an entry may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visible {
    /// All of it.
    All,
    /// All but protected attributes.
    Public,
    /// Some attributes.
    These,
    /// It is as if it were not there.
    Nothing,
}

impl EntryGrants {
    fn new(rights: Box<[Rights]>, set: Arc<AccessRules>) -> EntryGrants {
        let is_protected = |at| set.protected.is_some_and(|slot| slot.index() == at);
        let mut visible = Visible::All;
        for (at, rights) in rights.iter().enumerate() {
            if rights.has(Rights::READ) || at == Slot::CHILDREN.index() {
                continue;
            }
            visible = match at {
                _ if at == Slot::ENTRY.index() => Visible::Nothing,
                _ if visible == Visible::Nothing => Visible::Nothing,
                _ if visible == Visible::All && is_protected(at) => Visible::Public,
                _ => Visible::These,
            };
        }
        EntryGrants {
            set,
            rights,
            visible,
        }
    }

    /// How much of it may be read.
    #[inline]
    pub(crate) fn visible(&self) -> Visible {
        self.visible
    }

    /// Whether there are these rights on a slot.
    #[inline]
    pub(crate) fn has(&self, slot: Slot, rights: Rights) -> bool {
        self.rights[slot.index()].has(rights)
    }

    /// Whether there are these rights on a type.
    #[inline]
    pub(crate) fn has_on(&self, attribute_type: AttributeTypeId, rights: Rights) -> bool {
        self.has(self.set.slot(attribute_type), rights)
    }

    /// The same of the type of a description; not of one that is not known.
    #[inline]
    pub(crate) fn has_on_number(
        &self,
        attributes: &AttributeTable,
        number: AttributeNo,
        rights: Rights,
    ) -> bool {
        let known = attributes.get(number);
        known.is_some_and(|known| self.has_on(known.attribute_type(), rights))
    }
}

/// Decides for one entry of a search after the other. Entries that the same rules hold for share a decision, and
/// siblings mostly do.
pub(crate) struct Decider {
    requester: Arc<Requester>,
    known: Vec<(Box<[bool]>, EntryGrants)>,
    siblings: Option<Siblings>,
    normal: NormalDn,
    text: String,
}

/// The children of the entry above the last one.
struct Siblings {
    parent: EntryId,
    decision: usize,
}

impl Decider {
    /// For who asks.
    pub(crate) fn new(requester: Arc<Requester>) -> Decider {
        Decider {
            requester,
            known: Vec::new(),
            siblings: None,
            normal: NormalDn::new(),
            text: String::new(),
        }
    }

    /// What is granted on an entry, besides what is granted on all; `None` on one whose name cannot be read.
    pub(crate) fn decide(
        &mut self,
        schema: &Schema,
        id: EntryId,
        rdn: &[u8],
        superior: Option<&Superior>,
    ) -> Option<(&Grants, &EntryGrants)> {
        let is_own = Some(id) == self.requester.grants().entry;
        let parent = superior.map(|superior| superior.id);
        let siblings = self.siblings.as_ref();
        let known = siblings.filter(|known| !is_own && Some(known.parent) == parent);
        let decision = match known {
            Some(siblings) => siblings.decision,
            None => self.decide_by_name(schema, id, rdn, superior)?,
        };
        let (_, on_entry) = self.known.get(decision)?;
        Some((self.requester.grants(), on_entry))
    }

    /// The place of the decision for an entry whose siblings do not tell.
    fn decide_by_name(
        &mut self,
        schema: &Schema,
        id: EntryId,
        rdn: &[u8],
        superior: Option<&Superior>,
    ) -> Option<usize> {
        let grants = self.requester.grants();
        let is_own = Some(id) == grants.entry;
        self.text.clear();
        self.text.push_str(std::str::from_utf8(rdn).ok()?);
        let mut are_alike = None;
        if let Some(superior) = superior {
            self.normal.parse(schema, superior.dn.as_bytes()).ok()?;
            let mut tests = grants.rules.iter().filter_map(|rule| rule.entries.as_ref());
            let is_alone = is_own || tests.any(|test| test.tells_children_apart(&self.normal));
            are_alike = (!is_alone).then_some(superior.id);
            self.text.push(',');
            self.text.push_str(&superior.dn);
        }
        self.normal.parse(schema, self.text.as_bytes()).ok()?;
        let decision = self.decision(id, is_own);
        if let Some(parent) = are_alike {
            self.siblings = Some(Siblings { parent, decision });
        }
        Some(decision)
    }

    /// The place of the decision for the entry whose name was read.
    fn decision(&mut self, id: EntryId, is_own: bool) -> usize {
        let grants = self.requester.grants();
        let holds = |rule: &RuleFor| {
            rule.entries
                .as_ref()
                .is_none_or(|of| of.holds(&self.normal))
        };
        let case: Box<[bool]> = [is_own]
            .into_iter()
            .chain(grants.rules.iter().map(holds))
            .collect();
        if let Some(at) = self.known.iter().position(|(known, _)| *known == case) {
            return at;
        }
        let decided = grants.on_entry_where(holds, id);
        if self.known.len() == KNOWN_MAX {
            self.known.clear();
            self.siblings = None;
        }
        self.known.push((case, decided));
        self.known.len() - 1
    }
}
