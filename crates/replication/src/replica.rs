//! What the rules need of a replica: tables that they read and write. The rules hold no state of their own.

use sapwood_ldap::csn::Csn;

use crate::{
    Attribute, Attributes, Change, Conflict, Kind, Lost, Place, Resolution, Stamp, Uuid, Value,
    Vector, What,
};

/// How an entry is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Not at all: it was deleted.
    #[default]
    Hidden,
    /// By its name.
    Plain,
    /// By its name and its entryUUID: another entry has the name.
    Qualified,
}

/// An entry, or what is left of one: where it is and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// When it was added.
    pub birth: Csn,
    /// Where it was added.
    pub born: Place,
    /// Where it is: where those of its moves have put it that are followed.
    pub place: Place,
    /// Since when: the number of that move, or of its birth. It is its claim on the name.
    pub placed: Csn,
    /// When it was deleted.
    pub deleted: Option<Csn>,
    /// How it is seen. A deleted entry that is seen is *glue*: it has a name, but no attributes.
    pub shown: Shown,
    /// entryCSN and modifiersName.
    pub stamp: Stamp,
}

/// A move that may have to be undone, because one arrives that was made before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// When it was made.
    pub csn: Csn,
    /// The entry.
    pub entry: Uuid,
    /// Where it was to go.
    pub to: Place,
    /// Where it was before, and since when; `None` if the move is left out because it would make a ring.
    pub from: Option<(Place, Csn)>,
}

/// The last change of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// When; [`Csn::default`] if nobody needs to know any more.
    pub csn: Csn,
    /// Whether it was added.
    pub is_present: bool,
}

/// A replica's tables, as one transaction sees them.
///
/// What was written is read back at once. Nothing is kept of what was written before an error. Where the text says
/// *has no record*, either there was no change, or it was [pruned](crate::prune).
pub trait Replica {
    /// Why a table cannot be read or written.
    type Error;

    /// How much of an entry one register holds.
    fn resolution(&self) -> Resolution;

    /// How the values of an attribute are kept apart. All replicas have to say the same.
    fn kind(&self, attribute: &str) -> Kind;

    /// What is lost if a change has no effect; `None` if there was nothing to be lost.
    fn loss(&self, what: &What) -> Option<Lost> {
        Lost::of(what, |attribute| self.kind(attribute) == Kind::Secret)
    }

    /// The values that an RDN names, with their attributes.
    fn naming_values(&self, rdn: &Value) -> Vec<(Attribute, Value)>;

    /// Up to where the replica has all changes.
    fn vector(&self) -> Result<Vector, Self::Error>;

    /// Says so.
    fn put_vector(&mut self, vector: &Vector) -> Result<(), Self::Error>;

    /// What others must have before they can be told only what has changed, and before they are listened to.
    fn pruned(&self) -> Result<Vector, Self::Error>;

    /// Says so.
    fn put_pruned(&mut self, pruned: &Vector) -> Result<(), Self::Error>;

    /// The greatest number of a move that has no record any more.
    fn moves_pruned(&self) -> Result<Csn, Self::Error>;

    /// An entry; `None` if there never was one, or nothing is left of it.
    fn node(&self, entry: Uuid) -> Result<Option<Node>, Self::Error>;

    /// All entries of which something is left.
    fn entries(&self) -> Result<Vec<Uuid>, Self::Error>;

    /// Writes an entry down, anew or for the first time.
    fn put_node(&mut self, entry: Uuid, node: &Node) -> Result<(), Self::Error>;

    /// The entries at a place that are [shown](Shown), in any order.
    fn claimants(&self, place: &Place) -> Result<Vec<Uuid>, Self::Error>;

    /// An entry that is shown and placed right below this one: the first by RDN and UUID.
    fn child(&self, entry: Uuid) -> Result<Option<Uuid>, Self::Error>;

    /// The moves with this number or a greater one that have a record, by number and entry.
    fn moves_from(&self, csn: Csn) -> Result<Vec<Move>, Self::Error>;

    /// The moves of an entry that have a record.
    fn moves_of(&self, entry: Uuid) -> Result<Vec<Move>, Self::Error>;

    /// Writes a move down, anew or for the first time.
    fn put_move(&mut self, made: &Move) -> Result<(), Self::Error>;

    /// A value of an attribute of [`Kind::Values`]. If it has no record the number is [`Csn::default`], and the entry
    /// tells whether it has it.
    fn value(&self, entry: Uuid, attribute: &str, value: &Value) -> Result<Register, Self::Error>;

    /// Writes the last change of a value down, and gives it to the entry or takes it away.
    fn put_value(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        value: &Value,
        register: Register,
    ) -> Result<(), Self::Error>;

    /// Takes a value away and leaves no record: a clear says it.
    fn forget_value(
        &mut self,
        entry: Uuid,
        attribute: &str,
        value: &Value,
    ) -> Result<(), Self::Error>;

    /// All values of an attribute of [`Kind::Values`] that the entry has, or that have a record.
    fn values(&self, entry: Uuid, attribute: &str) -> Result<Vec<(Value, Register)>, Self::Error>;

    /// When an attribute was cleared last; [`Csn::default`] if that has no record.
    fn cleared(&self, entry: Uuid, attribute: &str) -> Result<Csn, Self::Error>;

    /// Writes that down.
    fn put_cleared(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        csn: Csn,
    ) -> Result<(), Self::Error>;

    /// The values of an attribute of another kind and the number of their change; [`Csn::default`] if it has no record.
    fn whole(&self, entry: Uuid, attribute: &str) -> Result<(Csn, Vec<Value>), Self::Error>;

    /// Writes them down.
    fn put_whole(
        &mut self,
        entry: Uuid,
        attribute: &Attribute,
        csn: Csn,
        values: &[Value],
    ) -> Result<(), Self::Error>;

    /// With [`Resolution::Entry`], the attributes of an entry and the number of their change; [`Csn::default`] if it
    /// has no record.
    fn all(&self, entry: Uuid) -> Result<(Csn, Attributes), Self::Error>;

    /// Writes them down.
    fn put_all(
        &mut self,
        entry: Uuid,
        csn: Csn,
        attributes: &Attributes,
    ) -> Result<(), Self::Error>;

    /// All changes of an entry's attributes that have a record.
    fn registers(&self, entry: Uuid) -> Result<Vec<Change>, Self::Error>;

    /// Takes all attributes from an entry, and their records.
    fn forget_registers(&mut self, entry: Uuid) -> Result<(), Self::Error>;

    /// The attributes of an entry of which something is there, with their values.
    fn attributes(&self, entry: Uuid) -> Result<Attributes, Self::Error>;

    /// Writes a line of the conflict log. If there is one for the same loss by the same rule, the lesser one stays.
    ///
    /// Lines of different rules do not stand for each other. A ring may come and go while moves arrive, and a
    /// replica with both its changes need not have seen it, so its line must not keep another one from being told.
    fn put_conflict(&mut self, conflict: &Conflict) -> Result<(), Self::Error>;

    /// The lines of the conflict log whose loser or winner a vector does not cover.
    fn conflicts_since(&self, since: &Vector) -> Result<Vec<Conflict>, Self::Error>;

    /// The entries that have changes with a record which a vector does not cover, and perhaps others.
    fn changed_since(&self, since: &Vector) -> Result<Vec<Uuid>, Self::Error>;

    /// Forgets the numbers of all changes of which `is_settled` says so, the deletes of values and clears among them.
    /// Moves are forgotten from the first one on, up to the first that is not settled.
    ///
    /// Also forgets what is left of deleted entries that are hidden, but for those that may be seen again:
    ///
    /// - A move that has a record may be undone, and brings its entry back to where it was, or be followed after all.
    ///   So its entry, the entries that it leads from and to, and all above these are kept.
    /// - An entry whose delete is not settled may become glue: somebody who does not know of the delete may place an
    ///   entry below it. So all above such an entry are kept, however long ago they were deleted.
    fn forget(&mut self, is_settled: &dyn Fn(Csn) -> bool) -> Result<(), Self::Error>;
}
