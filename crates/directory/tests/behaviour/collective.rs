//! Collective attributes (RFC 3671): what a subentry holds is read as part of the entries of its subtree.

use std::collections::BTreeSet;

use crate::made::{Directory, in_memory};
use sapwood_directory::access::{DnScope, Rights, Rule, What, Who};
use sapwood_directory::{
    Budget, CompareOptions, Identity, IndexDefinition, Outcome, Policy, Search, SearchOptions,
    Step, UpdateRequest, Wire,
};
use sapwood_ldap::controls::{ASSERTION, Controls, POST_READ, ReadEntry};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;

use crate::query::{Query, query, search};

const PEOPLE: &str = "ou=people,dc=example,dc=com";
const COLLECTION: &str = "cn=collection,dc=example,dc=com";

fn collection(dn: &str, specification: &str, more: &str) -> UpdateRequest {
    let cn = dn.split(['=', ',']).nth(1).unwrap();
    let lines = format!(
        "objectClass: subentry\nobjectClass: collectiveAttributeSubentry\ncn: {cn}\n\
         subtreeSpecification: {specification}\n{more}"
    );
    add(dn, &lines)
}

/// The example directory with people: ann and bob, who has a device below him.
fn directory() -> Directory {
    let directory = in_memory();
    succeed(&directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    succeed(
        &directory,
        add(PEOPLE, "objectClass: organizationalUnit\nou: people"),
    );
    for name in ["ann", "bob"] {
        let lines = format!("objectClass: inetOrgPerson\ncn: {name}\nsn: x\nl: Ulm");
        succeed(&directory, add(&dn(name), &lines));
    }
    let device = "objectClass: device\nobjectClass: extensibleObject\ncn: phone";
    succeed(&directory, add(&format!("cn=phone,{}", dn("bob")), device));
    directory
}

fn dn(name: &str) -> String {
    format!("cn={name},{PEOPLE}")
}

/// The first values of the names of the entries that a filter finds.
fn found(directory: &Directory, filter: &str) -> Vec<String> {
    let found = search(directory, &query(SUFFIX, Scope::Subtree, filter));
    assert_eq!(found.code, ResultCode::Success);
    let name = |dn: &&str| dn.split(['=', ',']).nth(1).unwrap().to_owned();
    let mut names: Vec<String> = found.dns().iter().map(name).collect();
    names.sort();
    names
}

/// What an entry is read as, of some attributes.
fn read(directory: &Directory, dn: &str, attributes: &[&str]) -> BTreeSet<String> {
    let query = Query {
        attributes,
        ..query(dn, Scope::Base, "(objectClass=*)")
    };
    let mut found = search(directory, &query);
    assert_eq!(found.entries.len(), 1, "{dn}");
    found.entries.remove(0).1
}

fn lines(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn entries_have_what_the_subentry_holds() {
    let directory = directory();
    let held = "c-l: Bonn\nc-l: ulm\nc-TelephoneNumber: +1 23";
    succeed(
        &directory,
        collection(COLLECTION, "{ base \"ou=people\", minimum 1 }", held),
    );
    assert_eq!(found(&directory, "(c-l=bonn)"), ["ann", "bob", "phone"]);
    // As the values of a supertype, also if that is indexed.
    assert_eq!(found(&directory, "(l=bonn)"), ["ann", "bob", "phone"]);
    for attribute in ["l", "c-l"] {
        let index = IndexDefinition {
            attribute: attribute.into(),
            equality: true,
            ..IndexDefinition::default()
        };
        directory.add_index(&index, |_| {}).unwrap();
        assert_eq!(found(&directory, "(c-l=bonn)"), ["ann", "bob", "phone"]);
    }
    assert_eq!(found(&directory, "(l=bonn)"), ["ann", "bob", "phone"]);
    assert_eq!(found(&directory, "(&(cn=ann)(l=bonn))"), ["ann"]);
    assert_eq!(
        found(&directory, "(c-telephonenumber=*)"),
        ["ann", "bob", "phone"]
    );
    assert_eq!(found(&directory, "(!(c-l=*))"), ["example", "people"]);
    assert_eq!(found(&directory, "(c-l=none)"), Vec::<String>::new());
    let all = read(&directory, &dn("ann"), &[]);
    assert!(
        all.is_superset(&lines(&["c-l: Bonn", "c-l: ulm", "l: Ulm", "cn: ann"])),
        "{all:?}"
    );
    assert_eq!(
        read(&directory, &dn("ann"), &["l"]),
        lines(&["l: Ulm", "c-l: Bonn", "c-l: ulm"])
    );
    assert_eq!(
        read(&directory, &dn("ann"), &["c-telephonenumber"]),
        lines(&["c-TelephoneNumber: +1 23"])
    );
    assert_eq!(read(&directory, PEOPLE, &["c-l"]), lines(&[]));
    // The subentry shows what it holds.
    assert_eq!(
        read(&directory, COLLECTION, &["c-l"]),
        lines(&["c-l: Bonn", "c-l: ulm"])
    );
    // What changes there changes everywhere.
    succeed(
        &directory,
        modify(COLLECTION, &[(Replace, "c-l", &["Köln"])]),
    );
    assert_eq!(found(&directory, "(l=köln)"), ["ann", "bob", "phone"]);
    assert_eq!(found(&directory, "(l=bonn)"), Vec::<String>::new());
    succeed(&directory, delete(COLLECTION));
    assert_eq!(found(&directory, "(c-l=*)"), Vec::<String>::new());
}

#[test]
fn a_subtree_is_what_its_specification_says() {
    let directory = directory();
    for (specification, expected) in [
        ("{}", &["ann", "bob", "example", "people", "phone"][..]),
        ("{ base \"ou=people\" }", &["ann", "bob", "people", "phone"]),
        ("{ base \"ou=nowhere\" }", &[]),
        ("{ minimum 1, maximum 2 }", &["ann", "bob", "people"]),
        ("{ maximum 0 }", &["example"]),
        ("{ base \"cn=bob,ou=people\", minimum 1 }", &["phone"]),
        (
            "{ specificExclusions { chopBefore:\"cn=bob,ou=people\" } }",
            &["ann", "example", "people"],
        ),
        (
            "{ specificExclusions { chopAfter:\"cn=bob,ou=people\" } }",
            &["ann", "bob", "example", "people"],
        ),
        (
            "{ base \"ou=people\", specificExclusions { chopBefore:\"cn=ann\" } }",
            &["bob", "people", "phone"],
        ),
        ("{ specificationFilter item:person }", &["ann", "bob"]),
        (
            "{ specificationFilter not:or:{ item:person, item:2.5.6.14 } }",
            &["example", "people"],
        ),
    ] {
        succeed(
            &directory,
            collection(COLLECTION, specification, "c-l: Bonn"),
        );
        assert_eq!(found(&directory, "(c-l=bonn)"), expected, "{specification}");
        succeed(&directory, delete(COLLECTION));
    }
}

#[test]
fn collections_are_combined_and_can_be_excluded() {
    let directory = directory();
    succeed(
        &directory,
        collection(COLLECTION, "{}", "c-l: Bonn\nc-o: One"),
    );
    let inner = format!("cn=inner,{PEOPLE}");
    succeed(
        &directory,
        collection(&inner, "{}", "c-l: BONN\nc-l: Mainz"),
    );
    assert_eq!(
        read(&directory, &dn("ann"), &["c-l"]),
        lines(&["c-l: Bonn", "c-l: Mainz"])
    );
    let exclude = |what: &str| modify(&dn("ann"), &[(Replace, "collectiveExclusions", &[what])]);
    succeed(&directory, exclude("c-l"));
    assert_eq!(
        read(&directory, &dn("ann"), &["c-l", "c-o"]),
        lines(&["c-o: One"])
    );
    assert_eq!(found(&directory, "(l=mainz)"), ["bob", "people", "phone"]);
    succeed(&directory, exclude("2.5.18.0"));
    assert_eq!(read(&directory, &dn("ann"), &["c-l", "c-o"]), lines(&[]));
    // The subentries themselves are in no collection.
    assert_eq!(read(&directory, &inner, &["c-o"]), lines(&[]));
    // Where an entry is now counts.
    succeed(
        &directory,
        rename(&dn("bob"), "cn=bob", false, Some(SUFFIX)),
    );
    assert_eq!(found(&directory, "(c-l=mainz)"), ["people"]);
}

/// The subentries that an entry says it is governed by.
fn governors(directory: &Directory, dn: &str) -> BTreeSet<String> {
    read(directory, dn, &["collectiveAttributeSubentries"])
}

#[test]
fn entries_name_the_subentries_that_govern_them() {
    let directory = directory();
    let inner = format!("cn=inner,{PEOPLE}");
    let persons = "{ specificationFilter item:person }";
    succeed(&directory, collection(COLLECTION, "{}", "c-l: Bonn"));
    succeed(&directory, collection(&inner, persons, "c-o: One"));
    let named = |dn: &str| format!("collectiveAttributeSubentries: {dn}");
    let (outer_line, inner_line) = (named(COLLECTION), named(&inner));
    let both = lines(&[&outer_line, &inner_line]);
    assert_eq!(governors(&directory, &dn("ann")), both);
    assert_eq!(governors(&directory, PEOPLE), lines(&[&outer_line]));
    assert_eq!(governors(&directory, &inner), lines(&[]));
    // It is operational: nobody sees it who does not ask.
    assert!(!read(&directory, &dn("ann"), &["*"]).contains(&inner_line));
    assert!(read(&directory, &dn("ann"), &["+"]).contains(&inner_line));
    let filter = format!("(collectiveAttributeSubentries={})", inner.to_uppercase());
    assert_eq!(found(&directory, &filter), ["ann", "bob"]);
    let options = CompareOptions::default();
    let attribute = "collectiveAttributeSubentries";
    let outcome = compare(&directory, &dn("bob"), attribute, &inner, options);
    assert_eq!(outcome.code, ResultCode::CompareTrue);
    // Who excludes all attributes is governed still; nobody sets it.
    let exclude = "excludeAllCollectiveAttributes";
    succeed(
        &directory,
        modify(&dn("ann"), &[(Replace, "collectiveExclusions", &[exclude])]),
    );
    assert_eq!(governors(&directory, &dn("ann")), both);
    assert_eq!(read(&directory, &dn("ann"), &["c-l", "c-o"]), lines(&[]));
    let set = modify(&dn("ann"), &[(Replace, attribute, &[COLLECTION])]);
    refused(&directory, set, ResultCode::ConstraintViolation);
    // One that is called otherwise has its name everywhere.
    succeed(&directory, rename(COLLECTION, "cn=outer", true, None));
    let outer_line = named("cn=outer,dc=example,dc=com");
    assert_eq!(governors(&directory, PEOPLE), lines(&[&outer_line]));
}

/// Their names told of entries that are as if they were not there.
#[test]
fn hidden_subentries_are_not_named() {
    let directory = directory();
    let hidden = format!("cn=hidden,{PEOPLE}");
    succeed(&directory, collection(COLLECTION, "{}", "c-l: Bonn"));
    succeed(&directory, collection(&hidden, "{}", "c-o: One"));
    let hide = Rule::to(What::entries(DnScope::Base, &hidden)).by(Who::Anyone, Rights::NONE);
    let show = Rule::to(What::everything()).by(Who::Anyone, Rights::UP_TO_READ);
    directory
        .set_access(&Policy::from(vec![hide, show]))
        .unwrap();
    let seen = |filter: &str| {
        search(
            &directory,
            &Query {
                identity: Identity::Anonymous,
                attributes: &["collectiveAttributeSubentries"],
                ..query(&dn("ann"), Scope::Base, filter)
            },
        )
    };
    let expected = lines(&[&format!("collectiveAttributeSubentries: {COLLECTION}")]);
    assert_eq!(seen("(objectClass=*)").entries[0].1, expected);
    let named = |name: &str| {
        seen(&format!("(collectiveAttributeSubentries={name})"))
            .entries
            .len()
    };
    assert_eq!((named(COLLECTION), named(&hidden)), (1, 0));
}

#[test]
fn a_specific_area_ends_the_one_around_it() {
    let directory = directory();
    let inner = format!("cn=inner,{PEOPLE}");
    succeed(&directory, collection(COLLECTION, "{}", "c-l: Bonn"));
    succeed(&directory, collection(&inner, "{}", "c-o: One"));
    let role = |dn: &str, roles: &[&str]| modify(dn, &[(Replace, "administrativeRole", roles)]);
    let with =
        |directory: &Directory, attribute: &str| found(directory, &format!("({attribute}=*)"));
    let all = ["ann", "bob", "example", "people", "phone"];
    // An inner area is in the one around it, and its point is one.
    succeed(
        &directory,
        role(SUFFIX, &["collectiveAttributeSpecificArea"]),
    );
    succeed(&directory, role(PEOPLE, &["2.5.23.6"]));
    assert_eq!(with(&directory, "c-l"), all);
    assert_eq!(with(&directory, "c-o"), ["ann", "bob", "people", "phone"]);
    for area in [
        "2.5.23.5",
        "collectiveAttributeSpecificArea",
        "autonomousArea",
    ] {
        succeed(&directory, role(PEOPLE, &["2.5.23.4", area]));
        assert_eq!(with(&directory, "c-l"), ["example"], "{area}");
        assert_eq!(with(&directory, "c-o"), ["ann", "bob", "people", "phone"]);
        assert_eq!(governors(&directory, &dn("ann")).len(), 1);
    }
    // That of an entry below is another one again.
    succeed(&directory, role(&dn("bob"), &["2.5.23.5"]));
    assert_eq!(with(&directory, "c-o"), ["ann", "people"]);
    // Where the base is counts for nothing.
    let of_bob = "{ base \"cn=bob,ou=people\" }";
    let far = "cn=far,dc=example,dc=com";
    succeed(&directory, collection(far, of_bob, "c-st: Hesse"));
    assert_eq!(with(&directory, "c-st"), Vec::<String>::new());
    succeed(&directory, role(&dn("bob"), &[]));
    succeed(&directory, role(PEOPLE, &[]));
    assert_eq!(with(&directory, "c-l"), all);
    assert_eq!(with(&directory, "c-st"), ["bob", "phone"]);
    clean(&directory);
}

#[test]
fn collective_attributes_are_changed_in_subentries_alone() {
    let directory = directory();
    let class = ResultCode::ObjectClassViolation;
    refused(
        &directory,
        modify(&dn("ann"), &[(Add, "c-l", &["Bonn"])]),
        class,
    );
    // Not even an entry that may have any user attribute.
    let phone = format!("cn=phone,{}", dn("bob"));
    refused(
        &directory,
        modify(&phone, &[(Add, "c-l", &["Bonn"])]),
        class,
    );
    let lines = "objectClass: subentry\nobjectClass: extensibleObject\ncn: plain\nsubtreeSpecification: {}\nc-l: Bonn";
    refused(&directory, add("cn=plain,dc=example,dc=com", lines), class);
    succeed(&directory, collection(COLLECTION, "{}", "c-l: Bonn"));
    refused(
        &directory,
        modify(&dn("ann"), &[(Replace, "c-l", &["Ulm"])]),
        class,
    );
    let there = modify(&dn("ann"), &[(Delete, "c-l", &["Bonn"])]);
    refused(&directory, there, ResultCode::NoSuchAttribute);
    // What an entry is changed to does not swallow what it is only read as.
    succeed(&directory, modify(&dn("ann"), &[(Replace, "sn", &["y"])]));
    succeed(&directory, delete(COLLECTION));
    assert_eq!(found(&directory, "(c-l=*)"), Vec::<String>::new());
    for (specification, code) in [
        ("{ base ou=people }", ResultCode::InvalidAttributeSyntax),
        ("{ base \"nonsense\" }", ResultCode::ConstraintViolation),
        (
            "{ specificationFilter item:nonsense }",
            ResultCode::ConstraintViolation,
        ),
    ] {
        refused(
            &directory,
            collection(COLLECTION, specification, "c-l: Bonn"),
            code,
        );
    }
    let many: String = (0..1001).map(|n| format!("c-l: {n}\n")).collect();
    let many = collection(COLLECTION, "{}", &many);
    refused(&directory, many, ResultCode::AdminLimitExceeded);
    let many: String = (0..1000).map(|n| format!("c-l: {n}\n")).collect();
    succeed(&directory, collection(COLLECTION, "{}", &many));
    assert_eq!(
        found(&directory, "(l=999)"),
        ["ann", "bob", "example", "people", "phone"]
    );
    clean(&directory);
}

fn clean(directory: &Directory) {
    let report = directory.check(|_| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn compares_assertions_and_reads_of_updates_see_them() {
    let directory = directory();
    succeed(&directory, collection(COLLECTION, "{}", "c-l: Bonn"));
    for (attribute, value, code) in [
        ("c-l", "BONN", ResultCode::CompareTrue),
        ("l", "bonn", ResultCode::CompareTrue),
        ("c-l", "Ulm", ResultCode::CompareFalse),
        ("c-o", "x", ResultCode::NoSuchAttribute),
    ] {
        let options = CompareOptions::default();
        let outcome = compare(&directory, &dn("ann"), attribute, value, options);
        assert_eq!(outcome.code, code);
    }
    let describe = || modify(&dn("ann"), &[(Replace, "sn", &["z"])]);
    for (text, code) in [
        ("(l=bonn)", ResultCode::Success),
        ("(l=bern)", ResultCode::AssertionFailed),
    ] {
        let filter = filter_text::parse(text).unwrap();
        let value = filter.as_filter().as_ber().to_vec();
        let outcome = apply(
            &directory,
            with(describe(), &[(ASSERTION, true, Some(&value))]),
        );
        assert_eq!(outcome.code, code, "{outcome:?}");
    }
    let mut wanted = OctetStringsBuf::default();
    wanted.push(b"c-l");
    let mut value = Vec::new();
    let attributes = wanted.view();
    ReadEntry { attributes }.encode(&mut value);
    let outcome = apply(
        &directory,
        with(describe(), &[(POST_READ, true, Some(&value))]),
    );
    assert_eq!(outcome.code, ResultCode::Success);
    let shown = String::from_utf8_lossy(&outcome.controls).into_owned();
    assert!(shown.contains("c-l") && shown.contains("Bonn"), "{shown:?}");
}

/// What was read for one update is used for the next, until it changes.
#[test]
fn updates_of_a_batch_see_what_became_of_subentries_in_it() {
    let directory = directory();
    succeed(&directory, collection(COLLECTION, "{}", "c-l: Bonn"));
    let names = OctetStringsBuf::from_iter([b"c-l".as_slice()]);
    let mut value = Vec::new();
    ReadEntry {
        attributes: names.view(),
    }
    .encode(&mut value);
    let read = || {
        let changed = modify(&dn("ann"), &[(Replace, "sn", &["y"])]);
        with(changed, &[(POST_READ, true, Some(&value))])
    };
    let other = format!("cn=other,{PEOPLE}");
    let updates = [
        read(),
        read(),
        modify(COLLECTION, &[(Replace, "c-l", &["Ulm"])]),
        read(),
        collection(&other, "{}", "c-l: Kiel"),
        read(),
        modify(
            COLLECTION,
            &[(Replace, "subtreeSpecification", &["{ minimum 9 }"])],
        ),
        read(),
        rename(&other, "cn=x", true, None),
        delete(&format!("cn=x,{PEOPLE}")),
        read(),
    ];
    let applied = directory.apply(&updates.map(as_admin)).unwrap();
    let contains = |outcome: &Outcome, town: &str| {
        let mut windows = outcome.controls.windows(town.len());
        windows.any(|part| part == town.as_bytes())
    };
    let towns: Vec<Vec<&str>> = (applied.outcomes.iter())
        .inspect(|outcome| assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}"))
        .filter(|outcome| !outcome.controls.is_empty())
        .map(|outcome| {
            let mut towns = vec!["Bonn", "Ulm", "Kiel"];
            towns.retain(|town| contains(outcome, town));
            towns
        })
        .collect();
    let expected: [&[&str]; 6] = [
        &["Bonn"],
        &["Bonn"],
        &["Ulm"],
        &["Ulm", "Kiel"],
        &["Kiel"],
        &[],
    ];
    assert_eq!(towns, expected);
}

/// Entries are made with the attributes whatever the filter, which costs as much as they are long.
#[test]
fn what_is_made_for_candidates_counts_as_work() {
    let directory = directory();
    succeed(&directory, collection(COLLECTION, "{}", "c-l: Bonn"));
    let long = "x".repeat(10_000);
    for n in 0..40 {
        let lines = format!("objectClass: person\ncn: p{n}\nsn: x\ndescription: {long}");
        succeed(&directory, add(&dn(&format!("p{n}")), &lines));
    }
    let filter = filter_text::parse("(sn=none)").unwrap();
    let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
    let requester = directory.requester(admin());
    let snapshot = directory.snapshot().unwrap();
    let mut search = Search::new(snapshot, &requester, &request, SearchOptions::default());
    let budget = Budget {
        entries: 1000,
        work: 50_000,
        out_bytes: 1 << 20,
    };
    let (mut out, mut steps) = (Vec::new(), 0);
    loop {
        let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
        match search.step(&mut wire, budget).unwrap() {
            Step::Done(_) => break,
            Step::Fetch => search.snapshot().fetch().unwrap(),
            _ => {}
        }
        steps += 1;
    }
    assert!(steps >= 7, "{steps}");
}
