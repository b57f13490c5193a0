//! What all schemas of a directory are made of, and the numbers of what they have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sapwood_ldap::schema as language;
use sapwood_ldap::schema::Definition;

use super::additions::{self, Additions, Kind, oid_of};
use super::governing::Governing;
use super::load::{
    Defined, SchemaError, attribute_of, link_classes, link_types, name_table, replace_built_in,
    well_known,
};
use super::operational::OperationalAttribute;
use super::{
    ATTRIBUTE_TYPES_MAX, AttributeType, AttributeTypeId, Content, OBJECT_CLASSES_MAX, Schema,
    TypeSet, Usage,
};

/// What the schemas of a directory have in common, one after the other: the definitions of the program.
pub(super) struct Base {
    types: Vec<Defined<language::AttributeType>>,
    classes: Vec<Defined<language::ObjectClass>>,
    /// Content rules, name forms and structure rules.
    rules: Vec<Defined<Definition>>,
    options: Vec<String>,
    numbers: Mutex<Numbers>,
    /// The last schema that was made, as long as somebody has it.
    pub(super) made: Mutex<Weak<Content>>,
}

/// The numbers of what was added, by OID in lower case. Each stands for the same as long as the process runs, so that
/// what was made with one schema can be used with a later one.
#[derive(Default)]
struct Numbers {
    types: HashMap<String, usize>,
    classes: HashMap<String, usize>,
}

impl Base {
    /// Of these definitions.
    pub(super) fn new(
        types: Vec<Defined<language::AttributeType>>,
        classes: Vec<Defined<language::ObjectClass>>,
        rules: Vec<Defined<Definition>>,
        options: Vec<String>,
    ) -> Arc<Base> {
        Arc::new(Base {
            types,
            classes,
            rules,
            options,
            numbers: Mutex::default(),
            made: Mutex::default(),
        })
    }

    /// A schema of these definitions and more, which take the places of those with their OIDs.
    pub(super) fn schema(
        self: &Arc<Base>,
        additions: Arc<Additions>,
    ) -> Result<Schema, SchemaError> {
        let more_types = additions::defined(&additions, |definition| match definition {
            Definition::AttributeType(known) => Some(known),
            _ => None,
        });
        let more_classes = additions::defined(&additions, |definition| match definition {
            Definition::ObjectClass(known) => Some(known),
            _ => None,
        });
        let more_rules = additions::defined(&additions, |definition| {
            is_governing(definition).then_some(definition)
        });
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let types = numbered(&self.types, more_types, &mut numbers.types, |definition| {
            &definition.oid
        })?;
        let classes = numbered(
            &self.classes,
            more_classes,
            &mut numbers.classes,
            |definition| &definition.oid,
        )?;
        drop(numbers);
        if types.len() > ATTRIBUTE_TYPES_MAX || classes.len() > OBJECT_CLASSES_MAX {
            return Err(SchemaError::TooMany);
        }
        let type_names = name_table(&types, |definition| (&definition.oid, &definition.names))?;
        let class_names = name_table(&classes, |definition| (&definition.oid, &definition.names))?;
        let types = link_types(types, &type_names)?;
        let classes = link_classes(classes, &class_names, &type_names)?;
        let mut rules = self.rules.clone();
        rules.iter_mut().for_each(|known| known.built_in = true);
        rules.extend(more_rules);
        let rules = each_once(rules)?;
        let governing = Governing::new(&rules, (&type_names, &class_names), &classes)?;
        let well_known = well_known(&type_names, &class_names)?;
        let operational = OperationalAttribute::resolve(|oid| attribute_of(&type_names, oid))?;
        Ok(Schema {
            content: Arc::new(Content {
                types,
                classes,
                type_names,
                class_names,
                governing,
                options: self.options.clone(),
                well_known,
                operational,
                gone: gone_type(),
                additions,
                base: Arc::clone(self),
            }),
        })
    }

    /// These definitions.
    pub(super) fn definitions(&self, kind: Kind) -> Vec<Definition> {
        match kind {
            Kind::AttributeTypes => {
                let types = self.types.iter().map(|known| known.definition.clone());
                types.map(Definition::AttributeType).collect()
            }
            Kind::ObjectClasses => {
                let classes = self.classes.iter().map(|known| known.definition.clone());
                classes.map(Definition::ObjectClass).collect()
            }
            Kind::ContentRules | Kind::NameForms | Kind::StructureRules => {
                let rules = self.rules.iter().map(|known| &known.definition);
                let rules = rules.filter(|known| Kind::of(known) == Some(kind));
                rules.cloned().collect()
            }
        }
    }

    /// Whether the program itself has a definition, in the same words.
    pub(super) fn has_in_program(&self, definition: &Definition) -> bool {
        match definition {
            Definition::AttributeType(definition) => {
                let mut types = self.types.iter();
                types.any(|known| known.built_in && known.definition == *definition)
            }
            Definition::ObjectClass(definition) => {
                let mut classes = self.classes.iter();
                classes.any(|known| known.built_in && known.definition == *definition)
            }
            _ => {
                let mut rules = self.rules.iter();
                rules.any(|known| known.built_in && known.definition == *definition)
            }
        }
    }

    /// Whether a type or a class with an OID is among these definitions.
    pub(super) fn has_type(&self, oid: &str) -> bool {
        let mut types = self.types.iter();
        types.any(|known| known.definition.oid.eq_ignore_ascii_case(oid))
    }

    /// The same of a content rule, a name form or a structure rule.
    pub(super) fn has_rule(&self, kind: Kind, oid: &str) -> bool {
        self.rules.iter().any(|known| {
            let definition = &known.definition;
            Kind::of(definition) == Some(kind) && oid_of(definition).eq_ignore_ascii_case(oid)
        })
    }

    /// The same of a class.
    pub(super) fn has_class(&self, oid: &str) -> bool {
        let mut classes = self.classes.iter();
        classes.any(|known| known.definition.oid.eq_ignore_ascii_case(oid))
    }
}

/// Whether a definition is a content rule, a name form or a structure rule.
pub(super) fn is_governing(definition: &Definition) -> bool {
    matches!(
        Kind::of(definition),
        Some(Kind::ContentRules | Kind::NameForms | Kind::StructureRules)
    )
}

/// Such definitions, each once: those of files and additions take the places of others.
pub(super) fn each_once(
    defined: Vec<Defined<Definition>>,
) -> Result<Vec<Defined<Definition>>, SchemaError> {
    let mut places: HashMap<(Option<Kind>, String), usize> = HashMap::new();
    let mut kept: Vec<Defined<Definition>> = Vec::with_capacity(defined.len());
    for next in defined {
        let oid = oid_of(&next.definition).to_ascii_lowercase();
        let key = (Kind::of(&next.definition), oid);
        match places.get(&key) {
            None => {
                places.insert(key, kept.len());
                kept.push(next);
            }
            Some(place) if kept[*place].built_in && !next.built_in => kept[*place] = next,
            Some(place) => {
                return Err(SchemaError::Duplicate {
                    at: next.at,
                    name: key.1,
                    first: kept[*place].at.clone(),
                });
            }
        }
    }
    Ok(kept)
}

/// Definitions in the order of their numbers.
fn numbered<T: Clone + Default>(
    base: &[Defined<T>],
    more: Vec<Defined<T>>,
    numbers: &mut HashMap<String, usize>,
    oid_of: impl Fn(&T) -> &String,
) -> Result<Vec<Defined<T>>, SchemaError> {
    let mut all = base.to_vec();
    // What is added may take the place of any of them.
    all.iter_mut().for_each(|known| known.built_in = true);
    all.extend(more);
    // Those of the base keep their places.
    let mut kept = replace_built_in(all, &oid_of)?;
    let added = kept.split_off(base.len());
    for next in added {
        let oid = oid_of(&next.definition).to_ascii_lowercase();
        let free = base.len() + numbers.len();
        let number = *numbers.entry(oid).or_insert(free);
        if number >= ATTRIBUTE_TYPES_MAX.max(OBJECT_CLASSES_MAX) {
            return Err(SchemaError::TooMany);
        }
        if kept.len() <= number {
            kept.resize_with(number + 1, Defined::gone);
        }
        kept[number] = next;
    }
    Ok(kept)
}

/// What takes the place of an attribute type that is not there any more.
pub(super) fn gone_type() -> AttributeType {
    AttributeType {
        id: AttributeTypeId::GONE,
        definition: language::AttributeType::default(),
        superiors: Vec::new(),
        subtypes: TypeSet::default(),
        syntax: None,
        equality: None,
        ordering: None,
        substrings: None,
        usage: Usage::UserApplications,
        key_name: "".into(),
        plain_text: None,
    }
}
