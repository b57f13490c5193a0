//! Searches that take long, and go on with newer data.

use super::*;
use sapwood_directory::engine::Ticket;
use sapwood_directory::{Requester, Update, UpdateRequest};

#[test]
fn a_search_that_takes_long_goes_on_with_newer_data() {
    let mut bench = Bench::admin("snapshot_seconds_max = 0");
    for first in (0..1_200).step_by(100) {
        let people =
            (first..first + 100).map(|at| add_person(1_000 + at, &format!("p{at:04}"), "x"));
        bench.receive(&people.collect::<Vec<_>>().concat());
        while !bench.session.is_idle() {
            bench.wait();
        }
    }
    bench.answers();
    let searches = |bench: &mut Bench, change: &mut dyn FnMut(&Bench)| {
        bench.receive(&search(7, Scope::Subtree));
        let mut answers = bench.answers();
        assert!(bench.session.has_work(), "it takes several turns");
        change(bench);
        while bench.session.has_work() {
            bench.session.process();
            answers.extend(bench.answers());
        }
        assert_eq!(answers.pop(), Some((7, Some(ResultCode::Success))));
        answers.len()
    };
    assert_eq!(searches(&mut bench, &mut |_| {}), 1_201);
    let change = |bench: &Bench, request: Vec<u8>| {
        let update = Update {
            requester: Requester::administrator(ADMIN),
            request: UpdateRequest::Message(request),
        };
        let applied = bench.session.service.directory.apply(&[update]).unwrap();
        assert_eq!(applied.outcomes[0].code, ResultCode::Success);
        applied.ticket.unwrap().wait().unwrap();
    };
    let found = searches(&mut bench, &mut |bench| {
        change(bench, message(1, Request::Delete("cn=p1199,o=X")));
        change(bench, message(1, Request::Delete("cn=p1198,o=X")));
        change(bench, add_person(1, "p9999", "x"));
    });
    assert_eq!(found, 1_200);
}
