//! Updates under way: how many there are, and what their answers hold.

use super::*;
use crate::memory::OUTPUT_FREE_BYTES;
use sapwood_ldap::controls::{Controls, POST_READ, ReadEntry};
use sapwood_ldap::extended::{
    LBURP_INCREMENTAL, LBURP_UPDATE, LburpUpdate, OperationResults, START_LBURP, StartLburp,
    UpdateOperationsBuf,
};
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

/// Answers to failed updates had any length, of names that clients choose: those that nobody read were charged to
/// nobody.
#[test]
fn answers_of_failed_updates_stay_within_their_room() {
    const UPDATES: u32 = 500;
    let long = format!("cn={}", "x".repeat(600));
    let mut bench = Bench::admin("output_bytes_max = 8192");
    bench.receive(&add(
        5,
        &format!("{long},o=X"),
        &[("objectClass", "person"), ("cn", &long[3..]), ("sn", "x")],
    ));
    bench.wait();
    assert_eq!(bench.answers(), [(5, Some(ResultCode::Success))]);
    bench.session.take_output_buffer();
    let dn = format!("cn=a,cn=missing{},{long},o=X", "y".repeat(300));
    let request = |id| {
        add(
            id,
            &dn,
            &[("objectClass", "person"), ("cn", "a"), ("sn", "x")],
        )
    };
    let requests: Vec<u8> = (10..10 + UPDATES).flat_map(request).collect();
    bench.receive(&requests);
    assert_eq!(bench.session.output.answers_due, UPDATES as usize);
    while bench.session.output.answers_due > 0 {
        bench.wait();
        let (unsent, room) = (bench.session.unsent_bytes(), bench.session.open_room());
        assert!(unsent <= room, "{unsent} bytes, and room for {room}");
    }
    let output = bench.session.output().to_vec();
    bench.session.wrote(output.len(), true);
    let answers = Answer::all(&output);
    assert_eq!(answers.len(), UPDATES as usize);
    for answer in &answers {
        assert_eq!(answer.code, ResultCode::NoSuchObject);
    }
    // As long as there is room, all is told, and afterwards what there is room for: a near superior, and a beginning.
    assert_eq!(answers[0].matched, format!("{long},o=X"));
    let last = &answers[UPDATES as usize - 1];
    assert_eq!((&*last.matched, last.diagnostic.len()), ("o=X", 90));
    assert!(
        answers[0]
            .diagnostic
            .starts_with(last.diagnostic.trim_end_matches("..."))
    );
    bench.session.take_output_buffer();
    assert_eq!(bench.session.room(), OUTPUT_FREE_BYTES);
}

/// Where there is no room for what a bulk update tells of its failures, it tells which they are.
#[test]
fn failures_in_a_bulk_update_have_no_texts_where_there_is_no_room_for_them() {
    const OPERATIONS: u32 = 20;
    let mut bench = Bench::admin("answers_bytes_max = 65536");
    let mut start = Vec::new();
    let update_style = LBURP_INCREMENTAL;
    StartLburp { update_style }.encode(&mut start);
    bench.receive(&extended(5, START_LBURP, Some(&start)));
    assert_eq!(bench.answers(), [(5, Some(ResultCode::Success))]);
    let missing = format!("cn={},cn=missing,o=X", "y".repeat(300));
    let mut operations = UpdateOperationsBuf::default();
    for _ in 0..OPERATIONS {
        operations.push(&Request::Delete(&missing), Controls::EMPTY);
    }
    // The number, the code and the bytes of texts of each that has failed.
    let update = |bench: &mut Bench, sequence_number: u32| -> Vec<(u32, ResultCode, usize)> {
        let mut value = Vec::new();
        let operations = operations.view();
        LburpUpdate {
            sequence_number,
            operations,
        }
        .encode(&mut value);
        bench.receive(&extended(10, LBURP_UPDATE, Some(&value)));
        while !bench.session.is_idle() {
            bench.wait();
        }
        let output = bench.session.output().to_vec();
        bench.session.wrote(output.len(), true);
        bench.session.take_output_buffer();
        let [answer] = &Answer::all(&output)[..] else {
            panic!("{output:?}");
        };
        assert_eq!((answer.id, answer.code), (10, ResultCode::UnknownError));
        let results = OperationResults::decode(answer.value.as_ref().unwrap()).unwrap();
        let told = results.iter().map(|(number, result)| {
            let text_bytes = result.matched_dn.len() + result.diagnostic.len();
            (number, result.code, text_bytes)
        });
        told.collect()
    };
    let all = update(&mut bench, 1);
    assert!(all.iter().all(|(_, _, text_bytes)| *text_bytes > 90));
    let answers = bench.session.service.memory.answers.clone();
    let claimant = bench.session.claimant().clone();
    let shares: Vec<_> = std::iter::from_fn(|| answers.try_take(&claimant, 1024)).collect();
    assert!(!shares.is_empty());
    let codes = update(&mut bench, 2);
    let without_texts = all.iter().map(|(number, code, _)| (*number, *code, 0));
    assert_eq!(codes, without_texts.collect::<Vec<_>>());
    assert_eq!(codes.len(), OPERATIONS as usize);
    drop(shares);
    assert_eq!(update(&mut bench, 3), all);
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
