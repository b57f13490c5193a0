//! Rules that are switched off are found by the simulator, each of them. They are switched off by tables that lie.

use std::cell::Cell;
use std::convert::Infallible;

use sapwood_ldap::csn::Csn;
use sapwood_replication::{
    Attribute, Attributes, Change, Conflict, Kind, Move, Node, Place, Register, Replica,
    Resolution, Uuid, Value, Vector,
};
use sapwood_testkit::replication::{Model, Server, simulate};

type Result<T> = std::result::Result<T, Infallible>;

const SEEDS: u64 = 300;
const STEPS: usize = 400;

/// Which rule does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    LaterValueWins,
    LaterListWins,
    LaterEntryWins,
    ClearCountsAgainstEarlierValues,
    ClearTakesWhatIsThere,
    ClearIsKept,
    DeleteWins,
    DeleteTakesAllValues,
    MovesAreRedone,
    MovesAreTold,
    OnlyOneHasTheName,
    EarlierClaimKeepsTheName,
    GlueStays,
    NamingValuesStay,
    LaterStampWins,
    LossesAreLogged,
    LinesOfTheLogAreTold,
    SecretsAreNotLogged,
    OnlySettledIsForgotten,
}

use Broken::*;

thread_local! {
    /// What does not hold in the simulation of this thread, each of which a test has for itself.
    static BROKEN: Cell<Option<Broken>> = const { Cell::new(None) };
}

macro_rules! mutants {
    ($($broken:ident $name:ident)*) => {$(
        #[test]
        fn $name() {
            BROKEN.set(Some($broken));
            let is_found = |seed| simulate::<Mutant>(seed, STEPS, None).is_err();
            assert!((0..SEEDS).any(is_found), "{:?} is not found", $broken);
        }
    )*};
}

mutants! {
    LaterValueWins later_value_wins
    LaterListWins later_list_wins
    LaterEntryWins later_entry_wins
    ClearCountsAgainstEarlierValues clear_counts_against_earlier_values
    ClearTakesWhatIsThere clear_takes_what_is_there
    ClearIsKept clear_is_kept
    DeleteWins delete_wins
    DeleteTakesAllValues delete_takes_all_values
    MovesAreRedone moves_are_redone
    MovesAreTold moves_are_told
    OnlyOneHasTheName only_one_has_the_name
    EarlierClaimKeepsTheName earlier_claim_keeps_the_name
    GlueStays glue_stays
    NamingValuesStay naming_values_stay
    LaterStampWins later_stamp_wins
    LossesAreLogged losses_are_logged
    LinesOfTheLogAreTold lines_of_the_log_are_told
    SecretsAreNotLogged secrets_are_not_logged
    OnlySettledIsForgotten only_settled_is_forgotten
}

/// A replica of which a rule does not hold.
#[derive(Clone)]
struct Mutant {
    model: Model,
}

impl Mutant {
    fn lacks(&self, rule: Broken) -> bool {
        BROKEN.get() == Some(rule)
    }

    /// What is told instead of a table, if a rule does not hold.
    fn or<T: Default>(&self, rule: Broken, read: Result<T>) -> Result<T> {
        match self.lacks(rule) {
            true => Ok(T::default()),
            false => read,
        }
    }
}

impl Server for Mutant {
    fn begin(resolution: Resolution) -> Self {
        let model = Model::new(resolution);
        Mutant { model }
    }

    fn model(&self) -> &Model {
        &self.model
    }
}

impl Replica for Mutant {
    type Error = Infallible;

    fn resolution(&self) -> Resolution {
        self.model.resolution()
    }

    fn kind(&self, attribute: &str) -> Kind {
        match self.model.kind(attribute) {
            Kind::Secret if self.lacks(SecretsAreNotLogged) => Kind::Whole,
            kind => kind,
        }
    }

    fn naming_values(&self, rdn: &Value) -> Vec<(Attribute, Value)> {
        let Ok(values) = self.or(NamingValuesStay, Ok(self.model.naming_values(rdn)));
        values
    }

    fn vector(&self) -> Result<Vector> {
        self.model.vector()
    }

    fn put_vector(&mut self, vector: &Vector) -> Result<()> {
        self.model.put_vector(vector)
    }

    fn pruned(&self) -> Result<Vector> {
        self.model.pruned()
    }

    fn put_pruned(&mut self, pruned: &Vector) -> Result<()> {
        self.model.put_pruned(pruned)
    }

    fn moves_pruned(&self) -> Result<Csn> {
        self.model.moves_pruned()
    }

    fn node(&self, entry: Uuid) -> Result<Option<Node>> {
        let mut node = self.model.node(entry)?;
        if let Some(node) = &mut node {
            if self.lacks(DeleteWins) {
                node.deleted = None;
            }
            if self.lacks(EarlierClaimKeepsTheName) {
                node.placed = node.birth;
            }
        }
        Ok(node)
    }

    fn entries(&self) -> Result<Vec<Uuid>> {
        self.model.entries()
    }

    fn put_node(&mut self, entry: Uuid, node: &Node) -> Result<()> {
        let mut node = node.clone();
        if self.lacks(LaterStampWins)
            && let Some(before) = self.model.node(entry)?
        {
            node.stamp = before.stamp;
        }
        self.model.put_node(entry, &node)
    }

    fn claimants(&self, place: &Place) -> Result<Vec<Uuid>> {
        self.or(OnlyOneHasTheName, self.model.claimants(place))
    }

    fn child(&self, entry: Uuid) -> Result<Option<Uuid>> {
        self.or(GlueStays, self.model.child(entry))
    }

    fn moves_from(&self, csn: Csn) -> Result<Vec<Move>> {
        self.or(MovesAreRedone, self.model.moves_from(csn))
    }

    fn moves_of(&self, entry: Uuid) -> Result<Vec<Move>> {
        self.or(MovesAreTold, self.model.moves_of(entry))
    }

    fn put_move(&mut self, made: &Move) -> Result<()> {
        self.model.put_move(made)
    }

    fn value(&self, entry: Uuid, attribute: &str, value: &Value) -> Result<Register> {
        let mut register = self.model.value(entry, attribute, value)?;
        if self.lacks(LaterValueWins) {
            register.csn = Csn::default();
        }
        Ok(register)
    }

    fn put_value(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        value: &Value,
        register: Register,
    ) -> Result<()> {
        self.model.put_value(entry, attribute, value, register)
    }

    fn forget_value(&mut self, entry: Uuid, attribute: &str, value: &Value) -> Result<()> {
        self.model.forget_value(entry, attribute, value)
    }

    fn values(&self, entry: Uuid, attribute: &str) -> Result<Vec<(Value, Register)>> {
        self.or(ClearTakesWhatIsThere, self.model.values(entry, attribute))
    }

    fn cleared(&self, entry: Uuid, attribute: &str) -> Result<Csn> {
        self.or(
            ClearCountsAgainstEarlierValues,
            self.model.cleared(entry, attribute),
        )
    }

    fn put_cleared(&mut self, entry: Uuid, attribute: &Attribute, csn: Csn) -> Result<()> {
        match self.lacks(ClearIsKept) {
            true => Ok(()),
            false => self.model.put_cleared(entry, attribute, csn),
        }
    }

    fn whole(&self, entry: Uuid, attribute: &str) -> Result<(Csn, Vec<Value>)> {
        let (mut csn, values) = self.model.whole(entry, attribute)?;
        if self.lacks(LaterListWins) {
            csn = Csn::default();
        }
        Ok((csn, values))
    }

    fn put_whole(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        csn: Csn,
        values: &[Value],
    ) -> Result<()> {
        self.model.put_whole(entry, attribute, csn, values)
    }

    fn all(&self, entry: Uuid) -> Result<(Csn, Attributes)> {
        let (mut csn, attributes) = self.model.all(entry)?;
        if self.lacks(LaterEntryWins) {
            csn = Csn::default();
        }
        Ok((csn, attributes))
    }

    fn put_all(&mut self, entry: Uuid, csn: Csn, attributes: &Attributes) -> Result<()> {
        self.model.put_all(entry, csn, attributes)
    }

    fn registers(&self, entry: Uuid) -> Result<Vec<Change>> {
        self.model.registers(entry)
    }

    fn forget_registers(&mut self, entry: Uuid) -> Result<()> {
        match self.lacks(DeleteTakesAllValues) {
            true => Ok(()),
            false => self.model.forget_registers(entry),
        }
    }

    fn attributes(&self, entry: Uuid) -> Result<Attributes> {
        self.model.attributes(entry)
    }

    fn put_conflict(&mut self, conflict: &Conflict) -> Result<()> {
        match self.lacks(LossesAreLogged) {
            true => Ok(()),
            false => self.model.put_conflict(conflict),
        }
    }

    fn conflicts_since(&self, since: &Vector) -> Result<Vec<Conflict>> {
        self.or(LinesOfTheLogAreTold, self.model.conflicts_since(since))
    }

    fn changed_since(&self, since: &Vector) -> Result<Vec<Uuid>> {
        self.model.changed_since(since)
    }

    fn forget(&mut self, is_settled: &dyn Fn(Csn) -> bool) -> Result<()> {
        let is_everything = self.lacks(OnlySettledIsForgotten);
        self.model.forget(&|csn| is_everything || is_settled(csn))
    }
}
