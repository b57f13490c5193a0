//! What has to hold when all is healed and quiet.

use std::collections::{BTreeMap, BTreeSet};

use sapwood_ldap::csn::Csn;
use sapwood_replication::{Attribute, Kind, Lost, Replica, Rule, Uuid, Value, Vector, What};

use super::mesh::{Answered, Mesh, Server, entries_of};
use super::model::{Model, kind};
use super::reference::{self, Directory};

/// Checks servers that have told each other everything.
///
/// # Errors
/// What does not hold.
pub(super) fn check<S: Server>(mesh: &Mesh<S>, states: &[&S]) -> Result<(), String> {
    let Ok(vector) = states[0].vector();
    for state in states {
        let Ok(other) = state.vector();
        if other != vector {
            return Err("vectors differ".to_owned());
        }
    }
    let is_known = |answered: &&Answered| {
        let mut changes = answered.told.changes.iter();
        changes.all(|change| vector.covers(change.csn))
    };
    let (known, late): (Vec<&Answered>, Vec<&Answered>) = mesh
        .answered
        .iter()
        .filter(is_known)
        .partition(|answered| !answered.came_late);
    let mut lost = mesh.answered.iter().filter(|one| !is_known(one));
    if let Some(lost) = lost.find(|lost| !lost.may_be_lost) {
        return Err(format!("an update has vanished: {lost:?}"));
    }
    let expected = reference::join(known.iter().map(|answered| &answered.told));
    for (at, state) in states.iter().enumerate() {
        let Ok(found) = entries_of(*state);
        let found: Directory = found.into_iter().collect();
        same(at, &expected, &found)?;
        tree(&found)?;
    }
    let ledger = Ledger {
        answered: known.into_iter().chain(late).collect(),
        directory: &expected,
        states: states.iter().map(|state| state.model()).collect(),
        placed: placed(states[0]),
    };
    ledger.all_is_accounted_for()?;
    ledger.names_and_glue_are_told(states[0])?;
    ledger.what_is_told_is_so()
}

fn same(at: usize, expected: &Directory, found: &Directory) -> Result<(), String> {
    let entries: BTreeSet<&Uuid> = expected.keys().chain(found.keys()).collect();
    for entry in entries {
        let (expected, found) = (expected.get(entry), found.get(entry));
        if expected != found {
            return Err(format!(
                "server {at}, entry {entry}:\n  is    {found:?}\n  is to be {expected:?}"
            ));
        }
    }
    Ok(())
}

/// No rings, no orphans, no name twice.
fn tree(found: &Directory) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for (entry, seen) in found {
        let qualifier = seen.is_qualified.then_some(entry);
        if !names.insert((&seen.place, qualifier)) {
            return Err(format!("two entries are called {:?}", seen.place));
        }
        let mut above = seen.place.parent;
        for _ in 0..=found.len() {
            match found.get(&above) {
                Some(seen) => above = seen.place.parent,
                None if above == Uuid::NIL => break,
                None => return Err(format!("{above}, which is above {entry}, is not there")),
            }
        }
        if above != Uuid::NIL {
            return Err(format!("{entry} is below itself"));
        }
    }
    Ok(())
}

/// Since when entries are where they are.
fn placed<S: Server>(state: &S) -> BTreeMap<Uuid, Csn> {
    let Ok(entries) = state.entries();
    let placed = entries.into_iter().filter_map(|entry| {
        let Ok(node) = state.node(entry);
        node.map(|node| (entry, node.placed))
    });
    placed.collect()
}

struct Ledger<'l> {
    /// Also those that came late.
    answered: Vec<&'l Answered>,
    directory: &'l Directory,
    states: Vec<&'l Model>,
    placed: BTreeMap<Uuid, Csn>,
}

/// A change, and what its maker knew.
#[derive(Clone, Copy)]
struct Made<'l> {
    csn: Csn,
    what: &'l What,
    knew: &'l Vector,
}

impl Ledger<'_> {
    /// Each update has its effect, or a later one was made in knowledge of it, or the log of each server has it.
    fn all_is_accounted_for(&self) -> Result<(), String> {
        let mut entries: BTreeMap<Uuid, Vec<Made<'_>>> = BTreeMap::new();
        for Answered { told, knew, .. } in &self.answered {
            let made = told.changes.iter().map(|change| Made {
                csn: change.csn,
                what: &change.what,
                knew,
            });
            entries.entry(told.entry).or_default().extend(made);
        }
        for (entry, mut changes) in entries {
            // Later ones first: whether a change is accounted for depends on those that came after it.
            changes.sort_by_key(|made| std::cmp::Reverse(made.csn));
            let mut accounted: Vec<Made<'_>> = Vec::new();
            for made in changes {
                if !self.is_accounted_for(entry, made, &accounted) {
                    return Err(format!(
                        "{:?} of {} has vanished without a line in the log\n{}",
                        made.what,
                        made.csn,
                        self.history(entry, made.csn)
                    ));
                }
                accounted.push(made);
            }
        }
        Ok(())
    }

    /// What has become of an entry, to look for a fault in.
    fn history(&self, entry: Uuid, csn: Csn) -> String {
        let of = self.answered.iter().filter(|one| one.told.entry == entry);
        let updates = of.map(|one| {
            let knew = if one.knew.covers(csn) {
                "knew of it"
            } else {
                ""
            };
            format!("{} {:?} {knew}", one.told.stamp.csn, one.told.changes)
        });
        let mut lines: Vec<String> = updates.collect();
        for (at, state) in self.states.iter().enumerate() {
            let told = state.conflicts().filter(|line| line.entry == entry);
            lines.extend(told.map(|line| format!("server {at} logs {line}")));
        }
        lines.push(format!(
            "{:?} since {:?}",
            self.directory.get(&entry),
            self.placed.get(&entry)
        ));
        lines.join("\n")
    }

    fn is_accounted_for(&self, entry: Uuid, made: Made<'_>, later: &[Made<'_>]) -> bool {
        let overruled = |by: &dyn Fn(&What) -> bool| {
            let mut later = later.iter().filter(|later| later.csn > made.csn);
            later.any(|later| {
                let is_known = later.knew.covers(made.csn);
                let is_same = later.what == made.what;
                let is_entry = matches!(later.what, What::Deleted | What::All(_));
                is_same || is_known && (is_entry || by(later.what))
            })
        };
        let is_told = || {
            let lost = self.states[0].loss(made.what);
            lost.is_some_and(|lost| self.is_told(made.csn, entry, &lost))
        };
        match made.what {
            What::Born(_) | What::Cleared(_) => true,
            What::Deleted => {
                let seen = self.directory.get(&entry);
                seen.is_none_or(|seen| seen.is_glue)
                    || self.is_told(made.csn, entry, &Lost::Delete)
                    || overruled(&|_| false)
            }
            What::All(attributes) => {
                let Ok((_, left)) = self.states[0].all(entry);
                left == *attributes || is_told() || overruled(&|_| false)
            }
            What::Value {
                is_present: false, ..
            } => true,
            What::Value {
                attribute, value, ..
            } => {
                self.values(entry, attribute).contains(value)
                    || is_told()
                    || overruled(&|what| match what {
                        What::Value {
                            attribute: of,
                            value: which,
                            ..
                        } => of == attribute && which == value,
                        What::Cleared(of) => of == attribute,
                        _ => false,
                    })
            }
            What::Whole(attribute, values) => {
                values.is_empty()
                    || self.values(entry, attribute) == &values[..]
                    || is_told()
                    || overruled(&|what| matches!(what, What::Whole(of, _) if of == attribute))
            }
            What::Moved(_) => {
                self.placed.get(&entry) == Some(&made.csn)
                    || is_told()
                    || overruled(&|what| matches!(what, What::Moved(_)))
            }
        }
    }

    fn values(&self, entry: Uuid, attribute: &Attribute) -> &[Value] {
        let seen = self.directory.get(&entry);
        let attributes = seen.iter().flat_map(|seen| &seen.attributes);
        let mut attributes = attributes.filter(|(known, _)| known == attribute);
        attributes.next().map_or(&[], |(_, values)| values)
    }

    /// Whether the log of each server tells of a loss, perhaps of a change whose number was forgotten.
    fn is_told(&self, csn: Csn, entry: Uuid, lost: &Lost) -> bool {
        let mut states = self.states.iter();
        states.all(|state| {
            let mut csns = [csn, Csn::default()].into_iter();
            csns.any(|csn| state.tells(csn, entry, lost.clone()))
        })
    }

    fn names_and_glue_are_told<S: Server>(&self, state: &S) -> Result<(), String> {
        for (entry, seen) in self.directory {
            let Ok(Some(node)) = state.node(*entry) else {
                return Err(format!("{entry} is seen and not there"));
            };
            let mut lost = Vec::new();
            if seen.is_qualified {
                lost.push((node.placed, Lost::Name));
            }
            lost.extend(node.deleted.map(|deleted| (deleted, Lost::Delete)));
            for (csn, lost) in lost {
                let mut states = self.states.iter();
                if !states.all(|state| state.tells(csn, *entry, lost.clone())) {
                    return Err(format!("no line in the log: {lost:?} of {entry}"));
                }
            }
        }
        Ok(())
    }

    /// Neither of two changes that the log calls a conflict knew of the other one.
    fn what_is_told_is_so(&self) -> Result<(), String> {
        let knew: BTreeMap<Csn, &Vector> = self
            .answered
            .iter()
            .map(|answered| (answered.told.stamp.csn, &answered.knew))
            .collect();
        let lines = self.states.iter().flat_map(|state| state.conflicts());
        for line in lines.filter(|line| matches!(line.rule, Rule::Later | Rule::Deleted)) {
            let (Some(loser), Some(winner)) = (knew.get(&line.loser), knew.get(&line.winner))
            else {
                return Err(format!("a conflict of what was never done: {line}"));
            };
            if loser.covers(line.winner) || winner.covers(line.loser) {
                return Err(format!("no conflict: {line}"));
            }
            let is_secret = |attribute: &Attribute| kind(attribute) == Kind::Secret;
            let is_told = match &line.lost {
                Lost::Whole(attribute, values) => is_secret(attribute) != values.is_none(),
                Lost::All(attributes) => attributes.iter().any(|(one, _)| is_secret(one)),
                _ => false,
            };
            if is_told {
                return Err(format!("a secret is told: {line}"));
            }
        }
        Ok(())
    }
}
