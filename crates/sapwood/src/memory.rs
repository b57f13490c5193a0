//! How the C library's allocator keeps freed memory: hardly, and without stopping everybody.
//!
//! glibc makes large blocks maps of their own. To map and unmap takes the lock of the address space: all other threads
//! wait that need it as well, for as long as the one that holds it is kept from running. So blocks that come and go
//! with requests stay in the heaps. Only the memory of a password hash, 19 MiB for 20 ms, is a map of its own: from the
//! heaps it would leave holes of its size. The threshold is fixed, because glibc would raise it by itself.
//!
//! What is freed in the heaps leaves holes as well: after a thousand connections they keep 30 MiB. So a server looks
//! every second whether much is free, and gives back the pages that nothing is on.

#![allow(unsafe_code)] // mallopt(3), mallinfo2(3) and malloc_trim(3) have no safe wrappers.

/// From this size on a block is a map of its own: more than a request or an answer takes.
const MAP_BYTES: i32 = 8 << 20;
/// Free bytes at the end of a heap from which on each one freed there gives them back.
const HEAP_END_BYTES_MAX: i32 = 1 << 20;
/// Free bytes in the heaps that are worth giving back: fewer are soon used again.
#[cfg(target_env = "gnu")]
const FREE_BYTES_MAX: usize = 4 << 20;
/// Heaps that threads share; more of them only spread what is free.
const HEAPS_MAX: i32 = 4;

/// To be called before other threads are started.
pub(crate) fn keep_little() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, MAP_BYTES),
        (libc::M_ARENA_MAX, HEAPS_MAX),
        (libc::M_TRIM_THRESHOLD, HEAP_END_BYTES_MAX),
    ] {
        // SAFETY: mallopt only sets a parameter of the allocator, and no other thread runs yet.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives free memory back to the system if there is much of it. Some microseconds if there is not, else about a
/// millisecond.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: both only lock the heaps one after the other, as each allocation does.
    unsafe {
        if libc::mallinfo2().fordblks > FREE_BYTES_MAX {
            libc::malloc_trim(0);
        }
    }
}
