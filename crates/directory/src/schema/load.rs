//! Making a schema out of definitions: the built-in ones and those of files.

use std::collections::HashMap;
use std::iter::{Peekable, Zip};
use std::ops::RangeFrom;
use std::sync::{Arc, OnceLock};

use sapwood_ldap::ldif::{Block, Body, Options};
use sapwood_ldap::schema as language;
use sapwood_ldap::schema::{AttributeUsage, Definition, Macros, ObjectClassKind};

use super::base::{Base, each_once, gone_type, is_governing};
use super::lookup::NameTable;
use super::operational::OperationalAttribute;
use super::options::can_be_registered;
use super::prepare::Case;
use super::rule::Method;
use super::types::name_of;
use super::{
    ATTRIBUTE_TYPES_MAX, AttributeType, AttributeTypeId, ClassKind, ClassSet, MatchingRule,
    OBJECT_CLASSES_MAX, ObjectClass, ObjectClassId, RuleKind, Schema, Syntax, TypeSet, Usage,
    WellKnown,
};
use crate::steps;

/// Most attribute types that one derives from, all in one line. Each knows them all.
const DERIVATION_DEPTH_MAX: usize = 64;

/// The definitions built in, in the language of RFC 4512 §4.1.
static STANDARD: [(&str, &str); 10] = [
    ("system.schema", include_str!("standard/system.schema")),
    ("core.schema", include_str!("standard/core.schema")),
    ("cosine.schema", include_str!("standard/cosine.schema")),
    (
        "inetorgperson.schema",
        include_str!("standard/inetorgperson.schema"),
    ),
    ("nis.schema", include_str!("standard/nis.schema")),
    (
        "collective.schema",
        include_str!("standard/collective.schema"),
    ),
    ("ppolicy.schema", include_str!("standard/ppolicy.schema")),
    ("otp.schema", include_str!("standard/otp.schema")),
    ("dyngroup.schema", include_str!("standard/dyngroup.schema")),
    ("config.schema", include_str!("standard/config.schema")),
];

/// Where something is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's name as given, or that of a built-in file.
    pub file: Arc<str>,
    /// The line the definition begins at, the first being 1; 0 for what has no lines.
    pub line: u64,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// Why definitions do not make a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A file that is not in the form of a schema file.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: Arc<str>,
        /// What is wrong, with the line.
        error: language::FileError,
    },
    /// A file that is not valid LDIF.
    #[error("{at}: {reason}")]
    Ldif {
        /// Where.
        at: Source,
        /// What is wrong.
        reason: String,
    },
    /// A definition names something that is not defined.
    #[error("{at}: {subject} names {what} {name:?}, which is not defined")]
    Unknown {
        /// Where the definition is.
        at: Source,
        /// The attribute type or object class being defined.
        subject: String,
        /// `the superior`, `the syntax`, ...
        what: &'static str,
        /// What it names.
        name: String,
    },
    /// An OID or a name is defined twice.
    #[error("{at}: {name:?} is already defined at {first}")]
    Duplicate {
        /// The second definition.
        at: Source,
        /// The OID or name.
        name: String,
        /// The first definition.
        first: Source,
    },
    /// A definition breaks a rule of RFC 4512.
    #[error("{at}: {subject} {problem}")]
    Rule {
        /// Where the definition is.
        at: Source,
        /// The attribute type or object class being defined.
        subject: String,
        /// What is wrong.
        problem: String,
    },
    /// What is to be registered as an attribute option cannot be.
    #[error(
        "{0:?} cannot be registered as an attribute option: it has other characters than letters, digits and hyphens, or is built in"
    )]
    AttributeOption(String),
    /// More definitions than there are numbers.
    #[error(
        "more than {ATTRIBUTE_TYPES_MAX} attribute types or {OBJECT_CLASSES_MAX} object classes"
    )]
    TooMany,
}

/// Collects definitions. Those of files may refer to each other in any order, and a file's definition takes the place
/// of a built-in one with the same OID, so that the schema files of other servers can be loaded as they are.
pub struct SchemaBuilder {
    types: Vec<Defined<language::AttributeType>>,
    classes: Vec<Defined<language::ObjectClass>>,
    /// Content rules, name forms and structure rules.
    rules: Vec<Defined<Definition>>,
    macros: Macros,
    options: Vec<String>,
}

#[derive(Clone)]
pub(super) struct Defined<T> {
    pub(super) definition: T,
    pub(super) at: Source,
    /// Whether the program has it, and not a file: a later definition may take its place.
    pub(super) built_in: bool,
    /// Whether it only keeps its number, which was another's: nothing has its name.
    pub(super) is_gone: bool,
}

impl<T: Default> Defined<T> {
    /// What keeps a number.
    pub(super) fn gone() -> Defined<T> {
        Defined {
            definition: T::default(),
            at: Source {
                file: "".into(),
                line: 0,
            },
            built_in: false,
            is_gone: true,
        }
    }
}

impl Default for SchemaBuilder {
    fn default() -> SchemaBuilder {
        SchemaBuilder::new()
    }
}

impl SchemaBuilder {
    /// A builder that has the built-in definitions.
    pub fn new() -> SchemaBuilder {
        let mut builder = SchemaBuilder::empty();
        let operational = OperationalAttribute::schema_file();
        for (file, text) in STANDARD
            .into_iter()
            .chain([("operational.schema", &*operational)])
        {
            builder
                .add_directives(file, text, true)
                .expect("the built-in definitions are tested");
        }
        builder
    }

    /// Adds the definitions of a file: `attributetype ( ... )` directives as in OpenLDAP's `.schema` files, or LDIF
    /// with values of attributeTypes and objectClasses (also olcAttributeTypes and olcObjectClasses), and of name forms
    /// and rules of content and structure. `file` is its name, for messages. What the file says of matching rules and
    /// syntaxes is read past: they are built in.
    ///
    /// # Errors
    /// When the text does not parse, or is longer than [`SCHEMA_FILE_BYTES_MAX`](language::SCHEMA_FILE_BYTES_MAX).
    pub fn add_file(&mut self, file: &str, text: &str) -> Result<(), SchemaError> {
        if text.len() > language::SCHEMA_FILE_BYTES_MAX {
            return Err(SchemaError::File {
                file: file.into(),
                error: language::FileError::TooLong,
            });
        }
        let first = text
            .lines()
            .find(|line| !line.trim().is_empty() && !line.starts_with('#'));
        if first.is_some_and(|line| line.starts_with("dn:") || line.starts_with("version:")) {
            self.add_ldif(file, text)
        } else {
            self.add_directives(file, text, false)
        }
    }

    /// Registers attribute options (RFC 4512 §2.5) besides language tags and `binary`. One that ends with a hyphen
    /// stands for all that begin so.
    ///
    /// # Errors
    /// When one is no option, or is built in.
    pub fn attribute_options(&mut self, options: &[String]) -> Result<(), SchemaError> {
        if let Some(wrong) = options.iter().find(|option| !can_be_registered(option)) {
            return Err(SchemaError::AttributeOption(wrong.clone()));
        }
        self.options.extend_from_slice(options);
        Ok(())
    }

    fn add_directives(
        &mut self,
        file: &str,
        text: &str,
        built_in: bool,
    ) -> Result<(), SchemaError> {
        let file: Arc<str> = file.into();
        let declarations =
            language::parse_file(text, &mut self.macros).map_err(|error| SchemaError::File {
                file: Arc::clone(&file),
                error,
            })?;
        for declaration in declarations {
            let at = Source {
                file: Arc::clone(&file),
                line: declaration.line as u64,
            };
            self.add(declaration.definition, at, built_in);
        }
        Ok(())
    }

    fn add_ldif(&mut self, file: &str, text: &str) -> Result<(), SchemaError> {
        let file: Arc<str> = file.into();
        let block = Block::new(text.as_bytes().to_vec());
        let mut lines = ValueLines::new(text);
        for record in block.records(Options::default()) {
            let record = record.map_err(|rejected| SchemaError::Ldif {
                at: Source {
                    file: Arc::clone(&file),
                    line: rejected.line,
                },
                reason: rejected.reason.to_string(),
            })?;
            lines.go_to(record.line);
            let mut values = Vec::new();
            let mut take = |attribute: &str, value: &[u8]| {
                let at = Source {
                    file: Arc::clone(&file),
                    line: lines.next_of(attribute).unwrap_or(record.line),
                };
                values.push((attribute.to_owned(), value.to_vec(), at));
            };
            match &record.body {
                Body::Entry(values) | Body::Add(values) => {
                    values
                        .iter()
                        .for_each(|value| take(&value.description, &value.value));
                }
                Body::Modify(modifications) => {
                    for modification in modifications {
                        let values = modification.values.iter();
                        values.for_each(|value| take(&modification.description, value));
                    }
                }
                Body::Delete | Body::ModifyDn { .. } => {}
            }
            let text_of = |attribute: &str, value: Vec<u8>, at: &Source| {
                String::from_utf8(value).map_err(|_| SchemaError::Ldif {
                    at: at.clone(),
                    reason: format!("a value of {attribute} is not UTF-8"),
                })
            };
            // An entry declares its macros wherever it likes.
            let (macros, definitions): (Vec<_>, Vec<_>) = values
                .into_iter()
                .partition(|(attribute, ..)| attribute.eq_ignore_ascii_case("olcObjectIdentifier"));
            for (attribute, value, at) in macros {
                let text = text_of(&attribute, value, &at)?;
                if self.declare_macro(&text).is_none() {
                    let reason = format!(
                        "{attribute}: {text:?} is not a name and an object identifier, or that of another macro before it"
                    );
                    return Err(SchemaError::Ldif { at, reason });
                }
            }
            for (attribute, value, at) in definitions {
                let text = text_of(&attribute, value, &at)?;
                match Definition::parse(&attribute, &text) {
                    // The class of the entry itself, not a definition of one.
                    _ if attribute.eq_ignore_ascii_case("objectClass") => {}
                    None => {}
                    Some(Ok(mut definition)) => match self.macros.apply(&mut definition) {
                        Ok(()) => self.add(definition, at, false),
                        Err(name) => {
                            let reason = format!(
                                "{attribute}: {name:?} has not been declared with olcObjectIdentifier"
                            );
                            return Err(SchemaError::Ldif { at, reason });
                        }
                    },
                    Some(Err(error)) => {
                        let reason = format!("{attribute}: {error} in {text:?}");
                        return Err(SchemaError::Ldif { at, reason });
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a value of olcObjectIdentifier: `{0}name oid`.
    fn declare_macro(&mut self, text: &str) -> Option<()> {
        let text = text
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
            .map_or(text, |(_, rest)| rest);
        let (name, oid) = text.trim().split_once(char::is_whitespace)?;
        self.macros.declare(name, oid.trim()).then_some(())
    }

    fn add(&mut self, definition: Definition, at: Source, built_in: bool) {
        match definition {
            Definition::AttributeType(definition) => self.types.push(Defined {
                definition,
                at,
                built_in,
                is_gone: false,
            }),
            Definition::ObjectClass(definition) => self.classes.push(Defined {
                definition,
                at,
                built_in,
                is_gone: false,
            }),
            definition if is_governing(&definition) => self.rules.push(Defined {
                definition,
                at,
                built_in,
                is_gone: false,
            }),
            _ => {}
        }
    }

    /// Makes the schema.
    ///
    /// # Errors
    /// When a definition refers to something undefined, something is defined twice, or a rule of RFC 4512 is broken.
    pub fn build(self) -> Result<Schema, SchemaError> {
        let types = replace_built_in(self.types, &|definition| &definition.oid)?;
        let classes = replace_built_in(self.classes, &|definition| &definition.oid)?;
        let rules = each_once(self.rules)?;
        Base::new(types, classes, rules, self.options).schema(Arc::default())
    }

    /// A builder without definitions.
    pub(super) fn empty() -> SchemaBuilder {
        SchemaBuilder {
            types: Vec::new(),
            classes: Vec::new(),
            rules: Vec::new(),
            macros: Macros::default(),
            options: Vec::new(),
        }
    }

    /// Takes the definitions out of it; the macros stay.
    pub(super) fn take(&mut self) -> Vec<Definition> {
        let types = self.types.drain(..);
        let types = types.map(|known| Definition::AttributeType(known.definition));
        let classes = self.classes.drain(..);
        let classes = classes.map(|known| Definition::ObjectClass(known.definition));
        let rules = self.rules.drain(..).map(|known| known.definition);
        types.chain(classes).chain(rules).collect()
    }
}

/// The lines of an LDIF file that values begin at, from the first to the last: none is looked at twice.
struct ValueLines<'t> {
    /// With their numbers, the first being 1.
    lines: Peekable<Zip<RangeFrom<u64>, std::str::Lines<'t>>>,
}

impl<'t> ValueLines<'t> {
    fn new(text: &'t str) -> ValueLines<'t> {
        ValueLines {
            lines: (1..).zip(text.lines()).peekable(),
        }
    }

    /// Goes on to the record that begins at this line.
    fn go_to(&mut self, line: u64) {
        while self.lines.next_if(|(number, _)| *number < line).is_some() {
            steps::count(1);
        }
    }

    /// The next line of the record at which a value of an attribute begins.
    fn next_of(&mut self, attribute: &str) -> Option<u64> {
        // An empty line ends a record.
        while let Some((number, line)) = self.lines.next_if(|(_, line)| !line.is_empty()) {
            steps::count(1);
            if let Some((name, rest)) = line.split_at_checked(attribute.len())
                && name.eq_ignore_ascii_case(attribute)
                && rest.starts_with(':')
            {
                return Some(number);
            }
        }
        None
    }
}

/// The standard schema, made once.
pub(super) fn standard() -> Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA
        .get_or_init(|| {
            SchemaBuilder::new()
                .build()
                .expect("the built-in definitions are tested")
        })
        .clone()
}

/// Lets definitions of files take the places of built-in ones.
pub(super) fn replace_built_in<T>(
    defined: Vec<Defined<T>>,
    oid_of: &impl Fn(&T) -> &String,
) -> Result<Vec<Defined<T>>, SchemaError> {
    let mut places: HashMap<String, usize> = HashMap::with_capacity(defined.len());
    let mut kept: Vec<Defined<T>> = Vec::with_capacity(defined.len());
    for next in defined {
        let oid = oid_of(&next.definition).to_ascii_lowercase();
        match places.get(&oid) {
            None => {
                places.insert(oid, kept.len());
                kept.push(next);
            }
            Some(place) if kept[*place].built_in && !next.built_in => kept[*place] = next,
            Some(place) => {
                let first = kept[*place].at.clone();
                return Err(SchemaError::Duplicate {
                    at: next.at,
                    name: oid,
                    first,
                });
            }
        }
    }
    Ok(kept)
}

pub(super) fn name_table<T>(
    defined: &[Defined<T>],
    names_of: impl Fn(&T) -> (&String, &Vec<String>),
) -> Result<NameTable, SchemaError> {
    let mut table = NameTable::default();
    let there = defined.iter().enumerate();
    for (number, entry) in there.filter(|(_, entry)| !entry.is_gone) {
        let (oid, names) = names_of(&entry.definition);
        for name in std::iter::once(oid).chain(names) {
            if let Err(first) = table.insert(name, number as u16)
                && usize::from(first) != number
            {
                let first = defined[usize::from(first)].at.clone();
                return Err(SchemaError::Duplicate {
                    at: entry.at.clone(),
                    name: name.clone(),
                    first,
                });
            }
        }
    }
    Ok(table)
}

fn subject(kind: &str, oid: &str, names: &[String]) -> String {
    match names.first() {
        Some(name) => format!("{kind} {name} ({oid})"),
        None => format!("{kind} {oid}"),
    }
}

/// The order in which each comes after what it derives from. `Err`: one that derives from itself.
fn derivation_order(superiors: &[Vec<u16>]) -> Result<Vec<u16>, u16> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Entered,
        Done,
    }
    let mut order = Vec::with_capacity(superiors.len());
    let mut states = vec![State::New; superiors.len()];
    for root in 0..superiors.len() as u16 {
        let mut path = vec![(root, 0)];
        while let Some((at, next)) = path.pop() {
            let index = usize::from(at);
            if next == 0 {
                match states[index] {
                    State::Done => continue,
                    State::Entered => return Err(at),
                    State::New => states[index] = State::Entered,
                }
            }
            match superiors[index].get(next) {
                Some(superior) => {
                    path.push((at, next + 1));
                    if states[usize::from(*superior)] != State::Done {
                        path.push((*superior, 0));
                    }
                }
                None => {
                    states[index] = State::Done;
                    order.push(at);
                }
            }
        }
    }
    Ok(order)
}

pub(super) fn link_types(
    defined: Vec<Defined<language::AttributeType>>,
    names: &NameTable,
) -> Result<Vec<AttributeType>, SchemaError> {
    let subject_of = |entry: &Defined<language::AttributeType>| {
        subject(
            "attribute type",
            &entry.definition.oid,
            &entry.definition.names,
        )
    };
    let unknown =
        |entry: &Defined<language::AttributeType>, what, name: &str| SchemaError::Unknown {
            at: entry.at.clone(),
            subject: subject_of(entry),
            what,
            name: name.to_owned(),
        };
    let broken = |entry: &Defined<language::AttributeType>, problem: String| SchemaError::Rule {
        at: entry.at.clone(),
        subject: subject_of(entry),
        problem,
    };
    let mut superiors = Vec::with_capacity(defined.len());
    let mut types = Vec::with_capacity(defined.len());
    for (number, entry) in defined.iter().enumerate() {
        let definition = &entry.definition;
        if entry.is_gone {
            superiors.push(Vec::new());
            types.push(gone_type());
            continue;
        }
        superiors.push(match &definition.superior {
            None => Vec::new(),
            Some(name) => {
                vec![
                    names
                        .get(name.as_bytes())
                        .ok_or_else(|| unknown(entry, "the superior", name))?,
                ]
            }
        });
        let rule = |name: &Option<String>, kind, what| match name {
            None => Ok(None),
            Some(name) => match MatchingRule::find(name.as_bytes()) {
                None => Err(unknown(entry, what, name)),
                Some(rule) if rule.kind() != kind => Err(broken(
                    entry,
                    format!("uses {} as {what}, which it is not", rule.name()),
                )),
                Some(rule) => Ok(Some(rule)),
            },
        };
        let syntax = match &definition.syntax {
            None => None,
            Some(oid) => Some(Syntax::find(oid).ok_or_else(|| unknown(entry, "the syntax", oid))?),
        };
        if syntax.is_none() && definition.superior.is_none() {
            return Err(broken(
                entry,
                "has neither a syntax nor a superior".to_owned(),
            ));
        }
        let mut subtypes = TypeSet::default();
        subtypes.insert(AttributeTypeId(number as u16));
        types.push(AttributeType {
            id: AttributeTypeId(number as u16),
            superiors: Vec::new(),
            subtypes,
            syntax,
            equality: rule(
                &definition.equality,
                RuleKind::Equality,
                "the equality rule",
            )?,
            ordering: rule(
                &definition.ordering,
                RuleKind::Ordering,
                "the ordering rule",
            )?,
            substrings: rule(
                &definition.substrings,
                RuleKind::Substrings,
                "the substrings rule",
            )?,
            usage: match definition.usage {
                AttributeUsage::UserApplications => Usage::UserApplications,
                AttributeUsage::DirectoryOperation => Usage::DirectoryOperation,
                AttributeUsage::DistributedOperation => Usage::DistributedOperation,
                AttributeUsage::DsaOperation => Usage::DsaOperation,
            },
            key_name: name_of(definition).to_ascii_lowercase().into(),
            plain_text: None,
            definition: definition.clone(),
        });
    }
    let order = derivation_order(&superiors).map_err(|number| {
        broken(
            &defined[usize::from(number)],
            "derives from itself".to_owned(),
        )
    })?;
    for number in order {
        let Some(superior) = superiors[usize::from(number)].first() else {
            continue;
        };
        let above = &types[usize::from(*superior)];
        let inherited = (
            above.syntax,
            above.equality,
            above.ordering,
            above.substrings,
        );
        let chain: Vec<AttributeTypeId> = std::iter::once(above.id)
            .chain(above.superiors.iter().copied())
            .collect();
        if above.usage != types[usize::from(number)].usage {
            let problem = format!("has another usage than its superior {}", above.name());
            return Err(broken(&defined[usize::from(number)], problem));
        }
        if chain.len() > DERIVATION_DEPTH_MAX {
            let problem = format!("derives from more than {DERIVATION_DEPTH_MAX} types");
            return Err(broken(&defined[usize::from(number)], problem));
        }
        let this = &mut types[usize::from(number)];
        this.syntax = this.syntax.or(inherited.0);
        this.equality = this.equality.or(inherited.1);
        this.ordering = this.ordering.or(inherited.2);
        this.substrings = this.substrings.or(inherited.3);
        this.superiors = chain.clone();
        for superior in chain {
            types[superior.index()]
                .subtypes
                .insert(AttributeTypeId(number));
        }
    }
    for known in &mut types {
        known.plain_text = plain_text(known);
    }
    Ok(types)
}

/// Whether any printable ASCII is a value of a type whose values are compared as words, and whether letter case matters
/// then.
fn plain_text(known: &AttributeType) -> Option<Case> {
    let any_text = known.syntax?.takes_any_ascii();
    match known.equality?.method {
        Method::Words(case) if any_text => Some(case),
        _ => None,
    }
}

pub(super) fn link_classes(
    defined: Vec<Defined<language::ObjectClass>>,
    names: &NameTable,
    type_names: &NameTable,
) -> Result<Vec<ObjectClass>, SchemaError> {
    let subject_of = |entry: &Defined<language::ObjectClass>| {
        subject(
            "object class",
            &entry.definition.oid,
            &entry.definition.names,
        )
    };
    let unknown = |entry: &Defined<language::ObjectClass>, what, name: &str| SchemaError::Unknown {
        at: entry.at.clone(),
        subject: subject_of(entry),
        what,
        name: name.to_owned(),
    };
    let mut superiors = Vec::with_capacity(defined.len());
    let mut classes: Vec<ObjectClass> = Vec::with_capacity(defined.len());
    for (number, entry) in defined.iter().enumerate() {
        let definition = &entry.definition;
        let direct = definition
            .superiors
            .iter()
            .map(|name| {
                names
                    .get(name.as_bytes())
                    .ok_or_else(|| unknown(entry, "the superior", name))
            })
            .collect::<Result<Vec<u16>, _>>()?;
        let attributes = |list: &[String]| {
            let mut set = TypeSet::default();
            for name in list {
                let number = type_names
                    .get(name.as_bytes())
                    .ok_or_else(|| unknown(entry, "the attribute", name))?;
                set.insert(AttributeTypeId(number));
            }
            Ok(set)
        };
        classes.push(ObjectClass {
            id: ObjectClassId(number as u16),
            kind: match definition.kind {
                ObjectClassKind::Abstract => ClassKind::Abstract,
                ObjectClassKind::Structural => ClassKind::Structural,
                ObjectClassKind::Auxiliary => ClassKind::Auxiliary,
            },
            direct_superiors: direct.iter().map(|number| ObjectClassId(*number)).collect(),
            superiors: ClassSet::default(),
            must: attributes(&definition.must)?,
            may: attributes(&definition.may)?,
            definition: definition.clone(),
        });
        superiors.push(direct);
    }
    let broken = |number: u16, problem: String| {
        let entry = &defined[usize::from(number)];
        SchemaError::Rule {
            at: entry.at.clone(),
            subject: subject_of(entry),
            problem,
        }
    };
    let order = derivation_order(&superiors)
        .map_err(|number| broken(number, "derives from itself".to_owned()))?;
    for number in order {
        let kind = classes[usize::from(number)].kind;
        let mut all = ClassSet::default();
        let mut must = classes[usize::from(number)].must.clone();
        let mut may = classes[usize::from(number)].may.clone();
        for superior in &superiors[usize::from(number)] {
            let above = &classes[usize::from(*superior)];
            // RFC 4512 §2.4: a class derives from abstract classes or from its own kind.
            if above.kind != ClassKind::Abstract && above.kind != kind {
                let problem = format!(
                    "is {kind} and derives from {}, which is {}",
                    above.name(),
                    above.kind
                );
                return Err(broken(number, problem));
            }
            all.insert(above.id);
            above.superiors.iter().for_each(|id| all.insert(id));
            must.extend(&above.must);
            may.extend(&above.may);
        }
        let this = &mut classes[usize::from(number)];
        (this.superiors, this.must, this.may) = (all, must, may);
    }
    Ok(classes)
}

/// What the directory cannot do without is not defined.
fn missing(name: &str) -> SchemaError {
    SchemaError::Unknown {
        at: Source {
            file: STANDARD[0].0.into(),
            line: 1,
        },
        subject: "the directory".to_owned(),
        what: "the definition",
        name: name.to_owned(),
    }
}

pub(super) fn attribute_of(types: &NameTable, oid: &str) -> Result<AttributeTypeId, SchemaError> {
    let found = types.get(oid.as_bytes()).map(AttributeTypeId);
    found.ok_or_else(|| missing(oid))
}

pub(super) fn well_known(types: &NameTable, classes: &NameTable) -> Result<WellKnown, SchemaError> {
    let attribute = |oid: &str| attribute_of(types, oid);
    let class = |name: &str| {
        classes
            .get(name.as_bytes())
            .map(ObjectClassId)
            .ok_or_else(|| missing(name))
    };
    Ok(WellKnown {
        object_class: attribute("2.5.4.0")?,
        aliased_object_name: attribute("2.5.4.1")?,
        user_password: attribute("2.5.4.35")?,
        auth_password: attribute("1.3.6.1.4.1.4203.1.3.4")?,
        oath_secret: attribute("1.3.6.1.4.1.5427.1.389.4226.4.1")?,
        top: class("2.5.6.0")?,
        alias: class("2.5.6.1")?,
        referral: class("2.16.840.1.113730.3.2.6")?,
        extensible_object: class("1.3.6.1.4.1.1466.101.120.111")?,
        subentry: class("2.5.17.0")?,
        collective_attribute_subentry: class("2.5.17.2")?,
        subschema: class("2.5.20.1")?,
        password_policy: class("1.3.6.1.4.1.42.2.27.8.2.1")?,
        dynamic_object: class("1.3.6.1.4.1.1466.101.119.2")?,
        oath_user: class("1.3.6.1.4.1.5427.1.389.4226.6.1")?,
    })
}

#[cfg(test)]
mod tests;
