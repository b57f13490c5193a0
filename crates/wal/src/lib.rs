//! A durable redo log: opaque records, group commit, recycled segments, replay after a crash.
