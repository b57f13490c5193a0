//! The rule `unique` over the wire: clients that come at the same time, transactions and bulk updates.

#![allow(clippy::unwrap_used)]

use std::sync::Barrier;

use sapwood_directory::engine::Embedded;
use sapwood_directory::{IndexDefinition, Partition, Settings, UniqueRule};
use sapwood_ldap::controls::{Controls, TRANSACTION_SPECIFICATION};
use sapwood_ldap::extended::{
    END_LBURP, END_TRANSACTION, EndLburp, EndTransaction, LBURP_INCREMENTAL, LBURP_UPDATE,
    LburpUpdate, START_LBURP, START_TRANSACTION, StartLburp, UpdateOperationsBuf,
};
use sapwood_ldap::message::{AddRequest, Request, Scope};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::{Client, SUFFIX, TestServer, requests};

const OTHER: &str = "o=other";

/// The children of the first naming context are in three stores, the other one has one of its own.
fn server() -> TestServer {
    let contents = sapwood_directory::Config {
        naming_contexts: vec![SUFFIX.into(), OTHER.into()],
        indexes: vec![IndexDefinition {
            attribute: "uid".into(),
            equality: true,
            ..IndexDefinition::default()
        }],
        partitions: vec![Partition {
            parent: SUFFIX.into(),
            stores: 3,
        }],
        own_stores: true,
        settings: Settings {
            unique: vec![UniqueRule {
                attributes: vec!["uid".into()],
                base: String::new(),
                name: String::new(),
            }],
            ..Settings::default()
        },
        ..sapwood_directory::Config::default()
    };
    let server = TestServer::of(&contents, "", |_| Embedded::in_memory_with(5).unwrap());
    server.add(&[(OTHER, &[("objectClass", "organization"), ("o", "other")])]);
    server
}

fn account(id: u32, name: &str, base: &str, uid: &str) -> Vec<u8> {
    let attributes = [
        ("objectClass", "inetOrgPerson"),
        ("cn", name),
        ("sn", "x"),
        ("uid", uid),
    ];
    requests::add(id, &format!("cn={name},{base}"), &attributes)
}

fn holders(client: &mut Client, uid: &str) -> usize {
    let of = |base, client: &mut Client| {
        let answers = client.search(base, Scope::Subtree, &format!("(uid={uid})"));
        answers.len() - 1
    };
    of(SUFFIX, client) + of(OTHER, client)
}

#[test]
fn of_clients_that_come_together_one_gets_a_value() {
    const CLIENTS: usize = 6;
    const VALUES: usize = 40;
    let server = server();
    let barrier = Barrier::new(CLIENTS);
    let codes: Vec<Vec<ResultCode>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (server, barrier) = (&server, &barrier);
                scope.spawn(move || {
                    let mut client = server.admin();
                    barrier.wait();
                    let base = if number % 2 == 0 { SUFFIX } else { OTHER };
                    // All at once, so that they come in batches.
                    let first = 100;
                    let mut bytes = Vec::new();
                    for value in 0..VALUES {
                        let name = format!("c{number}v{value}");
                        let id = first + value as u32;
                        bytes.extend(account(id, &name, base, &format!("v{value}")));
                    }
                    client.send(&bytes);
                    let mut codes = vec![ResultCode::Busy; VALUES];
                    for _ in 0..VALUES {
                        let answer = client.receive().unwrap();
                        codes[(answer.id - first) as usize] = answer.code;
                    }
                    codes
                })
            })
            .collect();
        let joined = clients.into_iter().map(|client| client.join().unwrap());
        joined.collect()
    });
    let mut client = server.admin();
    for value in 0..VALUES {
        let of_value: Vec<_> = codes.iter().map(|codes| codes[value]).collect();
        let done = of_value.iter().filter(|code| **code == ResultCode::Success);
        assert_eq!(done.count(), 1, "v{value}: {of_value:?}");
        let refused = of_value
            .iter()
            .filter(|code| **code == ResultCode::ConstraintViolation);
        assert_eq!(refused.count(), CLIENTS - 1, "v{value}: {of_value:?}");
        assert_eq!(holders(&mut client, &format!("v{value}")), 1);
    }
}

#[test]
fn a_transaction_fails_as_a_whole_by_a_value_that_is_taken() {
    let server = server();
    let mut client = server.admin();
    client.tell(&account(2, "ann", SUFFIX, "ann")).succeeded();
    let begun = client.extended(START_TRANSACTION, None);
    let identifier = begun.value.clone().unwrap();
    let of = [(TRANSACTION_SPECIFICATION, true, Some(&identifier[..]))];
    for (id, name, base, uid) in [(10, "bob", OTHER, "bob"), (11, "eve", OTHER, "ann")] {
        let message = requests::with(&account(id, name, base, uid), &of);
        client.tell(&message).succeeded();
    }
    let mut value = Vec::new();
    let identifier = &identifier;
    EndTransaction {
        commit: true,
        identifier,
    }
    .encode(&mut value);
    let ended = client.extended(END_TRANSACTION, Some(&value));
    ended.refused(ResultCode::ConstraintViolation, "uid");
    assert_eq!(holders(&mut client, "bob"), 0);
    assert_eq!(holders(&mut client, "ann"), 1);
}

#[test]
fn a_bulk_update_is_told_which_values_are_taken() {
    let server = server();
    let mut client = server.admin();
    let mut value = Vec::new();
    let update_style = LBURP_INCREMENTAL;
    StartLburp { update_style }.encode(&mut value);
    client.extended(START_LBURP, Some(&value)).succeeded();
    let mut operations = UpdateOperationsBuf::default();
    for (name, base, uid) in [
        ("ann", SUFFIX, "x"),
        ("bob", OTHER, "x"),
        ("eve", OTHER, "y"),
    ] {
        let attributes = [
            ("objectClass", "inetOrgPerson"),
            ("cn", name),
            ("sn", "x"),
            ("uid", uid),
        ];
        let list = requests::attributes(&attributes);
        let (dn, attributes) = (format!("cn={name},{base}"), list.view());
        let add = Request::Add(AddRequest {
            dn: &dn,
            attributes,
        });
        operations.push(&add, Controls::EMPTY);
    }
    let mut value = Vec::new();
    let (sequence_number, operations) = (1, operations.view());
    LburpUpdate {
        sequence_number,
        operations,
    }
    .encode(&mut value);
    let answer = client.extended(LBURP_UPDATE, Some(&value));
    assert_ne!(answer.code, ResultCode::Success, "{answer:?}");
    let mut value = Vec::new();
    EndLburp { sequence_number: 2 }.encode(&mut value);
    client.extended(END_LBURP, Some(&value));
    assert_eq!(holders(&mut client, "x"), 1);
    assert_eq!(holders(&mut client, "y"), 1);
}
