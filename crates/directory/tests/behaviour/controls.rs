//! Assertion, pre-read and post-read on updates, searches and comparisons.

use crate::made::peopled;
use sapwood_directory::{CompareOptions, Identity, Outcome, UpdateRequest};
use sapwood_ldap::controls::{ASSERTION, Controls, POST_READ, PRE_READ, ReadEntry};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::Replace;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Scope, SearchResultEntry};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;

use crate::query::{query, search};

const ANNE: &str = "uid=anne,ou=People,dc=example,dc=com";

/// The request with controls by OID: those with a filter assert, the others read the attributes named.
fn controlled(request: UpdateRequest, list: &[(&str, &str)]) -> UpdateRequest {
    let value = |oid: &str, text: &str| {
        let mut value = Vec::new();
        if oid == ASSERTION {
            let filter = filter_text::parse(text).unwrap();
            value.extend_from_slice(filter.as_filter().as_ber());
        } else {
            let names = OctetStringsBuf::from_iter(text.split_whitespace().map(str::as_bytes));
            let attributes = names.view();
            ReadEntry { attributes }.encode(&mut value);
        }
        value
    };
    let values = list.iter().map(|(oid, text)| value(oid, text));
    let values: Vec<Vec<u8>> = values.collect();
    let controls = list.iter().zip(&values);
    let controls: Vec<_> = controls
        .map(|((oid, _), value)| (*oid, true, Some(value.as_slice())))
        .collect();
    with(request, &controls)
}

fn asserting(filter: &str) -> [(&str, &str); 1] {
    [(ASSERTION, filter)]
}

/// The entry in a response control, as `dn|attribute=value,value|...`.
fn entry(outcome: &Outcome, oid: &str) -> String {
    let controls = Controls::from_ber(&outcome.controls).unwrap();
    let control = controls.find(oid).unwrap();
    let entry = SearchResultEntry::from_ber(control.value.unwrap()).unwrap();
    let mut text = entry.dn.to_owned();
    for attribute in entry.attributes.iter() {
        let description = String::from_utf8_lossy(attribute.description).into_owned();
        let values: Vec<_> = attribute
            .values
            .iter()
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .collect();
        text += &format!("|{description}={}", values.join(","));
    }
    text
}

fn set_cn(value: &str) -> UpdateRequest {
    modify(ANNE, &[(Replace, "cn", &[value])])
}

#[test]
fn an_update_takes_place_only_when_its_assertion_is_true() {
    let directory = peopled();
    for false_one in ["(cn=somebody else)", "(nonsense=x)", "(!(nonsense=x))"] {
        let controls = asserting(false_one);
        for request in [
            set_cn("new"),
            rename(ANNE, "uid=berta", true, None),
            delete(ANNE),
            person("carl"),
        ] {
            let outcome = refused(
                &directory,
                controlled(request, &controls),
                ResultCode::AssertionFailed,
            );
            assert!(outcome.controls.is_empty());
        }
    }
    assert!(holds(&directory, ANNE, "cn", "Person anne"));
    assert!(!exists(&directory, "uid=carl,ou=People,dc=example,dc=com"));
    // Of an add, the target is the entry that it makes.
    succeed(
        &directory,
        controlled(
            person("carl"),
            &asserting("(&(cn=person carl)(objectClass=top)(entryUUID=*))"),
        ),
    );
    succeed(
        &directory,
        controlled(set_cn("x"), &asserting("(cn=person*)")),
    );
    // In one batch each sees what those before it did.
    let both = [
        as_admin(controlled(set_cn("y"), &asserting("(cn=x)"))),
        as_admin(controlled(set_cn("z"), &asserting("(cn=x)"))),
    ];
    let applied = directory.apply(&both).unwrap();
    let codes: Vec<_> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    assert_eq!(codes, [ResultCode::Success, ResultCode::AssertionFailed]);
    sapwood_directory::Ticket::wait(applied.ticket.unwrap()).unwrap();
    succeed(
        &directory,
        controlled(
            rename(ANNE, "uid=berta", true, None),
            &asserting("(entryDN=uid=anne,ou=people,dc=example,dc=com)"),
        ),
    );
    succeed(
        &directory,
        controlled(
            delete("uid=berta,ou=People,dc=example,dc=com"),
            &asserting("(&(uid=berta)(cn=y))"),
        ),
    );
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
}

#[test]
fn pre_read_shows_what_was_and_post_read_what_is() {
    let directory = peopled();
    let both = [
        (PRE_READ, "cn uid"),
        (POST_READ, "cn modifiersName entryDN"),
    ];
    let outcome = apply(&directory, controlled(set_cn("Anne B"), &both));
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    assert_eq!(
        entry(&outcome, PRE_READ),
        format!("{ANNE}|uid=anne|cn=Person anne")
    );
    assert_eq!(
        entry(&outcome, POST_READ),
        format!("{ANNE}|cn=Anne B|modifiersName=cn=admin,dc=example,dc=com|entryDN={ANNE}")
    );
    let outcome = apply(
        &directory,
        controlled(rename(ANNE, "uid=berta", true, None), &both),
    );
    let berta = "uid=berta,ou=People,dc=example,dc=com";
    assert_eq!(
        entry(&outcome, PRE_READ),
        format!("{ANNE}|uid=anne|cn=Anne B")
    );
    assert!(
        entry(&outcome, POST_READ).starts_with(&format!("{berta}|cn=Anne B|")),
        "{}",
        entry(&outcome, POST_READ)
    );
    // An update that fails shows nothing.
    let outcome = refused(
        &directory,
        controlled(modify(berta, &[(Replace, "cn", &[])]), &[(PRE_READ, "cn")]),
        ResultCode::ObjectClassViolation,
    );
    assert!(outcome.controls.is_empty());
    let outcome = apply(&directory, controlled(delete(berta), &[(PRE_READ, "*")]));
    assert!(entry(&outcome, PRE_READ).contains("|sn=anne"));
    let outcome = apply(
        &directory,
        controlled(person("carl"), &[(POST_READ, "1.1")]),
    );
    assert_eq!(
        entry(&outcome, POST_READ),
        "uid=carl,ou=People,dc=example,dc=com"
    );
}

#[test]
fn read_entry_controls_go_with_the_operations_that_have_the_entry() {
    let directory = peopled();
    let code = ResultCode::UnavailableCriticalExtension;
    refused(
        &directory,
        controlled(person("x"), &[(PRE_READ, "*")]),
        code,
    );
    refused(
        &directory,
        controlled(delete(ANNE), &[(POST_READ, "*")]),
        code,
    );
    // Twice, without a value, with one that is none.
    let twice = [(PRE_READ, "cn"), (PRE_READ, "sn")];
    refused(
        &directory,
        controlled(delete(ANNE), &twice),
        ResultCode::ProtocolError,
    );
    for value in [None, Some(b"".as_slice()), Some(b"\x30\x05\x04")] {
        for oid in [ASSERTION, PRE_READ] {
            refused(
                &directory,
                with(delete(ANNE), &[(oid, false, value)]),
                ResultCode::ProtocolError,
            );
        }
    }
}

#[test]
fn users_see_through_controls_what_they_may_read() {
    let directory = peopled();
    succeed(
        &directory,
        modify(ANNE, &[(Replace, "userPassword", &["{SSHA}first"])]),
    );
    let snapshot = directory.snapshot().unwrap();
    let user = Identity::User {
        entry: snapshot
            .through(|snapshot| snapshot.credentials(ANNE, usize::MAX))
            .unwrap()
            .unwrap()
            .entry,
        dn: ANNE.into(),
    };
    let change = || modify(ANNE, &[(Replace, "userPassword", &["{SSHA}second"])]);
    let read = [
        (PRE_READ, "userPassword uid"),
        (POST_READ, "* userPassword"),
    ];
    let outcome = apply_as(&directory, user.clone(), controlled(change(), &read));
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    assert_eq!(entry(&outcome, PRE_READ), format!("{ANNE}|uid=anne"));
    assert!(!entry(&outcome, POST_READ).contains("userPassword"));
    let outcome = apply(&directory, controlled(change(), &read));
    assert!(entry(&outcome, PRE_READ).contains("|userPassword={SSHA}second"));
    // Nor does an assertion find out about it.
    let guess = [(ASSERTION, "(userPassword={SSHA}second)")];
    let outcome = apply_as(&directory, user, controlled(change(), &guess));
    assert_eq!(outcome.code, ResultCode::AssertionFailed);
    assert_eq!(
        apply(&directory, controlled(change(), &guess)).code,
        ResultCode::Success
    );
}

#[test]
fn searches_and_comparisons_assert_on_their_base() {
    let directory = peopled();
    let search = |base: &str, filter: &str| {
        let mut query = query(base, Scope::Base, "(objectClass=*)");
        query.options.assertion = Some(filter_text::parse(filter).unwrap());
        let found = search(&directory, &query);
        (found.code, !found.entries.is_empty())
    };
    let (success, failed) = (
        (ResultCode::Success, true),
        (ResultCode::AssertionFailed, false),
    );
    assert_eq!(search(ANNE, "(sn=anne)"), success);
    assert_eq!(search(ANNE, "(sn=berta)"), failed);
    assert_eq!(search("", "(supportedLDAPVersion=*)"), success);
    assert_eq!(search("", "(supportedControl=*)"), failed);
    assert_eq!(search("cn=Subschema", "(objectClass=subschema)"), success);
    assert_eq!(search("cn=Subschema", "(cn=x)"), failed);
    let compared = |filter: &str| {
        let filter = filter_text::parse(filter).unwrap();
        let options = CompareOptions {
            assertion: Some(filter.as_filter()),
            ..CompareOptions::default()
        };
        compare(&directory, ANNE, "uid", "anne", options).code
    };
    assert_eq!(compared("(sn=anne)"), ResultCode::CompareTrue);
    assert_eq!(compared("(sn=berta)"), ResultCode::AssertionFailed);
}

#[test]
fn an_assertion_may_not_hold_up_the_writer() {
    let directory = peopled();
    let values: Vec<String> = (0..2000).map(|number| format!("value {number}")).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    succeed(
        &directory,
        modify(ANNE, &[(Replace, "description", &values)]),
    );
    let assert = |items: usize| {
        let filter = format!("(!(|{}))", "(description=*q*)".repeat(items));
        let changes: [(_, &str, &[&str]); 1] = [(Replace, "title", &["x"])];
        let modify = modify(ANNE, &changes);
        apply(&directory, controlled(modify, &[(ASSERTION, &filter)])).code
    };
    assert_eq!(assert(10), ResultCode::Success);
    assert_eq!(assert(10_000), ResultCode::AdminLimitExceeded);
}
