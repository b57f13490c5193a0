//! A folder of the file system, one in memory and a simulated disk behave alike.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::sync::Arc;

use sapwood_testkit::storage::recording::Disk;
use sapwood_wal::storage::{Folder, MAP_GRANULE_BYTES, Memory, OpenMode, Storage};

fn on_each(test: impl Fn(&dyn Storage)) {
    let temporary = tempfile::tempdir().unwrap();
    let storages: [Arc<dyn Storage>; 3] = [
        Arc::new(Folder::open(temporary.path()).unwrap()),
        Arc::new(Memory::new()),
        Arc::new(Disk::new()),
    ];
    storages.iter().for_each(|storage| test(&**storage));
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn names_come_move_and_go() {
    on_each(|storage| {
        assert_eq!(
            kind(storage.open("a", OpenMode::Write)),
            Some(ErrorKind::NotFound)
        );
        let file = storage.open("a", OpenMode::CreateNew).unwrap();
        assert_eq!(
            kind(storage.open("a", OpenMode::CreateNew)),
            Some(ErrorKind::AlreadyExists)
        );
        file.write_all_at(b"content", 0).unwrap();
        storage.open("b", OpenMode::CreateNew).unwrap();
        storage.rename("a", "b").unwrap();
        storage.sync_names().unwrap();
        assert_eq!(storage.names().unwrap(), ["b"]);
        let same = storage.open("b", OpenMode::Read).unwrap();
        assert_eq!(same.size().unwrap(), 7, "replaced by the other one");
        assert_eq!(same.identity().unwrap(), file.identity().unwrap());
        assert_eq!(kind(storage.rename("a", "c")), Some(ErrorKind::NotFound));
        storage.remove("b").unwrap();
        assert_eq!(kind(storage.remove("b")), Some(ErrorKind::NotFound));
        let mut bytes = [0; 7];
        same.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"content", "removed, but still open");
    });
}

#[test]
fn a_name_is_a_single_path_component() {
    on_each(|storage| {
        for name in ["", ".", "..", "a/b", "/a", "a\0b"] {
            let opened = storage.open(name, OpenMode::CreateNew);
            assert_eq!(kind(opened), Some(ErrorKind::InvalidInput), "{name:?}");
        }
        storage.open("a", OpenMode::CreateNew).unwrap();
        assert_eq!(
            kind(storage.rename("a", "../a")),
            Some(ErrorKind::InvalidInput)
        );
    });
}

#[test]
fn files_grow_and_read_as_zeros() {
    on_each(|storage| {
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        file.write_all_at(b"12345678", 0).unwrap();
        file.allocate(4, 100).unwrap();
        assert_eq!(file.size().unwrap(), 104);
        file.allocate(0, 8).unwrap();
        assert_eq!(file.size().unwrap(), 104, "never shorter");
        file.sync_room(8, 96).unwrap();
        assert_eq!(file.size().unwrap(), 104, "as it was");
        file.sync_range(0, 104).unwrap();
        file.set_size(10).unwrap();
        file.sync_data().unwrap();
        let mut bytes = [1; 20];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 10);
        assert_eq!(&bytes[..10], b"12345678\0\0");
        assert_eq!(file.read_at(&mut bytes, 10).unwrap(), 0);
        let error = file.read_exact_at(&mut bytes, 0);
        assert_eq!(kind(error), Some(ErrorKind::UnexpectedEof));
    });
}

#[test]
fn many_parts_are_written_in_order() {
    on_each(|storage| {
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        let numbers: Vec<_> = (0..3000_u32).map(u32::to_le_bytes).collect();
        let mut parts: Vec<_> = numbers
            .iter()
            .map(|bytes| std::io::IoSlice::new(bytes))
            .collect();
        file.write_parts_at(&mut parts, 3).unwrap();
        let mut bytes = vec![0; 12_000];
        file.read_exact_at(&mut bytes, 3).unwrap();
        assert!(bytes == numbers.concat());
    });
}

#[test]
fn a_map_shows_what_is_written_and_what_the_file_grows_by() {
    const PAGE: usize = MAP_GRANULE_BYTES;
    on_each(|storage| {
        let file = storage.open("f", OpenMode::CreateNew).unwrap();
        file.allocate(0, PAGE as u64).unwrap();
        let map = file.map(1 << 30).unwrap();
        assert_eq!(map.reserved(), 1 << 30);
        file.allocate(0, 3 * PAGE as u64).unwrap();
        file.write_all_at(b"written", PAGE as u64).unwrap();
        let window = file.window(2 * PAGE as u64, PAGE).unwrap();
        assert!(window.place(PAGE - 4, 5).is_none());
        let place = window.place(100, 6).unwrap();
        // SAFETY: within the window, which nobody else uses; within the file, which does not change meanwhile.
        #[allow(unsafe_code)]
        unsafe {
            place.copy_from_nonoverlapping(std::ptr::NonNull::from(b"stored").cast(), 6);
            assert_eq!(map.bytes(PAGE, 7).unwrap(), b"written");
            assert_eq!(map.bytes(2 * PAGE + 100, 6).unwrap(), b"stored");
            assert!(map.bytes(1 << 30, 1).is_none());
            assert!(map.bytes(usize::MAX, 2).is_none());
        }
        map.prefetch(5, 2 * PAGE);
        drop(window);
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 2 * PAGE as u64 + 100)
            .unwrap();
        assert_eq!(&bytes, b"stored");
        assert_eq!(kind(file.window(0, 0)), Some(ErrorKind::InvalidInput));
        assert_eq!(kind(file.window(1, PAGE)), Some(ErrorKind::InvalidInput));
        assert_eq!(
            kind(file.window(0, 4 * PAGE)),
            Some(ErrorKind::InvalidInput)
        );
    });
}
