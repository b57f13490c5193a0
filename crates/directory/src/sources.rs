//! Where time, unique ids and password hashes come from: passed in, so that tests decide them.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::rand::GetRandomFlags;

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
/// import; expensive by nature, so the server does it away from its writer: [`crate::PasswordHashing`].
pub trait PasswordHasher: Send + Sync {
    /// The stored form, `{SCHEME}...` (RFC 3112 §3 and common practice), of a cleartext password.
    ///
    /// # Errors
    /// A sentence for the diagnostic message.
    fn hash(&self, cleartext: &[u8]) -> Result<Vec<u8>, String>;
    /// What is to be kept of a cleartext password in authPassword (RFC 3112), besides its stored form. By default that
    /// is nothing.
    fn verifiers(&self, cleartext: &[u8]) -> Vec<Vec<u8>> {
        let _ = cleartext;
        Vec::new()
    }
    /// Whether a stored form is that of this password. As expensive as to make one.
    fn matches(&self, cleartext: &[u8], stored: &[u8]) -> bool {
        let _ = (cleartext, stored);
        false
    }
    /// Whether a cleartext password is known from a breach. By default none is.
    ///
    /// # Errors
    /// A sentence for the diagnostic message, when that cannot be found out.
    fn is_breached(&self, cleartext: &[u8]) -> Result<bool, String> {
        let _ = cleartext;
        Ok(false)
    }
    /// Whether a cleartext password is too easy to guess for somebody of whom these words are known. By default none
    /// is.
    fn is_guessable(&self, cleartext: &[u8], words: &[&str]) -> bool {
        let _ = (cleartext, words);
        false
    }
    /// Whether passwords that are known from breaches, and those that are easy to guess, are looked for.
    fn looks_for(&self) -> [bool; 2] {
        [false, false]
    }
    /// Whether a value is in a stored form, of any scheme, and so is not hashed.
    fn is_hashed(&self, value: &[u8]) -> bool;
    /// Checks the values of userPassword that an entry is to have, stored forms and passwords yet to be hashed: whether
    /// each can be one, and whether all together are not too many, or too costly to be tried.
    ///
    /// # Errors
    /// A sentence for the diagnostic message.
    fn check(&self, values: &[&[u8]]) -> Result<(), String>;
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

/// UUIDs of version 7 (RFC 9562 §5.7): the time in milliseconds, then random bits. Each comes behind the ones before
/// it, so that their index grows at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimedUuids;

/// Random bytes that a thread has fetched ahead: the system gives so many at once for what a few cost.
#[derive(Default)]
struct Pool {
    bytes: [[u8; Pool::BYTES_EACH]; Pool::UUIDS],
    left: usize,
}

impl Pool {
    const BYTES_EACH: usize = 10;
    /// So many bytes the system gives without interruption: 256.
    const UUIDS: usize = 256 / Pool::BYTES_EACH;
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

impl UuidSource for TimedUuids {
    fn uuid(&self) -> [u8; 16] {
        let millis = SystemClock.now_micros() / 1000;
        POOL.with_borrow_mut(|pool| {
            if pool.left == 0 {
                let bytes = pool.bytes.as_flattened_mut();
                match rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty()) {
                    Ok(given) if given == bytes.len() => pool.left = Pool::UUIDS,
                    _ => return uuid::Uuid::new_v4().into_bytes(),
                }
            }
            pool.left -= 1;
            uuid::Builder::from_unix_timestamp_millis(millis, &pool.bytes[pool.left])
                .into_uuid()
                .into_bytes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_uuids_differ_and_ascend_with_time() {
        let before = SystemClock.now_micros() / 1000;
        let uuids: Vec<_> = (0..1000).map(|_| TimedUuids.uuid()).collect();
        let millis = |uuid: &[u8; 16]| {
            let mut time = [0; 8];
            time[2..].copy_from_slice(&uuid[..6]);
            u64::from_be_bytes(time)
        };
        assert!(uuids.is_sorted_by_key(millis) && millis(&uuids[0]) >= before);
        assert!(
            uuids
                .iter()
                .all(|uuid| uuid[6] >> 4 == 7 && uuid[8] >> 6 == 0b10)
        );
        let different: std::collections::BTreeSet<_> = uuids.iter().collect();
        assert_eq!(different.len(), uuids.len());
    }
}
