//! Controls that make one small difference to an operation, or none.

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{
    DOMAIN_SCOPE, DONT_USE_COPY, LAZY_COMMIT, MANAGE_DSA_IT, NO_OP, PERMISSIVE_MODIFY,
};
use sapwood_ldap::list::{AttributesBuf, ChangeKind};
use sapwood_ldap::message::{AddRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Client, SUFFIX, TestServer, requests};

fn changed(
    client: &mut Client,
    dn: &str,
    oid: Option<&str>,
    changes: &[requests::Change<'_>],
) -> ResultCode {
    let id = client.id();
    let request = requests::modify(id, dn, changes);
    client.send(&match oid {
        Some(oid) => requests::with(&request, &[(oid, true, None)]),
        None => request,
    });
    client.finish(id).pop().unwrap().code
}

fn values(client: &mut Client, dn: &str, attribute: &str) -> Vec<String> {
    let found = client.search(dn, Scope::Base, "(objectClass=*)");
    let mut values = found[0].values(attribute);
    values.sort();
    values
}

#[test]
fn permissive_modify_passes_over_what_is_there_and_what_is_not() {
    let server = TestServer::start();
    let mut client = server.admin();
    let dn = &format!("cn=a,{SUFFIX}");
    server.add(&[(
        dn,
        &[
            ("objectClass", "person"),
            ("cn", "a"),
            ("sn", "x"),
            ("description", "one"),
        ],
    )]);
    let permissive = Some(PERMISSIVE_MODIFY);
    let add: requests::Change<'_> = (ChangeKind::Add, "description", &["ONE", "two"]);
    let delete: requests::Change<'_> = (ChangeKind::Delete, "description", &["three", "two"]);
    let delete_all: requests::Change<'_> = (ChangeKind::Delete, "telephoneNumber", &[]);
    for (change, code) in [
        (add, ResultCode::AttributeOrValueExists),
        (delete, ResultCode::NoSuchAttribute),
        (delete_all, ResultCode::NoSuchAttribute),
    ] {
        assert_eq!(changed(&mut client, dn, None, &[change]), code);
    }
    assert_eq!(
        changed(&mut client, dn, permissive, &[add]),
        ResultCode::Success
    );
    // As it was written before.
    assert_eq!(values(&mut client, dn, "description"), ["one", "two"]);
    let changes = [delete, delete_all];
    assert_eq!(
        changed(&mut client, dn, permissive, &changes),
        ResultCode::Success
    );
    assert_eq!(values(&mut client, dn, "description"), ["one"]);
    // What else is wrong still is.
    let no_number: requests::Change<'_> = (ChangeKind::Increment, "description", &["1"]);
    let code = changed(&mut client, dn, permissive, &[no_number]);
    assert_eq!(code, ResultCode::ConstraintViolation);
    let name: requests::Change<'_> = (ChangeKind::Delete, "cn", &["a"]);
    let code = changed(&mut client, dn, permissive, &[name]);
    assert_eq!(code, ResultCode::NotAllowedOnRdn);
    let config = "olcDatabase={1}mdb,cn=config";
    let limit: requests::Change<'_> = (ChangeKind::Replace, "olcSizeLimit", &["5"]);
    let code = changed(&mut client, config, permissive, &[limit]);
    assert_eq!(code, ResultCode::UnwillingToPerform);
}

/// Groups of very many members keep them in another way.
#[test]
fn permissive_modify_of_very_many_values() {
    const MEMBERS: usize = 3000;
    let server = TestServer::start();
    let mut client = server.admin();
    let dn = &format!("cn=group,{SUFFIX}");
    let member = |number: usize| format!("cn={number},{SUFFIX}");
    let members: Vec<String> = (0..MEMBERS).map(member).collect();
    let attributes = [
        ("objectClass", "groupOfNames"),
        ("cn", "group"),
        ("member", &members[0]),
    ];
    server.add(&[(dn, &attributes)]);
    let more: Vec<&str> = members[1..].iter().map(String::as_str).collect();
    let add: requests::Change<'_> = (ChangeKind::Add, "member", &more);
    assert_eq!(changed(&mut client, dn, None, &[add]), ResultCode::Success);
    let (there, new) = (member(7), member(MEMBERS));
    let add: requests::Change<'_> = (ChangeKind::Add, "member", &[&there, &new]);
    let permissive = Some(PERMISSIVE_MODIFY);
    assert_eq!(
        changed(&mut client, dn, None, &[add]),
        ResultCode::AttributeOrValueExists
    );
    assert_eq!(
        changed(&mut client, dn, permissive, &[add]),
        ResultCode::Success
    );
    assert_eq!(values(&mut client, dn, "member").len(), MEMBERS + 1);
    let delete: requests::Change<'_> = (ChangeKind::Delete, "member", &[&there, &new]);
    for _ in 0..2 {
        assert_eq!(
            changed(&mut client, dn, permissive, &[delete]),
            ResultCode::Success
        );
        assert_eq!(values(&mut client, dn, "member").len(), MEMBERS - 1);
    }
    assert_eq!(
        changed(&mut client, dn, None, &[delete]),
        ResultCode::NoSuchAttribute
    );
}

#[test]
fn domain_scope_leaves_out_references() {
    let server = TestServer::start();
    let mut client = server.admin();
    let dn = format!("cn=elsewhere,{SUFFIX}");
    let mut attributes = AttributesBuf::default();
    let classes = ["referral", "extensibleObject"];
    attributes.push(b"objectClass", classes.map(str::as_bytes));
    attributes.push(b"cn", [b"elsewhere".as_slice()]);
    attributes.push(b"ref", [b"ldap://other.example/".as_slice()]);
    let id = client.id();
    let add = AddRequest {
        dn: &dn,
        attributes: attributes.view(),
    };
    client.send(&requests::with(
        &requests::message(id, Request::Add(add)),
        &[(MANAGE_DSA_IT, true, None)],
    ));
    client.finish(id)[0].expect(ResultCode::Success);
    let found = |client: &mut Client, filter: &str, oids: &[&str]| {
        let id = client.id();
        let controls: Vec<_> = oids.iter().map(|oid| (*oid, true, None)).collect();
        let search = requests::search(id, SUFFIX, Scope::Subtree, filter);
        client.send(&requests::with(&search, &controls));
        let answers = client.finish(id);
        answers.last().unwrap().expect(ResultCode::Success);
        answers.len() - 1
    };
    for filter in ["(objectClass=*)", "(cn=elsewhere)"] {
        let suffix = usize::from(filter != "(cn=elsewhere)");
        assert_eq!(found(&mut client, filter, &[]), suffix + 1);
        assert_eq!(found(&mut client, filter, &[DOMAIN_SCOPE]), suffix);
        let both = [DOMAIN_SCOPE, MANAGE_DSA_IT];
        assert_eq!(found(&mut client, filter, &both), suffix + 1);
    }
    // What lies there is not here.
    let id = client.id();
    let search = requests::search(id, &dn, Scope::Base, "(objectClass=*)");
    client.send(&requests::with(&search, &[(DOMAIN_SCOPE, true, None)]));
    client.finish(id)[0].expect(ResultCode::Referral);
}

#[test]
fn some_controls_ask_for_what_is_done_anyway() {
    let server = TestServer::start();
    let mut client = server.admin();
    let of_search = [
        (DONT_USE_COPY, ResultCode::Success),
        (LAZY_COMMIT, ResultCode::UnavailableCriticalExtension),
    ];
    for (oid, code) in of_search {
        let id = client.id();
        let search = requests::search(id, SUFFIX, Scope::Base, "(objectClass=*)");
        client.send(&requests::with(&search, &[(oid, true, None)]));
        client.finish(id).pop().unwrap().expect(code);
    }
    let describe: requests::Change<'_> = (ChangeKind::Replace, "description", &["x"]);
    let code = changed(&mut client, SUFFIX, Some(LAZY_COMMIT), &[describe]);
    assert_eq!(code, ResultCode::Success);
    let code = changed(&mut client, SUFFIX, Some(DONT_USE_COPY), &[describe]);
    assert_eq!(code, ResultCode::UnavailableCriticalExtension);
}

#[test]
fn no_op_tells_what_would_become_of_an_update() {
    let server = TestServer::start();
    let mut client = server.admin();
    let dn = format!("cn=a,{SUFFIX}");
    let person = [("objectClass", "person"), ("cn", "a"), ("sn", "x")];
    let no_surname = [("objectClass", "person"), ("cn", "a")];
    let rename = |id| requests::message(id, requests::rename(&dn, "cn=b"));
    let delete = |id| requests::message(id, Request::Delete(&dn));
    let add = |id| requests::add(id, &dn, &person);
    let change: requests::Change<'_> = (ChangeKind::Replace, "sn", &["y"]);
    let modify = |id| requests::modify(id, &dn, &[change]);
    let add_wrongly = |id| requests::add(id, &dn, &no_surname);
    type Asked<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    let mut tried = |request: Asked<'_>, controls: &[(&str, bool, Option<&[u8]>)]| {
        let id = client.id();
        client.send(&requests::with(&request(id), controls));
        client.finish(id).pop().unwrap().code
    };
    let no_op = [(NO_OP, true, None)];
    assert_eq!(
        tried(&add_wrongly, &no_op),
        ResultCode::ObjectClassViolation
    );
    assert_eq!(tried(&delete, &no_op), ResultCode::NoSuchObject);
    assert_eq!(tried(&add, &no_op), ResultCode::NoOperation);
    // It is not there: otherwise this would fail.
    assert_eq!(tried(&add, &[]), ResultCode::Success);
    for request in [&modify as Asked<'_>, &rename, &delete] {
        assert_eq!(tried(request, &no_op), ResultCode::NoOperation);
    }
    let both = [(NO_OP, false, None), (LAZY_COMMIT, true, None)];
    assert_eq!(tried(&delete, &both), ResultCode::NoOperation);
    assert_eq!(values(&mut client, &dn, "sn"), ["x"]);
    let code = changed(&mut client, "cn=config", Some(NO_OP), &[change]);
    assert_eq!(code, ResultCode::UnwillingToPerform);
}
