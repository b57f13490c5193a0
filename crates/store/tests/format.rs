//! An environment of every released format version is still read.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use sapwood_store::{Env, Error, FORMAT_VERSION, Options, TreeKind, WriteTxn};

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/version-{version}"))
}

fn options() -> Options {
    Options::new().log_bytes(64 << 10).idle_checkpoint(None)
}

fn value(n: u32) -> Vec<u8> {
    vec![n as u8; (n % 300) as usize]
}

/// Writes the fixture of the present version: once, when that is released.
#[test]
#[ignore = "writes into the source tree"]
fn write_fixture() {
    let folder = fixture(FORMAT_VERSION);
    assert!(!folder.exists(), "a released format does not change");
    let env = Env::open(&folder, &options()).unwrap();
    // Some of it is in the data file, and some only in the log.
    for round in 0_u32..2 {
        let mut txn = env.write().unwrap();
        for (name, kind) in [("plain", TreeKind::COMPACT), ("counted", TreeKind::COUNTED)] {
            if round == 0 {
                txn.create_tree(name, kind).unwrap();
            }
            put_third(&mut txn, name, round);
        }
        if round == 0 {
            txn.create_tree("apart", TreeKind::APART).unwrap();
        }
        for n in 0..300 {
            put_apart(&mut txn, n, round);
        }
        put_large(&mut txn, round);
        txn.commit().unwrap().wait_durable().unwrap();
        if round == 0 {
            env.checkpoint().unwrap();
        }
    }
    // Each tree by itself.
    for name in ["plain", "counted"] {
        let mut txn = env.write().unwrap();
        put_third(&mut txn, name, 2);
        txn.commit().unwrap().wait_durable().unwrap();
        if name == "plain" {
            env.checkpoint().unwrap();
        }
    }
    // In leaves that a checkpoint has found, some of which the next one finds again, and in those that were made since.
    for round in 2_u32..5 {
        let mut txn = env.write().unwrap();
        put_large(&mut txn, 2);
        for n in (0..300).filter(|n| n % 10 == round) {
            put_apart(&mut txn, n, round);
        }
        txn.commit().unwrap().wait_durable().unwrap();
        if round == 3 {
            env.checkpoint().unwrap();
        }
    }
    drop(env);
    fs::remove_file(folder.join("lock")).unwrap();
}

fn put_third(txn: &mut WriteTxn, name: &str, third: u32) {
    let id = txn.tree(name).unwrap().unwrap();
    for n in (0_u32..300).filter(|n| n % 3 == third) {
        txn.put(id, &n.to_be_bytes(), &value(n)).unwrap();
    }
}

fn put_large(txn: &mut WriteTxn, round: u32) {
    let id = txn.tree("plain").unwrap().unwrap();
    txn.put(id, b"large", &[round as u8; 10_000]).unwrap();
}

fn put_apart(txn: &mut WriteTxn, n: u32, round: u32) {
    let id = txn.tree("apart").unwrap().unwrap();
    let key = u64::from(n).to_be_bytes();
    txn.put(id, &key, &value(n + 300 * round)).unwrap();
}

#[test]
fn version_2_is_read() {
    is_read(2, 4);
}

#[test]
fn version_3_is_read() {
    is_read(3, 4);
}

#[test]
fn version_4_is_read() {
    is_read(4, 6);
}

#[test]
fn version_5_is_read() {
    let env = is_read(5, 8);
    let snapshot = env.read().unwrap();
    let apart = snapshot.tree("apart").unwrap().unwrap();
    for n in 0_u32..300 {
        let round = match n % 10 {
            round @ 2..5 => round,
            _ => 1,
        };
        let there = apart.get(&u64::from(n).to_be_bytes()).unwrap();
        assert_eq!(there, Some(&value(n + 300 * round)[..]), "{n}");
    }
}

fn is_read(version: u32, commit: u64) -> Env {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(version)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let env = Env::open(folder.path(), &options().create(false)).unwrap();
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
    assert_eq!(report.records, if version < 5 { 601 } else { 901 });
    let snapshot = env.read().unwrap();
    assert_eq!(snapshot.commit().0, commit);
    for name in ["plain", "counted"] {
        let tree = snapshot.tree(name).unwrap().unwrap();
        for n in 0_u32..300 {
            assert_eq!(tree.get(&n.to_be_bytes()).unwrap(), Some(&value(n)[..]));
        }
    }
    let counted = snapshot.tree("counted").unwrap().unwrap();
    assert_eq!(counted.rank(&200_u32.to_be_bytes()).unwrap(), 200);
    let plain = snapshot.tree("plain").unwrap().unwrap();
    assert_eq!(plain.get(b"large").unwrap(), Some(&[2; 10_000][..]));
    drop(snapshot);
    env
}

#[test]
fn an_unknown_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Env::open(folder.path(), &options()).unwrap());
    let data = folder.path().join("data-0");
    let mut bytes = fs::read(&data).unwrap();
    for page in bytes.chunks_exact_mut(4096).take(2) {
        page[32..36].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let sum = sapwood_store::page::checksum(&[&page[4..]]);
        page[..4].copy_from_slice(&sum.to_le_bytes());
    }
    fs::write(&data, bytes).unwrap();
    let error = Env::open(folder.path(), &options()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::UnknownVersion {
                found: 6,
                known: 5,
                ..
            }
        ),
        "{error}"
    );
}
