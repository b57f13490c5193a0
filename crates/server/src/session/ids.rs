//! Sets of message ids, and what is remembered by them.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use sapwood_ldap::controls::{ControlSet, PasswordValidationDetails};

/// Message ids, each once.
pub(super) type MessageIds = HashSet<u32, Spread>;

/// What requests want their responses to carry, by their ids.
pub(super) type Wishes = HashMap<u32, Wish, Spread>;

/// What one request wants its response to carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// The server's name.
    pub(super) name: bool,
    /// What a password policy says.
    pub(super) policy: bool,
    /// Which control an error comes from, if one of these.
    pub(super) failed: ControlSet,
    /// What came of looking at its password, as far as that is known.
    pub(super) validation: Option<Box<PasswordValidationDetails>>,
}

/// Spreads ids over a table by multiplying them with a secret number: quickly, and without anybody being able to choose
/// ids that meet.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    factor: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Spread {
            factor: RandomState::new().hash_one(()) | 1,
        }
    }
}

impl BuildHasher for Spread {
    type Hasher = Product;

    fn build_hasher(&self) -> Product {
        Product {
            factor: self.factor,
            hash: 0,
        }
    }
}

/// The hash of one id.
#[derive(Debug)]
pub(super) struct Product {
    factor: u64,
    hash: u64,
}

impl Hasher for Product {
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    fn write_u32(&mut self, id: u32) {
        // A product's low bits come from the id's low bits alone: the high ones are folded in, and multiplied again.
        let product = (self.hash ^ u64::from(id)).wrapping_mul(self.factor);
        let product = (product ^ (product >> 32)).wrapping_mul(self.factor);
        self.hash = product ^ (product >> 29);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_spread_over_both_ends_of_the_hash() {
        let spread = Spread::default();
        for step in [1, 2, 128, 1 << 16, 1 << 21] {
            let hashes: Vec<u64> = (0..1024).map(|n: u32| spread.hash_one(n * step)).collect();
            let distinct = |part: fn(u64) -> u64| {
                let parts: HashSet<u64> = hashes.iter().map(|hash| part(*hash)).collect();
                parts.len()
            };
            // Of 1024 numbers drawn from 4096 some 906 differ, and all from 128 are drawn.
            assert!(distinct(|hash| hash & 0xFFF) > 700, "steps of {step}");
            assert!(distinct(|hash| hash >> 57) > 100, "steps of {step}");
        }
    }
}
