//! SipHash-2-4 (Aumasson and Bernstein, 2012): a hash function with a secret key, under which nobody who does not know
//! it can find keys that collide.

/// The hash of some bytes.
pub(super) fn hash(key: [u8; 16], bytes: &[u8]) -> u64 {
    let (low, high) = key.split_at(8);
    let (low, high) = (word(low), word(high));
    let mut state = State([
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ]);
    let (words, rest) = bytes.as_chunks::<8>();
    for bytes in words {
        state.add(u64::from_le_bytes(*bytes));
    }
    state.add(word(rest) | (bytes.len() as u64) << 56);
    state.0[2] ^= 0xff;
    (0..4).for_each(|_| state.round());
    state.0.into_iter().fold(0, |hash, word| hash ^ word)
}

/// Up to eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

struct State([u64; 4]);

impl State {
    fn add(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn round(&mut self) {
        let [a, b, c, d] = &mut self.0;
        *a = a.wrapping_add(*b);
        *c = c.wrapping_add(*d);
        *b = b.rotate_left(13) ^ *a;
        *d = d.rotate_left(16) ^ *c;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*b);
        *a = a.wrapping_add(*d);
        *b = b.rotate_left(17) ^ *c;
        *d = d.rotate_left(21) ^ *a;
        *c = c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_vectors_of_its_authors() {
        // Appendix A of the paper, and the first lines of `vectors.h` of the reference implementation.
        let numbers: Vec<u8> = (0..16).collect();
        let key = numbers.first_chunk().copied().unwrap();
        assert_eq!(hash(key, &numbers[..15]), 0xa129_ca61_49be_45e5);
        assert_eq!(hash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(hash(key, &numbers[..8]), 0x93f5_f579_9a93_2462);
    }
}
