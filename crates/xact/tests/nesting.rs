//! Transactions inside of transactions: on another space, and on the same one that was opened twice.

#![allow(clippy::unwrap_used)]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use sapwood_xact::{Error, Memory, Options, Ptr, Space, Transaction};

const COUNTER: Ptr<u64> = Ptr::new(1 << 20);

fn small() -> Options {
    Options::new()
        .bytes(4 << 20)
        .log_bytes(1 << 20)
        .patience(Duration::from_millis(100))
}

fn count(t: &mut Transaction<'_>) -> Result<(), Error> {
    let count = t.load(COUNTER)? + 1;
    t.store(COUNTER, &count)
}

/// Counts on `outer`, loses once, and then counts on `inner` as well, when the other thread has come as far.
fn nest(outer: &Space, inner: &Space, both: &Barrier) -> Result<(), Error> {
    let mut attempts = 0;
    outer.transaction(|t| {
        attempts += 1;
        count(t)?;
        if attempts == 1 {
            let other = || outer.transaction(count).unwrap();
            thread::scope(|scope| scope.spawn(other).join().unwrap());
            return Ok(());
        }
        if attempts == 2 {
            both.wait();
        }
        inner.transaction(count)
    })
}

#[test]
fn spaces_nested_in_opposite_order_end_in_an_error_that_names_the_cause() {
    let spaces = [(); 2].map(|()| Space::in_memory(&small()).unwrap());
    let [first, second] = &spaces;
    let both = Barrier::new(2);
    let results = thread::scope(|scope| {
        let one = scope.spawn(|| nest(first, second, &both));
        let other = scope.spawn(|| nest(second, first, &both));
        [one.join().unwrap(), other.join().unwrap()]
    });
    let errors: Vec<String> = results
        .into_iter()
        .filter_map(|result| Some(result.err()?.to_string()))
        .collect();
    assert!(!errors.is_empty());
    for error in errors {
        assert!(error.contains("another space"), "{error}");
    }
    for space in &spaces {
        space.transaction(count).unwrap();
    }
}

#[test]
fn a_space_that_was_opened_twice_is_the_same_space() {
    let folder = tempfile::tempdir().unwrap();
    let handles = [(); 2].map(|()| Space::open(folder.path(), &small()).unwrap());
    let [first, second] = &handles;
    let nested = first.transaction(|t| {
        count(t)?;
        second.transaction(count)
    });
    assert!(matches!(nested, Err(Error::Nested)));
    // Beside each other they are in nobody's way.
    first.transaction(count).unwrap();
    second.transaction(count).unwrap();
    assert_eq!(first.read(|t| t.load(COUNTER)).unwrap(), 2);
}
