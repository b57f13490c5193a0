//! What an environment costs: snapshots, reads and commits. `cargo bench -p sapwood-store --bench env [records]`.
//!
//! Two columns: nanoseconds of this thread's processor time, and of the clock, where waiting for the disk shows.
//! The environment is made in the folder that `TMPDIR` names and removed afterwards.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use sapwood_store::{Env, Options, TreeKind};

const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 100;

type Key = [u8; KEY_BYTES];

/// The `n`-th key: pseudo-random, and the same in every run.
fn key(n: usize) -> Key {
    let mut key = [0; KEY_BYTES];
    for (place, salt) in key.chunks_mut(8).zip(1..) {
        let z = (n as u64 + 1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .wrapping_mul(2 * salt + 1);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        place.copy_from_slice(&(z ^ (z >> 27)).to_be_bytes());
    }
    key
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn time<T>(what: &str, n: usize, run: impl FnOnce() -> T) -> T {
    let (cpu, clock) = (cpu_time(), Instant::now());
    let result = black_box(run());
    let per = |time: Duration| time.as_nanos() as f64 / n as f64;
    println!(
        "{what:48} {:10.1} {:10.1}",
        per(cpu_time() - cpu),
        per(clock.elapsed())
    );
    result
}

fn main() {
    let n: usize = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1_000_000);
    let folder = tempfile::tempdir().unwrap();
    let env = Env::open(folder.path().join("env"), &Options::new()).unwrap();
    println!(
        "{n} records, keys of {KEY_BYTES} bytes, values of {VALUE_BYTES}; nanoseconds each, processor and clock"
    );

    let mut sorted: Vec<_> = (0..n).map(key).collect();
    sorted.sort_unstable();
    sorted.dedup();
    time("bulk load, durable", n, || {
        let mut load = env.bulk().unwrap();
        let mut tree = load.tree("records", TreeKind::default()).unwrap();
        sorted
            .iter()
            .for_each(|key| tree.push(&mut load, key, &[5; VALUE_BYTES]).unwrap());
        tree.finish(&mut load).unwrap();
        load.commit().unwrap()
    });
    time("snapshot begun and dropped", 1_000_000, || {
        (0..1_000_000).for_each(|_| drop(env.read().unwrap()))
    });
    time("snapshot, tree by name, one get", n, || {
        for i in 0..n {
            let snapshot = env.read().unwrap();
            let tree = snapshot.tree("records").unwrap().unwrap();
            black_box(tree.get(&key(i)).unwrap().unwrap()[50]);
        }
    });
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("records").unwrap().unwrap();
    time("get", n, || {
        (0..n)
            .map(|i| usize::from(tree.get(&key(i)).unwrap().unwrap()[50]))
            .sum::<usize>()
    });
    time("scan, keys and values", n, || {
        let mut cursor = tree.cursor();
        let mut sum = 0;
        while cursor.next().unwrap() {
            let (key, value) = cursor.record().unwrap().unwrap();
            sum += usize::from(key[23]) + usize::from(value[50]);
        }
        sum
    });
    drop(snapshot);

    let write = |from: usize, commits: usize, puts: usize, wait: bool| {
        let mut last = None;
        for commit in 0..commits {
            let mut txn = env.write().unwrap();
            let tree = txn.tree("records").unwrap().unwrap();
            for put in 0..puts {
                let number = (from + commit * puts + put) * 7919 % n;
                txn.put(tree, &key(number), &[commit as u8; VALUE_BYTES])
                    .unwrap();
            }
            let ticket = txn.commit().unwrap();
            if wait {
                ticket.wait_durable().unwrap();
            }
            last = Some(ticket);
        }
        last.unwrap().wait_durable().unwrap();
    };
    time("replace, 1 a commit, each waited for", 2_000, || {
        write(0, 2_000, 1, true)
    });
    time("replace, 1 a commit, the last waited for", 20_000, || {
        write(1, 20_000, 1, false)
    });
    time("replace, 1000 a commit, each waited for", 200_000, || {
        write(2, 200, 1_000, true)
    });
    time(
        "replace, 1000 a commit, the last waited for",
        200_000,
        || write(3, 200, 1_000, false),
    );
    time("replace, all in one commit", n, || write(4, 1, n, true));
    let stat = env.stat().unwrap();
    println!("    {} pages, {} log syncs", stat.pages, stat.log_syncs);
}
