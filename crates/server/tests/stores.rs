//! A server over several stores: each has its writer, and clients see one tree in which things happen in the order in
//! which they ask for them.

#![allow(clippy::unwrap_used)]

use sapwood_directory::Partition;
use sapwood_directory::engine::Embedded;
use sapwood_ldap::controls::TRANSACTION_SPECIFICATION;
use sapwood_ldap::extended::{END_TRANSACTION, EndTransaction, START_TRANSACTION};
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{ModifyDnRequest, Request, Scope, SearchRequest};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests::message;
use sapwood_testkit::{Client, SUFFIX, TestServer, requests};

const PEOPLE: &str = "ou=people,dc=example,dc=com";
const OTHER: &str = "o=other";

/// The children of `PEOPLE` are in three stores, `OTHER` has one of its own.
fn server() -> TestServer {
    let contents = sapwood_directory::Config {
        naming_contexts: vec![SUFFIX.into(), OTHER.into()],
        partitions: vec![Partition {
            parent: PEOPLE.into(),
            stores: 3,
        }],
        own_stores: true,
        ..sapwood_directory::Config::default()
    };
    TestServer::of(&contents, "", |_| Embedded::in_memory_with(5).unwrap())
}

fn dn(name: &str) -> String {
    format!("cn={name},{PEOPLE}")
}

fn add_people(id: u32) -> Vec<u8> {
    requests::add(
        id,
        PEOPLE,
        &[("objectClass", "organizationalUnit"), ("ou", "people")],
    )
}

fn add_other(id: u32) -> Vec<u8> {
    requests::add(
        id,
        OTHER,
        &[("objectClass", "organization"), ("o", "other")],
    )
}

fn add_device(id: u32, name: &str) -> Vec<u8> {
    requests::add(id, &dn(name), &[("objectClass", "device"), ("cn", name)])
}

fn rename(id: u32, dn: &str, new_rdn: &str) -> Vec<u8> {
    message(id, requests::rename(dn, new_rdn))
}

/// Sends all at once; all must succeed, in whichever order.
#[track_caller]
fn all_succeed(client: &mut Client, requests: &[Vec<u8>]) {
    client.send(&requests.concat());
    for _ in requests {
        let answer = client.receive().unwrap();
        answer.succeeded();
    }
}

fn found(client: &mut Client, base: &str, filter: &str) -> usize {
    let answers = client.search(base, Scope::Subtree, filter);
    answers
        .iter()
        .filter(|answer| answer.entry.is_some())
        .count()
}

#[test]
fn what_a_client_asks_for_in_one_go_happens_in_order_where_it_matters() {
    let server = server();
    let mut client = server.admin();
    let mut requests = vec![add_people(1)];
    for number in 0..200 {
        let (id, name) = (10 * (number + 1), format!("n{number}"));
        requests.push(add_device(id, &name));
        requests.push(requests::describe(id + 1, &dn(&name), "first"));
        if number % 10 == 0 {
            // From one partition to another, mostly.
            let renamed = format!("r{number}");
            requests.push(rename(id + 2, &dn(&name), &format!("cn={renamed}")));
            requests.push(requests::describe(id + 3, &dn(&renamed), "renamed"));
            requests.push(message(id + 4, Request::Delete(&dn(&renamed))));
            requests.push(add_device(id + 5, &name));
        }
    }
    requests.push(requests::describe(5000, PEOPLE, "all"));
    all_succeed(&mut client, &requests);
    assert_eq!(found(&mut client, PEOPLE, "(objectClass=device)"), 200);
    assert_eq!(found(&mut client, PEOPLE, "(description=first)"), 180);
    assert_eq!(found(&mut client, SUFFIX, "(description=all)"), 1);
    assert_eq!(
        server.directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

#[test]
fn a_transaction_over_all_stores_is_seen_whole_or_not_at_all() {
    let server = server();
    let mut client = server.admin();
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let mut requests = vec![add_people(1), add_other(2)];
    requests.extend(
        names
            .iter()
            .zip(10..)
            .map(|(name, id)| add_device(id, name)),
    );
    all_succeed(&mut client, &requests);
    let mut reader = server.admin();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || looks == 0 {
                // One search sees one moment: as many entries of the newest text as there are, or none.
                for text in ["even", "odd"] {
                    let count = found(&mut reader, PEOPLE, &format!("(description={text})"));
                    assert!(count == 0 || count == 40, "{count} of 40");
                }
                looks += 1;
            }
        });
        for round in 0..20u32 {
            let text = if round % 2 == 0 { "even" } else { "odd" };
            let identifier = client.extended(START_TRANSACTION, None).value.unwrap();
            let member = (TRANSACTION_SPECIFICATION, true, Some(identifier.as_slice()));
            let inside = |update: Vec<u8>| requests::with(&update, &[member]);
            let first = 1000 + 100 * round;
            let mut requests: Vec<_> = names
                .iter()
                .zip(first..)
                .map(|(name, id)| inside(requests::describe(id, &dn(name), text)))
                .collect();
            requests.push(inside(requests::describe(first + 50, OTHER, text)));
            requests.push(inside(requests::describe(first + 51, PEOPLE, "parent")));
            let mut value = Vec::new();
            EndTransaction {
                commit: true,
                identifier: &identifier,
            }
            .encode(&mut value);
            requests.push(requests::extended(
                first + 52,
                END_TRANSACTION,
                Some(&value),
            ));
            // What comes after it in the same go sees what it did.
            requests.push(rename(first + 53, &dn("n0"), "cn=moved"));
            requests.push(rename(first + 54, &dn("moved"), "cn=n0"));
            all_succeed(&mut client, &requests);
            assert_eq!(
                found(&mut client, PEOPLE, &format!("(description={text})")),
                40
            );
            assert_eq!(
                found(&mut client, OTHER, &format!("(description={text})")),
                1
            );
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        looking.join().unwrap();
    });
    assert_eq!(
        server.directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

#[test]
fn the_root_dse_names_all_contexts_and_what_is_outside_is_refused() {
    let server = server();
    let mut client = server.admin();
    let filter = Filter::OBJECT_CLASS_PRESENT;
    let mut selection = OctetStringsBuf::default();
    selection.push(b"namingContexts");
    let search = Request::Search(SearchRequest {
        attributes: selection.view(),
        ..SearchRequest::new("", Scope::Base, filter)
    });
    let answers = client.ask_all(search, &[]);
    assert_eq!(answers[0].values("namingContexts"), [SUFFIX, OTHER]);
    let outside = requests::add(
        77,
        "o=nowhere",
        &[("objectClass", "organization"), ("o", "nowhere")],
    );
    client.tell(&outside).expect(ResultCode::UnwillingToPerform);
    client
        .tell(&add_device(78, "early"))
        .expect(ResultCode::NoSuchObject);
    // A move from one naming context to another.
    all_succeed(
        &mut client,
        &[add_people(80), add_other(81), add_device(82, "here")],
    );
    let op = Request::ModifyDn(ModifyDnRequest {
        dn: &dn("here"),
        new_rdn: "cn=here",
        delete_old_rdn: true,
        new_superior: Some(OTHER),
    });
    client.ask(op).expect(ResultCode::AffectsMultipleDsas);
}
