//! The rule `linked`: an entry that another one names names that one in turn.

use std::collections::{BTreeMap, BTreeSet};

use crate::made::{Directory, engine, engine_in};
use sapwood_directory::engine::Engine;
use sapwood_directory::{Config, LinkedRule, RefintRule, Settings, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::{Random, SUFFIX};

use crate::query::{Query, query, search};

const OVERLAY: &str = "olcOverlay={10}linked,olcDatabase={1}mdb,cn=config";

fn with_rule(config: Config, follows: bool) -> Config {
    let settings = Settings {
        linked: vec!["secretary seeAlso".parse::<LinkedRule>().unwrap()],
        refint: follows.then(|| RefintRule {
            attributes: vec!["secretary".into(), "seeAlso".into()],
            ..RefintRule::default()
        }),
        ..Settings::default()
    };
    Config { settings, ..config }
}

fn begin<E: Engine>(directory: &Directory<E>) {
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
}

fn directory() -> Directory {
    let config = with_rule(config(), false);
    let directory = Directory::create_on(engine(), &config, options()).unwrap();
    begin(&directory);
    directory
}

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

fn person(name: &str, secretaries: &[&str]) -> UpdateRequest {
    let mut lines = format!("objectClass: inetOrgPerson\ncn: {name}\nsn: x");
    for secretary in secretaries {
        lines.push_str(&format!("\nsecretary: {}", dn(secretary)));
    }
    add(&dn(name), &lines)
}

/// The values that entries have of an attribute.
fn values<E: Engine>(directory: &Directory<E>, name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let asked = Query {
        attributes: &[name],
        ..query(SUFFIX, Scope::Subordinates, "(objectClass=*)")
    };
    let start = format!("{name}: ");
    let entries = search(directory, &asked).entries.into_iter();
    let of = |lines: BTreeSet<String>| {
        let lines = lines.iter().filter_map(|line| line.strip_prefix(&start));
        lines.map(str::to_lowercase).collect()
    };
    entries
        .map(|(dn, lines)| (dn.to_lowercase(), of(lines)))
        .collect()
}

fn back<E: Engine>(directory: &Directory<E>, name: &str) -> BTreeSet<String> {
    values(directory, "seeAlso").remove(&dn(name)).unwrap()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(dn).into()
}

#[test]
fn who_is_named_names_in_turn() {
    follows(&directory());
    let stores = config_in_stores().stores(&schema()).unwrap();
    let config = with_rule(config_in_stores(), false);
    let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
    begin(&directory);
    follows(&directory);
}

fn follows<E: Engine>(directory: &Directory<E>) {
    succeed(directory, person("s", &[]));
    succeed(directory, person("t", &[]));
    succeed(directory, person("a", &["s", "nobody"]));
    succeed(directory, person("b", &["S", "t"]));
    assert_eq!(back(directory, "s"), set(["a", "b"]));
    assert_eq!(back(directory, "t"), set(["b"]));
    succeed(
        directory,
        modify(&dn("b"), &[(Delete, "secretary", &[&dn("s")])]),
    );
    assert_eq!(back(directory, "s"), set(["a"]));
    succeed(
        directory,
        modify(&dn("a"), &[(Replace, "secretary", &[&dn("t")])]),
    );
    assert_eq!(back(directory, "s"), set([]));
    assert_eq!(back(directory, "t"), set(["a", "b"]));
    succeed(directory, rename(&dn("a"), "cn=aa", true, None));
    assert_eq!(back(directory, "t"), set(["aa", "b"]));
    succeed(
        directory,
        modify(&dn("aa"), &[(Add, "secretary", &[&dn("aa")])]),
    );
    assert_eq!(back(directory, "aa"), set(["aa"]));
    succeed(directory, delete(&dn("aa")));
    assert_eq!(back(directory, "t"), set(["b"]));
}

#[test]
fn whatever_happens_each_link_has_its_other_side() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let config = with_rule(config(), true);
        let directory = Directory::create_on(engine(), &config, options()).unwrap();
        begin(&directory);
        for _ in 0..200 {
            let names = ["a", "b", "c", "d", "e"];
            let (one, other) = (random.of(&names), random.of(&names));
            let request = match random.below(6) {
                0 => person(one, &[other]),
                1 => delete(&dn(one)),
                2 => rename(&dn(one), &format!("cn={other}"), true, None),
                3 => modify(&dn(one), &[(Delete, "secretary", &[&dn(other)])]),
                _ => modify(&dn(one), &[(Add, "secretary", &[&dn(other)])]),
            };
            apply(&directory, request);
            let links = values(&directory, "secretary");
            let mut expected: BTreeMap<String, BTreeSet<String>> = links
                .keys()
                .map(|dn| (dn.clone(), BTreeSet::new()))
                .collect();
            for (dn, named) in &links {
                for name in named {
                    if let Some(expected) = expected.get_mut(name) {
                        expected.insert(dn.clone());
                    }
                }
            }
            let found = values(&directory, "seeAlso");
            // A link to an entry that came later has no other side.
            for (dn, found) in &found {
                assert!(
                    found.is_subset(&expected[dn]),
                    "seed {seed}: {dn} {found:?} {links:?}"
                );
            }
        }
    }
}

#[test]
fn the_overlay_says_what_is_linked() {
    let directory = directory();
    succeed(&directory, delete(OVERLAY));
    succeed(&directory, person("s", &[]));
    succeed(&directory, person("a", &["s"]));
    let overlay = |value: &str| {
        let lines =
            format!("objectClass: sapwoodLinkedConfig\nolcOverlay: linked\nsapwoodLinked: {value}");
        add("olcOverlay=linked,olcDatabase={1}mdb,cn=config", &lines)
    };
    for (value, code, word) in [
        ("secretary", ResultCode::ConstraintViolation, "MANAGED"),
        ("secretary cn", ResultCode::UnwillingToPerform, "no DNs"),
        (
            "nonsense seeAlso",
            ResultCode::UnwillingToPerform,
            "nonsense",
        ),
        ("seeAlso seeAlso", ResultCode::UnwillingToPerform, "itself"),
        (
            "seeAlso creatorsName",
            ResultCode::UnwillingToPerform,
            "kept by",
        ),
        (
            "seeAlso aliasedObjectName",
            ResultCode::UnwillingToPerform,
            "one value",
        ),
    ] {
        let outcome = refused(&directory, overlay(value), code);
        assert!(outcome.diagnostic.contains(word), "{outcome:?}");
    }
    succeed(&directory, overlay("secretary seeAlso"));
    let violations = directory.rule_violations("linked", |_| {}).unwrap();
    assert_eq!(violations.told().len(), 1, "{:?}", violations.told());
    succeed(
        &directory,
        modify(&dn("a"), &[(Delete, "secretary", &[&dn("s")])]),
    );
    succeed(
        &directory,
        modify(&dn("a"), &[(Add, "secretary", &[&dn("s")])]),
    );
    assert!(
        directory
            .rule_violations("linked", |_| {})
            .unwrap()
            .is_empty()
    );
    assert_eq!(back(&directory, "s"), set(["a"]));
}
