//! Commits that the log does not have.

use sapwood_testkit::storage::recording::{Disk, Image};

use crate::commit::Ticket;
use crate::env::Env;
use crate::env::file_names::DATA_NAME;
use crate::env::options::{Durability, Options};
use crate::format::page::PAGE_BYTES;
use crate::format::tree_record::TreeKind;
use crate::sync::Arc;

fn open(disk: &Disk) -> Env {
    let options = Options::new().idle_checkpoint(None);
    Env::on_storage(Arc::new(disk.clone()), &options).unwrap()
}

fn count(env: &Env, durability: Durability) -> Ticket {
    let mut txn = env.write().unwrap();
    let tree = match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
    };
    let count = txn.commit_no().0;
    txn.put(tree, b"count", &count.to_be_bytes()).unwrap();
    txn.commit_with(durability).unwrap()
}

/// The commit that a power cut leaves.
fn left_of(image: &Image) -> u64 {
    let env = open(&Disk::from_image(image).unwrap());
    assert!(env.check().unwrap().is_clean());
    env.read().unwrap().commit().0
}

#[test]
fn the_log_has_none_after_many_that_nobody_waits_for() {
    let disk = Disk::new();
    let env = open(&disk);
    count(&env, Durability::Durable).wait_durable().unwrap();
    let end = || env.inner().wal.as_ref().unwrap().end();
    let logged = count(&env, Durability::Relaxed);
    let before = end();
    let tickets = [(); 5].map(|()| count(&env, Durability::Relaxed));
    assert_eq!(end(), before);
    assert!(tickets.iter().all(Ticket::is_visible));
    assert!(!tickets[0].is_durable());
    // The log has what was before them, and more is not needed for that.
    logged.wait_durable().unwrap();
    assert!(logged.is_durable() && !tickets[0].is_durable());
    assert_eq!(left_of(&disk.synced_image()), logged.commit().0);
    tickets[2].wait_durable().unwrap();
    assert!(tickets.iter().all(Ticket::is_durable));
    assert_eq!(left_of(&disk.synced_image()), tickets[4].commit().0);
}

#[test]
fn a_durable_commit_makes_those_before_it_durable() {
    let disk = Disk::new();
    let env = open(&disk);
    let tickets = [(); 5].map(|()| count(&env, Durability::Relaxed));
    assert!(!tickets[4].is_durable());
    let last = count(&env, Durability::Durable);
    assert!(tickets.iter().all(Ticket::is_durable));
    last.wait_durable().unwrap();
    assert_eq!(left_of(&disk.synced_image()), last.commit().0);
    // Both meta pages lead there.
    for slot in 0..2 {
        let mut image = disk.synced_image();
        image.damage(DATA_NAME, slot * PAGE_BYTES as u64 + 40, |byte| *byte ^= 1);
        assert_eq!(left_of(&image), last.commit().0);
    }
}

#[test]
fn closing_keeps_them() {
    let disk = Disk::new();
    let env = open(&disk);
    let last = [(); 5].map(|()| count(&env, Durability::Relaxed).commit().0)[4];
    drop(env);
    assert_eq!(left_of(&disk.synced_image()), last);
}
