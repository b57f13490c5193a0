//! Updates by clients: few names and values, so that everything collides.

use std::collections::BTreeMap;

use sapwood_ldap::csn::Csn;
use sapwood_replication::{
    Attribute, Attributes, Change, EntryChanges, Kind, Place, Resolution, Seen, Stamp, Uuid, Value,
    What,
};

use super::mesh::{ROOT, Server};
use super::model::{kind, naming_values};
use crate::Random;

const RDNS: &[&str] = &["cn=a", "cn=b", "cn=c"];
const ATTRIBUTES: &[&str] = &["member", "mail", "title", "order", "password"];
const VALUES: &[&str] = &["1", "2", "3"];

/// An update that the server would accept; `None` if what comes to mind is none. `fresh` is a UUID for an entry.
pub(super) fn update<S: Server>(
    random: &mut Random,
    state: &S,
    csn: Csn,
    fresh: Uuid,
) -> Option<EntryChanges> {
    let live: Vec<(Uuid, Seen)> = live(state);
    let (entry, seen) = &live[random.below(live.len())];
    let (above, _) = live[random.below(live.len())];
    let place = Place {
        parent: above,
        rdn: random.of(RDNS).as_bytes().into(),
    };
    let is_free = state.claimants(&place).is_ok_and(|found| found.is_empty());
    let (entry, whats) = match random.below(16) {
        0..4 if is_free => (fresh, add(random, place)),
        4 if *entry != ROOT && state.child(*entry) == Ok(None) => (*entry, vec![What::Deleted]),
        5..7 if *entry != ROOT && is_free && !is_below(state, above, *entry) => {
            (*entry, rename(seen, place))
        }
        7.. if *entry != ROOT => (*entry, modify(random, state, *entry, seen)),
        _ => return None,
    };
    let whats = match state.resolution() {
        Resolution::Values => whats,
        Resolution::Entry => as_one(seen, whats),
    };
    let changes = whats.into_iter().map(|what| Change { csn, what });
    let changes: Vec<Change> = changes.collect();
    let modifier = csn.to_string().into_bytes().into();
    (!changes.is_empty()).then_some(EntryChanges {
        entry,
        stamp: Stamp { csn, modifier },
        changes,
    })
}

/// The entries that clients may change, glue left out.
pub(super) fn live<S: Server>(state: &S) -> Vec<(Uuid, Seen)> {
    let Ok(entries) = state.entries();
    let live = entries.into_iter().filter_map(|entry| {
        let Ok(seen) = Seen::of(state, entry);
        Some((entry, seen.filter(|seen| !seen.is_glue)?))
    });
    live.collect()
}

fn is_below<S: Server>(state: &S, mut entry: Uuid, above: Uuid) -> bool {
    while entry != above {
        match state.node(entry) {
            Ok(Some(node)) => entry = node.place.parent,
            Ok(None) => return false,
        }
    }
    true
}

fn add(random: &mut Random, place: Place) -> Vec<What> {
    let naming = naming_values(&place.rdn);
    let mut whats = vec![What::Born(place)];
    whats.extend(
        naming
            .into_iter()
            .map(|(attribute, value)| present(&attribute, value)),
    );
    whats.push(present(&"member".into(), value(random)));
    whats.push(What::Whole("title".into(), vec![value(random)]));
    whats
}

/// A move with deleteoldrdn.
fn rename(seen: &Seen, place: Place) -> Vec<What> {
    let mut whats = Vec::new();
    if seen.place.rdn != place.rdn {
        for (attribute, value) in naming_values(&seen.place.rdn) {
            whats.push(What::Value {
                attribute,
                value,
                is_present: false,
            });
        }
        for (attribute, value) in naming_values(&place.rdn) {
            whats.push(present(&attribute, value));
        }
    }
    whats.push(What::Moved(place));
    whats
}

fn modify<S: Server>(random: &mut Random, state: &S, entry: Uuid, seen: &Seen) -> Vec<What> {
    let attribute: Attribute = random.of(ATTRIBUTES).into();
    let value = value(random);
    if kind(&attribute) != Kind::Values {
        let values = match random.below(4) {
            0 => Vec::new(),
            1 if &*attribute == "order" => vec![value, self::value(random)],
            _ => vec![value],
        };
        return vec![What::Whole(attribute, values)];
    }
    let has = |value: &Value| {
        let mut known = seen.attributes.iter();
        known.any(|(known, values)| *known == attribute && values.contains(value))
    };
    match random.below(6) {
        // A replace: whatever others add meanwhile is not meant to stay.
        0 => vec![What::Cleared(attribute.clone()), present(&attribute, value)],
        1 => vec![What::Cleared(attribute)],
        _ if !has(&value) => vec![present(&attribute, value)],
        _ => {
            let Ok(register) = state.value(entry, &attribute, &value);
            let is_present = !register.is_present && state.resolution() == Resolution::Values;
            vec![What::Value {
                attribute,
                value,
                is_present,
            }]
        }
    }
}

/// The same update, of an entry that is one register.
fn as_one(seen: &Seen, whats: Vec<What>) -> Vec<What> {
    if whats.is_empty() || whats == [What::Deleted] {
        return whats;
    }
    let mut place = What::Moved(seen.place.clone());
    let mut attributes: BTreeMap<Attribute, Vec<Value>> = BTreeMap::new();
    if !matches!(whats[0], What::Born(_)) {
        attributes.extend(seen.attributes.iter().cloned());
    }
    for what in whats {
        match what {
            What::Born(_) | What::Moved(_) => place = what,
            What::Value {
                attribute,
                value,
                is_present,
            } => {
                let values = attributes.entry(attribute).or_default();
                values.retain(|known| *known != value);
                values.extend(is_present.then_some(value));
                values.sort_unstable();
            }
            What::Cleared(attribute) => drop(attributes.remove(&attribute)),
            What::Whole(attribute, values) => drop(attributes.insert(attribute, values)),
            What::Deleted | What::All(_) => {}
        }
    }
    attributes.retain(|_, values| !values.is_empty());
    vec![place, What::All(Attributes::from_iter(attributes))]
}

fn present(attribute: &Attribute, value: Value) -> What {
    What::Value {
        attribute: attribute.clone(),
        value,
        is_present: true,
    }
}

fn value(random: &mut Random) -> Value {
    random.of(VALUES).as_bytes().into()
}
