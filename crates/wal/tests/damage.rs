//! A damaged log is read up to the damage or refused: no panic, no loop, no record that was never appended.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{SMALL, append, create, open, read_all, start};
use proptest::prelude::*;
use proptest::test_runner::Config;
use sapwood_testkit::storage::recording::{Disk, Image};
use sapwood_wal::Position;
use sapwood_wal::storage::Storage;

fn payload(number: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + number) as u8;
    (0..number * 131 % 900).map(byte).collect()
}

/// A log in its second lap, and how many records were acknowledged.
fn image() -> (Image, Position, usize, usize) {
    let disk = Disk::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    create(&storage, &SMALL).unwrap();
    let log = open(&storage).unwrap();
    start(&log, Position::START).unwrap();
    let mut ends = vec![Position::START];
    for number in 0..36 {
        let end = append(&log, &payload(number)).unwrap();
        log.sync_to(end.lsn).unwrap();
        ends.push(end);
        let floor = ends[ends.len().saturating_sub(16)];
        log.recycle_before(floor.lsn);
    }
    assert!(log.end().0 > log.capacity());
    (disk.synced_image(), ends[24], 24, 36)
}

#[derive(Clone, Debug)]
enum Damage {
    Flip {
        segment: u32,
        at: u64,
        bits: u8,
    },
    Fill {
        segment: u32,
        at: u64,
        length: u64,
        byte: u8,
    },
    Copy {
        segment: u32,
        from: u64,
        to: u64,
        length: u64,
    },
    Remove {
        segment: u32,
    },
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || prop_oneof![0..64_u64, 0..8192_u64];
    prop_oneof![
        4 => (0..3_u32, at(), 1..=255_u8).prop_map(|(segment, at, bits)| Damage::Flip { segment, at, bits }),
        1 => (0..3_u32, at(), 1..700_u64, any::<u8>())
            .prop_map(|(segment, at, length, byte)| Damage::Fill { segment, at, length, byte }),
        1 => (0..3_u32, at(), at(), 1..1500_u64)
            .prop_map(|(segment, from, to, length)| Damage::Copy { segment, from, to, length }),
        1 => (0..3_u32).prop_map(|segment| Damage::Remove { segment }),
    ]
}

fn apply(image: &mut Image, damage: &Damage) {
    let name = |segment: &u32| format!("log.{segment}");
    match damage {
        Damage::Flip { segment, at, bits } => {
            image.damage(&name(segment), *at, |byte| *byte ^= bits)
        }
        Damage::Fill {
            segment,
            at,
            length,
            byte,
        } => {
            for at in *at..(at + length).min(8192) {
                image.damage(&name(segment), at, |old| *old = *byte);
            }
        }
        Damage::Copy {
            segment,
            from,
            to,
            length,
        } => {
            for step in 0..*length {
                if from + step < 8192 && to + step < 8192 {
                    let mut value = 0;
                    image.damage(&name(segment), from + step, |byte| value = *byte);
                    image.damage(&name(segment), to + step, |byte| *byte = value);
                }
            }
        }
        Damage::Remove { segment } => image.remove(&name(segment)),
    }
}

proptest! {
    #![proptest_config(Config { cases: 600, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_damaged_log_is_read_up_to_the_damage_or_refused(
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let (mut image, floor, first, acknowledged) = image();
        for damage in &damages {
            apply(&mut image, damage);
        }
        let storage: Arc<dyn Storage> = Arc::new(Disk::from_image(&image).unwrap());
        let Ok(log) = open(&storage) else { return Ok(()) };
        let mut records = log.records(floor);
        let mut number = first;
        if let Ok(records) = &mut records {
            while let Ok(Some(record)) = records.next() {
                prop_assert_eq!(record.payload, payload(number));
                number += 1;
            }
        }
        prop_assert!(number <= acknowledged);
        // Whatever is left can be refused again, or started, appended to and read back.
        if start(&log, floor).is_ok() {
            let end = append(&log, b"new").unwrap();
            log.sync_to(end.lsn).unwrap();
            let (found, _) = read_all(&open(&storage).unwrap(), floor).unwrap();
            prop_assert_eq!(found.len(), number - first + 1);
            prop_assert_eq!(&found[number - first], b"new");
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    /// Segments that hold anything at all behind valid headers.
    #[test]
    fn any_bytes_can_be_read(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        at in 0..4000_u64,
    ) {
        let (mut image, _, _, _) = image();
        for (offset, new) in (4096 + at..8192).zip(bytes) {
            image.damage("log.0", offset, |byte| *byte = new);
        }
        let storage: Arc<dyn Storage> = Arc::new(Disk::from_image(&image).unwrap());
        let log = open(&storage).unwrap();
        for lsn in [0, at & !7, 12288, 1 << 40, !7, 3] {
            let from = Position { lsn: sapwood_wal::Lsn(lsn), chain: 7 };
            let _ = log.records(from).map(|mut records| records.next().map(drop));
        }
    }
}
