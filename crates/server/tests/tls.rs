//! Which certificate a client is shown, and which versions and ciphers are spoken.

#![allow(clippy::unwrap_used)]

use rcgen::{CertificateParams, KeyPair};
use rustls::{ALL_VERSIONS, NamedGroup, ProtocolVersion, SupportedProtocolVersion, version};
use sapwood_testkit::{Client, TestServer, TlsStream, tls_client_asking};

/// A handshake of a client that asks for a name, over `ldaps://`.
fn connect(
    server: &TestServer,
    name: &'static str,
    versions: &[&'static SupportedProtocolVersion],
) -> Option<TlsStream> {
    let stream = server.tcp_from([127, 0, 0, 1], 1);
    let mut tls = tls_client_asking(stream, name, versions, None);
    tls.conn.complete_io(&mut tls.sock).ok()?;
    Some(tls)
}

#[test]
fn a_client_is_shown_the_certificate_that_has_the_name_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let made = |file: &str, name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let path = folder.path().join(file);
        std::fs::write(&path, certificate.pem() + &key.serialize_pem()).unwrap();
        (path.display().to_string(), certificate.der().to_vec())
    };
    let (one, of_one) = made("one.pem", "directory.example.org");
    let (other, of_other) = made("other.pem", "*.example.net");
    let server = TestServer::with(&format!("[tls]\ncertificates = ['{one}', '{other}']"));
    let shown = |name| {
        let tls = connect(&server, name, ALL_VERSIONS).unwrap();
        let chain = tls.conn.peer_certificates().unwrap().to_vec();
        // It is the one that goes with the key, or the handshake would not have come to its end.
        assert_eq!(
            Client::new(tls).root_dse().values("namingContexts").len(),
            1
        );
        chain[0].to_vec()
    };
    assert_eq!(shown("directory.example.org"), of_one);
    assert_eq!(shown("a.example.net"), of_other);
    let own = shown("localhost");
    assert!(own != of_one && own != of_other);
    for unknown in ["example.org", "a.b.example.net", "example.net", "127.0.0.1"] {
        assert_eq!(shown(unknown), own, "{unknown}");
    }
}

#[test]
fn older_versions_are_refused_where_that_is_asked_for() {
    let strict = TestServer::with("[tls]\nmin_version = '1.3'");
    assert!(connect(&strict, "localhost", &[&version::TLS12]).is_none());
    let tls = connect(&strict, "localhost", ALL_VERSIONS).unwrap();
    assert_eq!(tls.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let usual = TestServer::start();
    let tls = connect(&usual, "localhost", &[&version::TLS12]).unwrap();
    assert_eq!(tls.conn.protocol_version(), Some(ProtocolVersion::TLSv1_2));
}

#[test]
fn ciphers_are_those_that_are_named_the_first_before_the_others() {
    let wanted = "['TLS_CHACHA20_POLY1305_SHA256', 'TLS_AES_256_GCM_SHA384']";
    let server = TestServer::with(&format!("[tls]\ncipher_suites = {wanted}"));
    let tls = connect(&server, "localhost", ALL_VERSIONS).unwrap();
    let suite = tls.conn.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite.as_str(), Some("TLS13_CHACHA20_POLY1305_SHA256"));
    assert!(connect(&server, "localhost", &[&version::TLS12]).is_none());
}

/// Who records a connection today and has a quantum computer later cannot read it; an older client gets what it knows.
#[test]
fn keys_are_exchanged_so_that_quantum_computers_do_not_find_them() {
    let server = TestServer::start();
    let group = |versions: &[&'static SupportedProtocolVersion]| {
        let tls = connect(&server, "localhost", versions).unwrap();
        tls.conn.negotiated_key_exchange_group().unwrap().name()
    };
    assert_eq!(group(ALL_VERSIONS), NamedGroup::X25519MLKEM768);
    assert_eq!(group(&[&version::TLS12]), NamedGroup::X25519);
}
