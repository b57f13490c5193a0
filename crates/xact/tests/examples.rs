//! The examples of the guide do what it says, also when several processes do it at once.

// The examples' own `main`, and imports that only it needs.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sapwood_xact::{Error, Options, Plain, Space};

#[path = "../examples/counter.rs"]
mod counter;
#[path = "../examples/hash_map.rs"]
mod hash_map;
#[path = "../examples/serial_tree.rs"]
mod serial_tree;

const FOLDER: &str = "SAPWOOD_XACT_FOLDER";
const WORK: &str = "SAPWOOD_XACT_WORK";

/// What one of several processes does; for nobody but a child of the tests below.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    match std::env::var(WORK).unwrap().as_str() {
        "count" => drop(counter::count(folder, 40).unwrap()),
        me => {
            let space = Space::open(folder, &Options::new()).unwrap();
            for number in 0..60 {
                let (key, value) = (format!("{me} {}", number % 20), number.to_string());
                let set = space.transaction(|t| hash_map::set(t, key.as_bytes(), value.as_bytes()));
                set.unwrap();
            }
        }
    }
}

fn spawn(folder: &Path, work: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact"])
        .env(FOLDER, folder)
        .env(WORK, work)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn in_three_processes(folder: &Path, work: [&str; 3]) {
    for mut child in work.map(|work| spawn(folder, work)) {
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn processes_share_a_counter() {
    let folder = tempfile::tempdir().unwrap();
    in_three_processes(folder.path(), ["count"; 3]);
    assert_eq!(counter::count(folder.path(), 1).unwrap(), 121);
}

#[test]
fn processes_share_a_hash_map() {
    let folder = tempfile::tempdir().unwrap();
    in_three_processes(folder.path(), ["a", "b", "c"]);
    let space = Space::open(folder.path(), &Options::new().create(false)).unwrap();
    let get = |key: &str| space.read(|t| hash_map::get(t, key.as_bytes())).unwrap();
    for number in 0..20 {
        for process in ["a", "b", "c"] {
            let last = (number + 40).to_string();
            assert_eq!(get(&format!("{process} {number}")), Some(last.into_bytes()));
        }
    }
    assert_eq!(get("a 20"), None);
}

#[test]
fn a_hash_map_is_a_map_and_gives_back_what_it_no_longer_needs() {
    let mut memory = Plain::new();
    let mut model = BTreeMap::new();
    let mut dice = 5_u64;
    let mut roll = move |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) % sides
    };
    for _ in 0..20_000 {
        let key = roll(300).to_le_bytes();
        match roll(3) {
            0 => {
                let was_there = hash_map::remove(&mut memory, &key).unwrap();
                assert_eq!(was_there, model.remove(&key).is_some());
            }
            1 => {
                let value = vec![roll(256) as u8; roll(60) as usize];
                hash_map::set(&mut memory, &key, &value).unwrap();
                model.insert(key, value);
            }
            _ => assert_eq!(
                hash_map::get(&memory, &key).unwrap(),
                model.get(&key).cloned()
            ),
        }
    }
    // 300 entries of at most 84 bytes, in areas of some twenty sizes, and 8 KiB of buckets.
    assert!(memory.as_bytes().len() < 1 << 20);
}

#[test]
fn a_serial_tree_runs_on_plain_memory_and_in_transactions() {
    let text = "the quick brown fox jumps over the lazy dog";
    let mut sorted: Vec<_> = text.split(' ').collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut plain = Plain::new();
    let space = Space::in_memory(&Options::new().bytes(1 << 24)).unwrap();
    for word in text.split(' ') {
        serial_tree::add(&mut plain, word).unwrap();
        space.transaction(|t| serial_tree::add(t, word)).unwrap();
    }
    assert_eq!(serial_tree::words(plain).unwrap(), sorted);
    let reader = space.begin_read().unwrap();
    let words: Result<_, Error> = serial_tree::words(reader);
    assert_eq!(words.unwrap(), sorted);
}
