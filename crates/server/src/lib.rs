//! Listeners, sessions, TLS and authentication for the directory.
