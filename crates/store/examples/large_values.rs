//! Durable transactions of large values, logged, and with a log so short that they are committed without it: how long
//! each takes.
//!
//! `cargo run --release -p sapwood-store --example large_values -- FOLDER [ROUNDS]`

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use sapwood_store::{Env, LOG_BYTES_DEFAULT, LOG_BYTES_MIN, Options, TreeKind};

const VALUE_BYTES: usize = 100 << 10;
const COUNTS: [u64; 6] = [1, 4, 16, 40, 80, 190];
/// Small records beside them.
const RECORDS: u64 = 20_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("the folder to work in");
    let rounds = args.next().map_or(5, |rounds| rounds.parse().unwrap());
    for count in COUNTS {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for (log_bytes, times) in [LOG_BYTES_DEFAULT, LOG_BYTES_MIN].iter().zip(&mut times) {
                let place = Path::new(&folder).join(log_bytes.to_string());
                times.push(time(&place, *log_bytes, count, round));
                std::fs::remove_dir_all(&place).unwrap();
            }
        }
        let [logged, unlogged] = times.map(|mut times| {
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e3
        });
        println!("{count:4} values: {logged:8.2} ms logged, {unlogged:8.2} ms without the log");
    }
}

fn time(place: &Path, log_bytes: u64, count: u64, round: u64) -> Duration {
    let options = Options::new().log_bytes(log_bytes).idle_checkpoint(None);
    let env = Env::open(place, &options).unwrap();
    let mut txn = env.write().unwrap();
    let values = txn.create_tree("values", TreeKind::COMPACT).unwrap();
    let records = txn.create_tree("records", TreeKind::COMPACT).unwrap();
    for n in 0..RECORDS {
        txn.put(records, &scattered(n).to_be_bytes(), &[1; 120])
            .unwrap();
    }
    // The file has grown and the log has its segments, as in a store that has been there for a while.
    for n in 0..count {
        txn.put(values, &n.to_be_bytes(), &vec![1; VALUE_BYTES])
            .unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    let mut txn = env.write().unwrap();
    let values = txn.tree("values").unwrap().unwrap();
    for n in 0..count {
        txn.delete(values, &n.to_be_bytes()).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    let value: Vec<u8> = (0..VALUE_BYTES as u64)
        .map(|n| scattered(n + round) as u8)
        .collect();
    let begun = Instant::now();
    let mut txn = env.write().unwrap();
    let values = txn.tree("values").unwrap().unwrap();
    for n in 0..count {
        txn.put(values, &scattered(n).to_be_bytes(), &value)
            .unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    begun.elapsed()
}

fn scattered(n: u64) -> u64 {
    (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}
