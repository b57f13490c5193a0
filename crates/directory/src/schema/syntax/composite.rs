//! Syntaxes made of parts (RFC 4517 §3.3; RFC 2307 §2.3; RFC 3112; RFC 3672 §2.1; descriptions of RFC 4512 §4.1).

use sapwood_ldap::attribute::{is_descriptor, is_numeric_oid};
use sapwood_ldap::dn::Dn;
use sapwood_ldap::schema as language;

use super::super::{AttributeType, Schema};
use super::text::{bits, is_printable};
use super::{Reason, time};

/// Nesting of parentheses in a Guide that is followed.
pub(super) const GUIDE_DEPTH_MAX: usize = 32;

macro_rules! descriptions {
    ($($name:ident: $kind:ident, $reason:literal;)*) => {
        $(
            #[doc = concat!("A definition of RFC 4512 §4.1: ", $reason)]
            pub(super) fn $name(_: &Schema, value: &[u8]) -> Result<(), Reason> {
                let text = std::str::from_utf8(value).map_err(|_| "it is not UTF-8")?;
                language::$kind::parse(text).map(|_| ()).map_err(|_| concat!("it is not the definition of ", $reason))
            }
        )*
    };
}

descriptions! {
    attribute_type_description: AttributeType, "an attribute type";
    object_class_description: ObjectClass, "an object class";
    matching_rule_description: MatchingRule, "a matching rule";
    matching_rule_use_description: MatchingRuleUse, "a matching rule use";
    syntax_description: Syntax, "a syntax";
    content_rule_description: ContentRule, "a content rule";
    structure_rule_description: StructureRule, "a structure rule";
    name_form_description: NameForm, "a name form";
}

/// The first component of a definition in parentheses: an OID, a number or a quoted string (RFC 4517 §4.2.14, §4.2.18,
/// §4.2.25).
pub(in super::super) fn first_component(value: &[u8]) -> Option<&[u8]> {
    let inside = value
        .trim_ascii_start()
        .strip_prefix(b"(")?
        .trim_ascii_start();
    if let Some(quoted) = inside.strip_prefix(b"'") {
        return quoted.split(|byte| *byte == b'\'').next();
    }
    let end = inside
        .iter()
        .position(|byte| byte.is_ascii_whitespace() || *byte == b')')?;
    inside.get(..end).filter(|component| !component.is_empty())
}

/// RFC 4517 §3.3.9; the values in the name are of their types' syntaxes.
pub(super) fn dn(schema: &Schema, value: &[u8]) -> Result<(), Reason> {
    let dn = Dn::from_bytes(value).map_err(|_| "it is not a distinguished name")?;
    for ava in dn.rdns().flat_map(|rdn| rdn.avas()) {
        let known = schema.attribute_type(ava.attribute().as_bytes());
        // A name within the name is not looked into: there may be another one in it, and so on.
        if let Some(syntax) = known.and_then(AttributeType::syntax)
            && !syntax.is_name()
            && syntax.validate(schema, &ava.value()).is_err()
        {
            return Err("a value in the name is not of its attribute's syntax");
        }
    }
    Ok(())
}

/// RFC 4517 §3.3.21
pub(super) fn name_and_optional_uid(schema: &Schema, value: &[u8]) -> Result<(), Reason> {
    dn(schema, split_optional_uid(value).0)
}

/// The name and the digits of the unique identifier. What looks like an identifier is one: a name does not end so.
pub(in super::super) fn split_optional_uid(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    value
        .iter()
        .rposition(|byte| *byte == b'#')
        .and_then(|at| {
            let (name, uid) = value.split_at_checked(at)?;
            Some((name, Some(bits(uid.get(1..)?)?)))
        })
        .unwrap_or((value, None))
}

/// RFC 4517 §3.3.5
pub(super) fn delivery_method(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    const METHODS: [&[u8]; 10] = [
        b"any",
        b"mhs",
        b"physical",
        b"telex",
        b"teletex",
        b"g3fax",
        b"g4fax",
        b"ia5",
        b"videotex",
        b"telephone",
    ];
    let known = |part: &[u8]| {
        METHODS
            .iter()
            .any(|method| method.eq_ignore_ascii_case(trim_spaces(part)))
    };
    if value.split(|byte| *byte == b'$').all(known) {
        Ok(())
    } else {
        Err("it is not a list of delivery methods separated by $")
    }
}

/// RFC 4517 §3.3.11
pub(super) fn facsimile_telephone_number(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    const PARAMETERS: [&[u8]; 7] = [
        b"twoDimensional",
        b"fineResolution",
        b"unlimitedLength",
        b"b4Length",
        b"a3Width",
        b"b4Width",
        b"uncompressed",
    ];
    let mut parts = value.split(|byte| *byte == b'$');
    if !parts.next().is_some_and(is_printable_string) {
        return Err("it does not begin with a telephone number");
    }
    if parts.all(|part| {
        PARAMETERS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(trim_spaces(part)))
    }) {
        Ok(())
    } else {
        Err("a fax parameter is not known")
    }
}

/// RFC 4517 §3.3.27
pub(super) fn other_mailbox(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let mut parts = value.splitn(2, |byte| *byte == b'$');
    match (parts.next(), parts.next()) {
        (Some(kind), Some(mailbox)) if is_printable_string(kind) && mailbox.is_ascii() => Ok(()),
        _ => Err("it is not a mailbox type and a mailbox separated by $"),
    }
}

/// RFC 4517 §3.3.28. Empty lines are let through, because directories are full of them.
pub(super) fn postal_address(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    if value.is_empty() {
        return Err("it is empty");
    }
    if std::str::from_utf8(value).is_err() {
        return Err("it is not UTF-8");
    }
    escaped(value, b"24")
        .then_some(())
        .ok_or("a backslash is followed neither by 24 nor by 5C")
}

/// RFC 4517 §3.3.32
pub(super) fn teletex_terminal_identifier(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    const KEYS: [&[u8]; 5] = [b"graphic", b"control", b"misc", b"page", b"private"];
    let mut parts = value.split(|byte| *byte == b'$');
    if !parts.next().is_some_and(is_printable_string) {
        return Err("it does not begin with a terminal identifier");
    }
    let valid = |part: &[u8]| {
        let mut halves = part.splitn(2, |byte| *byte == b':');
        let key = halves.next().unwrap_or_default();
        KEYS.iter().any(|known| known.eq_ignore_ascii_case(key))
            && halves.next().is_some_and(|text| escaped(text, b"24"))
    };
    if parts.all(valid) {
        Ok(())
    } else {
        Err("a teletex parameter is not a known key, a colon and a value")
    }
}

/// RFC 4517 §3.3.33
pub(super) fn telex_number(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let parts = value.split(|byte| *byte == b'$');
    if parts.clone().count() == 3 && parts.clone().all(is_printable_string) {
        Ok(())
    } else {
        Err("it is not a number, a country code and an answerback separated by $")
    }
}

/// RFC 4517 §3.3.30
pub(super) fn substring_assertion(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    substring_parts(value)
        .map(|_| ())
        .ok_or("it is not substrings separated by asterisks")
}

/// The parts of a substring assertion, unescaped: the initial one, those between, the final one.
#[allow(clippy::type_complexity)]
pub(in super::super) fn substring_parts(
    value: &[u8],
) -> Option<(Option<Vec<u8>>, Vec<Vec<u8>>, Option<Vec<u8>>)> {
    if !escaped(value, b"2A") {
        return None;
    }
    let mut parts: Vec<Vec<u8>> = value.split(|byte| *byte == b'*').map(unescape).collect();
    if parts.len() < 2 {
        return None;
    }
    let last = parts.pop().filter(|part| !part.is_empty());
    let first = Some(parts.remove(0)).filter(|part| !part.is_empty());
    let bare = parts.is_empty() && first.is_none() && last.is_none();
    // `*` alone has no substring and is let through as the RFC's ABNF does; `a**b` has an empty one.
    (bare || parts.iter().all(|part| !part.is_empty())).then_some((first, parts, last))
}

fn unescape(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((byte, after)) = rest.split_first() {
        match (byte, after) {
            (b'\\', [b'2', b'a' | b'A', after @ ..]) => {
                out.push(b'*');
                rest = after;
            }
            (b'\\', [b'5', b'c' | b'C', after @ ..]) => {
                out.push(b'\\');
                rest = after;
            }
            _ => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

/// Whether each backslash is followed by the digits of the delimiter or of the backslash itself.
fn escaped(value: &[u8], delimiter: &[u8; 2]) -> bool {
    value
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\\')
        .all(|(at, _)| {
            value.get(at + 1..at + 3).is_some_and(|digits| {
                digits.eq_ignore_ascii_case(delimiter) || digits.eq_ignore_ascii_case(b"5C")
            })
        })
}

/// RFC 4517 §3.3.10
pub(super) fn enhanced_guide(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let mut parts = value.split(|byte| *byte == b'#');
    let (Some(class), Some(criteria), Some(subset), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("it is not an object class, criteria and a subset separated by #");
    };
    let subset = trim_spaces(subset);
    if !is_oid(trim_spaces(class)) {
        Err("it does not begin with an object class")
    } else if !is_criteria(trim_spaces(criteria)) {
        Err("its criteria are malformed")
    } else if ![&b"baseobject"[..], b"oneLevel", b"wholeSubtree"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(subset))
    {
        Err("its subset is none of baseobject, oneLevel and wholeSubtree")
    } else {
        Ok(())
    }
}

/// RFC 4517 §3.3.14
pub(super) fn guide(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let criteria = match value.iter().position(|byte| *byte == b'#') {
        Some(at) => {
            let (class, rest) = value.split_at_checked(at).unwrap_or((value, b""));
            if !is_oid(trim_spaces(class)) {
                return Err("it does not begin with an object class");
            }
            rest.get(1..).unwrap_or_default()
        }
        None => value,
    };
    if is_criteria(criteria) {
        Ok(())
    } else {
        Err("its criteria are malformed")
    }
}

fn is_criteria(text: &[u8]) -> bool {
    let mut scanner = Scanner { rest: text };
    scanner.criteria(0).is_some() && scanner.rest.is_empty()
}

/// A reader that takes one lexical element after another.
pub(super) struct Scanner<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    pub(super) fn take(&mut self, literal: &[u8]) -> bool {
        match self.rest.split_at_checked(literal.len()) {
            Some((head, rest)) if head.eq_ignore_ascii_case(literal) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    pub(super) fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self
            .rest
            .iter()
            .position(|byte| !belongs(*byte))
            .unwrap_or(self.rest.len());
        let (head, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, b""));
        self.rest = rest;
        head
    }

    pub(super) fn spaces(&mut self) {
        self.take_while(|byte| byte == b' ');
    }

    /// `criteria` of RFC 4517 §3.3.10.
    fn criteria(&mut self, depth: usize) -> Option<()> {
        self.and_term(depth)?;
        while self.take(b"|") {
            self.and_term(depth)?;
        }
        Some(())
    }

    fn and_term(&mut self, depth: usize) -> Option<()> {
        self.term(depth)?;
        while self.take(b"&") {
            self.term(depth)?;
        }
        Some(())
    }

    fn term(&mut self, depth: usize) -> Option<()> {
        while self.take(b"!") {}
        if self.take(b"(") {
            if depth == GUIDE_DEPTH_MAX {
                return None;
            }
            self.criteria(depth + 1)?;
            return self.take(b")").then_some(());
        }
        if self.take(b"?true") || self.take(b"?false") {
            return Some(());
        }
        let attribute =
            self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
        let valid = is_oid(attribute)
            && self.take(b"$")
            && [&b"EQ"[..], b"SUBSTR", b"GE", b"LE", b"APPROX"]
                .iter()
                .any(|kind| self.take(kind));
        valid.then_some(())
    }
}

/// RFC 2307 §2.3: `(host,user,domain)`, each possibly empty or `-`.
pub(super) fn nis_netgroup_triple(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let parts = value
        .strip_prefix(b"(")
        .and_then(|rest| rest.strip_suffix(b")"));
    match parts {
        Some(parts)
            if parts.is_ascii()
                && !parts.contains(&b'(')
                && !parts.contains(&b')')
                && parts.split(|byte| *byte == b',').count() == 3 =>
        {
            Ok(())
        }
        _ => Err("it is not (host,user,domain)"),
    }
}

/// RFC 2307 §2.3: `key=server:path`.
pub(super) fn boot_parameter(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let mut halves = value.splitn(2, |byte| *byte == b'=');
    let (key, place) = (
        halves.next().unwrap_or_default(),
        halves.next().unwrap_or_default(),
    );
    let mut halves = place.splitn(2, |byte| *byte == b':');
    let (server, path) = (
        halves.next().unwrap_or_default(),
        halves.next().unwrap_or_default(),
    );
    if value.is_ascii() && ![key, server, path].iter().any(|part| part.is_empty()) {
        Ok(())
    } else {
        Err("it is not key=server:path")
    }
}

/// RFC 3112 §2.1: `scheme $ info $ value`.
pub(super) fn auth_password(_: &Schema, value: &[u8]) -> Result<(), Reason> {
    let mut parts = value.split(|byte| *byte == b'$').map(trim_spaces);
    let (Some(scheme), Some(info), Some(secret), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("it is not a scheme, information and a value separated by $");
    };
    let scheme_char =
        |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"-/_".contains(byte);
    if scheme.is_empty() || !scheme.iter().all(scheme_char) {
        return Err("its scheme is not made of capitals, digits and -/_");
    }
    if [info, secret]
        .iter()
        .all(|part| part.iter().all(u8::is_ascii_graphic))
    {
        Ok(())
    } else {
        Err("it has a character that is not printable")
    }
}

/// `YYYYmmddHHMMSS.uuuuuuZ#cccccc#sss#mmmmmm`: time, count, replica and modifier (draft-chu-ldap-csn §2).
pub(super) fn csn(schema: &Schema, value: &[u8]) -> Result<(), Reason> {
    const REASON: Reason =
        "it is not a change sequence number such as 20260102030405.000006Z#000000#001#000000";
    let mut parts = value.split(|byte| *byte == b'#');
    let moment = parts.next().unwrap_or_default();
    if moment.len() != 22
        || moment.get(14) != Some(&b'.')
        || time::generalized_time(schema, moment).is_err()
    {
        return Err(REASON);
    }
    let mut hex = |digits: usize| {
        parts
            .next()
            .is_some_and(|part| part.len() == digits && part.iter().all(u8::is_ascii_hexdigit))
    };
    if hex(6) && hex(3) && hex(6) && parts.next().is_none() {
        Ok(())
    } else {
        Err(REASON)
    }
}

pub(super) fn is_oid(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| is_descriptor(text) || is_numeric_oid(text))
}

fn is_printable_string(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_printable(*byte))
}

fn trim_spaces(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}
