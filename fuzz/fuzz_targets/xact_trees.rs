//! Search trees in memory that was damaged anyhow: whatever stands there, operations end, with an answer or an error.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use sapwood_xact::{BPlusTree, CacheObliviousTree, Plain};

const PAGE_BYTES: usize = 4096;
const BLOCK_BYTES: usize = 2048;
const RECORDS: u16 = 500;
/// No walk through so little memory finds more.
const WALK_MAX: usize = 1 << 20;

fn key(number: u16) -> [u8; 4] {
    u32::from(number).wrapping_mul(0x9e37_79b9).to_be_bytes()
}

fn value(number: u16) -> Vec<u8> {
    // Some are stored outside of the tree.
    let length = if number.is_multiple_of(100) {
        3000
    } else {
        usize::from(number % 50)
    };
    vec![number as u8; length]
}

/// What the fuzzer does to a whole tree. First how many patches there are, each of which is a page, a place in it (two
/// bytes), a length and so many bytes; then operations, each of which is a kind and a key's number (two bytes).
macro_rules! target {
    ($name:ident, $tree:ident, $create:expr) => {
        fn $name(input: &[u8]) {
            static IMAGE: OnceLock<(Vec<u8>, u64)> = OnceLock::new();
            let (image, offset) = IMAGE.get_or_init(|| {
                let mut memory = Plain::new();
                let mut tree = $create(&mut memory).unwrap();
                for number in 0..RECORDS {
                    tree.insert(&key(number), &value(number)).unwrap();
                }
                let offset = tree.offset();
                drop(tree);
                (memory.as_bytes().to_vec(), offset)
            });
            let mut bytes = image.clone();
            let Some((patches, mut rest)) = input.split_first() else {
                return;
            };
            for _ in 0..patches % 8 {
                let [page, low, high, length, tail @ ..] = rest else {
                    return;
                };
                let (patch, tail) = tail.split_at(usize::from(*length).min(tail.len()));
                let page = usize::from(*page) % (bytes.len() / PAGE_BYTES);
                let within = usize::from(u16::from_le_bytes([*low, *high])) % PAGE_BYTES;
                let at = page * PAGE_BYTES + within;
                let end = (at + patch.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&patch[..end - at]);
                rest = tail;
            }
            let Ok(memory) = Plain::from_bytes(bytes) else {
                return;
            };
            let Ok(mut tree) = $tree::open(memory, *offset) else {
                return;
            };
            for operation in rest.chunks_exact(3) {
                let number = u16::from_le_bytes([operation[1], operation[2]]) % (2 * RECORDS);
                match operation[0] % 4 {
                    0 => drop(tree.insert(&key(number), &value(number / 3))),
                    1 => drop(tree.remove(&key(number))),
                    2 => drop(
                        tree.get(&key(number))
                            .map(|found| found.map(<[u8]>::to_vec)),
                    ),
                    _ => {
                        let from = key(number);
                        if let Ok(range) = tree.range(&from[..]..) {
                            let walked = range.map_while(Result::ok).take(WALK_MAX).count();
                            assert!(walked < WALK_MAX, "a walk without end");
                        }
                    }
                }
            }
        }
    };
}

target!(b_plus, BPlusTree, |memory| BPlusTree::create(
    memory,
    BLOCK_BYTES
));
target!(
    cache_oblivious,
    CacheObliviousTree,
    CacheObliviousTree::create
);

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((0..128, rest)) => b_plus(rest),
        Some((_, rest)) => cache_oblivious(rest),
        None => {}
    }
});
