//! What is added to the schema with the data of a directory, besides the definitions that the program has.
//!
//! It is kept as lines of text, so that a person can read it:
//!
//! ```text
//! entry <name>
//! macro <name> <OID>
//! attributeTypes ( <description> )
//! objectClasses ( <description> )
//! dITContentRules ( <description> )
//! nameForms ( <description> )
//! dITStructureRules ( <description> )
//! ```
//!
//! An entry is one below `cn=schema,cn=config`; what comes before the first one is of `cn=schema,cn=config` itself.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use sapwood_ldap::schema::{Definition, Macros};

use super::load::Defined;
use super::{Content, Schema, SchemaBuilder, SchemaError, Source};

/// Entries below `cn=schema,cn=config` at most.
pub(crate) const ENTRIES_MAX: usize = 1000;
/// Macros of all entries at most.
pub(crate) const MACROS_MAX: usize = 10_000;
/// Bytes of all additions at most.
pub(crate) const ADDITIONS_BYTES_MAX: usize = 64 << 20;
/// Bytes of the name of an entry at most.
const NAME_BYTES_MAX: usize = 100;

/// What an attribute of the subschema subentry defines, as far as it can be added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    AttributeTypes,
    ObjectClasses,
    ContentRules,
    NameForms,
    StructureRules,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Kind; 5] = [
        Kind::AttributeTypes,
        Kind::ObjectClasses,
        Kind::ContentRules,
        Kind::NameForms,
        Kind::StructureRules,
    ];

    /// The attribute of the subschema subentry.
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Kind::AttributeTypes => "attributeTypes",
            Kind::ObjectClasses => "objectClasses",
            Kind::ContentRules => "dITContentRules",
            Kind::NameForms => "nameForms",
            Kind::StructureRules => "dITStructureRules",
        }
    }

    /// The attribute of `cn=config`.
    pub(crate) fn of_config(self) -> &'static str {
        match self {
            Kind::AttributeTypes => "olcAttributeTypes",
            Kind::ObjectClasses => "olcObjectClasses",
            Kind::ContentRules => "olcDitContentRules",
            // OpenLDAP has neither.
            Kind::NameForms => "sapwoodNameForms",
            Kind::StructureRules => "sapwoodDitStructureRules",
        }
    }

    /// What a definition defines.
    pub(crate) fn of(definition: &Definition) -> Option<Kind> {
        match definition {
            Definition::AttributeType(_) => Some(Kind::AttributeTypes),
            Definition::ObjectClass(_) => Some(Kind::ObjectClasses),
            Definition::ContentRule(_) => Some(Kind::ContentRules),
            Definition::NameForm(_) => Some(Kind::NameForms),
            Definition::StructureRule(_) => Some(Kind::StructureRules),
            _ => None,
        }
    }
}

/// The OID of a definition, of a content rule that of its class, or the number of a structure rule.
pub(crate) fn oid_of(definition: &Definition) -> Cow<'_, str> {
    match definition {
        Definition::AttributeType(known) => known.oid.as_str().into(),
        Definition::ObjectClass(known) => known.oid.as_str().into(),
        Definition::ContentRule(known) => known.oid.as_str().into(),
        Definition::NameForm(known) => known.oid.as_str().into(),
        Definition::StructureRule(known) => known.id.to_string().into(),
        _ => "".into(),
    }
}

/// All that is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Additions {
    /// The first one, without a name, is `cn=schema,cn=config` itself.
    pub(crate) entries: Vec<SchemaEntry>,
}

/// What an entry of `cn=schema,cn=config` adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchemaEntry {
    /// Its name, without the number before it.
    pub(crate) name: String,
    /// Names that stand for OIDs.
    pub(crate) macros: Vec<(String, String)>,
    /// Definitions of all kinds; no macros are left in them.
    pub(crate) definitions: Vec<Definition>,
}

impl Default for Additions {
    fn default() -> Additions {
        Additions {
            entries: vec![SchemaEntry::default()],
        }
    }
}

impl Additions {
    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Additions::default()
    }

    /// The definitions of schema files, each with its name and its text: an entry for each file.
    ///
    /// # Errors
    /// When a file does not parse, or there are too many.
    pub(crate) fn of_files(files: &[(String, String)]) -> Result<Additions, SchemaError> {
        let mut additions = Additions::default();
        let mut builder = SchemaBuilder::empty();
        for (file, text) in files {
            builder.add_file(file, text)?;
            let definitions = builder.take();
            let path = file.rsplit('/').next().unwrap_or_default();
            let stem = path.split('.').next().unwrap_or_default();
            let name: String = stem
                .chars()
                .filter(|c| is_of_name(*c))
                .take(NAME_BYTES_MAX)
                .collect();
            if additions.entries.len() > ENTRIES_MAX {
                return Err(SchemaError::TooMany);
            }
            match additions.position(&name) {
                // Without a name of its own, or with that of another file.
                Some(at) => additions.entries[at].definitions.extend(definitions),
                None => additions.entries.push(SchemaEntry {
                    name,
                    macros: Vec::new(),
                    definitions,
                }),
            }
        }
        Ok(additions)
    }

    /// The place of the entry with a name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let mut entries = self.entries.iter();
        entries.position(|entry| entry.name.eq_ignore_ascii_case(name))
    }

    /// The place of a definition: that of its entry, and its own there.
    pub(crate) fn find(&self, kind: Kind, oid: &str) -> Option<(usize, usize)> {
        let is = |known: &Definition| {
            Kind::of(known) == Some(kind) && oid_of(known).eq_ignore_ascii_case(oid)
        };
        let mut entries = self.entries.iter().enumerate();
        entries.find_map(|(at, entry)| Some((at, entry.definitions.iter().position(is)?)))
    }

    /// The macros of all entries.
    pub(crate) fn macros(&self) -> Macros {
        let mut macros = Macros::default();
        for (name, oid) in self.entries.iter().flat_map(|entry| &entry.macros) {
            macros.declare(name, oid);
        }
        macros
    }

    /// As it is kept.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (at, entry) in self.entries.iter().enumerate() {
            if at > 0 {
                text.push_str(&format!("entry {}\n", entry.name));
            }
            for (name, oid) in &entry.macros {
                text.push_str(&format!("macro {name} {oid}\n"));
            }
            for definition in &entry.definitions {
                let attribute = Kind::of(definition).map_or("", Kind::attribute);
                text.push_str(&format!("{attribute} {definition}\n"));
            }
        }
        text
    }

    /// Reads what is kept.
    ///
    /// # Errors
    /// The line that is damaged.
    pub(crate) fn parse(text: &str) -> Result<Additions, &str> {
        let mut additions = Additions::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').ok_or(line)?;
            let entries = &mut additions.entries;
            if word == "entry" {
                entries.push(SchemaEntry {
                    name: rest.to_owned(),
                    ..SchemaEntry::default()
                });
                continue;
            }
            let entry = entries.last_mut().ok_or(line)?;
            if word == "macro" {
                let (name, oid) = rest.split_once(' ').ok_or(line)?;
                entry.macros.push((name.to_owned(), oid.to_owned()));
                continue;
            }
            match Definition::parse(word, rest) {
                Some(Ok(definition)) => entry.definitions.push(definition),
                _ => return Err(line),
            }
        }
        Ok(additions)
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Whether an entry of `cn=schema,cn=config` can have a name: it stands in lines and in DNs.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_of_name)
}

impl Schema {
    /// What it has besides the definitions of the program.
    pub(crate) fn additions(&self) -> &Arc<Additions> {
        &self.content.additions
    }

    /// Whether the program has a definition with an OID.
    pub(crate) fn is_built_in(&self, kind: Kind, oid: &str) -> bool {
        match kind {
            Kind::AttributeTypes => self.content.base.has_type(oid),
            Kind::ObjectClasses => self.content.base.has_class(oid),
            Kind::ContentRules | Kind::NameForms | Kind::StructureRules => {
                self.content.base.has_rule(kind, oid)
            }
        }
    }

    /// Whether the program itself has a definition, in the same words.
    pub(crate) fn has_in_program(&self, definition: &Definition) -> bool {
        self.content.base.has_in_program(definition)
    }

    /// The definitions of the program that none of these additions takes the place of.
    pub(crate) fn built_in(&self, kind: Kind, additions: &Additions) -> Vec<Definition> {
        let mut all = self.content.base.definitions(kind);
        all.retain(|known| additions.find(kind, &oid_of(known)).is_none());
        all
    }

    /// The schema with these additions in the place of those that it has. A definition takes the place of one of the
    /// program with the same OID.
    ///
    /// # Errors
    /// When they do not make a schema.
    pub(crate) fn with(&self, additions: Additions) -> Result<Schema, SchemaError> {
        let base = &self.content.base;
        if *self.content.additions == additions {
            return Ok(self.clone());
        }
        let made = base
            .made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .upgrade();
        let made = made.filter(|content: &Arc<Content>| *content.additions == additions);
        if let Some(content) = made {
            return Ok(Schema { content });
        }
        let schema = base.schema(Arc::new(additions))?;
        *base.made.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&schema.content);
        Ok(schema)
    }
}

/// Definitions of additions, as what a schema is made of.
pub(super) fn defined<T: Clone>(
    additions: &Additions,
    of: impl Fn(&Definition) -> Option<&T>,
) -> Vec<Defined<T>> {
    let mut all = Vec::new();
    for entry in &additions.entries {
        let file: Arc<str> = match entry.name.as_str() {
            "" => "cn=schema,cn=config".into(),
            name => format!("cn={name},cn=schema,cn=config").into(),
        };
        all.extend(
            entry
                .definitions
                .iter()
                .filter_map(&of)
                .map(|definition| Defined {
                    definition: definition.clone(),
                    at: Source {
                        file: Arc::clone(&file),
                        line: 0,
                    },
                    built_in: false,
                    is_gone: false,
                }),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "objectidentifier Own 1.3.6.1.4.1.99999\n\
                        attributetype ( Own:1 NAME ( 'badge' 'badgeNumber' ) SUP name )\n\
                        objectclass ( Own:2 NAME 'badgeOwner' SUP top AUXILIARY MAY badge )\n";

    fn of_file() -> Additions {
        Additions::of_files(&[("schema/own badge.schema".to_owned(), FILE.to_owned())]).unwrap()
    }

    #[test]
    fn additions_are_read_as_they_are_kept() {
        let mut additions = of_file();
        assert_eq!(additions.entries[1].name, "ownbadge");
        additions.entries[0]
            .macros
            .push(("Own".to_owned(), "1.2.3".to_owned()));
        let text = additions.text();
        assert_eq!(Additions::parse(&text), Ok(additions));
        for damaged in ["entry", "what is this", "objectClasses ( 1.2", "macro x"] {
            assert_eq!(Additions::parse(damaged), Err(damaged));
        }
    }

    #[test]
    fn numbers_stand_for_the_same_in_every_schema_of_a_directory() {
        let standard = SchemaBuilder::new().build().unwrap();
        let first = standard.with(of_file()).unwrap();
        let badge = first.attribute_type(b"badgenumber").unwrap().id();
        let without = first.with(Additions::default()).unwrap();
        assert!(without.attribute_type(b"badge").is_none());
        assert!(without.type_of(badge).is_gone() && standard.type_of(badge).is_gone());
        let other = FILE.replace("badge", "pass").replace("99999", "99998");
        let other = Additions::of_files(&[("other".to_owned(), other)]).unwrap();
        let second = without.with(other).unwrap();
        let pass = second.attribute_type(b"pass").unwrap().id();
        assert_ne!(pass, badge);
        assert!(second.type_of(badge).is_gone());
        let values: Vec<String> = second.attribute_type_values().collect();
        assert_eq!(values.len(), standard.attribute_types().len() + 1);
        // What is the same is not made twice.
        assert!(second.is_same(&standard.with((**second.additions()).clone()).unwrap()));
        let again = second.with(of_file()).unwrap();
        assert_eq!(again.attribute_type(b"badge").unwrap().id(), badge);
    }

    #[test]
    fn definitions_that_do_not_fit_are_named() {
        let standard = Schema::standard();
        let refused = |text: &str| {
            let files = [("own".to_owned(), text.to_owned())];
            let additions = Additions::of_files(&files).unwrap();
            standard.with(additions).unwrap_err().to_string()
        };
        let taken = refused("attributetype ( 1.2.3 NAME 'mail' SUP name )\n");
        assert!(
            taken.starts_with("cn=own,cn=schema,cn=config: \"mail\" is already defined"),
            "{taken}"
        );
        let twice = "attributetype ( 1.2.3 NAME 'a1' SUP name )\nattributetype ( 1.2.3 NAME 'b1' SUP name )\n";
        assert!(refused(twice).contains("\"1.2.3\" is already defined"));
        let unknown = refused("objectclass ( 1.2.3 NAME 'own' SUP top AUXILIARY MAY nothing )\n");
        assert!(unknown.contains("object class own (1.2.3)") && unknown.contains("nothing"));
    }
}
