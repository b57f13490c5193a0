//! Who is seen, and by which name: both follow from where entries are and which of them were deleted.
//!
//! A deleted entry is seen as long as another one that is seen is placed below it. Of several entries that are seen at
//! one place the one with the earliest claim has the plain name, or where entries are one register, the one with the
//! latest; one that was deleted gives way to those that were not.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::mem;

use sapwood_ldap::csn::Csn;

use super::{Merge, Result};
use crate::{Lost, Place, Replica, Resolution, Rule, Shown, Uuid};

/// Which of two entries that are at one place has the plain name: the lesser one. A claim says since when the entry is
/// there. With [`Resolution::Entry`] that is its last change, and the later one wins, as in OpenLDAP's servers, which
/// have but one entry of a name.
pub fn compare_claims(
    resolution: Resolution,
    (one_since, one): (Csn, Uuid),
    (other_since, other): (Csn, Uuid),
) -> Ordering {
    let since = match resolution {
        Resolution::Values => one_since.cmp(&other_since),
        Resolution::Entry => other_since.cmp(&one_since),
    };
    since.then(one.cmp(&other))
}

impl<R: Replica> Merge<'_, R> {
    /// Writes the entries down that have changed, and settles how they and those around them are seen.
    pub(super) fn names(&mut self) -> Result<(), R> {
        let mut places = BTreeSet::new();
        let mut entries = Vec::new();
        for (entry, mut node) in mem::take(&mut self.nodes) {
            if let Some(before) = self.replica.node(entry)? {
                node.shown = before.shown;
                if node.shown != Shown::Hidden {
                    entries.push(before.place.parent);
                    places.extend([before.place, node.place.clone()]);
                }
            }
            entries.extend([node.place.parent, entry]);
            self.replica.put_node(entry, &node)?;
        }
        let glue = self.show(entries, &mut places)?;
        for place in places {
            self.name(&place)?;
        }
        for entry in glue {
            let (Some(node), Some(child)) = (self.replica.node(entry)?, self.replica.child(entry)?)
            else {
                continue;
            };
            if let (Some(deleted), Some(child)) = (node.deleted, self.replica.node(child)?) {
                self.log(entry, (deleted, Lost::Delete), child.placed, Rule::Glue)?;
            }
        }
        Ok(())
    }

    /// Shows and hides entries, and then those above them. The deleted ones among those that were looked at.
    fn show(
        &mut self,
        mut entries: Vec<Uuid>,
        places: &mut BTreeSet<Place>,
    ) -> Result<BTreeSet<Uuid>, R> {
        let mut deleted = BTreeSet::new();
        // This ends: whether an entry is seen depends on those below it alone.
        while let Some(entry) = entries.pop() {
            let Some(mut node) = self.replica.node(entry)? else {
                continue;
            };
            if node.deleted.is_some() {
                deleted.insert(entry);
            }
            let is_seen = node.deleted.is_none() || self.replica.child(entry)?.is_some();
            if is_seen == (node.shown != Shown::Hidden) {
                continue;
            }
            node.shown = match is_seen {
                true => Shown::Plain,
                false => Shown::Hidden,
            };
            self.replica.put_node(entry, &node)?;
            entries.push(node.place.parent);
            places.insert(node.place);
        }
        Ok(deleted)
    }

    /// Gives a name to the entry with the best claim.
    fn name(&mut self, place: &Place) -> Result<(), R> {
        let mut claims = Vec::new();
        for entry in self.replica.claimants(place)? {
            if let Some(node) = self.replica.node(entry)? {
                claims.push((node.deleted.is_some(), node.placed, entry));
            }
        }
        let resolution = self.replica.resolution();
        claims.sort_unstable_by(|one, other| {
            let living_first = one.0.cmp(&other.0);
            living_first.then(compare_claims(
                resolution,
                (one.1, one.2),
                (other.1, other.2),
            ))
        });
        let mut holder = None;
        for (_, placed, entry) in claims {
            let wanted = match holder {
                None => Shown::Plain,
                Some(_) => Shown::Qualified,
            };
            if let Some(mut node) = self.replica.node(entry)?
                && node.shown != wanted
            {
                node.shown = wanted;
                self.replica.put_node(entry, &node)?;
            }
            if let Some(holder) = holder {
                self.log(entry, (placed, Lost::Name), holder, Rule::NameTaken)?;
            }
            holder = holder.or(Some(placed));
        }
        Ok(())
    }
}
