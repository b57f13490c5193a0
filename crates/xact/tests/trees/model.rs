//! Random operations on a tree and on a map give the same answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sapwood_xact::{BPlusTree, CacheObliviousTree, Fault, File, Options, Plain, Space};

use crate::subject::{Committing, Deferred, Renew, Subject};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Insert(Vec<u8>, Vec<u8>),
    /// So many keys that follow each other, from this one on.
    Run(Vec<u8>, u16, usize),
    Remove(Vec<u8>),
    /// All keys between two.
    Clear(Vec<u8>, Vec<u8>),
    Get(Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>, Vec<bool>),
    Reopen,
}

/// Keys that are short and close to each other, long with a long common beginning, or anything.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(0..4_u8, 0..5),
        2 => prop::collection::vec(any::<u8>(), 0..40),
        2 => (0..60_usize, any::<u8>()).prop_map(|(zeros, last)| {
            let mut key = vec![7; 40];
            key.resize(40 + zeros, 0);
            key.push(last);
            key
        }),
        1 => (any::<u8>(), 100..224_usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![4 => 0..30_usize, 2 => 100..500_usize, 1 => 600..9000_usize];
    (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length])
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (key(), value()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => (key(), 1..120_u16, 0..200_usize).prop_map(|(key, count, value)| Step::Run(key, count, value)),
        5 => key().prop_map(Step::Remove),
        1 => (key(), key()).prop_map(|(low, high)| Step::Clear(low, high)),
        3 => key().prop_map(Step::Get),
        2 => (bound(), bound(), prop::collection::vec(any::<bool>(), 1..9))
            .prop_map(|(low, high, ends)| Step::Range(low, high, ends)),
        1 => Just(Step::Reopen),
    ]
}

/// The keys of a [`Step::Run`].
pub(crate) fn run_of(key: &[u8], count: u16) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(move |number| [key, &number.to_be_bytes()].concat())
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Whether a map would accept the bounds instead of panicking.
fn ordered(low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> bool {
    match (low, high) {
        (Bound::Excluded(low), Bound::Excluded(high)) => low < high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low <= high,
        _ => true,
    }
}

pub(crate) fn compare<M, S>(mut tree: S, steps: Vec<Step>) -> TestCaseResult
where
    M: Renew<Error: Debug>,
    S: Subject<M>,
{
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Insert(key, value) => {
                if key.len() > tree.key_bytes_max() {
                    prop_assert!(tree.insert(&key, &value).is_err());
                    continue;
                }
                let new = tree.insert(&key, &value).unwrap();
                prop_assert_eq!(new, model.insert(key, value).is_none());
            }
            Step::Run(key, count, value) => {
                let max = tree.key_bytes_max();
                for key in run_of(&key, count).filter(|key| key.len() <= max) {
                    let value = vec![1; value];
                    let new = tree.insert(&key, &value).unwrap();
                    prop_assert_eq!(new, model.insert(key, value).is_none());
                }
            }
            Step::Remove(key) => {
                prop_assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
            }
            Step::Clear(low, high) => {
                let bounds = (Bound::Included(low), Bound::Excluded(high));
                let keys: Vec<_> = model
                    .keys()
                    .filter(|key| bounds.contains(*key))
                    .cloned()
                    .collect();
                for key in keys {
                    prop_assert!(tree.remove(&key).unwrap());
                    model.remove(&key);
                }
            }
            Step::Get(key) => prop_assert_eq!(tree.get(&key).unwrap(), model.get(&key).cloned()),
            Step::Range(low, high, ends) => {
                let mut turns = ends.iter().copied().cycle();
                let found = tree
                    .range((borrowed(&low), borrowed(&high)), || turns.next().unwrap())
                    .unwrap();
                if !ordered(&low, &high) {
                    prop_assert!(found.is_empty());
                    continue;
                }
                let mut expected = model.range::<Vec<u8>, _>((low, high));
                let mut turns = ends.iter().copied().cycle();
                for (key, value) in found {
                    let record = if turns.next().unwrap() {
                        expected.next()
                    } else {
                        expected.next_back()
                    };
                    prop_assert_eq!(record, Some((&key, &value)));
                }
                prop_assert!(expected.next().is_none());
            }
            Step::Reopen => {
                let offset = tree.offset();
                tree = S::reopen(tree.into_memory().renew(), offset).unwrap();
            }
        }
        let census = tree.check().unwrap();
        prop_assert_eq!(census.keys, model.len() as u64);
    }
    for key in model.keys() {
        prop_assert!(tree.remove(key).unwrap());
    }
    prop_assert_eq!(tree.check().unwrap().keys, 0);
    Ok(())
}

/// So many cases, or as many as `PROPTEST_CASES` says. What fails becomes a test of its own instead of a file of seeds.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => default.cases,
            None => count,
        },
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_b_plus_tree_of_small_blocks_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        compare(BPlusTree::create(Plain::new(), 2048).unwrap(), steps)?;
    }

    #[test]
    fn a_b_plus_tree_of_pages_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        compare(BPlusTree::create(Plain::new(), 4096).unwrap(), steps)?;
    }

    #[test]
    fn a_cache_oblivious_tree_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        compare(CacheObliviousTree::create(Plain::new()).unwrap(), steps)?;
    }

    #[test]
    fn a_cache_oblivious_tree_with_deferred_rebalancing_is_a_map(steps in prop::collection::vec(step(), 1..120)) {
        let tree = CacheObliviousTree::create(Plain::new()).unwrap();
        compare(Deferred::new(tree).unwrap(), steps)?;
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn a_b_plus_tree_of_large_blocks_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        compare(BPlusTree::create(Plain::new(), 512 << 10).unwrap(), steps)?;
    }

    #[test]
    fn a_b_plus_tree_in_a_file_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(&folder.path().join("tree")).unwrap();
        compare(BPlusTree::create(file, 16 << 10).unwrap(), steps)?;
    }

    #[test]
    fn a_cache_oblivious_tree_in_a_file_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(&folder.path().join("tree")).unwrap();
        compare(CacheObliviousTree::create(file).unwrap(), steps)?;
    }

    #[test]
    fn a_b_plus_tree_in_transactions_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        let space = space();
        compare(BPlusTree::create(Committing::new(&space), 4096).unwrap(), steps)?;
    }

    #[test]
    fn a_cache_oblivious_tree_in_transactions_is_a_map(steps in prop::collection::vec(step(), 1..80)) {
        let space = space();
        compare(CacheObliviousTree::create(Committing::new(&space)).unwrap(), steps)?;
    }

    #[test]
    fn a_cache_oblivious_tree_with_deferred_rebalancing_in_transactions_is_a_map(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let space = space();
        let tree = CacheObliviousTree::create(Committing::new(&space)).unwrap();
        compare(Deferred::new(tree).unwrap(), steps)?;
    }

    #[test]
    fn large_cache_oblivious_trees_grow_move_and_shrink(
        (deferred, seed, shift) in (any::<bool>(), any::<u64>(), 0..60_u32),
    ) {
        let tree = CacheObliviousTree::create(Plain::new()).unwrap();
        if deferred {
            grow_and_shrink(Deferred::new(tree).unwrap(), seed, shift)?;
        } else {
            grow_and_shrink(tree, seed, shift)?;
        }
    }
}

fn space() -> Space {
    Space::in_memory(&Options::new().bytes(64 << 20)).unwrap()
}

/// Thousands of records with keys that are spread out, crowded or in order, as `shift` says, and back to nothing.
fn grow_and_shrink<S: Subject<Plain>>(mut tree: S, seed: u64, shift: u32) -> TestCaseResult {
    const RECORDS: u64 = 8000;
    let mut model = BTreeMap::new();
    for number in 0..RECORDS {
        // Every second key follows the one before; the others are anywhere below the top `shift` bits.
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
        let key = if shift == 0 || number % 2 == 0 && shift > 40 {
            number
        } else {
            random >> shift | seed << (64 - shift)
        };
        let key = key.to_be_bytes();
        let value = vec![7; usize::try_from(random % 97).unwrap()];
        let new = tree.insert(&key, &value).unwrap();
        prop_assert_eq!(new, model.insert(key, value).is_none());
        if number % 400 == 0 {
            prop_assert_eq!(tree.check().unwrap().keys, model.len() as u64);
        }
    }
    let records = tree
        .range((Bound::Unbounded, Bound::Unbounded), || true)
        .unwrap();
    prop_assert!(
        records
            .iter()
            .map(|(key, _)| &key[..])
            .eq(model.keys().map(|key| &key[..]))
    );
    let full = tree.check().unwrap();
    let keys: Vec<_> = model.into_keys().collect();
    // From one end, from the other, or every so many.
    let stride = usize::try_from(seed % 61).unwrap() * 2 + 1;
    let mut left = keys.len() as u64;
    let mut at = 0;
    let mut gone = vec![false; keys.len()];
    for number in 0..keys.len() {
        while gone[at] {
            at = (at + 1) % keys.len();
        }
        gone[at] = true;
        prop_assert!(tree.remove(&keys[at]).unwrap());
        left -= 1;
        if number % 400 == 0 {
            prop_assert_eq!(tree.check().unwrap().keys, left);
        }
        at = (at + stride) % keys.len();
    }
    let empty = tree.check().unwrap();
    prop_assert_eq!(empty.keys, 0);
    prop_assert!(empty.leaves <= full.leaves / 2, "{:?} {:?}", full, empty);
    Ok(())
}

#[test]
fn a_move_goes_on_whoever_began_it() {
    let mut tree = Deferred::new(CacheObliviousTree::create(Plain::new()).unwrap()).unwrap();
    let key = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
    let mut number = 0;
    let mut moves = 0;
    while moves < 20 {
        assert!(number < 100_000, "no move begins");
        assert!(tree.insert(&key(number), &[1; 40]).unwrap());
        number += 1;
        if tree.due() {
            moves += 1;
            // Everything remembered is lost; only what is stored counts.
            let offset = tree.offset();
            tree = Deferred::reopen(tree.into_memory(), offset).unwrap();
            tree.maintain().unwrap();
        }
    }
    while tree.maintain().unwrap() {}
    assert_eq!(tree.check().unwrap().keys, u64::from(number));
    for number in 0..number {
        assert_eq!(tree.get(&key(number)).unwrap().unwrap(), [1; 40]);
    }
}

/// Keys that arrived in order just below what a move had still to take left empty segments at the end of the next
/// array, which were bounded by nothing instead of by what was still to come: records that the move then put there were
/// in segments that no search found.
#[test]
fn keys_arrive_in_order_where_a_move_has_come_to() {
    let mut tree = Deferred::new(CacheObliviousTree::create(Plain::new()).unwrap()).unwrap();
    let mut keys = BTreeSet::new();
    let mut number = 0_u32;
    while number < 20_000 || !tree.due() {
        let key = [&number.wrapping_mul(0x9e37_79b9).to_be_bytes()[..], &[0; 4]].concat();
        tree.insert(&key, &[1; 40]).unwrap();
        keys.insert(key);
        number += 1;
    }
    let mut steps = 0_u16;
    while tree.maintain().unwrap() {
        // So many that the first move is over; the crowds that this makes would be reason for ever more.
        let parts = if steps < 60 { 32 } else { 0 };
        for part in 0..parts {
            let place: u32 = part << 27;
            for number in 0..12_u16 {
                let [high, low] = [steps.to_be_bytes(), number.to_be_bytes()];
                let key = [&place.to_be_bytes()[..], &high, &low].concat();
                tree.insert_alone(&key, &[2; 20]).unwrap();
                keys.insert(key);
            }
        }
        assert_eq!(tree.check().unwrap().keys, keys.len() as u64, "{steps}");
        steps += 1;
    }
    assert!(steps > 4, "{steps}");
    for key in keys {
        assert!(tree.get(&key).unwrap().is_some(), "{key:?}");
    }
}

/// Long keys that arrived in order before a record at the end: a move packed them so that none of the segments in use
/// had room, and the segments that it had kept behind them were in no window, so that only another such move could
/// follow.
#[test]
fn what_a_move_keeps_at_the_end_is_used_when_all_before_it_is_full() {
    let run = |key: &[u8], count, value| Step::Run(key.to_vec(), count, value);
    let steps = vec![
        run(&[0], 49, 158),
        run(&[[7; 40].as_slice(), &[0; 28]].concat(), 65, 156),
        Step::Insert(vec![34; 183], vec![0; 21]),
        run(&[7; 211], 111, 75),
    ];
    compare(CacheObliviousTree::create(Plain::new()).unwrap(), steps).unwrap();
}

#[test]
fn a_cache_oblivious_tree_filled_in_order_is_full_and_grows_in_place() {
    for descending in [false, true] {
        let mut tree = CacheObliviousTree::create(Plain::new()).unwrap();
        for number in 0..60_000_u64 {
            let number = if descending {
                u64::MAX - number
            } else {
                number
            };
            tree.insert(&number.to_be_bytes(), &[0; 16]).unwrap();
        }
        let census = tree.check().unwrap();
        assert_eq!(census.keys, 60_000);
        let full = if descending { 2000 } else { 4000 };
        assert!(census.used_bytes > census.leaves * full, "{census:?}");
        // Where keys rise the array grows where it is, at most to twice what is needed.
        let bytes = tree.memory().as_bytes().len() as u64;
        let at_most = if descending { 3 } else { 2 };
        assert!(bytes < census.used_bytes * at_most + (1 << 20), "{bytes}");
    }
}

/// The room of arrays that records have moved away from is used again, joined with what is free beside it.
#[test]
fn a_cache_oblivious_tree_filled_in_any_order_takes_little_more_than_twice_a_b_plus_tree() {
    let mut tree = CacheObliviousTree::create(Plain::new()).unwrap();
    let mut blocks = BPlusTree::create(Plain::new(), 4096).unwrap();
    for number in 1..=60_000_u64 {
        let mut key = [7; 64];
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        key[..8].copy_from_slice(&(mixed ^ mixed >> 32).to_be_bytes());
        tree.insert(&key, &number.to_be_bytes()).unwrap();
        blocks.insert(&key, &number.to_be_bytes()).unwrap();
        if number % 3000 == 0 && number > 20_000 {
            let bytes = tree.memory().as_bytes().len();
            let beside = blocks.memory().as_bytes().len();
            assert!(
                bytes * 10 < beside * 23,
                "{bytes} bytes for {number}, not {beside}"
            );
        }
    }
    assert_eq!(tree.check().unwrap().keys, 60_000);
}

#[test]
fn block_sizes_and_lengths_have_limits() {
    for bytes in [0, 1024, 3000, 1 << 20] {
        let made = BPlusTree::create(Plain::new(), bytes);
        assert!(matches!(made, Err(Fault::BlockSize { .. })), "{bytes}");
    }
    let mut tree = BPlusTree::create(Plain::new(), 2048).unwrap();
    let long = vec![1; tree.key_bytes_max() + 1];
    assert!(matches!(
        tree.insert(&long, b""),
        Err(Fault::KeyTooLong { .. })
    ));
    assert!(tree.insert(&long[1..], b"").unwrap());
    assert_eq!(tree.get(&long).unwrap(), None);
    let long = vec![0; sapwood_xact::VALUE_BYTES_MAX + 1];
    assert!(matches!(
        tree.insert(b"", &long),
        Err(Fault::ValueTooLong { .. })
    ));
    assert!(tree.insert(b"", &long[1..]).unwrap());
    assert_eq!(tree.get(b"").unwrap().unwrap().len(), long.len() - 1);
}

#[test]
fn a_b_plus_tree_filled_in_order_is_full() {
    for descending in [false, true] {
        let mut tree = BPlusTree::create(Plain::new(), 4096).unwrap();
        for number in 0..20_000_u64 {
            let number = if descending {
                u64::MAX - number
            } else {
                number
            };
            tree.insert(&number.to_be_bytes(), &[0; 16]).unwrap();
        }
        let census = tree.check().unwrap();
        assert!(census.used_bytes > census.leaves * 3600, "{census:?}");
    }
}
