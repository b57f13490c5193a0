//! What somebody sees of a name.

use super::{Asked, Evaluate, Requester};
use crate::entry::EntryFlags;
use crate::error::Result;
use crate::names::{Child, Walk};
use crate::schema::{AttributeTypeId, NormalDn, Schema};

/// What somebody sees of a walk along a DN: an entry that may not be disclosed to them is as if it were not there, and
/// so is one that leads elsewhere and whose `ref` or aliasedObjectName they may not read. `leads_by` says which of
/// these attributes an entry leads by. An entry above one that is seen need not be. `None` when nothing is left.
pub(crate) fn as_seen<R: Evaluate>(
    (view, schema): (&R, &Schema),
    mut walk: Walk,
    dn: &NormalDn,
    viewer: &Requester,
    leads_by: impl Fn(EntryFlags) -> Option<AttributeTypeId>,
) -> Result<Option<Walk>> {
    // How many RDNs the first entry stands for.
    let first_rdns = walk.matched_rdns + 1 - walk.entries.len();
    let grants = viewer.grants();
    let mut name = dn.clone();
    let mut is_seen = |at: usize, entry: &Child| {
        name.clone_from(dn);
        name.truncate(first_rdns + at);
        let asked = Asked {
            view,
            schema,
            dn: &name,
            id: entry.id,
        };
        match leads_by(entry.flags) {
            Some(by) => grants.follows(&asked, by),
            None => grants.discloses(&asked),
        }
    };
    let mut seen = walk.entries.len();
    for (at, entry) in walk.entries.iter().enumerate() {
        if leads_by(entry.flags).is_some() && !is_seen(at, entry)? {
            seen = at;
            break;
        }
    }
    let mut last = None;
    for (at, entry) in walk.entries[..seen].iter().enumerate().rev() {
        if is_seen(at, entry)? {
            last = Some(at);
            break;
        }
    }
    let Some(last) = last else { return Ok(None) };
    walk.is_complete &= last + 1 == walk.entries.len();
    walk.entries.truncate(last + 1);
    walk.matched_rdns = first_rdns + last;
    Ok(Some(walk))
}
