//! Makes up operations from a seed: most of them sensible, many of them odd, some of them wrong.

use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_testkit::{Random, SUFFIX};

use super::operation::{Operation, Term, Values};
use super::vocabulary::{
    ASSERTIONS, BESIDE, FOREIGN_NAMES, MISSING_NAMES, NAMES, NEW_RDNS, OTHER_DESCRIPTIONS, RULES,
    SELECTIONS, WRONG_NAMES, WRONG_RDNS,
};

const SCOPES: [Scope; 4] = [
    Scope::Base,
    Scope::OneLevel,
    Scope::Subtree,
    Scope::Subordinates,
];

const DEREFERENCES: [DerefAliases; 4] = [
    DerefAliases::Never,
    DerefAliases::InSearching,
    DerefAliases::FindingBase,
    DerefAliases::Always,
];

/// A search or, now and then, a compare.
pub(crate) fn read(random: &mut Random) -> Operation {
    if random.once_in(8) {
        let (attribute, value) = assertion(random);
        return Operation::Compare {
            dn: if random.once_in(8) {
                random.of(&BESIDE).to_owned()
            } else {
                name(random)
            },
            attribute,
            value,
            manage_dsa_it: random.once_in(4),
        };
    }
    let types_only = random.once_in(10);
    let is_synthetic = random.once_in(16);
    let attributes = (0..random.below(4))
        .map(|_| random.of(&SELECTIONS).to_owned())
        .collect();
    Operation::Search {
        base: if is_synthetic {
            random.of(&BESIDE).to_owned()
        } else if random.once_in(3) {
            SUFFIX.to_owned()
        } else {
            name(random)
        },
        scope: if is_synthetic {
            // What they hold themselves is compared by `discovery`.
            random.of(&[Scope::OneLevel, Scope::Subtree, Scope::Subordinates])
        } else if random.once_in(2) {
            Scope::Subtree
        } else {
            random.of(&SCOPES)
        },
        deref_aliases: random.of(&DEREFERENCES),
        size_limit: if random.once_in(12) {
            1 + random.below(5) as u32
        } else {
            0
        },
        types_only,
        filter: term(random, 3),
        attributes,
        manage_dsa_it: random.once_in(3),
    }
}

fn name(random: &mut Random) -> String {
    match random.below(12) {
        0 => random.of(&MISSING_NAMES).to_owned(),
        1 => random.of(&WRONG_NAMES).to_owned(),
        2 if random.once_in(3) => random.of(&FOREIGN_NAMES).to_owned(),
        _ => random.of(&NAMES).to_owned(),
    }
}

fn assertion(random: &mut Random) -> (String, Vec<u8>) {
    let (attribute, values) = random.of(&ASSERTIONS);
    let attribute = if random.once_in(12) {
        random.of(&OTHER_DESCRIPTIONS)
    } else {
        attribute
    };
    // Now and then another attribute's value.
    let values = if random.once_in(12) {
        random.of(&ASSERTIONS).1
    } else {
        values
    };
    (attribute.to_owned(), random.of(values).as_bytes().to_vec())
}

/// An assertion that both servers take for a value or refuse alike: what they are known to take differently would make
/// the trees grow apart. `mistakes.ldif` has those one by one.
fn assertion_for_update(random: &mut Random) -> (String, Vec<u8>) {
    loop {
        let (attribute, value) = assertion(random);
        let known = match attribute.as_str() {
            "oddOID" => !value.contains(&b'.') || !value.first().is_some_and(u8::is_ascii_digit),
            "objectClass" | "2.5.4.0" => matches!(
                value.as_slice(),
                b"top" | b"person" | b"PERSON" | b"2.5.6.6"
            ),
            "userCertificate" | "ref" => true,
            _ => false,
        };
        if !known {
            return (attribute, value);
        }
    }
}

fn term(random: &mut Random, depth: usize) -> Term {
    if depth > 0 && random.once_in(3) {
        let count = random.below(4);
        return match random.below(3) {
            0 => Term::And((0..count).map(|_| term(random, depth - 1)).collect()),
            1 => Term::Or((0..count).map(|_| term(random, depth - 1)).collect()),
            _ => Term::Not(Box::new(term(random, depth - 1))),
        };
    }
    let (attribute, value) = assertion(random);
    match random.below(12) {
        0..=3 => Term::Equal(attribute, value),
        4 => Term::GreaterOrEqual(attribute, value),
        5 => Term::LessOrEqual(attribute, value),
        6 => Term::Approximate(attribute, value),
        7 | 8 => Term::Present(attribute),
        9 | 10 => substrings(random, attribute, &value),
        _ => {
            let rule = (!random.once_in(3)).then(|| random.of(&RULES).to_owned());
            let attribute = (rule.is_none() || !random.once_in(3)).then_some(attribute);
            Term::Extensible {
                rule,
                attribute,
                value,
                dn_attributes: random.once_in(3),
            }
        }
    }
}

/// Cuts `value` into parts and drops some of them.
fn substrings(random: &mut Random, attribute: String, value: &[u8]) -> Term {
    let text = String::from_utf8_lossy(value).into_owned();
    let letters: Vec<char> = text.chars().collect();
    let part = |letters: &[char]| letters.iter().collect::<String>().into_bytes();
    let first = random.below(letters.len() + 1);
    let second = first + random.below(letters.len() - first + 1);
    let initial = (first > 0 && random.once_in(2)).then(|| part(&letters[..first]));
    let last = (second < letters.len() && random.once_in(2)).then(|| part(&letters[second..]));
    let mut any = Vec::new();
    if first < second {
        any.push(part(&letters[first..second]));
    }
    if initial.is_none() && any.is_empty() && last.is_none() {
        any.push(b"e".to_vec());
    }
    Term::Substrings(attribute, initial, any, last)
}

/// A change. Names of entries that were made before come up again, so that changes build on each other.
pub(crate) fn update(random: &mut Random) -> Operation {
    let manage_dsa_it = random.once_in(3);
    if random.once_in(3) {
        return valid_update(random);
    }
    match random.below(10) {
        0..=3 => add(random, manage_dsa_it),
        4..=7 => modify(random, manage_dsa_it),
        8 => {
            let new_superior = random.once_in(2).then(|| parent(random));
            let new_rdn = new_rdn(random);
            let delete_old_rdn = random.once_in(2);
            Operation::ModifyDn {
                dn: target(random),
                new_rdn,
                delete_old_rdn,
                new_superior,
                manage_dsa_it,
            }
        }
        _ => Operation::Delete {
            dn: target(random),
            manage_dsa_it,
        },
    }
}

/// What both servers do as long as the entries are there, so that the trees change at all.
fn valid_update(random: &mut Random) -> Operation {
    let parent = |random: &mut Random| match random.below(3) {
        0 => format!("ou=new {},ou=Empty,dc=example,dc=com", random.below(4)),
        _ => "ou=Empty,dc=example,dc=com".to_owned(),
    };
    let name = |random: &mut Random| {
        random.of(&[
            "cn=new",
            "cn=other",
            "ou=new 0",
            "ou=new 1",
            "ou=new 2",
            "cn=a+sn=b",
        ])
    };
    let dn = format!("{},{}", name(random), parent(random));
    let manage_dsa_it = false;
    match random.below(8) {
        0..=3 => {
            let mut attributes: Values = vec![(
                "objectClass".to_owned(),
                vec![b"oddThing".to_vec(), b"oddExtra".to_vec()],
            )];
            let rdn = dn.split(',').next().unwrap_or_default();
            for ava in rdn.split('+') {
                let (attribute, value) = ava.split_once('=').unwrap_or_default();
                attributes.push((attribute.to_owned(), vec![value.as_bytes().to_vec()]));
            }
            if rdn.starts_with("ou=") {
                attributes.push(("cn".to_owned(), vec![b"unit".to_vec()]));
            }
            let (attribute, value) = valid_value(random);
            attributes.push((attribute.to_owned(), vec![value.as_bytes().to_vec()]));
            Operation::Add {
                dn,
                attributes,
                manage_dsa_it,
            }
        }
        4..=6 => {
            let mut changes = Vec::new();
            for _ in 0..1 + random.below(2) {
                let (attribute, value) = valid_value(random);
                let kind = random.of(&[ChangeKind::Add, ChangeKind::Delete, ChangeKind::Replace]);
                let values = if kind != ChangeKind::Add && random.once_in(3) {
                    vec![]
                } else {
                    vec![value.as_bytes().to_vec()]
                };
                changes.push((kind, attribute.to_owned(), values));
            }
            Operation::Modify {
                dn,
                changes,
                manage_dsa_it,
            }
        }
        _ => {
            let new_rdn = name(random).to_owned();
            let new_superior = random.once_in(2).then(|| parent(random));
            Operation::ModifyDn {
                dn,
                new_rdn,
                delete_old_rdn: random.once_in(2),
                new_superior,
                manage_dsa_it,
            }
        }
    }
}

/// A value that an `oddThing` with `oddExtra` may have.
fn valid_value(random: &mut Random) -> (&'static str, &'static str) {
    random.of(&[
        ("oddBoolean", "TRUE"),
        ("oddInteger", "42"),
        ("oddInteger", "-42"),
        ("oddInteger;x-test", "43"),
        ("oddTime", "20260704120000Z"),
        ("oddExact", "Exactly"),
        ("oddIgnore", "ignored"),
        ("oddIgnore", "IGNORED"),
        ("oddSub", "below"),
        ("description", "described"),
        ("description;lang-en", "described"),
        ("oddDN", "cn=x+sn=y,dc=example,dc=com"),
        ("oddUUID", "12345678-1234-1234-1234-123456789abc"),
        ("mail", "new@example.com"),
        ("labeledURI", "https://example.com/"),
        ("oddSingle", "only"),
        ("oddNoRule", "unruly"),
        ("oddNumeric", "1 2 3"),
        ("oddOctets", "octets"),
    ])
}

/// A name that both servers know for one. Those in hexadecimal only sapwood does, and the trees would grow apart.
fn known_name(random: &mut Random) -> String {
    loop {
        let name = random.of(&NAMES);
        if !name.contains("=#") {
            return name.to_owned();
        }
    }
}

/// Parents for new entries: most of them there, some of them aliases, referrals, leaves or missing.
fn parent(random: &mut Random) -> String {
    match random.below(16) {
        0 => random.of(&MISSING_NAMES).to_owned(),
        1 => random.of(&WRONG_NAMES).to_owned(),
        2 => random.of(&FOREIGN_NAMES).to_owned(),
        3 => known_name(random),
        4..=6 => format!("ou=new {},ou=Empty,dc=example,dc=com", random.below(4)),
        _ => "ou=Empty,dc=example,dc=com".to_owned(),
    }
}

fn new_rdn(random: &mut Random) -> String {
    if random.once_in(8) {
        random.of(&WRONG_RDNS).to_owned()
    } else {
        random.of(&NEW_RDNS).to_owned()
    }
}

/// An entry to change: often one that was made, sometimes one of the data.
fn target(random: &mut Random) -> String {
    match random.below(8) {
        0 => known_name(random),
        1 => random.of(&WRONG_NAMES).to_owned(),
        _ => format!("{},{}", new_rdn(random), parent(random)),
    }
}

fn add(random: &mut Random, manage_dsa_it: bool) -> Operation {
    let rdn = new_rdn(random);
    let dn = format!("{rdn},{}", parent(random));
    let mut attributes: Values = Vec::new();
    let mut put = |attribute: &str, values: &[&str]| {
        attributes.push((
            attribute.to_owned(),
            values
                .iter()
                .map(|value| value.as_bytes().to_vec())
                .collect(),
        ));
    };
    let classes: &[&str] = match random.below(14) {
        0 => &["person"],
        1 => &["organizationalUnit"],
        2 => &["top", "oddChild"],
        3 => &["oddThing", "oddExtra"],
        4 => &["oddThing", "oddExtraMust"],
        5 => &["oddExtra"],
        6 => &["oddAbstract"],
        7 => &["person", "organizationalUnit"],
        8 => &["nosuchclass"],
        9 => &["alias", "extensibleObject"],
        10 => &["referral", "extensibleObject"],
        11 => &["inetOrgPerson", "person"],
        12 => &["organizationalUnit", "extensibleObject"],
        _ => &["oddThing"],
    };
    if !random.once_in(20) {
        put("objectClass", classes);
    }
    // The attributes that the class and the name ask for, most of the time.
    if !random.once_in(8) {
        let from_name = ["cn", "sn", "ou", "uid"]
            .into_iter()
            .filter(|attribute| rdn.contains(&format!("{attribute}=")));
        let value_in_name = |attribute: &str| {
            let value = rdn
                .split('+')
                .find_map(|ava| ava.trim().strip_prefix(&format!("{attribute}=")));
            value.unwrap_or("x").replace("\\2c", ",")
        };
        for attribute in from_name {
            put(attribute, &[&value_in_name(attribute)]);
        }
        if !rdn.starts_with("cn=") {
            put("cn", &["some name"]);
        }
    }
    match classes {
        ["person", ..] | ["inetOrgPerson", ..] => put("sn", &["Some"]),
        ["top", "oddChild"] => put(
            "oddSingle",
            if random.once_in(4) {
                &["one", "two"]
            } else {
                &["one"]
            },
        ),
        ["alias", ..] => put("aliasedObjectName", &[random.of(&NAMES[..9])]),
        ["referral", ..] => put("ref", &["ldap://new.example/dc=new,dc=example"]),
        [_, "oddExtraMust"] if !random.once_in(3) => put("oddInteger", &["5"]),
        _ => {}
    }
    for _ in 0..random.below(3) {
        let (attribute, value) = assertion_for_update(random);
        let value = String::from_utf8_lossy(&value).into_owned();
        match random.below(6) {
            0 => put(&attribute, &[&value, &value]),
            1 => put(&attribute, &[&value, "another"]),
            _ => put(&attribute, &[&value]),
        }
    }
    if random.once_in(20) {
        put(
            random.of(&[
                "entryUUID",
                "createTimestamp",
                "structuralObjectClass",
                "creatorsName",
                "subschemaSubentry",
            ]),
            &["x"],
        );
    }
    Operation::Add {
        dn,
        attributes,
        manage_dsa_it,
    }
}

const CHANGE_KINDS: [ChangeKind; 8] = [
    ChangeKind::Add,
    ChangeKind::Add,
    ChangeKind::Add,
    ChangeKind::Delete,
    ChangeKind::Delete,
    ChangeKind::Replace,
    ChangeKind::Replace,
    ChangeKind::Increment,
];

fn modify(random: &mut Random, manage_dsa_it: bool) -> Operation {
    let dn = if random.once_in(2) {
        known_name(random)
    } else {
        target(random)
    };
    let mut changes = Vec::new();
    for _ in 0..1 + random.below(3) {
        let kind = random.of(&CHANGE_KINDS);
        let (attribute, value) = match kind {
            ChangeKind::Increment => {
                let attribute = random.of(&["oddInteger", "uidNumber", "cn", "oddInteger;x-test"]);
                (
                    attribute.to_owned(),
                    random.of(&["1", "-3", "x", "100000"]).as_bytes().to_vec(),
                )
            }
            _ if random.once_in(16) => (
                random
                    .of(&[
                        "entryUUID",
                        "modifyTimestamp",
                        "hasSubordinates",
                        "structuralObjectClass",
                    ])
                    .to_owned(),
                b"x".to_vec(),
            ),
            _ => assertion_for_update(random),
        };
        let values = match random.below(8) {
            0 if kind != ChangeKind::Add => vec![],
            1 => vec![value.clone(), assertion(random).1],
            // Which slapd deletes, if it is the only value there is.
            2 if kind != ChangeKind::Delete => vec![value.clone(), value],
            _ => vec![value],
        };
        changes.push((kind, attribute, values));
    }
    Operation::Modify {
        dn,
        changes,
        manage_dsa_it,
    }
}
