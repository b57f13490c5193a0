//! The allocator against a model, under power cuts, and with damaged pages. Processes that die while they allocate are
//! in `kill_tests`.
//!
//! After everything that happened, areas in use, free extents and nodes must make up all that was ever handed out, with
//! nothing left out and nothing twice: `allocator::audit`.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use sapwood_testkit::storage::recording::Disk;
use sapwood_wal::storage::Storage;

use crate::allocator::{allocate, audit, free};
use crate::transaction::Reserved;
use crate::{Durability, Error, Fault, Memory, Options, PAGE_BYTES, Ptr, Space, Transaction};

const PAGE: u64 = PAGE_BYTES as u64;
/// Pages that are no areas.
const OWN_PAGES: u64 = 18;

fn in_memory(pages: u64) -> Space {
    let options = Options::new()
        .durability(Durability::Eventual)
        .bytes((OWN_PAGES + pages) * PAGE)
        .versions_bytes(64 << 20);
    Space::in_memory(&options).unwrap()
}

/// The areas that a program holds, each with what it is filled with.
#[derive(Default)]
struct Held(Vec<(u64, u64, u8)>);

impl Held {
    fn areas(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(offset, bytes, _)| (*offset, *bytes))
    }

    /// Gives `false` if there was no room.
    fn allocate(&mut self, t: &mut Transaction<'_>, arena: u32, bytes: u64, fill: u8) -> bool {
        let limit = t.bytes();
        let offset = match allocate(&mut Reserved(t), arena, limit, bytes) {
            Ok(offset) => offset,
            Err(Error::Fault(Fault::Full { .. })) => return false,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(offset % (1 << bytes.ilog2()).min(PAGE), 0);
        t.write(offset, bytes as usize).unwrap().fill(fill);
        self.0.push((offset, bytes, fill));
        true
    }

    fn free(&mut self, t: &mut Transaction<'_>, arena: u32, place: usize) {
        let (offset, bytes, fill) = self.0.swap_remove(place);
        let found = t.read(offset, bytes as usize).unwrap();
        assert!(
            found.iter().all(|byte| *byte == fill),
            "what is at {offset}"
        );
        let limit = t.bytes();
        free(&mut Reserved(t), arena, limit, offset, bytes).unwrap();
    }

    fn audit(&self, t: &mut Transaction<'_>) {
        let limit = t.bytes();
        audit(t, limit, self.areas(), false).unwrap();
    }
}

/// One step: whether to free, and which; how many bytes; which arena.
fn steps(bytes_log: u32, arenas: u32) -> impl Strategy<Value = Vec<(usize, u64, u32)>> {
    let bytes = (0..bytes_log).prop_flat_map(|log| 1..=1_u64 << log);
    prop::collection::vec((0..120_usize, bytes, 0..arenas), 1..400)
}

/// Takes the steps, and then gives everything back.
fn keeps_to_the_model(space: &Space, steps: &[(usize, u64, u32)]) {
    let mut t = space.begin().unwrap();
    let mut held = Held::default();
    for (number, (which, bytes, arena)) in steps.iter().enumerate() {
        if *which < held.0.len() {
            held.free(&mut t, *arena, *which);
        } else {
            held.allocate(&mut t, *arena, *bytes, number as u8);
        }
        if number % 40 == 0 {
            held.audit(&mut t);
        }
    }
    held.audit(&mut t);
    while !held.0.is_empty() {
        let place = held.0.len() * 7 / 11;
        held.free(&mut t, 0, place);
    }
    held.audit(&mut t);
}

proptest! {
    #[test]
    fn areas_and_what_is_free_make_up_the_space(steps in steps(17, 1)) {
        keeps_to_the_model(&in_memory(4000), &steps);
    }

    #[test]
    fn they_do_with_several_arenas(steps in steps(12, 16)) {
        keeps_to_the_model(&in_memory(4000), &steps);
    }

    #[test]
    fn they_do_where_there_is_no_room(steps in steps(14, 3)) {
        keeps_to_the_model(&in_memory(24), &steps);
    }

    #[test]
    fn what_is_free_as_a_whole_can_be_had_as_a_whole(
        sizes in prop::collection::vec(1..=PAGE * 6, 1..60),
        order in any::<prop::sample::Index>(),
        arenas in 1..16_u32,
    ) {
        // A space of so many pages is one area.
        let space = in_memory(64);
        let mut t = space.begin().unwrap();
        let mut held = Held::default();
        for (arena, bytes) in (0..).zip(&sizes) {
            held.allocate(&mut t, arena % arenas, *bytes, 1);
        }
        let mut arena = 0;
        while !held.0.is_empty() {
            let place = order.index(held.0.len());
            held.free(&mut t, arena % arenas, place);
            arena += 1;
        }
        held.audit(&mut t);
        // Nodes that are kept may lie anywhere.
        let most = (0..=6).rev().find(|log| held.allocate(&mut t, 0, PAGE << log, 2));
        prop_assert!(most.is_some_and(|log| log >= 2), "{most:?}");
        held.audit(&mut t);
    }

    #[test]
    fn damage_is_an_error_or_goes_unnoticed(
        patches in prop::collection::vec((0..60_u64, 0..64_u64, any::<u64>(), 0..40_u32), 1..6),
        steps in steps(13, 2),
    ) {
        let space = in_memory(200);
        let mut t = space.begin().unwrap();
        let mut held = Held::default();
        for number in 0..60 {
            held.allocate(&mut t, 0, 1 << (number % 9 + 4), 1);
        }
        for place in (0..30).rev() {
            held.free(&mut t, 0, 2 * place);
        }
        for (page, word, value, shift) in patches {
            // The arena's page, or one behind it.
            let page = if page < 30 { 2 } else { page - 12 };
            let word = if page == 2 { 64 + word } else { word };
            Reserved(&mut t).store(Ptr::new(page * PAGE + word * 8), &(value >> shift)).unwrap();
        }
        for (which, bytes, arena) in steps {
            let limit = t.bytes();
            if which < held.0.len() {
                let (offset, bytes, _) = held.0.swap_remove(which);
                let _: Result<(), Error> = free(&mut Reserved(&mut t), arena, limit, offset, bytes);
                continue;
            }
            let allocated = allocate(&mut Reserved(&mut t), arena, limit, bytes);
            if let Ok(offset) = allocated {
                t.read(offset, bytes as usize).unwrap();
                held.0.push((offset, bytes, 0));
            }
        }
    }
}

#[test]
fn neighbours_in_different_arenas_join_when_there_is_no_room() {
    let space = in_memory(64);
    let mut t = space.begin().unwrap();
    let mut held = Held::default();
    while held.allocate(&mut t, held.0.len() as u32, PAGE, 1) {}
    for place in (0..held.0.len()).rev().filter(|place| place % 16 < 9) {
        held.free(&mut t, place as u32, place);
    }
    held.audit(&mut t);
    assert!(held.allocate(&mut t, 3, 4 * PAGE, 2));
    assert!(!held.allocate(&mut t, 3, 32 * PAGE, 2));
    held.audit(&mut t);
}

#[test]
fn what_an_earlier_release_has_listed_is_used_again() {
    let space = in_memory(100);
    let mut t = space.begin().unwrap();
    let mut held = Held::default();
    // Two pages and the halves of a third, as lists of free areas of the first arena.
    Reserved(&mut t)
        .store(Ptr::new(PAGE), &((OWN_PAGES + 3) * PAGE))
        .unwrap();
    let list = |t: &mut Transaction<'_>, class: u64, areas: &[u64]| {
        Reserved(t)
            .store(Ptr::new(2 * PAGE + (class - 4) * 8), &areas[0])
            .unwrap();
        for (place, area) in areas.iter().enumerate() {
            let next = areas.get(place + 1).copied().unwrap_or(0);
            t.store(Ptr::new(*area), &next).unwrap();
        }
    };
    let at = OWN_PAGES * PAGE;
    list(&mut t, 12, &[at + PAGE, at]);
    list(&mut t, 11, &[at + 2 * PAGE, at + 2 * PAGE + PAGE / 2]);
    held.audit(&mut t);
    assert!(held.allocate(&mut t, 0, 2 * PAGE, 1));
    assert!(held.allocate(&mut t, 0, PAGE, 1));
    assert_eq!(held.0[0].0, at);
    assert_eq!(held.0[1].0, at + 2 * PAGE);
    held.audit(&mut t);
}

#[test]
fn what_is_free_is_not_given_back_again() {
    let space = in_memory(100);
    let mut t = space.begin().unwrap();
    let area = t.allocate(3 * PAGE).unwrap();
    t.free(area, 3 * PAGE).unwrap();
    for (offset, bytes) in [(area, 3 * PAGE), (area, 16), (area + PAGE, PAGE)] {
        let again = t.free(offset, bytes);
        assert!(matches!(again, Err(Error::Fault(Fault::Damaged { .. }))));
    }
}

/// How many areas a space holds for [`change_areas`].
const PLACES: u64 = 40;
/// Each with offset, length, and what it begins and ends with.
const PLACE_BYTES: u64 = 24;

fn place_at(t: &Transaction<'_>, place: u64) -> Result<[Ptr<u64>; 3], Error> {
    let at = t.root()? + 8 + place * PLACE_BYTES;
    Ok([0, 8, 16].map(|word| Ptr::new(at + word)))
}

/// Gives some areas back and takes others, of other sizes; gives the number of such changes.
pub(crate) fn change_areas(t: &mut Transaction<'_>) -> Result<u64, Error> {
    if t.root()? == 0 {
        let table = t.allocate(8 + PLACES * PLACE_BYTES)?;
        t.write(table, (8 + PLACES * PLACE_BYTES) as usize)?.fill(0);
        t.set_root(table)?;
    }
    let counter = Ptr::new(t.root()?);
    let number: u64 = t.load(counter)? + 1;
    t.store(counter, &number)?;
    let mut dice = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..6 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let [offset, bytes, mark] = place_at(t, (dice >> 50) % PLACES)?;
        let held = t.load(offset)?;
        if held != 0 {
            t.free(held, t.load(bytes)?)?;
            t.store(offset, &0)?;
        }
        if dice >> 40 & 3 != 0 {
            let length = 16 + (dice >> 20) % (1 << (5 + (dice >> 34) % 10));
            let area = t.allocate(length)?;
            t.store(offset, &area)?;
            t.store(bytes, &length)?;
            t.store(mark, &dice)?;
            t.store(Ptr::new(area), &dice)?;
            t.store(Ptr::new(area + length - 8), &dice)?;
        }
    }
    Ok(number)
}

/// Looks whether all areas hold what they should, and the allocator everything else; gives the number of changes.
pub(crate) fn check_areas(space: &Space, may_touch: bool) -> Result<u64, Error> {
    let mut t = space.begin()?;
    let limit = t.bytes();
    if t.root()? == 0 {
        audit(&mut t, limit, [], may_touch)?;
        return Ok(0);
    }
    let mut areas = vec![(t.root()?, 8 + PLACES * PLACE_BYTES)];
    for place in 0..PLACES {
        let [offset, bytes, mark] = place_at(&t, place)?;
        let (area, length, mark) = (t.load(offset)?, t.load(bytes)?, t.load(mark)?);
        if area != 0 {
            assert_eq!(t.load(Ptr::<u64>::new(area))?, mark, "place {place}");
            assert_eq!(t.load(Ptr::<u64>::new(area + length - 8))?, mark);
            areas.push((area, length));
        }
    }
    audit(&mut t, limit, areas, may_touch)?;
    t.load(Ptr::new(t.root()?))
}

#[test]
fn areas_survive_power_cuts() {
    for seed in 0..6 {
        let options = Options::new()
            .bytes(400 * PAGE)
            .log_bytes(0)
            .versions_bytes(64 * PAGE);
        let open = |disk: &Disk, create| {
            let storage: Arc<dyn Storage> = Arc::new(disk.clone());
            Space::open_storage(storage, &options.clone().create(create)).unwrap()
        };
        let disk = Disk::new();
        let space = open(&disk, true);
        disk.note(0);
        for _ in 0..30 + seed {
            let number = space.transaction(change_areas).unwrap();
            disk.note(number);
        }
        drop(space);
        for crash in disk.crashes(seed, 40) {
            let Some(known) = crash.notes().iter().max().copied() else {
                continue;
            };
            let disk = Disk::from_image(crash.image()).unwrap();
            let space = open(&disk, false);
            let number = check_areas(&space, false).unwrap();
            assert!(number >= known, "change {known} of {number} is missing");
            for _ in 0..3 {
                space.transaction(change_areas).unwrap();
            }
            check_areas(&space, false).unwrap();
        }
    }
}
