//! The stored forms of a password and how each is checked.

use argon2::{Algorithm, Argon2, Params, Version};
use base64ct::{Base64, Base64Unpadded, Encoding};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512, digest::Digest};
use subtle::ConstantTimeEq;

/// Memory that verifying a stored Argon2 hash may take, in KiB (what RFC 9106 §4 recommends where memory is scarce).
const ARGON2_MEMORY_KIB_MAX: u32 = 64 * 1024;
/// Memory in KiB times passes that verifying a stored Argon2 hash may take: about half a second.
const ARGON2_WORK_KIB_MAX: u32 = 8 * ARGON2_MEMORY_KIB_MAX;
/// Rounds of a stored PBKDF2 or SHA-crypt hash.
const ROUNDS_MAX: u32 = 2_000_000;
/// Cost of a stored bcrypt hash, a power of two.
const BCRYPT_COST_MAX: u32 = 16;
/// The longest stored value that is looked at, in bytes.
const STORED_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Argon2,
    Bcrypt,
    Crypt,
    Pbkdf2(Prf),
    /// A bare digest, `salted` when bytes follow it.
    Digest {
        of: Hash,
        salted: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prf {
    Sha1,
    Sha256,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Md5,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

const SCHEMES: &[(&str, Scheme)] = {
    const fn digest(of: Hash, salted: bool) -> Scheme {
        Scheme::Digest { of, salted }
    }
    &[
        ("ARGON2", Scheme::Argon2),
        ("ARGON2I", Scheme::Argon2),
        ("ARGON2ID", Scheme::Argon2),
        ("BCRYPT", Scheme::Bcrypt),
        ("CRYPT", Scheme::Crypt),
        ("MD5", digest(Hash::Md5, false)),
        ("PBKDF2", Scheme::Pbkdf2(Prf::Sha1)),
        ("PBKDF2-SHA1", Scheme::Pbkdf2(Prf::Sha1)),
        ("PBKDF2-SHA256", Scheme::Pbkdf2(Prf::Sha256)),
        ("PBKDF2-SHA512", Scheme::Pbkdf2(Prf::Sha512)),
        ("SHA", digest(Hash::Sha1, false)),
        ("SHA256", digest(Hash::Sha256, false)),
        ("SHA384", digest(Hash::Sha384, false)),
        ("SHA512", digest(Hash::Sha512, false)),
        ("SMD5", digest(Hash::Md5, true)),
        ("SSHA", digest(Hash::Sha1, true)),
        ("SSHA256", digest(Hash::Sha256, true)),
        ("SSHA384", digest(Hash::Sha384, true)),
        ("SSHA512", digest(Hash::Sha512, true)),
    ]
};

/// The scheme in braces and what follows it; `None` for a cleartext value.
pub(super) fn split(value: &[u8]) -> Option<(Scheme, &str)> {
    let rest = value.strip_prefix(b"{")?;
    let end = rest.iter().position(|&byte| byte == b'}')?;
    let (_, scheme) = SCHEMES
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(&rest[..end]))?;
    Some((*scheme, std::str::from_utf8(&rest[end + 1..]).ok()?))
}

/// Whether `password` is the one behind one stored value.
pub(super) fn matches(password: &[u8], stored: &[u8]) -> bool {
    if stored.len() > STORED_BYTES_MAX {
        return false;
    }
    let Some((scheme, hash)) = split(stored) else {
        // A value in braces that no scheme claims is never a password to compare with.
        return !stored.starts_with(b"{") && bool::from(stored.ct_eq(password));
    };
    match scheme {
        Scheme::Argon2 => argon2_matches(password, hash),
        Scheme::Bcrypt => bcrypt_matches(password, hash),
        Scheme::Crypt => crypt_matches(password, hash),
        Scheme::Pbkdf2(prf) => pbkdf2_matches(password, hash, prf),
        Scheme::Digest { of, salted } => digest_matches(password, hash, of, salted),
    }
    .unwrap_or(false)
}

/// Whether checking a password against a stored value takes a digest of a few hundred bytes at most.
pub(super) fn is_quick(stored: &[u8]) -> bool {
    stored.len() > STORED_BYTES_MAX
        || matches!(split(stored), None | Some((Scheme::Digest { .. }, _)))
}

/// `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`, the PHC string format.
fn argon2_matches(password: &[u8], stored: &str) -> Option<bool> {
    let mut fields = stored.strip_prefix('$')?.split('$');
    let algorithm = Algorithm::new(fields.next()?).ok()?;
    let mut field = fields.next()?;
    let mut version = Version::V0x10;
    if let Some(number) = field.strip_prefix("v=") {
        version = Version::try_from(number.parse::<u32>().ok()?).ok()?;
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
        *slot = Some(value.parse::<u32>().ok()?);
    }
    let (memory_kib, passes, lanes) = (memory_kib?, passes?, lanes?);
    let salt = Base64Unpadded::decode_vec(fields.next()?).ok()?;
    let expected = Base64Unpadded::decode_vec(fields.next()?).ok()?;
    if fields.next().is_some()
        || memory_kib > ARGON2_MEMORY_KIB_MAX
        || memory_kib.checked_mul(passes)? > ARGON2_WORK_KIB_MAX
        || lanes > 64
    {
        return None;
    }
    let params = Params::new(memory_kib, passes, lanes, Some(expected.len())).ok()?;
    let mut actual = vec![0; expected.len()];
    Argon2::new(algorithm, version, params)
        .hash_password_into(password, &salt, &mut actual)
        .ok()?;
    Some(actual.ct_eq(&expected).into())
}

/// `$2b$12$` and 53 characters.
fn bcrypt_matches(password: &[u8], stored: &str) -> Option<bool> {
    let cost: u32 = stored.strip_prefix("$2")?.split('$').nth(1)?.parse().ok()?;
    if cost > BCRYPT_COST_MAX {
        return None;
    }
    bcrypt::verify(password, stored).ok()
}

/// `crypt(3)`: `$5$` and `$6$` (SHA-crypt), `$2?$` (bcrypt).
fn crypt_matches(password: &[u8], stored: &str) -> Option<bool> {
    use sha_crypt::PasswordVerifier;
    if stored.starts_with("$2") {
        return bcrypt_matches(password, stored);
    }
    let fields = stored
        .strip_prefix("$5$")
        .or_else(|| stored.strip_prefix("$6$"))?;
    if let Some(rounds) = fields.strip_prefix("rounds=")
        && rounds.split('$').next()?.parse::<u32>().ok()? > ROUNDS_MAX
    {
        return None;
    }
    Some(
        sha_crypt::ShaCrypt::default()
            .verify_password(password, stored)
            .is_ok(),
    )
}

/// `rounds$salt$key`, both in the alphabet of base64 with `.` for `+` and without padding.
fn pbkdf2_matches(password: &[u8], stored: &str, prf: Prf) -> Option<bool> {
    let mut fields = stored.split('$');
    let rounds: u32 = fields.next()?.parse().ok()?;
    let salt = decode_adapted(fields.next()?)?;
    let expected = decode_adapted(fields.next()?)?;
    if fields.next().is_some()
        || rounds == 0
        || rounds > ROUNDS_MAX
        || expected.is_empty()
        || expected.len() > 64
    {
        return None;
    }
    let mut actual = vec![0; expected.len()];
    match prf {
        Prf::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, &salt, rounds, &mut actual),
        Prf::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, &salt, rounds, &mut actual),
        Prf::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, &salt, rounds, &mut actual),
    }
    Some(actual.ct_eq(&expected).into())
}

fn decode_adapted(text: &str) -> Option<Vec<u8>> {
    Base64Unpadded::decode_vec(&text.replace('.', "+")).ok()
}

/// Base64 of a digest, followed by the salt when there is one.
fn digest_matches(password: &[u8], stored: &str, of: Hash, salted: bool) -> Option<bool> {
    // Some tools leave the padding out.
    let stored = Base64Unpadded::decode_vec(stored.trim_end_matches('='))
        .or_else(|_| Base64::decode_vec(stored))
        .ok()?;
    let digest_bytes = match of {
        Hash::Md5 => 16,
        Hash::Sha1 => 20,
        Hash::Sha256 => 32,
        Hash::Sha384 => 48,
        Hash::Sha512 => 64,
    };
    let (expected, salt) = stored.split_at_checked(digest_bytes)?;
    if !salted && !salt.is_empty() {
        return None;
    }
    let actual = match of {
        Hash::Md5 => digest::<md5::Md5>(password, salt),
        Hash::Sha1 => digest::<Sha1>(password, salt),
        Hash::Sha256 => digest::<Sha256>(password, salt),
        Hash::Sha384 => digest::<Sha384>(password, salt),
        Hash::Sha512 => digest::<Sha512>(password, salt),
    };
    Some(actual.ct_eq(expected).into())
}

fn digest<D: Digest>(password: &[u8], salt: &[u8]) -> Vec<u8> {
    D::new()
        .chain_update(password)
        .chain_update(salt)
        .finalize()
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn accepts(password: &str, stored: &str) {
        assert!(matches(password.as_bytes(), stored.as_bytes()), "{stored}");
        assert!(
            !matches(format!("{password}!").as_bytes(), stored.as_bytes()),
            "{stored}"
        );
        assert!(split(stored.as_bytes()).is_some());
    }

    #[test]
    fn digests_with_and_without_salt() {
        accepts("secret", "{MD5}Xr4ilOzQ4PCOq3aQ0qbuaQ==");
        accepts("secret", "{SMD5}UsKZVoBPf0PRiv7t30XEqsjJysvMzc7P");
        accepts("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=");
        accepts("secret", "{SSHA}uHVurLPaTVPboZtsce8c8nZ6/jvIycrLzM3Ozw==");
        accepts(
            "secret",
            "{SHA256}K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=",
        );
        accepts(
            "secret",
            "{SSHA256}914Lnts+kpxwY4TsWm3QKe3pMtYh+0ju4DNi8qMy59LIycrLzM3Ozw==",
        );
        accepts(
            "secret",
            "{SHA384}WKd1ukESvjAFrkQHznV9iP2nHUBJe7gCbsrFTU4//HIyzo3jq1rLMK45dg/ufFPt",
        );
        accepts(
            "secret",
            "{SSHA384}KxE1jMKIlBkgab7Z8+XPFBrzAHT8BVhKA5JTL/mNbbMRI8XWUCBN84Bx4ak3ain0yMnKy8zNzs8=",
        );
        accepts(
            "secret",
            "{SHA512}vSsar3708Jvp9Szi2NWZZ02Bqp1qRCFpbcTZPdBhnWgs5WtNZKnvCXdhztmeD2cmW192CF5bDufKRpayrW/isg==",
        );
        accepts(
            "secret",
            "{SSHA512}EBgmXsi0bxpTaXAkRElsy4d8/SZueh18elMh23zUxB6IlWrBFyc+nkjrekPaEkIcL988kdfwRjirJspCl/ssUMjJysvMzc7P",
        );
        accepts("secret", "{ssha}uHVurLPaTVPboZtsce8c8nZ6/jvIycrLzM3Ozw");
    }

    #[test]
    fn pbkdf2() {
        accepts(
            "secret",
            "{PBKDF2}10000$yMnKy8zNzs/IycrLzM3Ozw$J3pC05yihR7IBNjn3Vay/RpizQs",
        );
        accepts(
            "secret",
            "{PBKDF2-SHA1}10000$yMnKy8zNzs/IycrLzM3Ozw$J3pC05yihR7IBNjn3Vay/RpizQs",
        );
        accepts(
            "secret",
            "{PBKDF2-SHA256}10000$yMnKy8zNzs/IycrLzM3Ozw$9wodRz7QEeHxrgshFtNkuQuGvj3mBT78xNyRer0H0PU",
        );
        accepts(
            "secret",
            "{PBKDF2-SHA512}10000$yMnKy8zNzs/IycrLzM3Ozw$t2fP.p1p94/9RYgUuZchWK5FlVAT.3z.dpc2BkT3Nt9QUmH3UT8JO7zKoDFBYgiA4IiRBvHwLfBCSZLArB3gmw",
        );
    }

    #[test]
    fn sha_crypt() {
        accepts(
            "Hello world!",
            "{CRYPT}$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
        );
        accepts(
            "Hello world!",
            "{CRYPT}$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
        );
        accepts(
            "Hello world!",
            "{CRYPT}$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.",
        );
        accepts(
            "geheim",
            "{crypt}$5$rounds=1234$abc$7h1J/fcyqri7IayU/D/S7C42nAqHE.GOJO4OAJc3Kw8",
        );
    }

    #[test]
    fn bcrypt() {
        accepts(
            "U*U",
            "{BCRYPT}$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
        );
        accepts(
            "U*U",
            "{CRYPT}$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
        );
        accepts(
            "secret",
            "{BCRYPT}$2b$06$abcdefghijklmnopqrstuuxLa0AkDDSrQ9VwNnETzOsObiucpMYgC",
        );
    }

    #[test]
    fn argon2_of_the_reference_implementation() {
        accepts(
            "password",
            "{ARGON2}$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
        );
    }

    #[test]
    fn a_stored_hash_cannot_ask_for_endless_work() {
        for stored in [
            "{ARGON2}$argon2id$v=19$m=4294967295,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27ig",
            "{ARGON2}$argon2id$v=19$m=65536,t=4294967295,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27ig",
            "{CRYPT}$6$rounds=999999999$saltstring$x",
            "{BCRYPT}$2b$31$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u",
            "{PBKDF2-SHA256}4294967295$c2FsdA$c2FsdA",
        ] {
            assert!(!matches(b"x", stored.as_bytes()), "{stored}");
        }
    }

    #[test]
    fn damaged_and_foreign_values_match_nothing() {
        for stored in [
            "{SSHA}",
            "{SSHA}!!!",
            "{CRYPT}",
            "{CRYPT}xx",
            "{KERBEROS}x",
            "{",
            "{}",
            "{ARGON2}",
            "{BCRYPT}$2b$",
            "{SHA}AAAA",
        ] {
            assert!(!matches(b"", stored.as_bytes()), "{stored}");
            assert!(!matches(b"x", stored.as_bytes()), "{stored}");
        }
        assert!(!matches(b"{KERBEROS}x", b"{KERBEROS}x"));
        assert!(matches(b"plain", b"plain"));
    }

    proptest::proptest! {
        #[test]
        fn any_stored_bytes_are_survived(stored in "\\{(ARGON2|BCRYPT|CRYPT|SSHA|PBKDF2-SHA256)\\}[ -~]{0,60}") {
            // The work limits keep even a well-formed one short; most are not.
            let _ = matches(b"x", stored.as_bytes());
        }
    }
}
