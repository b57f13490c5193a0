//! Matching rules (RFC 4517 §4, and those of RFC 3112, 4523, 4530 and of widely used servers).

#![deny(clippy::indexing_slicing)]

mod fits;

use super::prepare::{Case, Part, Shape, Unpreparable, begins_otherwise, prepare};
use super::syntax::{self, At};
use super::{Assertion, InvalidValue, NormalDn, Schema, Syntax};

/// What a matching rule can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// Equality, and every rule that is only used in extensible matches.
    Equality,
    /// Greater-or-equal and less-or-equal.
    Ordering,
    /// Substrings.
    Substrings,
    /// Follows names from entry to entry, in extensible matches alone.
    Chain,
}

/// A matching rule. All rules are built in: [`MatchingRule::find`].
pub struct MatchingRule {
    oid: &'static str,
    name: &'static str,
    kind: RuleKind,
    assertion_syntax: At,
    pub(super) method: Method,
}

/// How values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Words of a character string.
    Words(Case),
    NumericString,
    TelephoneNumber,
    /// The lines of a postal address.
    List,
    Integer,
    Octets,
    Bits,
    Boolean,
    Time,
    Dn,
    NameAndOptionalUid,
    ObjectIdentifier,
    Uuid,
    /// Hexadecimal digits and capital letters in either case.
    Csn,
    /// Who may act as whom.
    Authz,
    CertificateExact,
    /// The first component of a definition, compared by the other method.
    First(&'static Method),
    /// Any word of the value.
    Word,
    /// Any keyword of the value: a word, or a phrase between commas or semicolons.
    Keyword,
    /// All asserted bits are set.
    BitAnd,
    /// One of the asserted bits is set.
    BitOr,
    /// A name that is followed.
    InChain,
    /// The place of the value in the tree, seen from the asserted name.
    Place(Place),
}

/// Where a name is, seen from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// One RDN below it.
    Child,
    /// The same, or below.
    Within,
    /// Below.
    Below,
    /// Above.
    Above,
}

macro_rules! rules {
    ($($kind:ident $oid:literal $name:ident $syntax:ident $method:expr;)*) => {
        static RULES: &[MatchingRule] = &[$(MatchingRule {
            oid: $oid,
            name: stringify!($name),
            kind: RuleKind::$kind,
            assertion_syntax: At::$syntax,
            method: $method,
        },)*];
    };
}

rules! {
    Equality "2.5.13.0" objectIdentifierMatch Oid Method::ObjectIdentifier;
    Equality "2.5.13.1" distinguishedNameMatch Dn Method::Dn;
    Equality "2.5.13.2" caseIgnoreMatch DirectoryString Method::Words(Case::Fold);
    Ordering "2.5.13.3" caseIgnoreOrderingMatch DirectoryString Method::Words(Case::Fold);
    Substrings "2.5.13.4" caseIgnoreSubstringsMatch SubstringAssertion Method::Words(Case::Fold);
    Equality "2.5.13.5" caseExactMatch DirectoryString Method::Words(Case::Exact);
    Ordering "2.5.13.6" caseExactOrderingMatch DirectoryString Method::Words(Case::Exact);
    Substrings "2.5.13.7" caseExactSubstringsMatch SubstringAssertion Method::Words(Case::Exact);
    Equality "2.5.13.8" numericStringMatch NumericString Method::NumericString;
    Ordering "2.5.13.9" numericStringOrderingMatch NumericString Method::NumericString;
    Substrings "2.5.13.10" numericStringSubstringsMatch SubstringAssertion Method::NumericString;
    Equality "2.5.13.11" caseIgnoreListMatch PostalAddress Method::List;
    Substrings "2.5.13.12" caseIgnoreListSubstringsMatch SubstringAssertion Method::List;
    Equality "2.5.13.13" booleanMatch Boolean Method::Boolean;
    Equality "2.5.13.14" integerMatch Integer Method::Integer;
    Ordering "2.5.13.15" integerOrderingMatch Integer Method::Integer;
    Equality "2.5.13.16" bitStringMatch BitString Method::Bits;
    Equality "2.5.13.17" octetStringMatch OctetString Method::Octets;
    Ordering "2.5.13.18" octetStringOrderingMatch OctetString Method::Octets;
    Substrings "2.5.13.19" octetStringSubstringsMatch SubstringAssertion Method::Octets;
    Equality "2.5.13.20" telephoneNumberMatch TelephoneNumber Method::TelephoneNumber;
    Substrings "2.5.13.21" telephoneNumberSubstringsMatch SubstringAssertion Method::TelephoneNumber;
    Equality "2.5.13.23" uniqueMemberMatch NameAndOptionalUid Method::NameAndOptionalUid;
    Equality "2.5.13.27" generalizedTimeMatch GeneralizedTime Method::Time;
    Ordering "2.5.13.28" generalizedTimeOrderingMatch GeneralizedTime Method::Time;
    Equality "2.5.13.29" integerFirstComponentMatch Integer Method::First(&Method::Integer);
    Equality "2.5.13.30" objectIdentifierFirstComponentMatch Oid Method::First(&Method::ObjectIdentifier);
    Equality "2.5.13.31" directoryStringFirstComponentMatch DirectoryString Method::First(&Method::Words(Case::Fold));
    Equality "2.5.13.32" wordMatch DirectoryString Method::Word;
    Equality "2.5.13.33" keywordMatch DirectoryString Method::Keyword;
    Equality "2.5.13.34" certificateExactMatch CertificateExactAssertion Method::CertificateExact;
    Equality "1.3.6.1.4.1.1466.109.114.1" caseExactIA5Match Ia5String Method::Words(Case::Exact);
    Equality "1.3.6.1.4.1.1466.109.114.2" caseIgnoreIA5Match Ia5String Method::Words(Case::Fold);
    Substrings "1.3.6.1.4.1.1466.109.114.3" caseIgnoreIA5SubstringsMatch SubstringAssertion Method::Words(Case::Fold);
    Substrings "1.3.6.1.4.1.4203.1.2.1" caseExactIA5SubstringsMatch SubstringAssertion Method::Words(Case::Exact);
    Equality "1.3.6.1.4.1.4203.1.2.2" authPasswordExactMatch AuthPassword Method::Octets;
    Equality "1.3.6.1.1.16.2" UUIDMatch Uuid Method::Uuid;
    Ordering "1.3.6.1.1.16.3" UUIDOrderingMatch Uuid Method::Uuid;
    Equality "1.3.6.1.4.1.4203.666.11.2.2" CSNMatch Csn Method::Csn;
    Ordering "1.3.6.1.4.1.4203.666.11.2.3" CSNOrderingMatch Csn Method::Csn;
    Chain "1.2.840.113556.1.4.1941" inchainMatch Dn Method::InChain;
    Equality "1.3.6.1.4.1.4203.666.4.12" authzMatch Authz Method::Authz;
    Equality "1.2.840.113556.1.4.803" integerBitAndMatch Integer Method::BitAnd;
    Equality "1.2.840.113556.1.4.804" integerBitOrMatch Integer Method::BitOr;
    Equality "1.3.6.1.4.1.4203.666.4.8" dnOneLevelMatch Dn Method::Place(Place::Child);
    Equality "1.3.6.1.4.1.4203.666.4.9" dnSubtreeMatch Dn Method::Place(Place::Within);
    Equality "1.3.6.1.4.1.4203.666.4.10" dnSubordinateMatch Dn Method::Place(Place::Below);
    Equality "1.3.6.1.4.1.4203.666.4.11" dnSuperiorMatch Dn Method::Place(Place::Above);
}

impl std::fmt::Debug for MatchingRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for MatchingRule {
    fn eq(&self, other: &MatchingRule) -> bool {
        self.oid == other.oid
    }
}

impl Eq for MatchingRule {}

impl MatchingRule {
    /// The rule with this name or dotted-decimal OID; letter case does not matter.
    pub fn find(name_or_oid: &[u8]) -> Option<&'static MatchingRule> {
        RULES.iter().find(|rule| {
            rule.name.as_bytes().eq_ignore_ascii_case(name_or_oid)
                || rule.oid.as_bytes() == name_or_oid
        })
    }

    /// All rules.
    pub fn all() -> &'static [MatchingRule] {
        RULES
    }

    /// The object identifier in dotted-decimal form.
    pub fn oid(&self) -> &'static str {
        self.oid
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the rule can be used for.
    pub fn kind(&self) -> RuleKind {
        self.kind
    }

    /// The syntax of assertion values.
    pub fn syntax(&self) -> &'static Syntax {
        self.assertion_syntax.syntax()
    }

    /// Whether [`normalise`](Self::normalise) decides the rule, so that an index can serve it. Not so for
    /// rules that match parts of a value (`wordMatch`), compute (`integerBitAndMatch`) or match several names
    /// (`dnSubtreeMatch`).
    pub fn is_indexable(&self) -> bool {
        !matches!(
            self.method,
            Method::Word
                | Method::Keyword
                | Method::BitAnd
                | Method::BitOr
                | Method::InChain
                | Method::Place(_)
        )
    }

    /// Whether values are names.
    pub(crate) fn is_of_names(&self) -> bool {
        matches!(self.method, Method::Dn | Method::NameAndOptionalUid)
    }

    /// Whether a unique identifier may stand behind the name that a value is.
    pub(crate) fn takes_unique_identifier(&self) -> bool {
        self.method == Method::NameAndOptionalUid
    }

    /// Whether values have the same normal form by this rule as by another.
    pub(crate) fn has_forms_of(&self, other: &MatchingRule) -> bool {
        self.method == other.method
    }

    /// Whether every value of a syntax that it is made for has a normal form. Of character strings some have none: they
    /// have code points that RFC 4518 prohibits.
    pub(crate) fn takes_all_values(&self) -> bool {
        matches!(
            self.method,
            Method::Integer | Method::Octets | Method::Time | Method::Uuid | Method::Csn
        )
    }

    /// Whether it looks for parts of a value.
    pub(crate) fn is_of_parts(&self) -> bool {
        self.kind == RuleKind::Substrings
    }

    /// Whether the rule compares character strings, whatever their letter case and spaces: its substrings index holds
    /// text.
    pub fn is_textual(&self) -> bool {
        matches!(
            self.method,
            Method::Words(_) | Method::NumericString | Method::TelephoneNumber | Method::List
        )
    }

    /// Whether values are words that sound like others: approximate matches compare that.
    pub(crate) fn sounds(&self) -> bool {
        matches!(self.method, Method::Words(_)) && self.kind == RuleKind::Equality
    }

    /// Appends the normal form of an attribute value: equal exactly when the values match, and in the order of the rule
    /// under `memcmp`. For a substrings rule this is the prepared string in which
    /// [`SubstringPattern`](super::SubstringPattern) looks for its parts (RFC 4518 §2.6.1: one space around, two
    /// between words).
    ///
    /// # Errors
    /// When the value does not have the form the rule needs, or has code points that RFC 4518 prohibits; `out` is
    /// then as before. Such a value matches nothing: it is Undefined to every assertion.
    pub fn normalise(
        &self,
        schema: &Schema,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        let start = out.len();
        let shape = match self.kind {
            RuleKind::Substrings => Shape::SpacedWords,
            RuleKind::Equality | RuleKind::Ordering | RuleKind::Chain => Shape::Words,
        };
        self.method
            .key(schema, value, shape, out)
            .map_err(|reason| {
                out.truncate(start);
                self.invalid(reason)
            })
    }

    /// Whether a value does not begin with the initial part of a substrings assertion, as its first letters mostly
    /// tell.
    #[inline]
    pub(super) fn begins_otherwise(&self, value: &[u8], initial: &[u8]) -> bool {
        match self.method {
            Method::Words(case) => begins_otherwise(value, case, initial),
            _ => false,
        }
    }

    /// Prepares an equality or ordering assertion for this rule.
    ///
    /// # Errors
    /// When the value is not of the assertion syntax: the filter item is then Undefined (RFC 4511 §4.5.1.7). Always for
    /// a substrings rule, whose assertions are a [`SubstringPattern`](super::SubstringPattern).
    pub fn assertion(
        &'static self,
        schema: &Schema,
        value: &[u8],
    ) -> Result<Assertion, InvalidValue> {
        if self.kind == RuleKind::Substrings {
            return Err(self.invalid("it is compared by parts"));
        }
        Assertion::new(self, schema, value)
    }

    /// Appends the normal form of an assertion value.
    pub(super) fn normalise_assertion(
        &self,
        schema: &Schema,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        self.syntax().validate(schema, value)?;
        let result = match self.method {
            Method::First(method) => method.key(schema, value, Shape::Words, out),
            Method::Word | Method::Keyword => {
                Method::Words(Case::Fold).key(schema, value, Shape::Words, out)
            }
            Method::CertificateExact => {
                certificate_key(schema, syntax::gser_issuer_and_serial(value), out)
            }
            method => method.key(schema, value, Shape::Words, out),
        };
        result.map_err(|reason| self.invalid(reason))
    }

    /// Appends one prepared part of a substrings assertion.
    pub(super) fn normalise_part(
        &self,
        value: &[u8],
        part: Part,
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        if value.is_empty() {
            return Err(self.invalid("a substring is empty"));
        }
        let prepared = match self.method {
            Method::Words(case) => prepare(value, case, Shape::Part(part), out),
            Method::List => prepare(value, Case::Fold, Shape::Part(part), out),
            Method::NumericString => prepare(value, Case::Exact, Shape::Numeric, out),
            Method::TelephoneNumber => prepare(value, Case::Fold, Shape::Telephone, out),
            _ => {
                out.extend_from_slice(value);
                Ok(())
            }
        };
        prepared.map_err(|error| self.invalid(reason(error)))
    }

    fn invalid(&self, reason: &'static str) -> InvalidValue {
        self.syntax().invalid(reason)
    }
}

impl Method {
    /// Appends the normal form of an attribute value. What was appended before an error is left to the caller to
    /// remove.
    fn key(
        self,
        schema: &Schema,
        value: &[u8],
        shape: Shape,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        match self {
            Method::Words(case) => prepare(value, case, shape, out).map_err(reason),
            Method::NumericString => {
                prepare(value, Case::Exact, Shape::Numeric, out).map_err(reason)
            }
            Method::TelephoneNumber => {
                prepare(value, Case::Fold, Shape::Telephone, out).map_err(reason)
            }
            Method::List => list_key(value, shape, out),
            Method::Integer => {
                integer_key(value, out).ok_or("it is not a whole number in decimal digits")
            }
            Method::Octets => {
                out.extend_from_slice(value);
                Ok(())
            }
            Method::Bits => {
                out.extend_from_slice(
                    syntax::bits(value).ok_or("it is not binary digits as in '0101'B")?,
                );
                Ok(())
            }
            Method::Boolean => {
                out.push(match value {
                    b"TRUE" => 1,
                    b"FALSE" => 0,
                    _ => return Err("it is neither TRUE nor FALSE"),
                });
                Ok(())
            }
            Method::Time => syntax::time::generalized_time_key(value, out),
            Method::Dn | Method::InChain | Method::Place(_) => dn_key(schema, value, out),
            Method::NameAndOptionalUid => {
                let (name, uid) = syntax::split_optional_uid(value);
                dn_key(schema, name, out)?;
                if let Some(uid) = uid {
                    // No RDN begins with this byte.
                    out.push(0);
                    out.extend_from_slice(uid);
                }
                Ok(())
            }
            Method::ObjectIdentifier => {
                let oid = schema
                    .object_identifier(value)
                    .ok_or("no object identifier is known by this name")?;
                out.extend_from_slice(oid);
                Ok(())
            }
            Method::Uuid => {
                let uuid = syntax::uuid_bytes(value).ok_or("it is not a UUID")?;
                out.extend_from_slice(&uuid);
                Ok(())
            }
            Method::Csn => {
                out.extend(value.iter().map(u8::to_ascii_lowercase));
                Ok(())
            }
            Method::Authz => syntax::authz_key(schema, value, out),
            Method::CertificateExact => {
                certificate_key(schema, syntax::certificate_issuer_and_serial(value), out)
            }
            Method::First(method) => {
                let first = syntax::first_component(value).ok_or("it has no first component")?;
                method.key(schema, first, shape, out)
            }
            // Not index keys: what the assertion looks into.
            Method::Word | Method::Keyword => {
                prepare(value, Case::Fold, Shape::Words, out).map_err(reason)
            }
            Method::BitAnd | Method::BitOr => {
                let number = parse_i64(value).ok_or("it is not a whole number of 64 bits")?;
                out.extend_from_slice(&number.to_be_bytes());
                Ok(())
            }
        }
    }
}

fn reason(error: Unpreparable) -> &'static str {
    match error {
        Unpreparable::NotUtf8 => "it is not UTF-8",
        Unpreparable::Prohibited => "it has a code point for private use or that is no character",
    }
}

/// A whole number of at most 64 bits in decimal digits.
pub(super) fn parse_i64(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Digits of a number whose count fits the first byte of its key.
const SHORT_DIGITS_MAX: usize = 0x7e;

/// Appends a whole number of any magnitude so that `memcmp` orders: a byte that counts the digits (0x80 and up), or
/// 0xff and the count as four big-endian bytes; then the digits, two to a byte. A negative number is its magnitude's
/// key with every bit flipped, and zero has no digits.
fn integer_key(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (digits, negative) = match value.split_first()? {
        (b'-', digits) => (digits, true),
        _ => (value, false),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let digits = digits.get(zeros..)?;
    let start = out.len();
    match u8::try_from(digits.len()) {
        Ok(count) if usize::from(count) <= SHORT_DIGITS_MAX => out.push(0x80 + count),
        _ => {
            out.push(0xff);
            out.extend_from_slice(&u32::try_from(digits.len()).ok()?.to_be_bytes());
        }
    }
    for pair in digits.chunks(2) {
        let high = pair.first().map_or(0, |digit| digit - b'0');
        let low = pair.get(1).map_or(0, |digit| digit - b'0');
        out.push(high << 4 | low);
    }
    if negative && !digits.is_empty() {
        out.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
    }
    Some(())
}

/// The lines of a postal address, each prepared, with a zero byte between them: prepared text has none, so that no
/// substring spans two lines.
fn list_key(value: &[u8], shape: Shape, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut line_bytes = Vec::new();
    for (at, line) in value.split(|byte| *byte == b'$').enumerate() {
        if at > 0 {
            out.push(0);
        }
        if line.contains(&b'\\') {
            line_bytes.clear();
            let mut rest = line;
            while let Some((byte, after)) = rest.split_first() {
                (rest, _) = match (byte, after) {
                    (b'\\', [b'2', b'4', after @ ..]) => (after, line_bytes.push(b'$')),
                    (b'\\', [b'5', b'c' | b'C', after @ ..]) => (after, line_bytes.push(b'\\')),
                    _ => (after, line_bytes.push(*byte)),
                };
            }
            prepare(&line_bytes, Case::Fold, shape, out).map_err(reason)?;
        } else {
            prepare(line, Case::Fold, shape, out).map_err(reason)?;
        }
    }
    Ok(())
}

fn dn_key(schema: &Schema, value: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    NormalDn::append(schema, value, out)
        .map_err(|_| "it is not a distinguished name whose values fit their types")
}

fn certificate_key(
    schema: &Schema,
    identity: Option<syntax::IssuerAndSerial>,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let identity = identity.ok_or("it does not name an issuer and a serial number")?;
    dn_key(schema, identity.issuer.as_bytes(), out)?;
    out.push(0);
    out.extend_from_slice(&identity.serial);
    Ok(())
}

#[cfg(test)]
mod tests;
