use proptest::collection::vec;
use proptest::prelude::*;
use sapwood_ldap::message::Operation;

use crate::plan::{RECORD_BYTES_MAX, SETTINGS_BYTES_MAX};

use super::*;
use crate::template::MESSAGE_ID_BASE;

fn read(text: &str) -> Result<Plan, PlanError> {
    Plan::read(text.as_bytes(), &PlanOptions::default())
}

#[test]
fn plain_ldif_is_a_plan() {
    let plan = read(
        "version: 1\n\ndn: dc=example\nobjectClass: domain\ndc:: ZXhhbXBsZQ==\n\n# changes\ndn: dc=example\n\
         changetype: modify\nreplace: description\ndescription: a\n b\n-\n\ndn: dc=example\nchangetype: delete\n",
    )
    .unwrap();
    let kinds: Vec<Operation> = plan
        .operations
        .iter()
        .map(|operation| operation.kind)
        .collect();
    assert_eq!(
        kinds,
        [Operation::Add, Operation::Modify, Operation::Delete]
    );
    assert!(
        plan.operations
            .iter()
            .all(|operation| operation.in_transaction.is_some())
    );
    assert_eq!(plan.phases().collect::<Vec<_>>(), ["run"]);
}

#[test]
fn every_operation_and_option_is_understood() {
    let plan = read(
        "set: suffix = dc=example,dc=com\nset: people = 1000\n\n\
         let: n = random 1..${people}\nlet: c = characters 8\n\n\
         phase: first\nduration: 2.5\n\n\
         session: readers\nconnections: 4\nqueue: 10\nrate: 100.5\norder: random\nbind: cn=x\npassword: secret\n\n\
         name: find\nweight: 3\nexpect: success, sizeLimitExceeded\nexpect-entries: 0..1\nexpect-value: uid: u${n:6}\n\
         control: 2.16.840.1.113730.3.4.2 true\nsearch: ${suffix}\nscope: one\nfilter: (uid=u${n:6})\n\
         attributes: uid cn\nsize-limit: 1\ntime-limit: 5\ntypes-only: false\nderef-aliases: always\n\n\
         compare: uid=u${n},${suffix}\nuid: u${n}\n\n\
         session: writers\ntransaction: 10\ncount: 500\n\n\
         loop: 3\n\ngroup:\n\ndn: uid=${c},${suffix}\nobjectClass: account\nuid: ${c}\n\nwait:\n\n\
         dn: uid=${c},${suffix}\nchangetype: delete\n\nend: group\n\nend: loop\n\n\
         phase: second\n\nrepeat: 2\nbind: cn=x\npassword: y\n\nbind:\nmechanism: EXTERNAL\n\n\
         expect: 2\nextended: 1.3.6.1.4.1.4203.1.11.3\n",
    )
    .unwrap();
    assert_eq!(plan.phases.len(), 2);
    let [readers, writers] = plan.phases[0].sessions.as_slice() else {
        panic!("two sessions")
    };
    assert_eq!((readers.connections, readers.queue), (Some(4), Some(10)));
    assert_eq!((readers.rate, readers.order), (Some(100.5), Order::Random));
    assert_eq!(readers.bind, Some(("cn=x".to_owned(), b"secret".to_vec())));
    assert_eq!(
        readers
            .steps
            .iter()
            .map(|step| step.weight)
            .collect::<Vec<_>>(),
        [3, 1]
    );
    assert_eq!((writers.transaction, writers.count), (Some(10), Some(500)));
    assert_eq!(
        writers.steps[0].instructions,
        [
            Instruction::Loop { times: 3 },
            Instruction::Group,
            Instruction::Operation {
                operation: 2,
                times: 1
            },
            Instruction::Wait,
            Instruction::Operation {
                operation: 3,
                times: 1
            },
            Instruction::End { begin: 1 },
            Instruction::End { begin: 0 },
        ]
    );
    let find = &plan.operations[0];
    assert_eq!(
        (find.label.as_str(), find.expect.entries),
        ("find", Some((0, 1)))
    );
    assert_eq!(find.expect.codes, Some(vec![0, 4]));
    assert_eq!(find.variables, [2]);
    assert_eq!(plan.operations.last().unwrap().expect.codes, Some(vec![2]));
}

#[test]
fn settings_can_be_replaced_and_dollars_written() {
    let text = "set: a = one\n\ndn: cn=${a}$$ $ $${a}\nchangetype: delete\n";
    let delete = |settings: &[(&str, &str)]| {
        let options = PlanOptions {
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..PlanOptions::default()
        };
        let plan = Plan::read(text.as_bytes(), &options)?;
        let mut out = Vec::new();
        plan.operations[0]
            .request
            .put(MESSAGE_ID_BASE, &crate::values::Values::new(0), &mut out);
        Ok::<_, PlanError>(String::from_utf8_lossy(&out).into_owned())
    };
    assert!(delete(&[]).unwrap().ends_with("cn=one$$ $ ${a}"));
    assert!(
        delete(&[("a", "two")])
            .unwrap()
            .ends_with("cn=two$$ $ ${a}")
    );
    assert!(
        delete(&[("b", "two")]).is_err(),
        "the plan has no such setting"
    );
}

#[test]
fn errors_name_the_line() {
    // An error of the plan as a whole has no line: 0 here.
    let refused = |text: &str, line: u64, part: &str| {
        let error = read(text).map(drop).expect_err(text);
        assert_eq!(error.line.unwrap_or(0), line, "{error}\n{text}");
        assert!(error.reason.contains(part), "'{part}' is not in: {error}");
    };
    for (text, line, part) in [
        ("", 0, "no operations"),
        ("count: 5\n\nsearch: x\n", 1, "\"session: NAME\""),
        ("duration: 5\n\nsearch: x\n", 1, "\"phase: NAME\""),
        (
            "session: a\nbind: cn=x\n\nsearch: x\n",
            1,
            "needs a line \"password:\"",
        ),
        (
            "dn: x\nchangetype: delete\n\nsearch: x\nscope: two\n",
            5,
            "scope",
        ),
        ("# c\n\nsearch: x\n# c\nfilter: (a=\n", 5, "parenthesis"),
        (
            "dn: x\nchangetype: modify\n# c\nreplace: a\nb: 1\n",
            5,
            "expected a value of a",
        ),
        ("dn: x\nchangetype: delete\n\nfoo: 1\n", 4, "not known"),
        ("search: x\n\nsearch: ${n}\n", 3, "no variable"),
        ("let: n = random 5\n", 1, "FIRST..LAST"),
        (
            "let: n = random 1..5\n\nlet: m = random 1..${n}\n",
            3,
            "only a setting",
        ),
        ("loop: 2\n\nsearch: x\n", 3, "has not ended"),
        (
            "loop: 2\n\nwait:\n\nend: loop\n\nsearch: x\n",
            5,
            "no operation in the loop",
        ),
        (
            "session: a\n\nwait:\n\nsession: b\n\nsearch: x\n",
            0,
            "session \"a\"",
        ),
        ("search: x\n\nend: loop\n", 3, "no \"loop\" to end"),
        ("session: a\nqueue: 0\n", 2, "from 1 to"),
        (
            "session: a\n\nsession: b\n\nsearch: x\n",
            0,
            "session \"a\"",
        ),
        ("expect: nothing\nsearch: x\n", 1, "not a result code"),
        (
            "expect-entries: 1\ndn: x\nchangetype: delete\n",
            2,
            "only a search",
        ),
        ("weight: 2\n", 1, "an operation must follow"),
        ("compare: x\n", 1, "one line"),
        ("dn: x\ncn: \u{2}\n", 2, "base64"),
        ("group:\n\nweight: 2\nsearch: x\n", 3, "weight"),
        (
            "let: n = random 1..5\n\nset: n = 5\n",
            3,
            "a variable \"n\" already",
        ),
        (
            "set: n = 5\n\nlet: n = random 1..5\n",
            3,
            "a setting \"n\" already",
        ),
        ("set: connection = 5\n", 1, "a variable \"connection\""),
        ("dn: x\ncn: a${n\nsn: b}\n", 2, "write \"$${\""),
        ("search: x\nscope: base\nscope: one\n", 3, "in line 2"),
        (
            "session: a\ncount: 1\nqueue: 2\ncount: 2\n",
            4,
            "\"count\" is said in line 2",
        ),
        ("phase: a\nduration: 1\nduration: 2\n", 3, "in line 2"),
        (
            "expect-value: cn: a\ncontrol: 1.2\ncontrol: 1.3\nexpect-value: cn: b\nsearch: x\n",
            4,
            "in line 1",
        ),
        ("expect:\nsearch: x\n", 1, "or \"any\""),
        ("name:\nsearch: x\n", 1, "name is missing"),
        (
            "repeat: 2\nloop: 3\n\nsearch: x\n\nend: loop\n",
            1,
            "said of an operation",
        ),
    ] {
        refused(text, line, part);
    }
    refused(&"loop: 1\n\n".repeat(20), 33, "more than 16");
    let long = format!("dn: {}\n", "x".repeat(2 << 20));
    refused(&long, 1, "longer than");
}

/// Each setting is twice as long as the one before: without a bound, thirty lines are a gigabyte.
#[test]
fn settings_cannot_make_a_plan_grow_without_bound() {
    let refused = |text: &str, part: &str| {
        let error = read(text).map(drop).expect_err(part);
        assert!(error.reason.contains(part), "'{part}' is not in: {error}");
    };
    let doubled: String = (0..30)
        .map(|n| format!("set: a{} = ${{a{n}}}${{a{n}}}\n\n", n + 1))
        .collect();
    let text = format!("set: a0 = x\n\n{doubled}search: dc=x\n");
    refused(&text, "the record is longer than");
    let long = "x".repeat(RECORD_BYTES_MAX / 2);
    let many = "set: b = ${a}\n\n".repeat(SETTINGS_BYTES_MAX / long.len() + 1);
    let text = format!("set: a = {long}\n\n{many}search: dc=x\n");
    refused(&text, "settings add more than");
}

#[test]
fn a_phase_has_so_many_sessions_and_names_and_no_more() {
    let sessions = |count: usize| -> String {
        (0..count)
            .map(|n| format!("session: {n}\n\nsearch: dc=x\n\n"))
            .collect()
    };
    let names = |count: usize| -> String {
        (0..count)
            .map(|n| format!("name: {n}\nsearch: dc=x\n\n"))
            .collect()
    };
    assert!(read(&sessions(SESSIONS_MAX)).is_ok());
    assert!(read(&names(LABELS_MAX)).is_ok());
    for (text, part) in [
        (sessions(SESSIONS_MAX + 1), "sessions"),
        (names(LABELS_MAX + 1), "names"),
    ] {
        let error = read(&text).map(drop).expect_err(part);
        assert!(error.reason.contains(part), "{error}");
    }
}

#[test]
fn comments_hold_no_variables() {
    let plan = read("# ${n\n  }\n# ${m}\nsearch: dc=x\n# ${o}\nscope: base\n\n# $${").unwrap();
    assert_eq!(plan.operations.len(), 1);
}

/// Pieces of plans, so that more than the first line is understood now and then.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just("let: n = random 1..5\n\n"),
        Just("search: dc=${n:3}\n"),
        Just("filter: (cn=${n}*"),
        Just(")\n\n"),
        Just("dn: cn=${n}\ncn:: "),
        Just("changetype: modify\nreplace: cn\n"),
        Just("loop: 2\n\n"),
        Just("end: loop\n\n"),
        Just("group:\n\n"),
        Just("end: group\n\n"),
        Just("control: 1.2 true:: AA==\n"),
        Just("session: a\nqueue: 5\n\n"),
        Just("$${${n:99}\u{2}"),
        Just(" \n\r\n# \n-\n"),
    ]
    .prop_map(|text| text.as_bytes().to_vec())
}

proptest! {
    #[test]
    fn any_text_is_a_plan_or_an_error(pieces in vec(prop_oneof![3 => piece(), 1 => vec(any::<u8>(), 0..20)], 0..20)) {
        let text = pieces.concat();
        let lines = text.iter().filter(|octet| **octet == b'\n').count() as u64 + 2;
        if let Err(error) = Plan::read(text.as_slice(), &PlanOptions::default()) {
            prop_assert!(error.line.is_none_or(|line| line <= lines), "{error}");
        }
    }
}
