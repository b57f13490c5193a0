//! Synthetic contexts of several entries, and `cn=config` as one.

use std::collections::BTreeSet;

use crate::made::{Directory, in_memory};
use sapwood_directory::engine::Engine;
use sapwood_directory::{CompareOptions, Identity, IndexDefinition, LocalConfig, SearchOptions};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{
    add, admin, apply, apply_as, compare_as, delete, modify, person, rename, seed, succeed,
};

use crate::query::{Found, Query, query, search, search_together};

const CONFIG: &str = "cn=config";
const SCHEMA: &str = "cn=schema,cn=config";
const FRONTEND: &str = "olcDatabase={-1}frontend,cn=config";
const CONFIG_DATABASE: &str = "olcDatabase={0}config,cn=config";
const DATA: &str = "olcDatabase={1}mdb,cn=config";
/// Of the two naming contexts.
const CONTEXTS: [&str; 2] = [
    "olcDatabase={2}mdb,cn=config",
    "olcDatabase={3}mdb,cn=config",
];

fn directory() -> Directory {
    let directory = in_memory();
    seed(&directory);
    succeed(&directory, person("anne"));
    directory
}

/// The same found alone and together with others.
fn found<E: Engine>(directory: &Directory<E>, asked: Query<'_>) -> Found {
    let alone = search(directory, &asked);
    assert_eq!(search_together(directory, &[asked]).remove(0), alone);
    alone
}

fn dns(base: &str, scope: Scope, filter: &str) -> Vec<String> {
    let found = found(&directory(), query(base, scope, filter));
    assert_eq!(found.code, ResultCode::Success, "{base} {filter}");
    found.entries.into_iter().map(|entry| entry.0).collect()
}

#[test]
fn scopes_and_filters_are_those_of_a_tree() {
    let all = [
        CONFIG,
        SCHEMA,
        FRONTEND,
        CONFIG_DATABASE,
        DATA,
        CONTEXTS[0],
        CONTEXTS[1],
    ];
    for (base, scope, expected) in [
        (CONFIG, Scope::Base, &all[..1]),
        (CONFIG, Scope::OneLevel, &all[1..]),
        (CONFIG, Scope::Subtree, &all[..]),
        (CONFIG, Scope::Subordinates, &all[1..]),
        ("CN = Config", Scope::Subtree, &all[..]),
        (DATA, Scope::Base, &all[4..5]),
        (DATA, Scope::Subtree, &all[4..5]),
        (DATA, Scope::OneLevel, &[]),
        (DATA, Scope::Subordinates, &[]),
        ("olcDatabase=mdb, cn=config", Scope::Base, &all[4..5]),
        ("olcDatabase={1},cn=config", Scope::Base, &all[4..5]),
        ("olcdatabase={1}MDB,2.5.4.3=config", Scope::Base, &all[4..5]),
        ("olcDatabase={3},cn=config", Scope::Subtree, &all[6..]),
    ] {
        assert_eq!(
            dns(base, scope, "(objectClass=*)"),
            expected,
            "{base} {scope:?}"
        );
    }
    for (filter, expected) in [
        ("(&(olcSuffix=O=Other)(olcDbIndex=*))", &all[4..5]),
        ("(&(olcSuffix=O=Other)(!(olcDbIndex=*)))", &all[6..]),
        ("(olcBackend=*)", &all[2..]),
        (
            "(&(objectClass=olcDatabaseConfig)(!(olcSuffix=*)))",
            &all[2..4],
        ),
        ("(hasSubordinates=TRUE)", &all[..1]),
        ("(numSubordinates=6)", &all[..1]),
        ("(entryDN=cn=SCHEMA,cn=config)", &all[1..2]),
        ("(olcAttributeTypes=*NAME 'uid'*)", &[]),
        ("(olcAttributeTypes=*olcSuffix*)", &all[1..2]),
        ("(uid=anne)", &[]),
    ] {
        assert_eq!(dns(CONFIG, Scope::Subtree, filter), expected, "{filter}");
    }
    // Other searches do not come here.
    let above = dns("", Scope::Subtree, "(objectClass=*)");
    assert!(above.iter().all(|dn| !dn.ends_with(CONFIG)), "{above:?}");
}

#[test]
fn pages_and_limits_hold() {
    let directory = directory();
    let page = |cookie, size, scope| {
        let options = SearchOptions {
            page: Some((size, cookie)),
            ..SearchOptions::default()
        };
        let asked = Query {
            options,
            ..query(CONFIG, scope, "(olcDatabase=*)")
        };
        search(&directory, &asked)
    };
    for size in 1..4 {
        let (mut seen, mut cookie) = (Vec::new(), Vec::new());
        loop {
            let found = page(cookie, size, Scope::Subtree);
            assert!(found.code == ResultCode::Success && found.entries.len() <= size as usize);
            seen.extend(found.entries.into_iter().map(|entry| entry.0));
            cookie = found.cookie;
            if cookie.is_empty() {
                break;
            }
        }
        let [one, other] = CONTEXTS;
        assert_eq!(seen, [FRONTEND, CONFIG_DATABASE, DATA, one, other]);
    }
    let first = page(Vec::new(), 1, Scope::Subtree);
    let other = page(first.cookie, 1, Scope::OneLevel);
    assert_eq!(other.code, ResultCode::UnwillingToPerform);
    let limited = Query {
        size_limit: 2,
        ..query(CONFIG, Scope::Subtree, "(objectClass=*)")
    };
    let limited = found(&directory, limited);
    let told = (limited.code, limited.entries.len());
    assert_eq!(told, (ResultCode::SizeLimitExceeded, 2));
    // In small pieces it is the same.
    let whole = search(
        &directory,
        &query(CONFIG, Scope::Subtree, "(olcObjectClasses=*person*)"),
    );
    let pieces = Query {
        step_work: 1,
        step_entries: 1,
        step_bytes: 64,
        ..query(CONFIG, Scope::Subtree, "(olcObjectClasses=*person*)")
    };
    assert_eq!(search(&directory, &pieces), whole);
    assert_eq!(whole.dns(), BTreeSet::from([SCHEMA]));
}

#[test]
fn what_is_not_there_is_told_with_what_is_above() {
    let directory = directory();
    for (dn, nearest) in [
        ("cn=x,cn=config", CONFIG),
        ("olcOverlay=x,olcDatabase=mdb,cn=config", DATA),
        ("olcDatabase={4}mdb,cn=config", CONFIG),
        ("cn=x,cn=Subschema", "cn=Subschema"),
    ] {
        let found = found(&directory, query(dn, Scope::Subtree, "(objectClass=*)"));
        let told = (found.code, found.matched.as_str());
        assert_eq!(told, (ResultCode::NoSuchObject, nearest), "{dn}");
        let options = CompareOptions::default();
        let compared = compare_as(&directory, &admin(), dn, "cn", "x", options);
        let told = (compared.code, compared.matched_dn.as_str());
        assert_eq!(told, (ResultCode::NoSuchObject, nearest), "{dn}");
    }
}

#[test]
fn the_configuration_is_shown() {
    let directory = directory();
    directory.set_local_config(LocalConfig {
        administrator: "cn=admin,o=other".into(),
        folder: "/srv/sapwood".into(),
    });
    succeed(
        &directory,
        modify(DATA, &[(ChangeKind::Replace, "olcTimeLimit", &["30"])]),
    );
    let lines = |dn: &str| {
        let asked = Query {
            attributes: &["*", "+"],
            ..query(dn, Scope::Base, "(objectClass=*)")
        };
        let found = found(&directory, asked);
        found.entries.into_iter().next().unwrap().1
    };
    let data = lines(DATA);
    for line in [
        "olcDatabase: {1}mdb",
        "objectClass: olcMdbConfig",
        "olcDbDirectory: /srv/sapwood",
        "olcSuffix: dc=example,dc=com",
        "olcSuffix: o=other",
        "olcRootDN: cn=admin,o=other",
        "olcSizeLimit: unlimited",
        "olcTimeLimit: 30",
        "sapwoodEntryBytesMax: 16777216",
        "sapwoodAnonymousRead: FALSE",
        "structuralObjectClass: olcMdbConfig",
        "olcDbIndex: cn pres,eq,sub",
        "olcDbIndex: uidNumber eq,ord",
        "olcDbIndex: objectClass eq",
    ] {
        assert!(data.contains(line), "{line}: {data:?}");
    }
    let schema = lines(SCHEMA);
    let has = |start: &str, end: &str| {
        schema
            .iter()
            .any(|line| line.starts_with(start) && line.contains(end))
    };
    assert!(has("olcAttributeTypes: {0}( ", "") && has("olcObjectClasses: {", "NAME 'olcGlobal'"));
    // What changes is shown anew: an index, and what is configured with the server.
    let sn = IndexDefinition {
        attribute: "sn".into(),
        equality: true,
        ..IndexDefinition::default()
    };
    directory.add_index(&sn, |_| {}).unwrap();
    assert!(lines(DATA).contains("olcDbIndex: sn eq"));
    directory.set_local_config(LocalConfig::default());
    let data = lines(DATA);
    assert!(!data.iter().any(|line| line.starts_with("olcRootDN")));
    let compared = |value| {
        let options = CompareOptions::default();
        compare_as(&directory, &admin(), DATA, "olcSuffix", value, options).code
    };
    assert_eq!(compared("O=OTHER"), ResultCode::CompareTrue);
    assert_eq!(compared("o=else"), ResultCode::CompareFalse);
}

/// To anyone but the administrator it is as any name that the server does not hold.
#[test]
fn it_exists_for_the_administrator_alone() {
    let directory = directory();
    let snapshot = directory.snapshot().unwrap();
    let dn = format!("uid=anne,ou=People,{}", sapwood_testkit::SUFFIX);
    let entry = snapshot
        .through(|snapshot| snapshot.credentials(&dn, 1))
        .unwrap()
        .unwrap()
        .entry;
    drop(snapshot);
    for identity in [Identity::User { entry, dn }, Identity::Anonymous] {
        for dn in [CONFIG, SCHEMA, DATA, "cn=x,cn=config"] {
            let of = |base| Query {
                identity: identity.clone(),
                ..query(base, Scope::Subtree, "(objectClass=*)")
            };
            let (here, nowhere) = (
                found(&directory, of(dn)),
                found(&directory, of("cn=nowhere")),
            );
            assert_eq!(here, nowhere);
            assert!(here.code != ResultCode::Success && here.matched.is_empty());
            let compared = |dn| {
                let options = CompareOptions::default();
                let outcome = compare_as(&directory, &identity, dn, "cn", "config", options);
                (outcome.code, outcome.matched_dn)
            };
            assert_eq!(compared(dn), compared("cn=nowhere"));
            let deleted = |dn| {
                let outcome = apply_as(&directory, identity.clone(), delete(dn));
                (outcome.code, outcome.matched_dn)
            };
            assert_eq!(deleted(dn), deleted("cn=nowhere"));
        }
    }
}

#[test]
fn no_other_update_is_taken_there() {
    let directory = directory();
    for (update, code) in [
        (delete(SCHEMA), ResultCode::UnwillingToPerform),
        (
            rename(DATA, "olcDatabase=x", true, None),
            ResultCode::UnwillingToPerform,
        ),
        (
            add("cn=x,cn=config", "objectClass: device"),
            ResultCode::UnwillingToPerform,
        ),
        (
            add("cn=config", "objectClass: device"),
            ResultCode::EntryAlreadyExists,
        ),
    ] {
        let outcome = apply(&directory, update);
        assert_eq!(outcome.code, code, "{}", outcome.diagnostic);
    }
    let outcome = apply(&directory, delete(DATA));
    assert!(
        outcome.diagnostic.contains("sapwood.toml"),
        "{}",
        outcome.diagnostic
    );
}
