//! What a rule may do, by the rule for tests.

use std::sync::Arc;

use sapwood_ldap::controls::Controls;
use sapwood_ldap::list::ChangeKind;
use sapwood_ldap::message::{Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, requests};

use crate::engine::{Embedded, Ticket};
use crate::schema::Schema;
use crate::{
    Budget, Config, Directory, Options, Outcome, Requester, Search, SearchOptions, Settings, Step,
    Transaction, Update, UpdateRequest, Wire,
};

const BASE: &str = "dc=example,dc=com";

fn directory() -> Directory {
    let config = Config {
        naming_contexts: vec![BASE.into()],
        settings: Settings {
            probe: true,
            ..Settings::default()
        },
        ..Config::default()
    };
    let options = Options::new(Schema::standard());
    let directory = Directory::create_on(Embedded::in_memory().unwrap(), &config, options).unwrap();
    let attributes = [("objectClass", "domain"), ("dc", "example")];
    let outcome = apply(&directory, requests::add(1, BASE, &attributes));
    assert_eq!(outcome.code, ResultCode::Success);
    for name in ["ann", "bob", "eve"] {
        assert_eq!(add(&directory, name, "nothing").code, ResultCode::Success);
    }
    directory
}

fn admin() -> Arc<Requester> {
    Requester::administrator("cn=admin")
}

fn apply_request(directory: &Directory, request: UpdateRequest) -> Outcome {
    apply_as(directory, admin(), request)
}

fn apply_as(directory: &Directory, requester: Arc<Requester>, request: UpdateRequest) -> Outcome {
    let mut applied = directory.apply(&[Update { requester, request }]).unwrap();
    if let Some(ticket) = applied.ticket {
        ticket.wait().unwrap();
    }
    applied.outcomes.remove(0)
}

fn apply(directory: &Directory, message: Vec<u8>) -> Outcome {
    apply_request(directory, UpdateRequest::Message(message))
}

fn dn(name: &str) -> String {
    format!("cn={name},{BASE}")
}

fn add(directory: &Directory, name: &str, description: &str) -> Outcome {
    let attributes = [
        ("objectClass", "organizationalPerson"),
        ("cn", name),
        ("sn", "x"),
        ("description", description),
    ];
    apply(directory, requests::add(1, &dn(name), &attributes))
}

fn describe(name: &str, description: &str) -> Vec<u8> {
    let values = &[description][..];
    requests::modify(
        1,
        &dn(name),
        &[(ChangeKind::Replace, "description", values)],
    )
}

fn count(directory: &Directory, filter: &str) -> usize {
    let filter = sapwood_ldap::filter_text::parse(filter).unwrap();
    let request = SearchRequest::new(BASE, Scope::Subtree, filter.as_filter());
    let snapshot = directory.snapshot().unwrap();
    let mut search = Search::new(snapshot, &admin(), &request, SearchOptions::default());
    let mut out = Vec::new();
    let budget = Budget {
        entries: u32::MAX,
        work: u64::MAX,
        out_bytes: usize::MAX,
    };
    let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
    while !matches!(search.step(&mut wire, budget).unwrap(), Step::Done(_)) {}
    Answer::all(&out).len()
}

#[test]
fn a_draft_is_refused_or_added_to_before_it_is_checked() {
    let directory = directory();
    let refused = add(&directory, "may", "refuse me");
    assert_eq!(refused.code, ResultCode::ConstraintViolation);
    assert_eq!(count(&directory, "(cn=may)"), 0);
    assert_eq!(
        apply(&directory, describe("ann", "add a title")).code,
        ResultCode::Success
    );
    assert_eq!(count(&directory, "(&(cn=ann)(title=added))"), 1);
    assert_eq!(
        add(&directory, "may", "add a title").code,
        ResultCode::Success
    );
    assert_eq!(count(&directory, "(&(cn=may)(title=added))"), 1);
    // What a rule adds is checked, too.
    let refused = apply(&directory, describe("bob", "add what is none"));
    assert_eq!(
        refused.code,
        ResultCode::InvalidAttributeSyntax,
        "{refused:?}"
    );
    assert_eq!(count(&directory, "(description=add what is none)"), 0);
}

#[test]
fn what_is_queued_is_done_in_the_same_transaction() {
    let directory = directory();
    let before = directory.snapshot().unwrap().commit();
    assert_eq!(
        apply(&directory, describe("ann", "tell bob")).code,
        ResultCode::Success
    );
    assert_eq!(count(&directory, "(&(cn=bob)(description=by a client))"), 1);
    assert_eq!(directory.snapshot().unwrap().commit().0, before.0 + 1);
    // What cannot be done takes the update that it follows from with it.
    let refused = apply(&directory, describe("ann", "tell nobody"));
    assert_eq!(refused.code, ResultCode::NoSuchObject, "{refused:?}");
    assert_eq!(count(&directory, "(&(cn=ann)(description=tell bob))"), 1);
    // Those that follow from others, and those that follow from a delete.
    assert_eq!(
        apply(&directory, describe("bob", "with eve")).code,
        ResultCode::Success
    );
    let delete = |name: &str| requests::message(1, Request::Delete(&dn(name)));
    assert_eq!(apply(&directory, delete("bob")).code, ResultCode::Success);
    assert_eq!(count(&directory, "(|(cn=bob)(cn=eve))"), 0);
}

#[test]
fn a_rule_knows_where_an_update_comes_from() {
    let directory = directory();
    let tell = |requester, whom: &str| {
        let request = UpdateRequest::Message(describe("ann", whom));
        let outcome = apply_as(&directory, requester, request);
        assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    };
    tell(Requester::replica("cn=admin"), "tell bob");
    assert_eq!(
        count(&directory, "(&(cn=bob)(description=by a replica))"),
        1
    );
    tell(admin(), "tell eve");
    assert_eq!(count(&directory, "(&(cn=eve)(description=by a client))"), 1);
    // The second one still comes from there when rules have answered the first.
    let both = [describe("ann", "tell bob"), describe("ann", "tell eve")];
    let updates = (1..).zip(both.map(UpdateRequest::Message)).collect();
    let is_trial = false;
    let both = UpdateRequest::Transaction(Transaction { updates, is_trial });
    let outcome = apply_as(&directory, Requester::replica("cn=admin"), both);
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
    assert_eq!(count(&directory, "(description=by a replica)"), 2);
}

#[test]
fn an_update_of_a_transaction_is_followed_by_what_it_causes() {
    let directory = directory();
    let trial = |requests: [Vec<u8>; 2]| {
        let updates = (1..).zip(requests.map(UpdateRequest::Message)).collect();
        let is_trial = false;
        apply_request(
            &directory,
            UpdateRequest::Transaction(Transaction { updates, is_trial }),
        )
    };
    // The second one has the last word.
    let done = trial([describe("ann", "tell bob"), describe("bob", "own words")]);
    assert_eq!(done.code, ResultCode::Success, "{done:?}");
    assert_eq!(count(&directory, "(&(cn=bob)(description=own words))"), 1);
    let failed = trial([
        describe("bob", "other words"),
        describe("ann", "tell nobody"),
    ]);
    assert_eq!(failed.settlement.unwrap().failed, Some(2));
    assert_eq!(count(&directory, "(&(cn=bob)(description=own words))"), 1);
}

#[test]
fn what_never_ends_is_refused() {
    let directory = directory();
    let refused = apply(&directory, describe("ann", "count 1"));
    assert_eq!(refused.code, ResultCode::LoopDetect, "{refused:?}");
    assert!(refused.diagnostic.contains("8 deep"), "{refused:?}");
    let refused = apply(&directory, describe("ann", "flood 10001"));
    assert_eq!(refused.code, ResultCode::AdminLimitExceeded, "{refused:?}");
    assert_eq!(count(&directory, "(&(cn=ann)(description=nothing))"), 1);
    // Nothing is left of them for the next update.
    assert_eq!(
        apply(&directory, describe("ann", "tell bob")).code,
        ResultCode::Success
    );
    assert_eq!(count(&directory, "(&(cn=bob)(description=by a client))"), 1);
    let most = apply(&directory, describe("ann", "flood 10000"));
    assert_eq!(most.code, ResultCode::Success, "{most:?}");
}
