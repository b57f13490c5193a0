//! Printing descriptions in the canonical form of RFC 4512 §4.1.

use std::fmt::{self, Display, Formatter, Write};

use super::{
    AttributeType, AttributeUsage, ContentRule, Definition, Extension, MatchingRule,
    MatchingRuleUse, NameForm, ObjectClass, StructureRule, Syntax,
};

impl Display for Definition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Definition::AttributeType(description) => description.fmt(f),
            Definition::ObjectClass(description) => description.fmt(f),
            Definition::MatchingRule(description) => description.fmt(f),
            Definition::MatchingRuleUse(description) => description.fmt(f),
            Definition::Syntax(description) => description.fmt(f),
            Definition::ContentRule(description) => description.fmt(f),
            Definition::StructureRule(description) => description.fmt(f),
            Definition::NameForm(description) => description.fmt(f),
        }
    }
}

impl Display for AttributeType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(
            f,
            &self.oid,
            &self.names,
            self.description.as_deref(),
            self.obsolete,
        )?;
        word(f, "SUP", self.superior.as_deref())?;
        word(f, "EQUALITY", self.equality.as_deref())?;
        word(f, "ORDERING", self.ordering.as_deref())?;
        word(f, "SUBSTR", self.substrings.as_deref())?;
        word(f, "SYNTAX", self.syntax.as_deref())?;
        if let (Some(_), Some(length)) = (&self.syntax, self.length) {
            write!(f, "{{{length}}}")?;
        }
        flag(f, "SINGLE-VALUE", self.single_value)?;
        flag(f, "COLLECTIVE", self.collective)?;
        flag(f, "NO-USER-MODIFICATION", self.no_user_modification)?;
        if self.usage != AttributeUsage::UserApplications {
            word(f, "USAGE", Some(self.usage.as_str()))?;
        }
        tail(f, &self.extensions)
    }
}

impl Display for ObjectClass {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(
            f,
            &self.oid,
            &self.names,
            self.description.as_deref(),
            self.obsolete,
        )?;
        words(f, "SUP", &self.superiors)?;
        flag(f, self.kind.as_str(), true)?;
        words(f, "MUST", &self.must)?;
        words(f, "MAY", &self.may)?;
        tail(f, &self.extensions)
    }
}

impl Display for MatchingRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(
            f,
            &self.oid,
            &self.names,
            self.description.as_deref(),
            self.obsolete,
        )?;
        word(f, "SYNTAX", Some(&self.syntax))?;
        tail(f, &self.extensions)
    }
}

impl Display for MatchingRuleUse {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(
            f,
            &self.oid,
            &self.names,
            self.description.as_deref(),
            self.obsolete,
        )?;
        words(f, "APPLIES", &self.applies)?;
        tail(f, &self.extensions)
    }
}

impl Display for Syntax {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(f, &self.oid, &[], self.description.as_deref(), false)?;
        tail(f, &self.extensions)
    }
}

impl Display for ContentRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(
            f,
            &self.oid,
            &self.names,
            self.description.as_deref(),
            self.obsolete,
        )?;
        words(f, "AUX", &self.auxiliaries)?;
        words(f, "MUST", &self.must)?;
        words(f, "MAY", &self.may)?;
        words(f, "NOT", &self.not)?;
        tail(f, &self.extensions)
    }
}

impl Display for StructureRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(
            f,
            &self.id,
            &self.names,
            self.description.as_deref(),
            self.obsolete,
        )?;
        word(f, "FORM", Some(&self.form))?;
        match self.superiors.as_slice() {
            [] => {}
            [one] => write!(f, " SUP {one}")?,
            many => {
                f.write_str(" SUP (")?;
                for rule in many {
                    write!(f, " {rule}")?;
                }
                f.write_str(" )")?;
            }
        }
        tail(f, &self.extensions)
    }
}

impl Display for NameForm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(
            f,
            &self.oid,
            &self.names,
            self.description.as_deref(),
            self.obsolete,
        )?;
        word(f, "OC", Some(&self.class))?;
        words(f, "MUST", &self.must)?;
        words(f, "MAY", &self.may)?;
        tail(f, &self.extensions)
    }
}

fn head(
    f: &mut Formatter<'_>,
    oid: &dyn Display,
    names: &[String],
    description: Option<&str>,
    obsolete: bool,
) -> fmt::Result {
    write!(f, "( {oid}")?;
    if !names.is_empty() {
        f.write_str(" NAME")?;
        quoted_list(f, names)?;
    }
    if let Some(description) = description {
        f.write_str(" DESC ")?;
        quoted(f, description)?;
    }
    flag(f, "OBSOLETE", obsolete)
}

fn tail(f: &mut Formatter<'_>, extensions: &[Extension]) -> fmt::Result {
    for extension in extensions {
        write!(f, " {}", extension.name)?;
        quoted_list(f, &extension.values)?;
    }
    f.write_str(" )")
}

fn flag(f: &mut Formatter<'_>, keyword: &str, given: bool) -> fmt::Result {
    if given {
        write!(f, " {keyword}")
    } else {
        Ok(())
    }
}

fn word(f: &mut Formatter<'_>, keyword: &str, word: Option<&str>) -> fmt::Result {
    match word {
        Some(word) => write!(f, " {keyword} {word}"),
        None => Ok(()),
    }
}

fn words(f: &mut Formatter<'_>, keyword: &str, words: &[String]) -> fmt::Result {
    match words {
        [] => Ok(()),
        [one] => write!(f, " {keyword} {one}"),
        many => write!(f, " {keyword} ( {} )", many.join(" $ ")),
    }
}

fn quoted_list(f: &mut Formatter<'_>, texts: &[String]) -> fmt::Result {
    if let [one] = texts {
        f.write_char(' ')?;
        return quoted(f, one);
    }
    f.write_str(" (")?;
    for text in texts {
        f.write_char(' ')?;
        quoted(f, text)?;
    }
    f.write_str(" )")
}

fn quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('\'')?;
    for c in text.chars() {
        match c {
            '\'' => f.write_str("\\27")?,
            '\\' => f.write_str("\\5C")?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('\'')
}
