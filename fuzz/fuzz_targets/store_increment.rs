//! Any bytes as an increment that follows a backup: restoring them gives an error or an environment whose check is
//! clean.

#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use sapwood_store::page::{PAGE_BYTES, checksum};
use sapwood_store::{Env, Options, Restore, TreeKind};

fn options() -> Options {
    Options::new().log_bytes(64 << 10).idle_checkpoint(None)
}

/// A backup, and the beginning of an increment that follows it.
fn base() -> &'static (tempfile::TempDir, PathBuf, Vec<u8>) {
    static BASE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::open(folder.path().join("env"), &options()).unwrap();
        let (full, increment) = (folder.path().join("full"), folder.path().join("increment"));
        for round in 0..2_u8 {
            let mut txn = env.write().unwrap();
            let tree = match txn.tree("t").unwrap() {
                Some(tree) => tree,
                None => txn.create_tree("t", TreeKind::default()).unwrap(),
            };
            txn.put(tree, &[round], &[round; 100]).unwrap();
            txn.commit().unwrap().wait_durable().unwrap();
            match round {
                0 => env.backup(&full).unwrap(),
                _ => env.backup_since(&full, &increment).unwrap(),
            };
        }
        let bytes = std::fs::read(increment).unwrap();
        (folder, full, bytes)
    })
}

fuzz_target!(|input: &[u8]| {
    let (_, full, start) = base();
    // The input is laid over the real one behind its two meta pages, from the end of the header on.
    let mut bytes = start.clone();
    let (header, pages) = input.split_at(input.len().min(8));
    bytes[16..16 + header.len()].copy_from_slice(header);
    bytes.truncate(3 * PAGE_BYTES);
    for run in pages.chunks(16 + PAGE_BYTES) {
        let at = bytes.len();
        bytes.extend_from_slice(run);
        if let Some(page) = bytes.get_mut(at + 16..).filter(|page| page.len() == PAGE_BYTES) {
            let sum = checksum(&[&page[4..]]);
            page[..4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let sum = checksum(&[&bytes[16..PAGE_BYTES]]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    let folder = tempfile::tempdir().unwrap();
    let (file, dest) = (folder.path().join("increment"), folder.path().join("env"));
    std::fs::write(&file, bytes).unwrap();
    if Restore::of(full).increment(&file).into_folder(&dest).is_ok() {
        let env = Env::open(&dest, &options()).unwrap();
        assert!(env.check().unwrap().is_clean());
    }
});
