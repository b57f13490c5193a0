//! The external sort, against sorting in memory.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sapwood_store::sort::{SORT_MEMORY_BYTES_MIN, Sorter};

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn sorted(records: &Records, memory_bytes: usize, threads: usize) -> Records {
    let folder = tempfile::tempdir().unwrap();
    let mut sorter = Sorter::new(folder.path(), memory_bytes, threads);
    for (key, value) in records {
        sorter.push(key, value).unwrap();
    }
    assert_eq!(sorter.records(), records.len() as u64);
    let mut sorted = sorter.finish().unwrap();
    assert_eq!(sorted.records(), records.len() as u64);
    let mut out = Records::new();
    while let Some((key, value)) = sorted.next().unwrap() {
        out.push((key.to_vec(), value.to_vec()));
    }
    assert_eq!(sorted.next().unwrap(), None);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "files left behind"
    );
    out
}

fn expected(mut records: Records) -> Records {
    records.sort();
    records
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sorts_by_key_and_value(
        records in proptest::collection::vec(
            (proptest::collection::vec(0u8..4, 0..12), proptest::collection::vec(any::<u8>(), 0..40)),
            0..5000,
        ),
        threads in 1usize..4,
    ) {
        prop_assert_eq!(sorted(&records, SORT_MEMORY_BYTES_MIN, threads), expected(records));
    }
}

/// Keys that begin alike, end anywhere and hold zeroes.
#[test]
fn keys_that_begin_alike_are_sorted_to_their_ends() {
    let mut records = Records::new();
    for i in 0..4000u32 {
        let mut key = b"dc=com,dc=example,ou=people".repeat(1 + i as usize % 3);
        key.resize(key.len() + i as usize % 20, (i % 2) as u8);
        key.extend_from_slice(&(i / 7 % 5).to_be_bytes()[..i as usize % 5]);
        records.push((key, i.to_be_bytes()[..i as usize % 4].to_vec()));
    }
    assert_eq!(sorted(&records, 1 << 20, 1), expected(records));
}

/// So many runs that they are not merged all at once.
#[test]
fn many_runs_are_merged_in_passes() {
    let records: Records = (0..60_000u32)
        .map(|i| {
            (
                i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec(),
                vec![i as u8; 30],
            )
        })
        .collect();
    assert_eq!(
        sorted(&records, SORT_MEMORY_BYTES_MIN, 2),
        expected(records)
    );
}

/// Single records larger than a buffer, or than all the memory allowed.
#[test]
fn large_records_pass_through_small_buffers() {
    let records: Records = (0..60u32)
        .map(|i| {
            (
                vec![(i * 37 % 61) as u8; 40],
                vec![i as u8; (i * i * 50) as usize],
            )
        })
        .collect();
    assert_eq!(
        sorted(&records, SORT_MEMORY_BYTES_MIN, 2),
        expected(records)
    );
}

/// A failing thread is noticed, at the latest at the end.
#[test]
fn a_folder_that_is_gone_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut sorter = Sorter::new(&folder.path().join("gone"), SORT_MEMORY_BYTES_MIN, 2);
    let pushed = (0..20_000u32).try_for_each(|i| sorter.push(&i.to_be_bytes(), &[0; 40]));
    assert!(pushed.and_then(|()| sorter.finish().map(|_| ())).is_err());
}
