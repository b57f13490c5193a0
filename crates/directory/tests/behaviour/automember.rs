//! The rule `automember`: entries that a filter is true of are members of a group.

use std::collections::BTreeSet;

use crate::made::{Directory, engine, engine_in};
use sapwood_directory::engine::Engine;
use sapwood_directory::{AutomemberRule, Config, RefintRule, Settings, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::{Random, SUFFIX};

use crate::query::{Query, query, search};

const PEOPLE: &str = "ou=people,dc=example,dc=com";
const GROUP: &str = "cn=all,dc=example,dc=com";
/// All people at and below ou=people whose title is x.
const RULE: &str = "ldap:///ou=people,dc=example,dc=com?member?sub?(&(objectClass=person)(title=x))?\
                    x-group=cn=all%2Cdc=example%2Cdc=com";

fn with_rule(config: Config, follows: bool) -> Config {
    let settings = Settings {
        automember: vec![RULE.parse::<AutomemberRule>().unwrap()],
        refint: follows.then(|| RefintRule {
            attributes: vec!["member".into()],
            ..RefintRule::default()
        }),
        ..Settings::default()
    };
    Config { settings, ..config }
}

fn begin<E: Engine>(directory: &Directory<E>) {
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    let lines = "objectClass: organizationalUnit\nou: people";
    succeed(directory, add(PEOPLE, lines));
    let lines = "objectClass: groupOfNames\ncn: all\nmember: o=nobody";
    succeed(directory, add(GROUP, lines));
}

fn directory(follows: bool) -> Directory {
    let config = with_rule(config(), follows);
    let directory = Directory::create_on(engine(), &config, options()).unwrap();
    begin(&directory);
    directory
}

fn dn(name: &str) -> String {
    format!("cn={name},{PEOPLE}")
}

fn person(dn: &str, title: &str) -> UpdateRequest {
    let cn = dn.split([',', '=']).nth(1).unwrap();
    let lines = format!("objectClass: organizationalPerson\ncn: {cn}\nsn: x\ntitle: {title}");
    add(dn, &lines)
}

fn members<E: Engine>(directory: &Directory<E>) -> BTreeSet<String> {
    let asked = Query {
        attributes: &["member"],
        ..query(GROUP, Scope::Base, "(objectClass=*)")
    };
    let lines = search(directory, &asked).entries.remove(0).1;
    let lines = lines
        .iter()
        .filter_map(|line| line.strip_prefix("member: "));
    lines
        .filter(|dn| *dn != "o=nobody")
        .map(str::to_owned)
        .collect()
}

fn set<const N: usize>(values: [String; N]) -> BTreeSet<String> {
    values.into()
}

#[test]
fn who_matches_is_a_member() {
    for follows in [false, true] {
        let directory = directory(follows);
        matching(&directory);
        let stores = config_in_stores().stores(&schema()).unwrap();
        let config = with_rule(config_in_stores(), follows);
        let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
        begin(&directory);
        matching(&directory);
    }
}

fn matching<E: Engine>(directory: &Directory<E>) {
    let (ann, bob, elsewhere) = (dn("ann"), dn("bob"), format!("cn=eve,{SUFFIX}"));
    succeed(directory, person(&ann, "x"));
    succeed(directory, person(&bob, "y"));
    succeed(directory, person(&elsewhere, "x"));
    assert_eq!(members(directory), set([ann.clone()]));
    succeed(directory, modify(&bob, &[(Replace, "title", &["X"])]));
    assert_eq!(members(directory), set([ann.clone(), bob.clone()]));
    succeed(directory, modify(&ann, &[(Delete, "title", &["x"])]));
    assert_eq!(members(directory), set([bob.clone()]));
    succeed(directory, rename(&bob, "cn=rob", true, None));
    assert_eq!(members(directory), set([dn("rob")]));
    succeed(directory, rename(&elsewhere, "cn=eve", true, Some(PEOPLE)));
    assert_eq!(members(directory), set([dn("rob"), dn("eve")]));
    succeed(directory, rename(&dn("rob"), "cn=rob", true, Some(SUFFIX)));
    assert_eq!(members(directory), set([dn("eve")]));
    succeed(directory, delete(&dn("eve")));
    assert_eq!(members(directory), set([]));
    // Without the group there is nothing to do.
    succeed(directory, rename(GROUP, "cn=none", true, None));
    succeed(directory, person(&dn("tom"), "x"));
}

#[test]
fn a_group_that_must_have_members_keeps_its_last() {
    let directory = directory(false);
    succeed(&directory, person(&dn("ann"), "x"));
    succeed(
        &directory,
        modify(GROUP, &[(Delete, "member", &["o=nobody"])]),
    );
    refused(
        &directory,
        delete(&dn("ann")),
        ResultCode::ObjectClassViolation,
    );
    assert_eq!(members(&directory), set([dn("ann")]));
}

#[test]
fn whatever_happens_the_members_are_those_that_match() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let directory = directory(seed % 2 == 0);
        for _ in 0..150 {
            let parent = random.of(&[PEOPLE, SUFFIX]);
            let name = format!("cn=n{},{parent}", random.below(6));
            let title = random.of(&["x", "y", "X"]);
            let request = match random.below(4) {
                0 => person(&name, title),
                1 => modify(&name, &[(Replace, "title", &[title])]),
                2 => delete(&name),
                _ => {
                    let rdn = format!("cn=n{}", random.below(6));
                    rename(&name, &rdn, true, Some(random.of(&[PEOPLE, SUFFIX])))
                }
            };
            apply(&directory, request);
            let matching = query(PEOPLE, Scope::Subtree, "(&(objectClass=person)(title=x))");
            let matching = search(&directory, &matching).entries;
            let expected: BTreeSet<String> = matching.into_iter().map(|(dn, _)| dn).collect();
            assert_eq!(members(&directory), expected, "seed {seed}");
        }
    }
}

#[test]
fn the_overlay_says_who_is_a_member() {
    let directory = directory(false);
    let overlay = "olcOverlay={9}automember,olcDatabase={1}mdb,cn=config";
    succeed(&directory, delete(overlay));
    succeed(&directory, person(&dn("ann"), "x"));
    assert_eq!(members(&directory), set([]));
    let add_rule = |value: &str| {
        let lines = format!(
            "objectClass: sapwoodAutomemberConfig\nolcOverlay: automember\nsapwoodAutomemberURI: {value}"
        );
        add("olcOverlay=automember,olcDatabase={1}mdb,cn=config", &lines)
    };
    for (value, code, word) in [
        ("nonsense", ResultCode::ConstraintViolation, "ldap:///"),
        (
            "ldap:///?cn?sub?(cn=*)?x-group=dc=example%2Cdc=com",
            ResultCode::UnwillingToPerform,
            "names no members",
        ),
        (
            "ldap:///?member?sub?(cn=a*)?x-group=dc=example%2Cdc=com",
            ResultCode::UnwillingToPerform,
            "ask for attributes",
        ),
        (
            "ldap:///?member?sub?(cn=*)?x-group=o=elsewhere",
            ResultCode::UnwillingToPerform,
            "o=elsewhere",
        ),
    ] {
        let outcome = refused(&directory, add_rule(value), code);
        assert!(outcome.diagnostic.contains(word), "{outcome:?}");
    }
    succeed(&directory, add_rule(RULE));
    let shown = search(
        &directory,
        &query("cn=config", Scope::Subtree, "(sapwoodAutomemberURI=*)"),
    );
    assert_eq!(shown.entries[0].0, overlay);
    succeed(
        &directory,
        modify(&dn("ann"), &[(Replace, "title", &["X"])]),
    );
    assert_eq!(members(&directory), set([]), "it matched before");
}
