//! The root and the subschema subentry as bases: searches of all scopes, and compares.

use std::collections::BTreeSet;

use crate::made::{Directory, engine, in_memory, in_stores};
use sapwood_directory::engine::Engine;
use sapwood_directory::{
    Channel, CompareOptions, Extension, Identity, Needs, Offered, SearchOptions,
};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{add, admin, compare_as, modify, person, seed, succeed};

use crate::query::{Found, Query, query, search, search_together};

const SUFFIX: &str = "dc=example,dc=com";
const PEOPLE: &str = "ou=People,dc=example,dc=com";

fn fill<E: Engine>(directory: &Directory<E>) {
    seed(directory);
    for uid in ["anne", "ben"] {
        succeed(directory, person(uid));
    }
    succeed(
        directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    succeed(
        directory,
        add("ou=x,o=other", "objectClass: organizationalUnit\nou: x"),
    );
}

/// The same found alone and together with others.
fn found<E: Engine>(directory: &Directory<E>, query: Query<'_>) -> Found {
    let alone = search(directory, &query);
    let together = search_together(directory, &[query]).remove(0);
    assert_eq!(together, alone);
    alone
}

fn set<'d>(dns: &[&'d str]) -> BTreeSet<&'d str> {
    dns.iter().copied().collect()
}

fn all_below_the_root<E: Engine>(directory: &Directory<E>) {
    let (anne, ben) = (format!("uid=anne,{PEOPLE}"), format!("uid=ben,{PEOPLE}"));
    let all = [SUFFIX, PEOPLE, &anne, &ben, "o=other", "ou=x,o=other"];
    for scope in [Scope::Subtree, Scope::Subordinates] {
        let whole = found(directory, query("", scope, "(objectClass=*)"));
        assert_eq!((whole.code, whole.dns()), (ResultCode::Success, set(&all)));
        let people = found(directory, query("", scope, "(uid=*)"));
        assert_eq!(people.dns(), set(&[&anne, &ben]));
        let one = found(directory, query("", scope, "(uid=anne)"));
        assert_eq!(one.dns(), set(&[&anne]));
    }
    let contexts = found(directory, query("", Scope::OneLevel, "(objectClass=*)"));
    assert_eq!(contexts.dns(), set(&[SUFFIX, "o=other"]));
    let other = found(directory, query("", Scope::OneLevel, "(o=*)"));
    assert_eq!(other.dns(), set(&["o=other"]));
    let none = found(directory, query("", Scope::OneLevel, "(uid=anne)"));
    assert_eq!((none.code, none.dns()), (ResultCode::Success, set(&[])));
}

#[test]
fn a_search_from_the_root_is_of_all_naming_contexts() {
    let directory = in_memory();
    // Of an empty directory there is nothing to be found, and nothing is wrong.
    let empty = found(&directory, query("", Scope::Subtree, "(objectClass=*)"));
    assert_eq!((empty.code, empty.dns()), (ResultCode::Success, set(&[])));
    fill(&directory);
    all_below_the_root(&directory);
    let spread = in_stores();
    fill(&spread);
    all_below_the_root(&spread);
}

#[test]
fn limits_pages_and_access_hold_at_the_root() {
    let directory = in_stores();
    fill(&directory);
    let limited = Query {
        size_limit: 2,
        ..query("", Scope::Subtree, "(objectClass=*)")
    };
    let limited = search(&directory, &limited);
    assert_eq!(
        (limited.code, limited.entries.len()),
        (ResultCode::SizeLimitExceeded, 2)
    );
    let anonymous = Query {
        identity: Identity::Anonymous,
        ..query("", Scope::OneLevel, "(objectClass=*)")
    };
    assert_eq!(
        search(&directory, &anonymous).code,
        ResultCode::InsufficientAccessRights
    );
    for (scope, count) in [
        (Scope::Subtree, 6),
        (Scope::OneLevel, 2),
        (Scope::Subordinates, 6),
    ] {
        let (mut seen, mut cookie) = (BTreeSet::new(), Vec::new());
        loop {
            let options = SearchOptions {
                page: Some((1, cookie)),
                ..SearchOptions::default()
            };
            let page = search(
                &directory,
                &Query {
                    options,
                    ..query("", scope, "(objectClass=*)")
                },
            );
            assert!(page.code == ResultCode::Success && page.entries.len() <= 1);
            seen.extend(page.entries.into_iter().map(|entry| entry.0));
            cookie = page.cookie;
            if cookie.is_empty() {
                break;
            }
        }
        assert_eq!(seen.len(), count, "{seen:?}");
    }
}

#[test]
fn nothing_is_below_the_subschema_subentry() {
    let directory = in_memory();
    fill(&directory);
    for (scope, count) in [
        (Scope::Base, 1),
        (Scope::OneLevel, 0),
        (Scope::Subtree, 0),
        (Scope::Subordinates, 0),
    ] {
        for base in ["cn=Subschema", "CN = subschema"] {
            let asked = Query {
                identity: Identity::Anonymous,
                ..query(base, scope, "(objectClass=*)")
            };
            let found = found(&directory, asked);
            assert_eq!(
                (found.code, found.entries.len()),
                (ResultCode::Success, count)
            );
        }
        // One page holds it all, and a cookie that nobody gave leads nowhere.
        for (base, cookie) in [("cn=Subschema", b"x".to_vec()), ("", vec![1; 22])] {
            let page = |cookie| {
                let options = SearchOptions {
                    page: Some((1, cookie)),
                    ..SearchOptions::default()
                };
                let asked = Query {
                    options,
                    ..query(base, scope, "(objectClass=*)")
                };
                search(&directory, &asked).code
            };
            assert_eq!(page(Vec::new()), ResultCode::Success);
            assert_eq!(page(cookie), ResultCode::UnwillingToPerform);
        }
    }
}

#[test]
fn entries_beside_the_tree_are_compared() {
    let directory = in_memory();
    let compare = |identity: &Identity, dn: &str, attribute: &str, value: &str| {
        compare_as(
            &directory,
            identity,
            dn,
            attribute,
            value,
            CompareOptions::default(),
        )
        .code
    };
    for identity in [admin(), Identity::Anonymous] {
        for (dn, attribute, value, code) in [
            ("", "objectClass", "top", ResultCode::CompareTrue),
            ("", "objectClass", "person", ResultCode::CompareFalse),
            (
                "",
                "supportedFeatures",
                "1.2.3",
                ResultCode::NoSuchAttribute,
            ),
            (
                "",
                "defaultNamingContext",
                "DC=example,dc=COM",
                ResultCode::CompareTrue,
            ),
            ("cn=Subschema", "cn", "SUBSCHEMA", ResultCode::CompareTrue),
            (
                "cn=subschema",
                "objectClass",
                "subentry",
                ResultCode::CompareTrue,
            ),
            (
                "cn=Subschema",
                "attributeTypes",
                "cn",
                ResultCode::CompareTrue,
            ),
            ("cn=Subschema", "sn", "x", ResultCode::NoSuchAttribute),
        ] {
            assert_eq!(
                compare(&identity, dn, attribute, value),
                code,
                "{dn:?} {attribute} {value}"
            );
        }
    }
    let code = compare(&Identity::Anonymous, "cn=x,o=other", "cn", "x");
    assert_eq!(code, ResultCode::InsufficientAccessRights);
}

/// The subentries control, with which the subschema subentry is found below itself and the root DSE is not.
#[test]
fn the_subentries_control_tells_the_subschema_from_the_root_dse() {
    let directory = in_memory();
    for (base, scope, subentries, count) in [
        ("", Scope::Base, Some(true), 0),
        ("", Scope::Base, Some(false), 1),
        ("cn=Subschema", Scope::Base, Some(true), 1),
        ("cn=Subschema", Scope::Base, Some(false), 0),
        ("cn=Subschema", Scope::Subtree, Some(true), 1),
        ("cn=Subschema", Scope::Subtree, Some(false), 0),
        ("cn=Subschema", Scope::OneLevel, Some(true), 0),
    ] {
        let mut asked = query(base, scope, "(objectClass=*)");
        asked.options.subentries = subentries;
        let found = search(&directory, &asked);
        let told = (found.code, found.entries.len());
        assert_eq!(
            told,
            (ResultCode::Success, count),
            "{base:?} {scope:?} {subentries:?}"
        );
    }
}

#[test]
fn the_root_dse_says_what_is_on() {
    let mut options = sapwood_testkit::directories::options();
    let [start, length] = [Extension::ImplicitStart, Extension::QueueLength];
    options.root_dse.controls = vec![
        Offered::everywhere("1.2.1", None),
        Offered::everywhere("1.2.2", Some(Needs::Extension(length))),
    ];
    options.root_dse.features = vec![Offered::everywhere("1.3.1", Some(Needs::Extension(start)))];
    let directory =
        Directory::create_on(engine(), &sapwood_testkit::directories::config(), options).unwrap();
    for names in [
        &[][..],
        &["implicit_start"],
        &["queue_length"],
        &["implicit_start", "queue_length"],
        &[],
    ] {
        let change = (ChangeKind::Replace, "sapwoodExtensions", names);
        succeed(
            &directory,
            modify("olcDatabase={1}mdb,cn=config", &[change]),
        );
        let asked = Query {
            attributes: &["supportedControl", "supportedFeatures"],
            ..query("", Scope::Base, "(objectClass=*)")
        };
        let dse = search(&directory, &asked);
        let says = |line: &str| dse.entries[0].1.contains(line);
        assert!(says("supportedControl: 1.2.1"));
        assert_eq!(
            says("supportedControl: 1.2.2"),
            names.contains(&"queue_length")
        );
        assert_eq!(
            says("supportedFeatures: 1.3.1"),
            names.contains(&"implicit_start")
        );
    }
}

#[test]
fn the_root_dse_says_what_works_on_a_connection() {
    let mut options = sapwood_testkit::directories::options();
    let offered = |name: &str, works_on| Offered {
        name: name.into(),
        works_on,
        needs: None,
    };
    options.root_dse.extensions = vec![
        offered("1.1.1", |_| true),
        offered("1.1.2", |channel| channel.takes_tls),
    ];
    options.root_dse.sasl_mechanisms = vec![
        offered("EXTERNAL", |channel| channel.is_vouched_for),
        offered("PLAIN", |channel| channel.is_under_tls),
    ];
    let engine = engine();
    let directory =
        Directory::create_on(engine, &sapwood_testkit::directories::config(), options).unwrap();
    for kind in 0..8 {
        let [is_vouched_for, takes_tls, is_under_tls] = [1, 2, 4].map(|bit| kind & bit != 0);
        let options = SearchOptions {
            channel: Channel {
                is_vouched_for,
                takes_tls,
                is_under_tls,
            },
            ..SearchOptions::default()
        };
        let asked = Query {
            options,
            attributes: &[
                "supportedExtension",
                "supportedSASLMechanisms",
                "defaultNamingContext",
            ],
            ..query("", Scope::Base, "(objectClass=*)")
        };
        let dse = search(&directory, &asked);
        let says = |line: &str| dse.entries[0].1.contains(line);
        assert!(
            says("supportedExtension: 1.1.1") && says("defaultNamingContext: dc=example,dc=com")
        );
        assert_eq!(says("supportedExtension: 1.1.2"), takes_tls);
        assert_eq!(says("supportedSASLMechanisms: EXTERNAL"), is_vouched_for);
        assert_eq!(says("supportedSASLMechanisms: PLAIN"), is_under_tls);
    }
}
