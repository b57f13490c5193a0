//! Updates under way: how many there are, and what their answers hold.

use super::*;
use sapwood_ldap::controls::{POST_READ, ReadEntry};
use sapwood_ldap::list::{ChangeKind, OctetStringsBuf};

/// All counted as one, and the first answer as the last.
#[test]
fn updates_with_the_same_message_id_are_under_way_each() {
    let mut bench = Bench::admin("operations_max = 2");
    let same = |name: &str| add_person(10, name, "x");
    bench.receive(&[same("a"), same("b"), same("c")].concat());
    assert_eq!(bench.session.output.answers_due, 2);
    let mut answers = 0;
    while answers < 3 {
        bench.wait();
        answers += bench.answers().len();
    }
    assert!(bench.session.is_idle());
    bench.receive(&same("d"));
    bench.receive(&[same("e"), bind_external(11)].concat());
    let mut answers = Vec::new();
    while answers.len() < 3 {
        bench.wait();
        answers.extend(bench.answers());
    }
    let succeeded = |id| (id, Some(ResultCode::Success));
    assert_eq!(answers, [10, 10, 11].map(succeeded));
}

/// What was read for updates was charged to nobody: a client that did not read its answers had any amount of it kept.
#[test]
fn what_updates_read_has_room_among_the_answers_or_is_refused() {
    let mut bench = Bench::admin("answers_bytes_max = 65536");
    bench.receive(&add_person(5, "large", &"x".repeat(20_000)));
    bench.wait();
    assert_eq!(bench.answers(), [(5, Some(ResultCode::Success))]);
    bench.session.take_output_buffer();
    let answers = bench.session.service.memory.answers.clone();
    let mut selection = Vec::new();
    let attributes = OctetStringsBuf::from_iter([b"*".as_slice()]);
    ReadEntry {
        attributes: attributes.view(),
    }
    .encode(&mut selection);
    let changed = |id: u32| {
        let changes: [requests::Change<'_>; 1] = [(ChangeKind::Replace, "sn", &["y"])];
        let changed = requests::modify(id, "cn=large,o=X", &changes);
        requests::with(&changed, &[(POST_READ, true, Some(&selection))])
    };
    bench.receive(&[10, 11, 12].map(changed).concat());
    while !bench.session.is_idle() {
        bench.wait();
    }
    assert!(answers.free_bytes() < 65_536 - 2 * 20_000);
    let expected = [ResultCode::Success, ResultCode::Success, ResultCode::Busy];
    let expected: Vec<_> = (10..).zip(expected.map(Some)).collect();
    assert_eq!(bench.answers(), expected);
    bench.session.take_output_buffer();
    assert_eq!(answers.free_bytes(), 65_536);
    bench.receive(&changed(12));
    bench.wait();
    assert_eq!(bench.answers(), [(12, Some(ResultCode::Success))]);
}
