//! The LDAP protocol and its text forms, as pure functions on bytes.

pub mod attribute;
pub mod base64;
pub mod ber;
pub mod controls;
pub mod csn;
pub mod dn;
pub mod error;
pub mod extended;
pub mod filter;
pub mod filter_text;
pub mod ldif;
pub mod limits;
pub mod list;
pub mod message;
mod operation;
pub mod result;
mod result_code;
pub mod schema;
mod steps;
pub mod sync_info;
pub mod time;
pub mod url;
pub mod x509;
