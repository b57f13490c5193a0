//! The pointers that a commit stored in a leaf, as its record says them.

use super::{TAG_POINTERS, damaged, take_number};
use crate::error::Result;
use crate::format::pointer::RecordPointer;
use crate::format::pointer_leaf::PAIRS_MAX;
use crate::ids::PageNo;
use crate::varint;

/// Adds the pointers stored in a leaf: slots, which ascend, and the pointers of records.
pub(crate) fn encode_pointers(leaf: PageNo, pointers: &[(u16, RecordPointer)], out: &mut Vec<u8>) {
    debug_assert!(!pointers.is_empty() && pointers.is_sorted_by(|(one, _), (next, _)| one < next));
    out.push(TAG_POINTERS);
    varint::put(leaf.0, out);
    varint::put(pointers.len() as u64, out);
    let mut next = 0;
    for &(slot, pointer) in pointers {
        varint::put(u64::from(slot.saturating_sub(next)), out);
        varint::put(pointer.0, out);
        next = slot + 1;
    }
}

/// Pointers that were stored in one leaf.
#[derive(Debug)]
pub(crate) struct PointersItem<'a> {
    pub(crate) leaf: PageNo,
    /// Checked: pairs of numbers, whose slots are those of a leaf.
    pairs: &'a [u8],
}

impl<'a> PointersItem<'a> {
    /// Takes one off the input, behind its tag.
    pub(super) fn take(input: &mut &'a [u8]) -> Result<Self> {
        let leaf = PageNo(take_number(input)?);
        let count = take_number(input)?;
        if count == 0 || count > PAIRS_MAX as u64 {
            return Err(damaged("stores more pointers than a leaf has, or none"));
        }
        let from = *input;
        let mut next = 0;
        for _ in 0..count {
            let gap = take_number(input)?;
            let pointer = RecordPointer(take_number(input)?);
            if gap >= PAIRS_MAX as u64 - next {
                return Err(damaged("stores a pointer behind the last of a leaf"));
            }
            if pointer == RecordPointer::NONE {
                return Err(damaged("stores the pointer of no record"));
            }
            next += gap + 1;
        }
        let pairs = from.get(..from.len() - input.len()).unwrap_or_default();
        Ok(Self { leaf, pairs })
    }

    /// The slots, ascending, and what is stored there.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = (u16, RecordPointer)> + use<'a> {
        let mut rest = self.pairs;
        let mut next = 0;
        std::iter::from_fn(move || {
            let slot = next + varint::take(&mut rest)?;
            next = slot + 1;
            let pointer = RecordPointer(varint::take(&mut rest)?);
            Some((u16::try_from(slot).ok()?, pointer))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::page::Page;
    use crate::log::record::tests::header;
    use crate::log::record::{Item, RecordHeader, encode_records};

    fn begun(has_changes: bool) -> Vec<u8> {
        let mut record = Vec::new();
        let header = RecordHeader {
            has_changes,
            ..header()
        };
        header.encode(&mut record);
        record
    }

    /// Whether all items of a record can be read.
    fn is_read(record: &[u8]) -> bool {
        let Ok((_, mut items)) = RecordHeader::decode(record) else {
            return false;
        };
        loop {
            match items.next() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn with_pointers(pairs: &[(u64, u64)]) -> Vec<u8> {
        let mut record = begun(true);
        record.extend_from_slice(&[TAG_POINTERS, 7]);
        varint::put(pairs.len() as u64, &mut record);
        for &(gap, pointer) in pairs {
            varint::put(gap, &mut record);
            varint::put(pointer, &mut record);
        }
        record
    }

    #[test]
    fn slots_that_no_leaf_has_are_refused() {
        let last = PAIRS_MAX as u64 - 1;
        assert!(is_read(&with_pointers(&[(last, 9)])));
        assert!(is_read(&with_pointers(&[(0, 9), (last - 1, 9)])));
        assert!(!is_read(&with_pointers(&[(last + 1, 9)])));
        assert!(!is_read(&with_pointers(&[(0, 9), (last, 9)])));
        assert!(!is_read(&with_pointers(&[(0, 9), (u64::MAX, 9)])));
        assert!(!is_read(&with_pointers(&vec![(0, 9); PAIRS_MAX + 1])));
        assert!(!is_read(&with_pointers(&[])), "no pointers");
        assert!(
            !is_read(&with_pointers(&[(0, 0)])),
            "the pointer of no record"
        );
    }

    #[test]
    fn what_is_added_to_a_segment_is_made_of_whole_records() {
        let added = |at: u64, bytes: usize| {
            let mut record = begun(true);
            record.push(crate::log::record::TAG_RECORDS);
            varint::put(at, &mut record);
            varint::put(bytes as u64, &mut record);
            record.resize(record.len() + bytes, 1);
            record
        };
        assert!(is_read(&added(1000, 48)));
        assert!(!is_read(&added(1000, 47)));
        assert!(!is_read(&added(1000, 0)));
        assert!(!is_read(&added(0, 48)));
        let mut cut = added(1000, 48);
        cut.pop();
        assert!(!is_read(&cut));
    }

    #[test]
    fn a_record_of_roots_has_pointers_and_nothing_else() {
        let mut record = begun(false);
        assert!(is_read(&record));
        encode_pointers(PageNo(7), &[(3, RecordPointer(500))], &mut record);
        assert!(is_read(&record));
        let mut with_records = record.clone();
        encode_records(RecordPointer(600), &[1; 16], &mut with_records);
        assert!(!is_read(&with_records));
        let mut with_page = record.clone();
        crate::log::record::encode_page(&Page::zeroed(), None, &mut with_page);
        assert!(!is_read(&with_page));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn records_and_pointers_are_read_back(
            at in 1..u64::MAX >> 3,
            bytes in prop::collection::vec(any::<[u8; 8]>(), 1..40),
            pointers in prop::collection::btree_map(0..PAIRS_MAX as u16, 1..u64::MAX, 1..PAIRS_MAX),
            leaf in any::<u64>(),
            has_changes: bool,
        ) {
            let pointers: Vec<_> = pointers.into_iter().map(|(slot, pointer)| (slot, RecordPointer(pointer))).collect();
            let mut record = begun(has_changes);
            if has_changes {
                encode_records(RecordPointer(at), bytes.as_flattened(), &mut record);
            }
            encode_pointers(PageNo(leaf), &pointers, &mut record);
            encode_pointers(PageNo(9), &pointers[..1], &mut record);
            let (found, mut items) = RecordHeader::decode(&record).unwrap();
            prop_assert_eq!(found.has_changes, has_changes);
            prop_assert_eq!(found.roots, header().roots);
            if has_changes {
                let Some(Item::Records { at: found, bytes: added }) = items.next().unwrap() else { panic!("no records") };
                prop_assert_eq!((found, added), (RecordPointer(at), bytes.as_flattened()));
            }
            let Some(Item::Pointers(item)) = items.next().unwrap() else { panic!("no pointers") };
            prop_assert_eq!(item.leaf, PageNo(leaf));
            prop_assert_eq!(item.pointers().collect::<Vec<_>>(), &pointers[..]);
            let Some(Item::Pointers(item)) = items.next().unwrap() else { panic!("no pointers") };
            prop_assert_eq!(item.pointers().collect::<Vec<_>>(), &pointers[..1]);
            prop_assert!(items.next().unwrap().is_none());
        }

        #[test]
        fn any_bytes_are_pointers_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 1..20_u8) {
            let mut input = &[&[7, count][..], &bytes].concat()[..];
            if let Ok(item) = PointersItem::take(&mut input) {
                let slots: Vec<_> = item.pointers().map(|(slot, _)| slot).collect();
                prop_assert_eq!(slots.len(), usize::from(count));
                prop_assert!(slots.is_sorted_by(|one, next| one < next));
                prop_assert!(slots.iter().all(|&slot| usize::from(slot) < PAIRS_MAX));
            }
        }
    }
}
