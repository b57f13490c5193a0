//! Index keys of a batch of entries, gathered: what goes through the sort is not each posting but, for each key, the
//! ids of the batch that have it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::build::{BATCH_ENTRIES, tag, tagged};
use crate::engine::{EntryId, GRAM_BYTES, append_escaped, put_varint};
use crate::error::Result;
use crate::reindex::KeySet;

/// What the entries of a batch have in the indexes.
#[derive(Default)]
pub(super) struct PostingBatch {
    /// The place of each key in `lists`.
    places: HashMap<Vec<u8>, usize, BuildHasherDefault<KeyHasher>>,
    lists: Vec<Ids>,
    /// By table.
    before: Vec<Before>,
    /// The keys of substrings indexes, of which an entry has dozens: 16 bits for the table, 24 for the key and 24 for
    /// the entry's place in the batch, so that sorting the numbers makes the lists.
    grams: Vec<u64>,
    /// The id of the batch's first entry; the others follow it without a gap.
    first: EntryId,
    /// Tagged keys that are records of the sort as they are: those of ordering tables, and of indexes without shared
    /// keys.
    records: KeySet,
    key: Vec<u8>,
    /// By table, as far as there were batches that tell.
    sharing: Vec<Sharing>,
}

/// What the entry before had of an indexed attribute: the next often has the same, such as its object classes.
#[derive(Default)]
struct Before {
    /// The attribute; empty if there is nothing that could be repeated.
    ber: Vec<u8>,
    /// The places of the lists of its keys.
    lists: Vec<usize>,
}

/// Whether several entries of a batch mostly have a key of an index together.
#[derive(Clone, Copy, Default)]
struct Sharing {
    lists: u32,
    shared: u32,
}

impl Sharing {
    /// Fewer tell nothing.
    const LISTS_MIN: u32 = 256;

    /// Whether hardly any key is shared, as in an index of identifiers: gathering them would be in vain.
    fn is_rare(self) -> bool {
        self.lists >= Self::LISTS_MIN && self.shared < self.lists / 8
    }
}

/// Ascending ids: the first, the last, and each one's distance from the one before in LEB128.
struct Ids {
    first: EntryId,
    last: EntryId,
    distances: Vec<u8>,
}

impl Ids {
    fn new(first: EntryId) -> Self {
        Self {
            first,
            last: first,
            distances: Vec::new(),
        }
    }

    /// Adds the id that was added last, or a greater one.
    fn add(&mut self, id: EntryId) {
        if id != self.last {
            put_varint(&mut self.distances, id.0 - self.last.0);
            self.last = id;
        }
    }
}

const PLACE_BITS: u32 = 24;
const _: () = assert!(BATCH_ENTRIES <= 1 << PLACE_BITS && GRAM_BYTES == 3);

impl PostingBatch {
    pub(super) fn begin(&mut self, first: EntryId) {
        self.first = first;
    }

    /// Posts an entry whose only attribute of an indexed type is that of the entry before; whether it is. If not, those
    /// keys are kept that are posted next.
    pub(super) fn repeat(&mut self, table: usize, only: Option<&[u8]>, id: EntryId) -> bool {
        if self.is_rare(table) {
            return false;
        }
        if self.before.len() <= table {
            self.before.resize_with(table + 1, Before::default);
        }
        let before = &mut self.before[table];
        let only = only.unwrap_or_default();
        if !only.is_empty() && before.ber == only {
            for list in &before.lists {
                self.lists[*list].add(id);
            }
            return true;
        }
        before.ber.clear();
        before.ber.extend_from_slice(only);
        before.lists.clear();
        false
    }

    fn is_rare(&self, table: usize) -> bool {
        self.sharing.get(table).is_some_and(|known| known.is_rare())
    }

    pub(super) fn post(&mut self, table: usize, key: &[u8], id: EntryId) {
        if self.is_rare(table) {
            self.records.push_with(|out| {
                out.extend_from_slice(&tag(table));
                append_escaped(out, key);
                out.extend_from_slice(&id.to_key());
            });
            return;
        }
        tagged(&mut self.key, table, &[]);
        append_escaped(&mut self.key, key);
        let place = match self.places.get(&self.key) {
            Some(place) => {
                self.lists[*place].add(id);
                *place
            }
            None => {
                self.places.insert(self.key.clone(), self.lists.len());
                self.lists.push(Ids::new(id));
                self.lists.len() - 1
            }
        };
        if let Some(before) = self.before.get_mut(table) {
            before.lists.push(place);
        }
    }

    pub(super) fn post_gram(&mut self, table: usize, gram: [u8; GRAM_BYTES], id: EntryId) {
        let [high, middle, low] = gram;
        let gram = u64::from(u32::from_be_bytes([0, high, middle, low]));
        let place = id.0 - self.first.0;
        self.grams
            .push((((table as u64) << (8 * GRAM_BYTES)) | gram) << PLACE_BITS | place);
    }

    pub(super) fn record(&mut self, table: usize, key: &[u8]) {
        self.records.push_with(|out| {
            out.extend_from_slice(&tag(table));
            out.extend_from_slice(key);
        });
    }

    /// What is better done before others have to wait for [`drain`](Self::drain).
    pub(super) fn sort(&mut self) {
        self.grams.sort_unstable();
        self.grams.dedup();
    }

    /// Hands keys and values for the sort to `each` and forgets them.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let id_of = |gram: u64| EntryId(self.first.0 + (gram & ((1 << PLACE_BITS) - 1)));
        for postings in self
            .grams
            .chunk_by(|one, other| one >> PLACE_BITS == other >> PLACE_BITS)
        {
            let mut ids = Ids::new(id_of(postings[0]));
            postings.iter().for_each(|posting| ids.add(id_of(*posting)));
            let [.., high, low, a, b, c] = (postings[0] >> PLACE_BITS).to_be_bytes();
            tagged(
                &mut self.key,
                usize::from(u16::from_be_bytes([high, low])),
                &[],
            );
            append_escaped(&mut self.key, &[a, b, c]);
            self.key.extend_from_slice(&ids.first.to_key());
            each(&self.key, &ids.distances)?;
        }
        self.grams.clear();
        for before in &mut self.before {
            before.ber.clear();
            before.lists.clear();
        }
        for (mut key, place) in self.places.drain() {
            let ids = &self.lists[place];
            if let Some(table) = key.first_chunk().map(|tag| u16::from_be_bytes(*tag)) {
                let table = usize::from(table);
                if self.sharing.len() <= table {
                    self.sharing.resize(table + 1, Sharing::default());
                }
                self.sharing[table].lists += 1;
                self.sharing[table].shared += u32::from(!ids.distances.is_empty());
            }
            key.extend_from_slice(&ids.first.to_key());
            each(&key, &ids.distances)?;
        }
        self.lists.clear();
        self.records.iter().try_for_each(|key| each(key, &[]))?;
        self.records.clear();
        Ok(())
    }
}

/// Hashes keys of a map that lives as long as a batch.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// The length that comes with each slice; [`write`](Self::write) takes it into account by itself.
    fn write_usize(&mut self, _length: usize) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::engine::{take_escaped, take_varint};

    #[test]
    fn keys_are_found_with_their_ids_whether_they_are_gathered_or_not() {
        let mut postings = PostingBatch::default();
        for batch in 0..3 {
            postings.first = EntryId(1 + batch * 1000);
            let mut posted = BTreeSet::new();
            for id in postings.first.0..postings.first.0 + 1000 {
                // An index of identifiers, one of which stands twice in its entry, and one of classes.
                for (table, key) in [
                    (0, format!("u{id}\0")),
                    (0, format!("u{id}\0")),
                    (1, format!("class {}", id % 7)),
                    (1, "top".to_owned()),
                ] {
                    postings.post(table, key.as_bytes(), EntryId(id));
                    posted.insert((table, key.into_bytes(), id));
                }
            }
            let mut drained = BTreeSet::new();
            let mut records = 0;
            postings
                .drain(|record, distances| {
                    let (table, key) = record.split_first_chunk().unwrap();
                    let table = usize::from(u16::from_be_bytes(*table));
                    let mut plain = Vec::new();
                    let first = take_escaped(key, &mut plain).and_then(EntryId::from_key);
                    let mut id = first.unwrap().0;
                    let mut rest = distances;
                    drained.insert((table, plain.clone(), id));
                    while !rest.is_empty() {
                        id += take_varint(&mut rest).unwrap();
                        drained.insert((table, plain.clone(), id));
                    }
                    records += 1;
                    Ok(())
                })
                .unwrap();
            assert_eq!(drained, posted);
            // Once it is known that identifiers are not shared, they are not gathered: the second of an entry is left
            // to the sort.
            assert_eq!(records, 8 + if batch == 0 { 1000 } else { 2000 });
        }
    }
}
