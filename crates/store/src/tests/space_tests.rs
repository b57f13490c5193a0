//! Space is found again, in bounded time, also when the disk is full.

use std::sync::Arc;

use sapwood_testkit::storage::recording::{Disk, Fault};
use tempfile::TempDir;

use crate::env::Env;
use crate::env::options::Durability;
use crate::env::options::{LOG_BYTES_MIN, Options};
use crate::error::Error;
use crate::format::page::PAGE_BYTES;
use crate::format::pages::WritePages;
use crate::format::tree_record::TreeKind;
use crate::ids::CommitNo;
use crate::txn::{TreeId, WriteTxn};

fn env() -> (TempDir, Env) {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new()
        .idle_checkpoint(None)
        .durability(Durability::Relaxed);
    let env = Env::open(folder.path(), &options).unwrap();
    (folder, env)
}

fn tree(txn: &mut WriteTxn) -> TreeId {
    match txn.tree("t").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::default()).unwrap(),
    }
}

fn change(env: &Env, how: impl FnOnce(&mut WriteTxn, TreeId)) {
    let mut txn = env.write().unwrap();
    let tree = tree(&mut txn);
    how(&mut txn, tree);
    drop(txn.commit().unwrap());
}

/// Everything freed so far can be used again.
fn settle(env: &Env) {
    for _ in 0..2 {
        change(env, |txn, tree| {
            let n = txn.commit_no().0.to_be_bytes();
            txn.put(tree, b"settling", &n).unwrap();
        });
        env.checkpoint().unwrap();
    }
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn small_commits_go_back_and_forth_between_a_few_pages() {
    let (_folder, env) = env();
    change(&env, |txn, tree| {
        for n in 0_u32..2000 {
            txn.put(tree, &n.to_be_bytes(), &[1; 100]).unwrap();
        }
    });
    settle(&env);
    let roots = || env.inner().region.applied_head().unwrap().roots;
    let root = || {
        let catalog = roots().catalog;
        let (name, tree) = catalog.held().unwrap();
        assert_eq!(name, b"t");
        tree.root
    };
    let catalog = *roots().catalog.tree();
    let mut written = 0;
    let mut used = std::collections::BTreeSet::new();
    for round in 0_u32..400 {
        let before = roots();
        change(&env, |txn, tree| {
            let key = 7_u32.to_be_bytes();
            assert!(!txn.put(tree, &key, &[round as u8; 100]).unwrap());
        });
        written += u32::from(roots().free != before.free);
        used.insert(root());
        if round % 100 == 99 {
            env.checkpoint().unwrap();
            assert_clean(&env);
        }
    }
    assert!(written <= 50, "the free list was written {written} times");
    assert!(
        used.len() <= 20,
        "the root has been in {} places",
        used.len()
    );
    assert_eq!(*roots().catalog.tree(), catalog);
    // What a snapshot sees is left alone, and what is freed meanwhile goes elsewhere.
    let snapshot = env.read().unwrap();
    let seen_root = root();
    for round in 0_u32..20 {
        change(&env, |txn, tree| {
            txn.put(tree, &round.to_be_bytes(), &[2; 100]).unwrap();
        });
        assert_ne!(root(), seen_root);
    }
    let seen = snapshot.tree("t").unwrap().unwrap();
    let value = seen.get(&5_u32.to_be_bytes()).unwrap().unwrap();
    assert_ne!(value, [2; 100]);
    assert_clean(&env);
}

/// Pages that are kept for one snapshot after the other, and while their commit is not visible yet, stay known as freed
/// by that commit: if a later one took its place, snapshots that see nothing of them would go on keeping them.
#[test]
fn who_freed_a_page_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path(), &Options::new().idle_checkpoint(None)).unwrap();
    const RECORDS: u32 = 20_000;
    let change = |from: usize, step: usize| {
        let mut txn = env.write().unwrap();
        let (tree, commit) = (tree(&mut txn), txn.commit_no());
        for n in (0..RECORDS).skip(from).step_by(step) {
            txn.put(tree, &n.to_be_bytes(), &[commit.0 as u8; 100])
                .unwrap();
        }
        (commit, txn.commit().unwrap())
    };
    change(0, 1).1.wait_durable().unwrap();
    env.checkpoint().unwrap();
    let mut snapshots: Vec<_> = (0..8)
        .map(|_| {
            change(0, RECORDS as usize).1.wait_durable().unwrap();
            env.read().unwrap()
        })
        .collect();
    let freed_by = |commit: CommitNo| -> u32 {
        let all = env.free_pages().unwrap();
        let of_it = all.iter().filter(|free| free.freed == Some(commit));
        of_it.map(|free| free.pages).sum()
    };
    let (commit, ticket) = change(1, 200);
    let mut newest = None;
    while snapshots.len() > 1 {
        snapshots.pop();
        newest = Some(change(2 + snapshots.len(), 200).1);
    }
    newest.unwrap().wait_durable().unwrap();
    assert!(ticket.is_durable());
    let kept = freed_by(commit);
    assert!(kept >= 100, "{kept} pages are known as freed by {commit}");
    assert_clean(&env);
}

/// One page each.
const VALUE: &[u8] = &[7; PAGE_BYTES - 100];

/// What one snapshot keeps was a record for each commit that had freed some of it, each written by itself.
#[test]
fn what_many_commits_freed_and_one_keeps_is_a_few_records() {
    let (_folder, env) = env();
    change(&env, |txn, tree| {
        for n in 0_u32..6000 {
            txn.put(tree, &n.to_be_bytes(), &[1; 100]).unwrap();
        }
    });
    settle(&env);
    let records = || {
        env.inner()
            .region
            .applied_head()
            .unwrap()
            .roots
            .free
            .records
    };
    let snapshot = env.read().unwrap();
    let before = records();
    // A leaf each.
    for n in (0_u32..6000).step_by(40) {
        change(&env, |txn, tree| {
            txn.put(tree, &n.to_be_bytes(), &[2; 100]).unwrap();
        });
    }
    let more = records() - before;
    assert!((1..30).contains(&more), "{more} records for 150 commits");
    drop(snapshot);
    assert_clean(&env);
}

#[test]
fn pages_freed_by_different_commits_merge() {
    let (_folder, env) = env();
    change(&env, |txn, tree| {
        for n in 0_u32..600 {
            txn.put(tree, &n.to_be_bytes(), VALUE).unwrap();
        }
    });
    // In an order in which no two neighbours are freed by the same commit.
    for part in 0..50 {
        change(&env, |txn, tree| {
            for n in (0_u32..600).filter(|n| n % 50 == part * 7 % 50) {
                assert!(txn.delete(tree, &n.to_be_bytes()).unwrap());
            }
        });
    }
    settle(&env);
    // A few that find nothing, while what they find instead merges; then there is a run for each.
    for n in 0_u32..4 {
        change(&env, |txn, tree| {
            txn.put(tree, &n.to_be_bytes(), &[1; 20 * PAGE_BYTES])
                .unwrap();
        });
    }
    let pages = env.stat().unwrap().pages;
    for n in 10_u32..22 {
        change(&env, |txn, tree| {
            txn.put(tree, &n.to_be_bytes(), &[1; 20 * PAGE_BYTES])
                .unwrap();
        });
    }
    // Of 252 pages that were asked for since, all but the last 21 at most were found.
    let now = env.stat().unwrap().pages;
    assert!(now <= pages + 21, "{pages} pages became {now}");
    assert_clean(&env);
}

/// What many commits have freed here and there is used again from one end of the file to the other.
#[test]
fn pages_are_used_again_in_the_order_of_their_numbers() {
    let (_folder, env) = env();
    change(&env, |txn, tree| {
        for n in 0_u32..4000 {
            txn.put(tree, &n.to_be_bytes(), VALUE).unwrap();
        }
    });
    settle(&env);
    let mut n = 0;
    let mut update = |txn: &mut WriteTxn, tree| {
        n = (n + 1237) % 4000_u32;
        txn.put(tree, &n.to_be_bytes(), VALUE).unwrap();
    };
    for _ in 0..200 {
        change(&env, &mut update);
    }
    settle(&env);
    let mut txn = env.write().unwrap();
    let taken: Vec<u64> = (0..200)
        .map(|_| txn.pages_mut().allocate().unwrap().0)
        .collect();
    drop(txn);
    // Behind those that the roots named.
    let taken = &taken[64..];
    let limit = env.stat().unwrap().pages;
    let ways = taken.windows(2).map(|pages| pages[0].abs_diff(pages[1]));
    let way: u64 = ways.sum();
    assert!(way < 2 * limit, "{way} pages of {limit}: {taken:?}");
}

/// The worst reports about other stores of this kind: a put that looks through the whole free list for a run of pages.
#[test]
fn a_value_of_many_pages_is_put_in_bounded_time_however_fragmented_the_file_is() {
    let (_folder, env) = env();
    for part in 0_u32..40 {
        change(&env, |txn, tree| {
            for n in part * 250..(part + 1) * 250 {
                txn.put(tree, &n.to_be_bytes(), VALUE).unwrap();
            }
        });
    }
    // Every other page is free, each freed by another commit than its neighbours.
    for part in 0_u32..1000 {
        change(&env, |txn, tree| {
            for n in (0..5).map(|n| (n * 1000 + part) * 2) {
                txn.delete(tree, &n.to_be_bytes()).unwrap();
            }
        });
    }
    settle(&env);
    for n in 0_u32..60 {
        change(&env, |txn, tree| {
            let before = txn.pages().examined();
            txn.put(
                tree,
                &[&b"large"[..], &n.to_be_bytes()].concat(),
                &[3; 30 * PAGE_BYTES],
            )
            .unwrap();
            let examined = txn.pages().examined() - before;
            assert!(examined <= 400, "{examined} records of the free list");
        });
    }
    assert_clean(&env);
}

#[test]
fn deleting_works_on_a_full_disk() {
    // The log exists in full before the disk is.
    deleting_works_on_a_disk_that_is_full_after(2400);
}

/// The segments of the log are made when it first reaches them.
#[test]
fn deleting_works_on_a_disk_that_is_full_before_the_log_is_complete() {
    deleting_works_on_a_disk_that_is_full_after(10);
}

fn deleting_works_on_a_disk_that_is_full_after(records: u32) {
    let disk = Disk::new();
    let options = Options::new()
        .log_bytes(4 * LOG_BYTES_MIN)
        .idle_checkpoint(None);
    let open = || Env::on_storage(Arc::new(disk.clone()), &options).unwrap();
    let env = open();
    // Bytes that the log cannot say in fewer.
    let value = |mut word: u32| {
        std::array::from_fn::<u8, 1500, _>(|_| {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 24) as u8
        })
    };
    let mut stored = 0_u32;
    for _ in 0..records {
        change(&env, |txn, tree| {
            txn.put(tree, &stored.to_be_bytes(), &value(stored))
                .unwrap();
        });
        stored += 1;
    }
    disk.fail(0, Fault::NoGrowth, true);
    let full = loop {
        let mut txn = env.write().unwrap();
        let tree = tree(&mut txn);
        let put = txn.put(tree, &stored.to_be_bytes(), &value(stored));
        if let Err(error) = put.and_then(|_| txn.commit()?.wait_durable()) {
            break error;
        }
        stored += 1;
        assert!(stored < 10_000, "the disk is not full");
    };
    assert!(
        matches!(&full, Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull),
        "{full}"
    );
    drop(env);
    let env = open();
    for n in 0..stored {
        change(&env, |txn, tree| {
            assert!(txn.delete(tree, &n.to_be_bytes()).unwrap());
        });
    }
    change(&env, |txn, tree| {
        assert!(txn.put(tree, b"again", &[9; 1500]).unwrap());
    });
    assert_clean(&env);
    disk.heal();
    for n in 0..2400_u32 {
        change(&env, |txn, tree| {
            txn.put(tree, &n.to_be_bytes(), &value(n)).unwrap();
        });
    }
    assert_clean(&env);
}

/// The free list itself shrinks while a commit writes it, and its own pages are free then, even if nothing is left to
/// write.
#[test]
fn no_page_is_lost_while_the_free_list_is_written() {
    for seed in 0..4_u64 {
        let (_folder, env) = env();
        let mut dice = seed;
        let mut below = |end: u64| {
            dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (dice >> 33) % end
        };
        let mut reader = None;
        for round in 0..150_u64 {
            match below(30) {
                0 => env.checkpoint().map(drop).unwrap(),
                1 => reader = Some(env.read().unwrap()),
                2 => reader = None,
                _ => {}
            }
            change(&env, |txn, tree| {
                for _ in 0..below(3) {
                    let who = below(8);
                    for part in 0..below(2) * 30 {
                        let key = [who.to_be_bytes(), part.to_be_bytes()].concat();
                        let value = vec![round as u8; 400 * part as usize];
                        txn.put(tree, &key, &value).unwrap();
                    }
                }
                txn.put(tree, b"sum", &round.to_be_bytes()).unwrap();
            });
            let report = env.check().unwrap();
            let problems = &report.problems;
            assert!(problems.is_empty(), "{seed}, {round}: {problems:#?}");
        }
        drop(reader);
    }
}
