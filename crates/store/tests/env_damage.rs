//! Damaged files: an environment made of them is refused, or reports the damage, or was not harmed by it. It never
//! panics, runs forever, or asks for memory by a damaged number.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use sapwood_store::{CommitNo, Env, Options, Snapshot, TreeKind};
use sapwood_testkit::storage::recording::{Disk, Image};

type State = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

fn options() -> Options {
    Options::new().log_bytes(0).idle_checkpoint(None)
}

fn key(tree: u8, n: u32) -> Vec<u8> {
    match n % 5 {
        _ if tree == 2 => u64::from(n).to_be_bytes().to_vec(),
        0 => vec![b'k'; 600 + n as usize % 500],
        _ => format!("uid=user{n:05}").into_bytes(),
    }
}

fn value(n: u32, round: u32) -> Vec<u8> {
    let len = if n % 40 == 3 { 9000 } else { n as usize % 250 };
    vec![(n + round) as u8; len]
}

/// Makes commits whose states it returns: some in the data file, the last ones in the log alone.
fn work(env: &Env) -> BTreeMap<CommitNo, State> {
    let mut state = State::new();
    let mut states = BTreeMap::from([(env.read().unwrap().commit(), state.clone())]);
    for round in 0..24 {
        let mut txn = env.write().unwrap();
        for tree in 0..3u8 {
            let name = format!("tree {tree}");
            let id = match txn.tree(&name).unwrap() {
                Some(id) => id,
                None => txn
                    .create_tree(
                        &name,
                        TreeKind {
                            counted: tree == 0,
                            out_of_line: tree == 2,
                            ..TreeKind::COMPACT
                        },
                    )
                    .unwrap(),
            };
            for n in (round * 17..round * 17 + 12).chain(round..round + 3) {
                txn.put(id, &key(tree, n), &value(n, round)).unwrap();
                state.insert((tree, key(tree, n)), value(n, round));
            }
            txn.delete(id, &key(tree, round * 2)).unwrap();
            state.remove(&(tree, key(tree, round * 2)));
        }
        let commit = txn.commit().unwrap().wait_durable().unwrap();
        states.insert(commit, state.clone());
        if round == 12 || round == 19 {
            env.checkpoint().unwrap();
        }
    }
    states
}

/// Everything in a snapshot, as far as it can be read, but no more records than any of our states has pages for.
fn read(snapshot: &Snapshot) -> Result<State, sapwood_store::Error> {
    let mut state = State::new();
    for tree in 0..3u8 {
        let Some(view) = snapshot.tree(format!("tree {tree}"))? else {
            continue;
        };
        let _ = view.estimate(Bound::Included(&key(tree, 7)), Bound::Unbounded);
        for n in (0..400).step_by(31) {
            view.get(&key(tree, n))?;
        }
        let mut records = 0;
        let mut cursor = view.cursor();
        while cursor.next()? {
            let (key, value) = cursor.record()?.unwrap();
            state.insert((tree, key.to_vec()), value.to_vec());
            records += 1;
            assert!(records < 1_000_000, "a scan that does not end");
        }
    }
    Ok(state)
}

fn change(env: &Env) -> Result<(), sapwood_store::Error> {
    let mut txn = env.write()?;
    for tree in 0..3u8 {
        let Some(id) = txn.tree(format!("tree {tree}"))? else {
            continue;
        };
        for n in (0..400).step_by(23) {
            txn.put(id, &key(tree, n), &value(n, 99))?;
            txn.delete(id, &key(tree, n + 1))?;
        }
    }
    txn.drop_tree("tree 1")?;
    txn.commit()?.wait_durable()?;
    env.checkpoint()?;
    env.check()?;
    Ok(())
}

/// Uses an environment that may be damaged. Answers whether anything was noticed.
fn survive(env: Result<Env, sapwood_store::Error>, states: &BTreeMap<CommitNo, State>) -> bool {
    let Ok(env) = env else { return true };
    let report = env.check();
    let sound = report.as_ref().is_ok_and(|report| report.is_clean());
    let found = env
        .read()
        .and_then(|snapshot| Ok((snapshot.commit(), read(&snapshot)?)));
    if sound {
        let (commit, found) = found.unwrap();
        assert!(
            states[&commit] == found,
            "a clean check, and wrong records of commit {commit}"
        );
    }
    let _ = change(&env);
    !sound
}

fn sample() -> (Image, BTreeMap<CommitNo, State>) {
    let disk = Disk::new();
    let env = Env::on_storage(Arc::new(disk.clone()), &options()).unwrap();
    let states = work(&env);
    // Not closed: the log is needed.
    (disk.synced_image(), states)
}

fn open(image: &Image) -> Result<Env, sapwood_store::Error> {
    Env::on_storage(Arc::new(Disk::from_image(image).unwrap()), &options())
}

#[test]
fn the_sample_is_sound() {
    let (image, states) = sample();
    let env = open(&image).unwrap();
    assert_eq!(
        env.read().unwrap().commit(),
        *states.last_key_value().unwrap().0
    );
    assert!(!survive(Ok(env), &states));
}

/// One bit after the other, all over both files; most of all in the headers of the first pages.
#[test]
fn a_flipped_bit_is_survived() {
    let (image, states) = sample();
    let (mut noticed, mut tried) = (0, 0);
    let names: Vec<_> = image.names().map(str::to_owned).collect();
    for name in names {
        let size = image.size(&name).unwrap();
        let headers = (0..size.min(24 * 4096))
            .filter(|at| at % 4096 < 96)
            .step_by(11);
        let rest = (0..size.min(1 << 20)).step_by(5003);
        for at in headers.chain(rest) {
            let mut image = image.clone();
            image.damage(&name, at, |byte| *byte ^= 1 << (at % 8));
            noticed += usize::from(survive(open(&image), &states));
            tried += 1;
        }
    }
    // Most of the bits belong to something.
    assert!(noticed * 4 > tried, "{noticed} of {tried} noticed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_survived(
        damage in proptest::collection::vec((any::<bool>(), any::<u32>(), any::<u16>(), proptest::collection::vec(any::<u8>(), 1..600)), 1..4),
    ) {
        let (mut image, states) = sample();
        for (log, page, at, garbage) in damage {
            let named = image.names().find(|name| name.starts_with("log") == log);
            let name = &named.unwrap().to_owned();
            let size = image.size(name).unwrap();
            let at = u64::from(page) * 4096 % size.min(1 << 20) + u64::from(at) % 4096;
            for (at, byte) in (at..).zip(&garbage).take_while(|(at, _)| *at < size) {
                image.damage(name, at, |place| *place = *byte);
            }
        }
        survive(open(&image), &states);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// Files that end too early, in a real folder: reading behind the end of a map would kill the process.
#[test]
fn a_truncated_or_missing_file_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    let env = Env::open(&original, &options()).unwrap();
    let states = work(&env);
    let image = folder.path().join("image");
    // As a crash would leave it: the environment is still open.
    copy(&original, &image);
    drop(env);
    let mut number = 0;
    for file in std::fs::read_dir(&image).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let size = file.metadata().unwrap().len();
        for eighth in (0..9).step_by(2) {
            for odd in [1, 4096] {
                let damaged = folder.path().join(format!("damaged {number}"));
                number += 1;
                copy(&image, &damaged);
                let size = (size * eighth / 8 + odd).min(size);
                let open = std::fs::File::options()
                    .write(true)
                    .open(damaged.join(&name));
                open.unwrap().set_len(size).unwrap();
                survive(Env::open(&damaged, &options()), &states);
                std::fs::remove_dir_all(&damaged).unwrap();
            }
        }
        let damaged = folder.path().join(format!("without {name}"));
        copy(&image, &damaged);
        std::fs::remove_file(damaged.join(&name)).unwrap();
        let noticed = survive(Env::open(&damaged, &options().create(false)), &states);
        assert!(noticed || name == "lock", "{name} was missing");
    }
}
