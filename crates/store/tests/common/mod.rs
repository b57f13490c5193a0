//! A history of commits of which each is known by its number alone, for tests that break off somewhere.
#![allow(dead_code, reason = "no test uses everything")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use sapwood_store::{Env, Error, Options, Ticket, TreeKind};

/// What is in the two trees.
pub(crate) type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

const TREES: [&str; 2] = ["counted", "plain"];
const NUMBER: &[u8] = b"number";
/// This commit is too large for the shortest log.
const LARGE: u32 = 19;

pub(crate) fn options() -> Options {
    Options::new().log_bytes(0).idle_checkpoint(None)
}

/// One change of commit `number`: a record to store or to delete.
struct Change {
    tree: usize,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// All changes of commit `number`, in order.
fn changes(number: u32) -> impl Iterator<Item = Change> {
    let step = move |step: u32| {
        let mixed = (number * 31 + step * 7).wrapping_mul(0x9e37_79b9) >> 16;
        let length = match mixed % 11 {
            0 => 9000,
            1 => 0,
            _ => mixed as usize % 600,
        };
        let value = vec![mixed as u8; length];
        Change {
            tree: (mixed % 2) as usize,
            key: format!("key {:03}", mixed % 150).into_bytes(),
            value: (step % 4 != 3).then_some(value),
        }
    };
    let filling = if number % 25 == LARGE { 400 } else { 12 };
    let number = |tree| Change {
        tree,
        key: NUMBER.to_vec(),
        value: Some(number.to_le_bytes().to_vec()),
    };
    (0..filling).map(step).chain([number(0), number(1)])
}

/// What is there after commit `number`.
pub(crate) fn model(number: u32) -> Model {
    let mut model = Model::default();
    for change in (1..=number).flat_map(changes) {
        let tree = &mut model[change.tree];
        match change.value {
            Some(value) => drop(tree.insert(change.key, value)),
            None => drop(tree.remove(&change.key)),
        }
    }
    model
}

/// Makes commit `number`, which follows the one before it.
pub(crate) fn commit(env: &Env, number: u32) -> Result<Ticket, Error> {
    let mut txn = env.write()?;
    let mut trees = Vec::new();
    for (name, counted) in TREES.into_iter().zip([true, false]) {
        trees.push(match txn.tree(name)? {
            Some(tree) => tree,
            None => txn.create_tree(
                name,
                TreeKind {
                    counted,
                    ..TreeKind::COMPACT
                },
            )?,
        });
    }
    for change in changes(number) {
        let tree = trees[change.tree];
        match change.value {
            Some(value) => drop(txn.put(tree, &change.key, &value)?),
            None => drop(txn.delete(tree, &change.key)?),
        }
    }
    txn.commit()
}

/// The number of the newest visible commit; 0 if there is none.
pub(crate) fn number_of(env: &Env) -> Result<u32, Error> {
    let snapshot = env.read()?;
    let Some(tree) = snapshot.tree(TREES[0])? else {
        return Ok(0);
    };
    let number = tree.get(NUMBER)?.unwrap_or(&[0; 4]);
    Ok(u32::from_le_bytes(number.try_into().unwrap()))
}

/// Everything that is visible.
pub(crate) fn content(env: &Env) -> Result<Model, Error> {
    let snapshot = env.read()?;
    let mut model = Model::default();
    for (records, name) in model.iter_mut().zip(TREES) {
        let Some(tree) = snapshot.tree(name)? else {
            continue;
        };
        let mut cursor = tree.cursor();
        while cursor.next()? {
            if let Some((key, value)) = cursor.record()? {
                records.insert(key.to_vec(), value.to_vec());
            }
        }
    }
    Ok(model)
}

/// Checks that exactly the commits up to some number are there, wholly, and nothing is damaged; gives that number.
pub(crate) fn assert_whole(env: &Env, when: &str) -> u32 {
    let report = env.check().unwrap();
    assert!(report.is_clean(), "{when}: {:#?}", report.problems);
    let number = number_of(env).unwrap();
    let is_whole = content(env).unwrap() == model(number);
    assert!(is_whole, "{when}: commit {number} is not whole");
    number
}
