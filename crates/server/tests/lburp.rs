//! Bulk updates over the wire (LBURP, RFC 4373).

#![allow(clippy::unwrap_used)]

use sapwood_directory::engine::Embedded;
use sapwood_directory::{Change, ChangeKind, Partition};
use sapwood_ldap::controls::{self, Controls, POST_READ, TRANSACTION_SPECIFICATION};
use sapwood_ldap::extended::*;
use sapwood_ldap::limits::INTEGER_MAX;
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::list::ChangeKind::Add;
use sapwood_ldap::message::*;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::Control;
use sapwood_testkit::{ADMIN, Answer, Client, PASSWORD, SUFFIX, TestServer, requests};

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

/// The list of an update request that is being made.
#[derive(Default)]
struct List(UpdateOperationsBuf);

impl List {
    fn push(mut self, op: &Request<'_>) -> Self {
        self.0.push(op, Controls::EMPTY);
        self
    }

    fn push_with(mut self, op: &Request<'_>, control: Control<'_>) -> Self {
        self.0.push(op, requests::controls(&[control]).view());
        self
    }

    fn add(self, dn: &str, attributes: &[(&str, &str)]) -> Self {
        let list = requests::attributes(attributes);
        let attributes = list.view();
        self.push(&Request::Add(AddRequest { dn, attributes }))
    }

    fn device(self, name: &str) -> Self {
        self.add(&dn(name), &[("objectClass", "device"), ("cn", name)])
    }

    fn describe(self, dn: &str, text: &str) -> Self {
        let described = requests::described(text);
        let changes = described.view();
        self.push(&Request::Modify(ModifyRequest { dn, changes }))
    }

    fn rename(self, name: &str, new: &str) -> Self {
        self.push(&requests::rename(&dn(name), &format!("cn={new}")))
    }

    fn delete(self, name: &str) -> Self {
        self.push(&Request::Delete(&dn(name)))
    }

    fn value(&self, sequence_number: u32) -> Vec<u8> {
        let operations = self.0.view();
        let mut value = Vec::new();
        let update = LburpUpdate {
            sequence_number,
            operations,
        };
        update.encode(&mut value);
        value
    }
}

fn start_value() -> Vec<u8> {
    let mut value = Vec::new();
    let start = StartLburp {
        update_style: LBURP_INCREMENTAL,
    };
    start.encode(&mut value);
    value
}

fn end_value(sequence_number: u32) -> Vec<u8> {
    let mut value = Vec::new();
    EndLburp { sequence_number }.encode(&mut value);
    value
}

/// What a supplier does.
trait Supplier {
    fn put(&mut self, id: u32, name: &str, value: &[u8]);
    fn begin(&mut self) -> u32;
    fn update(&mut self, number: u32, list: &List) -> Answer;
    fn end(&mut self, number: u32) -> Answer;
    fn is_there(&mut self, name: &str) -> bool;
}

impl Supplier for Client {
    fn put(&mut self, id: u32, name: &str, value: &[u8]) {
        self.send(&requests::extended(id, name, Some(value)));
    }

    fn begin(&mut self) -> u32 {
        let answer = self.extended(START_LBURP, Some(&start_value()));
        answer.succeeded();
        assert_eq!(answer.name.as_deref(), Some(START_LBURP_RESPONSE));
        max_operations(&answer.value.unwrap()).unwrap()
    }

    fn update(&mut self, number: u32, list: &List) -> Answer {
        let answer = self.extended(LBURP_UPDATE, Some(&list.value(number)));
        assert_eq!(answer.name.as_deref(), Some(LBURP_UPDATE_RESPONSE));
        answer
    }

    fn end(&mut self, number: u32) -> Answer {
        let answer = self.extended(END_LBURP, Some(&end_value(number)));
        assert_eq!(answer.name.as_deref(), Some(END_LBURP_RESPONSE));
        assert_eq!(answer.value, None);
        answer
    }

    fn is_there(&mut self, name: &str) -> bool {
        self.search(&dn(name), Scope::Base, "(objectClass=*)").len() == 2
    }
}

/// The operations that failed, by number.
#[track_caller]
fn failed(answer: &Answer) -> Vec<(u32, ResultCode)> {
    answer.expect(ResultCode::UnknownError);
    let value = answer.value.as_ref().unwrap();
    let results = OperationResults::decode(value).unwrap();
    results
        .iter()
        .map(|(number, result)| (number, result.code))
        .collect()
}

#[test]
fn a_bulk_update_does_what_its_operations_do() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.admin(), server.admin());
    assert_eq!(client.begin(), 1000);
    let list = List::default()
        .device("a")
        .describe(&dn("a"), "first")
        .device("b")
        .rename("b", "c")
        .device("d")
        .delete("d");
    let answer = client.update(1, &list);
    answer.succeeded();
    assert_eq!(answer.value, None, "RFC 4373 §5.4");
    assert!(other.is_there("a") && other.is_there("c"));
    assert!(!other.is_there("b") && !other.is_there("d"));
    // What fails is told by its number, and the rest is done.
    let below = format!("cn=x,{}", dn("missing"));
    let mut no_values = AttributesBuf::default();
    no_values.push(b"objectClass", [b"device".as_slice()]);
    no_values.push(b"cn", []);
    let nope = b"\xa3\x0a\x04\x02cn\x04\x04nope".as_slice();
    let assertion = (controls::ASSERTION, true, Some(nope));
    let unknown = ("1.2.3", true, None);
    let list = List::default()
        .device("a")
        .device("e")
        .add(&below, &[("objectClass", "device"), ("cn", "x")])
        .push(&Request::Add(AddRequest {
            dn: &dn("f"),
            attributes: no_values.view(),
        }))
        .describe("no name", "x")
        .push_with(&Request::Delete(&dn("e")), assertion)
        .push_with(&Request::Delete(&dn("e")), unknown)
        .device("g");
    let answer = client.update(2, &list);
    assert_eq!(
        failed(&answer),
        [
            (1, ResultCode::EntryAlreadyExists),
            (3, ResultCode::NoSuchObject),
            (4, ResultCode::ProtocolError),
            (5, ResultCode::InvalidDnSyntax),
            (6, ResultCode::AssertionFailed),
            (7, ResultCode::UnavailableCriticalExtension),
        ]
    );
    let results = answer.value.unwrap();
    let results = OperationResults::decode(&results).unwrap();
    let (_, missing) = results.iter().nth(1).unwrap();
    assert_eq!(missing.matched_dn, SUFFIX);
    assert!(other.is_there("e") && other.is_there("g"));
    // No operation at all is well, too.
    client.update(3, &List::default()).succeeded();
    // Meanwhile the connection does everything else.
    assert_eq!(client.who_am_i(), format!("dn:{ADMIN}"));
    client.ask(Request::Delete(&dn("g"))).succeeded();
    client.end(4).succeeded();
    client.end(4).expect(ResultCode::OperationsError);
    // The next one counts from the start.
    client.begin();
    client.update(1, &List::default().device("g")).succeeded();
    client.end(2).succeeded();
    let check = server.directory.check(|_| {}).unwrap();
    assert_eq!(check.problems, Vec::<String>::new());
}

#[test]
fn a_bulk_update_is_in_the_change_feed() {
    let server = TestServer::start();
    let position = server.directory.snapshot().unwrap().change_position();
    let mut reader = server.directory.read_changes(position.unwrap());
    let mut client = server.admin();
    client.begin();
    let list = List::default()
        .device("a")
        .device("a")
        .describe(&dn("a"), "first")
        .rename("a", "c")
        .delete("c");
    failed(&client.update(1, &list));
    client.end(2).succeeded();
    let mut told = Vec::new();
    let snapshot = server.directory.snapshot().unwrap();
    let read = reader.read(&snapshot, |set| {
        let former = |change: Change<'_>| change.former.map(|former| former.dn.to_owned());
        told.extend(set.changes().map(|change| (change.kind, former(change))));
        true
    });
    read.unwrap();
    let expected = [
        (ChangeKind::Added, None),
        (ChangeKind::Modified, None),
        (ChangeKind::Renamed, Some(dn("a"))),
        (ChangeKind::Deleted, Some(dn("c"))),
    ];
    assert_eq!(told, expected);
}

#[test]
fn everything_may_be_sent_without_waiting() {
    let server = TestServer::start();
    let mut client = server.admin();
    client.put(1, START_LBURP, &start_value());
    for number in 1..=40 {
        let mut list = List::default();
        for n in 0..20 {
            list = list.device(&format!("n{number}-{n}"));
        }
        client.put(1 + number, LBURP_UPDATE, &list.value(number));
    }
    client.put(100, END_LBURP, &end_value(41));
    let codes: Vec<_> = (0..42)
        .map(|_| {
            let answer = client.receive().unwrap();
            (answer.id, answer.code)
        })
        .collect();
    let ids = (1..=41).chain([100]);
    let expected: Vec<_> = ids.map(|id| (id, ResultCode::Success)).collect();
    assert_eq!(codes, expected);
    let found = client.search(SUFFIX, Scope::OneLevel, "(objectClass=device)");
    assert_eq!(found.len(), 800 + 1);
}

#[test]
fn requests_are_done_in_the_order_of_their_numbers() {
    let server = TestServer::start();
    let mut client = server.admin();
    client.begin();
    let a = dn("a");
    // Each needs the one before it; the end comes first of all.
    let lists = [
        List::default().device("a"),
        List::default().describe(&a, "second"),
        List::default().rename("a", "b"),
        List::default().describe(&dn("b"), "last"),
    ];
    client.put(50, END_LBURP, &end_value(5));
    for number in [4, 2, 3] {
        let list = &lists[number as usize - 1];
        client.put(10 + number, LBURP_UPDATE, &list.value(number));
    }
    // While they wait: numbers that are used, are behind the end, or are none, and other requests.
    let refused = [
        (2, ResultCode::OperationsError),
        (5, ResultCode::OperationsError),
        (6, ResultCode::OperationsError),
        (100, ResultCode::OperationsError),
        (INTEGER_MAX, ResultCode::OperationsError),
        (0, ResultCode::ProtocolError),
    ];
    for (number, code) in refused {
        client.update(number, &lists[0]).expect(code);
    }
    client.end(5).expect(ResultCode::OperationsError);
    client.end(0).expect(ResultCode::ProtocolError);
    let mut id = Vec::new();
    put_cancel_id(&mut id, 13);
    client
        .extended(CANCEL, Some(&id))
        .expect(ResultCode::CannotCancel);
    assert!(!client.is_there("a"));
    client.put(11, LBURP_UPDATE, &lists[0].value(1));
    for id in [11, 12, 13, 14, 50] {
        let answer = client.receive().unwrap();
        assert_eq!((answer.id, answer.code), (id, ResultCode::Success));
    }
    let found = client.search(&dn("b"), Scope::Base, "(description=last)");
    assert_eq!(found.len(), 2);
    // A number that has had its turn.
    client.begin();
    client.update(1, &List::default().device("x")).succeeded();
    client
        .update(1, &List::default().device("y"))
        .expect(ResultCode::OperationsError);
    assert!(!client.is_there("y"));
    // The end is not before what waits.
    client.put(60, LBURP_UPDATE, &List::default().device("y").value(4));
    client.end(3).expect(ResultCode::OperationsError);
    client.end(1).expect(ResultCode::OperationsError);
}

#[test]
fn what_cannot_be_decoded_is_not_done_and_keeps_its_place() {
    let server = TestServer::with("[limits]\nlburp_operations_max = 3\n");
    let mut client = server.admin();
    assert_eq!(client.begin(), 3);
    let whole = List::default().device("a").device("b").value(1);
    // The last operation is cut off, but the lengths around it are not.
    let mut cut = List::default().device("a").push(&Request::Delete("cn=b"));
    cut = cut.push(&Request::Abandon(3));
    let mut number = 1;
    let too_many = ["a", "b", "c", "d"].iter();
    let too_many = too_many.fold(List::default(), |list, name| list.device(name));
    for list in [&cut, &too_many] {
        let answer = client.update(number, list);
        answer.expect(ResultCode::ProtocolError);
        assert_eq!(answer.value, None, "RFC 4373 §5.4");
        number += 1;
    }
    assert!(!client.is_there("a"));
    // Of any bytes: an answer, and the connection goes on. Those whose number can be read use it up.
    for end in 0..whole.len() {
        client
            .extended(LBURP_UPDATE, Some(&whole[..end]))
            .expect(ResultCode::ProtocolError);
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] = !bytes[at];
        let answer = client.extended(LBURP_UPDATE, Some(&bytes));
        assert_ne!(answer.code, ResultCode::Success, "byte {at}");
    }
    for name in [START_LBURP, END_LBURP, LBURP_UPDATE] {
        client
            .extended(name, None)
            .expect(ResultCode::ProtocolError);
        client
            .extended(name, Some(b"\x30\x80"))
            .expect(ResultCode::ProtocolError);
    }
    let id = client.id();
    let list = List::default().device("late");
    client.put(id, LBURP_UPDATE, &list.value(number));
    client.finish(id)[0].succeeded();
    number += 1;
    client.end(number).succeeded();
    assert!(client.is_there("late") && !client.is_there("a"));
}

#[test]
fn who_may_not_do_something_alone_may_not_do_it_in_bulk() {
    let server = TestServer::start();
    let ann = dn("ann");
    let person = [
        ("objectClass", "person"),
        ("cn", "ann"),
        ("sn", "x"),
        ("userPassword", "secret"),
    ];
    let mut admin = server.admin();
    admin.begin();
    // The password is hashed, in its place among the others.
    let list = List::default()
        .device("before")
        .add(&ann, &person)
        .add(&dn("ben"), &person)
        .add(
            &dn("cat"),
            &[
                ("objectClass", "person"),
                ("cn", "cat"),
                ("userPassword", "x"),
            ],
        )
        .describe(&ann, "after");
    assert_eq!(
        failed(&admin.update(1, &list)),
        [(4, ResultCode::ObjectClassViolation)]
    );
    assert!(admin.is_there("before"));
    let found = admin.search(&ann, Scope::Base, "(description=after)");
    let password = found[0]
        .attributes
        .iter()
        .find(|(name, _)| name == "userPassword");
    let stored = &password.unwrap().1[0];
    assert!(sapwood_server::password::is_hashed(stored), "{stored:?}");
    admin.end(2).succeeded();

    let mut client = server.connect_tls();
    client
        .extended(START_LBURP, Some(&start_value()))
        .expect(ResultCode::StrongerAuthRequired);
    let list = List::default().device("a").delete("before");
    client.update(1, &list).expect(ResultCode::OperationsError);
    client.bind(&ann, b"secret").succeeded();
    client.begin();
    let mut expected = Vec::new();
    for (number, op) in [
        (1, Request::Delete(&dn("before"))),
        (2, Request::Delete(&ann)),
    ] {
        expected.push((number, client.ask(op).code));
    }
    let list = List::default()
        .delete("before")
        .push(&Request::Delete(&ann));
    assert_eq!(failed(&client.update(1, &list)), expected);
    assert_eq!(expected[0].1, ResultCode::InsufficientAccessRights);
    assert!(admin.is_there("before") && admin.is_there("ann"));
}

#[test]
fn a_bulk_update_and_a_transaction_exclude_each_other() {
    let server = TestServer::start();
    server.configure(&[(Add, "sapwoodExtensions", &["implicit_start"])]);
    let mut client = server.admin();
    let identifier = client.extended(START_TRANSACTION, None).value.unwrap();
    client
        .extended(START_LBURP, Some(&start_value()))
        .expect(ResultCode::OperationsError);
    let mut value = Vec::new();
    let end = EndTransaction {
        commit: false,
        identifier: &identifier,
    };
    end.encode(&mut value);
    client.extended(END_TRANSACTION, Some(&value)).succeeded();

    let unknown = b"\x30\x05\x04\x031.2";
    client
        .extended(START_LBURP, Some(unknown))
        .expect(ResultCode::UnwillingToPerform);
    client.begin();
    for (name, value) in [
        (START_LBURP, Some(start_value())),
        (START_TRANSACTION, None),
        (START_TLS, None),
    ] {
        client
            .extended(name, value.as_deref())
            .expect(ResultCode::OperationsError);
    }
    // Neither an operation of it nor another update begins one.
    let of_transaction = (TRANSACTION_SPECIFICATION, true, Some(b"mine".as_slice()));
    let post_read = (POST_READ, true, Some(b"\x30\x00".as_slice()));
    let list = List::default()
        .push_with(&Request::Delete(&dn("a")), of_transaction)
        .push_with(&Request::Delete(&dn("a")), post_read)
        .device("b");
    assert_eq!(
        failed(&client.update(1, &list)),
        [
            (1, ResultCode::UnavailableCriticalExtension),
            (2, ResultCode::UnavailableCriticalExtension)
        ]
    );
    client
        .ask_with(Request::Delete(&dn("b")), &[of_transaction])
        .expect(ResultCode::OperationsError);
    assert!(client.is_there("b"));
    // A bind ends it: what waits is told that it is not done.
    client.put(70, LBURP_UPDATE, &List::default().device("c").value(3));
    client.put(71, END_LBURP, &end_value(4));
    let id = client.id();
    client.send(&requests::bind(id, ADMIN, PASSWORD));
    for refused in [70, 71] {
        let answer = client.receive().unwrap();
        assert_eq!(
            (answer.id, answer.code),
            (refused, ResultCode::OperationsError)
        );
    }
    client.finish(id)[0].succeeded();
    client
        .update(2, &List::default())
        .expect(ResultCode::OperationsError);
    assert!(!client.is_there("c"));
}

#[test]
fn what_waits_for_its_turn_is_bounded() {
    let server = TestServer::with(
        "[limits]\ntransaction_bytes_max = 3000\nopen_transactions_bytes_max = 6200\ntransaction_idle_seconds_max = 3\n",
    );
    let (mut client, mut other) = (server.admin(), server.admin());
    client.begin();
    other.begin();
    let long = List::default().describe(&dn("a"), &"x".repeat(2000));
    // What belongs together is sent at once: a pause would end it.
    let updates = |first: (u32, u32), second: (u32, u32)| {
        let update = |(id, number)| update_message(id, &long.value(number));
        [update(first), update(second)].concat()
    };
    client.send(&updates((50, 3), (51, 2)));
    client.finish(51)[0].expect(ResultCode::AdminLimitExceeded);
    other.send(&updates((50, 2), (51, 1)));
    for id in [51, 50] {
        let answer = other.receive().unwrap();
        assert_eq!(answer.id, id);
        assert_eq!(failed(&answer), [(1, ResultCode::NoSuchObject)]);
    }
    // Nobody waits for ever for what does not come.
    let notice = client.receive().unwrap();
    assert_eq!((notice.id, notice.code), (0, ResultCode::TimeLimitExceeded));
    assert_eq!(notice.name.as_deref(), Some(NOTICE_OF_DISCONNECTION));
    assert!(client.receive().is_none());
    // Who just sends nothing is left in peace, and the memory is free again.
    std::thread::sleep(std::time::Duration::from_millis(4500));
    let waiting = update_message(60, &long.value(4));
    other.send(&[waiting, requests::extended(61, WHO_AM_I, None)].concat());
    other.finish(61)[0].succeeded();
}

/// A few bytes each, they took the memory of whole updates when their turn came.
#[test]
fn operations_that_wait_for_their_turn_count_as_what_they_become() {
    let server = TestServer::with(
        "[limits]\ntransaction_bytes_max = 20000\nopen_transactions_bytes_max = 40000\n",
    );
    let mut client = server.admin();
    client.begin();
    let list = (0..100).fold(List::default(), |list, _| list.push(&Request::Delete("")));
    assert!(list.value(2).len() < 2000);
    client.put(50, LBURP_UPDATE, &list.value(2));
    client.put(51, WHO_AM_I, b"");
    let answer = client.receive().unwrap();
    assert_eq!(answer.id, 50);
    answer.refused(ResultCode::AdminLimitExceeded, "transaction_bytes_max");
    client.receive().unwrap();
    let few = (0..10).fold(List::default(), |list, _| list.push(&Request::Delete("")));
    for number in [4, 3, 2, 1] {
        client.put(60 + number, LBURP_UPDATE, &few.value(number));
    }
    for number in 1..5 {
        let answer = client.receive().unwrap();
        assert_eq!((answer.id, failed(&answer).len()), (60 + number, 10));
    }
}

#[test]
fn the_root_dse_tells_of_it() {
    let server = TestServer::start();
    let mut client = server.connect();
    let root_dse = client.root_dse();
    let extensions = root_dse.values("supportedExtension");
    for oid in [
        START_LBURP,
        START_LBURP_RESPONSE,
        END_LBURP,
        END_LBURP_RESPONSE,
        LBURP_UPDATE,
        LBURP_UPDATE_RESPONSE,
    ] {
        assert!(extensions.iter().any(|value| value == oid), "{root_dse:?}");
    }
    let features = root_dse.values("supportedFeatures");
    assert!(features.iter().any(|value| value == LBURP_INCREMENTAL));
}

/// A request was answered only when no other one's passwords were being hashed as its last operation ended: of several
/// with passwords in the clear, all but the last were never answered.
#[test]
fn each_of_many_requests_with_cleartext_passwords_is_answered() {
    const REQUESTS: u32 = 6;
    const OPERATIONS: u32 = 50;
    let server = TestServer::start();
    let mut admin = server.admin();
    admin.begin();
    let mut bytes = Vec::new();
    for number in 1..=REQUESTS {
        let mut list = List::default();
        for operation in 0..OPERATIONS {
            let name = format!("p{number}x{operation}");
            let mut person = vec![("objectClass", "person"), ("cn", &name), ("sn", "x")];
            if operation % 25 == 0 {
                person.push(("userPassword", "secret"));
            }
            list = list.add(&dn(&name), &person);
        }
        bytes.extend(update_message(100 + number, &list.value(number)));
    }
    bytes.extend(requests::extended(
        200,
        END_LBURP,
        Some(&end_value(REQUESTS + 1)),
    ));
    admin.send(&bytes);
    let mut answered = Vec::new();
    for _ in 0..=REQUESTS {
        let answer = admin.receive().unwrap();
        answer.succeeded();
        answered.push(answer.id);
    }
    assert_eq!(answered.pop(), Some(200), "the end is answered last");
    answered.sort_unstable();
    assert_eq!(answered, (101..=100 + REQUESTS).collect::<Vec<_>>());
    let mut client = server.connect();
    let last = dn(&format!("p{REQUESTS}x25"));
    client.bind(&last, b"secret").succeeded();
}

/// What a client that is gone still had to have hashed is not waited for, neither by its session nor by a stop.
#[test]
fn a_supplier_that_disappears_takes_its_session_along() {
    let mut server = TestServer::start();
    let mut admin = server.admin();
    admin.begin();
    let mut bytes = Vec::new();
    for number in 1..=3 {
        let mut list = List::default();
        for operation in 0..20 {
            let name = format!("p{number}x{operation}");
            let person = [
                ("objectClass", "person"),
                ("cn", name.as_str()),
                ("sn", "x"),
                ("userPassword", "secret"),
            ];
            list = list.add(&dn(&name), &person);
        }
        bytes.extend(update_message(100 + number, &list.value(number)));
    }
    admin.send(&bytes);
    drop(admin);
    while server.server.as_ref().unwrap().connections() > 0 {
        std::thread::yield_now();
    }
    server.stop();
}

fn update_message(id: u32, value: &[u8]) -> Vec<u8> {
    requests::extended(id, LBURP_UPDATE, Some(value))
}

#[test]
fn operations_in_several_stores_keep_their_order() {
    const PEOPLE: &str = "ou=people,dc=example,dc=com";
    const OTHER: &str = "o=other";
    let contents = sapwood_directory::Config {
        naming_contexts: vec![SUFFIX.into(), OTHER.into()],
        partitions: vec![Partition {
            parent: PEOPLE.into(),
            stores: 3,
        }],
        own_stores: true,
        ..sapwood_directory::Config::default()
    };
    let server = TestServer::of(&contents, "", |_| Embedded::in_memory_with(5).unwrap());
    let mut client = server.admin();
    client.put(1, START_LBURP, &start_value());
    let device = |list: List, name: &str| {
        let (dn, device) = (
            format!("cn={name},{PEOPLE}"),
            [("objectClass", "device"), ("cn", name)],
        );
        list.add(&dn, &device)
    };
    let mut lists = vec![
        List::default()
            .add(
                PEOPLE,
                &[("objectClass", "organizationalUnit"), ("ou", "people")],
            )
            .add(OTHER, &[("objectClass", "organization"), ("o", "other")]),
    ];
    for number in 0..20 {
        // Partitions only, then also what is above them, then from one to another.
        let names = (0..10).map(|n| format!("n{number}-{n}"));
        lists.push(names.fold(List::default(), |list, name| device(list, &name)));
        let mut list = List::default().describe(PEOPLE, &format!("{number}"));
        for n in 0..5 {
            list = list.describe(&format!("cn=n{number}-{n},{PEOPLE}"), "changed");
        }
        lists.push(list.describe(OTHER, &format!("{number}")));
        let (old, new) = (
            format!("cn=n{number}-0,{PEOPLE}"),
            format!("cn=r{number},{PEOPLE}"),
        );
        let new_rdn = format!("cn=r{number}");
        let rename = requests::rename(&old, &new_rdn);
        let list = List::default().push(&rename).describe(&new, "renamed");
        lists.push(device(list, &format!("n{number}-0")));
    }
    let count = lists.len() as u32;
    for (number, list) in (1..).zip(&lists) {
        client.put(1 + number, LBURP_UPDATE, &list.value(number));
    }
    client.put(1000, END_LBURP, &end_value(count + 1));
    let mut last = 0;
    for _ in 0..count + 2 {
        let answer = client.receive().unwrap();
        answer.succeeded();
        last = answer.id;
    }
    assert_eq!(last, 1000, "the end is answered last");
    let mut found = |filter: &str| client.search(PEOPLE, Scope::OneLevel, filter).len() - 1;
    assert_eq!(found("(objectClass=device)"), 220);
    assert_eq!(found("(description=renamed)"), 20);
    assert_eq!(found("(description=changed)"), 80);
    let check = server.directory.check(|_| {}).unwrap();
    assert_eq!(check.problems, Vec::<String>::new());
}
