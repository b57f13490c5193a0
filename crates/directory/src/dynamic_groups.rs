//! Which entries have values that LDAP URLs find: dynamic groups, which name the entries that are found, and lists,
//! which have some of their attributes. Nothing of it is stored. How the values are found when somebody reads an entry
//! or asks for them: `search/group_urls.rs` and `search/expansion.rs`.

use crate::config::DynlistRule;
use crate::schema::{AttributeTypeId, ObjectClassId, Schema};

/// The dynamic groups and lists of a directory.
#[derive(Debug)]
pub(crate) struct DynamicGroups {
    /// Their kinds.
    pub(crate) kinds: Vec<Kind>,
}

/// A kind of them.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) class: ObjectClassId,
    /// The attribute with the URLs.
    pub(crate) url: AttributeTypeId,
    /// The attribute that names what they find; none for lists.
    pub(crate) member: Option<AttributeTypeId>,
}

impl DynamicGroups {
    /// By the names of classes and attributes; none if there are none that are defined.
    pub(crate) fn new(rules: &[DynlistRule], schema: &Schema) -> Option<DynamicGroups> {
        let kinds = rules.iter().filter_map(|rule| {
            let id = |name: &String| Some(schema.attribute_type(name.as_bytes())?.id());
            Some(Kind {
                class: schema.object_class(rule.class.as_bytes())?.id(),
                url: id(&rule.url)?,
                member: match &rule.member {
                    Some(member) => Some(id(member)?),
                    None => None,
                },
            })
        });
        let kinds: Vec<Kind> = kinds.collect();
        (!kinds.is_empty()).then_some(DynamicGroups { kinds })
    }

    /// The attributes that name what URLs find.
    pub(crate) fn members(&self) -> impl Iterator<Item = AttributeTypeId> {
        self.kinds.iter().filter_map(|kind| kind.member)
    }

    /// The classes of entries that have such an attribute.
    pub(crate) fn classes_with(
        &self,
        member: AttributeTypeId,
    ) -> impl Iterator<Item = ObjectClassId> {
        let kinds = self.kinds.iter();
        let kinds = kinds.filter(move |kind| kind.member == Some(member));
        kinds.map(|kind| kind.class)
    }

    /// Whether some entries have attributes of others.
    pub(crate) fn has_lists(&self) -> bool {
        self.kinds.iter().any(|kind| kind.member.is_none())
    }
}
