//! Measures what begins and ends cost: a snapshot, a lookup, a small commit.
//!
//! `cargo run --release -p sapwood-store --example latency -- FOLDER [ONLY]`

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use sapwood_store::{Env, Options, TreeKind};

fn measure(what: &str, times: u32, mut each: impl FnMut(u32)) {
    // With a second argument, only what has it in its name is measured.
    if std::env::args()
        .nth(2)
        .is_some_and(|only| !what.contains(&only))
    {
        return;
    }
    let started = Instant::now();
    (0..times).for_each(&mut each);
    let nanoseconds = started.elapsed().as_nanos() as f64 / f64::from(times);
    println!("{what:40} {nanoseconds:12.1} ns");
}

fn main() {
    let folder = std::env::args().nth(1).expect("a folder to work in");
    let env = Env::open(&folder, &Options::new()).unwrap();
    let mut txn = env.write().unwrap();
    txn.drop_tree("latency").unwrap();
    let tree = txn.create_tree("latency", TreeKind::default()).unwrap();
    for n in 0_u64..100_000 {
        txn.put(tree, &n.to_be_bytes(), &[7; 100]).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();

    measure("snapshot, begin and end", 10_000_000, |_| {
        drop(black_box(env.read().unwrap()));
    });
    measure("snapshot, tree and one lookup", 1_000_000, |n| {
        let snapshot = env.read().unwrap();
        let tree = snapshot.tree("latency").unwrap().unwrap();
        let key = u64::from(n).wrapping_mul(7919) % 100_000;
        black_box(tree.get(&key.to_be_bytes()).unwrap());
    });
    let snapshot = env.read().unwrap();
    let tree = snapshot.tree("latency").unwrap().unwrap();
    measure("one lookup", 1_000_000, |n| {
        let key = u64::from(n).wrapping_mul(7919) % 100_000;
        black_box(tree.get(&key.to_be_bytes()).unwrap());
    });
    drop(snapshot);
    measure("write transaction without changes", 100_000, |_| {
        drop(black_box(env.write().unwrap().commit().unwrap()));
    });
    let put = |n: u32| {
        let mut txn = env.write().unwrap();
        let tree = txn.tree("latency").unwrap().unwrap();
        let key = u64::from(n).wrapping_mul(7919) % 100_000;
        txn.put(tree, &key.to_be_bytes(), &[n as u8; 100]).unwrap();
        txn.commit().unwrap()
    };
    measure("small commit, waited for", 5_000, |n| {
        put(n).wait_durable().unwrap();
    });
    measure("small commit, waited for every 32", 50_000, |n| {
        let ticket = put(n);
        if n % 32 == 31 {
            ticket.wait_durable().unwrap();
        }
    });
    measure("1000 puts in one commit, waited for", 200, |n| {
        let mut txn = env.write().unwrap();
        let tree = txn.tree("latency").unwrap().unwrap();
        for m in 0..1000_u64 {
            let key = (u64::from(n) * 1000 + m).wrapping_mul(7919) % 100_000;
            txn.put(tree, &key.to_be_bytes(), &[m as u8; 100]).unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
    });
    println!("{:#?}", env.stat().unwrap());
}
