//! SHA-crypt, `$5$` and `$6$`: the library's digest in the order in which the text has its bytes.

use super::{put_low_first, put_three};

/// The digest of a password as text; `None` for a number of rounds that there is not.
pub(in crate::password) fn hash(
    is_512: bool,
    rounds: u32,
    salt: &str,
    password: &[u8],
) -> Option<String> {
    let params = sha_crypt::Params::new(rounds).ok()?;
    let mut text = String::with_capacity(86);
    if is_512 {
        let digest = sha_crypt::sha512_crypt(password, salt.as_bytes(), params);
        let mut places = [0, 21, 42];
        for _ in 0..21 {
            put_three(&mut text, places.map(|at| digest[at]));
            let [first, second, third] = places;
            places = [second + 1, third + 1, first + 1];
        }
        put_low_first(&mut text, digest[63].into(), 2);
    } else {
        let digest = sha_crypt::sha256_crypt(password, salt.as_bytes(), params);
        let mut places = [0, 10, 20];
        for _ in 0..10 {
            put_three(&mut text, places.map(|at| digest[at]));
            let [first, second, third] = places;
            places = [third + 1, first + 1, second + 1];
        }
        let rest = u32::from(digest[31]) << 8 | u32::from(digest[30]);
        put_low_first(&mut text, rest, 3);
    }
    Some(text)
}
