//! What speaks to a directory from the outside: the entries that demonstrations and measurements are made with.

pub mod generate;
