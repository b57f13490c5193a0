//! The hashes of `crypt(3)` that no library here has in the form that is stored, and its base64.

pub(super) mod des;
pub(super) mod md5;
pub(super) mod sha;

/// The digits of its base64.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The value of a digit.
pub(super) fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'.' => 0,
        b'/' => 1,
        b'0'..=b'9' => digit - b'0' + 2,
        b'A'..=b'Z' => digit - b'A' + 12,
        b'a'..=b'z' => digit - b'a' + 38,
        _ => return None,
    };
    Some(value.into())
}

/// Whether a text is so many digits.
pub(super) fn is_text(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|digit| value(digit).is_some())
}

/// Appends so many digits of a number, the least significant first.
fn put_low_first(out: &mut String, mut value: u32, digits: usize) {
    for _ in 0..digits {
        out.push(char::from(DIGITS[(value & 0x3f) as usize]));
        value >>= 6;
    }
}

/// Appends three bytes, the first of which is the most significant.
fn put_three(out: &mut String, bytes: [u8; 3]) {
    let [high, middle, low] = bytes.map(u32::from);
    put_low_first(out, high << 16 | middle << 8 | low, 4);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_have_their_values() {
        for (expected, digit) in DIGITS.iter().enumerate() {
            assert_eq!(value(*digit), Some(expected as u32));
        }
        assert_eq!((0..=255).filter_map(value).count(), 64);
    }
}
