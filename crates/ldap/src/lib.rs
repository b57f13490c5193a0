//! The LDAP protocol and its text forms, as pure functions on bytes.

pub mod attribute;
pub mod base64;
pub mod dn;
pub mod ldif;
pub mod schema;
