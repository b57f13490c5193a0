//! Filters that take minutes to evaluate, beside a client that wants little: the others have their turns, and what is
//! abandoned, canceled or stopped ends.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::extended::{CANCEL, WHO_AM_I, put_cancel_id};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{AddRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::message;
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, TestServer, requests};

/// Bytes of a request, which may be as long from an anonymous connection.
const REQUEST_BYTES: usize = 250 << 10;

/// An entry with megabytes of values.
const LARGE: &str = "cn=large,dc=example,dc=com";

fn with_large_entry() -> TestServer {
    let server = TestServer::start();
    server.configure(&[(ChangeKind::Replace, "sapwoodAnonymousRead", &["TRUE"])]);
    let text = "x".repeat(90);
    let values: Vec<String> = (0..24_000)
        .map(|number| format!("{number} {text}"))
        .collect();
    let person = [("objectClass", "person"), ("cn", "large"), ("sn", "x")];
    let mut attributes = requests::attributes(&person);
    attributes.push(b"description", values.iter().map(String::as_bytes));
    server
        .admin()
        .ask(Request::Add(AddRequest {
            dn: LARGE,
            attributes: attributes.view(),
        }))
        .succeeded();
    server
}

/// Filters that are true of no value of the large entry: each takes some 100,000 steps.
fn slow_filters() -> [String; 4] {
    let filter =
        |items: &str, octets: usize| format!("(|{})", items.repeat(REQUEST_BYTES / octets));
    [
        filter("(description=*q*)", 22),
        filter("(description=*\u{e9}\u{fdfa}*)", 26),
        filter("(description=*q*q*)", 25),
        filter(r"(:caseExactSubstringsMatch:=\2aq\2a)", 35),
    ]
}

fn who_am_i(client: &mut Client) -> u32 {
    let id = client.id();
    client.send(&requests::extended(id, WHO_AM_I, None));
    id
}

/// Sends the filters; the answer to another request shows that they have been taken in, and are under way.
fn attack(client: &mut Client) -> Vec<u32> {
    let ids: Vec<u32> = slow_filters()
        .iter()
        .map(|filter| {
            let id = client.id();
            client.send(&requests::search(id, LARGE, Scope::Base, filter));
            id
        })
        .collect();
    let id = who_am_i(client);
    client.finish(id)[0].succeeded();
    ids
}

#[test]
fn an_honest_client_is_served_beside_filters_that_take_minutes() {
    let mut server = with_large_entry();
    server.add_people(20, 10);
    let mut attacker = server.connect();
    let ids = attack(&mut attacker);
    // On every thread, by turns.
    for _ in 0..2 * sapwood_testkit::THREADS {
        let mut honest = server.connect();
        honest.bind(ADMIN, PASSWORD).succeeded();
        let found = honest.search(SUFFIX, Scope::Subtree, "(cn=p7)");
        assert_eq!(found.len(), 2);
        found[1].succeeded();
    }
    // All of them are still under way: none has been answered, and the first is canceled.
    let mut target = Vec::new();
    put_cancel_id(&mut target, ids[0]);
    let cancel = attacker.id();
    attacker.send(&requests::extended(cancel, CANCEL, Some(&target)));
    attacker.finish(ids[0])[0].expect(ResultCode::Canceled);
    attacker.finish(cancel)[0].succeeded();
    for id in &ids[1..] {
        let abandon = attacker.id();
        attacker.send(&message(abandon, Request::Abandon(*id)));
    }
    // What is abandoned has no answer, and nothing is under way any more.
    let id = who_am_i(&mut attacker);
    attacker.finish(id)[0].succeeded();
    for id in ids {
        let mut target = Vec::new();
        put_cancel_id(&mut target, id);
        let gone = attacker.extended(CANCEL, Some(&target));
        gone.expect(ResultCode::NoSuchOperation);
    }
    // The server stops with an attack under way.
    attack(&mut attacker);
    server.stop();
}

/// A connection with as many searches as it may have was not read any more, so that nothing ended them.
#[test]
fn a_cancel_behind_as_many_searches_as_there_may_be_is_heeded() {
    let server = with_large_entry();
    let mut attacker = server.connect();
    let filter = format!("(|{})", "(description=*q*)".repeat(50));
    let searches: Vec<u32> = (0..40).map(|_| attacker.id()).collect();
    let search = |id: &u32| requests::search(*id, LARGE, Scope::Base, &filter);
    let mut burst: Vec<u8> = searches.iter().flat_map(search).collect();
    let mut target = Vec::new();
    put_cancel_id(&mut target, searches[31]);
    let cancel = attacker.id();
    burst.extend(requests::extended(cancel, CANCEL, Some(&target)));
    attacker.send(&burst);
    // Some of those before it may have ended.
    let mut next_of = |id| {
        std::iter::from_fn(|| attacker.receive())
            .find(|answer| answer.id == id && answer.ends)
            .expect("an answer to it")
    };
    next_of(searches[31]).expect(ResultCode::Canceled);
    next_of(cancel).succeeded();
}

#[test]
fn texts_that_expand_are_prepared_and_found() {
    let server = TestServer::start();
    server.add_people(20, 10);
    let mut attacker = server.admin();
    let ids: Vec<u32> = (0..4)
        .map(|_| {
            let id = attacker.id();
            let filter = format!("(cn={})", "\u{fdfa}".repeat(REQUEST_BYTES / 3));
            attacker.send(&requests::search(id, SUFFIX, Scope::Subtree, &filter));
            id
        })
        .collect();
    // Which of them is ready first is not told.
    let mut ended = Vec::new();
    for _ in &ids {
        let answer = attacker.receive().unwrap();
        assert_eq!((answer.ends, answer.code), (true, ResultCode::Success));
        ended.push(answer.id);
    }
    ended.sort_unstable();
    assert_eq!(ended, ids);
}
