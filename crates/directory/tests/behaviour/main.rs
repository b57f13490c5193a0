//! What the directory does, through its public interface: a story a file.

#![allow(clippy::unwrap_used)]

mod controls;
mod engine;
mod filter_model;
mod import;
mod indexes;
mod model;
mod query;
mod search;
mod stores;
mod support;
mod transactions;
mod updates;
