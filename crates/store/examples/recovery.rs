//! Measures recovery: fills the log with small commits that no checkpoint saves, dies, and times the opening after it.
//!
//! `cargo run --release -p sapwood-store --example recovery -- FOLDER [ENTRIES]`
//!
//! `FOLDER` is made anew. The tree has `ENTRIES` entries (a million unless said) of 100 bytes, and each commit changes
//! one of them, so that the log refers to pages all over the file. Opening is timed twice, each time of the same
//! crashed files: *cold*, after the system was told to forget them, and *warm*.

#![allow(clippy::unwrap_used)]

use std::io::{self, IoSlice};
use std::path::Path;
use std::process::{self, Command};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use sapwood_store::{Env, LOG_BYTES_DEFAULT, Options, TreeKind};
use sapwood_wal::storage::{File, Folder, Identity, Map, OpenMode, Storage, Window};

const VALUE: [u8; 100] = [7; 100];
/// Has the program fill the log of the folder and die.
const FILL: &str = "fill";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [folder, entries, fill] if fill == FILL => fill_log(folder, entries.parse().unwrap()),
        [folder] => measure(Path::new(folder), 1_000_000),
        [folder, entries] => measure(Path::new(folder), entries.parse().unwrap()),
        _ => eprintln!("recovery FOLDER [ENTRIES]"),
    }
}

fn measure(folder: &Path, entries: u64) {
    if folder.exists() {
        std::fs::remove_dir_all(folder).unwrap();
    }
    load(folder, entries);
    let crashed = folder.join("crashed");
    let started = Instant::now();
    let died = Command::new(std::env::current_exe().unwrap())
        .args([folder.to_str().unwrap(), &entries.to_string(), FILL])
        .status()
        .unwrap();
    println!(
        "the log was filled in {:.1} s ({died})",
        started.elapsed().as_secs_f64()
    );
    copy(folder, &crashed);
    for what in ["cold", "warm"] {
        let again = folder.join(what);
        copy(&crashed, &again);
        if what == "cold" {
            forget(&again);
        }
        let started = Instant::now();
        let env = Env::open(&again, &Options::new().idle_checkpoint(None)).unwrap();
        let seconds = started.elapsed().as_secs_f64();
        let mebibytes = LOG_BYTES_DEFAULT as f64 / f64::from(1 << 20);
        println!(
            "{what}: {seconds:.2} s, {:.0} MiB/s of log, commit {}",
            mebibytes / seconds,
            env.read().unwrap().commit()
        );
    }
}

fn load(folder: &Path, entries: u64) {
    let env = Env::open(folder, &Options::new()).unwrap();
    let mut txn = env.write().unwrap();
    let tree = txn.create_tree("entries", TreeKind::default()).unwrap();
    for key in 0..entries {
        txn.put(tree, &key.to_be_bytes(), &VALUE).unwrap();
    }
    txn.commit().unwrap().wait_durable().unwrap();
    env.checkpoint().unwrap();
}

/// Commits until the log is full, and dies without closing anything.
fn fill_log(folder: &str, entries: u64) {
    let storage = Arc::new(NoCheckpoints(Folder::open(Path::new(folder)).unwrap()));
    let env = Env::on_storage(storage, &Options::new()).unwrap();
    for n in 0_u64.. {
        let mut txn = env.write().unwrap();
        let tree = txn.tree("entries").unwrap().unwrap();
        let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % entries;
        txn.put(tree, &key.to_be_bytes(), &[n as u8; 100]).unwrap();
        let ticket = txn.commit().unwrap();
        if n % 64 == 63 {
            ticket.wait_durable().unwrap();
        }
        if n % 1000 == 999 {
            let used = env.stat().unwrap().log_bytes;
            if used > LOG_BYTES_DEFAULT - LOG_BYTES_DEFAULT / 50 {
                println!("{} commits, {} MiB of log", n + 1, used >> 20);
                process::abort();
            }
        }
    }
}

/// Copies the files of an environment, but not folders.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// Has the system drop what it keeps of these files in memory.
fn forget(folder: &Path) {
    for file in std::fs::read_dir(folder).unwrap() {
        let file = std::fs::File::open(file.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// A folder in which no checkpoint ever ends, because the thread that makes them waits for ever for the data file's
/// sync.
#[derive(Debug)]
struct NoCheckpoints(Folder);

impl Storage for NoCheckpoints {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.0.open(name, mode)?;
        Ok(if name.starts_with("data") {
            Arc::new(NeverSynced(file))
        } else {
            file
        })
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }

    fn identity(&self) -> io::Result<Identity> {
        self.0.identity()
    }

    fn path(&self) -> Option<&Path> {
        self.0.path()
    }
}

#[derive(Debug)]
struct NeverSynced(Arc<dyn File>);

impl File for NeverSynced {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.0.write_at(parts, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.allocate(offset, length)
    }

    fn sync_room(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.sync_room(offset, length)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_size(size)
    }

    /// Opening and growing the file go on.
    fn sync_data(&self) -> io::Result<()> {
        while thread::current().name() == Some("sapwood-checkpoint") {
            thread::park();
        }
        self.0.sync_data()
    }

    fn map(&self, reserve: usize) -> io::Result<Map> {
        self.0.map(reserve)
    }

    fn window(&self, offset: u64, length: usize) -> io::Result<Window> {
        self.0.window(offset, length)
    }

    fn identity(&self) -> io::Result<Identity> {
        self.0.identity()
    }

    fn handle(&self) -> &std::fs::File {
        self.0.handle()
    }
}
