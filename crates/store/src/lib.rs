//! A memory-mapped, multi-version B+tree store: one file, copy on write, snapshots without locks.
