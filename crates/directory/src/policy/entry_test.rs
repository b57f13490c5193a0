//! What a rule asks of a DN alone.

use super::{DnPattern, DnScope};
use crate::schema::{NormalDn, Schema};

/// Whether a DN stands in a relation to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryTest {
    scope: DnScope,
    dn: NormalDn,
}

impl EntryTest {
    /// Whether it does.
    pub(crate) fn holds(&self, dn: &NormalDn) -> bool {
        match self.scope {
            DnScope::Base => *dn == self.dn,
            DnScope::One => dn.len() == self.dn.len() + 1 && dn.is_at_or_below(&self.dn),
            DnScope::Subtree => dn.is_at_or_below(&self.dn),
            DnScope::Children => dn.len() > self.dn.len() && dn.is_at_or_below(&self.dn),
            DnScope::Level(level) => {
                dn.len() == self.dn.len() + level as usize && dn.is_at_or_below(&self.dn)
            }
            DnScope::Regex => false,
        }
    }

    /// With a DN that is in normal form.
    pub(crate) fn of(scope: DnScope, dn: NormalDn) -> EntryTest {
        EntryTest { scope, dn }
    }

    /// The DN.
    pub(crate) fn dn(&self) -> &NormalDn {
        &self.dn
    }

    /// Whether it is about an entry alone.
    pub(crate) fn is_base(&self) -> bool {
        self.scope == DnScope::Base
    }

    /// Whether it may tell one child of an entry from the others.
    pub(crate) fn tells_children_apart(&self, parent: &NormalDn) -> bool {
        let tells = matches!(self.scope, DnScope::Base | DnScope::Subtree);
        tells && self.dn.len() == parent.len() + 1 && self.dn.is_at_or_below(parent)
    }

    /// The child that it may tell from the others: its DN, and its RDN.
    pub(crate) fn child_told_apart(&self, parent: &NormalDn) -> Option<(&NormalDn, &[u8])> {
        let rdn = self.dn.rdns().next_back()?;
        self.tells_children_apart(parent).then_some((&self.dn, rdn))
    }

    /// Whether it holds for the other children of an entry.
    pub(crate) fn holds_for_children(&self, parent: &NormalDn) -> bool {
        match self.scope {
            DnScope::Base | DnScope::Level(_) | DnScope::Regex => false,
            DnScope::One => *parent == self.dn,
            DnScope::Subtree | DnScope::Children => parent.is_at_or_below(&self.dn),
        }
    }

    pub(crate) fn new(
        schema: &Schema,
        pattern: &DnPattern,
    ) -> std::result::Result<EntryTest, String> {
        let mut dn = NormalDn::new();
        let named = dn.parse(schema, pattern.dn.as_bytes());
        named.map_err(|invalid| format!("{:?} is not a DN: {invalid}", pattern.dn))?;
        let scope = pattern.scope;
        Ok(EntryTest { scope, dn })
    }
}
