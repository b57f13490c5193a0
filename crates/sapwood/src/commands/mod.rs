//! One file for each command.

pub(crate) mod access;
pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod drive;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod index;
pub(crate) mod init;
pub(crate) mod passwd;
pub(crate) mod policy;
pub(crate) mod reload;
pub(crate) mod replica;
pub(crate) mod rule;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod store;
pub(crate) mod suffix;
pub(crate) mod xact;
