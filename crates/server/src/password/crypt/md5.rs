//! MD5-crypt, `$1$`: a thousand rounds of MD5 over password, salt and the digest before.

use md5::{Digest, Md5};

use super::{put_low_first, put_three};

const ROUNDS: u32 = 1000;

/// The 22 characters of the digest of a password.
pub(in crate::password) fn hash(password: &[u8], salt: &[u8]) -> String {
    let alternate = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut first = Md5::new()
        .chain_update(password)
        .chain_update(b"$1$")
        .chain_update(salt);
    for part in password.chunks(alternate.len()) {
        first.update(&alternate[..part.len()]);
    }
    // For each bit of the length: a zero byte, or the first of the password.
    let mut length = password.len();
    while length > 0 {
        match (length & 1, password.first()) {
            (0, Some(byte)) => first.update([*byte]),
            _ => first.update([0]),
        }
        length >>= 1;
    }
    let mut digest = first.finalize();
    for round in 0..ROUNDS {
        let is_odd = round % 2 == 1;
        let mut next = Md5::new();
        match is_odd {
            true => next.update(password),
            false => next.update(digest),
        }
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        match is_odd {
            true => next.update(digest),
            false => next.update(password),
        }
        digest = next.finalize();
    }
    let mut text = String::with_capacity(22);
    for places in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        put_three(&mut text, places.map(|at| digest[at]));
    }
    put_low_first(&mut text, digest[11].into(), 2);
    text
}
