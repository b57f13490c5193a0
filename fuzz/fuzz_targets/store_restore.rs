//! Any bytes as a backup file: restoring them gives an error or an environment whose check is clean.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_store::page::{PAGE_BYTES, checksum};
use sapwood_store::{Env, Options, restore};

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    // Right checksums, so that what is in the pages is reached.
    for page in bytes.chunks_exact_mut(PAGE_BYTES) {
        let sum = checksum(&[&page[4..]]);
        page[..4].copy_from_slice(&sum.to_le_bytes());
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, dest) = (folder.path().join("backup"), folder.path().join("env"));
    std::fs::write(&file, bytes).unwrap();
    if restore(&file, &dest).is_ok() {
        let options = Options::new().log_bytes(64 << 10).idle_checkpoint(None);
        let env = Env::open(&dest, &options).unwrap();
        assert!(env.check().unwrap().is_clean());
    }
});
