//! The matching rule inchainMatch: names followed from entry to entry.

use std::collections::BTreeSet;

use crate::made::{Directory, engine, engine_in};
use crate::query::{Query, query, search};
use sapwood_directory::access::parse_rules;
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Config, Identity, IndexDefinition, MemberOfRule, Policy, SearchOptions, Settings, UpdateRequest,
};
use sapwood_ldap::controls::ASSERTION;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::{Random, SUFFIX};

const RULE: &str = "1.2.840.113556.1.4.1941";

fn with_settings(mut config: Config) -> Config {
    for attribute in ["manager", "uniqueMember"] {
        config.indexes.push(IndexDefinition {
            attribute: attribute.into(),
            equality: true,
            ..IndexDefinition::default()
        });
    }
    let settings = Settings {
        member_of: Some(MemberOfRule::default()),
        ..Settings::default()
    };
    Config { settings, ..config }
}

fn directory() -> Directory {
    let directory = Directory::create_on(engine(), &with_settings(config()), options()).unwrap();
    succeed(&directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    directory
}

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

fn person(name: &str, managers: &[&str]) -> UpdateRequest {
    let mut lines = format!("objectClass: inetOrgPerson\ncn: {name}\nsn: x\nseeAlso: o=x");
    for manager in managers {
        lines.push_str(&format!("\nmanager: {}", dn(manager)));
    }
    add(&dn(name), &lines)
}

fn group(name: &str, members: &[&str]) -> UpdateRequest {
    let mut lines = format!("objectClass: groupOfNames\ncn: {name}");
    for member in members {
        lines.push_str(&format!("\nmember: {}", dn(member)));
    }
    add(&dn(name), &lines)
}

/// The names of the entries that a filter finds, in small steps.
fn found<E: Engine>(directory: &Directory<E>, filter: &str) -> String {
    asked(directory, &query(SUFFIX, Scope::Subtree, filter))
}

fn asked<E: Engine>(directory: &Directory<E>, query: &Query<'_>) -> String {
    let found = search(directory, query);
    // Who may not know of a base is told that it is not there.
    let is_hidden = found.code == ResultCode::NoSuchObject && query.scope == Scope::Base;
    assert!(found.code == ResultCode::Success || is_hidden, "{found:?}");
    let short = |dn: &str| {
        dn.trim_start_matches("cn=")
            .split(',')
            .next()
            .map(String::from)
    };
    let names: BTreeSet<String> = found.dns().into_iter().filter_map(short).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

/// Groups in groups: a < b < c, and a ring of r and s.
fn fill<E: Engine>(directory: &Directory<E>) {
    succeed(directory, person("ann", &[]));
    succeed(directory, person("bob", &["ann"]));
    succeed(directory, person("cyd", &["bob", "gone"]));
    succeed(directory, group("a", &["ann"]));
    succeed(directory, group("b", &["a", "bob"]));
    succeed(directory, group("c", &["b"]));
    succeed(directory, group("r", &["s", "cyd"]));
    succeed(directory, group("s", &["r"]));
}

#[test]
fn names_are_followed_both_ways() {
    let directory = directory();
    fill(&directory);
    looks(&directory);
    let config = with_settings(config_in_stores());
    let stores = config.stores(&schema()).unwrap();
    let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
    succeed(&directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    fill(&directory);
    looks(&directory);
}

fn looks<E: Engine>(directory: &Directory<E>) {
    let item = |attribute: &str, name: &str| format!("({attribute}:{RULE}:={})", dn(name));
    for (filter, expected) in [
        (item("member", "ann"), "a b c"),
        (item("MEMBER", "bob"), "b c"),
        (item("member", "b"), "c"),
        (item("member", "c"), ""),
        (item("member", "cyd"), "r s"),
        (item("member", "r"), "r s"),
        // Nobody needs to be there.
        (item("manager", "gone"), "cyd"),
        (item("manager", "ann"), "bob cyd"),
        (item("memberOf", "a"), "ann"),
        (item("memberOf", "c"), "a ann b bob"),
        (item("memberOf", "r"), "cyd r s"),
        // It is no group, or not there.
        (item("memberOf", "ann"), ""),
        (item("memberOf", "gone"), ""),
        (format!("(member:inchainMatch:=CN=Ann, {SUFFIX})"), "a b c"),
        (format!("(&(cn=a*){})", item("memberOf", "c")), "a ann"),
        (format!("(&(cn=b){})", item("member", "ann")), "b"),
        (format!("(|(cn=cyd){})", item("member", "bob")), "b c cyd"),
        (
            format!("(&(objectClass=groupOfNames)(!{}))", item("member", "ann")),
            "r s",
        ),
        (
            format!("(&(objectClass=person)(!{}))", item("memberOf", "c")),
            "cyd",
        ),
        (
            format!("(&{}{})", item("member", "ann"), item("memberOf", "c")),
            "a b",
        ),
        // Undefined: no name, no attribute of names, none of which is indexed, none at all, and what is not told.
        ("(member:inchainMatch:=ann)".into(), ""),
        ("(cn:inchainMatch:=cn=ann)".into(), ""),
        (format!("(!{})", item("seeAlso", "ann")), ""),
        (format!("(:inchainMatch:={})", dn("ann")), ""),
        (format!("(member:dn:inchainMatch:={})", dn("ann")), ""),
        (format!("(member;x-a:inchainMatch:={})", dn("ann")), ""),
        (format!("(entryDN:inchainMatch:={})", dn("ann")), ""),
    ] {
        assert_eq!(found(directory, &filter), expected, "{filter}");
        // Entry by entry, and as little at a time as there is.
        let mut one_by_one = BTreeSet::new();
        for name in "ann bob cyd a b c r s".split(' ') {
            let base = dn(name);
            let slowly = Query {
                step_work: 1,
                ..query(&base, Scope::Base, &filter)
            };
            one_by_one.insert(asked(directory, &slowly));
        }
        one_by_one.remove("");
        let one_by_one: Vec<String> = one_by_one.into_iter().collect();
        assert_eq!(one_by_one.join(" "), expected, "{filter}");
    }
}

#[test]
fn pages_go_on_where_others_ended() {
    let directory = directory();
    fill(&directory);
    for filter in [
        format!("(member:{RULE}:={})", dn("ann")),
        format!("(memberOf:{RULE}:={})", dn("c")),
    ] {
        let expected = found(&directory, &filter);
        let (mut names, mut cookie) = (BTreeSet::new(), Vec::new());
        loop {
            let page = Query {
                options: SearchOptions {
                    page: Some((1, cookie)),
                    ..SearchOptions::default()
                },
                ..query(SUFFIX, Scope::Subtree, &filter)
            };
            let found = search(&directory, &page);
            names.extend(found.dns().into_iter().map(str::to_owned));
            cookie = found.cookie;
            if cookie.is_empty() {
                break;
            }
        }
        let expected: BTreeSet<String> = expected.split(' ').map(dn).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn an_assertion_follows_names() {
    let directory = directory();
    fill(&directory);
    let only_if = |who: &str, filter: &str| {
        let filter = filter_text::parse(filter).unwrap();
        let change = modify(&dn(who), &[(Replace, "description", &["y"])]);
        with(
            change,
            &[(ASSERTION, true, Some(filter.as_filter().as_ber()))],
        )
    };
    for (who, attribute, name) in [("ann", "memberOf", "c"), ("c", "member", "ann")] {
        let item = format!("({attribute}:{RULE}:={})", dn(name));
        succeed(&directory, only_if(who, &item));
        let refused_of = only_if("cyd", &item);
        refused(&directory, refused_of, ResultCode::AssertionFailed);
    }
}

#[test]
fn a_step_that_may_not_be_searched_does_not_count() {
    let directory = directory();
    fill(&directory);
    let snapshot = directory.snapshot().unwrap();
    let ann = dn("ann");
    let credentials = snapshot
        .through(|snapshot| snapshot.credentials(&ann, 0))
        .unwrap();
    let entry = credentials.unwrap().entry;
    drop(snapshot);
    let sees = |rules: &str, attribute: &str, name: &str| {
        let rules = format!("{rules}\naccess to * by * read");
        let rules = parse_rules(&rules).unwrap().into_iter();
        let rules: Vec<_> = rules.map(|(_, rule)| rule).collect();
        directory.set_access(&Policy::from(rules)).unwrap();
        let filter = format!("({attribute}:{RULE}:={})", dn(name));
        let identity = Identity::User {
            entry,
            dn: ann.clone(),
        };
        let all = Query {
            identity: identity.clone(),
            ..query(SUFFIX, Scope::Subtree, &filter)
        };
        let found = asked(&directory, &all);
        // The same of each by itself.
        let mut names = BTreeSet::new();
        for name in "ann bob cyd a b c r s".split(' ') {
            let base = dn(name);
            let alone = Query {
                identity: identity.clone(),
                ..query(&base, Scope::Base, &filter)
            };
            names.insert(asked(&directory, &alone));
        }
        names.remove("");
        let names: Vec<String> = names.into_iter().collect();
        assert_eq!(names.join(" "), found);
        found
    };
    let (a, b) = (dn("a"), dn("b"));
    assert_eq!(sees("", "member", "ann"), "a b c");
    // The members of b are nobody's to ask: c cannot be reached through it.
    let hidden = format!("access to dn.exact=\"{b}\" attrs=member by * none");
    assert_eq!(sees(&hidden, "member", "ann"), "a");
    assert_eq!(sees(&hidden, "member", "b"), "c");
    let only_read = format!("access to dn.exact=\"{b}\" attrs=member by * =r");
    assert_eq!(sees(&only_read, "member", "ann"), "a");
    let nothing = format!("access to dn.exact=\"{b}\" by * none");
    assert_eq!(sees(&nothing, "member", "ann"), "a");
    // One value of b.
    let value = format!("access to attrs=member val.exact=\"{a}\" by * none");
    assert_eq!(sees(&value, "member", "ann"), "a");
    assert_eq!(sees(&value, "member", "bob"), "b c");
    // Rights on memberOf are those on it of the members.
    assert_eq!(sees("", "memberOf", "c"), "a ann b bob");
    assert_eq!(sees(&hidden, "memberOf", "c"), "a ann b bob");
    let hidden = format!("access to dn.exact=\"{a}\" attrs=memberOf by * none");
    assert_eq!(sees(&hidden, "memberOf", "c"), "b bob");
    assert_eq!(sees(&hidden, "memberOf", "a"), "ann");
    let value = format!("access to attrs=memberOf val.exact=\"{b}\" by * none");
    assert_eq!(sees(&value, "memberOf", "c"), "b");
}

#[test]
fn chains_are_bounded() {
    let directory = directory();
    fill(&directory);
    let item = format!("(memberOf:{RULE}:={})", dn("c"));
    let filter = |items: usize| format!("(&{})", item.repeat(items));
    assert_eq!(found(&directory, &filter(8)), "a ann b bob");
    for scope in [Scope::Subtree, Scope::Base] {
        let filter = filter(9);
        let found = search(&directory, &query(&dn("ann"), scope, &filter));
        assert_eq!(found.code, ResultCode::AdminLimitExceeded);
    }
}

/// Groups at random, and what a simple model finds.
#[test]
fn as_a_model_finds_them() {
    for seed in 0..6 {
        let directory = directory();
        let mut random = Random::new(seed);
        const NODES: usize = 14;
        let name = |node: usize| format!("n{node}");
        let mut names: Vec<BTreeSet<usize>> = Vec::new();
        for node in 0..NODES {
            let is_group = node % 3 != 0;
            let members: BTreeSet<usize> = (0..random.below(9) * usize::from(is_group))
                .map(|_| random.below(NODES))
                .collect();
            let members_named: Vec<String> = members.iter().map(|of| name(*of)).collect();
            let mut all: Vec<&str> = members_named.iter().map(String::as_str).collect();
            all.push("gone");
            succeed(
                &directory,
                match is_group {
                    true => group(&name(node), &all),
                    false => person(&name(node), &[]),
                },
            );
            names.push(members);
        }
        // Some stop being groups for memberOf, and keep their members.
        let gone = dn("gone");
        for node in (1..NODES).step_by(3).take(2) {
            let delete = modify(&dn(&name(node)), &[(Delete, "member", &[&gone])]);
            if !names[node].is_empty() {
                succeed(&directory, delete);
            }
        }
        let above = |from: usize| {
            let (mut reached, mut waiting) = (BTreeSet::new(), vec![from]);
            while let Some(at) = waiting.pop() {
                for (group, members) in names.iter().enumerate() {
                    if members.contains(&at) && reached.insert(group) {
                        waiting.push(group);
                    }
                }
            }
            reached
        };
        let listed = |nodes: BTreeSet<usize>| {
            let nodes: BTreeSet<String> = nodes.into_iter().map(name).collect();
            nodes.into_iter().collect::<Vec<_>>().join(" ")
        };
        for node in 0..NODES {
            let item = |attribute: &str| format!("({attribute}:{RULE}:={})", dn(&name(node)));
            let expected = listed(above(node));
            assert_eq!(found(&directory, &item("member")), expected, "{seed}");
            let below = (0..NODES).filter(|other| above(*other).contains(&node));
            let expected = listed(below.collect());
            assert_eq!(found(&directory, &item("memberOf")), expected, "{seed}");
            let all = format!("(|(cn=none*){}(&(sn=*)(!(cn=*))))", item("memberOf"));
            assert_eq!(found(&directory, &all), expected, "{seed}");
        }
    }
}
