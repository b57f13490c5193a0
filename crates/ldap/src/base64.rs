//! Base 64 (RFC 4648 §4), as LDIF values and password schemes use it.

#![deny(clippy::indexing_slicing)]

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// In [`SEXTETS`]: not a character of the alphabet.
const NONE: u8 = 0xff;

/// The six bits each character stands for.
const SEXTETS: [u8; 256] = {
    let mut sextets = [NONE; 256];
    let mut rest: &[u8] = ALPHABET;
    let mut sextet = 0;
    while let [character, after @ ..] = rest {
        let (_, tail) = sextets.split_at_mut(*character as usize);
        if let [slot, ..] = tail {
            *slot = sextet;
        }
        sextet += 1;
        rest = after;
    }
    sextets
};

/// Appends the encoding of `bytes`, padded.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    let (triples, rest) = bytes.as_chunks::<3>();
    for [a, b, c] in triples {
        let bits = u32::from_be_bytes([0, *a, *b, *c]);
        out.extend([18, 12, 6, 0].map(|shift| character(bits >> shift)));
    }
    match *rest {
        [a] => out.extend([
            character(u32::from(a) >> 2),
            character(u32::from(a) << 4),
            b'=',
            b'=',
        ]),
        [a, b] => {
            let bits = u32::from_be_bytes([0, a, b, 0]);
            out.extend([
                character(bits >> 18),
                character(bits >> 12),
                character(bits >> 6),
                b'=',
            ]);
        }
        _ => {}
    }
}

/// Decodes `text`, which must hold nothing but the alphabet and correct padding. `None` otherwise.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (quads, rest) = text.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(quads.len() * 3);
    let Some((last, body)) = quads.split_last() else {
        return Some(out);
    };
    for quad in body {
        let [_, a, b, c] = bits(quad)?.to_be_bytes();
        out.extend([a, b, c]);
    }
    let padding = match last {
        [_, _, b'=', b'='] => 2,
        [_, _, _, b'='] => 1,
        _ => 0,
    };
    let mut last = *last;
    for padded in last.iter_mut().rev().take(padding) {
        *padded = b'A';
    }
    let decoded = bits(&last)?.to_be_bytes();
    let (bytes, cut) = decoded.get(1..)?.split_at_checked(3 - padding)?;
    if cut.iter().any(|&byte| byte != 0) {
        return None;
    }
    out.extend_from_slice(bytes);
    Some(out)
}

/// The character for the lowest six bits.
fn character(bits: u32) -> u8 {
    ALPHABET
        .get((bits & 63) as usize)
        .copied()
        .unwrap_or_default()
}

/// The 24 bits of four characters.
fn bits(quad: &[u8; 4]) -> Option<u32> {
    let sextets =
        quad.map(|character| SEXTETS.get(usize::from(character)).copied().unwrap_or(NONE));
    let [a, b, c, d] = sextets.map(u32::from);
    // Sextets fit in six bits, so a seventh bit anywhere is a stranger to the alphabet.
    ((a | b | c | d) & 0x80 == 0).then_some(a << 18 | b << 12 | c << 6 | d)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        encode(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// RFC 4648 §10.
    #[test]
    fn examples_of_the_rfc() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(encoded(plain.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).unwrap(), plain.as_bytes());
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for text in [
            "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Z g=", "Zm-v", "Zm9v\n",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_survive(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            prop_assert_eq!(decode(encoded(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn each_text_has_one_decoding(text in "[A-Za-z0-9+/=]{0,16}") {
            if let Some(bytes) = decode(text.as_bytes()) {
                prop_assert_eq!(encoded(&bytes), text);
            }
        }
    }
}
