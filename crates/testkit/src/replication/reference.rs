//! What is right: the directory that a set of changes amounts to, computed at once and from nothing else. No order of
//! arrival, no vectors, nothing that is undone; all changes are at hand, and each rule is a few lines.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sapwood_ldap::csn::Csn;
use sapwood_replication::{
    Attribute, Attributes, EntryChanges, Kind, Place, Seen, Stamp, Uuid, Value, What,
};

use super::model::{kind, naming_values};

/// A directory: entries as clients see them.
pub type Directory = BTreeMap<Uuid, Seen>;

/// What is known of an entry.
struct Entry {
    birth: Csn,
    place: Place,
    placed: Csn,
    deleted: Csn,
    stamp: Stamp,
    /// What the entry was left with, if it is one register.
    all: (Csn, Attributes),
    values: BTreeMap<(Attribute, Value), (Csn, bool)>,
    clears: BTreeMap<Attribute, Csn>,
    wholes: BTreeMap<Attribute, (Csn, Vec<Value>)>,
}

/// Joins changes.
pub fn join<'c>(all: impl Iterator<Item = &'c EntryChanges> + Clone) -> Directory {
    let mut entries: BTreeMap<Uuid, Entry> = BTreeMap::new();
    for told in all.clone() {
        for change in &told.changes {
            if let What::Born(place) = &change.what {
                let new = || Entry {
                    birth: change.csn,
                    place: place.clone(),
                    placed: change.csn,
                    deleted: Csn::default(),
                    stamp: Stamp::default(),
                    all: Default::default(),
                    values: BTreeMap::new(),
                    clears: BTreeMap::new(),
                    wholes: BTreeMap::new(),
                };
                let entry = entries.entry(told.entry).or_insert_with(new);
                entry.birth = entry.birth.min(change.csn);
                entry.placed = entry.birth;
            }
        }
    }
    let mut moves = BTreeMap::new();
    for told in all {
        let Some(entry) = entries.get_mut(&told.entry) else {
            continue;
        };
        entry.stamp.join(&told.stamp);
        for change in &told.changes {
            match &change.what {
                What::Born(_) => {}
                What::Moved(to) => {
                    moves.insert((change.csn, told.entry), to.clone());
                }
                What::Deleted => entry.deleted = entry.deleted.max(change.csn),
                What::All(attributes) if change.csn > entry.all.0 => {
                    entry.all = (change.csn, attributes.clone());
                }
                What::All(_) => {}
                What::Value {
                    attribute,
                    value,
                    is_present,
                } => {
                    let key = (attribute.clone(), value.clone());
                    let last = entry.values.entry(key).or_default();
                    *last = (*last).max((change.csn, *is_present));
                }
                What::Cleared(attribute) => {
                    let last = entry.clears.entry(attribute.clone()).or_default();
                    *last = change.csn.max(*last);
                }
                What::Whole(attribute, values) => {
                    let last = entry.wholes.entry(attribute.clone()).or_default();
                    if change.csn > last.0 {
                        *last = (change.csn, values.clone());
                    }
                }
            }
        }
    }
    // Moves in their order; one that would make a ring is left out.
    for ((csn, mover), to) in moves {
        if is_below(&entries, to.parent, mover) {
            continue;
        }
        if let Some(entry) = entries.get_mut(&mover) {
            entry.place = to;
            entry.placed = csn;
        }
    }
    see(&entries)
}

impl Entry {
    /// A delete wins, but of an entry that is one register only over what was before it.
    fn is_deleted(&self) -> bool {
        self.deleted > self.all.0
    }
}

/// Whether an entry is another one, or below it.
fn is_below(entries: &BTreeMap<Uuid, Entry>, mut entry: Uuid, above: Uuid) -> bool {
    while entry != above {
        match entries.get(&entry) {
            Some(known) => entry = known.place.parent,
            None => return false,
        }
    }
    true
}

/// Who is seen, by which name, with which attributes.
fn see(entries: &BTreeMap<Uuid, Entry>) -> Directory {
    // Those that were not deleted, and all above them.
    let mut seen = BTreeSet::new();
    for (entry, known) in entries {
        let mut above = (!known.is_deleted()).then_some(*entry);
        while let Some(entry) = above
            && let Some(known) = entries.get(&entry)
        {
            seen.insert(entry);
            above = Some(known.place.parent);
        }
    }
    // The first who was there, or where entries are one register, the last.
    let mut holders: BTreeMap<&Place, (bool, Csn, Reverse<Csn>, Uuid)> = BTreeMap::new();
    for entry in &seen {
        let known = &entries[entry];
        let (first, last) = match known.all.0 {
            none if none == Csn::default() => (known.placed, Reverse(none)),
            _ => (Csn::default(), Reverse(known.placed)),
        };
        let claim = (known.is_deleted(), first, last, *entry);
        let holder = holders.entry(&known.place).or_insert(claim);
        *holder = claim.min(*holder);
    }
    let of = |entry: &Uuid| {
        let known = &entries[entry];
        Seen {
            place: known.place.clone(),
            is_qualified: holders[&known.place].3 != *entry,
            is_glue: known.is_deleted(),
            stamp: match known.is_deleted() {
                true => Stamp::default(),
                false => known.stamp.clone(),
            },
            attributes: match known.is_deleted() {
                true => Vec::new(),
                false => attributes(known),
            },
        }
    };
    seen.iter().map(|entry| (*entry, of(entry))).collect()
}

fn attributes(known: &Entry) -> Vec<(Attribute, Vec<Value>)> {
    let mut attributes: BTreeMap<Attribute, Vec<Value>> = BTreeMap::new();
    attributes.extend(known.all.1.iter().cloned());
    for ((attribute, value), (csn, is_present)) in &known.values {
        let cleared = known.clears.get(attribute).copied().unwrap_or_default();
        if *is_present && *csn >= cleared {
            let values = attributes.entry(attribute.clone()).or_default();
            values.push(value.clone());
        }
    }
    for (attribute, (_, values)) in &known.wholes {
        if !values.is_empty() {
            attributes.insert(attribute.clone(), values.clone());
        }
    }
    for (attribute, value) in naming_values(&known.place.rdn) {
        let is_set = kind(&attribute) == Kind::Values;
        let values = attributes.entry(attribute).or_default();
        if !values.contains(&value) {
            match is_set {
                true => values.push(value),
                false => *values = vec![value],
            }
            values.sort_unstable();
        }
    }
    attributes.into_iter().collect()
}
