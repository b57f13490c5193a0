//! What a search covers: its base and scope, and where aliases lead (RFC 4511 §4.5.1.2, §4.5.1.3).

use std::collections::HashSet;

use sapwood_ldap::message::Scope;

use crate::engine::EntryId;
use crate::names::Superior;

/// The entries a search covers.
#[derive(Debug)]
pub(crate) struct Covered {
    scope: Scope,
    base: EntryId,
    extent: Extent,
    /// Entries whose subtrees are covered as well, because an alias in the scope names them.
    subtrees: HashSet<EntryId>,
    /// Entries that are covered as well, because an alias one level below the base names them.
    singles: HashSet<EntryId>,
    /// Whether aliases stand for what they name and are not results themselves.
    follows_aliases: bool,
    /// Whether what is below this entry is covered: siblings mostly come one after the other.
    last: Option<(EntryId, bool)>,
}

/// What base and scope come to.
#[derive(Clone, Copy, Debug)]
enum Extent {
    Base,
    Children,
    Subtree,
    Subordinates,
    /// What is one level below the root: the naming contexts' own entries.
    Contexts,
    /// All that is below the root.
    All,
}

impl Covered {
    /// A base and a scope, aliases being plain entries. The root stands above all naming contexts, and is no entry: RFC
    /// 4512 §5.1 leaves it out of what is below it.
    pub(crate) fn new(base: EntryId, scope: Scope) -> Covered {
        let extent = match (scope, base.is_root()) {
            (Scope::Base, _) => Extent::Base,
            (Scope::OneLevel, false) => Extent::Children,
            (Scope::Subtree, false) => Extent::Subtree,
            (Scope::Subordinates, false) => Extent::Subordinates,
            (Scope::OneLevel, true) => Extent::Contexts,
            (Scope::Subtree | Scope::Subordinates, true) => Extent::All,
        };
        Covered {
            scope,
            base,
            extent,
            subtrees: HashSet::new(),
            singles: HashSet::new(),
            follows_aliases: false,
            last: None,
        }
    }

    /// The scope.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// The base.
    pub(crate) fn base(&self) -> EntryId {
        self.base
    }

    /// Whether it is more than the base and its scope.
    pub(crate) fn is_extended(&self) -> bool {
        !self.subtrees.is_empty() || !self.singles.is_empty()
    }

    /// Whether alias entries are not results themselves.
    pub(crate) fn follows_aliases(&self) -> bool {
        self.follows_aliases
    }

    /// Whether an entry is covered.
    #[inline]
    pub(crate) fn contains(
        &mut self,
        id: EntryId,
        parent: EntryId,
        superior: Option<&Superior>,
    ) -> bool {
        if self.last == Some((parent, true)) {
            return true;
        }
        let plainly = match self.extent {
            Extent::Base => return id == self.base,
            Extent::Children => return parent == self.base || has(&self.singles, id),
            Extent::Subtree => id == self.base || has(&self.subtrees, id),
            // What aliases lead to is treated as the base is: the vertex itself is left out.
            Extent::Subordinates => false,
            Extent::Contexts => return parent.is_root() || has(&self.singles, id),
            Extent::All => return true,
        };
        if plainly {
            return true;
        }
        if self.last == Some((parent, false)) {
            return false;
        }
        let below = superior.is_some_and(|superior| {
            superior.is_at_or_below(self.base)
                || !self.subtrees.is_empty()
                    && superior.line().any(|id| self.subtrees.contains(&id))
        });
        self.last = Some((parent, below));
        below
    }

    /// Has aliases stand for what they name, which is to be [added](Self::add).
    pub(super) fn follow_aliases(&mut self) {
        self.follows_aliases = true;
    }

    /// Covers what an alias names; whether it was not covered before.
    pub(super) fn add(&mut self, vertex: &Superior) -> bool {
        let parent = || vertex.parent.as_ref().map(|parent| parent.id);
        let singles = &mut self.singles;
        let is_new = match self.extent {
            Extent::Base | Extent::All => false,
            Extent::Children => parent() != Some(self.base) && singles.insert(vertex.id),
            Extent::Contexts => parent().is_some() && singles.insert(vertex.id),
            Extent::Subtree | Extent::Subordinates => {
                let is_covered = |id| id == self.base || self.subtrees.contains(&id);
                !vertex.line().any(is_covered) && self.subtrees.insert(vertex.id)
            }
        };
        if is_new {
            self.last = None;
        }
        is_new
    }

    /// How many entries were [added](Self::add).
    pub(super) fn added(&self) -> usize {
        self.subtrees.len() + self.singles.len()
    }

    /// Whether what is below an entry that was added is covered, too.
    pub(super) fn adds_subtrees(&self) -> bool {
        matches!(self.extent, Extent::Subtree | Extent::Subordinates)
    }
}

/// Whether an id is in a set, which mostly is empty.
#[inline]
fn has(ids: &HashSet<EntryId>, id: EntryId) -> bool {
    !ids.is_empty() && ids.contains(&id)
}
