//! The rule `dynlist`: groups and lists have what their LDAP URLs find.

use std::collections::BTreeSet;

use crate::made::{Directory, engine, engine_in};
use sapwood_directory::access::parse_rules;
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Budget, CompareOptions, Config, Identity, Policy, Search, SearchOptions, Settings, Step,
    UpdateRequest, Wire,
};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;

use crate::query::{Query, asked, query, search};

const OVERLAY: &str = "olcOverlay={6}dynlist,olcDatabase={1}mdb,cn=config";
const PEOPLE: &str = "ou=people,dc=example,dc=com";
/// All people whose sn is x.
const ALL_X: &str = "ldap:///ou=people,dc=example,dc=com??sub?(sn=x)";

fn with_rules(config: Config, rules: &[&str]) -> Config {
    let rules = rules.iter().map(|rule| rule.parse().unwrap());
    let settings = Settings {
        dynlist: rules.collect(),
        ..Settings::default()
    };
    Config { settings, ..config }
}

/// Ann, Bob and Eve, of whom the first two have the sn x.
fn directory(rules: &[&str]) -> Directory {
    let directory =
        Directory::create_on(engine(), &with_rules(config(), rules), options()).unwrap();
    begin(&directory);
    directory
}

fn begin<E: Engine>(directory: &Directory<E>) {
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    let lines = "objectClass: organizationalUnit\nou: people";
    succeed(directory, add(PEOPLE, lines));
    for (name, sn, mail) in [
        ("ann", "x", "a@x"),
        ("bob", "x", "A@x"),
        ("eve", "y", "e@x"),
    ] {
        let lines =
            format!("objectClass: inetOrgPerson\ncn: {name}\nsn: {sn}\nmail: {mail}\ntitle: {sn}");
        succeed(directory, add(&dn(name), &lines));
    }
}

fn dn(name: &str) -> String {
    format!("cn={name},{PEOPLE}")
}

fn of(group: &str) -> String {
    format!("cn={group},{SUFFIX}")
}

fn group(name: &str, urls: &[&str]) -> UpdateRequest {
    let mut lines = format!("objectClass: groupOfURLs\ncn: {name}");
    for url in urls {
        lines.push_str(&format!("\nmemberURL: {url}"));
    }
    add(&of(name), &lines)
}

/// What an entry has of an attribute, as somebody sees it.
fn seen_by<E: Engine>(
    directory: &Directory<E>,
    (entry, name): (&str, &str),
    identity: &Identity,
) -> BTreeSet<String> {
    let asked = Query {
        attributes: &[name],
        identity: identity.clone(),
        ..query(entry, Scope::Base, "(objectClass=*)")
    };
    let found = search(directory, &asked);
    let lines = found.entries.into_iter().flat_map(|(_, lines)| lines);
    let start = format!("{name}: ");
    lines
        .filter_map(|line| Some(line.strip_prefix(&start)?.to_owned()))
        .collect()
}

fn values<E: Engine>(directory: &Directory<E>, entry: &str, name: &str) -> BTreeSet<String> {
    seen_by(directory, (entry, name), &admin())
}

fn members<E: Engine>(directory: &Directory<E>, group: &str) -> BTreeSet<String> {
    values(directory, &of(group), "member")
}

fn found<E: Engine>(directory: &Directory<E>, filter: &str) -> BTreeSet<String> {
    let found = search(directory, &query("", Scope::Subtree, filter));
    assert_eq!(found.code, ResultCode::Success);
    found.entries.into_iter().map(|(dn, _)| dn).collect()
}

fn set<const N: usize>(values: [String; N]) -> BTreeSet<String> {
    values.into()
}

fn compared<E: Engine>(
    directory: &Directory<E>,
    entry: &str,
    name: &str,
    value: &str,
) -> ResultCode {
    let options = CompareOptions::default();
    compare(directory, entry, name, value, options).code
}

#[test]
fn groups_name_what_their_urls_find() {
    let directory = directory(&["groupOfURLs memberURL member"]);
    looks(&directory);
    let stores = config_in_stores().stores(&schema()).unwrap();
    let config = with_rules(config_in_stores(), &["groupOfURLs memberURL member"]);
    let directory = Directory::create_on(engine_in(stores), &config, options()).unwrap();
    begin(&directory);
    looks(&directory);
}

fn looks<E: Engine>(directory: &Directory<E>) {
    let (ann, bob, eve) = (dn("ann"), dn("bob"), dn("eve"));
    let one = format!("ldap:///{}??base label", eve.replace(' ', "%20"));
    succeed(directory, group("x", &[ALL_X]));
    let also = ALL_X.replace("sub?", "one?");
    succeed(directory, group("both", &[ALL_X, &one, &also]));
    // None of these finds anything: another server, no filter, attributes, an unknown extension, no URL.
    let none = [
        "ldap://elsewhere/ou=people,dc=example,dc=com??sub?(sn=x)",
        "ldap:///ou=people,dc=example,dc=com??sub?(sn=x",
        "ldap:///ou=people,dc=example,dc=com?cn?sub?(sn=x)",
        "ldap:///ou=people,dc=example,dc=com??sub?(sn=x)?!x-test",
        "ldap:///ou=nowhere,dc=example,dc=com??sub",
        "nonsense",
    ];
    succeed(directory, group("none", &none));
    succeed(
        directory,
        group("levels", &["ldap:///dc=example,dc=com??one?(ou=*)"]),
    );
    // An entry that has members itself, and one that has a URL and is no group.
    let lines = format!(
        "objectClass: groupOfURLs\nobjectClass: extensibleObject\ncn: own\nmember: CN=Eve, {PEOPLE}\nmemberURL: {ALL_X}\n\
         memberURL: {one}"
    );
    succeed(directory, add(&of("own"), &lines));
    let lines = format!(
        "objectClass: device\nobjectClass: extensibleObject\ncn: plain\nmemberURL: {ALL_X}"
    );
    succeed(directory, add(&of("plain"), &lines));
    assert_eq!(members(directory, "x"), set([ann.clone(), bob.clone()]));
    let all = set([ann.clone(), bob.clone(), eve.clone()]);
    assert_eq!(members(directory, "both"), all);
    assert_eq!(members(directory, "none"), set([]));
    assert_eq!(members(directory, "levels"), set([PEOPLE.to_owned()]));
    let own = set([ann.clone(), bob.clone(), format!("CN=Eve, {PEOPLE}")]);
    assert_eq!(members(directory, "own"), own);
    assert_eq!(members(directory, "plain"), set([]));
    let groups = |names: &[&str]| names.iter().map(|name| of(name)).collect::<BTreeSet<_>>();
    for (filter, expected) in [
        (format!("(member={ann})"), groups(&["x", "both", "own"])),
        (
            format!("(member=CN=EVE, {PEOPLE})"),
            groups(&["both", "own"]),
        ),
        (format!("(member={PEOPLE})"), groups(&["levels"])),
        (format!("(member={SUFFIX})"), groups(&[])),
        ("(member=cn=nobody,o=elsewhere)".to_owned(), groups(&[])),
        (
            format!("(&(member={ann})(member={eve}))"),
            groups(&["both", "own"]),
        ),
        (
            format!("(&(member={ann})(!(member={eve})))"),
            groups(&["x"]),
        ),
        (
            format!("(|(member={eve})(cn=x))"),
            groups(&["x", "both", "own"]),
        ),
        (
            format!("(&(objectClass=groupOfURLs)(!(member={ann})))"),
            groups(&["none", "levels"]),
        ),
        (
            "(member=*)".to_owned(),
            groups(&["x", "both", "levels", "own"]),
        ),
        (
            "(&(objectClass=groupOfURLs)(!(member=*)))".to_owned(),
            groups(&["none"]),
        ),
        (
            format!("(distinguishedName={bob})"),
            groups(&["x", "both", "own"]),
        ),
        (
            format!("(|{})", format!("(member={eve})").repeat(20)),
            groups(&["both", "own"]),
        ),
    ] {
        assert_eq!(found(directory, &filter), expected, "{filter}");
    }
    for (group, value, code) in [
        ("x", &ann, ResultCode::CompareTrue),
        ("x", &eve, ResultCode::CompareFalse),
        ("own", &eve, ResultCode::CompareTrue),
        ("own", &ann, ResultCode::CompareTrue),
        (
            "x",
            &"cn=nobody,o=elsewhere".to_owned(),
            ResultCode::CompareFalse,
        ),
        ("levels", &PEOPLE.to_owned(), ResultCode::CompareTrue),
        ("plain", &ann, ResultCode::NoSuchAttribute),
    ] {
        assert_eq!(
            compared(directory, &of(group), "member", value),
            code,
            "{group} {value}"
        );
    }
    // The filter asks for some, and all are sent.
    let whole = search(
        directory,
        &Query {
            attributes: &["member"],
            ..query("", Scope::Subtree, &format!("(&(cn=both)(member={eve}))"))
        },
    );
    assert_eq!(whole.entries[0].1.len(), 3, "{whole:?}");
    let types = Query {
        types_only: true,
        attributes: &["member"],
        ..query(SUFFIX, Scope::Subtree, "(cn=x)")
    };
    assert_eq!(search(directory, &types).entries[0].1.len(), 1);
    // As it is stored.
    let stored = Query {
        options: SearchOptions {
            manage_dsa_it: true,
            ..SearchOptions::default()
        },
        attributes: &["member"],
        ..query(SUFFIX, Scope::Subtree, "(cn=both)")
    };
    assert!(search(directory, &stored).entries[0].1.is_empty());
    let stored = CompareOptions {
        manage_dsa_it: true,
        ..CompareOptions::default()
    };
    let code = compare(directory, &of("x"), "member", &ann, stored).code;
    assert_eq!(code, ResultCode::NoSuchAttribute);
}

#[test]
fn what_changes_is_found_at_once() {
    let directory = directory(&["groupOfURLs memberURL member"]);
    succeed(&directory, group("x", &[ALL_X]));
    succeed(&directory, modify(&dn("eve"), &[(Replace, "sn", &["x"])]));
    succeed(&directory, delete(&dn("ann")));
    succeed(&directory, rename(&dn("bob"), "cn=rob", true, None));
    assert_eq!(members(&directory, "x"), set([dn("eve"), dn("rob")]));
    let url = "ldap:///ou=people,dc=example,dc=com??one?(cn=e*)";
    succeed(
        &directory,
        modify(&of("x"), &[(Replace, "memberURL", &[url])]),
    );
    assert_eq!(members(&directory, "x"), set([dn("eve")]));
}

#[test]
fn lists_have_the_attributes_that_their_urls_name() {
    let directory = directory(&["groupOfURLs memberURL"]);
    let url = |attributes: &str| format!("ldap:///{PEOPLE}?{attributes}?sub?(objectClass=person)");
    let list = |name: &str, attributes: &str| {
        let lines = format!(
            "objectClass: groupOfURLs\nobjectClass: extensibleObject\ncn: {name}\nmail: own@x\nmemberURL: {}",
            url(attributes)
        );
        succeed(&directory, add(&of(name), &lines));
    };
    list("mail", "mail,title,createTimestamp,userPassword");
    list("everything", "");
    let mail = of("mail");
    // Each once, by the rule of the attribute.
    let found_mail = set(["own@x".into(), "a@x".into(), "e@x".into()]);
    assert_eq!(values(&directory, &mail, "mail"), found_mail);
    assert_eq!(
        values(&directory, &mail, "title"),
        set(["x".into(), "y".into()])
    );
    assert_eq!(values(&directory, &mail, "sn"), set([]));
    assert_eq!(values(&directory, &mail, "createTimestamp").len(), 1);
    assert_eq!(
        values(&directory, &of("everything"), "sn"),
        set(["x".into(), "y".into()])
    );
    for (name, value, code) in [
        ("mail", "E@X", ResultCode::CompareTrue),
        ("mail", "own@x", ResultCode::CompareTrue),
        ("mail", "f@x", ResultCode::CompareFalse),
        ("title", "y", ResultCode::CompareTrue),
        ("sn", "y", ResultCode::NoSuchAttribute),
    ] {
        assert_eq!(
            compared(&directory, &mail, name, value),
            code,
            "{name} {value}"
        );
    }
    // Filters see what is stored.
    assert_eq!(
        found(&directory, "(&(objectClass=groupOfURLs)(mail=e@x))"),
        set([])
    );
    assert_eq!(
        found(&directory, "(&(objectClass=groupOfURLs)(mail=own@x))").len(),
        2
    );
}

#[test]
fn nobody_learns_by_a_group_what_they_could_not_find() {
    let directory = directory(&["groupOfURLs memberURL member"]);
    succeed(&directory, group("x", &[ALL_X]));
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
    let (group, bob) = (of("x"), dn("bob"));
    let sees = |rules: &str| {
        let rules = parse_rules(rules)
            .unwrap()
            .into_iter()
            .map(|(_, rule)| rule);
        let rules: Vec<_> = rules.collect();
        directory.set_access(&Policy::from(rules)).unwrap();
        let shown = seen_by(&directory, (&group, "member"), &identity);
        let filter = format!("(member={bob})");
        let asked = Query {
            identity: identity.clone(),
            attributes: &["1.1"],
            ..query("", Scope::Subtree, &filter)
        };
        let found = search(&directory, &asked).entries.len();
        let options = CompareOptions::default();
        let compared = compare_as(&directory, &identity, &group, "member", &bob, options).code;
        (shown, found, compared)
    };
    let both = set([ann.clone(), bob.clone()]);
    assert_eq!(
        sees("access to * by * read"),
        (both, 1, ResultCode::CompareTrue)
    );
    // An entry, the attribute that the URL asks for, where the URL begins, and the members of the group.
    let hidden = format!("access to dn.exact=\"{bob}\" by * none\naccess to * by * read");
    let only = set([ann.clone()]);
    assert_eq!(sees(&hidden), (only.clone(), 0, ResultCode::CompareFalse));
    let hidden = format!("access to dn.exact=\"{bob}\" attrs=sn by * none\naccess to * by * read");
    assert_eq!(sees(&hidden), (only, 0, ResultCode::CompareFalse));
    let hidden = format!("access to dn.exact=\"{PEOPLE}\" by * none\naccess to * by * read");
    assert_eq!(sees(&hidden).0, set([]));
    let hidden = "access to attrs=member by * none\naccess to * by * read";
    assert_eq!(
        sees(hidden),
        (set([]), 0, ResultCode::InsufficientAccessRights)
    );
}

#[test]
fn the_overlay_says_which_entries_have_urls() {
    let directory = directory(&[]);
    succeed(&directory, group("x", &[ALL_X]));
    assert_eq!(members(&directory, "x"), set([]));
    let overlay = |value: &str| {
        let lines =
            format!("objectClass: olcDynamicList\nolcOverlay: dynlist\nolcDlAttrSet: {value}");
        add("olcOverlay=dynlist,olcDatabase={1}mdb,cn=config", &lines)
    };
    for (value, code, word) in [
        ("groupOfURLs", ResultCode::ConstraintViolation, "CLASS"),
        (
            "groupOfURLs memberURL member+memberOf",
            ResultCode::ConstraintViolation,
            "memberOf of dynamic groups",
        ),
        (
            "nonsense memberURL",
            ResultCode::UnwillingToPerform,
            "nonsense",
        ),
        (
            "groupOfURLs nonsense",
            ResultCode::UnwillingToPerform,
            "nonsense",
        ),
        (
            "groupOfURLs cn",
            ResultCode::UnwillingToPerform,
            "labeledURI",
        ),
        (
            "groupOfURLs memberURL cn",
            ResultCode::UnwillingToPerform,
            "names no members",
        ),
        (
            "groupOfURLs memberURL creatorsName",
            ResultCode::UnwillingToPerform,
            "kept by",
        ),
    ] {
        let outcome = refused(&directory, overlay(value), code);
        assert!(outcome.diagnostic.contains(word), "{outcome:?}");
    }
    succeed(&directory, overlay("{0}groupOfURLs memberURL member"));
    assert_eq!(members(&directory, "x"), set([dn("ann"), dn("bob")]));
    let shown = search(
        &directory,
        &query("cn=config", Scope::Subtree, "(olcDlAttrSet=*)"),
    );
    let (entry, lines) = &shown.entries[0];
    assert_eq!(entry, OVERLAY);
    let line = "olcDynListAttrSet: {0}groupOfURLs memberURL member";
    assert!(lines.contains(line), "{lines:?}");
    let device = "device labeledURI seeAlso";
    succeed(
        &directory,
        modify(OVERLAY, &[(Add, "olcDlAttrSet", &[device])]),
    );
    let lines =
        format!("objectClass: device\nobjectClass: extensibleObject\ncn: d\nlabeledURI: {ALL_X}");
    succeed(&directory, add(&of("d"), &lines));
    assert_eq!(values(&directory, &of("d"), "seeAlso").len(), 2);
    assert_eq!(
        found(&directory, &format!("(seeAlso={})", dn("ann"))),
        set([of("d")])
    );
    let first = "groupOfURLs memberURL member";
    succeed(
        &directory,
        modify(OVERLAY, &[(Delete, "olcDynListAttrSet", &[first])]),
    );
    assert_eq!(members(&directory, "x"), set([]));
    succeed(&directory, delete(OVERLAY));
    assert_eq!(values(&directory, &of("d"), "seeAlso"), set([]));
    assert_eq!(
        found(&directory, &format!("(seeAlso={})", dn("ann"))),
        set([])
    );
}

#[test]
fn the_time_limit_of_a_search_ends_what_it_finds() {
    let directory = directory(&["groupOfURLs memberURL member"]);
    succeed(&directory, group("x", &[ALL_X]));
    let late = Query {
        options: SearchOptions {
            deadline_micros: Some(1),
            ..SearchOptions::default()
        },
        ..query(SUFFIX, Scope::Subtree, "(cn=x)")
    };
    assert_eq!(
        search(&directory, &late).code,
        ResultCode::TimeLimitExceeded
    );
}

#[test]
fn what_is_found_takes_room_for_the_message_before_that_is_made() {
    const ROOM: usize = 8 << 10;
    let directory = directory(&["groupOfURLs memberURL member"]);
    for n in 0..200 {
        let lines = format!("objectClass: person\ncn: {n}\nsn: x");
        succeed(&directory, add(&dn(&n.to_string()), &lines));
    }
    succeed(&directory, group("x", &[ALL_X]));
    let base = of("x");
    let of_group = query(&base, Scope::Base, "(objectClass=*)");
    let (mut out, mut room, mut is_taken_early) = (Vec::new(), ROOM, false);
    asked(&of_group, |request| {
        let snapshot = directory.snapshot().unwrap();
        let requester = directory.requester(admin());
        let mut search = Search::new(snapshot, &requester, request, SearchOptions::default());
        loop {
            let budget = Budget {
                entries: 4,
                work: 1 << 10,
                out_bytes: out.len() + room,
            };
            match search.step(&mut Wire::new(&mut out, 1, Controls::EMPTY), budget) {
                Ok(Step::More) => {}
                Ok(Step::Fetch) => search.snapshot().fetch().unwrap(),
                Ok(Step::Room(bytes)) => {
                    assert!(bytes > room);
                    is_taken_early |= search.is_gathering() && out.is_empty();
                    room = bytes;
                }
                Ok(Step::Done(outcome)) => break assert_eq!(outcome.code, ResultCode::Success),
                step => panic!("{step:?}"),
            }
        }
    });
    assert!(is_taken_early);
    assert_eq!(members(&directory, "x").len(), 202);
}
