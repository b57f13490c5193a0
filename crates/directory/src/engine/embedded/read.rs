//! What a snapshot and a transaction read alike.

use sapwood_store::Tree;

use super::{EmbeddedCursor, EmbeddedPostings, feed};
use crate::engine::ids;
use crate::engine::pending::{self, Amended, Posting};
use crate::engine::placement::{self, Scanned};
use crate::engine::postings::{self, Change, List, append_escaped};
use crate::engine::{
    CommitNo, Direction, EntryId, Index, IndexKind, POSTINGS_FEW_MAX, Place, Postings, Range, Read,
    Result, Table, key_by_counting,
};

/// A tree with fewer leaves (16 MiB) is usually in the processor's caches, and is not prefetched. Unoptimised builds,
/// which run the tests, prefetch trees of any size.
const FETCHED_LEAF_PAGES_MIN: u64 = if cfg!(debug_assertions) { 1 } else { 4096 };

/// Where the trees of tables and indexes are found.
pub(super) trait Trees {
    fn commit(&self) -> CommitNo;

    /// How many stores there are.
    fn stores(&self) -> usize;

    /// The tree of a table in a store; none when it was never written.
    fn table(&self, store: usize, table: Table) -> Result<Option<Tree<'_>>>;

    /// The tree of an index's blocks in a store; none when it was not created.
    fn blocks(&self, store: usize, index: Index) -> Result<Option<Tree<'_>>>;

    /// The tree of the postings that pend in a store; none when there never were any.
    fn pending(&self, store: usize) -> Result<Option<Tree<'_>>>;

    /// The tree of the change feed in a store; none when nothing was changed yet.
    fn feed(&self, store: usize) -> Result<Option<Tree<'_>>>;

    /// The postings of a transaction that came after them, for an index.
    fn put_off(&self, store: usize, index: Index) -> impl Iterator<Item = &Posting> {
        let _ = (store, index);
        [].iter()
    }

    /// The postings of a transaction that are not in the lists of an index yet and will not pend, in the order in which
    /// they were made, with their keys.
    fn unfiled(&self, store: usize, index: Index) -> impl Iterator<Item = (&[u8], Change)> {
        let _ = (store, index);
        std::iter::empty()
    }

    /// Those of one list.
    fn unfiled_of(&self, store: usize, index: Index, key: &[u8]) -> Vec<Change> {
        let _ = (store, index, key);
        Vec::new()
    }

    /// What pends for a list in a store, ids ascending.
    fn changes(&self, store: usize, index: Index, key: &[u8]) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        let Some(gram) = pending::gram(index, key) else {
            changes = self.unfiled_of(store, index, key);
            pending::sort_changes(&mut changes);
            return Ok(changes);
        };
        if let Some(tree) = self.pending(store)? {
            pending::changes(index.attribute, tree, gram, &mut changes)?;
        }
        let put_off = self.put_off(store, index);
        let of_list = put_off.filter(|posting| posting.gram == gram);
        changes.extend(of_list.map(|posting| posting.change));
        pending::sort_changes(&mut changes);
        Ok(changes)
    }

    /// What pends for an index in a store, ascending.
    fn changes_of_all(&self, store: usize, index: Index) -> Result<Vec<Posting>> {
        let mut postings = Vec::new();
        if index.kind != IndexKind::Substring {
            return Ok(postings);
        }
        if let Some(tree) = self.pending(store)? {
            pending::postings(index.attribute, tree, &mut postings)?;
        }
        postings.extend(self.put_off(store, index));
        let mut sorted = Vec::with_capacity(postings.len());
        pending::each_list(&postings, |gram, changes| {
            let postings = changes.iter().map(|&change| Posting { gram, change });
            sorted.extend(postings);
            Ok(())
        })?;
        Ok(sorted)
    }

    /// Like [`Read::cardinality`], of one store.
    fn cardinality(
        &self,
        store: usize,
        index: Index,
        key: &[u8],
        few: &mut Vec<EntryId>,
    ) -> Result<u64> {
        let tree = self.blocks(store, index)?;
        let mut ids = postings::cardinality(index, tree, key, few)?;
        let changes = self.changes(store, index, key)?;
        if changes.is_empty() {
            return Ok(ids);
        }
        let mut listed = List::new(index, tree, key)?;
        let mut next = None;
        for change in &changes {
            let id = EntryId(change.id);
            if next.is_none_or(|next| next < id) {
                next = listed.seek(id)?;
            }
            match (next == Some(id), change.is_added) {
                (false, true) => ids += 1,
                (true, false) => ids = ids.saturating_sub(1),
                _ => {}
            }
        }
        few.clear();
        if ids <= POSTINGS_FEW_MAX as u64 {
            let mut amended = Amended::new(List::new(index, tree, key)?, changes);
            while let Some(id) = amended.next()? {
                few.push(id);
            }
        }
        Ok(ids)
    }
}

/// About how many out-of-line values a page holds. Small entries are stored so.
const OUT_OF_LINE_VALUES: u64 = 12;

fn is_large(tree: &Tree<'_>) -> bool {
    let record = tree.record();
    let pages = match record.kind.out_of_line {
        true => record.leaf_pages + record.records / OUT_OF_LINE_VALUES,
        false => record.leaf_pages,
    };
    pages >= FETCHED_LEAF_PAGES_MIN
}

/// The tree of a table, if it is large and there is one store only. With several stores, keys would have to be divided
/// among them.
fn one_large<T: Trees>(trees: &T, table: Table) -> Result<Option<Tree<'_>>> {
    match trees.stores() {
        1 => Ok(trees.table(0, table)?.filter(is_large)),
        _ => Ok(None),
    }
}

/// Gets the values of keys one by one; with several stores all are fetched before.
fn fetch_and_get<T: Trees, K: AsRef<[u8]>>(
    trees: &T,
    table: Table,
    keys: &[K],
    each: &mut impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    if trees.stores() > 1 {
        trees.prefetch(table, keys, |_, _| {})?;
    }
    for (at, key) in keys.iter().enumerate() {
        each(at, trees.get(table, key.as_ref())?);
    }
    Ok(())
}

/// As [`postings::scan`], of what an index becomes through changes, ascending; whether `each` goes on.
fn scan_amended<'c>(
    index: Index,
    tree: Option<Tree<'_>>,
    range: Range<'_>,
    changes: impl Iterator<Item = (&'c [u8], Change)>,
    mut each: impl FnMut(&[u8], EntryId) -> bool,
) -> Result<bool> {
    let mut goes_on = true;
    let mut changes = changes.filter(|(key, _)| range.contains(key)).peekable();
    let place = |(key, change): &(&'c [u8], Change)| (*key, EntryId(change.id));
    if let Some(tree) = tree {
        postings::scan(index, tree, range, |key, id| {
            while let Some(before) = changes.next_if(|change| place(change) < (key, id)) {
                goes_on = goes_on && (!before.1.is_added || each(before.0, EntryId(before.1.id)));
            }
            let same = changes.next_if(|change| place(change) == (key, id));
            if same.is_none_or(|(_, same)| same.is_added) {
                goes_on = goes_on && each(key, id);
            }
            goes_on
        })?;
    }
    for (key, change) in changes.filter(|(_, change)| change.is_added) {
        goes_on = goes_on && each(key, EntryId(change.id));
    }
    Ok(goes_on)
}

impl<T: Trees> Read for T {
    type Value<'r>
        = &'r [u8]
    where
        T: 'r;
    type Cursor<'r>
        = EmbeddedCursor<'r>
    where
        T: 'r;
    type Postings<'r>
        = EmbeddedPostings<'r>
    where
        T: 'r;

    fn commit(&self) -> CommitNo {
        Trees::commit(self)
    }

    #[inline]
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        let store = match self.stores() {
            1 => 0,
            stores => placement::store_of(table, key, stores),
        };
        match self.table(store, table)? {
            Some(tree) => Ok(tree.get(key)?),
            None => Ok(None),
        }
    }

    fn prefetch<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        mut each: impl FnMut(usize, Place),
    ) -> Result<bool> {
        let stores = self.stores();
        if stores == 1 {
            let tree = one_large(self, table)?;
            if let Some(tree) = tree {
                tree.fetch_ahead(keys, |at, leaf| each(at, Place(leaf)))?;
            }
            return Ok(tree.is_some());
        }
        let mut fetched = false;
        let mut own = Vec::with_capacity(keys.len());
        for store in 0..stores {
            own.clear();
            let keys = keys.iter().map(AsRef::as_ref);
            own.extend(keys.filter(|key| placement::store_of(table, key, stores) == store));
            // A transaction holds only the stores of its keys.
            if !own.is_empty()
                && let Some(tree) = self.table(store, table)?.filter(is_large)
            {
                tree.fetch_ahead(&own, |_, _| {})?;
                fetched = true;
            }
        }
        Ok(fetched)
    }

    fn get_at(&self, table: Table, place: Place, key: &[u8]) -> Result<Option<&[u8]>> {
        // Only a directory of a single store gives out places.
        match self.table(0, table)? {
            Some(tree) => Ok(tree.get_in(place.0, key)?),
            None => Ok(None),
        }
    }

    fn get_each<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        match one_large(self, table)? {
            Some(tree) => Ok(tree.get_each(keys, each)?),
            None => fetch_and_get(self, table, keys, &mut each),
        }
    }

    fn get_each_to_put<K: AsRef<[u8]>>(
        &self,
        table: Table,
        keys: &[K],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        match one_large(self, table)? {
            Some(tree) => Ok(tree.get_each_to_change(keys, each)?),
            None => fetch_and_get(self, table, keys, &mut each),
        }
    }

    fn prefetch_lists<K: AsRef<[u8]>>(&self, index: Index, keys: &[K]) -> Result<bool> {
        let mut fetched = false;
        let mut blocks = Vec::new();
        for store in 0..self.stores() {
            let tree = self.blocks(store, index)?.filter(is_large);
            if tree.is_some() && blocks.is_empty() {
                blocks.extend(keys.iter().map(|key| {
                    let mut block = Vec::with_capacity(key.as_ref().len() + 16);
                    append_escaped(&mut block, key.as_ref());
                    block
                }));
            }
            if let Some(tree) = tree {
                tree.fetch_ahead(&blocks, |_, _| {})?;
                fetched = true;
            }
        }
        Ok(fetched)
    }

    fn scan(
        &self,
        table: Table,
        range: Range<'_>,
        direction: Direction,
    ) -> Result<EmbeddedCursor<'_>> {
        let trees = |first: usize, last: usize| {
            (first..=last)
                .filter_map(|store| self.table(store, table).transpose())
                .collect::<Result<Vec<_>>>()
        };
        match self.stores() {
            1 => EmbeddedCursor::new(self.table(0, table)?, range, direction),
            stores => match placement::scanned(table, range, stores) {
                Scanned::InTurn(store, last) if store == last => {
                    EmbeddedCursor::new(self.table(store, table)?, range, direction)
                }
                Scanned::InTurn(first, last) => {
                    EmbeddedCursor::in_turn(trees(first, last)?, range, direction)
                }
                Scanned::Merged(first, last) => {
                    EmbeddedCursor::merged(trees(first, last)?, range, direction)
                }
            },
        }
    }

    fn estimate(&self, table: Table, range: Range<'_>) -> Result<u64> {
        let (first, last) = match self.stores() {
            1 => (0, 0),
            stores => match placement::scanned(table, range, stores) {
                Scanned::InTurn(first, last) | Scanned::Merged(first, last) => (first, last),
            },
        };
        let mut records = 0;
        for store in first..=last {
            if let Some(tree) = self.table(store, table)? {
                records += tree.estimate(range.from, range.to)?;
            }
        }
        Ok(records)
    }

    fn rank(&self, table: Table, key: &[u8]) -> Result<u64> {
        let mut before = 0;
        for store in 0..self.stores() {
            if let Some(tree) = self.table(store, table)? {
                before += tree.rank(key)?;
            }
        }
        Ok(before)
    }

    fn key_at(&self, table: Table, before: u64) -> Result<Option<Vec<u8>>> {
        if self.stores() > 1 {
            return key_by_counting(self, table, before);
        }
        let Some(tree) = self.table(0, table)? else {
            return Ok(None);
        };
        let mut cursor = tree.cursor();
        Ok(match cursor.seek_nth(before)? {
            true => cursor.key()?.map(<[u8]>::to_vec),
            false => None,
        })
    }

    fn postings(&self, index: Index, key: &[u8]) -> Result<EmbeddedPostings<'_>> {
        EmbeddedPostings::new(
            index,
            (0..self.stores())
                .map(|store| Ok((self.blocks(store, index)?, self.changes(store, index, key)?))),
            key,
        )
    }

    fn scan_index(
        &self,
        index: Index,
        range: Range<'_>,
        mut each: impl FnMut(&[u8], EntryId) -> bool,
    ) -> Result<()> {
        let mut goes_on = true;
        for store in 0..self.stores() {
            if !goes_on {
                break;
            }
            let tree = self.blocks(store, index)?;
            goes_on = match index.kind {
                IndexKind::Substring => {
                    let changes = self.changes_of_all(store, index)?;
                    let changes = changes.iter();
                    let changes = changes.map(|posting| (&posting.gram[..], posting.change));
                    scan_amended(index, tree, range, changes, &mut each)?
                }
                IndexKind::Equality | IndexKind::Presence | IndexKind::Approximate => {
                    let mut changes: Vec<_> = self.unfiled(store, index).collect();
                    changes.sort_by_key(|(key, change)| (*key, change.id));
                    let ends = changes
                        .chunk_by(|(key, change), (of, other)| key == of && change.id == other.id);
                    let changes = ends.filter_map(|same| same.last().copied());
                    scan_amended(index, tree, range, changes, &mut each)?
                }
            };
        }
        Ok(())
    }

    fn cardinality(&self, index: Index, key: &[u8], few: &mut Vec<EntryId>) -> Result<u64> {
        let mut ids = Trees::cardinality(self, 0, index, key, few)?;
        let mut more = Vec::new();
        for store in 1..self.stores() {
            ids += Trees::cardinality(self, store, index, key, &mut more)?;
            few.append(&mut more);
        }
        if ids > POSTINGS_FEW_MAX as u64 {
            few.clear();
        }
        Ok(ids)
    }

    fn birthplace(&self, name_key: &[u8]) -> u16 {
        match self.stores() {
            1 => 0,
            stores => placement::store_of(Table::Name, name_key, stores) as u16,
        }
    }

    fn ids_end(&self, store: u16) -> Result<Option<EntryId>> {
        ids::next(self, store).map(Some)
    }

    fn has_index(&self, index: Index) -> Result<bool> {
        Ok(self.blocks(0, index)?.is_some())
    }

    fn last_changes(&self, mut each: impl FnMut(&[u8])) -> Result<()> {
        (0..self.stores()).try_for_each(|store| feed::last(self.feed(store)?, &mut each))
    }
}
