//! Transactions: together or not at all, each update seeing what those before it did.

use std::collections::BTreeMap;

use crate::made::{Directory, in_memory, peopled};
use proptest::prelude::*;
use sapwood_directory::{Applied, Ticket, Transaction, Update, UpdateRequest};
use sapwood_ldap::controls::{ASSERTION, Controls, POST_READ, ReadEntry};
use sapwood_ldap::filter_text;
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::SearchResultEntry;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;

const ANNE: &str = "uid=anne,ou=People,dc=example,dc=com";

/// A transaction of updates with the message ids 1, 2, 3...
fn transaction(requests: impl IntoIterator<Item = UpdateRequest>, is_trial: bool) -> Update {
    let updates = (1..).zip(requests).collect();
    as_admin(UpdateRequest::Transaction(Transaction {
        updates,
        is_trial,
    }))
}

fn commit(directory: &Directory, updates: &[Update]) -> Vec<sapwood_directory::Outcome> {
    let Applied { outcomes, ticket } = directory.apply(updates).unwrap();
    if let Some(ticket) = ticket {
        ticket.wait().unwrap();
    }
    outcomes
}

fn set_cn(dn: &str, value: &str) -> UpdateRequest {
    modify(dn, &[(Replace, "cn", &[value])])
}

fn with_post_read(request: UpdateRequest, attribute: &str) -> UpdateRequest {
    let names = OctetStringsBuf::from_iter([attribute.as_bytes()]);
    let attributes = names.view();
    let mut value = Vec::new();
    ReadEntry { attributes }.encode(&mut value);
    with(request, &[(POST_READ, true, Some(&value))])
}

/// The value of the one attribute in a post-read response.
fn read_value(controls: &[u8]) -> String {
    let control = Controls::from_ber(controls)
        .unwrap()
        .find(POST_READ)
        .unwrap();
    let entry = SearchResultEntry::from_ber(control.value.unwrap()).unwrap();
    let value = entry
        .attributes
        .iter()
        .next()
        .unwrap()
        .values
        .iter()
        .next()
        .unwrap();
    String::from_utf8(value.to_vec()).unwrap()
}

#[test]
fn updates_of_a_transaction_build_on_each_other() {
    let directory = in_memory();
    seed(&directory);
    let berta = "uid=berta,ou=People,dc=example,dc=com";
    let outcomes = commit(
        &directory,
        &[transaction(
            [
                person("anne"),
                set_cn(ANNE, "one"),
                with_post_read(set_cn(ANNE, "two"), "cn"),
                rename(ANNE, "uid=berta", true, None),
                with_post_read(modify(berta, &[(Add, "description", &["new"])]), "uid"),
                UpdateRequest::SetPassword {
                    entry: None,
                    dn: berta.into(),
                    stored: b"{SSHA}x".to_vec(),
                    verifiers: Vec::new(),
                    replaces: None,
                },
            ],
            false,
        )],
    );
    assert_eq!(outcomes[0].code, ResultCode::Success, "{:?}", outcomes[0]);
    let settlement = outcomes[0].settlement.as_ref().unwrap();
    assert_eq!(settlement.failed, None);
    let read: Vec<_> = settlement
        .controls
        .iter()
        .map(|(id, controls)| (*id, read_value(controls)))
        .collect();
    assert_eq!(read, [(3, "two".to_owned()), (5, "berta".to_owned())]);
    assert!(holds(&directory, berta, "cn", "two"));
    assert!(!exists(&directory, ANNE));
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
}

#[test]
fn a_failing_update_takes_all_with_it_and_nothing_else_of_the_batch() {
    let directory = in_memory();
    seed(&directory);
    let before = directory.snapshot().unwrap().commit();
    let failing = [
        person("anne"),
        // A number for a new attribute description, which must be given back.
        modify(ANNE, &[(Add, "description;lang-xx", &["x"])]),
        delete("uid=nobody,ou=People,dc=example,dc=com"),
        set_cn(ANNE, "never reached"),
    ];
    let outcomes = commit(&directory, &[transaction(failing.clone(), false)]);
    assert_eq!(outcomes[0].code, ResultCode::NoSuchObject);
    assert_eq!(outcomes[0].settlement.as_ref().unwrap().failed, Some(3));
    assert_eq!(directory.snapshot().unwrap().commit(), before);

    let outcomes = commit(
        &directory,
        &[
            as_admin(person("carl")),
            transaction(failing, false),
            transaction([person("dora"), person("emil")], false),
            as_admin(modify(
                "uid=carl,ou=People,dc=example,dc=com",
                &[(Add, "description;lang-yy", &["y"])],
            )),
        ],
    );
    let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.code).collect();
    let ok = ResultCode::Success;
    assert_eq!(codes, [ok, ResultCode::NoSuchObject, ok, ok]);
    for (uid, there) in [
        ("anne", false),
        ("carl", true),
        ("dora", true),
        ("emil", true),
    ] {
        let dn = format!("uid={uid},ou=People,dc=example,dc=com");
        assert_eq!(exists(&directory, &dn), there, "{uid}");
    }
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
    let nested = transaction([transaction([person("x")], false).request], false);
    assert_eq!(
        commit(&directory, &[nested])[0].code,
        ResultCode::ProtocolError
    );
}

#[test]
fn names_are_what_they_were_after_a_failed_transaction() {
    let directory = in_memory();
    seed(&directory);
    commit(&directory, &[as_admin(person("anne"))]);
    // So many that names are looked up together while Anne is another entry.
    let replaced = [delete(ANNE), person("anne")];
    let changed = (0..20).map(|_| set_cn(ANNE, "another"));
    let failing = [delete("uid=nobody,ou=People,dc=example,dc=com")];
    let after = (0..8).map(|_| set_cn(ANNE, "never reached"));
    let updates = replaced.into_iter().chain(changed).chain(failing);
    let outcomes = commit(
        &directory,
        &[
            transaction(updates.chain(after), false),
            as_admin(set_cn(ANNE, "the same")),
        ],
    );
    let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.code).collect();
    assert_eq!(codes, [ResultCode::NoSuchObject, ResultCode::Success]);
    assert!(holds(&directory, ANNE, "cn", "the same"));
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
}

#[test]
fn updates_of_a_batch_see_the_names_that_those_before_them_made() {
    let directory = peopled();
    let berta = "uid=berta,ou=People,dc=example,dc=com";
    let round = [
        set_cn(ANNE, "first"),
        rename(ANNE, "uid=berta", true, None),
        set_cn(ANNE, "gone"),
        set_cn(berta, "renamed"),
        delete(berta),
        set_cn(berta, "gone"),
        person("anne"),
        set_cn(ANNE, "new"),
    ];
    let updates: Vec<_> = (0..5).flat_map(|_| round.clone()).map(as_admin).collect();
    let ok = ResultCode::Success;
    let missing = ResultCode::NoSuchObject;
    let codes = [ok, ok, missing, ok, ok, missing, ok, ok];
    for (at, outcome) in commit(&directory, &updates).iter().enumerate() {
        assert_eq!(outcome.code, codes[at % codes.len()], "{at}: {outcome:?}");
    }
    assert!(holds(&directory, ANNE, "cn", "new"));
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
}

/// RFC 4527 §3: a read entry control goes with success. What stood in the entry after an update that was undone, such
/// as a number from a counter, never was.
#[test]
fn a_failed_transaction_tells_nothing_that_was_read() {
    let directory = peopled();
    let read = with_post_read(set_cn(ANNE, "x"), "cn");
    let failing = [
        read.clone(),
        set_cn("uid=nobody,ou=People,dc=example,dc=com", "x"),
    ];
    // As modifications, which may be applied in another order, and among others.
    for first in [None, Some(person("dora"))] {
        let updates = first.into_iter().chain(failing.clone());
        let outcome = commit(&directory, &[transaction(updates, false)]).remove(0);
        assert_eq!(outcome.code, ResultCode::NoSuchObject);
        let settlement = outcome.settlement.unwrap();
        assert!(settlement.failed.is_some());
        assert_eq!(settlement.controls, []);
    }
}

/// A small update can ask for a large entry to be read: ten thousand of them would ask for more than there is memory.
#[test]
fn what_is_read_in_a_transaction_is_bounded() {
    let directory = peopled();
    let large = "x".repeat(1 << 20);
    succeed(
        &directory,
        modify(ANNE, &[(Replace, "description", &[&large])]),
    );
    let read = || with_post_read(set_cn(ANNE, "x"), "description");
    let some = || (0..15).map(|_| read());
    for first in [None, Some(person("dora"))] {
        let many = || first.clone().into_iter().chain(some());
        let enough = commit(
            &directory,
            &[transaction(many(), true), transaction(many(), false)],
        );
        assert!(
            enough
                .iter()
                .all(|outcome| outcome.code == ResultCode::Success)
        );
        succeed(&directory, set_cn(ANNE, "before"));
        let too_many = some().chain(
            [read(), person("emil")]
                .into_iter()
                .take(first.iter().count() + 1),
        );
        let outcome = commit(&directory, &[transaction(too_many, false)]).remove(0);
        assert_eq!(outcome.code, ResultCode::AdminLimitExceeded);
        assert!(outcome.diagnostic.contains("16 MiB"), "{outcome:?}");
        // No single one is to blame.
        assert_eq!(outcome.settlement, None);
        assert!(holds(&directory, ANNE, "cn", "before"));
    }
}

/// Single updates that come together are answered together.
#[test]
fn what_is_read_for_a_batch_is_bounded() {
    let directory = peopled();
    let large = "x".repeat(8 << 20);
    succeed(
        &directory,
        modify(ANNE, &[(Replace, "description", &[&large])]),
    );
    let read = (0..8).map(|n| with_post_read(set_cn(ANNE, &n.to_string()), "description"));
    let updates = read.chain([set_cn(ANNE, "last")]).map(as_admin);
    let outcomes = commit(&directory, &updates.collect::<Vec<_>>());
    let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.code).collect();
    let mut expected = vec![ResultCode::Success; 9];
    expected[7] = ResultCode::Busy;
    assert_eq!(codes, expected);
    assert!(outcomes[7].diagnostic.contains("64 MiB"), "{outcomes:?}");
    assert!(outcomes[7].controls.is_empty());
    assert!(holds(&directory, ANNE, "cn", "last"));
    // By itself it is done.
    let again = with_post_read(set_cn(ANNE, "7"), "description");
    let outcomes = commit(&directory, &[as_admin(again)]);
    assert_eq!(outcomes[0].code, ResultCode::Success);
}

#[test]
fn a_trial_tells_what_would_be_and_changes_nothing() {
    let directory = in_memory();
    seed(&directory);
    let before = directory.snapshot().unwrap().commit();
    let tried =
        |requests: Vec<UpdateRequest>| commit(&directory, &[transaction(requests, true)]).remove(0);
    let outcome = tried(vec![
        person("anne"),
        with_post_read(set_cn(ANNE, "x"), "cn"),
    ]);
    assert_eq!(outcome.code, ResultCode::Success);
    assert_eq!(read_value(&outcome.controls), "x");
    let outcome = tried(vec![person("anne"), person("anne")]);
    assert_eq!(outcome.code, ResultCode::EntryAlreadyExists);
    assert_eq!(outcome.settlement.unwrap().failed, Some(2));
    let outcome = tried(vec![delete(ANNE), person("anne")]);
    assert_eq!(outcome.settlement.unwrap().failed, Some(1));
    assert_eq!(directory.snapshot().unwrap().commit(), before);
    // Beside others in a batch, nothing of a trial stays.
    let outcomes = commit(
        &directory,
        &[
            as_admin(person("berta")),
            transaction([person("anne")], true),
            as_admin(person("anne")),
        ],
    );
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.code == ResultCode::Success)
    );
    assert!(directory.check(|_| {}).unwrap().problems.is_empty());
}

#[test]
fn a_password_that_changed_meanwhile_is_not_replaced() {
    let directory = peopled();
    let set = |stored: &str, replaces: Option<&str>| UpdateRequest::SetPassword {
        entry: None,
        dn: ANNE.into(),
        stored: stored.as_bytes().to_vec(),
        verifiers: Vec::new(),
        replaces: replaces.map(|text| text.as_bytes().to_vec()),
    };
    succeed(&directory, set("{SSHA}one", None));
    succeed(&directory, set("{SSHA}two", Some("{SSHA}one")));
    refused(
        &directory,
        set("{SSHA}three", Some("{SSHA}one")),
        ResultCode::InvalidCredentials,
    );
    assert!(holds(&directory, ANNE, "userPassword", "{SSHA}two"));
}

/// One update of the model: people by number, each with a text or gone.
#[derive(Clone, Debug)]
enum Action {
    Add(u8),
    Delete(u8),
    Set(u8, u8),
    /// Fails unless the text is this.
    Take(u8, u8),
}

fn action() -> impl Strategy<Value = Action> {
    let (who, text) = (0u8..6, 0u8..4);
    prop_oneof![
        3 => who.clone().prop_map(Action::Add),
        1 => who.clone().prop_map(Action::Delete),
        4 => (who.clone(), text.clone()).prop_map(|(who, text)| Action::Set(who, text)),
        2 => (who, text).prop_map(|(who, text)| Action::Take(who, text)),
    ]
}

/// A modification, which seldom fails, and whether the entry is to be read after it.
fn change() -> impl Strategy<Value = (Action, bool)> {
    let (who, text) = (0u8..6, 0u8..4);
    let change = prop_oneof![
        30 => (who.clone(), text.clone()).prop_map(|(who, text)| Action::Set(who, text)),
        1 => (who, text).prop_map(|(who, text)| Action::Take(who, text)),
    ];
    (change, prop::bool::weighted(0.2))
}

fn dn(who: u8) -> String {
    format!("uid=p{who},ou=People,dc=example,dc=com")
}

fn request(action: &Action) -> UpdateRequest {
    let text = |text: u8| format!("text {text}");
    match action {
        Action::Add(who) => person(&format!("p{who}")),
        Action::Delete(who) => delete(&dn(*who)),
        Action::Set(who, value) => modify(&dn(*who), &[(Replace, "description", &[&text(*value)])]),
        Action::Take(who, value) => modify(&dn(*who), &[(Delete, "description", &[&text(*value)])]),
    }
}

type People = BTreeMap<u8, Option<u8>>;

/// Applies one update to the model; whether it succeeded.
fn model(people: &mut People, action: &Action) -> bool {
    match action {
        Action::Add(who) if people.contains_key(who) => false,
        Action::Add(who) => people.insert(*who, None).is_none(),
        Action::Delete(who) => people.remove(who).is_some(),
        Action::Set(who, text) => match people.get_mut(who) {
            Some(place) => {
                *place = Some(*text);
                true
            }
            None => false,
        },
        Action::Take(who, text) => match people.get_mut(who) {
            Some(place) if *place == Some(*text) => {
                *place = None;
                true
            }
            _ => false,
        },
    }
}

proptest! {
    #![proptest_config(crate::made::random(48))]

    /// Batches of what several sessions send, transactions among single updates and trials, against a model that
    /// applies them one after the other, a transaction to a copy that takes the place of the original.
    #[test]
    fn transactions_apply_serially(
        sent in prop::collection::vec((0u8..3, prop::collection::vec(action(), 1..6)), 1..30),
        batch in 1usize..8,
    ) {
        let directory = in_memory();
        seed(&directory);
        let mut people = People::new();
        for batch in sent.chunks(batch) {
            let mut updates = Vec::new();
            let mut expected = Vec::new();
            for (kind, actions) in batch {
                if *kind == 0 {
                    for action in actions {
                        updates.push(as_admin(request(action)));
                        expected.push((model(&mut people, action), None));
                    }
                    continue;
                }
                let is_trial = *kind == 1;
                updates.push(transaction(actions.iter().map(request), is_trial));
                let mut copy = people.clone();
                let failed = actions.iter().position(|action| !model(&mut copy, action));
                expected.push((failed.is_none(), failed.map(|at| at as u32 + 1)));
                if failed.is_none() && !is_trial {
                    people = copy;
                }
            }
            let outcomes = commit(&directory, &updates);
            prop_assert_eq!(outcomes.len(), expected.len());
            for (outcome, (succeeds, failed)) in outcomes.iter().zip(expected) {
                prop_assert_eq!(outcome.code == ResultCode::Success, succeeds, "{:?}", outcome);
                let told = outcome.settlement.as_ref().and_then(|told| told.failed);
                prop_assert_eq!(told, failed);
            }
        }
        for who in 0..6 {
            prop_assert_eq!(exists(&directory, &dn(who)), people.contains_key(&who));
            for text in 0..4 {
                let is_there = people.get(&who) == Some(&Some(text));
                if people.contains_key(&who) {
                    prop_assert_eq!(holds(&directory, &dn(who), "description", &format!("text {text}")), is_there);
                }
            }
        }
        prop_assert_eq!(directory.check(|_| {}).unwrap().problems, Vec::<String>::new());
    }

    /// Transactions of nothing but modifications, which need not be applied in turn, against a model that does.
    #[test]
    fn modifications_apply_as_if_in_turn(
        sent in prop::collection::vec(prop::collection::vec(change(), 2..40), 1..6),
    ) {
        let directory = in_memory();
        seed(&directory);
        let mut people = People::new();
        for who in 0..6 {
            commit(&directory, &[as_admin(request(&Action::Add(who))), as_admin(request(&Action::Set(who, 0)))]);
            people.insert(who, Some(0));
        }
        for changes in sent {
            let requests = changes.iter().map(|(change, reads)| match reads {
                true => with_post_read(request(change), "description"),
                false => request(change),
            });
            let outcome = commit(&directory, &[transaction(requests, false)]).remove(0);
            let mut copy = people.clone();
            let (mut read, mut failed) = (Vec::new(), None);
            for (id, (change, reads)) in (1..).zip(&changes) {
                if !model(&mut copy, change) {
                    failed = Some(id);
                    break;
                }
                if *reads {
                    read.push(id);
                }
            }
            prop_assert_eq!(outcome.code == ResultCode::Success, failed.is_none());
            let told = outcome.settlement.unwrap_or_default();
            prop_assert_eq!(told.failed, failed);
            let told: Vec<_> = told.controls.iter().map(|(id, _)| *id).collect();
            // Of what did not take place, nothing is told.
            prop_assert_eq!(told, if failed.is_none() { read } else { Vec::new() });
            if failed.is_none() {
                people = copy;
            }
            for (who, text) in &people {
                for known in 0..4 {
                    let is_there = holds(&directory, &dn(*who), "description", &format!("text {known}"));
                    prop_assert_eq!(is_there, *text == Some(known));
                }
            }
        }
    }
}

#[test]
fn the_assertions_of_a_transaction_have_an_update_s_work_together() {
    let directory = in_memory();
    seed(&directory);
    let text = "a ".repeat(50_000);
    let lines =
        format!("objectClass: inetOrgPerson\nuid: anne\ncn: Anne\nsn: Anne\ndescription: {text}");
    succeed(&directory, add(ANNE, &lines));
    // Each looks through the whole text for what is not there.
    let sought: String = (0..40).map(|n| format!("(description=*z{n}*)")).collect();
    let filter = filter_text::parse(&format!("(!(|{sought}))")).unwrap();
    let asserting = || {
        let assertion = (ASSERTION, true, Some(filter.as_filter().as_ber()));
        with(set_cn(ANNE, "Other"), &[assertion])
    };
    let code = |count: usize| {
        let updates = std::iter::repeat_with(asserting).take(count);
        commit(&directory, &[transaction(updates, false)])[0].code
    };
    assert_eq!(code(1), ResultCode::Success);
    assert_eq!(code(100), ResultCode::AdminLimitExceeded);
    // The next one begins anew.
    assert_eq!(code(1), ResultCode::Success);
}

/// Each change writes all of the entry again: nobody else's updates went on for as long as that took.
#[test]
fn a_transaction_writes_so_much_and_no_more() {
    let directory = peopled();
    let anne = "uid=anne,ou=People,dc=example,dc=com";
    let long = "x".repeat(8 << 20);
    succeed(
        &directory,
        modify(anne, &[(Replace, "description", &[&long])]),
    );
    let updates =
        |count: usize| transaction((0..count).map(|n| set_cn(anne, &n.to_string())), false);
    let outcomes = commit(&directory, &[updates(40)]);
    assert_eq!(outcomes[0].code, ResultCode::AdminLimitExceeded);
    assert!(
        outcomes[0].diagnostic.contains("256 MiB"),
        "{}",
        outcomes[0].diagnostic
    );
    let outcomes = commit(&directory, &[updates(10)]);
    assert_eq!(outcomes[0].code, ResultCode::Success);
}
