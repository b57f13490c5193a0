//! Searches: the same answers whatever indexes there are, and the answers RFC 4511 §4.5 asks for.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::made::{Directory, engine, in_memory, in_stores};
use proptest::prelude::*;
use sapwood_directory::engine::{Engine, Model};
use sapwood_directory::schema::Schema;
use sapwood_directory::{
    Budget, Clock, CompareOptions, Config, Identity, IndexDefinition, Options, Search,
    SearchOptions, Step, Ticket, Update, Wire,
};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{DerefAliases, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::Answer;
use sapwood_testkit::directories::{self, admin, as_admin};

use crate::query::{Found, Query, asked, query, search, search_in, search_together};

const SUFFIX: &str = "dc=example,dc=com";

fn indexes(text: &[(&str, &str)]) -> Vec<IndexDefinition> {
    text.iter()
        .map(|(attribute, kinds)| IndexDefinition {
            attribute: (*attribute).to_owned(),
            equality: kinds.contains("eq"),
            presence: kinds.contains("pres"),
            substring: kinds.contains("sub"),
            approximate: kinds.contains("approx"),
            ordering: kinds.contains("ord"),
        })
        .collect()
}

fn directory_on<E: Engine>(
    engine: E,
    definitions: &[(&str, &str)],
    entries: &[String],
) -> Directory<E> {
    let config = Config {
        naming_contexts: vec![SUFFIX.to_owned()],
        indexes: indexes(definitions),
        ..Config::default()
    };
    let directory =
        Directory::create_on(engine, &config, Options::new(Schema::standard())).unwrap();
    add(&directory, entries);
    directory
}

/// Adds entries written as LDIF, one by one in one batch.
fn add<E: Engine>(directory: &Directory<E>, entries: &[String]) {
    let updates: Vec<Update> = entries
        .iter()
        .map(|text| {
            let (first, lines) = text.split_once('\n').unwrap();
            as_admin(directories::add(first.strip_prefix("dn: ").unwrap(), lines))
        })
        .collect();
    let applied = directory.apply(&updates).unwrap();
    for (outcome, text) in applied.outcomes.iter().zip(entries) {
        assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}\n{text}");
    }
    applied.ticket.unwrap().wait().unwrap();
}

fn people() -> Vec<String> {
    let mut entries = vec![
        format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example"),
        format!("dn: ou=People,{SUFFIX}\nobjectClass: organizationalUnit\nou: People"),
        format!("dn: ou=Groups,{SUFFIX}\nobjectClass: organizationalUnit\nou: Groups"),
        format!(
            "dn: ou=Elsewhere,{SUFFIX}\nobjectClass: referral\nobjectClass: extensibleObject\nou: Elsewhere\n\
             ref: ldap://other.example/ou=There,dc=example,dc=org"
        ),
        format!(
            "dn: ou=Alias,{SUFFIX}\nobjectClass: alias\nobjectClass: extensibleObject\nou: Alias\n\
             aliasedObjectName: ou=Groups,{SUFFIX}"
        ),
    ];
    let names = [
        "Ada Smith",
        "Bob Miller",
        "Cara  van Dyke",
        "Dan O'Hara",
        "Eve Straße",
        "Fay Smithson",
    ];
    for (number, name) in names.iter().enumerate() {
        let surname = name.rsplit(' ').next().unwrap();
        entries.push(format!(
            "dn: uid=user{number},ou=People,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: user{number}\ncn: {name}\n\
             cn;lang-en: {surname} {number}\nsn: {surname}\nmail: user{number}@example.com\nemployeeNumber: {}\n\
             userPassword: {{SSHA}}AAAA{number}",
            number * 7
        ));
    }
    entries.push(format!(
        "dn: cn=all,ou=Groups,{SUFFIX}\nobjectClass: groupOfNames\ncn: all\nmember: uid=user0,ou=People,{SUFFIX}\n\
         member: UID=user1, OU=people, {SUFFIX}"
    ));
    entries.push(format!(
        "dn: cn=inner,cn=all,ou=Groups,{SUFFIX}\nobjectClass: posixGroup\ncn: inner\ngidNumber: 1000\nmemberUid: user2"
    ));
    entries
}

const ALL_INDEXES: &[(&str, &str)] = &[
    ("uid", "eq pres sub"),
    ("cn", "eq pres sub"),
    ("sn", "eq sub"),
    ("mail", "eq sub"),
    ("member", "eq"),
    ("employeeNumber", "eq"),
    ("gidNumber", "eq ord pres"),
    ("ou", "eq pres"),
];

fn indexed() -> Directory {
    directory_on(engine(), ALL_INDEXES, &people())
}

fn dns_of(directory: &Directory, base: &str, scope: Scope, filter: &str) -> Vec<String> {
    let found = search(directory, &query(base, scope, filter));
    assert_eq!(found.code, ResultCode::Success);
    found.dns().into_iter().map(str::to_owned).collect()
}

#[test]
fn scopes_cover_what_they_say() {
    let directory = indexed();
    let people = format!("ou=People,{SUFFIX}");
    let any = "(objectClass=*)";
    assert_eq!(
        dns_of(&directory, &people, Scope::Base, any),
        std::slice::from_ref(&people)
    );
    assert_eq!(dns_of(&directory, &people, Scope::OneLevel, any).len(), 6);
    assert_eq!(dns_of(&directory, &people, Scope::Subtree, any).len(), 7);
    assert_eq!(
        dns_of(&directory, &people, Scope::Subordinates, any).len(),
        6
    );
    let groups = format!("ou=groups, {SUFFIX}");
    assert_eq!(dns_of(&directory, &groups, Scope::Subtree, any).len(), 3);
    assert_eq!(dns_of(&directory, &groups, Scope::OneLevel, any).len(), 1);
}

#[test]
fn filters_have_three_values() {
    let directory = indexed();
    let count = |filter: &str| dns_of(&directory, SUFFIX, Scope::Subtree, filter).len();
    assert_eq!(count("(uid=USER3)"), 1);
    assert_eq!(count("(cn=cara van dyke)"), 1);
    assert_eq!(count("(cn=*smith*)"), 2);
    assert_eq!(count("(sn=smith*)"), 2);
    assert_eq!(count("(sn=*son)"), 1);
    assert_eq!(count("(cn=a*i*h)"), 1);
    assert_eq!(count("(name=user*)"), 0);
    assert_eq!(count("(name=smith)"), 1);
    assert_eq!(count("(cn;lang-en=*)"), 6);
    assert_eq!(count("(cn;lang-de=*)"), 0);
    assert_eq!(count("(gidNumber>=1000)"), 1);
    assert_eq!(count("(gidNumber>=1001)"), 0);
    assert_eq!(count("(gidNumber<=1000)"), 1);
    assert_eq!(count(&format!("(member=uid=USER1,ou=people,{SUFFIX})")), 1);
    assert_eq!(count("(nonsense=*)"), 0);
    assert_eq!(count("(!(nonsense=*))"), 0);
    assert_eq!(count("(!(gidNumber=word))"), 0);
    assert_eq!(count("(|(nonsense=*)(uid=user1))"), 1);
    assert_eq!(count("(&(nonsense=*)(uid=user1))"), 0);
    assert_eq!(count("(&)"), 13 - 1);
    assert_eq!(count("(|)"), 0);
    assert_eq!(count("(hasSubordinates=TRUE)"), 4);
    assert_eq!(count("(numSubordinates>=6)"), 1);
    assert_eq!(count(&format!("(entryDN=ou=people,{SUFFIX})")), 1);
    assert_eq!(count("(ou:dn:=Groups)"), 3);
    assert_eq!(count("(cn:caseExactMatch:=Ada Smith)"), 1);
    assert_eq!(count("(cn:caseExactMatch:=ada smith)"), 0);
    assert_eq!(count("(:caseExactMatch:=Ada Smith)"), 1);
    assert_eq!(count("(cn:caseExactSubstringsMatch:=Ada\\2a)"), 1);
    assert_eq!(count("(cn:caseExactSubstringsMatch:=ada\\2a)"), 0);
    assert_eq!(count("(cn:caseExactSubstringsMatch:=Ada)"), 0);
    assert_eq!(count("(gidNumber:integerOrderingMatch:=1000)"), 0);
    assert_eq!(count("(gidNumber:integerOrderingMatch:=1001)"), 1);
    assert_eq!(count("(gidNumber:1.2.840.113556.1.4.803:=992)"), 1);
    assert_eq!(count("(gidNumber:1.2.840.113556.1.4.803:=3)"), 0);
    let people = |rule: &str| count(&format!("(entryDN:{rule}:=ou=people,{SUFFIX})"));
    let below = people("dnSubordinateMatch");
    assert!(below > 0);
    assert_eq!(people("dnOneLevelMatch"), below);
    assert_eq!(people("1.3.6.1.4.1.4203.666.4.9"), below + 1);
    assert_eq!(people("dnSuperiorMatch"), 1);
}

#[test]
fn attributes_are_selected_as_asked() {
    let directory = indexed();
    let dn = format!("uid=user0,ou=People,{SUFFIX}");
    let names = |attributes: &[&str], identity: Identity, types_only: bool| -> Vec<String> {
        let found = search(
            &directory,
            &Query {
                attributes,
                identity,
                types_only,
                ..query(&dn, Scope::Base, "(objectClass=*)")
            },
        );
        let names: BTreeSet<String> = found.entries[0]
            .1
            .iter()
            .map(|line| line.split(": ").next().unwrap().to_owned())
            .collect();
        names.into_iter().collect()
    };
    let user = Identity::User {
        entry: sapwood_directory::EntryId(u64::MAX - 1),
        dn: String::new(),
    };
    assert_eq!(
        names(&[], user.clone(), false),
        [
            "cn",
            "cn;lang-en",
            "employeeNumber",
            "mail",
            "objectClass",
            "sn",
            "uid"
        ]
    );
    assert!(names(&["*"], admin(), false).contains(&"userPassword".to_owned()));
    assert!(
        !names(&["userPassword", "uid"], user.clone(), false).contains(&"userPassword".to_owned())
    );
    assert_eq!(names(&["1.1"], admin(), false), [""; 0]);
    assert_eq!(names(&["name"], admin(), false), ["cn", "cn;lang-en", "sn"]);
    assert_eq!(names(&["cn;lang-en"], admin(), true), ["cn;lang-en"]);
    assert_eq!(
        names(&["@uidObject", "mail", "mail"], admin(), false),
        ["mail", "objectClass", "uid"]
    );
    let operational = names(&["+"], user, false);
    for name in [
        "createTimestamp",
        "creatorsName",
        "entryCSN",
        "entryDN",
        "entryUUID",
        "hasSubordinates",
        "modifiersName",
        "modifyTimestamp",
        "numSubordinates",
        "structuralObjectClass",
        "subschemaSubentry",
    ] {
        assert!(
            operational.contains(&name.to_owned()),
            "{name} is not among {operational:?}"
        );
    }
    assert!(!operational.contains(&"cn".to_owned()));
}

#[test]
fn aliases_are_followed_when_asked() {
    let directory = indexed();
    let alias = format!("ou=Alias,{SUFFIX}");
    let groups = format!("ou=Groups,{SUFFIX}");
    let run = |base: &str, scope, deref| {
        let found = search(
            &directory,
            &Query {
                deref,
                ..query(base, scope, "(|(objectClass=*)(cn=*))")
            },
        );
        assert_eq!(found.code, ResultCode::Success);
        found
            .dns()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        run(&alias, Scope::Base, DerefAliases::Never),
        std::slice::from_ref(&alias)
    );
    assert_eq!(
        run(&alias, Scope::Base, DerefAliases::FindingBase),
        std::slice::from_ref(&groups)
    );
    assert_eq!(run(&alias, Scope::Subtree, DerefAliases::Always).len(), 3);
    let below = format!("cn=all,{alias}");
    assert_eq!(
        run(&below, Scope::Base, DerefAliases::Always),
        [format!("cn=all,{groups}")]
    );
    let whole = run(SUFFIX, Scope::Subtree, DerefAliases::InSearching);
    assert!(whole.contains(&groups) && !whole.contains(&alias));
    let one = run(SUFFIX, Scope::OneLevel, DerefAliases::Always);
    assert!(one.contains(&groups) && !one.contains(&alias));
    let missing = search(&directory, &query(&below, Scope::Base, "(objectClass=*)"));
    assert_eq!(
        (missing.code, missing.matched),
        (ResultCode::NoSuchObject, alias)
    );
}

#[test]
fn referral_objects_refer() {
    let directory = indexed();
    let at = |base: &str, scope, manage_dsa_it| {
        let options = SearchOptions {
            manage_dsa_it,
            ..SearchOptions::default()
        };
        search(
            &directory,
            &Query {
                options,
                ..query(base, scope, "(uid=nobody)")
            },
        )
    };
    let references = |found: Found| found.references.into_iter().collect::<Vec<_>>();
    let whole = at(SUFFIX, Scope::Subtree, false);
    assert_eq!((whole.code, whole.entries.len()), (ResultCode::Success, 0));
    assert_eq!(
        references(whole),
        ["ldap://other.example/ou=There,dc=example,dc=org??sub"]
    );
    let one = at(SUFFIX, Scope::OneLevel, false);
    assert_eq!(
        references(one),
        ["ldap://other.example/ou=There,dc=example,dc=org??base"]
    );
    assert!(references(at(SUFFIX, Scope::Subtree, true)).is_empty());
    let below = at(
        &format!("cn=x,ou=Elsewhere,{SUFFIX}"),
        Scope::Subtree,
        false,
    );
    assert_eq!(below.code, ResultCode::Referral);
    assert_eq!(
        references(below),
        ["ldap://other.example/cn=x,ou=There,dc=example,dc=org??sub"]
    );
}

/// They were written without a look at the room there was.
#[test]
fn references_wait_for_room_and_are_as_many_as_have_some() {
    let directory = indexed();
    let elsewhere = format!("ou=More,{SUFFIX}");
    let urls: String = (0..2000)
        .map(|number| format!("\nref: ldap://h{number}/"))
        .collect();
    let lines = format!("objectClass: referral\nobjectClass: extensibleObject\nou: More{urls}");
    directories::succeed(&directory, directories::add(&elsewhere, &lines));
    for scope in [Scope::Subtree, Scope::OneLevel] {
        asked(&query(SUFFIX, scope, "(uid=nobody)"), |request| {
            let requester = directory.requester(admin());
            let snapshot = directory.snapshot().unwrap();
            let options = SearchOptions::default();
            let mut search = Search::new(snapshot, &requester, request, options);
            let (mut out, mut waits, mut room) = (Vec::new(), 0, 10);
            let outcome = loop {
                let out_bytes = out.len() + room;
                let budget = Budget {
                    entries: 100,
                    work: u64::MAX,
                    out_bytes,
                };
                let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
                let step = search.step(&mut wire, budget).unwrap();
                assert!(out.len() <= out_bytes, "more than there was room for");
                match step {
                    Step::Done(outcome) => break outcome,
                    Step::Room(bytes) => (waits, room) = (waits + 1, bytes),
                    Step::Fetch => search.snapshot().fetch().unwrap(),
                    Step::More | Step::Wait => room = 10,
                }
            };
            assert!(
                outcome.code == ResultCode::Success && waits > 0,
                "{outcome:?}"
            );
            let answers = Answer::all(&out);
            let mut counts: Vec<usize> = answers.iter().map(|answer| answer.uris.len()).collect();
            counts.sort_unstable();
            // Each URL has the whole name besides: not all of them are sent.
            assert!(
                counts[0] == 1 && (1000..2000).contains(&counts[1]),
                "{counts:?}"
            );
            assert!(counts.len() == 2 && out.len() < 80 << 10, "{}", out.len());
        });
    }
}

/// What the searches of a commit tell each other is of that commit alone.
#[test]
fn searches_see_what_has_changed_since_the_last_one() {
    for directory in [in_memory(), in_stores()] {
        directories::seed(&directory);
        directories::succeed(&directory, directories::person("anne"));
        let people = format!("ou=People,{SUFFIX}");
        let anne = format!("uid=anne,{people}");
        let left = Cell::new(directory.snapshot().unwrap().end());
        let found = |base: &str| {
            let query = query(base, Scope::Subtree, "(uid=anne)");
            let snapshot = directory.snapshot_after(left.take().unwrap()).unwrap();
            assert!(snapshot.clone().end().is_none(), "there is a clone");
            let found = search_in(snapshot.clone(), &query);
            left.set(snapshot.end());
            assert_eq!(search(&directory, &query), found);
            found
        };
        for _ in 0..2 {
            assert_eq!(
                found(&people).dns().into_iter().collect::<Vec<_>>(),
                [&anne]
            );
            assert!(found(&people).references.is_empty());
        }
        let queries = [
            query(&anne, Scope::Base, "(objectClass=*)"),
            query(SUFFIX, Scope::Subtree, "(uid=anne)"),
            query(&people, Scope::OneLevel, "(uid=anne)"),
            query(&people, Scope::Base, "(ou=people)"),
        ];
        let alone = queries.each_ref().map(|query| search(&directory, query));
        assert!(alone.iter().all(|found| found.entries.len() == 1));
        assert_eq!(search_together(&directory, &queries), alone);
        let elsewhere = format!("ou=Elsewhere,{people}");
        let lines = "objectClass: referral\nobjectClass: extensibleObject\nou: Elsewhere\n\
                     ref: ldap://other.example/ou=There";
        directories::succeed(&directory, directories::add(&elsewhere, lines));
        for _ in 0..2 {
            assert_eq!(found(&people).references.len(), 1);
            assert_eq!(found(SUFFIX).references.len(), 1);
        }
        let gone = directories::with(
            directories::delete(&elsewhere),
            &[directories::MANAGE_DSA_IT],
        );
        directories::succeed(&directory, gone);
        assert!(found(&people).references.is_empty());
        if directory.stores() == 1 {
            let renamed = directories::rename(&people, "ou=Persons", true, None);
            directories::succeed(&directory, renamed);
            let anne = format!("uid=anne,ou=Persons,{SUFFIX}");
            assert_eq!(found(SUFFIX).dns().into_iter().collect::<Vec<_>>(), [&anne]);
        } else {
            directories::succeed(&directory, directories::delete(&anne));
            directories::succeed(&directory, directories::delete(&people));
        }
        assert_eq!(found(&people).code, ResultCode::NoSuchObject);
    }
}

#[test]
fn limits_and_errors_are_told() {
    let directory = indexed();
    let limited = search(
        &directory,
        &Query {
            size_limit: 3,
            ..query(SUFFIX, Scope::Subtree, "(uid=*)")
        },
    );
    assert_eq!(
        (limited.code, limited.entries.len()),
        (ResultCode::SizeLimitExceeded, 3)
    );
    let exact = search(
        &directory,
        &Query {
            size_limit: 6,
            ..query(SUFFIX, Scope::Subtree, "(uid=*)")
        },
    );
    assert_eq!((exact.code, exact.entries.len()), (ResultCode::Success, 6));
    let missing = search(
        &directory,
        &query(
            &format!("cn=x,ou=y,ou=People,{SUFFIX}"),
            Scope::Base,
            "(cn=*)",
        ),
    );
    assert_eq!(
        (missing.code, missing.matched),
        (ResultCode::NoSuchObject, format!("ou=People,{SUFFIX}"))
    );
    let invalid = search(&directory, &query("not a dn", Scope::Base, "(cn=*)"));
    assert_eq!(invalid.code, ResultCode::InvalidDnSyntax);
    let identity = Identity::Anonymous;
    let anonymous = search(
        &directory,
        &Query {
            identity,
            ..query(SUFFIX, Scope::Subtree, "(cn=*)")
        },
    );
    assert_eq!(
        (anonymous.code, anonymous.entries.len()),
        (ResultCode::InsufficientAccessRights, 0)
    );
    let deadline_micros = Some(1);
    let options = SearchOptions {
        deadline_micros,
        ..SearchOptions::default()
    };
    let late = search(
        &directory,
        &Query {
            options,
            ..query(SUFFIX, Scope::Subtree, "(cn=*)")
        },
    );
    assert_eq!(late.code, ResultCode::TimeLimitExceeded);
}

#[test]
fn the_root_dse_and_the_subschema_are_entries() {
    let directory = indexed();
    let attributes = &["*", "+"];
    let dse = search(
        &directory,
        &Query {
            attributes,
            identity: Identity::Anonymous,
            ..query("", Scope::Base, "(objectClass=*)")
        },
    );
    assert_eq!(dse.entries.len(), 1);
    let lines = &dse.entries[0].1;
    assert!(
        lines.contains(&format!("namingContexts: {SUFFIX}")),
        "{lines:?}"
    );
    assert!(lines.contains("supportedLDAPVersion: 3"));
    let subschema = lines
        .iter()
        .find_map(|line| line.strip_prefix("subschemaSubentry: "))
        .unwrap();
    let found = search(
        &directory,
        &Query {
            attributes,
            identity: Identity::Anonymous,
            ..query(subschema, Scope::Base, "(objectClass=subschema)")
        },
    );
    let lines = &found.entries[0].1;
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("attributeTypes: ( 2.5.4.3 "))
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("objectClasses: ( 2.5.6.6 "))
    );
}

/// Every page is asked for anew, with writes in between, and together they are the whole.
#[test]
fn pages_make_up_the_whole() {
    for (base, filter) in [
        (SUFFIX, "(objectClass=*)"),
        (SUFFIX, "(cn=*)"),
        ("ou=People", "(uid=*)"),
    ] {
        let base = if base == SUFFIX {
            base.to_owned()
        } else {
            format!("{base},{SUFFIX}")
        };
        for scope in [Scope::Subtree, Scope::OneLevel] {
            let directory = indexed();
            let manage_dsa_it = true;
            let options = SearchOptions {
                manage_dsa_it,
                ..SearchOptions::default()
            };
            let whole = search(
                &directory,
                &Query {
                    options,
                    ..query(&base, scope, filter)
                },
            );
            let mut seen = Vec::new();
            let mut cookie = Vec::new();
            for page in 0.. {
                let options = SearchOptions {
                    manage_dsa_it,
                    page: Some((2, cookie)),
                    ..SearchOptions::default()
                };
                let found = search(
                    &directory,
                    &Query {
                        options,
                        ..query(&base, scope, filter)
                    },
                );
                assert_eq!(found.code, ResultCode::Success);
                assert!(found.entries.len() <= 2);
                seen.extend(found.entries.into_iter().map(|entry| entry.0));
                cookie = found.cookie;
                if cookie.is_empty() {
                    break;
                }
                add(
                    &directory,
                    &[format!(
                        "dn: dc=page{page},{SUFFIX}\nobjectClass: domain\ndc: page{page}"
                    )],
                );
            }
            seen.retain(|dn| !dn.starts_with("dc=page"));
            let unique: BTreeSet<&str> = seen.iter().map(String::as_str).collect();
            assert_eq!(unique.len(), seen.len(), "an entry came twice");
            assert_eq!(unique, whole.dns());
        }
    }
}

#[test]
fn a_cookie_of_another_search_is_refused() {
    let directory = indexed();
    let page = |filter, cookie| {
        let options = SearchOptions {
            page: Some((1, cookie)),
            ..SearchOptions::default()
        };
        search(
            &directory,
            &Query {
                options,
                ..query(SUFFIX, Scope::Subtree, filter)
            },
        )
    };
    let first = page("(uid=*)", Vec::new());
    assert!(!first.cookie.is_empty());
    assert_eq!(
        page("(cn=*)", first.cookie).code,
        ResultCode::UnwillingToPerform
    );
    assert_eq!(
        page("(cn=*)", vec![1, 2, 3]).code,
        ResultCode::UnwillingToPerform
    );
}

fn item() -> impl Strategy<Value = String> {
    let attribute = prop::sample::select(vec![
        "uid",
        "cn",
        "sn",
        "name",
        "mail",
        "employeeNumber",
        "gidNumber",
        "ou",
        "objectClass",
        "cn;lang-en",
        "nonsense",
        "memberUid",
        "entryUUID",
        "hasSubordinates",
        "description",
    ]);
    let value = prop::sample::select(vec![
        "user1",
        "User2",
        "ada smith",
        "Smith",
        "Smithson",
        "person",
        "inetOrgPerson",
        "1000",
        "7",
        "TRUE",
        "people",
        "zzz",
        "strasse",
        "Straße",
        "user3@example.com",
    ]);
    let part = prop::sample::select(vec![
        "", "u", "us", "use", "er1", "mit", "Smith", "a s", " ", "son", "@example",
    ]);
    (attribute, value, part.clone(), part.clone(), part, 0..8u8).prop_map(
        |(attribute, value, a, b, c, kind)| match kind {
            0 => format!("({attribute}=*)"),
            1 => format!("({attribute}>={value})"),
            2 => format!("({attribute}<={value})"),
            3 => format!("({attribute}=*{}*)", if b.is_empty() { "x" } else { b }),
            4 => format!("({attribute}={a}*{b}*{c})").replace("**", "*"),
            5 => format!("({attribute}~={value})"),
            _ => format!("({attribute}={value})"),
        },
    )
}

fn filter() -> impl Strategy<Value = String> {
    item().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|parts| format!("(&{})", parts.concat())),
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|parts| format!("(|{})", parts.concat())),
            inner.prop_map(|part| format!("(!{part})")),
        ]
    })
}

proptest! {
    #![proptest_config(crate::made::random(24))]

    /// The plan is an optimisation: with every index, with none, and on the embedded store, the answers are the same.
    #[test]
    fn indexes_change_no_answer(filters in prop::collection::vec(filter(), 20), deref in 0..4u8, step_entries in 1..5u32) {
        let with = indexed();
        let without = directory_on(Model::default(), &[], &people());
        let embedded = directory_on(engine(), ALL_INDEXES, &people());
        let deref = [DerefAliases::Never, DerefAliases::InSearching, DerefAliases::FindingBase, DerefAliases::Always][usize::from(deref)];
        for filter in &filters {
            for base in [SUFFIX.to_owned(), format!("ou=People,{SUFFIX}"), format!("ou=Alias,{SUFFIX}")] {
                for scope in [Scope::Base, Scope::OneLevel, Scope::Subtree, Scope::Subordinates] {
                    let asked = Query { deref, step_entries, ..query(&base, scope, filter) };
                    let sorted = |mut found: Found| {
                        found.entries.sort();
                        for entry in &mut found.entries {
                            entry.1.retain(|line| !line.starts_with("entryUUID"));
                        }
                        found
                    };
                    let expected = sorted(search(&without, &asked));
                    prop_assert_eq!(&sorted(search(&with, &asked)), &expected, "{} {:?} {}", base, scope, filter);
                    prop_assert_eq!(&sorted(search(&embedded, &asked)), &expected, "{} {:?} {}", base, scope, filter);
                }
            }
        }
    }

    /// Beginning searches together changes no answer either: bases that are siblings or the same, that are missing,
    /// aliases, referrals or below one, or no DN at all; on an engine that fetches ahead and on one that does not.
    #[test]
    fn together_and_alone_are_the_same(asked in prop::collection::vec((0..BASES.len(), 0..4u8, 0..4u8, filter(), any::<bool>()), 1..20)) {
        let model = indexed();
        let embedded = directory_on(engine(), ALL_INDEXES, &people());
        let bases = BASES.map(|base| base.replace('$', SUFFIX));
        let queries: Vec<Query<'_>> = asked.iter().map(|(base, scope, deref, filter, manage_dsa_it)| {
            let scope = [Scope::Base, Scope::OneLevel, Scope::Subtree, Scope::Subordinates][usize::from(*scope)];
            let deref = [DerefAliases::Never, DerefAliases::InSearching, DerefAliases::FindingBase, DerefAliases::Always][usize::from(*deref)];
            let query = query(&bases[*base], scope, filter);
            let options = SearchOptions { manage_dsa_it: *manage_dsa_it, ..query.options };
            Query { deref, options, ..query }
        }).collect();
        let alone: Vec<Found> = queries.iter().map(|query| search(&model, query)).collect();
        prop_assert_eq!(search_together(&model, &queries), alone);
        let alone: Vec<Found> = queries.iter().map(|query| search(&embedded, query)).collect();
        prop_assert_eq!(search_together(&embedded, &queries), alone);
    }
}

/// Bases of searches; `$` stands for the suffix.
const BASES: [&str; 14] = [
    "$",
    "",
    "cn=Subschema",
    "ou=People,$",
    "uid=user0,ou=People,$",
    "uid=user1,ou=People,$",
    "UID = User2 , OU=people,$",
    "uid=nobody,ou=People,$",
    "uid=user3,ou=Alias,$",
    "ou=Alias,$",
    "cn=all,ou=Alias,$",
    "ou=Elsewhere,$",
    "cn=far,ou=Elsewhere,$",
    "no DN",
];

#[test]
fn the_time_limit_is_heeded_within_an_entry() {
    let clock = Arc::new(directories::Ticking::default());
    let options = Options {
        clock: clock.clone(),
        ..directories::options()
    };
    let engine = engine();
    let directory = Directory::create_on(engine, &directories::config(), options).unwrap();
    directories::seed(&directory);
    directories::succeed(&directory, directories::person("anne"));
    let values: Vec<String> = (0..100).map(|number| format!("value {number}")).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let dn = "uid=anne,ou=People,dc=example,dc=com";
    let changes: [(ChangeKind, &str, &[&str]); 1] = [(ChangeKind::Add, "description", &values)];
    directories::succeed(&directory, directories::modify(dn, &changes));
    let filter = format!("(|{})", "(description=*nothing*)".repeat(50));
    let code = |step_work: u64, seconds: u64| {
        let mut query = Query {
            step_work,
            ..query(dn, Scope::Base, &filter)
        };
        // The clock goes on by a second with each look, of which there is one a step, and one for what is not here.
        query.options.deadline_micros = Some(clock.now_micros() + seconds * 1_000_000);
        search(&directory, &query).code
    };
    assert_eq!(code(u64::MAX, 100), ResultCode::Success);
    assert_eq!(code(1, 100), ResultCode::TimeLimitExceeded);
    assert_eq!(code(1, 10_000), ResultCode::Success);
    let compared = |seconds: u64| {
        let filter = filter_text::parse(&filter).unwrap();
        let options = CompareOptions {
            assertion: Some(filter.as_filter()),
            deadline_micros: Some(clock.now_micros() + seconds * 1_000_000),
            ..CompareOptions::default()
        };
        directories::compare(&directory, dn, "uid", "anne", options).code
    };
    assert_eq!(compared(10), ResultCode::TimeLimitExceeded);
    assert_eq!(compared(10_000), ResultCode::AssertionFailed);
}
