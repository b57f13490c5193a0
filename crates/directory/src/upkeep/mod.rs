//! What a directory does by itself with its entries, by updates like those of clients.

mod automember;
mod expiry;
mod found;
mod managed;
