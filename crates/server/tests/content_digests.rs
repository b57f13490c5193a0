//! Digests of entries on the wire: who gets them, and what ends them.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{
    CONTENT_DIGESTS, ContentDigests, ContentDigestsAnswer, PAGED_RESULTS, PagedResults,
};
use sapwood_ldap::extended::WHO_AM_I;
use sapwood_ldap::filter_text;
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::{message, with_controls};
use sapwood_testkit::{SUFFIX, TestServer, requests};

/// A search for the sums of all entries, with more controls.
fn sums(id: u32, critical: bool, more: &[requests::Control<'_>]) -> Vec<u8> {
    let mut value = Vec::new();
    ContentDigests {
        key: &[1; 32],
        buckets: None,
    }
    .encode(&mut value);
    let mut controls = vec![(CONTENT_DIGESTS, critical, Some(&*value))];
    controls.extend_from_slice(more);
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
    with_controls(id, Request::Search(request), &controls)
}

#[test]
fn sums_come_in_the_place_of_entries() {
    let server = TestServer::start();
    server.add_people(3000, 100);
    let mut client = server.admin();
    client.send(&sums(70, true, &[]));
    let mut answers = client.finish(70);
    answers.pop().unwrap().succeeded();
    let mut told = 0;
    for answer in answers {
        assert_eq!(answer.name.as_deref(), Some(CONTENT_DIGESTS));
        match ContentDigestsAnswer::decode(&answer.value.unwrap()).unwrap() {
            ContentDigestsAnswer::Sums(sums) => told += sums.iter().count(),
            ContentDigestsAnswer::Entry(entry) => panic!("{entry:?}"),
        }
    }
    // Of 65,536 buckets hardly any has two.
    assert!((2800..=3001).contains(&told), "{told}");
}

#[test]
fn whoever_may_not_read_everything_is_refused_and_so_is_what_makes_no_sense() {
    let server = TestServer::start();
    server.add_people(10, 100);
    let mut client = server.connect();
    let mut code = |request: &[u8]| {
        let answer = client.tell(request);
        (answer.code, answer.diagnostic)
    };
    let (refused, why) = code(&sums(70, true, &[]));
    assert_eq!(refused, ResultCode::InsufficientAccessRights);
    assert!(why.contains("may read every attribute"), "{why}");
    let (refused, _) = code(&sums(71, false, &[]));
    assert_eq!(refused, ResultCode::ProtocolError);
    let mut page = Vec::new();
    PagedResults {
        size: 5,
        cookie: b"",
    }
    .encode(&mut page);
    let paged = [(PAGED_RESULTS, true, Some(&*page))];
    let (refused, _) = code(&sums(72, true, &paged));
    assert_eq!(refused, ResultCode::UnwillingToPerform);
}

#[test]
fn what_is_abandoned_is_not_answered() {
    let server = TestServer::start();
    server.add_people(4000, 100);
    let mut client = server.admin();
    let abandon = message(71, Request::Abandon(70));
    let after = requests::extended(72, WHO_AM_I, None);
    client.send(&[sums(70, true, &[]), abandon, after].concat());
    let answer = client.receive().unwrap();
    assert_eq!(answer.id, 72, "{answer:?}");
    assert!(!client.who_am_i().is_empty());
}
