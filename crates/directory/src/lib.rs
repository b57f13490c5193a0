//! The directory information tree over an ordered transactional engine.

pub mod schema;
