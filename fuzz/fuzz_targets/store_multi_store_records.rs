//! Any record in place of a multi-store one: the stores are brought to what it says, or it is refused.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use sapwood_store::page::checksum;
use sapwood_store::{Env, Options, Restore, TreeKind, Until};
use tempfile::TempDir;

/// The bytes of an archive file before its first record, each of which has its length before it.
const HEADER_BYTES: usize = 72;

/// A backup of two stores, and the file of an archive that holds the one multi-store record behind it.
struct Made {
    folder: TempDir,
    name: String,
    bytes: Vec<u8>,
}

impl Made {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn options() -> Options {
    Options::new().log_bytes(64 << 10).idle_checkpoint(None)
}

fn make() -> Made {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("archive")).unwrap();
    let archiving = options().stores(2).archive(path("archive")).unwrap();
    let env = Env::open(path("env"), &archiving).unwrap();
    let change = |round: u8| {
        let mut txn = env.write_stores(&[0, 1]).unwrap();
        for number in 0..2 {
            let store = txn.store(number).unwrap();
            let tree = match store.tree("t").unwrap() {
                Some(tree) => tree,
                None => store.create_tree("t", TreeKind::COMPACT).unwrap(),
            };
            let length = if number == 0 { 200 } else { 5000 };
            store.put(tree, &[round % 2], &vec![round; length]).unwrap();
            // The last of them stores places in a leaf that is there, of records that replace others.
            let tree = match store.tree("apart").unwrap() {
                Some(tree) => tree,
                None => store.create_tree("apart", TreeKind::OUT_OF_LINE).unwrap(),
            };
            for key in 0..3_u64 {
                let mut value = [7; 60];
                value[20] = round;
                store.put(tree, &key.to_be_bytes(), &value).unwrap();
            }
        }
        txn.commit().unwrap().wait_durable().unwrap();
    };
    (0..3).for_each(change);
    env.archive().unwrap();
    env.backup_stores(path("backup")).unwrap();
    change(3);
    env.archive().unwrap();
    drop(env);
    let files = fs::read_dir(path("archive")).unwrap();
    let last = files.map(|file| file.unwrap().path()).max().unwrap();
    let name = last.file_name().unwrap().to_str().unwrap().to_owned();
    let bytes = fs::read(&last).unwrap();
    let length = u32::from_le_bytes(bytes[HEADER_BYTES..HEADER_BYTES + 4].try_into().unwrap());
    assert_eq!(bytes.len(), HEADER_BYTES + 4 + length as usize, "one record");
    Made {
        folder,
        name,
        bytes,
    }
}

// Each patch of the record: an offset in it (two bytes), how many of its bytes go, how many come, and these.
fuzz_target!(|patches: &[u8]| {
    static MADE: OnceLock<Made> = OnceLock::new();
    let made = MADE.get_or_init(make);
    let mut record = made.bytes[HEADER_BYTES + 4..].to_vec();
    let mut rest = patches;
    while let [low, high, gone, come, bytes @ ..] = rest {
        let offset = usize::from(u16::from_le_bytes([*low, *high])) % (record.len() + 1);
        let end = (offset + usize::from(*gone)).min(record.len());
        let (bytes, left) = bytes.split_at(usize::from(*come).min(bytes.len()));
        record.splice(offset..end, bytes.iter().copied());
        rest = left;
    }
    let mut bytes = made.bytes[..HEADER_BYTES].to_vec();
    bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&record);
    let sum = checksum(&[&bytes[16..]]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    let run = tempfile::tempdir().unwrap();
    let (archive, dest) = (run.path().join("archive"), run.path().join("env"));
    fs::create_dir(&archive).unwrap();
    fs::write(archive.join(&made.name), bytes).unwrap();
    let restore = Restore::of(made.path("backup")).archive(&archive, Until::End);
    let restored = restore.into_folder(&dest);
    if patches.is_empty() {
        restored.as_ref().unwrap();
    }
    if restored.is_ok() {
        let env = Env::open(&dest, &options()).unwrap();
        for number in 0..2 {
            let store = env.store(number).unwrap();
            assert!(store.check().unwrap().is_clean());
        }
    }
});
