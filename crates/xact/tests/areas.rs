//! Transactions on more pages than the system protects one by one. What is counted is counted for the whole process,
//! and has conflicts noticed less precisely in all its spaces: so this is a process of its own.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::path::Path;

use sapwood_xact::{Error, Memory, Mode, Options, PAGE_BYTES, RESERVED_BYTES, Space, Transaction};

#[test]
fn a_transaction_may_touch_more_pages_than_the_system_protects_one_by_one() {
    // So that each is an area of its own.
    const STRIDE: usize = 2 * PAGE_BYTES;
    const TOUCHED: usize = 36_000;
    for mode in [Mode::Tracked, Mode::Snapshot] {
        // Writing so many pages to a disk would take minutes and show nothing more.
        let in_memory = Path::new("/dev/shm");
        let folder = match in_memory.is_dir() {
            true => tempfile::tempdir_in(in_memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let options = Options::new()
            .mode(mode)
            .bytes(RESERVED_BYTES + (TOUCHED * STRIDE) as u64);
        let space = Space::open(folder.path(), &options).unwrap();
        let at = |place: usize| RESERVED_BYTES as usize + place * STRIDE + 100;
        let t = space.begin().unwrap();
        let base = t.map().unwrap().as_ptr();
        for place in 0..TOUCHED {
            // SAFETY: within the space, whose transaction runs in this thread.
            let byte = unsafe { &mut *base.add(at(place)) };
            assert_eq!(*byte, 0);
            *byte = place as u8 | 1;
        }
        t.commit().unwrap();
        let written = |t: &Transaction<'_>| {
            let base = t.map().unwrap().as_ptr();
            // SAFETY: as above.
            let found = |place: usize| unsafe { base.add(at(place)).read() };
            // SAFETY: as above.
            let between = |place: usize| unsafe { base.add(at(place) + PAGE_BYTES).read() };
            assert!((0..TOUCHED).all(|place| found(place) == place as u8 | 1));
            assert!((0..TOUCHED).all(|place| between(place) == 0));
        };
        written(&space.begin_read().unwrap());
        // Given up, it leaves nothing, and what it was given in groups is learnt of page by page again.
        let mut t = space.begin().unwrap();
        written(&t);
        t.write(at(7) as u64, 1).unwrap()[0] = 99;
        drop(t);
        let mut t = space.begin().unwrap();
        assert_eq!(t.read(at(7) as u64, 1).unwrap(), [7]);
        t.write(at(9) as u64, 1).unwrap()[0] = 99;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let stored: Result<(), Error> = space.transaction(|t| {
                    t.write(at(20) as u64, 1)?[0] = 98;
                    Ok(())
                });
                stored.unwrap();
            });
            other.join().unwrap();
        });
        t.commit().unwrap();
    }
}
