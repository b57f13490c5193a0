//! Checks of whole entries against the schema (RFC 4512 §2.3, §2.4, §2.5, §3.3; RFC 4511 §4.6, §4.7).

use sapwood_ldap::dn::Rdn;
use sapwood_ldap::result::ResultCode;

use super::{
    AttributeType, AttributeTypeId, ClassKind, ClassSet, NormalDn, ObjectClassId,
    OperationalAttribute, Schema, SubtreeSpecification, TypeSet, Usage,
};

/// Most entries name no more classes than this.
const NAMED_EXPECTED: usize = 16;

/// Most values of a collective attribute in one subentry.
const COLLECTIVE_VALUES_MAX: usize = 1000;

/// One attribute of an entry: all values under one attribute description.
#[derive(Debug, Clone, Copy)]
pub struct AttributeValues<'a> {
    /// The type.
    pub attribute_type: AttributeTypeId,
    /// The options as in the attribute table: sorted, lower case, joined by `;`, empty for none.
    pub options: &'a [u8],
    /// The values, at least one.
    pub values: &'a [&'a [u8]],
}

/// Who wants the entry to be as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckMode {
    /// A client's update: attributes marked NO-USER-MODIFICATION are refused.
    Client,
    /// The directory's own data, or an import that brings operational attributes along.
    Trusted,
}

/// What a check found out about a valid entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedEntry {
    /// The most subordinate structural class: the value of structuralObjectClass.
    pub structural_class: ObjectClassId,
    /// The classes named by the entry, in its order.
    pub classes: Vec<ObjectClassId>,
}

/// Why an entry or an update is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{diagnostic}")]
pub struct Violation {
    /// The result code of RFC 4511.
    pub code: ResultCode,
    /// A sentence that names the attribute and the class.
    pub diagnostic: String,
}

impl Violation {
    fn new(code: ResultCode, diagnostic: String) -> Violation {
        Violation { code, diagnostic }
    }

    fn class(diagnostic: String) -> Violation {
        Violation::new(ResultCode::ObjectClassViolation, diagnostic)
    }

    fn naming(diagnostic: String) -> Violation {
        Violation::new(ResultCode::NamingViolation, diagnostic)
    }
}

impl Schema {
    /// The attribute type of an update or comparison, which must be known.
    ///
    /// # Errors
    /// undefinedAttributeType (RFC 4511 appendix A.2).
    pub fn defined_attribute_type(&self, name_or_oid: &str) -> Result<&AttributeType, Violation> {
        self.attribute_type(name_or_oid.as_bytes()).ok_or_else(|| {
            let diagnostic =
                format!("the attribute type {name_or_oid} is not defined in the schema");
            Violation::new(ResultCode::UndefinedAttributeType, diagnostic)
        })
    }

    /// Checks a whole entry: its classes, required and allowed attributes, and [every attribute's
    /// values](Self::check_values).
    ///
    /// # Errors
    /// The first violation found.
    pub fn check_entry(
        &self,
        entry: &[AttributeValues<'_>],
        mode: CheckMode,
    ) -> Result<CheckedEntry, Violation> {
        let well_known = self.well_known();
        let object_class = entry
            .iter()
            .find(|attribute| attribute.attribute_type == well_known.object_class);
        let classes = self.classes_named(object_class.map_or(&[], |attribute| attribute.values))?;
        let structural_class = self.structural_class(&classes)?;
        self.check_abstract_classes(&classes)?;
        for attribute in entry {
            self.check_allowed(attribute.attribute_type, &classes, structural_class, mode)?;
            self.check_values(attribute)?;
        }
        let present = self.check_required(entry, &classes)?;
        self.check_content_rule(structural_class, &classes, &present)?;
        Ok(CheckedEntry {
            structural_class,
            classes,
        })
    }

    /// The classes that values of objectClass name, each once, in the order in which they are named.
    ///
    /// # Errors
    /// invalidAttributeSyntax for a name that is no class of the schema, objectClassViolation for none at all.
    pub fn classes_named(&self, values: &[&[u8]]) -> Result<Vec<ObjectClassId>, Violation> {
        if values.is_empty() {
            return Err(Violation::class(
                "the entry has no objectClass attribute".to_owned(),
            ));
        }
        // A request may name a class any number of times.
        let mut named = ClassSet::default();
        let mut classes = Vec::with_capacity(values.len().min(NAMED_EXPECTED));
        for value in values {
            let class = self.object_class(value).ok_or_else(|| {
                let diagnostic = format!(
                    "objectClass: {:?} is no object class of the schema",
                    String::from_utf8_lossy(value)
                );
                Violation::new(ResultCode::InvalidAttributeSyntax, diagnostic)
            })?;
            if !named.contains(class.id()) {
                named.insert(class.id());
                classes.push(class.id());
            }
        }
        Ok(classes)
    }

    /// The superclasses that `classes` imply and do not name: they are added implicitly (RFC 4512 §3.3).
    pub fn implied_classes(&self, classes: &[ObjectClassId]) -> Vec<ObjectClassId> {
        let mut implied = Vec::new();
        for superior in classes
            .iter()
            .flat_map(|class| self.class_of(*class).superiors().iter())
        {
            if !classes.contains(&superior) && !implied.contains(&superior) {
                implied.push(superior);
            }
        }
        implied
    }

    /// The most subordinate structural class of an entry (RFC 4512 §2.4.2): every other structural class must be above
    /// it.
    ///
    /// # Errors
    /// objectClassViolation when there is none, or two that are not in one chain.
    pub fn structural_class(&self, classes: &[ObjectClassId]) -> Result<ObjectClassId, Violation> {
        let mut lowest: Option<ObjectClassId> = None;
        for class in classes {
            if self.class_of(*class).kind() != ClassKind::Structural {
                continue;
            }
            lowest = Some(match lowest {
                None => *class,
                Some(known) if self.class_of(known).is_subclass_of(*class) => known,
                Some(known) if self.class_of(*class).is_subclass_of(known) => *class,
                Some(known) => {
                    return Err(Violation::class(format!(
                        "the structural object classes {} and {} are not in one chain of superclasses",
                        self.class_of(known).name(),
                        self.class_of(*class).name()
                    )));
                }
            });
        }
        lowest
            .ok_or_else(|| Violation::class("the entry has no structural object class".to_owned()))
    }

    /// RFC 4512 §2.4.1: an abstract class is there only as superclass of another.
    fn check_abstract_classes(&self, classes: &[ObjectClassId]) -> Result<(), Violation> {
        for class in classes {
            let lone = self.class_of(*class).kind() == ClassKind::Abstract
                && !classes
                    .iter()
                    .any(|other| self.class_of(*other).superiors().contains(*class));
            if lone {
                let name = self.class_of(*class).name();
                return Err(Violation::class(format!(
                    "the object class {name} is abstract and no class of the entry derives from it"
                )));
            }
        }
        Ok(())
    }

    /// Checks that entries of these classes may have an attribute, and that `mode` may set it.
    fn check_allowed(
        &self,
        attribute: AttributeTypeId,
        classes: &[ObjectClassId],
        structural_class: ObjectClassId,
        mode: CheckMode,
    ) -> Result<(), Violation> {
        let known = self.type_of(attribute);
        if mode == CheckMode::Client && known.is_no_user_modification() {
            let diagnostic = format!(
                "{}: only the directory itself sets this attribute",
                known.name()
            );
            return Err(Violation::new(ResultCode::ConstraintViolation, diagnostic));
        }
        if known.usage() != Usage::UserApplications {
            return Ok(());
        }
        if known.is_collective() {
            return self.check_collective(known, classes);
        }
        // It comes with userPassword, whatever classes the entry has (RFC 3112 §2.6 has one for it).
        if attribute == self.well_known().auth_password {
            return Ok(());
        }
        let allowed = classes.iter().any(|class| {
            let class = self.class_of(*class);
            class.must().contains(attribute)
                || class.may().contains(attribute)
                || class.id() == self.well_known().extensible_object
        });
        if allowed || self.content_rule_allows(structural_class, attribute) {
            return Ok(());
        }
        Err(Violation::class(format!(
            "{}: neither the structural object class {} nor another class of the entry allows this attribute",
            known.name(),
            self.class_of(structural_class).name()
        )))
    }

    /// Collective attributes stand in the subentries that hold them for others, and nowhere else (RFC 3671 §2.1).
    fn check_collective(
        &self,
        known: &AttributeType,
        classes: &[ObjectClassId],
    ) -> Result<(), Violation> {
        let is_there = |class| classes.contains(&class);
        let well_known = self.well_known();
        if is_there(well_known.subentry) && is_there(well_known.collective_attribute_subentry) {
            return Ok(());
        }
        Err(Violation::class(format!(
            "{}: a collective attribute is changed in the subentry of class collectiveAttributeSubentry that holds it \
             for the entries of its subtree, and nowhere else",
            known.name()
        )))
    }

    /// Checks what a subtree specification names, and that collective values, which are gathered for each entry, are
    /// not too many.
    fn check_collection(&self, attribute: &AttributeValues<'_>) -> Result<(), Violation> {
        let known = self.type_of(attribute.attribute_type);
        if known.is_collective() && attribute.values.len() > COLLECTIVE_VALUES_MAX {
            let diagnostic = format!(
                "{}: a collective attribute has at most {COLLECTIVE_VALUES_MAX} values",
                known.name()
            );
            return Err(Violation::new(ResultCode::AdminLimitExceeded, diagnostic));
        }
        if known.id() != self.operational(OperationalAttribute::SubtreeSpecification) {
            return Ok(());
        }
        let refused = |why: String| {
            let diagnostic = format!("{}: {why}", known.name());
            Err(Violation::new(ResultCode::ConstraintViolation, diagnostic))
        };
        for value in attribute.values {
            let Some(read) = SubtreeSpecification::parse(value) else {
                continue;
            };
            let names = [&read.base].into_iter().chain(&read.chop_before);
            for name in names.chain(&read.chop_after) {
                if NormalDn::new().parse(self, name.as_bytes()).is_err() {
                    return refused(format!("'{name}' is not a DN"));
                }
            }
            let is_known = |class: &str| self.object_class(class.as_bytes()).is_some();
            let filter = read.filter.as_ref();
            if let Some(class) = filter.and_then(|filter| filter.unknown(&is_known)) {
                return refused(format!(
                    "the schema does not define the object class {class}"
                ));
            }
        }
        Ok(())
    }

    fn check_required(
        &self,
        entry: &[AttributeValues<'_>],
        classes: &[ObjectClassId],
    ) -> Result<TypeSet, Violation> {
        let mut present = TypeSet::default();
        for attribute in entry {
            present.insert(attribute.attribute_type);
        }
        for class in classes {
            for required in self.class_of(*class).must().iter() {
                if !present.contains(required) {
                    return Err(Violation::class(format!(
                        "the object class {} requires the attribute {}",
                        self.class_of(*class).name(),
                        self.type_of(required).name()
                    )));
                }
            }
        }
        Ok(present)
    }

    /// Checks the values of one attribute on their own: syntax, single value, duplicates.
    ///
    /// # Errors
    /// invalidAttributeSyntax, constraintViolation or attributeOrValueExists.
    pub fn check_values(&self, attribute: &AttributeValues<'_>) -> Result<(), Violation> {
        let known = self.type_of(attribute.attribute_type);
        let values = attribute.values;
        if let Some(syntax) = known.syntax() {
            for (number, value) in values.iter().enumerate() {
                if let Err(error) = syntax.validate(self, value) {
                    let diagnostic = format!("{}: value #{number} is {error}", known.name());
                    return Err(Violation::new(
                        ResultCode::InvalidAttributeSyntax,
                        diagnostic,
                    ));
                }
            }
        }
        if known.is_collective() || known.is_operational() {
            self.check_collection(attribute)?;
        }
        if values.len() < 2 {
            return Ok(());
        }
        if known.is_single_value() {
            let diagnostic = format!(
                "{}: {} values for an attribute that has only one",
                known.name(),
                values.len()
            );
            return Err(Violation::new(ResultCode::ConstraintViolation, diagnostic));
        }
        match self.duplicate(known, values) {
            None => Ok(()),
            Some(number) => {
                let diagnostic =
                    format!("{}: value #{number} is there more than once", known.name());
                Err(Violation::new(
                    ResultCode::AttributeOrValueExists,
                    diagnostic,
                ))
            }
        }
    }

    /// The number of a value that equals one before it.
    pub(crate) fn duplicate(&self, known: &AttributeType, values: &[&[u8]]) -> Option<usize> {
        let mut keys = Vec::new();
        let mut spans = Vec::with_capacity(values.len());
        for (number, value) in values.iter().enumerate() {
            let start = keys.len();
            let normal = known
                .equality()
                .map(|rule| rule.normalise(self, value, &mut keys));
            if !matches!(normal, Some(Ok(()))) {
                // Without a rule, or a form the rule can use, equal octets are equal values.
                keys.extend_from_slice(value);
            }
            spans.push((start..keys.len(), number));
        }
        spans.sort_unstable_by(|(one, first), (other, second)| {
            keys[one.clone()]
                .cmp(&keys[other.clone()])
                .then(first.cmp(second))
        });
        spans
            .windows(2)
            .filter(|pair| keys[pair[0].0.clone()] == keys[pair[1].0.clone()])
            .map(|pair| pair[1].1)
            .min()
    }

    /// Checks that the attributes of an RDN can name an entry and that the entry has their values (RFC 4512 §2.3.1,
    /// §2.3.2).
    ///
    /// # Errors
    /// namingViolation; undefinedAttributeType for a type that the schema does not know.
    pub fn check_rdn(&self, rdn: Rdn<'_>, entry: &[AttributeValues<'_>]) -> Result<(), Violation> {
        let mut scratch = Vec::new();
        for ava in rdn.avas() {
            let known = self.defined_attribute_type(ava.attribute())?;
            let refused = |why: &str| Err(Violation::naming(format!("{}: {why}", known.name())));
            if known.is_operational() {
                return refused("an operational attribute cannot name an entry");
            }
            if known.is_collective() {
                return refused("a collective attribute cannot name an entry");
            }
            let Some(rule) = known.equality() else {
                return refused("an attribute without an equality rule cannot name an entry");
            };
            let value = ava.value();
            let Ok(assertion) = rule.assertion(self, &value) else {
                return refused("the value in the name is not of the attribute's syntax");
            };
            let present = entry
                .iter()
                .filter(|attribute| {
                    attribute.attribute_type == known.id() && attribute.options.is_empty()
                })
                .flat_map(|attribute| attribute.values)
                .any(|stored| assertion.matches(self, stored, &mut scratch));
            if !present {
                return refused("the entry does not have the value in its name");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
