//! The records: seeded, made again wherever they are needed, and summed up wherever they are read.

use std::ops::RangeInclusive;

/// Length of each key.
pub(crate) const KEY_BYTES: usize = 24;

/// Lengths of the values, unless a row says otherwise.
pub(crate) const VALUE_BYTES: RangeInclusive<usize> = 100..=150;

/// What values are cut from: small enough to stay in the caches beside what is measured.
const SOURCE_BYTES: usize = 64 << 10;

pub(crate) type Key = [u8; KEY_BYTES];

/// Numbers that look random, the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A set of records. Each has a number; its key looks random, so that ascending numbers are keys in no order.
pub(crate) struct Data {
    seed: u64,
    pub(crate) records: u32,
    value_bytes: RangeInclusive<usize>,
    source: Vec<u8>,
}

impl Data {
    pub(crate) fn new(seed: u64, records: u32, value_bytes: RangeInclusive<usize>) -> Self {
        let mut random = Random::new(seed);
        let words = (SOURCE_BYTES + value_bytes.end()) / 8 + 1;
        let source = (0..words)
            .flat_map(|_| random.next().to_le_bytes())
            .collect();
        Self {
            seed,
            records,
            value_bytes,
            source,
        }
    }

    pub(crate) fn key(&self, number: u32) -> Key {
        let mut key = [0; KEY_BYTES];
        let mut z = self.seed ^ (u64::from(number) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for place in key.as_chunks_mut::<8>().0 {
            z = mix(z);
            *place = z.to_be_bytes();
        }
        key
    }

    /// The value of a record as of a version.
    #[inline]
    pub(crate) fn value(&self, number: u32, version: u32) -> &[u8] {
        let z = mix((u64::from(version) << 32 | u64::from(number)) ^ self.seed);
        let (least, most) = (*self.value_bytes.start(), *self.value_bytes.end());
        let length = least + (z >> 32) as usize % (most - least + 1);
        let start = z as usize % SOURCE_BYTES;
        &self.source[start..start + length]
    }

    /// All numbers in the order of their keys.
    pub(crate) fn in_order(&self) -> Vec<u32> {
        let mut keyed: Vec<(Key, u32)> = (0..self.records).map(|n| (self.key(n), n)).collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, number)| number).collect()
    }
}

/// Records to load, in key order or in the order of their numbers.
pub(crate) struct Input<'d> {
    pub(crate) data: &'d Data,
    pub(crate) in_order: Option<&'d [u32]>,
}

impl Input<'_> {
    /// Hands out every record once.
    #[inline]
    pub(crate) fn each<E>(
        &self,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut give = |number| take(&self.data.key(number), self.data.value(number, 0));
        match self.in_order {
            Some(numbers) => numbers.iter().try_for_each(|number| give(*number)),
            None => (0..self.data.records).try_for_each(give),
        }
    }
}

/// What was read, to be compared with what should have been: sums do not depend on the order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Sum {
    records: u64,
    bytes: u64,
    heads: u64,
}

impl Sum {
    #[inline]
    pub(crate) fn add_value(&mut self, value: &[u8]) {
        self.records += 1;
        self.bytes += value.len() as u64;
        self.heads = self.heads.wrapping_add(head(value));
    }

    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.add_value(value);
        self.heads = self.heads.wrapping_add(head(key));
    }
}

#[inline]
fn head(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |head| u64::from_le_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_keys() {
        let data = Data::new(1, 1000, VALUE_BYTES);
        let order = data.in_order();
        assert!(order.is_sorted_by(|a, b| data.key(*a) < data.key(*b)));
        assert_eq!(order.len(), 1000);
    }

    #[test]
    fn values_have_lengths_within_the_bounds_and_differ_by_version() {
        let data = Data::new(1, 1000, VALUE_BYTES);
        for number in 0..1000 {
            assert!(VALUE_BYTES.contains(&data.value(number, 0).len()));
        }
        let changed = (0..1000).filter(|n| data.value(*n, 0) != data.value(*n, 1));
        assert!(changed.count() > 990);
    }

    #[test]
    fn a_sum_notices_another_value_and_a_missing_one() {
        let data = Data::new(1, 10, VALUE_BYTES);
        let sum = |numbers: &[u32]| {
            let mut sum = Sum::default();
            numbers
                .iter()
                .for_each(|n| sum.add(&data.key(*n), data.value(*n, 0)));
            sum
        };
        assert_eq!(sum(&[1, 2, 3]), sum(&[3, 1, 2]));
        assert_ne!(sum(&[1, 2, 3]), sum(&[1, 2, 4]));
        assert_ne!(sum(&[1, 2, 3]), sum(&[1, 2]));
    }
}
