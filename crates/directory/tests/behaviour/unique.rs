//! The rule `unique`: no two entries have the same value.

use std::sync::Barrier;
use std::thread;

use crate::On;
use crate::made::{Directory, create, engine, engine_in, in_memory, in_stores, over};
use sapwood_directory::engine::{Embedded, Engine};
use sapwood_directory::{
    Config, IndexDefinition, Requester, Settings, Ticket, Transaction, UniqueRule, Update,
    UpdateRequest,
};
use sapwood_ldap::list::ChangeKind::{Add, Delete, Replace};
use sapwood_ldap::message::Scope;
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;
use sapwood_testkit::{ADMIN, Random, SUFFIX};

use crate::query::{query, search};

const PEOPLE: &str = "ou=people,dc=example,dc=com";
const OTHERS: &str = "ou=others,dc=example,dc=com";

fn rule(attributes: &[&str], base: &str) -> UniqueRule {
    UniqueRule {
        attributes: attributes.iter().map(|name| (*name).to_owned()).collect(),
        base: base.to_owned(),
        name: String::new(),
    }
}

fn with_rules(config: Config, unique: Vec<UniqueRule>) -> Config {
    let settings = Settings {
        unique,
        ..Settings::default()
    };
    Config { settings, ..config }
}

/// The example directory with its two entries, two more to put others below, and these rules.
fn directory(unique: Vec<UniqueRule>) -> Directory {
    let engine = engine();
    let directory = Directory::create_on(engine, &with_rules(config(), unique), options()).unwrap();
    begin(&directory);
    directory
}

fn begin<E: Engine>(directory: &Directory<E>) {
    directory.check_rules().unwrap();
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    for (dn, name) in [(PEOPLE, "people"), (OTHERS, "others")] {
        let lines = format!("objectClass: organizationalUnit\nou: {name}");
        succeed(directory, add(dn, &lines));
    }
}

fn clean(directory: &Directory) {
    let report = directory.check(|_| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

fn person(name: &str, base: &str, uids: &[&str]) -> UpdateRequest {
    let mut lines = format!("objectClass: inetOrgPerson\ncn: {name}\nsn: x");
    uids.iter()
        .for_each(|uid| lines.push_str(&format!("\nuid: {uid}")));
    add(&dn(name, base), &lines)
}

fn dn(name: &str, base: &str) -> String {
    format!("cn={name},{base}")
}

#[track_caller]
fn not_unique<E: Engine>(directory: &Directory<E>, request: UpdateRequest) {
    let outcome = refused(directory, request, ResultCode::ConstraintViolation);
    assert!(outcome.diagnostic.starts_with("uid: "), "{outcome:?}");
    // It is nobody's business who has it.
    assert!(!outcome.diagnostic.contains("cn="), "{outcome:?}");
}

#[test]
fn no_update_makes_a_value_that_another_entry_has() {
    let directory = directory(vec![rule(&["uid"], "")]);
    succeed(&directory, person("ann", PEOPLE, &["ann", "a"]));
    not_unique(&directory, person("bob", OTHERS, &["ANN"]));
    not_unique(&directory, person("bob", OTHERS, &["bob", "a"]));
    succeed(&directory, person("bob", OTHERS, &["bob"]));
    let bob = dn("bob", OTHERS);
    not_unique(&directory, modify(&bob, &[(Add, "uid", &["ann"])]));
    not_unique(&directory, modify(&bob, &[(Replace, "uid", &[" a "])]));
    not_unique(&directory, modify(&bob, &[(Add, "uid;lang-de", &["ann"])]));
    not_unique(&directory, rename(&bob, "uid=ann", false, None));
    // Its own values are in nobody's way, and those that are gone neither.
    succeed(&directory, modify(&bob, &[(Replace, "uid", &["BOB", "b"])]));
    succeed(&directory, modify(&bob, &[(Replace, "sn", &["y"])]));
    succeed(&directory, rename(&bob, "uid=b", false, None));
    succeed(
        &directory,
        modify(&dn("ann", PEOPLE), &[(Delete, "uid", &["a"])]),
    );
    succeed(&directory, person("eve", OTHERS, &["a"]));
    succeed(&directory, delete(&dn("eve", OTHERS)));
    succeed(&directory, person("may", PEOPLE, &["a"]));
    clean(&directory);
}

#[test]
fn updates_that_come_together_see_each_other() {
    let directory = directory(vec![rule(&["uid"], "")]);
    let batch = [
        person("ann", PEOPLE, &["x"]),
        person("bob", PEOPLE, &["x"]),
        modify(&dn("ann", PEOPLE), &[(Replace, "uid", &["y"])]),
        person("eve", OTHERS, &["x"]),
        delete(&dn("eve", OTHERS)),
        person("may", OTHERS, &["x"]),
    ];
    let batch: Vec<_> = batch.into_iter().map(as_admin).collect();
    let codes: Vec<_> = directory.apply(&batch).unwrap().outcomes;
    let codes: Vec<_> = codes.iter().map(|outcome| outcome.code).collect();
    let (done, refused) = (ResultCode::Success, ResultCode::ConstraintViolation);
    assert_eq!(codes, [done, refused, done, done, done, done]);
}

/// Two replicas may give the same value to two entries before they hear of each other. Neither can be refused then:
/// the replicas would stay different.
#[test]
fn what_another_replica_tells_is_not_refused() {
    let directory = directory(vec![rule(&["uid"], "")]);
    succeed(&directory, person("ann", PEOPLE, &["x"]));
    let requester = Requester::replica(ADMIN);
    let request = person("bob", OTHERS, &["x"]);
    let told = Update { requester, request };
    let as_of_client = as_admin(person("eve", OTHERS, &["x"]));
    let outcomes = directory.apply(&[told, as_of_client]).unwrap().outcomes;
    let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.code).collect();
    let expected = [ResultCode::Success, ResultCode::ConstraintViolation];
    assert_eq!(codes, expected, "{outcomes:?}");
    clean(&directory);
}

fn transaction(requests: Vec<UpdateRequest>) -> UpdateRequest {
    UpdateRequest::Transaction(Transaction {
        updates: (1..).zip(requests).collect(),
        is_trial: false,
    })
}

#[test]
fn a_transaction_hands_values_on_in_its_order() {
    let directory = directory(vec![rule(&["uid"], "")]);
    succeed(&directory, person("bob", PEOPLE, &["b"]));
    succeed(&directory, person("ann", PEOPLE, &["a"]));
    let (ann, bob) = (dn("ann", PEOPLE), dn("bob", PEOPLE));
    // The entry that comes first in the store gets what the other one gives up.
    let swap = [
        modify(&ann, &[(Replace, "uid", &["c"])]),
        modify(&bob, &[(Replace, "uid", &["a"])]),
        modify(&ann, &[(Replace, "uid", &["b"])]),
    ];
    succeed(&directory, transaction(swap.to_vec()));
    let failing = vec![
        modify(&ann, &[(Replace, "uid", &["d"])]),
        modify(&bob, &[(Replace, "uid", &["d"])]),
    ];
    let outcome = refused(
        &directory,
        transaction(failing),
        ResultCode::ConstraintViolation,
    );
    assert_eq!(outcome.settlement.unwrap().failed, Some(2));
    succeed(&directory, person("eve", PEOPLE, &["d"]));
}

#[test]
fn the_updates_of_a_transaction_look_at_as_many_entries_as_one_does() {
    if <On as Engine>::REMOTE {
        // A thousand candidates that are not here at first take a minute.
        return;
    }
    // The entries above them count once besides.
    const ELSEWHERE: usize = 990;
    let directory = directory(vec![rule(&["uid"], PEOPLE)]);
    for number in 0..ELSEWHERE {
        succeed(&directory, person(&format!("o{number}"), OTHERS, &["x"]));
    }
    let give = |value: &str| modify(&dn("ann", PEOPLE), &[(Replace, "uid", &[value])]);
    succeed(&directory, person("ann", PEOPLE, &["a"]));
    let both = || [give("x"), give("y")];
    let of = |times: usize| transaction((0..times).flat_map(|_| both()).collect());
    succeed(&directory, of(10));
    let outcome = refused(&directory, of(11), ResultCode::AdminLimitExceeded);
    assert!(outcome.diagnostic.starts_with("uid: "), "{outcome:?}");
    // By themselves each of them may.
    for _ in 0..11 {
        both()
            .into_iter()
            .for_each(|update| succeed(&directory, update));
    }
}

#[test]
fn a_base_bounds_where_values_are_unique() {
    let directory = directory(vec![rule(&["uid"], PEOPLE)]);
    succeed(&directory, person("ann", PEOPLE, &["x"]));
    succeed(&directory, person("bob", OTHERS, &["x"]));
    succeed(&directory, person("eve", OTHERS, &["x"]));
    not_unique(&directory, person("may", PEOPLE, &["x"]));
    // An entry that moves there brings its values along.
    let bob = dn("bob", OTHERS);
    not_unique(&directory, rename(&bob, "cn=bob", false, Some(PEOPLE)));
    succeed(&directory, modify(&bob, &[(Replace, "uid", &["z"])]));
    succeed(&directory, rename(&bob, "cn=bob", false, Some(PEOPLE)));
    not_unique(&directory, person("may", PEOPLE, &["z"]));
    succeed(
        &directory,
        rename(&dn("ann", PEOPLE), "cn=ann", false, Some(OTHERS)),
    );
    succeed(&directory, person("may", PEOPLE, &["x"]));
    // One with others below it would bring theirs, which nobody has looked at.
    succeed(&directory, person("below", &dn("eve", OTHERS), &["z"]));
    let eve = dn("eve", OTHERS);
    let to_people = rename(&eve, "cn=eve", false, Some(PEOPLE));
    refused(&directory, to_people, ResultCode::UnwillingToPerform);
    succeed(&directory, rename(PEOPLE, "ou=People", false, None));
    succeed(&directory, rename(PEOPLE, "ou=peoples", false, None));
    let to_base = rename(OTHERS, "ou=people", false, None);
    refused(&directory, to_base, ResultCode::UnwillingToPerform);
}

#[test]
fn many_values_of_one_entry_are_unique_too() {
    let directory = directory(vec![rule(&["uid"], PEOPLE)]);
    let many: Vec<String> = (0..40).map(|n| format!("u{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    succeed(&directory, person("ann", PEOPLE, &many));
    not_unique(&directory, person("bob", PEOPLE, &["u17"]));
    succeed(&directory, person("bob", PEOPLE, &["v"]));
    not_unique(
        &directory,
        modify(&dn("ann", PEOPLE), &[(Add, "uid", &["v"])]),
    );
    succeed(
        &directory,
        modify(&dn("ann", PEOPLE), &[(Delete, "uid", &["u17"])]),
    );
    succeed(
        &directory,
        modify(&dn("bob", PEOPLE), &[(Add, "uid", &["u17"])]),
    );
    // Those of one that moves, of which none is changed.
    succeed(&directory, person("eve", OTHERS, &many));
    let there = rename(&dn("eve", OTHERS), "cn=eve", false, Some(PEOPLE));
    not_unique(&directory, there);
}

#[test]
fn a_rule_that_cannot_be_kept_is_told_of() {
    let open = |unique| {
        let engine = engine();
        Directory::create_on(engine, &with_rules(config(), unique), options())
    };
    for (wrong, word) in [
        (rule(&[], ""), "one at least"),
        (rule(&["nonsense"], ""), "nonsense"),
        (rule(&["userPassword"], ""), "userPassword"),
        (rule(&["jpegPhoto"], ""), "jpegPhoto"),
        (rule(&["uid"], "no dn"), "no dn"),
        (rule(&["uid"], "o=elsewhere"), "o=elsewhere"),
    ] {
        let error = open(vec![wrong]).err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
    // Without an index it is refused at the start, and until there is one each update of the attribute is.
    let directory = open(vec![rule(&["mail"], "")]).unwrap();
    let error = directory.check_rules().unwrap_err().to_string();
    assert!(error.contains("sapwood index DIR add mail eq"), "{error}");
    seed(&directory);
    let with_mail = |name: &str| {
        let lines = format!("objectClass: inetOrgPerson\ncn: {name}\nsn: x\nmail: a@example.com");
        add(&dn(name, SUFFIX), &lines)
    };
    refused(&directory, with_mail("ann"), ResultCode::UnwillingToPerform);
    let index = IndexDefinition {
        attribute: "mail".into(),
        equality: true,
        ..IndexDefinition::default()
    };
    directory.add_index(&index, |_| {}).unwrap();
    directory.check_rules().unwrap();
    succeed(&directory, with_mail("ann"));
    refused(
        &directory,
        with_mail("bob"),
        ResultCode::ConstraintViolation,
    );
    let error = directory.drop_index(&index).unwrap_err().to_string();
    assert!(error.contains("drop the rule"), "{error}");
}

#[test]
fn entries_in_other_stores_count() {
    let stores = config_in_stores().stores(&schema()).unwrap();
    let engine = engine_in(stores);
    let config = with_rules(config_in_stores(), vec![rule(&["uid"], "")]);
    let directory = Directory::create_on(engine, &config, options()).unwrap();
    begin(&directory);
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    for (at, base) in [PEOPLE, OTHERS, SUFFIX, "o=other"].iter().enumerate() {
        let uid = format!("u{at}");
        succeed(&directory, person("ann", base, &[&uid]));
        for other in [PEOPLE, OTHERS, SUFFIX, "o=other"] {
            not_unique(&directory, person("bob", other, &[&uid]));
        }
    }
    // All writers are one for it.
    let request = person("bob", "o=other", &["x"]);
    let all: Vec<u16> = (0..stores).collect();
    let shards = directory.shards(&request);
    assert!(
        all.iter().all(|store| shards.contains(*store)),
        "{shards:?}"
    );
}

/// Random updates in batches, beside a model that knows which values are taken.
#[test]
fn values_are_unique_whatever_happens() {
    let mut random = Random::new(7);
    for base in ["", PEOPLE] {
        let directory = directory(vec![rule(&["uid"], base)]);
        let covers = |name: &str| base.is_empty() || name.ends_with(base);
        let mut model: Vec<(String, Vec<String>)> = Vec::new();
        for _ in 0..120 {
            let mut requests = Vec::new();
            let mut expected = Vec::new();
            for _ in 0..random.below(8) + 1 {
                let at_base = if random.once_in(2) { PEOPLE } else { OTHERS };
                let name = dn(&format!("p{}", random.below(12)), at_base);
                let uids: Vec<String> = match random.once_in(3) {
                    true => vec![
                        format!("u{}", random.below(6)),
                        format!("w{}", random.below(6)),
                    ],
                    false => vec![format!("u{}", random.below(6))],
                };
                let there = model.iter().position(|(known, _)| *known == name);
                let is_taken = covers(&name)
                    && model.iter().any(|(other, theirs)| {
                        *other != name
                            && covers(other)
                            && theirs.iter().any(|uid| uids.contains(uid))
                    });
                let values: Vec<&str> = uids.iter().map(String::as_str).collect();
                let (request, code) = match there {
                    Some(at) if random.once_in(4) => {
                        model.remove(at);
                        (delete(&name), ResultCode::Success)
                    }
                    Some(_) => {
                        let request = modify(&name, &[(Replace, "uid", &values)]);
                        (
                            request,
                            if is_taken {
                                ResultCode::ConstraintViolation
                            } else {
                                ResultCode::Success
                            },
                        )
                    }
                    None => {
                        let short = name.split(',').next().unwrap().trim_start_matches("cn=");
                        let request = person(short, at_base, &values);
                        (
                            request,
                            if is_taken {
                                ResultCode::ConstraintViolation
                            } else {
                                ResultCode::Success
                            },
                        )
                    }
                };
                let is_delete = there.is_some() && !model.iter().any(|(known, _)| *known == name);
                if code == ResultCode::Success && !is_delete {
                    model.retain(|(known, _)| *known != name);
                    model.push((name, uids));
                }
                requests.push(as_admin(request));
                expected.push(code);
            }
            let outcomes = directory.apply(&requests).unwrap().outcomes;
            let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.code).collect();
            assert_eq!(codes, expected, "{outcomes:?}");
        }
        clean(&directory);
    }
}

const DATA: &str = "olcDatabase={1}mdb,cn=config";
const OVERLAY: &str = "olcOverlay={0}unique,olcDatabase={1}mdb,cn=config";

/// Adds the overlay with a rule.
fn add_rule(uri: &str) -> UpdateRequest {
    let lines = format!(
        "objectClass: olcOverlayConfig\nobjectClass: olcUniqueConfig\nolcOverlay: unique\nolcUniqueURI: {uri}"
    );
    add(&format!("olcOverlay=unique,{DATA}"), &lines)
}

fn uris<E: Engine>(directory: &Directory<E>) -> Vec<UniqueRule> {
    directory.snapshot().unwrap().settings().unique.clone()
}

/// Old values are in nobody's way, and are not looked for.
#[test]
fn what_was_there_before_the_rule_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    {
        let directory = create(&path, &config(), options());
        begin(&directory);
        succeed(&directory, person("ann", PEOPLE, &["x"]));
        succeed(&directory, person("bob", PEOPLE, &["x"]));
        succeed(&directory, add_rule("ldap:///?uid?sub"));
        not_unique(&directory, person("eve", PEOPLE, &["x"]));
    }
    let store = Embedded::open(&path, &sapwood_store::Options::new());
    let directory = Directory::open_on(over(store.unwrap()), options()).unwrap();
    succeed(
        &directory,
        modify(&dn("ann", PEOPLE), &[(Replace, "sn", &["y"])]),
    );
    succeed(
        &directory,
        modify(&dn("ann", PEOPLE), &[(Add, "uid", &["y"])]),
    );
    not_unique(&directory, person("eve", PEOPLE, &["x"]));
}

#[test]
fn rules_come_and_go_with_the_entry_that_shows_them() {
    come_and_go(&in_memory());
    come_and_go(&in_stores());
}

fn come_and_go<E: Engine>(directory: &Directory<E>) {
    begin(directory);
    succeed(directory, person("ann", PEOPLE, &["x"]));
    let code = |request| apply(directory, request).code;
    assert_eq!(code(delete(OVERLAY)), ResultCode::NoSuchObject);
    let change = |kind, values: &[&str]| modify(OVERLAY, &[(kind, "olcUniqueURI", values)]);
    let everywhere = "ldap:///?uid?sub";
    assert_eq!(code(change(Add, &[everywhere])), ResultCode::NoSuchObject);
    // A rule holds from its own commit on, also for what is in the same batch behind it.
    let batch = [
        person("one", OTHERS, &["x"]),
        add_rule(everywhere),
        person("two", OTHERS, &["x"]),
        person("six", "o=other", &["x"]),
    ];
    succeed(
        directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    let batch: Vec<_> = batch.into_iter().map(as_admin).collect();
    let applied = directory.apply(&batch).unwrap();
    applied.ticket.unwrap().wait().unwrap();
    let codes: Vec<_> = applied
        .outcomes
        .iter()
        .map(|outcome| outcome.code)
        .collect();
    let (ok, refused_so) = (ResultCode::Success, ResultCode::ConstraintViolation);
    assert_eq!(codes, [ok, ok, refused_so, refused_so]);
    for base in ["o=other", PEOPLE, OTHERS, SUFFIX] {
        not_unique(directory, person("bob", base, &["x"]));
    }
    let found = search(
        directory,
        &query("cn=config", Scope::Subtree, "(olcUniqueURI=*)"),
    );
    assert!(
        found.entries[0]
            .1
            .contains("olcUniqueURI: ldap:///?uid?sub"),
        "{found:?}"
    );
    assert_eq!(found.dns(), [OVERLAY].into());
    refused(
        directory,
        add_rule(everywhere),
        ResultCode::EntryAlreadyExists,
    );
    let below = format!("ldap:///{OTHERS}?uid,cn?sub");
    for (kind, values, code) in [
        (Add, &[everywhere][..], ResultCode::AttributeOrValueExists),
        (Add, &["ldap:///?uid"], ResultCode::ConstraintViolation),
        (
            Add,
            &["ldap:///?nonsense?sub"],
            ResultCode::UnwillingToPerform,
        ),
        (
            Add,
            &["ldap:///?userPassword?sub"],
            ResultCode::UnwillingToPerform,
        ),
        (
            Add,
            &["ldap:///o=elsewhere?uid?sub"],
            ResultCode::UnwillingToPerform,
        ),
        (Add, &["ldap:///?mail?sub"], ResultCode::UnwillingToPerform),
        (Delete, &[below.as_str()], ResultCode::NoSuchAttribute),
    ] {
        let before = uris(directory);
        let outcome = refused(directory, change(kind, values), code);
        assert!(outcome.diagnostic.contains("olcUniqueURI"), "{outcome:?}");
        assert_eq!(uris(directory), before);
    }
    let size = modify(OVERLAY, &[(Replace, "olcSizeLimit", &["5"])]);
    refused(directory, size, ResultCode::UnwillingToPerform);
    let elsewhere = modify(DATA, &[(Replace, "olcUniqueURI", &[everywhere])]);
    refused(directory, elsewhere, ResultCode::UnwillingToPerform);
    let index = modify(DATA, &[(Delete, "olcDbIndex", &["uid eq"])]);
    refused(directory, index, ResultCode::UnwillingToPerform);
    // Another rule takes its place.
    succeed(directory, change(Replace, &[&below]));
    succeed(directory, person("bob", PEOPLE, &["x"]));
    not_unique(directory, person("bob", OTHERS, &["x"]));
    succeed(directory, delete(&format!("olcOverlay=unique,{DATA}")));
    succeed(directory, person("bob", OTHERS, &["x"]));
    assert_eq!(uris(directory), []);
    refused(directory, delete(DATA), ResultCode::UnwillingToPerform);
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

/// The stores of an update are chosen by the rules that were there when somebody last looked. A rule that has come
/// since is heeded all the same: of two updates in different stores at the same time, one gets the value.
#[test]
fn a_rule_that_nobody_has_seen_yet_holds_across_stores() {
    let directory = in_stores();
    begin(&directory);
    succeed(
        &directory,
        add("o=other", "objectClass: organization\no: other"),
    );
    for round in 0..50 {
        let uid = format!("u{round}");
        succeed(&directory, add_rule("ldap:///?uid?sub"));
        let barrier = Barrier::new(2);
        let add_to = |base: &str| {
            let update = as_admin(person(&uid, base, &[&uid]));
            barrier.wait();
            let applied = directory.apply(&[update]).unwrap();
            if let Some(ticket) = applied.ticket {
                ticket.wait().unwrap();
            }
            applied.outcomes[0].code
        };
        let codes = thread::scope(|scope| {
            let one = scope.spawn(|| add_to(PEOPLE));
            let other = add_to("o=other");
            [one.join().unwrap(), other]
        });
        let made = codes.iter().filter(|code| **code == ResultCode::Success);
        assert_eq!(made.count(), 1, "{codes:?}");
        succeed(&directory, delete(OVERLAY));
        // Seen: without the rule, each has its store.
        assert_eq!(uris(&directory), []);
    }
}
