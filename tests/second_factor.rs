//! One-time passwords as a token of another project shows them, and a server that is killed between two binds.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::message::{AddRequest, Request};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{program, succeeded};
use sapwood_testkit::{Client, SUFFIX, requests};

const KEY: &str = "12345678901234567890";

/// What oathtool shows.
fn shown(arguments: &[&str]) -> String {
    let key: String = KEY.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut oathtool = program("oathtool", "oathtool");
    let output = oathtool.args(arguments).arg(key).output().unwrap();
    succeeded(output).trim().to_owned()
}

fn add(dn: &str, attributes: &[(&str, &[&str])]) -> Vec<u8> {
    let mut list = AttributesBuf::default();
    for (description, values) in attributes {
        let values = values.iter().map(|value| value.as_bytes());
        list.push(description.as_bytes(), values);
    }
    let attributes = list.view();
    requests::message(1, Request::Add(AddRequest { dn, attributes }))
}

/// Somebody's entry, which holds the token and its parameters as well.
fn person(dn: &str, name: &str, own: &[(&str, &[&str])], classes: &[&str]) -> Vec<u8> {
    let classes = [&["person"], classes].concat();
    let common: [(&str, &[&str]); 6] = [
        ("objectClass", &classes),
        ("cn", &[name]),
        ("sn", &["x"]),
        ("userPassword", &["pencil"]),
        ("oathSecret", &[KEY]),
        ("oathOTPLength", &["6"]),
    ];
    add(dn, &[&common, own].concat())
}

#[test]
fn what_a_token_shows_is_accepted_once_also_after_kill_9() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let (ann, bob) = (format!("cn=Ann,{SUFFIX}"), format!("cn=Bob,{SUFFIX}"));
    let mut admin = Client::admin(server.address());
    let domain: [(&str, &[&str]); 2] = [("objectClass", &["domain"]), ("dc", &["example"])];
    admin.tell(&add(SUFFIX, &domain)).succeeded();
    // However slow the machine is, the step is not over.
    let totp: [(&str, &[&str]); 5] = [
        ("oathHMACAlgorithm", &["1.2.840.113549.2.9"]),
        ("oathTOTPTimeStepPeriod", &["30"]),
        ("oathTOTPTimeStepWindow", &["100"]),
        ("oathTOTPParams", &[&ann]),
        ("oathTOTPToken", &[&ann]),
    ];
    let classes = ["oathTOTPUser", "oathTOTPToken", "oathTOTPParams"];
    admin
        .tell(&person(&ann, "Ann", &totp, &classes))
        .succeeded();
    let hotp: [(&str, &[&str]); 4] = [
        ("oathHMACAlgorithm", &["1.2.840.113549.2.7"]),
        ("oathHOTPLookAhead", &["5"]),
        ("oathHOTPParams", &[&bob]),
        ("oathHOTPToken", &[&bob]),
    ];
    let classes = ["oathHOTPUser", "oathHOTPToken", "oathHOTPParams"];
    admin
        .tell(&person(&bob, "Bob", &hotp, &classes))
        .succeeded();
    let overlay: [(&str, &[&str]); 2] = [
        ("objectClass", &["olcOverlayConfig"]),
        ("olcOverlay", &["otp"]),
    ];
    let dn = "olcOverlay=otp,olcDatabase={1}mdb,cn=config";
    admin.tell(&add(dn, &overlay)).succeeded();

    let of_ann = format!("pencil{}", shown(&["--totp=sha256"]));
    let of_bob = format!("pencil{}", shown(&["--counter=3"]));
    let binds = [(&ann, &of_ann), (&bob, &of_bob)];
    for (dn, password) in binds {
        let mut client = Client::connect(server.address());
        client.bind(dn, password).succeeded();
        assert_eq!(client.who_am_i(), format!("dn:{dn}"));
    }
    server.kill();
    let server = folder.serve();
    for (dn, password) in binds {
        let answer = Client::connect(server.address()).bind(dn, password);
        answer.refused(ResultCode::InvalidCredentials, "");
    }
    let next = format!("pencil{}", shown(&["--counter=4"]));
    Client::connect(server.address())
        .bind(&bob, &next)
        .succeeded();
}
