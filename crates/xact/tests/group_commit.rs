//! Commits that wait for the disk at the same time share a sync.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use sapwood_testkit::storage::gated::Gated;
use sapwood_xact::{Error, Memory, Mode, Options, PAGE_BYTES, Ptr, Space};

/// Each in its own page, so that nobody is in anybody's way.
fn increment(space: &Space, cell: u64) {
    let at = Ptr::<u64>::new((20 + cell) * PAGE_BYTES as u64);
    let incremented: Result<(), Error> = space.transaction(|t| {
        let count = t.load(at)? + 1;
        t.store(at, &count)
    });
    incremented.unwrap();
}

#[test]
fn all_that_are_made_during_a_sync_share_the_next_one() {
    const OTHERS: u64 = 7;
    for mode in [Mode::Explicit, Mode::Tracked, Mode::Snapshot] {
        let storage = Gated::new();
        let gate = storage.gate();
        let options = Options::new().mode(mode).bytes(1 << 20).log_bytes(0);
        let space = Space::open_storage(Arc::new(storage), &options).unwrap();
        let before = space.stat().last;
        increment(&space, 0);
        let (record, syncs) = (space.stat().last - before, space.stat().syncs);
        gate.close();
        std::thread::scope(|scope| {
            scope.spawn(|| increment(&space, 0));
            gate.wait_for_somebody();
            let alone = space.stat();
            assert_eq!(alone.last - alone.durable, record);
            let space = &space;
            for cell in 1..=OTHERS {
                scope.spawn(move || increment(space, cell));
            }
            // They are all in the log, and none of them is acknowledged.
            while space.stat().last < alone.last + OTHERS * record {
                std::thread::yield_now();
            }
            assert_eq!(space.stat().durable, alone.durable);
            gate.open();
        });
        let stat = space.stat();
        assert_eq!(stat.durable, stat.last);
        // One for the first and one for the others; more only if somebody gave up waiting for a leader on a busy
        // machine.
        let shared = stat.syncs - syncs;
        assert!((2..=OTHERS / 2).contains(&shared), "{shared} syncs");
    }
}
