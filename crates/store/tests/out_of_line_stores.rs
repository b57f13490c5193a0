//! Whole stores with a tree whose values stand out of line: checked, copied, compared, while later commits store to its
//! leaves in their places.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sapwood_store::page::PAGE_BYTES;
use sapwood_store::{Change, CommitNo, Env, Options, Restore, Snapshot, TreeKind, Until};
use sapwood_testkit::Random;
use sapwood_testkit::storage::recording::Disk;
use sapwood_wal::storage::{OpenMode, Storage};

type Content = BTreeMap<u64, Vec<u8>>;

const KEYS: u64 = 3000;

fn options() -> Options {
    Options::new().log_bytes(1 << 20).idle_checkpoint(None)
}

fn content(snapshot: &Snapshot) -> Content {
    let mut content = Content::new();
    let Some(tree) = snapshot.tree("apart").unwrap() else {
        return content;
    };
    let mut cursor = tree.cursor();
    while cursor.next().unwrap() {
        let (key, value) = cursor.record().unwrap().unwrap();
        content.insert(u64::from_be_bytes(key.try_into().unwrap()), value.to_vec());
    }
    assert_eq!(content.len() as u64, tree.record().records);
    content
}

fn assert_clean(env: &Env) {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// A commit of `count` changes, most of which replace a value.
fn change(env: &Env, numbers: &mut Random, count: u64) -> CommitNo {
    let mut txn = env.write().unwrap();
    let tree = match txn.tree("apart").unwrap() {
        Some(tree) => tree,
        None => txn.create_tree("apart", TreeKind::OUT_OF_LINE).unwrap(),
    };
    for _ in 0..count {
        let key = (numbers.number() % KEYS).to_be_bytes();
        match numbers.below(40) {
            0 => drop(txn.delete(tree, &key).unwrap()),
            1 => drop(txn.put(tree, &key, &vec![7; numbers.below(9000)]).unwrap()),
            n => drop(
                txn.put(tree, &key, &vec![n as u8; 100 + numbers.below(300)])
                    .unwrap(),
            ),
        }
    }
    txn.commit().unwrap().wait_durable().unwrap()
}

/// Commits that change so few keys that nothing but places is stored.
fn change_in_place(env: &Env, numbers: &mut Random, commits: u64) {
    for _ in 0..commits {
        let known: Vec<u64> = content(&env.read().unwrap()).into_keys().collect();
        let mut txn = env.write().unwrap();
        let tree = txn.tree("apart").unwrap().unwrap();
        for _ in 0..10 {
            let key = known[numbers.below(known.len())];
            let value = vec![numbers.below(256) as u8; 100 + numbers.below(300)];
            txn.put(tree, &key.to_be_bytes(), &value).unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
    }
}

fn filled(folder: &Path, options: &Options) -> (Env, Random) {
    let env = Env::open(folder, options).unwrap();
    let mut numbers = Random::new(1);
    for _ in 0..4 {
        change(&env, &mut numbers, 2000);
    }
    (env, numbers)
}

fn restored(restore: &Restore, folder: &Path) -> Env {
    restore.into_folder(folder).unwrap();
    let env = Env::open(folder, &options()).unwrap();
    assert_clean(&env);
    env
}

#[test]
fn a_store_is_sound_whatever_is_done_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut env, mut numbers) = filled(folder.path(), &options());
    for round in 0..12 {
        let parked = env.read().unwrap();
        let then = content(&parked);
        change_in_place(&env, &mut numbers, 3);
        change(&env, &mut numbers, 700);
        assert!(content(&parked) == then);
        assert_clean(&env);
        drop(parked);
        match round % 4 {
            0 => drop(env.checkpoint().unwrap()),
            1 => {
                drop(env);
                env = Env::open(folder.path(), &options()).unwrap();
            }
            _ => {}
        }
        assert_clean(&env);
    }
    let taken = env.stat().unwrap().segments.unwrap();
    let values = content(&env.read().unwrap()).into_values();
    let values: u64 = values.map(|value| value.len() as u64).sum();
    // A header for each, and what a step of eight bytes takes.
    let headers = content(&env.read().unwrap()).len() as u64 * 40;
    assert!((values..values + headers).contains(&taken.live_bytes));
    assert!(taken.pages * PAGE_BYTES as u64 > taken.live_bytes);
    let mut txn = env.write().unwrap();
    txn.drop_tree("apart").unwrap();
    txn.commit().unwrap().wait_durable().unwrap();
    assert_clean(&env);
    let taken = env.stat().unwrap().segments.unwrap();
    assert_eq!((taken.pages, taken.live_bytes), (0, 0));
}

#[test]
fn what_a_snapshot_sees_is_backed_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: String| folder.path().join(name);
    let (env, mut numbers) = filled(&path("env".into()), &options());
    for round in 0..4 {
        // What was backed up is known by its commit: others go on meanwhile.
        let state = content(&env.read().unwrap());
        let full = path(format!("full-{round}"));
        env.backup(&full).unwrap();
        change_in_place(&env, &mut numbers, 3);
        let copy = restored(&Restore::of(&full), &path(format!("restored-{round}")));
        assert!(content(&copy.read().unwrap()) == state);
        // It goes on like any other.
        change_in_place(&copy, &mut Random::new(5), 3);
        change(&copy, &mut Random::new(9), 3000);
        assert_clean(&copy);
        let compacted = path(format!("compacted-{round}"));
        let state = content(&env.read().unwrap());
        env.backup_compacted(&compacted).unwrap();
        let copy = restored(&Restore::of(&compacted), &path(format!("small-{round}")));
        assert!(content(&copy.read().unwrap()) == state);
        change(&copy, &mut Random::new(9), 3000);
        assert_clean(&copy);
        change(&env, &mut numbers, 800);
    }
}

/// A backup is taken while others store to the leaves that it copies.
#[test]
fn a_backup_is_of_one_commit_while_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: String| folder.path().join(name);
    let (env, mut numbers) = filled(&path("env".into()), &options());
    let mut states = BTreeMap::new();
    let mut full = Vec::new();
    let snapshot = env.read().unwrap();
    states.insert(snapshot.commit(), content(&snapshot));
    drop(snapshot);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            (0..6)
                .map(|n| {
                    let file = path(format!("full-{n}"));
                    (env.backup(&file).unwrap(), file)
                })
                .collect::<Vec<_>>()
        });
        while !taking.is_finished() {
            change_in_place(&env, &mut numbers, 1);
            change(&env, &mut numbers, 50);
            let snapshot = env.read().unwrap();
            states.insert(snapshot.commit(), content(&snapshot));
        }
        full = taking.join().unwrap();
    });
    for (n, (commit, file)) in full.into_iter().enumerate() {
        let copy = restored(&Restore::of(file), &path(format!("restored-{n}")));
        let content = content(&copy.read().unwrap());
        // Every second commit is not in the list.
        if let Some(state) = states.get(&commit) {
            assert!(content == *state, "{commit}");
        }
    }
}

#[test]
fn increments_hold_what_was_stored_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: String| folder.path().join(name);
    let (env, mut numbers) = filled(&path("env".into()), &options());
    let full = path("full".into());
    env.backup(&full).unwrap();
    let mut states = vec![content(&env.read().unwrap())];
    let mut increments: Vec<PathBuf> = Vec::new();
    for round in 0..9 {
        match round % 3 {
            0 => change_in_place(&env, &mut numbers, 1),
            1 => drop(change(&env, &mut numbers, 1200)),
            _ => change_in_place(&env, &mut numbers, 30),
        }
        if round % 4 == 1 {
            env.checkpoint().unwrap();
        }
        let dest = path(format!("increment-{round}"));
        env.backup_since(increments.last().unwrap_or(&full), &dest)
            .unwrap();
        if round == 0 {
            let bytes = std::fs::metadata(&dest).unwrap().len();
            assert!(bytes < 60 * PAGE_BYTES as u64, "{bytes}");
        }
        increments.push(dest);
        states.push(content(&env.read().unwrap()));
        change_in_place(&env, &mut numbers, 1);
    }
    for (taken, state) in states.iter().enumerate() {
        let parts = increments[..taken].iter();
        let restore = parts.fold(Restore::of(&full), |restore, part| restore.increment(part));
        let copy = restored(&restore, &path(format!("restored-{taken}")));
        assert!(content(&copy.read().unwrap()) == *state, "after {taken}");
        change_in_place(&copy, &mut Random::new(5), 3);
        assert_clean(&copy);
    }
}

#[test]
fn the_archive_leads_on_from_any_backup() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: String| folder.path().join(name);
    std::fs::create_dir(path("archive".into())).unwrap();
    // All that a commit does is in the log.
    let with_archive = options().log_bytes(16 << 20);
    let with_archive = with_archive.archive(path("archive".into())).unwrap();
    let (env, mut numbers) = filled(&path("env".into()), &with_archive);
    let mut bases = Vec::new();
    let mut states = BTreeMap::new();
    for round in 0..5 {
        let full = path(format!("full-{round}"));
        let snapshot = env.read().unwrap();
        env.backup(&full).unwrap();
        // The snapshot keeps what is emptied from being used again.
        change_in_place(&env, &mut numbers, 5);
        change(&env, &mut numbers, 1500);
        drop(snapshot);
        let part = path(format!("part-{round}"));
        env.backup_since(&full, &part).unwrap();
        bases.push((full, part));
        change_in_place(&env, &mut numbers, 5);
        if round % 2 == 0 {
            env.checkpoint().unwrap();
        }
        let snapshot = env.read().unwrap();
        states.insert(snapshot.commit(), content(&snapshot));
    }
    env.archive().unwrap();
    for (n, (full, part)) in bases.iter().enumerate() {
        for (m, (commit, state)) in states.iter().enumerate().skip(n) {
            for with_part in [false, true] {
                let mut restore = Restore::of(full);
                if with_part {
                    restore = restore.increment(part);
                }
                let restore = restore.archive(path("archive".into()), Until::Commit(*commit));
                let dest = path(format!("restored-{n}-{m}-{with_part}"));
                let copy = restored(&restore, &dest);
                assert!(content(&copy.read().unwrap()) == *state, "{n} {commit}");
            }
        }
    }
}

#[test]
fn changes_are_told_where_only_places_were_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (env, mut numbers) = filled(folder.path(), &options());
    let mut snapshots = vec![env.read().unwrap()];
    for round in 0..10 {
        match round % 3 {
            0 => change_in_place(&env, &mut numbers, 2),
            1 => drop(change(&env, &mut numbers, 300)),
            _ => {}
        }
        snapshots.push(env.read().unwrap());
    }
    // Moved records are not changed ones.
    change(&env, &mut numbers, 3000);
    snapshots.push(env.read().unwrap());
    for old in &snapshots {
        for new in &snapshots {
            let mut expected = BTreeMap::new();
            let [before, now] = [content(old), content(new)];
            for key in before.keys().chain(now.keys()) {
                let pair = (before.get(key).cloned(), now.get(key).cloned());
                if pair.0 != pair.1 {
                    expected.insert(*key, pair);
                }
            }
            let trees = new.changes_since(old).unwrap();
            assert_eq!(trees.is_empty(), expected.is_empty());
            let mut told = BTreeMap::new();
            for tree in &trees {
                let mut changes = tree.changes();
                while let Some(Change { key, old, new }) = changes.next().unwrap() {
                    let key = u64::from_be_bytes(key.try_into().unwrap());
                    told.insert(key, (old.map(<[u8]>::to_vec), new.map(<[u8]>::to_vec)));
                }
            }
            assert!(told == expected);
        }
    }
}

/// Whatever bit is not as it was written, in leaves of places or in segments: a check says so.
#[test]
fn a_check_finds_what_is_damaged() {
    const KIND_AT: u64 = 4;
    const LEAF: u8 = 10;
    const SEGMENT: u8 = 11;
    let disk = Disk::new();
    let open = |disk: Disk| Env::on_storage(Arc::new(disk), &options());
    let env = open(disk.clone()).unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("apart", TreeKind::OUT_OF_LINE).unwrap();
    for n in 0..900_u64 {
        // Without any room between records.
        txn.put(
            tree,
            &(n * 3).to_be_bytes(),
            &vec![n as u8 | 1; 8 * (10 + n as usize % 30)],
        )
        .unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    env.checkpoint().unwrap();
    assert_clean(&env);
    drop(env);
    let image = disk.synced_image();
    let size = disk.open("data-0", OpenMode::Read).unwrap().size().unwrap();
    let mut bytes = vec![0; size as usize];
    let file = disk.open("data-0", OpenMode::Read).unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    let number = |at: u64, len: usize| {
        let mut number = [0; 8];
        number[..len].copy_from_slice(&bytes[at as usize..at as usize + len]);
        u64::from_le_bytes(number)
    };
    let (mut leaves, mut segments) = (0, 0);
    let mut flipped = Vec::new();
    let mut page = 2;
    while page < size / PAGE_BYTES as u64 {
        let at = page * PAGE_BYTES as u64;
        page += 1;
        match bytes[(at + KIND_AT) as usize] {
            LEAF => {
                leaves += 1;
                let pairs = 16 * number(at + 24, 2);
                let header = [4, 5].into_iter().chain(8..16).chain(24..28);
                let pairs = (32..32 + pairs).step_by(if leaves < 3 { 131 } else { 1021 });
                flipped.extend(header.chain(pairs).map(|byte| at + byte));
            }
            SEGMENT => {
                segments += 1;
                page = at / PAGE_BYTES as u64 + number(at + 24, 4);
                let all = &bytes[at as usize..(page * PAGE_BYTES as u64) as usize];
                let used = all.iter().rposition(|&byte| byte != 0).unwrap() as u64;
                flipped.extend((0..100.min(used)).step_by(3).map(|byte| at + byte));
                flipped.extend((100..used).step_by(7001).map(|byte| at + byte));
            }
            _ => {}
        }
    }
    assert!(leaves > 3 && segments > 1);
    for (n, at) in flipped.into_iter().enumerate() {
        let mut damaged = image.clone();
        damaged.damage("data-0", at, |byte| *byte ^= 1 << (n % 8));
        let env = open(Disk::from_image(&damaged).unwrap()).unwrap();
        let report = env.check().unwrap();
        assert!(
            !report.is_clean(),
            "byte {} of page {}",
            at % 4096,
            at / 4096
        );
        // Nobody trusts it: neither is it copied, nor does a change do more than fail.
        let folder = tempfile::tempdir().unwrap();
        assert!(env.backup(folder.path().join("full")).is_err());
        let mut txn = env.write().unwrap();
        let tree = txn.tree("apart").unwrap().unwrap();
        for n in 0..900_u64 {
            let _ = txn.put(tree, &n.to_be_bytes(), &[1; 300]);
        }
        let _ = txn.commit().map(|ticket| ticket.wait_durable());
    }
}
