//! Damaged memory: whatever stands there, operations end, with an answer or an error.

use proptest::prelude::*;
use sapwood_xact::{HashMap, Plain, Queue, Text, Vector};

use crate::model::{Places, cases};

/// No walk through a memory of this size finds more.
const VALUES_MAX: usize = 1 << 20;

fn filled() -> (Vec<u8>, Places) {
    let mut memory = Plain::new();
    let places = Places::create(&mut memory).unwrap();
    let mut vector = Vector::<_, u64>::open(&mut memory, places.vector).unwrap();
    (0..2000).for_each(|value| vector.push(&value).unwrap());
    let mut queue = Queue::<_, (u64, [u8; 3])>::open(&mut memory, places.queue).unwrap();
    (0..3000).for_each(|value| queue.push(&(value, [1; 3])).unwrap());
    (0..500).for_each(|_| assert!(queue.pop().unwrap().is_some()));
    let mut map = HashMap::open(&mut memory, places.map).unwrap();
    for number in 0..500_u64 {
        let length = if number % 100 == 0 { 3000 } else { 30 };
        map.insert(&number.to_le_bytes(), &vec![3; length]).unwrap();
    }
    let mut text = Text::open(&mut memory, places.text).unwrap();
    text.set(&"something long ".repeat(40)).unwrap();
    (memory.as_bytes().to_vec(), places)
}

/// Uses all of them, and does not ask how that ends.
fn use_anyway(bytes: Vec<u8>, places: Places) {
    let Ok(mut memory) = Plain::from_bytes(bytes) else {
        return;
    };
    if let Ok(mut vector) = Vector::<_, u64>::open(&mut memory, places.vector) {
        let _ = vector.iter().map(|values| values.take(VALUES_MAX).count());
        for index in [0, 7, 8, 1999, 1 << 40] {
            let _ = vector.get(index);
            let _ = vector.set(index, &5);
        }
        let _ = vector.push(&1);
        let _ = vector.pop();
        let _ = vector.clear();
    }
    if let Ok(mut queue) = Queue::<_, (u64, [u8; 3])>::open(&mut memory, places.queue) {
        if let Ok(values) = queue.iter() {
            assert!(
                values.take(VALUES_MAX).count() < VALUES_MAX,
                "a walk without end"
            );
        }
        let _ = queue.len();
        let _ = queue.push(&(1, [0; 3]));
        (0..600).for_each(|_| drop(queue.pop()));
        let _ = queue.destroy();
    }
    if let Ok(mut map) = HashMap::open(&mut memory, places.map) {
        if let Ok(pairs) = map.iter() {
            assert!(
                pairs.take(VALUES_MAX).count() < VALUES_MAX,
                "a walk without end"
            );
        }
        let _ = map.len();
        for number in 0..600_u64 {
            let key = number.to_le_bytes();
            let _ = map.get(&key);
            let _ = match number % 3 {
                0 => map.remove(&key),
                _ => map.insert(&key, &[1; 40]),
            };
        }
        let _ = map.destroy();
    }
    if let Ok(mut text) = Text::open(&mut memory, places.text) {
        let _ = text.get().map(str::len);
        let _ = text.push_str("more");
        let _ = text.set(&"more".repeat(300));
        let _ = text.destroy();
    }
}

proptest! {
    #![proptest_config(cases(150))]
    #[test]
    fn operations_on_damaged_memory_end(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), any::<bool>()), 1..12),
    ) {
        let (mut bytes, places) = filled();
        for (at, number, is_word) in damage {
            // What describes them is hit as often as all of the rest.
            let descriptions = [places.vector, places.queue, places.queue + 4096, places.map, places.text];
            let at = match number % 2 {
                0 => descriptions[number as usize % 5] as usize + at.index(256),
                _ => 4096 + at.index(bytes.len() - 4096),
            };
            if let Some(byte) = bytes.get_mut(at) {
                *byte = (number >> 8) as u8;
            }
            if is_word && let Some(word) = bytes.get_mut(at / 8 * 8..at / 8 * 8 + 8) {
                word[..4].copy_from_slice(&(number >> (number % 29)).to_le_bytes());
            }
        }
        use_anyway(bytes, places);
    }
}
