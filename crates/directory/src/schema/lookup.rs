//! Finding numbers by name, whatever the letter case, without allocation.

/// An open-addressing hash table from names and OIDs to numbers.
#[derive(Default)]
pub(super) struct NameTable {
    /// A power of two many; at most half of them taken.
    slots: Vec<Option<(Box<str>, u16)>>,
    len: usize,
}

impl NameTable {
    /// The number of a name.
    pub(super) fn get(&self, name: &[u8]) -> Option<u16> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash(name) & mask;
        while let Some((known, number)) = self.slots.get(at)? {
            // Most write a name as the schema does, which is told at once.
            let known = known.as_bytes();
            if known == name || known.eq_ignore_ascii_case(name) {
                return Some(*number);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Adds a name. `Err`: the number that already has it.
    pub(super) fn insert(&mut self, name: &str, number: u16) -> Result<(), u16> {
        if let Some(known) = self.get(name.as_bytes()) {
            return Err(known);
        }
        if (self.len + 1) * 2 > self.slots.len() {
            let capacity = (self.slots.len() * 2).max(16);
            let old = std::mem::take(&mut self.slots);
            self.slots.resize_with(capacity, || None);
            for (name, number) in old.into_iter().flatten() {
                self.place(name, number);
            }
        }
        self.place(name.into(), number);
        self.len += 1;
        Ok(())
    }

    fn place(&mut self, name: Box<str>, number: u16) {
        let mask = self.slots.len() - 1;
        let mut at = hash(name.as_bytes()) & mask;
        while self.slots[at].is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = Some((name, number));
    }
}

/// Of the bytes with the bit that tells capitals from small letters set, eight at a time; the last eight of a name
/// of any length, so that none are copied.
fn hash(name: &[u8]) -> usize {
    const SMALL: u64 = 0x2020_2020_2020_2020;
    let mix = |hash: u64, word: u64| {
        // The golden ratio's fraction.
        let mixed = (hash ^ (word | SMALL)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 32)
    };
    let (words, _) = name.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let hash = words.fold(name.len() as u64, mix);
    let last = match name.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => name
            .iter()
            .fold(0, |last, byte| last << 8 | u64::from(*byte)),
    };
    mix(hash, last) as usize
}

#[cfg(test)]
mod tests {
    use super::NameTable;

    #[test]
    fn names_are_found_in_any_case() {
        let mut table = NameTable::default();
        assert_eq!(table.get(b"cn"), None);
        for number in 0..1000 {
            assert_eq!(table.insert(&format!("Name{number}"), number), Ok(()));
        }
        assert_eq!(table.insert("nAME7", 3), Err(7));
        for number in 0..1000 {
            assert_eq!(table.get(format!("nAmE{number}").as_bytes()), Some(number));
        }
        assert_eq!(table.get(b"name1000"), None);
        assert_eq!(table.get(b""), None);
    }
}
