//! What a durable record costs: an append and a sync of the log, beside a plain overwrite and fdatasync(2) of a file of
//! the same kind.
//!
//! `cargo bench -p sapwood-wal` runs it in a scratch folder of the current one; `SAPWOOD_BENCH_FOLDER` names another
//! place.
#![allow(clippy::unwrap_used)]

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use sapwood_wal::storage::{Folder, OpenMode, Storage};
use sapwood_wal::{LogId, Lsn, Options, Position, Shared, Wal};

const ROUNDS: usize = 2000;
const BLOCK: usize = 100;

fn main() {
    let place = std::env::var_os("SAPWOOD_BENCH_FOLDER").map_or_else(|| ".".into(), PathBuf::from);
    let folder = tempfile::tempdir_in(place).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Folder::open(folder.path()).unwrap());
    println!("payload   log append+sync   overwrite+fdatasync   ratio");
    for payload_bytes in [300, 4096, 32 * 1024] {
        let (log, raw) = one_writer(&storage, payload_bytes);
        println!(
            "{payload_bytes:>7}   {:>12.1} us   {:>16.1} us   {:>5.2}",
            log.as_secs_f64() * 1e6,
            raw.as_secs_f64() * 1e6,
            log.as_secs_f64() / raw.as_secs_f64(),
        );
    }
    println!("\nthreads   durable records/s   records per sync");
    for threads in [1, 4, 16, 64] {
        many_writers(&storage, threads);
    }
    println!(
        "\nappend alone, 300 bytes: {:.2} us",
        append_alone(&storage).as_secs_f64() * 1e6
    );
}

fn new_log(storage: &Arc<dyn Storage>) -> Wal {
    Wal::remove(&**storage, "log").unwrap();
    Wal::create(storage, "log", LogId([1; 16]), &Options::default()).unwrap();
    let shared = Arc::new(Shared::default());
    let log = Wal::open(storage, "log", OpenMode::Write, shared).unwrap();
    let mut records = log.records(Position::START).unwrap();
    assert!(records.next().unwrap().is_none());
    log.start(Lsn(0), &records).unwrap();
    drop(records);
    log
}

/// The medians of both, measured in turns.
fn one_writer(storage: &Arc<dyn Storage>, payload_bytes: usize) -> (Duration, Duration) {
    let log = new_log(storage);
    let bytes = 8 * 1024 * 1024;
    let raw = storage.open("raw", OpenMode::CreateNew).unwrap();
    raw.write_all_at(&vec![0; bytes], 0).unwrap();
    raw.sync_data().unwrap();
    let payload = vec![0x5a; payload_bytes];
    let (mut log_times, mut raw_times) = (Vec::new(), Vec::new());
    let mut at = 0;
    for _ in 0..ROUNDS / BLOCK {
        for _ in 0..BLOCK {
            let started = Instant::now();
            let end = log.append(&[IoSlice::new(&payload)]).unwrap();
            log.sync_to(end.lsn).unwrap();
            log_times.push(started.elapsed());
            log.recycle_before(end.lsn);
        }
        for _ in 0..BLOCK {
            let started = Instant::now();
            raw.write_all_at(&payload, at as u64).unwrap();
            raw.sync_data().unwrap();
            raw_times.push(started.elapsed());
            at = (at + payload_bytes) % (bytes - payload_bytes);
        }
    }
    storage.remove("raw").unwrap();
    (median(log_times), median(raw_times))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn many_writers(storage: &Arc<dyn Storage>, threads: usize) {
    let log = new_log(storage);
    let writer = Mutex::new(());
    let begin = Barrier::new(threads + 1);
    let per_thread = ROUNDS;
    let started = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                begin.wait();
                for _ in 0..per_thread {
                    let end = {
                        let _lock = writer.lock().unwrap();
                        log.append(&[IoSlice::new(&[7; 300])]).unwrap()
                    };
                    log.sync_to(end.lsn).unwrap();
                    log.recycle_before(end.lsn);
                }
            });
        }
        begin.wait();
        Instant::now()
    });
    let records = (threads * per_thread) as f64;
    println!(
        "{threads:>7}   {:>17.0}   {:>16.1}",
        records / started.elapsed().as_secs_f64(),
        records / log.syncs() as f64,
    );
}

fn append_alone(storage: &Arc<dyn Storage>) -> Duration {
    let log = new_log(storage);
    // The first lap makes the segments.
    while log.append(&[IoSlice::new(&[7; 30_000])]).is_ok() {}
    log.sync_to(log.end()).unwrap();
    log.recycle_before(log.end());
    let rounds = 100_000;
    let started = Instant::now();
    for _ in 0..rounds {
        log.append(&[IoSlice::new(&[7; 300])]).unwrap();
    }
    started.elapsed() / rounds
}
