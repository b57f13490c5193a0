//! A replica in memory: the tables that the rules of merging need, in the plainest form.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use sapwood_ldap::csn::Csn;
use sapwood_replication::{
    Attribute, Attributes, Change, Conflict, Kind, Lost, Move, Node, Place, Register, Replica,
    Resolution, Rule, Shown, Uuid, Value, Vector, What,
};

type Result<T> = std::result::Result<T, Infallible>;

/// A replica's tables. A clone is a backup, or the copy that a new replica begins with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    resolution: Resolution,
    vector: Vector,
    pruned: Vector,
    nodes: BTreeMap<Uuid, Node>,
    /// Where those are that are shown.
    claims: BTreeSet<(Place, Uuid)>,
    moves: BTreeMap<(Csn, Uuid), Move>,
    moves_pruned: Csn,
    values: BTreeMap<(Uuid, Attribute), BTreeMap<Value, Register>>,
    clears: BTreeMap<(Uuid, Attribute), Csn>,
    wholes: BTreeMap<(Uuid, Attribute), (Csn, Vec<Value>)>,
    alls: BTreeMap<Uuid, (Csn, Attributes)>,
    conflicts: BTreeMap<(Csn, Uuid, Lost, Rule), Conflict>,
}

impl Model {
    /// A replica with nothing in it.
    pub fn new(resolution: Resolution) -> Model {
        Model {
            resolution,
            ..Model::default()
        }
    }

    /// The conflict log.
    pub fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.conflicts.values()
    }

    /// Whether the log tells of a loss, by whatever rule: [`Rule::Later`] is the first of them.
    pub fn tells(&self, loser: Csn, entry: Uuid, lost: Lost) -> bool {
        let least = (loser, entry, lost, Rule::Later);
        let mut told = self.conflicts.range(&least..);
        told.next()
            .is_some_and(|(found, _)| (found.0, found.1, &found.2) == (least.0, least.1, &least.2))
    }

    /// How many changes have a record, how many deleted entries are kept, and how many attributes of theirs.
    pub fn records(&self) -> usize {
        let values = self.values.values().flat_map(|values| values.values());
        let values = values.filter(|register| register.csn != Csn::default());
        let wholes = self.wholes.values();
        let wholes = wholes.filter(|(csn, _)| *csn != Csn::default());
        let alls = self.alls.values();
        let alls = alls.filter(|(csn, _)| *csn != Csn::default());
        let deleted = self.nodes.values().filter(|node| node.deleted.is_some());
        let attributes = values.count() + wholes.count() + alls.count() + self.clears.len();
        let is_live = |entry| {
            self.nodes
                .get(entry)
                .is_some_and(|node| node.deleted.is_none())
        };
        let owners = self.values.keys().chain(self.wholes.keys());
        let owners = owners.map(|(entry, _)| entry).chain(self.alls.keys());
        let left = owners.filter(|entry| !is_live(*entry));
        attributes + left.count() + self.moves.len() + deleted.count()
    }
}

/// Of `title` and `order` the values are one register, of `password` too, and nobody may see them.
pub fn kind(attribute: &str) -> Kind {
    match attribute {
        "title" | "order" => Kind::Whole,
        "password" => Kind::Secret,
        _ => Kind::Values,
    }
}

/// An RDN such as `cn=a` names the value `a` of `cn`.
pub fn naming_values(rdn: &Value) -> Vec<(Attribute, Value)> {
    let text = String::from_utf8_lossy(rdn);
    let pair = text.split_once('=');
    let pair = pair.map(|(attribute, value)| (attribute.into(), value.as_bytes().into()));
    pair.into_iter().collect()
}

impl Replica for Model {
    type Error = Infallible;

    fn resolution(&self) -> Resolution {
        self.resolution
    }

    fn kind(&self, attribute: &str) -> Kind {
        kind(attribute)
    }

    fn naming_values(&self, rdn: &Value) -> Vec<(Attribute, Value)> {
        naming_values(rdn)
    }

    fn vector(&self) -> Result<Vector> {
        Ok(self.vector.clone())
    }

    fn put_vector(&mut self, vector: &Vector) -> Result<()> {
        self.vector = vector.clone();
        Ok(())
    }

    fn pruned(&self) -> Result<Vector> {
        Ok(self.pruned.clone())
    }

    fn put_pruned(&mut self, pruned: &Vector) -> Result<()> {
        self.pruned = pruned.clone();
        Ok(())
    }

    fn moves_pruned(&self) -> Result<Csn> {
        Ok(self.moves_pruned)
    }

    fn node(&self, entry: Uuid) -> Result<Option<Node>> {
        Ok(self.nodes.get(&entry).cloned())
    }

    fn entries(&self) -> Result<Vec<Uuid>> {
        Ok(self.nodes.keys().copied().collect())
    }

    fn put_node(&mut self, entry: Uuid, node: &Node) -> Result<()> {
        if let Some(before) = self.nodes.insert(entry, node.clone()) {
            self.claims.remove(&(before.place, entry));
        }
        if node.shown != Shown::Hidden {
            self.claims.insert((node.place.clone(), entry));
        }
        Ok(())
    }

    fn claimants(&self, place: &Place) -> Result<Vec<Uuid>> {
        let first = (place.clone(), Uuid::NIL);
        let at = self.claims.range(first..);
        let at = at.take_while(|(claimed, _)| claimed == place);
        Ok(at.map(|(_, entry)| *entry).collect())
    }

    fn child(&self, entry: Uuid) -> Result<Option<Uuid>> {
        let first = Place {
            parent: entry,
            rdn: Value::default(),
        };
        let mut below = self.claims.range((first, Uuid::NIL)..);
        let next = below.next().filter(|(place, _)| place.parent == entry);
        Ok(next.map(|(_, child)| *child))
    }

    fn moves_from(&self, csn: Csn) -> Result<Vec<Move>> {
        let moves = self.moves.range((csn, Uuid::NIL)..);
        Ok(moves.map(|(_, made)| made.clone()).collect())
    }

    fn moves_of(&self, entry: Uuid) -> Result<Vec<Move>> {
        let moves = self.moves.values().filter(|made| made.entry == entry);
        Ok(moves.cloned().collect())
    }

    fn put_move(&mut self, made: &Move) -> Result<()> {
        self.moves.insert((made.csn, made.entry), made.clone());
        Ok(())
    }

    fn value(&self, entry: Uuid, attribute: &str, value: &Value) -> Result<Register> {
        let values = self.values.get(&(entry, attribute.into()));
        let register = values.and_then(|values| values.get(value));
        Ok(register.copied().unwrap_or_default())
    }

    fn put_value(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        value: &Value,
        register: Register,
    ) -> Result<()> {
        let values = self.values.entry((entry, attribute.clone())).or_default();
        values.insert(value.clone(), register);
        Ok(())
    }

    fn forget_value(&mut self, entry: Uuid, attribute: &str, value: &Value) -> Result<()> {
        let key = (entry, attribute.into());
        if let Some(values) = self.values.get_mut(&key) {
            values.remove(value);
            if values.is_empty() {
                self.values.remove(&key);
            }
        }
        Ok(())
    }

    fn values(&self, entry: Uuid, attribute: &str) -> Result<Vec<(Value, Register)>> {
        let values = self.values.get(&(entry, attribute.into()));
        let values = values.into_iter().flatten();
        Ok(values
            .map(|(value, register)| (value.clone(), *register))
            .collect())
    }

    fn cleared(&self, entry: Uuid, attribute: &str) -> Result<Csn> {
        let cleared = self.clears.get(&(entry, attribute.into()));
        Ok(cleared.copied().unwrap_or_default())
    }

    fn put_cleared(&mut self, entry: Uuid, attribute: &Attribute, csn: Csn) -> Result<()> {
        self.clears.insert((entry, attribute.clone()), csn);
        Ok(())
    }

    fn whole(&self, entry: Uuid, attribute: &str) -> Result<(Csn, Vec<Value>)> {
        let whole = self.wholes.get(&(entry, attribute.into()));
        Ok(whole.cloned().unwrap_or_default())
    }

    fn put_whole(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        csn: Csn,
        values: &[Value],
    ) -> Result<()> {
        let key = (entry, attribute.clone());
        self.wholes.insert(key, (csn, values.to_vec()));
        Ok(())
    }

    fn all(&self, entry: Uuid) -> Result<(Csn, Attributes)> {
        Ok(self.alls.get(&entry).cloned().unwrap_or_default())
    }

    fn put_all(&mut self, entry: Uuid, csn: Csn, attributes: &Attributes) -> Result<()> {
        self.alls.insert(entry, (csn, attributes.clone()));
        Ok(())
    }

    fn registers(&self, entry: Uuid) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for ((_, attribute), values) in of_entry(&self.values, entry) {
            for (value, register) in values {
                let what = What::Value {
                    attribute: attribute.clone(),
                    value: value.clone(),
                    is_present: register.is_present,
                };
                let csn = register.csn;
                changes.push(Change { csn, what });
            }
        }
        for ((_, attribute), csn) in of_entry(&self.clears, entry) {
            let what = What::Cleared(attribute.clone());
            changes.push(Change { csn: *csn, what });
        }
        for ((_, attribute), (csn, values)) in of_entry(&self.wholes, entry) {
            let what = What::Whole(attribute.clone(), values.clone());
            changes.push(Change { csn: *csn, what });
        }
        if let Some((csn, attributes)) = self.alls.get(&entry) {
            let what = What::All(attributes.clone());
            changes.push(Change { csn: *csn, what });
        }
        changes.retain(|change| change.csn != Csn::default());
        Ok(changes)
    }

    fn forget_registers(&mut self, entry: Uuid) -> Result<()> {
        self.values.retain(|(of, _), _| *of != entry);
        self.clears.retain(|(of, _), _| *of != entry);
        self.wholes.retain(|(of, _), _| *of != entry);
        self.alls.remove(&entry);
        Ok(())
    }

    fn attributes(&self, entry: Uuid) -> Result<Attributes> {
        let (_, mut attributes) = self.all(entry)?;
        for ((_, attribute), values) in of_entry(&self.values, entry) {
            let present = values.iter().filter(|(_, register)| register.is_present);
            let present = present.map(|(value, _)| value.clone()).collect();
            attributes.push((attribute.clone(), present));
        }
        for ((_, attribute), (_, values)) in of_entry(&self.wholes, entry) {
            attributes.push((attribute.clone(), values.clone()));
        }
        attributes.retain(|(_, values): &(_, Vec<Value>)| !values.is_empty());
        Ok(attributes)
    }

    fn put_conflict(&mut self, conflict: &Conflict) -> Result<()> {
        let key = (
            conflict.loser,
            conflict.entry,
            conflict.lost.clone(),
            conflict.rule,
        );
        let told = self.conflicts.entry(key);
        let told = told.or_insert_with(|| conflict.clone());
        if conflict < told {
            told.clone_from(conflict);
        }
        Ok(())
    }

    fn conflicts_since(&self, since: &Vector) -> Result<Vec<Conflict>> {
        let conflicts = self.conflicts.values();
        let conflicts = conflicts
            .filter(|conflict| !since.covers(conflict.loser) || !since.covers(conflict.winner));
        Ok(conflicts.cloned().collect())
    }

    fn changed_since(&self, since: &Vector) -> Result<Vec<Uuid>> {
        let mut changed = BTreeSet::new();
        for (entry, node) in &self.nodes {
            if !since.covers(node.birth) || node.deleted.is_some_and(|csn| !since.covers(csn)) {
                changed.insert(*entry);
            }
        }
        let moves = self.moves.keys();
        changed.extend(
            moves
                .filter(|(csn, _)| !since.covers(*csn))
                .map(|(_, entry)| *entry),
        );
        for ((entry, _), values) in &self.values {
            if values.values().any(|register| !since.covers(register.csn)) {
                changed.insert(*entry);
            }
        }
        let clears = self.clears.iter().map(|((entry, _), csn)| (entry, csn));
        let wholes = self
            .wholes
            .iter()
            .map(|((entry, _), (csn, _))| (entry, csn));
        let alls = self.alls.iter().map(|(entry, (csn, _))| (entry, csn));
        let others = clears
            .chain(wholes)
            .chain(alls)
            .filter(|(_, csn)| !since.covers(**csn));
        changed.extend(others.map(|(entry, _)| *entry));
        Ok(changed.into_iter().collect())
    }

    fn forget(&mut self, is_settled: &dyn Fn(Csn) -> bool) -> Result<()> {
        for values in self.values.values_mut() {
            values.retain(|_, register| register.is_present || !is_settled(register.csn));
            for register in values.values_mut() {
                if is_settled(register.csn) {
                    register.csn = Csn::default();
                }
            }
        }
        self.values.retain(|_, values| !values.is_empty());
        self.clears.retain(|_, csn| !is_settled(*csn));
        for (csn, _) in self.wholes.values_mut() {
            if is_settled(*csn) {
                *csn = Csn::default();
            }
        }
        for (csn, _) in self.alls.values_mut() {
            if is_settled(*csn) {
                *csn = Csn::default();
            }
        }
        while let Some(first) = self.moves.first_entry()
            && is_settled(first.key().0)
        {
            self.moves_pruned = first.remove().csn;
        }
        let is_gone =
            |node: &Node| node.shown == Shown::Hidden && node.deleted.is_some_and(is_settled);
        let moved = self.moves.values().flat_map(|made| {
            let from = made.from.as_ref().map(|(place, _)| place.parent);
            [made.entry, made.to.parent].into_iter().chain(from)
        });
        let kept = self.nodes.iter().filter(|(_, node)| !is_gone(node));
        let mut held = BTreeSet::new();
        for mut entry in moved.chain(kept.map(|(entry, _)| *entry)) {
            while let Some(node) = self.nodes.get(&entry)
                && held.insert(entry)
            {
                entry = node.place.parent;
            }
        }
        self.nodes.retain(|entry, _| held.contains(entry));
        Ok(())
    }
}

/// What a table has of an entry.
fn of_entry<T>(
    table: &BTreeMap<(Uuid, Attribute), T>,
    entry: Uuid,
) -> impl Iterator<Item = (&(Uuid, Attribute), &T)> {
    let of = table.range((entry, Attribute::from(""))..);
    of.take_while(move |((of, _), _)| *of == entry)
}
