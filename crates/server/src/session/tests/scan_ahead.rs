//! What ends a search, behind requests that cannot be taken yet.

use super::*;
use sapwood_directory::Identity;

impl Bench {
    /// What the connection does with bytes that come while no request can be taken.
    fn watch(&mut self, bytes: &[u8]) {
        assert!(!self.session.wants_input() && self.session.watches_peer());
        self.session.input().extend_from_slice(bytes);
        self.session.process();
        self.session.reads_on();
    }
}

/// A session with as many searches as it may have, 100 and on, none of which is done in a few steps.
fn full() -> (Bench, String) {
    let (mut bench, filter) = long_evaluation();
    let mut id = 100;
    while bench.session.wants_input() {
        bench.receive(&search_for(id, Scope::Subtree, &filter));
        id += 1;
    }
    assert_eq!((id, bench.answers()), (132, vec![]));
    (bench, filter)
}

#[test]
fn searches_are_ended_behind_requests_that_wait_for_their_end() {
    let (mut bench, filter) = full();
    let waiting = search_for(200, Scope::Subtree, &filter);
    bench.watch(&waiting);
    let abandon = |id, target| message(id, Request::Abandon(target));
    // The one takes the first one's place, and is abandoned itself with what has come.
    let bytes = [
        abandon(201, 105),
        extended(202, WHO_AM_I, None),
        abandon(203, 200),
    ]
    .concat();
    bench.watch(&bytes[..5]);
    assert_eq!(bench.session.input.bytes[waiting.len()..], bytes[..5]);
    bench.session.input().extend_from_slice(&bytes[5..]);
    bench.session.process();
    bench.session.process();
    assert_eq!(bench.answers(), [(202, Some(ResultCode::Success))]);
    bench.receive(&search_for(204, Scope::Subtree, &filter));
    bench.watch(&[requests::cancel(205, 111), requests::cancel(206, 111)].concat());
    let canceled = [
        (111, Some(ResultCode::Canceled)),
        (205, Some(ResultCode::Success)),
        (206, Some(ResultCode::NoSuchOperation)),
    ];
    assert_eq!(bench.answers(), canceled);
}

#[test]
fn what_ends_nothing_keeps_its_place() {
    let (mut bench, filter) = full();
    let waiting = [
        search_for(200, Scope::Subtree, &filter),
        message(201, Request::Abandon(9)),
        requests::cancel(202, 200),
        add_person(203, "q", "x"),
    ]
    .concat();
    bench.watch(&waiting);
    assert_eq!(bench.session.input.bytes, waiting);
    assert_eq!(
        bench.session.input.scanned,
        waiting.len(),
        "it is looked at once"
    );
    bench.watch(b"\x31\x00");
    assert_eq!(
        bench.session.then(),
        Then::Continue,
        "what is no request is told in its turn"
    );
    bench.session.input().truncate(waiting.len());
    bench.watch(&message(204, Request::Abandon(131)));
    bench.session.process();
    let canceled = [
        (200, Some(ResultCode::Canceled)),
        (202, Some(ResultCode::Success)),
    ];
    assert_eq!(bench.answers(), canceled);
    bench.wait();
    assert_eq!(bench.answers(), [(203, Some(ResultCode::Success))]);
}

#[test]
fn an_unbind_ends_all_searches_and_updates_before_it_are_done() {
    let (mut bench, filter) = full();
    let waiting = search_for(200, Scope::Subtree, &filter);
    let unbind = message(203, Request::Unbind);
    let updates = [add_person(201, "q", "x"), add_person(202, "r", "x")].concat();
    bench.watch(&[waiting.clone(), updates, waiting, unbind].concat());
    assert_eq!(bench.session.then(), Then::Close);
    assert!(bench.session.operations.searches.is_empty());
    bench.wait();
    let snapshot = bench.session.service.directory.snapshot().unwrap();
    for name in ["cn=q,o=X", "cn=r,o=X"] {
        assert!(snapshot.credentials(name, 8).unwrap().is_some());
    }
}

#[test]
fn a_search_that_waits_for_memory_can_be_ended() {
    for ends in [
        message(8, Request::Abandon(7)),
        requests::cancel(8, 7),
        message(8, Request::Unbind),
    ] {
        let mut bench = Bench::admin("");
        let searches = bench.session.service.memory.searches.clone();
        let other = Identity::Admin {
            dn: "cn=other".into(),
        };
        let claimant = bench.session.claimant().bound_as(&other);
        let taken = searches
            .try_take(&claimant, searches.free_bytes() / 8 * 7)
            .unwrap();
        let long = search_for(7, Scope::Subtree, &format!("(cn={})", "x".repeat(300_000)));
        bench.receive(&[long, extended(9, WHO_AM_I, None)].concat());
        assert!(bench.session.wants_share().is_some());
        bench.watch(&ends);
        assert!(bench.session.wants_share().is_none());
        bench.session.process();
        let success = Some(ResultCode::Success);
        let canceled = (7, Some(ResultCode::Canceled));
        match ends {
            _ if bench.session.then() == Then::Close => {
                assert_eq!(bench.answers(), [(9, success)]);
            }
            _ if ends == requests::cancel(8, 7) => {
                assert_eq!(bench.answers(), [canceled, (8, success), (9, success)]);
            }
            _ => assert_eq!(bench.answers(), [(9, success)]),
        }
        assert!(bench.session.is_idle());
        drop(taken);
    }
}

#[test]
fn a_search_whose_answers_are_not_read_can_be_abandoned() {
    let mut bench = Bench::admin("output_bytes_max = 4096\n");
    let text = "x".repeat(1000);
    for number in 0..8 {
        bench.receive(&add_person(100 + number, &format!("p{number}"), &text));
        bench.wait();
    }
    bench.answers();
    bench.receive(&search(7, Scope::Subtree));
    assert!(!bench.session.output().is_empty() && !bench.session.is_idle());
    bench.watch(&message(8, Request::Abandon(7)));
    assert!(bench.session.is_idle());
}

#[test]
fn a_peer_that_sends_no_more_gets_what_it_has_asked_for() {
    let (mut bench, _) = full();
    bench.watch(&[add_person(200, "q", "x"), extended(201, WHO_AM_I, None)].concat());
    bench.session.peer_closed();
    assert!(
        !bench.session.watches_peer(),
        "it is not read again before there is room"
    );
    for id in 101..132 {
        bench.session.operations.searches.remove(id);
    }
    bench.session.process();
    bench.wait();
    bench.session.peer_closed();
    while bench.session.has_work() {
        bench.session.process();
    }
    bench.session.process();
    assert_eq!(bench.session.then(), Then::Close);
    let answers = bench.answers();
    assert_eq!(answers.len(), 3);
    assert!(
        answers
            .iter()
            .all(|(_, code)| *code == Some(ResultCode::Success))
    );
}
