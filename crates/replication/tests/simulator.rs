//! Servers that are updated while clocks are wrong, links fail, and they crash, forget, are restored and join. When all
//! is healed and quiet they are equal, they are what a reference computes from all answered updates, and each of these
//! has its effect, or a later one was made in knowledge of it, or the conflict log has it.
//!
//! `cargo xtask simulate` runs more seeds.

use sapwood_testkit::replication::{Flaw, Model, Outcome, simulate};

const SEEDS: u64 = 300;
const STEPS: usize = 400;

#[test]
fn servers_become_equal_and_lose_nothing() {
    let mut all = Outcome::default();
    for seed in 0..SEEDS {
        let outcome = simulate::<Model>(seed, STEPS, None);
        let outcome = outcome.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        all.updates += outcome.updates;
        all.bundles += outcome.bundles;
        all.conflicts += outcome.conflicts;
        all.crashes += outcome.crashes;
        all.restores += outcome.restores;
        all.joins += outcome.joins;
        all.rejoins += outcome.rejoins;
        all.made_anew += outcome.made_anew;
        all.trims += outcome.trims;
    }
    // Otherwise it has shown little.
    assert!(all.updates > 100 * SEEDS as usize / 4, "{all:?}");
    assert!(all.conflicts > 3 * SEEDS as usize, "{all:?}");
    assert!(all.bundles > 10 * SEEDS as usize, "{all:?}");
    let counts = [
        all.crashes,
        all.restores,
        all.joins,
        all.rejoins,
        all.made_anew,
        all.trims,
    ];
    for count in counts {
        assert!(count > SEEDS as usize / 4, "{all:?}");
    }
}

#[test]
fn a_seed_decides_everything() {
    assert_eq!(
        simulate::<Model>(7, STEPS, None),
        simulate::<Model>(7, STEPS, None)
    );
}

#[test]
fn servers_that_do_wrong_are_found() {
    for &flaw in Flaw::ALL {
        let is_found = |seed| simulate::<Model>(seed, STEPS, Some(flaw)).is_err();
        assert!((0..SEEDS).any(is_found), "{flaw:?} is not found");
    }
}
