//! What all entries grant at least, and what none exceeds: as far as the rules alone tell.

use super::compile::Slot;
use super::rule_for::{Clause, RuleFor};
use crate::policy::{Grant, Rights, Then};

/// How much of the entries an identity sees, as far as one answer fits all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// No entry.
    Nothing,
    /// Every attribute of every entry may be searched and read.
    All,
    /// The same without protected attributes.
    Public,
    /// It depends on the entry or the attribute, so that each entry is decided by itself.
    Decided,
}

/// By slot, the rights that every entry grants at least, and those that no entry exceeds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: Box<[Rights]>,
    pub(super) most: Box<[Rights]>,
}

/// The least and the most of some rights.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) least: Rights,
    pub(super) most: Rights,
}

impl Range {
    const NONE: Range = Range {
        least: Rights::NONE,
        most: Rights::NONE,
    };

    /// That of what rules grant on some entries. Each rule comes with whether it surely covers them; `applies` says of
    /// a clause on which of them it does.
    pub(super) fn of<'r>(
        rules: impl Iterator<Item = (&'r RuleFor, bool)>,
        applies: impl Fn(&Clause) -> Everywhere,
    ) -> Range {
        let mut ended: Option<Range> = None;
        // The range of the entries that no rule so far has decided.
        let mut reaching = Some(Range::NONE);
        for (rule, is_sure) in rules {
            let Some(mut left) = reaching else { break };
            let mut broken: Option<Range> = None;
            for clause in &rule.clauses {
                let applies = applies(clause);
                if applies == Everywhere::Never {
                    continue;
                }
                let granted = left.after(clause.grant);
                match clause.then {
                    Then::Stop => ended = Some(granted.or(ended)),
                    Then::Break => broken = Some(granted.or(broken)),
                    Then::Continue => {
                        left = granted.or((applies == Everywhere::Perhaps).then_some(left));
                        continue;
                    }
                }
                if applies == Everywhere::Always {
                    break;
                }
            }
            let passed = reaching.filter(|_| !is_sure);
            reaching = match broken {
                Some(broken) => Some(broken.or(passed)),
                None => passed,
            };
        }
        match (reaching, ended) {
            // No rule decides the rest, which grants nothing.
            (Some(_), ended) => Range::NONE.or(ended),
            (None, ended) => ended.unwrap_or(Range::NONE),
        }
    }

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
    /// The bounds over all entries. Each entry is covered by one of `lists`, and by the rules without a list.
    pub(super) fn of(rules: &[RuleFor], slots: usize, lists: &[Option<usize>]) -> Bounds {
        let ranges = (0..slots).map(|slot| {
            let each = lists.iter().map(|list| {
                let about = rules.iter();
                let about = about.filter(|rule| rule.slots[slot] && rule.is_in(*list));
                Range::of(
                    about.map(|rule| (rule, rule.is_about_all())),
                    Clause::everywhere,
                )
            });
            each.reduce(|range, other| range.or(Some(other)))
                .unwrap_or(Range::NONE)
        });
        let (least, most): (Vec<_>, Vec<_>) = ranges.map(|range| (range.least, range.most)).unzip();
        Bounds {
            least: least.into(),
            most: most.into(),
        }
    }

    /// How much of the entries is seen within these bounds.
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

/// On which entries an identity has some rights, as far as the rules alone tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Everywhere {
    /// On every entry.
    Always,
    /// Perhaps on some.
    Perhaps,
    /// On no entry.
    Never,
}
