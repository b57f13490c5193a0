//! Tree deletes of more than goes in one commit.

use sapwood_directory::{Outcome, Transaction, UpdateRequest};
use sapwood_ldap::controls::{NO_OP, TREE_DELETE};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;

use crate::made::{Directory, peopled};

const PEOPLE: &str = "ou=People,dc=example,dc=com";

/// More entries than go in one commit.
const MANY: usize = 10_500;

fn directory() -> Directory {
    let directory = peopled();
    let names = (0..MANY).map(|number| format!("cn={number},ou=People,dc=example,dc=com"));
    let add = |dn: String| as_admin(add(&dn, "objectClass: device"));
    let adds: Vec<_> = names.map(add).collect();
    for adds in adds.chunks(1000) {
        let applied = directory.apply(adds).unwrap();
        applied.ticket.unwrap();
        let mut codes = applied.outcomes.iter().map(|outcome| outcome.code);
        assert!(codes.all(|code| code == ResultCode::Success));
    }
    directory
}

fn tree_delete() -> UpdateRequest {
    with(delete(PEOPLE), &[(TREE_DELETE, true, None)])
}

fn entries(directory: &Directory) -> u64 {
    let checked = directory.check(|_| {}).unwrap();
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    checked.entries
}

#[test]
fn a_large_tree_takes_several_commits() {
    let directory = directory();
    let in_one = ResultCode::AdminLimitExceeded;
    let no_op = with(
        delete(PEOPLE),
        &[(TREE_DELETE, true, None), (NO_OP, true, None)],
    );
    refused(&directory, no_op, in_one);
    let transaction = UpdateRequest::Transaction(Transaction {
        updates: [(1, tree_delete())].into_iter().collect(),
        is_trial: false,
    });
    let outcome = apply(&directory, transaction);
    assert_eq!(outcome.code, in_one, "{outcome:?}");
    assert_eq!(entries(&directory), MANY as u64 + 3);
    let Outcome {
        code, unfinished, ..
    } = apply(&directory, tree_delete());
    assert_eq!(code, ResultCode::Success);
    let gone = u64::from(unfinished.unwrap().get());
    assert_eq!(entries(&directory), MANY as u64 + 3 - gone);
    assert!(exists(&directory, PEOPLE));
    let Outcome {
        code, unfinished, ..
    } = apply(&directory, tree_delete());
    assert_eq!((code, unfinished), (ResultCode::Success, None));
    assert_eq!(entries(&directory), 1);
}
