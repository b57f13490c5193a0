//! The rule `refint`: values follow the entries that they name.

use std::collections::BTreeSet;

use crate::On;
use crate::made::{Directory, engine, engine_in};
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Config, IndexDefinition, RefintRule, Requester, Settings, Ticket, Transaction, Update,
    UpdateRequest,
};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::{ADMIN, SUFFIX};

use crate::query::{query, search};

const OVERLAY: &str = "olcOverlay={3}refint,olcDatabase={1}mdb,cn=config";
const PEOPLE: &str = "ou=people,dc=example,dc=com";
const GROUPS: &str = "ou=groups,dc=example,dc=com";
const ATTRIBUTES: [&str; 4] = ["member", "uniqueMember", "manager", "seeAlso"];

fn rule(nothing: &str) -> RefintRule {
    RefintRule {
        attributes: ATTRIBUTES.map(str::to_owned).into(),
        nothing: nothing.to_owned(),
        ..RefintRule::default()
    }
}

fn with_rule(config: Config, refint: Option<RefintRule>) -> Config {
    let mut indexes = config.indexes;
    indexes.extend(
        ["uniqueMember", "manager", "seeAlso"].map(|attribute| IndexDefinition {
            attribute: attribute.into(),
            equality: true,
            ..IndexDefinition::default()
        }),
    );
    let settings = Settings {
        refint,
        ..Settings::default()
    };
    Config {
        settings,
        indexes,
        ..config
    }
}

fn directory(refint: Option<RefintRule>) -> Directory {
    let directory =
        Directory::create_on(engine(), &with_rule(config(), refint), options()).unwrap();
    begin(&directory);
    directory
}

fn begin<E: Engine>(directory: &Directory<E>) {
    directory.check_rules().unwrap();
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    for (dn, name) in [(PEOPLE, "people"), (GROUPS, "groups")] {
        let lines = format!("objectClass: organizationalUnit\nou: {name}");
        succeed(directory, add(dn, &lines));
    }
    for name in ["ann", "bob", "eve"] {
        succeed(directory, person(name, PEOPLE, ""));
    }
}

fn dn(name: &str, base: &str) -> String {
    format!("cn={name},{base}")
}

fn person(name: &str, base: &str, more: &str) -> UpdateRequest {
    let lines = format!("objectClass: inetOrgPerson\ncn: {name}\nsn: x\n{more}");
    add(&dn(name, base), &lines)
}

fn group(name: &str, members: &[&str]) -> UpdateRequest {
    let mut lines = format!("objectClass: groupOfNames\ncn: {name}");
    for member in members {
        lines.push_str(&format!("\nmember: {member}"));
    }
    add(&dn(name, GROUPS), &lines)
}

/// The values of an attribute of an entry, with their descriptions.
fn values<E: Engine>(directory: &Directory<E>, dn: &str, attribute: &str) -> BTreeSet<String> {
    let found = search(directory, &query(dn, Scope::Base, "(objectClass=*)"));
    let entry = found.entries.into_iter().next();
    let (_, lines) = entry.unwrap_or_else(|| panic!("there is no {dn}"));
    let is_of = |line: &String| {
        let rest = line.strip_prefix(attribute);
        rest.is_some_and(|rest| rest.starts_with([':', ';']))
    };
    lines.into_iter().filter(is_of).collect()
}

fn set(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn clean<E: Engine>(directory: &Directory<E>) {
    let report = directory.check(|_| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn a_value_follows_a_rename_and_vanishes_with_its_entry() {
    let directory = directory(Some(rule("")));
    let (ann, bob) = (dn("ann", PEOPLE), dn("bob", PEOPLE));
    succeed(
        &directory,
        group("g", &["CN=Ann, ou=people,dc=example,dc=com", &bob]),
    );
    let boss = format!("manager: {ann}\nseeAlso: {ann}\nseeAlso;x-a: {ann}\nseeAlso: o=far");
    succeed(&directory, person("may", PEOPLE, &boss));
    succeed(&directory, rename(&ann, "cn=Anna", true, None));
    let g = dn("g", GROUPS);
    let may = dn("may", PEOPLE);
    let anna = format!("cn=Anna,{PEOPLE}");
    assert_eq!(
        values(&directory, &g, "member"),
        set(&[&format!("member: {anna}"), &format!("member: {bob}")])
    );
    assert_eq!(
        values(&directory, &may, "manager"),
        set(&[&format!("manager: {anna}")])
    );
    assert_eq!(
        values(&directory, &may, "seeAlso"),
        set(&[
            &format!("seeAlso: {anna}"),
            &format!("seeAlso;x-a: {anna}"),
            "seeAlso: o=far"
        ])
    );
    succeed(&directory, delete(&anna));
    assert_eq!(
        values(&directory, &g, "member"),
        set(&[&format!("member: {bob}")])
    );
    assert_eq!(values(&directory, &may, "manager"), set(&[]));
    assert_eq!(
        values(&directory, &may, "seeAlso"),
        set(&["seeAlso: o=far"])
    );
    // An entry that is written in another way keeps its name.
    succeed(&directory, rename(&bob, "cn=BOB", true, None));
    assert_eq!(
        values(&directory, &g, "member"),
        set(&[&format!("member: {bob}")])
    );
    clean(&directory);
}

#[test]
fn values_follow_all_entries_of_a_subtree_that_moves() {
    let directory = directory(Some(rule("")));
    subtree(&directory);
    clean(&directory);
    let stores = config_in_stores().stores(&schema()).unwrap();
    let config = with_rule(config_in_stores(), Some(rule("")));
    let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
    begin(&directory);
    subtree(&directory);
    let all: Vec<u16> = (0..stores).collect();
    let shards = directory.shards(&delete(PEOPLE));
    assert!(
        all.iter().all(|store| shards.contains(*store)),
        "{shards:?}"
    );
}

fn subtree<E: Engine>(directory: &Directory<E>) {
    let ann = dn("ann", PEOPLE);
    let below = dn("x", &ann);
    let peoples = "cn=ann,ou=peoples,dc=example,dc=com";
    succeed(
        directory,
        add(
            "ou=peoples,dc=example,dc=com",
            "objectClass: organizationalUnit\nou: peoples",
        ),
    );
    succeed(directory, person("ann", "ou=peoples,dc=example,dc=com", ""));
    // It names itself and one below it, and is below what moves.
    succeed(
        directory,
        person("x", &ann, &format!("seeAlso: {below}\nmanager: {ann}")),
    );
    succeed(
        directory,
        group("g", &[&below, &ann, PEOPLE, peoples, GROUPS]),
    );
    let unique = format!(
        "objectClass: groupOfUniqueNames\ncn: u\nuniqueMember: {ann}#'0101'B\nuniqueMember: {ann}"
    );
    succeed(directory, add(&dn("u", GROUPS), &unique));
    succeed(directory, rename(PEOPLE, "ou=staff", true, Some(GROUPS)));
    let staff = format!("ou=staff,{GROUPS}");
    let (ann, below) = (dn("ann", &staff), dn("x", &dn("ann", &staff)));
    let member = |dn: &str| format!("member: {dn}");
    assert_eq!(
        values(directory, &dn("g", GROUPS), "member"),
        [&*below, &ann, &staff, peoples, GROUPS].map(member).into()
    );
    assert_eq!(
        values(directory, &below, "seeAlso"),
        [format!("seeAlso: {below}")].into()
    );
    assert_eq!(
        values(directory, &below, "manager"),
        [format!("manager: {ann}")].into()
    );
    assert_eq!(
        values(directory, &dn("u", GROUPS), "uniqueMember"),
        [
            format!("uniqueMember: {ann}#'0101'B"),
            format!("uniqueMember: {ann}")
        ]
        .into()
    );
    // What is deleted is named no more, with an identifier or without.
    succeed(directory, group("h", &[&below, GROUPS]));
    succeed(directory, delete(&below));
    assert_eq!(
        values(directory, &dn("h", GROUPS), "member"),
        [member(GROUPS)].into()
    );
    let placeholder = modify(&dn("u", GROUPS), &[(Add, "uniqueMember", &[GROUPS])]);
    succeed(directory, placeholder);
    succeed(directory, delete(&ann));
    assert_eq!(
        values(directory, &dn("u", GROUPS), "uniqueMember"),
        [format!("uniqueMember: {GROUPS}")].into()
    );
}

#[test]
fn the_last_value_of_a_group_stays_or_gives_way_to_nothing() {
    let strict = directory(Some(rule("")));
    let ann = dn("ann", PEOPLE);
    succeed(&strict, group("g", &[&ann]));
    let outcome = refused(&strict, delete(&ann), ResultCode::ObjectClassViolation);
    assert!(outcome.diagnostic.contains("member"), "{outcome:?}");
    let no_op = [(sapwood_ldap::controls::NO_OP, true, None)];
    let tried = with(delete(&ann), &no_op);
    refused(&strict, tried, ResultCode::ObjectClassViolation);
    // Who may delete an entry may not be told of groups.
    assert!(!outcome.diagnostic.contains("cn=g"), "{outcome:?}");
    assert_eq!(outcome.matched_dn, "");
    succeed(&strict, rename(&ann, "cn=anna", true, None));

    let nobody = "cn=nobody";
    let lenient = directory(Some(rule(nobody)));
    succeed(&lenient, group("g", &[&ann]));
    succeed(&lenient, person("may", PEOPLE, &format!("manager: {ann}")));
    succeed(&lenient, delete(&ann));
    assert_eq!(
        values(&lenient, &dn("g", GROUPS), "member"),
        set(&["member: cn=nobody"])
    );
    assert_eq!(
        values(&lenient, &dn("may", PEOPLE), "manager"),
        set(&["manager: cn=nobody"])
    );
}

#[test]
fn members_of_large_groups_follow_one_by_one() {
    let directory = directory(Some(rule("cn=nobody")));
    let long = format!("cn={},{PEOPLE}", "y".repeat(300));
    let lines = format!("objectClass: inetOrgPerson\ncn: {}\nsn: x", "y".repeat(300));
    succeed(&directory, add(&long, &lines));
    let names: Vec<String> = (0..30)
        .map(|number| dn(&format!("m{number}"), PEOPLE))
        .collect();
    let mut members: Vec<&str> = names.iter().map(String::as_str).collect();
    members.extend([&*long, GROUPS]);
    for name in &names {
        let lines = "objectClass: person\nsn: x";
        succeed(&directory, add(name, lines));
    }
    succeed(&directory, group("g", &members));
    let g = dn("g", GROUPS);
    succeed(&directory, rename(&names[7], "cn=seven", true, None));
    succeed(&directory, delete(&names[8]));
    succeed(&directory, rename(&long, "cn=short", true, None));
    succeed(&directory, rename(PEOPLE, "ou=staff", true, None));
    let staff = "ou=staff,dc=example,dc=com";
    let numbered = (0..30).filter(|number| ![7, 8].contains(number));
    let mut expected: BTreeSet<String> = numbered
        .map(|number| format!("member: cn=m{number},{staff}"))
        .collect();
    expected.insert(format!("member: cn=seven,{staff}"));
    expected.insert(format!("member: cn=short,{staff}"));
    expected.insert(format!("member: {GROUPS}"));
    assert_eq!(values(&directory, &g, "member"), expected);
    clean(&directory);
}

#[test]
fn what_follows_is_part_of_the_update() {
    let directory = directory(Some(rule("")));
    let (ann, bob) = (dn("ann", PEOPLE), dn("bob", PEOPLE));
    succeed(&directory, group("g", &[&ann, &bob]));
    let before = directory.snapshot().unwrap().commit();
    let both = vec![
        rename(&ann, "cn=anna", true, None),
        modify(&dn("g", GROUPS), &[(Delete, "member", &[&bob])]),
        modify(&dn("g", GROUPS), &[(Add, "member", &[GROUPS])]),
        delete(&dn("anna", PEOPLE)),
    ];
    let transaction = |requests: Vec<UpdateRequest>| {
        UpdateRequest::Transaction(Transaction {
            updates: (1..).zip(requests).collect(),
            is_trial: false,
        })
    };
    succeed(&directory, transaction(both));
    assert_eq!(directory.snapshot().unwrap().commit().0, before.0 + 1);
    assert_eq!(
        values(&directory, &dn("g", GROUPS), "member"),
        set(&[&format!("member: {GROUPS}")])
    );
    // The last one cannot go, and nothing is done.
    succeed(
        &directory,
        modify(&dn("g", GROUPS), &[(Replace, "member", &[&bob])]),
    );
    let failing = vec![
        rename(&bob, "cn=rob", true, None),
        delete(&dn("rob", PEOPLE)),
    ];
    let outcome = refused(
        &directory,
        transaction(failing),
        ResultCode::ObjectClassViolation,
    );
    assert_eq!(outcome.settlement.unwrap().failed, Some(2));
    assert_eq!(
        values(&directory, &dn("g", GROUPS), "member"),
        set(&[&format!("member: {bob}")])
    );
    // Those of a batch see each other.
    succeed(
        &directory,
        modify(&dn("g", GROUPS), &[(Add, "member", &[GROUPS])]),
    );
    let batch = [
        rename(&bob, "cn=rob", true, None),
        rename(&dn("rob", PEOPLE), "cn=robin", true, None),
        person("bob", PEOPLE, ""),
        delete(&dn("bob", PEOPLE)),
    ];
    let batch: Vec<_> = batch.into_iter().map(as_admin).collect();
    let applied = directory.apply(&batch).unwrap();
    assert!(
        applied
            .outcomes
            .iter()
            .all(|outcome| outcome.code == ResultCode::Success)
    );
    applied.ticket.unwrap().wait().unwrap();
    assert_eq!(
        values(&directory, &dn("g", GROUPS), "member"),
        set(&[
            &format!("member: {}", dn("robin", PEOPLE)),
            &format!("member: {GROUPS}")
        ])
    );
    clean(&directory);
}

#[test]
fn who_made_the_changes_that_follow_is_told() {
    let directory = directory(None);
    let ann = dn("ann", PEOPLE);
    succeed(&directory, group("g", &[&ann, PEOPLE]));
    let modifier = || {
        let query = query("", Scope::Subtree, "(cn=g)");
        let query = crate::query::Query {
            attributes: &["modifiersName"],
            ..query
        };
        let found = search(&directory, &query).entries.remove(0).1;
        found.into_iter().next().unwrap()
    };
    let lines = "objectClass: olcOverlayConfig\nobjectClass: olcRefintConfig\nolcOverlay: refint\n\
                 olcRefintAttribute: member manager\nolcRefintAttribute: seeAlso";
    succeed(
        &directory,
        add("olcOverlay=refint,olcDatabase={1}mdb,cn=config", lines),
    );
    succeed(&directory, rename(&ann, "cn=anna", true, None));
    assert_eq!(
        modifier(),
        "modifiersName: cn=Referential Integrity Overlay"
    );
    let set = modify(OVERLAY, &[(Replace, "olcRefintModifiersName", &["cn=who"])]);
    succeed(&directory, set);
    succeed(
        &directory,
        rename(&dn("anna", PEOPLE), "cn=ann", true, None),
    );
    assert_eq!(modifier(), "modifiersName: cn=who");
    let shown = search(
        &directory,
        &query("cn=config", Scope::Subtree, "(olcRefintAttribute=*)"),
    );
    let (dn, lines) = &shown.entries[0];
    assert_eq!(dn, OVERLAY);
    for line in [
        "olcRefintAttribute: member",
        "olcRefintAttribute: manager",
        "olcRefintAttribute: seeAlso",
        "olcRefintModifiersName: cn=who",
        "olcOverlay: {3}refint",
    ] {
        assert!(lines.contains(line), "{lines:?}");
    }
    // Once it is gone, nothing follows.
    succeed(&directory, delete(OVERLAY));
    succeed(&directory, rename(&ann, "cn=anna", true, None));
    assert_eq!(
        values(&directory, &crate::refint::dn("g", GROUPS), "member"),
        [format!("member: {ann}"), format!("member: {PEOPLE}")].into()
    );
}

#[test]
fn what_another_replica_tells_is_followed_by_nothing() {
    let directory = directory(Some(rule("")));
    let ann = dn("ann", PEOPLE);
    succeed(&directory, group("g", &[&ann]));
    let told = Update {
        requester: Requester::replica(ADMIN),
        request: delete(&ann),
    };
    let applied = directory.apply(&[told]).unwrap();
    assert_eq!(applied.outcomes[0].code, ResultCode::Success);
    applied.ticket.unwrap().wait().unwrap();
    assert_eq!(
        values(&directory, &dn("g", GROUPS), "member"),
        set(&[&format!("member: {ann}")])
    );
}

#[test]
fn values_that_name_no_entry_are_told() {
    let directory = directory(Some(rule("cn=nobody,dc=example,dc=com")));
    let (ann, gone) = (dn("ann", PEOPLE), dn("gone", PEOPLE));
    let names = ["o=elsewhere", "cn=nobody,dc=example,dc=com", &ann, &gone];
    succeed(&directory, group("g", &names));
    let many: Vec<String> = (0..9)
        .map(|number| dn(&format!("m{number}"), GROUPS))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    succeed(&directory, group("h", &many));
    let violations = directory.rule_violations("refint", |_| {}).unwrap();
    let told = violations.told();
    assert_eq!(told.len(), 10, "{told:?}");
    assert_eq!(
        told[0],
        format!("member: '{gone}' in 'cn=g,{GROUPS}' is no entry's name")
    );
    // Names of entries that are to come may be written before, and follow nothing.
    succeed(&directory, person("gone", PEOPLE, ""));
    assert_eq!(
        directory
            .rule_violations("refint", |_| {})
            .unwrap()
            .told()
            .len(),
        9
    );
}

#[test]
fn a_rule_that_cannot_be_kept_is_told_of() {
    let open = |attributes: &[&str], nothing: &str| {
        let rule = RefintRule {
            attributes: attributes.iter().map(|name| (*name).to_owned()).collect(),
            nothing: nothing.into(),
            ..RefintRule::default()
        };
        Directory::create_on(engine(), &with_rule(config(), Some(rule)), options())
    };
    for (attributes, nothing, word) in [
        (&[][..], "", "one attribute at least"),
        (&["nonsense"], "", "nonsense"),
        (&["cn"], "", "cn does not name entries"),
        (&["creatorsName"], "", "kept by the server"),
        (&["member"], "no dn", "no dn"),
    ] {
        let error = open(attributes, nothing).err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
    let without_index = open(&["owner"], "").unwrap();
    let error = without_index.check_rules().unwrap_err().to_string();
    assert!(error.contains("sapwood index DIR add owner eq"), "{error}");
    seed(&without_index);
    let cn = format!("cn=x,{SUFFIX}");
    succeed(
        &without_index,
        add(&cn, "objectClass: person\ncn: x\nsn: x"),
    );
    refused(&without_index, delete(&cn), ResultCode::UnwillingToPerform);
    let index = IndexDefinition {
        attribute: "owner".into(),
        equality: true,
        ..IndexDefinition::default()
    };
    without_index.add_index(&index, |_| {}).unwrap();
    succeed(&without_index, delete(&cn));
    assert!(without_index.drop_index(&index).is_err());

    let directory = directory(None);
    let overlay = |lines: &str| {
        let lines = format!("objectClass: olcRefintConfig\nolcOverlay: refint\n{lines}");
        add(OVERLAY, &lines)
    };
    for (lines, code, word) in [
        ("", ResultCode::UnwillingToPerform, "one attribute at least"),
        (
            "olcRefintAttribute: owner",
            ResultCode::UnwillingToPerform,
            "sapwood index DIR add owner eq",
        ),
        (
            "olcRefintAttribute: cn",
            ResultCode::UnwillingToPerform,
            "cn does not name entries",
        ),
        (
            "olcRefintAttribute: a;b",
            ResultCode::ConstraintViolation,
            "without options",
        ),
        (
            "olcRefintAttribute: member member",
            ResultCode::AttributeOrValueExists,
            "there already",
        ),
        (
            "olcRefintAttribute: member\nolcRefintNothing: x",
            ResultCode::ConstraintViolation,
            "not a DN",
        ),
        (
            "olcSizeLimit: 3",
            ResultCode::UnwillingToPerform,
            "not set in",
        ),
    ] {
        let outcome = refused(&directory, overlay(lines), code);
        assert!(outcome.diagnostic.contains(word), "{outcome:?}");
    }
    succeed(&directory, overlay("olcRefintAttribute: member"));
    refused(
        &directory,
        overlay("olcRefintAttribute: member"),
        ResultCode::EntryAlreadyExists,
    );
    let change = |kind, values: &[&str]| modify(OVERLAY, &[(kind, "olcRefintAttribute", values)]);
    succeed(&directory, change(Add, &["manager"]));
    refused(
        &directory,
        change(Delete, &["seeAlso"]),
        ResultCode::NoSuchAttribute,
    );
    succeed(&directory, change(Delete, &["MEMBER"]));
    refused(
        &directory,
        change(Delete, &["manager"]),
        ResultCode::UnwillingToPerform,
    );
    succeed(&directory, change(Replace, &["seeAlso", "member"]));
    let settings = directory.snapshot().unwrap().settings().clone();
    assert_eq!(settings.refint.unwrap().attributes, ["seeAlso", "member"]);
    let cannot = change(Replace, &["seeAlso", "x;y"]);
    refused(&directory, cannot, ResultCode::ConstraintViolation);
    let elsewhere = modify(
        "olcDatabase={1}mdb,cn=config",
        &[(Replace, "olcRefintAttribute", &["member"])],
    );
    refused(&directory, elsewhere, ResultCode::UnwillingToPerform);
}

#[test]
fn more_than_can_follow_is_refused() {
    if <On as Engine>::REMOTE {
        // Ten thousand entries that are not here at first take minutes.
        return;
    }
    let directory = directory(Some(rule("")));
    let ann = dn("ann", PEOPLE);
    let people: Vec<_> = (0..10_001)
        .map(|number| {
            let more = format!("manager: {ann}");
            as_admin(person(&format!("p{number}"), PEOPLE, &more))
        })
        .collect();
    for batch in people.chunks(1000) {
        directory
            .apply(batch)
            .unwrap()
            .ticket
            .unwrap()
            .wait()
            .unwrap();
    }
    let outcome = refused(&directory, delete(&ann), ResultCode::AdminLimitExceeded);
    assert!(outcome.diagnostic.contains("10000 entries"), "{outcome:?}");
    // The entries above them count, too.
    for number in 0..10 {
        succeed(&directory, delete(&dn(&format!("p{number}"), PEOPLE)));
    }
    succeed(&directory, delete(&ann));
    assert_eq!(
        search(&directory, &query(SUFFIX, Scope::Subtree, "(manager=*)"))
            .entries
            .len(),
        0
    );
}
