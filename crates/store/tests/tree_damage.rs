//! Damaged pages: whatever is read from them, nothing panics, nothing runs forever, and `check` notices.

#![allow(clippy::unwrap_used)]

mod memory_pages;

use std::collections::HashSet;
use std::ops::Bound;

use proptest::prelude::*;
use sapwood_store::Error;
use sapwood_store::page::{CommitNo, Page, PageNo, ReadPages, WritePages};
use sapwood_store::tree::{self, CheckSink, Duplicates, TreeKind, TreeMut, TreeRecord, View};

use memory_pages::MemoryPages;

#[derive(Default)]
struct Problems {
    seen: HashSet<PageNo>,
    count: usize,
}

impl CheckSink for Problems {
    fn in_use(&mut self, first: PageNo, pages: u32) -> bool {
        // What a damaged pointer claims is not believed further than the test's file reaches.
        let end = (first.0 + u64::from(pages)).min(first.0 + 100_000);
        let before = self.seen.len();
        self.seen.extend((first.0..end).map(PageNo));
        self.seen.len() == before + (end - first.0) as usize
    }

    fn problem(&mut self, _: Error) {
        self.count += 1;
    }
}

fn key(i: u32) -> Vec<u8> {
    match i % 7 {
        0 => vec![b'x'; 900 + i as usize % 300],
        1 => format!("uid=user{i:05},ou=people,dc=example").into_bytes(),
        _ => i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec(),
    }
}

/// A tree with everything in it: three levels, long keys, short keys, inline and large values.
fn sample(counted: bool) -> (MemoryPages, TreeRecord) {
    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(TreeKind {
        counted,
        ..TreeKind::COMPACT
    });
    for i in 0..700 {
        let len = if i % 50 == 0 { 9000 } else { i as usize % 300 };
        tree::put(&mut pages, &mut tree, &key(i), &vec![i as u8; len]).unwrap();
    }
    for i in 0..100 {
        tree::delete(&mut pages, &mut tree, &key(i * 3)).unwrap();
    }
    assert!(tree.height >= 3);
    pages.seal();
    (pages, tree)
}

/// Reads in every way there is. Errors are fine.
fn read_everything(pages: &MemoryPages, tree: &TreeRecord) {
    // No page is reached more than once from each of its possible parents.
    let records_max = (pages.end().0 * pages.end().0 * 700) as usize;
    let view = View::new(pages, *tree);
    for i in (0..700).step_by(83) {
        let key = key(i);
        let _ = view.fetch_ahead(&[&key], |_, leaf| {
            let _ = view.get_in(leaf, &key);
        });
        let _ = view.get_each(&[&key], |_, _| {});
        let _ = view.get_each_to_change(&[&key], |_, _| {});
        let _ = view.get(&key);
        let mut cursor = view.cursor();
        let _ = cursor.seek(&key).and_then(|_| cursor.record().map(|_| ()));
        let _ = cursor.seek_back(&key).and_then(|_| cursor.prev());
        let _ = view.rank(&key);
        let _ = cursor.seek_nth(u64::from(i));
        let _ = view.estimate(Bound::Included(&key), Bound::Unbounded);
    }
    let mut cursor = view.cursor();
    let mut records = 0;
    while let Ok(true) = cursor.next() {
        let _ = cursor.record();
        records += 1;
        assert!(records <= records_max);
    }
    let mut cursor = view.cursor();
    while let Ok(true) = cursor.prev() {
        records += 1;
        assert!(records <= 2 * records_max);
    }
}

/// Changes in every way there is, on pages of the transaction's own and on pages of an earlier one.
fn change_everything(pages: &MemoryPages, tree: &TreeRecord, next_commit: bool) {
    for salt in 0..3 {
        let (mut pages, mut tree) = (pages.clone(), *tree);
        if next_commit {
            pages.next_commit();
        }
        for i in (salt..700).step_by(29) {
            let changed = match (i + salt) % 3 {
                0 => tree::put(&mut pages, &mut tree, &key(i), &[1; 250]),
                1 => tree::delete(&mut pages, &mut tree, &key(i)),
                _ => TreeMut::new(&mut pages, &mut tree).insert(&key(i + 700), &[2; 2500]),
            };
            if changed.is_err() {
                break;
            }
        }
        let _ = TreeMut::new(&mut pages, &mut tree).clear();
    }
}

fn problems(pages: &MemoryPages, tree: &TreeRecord) -> usize {
    let mut problems = Problems::default();
    tree::check(pages, tree, WritePages::commit(pages), &mut problems);
    problems.count
}

/// Keys with one value, with some, and with very many.
fn sample_of_duplicates(fixed: bool) -> (MemoryPages, TreeRecord) {
    let kind = TreeKind {
        duplicates: Some(Duplicates {
            fixed,
            ..Duplicates::default()
        }),
        ..TreeKind::WHOLE
    };
    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(kind);
    for i in 0..120u32 {
        let values = match i % 40 {
            0 => 700,
            n => n,
        };
        for n in 0..values {
            let len = if fixed { 8 } else { 4 + n as usize % 30 };
            let mut value = n.to_be_bytes().to_vec();
            value.resize(len, i as u8);
            tree::put(&mut pages, &mut tree, &key(i), &value).unwrap();
        }
    }
    assert!(tree.height >= 2);
    pages.seal();
    (pages, tree)
}

/// Reads a tree with duplicates in every way there is.
fn read_duplicates(pages: &MemoryPages, tree: &TreeRecord) {
    let view = View::new(pages, *tree);
    let mut cursor = view.cursor();
    // A damaged tree may reach its pages by several ways, each once from each of its parents.
    for _ in 0..50_000 {
        if !matches!(cursor.next(), Ok(true)) {
            break;
        }
        let _ = (cursor.record().is_ok(), cursor.duplicates());
    }
    for i in (0..200).step_by(7) {
        let _ = view.get(&key(i));
        let _ = cursor.seek_duplicate_from(&key(i), &[0, 0, 0, 9]);
        let _ = (
            cursor.prev_duplicate(),
            cursor.next_key(),
            cursor.prev_key(),
        );
        let _ = (
            cursor.last_duplicate(),
            cursor.next_duplicates(),
            cursor.prev_duplicates(),
        );
    }
}

fn change_duplicates(pages: &MemoryPages, tree: &TreeRecord, next_commit: bool) {
    let (mut pages, mut tree) = (pages.clone(), *tree);
    if next_commit {
        pages.next_commit();
    }
    let mut tree = TreeMut::new(&mut pages, &mut tree);
    for i in (0..200).step_by(11) {
        let failed = match i % 4 {
            0 => tree.put(&key(i), &[9; 8]).is_err(),
            1 => tree
                .delete_duplicate(&key(i), &[0, 0, 0, 1, 1, 1, 1, 1])
                .is_err(),
            2 => tree.append_duplicate(&key(i), &[255; 8]).is_err(),
            _ => tree.delete(&key(i)).is_err(),
        };
        if failed {
            break;
        }
    }
    let _ = tree.delete_range(Bound::Included(&key(20)), Bound::Excluded(&key(150)));
    let _ = tree.clear();
}

#[test]
fn a_flipped_bit_among_duplicates_is_survived_and_noticed() {
    for fixed in [false, true] {
        let (mut pages, tree) = sample_of_duplicates(fixed);
        assert_eq!(problems(&pages, &tree), 0);
        read_duplicates(&pages, &tree);
        for number in (1..pages.end().0).map(PageNo) {
            let Some(len) = pages.bytes_mut(number).map(|bytes| bytes.len()) else {
                continue;
            };
            for bit in (number.0 as usize % 7919..len * 8).step_by(8117) {
                pages.bytes_mut(number).unwrap()[bit / 8] ^= 1 << (bit % 8);
                read_duplicates(&pages, &tree);
                assert!(problems(&pages, &tree) > 0, "bit {bit} of page {number}");
                change_duplicates(&pages, &tree, bit % 2 == 0);
                pages.bytes_mut(number).unwrap()[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

#[test]
fn the_sample_is_sound() {
    for counted in [false, true] {
        let (pages, tree) = sample(counted);
        assert_eq!(problems(&pages, &tree), 0);
    }
}

/// Every seventeenth bit of what leads to the entries of a page (which bits these are differs from page to page), few
/// of the rest.
#[test]
fn a_flipped_bit_is_survived_and_noticed() {
    for counted in [false, true] {
        let (mut pages, tree) = sample(counted);
        for number in (0..pages.end().0).map(PageNo) {
            let Some(len) = pages.bytes_mut(number).map(|bytes| bytes.len()) else {
                continue;
            };
            let structure = if number.0 % 8 == 1 { 200 } else { 36 };
            let bits = (number.0 as usize % 17..structure * 8)
                .step_by(17)
                .chain((structure * 8..len * 8).step_by(4001));
            for bit in bits {
                pages.bytes_mut(number).unwrap()[bit / 8] ^= 1 << (bit % 8);
                read_everything(&pages, &tree);
                let in_slack = len != 4096 && bit / 8 >= 32 + 9000;
                assert!(
                    in_slack || problems(&pages, &tree) > 0,
                    "bit {bit} of page {number}"
                );
                if bit % 5 == 0 {
                    change_everything(&pages, &tree, bit % 2 == 0);
                }
                pages.bytes_mut(number).unwrap()[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(problems(&pages, &tree), 0);
    }
}

/// Writes the checksum that the damaged page ought to have, so that only its contents can give it away.
fn reseal(bytes: &mut [u8]) {
    if let Ok(bytes) = <&mut [u8; 4096]>::try_from(bytes) {
        let mut page = Page::zeroed();
        *page.bytes_mut() = *bytes;
        page.seal();
        *bytes = *page.bytes();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_with_right_checksums_is_survived(
        counted: bool,
        damage in proptest::collection::vec((any::<u16>(), 0usize..4096, proptest::collection::vec(any::<u8>(), 1..12), any::<bool>()), 1..4),
        next_commit: bool,
    ) {
        let (mut pages, tree) = sample(counted);
        let end = pages.end().0;
        for (page, at, garbage, in_header) in damage {
            let number = PageNo(u64::from(page) % end);
            if let Some(bytes) = pages.bytes_mut(number) {
                // The interesting part begins with the number of entries.
                let at = if in_header { 24 + at % 40 } else { at.min(bytes.len() - garbage.len()) };
                bytes[at..at + garbage.len()].copy_from_slice(&garbage);
                reseal(bytes);
            }
        }
        read_everything(&pages, &tree);
        problems(&pages, &tree);
        change_everything(&pages, &tree, next_commit);
    }

    #[test]
    fn garbage_among_duplicates_is_survived(
        fixed: bool,
        damage in proptest::collection::vec((any::<u16>(), 24usize..4084, proptest::collection::vec(any::<u8>(), 1..12)), 1..4),
        next_commit: bool,
    ) {
        let (mut pages, tree) = sample_of_duplicates(fixed);
        let end = pages.end().0;
        for (page, at, garbage) in damage {
            if let Some(bytes) = pages.bytes_mut(PageNo(u64::from(page) % end)) {
                bytes[at..at + garbage.len()].copy_from_slice(&garbage);
                reseal(bytes);
            }
        }
        read_duplicates(&pages, &tree);
        problems(&pages, &tree);
        change_duplicates(&pages, &tree, next_commit);
    }

    #[test]
    fn a_wrong_record_is_survived(root in 0u64..300, records: u64, height in 1u8..=24, counted: bool) {
        let (pages, tree) = sample(counted);
        let wrong = TreeRecord { root: PageNo(root), records, height, ..tree };
        read_everything(&pages, &wrong);
        prop_assert!(wrong == tree || problems(&pages, &wrong) > 0);
        change_everything(&pages, &wrong, true);
    }
}

/// A tree that refers to later commits than that which holds it did not come from it.
#[test]
fn pages_from_the_future_are_noticed() {
    let (pages, tree) = sample(false);
    let mut found = Problems::default();
    tree::check(&pages, &tree, CommitNo(0), &mut found);
    assert!(found.count > 0);
    assert!(pages.page(tree.root).is_ok());
}
