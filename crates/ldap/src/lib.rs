//! The LDAP protocol and its text forms, as pure functions on bytes.

pub mod attribute;
pub mod dn;
pub mod schema;
