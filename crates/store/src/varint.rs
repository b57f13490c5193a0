//! Integers of variable length: seven bits to a byte, the low ones first, the highest bit set in all bytes but the
//! last.

#![deny(clippy::indexing_slicing)]

/// Adds a number.
pub(crate) fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// How many bytes a number takes.
pub(crate) fn bytes(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Takes a number off the front. `None` if the input ends early or the number has more than 64 bits.
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back() {
        for number in [0, 1, 127, 128, 300, 1 << 48, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            assert_eq!(super::bytes(number), bytes.len());
            assert_eq!(take(&mut &bytes[..]), Some(number));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(take(&mut &[0x80; 12][..]), None);
    }
}
