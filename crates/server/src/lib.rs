//! Listeners, sessions, TLS and authentication for the directory.

pub mod config;
pub mod listen;
pub mod password;
pub mod tls;
