//! What the operations of a tree cost, in nanoseconds, on pages in plain memory: the tree alone, without files, log or
//! readers. `cargo bench -p sapwood-store --bench tree [records]`; the second column is the standard library's ordered map.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use sapwood_store::bulk::TreeBuilder;
use sapwood_store::page::{MemoryPages, Page, PageNo, ReadPages};
use sapwood_store::tree::{self, TreeKind, TreeRecord, View};
use sapwood_store::{Error, Result};

const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 100;

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

fn random_key(numbers: &mut Numbers) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    for part in key.chunks_mut(8) {
        part.copy_from_slice(&numbers.next().to_be_bytes());
    }
    key
}

fn name_key(numbers: &mut Numbers) -> [u8; KEY_BYTES] {
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

fn time(what: &str, n: usize, tree: impl FnOnce(), map: impl FnOnce()) {
    let per = |run: &mut dyn FnMut()| {
        let start = cpu_time();
        run();
        (cpu_time() - start).as_nanos() as f64 / n as f64
    };
    let (mut tree, mut map) = (Some(tree), Some(map));
    let tree = per(&mut || tree.take().into_iter().for_each(|tree| tree()));
    let map = per(&mut || map.take().into_iter().for_each(|map| map()));
    println!("{what:32} {tree:9.1} {map:9.1}");
}

fn measure(name: &str, n: usize, make_key: fn(&mut Numbers) -> [u8; KEY_BYTES]) {
    let mut numbers = Numbers(1);
    let mut keys: Vec<_> = (0..n).map(|_| make_key(&mut numbers)).collect();
    let value = [5; VALUE_BYTES];
    println!(
        "{name}: {n} records, keys of {KEY_BYTES} bytes, values of {VALUE_BYTES}      tree       map"
    );

    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(TreeKind::default());
    let mut map = BTreeMap::new();
    time(
        "put in random order",
        n,
        || {
            keys.iter()
                .for_each(|key| drop(tree::put(&mut pages, &mut tree, key, &value).unwrap()))
        },
        || keys.iter().for_each(|key| drop(map.insert(*key, value))),
    );
    println!(
        "    {} leaf pages, {} branch pages, {} levels",
        tree.leaf_pages, tree.branch_pages, tree.height
    );
    let put_pages = FlatPages::of(&pages);
    let put_tree = tree;

    shuffle(&mut keys);
    time(
        "replace in random order",
        n,
        || {
            keys.iter()
                .for_each(|key| drop(tree::put(&mut pages, &mut tree, key, &value).unwrap()))
        },
        || keys.iter().for_each(|key| drop(map.insert(*key, value))),
    );

    shuffle(&mut keys);
    let view = View::new(&put_pages, put_tree);
    let sum = |value: Option<&[u8]>| value.map_or(0, |value| usize::from(value[VALUE_BYTES / 2]));
    time(
        "get",
        n,
        || {
            drop(black_box(
                keys.iter()
                    .map(|key| sum(view.get(key).unwrap()))
                    .sum::<usize>(),
            ))
        },
        || {
            drop(black_box(
                keys.iter()
                    .map(|key| sum(map.get(key).map(|value| value.as_slice())))
                    .sum::<usize>(),
            ))
        },
    );
    time(
        "seek",
        n,
        || {
            let mut cursor = view.cursor();
            let mut get =
                |key: &[u8; KEY_BYTES]| sum(cursor.seek(key).and_then(|_| cursor.value()).unwrap());
            drop(black_box(keys.iter().map(&mut get).sum::<usize>()));
        },
        || {
            drop(black_box(
                keys.iter()
                    .map(|key| {
                        sum(map
                            .range::<[u8; KEY_BYTES], _>(key..)
                            .next()
                            .map(|(_, value)| value.as_slice()))
                    })
                    .sum::<usize>(),
            ))
        },
    );
    time(
        "scan, keys and values",
        n,
        || {
            let mut cursor = view.cursor();
            let mut total = 0;
            while cursor.next().unwrap() {
                let (key, value) = cursor.record().unwrap().unwrap();
                total += usize::from(key[20]) + usize::from(value[VALUE_BYTES / 2]);
            }
            black_box(total);
        },
        || {
            drop(black_box(
                map.iter()
                    .map(|(key, value)| usize::from(key[20]) + usize::from(value[50]))
                    .sum::<usize>(),
            ))
        },
    );

    keys.sort_unstable();
    keys.dedup();
    let mut pages = MemoryPages::default();
    let mut tree = TreeRecord::empty(TreeKind::default());
    time(
        "put in ascending order",
        n,
        || {
            keys.iter()
                .for_each(|key| drop(tree::put(&mut pages, &mut tree, key, &value).unwrap()))
        },
        || {
            drop(black_box(
                keys.iter()
                    .map(|key| (*key, value))
                    .collect::<BTreeMap<_, _>>(),
            ))
        },
    );
    println!(
        "    {} leaf pages, {} branch pages, {} levels",
        tree.leaf_pages, tree.branch_pages, tree.height
    );
    let mut pages = MemoryPages::default();
    let mut builder = TreeBuilder::new(TreeKind::default());
    let mut built = tree;
    time(
        "bulk",
        n,
        || {
            keys.iter()
                .for_each(|key| builder.push(&mut pages, key, &value).unwrap());
            built = builder.finish(&mut pages).unwrap();
        },
        || {},
    );
    println!(
        "    {} leaf pages, {} branch pages, {} levels",
        built.leaf_pages, built.branch_pages, built.height
    );
    let flat = FlatPages::of(&pages);
    let view = View::new(&flat, built);
    shuffle(&mut keys);
    time(
        "get from full pages",
        n,
        || {
            drop(black_box(
                keys.iter()
                    .map(|key| sum(view.get(key).unwrap()))
                    .sum::<usize>(),
            ))
        },
        || {},
    );

    time(
        "delete in random order",
        keys.len(),
        || {
            keys.iter()
                .for_each(|key| drop(tree::delete(&mut pages, &mut built, key).unwrap()))
        },
        || keys.iter().for_each(|key| drop(map.remove(key))),
    );
}

fn main() {
    let n = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1_000_000);
    measure("random keys", n, random_key);
    measure("names", n, name_key);
}
