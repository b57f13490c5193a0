//! Archive files that were damaged anyhow, with the right checksums: a backup is brought to what they hold, or they are
//! refused.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use sapwood_store::page::checksum;
use sapwood_store::{Env, Options, Restore, TreeKind, Until};
use tempfile::TempDir;

/// A backup, and the files that the archive has behind it.
struct Made {
    folder: TempDir,
    files: Vec<(String, Vec<u8>)>,
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
    let env = Env::open(path("env"), &options().archive(path("archive")).unwrap()).unwrap();
    let change = |round: u32| {
        let mut txn = env.write().unwrap();
        let tree = match txn.tree("t").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("t", TreeKind::COMPACT).unwrap(),
        };
        for n in 0..20_u32 {
            let value = vec![round as u8; if n == 7 { 5000 } else { 90 }];
            txn.put(tree, &(n * 7 + round).to_be_bytes(), &value).unwrap();
        }
        txn.delete(tree, &(round * 7).to_be_bytes()).unwrap();
        let tree = match txn.tree("apart").unwrap() {
            Some(tree) => tree,
            None => txn.create_tree("apart", TreeKind::OUT_OF_LINE).unwrap(),
        };
        for n in 0..9_u64 {
            let value = vec![round as u8; 50 + n as usize];
            txn.put(tree, &(n + u64::from(round)).to_be_bytes(), &value).unwrap();
        }
        txn.commit().unwrap().wait_durable().unwrap();
    };
    change(0);
    env.backup(path("backup")).unwrap();
    for round in 1..4 {
        change(round);
        env.archive().unwrap();
    }
    drop(env);
    let files = fs::read_dir(path("archive")).unwrap().map(|file| {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        (name, fs::read(file.path()).unwrap())
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    Made { folder, files }
}

// Each patch: a file, an offset in it (two bytes), a length, and so many bytes. A length of 255 cuts the file there.
fuzz_target!(|patches: &[u8]| {
    static MADE: OnceLock<Made> = OnceLock::new();
    let made = MADE.get_or_init(make);
    let mut files = made.files.clone();
    let mut rest = patches;
    while let [file, low, high, length, bytes @ ..] = rest {
        let at = usize::from(*file) % files.len();
        let file = &mut files[at].1;
        let offset = usize::from(u16::from_le_bytes([*low, *high])) % file.len().max(1);
        if *length == 255 {
            file.truncate(offset);
            rest = bytes;
            continue;
        }
        let (bytes, left) = bytes.split_at(usize::from(*length).min(bytes.len()));
        let length = bytes.len().min(file.len() - offset);
        file[offset..offset + length].copy_from_slice(&bytes[..length]);
        rest = left;
    }
    let run = tempfile::tempdir().unwrap();
    let (archive, dest) = (run.path().join("archive"), run.path().join("env"));
    fs::create_dir(&archive).unwrap();
    for (name, mut bytes) in files {
        if bytes.len() >= 16 {
            let sum = checksum(&[&bytes[16..]]);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        }
        fs::write(archive.join(name), bytes).unwrap();
    }
    let restore = Restore::of(made.path("backup")).archive(&archive, Until::End);
    if restore.into_folder(&dest).is_ok() {
        let env = Env::open(&dest, &options()).unwrap();
        assert!(env.check().unwrap().is_clean());
    }
});
