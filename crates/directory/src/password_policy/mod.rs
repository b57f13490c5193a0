//! Password policies (draft-behera-ldap-password-policy), as slapd's overlay ppolicy has them.
//!
//! | file | its part |
//! | --- | --- |
//! | `policy` | what an entry of class pwdPolicy asks for, and which of them governs an entry |
//! | `account` | what is stored with an entry that has a password: when it was changed, locked, reset |
//! | `bind` | what a policy says of a bind |
//! | `change` | what it says of a new password, before that is hashed |
//! | `history` | passwords that were used |
//! | `usability` | whether a password can be used, for who asks without it |
//! | `governing` | what governs the password of an entry |
//! | `values` | reads stored values, for the fuzzer |
//!
//! What is kept of a password with its entry is changed by a rule: [`crate::update::rules`].
//!
//! The directory judges binds and changes by what it has: `directory/password_policy.rs`. Failures and successes of
//! binds, which no entry is rewritten for, are kept by [`crate::accounts`].
//!
//! Nothing of this is asked where `cn=config` has no overlay ppolicy.

mod account;
mod bind;
mod change;
mod governing;
pub(crate) mod history;
mod policy;
mod usability;
mod values;

pub(crate) use self::account::Account;
pub use self::bind::{AccountChange, BindFailure, BindVerdict};
pub use self::change::PasswordChange;
pub(crate) use self::change::{Refused, too_many_values};
pub(crate) use self::governing::{Governing, governing, is_disabled};
pub(crate) use self::policy::{Governed, PasswordPolicy};
pub use self::values::read_values;
