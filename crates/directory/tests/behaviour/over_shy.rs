//! What the directory does, on an engine whose reads are not here at first, and that runs bundles again and again: the
//! same as on the embedded one. Left out are the tests of engines themselves, and those that make ten thousand entries
//! or chains of hundreds (`large_trees`, `deep_names`): each of their updates begins anew at each record above its
//! entry, which takes minutes.

#![allow(clippy::unwrap_used)]

mod access;
mod aliases;
mod approximate;
mod automember;
mod changes;
mod changes_after_crash;
mod clock;
mod collective;
mod config;
mod constraint;
mod controls;
mod damage;
mod dds;
mod diagnostics;
mod digests;
mod dynlist;
mod filter_model;
mod given_numbers;
mod governing;
mod import;
mod in_chain;
mod indexes;
mod large_attributes;
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

/// The engine that all of it runs on.
type On = sapwood_directory::engine::Shy<sapwood_directory::engine::Embedded>;

/// Of so many random cases of a property test one is tried: each takes several times as long here, and what differs is
/// the engine alone.
const ONE_CASE_OF: u32 = 3;
