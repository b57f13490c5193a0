//! Places and records that were damaged: the one that meets them learns of it, or reads what was there before; and
//! nobody looks where there is no file, or goes round in circles.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use sapwood_store::page::{PAGE_BYTES, checksum};
use sapwood_store::{Env, Error, Options, TreeKind};

const KEYS: u64 = 600;
/// The kinds of pages that leaves of places, and first pages of segments, say they are.
const POINTER_LEAF: u8 = 10;
const SEGMENT: u8 = 11;
const KIND_AT: usize = 4;

fn options() -> Options {
    Options::new().log_bytes(64 << 10).idle_checkpoint(None)
}

fn put_all(env: &Env, step: usize, seed: u64) -> Result<(), Error> {
    let mut txn = env.write()?;
    let tree = match txn.tree("apart")? {
        Some(tree) => tree,
        None => txn.create_tree("apart", TreeKind::OUT_OF_LINE)?,
    };
    for key in (0..KEYS).step_by(step) {
        let length = (key * 7 + seed * 13) % 400;
        let value = vec![seed as u8; length as usize];
        txn.put(tree, &key.to_be_bytes(), &value)?;
    }
    txn.commit()?.wait_durable()?;
    Ok(())
}

/// A store whose data file has all that there is.
fn prepare(folder: &Path) {
    let env = Env::open(folder, &options()).unwrap();
    for (step, seed) in [(1, 0), (3, 1), (5, 2), (40, 3), (60, 4)] {
        put_all(&env, step, seed).unwrap();
    }
    env.checkpoint().unwrap();
}

/// The look at the start did not see them.
#[test]
fn a_damaged_header_of_a_segment_is_seen_by_a_sample() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("env");
    prepare(&path);
    let file = path.join("data-0");
    let whole = fs::read(&file).unwrap();
    let is_segment = |page: &&[u8]| page[KIND_AT] == SEGMENT;
    let number = |page: &[u8]| u64::from_le_bytes(page[8..16].try_into().unwrap());
    let segments: Vec<usize> = (0..)
        .zip(whole.chunks(PAGE_BYTES))
        .filter(|(at, page)| is_segment(page) && number(page) == *at)
        .map(|(at, _)| at as usize * PAGE_BYTES)
        .collect();
    let sample = || {
        let env = Env::open(&path, &options().create(false)).unwrap();
        env.check_sample(2000).unwrap().problems
    };
    assert_eq!(sample(), Vec::<String>::new());
    let mut seen = 0;
    for place in &segments {
        let mut damaged = whole.clone();
        damaged[place + 9] ^= 1;
        fs::write(&file, damaged).unwrap();
        let problems = sample();
        seen += usize::from(problems.iter().any(|problem| problem.contains("segment")));
    }
    // Segments that are in use no more still look like some.
    assert!(seen > 0, "none of {} is looked at", segments.len());
}

/// Does whatever there is to be done with a store, each by itself.
fn use_it(folder: &Path) -> Result<(), Error> {
    let env = Env::open(folder.join("env"), &options().create(false))?;
    let _ = env.check();
    let before = env.read()?;
    let scan = || -> Result<(), Error> {
        let Some(tree) = before.tree("apart")? else {
            return Ok(());
        };
        for key in 0..KEYS {
            let _ = tree.get(&key.to_be_bytes());
        }
        let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
        let _ = tree.get_each(&keys, |_, _| ());
        let mut cursor = tree.cursor();
        for _ in 0..10 * KEYS {
            if !cursor.next()? {
                return Ok(());
            }
            let _ = cursor.record();
        }
        panic!("a scan that does not end");
    };
    let _ = scan();
    for seed in 5..8 {
        let _ = put_all(&env, 7, seed);
    }
    let delete = || -> Result<(), Error> {
        let mut txn = env.write()?;
        if let Some(tree) = txn.tree("apart")? {
            for key in (0..KEYS).step_by(2) {
                txn.delete(tree, &key.to_be_bytes())?;
            }
        }
        txn.commit()?.wait_durable()?;
        Ok(())
    };
    let _ = delete();
    let _ = scan();
    let compare = || -> Result<(), Error> {
        let now = env.read()?;
        let mut count = 0;
        for tree in now.changes_since(&before)? {
            let mut changes = tree.changes();
            while changes.next()?.is_some() {
                count += 1;
                assert!(count < 10 * KEYS, "changes that do not end");
            }
        }
        Ok(())
    };
    let _ = compare();
    let _ = env.backup(folder.join("backup"));
    let _ = env.stat();
    drop(before);
    let _ = env.compact(|_| ());
    let _ = env.checkpoint();
    let _ = env.check();
    let clear = || -> Result<(), Error> {
        let mut txn = env.write()?;
        txn.drop_tree("apart")?;
        txn.commit()?.wait_durable()?;
        Ok(())
    };
    let _ = clear();
    let _ = env.check();
    Ok(())
}

/// Numbers that places, lengths and counts are unlikely to be.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4000_u64,
        (0..60_u64).prop_map(|page| page * PAGE_BYTES as u64 / 8),
        (0..64_u32, -2..2_i64).prop_map(|(bit, more)| (1_u64 << bit).wrapping_add_signed(more)),
        any::<u64>(),
    ]
}

#[derive(Clone, Debug)]
enum Damage {
    /// A word of a leaf of places.
    Place(prop::sample::Index, u64),
    /// A word of a segment.
    Record(prop::sample::Index, u64),
    /// Four bytes of any page.
    Any(prop::sample::Index, u32),
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = || any::<prop::sample::Index>();
    prop_oneof![
        (index(), number()).prop_map(|(at, word)| Damage::Place(at, word)),
        (index(), number()).prop_map(|(at, word)| Damage::Record(at, word)),
        (index(), number()).prop_map(|(at, word)| Damage::Any(at, word as u32)),
    ]
}

fn pages_of(bytes: &[u8], kind: u8) -> Vec<usize> {
    let pages = (2..bytes.len() / PAGE_BYTES).map(|page| page * PAGE_BYTES);
    pages.filter(|page| bytes[page + KIND_AT] == kind).collect()
}

/// Gives pages that were damaged the right checksums; only what is in them is left to tell.
fn seal(bytes: &mut [u8], page: usize) {
    let sum = checksum(&[&bytes[page + 4..page + PAGE_BYTES]]);
    bytes[page..page + 4].copy_from_slice(&sum.to_le_bytes());
}

fn apply(damage: &Damage, bytes: &mut [u8]) {
    match damage {
        Damage::Place(at, word) => {
            let leaves = pages_of(bytes, POINTER_LEAF);
            // One of the pairs' second words, or what follows them.
            let at = at.index(leaves.len() * 255);
            let at = leaves[at / 255] + 40 + at % 255 * 16;
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        Damage::Record(at, word) => {
            let segments = pages_of(bytes, SEGMENT);
            let words = 4 * PAGE_BYTES / 8;
            let at = at.index(segments.len() * words);
            let at = segments[at / words] + at % words * 8;
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        Damage::Any(at, word) => {
            let used = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0);
            let at = 2 * PAGE_BYTES + at.index(used - 2 * PAGE_BYTES) / 4 * 4;
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            let page = at / PAGE_BYTES * PAGE_BYTES;
            if bytes[page + KIND_AT] != SEGMENT {
                seal(bytes, page);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_places_and_records_are_survived(damages in prop::collection::vec(damage(), 1..6)) {
        let folder = tempfile::tempdir().unwrap();
        let env = folder.path().join("env");
        prepare(&env);
        let path = env.join("data-0");
        let mut bytes = fs::read(&path).unwrap();
        for damage in &damages {
            apply(damage, &mut bytes);
        }
        fs::write(&path, bytes).unwrap();
        let _ = use_it(folder.path());
    }
}

/// A leaf whose places all lead to one spot, wherever that is.
#[test]
fn places_that_lead_anywhere_are_survived() {
    for word in [
        0,
        1,
        512,
        1024,
        5000,
        1 << 30,
        1 << 52,
        1 << 60,
        1 << 61,
        u64::MAX / 8,
        u64::MAX,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let env = folder.path().join("env");
        prepare(&env);
        let path = env.join("data-0");
        let mut bytes = fs::read(&path).unwrap();
        let leaves = pages_of(&bytes, POINTER_LEAF);
        assert!(!leaves.is_empty());
        for leaf in leaves {
            for pair in 0..253 {
                let at = leaf + 40 + pair * 16;
                bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
            }
        }
        fs::write(&path, bytes).unwrap();
        use_it(folder.path()).unwrap();
        let env = Env::open(&env, &options()).unwrap();
        assert!(env.check().is_ok());
    }
}
