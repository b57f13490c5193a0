//! Trees whose keys and values have types.
//!
//! The store keeps bytes. A [`TypedTree`] says of a tree what its keys and values are, and how they become bytes that
//! are ordered as they are ([`Encoding`], [`KeyEncoding`]); nothing of it is stored. [`TypedTreeId::id`] and
//! [`TypedView::raw`] lead to the tree as it is.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::env::mapping::MappedPages;
use crate::error::{Error, Result};
use crate::format::tree_record::TreeKind;
use crate::tree::Range;
use crate::txn::snapshot::{Snapshot, Tree};
use crate::txn::{TreeId, WriteTxn};

/// How the items of a type are kept as bytes.
///
/// There are encodings of integers, `bool`, `str`, `[u8]` and arrays of bytes, `()`, and of pairs whose first part is
/// of one length ([`FixedEncoding`]). A program adds its own:
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// use sapwood_store::{Encoding, Env, Options, TypedTree};
///
/// #[derive(Debug, PartialEq)]
/// struct Point { x: i32, y: i32 }
///
/// impl Encoding for Point {
///     type Item<'a> = Point;
///
///     fn with_bytes<R>(point: &Point, then: impl FnOnce(&[u8]) -> R) -> R {
///         <(i32, i32)>::with_bytes(&(point.x, point.y), then)
///     }
///
///     fn decode(bytes: &[u8]) -> Option<Point> {
///         let (x, y) = <(i32, i32)>::decode(bytes)?;
///         Some(Point { x, y })
///     }
/// }
///
/// const PLACES: TypedTree<str, Point> = TypedTree::new("places");
///
/// let env = Env::in_memory(&Options::new())?;
/// let mut txn = env.write()?;
/// let places = PLACES.create(&mut txn)?;
/// places.put(&mut txn, "home", Point { x: 3, y: -4 })?;
/// assert_eq!(places.get(&txn, "home")?, Some(Point { x: 3, y: -4 }));
/// # Ok(())
/// # }
/// ```
pub trait Encoding {
    /// What is stored, and what is read: it may borrow from the store.
    type Item<'a>;

    /// Gives the bytes of an item to `then`.
    fn with_bytes<R>(item: &Self::Item<'_>, then: impl FnOnce(&[u8]) -> R) -> R;

    /// The item that these are the bytes of; `None` if they are of none.
    fn decode(bytes: &[u8]) -> Option<Self::Item<'_>>;
}

/// An [`Encoding`] whose bytes, compared one after the other from the first, are ordered as the items are, and differ
/// if the items do: keys can have it.
pub trait KeyEncoding: Encoding {}

/// An [`Encoding`] whose bytes are always as many, so that something else can stand behind them.
pub trait FixedEncoding: Encoding {
    /// The length in bytes.
    const BYTES: usize;
}

/// What refers to a tree is copied, whether or not its keys and values can be.
macro_rules! copied {
    ($($type:ty),*) => {$(
        impl<K: ?Sized, V: ?Sized> Clone for $type {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<K: ?Sized, V: ?Sized> Copy for $type {}
    )*};
}

copied!(TypedTree<'_, K, V>, TypedTreeId<K, V>, TypedView<'_, K, V>);

/// Of signed integers the first bit is turned over, so that negative numbers come first.
macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Encoding for $integer {
            type Item<'a> = Self;

            fn with_bytes<R>(item: &Self, then: impl FnOnce(&[u8]) -> R) -> R {
                then(&(item ^ Self::MIN).to_be_bytes())
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_be_bytes(bytes.try_into().ok()?) ^ Self::MIN)
            }
        }

        impl KeyEncoding for $integer {}

        impl FixedEncoding for $integer {
            const BYTES: usize = size_of::<Self>();
        }
    )*};
}

integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl Encoding for bool {
    type Item<'a> = Self;

    fn with_bytes<R>(item: &Self, then: impl FnOnce(&[u8]) -> R) -> R {
        then(&[u8::from(*item)])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl KeyEncoding for bool {}

impl FixedEncoding for bool {
    const BYTES: usize = 1;
}

/// Nothing: the value of a set's keys.
impl Encoding for () {
    type Item<'a> = ();

    fn with_bytes<R>((): &(), then: impl FnOnce(&[u8]) -> R) -> R {
        then(&[])
    }

    fn decode(bytes: &[u8]) -> Option<()> {
        bytes.is_empty().then_some(())
    }
}

impl Encoding for [u8] {
    type Item<'a> = &'a [u8];

    fn with_bytes<R>(item: &&[u8], then: impl FnOnce(&[u8]) -> R) -> R {
        then(item)
    }

    fn decode(bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes)
    }
}

impl KeyEncoding for [u8] {}

impl Encoding for str {
    type Item<'a> = &'a str;

    fn with_bytes<R>(item: &&str, then: impl FnOnce(&[u8]) -> R) -> R {
        then(item.as_bytes())
    }

    fn decode(bytes: &[u8]) -> Option<&str> {
        str::from_utf8(bytes).ok()
    }
}

impl KeyEncoding for str {}

impl<const N: usize> Encoding for [u8; N] {
    type Item<'a> = Self;

    fn with_bytes<R>(item: &Self, then: impl FnOnce(&[u8]) -> R) -> R {
        then(item)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

impl<const N: usize> KeyEncoding for [u8; N] {}

impl<const N: usize> FixedEncoding for [u8; N] {
    const BYTES: usize = N;
}

/// The first part is of one length, so the second one needs no mark where it begins, and pairs are ordered by their
/// parts.
impl<A: FixedEncoding, B: Encoding + ?Sized> Encoding for (A, B)
where
    for<'a> B::Item<'a>: Sized,
{
    type Item<'a> = (A::Item<'a>, B::Item<'a>);

    fn with_bytes<R>((a, b): &Self::Item<'_>, then: impl FnOnce(&[u8]) -> R) -> R {
        A::with_bytes(a, |a| B::with_bytes(b, |b| then(&[a, b].concat())))
    }

    fn decode(bytes: &[u8]) -> Option<Self::Item<'_>> {
        let (a, b) = bytes.split_at_checked(A::BYTES)?;
        Some((A::decode(a)?, B::decode(b)?))
    }
}

impl<A: FixedEncoding + KeyEncoding, B: KeyEncoding + ?Sized> KeyEncoding for (A, B) {}

impl<A: FixedEncoding, B: FixedEncoding> FixedEncoding for (A, B) {
    const BYTES: usize = A::BYTES + B::BYTES;
}

/// A tree by its name, with the types of its keys and values. It may be a constant.
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// use sapwood_store::{Env, Options, TypedTree};
///
/// const PERSONS: TypedTree<u64, str> = TypedTree::new("persons");
///
/// let env = Env::in_memory(&Options::new())?;
/// let mut txn = env.write()?;
/// let persons = PERSONS.create(&mut txn)?;
/// persons.put(&mut txn, 7, "Anna")?;
/// persons.put(&mut txn, 300, "Boris")?;
/// txn.commit()?.wait_durable()?;
///
/// let snapshot = env.read()?;
/// if let Some(persons) = PERSONS.read(&snapshot)? {
///     assert_eq!(persons.get(7)?, Some("Anna"));
///     for person in persons.range(8..)? {
///         let person = person?;
///         assert_eq!((person.key(), person.value()), (300, "Boris"));
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct TypedTree<'n, K: ?Sized, V: ?Sized> {
    name: &'n str,
    kind: TreeKind,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for TypedTree<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedTree").field(&self.name).finish()
    }
}

impl<'n, K: KeyEncoding + ?Sized, V: Encoding + ?Sized> TypedTree<'n, K, V> {
    /// The tree of this name, which is [`TreeKind::COMPACT`] if it has to be created.
    pub const fn new(name: &'n str) -> Self {
        Self {
            name,
            kind: TreeKind::COMPACT,
            types: PhantomData,
        }
    }

    /// As what it is created; one that is there stays what it is.
    pub const fn with_kind(self, kind: TreeKind) -> Self {
        Self { kind, ..self }
    }

    /// Its name.
    pub const fn name(&self) -> &'n str {
        self.name
    }

    /// The tree in a write transaction, created if there is none.
    pub fn create(&self, txn: &mut WriteTxn) -> Result<TypedTreeId<K, V>> {
        let tree = match txn.tree(self.name)? {
            Some(tree) => tree,
            None => txn.create_tree(self.name, self.kind)?,
        };
        Ok(TypedTreeId::new(tree))
    }

    /// The tree in a write transaction, if there is one.
    pub fn open(&self, txn: &mut WriteTxn) -> Result<Option<TypedTreeId<K, V>>> {
        Ok(txn.tree(self.name)?.map(TypedTreeId::new))
    }

    /// The tree in a snapshot, if there is one.
    pub fn read<'s>(&self, snapshot: &'s Snapshot) -> Result<Option<TypedView<'s, K, V>>> {
        Ok(snapshot.tree(self.name)?.map(TypedView::new))
    }
}

/// A tree of a write transaction, with the types of its keys and values.
pub struct TypedTreeId<K: ?Sized, V: ?Sized> {
    tree: TreeId,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for TypedTreeId<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedTreeId").field(&self.tree).finish()
    }
}

impl<K: KeyEncoding + ?Sized, V: Encoding + ?Sized> TypedTreeId<K, V> {
    /// Says of a tree what its keys and values are.
    pub fn new(tree: TreeId) -> Self {
        Self {
            tree,
            types: PhantomData,
        }
    }

    /// The tree of bytes.
    pub fn id(self) -> TreeId {
        self.tree
    }

    /// The tree as the transaction sees it.
    pub fn view(self, txn: &WriteTxn) -> Result<TypedView<'_, K, V>> {
        txn.view(self.tree).map(TypedView::new)
    }

    /// The value of a key, as [`WriteTxn::get`].
    pub fn get<'t>(self, txn: &'t WriteTxn, key: K::Item<'_>) -> Result<Option<V::Item<'t>>> {
        self.view(txn)?.get(key)
    }

    /// Stores a record, as [`WriteTxn::put`]; whether the key (among duplicates, the value) was not there.
    pub fn put(self, txn: &mut WriteTxn, key: K::Item<'_>, value: V::Item<'_>) -> Result<bool> {
        K::with_bytes(&key, |key| {
            V::with_bytes(&value, |value| txn.put(self.tree, key, value))
        })
    }

    /// Stores a record unless its key is there, as [`WriteTxn::insert`]; whether it was stored.
    pub fn insert(self, txn: &mut WriteTxn, key: K::Item<'_>, value: V::Item<'_>) -> Result<bool> {
        K::with_bytes(&key, |key| {
            V::with_bytes(&value, |value| txn.insert(self.tree, key, value))
        })
    }

    /// Deletes a key with all its values, as [`WriteTxn::delete`]; whether it was there.
    pub fn delete(self, txn: &mut WriteTxn, key: K::Item<'_>) -> Result<bool> {
        K::with_bytes(&key, |key| txn.delete(self.tree, key))
    }

    /// Deletes one value of a key, as [`WriteTxn::delete_duplicate`]; whether it was there.
    pub fn delete_duplicate(
        self,
        txn: &mut WriteTxn,
        key: K::Item<'_>,
        value: V::Item<'_>,
    ) -> Result<bool> {
        K::with_bytes(&key, |key| {
            V::with_bytes(&value, |value| txn.delete_duplicate(self.tree, key, value))
        })
    }

    /// Deletes all records whose keys are in a range, as [`WriteTxn::delete_range`]; how many there were.
    pub fn delete_range<'k>(
        self,
        txn: &mut WriteTxn,
        keys: impl RangeBounds<K::Item<'k>>,
    ) -> Result<u64> {
        with_bounds::<K, _>(&keys, |from, to| txn.delete_range(self.tree, from, to))
    }
}

/// A [`Tree`] with the types of its keys and values.
pub struct TypedView<'s, K: ?Sized, V: ?Sized> {
    tree: Tree<'s>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for TypedView<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedView")
            .field(self.tree.record())
            .finish()
    }
}

impl<'s, K: KeyEncoding + ?Sized, V: Encoding + ?Sized> TypedView<'s, K, V> {
    /// Says of a tree what its keys and values are.
    pub fn new(tree: Tree<'s>) -> Self {
        Self {
            tree,
            types: PhantomData,
        }
    }

    /// The tree of bytes.
    pub fn raw(&self) -> &Tree<'s> {
        &self.tree
    }

    /// The value of a key; the first one if it has several. [`Error::WrongType`] if its bytes are of no such value.
    pub fn get(&self, key: K::Item<'_>) -> Result<Option<V::Item<'s>>> {
        let value = K::with_bytes(&key, |key| self.tree.get(key))?;
        let decode = |value| V::decode(value).ok_or(Error::WrongType("value"));
        value.map(decode).transpose()
    }

    /// Whether there is a record with this key.
    pub fn contains(&self, key: K::Item<'_>) -> Result<bool> {
        Ok(K::with_bytes(&key, |key| self.tree.get(key))?.is_some())
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        self.tree.record().records
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record with the least key.
    pub fn first(&self) -> Result<Option<TypedEntry<'s, K, V>>> {
        self.iter()?.next().transpose()
    }

    /// The record with the greatest key.
    pub fn last(&self) -> Result<Option<TypedEntry<'s, K, V>>> {
        self.iter()?.next_back().transpose()
    }

    /// All records, ascending.
    pub fn iter(&self) -> Result<TypedRange<'s, K, V>> {
        self.range(..)
    }

    /// The records whose keys are in a range, ascending from the front and descending from the back.
    pub fn range<'k>(&self, keys: impl RangeBounds<K::Item<'k>>) -> Result<TypedRange<'s, K, V>> {
        let range = with_bounds::<K, _>(&keys, |from, to| self.tree.range(from, to))?;
        Ok(TypedRange {
            range,
            has_failed: false,
            types: PhantomData,
        })
    }
}

/// A record that was read. Its value is where the tree has it.
pub struct TypedEntry<'s, K: ?Sized, V: ?Sized> {
    key: Vec<u8>,
    value: &'s [u8],
    types: PhantomData<fn(&K, &V)>,
}

impl<'s, K: KeyEncoding + ?Sized, V: Encoding + ?Sized> TypedEntry<'s, K, V> {
    fn new(key: &[u8], value: &'s [u8]) -> Result<Self> {
        if K::decode(key).is_none() {
            return Err(Error::WrongType("key"));
        }
        if V::decode(value).is_none() {
            return Err(Error::WrongType("value"));
        }
        Ok(Self {
            key: key.to_vec(),
            value,
            types: PhantomData,
        })
    }

    /// The key.
    pub fn key(&self) -> K::Item<'_> {
        match K::decode(&self.key) {
            Some(key) => key,
            None => unreachable!("the key was decoded when it was read"),
        }
    }

    /// The value.
    pub fn value(&self) -> V::Item<'s> {
        match V::decode(self.value) {
            Some(value) => value,
            None => unreachable!("the value was decoded when it was read"),
        }
    }
}

impl<'s, K: KeyEncoding + ?Sized, V: Encoding + ?Sized> fmt::Debug for TypedEntry<'s, K, V>
where
    for<'a> K::Item<'a>: fmt::Debug,
    V::Item<'s>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedEntry")
            .field("key", &self.key())
            .field("value", &self.value())
            .finish()
    }
}

/// An iterator over the records of a range of keys, from either end. It ends after an error.
pub struct TypedRange<'s, K: ?Sized, V: ?Sized> {
    range: Range<'s, MappedPages>,
    has_failed: bool,
    types: PhantomData<fn(&K, &V)>,
}

impl<'s, K: KeyEncoding + ?Sized, V: Encoding + ?Sized> TypedRange<'s, K, V> {
    fn step(&mut self, back: bool) -> Option<Result<TypedEntry<'s, K, V>>> {
        if self.has_failed {
            return None;
        }
        let record = match back {
            true => self.range.next_back(),
            false => self.range.next(),
        };
        let entry = match record {
            Ok(None) => return None,
            Ok(Some((key, value))) => TypedEntry::new(key, value),
            Err(error) => Err(error),
        };
        self.has_failed = entry.is_err();
        Some(entry)
    }
}

impl<'s, K: KeyEncoding + ?Sized, V: Encoding + ?Sized> Iterator for TypedRange<'s, K, V> {
    type Item = Result<TypedEntry<'s, K, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<K: KeyEncoding + ?Sized, V: Encoding + ?Sized> DoubleEndedIterator for TypedRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<K: KeyEncoding + ?Sized, V: Encoding + ?Sized> FusedIterator for TypedRange<'_, K, V> {}

impl<K: ?Sized, V: ?Sized> fmt::Debug for TypedRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedRange").finish_non_exhaustive()
    }
}

/// Gives the bounds of a range of items as bytes to `then`.
fn with_bounds<'k, K: Encoding + ?Sized, R>(
    bounds: &impl RangeBounds<K::Item<'k>>,
    then: impl FnOnce(Bound<&[u8]>, Bound<&[u8]>) -> R,
) -> R {
    with_bound::<K, _>(bounds.start_bound(), |from| {
        with_bound::<K, _>(bounds.end_bound(), |to| then(from, to))
    })
}

fn with_bound<K: Encoding + ?Sized, R>(
    bound: Bound<&K::Item<'_>>,
    then: impl FnOnce(Bound<&[u8]>) -> R,
) -> R {
    match bound {
        Bound::Unbounded => then(Bound::Unbounded),
        Bound::Included(item) => K::with_bytes(item, |bytes| then(Bound::Included(bytes))),
        Bound::Excluded(item) => K::with_bytes(item, |bytes| then(Bound::Excluded(bytes))),
    }
}
