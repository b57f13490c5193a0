//! `sapwood xact`: what is to be seen of a space, whether it is whole, and copies of it.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sapwood_testkit::program::{sapwood, sapwood_ok, text};
use sapwood_xact::{Memory, Mode, Options, Ptr, Space};

const NUMBER: Ptr<u64> = Ptr::new(1 << 20);

fn set(space: &Space, number: u64) {
    space.transaction(|t| t.store(NUMBER, &number)).unwrap();
}

fn get(folder: &Path) -> u64 {
    let space = Space::open(folder, &Options::new().create(false)).unwrap();
    space.read(|t| t.load(NUMBER)).unwrap()
}

#[test]
fn a_space_in_use_is_shown_checked_and_copied() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, copy) = (scratch.path().join("space"), scratch.path().join("copy"));
    let options = Options::new().bytes(64 << 20).layout("numbers", 3);
    let space = Space::open(&folder, &options).unwrap();
    space
        .transaction(|t| t.set_named_root("number", NUMBER.get()))
        .unwrap();
    set(&space, 5);
    let shown = sapwood_ok(["xact".as_ref(), "stat".as_ref(), folder.as_os_str()]);
    for line in [
        "explicit, durable, with checksums",
        "layout numbers version 3",
        "of 67108864 bytes were ever handed out",
        "can grow to 1073741824 bytes",
        "Root \"number\": 1048576",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    let checked = sapwood_ok(["xact".as_ref(), "check".as_ref(), folder.as_os_str()]);
    assert!(checked.contains("Nothing is wrong."), "{checked}");
    let backup = [
        "xact".as_ref(),
        "backup".as_ref(),
        folder.as_os_str(),
        copy.as_os_str(),
    ];
    sapwood_ok(backup);
    set(&space, 6);
    assert_eq!(get(&copy), 5);
    let again = sapwood(backup);
    assert!(!again.status.success());
    assert!(
        text(&again.stderr).contains("exists"),
        "{}",
        text(&again.stderr)
    );
    assert!(!scratch.path().join("copy.part").exists());

    // The space is lost, and made again from its copy.
    drop(space);
    fs::remove_dir_all(&folder).unwrap();
    sapwood_ok([
        "xact".as_ref(),
        "backup".as_ref(),
        copy.as_os_str(),
        folder.as_os_str(),
    ]);
    assert_eq!(get(&folder), 5);
}

#[test]
fn the_address_of_a_space_is_shown() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("space");
    let options = Options::new()
        .bytes(64 << 20)
        .mode(Mode::Tracked)
        .address(0x2000_0000_0000);
    drop(Space::open(&folder, &options).unwrap());
    let shown = sapwood_ok(["xact".as_ref(), "stat".as_ref(), folder.as_os_str()]);
    for line in ["tracked, durable", "always at 0x200000000000"] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
}

#[test]
fn a_damaged_space_is_told_and_not_copied() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, copy) = (scratch.path().join("space"), scratch.path().join("copy"));
    let space = Space::open(&folder, &Options::new().bytes(64 << 20)).unwrap();
    set(&space, 5);
    space.checkpoint().unwrap();
    drop(space);
    let data = File::options()
        .write(true)
        .open(folder.join("data"))
        .unwrap();
    data.write_all_at(&[9], NUMBER.get() + 2 * 4096 + 100)
        .unwrap();
    let checked = sapwood(["xact".as_ref(), "check".as_ref(), folder.as_os_str()]);
    assert_eq!(checked.status.code(), Some(1));
    let told = text(&checked.stdout);
    assert!(told.contains("WRONG: the page at 1048576"), "{told}");
    let copied = sapwood([
        "xact".as_ref(),
        "backup".as_ref(),
        folder.as_os_str(),
        copy.as_os_str(),
    ]);
    assert!(!copied.status.success());
    assert!(
        text(&copied.stderr).contains("is damaged"),
        "{}",
        text(&copied.stderr)
    );
    assert_eq!(
        fs::read_dir(scratch.path()).unwrap().count(),
        1,
        "only the space"
    );
    let missing = scratch.path().join("missing");
    let shown = sapwood(["xact".as_ref(), "stat".as_ref(), missing.as_os_str()]);
    assert!(!shown.status.success() && !missing.exists());
}
