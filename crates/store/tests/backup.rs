//! Full, compacted and incremental backups are restored to what was there when they were made, and to nothing else.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use sapwood_store::page::{PAGE_BYTES, checksum};
use sapwood_store::{
    BackupInfo, CommitNo, Env, Error, KeyOrder, Options, Restore, Result, TreeKind, restore,
};

fn options() -> Options {
    Options::new().log_bytes(1 << 20).idle_checkpoint(None)
}

type Content = BTreeMap<Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>>;

fn content(env: &Env) -> Content {
    let snapshot = env.read().unwrap();
    let mut content = Content::new();
    for name in snapshot.tree_names().unwrap() {
        let tree = snapshot.tree(&name).unwrap().unwrap();
        let mut records = Vec::new();
        let mut cursor = tree.cursor();
        while cursor.next().unwrap() {
            let (key, value) = cursor.record().unwrap().unwrap();
            records.push((key.to_vec(), value.to_vec()));
        }
        assert_eq!(records.len() as u64, tree.record().records);
        content.insert(name, records);
    }
    content
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

fn restore_increments(file: &Path, increments: &[&Path], folder: &Path) -> Result<Vec<CommitNo>> {
    let full = Restore::of(file);
    let increments = increments.iter().copied();
    let restore = increments.fold(full, Restore::increment);
    restore.into_folder(folder)
}

fn restored(file: &Path, increments: &[PathBuf], folder: &Path) -> Env {
    let increments: Vec<&Path> = increments.iter().map(PathBuf::as_path).collect();
    restore_increments(file, &increments, folder).unwrap();
    let env = Env::open(folder, &options()).unwrap();
    assert_clean(&env);
    env
}

const KINDS: [(&str, TreeKind); 6] = [
    ("apart", TreeKind::OUT_OF_LINE),
    ("compact", TreeKind::COMPACT),
    ("counted", TreeKind::COUNTED),
    ("duplicates", TreeKind::DUPLICATES),
    (
        "own order",
        TreeKind {
            order: KeyOrder::Custom,
            ..TreeKind::WHOLE
        },
    ),
    (
        "reverse",
        TreeKind {
            order: KeyOrder::Reverse,
            ..TreeKind::WHOLE
        },
    ),
];

/// A round of changes to all trees: overwriting, large values, many duplicates of a few keys, deletions.
fn change(env: &Env, round: u32) {
    let comparators = sapwood_store::Comparators {
        keys: Some(&|a, b| b.cmp(a)),
        duplicates: None,
    };
    env.set_comparators("own order", comparators);
    let mut txn = env.write().unwrap();
    for (name, kind) in KINDS {
        let tree = match txn.tree(name).unwrap() {
            Some(tree) => tree,
            None => txn.create_tree(name, kind).unwrap(),
        };
        for n in 0..600_u32 {
            let number = n * (round * 2 + 1) % 2000;
            let key = match kind.out_of_line {
                true => u64::from(number).to_be_bytes().to_vec(),
                false => number.to_be_bytes().to_vec(),
            };
            if kind.duplicates.is_some() {
                let key = (number % 7).to_be_bytes();
                txn.put(tree, &key, &(n * 31 + round).to_be_bytes())
                    .unwrap();
            } else if number % 97 == 3 {
                txn.put(tree, &key, &vec![round as u8; 9000 + n as usize])
                    .unwrap();
            } else if number % 5 == round % 5 {
                txn.delete(tree, &key).unwrap();
            } else {
                txn.put(tree, &key, &[round as u8; 100]).unwrap();
            }
        }
    }
    if round == 2 {
        txn.drop_tree("reverse").unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
}

#[test]
fn increments_lead_from_one_backup_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    change(&env, 0);
    let full = folder.path().join("full");
    env.backup(&full).unwrap();
    let mut states = vec![content(&env)];
    let mut increments: Vec<PathBuf> = Vec::new();
    for round in 1..6 {
        change(&env, round);
        if round % 2 == 0 {
            env.checkpoint().unwrap();
        }
        let dest = folder.path().join(format!("increment-{round}"));
        let base = increments.last().unwrap_or(&full);
        env.backup_since(base, &dest).unwrap();
        assert!(env.backup_since(base, &dest).is_err(), "wrote over a file");
        increments.push(dest);
        states.push(content(&env));
    }
    for (taken, state) in states.iter().enumerate() {
        let dest = folder.path().join(format!("restored-{taken}"));
        let copy = restored(&full, &increments[..taken], &dest);
        assert!(content(&copy) == *state, "after {taken} increments");
        // It goes on like any other.
        change(&copy, 9);
        assert_clean(&copy);
        // Its future is not that of the original, so that increments of one must not be mixed with those of the other.
        let mixed = copy.backup_since(&increments[0], folder.path().join("mixed"));
        assert!(matches!(mixed, Err(Error::NotTheBase(_))), "{mixed:?}");
    }
    let paths: Vec<&Path> = increments.iter().map(PathBuf::as_path).collect();
    let refused = |increments: &[&Path]| {
        let dest = folder.path().join("refused");
        let error = restore_increments(&full, increments, &dest).unwrap_err();
        assert!(matches!(error, Error::NotTheBase(_)), "{error}");
        assert!(
            fs::read_dir(&dest).unwrap().next().is_none(),
            "nothing stays"
        );
    };
    refused(&paths[1..]);
    refused(&[paths[0], paths[2]]);
    refused(&[&full]);
}

#[test]
fn an_increment_leads_across_a_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("t", TreeKind::COMPACT).unwrap();
    for n in 0..20_000_u32 {
        txn.put(tree, &n.to_be_bytes(), &[n as u8; 200]).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    let full = folder.path().join("full");
    env.backup(&full).unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.tree("t").unwrap().unwrap();
    for n in (0..20_000_u32).filter(|n| n % 1000 >= 50) {
        txn.delete(tree, &n.to_be_bytes()).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    let done = env.compact(|_| ()).unwrap();
    assert!(done.now < done.before / 2, "{done:?}");
    let increment = folder.path().join("increment");
    env.backup_since(&full, &increment).unwrap();
    let copy = restored(&full, &[increment], &folder.path().join("copy"));
    assert!(content(&copy) == content(&env));
    assert_eq!(
        copy.read().unwrap().store_bytes(),
        env.read().unwrap().store_bytes()
    );
    let copied = fs::metadata(folder.path().join("copy/data-0")).unwrap();
    assert!(copied.len() < done.before, "{} bytes", copied.len());
}

#[test]
fn an_increment_is_as_small_as_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    for round in 0..6 {
        change(&env, round);
    }
    let full = folder.path().join("full");
    env.backup(&full).unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.tree("compact").unwrap().unwrap();
    txn.put(tree, b"one record", b"more").unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    let increment = folder.path().join("increment");
    env.backup_since(&full, &increment).unwrap();
    let pages = fs::metadata(&increment).unwrap().len() / PAGE_BYTES as u64;
    // Its header, and the pages on the way to the record, to its tree, and of the free list.
    assert!(pages <= 3 + 10, "{pages} pages");
}

#[test]
fn a_compacted_backup_has_all_records_and_no_free_page() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    for round in 0..6 {
        change(&env, round);
    }
    let mut txn = env.write().unwrap();
    let packed = TreeKind {
        packed: true,
        ..TreeKind::WHOLE
    };
    let tree = txn.create_tree("packed", packed).unwrap();
    for n in 0..3000_u32 {
        txn.put(tree, &(n * 7 % 3000).to_be_bytes(), b"").unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    let (full, small) = (folder.path().join("full"), folder.path().join("small"));
    env.backup(&full).unwrap();
    env.backup_compacted(&small).unwrap();
    let copy = restored(&small, &[], &folder.path().join("copy"));
    assert!(content(&copy) == content(&env));
    let report = copy.check().unwrap();
    assert_eq!(report.pages_free, 0);
    assert!(report.pages_used < env.check().unwrap().pages_used);
    change(&copy, 7);
    assert_clean(&copy);
    let error = env
        .backup_since(&small, folder.path().join("i"))
        .unwrap_err();
    assert!(matches!(error, Error::NotTheBase(_)), "{error}");
}

/// A full backup and an increment to be damaged.
fn small_increment(folder: &Path) -> (PathBuf, Vec<u8>) {
    let env = Env::open(folder.join("env"), &options()).unwrap();
    change(&env, 0);
    let (full, increment) = (folder.join("full"), folder.join("increment"));
    env.backup(&full).unwrap();
    let mut txn = env.write().unwrap();
    for (name, kind) in KINDS {
        if kind.order == KeyOrder::Bytes {
            let tree = txn.tree(name).unwrap().unwrap();
            txn.put(tree, b"some key", &[1; 500]).unwrap();
        }
    }
    txn.commit().unwrap().wait_durable().unwrap();
    env.backup_since(&full, &increment).unwrap();
    (full, fs::read(increment).unwrap())
}

#[test]
fn a_damaged_increment_is_refused_or_makes_a_sound_store() {
    let folder = tempfile::tempdir().unwrap();
    let (full, bytes) = small_increment(folder.path());
    let increment = folder.path().join("damaged");
    let dest = folder.path().join("dest");
    let attempt = |bytes: &[u8]| {
        fs::write(&increment, bytes).unwrap();
        let _ = fs::remove_dir_all(&dest);
        if restore_increments(&full, &[&increment], &dest).is_ok() {
            assert_clean(&Env::open(&dest, &options()).unwrap());
            return true;
        }
        false
    };
    assert!(attempt(&bytes));
    for length in (0..bytes.len()).step_by(bytes.len() / 20) {
        assert!(!attempt(&bytes[..length]), "cut short to {length}");
    }
    let mut config = ProptestConfig::with_cases(60);
    config.failure_persistence = None;
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let damage = prop::collection::vec((0..bytes.len(), 0..8_u32, any::<bool>()), 1..4);
    runner
        .run(&damage, |damage| {
            let mut bytes = bytes.clone();
            for (at, bit, near_the_beginning) in damage {
                let at = if near_the_beginning { at % 64 } else { at };
                bytes[at] ^= 1 << bit;
            }
            // With a right checksum, so that the rest of the header is looked at.
            let sum = checksum(&[&bytes[16..PAGE_BYTES]]);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            attempt(&bytes);
            Ok(())
        })
        .unwrap();
    // A store as large as an address space is not allocated on its word.
    let mut huge = bytes.clone();
    let meta = &mut huge[PAGE_BYTES..2 * PAGE_BYTES];
    meta[104..112].copy_from_slice(&(1_u64 << 47).to_le_bytes());
    let sum = checksum(&[&meta[4..]]);
    meta[..4].copy_from_slice(&sum.to_le_bytes());
    assert!(!attempt(&huge));
}

#[test]
fn a_backup_of_something_else_is_no_base() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &options()).unwrap();
    change(&env, 0);
    let other = Env::open(folder.path().join("other"), &options()).unwrap();
    change(&other, 0);
    let (foreign, dest) = (folder.path().join("foreign"), folder.path().join("dest"));
    other.backup(&foreign).unwrap();
    let error = env.backup_since(&foreign, &dest).unwrap_err();
    assert!(matches!(error, Error::NotTheBase(_)), "{error}");
    let live = folder.path().join("env").join("data-0");
    assert!(env.backup_since(&live, &dest).is_err(), "it needs its log");
    assert!(!dest.exists());
    assert!(restore(folder.path().join("missing"), &dest).is_err());
}

/// What somebody puts behind a backup belongs to them, and is found behind what the backup says is its own.
#[test]
fn a_backup_says_what_it_is_and_where_it_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let env = Env::open(path("env"), &options()).unwrap();
    (0..3).for_each(|round| change(&env, round));
    let first = env.backup(path("full")).unwrap();
    env.backup_compacted(path("compacted")).unwrap();
    (3..6).for_each(|round| change(&env, round));
    let second = env.backup_since(path("full"), path("increment")).unwrap();
    for (name, commit, since) in [
        ("full", first, None),
        ("compacted", first, None),
        ("increment", second, Some(first)),
    ] {
        let info = BackupInfo::read(path(name)).unwrap();
        assert_eq!((info.commit, info.since), (commit, since), "{name}");
        let bytes = fs::metadata(path(name)).unwrap().len();
        assert!(
            if name == "compacted" {
                bytes <= info.bytes
            } else {
                bytes == info.bytes
            },
            "{name}"
        );
        let mut whole = fs::read(path(name)).unwrap();
        whole.resize(info.bytes as usize, 0);
        whole.extend_from_slice(&[0xa5; 12_345]);
        fs::write(path(name), whole).unwrap();
        assert_eq!(BackupInfo::read(path(name)).unwrap(), info);
    }
    let [full, increment] = [path("full"), path("increment")];
    let env = restored(&full, std::slice::from_ref(&increment), &path("restored"));
    assert_eq!(content(&env).len(), KINDS.len());
    drop(restored(&path("compacted"), &[], &path("again")));
    // One that comes first is told for what it is.
    let told = restore(&increment, path("alone")).unwrap_err();
    assert!(matches!(told, Error::NotTheBase(_)), "{told}");
    let since = format!("since commit {first}");
    assert!(told.to_string().contains(&since), "{told}");
    assert!(BackupInfo::read(path("env").join("data-0")).is_err());
    // What is cut short does not say how long it is.
    let bytes = fs::read(&increment).unwrap();
    for cut in [0, 100, 3 * PAGE_BYTES + 7, 4 * PAGE_BYTES] {
        fs::write(&increment, &bytes[..cut]).unwrap();
        let info = BackupInfo::read(&increment);
        assert!(info.is_err() || info.unwrap().bytes > cut as u64);
    }
}

/// A look in passing costs as much in a large store as in a small one, and sees all roots.
#[test]
fn a_sample_reads_no_more_than_it_may() {
    let env = Env::in_memory(&options()).unwrap();
    for round in 0..40 {
        change(&env, round);
    }
    let roots = KINDS.len() as u64 + 3;
    let all = env.check().unwrap().pages_used;
    for pages_max in [0, 1, 20, 60, 10 * all] {
        let report = env.check_sample(pages_max).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        assert_eq!(report.trees, KINDS.len() as u64);
        let read = report.pages_used;
        assert!(
            read <= pages_max.max(roots) && read + 3 >= KINDS.len() as u64,
            "{read} of {pages_max}"
        );
    }
}
