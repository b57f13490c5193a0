//! Attribute types (RFC 4512 §2.5).

use sapwood_ldap::attribute::is_descriptor;
use sapwood_ldap::schema as language;

use super::prepare::Case;
use super::{MatchingRule, Syntax};

/// Number of an attribute type within one [`Schema`](super::Schema); dense, starting at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeTypeId(pub(super) u16);

impl AttributeTypeId {
    /// That of no type: of what was removed.
    pub(crate) const GONE: AttributeTypeId = AttributeTypeId(u16::MAX);

    /// The position in [`Schema::attribute_types`](super::Schema::attribute_types).
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What an attribute is used for (RFC 4512 §2.5.1). All but user applications are operational.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// A user attribute.
    UserApplications,
    /// An operational attribute of the directory (`directoryOperation`).
    DirectoryOperation,
    /// An operational attribute shared by servers (`distributedOperation`).
    DistributedOperation,
    /// An operational attribute of one server (`dSAOperation`).
    DsaOperation,
}

/// An attribute type, with what it inherits from its supertypes already filled in.
#[derive(Debug)]
pub struct AttributeType {
    pub(super) id: AttributeTypeId,
    pub(super) definition: language::AttributeType,
    pub(super) superiors: Vec<AttributeTypeId>,
    pub(super) subtypes: TypeSet,
    pub(super) syntax: Option<&'static Syntax>,
    pub(super) equality: Option<&'static MatchingRule>,
    pub(super) ordering: Option<&'static MatchingRule>,
    pub(super) substrings: Option<&'static MatchingRule>,
    pub(super) usage: Usage,
    /// The lower-case name that stands for the type in normal forms of DNs.
    pub(super) key_name: Box<str>,
    /// For a type of which any printable ASCII is a value, compared as words: whether letter case matters.
    pub(super) plain_text: Option<Case>,
}

/// How a type is written.
pub(super) fn name_of(definition: &language::AttributeType) -> &str {
    let mut names = definition.names.iter();
    let name = names.find(|name| is_descriptor(name));
    name.unwrap_or(&definition.oid)
}

impl AttributeType {
    /// The number of this type in its schema.
    pub fn id(&self) -> AttributeTypeId {
        self.id
    }

    /// Whether it only keeps the number of a type that was removed. Nothing has its name.
    pub fn is_gone(&self) -> bool {
        self.id == AttributeTypeId::GONE
    }

    /// Its definition.
    pub(crate) fn definition(&self) -> &language::AttributeType {
        &self.definition
    }

    /// The object identifier in dotted-decimal form.
    pub fn oid(&self) -> &str {
        &self.definition.oid
    }

    /// The short names, in the order and letter case of the definition.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.definition.names.iter().map(String::as_str)
    }

    /// The first short name that may stand in a description (files in the field have some with underscores) or, without
    /// one, the OID: how the type is written in answers.
    pub fn name(&self) -> &str {
        name_of(&self.definition)
    }

    /// [`name`](Self::name) in lower case: a key that does not depend on the schema's numbering.
    pub fn key_name(&self) -> &str {
        &self.key_name
    }

    /// The supertypes, the direct one first.
    pub fn superiors(&self) -> &[AttributeTypeId] {
        &self.superiors
    }

    /// This type and all its subtypes, direct and indirect.
    pub fn subtypes(&self) -> &TypeSet {
        &self.subtypes
    }

    /// Whether this is `other` or one of its subtypes.
    pub fn is_subtype_of(&self, other: AttributeTypeId) -> bool {
        self.id == other || self.superiors.contains(&other)
    }

    /// The syntax, own or inherited.
    pub fn syntax(&self) -> Option<&'static Syntax> {
        self.syntax
    }

    /// The equality matching rule, own or inherited.
    pub fn equality(&self) -> Option<&'static MatchingRule> {
        self.equality
    }

    /// The ordering matching rule, own or inherited.
    pub fn ordering(&self) -> Option<&'static MatchingRule> {
        self.ordering
    }

    /// The rule that says in which order values come: the ordering rule, or the equality rule of a type that has none,
    /// as `cn` and `sn` have none. `None` if values have no order.
    pub(crate) fn order(&self) -> Option<&'static MatchingRule> {
        let rule = self.ordering.or(self.equality);
        rule.filter(|rule| rule.is_indexable() && !rule.is_of_parts())
    }

    /// The substrings matching rule, own or inherited.
    pub fn substrings(&self) -> Option<&'static MatchingRule> {
        self.substrings
    }

    /// Whether any printable ASCII is a value, compared word by word.
    pub(crate) fn is_plain_text(&self) -> bool {
        self.plain_text.is_some()
    }

    /// Whether at most one value is allowed.
    pub fn is_single_value(&self) -> bool {
        self.definition.single_value
    }

    /// Whether the attribute is collective (RFC 3671).
    pub fn is_collective(&self) -> bool {
        self.definition.collective
    }

    /// Whether only the directory itself may change the attribute.
    pub fn is_no_user_modification(&self) -> bool {
        self.definition.no_user_modification
    }

    /// What the attribute is used for.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether the attribute is returned only when asked for (by name or with `+`, RFC 3673).
    pub fn is_operational(&self) -> bool {
        self.usage != Usage::UserApplications
    }
}

/// A set of attribute types, as a bitmap over their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeSet {
    words: Vec<u64>,
}

impl TypeSet {
    /// Adds a type.
    pub fn insert(&mut self, id: AttributeTypeId) {
        let word = id.index() / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (id.index() % 64);
    }

    /// Whether the type is in the set.
    pub fn contains(&self, id: AttributeTypeId) -> bool {
        self.words
            .get(id.index() / 64)
            .is_some_and(|word| word >> (id.index() % 64) & 1 == 1)
    }

    /// Adds all types of another set.
    pub fn extend(&mut self, other: &TypeSet) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Whether there is no type in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The types of the set in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = AttributeTypeId> {
        self.words.iter().zip(0u16..).flat_map(|(word, at)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    AttributeTypeId(at * 64 + bit as u16)
                })
            })
        })
    }
}
