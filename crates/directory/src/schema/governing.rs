//! What governs entries besides their classes: DIT content rules, name forms and DIT structure rules (RFC 4512 §4.1.6,
//! §4.1.7). Those that are OBSOLETE are published, and govern nothing.

use std::collections::HashSet;

use sapwood_ldap::dn::Rdn;
use sapwood_ldap::schema as language;
use sapwood_ldap::schema::Definition;

use super::additions::Kind;
use super::check::Violation;
use super::load::Defined;
use super::lookup::NameTable;
use super::{
    AttributeTypeId, ClassKind, ClassSet, ObjectClassId, Schema, SchemaError, Source, TypeSet,
};

/// Content rules, name forms and structure rules at most, of each kind.
const RULES_MAX: usize = 4096;

/// All that governs entries of a schema.
#[derive(Debug, Default)]
pub(super) struct Governing {
    content_rules: Vec<ContentRule>,
    name_forms: Vec<NameForm>,
    structure_rules: Vec<StructureRule>,
}

/// What entries of a structural class may have.
#[derive(Debug)]
struct ContentRule {
    class: ObjectClassId,
    /// The auxiliary classes, and what these derive from.
    auxiliaries: ClassSet,
    must: TypeSet,
    may: TypeSet,
    not: TypeSet,
}

/// What entries of a structural class are named by.
#[derive(Debug)]
struct NameForm {
    name: String,
    class: ObjectClassId,
    must: Vec<AttributeTypeId>,
    may: Vec<AttributeTypeId>,
}

/// Where entries that a name form names may be.
#[derive(Debug)]
struct StructureRule {
    id: u32,
    /// The place of its name form.
    form: usize,
    superiors: Vec<u32>,
}

/// The structure rule that governs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Governed {
    /// None: its class has none.
    Free,
    /// This one.
    By(u32),
    /// None of those of its class lets it be where it is.
    Nowhere,
}

/// Finds what definitions name.
struct Linker<'l> {
    types: &'l NameTable,
    classes: &'l NameTable,
    at: &'l Source,
    subject: String,
}

impl<'l> Linker<'l> {
    fn new(
        (types, classes): (&'l NameTable, &'l NameTable),
        entry: &'l Defined<Definition>,
        subject: String,
    ) -> Linker<'l> {
        Linker {
            types,
            classes,
            at: &entry.at,
            subject,
        }
    }

    fn unknown(&self, what: &'static str, name: &str) -> SchemaError {
        SchemaError::Unknown {
            at: self.at.clone(),
            subject: self.subject.clone(),
            what,
            name: name.to_owned(),
        }
    }

    fn broken(&self, problem: impl Into<String>) -> SchemaError {
        SchemaError::Rule {
            at: self.at.clone(),
            subject: self.subject.clone(),
            problem: problem.into(),
        }
    }

    fn class(&self, name: &str) -> Result<ObjectClassId, SchemaError> {
        let found = self.classes.get(name.as_bytes()).map(ObjectClassId);
        found.ok_or_else(|| self.unknown("the object class", name))
    }

    fn types(&self, names: &[String]) -> Result<Vec<AttributeTypeId>, SchemaError> {
        let each = |name: &String| {
            let found = self.types.get(name.as_bytes()).map(AttributeTypeId);
            found.ok_or_else(|| self.unknown("the attribute", name))
        };
        names.iter().map(each).collect()
    }
}

fn set(types: &[AttributeTypeId]) -> TypeSet {
    let mut set = TypeSet::default();
    types.iter().for_each(|known| set.insert(*known));
    set
}

impl Governing {
    /// Of these definitions, in a schema of these classes.
    pub(super) fn new(
        defined: &[Defined<Definition>],
        names: (&NameTable, &NameTable),
        classes: &[super::ObjectClass],
    ) -> Result<Governing, SchemaError> {
        let mut governing = Governing::default();
        let mut forms: Vec<(&language::NameForm, usize)> = Vec::new();
        let kind_of = |id: ObjectClassId| classes.get(id.index()).map(super::ObjectClass::kind);
        for entry in defined {
            match &entry.definition {
                Definition::ContentRule(rule) => {
                    let linker = Linker::new(
                        names,
                        entry,
                        format!("content rule {}", label(&rule.names, &rule.oid)),
                    );
                    let class = linker.class(&rule.oid)?;
                    if kind_of(class) != Some(ClassKind::Structural) {
                        return Err(linker.broken("is of a class that is not structural"));
                    }
                    let mut auxiliaries = ClassSet::default();
                    for name in &rule.auxiliaries {
                        let auxiliary = linker.class(name)?;
                        if kind_of(auxiliary) != Some(ClassKind::Auxiliary) {
                            return Err(
                                linker.broken(format!("has {name} in AUX, which is not auxiliary"))
                            );
                        }
                        auxiliaries.insert(auxiliary);
                        let above = classes.get(auxiliary.index());
                        let above = above.into_iter().flat_map(|class| class.superiors().iter());
                        above.for_each(|class| auxiliaries.insert(class));
                    }
                    let must = linker.types(&rule.must)?;
                    let not = set(&linker.types(&rule.not)?);
                    let required = classes.get(class.index());
                    let mut required = required.into_iter().flat_map(|class| class.must().iter());
                    if must.iter().any(|known| not.contains(*known))
                        || required.any(|known| not.contains(known))
                    {
                        return Err(linker.broken("has an attribute in NOT that entries must have"));
                    }
                    if !rule.obsolete {
                        governing.content_rules.push(ContentRule {
                            class,
                            auxiliaries,
                            must: set(&must),
                            may: set(&linker.types(&rule.may)?),
                            not,
                        });
                    }
                }
                Definition::NameForm(form) => {
                    let name = label(&form.names, &form.oid).to_owned();
                    let linker = Linker::new(names, entry, format!("name form {name}"));
                    let class = linker.class(&form.class)?;
                    if kind_of(class) != Some(ClassKind::Structural) {
                        return Err(linker.broken("is of a class that is not structural"));
                    }
                    let (must, may) = (linker.types(&form.must)?, linker.types(&form.may)?);
                    if must.is_empty() || must.iter().any(|known| may.contains(known)) {
                        return Err(
                            linker.broken("needs an attribute in MUST, and none in both lists")
                        );
                    }
                    if !form.obsolete {
                        forms.push((form, governing.name_forms.len()));
                        governing.name_forms.push(NameForm {
                            name,
                            class,
                            must,
                            may,
                        });
                    }
                }
                _ => {}
            }
        }
        let ids = defined.iter().filter_map(|entry| match &entry.definition {
            Definition::StructureRule(rule) => Some(rule.id),
            _ => None,
        });
        let ids: HashSet<u32> = ids.collect();
        for entry in defined {
            let Definition::StructureRule(rule) = &entry.definition else {
                continue;
            };
            let linker = Linker::new(names, entry, format!("structure rule {}", rule.id));
            let is_named = |form: &language::NameForm| {
                let mut names = form.names.iter().chain([&form.oid]);
                names.any(|name| name.eq_ignore_ascii_case(&rule.form))
            };
            let form = forms.iter().find(|(form, _)| is_named(form));
            if rule.obsolete {
                continue;
            }
            let (_, form) = form.ok_or_else(|| linker.unknown("the name form", &rule.form))?;
            governing.structure_rules.push(StructureRule {
                id: rule.id,
                form: *form,
                superiors: rule.superiors.clone(),
            });
            if let Some(missing) = rule.superiors.iter().find(|id| !ids.contains(*id)) {
                return Err(linker.unknown("the superior rule", &missing.to_string()));
            }
        }
        let counts = [
            governing.content_rules.len(),
            governing.name_forms.len(),
            governing.structure_rules.len(),
        ];
        match counts.iter().any(|count| *count > RULES_MAX) {
            true => Err(SchemaError::TooMany),
            false => Ok(governing),
        }
    }

    fn content_rule(&self, class: ObjectClassId) -> Option<&ContentRule> {
        self.content_rules.iter().find(|rule| rule.class == class)
    }
}

/// What a definition is called.
fn label<'n>(names: &'n [String], oid: &'n str) -> &'n str {
    names.first().map_or(oid, String::as_str)
}

impl NameForm {
    fn names(&self, types: &[AttributeTypeId]) -> bool {
        self.must.iter().all(|known| types.contains(known))
            && types
                .iter()
                .all(|known| self.must.contains(known) || self.may.contains(known))
    }
}

impl Schema {
    /// Whether the content rule of a structural class lets its entries have an attribute that none of their classes
    /// allows.
    pub(super) fn content_rule_allows(
        &self,
        class: ObjectClassId,
        attribute: AttributeTypeId,
    ) -> bool {
        let rule = self.content.governing.content_rule(class);
        rule.is_some_and(|rule| rule.must.contains(attribute) || rule.may.contains(attribute))
    }

    /// Checks an entry against the content rule of its structural class, if that has one.
    pub(super) fn check_content_rule(
        &self,
        class: ObjectClassId,
        classes: &[ObjectClassId],
        present: &TypeSet,
    ) -> Result<(), Violation> {
        let Some(rule) = self.content.governing.content_rule(class) else {
            return Ok(());
        };
        let name = self.class_of(class).name();
        let refused = |why: String| {
            Err(Violation {
                code: sapwood_ldap::result::ResultCode::ObjectClassViolation,
                diagnostic: format!("the content rule of the object class {name} {why}"),
            })
        };
        for other in classes {
            let other = self.class_of(*other);
            if other.kind() == ClassKind::Auxiliary && !rule.auxiliaries.contains(other.id()) {
                return refused(format!(
                    "does not let entries be of {} as well",
                    other.name()
                ));
            }
        }
        if let Some(missing) = rule.must.iter().find(|known| !present.contains(*known)) {
            let missing = self.type_of(missing).name();
            return refused(format!("requires the attribute {missing}"));
        }
        match rule.not.iter().find(|known| present.contains(*known)) {
            Some(precluded) => {
                let precluded = self.type_of(precluded).name();
                refused(format!("precludes the attribute {precluded}"))
            }
            None => Ok(()),
        }
    }

    /// The attribute types of an RDN.
    fn types_of(&self, rdn: Rdn<'_>) -> Vec<AttributeTypeId> {
        let types = rdn
            .avas()
            .filter_map(|ava| self.attribute_type(ava.attribute().as_bytes()));
        types.map(super::AttributeType::id).collect()
    }

    /// Checks that entries of a structural class may be named so, if it has name forms.
    ///
    /// # Errors
    /// namingViolation, with the names of the forms.
    pub(crate) fn check_name_form(
        &self,
        class: ObjectClassId,
        rdn: Rdn<'_>,
    ) -> Result<(), Violation> {
        let forms = || {
            let forms = self.content.governing.name_forms.iter();
            forms.filter(|form| form.class == class)
        };
        if forms().next().is_none() {
            return Ok(());
        }
        let types = self.types_of(rdn);
        if forms().any(|form| form.names(&types)) {
            return Ok(());
        }
        let allowed = forms().map(|form| {
            let names = |types: &[AttributeTypeId]| {
                let names = types.iter().map(|known| self.type_of(*known).name());
                names.collect::<Vec<_>>().join(" and ")
            };
            let may = match form.may.is_empty() {
                true => String::new(),
                false => format!(", and perhaps {}", names(&form.may)),
            };
            format!("by {}{may} ({})", names(&form.must), form.name)
        });
        let allowed = allowed.collect::<Vec<_>>().join(", or ");
        let class = self.class_of(class).name();
        Err(Violation {
            code: sapwood_ldap::result::ResultCode::NamingViolation,
            diagnostic: format!("entries of the object class {class} are named {allowed}"),
        })
    }

    /// Whether there are structure rules.
    pub(crate) fn has_structure_rules(&self) -> bool {
        !self.content.governing.structure_rules.is_empty()
    }

    /// The structure rule that governs an entry of a structural class and a name, below one that is governed so.
    pub(crate) fn governing_rule(
        &self,
        class: ObjectClassId,
        rdn: Rdn<'_>,
        above: Governed,
    ) -> Governed {
        let governing = &self.content.governing;
        let form_of = |rule: &StructureRule| governing.name_forms.get(rule.form);
        let of_class =
            |rule: &&StructureRule| form_of(rule).is_some_and(|form| form.class == class);
        let mut rules = governing.structure_rules.iter().filter(of_class).peekable();
        if rules.peek().is_none() {
            return Governed::Free;
        }
        let types = self.types_of(rdn);
        let governs = |rule: &&StructureRule| {
            form_of(rule).is_some_and(|form| form.names(&types))
                && match above {
                    Governed::By(id) => rule.superiors.contains(&id),
                    Governed::Free => rule.superiors.is_empty(),
                    Governed::Nowhere => false,
                }
        };
        match rules.find(governs) {
            Some(rule) => Governed::By(rule.id),
            None => Governed::Nowhere,
        }
    }

    /// The structure rules of a structural class, for people: their numbers, and those that they may be below.
    pub(crate) fn structure_rules_of(&self, class: ObjectClassId) -> String {
        let governing = &self.content.governing;
        let of_class = |rule: &&StructureRule| {
            let form = governing.name_forms.get(rule.form);
            form.is_some_and(|form| form.class == class)
        };
        let rules = governing
            .structure_rules
            .iter()
            .filter(of_class)
            .map(|rule| {
                let above: Vec<String> = rule.superiors.iter().map(u32::to_string).collect();
                match above.is_empty() {
                    true => format!("{} (at the top)", rule.id),
                    false => format!("{} (below {})", rule.id, above.join(" and ")),
                }
            });
        rules.collect::<Vec<_>>().join(", ")
    }

    /// The values of an attribute of the subschema subentry that has definitions of these kinds.
    pub(crate) fn governing_values(&self, kind: Kind) -> Vec<String> {
        let additions = &self.content.additions;
        let built_in = self.built_in(kind, additions);
        let added = additions
            .entries
            .iter()
            .flat_map(|entry| &entry.definitions);
        let added = added.filter(|known| Kind::of(known) == Some(kind));
        built_in
            .iter()
            .chain(added)
            .map(ToString::to_string)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use sapwood_ldap::dn::Rdn;

    use super::*;
    use crate::schema::SchemaBuilder;

    const FILE: &str = "\
ditcontentrule ( 2.5.6.6 NAME 'personRule' AUX ( uidObject $ simpleSecurityObject ) MUST description MAY mail NOT seeAlso )
nameform ( 1.2.3.1 NAME 'unitForm' OC organizationalUnit MUST ou )
nameform ( 1.2.3.2 NAME 'personForm' OC person MUST cn MAY sn )
nameform ( 1.2.3.3 NAME 'domainForm' OC domain MUST dc )
ditstructurerule ( 1 NAME 'top' FORM domainForm )
ditstructurerule ( 2 FORM unitForm SUP ( 1 2 ) )
ditstructurerule ( 3 FORM personForm SUP 2 )
ditstructurerule ( 4 OBSOLETE FORM personForm SUP 1 )
";

    fn schema() -> Schema {
        let mut builder = SchemaBuilder::new();
        builder.add_file("own.schema", FILE).unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn names_are_of_a_form() {
        let schema = schema();
        let person = schema.object_class(b"person").unwrap().id();
        for (rdn, is) in [
            ("cn=x", true),
            ("cn=x+sn=y", true),
            ("sn=y", false),
            ("cn=x+description=y", false),
        ] {
            let checked = schema.check_name_form(person, Rdn::parse(rdn).unwrap());
            assert_eq!(checked.is_ok(), is, "{rdn}");
            if let Err(violation) = checked {
                let told = violation.diagnostic;
                assert!(
                    told.ends_with("named by cn, and perhaps sn (personForm)"),
                    "{told}"
                );
            }
        }
        let subentry = schema.well_known().subentry;
        assert!(
            schema
                .check_name_form(subentry, Rdn::parse("cn=x").unwrap())
                .is_ok()
        );
        assert!(
            schema
                .check_name_form(subentry, Rdn::parse("ou=x").unwrap())
                .is_err()
        );
        let device = schema.object_class(b"device").unwrap().id();
        assert!(
            schema
                .check_name_form(device, Rdn::parse("l=x").unwrap())
                .is_ok()
        );
    }

    #[test]
    fn rules_govern_what_is_below_others() {
        let schema = schema();
        let class = |name: &str| schema.object_class(name.as_bytes()).unwrap().id();
        let rule = |name: &str, rdn: &str, above| {
            schema.governing_rule(class(name), Rdn::parse(rdn).unwrap(), above)
        };
        assert!(schema.has_structure_rules() && !Schema::standard().has_structure_rules());
        assert_eq!(rule("domain", "dc=x", Governed::Free), Governed::By(1));
        assert_eq!(rule("domain", "dc=x", Governed::By(1)), Governed::Nowhere);
        assert_eq!(
            rule("organizationalUnit", "ou=x", Governed::By(2)),
            Governed::By(2)
        );
        assert_eq!(rule("person", "cn=x", Governed::By(2)), Governed::By(3));
        assert_eq!(rule("person", "cn=x", Governed::By(1)), Governed::Nowhere);
        assert_eq!(rule("person", "cn=x", Governed::Free), Governed::Nowhere);
        assert_eq!(rule("person", "sn=x", Governed::By(2)), Governed::Nowhere);
        assert_eq!(rule("device", "cn=x", Governed::By(2)), Governed::Free);
        assert_eq!(schema.structure_rules_of(class("person")), "3 (below 2)");
    }

    #[test]
    fn definitions_that_do_not_fit_are_named() {
        for (text, word) in [
            ("ditcontentrule ( 9.9 NAME 'x' )", "which is not defined"),
            ("ditcontentrule ( 2.5.6.0 )", "not structural"),
            ("ditcontentrule ( 2.5.6.6 AUX device )", "not auxiliary"),
            ("ditcontentrule ( 2.5.6.6 NOT sn )", "in NOT"),
            ("ditcontentrule ( 2.5.6.6 MAY nonsense )", "nonsense"),
            ("nameform ( 1.2 OC top MUST cn )", "not structural"),
            ("nameform ( 1.2 OC person MUST cn MAY cn )", "both lists"),
            ("ditstructurerule ( 1 FORM nothing )", "the name form"),
            (
                "nameform ( 1.2 NAME 'f' OC person MUST cn )\nditstructurerule ( 1 FORM f SUP 9 )",
                "the superior rule",
            ),
        ] {
            let mut builder = SchemaBuilder::new();
            builder.add_file("own.schema", text).unwrap();
            let error = builder.build().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
