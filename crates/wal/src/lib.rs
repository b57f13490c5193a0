//! A durable redo log: opaque records, group commit, recycled segments, replay after a crash.
//!
//! [`storage`] is the one place that touches files, shared with whatever is built on the log.

pub mod storage;
