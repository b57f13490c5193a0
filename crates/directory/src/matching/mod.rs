//! One candidate by itself: whether a filter matches it, and what of it is sent.
//!
//! | file | its part |
//! | --- | --- |
//! | `filter` | makes a filter ready |
//! | `candidate` | an entry, and what somebody sees of it |
//! | `evaluate` | the filter on an entry |
//! | `in_chain` | items that follow names from entry to entry |
//! | `selection` | the attributes to send |
//! | `sender` | and sending them |
//! | `shaping` | which of their values |
//! | `value_range` | a range of them |
//! | `sort_key` | what entries are sorted by |
//! | `sink` | where they go: into messages, or elsewhere |
//! | `look` | one entry by itself, for controls and for access rules |

pub(crate) mod candidate;
pub(crate) mod evaluate;
pub(crate) mod filter;
pub(crate) mod in_chain;
pub(crate) mod look;
pub(crate) mod selection;
pub(crate) mod sender;
pub(crate) mod shaping;
pub(crate) mod sink;
pub(crate) mod sort_key;
mod value_range;
