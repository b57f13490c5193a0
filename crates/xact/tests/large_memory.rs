//! How much memory a large transaction takes.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use sapwood_xact::{Durability, Error, Memory, Options, PAGE_BYTES, RESERVED_BYTES, Space};

/// The allocator of the system, counted.
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is done by the allocator of the system.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[test]
fn a_large_transaction_takes_the_memory_of_what_it_changes_and_little_more() {
    const LARGE: usize = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new()
        .bytes(2 * LARGE as u64)
        .durability(Durability::Eventual)
        .log_bytes(4 << 20);
    let space = Space::open(folder.path(), &options).unwrap();
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let filled: Result<(), Error> = space.transaction(|t| {
        for page in 0..LARGE / PAGE_BYTES {
            let at = RESERVED_BYTES + (page * PAGE_BYTES) as u64;
            t.write(at, PAGE_BYTES)?.fill(page as u8 | 1);
        }
        Ok(())
    });
    filled.unwrap();
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(most > LARGE, "the copies are counted");
    assert!(most < LARGE + LARGE / 8, "{} MiB", most >> 20);
    let read = space.read(|t| Ok::<_, Error>(t.read(RESERVED_BYTES + 5000 * 4096, 1)?[0]));
    assert_eq!(read.unwrap(), 5000_u32 as u8 | 1);
}
