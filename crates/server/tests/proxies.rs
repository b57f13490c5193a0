//! Where connections come from and come in: proxies that say for whom they connect, and rules about sockets.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{ADMIN, Client, PASSWORD, SUFFIX, TestServer, tls_client};

/// Connections from 127.0.0.2 are a proxy's, and others are not.
const LISTEN: &str = "listen = [\
    { url = 'ldap://127.0.0.1:0', proxies = ['127.0.0.2/31', '2001:db8::/32'] }, \
    { url = 'ldaps://127.0.0.1:0', proxies = ['127.0.0.2'] }]";
const PROXY: [u8; 4] = [127, 0, 0, 2];
const NO_PROXY: [u8; 4] = [127, 0, 0, 4];

/// A header of the PROXY protocol for a client with an IPv4 address.
fn header(client: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(client);
    header.extend([127, 0, 0, 1, 0x12, 0x34, 1, 133]);
    header
}

fn through_proxy(server: &TestServer, listener: usize, client: [u8; 4]) -> TcpStream {
    let mut stream = server.tcp_from(PROXY, listener);
    stream.write_all(&header(client)).unwrap();
    stream
}

/// Whether somebody finds the entry of the naming context.
fn finds(client: &mut Client) -> bool {
    client.search(SUFFIX, Scope::Base, "(objectClass=*)").len() == 2
}

/// Sees that a connection ends without an answer.
fn is_refused(mut stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    // It may be reset, as something of it was not read.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
}

#[test]
fn a_client_has_the_address_that_its_proxy_tells() {
    let mut server = TestServer::listening(LISTEN, "[log]\naccess_file = 'access.log'");
    let rule = "to * by peername.ip=192.0.2.1{4660} read by * none";
    server.configure(&[(Replace, "olcAccess", &[rule])]);
    let mut told = Client::new(through_proxy(&server, 0, [192, 0, 2, 1]));
    assert!(finds(&mut told));
    let tls = tls_client(through_proxy(&server, 1, [192, 0, 2, 1]));
    assert!(finds(&mut Client::new(tls)));
    let mut other = Client::new(through_proxy(&server, 0, [192, 0, 2, 2]));
    assert!(!finds(&mut other));
    // The proxy itself, as it looks whether the server lives.
    let mut own = server.tcp_from(PROXY, 0);
    own.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").unwrap();
    assert!(!finds(&mut Client::new(own)));
    server.stop();
    let lines = std::fs::read_to_string(server.path("access.log")).unwrap();
    let address = r#""address":"192.0.2.1:4660","proxy":"127.0.0.2""#;
    assert!(lines.contains(address), "{lines}");
}

#[test]
fn who_is_no_proxy_is_not_believed_and_a_proxy_has_to_tell() {
    let server = TestServer::listening(LISTEN, "");
    let mut direct = server.tcp_from(NO_PROXY, 0);
    direct.write_all(&header([192, 0, 2, 1])).unwrap();
    let mut answer = Vec::new();
    let _ = direct.read_to_end(&mut answer);
    // The notice of disconnection, and nothing else: it was no LDAP message.
    assert!(
        answer.is_empty() || answer.starts_with(b"\x30"),
        "{answer:?}"
    );
    assert!(finds(&mut {
        let mut client = Client::new(server.tcp_from(NO_PROXY, 0));
        client.bind(ADMIN, PASSWORD).succeeded();
        client
    }));
    let mut silent = server.tcp_from(PROXY, 0);
    silent.write_all(b"\x30\x0c\x02\x01\x01").unwrap();
    is_refused(silent);
    let mut short = server.tcp_from(PROXY, 0);
    short.write_all(&header([192, 0, 2, 1])[..20]).unwrap();
    is_refused(short);
}

#[test]
fn a_password_through_a_proxy_leaves_the_machine_if_the_client_or_the_proxy_is_elsewhere() {
    let server = TestServer::listening(LISTEN, "");
    let mut elsewhere = Client::new(through_proxy(&server, 0, [192, 0, 2, 1]));
    elsewhere
        .bind(ADMIN, PASSWORD)
        .expect(ResultCode::ConfidentialityRequired);
    let mut near = Client::new(through_proxy(&server, 0, [127, 0, 0, 9]));
    near.bind(ADMIN, PASSWORD).succeeded();
}

#[test]
fn rules_tell_sockets_from_each_other() {
    let server = TestServer::start();
    let path = server.path("ldapi.sock");
    let path = path.display();
    let port = server.port(0);
    let local_url = "ldapi://".to_owned() + &path.to_string().replace('/', "%2F");
    // Who is meant: over TCP, over TLS, over the local socket.
    for (who, meant) in [
        (format!("peername.path={path}"), [false, false, true]),
        ("peername.path=/run/other".to_owned(), [false; 3]),
        ("peername.regex=^PATH=/".to_owned(), [false, false, true]),
        (
            format!("sockname=ip=127.0.0.1:{port}"),
            [true, false, false],
        ),
        (format!("sockname.regex=:{port}$$"), [true, false, false]),
        (format!("sockname=PATH={path}"), [false, false, true]),
        ("sockname=*".to_owned(), [true; 3]),
        (
            format!("sockurl=ldap://127.0.0.1:{port}"),
            [true, false, false],
        ),
        ("sockurl.regex=^ldaps://".to_owned(), [false, true, false]),
        (format!("sockurl=\"{local_url}\""), [false, false, true]),
        ("sockurl.expand=ldap://$1".to_owned(), [false; 3]),
    ] {
        let rule = format!("to dn.regex=\"^(dc=example),\" by {who} read by * none");
        server.configure(&[(Replace, "olcAccess", &[&rule])]);
        let clients = [
            server.connect(),
            server.connect_tls(),
            server.connect_local(),
        ];
        let found = clients.map(|mut client| finds(&mut client));
        assert_eq!(found, meant, "{rule}");
    }
}
