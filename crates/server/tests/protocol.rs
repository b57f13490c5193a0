//! What clients see on the wire: bursts, abandon and cancel, protocol errors, limits, paging, stopping.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use sapwood_ldap::controls::{
    ASSERTION, GET_SERVER_ID, GET_SERVER_ID_RESPONSE, KnownControl, MANAGE_DSA_IT, PAGED_RESULTS,
    PROXIED_AUTHORIZATION, PROXIED_AUTHORIZATION_V1, PagedResults, SUBENTRIES, SUBENTRIES_OF_DRAFT,
};
use sapwood_ldap::extended::{CANCEL, NOTICE_OF_DISCONNECTION, START_TLS, WHO_AM_I, put_cancel_id};
use sapwood_ldap::filter_text;
use sapwood_ldap::message::{Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::message;
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, THREADS, TestServer, requests, tls_client};

#[test]
fn a_burst_of_searches_is_answered_one_by_one() {
    let server = TestServer::start();
    let mut client = server.connect();
    let burst: Vec<u8> = (1..=1000)
        .flat_map(|id| requests::search(id, "", Scope::Base, "(objectClass=*)"))
        .collect();
    client.send(&burst);
    for id in 1..=1000 {
        let answers = client.finish(id);
        assert_eq!(answers.len(), 2, "the root DSE and the end");
        assert_eq!(answers[0].entry.as_deref(), Some(""));
    }
}

#[test]
fn updates_of_a_burst_are_each_answered_once_and_fail_alone() {
    let server = TestServer::start();
    let mut client = server.admin();
    let mut burst = Vec::new();
    for id in 100..300 {
        // Each second one is there already.
        let name = format!("p{}", id / 2);
        let dn = format!("cn={name},{SUFFIX}");
        burst.extend(requests::add(
            id,
            &dn,
            &[("objectClass", "person"), ("cn", &name), ("sn", "x")],
        ));
    }
    client.send(&burst);
    let mut seen = HashSet::new();
    for _ in 100..300 {
        let answer = client.receive().unwrap();
        assert!(seen.insert(answer.id), "answered twice");
        let expected = if answer.id.is_multiple_of(2) {
            ResultCode::Success
        } else {
            ResultCode::EntryAlreadyExists
        };
        assert_eq!(answer.code, expected, "{answer:?}");
    }
    assert_eq!(
        client
            .search(SUFFIX, Scope::OneLevel, "(objectClass=person)")
            .len(),
        101
    );
}

#[test]
fn requests_in_pieces_are_put_together() {
    let server = TestServer::start();
    let mut client = server.connect();
    let request = requests::extended(5, WHO_AM_I, None);
    for byte in &request {
        client.send(&[*byte]);
    }
    client.finish(5)[0].succeeded();
}

/// A search whose answer is larger than all buffers on the way, so that it is under way until somebody reads.
fn with_a_search_under_way() -> (TestServer, Client) {
    let server = TestServer::start();
    server.add_people(4000, 4000);
    let mut client = server.admin();
    client.send(&requests::search(
        77,
        SUFFIX,
        Scope::Subtree,
        "(objectClass=*)",
    ));
    let first = client.receive().unwrap();
    assert_eq!(first.id, 77);
    (server, client)
}

#[test]
fn an_abandoned_search_ends_without_an_answer() {
    let (_server, mut client) = with_a_search_under_way();
    client.send(&message(78, Request::Abandon(77)));
    client.send(&requests::extended(79, WHO_AM_I, None));
    let mut entries = 0;
    loop {
        let answer = client.receive().unwrap();
        if answer.id == 79 {
            break;
        }
        assert_eq!(answer.id, 77);
        assert!(!answer.ends, "an abandoned search has no result");
        entries += 1;
    }
    assert!(entries < 4000, "the search went on to its end");
    assert!(!client.who_am_i().is_empty());
}

#[test]
fn a_cancelled_search_ends_as_cancelled() {
    let (_server, mut client) = with_a_search_under_way();
    let mut value = Vec::new();
    put_cancel_id(&mut value, 77);
    client.send(&requests::extended(78, CANCEL, Some(&value)));
    let (mut searched, mut cancelled) = (None, None);
    while searched.is_none() || cancelled.is_none() {
        let answer = client.receive().unwrap();
        match answer.id {
            77 if answer.ends => searched = Some(answer.code),
            77 => assert!(searched.is_none(), "an entry after the end"),
            78 => cancelled = Some(answer.code),
            id => panic!("an answer to {id}"),
        }
    }
    assert_eq!(
        (searched, cancelled),
        (Some(ResultCode::Canceled), Some(ResultCode::Success))
    );
    client
        .extended(CANCEL, Some(&value))
        .expect(ResultCode::NoSuchOperation);
    client
        .extended(CANCEL, Some(b"\x04\x00"))
        .expect(ResultCode::ProtocolError);
}

#[track_caller]
fn expect_disconnection(client: &mut Client, code: ResultCode) {
    let notice = client.receive().expect("a notice before the end");
    assert_eq!((notice.id, notice.code), (0, code), "{notice:?}");
    assert_eq!(notice.name.as_deref(), Some(NOTICE_OF_DISCONNECTION));
    assert!(!notice.diagnostic.is_empty());
    assert!(client.receive().is_none(), "the connection stays open");
}

#[test]
fn bytes_that_are_no_message_end_the_connection_with_a_notice() {
    let server = TestServer::start();
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".as_slice(),
        // A length of 2^40.
        b"\x30\x86\x01\x00\x00\x00\x00\x00",
        // Longer than what is allowed before a bind.
        b"\x30\x84\x00\x10\x00\x00",
        // Message id 0.
        b"\x30\x05\x02\x01\x00\x42\x00",
        // A response is no request.
        b"\x30\x0c\x02\x01\x01\x65\x07\x0a\x01\x00\x04\x00\x04\x00",
        // An indefinite length.
        b"\x30\x80\x02\x01\x01\x42\x00\x00\x00",
    ] {
        let mut client = server.connect();
        client.send(bytes);
        expect_disconnection(&mut client, ResultCode::ProtocolError);
    }
    // What came before the mistake is answered.
    let mut client = server.connect();
    let mut bytes = requests::extended(9, WHO_AM_I, None);
    bytes.extend(b"\xff");
    client.send(&bytes);
    client.finish(9)[0].succeeded();
    expect_disconnection(&mut client, ResultCode::ProtocolError);
}

#[test]
fn a_bound_user_may_send_longer_messages() {
    let server = TestServer::start();
    let mut client = server.admin();
    let long = "x".repeat(1 << 20);
    let dn = format!("cn=long,{SUFFIX}");
    client.send(&requests::add(
        50,
        &dn,
        &[
            ("objectClass", "person"),
            ("cn", "long"),
            ("sn", "x"),
            ("description", &long),
        ],
    ));
    client.finish(50)[0].succeeded();
    let entry = &client.search(&dn, Scope::Base, "(objectClass=*)")[0];
    let description = entry
        .attributes
        .iter()
        .find(|(name, _)| name == "description")
        .unwrap();
    assert_eq!(description.1[0].len(), 1 << 20);
}

#[test]
fn a_filter_nested_10_000_deep_is_refused() {
    let server = TestServer::start();
    let mut client = server.admin();
    // Built by hand: 10,000 times NOT around a presence filter.
    let mut filter = b"\x87\x02cn".to_vec();
    for _ in 0..10_000 {
        let mut outer = vec![0xa2];
        sapwood_ldap_length(&mut outer, filter.len());
        outer.extend(&filter);
        filter = outer;
    }
    let mut content =
        b"\x04\x00\x0a\x01\x00\x0a\x01\x00\x02\x01\x00\x02\x01\x00\x01\x01\x00".to_vec();
    content.extend(&filter);
    content.extend(b"\x30\x00");
    let mut search = vec![0x02, 0x01, 0x09, 0x63];
    sapwood_ldap_length(&mut search, content.len());
    search.extend(&content);
    let mut bytes = vec![0x30];
    sapwood_ldap_length(&mut bytes, search.len());
    bytes.extend(&search);
    client.send(&bytes);
    client
        .finish(9)
        .pop()
        .unwrap()
        .expect(ResultCode::ProtocolError);
    assert!(!client.who_am_i().is_empty(), "the session goes on");
}

fn sapwood_ldap_length(out: &mut Vec<u8>, length: usize) {
    if length < 128 {
        out.push(u8::try_from(length).unwrap());
    } else {
        let bytes = u32::try_from(length).unwrap().to_be_bytes();
        out.push(0x84);
        out.extend(bytes);
    }
}

#[test]
fn unknown_controls_matter_only_when_critical() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&requests::with(
        &requests::search(1, "", Scope::Base, "(objectClass=*)"),
        &[("1.2.3.4", false, Some(b"x"))],
    ));
    assert_eq!(client.finish(1).len(), 2);
    client.send(&requests::with(
        &requests::search(2, "", Scope::Base, "(objectClass=*)"),
        &[("1.2.3.4", true, Some(b"x"))],
    ));
    let answer = &client.finish(2)[0];
    answer.expect(ResultCode::UnavailableCriticalExtension);
    assert!(answer.diagnostic.contains("1.2.3.4"));
    client.send(&requests::with(
        &requests::search(3, "", Scope::Base, "(objectClass=*)"),
        &[(MANAGE_DSA_IT, true, None)],
    ));
    assert_eq!(client.finish(3).len(), 2);
    client
        .extended("1.2.3.4", None)
        .expect(ResultCode::ProtocolError);
}

#[test]
fn a_control_that_is_given_twice_is_a_protocol_error() {
    let server = TestServer::start();
    let mut client = server.admin();
    let visible = Some(b"\x01\x01\xff".as_slice());
    let mut page = Vec::new();
    PagedResults {
        size: 1,
        cookie: b"",
    }
    .encode(&mut page);
    let everything = filter_text::parse("(objectClass=*)").unwrap();
    let everything = Some(everything.as_filter().as_ber());
    let search = |id| requests::search(id, SUFFIX, Scope::Subtree, "(objectClass=*)");
    let describe = |id| requests::describe(id, SUFFIX, "x");
    let compare = |id| requests::compare(id, SUFFIX, "dc", "example");
    let who_am_i = |id| requests::extended(id, WHO_AM_I, None);
    let bind = |id| requests::bind(id, ADMIN, PASSWORD);
    type Asked<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    for (request, oid, value) in [
        (&search as Asked<'_>, SUBENTRIES, visible),
        (&search, SUBENTRIES_OF_DRAFT, None),
        (&search, PAGED_RESULTS, Some(page.as_slice())),
        (&search, MANAGE_DSA_IT, None),
        (&compare, ASSERTION, everything),
        (&describe, ASSERTION, everything),
        (&describe, GET_SERVER_ID, None),
        (&who_am_i, GET_SERVER_ID, None),
        (&bind, GET_SERVER_ID, None),
    ] {
        for critical in [true, false] {
            let id = client.id();
            let control = (oid, critical, value);
            client.send(&requests::with(&request(id), &[control, control]));
            let answer = client.finish(id).pop().unwrap();
            answer.expect(ResultCode::ProtocolError);
            assert!(answer.diagnostic.contains(oid), "{}", answer.diagnostic);
        }
        let id = client.id();
        client.send(&requests::with(&request(id), &[(oid, true, value)]));
        let code = client.finish(id).pop().unwrap().code;
        assert!(code.is_success(), "{oid}: {code}");
    }
    // Where a control has no place it is not looked at, unless it is critical.
    for (critical, code) in [
        (true, ResultCode::UnavailableCriticalExtension),
        (false, ResultCode::Success),
    ] {
        let control = (SUBENTRIES, critical, None);
        client.send(&requests::with(&describe(900), &[control, control]));
        client.finish(900)[0].expect(code);
    }
}

/// RFC 4511 §4.1.11: what has no response must not be done either, but for Unbind (§4.3).
#[test]
fn an_abandon_with_an_unknown_critical_control_is_not_done() {
    let (_server, mut client) = with_a_search_under_way();
    let unknown = ("1.2.3.4", true, None);
    let abandon = message(78, Request::Abandon(77));
    client.send(&requests::with(&abandon, &[unknown]));
    // So there is something to cancel.
    client.send(&requests::cancel(79, 77));
    let (mut searched, mut cancelled) = (None, None);
    while cancelled.is_none() {
        let answer = client.receive().unwrap();
        match answer.id {
            77 if answer.ends => searched = Some(answer.code),
            79 => cancelled = Some(answer.code),
            _ => {}
        }
    }
    assert_eq!(
        (searched, cancelled),
        (Some(ResultCode::Canceled), Some(ResultCode::Success))
    );
}

#[test]
fn subentries_are_seen_with_their_control() {
    let server = TestServer::start();
    let dn = format!("cn=Rules,{SUFFIX}");
    let subentry = [
        ("objectClass", "subentry"),
        ("cn", "Rules"),
        ("subtreeSpecification", "{}"),
    ];
    server.add(&[(&dn, &subentry)]);
    server.add_people(3, 10);
    let mut client = server.admin();
    let mut seen = |control: Option<(&str, bool, Option<&[u8]>)>| {
        let id = client.id();
        let search = requests::search(id, SUFFIX, Scope::Subtree, "(cn=*)");
        client.send(&requests::with(&search, control.as_slice()));
        let answers = client.finish(id);
        answers.last().unwrap().succeeded();
        let entries = answers.into_iter().filter_map(|answer| answer.entry);
        entries.collect::<BTreeSet<String>>()
    };
    let normal = seen(None);
    assert_eq!(normal.len(), 3);
    let rules = BTreeSet::from([dn]);
    assert_eq!(seen(Some((SUBENTRIES, true, Some(b"\x01\x01\xff")))), rules);
    assert_eq!(
        seen(Some((SUBENTRIES, true, Some(b"\x01\x01\x00")))),
        normal
    );
    assert_eq!(seen(Some((SUBENTRIES_OF_DRAFT, true, None))), rules);
}

/// Each response says which server it is from: entries, and the ends of all operations, however long these take.
#[test]
fn get_server_id_is_answered_with_the_name_of_the_server() {
    let server = TestServer::start();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    server.add_people(3, 10);
    let mut client = server.admin();
    let new = format!("cn=new,{SUFFIX}");
    let person = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", "to be hashed"),
    ];
    let requests: [(Vec<u8>, usize); 9] = [
        (requests::search(1, SUFFIX, Scope::Subtree, "(sn=*)"), 4),
        (requests::search(1, "", Scope::Base, "(objectClass=*)"), 2),
        (requests::add(1, &new, &person), 1),
        (requests::describe(1, &new, "x"), 1),
        (requests::compare(1, &new, "sn", "x"), 1),
        (message(1, Request::Delete(&new)), 1),
        (requests::extended(1, WHO_AM_I, None), 1),
        (requests::extended(1, "1.2.3.4", None), 1),
        (requests::bind(1, &new, "wrong"), 1),
    ];
    for (request, answers) in requests {
        for asks in [true, false] {
            let controls = [(GET_SERVER_ID, true, None)];
            let controls = if asks { controls.as_slice() } else { &[] };
            client.send(&requests::with(&request, controls));
            let all = client.finish(1);
            if asks {
                assert_eq!(all.len(), answers);
            }
            for answer in all {
                let named = answer.controls.iter();
                let named: Vec<_> = named
                    .filter(|(oid, _)| oid == GET_SERVER_ID_RESPONSE)
                    .map(|(_, value)| value.as_slice())
                    .collect();
                let expected: &[&[u8]] = if asks {
                    &[name.trim_end().as_bytes()]
                } else {
                    &[]
                };
                assert_eq!(named, expected, "{answer:?}");
            }
        }
    }
}

/// The root DSE has the OIDs of the tables.
#[test]
fn the_root_dse_is_made_from_the_tables() {
    let server = TestServer::start();
    let mut client = server.connect();
    let told = client.root_dse().values("supportedControl");
    for oid in [
        SUBENTRIES,
        SUBENTRIES_OF_DRAFT,
        GET_SERVER_ID,
        ASSERTION,
        MANAGE_DSA_IT,
        PAGED_RESULTS,
        PROXIED_AUTHORIZATION,
        PROXIED_AUTHORIZATION_V1,
    ] {
        assert!(told.iter().any(|told| told == oid), "{oid}");
    }
    let all = KnownControl::ALL.iter().flat_map(|known| known.oids());
    let all: BTreeSet<&str> = all.copied().collect();
    assert!(told.iter().all(|oid| all.contains(oid.as_str())));
}

#[test]
fn two_paged_searches_go_on_side_by_side() {
    let server = TestServer::start();
    server.add_people(25, 10);
    let mut client = server.admin();
    let mut page = |cookie: &[u8], size: u32, filter: &str| {
        let mut value = Vec::new();
        PagedResults { size, cookie }.encode(&mut value);
        let id = client.id();
        client.send(&requests::with(
            &requests::search(id, SUFFIX, Scope::Subtree, filter),
            &[(PAGED_RESULTS, true, Some(&value))],
        ));
        let mut answers = client.finish(id);
        let end = answers.pop().unwrap();
        end.succeeded();
        let control = end
            .controls
            .iter()
            .find(|(oid, _)| oid == PAGED_RESULTS)
            .expect("a paged results control");
        let cookie = PagedResults::decode(&control.1).unwrap().cookie.to_vec();
        let names: Vec<_> = answers
            .into_iter()
            .map(|answer| answer.entry.unwrap())
            .collect();
        assert!(names.len() <= size as usize);
        (names, cookie)
    };
    let (mut all, mut cookie) = page(b"", 7, "(objectClass=*)");
    let (mut some, mut other) = page(b"", 2, "(cn=p1*)");
    while !cookie.is_empty() || !other.is_empty() {
        if !cookie.is_empty() {
            let (names, next) = page(&cookie, 7, "(objectClass=*)");
            all.extend(names);
            cookie = next;
        }
        if !other.is_empty() {
            let (names, next) = page(&other, 2, "(cn=p1*)");
            some.extend(names);
            other = next;
        }
    }
    assert_eq!((all.len(), some.len()), (26, 11));
    assert_eq!(
        all.iter().collect::<BTreeSet<_>>().len(),
        26,
        "no entry twice"
    );
    assert_eq!(some.iter().collect::<BTreeSet<_>>().len(), 11);
}

#[test]
fn plaintext_behind_start_tls_is_dropped() {
    let server = TestServer::start();
    let mut stream = server.tcp();
    let mut bytes = requests::extended(1, START_TLS, None);
    // Slipped in by somebody on the way, to be carried out as if it had come through TLS.
    bytes.extend(requests::extended(2, WHO_AM_I, None));
    stream.write_all(&bytes).unwrap();
    let mut client = Client::new(stream.try_clone().unwrap());
    let answer = &client.finish(1)[0];
    assert_eq!(
        (answer.code, answer.name.as_deref()),
        (ResultCode::Success, Some(START_TLS))
    );
    let mut client = Client::new(tls_client(stream));
    client.send(&requests::extended(3, WHO_AM_I, None));
    assert_eq!(
        client.finish(3)[0].code,
        ResultCode::Success,
        "the first answer over TLS is to the first request over TLS"
    );
    assert_eq!(
        client.extended(START_TLS, None).code,
        ResultCode::OperationsError,
        "not twice"
    );
}

#[test]
fn an_unbind_closes_the_connection() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&message(1, Request::Unbind));
    assert!(client.receive().is_none());
}

#[test]
fn a_client_that_closes_its_side_still_gets_its_answers() {
    let server = TestServer::start();
    let mut stream = server.tcp();
    let requests: Vec<u8> = (1..=50)
        .flat_map(|id| requests::search(id, "", Scope::Base, "(objectClass=*)"))
        .collect();
    stream.write_all(&requests).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut client = Client::new(stream);
    (1..=50).for_each(|id| assert_eq!(client.finish(id).len(), 2));
    assert!(client.receive().is_none());
}

#[test]
fn a_stopping_server_finishes_and_says_goodbye() {
    let mut server = TestServer::start();
    let mut idle = server.connect();
    idle.who_am_i();
    let mut busy = server.admin();
    // No more than the slowest machine does in the time that a server takes to stop.
    let adds: Vec<u8> = (10..18)
        .flat_map(|id| {
            let name = format!("p{id}");
            requests::add(
                id,
                &format!("cn={name},{SUFFIX}"),
                &[("objectClass", "person"), ("cn", &name), ("sn", "x")],
            )
        })
        .collect();
    busy.send(&adds);
    busy.receive().unwrap().succeeded();
    let stopping = std::thread::spawn(move || {
        server.stop();
        server
    });
    expect_disconnection(&mut idle, ResultCode::Unavailable);
    let mut answered = 1;
    loop {
        match busy.receive() {
            Some(notice) if notice.id == 0 => {
                notice.expect(ResultCode::Unavailable);
            }
            Some(answer) => {
                answer.succeeded();
                answered += 1;
            }
            None => break,
        }
    }
    assert_eq!(answered, 8, "what was taken is answered");
    stopping.join().unwrap();
}

#[test]
fn idle_connections_are_closed() {
    let server = TestServer::with("[limits]\nidle_seconds_max = 1\n");
    expect_disconnection(&mut server.connect(), ResultCode::TimeLimitExceeded);
    // One that was answered, unless it asked so late that it was closed before.
    let mut client = loop {
        let mut client = server.connect();
        let asked = client.try_send(&requests::extended(1, WHO_AM_I, None));
        if asked.is_ok() && client.receive().is_some_and(|answer| answer.id == 1) {
            break client;
        }
    };
    expect_disconnection(&mut client, ResultCode::TimeLimitExceeded);
}

#[test]
fn who_does_not_read_the_entries_of_a_search_is_closed() {
    let server = TestServer::with("[limits]\nunread_seconds_max = 1\n");
    server.add_people(1000, 1000);
    let connections = || server.server.as_ref().unwrap().connections();
    while connections() > 0 {
        std::thread::yield_now();
    }
    // A local socket takes less than what is found.
    let mut client = server.connect_local();
    client.bind(ADMIN, PASSWORD).succeeded();
    client.send(&requests::search(
        9,
        SUFFIX,
        Scope::Subtree,
        "(objectClass=*)",
    ));
    while connections() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let server = TestServer::with("[limits]\nconnections_max = 2\n");
    let (mut first, mut second) = (server.admin(), server.admin());
    first.who_am_i();
    second.who_am_i();
    expect_disconnection(&mut server.connect(), ResultCode::Unavailable);
    first.send(&message(9, Request::Unbind));
    assert!(first.receive().is_none());
    // The place is free once the server has closed.
    while server.server.as_ref().unwrap().connections() > 1 {
        std::thread::yield_now();
    }
    server.connect().who_am_i();
}

#[test]
fn connections_fall_evenly_on_threads() {
    let server = TestServer::start();
    let loads = || server.server.as_ref().unwrap().connections_of_threads();
    let mut open: Vec<Client> = (0..THREADS * 4)
        .map(|number| match number % 3 {
            0 => server.connect(),
            1 => server.connect_tls(),
            _ => server.connect_local(),
        })
        .collect();
    for client in &mut open {
        client.who_am_i();
    }
    assert_eq!(loads(), [4; THREADS]);
    // However unevenly connections end, new ones make up for it.
    open.drain(..THREADS * 2 + 1);
    while loads().iter().sum::<usize>() != open.len() {
        std::thread::yield_now();
    }
    while open.len() < THREADS * 4 {
        let mut client = server.connect();
        client.who_am_i();
        open.push(client);
    }
    assert_eq!(loads(), [4; THREADS]);
}

#[test]
fn assertions_guard_searches_and_comparisons() {
    let server = TestServer::start();
    server.add_people(2, 10);
    let mut client = server.admin();
    let mut ask = |filter: &str| {
        let value = sapwood_ldap::filter_text::parse(filter).unwrap();
        let value = value.as_filter().as_ber();
        client.send(&requests::with(
            &requests::search(9, SUFFIX, Scope::Subtree, "(objectClass=person)"),
            &[(ASSERTION, true, Some(value))],
        ));
        let answers = client.finish(9);
        (answers.len(), answers.last().unwrap().code)
    };
    assert_eq!(ask("(dc=example)"), (3, ResultCode::Success));
    assert_eq!(ask("(dc=other)"), (1, ResultCode::AssertionFailed));
    let id = client.id();
    client.send(&requests::with(
        &requests::search(id, SUFFIX, Scope::Subtree, "(objectClass=person)"),
        &[(ASSERTION, true, Some(b"\x04"))],
    ));
    client.finish(id)[0].expect(ResultCode::ProtocolError);
}

#[test]
fn a_stalled_request_is_evicted_when_another_needs_its_memory() {
    let server = TestServer::with(
        "[limits]\nmessage_bytes_max = 100000\nmessage_bytes_max_anonymous = 100000\ninput_bytes_max = 100000\nstalled_seconds_max = 1\n",
    );
    let mut stalled = server.connect();
    // A search whose filter is 90,000 bytes long.
    let value = "x".repeat(90_000);
    let long = requests::search(
        1,
        "",
        Scope::Base,
        &format!("(|(objectClass=*)(cn={value}))"),
    );
    stalled.send(&long[..50_000]);
    // Until the server has read that, nobody needs the memory that it takes: so others ask again and again. On a slow
    // machine they may be too slow themselves.
    let is_evicted = AtomicBool::new(false);
    let notice = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut waiting = server.connect();
            while !is_evicted.load(Ordering::SeqCst) {
                let is_served = waiting.try_send(&long).is_ok()
                    && waiting.receive().is_some_and(|entry| entry.id == 1)
                    && waiting.receive().is_some_and(|end| end.ends);
                if !is_served {
                    waiting = server.connect();
                }
            }
        });
        let notice = stalled.receive().unwrap();
        is_evicted.store(true, Ordering::SeqCst);
        notice
    });
    assert_eq!((notice.id, notice.code), (0, ResultCode::Unavailable));
    assert!(stalled.receive().is_none());
}

#[test]
fn a_stalled_request_is_left_alone_while_nobody_needs_its_memory() {
    let server = TestServer::with("[limits]\nstalled_seconds_max = 1\n");
    let mut stalled = server.connect();
    let value = "x".repeat(90_000);
    let long = requests::search(
        1,
        "",
        Scope::Base,
        &format!("(|(objectClass=*)(cn={value}))"),
    );
    stalled.send(&long[..50_000]);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    stalled.send(&long[50_000..]);
    assert_eq!(stalled.finish(1).len(), 2);
}
