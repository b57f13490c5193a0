//! The rule `dds`: entries end by themselves (RFC 2589).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::clock::Set;
use crate::made::{Directory, engine};
use sapwood_directory::access::parse_rules;
use sapwood_directory::{
    Config, DdsRule, Identity, IndexDefinition, Options, Policy, Settings, UpdateRequest,
};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::SUFFIX;
use sapwood_testkit::directories::*;

use crate::query::{Query, query, search};

/// 2026-01-01T00:00:00Z.
const BEGIN: u64 = 1_767_225_600;

fn directory(rule: Option<DdsRule>) -> (Directory, Arc<Set>) {
    let clock = Arc::new(Set::default());
    clock.set(BEGIN * 1_000_000);
    let settings = Settings {
        dds: rule,
        ..Settings::default()
    };
    let config = Config {
        settings,
        ..config()
    };
    let options = Options {
        clock: clock.clone(),
        ..options()
    };
    let directory = Directory::create_on(engine(), &config, options).unwrap();
    succeed(&directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    (directory, clock)
}

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

fn dynamic(dn: &str) -> UpdateRequest {
    let cn = dn.split([',', '=']).nth(1).unwrap();
    let lines = format!("objectClass: person\nobjectClass: dynamicObject\ncn: {cn}\nsn: x");
    add(dn, &lines)
}

fn lasting(dn: &str) -> UpdateRequest {
    let cn = dn.split([',', '=']).nth(1).unwrap();
    add(dn, &format!("objectClass: person\ncn: {cn}\nsn: x"))
}

fn refresh(dn: &str, seconds: u32) -> UpdateRequest {
    UpdateRequest::Refresh {
        dn: dn.to_owned(),
        seconds,
    }
}

/// For how many seconds an entry lives on, and until when.
fn life(directory: &Directory, dn: &str) -> BTreeSet<String> {
    let asked = Query {
        attributes: &["entryTtl", "entryExpireTimestamp"],
        ..query(dn, Scope::Base, "(objectClass=*)")
    };
    search(directory, &asked).entries.remove(0).1
}

fn all(directory: &Directory) -> BTreeSet<String> {
    let found = search(
        directory,
        &query(SUFFIX, Scope::Subordinates, "(objectClass=*)"),
    );
    found.entries.into_iter().map(|(dn, _)| dn).collect()
}

fn lines<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.map(str::to_owned).into()
}

#[test]
fn entries_end_after_their_time() {
    let (directory, clock) = directory(Some(DdsRule {
        default_ttl: 100,
        tolerance: 10,
        ..DdsRule::default()
    }));
    let (a, b, c) = (dn("a"), dn("b"), dn("c"));
    succeed(&directory, dynamic(&a));
    succeed(&directory, lasting(&c));
    let expected = lines(["entryTtl: 100", "entryExpireTimestamp: 20260101000140Z"]);
    assert_eq!(life(&directory, &a), expected);
    assert_eq!(life(&directory, &c), lines([]));
    clock.set((BEGIN + 60) * 1_000_000);
    succeed(&directory, dynamic(&b));
    let left = lines(["entryTtl: 40", "entryExpireTimestamp: 20260101000140Z"]);
    assert_eq!(life(&directory, &a), left);
    let found = search(&directory, &query(SUFFIX, Scope::Subtree, "(entryTtl=40)"));
    assert_eq!(found.entries.len(), 0, "it has no equality rule");
    // Too early, and within the tolerance.
    for seconds in [99, 105] {
        clock.set((BEGIN + seconds) * 1_000_000);
        assert_eq!(directory.delete_ended(|| true).unwrap(), 0);
    }
    assert!(life(&directory, &a).contains("entryTtl: 0"));
    clock.set((BEGIN + 110) * 1_000_000);
    assert_eq!(directory.delete_ended(|| false).unwrap(), 0);
    assert_eq!(directory.delete_ended(|| true).unwrap(), 1);
    assert_eq!(all(&directory), [b.clone(), c.clone()].into());
    succeed(&directory, refresh(&b, 1000));
    clock.set((BEGIN + 1109) * 1_000_000);
    assert_eq!(directory.delete_ended(|| true).unwrap(), 0);
    assert!(life(&directory, &b).contains("entryTtl: 1"));
    clock.set((BEGIN + 1120) * 1_000_000);
    assert_eq!(directory.delete_ended(|| true).unwrap(), 1);
    assert_eq!(all(&directory), [c].into());
}

#[test]
fn what_is_below_ends_first_however_many_there_are() {
    for has_index in [false, true] {
        let (directory, clock) = directory(Some(DdsRule {
            default_ttl: 100,
            ..DdsRule::default()
        }));
        if has_index {
            let index = IndexDefinition {
                attribute: "entryExpireTimestamp".into(),
                ordering: true,
                ..IndexDefinition::default()
            };
            directory.add_index(&index, |_| {}).unwrap();
        }
        let top = dn("top");
        succeed(&directory, dynamic(&top));
        for number in 0..250 {
            succeed(&directory, dynamic(&format!("cn=n{number},{top}")));
        }
        let kept = format!("cn=n7,{top}");
        succeed(&directory, refresh(&kept, 1000));
        clock.set((BEGIN + 100) * 1_000_000);
        assert_eq!(directory.delete_ended(|| true).unwrap(), 249);
        assert_eq!(all(&directory), [top.clone(), kept].into());
        clock.set((BEGIN + 1000) * 1_000_000);
        assert_eq!(directory.delete_ended(|| true).unwrap(), 2);
        assert_eq!(all(&directory), [].into());
        let report = directory.check(|_| {}).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

#[test]
fn entries_are_dynamic_or_not_from_the_beginning() {
    let (directory, _) = directory(Some(DdsRule {
        max_objects: 3,
        ..DdsRule::default()
    }));
    let (a, b, c) = (dn("a"), dn("b"), dn("c"));
    succeed(&directory, dynamic(&a));
    succeed(&directory, lasting(&b));
    let class = |kind, dn: &str| modify(dn, &[(kind, "objectClass", &["dynamicObject"])]);
    refused(&directory, class(Add, &b), ResultCode::ObjectClassViolation);
    refused(
        &directory,
        class(Delete, &a),
        ResultCode::ObjectClassViolation,
    );
    succeed(&directory, modify(&a, &[(Replace, "sn", &["y"])]));
    for attribute in ["entryTtl", "entryExpireTimestamp"] {
        let written = modify(&a, &[(Replace, attribute, &["20300101000000Z"])]);
        let code = apply(&directory, written).code;
        assert!(
            [
                ResultCode::ConstraintViolation,
                ResultCode::InvalidAttributeSyntax
            ]
            .contains(&code),
            "{code:?}"
        );
    }
    // Nothing that lasts is below what does not.
    refused(
        &directory,
        lasting(&format!("cn=x,{a}")),
        ResultCode::ConstraintViolation,
    );
    refused(
        &directory,
        rename(&b, "cn=b", true, Some(&a)),
        ResultCode::ConstraintViolation,
    );
    succeed(&directory, dynamic(&format!("cn=x,{a}")));
    succeed(&directory, dynamic(&format!("cn=y,{b}")));
    refused(&directory, dynamic(&c), ResultCode::UnwillingToPerform);
    refused(&directory, refresh(&b, 5), ResultCode::ObjectClassViolation);
    refused(&directory, refresh(&c, 5), ResultCode::NoSuchObject);
}

#[test]
fn who_refreshes_manages_entry_ttl() {
    let (directory, _) = directory(Some(DdsRule::default()));
    let (a, b) = (dn("a"), dn("b"));
    succeed(&directory, dynamic(&a));
    succeed(&directory, lasting(&b));
    let snapshot = directory.snapshot().unwrap();
    let credentials = snapshot
        .through(|snapshot| snapshot.credentials(&b, 0))
        .unwrap();
    let identity = Identity::User {
        entry: credentials.unwrap().entry,
        dn: b.clone(),
    };
    drop(snapshot);
    let asks = |rules: &str| {
        let rules = parse_rules(rules)
            .unwrap()
            .into_iter()
            .map(|(_, rule)| rule);
        let rules: Vec<_> = rules.collect();
        directory.set_access(&Policy::from(rules)).unwrap();
        apply_as(&directory, identity.clone(), refresh(&a, 5)).code
    };
    let refused = ResultCode::InsufficientAccessRights;
    assert_eq!(asks("access to * by * write"), refused);
    let manage = "access to attrs=entryTtl by users manage\naccess to * by * read";
    assert_eq!(asks(manage), ResultCode::Success);
    assert_eq!(asks("access to * by * none"), refused);
    let anonymous = apply_as(&directory, Identity::Anonymous, refresh(&a, 5)).code;
    assert_eq!(anonymous, ResultCode::StrongerAuthRequired);
}

#[test]
fn the_overlay_says_how_long_entries_live() {
    let (directory, clock) = directory(None);
    let a = dn("a");
    succeed(&directory, dynamic(&a));
    assert_eq!(life(&directory, &a), lines([]));
    refused(&directory, refresh(&a, 5), ResultCode::UnwillingToPerform);
    let subtrees = |directory: &Directory| {
        let asked = Query {
            attributes: &["dynamicSubtrees"],
            ..query("", Scope::Base, "(objectClass=*)")
        };
        search(directory, &asked).entries.remove(0).1.len()
    };
    assert_eq!(subtrees(&directory), 0);
    let overlay = |lines: &str| {
        let lines = format!("objectClass: olcDDSConfig\nolcOverlay: dds\n{lines}");
        add("olcOverlay=dds,olcDatabase={1}mdb,cn=config", &lines)
    };
    for wrong in [
        "olcDDSstate: FALSE",
        "olcDDSmaxTtl: 3600",
        "olcDDSmaxTtl: 2y",
        "olcDDSminTtl: 2d",
        "olcDDSdefaultTtl: 86401",
        "olcDDSinterval: 0",
        "olcDDSmaxDynamicObjects: many",
    ] {
        refused(&directory, overlay(wrong), ResultCode::ConstraintViolation);
    }
    succeed(
        &directory,
        overlay("olcDDSstate: TRUE\nolcDDSmaxTtl: 2d\nolcDDSminTtl: 1m"),
    );
    assert_eq!(subtrees(&directory), 2);
    let shown = search(
        &directory,
        &query("cn=config", Scope::Subtree, "(olcDDSminTtl=*)"),
    );
    let (entry, lines_of) = &shown.entries[0];
    assert_eq!(entry, "olcOverlay={7}dds,olcDatabase={1}mdb,cn=config");
    assert!(lines_of.contains("olcDDSmaxTtl: 172800"), "{lines_of:?}");
    // What was there before has no end.
    let violations = directory.rule_violations("dds", |_| {}).unwrap();
    assert_eq!(violations.told().len(), 1);
    let b = dn("b");
    succeed(&directory, dynamic(&b));
    assert!(life(&directory, &b).contains("entryTtl: 172800"));
    clock.set((BEGIN + 200_000) * 1_000_000);
    assert_eq!(directory.delete_ended(|| true).unwrap(), 1);
    succeed(
        &directory,
        delete("olcOverlay={7}dds,olcDatabase={1}mdb,cn=config"),
    );
    assert_eq!(directory.expiry_interval().unwrap(), None);
    assert_eq!(subtrees(&directory), 0);
}
