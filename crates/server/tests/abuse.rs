//! Somebody who wants to stop the server, beside an honest client: what the one keeps, and what the other gets all the
//! same.
//!
//! The attackers go on until the honest client has been served: where the server once made it wait for them to give up
//! or to be closed, fewer connections than expected are left.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use sapwood_ldap::extended::{NOTICE_OF_DISCONNECTION, START_TLS, WHO_AM_I};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::{ChangeKind, OctetStringsBuf};
use sapwood_ldap::message::{AddRequest, Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_server::password;
use sapwood_testkit::requests::message;
use sapwood_testkit::{Client, SUFFIX, TestServer, requests, tls_client};

const ATTACKER: [u8; 4] = [127, 0, 0, 2];
const HONEST: [u8; 4] = [127, 0, 0, 1];

fn connections(server: &TestServer) -> usize {
    server.server.as_ref().unwrap().connections()
}

/// The whole answer to a search that finds the root DSE, of a request with so many bytes more.
fn expect_search(client: &mut Client, bytes: usize) {
    client.send(&long_search(7, bytes));
    assert_eq!(client.finish(7).len(), 2);
}

fn long_search(id: u32, bytes: usize) -> Vec<u8> {
    let value = "x".repeat(bytes);
    let filter = format!("(|(objectClass=*)(cn={value}))");
    requests::search(id, "", Scope::Base, &filter)
}

fn who_am_i(id: u32) -> Vec<u8> {
    requests::extended(id, WHO_AM_I, None)
}

/// Sends the start of a request that will never be complete, and waits until the server has begun to read it.
fn send_start(client: &mut Client, request: &[u8], bytes: usize) {
    client.send(&[who_am_i(6).as_slice(), &request[..bytes]].concat());
    client.finish(6)[0].succeeded();
}

#[test]
fn silent_connections_do_not_keep_others_from_tls() {
    let server = TestServer::start();
    for address in [ATTACKER, HONEST] {
        let mut silent: Vec<TcpStream> = (0..30).map(|_| server.tcp_from(address, 1)).collect();
        for _ in 0..30 {
            let mut client = Client::new(server.tcp_from(address, 0));
            client.extended(START_TLS, None).succeeded();
            silent.push(server.tcp_from(address, 1));
            // Half of a handshake keeps nobody out either.
            let hello = b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03";
            silent.last_mut().unwrap().write_all(hello).unwrap();
        }
        let mut honest = Client::new(tls_client(server.tcp_from(HONEST, 1)));
        expect_search(&mut honest, 10);
        let mut stream = server.tcp_from(HONEST, 0);
        stream.write_all(&start_tls()).unwrap();
        let mut client = Client::new(stream.try_clone().unwrap());
        client.finish(1)[0].succeeded();
        expect_search(&mut Client::new(tls_client(stream)), 10);
        assert!(connections(&server) >= 60, "the silent ones have gone");
    }
}

fn start_tls() -> Vec<u8> {
    requests::extended(1, START_TLS, None)
}

#[test]
fn a_handshake_has_its_length_and_its_time() {
    let lines = Lines::collect();
    let server = TestServer::with("[limits]\nhandshake_seconds_max = 1\n");
    let mut expected = Vec::new();
    let mut ends = |bytes: &[u8], reason| {
        let stream = server.tcp_from(HONEST, 1);
        let who = format!("peer={} ", stream.local_addr().unwrap());
        let mut client = Client::new(stream);
        // It may have ended before all is sent.
        let _ = client.try_send(bytes);
        while client.receive_raw() {}
        expected.push(("INFO", who, reason));
    };
    // A client's hello of 60,000 bytes, in records of 16 KiB.
    let mut hello = b"\x01\x00\xea\x60\x03\x03".to_vec();
    hello.resize(60_004, b'x');
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&b"\x16\x03\x01"[..], &length, part].concat()
    };
    let records: Vec<u8> = hello.chunks(16 << 10).flat_map(record).collect();
    ends(&records, "longer than 36864 bytes");
    ends(&records[..10], "handshake_seconds_max");
    ends(&records[..20_000], "handshake_seconds_max");
    lines.expect(server, &expected);
}

#[test]
fn anonymous_requests_that_arrive_slowly_do_not_keep_others_waiting() {
    let server = TestServer::start();
    for address in [ATTACKER, HONEST] {
        let request = long_search(9, 250_000);
        let mut slow: Vec<Client> = (0..8)
            .map(|_| Client::new(server.tcp_from(address, 0)))
            .collect();
        for client in &mut slow {
            send_start(client, &request, 20_000);
        }
        let mut honest = Client::new(server.tcp_from(HONEST, 0));
        for bytes in [10, 2_000, 20_000, 100_000, 250_000] {
            expect_search(&mut honest, bytes);
        }
        for client in &mut slow {
            client.send(&request[20_000..]);
            assert_eq!(client.finish(9).len(), 2, "nobody had to give way");
        }
    }
}

#[test]
fn a_users_slow_long_requests_do_not_keep_others_waiting() {
    let server = TestServer::start();
    let hash = String::from_utf8(password::hash(b"slow")).unwrap();
    let user = format!("cn=slow,{SUFFIX}");
    let attributes = [
        ("objectClass", "person"),
        ("cn", "slow"),
        ("sn", "x"),
        ("userPassword", hash.as_str()),
    ];
    server.add(&[(user.as_str(), &attributes)]);
    let mut honest = server.admin();
    let add = |id, name: &str, bytes| {
        let description = "x".repeat(bytes);
        let attributes = [
            ("objectClass", "person"),
            ("cn", name),
            ("sn", "x"),
            ("description", &description),
        ];
        requests::add(id, &format!("cn={name},{SUFFIX}"), &attributes)
    };
    let request = add(9, "x", 3_900_000);
    let mut slow: Vec<Client> = (0..4)
        .map(|_| Client::new(server.tcp_from(ATTACKER, 0)))
        .collect();
    for client in &mut slow {
        client.bind(&user, b"slow").succeeded();
        send_start(client, &request, 40_000);
    }
    for (id, bytes) in [(10, 10), (11, 20_000), (12, 1_000_000), (13, 3_900_000)] {
        honest.send(&add(id, &format!("p{id}"), bytes));
        honest.finish(id)[0].succeeded();
    }
    assert_eq!(connections(&server), 5, "nobody had to give way");
}

fn person(name: &str) -> [(&str, &str); 3] {
    [("objectClass", "person"), ("cn", name), ("sn", "x")]
}

/// With a group of 650,000 members one added member took two seconds, in which nobody else's update went on.
#[test]
fn a_users_slow_updates_do_not_keep_others_waiting() {
    // So many wait at once at most, and less than others leave of the memory for them.
    const UPDATES: u32 = 6;
    let server = TestServer::start();
    server.configure(&[(
        ChangeKind::Replace,
        "olcAccess",
        &["to * by users write by anonymous auth"],
    )]);
    let hash = String::from_utf8(password::hash(b"slow")).unwrap();
    let user = format!("cn=slow,{SUFFIX}");
    let attributes = [&person("slow")[..], &[("userPassword", &hash)]].concat();
    server.add(&[(user.as_str(), &attributes)]);
    let mut slow = Client::new(server.tcp_from(ATTACKER, 0));
    slow.bind(&user, b"slow").succeeded();
    let mut honest = server.admin();
    let values: Vec<String> = (0..15_000)
        .map(|number| format!("{number} is one"))
        .collect();
    let long = |id, name: &str| {
        let mut list = requests::attributes(&person(name));
        list.push(b"description", values.iter().map(String::as_bytes));
        let op = AddRequest {
            dn: &format!("cn={name},{SUFFIX}"),
            attributes: list.view(),
        };
        message(id, Request::Add(op))
    };
    let mut number_of = {
        let mut reader = server.admin();
        move |name: &str| {
            let attributes = OctetStringsBuf::from_iter([b"entryCSN".as_slice()]);
            let dn = format!("cn={name},{SUFFIX}");
            let request = SearchRequest {
                attributes: attributes.view(),
                ..SearchRequest::new(&dn, Scope::Base, Filter::OBJECT_CLASS_PRESENT)
            };
            let found = reader.ask_all(Request::Search(request), &[]);
            found[0].values("entryCSN").remove(0)
        }
    };
    // Those that waited before it may be done before it comes, but not each time.
    for round in 0..20 {
        let last = format!("last{round}");
        let names = (1..UPDATES).map(|number| format!("p{round}-{number}"));
        let names = names.chain([last.clone()]);
        let adds = (1..).zip(names).flat_map(|(id, name)| long(id, &name));
        slow.send(&[adds.collect(), who_am_i(99)].concat());
        let mut answered = 0;
        // This shows that they have been taken in.
        while slow.receive().unwrap().id != 99 {
            answered += 1;
        }
        let name = format!("honest{round}");
        let add = requests::add(9, &format!("cn={name},{SUFFIX}"), &person(&name));
        honest.tell(&add).succeeded();
        for id in answered + 1..=UPDATES {
            slow.finish(id)[0].succeeded();
        }
        if number_of(&name) < number_of(&last) {
            return;
        }
    }
    panic!("it waited for all that came before it");
}

#[test]
fn slow_requests_give_way_where_there_is_no_memory_besides_theirs() {
    let server = TestServer::with("[limits]\nmessage_bytes_max_anonymous = 1048576\n");
    let request = long_search(9, 1_000_000);
    let mut slow = Client::new(server.tcp_from(ATTACKER, 0));
    // All but its last bytes have come, as far as the server reads on.
    send_start(&mut slow, &request, 900_000);
    let mut honest = Client::new(server.tcp_from(HONEST, 0));
    expect_search(&mut honest, 800_000);
    expect_disconnection(&mut slow, ResultCode::Unavailable, "slowly");
}

#[test]
fn idle_anonymous_connections_make_room_for_who_comes() {
    let server = TestServer::with("[limits]\nconnections_max = 20\n");
    let mut bound = server.admin();
    // An address with many has all places but an eighth.
    let idle = (0..17).map(|_| {
        let mut client = Client::new(server.tcp_from(ATTACKER, 0));
        client.who_am_i();
        client
    });
    let mut idle: Vec<Client> = idle.collect();
    let honest = (0..3).map(|_| {
        let mut client = Client::new(server.tcp_from(HONEST, 0));
        assert_eq!(client.who_am_i(), "");
        client
    });
    let _honest: Vec<Client> = honest.collect();
    // One of the same address does not take the place of one that has just come, but of one that has waited.
    let admitted = loop {
        let mut another = Client::new(server.tcp_from(ATTACKER, 0));
        let search = requests::search(1, "", Scope::Base, "(objectClass=*)");
        if another.try_send(&search).is_ok() && another.receive().is_some_and(|told| told.id == 1) {
            break another;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    for displaced in idle.drain(..2) {
        let mut displaced = displaced;
        let code = ResultCode::Unavailable;
        expect_disconnection(&mut displaced, code, "connections_max");
    }
    drop(admitted);
    assert!(!bound.who_am_i().is_empty(), "a bound connection stays");
}

#[test]
fn silent_connections_to_tls_make_room_for_who_comes() {
    let server = TestServer::with("[limits]\nconnections_max = 20\n");
    while connections(&server) > 0 {
        std::thread::yield_now();
    }
    // An address with many has all places but an eighth.
    let silent: Vec<TcpStream> = (0..18).map(|_| server.tcp_from(ATTACKER, 1)).collect();
    while connections(&server) < 18 {
        std::thread::yield_now();
    }
    let honest = (0..3).map(|_| {
        let mut client = Client::new(server.tcp_from(HONEST, 0));
        assert_eq!(client.who_am_i(), "");
        client
    });
    assert_eq!(honest.collect::<Vec<_>>().len(), 3);
    drop(silent);
}

/// The last that a client is told before its connection ends.
#[track_caller]
fn expect_disconnection(client: &mut Client, code: ResultCode, diagnostic: &str) {
    let notice = client.receive().expect("a notice before the end");
    assert_eq!((notice.id, notice.code), (0, code), "{notice:?}");
    assert_eq!(notice.name.as_deref(), Some(NOTICE_OF_DISCONNECTION));
    assert!(notice.diagnostic.contains(diagnostic), "{notice:?}");
    assert!(client.receive().is_none(), "the connection stays open");
}

#[test]
fn who_sends_more_than_is_allowed_is_told_and_so_is_the_operator() {
    let lines = Lines::collect();
    let server = TestServer::start();
    let (mut client, who) = client_of(&server, 0);
    // More than the server has read by the time it answers, so that it has to read on, and so little that it has done
    // so in time on a slow machine.
    let description = "x".repeat(8 << 20);
    let request = requests::add(9, SUFFIX, &[("description", &description)]);
    let bytes = format!("{} bytes", request.len());
    let request = &request[..1 << 20];
    client.send(request);
    expect_disconnection(&mut client, ResultCode::ProtocolError, &bytes);

    let mut client = server.connect();
    client.send(request);
    let limit = "262144 (limits.message_bytes_max_anonymous";
    expect_disconnection(&mut client, ResultCode::ProtocolError, limit);
    let mut client = server.admin();
    client.send(request);
    let limit = "4194304 (limits.message_bytes_max)";
    expect_disconnection(&mut client, ResultCode::ProtocolError, limit);
    let mut client = server.connect_tls();
    client.send(request);
    expect_disconnection(&mut client, ResultCode::ProtocolError, "262144");
    lines.expect(server, &[("WARN", who, bytes.as_str())]);
}

#[test]
fn each_connection_that_the_server_closes_is_logged() {
    let lines = Lines::collect();
    let server = TestServer::with("[limits]\nconnections_max = 3\n");
    let mut expected = Vec::new();
    let (mut client, who) = client_of(&server, 0);
    client.send(&long_search(9, 300_000));
    expect_disconnection(&mut client, ResultCode::ProtocolError, "300");
    drop(client);
    expected.push(("WARN", who, "message_bytes_max_anonymous"));

    let (mut client, who) = client_of(&server, 0);
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    expect_disconnection(&mut client, ResultCode::ProtocolError, "");
    drop(client);
    expected.push(("INFO", who, "LDAPMessage"));

    let (mut client, who) = client_of(&server, 1);
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    while client.receive_raw() {}
    expected.push(("INFO", who, "TLS was not established"));

    while connections(&server) > 0 {
        std::thread::yield_now();
    }
    let mut bound: Vec<Client> = (0..3).map(|_| server.admin()).collect();
    let (mut refused, who) = client_of(&server, 0);
    expect_disconnection(&mut refused, ResultCode::Unavailable, "connections_max");
    expected.push(("WARN", who, "connections_max"));
    bound.iter_mut().for_each(|client| drop(client.who_am_i()));
    lines.expect(server, &expected);

    let impatient = TestServer::with("[limits]\nidle_seconds_max = 1\n");
    let (mut client, who) = client_of(&impatient, 0);
    let code = ResultCode::TimeLimitExceeded;
    expect_disconnection(&mut client, code, "idle_seconds_max");
    lines.expect(impatient, &[("INFO", who, "idle_seconds_max")]);
}

/// A client of the listener with this number, and how the log names it.
fn client_of(server: &TestServer, listener: usize) -> (Client, String) {
    let stream = server.tcp_from(HONEST, listener);
    let who = format!("peer={} ", stream.local_addr().unwrap());
    (Client::new(stream), who)
}

/// What all servers of this process log.
struct Lines;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Lines {
    fn collect() -> Self {
        static SET: Once = Once::new();
        SET.call_once(|| tracing::subscriber::set_global_default(Collector).unwrap());
        Self
    }

    /// Checks that a server has logged lines of a level about somebody. It has ended by then: clients may learn before
    /// the log that they were closed.
    #[track_caller]
    fn expect(&self, server: TestServer, expected: &[(&str, String, &str)]) {
        drop(server);
        let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        for (level, who, text) in expected {
            let is_it = |line: &String| {
                line.starts_with(level) && format!("{line} ").contains(who) && line.contains(text)
            };
            assert!(lines.iter().any(is_it), "no line of {who}with '{text}'");
        }
    }
}

/// Keeps each event's level and fields as a line.
struct Collector;

impl tracing::Subscriber for Collector {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("sapwood")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!(" {field}={value:?}"));
            }
        }
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
