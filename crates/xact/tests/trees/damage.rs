//! Damaged memory: whatever stands there, operations end, with an answer or an error.

use proptest::prelude::*;
use sapwood_xact::{BPlusTree, CacheObliviousTree, Memory, Plain};

use crate::model::{Step, cases, run_of, step};
use crate::subject::{Deferred, Subject};

/// No walk through a memory of this size finds more.
const RECORDS_MAX: usize = 1 << 20;

/// Does the steps without asking how they end, until the tree cannot even be opened.
fn use_anyway<S: Subject<Plain>>(mut memory: Plain, offset: u64, steps: &[Step]) {
    for step in steps {
        let Ok(mut tree) = S::reopen(memory.clone(), offset) else {
            return;
        };
        match step {
            Step::Insert(key, value) => drop(tree.insert(key, value)),
            Step::Run(key, count, value) => {
                for key in run_of(key, *count) {
                    if tree.insert(&key, &vec![2; *value]).is_err() {
                        break;
                    }
                }
            }
            Step::Remove(key) | Step::Clear(key, _) => drop(tree.remove(key)),
            Step::Get(key) => drop(tree.get(key)),
            Step::Range(low, high, ends) => {
                let (low, high) = (
                    low.as_ref().map(Vec::as_slice),
                    high.as_ref().map(Vec::as_slice),
                );
                let mut turns = ends.iter().copied().cycle();
                let mut taken = 0;
                let _ = tree.range((low, high), || {
                    taken += 1;
                    assert!(taken < RECORDS_MAX, "a walk without end");
                    turns.next().unwrap()
                });
            }
            Step::Reopen => drop(tree.check()),
        }
        memory = tree.into_memory();
    }
}

fn filled<S: Subject<Plain>>(mut tree: S) -> (Vec<u8>, u64) {
    for number in 0..600_u32 {
        let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
        let value = vec![number.to_le_bytes()[0]; usize::try_from(number % 50).unwrap()];
        tree.insert(&key, &value).unwrap();
        if number % 100 == 0 {
            tree.insert(&[&key[..], b"large"].concat(), &[5; 3000])
                .unwrap();
        }
    }
    let offset = tree.offset();
    (tree.into_memory().as_bytes().to_vec(), offset)
}

/// Single bytes, numbers, and stretches copied from elsewhere, as a misdirected write leaves them.
#[derive(Clone, Debug)]
enum Damage {
    Byte(usize, u8),
    Number(usize, u32),
    Copy(usize, usize, usize),
    End(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        4 => (any::<usize>(), prop_oneof![any::<u32>(), 0..5000_u32]).prop_map(|(at, n)| Damage::Number(at, n)),
        3 => (any::<usize>(), any::<usize>(), 1..4097_usize).prop_map(|(from, to, n)| Damage::Copy(from, to, n)),
        1 => any::<usize>().prop_map(Damage::End),
    ]
}

fn inflict(bytes: &mut Vec<u8>, damage: &Damage) {
    let length = bytes.len();
    match *damage {
        Damage::Byte(at, byte) => bytes[at % length] = byte,
        // Headers and slots are more rewarding than keys and values.
        Damage::Number(at, number) => {
            let at = at % (length / 4096) * 4096 + at / 4096 % 16 * 4;
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        Damage::Copy(from, to, count) => {
            let (from, to) = (from % (length / 4096) * 4096, to % (length / 4096) * 4096);
            let count = count.min(length - from).min(length - to);
            bytes.copy_within(from..from + count, to);
        }
        Damage::End(at) => bytes.truncate((at % length).max(length / 2)),
    }
}

fn survive<S: Subject<Plain>>(tree: S, damages: &[Damage], steps: &[Step]) {
    let (mut bytes, offset) = filled(tree);
    for damage in damages {
        inflict(&mut bytes, damage);
    }
    if let Ok(memory) = Plain::from_bytes(bytes) {
        use_anyway::<S>(memory, offset, steps);
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn a_damaged_b_plus_tree_is_an_error_at_worst(
        damages in prop::collection::vec(damage(), 1..6),
        steps in prop::collection::vec(step(), 1..20),
    ) {
        survive(BPlusTree::create(Plain::new(), 2048).unwrap(), &damages, &steps);
        survive(BPlusTree::create(Plain::new(), 8192).unwrap(), &damages, &steps);
    }

    #[test]
    fn a_damaged_cache_oblivious_tree_is_an_error_at_worst(
        damages in prop::collection::vec(damage(), 1..6),
        steps in prop::collection::vec(step(), 1..20),
    ) {
        survive(CacheObliviousTree::create(Plain::new()).unwrap(), &damages, &steps);
        let tree = CacheObliviousTree::create(Plain::new()).unwrap();
        survive(Deferred::new(tree).unwrap(), &damages, &steps);
    }
}

#[test]
fn a_tree_is_not_opened_where_none_is() {
    let memory = Plain::new();
    assert!(memory.root().is_ok());
    assert!(BPlusTree::open(memory.clone(), 0).is_err());
    assert!(BPlusTree::open(memory.clone(), u64::MAX).is_err());
    assert!(CacheObliviousTree::open(memory, 0).is_err());
}
