//! Containers that several threads change at once, in every mode.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sapwood_xact::{
    Error, HashMap, Memory, Mode, Options, Queue, Space, Text, Transaction, Vector,
};

const MODES: [Mode; 3] = [Mode::Explicit, Mode::Tracked, Mode::Snapshot];
const THREADS: u64 = 4;
const EACH: u64 = 300;

fn with_space(test: impl Fn(&Space)) {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new()
            .mode(mode)
            .durability(sapwood_xact::Durability::Eventual)
            .bytes(64 << 20)
            .log_bytes(16 << 20);
        test(&Space::open(folder.path(), &options).unwrap());
    }
}

fn in_threads(work: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        let work = &work;
        for number in 0..THREADS {
            scope.spawn(move || work(number));
        }
    });
}

type Numbers<'t, 's> = Queue<&'t mut Transaction<'s>, u64>;

fn queue<'t, 's>(t: &'t mut Transaction<'s>) -> Result<Numbers<'t, 's>, Error> {
    let root = t.named_root("queue")?;
    Queue::open(t, root)
}

/// Whatever goes in comes out once, and what one thread puts in comes out in its order.
#[test]
fn a_queue_loses_nothing_and_gives_nothing_twice() {
    with_space(|space| {
        let made = space.transaction(|t| {
            let queue = Queue::<_, u64>::create(&mut *t)?.offset();
            t.set_named_root("queue", queue)
        });
        made.unwrap();
        let left = AtomicU64::new(THREADS / 2 * EACH);
        let taken = std::sync::Mutex::new(Vec::new());
        in_threads(|me| {
            if me % 2 == 0 {
                for number in 0..EACH {
                    let value = me << 32 | number;
                    space.transaction(|t| queue(t)?.push(&value)).unwrap();
                }
                return;
            }
            let mut own = Vec::new();
            while left.load(Ordering::SeqCst) > 0 {
                if let Some(value) = space.transaction(|t| queue(t)?.pop()).unwrap() {
                    left.fetch_sub(1, Ordering::SeqCst);
                    own.push(value);
                }
            }
            for pair in own.windows(2).filter(|pair| pair[0] >> 32 == pair[1] >> 32) {
                assert!(pair[0] < pair[1], "{pair:?}");
            }
            taken.lock().unwrap().extend(own);
        });
        let taken = taken.into_inner().unwrap();
        assert_eq!(taken.len() as u64, THREADS / 2 * EACH);
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), taken.len());
    });
}

#[test]
fn a_hash_map_has_what_every_thread_has_put_in() {
    with_space(|space| {
        let made = space.transaction(|t| {
            let map = HashMap::create(&mut *t)?.offset();
            t.set_named_root("map", map)
        });
        made.unwrap();
        let key = |me: u64, number: u64| [me.to_le_bytes(), number.to_le_bytes()].concat();
        in_threads(|me| {
            for number in 0..EACH {
                let changed = space.transaction(|t| {
                    let root = t.named_root("map")?;
                    let mut map = HashMap::open(t, root)?;
                    if let Some(before) = number.checked_sub(7) {
                        assert!(map.remove(&key(me, before))?);
                    }
                    map.insert(&key(me, number), &vec![me as u8; (number % 90) as usize])
                });
                assert!(changed.unwrap());
            }
        });
        let t = space.begin_read().unwrap();
        let root = t.named_root("map").unwrap();
        let map = HashMap::open(t, root).unwrap();
        assert_eq!(map.len().unwrap(), THREADS * 7);
        for me in 0..THREADS {
            for number in EACH - 7..EACH {
                let expected = vec![me as u8; (number % 90) as usize];
                assert_eq!(map.get(&key(me, number)).unwrap(), Some(&expected[..]));
            }
        }
    });
}

/// Threads append, and clear all at times: what somebody else has freed is written to by nobody.
#[test]
fn vectors_and_strings_are_whole_while_others_clear_them() {
    with_space(|space| {
        let made = space.transaction(|t| {
            let vector = Vector::<_, u64>::create(&mut *t)?.offset();
            t.set_named_root("vector", vector)?;
            let text = Text::create(&mut *t, "")?.offset();
            t.set_named_root("text", text)
        });
        made.unwrap();
        in_threads(|me| {
            for number in 0..EACH {
                let changed = space.transaction(|t| {
                    let (vector, text) = (t.named_root("vector")?, t.named_root("text")?);
                    let mut vector = Vector::<_, u64>::open(&mut *t, vector)?;
                    let length = vector.len()?;
                    if length > 100 + me {
                        vector.clear()?;
                    }
                    for index in 0..vector.len()?.min(5) {
                        vector.set(index * 20, &(me << 8))?;
                    }
                    vector.push(&(me << 8))?;
                    let mut text = Text::open(t, text)?;
                    match number % 40 {
                        0 => text.set(""),
                        _ => text.push_str("abc"),
                    }
                });
                changed.unwrap();
            }
        });
        let mut t = space.begin().unwrap();
        let (vector, text) = (
            t.named_root("vector").unwrap(),
            t.named_root("text").unwrap(),
        );
        let vector = Vector::<_, u64>::open(&mut t, vector).unwrap();
        for value in vector.iter().unwrap() {
            let value = value.unwrap();
            assert!(value >> 8 < THREADS && value & 255 == 0, "{value}");
        }
        let text = Text::open(&mut t, text).unwrap();
        assert_eq!(text.get().unwrap(), "abc".repeat(text.len().unwrap() / 3));
    });
}

/// The one that changes what another one has given back meanwhile finds out, also where only stores are noticed.
#[test]
fn what_is_given_back_conflicts_with_changes_of_it() {
    let change = |t: &mut Transaction<'_>, name: &str| {
        let at = t.named_root(name)?;
        match name {
            "vector" => Vector::<_, u64>::open(t, at)?.set(50, &7).map(drop),
            "queue" => Queue::<_, u64>::open(t, at)?.push(&7),
            "map" => HashMap::open(t, at)?.insert(b"key", b"other").map(drop),
            _ => Text::open(t, at)?.set("else"),
        }
    };
    let give_back = |t: &mut Transaction<'_>, name: &str| {
        let at = t.named_root(name)?;
        t.set_named_root(name, 0)?;
        match name {
            "vector" => Vector::<_, u64>::open(t, at)?.destroy().map(drop),
            "queue" => Queue::<_, u64>::open(t, at)?.destroy().map(drop),
            "map" => HashMap::open(t, at)?.destroy().map(drop),
            _ => Text::open(t, at)?.destroy().map(drop),
        }
    };
    with_space(|space| {
        for name in ["vector", "queue", "map", "text"] {
            let made = space.transaction(|t| {
                // So that their pages are their own.
                t.allocate(1 << 16)?;
                let mut vector = Vector::<_, u64>::create(&mut *t)?;
                (0..100).try_for_each(|value| vector.push(&value))?;
                let vector = vector.offset();
                let queue = Queue::<_, u64>::create(&mut *t)?.offset();
                let mut map = HashMap::create(&mut *t)?;
                map.insert(b"key", b"value")?;
                let map = map.offset();
                let text = Text::create(&mut *t, "some")?.offset();
                let all = [
                    ("vector", vector),
                    ("queue", queue),
                    ("map", map),
                    ("text", text),
                ];
                all.iter()
                    .try_for_each(|(name, at)| t.set_named_root(name, *at))
            });
            made.unwrap();
            let mut late = space.begin().unwrap();
            change(&mut late, name).unwrap();
            thread::scope(|scope| {
                let other = scope.spawn(|| space.transaction(|t| give_back(t, name)));
                other.join().unwrap().unwrap();
            });
            let ended = late.commit();
            assert!(
                matches!(ended, Err(Error::Conflict)),
                "{name} in {:?}",
                space.mode()
            );
        }
    });
}
