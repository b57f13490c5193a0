//! Measures commits beside what the disk itself can do: overwriting 4 KiB and `fdatasync(2)`, one after the other.
//!
//! `cargo run --release -p sapwood-store --example commits -- FOLDER [ROUNDS [ONLY]]`

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sapwood_store::{Durability, Env, Options, TreeKind};

const RECORDS: u64 = 1_000_000;
const VALUE: [u8; 125] = [7; 125];

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("a folder to work in");
    let rounds: u32 = args.next().map_or(3, |rounds| rounds.parse().unwrap());
    let only = args.next().unwrap_or_default();
    let folder = Path::new(&folder);
    let env = Env::open(folder.join("env"), &Options::new()).unwrap();
    fill(&env);
    let disk = Disk::new(&folder.join("plain"));
    let next = AtomicU32::new(1);
    let wants = |what: &str| what.contains(&only);
    for _ in 0..rounds {
        let plain = per_second(2000, || disk.overwrite(2000));
        println!("{:38} {plain:9.0} /s", "4 KiB overwritten and synced");
        for (threads, commits) in [(1, 2000), (8, 8000), (32, 16000)] {
            let what = format!("durable commits, {threads} threads");
            if wants(&what) {
                let rate = per_second(commits, || many(&env, &next, threads, commits, 1));
                println!("{what:38} {rate:9.0} /s  {:5.2} x", rate / plain);
            }
        }
        if wants("durable batches") {
            let rate = per_second(100_000, || many(&env, &next, 1, 100, 1000));
            println!("{:38} {rate:9.0} records/s", "durable batches of 1,000");
        }
        if wants("relaxed commits") {
            let rate = per_second(50_000, || relaxed(&env, &next, 50_000));
            println!("{:38} {rate:9.0} /s", "relaxed commits");
        }
        if wants("latency") {
            latencies("latency of a durable commit", 20_000, || {
                put(&env, &next, 1)
            });
            latencies("latency of overwrite and sync", 20_000, || {
                disk.overwrite(1)
            });
        }
    }
}

/// A file whose blocks are all there.
struct Disk(File);

impl Disk {
    fn new(path: &Path) -> Self {
        let file = File::create(path).unwrap();
        file.write_all_at(&vec![1; 16 << 20], 0).unwrap();
        file.sync_all().unwrap();
        Self(file)
    }

    fn overwrite(&self, times: u32) {
        for n in 0..times {
            self.0
                .write_all_at(&[n as u8; 4096], u64::from(n) % 4096 * 4096)
                .unwrap();
            self.0.sync_data().unwrap();
        }
    }
}

fn key(n: u64) -> [u8; 24] {
    let mut key = *b"................key     ";
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key
}

fn fill(env: &Env) {
    let snapshot = env.read().unwrap();
    if snapshot.tree("commits").unwrap().is_some() {
        return;
    }
    for part in 0..RECORDS / 100_000 {
        let mut txn = env.write().unwrap();
        let tree = match txn.tree("commits").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("commits", TreeKind::default()).unwrap(),
        };
        for n in 0..100_000 {
            txn.put(tree, &key(part * 100_000 + n), &VALUE).unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
    }
    env.checkpoint().unwrap();
}

/// Replaces random records in one commit.
fn put(env: &Env, next: &AtomicU32, records: u32) {
    let mut txn = env.write().unwrap();
    let tree = txn.tree("commits").unwrap().unwrap();
    for _ in 0..records {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let random = u64::from(n).wrapping_mul(2_654_435_761) % RECORDS;
        let mut value = VALUE;
        value[..4].copy_from_slice(&n.to_le_bytes());
        txn.put(tree, &key(random), &value).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
}

fn many(env: &Env, next: &AtomicU32, threads: u32, commits: u32, records: u32) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..commits / threads).for_each(|_| put(env, next, records)));
        }
    });
}

fn relaxed(env: &Env, next: &AtomicU32, commits: u32) {
    for _ in 0..commits {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let random = u64::from(n).wrapping_mul(2_654_435_761) % RECORDS;
        let mut txn = env.write().unwrap();
        let tree = txn.tree("commits").unwrap().unwrap();
        txn.put(tree, &key(random), &VALUE).unwrap();
        drop(txn.commit_with(Durability::Relaxed).unwrap());
    }
}

fn per_second(times: u32, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    f64::from(times) / started.elapsed().as_secs_f64()
}

fn latencies(what: &str, times: usize, mut each: impl FnMut()) {
    let mut taken: Vec<Duration> = (0..times)
        .map(|_| {
            let started = Instant::now();
            each();
            started.elapsed()
        })
        .collect();
    taken.sort_unstable();
    let at = |per_mille: usize| taken[(times - 1) * per_mille / 1000].as_micros();
    let (half, most, last) = (at(500), at(990), at(999));
    println!("{what:38} p50 {half} us, p99 {most} us, p99.9 {last} us");
}
