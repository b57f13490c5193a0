//! The keys of the benchmark: 128 bytes each, those of `peers.c`.

/// The length of a key.
pub(crate) const KEY_BYTES: usize = 128;

/// The length of a value.
pub(crate) const VALUE_BYTES: usize = 8;

/// A number that looks random; different numbers give different ones (the finaliser of SplitMix64).
pub(crate) fn spread(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Key `number` in hexadecimal digits, filled up; in the order of the numbers or in any order.
pub(crate) fn key(number: u64, in_order: bool) -> [u8; KEY_BYTES] {
    let mut key = [b'x'; KEY_BYTES];
    let shown = if in_order { number } else { spread(number) };
    for (place, digit) in key[..16].iter_mut().enumerate() {
        let nibble = usize::try_from(shown >> (60 - 4 * place) & 15).unwrap_or(0);
        *digit = b"0123456789abcdef"[nibble];
    }
    key
}

/// The number of a key to search for.
pub(crate) fn sample(number: u64, total: u64) -> u64 {
    spread(!number) % total
}
