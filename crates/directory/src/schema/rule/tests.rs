use std::cmp::Ordering;

use proptest::prelude::*;

use super::super::syntax::tests::certificate;
use super::super::{Assertion, SubstringPattern};
use super::*;

fn rule(name: &str) -> &'static MatchingRule {
    MatchingRule::find(name.as_bytes()).expect(name)
}

fn assertion(name: &str, value: &str) -> Option<Assertion> {
    rule(name)
        .assertion(&Schema::standard(), value.as_bytes())
        .ok()
}

/// True, false, or `None` for undefined.
fn matches(name: &str, stored: impl AsRef<[u8]>, asserted: &str) -> Option<bool> {
    let schema = Schema::standard();
    let mut scratch = Vec::new();
    let assertion = assertion(name, asserted)?;
    let found = assertion.matches(&schema, stored.as_ref(), &mut scratch);
    // What an index says must agree.
    if assertion.rule().is_indexable() {
        let mut key = Vec::new();
        let indexed = assertion
            .rule()
            .normalise(&schema, stored.as_ref(), &mut key)
            .is_ok();
        assert_eq!(
            indexed && key == assertion.key(),
            found,
            "{name}: {:?}",
            assertion
        );
    }
    Some(found)
}

fn substrings(name: &str, stored: &str, pattern: &str) -> Option<bool> {
    let pattern = SubstringPattern::parse(rule(name), pattern.as_bytes()).ok()?;
    Some(pattern.matches(&Schema::standard(), stored.as_bytes(), &mut Vec::new()))
}

#[test]
fn every_rule_has_its_own_name_and_identifier() {
    for known in MatchingRule::all() {
        assert_eq!(MatchingRule::find(known.oid().as_bytes()), Some(known));
        assert_eq!(
            MatchingRule::find(known.name().to_uppercase().as_bytes()),
            Some(known)
        );
        assert_ne!(known.syntax().oid(), "");
    }
    assert_eq!(MatchingRule::find(b"noMatch"), None);
}

#[test]
fn strings() {
    assert_eq!(
        matches("caseIgnoreMatch", "Barbara  Jensen ", " barbara jensen"),
        Some(true)
    );
    assert_eq!(
        matches("caseIgnoreMatch", "Barbara Jensen", "barbarajensen"),
        Some(false)
    );
    assert_eq!(matches("caseIgnoreMatch", "STRASSE", "Straße"), Some(true));
    assert_eq!(matches("caseIgnoreMatch", "Straße", "strasse"), Some(true));
    assert_eq!(matches("caseIgnoreMatch", "e\u{301}", "É"), Some(true));
    assert_eq!(matches("caseIgnoreMatch", "a", ""), None);
    assert_eq!(matches("caseIgnoreMatch", "a", "\u{e000}"), None);
    assert_eq!(matches("caseIgnoreMatch", "\u{e000}", "a"), Some(false));
    assert_eq!(matches("caseIgnoreMatch", b"\xff", "a"), Some(false));
    assert_eq!(matches("caseExactMatch", "Babs", "Babs "), Some(true));
    assert_eq!(matches("caseExactMatch", "Babs", "babs"), Some(false));
    assert_eq!(matches("caseIgnoreIA5Match", "A@B.c", "a@b.C"), Some(true));
    assert_eq!(matches("caseIgnoreIA5Match", "a", "ä"), None);
    assert_eq!(matches("caseExactIA5Match", "a", "A"), Some(false));
    assert_eq!(
        matches("numericStringMatch", "15 079 672 281", "15079672281"),
        Some(true)
    );
    assert_eq!(matches("numericStringMatch", "15", "x"), None);
    assert_eq!(
        matches("telephoneNumberMatch", "+1-512-315-0280", "+1 512 3150280"),
        Some(true)
    );
    assert_eq!(matches("telephoneNumberMatch", "+1 A", "+1a"), Some(true));
    assert_eq!(
        matches(
            "caseIgnoreListMatch",
            "1 Main  St.$Anytown",
            "1 main st.$ANYTOWN "
        ),
        Some(true)
    );
    assert_eq!(matches("caseIgnoreListMatch", "a$b", "a b"), Some(false));
    assert_eq!(matches("caseIgnoreListMatch", "\\24a", "$a"), Some(false));
    assert_eq!(matches("octetStringMatch", "a", "A"), Some(false));
    assert_eq!(matches("octetStringMatch", "", ""), Some(true));
}

#[test]
fn numbers_bits_and_truth() {
    assert_eq!(matches("integerMatch", "17", "17"), Some(true));
    assert_eq!(matches("integerMatch", "-17", "17"), Some(false));
    assert_eq!(matches("integerMatch", "0", "0"), Some(true));
    assert_eq!(matches("integerMatch", "17", "017"), None);
    assert_eq!(matches("integerMatch", "17", "a"), None);
    assert_eq!(matches("booleanMatch", "TRUE", "TRUE"), Some(true));
    assert_eq!(matches("booleanMatch", "TRUE", "FALSE"), Some(false));
    assert_eq!(matches("booleanMatch", "TRUE", "true"), None);
    assert_eq!(matches("bitStringMatch", "'01'B", "'01'B"), Some(true));
    assert_eq!(matches("bitStringMatch", "'010'B", "'01'B"), Some(false));
    assert_eq!(matches("1.2.840.113556.1.4.803", "7", "5"), Some(true));
    assert_eq!(matches("1.2.840.113556.1.4.803", "6", "5"), Some(false));
    assert_eq!(matches("1.2.840.113556.1.4.804", "6", "5"), Some(true));
    assert_eq!(matches("1.2.840.113556.1.4.804", "2", "5"), Some(false));
    assert_eq!(
        matches("1.2.840.113556.1.4.803", "7", "123456789012345678901"),
        None
    );
}

#[test]
fn times_and_identifiers() {
    assert_eq!(
        matches("generalizedTimeMatch", "199412161032Z", "199412160532-0500"),
        Some(true)
    );
    assert_eq!(
        matches("generalizedTimeMatch", "199412161032Z", "1994"),
        None
    );
    assert_eq!(
        matches(
            "UUIDMatch",
            "597AE2F6-16a6-1027-98f4-d28b5365dc14",
            "597ae2f6-16a6-1027-98f4-d28b5365dc14"
        ),
        Some(true)
    );
    assert_eq!(
        matches("UUIDMatch", "597AE2F6-16a6-1027-98f4-d28b5365dc14", "x"),
        None
    );
    assert_eq!(
        matches("objectIdentifierMatch", "person", "2.5.6.6"),
        Some(true)
    );
    assert_eq!(
        matches("objectIdentifierMatch", "2.5.6.6", "PERSON"),
        Some(true)
    );
    assert_eq!(
        matches("objectIdentifierMatch", "person", "device"),
        Some(false)
    );
    assert_eq!(
        matches("objectIdentifierMatch", "surname", "2.5.4.4"),
        Some(true)
    );
    assert_eq!(
        matches("objectIdentifierMatch", "1.2.3.4.5", "1.2.3.4.5"),
        Some(true)
    );
    assert_eq!(matches("objectIdentifierMatch", "person", "nonsense"), None);
    assert_eq!(matches("objectIdentifierMatch", "person", "1..2"), None);
}

#[test]
fn first_components() {
    let definition = "( 2.5.4.4 NAME 'sn' SUP name )";
    assert_eq!(
        matches("objectIdentifierFirstComponentMatch", definition, "surname"),
        Some(true)
    );
    assert_eq!(
        matches("objectIdentifierFirstComponentMatch", definition, "2.5.4.4"),
        Some(true)
    );
    assert_eq!(
        matches("objectIdentifierFirstComponentMatch", definition, "cn"),
        Some(false)
    );
    assert_eq!(
        matches(
            "objectIdentifierFirstComponentMatch",
            definition,
            definition
        ),
        None
    );
    assert_eq!(
        matches("integerFirstComponentMatch", "( 2 FORM x )", "2"),
        Some(true)
    );
    assert_eq!(
        matches("integerFirstComponentMatch", "(12 FORM x )", "2"),
        Some(false)
    );
    assert_eq!(
        matches("directoryStringFirstComponentMatch", "( 'A b' x )", "a  B"),
        Some(true)
    );
}

#[test]
fn places_of_names() {
    let names = [
        "o=x",
        "ou=a,o=x",
        "OU=A,O=X",
        "userPassword=\\00\\00+sn=c,ou=a,o=x",
        "cn=d,userPassword=\\00,ou=a,o=x",
        "ou=ab,o=x",
    ];
    let found = |rule: &str, asserted: &str| -> Vec<bool> {
        let at = |name: &&str| matches(rule, name, asserted).expect("the assertion is a name");
        names.iter().map(at).collect()
    };
    let asserted = "ou=a, o=X";
    for (rule, expected) in [
        ("dnOneLevelMatch", [false, false, false, true, false, false]),
        ("dnSubtreeMatch", [false, true, true, true, true, false]),
        (
            "dnSubordinateMatch",
            [false, false, false, true, true, false],
        ),
        ("dnSuperiorMatch", [true, false, false, false, false, false]),
    ] {
        assert_eq!(found(rule, asserted), expected, "{rule}");
    }
    // All names are below the root, the name of no RDN.
    assert_eq!(found("dnSubordinateMatch", ""), [true; 6]);
    assert_eq!(found("dnSuperiorMatch", ""), [false; 6]);
    assert_eq!(matches("dnOneLevelMatch", "o=x", ""), Some(true));
    assert_eq!(matches("dnOneLevelMatch", "", ""), Some(false));
    assert_eq!(matches("dnSubtreeMatch", "", ""), Some(true));
    assert_eq!(matches("dnSubtreeMatch", "not a name", ""), Some(false));
    assert_eq!(matches("dnSubtreeMatch", "o=x", "not a name"), None);
}

#[test]
fn names() {
    let same = |one: &str, other: &str| matches("distinguishedNameMatch", one, other);
    assert_eq!(
        same("cn=Babs  Jensen, o=Example", "CN=babs jensen,O=EXAMPLE"),
        Some(true)
    );
    assert_eq!(
        same("commonName=a,2.5.4.10=b", "cn=A,organizationName=B"),
        Some(true)
    );
    assert_eq!(same("cn=a+sn=b,o=c", "sn=B+cn=A,o=c"), Some(true));
    assert_eq!(same("cn=a,o=c", "cn=a+sn=b,o=c"), Some(false));
    assert_eq!(same("cn=a\\,b", "cn=a,cn=b"), Some(false));
    assert_eq!(same("uidNumber=7", "uidNumber=7"), Some(true));
    assert_eq!(same("cn=a", "nothing"), None);
    assert_eq!(same("cn=a", "c=Germany"), None);
    assert_eq!(same("", ""), Some(true));
    assert_eq!(
        matches("uniqueMemberMatch", "cn=A#'01'B", "cn=a#'01'B"),
        Some(true)
    );
    assert_eq!(
        matches("uniqueMemberMatch", "cn=A#'01'B", "cn=a"),
        Some(false)
    );
    assert_eq!(matches("uniqueMemberMatch", "cn=A", "cn=a"), Some(true));
}

#[test]
fn certificates() {
    let der = certificate(
        &[17],
        &[("2.5.4.10", 0x13, "Example"), ("2.5.4.3", 0x0c, "CA")],
    );
    assert_eq!(
        matches(
            "certificateExactMatch",
            &der,
            "{ serialNumber 17, issuer rdnSequence:\"cn=ca,o=EXAMPLE\" }"
        ),
        Some(true)
    );
    assert_eq!(
        matches(
            "certificateExactMatch",
            &der,
            "{ serialNumber 18, issuer rdnSequence:\"cn=ca,o=EXAMPLE\" }"
        ),
        Some(false)
    );
    assert_eq!(
        matches("certificateExactMatch", &der, "17$cn=ca,o=other"),
        Some(false)
    );
    assert_eq!(matches("certificateExactMatch", &der, "anything"), None);
}

#[test]
fn words_and_keywords() {
    assert_eq!(
        matches("wordMatch", "The quick, brown fox", "QUICK"),
        Some(true)
    );
    assert_eq!(
        matches("wordMatch", "The quick, brown fox", "quick brown"),
        Some(false)
    );
    assert_eq!(matches("wordMatch", "Älter werden", "älter"), Some(true));
    assert_eq!(
        matches("keywordMatch", "red fox; brown bear", "Brown Bear"),
        Some(true)
    );
    assert_eq!(
        matches("keywordMatch", "red fox; brown bear", "fox"),
        Some(true)
    );
    assert_eq!(
        matches("keywordMatch", "red fox; brown bear", "fox brown"),
        Some(false)
    );
}

#[test]
fn substrings_of_strings() {
    let ignore =
        |stored: &str, pattern: &str| substrings("caseIgnoreSubstringsMatch", stored, pattern);
    assert_eq!(ignore("Barbara Jensen", "bar*"), Some(true));
    assert_eq!(ignore("Barbara Jensen", "*jens*"), Some(true));
    assert_eq!(ignore("Barbara Jensen", "*SEN"), Some(true));
    assert_eq!(ignore("Barbara Jensen", "b*a*j*n"), Some(true));
    assert_eq!(ignore("Barbara Jensen", "*jensen*barbara*"), Some(false));
    assert_eq!(ignore("Barbara Jensen", "barbara*barbara"), Some(false));
    // RFC 4518 appendix B: spaces
    assert_eq!(ignore("foo bar", "foo *"), Some(true));
    assert_eq!(ignore("foo bar", "*foo * bar*"), Some(true));
    assert_eq!(ignore("foo bar", "* bar"), Some(true));
    assert_eq!(ignore("foobar", "foo *"), Some(false));
    assert_eq!(ignore("foo bar", "*foo bar*"), Some(true));
    assert_eq!(ignore("foo   bar", "*o b*"), Some(true));
    assert_eq!(ignore("foo", "foo*"), Some(true));
    assert_eq!(ignore("foo", "*"), Some(true));
    assert_eq!(ignore("ab", "ab*b"), Some(false));
    assert_eq!(ignore("Straße", "*SS*"), Some(true));
    assert_eq!(ignore("a", "\u{e000}*"), None);
    assert_eq!(
        substrings("caseExactSubstringsMatch", "Barbara", "bar*"),
        Some(false)
    );
    assert_eq!(
        substrings("telephoneNumberSubstringsMatch", "+1 512-315", "*1 2 3*"),
        Some(true)
    );
    assert_eq!(
        substrings("numericStringSubstringsMatch", "12 34", "1*4"),
        Some(true)
    );
    assert_eq!(
        substrings("octetStringSubstringsMatch", "abc", "*B*"),
        Some(false)
    );
    let list =
        |stored: &str, pattern: &str| substrings("caseIgnoreListSubstringsMatch", stored, pattern);
    assert_eq!(list("1 Main St.$Anytown", "1 main*any*"), Some(true));
    assert_eq!(list("1 Main St.$Anytown", "*st.any*"), Some(false));
    assert_eq!(list("a\\24b", "*$b"), Some(true));
}

fn order(name: &str, stored: &str, asserted: &str) -> Option<Ordering> {
    let schema = Schema::standard();
    rule(name)
        .assertion(&schema, asserted.as_bytes())
        .ok()?
        .compare(&schema, stored.as_bytes(), &mut Vec::new())
}

#[test]
fn orders() {
    assert_eq!(
        order("caseIgnoreOrderingMatch", "Abc", "abD"),
        Some(Ordering::Less)
    );
    assert_eq!(
        order("caseExactOrderingMatch", "Z", "a"),
        Some(Ordering::Less)
    );
    assert_eq!(
        order("numericStringOrderingMatch", "1 0", "9"),
        Some(Ordering::Less)
    );
    assert_eq!(
        order(
            "generalizedTimeOrderingMatch",
            "2026010100Z",
            "20260101000000.1Z"
        ),
        Some(Ordering::Less)
    );
    assert_eq!(
        order("octetStringOrderingMatch", "ab", "abc"),
        Some(Ordering::Less)
    );
    assert_eq!(
        order(
            "CSNOrderingMatch",
            "20260102030405.000006Z#000000#001#000000",
            "20260102030405.000007Z#000000#001#000000"
        ),
        Some(Ordering::Less)
    );
    assert_eq!(order("integerOrderingMatch", "x", "1"), None);
    // RFC 4518 §2.6.1: the spaces around and between words do not change the order.
    assert_eq!(
        order("caseIgnoreOrderingMatch", "foo", "foo bar"),
        Some(Ordering::Less)
    );
    assert_eq!(
        order("caseIgnoreOrderingMatch", "foo bar", "foo!bar"),
        Some(Ordering::Less)
    );
}

/// The order of decimal numbers, character by character.
fn compare_decimals(one: &str, other: &str) -> Ordering {
    let split = |text: &str| match text.strip_prefix('-') {
        Some(digits) => (true, digits.trim_start_matches('0').to_owned()),
        None => (false, text.trim_start_matches('0').to_owned()),
    };
    let ((negative, digits), (other_negative, other_digits)) = (split(one), split(other));
    let magnitude = digits
        .len()
        .cmp(&other_digits.len())
        .then(digits.cmp(&other_digits));
    match (
        negative && !digits.is_empty(),
        other_negative && !other_digits.is_empty(),
    ) {
        (false, false) => magnitude,
        (true, true) => magnitude.reverse(),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integer_keys_are_in_order(one in "0|-?[1-9][0-9]{0,4}|-?[1-9][0-9]{0,200}", other in "0|-?[1-9][0-9]{0,4}|-?[1-9][0-9]{0,200}") {
        let schema = Schema::standard();
        let key = |text: &str| {
            let mut out = Vec::new();
            rule("integerOrderingMatch").normalise(&schema, text.as_bytes(), &mut out).unwrap();
            out
        };
        prop_assert_eq!(key(&one).cmp(&key(&other)), compare_decimals(&one, &other));
        prop_assert_eq!(key(&one).cmp(&key("0")), compare_decimals(&one, "0"));
    }

    #[test]
    fn string_keys_are_in_the_order_of_the_spaced_form(one in "[ ab!\u{e9}]{1,6}", other in "[ ab!\u{e9}]{1,6}") {
        let schema = Schema::standard();
        let key = |name: &str, text: &str| {
            let mut out = Vec::new();
            rule(name).normalise(&schema, text.as_bytes(), &mut out).unwrap();
            out
        };
        let words = key("caseIgnoreOrderingMatch", &one).cmp(&key("caseIgnoreOrderingMatch", &other));
        let spaced = key("caseIgnoreSubstringsMatch", &one).cmp(&key("caseIgnoreSubstringsMatch", &other));
        // A string of spaces alone is "  " in the spaced form and empty here: first in both.
        prop_assert_eq!(words, spaced);
    }

    /// RFC 4517 §4.2.13 word for word, on the prepared strings.
    #[test]
    fn substrings_agree_with_a_search_of_all_places(stored in "[ aAb]{0,8}", initial in "[ ab]{0,2}", any in "[ ab]{0,2}", last in "[ ab]{0,2}") {
        let schema = Schema::standard();
        let substrings = rule("caseIgnoreSubstringsMatch");
        let part = |text: &str, part| {
            let mut out = Vec::new();
            (!text.is_empty()).then(|| substrings.normalise_part(text.as_bytes(), part, &mut out).map(|()| String::from_utf8(out).unwrap()).unwrap())
        };
        let mut prepared = Vec::new();
        substrings.normalise(&schema, stored.as_bytes(), &mut prepared).unwrap();
        let prepared = String::from_utf8(prepared).unwrap();
        let (first, middle, end) = (part(&initial, Part::Initial), part(&any, Part::Any), part(&last, Part::Final));
        let (first, middle, end) = (first.unwrap_or_default(), middle.unwrap_or_default(), end.unwrap_or_default());
        let slow = prepared.starts_with(&first)
            && prepared.ends_with(&end)
            && (first.len()..=prepared.len()).any(|at| prepared[at..].starts_with(&middle) && prepared.len() - end.len() >= at + middle.len());
        let pattern = SubstringPattern::new(
            substrings,
            Some(initial.as_bytes()).filter(|part| !part.is_empty()),
            Some(any.as_bytes()).filter(|part| !part.is_empty()),
            Some(last.as_bytes()).filter(|part| !part.is_empty()),
        ).unwrap();
        prop_assert_eq!(pattern.matches(&schema, stored.as_bytes(), &mut Vec::new()), slow);
    }

    #[test]
    fn matching_agrees_with_the_index(stored in "[ aA\u{e9}\u{c9}]{1,5}", asserted in "[ aA\u{e9}\u{c9}]{1,5}") {
        for name in ["caseIgnoreMatch", "caseExactMatch", "octetStringMatch", "caseIgnoreListMatch"] {
            prop_assert!(matches(name, &stored, &asserted).is_some());
        }
    }

    #[test]
    fn any_bytes_never_panic(value in proptest::collection::vec(any::<u8>(), 0..48), other in proptest::collection::vec(any::<u8>(), 0..48)) {
        let schema = Schema::standard();
        let mut out = vec![9];
        let mut scratch = Vec::new();
        for rule in MatchingRule::all() {
            if rule.normalise(&schema, &value, &mut out).is_err() {
                prop_assert_eq!(&out, &[9]);
            }
            out.truncate(1);
            if let Ok(assertion) = rule.assertion(&schema, &value) {
                assertion.matches(&schema, &other, &mut scratch);
                assertion.compare(&schema, &other, &mut scratch);
            }
            if let Ok(pattern) = SubstringPattern::parse(rule, &value) {
                pattern.matches(&schema, &other, &mut scratch);
            }
        }
    }
}
