//! The registers of an entry that is told whole: whatever comes in whichever order, all who have heard the same have
//! the same.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sapwood_ldap::csn::Csn;
use sapwood_replication::{
    AttributeSide, EntryRegisters, Kind, NUMBERS_MAX, Register, VALUE_NUMBERS_MAX, Vector,
    join_attribute,
};

fn csn(micros: u64, replica: u16) -> Csn {
    Csn {
        micros,
        count: 0,
        replica,
    }
}

/// An entry as a server has it: the numbers, and the values of an attribute of each kind.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    registers: EntryRegisters,
    values: BTreeMap<&'static str, Vec<u8>>,
}

const ATTRIBUTES: [(&str, Kind); 3] = [
    ("member", Kind::Values),
    ("mail", Kind::Values),
    ("title", Kind::Whole),
];

#[derive(Clone, Debug)]
enum Change {
    Add(usize, u8),
    Delete(usize, u8),
    Replace(usize, Vec<u8>),
    Move,
    /// All that was made before this time becomes one.
    Shorten(u64),
    Hear(usize),
}

fn change() -> impl Strategy<Value = (usize, Change)> {
    let change = prop_oneof![
        4 => (0..2usize, 0..5u8).prop_map(|(at, value)| Change::Add(at, value)),
        4 => (0..2usize, 0..5u8).prop_map(|(at, value)| Change::Delete(at, value)),
        3 => (0..3usize, prop::collection::btree_set(0..5u8, 0..4))
            .prop_map(|(at, values)| Change::Replace(at, values.into_iter().collect())),
        1 => Just(Change::Move),
        1 => (0..30u64).prop_map(Change::Shorten),
        4 => (0..3usize).prop_map(Change::Hear),
    ];
    (0..3usize, change)
}

impl Entry {
    fn new() -> Entry {
        Entry {
            registers: EntryRegisters::new(csn(1, 0), csn(2, 1)),
            values: BTreeMap::from([("member", vec![0, 1]), ("title", vec![0])]),
        }
    }

    fn make(&mut self, change: &Change, number: Csn) {
        match change {
            Change::Add(at, value) | Change::Delete(at, value) => {
                let is_present = matches!(change, Change::Add(..));
                let (attribute, _) = ATTRIBUTES[*at];
                let own = self.values.entry(attribute).or_default();
                if own.contains(value) == is_present {
                    return;
                }
                match is_present {
                    true => own.push(*value),
                    false => own.retain(|own| own != value),
                }
                let register = Register {
                    csn: number,
                    is_present,
                };
                self.registers.set_value(attribute, &[*value], register);
            }
            Change::Replace(at, values) => {
                let (attribute, _) = ATTRIBUTES[*at];
                self.values.insert(attribute, values.clone());
                self.registers.set_all(attribute, number);
            }
            Change::Move => self.registers.place(number),
            Change::Shorten(oldest) => return self.registers.shorten(*oldest),
            Change::Hear(_) => return,
        }
        self.registers.csn = number;
    }

    fn joined(&self, other: &Entry) -> Entry {
        let formed = |entry: &Entry, attribute: &str| {
            let values = entry.values.get(attribute).cloned().unwrap_or_default();
            let formed = values.into_iter().map(|value| (vec![value], vec![value]));
            formed.collect::<Vec<(Vec<u8>, Vec<u8>)>>()
        };
        let mut values = BTreeMap::new();
        for (attribute, kind) in ATTRIBUTES {
            let sides = [self, other].map(|side| formed(side, attribute));
            let [here, there] = sides.each_ref().map(|side| {
                let side = side
                    .iter()
                    .map(|(form, value)| (form.clone(), value.as_slice()));
                side.collect::<Vec<_>>()
            });
            let side = |registers, values| AttributeSide { registers, values };
            let (here, there) = (side(&self.registers, &here), side(&other.registers, &there));
            let joined = join_attribute(kind, attribute, here, there);
            let mut joined: Vec<u8> = joined.values.iter().map(|value| value[0]).collect();
            joined.sort_unstable();
            values.insert(attribute, joined);
        }
        Entry {
            registers: self.registers.joined(&other.registers),
            values,
        }
    }

    fn sorted(&self) -> Entry {
        self.joined(self)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Servers hear each other's entries, and in the end all of them.
    #[test]
    fn all_become_the_same(changes in prop::collection::vec(change(), 0..40)) {
        let mut all = [Entry::new(), Entry::new(), Entry::new()];
        for (at, (server, change)) in changes.iter().enumerate() {
            if let Change::Hear(from) = change {
                all[*server] = all[*server].joined(&all[*from].clone());
            }
            // A change is later than all that its server has.
            let number = csn(3 + at as u64, *server as u16 + 1);
            all[*server].make(change, number);
        }
        let [one, other, third] = [&all[0], &all[1], &all[2]];
        let joined = one.joined(other).joined(third);
        prop_assert_eq!(&joined, &third.joined(&other.joined(one)));
        prop_assert_eq!(&joined, &joined.joined(other));
        prop_assert_eq!(&joined, &joined.joined(&joined));
        prop_assert_eq!(other.sorted().joined(one), one.joined(other));
        let stored = EntryRegisters::from_bytes(&joined.registers.to_bytes());
        prop_assert_eq!(stored.as_ref(), Ok(&joined.registers));
        let vector: Vector = (1..4).map(|replica| csn(100, replica)).collect();
        prop_assert!(joined.registers.are_covered_by(&vector));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first %= 2;
        }
        if let Ok(read) = EntryRegisters::from_bytes(&bytes) {
            prop_assert_eq!(EntryRegisters::from_bytes(&read.to_bytes()), Ok(read));
        }
    }
}

#[test]
fn the_older_of_too_many_numbers_become_one() {
    let mut kept = EntryRegisters::new(csn(1, 0), csn(2, 1));
    let add = |kept: &mut EntryRegisters, attribute: &str, values: std::ops::Range<u16>| {
        for value in values {
            let register = Register {
                csn: csn(10 + u64::from(value), 1),
                is_present: true,
            };
            kept.set_value(attribute, &value.to_le_bytes(), register);
        }
    };
    let most = VALUE_NUMBERS_MAX as u16;
    add(&mut kept, "member", 0..most + 1);
    kept.shorten(0);
    let half = 10 + u64::from(most / 2);
    assert_eq!(kept.of_all("member"), csn(half, 1));
    assert_eq!(kept.of_all("mail"), csn(2, 1));
    assert_eq!(
        kept.of_value("member", &most.to_le_bytes()),
        csn(10 + u64::from(most), 1)
    );
    for attribute in ["a", "b", "c"] {
        add(&mut kept, attribute, 0..most);
    }
    kept.shorten(0);
    assert!(kept.base() > csn(2, 1));
    let bytes_max = NUMBERS_MAX * 64;
    assert!(kept.to_bytes().len() < bytes_max);
}

#[test]
fn what_is_known_by_all_needs_no_numbers() {
    let mut kept = EntryRegisters::new(csn(1, 0), csn(2, 1));
    assert!(kept.is_plain());
    kept.set_all("title", csn(5, 1));
    kept.place(csn(6, 2));
    kept.csn = csn(6, 2);
    assert!(!kept.is_plain() && kept.placed() == csn(6, 2));
    kept.shorten(7);
    assert!(kept.is_plain() && kept.of_all("sn") == csn(6, 2));
}
