//! To find out who somebody is, and as whom they may act, takes turns as searches do, and tells nothing by its time.

use sapwood_ldap::controls::PROXIED_AUTHORIZATION;
use sapwood_ldap::list::ChangeKind::Add;

use super::failed_binds::sasl;
use super::*;
use crate::session::acting::DENIED_AFTER;

/// The password is `secret`.
const STORED: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

/// A burst of such binds was done in one turn, each of which searched as long as it liked.
#[test]
fn binds_by_names_that_are_searched_for_take_turns() {
    let mut bench = Bench::admin("");
    let regexp = ["^uid=([^,]*),cn=[^,]*,cn=auth$ ldap:///o=X??sub?(cn=$1)"];
    let change = [(Add, "olcAuthzRegexp", regexp.as_slice())];
    bench.succeed(&requests::modify(10, "cn=config", &change));
    // Another mechanism begins another bind.
    let mechanisms = ["SCRAM-SHA-256", "SCRAM-SHA-512"];
    let binds = (100..140).zip(mechanisms.into_iter().cycle());
    let binds = binds.flat_map(|(id, mechanism)| sasl(id, mechanism, "n,,n=ann,r=x"));
    bench.receive(&binds.collect::<Vec<u8>>());
    let mut answered = 0;
    while answered < 40 {
        let now = bench.answers().len();
        assert!((1..=4).contains(&now), "{now} in a turn");
        answered += now;
        assert_eq!(bench.session.has_work(), answered < 40);
        bench.session.process();
    }
}

/// The time of the answer told whether there was such an identity.
#[test]
fn a_denied_request_is_answered_by_a_timer() {
    let mut bench = Bench::admin("");
    for name in ["app", "ann"] {
        bench.add_with_password(name, Some(STORED));
    }
    bench.succeed(&bind(20, "cn=app,o=X", "secret"));
    for whom in [
        "dn:cn=ann,o=X",
        "dn:cn=nobody,o=X",
        "dn:cn=admin,o=X",
        "u:ann",
        "x",
    ] {
        let control = (PROXIED_AUTHORIZATION, true, Some(whom.as_bytes()));
        let request = requests::with(&extended(100, WHO_AM_I, None), &[control]);
        let denied = (100, Some(ResultCode::AuthorizationDenied));
        let came = Instant::now();
        bench.receive(&[request.clone(), extended(101, WHO_AM_I, None)].concat());
        assert_eq!(bench.answers(), [], "{whom}");
        assert!(!bench.session.is_idle() && !bench.session.wants_input());
        bench.wait_for_deadline();
        assert!(came.elapsed() >= DENIED_AFTER, "{whom}");
        assert_eq!(bench.answers(), [denied, (101, Some(ResultCode::Success))]);
        // Who goes learns no more.
        let unbind = message(102, Request::Unbind);
        bench.receive(&[request, unbind].concat());
        assert!(!bench.session.watches_peer());
        bench.session.peer_closed();
        assert_eq!(
            (bench.answers(), bench.session.then()),
            (vec![], Then::Continue)
        );
        bench.session.input.bytes.clear();
        bench.wait_for_deadline();
        assert_eq!(bench.answers(), [denied]);
        bench.session.input.has_seen_end = false;
    }
    // The end of the server is nobody's doing.
    let control = (
        PROXIED_AUTHORIZATION,
        true,
        Some(b"dn:cn=ann,o=X".as_slice()),
    );
    let request = requests::with(&extended(103, WHO_AM_I, None), &[control]);
    bench.receive(&request);
    bench.session.complete(Completion::Stop);
    let denied = (103, Some(ResultCode::AuthorizationDenied));
    assert_eq!(bench.answers(), [denied]);
}
