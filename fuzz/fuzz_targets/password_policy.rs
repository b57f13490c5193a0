//! Values that password policies are made of, and that are kept with the entries that they govern: no bytes are too odd
//! to be judged by.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sapwood_directory::read_password_policy_values;
use sapwood_directory::schema::Schema;
use sapwood_ldap::controls::{AccountUsability, PasswordPolicyResponse};

static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::standard);

fuzz_target!(|bytes: &[u8]| {
    if let Ok(response) = PasswordPolicyResponse::decode(bytes) {
        let mut value = Vec::new();
        response.encode(&mut value);
        assert_eq!(PasswordPolicyResponse::decode(&value), Ok(response));
    }
    if let Ok(usability) = AccountUsability::decode(bytes) {
        let mut value = Vec::new();
        usability.encode(&mut value);
        assert_eq!(AccountUsability::decode(&value), Ok(usability));
    }
    read_password_policy_values(&SCHEMA, bytes);
});
