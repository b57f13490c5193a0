//! What access rules ask of those who know how to evaluate filters.

use std::any::Any;

use sapwood_ldap::filter::Filter;

use super::entry_grants::EntryGrants;
use super::grants::Grants;
use crate::attributes::AttributeTable;
use crate::engine::{EntryId, Read};
use crate::entry::Entry;
use crate::error::Result;
use crate::schema::Schema;
use crate::state::State;
use crate::synthetic::{Context, Synthetic};

/// A view that tells which entries may match a filter.
pub(crate) trait Find: Read {
    /// The entries that a filter may be true of for somebody to whom this is granted on all entries, if indexes tell
    /// that and these are no more than `most`.
    fn indexed(
        &self,
        known: (&Schema, &State),
        grants: &Grants,
        filter: Filter<'_>,
        most: usize,
    ) -> Result<Option<Vec<EntryId>>>;
}

/// What evaluating a filter has made of it, to be used for the next entry of the same state of the directory.
pub(crate) type Ready = Box<dyn Any + Send>;

/// A view that tells whether an entry matches a filter. Searches evaluate filters, and ask access rules what they may
/// look at; rules ask for filters, and know nothing of searches.
pub(crate) trait Evaluate: Find {
    /// Whether a filter is true of an entry for somebody to whom this is granted, on all entries and on this one;
    /// without the latter, nothing is hidden. Collective attributes are left out. `None` when that takes more work
    /// than `work`, which becomes what is left of it. With the entry comes its record, if it is at hand; with the
    /// filter what was made of it before, for the same grants, which becomes what is made of it now.
    fn evaluate(
        &self,
        known: (&Schema, &AttributeTable),
        granted: (&Grants, Option<&EntryGrants>),
        entry: (EntryId, Option<&Entry<'_>>),
        filter: (Filter<'_>, &mut Option<Ready>),
        work: &mut u64,
    ) -> Result<Option<bool>>;

    /// Whether a filter is true of a synthetic entry, from which these grants hide nothing. What that takes is added to
    /// `work`.
    fn evaluate_synthetic(
        &self,
        known: (&Schema, &Grants),
        synthetic: (&Context, &Synthetic),
        filter: Filter<'_>,
        work: &mut u64,
    ) -> Result<bool>;
}
