//! Names that would be too long for any request are refused.

use crate::made::{Directory, in_memory};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{add, apply, delete, refused, rename, seed, succeed};

fn seeded() -> Directory {
    let directory = in_memory();
    seed(&directory);
    directory
}

/// With a control that reads the entry, this failed all updates that came with it: a request may spell the names of
/// superiors shorter than they are written.
#[test]
fn a_name_is_refused_that_is_too_long_as_it_is_written() {
    let directory = seeded();
    let (long, other) = ("a".repeat(20_000), "b".repeat(10_000));
    let (long_escaped, other_escaped) = (r"\61".repeat(20_000), r"\62".repeat(10_000));
    let superior = format!("ou={long},dc=example,dc=com");
    let as_written = format!("ou={long_escaped},dc=example,dc=com");
    succeed(
        &directory,
        add(
            &as_written,
            &format!("objectClass: organizationalUnit\nou: {long}"),
        ),
    );
    let below = add(
        &format!("ou={other_escaped},{superior}"),
        &format!("objectClass: organizationalUnit\nou: {other}"),
    );
    let outcome = refused(&directory, below, ResultCode::AdminLimitExceeded);
    assert!(
        outcome.diagnostic.contains("90025 bytes"),
        "{}",
        outcome.diagnostic
    );
    let short = format!("ou=x,{superior}");
    let lines = "objectClass: organizationalUnit\nou: x";
    succeed(&directory, add(&short, lines));
    let longer = rename(&short, &format!("ou={other_escaped}"), true, None);
    refused(&directory, longer, ResultCode::AdminLimitExceeded);
}

/// Each of its URLs has the name that was asked for.
#[test]
fn a_referral_is_bounded_whatever_is_asked_for() {
    let directory = seeded();
    let elsewhere = "ou=elsewhere,dc=example,dc=com";
    let lines = "objectClass: referral\nobjectClass: extensibleObject\nou: elsewhere\nref: ldap://a/\nref: ldap://b/";
    succeed(&directory, add(elsewhere, lines));
    let below = |bytes: usize| delete(&format!("ou={},{elsewhere}", "ä".repeat(bytes / 2)));
    let outcome = apply(&directory, below(100));
    assert_eq!(outcome.code, ResultCode::Referral);
    assert_eq!(outcome.referrals.unwrap().len(), 2);
    let outcome = refused(&directory, below(60_000), ResultCode::AdminLimitExceeded);
    assert_eq!(
        (outcome.matched_dn.as_str(), outcome.referrals),
        (elsewhere, None)
    );
}
