//! Answers that wait although their updates are durable.

use super::*;
use sapwood_directory::engine::Ticket;
use sapwood_directory::{Requester, Update, UpdateRequest};
use sapwood_ldap::list::ChangeKind::Add;
use sapwood_testkit::requests::modify;

/// More entries than a change of the schema is looked at with at once.
const PEOPLE: usize = 10_100;

fn apply(bench: &Bench, requests: impl Iterator<Item = Vec<u8>>) {
    let update = |request| Update {
        requester: Requester::administrator(ADMIN),
        request: UpdateRequest::Message(request),
    };
    let updates: Vec<Update> = requests.map(update).collect();
    let applied = bench.session.service.directory.apply(&updates).unwrap();
    let codes = applied.outcomes.iter().map(|outcome| outcome.code);
    assert!(codes.eq(updates.iter().map(|_| ResultCode::Success)));
    applied.ticket.unwrap().wait().unwrap();
}

fn define(id: u32, name: &str) -> Vec<u8> {
    let definition = format!("( 1.3.6.1.4.1.99999.{id} NAME '{name}' SUP name )");
    let change = (Add, "olcAttributeTypes", &[&*definition][..]);
    modify(id, "cn=schema,cn=config", &[change])
}

#[test]
fn a_definition_is_answered_when_it_is_there() {
    let mut bench = Bench::admin("");
    for first in (0..PEOPLE).step_by(100) {
        let names = (first..first + 100).map(|at| format!("p{at}"));
        apply(&bench, names.map(|name| add_person(1, &name, "x")));
    }
    // There are names that the definition might change.
    let change = (Add, "seeAlso", &["o=X"][..]);
    apply(&bench, std::iter::once(modify(1, "o=X", &[change])));
    bench.receive(&define(5, "badge"));
    bench.wait();
    assert_eq!(bench.answers(), []);
    assert!(!bench.session.is_idle() && bench.session.follows());
    // Other commits do not bring it.
    bench.session.complete(Completion::Committed);
    bench.session.process();
    assert_eq!(bench.answers(), []);
    // Nobody does that here but the test.
    let directory = bench.session.service.directory.clone();
    directory.finish_schema_change(|_| true).unwrap();
    bench.session.complete(Completion::Committed);
    bench.session.process();
    assert_eq!(bench.answers(), [(5, Some(ResultCode::Success))]);
    assert!(bench.session.is_idle() && !bench.session.follows());
    assert!(directory.schema().attribute_type(b"badge").is_some());
    // When the server stops it is told that it will come.
    bench.receive(&define(6, "coat"));
    bench.wait();
    assert_eq!(bench.answers(), []);
    bench.session.complete(Completion::Stop);
    bench.session.process();
    let answers = bench.answers();
    assert_eq!(answers[0], (6, Some(ResultCode::Unavailable)));
}
