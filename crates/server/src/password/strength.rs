//! How hard a password is to guess, as zxcvbn estimates it: by what people do who guess, dictionaries, names, dates and
//! rows of keys, rather than by which kinds of characters there are.

/// The strength of a password that cannot be guessed within any time that counts.
pub const STRENGTH_MAX: u8 = 4;

/// The strength of a password, from 0 to [`STRENGTH_MAX`], where these words are known of its owner. Some milliseconds
/// of work: of a long password the first 100 characters count.
pub(crate) fn strength(password: &[u8], words: &[&str]) -> u8 {
    let text = String::from_utf8_lossy(password);
    zxcvbn::zxcvbn(&text, words).score().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_choose_is_weak_and_what_is_made_at_random_is_not() {
        for weak in [
            "",
            "password",
            "P@ssw0rd1",
            "qwertyuiop",
            "20250101",
            "aaaaaaaaaaaaaaaa",
        ] {
            assert!(strength(weak.as_bytes(), &[]) < 3, "{weak}");
        }
        for strong in ["correct horse battery staple", "vT3kq9Zp2LmX"] {
            assert_eq!(strength(strong.as_bytes(), &[]), STRENGTH_MAX, "{strong}");
        }
        // What it says of somebody else's name it does not say of one's own.
        let own = b"zaphodbeeblebrox";
        assert!(strength(own, &["zaphodbeeblebrox"]) < strength(own, &[]));
        // What is no text, and what is very long.
        assert_eq!(strength(&crate::password::hash(b"x"), &[]), STRENGTH_MAX);
        strength(&[0xff; 1024], &[]);
        strength(&b"1!|7".repeat(256), &[]);
    }
}
