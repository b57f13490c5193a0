//! Access rules as values of olcAccess, whose order counts.

use super::Settings;
use super::ordered::Ordered;
use crate::access::{RULES_MAX, Rule};

/// The attribute that says who may do what.
pub(crate) const ACCESS: &str = "olcAccess";

/// A list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessList {
    /// Of the entries of the naming contexts.
    Data,
    /// Of all entries, behind the other one.
    Global,
}

impl AccessList {
    /// The word of a list in the definition.
    pub(crate) fn word(self) -> &'static str {
        match self {
            AccessList::Data => "data",
            AccessList::Global => "global",
        }
    }

    /// All of them.
    pub(crate) const ALL: [AccessList; 2] = [AccessList::Data, AccessList::Global];

    /// The rules of the list.
    pub(crate) fn of(self, settings: &Settings) -> &[Rule] {
        match self {
            AccessList::Data => &settings.access,
            AccessList::Global => &settings.global_access,
        }
    }

    /// The same, to be changed.
    pub(crate) fn of_mut(self, settings: &mut Settings) -> &mut Vec<Rule> {
        match self {
            AccessList::Data => &mut settings.access,
            AccessList::Global => &mut settings.global_access,
        }
    }
}

impl Ordered for Rule {
    const ATTRIBUTE: &'static str = ACCESS;
    const VALUES_MAX: usize = RULES_MAX;
    const WHAT: &'static str = "rule";
}
