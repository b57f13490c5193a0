//! Reading descriptions: a tokenizer and one function that collects the fields of any kind of description.

#![deny(clippy::indexing_slicing)]

use std::fmt;

use super::{
    AttributeType, AttributeUsage, ContentRule, Extension, MatchingRule, MatchingRuleUse, NameForm,
    ObjectClass, ObjectClassKind, StructureRule, Syntax,
};
use crate::steps;

/// The longest description that is read.
pub const DEFINITION_BYTES_MAX: usize = 1 << 20;

/// Why a description could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct ParseError {
    /// Where in the text, in bytes from its start.
    pub offset: usize,
    /// What is wrong there.
    pub kind: ParseErrorKind,
}

/// What is wrong with a description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The text is longer than [`DEFINITION_BYTES_MAX`].
    #[error("description longer than {DEFINITION_BYTES_MAX} bytes")]
    TooLong,
    /// Something else than what the grammar asks for.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What the grammar asks for.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A quote without its partner.
    #[error("quote without an end")]
    UnterminatedQuote,
    /// A keyword that this kind of description does not have.
    #[error("unknown keyword {0:?}")]
    UnknownKeyword(String),
    /// A field given twice.
    #[error("{0} given twice")]
    Repeated(String),
    /// A field that this kind of description must have.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Not an object identifier or a short name (RFC 4512 §1.4).
    #[error("{0:?} is neither an object identifier nor a name")]
    BadName(String),
    /// Not a number that fits.
    #[error("{0:?} is not a number in range")]
    BadNumber(String),
    /// Not one of the usages of RFC 4512 §4.1.2.
    #[error("unknown usage {0:?}")]
    BadUsage(String),
    /// Text after the closing parenthesis.
    #[error("text after the closing parenthesis")]
    TrailingText,
}

/// Declares `parse` and `FromStr` for a kind of description from what [`Fields`] collected.
macro_rules! description {
    ($kind:ident, $keywords:expr, |$fields:ident| $build:expr) => {
        impl $kind {
            /// Parses one description in parentheses.
            pub fn parse(text: &str) -> Result<$kind, ParseError> {
                let $fields = &mut Fields::read(text, $keywords)?;
                Ok($build)
            }
        }

        impl std::str::FromStr for $kind {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<$kind, ParseError> {
                $kind::parse(text)
            }
        }
    };
}

description!(
    AttributeType,
    &[
        ("NAME", Shape::Names),
        ("DESC", Shape::Text),
        ("OBSOLETE", Shape::Flag),
        ("SUP", Shape::Oid),
        ("EQUALITY", Shape::Oid),
        ("ORDERING", Shape::Oid),
        ("SUBSTR", Shape::Oid),
        ("SYNTAX", Shape::OidWithLength),
        ("SINGLE-VALUE", Shape::Flag),
        ("COLLECTIVE", Shape::Flag),
        ("NO-USER-MODIFICATION", Shape::Flag),
        ("USAGE", Shape::Word),
    ],
    |fields| AttributeType {
        oid: fields.oid()?,
        names: fields.list("NAME"),
        description: fields.one("DESC"),
        obsolete: fields.flag("OBSOLETE"),
        superior: fields.one("SUP"),
        equality: fields.one("EQUALITY"),
        ordering: fields.one("ORDERING"),
        substrings: fields.one("SUBSTR"),
        syntax: fields.one("SYNTAX"),
        length: fields.length,
        single_value: fields.flag("SINGLE-VALUE"),
        collective: fields.flag("COLLECTIVE"),
        no_user_modification: fields.flag("NO-USER-MODIFICATION"),
        usage: fields.usage()?,
        extensions: fields.extensions(),
    }
);

description!(
    ObjectClass,
    &[
        ("NAME", Shape::Names),
        ("DESC", Shape::Text),
        ("OBSOLETE", Shape::Flag),
        ("SUP", Shape::Oids),
        ("ABSTRACT", Shape::Flag),
        ("STRUCTURAL", Shape::Flag),
        ("AUXILIARY", Shape::Flag),
        ("MUST", Shape::Oids),
        ("MAY", Shape::Oids),
    ],
    |fields| ObjectClass {
        oid: fields.oid()?,
        names: fields.list("NAME"),
        description: fields.one("DESC"),
        obsolete: fields.flag("OBSOLETE"),
        superiors: fields.list("SUP"),
        kind: fields.class_kind()?,
        must: fields.list("MUST"),
        may: fields.list("MAY"),
        extensions: fields.extensions(),
    }
);

description!(
    MatchingRule,
    &[
        ("NAME", Shape::Names),
        ("DESC", Shape::Text),
        ("OBSOLETE", Shape::Flag),
        ("SYNTAX", Shape::Oid),
    ],
    |fields| MatchingRule {
        oid: fields.oid()?,
        names: fields.list("NAME"),
        description: fields.one("DESC"),
        obsolete: fields.flag("OBSOLETE"),
        syntax: fields.required("SYNTAX")?,
        extensions: fields.extensions(),
    }
);

description!(
    MatchingRuleUse,
    &[
        ("NAME", Shape::Names),
        ("DESC", Shape::Text),
        ("OBSOLETE", Shape::Flag),
        ("APPLIES", Shape::Oids),
    ],
    |fields| MatchingRuleUse {
        oid: fields.oid()?,
        names: fields.list("NAME"),
        description: fields.one("DESC"),
        obsolete: fields.flag("OBSOLETE"),
        applies: fields.required_list("APPLIES")?,
        extensions: fields.extensions(),
    }
);

description!(Syntax, &[("DESC", Shape::Text)], |fields| Syntax {
    oid: fields.oid()?,
    description: fields.one("DESC"),
    extensions: fields.extensions(),
});

description!(
    ContentRule,
    &[
        ("NAME", Shape::Names),
        ("DESC", Shape::Text),
        ("OBSOLETE", Shape::Flag),
        ("AUX", Shape::Oids),
        ("MUST", Shape::Oids),
        ("MAY", Shape::Oids),
        ("NOT", Shape::Oids),
    ],
    |fields| ContentRule {
        oid: fields.oid()?,
        names: fields.list("NAME"),
        description: fields.one("DESC"),
        obsolete: fields.flag("OBSOLETE"),
        auxiliaries: fields.list("AUX"),
        must: fields.list("MUST"),
        may: fields.list("MAY"),
        not: fields.list("NOT"),
        extensions: fields.extensions(),
    }
);

description!(
    StructureRule,
    &[
        ("NAME", Shape::Names),
        ("DESC", Shape::Text),
        ("OBSOLETE", Shape::Flag),
        ("FORM", Shape::Oid),
        ("SUP", Shape::Numbers),
    ],
    |fields| StructureRule {
        id: fields.rule_id()?,
        names: fields.list("NAME"),
        description: fields.one("DESC"),
        obsolete: fields.flag("OBSOLETE"),
        form: fields.required("FORM")?,
        superiors: fields.numbers("SUP")?,
        extensions: fields.extensions(),
    }
);

description!(
    NameForm,
    &[
        ("NAME", Shape::Names),
        ("DESC", Shape::Text),
        ("OBSOLETE", Shape::Flag),
        ("OC", Shape::Oid),
        ("MUST", Shape::Oids),
        ("MAY", Shape::Oids),
    ],
    |fields| NameForm {
        oid: fields.oid()?,
        names: fields.list("NAME"),
        description: fields.one("DESC"),
        obsolete: fields.flag("OBSOLETE"),
        class: fields.required("OC")?,
        must: fields.list("MUST"),
        may: fields.list("MAY"),
        extensions: fields.extensions(),
    }
);

/// What follows a keyword.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// Nothing.
    Flag,
    /// One quoted string.
    Text,
    /// One bare word.
    Word,
    /// `qdescrs`: one name or a list of names.
    Names,
    /// One name or object identifier.
    Oid,
    /// One object identifier with an optional `{length}`.
    OidWithLength,
    /// One name or object identifier, or a list of them.
    Oids,
    /// `ruleids`: one number or a list of numbers.
    Numbers,
    /// `qdstrings`: one quoted string or a list of them.
    Texts,
}

/// The fields of one description, before they find their places.
struct Fields<'k> {
    /// The identifier after the opening parenthesis and where it stood.
    first: (usize, String),
    found: Vec<(&'k str, Vec<String>)>,
    length: Option<u32>,
    extensions: Vec<Extension>,
    /// Where the description ended, for errors about what is missing.
    end: usize,
}

impl<'k> Fields<'k> {
    fn read(text: &str, keywords: &[(&'k str, Shape)]) -> Result<Fields<'k>, ParseError> {
        if text.len() > DEFINITION_BYTES_MAX {
            return Err(ParseError {
                offset: 0,
                kind: ParseErrorKind::TooLong,
            });
        }
        let mut tokens = Tokens {
            text,
            offset: ordered_prefix_len(text),
            length: None,
        };
        tokens.expect(Token::Open, "(")?;
        let offset = tokens.offset;
        let first = tokens.name_or_oid("an object identifier")?;
        let mut fields = Fields {
            first: (offset, first),
            found: Vec::new(),
            length: None,
            extensions: Vec::new(),
            end: 0,
        };
        loop {
            let offset = tokens.offset;
            let keyword = match tokens.next()? {
                Some(Token::Close) => break,
                Some(Token::Word(word)) => word,
                other => return Err(unexpected(offset, "a keyword or )", other)),
            };
            let upper = keyword.to_ascii_uppercase();
            steps::count(keywords.len() + fields.found.len());
            if let Some((known, shape)) = keywords.iter().find(|(known, _)| *known == upper) {
                if fields.found.iter().any(|(name, _)| name == known) {
                    return Err(ParseError {
                        offset,
                        kind: ParseErrorKind::Repeated(upper),
                    });
                }
                fields.found.push((known, tokens.values(*shape)?));
                if *shape == Shape::OidWithLength {
                    fields.length = tokens.length.take();
                }
            } else if upper.starts_with("X-") {
                let values = tokens.values(Shape::Texts)?;
                fields.extensions.push(Extension {
                    name: keyword.to_owned(),
                    values,
                });
            } else {
                return Err(ParseError {
                    offset,
                    kind: ParseErrorKind::UnknownKeyword(keyword.to_owned()),
                });
            }
        }
        fields.end = tokens.offset;
        match tokens.next() {
            Ok(None) => Ok(fields),
            _ => Err(ParseError {
                offset: fields.end,
                kind: ParseErrorKind::TrailingText,
            }),
        }
    }

    fn oid(&self) -> Result<String, ParseError> {
        Ok(self.first.1.clone())
    }

    fn rule_id(&self) -> Result<u32, ParseError> {
        let (offset, word) = &self.first;
        number(*offset, word)
    }

    fn list(&mut self, keyword: &str) -> Vec<String> {
        let found = self.found.iter_mut().find(|(name, _)| *name == keyword);
        found
            .map(|(_, values)| std::mem::take(values))
            .unwrap_or_default()
    }

    fn one(&mut self, keyword: &str) -> Option<String> {
        self.list(keyword).into_iter().next()
    }

    fn required(&mut self, keyword: &'static str) -> Result<String, ParseError> {
        self.required_list(keyword)
            .map(|list| list.into_iter().next().unwrap_or_default())
    }

    fn required_list(&mut self, keyword: &'static str) -> Result<Vec<String>, ParseError> {
        let list = self.list(keyword);
        if list.is_empty() {
            return Err(ParseError {
                offset: self.end,
                kind: ParseErrorKind::Missing(keyword),
            });
        }
        Ok(list)
    }

    fn numbers(&mut self, keyword: &str) -> Result<Vec<u32>, ParseError> {
        let end = self.end;
        self.list(keyword)
            .iter()
            .map(|word| number(end, word))
            .collect()
    }

    fn flag(&self, keyword: &str) -> bool {
        self.found.iter().any(|(name, _)| *name == keyword)
    }

    fn usage(&mut self) -> Result<AttributeUsage, ParseError> {
        let Some(word) = self.one("USAGE") else {
            return Ok(AttributeUsage::default());
        };
        let usages = [
            AttributeUsage::UserApplications,
            AttributeUsage::DirectoryOperation,
            AttributeUsage::DistributedOperation,
            AttributeUsage::DsaOperation,
        ];
        let known = usages
            .into_iter()
            .find(|usage| usage.as_str().eq_ignore_ascii_case(&word));
        known.ok_or(ParseError {
            offset: self.end,
            kind: ParseErrorKind::BadUsage(word),
        })
    }

    fn class_kind(&self) -> Result<ObjectClassKind, ParseError> {
        let kinds = [
            ObjectClassKind::Abstract,
            ObjectClassKind::Structural,
            ObjectClassKind::Auxiliary,
        ];
        let mut given = kinds.into_iter().filter(|kind| self.flag(kind.as_str()));
        let kind = given.next().unwrap_or_default();
        match given.next() {
            Some(_) => {
                let repeated = ParseErrorKind::Repeated("the kind of the class".to_owned());
                Err(ParseError {
                    offset: self.end,
                    kind: repeated,
                })
            }
            None => Ok(kind),
        }
    }

    fn extensions(&mut self) -> Vec<Extension> {
        std::mem::take(&mut self.extensions)
    }
}

/// The length of a prefix such as `{12}`, which OpenLDAP puts before ordered values.
fn ordered_prefix_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix('{') else {
        return 0;
    };
    match rest.split_once('}') {
        Some((digits, _)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.len() + 2,
        _ => 0,
    }
}

fn number(offset: usize, word: &str) -> Result<u32, ParseError> {
    word.parse().map_err(|_| ParseError {
        offset,
        kind: ParseErrorKind::BadNumber(word.to_owned()),
    })
}

fn unexpected(offset: usize, expected: &'static str, found: Option<Token<'_>>) -> ParseError {
    let found = match found {
        Some(token) => token.to_string(),
        None => "the end".to_owned(),
    };
    ParseError {
        offset,
        kind: ParseErrorKind::Expected { expected, found },
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token<'a> {
    Open,
    Close,
    Dollar,
    Quoted(String),
    Word(&'a str),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Open => f.write_str("("),
            Token::Close => f.write_str(")"),
            Token::Dollar => f.write_str("$"),
            Token::Quoted(text) => write!(f, "'{text}'"),
            Token::Word(word) => f.write_str(word),
        }
    }
}

struct Tokens<'a> {
    text: &'a str,
    offset: usize,
    /// The `{length}` that followed the last syntax.
    length: Option<u32>,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Result<Option<Token<'a>>, ParseError> {
        let before = self.offset;
        let token = self.read_next();
        steps::count(self.offset - before);
        token
    }

    fn read_next(&mut self) -> Result<Option<Token<'a>>, ParseError> {
        let rest = self.text.get(self.offset..).unwrap_or_default();
        let trimmed = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
        self.offset += rest.len() - trimmed.len();
        let start = self.offset;
        let Some(first) = trimmed.chars().next() else {
            return Ok(None);
        };
        self.offset += 1;
        Ok(Some(match first {
            '(' => Token::Open,
            ')' => Token::Close,
            '$' => Token::Dollar,
            '\'' => {
                let body = trimmed.get(1..).unwrap_or_default();
                let Some(end) = body.find('\'') else {
                    return Err(ParseError {
                        offset: start,
                        kind: ParseErrorKind::UnterminatedQuote,
                    });
                };
                self.offset += end + 1;
                Token::Quoted(unescape(body.get(..end).unwrap_or_default()))
            }
            _ => {
                let ends = |c: char| c.is_ascii_whitespace() || matches!(c, '(' | ')' | '$' | '\'');
                let end = trimmed.find(ends).unwrap_or(trimmed.len());
                self.offset = start + end;
                Token::Word(trimmed.get(..end).unwrap_or_default())
            }
        }))
    }

    /// Looks at the next token without taking it.
    fn peek(&mut self) -> Result<Option<Token<'a>>, ParseError> {
        let before = self.offset;
        let token = self.next();
        self.offset = before;
        token
    }

    fn expect(&mut self, wanted: Token<'_>, expected: &'static str) -> Result<(), ParseError> {
        let offset = self.offset;
        match self.next()? {
            Some(token) if token == wanted => Ok(()),
            other => Err(unexpected(offset, expected, other)),
        }
    }

    fn values(&mut self, shape: Shape) -> Result<Vec<String>, ParseError> {
        match shape {
            Shape::Flag => Ok(Vec::new()),
            Shape::Word => Ok(vec![self.word("a word")?]),
            Shape::Text => Ok(vec![self.quoted()?]),
            Shape::Oid => Ok(vec![self.name_or_oid("a name or object identifier")?]),
            Shape::OidWithLength => Ok(vec![self.syntax()?]),
            Shape::Names | Shape::Oids => {
                self.one_or_list(|tokens| tokens.name_or_oid("a name or object identifier"))
            }
            Shape::Numbers => self.one_or_list(|tokens| tokens.word("a rule identifier")),
            Shape::Texts => self.one_or_list(Tokens::quoted),
        }
    }

    fn one_or_list(
        &mut self,
        item: impl Fn(&mut Tokens<'a>) -> Result<String, ParseError>,
    ) -> Result<Vec<String>, ParseError> {
        if self.peek()? != Some(Token::Open) {
            return Ok(vec![item(self)?]);
        }
        self.next()?;
        let mut items = Vec::new();
        loop {
            match self.peek()? {
                Some(Token::Close) => {
                    self.next()?;
                    return Ok(items);
                }
                Some(Token::Dollar) => {
                    self.next()?;
                }
                _ => items.push(item(self)?),
            }
        }
    }

    fn word(&mut self, expected: &'static str) -> Result<String, ParseError> {
        let offset = self.offset;
        match self.next()? {
            Some(Token::Word(word)) => Ok(word.to_owned()),
            Some(Token::Quoted(word)) => Ok(word),
            other => Err(unexpected(offset, expected, other)),
        }
    }

    fn quoted(&mut self) -> Result<String, ParseError> {
        let offset = self.offset;
        match self.next()? {
            Some(Token::Quoted(text)) => Ok(text),
            other => Err(unexpected(offset, "a string in single quotes", other)),
        }
    }

    fn name_or_oid(&mut self, expected: &'static str) -> Result<String, ParseError> {
        let offset = self.offset;
        let word = self.word(expected)?;
        if is_name_or_oid(&word) {
            Ok(word)
        } else {
            Err(ParseError {
                offset,
                kind: ParseErrorKind::BadName(word),
            })
        }
    }

    /// `noidlen`: an object identifier with an optional length in braces.
    fn syntax(&mut self) -> Result<String, ParseError> {
        let offset = self.offset;
        let word = self.word("an object identifier")?;
        let (oid, length) = match word.split_once('{') {
            Some((oid, rest)) => {
                let digits = rest.strip_suffix('}').unwrap_or(rest);
                (oid.to_owned(), Some(number(offset, digits)?))
            }
            None => (word, None),
        };
        self.length = length;
        if is_name_or_oid(&oid) {
            Ok(oid)
        } else {
            Err(ParseError {
                offset,
                kind: ParseErrorKind::BadName(oid),
            })
        }
    }
}

/// Undoes `\27` and `\5c` (RFC 4512 §4.1). A backslash before anything else stands for itself: files in the field
/// hold unescaped ones.
fn unescape(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let escaped = after.get(..2).and_then(|digits| match digits {
            "27" => Some('\''),
            "5c" | "5C" => Some('\\'),
            _ => None,
        });
        out.push(escaped.unwrap_or('\\'));
        rest = if escaped.is_some() {
            after.get(2..).unwrap_or_default()
        } else {
            after
        };
    }
    out.push_str(rest);
    out
}

/// A name or an object identifier (RFC 4512 §1.4), with the latitude of files in the field: names may hold
/// underscores, and an identifier may be a macro with a suffix, such as `exampleAttribute:3`.
fn is_name_or_oid(word: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    word.bytes()
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric())
        && word.bytes().all(allowed)
}
