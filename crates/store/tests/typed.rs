//! Trees with types: what is stored is read, in the order of the keys, and what is not of the type is told.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sapwood_store::{
    Encoding, Env, Error, FixedEncoding, KeyEncoding, Options, Snapshot, TreeKind, TypedTree,
};

fn bytes<E: Encoding + ?Sized>(item: &E::Item<'_>) -> Vec<u8> {
    E::with_bytes(item, <[u8]>::to_vec)
}

/// An item is read as it was, and two are ordered as their bytes are.
macro_rules! ordered {
    ($name:ident: $type:ty, $strategy:expr) => {
        proptest! {
            #[test]
            fn $name(a in $strategy, b in $strategy) {
                let [a_bytes, b_bytes] = [bytes::<$type>(&a), bytes::<$type>(&b)];
                prop_assert_eq!(<$type>::decode(&a_bytes), Some(a));
                prop_assert_eq!(a.cmp(&b), a_bytes.cmp(&b_bytes));
            }
        }
    };
}

ordered!(u8_keys: u8, any::<u8>());
ordered!(u64_keys: u64, any::<u64>());
ordered!(u128_keys: u128, any::<u128>());
ordered!(i8_keys: i8, any::<i8>());
ordered!(i16_keys: i16, any::<i16>());
ordered!(i64_keys: i64, any::<i64>());
ordered!(bool_keys: bool, any::<bool>());
ordered!(array_keys: [u8; 5], any::<[u8; 5]>());
ordered!(pair_keys: (i32, u16), any::<(i32, u16)>());
ordered!(nested_keys: ((u8, i8), (bool, u32)), any::<((u8, i8), (bool, u32))>());

proptest! {
    #[test]
    fn text_keys(a in ".{0,6}", b in ".{0,6}", n in any::<(i8, i8)>()) {
        let (a, b) = (a.as_str(), b.as_str());
        let [a_bytes, b_bytes] = [bytes::<str>(&a), bytes::<str>(&b)];
        prop_assert_eq!(str::decode(&a_bytes), Some(a));
        prop_assert_eq!(a.cmp(b), a_bytes.cmp(&b_bytes));
        let [a_pair, b_pair] = [(n.0, a), (n.1, b)];
        let [a_bytes, b_bytes] = [bytes::<(i8, str)>(&a_pair), bytes::<(i8, str)>(&b_pair)];
        prop_assert_eq!(<(i8, str)>::decode(&a_bytes), Some(a_pair));
        prop_assert_eq!(a_pair.cmp(&b_pair), a_bytes.cmp(&b_bytes));
    }

    #[test]
    fn any_bytes_are_an_item_or_none(found in prop::collection::vec(any::<u8>(), 0..20)) {
        // Whatever is decoded is encoded to the same bytes.
        fn check<E: Encoding + ?Sized>(found: &[u8]) {
            if let Some(item) = E::decode(found) {
                assert_eq!(bytes::<E>(&item), found);
            }
        }
        check::<u32>(&found);
        check::<i128>(&found);
        check::<bool>(&found);
        check::<()>(&found);
        check::<str>(&found);
        check::<[u8; 4]>(&found);
        check::<(u16, [u8; 3])>(&found);
    }
}

const NUMBERS: TypedTree<'_, i32, str> = TypedTree::new("numbers");

fn filled(env: &Env) -> BTreeMap<i32, String> {
    let mut txn = env.write().unwrap();
    assert!(NUMBERS.open(&mut txn).unwrap().is_none());
    let numbers = NUMBERS.create(&mut txn).unwrap();
    let mut model = BTreeMap::new();
    for n in (-3000..3000).step_by(7) {
        let value = format!("number {n}");
        assert!(numbers.put(&mut txn, n, &value).unwrap());
        model.insert(n, value);
    }
    txn.commit().unwrap().wait_durable().unwrap();
    model
}

fn range(snapshot: &Snapshot, keys: impl std::ops::RangeBounds<i32>) -> Vec<(i32, String)> {
    let numbers = NUMBERS.read(snapshot).unwrap().unwrap();
    let entries = numbers.range(keys).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.key(), entry.value().to_owned())
    });
    entries.collect()
}

#[test]
fn a_typed_tree_is_an_ordered_map() {
    let env = Env::in_memory(&Options::new()).unwrap();
    let mut model = filled(&env);
    let expected = |model: &BTreeMap<i32, String>, keys: (i32, i32)| {
        let part = model.range(keys.0..keys.1);
        part.map(|(n, value)| (*n, value.clone()))
            .collect::<Vec<_>>()
    };
    let snapshot = env.read().unwrap();
    for keys in [(-4000, 4000), (-100, 100), (3, 4), (-3000, -2999)] {
        assert_eq!(range(&snapshot, keys.0..keys.1), expected(&model, keys));
        assert_eq!(
            range(&snapshot, keys.0..=keys.1 - 1),
            expected(&model, keys)
        );
    }
    let numbers = NUMBERS.read(&snapshot).unwrap().unwrap();
    assert_eq!(numbers.len(), model.len() as u64);
    assert_eq!(numbers.get(-3000).unwrap(), Some("number -3000"));
    assert!(numbers.contains(3).unwrap() && !numbers.contains(4).unwrap());
    let ends = [numbers.first().unwrap(), numbers.last().unwrap()];
    let ends = ends.map(|entry| entry.unwrap().key());
    assert_eq!(
        [Some(&ends[0]), Some(&ends[1])],
        [model.keys().next(), model.keys().next_back()]
    );
    let backwards = numbers.iter().unwrap().rev();
    let backwards: Vec<i32> = backwards.map(|entry| entry.unwrap().key()).collect();
    assert!(backwards.iter().eq(model.keys().rev()));
    // From both ends they meet in the middle.
    let mut both = numbers.iter().unwrap();
    let mut seen = 0;
    while let (Some(_), Some(_)) = (both.next(), both.next_back()) {
        seen += 2;
    }
    assert!(model.len() - seen <= 1);

    let mut txn = env.write().unwrap();
    let numbers = NUMBERS.open(&mut txn).unwrap().unwrap();
    assert!(!numbers.insert(&mut txn, 3, "another").unwrap());
    assert!(!numbers.put(&mut txn, 3, "another").unwrap());
    assert_eq!(numbers.get(&txn, 3).unwrap(), Some("another"));
    assert!(numbers.delete(&mut txn, 10).unwrap());
    let gone = numbers.delete_range(&mut txn, -500..0).unwrap();
    assert_eq!(gone, model.range(-500..0).count() as u64);
    model.insert(3, "another".into());
    model.remove(&10);
    model.retain(|n, _| !(-500..0).contains(n));
    txn.commit().unwrap().wait_durable().unwrap();
    assert_eq!(
        range(&env.read().unwrap(), ..),
        expected(&model, (i32::MIN, i32::MAX))
    );
}

#[test]
fn values_of_a_key_are_typed_too() {
    const EDGES: TypedTree<'_, (u32, str), u16> =
        TypedTree::new("edges").with_kind(TreeKind::DUPLICATES);
    let env = Env::in_memory(&Options::new()).unwrap();
    let mut txn = env.write().unwrap();
    let edges = EDGES.create(&mut txn).unwrap();
    for (from, to) in [(1, 300), (1, 2), (2, 9), (1, 2)] {
        edges.put(&mut txn, (from, "road"), to).unwrap();
    }
    let all = |txn: &_| {
        let entries = edges.view(txn).unwrap().iter().unwrap();
        let entries = entries.map(|entry| {
            let entry = entry.unwrap();
            (entry.key().0, entry.value())
        });
        entries.collect::<Vec<_>>()
    };
    assert_eq!(all(&txn), [(1, 2), (1, 300), (2, 9)]);
    assert!(edges.delete_duplicate(&mut txn, (1, "road"), 2).unwrap());
    assert_eq!(all(&txn), [(1, 300), (2, 9)]);
}

#[test]
fn what_is_not_of_the_type_is_told() {
    const AS_NUMBERS: TypedTree<'_, u64, u64> = TypedTree::new("numbers");
    let env = Env::in_memory(&Options::new()).unwrap();
    filled(&env);
    let snapshot = env.read().unwrap();
    let wrong = AS_NUMBERS.read(&snapshot).unwrap().unwrap();
    let mut entries = wrong.iter().unwrap();
    assert!(matches!(entries.next(), Some(Err(Error::WrongType("key")))));
    assert!(entries.next().is_none());
    const AS_TEXTS: TypedTree<'_, i32, [u8; 3]> = TypedTree::new("numbers");
    let wrong = AS_TEXTS.read(&snapshot).unwrap().unwrap();
    assert!(matches!(wrong.get(3), Err(Error::WrongType("value"))));
}

/// Pairs, and what else is put together, are keys if their parts are.
#[test]
fn kinds_of_encodings() {
    fn is_key<E: KeyEncoding + ?Sized>() {}
    fn is_fixed<E: FixedEncoding>() -> usize {
        E::BYTES
    }
    is_key::<(u8, str)>();
    is_key::<((u8, bool), [u8])>();
    assert_eq!(is_fixed::<((u8, bool), [u8; 4])>(), 6);
}
