//! Get User Resource Limits: what a bind tells of the limits of who has bound.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{GET_USER_RESOURCE_LIMITS, GET_USER_RESOURCE_LIMITS_RESPONSE};
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_testkit::{ADMIN, PASSWORD, TestServer, requests};

/// `secret`.
const STORED: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
const ANN: &str = "cn=ann,dc=example,dc=com";

#[test]
fn a_bind_tells_the_limits_of_who_has_bound() {
    let server = TestServer::with("[limits]\nidle_seconds_max = 90\n");
    let ann = [
        ("objectClass", "person"),
        ("sn", "a"),
        ("userPassword", STORED),
    ];
    server.add(&[(ANN, &ann)]);
    server.configure(&[
        (Replace, "olcSizeLimit", &["500"]),
        (Replace, "olcTimeLimit", &["60"]),
        (
            Replace,
            "olcLimits",
            &["users size.soft=5 size.hard=7 size.unchecked=300"],
        ),
    ]);
    let told = |dn: &str, password: &str, asks: bool| {
        let mut client = server.connect();
        let op = requests::simple_bind(dn, password.as_bytes());
        let control = (GET_USER_RESOURCE_LIMITS, true, None);
        let controls = [control];
        let answer = client.ask_with(op, if asks { &controls } else { &[] });
        answer.succeeded();
        let mut controls = answer.controls.into_iter();
        let found = controls.find(|(oid, _)| oid == GET_USER_RESOURCE_LIMITS_RESPONSE);
        found.map(|(_, value)| value)
    };
    let of_ann = b"\x30\x0d\x80\x01\x07\x81\x01\x3c\x82\x01\x5a\x83\x02\x01\x2c";
    assert_eq!(told(ANN, "secret", true).as_deref(), Some(&of_ann[..]));
    let of_admin = b"\x30\x0c\x80\x01\x00\x81\x01\x00\x82\x01\x5a\x83\x01\x00";
    assert_eq!(told(ADMIN, PASSWORD, true).as_deref(), Some(&of_admin[..]));
    assert_eq!(told(ANN, "secret", false), None);
}
