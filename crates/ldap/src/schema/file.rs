//! Schema files as OpenLDAP's administrators know them: directives such as `attributetype ( ... )`, one definition
//! over several lines, comments, and `objectidentifier` macros.

#![deny(clippy::indexing_slicing)]

use std::collections::HashMap;

use super::{AttributeType, Definition, ObjectClass, ParseError};

/// The longest schema file that is read.
pub const SCHEMA_FILE_BYTES_MAX: usize = 16 << 20;

/// The longest object identifier that macros may expand to.
const OID_BYTES_MAX: usize = 1024;

/// A definition and the line it starts at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// Line number, the first line being 1.
    pub line: usize,
    /// The definition, its macros resolved.
    pub definition: Definition,
}

/// Why a schema file could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file is longer than [`SCHEMA_FILE_BYTES_MAX`].
    #[error("the file is longer than {SCHEMA_FILE_BYTES_MAX} bytes")]
    TooLong,
    /// A description that does not parse.
    #[error("line {line}: {error}")]
    Description {
        /// Where the directive starts.
        line: usize,
        /// What is wrong with it.
        error: ParseError,
    },
    /// A directive other than those that declare schema.
    #[error("line {line}: unknown directive {directive:?}")]
    UnknownDirective {
        /// Where it stands.
        line: usize,
        /// Its first word.
        directive: String,
    },
    /// An `objectidentifier` directive that is not a name followed by an identifier.
    #[error("line {line}: objectidentifier takes a name and an object identifier")]
    BadMacro {
        /// Where it stands.
        line: usize,
    },
    /// A macro that has not been declared.
    #[error("line {line}: {name:?} has not been declared with objectidentifier")]
    UnknownMacro {
        /// Where it is used.
        line: usize,
        /// Its name.
        name: String,
    },
}

/// The names declared with `objectidentifier`. Files read one after another may share them.
#[derive(Debug, Clone, Default)]
pub struct Macros(HashMap<String, String>);

impl Macros {
    /// Declares `name` for `value`, which may itself use a macro. `false`: `value` does not resolve.
    pub fn declare(&mut self, name: &str, value: &str) -> bool {
        let Some(oid) = self.resolve(value) else {
            return false;
        };
        self.0.insert(name.to_ascii_lowercase(), oid);
        true
    }

    /// The object identifier that `word` stands for: itself when numeric, or `macro` or `macro:suffix`.
    pub fn resolve(&self, word: &str) -> Option<String> {
        if word
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_digit())
        {
            return Some(word.to_owned());
        }
        let (name, suffix) = match word.split_once(':') {
            Some((name, suffix)) => (name, Some(suffix)),
            None => (word, None),
        };
        let base = self.0.get(&name.to_ascii_lowercase())?;
        let oid = match suffix {
            Some(suffix) => format!("{base}.{suffix}"),
            None => base.clone(),
        };
        (oid.len() <= OID_BYTES_MAX).then_some(oid)
    }

    /// Replaces macros in the identifier and the syntax of a definition. An identifier that is a plain name and no
    /// macro stays (some files identify types by name). `Err`: the macro that is not declared.
    pub fn apply(&self, definition: &mut Definition) -> Result<(), String> {
        let (oid, syntax) = match definition {
            Definition::AttributeType(AttributeType { oid, syntax, .. }) => {
                (Some(oid), syntax.as_mut())
            }
            Definition::ObjectClass(ObjectClass { oid, .. }) => (Some(oid), None),
            Definition::MatchingRule(rule) => (Some(&mut rule.oid), Some(&mut rule.syntax)),
            Definition::MatchingRuleUse(rule) => (Some(&mut rule.oid), None),
            Definition::Syntax(syntax) => (Some(&mut syntax.oid), None),
            Definition::ContentRule(rule) => (Some(&mut rule.oid), None),
            Definition::StructureRule(_) => (None, None),
            Definition::NameForm(form) => (Some(&mut form.oid), None),
        };
        for word in [oid, syntax].into_iter().flatten() {
            match self.resolve(word) {
                Some(resolved) => *word = resolved,
                None if word.contains(':') => return Err(word.clone()),
                None => {}
            }
        }
        Ok(())
    }
}

/// Reads the definitions of a schema file, adding its macros to `macros`.
pub fn parse_file(text: &str, macros: &mut Macros) -> Result<Vec<Declaration>, FileError> {
    if text.len() > SCHEMA_FILE_BYTES_MAX {
        return Err(FileError::TooLong);
    }
    let mut declarations = Vec::new();
    for (line, directive) in directives(text) {
        let directive = directive.trim();
        let end = directive
            .find(|c: char| c.is_ascii_whitespace() || c == '(')
            .unwrap_or(directive.len());
        let (keyword, argument) = directive.split_at_checked(end).unwrap_or((directive, ""));
        let keyword = keyword.strip_suffix(':').unwrap_or(keyword);
        if keyword.eq_ignore_ascii_case("objectidentifier") {
            let mut words = argument.split_ascii_whitespace();
            let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
                return Err(FileError::BadMacro { line });
            };
            if !macros.declare(name, value) {
                return Err(FileError::UnknownMacro {
                    line,
                    name: value.to_owned(),
                });
            }
            continue;
        }
        let definition = match Definition::parse(keyword, argument.trim_start()) {
            Some(Ok(definition)) => Ok(definition),
            Some(Err(error)) => Err(FileError::Description { line, error }),
            None => Err(FileError::UnknownDirective {
                line,
                directive: keyword.to_owned(),
            }),
        };
        let mut definition = definition?;
        macros
            .apply(&mut definition)
            .map_err(|name| FileError::UnknownMacro { line, name })?;
        declarations.push(Declaration { line, definition });
    }
    Ok(declarations)
}

/// Joins continuation lines (those that start with white space, and those inside parentheses that are still open)
/// to directives, with the line each starts at. Comments end nothing.
fn directives(text: &str) -> Vec<(usize, String)> {
    let mut directives: Vec<(usize, String)> = Vec::new();
    let mut open = Open::default();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let continues = open.parentheses > 0 || open.quote || line.starts_with([' ', '\t']);
        match directives.last_mut() {
            Some((_, directive)) if continues => {
                directive.push('\n');
                directive.push_str(line);
            }
            _ => {
                open = Open::default();
                directives.push((index + 1, line.to_owned()));
            }
        }
        open.read(line);
    }
    directives
}

/// What is still open at the end of a line.
#[derive(Default)]
struct Open {
    parentheses: i64,
    quote: bool,
}

impl Open {
    fn read(&mut self, line: &str) {
        for byte in line.bytes() {
            match byte {
                b'\'' => self.quote = !self.quote,
                b'(' if !self.quote => self.parentheses += 1,
                b')' if !self.quote => self.parentheses -= 1,
                _ => {}
            }
        }
    }
}
