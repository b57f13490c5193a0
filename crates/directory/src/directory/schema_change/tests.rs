//! Changes of the schema in a directory with more entries than are looked at in one go.

use sapwood_ldap::controls::Controls;
use sapwood_ldap::list::ChangeKind::{self, Add, Delete, Replace};
use sapwood_ldap::message::{Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Answer, requests};

use super::*;
use crate::engine::{Embedded, Shy};
use crate::schema::Schema;
use crate::{
    Budget, Config, Options, Outcome, Requester, Search, SearchOptions, Step, Update,
    UpdateRequest, Wire,
};

const BASE: &str = "dc=example,dc=com";
const SCHEMA: &str = "cn=schema,cn=config";
const BADGE: &str = "( 1.3.6.1.4.1.99999.1 NAME 'badge' EQUALITY caseIgnoreMatch \
     SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )";
const OWNER: &str = "( 1.3.6.1.4.1.99999.2 NAME 'badgeOwner' SUP top AUXILIARY MAY badge )";
/// Entries besides the first one: more than three parts.
const PEOPLE: u64 = 3 * RECORDS_AT_ONCE;

fn apply<E: Engine>(directory: &Directory<E>, message: Vec<u8>) -> Outcome {
    let update = Update {
        requester: Requester::administrator("cn=admin"),
        request: UpdateRequest::Message(message),
    };
    let mut applied = directory.apply(&[update]).unwrap();
    if let Some(ticket) = applied.ticket {
        ticket.wait().unwrap();
    }
    applied.outcomes.remove(0)
}

#[track_caller]
fn succeed<E: Engine>(directory: &Directory<E>, message: Vec<u8>) {
    let outcome = apply(directory, message);
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
}

#[track_caller]
fn refused<E: Engine>(directory: &Directory<E>, message: Vec<u8>, code: ResultCode, part: &str) {
    let outcome = apply(directory, message);
    assert_eq!(outcome.code, code, "{outcome:?}");
    assert!(outcome.diagnostic.contains(part), "{outcome:?}");
}

fn modify(dn: &str, changes: &[(ChangeKind, &str, &[&str])]) -> Vec<u8> {
    requests::modify(1, dn, changes)
}

fn person(number: u64) -> String {
    format!("cn=p{number},{BASE}")
}

fn add_person<E: Engine>(directory: &Directory<E>, number: u64) {
    let name = format!("p{number}");
    let attributes = [
        ("objectClass", "person"),
        ("cn", name.as_str()),
        ("sn", "x"),
        ("seeAlso", BASE),
    ];
    succeed(directory, requests::add(1, &person(number), &attributes));
}

fn wear(number: u64) -> Vec<u8> {
    modify(
        &person(number),
        &[
            (Add, "objectClass", &["badgeOwner"]),
            (Add, "badge", &["7"]),
        ],
    )
}

fn take_off(number: u64) -> Vec<u8> {
    modify(
        &person(number),
        &[
            (Delete, "badge", &[]),
            (Delete, "objectClass", &["badgeOwner"]),
        ],
    )
}

/// Only the type: the class may stay without it.
fn remove_badge() -> Vec<u8> {
    modify(
        SCHEMA,
        &[
            (Delete, "olcObjectClasses", &[OWNER]),
            (Delete, "olcAttributeTypes", &[BADGE]),
        ],
    )
}

/// People, of whom one has had a badge.
fn directory<E: Engine>(engine: E) -> Directory<E> {
    let config = Config {
        naming_contexts: vec![BASE.into()],
        ..Config::default()
    };
    let directory =
        Directory::create_on(engine, &config, Options::new(Schema::standard())).unwrap();
    let attributes = [("objectClass", "domain"), ("dc", "example")];
    succeed(&directory, requests::add(1, BASE, &attributes));
    succeed(
        &directory,
        modify(
            SCHEMA,
            &[
                (Add, "olcAttributeTypes", &[BADGE]),
                (Add, "olcObjectClasses", &[OWNER]),
            ],
        ),
    );
    for number in 0..PEOPLE {
        add_person(&directory, number);
    }
    succeed(&directory, wear(0));
    succeed(&directory, take_off(0));
    directory
}

fn knows_badge<E: Engine>(directory: &Directory<E>) -> bool {
    let snapshot = directory.snapshot().unwrap();
    snapshot.schema().attribute_type(b"badge").is_some()
}

/// What `cn=config` tells of the change.
fn told<E: Engine>(directory: &Directory<E>) -> String {
    let filter = sapwood_ldap::filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest::new(SCHEMA, Scope::Base, filter.as_filter());
    let snapshot = directory.waiting_snapshot().unwrap();
    let requester = Requester::administrator("cn=admin");
    let mut search = Search::new(snapshot, &requester, &request, SearchOptions::default());
    let mut out = Vec::new();
    loop {
        let budget = Budget {
            entries: u32::MAX,
            work: u64::MAX,
            out_bytes: usize::MAX,
        };
        let mut wire = Wire::new(&mut out, 1, Controls::EMPTY);
        match search.step(&mut wire, budget).unwrap() {
            Step::Done(_) => break,
            Step::Fetch => search.snapshot().fetch().unwrap(),
            Step::More | Step::Room(_) | Step::Wait => {}
        }
    }
    let answers = Answer::all(&out);
    let mut values = answers
        .iter()
        .flat_map(|answer| answer.values("sapwoodSchemaChange"));
    values.next().unwrap_or_default()
}

fn is_clean<E: Engine>(directory: &Directory<E>) {
    let problems = directory.check(|_| {}).unwrap().problems;
    assert_eq!(problems, Vec::<String>::new());
}

fn goes_in_parts<E: Engine + Clone>(engine: E) {
    let directory = directory(engine.clone());
    succeed(&directory, remove_badge());
    assert!(knows_badge(&directory), "it is coming");
    assert!(
        told(&directory).starts_with("coming"),
        "{}",
        told(&directory)
    );
    // What is there already goes on; what would need the definition does not come.
    refused(&directory, wear(1), ResultCode::UnwillingToPerform, "badge");
    let named = modify(
        &person(2),
        &[(Replace, "seeAlso", &["badge=7,dc=example,dc=com"])],
    );
    refused(&directory, named, ResultCode::UnwillingToPerform, "badge");
    succeed(&directory, modify(&person(1), &[(Replace, "sn", &["y"])]));
    let other = "( 1.3.6.1.4.1.99999.3 NAME 'coat' SUP name )";
    let other = modify(SCHEMA, &[(Add, "olcAttributeTypes", &[other])]);
    refused(&directory, other.clone(), ResultCode::Busy, "coming");
    // It is done in parts, and begun again after a restart.
    let mut parts = 0;
    let stopped = directory.finish_schema_change(|_| {
        parts += 1;
        parts < 2
    });
    assert_eq!((stopped.unwrap(), parts), (None, 2));
    drop(directory);
    let directory = Directory::open_on(engine, Options::new(Schema::standard())).unwrap();
    assert!(knows_badge(&directory));
    refused(&directory, wear(1), ResultCode::UnwillingToPerform, "badge");
    let mut parts = 0;
    let done = directory.finish_schema_change(|_| {
        parts += 1;
        true
    });
    assert_eq!(done.unwrap(), None);
    assert!(parts >= 3, "{parts}");
    assert!(!knows_badge(&directory));
    assert_eq!(told(&directory), "");
    succeed(&directory, other);
    assert_eq!(directory.finish_schema_change(|_| true).unwrap(), None);
    is_clean(&directory);
    // There is nothing more to do.
    assert_eq!(directory.finish_schema_change(|_| true).unwrap(), None);
}

#[test]
fn a_definition_is_removed_in_parts() {
    goes_in_parts(Embedded::in_memory().unwrap());
    goes_in_parts(Embedded::in_memory_with(2).unwrap());
    goes_in_parts(Shy::over(Embedded::in_memory().unwrap()));
}

fn is_added_in_parts<E: Engine + Clone>(engine: E) {
    let directory = directory(engine.clone());
    let knows = |directory: &Directory<E>, name: &str| {
        let snapshot = directory.snapshot().unwrap();
        snapshot.schema().attribute_type(name.as_bytes()).is_some()
    };
    let definition = |name: &str, number: u32| {
        let text = format!("( 1.3.6.1.4.1.99999.{number} NAME '{name}' SUP name )");
        modify(SCHEMA, &[(Add, "olcAttributeTypes", &[&text])])
    };
    let named = |number, name: &str| {
        let value = format!("{name}=7,dc=example,dc=com");
        modify(&person(number), &[(Replace, "seeAlso", &[&value])])
    };
    let begin = |directory: &Directory<E>, definition| {
        let outcome = apply(directory, definition);
        assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
        outcome.awaits.expect("the answer waits")
    };
    let change = begin(&directory, definition("coat", 5));
    let settled = |directory: &Directory<E>, change: &AwaitedChange| {
        let snapshot = directory.snapshot().unwrap();
        snapshot.settled(change)
    };
    assert_eq!(settled(&directory, &change), None);
    assert!(!knows(&directory, "coat"), "it is coming");
    // Others go on, and nothing comes into its way.
    succeed(&directory, modify(&person(1), &[(Replace, "sn", &["y"])]));
    let refusal = ResultCode::UnwillingToPerform;
    refused(&directory, named(2, "coat"), refusal, "coat");
    // It survives a restart.
    drop(directory);
    let directory = Directory::open_on(engine, Options::new(Schema::standard())).unwrap();
    assert!(!knows(&directory, "coat"));
    let finished = directory.finish_awaited(&change).unwrap();
    assert_eq!(finished, Outcome::SUCCESS);
    assert!(knows(&directory, "coat"));
    assert_eq!(settled(&directory, &change), Some(Outcome::SUCCESS));
    // An entry is in the way, which is found in the last part.
    succeed(&directory, named(PEOPLE - 1, "hat"));
    let change = begin(&directory, definition("hat", 6));
    let given_up = directory.finish_awaited(&change).unwrap();
    assert_eq!(given_up.code, refusal, "{given_up:?}");
    let told = &given_up.diagnostic;
    assert!(told.contains("hat") && told.contains(&person(PEOPLE - 1)));
    assert!(!knows(&directory, "hat"));
    // It is withdrawn.
    let change = begin(&directory, definition("shoe", 7));
    succeed(
        &directory,
        modify(SCHEMA, &[(Delete, "sapwoodSchemaChange", &[])]),
    );
    let withdrawn = settled(&directory, &change).map(|outcome| outcome.code);
    assert_eq!(withdrawn, Some(ResultCode::Canceled));
    is_clean(&directory);
}

#[test]
fn a_definition_is_added_in_parts_and_its_answer_waits() {
    is_added_in_parts(Embedded::in_memory().unwrap());
    is_added_in_parts(Embedded::in_memory_with(2).unwrap());
    is_added_in_parts(Shy::over(Embedded::in_memory().unwrap()));
}

#[test]
fn a_definition_that_an_entry_uses_stays() {
    let directory = directory(Embedded::in_memory().unwrap());
    // Without a class, which an index would tell of at once.
    let last = PEOPLE - 1;
    let named = |value: &str| modify(&person(last), &[(Replace, "seeAlso", &[value])]);
    succeed(&directory, named("badge=7,dc=example,dc=com"));
    succeed(&directory, remove_badge());
    let why = directory.finish_schema_change(|_| true).unwrap().unwrap();
    assert!(
        why.contains(&person(last)) && why.contains("badge"),
        "{why}"
    );
    assert!(knows_badge(&directory));
    assert_eq!(told(&directory), format!("given up: {why}"));
    // It can be used again, and be removed when it is not.
    succeed(&directory, wear(1));
    let outcome = apply(&directory, remove_badge());
    assert_eq!(
        outcome.code,
        ResultCode::UnwillingToPerform,
        "the class is used"
    );
    succeed(&directory, take_off(1));
    succeed(&directory, named(BASE));
    succeed(&directory, remove_badge());
    assert_eq!(directory.finish_schema_change(|_| true).unwrap(), None);
    assert!(!knows_badge(&directory));
    is_clean(&directory);
}

#[test]
fn what_else_needs_a_definition_is_seen_at_the_end() {
    let directory = directory(Embedded::in_memory().unwrap());
    succeed(&directory, remove_badge());
    let index = modify(
        "olcDatabase={1}mdb,cn=config",
        &[(Add, "olcDbIndex", &["badge eq"])],
    );
    succeed(&directory, index);
    let why = directory.finish_schema_change(|_| true).unwrap().unwrap();
    assert!(why.contains("index on badge"), "{why}");
    assert!(knows_badge(&directory));
    is_clean(&directory);
}

#[test]
fn a_change_that_is_coming_can_be_withdrawn() {
    let directory = directory(Embedded::in_memory().unwrap());
    succeed(&directory, remove_badge());
    succeed(
        &directory,
        modify(SCHEMA, &[(Delete, "sapwoodSchemaChange", &[])]),
    );
    assert_eq!(told(&directory), "");
    assert_eq!(directory.finish_schema_change(|_| true).unwrap(), None);
    assert!(knows_badge(&directory));
    succeed(&directory, wear(1));
    is_clean(&directory);
}
