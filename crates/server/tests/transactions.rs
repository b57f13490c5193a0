//! Transactions over the wire (RFC 5805) and Sapwood's extensions of them, with another connection looking on.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use sapwood_ldap::controls::{
    ASSERTION, EAGER_TRANSACTION, NON_TRANSACTIONAL, POST_READ, PROXIED_AUTHORIZATION,
    QUEUE_LENGTH, ReadEntry, TRANSACTION_SPECIFICATION, put_queue_length,
};
use sapwood_ldap::extended::{
    ABORTED_TRANSACTION, END_TRANSACTION, EndTransaction, PASSWORD_MODIFY, PasswordModify,
    START_TLS, START_TRANSACTION, TransactionEnded, generated_password,
};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Delete, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{ExtendedRequest, Request, Scope, SearchResultEntry};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::{Control, with_controls};
use sapwood_testkit::{ADMIN, Answer, Client, PASSWORD, SUFFIX, TestServer, requests};

fn dn(name: &str) -> String {
    format!("cn={name},{SUFFIX}")
}

/// An add of a device.
fn device(id: u32, name: &str) -> Vec<u8> {
    requests::add(id, &dn(name), &[("objectClass", "device"), ("cn", name)])
}

/// What the tests do, in short.
trait Short {
    fn begin(&mut self) -> Vec<u8>;
    fn end(&mut self, identifier: &[u8], commit: bool) -> Answer;
    fn add_device(&mut self, name: &str, list: &[Control<'_>]) -> Answer;
    fn describe(&mut self, name: &str, text: &str, list: &[Control<'_>]) -> Answer;
    fn is_there(&mut self, name: &str) -> bool;
}

impl Short for Client {
    fn begin(&mut self) -> Vec<u8> {
        let answer = self.extended(START_TRANSACTION, None);
        answer.succeeded();
        assert_eq!(answer.name, None);
        answer.value.unwrap()
    }

    fn end(&mut self, identifier: &[u8], commit: bool) -> Answer {
        let mut value = Vec::new();
        EndTransaction { commit, identifier }.encode(&mut value);
        self.extended(END_TRANSACTION, Some(&value))
    }

    fn add_device(&mut self, name: &str, list: &[Control<'_>]) -> Answer {
        let id = self.id();
        self.tell(&requests::with(&device(id, name), list))
    }

    fn describe(&mut self, name: &str, text: &str, list: &[Control<'_>]) -> Answer {
        let id = self.id();
        self.tell(&requests::with(
            &requests::describe(id, &dn(name), text),
            list,
        ))
    }

    fn is_there(&mut self, name: &str) -> bool {
        let answers = self.search(&dn(name), Scope::Base, "(objectClass=*)");
        answers.last().unwrap().code == ResultCode::Success
    }
}

/// A server with these extensions on, and with more in its configuration.
fn with_extensions(names: &[&str], config: &str) -> TestServer {
    let server = TestServer::with(config);
    server.configure(&[(Replace, "sapwoodExtensions", names)]);
    server
}

fn of(identifier: &[u8]) -> Control<'_> {
    (TRANSACTION_SPECIFICATION, true, Some(identifier))
}

#[test]
fn a_transaction_shows_at_its_end_and_not_before() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.admin(), server.admin());
    let identifier = client.begin();
    client.add_device("a", &[of(&identifier)]).succeeded();
    client.describe("a", "one", &[of(&identifier)]).succeeded();
    let dn_a = dn("a");
    client
        .ask_with(requests::rename(&dn_a, "cn=b"), &[of(&identifier)])
        .succeeded();
    assert!(!other.is_there("a") && !client.is_there("a") && !client.is_there("b"));
    // Others are not kept waiting, and what stands alone takes place at once.
    other.add_device("c", &[]).succeeded();
    client.add_device("d", &[]).succeeded();
    assert!(other.is_there("c") && other.is_there("d"));
    let dn_c = dn("c");
    client
        .ask_with(Request::Delete(&dn_c), &[of(&identifier)])
        .succeeded();
    let answer = client.end(&identifier, true);
    answer.succeeded();
    assert_eq!((answer.name, answer.value), (None, None));
    assert!(other.is_there("b") && !other.is_there("a") && !other.is_there("c"));
    // It is over.
    client
        .add_device("e", &[of(&identifier)])
        .expect(ResultCode::UnwillingToPerform);
    client
        .end(&identifier, true)
        .expect(ResultCode::UnwillingToPerform);
    // Given up, and empty.
    let identifier = client.begin();
    client.add_device("e", &[of(&identifier)]).succeeded();
    client.end(&identifier, false).succeeded();
    assert!(!client.is_there("e"));
    let identifier = client.begin();
    client.end(&identifier, true).succeeded();
}

#[test]
fn the_failing_update_is_named_and_none_takes_place() {
    let server = TestServer::start();
    let mut client = server.admin();
    let identifier = client.begin();
    client.add_device("a", &[of(&identifier)]);
    let refused = client.add_device("a", &[of(&identifier)]);
    refused.succeeded();
    client.add_device("b", &[of(&identifier)]);
    let answer = client.end(&identifier, true);
    answer.expect(ResultCode::EntryAlreadyExists);
    let value = answer.value.unwrap();
    let ended = TransactionEnded::decode(&value).unwrap();
    assert_eq!(ended.failed, Some(refused.id));
    assert_eq!(ended.controls.iter().count(), 0);
    assert!(!client.is_there("a") && !client.is_there("b"));
}

#[test]
fn controls_work_inside_and_answer_at_the_end() {
    let server = TestServer::start();
    let mut client = server.admin();
    let mut selection = Vec::new();
    ReadEntry {
        attributes: OctetStringsBuf::from_iter([b"description".as_slice()]).view(),
    }
    .encode(&mut selection);
    let identifier = client.begin();
    client.add_device("a", &[of(&identifier)]);
    let filter = filter_text::parse("(!(description=*))").unwrap();
    let assertion = (ASSERTION, true, Some(filter.as_filter().as_ber()));
    let changed = client.describe(
        "a",
        "new",
        &[
            of(&identifier),
            (POST_READ, true, Some(&selection)),
            assertion,
        ],
    );
    changed.succeeded();
    assert!(changed.controls.is_empty());
    let answer = client.end(&identifier, true);
    answer.succeeded();
    let value = answer.value.unwrap();
    let ended = TransactionEnded::decode(&value).unwrap();
    let mut lists = ended.controls.iter();
    let (id, controls) = lists.next().unwrap();
    assert_eq!((ended.failed, id), (None, changed.id));
    let entry = controls.find(POST_READ).unwrap().value.unwrap();
    let entry = SearchResultEntry::from_ber(entry).unwrap();
    let values = entry.attributes.iter().next().unwrap().values;
    assert_eq!(values.iter().collect::<Vec<_>>(), [b"new"]);
    assert!(lists.next().is_none());
    // The assertion is evaluated at the end, on what the transaction finds then.
    let identifier = client.begin();
    let asserted = client.describe("a", "newer", &[of(&identifier), assertion]);
    asserted.succeeded();
    let answer = client.end(&identifier, true);
    answer.expect(ResultCode::AssertionFailed);
    let value = answer.value.unwrap();
    assert_eq!(
        TransactionEnded::decode(&value).unwrap().failed,
        Some(asserted.id)
    );
}

#[test]
fn what_is_wrong_is_refused_at_once() {
    let server = TestServer::start();
    let mut client = server.connect();
    client
        .extended(START_TRANSACTION, None)
        .expect(ResultCode::StrongerAuthRequired);
    let mut client = server.admin();
    client
        .extended(START_TRANSACTION, Some(b"x"))
        .expect(ResultCode::ProtocolError);
    client
        .extended(END_TRANSACTION, None)
        .expect(ResultCode::ProtocolError);
    client
        .end(b"nonsense", true)
        .expect(ResultCode::UnwillingToPerform);
    client
        .add_device("a", &[of(b"nonsense")])
        .expect(ResultCode::UnwillingToPerform);
    let identifier = client.begin();
    let member = of(&identifier);
    let not_critical = (
        TRANSACTION_SPECIFICATION,
        false,
        Some(identifier.as_slice()),
    );
    let no_value = (TRANSACTION_SPECIFICATION, true, None);
    let proxied = (PROXIED_AUTHORIZATION, true, Some(b"dn:cn=x".as_slice()));
    for (list, code) in [
        (vec![not_critical], ResultCode::ProtocolError),
        (vec![no_value], ResultCode::ProtocolError),
        (vec![member, proxied], ResultCode::ProtocolError),
        (
            vec![member, ("1.2.3", true, None)],
            ResultCode::UnavailableCriticalExtension,
        ),
        (
            vec![member, (ASSERTION, true, None)],
            ResultCode::ProtocolError,
        ),
        (
            vec![(NON_TRANSACTIONAL, true, None)],
            ResultCode::UnavailableCriticalExtension,
        ),
        (
            vec![(EAGER_TRANSACTION, true, None)],
            ResultCode::UnavailableCriticalExtension,
        ),
        (
            vec![(QUEUE_LENGTH, true, Some(b"\x02\x01\x05"))],
            ResultCode::UnavailableCriticalExtension,
        ),
    ] {
        let answer = client.add_device("a", &list);
        assert_eq!(answer.code, code, "{list:?}: {answer:?}");
    }
    // Not for operations that do not update.
    let id = client.id();
    let search = requests::search(id, SUFFIX, Scope::Base, "(objectClass=*)");
    client
        .tell(&requests::with(&search, &[member]))
        .expect(ResultCode::UnavailableCriticalExtension);
    let who_am_i = Request::Extended(ExtendedRequest {
        name: sapwood_ldap::extended::WHO_AM_I,
        value: None,
    });
    client
        .ask_with(who_am_i, &[member])
        .expect(ResultCode::UnavailableCriticalExtension);
    let start = Request::Extended(ExtendedRequest {
        name: START_TRANSACTION,
        value: None,
    });
    client
        .ask_with(start, &[(ASSERTION, true, None)])
        .expect(ResultCode::UnavailableCriticalExtension);
    // A message id is there once.
    let delete = with_controls(77, Request::Delete(&dn("a")), &[member]);
    client.send(&[delete.clone(), delete].concat());
    client.finish(77)[0].succeeded();
    client.finish(77)[0].expect(ResultCode::ProtocolError);
    // The transaction is still what it was before all that was refused.
    client
        .end(&identifier, true)
        .expect(ResultCode::NoSuchObject);
}

#[test]
fn proxied_authorization_at_the_end_is_a_protocol_error_and_ends_nothing() {
    let server = TestServer::start();
    let mut client = server.admin();
    let identifier = client.begin();
    let member = of(&identifier);
    client.add_device("a", &[member]).succeeded();
    for commit in [true, false] {
        let mut value = Vec::new();
        let identifier = identifier.as_slice();
        EndTransaction { commit, identifier }.encode(&mut value);
        let end = Request::Extended(ExtendedRequest {
            name: END_TRANSACTION,
            value: Some(&value),
        });
        // No matter who is asked for, the client itself included, and whether or not the control is critical (RFC 5805
        // §4.4).
        let oneself = format!("dn:{ADMIN}");
        for authorization in ["dn:cn=x", "", &oneself] {
            for critical in [true, false] {
                let proxied = (
                    PROXIED_AUTHORIZATION,
                    critical,
                    Some(authorization.as_bytes()),
                );
                let answer = client.ask_with(end, &[proxied]);
                answer.expect(ResultCode::ProtocolError);
                // No update is to blame.
                assert_eq!(answer.value, None);
                assert!(answer.diagnostic.contains("RFC 5805"), "{answer:?}");
                assert!(!client.is_there("a"));
            }
        }
    }
    // Neither committed nor aborted: it goes on.
    client.add_device("b", &[member]).succeeded();
    client.end(&identifier, true).succeeded();
    assert!(client.is_there("a") && client.is_there("b"));
}

#[test]
fn a_bind_ends_transactions_and_start_tls_has_to_wait() {
    let server = TestServer::start();
    let mut client = server.admin();
    let identifier = client.begin();
    client.add_device("a", &[of(&identifier)]);
    client
        .extended(START_TLS, None)
        .expect(ResultCode::OperationsError);
    client.bind(ADMIN, PASSWORD).succeeded();
    client
        .end(&identifier, true)
        .expect(ResultCode::UnwillingToPerform);
    assert!(!client.is_there("a"));
}

#[test]
fn passwords_change_inside_transactions() {
    let server = TestServer::start();
    let mut client = server.admin();
    let identifier = client.begin();
    let dn = dn("anne");
    let attributes = [
        ("objectClass", "person"),
        ("cn", "anne"),
        ("sn", "x"),
        ("userPassword", "first"),
    ];
    let add = requests::add(99, &dn, &attributes);
    client
        .tell(&requests::with(&add, &[of(&identifier)]))
        .succeeded();
    let modify_password = |client: &mut Client, list: &[Control<'_>], new: Option<&[u8]>| {
        let mut value = Vec::new();
        PasswordModify {
            user_identity: Some(dn.as_bytes()),
            old_password: None,
            new_password: new,
        }
        .encode(&mut value);
        client.ask_with(
            Request::Extended(ExtendedRequest {
                name: PASSWORD_MODIFY,
                value: Some(&value),
            }),
            list,
        )
    };
    // Of an entry that only the transaction has; the server makes a password and tells it at once.
    let answer = modify_password(&mut client, &[of(&identifier)], None);
    answer.succeeded();
    let value = answer.value.unwrap();
    let generated = generated_password(&value).unwrap().unwrap().to_vec();
    let mut user = server.connect();
    user.bind(&dn, &generated)
        .expect(ResultCode::InvalidCredentials);
    client.end(&identifier, true).succeeded();
    user.bind(&dn, b"first")
        .expect(ResultCode::InvalidCredentials);
    user.bind(&dn, &generated).succeeded();
    // With another update that fails, the password stays.
    let identifier = client.begin();
    modify_password(&mut client, &[of(&identifier)], Some(b"second")).succeeded();
    client.describe("nobody", "x", &[of(&identifier)]);
    client
        .end(&identifier, true)
        .expect(ResultCode::NoSuchObject);
    user.bind(&dn, &generated).succeeded();
}

#[test]
fn a_transaction_that_grows_too_large_or_too_old_is_aborted() {
    let server = TestServer::with(
        "[limits]\ntransactions_max = 2\ntransaction_operations_max = 3\ntransaction_bytes_max = 3000\n",
    );
    let mut client = server.admin();
    let aborted = |client: &mut Client, identifier: &[u8], code| {
        let notice = client.receive().unwrap();
        assert_eq!((notice.id, notice.code), (0, code), "{notice:?}");
        assert_eq!(notice.name.as_deref(), Some(ABORTED_TRANSACTION));
        assert_eq!(notice.value.as_deref(), Some(identifier));
    };
    let identifier = client.begin();
    for name in ["a", "b", "c"] {
        client.add_device(name, &[of(&identifier)]).succeeded();
    }
    let id = client.id();
    let list = [of(&identifier)];
    client.send(&with_controls(id, Request::Delete(&dn("d")), &list));
    aborted(&mut client, &identifier, ResultCode::AdminLimitExceeded);
    client.finish(id)[0].expect(ResultCode::AdminLimitExceeded);
    client
        .end(&identifier, true)
        .expect(ResultCode::UnwillingToPerform);
    assert!(!client.is_there("a"));

    let identifier = client.begin();
    let id = client.id();
    let (list, long) = ([of(&identifier)], dn(&"x".repeat(3000)));
    client.send(&with_controls(id, Request::Delete(&long), &list));
    aborted(&mut client, &identifier, ResultCode::AdminLimitExceeded);
    client.finish(id)[0].expect(ResultCode::AdminLimitExceeded);

    let (one, two) = (client.begin(), client.begin());
    assert_ne!(one, two);
    client
        .extended(START_TRANSACTION, None)
        .expect(ResultCode::AdminLimitExceeded);
    for identifier in [one, two] {
        client.end(&identifier, false).succeeded();
    }

    let server = TestServer::with("[limits]\ntransaction_idle_seconds_max = 1\n");
    let mut client = server.admin();
    let since = Instant::now();
    let left_alone = client.begin();
    aborted(&mut client, &left_alone, ResultCode::TimeLimitExceeded);
    assert!(since.elapsed() >= Duration::from_secs(1));
    assert_eq!(
        client.who_am_i(),
        format!("dn:{ADMIN}"),
        "the connection stays"
    );
}

#[test]
fn the_memory_of_all_transactions_is_bounded() {
    let server = TestServer::with("[limits]\nopen_transactions_bytes_max = 150000\n");
    let (mut one, mut other) = (server.admin(), server.admin());
    let (first, second) = (one.begin(), other.begin());
    let long = "x".repeat(60_000);
    one.describe("a", &long, &[of(&first)]).succeeded();
    other.describe("a", &long, &[of(&second)]).succeeded();
    let id = other.id();
    let list = [of(&second)];
    other.send(&with_controls(id, Request::Delete(&dn(&long)), &list));
    assert_eq!(
        other.receive().unwrap().name.as_deref(),
        Some(ABORTED_TRANSACTION)
    );
    other.finish(id)[0].expect(ResultCode::Busy);
    // What an ended transaction held is there for others.
    let third = one.begin();
    one.describe("a", &long, &[of(&third)]).succeeded();
}

#[test]
fn a_stop_aborts_open_transactions_with_a_notice() {
    let mut server = TestServer::start();
    let mut client = server.admin();
    let identifier = client.begin();
    client.add_device("a", &[of(&identifier)]);
    server.stop();
    let notice = client.receive().unwrap();
    assert_eq!(notice.name.as_deref(), Some(ABORTED_TRANSACTION));
    assert_eq!(notice.value, Some(identifier));
    client.receive().unwrap().expect(ResultCode::Unavailable);
    assert!(client.receive().is_none());
}

/// Each extension is advertised by the identifier that the documentation names, while it is on and not else, also on
/// connections that are there already.
#[test]
fn extensions_are_advertised_while_they_are_on() {
    let documentation = include_str!("../../../docs/reference/protocol-extensions.md");
    let rows: Vec<[&str; 3]> = documentation
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
            let (key, attribute, oid) = (cells.nth(2)?, cells.next()?, cells.next()?);
            let attribute = match attribute {
                "control" => "supportedControl",
                other => other,
            };
            oid.starts_with("2.25.").then_some([key, attribute, oid])
        })
        .collect();
    assert_eq!(rows.len(), 5);
    let keys = rows.iter().map(|[key, _, _]| *key);
    let server = TestServer::start();
    let mut client = server.connect();
    for on in keys.map(Some).chain([None]) {
        server.configure(&[(Replace, "sapwoodExtensions", on.as_slice())]);
        let root_dse = client.root_dse();
        let is_there = |attribute: &str, oid: &str| {
            let mut attributes = root_dse.attributes.iter();
            let found = attributes.find(|(name, _)| name == attribute);
            found.is_some_and(|(_, values)| values.iter().any(|value| value == oid.as_bytes()))
        };
        for [key, attribute, oid] in &rows {
            assert_eq!(
                is_there(attribute, oid),
                on == Some(*key),
                "{key} of {on:?}"
            );
        }
        assert!(is_there("supportedExtension", START_TRANSACTION));
        assert!(is_there("supportedExtension", END_TRANSACTION));
        assert!(is_there("supportedControl", TRANSACTION_SPECIFICATION));
    }
}

#[test]
fn an_identifier_of_the_client_starts_a_transaction() {
    let server = with_extensions(&["implicit_start"], "");
    let (mut client, mut other) = (server.admin(), server.admin());
    client.add_device("a", &[of(b"mine")]).succeeded();
    client.describe("a", "x", &[of(b"mine")]).succeeded();
    assert!(!other.is_there("a"));
    // Identifiers are a connection's own.
    other
        .end(b"mine", true)
        .expect(ResultCode::UnwillingToPerform);
    client.end(b"mine", true).succeeded();
    assert!(other.is_there("a"));
    client.add_device("b", &[of(b"mine")]).succeeded();
    client.end(b"mine", false).succeeded();
    assert!(!other.is_there("b"));
}

/// A client sends updates and the end in one go. When the server gives the transaction up among them, what comes behind
/// must not become a transaction of its own: half of what was asked for would be done.
#[test]
fn what_is_left_of_an_aborted_transaction_starts_no_other() {
    let server = with_extensions(
        &["implicit_start"],
        "[limits]\ntransactions_max = 1\ntransaction_operations_max = 3\n",
    );
    let (mut client, mut other) = (server.admin(), server.admin());
    let mut burst = Vec::new();
    for id in 100..106 {
        let add = device(id, &format!("d{id}"));
        burst.extend(requests::with(&add, &[of(b"mine")]));
    }
    let mut value = Vec::new();
    EndTransaction {
        commit: true,
        identifier: b"mine",
    }
    .encode(&mut value);
    burst.extend(requests::extended(106, END_TRANSACTION, Some(&value)));
    client.send(&burst);
    let mut codes = Vec::new();
    while codes.last().is_none_or(|(id, _)| *id != 106) {
        let answer = client.receive().unwrap();
        codes.push((answer.id, answer.code));
    }
    let (ok, limit, void) = (
        ResultCode::Success,
        ResultCode::AdminLimitExceeded,
        ResultCode::UnwillingToPerform,
    );
    let expected = [
        (100, ok),
        (101, ok),
        (102, ok),
        (0, limit),
        (103, limit),
        (104, void),
        (105, void),
        (106, void),
    ];
    assert_eq!(codes, expected);
    assert!((100..106).all(|id| !other.is_there(&format!("d{id}"))));
    // It has been ended: the identifier is free.
    client.add_device("a", &[of(b"mine")]).succeeded();
    // Nor does one begin in its midst that could not be started at its beginning.
    client.add_device("b", &[of(b"late")]).expect(limit);
    client.end(b"mine", true).succeeded();
    client.add_device("c", &[of(b"late")]).expect(void);
    client.end(b"late", true).expect(void);
    assert!(other.is_there("a") && !other.is_there("b") && !other.is_there("c"));
}

#[test]
fn an_update_belongs_to_one_transaction() {
    let server = TestServer::start();
    let mut client = server.admin();
    let (one, two) = (client.begin(), client.begin());
    for second in [&one, &two] {
        client
            .add_device("a", &[of(&one), of(second)])
            .expect(ResultCode::ProtocolError);
    }
    client.end(&one, true).succeeded();
    assert!(!client.is_there("a"));
}

/// An unbind ends the session, whatever its controls say.
#[test]
fn an_unbind_with_a_wrong_queue_length_is_an_unbind() {
    let server = with_extensions(&["queue_length"], "");
    let mut client = server.admin();
    let id = client.id();
    let list = [(QUEUE_LENGTH, true, Some(b"nonsense".as_slice()))];
    client.send(&with_controls(id, Request::Unbind, &list));
    assert!(client.receive().is_none());
}

#[test]
fn updates_without_the_control_may_belong_to_the_open_transaction() {
    let server = with_extensions(&["implicit_membership"], "");
    let (mut client, mut other) = (server.admin(), server.admin());
    client.add_device("before", &[]).succeeded();
    assert!(other.is_there("before"));
    let identifier = client.begin();
    client.add_device("inside", &[]).succeeded();
    client
        .add_device("beside", &[(NON_TRANSACTIONAL, true, None)])
        .succeeded();
    assert!(!other.is_there("inside") && other.is_there("beside"));
    let second = client.begin();
    client
        .add_device("whose", &[])
        .expect(ResultCode::UnwillingToPerform);
    client.end(&second, false).succeeded();
    client.end(&identifier, true).succeeded();
    assert!(other.is_there("inside"));
}

/// What a transaction began with holds until its end: otherwise an update that belongs to it would be done at once.
#[test]
fn an_extension_is_switched_while_transactions_are_open() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.admin(), server.admin());
    let switch = |on: bool| {
        let kind = if on { Replace } else { Delete };
        let names: &[&str] = if on {
            &["implicit_membership", "implicit_start"]
        } else {
            &[]
        };
        server.configure(&[(kind, "sapwoodExtensions", names)]);
    };
    let alone = (NON_TRANSACTIONAL, true, None);
    let before = client.begin();
    switch(true);
    client.add_device("alone", &[]).succeeded();
    assert!(other.is_there("alone"));
    client.end(&before, true).succeeded();
    client.add_device("inside", &[of(b"mine")]).succeeded();
    switch(false);
    client.add_device("more", &[]).succeeded();
    client.add_device("outside", &[alone]).succeeded();
    assert!(!other.is_there("inside") && !other.is_there("more") && other.is_there("outside"));
    client.end(b"mine", true).succeeded();
    assert!(other.is_there("inside") && other.is_there("more"));
    // Off for those that come behind.
    client
        .add_device("a", &[of(b"mine")])
        .expect(ResultCode::UnwillingToPerform);
    let next = client.begin();
    client
        .add_device("b", &[alone])
        .expect(ResultCode::UnavailableCriticalExtension);
    client.add_device("b", &[]).succeeded();
    assert!(other.is_there("b"));
    client.end(&next, false).succeeded();
}

/// An update that would start an eager transaction by itself must not be done in one that is none, nor alone.
#[test]
fn an_update_starts_an_eager_transaction_only_with_both_extensions() {
    let server = TestServer::start();
    let mut client = server.admin();
    for (names, code) in [
        (
            &["eager_transactions"][..],
            ResultCode::UnavailableCriticalExtension,
        ),
        (
            &["implicit_start"],
            ResultCode::UnavailableCriticalExtension,
        ),
        (
            &["implicit_start", "eager_transactions"],
            ResultCode::Success,
        ),
    ] {
        server.configure(&[(Replace, "sapwoodExtensions", names)]);
        let eager = (EAGER_TRANSACTION, true, None);
        client.add_device("a", &[of(b"mine"), eager]).expect(code);
    }
    client
        .add_device("a", &[of(b"mine")])
        .expect(ResultCode::EntryAlreadyExists);
    client.end(b"mine", true).succeeded();
}

#[test]
fn an_eager_transaction_answers_with_what_would_be() {
    let server = with_extensions(
        &["eager_transactions"],
        "[limits]\neager_operations_max = 4\n",
    );
    let (mut client, mut other) = (server.admin(), server.admin());
    let start = |client: &mut Client| {
        let start = Request::Extended(ExtendedRequest {
            name: START_TRANSACTION,
            value: None,
        });
        let answer = client.ask_with(start, &[(EAGER_TRANSACTION, true, None)]);
        answer.succeeded();
        answer.value.unwrap()
    };
    let identifier = start(&mut client);
    client.add_device("a", &[of(&identifier)]).succeeded();
    // A failure is told at once, and the rest goes on without it.
    client
        .add_device("a", &[of(&identifier)])
        .expect(ResultCode::EntryAlreadyExists);
    let mut selection = Vec::new();
    ReadEntry {
        attributes: OctetStringsBuf::from_iter([b"cn".as_slice()]).view(),
    }
    .encode(&mut selection);
    let list = [
        of(&identifier),
        (POST_READ, true, Some(selection.as_slice())),
    ];
    let read = client.describe("a", "seen", &list);
    read.succeeded();
    assert_eq!(read.controls[0].0, POST_READ);
    assert!(!other.is_there("a"));
    // A burst of them, each waiting for the one before.
    let dn_b = dn("b");
    let mut burst = Vec::new();
    for id in 500..503 {
        burst.extend(with_controls(
            id,
            Request::Delete(&dn_b),
            &[of(&identifier)],
        ));
    }
    client.send(&burst);
    for id in 500..503 {
        client.finish(id)[0].expect(ResultCode::NoSuchObject);
    }
    let answer = client.end(&identifier, true);
    answer.succeeded();
    let value = answer.value.unwrap();
    let ended = TransactionEnded::decode(&value).unwrap();
    assert_eq!(ended.controls.iter().next().unwrap().0, read.id);
    assert!(other.is_there("a"));

    // What succeeded when it was tried may fail at the end,
    let identifier = start(&mut client);
    let added = client.add_device("c", &[of(&identifier)]);
    added.succeeded();
    other.add_device("c", &[]).succeeded();
    let answer = client.end(&identifier, true);
    answer.expect(ResultCode::EntryAlreadyExists);
    let value = answer.value.unwrap();
    assert_eq!(
        TransactionEnded::decode(&value).unwrap().failed,
        Some(added.id)
    );
    // or when the next one is tried.
    let identifier = start(&mut client);
    client.add_device("d", &[of(&identifier)]).succeeded();
    other.add_device("d", &[]).succeeded();
    let id = client.id();
    let list = [of(&identifier)];
    client.send(&with_controls(id, Request::Delete(&dn_b), &list));
    let notice = client.receive().unwrap();
    assert_eq!(notice.name.as_deref(), Some(ABORTED_TRANSACTION));
    notice.expect(ResultCode::EntryAlreadyExists);
    client.finish(id)[0].expect(ResultCode::Busy);
    client
        .end(&identifier, true)
        .expect(ResultCode::UnwillingToPerform);
}

#[test]
fn a_queue_of_known_length_is_answered_whole() {
    let server = with_extensions(&["queue_length"], "");
    let mut client = server.admin();
    let mut length = Vec::new();
    put_queue_length(&mut length, 300);
    // More is announced than comes: what there is must be answered all the same.
    let mut queue = Vec::new();
    for id in 1000..1200 {
        let list: &[Control<'_>] = if id == 1000 {
            &[(QUEUE_LENGTH, true, Some(&length))]
        } else {
            &[]
        };
        queue.extend(requests::with(&device(id, &format!("q{id}")), list));
        queue.extend(requests::search(
            id + 1000,
            "",
            Scope::Base,
            "(objectClass=*)",
        ));
    }
    client.send(&queue);
    let mut ended = 0;
    while ended < 400 {
        let answer = client.receive().unwrap();
        if answer.ends {
            answer.succeeded();
            ended += 1;
        }
    }
    let wrong = [(QUEUE_LENGTH, false, Some(b"\x02\x01\x00".as_slice()))];
    client
        .add_device("x", &wrong)
        .expect(ResultCode::ProtocolError);
    // The last one of a queue may say so.
    assert_eq!(client.who_am_i(), format!("dn:{ADMIN}"));
}
