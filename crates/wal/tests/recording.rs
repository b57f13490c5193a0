//! The simulated disk leaves after a crash what a real one may leave, and nothing else.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use sapwood_testkit::storage::recording::{Crash, Disk, Fault};
use sapwood_wal::storage::{File, OpenMode, Storage};

const STATES: usize = 4000;

fn create(disk: &Disk, name: &str) -> Arc<dyn File> {
    disk.open(name, OpenMode::CreateNew).unwrap()
}

/// What a file holds after the crash.
fn bytes_of(crash: &Crash, name: &str) -> Option<Vec<u8>> {
    let disk = Disk::from_image(crash.image()).unwrap();
    let file = disk.open(name, OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

fn all_states(disk: &Disk, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    let crashes = disk.crashes(1, STATES);
    crashes.map(|crash| bytes_of(&crash, name)).collect()
}

/// A durable file of three sectors, and what happened before forgotten.
fn three_sectors() -> (Disk, Arc<dyn File>) {
    let disk = Disk::new();
    let file = create(&disk, "f");
    file.write_all_at(&[0; 1536], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_names().unwrap();
    let disk = Disk::from_image(&disk.synced_image()).unwrap();
    let file = disk.open("f", OpenMode::Write).unwrap();
    (disk, file)
}

/// The value of each sector, if all its bytes have the same.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    let sector = |chunk: &[u8]| {
        assert!(chunk.iter().all(|byte| *byte == chunk[0]), "a torn sector");
        chunk[0]
    };
    bytes.chunks(512).map(sector).collect()
}

fn sector_states(disk: &Disk) -> BTreeSet<Vec<u8>> {
    let states = all_states(disk, "f").into_iter();
    states.map(|bytes| sectors(&bytes.unwrap())).collect()
}

/// Those of the crashes after these notes were made.
fn noted_states(disk: &Disk, seed: u64, notes: &[u64]) -> BTreeSet<Vec<u8>> {
    let crashes = disk.crashes(seed, STATES);
    let noted = crashes.filter(|crash| crash.notes() == notes);
    noted
        .map(|crash| sectors(&bytes_of(&crash, "f").unwrap()))
        .collect()
}

#[test]
fn unsynced_writes_survive_sector_by_sector_in_any_order() {
    let (disk, file) = three_sectors();
    file.write_all_at(&[1; 1024], 0).unwrap();
    file.write_all_at(&[2; 1024], 512).unwrap();
    let mut legal = BTreeSet::new();
    for first in [0, 1] {
        for second in [0, 1, 2] {
            for third in [0, 2] {
                legal.insert(vec![first, second, third]);
            }
        }
    }
    assert_eq!(sector_states(&disk), legal);
}

#[test]
fn synced_writes_survive_always() {
    let (disk, file) = three_sectors();
    file.write_all_at(&[1; 1536], 0).unwrap();
    file.sync_data().unwrap();
    disk.note(7);
    file.write_all_at(&[2; 512], 512).unwrap();
    for crash in disk.crashes(2, STATES) {
        let now = sectors(&bytes_of(&crash, "f").unwrap());
        if crash.notes() == [7] {
            assert!(now == [1, 1, 1] || now == [1, 2, 1], "{crash}: {now:?}");
        }
    }
    let synced = Disk::from_image(&disk.synced_image()).unwrap();
    let file = synced.open("f", OpenMode::Read).unwrap();
    let mut bytes = [0; 1536];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(sectors(&bytes), [1, 1, 1]);
}

#[test]
fn what_a_failed_sync_left_may_never_arrive() {
    let (disk, file) = three_sectors();
    file.write_all_at(&[1; 1024], 0).unwrap();
    disk.fail(0, Fault::Io, false);
    file.sync_data().unwrap_err();
    file.write_all_at(&[2; 512], 512).unwrap();
    file.sync_data().unwrap();
    disk.note(1);
    let after: BTreeSet<_> = disk
        .crashes(3, STATES)
        .filter(|crash| crash.notes() == [1])
        .map(|crash| sectors(&bytes_of(&crash, "f").unwrap()))
        .collect();
    assert_eq!(after, BTreeSet::from([vec![0, 2, 0], vec![1, 2, 0]]));
}

#[test]
fn stores_through_a_window_may_arrive_at_any_moment() {
    let (disk, file) = three_sectors();
    file.set_size(4096).unwrap();
    file.sync_data().unwrap();
    let mut window = file.window(0, 4096).unwrap();
    let mut store = |sector: usize, value: u8| {
        // SAFETY: nothing else maps this file.
        #[allow(unsafe_code)]
        let bytes = unsafe { window.bytes_mut() };
        bytes[sector * 512..(sector + 1) * 512].fill(value);
    };
    store(0, 1);
    disk.note(1);
    store(0, 2);
    store(1, 2);
    drop(window);
    let states: BTreeSet<_> = sector_states(&disk)
        .into_iter()
        .filter(|sectors| sectors.len() == 8)
        .map(|sectors| sectors[..2].to_vec())
        .collect();
    let legal = [[0, 0], [1, 0], [2, 0], [0, 2], [1, 2], [2, 2]];
    assert_eq!(states, legal.map(|state| state.to_vec()).into());
    file.sync_data().unwrap();
    let bytes = Disk::from_image(&disk.synced_image()).unwrap();
    let bytes = bytes.open("f", OpenMode::Read).unwrap();
    let mut sector = [0; 1024];
    bytes.read_exact_at(&mut sector, 0).unwrap();
    assert_eq!(sectors(&sector), [2, 2]);
}

#[test]
fn a_new_size_may_not_have_arrived() {
    let (disk, file) = three_sectors();
    file.write_all_at(&[1; 512], 1536).unwrap();
    file.allocate(0, 4096).unwrap();
    let states = sector_states(&disk);
    let sizes: BTreeSet<_> = states.iter().map(Vec::len).collect();
    assert_eq!(sizes, BTreeSet::from([3, 4, 8]));
    assert!(states.contains(&vec![0, 0, 0, 0]));
    assert!(states.contains(&vec![0, 0, 0, 1]));
    file.sync_data().unwrap();
    assert_eq!(disk.synced_image().size("f"), Some(4096));
}

#[test]
fn a_sync_of_room_makes_the_size_durable_and_nothing_else() {
    let (disk, file) = three_sectors();
    file.write_all_at(&[1; 512], 0).unwrap();
    file.allocate(1536, 2560).unwrap();
    file.sync_room(1536, 2560).unwrap();
    disk.note(1);
    let states = noted_states(&disk, 4, &[1]);
    let legal = [[0; 8], [1, 0, 0, 0, 0, 0, 0, 0]];
    assert_eq!(states, legal.map(|state| state.to_vec()).into());
}

#[test]
fn a_sync_of_a_range_makes_that_durable_and_nothing_else() {
    let (disk, file) = three_sectors();
    file.write_all_at(&[1; 1536], 0).unwrap();
    file.sync_range(512, 512).unwrap();
    file.write_all_at(&[2; 512], 512).unwrap();
    disk.note(1);
    let states = noted_states(&disk, 4, &[1]);
    let of = |first: u8, second: u8, third: u8| vec![first, second, third];
    assert!(states.iter().all(|state| state[1] != 0));
    assert!(states.contains(&of(0, 1, 0)) && states.contains(&of(1, 2, 1)));
}

#[test]
fn a_durable_write_is_durable_and_nothing_else_is() {
    let (disk, file) = three_sectors();
    file.write_all_at(&[1; 512], 0).unwrap();
    file.write_all_durably_at(&[2; 512], 512).unwrap();
    disk.note(1);
    let states = noted_states(&disk, 5, &[1]);
    assert_eq!(states, [vec![0, 2, 0], vec![1, 2, 0]].into());
    disk.fail(1, Fault::Io, false);
    file.write_all_durably_at(&[3; 512], 512).unwrap_err();
    disk.note(2);
    let states = noted_states(&disk, 6, &[1, 2]);
    let second: BTreeSet<_> = states.iter().map(|state| state[1]).collect();
    assert_eq!(second, [2, 3].into(), "nothing may be assumed");
}

#[test]
fn names_arrive_in_order_and_surely_after_a_sync_only() {
    let disk = Disk::new();
    let file = create(&disk, "a");
    file.write_all_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    disk.rename("a", "b").unwrap();
    create(&disk, "c");
    disk.remove("c").unwrap();
    let names: BTreeSet<Vec<String>> = disk
        .crashes(4, STATES)
        .map(|crash| crash.image().names().map(str::to_owned).collect())
        .collect();
    let legal: [&[&str]; 4] = [&[], &["a"], &["b"], &["b", "c"]];
    let legal = legal.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(names, legal.into());
    disk.sync_names().unwrap();
    assert_eq!(disk.synced_image().names().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn the_nth_call_fails_and_the_others_do_not() {
    let disk = Disk::new();
    let file = create(&disk, "f");
    for (fault, kind) in [
        (Fault::NoSpace, ErrorKind::StorageFull),
        (Fault::Interrupted, ErrorKind::Interrupted),
    ] {
        disk.fail(1, fault, false);
        let write = || file.write_at(&[std::io::IoSlice::new(b"12345")], 0);
        assert_eq!(write().unwrap(), 5);
        assert_eq!(write().unwrap_err().kind(), kind);
        assert_eq!(write().unwrap(), 5);
    }
    disk.fail(0, Fault::ShortWrite(3), false);
    assert_eq!(
        file.write_at(&[std::io::IoSlice::new(b"12345")], 0)
            .unwrap(),
        3
    );
    for fault in [Fault::ShortWrite(3), Fault::Interrupted] {
        disk.fail(0, fault, true);
        file.write_all_at(b"123456789", 0).unwrap();
    }
    disk.fail(1, Fault::Io, true);
    file.sync_data().unwrap();
    file.sync_data().unwrap_err();
    disk.sync_names().unwrap_err();
    disk.heal();
    disk.sync_names().unwrap();
}

#[test]
fn the_same_seed_gives_the_same_states() {
    let (disk, file) = three_sectors();
    file.write_all_at(&[1; 1536], 0).unwrap();
    file.write_all_at(&[2; 1536], 0).unwrap();
    let states = |seed| -> Vec<_> {
        let crashes = disk.crashes(seed, 50);
        crashes.map(|crash| bytes_of(&crash, "f")).collect()
    };
    assert_eq!(states(5), states(5));
    assert_ne!(states(5), states(6));
    assert_eq!(states(5).len(), 50);
}
