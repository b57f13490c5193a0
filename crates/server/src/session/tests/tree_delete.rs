//! Deletes of large trees, which end between two commits when somebody or something wants that.

use sapwood_directory::{Requester, Update, UpdateRequest};
use sapwood_ldap::controls::TREE_DELETE;
use sapwood_testkit::requests::{cancel, with};

use super::*;
use crate::session::reply::ReplyKind;
use crate::session::tree_delete::Deadline;

/// More than go in one commit.
const MANY: u32 = 10_010;

/// A session of the administrator, and a large tree.
fn large() -> Bench {
    let bench = Bench::admin("");
    let requester = Requester::administrator(ADMIN);
    let person = |number: u32| Update {
        requester: requester.clone(),
        request: UpdateRequest::Message(add_person(1, &format!("p{number}"), "x")),
    };
    let people: Vec<_> = (0..MANY).map(person).collect();
    for people in people.chunks(1000) {
        let applied = bench.session.service.directory.apply(people).unwrap();
        let mut outcomes = applied.outcomes.iter();
        assert!(outcomes.all(|outcome| outcome.code == ResultCode::Success));
    }
    bench
}

fn tree_delete(id: u32) -> Vec<u8> {
    let request = message(id, Request::Delete("o=X"));
    with(&request, &[(TREE_DELETE, true, None)])
}

/// All answers that come once nothing is under way.
fn ended(bench: &mut Bench) -> Vec<Answer> {
    while bench.session.output.answers_due > 0 {
        bench.wait();
    }
    assert!(bench.session.operations.tree_deletes.is_empty());
    let output = bench.session.output().to_vec();
    bench.session.wrote(output.len(), true);
    Answer::all(&output)
}

fn codes(answers: &[Answer]) -> Vec<(u32, ResultCode)> {
    answers
        .iter()
        .map(|answer| (answer.id, answer.code))
        .collect()
}

#[test]
fn a_large_tree_is_answered_once() {
    let mut bench = large();
    bench.receive(&tree_delete(7));
    assert_eq!(codes(&ended(&mut bench)), [(7, ResultCode::Success)]);
    bench.receive(&tree_delete(8));
    assert_eq!(codes(&ended(&mut bench)), [(8, ResultCode::NoSuchObject)]);
}

#[test]
fn abandon_and_cancel_end_it_behind_a_commit() {
    let mut bench = large();
    bench.receive(&[tree_delete(7), message(8, Request::Abandon(7))].concat());
    assert_eq!(codes(&ended(&mut bench)), []);
    // What is left goes at once, which cannot be stopped any more.
    bench.receive(&[tree_delete(9), cancel(10, 9)].concat());
    let answers = codes(&ended(&mut bench));
    assert_eq!(
        answers,
        [(10, ResultCode::TooLate), (9, ResultCode::Success)]
    );

    let mut bench = large();
    let (first, again) = (cancel(10, 9), cancel(11, 9));
    bench.receive(&[tree_delete(9), first, again].concat());
    let answers = ended(&mut bench);
    let expected = [
        (11, ResultCode::TooLate),
        (10, ResultCode::Success),
        (9, ResultCode::Canceled),
    ];
    let mut found = codes(&answers);
    found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    assert_eq!(found, expected);
    let canceled = answers.iter().find(|answer| answer.id == 9).unwrap();
    assert!(
        canceled.diagnostic.contains(" 9999 entries"),
        "{canceled:?}"
    );
}

#[test]
fn the_stop_of_the_server_ends_it_behind_a_commit() {
    let mut bench = large();
    bench.receive(&tree_delete(7));
    bench.session.complete(Completion::Stop);
    bench.session.process();
    let answers = codes(&ended(&mut bench));
    let unavailable = ResultCode::Unavailable;
    assert_eq!(answers, [(7, unavailable), (0, unavailable)]);
}

#[test]
fn a_time_limit_ends_it_behind_a_commit() {
    let mut bench = large();
    bench.receive(&tree_delete(7));
    let completion = bench.completed.blocking_recv().unwrap();
    let Completion::Updated {
        shards,
        mut answers,
        room,
    } = completion
    else {
        panic!("no update");
    };
    for (reply, _) in &mut answers {
        let ReplyKind::TreeDelete(tree) = &mut reply.kind else {
            panic!("{reply:?}");
        };
        assert!(tree.deadline.0.is_none(), "the administrator has none");
        tree.deadline = Deadline(Some(Instant::now()));
    }
    bench.session.complete(Completion::Updated {
        shards,
        answers,
        room,
    });
    let answers = ended(&mut bench);
    assert_eq!(codes(&answers), [(7, ResultCode::TimeLimitExceeded)]);
    assert!(
        answers[0].diagnostic.contains(" 9999 entries"),
        "{answers:?}"
    );
}
