//! The rule `memberof`: entries have the groups that name them.

use std::collections::BTreeSet;

use crate::made::{Directory, engine, engine_in};
use sapwood_directory::access::parse_rules;
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Config, Identity, IndexDefinition, MemberOfRule, Policy, Settings, UpdateRequest,
};
use sapwood_ldap::controls::ASSERTION;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;

use crate::query::{Query, query, search};

const OVERLAY: &str = "olcOverlay={4}memberof,olcDatabase={1}mdb,cn=config";
const PEOPLE: &str = "ou=people,dc=example,dc=com";

fn with_rule(config: Config, rule: Option<MemberOfRule>) -> Config {
    let settings = Settings {
        member_of: rule,
        ..Settings::default()
    };
    Config { settings, ..config }
}

/// Ann and Bob are in the group g, Bob is in the group h, and groups are in groups.
fn directory(rule: Option<MemberOfRule>) -> Directory {
    let directory = Directory::create_on(engine(), &with_rule(config(), rule), options()).unwrap();
    begin(&directory);
    directory
}

fn begin<E: Engine>(directory: &Directory<E>) {
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    let lines = "objectClass: organizationalUnit\nou: people";
    succeed(directory, add(PEOPLE, lines));
    for name in ["ann", "bob", "eve"] {
        succeed(directory, person(name));
    }
    let (ann, bob) = (dn("ann"), dn("bob"));
    succeed(directory, group("g", &[&ann, &bob]));
    succeed(
        directory,
        group("h", &["CN=Bob, ou=People, dc=example, dc=com", "o=far"]),
    );
    succeed(directory, group("i", &[&of("g"), &dn("gone")]));
}

fn dn(name: &str) -> String {
    format!("cn={name},{PEOPLE}")
}

fn of(group: &str) -> String {
    format!("cn={group},{SUFFIX}")
}

fn person(name: &str) -> UpdateRequest {
    add(
        &dn(name),
        &format!("objectClass: person\ncn: {name}\nsn: x"),
    )
}

fn group(name: &str, members: &[&str]) -> UpdateRequest {
    let mut lines = format!("objectClass: groupOfNames\ncn: {name}");
    for member in members {
        lines.push_str(&format!("\nmember: {member}"));
    }
    add(&of(name), &lines)
}

/// The groups of an entry.
fn groups<E: Engine>(directory: &Directory<E>, dn: &str, asked: &str) -> BTreeSet<String> {
    let found = search(
        directory,
        &Query {
            attributes: &[asked],
            ..query(dn, Scope::Base, "(objectClass=*)")
        },
    );
    let lines = found.entries.into_iter().flat_map(|(_, lines)| lines);
    lines
        .filter_map(|line| Some(line.strip_prefix("memberOf: ")?.to_owned()))
        .collect()
}

/// The entries that a filter finds.
fn found<E: Engine>(directory: &Directory<E>, filter: &str) -> BTreeSet<String> {
    let found = search(directory, &query("", Scope::Subtree, filter));
    found.entries.into_iter().map(|(dn, _)| dn).collect()
}

fn set<const N: usize>(values: [String; N]) -> BTreeSet<String> {
    values.into()
}

#[test]
fn groups_are_shown_and_searched_for() {
    let directory = directory(Some(MemberOfRule::default()));
    looks(&directory);
    let stores = config_in_stores().stores(&schema()).unwrap();
    let config = with_rule(config_in_stores(), Some(MemberOfRule::default()));
    let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
    begin(&directory);
    looks(&directory);
}

fn looks<E: Engine>(directory: &Directory<E>) {
    directory.check_rules().unwrap();
    let (ann, bob) = (dn("ann"), dn("bob"));
    for asked in ["memberOf", "MEMBEROF", "1.2.840.113556.1.2.102", "+"] {
        assert_eq!(
            groups(directory, &bob, asked),
            set([of("g"), of("h")]),
            "{asked}"
        );
    }
    assert_eq!(groups(directory, &ann, "memberOf"), set([of("g")]));
    assert_eq!(groups(directory, &of("g"), "memberOf"), set([of("i")]));
    // Only who asks for it is told.
    assert_eq!(groups(directory, &ann, "*"), set([]));
    assert_eq!(groups(directory, &dn("eve"), "memberOf"), set([]));
    for (filter, expected) in [
        (
            format!("(memberOf={})", of("g")),
            set([dn("ann"), dn("bob")]),
        ),
        (format!("(memberOf=CN=H, {SUFFIX})"), set([dn("bob")])),
        (format!("(memberOf={})", of("i")), set([of("g")])),
        // Neither is a group.
        (format!("(memberOf={})", of("none")), set([])),
        (format!("(memberOf={ann})"), set([])),
        ("(memberOf=o=elsewhere)".to_owned(), set([])),
        ("(memberOf=no dn)".to_owned(), set([])),
        (
            "(memberOf=*)".to_owned(),
            set([dn("ann"), dn("bob"), of("g")]),
        ),
        (
            format!("(&(memberOf={})(memberOf={}))", of("g"), of("h")),
            set([dn("bob")]),
        ),
        (
            format!("(&(cn=ann)(!(memberOf={})))", of("h")),
            set([dn("ann")]),
        ),
        (
            format!("(|(memberOf={})(memberOf={}))", of("i"), of("h")),
            set([dn("bob"), of("g")]),
        ),
        (
            format!("(memberOf:dnSubtreeMatch:={SUFFIX})"),
            set([dn("ann"), dn("bob"), of("g")]),
        ),
    ] {
        assert_eq!(found(directory, &filter), expected, "{filter}");
    }
    assert!(holds(directory, &ann, "memberOf", &of("g")));
    assert!(!holds(directory, &ann, "memberOf", &of("h")));
}

#[test]
fn a_group_that_changes_changes_what_its_members_have() {
    let directory = directory(Some(MemberOfRule::default()));
    let (ann, eve, g) = (dn("ann"), dn("eve"), of("g"));
    succeed(
        &directory,
        modify(&g, &[(Add, "member", &[&eve]), (Delete, "member", &[&ann])]),
    );
    assert_eq!(groups(&directory, &eve, "memberOf"), set([g.clone()]));
    assert_eq!(groups(&directory, &ann, "memberOf"), set([]));
    succeed(&directory, rename(&g, "cn=gg", true, None));
    assert_eq!(groups(&directory, &eve, "memberOf"), set([of("gg")]));
    assert_eq!(found(&directory, &format!("(memberOf={g})")), set([]));
    // A name that comes to be is a member at once.
    succeed(&directory, person("gone"));
    assert_eq!(groups(&directory, &dn("gone"), "memberOf"), set([of("i")]));
    succeed(&directory, delete(&of("gg")));
    assert_eq!(groups(&directory, &eve, "memberOf"), set([]));
    // Nobody writes it.
    for kind in [Add, Replace] {
        let write = modify(&ann, &[(kind, "memberOf", &[&of("h")])]);
        refused(&directory, write, ResultCode::ConstraintViolation);
    }
}

#[test]
fn updates_that_depend_on_groups_see_those_of_their_transaction() {
    let directory = directory(Some(MemberOfRule::default()));
    let (ann, eve) = (dn("ann"), dn("eve"));
    let only_if = |who: &str, group: &str| {
        let filter = filter_text::parse(&format!("(memberOf={group})")).unwrap();
        let change = modify(who, &[(Replace, "sn", &["y"])]);
        with(
            change,
            &[(ASSERTION, true, Some(filter.as_filter().as_ber()))],
        )
    };
    succeed(&directory, only_if(&ann, &of("g")));
    refused(
        &directory,
        only_if(&eve, &of("g")),
        ResultCode::AssertionFailed,
    );
    let both = [
        modify(&of("g"), &[(Add, "member", &[&eve])]),
        only_if(&eve, &of("g")),
    ];
    let batch: Vec<_> = both.into_iter().map(as_admin).collect();
    let outcomes = directory.apply(&batch).unwrap().outcomes;
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.code == ResultCode::Success),
        "{outcomes:?}"
    );
}

#[test]
fn members_of_large_groups_are_found_by_their_values() {
    let directory = directory(Some(MemberOfRule::default()));
    let names: Vec<String> = (0..60).map(|number| format!("m{number}")).collect();
    for name in &names {
        succeed(&directory, person(name));
    }
    let long = format!("cn={},{PEOPLE}", "y".repeat(300));
    succeed(
        &directory,
        add(
            &long,
            &format!("objectClass: person\ncn: {}\nsn: x", "y".repeat(300)),
        ),
    );
    let members: Vec<String> = names.iter().map(|name| dn(name)).collect();
    let mut all: Vec<&str> = members.iter().map(String::as_str).collect();
    all.extend(["o=far", &long]);
    succeed(&directory, group("large", &all));
    let large = format!("(memberOf={})", of("large"));
    let mut expected: BTreeSet<String> = members.iter().cloned().collect();
    expected.insert(long.clone());
    assert_eq!(found(&directory, &large), expected);
    assert_eq!(groups(&directory, &long, "memberOf"), set([of("large")]));
    // A little at a time.
    let slowly = Query {
        step_work: 1,
        step_entries: 1,
        ..query(SUFFIX, Scope::Subtree, &large)
    };
    let slowly = search(&directory, &slowly).entries;
    assert_eq!(
        slowly
            .into_iter()
            .map(|(dn, _)| dn)
            .collect::<BTreeSet<_>>(),
        expected
    );
    assert_eq!(
        found(&directory, &format!("(&{large}(cn=m7))")),
        set([dn("m7")])
    );
    let either = format!("(|{large}(memberOf={}))", of("h"));
    expected.insert(dn("bob"));
    assert_eq!(found(&directory, &either), expected);
}

#[test]
fn the_overlay_says_what_a_group_is() {
    let directory = directory(None);
    // Without it there is no memberOf.
    assert_eq!(groups(&directory, &dn("ann"), "+"), set([]));
    assert_eq!(found(&directory, "(memberOf=*)"), set([]));
    assert_eq!(
        found(&directory, &format!("(memberOf={})", of("g"))),
        set([])
    );
    let overlay = |lines: &str| {
        let lines = format!("objectClass: olcMemberOfConfig\nolcOverlay: memberof\n{lines}");
        add("olcOverlay=memberof,olcDatabase={1}mdb,cn=config", &lines)
    };
    for (lines, code, word) in [
        (
            "olcMemberOfGroupOC: nonsense",
            ResultCode::UnwillingToPerform,
            "nonsense",
        ),
        (
            "olcMemberOfMemberAD: cn",
            ResultCode::UnwillingToPerform,
            "names no members",
        ),
        (
            "olcMemberOfMemberAD: uniqueMember",
            ResultCode::UnwillingToPerform,
            "sapwood index DIR add uniqueMember eq",
        ),
        (
            "olcMemberOfDangling: error",
            ResultCode::ConstraintViolation,
            "write ignore",
        ),
        (
            "olcMemberOfMemberOfAD: seeAlso",
            ResultCode::ConstraintViolation,
            "write memberOf",
        ),
        (
            "olcMemberOfDN: cn=x",
            ResultCode::UnwillingToPerform,
            "nothing is written",
        ),
    ] {
        let outcome = refused(&directory, overlay(lines), code);
        assert!(outcome.diagnostic.contains(word), "{outcome:?}");
    }
    succeed(
        &directory,
        overlay("olcMemberOfDangling: ignore\nolcMemberOfMemberOfAD: memberOf"),
    );
    refused(&directory, overlay(""), ResultCode::EntryAlreadyExists);
    assert_eq!(groups(&directory, &dn("ann"), "memberOf"), set([of("g")]));
    let equality = |attribute: &str| IndexDefinition {
        attribute: attribute.into(),
        equality: true,
        ..IndexDefinition::default()
    };
    assert!(directory.drop_index(&equality("member")).is_err());
    // Groups of another class, and of another attribute.
    let unique = format!(
        "objectClass: groupOfUniqueNames\ncn: u\nuniqueMember: {}\nuniqueMember: {}#'01'B",
        dn("ann"),
        dn("eve")
    );
    succeed(&directory, add(&of("u"), &unique));
    directory
        .add_index(&equality("uniqueMember"), |_| {})
        .unwrap();
    let change = |attribute, value: &str| modify(OVERLAY, &[(Replace, attribute, &[value])]);
    succeed(
        &directory,
        change("olcMemberOfGroupOC", "groupOfUniqueNames"),
    );
    assert_eq!(groups(&directory, &dn("ann"), "memberOf"), set([]));
    succeed(&directory, change("olcMemberOfMemberAD", "uniqueMember"));
    assert_eq!(groups(&directory, &dn("ann"), "memberOf"), set([of("u")]));
    assert_eq!(
        found(&directory, &format!("(memberOf={})", of("u"))),
        set([dn("ann")])
    );
    let shown = search(
        &directory,
        &query("cn=config", Scope::Subtree, "(olcMemberOfMemberAD=*)"),
    );
    let (entry, lines) = &shown.entries[0];
    assert_eq!(entry, OVERLAY);
    assert!(
        lines.contains("olcMemberOfGroupOC: groupOfUniqueNames"),
        "{lines:?}"
    );
    succeed(&directory, delete(OVERLAY));
    assert_eq!(groups(&directory, &dn("ann"), "memberOf"), set([]));
    directory.drop_index(&equality("uniqueMember")).unwrap();
}

#[test]
fn rights_are_those_on_the_attribute_of_the_entry() {
    let directory = directory(Some(MemberOfRule::default()));
    let ann = dn("ann");
    let snapshot = directory.snapshot().unwrap();
    let credentials = snapshot
        .through(|snapshot| snapshot.credentials(&ann, 0))
        .unwrap();
    let identity = Identity::User {
        entry: credentials.unwrap().entry,
        dn: ann.clone(),
    };
    drop(snapshot);
    let sees = |rules: &str| {
        let rules: Vec<_> = parse_rules(rules)
            .unwrap()
            .into_iter()
            .map(|(_, rule)| rule)
            .collect();
        directory.set_access(&Policy::from(rules)).unwrap();
        let query = |filter, attributes| Query {
            attributes,
            identity: identity.clone(),
            ..query(SUFFIX, Scope::Subtree, filter)
        };
        let filter = format!("(memberOf={})", of("g"));
        let searched = search(&directory, &query(&filter, &["1.1"])).entries.len();
        let shown = search(&directory, &query("(cn=ann)", &["memberOf"]))
            .entries
            .remove(0)
            .1;
        (searched, shown.len())
    };
    assert_eq!(
        sees("access to attrs=memberOf by * none\naccess to * by * read"),
        (0, 0)
    );
    assert_eq!(
        sees("access to attrs=memberOf by * search\naccess to * by * read"),
        (2, 0)
    );
    // As with OpenLDAP, the group itself may be hidden.
    let group = of("g");
    let hidden = format!("access to dn.exact=\"{group}\" by * none\naccess to * by * read");
    assert_eq!(sees(&hidden), (2, 1));
    let own =
        format!("access to dn.exact=\"{ann}\" attrs=memberOf by * none\naccess to * by * read");
    assert_eq!(sees(&own), (1, 0));
}

#[test]
fn groups_follow_their_members_if_the_overlay_says_so() {
    let rule = MemberOfRule {
        follows: true,
        ..MemberOfRule::default()
    };
    let directory = directory(Some(rule));
    let (ann, anna) = (dn("ann"), dn("anna"));
    succeed(&directory, rename(&ann, "cn=anna", true, None));
    assert_eq!(groups(&directory, &anna, "memberOf"), set([of("g")]));
    assert_eq!(
        found(&directory, &format!("(member={anna})")),
        set([of("g")])
    );
    succeed(&directory, delete(&anna));
    assert_eq!(found(&directory, &format!("(member={anna})")), set([]));
}
