//! Storages that show what a program makes of its disk: one that loses power, and one whose syncs wait.

pub mod gated;
pub mod recording;
