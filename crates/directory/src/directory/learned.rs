//! What searches of a commit have found out that those after them want to know, too.

use std::sync::{Arc, OnceLock};

use crate::collective::Collective;
use crate::error::Result;
use crate::locate::Manner;
use crate::names::{Child, Superior};
use crate::plan::Term;

/// Shared by all snapshots of a commit. Of each thing the first that was found stays: most searches of a directory are
/// for the same.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    referrals: OnceLock<Term>,
    base: OnceLock<Found>,
    superior: OnceLock<Arc<Superior>>,
    collective: OnceLock<Option<Arc<Collective>>>,
}

/// A base that was found.
#[derive(Debug)]
pub(crate) struct Found {
    dn: String,
    follow_aliases: bool,
    manage_dsa_it: bool,
    base: Child,
}

impl Found {
    pub(crate) fn new(dn: &str, manner: Manner, base: Child) -> Found {
        Found {
            dn: dn.to_owned(),
            follow_aliases: manner.follow_aliases,
            manage_dsa_it: manner.manage_dsa_it,
            base,
        }
    }

    /// The entry, if it was looked for under this DN and in this manner.
    pub(crate) fn of(&self, dn: &str, manner: Manner) -> Option<Child> {
        let is_same = self.dn == dn
            && self.follow_aliases == manner.follow_aliases
            && self.manage_dsa_it == manner.manage_dsa_it;
        is_same.then_some(self.base)
    }
}

impl Learned {
    /// The referral objects, as `find` finds them.
    pub(crate) fn referrals(&self, find: impl FnOnce() -> Result<Term>) -> Result<&Term> {
        if let Some(known) = self.referrals.get() {
            return Ok(known);
        }
        let found = find()?;
        Ok(self.referrals.get_or_init(|| found))
    }

    /// The collective attributes, as `find` finds them.
    pub(crate) fn collective(
        &self,
        find: impl FnOnce() -> Result<Option<Arc<Collective>>>,
    ) -> Result<Option<Arc<Collective>>> {
        if let Some(known) = self.collective.get() {
            return Ok(known.clone());
        }
        let found = find()?;
        Ok(self.collective.get_or_init(|| found).clone())
    }

    /// The base that a DN names, if it is the one that is known.
    pub(crate) fn base(&self, dn: &str, manner: Manner) -> Option<Child> {
        self.base.get()?.of(dn, manner)
    }

    /// Notes a base below which was searched.
    pub(crate) fn learn_base(&self, dn: &str, manner: Manner, base: Child) {
        if self.base.get().is_none() {
            // Another thread may have been faster.
            let _ = self.base.set(Found::new(dn, manner, base));
        }
    }

    /// An entry above others.
    pub(crate) fn superior(&self) -> Option<&Arc<Superior>> {
        self.superior.get()
    }

    /// Notes an entry above others.
    pub(crate) fn learn_superior(&self, superior: &Arc<Superior>) {
        if self.superior.get().is_none() {
            let _ = self.superior.set(superior.clone());
        }
    }
}
