//! The numbers of attribute descriptions: clients cannot use them up for others.

use crate::made::peopled;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::{apply, modify, refused, succeed};
use sapwood_testkit::requests::Change;

const ANNE: &str = "uid=anne,ou=People,dc=example,dc=com";

/// Options that one client has made up have kept others from using types for the first time.
#[test]
fn made_up_options_leave_numbers_for_plain_types() {
    let directory = peopled();
    let made =
        |from: usize| -> Vec<String> { (from..from + 200).map(|n| format!("cn;x-{n}")).collect() };
    let last = (0..100).find_map(|round| {
        let added = made(200 * round);
        let mut changes: Vec<Change<'_>> = vec![(Replace, "cn", &["x"])];
        changes.extend(added.iter().map(|name| (Add, &**name, &["x"][..])));
        let outcome = apply(&directory, modify(ANNE, &changes));
        let deleted: Vec<Change<'_>> = added
            .iter()
            .map(|name| (Delete, &**name, &[][..]))
            .collect();
        match outcome.code {
            ResultCode::Success => succeed(&directory, modify(ANNE, &deleted)),
            _ => return Some(outcome),
        }
        None
    });
    assert_eq!(last, None);
    let one = modify(ANNE, &[(Add, "cn;x-more", &["x"])]);
    let outcome = refused(&directory, one, ResultCode::AdminLimitExceeded);
    assert!(outcome.diagnostic.contains("options"), "{outcome:?}");
    let known = modify(ANNE, &[(Add, "cn;x-1", &["x"])]);
    succeed(&directory, known);
    succeed(&directory, modify(ANNE, &[(Add, "roomNumber", &["1"])]));
}
