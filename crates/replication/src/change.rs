//! What is told between replicas: changes, each of one register of one entry.

use std::fmt;
use std::sync::Arc;

use sapwood_ldap::csn::Csn;

/// entryUUID (RFC 4530): what an entry is known by on all replicas, whatever it is called. It is not used again after
/// the entry was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// What a naming context is placed below.
    pub const NIL: Uuid = Uuid([0; 16]);
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// An attribute description, in the one way in which all replicas write it.
pub type Attribute = Arc<str>;
/// An attribute value; two that match have the same bytes here.
pub type Value = Arc<[u8]>;

/// Where an entry is, as its mover has said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The entry above it.
    pub parent: Uuid,
    /// Its relative name, normalised.
    pub rdn: Value,
}

/// How the values of an attribute are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each value is a register of its own: two replicas may add different ones.
    Values,
    /// All values are one register, of which the later change wins: of single-valued attributes, and of those whose
    /// values are in an order.
    Whole,
    /// The same, and no log ever shows them: passwords and their history.
    Secret,
}

/// How much of an entry one register holds. All replicas have to say the same: of different rules the outcomes differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resolution {
    /// Each attribute or value is a register of its own.
    #[default]
    Values,
    /// The entry is one register: of two updates the later one wins with all that it left of the entry, and so does a
    /// delete only over what was before it. It is the rule of servers that send whole entries (RFC 4533), and loses
    /// more.
    Entry,
}

/// Attributes with their values.
pub type Attributes = Vec<(Attribute, Vec<Value>)>;

/// What a change has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The entry was added, here.
    Born(Place),
    /// It got another name, or another entry above it.
    Moved(Place),
    /// It was deleted.
    Deleted,
    /// A value was added or deleted, of an attribute of [`Kind::Values`].
    Value {
        /// Of which attribute.
        attribute: Attribute,
        /// Which one.
        value: Value,
        /// Whether it was added.
        is_present: bool,
    },
    /// All values of an attribute of [`Kind::Values`] were deleted, also those that the deleter did not know.
    Cleared(Attribute),
    /// An attribute of another kind got these values instead of those it had.
    Whole(Attribute, Vec<Value>),
    /// With [`Resolution::Entry`], instead of the last three: an update has left the entry with these attributes. It
    /// says where the entry is as well, also if it has not moved it.
    All(Attributes),
}

/// One change of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, and by which replica.
    pub csn: Csn,
    /// What was done. Changes with the same number were made by one update.
    pub what: What,
}

/// The greatest number of an entry's changes, and who has made that change: entryCSN and modifiersName.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// entryCSN.
    pub csn: Csn,
    /// modifiersName.
    pub modifier: Value,
}

impl Stamp {
    /// Takes in the stamp that another replica has for the entry.
    pub fn join(&mut self, other: &Stamp) {
        if other.csn > self.csn {
            self.clone_from(other);
        }
    }
}

/// The changes of an entry that somebody does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChanges {
    /// The entry.
    pub entry: Uuid,
    /// Its stamp where the changes come from.
    pub stamp: Stamp,
    /// The changes.
    pub changes: Vec<Change>,
}
