//! One-time passwords (RFC 4226, RFC 6238): what a token shows, from its key and a number, and which of them stands
//! behind a password.

use hmac::{Hmac, KeyInit, Mac};
use sapwood_directory::{Token, TokenHash};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;

/// The token one of whose passwords stands behind another password, the number of the former, and the length of the
/// latter.
pub(crate) fn redeemed<'t>(
    password: &[u8],
    tokens: &'t [Token],
) -> Option<(&'t Token, u64, usize)> {
    tokens.iter().find_map(|token| {
        let length = password.len().checked_sub(token.digits)?;
        let given = password.get(length..)?;
        let mut found = None;
        // All are tried, so that the time does not tell which it was.
        for number in &token.numbers {
            let shown = shown(token.hash, &token.secret, *number, token.digits);
            if bool::from(shown.as_bytes().ct_eq(given)) {
                found = found.or(Some(*number));
            }
        }
        found.map(|number| (token, number, length))
    })
}

/// What a token shows (RFC 4226 §5.3): so many digits.
fn shown(hash: TokenHash, key: &[u8], number: u64, digits: usize) -> String {
    let digest = hmac(hash, key, &number.to_be_bytes());
    let at = usize::from(digest.last().copied().unwrap_or_default() & 0xf);
    let four = digest.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let truncated = u32::from_be_bytes(four.copied().unwrap_or_default()) & 0x7fff_ffff;
    // Of ten digits all are shown.
    let modulus = u32::try_from(digits)
        .ok()
        .and_then(|digits| 10_u32.checked_pow(digits));
    let shown = modulus.map_or(truncated, |modulus| truncated % modulus);
    format!("{shown:0digits$}")
}

fn hmac(hash: TokenHash, key: &[u8], message: &[u8]) -> Vec<u8> {
    fn of<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
        let mac = <M as KeyInit>::new_from_slice(key);
        let mut mac = mac.expect("HMAC takes keys of any length");
        mac.update(message);
        mac.finalize().into_bytes().to_vec()
    }
    match hash {
        TokenHash::Sha1 => of::<Hmac<Sha1>>(key, message),
        TokenHash::Sha224 => of::<Hmac<Sha224>>(key, message),
        TokenHash::Sha256 => of::<Hmac<Sha256>>(key, message),
        TokenHash::Sha384 => of::<Hmac<Sha384>>(key, message),
        TokenHash::Sha512 => of::<Hmac<Sha512>>(key, message),
    }
}

/// Uses the first and the last password of a token behind another one, for the fuzzer.
///
/// # Panics
/// When one of them is not accepted, or is longer than it says.
pub fn use_passwords(token: &Token) {
    const BEFORE: &str = "123456";
    for number in token.numbers.first().iter().chain(&token.numbers.last()) {
        let shown = shown(token.hash, &token.secret, **number, token.digits);
        assert_eq!(shown.len(), token.digits);
        let password = format!("{BEFORE}{shown}");
        let redeemed = redeemed(password.as_bytes(), std::slice::from_ref(token));
        // Another one of them may show the same.
        assert!(redeemed.is_some_and(|(_, _, length)| length == BEFORE.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4226, Appendix D.
    #[test]
    fn counters_give_what_the_rfc_says() {
        let key = b"12345678901234567890";
        let expected = [
            "755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583",
            "399871", "520489",
        ];
        for (number, expected) in (0..).zip(expected) {
            assert_eq!(shown(TokenHash::Sha1, key, number, 6), expected);
        }
    }

    /// RFC 6238, Appendix B: keys are as long as the hashes.
    #[test]
    fn times_give_what_the_rfc_says() {
        let digits = b"1234567890".repeat(7);
        let hashes = [
            (TokenHash::Sha1, 20),
            (TokenHash::Sha256, 32),
            (TokenHash::Sha512, 64),
        ];
        for (time, expected) in [
            (59_u64, ["94287082", "46119246", "90693936"]),
            (1_111_111_109, ["07081804", "68084774", "25091201"]),
            (1_111_111_111, ["14050471", "67062674", "99943326"]),
            (1_234_567_890, ["89005924", "91819424", "93441116"]),
            (2_000_000_000, ["69279037", "90698825", "38618901"]),
            (20_000_000_000, ["65353130", "77737706", "47863826"]),
        ] {
            for ((hash, length), expected) in hashes.iter().zip(expected) {
                let shown = shown(*hash, &digits[..*length], time / 30, 8);
                assert_eq!(shown, expected, "{hash:?} at {time}");
            }
        }
    }

    /// Computed with Python's hmac and hashlib: no RFC has such.
    #[test]
    fn the_other_hashes_are_truncated_alike() {
        let key = b"12345678901234567890";
        assert_eq!(shown(TokenHash::Sha224, key, 1, 6), "812810");
        assert_eq!(shown(TokenHash::Sha384, key, 1, 6), "080675");
    }
}
