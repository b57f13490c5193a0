//! After a power cut containers hold what some number of commits has left, at least all that were acknowledged.

use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use sapwood_testkit::storage::recording::Disk;
use sapwood_xact::{Memory, Options, Ptr, Space};

use crate::model::{Model, Places, Step, check, step, steps};

/// Where the number of commits is.
const COUNT: &str = "count";

fn options() -> Options {
    Options::new().bytes(16 << 20).log_bytes(1 << 20)
}

fn open(disk: &Disk) -> Space {
    Space::open_storage(Arc::new(disk.clone()), &options()).unwrap()
}

#[test]
fn containers_survive_power_cuts() {
    let mut runner = TestRunner::deterministic();
    for seed in 0..6 {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let disk = Disk::new();
        let space = open(&disk);
        let (places, count) = space
            .transaction(|t| {
                let count = t.place(&0_u64)?;
                t.set_named_root(COUNT, count.get())?;
                Ok::<_, sapwood_xact::Error>((Places::create(t)?, count))
            })
            .unwrap();
        disk.note(0);
        let mut model = Model::default();
        for (number, next) in (1..).zip(&steps) {
            let mut t = space.begin().unwrap();
            step(&mut t, places, &mut model, next).unwrap();
            t.store(count, &number).unwrap();
            t.commit().unwrap();
            disk.note(number);
        }
        drop(space);
        for crash in disk.crashes(seed, 24) {
            let Some(promised) = crash.notes().iter().max().copied() else {
                continue;
            };
            let disk = Disk::from_image(crash.image()).unwrap();
            let space = open(&disk);
            let mut t = space.begin().unwrap();
            let count = Ptr::new(t.named_root(COUNT).unwrap());
            let number: u64 = t.load(count).unwrap();
            assert!(number >= promised, "{crash}: {number} of {promised}");
            let mut model = replayed(&steps[..number as usize]);
            check(&mut t, places, &mut model).unwrap();
        }
    }
}

fn replayed(steps: &[Step]) -> Model {
    let mut memory = sapwood_xact::Plain::new();
    let places = Places::create(&mut memory).unwrap();
    let mut model = Model::default();
    for next in steps {
        step(&mut memory, places, &mut model, next).unwrap();
    }
    model
}
