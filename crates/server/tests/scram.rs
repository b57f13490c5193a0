//! SCRAM: binds without sending the password, bound to the TLS connection or not.

#![allow(clippy::unwrap_used)]

use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sapwood_ldap::extended::{PASSWORD_MODIFY, PasswordModify, START_TLS};
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{
    Authentication, BindRequest, Frame, Request, Response, ResponseMessage, Scope, frame,
};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::message;
use sapwood_testkit::{SUFFIX, TestServer, TlsStream, requests, tls_client_with};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};

const ANN: &str = "cn=Ann,dc=example,dc=com";

/// A server that keeps verifiers, and Ann, whose password came in clear text.
fn with_ann() -> TestServer {
    let server = TestServer::start();
    keep_verifiers(&server);
    let person = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", "pencil"),
    ];
    let mut admin = server.admin();
    admin.tell(&requests::add(800, ANN, &person)).succeeded();
    server
}

fn keep_verifiers(server: &TestServer) {
    let schemes = ["{ARGON2} {SCRAM-SHA-256}"];
    server.configure(&[(ChangeKind::Replace, "sapwoodPasswordSchemes", &schemes)]);
}

/// One end of a bind in several requests.
struct Binding<S> {
    stream: S,
    id: u32,
}

impl<S: Read + Write> Binding<S> {
    fn new(stream: S) -> Self {
        Self { stream, id: 0 }
    }

    /// What the server answers to a message of a mechanism.
    fn say(&mut self, mechanism: &str, credentials: &str) -> (ResultCode, String) {
        self.id += 1;
        let authentication = Authentication::Sasl {
            mechanism,
            credentials: Some(credentials.as_bytes()),
        };
        let bind = BindRequest {
            version: 3,
            name: "",
            authentication,
        };
        let answer = self.ask(&message(self.id, Request::Bind(bind)));
        let answer = ResponseMessage::decode(&answer).unwrap();
        let Response::Bind(answer) = answer.op else {
            panic!("{answer:?}");
        };
        let told = answer.server_sasl_credentials.unwrap_or_default();
        (
            answer.result.code,
            String::from_utf8(told.to_vec()).unwrap(),
        )
    }

    /// The answer to a request.
    fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.stream.write_all(request).unwrap();
        self.stream.flush().unwrap();
        let mut received = Vec::new();
        loop {
            if let Frame::Complete(length) = frame(&received, 1 << 20).unwrap() {
                received.truncate(length);
                return received;
            }
            let mut piece = [0; 4096];
            let count = self.stream.read(&mut piece).unwrap();
            assert_ne!(count, 0, "the connection was closed");
            received.extend_from_slice(&piece[..count]);
        }
    }

    /// Binds as a client does, and checks that the server knows the verifier, too.
    fn scram(&mut self, name: &str, password: &str, header: &str, binding: &[u8]) -> ResultCode {
        let mechanism = match header.starts_with("p=") {
            true => "SCRAM-SHA-256-PLUS",
            false => "SCRAM-SHA-256",
        };
        let name = name.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={name},r=client");
        let (code, first) = self.say(mechanism, &format!("{header}{bare}"));
        if code != ResultCode::SaslBindInProgress {
            return code;
        }
        let value = |key: &str| {
            let mut parts = first.split(',');
            parts.find_map(|part| part.strip_prefix(key)).unwrap()
        };
        let (nonce, salt) = (value("r="), Base64::decode_vec(value("s=")).unwrap());
        assert!(nonce.starts_with("client") && nonce.len() > 20);
        let mut salted = [0; 32];
        let iterations = value("i=").parse().unwrap();
        pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, iterations, &mut salted);
        let bound = Base64::encode_string(&[header.as_bytes(), binding].concat());
        let unproved = format!("c={bound},r={nonce}");
        let exchange = format!("{bare},{first},{unproved}");
        let client_key = hmac(&salted, b"Client Key");
        let signature = hmac(&Sha256::digest(&client_key), exchange.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(signature)
            .map(|(one, other)| one ^ other)
            .collect();
        let proof = Base64::encode_string(&proof);
        let (code, last) = self.say(mechanism, &format!("{unproved},p={proof}"));
        if code == ResultCode::Success {
            let own = hmac(&hmac(&salted, b"Server Key"), exchange.as_bytes());
            assert_eq!(last, format!("v={}", Base64::encode_string(&own)));
        }
        code
    }
}

fn hmac(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).unwrap();
    mac.update(bytes);
    mac.finalize().into_bytes().to_vec()
}

fn bind(server: &TestServer, name: &str, password: &str) -> ResultCode {
    Binding::new(server.tcp()).scram(name, password, "n,,", b"")
}

#[test]
fn who_knows_the_password_is_bound() {
    let server = with_ann();
    for name in ["dn:cn=Ann,dc=example,dc=com", "CN=ann, dc=example,dc=com"] {
        assert_eq!(bind(&server, name, "pencil"), ResultCode::Success);
    }
    assert_eq!(
        bind(&server, ANN, "pencil "),
        ResultCode::InvalidCredentials
    );
    assert_eq!(
        bind(&server, "cn=Bob,dc=example,dc=com", "pencil"),
        ResultCode::InvalidCredentials
    );
    assert_eq!(
        bind(&server, "u:ann", "pencil"),
        ResultCode::InvalidCredentials
    );
    // She is who she says, and a bind that begins again leaves nothing of the one before.
    let mut binding = Binding::new(server.tcp());
    let mechanism = "SCRAM-SHA-256";
    let (code, _) = binding.say(mechanism, "n,,n=cn=3DBob,r=x");
    assert_eq!(code, ResultCode::SaslBindInProgress);
    let (code, _) = binding.say(mechanism, "c=biws,r=x,p=AAAA");
    assert_eq!(code, ResultCode::InvalidCredentials);
    assert_eq!(
        binding.scram(ANN, "pencil", "n,,", b""),
        ResultCode::Success
    );
    let mut client = sapwood_testkit::Client::new(binding.stream);
    assert_eq!(client.who_am_i(), format!("dn:{ANN}"));
    for (header, code) in [
        (
            "n,a=dn:cn=3DAnn=2Cdc=3Dexample=2Cdc=3Dcom,",
            ResultCode::Success,
        ),
        (
            "n,a=dn:cn=3DBob=2Cdc=3Dexample=2Cdc=3Dcom,",
            ResultCode::InvalidCredentials,
        ),
        ("y,,", ResultCode::Success),
        ("p=tls-exporter,,", ResultCode::InvalidCredentials),
        ("x,,", ResultCode::ProtocolError),
    ] {
        let mut binding = Binding::new(server.tcp());
        assert_eq!(binding.scram(ANN, "pencil", header, b""), code, "{header}");
    }
}

#[test]
fn what_is_kept_of_a_password_goes_with_it_and_is_seen_by_nobody() {
    let server = with_ann();
    let mut admin = server.admin();
    let mut kept = || {
        let answers = admin.search(ANN, Scope::Base, "(objectClass=*)");
        answers[0].values("authPassword")
    };
    let first = kept();
    assert_eq!(first.len(), 1);
    assert!(first[0].starts_with("SCRAM-SHA-256$16384:"), "{first:?}");
    let mut ann = server.connect();
    ann.bind(ANN, "pencil").succeeded();
    let seen = ann.search(ANN, Scope::Base, "(objectClass=*)");
    assert!(seen[0].values("authPassword").is_empty());
    assert_eq!(ann.search(ANN, Scope::Base, "(authPassword=*)").len(), 1);
    // She sets another password, in three ways.
    let change = [(ChangeKind::Replace, "userPassword", ["one"].as_slice())];
    ann.tell(&requests::modify(900, ANN, &change)).succeeded();
    assert_eq!(bind(&server, ANN, "one"), ResultCode::Success);
    assert_eq!(bind(&server, ANN, "pencil"), ResultCode::InvalidCredentials);
    assert_ne!(kept(), first);
    let value = PasswordModify {
        user_identity: None,
        old_password: Some(b"one"),
        new_password: Some(b"two"),
    };
    let mut encoded = Vec::new();
    value.encode(&mut encoded);
    ann.extended(PASSWORD_MODIFY, Some(&encoded)).succeeded();
    assert_eq!(bind(&server, ANN, "two"), ResultCode::Success);
    assert_eq!(kept().len(), 1);
    // A hash from elsewhere says nothing that SCRAM could use.
    let hash = ["{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA=="];
    ann.tell(&requests::modify(
        901,
        ANN,
        &[(ChangeKind::Replace, "userPassword", &hash)],
    ))
    .succeeded();
    assert_eq!(bind(&server, ANN, "two"), ResultCode::InvalidCredentials);
    assert!(kept().is_empty());
    let mut admin = server.admin();
    let change = [(ChangeKind::Replace, "userPassword", ["three"].as_slice())];
    admin.tell(&requests::modify(902, ANN, &change)).succeeded();
    assert_eq!(kept().len(), 1);
    admin
        .tell(&requests::modify(
            903,
            ANN,
            &[(ChangeKind::Delete, "userPassword", &[])],
        ))
        .succeeded();
    assert!(kept().is_empty());
}

#[test]
fn no_verifiers_are_kept_unless_they_are_asked_for() {
    let server = TestServer::start();
    let person = [
        ("objectClass", "person"),
        ("sn", "x"),
        ("userPassword", "pencil"),
    ];
    let mut admin = server.admin();
    admin.tell(&requests::add(800, ANN, &person)).succeeded();
    let answers = admin.search(ANN, Scope::Base, "(objectClass=*)");
    assert!(answers[0].values("authPassword").is_empty());
    assert_eq!(bind(&server, ANN, "pencil"), ResultCode::InvalidCredentials);
}

#[test]
fn names_that_nobody_has_get_a_salt_that_stays() {
    let server = with_ann();
    let salt = |name: &str| {
        let name = name.replace('=', "=3D").replace(',', "=2C");
        let mut binding = Binding::new(server.tcp());
        let (code, first) = binding.say("SCRAM-SHA-256", &format!("n,,n={name},r=x"));
        assert_eq!(code, ResultCode::SaslBindInProgress);
        let (_, salt) = first.split_once(",s=").unwrap();
        salt.to_owned()
    };
    let (ann, bob) = (salt(ANN), salt("cn=Bob,dc=example,dc=com"));
    assert_eq!(bob, salt("CN=bob, dc=example, dc=com"));
    assert_ne!(bob, salt(&format!("cn=Carl,{SUFFIX}")));
    assert_ne!(bob, ann);
    assert_eq!(ann, salt(ANN));
    // Salt and iterations look alike.
    assert_eq!(ann.len(), bob.len());
    assert!(ann.ends_with(",i=16384") && bob.ends_with(",i=16384"));
}

/// The salt was that of the entry that a name was found to be, so that another name of hers told that she was there.
#[test]
fn a_name_that_is_searched_for_has_a_salt_of_its_own() {
    let server = with_ann();
    let regexps = [
        "^uid=mapped-([^,]*),cn=[^,]*,cn=auth$ cn=$1,dc=example,dc=com",
        "^uid=([^,]*),cn=[^,]*,cn=auth$ ldap:///dc=example,dc=com??one?(|(cn=$1)(sn=$1))",
    ];
    let change = [(ChangeKind::Add, "olcAuthzRegexp", regexps.as_slice())];
    let mut admin = server.admin();
    admin
        .tell(&requests::modify(910, "cn=config", &change))
        .succeeded();
    // Bob has no verifier.
    let bob = "cn=Bob,dc=example,dc=com";
    let person = [("objectClass", "person"), ("sn", "bobson")];
    admin.tell(&requests::add(911, bob, &person)).succeeded();
    let salt = |name: &str| {
        let name = name.replace('=', "=3D").replace(',', "=2C");
        let mut binding = Binding::new(server.tcp());
        let (code, first) = binding.say("SCRAM-SHA-256", &format!("n,,n={name},r=x"));
        assert_eq!(code, ResultCode::SaslBindInProgress);
        let (_, salt) = first.split_once(",s=").unwrap();
        salt.to_owned()
    };
    assert_eq!(salt("ann"), salt(ANN));
    let names = [
        "bob",
        "bobson",
        "carl",
        bob,
        "uid=bob,cn=scram-sha-256,cn=auth",
    ];
    for (at, name) in names.iter().enumerate() {
        assert_eq!(salt(name), salt(&name.to_uppercase()), "{name}");
        for other in &names[at + 1..] {
            assert_ne!(salt(name), salt(other), "{name} and {other}");
        }
    }
    // A name that stands for a DN without a search has its salt, whether there is an entry or not.
    for name in ["bob", "carl"] {
        let dn = format!("cn={name},{SUFFIX}");
        assert_eq!(salt(&format!("mapped-{name}")), salt(&dn), "{name}");
    }
    let before = salt("bobson");
    admin.ask(Request::Delete(bob)).succeeded();
    assert_eq!(salt("bobson"), before);
    // In a mechanism with channel binding it is the same, as a verifier would be.
    let mut bound = Binding::new(over_tls(&server, rustls::ALL_VERSIONS));
    let first = "p=tls-exporter,,n=bobson,r=x";
    let (code, first) = bound.say("SCRAM-SHA-256-PLUS", first);
    assert_eq!(code, ResultCode::SaslBindInProgress);
    assert!(first.ends_with(&before), "{first} {before}");
}

/// A connection over TLS whose handshake is over.
fn over_tls(
    server: &TestServer,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> TlsStream {
    let mut stream = tls_client_with(server.tcp_from([127, 0, 0, 1], 1), versions, None);
    stream.conn.complete_io(&mut stream.sock).unwrap();
    stream
}

#[test]
fn a_bind_is_bound_to_its_connection() {
    let server = with_ann();
    let exporter = |stream: &TlsStream| {
        let label = b"EXPORTER-Channel-Binding";
        stream
            .conn
            .export_keying_material([0; 32], label, Some(&[]))
            .unwrap()
    };
    let stream = over_tls(&server, rustls::ALL_VERSIONS);
    let own = exporter(&stream);
    let mut binding = Binding::new(stream);
    let header = "p=tls-exporter,,";
    assert_eq!(
        binding.scram(ANN, "pencil", header, &own),
        ResultCode::Success
    );
    // What binds one connection does not bind another: somebody in between has two.
    let mut other = Binding::new(over_tls(&server, rustls::ALL_VERSIONS));
    assert_eq!(
        other.scram(ANN, "pencil", header, &own),
        ResultCode::InvalidCredentials
    );
    let certificate = other.stream.conn.peer_certificates().unwrap()[0].clone();
    let end_point = Sha256::digest(&certificate);
    let header = "p=tls-server-end-point,,";
    assert_eq!(
        other.scram(ANN, "pencil", header, &end_point),
        ResultCode::Success
    );
    assert_eq!(
        other.scram(ANN, "pencil", header, &own),
        ResultCode::InvalidCredentials
    );
    // Here the client can tell that it was not told of -PLUS.
    assert_eq!(
        other.scram(ANN, "pencil", "y,,", b""),
        ResultCode::InvalidCredentials
    );
    assert_eq!(other.scram(ANN, "pencil", "n,,", b""), ResultCode::Success);
    // TLS 1.2 need not have a unique one.
    let mut older = Binding::new(over_tls(&server, &[&rustls::version::TLS12]));
    let material = exporter(&older.stream);
    assert_eq!(
        older.scram(ANN, "pencil", "p=tls-exporter,,", &material),
        ResultCode::InvalidCredentials
    );
    assert_eq!(
        older.scram(ANN, "pencil", header, &end_point),
        ResultCode::Success
    );
}

/// RFC 4511 §4.14.1: not in the middle of a negotiation.
#[test]
fn start_tls_waits_for_the_end_of_a_bind() {
    let server = with_ann();
    let mut binding = Binding::new(server.tcp());
    let name = format!(
        "n,,n={},r=client",
        ANN.replace('=', "=3D").replace(',', "=2C")
    );
    let (code, _) = binding.say("SCRAM-SHA-256", &name);
    assert_eq!(code, ResultCode::SaslBindInProgress);
    let answer = binding.ask(&requests::extended(2, START_TLS, None));
    let answer = ResponseMessage::decode(&answer).unwrap();
    let Response::Extended(answer) = answer.op else {
        panic!("{answer:?}");
    };
    assert_eq!(answer.result.code, ResultCode::OperationsError);
}

/// A one-time password cannot come with it.
#[test]
fn who_has_a_second_factor_has_no_verifier() {
    let server = with_ann();
    let mut admin = server.admin();
    let token = "cn=token,dc=example,dc=com";
    let changes = [
        (ChangeKind::Add, "objectClass", &["oathTOTPUser"][..]),
        (ChangeKind::Add, "oathTOTPToken", &[token][..]),
    ];
    admin
        .tell(&requests::modify(801, ANN, &changes))
        .succeeded();
    assert_eq!(bind(&server, ANN, "pencil"), ResultCode::Success);
    let overlay = [("objectClass", "olcOverlayConfig"), ("olcOverlay", "otp")];
    let dn = "olcOverlay=otp,olcDatabase={1}mdb,cn=config";
    admin.tell(&requests::add(802, dn, &overlay)).succeeded();
    assert_eq!(bind(&server, ANN, "pencil"), ResultCode::InvalidCredentials);
}
