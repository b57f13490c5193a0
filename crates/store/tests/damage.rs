//! Damaged files are told, whatever the damage: never a crash, a loop, or an allocation sized by a damaged number.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use sapwood_store::{Env, Error, Options, TreeKind};

fn options() -> Options {
    Options::new().log_bytes(64 << 10).idle_checkpoint(None)
}

const TREES: [(&str, TreeKind); 3] = [
    ("apart", TreeKind::OUT_OF_LINE),
    ("plain", TreeKind::COMPACT),
    ("counted", TreeKind::COUNTED),
];

fn key(tree: &str, n: u32) -> Vec<u8> {
    match tree {
        "apart" => u64::from(n).to_be_bytes().to_vec(),
        _ => n.to_be_bytes().to_vec(),
    }
}

/// An environment whose data file holds something, as does its log.
fn prepare(folder: &Path) {
    let env = Env::open(folder, &options()).unwrap();
    for round in 0_u32..4 {
        let mut txn = env.write().unwrap();
        for (name, kind) in TREES {
            let id = match txn.tree(name).unwrap() {
                Some(id) => id,
                None => txn.create_tree(name, kind).unwrap(),
            };
            for n in (round * 10..600).step_by(7) {
                txn.put(id, &key(name, n), &vec![n as u8; n as usize % 90])
                    .unwrap();
            }
            txn.delete(id, &key(name, round * 7)).unwrap();
        }
        let id = txn.tree("plain").unwrap().unwrap();
        txn.put(id, b"large", &vec![round as u8; 9000]).unwrap();
        txn.commit().unwrap().wait_durable().unwrap();
        if round == 2 {
            env.checkpoint().unwrap();
        }
    }
}

/// Opens, checks, reads everything and writes: each may fail, but must come back.
fn use_it(folder: &Path) -> Result<bool, Error> {
    let env = Env::open(folder, &options().create(false))?;
    let clean = env.check()?.is_clean();
    let snapshot = env.read()?;
    for name in snapshot.tree_names()? {
        let Some(tree) = snapshot.tree(&name)? else {
            continue;
        };
        let mut cursor = tree.cursor();
        for _ in 0..5000 {
            if !cursor.next()? {
                break;
            }
            cursor.record()?;
        }
        tree.get(&key(std::str::from_utf8(&name).unwrap_or_default(), 77))?;
    }
    drop(snapshot);
    let mut txn = env.write()?;
    for (name, _) in TREES {
        if let Some(id) = txn.tree(name)? {
            for n in 0_u32..600 {
                txn.put(id, &key(name, n), &[1; 50])?;
            }
            for n in 0_u32..300 {
                txn.delete(id, &key(name, n))?;
            }
        }
    }
    txn.commit()?.wait_durable()?;
    Ok(clean)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits(
        file in 0_usize..4,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..6),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
        reseal: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
        prepare(&good);
        copy(&good, &bad);
        let name = ["data-0", "data-0", "log.0", "lock"][file];
        let path = bad.join(name);
        let mut bytes = fs::read(&path).unwrap();
        if name == "lock" {
            // It was emptied when the environment was closed.
            bytes.resize(64 << 10, 0);
        }
        // Where there is something: most of both files is empty.
        let used = match name {
            "lock" => bytes.len(),
            _ => bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1,
        };
        for (at, bit) in flips {
            let at = at.index(used);
            bytes[at] ^= 1 << bit;
            if reseal && name == "data-0" {
                // Damage that the checksum does not show: only the structure is left to tell.
                let page = at / 4096 * 4096;
                let sum = sapwood_store::page::checksum(&[&bytes[page + 4..page + 4096]]);
                bytes[page..page + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).unwrap();
        // The lock region's contents mean nothing when nobody has the environment open.
        let used = use_it(&bad);
        if name == "lock" {
            prop_assert!(used.unwrap());
        }
    }
}

#[test]
fn missing_files_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good");
    prepare(&good);
    for name in ["log.0", "data-0", "lock"] {
        let bad = folder.path().join(format!("without {name}"));
        copy(&good, &bad);
        fs::remove_file(bad.join(name)).unwrap();
        let used = use_it(&bad);
        assert_eq!(used.is_ok(), name == "lock", "without {name}: {used:?}");
    }
    // The log of another store is refused.
    let (other, mixed) = (folder.path().join("other"), folder.path().join("mixed"));
    prepare(&other);
    copy(&good, &mixed);
    for entry in fs::read_dir(&other).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("log") {
            fs::copy(entry.path(), mixed.join(entry.file_name())).unwrap();
        }
    }
    assert!(matches!(use_it(&mixed), Err(Error::Damaged(_))));
}
