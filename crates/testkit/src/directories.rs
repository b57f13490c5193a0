//! Example directories in memory, and short ways to update them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_directory::engine::{Embedded, Engine, Shy};
use sapwood_directory::schema::{Schema, SchemaBuilder};
use sapwood_directory::{
    Clock, Compare, CompareOptions, Config, Directory, Identity, IndexDefinition, Options, Outcome,
    Partition, Requester, Step, Ticket, Update, UpdateRequest, UuidSource,
};
use sapwood_ldap::list::AttributesBuf;
use sapwood_ldap::message::{AddRequest, ModifyDnRequest, Request};
use sapwood_ldap::result::ResultCode;

use crate::requests::{self, Change, Control};
use crate::{ADMIN, SUFFIX};

/// A clock that goes on by a second with each look at it.
#[derive(Debug, Default)]
pub struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_micros(&self) -> u64 {
        1_700_000_000_000_000 + 1_000_000 * self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// UUIDs counted up.
#[derive(Debug, Default)]
pub struct Counting(AtomicU64);

impl UuidSource for Counting {
    fn uuid(&self) -> [u8; 16] {
        u128::from(self.0.fetch_add(1, Ordering::Relaxed)).to_be_bytes()
    }
}

/// The standard schema, in which options that begin with `x-` are registered.
pub fn schema() -> Schema {
    let mut builder = SchemaBuilder::new();
    builder.attribute_options(&["x-".to_owned()]).unwrap();
    builder.build().unwrap()
}

/// Options with that schema, a ticking clock and counted UUIDs, so that a directory is the same in every run.
pub fn options() -> Options {
    Options {
        clock: Arc::new(Ticking::default()),
        uuids: Arc::new(Counting::default()),
        ..Options::new(schema())
    }
}

/// The definition of the example directory: `dc=example,dc=com` and `o=other`, with indexes of each kind.
pub fn config() -> Config {
    let equality = |attribute: &str| IndexDefinition {
        attribute: attribute.to_owned(),
        equality: true,
        ..IndexDefinition::default()
    };
    Config {
        naming_contexts: vec![SUFFIX.into(), "o=other".into()],
        indexes: vec![
            IndexDefinition {
                substring: true,
                presence: true,
                ..equality("cn")
            },
            equality("uid"),
            equality("member"),
            IndexDefinition {
                ordering: true,
                ..equality("uidNumber")
            },
        ],
        ..Config::default()
    }
}

/// An engine that a suite of tests runs on: the embedded one, by itself or below another.
pub trait TestEngine: Engine {
    /// On top of the embedded engine.
    fn from_embedded(engine: Embedded) -> Self;

    /// The embedded engine.
    fn embedded(&self) -> &Embedded;
}

impl TestEngine for Embedded {
    fn from_embedded(engine: Embedded) -> Self {
        engine
    }

    fn embedded(&self) -> &Embedded {
        self
    }
}

impl TestEngine for Shy<Embedded> {
    fn from_embedded(engine: Embedded) -> Self {
        Shy::over(engine).telling_begins(|| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            assert!(
                !name.starts_with("sessions-"),
                "{name}: a thread that serves connections waits for a snapshot"
            );
        })
    }

    fn embedded(&self) -> &Embedded {
        self.below()
    }
}

/// The example directory, without entries.
pub fn in_memory() -> Directory {
    in_memory_on()
}

/// The same, on another engine.
pub fn in_memory_on<E: TestEngine>() -> Directory<E> {
    let engine = E::from_embedded(Embedded::in_memory().unwrap());
    Directory::create_on(engine, &config(), options()).unwrap()
}

/// Its definition in five stores.
pub fn config_in_stores() -> Config {
    Config {
        partitions: vec![Partition {
            parent: "DC=example,dc=com".into(),
            stores: 3,
        }],
        own_stores: true,
        ..config()
    }
}

/// The same in five stores: the children of the first naming context are spread over three, the other one has its own.
pub fn in_stores() -> Directory {
    in_stores_on()
}

/// The same, on another engine.
pub fn in_stores_on<E: TestEngine>() -> Directory<E> {
    let config = config_in_stores();
    let stores = config.stores(&Schema::standard()).unwrap();
    let engine = E::from_embedded(Embedded::in_memory_with(stores).unwrap());
    Directory::create_on(engine, &config, options()).unwrap()
}

/// The administrator.
pub fn admin() -> Identity {
    Identity::Admin { dn: ADMIN.into() }
}

/// An add of lines `attribute: value`; values of one attribute need not stand together.
pub fn add(dn: &str, lines: &str) -> UpdateRequest {
    let mut grouped: Vec<(&str, Vec<&[u8]>)> = Vec::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (description, value) = line.split_once(": ").unwrap();
        match grouped.iter_mut().find(|(known, _)| *known == description) {
            Some((_, values)) => values.push(value.as_bytes()),
            None => grouped.push((description, vec![value.as_bytes()])),
        }
    }
    let mut list = AttributesBuf::default();
    for (description, values) in grouped {
        list.push(description.as_bytes(), values);
    }
    let attributes = list.view();
    message(Request::Add(AddRequest { dn, attributes }))
}

/// A delete.
pub fn delete(dn: &str) -> UpdateRequest {
    message(Request::Delete(dn))
}

/// A modify.
pub fn modify(dn: &str, changes: &[Change<'_>]) -> UpdateRequest {
    UpdateRequest::Message(requests::modify(MESSAGE_ID, dn, changes))
}

/// A modify DN.
pub fn rename(
    dn: &str,
    new_rdn: &str,
    delete_old_rdn: bool,
    new_superior: Option<&str>,
) -> UpdateRequest {
    message(Request::ModifyDn(ModifyDnRequest {
        dn,
        new_rdn,
        delete_old_rdn,
        new_superior,
    }))
}

/// The same update with controls.
pub fn with(request: UpdateRequest, controls: &[Control<'_>]) -> UpdateRequest {
    let UpdateRequest::Message(bytes) = request else {
        panic!("no message, so without controls of its own")
    };
    UpdateRequest::Message(requests::with(&bytes, controls))
}

/// The control ManageDsaIT (RFC 3296).
pub const MANAGE_DSA_IT: Control<'static> = (sapwood_ldap::controls::MANAGE_DSA_IT, true, None);

const MESSAGE_ID: u32 = 1;

fn message(request: Request<'_>) -> UpdateRequest {
    UpdateRequest::Message(requests::message(MESSAGE_ID, request))
}

/// The update by the administrator.
pub fn as_admin(request: UpdateRequest) -> Update {
    Update {
        requester: Requester::administrator(ADMIN),
        request,
    }
}

/// Applies one update of the administrator, and waits until it is durable.
pub fn apply<E: Engine>(directory: &Directory<E>, request: UpdateRequest) -> Outcome {
    apply_as(directory, admin(), request)
}

/// The same, of anybody.
pub fn apply_as<E: Engine>(
    directory: &Directory<E>,
    identity: Identity,
    request: UpdateRequest,
) -> Outcome {
    let mut applied = directory
        .apply(&[Update {
            requester: directory.requester(identity),
            request,
        }])
        .unwrap();
    if let Some(ticket) = applied.ticket {
        ticket.wait().unwrap();
    }
    applied.outcomes.remove(0)
}

/// Applies an update, which succeeds.
#[track_caller]
pub fn succeed<E: Engine>(directory: &Directory<E>, request: UpdateRequest) {
    let outcome = apply(directory, request);
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
}

/// Applies an update, which is refused with this code, and with a diagnostic unless it is a referral.
#[track_caller]
pub fn refused<E: Engine>(
    directory: &Directory<E>,
    request: UpdateRequest,
    code: ResultCode,
) -> Outcome {
    let outcome = apply(directory, request);
    assert_eq!(outcome.code, code, "{outcome:?}");
    assert!(
        !outcome.diagnostic.is_empty() || code == ResultCode::Referral,
        "{outcome:?}"
    );
    outcome
}

/// The two entries most tests start from.
pub fn seed<E: Engine>(directory: &Directory<E>) {
    succeed(directory, add(SUFFIX, "objectClass: domain\ndc: example"));
    succeed(
        directory,
        add(
            "ou=People,dc=example,dc=com",
            "objectClass: organizationalUnit\nou: People",
        ),
    );
}

/// An add of a person below `ou=People`.
pub fn person(uid: &str) -> UpdateRequest {
    add(
        &format!("uid={uid},ou=People,dc=example,dc=com"),
        &format!("objectClass: inetOrgPerson\nuid: {uid}\ncn: Person {uid}\nsn: {uid}"),
    )
}

/// The entries most tests start from, and one person, `anne`.
pub fn peopled() -> Directory {
    peopled_on()
}

/// The same, on another engine.
pub fn peopled_on<E: TestEngine>() -> Directory<E> {
    let directory = in_memory_on();
    seed(&directory);
    succeed(&directory, person("anne"));
    directory
}

/// Whether a compare is true.
#[track_caller]
pub fn holds<E: Engine>(directory: &Directory<E>, dn: &str, attribute: &str, value: &str) -> bool {
    let options = CompareOptions {
        manage_dsa_it: true,
        ..CompareOptions::default()
    };
    let outcome = compare(directory, dn, attribute, value, options);
    match outcome.code {
        ResultCode::CompareTrue => true,
        ResultCode::CompareFalse | ResultCode::NoSuchAttribute => false,
        _ => panic!("{outcome:?}"),
    }
}

/// The outcome of a compare, which is done in the smallest steps.
pub fn compare<E: Engine>(
    directory: &Directory<E>,
    dn: &str,
    attribute: &str,
    value: &str,
    options: CompareOptions<'_>,
) -> Outcome {
    compare_as(directory, &admin(), dn, attribute, value, options)
}

/// The same, of anybody.
pub fn compare_as<E: Engine>(
    directory: &Directory<E>,
    identity: &Identity,
    dn: &str,
    attribute: &str,
    value: &str,
    options: CompareOptions<'_>,
) -> Outcome {
    let snapshot = directory.snapshot().unwrap();
    let (attribute, value) = (attribute.as_bytes(), value.as_bytes());
    let requester = directory.requester(identity.clone());
    let mut compare = Compare::new(snapshot, &requester, dn, attribute, value, options);
    loop {
        match compare.step(1).unwrap() {
            Step::Done(outcome) => return outcome,
            Step::Fetch => compare.snapshot().fetch().unwrap(),
            Step::More | Step::Room(_) | Step::Wait => {}
        }
    }
}

/// Whether there is an entry with this name.
pub fn exists<E: Engine>(directory: &Directory<E>, dn: &str) -> bool {
    directory
        .snapshot()
        .unwrap()
        .through(|snapshot| snapshot.credentials(dn, usize::MAX))
        .unwrap()
        .is_some()
}
