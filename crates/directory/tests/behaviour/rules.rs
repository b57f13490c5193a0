//! Rules that are added to a directory with entries: what they are called, and what was there before them.

use sapwood_directory::engine::Engine;
use sapwood_directory::{Config, Settings, UniqueRule, UpdateRequest, VIOLATIONS_TOLD_MAX};
use sapwood_ldap::list::ChangeKind::{Add, Delete};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;

use crate::On;
use crate::made::{Directory, create, engine, in_stores};

const OVERLAY: &str = "olcOverlay={0}unique,olcDatabase={1}mdb,cn=config";
const PEOPLE: &str = "ou=people,dc=example,dc=com";

fn unique(name: &str, base: &str) -> UniqueRule {
    UniqueRule {
        attributes: vec!["uid".into()],
        base: base.into(),
        name: name.into(),
    }
}

fn change(kind: sapwood_ldap::list::ChangeKind, rule: &UniqueRule) -> UpdateRequest {
    modify(OVERLAY, &[(kind, "olcUniqueURI", &[&rule.uri()])])
}

fn overlay(rule: &UniqueRule) -> UpdateRequest {
    let lines = format!(
        "objectClass: olcOverlayConfig\nobjectClass: olcUniqueConfig\nolcOverlay: unique\nolcUniqueURI: {}",
        rule.uri()
    );
    add(OVERLAY, &lines)
}

fn person(name: &str, base: &str, uid: &str) -> UpdateRequest {
    let lines = format!("objectClass: inetOrgPerson\ncn: {name}\nsn: x\nuid: {uid}");
    add(&format!("cn={name},{base}"), &lines)
}

fn begin<E: Engine>(directory: &Directory<E>) {
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    let lines = "objectClass: organizationalUnit\nou: people";
    succeed(directory, add(PEOPLE, lines));
}

fn told<E: Engine>(directory: &Directory<E>, name: &str) -> Vec<String> {
    let violations = directory.rule_violations(name, |_| {}).unwrap();
    violations.told().to_vec()
}

fn names<E: Engine>(directory: &Directory<E>) -> Vec<String> {
    let snapshot = directory.snapshot().unwrap();
    let rules = snapshot.settings().rules().into_iter();
    rules.map(|rule| rule.name).collect()
}

#[test]
fn rules_are_called_as_they_say_also_when_the_directory_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let settings = Settings {
        unique: vec![unique("", ""), unique("of-people", PEOPLE)],
        ..Settings::default()
    };
    let config = Config {
        settings,
        ..config()
    };
    let directory = create(&path, &config, options());
    begin(&directory);
    let third = unique("third", SUFFIX);
    succeed(&directory, change(Add, &third));
    assert_eq!(names(&directory), ["unique", "of-people", "third"]);
    let again = unique("third", "");
    refused(
        &directory,
        change(Add, &again),
        ResultCode::AttributeOrValueExists,
    );
    succeed(&directory, change(Delete, &unique("", "")));
    drop(directory);
    let store = sapwood_directory::engine::Embedded::open(&path, &sapwood_store::Options::new());
    let engine = crate::made::over(store.unwrap());
    let directory = Directory::<On>::open_on(engine, options()).unwrap();
    assert_eq!(names(&directory), ["of-people", "third"]);
    assert_eq!(
        directory.snapshot().unwrap().settings().unique,
        [unique("of-people", PEOPLE), third]
    );
}

#[test]
fn values_that_are_there_twice_are_told_once_each() {
    let directory = Directory::create_on(engine(), &config(), options()).unwrap();
    look_at_values(&directory);
    look_at_values(&in_stores());
}

fn look_at_values<E: Engine>(directory: &Directory<E>) {
    begin(directory);
    for (name, base, uid) in [
        ("ann", PEOPLE, "x"),
        ("bob", PEOPLE, "X"),
        ("eve", SUFFIX, "y"),
        ("may", SUFFIX, "y"),
        ("sue", SUFFIX, "z"),
        ("tom", PEOPLE, "z"),
    ] {
        succeed(directory, person(name, base, uid));
    }
    succeed(directory, overlay(&unique("", "")));
    succeed(directory, change(Add, &unique("people", PEOPLE)));
    let mut all = told(directory, "unique");
    all.sort();
    assert_eq!(all.len(), 3, "{all:?}");
    for (told, name) in all.iter().zip(["x", "y", "z"]) {
        assert!(told.starts_with(&format!("uid: '{name}' is in ")), "{told}");
    }
    let people = told(directory, "people");
    assert_eq!(people.len(), 1, "{people:?}");
    for name in ["cn=ann", "cn=bob"] {
        assert!(
            people[0].contains(&format!("'{name},{PEOPLE}'")),
            "{people:?}"
        );
    }
    // Who looks for a rule that is gone finds nothing.
    succeed(directory, delete(OVERLAY));
    assert_eq!(told(directory, "unique"), Vec::<String>::new());
}

#[test]
fn no_more_is_told_than_is_read() {
    let directory = Directory::create_on(engine(), &config(), options()).unwrap();
    begin(&directory);
    let people: Vec<_> = (0..2 * VIOLATIONS_TOLD_MAX + 2)
        .map(|number| {
            as_admin(person(
                &format!("p{number}"),
                PEOPLE,
                &format!("u{}", number / 2),
            ))
        })
        .collect();
    for batch in people.chunks(50) {
        let applied = directory.apply(batch).unwrap();
        assert!(
            applied
                .outcomes
                .iter()
                .all(|outcome| outcome.code == ResultCode::Success)
        );
        sapwood_directory::Ticket::wait(applied.ticket.unwrap()).unwrap();
    }
    succeed(&directory, overlay(&unique("", "")));
    let mut looked = Vec::new();
    let violations = directory.rule_violations("unique", |entries| looked.push(entries));
    let violations = violations.unwrap();
    assert!(violations.is_full());
    assert_eq!(violations.told().len(), VIOLATIONS_TOLD_MAX);
    assert!(!looked.is_empty());
}
