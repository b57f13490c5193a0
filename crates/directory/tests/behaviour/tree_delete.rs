//! Tree delete: a delete takes what is below its target with it, in one commit or in several.

use sapwood_directory::engine::Engine;
use sapwood_directory::{Transaction, UpdateRequest};
use sapwood_ldap::controls::{ASSERTION, Controls, NO_OP, PRE_READ, ReadEntry, TREE_DELETE};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::SearchResultEntry;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::requests::Control;

use crate::made::{Directory, in_stores, peopled};

const SUFFIX: &str = "dc=example,dc=com";
const PEOPLE: &str = "ou=People,dc=example,dc=com";
const TREE: Control<'static> = (TREE_DELETE, true, None);

fn tree_delete(dn: &str) -> UpdateRequest {
    with(delete(dn), &[TREE])
}

fn unit(dn: &str) -> UpdateRequest {
    let rdn = dn.split(',').next().unwrap();
    let name = rdn.trim_start_matches("ou=");
    add(dn, &format!("objectClass: organizationalUnit\nou: {name}"))
}

/// Branches of several depths below `ou=People`.
fn grow<E: Engine>(directory: &sapwood_directory::Directory<E>) {
    for dn in [
        "ou=a,ou=People,dc=example,dc=com",
        "ou=b,ou=a,ou=People,dc=example,dc=com",
        "ou=c,ou=b,ou=a,ou=People,dc=example,dc=com",
        "ou=d,ou=a,ou=People,dc=example,dc=com",
        "ou=z,ou=People,dc=example,dc=com",
    ] {
        succeed(directory, unit(dn));
    }
}

fn entries(directory: &Directory) -> u64 {
    let checked = directory.check(|_| {}).unwrap();
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    checked.entries
}

#[test]
fn what_is_below_goes_with_the_control_only() {
    let directory = peopled();
    grow(&directory);
    let refusal = refused(&directory, delete(PEOPLE), ResultCode::NotAllowedOnNonLeaf);
    assert!(!refusal.diagnostic.is_empty());
    assert!(exists(
        &directory,
        "ou=c,ou=b,ou=a,ou=People,dc=example,dc=com"
    ));
    succeed(&directory, tree_delete("ou=a,ou=People,dc=example,dc=com"));
    assert_eq!(entries(&directory), 4);
    // One that is not critical is heeded as well, and so is one of a leaf.
    let leaf = "uid=anne,ou=People,dc=example,dc=com";
    succeed(
        &directory,
        with(delete(leaf), &[(TREE_DELETE, false, None)]),
    );
    succeed(
        &directory,
        with(delete(SUFFIX), &[(TREE_DELETE, false, None)]),
    );
    assert_eq!(entries(&directory), 0);
    seed(&directory);
    assert_eq!(entries(&directory), 2);
}

#[test]
fn other_controls_are_about_the_target() {
    let directory = peopled();
    grow(&directory);
    let with_assertion = |filter: &str| {
        let filter = filter_text::parse(filter).unwrap();
        let ber = filter.as_filter().as_ber().to_vec();
        with(delete(PEOPLE), &[TREE, (ASSERTION, true, Some(&ber))])
    };
    let failed = ResultCode::AssertionFailed;
    refused(&directory, with_assertion("(ou=a)"), failed);
    let no_op = with(delete(PEOPLE), &[TREE, (NO_OP, true, None)]);
    refused(&directory, no_op, ResultCode::NoOperation);
    assert_eq!(entries(&directory), 8);
    let mut value = Vec::new();
    let names = OctetStringsBuf::from_iter([b"ou".as_slice(), b"numSubordinates"]);
    let attributes = names.view();
    ReadEntry { attributes }.encode(&mut value);
    let pre_read = (PRE_READ, true, Some(value.as_slice()));
    let outcome = apply(&directory, with(delete(PEOPLE), &[TREE, pre_read]));
    assert_eq!(outcome.code, ResultCode::Success);
    let controls = Controls::from_ber(&outcome.controls).unwrap();
    let control = controls.find(PRE_READ).unwrap();
    let read = SearchResultEntry::from_ber(control.value.unwrap()).unwrap();
    assert_eq!(read.dn, PEOPLE);
    let count = read
        .attributes
        .iter()
        .find(|read| read.description == b"numSubordinates");
    assert_eq!(count.unwrap().values.iter().next(), Some(b"3".as_slice()));
    assert_eq!(entries(&directory), 1);
}

#[test]
fn a_referral_below_goes_with_manage_dsa_it() {
    let directory = peopled();
    let referral = add(
        "ou=far,ou=People,dc=example,dc=com",
        "objectClass: referral\nobjectClass: extensibleObject\nou: far\nref: ldap://far/ou=far",
    );
    succeed(&directory, referral);
    let code = ResultCode::AffectsMultipleDsas;
    refused(&directory, tree_delete(PEOPLE), code);
    assert_eq!(entries(&directory), 4);
    succeed(&directory, with(delete(PEOPLE), &[TREE, MANAGE_DSA_IT]));
    assert_eq!(entries(&directory), 1);
}

#[test]
fn a_tree_in_several_stores_goes_as_one() {
    let directory = in_stores();
    seed(&directory);
    grow(&directory);
    for name in 0..20 {
        succeed(&directory, unit(&format!("ou={name},dc=example,dc=com")));
    }
    succeed(&directory, tree_delete(SUFFIX));
    assert_eq!(entries(&directory), 0);
}

fn transaction(requests: Vec<UpdateRequest>) -> UpdateRequest {
    UpdateRequest::Transaction(Transaction {
        updates: (1..).zip(requests).collect(),
        is_trial: false,
    })
}

#[test]
fn in_a_transaction_it_is_one_of_its_updates() {
    let directory = peopled();
    grow(&directory);
    let fails = transaction(vec![
        tree_delete(PEOPLE),
        delete("ou=none,dc=example,dc=com"),
    ]);
    assert_eq!(apply(&directory, fails).code, ResultCode::NoSuchObject);
    assert_eq!(entries(&directory), 8);
    let replaced = transaction(vec![tree_delete(PEOPLE), unit(PEOPLE), person("bert")]);
    assert_eq!(apply(&directory, replaced).code, ResultCode::Success);
    assert_eq!(entries(&directory), 3);
    assert!(exists(&directory, "uid=bert,ou=People,dc=example,dc=com"));
}
