//! Passwords as `userPassword` keeps them: `{SCHEME}` and a hash (RFC 3112 §2, and the names that servers share in practice).
//!
//! New passwords are hashed with Argon2id. Verification also knows the schemes that people bring along from elsewhere.
//! Each stored hash names its own cost, and a stored hash may come from a client, so each cost has an upper limit here.

mod pool;
mod scheme;

use base64ct::{Base64Unpadded, Encoding};
use zeroize::Zeroizing;

pub use pool::{HasherPool, PoolFull};

/// Memory of one new Argon2id hash, in KiB (the second choice of the OWASP recommendations; [`HasherPool`] runs one at a time).
pub const ARGON2_MEMORY_KIB: u32 = 19 * 1024;
/// Passes over the memory of one new Argon2id hash.
pub const ARGON2_PASSES: u32 = 2;
/// The longest password that is accepted anywhere, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Letters and digits of a generated password: 20 of 57 characters are 116 bits.
pub const GENERATED_CHARACTERS: usize = 20;

/// How many values are checked where the session runs.
const QUICK_VALUES_MAX: usize = 8;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// A password in memory, wiped when dropped.
pub type Password = Zeroizing<Vec<u8>>;

/// Whether a `userPassword` value is already a hash of a known scheme, and so is to be stored as it is.
#[must_use]
pub fn is_hashed(value: &[u8]) -> bool {
    scheme::split(value).is_some()
}

/// Hashes a password with Argon2id: `{ARGON2}$argon2id$v=19$m=19456,t=2,p=1$salt$hash`.
///
/// Takes 19 MiB of memory and some 20 ms of processor time: call it from a [`HasherPool`] or where nobody waits.
///
/// # Panics
/// Never for passwords of at most [`PASSWORD_BYTES_MAX`] bytes.
#[must_use]
pub fn hash(password: &[u8]) -> Vec<u8> {
    let mut salt = [0; SALT_BYTES];
    random(&mut salt);
    hash_with_salt(password, &salt)
}

fn hash_with_salt(password: &[u8], salt: &[u8; SALT_BYTES]) -> Vec<u8> {
    let params = argon2::Params::new(ARGON2_MEMORY_KIB, ARGON2_PASSES, 1, Some(HASH_BYTES))
        .expect("the parameters are constants within Argon2's limits");
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let mut hash = [0; HASH_BYTES];
    argon2
        .hash_password_into(password, salt, &mut hash)
        .expect("salt and output have lengths that Argon2 accepts");
    format!(
        "{{ARGON2}}$argon2id$v=19$m={ARGON2_MEMORY_KIB},t={ARGON2_PASSES},p=1${}${}",
        Base64Unpadded::encode_string(salt),
        Base64Unpadded::encode_string(&hash)
    )
    .into_bytes()
}

/// How the directory hashes cleartext passwords in adds, modifies and imports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hasher;

impl sapwood_directory::PasswordHasher for Hasher {
    fn hash(&self, cleartext: &[u8]) -> Result<Vec<u8>, String> {
        if cleartext.len() > PASSWORD_BYTES_MAX {
            return Err(format!("a password has at most {PASSWORD_BYTES_MAX} bytes"));
        }
        Ok(hash(cleartext))
    }

    fn is_hashed(&self, value: &[u8]) -> bool {
        is_hashed(value)
    }
}

/// Whether `password` is the one behind any of the `stored` values of `userPassword`.
///
/// Without stored values it does the work of one hash all the same, so that the time taken does not tell
/// whether an entry exists. A stored value of an unknown scheme, or one that costs more than the limits, never matches.
#[must_use]
pub fn verify<'a>(password: &[u8], stored: impl IntoIterator<Item = &'a [u8]>) -> bool {
    if password.len() > PASSWORD_BYTES_MAX {
        return false;
    }
    let mut stored = stored.into_iter().peekable();
    if stored.peek().is_none() {
        let _ = hash_with_salt(password, &[0; SALT_BYTES]);
        return false;
    }
    stored.any(|value| scheme::matches(password, value))
}

/// Whether checking a password against these values takes some microseconds at most: they are a few bare digests, as of `{SSHA}`,
/// or in clear. To hand that to another thread would cost more.
#[must_use]
pub fn is_quick<'a>(stored: impl ExactSizeIterator<Item = &'a [u8]>) -> bool {
    (1..=QUICK_VALUES_MAX).contains(&stored.len()) && stored.into_iter().all(scheme::is_quick)
}

/// A new password of [`GENERATED_CHARACTERS`] letters and digits, without those that look alike (0 O o, 1 I l).
#[must_use]
pub fn generate() -> Password {
    const ALPHABET: &[u8] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    let mut password = Zeroizing::new(Vec::with_capacity(GENERATED_CHARACTERS));
    while password.len() < GENERATED_CHARACTERS {
        let mut byte = [0];
        random(&mut byte);
        // Bytes past the largest multiple of the alphabet are thrown away: each character stays equally likely.
        let index = usize::from(byte[0]);
        if index < 256 / ALPHABET.len() * ALPHABET.len() {
            password.push(ALPHABET[index % ALPHABET.len()]);
        }
    }
    password
}

/// Fills `bytes` from the kernel's generator.
pub(crate) fn random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gives no random bytes: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_verifies_its_own_password_only() {
        let stored = hash(b"correct horse");
        assert!(stored.starts_with(b"{ARGON2}$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(is_hashed(&stored));
        assert!(verify(b"correct horse", [stored.as_slice()]));
        assert!(!verify(b"correct hors", [stored.as_slice()]));
        assert!(!verify(b"", [stored.as_slice()]));
        assert_ne!(
            stored,
            hash(b"correct horse"),
            "each hash has a salt of its own"
        );
    }

    #[test]
    fn digests_are_quick_and_what_is_made_to_be_slow_is_not() {
        let quick = |values: &[&[u8]]| is_quick(values.iter().copied());
        assert!(quick(&[b"{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA=="]));
        assert!(quick(&[b"{ssha512}x", b"{MD5}y"]));
        assert!(!quick(&[]));
        assert!(!quick(&[&hash(b"x")]));
        assert!(!quick(&[b"{SSHA}x", b"{PBKDF2}1000$a$b"]));
        assert!(!quick(&[b"{SHA}x".as_slice(); 9]));
    }

    #[test]
    fn nothing_matches_without_stored_values() {
        assert!(!verify(b"x", std::iter::empty()));
    }

    #[test]
    fn generated_passwords_differ_and_avoid_lookalikes() {
        let (one, other) = (generate(), generate());
        assert_eq!(one.len(), GENERATED_CHARACTERS);
        assert_ne!(one, other);
        assert!(
            one.iter()
                .chain(other.iter())
                .all(|c| c.is_ascii_alphanumeric() && !b"0OoIl1".contains(c))
        );
    }
}
