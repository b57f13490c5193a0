//! The schema description language of RFC 4512 §4.1: what a subschema subentry publishes and a schema file declares.
//!
//! Each description parses from its text form and prints the canonical one (`Display`). Parsing is tolerant where
//! servers in the field have taught people habits: the fields of a description may come in any order, object
//! identifiers may stand in quotes, lists may lack their dollar signs, names may hold underscores. Nothing is looked
//! up here: whether the superior of a type exists is the directory's business.

mod file;
mod parse;
mod print;
#[cfg(test)]
mod tests;

pub use file::{Declaration, FileError, Macros, SCHEMA_FILE_BYTES_MAX, parse_file};
pub use parse::{DEFINITION_BYTES_MAX, ParseError, ParseErrorKind};

/// One definition of any kind, as read from a schema file or from an attribute of a subschema subentry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Definition {
    /// `attributeTypes`
    AttributeType(AttributeType),
    /// `objectClasses`
    ObjectClass(ObjectClass),
    /// `matchingRules`
    MatchingRule(MatchingRule),
    /// `matchingRuleUse`
    MatchingRuleUse(MatchingRuleUse),
    /// `ldapSyntaxes`
    Syntax(Syntax),
    /// `dITContentRules`
    ContentRule(ContentRule),
    /// `dITStructureRules`
    StructureRule(StructureRule),
    /// `nameForms`
    NameForm(NameForm),
}

/// An attribute type description (RFC 4512 §4.1.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttributeType {
    /// The numeric object identifier (or, in lenient files, a short name standing in for one).
    pub oid: String,
    /// Short names, the preferred one first.
    pub names: Vec<String>,
    /// `DESC`
    pub description: Option<String>,
    /// `OBSOLETE`
    pub obsolete: bool,
    /// `SUP`: name or identifier of the direct supertype.
    pub superior: Option<String>,
    /// `EQUALITY`: name or identifier of a matching rule.
    pub equality: Option<String>,
    /// `ORDERING`: name or identifier of a matching rule.
    pub ordering: Option<String>,
    /// `SUBSTR`: name or identifier of a matching rule.
    pub substrings: Option<String>,
    /// `SYNTAX`: the object identifier of the value syntax.
    pub syntax: Option<String>,
    /// The minimum upper bound after the syntax, as in `{64}`. A hint only (RFC 4512 §4.1.2).
    pub length: Option<u32>,
    /// `SINGLE-VALUE`
    pub single_value: bool,
    /// `COLLECTIVE`
    pub collective: bool,
    /// `NO-USER-MODIFICATION`
    pub no_user_modification: bool,
    /// `USAGE`
    pub usage: AttributeUsage,
    /// `X-` extensions in the order written.
    pub extensions: Vec<Extension>,
}

/// The application of an attribute type (RFC 4512 §4.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum AttributeUsage {
    /// `userApplications`, the default.
    #[default]
    UserApplications,
    /// `directoryOperation`
    DirectoryOperation,
    /// `distributedOperation`
    DistributedOperation,
    /// `dSAOperation`
    DsaOperation,
}

/// An object class description (RFC 4512 §4.1.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectClass {
    /// The numeric object identifier (or, in lenient files, a short name standing in for one).
    pub oid: String,
    /// Short names, the preferred one first.
    pub names: Vec<String>,
    /// `DESC`
    pub description: Option<String>,
    /// `OBSOLETE`
    pub obsolete: bool,
    /// `SUP`: names or identifiers of the direct superclasses.
    pub superiors: Vec<String>,
    /// `ABSTRACT`, `STRUCTURAL` or `AUXILIARY`.
    pub kind: ObjectClassKind,
    /// `MUST`: names or identifiers of required attribute types.
    pub must: Vec<String>,
    /// `MAY`: names or identifiers of allowed attribute types.
    pub may: Vec<String>,
    /// `X-` extensions in the order written.
    pub extensions: Vec<Extension>,
}

/// The kind of an object class (RFC 4512 §2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum ObjectClassKind {
    /// Only other classes are built on it.
    Abstract,
    /// Says what an entry is; the default.
    #[default]
    Structural,
    /// Adds to what an entry is.
    Auxiliary,
}

/// A matching rule description (RFC 4512 §4.1.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatchingRule {
    /// The numeric object identifier.
    pub oid: String,
    /// Short names, the preferred one first.
    pub names: Vec<String>,
    /// `DESC`
    pub description: Option<String>,
    /// `OBSOLETE`
    pub obsolete: bool,
    /// `SYNTAX`: the object identifier of the assertion syntax.
    pub syntax: String,
    /// `X-` extensions in the order written.
    pub extensions: Vec<Extension>,
}

/// A matching rule use description (RFC 4512 §4.1.4).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatchingRuleUse {
    /// The numeric object identifier of the matching rule.
    pub oid: String,
    /// Short names, the preferred one first.
    pub names: Vec<String>,
    /// `DESC`
    pub description: Option<String>,
    /// `OBSOLETE`
    pub obsolete: bool,
    /// `APPLIES`: the attribute types the rule may be used with.
    pub applies: Vec<String>,
    /// `X-` extensions in the order written.
    pub extensions: Vec<Extension>,
}

/// A syntax description (RFC 4512 §4.1.5).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Syntax {
    /// The numeric object identifier.
    pub oid: String,
    /// `DESC`
    pub description: Option<String>,
    /// `X-` extensions in the order written.
    pub extensions: Vec<Extension>,
}

/// A DIT content rule description (RFC 4512 §4.1.6).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentRule {
    /// The numeric object identifier of the structural class it applies to.
    pub oid: String,
    /// Short names, the preferred one first.
    pub names: Vec<String>,
    /// `DESC`
    pub description: Option<String>,
    /// `OBSOLETE`
    pub obsolete: bool,
    /// `AUX`: the auxiliary classes entries may belong to.
    pub auxiliaries: Vec<String>,
    /// `MUST`: further required attribute types.
    pub must: Vec<String>,
    /// `MAY`: further allowed attribute types.
    pub may: Vec<String>,
    /// `NOT`: optional attribute types that are precluded.
    pub not: Vec<String>,
    /// `X-` extensions in the order written.
    pub extensions: Vec<Extension>,
}

/// A DIT structure rule description (RFC 4512 §4.1.7.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StructureRule {
    /// The rule identifier.
    pub id: u32,
    /// Short names, the preferred one first.
    pub names: Vec<String>,
    /// `DESC`
    pub description: Option<String>,
    /// `OBSOLETE`
    pub obsolete: bool,
    /// `FORM`: name or identifier of the name form.
    pub form: String,
    /// `SUP`: identifiers of superior rules.
    pub superiors: Vec<u32>,
    /// `X-` extensions in the order written.
    pub extensions: Vec<Extension>,
}

/// A name form description (RFC 4512 §4.1.7.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameForm {
    /// The numeric object identifier.
    pub oid: String,
    /// Short names, the preferred one first.
    pub names: Vec<String>,
    /// `DESC`
    pub description: Option<String>,
    /// `OBSOLETE`
    pub obsolete: bool,
    /// `OC`: name or identifier of the structural class it names.
    pub class: String,
    /// `MUST`: attribute types an RDN must use.
    pub must: Vec<String>,
    /// `MAY`: attribute types an RDN may use.
    pub may: Vec<String>,
    /// `X-` extensions in the order written.
    pub extensions: Vec<Extension>,
}

/// An extension of a description, such as `X-ORIGIN 'RFC 4519'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// The keyword, with its `X-`.
    pub name: String,
    /// Its values.
    pub values: Vec<String>,
}

impl Definition {
    /// Parses `text` as the kind of definition that the attribute `attribute` holds (without regard to case):
    /// the attributes of a subschema subentry such as `attributeTypes`, the directives of a schema file such as
    /// `attributetype`, and OpenLDAP's `olcAttributeTypes`. A leading `{0}`, as in OpenLDAP's ordered values, is
    /// skipped. Another attribute gives `None`.
    pub fn parse(attribute: &str, text: &str) -> Option<Result<Definition, ParseError>> {
        let attribute = attribute.to_ascii_lowercase();
        let kind = attribute.strip_prefix("olc").unwrap_or(&attribute);
        Some(match kind.strip_suffix('s').unwrap_or(kind) {
            "attributetype" => AttributeType::parse(text).map(Definition::AttributeType),
            "objectclasse" | "objectclas" => ObjectClass::parse(text).map(Definition::ObjectClass),
            "matchingrule" => MatchingRule::parse(text).map(Definition::MatchingRule),
            "matchingruleuse" => MatchingRuleUse::parse(text).map(Definition::MatchingRuleUse),
            "ldapsyntaxe" | "ldapsyntax" => Syntax::parse(text).map(Definition::Syntax),
            "ditcontentrule" => ContentRule::parse(text).map(Definition::ContentRule),
            "ditstructurerule" => StructureRule::parse(text).map(Definition::StructureRule),
            "nameform" => NameForm::parse(text).map(Definition::NameForm),
            _ => return None,
        })
    }
}

impl AttributeUsage {
    /// The word of RFC 4512 §4.1.2.
    pub fn as_str(self) -> &'static str {
        match self {
            AttributeUsage::UserApplications => "userApplications",
            AttributeUsage::DirectoryOperation => "directoryOperation",
            AttributeUsage::DistributedOperation => "distributedOperation",
            AttributeUsage::DsaOperation => "dSAOperation",
        }
    }

    /// Whether values are operational, that is not returned unless asked for (RFC 4512 §3.4).
    pub fn is_operational(self) -> bool {
        self != AttributeUsage::UserApplications
    }
}

impl ObjectClassKind {
    /// The word of RFC 4512 §4.1.1.
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectClassKind::Abstract => "ABSTRACT",
            ObjectClassKind::Structural => "STRUCTURAL",
            ObjectClassKind::Auxiliary => "AUXILIARY",
        }
    }
}
