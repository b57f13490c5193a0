//! Reading access rules as slapd.access(5) writes them: values of `olcAccess`, and files in the form of slapd.conf(5).
//!
//! A rule is words between white space. A word, or a part of one, may stand in quotation marks; a backslash stands
//! before a letter that means itself. In a file each rule begins with `access to` at the beginning of a line, lines
//! that begin with white space go on with it, and lines that begin with `#` are comments.

mod set;
mod who;
mod words;

use sapwood_ldap::dn::Dn;
use sapwood_ldap::filter_text;

pub(crate) use self::set::read_set;
pub(super) use self::who::who;
pub(super) use self::words::Words;
use self::words::{Field, Word};
use super::print::{LEVELS, PRIVILEGES};
use super::*;

/// Bytes of a rule, and of a file of rules.
const RULE_BYTES_MAX: usize = 1 << 16;
pub(crate) const FILE_BYTES_MAX: usize = 1 << 22;

/// The rules of a list.
pub const RULES_MAX: usize = 1000;

/// Why the text of access rules cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {why}")]
pub struct RuleError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, in letters and counted from 1.
    pub column: usize,
    /// What is wrong there.
    pub why: String,
}

type Parsed<T> = Result<T, RuleError>;

/// Reads a file of rules; each comes with the line that it begins in.
///
/// # Errors
/// Says where the text is not a rule, and why.
pub fn parse_rules(text: &str) -> Parsed<Vec<(usize, Rule)>> {
    let fail = |line, why: String| RuleError {
        line,
        column: 1,
        why,
    };
    if text.len() > FILE_BYTES_MAX {
        return Err(fail(1, format!("more than {FILE_BYTES_MAX} bytes")));
    }
    let mut rules = Vec::new();
    for (line, text) in words::logical_lines(text)? {
        let mut words = Words::read(&text, line)?;
        let first = words.next().filter(|word| word.is("access"));
        if first.is_none() {
            let why = "each rule begins with 'access to' at the beginning of a line";
            return Err(fail(line, why.into()));
        }
        if rules.len() == RULES_MAX {
            return Err(fail(line, format!("more than {RULES_MAX} rules")));
        }
        rules.push((line, rule(&mut words)?));
    }
    Ok(rules)
}

impl std::str::FromStr for Rule {
    type Err = RuleError;

    /// Reads a value of `olcAccess`, without its number: `to <what> by <who> …`.
    fn from_str(text: &str) -> Parsed<Rule> {
        rule(&mut Words::read(text, 1)?)
    }
}

/// Reads a rule from `to` on.
fn rule(words: &mut Words) -> Parsed<Rule> {
    if !words.next().is_some_and(|word| word.is("to")) {
        return Err(words.error("a rule begins with 'to'"));
    }
    let to = what(words)?;
    let mut by = Vec::new();
    while let Some(word) = words.next() {
        if !word.is("by") {
            return Err(word.error("'by' is expected here"));
        }
        by.push(clause(words)?);
    }
    if by.is_empty() {
        return Err(words.error("the rule says not by whom: 'by' is missing"));
    }
    Ok(Rule { to, by })
}

fn what(words: &mut Words) -> Parsed<What> {
    let mut what = What::everything();
    let mut is_given = false;
    while let Some(word) = words.next_but("by") {
        if word.is("*") && !is_given {
            is_given = true;
            continue;
        }
        is_given = true;
        let field = word.field()?;
        match field.name.to_ascii_lowercase().as_str() {
            "dn" if what.entries.is_none() => {
                if field.option.is_some() {
                    return Err(word.error("dn takes a style, such as dn.subtree="));
                }
                what.entries = dn_of_entries(word, field.style, field.value)?;
            }
            "filter" if what.filter.is_none() && field.style.is_none() => {
                let filter = filter_text::parse(field.value);
                filter.map_err(|error| word.error(format!("not a filter: {error}")))?;
                what.filter = Some(field.value.to_owned());
            }
            "attr" | "attrs" if what.attributes.is_empty() && field.style.is_none() => {
                what.attributes = attributes(word, field.value)?;
            }
            "val" | "value" if what.values.is_none() => {
                if !matches!(what.attributes[..], [Attributes::Type(_)]) {
                    let why =
                        "val is about values of one attribute: write attrs= and its name before";
                    return Err(word.error(why));
                }
                what.values = Some(values(word, &field)?);
            }
            "dn" | "filter" | "attr" | "attrs" | "val" | "value" => {
                let name = field.name;
                return Err(word.error(format!("{name} is given twice, or takes no style")));
            }
            name => {
                let why = format!("{name} names nothing: write *, dn, filter, attrs or val");
                return Err(word.error(why));
            }
        }
    }
    match is_given {
        true => Ok(what),
        false => Err(words.error("'to' is followed by what the rule is about, such as *")),
    }
}

/// The scope that a style of a DN stands for; a DN without one is that of an entry.
fn scope(style: Option<&str>) -> Option<DnScope> {
    let Some(style) = style else {
        return Some(DnScope::Base);
    };
    Some(match style.to_ascii_lowercase().as_str() {
        "exact" | "base" | "baseobject" => DnScope::Base,
        "one" | "onelevel" => DnScope::One,
        "sub" | "subtree" => DnScope::Subtree,
        "children" => DnScope::Children,
        "regex" => DnScope::Regex,
        style => {
            let level = style
                .strip_prefix("level{")
                .and_then(|rest| rest.strip_suffix('}'));
            DnScope::Level(level?.parse().ok()?)
        }
    })
}

fn unknown_style(word: &Word, style: Option<&str>) -> RuleError {
    let style = style.unwrap_or_default();
    word.error(format!("there is no style {style:?} of this"))
}

fn check_dn(word: &Word, dn: &str) -> Parsed<()> {
    match Dn::parse(dn) {
        Ok(_) => Ok(()),
        Err(error) => Err(word.error(format!("not a DN: {error}"))),
    }
}

fn dn_of_entries(word: &Word, style: Option<&str>, dn: &str) -> Parsed<Option<DnPattern>> {
    if dn == "*" {
        return Ok(None);
    }
    let scope = scope(style).filter(|scope| !matches!(scope, DnScope::Level(_)));
    let scope = scope.ok_or_else(|| unknown_style(word, style))?;
    if scope != DnScope::Regex {
        check_dn(word, dn)?;
    }
    Ok(Some(DnPattern::new(scope, dn)))
}

fn values(word: &Word, field: &Field<'_>) -> Parsed<ValuePattern> {
    let scope = scope(field.style).filter(|scope| !matches!(scope, DnScope::Level(_)));
    let scope = scope.ok_or_else(|| unknown_style(word, field.style))?;
    if field.option.is_some_and(|rule| !is_name(rule)) {
        return Err(word.error("behind val/ stands the name of a matching rule"));
    }
    Ok(ValuePattern {
        matching_rule: field.option.map(str::to_owned),
        scope,
        value: field.value.to_owned(),
    })
}

/// Whether text can be the name or the OID of something in the schema, perhaps with options.
fn is_name(text: &str) -> bool {
    let is_of_name =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b';' | b'_');
    !text.is_empty() && text.bytes().all(is_of_name)
}

fn attributes(word: &Word, list: &str) -> Parsed<Vec<Attributes>> {
    let mut attributes = Vec::new();
    for name in list.split(',') {
        let attribute = match name.as_bytes() {
            [b'@', ..] => Attributes::Class(name[1..].to_owned()),
            [b'!', ..] => Attributes::NotClass(name[1..].to_owned()),
            _ if name.eq_ignore_ascii_case("entry") => Attributes::Entry,
            _ if name.eq_ignore_ascii_case("children") => Attributes::Children,
            _ => Attributes::of_type(name),
        };
        if !is_name(name.trim_start_matches(['@', '!'])) || name.starts_with("@@") {
            return Err(word.error(format!("{name:?} is not the name of an attribute or class")));
        }
        attributes.push(attribute);
    }
    Ok(attributes)
}

/// Reads a clause behind its `by`.
fn clause(words: &mut Words) -> Parsed<By> {
    let mut by = By {
        who: Vec::new(),
        own_values: None,
        grant: Grant::Add(Rights::NONE),
        then: Then::Stop,
    };
    while let Some(word) = words.peek() {
        let Some(who) = who(word)? else { break };
        if let Some(why) = who::clash(&by.who, &who) {
            return Err(word.error(why));
        }
        by.who.push(who);
        words.next();
    }
    if by.who.is_empty() {
        let why = "'by' is followed by whom the clause is about, such as users";
        return Err(match words.peek() {
            Some(word) => word.error(format!("{:?} is nobody: {why}", word.text)),
            None => words.error(why),
        });
    }
    if let Some(word) = words.peek()
        && let Some((own, grant)) = access(&word.text)
    {
        (by.own_values, by.grant) = (own, grant);
        words.next();
    }
    if let Some(word) = words.peek() {
        let controls = [
            ("stop", Then::Stop),
            ("continue", Then::Continue),
            ("break", Then::Break),
        ];
        match controls.iter().find(|(name, _)| word.is(name)) {
            Some((_, then)) => {
                by.then = *then;
                words.next();
            }
            None if word.is("by") => {}
            None => {
                let why = format!(
                    "{:?} is no access, such as read or =rs, and no control",
                    word.text
                );
                return Err(word.error(why));
            }
        }
    }
    Ok(by)
}

/// The access that a word stands for: a level or privileges, perhaps only on values that name who asks.
fn access(word: &str) -> Option<(Option<Subject>, Grant)> {
    let word = word.to_ascii_lowercase();
    let grant = |word: &str| {
        let level = LEVELS.iter().find(|(level, _)| *level == word);
        if let Some((_, rights)) = level {
            return Some(Grant::Set(*rights));
        }
        let make = match word.chars().next()? {
            '=' => Grant::Set,
            '+' => Grant::Add,
            '-' => Grant::Remove,
            _ => return None,
        };
        let letters = &word[1..];
        if letters == "0" {
            return Some(make(Rights::NONE));
        }
        let mut rights = Rights::NONE;
        for letter in letters.chars() {
            let known = PRIVILEGES.iter().find(|(known, _)| *known == letter)?;
            rights = rights | known.1;
        }
        (!letters.is_empty()).then(|| make(rights))
    };
    if let Some(grant) = grant(&word) {
        return Some((None, grant));
    }
    let prefixes = [("realself", Subject::Real), ("self", Subject::Effective)];
    prefixes.iter().find_map(|(prefix, subject)| {
        let grant = grant(word.strip_prefix(prefix)?)?;
        Some((Some(*subject), grant))
    })
}

#[cfg(test)]
mod tests;
