//! Trees that several transactions change at once, where a transaction does not conflict by what it has only read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_xact::{
    BPlusTree, CacheObliviousTree, Census, Error, Memory, Mode, Options, Rebalancer, Space,
};

const MODES: [Mode; 3] = [Mode::Explicit, Mode::Tracked, Mode::Snapshot];

fn open(folder: &std::path::Path, mode: Mode) -> Space {
    let options = Options::new()
        .mode(mode)
        .bytes(64 << 20)
        .log_bytes(16 << 20)
        .versions_bytes(16 << 20);
    let space = Space::open(folder, &options).unwrap();
    space
        .transaction(|t| {
            let root = CacheObliviousTree::create(&mut *t)?.offset();
            t.set_root(root)
        })
        .unwrap();
    space
}

fn open_tree<M: Memory>(
    memory: M,
    rebalancer: &Arc<Rebalancer>,
) -> Result<CacheObliviousTree<M>, M::Error> {
    let root = memory.root()?;
    CacheObliviousTree::with_rebalancer(memory, root, Arc::clone(rebalancer))
}

fn insert(t: &mut impl Memory<Error = Error>, key: &[u8], value: &[u8]) -> Result<bool, Error> {
    open_tree(t, &Arc::new(Rebalancer::immediate()))?.insert(key, value)
}

fn census(space: &Space) -> Census {
    let mut t = space.begin_read().unwrap();
    let tree = open_tree(&mut t, &Arc::new(Rebalancer::immediate())).unwrap();
    tree.check().unwrap()
}

/// A new segment at the end takes keys away from the segment that was the last one, whose page it need not change
/// otherwise.
#[test]
fn a_record_behind_all_others_conflicts_with_a_new_segment() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        for key in 0..8_u8 {
            space.transaction(|t| insert(t, &[key], &[0; 480])).unwrap();
        }
        let mut t = space.begin().unwrap();
        assert!(insert(&mut t, b"zero", b"small").unwrap());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                space
                    .transaction(|t| insert(t, b"large", &[1; 500]))
                    .unwrap()
            });
            assert!(other.join().unwrap());
        });
        // A space may also find out before the end.
        assert!(matches!(t.commit(), Err(Error::Conflict)), "{mode:?}");
        space.transaction(|t| insert(t, b"zero", b"small")).unwrap();
        let census = census(&space);
        assert_eq!((census.keys, census.leaves), (10, 2), "{mode:?}");
    }
}

#[test]
fn keys_that_several_threads_insert_in_order_and_anywhere_are_all_there() {
    const THREADS: u64 = 4;
    const KEYS: u64 = 400;
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        let rebalancer = Arc::new(Rebalancer::deferred());
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..KEYS {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let key = match number % 4 {
                            0 => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1,
                            _ => number | 1 << 63,
                        };
                        space
                            .transaction(|t| {
                                open_tree(t, &rebalancer)?.insert(&key.to_be_bytes(), &[7; 90])
                            })
                            .unwrap();
                        if rebalancer.due() {
                            space
                                .transaction_relaxed(|t| open_tree(t, &rebalancer)?.maintain())
                                .unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(census(&space).keys, THREADS * KEYS, "{mode:?}");
    }
}

/// While the whole array moves, step by step, a transaction that inserts where the move is not goes through.
#[test]
fn a_step_of_a_move_leaves_inserts_elsewhere_alone() {
    const KEYS: u64 = 10_000;
    const HIGH: [u8; 8] = [0xff; 8];
    for mode in [Mode::Explicit, Mode::Tracked] {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        let rebalancer = Arc::new(Rebalancer::deferred());
        let (mut steps, mut conflicts) = (0, 0);
        for number in 0..KEYS {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
            space
                .transaction(|t| open_tree(t, &rebalancer)?.insert(&key.to_be_bytes(), &[7; 90]))
                .unwrap();
            while rebalancer.due() {
                let mut t = space.begin().unwrap();
                let inserted = insert(&mut t, &HIGH, &[]);
                std::thread::scope(|scope| {
                    let step = || {
                        space
                            .transaction(|t| open_tree(t, &rebalancer)?.maintain())
                            .unwrap();
                    };
                    scope.spawn(step).join().unwrap();
                });
                // The first steps of a move and the last meet everybody, and small arrays have few others.
                let counts = number >= KEYS / 2;
                steps += u64::from(counts);
                match inserted.and_then(|_| t.commit()) {
                    // Its segment stays as full as it was: one that needs room looks at how far the move is.
                    Ok(_) => assert!(
                        space
                            .transaction(|t| open_tree(t, &rebalancer)?.remove(&HIGH))
                            .unwrap()
                    ),
                    Err(Error::Conflict) => conflicts += u64::from(counts),
                    Err(error) => panic!("{mode:?}: {error}"),
                }
            }
        }
        assert_eq!(census(&space).keys, KEYS, "{mode:?}");
        assert!(steps > 30, "{mode:?}: {steps} steps");
        assert!(conflicts * 4 < steps, "{mode:?}: {conflicts} of {steps}");
    }
}

/// Somebody else's insert moves the whole array at once: a record that goes where it was is not lost.
#[test]
fn a_move_at_once_conflicts_with_every_insert() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).to_be_bytes();
        for number in (0..1000).step_by(2) {
            let mut t = space.begin().unwrap();
            let inserted = insert(&mut t, &key(number), &[7; 90]);
            std::thread::scope(|scope| {
                let other = || space.transaction(|t| insert(t, &key(number + 1), &[7; 90]));
                scope.spawn(other).join().unwrap().unwrap();
            });
            match inserted.and_then(|_| t.commit()) {
                Ok(_) => {}
                Err(Error::Conflict) => {
                    space
                        .transaction(|t| insert(t, &key(number), &[7; 90]))
                        .unwrap();
                }
                Err(error) => panic!("{mode:?}: {error}"),
            }
        }
        assert_eq!(census(&space).keys, 1000, "{mode:?}");
    }
}

/// Trees on plain memory: nothing but loads and stores says what they use.
#[test]
fn trees_in_mapped_memory_are_those_of_threads_that_take_turns() {
    const THREADS: u64 = 3;
    const KEYS: u64 = 80;
    for mode in [Mode::Tracked, Mode::Snapshot] {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        let blocks = space
            .transaction(|t| {
                let mut memory = t.mapped().unwrap();
                Ok::<_, Error>(BPlusTree::create(&mut memory, 4096)?.offset())
            })
            .unwrap();
        let key = |me: u64, number: u64| (number * 7919 % KEYS * THREADS + me).to_be_bytes();
        std::thread::scope(|scope| {
            for me in 0..THREADS {
                let (space, key) = (&space, &key);
                scope.spawn(move || {
                    for number in 0..KEYS {
                        let key = key(me, number);
                        let both = space.transaction(|t| {
                            let mut memory = t.mapped().unwrap();
                            let is_new = insert(&mut memory, &key, &[7; 40])?;
                            let mut tree = BPlusTree::open(&mut memory, blocks)?;
                            assert_eq!(tree.insert(&key, &[8; 300])?, is_new);
                            if number % 5 == 4 {
                                assert!(tree.remove(&key)?);
                            }
                            Ok::<_, Error>(is_new)
                        });
                        assert!(both.unwrap());
                    }
                });
            }
        });
        let mut reader = space.begin_read().unwrap();
        let mut memory = reader.mapped().unwrap();
        let tree = BPlusTree::open(&mut memory, blocks).unwrap();
        assert_eq!(tree.check().unwrap().keys, THREADS * KEYS * 4 / 5);
        for me in 0..THREADS {
            for number in 0..KEYS {
                let expected = (number % 5 != 4).then_some(&[8; 300][..]);
                assert_eq!(tree.get(&key(me, number)).unwrap(), expected, "{mode:?}");
            }
        }
        let tree = open_tree(&mut memory, &Arc::new(Rebalancer::immediate())).unwrap();
        assert_eq!(tree.check().unwrap().keys, THREADS * KEYS);
        assert!(matches!(memory.write(1 << 20, 1), Err(Error::ReadOnly)));
        assert!(memory.read(space.bytes(), 1).is_err());
    }
    let space = Space::in_memory(&Options::new().bytes(1 << 24)).unwrap();
    assert!(
        space.begin().unwrap().mapped().is_none(),
        "in mode explicit"
    );
}

/// A tree that was only read, with loads, conflicts where reading does.
#[test]
fn loads_of_a_tree_conflict_when_tracked() {
    for mode in [Mode::Tracked, Mode::Snapshot] {
        let folder = tempfile::tempdir().unwrap();
        let space = open(folder.path(), mode);
        space.transaction(|t| insert(t, b"key", b"1")).unwrap();
        let own = space.transaction(|t| t.allocate(4096)).unwrap();
        let mut late = space.begin().unwrap();
        let mut memory = late.mapped().unwrap();
        let immediate = Arc::new(Rebalancer::immediate());
        let found = open_tree(&mut memory, &immediate).unwrap();
        assert_eq!(found.get(b"key").unwrap(), Some(&b"1"[..]));
        memory.write(own, 1).unwrap()[0] = 1;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| space.transaction(|t| insert(t, b"key", b"2")));
            other.join().unwrap().unwrap();
        });
        assert_eq!(late.commit().is_err(), mode == Mode::Tracked, "{mode:?}");
    }
}
