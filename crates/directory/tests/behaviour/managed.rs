//! The rule `managed`: an entry that a filter is true of has another one made of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::made::{Directory, engine, engine_in};
use sapwood_directory::engine::Engine;
use sapwood_directory::{Config, IndexDefinition, ManagedRule, Settings, UpdateRequest};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::{Random, SUFFIX};

use crate::query::{Query, query, search};

const PEOPLE: &str = "ou=people,dc=example,dc=com";
const GROUPS: &str = "ou=groups,dc=example,dc=com";
const TEMPLATE: &str = "cn=template,dc=example,dc=com";
const OVERLAY: &str = "olcOverlay={12}managed,olcDatabase={1}mdb,cn=config";
/// The accounts at and below ou=people.
const RULE: &str = "ldap:///ou=people,dc=example,dc=com??sub?(objectClass=posixAccount)?\
                    x-template=cn=template%2Cdc=example%2Cdc=com,x-below=ou=groups%2Cdc=example%2Cdc=com";

fn with_rule(config: Config, is_on: bool) -> Config {
    let rule = || RULE.parse::<ManagedRule>().unwrap();
    let settings = Settings {
        managed: is_on.then(rule).into_iter().collect(),
        ..Settings::default()
    };
    let index = |attribute: &str| IndexDefinition {
        attribute: attribute.to_owned(),
        equality: true,
        ..IndexDefinition::default()
    };
    let mut indexes = config.indexes.clone();
    indexes.extend(["mepManagedEntry", "mepManagedBy"].map(index));
    Config {
        settings,
        indexes,
        ..config
    }
}

fn template(lines: &str) -> UpdateRequest {
    let start = "objectClass: applicationProcess\nobjectClass: mepTemplateEntry\ncn: template\n";
    add(TEMPLATE, &format!("{start}{lines}"))
}

/// A group of each account, of its name and number.
const PRIVATE_GROUP: &str = "mepRDNAttr: cn\nmepStaticAttr: objectClass: posixGroup\nmepMappedAttr: cn: $uid\n\
                             mepMappedAttr: gidNumber: $gidNumber\nmepMappedAttr: description: Group of $cn\n";

fn begin<E: Engine>(directory: &Directory<E>) {
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    for (dn, ou) in [(PEOPLE, "people"), (GROUPS, "groups")] {
        let lines = format!("objectClass: organizationalUnit\nou: {ou}");
        succeed(directory, add(dn, &lines));
    }
    succeed(directory, template(PRIVATE_GROUP));
}

fn directory(is_on: bool) -> Directory {
    let config = with_rule(config(), is_on);
    let directory = Directory::create_on(engine(), &config, options()).unwrap();
    begin(&directory);
    directory
}

fn account(uid: &str, number: &str) -> UpdateRequest {
    let lines = format!(
        "objectClass: account\nobjectClass: posixAccount\nuid: {uid}\ncn: The {uid}\nuidNumber: {number}\n\
         gidNumber: {number}\nhomeDirectory: /"
    );
    add(&of(uid), &lines)
}

fn of(uid: &str) -> String {
    format!("uid={uid},{PEOPLE}")
}

fn group(cn: &str) -> String {
    format!("cn={cn},{GROUPS}")
}

/// The entries below one, with the attributes that are asked for.
fn below<E: Engine>(
    directory: &Directory<E>,
    base: &str,
    attributes: &[&str],
) -> BTreeMap<String, BTreeSet<String>> {
    let asked = Query {
        attributes,
        ..query(base, Scope::Subordinates, "(objectClass=*)")
    };
    search(directory, &asked).entries.into_iter().collect()
}

fn set<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.map(str::to_owned).into()
}

const SEEN: &[&str] = &["cn", "gidNumber", "description", "mepManagedBy"];

#[test]
fn what_is_made_follows_what_it_is_made_of() {
    follows(&directory(true));
    let stores = config_in_stores().stores(&schema()).unwrap();
    let config = with_rule(config_in_stores(), true);
    let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
    begin(&directory);
    follows(&directory);
}

fn follows<E: Engine>(directory: &Directory<E>) {
    succeed(directory, account("ann", "1000"));
    let managed_by = format!("mepManagedBy: {}", of("ann"));
    let expected = [
        "cn: ann",
        "gidNumber: 1000",
        "description: Group of The ann",
        &managed_by,
    ];
    let groups = below(directory, GROUPS, SEEN);
    assert_eq!(groups, BTreeMap::from([(group("ann"), set(expected))]));
    let people = below(directory, PEOPLE, &["mepManagedEntry", "modifiersName"]);
    let link = format!("mepManagedEntry: {}", group("ann"));
    let by = "modifiersName: cn=Managed Entries";
    assert_eq!(people[&of("ann")], set([&link, by]));
    // What it has follows, what only it has stays, and what the entry has no more goes.
    succeed(
        directory,
        modify(&group("ann"), &[(Add, "memberUid", &["bob"])]),
    );
    let changes = [
        (Replace, "gidNumber", &["1001"][..]),
        (Replace, "cn", &["Ann <1>", "A, B"][..]),
    ];
    succeed(directory, modify(&of("ann"), &changes));
    let groups = below(
        directory,
        GROUPS,
        &["gidNumber", "description", "memberUid"],
    );
    let expected = [
        "gidNumber: 1001",
        "description: Group of Ann <1>",
        "description: Group of A, B",
        "memberUid: bob",
    ];
    assert_eq!(groups[&group("ann")], set(expected));
    // Names.
    succeed(directory, rename(&of("ann"), "uid=eve", true, None));
    let managed_by = format!("mepManagedBy: {}", of("eve"));
    let groups = below(directory, GROUPS, &["cn", "mepManagedBy"]);
    assert_eq!(groups[&group("eve")], set(["cn: eve", &managed_by]));
    assert_eq!(groups.len(), 1);
    let link = format!("mepManagedEntry: {}", group("eve"));
    let people = below(directory, PEOPLE, &["mepManagedEntry"]);
    assert_eq!(people[&of("eve")], set([&link]));
    // Out of the scope and into it.
    let out = format!("uid=eve,{SUFFIX}");
    succeed(
        directory,
        rename(&of("eve"), "uid=eve", false, Some(SUFFIX)),
    );
    assert_eq!(below(directory, GROUPS, &[]).len(), 0);
    let asked = Query {
        attributes: &["objectClass", "mepManagedEntry"],
        ..query(&out, Scope::Base, "(objectClass=*)")
    };
    let classes = [
        "objectClass: account",
        "objectClass: posixAccount",
        "objectClass: top",
    ];
    assert_eq!(search(directory, &asked).entries[0].1, set(classes));
    succeed(directory, rename(&out, "uid=eve", false, Some(PEOPLE)));
    assert_eq!(below(directory, GROUPS, &[]).len(), 1);
    // What is made goes with the entry.
    succeed(directory, delete(&of("eve")));
    assert_eq!(below(directory, GROUPS, &[]).len(), 0);
}

#[test]
fn trees_that_are_renamed_stay_together() {
    let directory = directory(true);
    succeed(&directory, account("ann", "1000"));
    succeed(&directory, rename(GROUPS, "ou=private", true, None));
    let private = format!("cn=ann,ou=private,{SUFFIX}");
    let link = format!("mepManagedEntry: {private}");
    let people = below(&directory, PEOPLE, &["mepManagedEntry"]);
    assert_eq!(people[&of("ann")], set([&link]));
    let number = [(Replace, "gidNumber", &["1001"][..])];
    succeed(&directory, modify(&of("ann"), &number));
    assert!(holds(&directory, &private, "gidNumber", "1001"));
    succeed(&directory, rename(&of("ann"), "uid=eve", true, None));
    let eve = format!("cn=eve,ou=private,{SUFFIX}");
    assert!(holds(&directory, &eve, "mepManagedBy", &of("eve")));
}

#[test]
fn nothing_comes_between_them() {
    let directory = directory(true);
    succeed(&directory, account("ann", "1000"));
    let refuse = |request, word: &str| {
        let outcome = refused(&directory, request, ResultCode::UnwillingToPerform);
        assert!(outcome.diagnostic.contains(word), "{outcome:?}");
    };
    let made = group("ann");
    refuse(delete(&made), "managed by 'uid=ann");
    refuse(rename(&made, "cn=other", true, None), "be renamed");
    let of_ann = of("ann");
    for change in [
        (Replace, "gidNumber", &["7"][..]),
        (Add, "description", &["more"][..]),
        (Delete, "description", &[][..]),
        (Delete, "mepManagedBy", &[&*of_ann][..]),
    ] {
        refuse(modify(&made, &[change]), "managed");
    }
    // The template stays one.
    refuse(delete(TEMPLATE), "template");
    refuse(rename(TEMPLATE, "cn=other", true, None), "template");
    let change = [(Replace, "mepRDNAttr", &["ou"][..])];
    refuse(modify(TEMPLATE, &change), "mepMappedAttr");
    // What cannot be made has the entry not be added.
    let lines = "objectClass: posixGroup\ncn: bob\ngidNumber: 5";
    succeed(&directory, add(&group("bob"), lines));
    let refusal = refused(
        &directory,
        account("bob", "1001"),
        ResultCode::EntryAlreadyExists,
    );
    assert!(refusal.diagnostic.contains(&group("bob")), "{refusal:?}");
    assert_eq!(below(&directory, PEOPLE, &[]).len(), 1);
    // Somebody who parts them has two entries that have nothing to do with each other.
    let part = [
        (Delete, "mepManagedEntry", &[][..]),
        (Delete, "objectClass", &["mepOriginEntry"][..]),
    ];
    succeed(&directory, modify(&of("ann"), &part));
    succeed(&directory, modify(&made, &[(Replace, "gidNumber", &["7"])]));
    succeed(&directory, delete(&made));
    // And has another one made by the class.
    let class = [(Add, "objectClass", &["mepOriginEntry"][..])];
    succeed(&directory, modify(&of("ann"), &class));
    assert!(holds(&directory, &made, "gidNumber", "1000"));
    // An entry that names another one takes nothing from that.
    let lines = "objectClass: account\nobjectClass: mepOriginEntry\nuid: thief\nmepManagedEntry: ";
    let thief = format!("{lines}{made}");
    succeed(&directory, add(&of("thief"), &thief));
    let class = [
        (Add, "objectClass", &["posixAccount"][..]),
        (Add, "cn", &["x"][..]),
        (Add, "uidNumber", &["1"][..]),
        (Add, "gidNumber", &["1"][..]),
        (Add, "homeDirectory", &["/"][..]),
    ];
    succeed(&directory, modify(&of("thief"), &class));
    succeed(&directory, delete(&of("thief")));
    assert!(holds(&directory, &made, "gidNumber", "1000"));
}

#[test]
fn entries_that_were_there_have_theirs_made() {
    let directory = directory(false);
    let add_rule = || {
        let lines = format!(
            "objectClass: sapwoodManagedConfig\nolcOverlay: managed\nsapwoodManagedURI: {RULE}"
        );
        add("olcOverlay=managed,olcDatabase={1}mdb,cn=config", &lines)
    };
    for uid in ["ann", "bob"] {
        succeed(&directory, account(uid, "1000"));
    }
    let lines = "objectClass: posixGroup\ncn: bob\ngidNumber: 5";
    succeed(&directory, add(&group("bob"), lines));
    succeed(&directory, add_rule());
    let violations = directory.rule_violations("managed", |_| {}).unwrap();
    let there = format!("'{}' is there already", group("bob"));
    assert!(
        violations.told()[0].contains(&there),
        "{:?}",
        violations.told()
    );
    assert_eq!(violations.told().len(), 1);
    succeed(&directory, delete(&group("bob")));
    assert!(
        directory
            .rule_violations("managed", |_| {})
            .unwrap()
            .is_empty()
    );
    let rule = RULE.parse().unwrap();
    assert_eq!(directory.make_managed(&rule).unwrap(), 2);
    assert_eq!(below(&directory, GROUPS, &[]).len(), 2);
    assert_eq!(directory.make_managed(&rule).unwrap(), 0);
    // What was made stays when the rule goes, and is free.
    succeed(&directory, delete(OVERLAY));
    succeed(&directory, delete(&group("ann")));
    succeed(&directory, delete(TEMPLATE));
    succeed(&directory, add_rule());
    assert!(directory.make_managed(&rule).is_err());
    let refusal = refused(
        &directory,
        account("eve", "1000"),
        ResultCode::UnwillingToPerform,
    );
    assert!(refusal.diagnostic.contains("not there"), "{refusal:?}");
    for (value, word) in [
        (
            "ldap:///??sub?(cn=x)?x-template=cn=t%2Co=elsewhere,x-below=o=other",
            "naming contexts",
        ),
        (
            "ldap:///??sub?(cn~=x)?x-template=o=other,x-below=o=other",
            "with and, or and not",
        ),
    ] {
        let request = modify(OVERLAY, &[(Add, "sapwoodManagedURI", &[value])]);
        let outcome = refused(&directory, request, ResultCode::UnwillingToPerform);
        assert!(outcome.diagnostic.contains(word), "{outcome:?}");
    }
}

#[test]
fn whatever_happens_they_say_the_same() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let directory = directory(true);
        let names = ["a", "b", "c"];
        for _ in 0..100 {
            let (one, other) = (random.of(&names), random.of(&names));
            let number = (1000 + random.below(3)).to_string();
            let request = match random.below(7) {
                0 | 1 => account(one, &number),
                2 => delete(&of(one)),
                3 => rename(
                    &of(one),
                    &format!("uid={other}"),
                    random.below(2) == 0,
                    None,
                ),
                4 => modify(&of(one), &[(Add, "uid", &[other])]),
                5 => modify(&group(one), &[(Replace, "gidNumber", &[&number])]),
                _ => modify(&of(one), &[(Replace, "gidNumber", &[&number])]),
            };
            apply(&directory, request);
            let people = below(&directory, PEOPLE, &["mepManagedEntry", "gidNumber", "uid"]);
            let groups = below(&directory, GROUPS, &["mepManagedBy", "gidNumber", "cn"]);
            assert_eq!(people.len(), groups.len(), "seed {seed}");
            for (dn, lines) in &people {
                let made = lines
                    .iter()
                    .find_map(|line| line.strip_prefix("mepManagedEntry: "));
                let mut expected: BTreeSet<String> = lines
                    .iter()
                    .filter(|line| !line.starts_with("mep"))
                    .map(|line| line.replace("uid: ", "cn: "))
                    .collect();
                expected.insert(format!("mepManagedBy: {dn}"));
                assert_eq!(groups[made.unwrap()], expected, "seed {seed}: {dn}");
            }
        }
    }
}
