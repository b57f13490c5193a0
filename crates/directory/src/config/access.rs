//! Access rules as values of olcAccess, whose order counts.

use std::fmt;

use super::Settings;
use super::ordered::Ordered;
use crate::policy::{RULES_MAX, Rule};

/// The attribute that says who may do what.
pub(crate) const ACCESS: &str = "olcAccess";

/// A list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessList {
    /// Of the entries of the naming contexts that have no list of their own.
    Data,
    /// Of those of one naming context, by its place among all.
    Context(usize),
    /// Of all entries, behind the others.
    Global,
}

/// As it is named in the definition.
impl fmt::Display for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessList::Data => f.write_str("data"),
            AccessList::Context(place) => write!(f, "context {place}"),
            AccessList::Global => f.write_str("global"),
        }
    }
}

impl AccessList {
    /// Reads the name of a list, and what stands behind it.
    pub(crate) fn read(text: &str) -> Option<(AccessList, &str)> {
        let (word, rest) = text.split_once(' ')?;
        match word {
            "data" => Some((AccessList::Data, rest)),
            "global" => Some((AccessList::Global, rest)),
            "context" => {
                let (place, rest) = rest.split_once(' ')?;
                Some((AccessList::Context(place.parse().ok()?), rest))
            }
            _ => None,
        }
    }

    /// Those that have rules.
    pub(crate) fn all(settings: &Settings) -> impl Iterator<Item = (AccessList, &[Rule])> {
        let own = settings.context_access.iter();
        let own = own.map(|(place, rules)| (AccessList::Context(*place), rules.as_slice()));
        std::iter::once((AccessList::Data, settings.access.as_slice()))
            .chain(own)
            .chain(std::iter::once((
                AccessList::Global,
                settings.global_access.as_slice(),
            )))
    }

    /// The rules of the list, to be changed. A list of a naming context that is left without rules is to be
    /// [taken away](Settings::drop_empty_lists).
    pub(crate) fn of_mut(self, settings: &mut Settings) -> &mut Vec<Rule> {
        match self {
            AccessList::Data => &mut settings.access,
            AccessList::Context(place) => settings.context_access.entry(place).or_default(),
            AccessList::Global => &mut settings.global_access,
        }
    }
}

impl Settings {
    /// Has naming contexts whose own list has no rules obey that of all.
    pub(crate) fn drop_empty_lists(&mut self) {
        self.context_access.retain(|_, rules| !rules.is_empty());
    }
}

impl Ordered for Rule {
    const ATTRIBUTE: &'static str = ACCESS;
    const VALUES_MAX: usize = RULES_MAX;
    const WHAT: &'static str = "rule";
}
