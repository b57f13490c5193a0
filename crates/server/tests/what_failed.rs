//! What failed (draft-masarati-ldap-whatfailed).

#![allow(clippy::unwrap_used)]

use sapwood_ldap::controls::{
    ASSERTION, PAGED_RESULTS, PRE_READ, SORT_REQUEST, WHAT_FAILED, what_failed,
};
use sapwood_ldap::filter_text;
use sapwood_ldap::message::{ExtendedRequest, Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::Control;
use sapwood_testkit::{Answer, SUFFIX, TestServer};

const ASKS: Control<'static> = (WHAT_FAILED, false, None);
const UNKNOWN: &str = "1.2.3.4";

/// The OIDs that a response names.
fn named(answer: &Answer) -> Vec<String> {
    let mut controls = answer.controls.iter();
    let control = controls.find(|(oid, _)| oid == WHAT_FAILED);
    let oids = control.map(|(_, value)| what_failed(value).unwrap());
    oids.into_iter().flatten().map(str::to_owned).collect()
}

#[test]
fn controls_that_are_refused_are_named() {
    let server = TestServer::start();
    let mut client = server.admin();
    let unavailable = ResultCode::UnavailableCriticalExtension;
    let unknown = (UNKNOWN, true, None);
    let misplaced = (PRE_READ, true, None);
    let malformed = (PAGED_RESULTS, false, Some(b"x".as_slice()));
    let long = "1.".repeat(1000) + "1";
    for (controls, code, expected) in [
        (&[unknown][..], unavailable, &[][..]),
        (&[ASKS], ResultCode::Success, &[]),
        (&[ASKS, unknown], unavailable, &[UNKNOWN]),
        (
            &[unknown, ASKS, misplaced],
            unavailable,
            &[UNKNOWN, PRE_READ],
        ),
        (
            &[malformed, ASKS, unknown],
            ResultCode::ProtocolError,
            &[PAGED_RESULTS, UNKNOWN],
        ),
        (&[(UNKNOWN, false, None), ASKS], ResultCode::Success, &[]),
        (&[ASKS, (&long, true, None)], unavailable, &[]),
        // It is one of them itself.
        (
            &[(WHAT_FAILED, false, Some(b"x"))],
            ResultCode::ProtocolError,
            &[],
        ),
    ] {
        let filter = filter_text::parse("(objectClass=*)").unwrap();
        let search = SearchRequest::new(SUFFIX, Scope::Base, filter.as_filter());
        let answer = client.ask_with(Request::Search(search), controls);
        assert_eq!(answer.code, code, "{controls:?}");
        assert_eq!(named(&answer), expected, "{controls:?}");
    }
}

#[test]
fn what_an_error_comes_from_is_named() {
    let server = TestServer::start();
    let mut client = server.admin();
    let filter = filter_text::parse("(cn=nobody)").unwrap();
    let filter = filter.as_filter();
    let assertion = (ASSERTION, true, Some(filter.as_ber()));
    let failed = ResultCode::AssertionFailed;
    let search = Request::Search(SearchRequest::new(SUFFIX, Scope::Base, filter));
    for op in [search, Request::Delete(SUFFIX)] {
        let answer = client.ask_with(op, &[assertion, ASKS]);
        assert_eq!(
            (answer.code, named(&answer)),
            (failed, vec![ASSERTION.to_owned()])
        );
        let answer = client.ask_with(op, &[assertion]);
        assert_eq!((answer.code, named(&answer)), (failed, vec![]));
    }
    // Another reason has no name.
    let missing = format!("cn=missing,{SUFFIX}");
    let answer = client.ask_with(Request::Delete(&missing), &[assertion, ASKS]);
    assert_eq!(
        (answer.code, named(&answer)),
        (ResultCode::NoSuchObject, vec![])
    );
    let keys = Some(b"\x30\x08\x30\x06\x04\x04none".as_slice());
    let answer = client.ask_with(search, &[ASKS, (SORT_REQUEST, true, keys)]);
    let unavailable = ResultCode::UnavailableCriticalExtension;
    assert_eq!(
        (answer.code, named(&answer)),
        (unavailable, vec![SORT_REQUEST.to_owned()])
    );
    let request = ExtendedRequest {
        name: UNKNOWN,
        value: None,
    };
    let answer = client.ask_with(Request::Extended(request), &[ASKS]);
    assert_eq!(answer.code, ResultCode::ProtocolError);
    assert_eq!(named(&answer), [UNKNOWN]);
}
