//! The indexes that a filter asks for and that are not there.

use std::collections::BTreeSet;

use crate::indexes::useful_kind;
use crate::matching::filter::{Node, Target, Test};
use crate::schema::Schema;
use crate::state::State;

/// Indexes that would find the entries that a filter is true of, and are not made: each as `sapwood index` takes it.
/// What cannot be made, because of the syntax of an attribute, is none of them.
pub(crate) fn missing_indexes(schema: &Schema, state: &State, filter: &Node) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    gather(schema, state, filter, &mut missing);
    missing
}

fn gather(schema: &Schema, state: &State, filter: &Node, missing: &mut BTreeSet<String>) {
    let item = match filter {
        Node::And(nodes) | Node::Or(nodes) => {
            for node in nodes {
                gather(schema, state, node, missing);
            }
            return;
        }
        Node::AnyOf(any_of) => {
            if let Some(node) = any_of.each.first() {
                gather(schema, state, node, missing);
            }
            return;
        }
        Node::Item(item) => item,
        Node::Not(_) | Node::Constant(_) | Node::InChain(_) => return,
    };
    let kind = match &item.test {
        Test::Present => "pres",
        Test::Equal(_) => "eq",
        Test::AtLeast(_) | Test::AtMost(_) => "ord",
        Test::Substrings(_) => "sub",
        Test::Sounds(_) => "approx",
        Test::Before(_) | Test::AnyOf(..) => return,
    };
    let Target::Stored(stored) = &item.target else {
        return;
    };
    let Some(named) = stored.indexed_type else {
        return;
    };
    for subtype in schema.type_of(named).subtypes().iter() {
        let known = schema.type_of(subtype);
        let is_used = subtype == named || state.attributes.of_type(subtype).next().is_some();
        let kind = useful_kind(known, kind).filter(|_| is_used);
        let indexes = state.indexes.of(subtype);
        if let Some(kind) = kind
            && !indexes.is_some_and(|indexes| indexes.is_complete(kind))
        {
            missing.insert(format!("{} {kind}", known.name()));
        }
    }
}
