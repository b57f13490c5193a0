//! Verifiers for SCRAM (RFC 5802 §3, RFC 7677), as `authPassword` keeps them (RFC 5803): what a server compares with
//! when the password itself never comes. The client does the iterations, never the server.

use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;
use unicode_normalization::UnicodeNormalization;

use super::{PASSWORD_BYTES_MAX, Password, Work, random};

/// Iterations of new verifiers: what a client's processor does in some ten milliseconds at each bind.
pub(crate) const ITERATIONS: u32 = 16_384;
/// Iterations that a stored verifier may ask its client for (RFC 7677 §4 has the least).
const ITERATIONS_MIN: u32 = 4096;
const ITERATIONS_MAX: u32 = 10_000_000;
/// Bytes of the salt of a new verifier.
pub(crate) const SALT_BYTES: usize = 16;
/// Bytes of the salt of a stored one.
const SALT_BYTES_MAX: usize = 256;
/// Bytes of a value of authPassword that is read.
const VALUE_BYTES_MAX: usize = 1024;

/// The hash functions that SCRAM is spoken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScramHash {
    /// SHA-256 (RFC 7677).
    Sha256,
    /// SHA-512.
    Sha512,
}

/// What a password is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScramVerifier {
    pub(crate) hash: ScramHash,
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl ScramHash {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// The scheme's name in authPassword.
    pub(crate) const fn scheme(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    pub(crate) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    pub(crate) fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        fn of<M: Mac + KeyInit>(key: &[u8], bytes: &[u8]) -> Vec<u8> {
            let mac = <M as KeyInit>::new_from_slice(key);
            let mut mac = mac.expect("HMAC takes keys of any length");
            mac.update(bytes);
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Self::Sha256 => of::<Hmac<Sha256>>(key, bytes),
            Self::Sha512 => of::<Hmac<Sha512>>(key, bytes),
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The password, stretched: what takes long.
    fn stretched(self, password: &[u8], salt: &[u8], iterations: u32) -> Password {
        let mut stretched = Password::new(vec![0; self.bytes()]);
        match self {
            Self::Sha256 => {
                pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut stretched)
            }
            Self::Sha512 => {
                pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut stretched)
            }
        }
        stretched
    }
}

impl ScramVerifier {
    /// Makes one of a password, with a salt of its own. `None` for what is no text: a client could not say it.
    pub(crate) fn new(hash: ScramHash, password: &[u8]) -> Option<Self> {
        let mut salt = [0; SALT_BYTES];
        random(&mut salt);
        Self::with(hash, password, &salt, ITERATIONS)
    }

    pub(crate) fn with(
        hash: ScramHash,
        password: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> Option<Self> {
        let password = prepared(password)?;
        let stretched = hash.stretched(&password, salt, iterations);
        let client_key = Password::new(hash.hmac(&stretched, b"Client Key"));
        Some(Self {
            hash,
            iterations,
            salt: salt.to_vec(),
            stored_key: hash.digest(&client_key),
            server_key: hash.hmac(&stretched, b"Server Key"),
        })
    }

    /// One that no password matches.
    pub(crate) fn of_nobody(hash: ScramHash, salt: Vec<u8>) -> Self {
        let mut keys = [vec![0; hash.bytes()], vec![0; hash.bytes()]];
        keys.iter_mut().for_each(|key| random(key));
        let [stored_key, server_key] = keys;
        Self {
            hash,
            iterations: ITERATIONS,
            salt,
            stored_key,
            server_key,
        }
    }

    /// Reads a value of authPassword; `None` for another scheme, and for what is not to be used.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value)
            .ok()
            .filter(|text| text.len() <= VALUE_BYTES_MAX)?;
        let mut parts = text
            .trim_matches(' ')
            .split('$')
            .map(|part| part.trim_matches(' '));
        let (scheme, info, keys) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let hash = ScramHash::ALL
            .into_iter()
            .find(|hash| hash.scheme() == scheme)?;
        let (iterations, salt) = info.split_once(':')?;
        let is_number = iterations.bytes().all(|byte| byte.is_ascii_digit());
        let iterations = iterations.parse().ok().filter(|_| is_number)?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let salt = Base64::decode_vec(salt).ok()?;
        let stored_key = Base64::decode_vec(stored_key).ok()?;
        let server_key = Base64::decode_vec(server_key).ok()?;
        let is_usable = (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations)
            && (1..=SALT_BYTES_MAX).contains(&salt.len())
            && stored_key.len() == hash.bytes()
            && server_key.len() == hash.bytes();
        is_usable.then_some(Self {
            hash,
            iterations,
            salt,
            stored_key,
            server_key,
        })
    }

    /// As a value of authPassword (RFC 5803 §2).
    pub(crate) fn to_value(&self) -> Vec<u8> {
        let encode = |bytes: &[u8]| Base64::encode_string(bytes);
        let value = format!(
            "{}${}:{}${}:{}",
            self.hash.scheme(),
            self.iterations,
            encode(&self.salt),
            encode(&self.stored_key),
            encode(&self.server_key)
        );
        value.into_bytes()
    }

    /// Whether a client that sent this proof for an exchange knows the password (RFC 5802 §3).
    pub(crate) fn proves(&self, exchange: &[u8], proof: &[u8]) -> bool {
        let signature = self.hash.hmac(&self.stored_key, exchange);
        if proof.len() != signature.len() {
            return false;
        }
        let client_key = proof.iter().zip(&signature).map(|(proof, own)| proof ^ own);
        let client_key = Password::new(client_key.collect());
        self.hash.digest(&client_key).ct_eq(&self.stored_key).into()
    }

    /// What shows the client that the server knows its verifier.
    pub(crate) fn signature(&self, exchange: &[u8]) -> Vec<u8> {
        self.hash.hmac(&self.server_key, exchange)
    }
}

/// The work of making one.
pub(crate) const fn verifier_work() -> Work {
    Work::from_millis(ITERATIONS as u64 / 1500)
}

/// A password as clients prepare it (SASLprep, RFC 4013 §2): other spaces are spaces, what is not seen is left out, and
/// characters of one look are one (NFKC). What may not be in a prepared text stays in, and matches itself.
fn prepared(password: &[u8]) -> Option<Password> {
    if password.is_ascii() || password.len() > PASSWORD_BYTES_MAX {
        return Some(Password::new(password.to_vec()));
    }
    let text = std::str::from_utf8(password).ok()?;
    let mapped = text.chars().filter(|character| !is_unseen(*character));
    let mapped = mapped.map(|character| if is_space(character) { ' ' } else { character });
    let mut prepared = Password::new(Vec::with_capacity(2 * password.len()));
    for character in mapped.nfkc() {
        prepared.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(prepared)
}

/// Characters that are mapped to nothing (RFC 3454, table B.1).
const fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{1806}' | '\u{180b}'..='\u{180d}' | '\u{200b}'..='\u{200d}' | '\u{2060}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
    )
}

/// Spaces but that of ASCII (RFC 3454, table C.1.2).
const fn is_space(character: char) -> bool {
    matches!(
        character,
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677 §3.
    #[test]
    fn the_example_of_the_standard_is_verified() {
        let salt = Base64::decode_vec("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = ScramVerifier::with(ScramHash::Sha256, b"pencil", &salt, 4096).unwrap();
        let exchange = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
             r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
             c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = Base64::decode_vec("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        assert!(verifier.proves(exchange.as_bytes(), &proof));
        let signature = Base64::encode_string(&verifier.signature(exchange.as_bytes()));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        for at in 0..proof.len() {
            let mut other = proof.clone();
            other[at] ^= 1;
            assert!(!verifier.proves(exchange.as_bytes(), &other));
        }
        assert!(!verifier.proves(exchange.as_bytes(), &proof[1..]));
        assert!(!verifier.proves(&exchange.as_bytes()[1..], &proof));
    }

    #[test]
    fn values_are_those_of_rfc_5803() {
        for hash in ScramHash::ALL {
            let verifier = ScramVerifier::with(hash, b"secret", b"salt", 4096).unwrap();
            let value = verifier.to_value();
            assert_eq!(ScramVerifier::parse(&value), Some(verifier));
            let text = String::from_utf8(value).unwrap();
            let spaced = format!(" {} ", text.replace('$', " $ "));
            assert!(ScramVerifier::parse(spaced.as_bytes()).is_some());
            for (before, after) in [
                ("$4096:", "$4095:"),
                ("$4096:", "$10000001:"),
                ("$4096:", "$+4096:"),
                ("$4096:", "$4096$"),
                ("SCRAM-SHA-", "SCRAM-SHA-2"),
                (":c2FsdA==", ":"),
            ] {
                let wrong = text.replacen(before, after, 1);
                assert_ne!(wrong, text);
                assert_eq!(ScramVerifier::parse(wrong.as_bytes()), None, "{wrong}");
            }
        }
        assert_eq!(ScramVerifier::parse(&[b'x'; VALUE_BYTES_MAX + 1]), None);
    }

    #[test]
    fn passwords_are_prepared() {
        let same = |one: &str, other: &str| prepared(one.as_bytes()) == prepared(other.as_bytes());
        assert!(same("I\u{ad}X", "IX"));
        assert!(same("\u{aa}", "a"));
        assert!(same("\u{2168}", "IX"));
        assert!(same("a\u{a0}b", "a b"));
        assert!(!same("USER", "user"));
        assert_eq!(prepared(b"\xff"), None);
        assert_ne!(
            ScramVerifier::new(ScramHash::Sha256, b"x"),
            ScramVerifier::new(ScramHash::Sha256, b"x")
        );
    }

    #[test]
    fn nothing_proves_to_be_nobody() {
        let nobody = ScramVerifier::of_nobody(ScramHash::Sha512, vec![1; SALT_BYTES]);
        assert!(!nobody.proves(b"x", &[0; 64]));
        assert!(ScramVerifier::parse(&nobody.to_value()).is_some());
    }
}
