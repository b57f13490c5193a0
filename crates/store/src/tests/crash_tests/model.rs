//! What the trees of a store hold, and random changes to both.

use std::collections::BTreeMap;

use sapwood_testkit::Random;

use super::{Verdict, told};
use crate::error::Error;
use crate::format::tree_record::TreeKind;
use crate::txn::snapshot::{Snapshot, Tree};
use crate::txn::{TreeId, WriteTxn};

/// What trees hold, by name.
pub(super) type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

const TREES: [&str; 4] = ["one", "pairs", "three", "two"];

/// The tree with duplicates. In the model its records are keys, with their values behind them.
const PAIRS: &str = "pairs";

/// The length of a key.
const KEY_BYTES: usize = 4;

/// One random change to a transaction and to the model of it.
pub(super) fn change(
    txn: &mut WriteTxn,
    model: &mut Model,
    random: &mut Random,
    value_bytes: usize,
) -> Result<(), Error> {
    let name = TREES[random.below(TREES.len())];
    if random.below(100) == 0 {
        let existed = txn.drop_tree(name)?;
        agree(existed, model.remove(name).is_some())?;
        return Ok(());
    }
    let tree: TreeId = match txn.tree(name)? {
        Some(tree) => tree,
        None => {
            model.insert(name.into(), BTreeMap::new());
            let kind = match name {
                PAIRS => TreeKind::DUPLICATES,
                "two" => TreeKind::COUNTED,
                _ => TreeKind::COMPACT,
            };
            txn.create_tree(name, kind)?
        }
    };
    let records = model.entry(name.into()).or_default();
    if name == PAIRS {
        return change_pair(txn, tree, records, random);
    }
    let key = (random.below(500) as u32).to_be_bytes().to_vec();
    if random.below(4) == 0 {
        let existed = txn.delete(tree, &key)?;
        agree(existed, records.remove(&key).is_some())?;
    } else {
        let value = vec![random.number() as u8; random.below(value_bytes)];
        txn.put(tree, &key, &value)?;
        records.insert(key, value);
    }
    Ok(())
}

/// Few keys with many values, so that some have trees of their own.
fn change_pair(
    txn: &mut WriteTxn,
    tree: TreeId,
    pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    random: &mut Random,
) -> Result<(), Error> {
    let key = (random.below(5) as u32).to_be_bytes();
    if random.below(60) == 0 {
        let existed = txn.delete(tree, &key)?;
        let before = pairs.len();
        pairs.retain(|pair, _| !pair.starts_with(&key));
        return agree(existed, pairs.len() < before);
    }
    for _ in 0..1 + random.below(40) {
        let number = random.below(300);
        let mut value = (number as u16).to_be_bytes().to_vec();
        value.resize(2 + number % 50, 7);
        let pair = [&key[..], &value].concat();
        if random.below(3) == 0 {
            let existed = txn.delete_duplicate(tree, &key, &value)?;
            agree(existed, pairs.remove(&pair).is_some())?;
        } else {
            let is_new = txn.put(tree, &key, &value)?;
            agree(is_new, pairs.insert(pair, Vec::new()).is_none())?;
        }
    }
    Ok(())
}

/// Whether what was said to be there is there.
fn agree(found: bool, expected: bool) -> Result<(), Error> {
    if found != expected {
        return Err(Error::Damaged(
            "a transaction does not see what is there".into(),
        ));
    }
    Ok(())
}

pub(super) fn compare_with(snapshot: &Snapshot, model: &Model) -> Verdict {
    let commit = snapshot.commit();
    let names = snapshot.tree_names().map_err(told)?;
    if !names
        .iter()
        .map(Vec::as_slice)
        .eq(model.keys().map(String::as_bytes))
    {
        let expected: Vec<_> = model.keys().collect();
        return Err(format!(
            "commit {commit} has the trees {names:?} instead of {expected:?}"
        ));
    }
    for (name, records) in model {
        let tree: Option<Tree<'_>> = snapshot.tree(name).map_err(told)?;
        let tree = tree.ok_or_else(|| format!("commit {commit} has lost tree '{name}'"))?;
        let mut cursor = tree.cursor();
        for (key, value) in records {
            // The model of a pair is its key with its value behind it.
            let (key, value) = match name.as_str() {
                PAIRS => key.split_at(KEY_BYTES),
                _ => (&key[..], &value[..]),
            };
            let found = cursor.next().and_then(|_| cursor.record()).map_err(told)?;
            if found != Some((key, value)) {
                return Err(format!(
                    "tree '{name}' of commit {commit} differs at key {key:x?}"
                ));
            }
        }
        if cursor.next().map_err(told)? {
            return Err(format!(
                "tree '{name}' of commit {commit} has too many records"
            ));
        }
    }
    Ok(())
}
