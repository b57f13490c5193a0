//! The one that waits for commits is woken by those of the server, and by those of other processes.

#![allow(clippy::unwrap_used)]

use sapwood_directory::engine::Embedded;
use sapwood_directory::schema::Schema;
use sapwood_directory::{ChangeReader, Config, Directory, Options};
use sapwood_server::CommitWaiter;
use sapwood_testkit::directories::{add, succeed};
use sapwood_testkit::{SUFFIX, TestServer, requests};

/// Waits until so many changes are read.
async fn wait_for(
    waiter: &mut CommitWaiter,
    reader: &mut ChangeReader,
    directory: &Directory,
    changes: usize,
) {
    let mut read = 0;
    loop {
        let snapshot = directory.snapshot().unwrap();
        let done = reader.read(&snapshot, |set| {
            read += set.changes().count();
            true
        });
        done.unwrap();
        if read == changes {
            return;
        }
        assert!(waiter.wait().await, "the server runs");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

fn waiter(test: &TestServer) -> CommitWaiter {
    test.server.as_ref().unwrap().commits().unwrap()
}

/// With several stores nobody looks for commits by himself.
#[test]
fn who_waits_is_woken_by_the_writers_of_all_stores() {
    let contents = Config {
        naming_contexts: vec![SUFFIX.into(), "o=other".into()],
        own_stores: true,
        ..Config::default()
    };
    let stores = contents.stores(&Schema::standard()).unwrap();
    let mut test = TestServer::of(&contents, "", |_| Embedded::in_memory_with(stores).unwrap());
    test.add(&[(
        "o=other",
        &[("objectClass", "organization"), ("o", "other")],
    )]);
    let directory = test.directory.clone();
    let mut waiter = waiter(&test);
    let position = directory.snapshot().unwrap().change_position().unwrap();
    let mut reader = directory.read_changes(position);
    let mut client = test.admin();
    let sending = std::thread::spawn(move || {
        for id in 1..41 {
            let dn = if id % 2 == 0 { SUFFIX } else { "o=other" };
            client.tell(&requests::describe(id, dn, "new")).succeeded();
        }
    });
    runtime().block_on(wait_for(&mut waiter, &mut reader, &directory, 40));
    sending.join().unwrap();
    drop(test.server.take());
    let ends = async { while waiter.wait().await {} };
    runtime().block_on(ends);
}

#[test]
fn who_waits_is_woken_by_other_processes() {
    let test = TestServer::start();
    let store = sapwood_store::Options::new();
    let engine = Embedded::open(&test.folder.path().join("data"), &store).unwrap();
    let other = Directory::open_on(engine, Options::new(Schema::standard())).unwrap();
    let mut waiter = waiter(&test);
    for number in 0..3 {
        let dn = format!("ou=u{number},{SUFFIX}");
        succeed(&other, add(&dn, "objectClass: organizationalUnit"));
        assert!(runtime().block_on(waiter.wait()));
    }
}
