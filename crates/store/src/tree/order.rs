//! How keys and duplicates are compared.

use std::cmp::Ordering;
use std::fmt;

use crate::error::{Error, Result};
use crate::format::tree_record::{KeyOrder, TreeKind};

/// An order of a program's own: total, and the same for as long as a tree that it orders has records.
///
/// A comparator that contradicts itself, or another one than a tree was written with, makes records hard to find; it
/// does no other harm.
pub type Comparator = dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync;

/// The comparators of one tree; `None` leaves the order as the tree's [`TreeKind`] has it.
///
/// They live as long as the process: `&function` does. Only trees of whole keys can have any.
#[derive(Clone, Copy, Default)]
pub struct Comparators {
    /// Compares keys.
    pub keys: Option<&'static Comparator>,
    /// Compares the duplicates of one key.
    pub duplicates: Option<&'static Comparator>,
}

impl fmt::Debug for Comparators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comparators")
            .field("keys", &self.keys.is_some())
            .field("duplicates", &self.duplicates.is_some())
            .finish()
    }
}

/// An order as it is carried out.
#[derive(Clone, Copy, Default)]
pub(crate) enum Order {
    #[default]
    Bytes,
    Reverse,
    Integer,
    By(&'static Comparator),
    /// Custom, and the comparator is not known.
    Unknown,
}

impl Order {
    fn new(stored: KeyOrder, comparator: Option<&'static Comparator>) -> Self {
        match (comparator, stored) {
            (Some(comparator), _) => Self::By(comparator),
            (None, KeyOrder::Bytes) => Self::Bytes,
            (None, KeyOrder::Reverse) => Self::Reverse,
            (None, KeyOrder::Integer) => Self::Integer,
            (None, KeyOrder::Custom) => Self::Unknown,
        }
    }

    #[inline]
    pub(crate) fn is_bytes(self) -> bool {
        matches!(self, Self::Bytes)
    }

    pub(crate) fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown)
    }

    #[inline]
    pub(crate) fn compare(self, a: &[u8], b: &[u8]) -> Result<Ordering> {
        Ok(match self {
            Self::Bytes => a.cmp(b),
            Self::Reverse => a.iter().rev().cmp(b.iter().rev()),
            Self::Integer => compare_integers(a, b),
            Self::By(comparator) => comparator(a, b),
            Self::Unknown => return Err(Error::NoComparator),
        })
    }
}

fn compare_integers(a: &[u8], b: &[u8]) -> Ordering {
    if let (Ok(a), Ok(b)) = (a.try_into(), b.try_into()) {
        return u64::from_le_bytes(a).cmp(&u64::from_le_bytes(b));
    }
    let by_length = a.len().cmp(&b.len());
    by_length.then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

/// Both orders of a tree.
#[derive(Clone, Copy, Default)]
pub(crate) struct Orders {
    pub(crate) keys: Order,
    pub(crate) duplicates: Order,
}

impl Orders {
    /// The orders of a tree. Where keys are not whole they cannot be compared otherwise than bytewise.
    pub(crate) fn new(kind: TreeKind, mut comparators: Comparators) -> Self {
        if !kind.whole {
            comparators = Comparators::default();
        }
        let duplicates = kind.duplicates.unwrap_or_default();
        Self {
            keys: Order::new(kind.order, comparators.keys),
            duplicates: Order::new(duplicates.order, comparators.duplicates),
        }
    }

    /// The kind of a tree that is changed under these orders.
    pub(crate) fn recorded_in(self, mut kind: TreeKind) -> TreeKind {
        if matches!(self.keys, Order::By(_)) {
            kind.order = KeyOrder::Custom;
        }
        if let (Some(duplicates), Order::By(_)) = (&mut kind.duplicates, self.duplicates) {
            duplicates.order = KeyOrder::Custom;
        }
        kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_what_they_say() {
        let less = |order: Order, a: &[u8], b: &[u8]| {
            assert_eq!(order.compare(a, b).unwrap(), Ordering::Less);
            assert_eq!(order.compare(b, a).unwrap(), Ordering::Greater);
            assert_eq!(order.compare(a, a).unwrap(), Ordering::Equal);
        };
        less(Order::Bytes, b"ab", b"b");
        less(Order::Reverse, b"ba", b"ab");
        less(Order::Reverse, b"b", b"ab");
        less(Order::Integer, &[255, 0, 0, 0], &[0, 1, 0, 0]);
        less(Order::Integer, &255u64.to_le_bytes(), &256u64.to_le_bytes());
        less(Order::Integer, &u32::MAX.to_le_bytes(), &0u64.to_le_bytes());
        less(Order::By(&|a, b| b.cmp(a)), b"b", b"a");
        assert!(Order::Unknown.compare(b"a", b"a").is_err());
    }
}
