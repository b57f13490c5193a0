//! What a space promises to one process.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use sapwood_xact::{
    Durability, Error, Fault, Memory, Mode, NAME_BYTES_MAX, NAMED_ROOTS_MAX, Options, PAGE_BYTES,
    PageAccess, Ptr, RESERVED_BYTES, Space, Transaction,
};

const COUNTER: Ptr<u64> = Ptr::new(16 * 1024 * 1024);

fn small() -> Options {
    Options::new()
        .bytes(64 << 20)
        .log_bytes(1 << 20)
        .versions_bytes(1 << 20)
}

fn increment(space: &Space) -> u64 {
    let incremented = space.transaction(|t| {
        let count = t.load(COUNTER)? + 1;
        t.store(COUNTER, &count)?;
        Ok::<_, Error>(count)
    });
    incremented.unwrap()
}

#[test]
fn what_is_committed_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    for durability in [Durability::Durable, Durability::Eventual] {
        let path = folder.path().join(format!("{durability:?}"));
        for round in 0..5 {
            let space = Space::open(&path, &small().durability(durability)).unwrap();
            assert_eq!(space.durability(), durability);
            for step in 0..40 {
                assert_eq!(increment(&space), round * 40 + step + 1);
            }
        }
        let space = Space::open(&path, &small().create(false)).unwrap();
        assert_eq!(space.durability(), durability, "chosen when it was made");
        assert_eq!(space.read(|t| t.load(COUNTER)).unwrap(), 200);
    }
    let missing = folder.path().join("missing");
    std::fs::create_dir(&missing).unwrap();
    assert!(Space::open(&missing, &small().create(false)).is_err());
    assert_eq!(std::fs::read_dir(&missing).unwrap().count(), 0);
}

#[test]
fn a_space_is_not_opened_as_what_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let made = small()
        .mode(Mode::Snapshot)
        .durability(Durability::Eventual);
    let mut first = Some(Space::open(folder.path(), &made).unwrap());
    // While others have it open, and when nobody has.
    for _ in 0..2 {
        let open = |options: &Options| Space::open(folder.path(), options);
        let refused = [
            (small().mode(Mode::Tracked), "mode", "snapshot", "tracked"),
            (
                small().durability(Durability::Durable),
                "durability",
                "eventual",
                "durable",
            ),
        ];
        for (options, option, is, is_not) in refused {
            assert!(matches!(
                open(&options),
                Err(Error::MadeOtherwise { what, made, asked })
                    if (what, &*made, &*asked) == (option, is, is_not)
            ));
        }
        let same = open(&made).unwrap();
        assert_eq!(same.mode(), Mode::Snapshot);
        let any = open(&small()).unwrap();
        assert_eq!(any.durability(), Durability::Eventual);
        drop((first.take(), same, any));
    }
}

#[test]
fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let space = Space::open(folder.path(), &small()).unwrap();
    increment(&space);
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(files.len() >= 3, "the lock region, the data and a log");
    for file in files {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}

#[test]
fn a_transaction_that_fails_has_not_happened() {
    let space = Space::in_memory(&small()).unwrap();
    increment(&space);
    let failed: Result<(), Error> = space.transaction(|t| {
        t.store(COUNTER, &99)?;
        assert_eq!(t.load(COUNTER)?, 99);
        Err(Error::ReadOnly)
    });
    assert!(matches!(failed, Err(Error::ReadOnly)));
    let space_again = space.clone();
    let panicked = std::thread::spawn(move || {
        let _: Result<(), Error> = space_again.transaction(|t| {
            t.store(COUNTER, &98)?;
            panic!("in the middle");
        });
    });
    assert!(panicked.join().is_err());
    drop(space.begin().unwrap());
    assert_eq!(increment(&space), 2);
}

#[test]
fn readers_see_one_commit_and_nobody_waits_for_them() {
    let space = Space::in_memory(&small()).unwrap();
    let mut readers = Vec::new();
    for count in 1..100 {
        increment(&space);
        let reader = space.begin_read().unwrap();
        assert_eq!(reader.load(COUNTER).unwrap(), count);
        readers.push((count, reader));
        if count % 3 == 0 {
            readers.remove(readers.len() / 2);
        }
        for (count, reader) in &readers {
            assert_eq!(reader.load(COUNTER).unwrap(), *count);
        }
    }
    assert_eq!(space.stat().transactions, readers.len());
}

#[test]
fn a_reader_that_stays_for_ever_is_named() {
    let options = small()
        .versions_bytes(1 << 16)
        .spill_bytes(0)
        .patience(Duration::from_millis(10));
    let space = Space::in_memory(&options).unwrap();
    let reader = space.begin_read().unwrap();
    let pinned = (0..100).find_map(|_| {
        let result: Result<(), Error> = space.transaction(|t| {
            t.store(COUNTER, &1).and_then(|()| {
                let seen = t.load(Ptr::<u64>::new(1 << 18))? + 1;
                t.store(Ptr::new(1 << 18), &seen)
            })
        });
        result.err()
    });
    assert!(matches!(pinned, Some(Error::Pinned { pid }) if pid == std::process::id()));
    assert_eq!(reader.load(COUNTER).unwrap(), 0);
    drop(reader);
    increment(&space);
}

#[test]
fn a_long_reader_costs_room_and_not_progress() {
    let options = small().durability(Durability::Eventual).log_bytes(64 << 20);
    let space = Space::in_memory(&options).unwrap();
    let frames = space.stat().frames;
    let reader = space.begin_read().unwrap();
    // Many times what there is memory for.
    for count in 1..6000 {
        assert_eq!(increment(&space), count);
    }
    assert_eq!(reader.load(COUNTER).unwrap(), 0);
    assert!(space.stat().frames_used > 20 * frames);
    let second = space.begin_read().unwrap();
    drop(reader);
    for count in 6000..9000 {
        assert_eq!(increment(&space), count);
    }
    assert_eq!(second.load(COUNTER).unwrap(), 5999);
    drop(second);
    space.checkpoint().unwrap();
    assert_eq!(space.stat().frames_used, 0, "all of it was given back");
    for count in 9000..9400 {
        assert_eq!(increment(&space), count);
    }
}

#[test]
fn a_long_reader_takes_up_no_more_room_than_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = 64 * PAGE_BYTES as u64;
    let options = small()
        .durability(Durability::Eventual)
        .versions_bytes(bytes)
        .spill_bytes(2 * bytes)
        .patience(Duration::ZERO);
    let space = Space::open(folder.path(), &options).unwrap();
    let others = Space::open(folder.path(), &options).unwrap();
    let commit = |space: &Space| {
        space.transaction(|t| {
            let count = t.load(COUNTER)? + 1;
            t.store(COUNTER, &count)
        })
    };
    // Readers come and go, so that both areas are used in turns.
    let mut readers = Vec::new();
    let (mut commits, mut refused) = (0_u64, 0);
    for round in 0..4000_u64 {
        let by = if round % 3 == 0 { &others } else { &space };
        match commit(by) {
            Ok(()) => commits += 1,
            Err(Error::Pinned { pid }) => {
                assert_eq!(pid, std::process::id());
                refused += 1;
                readers.remove(0);
            }
            Err(error) => panic!("{error}"),
        }
        assert!(space.stat().frames_used <= 64 + 128);
        if round % 50 == 0 {
            readers.push((commits, space.begin_read().unwrap()));
        }
        if round % 700 == 0 {
            readers.clear();
        }
        if round % 10 == 0 {
            for (count, reader) in &readers {
                assert_eq!(reader.load(COUNTER).unwrap(), *count);
            }
        }
    }
    assert!(refused > 3 && commits > 3000, "{refused} of {commits}");
}

#[test]
fn of_two_that_touch_the_same_page_one_must_repeat() {
    let space = Space::in_memory(&small()).unwrap();
    let mut first = space.begin().unwrap();
    let again = space.begin();
    assert!(matches!(again, Err(Error::Nested)));
    first.store(COUNTER, &5).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(increment(&space), 1));
    });
    assert_eq!(first.load(COUNTER).unwrap(), 5);
    assert!(matches!(first.commit(), Err(Error::Conflict)));
    // Somebody who only reads what changes must repeat as well, if it writes anything.
    let mut second = space.begin().unwrap();
    assert_eq!(second.load(COUNTER).unwrap(), 1);
    second.store(Ptr::<u64>::new(1 << 20), &7).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(increment(&space), 2));
    });
    assert!(matches!(second.commit(), Err(Error::Conflict)));
    let third = space.begin().unwrap();
    assert_eq!(third.load(COUNTER).unwrap(), 2);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(increment(&space), 3));
    });
    assert_eq!(third.load(COUNTER).unwrap(), 2);
    third.commit().unwrap();
}

/// A commit compares few newer versions with all pages that it has touched, and looks these up where there are many.
#[test]
fn a_conflict_is_noticed_among_however_many_newer_versions() {
    let page = |number: u64| Ptr::<u64>::new((1 << 20) + number * PAGE_BYTES as u64);
    let space = Space::in_memory(&small()).unwrap();
    for (touched, newer) in [(1, 3), (30, 1), (30, 16), (30, 17), (30, 60)] {
        for in_the_way in [None, Some(0), Some(newer / 2), Some(newer - 1)] {
            let mut first = space.begin().unwrap();
            for number in 0..touched {
                first.load(page(number)).unwrap();
            }
            let count = first.load(page(1000)).unwrap() + 1;
            first.store(page(1000), &count).unwrap();
            let others = || {
                for number in 0..newer {
                    let is_touched = in_the_way == Some(number);
                    let other = if is_touched {
                        touched - 1
                    } else {
                        100 + number
                    };
                    let count = |t: &mut Transaction<'_>| {
                        let count = t.load(page(other))? + 1;
                        t.store(page(other), &count)
                    };
                    space.transaction(count).unwrap();
                }
            };
            std::thread::scope(|scope| scope.spawn(others).join().unwrap());
            let committed = first.commit();
            match in_the_way {
                None => committed.unwrap(),
                Some(_) => assert!(matches!(committed, Err(Error::Conflict))),
            }
        }
    }
}

#[test]
fn threads_count_together_and_the_oldest_gets_through() {
    for backoff in [true, false] {
        let space = Space::in_memory(&small().backoff(backoff)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..300).for_each(|_| {
                        increment(&space);
                    })
                });
            }
            // One that takes longer than all others, and would never get through first come, first served.
            scope.spawn(|| {
                for _ in 0..5 {
                    let slow: Result<(), Error> = space.transaction(|t| {
                        let count = t.load(COUNTER)?;
                        std::thread::sleep(Duration::from_millis(3));
                        t.store(COUNTER, &count)?;
                        t.store(COUNTER, &(count + 1))
                    });
                    slow.unwrap();
                }
            });
        });
        assert_eq!(space.read(|t| t.load(COUNTER)).unwrap(), 1205);
    }
}

#[test]
fn writers_that_wait_for_room_do_not_keep_each_other_waiting() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 400;
    let own = |thread: u64| Ptr::<u64>::new((1 << 20) + thread * PAGE_BYTES as u64);
    for backoff in [true, false] {
        // The memory for versions is used again every few commits, and the log every few hundred.
        let options = small()
            .versions_bytes(1 << 16)
            .log_bytes(0)
            .backoff(backoff)
            .patience(Duration::from_secs(60));
        let space = Space::in_memory(&options).unwrap();
        let work = |thread: u64| {
            for round in 0..ROUNDS {
                // Most are in nobody's way; from time to time all are in each other's.
                let counted: Result<(), Error> = space.transaction(|t| {
                    let count = t.load(own(thread))? + 1;
                    t.store(own(thread), &count)?;
                    if round % 16 == 0 {
                        let count = t.load(COUNTER)? + 1;
                        t.store(COUNTER, &count)?;
                    }
                    Ok(())
                });
                counted.unwrap();
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let work = &work;
                scope.spawn(move || work(thread));
            }
        });
        let counts = (0..THREADS).map(|thread| space.read(|t| t.load(own(thread))).unwrap());
        assert!(counts.into_iter().all(|count| count == ROUNDS));
        let shared = space.read(|t| t.load(COUNTER)).unwrap();
        assert_eq!(shared, THREADS * ROUNDS.div_ceil(16));
    }
}

#[test]
fn a_transaction_in_a_transaction_is_a_part_of_it() {
    let space = Space::in_memory(&small()).unwrap();
    let outer: Result<(), Error> = space.transaction(|t| {
        t.store(COUNTER, &1)?;
        t.transaction(|t| t.store(COUNTER, &2))
    });
    outer.unwrap();
    assert_eq!(increment(&space), 3);
    let given_up: Result<(), Error> = space.transaction(|t| {
        let inner: Result<(), Error> = t.transaction(|t| {
            t.store(COUNTER, &9)?;
            Err(Error::ReadOnly)
        });
        assert!(inner.is_err());
        Ok(())
    });
    assert!(matches!(given_up, Err(Error::GivenUp)));
    assert_eq!(increment(&space), 4);
}

#[test]
fn transactions_larger_than_log_and_memory_for_versions() {
    let folder = tempfile::tempdir().unwrap();
    let options = small().log_bytes(1 << 16).versions_bytes(1 << 16);
    let space = Space::open(folder.path(), &options).unwrap();
    const LARGE: usize = 3 << 20;
    for round in 1..4_u8 {
        let filled: Result<(), Error> = space.transaction(|t| {
            let count = t.load(COUNTER)?;
            t.store(COUNTER, &(count + 1))?;
            t.write(1 << 20, LARGE)?.fill(round);
            Ok(())
        });
        filled.unwrap();
        increment(&space);
        space
            .read(|t| {
                assert!(t.read(1 << 20, LARGE)?.iter().all(|byte| *byte == round));
                Ok::<_, Error>(())
            })
            .unwrap();
    }
    assert!(!folder.path().join("large").exists());
    drop(space);
    let space = Space::open(folder.path(), &options).unwrap();
    assert_eq!(increment(&space), 7);
    assert_eq!(
        space
            .read(|t| Ok::<_, Error>(t.read(2 << 20, 1)?[0]))
            .unwrap(),
        3
    );
}

#[test]
fn bad_accesses_and_options_are_refused() {
    let space = Space::in_memory(&small()).unwrap();
    let bytes = space.bytes();
    assert_eq!(bytes, 64 << 20);
    let out_of_bounds =
        |result: Result<(), Error>| matches!(result, Err(Error::Fault(Fault::OutOfBounds { .. })));
    let mut t = space.begin().unwrap();
    for (offset, length) in [(bytes, 1), (bytes - 1, 2), (u64::MAX, 2), (0, usize::MAX)] {
        assert!(out_of_bounds(t.read(offset, length).map(drop)));
        let refused = t.write(offset.max(RESERVED_BYTES), length);
        assert!(out_of_bounds(refused.map(drop)));
        t.prefetch(offset, length as u64);
    }
    assert!(t.read(bytes, 0).unwrap().is_empty());
    drop(t);
    let mut reader = space.begin_read().unwrap();
    assert!(matches!(reader.write(0, 1), Err(Error::ReadOnly)));
    for options in [
        small().bytes(0),
        small().bytes(1 << 50),
        small().versions_bytes(1 << 40),
        small().spill_bytes(1 << 40),
    ] {
        assert!(matches!(
            Space::in_memory(&options),
            Err(Error::BadOptions(_))
        ));
    }
    assert_eq!(space.mode(), Mode::Explicit);
}

#[test]
fn what_the_allocator_keeps_is_not_stored_to() {
    let space = Space::in_memory(&small()).unwrap();
    let mut t = space.begin().unwrap();
    let refused = |result: Result<(), Error>, at: u64| matches!(result, Err(Error::Fault(Fault::Reserved { offset })) if offset == at);
    for at in [0, 8, 4096, RESERVED_BYTES - 1] {
        assert!(refused(t.write(at, 2).map(drop), at));
        assert!(refused(t.store(Ptr::new(at), &5_u64), at));
        assert!(refused(t.touch(at, 1, PageAccess::Write), at));
        t.read(at, 2).unwrap();
        t.touch(at, 1, PageAccess::Read).unwrap();
    }
    t.write(RESERVED_BYTES, 1).unwrap()[0] = 1;
    assert!(t.write(0, 0).unwrap().is_empty());
    t.set_root(9).unwrap();
    assert!(t.allocate(100).unwrap() >= RESERVED_BYTES);
    t.commit().unwrap();
    let small = small().bytes(RESERVED_BYTES);
    assert!(matches!(
        Space::in_memory(&small),
        Err(Error::BadOptions(_))
    ));
}

#[test]
fn ranges_over_pages_written_read_and_changed_by_others() {
    let space = Space::in_memory(&small()).unwrap();
    let first = RESERVED_BYTES as usize;
    let mut model = vec![0_u8; first + 16 * PAGE_BYTES];
    let mut dice = 7_u64;
    let mut roll = move |sides: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) as usize % sides
    };
    for round in 0..300 {
        let mut t = space.begin().unwrap();
        let mut own = model.clone();
        for _ in 0..roll(12) {
            let offset = first + roll(own.len() - first - 1);
            let length = 1 + roll((own.len() - offset).min(3 * PAGE_BYTES));
            if roll(2) == 0 {
                t.write(offset as u64, length).unwrap().fill(round as u8);
                own[offset..offset + length].fill(round as u8);
            }
            let offset = roll(own.len() - 1);
            let length = 1 + roll((own.len() - offset).min(9 * PAGE_BYTES));
            assert_eq!(
                t.read(offset as u64, length).unwrap(),
                &own[offset..offset + length]
            );
        }
        if roll(3) > 0 {
            t.commit().unwrap();
            model = own;
        }
    }
}

#[test]
fn areas_do_not_overlap_and_are_given_back() {
    let space = Space::in_memory(&small()).unwrap();
    let mut areas: Vec<(u64, u64)> = Vec::new();
    let mut dice = 3_u64;
    let mut roll = move |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) % sides
    };
    for round in 0..60 {
        let kept = areas.clone();
        let changed: Result<(), Error> = space.transaction(|t| {
            areas = kept.clone();
            for _ in 0..20 {
                if areas.len() > 100 || (!areas.is_empty() && roll(2) == 0) {
                    let (offset, bytes) = areas.swap_remove(roll(areas.len() as u64) as usize);
                    t.free(offset, bytes)?;
                } else {
                    let most = 1 << roll(18);
                    let bytes = 1 + roll(most);
                    let offset = t.allocate(bytes)?;
                    let alignment = (1 << bytes.ilog2()).min(PAGE_BYTES as u64);
                    assert_eq!(offset % alignment, 0);
                    t.write(offset, bytes as usize)?.fill(7);
                    areas.push((offset, bytes));
                }
            }
            if round % 5 == 4 {
                Err(Error::ReadOnly)
            } else {
                Ok(())
            }
        });
        if changed.is_err() {
            areas = kept;
        }
        let mut sorted = areas.clone();
        sorted.sort_unstable();
        assert!(
            sorted
                .windows(2)
                .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
        );
    }
    let mut t = space.begin().unwrap();
    assert_eq!(t.root().unwrap(), 0);
    t.set_root(77).unwrap();
    assert_eq!(t.root().unwrap(), 77);
    assert!(matches!(
        t.allocate(1 << 40),
        Err(Error::Fault(Fault::Full { .. }))
    ));
    assert!(t.allocate(0).is_err());
    assert!(matches!(
        t.free(1, 16),
        Err(Error::Fault(Fault::Damaged { .. }))
    ));
    assert!(matches!(
        t.free(1 << 40, 16),
        Err(Error::Fault(Fault::Damaged { .. }))
    ));
}

#[test]
fn a_structure_whose_sizes_change_has_room_where_it_was() {
    let options = small()
        .bytes(1500 * PAGE_BYTES as u64)
        .versions_bytes(64 << 20);
    let space = Space::in_memory(&options).unwrap();
    let mut t = space.begin().unwrap();
    // Each generation takes up 1000 pages by areas of another size, which fit only where the last ones have joined.
    for generation in 0..10 {
        let bytes = 100_u64 << (generation * 5 % 9);
        let count = 1000 * PAGE_BYTES as u64 / bytes.next_power_of_two();
        let mut areas: Vec<u64> = (0..count).map(|_| t.allocate(bytes).unwrap()).collect();
        while !areas.is_empty() {
            let place = areas.len() * 5 / 7;
            t.free(areas.swap_remove(place), bytes).unwrap();
        }
    }
}

#[test]
fn roots_with_names_are_found_by_them() {
    let folder = tempfile::tempdir().unwrap();
    let space = Space::open(folder.path(), &small()).unwrap();
    let name = |number: usize| format!("{number:03}{}", "n".repeat(NAME_BYTES_MAX - 3));
    let set = |name: &str, root| space.transaction(|t| t.set_named_root(name, root));
    for number in 0..NAMED_ROOTS_MAX {
        set(&name(number), number as u64 + 1).unwrap();
    }
    let full = set("one more", 1).unwrap_err();
    assert!(
        matches!(full, Error::Fault(Fault::RootsFull { .. })),
        "{full}"
    );
    for bad in ["", &"x".repeat(NAME_BYTES_MAX + 1)] {
        let refused = set(bad, 1).unwrap_err();
        assert!(
            matches!(refused, Error::Fault(Fault::Name { .. })),
            "{refused}"
        );
    }
    set(&name(7), 70).unwrap();
    set(&name(8), 0).unwrap();
    set("one more", 1).unwrap();
    drop(space);
    let space = Space::open(folder.path(), &small()).unwrap();
    let root = |name: &str| space.read(|t| t.named_root(name)).unwrap();
    assert_eq!([root(&name(6)), root(&name(7)), root(&name(8))], [7, 70, 0]);
    assert_eq!([root("one more"), root("nobody"), root("")], [1, 0, 0]);
    let t = space.begin_read().unwrap();
    assert_eq!(t.named_roots().unwrap().len(), NAMED_ROOTS_MAX);
    assert_eq!(t.root().unwrap(), 0);
}

#[test]
fn a_space_of_another_layout_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let open = |options: Options| Space::open(folder.path(), &options);
    let space = open(small().layout("bank", 1)).unwrap();
    space.transaction(|t| t.set_root(5)).unwrap();
    for other in [small().layout("bank", 2), small().layout("shop", 1)] {
        let refused = open(other).unwrap_err();
        let Error::OtherLayout { made, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(made, "layout bank version 1");
    }
    // A program that knows both brings it from one to the other.
    let space = open(small()).unwrap();
    space
        .transaction(|t| {
            let mut layout = t.layout()?.unwrap();
            layout.version += 1;
            t.set_layout(&layout)?;
            t.set_root(6)
        })
        .unwrap();
    assert!(open(small().layout("bank", 1)).is_err());
    let space = open(small().layout("bank", 2)).unwrap();
    assert_eq!(space.read(|t| t.root()).unwrap(), 6);
    let named = open(small().layout("", 1)).unwrap_err();
    assert!(
        matches!(named, Error::Fault(Fault::Name { bytes: 0, .. })),
        "{named}"
    );

    let folder = tempfile::tempdir().unwrap();
    let space = Space::open(folder.path(), &small()).unwrap();
    space.transaction(|t| t.set_root(5)).unwrap();
    let refused = Space::open(folder.path(), &small().layout("bank", 1)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("something that it does not name"),
        "{refused}"
    );
}
