//! Compaction: the file gets smaller, nothing that anybody sees changes, and a power cut at any moment loses nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sapwood_testkit::storage::recording::Disk;
use sapwood_wal::storage::{OpenMode, Storage};

use crate::env::Env;
use crate::env::options::{LOG_BYTES_MIN, Options};
use crate::error::Result;
use crate::format::page::PAGE_BYTES;
use crate::format::tree_record::TreeKind;
use crate::txn::WriteTxn;
use crate::txn::snapshot::Snapshot;

type Records = BTreeSet<(Vec<u8>, Vec<u8>, Vec<u8>)>;

const TREES: [(&str, TreeKind); 5] = [
    ("compact", TreeKind::COMPACT),
    ("counted", TreeKind::COUNTED),
    ("pairs", TreeKind::DUPLICATES),
    ("values", TreeKind::COMPACT),
    ("apart", TreeKind::OUT_OF_LINE),
];

fn open(disk: &Disk) -> Env {
    let options = Options::new()
        .log_bytes(4 * LOG_BYTES_MIN)
        .idle_checkpoint(None);
    Env::on_storage(Arc::new(disk.clone()), &options).unwrap()
}

fn change(env: &Env, how: impl FnOnce(&mut WriteTxn) -> Result<()>) {
    let mut txn = env.write().unwrap();
    how(&mut txn).unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
}

fn scattered(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9e37_79b9).to_be_bytes()
}

/// A key of a tree without duplicates.
fn key(tree: &str, n: u32) -> Vec<u8> {
    match tree {
        "apart" => [scattered(n), [0; 4]].concat(),
        _ => scattered(n).to_vec(),
    }
}

/// A store most of which is free, with something in use everywhere.
fn full_of_holes() -> Disk {
    let disk = Disk::new();
    let env = open(&disk);
    for (name, kind) in TREES {
        change(&env, |txn| txn.create_tree(name, kind).map(drop));
        for part in 0..6_u32 {
            change(&env, |txn| {
                let tree = txn.tree(name)?.unwrap();
                for n in part * 100..part * 100 + 100 {
                    let value = match name {
                        "values" => vec![n as u8; if n.is_multiple_of(3) { 9000 } else { 400 }],
                        _ => vec![n as u8; 200],
                    };
                    match name {
                        // Two keys have so many values that they make trees.
                        "pairs" => txn.put(
                            tree,
                            &[n as u8 % 5 / 2],
                            &[&scattered(n)[..], &[7; 40]].concat(),
                        )?,
                        _ => txn.put(tree, &key(name, n), &value)?,
                    };
                }
                Ok(())
            });
        }
    }
    for (name, _) in TREES {
        change(&env, |txn| {
            let tree = txn.tree(name)?.unwrap();
            for n in (0..600_u32).filter(|n| !n.is_multiple_of(10)) {
                match name {
                    "pairs" => txn.delete_duplicate(
                        tree,
                        &[n as u8 % 5 / 2],
                        &[&scattered(n)[..], &[7; 40]].concat(),
                    )?,
                    _ => txn.delete(tree, &key(name, n))?,
                };
            }
            Ok(())
        });
    }
    env.sync().unwrap();
    env.checkpoint().unwrap();
    drop(env);
    Disk::from_image(&disk.synced_image()).unwrap()
}

fn read(snapshot: &Snapshot) -> Records {
    let mut records = Records::new();
    for (name, _) in TREES {
        let tree = snapshot.tree(name).unwrap().unwrap();
        let mut cursor = tree.cursor();
        while cursor.next().unwrap() {
            let (key, value) = cursor.record().unwrap().unwrap();
            records.insert((name.into(), key.to_vec(), value.to_vec()));
        }
    }
    records
}

fn file_bytes(disk: &Disk) -> u64 {
    disk.open("data-0", OpenMode::Read).unwrap().size().unwrap()
}

/// The value of the one record that changes meanwhile, and all others.
fn count(snapshot: &Snapshot) -> u64 {
    snapshot.tree("count").unwrap().map_or(0, |tree| {
        let count = tree.get(b"count").unwrap().unwrap();
        u64::from_be_bytes(count.try_into().unwrap())
    })
}

fn count_up(env: &Env, disk: &Disk) {
    let next = count(&env.read().unwrap()) + 1;
    disk.note(next * 2);
    change(env, |txn| {
        let tree = match txn.tree("count")? {
            Some(tree) => tree,
            None => txn.create_tree("count", TreeKind::COMPACT)?,
        };
        txn.put(tree, b"count", &next.to_be_bytes()).map(drop)
    });
    disk.note(next * 2 + 1);
}

#[test]
fn the_file_gets_smaller_and_nothing_else_changes() {
    let disk = full_of_holes();
    let env = open(&disk);
    let records = read(&env.read().unwrap());
    let before = file_bytes(&disk);
    let mut told = Vec::new();
    let done = env
        .compact(|now| {
            told.push(now);
            count_up(&env, &disk);
        })
        .unwrap();
    assert!(told.len() > 1 && told[0].now > done.now, "{told:?}");
    assert!(done.now < done.before / 2, "{done:?}");
    assert!(
        done.now <= done.target + 128 * PAGE_BYTES as u64,
        "{done:?}"
    );
    assert!(
        file_bytes(&disk) < before / 2,
        "{} of {before}",
        file_bytes(&disk)
    );
    assert!(env.check().unwrap().is_clean());
    assert!(read(&env.read().unwrap()) == records);
    drop(env);
    let env = open(&disk);
    assert!(env.check().unwrap().is_clean());
    assert!(read(&env.read().unwrap()) == records);
    // It grows again.
    for _ in 0..200 {
        count_up(&env, &disk);
    }
    change(&env, |txn| {
        let tree = txn.tree("values")?.unwrap();
        (0..300_u32).try_for_each(|n| txn.put(tree, &n.to_be_bytes(), &[1; 5000]).map(drop))
    });
    assert!(env.check().unwrap().is_clean());
}

/// There is nothing ahead of what is given up that giving it up could use.
#[test]
fn a_store_that_was_emptied_becomes_small() {
    let disk = Disk::new();
    let env = open(&disk);
    for part in 0..8_u32 {
        change(&env, |txn| {
            let tree = match txn.tree("t")? {
                Some(tree) => tree,
                None => txn.create_tree("t", TreeKind::COMPACT)?,
            };
            (0..100).try_for_each(|n| {
                let key = (part * 100 + n).to_be_bytes();
                txn.put(tree, &key, &[1; 900]).map(drop)
            })
        });
    }
    change(&env, |txn| txn.drop_tree("t").map(drop));
    let done = env.compact(|_| ()).unwrap();
    assert!(done.before > 200 * PAGE_BYTES as u64, "{done:?}");
    assert!(done.now <= 80 * PAGE_BYTES as u64, "{done:?}");
    assert!(env.check().unwrap().is_clean());
    count_up(&env, &disk);
    assert!(env.check().unwrap().is_clean());
}

/// Nothing was there whose change would have changed the records of the trees, which kept all pages before theirs.
#[test]
fn a_store_whose_trees_are_empty_becomes_small() {
    let disk = Disk::new();
    let env = open(&disk);
    change(&env, |txn| {
        txn.create_tree("t", TreeKind::COMPACT).map(drop)
    });
    for is_there in [false, true] {
        for n in 0..400_u32 {
            change(&env, |txn| {
                let tree = txn.tree("t")?.unwrap();
                match is_there {
                    false => txn.put(tree, &n.to_be_bytes(), &[1; 900]).map(drop),
                    true => txn.delete(tree, &n.to_be_bytes()).map(drop),
                }
            });
        }
        // The records of both are in a page that is new.
        let name = if is_there { "after" } else { "before" };
        change(&env, |txn| {
            txn.create_tree(name, TreeKind::COMPACT).map(drop)
        });
    }
    let done = env.compact(|_| ()).unwrap();
    assert!(done.before > 100 * PAGE_BYTES as u64, "{done:?}");
    assert!(done.now <= 80 * PAGE_BYTES as u64, "{done:?}");
    assert!(env.check().unwrap().is_clean());
}

/// Where nothing but values out of line is left, and they live everywhere.
#[test]
fn values_out_of_line_move_to_the_front() {
    let disk = Disk::new();
    let env = open(&disk);
    for (name, kind) in [
        ("front", TreeKind::COMPACT),
        ("apart", TreeKind::OUT_OF_LINE),
    ] {
        for part in 0..12_u32 {
            change(&env, |txn| {
                let tree = match txn.tree(name)? {
                    Some(tree) => tree,
                    None => txn.create_tree(name, kind)?,
                };
                (0..100).try_for_each(|n| {
                    let value = vec![n as u8; 300 + n as usize * 9];
                    txn.put(tree, &key(name, part * 100 + n), &value).map(drop)
                })
            });
        }
    }
    let values = |env: &Env| {
        let snapshot = env.read().unwrap();
        let tree = snapshot.tree("apart").unwrap().unwrap();
        let (mut values, mut cursor) = (Records::new(), tree.cursor());
        while cursor.next().unwrap() {
            let (key, value) = cursor.record().unwrap().unwrap();
            values.insert((Vec::new(), key.to_vec(), value.to_vec()));
        }
        values
    };
    let before = values(&env);
    change(&env, |txn| txn.drop_tree("front").map(drop));
    let reader = env.read().unwrap();
    env.compact(|_| ()).unwrap();
    // What it keeps from being given up it sees as it was.
    assert!(env.check().unwrap().is_clean());
    let tree = reader.tree("apart").unwrap().unwrap();
    for (_, key, value) in &before {
        assert_eq!(tree.get(key).unwrap(), Some(&value[..]));
    }
    drop(reader);
    let done = env.compact(|_| ()).unwrap();
    assert!(done.now < done.before * 2 / 3, "{done:?}");
    assert!(done.now <= done.target + 64 * PAGE_BYTES as u64, "{done:?}");
    assert!(env.check().unwrap().is_clean());
    assert!(values(&env) == before);
    // It grows again.
    change(&env, |txn| {
        let tree = txn.tree("apart")?.unwrap();
        (0..300).try_for_each(|n| txn.put(tree, &key("apart", n), &[1; 500]).map(drop))
    });
    assert!(env.check().unwrap().is_clean());
    drop(env);
    assert!(open(&disk).check().unwrap().is_clean());
}

#[test]
fn what_a_reader_sees_stays_until_it_is_gone() {
    let disk = full_of_holes();
    let env = open(&disk);
    let reader = env.read().unwrap();
    let records = read(&reader);
    let kept = env.compact(|_| ()).unwrap();
    for _ in 0..20 {
        count_up(&env, &disk);
    }
    assert!(read(&reader) == records);
    drop(reader);
    let done = env.compact(|_| ()).unwrap();
    assert!(done.now < kept.now / 2, "{done:?} after {kept:?}");
    assert!(read(&env.read().unwrap()) == records);
    assert!(env.check().unwrap().is_clean());
}

/// Somebody commits at any moment, also between the end of the store and that of its file.
fn compact_beside_a_writer(env: &Env, disk: &Disk) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                count_up(env, disk);
            }
        });
        let compacted = env.compact(|_| ());
        over.store(true, Ordering::Relaxed);
        let done = compacted.unwrap();
        assert!(done.now < done.before, "{done:?}");
    });
}

#[test]
fn a_power_cut_while_compacting_loses_nothing() {
    for seed in 0..2 {
        let disk = full_of_holes();
        let env = open(&disk);
        let records = read(&env.read().unwrap());
        if seed == 0 {
            env.compact(|_| count_up(&env, &disk)).unwrap();
        } else {
            compact_beside_a_writer(&env, &disk);
        }
        for _ in 0..5 {
            count_up(&env, &disk);
        }
        drop(env);
        for crash in disk.crashes(seed, 40) {
            let disk = Disk::from_image(crash.image()).unwrap();
            let env = open(&disk);
            let report = env.check().unwrap();
            assert!(report.is_clean(), "{crash}: {:?}", report.problems);
            let snapshot = env.read().unwrap();
            assert!(read(&snapshot) == records, "{crash}");
            let notes = crash.notes().iter();
            let tried = notes.clone().map(|note| note / 2).max().unwrap_or(0);
            let sure = notes.filter(|note| *note % 2 == 1).map(|note| note / 2);
            let sure = sure.max().unwrap_or(0);
            let count = count(&snapshot);
            assert!((sure..=tried).contains(&count), "{crash}: {count}");
            drop(snapshot);
            // And it can be compacted to the end.
            env.compact(|_| ()).unwrap();
            assert!(env.check().unwrap().is_clean(), "{crash}");
            assert!(read(&env.read().unwrap()) == records, "{crash}");
        }
    }
}
