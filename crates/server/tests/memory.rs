//! What the server keeps in memory. A test binary of its own: other tests in the same process would be measured with it.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;

use sapwood_ldap::message::{Request, Scope};
use support::{SUFFIX, TestServer, message, search_request};

#[test]
fn many_unread_scans_take_bounded_memory() {
    let server = TestServer::start();
    server.add_people(2000, 1000);
    let mut client = server.admin();
    let before = anonymous_bytes();
    let mut writer = server.tcp();
    writer.set_nonblocking(true).unwrap();
    let bind = {
        use sapwood_ldap::message::{Authentication, BindRequest};
        let authentication = Authentication::Simple(support::PASSWORD);
        message(
            1,
            Request::Bind(BindRequest {
                version: 3,
                name: support::ADMIN,
                authentication,
            }),
        )
    };
    writer.write_all(&bind).unwrap();
    // More than a gigabyte of answers is asked for; nobody reads.
    let scan = search_request(2, SUFFIX, Scope::Subtree, "(objectClass=*)", &[]);
    for _ in 0..1000 {
        if writer.write_all(&scan).is_err() {
            break;
        }
    }
    // Other connections are served all the while.
    for _ in 0..20 {
        assert_eq!(
            client.search(SUFFIX, Scope::Base, "(objectClass=*)").len(),
            2
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let grown = anonymous_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
}

/// Memory of this process that no file backs, in bytes.
fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}
