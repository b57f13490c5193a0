//! How the C library's allocator keeps freed memory: hardly.
//!
//! A password hash takes 19 MiB for 20 ms. Left to itself glibc sees such blocks come and go, moves them from maps of their
//! own into its heaps, where they leave holes: some dozens of binds cost more than 100 MiB for good. With a fixed threshold every
//! large block is a map of its own, given back when it is freed.

#![allow(unsafe_code)] // mallopt(3) has no safe wrapper.

/// From this size on a block is a map of its own.
const MAP_BYTES: i32 = 256 << 10;
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
