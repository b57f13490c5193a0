//! Long searches and compares, which workers make ready.

use super::*;
use crate::workers::tests::hold;

/// A text that is long, and expands.
fn long_text() -> String {
    "\u{fdfa}".repeat(24 << 10)
}

/// A search for such a text.
fn long_search(id: u32) -> Vec<u8> {
    search_for(id, Scope::Subtree, &format!("(cn={})", long_text()))
}

/// Waits until workers have freed what has ended, so that all memory for searches but so much is there.
fn wait_until_free(bench: &Bench, bytes: usize) {
    while bench.session.service.memory.searches.free_bytes() != bytes {
        std::thread::yield_now();
    }
}

/// What such a search is answered.
fn ends(id: u32) -> [(u32, Option<ResultCode>); 1] {
    [(id, Some(ResultCode::Success))]
}

#[test]
fn others_are_answered_while_long_requests_are_made_ready() {
    let mut bench = Bench::admin("");
    let (release, _held) = hold(&bench.session.service.preparers);
    let bytes = [long_search(7), long_search(8), extended(9, WHO_AM_I, None)].concat();
    let searches = bench.session.service.memory.searches.clone();
    let free = searches.free_bytes();
    bench.receive(&bytes);
    let mut answers = bench.answers();
    while bench.session.has_work() {
        bench.session.process();
        answers.extend(bench.answers());
    }
    // No worker has begun with the first two, so no text of theirs has been prepared by this thread.
    assert_eq!(answers, ends(9));
    assert!(bench.session.wants_input() && !bench.session.is_idle());
    bench.receive(&search(10, Scope::Base));
    assert_eq!(
        bench.answers(),
        [(10, None), (10, Some(ResultCode::Success))]
    );
    bench.receive(&add_person(11, "p", "x"));
    bench.wait();
    assert_eq!(bench.answers(), ends(11));
    release.send(()).unwrap();
    bench.wait();
    assert_eq!(bench.answers(), ends(7));
    bench.wait();
    assert_eq!(bench.answers(), ends(8));
    assert!(bench.session.is_idle());
    wait_until_free(&bench, free);
}

#[test]
fn requests_that_are_not_much_longer_than_others_do_not_wait_for_longer_ones() {
    let mut bench = Bench::admin("");
    let (release, _held) = hold(&bench.session.service.preparers);
    bench.receive(&long_search(7));
    let medium = format!("(cn={})", "x".repeat(20_000));
    bench.session.process();
    bench.receive(&search_for(8, Scope::Subtree, &medium));
    bench.wait();
    assert_eq!(bench.answers(), ends(8));
    release.send(()).unwrap();
    bench.wait();
    assert_eq!(bench.answers(), ends(7));
}

#[test]
fn a_long_filter_is_freed_beside_the_session() {
    let mut bench = Bench::admin("");
    let free = bench.session.service.memory.searches.free_bytes();
    let filter = format!("(|{})", "(!(cn=a))".repeat(7_000));
    let searches = bench.session.service.memory.searches.clone();
    let request = |id| search_for(id, Scope::Subtree, &filter);
    bench.receive(&request(7));
    let Some(Completion::Prepared(prepared)) = bench.completed.blocking_recv() else {
        panic!("a worker has made it ready");
    };
    // What has ended holds its memory until a worker has freed it, and nobody else has.
    let (release, _held) = hold(&bench.session.service.preparers);
    bench.session.complete(Completion::Prepared(prepared));
    bench.session.process();
    while bench.session.has_work() {
        bench.session.process();
    }
    assert_eq!(bench.answers().last(), Some(&ends(7)[0]));
    assert!(searches.free_bytes() < free);
    release.send(()).unwrap();
    wait_until_free(&bench, free);
    // So it is with one that was abandoned as soon as it was ready, and with what comes for a session that is gone.
    for ending in [Some(message(9, Request::Abandon(8))), None] {
        bench.receive(&request(8));
        let Some(completion) = bench.completed.blocking_recv() else {
            panic!("a worker has made it ready");
        };
        let (release, _held) = hold(&bench.session.service.preparers);
        match ending {
            Some(ending) => {
                bench.receive(&ending);
                bench.session.complete(completion);
            }
            None => drop(completion),
        }
        assert!(bench.answers().is_empty() && searches.free_bytes() < free);
        release.send(()).unwrap();
        wait_until_free(&bench, free);
    }
}

#[test]
fn a_long_compare_is_made_ready_beside_the_session_too() {
    let mut bench = Bench::admin("");
    let (release, _held) = hold(&bench.session.service.preparers);
    let request = requests::compare(7, "o=X", "description", &long_text());
    bench.receive(&request);
    assert_eq!(bench.answers(), []);
    release.send(()).unwrap();
    bench.wait();
    assert_eq!(bench.answers(), [(7, Some(ResultCode::NoSuchAttribute))]);
}

#[test]
fn what_is_being_made_ready_can_be_given_up() {
    let mut bench = Bench::admin("");
    let free = bench.session.service.memory.searches.free_bytes();
    let (release, _held) = hold(&bench.session.service.preparers);
    // One is abandoned and its message id used again, for a request that is answered.
    bench.receive(&[long_search(7), message(8, Request::Abandon(7))].concat());
    bench.session.process();
    assert!(bench.session.is_idle());
    bench.wait();
    wait_until_free(&bench, free);
    bench.receive(&long_search(7));
    bench.receive(&[long_search(9), requests::cancel(10, 9)].concat());
    bench.session.process();
    let canceled = (9, Some(ResultCode::Canceled));
    assert_eq!(bench.answers(), [canceled, (10, Some(ResultCode::Success))]);
    release.send(()).unwrap();
    while !bench.session.is_idle() {
        bench.wait();
    }
    assert_eq!(bench.answers(), ends(7));
    // An unbind ends the session at once, and so does a stop.
    let (release, held) = hold(&bench.session.service.preparers);
    bench.receive(&long_search(11));
    bench.session.complete(Completion::Stop);
    bench.session.process();
    let stopped = Some(ResultCode::Unavailable);
    assert_eq!(bench.answers(), [(11, stopped), (0, stopped)]);
    assert_eq!(bench.session.then(), Then::Close);
    drop((release, held));
    let mut bench = Bench::admin("");
    let (release, _held) = hold(&bench.session.service.preparers);
    bench.receive(&[long_search(7), message(8, Request::Unbind)].concat());
    bench.session.process();
    assert_eq!(bench.session.then(), Then::Close);
    drop(release);
}

#[test]
fn the_time_limit_of_a_long_search_runs_while_it_waits_to_be_made_ready() {
    let mut bench = Bench::admin("");
    let (release, _held) = hold(&bench.session.service.preparers);
    let filter = filter_text::parse(&format!("(cn={})", long_text())).unwrap();
    let request = SearchRequest {
        time_limit: 1,
        ..SearchRequest::new("o=X", Scope::Subtree, filter.as_filter())
    };
    bench.receive(&message(7, Request::Search(request)));
    std::thread::sleep(std::time::Duration::from_millis(1001));
    release.send(()).unwrap();
    bench.wait();
    assert_eq!(bench.answers(), [(7, Some(ResultCode::TimeLimitExceeded))]);
}

#[test]
fn requests_behind_a_long_one_are_taken_in_the_next_turn() {
    let mut bench = Bench::admin("");
    let (release, _held) = hold(&bench.session.service.preparers);
    let bytes = [long_search(7), extended(8, WHO_AM_I, None)].concat();
    bench.receive(&bytes);
    assert_eq!(bench.answers(), []);
    assert!(bench.session.has_work());
    bench.session.process();
    assert_eq!(bench.answers(), ends(8));
    assert!(!bench.session.has_work());
    release.send(()).unwrap();
    bench.wait();
    assert_eq!(bench.answers(), ends(7));
}
