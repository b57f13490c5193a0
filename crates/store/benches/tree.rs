//! What the operations of a tree cost, in nanoseconds, on pages in plain memory: the tree alone, without files, log or
//! readers; and on the standard library's ordered map. `cargo bench -p sapwood-store --bench tree [records]`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use sapwood_store::bulk::TreeBuilder;
use sapwood_store::page::{Page, PageNo, ReadPages};
use sapwood_store::tree::{self, TreeKind, TreeRecord, View};
use sapwood_store::{Error, Result};

#[path = "../tests/memory_pages/mod.rs"]
mod memory_pages;

use memory_pages::MemoryPages;

const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 100;

type Key = [u8; KEY_BYTES];

/// Pages one behind the other, as in a file.
struct FlatPages(Vec<Page>);

impl ReadPages for FlatPages {
    fn page(&self, number: PageNo) -> Result<&Page> {
        self.0.get(number.0 as usize).ok_or(Error::Corrupt {
            page: number,
            what: "page number outside the store",
        })
    }

    fn extent(&self, first: PageNo, _: u32) -> Result<&[u8]> {
        Err(Error::Corrupt {
            page: first,
            what: "no extents here",
        })
    }
}

impl FlatPages {
    fn of(pages: &MemoryPages) -> Self {
        let page = |number| {
            pages
                .page(PageNo(number))
                .cloned()
                .unwrap_or(Page::zeroed())
        };
        Self((0..pages.end().0).map(page).collect())
    }
}

/// splitmix64: the same keys in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}

fn random_key(numbers: &mut Numbers) -> Key {
    let mut key = [0; KEY_BYTES];
    for part in key.chunks_mut(8) {
        part.copy_from_slice(&numbers.next().to_be_bytes());
    }
    key
}

fn name_key(numbers: &mut Numbers) -> Key {
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(
        format!("uid=person{:014}", numbers.next() % 100_000_000_000_000).as_bytes(),
    );
    key
}

fn shuffle<T>(items: &mut [T]) {
    let mut numbers = Numbers(7);
    for i in (1..items.len()).rev() {
        items.swap(i, numbers.next() as usize % (i + 1));
    }
}

/// The processor time of this thread, which other programs on the machine disturb less than they do the clock.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs one thing and prints what each of its `n` parts took.
fn time<T>(what: &str, n: usize, run: impl FnOnce() -> T) -> T {
    let start = cpu_time();
    let result = black_box(run());
    println!(
        "{what:40} {:8.1}",
        (cpu_time() - start).as_nanos() as f64 / n as f64
    );
    result
}

fn each(what: &str, keys: &[Key], mut run: impl FnMut(&Key) -> usize) {
    time(what, keys.len(), || {
        keys.iter().map(&mut run).sum::<usize>()
    });
}

fn measure(name: &str, n: usize, make_key: fn(&mut Numbers) -> Key) {
    let mut numbers = Numbers(1);
    let mut keys: Vec<_> = (0..n).map(|_| make_key(&mut numbers)).collect();
    let value = [5; VALUE_BYTES];
    let part = |value: &[u8]| usize::from(value[VALUE_BYTES / 2]);
    let shape = |tree: &TreeRecord| {
        let TreeRecord {
            leaf_pages,
            branch_pages,
            height,
            ..
        } = tree;
        println!("    {leaf_pages} leaf pages, {branch_pages} branch pages, {height} levels");
    };
    println!(
        "{name}: {n} records, keys of {KEY_BYTES} bytes, values of {VALUE_BYTES}; nanoseconds each"
    );

    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(TreeKind::default());
    each("put in random order", &keys, |key| {
        tree::put(&mut pages, &mut tree, key, &value)
            .unwrap()
            .into()
    });
    shape(&tree);
    let put = (FlatPages::of(&pages), tree);
    shuffle(&mut keys);
    each("replace in random order", &keys, |key| {
        tree::put(&mut pages, &mut tree, key, &value)
            .unwrap()
            .into()
    });
    let view = View::new(&put.0, put.1);
    each("get", &keys, |key| view.get(key).unwrap().map_or(0, part));
    let mut cursor = view.cursor();
    each("seek", &keys, |key| {
        cursor
            .seek(key)
            .and_then(|_| cursor.value())
            .unwrap()
            .map_or(0, part)
    });
    time("scan, keys and values", n, || {
        let mut cursor = view.cursor();
        let mut sum = 0;
        while cursor.next().unwrap() {
            let (key, value) = cursor.record().unwrap().unwrap();
            sum += part(value) + usize::from(key[KEY_BYTES - 1]);
        }
        sum
    });
    each("delete in random order", &keys, |key| {
        tree::delete(&mut pages, &mut tree, key).unwrap().into()
    });

    keys.sort_unstable();
    keys.dedup();
    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(TreeKind::default());
    each("put in ascending order", &keys, |key| {
        tree::put(&mut pages, &mut tree, key, &value)
            .unwrap()
            .into()
    });
    shape(&tree);
    let mut pages = MemoryPages::default();
    let mut builder = TreeBuilder::new(TreeKind::default());
    let tree = time("bulk", n, || {
        keys.iter()
            .for_each(|key| builder.push(&mut pages, key, &value).unwrap());
        builder.finish(&mut pages).unwrap()
    });
    shape(&tree);
    let full = FlatPages::of(&pages);
    let view = View::new(&full, tree);
    shuffle(&mut keys);
    each("get from full pages", &keys, |key| {
        view.get(key).unwrap().map_or(0, part)
    });

    let mut map = BTreeMap::new();
    each("ordered map: insert in random order", &keys, |key| {
        map.insert(*key, value).is_some().into()
    });
    shuffle(&mut keys);
    each("ordered map: get", &keys, |key| {
        map.get(key).map_or(0, |value| part(value))
    });
    each("ordered map: remove", &keys, |key| {
        map.remove(key).is_some().into()
    });
}

fn main() {
    let n = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1_000_000);
    measure("random keys", n, random_key);
    measure("names", n, name_key);
}
