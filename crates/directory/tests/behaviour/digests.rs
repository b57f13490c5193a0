//! Digests by which copies are compared: equal where all is equal, and nowhere else.

use std::collections::BTreeMap;

use sapwood_directory::{Budget, Digests, Identity, SearchOptions, Step, Wire};
use sapwood_ldap::controls::{
    BUCKETS, Buckets, BucketsBuf, CONTENT_DIGESTS, ContentDigests, ContentDigestsAnswer, Controls,
};
use sapwood_ldap::list::ChangeKind::{Add, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{add, delete, modify, person, rename, seed, succeed};
use sapwood_testkit::{Answer, SUFFIX};

use crate::made::{Directory, in_memory, in_stores};
use crate::query::{Query, asked, query};
use crate::replicated::{everything, take, told_of};

const PEOPLE: &str = "ou=People,dc=example,dc=com";
const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

/// What one search has told.
#[derive(Debug, Default, PartialEq)]
struct Told {
    sums: BTreeMap<u16, u128>,
    /// By DN.
    entries: BTreeMap<String, [u8; 16]>,
    code: Option<ResultCode>,
}

/// A search for everything, in steps that have room for so many bytes.
fn stepping(step_bytes: usize) -> Query<'static> {
    Query {
        attributes: &["*", "+"],
        step_bytes,
        ..query(SUFFIX, Scope::Subtree, "(objectClass=*)")
    }
}

fn ask(
    directory: &Directory,
    query: &Query<'_>,
    (key, buckets): (&[u8; 32], Option<Buckets<'_>>),
) -> Told {
    let requester = directory.requester(query.identity.clone());
    let wanted = ContentDigests { key, buckets };
    let snapshot = directory.snapshot().unwrap();
    let mut digests = asked(query, |request| {
        Digests::new(
            snapshot,
            &requester,
            request,
            query.options.clone(),
            &wanted,
        )
    });
    let (mut out, mut told) = (Vec::new(), Told::default());
    let mut room = query.step_bytes;
    while told.code.is_none() {
        let budget = Budget {
            entries: query.step_entries,
            work: query.step_work,
            out_bytes: out.len() + room,
        };
        let mut wire = Wire::new(&mut out, 7, Controls::EMPTY);
        let step = digests.step(&mut wire, budget).unwrap();
        assert!(out.len() <= budget.out_bytes);
        room = query.step_bytes;
        match step {
            Step::More | Step::Wait => {}
            Step::Room(bytes) => room = bytes,
            Step::Fetch => digests.snapshot().fetch().unwrap(),
            Step::Done(outcome) => told.code = Some(outcome.code),
        }
    }
    for answer in Answer::all(&out) {
        assert_eq!(answer.name.as_deref(), Some(CONTENT_DIGESTS));
        let value = answer.value.unwrap();
        match ContentDigestsAnswer::decode(&value).unwrap() {
            ContentDigestsAnswer::Sums(sums) => told.sums.extend(sums.iter()),
            ContentDigestsAnswer::Entry(entry) => {
                told.entries.insert(entry.dn.to_owned(), entry.digest);
            }
        }
    }
    told
}

fn sums(directory: &Directory) -> BTreeMap<u16, u128> {
    ask(directory, &stepping(1 << 16), (KEY, None)).sums
}

fn entries(directory: &Directory) -> BTreeMap<String, [u8; 16]> {
    let mut all = BucketsBuf::default();
    (0..=u16::MAX).for_each(|bucket| all.insert(bucket));
    let query = stepping(1 << 16);
    ask(directory, &query, (KEY, Some(all.view()))).entries
}

fn origin() -> Directory {
    let origin = in_memory();
    seed(&origin);
    let uids = ["anne", "bert", "carl"];
    uids.iter().for_each(|uid| succeed(&origin, person(uid)));
    // More than a step makes digests of.
    let long = format!("description: {}", "x".repeat(300 << 10));
    let lines = format!("objectClass: organizationalUnit\nou: Long\n{long}");
    succeed(&origin, add(&format!("ou=Long,{SUFFIX}"), &lines));
    origin
}

#[test]
fn copies_are_equal_in_whatever_order_and_stores_they_have_their_entries() {
    let origin = origin();
    let expected = (sums(&origin), entries(&origin));
    assert_eq!(expected.1.len(), everything(&origin).len());
    for copy in [in_memory(), in_stores()] {
        // Attributes get their numbers in another order.
        let mut changes = told_of(&origin);
        changes.reverse();
        take(&copy, changes);
        assert_eq!((sums(&copy), entries(&copy)), expected);
    }
    // What is told together does not matter.
    for step_bytes in [1 << 9, 1 << 14] {
        let told = ask(&origin, &stepping(step_bytes), (KEY, None));
        assert_eq!(told.code, Some(ResultCode::Success));
        assert_eq!(told.sums, expected.0);
    }
    // Who knows digests does not know them under another key.
    let other = ask(&origin, &stepping(1 << 16), (&[7; 32], None));
    assert_ne!(other.sums, expected.0);
}

#[test]
fn a_bucket_is_the_sum_of_its_entries() {
    let origin = origin();
    let all = sums(&origin);
    let total = |sums: &BTreeMap<u16, u128>| {
        let sums = sums.values();
        sums.fold(0, |total: u128, sum| total.wrapping_add(*sum))
    };
    let of_entries = entries(&origin).into_values().fold(0, |total: u128, one| {
        total.wrapping_add(u128::from_be_bytes(one))
    });
    assert_eq!(total(&all), of_entries);
    // Only buckets that are asked for are told.
    let mut told = 0;
    for bucket in all.keys() {
        assert!(usize::from(*bucket) < BUCKETS);
        let mut one = BucketsBuf::default();
        one.insert(*bucket);
        let of_one = ask(&origin, &stepping(1 << 16), (KEY, Some(one.view())));
        let sum = of_one.entries.values().fold(0, |total: u128, one| {
            total.wrapping_add(u128::from_be_bytes(*one))
        });
        assert_eq!(sum, all[bucket]);
        told += of_one.entries.len();
    }
    assert_eq!(told, everything(&origin).len());
}

#[test]
fn each_change_changes_the_digest_of_its_entry_alone() {
    let directory = origin();
    let mut before = entries(&directory);
    let anne = format!("uid=anne,{PEOPLE}");
    for (request, names) in [
        (
            modify(&anne, &[(Add, "description", &["x"])]),
            [&*anne, &anne],
        ),
        (
            modify(&anne, &[(Replace, "userPassword", &["y"])]),
            [&*anne, &anne],
        ),
        (
            rename(&anne, "uid=anna", true, None),
            [&*anne, "uid=anna,ou=People,dc=example,dc=com"],
        ),
        (
            delete("uid=bert,ou=People,dc=example,dc=com"),
            ["uid=bert,ou=People,dc=example,dc=com"; 2],
        ),
    ] {
        succeed(&directory, request);
        let now = entries(&directory);
        let is_other = |dn: &&String| before.get(*dn) != now.get(*dn);
        let changed: Vec<&String> = before.keys().chain(now.keys()).filter(is_other).collect();
        assert!(!changed.is_empty());
        assert!(
            changed.iter().all(|dn| names.contains(&dn.as_str())),
            "{changed:?}"
        );
        before = now;
    }
}

#[test]
fn they_are_for_those_who_see_everything_and_end_with_their_time() {
    let directory = origin();
    let anonymous = Query {
        identity: Identity::Anonymous,
        ..stepping(1 << 16)
    };
    let refused = ask(&directory, &anonymous, (KEY, None));
    assert_eq!(refused.code, Some(ResultCode::InsufficientAccessRights));
    assert!(refused.sums.is_empty());
    let late = Query {
        options: SearchOptions {
            deadline_micros: Some(1),
            ..SearchOptions::default()
        },
        ..stepping(1 << 16)
    };
    let ended = ask(&directory, &late, (KEY, None));
    assert_eq!(ended.code, Some(ResultCode::TimeLimitExceeded));
}
