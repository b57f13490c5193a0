//! Records are read as they were built, and damaged ones without panic.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Sample = (u16, String, Vec<Vec<u8>>, bool);

/// Numbers from here on are those of large attributes.
const LARGE_FROM: u16 = 0x8000;

fn build(
    parent: u64,
    rdn: &str,
    attributes: &[Sample],
    large: &BTreeMap<u16, (u32, u64)>,
) -> Vec<u8> {
    let mut builder = RecordBuilder::new();
    for (number, (count, bytes)) in large.iter().rev() {
        builder.push_large(LargeAttribute {
            number: AttributeNo(*number),
            count: *count,
            bytes: *bytes,
        });
    }
    for (number, description, values, protected) in attributes {
        let values = values.iter().map(Vec::as_slice);
        builder.push(
            AttributeNo(*number),
            description.as_bytes(),
            values,
            *protected,
        );
    }
    let mut record = Vec::new();
    builder
        .finish(EntryId(parent), EntryFlags::REFERRAL, rdn, &mut record)
        .unwrap();
    record
}

fn large() -> impl Strategy<Value = BTreeMap<u16, (u32, u64)>> {
    prop::collection::btree_map(LARGE_FROM.., (1..=u32::MAX, 0..1_u64 << 20), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_built_is_read_back(
        parent: u64,
        rdn in "[a-zA-Z=äß]{0,40}",
        attributes in prop::collection::vec(
            (
                0..LARGE_FROM,
                "[a-z;-]{1,200}",
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..4),
                any::<bool>(),
            ),
            0..8,
        ),
        large in large(),
        behind in prop::collection::vec(any::<u8>(), 0..40),
        wanted in 1..4_u16,
    ) {
        let mut record = build(parent, &rdn, &attributes, &large);
        let bytes = record.len();
        record.extend_from_slice(&behind);
        let entry = Entry::new(&record).unwrap();
        prop_assert_eq!(entry.operational(), behind);
        prop_assert_eq!(entry.parent(), EntryId(parent));
        prop_assert_eq!(entry.rdn(), Ok(rdn.as_str()));
        prop_assert!(entry.flags().is_referral() && !entry.flags().is_alias());
        let in_order = |protected| attributes.iter().filter(move |sample| sample.3 == protected);
        let mut expected = in_order(false).chain(in_order(true));
        let mut copy = RecordBuilder::new();
        for attribute in entry.attributes() {
            let attribute = attribute.unwrap();
            let (number, _, values, protected) = expected.next().unwrap();
            prop_assert_eq!(attribute.number(), AttributeNo(*number));
            prop_assert_eq!(attribute.is_protected(), *protected);
            prop_assert!(attribute.values().iter().eq(values.iter().map(Vec::as_slice)));
            copy.copy(&attribute);
        }
        prop_assert!(expected.next().is_none());
        let stored: Vec<_> = entry.attributes().map(|attribute| attribute.unwrap()).collect();
        let is_wanted = |number: AttributeNo| number.0 & wanted != 0;
        let each = stored.iter().filter(|attribute| is_wanted(attribute.number()));
        let each: Vec<&[u8]> = each.map(|attribute| attribute.ber()).collect();
        let runs = stored.chunk_by(|one, next| is_wanted(one.number()) == is_wanted(next.number()));
        let runs = runs.filter(|run| is_wanted(run[0].number())).count();
        let mut room = [&[][..]; 2];
        match entry.parts_of(is_wanted, &mut room).unwrap() {
            Some(parts) => {
                prop_assert_eq!(parts.len(), runs);
                prop_assert_eq!(parts.concat(), each.concat());
            }
            None => prop_assert!(runs > 2),
        }
        let told = entry.large().map(|large| (large.number.0, (large.count, large.bytes)));
        prop_assert_eq!(told.collect::<BTreeMap<_, _>>(), large);
        entry.large().for_each(|large| copy.push_large(large));
        let mut copied = Vec::new();
        copy.finish(EntryId(parent), EntryFlags::REFERRAL, &rdn, &mut copied).unwrap();
        prop_assert_eq!(&copied, &record[..bytes]);
        let public: usize = in_order(false).count();
        let list = sapwood_ldap::list::Attributes::from_ber(entry.public_ber()).unwrap();
        prop_assert_eq!(list.iter().count(), public);
    }

    #[test]
    fn what_was_examined_makes_well_formed_messages(
        rdn in "[a-zA-Z=äß]{0,20}",
        attributes in prop::collection::vec(
            (
                0..LARGE_FROM,
                "[a-z;-]{1,20}",
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..140), 0..4),
                any::<bool>(),
            ),
            0..5,
        ),
        large in large(),
        mask: u8,
    ) {
        use sapwood_ldap::message::{ResponseMessage, put_search_entry};
        let record = build(7, &rdn, &attributes, &large);
        prop_assert_eq!(Entry::new(&record).unwrap().examine(|_| false), Ok(()));
        let is_public = attributes.iter().any(|sample| !sample.3) || !large.is_empty();
        prop_assert_eq!(Entry::new(&record).unwrap().examine(|_| true).is_err(), is_public);
        for at in 0..record.len() {
            let mut damaged = record.clone();
            damaged[at] ^= mask;
            let Ok(entry) = Entry::new(&damaged) else { continue };
            if entry.examine(|_| false).is_err() {
                continue;
            }
            let each = entry.attributes().map(|attribute| attribute.unwrap().ber());
            for attributes in each.chain([entry.ber(), entry.public_ber()]) {
                let mut message = Vec::new();
                put_search_entry(&mut message, 1, entry.rdn_bytes(), attributes);
                prop_assert!(ResponseMessage::decode(&message).is_ok(), "byte {at}");
            }
        }
    }

    #[test]
    fn damaged_records_are_refused_or_read_without_panic(
        mut record in prop::collection::vec(any::<u8>(), 0..200),
        kept_form in prop::option::of(FORM..=FORM_LARGE),
    ) {
        if let (Some(kept), Some(form)) = (kept_form, record.first_mut()) {
            *form = kept;
        }
        if let Ok(entry) = Entry::new(&record) {
            for attribute in entry.attributes().flatten() {
                attribute.values().iter().count();
            }
            entry.large().count();
            let _ = (entry.public_ber(), entry.operational(), entry.attribute(AttributeNo(0)));
            let _ = entry.parts_of(|number| number.0 % 2 == 0, &mut [&[][..]; 4]);
        }
    }
}
