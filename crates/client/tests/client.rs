//! The client against a server of a few lines, which does what servers seldom do.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sapwood_client::{
    Adder, Client, Connection as ClientConnection, Error, Options, Trust, speaks_lburp,
};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::extended::*;
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::{Attributes, AttributesBuf};
use sapwood_ldap::message::*;
use sapwood_ldap::result::{LdapResult, ResultCode};
use sapwood_testkit::scripted::{self, Answers, Connection};
use sha2::{Digest, Sha256};

async fn client(
    script: impl FnMut(&RequestMessage<'_>, &mut Answers) + Clone + Send + 'static,
) -> Client {
    let url = scripted::serve(script);
    Client::connect(&url, &Options::default()).await.unwrap()
}

fn succeed(message: &RequestMessage<'_>, out: &mut Answers) {
    out.succeed(message);
}

fn everything() -> SearchRequest<'static> {
    SearchRequest::new("dc=example", Scope::Subtree, Filter::OBJECT_CLASS_PRESENT)
}

#[tokio::test]
async fn every_operation_gets_its_result() {
    let client = client(|message, out| {
        let result = match message.op {
            Request::Compare(compare) if compare.assertion.value == b"yes" => {
                LdapResult::new(ResultCode::CompareTrue, "")
            }
            Request::Compare(_) => LdapResult::new(ResultCode::CompareFalse, ""),
            Request::Delete("cn=gone") => {
                LdapResult::new(ResultCode::NoSuchObject, "no").matched("dc=example")
            }
            _ => LdapResult::SUCCESS,
        };
        out.end(message, result);
    })
    .await;
    client.bind("cn=admin", b"secret").await.unwrap();
    client.bind_external().await.unwrap();
    let mut attributes = AttributesBuf::default();
    attributes.push(b"cn", [&b"a"[..]]);
    client.add("cn=a", attributes.view()).await.unwrap();
    client.modify("cn=a", Default::default()).await.unwrap();
    assert!(client.compare("cn=a", "cn", b"yes").await.unwrap());
    assert!(!client.compare("cn=a", "cn", b"no").await.unwrap());
    let rename = ModifyDnRequest {
        dn: "cn=a",
        new_rdn: "cn=b",
        delete_old_rdn: true,
        new_superior: None,
    };
    client.modify_dn(rename).await.unwrap();
    assert_eq!(client.extended("1.2.3", None).await.unwrap(), None);
    client.delete("cn=b").await.unwrap();
    let error = client.delete("cn=gone").await.unwrap_err();
    assert_eq!(error.code(), Some(ResultCode::NoSuchObject));
    assert_eq!(
        error.to_string(),
        "noSuchObject (32): no, matched dc=example"
    );
}

#[tokio::test]
async fn answers_out_of_order_reach_who_asked() {
    // Holds back all answers until ten requests are there, then gives them in reverse.
    let mut held: Vec<(u32, String)> = Vec::new();
    let client = client(move |message, out| {
        let Request::Delete(dn) = message.op else {
            panic!("{message:?}")
        };
        held.push((message.id, dn.to_owned()));
        if held.len() == 10 {
            for (id, dn) in held.drain(..).rev() {
                out.put(id, Response::Delete(LdapResult::new(ResultCode::Busy, &dn)));
            }
        }
    })
    .await;
    let tasks = (0..10).map(|n| {
        let client = client.clone();
        tokio::spawn(async move {
            let dn = format!("cn={n}");
            let error = client.delete(&dn).await.unwrap_err();
            assert_eq!(error.to_string(), format!("busy (51): {dn}"));
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_search_streams_entries_up_to_its_result() {
    let client = client(|message, out| {
        out.entry(message.id, "cn=1", Attributes::EMPTY);
        // A response to a request that was never sent.
        out.entry(4711, "cn=lost", Attributes::EMPTY);
        out.entry(message.id, "cn=2", Attributes::EMPTY);
        out.end(message, LdapResult::new(ResultCode::SizeLimitExceeded, ""));
    })
    .await;
    let mut results = client.search(everything(), Controls::EMPTY).unwrap();
    for expected in ["cn=1", "cn=2"] {
        let reply = results.next().await.unwrap().unwrap();
        let message = reply.message().unwrap();
        assert!(matches!(message.op, Response::SearchEntry(entry) if entry.dn == expected));
    }
    assert_eq!(
        results.next().await.unwrap_err().code(),
        Some(ResultCode::SizeLimitExceeded)
    );
    assert!(results.next().await.is_err());
}

#[tokio::test]
async fn a_search_that_is_dropped_is_abandoned() {
    let (seen, mut abandoned) = tokio::sync::mpsc::unbounded_channel();
    let client = client(move |message, out| match message.op {
        Request::Search(_) => out.entry(message.id, "cn=1", Attributes::EMPTY),
        Request::Abandon(id) => seen.send(id).unwrap(),
        _ => out.succeed(message),
    })
    .await;
    let mut results = client.search(everything(), Controls::EMPTY).unwrap();
    let reply = results.next().await.unwrap().unwrap();
    let id = reply.message().unwrap().id;
    drop(results);
    assert_eq!(abandoned.recv().await, Some(id));
    client.delete("cn=1").await.unwrap();
}

#[tokio::test]
async fn a_notice_of_disconnection_fails_what_is_under_way() {
    let client = client(|_, out| {
        let result = LdapResult::new(ResultCode::Unavailable, "going down");
        let notice = ExtendedResponse {
            result,
            name: Some(NOTICE_OF_DISCONNECTION),
            value: None,
        };
        out.put(0, Response::Extended(notice));
    })
    .await;
    // The one under way, and the one after.
    for _ in 0..2 {
        let error = client.delete("cn=1").await.unwrap_err();
        assert!(
            matches!(&error, Error::Disconnected(error) if error.diagnostic == "going down"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_goes_or_talks_nonsense_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldap://{}", listener.local_addr().unwrap());
    let options = Options {
        message_bytes_max: 1000,
        ..Options::default()
    };
    for nonsense in [
        &b""[..],
        b"220 smtp.example.com ESMTP",
        &[0x30, 0x84, 0x7f, 0xff, 0xff, 0xff],
    ] {
        let client = Client::connect(&url, &options).await.unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(nonsense).unwrap();
        drop(socket);
        assert!(client.delete("cn=1").await.is_err());
    }
    drop(listener);
    assert!(matches!(
        Client::connect(&url, &options).await,
        Err(Error::Io(_))
    ));
}

#[tokio::test]
async fn a_burst_longer_than_all_buffers_does_not_block_both_sides() {
    const REQUESTS: u32 = 200_000;
    let url = scripted::serve(succeed);
    let mut connection = ClientConnection::open(&url, &Options::default())
        .await
        .unwrap();
    let mut burst = Vec::new();
    for id in 1..=REQUESTS {
        let op = Request::Delete("cn=one,dc=example,dc=com");
        Message {
            id,
            op,
            controls: Controls::EMPTY,
        }
        .encode(&mut burst);
    }
    connection.send(&burst).await.unwrap();
    for id in 1..=REQUESTS {
        let message = ResponseMessage::decode(connection.receive().await.unwrap()).unwrap();
        assert_eq!(message.id, id);
    }
    assert!(connection.received().unwrap().is_none());
}

struct Identity {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

impl Identity {
    fn new() -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
        Identity {
            config: Arc::new(config),
            certificate: cert.der().clone(),
        }
    }

    fn fingerprint(&self) -> Trust {
        Trust::Fingerprint(Sha256::digest(&self.certificate).into())
    }

    fn authority(&self) -> Trust {
        Trust::Authorities(vec![self.certificate.clone()])
    }
}

/// Speaks TLS from the first byte, or when the client asks for it with its first request.
fn start_tls_and_serve(socket: TcpStream, config: Arc<ServerConfig>) {
    let mut first = [0];
    if socket.peek(&mut first).unwrap() == 0 {
        return;
    }
    if first[0] == 0x30 {
        Connection::new(&socket).answer(|message, out| {
            assert!(
                matches!(message.op, Request::Extended(extended) if extended.name == START_TLS)
            );
            out.succeed(message);
        });
    }
    let tls = ServerConnection::new(config).unwrap();
    Connection::new(StreamOwned::new(tls, socket)).serve(succeed);
}

#[tokio::test]
async fn ldaps_and_start_tls_need_a_server_that_is_trusted() {
    let identity = Identity::new();
    let stranger = Identity::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = identity.config.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, config) = (socket.unwrap(), config.clone());
            std::thread::spawn(move || start_tls_and_serve(socket, config));
        }
    });
    for (scheme, start_tls) in [("ldaps", false), ("ldap", true)] {
        let url = format!("{scheme}://127.0.0.1:{port}");
        for trust in [identity.fingerprint(), identity.authority()] {
            let options = Options {
                trust,
                start_tls,
                ..Options::default()
            };
            let client = Client::connect(&url, &options).await.unwrap();
            client.bind("cn=admin", b"secret").await.unwrap();
        }
        for trust in [stranger.fingerprint(), stranger.authority(), Trust::Nobody] {
            let options = Options {
                trust,
                start_tls,
                ..Options::default()
            };
            let error = Client::connect(&url, &options).await.unwrap_err();
            assert!(matches!(error, Error::Tls(_)), "{error:?}");
        }
    }
}

#[tokio::test]
async fn plain_text_behind_the_answer_to_start_tls_is_refused() {
    let identity = Identity::new();
    let options = Options {
        trust: identity.fingerprint(),
        start_tls: true,
        ..Options::default()
    };
    let url = scripted::serve(|message, out| {
        out.succeed(message);
        out.entry(2, "cn=slipped in", Attributes::EMPTY);
    });
    let error = Client::connect(&url, &options).await.unwrap_err();
    assert!(
        matches!(&error, Error::Tls(reason) if reason.contains("plain text")),
        "{error:?}"
    );

    let url = scripted::serve(|message, out| {
        out.end(message, LdapResult::new(ResultCode::ProtocolError, "no"))
    });
    let error = Client::connect(&url, &options).await.unwrap_err();
    assert_eq!(error.code(), Some(ResultCode::ProtocolError));
}

#[tokio::test]
async fn ldapi_goes_to_a_local_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || Connection::new(listener.accept().unwrap().0).serve(succeed));
    let url = format!("ldapi://{}", path.to_str().unwrap().replace('/', "%2F"));
    let client = Client::connect(&url, &Options::default()).await.unwrap();
    client.bind_external().await.unwrap();
}

#[tokio::test]
async fn the_last_client_to_go_says_goodbye() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldap://{}", listener.local_addr().unwrap());
    let server =
        std::thread::spawn(move || Connection::new(listener.accept().unwrap().0).serve(succeed));
    let client = Client::connect(&url, &Options::default()).await.unwrap();
    let other = client.clone();
    drop(client);
    // The connection is still there, until it has nobody left.
    other.delete("cn=1").await.unwrap();
    drop(other);
    let unbound = tokio::task::spawn_blocking(|| server.join().unwrap()).await;
    assert!(unbound.unwrap());
}

/// Answers the requests of a bulk update: of the first request one operation is there already and one has no parent
/// yet, the second one is refused as a whole, and the others succeed.
fn consume(message: &RequestMessage<'_>, out: &mut Answers) {
    let Request::Extended(request) = message.op else {
        let mut attributes = AttributesBuf::default();
        let oids = [START_LBURP, END_LBURP, LBURP_UPDATE].map(str::as_bytes);
        attributes.push(b"supportedExtension", oids);
        attributes.push(b"supportedFeatures", [LBURP_INCREMENTAL.as_bytes()]);
        out.entry(message.id, "", attributes.view());
        return out.succeed(message);
    };
    let (mut code, mut value) = (ResultCode::Success, Vec::new());
    let sent = request.value.unwrap();
    match request.name {
        START_LBURP => {
            let start = StartLburp::decode(sent).unwrap();
            assert_eq!(start.update_style, LBURP_INCREMENTAL);
            put_max_operations(&mut value, 2);
        }
        LBURP_UPDATE => {
            let update = LburpUpdate::decode(sent).unwrap();
            let operations = update.operations.iter().map(Result::unwrap).count();
            assert_eq!(operations, [2, 2, 1][update.sequence_number as usize - 1]);
            if update.sequence_number == 1 {
                code = ResultCode::UnknownError;
                let mut results = OperationResultsBuf::default();
                results.push(2, &LdapResult::new(ResultCode::EntryAlreadyExists, ""));
                results.push(1, &LdapResult::new(ResultCode::NoSuchObject, ""));
                results.encode(&mut value);
            } else if update.sequence_number == 2 {
                code = ResultCode::ProtocolError;
            }
        }
        _ => assert_eq!(EndLburp::decode(sent).unwrap().sequence_number, 4),
    }
    let response = ExtendedResponse {
        result: LdapResult::new(code, ""),
        name: None,
        value: (!value.is_empty()).then_some(&value),
    };
    out.put(message.id, Response::Extended(response));
}

#[tokio::test]
async fn additions_of_a_bulk_update_are_told_apart() {
    let url = scripted::serve(consume);
    let mut connection = ClientConnection::open(&url, &Options::default())
        .await
        .unwrap();
    assert!(speaks_lburp(&mut connection).await.unwrap());
    let mut adder = Adder::new(connection, 100);
    adder.start_lburp().await.unwrap();
    for (number, dn) in (0..).zip(["o=a", "o=b", "o=c", "o=d"]) {
        adder.add((0, number), dn, Attributes::EMPTY).await.unwrap();
    }
    adder.settle().await.unwrap();
    let refused: Vec<_> = adder
        .take_refused()
        .into_iter()
        .map(|refused| (refused.position.1, refused.error.code))
        .collect();
    assert_eq!(
        refused,
        [
            (1, ResultCode::EntryAlreadyExists),
            (2, ResultCode::ProtocolError),
            (3, ResultCode::ProtocolError)
        ]
    );
    assert!(adder.has_waiting() && adder.added() == 0);
    adder.send_waiting().await.unwrap();
    adder.settle().await.unwrap();
    adder.end().await.unwrap();
    assert_eq!((adder.added(), adder.take_refused().len()), (1, 0));
}

#[tokio::test]
async fn a_server_that_takes_no_bulk_update_gets_additions() {
    let url = scripted::serve(|message, out| {
        let result = match message.op {
            Request::Extended(_) => LdapResult::new(ResultCode::ProtocolError, "unknown"),
            _ => LdapResult::SUCCESS,
        };
        out.end(message, result);
    });
    let mut connection = ClientConnection::open(&url, &Options::default())
        .await
        .unwrap();
    assert!(!speaks_lburp(&mut connection).await.unwrap());
    let mut adder = Adder::new(connection, 10);
    let refused = adder.start_lburp().await.unwrap_err();
    assert_eq!(refused.code(), Some(ResultCode::ProtocolError));
    adder.add((0, 0), "o=a", Attributes::EMPTY).await.unwrap();
    adder.settle().await.unwrap();
    adder.end().await.unwrap();
    assert_eq!(adder.added(), 1);
}
