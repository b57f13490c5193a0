//! An environment of the present format version is still read, as it was written when that was new. Before the first
//! release there are no readers of others.

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

/// What a new version's fixture is made of: `target/tmp/version-N` becomes `tests/fixtures/version-N` when the version
/// is released, and does not change any more.
#[test]
fn what_is_written_now_is_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("version-{FORMAT_VERSION}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    write(&folder);
    holds_what_was_written(&folder);
}

fn write(folder: &Path) {
    let env = Env::open(folder, &options()).unwrap();
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
            txn.create_tree("apart", TreeKind::OUT_OF_LINE).unwrap();
        }
        for n in 0..300 {
            put_out_of_line(&mut txn, n, round);
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
            put_out_of_line(&mut txn, n, round);
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

fn put_out_of_line(txn: &mut WriteTxn, n: u32, round: u32) {
    let id = txn.tree("apart").unwrap().unwrap();
    let key = u64::from(n).to_be_bytes();
    txn.put(id, &key, &value(n + 300 * round)).unwrap();
}

#[test]
fn version_6_is_read() {
    holds_what_was_written(copy_of_fixture().path());
}

fn holds_what_was_written(folder: &Path) {
    let env = Env::open(folder, &options().create(false)).unwrap();
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
    assert_eq!(report.records, 901);
    let snapshot = env.read().unwrap();
    assert_eq!(snapshot.commit().0, 8);
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

fn copy_of_fixture() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(FORMAT_VERSION)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// One of an earlier version is refused with what can be done about it, and so is one of a later version; both stay as
/// they are.
#[test]
fn another_version_is_refused() {
    for version in [2, FORMAT_VERSION - 1, FORMAT_VERSION + 1] {
        let folder = copy_of_fixture();
        let data = folder.path().join("data-0");
        let mut bytes = fs::read(&data).unwrap();
        for page in bytes.chunks_exact_mut(4096).take(2) {
            page[32..36].copy_from_slice(&version.to_le_bytes());
            let sum = sapwood_store::page::checksum(&[&page[4..]]);
            page[..4].copy_from_slice(&sum.to_le_bytes());
        }
        fs::write(&data, &bytes).unwrap();
        for options in [options(), options().read_only(true)] {
            let error = Env::open(folder.path(), &options).unwrap_err();
            assert!(
                matches!(error, Error::UnknownVersion { found, known: 6, .. } if found == version),
                "{error}"
            );
            let is_remedied = error.to_string().contains("export what is there");
            assert_eq!(is_remedied, version < FORMAT_VERSION, "{error}");
        }
        assert!(fs::read(&data).unwrap() == bytes);
    }
}
