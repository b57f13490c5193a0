//! The containers beside the trees: each is what the standard library's is, also in transactions, together with others,
//! after power cuts and in damaged memory.

#![allow(clippy::unwrap_used)]

mod crash;
mod damage;
mod model;
mod together;
