//! The free extents of an arena: a tree in order of their offsets, so that an extent that is given back meets its
//! neighbours and joins them.
//!
//! The root has what the arena's page has left; all other nodes are pages, which are taken from the end of what was
//! ever handed out. A leaf's entries are extents, in any order: one of them changes without the others being written.
//! An inner node's entries are its children, each with the offset from which on extents belong to it, and the largest
//! area that an extent below it has room for.
//!
//! ```text
//! OFFSET  SIZE  DESCRIPTION
//!      0     2  level: 0 for a leaf
//!      2     2  how many entries there are
//!      4     4  root: how many spare pages there are
//!      8     8  root: the first spare page, which begins with the offset of the next; 0 without one
//!     16        entries
//!
//! leaf    0     8  offset of an extent, a multiple of 16
//!         8     8  its length, too
//! inner   0     8  extents from this offset on are in this child, up to where another one begins
//!         8     8  the child's offset, plus the class of the largest area that fits into an extent there
//! ```
//!
//! Nothing here is looked at by anybody but an arena's own transactions, as long as there is room. In snapshot mode two
//! of them may miss that what they give back touches; everything else that two could do to the same extent or node is a
//! write to the same page.

use super::Heap;
use crate::error::{Error, Result};
use crate::fixed::{Fixed, Ptr};
use crate::memory::{Fault, Memory, PAGE_BYTES};

const PAGE: u64 = PAGE_BYTES as u64;
const PAGE_CLASS: u32 = PAGE.ilog2();
/// The smallest area has 16 bytes, and everything is a multiple of it.
pub(crate) const CLASS_MIN: u32 = 4;
/// The largest has 16 TiB.
pub(crate) const CLASS_MAX: u32 = 44;

/// Where the root is in its arena's page.
const TREE_AT: u64 = 512;
const ENTRIES_AT: u64 = 16;
const ENTRY_BYTES: u64 = 16;
/// The tests of this crate have trees of several levels with few entries.
const ROOT_ENTRIES_MAX: usize = if cfg!(test) {
    5
} else {
    ((PAGE - TREE_AT - ENTRIES_AT) / ENTRY_BYTES) as usize
};
const NODE_ENTRIES_MAX: usize = if cfg!(test) {
    6
} else {
    ((PAGE - ENTRIES_AT) / ENTRY_BYTES) as usize
};
/// More than a tree has whose nodes were split in halves, however many extents there are.
const LEVEL_MAX: u64 = 16;
/// Pages that are kept for nodes; if there are more they become free extents themselves.
const SPARES_MAX: u64 = 8;

/// What stands in a node.
type Entry = (u64, u64);

/// An area, or room for some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FreeExtent {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl FreeExtent {
    pub(crate) fn end(self) -> u64 {
        self.offset + self.bytes
    }

    /// Where in it an area of a class has room first.
    pub(crate) fn place(self, class: u32) -> Option<u64> {
        let at = self.offset.next_multiple_of(alignment(class));
        (at + (1 << class) <= self.end()).then_some(at)
    }

    /// The class of the largest area that has room; 0 if there is none.
    fn class(self) -> u32 {
        let largest = self.bytes.checked_ilog2().unwrap_or(0).min(CLASS_MAX);
        let classes = CLASS_MIN..=largest;
        classes
            .rev()
            .find(|class| self.place(*class).is_some())
            .unwrap_or(0)
    }
}

/// What an area's offset is a multiple of.
pub(crate) const fn alignment(class: u32) -> u64 {
    1 << if class < PAGE_CLASS {
        class
    } else {
        PAGE_CLASS
    }
}

/// A node as it was read; what is changed in it is stored at once.
struct Node {
    at: u64,
    level: u64,
    entries: Vec<Entry>,
}

impl Node {
    fn extents(&self) -> impl Iterator<Item = FreeExtent> {
        let entries = self.entries.iter();
        entries.map(|(offset, bytes)| FreeExtent {
            offset: *offset,
            bytes: *bytes,
        })
    }

    fn children(&self) -> impl Iterator<Item = Child> {
        self.entries.iter().copied().map(child_of)
    }

    /// The class of the largest area that fits below it; 0 if there is nothing.
    fn class(&self) -> u32 {
        let classes: Option<u32> = match self.level {
            0 => self.extents().map(FreeExtent::class).max(),
            _ => self.children().map(|child| child.class).max(),
        };
        classes.unwrap_or(0)
    }

    /// The place of the child that extents from an offset on belong to.
    fn place_for(&self, offset: u64) -> Result<usize> {
        let from = |place: &usize| self.entries[*place].0;
        let places = 0..self.entries.len();
        let before = places.clone().filter(|place| from(place) <= offset);
        let place = before.max_by_key(from).or_else(|| places.min_by_key(from));
        place.ok_or_else(|| damaged(self.at, "an inner node has no children"))
    }
}

/// An entry of an inner node.
#[derive(Clone, Copy)]
struct Child {
    from: u64,
    at: u64,
    class: u32,
}

impl Child {
    fn entry(self) -> Entry {
        (self.from, self.at + u64::from(self.class))
    }
}

/// What is done to a leaf.
#[derive(Clone, Copy)]
enum Change {
    Insert(FreeExtent),
    Replace(u64, FreeExtent),
    Remove(u64),
}

impl Change {
    /// The offset that says which leaf it is.
    fn key(self) -> u64 {
        match self {
            Self::Insert(extent) => extent.offset,
            Self::Replace(offset, _) | Self::Remove(offset) => offset,
        }
    }
}

impl<M: Memory<Error = Error>> Heap<'_, M> {
    /// Takes an area of a class from the smallest extent that has room for it.
    pub(crate) fn take(&mut self, class: u32) -> Result<Option<u64>> {
        let mut node = self.root()?;
        while node.level > 0 {
            let fits = node.children().filter(|child| child.class >= class);
            // Low offsets first, so that what is in use stays together.
            let Some(child) = fits.min_by_key(|child| (child.class, child.from)) else {
                return Ok(None);
            };
            node = self.child(child, node.level)?;
        }
        let places = node.extents().filter_map(|extent| {
            let at = extent.place(class)?;
            Some((extent, at))
        });
        let smallest = places.min_by_key(|(extent, _)| (extent.bytes, extent.offset));
        let Some((extent, at)) = smallest else {
            return Ok(None);
        };
        self.cut(extent, at, 1 << class)?;
        Ok(Some(at))
    }

    /// Takes so many bytes out of an extent.
    pub(crate) fn cut(&mut self, extent: FreeExtent, at: u64, bytes: u64) -> Result<()> {
        self.check_extent(extent)?;
        let head = FreeExtent {
            offset: extent.offset,
            bytes: at - extent.offset,
        };
        let tail = FreeExtent {
            offset: at + bytes,
            bytes: extent.end() - (at + bytes),
        };
        match (head.bytes > 0, tail.bytes > 0) {
            (false, false) => self.change(Change::Remove(extent.offset))?,
            (true, false) => self.change(Change::Replace(extent.offset, head))?,
            (false, true) => self.relocate(extent.offset, tail)?,
            (true, true) => {
                self.change(Change::Replace(extent.offset, head))?;
                self.insert(tail)?;
            }
        }
        self.give_emptied()
    }

    /// Gives an extent back, which joins those that it touches.
    pub(crate) fn give(&mut self, extent: FreeExtent) -> Result<()> {
        self.join(extent)?;
        self.give_emptied()
    }

    fn join(&mut self, extent: FreeExtent) -> Result<()> {
        self.check_extent(extent)?;
        let end = extent.end();
        let mut before = self.last_until(end)?;
        let behind = before.filter(|found| found.offset == end);
        if behind.is_some() {
            before = self.last_until(end - 1)?;
        }
        if let Some(found) = before {
            self.check_extent(found)?;
            if found.end() > extent.offset {
                return Err(damaged(extent.offset, "this is free already"));
            }
        }
        if let Some(found) = behind {
            self.check_extent(found)?;
        }
        let before = before.filter(|before| before.end() == extent.offset);
        match (before, behind) {
            (None, None) => self.insert(extent),
            (Some(before), None) => {
                let bytes = before.bytes + extent.bytes;
                self.change(Change::Replace(
                    before.offset,
                    FreeExtent { bytes, ..before },
                ))
            }
            (None, Some(behind)) => {
                let bytes = extent.bytes + behind.bytes;
                self.relocate(behind.offset, FreeExtent { bytes, ..extent })
            }
            (Some(before), Some(behind)) => {
                let bytes = before.bytes + extent.bytes + behind.bytes;
                self.change(Change::Remove(behind.offset))?;
                self.change(Change::Replace(
                    before.offset,
                    FreeExtent { bytes, ..before },
                ))
            }
        }
    }

    /// The last extent that begins at an offset or before it.
    pub(crate) fn last_until(&self, offset: u64) -> Result<Option<FreeExtent>> {
        let root = self.root()?;
        self.last_below(&root, offset)
    }

    fn last_below(&self, node: &Node, offset: u64) -> Result<Option<FreeExtent>> {
        if node.level == 0 {
            let before = node.extents().filter(|found| found.offset <= offset);
            return Ok(before.max());
        }
        let mut until = Some(offset);
        // In the child that it belongs to all may begin later. In the one before, none does.
        for _ in 0..2 {
            let Some(last) = until else {
                break;
            };
            let before = node.children().filter(|child| child.from <= last);
            let Some(child) = before.max_by_key(|child| child.from) else {
                break;
            };
            let found = self.last_below(&self.child(child, node.level)?, offset)?;
            if found.is_some() {
                return Ok(found);
            }
            until = child.from.checked_sub(1);
        }
        Ok(None)
    }

    /// All extents, in any order.
    pub(crate) fn all_extents(&self) -> Result<Vec<FreeExtent>> {
        let mut found = Vec::new();
        self.visit(|node| {
            if node.level == 0 {
                found.extend(node.extents());
            }
        })?;
        Ok(found)
    }

    fn visit(&self, mut look: impl FnMut(&Node)) -> Result<()> {
        let mut nodes = vec![self.root()?];
        let mut left = self.limit / PAGE;
        while let Some(node) = nodes.pop() {
            let fewer = left.checked_sub(1);
            left = fewer.ok_or_else(|| damaged(node.at, "more nodes than there are pages"))?;
            if node.level > 0 {
                for child in node.children() {
                    nodes.push(self.child(child, node.level)?);
                }
            }
            look(&node);
        }
        Ok(())
    }

    /// Gives an extent another offset and length.
    fn relocate(&mut self, offset: u64, to: FreeExtent) -> Result<()> {
        if self.root()?.level == 0 {
            return self.change(Change::Replace(offset, to));
        }
        self.change(Change::Remove(offset))?;
        self.insert(to)
    }

    /// Inserts an extent; where there is no page for a node it goes into the lists.
    fn insert(&mut self, extent: FreeExtent) -> Result<()> {
        if self.make_room(extent.offset)? {
            self.change(Change::Insert(extent))
        } else {
            self.list(extent)
        }
    }

    /// Takes an extent out of the tree. [`Heap::give_emptied`] is to follow.
    pub(crate) fn remove(&mut self, extent: FreeExtent) -> Result<()> {
        self.change(Change::Remove(extent.offset))
    }

    fn change(&mut self, change: Change) -> Result<()> {
        let root = self.root()?;
        let level = root.level;
        self.change_below(root, change)?;
        if level > 0 {
            self.lower_root()?;
        }
        Ok(())
    }

    /// Changes a leaf below a node; gives what [`Node::class`] says of the node then.
    fn change_below(&mut self, mut node: Node, change: Change) -> Result<u32> {
        if node.level == 0 {
            self.change_leaf(&mut node, change)?;
        } else {
            let place = node.place_for(change.key())?;
            let before = node.entries[place];
            let mut child = child_of(before);
            let below = self.child(child, node.level)?;
            child.class = self.change_below(below, change)?;
            child.from = child.from.min(change.key());
            if child.class == 0 {
                self.remove_entry(&mut node, place)?;
                self.leave_node(child.at)?;
            } else if child.entry() != before {
                self.set_entry(&mut node, place, child.entry())?;
            }
        }
        // Nobody asks for the root's.
        let is_root = node.at == self.tree_at();
        Ok(if is_root { 0 } else { node.class() })
    }

    fn change_leaf(&mut self, node: &mut Node, change: Change) -> Result<()> {
        let place = node.entries.iter().position(|(at, _)| *at == change.key());
        let misplaced = || damaged(node.at, "a free extent is in the wrong node");
        match change {
            Change::Insert(extent) => self.push_entry(node, (extent.offset, extent.bytes)),
            Change::Replace(_, to) => {
                let place = place.ok_or_else(misplaced)?;
                self.set_entry(node, place, (to.offset, to.bytes))
            }
            Change::Remove(_) => {
                let place = place.ok_or_else(misplaced)?;
                self.remove_entry(node, place)
            }
        }
    }

    /// Splits what is full on the way to a leaf; gives `false` if there is no page for it.
    fn make_room(&mut self, offset: u64) -> Result<bool> {
        let mut node = self.root()?;
        if node.entries.len() == ROOT_ENTRIES_MAX {
            if node.level >= LEVEL_MAX {
                return Err(damaged(node.at, "more levels than a tree can have"));
            }
            let Some(low) = self.new_node()? else {
                return Ok(false);
            };
            let Some(high) = self.new_node()? else {
                self.add_spare(low)?;
                return Ok(false);
            };
            let (lower, upper) = halves(node.entries);
            let below = node.level;
            // What comes before all others belongs to the first child.
            let low = self.fill_node(low, below, 0, lower)?;
            let high = self.fill_node(high, below, first_of(&upper), upper)?;
            node = Node {
                at: node.at,
                level: below + 1,
                entries: vec![low.entry(), high.entry()],
            };
            self.store_node(&node)?;
        }
        while node.level > 0 {
            let place = node.place_for(offset)?;
            let child = child_of(node.entries[place]);
            let mut below = self.child(child, node.level)?;
            if below.entries.len() == NODE_ENTRIES_MAX {
                let Some(high) = self.new_node()? else {
                    return Ok(false);
                };
                let (lower, upper) = halves(below.entries);
                let level = below.level;
                let high = self.fill_node(high, level, first_of(&upper), upper)?;
                let low = self.fill_node(child.at, level, child.from, lower)?;
                self.set_entry(&mut node, place, low.entry())?;
                self.push_entry(&mut node, high.entry())?;
                let next = if offset < high.from { low } else { high };
                below = self.child(next, node.level)?;
            }
            node = below;
        }
        Ok(true)
    }

    /// Has the root take the place of its only child.
    fn lower_root(&mut self) -> Result<()> {
        let mut root = self.root()?;
        if root.level == 0 {
            return Ok(());
        }
        if root.entries.is_empty() {
            root.level = 0;
            return self.store_node(&root);
        }
        if root.entries.len() > 1 {
            return Ok(());
        }
        let child = child_of(root.entries[0]);
        let below = self.child(child, root.level)?;
        if below.entries.len() < ROOT_ENTRIES_MAX {
            root.level = below.level;
            root.entries = below.entries;
            self.store_node(&root)?;
            self.leave_node(child.at)?;
        }
        Ok(())
    }

    fn tree_at(&self) -> u64 {
        self.arena_at() + TREE_AT
    }

    fn root(&self) -> Result<Node> {
        self.node(self.tree_at(), ROOT_ENTRIES_MAX, None)
    }

    /// The node of a child of a node of some level.
    fn child(&self, child: Child, level: u64) -> Result<Node> {
        self.check_page(child.at)?;
        self.node(child.at, NODE_ENTRIES_MAX, level.checked_sub(1))
    }

    fn node(&self, at: u64, entries_max: usize, level: Option<u64>) -> Result<Node> {
        let bytes = ENTRIES_AT as usize + entries_max * ENTRY_BYTES as usize;
        let bytes = self.memory.read(at, bytes)?;
        let word = |at: usize| u64::decode(&bytes[at..at + 8]);
        let head = word(0);
        let (found, count) = (head % (1 << 16), (head >> 16) % (1 << 16));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > entries_max || found > LEVEL_MAX || level.is_some_and(|level| level != found) {
            return Err(damaged(at, "this is no node of free extents"));
        }
        let entries = (0..count).map(|place| {
            let at = (ENTRIES_AT + place as u64 * ENTRY_BYTES) as usize;
            (word(at), word(at + 8))
        });
        let entries: Vec<_> = entries.collect();
        // So that no sum of the two is too large.
        let is_outside = |(offset, bytes): &Entry| (*offset).max(*bytes) > self.limit;
        if found == 0 && entries.iter().any(is_outside) {
            return Err(damaged(at, "a free extent is outside of the space"));
        }
        Ok(Node {
            at,
            level: found,
            entries,
        })
    }

    /// Makes a page a node, and gives what its parent says of it.
    fn fill_node(&mut self, at: u64, level: u64, from: u64, entries: Vec<Entry>) -> Result<Child> {
        let node = Node { at, level, entries };
        self.store_node(&node)?;
        Ok(Child {
            from,
            at,
            class: node.class(),
        })
    }

    fn store_node(&mut self, node: &Node) -> Result<()> {
        self.store_head(node)?;
        for (place, entry) in node.entries.iter().enumerate() {
            self.store_entry(node.at, place, *entry)?;
        }
        Ok(())
    }

    /// Stores level and count; what the root says of spare pages stays.
    fn store_head(&mut self, node: &Node) -> Result<()> {
        let kept = if node.at == self.tree_at() {
            self.memory.load(Ptr::<u64>::new(node.at))? >> 32 << 32
        } else {
            0
        };
        let head = node.level + ((node.entries.len() as u64) << 16);
        self.memory.store(Ptr::new(node.at), &(kept + head))
    }

    fn store_entry(&mut self, node_at: u64, place: usize, entry: Entry) -> Result<()> {
        let at = node_at + ENTRIES_AT + place as u64 * ENTRY_BYTES;
        self.memory.store(Ptr::new(at), &entry.0)?;
        self.memory.store(Ptr::new(at + 8), &entry.1)
    }

    fn set_entry(&mut self, node: &mut Node, place: usize, entry: Entry) -> Result<()> {
        node.entries[place] = entry;
        self.store_entry(node.at, place, entry)
    }

    /// For a node that has room.
    fn push_entry(&mut self, node: &mut Node, entry: Entry) -> Result<()> {
        self.store_entry(node.at, node.entries.len(), entry)?;
        node.entries.push(entry);
        self.store_head(node)
    }

    fn remove_entry(&mut self, node: &mut Node, place: usize) -> Result<()> {
        node.entries.swap_remove(place);
        if let Some(moved) = node.entries.get(place) {
            self.store_entry(node.at, place, *moved)?;
        }
        self.store_head(node)
    }

    /// A page for a node.
    fn new_node(&mut self) -> Result<Option<u64>> {
        if let Some(page) = self.take_spare()? {
            return Ok(Some(page));
        }
        for pages in [SPARES_MAX, 1] {
            if let Some(at) = self.extend(pages * PAGE)? {
                for place in (1..pages).rev() {
                    self.add_spare(at + place * PAGE)?;
                }
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn take_spare(&mut self) -> Result<Option<u64>> {
        let (head, first) = self.spares()?;
        if first == 0 {
            return Ok(None);
        }
        self.check_page(first)?;
        let next: u64 = self.memory.load(Ptr::new(first))?;
        let fewer = head.checked_sub(1 << 32);
        let fewer = fewer.ok_or_else(|| damaged(first, "a spare page that was not counted"))?;
        self.set_spares(fewer, next)?;
        Ok(Some(first))
    }

    fn add_spare(&mut self, page: u64) -> Result<()> {
        let (head, first) = self.spares()?;
        let more = head.checked_add(1 << 32);
        let more = more.ok_or_else(|| damaged(page, "more spare pages than there can be"))?;
        self.memory.store(Ptr::new(page), &first)?;
        self.set_spares(more, page)
    }

    /// The root's head, with the number of spare pages, and the first of them.
    fn spares(&self) -> Result<(u64, u64)> {
        let at = self.tree_at();
        let head = self.memory.load(Ptr::<u64>::new(at))?;
        Ok((head, self.memory.load(Ptr::<u64>::new(at + 8))?))
    }

    fn set_spares(&mut self, head: u64, first: u64) -> Result<()> {
        let at = self.tree_at();
        self.memory.store(Ptr::new(at), &head)?;
        self.memory.store(Ptr::new(at + 8), &first)
    }

    /// Has a page that is no node any more used again.
    fn leave_node(&mut self, page: u64) -> Result<()> {
        let (head, _) = self.spares()?;
        if head >> 32 < SPARES_MAX {
            return self.add_spare(page);
        }
        // The one that looks at it still finds that it was changed.
        self.memory.store(Ptr::new(page), &0_u64)?;
        self.emptied.push(page);
        Ok(())
    }

    /// Gives back the pages that are no nodes any more.
    pub(crate) fn give_emptied(&mut self) -> Result<()> {
        while let Some(offset) = self.emptied.pop() {
            self.join(FreeExtent {
                offset,
                bytes: PAGE,
            })?;
        }
        Ok(())
    }

    fn check_extent(&self, extent: FreeExtent) -> Result<()> {
        let FreeExtent { offset, bytes } = extent;
        let is_whole =
            offset.is_multiple_of(1 << CLASS_MIN) && bytes.is_multiple_of(1 << CLASS_MIN);
        let end = offset.checked_add(bytes);
        if !is_whole || bytes == 0 || end.is_none_or(|end| end > self.limit) {
            return Err(damaged(offset, "a free extent cannot be like this"));
        }
        self.check_page(offset - offset % PAGE)
    }
}

fn child_of((from, word): Entry) -> Child {
    Child {
        from,
        at: word - word % PAGE,
        class: (word % PAGE) as u32,
    }
}

/// The entries with the lower and those with the higher offsets.
fn halves(mut entries: Vec<Entry>) -> (Vec<Entry>, Vec<Entry>) {
    entries.sort_unstable();
    let upper = entries.split_off(entries.len() / 2);
    (entries, upper)
}

fn first_of(entries: &[Entry]) -> u64 {
    entries.first().map_or(0, |(from, _)| *from)
}

fn damaged(offset: u64, reason: &'static str) -> Error {
    Fault::Damaged { offset, reason }.into()
}

#[cfg(all(test, not(shuttle)))]
impl<M: Memory<Error = Error>> Heap<'_, M> {
    /// The pages that are nodes or spare; fails if the tree is not in good order.
    pub(crate) fn pages_of_tree(&self, may_touch: bool) -> Result<Vec<u64>> {
        let root = self.root()?;
        let mut pages = Vec::new();
        let mut extents = Vec::new();
        self.audit(&root, 0, u64::MAX, &mut pages, &mut extents)?;
        extents.sort_unstable();
        for pair in extents.windows(2) {
            assert!(pair[0].end() <= pair[1].offset, "{pair:?} overlap");
            assert!(
                may_touch || pair[0].end() < pair[1].offset,
                "{pair:?} touch"
            );
        }
        let (head, mut spare) = self.spares()?;
        let mut count = 0;
        while spare != 0 {
            pages.push(spare);
            spare = self.memory.load(Ptr::<u64>::new(spare))?;
            count += 1;
        }
        assert_eq!(head >> 32, count, "spare pages");
        Ok(pages)
    }

    fn audit(
        &self,
        node: &Node,
        from: u64,
        to: u64,
        pages: &mut Vec<u64>,
        extents: &mut Vec<FreeExtent>,
    ) -> Result<()> {
        if node.level == 0 {
            for extent in node.extents() {
                self.check_extent(extent)?;
                assert!(
                    (from..to).contains(&extent.offset),
                    "{extent:?} is not at {from}..{to}"
                );
                extents.push(extent);
            }
            return Ok(());
        }
        let mut children: Vec<Child> = node.children().collect();
        children.sort_unstable_by_key(|child| child.from);
        for (place, child) in children.iter().enumerate() {
            let below = self.child(*child, node.level)?;
            assert!(!below.entries.is_empty(), "an empty node");
            assert_eq!(below.class(), child.class, "class of {}", child.at);
            assert!(child.from >= from || place == 0);
            let first = if place == 0 { from } else { child.from };
            let end = children.get(place + 1).map_or(to, |next| next.from);
            pages.push(child.at);
            self.audit(&below, first, end, pages, extents)?;
        }
        Ok(())
    }
}
