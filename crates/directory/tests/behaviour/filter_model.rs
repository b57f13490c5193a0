//! Filters beside a plain evaluator that knows RFC 4511 §4.5.1.7 and the matching rules of a few attributes by heart:
//! after any adds, modifications and deletes, with indexes and without, a search finds what the evaluator finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::made::{Directory, engine};
use proptest::prelude::*;
use sapwood_directory::engine::{Engine, Model};
use sapwood_directory::{Config, IndexDefinition};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{add, delete, modify, options, succeed};

use crate::query::{Query, query, search};

const SUFFIX: &str = "dc=example,dc=com";

/// An attribute's values by its description as used here.
type Attributes = BTreeMap<&'static str, BTreeSet<&'static str>>;

/// The descriptions that entries have values of, besides cn, sn and objectClass.
const DESCRIPTIONS: [&str; 6] = [
    "cn;lang-en",
    "description",
    "givenName",
    "employeeNumber",
    "seeAlso",
    "telephoneNumber",
];

const STRINGS: [&str; 11] = [
    "a", "A", "ab", "a b", " a  B ", "abc", "Straße", "STRASSE", "b c a", "bcd", "ssa",
];
const NAMES: [&str; 6] = [
    "cn=a,o=b",
    "CN=A, O=B",
    "cn=b,o=b",
    "cn=a+sn=b",
    "cn=c,o=b",
    "cn=d",
];
const NUMBERS: [&str; 5] = ["+1 2", "1-2", "12", "+12", "1 3"];
const INTEGERS: [&str; 5] = ["0", "7", "-7", "10", "123456789012345678901"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Truth {
    False,
    Undefined,
    True,
}

#[derive(Debug, Clone)]
enum Filter {
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Not(Box<Filter>),
    Present(&'static str),
    Equal(&'static str, &'static str),
    AtLeast(&'static str, &'static str),
    AtMost(&'static str, &'static str),
    Substrings(&'static str, [&'static str; 3]),
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = |f: &mut fmt::Formatter<'_>, sign: char, parts: &[Filter]| {
            write!(f, "({sign}")?;
            parts.iter().try_for_each(|part| write!(f, "{part}"))?;
            write!(f, ")")
        };
        match self {
            Filter::And(parts) => many(f, '&', parts),
            Filter::Or(parts) => many(f, '|', parts),
            Filter::Not(part) => write!(f, "(!{part})"),
            Filter::Present(attribute) => write!(f, "({attribute}=*)"),
            Filter::Equal(attribute, value) => write!(f, "({attribute}={value})"),
            Filter::AtLeast(attribute, value) => write!(f, "({attribute}>={value})"),
            Filter::AtMost(attribute, value) => write!(f, "({attribute}<={value})"),
            Filter::Substrings(attribute, [initial, any, last]) => {
                let middle = if any.is_empty() {
                    String::new()
                } else {
                    format!("{any}*")
                };
                write!(f, "({attribute}={initial}*{middle}{last})")
            }
        }
    }
}

impl Filter {
    fn evaluate(&self, entry: &Attributes) -> Truth {
        match self {
            Filter::And(parts) => parts
                .iter()
                .map(|part| part.evaluate(entry))
                .min()
                .unwrap_or(Truth::True),
            Filter::Or(parts) => parts
                .iter()
                .map(|part| part.evaluate(entry))
                .max()
                .unwrap_or(Truth::False),
            Filter::Not(part) => match part.evaluate(entry) {
                Truth::True => Truth::False,
                Truth::False => Truth::True,
                Truth::Undefined => Truth::Undefined,
            },
            Filter::Present(attribute) => any(entry, attribute, |_| true),
            Filter::Equal(attribute, value) => {
                let Some(asserted) = normal(attribute, value) else {
                    return Truth::Undefined;
                };
                any(entry, attribute, |stored| {
                    normal(attribute, stored).as_ref() == Some(&asserted)
                })
            }
            Filter::AtLeast(attribute, value) | Filter::AtMost(attribute, value) => {
                // Of the attributes here only uidNumber can be ordered.
                let Ok(asserted) = value.parse::<i128>() else {
                    return Truth::Undefined;
                };
                if *attribute != "uidNumber" {
                    return Truth::Undefined;
                }
                let at_least = matches!(self, Filter::AtLeast(..));
                any(entry, attribute, |stored| {
                    let stored: i128 = stored.parse().unwrap();
                    if at_least {
                        stored >= asserted
                    } else {
                        stored <= asserted
                    }
                })
            }
            Filter::Substrings(attribute, parts) => substrings(entry, attribute, parts),
        }
    }
}

/// Whether a test holds for one value of an attribute, its subtypes and those with more options.
fn any(entry: &Attributes, attribute: &str, test: impl Fn(&str) -> bool) -> Truth {
    let described = |description: &str| match attribute {
        "name" => matches!(description, "cn" | "cn;lang-en" | "sn" | "givenName"),
        "cn" => matches!(description, "cn" | "cn;lang-en"),
        attribute => description == attribute,
    };
    if attribute == "nonsense" {
        return Truth::Undefined;
    }
    let found = entry
        .iter()
        .filter(|(description, _)| described(description))
        .any(|(_, values)| values.iter().any(|value| test(value)));
    if found { Truth::True } else { Truth::False }
}

/// The form two values of an attribute have in common when they are equal; `None` for what is not of its syntax.
fn normal(attribute: &str, value: &str) -> Option<String> {
    match attribute {
        "nonsense" => None,
        "uidNumber" => {
            let number: i128 = value.parse().ok()?;
            (number.to_string() == value).then(|| value.to_owned())
        }
        "telephoneNumber" => {
            let printable = |c: char| c.is_ascii_alphanumeric() || " +-".contains(c);
            let digits = value
                .chars()
                .filter(|c| !" -".contains(*c))
                .collect::<String>();
            (!value.is_empty() && value.chars().all(printable)).then(|| digits.to_lowercase())
        }
        "seeAlso" => {
            let mut rdns = Vec::new();
            for rdn in value.split(',') {
                let mut avas = Vec::new();
                for ava in rdn.split('+') {
                    let (name, value) = ava.split_once('=')?;
                    avas.push(format!("{}={}", name.trim().to_lowercase(), words(value)));
                }
                avas.sort();
                rdns.push(avas.join("+"));
            }
            Some(rdns.join(","))
        }
        _ => (!value.is_empty()).then(|| words(value)),
    }
}

/// Words in lower case with single spaces between.
fn words(value: &str) -> String {
    value
        .to_lowercase()
        .replace('ß', "ss")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn substrings(entry: &Attributes, attribute: &str, parts: &[&str; 3]) -> Truth {
    // seeAlso and uidNumber have no substrings rule.
    if matches!(attribute, "nonsense" | "seeAlso" | "uidNumber") {
        return Truth::Undefined;
    }
    let telephone = attribute == "telephoneNumber";
    let prepare = |part: &str, first: bool, last: bool| {
        if telephone {
            return part
                .chars()
                .filter(|c| !" -".contains(*c))
                .collect::<String>()
                .to_lowercase();
        }
        if part.is_empty() {
            return String::new();
        }
        // RFC 4518 §2.6.1
        let spaced = words(part).replace(' ', "  ");
        if spaced.is_empty() {
            return " ".to_owned();
        }
        let before = if first || part.starts_with(' ') {
            " "
        } else {
            ""
        };
        let after = if last || part.ends_with(' ') { " " } else { "" };
        format!("{before}{spaced}{after}")
    };
    let [initial, middle, last] = *parts;
    let initial = prepare(initial, true, false);
    let middle = prepare(middle, false, false);
    let last = prepare(last, false, true);
    any(entry, attribute, |stored| {
        let stored = if telephone {
            prepare(stored, false, false)
        } else {
            format!(" {} ", words(stored).replace(' ', "  "))
        };
        let Some(rest) = stored.strip_prefix(initial.as_str()) else {
            return false;
        };
        let Some(rest) = rest.strip_suffix(last.as_str()) else {
            return false;
        };
        rest.contains(middle.as_str())
    })
}

/// A value that attribute can have.
fn value_of(description: &'static str) -> BoxedStrategy<&'static str> {
    match description {
        "seeAlso" => prop::sample::select(&NAMES[..]).boxed(),
        "telephoneNumber" => prop::sample::select(&NUMBERS[..]).boxed(),
        "uidNumber" => prop::sample::select(&INTEGERS[..]).boxed(),
        _ => prop::sample::select(&STRINGS[..]).boxed(),
    }
}

/// Values of which no two are equal.
fn values_of(description: &'static str) -> impl Strategy<Value = BTreeSet<&'static str>> {
    // Enough for an attribute to become large.
    prop::collection::vec(value_of(description), 0..9).prop_map(move |values| {
        let mut seen = BTreeSet::new();
        let single = matches!(description, "uidNumber" | "employeeNumber");
        let fresh = values
            .into_iter()
            .filter(|value| seen.insert(normal(description, value)));
        fresh.take(if single { 1 } else { 9 }).collect()
    })
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let optional: Vec<_> = DESCRIPTIONS
        .iter()
        .chain(&["uidNumber"])
        .map(|description| values_of(description).prop_map(|values| (*description, values)))
        .collect();
    (value_of("cn"), value_of("sn"), optional).prop_map(|(cn, sn, optional)| {
        let mut attributes: Attributes = optional
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .collect();
        attributes.insert("cn", BTreeSet::from([cn]));
        attributes.insert("sn", BTreeSet::from([sn]));
        attributes
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    let attribute = prop::sample::select(vec![
        "cn",
        "cn;lang-en",
        "sn",
        "name",
        "description",
        "givenName",
        "seeAlso",
        "telephoneNumber",
        "uidNumber",
        "nonsense",
    ]);
    let part = prop::sample::select(vec!["", "a", "b", "A B", "b ", " c", "ss", "1", "1 2"]);
    let item = attribute.prop_flat_map(move |attribute| {
        let some_value = prop_oneof![4 => value_of(attribute), 1 => prop::sample::select(&STRINGS[..]), 1 => prop::sample::select(&INTEGERS[..])];
        prop_oneof![
            1 => Just(Filter::Present(attribute)),
            4 => some_value.clone().prop_map(move |value| Filter::Equal(attribute, value)),
            1 => some_value.clone().prop_map(move |value| Filter::AtLeast(attribute, value)),
            1 => some_value.prop_map(move |value| Filter::AtMost(attribute, value)),
            3 => [part.clone(), part.clone(), part.clone()]
                .prop_filter("a part", |parts| parts.iter().any(|part| !part.is_empty()))
                .prop_map(move |parts| Filter::Substrings(attribute, parts)),
        ]
    });
    item.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Filter::And),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Filter::Or),
            inner.prop_map(|part| Filter::Not(Box::new(part))),
        ]
    })
}

fn dn_of(number: usize) -> String {
    format!("uid=u{number},{SUFFIX}")
}

fn directory_on<E: Engine>(engine: E, indexed: bool) -> Directory<E> {
    let mut config = Config {
        naming_contexts: vec![SUFFIX.to_owned()],
        ..Config::default()
    };
    let attributes = [
        "cn",
        "sn",
        "givenName",
        "description",
        "seeAlso",
        "telephoneNumber",
        "uidNumber",
    ];
    for attribute in attributes.into_iter().filter(|_| indexed) {
        config.indexes.push(IndexDefinition {
            attribute: attribute.to_owned(),
            equality: true,
            presence: true,
            substring: !matches!(attribute, "seeAlso" | "uidNumber"),
            approximate: !matches!(attribute, "seeAlso" | "uidNumber" | "telephoneNumber"),
            ordering: attribute == "uidNumber",
        });
    }
    let directory = Directory::create_on(engine, &config, options()).unwrap();
    succeed(&directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    directory
}

/// What happens to one entry: how it begins and what replaces its attributes; `None` deletes it.
type Life = (Attributes, Vec<Option<Attributes>>);

fn live<E: Engine>(directory: &Directory<E>, number: usize, life: &Life) {
    let dn = dn_of(number);
    let mut lines =
        format!("objectClass: inetOrgPerson\nobjectClass: extensibleObject\nuid: u{number}\n");
    for (description, values) in &life.0 {
        for value in values {
            lines.push_str(&format!("{description}: {}\n", value.trim()));
        }
    }
    succeed(directory, add(&dn, &lines));
    let mut before = &life.0;
    for (at, step) in life.1.iter().enumerate() {
        let Some(attributes) = step else {
            return succeed(directory, delete(&dn));
        };
        let kinds: &[ChangeKind] = match at % 2 {
            0 => &[ChangeKind::Add, ChangeKind::Delete],
            _ => &[ChangeKind::Replace],
        };
        let descriptions = DESCRIPTIONS.iter().chain(&["cn", "sn", "uidNumber"]);
        let changes: Vec<(ChangeKind, &str, Vec<&str>)> = descriptions
            .flat_map(|description| kinds.iter().map(move |kind| (*kind, *description)))
            .map(|(kind, description)| {
                let (old, new) = (before.get(description), attributes.get(description));
                let values = match kind {
                    ChangeKind::Add => without(description, new, old),
                    ChangeKind::Delete => without(description, old, new),
                    _ => without(description, new, None),
                };
                (kind, description, values)
            })
            .filter(|(kind, _, values)| *kind == ChangeKind::Replace || !values.is_empty())
            .collect();
        let changes: Vec<(ChangeKind, &str, &[&str])> = changes
            .iter()
            .map(|(kind, description, values)| (*kind, *description, values.as_slice()))
            .collect();
        // The only value there may be has to go first.
        let single = |description: &str| matches!(description, "uidNumber" | "employeeNumber");
        let (mut changes, first): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(kind, description, _)| {
                !(*kind == ChangeKind::Delete && single(description))
            });
        changes.splice(0..0, first);
        succeed(directory, modify(&dn, &changes));
        before = attributes;
    }
}

/// The values of one side that are not on the other.
fn without<'v>(
    description: &str,
    values: Option<&BTreeSet<&'v str>>,
    others: Option<&BTreeSet<&'v str>>,
) -> Vec<&'v str> {
    let normals = |values: Option<&BTreeSet<&str>>| -> BTreeSet<_> {
        let values = values.into_iter().flatten();
        values.map(|value| normal(description, value)).collect()
    };
    let others = normals(others);
    let values = values.into_iter().flatten().copied();
    values
        .filter(|value| !others.contains(&normal(description, value)))
        .collect()
}

fn found<E: Engine>(directory: &Directory<E>, filter: &str) -> BTreeSet<String> {
    let mut query = Query {
        attributes: &["1.1"],
        step_entries: 100,
        step_work: u64::MAX,
        ..query(SUFFIX, Scope::OneLevel, filter)
    };
    let found = search(directory, &query);
    // However often it is interrupted.
    query.step_work = 1;
    assert_eq!(search(directory, &query), found);
    assert_eq!(found.code, ResultCode::Success);
    let dns: BTreeSet<String> = found.dns().into_iter().map(str::to_owned).collect();
    assert_eq!(dns.len(), found.entries.len(), "twice: {:?}", found.entries);
    dns
}

proptest! {
    #![proptest_config(crate::made::random(40))]

    #[test]
    fn searches_find_what_the_filter_means(
        lives in prop::collection::vec((attributes(), prop::collection::vec(prop::option::weighted(0.8, attributes()), 0..3)), 1..12),
        filters in prop::collection::vec(filter(), 30),
    ) {
        let indexed = directory_on(Model::default(), true);
        let plain = directory_on(Model::default(), false);
        let embedded = directory_on(engine(), true);
        let mut model: BTreeMap<String, Attributes> = BTreeMap::new();
        for (number, life) in lives.iter().enumerate() {
            live(&indexed, number, life);
            live(&plain, number, life);
            live(&embedded, number, life);
            let mut now = Some(life.0.clone());
            for step in &life.1 {
                now = step.clone();
                if now.is_none() {
                    break;
                }
            }
            if let Some(attributes) = now {
                model.insert(dn_of(number), attributes);
            }
        }
        prop_assert_eq!(indexed.check(|_| {}).unwrap().problems, Vec::<String>::new());
        prop_assert_eq!(embedded.check(|_| {}).unwrap().problems, Vec::<String>::new());
        for filter in &filters {
            let text = filter.to_string();
            let expected: BTreeSet<String> = model
                .iter()
                .filter(|(_, attributes)| filter.evaluate(attributes) == Truth::True)
                .map(|(dn, _)| dn.clone())
                .collect();
            prop_assert_eq!(&found(&indexed, &text), &expected, "with indexes: {}", text);
            prop_assert_eq!(&found(&plain, &text), &expected, "without indexes: {}", text);
            prop_assert_eq!(&found(&embedded, &text), &expected, "on the store: {}", text);
        }
    }
}
