//! A directory in memory and short ways to update it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_directory::engine::{Embedded, Engine};
use sapwood_directory::schema::{Schema, SchemaBuilder};
use sapwood_directory::{
    Clock, Compare, CompareOptions, Config, Directory, Identity, IndexDefinition, Options, Outcome,
    Partition, Ticket, Update, UpdateRequest, UuidSource,
};
use sapwood_ldap::control::{Control, Controls, ControlsBuf};
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{AddRequest, Message, ModifyDnRequest, ModifyRequest, Request};
use sapwood_ldap::result::ResultCode;

/// A clock that goes on by a second with each look.
#[derive(Debug, Default)]
pub(crate) struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_micros(&self) -> u64 {
        1_700_000_000_000_000 + 1_000_000 * self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// UUIDs counted up.
#[derive(Debug, Default)]
pub(crate) struct Counting(AtomicU64);

impl UuidSource for Counting {
    fn uuid(&self) -> [u8; 16] {
        u128::from(self.0.fetch_add(1, Ordering::Relaxed)).to_be_bytes()
    }
}

/// The schema of these tests: options that begin with `x-` are registered.
pub(crate) fn schema() -> Schema {
    let mut builder = SchemaBuilder::new();
    builder.attribute_options(&["x-".to_owned()]).unwrap();
    builder.build().unwrap()
}

pub(crate) fn options() -> Options {
    Options {
        clock: Arc::new(Ticking::default()),
        uuids: Arc::new(Counting::default()),
        ..Options::new(schema())
    }
}

pub(crate) fn config() -> Config {
    let equality = |attribute: &str| IndexDefinition {
        attribute: attribute.to_owned(),
        equality: true,
        ..IndexDefinition::default()
    };
    Config {
        naming_contexts: vec!["dc=example,dc=com".into(), "o=other".into()],
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

pub(crate) fn in_memory() -> Directory {
    Directory::create_on(Embedded::in_memory().unwrap(), &config(), options()).unwrap()
}

/// The same in five stores: the children of the first naming context are spread over three, the other one has its own.
pub(crate) fn in_stores() -> Directory {
    let config = Config {
        partitions: vec![Partition {
            parent: "DC=example,dc=com".into(),
            stores: 3,
        }],
        own_stores: true,
        ..config()
    };
    let stores = config.stores(&Schema::standard()).unwrap();
    let engine = Embedded::in_memory_with(stores).unwrap();
    Directory::create_on(engine, &config, options()).unwrap()
}

pub(crate) fn admin() -> Identity {
    Identity::Admin {
        dn: "cn=admin,dc=example,dc=com".into(),
    }
}

pub(crate) fn message(request: Request<'_>, controls: Controls<'_>) -> UpdateRequest {
    let mut bytes = Vec::new();
    Message {
        id: 1,
        op: request,
        controls,
    }
    .encode(&mut bytes);
    UpdateRequest::Message(bytes)
}

/// An add of lines `attribute: value`.
pub(crate) fn add(dn: &str, lines: &str) -> UpdateRequest {
    let mut attributes = AttributesBuf::default();
    let mut grouped: Vec<(&str, Vec<&[u8]>)> = Vec::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (description, value) = line.split_once(": ").unwrap();
        match grouped.iter_mut().find(|(known, _)| *known == description) {
            Some((_, values)) => values.push(value.as_bytes()),
            None => grouped.push((description, vec![value.as_bytes()])),
        }
    }
    for (description, values) in grouped {
        attributes.push(description.as_bytes(), values);
    }
    message(
        Request::Add(AddRequest {
            dn,
            attributes: attributes.view(),
        }),
        Controls::EMPTY,
    )
}

pub(crate) fn delete(dn: &str) -> UpdateRequest {
    message(Request::Delete(dn), Controls::EMPTY)
}

pub(crate) fn modify(dn: &str, changes: &[(ChangeKind, &str, &[&str])]) -> UpdateRequest {
    let mut list = ChangesBuf::default();
    for (kind, description, values) in changes {
        list.push(
            *kind,
            description.as_bytes(),
            values.iter().map(|value| value.as_bytes()),
        );
    }
    message(
        Request::Modify(ModifyRequest {
            dn,
            changes: list.view(),
        }),
        Controls::EMPTY,
    )
}

pub(crate) fn rename(
    dn: &str,
    new_rdn: &str,
    delete_old_rdn: bool,
    new_superior: Option<&str>,
) -> UpdateRequest {
    message(
        Request::ModifyDn(ModifyDnRequest {
            dn,
            new_rdn,
            delete_old_rdn,
            new_superior,
        }),
        Controls::EMPTY,
    )
}

pub(crate) fn manage_dsa_it() -> ControlsBuf {
    let mut controls = ControlsBuf::default();
    controls.push(Control {
        oid: sapwood_ldap::control::MANAGE_DSA_IT,
        critical: true,
        value: None,
    });
    controls
}

pub(crate) fn as_admin(request: UpdateRequest) -> Update {
    Update {
        identity: admin(),
        request,
    }
}

/// Applies one update as the admin.
pub(crate) fn apply<E: Engine>(directory: &Directory<E>, request: UpdateRequest) -> Outcome {
    apply_as(directory, admin(), request)
}

pub(crate) fn apply_as<E: Engine>(
    directory: &Directory<E>,
    identity: Identity,
    request: UpdateRequest,
) -> Outcome {
    let mut applied = directory.apply(&[Update { identity, request }]).unwrap();
    if let Some(ticket) = applied.ticket {
        ticket.wait().unwrap();
    }
    applied.outcomes.remove(0)
}

#[track_caller]
pub(crate) fn succeed<E: Engine>(directory: &Directory<E>, request: UpdateRequest) {
    let outcome = apply(directory, request);
    assert_eq!(outcome.code, ResultCode::Success, "{outcome:?}");
}

#[track_caller]
pub(crate) fn refused<E: Engine>(
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
pub(crate) fn seed<E: Engine>(directory: &Directory<E>) {
    succeed(
        directory,
        add("dc=example,dc=com", "objectClass: domain\ndc: example"),
    );
    succeed(
        directory,
        add(
            "ou=People,dc=example,dc=com",
            "objectClass: organizationalUnit\nou: People",
        ),
    );
}

pub(crate) fn person(uid: &str) -> UpdateRequest {
    add(
        &format!("uid={uid},ou=People,dc=example,dc=com"),
        &format!("objectClass: inetOrgPerson\nuid: {uid}\ncn: Person {uid}\nsn: {uid}"),
    )
}

/// The entries most tests start from, and one person, `anne`.
pub(crate) fn peopled() -> Directory {
    let directory = in_memory();
    seed(&directory);
    succeed(&directory, person("anne"));
    directory
}

/// Whether a compare is true.
#[track_caller]
pub(crate) fn holds<E: Engine>(
    directory: &Directory<E>,
    dn: &str,
    attribute: &str,
    value: &str,
) -> bool {
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
pub(crate) fn compare<E: Engine>(
    directory: &Directory<E>,
    dn: &str,
    attribute: &str,
    value: &str,
    options: CompareOptions<'_>,
) -> Outcome {
    compare_as(directory, &admin(), dn, attribute, value, options)
}

pub(crate) fn compare_as<E: Engine>(
    directory: &Directory<E>,
    identity: &Identity,
    dn: &str,
    attribute: &str,
    value: &str,
    options: CompareOptions<'_>,
) -> Outcome {
    let snapshot = directory.snapshot().unwrap();
    let (attribute, value) = (attribute.as_bytes(), value.as_bytes());
    let mut compare = Compare::new(snapshot, identity, dn, attribute, value, options);
    loop {
        if let Some(outcome) = compare.step(1).unwrap() {
            return outcome;
        }
    }
}

pub(crate) fn exists<E: Engine>(directory: &Directory<E>, dn: &str) -> bool {
    directory
        .snapshot()
        .unwrap()
        .credentials(dn, usize::MAX)
        .unwrap()
        .is_some()
}
