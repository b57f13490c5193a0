//! Where time, unique ids and password hashes come from: passed in, so that tests decide them.

use std::time::{SystemTime, UNIX_EPOCH};

/// A clock.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970-01-01T00:00:00Z.
    fn now_micros(&self) -> u64;
}

/// A source of values for entryUUID (RFC 4530).
pub trait UuidSource: Send + Sync {
    /// The 16 bytes of a new UUID.
    fn uuid(&self) -> [u8; 16];
}

/// Makes stored passwords of cleartext ones. Called for each cleartext userPassword value of an add, a modify and an
/// import; expensive by nature, so the server runs [`crate::hash_passwords`] away from its writer.
pub trait PasswordHasher: Send + Sync {
    /// The stored form, `{SCHEME}...` (RFC 3112 §3 and common practice), of a cleartext password.
    ///
    /// # Errors
    /// A sentence for the diagnostic message.
    fn hash(&self, cleartext: &[u8]) -> Result<Vec<u8>, String>;
    /// Whether a value is in a stored form already.
    fn is_hashed(&self, value: &[u8]) -> bool;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_micros(&self) -> u64 {
        // A clock before 1970 is taken for 1970.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as u64)
    }
}

/// Random UUIDs, version 4.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomUuids;

impl UuidSource for RandomUuids {
    fn uuid(&self) -> [u8; 16] {
        uuid::Uuid::new_v4().into_bytes()
    }
}
