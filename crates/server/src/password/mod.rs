//! Passwords as `userPassword` keeps them: `{SCHEME}` and a hash (RFC 3112 §2, and the names that servers share in
//! practice).
//!
//! New passwords are hashed with Argon2id. Verification also knows the schemes that people bring along from elsewhere
//! ([`StoredPassword`]). Each stored hash names its own cost, and a stored hash may come from a client: what one may
//! cost is limited, and what all of an entry may together ([`PasswordLimits`]), both when they are stored and when they
//! are tried.

mod breached;
mod crypt;
mod one_time;
mod pool;
mod saslauthd;
mod scram;
mod stored;
mod strength;
mod verifier;

use std::path::Path;
use std::sync::Arc;

use base64ct::{Base64Unpadded, Encoding};
use sapwood_directory::PasswordSchemes;
use zeroize::Zeroizing;

pub(crate) use one_time::redeemed;
pub use one_time::use_passwords as use_one_time_passwords;
pub(crate) use pool::{HasherPool, Pending, Ticket};
pub(crate) use saslauthd::Saslauthd;
pub(crate) use scram::{SALT_BYTES as SCRAM_SALT_BYTES, ScramHash, ScramVerifier};
pub use stored::{
    Hash, STORED_BYTES_MAX, StoredPassword, VALUE_MEMORY_KIB_MAX, VALUE_WORK_MAX, Work, scheme_of,
};
pub use strength::STRENGTH_MAX;
pub use verifier::{Verified, Verifier};

/// Memory of one new Argon2id hash, in KiB (the second choice of the OWASP recommendations; [`HasherPool`] runs one at
/// a time).
pub const ARGON2_MEMORY_KIB: u32 = 19 * 1024;
/// Passes over the memory of one new Argon2id hash.
pub const ARGON2_PASSES: u32 = 2;
/// The longest password that is accepted anywhere, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Letters and digits of a generated password: 20 of 57 characters are 116 bits.
pub const GENERATED_CHARACTERS: usize = 20;

const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// Bytes of the name of a scheme that a diagnostic repeats.
const SCHEME_NAME_BYTES_MAX: usize = 32;

/// A password in memory, wiped when dropped.
pub type Password = Zeroizing<Vec<u8>>;

/// How much it may cost to check a password against the values of userPassword of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordLimits {
    /// Values.
    pub values_max: usize,
    /// Work of all together.
    pub work_max: Work,
}

impl Default for PasswordLimits {
    fn default() -> Self {
        Self {
            values_max: 8,
            work_max: Work::from_millis(2000),
        }
    }
}

/// Why a value of userPassword, or a new password, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    /// No scheme has this name here.
    #[error(
        "no password can match a value with the scheme {{{scheme}}}, which is not known here (a password in clear text comes without a scheme, and does not \
         begin like one)"
    )]
    UnknownScheme {
        /// The name, cut off if it is long.
        scheme: String,
    },
    /// A hash of `crypt(3)` that is none of those known here.
    #[error(
        "no password can match the value: what follows {{CRYPT}} is no hash of DES, $1$, $2a$, $2b$, $2y$, $5$, $6$ or $y$ in its whole length"
    )]
    UnknownCrypt,
    /// Not what the scheme has.
    #[error(
        "no password can match the value: what follows {{{scheme}}} has not the form of this scheme"
    )]
    Malformed {
        /// The scheme.
        scheme: &'static str,
    },
    /// A value longer than any of its scheme.
    #[error("a value of {{{scheme}}} has at most {STORED_BYTES_MAX} bytes")]
    TooLong {
        /// The scheme.
        scheme: &'static str,
    },
    /// Its own parameters ask for too much.
    #[error(
        "checking a password against the value of {{{scheme}}} would take more than about {} ms or more than {} MiB",
        VALUE_WORK_MAX.millis(),
        VALUE_MEMORY_KIB_MAX >> 10
    )]
    TooCostly {
        /// The scheme.
        scheme: &'static str,
    },
    /// Too many passwords of one entry.
    #[error("an entry has at most {max} values of userPassword (password_values_max)")]
    TooManyValues {
        /// How many it may have.
        max: usize,
    },
    /// All passwords of one entry together ask for too much.
    #[error(
        "checking a password against all values of userPassword would take about {millis} ms, more than {max} (password_cost_ms_max)"
    )]
    TooCostlyTogether {
        /// What they would take.
        millis: u64,
        /// What they may.
        max: u64,
    },
    /// A password in clear text that looks like a stored one.
    #[error("a password does not begin like a stored one, with a scheme in braces")]
    BeginsWithScheme,
    /// A password in clear text that is too long.
    #[error("a password has at most {PASSWORD_BYTES_MAX} bytes")]
    PasswordTooLong,
}

impl PasswordError {
    fn unknown_scheme(scheme: &str) -> Self {
        let mut shown = scheme
            .get(..SCHEME_NAME_BYTES_MAX)
            .unwrap_or(scheme)
            .to_owned();
        if shown.len() < scheme.len() {
            shown.push_str("...");
        }
        Self::UnknownScheme { scheme: shown }
    }
}

/// Whether a `userPassword` value begins with a scheme, known or not, and so is never hashed.
#[must_use]
pub fn is_hashed(value: &[u8]) -> bool {
    scheme_of(value).is_some()
}

/// Checks that a password in clear text can be one.
///
/// # Errors
/// When it is too long or begins like a stored one.
pub fn check_new(password: &[u8]) -> Result<(), PasswordError> {
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(PasswordError::PasswordTooLong);
    }
    if is_hashed(password) {
        return Err(PasswordError::BeginsWithScheme);
    }
    Ok(())
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
    let params = argon2::Params::new(ARGON2_MEMORY_KIB, ARGON2_PASSES, 1, Some(HASH_BYTES))
        .expect("the parameters are constants within Argon2's limits");
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let mut hash = [0; HASH_BYTES];
    argon2
        .hash_password_into(password, &salt, &mut hash)
        .expect("salt and output have lengths that Argon2 accepts");
    format!(
        "{{ARGON2}}$argon2id$v=19$m={ARGON2_MEMORY_KIB},t={ARGON2_PASSES},p=1${}${}",
        Base64Unpadded::encode_string(&salt),
        Base64Unpadded::encode_string(&hash)
    )
    .into_bytes()
}

/// Whether a stored form is one of those that [`hash`] makes, whatever its cost.
fn is_usual(stored: &[u8]) -> bool {
    scheme_of(stored).is_some_and(|(scheme, rest)| {
        let is_argon2 = ["ARGON2", "ARGON2ID"]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(scheme));
        is_argon2 && rest.starts_with(b"$argon2id$")
    })
}

/// Whether a stored form can be replaced by one that [`hash`] makes of the same password: it is another one, and no
/// other program knows the password, which may change there.
pub(crate) fn is_outdated(stored: &[u8]) -> bool {
    !is_usual(stored) && saslauthd::user_of(stored).is_none()
}

/// The work of [`hash`].
#[must_use]
pub const fn hash_work() -> Work {
    Work::passes(ARGON2_MEMORY_KIB, ARGON2_PASSES)
}

/// How the directory hashes cleartext passwords in adds, modifies and imports, and what passwords it stores.
#[derive(Clone, Debug, Default)]
pub struct Hasher {
    /// What the passwords of one entry may cost.
    pub limits: PasswordLimits,
    /// The forms in which a password in clear text is stored.
    pub schemes: PasswordSchemes,
    /// The file of passwords that are known from breaches, if there is one.
    pub breached: Option<Arc<Path>>,
    /// Whether there is a saslauthd that knows passwords: then `{SASL}` and a user can be stored.
    pub has_saslauthd: bool,
    /// How hard to guess a password has to be where policies look at it, up to [`STRENGTH_MAX`]; 0 asks for nothing.
    pub strength_min: u8,
}

impl Hasher {
    /// The work of one password in clear text.
    pub(crate) fn work(&self) -> Work {
        let count = scram_hashes(self.schemes).count() as u64;
        hash_work().and(scram::verifier_work().times(count))
    }
}

/// What authPassword keeps of a password in clear text.
pub(crate) fn verifiers(password: &[u8], schemes: PasswordSchemes) -> Vec<Vec<u8>> {
    let verifiers = scram_hashes(schemes).filter_map(|hash| ScramVerifier::new(hash, password));
    verifiers.map(|verifier| verifier.to_value()).collect()
}

fn scram_hashes(schemes: PasswordSchemes) -> impl Iterator<Item = ScramHash> {
    let is_named = move |hash: &ScramHash| match hash {
        ScramHash::Sha256 => schemes.scram_sha_256,
        ScramHash::Sha512 => schemes.scram_sha_512,
    };
    ScramHash::ALL.into_iter().filter(is_named)
}

impl sapwood_directory::PasswordHasher for Hasher {
    fn hash(&self, cleartext: &[u8]) -> Result<Vec<u8>, String> {
        check_new(cleartext).map_err(|error| error.to_string())?;
        Ok(hash(cleartext))
    }

    fn verifiers(&self, cleartext: &[u8]) -> Vec<Vec<u8>> {
        verifiers(cleartext, self.schemes)
    }

    fn matches(&self, cleartext: &[u8], stored: &[u8]) -> bool {
        Verifier::new(cleartext, [stored], self.limits)
            .run()
            .is_some()
    }

    fn is_breached(&self, cleartext: &[u8]) -> Result<bool, String> {
        let Some(path) = &self.breached else {
            return Ok(false);
        };
        breached::contains(path, cleartext).map_err(|error| {
            let path = path.display();
            tracing::error!(
                "{path}: {error}: passwords that policies look at are not changed until it can be read"
            );
            "the list of breached passwords cannot be read".to_owned()
        })
    }

    fn is_guessable(&self, cleartext: &[u8], words: &[&str]) -> bool {
        self.strength_min > 0 && strength::strength(cleartext, words) < self.strength_min
    }

    fn looks_for(&self) -> [bool; 2] {
        [self.breached.is_some(), self.strength_min > 0]
    }

    fn is_hashed(&self, value: &[u8]) -> bool {
        is_hashed(value)
    }

    fn check(&self, values: &[&[u8]]) -> Result<(), String> {
        let checked = || {
            if values.len() > self.limits.values_max {
                let max = self.limits.values_max;
                return Err(PasswordError::TooManyValues { max });
            }
            let mut work = Work::default();
            for value in values {
                let is_known_elsewhere = || saslauthd::user_of(value).is_some();
                work = work.and(match is_hashed(value) {
                    true if self.has_saslauthd && is_known_elsewhere() => Work::default(),
                    true => StoredPassword::parse(value)?.work(0),
                    false => {
                        check_new(value)?;
                        hash_work()
                    }
                });
            }
            if work > self.limits.work_max {
                let (millis, max) = (work.millis(), self.limits.work_max.millis());
                return Err(PasswordError::TooCostlyTogether { millis, max });
            }
            Ok(())
        };
        checked().map_err(|error| error.to_string())
    }
}

/// Whether `password` is the one behind any of the `stored` values of `userPassword`, within the usual limits. Takes as
/// long as that takes.
#[must_use]
pub fn verify<'a>(password: &[u8], stored: impl IntoIterator<Item = &'a [u8]>) -> bool {
    Verifier::new(password, stored, PasswordLimits::default())
        .run()
        .is_some()
}

/// A new password of [`GENERATED_CHARACTERS`] letters and digits, without those that look alike (0 O o, 1 I l).
#[must_use]
pub fn generate() -> Password {
    generate_of(GENERATED_CHARACTERS)
}

/// The same of so many characters, as a policy may ask for; no more than a password has bytes at most.
pub(crate) fn generate_of(characters: usize) -> Password {
    let characters = characters.min(PASSWORD_BYTES_MAX);
    const ALPHABET: &[u8] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    let mut password = Zeroizing::new(Vec::with_capacity(characters));
    while password.len() < characters {
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
        let quick = |values: &[&[u8]]| {
            Verifier::new(b"x", values.iter().copied(), PasswordLimits::default()).is_quick()
        };
        let ssha = b"{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==".as_slice();
        assert!(quick(&[]));
        assert!(quick(&[ssha, b"{FOO}x"]));
        assert!(!quick(&[&hash(b"x")]));
        assert!(!quick(&[ssha, b"{CRYPT}abNANd1rDfiNc"]));
    }

    #[test]
    fn what_is_hashed_here_is_in_the_usual_form() {
        assert!(is_usual(&hash(b"x")) && is_usual(b"{argon2id}$argon2id$v=19$"));
        for other in [
            b"{ARGON2}$argon2i$v=19$m=1,t=1,p=1$c2FsdA$AAAA".as_slice(),
            b"{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==",
            b"clear",
        ] {
            assert!(!is_usual(other) && is_outdated(other));
        }
        assert!(!is_outdated(b"{SASL}anne"));
    }

    #[test]
    fn nothing_matches_without_stored_values() {
        assert!(!verify(b"x", std::iter::empty()));
    }

    #[test]
    fn what_an_entry_may_have_is_bounded() {
        use sapwood_directory::PasswordHasher;
        let hasher = Hasher::default();
        let check = |values: &[&[u8]]| hasher.check(values);
        let ssha = b"{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==".as_slice();
        assert_eq!(check(&[ssha; 8]), Ok(()));
        assert!(
            check(&[ssha; 9])
                .unwrap_err()
                .contains("password_values_max")
        );
        let slow: &[u8] =
            b"{PBKDF2-SHA256}1500000$c2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(check(&[slow; 2]), Ok(()));
        assert!(
            check(&[slow; 3])
                .unwrap_err()
                .contains("password_cost_ms_max")
        );
        assert!(check(&[b"{FOO}x"]).unwrap_err().contains("{FOO}"));
        assert!(check(&[b"{CLEARTEXT}x"]).is_err());
        assert!(check(&[b"{SASL}anne"]).is_err());
        let asking = Hasher {
            has_saslauthd: true,
            ..Hasher::default()
        };
        assert_eq!(asking.check(&[b"{SASL}anne"]), Ok(()));
        assert!(asking.check(&[b"{SASL}"]).is_err());
        assert!(hasher.hash(b"{FOO}x").is_err());
        assert!(check(&[b"{not a scheme}", b"{}", b"{"]).is_ok());
        let long = [b'x'; PASSWORD_BYTES_MAX + 1];
        assert!(check(&[&long]).is_err() && hasher.hash(&long).is_err());
        let endless = [b"{".as_slice(), &[b'A'; 9000], b"}x"].concat();
        assert!(check(&[&endless]).unwrap_err().len() < 300);
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
