//! Subtree Specification (RFC 3672 §2.1): which entries below an administrative point a subentry is for.

use super::composite::{GUIDE_DEPTH_MAX, Scanner, is_oid};
use super::{Reason, Schema};

/// A subtree specification that was read. Names are relative: to the administrative point that of the base, to the base
/// those of the exclusions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubtreeSpecification {
    /// Where the subtree begins; empty for the administrative point.
    pub(crate) base: String,
    /// Neither these entries nor what is below them.
    pub(crate) chop_before: Vec<String>,
    /// Nothing that is below these entries.
    pub(crate) chop_after: Vec<String>,
    /// Entries so far below the base at least.
    pub(crate) minimum: u32,
    /// And so far at most.
    pub(crate) maximum: Option<u32>,
    /// Of the classes that it says.
    pub(crate) filter: Option<Refinement>,
}

/// What is asked of an entry's object classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refinement {
    /// The class with this name or OID is one of them.
    Item(String),
    And(Vec<Refinement>),
    Or(Vec<Refinement>),
    Not(Box<Refinement>),
}

/// A SEQUENCE in GSER with the components of SubtreeSpecification in their order.
pub(super) fn validate(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let read = SubtreeSpecification::parse(value);
    read.map(drop)
        .ok_or("it is not a subtree specification such as { base \"ou=people\" }")
}

impl SubtreeSpecification {
    /// Reads one.
    pub(crate) fn parse(value: &[u8]) -> Option<SubtreeSpecification> {
        let mut scanner = Scanner { rest: value };
        let read = subtree(&mut scanner)?;
        scanner.rest.is_empty().then_some(read)
    }
}

fn subtree(scanner: &mut Scanner<'_>) -> Option<SubtreeSpecification> {
    const COMPONENTS: [&[u8]; 5] = [
        b"base",
        b"specificExclusions",
        b"minimum",
        b"maximum",
        b"specificationFilter",
    ];
    if !scanner.take(b"{") {
        return None;
    }
    scanner.spaces();
    let mut read = SubtreeSpecification::default();
    let mut following = COMPONENTS.iter();
    while !scanner.take(b"}") {
        let name = scanner.take_while(|byte| byte.is_ascii_alphabetic());
        following.find(|component| **component == name)?;
        scanner.spaces();
        match name {
            b"base" => read.base = quoted(scanner)?,
            b"minimum" => read.minimum = number(scanner)?,
            b"maximum" => read.maximum = Some(number(scanner)?),
            b"specificExclusions" => exclusions(scanner, &mut read)?,
            _ => read.filter = Some(refinement(scanner, 0)?),
        }
        scanner.spaces();
        if scanner.take(b",") {
            scanner.spaces();
        }
    }
    Some(read)
}

/// A number; one that is too large for the depth of any tree is as good as another such.
fn number(scanner: &mut Scanner<'_>) -> Option<u32> {
    let digits = scanner.take_while(|byte| byte.is_ascii_digit());
    let text = std::str::from_utf8(digits).ok()?;
    (!text.is_empty()).then(|| text.parse().unwrap_or(u32::MAX))
}

/// A quoted string of GSER (RFC 3641 §3.2), its quotes doubled inside.
fn quoted(scanner: &mut Scanner<'_>) -> Option<String> {
    if !scanner.take(b"\"") {
        return None;
    }
    let mut text = Vec::new();
    loop {
        text.extend_from_slice(scanner.take_while(|byte| byte != b'"'));
        if !scanner.take(b"\"") {
            return None;
        }
        if !scanner.take(b"\"") {
            return String::from_utf8(text).ok();
        }
        text.push(b'"');
    }
}

fn exclusions(scanner: &mut Scanner<'_>, read: &mut SubtreeSpecification) -> Option<()> {
    if !scanner.take(b"{") {
        return None;
    }
    scanner.spaces();
    while !scanner.take(b"}") {
        let names = match scanner.take(b"chopBefore") {
            true => &mut read.chop_before,
            false if scanner.take(b"chopAfter") => &mut read.chop_after,
            false => return None,
        };
        scanner.take(b":").then_some(())?;
        scanner.spaces();
        names.push(quoted(scanner)?);
        scanner.spaces();
        if scanner.take(b",") {
            scanner.spaces();
        }
    }
    Some(())
}

fn refinement(scanner: &mut Scanner<'_>, depth: usize) -> Option<Refinement> {
    if depth == GUIDE_DEPTH_MAX {
        return None;
    }
    if scanner.take(b"item:") {
        scanner.spaces();
        let class =
            scanner.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
        let name = std::str::from_utf8(class).ok()?;
        return is_oid(class).then(|| Refinement::Item(name.to_owned()));
    }
    if scanner.take(b"not:") {
        scanner.spaces();
        return Some(Refinement::Not(Box::new(refinement(scanner, depth + 1)?)));
    }
    let many = match scanner.take(b"and:") {
        true => Refinement::And,
        false if scanner.take(b"or:") => Refinement::Or,
        false => return None,
    };
    scanner.spaces();
    scanner.take(b"{").then_some(())?;
    scanner.spaces();
    let mut parts = Vec::new();
    while !scanner.take(b"}") {
        parts.push(refinement(scanner, depth + 1)?);
        scanner.spaces();
        if scanner.take(b",") {
            scanner.spaces();
        }
    }
    Some(many(parts))
}

impl Refinement {
    /// Whether an entry of such classes is meant; `has` says whether it is of a class.
    pub(crate) fn is_true(&self, has: &impl Fn(&str) -> bool) -> bool {
        match self {
            Refinement::Item(class) => has(class),
            Refinement::And(parts) => parts.iter().all(|part| part.is_true(has)),
            Refinement::Or(parts) => parts.iter().any(|part| part.is_true(has)),
            Refinement::Not(part) => !part.is_true(has),
        }
    }

    /// The first class that `is_known` does not know.
    pub(crate) fn unknown<'r>(&'r self, is_known: &impl Fn(&str) -> bool) -> Option<&'r str> {
        match self {
            Refinement::Item(class) => (!is_known(class)).then_some(class),
            Refinement::And(parts) | Refinement::Or(parts) => {
                parts.iter().find_map(|part| part.unknown(is_known))
            }
            Refinement::Not(part) => part.unknown(is_known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_components_are_read() {
        let text = r#"{ base "ou=""x"", o=y", specificExclusions { chopBefore:"cn=a", chopAfter: "cn=b" },
            minimum 1, maximum 99999999999, specificationFilter and:{ item:person, not:or:{item:2.5.6.9} } }"#;
        let text = text.replace("\n            ", " ");
        let read = SubtreeSpecification::parse(text.as_bytes()).unwrap();
        assert_eq!(read.base, r#"ou="x", o=y"#);
        assert_eq!(
            (&*read.chop_before, &*read.chop_after),
            (&["cn=a".into()][..], &["cn=b".into()][..])
        );
        assert_eq!((read.minimum, read.maximum), (1, Some(u32::MAX)));
        let filter = read.filter.unwrap();
        for (classes, expected) in [
            (&["person"][..], true),
            (&["person", "2.5.6.9"], false),
            (&["device"], false),
        ] {
            assert_eq!(
                filter.is_true(&|class| classes.contains(&class)),
                expected,
                "{classes:?}"
            );
        }
        assert_eq!(filter.unknown(&|class| class == "person"), Some("2.5.6.9"));
        assert_eq!(
            SubtreeSpecification::parse(b"{}"),
            Some(SubtreeSpecification::default())
        );
        for wrong in [
            "",
            "{",
            "{ minimum x }",
            "{ minimum 1, base \"\" }",
            "{ specificExclusions { \"cn=a\" } }",
        ] {
            assert_eq!(
                SubtreeSpecification::parse(wrong.as_bytes()),
                None,
                "{wrong}"
            );
        }
    }
}
