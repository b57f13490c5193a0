//! Moving among the values of one key.

use super::{Cursor, Direction, Spot};
use crate::error::{Error, Result};
use crate::format::pages::ReadPages;
use crate::format::tree_record::{TreeKind, TreeRecord};
use crate::ids::PageNo;
use crate::tree::duplicates::{Values, damaged};
use crate::tree::node::Node;

/// Where among the values of its key a cursor stands.
pub(super) enum Among<'p, P: ?Sized> {
    /// The tree has no duplicates.
    One,
    /// At a number of the values in the leaf; before it if the value that it stood on is gone, which may be behind the
    /// last one.
    List {
        values: Values<'p>,
        at: usize,
        gap: bool,
    },
    /// In their tree.
    Tree(Box<Cursor<'p, P>>),
}

/// The same, without the pages.
#[derive(Clone, Default)]
pub(super) enum Position {
    #[default]
    One,
    List {
        at: usize,
        gap: bool,
    },
    Tree(Box<super::Position>),
    /// At the first of so many.
    First(u64),
}

impl Position {
    pub(super) fn is_in_gap(&self) -> bool {
        match self {
            Self::One | Self::First(_) => false,
            Self::List { gap, .. } => *gap,
            Self::Tree(position) => position.gap,
        }
    }
}

impl<'p, P: ReadPages + ?Sized> Among<'p, P> {
    /// Notes where it stands, in the room of what was noted before.
    pub(super) fn note(&self, position: &mut Position) {
        match (self, &mut *position) {
            (Self::Tree(cursor), Position::Tree(position)) => cursor.note(position),
            (Self::Tree(cursor), _) => {
                let mut new = Box::<super::Position>::default();
                cursor.note(&mut new);
                *position = Position::Tree(new);
            }
            (Self::One, _) => *position = Position::One,
            (&Self::List { at, gap, .. }, _) => *position = Position::List { at, gap },
        }
    }

    pub(super) fn is_in_gap(&self) -> bool {
        match self {
            Self::One => false,
            Self::List { gap, .. } => *gap,
            Self::Tree(cursor) => cursor.gap,
        }
    }

    pub(super) fn value(&self, leaf: PageNo) -> Result<Option<&'p [u8]>> {
        match self {
            Self::One => Ok(None),
            Self::List { values, at, .. } if *at as u64 >= values.len() => Ok(None),
            Self::List { values, at, .. } => values.get(*at).map(Some).ok_or_else(|| damaged(leaf)),
            Self::Tree(cursor) => cursor.whole_key(),
        }
    }

    pub(super) fn place(&self) -> Option<Spot> {
        match self {
            Self::One => None,
            Self::List { at, .. } => Some((PageNo(0), *at)),
            Self::Tree(cursor) => cursor
                .leaf
                .as_ref()
                .map(|leaf| (leaf.number(), cursor.slot)),
        }
    }
}

impl super::Position {
    /// How many values the key has there, if that was found out on the way.
    #[inline]
    pub(crate) fn known_duplicates(&self) -> Option<u64> {
        match self.among {
            Position::First(values) if self.leaf.is_some() => Some(values),
            _ => None,
        }
    }
}

/// How many values the entry of a leaf has.
fn values_at(leaf: &Node<'_>, slot: usize, kind: TreeKind) -> Result<u64> {
    match kind.duplicates {
        Some(_) => Ok(Values::of(leaf, slot, kind)?.len()),
        None => Ok(1),
    }
}

impl<'p, P: ReadPages + ?Sized> Cursor<'p, P> {
    /// How many values the key has that the cursor stands on; 0 if it stands nowhere. Without a walk.
    pub fn duplicates(&self) -> Result<u64> {
        match self.here() {
            Some(leaf) => values_at(leaf, self.slot, self.view.record.kind),
            None => Ok(0),
        }
    }

    /// Goes to the first value of the present key.
    pub fn first_duplicate(&mut self) -> Result<bool> {
        self.gap = false;
        self.enter(Direction::Forward)
    }

    /// Goes to the last value of the present key.
    pub fn last_duplicate(&mut self) -> Result<bool> {
        self.gap = false;
        self.enter(Direction::Back)
    }

    /// Goes to the next value of the present key. If there is none, answers `false` and stays.
    pub fn next_duplicate(&mut self) -> Result<bool> {
        if !self.is_among() || self.gap {
            return Ok(false);
        }
        let gap = self.among.is_in_gap();
        let moved = self.next_among()?;
        if !moved && let Among::Tree(cursor) = &mut self.among {
            cursor.last()?;
            cursor.slot += usize::from(gap);
            cursor.gap = gap;
        }
        Ok(moved)
    }

    /// Goes to the value before, of the present key. If there is none, answers `false` and stays.
    pub fn prev_duplicate(&mut self) -> Result<bool> {
        if !self.is_among() || self.gap {
            return Ok(false);
        }
        let gap = self.among.is_in_gap();
        let moved = self.prev_among()?;
        if !moved && let Among::Tree(cursor) = &mut self.among {
            cursor.first()?;
            cursor.gap = gap;
        }
        Ok(moved)
    }

    /// Goes to the record with this key and this value.
    pub fn seek_duplicate(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.search(key)? {
            self.enter_at(value)?;
            let found = match &self.among {
                Among::One => self.value()? == Some(value),
                among => !among.is_in_gap(),
            };
            if found {
                return Ok(true);
            }
        }
        self.leaf = None;
        Ok(false)
    }

    /// Goes to the record with this key whose value is the first that is `value` or greater.
    pub fn seek_duplicate_from(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.search(key)? {
            self.enter_at(value)?;
            match &mut self.among {
                Among::One => {}
                Among::List { gap, .. } => *gap = false,
                Among::Tree(cursor) => cursor.gap = false,
            }
            let found = self.value()?;
            if found.is_some_and(|found| self.is_among() || found >= value) {
                return Ok(true);
            }
        }
        self.leaf = None;
        Ok(false)
    }

    /// Values of one length that lie in one piece together with the present one; the cursor goes to the last of them.
    /// [`Error::NoDuplicates`] unless the tree has duplicates of one length.
    pub fn duplicates_here(&mut self) -> Result<Option<&'p [u8]>> {
        if !self.view.record.kind.has_fixed_duplicates() {
            return Err(Error::NoDuplicates);
        }
        let Some(leaf) = self.here() else {
            return Ok(None);
        };
        let damaged = damaged(leaf.number());
        let piece = match &mut self.among {
            Among::One => None,
            Among::List { values, at, gap } => {
                *gap = false;
                *at = (values.len() as usize).saturating_sub(1);
                Some(values.packed())
            }
            Among::Tree(cursor) => {
                cursor.gap = false;
                cursor.leaf.as_ref().and_then(|leaf| {
                    cursor.slot = leaf.len().saturating_sub(1);
                    leaf.packed(0..leaf.len())
                })
            }
        };
        piece.map(Some).ok_or(damaged)
    }

    /// The next piece of values of one length, as [`Cursor::duplicates_here`] gives it; `None` behind the last one of
    /// the key.
    pub fn next_duplicates(&mut self) -> Result<Option<&'p [u8]>> {
        self.duplicates_here()?;
        match self.next_duplicate()? {
            true => self.duplicates_here(),
            false => Ok(None),
        }
    }

    /// The piece before; `None` before the first one of the key.
    pub fn prev_duplicates(&mut self) -> Result<Option<&'p [u8]>> {
        self.duplicates_here()?;
        if let Among::Tree(cursor) = &mut self.among {
            cursor.slot = 0;
            if self.prev_duplicate()? {
                return self.duplicates_here();
            }
        }
        Ok(None)
    }

    /// Whether there are duplicates to stand among.
    #[inline]
    pub(super) fn is_among(&self) -> bool {
        self.leaf.is_some() && !matches!(self.among, Among::One)
    }

    /// Having come to a key, goes to the first of its values, or the last. Answers whether the cursor stands on a
    /// record.
    #[inline]
    pub(super) fn enter(&mut self, direction: Direction) -> Result<bool> {
        if self.view.record.kind.duplicates.is_some() {
            self.enter_values(direction)?;
        }
        Ok(self.leaf.is_some())
    }

    fn enter_values(&mut self, direction: Direction) -> Result<()> {
        let Some(values) = self.values()? else {
            return Ok(());
        };
        if let Values::Tree(tree) = values {
            let mut cursor = self.sub_cursor(tree);
            match direction {
                Direction::Forward => cursor.first()?,
                Direction::Back => cursor.last()?,
            };
            self.among = Among::Tree(cursor);
            return Ok(());
        }
        let at = match direction {
            Direction::Forward => 0,
            Direction::Back => values.len() as usize - 1,
        };
        self.among = Among::List {
            values,
            at,
            gap: false,
        };
        Ok(())
    }

    /// Having come to a key, goes to one of its values, or into the gap where it would be.
    pub(super) fn enter_at(&mut self, value: &[u8]) -> Result<()> {
        let Some(values) = self.values()? else {
            if self.view.record.kind.duplicates.is_none() {
                self.among = Among::One;
            }
            return Ok(());
        };
        if let Values::Tree(tree) = values {
            let mut cursor = self.sub_cursor(tree);
            cursor.stand_at(value, &[])?;
            self.among = Among::Tree(cursor);
            return Ok(());
        }
        let found = values.search(value, self.view.orders.duplicates, self.leaf_no())?;
        self.among = Among::List {
            values,
            at: found.slot,
            gap: !found.exact,
        };
        Ok(())
    }

    pub(super) fn resume_among(&mut self, position: &Position) -> Result<()> {
        let Some(values) = self.values()? else {
            return Ok(());
        };
        self.among = match (position, values) {
            (Position::Tree(position), Values::Tree(tree)) => {
                let view = self.view.of_values(tree);
                Among::Tree(Box::new(Cursor::resume(view, position)?))
            }
            (&Position::List { at, gap }, values) => Among::List { values, at, gap },
            (Position::First(_), _) => return self.enter_values(Direction::Forward),
            _ => return Err(damaged(self.leaf_no())),
        };
        Ok(())
    }

    /// The values of the key at the slot, in a tree with duplicates.
    fn values(&self) -> Result<Option<Values<'p>>> {
        let kind = self.view.record.kind;
        match self.here() {
            Some(leaf) if kind.duplicates.is_some() => Values::of(leaf, self.slot, kind).map(Some),
            _ => Ok(None),
        }
    }

    fn sub_cursor(&mut self, tree: TreeRecord) -> Box<Self> {
        let view = self.view.of_values(tree);
        match std::mem::replace(&mut self.among, Among::One) {
            Among::Tree(mut cursor) => {
                cursor.view = view;
                cursor
            }
            _ => Box::new(Cursor::new(view)),
        }
    }

    fn leaf_no(&self) -> PageNo {
        self.leaf.as_ref().map_or(PageNo(0), |leaf| leaf.number())
    }

    pub(super) fn next_among(&mut self) -> Result<bool> {
        match &mut self.among {
            Among::One => Ok(false),
            Among::List { values, at, gap } => {
                let next = *at + usize::from(!*gap);
                if next as u64 >= values.len() {
                    return Ok(false);
                }
                (*at, *gap) = (next, false);
                Ok(true)
            }
            Among::Tree(cursor) => cursor.next(),
        }
    }

    pub(super) fn prev_among(&mut self) -> Result<bool> {
        match &mut self.among {
            Among::One => Ok(false),
            Among::List { at, gap, .. } => match at.checked_sub(1) {
                Some(before) => {
                    (*at, *gap) = (before, false);
                    Ok(true)
                }
                None => Ok(false),
            },
            Among::Tree(cursor) => cursor.prev(),
        }
    }
}
