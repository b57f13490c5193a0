//! What the directory does, through its public interface: a story a file.

#![allow(clippy::unwrap_used)]

mod access;
mod aliases;
mod approximate;
mod automember;
mod bundles;
mod changes;
mod changes_after_crash;
mod clock;
mod collective;
mod config;
mod constraint;
mod controls;
mod damage;
mod dds;
mod deep_names;
mod diagnostics;
mod digests;
mod dynlist;
mod engine;
mod filter_model;
mod given_numbers;
mod governing;
mod import;
mod in_chain;
mod indexes;
mod large_attributes;
mod large_trees;
mod linked;
mod made;
mod managed;
mod member_of;
mod model;
mod names;
mod numbers;
mod options;
mod persistent_search;
mod query;
mod refint;
mod renewal;
mod replicated;
mod restarts;
mod root;
mod rules;
mod schema;
mod search;
mod several_providers;
mod sorted;
mod stores;
mod subentries;
mod synchronisation;
mod synthetic;
mod transactions;
mod tree_delete;
mod unique;
mod updates;
mod values_apart;

/// The engine that all of it runs on; `over_shy.rs` has another one.
type On = sapwood_directory::engine::Embedded;

/// Of so many random cases of a property test one is tried.
const ONE_CASE_OF: u32 = 1;
