//! kill -9 leaves what the system has in memory; a power cut does not. Here the server runs on a simulated disk, and at
//! every success response the disk is looked at as a power cut at this moment would leave it: the change must be there.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use sapwood_directory::engine::Embedded;
use sapwood_directory::schema::Schema;
use sapwood_directory::{Compare, CompareOptions, Directory, Identity, Options};
use sapwood_ldap::list::{ChangeKind, ChangesBuf};
use sapwood_ldap::message::{ModifyRequest, Request};
use sapwood_ldap::result::ResultCode;
use sapwood_store::Env;
use sapwood_wal::storage::recording::Disk;
use support::{ADMIN, SUFFIX, TestServer, add_request, message};

/// Bursts of updates, and updates in each.
const BURSTS: u32 = 12;
const BURST: u32 = 5;

/// The directory that is found on the disk when power comes back now.
fn after_a_power_cut(disk: &Disk) -> Directory {
    let disk = Disk::from_image(&disk.synced_image()).unwrap();
    let env = Env::on_storage(Arc::new(disk), &sapwood_store::Options::new()).unwrap();
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    Directory::open_on(Embedded::over(env), Options::new(Schema::standard())).unwrap()
}

fn has_value(directory: &Directory, dn: &str, value: &str) -> bool {
    let admin = Identity::Admin { dn: ADMIN.into() };
    let mut compare = Compare::new(
        directory.snapshot().unwrap(),
        &admin,
        dn,
        b"description",
        value.as_bytes(),
        CompareOptions::default(),
    );
    let outcome = compare.step(u64::MAX).unwrap().unwrap();
    outcome.code == ResultCode::CompareTrue
}

#[test]
fn every_success_response_is_on_the_disk() {
    let disk = Disk::new();
    let env = Env::on_storage(
        Arc::new(disk.clone()),
        &sapwood_store::Options::new().create(true),
    )
    .unwrap();
    let server = TestServer::on("", |_| Embedded::over(env));
    let mut client = server.admin();
    for burst in 0..BURSTS {
        // Adds in one burst, modifies of the same entries in the next.
        let value = format!("value {burst}");
        let dn = |number: u32| format!("cn=d{}-{number},{SUFFIX}", burst / 2);
        let mut requests = Vec::new();
        for number in 0..BURST {
            let (id, dn) = (1000 + number, dn(number));
            if burst % 2 == 0 {
                let name = format!("d{}-{number}", burst / 2);
                let attributes = [
                    ("objectClass", "device"),
                    ("cn", name.as_str()),
                    ("description", value.as_str()),
                ];
                requests.extend(add_request(id, &dn, &attributes));
            } else {
                let mut changes = ChangesBuf::default();
                changes.push(ChangeKind::Replace, b"description", [value.as_bytes()]);
                requests.extend(message(
                    id,
                    Request::Modify(ModifyRequest {
                        dn: &dn,
                        changes: changes.view(),
                    }),
                ));
            }
        }
        client.send(&requests);
        for _ in 0..BURST {
            let answer = client.receive().unwrap();
            assert_eq!(answer.code, ResultCode::Success, "{answer:?}");
            let survivor = after_a_power_cut(&disk);
            assert!(
                has_value(&survivor, &dn(answer.id - 1000), &value),
                "burst {burst}, {answer:?}"
            );
        }
    }
    // The test must be able to fail: what nobody has acknowledged yet is not there.
    assert!(!has_value(
        &after_a_power_cut(&disk),
        &format!("cn=d0-0,{SUFFIX}"),
        "never written"
    ));
}
