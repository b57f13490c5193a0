//! A block device as a store: a loop device over a file, where one can be made.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use sapwood_store::{Env, Error, Options, TreeKind};

const BYTES: u64 = 24 << 20;

struct Device {
    path: PathBuf,
}

impl Device {
    /// None where the system has no loop devices for us, which is said.
    fn new(image: &Path) -> Option<Self> {
        let file = File::create_new(image).unwrap();
        // Whatever the device held before: only its first page is blank.
        file.write_all_at(&vec![0xa5; BYTES as usize], 0).unwrap();
        file.write_all_at(&[0; 4096], 0).unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output();
        let path = match made {
            Ok(made) if made.status.success() => String::from_utf8(made.stdout).unwrap(),
            why => {
                eprintln!("SKIPPED: no loop device can be made here: {why:?}");
                return None;
            }
        };
        let path = PathBuf::from(path.trim());
        Some(Self { path })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let detached = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
        assert!(detached.is_ok_and(|status| status.success()));
    }
}

fn options() -> Options {
    Options::new().log_bytes(1 << 20).idle_checkpoint(None)
}

fn put(env: &Env, numbers: std::ops::Range<u32>, value: &[u8]) -> sapwood_store::Result<()> {
    let mut txn = env.write()?;
    let tree = match txn.tree("t")? {
        Some(tree) => tree,
        None => txn.create_tree("t", TreeKind::COMPACT)?,
    };
    for number in numbers {
        txn.put(tree, &number.to_be_bytes(), value)?;
    }
    txn.commit()?.wait_durable()?;
    Ok(())
}

fn count(env: &Env) -> u64 {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    let snapshot = env.read().unwrap();
    snapshot
        .tree("t")
        .unwrap()
        .map_or(0, |tree| tree.record().records)
}

#[test]
fn a_device_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (Some(device), Some(other)) = (
        Device::new(&path("image")),
        Device::new(&path("other image")),
    ) else {
        return;
    };
    let at = path("env");
    fs::create_dir(&at).unwrap();
    symlink(&device.path, at.join("data-0")).unwrap();
    symlink(&other.path, at.join("data-1")).unwrap();
    let env = Env::open(&at, &options().stores(2)).unwrap();
    let second = env.store(1).unwrap();
    for part in 0..50 {
        put(&env, part * 100..part * 100 + 100, &[1; 100]).unwrap();
        put(&second, part * 50..part * 50 + 50, &[2; 300]).unwrap();
    }
    assert!(
        env.stat().unwrap().pages_allocated < BYTES / 4096,
        "all at once"
    );

    // What is on the devices and in the log at this moment is what is left when the machine stops.
    let left = path("left");
    fs::create_dir(&left).unwrap();
    for file in fs::read_dir(&at).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "lock" {
            // (`fs::copy` refuses devices.)
            fs::write(left.join(file.file_name()), fs::read(file.path()).unwrap()).unwrap();
        }
    }
    let recovered = Env::open(&left, &options()).unwrap();
    assert_eq!(count(&recovered), 5000);
    assert_eq!(count(&recovered.store(1).unwrap()), 2500);
    drop(recovered);

    drop((env, second));
    assert!(at.join("data-0").is_symlink() && at.join("data-1").is_symlink());
    let env = Env::open(&at, &options()).unwrap();
    assert_eq!((count(&env), count(&env.store(1).unwrap())), (5000, 2500));

    // A full device is a full disk: it is told, and deleting works.
    let full = (0..)
        .find_map(|part| put(&env, 10_000 + part * 100..10_100 + part * 100, &[3; 2000]).err());
    let full = full.unwrap();
    assert!(
        matches!(&full, Error::Io(error) if error.kind() == ErrorKind::StorageFull),
        "{full:?}"
    );
    let there = count(&env);
    assert!(there > 8000, "{there}");
    let mut txn = env.write().unwrap();
    let tree = txn.tree("t").unwrap().unwrap();
    for number in 10_000..1_000_000_u32 {
        if !txn.delete(tree, &number.to_be_bytes()).unwrap() {
            break;
        }
    }
    txn.commit().unwrap().wait_durable().unwrap();
    assert_eq!(count(&env), 5000);
    let done = env.compact(|_| ()).unwrap();
    assert!(done.now < done.before / 2, "{done:?}");
    put(&env, 0..100, &[4; 3000]).unwrap();
    assert_eq!(count(&env), 5000);

    // A backup of it is a file like any other.
    env.backup(path("backup")).unwrap();
    sapwood_store::restore(path("backup"), path("restored")).unwrap();
    assert_eq!(
        count(&Env::open(path("restored"), &options()).unwrap()),
        5000
    );

    let looking = options().read_only(true);
    drop(env);
    assert_eq!(count(&Env::open(&at, &looking).unwrap()), 5000);
}

#[test]
fn a_device_that_holds_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let Some(device) = Device::new(&path("image")) else {
        return;
    };
    let precious = File::options().write(true).open(&device.path).unwrap();
    precious
        .write_all_at(b"somebody's file system", 1080)
        .unwrap();
    precious.sync_all().unwrap();
    let image = fs::read(&device.path).unwrap();
    let at = path("env");
    fs::create_dir(&at).unwrap();
    symlink(&device.path, at.join("data-0")).unwrap();
    let refused = Env::open(&at, &options()).unwrap_err();
    assert!(matches!(refused, Error::Damaged(_)), "{refused:?}");
    fs::rename(at.join("data-0"), at.join("data-1")).unwrap();
    let refused = Env::open(&at, &options().stores(2)).unwrap_err();
    assert!(matches!(refused, Error::Damaged(_)), "{refused:?}");
    assert!(fs::read(&device.path).unwrap() == image);
    // And what else there is goes on.
    put(&Env::open(&at, &options()).unwrap(), 0..10, b"value").unwrap();
}
