//! Object classes (RFC 4512 §2.4).

use sapwood_ldap::schema as language;

use super::TypeSet;

/// Number of an object class within one [`Schema`](super::Schema); dense, starting at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectClassId(pub(super) u16);

impl ObjectClassId {
    /// The position in [`Schema::object_classes`](super::Schema::object_classes).
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The kinds of object classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassKind {
    /// A base for other classes (RFC 4512 §2.4.1).
    Abstract,
    /// What an entry is; each entry has one structural class (RFC 4512 §2.4.2).
    Structural,
    /// What augments an entry (RFC 4512 §2.4.3).
    Auxiliary,
}

impl std::fmt::Display for ClassKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ClassKind::Abstract => "abstract",
            ClassKind::Structural => "structural",
            ClassKind::Auxiliary => "auxiliary",
        })
    }
}

/// An object class. `must` and `may` include what its superclasses say.
#[derive(Debug)]
pub struct ObjectClass {
    pub(super) id: ObjectClassId,
    pub(super) definition: language::ObjectClass,
    pub(super) kind: ClassKind,
    pub(super) direct_superiors: Vec<ObjectClassId>,
    pub(super) superiors: ClassSet,
    pub(super) must: TypeSet,
    pub(super) may: TypeSet,
}

impl ObjectClass {
    /// The number of this class in its schema.
    pub fn id(&self) -> ObjectClassId {
        self.id
    }

    /// Whether it only keeps the number of a class that was removed. Nothing has its name.
    pub fn is_gone(&self) -> bool {
        self.definition.oid.is_empty()
    }

    /// The object identifier in dotted-decimal form.
    pub fn oid(&self) -> &str {
        &self.definition.oid
    }

    /// The short names, in the order and letter case of the definition.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.definition.names.iter().map(String::as_str)
    }

    /// The first short name or, without one, the OID.
    pub fn name(&self) -> &str {
        self.definition
            .names
            .first()
            .unwrap_or(&self.definition.oid)
    }

    /// Abstract, structural or auxiliary.
    pub fn kind(&self) -> ClassKind {
        self.kind
    }

    /// The direct superclasses.
    pub fn direct_superiors(&self) -> &[ObjectClassId] {
        &self.direct_superiors
    }

    /// All superclasses, direct and indirect, without the class itself.
    pub fn superiors(&self) -> &ClassSet {
        &self.superiors
    }

    /// Whether this is `other` or one of its subclasses.
    pub fn is_subclass_of(&self, other: ObjectClassId) -> bool {
        self.id == other || self.superiors.contains(other)
    }

    /// The attributes an entry of this class must have, inherited ones included.
    pub fn must(&self) -> &TypeSet {
        &self.must
    }

    /// The attributes an entry of this class may have, inherited ones included.
    pub fn may(&self) -> &TypeSet {
        &self.may
    }
}

/// A set of object classes, in ascending order of their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassSet {
    ids: Vec<ObjectClassId>,
}

impl ClassSet {
    /// Adds a class.
    pub fn insert(&mut self, id: ObjectClassId) {
        if let Err(at) = self.ids.binary_search(&id) {
            self.ids.insert(at, id);
        }
    }

    /// Whether the class is in the set.
    pub fn contains(&self, id: ObjectClassId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// The classes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = ObjectClassId> {
        self.ids.iter().copied()
    }
}
