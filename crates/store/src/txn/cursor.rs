//! Cursors that outlast changes of the tree they stand in.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{TreeId, WriteTxn};
use crate::error::{Error, Result};
use crate::tree::Position;
use crate::txn::snapshot::{Tree, TreeCursor};

/// A cursor of a write transaction that borrows nothing from it: it is lent the transaction for each movement and each
/// change. It remembers the record it stands on, so that any other change, also one of its own, leaves it where it is;
/// and if its record was deleted, in the gap between those that preceded and followed it.
///
/// ```
/// # fn main() -> sapwood_store::Result<()> {
/// # use sapwood_store::{Env, Options, TreeKind};
/// # let env = Env::in_memory(&Options::new())?;
/// let mut txn = env.write()?;
/// let tree = txn.create_tree("letters", TreeKind::WHOLE)?;
/// for key in [b"a", b"b", b"c"] {
///     txn.put(tree, key, b"")?;
/// }
/// let mut cursor = txn.cursor(tree);
/// cursor.read(&txn)?.seek_exact(b"b")?;
/// cursor.delete(&mut txn)?;
/// let mut reading = cursor.read(&txn)?;
/// assert!(reading.next()?);
/// assert_eq!(reading.whole_key()?, Some(&b"c"[..]));
/// # Ok(())
/// # }
/// ```
///
/// What it lends lives no longer than the transaction stays unchanged:
///
/// ```compile_fail
/// # use sapwood_store::{Env, Options, TreeKind};
/// # let env = Env::in_memory(&Options::new()).unwrap();
/// let mut txn = env.write().unwrap();
/// let tree = txn.create_tree("letters", TreeKind::WHOLE).unwrap();
/// let mut cursor = txn.cursor(tree);
/// let value = cursor.read(&txn).unwrap().value().unwrap();
/// txn.put(tree, b"a", b"").unwrap();
/// println!("{value:?}");
/// ```
#[derive(Clone)]
pub struct WriteCursor {
    tree: TreeId,
    /// Whether it stands on a record or in a gap, and not nowhere.
    standing: bool,
    key: Vec<u8>,
    /// In trees with duplicates.
    value: Vec<u8>,
    /// Where that is, as long as the tree is as it was at this count of changes.
    position: Position,
    seen: Option<u64>,
}

/// A [`WriteCursor`] while it moves and reads: a [`TreeCursor`], whose movements it takes over when this is dropped.
pub struct CursorInTxn<'c, 't> {
    state: &'c mut WriteCursor,
    cursor: TreeCursor<'t>,
    /// What it is a cursor of, which somebody may put another one in place of.
    tree: Tree<'t>,
    /// The count of changes of that.
    changed: u64,
    /// The one for which the cursor knew its place.
    seen: Option<u64>,
    /// It may stand elsewhere than the cursor knows.
    has_moved: bool,
}

impl WriteTxn {
    /// A cursor that stands nowhere yet.
    pub fn cursor(&self, tree: TreeId) -> WriteCursor {
        WriteCursor {
            tree,
            standing: false,
            key: Vec::new(),
            value: Vec::new(),
            position: Position::default(),
            seen: None,
        }
    }
}

impl WriteCursor {
    /// The tree it stands in.
    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// The cursor to be moved and read, as the transaction is now.
    pub fn read<'c, 't>(&'c mut self, txn: &'t WriteTxn) -> Result<CursorInTxn<'c, 't>> {
        let mut lent = self.read_from_nowhere(txn)?;
        if lent.state.standing {
            lent.has_moved = lent.seen != Some(lent.changed);
            lent.cursor = match lent.has_moved {
                true => {
                    let mut cursor = lent.tree.cursor();
                    cursor.stand_at(&lent.state.key, &lent.state.value)?;
                    cursor
                }
                false => TreeCursor::resume(lent.tree, &lent.state.position)?,
            };
        }
        Ok(lent)
    }

    /// As [`WriteCursor::read`], for the one that moves it somewhere else at once: it stands nowhere, and does not look
    /// for its place first.
    pub fn read_from_nowhere<'c, 't>(
        &'c mut self,
        txn: &'t WriteTxn,
    ) -> Result<CursorInTxn<'c, 't>> {
        let tree = txn.view(self.tree)?;
        let changed = txn.open(self.tree)?.changed;
        // Until it is told where it has been moved to.
        let seen = self.seen.take();
        Ok(CursorInTxn {
            state: self,
            cursor: tree.cursor(),
            tree,
            changed,
            seen,
            has_moved: true,
        })
    }

    /// Goes to the first record of this key and gives its value, or nowhere: as [`TreeCursor::seek_exact`], for the
    /// caller that wants nothing else. A [`WriteCursor::put`] of the same key that follows need not search for it.
    pub fn seek_exact<'t>(&mut self, txn: &'t WriteTxn, key: &[u8]) -> Result<Option<&'t [u8]>> {
        (self.standing, self.seen) = (false, None);
        let open = txn.open(self.tree)?;
        let tree = open.view(txn.pages());
        let found = self.position.seek_exact(&tree, key)?;
        let has_duplicates = tree.record().kind.duplicates.is_some();
        self.stand_on(key, found.filter(|_| has_duplicates).unwrap_or_default());
        (self.standing, self.seen) = (found.is_some(), Some(open.changed));
        Ok(found)
    }

    /// The key it stands on, or has just searched for in vain, and whether it is there; if it knows its place.
    pub fn known_key(&self, txn: &WriteTxn) -> Result<Option<(&[u8], bool)>> {
        let has_place = match self.standing {
            true => self.position.is_on_record(),
            false => self.position.missed_place().is_some(),
        };
        let is_known = has_place && self.seen == Some(txn.open(self.tree)?.changed);
        Ok(is_known.then_some((&self.key, self.standing)))
    }

    /// Where a key is or would be, if the cursor knows.
    fn place_of(&self, txn: &WriteTxn, key: &[u8]) -> Result<Option<&Position>> {
        let is_known = self.known_key(txn)?.is_some_and(|(known, _)| known == key);
        Ok(is_known.then_some(&self.position))
    }

    /// How many values the key has that it stands on: [`TreeCursor::duplicates`], mostly without looking for its place.
    pub fn duplicates(&mut self, txn: &WriteTxn) -> Result<u64> {
        match self.position.known_duplicates() {
            Some(count) if matches!(self.known_key(txn)?, Some((_, true))) => {
                txn.env().inner().check_usable().map(|()| count)
            }
            _ => self.read(txn)?.duplicates(),
        }
    }

    /// [`WriteTxn::put`], after which the cursor stands on the record.
    pub fn put(&mut self, txn: &mut WriteTxn, key: &[u8], value: &[u8]) -> Result<bool> {
        let at = self.place_of(txn, key)?;
        let is_key_known = at.is_some();
        let is_new = txn.change(self.tree, false, |tree| tree.put_at(at, key, value))?;
        self.stand_on_value(key, is_key_known, value);
        Ok(is_new)
    }

    /// [`WriteTxn::insert`], after which the cursor stands on the record; if it was there already, on its first value.
    pub fn insert(&mut self, txn: &mut WriteTxn, key: &[u8], value: &[u8]) -> Result<bool> {
        let is_new = txn.insert(self.tree, key, value)?;
        match is_new {
            true => self.stand_on(key, value),
            false => drop(self.read(txn)?.seek_exact(key)?),
        }
        Ok(is_new)
    }

    /// [`WriteTxn::append`], after which the cursor stands on the record.
    pub fn append(&mut self, txn: &mut WriteTxn, key: &[u8], value: &[u8]) -> Result<()> {
        txn.append(self.tree, key, value)?;
        self.stand_on(key, value);
        Ok(())
    }

    /// [`WriteTxn::append_duplicate`], after which the cursor stands on the record.
    pub fn append_duplicate(&mut self, txn: &mut WriteTxn, key: &[u8], value: &[u8]) -> Result<()> {
        let at = self.place_of(txn, key)?;
        let is_key_known = at.is_some();
        txn.change(self.tree, false, |tree| {
            tree.append_duplicate_at(at, key, value)
        })?;
        self.stand_on_value(key, is_key_known, value);
        Ok(())
    }

    /// [`WriteTxn::put_multiple`], after which the cursor stands on the last of the values.
    pub fn put_multiple(
        &mut self,
        txn: &mut WriteTxn,
        key: &[u8],
        size: usize,
        values: &[u8],
    ) -> Result<usize> {
        let new = txn.put_multiple(self.tree, key, size, values)?;
        if let Some(last) = values.len().checked_sub(size) {
            self.stand_on(key, &values[last..]);
        }
        Ok(new)
    }

    /// [`WriteTxn::reserve`], after which the cursor stands on the record.
    pub fn reserve<'t>(
        &mut self,
        txn: &'t mut WriteTxn,
        key: &[u8],
        len: usize,
    ) -> Result<&'t mut [u8]> {
        let place = txn.reserve(self.tree, key, len)?;
        self.stand_on(key, &[]);
        Ok(place)
    }

    /// Replaces the value of the record the cursor stands on. In a tree with duplicates it replaces this one of the
    /// key's values, and the cursor goes where the new one belongs. [`Error::NoRecord`] if it stands nowhere or its
    /// record was deleted.
    pub fn put_current(&mut self, txn: &mut WriteTxn, value: &[u8]) -> Result<()> {
        let has_duplicates = self.is_on_record(txn)?.ok_or(Error::NoRecord)?;
        let at = self.place_of(txn, &self.key)?;
        let key = &self.key;
        txn.change(self.tree, false, |tree| match has_duplicates {
            true => tree.replace_duplicate(at, key, &self.value, value),
            false => tree.put_at(at, key, value).map(drop),
        })?;
        self.seen = None;
        self.value.clear();
        self.value.extend_from_slice(value);
        Ok(())
    }

    /// Deletes the record the cursor stands on; in a tree with duplicates, this one of the key's values. The cursor
    /// then stands in its gap. [`Error::NoRecord`] if it stands nowhere or its record was deleted before.
    pub fn delete(&mut self, txn: &mut WriteTxn) -> Result<()> {
        let deleted = match self.is_on_record(txn)? {
            Some(true) => txn.delete_duplicate(self.tree, &self.key, &self.value)?,
            Some(false) => txn.delete(self.tree, &self.key)?,
            None => false,
        };
        deleted.then_some(()).ok_or(Error::NoRecord)
    }

    /// Deletes the key of the record the cursor stands on, with all its values; otherwise like [`WriteCursor::delete`].
    pub fn delete_key(&mut self, txn: &mut WriteTxn) -> Result<()> {
        let is_there = self.is_on_record(txn)?.is_some();
        let deleted = is_there && txn.delete(self.tree, &self.key)?;
        deleted.then_some(()).ok_or(Error::NoRecord)
    }

    /// Whether its record is there, and if so whether the tree has duplicates.
    fn is_on_record(&mut self, txn: &WriteTxn) -> Result<Option<bool>> {
        if matches!(self.known_key(txn)?, Some((_, true))) {
            let kind = txn.view(self.tree)?.record().kind;
            return Ok(Some(kind.duplicates.is_some()));
        }
        let reading = self.read(txn)?;
        let is_there = !reading.is_in_gap() && reading.value()?.is_some();
        Ok(is_there.then(|| reading.has_duplicates()))
    }

    /// From now on stands on this record, wherever that is; in the gap where it would be if there is none.
    pub fn stand_on(&mut self, key: &[u8], value: &[u8]) {
        self.stand_on_value(key, false, value);
    }

    /// The same. `is_key_known` says that it is the key that the cursor remembers already.
    #[inline]
    fn stand_on_value(&mut self, key: &[u8], is_key_known: bool, value: &[u8]) {
        (self.standing, self.seen) = (true, None);
        if !is_key_known {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.value.clear();
        self.value.extend_from_slice(value);
    }

    fn remember(&mut self, cursor: &mut TreeCursor<'_>) -> Result<()> {
        self.standing = cursor.is_standing();
        if self.standing && !cursor.is_in_gap() {
            self.key.clear();
            match cursor.whole_key()? {
                Some(key) => self.key.extend_from_slice(key),
                None => self.key.extend(cursor.key()?.unwrap_or_default()),
            }
            self.value.clear();
            if cursor.has_duplicates() {
                self.value.extend(cursor.value()?.unwrap_or_default());
            }
        }
        cursor.note(&mut self.position);
        Ok(())
    }
}

impl<'t> Deref for CursorInTxn<'_, 't> {
    type Target = TreeCursor<'t>;

    fn deref(&self) -> &TreeCursor<'t> {
        &self.cursor
    }
}

impl<'t> DerefMut for CursorInTxn<'_, 't> {
    fn deref_mut(&mut self) -> &mut TreeCursor<'t> {
        self.has_moved = true;
        &mut self.cursor
    }
}

impl Drop for CursorInTxn<'_, '_> {
    fn drop(&mut self) {
        if !self.has_moved {
            self.state.seen = self.seen;
            return;
        }
        // A damaged page leaves it nowhere, and so does the cursor of another tree.
        let is_remembered =
            self.cursor.is_in(&self.tree) && self.state.remember(&mut self.cursor).is_ok();
        self.state.standing &= is_remembered;
        self.state.seen = is_remembered.then_some(self.changed);
    }
}

impl fmt::Debug for WriteCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteCursor")
            .field("tree", &self.tree)
            .field("key", &self.standing.then_some(&self.key))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CursorInTxn<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}
