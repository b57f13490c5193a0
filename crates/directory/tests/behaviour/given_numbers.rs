//! The rule `numbers`: entries that have no number get one that is free.

use std::collections::BTreeSet;

use crate::made::{Directory, engine, engine_in};
use sapwood_directory::engine::Engine;
use sapwood_directory::{Config, IndexDefinition, NumbersRule, Settings, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::{Random, SUFFIX};

use crate::query::{Query, query, search};

const PEOPLE: &str = "ou=people,dc=example,dc=com";

fn equality(attribute: &str) -> IndexDefinition {
    IndexDefinition {
        attribute: attribute.into(),
        equality: true,
        ..IndexDefinition::default()
    }
}

fn with_rules(mut config: Config, rules: &[&str]) -> Config {
    let numbers = rules
        .iter()
        .map(|rule| rule.parse::<NumbersRule>().unwrap());
    config.settings = Settings {
        numbers: numbers.collect(),
        ..Settings::default()
    };
    config
        .indexes
        .extend(["uidNumber", "gidNumber"].map(equality));
    config
}

fn begin<E: Engine>(directory: &Directory<E>) {
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    let lines = "objectClass: organizationalUnit\nou: people";
    succeed(directory, add(PEOPLE, lines));
}

fn directory(rules: &[&str]) -> Directory {
    let config = with_rules(config(), rules);
    let directory = Directory::create_on(engine(), &config, options()).unwrap();
    begin(&directory);
    directory
}

fn dn(name: &str) -> String {
    format!("uid={name},{PEOPLE}")
}

fn account(dn: &str, more: &str) -> UpdateRequest {
    let uid = dn.split([',', '=']).nth(1).unwrap();
    let lines = format!(
        "objectClass: account\nobjectClass: posixAccount\nuid: {uid}\ncn: {uid}\nhomeDirectory: /home/{uid}{more}"
    );
    add(dn, &lines)
}

/// The uidNumber and the gidNumber of an entry.
fn numbers<E: Engine>(directory: &Directory<E>, dn: &str) -> (String, String) {
    let asked = Query {
        attributes: &["uidNumber", "gidNumber"],
        ..query(dn, Scope::Base, "(objectClass=*)")
    };
    let lines = search(directory, &asked).entries.remove(0).1;
    let of = |name: &str| {
        let mut values = lines.iter().filter_map(|line| line.strip_prefix(name));
        values.next().unwrap_or_default().to_owned()
    };
    (of("uidNumber: "), of("gidNumber: "))
}

fn both(uid: u64, gid: u64) -> (String, String) {
    (uid.to_string(), gid.to_string())
}

const ACCOUNTS: &str =
    "ldap:///?uidNumber,gidNumber?sub?(objectClass=posixAccount)?x-range=10000-10009";

#[test]
fn who_has_no_number_gets_one_that_is_free() {
    let directory = directory(&[ACCOUNTS]);
    gets(&directory);
    let stores = config_in_stores().stores(&schema()).unwrap();
    let config = with_rules(config_in_stores(), &[ACCOUNTS]);
    let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
    begin(&directory);
    gets(&directory);
}

fn gets<E: Engine>(directory: &Directory<E>) {
    succeed(directory, account(&dn("a"), ""));
    assert_eq!(numbers(directory, &dn("a")), both(10_000, 10_000));
    succeed(directory, account(&dn("b"), "\ngidNumber: 5"));
    assert_eq!(numbers(directory, &dn("b")), both(10_001, 5));
    succeed(directory, account(&dn("c"), "\nuidNumber: 10002"));
    assert_eq!(numbers(directory, &dn("c")), both(10_002, 10_001));
    // What is given is never overwritten, even where it is there already.
    succeed(
        directory,
        account(&dn("d"), "\nuidNumber: 10002\ngidNumber: 7"),
    );
    assert_eq!(numbers(directory, &dn("d")), both(10_002, 7));
    // All of a batch, each its own.
    let batch: Vec<_> = ["e", "f", "g"]
        .map(|name| as_admin(account(&dn(name), "")))
        .into();
    for outcome in directory.apply(&batch).unwrap().outcomes {
        assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    }
    let given = ["e", "f", "g"].map(|name| numbers(directory, &dn(name)).0);
    let given: BTreeSet<String> = given.into();
    assert_eq!(given, ["10003", "10004", "10005"].map(str::to_owned).into());
    // Entries of other classes get none.
    succeed(directory, add(&dn("x"), "objectClass: account\nuid: x"));
    assert_eq!(numbers(directory, &dn("x")), (String::new(), String::new()));
    let class: &[&str] = &["posixAccount"];
    let change = [
        (Add, "objectClass", class),
        (Add, "cn", &["x"]),
        (Add, "homeDirectory", &["/"]),
    ];
    succeed(directory, modify(&dn("x"), &change));
    assert_eq!(numbers(directory, &dn("x")).0, "10006");
    // One that goes leaves a number that is free.
    succeed(directory, delete(&dn("x")));
    succeed(directory, account(&dn("y"), ""));
    assert_eq!(numbers(directory, &dn("y")).0, "10006");
    // Whoever takes a number away gets another one.
    succeed(
        directory,
        modify(&dn("a"), &[(Replace, "uidNumber", &["77"])]),
    );
    succeed(
        directory,
        modify(&dn("a"), &[(Delete, "uidNumber", &["77"])]),
    );
    assert_ne!(numbers(directory, &dn("a")).0, "77");
}

#[test]
fn when_all_are_taken_that_is_told() {
    let directory = directory(&[
        "ldap:///ou=people,dc=example,dc=com?uidNumber,gidNumber?sub?(&(objectClass=posixAccount)(!(description=no)))?\
         x-range=0-9",
    ]);
    for number in 0..10 {
        succeed(&directory, account(&dn(&format!("n{number}")), ""));
    }
    let outcome = refused(
        &directory,
        account(&dn("more"), ""),
        ResultCode::UnwillingToPerform,
    );
    assert!(
        outcome
            .diagnostic
            .contains("all numbers from 0 to 9 are taken"),
        "{outcome:?}"
    );
    succeed(&directory, delete(&dn("n3")));
    succeed(&directory, account(&dn("more"), ""));
    assert_eq!(numbers(&directory, &dn("more")), both(3, 3));
    // Elsewhere, and where the filter says no, the schema asks for numbers.
    let above = format!("uid=a,{SUFFIX}");
    refused(
        &directory,
        account(&above, ""),
        ResultCode::ObjectClassViolation,
    );
    let no = account(&dn("no"), "\ndescription: NO");
    refused(&directory, no, ResultCode::ObjectClassViolation);
}

#[test]
fn no_number_is_given_twice_whatever_is_taken() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let directory = directory(&[
            "ldap:///?uidNumber,gidNumber?sub?(objectClass=posixAccount)?x-range=100-160",
        ]);
        let mut taken = BTreeSet::new();
        for step in 0..90 {
            let name = dn(&format!("n{step}"));
            let more = match random.below(3) {
                0 => format!("\nuidNumber: {}", 95 + random.below(70)),
                _ => String::new(),
            };
            let code = apply(&directory, account(&name, &more)).code;
            let is_full = (100..=160).all(|number| taken.contains(&number));
            if code != ResultCode::Success {
                assert!(more.is_empty() && is_full || code == ResultCode::UnwillingToPerform);
                continue;
            }
            let number: u64 = numbers(&directory, &name).0.parse().unwrap();
            if more.is_empty() {
                assert!(
                    (100..=160).contains(&number) && !taken.contains(&number),
                    "{number}"
                );
            }
            taken.insert(number);
        }
    }
}

#[test]
fn the_overlay_says_who_gets_numbers() {
    let directory = directory(&[]);
    let overlay = |value: &str| {
        let lines = format!(
            "objectClass: sapwoodNumbersConfig\nolcOverlay: numbers\nsapwoodNumbersURI: {value}"
        );
        add("olcOverlay=numbers,olcDatabase={1}mdb,cn=config", &lines)
    };
    for (value, code, word) in [
        ("nonsense", ResultCode::ConstraintViolation, "ldap:///"),
        (
            "ldap:///?cn?sub?(cn=*)?x-range=1-2",
            ResultCode::UnwillingToPerform,
            "no numbers",
        ),
        (
            "ldap:///?uidNumber?sub?(cn=a*)?x-range=1-2",
            ResultCode::UnwillingToPerform,
            "ask for attributes",
        ),
        (
            "ldap:///o=elsewhere?uidNumber?sub?(cn=*)?x-range=1-2",
            ResultCode::UnwillingToPerform,
            "o=elsewhere",
        ),
        (
            "ldap:///?shadowMax?sub?(cn=*)?x-range=1-2",
            ResultCode::UnwillingToPerform,
            "sapwood index DIR add shadowMax eq",
        ),
    ] {
        let outcome = refused(&directory, overlay(value), code);
        assert!(outcome.diagnostic.contains(word), "{outcome:?}");
    }
    succeed(&directory, overlay(ACCOUNTS));
    succeed(&directory, account(&dn("a"), ""));
    assert!(directory.drop_index(&equality("uidNumber")).is_err());
    let shown = search(
        &directory,
        &query("cn=config", Scope::Subtree, "(sapwoodNumbersURI=*)"),
    );
    assert!(
        shown.entries[0]
            .1
            .contains(&format!("sapwoodNumbersURI: {ACCOUNTS}"))
    );
    succeed(
        &directory,
        delete("olcOverlay={8}numbers,olcDatabase={1}mdb,cn=config"),
    );
    refused(
        &directory,
        account(&dn("b"), ""),
        ResultCode::ObjectClassViolation,
    );
}
