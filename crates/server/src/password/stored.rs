//! Stored forms of a password: `{SCHEME}` and what the scheme needs, parsed once for storing, for verifying and for the
//! cost.
//!
//! The forms are those of OpenLDAP (with its modules pw-sha2, pw-pbkdf2 and argon2) and of 389 Directory Server. A
//! stored form may come from a client, and names its own cost: one that would cost more than the limits below is
//! refused when it is parsed, before any of it is spent.

use argon2::{Algorithm, Argon2, Params, Version};
use base64ct::{Base64ShaCrypt, Base64Unpadded, Encoding};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512, digest::Digest};
use subtle::ConstantTimeEq;

use super::crypt;
use super::{Password, PasswordError};

/// Work that checking one stored form may take.
pub const VALUE_WORK_MAX: Work = Work::from_millis(1000);
/// Memory that checking one stored form may take, in KiB (what RFC 9106 §4 recommends where memory is scarce).
pub const VALUE_MEMORY_KIB_MAX: u32 = 64 * 1024;
/// Bytes of one stored form.
pub const STORED_BYTES_MAX: usize = 1024;

/// Bytes of a digest or a key: shorter ones are found by trying.
const DIGEST_BYTES_MIN: usize = 16;
const DIGEST_BYTES_MAX: usize = 64;
/// Bytes of a salt. (Argon2 itself wants 8 at least.)
const SALT_BYTES_MAX: usize = 512;
const ARGON2_SALT_BYTES_MIN: usize = 8;
const ARGON2_LANES_MAX: u32 = 64;
/// Characters of the salt of `$5$` and `$6$`, and of `$1$`.
const SHA_CRYPT_SALT_MAX: usize = 16;
const MD5_CRYPT_SALT_MAX: usize = 8;
/// Rounds of `$5$` and `$6$` that do not say how many.
const SHA_CRYPT_ROUNDS: u32 = 5000;
const SHA_CRYPT_ROUNDS_MIN: u32 = 1000;
/// The one form of `{PBKDF2_SHA256}`: rounds, salt and key, in base64.
const PBKDF2_BINARY_SALT_BYTES: usize = 64;
const PBKDF2_BINARY_KEY_BYTES: usize = 256;
/// Bytes of password for which the work is taken when a form is to be stored.
const USUAL_PASSWORD_BYTES: usize = 64;

/// Processor time that checking a password takes, estimated in advance: microseconds of a processor of the usual kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work(u64);

impl Work {
    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// Microseconds.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Milliseconds, rounded up.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The same so many times.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }

    const fn nanos(nanos: u64) -> Self {
        Self(nanos.div_ceil(1000))
    }

    /// Passes over memory, as of Argon2.
    pub(super) const fn passes(memory_kib: u32, passes: u32) -> Self {
        Self::nanos(memory_kib as u64 * passes as u64 * 600)
    }
}

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// MD5, for digests only.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384, for digests only.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    const fn bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// A stored password that a password can be checked with.
#[derive(Clone, Debug)]
pub enum StoredPassword {
    /// In clear text, as older data may have it.
    Clear(Password),
    /// `{MD5}`, `{SHA}` ... and with a salt behind the password `{SMD5}`, `{SSHA}` ...
    Digest {
        /// Which one.
        hash: Hash,
        /// Of password and salt.
        digest: Vec<u8>,
        /// Empty for none.
        salt: Vec<u8>,
    },
    /// `{PBKDF2...}` (RFC 8018 §5.2).
    Pbkdf2 {
        /// The hash function of its HMAC: SHA-1, SHA-256 or SHA-512.
        hash: Hash,
        /// Iterations.
        rounds: u32,
        /// The salt.
        salt: Vec<u8>,
        /// The first block of the key at most: more of it proves nothing more.
        key: Vec<u8>,
    },
    /// `{ARGON2}` (RFC 9106).
    Argon2 {
        /// Argon2d, Argon2i or Argon2id.
        algorithm: Algorithm,
        /// 0x10 or 0x13.
        version: Version,
        /// Memory, passes, lanes, bytes of the hash.
        params: Params,
        /// The salt.
        salt: Vec<u8>,
        /// The hash.
        hash: Vec<u8>,
    },
    /// `{BCRYPT}`, and `{CRYPT}` with `$2a$`, `$2b$` or `$2y$`.
    Bcrypt {
        /// The whole hash.
        text: String,
        /// The binary logarithm of its rounds.
        cost: u32,
    },
    /// `{CRYPT}` with `$5$` or `$6$`.
    ShaCrypt {
        /// SHA-256 or SHA-512.
        hash: Hash,
        /// Rounds.
        rounds: u32,
        /// The salt.
        salt: String,
        /// As the text has it.
        digest: String,
    },
    /// `{CRYPT}` with `$1$`.
    Md5Crypt {
        /// The salt.
        salt: String,
        /// As the text has it.
        digest: String,
    },
    /// `{CRYPT}` with the two characters of salt and eleven of the hash that DES makes.
    DesCrypt {
        /// The salt.
        salt: [u8; 2],
        /// As the text has it.
        digest: String,
    },
    /// `{CRYPT}` with `$y$`.
    Yescrypt {
        /// N, the number of blocks.
        blocks: u64,
        /// r, the size of a block in 128 bytes.
        block_size: u32,
        /// The salt.
        salt: Vec<u8>,
        /// The hash.
        hash: Vec<u8>,
    },
}

/// The form that a scheme's hashes have.
#[derive(Clone, Copy)]
enum Form {
    Argon2,
    Bcrypt,
    Crypt,
    Pbkdf2(Hash),
    /// Rounds, salt and key as bytes.
    Pbkdf2Binary,
    Digest(Hash),
    Salted(Hash),
}

const SCHEMES: &[(&str, Form)] = &[
    ("ARGON2", Form::Argon2),
    ("ARGON2I", Form::Argon2),
    ("ARGON2ID", Form::Argon2),
    ("BCRYPT", Form::Bcrypt),
    ("CRYPT", Form::Crypt),
    ("MD5", Form::Digest(Hash::Md5)),
    ("PBKDF2", Form::Pbkdf2(Hash::Sha1)),
    ("PBKDF2-SHA1", Form::Pbkdf2(Hash::Sha1)),
    ("PBKDF2-SHA256", Form::Pbkdf2(Hash::Sha256)),
    ("PBKDF2-SHA512", Form::Pbkdf2(Hash::Sha512)),
    ("PBKDF2_SHA256", Form::Pbkdf2Binary),
    ("SHA", Form::Digest(Hash::Sha1)),
    ("SHA256", Form::Digest(Hash::Sha256)),
    ("SHA384", Form::Digest(Hash::Sha384)),
    ("SHA512", Form::Digest(Hash::Sha512)),
    ("SMD5", Form::Salted(Hash::Md5)),
    ("SSHA", Form::Salted(Hash::Sha1)),
    ("SSHA256", Form::Salted(Hash::Sha256)),
    ("SSHA384", Form::Salted(Hash::Sha384)),
    ("SSHA512", Form::Salted(Hash::Sha512)),
];

/// The scheme that a value begins with, and what follows it (RFC 3112 §2: letters, digits, `-`, `_`, `/` and `.` in
/// braces). `None` for a password in clear text.
#[must_use]
pub fn scheme_of(value: &[u8]) -> Option<(&str, &[u8])> {
    let is_of_scheme =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/' | b'.');
    let rest = value.strip_prefix(b"{")?;
    let end = rest.iter().position(|byte| !is_of_scheme(byte))?;
    let (scheme, rest) = rest.split_at_checked(end).filter(|_| end > 0)?;
    let rest = rest.strip_prefix(b"}")?;
    Some((std::str::from_utf8(scheme).ok()?, rest))
}

impl StoredPassword {
    /// Parses a value of userPassword.
    ///
    /// # Errors
    /// Why no password can match it here, with the scheme but without anything of the hash.
    pub fn parse(value: &[u8]) -> Result<Self, PasswordError> {
        let Some((scheme, rest)) = scheme_of(value) else {
            return Ok(Self::Clear(Password::new(value.to_vec())));
        };
        let known = SCHEMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(scheme));
        let Some((name, form)) = known else {
            return Err(PasswordError::unknown_scheme(scheme));
        };
        if value.len() > STORED_BYTES_MAX {
            return Err(PasswordError::TooLong { scheme: name });
        }
        let malformed = PasswordError::Malformed { scheme: name };
        let rest = std::str::from_utf8(rest).map_err(|_| malformed.clone())?;
        let parsed = match *form {
            Form::Argon2 => argon2(rest),
            Form::Bcrypt => bcrypt(rest),
            Form::Crypt => return of_crypt(rest)?.affordable(name),
            Form::Pbkdf2(hash) => pbkdf2(rest, hash),
            Form::Pbkdf2Binary => pbkdf2_binary(rest),
            Form::Digest(hash) => digest(rest, hash).filter(|parsed| !parsed.is_salted()),
            Form::Salted(hash) => digest(rest, hash).filter(Self::is_salted),
        };
        parsed.ok_or(malformed)?.affordable(name)
    }

    fn is_salted(&self) -> bool {
        matches!(self, Self::Digest { salt, .. } if !salt.is_empty())
    }

    fn affordable(self, scheme: &'static str) -> Result<Self, PasswordError> {
        if self.work(USUAL_PASSWORD_BYTES) > VALUE_WORK_MAX
            || self.memory_kib() > VALUE_MEMORY_KIB_MAX.into()
        {
            return Err(PasswordError::TooCostly { scheme });
        }
        Ok(self)
    }

    /// The work of checking a password of so many bytes.
    #[must_use]
    pub fn work(&self, password_bytes: usize) -> Work {
        let password_bytes = password_bytes as u64;
        match self {
            Self::Clear(_) | Self::Digest { .. } => Work::nanos(2000 + 20 * password_bytes),
            Self::Pbkdf2 { hash, rounds, .. } => {
                let round = if *hash == Hash::Sha512 { 800 } else { 500 };
                Work::nanos(u64::from(*rounds) * round)
            }
            Self::Argon2 { params, .. } => Work::passes(params.m_cost(), params.t_cost()),
            Self::Bcrypt { cost, .. } => Work::nanos(60_000 << cost.min(&31)),
            Self::ShaCrypt { hash, rounds, .. } => {
                let round = if *hash == Hash::Sha512 { 900 } else { 700 };
                Work::nanos(u64::from(*rounds) * (round + 6 * password_bytes))
            }
            Self::Md5Crypt { .. } => Work::nanos(1000 * (400 + 4 * password_bytes)),
            Self::DesCrypt { .. } => Work::nanos(300_000),
            Self::Yescrypt {
                blocks, block_size, ..
            } => Work::nanos(blocks.saturating_mul(u64::from(*block_size) * 128)),
        }
    }

    /// The memory that checking a password takes, in KiB.
    #[must_use]
    pub fn memory_kib(&self) -> u64 {
        match self {
            Self::Argon2 { params, .. } => params.m_cost().into(),
            Self::Yescrypt {
                blocks, block_size, ..
            } => blocks.saturating_mul(u64::from(*block_size)) / 8,
            _ => 8,
        }
    }

    /// Whether checking a password takes some microseconds.
    pub(super) fn is_quick(&self) -> bool {
        matches!(self, Self::Clear(_) | Self::Digest { .. })
    }

    /// Whether this is the stored form of `password`. Takes [`work`](Self::work) of time and
    /// [`memory_kib`](Self::memory_kib) of memory.
    #[must_use]
    pub fn matches(&self, password: &[u8]) -> bool {
        match self {
            Self::Clear(clear) => clear.as_slice().ct_eq(password).into(),
            Self::Digest { hash, digest, salt } => {
                salted_digest(*hash, password, salt).ct_eq(digest).into()
            }
            Self::Pbkdf2 {
                hash,
                rounds,
                salt,
                key,
            } => {
                let mut actual = vec![0; key.len()];
                match hash {
                    Hash::Sha1 => {
                        pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, *rounds, &mut actual);
                    }
                    Hash::Sha256 => {
                        pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, *rounds, &mut actual);
                    }
                    _ => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, *rounds, &mut actual),
                }
                actual.ct_eq(key).into()
            }
            Self::Argon2 {
                algorithm,
                version,
                params,
                salt,
                hash,
            } => {
                let mut actual = vec![0; hash.len()];
                Argon2::new(*algorithm, *version, params.clone())
                    .hash_password_into(password, salt, &mut actual)
                    .is_ok_and(|()| actual.ct_eq(hash).into())
            }
            Self::Bcrypt { text, .. } => ::bcrypt::verify(password, text).unwrap_or(false),
            Self::ShaCrypt {
                hash,
                rounds,
                salt,
                digest,
            } => crypt::sha::hash(*hash == Hash::Sha512, *rounds, salt, password)
                .is_some_and(|actual| actual.as_bytes().ct_eq(digest.as_bytes()).into()),
            Self::Md5Crypt { salt, digest } => {
                let actual = crypt::md5::hash(password, salt.as_bytes());
                actual.as_bytes().ct_eq(digest.as_bytes()).into()
            }
            Self::DesCrypt { salt, digest } => {
                let actual = crypt::des::hash(password, *salt);
                actual.as_bytes().ct_eq(digest.as_bytes()).into()
            }
            Self::Yescrypt {
                blocks,
                block_size,
                salt,
                hash,
            } => {
                let mut actual = [0; 32];
                yescrypt::Params::new(yescrypt::Mode::Rw, *blocks, *block_size, 1)
                    .and_then(|params| yescrypt::yescrypt(password, salt, &params, &mut actual))
                    .is_ok_and(|()| actual.ct_eq(hash).into())
            }
        }
    }
}

/// Base64; some tools leave the padding out.
fn decode(text: &str) -> Option<Vec<u8>> {
    let unpadded = text
        .strip_suffix("==")
        .or_else(|| text.strip_suffix('='))
        .unwrap_or(text);
    Base64Unpadded::decode_vec(unpadded).ok()
}

fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// Base64 of a digest, followed by the salt when there is one.
fn digest(text: &str, hash: Hash) -> Option<StoredPassword> {
    let mut digest = decode(text)?;
    let salt = (digest.len() >= hash.bytes()).then(|| digest.split_off(hash.bytes()))?;
    Some(StoredPassword::Digest { hash, digest, salt })
}

/// `rounds$salt$key`: salt and key in base64, of which OpenLDAP writes `.` for `+` and no padding.
fn pbkdf2(text: &str, hash: Hash) -> Option<StoredPassword> {
    let mut fields = text.split('$');
    let rounds = number(fields.next()?)?;
    let mut decoded = || decode(&fields.next()?.replace('.', "+"));
    let (salt, mut key) = (decoded()?, decoded()?);
    if fields.next().is_some()
        || rounds == 0
        || salt.len() > SALT_BYTES_MAX
        || !(DIGEST_BYTES_MIN..=PBKDF2_BINARY_KEY_BYTES).contains(&key.len())
    {
        return None;
    }
    key.truncate(hash.bytes());
    Some(StoredPassword::Pbkdf2 {
        hash,
        rounds,
        salt,
        key,
    })
}

/// Base64 of 4 bytes of rounds, 64 of salt and 256 of the key, as 389 Directory Server wrote it before
/// `{PBKDF2-SHA256}`.
fn pbkdf2_binary(text: &str) -> Option<StoredPassword> {
    let bytes = decode(text)?;
    let (rounds, rest) = bytes.split_first_chunk::<4>()?;
    let (salt, key) = rest.split_at_checked(PBKDF2_BINARY_SALT_BYTES)?;
    let rounds = u32::from_be_bytes(*rounds);
    let is_whole = key.len() == PBKDF2_BINARY_KEY_BYTES && rounds > 0;
    is_whole.then(|| StoredPassword::Pbkdf2 {
        hash: Hash::Sha256,
        rounds,
        salt: salt.to_vec(),
        key: key.iter().take(Hash::Sha256.bytes()).copied().collect(),
    })
}

/// `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`, the PHC string format.
fn argon2(text: &str) -> Option<StoredPassword> {
    let mut fields = text.strip_prefix('$')?.split('$');
    let algorithm = Algorithm::new(fields.next()?).ok()?;
    let mut field = fields.next()?;
    let mut version = Version::V0x10;
    if let Some(given) = field.strip_prefix("v=") {
        version = Version::try_from(number(given)?).ok()?;
        field = fields.next()?;
    }
    let (mut memory_kib, mut passes, mut lanes) = (None, None, None);
    for parameter in field.split(',') {
        let (name, value) = parameter.split_once('=')?;
        let slot = match name {
            "m" => &mut memory_kib,
            "t" => &mut passes,
            "p" => &mut lanes,
            _ => return None,
        };
        *slot = Some(number(value)?);
    }
    let lanes = lanes.filter(|lanes| *lanes <= ARGON2_LANES_MAX)?;
    let (salt, hash) = (decode(fields.next()?)?, decode(fields.next()?)?);
    if fields.next().is_some()
        || !(ARGON2_SALT_BYTES_MIN..=SALT_BYTES_MAX).contains(&salt.len())
        || !(DIGEST_BYTES_MIN..=DIGEST_BYTES_MAX).contains(&hash.len())
    {
        return None;
    }
    let params = Params::new(memory_kib?, passes?, lanes, Some(hash.len())).ok()?;
    Some(StoredPassword::Argon2 {
        algorithm,
        version,
        params,
        salt,
        hash,
    })
}

/// `$2b$12$` and 53 characters. (`$2x$` marks the hashes of an implementation with a fault.)
fn bcrypt(text: &str) -> Option<StoredPassword> {
    let is_known = ["$2a$", "$2b$", "$2y$"]
        .iter()
        .any(|prefix| text.starts_with(prefix));
    let parts: ::bcrypt::HashParts = text.parse().ok().filter(|_| is_known)?;
    let cost = parts.get_cost();
    (4..=31).contains(&cost).then(|| StoredPassword::Bcrypt {
        text: text.to_owned(),
        cost,
    })
}

/// `crypt(3)`.
fn of_crypt(text: &str) -> Result<StoredPassword, PasswordError> {
    let parsed = if text.starts_with("$2") {
        bcrypt(text)
    } else if let Some(rest) = text.strip_prefix("$1$") {
        md5_crypt(rest)
    } else if let Some(rest) = text.strip_prefix("$5$") {
        sha_crypt(rest, Hash::Sha256)
    } else if let Some(rest) = text.strip_prefix("$6$") {
        sha_crypt(rest, Hash::Sha512)
    } else if let Some(rest) = text.strip_prefix("$y$") {
        yescrypt_form(rest)
    } else {
        des_crypt(text)
    };
    parsed.ok_or(PasswordError::UnknownCrypt)
}

/// `rounds=5000$salt$digest`, the first part of which may be missing.
fn sha_crypt(text: &str, hash: Hash) -> Option<StoredPassword> {
    let (rounds, rest) = match text.strip_prefix("rounds=") {
        Some(rest) => {
            let (rounds, rest) = rest.split_once('$')?;
            (number(rounds)?, rest)
        }
        None => (SHA_CRYPT_ROUNDS, text),
    };
    let (salt, digest) = rest.split_once('$')?;
    let digest_bytes = if hash == Hash::Sha512 { 86 } else { 43 };
    let is_whole = rounds >= SHA_CRYPT_ROUNDS_MIN
        && salt.len() <= SHA_CRYPT_SALT_MAX
        && crypt::is_text(digest, digest_bytes);
    is_whole.then(|| StoredPassword::ShaCrypt {
        hash,
        rounds,
        salt: salt.to_owned(),
        digest: digest.to_owned(),
    })
}

/// `salt$digest`.
fn md5_crypt(text: &str) -> Option<StoredPassword> {
    let (salt, digest) = text.split_once('$')?;
    let is_whole = salt.len() <= MD5_CRYPT_SALT_MAX && crypt::is_text(digest, 22);
    is_whole.then(|| StoredPassword::Md5Crypt {
        salt: salt.to_owned(),
        digest: digest.to_owned(),
    })
}

/// Two characters of salt, eleven of the hash.
fn des_crypt(text: &str) -> Option<StoredPassword> {
    let (salt, digest) = text.split_at_checked(2)?;
    let is_whole = crypt::is_text(salt, 2) && crypt::is_text(digest, 11);
    let salt = <[u8; 2]>::try_from(salt.as_bytes()).ok();
    is_whole.then_some(())?;
    Some(StoredPassword::DesCrypt {
        salt: salt?,
        digest: digest.to_owned(),
    })
}

/// `j9T$salt$hash`: the flavour that `crypt` makes (j), the logarithm of N and r. What it never makes, more parameters,
/// is no form of it.
fn yescrypt_form(text: &str) -> Option<StoredPassword> {
    let mut fields = text.split('$');
    let &[b'j', blocks, block_size] = fields.next()?.as_bytes() else {
        return None;
    };
    // Each is one digit at least 1; larger ones take more digits, and more memory than there is for them.
    let value = |digit| {
        let value = crypt::value(digit)?;
        (value < 48).then_some(value + 1)
    };
    let (blocks, block_size) = (1 << value(blocks)?, value(block_size)?);
    let (salt, hash) = (fields.next()?, fields.next()?);
    let salt = Base64ShaCrypt::decode_vec(salt).ok()?;
    let hash = Base64ShaCrypt::decode_vec(hash).ok()?;
    let is_whole = fields.next().is_none() && salt.len() <= DIGEST_BYTES_MAX && hash.len() == 32;
    yescrypt::Params::new(yescrypt::Mode::Rw, blocks, block_size, 1).ok()?;
    is_whole.then_some(StoredPassword::Yescrypt {
        blocks,
        block_size,
        salt,
        hash,
    })
}

fn salted_digest(hash: Hash, password: &[u8], salt: &[u8]) -> Vec<u8> {
    fn digest<D: Digest>(password: &[u8], salt: &[u8]) -> Vec<u8> {
        D::new()
            .chain_update(password)
            .chain_update(salt)
            .finalize()
            .to_vec()
    }
    match hash {
        Hash::Md5 => digest::<md5::Md5>(password, salt),
        Hash::Sha1 => digest::<Sha1>(password, salt),
        Hash::Sha256 => digest::<Sha256>(password, salt),
        Hash::Sha384 => digest::<Sha384>(password, salt),
        Hash::Sha512 => digest::<Sha512>(password, salt),
    }
}

#[cfg(test)]
mod tests;
