//! kill -9 of the server while it acknowledges updates: what was acknowledged is there after a restart.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use sapwood_ldap::message::Scope;
use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::sapwood_ok;
use sapwood_testkit::{Client, SUFFIX, requests};

/// How often the server is killed.
const ROUNDS: u64 = 50;
/// Entries that are modified in turn.
const ENTRIES: u32 = 20;
/// Requests that are sent ahead of their answers.
const QUEUE: u32 = 32;
/// The message id of number 0: before it come the bind and the setting up.
const FIRST_ID: u32 = 1000;

/// What update `number` does: every tenth adds a device of its own, the others set the description of one of the shared
/// ones.
fn is_add(number: u32) -> bool {
    number % 10 == 9
}

fn target(number: u32) -> String {
    if is_add(number) {
        format!("cn=new {number},{SUFFIX}")
    } else {
        format!("cn=device {},{SUFFIX}", number % ENTRIES)
    }
}

fn update(number: u32) -> Vec<u8> {
    let (id, dn, text) = (FIRST_ID + number, target(number), number.to_string());
    if !is_add(number) {
        return requests::describe(id, &dn, &text);
    }
    device(id, &format!("new {number}"), &text)
}

/// An add of a device.
fn device(id: u32, name: &str, description: &str) -> Vec<u8> {
    let attributes = [
        ("objectClass", "device"),
        ("cn", name),
        ("description", description),
    ];
    requests::add(id, &format!("cn={name},{SUFFIX}"), &attributes)
}

/// DN and description of each device.
fn devices(client: &mut Client) -> BTreeMap<String, String> {
    let answers = client.search(SUFFIX, Scope::Subtree, "(objectClass=device)");
    answers.last().unwrap().succeeded();
    let devices = answers.into_iter().filter_map(|answer| {
        let description = answer.values("description").concat();
        Some((answer.entry?, description))
    });
    devices.collect()
}

#[test]
fn acknowledged_updates_survive_kill_9() {
    // Pending postings and their merging into the index are part of the updates.
    let folder = Folder::init(&["--index", "description sub", "--index", "cn eq,sub"]);
    let server = folder.serve();
    let mut client = Client::admin(server.address());
    let domain = [("objectClass", "domain"), ("dc", "example")];
    client.tell(&requests::add(2, SUFFIX, &domain)).succeeded();
    for index in 0..ENTRIES {
        let device = device(3, &format!("device {index}"), "0");
        client.tell(&device).succeeded();
    }
    server.stop();

    // The number of the last acknowledged update of each entry, and of the first update not sent.
    let mut acknowledged: BTreeMap<String, u32> = BTreeMap::new();
    let mut next = 1;
    for round in 0..ROUNDS {
        let server = folder.serve();
        let mut client = Client::admin(server.address());
        // The moment moves over the commits: from before the first one on to some dozens later.
        let after = Duration::from_micros((round * 7919) % 60_000);
        let (acknowledges, acknowledges_received) = mpsc::channel::<()>();
        let killer = std::thread::spawn(move || {
            for _ in 0..round % 8 {
                acknowledges_received.recv().unwrap();
            }
            std::thread::sleep(after);
            server.kill();
        });
        let mut answered = next;
        'alive: loop {
            while next < answered + QUEUE {
                if client.try_send(&update(next)).is_err() {
                    break 'alive;
                }
                next += 1;
            }
            let Some(answer) = client.receive() else {
                break;
            };
            let number = answer.succeeded().id - FIRST_ID;
            acknowledged.insert(target(number), number);
            answered += 1;
            // The killer listens to the first few only.
            let _ = acknowledges.send(());
        }
        // Answers that were on their way when the connection broke count as well.
        while let Some(answer) = client.receive() {
            let number = answer.succeeded().id - FIRST_ID;
            acknowledged.insert(target(number), number);
        }
        killer.join().unwrap();

        let report = sapwood_ok(["check".as_ref(), folder.path().as_os_str()]);
        assert!(
            report.contains("Nothing is wrong"),
            "round {round}: {report}"
        );
        let server = folder.serve();
        let devices = devices(&mut Client::admin(server.address()));
        for (dn, number) in &acknowledged {
            let found = devices
                .get(dn)
                .unwrap_or_else(|| panic!("round {round}: {dn} was acknowledged and is gone"));
            let found: u32 = found.parse().unwrap();
            assert!(
                found >= *number,
                "round {round}: {dn} is at {found}, {number} was acknowledged"
            );
            assert!(
                found < next && target(found) == *dn || found == 0,
                "round {round}: {dn} is at {found}"
            );
        }
        server.kill();
    }
    assert!(
        acknowledged.values().max().unwrap() > &u32::try_from(ROUNDS).unwrap(),
        "hardly anything was acknowledged"
    );
}
