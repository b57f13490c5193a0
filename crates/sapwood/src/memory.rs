//! How the C library's allocator keeps freed memory: hardly.
//!
//! A password hash takes 19 MiB for 20 ms. Left to itself glibc sees such blocks come and go, moves them from maps of
//! their own into its heaps, where they leave holes: some dozens of binds cost more than 100 MiB for good. With a fixed
//! threshold every large block is a map of its own, given back when it is freed.

//!
//! What is freed in small blocks leaves holes as well: after a thousand connections the heaps keep 30 MiB. So a server
//! looks every second whether much is free, and gives back the pages that nothing is on.

#![allow(unsafe_code)] // mallopt(3), mallinfo2(3) and malloc_trim(3) have no safe wrappers.

/// From this size on a block is a map of its own.
const MAP_BYTES: i32 = 256 << 10;
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
