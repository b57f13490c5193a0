//! The rule `constraint`: values of attributes are what they have to be.

use sapwood_directory::engine::Engine;
use sapwood_directory::{Config, ConstraintRule, Settings, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;

use crate::made::{Directory, create, engine, engine_in};

const OVERLAY: &str = "olcOverlay={5}constraint,olcDatabase={1}mdb,cn=config";
const PEOPLE: &str = "ou=people,dc=example,dc=com";
const TITLES: &str = "ou=titles,dc=example,dc=com";
const ANN: &str = "cn=ann,ou=people,dc=example,dc=com";
const CODE: ResultCode = ResultCode::ConstraintViolation;

fn with_rules(config: Config, rules: &[&str]) -> Config {
    let rules = rules.iter().map(|rule| rule.parse::<ConstraintRule>());
    let settings = Settings {
        constraints: rules.collect::<Result<_, _>>().unwrap(),
        ..Settings::default()
    };
    Config { settings, ..config }
}

fn directory(rules: &[&str]) -> Directory {
    let config = with_rules(config(), rules);
    let directory = Directory::create_on(engine(), &config, options()).unwrap();
    begin(&directory);
    directory
}

fn begin<E: Engine>(directory: &Directory<E>) {
    directory.check_rules().unwrap();
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    for (dn, name) in [(PEOPLE, "people"), (TITLES, "titles")] {
        let lines = format!("objectClass: organizationalUnit\nou: {name}");
        succeed(directory, add(dn, &lines));
    }
    succeed(directory, person("ann", PEOPLE, ""));
}

fn person(name: &str, base: &str, more: &str) -> UpdateRequest {
    let lines = format!("objectClass: inetOrgPerson\ncn: {name}\nsn: x\n{more}");
    add(&format!("cn={name},{base}"), &lines)
}

#[test]
fn values_have_the_form_and_the_length_that_is_asked_for() {
    let directory = directory(&[
        "mail,displayName regex ^[a-z]+@example\\.(com|org)$",
        "mail negregex ^root@",
        "description size 5",
    ]);
    for (attribute, fits, not) in [
        (
            "mail",
            &["ann@example.com", "bob@example.org"][..],
            &["ann@example.net", "Ann@example.com", "root@example.com"][..],
        ),
        ("displayName", &["root@example.com"], &["Ann"]),
        ("description", &["12345", "äö"], &["123456", "äöü"]),
    ] {
        for value in not {
            let change = modify(ANN, &[(Add, attribute, &[value])]);
            refused(&directory, change, CODE);
            let lines = format!("{attribute}: {value}");
            refused(&directory, person("eve", PEOPLE, &lines), CODE);
            // Options make no difference.
            let described = format!("{attribute};lang-en");
            let change = modify(ANN, &[(Replace, &described, &[value])]);
            refused(&directory, change, CODE);
        }
        succeed(&directory, modify(ANN, &[(Replace, attribute, fits)]));
    }
    // A name is a value as well.
    succeed(&directory, person("eve", PEOPLE, ""));
    let rename = rename(
        &format!("cn=eve,{PEOPLE}"),
        "description=123456",
        false,
        None,
    );
    refused(&directory, rename, CODE);
}

#[test]
fn what_was_there_stays_until_somebody_changes_it() {
    let directory = directory(&[]);
    let three = "description: one\ndescription: two\ndescription: three";
    succeed(&directory, person("bob", PEOPLE, three));
    let rule = |value: &str| {
        let lines = format!(
            "objectClass: olcOverlayConfig\nobjectClass: olcConstraintConfig\nolcOverlay: constraint\n\
             olcConstraintAttribute: {value}"
        );
        add(OVERLAY, &lines)
    };
    refused(&directory, rule("description like x"), CODE);
    let unknown = rule("nonsense size 5");
    refused(&directory, unknown, ResultCode::UnwillingToPerform);
    let no_pattern = rule("description regex (");
    refused(&directory, no_pattern, ResultCode::UnwillingToPerform);
    succeed(&directory, rule("description count 1 name=one"));
    let change = |kind, value| modify(OVERLAY, &[(kind, "olcConstraintAttribute", &[value])]);
    succeed(&directory, change(Add, "description size 4"));
    let told = |name| {
        let violations = directory.rule_violations(name, |_| {}).unwrap();
        violations.told().to_vec()
    };
    let bob = format!("cn=bob,{PEOPLE}");
    assert_eq!(
        told("one"),
        [format!(
            "'{bob}': description: there are more than 1 values"
        )]
    );
    assert_eq!(
        told("constraint"),
        [format!(
            "'{bob}': description: a value has more than 4 bytes"
        )]
    );
    // Fewer are better, even if they are too many.
    succeed(
        &directory,
        modify(&bob, &[(Delete, "description", &["two"])]),
    );
    succeed(&directory, modify(&bob, &[(Replace, "sn", &["y"])]));
    refused(
        &directory,
        modify(&bob, &[(Add, "description", &["four"])]),
        CODE,
    );
    succeed(&directory, change(Delete, "description count 1 name=one"));
    succeed(&directory, modify(&bob, &[(Add, "description", &["four"])]));
    succeed(&directory, delete(OVERLAY));
    succeed(
        &directory,
        modify(&bob, &[(Add, "description", &["four five"])]),
    );
}

#[test]
fn values_are_listed_elsewhere_and_only_some_entries_are_meant() {
    let rules = [
        "title uri \"ldap:///ou=titles,dc=example,dc=com?cn?one?(objectClass=person)\"",
        "sn regex ^[a-z]*$ restrict=\"ldap:///ou=people,dc=example,dc=com??sub?(title=captain)\"",
    ];
    one_looks(&directory(&rules));
    let stores = config_in_stores().stores(&schema()).unwrap();
    let config = with_rules(config_in_stores(), &rules);
    let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
    begin(&directory);
    one_looks(&directory);
}

fn one_looks<E: Engine>(directory: &Directory<E>) {
    let title = |value: &str| modify(ANN, &[(Replace, "title", &[value])]);
    refused(directory, title("captain"), CODE);
    // In the wrong place, and without the class.
    succeed(directory, person("captain", PEOPLE, ""));
    let lines = "objectClass: device\ncn: captain";
    succeed(directory, add(&format!("cn=captain,{TITLES}"), lines));
    refused(directory, title("captain"), CODE);
    succeed(directory, modify(ANN, &[(Replace, "sn", &["ABC"])]));
    succeed(directory, delete(&format!("cn=captain,{TITLES}")));
    succeed(directory, person("captain", TITLES, ""));
    // By the attribute's own rule.
    succeed(directory, title("Captain"));
    refused(directory, title("mate"), CODE);
    succeed(directory, modify(ANN, &[(Delete, "title", &[])]));
    // What is asked of the entry is asked of it as it becomes.
    let both = modify(
        ANN,
        &[(Replace, "title", &["captain"]), (Replace, "sn", &["DEF"])],
    );
    refused(directory, both, CODE);
    succeed(directory, modify(ANN, &[(Replace, "sn", &["DEF"])]));
    succeed(directory, title("captain"));
    refused(directory, modify(ANN, &[(Replace, "sn", &["GHI"])]), CODE);
    let captain = format!("cn=captain,{TITLES}");
    succeed(directory, modify(&captain, &[(Replace, "sn", &["GHI"])]));
}

#[test]
fn constraints_are_there_when_the_directory_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let rule = "mail,cn regex \"^a \\\"b\\\\\\\\\" restrict=ldap:///dc=example,dc=com??sub";
    let config = with_rules(config(), &[rule, "description count 0"]);
    let directory = create(&path, &config, options());
    drop(directory);
    let store = sapwood_directory::engine::Embedded::open(&path, &sapwood_store::Options::new());
    let engine = crate::made::over(store.unwrap());
    let directory = Directory::open_on(engine, options()).unwrap();
    let snapshot = directory.snapshot().unwrap();
    assert_eq!(snapshot.settings().constraints, config.settings.constraints);
}
